/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/config_internal.h"

#define MAX_LINKS 40 /* symbolic links that lead to a file, as many as the kernel follows */
#define FOLDER    (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define MAX_TRIES 16 /* names of a new file that are in use already */

/* ---- folders ---- */

/* Opens a folder below another one name by name, without links and "..": for kernels without
 * openat2(). */
int cfg_folder_by_name(int base, const char *rest)
{
    int dir = openat(base, ".", FOLDER);

    while (dir >= 0 && *rest) {
        size_t len = strcspn(rest, "/");
        char name[NAME_MAX + 1];
        int next;

        if (len >= sizeof(name)) {
            close(dir);
            return -ENAMETOOLONG;
        }
        memcpy(name, rest, len);
        name[len] = '\0';
        rest += len + strspn(rest + len, "/");
        if (len == 0 || strcmp(name, ".") == 0)
            continue;
        next = strcmp(name, "..") == 0 ? -EACCES : openat(dir, name, FOLDER | O_NOFOLLOW);
        if (next == -1)
            next = errno == ELOOP || errno == ENOTDIR ? -EACCES : -errno;
        close(dir);
        dir = next;
    }
    return dir == -1 ? -errno : dir;
}

/* Opens a folder that is another one or below it. Links may lead to what is below, too. */
static int open_below(int base, const char *rest)
{
    struct open_how how = {.flags = FOLDER, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd;

    fd = (int)syscall(SYS_openat2, base, *rest ? rest : ".", &how, sizeof(how));
    if (fd >= 0)
        return fd;
    if (errno == ENOSYS || errno == EPERM) /* no such call, or a filter that does not know it */
        return cfg_folder_by_name(base, rest);
    return errno == EXDEV || errno == ELOOP ? -EACCES : -errno;
}

/* Returns what follows a folder's path in path, NULL when path is not below the folder. */
static const char *rest_of(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    while (len > 0 && folder[len - 1] == '/')
        len--;
    if (strncmp(path, folder, len) != 0 || path[len] != '/')
        return NULL;
    return path + len + strspn(path + len, "/");
}

/* Opens the folder `path` if it is one of these folders, by their names or by their real paths, or
 * below. */
static int open_listed(const char *path, const char *const *below)
{
    char with_slash[PATH_MAX];
    int rc = -EACCES;

    if (snprintf(with_slash, sizeof(with_slash), "%s/", path) >= (int)sizeof(with_slash))
        return -ENAMETOOLONG;
    for (; *below; below++) {
        char *real = realpath(*below, NULL);
        const char *rest = rest_of(with_slash, *below);
        int base = -1;

        if (!rest && real)
            rest = rest_of(with_slash, real);
        if (rest && real)
            base = open(real, FOLDER);
        free(real);
        if (base < 0)
            continue;
        rc = open_below(base, rest);
        close(base);
        if (rc != -EACCES)
            return rc;
    }
    return rc;
}

static int open_folder(const char *path, const char *const *below)
{
    int fd = below ? open_listed(path, below) : open(*path ? path : "/", FOLDER);

    return fd == -1 ? -errno : fd;
}

/* ---- the place ---- */

/* Divides path into its folder, left in path, and its last name. */
static int split(char *path, char name[NAME_MAX + 1])
{
    char *slash = strrchr(path, '/');

    if (!slash)
        return -EINVAL;
    if (strlen(slash + 1) > NAME_MAX)
        return -ENAMETOOLONG;
    strcpy(name, slash + 1);
    *slash = '\0';
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -EISDIR;
    return 0;
}

/* Opens the folder of path. If the last name is a link, path becomes the path that the link leads
 * to, and the result is 1. */
static int step(struct cfg_place *place, char path[PATH_MAX], const char *const *below)
{
    char target[PATH_MAX], folder[PATH_MAX];
    ssize_t n;
    int rc = split(path, place->name);

    if (rc != 0)
        return rc;
    place->dir = open_folder(path, below);
    if (place->dir < 0)
        return place->dir;
    n = readlinkat(place->dir, place->name, target, sizeof(target));
    if (n < 0)
        return errno == EINVAL || errno == ENOENT ? 0 : -errno; /* no link, or nothing yet */
    if (n == sizeof(target))
        return -ENAMETOOLONG;
    target[n] = '\0';
    strcpy(folder, path);
    if (target[0] == '/')
        strcpy(path, target);
    else if (snprintf(path, PATH_MAX, "%s/%s", folder, target) >= PATH_MAX)
        return -ENAMETOOLONG;
    return 1;
}

int cfg_place_open(struct cfg_place *place, const char *path, const char *const *below)
{
    char at[PATH_MAX];
    int rc = 1;

    place->dir = -1;
    if (path[0] != '/')
        return -EINVAL;
    if (snprintf(at, sizeof(at), "%s", path) >= (int)sizeof(at))
        return -ENAMETOOLONG;
    for (unsigned links = 0; rc == 1 && links < MAX_LINKS; links++) {
        cfg_place_close(place);
        rc = step(place, at, below);
    }
    if (rc == 0)
        return 0;
    cfg_place_close(place);
    return rc == 1 ? -ELOOP : rc;
}

void cfg_place_close(struct cfg_place *place)
{
    if (place->dir >= 0)
        close(place->dir);
    place->dir = -1;
}

/* ---- reading ---- */

static int check_mode(mode_t mode)
{
    return S_ISREG(mode) ? 0 : S_ISDIR(mode) ? -EISDIR : -EINVAL;
}

int cfg_place_check(const struct cfg_place *place)
{
    struct stat st;

    if (fstatat(place->dir, place->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return check_mode(st.st_mode);
}

int cfg_place_read(const struct cfg_place *place, char **text, size_t *len)
{
    int rc = cfg_place_check(place), fd; /* first, since opening a device may do something */
    struct stat st;

    if (rc != 0)
        return rc;
    fd = openat(place->dir, place->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    rc = fstat(fd, &st) == 0 ? check_mode(st.st_mode) : -errno;
    if (rc == 0)
        rc = cfg_read_fd(fd, text, len);
    close(fd);
    return rc;
}

/* ---- writing ---- */

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
static int sync_folder(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return -errno;
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = -errno;
    close(fd);
    return rc;
}

static int create_at(const struct cfg_place *place, const char *name)
{
    int fd = openat(place->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    return fd >= 0 ? fd : -errno;
}

/* Creates a file with a new name in the folder. Returns its descriptor or -errno. */
static int create_temp(const struct cfg_place *place, char name[NAME_MAX + 1])
{
    for (unsigned tries = 0; tries < MAX_TRIES; tries++) {
        unsigned tag;
        int fd;

        if (getrandom(&tag, sizeof(tag), 0) != sizeof(tag))
            return -EIO;
        if (snprintf(name, NAME_MAX + 1, "%s.%08x", place->name, tag) > NAME_MAX)
            return -ENAMETOOLONG;
        fd = create_at(place, name);
        if (fd != -EEXIST)
            return fd;
    }
    return -EEXIST;
}

/* Creates the one temporary file of a folder in which only this process writes. */
static int create_own_temp(const struct cfg_place *place, char name[NAME_MAX + 1])
{
    if (snprintf(name, NAME_MAX + 1, "%s.new", place->name) > NAME_MAX)
        return -ENAMETOOLONG;
    if (unlinkat(place->dir, name, 0) != 0 && errno != ENOENT)
        return -errno;
    return create_at(place, name);
}

/* Gives the new file the owner of the old one, if the daemon has the right to. Else the file is the
 * daemon's own: with the group of the old one, or with no more rights for its group than the old
 * one gave all. */
static int keep_owner(int fd, const struct stat *old)
{
    mode_t others = old->st_mode & 07;

    if (fchown(fd, old->st_uid, old->st_gid) == 0)
        return 0;
    if (errno != EPERM)
        return -errno;
    if (fchown(fd, (uid_t)-1, old->st_gid) == 0)
        return 0;
    return fchmod(fd, (old->st_mode & 0700) | others << 3 | others) == 0 ? 0 : -errno;
}

static int replace(const struct cfg_place *place, const char *text,
                   int (*create)(const struct cfg_place *place, char name[NAME_MAX + 1]))
{
    char temp[NAME_MAX + 1];
    struct stat st;
    bool old = fstatat(place->dir, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    int fd, rc = old ? check_mode(st.st_mode) : 0;

    if (rc != 0)
        return rc;
    fd = create(place, temp);
    if (fd < 0)
        return fd;
    rc = fchmod(fd, old ? st.st_mode & 07777 : 0644) == 0 ? 0 : -errno;
    if (rc == 0 && old)
        rc = keep_owner(fd, &st);
    if (rc == 0)
        rc = write_all(fd, text);
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(place->dir, temp, place->dir, place->name) != 0)
        rc = -errno;
    if (rc != 0)
        unlinkat(place->dir, temp, 0);
    else
        rc = sync_folder(place->dir);
    return rc;
}

int cfg_place_write(const struct cfg_place *place, const char *text)
{
    return replace(place, text, create_temp);
}

int cfg_place_rewrite(const struct cfg_place *place, const char *text)
{
    return replace(place, text, create_own_temp);
}
