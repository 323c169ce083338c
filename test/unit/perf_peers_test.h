/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of a transport, and a router behind it that the test plays: what simulated peers are
 * tested with. Two peers: one that the load sends from, one that serves.
 */
#ifndef MILLRACE_PERF_TEST_PEERS_H
#define MILLRACE_PERF_TEST_PEERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lib/base/err.h"
#include "test/perf/peers/peers.h"

#include <errno.h>
#include <stdlib.h>

#define WIRES 4096
#define IN    (LNET_MAX_PAYLOAD + 4096)
#define ROOM  1400 /* bytes of a segment that is taken */
#define RUN   77u

/* ---- the transport ---- */

struct wire {
    struct stream base;
    const struct stream_events *ev;
    void *user;
    struct sockaddr_in local, remote;
    uint8_t *in, *out; /* what the router said, what it is told */
    size_t in_at, in_len, out_len, acked, room;
    uint8_t head[STREAM_PEEK_MAX];
    bool open, paused, told;
};

static struct wire wires[WIRES];
static unsigned nwires;
static const struct stream_ops ops;

static struct wire *wire(struct stream *s)
{
    return (struct wire *)(void *)s;
}

static int wire_connect(void *ctx, const union stream_addr *local, const char *ifname,
                        const union stream_addr *remote, int tos, const struct stream_events *ev,
                        void *user, struct stream **out)
{
    struct wire *w = &wires[nwires % WIRES];

    for (unsigned i = 0; i < WIRES; i++) {
        if (wires[i].open && wires[i].local.sin_port == local->in.sin_port &&
            wires[i].local.sin_addr.s_addr == local->in.sin_addr.s_addr)
            return -EADDRINUSE;
    }
    nwires++;
    assert_false(w->open);
    *w = (struct wire){.base = {&ops},
                       .ev = ev,
                       .user = user,
                       .local = local->in,
                       .remote = remote->in,
                       .in = malloc(IN),
                       .out = malloc(4 * (size_t)IN),
                       .room = SIZE_MAX,
                       .open = true};
    *out = &w->base;
    return 0;
}

static void wire_established(struct stream *s, int tos)
{
}

static size_t wire_peek(struct stream *s, size_t want, const uint8_t **p)
{
    struct wire *w = wire(s);

    assert_true(w->open && want <= STREAM_PEEK_MAX);
    *p = w->in + w->in_at;
    return w->in_len - w->in_at < want ? w->in_len - w->in_at : want;
}

static void wire_skip(struct stream *s, size_t n)
{
    struct wire *w = wire(s);

    assert_true(w->open && n <= w->in_len - w->in_at);
    w->in_at += n;
}

static size_t wire_take(struct stream *s, size_t max, struct mem_seg *segs, unsigned maxsegs,
                        unsigned *nsegs, size_t *truesize)
{
    struct wire *w = wire(s);
    size_t done = 0;

    *nsegs = 0;
    *truesize = 0;
    while (done < max && w->in_at < w->in_len && *nsegs < maxsegs) {
        size_t n = max - done < ROOM ? max - done : ROOM;

        n = n < w->in_len - w->in_at ? n : w->in_len - w->in_at;
        segs[(*nsegs)++] = (struct mem_seg){w->in + w->in_at, (uint32_t)n, MEM_REGION_NONE, 0};
        w->in_at += n;
        done += n;
    }
    return done;
}

static void wire_give_back(struct mem_seg *segs, unsigned nsegs)
{
}

static void wire_window(struct stream *s, size_t bytes, size_t memory)
{
    assert_true(memory >= bytes / 4 * 5);
}

static void wire_pause(struct stream *s, bool pause)
{
    wire(s)->paused = pause;
}

static ssize_t wire_send(struct stream *s, const struct mem_seg *segs, unsigned nsegs, bool more)
{
    struct wire *w = wire(s);
    size_t done = 0;

    assert_true(w->open);
    for (unsigned i = 0; i < nsegs && w->room > 0; i++) {
        size_t n = segs[i].len < w->room ? segs[i].len : w->room;

        assert_true(w->out_len + n <= 4 * (size_t)IN);
        memcpy(w->out + w->out_len, segs[i].addr, n);
        w->out_len += n;
        w->room -= w->room == SIZE_MAX ? 0 : n;
        done += n;
    }
    return (ssize_t)done;
}

static void wire_stats(struct stream *s, struct stream_stats *out)
{
    *out = (struct stream_stats){.bytes_out = wire(s)->out_len,
                                 .unacked = wire(s)->out_len - wire(s)->acked};
}

static void wire_close(struct stream *s, bool abort)
{
    struct wire *w = wire(s);

    assert_true(w->open);
    free(w->in);
    free(w->out);
    w->in = w->out = NULL;
    w->open = false;
}

static const struct stream_ops ops = {
    .name = "model",
    .caps = STREAM_CAP_TAKE | STREAM_CAP_BY_REFERENCE,
    .connect = wire_connect,
    .established = wire_established,
    .peek = wire_peek,
    .skip = wire_skip,
    .take = wire_take,
    .give_back = wire_give_back,
    .rx_window = wire_window,
    .rx_pause = wire_pause,
    .send = wire_send,
    .stats = wire_stats,
    .close = wire_close,
};

/* ---- what the engine calls ---- */

static struct {
    unsigned done, room, collected;
    uint64_t cookie;
    struct perf_end end;
    bool have;
    struct run_report report;
} told;

uint64_t perf_now_ns(void)
{
    return reactor_now_us() * 1000;
}

void perf_done(struct perf_engine *e, uint64_t cookie, const struct perf_end *end)
{
    told.done++;
    told.cookie = cookie;
    told.end = *end;
}

void perf_room(struct perf_engine *e, uint32_t from)
{
    told.room++;
}

void perf_collected(struct perf_engine *e, bool have, const struct run_report *sum)
{
    told.collected++;
    told.have = have;
    if (have)
        told.report = *sum;
}

void perf_engine_ready(struct perf_engine *e, int error, const char *why, unsigned unanswered)
{
}

void perf_engine_serving(struct perf_engine *e, const char *who)
{
}

int peers_ports_open(struct peers *e, struct err *err)
{
    return -ENOSYS;
}

int peers_ports_start(struct peers *e, struct err *err)
{
    return -ENOSYS;
}

void peers_ports_stop(struct peers *e)
{
}

void peers_ports_close(struct peers *e)
{
}

void peers_ports_drops(const struct peers *e, perf_row_fn row, void *arg)
{
}

/* ---- two peers ---- */

static struct reactor_env *env;
static struct perf perf;
static struct peers *e;
static struct peer *source, *target;
static uint64_t clock_us = 1000000000;
static uint8_t *pattern;

static struct lnet_nid nid(const char *text)
{
    struct lnet_nid n;

    assert_int_equal(nid_parse(text, &n), 0);
    return n;
}

static void pass_ms(unsigned ms)
{
    for (unsigned step; ms > 0; ms -= step) {
        step = ms > 1000 ? 100 : 1;
        clock_us += step * 1000;
        reactor_test_clock(clock_us);
        (void)reactor_step(reactor_at(env, 0), 0);
    }
}

static void side(unsigned i, const char *first, const char *gateway, bool serves)
{
    e->side[i].range = (struct perf_range){nid(first), 1};
    e->side[i].gateway = nid(gateway);
    e->side[i].serves = serves;
    e->sides++;
    e->all++;
}

static int begin(void **state)
{
    e = calloc(1, sizeof(*e));
    e->base.perf = &perf;
    e->base.sources = e->base.targets = 1;
    e->pattern = pattern;
    e->transport.ops = &ops;
    perf.opts.ntargets = 1;
    perf.opts.targets[0] = (struct perf_range){nid("10.1.0.1@tcp1"), 1};
    side(0, "10.0.0.1@tcp", "10.0.0.254@tcp", false);
    side(1, "10.1.0.1@tcp1", "10.1.0.254@tcp1", true);
    assert_int_equal(peers_make(e), 0);
    source = e->side[0].peer;
    target = e->side[1].peer;
    reactor_test_clock(clock_us);
    reactor_bind(reactor_at(env, 0));
    memset(&told, 0, sizeof(told));
    peer_begin(source);
    peer_begin(target);
    pass_ms(2);
    return 0;
}

static unsigned free_answers(void)
{
    const struct peers_tx *tx;
    unsigned n = 0;

    TAILQ_FOREACH(tx, &e->free_answers, link)
        n++;
    return n;
}

static unsigned free_ops(void)
{
    const struct peers_op *op;
    unsigned n = 0;

    TAILQ_FOREACH(op, &e->free_ops, link)
        n++;
    return n;
}

/* Nothing is lost or left open. */
static int end(void **state)
{
    e->stopping = true;
    peer_stop(source);
    peer_stop(target);
    peers_fail_ops(source, -ECOMM);
    peers_fail_ops(target, -ECOMM);
    for (unsigned i = 0; i < WIRES; i++)
        assert_false(wires[i].open);
    assert_int_equal(free_answers(), 2 * (PEER_ANSWERS + PEER_OWN));
    assert_int_equal(free_ops(), PEERS_OPS);
    assert_int_equal(source->answers + target->answers, 0);
    assert_int_equal(e->connections, 0);
    assert_int_equal(e->ready + e->dialling, 0);
    peers_unmake(e);
    free(e);
    return 0;
}

/* ---- the router's part ---- */

static struct wire *wire_of(const struct peer *p, unsigned i)
{
    assert_non_null(p->conn[i].stream);
    return wire(p->conn[i].stream);
}

/* It says these bytes; the peer hears of them. */
static void say(struct peer *p, unsigned i, const void *data, size_t len)
{
    struct wire *w = wire_of(p, i);

    if (w->in_at == w->in_len)
        w->in_at = w->in_len = 0;
    assert_true(w->in_len + len <= IN);
    memcpy(w->in + w->in_len, data, len);
    w->in_len += len;
    if (!w->paused)
        w->ev->readable(w->user);
}

static struct sock_hello hello_for(const struct peer *p, enum sock_ctype type)
{
    return (struct sock_hello){
        .version = SOCK_HELLO_V3,
        .src_nid = e->side[p->side].gateway,
        .dst_nid = p->nid,
        .src_pid = LNET_PID_LUSTRE,
        .src_incarnation = 4711,
        .ctype = type,
    };
}

static void say_hello(struct peer *p, unsigned i, const struct sock_hello *h)
{
    uint8_t buf[SOCK_HELLO_MAX];

    say(p, i, buf, sock_hello_encode(h, buf));
}

/* Its request and HELLO are as they must be. */
static void expect_call(struct peer *p, unsigned i, enum sock_ctype type, unsigned port)
{
    struct wire *w = wire_of(p, i);
    struct sock_hello h;
    struct sock_req req;

    assert_int_equal(ntohs(w->local.sin_port), port);
    assert_int_equal(ntohs(w->remote.sin_port), 988);
    assert_int_equal(w->local.sin_addr.s_addr, p->nid.addr_be[0]);
    w->ev->connected(w->user);
    assert_int_equal(w->out_len, SOCK_REQ4_SIZE + SOCK_HELLO4_SIZE);
    assert_int_equal(sock_req_decode(w->out, SOCK_REQ4_SIZE, &req), LNET_DROP_NONE);
    assert_true(nid_same(&req.target, &e->side[p->side].gateway));
    assert_int_equal(
        sock_hello_decode(w->out + SOCK_REQ4_SIZE, SOCK_HELLO4_SIZE, SOCK_HELLO_V3, &h),
        LNET_DROP_NONE);
    assert_true(nid_same(&h.src_nid, &p->nid));
    assert_int_equal(h.ctype, type);
    w->acked = w->out_len;
}

/* What the peer has said since the last time: one message at most. */
static bool hear(struct peer *p, unsigned i, struct lnet_hdr *h, const uint8_t **payload)
{
    struct wire *w = wire_of(p, i);
    const uint8_t *at = w->out + w->acked;

    if (w->acked == w->out_len)
        return false;
    assert_true(w->out_len - w->acked >= PEERS_HEAD);
    assert_int_equal(at[0], SOCK_FRAME_LNET);
    assert_int_equal(lnet_hdr_decode4(at + SOCK_FRAME_SIZE, h), LNET_DROP_NONE);
    assert_true(w->out_len - w->acked >= PEERS_HEAD + h->payload_len);
    assert_true(nid_same(&h->src_nid, &p->nid));
    *payload = at + PEERS_HEAD;
    w->acked += PEERS_HEAD + h->payload_len;
    w->ev->acked(w->user);
    return true;
}

static void say_message(struct peer *p, unsigned i, const struct lnet_hdr *h, const void *payload)
{
    struct sock_frame frame = {.type = SOCK_FRAME_LNET};
    uint8_t buf[PEERS_HEAD];

    sock_frame_encode(&frame, buf);
    assert_int_equal(lnet_hdr_encode4(h, buf + SOCK_FRAME_SIZE), LNET_DROP_NONE);
    say(p, i, buf, sizeof(buf));
    if (h->payload_len > 0 && p->conn[i].stream)
        say(p, i, payload, h->payload_len);
}

static struct lnet_hdr header_to(const struct peer *p, enum lnet_msg_type type)
{
    return (struct lnet_hdr){.dest_nid = p->nid,
                             .src_nid = p == source ? nid("10.1.0.1@tcp1") : nid("10.0.0.1@tcp"),
                             .dest_pid = LNET_PID_LUSTRE,
                             .src_pid = LNET_PID_LUSTRE,
                             .type = type};
}

static void answer_ping(struct peer *p, bool right)
{
    struct lnet_ping_info info = {.features = LNET_PING_BASE | LNET_PING_NI_STATUS,
                                  .count = 1,
                                  .ni = {{e->side[p->side].gateway, LNET_NI_UP}}};
    struct lnet_hdr h, out = header_to(p, LNET_MSG_REPLY);
    uint8_t buf[128];
    const uint8_t *payload;
    struct lnet_get get;

    do { /* behind what waited for the connections */
        assert_true(hear(p, 0, &h, &payload));
        lnet_body_get_get(&h, &get);
    } while (h.type != LNET_MSG_GET || get.portal != LNET_RESERVED_PORTAL);
    assert_true(get.match_bits == LNET_PING_MATCH_BITS);
    out.payload_len = (uint32_t)lnet_ping_encode(&info, buf, sizeof(buf));
    buf[0] ^= !right;
    lnet_body_set_reply(&out, &(struct lnet_reply){get.ret});
    say_message(p, 0, &out, buf);
}

static void connect_all(struct peer *p)
{
    static const enum sock_ctype types[] = {SOCK_CTYPE_CONTROL, SOCK_CTYPE_BULK_IN,
                                            SOCK_CTYPE_BULK_OUT};

    for (unsigned i = 0; i < PEER_CONNS; i++) {
        struct sock_hello h = hello_for(p, sock_ctype_invert(types[i]));

        expect_call(p, i, types[i], 1023 - i);
        say_hello(p, i, &h);
        assert_true(p->conn[i].up);
        pass_ms(2);
    }
    assert_int_equal(p->state, PEER_PINGS);
}

static void come_up(struct peer *p)
{
    connect_all(p);
    answer_ping(p, true);
    assert_int_equal(p->state, PEER_READY);
}

#endif
