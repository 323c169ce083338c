/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream transport `kernel`: host sockets under epoll. Bytes are read ahead into a small buffer per
 * stream, so that one system call brings many small messages; payload goes straight to the
 * caller's memory, with the buffer as the tail of the same readv().
 */
#include "lib/base/container.h"
#include "lib/lnd_eth/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_AHEAD      8192 /* bytes; at least STREAM_PEEK_MAX */
#define IOV_BATCH       64
#define LOWAT_MIN       16384     /* bytes; for fewer it is not worth a system call */
#define LOWAT_MAX       (1 << 18) /* the second level cache has room for that */
#define LOWAT_WAIT_US   10000     /* a sender slower than this is not waited for */
#define LISTEN_BACKLOG  127       /* docs/protocol/socklnd.md §1.2 */
#define ACCEPT_BURST    16
#define ACCEPT_PAUSE_US 1000000 /* after accept() failed, §1.2 */
#define CLOSE_LIMIT_MS  5000    /* a peer that takes nothing for so long does not get the rest */
#define KEEP_IDLE       30      /* s, §3.5 */
#define KEEP_INTERVAL   5
#define KEEP_COUNT      5

_Static_assert(READ_AHEAD >= STREAM_PEEK_MAX, "a peek must fit the buffer");

struct kernel_stream {
    struct stream base;
    struct reactor_fd fd;
    int sock;
    const struct stream_events *ev;
    void *user;
    bool attached;
    bool connecting;
    bool paused;
    bool want_out; /* send() took less than it was given */
    bool drained;  /* the socket had nothing more when last read */
    bool eof;
    bool starved; /* the last peek() wanted more than there was */
    bool told;    /* closed() was called */
    bool dead;    /* close() was called inside a callback */
    unsigned depth;
    int err;
    uint64_t bytes_in, bytes_out;
    uint64_t short_us;  /* last read that brought less than was wanted */
    uint32_t patience;  /* bytes that are worth waiting for, as fast as they come now */
    uint32_t lowat;     /* SO_RCVLOWAT */
    uint32_t head, len; /* of buf: what was read ahead */
    uint8_t buf[READ_AHEAD];
};

struct kernel_listener {
    struct stream_listener base;
    struct reactor_fd fd;
    struct reactor_timer pause;
    struct reactor_task start;
    int sock;
    bool dead;
    unsigned depth;
    void (*accepted)(void *user, struct stream *s, const union stream_addr *peer);
    void *user;
};

static struct kernel_stream *kernel(struct stream *s)
{
    return container_of(s, struct kernel_stream, base);
}

static socklen_t addr_len(const union stream_addr *a)
{
    return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

static void set_int(int sock, int level, int name, int value)
{
    /* Options that only improve things: a kernel without one still works. */
    (void)setsockopt(sock, level, name, &value, sizeof(value));
}

/* ---- events ---- */

static uint32_t wanted_events(const struct kernel_stream *s)
{
    if (s->connecting)
        return EPOLLOUT;
    return (s->paused ? 0 : EPOLLIN | EPOLLRDHUP) | (s->want_out ? EPOLLOUT : 0);
}

static void update_events(struct kernel_stream *s)
{
    if (s->attached && !s->told)
        reactor_fd_mod(&s->fd, wanted_events(s));
}

enum stream_end stream_end_of_errno(int err)
{
    switch (err) {
    case ECONNREFUSED:
        return STREAM_END_REFUSED;
    case ECONNRESET:
    case EPIPE:
        return STREAM_END_RESET;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
        return STREAM_END_UNREACHABLE;
    case ETIMEDOUT:
        return STREAM_END_TIMEOUT;
    default:
        return STREAM_END_ERROR;
    }
}

static int socket_error(const struct kernel_stream *s)
{
    int err = 0;
    socklen_t len = sizeof(err);

    if (getsockopt(s->sock, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        return errno;
    return err;
}

static void tell_closed(struct kernel_stream *s, enum stream_end end)
{
    if (s->told)
        return;
    s->told = true;
    reactor_fd_del(&s->fd);
    s->ev->closed(s->user, end);
}

static void connect_event(struct kernel_stream *s)
{
    int err = socket_error(s);

    if (err != 0) {
        tell_closed(s, stream_end_of_errno(err));
        return;
    }
    s->connecting = false;
    update_events(s);
    s->ev->connected(s->user);
}

/* Reports the end once all data before it was read, or less is left than the user wants; or when
 * the connection broke while the user does not read. */
static void check_end(struct kernel_stream *s, uint32_t events)
{
    if (s->err != 0)
        tell_closed(s, stream_end_of_errno(s->err));
    else if (s->eof && !s->paused && (s->len == 0 || s->starved))
        tell_closed(s, STREAM_END_EOF);
    else if (s->paused && (events & (EPOLLHUP | EPOLLERR)))
        tell_closed(s, stream_end_of_errno(socket_error(s) ?: ECONNRESET));
}

/* A callback may have closed the stream or detached it, to give it to another reactor. */
static bool still_here(const struct kernel_stream *s)
{
    return !s->dead && s->attached;
}

static void transfer_event(struct kernel_stream *s, uint32_t events)
{
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        s->drained = false;
        if (!s->paused)
            s->ev->readable(s->user);
    }
    if (still_here(s) && (events & EPOLLOUT) && s->want_out) {
        s->want_out = false;
        s->ev->writable(s->user);
        if (still_here(s))
            update_events(s);
    }
    if (still_here(s))
        check_end(s, events);
}

static void stream_event(struct reactor_fd *f, uint32_t events)
{
    struct kernel_stream *s = container_of(f, struct kernel_stream, fd);

    s->depth++;
    if (s->connecting)
        connect_event(s);
    else
        transfer_event(s, events);
    s->depth--;
    if (s->dead && s->depth == 0)
        free(s);
}

/* ---- making and closing ---- */

static struct kernel_stream *stream_new(int sock)
{
    struct kernel_stream *s = malloc(sizeof(*s));

    if (!s)
        return NULL;
    memset(s, 0, offsetof(struct kernel_stream, buf));
    s->base.ops = &stream_kernel;
    s->sock = sock;
    s->lowat = 1;
    return s;
}

static int kernel_attach(struct stream *stream, const struct stream_events *ev, void *user)
{
    struct kernel_stream *s = kernel(stream);
    int rc;

    s->ev = ev;
    s->user = user;
    s->drained = false;
    rc = reactor_fd_add(&s->fd, s->sock, wanted_events(s), stream_event);
    s->attached = rc == 0;
    return rc;
}

static void kernel_detach(struct stream *stream)
{
    struct kernel_stream *s = kernel(stream);

    if (s->attached)
        reactor_fd_del(&s->fd);
    s->attached = false;
}

static void kernel_close(struct stream *stream, bool abort)
{
    struct kernel_stream *s = kernel(stream);
    struct linger reset = {.l_onoff = 1};

    kernel_detach(stream);
    /* Unread data in the socket would have made close() send RST. A kernel keeps what is queued for
     * a closed window without a limit. */
    if (abort || s->len > 0)
        (void)setsockopt(s->sock, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    else
        set_int(s->sock, IPPROTO_TCP, TCP_USER_TIMEOUT, CLOSE_LIMIT_MS);
    close(s->sock);
    s->dead = true;
    if (s->depth == 0)
        free(s);
}

static void set_tos(int sock, int family, int tos)
{
    if (tos < 0)
        return;
    if (family == AF_INET6)
        set_int(sock, IPPROTO_IPV6, IPV6_TCLASS, tos);
    else
        set_int(sock, IPPROTO_IP, IP_TOS, tos);
}

static int open_socket(int family, int reuse_option)
{
    int sock = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (sock < 0)
        return -errno;
    set_int(sock, SOL_SOCKET, reuse_option, 1);
    if (family == AF_INET6)
        set_int(sock, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    return sock;
}

static int kernel_connect(void *ctx, const union stream_addr *local, const char *ifname,
                          const union stream_addr *remote, int tos, const struct stream_events *ev,
                          void *user, struct stream **out)
{
    struct kernel_stream *s;
    int sock = open_socket(remote->sa.sa_family, SO_REUSEPORT);
    int rc;

    if (sock < 0)
        return sock;
    set_int(sock, IPPROTO_TCP, TCP_NODELAY, 1);
    set_tos(sock, remote->sa.sa_family, tos);
    s = stream_new(sock);
    if (!s) {
        rc = -ENOMEM;
    } else if (bind(sock, &local->sa, addr_len(local)) < 0 ||
               (connect(sock, &remote->sa, addr_len(remote)) < 0 && errno != EINPROGRESS)) {
        rc = -errno;
    } else {
        s->connecting = true;
        rc = kernel_attach(&s->base, ev, user);
    }
    if (rc < 0) {
        free(s);
        close(sock);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static void kernel_established(struct stream *stream, int tos)
{
    struct kernel_stream *s = kernel(stream);
    union stream_addr local = {0};
    socklen_t len = sizeof(local);

    set_int(s->sock, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(s->sock, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE);
    set_int(s->sock, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL);
    set_int(s->sock, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    if (getsockname(s->sock, &local.sa, &len) == 0)
        set_tos(s->sock, local.sa.sa_family, tos);
}

/* ---- listening ---- */

static void listener_start(struct reactor_task *task);

static void accept_error(struct kernel_listener *l)
{
    reactor_fd_mod(&l->fd, 0);
    reactor_timer_arm(&l->pause, ACCEPT_PAUSE_US);
}

static void accept_again(struct reactor_timer *t)
{
    struct kernel_listener *l = container_of(t, struct kernel_listener, pause);

    if (reactor_fd_mod(&l->fd, EPOLLIN) == -ENOENT)
        listener_start(&l->start);
}

static bool accept_one(struct kernel_listener *l)
{
    union stream_addr peer = {0};
    socklen_t len = sizeof(peer);
    struct kernel_stream *s;
    int sock = accept4(l->sock, &peer.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (sock < 0) {
        if (errno == ECONNABORTED || errno == EINTR)
            return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            accept_error(l);
        return false;
    }
    s = stream_new(sock);
    if (!s) {
        close(sock);
        accept_error(l);
        return false;
    }
    set_int(sock, IPPROTO_TCP, TCP_NODELAY, 1);
    l->accepted(l->user, &s->base, &peer);
    return true;
}

/* Returns the index of the interface of the SYN, which the socket has kept; 0: not known. */
static unsigned index_of_syn(int sock, int family)
{
    bool v6 = family == AF_INET6;
    union {
        struct cmsghdr head;
        char room[256];
    } buf;
    socklen_t len = sizeof(buf);
    struct msghdr msg = {.msg_control = &buf};
    int rc;

    set_int(sock, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, 1);
    rc = getsockopt(sock, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_2292PKTOPTIONS : IP_PKTOPTIONS,
                    &buf, &len);
    set_int(sock, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, 0);
    msg.msg_controllen = rc == 0 ? len : 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
            return (unsigned)((struct in_pktinfo *)(void *)CMSG_DATA(c))->ipi_ifindex;
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
            return ((struct in6_pktinfo *)(void *)CMSG_DATA(c))->ipi6_ifindex;
    }
    return 0;
}

static bool kernel_came_by(const struct stream *stream, char ifname[IF_NAMESIZE])
{
    int sock = container_of(stream, const struct kernel_stream, base)->sock;
    union stream_addr local = {0};
    socklen_t len = sizeof(local);

    return getsockname(sock, &local.sa, &len) == 0 &&
           if_indextoname(index_of_syn(sock, local.sa.sa_family), ifname);
}

static void listener_event(struct reactor_fd *f, uint32_t events)
{
    struct kernel_listener *l = container_of(f, struct kernel_listener, fd);

    (void)events;
    l->depth++;
    for (int i = 0; i < ACCEPT_BURST && !l->dead; i++)
        if (!accept_one(l))
            break;
    l->depth--;
    if (l->dead)
        free(l);
}

static void listener_start(struct reactor_task *task)
{
    struct kernel_listener *l = container_of(task, struct kernel_listener, start);

    if (reactor_fd_add(&l->fd, l->sock, EPOLLIN, listener_event) < 0)
        reactor_timer_arm(&l->pause, ACCEPT_PAUSE_US);
}

static int
kernel_listen(void *ctx, const union stream_addr *addr, const char *ifname, struct reactor *on,
              void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
              void *user, struct stream_listener **out)
{
    struct kernel_listener *l;
    int sock = open_socket(addr->sa.sa_family, SO_REUSEADDR);
    int rc = 0;

    if (sock < 0)
        return sock;
    l = calloc(1, sizeof(*l));
    if (!l)
        rc = -ENOMEM;
    else if (bind(sock, &addr->sa, addr_len(addr)) < 0 || listen(sock, LISTEN_BACKLOG) < 0)
        rc = -errno;
    if (rc < 0) {
        free(l);
        close(sock);
        return rc;
    }
    l->base.ops = &stream_kernel;
    l->sock = sock;
    l->accepted = accepted;
    l->user = user;
    l->start.fn = listener_start;
    reactor_timer_init(&l->pause, accept_again);
    *out = &l->base;
    reactor_post(on, &l->start);
    return 0;
}

static void kernel_unlisten(struct stream_listener *listener)
{
    struct kernel_listener *l = container_of(listener, struct kernel_listener, base);

    reactor_timer_cancel(&l->pause);
    reactor_fd_del(&l->fd);
    close(l->sock);
    l->dead = true;
    if (l->depth == 0)
        free(l);
}

/* ---- receiving ---- */

/* Reads into iov; tells whether the socket is empty now. */
static size_t read_socket(struct kernel_stream *s, const struct iovec *iov, int n, size_t room)
{
    ssize_t got;

    if (s->drained || s->eof || s->err != 0)
        return 0;
    do
        got = readv(s->sock, iov, n);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            s->drained = true;
        else
            s->err = errno;
        return 0;
    }
    if (got == 0)
        s->eof = true;
    s->drained = (size_t)got < room;
    s->bytes_in += (size_t)got;
    return (size_t)got;
}

/* The socket becomes readable when so many bytes are there, or the stream has ended, or the kernel
 * wants the memory back or the window closes. */
static void set_lowat(struct kernel_stream *s, size_t n)
{
    if (s->lowat == n)
        return;
    s->lowat = (uint32_t)n;
    set_int(s->sock, SOL_SOCKET, SO_RCVLOWAT, (int)n);
}

/* Waits for `left` bytes of a payload, of which a part is of no use. While they come fast, one
 * wake-up serves many segments: each wake-up and each small read (with its window update) costs
 * more than copying a segment. When they come slowly, each byte wakes the reactor, so that the
 * check for stalled receives sees progress. */
static void wait_for_more(struct kernel_stream *s, size_t left)
{
    uint64_t now = reactor_now_us();

    if (now - s->short_us > LOWAT_WAIT_US)
        s->patience = 1;
    else if (s->patience < LOWAT_MIN)
        s->patience = LOWAT_MIN;
    else if (s->patience < LOWAT_MAX)
        s->patience *= 2;
    s->short_us = now;
    if (left > s->patience)
        left = s->patience;
    set_lowat(s, left < LOWAT_MIN ? 1 : left);
}

static size_t kernel_peek(struct stream *stream, size_t want, const uint8_t **p)
{
    struct kernel_stream *s = kernel(stream);
    struct iovec iov;

    if (s->len < want) {
        if (s->head > 0)
            memmove(s->buf, s->buf + s->head, s->len);
        s->head = 0;
        iov = (struct iovec){s->buf + s->len, READ_AHEAD - s->len};
        s->len += read_socket(s, &iov, 1, iov.iov_len);
    }
    *p = s->buf + s->head;
    s->starved = s->len < want;
    if (s->starved)
        set_lowat(s, 1);
    return s->len < want ? s->len : want;
}

static void kernel_skip(struct stream *stream, size_t n)
{
    struct kernel_stream *s = kernel(stream);

    s->head += n;
    s->len -= n;
    if (s->len == 0)
        s->head = 0;
}

/* Copies what was read ahead to the front of the segments; sets where they go on. */
static size_t copy_ahead(struct kernel_stream *s, const struct mem_seg *segs, unsigned nsegs,
                         unsigned *seg, size_t *off)
{
    size_t done = 0;

    while (*seg < nsegs && s->len > 0) {
        size_t n = segs[*seg].len - *off;

        n = n < s->len ? n : s->len;
        memcpy(segs[*seg].addr + *off, s->buf + s->head, n);
        s->head += n;
        s->len -= n;
        *off += n;
        done += n;
        if (*off == segs[*seg].len) {
            (*seg)++;
            *off = 0;
        }
    }
    if (s->len == 0)
        s->head = 0;
    return done;
}

static size_t kernel_read_into(struct stream *stream, const struct mem_seg *segs, unsigned nsegs)
{
    struct kernel_stream *s = kernel(stream);
    struct iovec iov[IOV_BATCH + 1];
    unsigned seg = 0;
    size_t off = 0, room = 0, got, done;
    int n = 0;

    done = copy_ahead(s, segs, nsegs, &seg, &off);
    for (; seg < nsegs && n < IOV_BATCH; seg++, n++, off = 0) {
        iov[n] = (struct iovec){segs[seg].addr + off, segs[seg].len - off};
        room += iov[n].iov_len;
    }
    if (room == 0)
        return done;
    if (seg == nsegs) {
        iov[n] = (struct iovec){s->buf, READ_AHEAD};
        got = read_socket(s, iov, n + 1, room + READ_AHEAD);
    } else {
        got = read_socket(s, iov, n, room);
    }
    if (got < room)
        wait_for_more(s, room - got);
    if (got > room) {
        s->head = 0;
        s->len = (uint32_t)(got - room);
        got = room;
    }
    return done + got;
}

static void kernel_rx_pause(struct stream *stream, bool pause)
{
    struct kernel_stream *s = kernel(stream);

    s->paused = pause;
    if (!pause)
        set_lowat(s, 1);
    update_events(s);
}

/* ---- sending ---- */

static ssize_t kernel_send(struct stream *stream, const struct mem_seg *segs, unsigned nsegs,
                           bool more)
{
    struct kernel_stream *s = kernel(stream);
    struct iovec iov[IOV_BATCH];
    struct msghdr msg = {.msg_iov = iov};
    unsigned n = nsegs < IOV_BATCH ? nsegs : IOV_BATCH;
    size_t total = 0;
    ssize_t sent;

    for (unsigned i = 0; i < n; i++) {
        iov[i] = (struct iovec){segs[i].addr, segs[i].len};
        total += segs[i].len;
    }
    msg.msg_iovlen = n;
    do
        sent = sendmsg(s->sock, &msg, MSG_NOSIGNAL | (more || n < nsegs ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return -errno;
        sent = 0;
    }
    s->bytes_out += (uint64_t)sent;
    if ((size_t)sent < total || n < nsegs) {
        s->want_out = true;
        update_events(s);
    }
    return sent;
}

static void kernel_stats(struct stream *stream, struct stream_stats *out)
{
    struct kernel_stream *s = kernel(stream);
    int unacked = 0;

    out->bytes_in = s->bytes_in;
    out->bytes_out = s->bytes_out;
    if (ioctl(s->sock, SIOCOUTQ, &unacked) < 0)
        unacked = 0;
    out->unacked = (uint64_t)unacked;
}

const struct stream_ops stream_kernel = {
    .name = "kernel",
    .stream_bytes = sizeof(struct kernel_stream),
    .listen = kernel_listen,
    .unlisten = kernel_unlisten,
    .connect = kernel_connect,
    .came_by = kernel_came_by,
    .attach = kernel_attach,
    .detach = kernel_detach,
    .established = kernel_established,
    .peek = kernel_peek,
    .skip = kernel_skip,
    .read_into = kernel_read_into,
    .rx_pause = kernel_rx_pause,
    .send = kernel_send,
    .stats = kernel_stats,
    .close = kernel_close,
};
