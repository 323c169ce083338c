/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core and socklnd over a transport that hands over segments. At each step what its buffers
 * really take is within what is reserved, and that within the budget.
 */
#include "lib/base/err.h"
#include "test/unit/take_stream.h"

#include <arpa/inet.h>

#include "lib/lnd_eth/socklnd/sock_internal.h"

#define MIB (1u << 20)
#define OWN "127.0.0.1@tcp"

/* ---- what must be so at every step ---- */

static bool is_up(const struct wire *w)
{
    return w->open && w->ev == &sock_conn_events;
}

/* What may lie in the transport's queue. */
static uint64_t reserved_for(const struct sock_conn *c)
{
    const struct lnet_msg *msg = c->rx.msg;

    return c->grant.charge + (msg ? msg->memory - msg->truesize : 0);
}

static void check(void)
{
    uint64_t reserved[REACTOR_MAX] = {0};
    unsigned i, k;

    for (i = 0; i < nwires; i++) {
        const struct wire *w = &wires[i];

        if (is_up(w))
            reserved[reactor_index(w->reactor)] += ((struct sock_conn *)w->user)->grant.charge;
        if (w->told && w->open) {
            assert_true(w->nbufs * BUFFER <= w->memory);
            assert_true(w->memory <= reserved_for(w->user));
        }
    }
    for (k = 0; k < nreactors; k++) {
        const struct lnet_shard *s = node->shard[k];

        for (i = 0; i < s->total_msgs; i++)
            reserved[k] += s->msgs[i].state != LNET_MSG_FREE ? s->msgs[i].memory : 0;
        assert_int_equal(s->credit->budget.used, reserved[k]);
        assert_true(in_use[k] <= reserved[k]);
        assert_true(reserved[k] <= s->credit->budget.total);
    }
}

/* ---- running ---- */

static void events(struct wire *w)
{
    if (w->reactor && w->readable && !w->paused) {
        w->readable = false;
        ON(reactor_index(w->reactor), w->ev->readable(w->user));
    }
    if (w->reactor && w->ended) {
        w->ended = false;
        ON(reactor_index(w->reactor), w->ev->closed(w->user, STREAM_END_RESET));
    }
}

static void go(void)
{
    for (unsigned i = 0; i < nwires; i++)
        events(&wires[i]);
    settle();
    check();
}

/* Some segments of a peer come, some of them late. */
static void traffic(struct wire *w)
{
    uint32_t n = 1 + rnd(64), at = w->next;

    for (uint32_t i = 0; i < n; i++) {
        if (rnd(8) == 0)
            at += rnd(20);
        while (at < w->nsegs && w->early[at])
            at++;
        if (!may_come(w, at))
            at = w->next;
        if (may_come(w, at))
            deliver(w, at++);
    }
    go();
}

/* ---- peers ---- */

static size_t hello(uint8_t *p, const struct lnet_nid *from)
{
    struct lnet_nid own = N(OWN);
    struct sock_hello h = {
        .version = SOCK_HELLO_V3,
        .src_nid = *from,
        .dst_nid = own,
        .src_pid = LNET_PID_LUSTRE,
        .src_incarnation = 77,
        .ctype = SOCK_CTYPE_CONTROL,
    };
    size_t n = sock_req_encode(&own, p);

    return n + sock_hello_encode(&h, p + n);
}

/* Bytes of a message's payload, told by its number. */
static uint8_t byte_of(uint64_t number, uint32_t i)
{
    return (uint8_t)((number * 2654435761u + i) * 2654435761u >> 24);
}

static struct lnet_nid server(unsigned k)
{
    char text[64];

    snprintf(text, sizeof(text), "10.2.1.%u@o2ib", 2 + k);
    return N(text);
}

static void add_message(struct wire *w, uint64_t number, unsigned to, uint32_t len)
{
    struct sock_frame frame = {.type = SOCK_FRAME_LNET};
    struct lnet_hdr h = hdr_put(w->nid, server(to), 30, number, 0, len, false);
    uint8_t *p;

    w->script = realloc(w->script, w->len + SOCK_FRAME_SIZE + LNET_HDR4_SIZE + len);
    p = w->script + w->len;
    sock_frame_encode(&frame, p);
    assert_int_equal(lnet_hdr_encode4(&h, p + SOCK_FRAME_SIZE), LNET_DROP_NONE);
    p += SOCK_FRAME_SIZE + LNET_HDR4_SIZE;
    for (uint32_t i = 0; i < len; i++)
        p[i] = byte_of(number, i);
    w->len += SOCK_FRAME_SIZE + LNET_HDR4_SIZE + len;
}

/* A peer that has said nothing yet; its messages are added before call(). */
static struct wire *peer_at(uint32_t mss, unsigned reactor)
{
    struct wire *w = &wires[nwires++];
    static unsigned k;
    char text[64];

    memset(w, 0, sizeof(*w));
    do {
        k = (k + 1) % 10000;
        snprintf(text, sizeof(text), "127.0.%u.%u@tcp", 1 + k / 200, 2 + k % 200);
        w->nid = N(text);
    } while (home_of(&w->nid) != reactor);
    w->base.ops = &ops;
    w->addr.in.sin_family = AF_INET;
    w->addr.in.sin_port = htons(1000);
    memcpy(&w->addr.in.sin_addr, w->nid.addr_be, 4);
    w->mss = mss;
    w->edge = STREAM_FIRST_WINDOW;
    w->script = malloc(512);
    w->len = hello(w->script, &w->nid);
    return w;
}

static struct wire *peer(uint32_t mss)
{
    return peer_at(mss, nwires % nreactors);
}

/* It calls; its HELLO comes. */
static void call(struct wire *w)
{
    w->nsegs = (uint32_t)((w->len + w->mss - 1) / w->mss);
    w->early = calloc(w->nsegs, sizeof(*w->early));
    w->queue = malloc((w->nsegs + 2) * sizeof(*w->queue));
    w->open = true;
    ON(reactor_index(listen_on), on_accept(accept_user, &w->base, &w->addr));
    while (w->open && !is_up(w)) {
        deliver(w, w->next);
        go();
    }
}

static bool all_came(const struct wire *w)
{
    return !w->open || (w->next == w->nsegs && w->head == w->tail);
}

/* ---- the node ---- */

static struct lnd_sock *lnd;
static unsigned nreceived; /* by servers */
static uint8_t seen[100000];

static void up(size_t segments)
{
    struct lnet_node_opts o = opts_default();
    struct sock_opts so = SOCK_OPTS_DEFAULT;
    struct err err = {0};

    o.tiny = o.small = 256 * nreactors;
    o.large = 12 * nreactors;
    o.segments = segments * nreactors;
    o.max_peers = 1024;
    loop_begin();
    so.transport = &ops;
    so.max_conns = PEERS;
    lnd = lnd_sock_new(&so);
    assert_non_null(lnd);
    assert_int_equal(lnet_node_create(&o, &node, &err), 0);
    assert_int_equal(lnet_lnd_register(node, &lnd_sock_ops, lnd), 0);
    assert_int_equal(lnet_lnd_register(node, &loop_ib, loop_ctx), 0);
    tcp0 = ni_add(OWN);
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
    loop.hold_send = true;
    rnd_state = 4711 + nreactors;
    nwires = nreceived = 0;
    memset(seen, 0, sizeof(seen));
}

static void check_payloads(void)
{
    struct lnet_put p;

    for (unsigned i = 0; i < loop.nsent; i++) {
        lnet_body_get_put(&loop.sent[i].hdr, &p);
        for (uint32_t k = 0; k < loop.sent[i].len; k++)
            if (loop.sent[i].payload[k] != byte_of(p.match_bits, k))
                fail_msg("message %u: byte %u", (unsigned)p.match_bits, k);
        assert_int_equal(seen[p.match_bits]++, 0); /* once */
        nreceived++;
    }
    sent_clear();
}

/* Servers take some of what they were sent. */
static void serve_some(void)
{
    while (loop.nheld > 0 && rnd(3) == 0)
        send_end(loop.held[rnd(loop.nheld)], (struct lnet_result){LNET_DROP_NONE, LNET_HEALTH_OK});
    go();
    check_payloads();
}

static struct lnet_segment_stats stats_sum(void)
{
    struct lnet_segment_stats sum = {0}, one;

    for (unsigned k = 0; k < nreactors; k++) {
        lnet_segment_stats_get(node, k, &one);
        sum.payload_copies += one.payload_copies;
        sum.waited += one.waited;
        sum.grants_waiting += one.grants_waiting;
    }
    return sum;
}

static void hang_up(struct wire *w)
{
    w->ended = true;
    go();
    assert_false(w->open);
}

static void down(void)
{
    int stopped = 0;

    loop.hold_send = false;
    send_end_all((struct lnet_result){LNET_DROP_NONE, LNET_HEALTH_OK});
    go();
    check_payloads();
    for (unsigned i = 0; i < nwires; i++)
        if (wires[i].open)
            hang_up(&wires[i]);
    for (unsigned i = 0; i < nreactors; i++) {
        assert_int_equal(in_use[i], 0);
        assert_int_equal(node->shard[i]->credit->budget.used, 0);
    }
    lnet_node_stop(node, 0, on_stopped, &stopped);
    for (unsigned i = 0; !stopped && i < ROUNDS; i++) {
        settle();
        clock_us += 1000;
    }
    assert_int_equal(stopped, 1);
    pass(2 * SEC);
    check_quiet();
    sent_clear();
    node_gone();
    lnd_driver_free(lnd);
    for (unsigned i = 0; i < nwires; i++) {
        free(wires[i].script);
        free(wires[i].early);
        free(wires[i].queue);
    }
}

/* What a reactor needs at least, and so many idle connections. */
static size_t least_and(unsigned conns)
{
    return lnet_budget_least() + conns * (2 * LNET_GRANT_BASE + BUFFER);
}

/* Until everything has been sent. */
static void send_everything(void)
{
    unsigned done, steps = 0;

    do {
        done = 0;
        for (unsigned i = 0; i < nwires; i++)
            done += all_came(&wires[i]);
        traffic(&wires[rnd(nwires)]);
        if (rnd(4) == 0)
            serve_some();
        if (++steps > 200000)
            fail_msg("%u of %u peers could send everything", done, nwires);
    } while (done < nwires);
    while (loop.nheld > 0)
        serve_some();
    check_payloads();
}

/* ---- tests ---- */

/* Many connections, memory for a few messages: everybody's messages come through. */
static void test_many(void **state)
{
    static const uint32_t sizes[] = {0, 200, 4096, 5000, 100000, MIB};
    static const uint32_t mss[] = {536, 1448, 2048};
    unsigned n = 0;

    up(least_and(40));
    for (unsigned i = 0; i < 40; i++) {
        struct wire *w = peer(mss[i % 3]);

        for (unsigned k = 0; k < 6; k++)
            add_message(w, n++, rnd(8), sizes[(i + k) % 6]);
        call(w);
    }
    send_everything();
    assert_int_equal(nreceived, n);
    assert_int_equal(drops_sum(), 0);
    assert_true(stats_sum().waited > 0 || nreactors > 1);
    down();
}

/* A hundred bytes in each buffer: what cannot be kept so is copied, and nobody waits for ever. */
static void test_sparse(void **state)
{
    unsigned n = 0, refused = 0;

    up(least_and(8));
    for (unsigned i = 0; i < 8; i++) {
        struct wire *w = peer(i < 4 ? 100 : 1448);

        for (unsigned k = 0; k < 3; k++)
            add_message(w, n++, i, k == 1 ? 1000 : 300000 + 100000 * i);
        call(w);
    }
    send_everything();
    assert_int_equal(nreceived, n);
    assert_int_equal(drops_sum(), 0);
    assert_true(stats_sum().payload_copies > 0);
    for (unsigned i = 0; i < 4; i++)
        refused += wires[i].refused > 0;
    assert_true(refused > 0); /* what came out of order had to find room too */
    down();
}

/* Plenty of memory: whole messages are promised ahead, and come in any order, sparse or dense. */
static void test_plenty(void **state)
{
    unsigned n = 0;
    uint64_t ahead = 0;

    up(80 * (size_t)MIB);
    for (unsigned i = 0; i < 6; i++) {
        struct wire *w = peer(i % 2 ? 1448 : 300);

        for (unsigned k = 0; k < 8; k++)
            add_message(w, n++, i, k % 2 ? MIB : 300000 + 1000 * k);
        call(w);
    }
    for (unsigned i = 0; i < 2000; i++) {
        traffic(&wires[rnd(nwires)]);
        serve_some();
        for (unsigned k = 0; k < nwires; k++)
            if (wires[k].open && wires[k].edge - wires[k].consumed > ahead)
                ahead = wires[k].edge - wires[k].consumed;
    }
    assert_true(ahead > MIB + 100000);
    send_everything();
    assert_int_equal(nreceived, n);
    assert_int_equal(drops_sum(), 0);
    down();
}

/* Connections die anywhere; the others do not notice. */
static void test_die(void **state)
{
    unsigned i, n = 0, kept = 0;

    up(least_and(40));
    for (i = 0; i < 40; i++) {
        struct wire *w = peer(1448);

        for (unsigned k = 0; k < 4; k++)
            add_message(w, n++, rnd(6), rnd(2) ? MIB : rnd(200000));
        call(w);
    }
    for (unsigned steps = 0; steps < 3000; steps++) {
        i = rnd(nwires);
        if (i % 2 && rnd(60) == 0 && wires[i].open)
            hang_up(&wires[i]);
        else
            traffic(&wires[i]);
        if (rnd(4) == 0)
            serve_some();
    }
    send_everything();
    for (i = 0; i < n; i++)
        if (i / 4 % 2 == 0)
            kept += seen[i];
    assert_int_equal(kept, n / 2);
    assert_true(nreceived < n);
    assert_int_equal(drops_sum(), drops_of(SOCK_DROP(RESET)) + drops_of(LNET_DROP_RX_INCOMPLETE));
    down();
}

static void send_part(struct wire *w, uint32_t nsegs)
{
    while (w->next < nsegs && may_come(w, w->next))
        deliver(w, w->next);
    go();
}

/* Peers stop in the middle: others' messages come through within a second, and when the rest comes
 * after all it is thrown away and the next message is as good as any. */
static void test_stalled(void **state)
{
    unsigned n = 0, stalled;
    struct wire *w;

    up(least_and(20));
    for (stalled = 0; stats_sum().waited == 0; stalled++) {
        w = peer_at(1448, 0);
        add_message(w, n++, stalled, MIB);
        add_message(w, n++, stalled, 3000);
        call(w);
        send_part(w, w->nsegs / 2);
    }
    assert_int_equal(stalled, 3);
    stalled--; /* the last one waits, and sends on */
    for (unsigned i = 0; i < 6; i++) {
        w = peer_at(1448, 0);
        add_message(w, n++, 10 + i, 500000);
        add_message(w, n++, 10 + i, 3000);
        call(w);
    }
    loop.hold_send = false;
    for (unsigned i = 0; i < 100 && nreceived < 14; i++) {
        for (unsigned k = stalled; k < nwires; k++)
            send_part(&wires[k], wires[k].nsegs);
        check_payloads();
        clock_us += 10000;
    }
    assert_int_equal(nreceived, 14);
    loop.hold_send = true;
    assert_true(drops_of(LNET_DROP_RX_STALLED) > 0);
    send_everything();
    assert_int_equal(nreceived, n - drops_of(LNET_DROP_RX_STALLED));
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_RX_STALLED));
    down();
}

/* More connections than there is memory for: a caller is refused while the others are in use, and
 * the one that was silent for longest gives way to it when it has been so for a while. */
static void test_no_base(void **state)
{
    unsigned n = 0, most;
    struct wire *w;

    up(least_and(3));
    for (most = 0;; most++) {
        w = peer_at(1448, 0);
        add_message(w, n, 0, 5000);
        call(w);
        if (!w->open)
            break;
        n++;
        assert_true(w->told);
    }
    assert_in_range(most, 3, 5);
    assert_int_equal(drops_of(SOCK_DROP(NO_MEMORY)), 1);
    assert_int_equal(stats_sum().grants_waiting, 0);
    send_everything();
    pass(LND_EVICT_IDLE_US);
    w = peer_at(1448, 0);
    add_message(w, n++, 0, 5000);
    call(w);
    assert_true(w->open && w->told);
    assert_int_equal(drops_of(LNET_DROP_EVICTED), 1);
    most = 0;
    for (unsigned i = 0; i < nwires; i++)
        most += wires[i].open;
    assert_in_range(most, 3, 5);
    send_everything();
    assert_int_equal(nreceived, n);
    assert_int_equal(drops_sum(), 2);
    down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_many), LNET_TEST(test_sparse),  LNET_TEST(test_plenty),
    LNET_TEST(test_die),  LNET_TEST(test_stalled), LNET_TEST(test_no_base),
};

LNET_TESTS_MAIN("test_socklnd_grant", tests)
