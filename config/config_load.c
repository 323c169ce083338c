/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the file. */
#include "config/config_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cfg_read_fd(int fd, char **text, size_t *len)
{
    size_t used = 0, room = YAML_MAX_BYTES + 1;
    char *buf = malloc(room);
    int rc = buf ? 0 : -ENOMEM;
    ssize_t n = 0;

    while (rc == 0 && used < room && (n = read(fd, buf + used, room - used)) != 0) {
        if (n > 0)
            used += (size_t)n;
        else if (errno != EINTR)
            rc = -errno;
    }
    if (rc == 0 && used == room)
        rc = -EFBIG;
    if (rc != 0) {
        free(buf);
        return rc;
    }
    buf[used] = '\0';
    *text = buf;
    *len = used;
    return 0;
}

int cfg_read_file(const char *path, char **text, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return -errno;
    rc = cfg_read_fd(fd, text, len);
    close(fd);
    return rc;
}

int cfg_load(const char *path, struct cfg **out, struct cfg_report *report)
{
    struct cfg_reader r = {.report = report, .name = path};
    char *text = NULL;
    size_t len = 0;
    int rc;

    *out = NULL;
    memset(report, 0, sizeof(*report));
    rc = cfg_read_file(path, &text, &len);
    if (rc != 0) {
        cfg_error(&r, 0, "cannot be read: %s; name a configuration file with --config",
                  strerror(-rc));
        return rc;
    }
    rc = cfg_parse(path, text, len, out, report);
    free(text);
    return rc;
}
