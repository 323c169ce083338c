/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of modules by the paths of their files, for this machine. */
#include <errno.h>
#include <stdlib.h>

#include "config/config_internal.h"
#include "config/ip2nets.h"
#include "config/modprobe.h"

static int read_files(const char *const *path, unsigned count, struct modprobe_file *file,
                      struct cfg_report *report)
{
    struct cfg_reader r = {.report = report};
    char *text;
    int rc;

    for (unsigned i = 0; i < count; i++) {
        r.name = path[i];
        rc = cfg_read_file(path[i], &text, &file[i].len);
        if (rc != 0) {
            cfg_error(&r, 0, "cannot be read: %s; name a file of /etc/modprobe.d", strerror(-rc));
            return rc;
        }
        file[i].name = path[i];
        file[i].text = text;
    }
    return 0;
}

int modprobe_import(const char *const *path, unsigned count, char **yaml, struct cfg_report *report)
{
    struct cfg_reader r = {.report = report, .name = "modprobe"};
    struct modprobe_file *file = calloc(MODPROBE_MAX_FILES, sizeof(*file));
    struct cfg_address *address = calloc(CFG_MAX_ADDRESSES, sizeof(*address));
    int rc = -ENOMEM;

    *yaml = NULL;
    memset(report, 0, sizeof(*report));
    if (!file || !address)
        goto out;
    if (count > MODPROBE_MAX_FILES) {
        cfg_error(&r, 0, "more than %d files; name fewer", MODPROBE_MAX_FILES);
        rc = -EINVAL;
        goto out;
    }
    rc = read_files(path, count, file, report);
    if (rc == 0)
        rc = modprobe_convert(file, count, address, ip2nets_addresses(address, CFG_MAX_ADDRESSES),
                              yaml, report);
out:
    for (unsigned i = 0; file && i < MODPROBE_MAX_FILES; i++)
        free((char *)(uintptr_t)file[i].text);
    free(address);
    free(file);
    return rc;
}
