/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/engine/rpc_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_directory(const char *path)
{
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char *slash;

    snprintf(dir, sizeof(dir), "%s", path);
    slash = strrchr(dir, '/');
    if (slash && slash != dir) {
        *slash = '\0';
        mkdir(dir, 0755); /* if it cannot be made, opening the lock says so */
    }
}

/* The lock file's descriptor with the lock held, or -errno. A file that its last owner removed
 * between our open and our lock is no lock any more. */
static int lock_file(const char *path)
{
    struct stat held, now;
    int fd, rc;

    for (;;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            rc = -errno;
            close(fd);
            return rc;
        }
        if (fstat(fd, &held) == 0 && stat(path, &now) == 0 && held.st_ino == now.st_ino &&
            held.st_dev == now.st_dev)
            return fd;
        close(fd);
    }
}

/* The holder of the lock owns the path. The kernel releases the lock when its owner ends in any
 * way. */
static int take_lock(struct rpc_socket *s, struct err *err)
{
    make_directory(s->path);
    snprintf(s->lock_path, sizeof(s->lock_path), "%s.lock", s->path);
    s->lock_fd = lock_file(s->lock_path);
    if (s->lock_fd >= 0)
        return 0;
    if (s->lock_fd == -EWOULDBLOCK)
        return err_set(
            err, -EADDRINUSE,
            "%s is served by another process; stop it or name another socket (millrace: rpc: "
            "socket:)",
            s->path);
    err_text(err,
             "cannot make %s: %s; name another socket (millrace: rpc: socket:) or give this user "
             "the directory",
             s->lock_path, strerror(-s->lock_fd));
    return s->lock_fd;
}

/* Removes what a dead server left at the path; anything but a socket stays. */
static void remove_stale(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
}

/* Gives the socket its owner group and permissions, in this order: those of the old group shall not
 * have what is meant for the new one. */
static int own_socket(const char *path, unsigned mode, const gid_t *group)
{
    if (group && chown(path, (uid_t)-1, *group) != 0)
        return -1;
    return chmod(path, mode & 0777);
}

/* Returns a listening socket at the path. No client can connect before the socket has its owner and
 * mode. */
static int bind_socket(struct rpc_socket *s, unsigned mode, const gid_t *group, int backlog,
                       struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    memcpy(addr.sun_path, s->path, sizeof(addr.sun_path));
    if (fd < 0) {
        rc = -errno;
        return err_set(err, rc, "no socket: %s", strerror(-rc));
    }
    remove_stale(s->path);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        rc = -errno;
        err_text(err,
                 "cannot listen on %s: %s; remove what is there or name another socket "
                 "(millrace: rpc: socket:)",
                 s->path, strerror(-rc));
        close(fd);
        return rc;
    }
    if (own_socket(s->path, mode, group) != 0 || listen(fd, backlog) != 0) {
        rc = -errno;
        err_text(err,
                 "cannot give %s its owner group and permissions: %s; run as root or as a member "
                 "of that group (millrace: rpc: group:)",
                 s->path, strerror(-rc));
        close(fd);
        unlink(s->path);
        return rc;
    }
    return fd;
}

int rpc_socket_open(struct rpc_socket *s, const char *path, unsigned mode, const gid_t *group,
                    int backlog, struct err *err)
{
    int rc;

    *s = (struct rpc_socket){.fd = -1, .lock_fd = -1};
    if (!path[0] || strlen(path) >= sizeof(s->path))
        return err_set(err, -ENAMETOOLONG,
                       "'%s' is no path for a socket (1 to %zu characters); name another", path,
                       sizeof(s->path) - 1);
    memcpy(s->path, path, strlen(path));
    rc = take_lock(s, err);
    if (rc != 0)
        return rc;
    rc = bind_socket(s, mode, group, backlog, err);
    if (rc >= 0) {
        s->fd = rc;
        return 0;
    }
    unlink(s->lock_path);
    close(s->lock_fd);
    return rc;
}

void rpc_socket_close(struct rpc_socket *s)
{
    close(s->fd);
    unlink(s->path);
    unlink(s->lock_path);
    close(s->lock_fd);
}
