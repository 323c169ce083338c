/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/rpc_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/reactor/reactor.h"
#include "rpc/json_frame.h"

#define READ_SIZE       65536
#define ACCEPT_PAUSE_US 1000000 /* after accept() failed for want of something */

struct client {
    struct reactor_fd fd; /* first: callbacks get it */
    struct rpc_server *server;
    struct client *next, **pprev;
    struct jrpc_session session;
    struct json_frame frame;
    char *in; /* start: a request as far as it has come, seen: what frame has looked at */
    size_t in_start, in_seen, in_used, in_room;
    char *out;
    size_t out_used, out_room, out_sent;
    bool input_ended; /* end of file, or a stream that cannot be read on: answer, then close */
    bool broken;      /* close as soon as nothing of the client is in use */
    bool busy;        /* within serve(): nothing may free the client */
};

struct rpc_server {
    struct reactor_fd fd; /* first: callbacks get it */
    const struct jrpc *jrpc;
    struct client *clients;
    unsigned client_count;
    struct reactor_timer pause;
    int lock_fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
};

/* ---- clients ---- */

static void client_close(struct client *c)
{
    jrpc_session_close(&c->session);
    reactor_fd_del(&c->fd);
    close(c->fd.fd);
    *c->pprev = c->next;
    if (c->next)
        c->next->pprev = c->pprev;
    c->server->client_count--;
    free(c->in);
    free(c->out);
    free(c);
}

static bool may_read(const struct client *c)
{
    return !c->input_ended && c->out_used - c->out_sent < RPC_OUT_PAUSE &&
           c->session.open_calls < RPC_MAX_CALLS;
}

static void client_write(struct client *c)
{
    while (!c->broken && c->out_sent < c->out_used) {
        ssize_t n = send(c->fd.fd, c->out + c->out_sent, c->out_used - c->out_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0)
            c->out_sent += (size_t)n;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        else if (n == 0 || errno != EINTR)
            c->broken = true;
    }
    if (c->out_sent == c->out_used)
        c->out_sent = c->out_used = 0;
}

/* Room for more bytes behind used; false when out of memory or above limit. */
static bool reserve(char **buf, size_t *room, size_t used, size_t more, size_t limit)
{
    size_t want = used + more;
    char *grown;

    if (want > limit)
        return false;
    if (want <= *room)
        return true;
    want = want < limit / 2 ? 2 * want : limit;
    grown = realloc(*buf, want);
    if (!grown)
        return false;
    *buf = grown;
    *room = want;
    return true;
}

static void client_update(struct client *c);

static void client_reply(void *arg, const char *text, size_t len)
{
    struct client *c = arg;

    if (c->out_sent) {
        memmove(c->out, c->out + c->out_sent, c->out_used - c->out_sent);
        c->out_used -= c->out_sent;
        c->out_sent = 0;
    }
    if (!reserve(&c->out, &c->out_room, c->out_used, len + 1, RPC_OUT_MAX)) {
        c->broken = true;
    } else {
        memcpy(c->out + c->out_used, text, len);
        c->out[c->out_used + len] = '\n';
        c->out_used += len + 1;
    }
    if (!c->busy) /* a call that ended later */
        client_update(c);
}

static const char *frame_error(enum json_frame_result result)
{
    switch (result) {
    case JSON_FRAME_MISMATCH:
        return "a bracket closes what was not opened";
    case JSON_FRAME_DEPTH:
        return "nested too deeply";
    default:
        return "a line ends within a string";
    }
}

static void stop_input(struct client *c, const char *why)
{
    jrpc_reject(&c->session, why);
    c->input_ended = true;
}

/* Runs the requests that are complete, as long as the client may be read from. */
static void client_requests(struct client *c)
{
    while (may_read(c) && c->in_seen < c->in_used) {
        size_t used;
        enum json_frame_result result =
            json_frame_feed(&c->frame, c->in + c->in_seen, c->in_used - c->in_seen, &used);

        c->in_seen += used;
        if (result == JSON_FRAME_VALUE) {
            jrpc_input(&c->session, c->in + c->in_start, c->in_seen - c->in_start);
            c->in_start = c->in_seen;
        } else if (result != JSON_FRAME_MORE) {
            stop_input(c, frame_error(result));
        } else if (!c->frame.begun) {
            c->in_start = c->in_seen; /* white space only */
        } else if (c->in_used - c->in_start >= RPC_MAX_REQUEST) {
            stop_input(c, "the request is too long");
        }
    }
}

/* The client will send no more: what it began is all there is. */
static void client_eof(struct client *c)
{
    if (c->frame.scalar)
        jrpc_input(&c->session, c->in + c->in_start, c->in_used - c->in_start);
    else if (c->frame.begun)
        jrpc_reject(&c->session, "the request ends in its middle");
    c->input_ended = true;
}

/* One read, so that a client that never stops sending gives others their turn. */
static void client_read(struct client *c)
{
    ssize_t n;

    if (!may_read(c))
        return;
    if (c->in_start) {
        memmove(c->in, c->in + c->in_start, c->in_used - c->in_start);
        c->in_used -= c->in_start;
        c->in_seen -= c->in_start;
        c->in_start = 0;
    }
    if (!reserve(&c->in, &c->in_room, c->in_used, READ_SIZE, RPC_MAX_REQUEST + READ_SIZE)) {
        c->broken = true;
        return;
    }
    n = recv(c->fd.fd, c->in + c->in_used, READ_SIZE, MSG_DONTWAIT);
    if (n > 0)
        c->in_used += (size_t)n;
    else if (n == 0)
        client_eof(c);
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        c->broken = true;
}

/* After anything that happened: send, decide what to wait for, close when it is over. */
static void client_update(struct client *c)
{
    bool over;
    uint32_t events;

    c->busy = true;
    do {
        client_requests(c);
        client_write(c); /* which can make room for the responses of further requests */
    } while (!c->broken && may_read(c) && c->in_seen < c->in_used);
    c->busy = false;
    over = c->input_ended && !c->session.open && !c->out_used;
    if (c->broken || over) {
        client_close(c);
        return;
    }
    events = (may_read(c) ? EPOLLIN : 0) | (c->out_used ? EPOLLOUT : 0);
    if (events != c->fd.events && reactor_fd_mod(&c->fd, events) != 0)
        client_close(c);
}

static void client_event(struct reactor_fd *f, uint32_t events)
{
    struct client *c = (struct client *)f;

    c->busy = true;
    if (events & EPOLLIN)
        client_read(c);
    if (events & (EPOLLHUP | EPOLLERR)) /* nobody is there to read responses */
        c->broken = true;
    c->busy = false;
    client_update(c);
}

/* ---- listening ---- */

/* Says why before closing; if it does not fit into the socket's buffer, then not. */
static void turn_away(int fd)
{
    static const char full[] = "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,\"message\":"
                               "\"too many clients\"},\"id\":null}\n";

    (void)!send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void client_new(struct rpc_server *server, int fd)
{
    struct client *c = calloc(1, sizeof(*c));

    if (!c || reactor_fd_add(&c->fd, fd, EPOLLIN, client_event) != 0) {
        free(c);
        close(fd);
        return;
    }
    c->server = server;
    c->next = server->clients;
    c->pprev = &server->clients;
    if (c->next)
        c->next->pprev = &c->next;
    server->clients = c;
    server->client_count++;
    jrpc_session_init(&c->session, server->jrpc, client_reply, c);
}

static void accept_again(struct reactor_timer *t)
{
    struct rpc_server *server =
        (struct rpc_server *)((char *)t - offsetof(struct rpc_server, pause));

    reactor_fd_mod(&server->fd, EPOLLIN);
}

/* Short of descriptors or memory the client stays in the queue, and the next event would come at
 * once and for ever. */
static void accept_failed(struct rpc_server *server, int err)
{
    if (err == EAGAIN || err == EWOULDBLOCK || err == ECONNABORTED || err == EINTR)
        return; /* gone again */
    reactor_fd_mod(&server->fd, 0);
    reactor_timer_arm(&server->pause, ACCEPT_PAUSE_US);
}

static void server_event(struct reactor_fd *f, uint32_t events)
{
    struct rpc_server *server = (struct rpc_server *)f;
    int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        accept_failed(server, errno);
    else if (server->client_count >= RPC_MAX_CLIENTS)
        turn_away(fd);
    else
        client_new(server, fd);
}

/* ---- the socket's path ---- */

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

/* Whoever has the lock owns the path; the kernel gives it back however its owner ends. */
static int take_lock(struct rpc_server *server, char *err, size_t errlen)
{
    make_directory(server->path);
    snprintf(server->lock_path, sizeof(server->lock_path), "%s.lock", server->path);
    server->lock_fd = lock_file(server->lock_path);
    if (server->lock_fd >= 0)
        return 0;
    if (server->lock_fd == -EWOULDBLOCK) {
        snprintf(err, errlen,
                 "%s is served by another process; stop it or name another socket (millrace: rpc: "
                 "socket:)",
                 server->path);
        return -EADDRINUSE;
    }
    snprintf(err, errlen,
             "cannot make %s: %s; name another socket (millrace: rpc: socket:) or give this user "
             "the directory",
             server->lock_path, strerror(-server->lock_fd));
    return server->lock_fd;
}

/* Removes what a dead server left at the path; anything but a socket stays. */
static void remove_stale(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
}

/* A listening socket at the path, which nobody can connect to before it has its mode. */
static int bind_socket(struct rpc_server *server, unsigned mode, char *err, size_t errlen)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    memcpy(addr.sun_path, server->path, sizeof(addr.sun_path));
    if (fd < 0) {
        rc = -errno;
        snprintf(err, errlen, "no socket: %s", strerror(-rc));
        return rc;
    }
    remove_stale(server->path);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        chmod(server->path, mode & 0777) != 0 || listen(fd, RPC_MAX_CLIENTS) != 0) {
        rc = -errno;
        snprintf(err, errlen,
                 "cannot listen on %s: %s; remove what is there or name another socket "
                 "(millrace: rpc: socket:)",
                 server->path, strerror(-rc));
        close(fd);
        return rc;
    }
    return fd;
}

int rpc_server_create(const struct rpc_server_opts *opts, const struct jrpc *jrpc,
                      struct rpc_server **out, char *err, size_t errlen)
{
    struct rpc_server *server;
    int rc, fd;

    if (!opts->path[0] || strlen(opts->path) >= sizeof(server->path)) {
        snprintf(err, errlen, "'%s' is no path for a socket (1 to %zu characters); name another",
                 opts->path, sizeof(server->path) - 1);
        return -ENAMETOOLONG;
    }
    server = calloc(1, sizeof(*server));
    if (!server) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    server->jrpc = jrpc;
    reactor_timer_init(&server->pause, accept_again);
    memcpy(server->path, opts->path, strlen(opts->path));
    rc = take_lock(server, err, errlen);
    if (rc != 0)
        goto out_free;
    rc = fd = bind_socket(server, opts->mode, err, errlen);
    if (rc < 0)
        goto out_lock;
    rc = reactor_fd_add(&server->fd, fd, EPOLLIN, server_event);
    if (rc != 0) {
        snprintf(err, errlen, "cannot watch the socket: %s", strerror(-rc));
        goto out_socket;
    }
    *out = server;
    return 0;

out_socket:
    close(fd);
    unlink(server->path);
out_lock:
    unlink(server->lock_path);
    close(server->lock_fd);
out_free:
    free(server);
    return rc;
}

void rpc_server_destroy(struct rpc_server *server)
{
    struct client *c, *next;

    if (!server)
        return;
    for (c = server->clients; c; c = next) {
        next = c->next;
        client_close(c);
    }
    reactor_timer_cancel(&server->pause);
    reactor_fd_del(&server->fd);
    close(server->fd.fd);
    unlink(server->path);
    unlink(server->lock_path);
    close(server->lock_fd);
    free(server);
}

unsigned rpc_server_clients(const struct rpc_server *server)
{
    return server->client_count;
}
