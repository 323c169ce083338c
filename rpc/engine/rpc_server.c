/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/engine/rpc_server.h"
#include "lib/base/container.h"
#include "lib/base/minmax.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/reactor/reactor.h"
#include "rpc/engine/json_frame.h"
#include "rpc/engine/rpc_socket.h"

#define READ_SIZE       65536
#define OUT_KEEP        65536 /* bytes of an output buffer that stay when it is empty */
#define SECOND          UINT64_C(1000000)
#define ACCEPT_PAUSE_US SECOND /* after accept() failed for want of something */
#define TURN_US         1000   /* after which the requests of a client wait for those of others */
#define ROUND_US        20000  /* … and those of all but administrators for the next iteration, */
#define LAST_US         2000   /* in which those that wait come before those that had a turn */
#define ACCEPT_BURST    16
#define ACCEPT_QUEUE    512
#define SWEEP_US        SECOND /* how often clients are looked at that do nothing */

struct client {
    struct reactor_fd fd; /* first: callbacks get it */
    struct rpc_server *server;
    struct client *next, **pprev;
    struct jrpc_session session;
    struct rpc_peer peer;
    struct json_frame frame;
    struct reactor_timer update; /* what a call that ended later leaves to be done */
    uint64_t active_us;          /* when it last sent something or was sent something */
    uint64_t taken_us;           /* when it last took something of what waits for it */
    uint64_t linger_us;          /* since when nothing more is to come from it or to go to it */
    uint64_t end_us;             /* of its turn */
    uint64_t rest_us;            /* it has no turn before */
    char *in; /* start: a request as far as it has come, seen: what frame has looked at */
    size_t in_start, in_seen, in_used, in_room;
    char *out;
    size_t out_used, out_room, out_sent;
    bool eof;         /* it will send no more */
    bool input_ended; /* that, or a stream that cannot be read on: answer, then close */
    bool lingering;   /* answered: what it still sends is thrown away until it closes */
    bool gone;        /* it reads no more: its requests are run, then it is closed */
    bool broken;      /* close as soon as nothing of the client is in use */
    bool stalled;     /* because it did not take its responses */
    bool busy;        /* within client_update(): what happened is looked at there */
};

struct rpc_server {
    struct reactor_fd fd; /* first: callbacks get it */
    const struct jrpc *jrpc;
    struct client *clients;
    unsigned client_count;
    uint64_t round_us, round_end_us; /* the iteration of the loop, and when requests wait in it */
    struct reactor_timer pause, sweep;
    struct rpc_access access;
    struct rpc_socket socket;
    void (*log)(void *arg, enum rpc_client_event event, const struct rpc_peer *peer);
    void *log_arg;
};

const char *rpc_client_event_name(enum rpc_client_event event)
{
    static const char *const names[RPC_CLIENT_EVENTS] = {
        [RPC_CLIENT_CONNECTED] = "connected", [RPC_CLIENT_CLOSED] = "closed",
        [RPC_CLIENT_REFUSED] = "refused",     [RPC_CLIENT_TURNED_AWAY] = "turned_away",
        [RPC_CLIENT_DISPLACED] = "displaced", [RPC_CLIENT_STALLED] = "stalled",
    };

    return names[event];
}

static void tell(const struct rpc_server *server, enum rpc_client_event event,
                 const struct rpc_peer *peer)
{
    if (server->log)
        server->log(server->log_arg, event, peer);
}

/* ---- clients ---- */

static size_t waiting_for(const struct client *c)
{
    return c->out_used - c->out_sent;
}

/* With responses that cannot be sent yet. */
static size_t kept_for(const struct client *c)
{
    return waiting_for(c) + c->session.held;
}

static void client_close(struct client *c, enum rpc_client_event why)
{
    tell(c->server, why, &c->peer);
    c->busy = true; /* the owner that is notified now may still send */
    jrpc_session_close(&c->session);
    reactor_timer_cancel(&c->update);
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
    return !c->stalled && !c->input_ended && kept_for(c) < RPC_OUT_PAUSE &&
           c->session.open_calls < RPC_MAX_CALLS;
}

static void client_write(struct client *c)
{
    while (!c->broken && !c->gone && c->out_sent < c->out_used) {
        ssize_t n =
            send(c->fd.fd, c->out + c->out_sent, waiting_for(c), MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            c->out_sent += (size_t)n;
            c->taken_us = reactor_now_us();
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else if (n == 0 || errno != EINTR) {
            c->broken = true;
        }
    }
    if (c->out_sent < c->out_used)
        return;
    c->out_sent = c->out_used = 0;
    if (c->out_room > OUT_KEEP) {
        free(c->out);
        c->out = NULL;
        c->out_room = 0;
    }
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

/* Disconnects the client for which most is kept when it is too much for all. */
static void relieve(struct rpc_server *server)
{
    struct client *most = NULL;
    size_t all = 0;

    for (struct client *c = server->clients; c; c = c->next) {
        all += c->broken ? 0 : kept_for(c);
        if (!c->broken && (!most || kept_for(c) > kept_for(most)))
            most = c;
    }
    if (most && all > RPC_OUT_ALL) {
        most->broken = most->stalled = true;
        most->out_used = most->out_sent = 0;
        reactor_timer_arm(&most->update, 0);
    }
}

/* Moves what waits to the beginning of the buffer when that is worth it. */
static void compact(struct client *c, size_t more)
{
    if (!c->out_sent || (c->out_used + more <= c->out_room && c->out_sent < c->out_used / 2))
        return;
    memmove(c->out, c->out + c->out_sent, waiting_for(c));
    c->out_used -= c->out_sent;
    c->out_sent = 0;
}

/* Sends for the session: appends and, outside an update, tries to send. Closes and runs nothing;
 * the timer does that. */
static void client_reply(void *arg, const char *text, size_t len)
{
    struct client *c = arg;

    if (c->broken || c->gone)
        return;
    compact(c, len + 1);
    if (!reserve(&c->out, &c->out_room, c->out_used, len + 1, RPC_OUT_MAX)) {
        c->broken = c->stalled = true;
    } else {
        if (!waiting_for(c))
            c->taken_us = reactor_now_us();
        memcpy(c->out + c->out_used, text, len);
        c->out[c->out_used + len] = '\n';
        c->out_used += len + 1;
        c->active_us = reactor_now_us();
        if (!c->busy)
            client_write(c);
    }
    relieve(c->server);
    if (!c->busy)
        reactor_timer_arm(&c->update, 0);
}

static size_t client_backlog(void *arg)
{
    return waiting_for(arg);
}

static const char *frame_error(enum json_frame_result result)
{
    switch (result) {
    case JSON_FRAME_MISMATCH:
        return "a bracket closes what was not opened";
    case JSON_FRAME_MANY:
        return "it has too many values";
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

static bool has_input(const struct client *c)
{
    return c->session.batch || (may_read(c) && c->in_seen < c->in_used);
}

/* The time, also within a turn of the loop. */
static uint64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec / 1000;
}

/* Whether a client's turn has ended, also within a batch. */
static bool client_waits(void *arg)
{
    const struct client *c = arg;

    return clock_us() >= c->end_us;
}

/* Begins a client's turn. Requests that take long cost others their time, and a control thread that
 * does nothing else for long would be ended by the watchdog. So what they take together in an
 * iteration of the loop is limited, except for those of administrators. */
static void client_turn(struct client *c)
{
    struct rpc_server *server = c->server;
    uint64_t now = clock_us();

    if (server->round_us != reactor_now_us()) {
        server->round_us = reactor_now_us();
        server->round_end_us = now + ROUND_US;
    }
    c->end_us = now + TURN_US;
    if (c->session.role < JRPC_ADMIN)
        c->end_us = now < c->rest_us ? 0 : min(c->end_us, server->round_end_us);
}

/* After a turn that took much longer than it should, all clients of this user rest for as long. So
 * the requests of other users come in between, however many clients this one has. */
static void client_rest(const struct client *c, uint64_t took_us)
{
    uint64_t until = clock_us() + took_us;

    if (took_us > 2 * TURN_US)
        for (struct client *i = c->server->clients; i; i = i->next)
            if (i->peer.uid == c->peer.uid)
                i->rest_us = until;
}

/* Runs the requests that are complete, as long as the client may be read from and has its turn. */
static void client_requests(struct client *c)
{
    if (c->session.batch)
        jrpc_continue(&c->session);
    while (!c->session.batch && has_input(c)) {
        size_t used;
        enum json_frame_result result =
            json_frame_feed(&c->frame, c->in + c->in_seen, c->in_used - c->in_seen, &used);

        c->in_seen += used;
        if (result == JSON_FRAME_VALUE && c->in_seen - c->in_start > RPC_MAX_REQUEST) {
            stop_input(c, "the request is too long");
        } else if (result == JSON_FRAME_VALUE) {
            jrpc_input(&c->session, c->in + c->in_start, c->in_seen - c->in_start);
            c->in_start = c->in_seen;
            if (client_waits(c))
                break;
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
    c->eof = c->input_ended = true;
}

/* One read, so that a client that never stops sending gives others their turn. */
static void client_read(struct client *c)
{
    ssize_t n;

    if (!may_read(c) || has_input(c))
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
    c->active_us = reactor_now_us();
    if (n > 0)
        c->in_used += (size_t)n;
    else if (n == 0)
        client_eof(c);
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        c->broken = true;
}

/* Everything is said. A socket closed with bytes unread would look like an accident to a client
 * that is still sending, so they are read and thrown away, for a while. */
static void client_linger(struct client *c)
{
    char scrap[READ_SIZE];
    ssize_t n;

    if (!c->lingering) {
        c->lingering = true;
        c->linger_us = reactor_now_us();
        shutdown(c->fd.fd, SHUT_WR);
    }
    n = recv(c->fd.fd, scrap, sizeof(scrap), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        c->broken = true;
}

/* Returns the time until a client's next turn. */
static uint64_t client_delay(const struct client *c, bool had_turn)
{
    uint64_t now = clock_us(),
             last = now + (had_turn && now >= c->server->round_end_us ? LAST_US : 0);

    return (c->session.role < JRPC_ADMIN ? max(last, c->rest_us) : last) - now;
}

/* Runs after each event: sends, chooses the events to wait for, closes a finished client. */
static void client_update(struct client *c)
{
    uint64_t began = clock_us();
    bool had_turn = false;
    uint32_t events;

    client_turn(c);
    c->busy = true;
    while (!c->broken && has_input(c) && !client_waits(c)) {
        client_requests(c);
        relieve(c->server);
        client_write(c); /* which can make room for the responses of further requests */
        had_turn = true;
    }
    client_write(c);
    c->busy = false;
    if (had_turn)
        client_rest(c, clock_us() - began);
    if (has_input(c)) /* after the others have had their turn */
        reactor_timer_arm(&c->update, client_delay(c, had_turn));
    else
        c->broken |= c->gone;
    if (!c->broken && c->input_ended && !c->session.open && !c->out_used) {
        if (!c->eof)
            client_linger(c);
        else if (!c->session.closed) /* with a subscription it goes on to listen */
            c->broken = true;
    }
    if (!c->broken) {
        events = ((may_read(c) && !has_input(c)) || c->lingering ? EPOLLIN : 0) |
                 (c->out_used ? EPOLLOUT : 0);
        c->broken = events != c->fd.events && reactor_fd_mod(&c->fd, events) != 0;
    }
    if (c->broken)
        client_close(c, c->stalled ? RPC_CLIENT_STALLED : RPC_CLIENT_CLOSED);
}

static void client_later(struct reactor_timer *t)
{
    client_update(container_of(t, struct client, update));
}

static void client_event(struct reactor_fd *f, uint32_t events)
{
    struct client *c = (struct client *)f;

    c->busy = true;
    if (events & EPOLLIN)
        client_read(c);
    c->gone |= (events & (EPOLLHUP | EPOLLERR)) != 0;
    c->busy = false;
    client_update(c);
}

static bool is_past(uint64_t since_us, unsigned seconds)
{
    return reactor_now_us() - since_us >= seconds * SECOND;
}

/* Cuts off those who take nothing of what waits for them. */
static void sweep(struct reactor_timer *t)
{
    struct rpc_server *server = container_of(t, struct rpc_server, sweep);
    struct client *next;

    for (struct client *c = server->clients; c; c = next) {
        next = c->next;
        if (waiting_for(c) && is_past(c->taken_us, RPC_STALL_S))
            client_close(c, RPC_CLIENT_STALLED);
        else if (c->lingering && is_past(c->linger_us, RPC_LINGER_S))
            client_close(c, RPC_CLIENT_CLOSED);
    }
    if (server->clients)
        reactor_timer_arm(&server->sweep, SWEEP_US);
}

/* ---- listening ---- */

/* Says why before closing; if it does not fit into the socket's buffer, then not. */
static void turn_away(int fd, int code, int err, const char *message, const char *remedy)
{
    json_t *response = json_pack("{s:s, s:{s:i, s:s, s:{s:i, s:s, s:s}}, s:n}", "jsonrpc", "2.0",
                                 "error", "code", code, "message", message, "data", "errno", -err,
                                 "name", strerrorname_np(err), "remedy", remedy, "id");
    char *text = json_dumps(response, JSON_COMPACT);

    if (text) {
        (void)!send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE);
        (void)!send(fd, "\n", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    free(text);
    json_decref(response);
    shutdown(fd, SHUT_WR);
    close(fd);
}

/* Closes those who have gone already, of which the loop has not told us yet. */
static void reap(struct rpc_server *server)
{
    struct pollfd fds[RPC_MAX_CLIENTS + RPC_MORE_CLIENTS];
    struct client *clients[RPC_MAX_CLIENTS + RPC_MORE_CLIENTS], *c;
    nfds_t n = 0, i;

    for (c = server->clients; c && n < RPC_MAX_CLIENTS + RPC_MORE_CLIENTS; c = c->next) {
        fds[n] = (struct pollfd){.fd = c->fd.fd};
        clients[n++] = c;
    }
    if (poll(fds, n, 0) <= 0)
        return;
    for (i = 0; i < n; i++)
        if (fds[i].revents)
            client_event(&clients[i]->fd, EPOLLIN | EPOLLHUP);
}

static unsigned clients_of(const struct rpc_server *server, uid_t uid)
{
    unsigned n = 0;

    for (const struct client *c = server->clients; c; c = c->next)
        n += c->peer.uid == uid;
    return n;
}

/* Whether c gives way though it is busy: its role is lower than the newcomer's, or its user has
 * more than a share and the newcomer's has less. */
static bool must_yield(const struct client *c, const struct rpc_peer *newcomer)
{
    return c->peer.role < newcomer->role ||
           (clients_of(c->server, c->peer.uid) > RPC_USER_CLIENTS &&
            clients_of(c->server, newcomer->uid) < RPC_USER_CLIENTS);
}

/* Whether c may be made to give way to a newcomer. */
static bool may_displace(const struct client *c, const struct rpc_peer *newcomer)
{
    if (c->peer.role > newcomer->role || (c->peer.privileged && !newcomer->privileged))
        return false;
    if (must_yield(c, newcomer))
        return !c->broken;
    if (c->peer.uid != newcomer->uid && clients_of(c->server, newcomer->uid) >= RPC_USER_CLIENTS)
        return false;
    return !c->broken && !c->session.closed && !c->session.open && !waiting_for(c) &&
           is_past(c->active_us, RPC_IDLE_S);
}

/* Readers go before admins, and of equals the one that has been idle for longest. */
static bool goes_before(const struct client *a, const struct client *b)
{
    return a->peer.role != b->peer.role ? a->peer.role < b->peer.role : a->active_us < b->active_us;
}

/* True: there is a place now. */
static bool make_place(struct rpc_server *server, const struct rpc_peer *newcomer)
{
    unsigned places = RPC_MAX_CLIENTS + (newcomer->privileged ? RPC_MORE_CLIENTS : 0);
    struct client *victim = NULL;

    if (server->client_count >= places)
        reap(server);
    if (server->client_count < places)
        return true;
    for (struct client *c = server->clients; c; c = c->next)
        if (may_displace(c, newcomer) && (!victim || goes_before(c, victim)))
            victim = c;
    if (!victim)
        return false;
    client_close(victim, RPC_CLIENT_DISPLACED);
    return true;
}

static void client_new(struct rpc_server *server, int fd, const struct rpc_peer *peer)
{
    struct client *c = calloc(1, sizeof(*c));

    if (!c || reactor_fd_add(&c->fd, fd, EPOLLIN, client_event) != 0) {
        free(c);
        close(fd);
        return;
    }
    c->server = server;
    c->peer = *peer;
    c->active_us = reactor_now_us();
    for (const struct client *i = server->clients; i; i = i->next)
        if (i->peer.uid == peer->uid)
            c->rest_us = i->rest_us;
    reactor_timer_init(&c->update, client_later);
    c->next = server->clients;
    c->pprev = &server->clients;
    if (c->next)
        c->next->pprev = &c->next;
    server->clients = c;
    server->client_count++;
    jrpc_session_init(&c->session, server->jrpc, client_reply, c);
    c->session.backlog = client_backlog;
    c->session.pause = client_waits;
    c->session.who = (struct jrpc_who){peer->pid, peer->uid};
    c->session.role = peer->role;
    for (unsigned role = 0; role < JRPC_ROLES; role++)
        c->session.role_remedy[role] = server->access.remedy[role];
    if (!reactor_timer_armed(&server->sweep))
        reactor_timer_arm(&server->sweep, SWEEP_US);
    tell(server, RPC_CLIENT_CONNECTED, peer);
}

static void client_admit(struct rpc_server *server, int fd)
{
    struct rpc_peer peer;

    if (!rpc_access_peer(&server->access, fd, &peer)) {
        tell(server, RPC_CLIENT_REFUSED, &peer);
        turn_away(
            fd, -EACCES, EACCES, "this user may not use the socket",
            "become a member of its read_group, operator_group or admin_group (millrace: rpc:)");
    } else if (!make_place(server, &peer)) {
        tell(server, RPC_CLIENT_TURNED_AWAY, &peer);
        turn_away(fd, -32000, EBUSY, "too many clients",
                  "try again later; root and the user of millraced have places of their own");
    } else {
        client_new(server, fd, &peer);
    }
}

static void accept_again(struct reactor_timer *t)
{
    struct rpc_server *server = container_of(t, struct rpc_server, pause);

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

/* Several at a time: who comes to a full queue is refused by the kernel, without a word. */
static void server_event(struct reactor_fd *f, uint32_t events)
{
    struct rpc_server *server = (struct rpc_server *)f;

    for (unsigned i = 0; i < ACCEPT_BURST; i++) {
        int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            accept_failed(server, errno);
            return;
        }
        client_admit(server, fd);
    }
}

/* ---- the server ---- */

static int open_socket(struct rpc_server *server, const struct rpc_server_opts *opts,
                       struct err *err)
{
    bool has_group = opts->group && opts->group[0];
    gid_t group = 0;
    int rc = rpc_access_init(&server->access, opts->role_group, err);

    if (rc == 0 && has_group)
        rc = rpc_group_find(opts->group, "group", &group, err);
    if (rc == 0)
        rc = rpc_socket_open(&server->socket, opts->path, opts->mode, has_group ? &group : NULL,
                             ACCEPT_QUEUE, err);
    return rc;
}

int rpc_server_create(const struct rpc_server_opts *opts, const struct jrpc *jrpc,
                      struct rpc_server **out, struct err *err)
{
    struct rpc_server *server = calloc(1, sizeof(*server));
    int rc;

    if (!server)
        return err_set(err, -ENOMEM, "out of memory");
    server->jrpc = jrpc;
    server->log = opts->log;
    server->log_arg = opts->log_arg;
    reactor_timer_init(&server->pause, accept_again);
    reactor_timer_init(&server->sweep, sweep);
    rc = open_socket(server, opts, err);
    if (rc != 0)
        goto out_free;
    rc = reactor_fd_add(&server->fd, server->socket.fd, EPOLLIN, server_event);
    if (rc != 0) {
        err_text(err, "cannot watch the socket: %s", strerror(-rc));
        goto out_socket;
    }
    *out = server;
    return 0;

out_socket:
    rpc_socket_close(&server->socket);
out_free:
    free(server);
    return rc;
}

void rpc_server_destroy(struct rpc_server *server)
{
    struct client *next;

    if (!server)
        return;
    for (struct client *c = server->clients; c; c = next) {
        next = c->next;
        client_close(c, RPC_CLIENT_CLOSED);
    }
    reactor_timer_cancel(&server->sweep);
    reactor_timer_cancel(&server->pause);
    reactor_fd_del(&server->fd);
    rpc_socket_close(&server->socket);
    free(server);
}

unsigned rpc_server_clients(const struct rpc_server *server)
{
    return server->client_count;
}
