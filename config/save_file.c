/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves a document to a file. See save.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/place.h"
#include "config/save.h"
#include "lib/base/err.h"

int cfg_save_place(const struct cfg_place *place, const char *path, const struct cfg *cfg,
                   enum cfg_saved *how, struct err *err)
{
    char *old = NULL, *text = NULL;
    size_t len = 0;
    int rc = cfg_place_read(place, &old, &len);

    if (rc == -EISDIR || rc == -EINVAL)
        return err_set(err, rc, "%s is no file", path);
    if (rc != 0 && rc != -ENOENT)
        return err_set(err, rc, "%s cannot be read: %s", path, strerror(-rc));
    rc = cfg_save_text(path, old, len, cfg, &text, how, err);
    if (rc == 0 && *how != CFG_SAVED_SAME) {
        rc = cfg_place_write(place, text);
        if (rc != 0)
            err_text(err, "%s cannot be written: %s", path, strerror(-rc));
    }
    free(text);
    free(old);
    return rc;
}

int cfg_save_file(const char *path, const struct cfg *cfg, enum cfg_saved *how, struct err *err)
{
    struct cfg_place place;
    int rc = cfg_place_open(&place, path, NULL);

    if (rc != 0)
        return err_set(err, rc, "%s cannot be read: %s", path, strerror(-rc));
    rc = cfg_save_place(&place, path, cfg, how, err);
    cfg_place_close(&place);
    return rc;
}
