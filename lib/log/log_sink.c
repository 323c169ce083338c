/* SPDX-License-Identifier: BSD-3-Clause */
/* Where lines go. Writing may block: only the log's own thread does it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "lib/base/err.h"
#include "lib/log/log_internal.h"

#define JOURNAL_SOCKET  "/run/systemd/journal/socket"
#define MAX_JOURNAL     64 /* fields of an entry */
#define FILE_MODE       0640
#define FILE_OPEN_FLAGS (O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY)

/* Whether a descriptor is the stream that systemd made for us (systemd.exec(5), JOURNAL_STREAM). */
static bool is_journal_stream(int fd)
{
    const char *text = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;

    return text && sscanf(text, "%llu:%llu", &dev, &ino) == 2 && fstat(fd, &st) == 0 &&
           st.st_dev == dev && st.st_ino == ino;
}

/* A FIFO without a reader is an error, not a wait; later writes wait. */
static int open_file(const char *path)
{
    int fd = open(path, FILE_OPEN_FLAGS | O_NONBLOCK, FILE_MODE), flags, rc;

    if (fd < 0)
        return -errno;
    flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0)
        return fd;
    rc = -errno;
    close(fd);
    return rc;
}

static int open_path(struct log_sink *sink, const char *path, struct err *err)
{
    if (path[0] != '/' || strlen(path) >= sizeof(sink->path))
        return err_set(err, -EINVAL,
                       "log: to: '%s': stderr, journald or the path of a file that begins with /",
                       path);
    sink->kind = LOG_SINK_FILE;
    snprintf(sink->path, sizeof(sink->path), "%s", path);
    sink->fd = open_file(path);
    if (sink->fd >= 0)
        return 0;
    return err_set(err, sink->fd, "log: %s: %s; the directory must be there and be ours to write",
                   path, strerror(-sink->fd));
}

static int open_journal(struct log_sink *sink, const struct log_opts *opts, struct err *err)
{
    int rc;

    sink->kind = LOG_SINK_JOURNAL;
    sink->journal = opts->journal ? opts->journal : sd_journal_sendv;
    /* libsystemd takes a missing journal for success. */
    if (opts->journal || access(JOURNAL_SOCKET, W_OK) == 0)
        return 0;
    rc = -errno;
    return err_set(err, rc,
                   "log: journald is not there (" JOURNAL_SOCKET
                   ": %s); log: to: stderr needs nothing",
                   strerror(-rc));
}

int log_sink_open(struct log_sink *sink, const struct log_opts *opts, struct err *err)
{
    const char *to = opts->to && opts->to[0] ? opts->to : "stderr";

    *sink = (struct log_sink){.kind = LOG_SINK_FD, .fd = -1};
    if (strcmp(to, "journald") == 0)
        return open_journal(sink, opts, err);
    if (strcmp(to, "stderr") != 0)
        return open_path(sink, to, err);
    sink->fd = opts->fd ? opts->fd : STDERR_FILENO;
    sink->systemd = is_journal_stream(sink->fd);
    return 0;
}

void log_sink_close(struct log_sink *sink)
{
    if (sink->kind == LOG_SINK_FILE && sink->fd >= 0)
        close(sink->fd);
    sink->fd = -1;
}

/* When the new file cannot be opened, lines still go to the old one. */
void log_sink_renew(struct log_sink *sink)
{
    struct stat ours, theirs;
    int fd;

    if (sink->kind != LOG_SINK_FILE ||
        (fstat(sink->fd, &ours) == 0 && stat(sink->path, &theirs) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino))
        return;
    fd = open_file(sink->path);
    if (fd < 0)
        return;
    close(sink->fd);
    sink->fd = fd;
    sink->torn = false;
}

/* Another process that shares stderr may have made it non-blocking. */
static bool wait_writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = poll(&p, 1, -1);

    return n > 0 || (n < 0 && errno == EINTR);
}

static bool write_all(int fd, const char *text, size_t len, size_t *done)
{
    for (*done = 0; *done < len;) {
        ssize_t n = write(fd, text + *done, len - *done);

        if (n >= 0)
            *done += (size_t)n;
        else if (errno != EINTR && (errno != EAGAIN || !wait_writable(fd)))
            return false;
    }
    return true;
}

static bool write_journal(struct log_sink *sink, const struct log_record *record)
{
    struct iovec iov[MAX_JOURNAL];
    const char *p = record->text;
    unsigned n;

    for (n = 0; n < record->fields && n < MAX_JOURNAL; n++) {
        iov[n] = (struct iovec){(void *)(uintptr_t)p, strlen(p)};
        p += iov[n].iov_len + 1;
    }
    return sink->journal(iov, (int)n) == 0;
}

bool log_sink_write(struct log_sink *sink, const struct log_record *record)
{
    size_t done;
    bool ok;

    if (sink->kind == LOG_SINK_JOURNAL)
        return write_journal(sink, record);
    if (sink->torn && !write_all(sink->fd, "\n", 1, &done))
        return false;
    ok = write_all(sink->fd, record->text, record->len, &done);
    sink->torn = !ok && done > 0;
    return ok;
}
