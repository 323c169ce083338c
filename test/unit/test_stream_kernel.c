/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream transport `kernel` over loopback sockets; the other end is a plain socket of the test. */
#include "lib/lnd_eth/stream_kernel.c"

#include "test/unit/reactor_test.h"

#include <fcntl.h>

#undef skip /* cmocka's; a stream has one too */

#define PORT 9880
#define BIG  (8u << 20)

static struct reactor *r0, *r1;
static union stream_addr here, there; /* loopback addresses of this process alone */

/* ---- a user of a stream that writes down what it is told ---- */

struct user {
    struct stream *s;
    unsigned connected, readable, writable, closed;
    enum stream_end end;
    bool close_on_readable, close_on_closed, ignore;
    size_t want; /* peeked for in readable() */
    size_t got;
};

static void on_connected(void *arg)
{
    ((struct user *)arg)->connected++;
}

static void on_readable(void *arg)
{
    struct user *u = arg;
    const uint8_t *p;

    u->readable++;
    if (u->close_on_readable) {
        u->s->ops->close(u->s, false);
        u->s = NULL;
    } else if (u->want > 0) {
        u->got = u->s->ops->peek(u->s, u->want, &p);
    }
}

static void on_writable(void *arg)
{
    ((struct user *)arg)->writable++;
}

static void on_closed(void *arg, enum stream_end end)
{
    struct user *u = arg;

    u->closed++;
    u->end = end;
    if (u->close_on_closed) {
        u->s->ops->close(u->s, false);
        u->s = NULL;
    }
}

static const struct stream_events events = {
    .connected = on_connected,
    .readable = on_readable,
    .writable = on_writable,
    .closed = on_closed,
};

/* ---- waiting ---- */

static void step(struct reactor *r)
{
    reactor_bind(r);
    reactor_step(r, 1000);
    reactor_bind(r0);
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t until_us = reactor_now_us() + DEADLINE_US;                                        \
                                                                                                   \
        while (!(cond)) {                                                                          \
            if (reactor_now_us() > until_us)                                                       \
                fail_msg("never happened: %s", #cond);                                             \
            step(r0);                                                                              \
        }                                                                                          \
    } while (0)

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 31 + (i >> 11));
}

/* ---- connections ---- */

static struct stream_listener *listener;
static struct stream *newest;
static union stream_addr newest_peer;

static void on_accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    assert_ptr_equal(user, &newest);
    newest = s;
    newest_peer = *peer;
}

static void listen_here(void)
{
    newest = NULL;
    assert_int_equal(stream_kernel.listen(NULL, &here, "lo", r0, on_accepted, &newest, &listener),
                     0);
    step(r0);
}

static void unlisten(void)
{
    stream_kernel.unlisten(listener);
}

static int plain_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 30};

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

/* A stream accepted and attached on r0; returns the test's end. */
static int accepted_stream(struct user *u)
{
    int fd = plain_socket();

    listen_here();
    memset(u, 0, sizeof(*u));
    assert_int_equal(bind(fd, &there.sa, sizeof(there.in)), 0);
    assert_int_equal(connect(fd, &here.sa, sizeof(here.in)), 0);
    UNTIL(newest != NULL);
    assert_int_equal(newest_peer.in.sin_addr.s_addr, there.in.sin_addr.s_addr);
    u->s = newest;
    assert_int_equal(stream_kernel.attach(u->s, &events, u), 0);
    unlisten();
    return fd;
}

static void send_pattern(int fd, size_t from, size_t n)
{
    uint8_t buf[4096];

    while (n > 0) {
        size_t part = n < sizeof(buf) ? n : sizeof(buf);

        for (size_t i = 0; i < part; i++)
            buf[i] = pattern(from + i);
        assert_int_equal(send(fd, buf, part, 0), part);
        from += part;
        n -= part;
    }
}

static void check(const uint8_t *p, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != pattern(from + i))
            fail_msg("byte %zu is wrong", from + i);
    }
}

/* ---- receiving ---- */

static void test_peek_and_skip(void **state)
{
    struct user u;
    const uint8_t *p;
    int fd = accepted_stream(&u);

    assert_int_equal(u.s->ops->peek(u.s, 24, &p), 0);
    send_pattern(fd, 0, 10);
    UNTIL(u.readable > 0);
    assert_int_equal(u.s->ops->peek(u.s, 24, &p), 10);
    check(p, 0, 10);
    u.want = 24;
    send_pattern(fd, 10, 20);
    UNTIL(u.got == 24);
    assert_int_equal(u.s->ops->peek(u.s, 24, &p), 24);
    check(p, 0, 24);
    u.s->ops->skip(u.s, 24);
    assert_int_equal(u.s->ops->peek(u.s, 24, &p), 6);
    check(p, 24, 6);
    u.s->ops->skip(u.s, 6);
    assert_int_equal(u.s->ops->peek(u.s, 1, &p), 0);
    u.s->ops->close(u.s, false);
    close(fd);
}

/* Many small headers with large payload between, in uneven pieces. */
static void test_read_into(void **state)
{
    struct user u;
    uint8_t *mem = malloc(BIG);
    struct mem_seg segs[3];
    const uint8_t *p;
    struct stream_stats st;
    size_t sent = 0, at = 0;
    int fd = accepted_stream(&u);

    assert_non_null(mem);
    for (unsigned round = 0; round < 40; round++) {
        size_t len = (round * 7919) % 60000, done = 0;

        send_pattern(fd, sent, len + 24);
        sent += len + 24;
        UNTIL(u.s->ops->peek(u.s, 24, &p) == 24);
        check(p, at, 24);
        u.s->ops->skip(u.s, 24);
        at += 24;
        while (done < len) {
            size_t left = len - done, a = left / 3, b = left / 4;

            segs[0] = (struct mem_seg){mem + done, (uint32_t)a, MEM_REGION_NONE, 0};
            segs[1] = (struct mem_seg){mem + done + a, (uint32_t)b, MEM_REGION_NONE, 0};
            segs[2] =
                (struct mem_seg){mem + done + a + b, (uint32_t)(left - a - b), MEM_REGION_NONE, 0};
            done += u.s->ops->read_into(u.s, segs, 3);
            step(r0);
        }
        check(mem, at, len);
        at += len;
    }
    u.s->ops->stats(u.s, &st);
    assert_int_equal(st.bytes_in, sent);
    assert_int_equal(u.s->ops->peek(u.s, 1, &p), 0);
    u.s->ops->close(u.s, false);
    close(fd);
    free(mem);
}

static unsigned lowat(const struct user *u)
{
    int value = 0;
    socklen_t len = sizeof(value);

    assert_int_equal(getsockopt(kernel(u->s)->sock, SOL_SOCKET, SO_RCVLOWAT, &value, &len), 0);
    return (unsigned)value;
}

/* Reads n bytes that have just been sent, of `left` that are wanted. fast: as if the last ones had
 * come a moment ago, else long ago. */
static void read_part(struct user *u, uint8_t *mem, size_t n, size_t left, bool fast)
{
    struct mem_seg seg = {mem, (uint32_t)left, MEM_REGION_NONE, 0};
    unsigned told = u->readable;

    UNTIL(u->readable > told);
    kernel(u->s)->short_us = reactor_now_us() - (fast ? 0 : 2 * LOWAT_WAIT_US);
    assert_int_equal(u->s->ops->read_into(u->s, &seg, 1), n);
    check(mem, 0, n);
}

/* The rest of a large payload is waited for in ever larger parts while it comes fast, but for no
 * more than is wanted; and all that has come is announced when the user asks for it. */
static void test_waits_for_more(void **state)
{
    struct user u;
    uint8_t *mem = malloc(BIG);
    const uint8_t *p;
    unsigned told;
    int fd = accepted_stream(&u);

    assert_non_null(mem);
    send_pattern(fd, 0, 100);
    read_part(&u, mem, 100, BIG, false);
    assert_int_equal(lowat(&u), 1);
    send_pattern(fd, 0, 100);
    read_part(&u, mem, 100, BIG, true);
    assert_int_equal(lowat(&u), LOWAT_MIN);

    told = u.readable;
    send_pattern(fd, 0, LOWAT_MIN - 1);
    for (int i = 0; i < 5; i++)
        step(r0);
    assert_int_equal(u.readable, told);
    u.s->ops->rx_pause(u.s, false);
    read_part(&u, mem, LOWAT_MIN - 1, BIG, true);
    assert_int_equal(lowat(&u), 2 * LOWAT_MIN);
    send_pattern(fd, 0, 2 * LOWAT_MIN);
    read_part(&u, mem, 2 * LOWAT_MIN, 5 * LOWAT_MIN, true);
    assert_int_equal(lowat(&u), 3 * LOWAT_MIN);
    send_pattern(fd, 0, 3 * LOWAT_MIN);
    read_part(&u, mem, 3 * LOWAT_MIN, 4 * LOWAT_MIN - 1, true); /* too little is left */
    assert_int_equal(lowat(&u), 1);
    for (size_t n = 1; n < 100; n++) {
        send_pattern(fd, 0, 1);
        read_part(&u, mem, 1, BIG, true);
        u.s->ops->rx_pause(u.s, false);
    }
    assert_int_equal(kernel(u.s)->patience, LOWAT_MAX);
    send_pattern(fd, 0, 1);
    read_part(&u, mem, 1, BIG, true);
    assert_int_equal(lowat(&u), LOWAT_MAX);
    assert_int_equal(u.s->ops->peek(u.s, 24, &p), 0);
    assert_int_equal(lowat(&u), 1);

    send_pattern(fd, 0, 1);
    read_part(&u, mem, 1, BIG, true);
    assert_int_equal(lowat(&u), LOWAT_MAX);
    send_pattern(fd, 0, 10);
    close(fd); /* the end is not waited for */
    read_part(&u, mem, 10, BIG, false);
    u.want = 1;
    UNTIL(u.closed > 0);
    assert_int_equal(u.end, STREAM_END_EOF);
    u.s->ops->close(u.s, false);
    free(mem);
}

static void test_eof(void **state)
{
    struct user u;
    const uint8_t *p;
    int fd = accepted_stream(&u);

    send_pattern(fd, 0, 100);
    close(fd);
    UNTIL(u.s->ops->peek(u.s, 100, &p) == 100);
    u.s->ops->skip(u.s, 60);
    for (int i = 0; i < 5; i++)
        step(r0);
    assert_int_equal(u.closed, 0); /* there is something to read yet */
    u.s->ops->skip(u.s, 40);
    u.want = 1;
    UNTIL(u.closed > 0);
    assert_int_equal(u.end, STREAM_END_EOF);
    for (int i = 0; i < 5; i++)
        step(r0);
    assert_int_equal(u.closed, 1);
    u.s->ops->close(u.s, false);
}

/* The peer leaves in the middle of a header: nobody will ever read the rest. */
static void test_eof_within(void **state)
{
    struct user u;
    int fd = accepted_stream(&u);

    u.want = 24;
    send_pattern(fd, 0, 10);
    close(fd);
    UNTIL(u.closed > 0);
    assert_int_equal(u.got, 10);
    assert_int_equal(u.end, STREAM_END_EOF);
    u.s->ops->close(u.s, false);
}

static void reset(int fd)
{
    struct linger l = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
    close(fd);
}

static void test_reset(void **state)
{
    struct user u;
    int fd = accepted_stream(&u);

    u.want = 1;
    u.close_on_closed = true;
    reset(fd);
    UNTIL(u.closed > 0);
    assert_int_equal(u.end, STREAM_END_RESET);
    assert_null(u.s);
}

static void test_pause(void **state)
{
    struct user u;
    int fd = accepted_stream(&u);

    u.s->ops->rx_pause(u.s, true);
    send_pattern(fd, 0, 100);
    for (int i = 0; i < 20; i++)
        step(r0);
    assert_int_equal(u.readable, 0);
    u.s->ops->rx_pause(u.s, false);
    UNTIL(u.readable > 0);
    u.s->ops->rx_pause(u.s, true);
    u.readable = 0;
    shutdown(fd, SHUT_WR); /* an end that is orderly waits */
    for (int i = 0; i < 20; i++)
        step(r0);
    assert_int_equal(u.readable + u.closed, 0);
    reset(fd); /* one that is not does not */
    UNTIL(u.closed > 0);
    assert_int_equal(u.end, STREAM_END_RESET);
    u.s->ops->close(u.s, false);
}

static void test_close_in_callback(void **state)
{
    struct user u;
    int fd = accepted_stream(&u);
    char c;

    u.close_on_readable = true;
    send_pattern(fd, 0, 1);
    UNTIL(u.readable > 0);
    assert_null(u.s);
    assert_int_equal(recv(fd, &c, 1, 0), -1); /* it had not read that byte: RST */
    assert_int_equal(errno, ECONNRESET);
    close(fd);
}

/* ---- ending ---- */

static void test_close_is_fin(void **state)
{
    struct user u;
    char c;
    int fd = accepted_stream(&u);

    u.s->ops->close(u.s, false);
    assert_int_equal(recv(fd, &c, 1, 0), 0);
    close(fd);
}

static void test_abort_is_rst(void **state)
{
    struct user u;
    char c;
    int fd = accepted_stream(&u);

    u.s->ops->close(u.s, true);
    assert_int_equal(recv(fd, &c, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
}

/* Whether the kernel has a connection with this local port. */
static bool kernel_has(uint16_t port)
{
    FILE *f = fopen("/proc/self/net/tcp", "r");
    unsigned local, state;
    bool found = false;
    char line[256];

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "%*u: %*x:%x %*x:%*x %x", &local, &state) == 2)
            found |= local == port && state != TCP_LISTEN && state != TCP_TIME_WAIT;
    fclose(f);
    return found;
}

/* A peer that ends its side, and never reads, cannot keep what is queued for it. */
static void test_close_has_a_limit(void **state)
{
    struct user u;
    uint8_t *mem = calloc(1, BIG);
    struct mem_seg seg = {mem, BIG, MEM_REGION_NONE, 0};
    int fd = accepted_stream(&u);

    assert_non_null(mem);
    while (u.s->ops->send(u.s, &seg, 1, false) > 0)
        ;
    shutdown(fd, SHUT_WR);
    u.s->ops->close(u.s, false);
    assert_true(kernel_has(ntohs(here.in.sin_port)));
    UNTIL(!kernel_has(ntohs(here.in.sin_port)));
    close(fd);
    free(mem);
}

/* Bytes that were read ahead and not used make an RST, as if they were still in the socket; what
 * was sent before arrives. */
static void test_unused_is_rst(void **state)
{
    struct user u;
    const uint8_t *p;
    uint8_t answer[16] = "go away", got[16];
    struct mem_seg seg = {answer, sizeof(answer), MEM_REGION_NONE, 0};
    int fd = accepted_stream(&u);

    send_pattern(fd, 0, 20);
    UNTIL(u.s->ops->peek(u.s, 8, &p) == 8);
    u.s->ops->skip(u.s, 8);
    assert_int_equal(u.s->ops->send(u.s, &seg, 1, false), sizeof(answer));
    assert_int_equal(recv(fd, got, sizeof(got), MSG_WAITALL), sizeof(got));
    u.s->ops->close(u.s, false);
    assert_int_equal(recv(fd, got, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
}

/* ---- sending ---- */

static void test_send(void **state)
{
    struct user u;
    struct stream_stats st;
    uint8_t *mem = malloc(BIG), *got = malloc(BIG);
    size_t sent = 0, have = 0;
    bool was_full = false;
    int fd = accepted_stream(&u);

    assert_true(mem && got);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (size_t i = 0; i < BIG; i++)
        mem[i] = pattern(i);
    while (have < BIG) {
        size_t left = BIG - sent;
        struct mem_seg segs[2] = {
            {mem + sent, (uint32_t)(left / 2), MEM_REGION_NONE, 0},
            {mem + sent + left / 2, (uint32_t)(left - left / 2), MEM_REGION_NONE, 0},
        };
        ssize_t n = left > 0 ? u.s->ops->send(u.s, segs, 2, false) : 0;

        assert_true(n >= 0);
        sent += (size_t)n;
        if (left > 0 && (size_t)n < left && !was_full) {
            was_full = true;
            u.s->ops->stats(u.s, &st);
            assert_int_equal(st.bytes_out, sent);
            assert_true(st.unacked > 0 && st.unacked <= sent);
            for (int i = 0; i < 20; i++)
                step(r0);
            assert_int_equal(u.writable, 0); /* nobody reads */
        }
        n = recv(fd, got + have, BIG - have, 0);
        have += n > 0 ? (size_t)n : 0;
        step(r0);
    }
    assert_true(was_full);
    assert_true(u.writable > 0);
    check(got, 0, BIG);
    UNTIL((u.s->ops->stats(u.s, &st), st.unacked == 0));
    u.s->ops->close(u.s, false);
    close(fd);
    free(mem);
    free(got);
}

static void test_send_to_nobody(void **state)
{
    struct user u;
    uint8_t byte = 0;
    struct mem_seg seg = {&byte, 1, MEM_REGION_NONE, 0};
    ssize_t rc = 0;
    int fd = accepted_stream(&u);

    reset(fd);
    UNTIL((rc = u.s->ops->send(u.s, &seg, 1, false)) < 0); /* and no SIGPIPE */
    assert_true(rc == -ECONNRESET || rc == -EPIPE);
    u.s->ops->close(u.s, false);
}

/* ---- connecting ---- */

static int plain_listener(const union stream_addr *addr)
{
    int fd = plain_socket(), one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    assert_int_equal(bind(fd, &addr->sa, sizeof(addr->in)), 0);
    assert_int_equal(listen(fd, 5), 0);
    return fd;
}

static void test_connect(void **state)
{
    union stream_addr from = there, to2 = here, peer;
    struct user u = {0}, u2 = {0};
    socklen_t len = sizeof(peer);
    struct stream *s3;
    int l, l2, fd;

    from.in.sin_port = htons(PORT + 1);
    to2.in.sin_port = htons(PORT + 2);
    l = plain_listener(&here);
    l2 = plain_listener(&to2);
    assert_int_equal(stream_kernel.connect(NULL, &from, "lo", &here, 0x10, &events, &u, &u.s), 0);
    UNTIL(u.connected > 0);
    fd = accept(l, &peer.sa, &len);
    assert_true(fd >= 0);
    assert_int_equal(peer.in.sin_port, from.in.sin_port);
    assert_int_equal(peer.in.sin_addr.s_addr, from.in.sin_addr.s_addr);
    /* The same port serves for another destination, but not for the same one. */
    assert_int_equal(stream_kernel.connect(NULL, &from, "lo", &to2, -1, &events, &u2, &u2.s), 0);
    UNTIL(u2.connected > 0);
    assert_int_equal(stream_kernel.connect(NULL, &from, "lo", &here, -1, &events, &u2, &s3),
                     -EADDRNOTAVAIL);
    send_pattern(fd, 0, 5);
    UNTIL(u.readable > 0);
    u.s->ops->close(u.s, false);
    u2.s->ops->close(u2.s, false);
    close(fd);
    close(l);
    close(l2);
}

static void test_refused(void **state)
{
    union stream_addr from = there;
    struct user u = {0};
    int rc = stream_kernel.connect(NULL, &from, "lo", &here, -1, &events, &u, &u.s);

    if (rc == -ECONNREFUSED)
        return; /* the loopback may be that fast */
    assert_int_equal(rc, 0);
    UNTIL(u.closed > 0);
    assert_int_equal(u.end, STREAM_END_REFUSED);
    assert_int_equal(u.connected, 0);
    u.s->ops->close(u.s, false);
}

static void test_address_in_use(void **state)
{
    struct stream_listener *second;

    listen_here();
    assert_int_equal(stream_kernel.listen(NULL, &here, "lo", r0, on_accepted, &newest, &second),
                     -EADDRINUSE);
    unlisten();
}

/* ---- between reactors ---- */

static void test_moves(void **state)
{
    struct user u;
    const uint8_t *p;
    int fd = accepted_stream(&u);

    send_pattern(fd, 0, 30);
    UNTIL(u.s->ops->peek(u.s, 10, &p) == 10);
    u.s->ops->skip(u.s, 10);
    u.s->ops->detach(u.s);
    send_pattern(fd, 30, 10);
    u.readable = 0;
    for (int i = 0; i < 10; i++)
        step(r0);
    assert_int_equal(u.readable, 0);
    reactor_bind(r1);
    assert_int_equal(stream_kernel.attach(u.s, &events, &u), 0);
    reactor_bind(r0);
    for (int i = 0; i < 10; i++)
        step(r0);
    assert_int_equal(u.readable, 0);
    u.want = 30;
    while (u.got < 30)
        step(r1);
    reactor_bind(r1);
    assert_int_equal(u.s->ops->peek(u.s, 30, &p), 30);
    check(p, 10, 30);
    u.s->ops->close(u.s, true);
    reactor_bind(r0);
    close(fd);
}

/* ---- options ---- */

static int option(struct stream *s, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);

    assert_int_equal(getsockopt(kernel(s)->sock, level, name, &value, &len), 0);
    return value;
}

static void test_options(void **state)
{
    struct user u;
    int fd = accepted_stream(&u);

    assert_true(option(u.s, IPPROTO_TCP, TCP_NODELAY));
    assert_false(option(u.s, SOL_SOCKET, SO_KEEPALIVE)); /* only after the HELLO */
    u.s->ops->established(u.s, 0x20);
    assert_true(option(u.s, SOL_SOCKET, SO_KEEPALIVE));
    assert_int_equal(option(u.s, IPPROTO_TCP, TCP_KEEPIDLE), 30);
    assert_int_equal(option(u.s, IPPROTO_TCP, TCP_KEEPINTVL), 5);
    assert_int_equal(option(u.s, IPPROTO_TCP, TCP_KEEPCNT), 5);
    assert_int_equal(option(u.s, IPPROTO_IP, IP_TOS), 0x20);
    u.s->ops->close(u.s, false);
    close(fd);
}

static int group_setup(void **state)
{
    uint32_t pid = (uint32_t)getpid() & 0xffff;

    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 2);
    r0 = reactor_at(env, 0);
    r1 = reactor_at(env, 1);
    reactor_bind(r0);
    here.in = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_port = htons(PORT),
                                   .sin_addr.s_addr = htonl(0x7f000001 + (pid << 8))};
    there = here;
    there.in.sin_port = 0;
    there.in.sin_addr.s_addr = htonl(0x7f000002 + (pid << 8));
    return 0;
}

static int group_teardown(void **state)
{
    reactor_bind(reactor_control(env));
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peek_and_skip),  cmocka_unit_test(test_read_into),
        cmocka_unit_test(test_waits_for_more), cmocka_unit_test(test_eof),
        cmocka_unit_test(test_eof_within),     cmocka_unit_test(test_reset),
        cmocka_unit_test(test_pause),          cmocka_unit_test(test_close_in_callback),
        cmocka_unit_test(test_close_is_fin),   cmocka_unit_test(test_close_has_a_limit),
        cmocka_unit_test(test_abort_is_rst),   cmocka_unit_test(test_unused_is_rst),
        cmocka_unit_test(test_send),           cmocka_unit_test(test_send_to_nobody),
        cmocka_unit_test(test_connect),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_address_in_use), cmocka_unit_test(test_moves),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
