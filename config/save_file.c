/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces a file as a whole: a reader sees the old file or the new one. See save.h. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/save.h"
#include "lib/base/err.h"

#define MAX_LINKS 40 /* symbolic links that lead to a file, as many as the kernel follows */

static int write_all(int fd, const char *text)
{
    size_t len = strlen(text);

    while (len > 0) {
        ssize_t n = write(fd, text, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        len -= (size_t)n;
    }
    return fsync(fd) == 0 ? 0 : -errno;
}

/* Writes the rename to the disk. */
static int sync_directory(const char *path)
{
    char copy[PATH_MAX];
    int fd, rc = 0;

    snprintf(copy, sizeof(copy), "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = -errno;
    close(fd);
    return rc;
}

/* Replaces a file, or creates it. */
static int replace_file(const char *path, const char *text)
{
    char temp[PATH_MAX];
    struct stat st;
    bool old = stat(path, &st) == 0;
    int fd, rc;

    if (old && !S_ISREG(st.st_mode))
        return -EINVAL;
    if (snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= (int)sizeof(temp))
        return -ENAMETOOLONG;
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    rc = fchmod(fd, old ? st.st_mode & 07777 : 0644) == 0 ? 0 : -errno;
    if (rc == 0 && old && fchown(fd, st.st_uid, st.st_gid) != 0)
        rc = -errno;
    if (rc == 0)
        rc = write_all(fd, text);
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(temp, path) != 0)
        rc = -errno;
    if (rc != 0)
        unlink(temp);
    else
        rc = sync_directory(path);
    return rc;
}

/* Follows the symbolic links of path; the file that the last one names may be missing. The kernel
 * follows links of the folders. */
static int follow_links(const char *path, char real[PATH_MAX])
{
    char target[PATH_MAX], folder[PATH_MAX];

    if (snprintf(real, PATH_MAX, "%s", path) >= PATH_MAX)
        return -ENAMETOOLONG;
    for (unsigned links = 0; links < MAX_LINKS; links++) {
        ssize_t n = readlink(real, target, sizeof(target));

        if (n < 0)
            return errno == EINVAL || errno == ENOENT ? 0 : -errno; /* no link, or nothing yet */
        if (n == sizeof(target))
            return -ENAMETOOLONG;
        target[n] = '\0';
        memcpy(folder, real, PATH_MAX);
        if (target[0] == '/')
            memcpy(real, target, (size_t)n + 1);
        else if (snprintf(real, PATH_MAX, "%s/%s", dirname(folder), target) >= PATH_MAX)
            return -ENAMETOOLONG;
    }
    return -ELOOP;
}

int cfg_save_file(const char *path, const struct cfg *cfg, enum cfg_saved *how, struct err *err)
{
    char real[PATH_MAX], *old = NULL, *text = NULL;
    size_t len = 0;
    int rc = follow_links(path, real);

    if (rc == 0)
        rc = cfg_read_file(real, &old, &len);
    if (rc != 0 && rc != -ENOENT)
        return err_set(err, rc, "%s cannot be read: %s", path, strerror(-rc));
    rc = cfg_save_text(path, old, len, cfg, &text, how, err);
    if (rc == 0 && *how != CFG_SAVED_SAME) {
        rc = replace_file(real, text);
        if (rc != 0)
            err_text(err, "%s cannot be written: %s", path, strerror(-rc));
    }
    free(text);
    free(old);
    return rc;
}
