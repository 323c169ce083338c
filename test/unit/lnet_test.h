/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of lib/lnet share: a node over the loopback LND, all of its reactors stepped by
 * hand on the test's own thread, and a clock that moves only when a test says so (the programs are
 * linked with --wrap=clock_gettime). The test takes the place of all peers by the hooks of the LND.
 * One test program has one environment; its first argument is the number of reactors. Nodes are
 * made and taken down per test, and each is checked for leaks.
 */
#ifndef MILLRACE_LNET_TEST_H
#define MILLRACE_LNET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/err.h"
#include "test/unit/lnet_rooms.h"
#include "test/unit/loopback.h"

#define MAX_HELD 4096
#define MAX_SENT 8192
#define ROUNDS   20000 /* of stepping before something is said never to happen */
#define PID      LNET_PID_LUSTRE
#define SEC      1000000ull
#ifndef REAL_CLOCK /* those that go on by themselves */
#define REAL_CLOCK(id) ((id) != CLOCK_MONOTONIC)
#endif
#ifndef EAL_MB
#define EAL_MB 64
#endif

/* ---- the clock ---- */

static uint64_t clock_us = 1000 * SEC;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (REAL_CLOCK(id))
        return __real_clock_gettime(id, ts);
    ts->tv_sec = (time_t)(clock_us / SEC);
    ts->tv_nsec = (long)(clock_us % SEC) * 1000;
    return 0;
}

/* ---- stepping ---- */

static struct reactor_env *env;
static unsigned nreactors;

/* Runs a statement as reactor i. */
#define ON(i, statement)                                                                           \
    do {                                                                                           \
        struct reactor *was_ = reactor_self();                                                     \
        reactor_bind(reactor_at(env, (i)));                                                        \
        statement;                                                                                 \
        reactor_bind(was_);                                                                        \
    } while (0)

static void poll_stop(void);

static inline int step_all(void)
{
    int work = 0;
    unsigned i;

    for (i = 0; i < nreactors; i++)
        ON(i, work += reactor_step(reactor_self(), 0));
    work += reactor_step(reactor_control(env), 0);
    poll_stop();
    return work;
}

/* Until nothing is left to do at this moment. */
static inline void settle(void)
{
    unsigned n = 0, idle = 0;

    while (idle < 2) {
        idle = step_all() == 0 ? idle + 1 : 0;
        if (++n > ROUNDS)
            fail_msg("never comes to rest");
    }
}

/* Moves the clock in steps in which every timer tick is seen, and lets everything settle. */
static inline void pass(uint64_t us)
{
    while (us > 0) {
        uint64_t some = us < SEC ? us : SEC;

        clock_us += some;
        us -= some;
        settle();
    }
    clock_us += 1000; /* the wheel's tick */
    settle();
}

/* In steps so small that timers of a quarter of a second are in time. */
static inline void pass_ms(unsigned ms)
{
    for (; ms > 50; ms -= 50)
        pass(50000 - 1000);
    pass(ms * 1000 - 1000);
}

/* ---- the peers behind the loopback LND ---- */

struct sent { /* a message as the LND got it */
    struct lnet_hdr hdr;
    uint8_t *payload;
    uint32_t len;
    struct lnet_nid to;
    struct lnet_ni *ni;
    unsigned reactor;
    unsigned when; /* counts calls to send and recv */
};

struct peer_msg { /* a message of a peer */
    struct loop_rx in;
    unsigned reactor;
    int recvs;
    unsigned when; /* of recv, as in struct sent */
    bool parsed, done, cancelled, abandoned;
    bool keep;            /* it cannot be abandoned */
    bool ends;            /* but with its connection */
    bool late;            /* it was to be, since it took too long */
    enum lnet_drop parse; /* what lnet_parse() said */
    struct mem_seg taken[2];
    int releases;
    struct peer_msg *again; /* parsed as soon as this one is done, like a busy connection */
    struct peer_msg *next;
};

struct loop_test {
    bool hold_send, hold_recv;
    bool accept_only; /* with hold_send: accepted at once */
    struct lnet_result send_result, recv_result;
    struct lnet_msg *held[MAX_HELD];
    unsigned nheld;
    struct sent sent[MAX_SENT];
    unsigned nsent;
    struct peer_msg *rxs;
    unsigned peers_freed, started, fini, quiesced;
    unsigned calls;                /* to send and recv */
    unsigned depth, max_depth;     /* of calls to recv within recv */
    unsigned sending, max_sending; /* of calls to send within send */
    unsigned abandoned;
    bool ni_stopping[LNET_MAX_NI];
    unsigned stopping;               /* how many of these */
    const struct lnet_ni *hold_stop; /* told to stop, it does nothing about it yet */
    struct reactor_task *stop_done[LNET_MAX_NI];
    bool hold_quiet; /* a message was begun that does not end before the NI stops */
    struct reactor_task *quiet_done[LNET_MAX_NI];
    int init_error, start_error;
    unsigned inited;
};

static struct loop_test loop;
static struct lnet_node *node;
static struct lnet_ni *tcp0, *tcp1, *ib0;

static inline struct lnet_nid N(const char *text) {
    struct lnet_nid nid;

    if (nid_parse(text, &nid) != 0)
        fail_msg("bad NID %s", text);
    return nid;
}

static inline unsigned
home_of(const struct lnet_nid *nid)
{
    return reactor_index(lnet_nid_home(node, nid));
}

/* The k-th NID of 10.<b>.x.y@<net> whose home is a reactor. */
static inline struct lnet_nid peer_on(unsigned reactor, unsigned b, const char *net, unsigned k)
{
    char text[64];
    unsigned i;

    for (i = 2;; i++) {
        struct lnet_nid nid;

        snprintf(text, sizeof(text), "10.%u.%u.%u@%s", b, 1 + i / 250, i % 250, net);
        nid = N(text);
        if (home_of(&nid) == reactor % nreactors && k-- == 0)
            return nid;
    }
}

static inline void held_del(struct lnet_msg *msg)
{
    unsigned i;

    for (i = 0; i < loop.nheld; i++)
        if (loop.held[i] == msg) {
            memmove(&loop.held[i], &loop.held[i + 1], (loop.nheld - i - 1) * sizeof(loop.held[0]));
            loop.nheld--;
            return;
        }
    fail_msg("message is not held");
}

/* Ends a held send, on its reactor. */
static inline void send_end(struct lnet_msg *msg, struct lnet_result result)
{
    held_del(msg);
    ON(msg->tx_peer->shard->index, lnet_send_done(msg, result));
}

static inline void send_end_all(struct lnet_result result)
{
    while (loop.nheld > 0)
        send_end(loop.held[0], result);
}

static const struct lnet_result ni_gone = {LNET_DROP_SHUTDOWN, LNET_HEALTH_LOCAL_ERROR};

static inline bool ni_stopping(const struct lnet_ni *ni)
{
    return loop.ni_stopping[ni->index] && ni != loop.hold_stop;
}

static bool on_send(struct lnet_msg *msg)
{
    struct sent *s = &loop.sent[loop.nsent];
    uint32_t len = 0;

    assert_true(loop.nsent < MAX_SENT);
    assert_int_equal(msg->state, LNET_MSG_SENDING);
    assert_ptr_equal(reactor_self(), lnet_nid_home(msg->tx_ni->node, &msg->tx_peer->nid));
    assert_ptr_equal(lnet_shard_self(node), msg->tx_peer->shard);
    assert_true(msg->tx_peer->refs > 0);
    assert_int_equal(msg->payload.bytes, msg->hdr.payload_len);
    for (unsigned i = 0; i < msg->payload.n; i++)
        len += msg->payload.seg[i].len;
    assert_int_equal(len, msg->payload.bytes);
    *s = (struct sent){.hdr = msg->hdr,
                       .payload = loop_copy(msg),
                       .len = len,
                       .to = msg->tx_peer->nid,
                       .ni = msg->tx_ni,
                       .reactor = reactor_index(reactor_self()),
                       .when = ++loop.calls};
    loop.nsent++;
    if (loop.hold_send && !ni_stopping(msg->tx_ni)) {
        assert_true(loop.nheld < MAX_HELD);
        loop.held[loop.nheld++] = msg;
        if (loop.accept_only)
            lnet_send_accepted(msg);
        return true;
    }
    if (++loop.sending > loop.max_sending)
        loop.max_sending = loop.sending;
    lnet_send_done(msg, ni_stopping(msg->tx_ni) ? ni_gone : loop.send_result);
    loop.sending--;
    return true;
}

static void rx_parse(struct peer_msg *fx);

static void give_back(void *owner, struct lnet_sgl *sgl)
{
    struct peer_msg *fx = owner;

    assert_int_equal(reactor_index(reactor_self()), fx->reactor);
    fx->releases++;
    for (uint32_t i = 0; i < sgl->n; i++)
        free(sgl->seg[i].addr);
}

/* Two segments of unequal length that the receive hands over. */
static inline void take_segments(struct peer_msg *fx)
{
    uint32_t mlen = fx->in.mlen, first = mlen > 10 ? mlen / 3 : mlen, at = 0;
    unsigned n = first < mlen ? 2 : 1;

    assert_true(fx->in.rx.ni->rx_take);
    for (unsigned i = 0; i < n; i++) {
        uint32_t len = i == 0 ? first : mlen - first;

        fx->taken[i] =
            (struct mem_seg){.addr = malloc(len + 1), .len = len, .region = MEM_REGION_NONE};
        memcpy(fx->taken[i].addr, fx->in.payload + at, len);
        at += len;
    }
    fx->in.rx.taken = (struct lnet_sgl){.seg = fx->taken, .n = n, .bytes = mlen};
    fx->in.rx.release = give_back;
    fx->in.rx.release_owner = fx;
}

/* On its reactor: the payload has come, or has not. */
static inline void recv_finish(struct peer_msg *fx, struct lnet_result result)
{
    assert_int_equal(fx->recvs, 1);
    assert_false(fx->done);
    if (!fx->in.segs && fx->in.mlen > 0 && !fx->abandoned)
        take_segments(fx);
    fx->done = true;
    loop_finish(&fx->in, result);
    if (fx->again)
        rx_parse(fx->again);
}

static inline void recv_end(struct peer_msg *fx, struct lnet_result result)
{
    ON(fx->reactor, recv_finish(fx, result));
}

static bool on_recv(struct loop_rx *in)
{
    struct peer_msg *fx = container_of(in, struct peer_msg, in);

    assert_int_equal(reactor_index(reactor_self()), fx->reactor);
    assert_false(fx->cancelled);
    if (++loop.depth > loop.max_depth)
        loop.max_depth = loop.depth;
    fx->recvs++;
    assert_int_equal(fx->recvs, 1);
    fx->when = ++loop.calls;
    assert_true(in->rx.rdma_get || in->mlen <= in->rx.hdr.payload_len);
    if (ni_stopping(in->rx.ni))
        recv_finish(fx, ni_gone);
    else if (!loop.hold_recv)
        recv_finish(fx, loop.recv_result);
    loop.depth--;
    return true;
}

static enum lnet_abandon on_abandon(struct lnet_rx *rx, bool too_long)
{
    struct peer_msg *fx = container_of(rx, struct peer_msg, in.rx);

    assert_int_equal(reactor_index(reactor_self()), fx->reactor);
    assert_int_equal(fx->recvs, 1);
    assert_false(fx->done || fx->abandoned);
    fx->late |= too_long;
    if (fx->keep)
        return too_long && fx->ends ? LNET_ABANDON_SOON : LNET_ABANDON_NOT;
    fx->in.segs = NULL;
    fx->abandoned = true;
    loop.abandoned++;
    return LNET_ABANDON_DONE;
}

static int on_ni_init(struct lnet_ni *ni, struct err *err)
{
    struct lnet_tunables *t = &ni->tun;

    if (loop.init_error) {
        err_text(err, "loopback: no");
        return loop.init_error;
    }
    loop.inited++;
    /* The index may have been another's. */
    assert_null(loop.stop_done[ni->index]);
    loop.ni_stopping[ni->index] = false;
    loop.quiet_done[ni->index] = NULL;
    t->credits = t->credits < 0 ? 4096 : t->credits; /* out of the way of what is not about them */
    t->peer_credits = t->peer_credits < 0 ? 1024 : t->peer_credits;
    return loop_code.ops->ni_init(ni, err);
}

static int on_ni_start(struct lnet_ni *ni, struct err *err)
{
    if (loop.start_error) {
        err_text(err, "loopback: cannot start");
        return loop.start_error;
    }
    loop.started++;
    return loop_code.ops->ni_start(ni, err);
}

static void on_ni_quiesce(struct lnet_ni *ni, struct reactor_task *done)
{
    assert_false(loop.ni_stopping[ni->index]);
    loop.quiesced++;
    if (loop.hold_quiet)
        loop.quiet_done[ni->index] = done;
    else
        loop_code.ops->ni_quiesce(ni, done);
}

static void on_ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    assert_false(loop.ni_stopping[ni->index]);
    loop.ni_stopping[ni->index] = true;
    loop.stopping++;
    if (loop.quiet_done[ni->index])
        reactor_post(reactor_control(env), loop.quiet_done[ni->index]);
    loop.quiet_done[ni->index] = NULL;
    loop.stop_done[ni->index] = done;
}

static void on_ni_fini(struct lnet_ni *ni)
{
    loop.fini++;
    loop_code.ops->ni_fini(ni);
}

static void on_peer_free(struct lnet_peer_ni *peer)
{
    assert_int_equal(peer->refs, 0);
    loop.peers_freed++;
}

static inline bool rx_open(const struct peer_msg *fx)
{
    return fx->parsed && fx->parse == LNET_DROP_NONE && !fx->done && !fx->cancelled;
}

static inline bool rx_cancel(struct peer_msg *fx)
{
    bool forgotten;

    ON(fx->reactor, forgotten = loop_cancel(&fx->in));
    fx->cancelled |= forgotten;
    return forgotten;
}

static inline void stop_sends(const struct lnet_ni *ni)
{
    unsigned i = 0;

    while (i < loop.nheld)
        if (loop.held[i]->tx_ni == ni)
            send_end(loop.held[i], ni_gone);
        else
            i++;
}

/* True: some receive has not been asked for yet. */
static inline bool stop_receives(const struct lnet_ni *ni)
{
    struct peer_msg *fx;
    bool open = false;

    for (fx = loop.rxs; fx; fx = fx->next) {
        if (fx->in.rx.ni != ni || !rx_open(fx))
            continue;
        if (fx->recvs > 0)
            recv_end(fx, ni_gone);
        else
            open |= !rx_cancel(fx);
    }
    return open;
}

/* Once an NI is told to stop: ends all that the test holds of it, then lets the LND stop it. */
static void poll_stop(void)
{
    unsigned i;

    for (i = 0; i < LNET_MAX_NI && loop.stopping > 0; i++) {
        if (!loop.stop_done[i] || node->ni[i] == loop.hold_stop)
            continue;
        stop_sends(node->ni[i]);
        if (stop_receives(node->ni[i]))
            continue;
        loop_code.ops->ni_stop(node->ni[i], loop.stop_done[i]);
        loop.stop_done[i] = NULL;
    }
}

/* The loopback LND as one of `tcp` nets and one of `o2ib` nets. */
static struct lnd_ops loop_tcp, loop_ib;
static void *loop_ctx;

static void __attribute__((constructor)) register_loop(void)
{
    if (!lnd_type_register(&loop_type))
        abort();
}

static inline void loop_begin(void)
{
    memset(&loop, 0, sizeof(loop));
    loop_hooks = (struct loop_hooks){.send = on_send, .recv = on_recv};
    loop_tcp = *loop_code.ops;
    loop_tcp.name = "tcp";
    loop_tcp.type = LNET_LND_SOCK;
    loop_tcp.recv_abandon = on_abandon;
    loop_tcp.ni_init = on_ni_init;
    loop_tcp.ni_start = on_ni_start;
    loop_tcp.ni_quiesce = on_ni_quiesce;
    loop_tcp.ni_stop = on_ni_stop;
    loop_tcp.ni_fini = on_ni_fini;
    loop_tcp.peer_free = on_peer_free;
    loop_ib = loop_tcp;
    loop_ib.name = "o2ib";
    loop_ib.type = LNET_LND_O2IB;
}

/* ---- received messages ---- */

/* Payloads are parts of one sequence, which begins again after PATTERN bytes. */
#define PATTERN 65536u

static const uint8_t *pattern_bytes(void)
{
    static uint8_t bytes[PATTERN];
    static bool made;
    unsigned i;

    for (i = 0; !made && i < PATTERN; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    made = true;
    return bytes;
}

static inline uint8_t pattern(uint32_t seed, uint32_t i)
{
    return pattern_bytes()[(seed * 2654435761u + i) % PATTERN];
}

static inline void pattern_fill(uint8_t *p, uint32_t seed, uint32_t len)
{
    uint32_t at = seed * 2654435761u % PATTERN, n;

    for (; len > 0; p += n, len -= n, at = 0) {
        n = len < PATTERN - at ? len : PATTERN - at;
        memcpy(p, pattern_bytes() + at, n);
    }
}

static inline struct lnet_hdr hdr_of(uint32_t type, struct lnet_nid src, struct lnet_nid dest,
                                     uint32_t len)
{
    struct lnet_hdr h = {.dest_nid = dest,
                         .src_nid = src,
                         .dest_pid = 0x12345678,
                         .src_pid = PID,
                         .type = type,
                         .payload_len = len};
    unsigned i;

    for (i = 0; i < sizeof(h.body); i++) /* opaque: every byte its own value */
        h.body[i] = (uint8_t)(0x80 + i);
    return h;
}

static inline struct peer_msg *rx_new(struct lnet_ni *ni, struct lnet_nid from, struct lnet_hdr hdr,
                                      uint32_t seed)
{
    struct peer_msg *fx = calloc(1, sizeof(*fx));
    uint32_t len = hdr.payload_len <= LNET_MAX_PAYLOAD ? hdr.payload_len : 0;

    fx->reactor = home_of(&from);
    fx->in.from = from;
    fx->in.rx.hdr = hdr;
    fx->in.rx.ni = ni;
    fx->in.payload = malloc(len + 1);
    pattern_fill(fx->in.payload, seed, len);
    fx->next = loop.rxs;
    loop.rxs = fx;
    return fx;
}

static void rx_parse(struct peer_msg *fx)
{
    fx->parsed = true;
    fx->abandoned = false;
    ON(fx->reactor, fx->parse = loop_arrive(&fx->in));
    assert_int_not_equal(fx->parse, LNET_DROP_NO_PEER_MEMORY);
}

/* The connection's next message. */
static inline void next_on(struct peer_msg *fx)
{
    assert_true(fx->done);
    fx->done = false;
    fx->recvs = 0;
    rx_parse(fx);
}

static inline struct peer_msg *arrive(struct lnet_ni *ni, struct lnet_nid from, struct lnet_hdr hdr)
{
    static uint32_t seed;
    struct peer_msg *fx = rx_new(ni, from, hdr, ++seed);

    rx_parse(fx);
    return fx;
}

static inline struct lnet_hdr hdr_get(struct lnet_nid src, struct lnet_nid dest, uint32_t portal,
                                      uint64_t bits, uint32_t offset, uint32_t sink)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_GET, src, dest, 0);
    struct lnet_get get = {.ret = {0x1111, 0x2221},
                           .match_bits = bits,
                           .portal = portal,
                           .src_offset = offset,
                           .sink_length = sink};

    lnet_body_set_get(&h, &get);
    return h;
}

static inline struct lnet_hdr hdr_ping(struct lnet_nid src, struct lnet_nid dest)
{
    return hdr_get(src, dest, 0, LNET_PING_MATCH_BITS, 0, 4096);
}

static inline struct lnet_hdr hdr_put(struct lnet_nid src, struct lnet_nid dest, uint32_t portal,
                                      uint64_t bits, uint32_t offset, uint32_t len, bool ack)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_PUT, src, dest, len);
    struct lnet_put put = {.ack = LNET_HANDLE_NONE,
                           .match_bits = bits,
                           .hdr_data = 0x0123456789abcdef,
                           .portal = portal,
                           .offset = offset};

    if (ack)
        put.ack = (struct lnet_handle){0x3333, 0x4441};
    lnet_body_set_put(&h, &put);
    return h;
}

/* ---- what was sent ---- */

static inline void sent_clear(void)
{
    unsigned i;

    for (i = 0; i < loop.nsent; i++)
        free(loop.sent[i].payload);
    loop.nsent = 0;
}

static inline unsigned sent_count(uint32_t type)
{
    unsigned i, n = 0;

    for (i = 0; i < loop.nsent; i++)
        n += loop.sent[i].hdr.type == type;
    return n;
}

/* The newest of a type. */
static inline struct sent *sent_last(uint32_t type)
{
    unsigned i;

    for (i = loop.nsent; i-- > 0;)
        if (loop.sent[i].hdr.type == type)
            return &loop.sent[i];
    fail_msg("no %s was sent", lnet_msg_type_name(type));
    abort();
}

/* ---- ping infos of others ---- */

/* An info with one NI as a peer would push it; n extra NIs make it longer. */
static inline uint32_t make_info(uint8_t *buf, size_t cap, struct lnet_nid nid, uint32_t features,
                                 uint32_t seqno, unsigned extra)
{
    static struct lnet_ping_info info;
    unsigned i;

    memset(&info, 0, sizeof(info));
    info.features = features;
    info.pid = PID;
    info.seqno = seqno;
    info.count = 1 + extra;
    for (i = 0; i <= extra; i++) {
        info.ni[i].nid = nid;
        info.ni[i].nid.addr_be[0] += i << 24;
        info.ni[i].status = LNET_NI_UP;
    }
    return (uint32_t)lnet_ping_encode(&info, buf, cap);
}

static bool reply_hold; /* the payload of a reply does not come yet */

static inline void reply_to(const struct sent *get, const uint8_t *data, uint32_t len)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_REPLY, get->hdr.dest_nid, get->hdr.src_nid, len);
    struct lnet_reply r;
    struct lnet_get g;
    struct peer_msg *fx;

    lnet_body_get_get(&get->hdr, &g);
    r.dst = g.ret;
    lnet_body_set_reply(&h, &r);
    fx = rx_new(get->ni, get->to, h, 1);
    memcpy(fx->in.payload, data, len);
    loop.hold_recv = reply_hold;
    rx_parse(fx);
    settle();
    loop.hold_recv = false;
}

/* The peer acknowledges a PUSH of ours. */
static inline void ack_push_only(const struct sent *push)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_ACK, push->hdr.dest_nid, push->hdr.src_nid, 0);
    struct lnet_ack ack = {.mlength = push->len};
    struct lnet_put put;

    lnet_body_get_put(&push->hdr, &put);
    ack.dst = put.ack;
    lnet_body_set_ack(&h, &ack);
    arrive(push->ni, push->to, h);
    settle();
}

/* ---- counters ---- */

static inline uint64_t stat_of(enum lnet_stat s)
{
    uint64_t all[LNET_STAT_COUNT];

    lnet_stats_get(node, all);
    return all[s];
}

static inline uint64_t drops_of(enum lnet_drop d)
{
    uint64_t all[LNET_DROP_COUNT];

    lnet_drops_get(node, all);
    return all[d];
}

static inline uint64_t drops_sum(void)
{
    uint64_t all[LNET_DROP_COUNT], sum = 0;
    unsigned i;

    lnet_drops_get(node, all);
    for (i = 0; i < LNET_DROP_COUNT; i++)
        sum += all[i];
    return sum;
}

static inline struct lnet_ni_stats ni_stats(const struct lnet_ni *ni)
{
    struct lnet_ni_stats s;

    lnet_ni_stats_get(node, ni->index, &s);
    return s;
}

/* A peer NI that exists, without making it. */
static inline struct lnet_peer_ni *peer_find(const struct lnet_nid *nid)
{
    struct lnet_shard *s = node->shard[home_of(nid)];
    struct lnet_peer_ni *p;

    for (p = s->peer->hash[nid_hash(nid) & s->peer->hash_mask]; p; p = p->hash_next)
        if (nid_same(&p->nid, nid))
            return p;
    return NULL;
}

/* What a next hop holds on a reactor. */
static inline uint32_t dest_holds(unsigned reactor, const struct lnet_nid *nid, bool gateway,
                                  enum lnet_pool pool)
{
    const struct lnet_shard *s = node->shard[reactor];
    const struct lnet_next_hop *d;

    for (d = s->next_hop_hash[nid_hash(nid) & s->next_hop_mask]; d; d = d->hash_next)
        if (d->gateway == gateway && nid_same(&d->nid, nid))
            return d->held[pool];
    return 0;
}

static inline struct lnet_pool_stats pool_stats(unsigned reactor, enum lnet_pool pool)
{
    struct lnet_pool_stats s;

    lnet_pool_stats_get(node, reactor, pool, &s);
    return s;
}

/* ---- life ---- */

static inline struct lnet_ni *ni_add_with(const char *nid, int credits, int peer_credits,
                                          int peer_buffer_credits)
{
    struct lnet_ni_conf conf = {
        .nid = N(nid), .tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};
    struct lnet_ni *ni = NULL;
    struct err err = {0};

    conf.net = nid_net(&conf.nid);
    conf.tun.credits = credits;
    conf.tun.peer_credits = peer_credits;
    conf.tun.peer_buffer_credits = peer_buffer_credits;
    if (lnet_ni_add(node, &conf, &ni, &err))
        fail_msg("%s", err.message);
    return ni;
}

static inline struct lnet_ni *ni_add(const char *nid)
{
    return ni_add_with(nid, -1, -1, -1);
}

static inline struct lnet_node_opts opts_default(void)
{
    return (struct lnet_node_opts){.env = env,
                                   .routing = true,
                                   .tiny = 8 * nreactors,
                                   .small = 8 * nreactors,
                                   .large = 2 * nreactors,
                                   .max_peers = 256,
                                   .local_msgs = 512};
}

/* Failures change health, so that there are recovery pings: not in tests of other matters. */
static bool health_counts;

/* A node without NIs. */
static inline void node_make(struct lnet_node_opts opts)
{
    struct err err = {0};

    loop_begin();
    if (lnet_node_create(&opts, &node, &err))
        fail_msg("%s", err.message);
    if (!health_counts)
        node->health.sensitivity = 0;
    assert_int_equal(lnet_lnd_register(node, &loop_tcp, loop_ctx), 0);
    assert_int_equal(lnet_lnd_register(node, &loop_ib, loop_ctx), 0);
}

/* All next hops took their last so many messages soon. */
static inline void quick_for(uint32_t soon)
{
    for (unsigned i = 0; i < node->nshards; i++)
        for (unsigned k = 0; k < LNET_POOLS; k++)
            for (unsigned n = 0; n < LNET_QUICKS; n++)
                node->shard[i]->credit->quick[k][n] = (struct lnet_quick){0, soon};
}

static inline void node_begin(void)
{
    struct err err = {0};

    if (lnet_node_start(node, &err))
        fail_msg("%s", err.message);
    quick_for(8);
    settle();
}

/* 10.0.0.1@tcp, 10.1.0.1@tcp1, 10.2.0.1@o2ib. */
static inline void node_up(struct lnet_node_opts opts)
{
    node_make(opts);
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
}

static inline int route_add(const char *net, struct lnet_nid gw, int hops, unsigned priority)
{
    struct lnet_route_conf conf = {.gateway = gw, .hops = hops, .priority = priority};
    struct err err = {0};
    int rc;

    assert_int_equal(net_parse(net, &conf.net), 0);
    rc = lnet_route_add(node, &conf, &err);
    assert_true((rc == 0) == (err.message[0] == 0));
    return rc;
}

static inline void check_pool_quiet(const struct lnet_router_pool *p, bool memory)
{
    unsigned k;

    assert_int_equal(p->used, 0);
    assert_int_equal(p->waiting, 0);
    assert_int_equal(p->stalled, 0);
    assert_int_equal(p->gw_held, 0);
    assert_int_equal(p->end_held, 0);
    assert_int_equal(p->gws_holding, 0);
    for (k = 0; k < LNET_CLASSES; k++) {
        assert_true(TAILQ_EMPTY(&p->ring[k].look));
        assert_true(TAILQ_EMPTY(&p->ring[k].rest));
    }
    if (memory)
        assert_int_equal(p->mem.nfree, p->mem.total);
}

static inline void check_budget_quiet(const struct lnet_budget *b)
{
    assert_int_equal(b->used, 0);
    assert_int_equal(b->held[0] + b->held[1], 0);
    assert_int_equal(b->stalled, 0);
    assert_int_equal(b->waiting, 0);
    assert_int_equal(b->grants_waiting, 0);
    assert_true(!b->first[0] && !b->first[1]);
}

/* Nothing is under way: no message, no buffer, no reference, no timer. */
static inline void check_quiet(void)
{
    unsigned i, k;

    for (i = 0; i < nreactors; i++) {
        struct lnet_shard *s = node->shard[i];

        assert_int_equal(s->used_msgs, 0);
        assert_int_equal(s->local_msgs, 0);
        for (k = 0; k < LNET_POOLS; k++)
            check_pool_quiet(&s->credit->pool[k], k != LNET_POOL_TINY);
        check_budget_quiet(&s->credit->budget);
        for (k = 0; k < LNET_MAX_NI; k++) {
            assert_int_equal(s->tx->tq[k].credits.now, s->tx->tq[k].credits.max);
            assert_true(STAILQ_EMPTY(&s->tx->tq[k].queue));
            assert_true(TAILQ_EMPTY(&s->tx->tq[k].under));
            assert_int_equal(s->ni_refs[k], 0);
        }
        assert_true(STAILQ_EMPTY(&s->tx->ready));
        assert_true(STAILQ_EMPTY(&s->tx->held));
        assert_true(TAILQ_EMPTY(&s->credit->waiting));
        assert_true(TAILQ_EMPTY(&s->credit->receiving));
        assert_null(s->credit->rtr_wake);
        for (k = 0; k <= s->next_hop_mask; k++)
            assert_null(s->next_hop_hash[k]);
        assert_false(reactor_timer_armed(&s->credit->wait_timer));
        for (k = 0; k <= s->peer->hash_mask; k++) {
            struct lnet_peer_ni *p;

            for (p = s->peer->hash[k]; p; p = p->hash_next) {
                assert_int_equal(p->refs, 0);
                assert_int_equal(p->tx_queued, 0);
                assert_int_equal(p->tx_queued_bytes, 0);
                assert_int_equal(p->tx.now, p->tx.max);
                assert_int_equal(p->rtr.now, p->rtr.max);
                assert_true(STAILQ_EMPTY(&p->txq));
                assert_true(TAILQ_EMPTY(&p->rtrq));
                assert_int_equal(p->rtr_waiting, 0);
            }
        }
    }
    for (i = 0; i < LNET_GW_NI_SLOTS; i++)
        if (node->gw_ni[i])
            assert_int_equal(node->gw_ni[i]->queued_bytes, 0);
    assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 0);
    assert_true(TAILQ_EMPTY(&node->api->lazy));
    assert_false(reactor_timer_armed(&node->api->lazy_timer));
    assert_int_equal(loop.nheld, 0);
}

static inline void on_stopped(void *arg)
{
    ++*(int *)arg;
}

static inline void rx_free_all(void)
{
    struct peer_msg *fx;

    while ((fx = loop.rxs)) {
        loop.rxs = fx->next;
        assert_false(rx_open(fx));
        if (fx->in.rx.taken.n > 0)
            assert_int_equal(fx->releases, 1);
        free(fx->in.payload);
        free(fx);
    }
}

/* Timers that look once more and find nothing are let run out: here the reactors go on. */
static inline void node_gone(void)
{
    unsigned i;

    pass(SEC);
    for (i = 0; i < nreactors; i++) {
        assert_false(reactor_timer_armed(&node->shard[i]->credit->stall_timer));
        assert_false(reactor_timer_armed(&node->shard[i]->tx->overdue_timer));
    }
    lnet_node_destroy(node);
    node = NULL;
}

/* A test that failed leaves its node, and reactors in the middle of things: no other can run. */
static inline int node_is_gone(void **state)
{
    return node ? -1 : 0;
}

#define LNET_TEST(f) cmocka_unit_test_setup_teardown(f, node_is_gone, node_is_gone)

static inline void node_end(unsigned drain_s)
{
    uint64_t began = clock_us;
    int stopped = 0;
    unsigned i;

    lnet_node_stop(node, drain_s, on_stopped, &stopped);
    i = 0;
    while (!stopped) {
        settle();
        clock_us += 1000;
        if (++i > ROUNDS)
            fail_msg("does not stop");
    }
    assert_true(clock_us - began <= (drain_s + 2) * SEC);
    pass(2 * SEC);
    assert_int_equal(stopped, 1);
    check_quiet();
    assert_false(reactor_timer_armed(&node->ping->tick));
    assert_false(reactor_timer_armed(&node->routes->tick));
    rx_free_all();
    sent_clear();
    node_gone();
    assert_int_equal(loop.fini, loop.inited);
}

static inline void node_down(void)
{
    node_end(0);
}

static inline int tests_main(int argc, char **argv, const char *prog, int (*run)(void))
{
    struct reactor_opts opts = {
        .prog = prog, .cores = "auto", .idle = REACTOR_IDLE_SPIN, .mem_mb = EAL_MB};
    struct err err = {0};
    int rc;

    nreactors = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    if (argc > 2)
        cmocka_set_test_filter(argv[2]); /* for whoever looks for a bug */
    opts.count = nreactors;
    if (reactor_env_create(&opts, &env, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    loop_ctx = lnd_create_default(&loop_code);
    rc = run();
    if (node)
        _exit(1);
    loop_code.destroy(loop_ctx);
    reactor_env_destroy(env);
    return rc;
}

#define LNET_TESTS_MAIN(prog, tests)                                                               \
    static int run_all(void)                                                                       \
    {                                                                                              \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }                                                                                              \
                                                                                                   \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return tests_main(argc, argv, prog, run_all);                                              \
    }

#endif
