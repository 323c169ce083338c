/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: what happens to a node of two reactors and three NIs, step by step: headers of any kind
 * from peers on each NI, payload that comes at once, later or never, messages whose sending takes
 * its time or fails, connections that close, and time. The node and its peers are those of the unit
 * tests of the core (test/unit/lnet_test.h), and the node lives on across inputs. After each input
 * no message, buffer, credit or reference is in use, and every forwarded payload was unaltered.
 */
#define REAL_CLOCK(id) false /* of a thread's CPU time: a system call each time */
#include "test/unit/lnet_test.h"

#include "test/fuzz/fuzz_calls.h"
#include "test/fuzz/fuzz_input.h"

#define RXS_MAX 64 /* messages of an input */

enum step {
    ARRIVE,
    ARRIVE_WILD, /* with any field of the header changed */
    RECV_LATER,  /* from here on payload comes when a step says so; or at once again */
    SEND_LATER,
    SEND_ACCEPT, /* … and what is sent meanwhile is accepted, not complete */
    RECV_END,    /* the payload of one message comes, or its connection breaks */
    SEND_END,    /* … and half of the failures are before a byte has left */
    CANCEL,      /* the connection of one message closes */
    TIME,
    STEPS
};

static const struct lnet_result ends[] = {
    {LNET_DROP_NONE, LNET_HEALTH_OK},
    {LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR},
    {LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR},
};
static const char *const nid[] = {"10.0.0.7@tcp",   "10.0.0.8@tcp",   "10.1.0.7@tcp1",
                                  "10.1.0.8@tcp1",  "10.2.0.7@o2ib",  "10.2.0.8@o2ib",
                                  "10.0.0.1@tcp",   "10.1.0.1@tcp1",  "10.9.0.1@tcp9",
                                  "10.5.0.1@o2ib5", "10.1.0.77@tcp1", "fd00::7@tcp1"};
#define PEERS 6

static struct peer_msg *rx_at(unsigned k)
{
    struct peer_msg *fx = loop.rxs;

    while (fx && k-- > 0)
        fx = fx->next;
    return fx;
}

/* Numbers near those where something changes. */
static uint32_t length(struct input *in)
{
    static const uint32_t near[] = {0, 1, 4095, 4096, 4097, 48, 72, 16384};
    uint32_t v = take_bytes(in, 1);

    return v < 8 ? near[v] : v * 40;
}

static void wild(struct lnet_hdr *h, struct input *in)
{
    unsigned what = take_bytes(in, 1);

    if ((what & 1) != 0)
        h->type = take_bytes(in, 1);
    if ((what & 2) != 0 && ((h->payload_len = take_bytes(in, 4)) > 16384))
        h->payload_len |= LNET_MAX_PAYLOAD + 1; /* too long, as no megabytes need be copied */
    if ((what & 4) != 0)
        h->src_nid = N(nid[take_bytes(in, 1) % 12]);
    if ((what & 8) != 0)
        h->dest_pid = take_bytes(in, 2);
    for (unsigned i = 0; i < sizeof(h->body) && (what & 16) != 0; i++)
        h->body[i] = (uint8_t)take_bytes(in, 1);
}

static void arrive_step(struct input *in, bool any, unsigned *rxs)
{
    unsigned who = take_bytes(in, 1) % PEERS, to = take_bytes(in, 1), type = take_bytes(in, 1);
    struct lnet_nid from = N(nid[who]), dest = N(nid[to % 12]);
    struct lnet_ni *ni = who < 2 ? tcp0 : who < 4 ? tcp1 : ib0;
    struct lnet_hdr h;

    if ((*rxs)++ >= RXS_MAX)
        return;
    switch (type % 6) {
    case 0:
        h = hdr_ping(from, dest);
        break;
    case 1:
        h = hdr_put(from, dest, type >> 4, 7, 0, length(in), (type & 8) != 0);
        break;
    case 2:
        h = hdr_get(from, dest, type >> 4, 7, 0, length(in));
        break;
    default:
        h = hdr_of(type % 6 - 3 + LNET_MSG_ACK, from, dest, length(in));
    }
    if (any)
        wild(&h, in);
    arrive(ni, from, h);
    settle();
}

static void one_step(struct input *in, unsigned *rxs)
{
    enum step what = (enum step)(take_bytes(in, 1) % STEPS);
    struct peer_msg *fx;
    unsigned k;

    if (what == ARRIVE || what == ARRIVE_WILD) {
        arrive_step(in, what == ARRIVE_WILD, rxs);
        return;
    }
    k = take_bytes(in, 1);
    if (what == RECV_LATER) {
        loop.hold_recv = k % 2;
    } else if (what == SEND_LATER || what == SEND_ACCEPT) {
        loop.hold_send = k % 2;
        loop.accept_only = what == SEND_ACCEPT;
    } else if (what == TIME) {
        pass((k % 64 + 1) * 100000);
    } else if (what == SEND_END) {
        struct lnet_result end = ends[k % 3];

        if (k >= 128 && end.reason != LNET_DROP_NONE) {
            end.unsent = true;
            end.health = k % 3 == 1 ? LNET_HEALTH_REMOTE_DROPPED : LNET_HEALTH_LOCAL_DROPPED;
        }
        if (loop.nheld > 0)
            send_end(loop.held[k / 3 % loop.nheld], end);
    } else if ((fx = rx_at(k / 4)) && rx_open(fx)) {
        if (what == RECV_END && fx->recvs > 0)
            recv_end(fx, ends[k % 3]);
        else if (what == CANCEL && fx->recvs == 0)
            rx_cancel(fx);
    }
    settle();
}

static bool busy(void)
{
    bool open = false;

    loop.hold_recv = loop.hold_send = loop.accept_only = false;
    send_end_all(ends[0]);
    for (struct peer_msg *fx = loop.rxs; fx; fx = fx->next) {
        if (rx_open(fx) && fx->recvs > 0)
            recv_end(fx, ends[0]);
        open |= rx_open(fx);
    }
    settle();
    return open || stat_of(LNET_STAT_MSGS_ALLOC) > 0 || loop.nheld > 0;
}

/* What is forwarded is what came, byte by byte. */
static void check_payloads(void)
{
    for (unsigned i = 0; i < loop.nsent; i++) {
        const struct sent *s = &loop.sent[i];
        const struct peer_msg *fx = loop.rxs;

        if (lnet_nid_is_mine(node, &s->hdr.src_nid))
            continue;
        while (fx && (memcmp(&fx->in.rx.hdr, &s->hdr, sizeof(s->hdr)) != 0 ||
                      memcmp(fx->in.payload, s->payload, s->len) != 0))
            fx = fx->next;
        HOLDS(fx);
    }
}

/* One pair of nodes may not talk, and another node is slowed down. */
static void set_rules(void)
{
    struct nid_range of[3] = {0};
    struct lnet_access_rule rules[2] = {
        {.name = "deny", .kind = LNET_ACCESS_FORWARD, .from = {1, &of[0]}, .to = {1, &of[1]}},
        {.name = "limit",
         .kind = LNET_ACCESS_LIMIT,
         .from = {1, &of[2]},
         .rate = {2, 10000, 1},
         .burst_ms = 1000}};
    struct err err = {0};

    for (unsigned i = 0; i < 3; i++) {
        of[i].prefix = N(nid[i == 1 ? 3 : i]);
        of[i].net = nid_net(&of[i].prefix);
        of[i].kind = NID_RANGE_PREFIX;
        of[i].n = 32;
    }
    HOLDS(lnet_access_set(node, rules, 2, &err) == 0);
}

static void begin(void)
{
    struct reactor_opts opts = {
        .prog = "fuzz", .cores = "auto", .idle = REACTOR_IDLE_SPIN, .mem_mb = EAL_MB, .count = 2};
    struct err err = {0};

    if (node)
        return;
    nreactors = 2;
    HOLDS(reactor_env_create(&opts, &env, &err) == 0);
    loop_ctx = lnd_create_default(&loop_code);
    node_up(opts_default());
    HOLDS(route_add("o2ib5", N("10.1.0.77@tcp1"), 1, 0) == 0);
    HOLDS(route_add("o2ib5", N("10.0.0.8@tcp"), 1, 0) == 0); /* for what is sent again */
    set_rules();
    settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    unsigned rxs = 0;

    begin();
    loop.send_result = loop.recv_result = ends[0];
    while (in.left > 0)
        one_step(&in, &rxs);
    for (unsigned s = 0; s < 200 && (busy() || s < 1); s++)
        pass(SEC);
    HOLDS(!busy());
    check_quiet();
    check_payloads();
    rx_free_all();
    sent_clear();
    return 0;
}
