/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection at a port: what happens to frames, how often, and when. The clock stands until
 * moved. */
#include "tamper_test.h"

#include <errno.h>
#include <math.h>

#include "lib/base/err.h"

#define PERCENT (TAMPER_ALL / 100)
#define START   UINT64_C(1000000000)

static uint64_t now;

static void clock_to(uint64_t us)
{
    now = us;
    reactor_test_clock(now);
}

static int begin(void **state)
{
    clock_to(START);
    port_begin();
    return 0;
}

static int finish(void **state)
{
    port_finish();
    return 0;
}

/* Brings n frames numbered by seq, lets them pass on a queue, and says which came. */
static unsigned pass(unsigned queue, unsigned n, uint8_t *came)
{
    unsigned all = 0, at;

    memset(came, 0, n);
    for (unsigned i = 0; i < n;) {
        for (; i < n && wire.nin < PORT_BURST; i++)
            bring(frame_of((struct frame){.seq = i, .host = 1}));
        at = wire.nout;
        all += receive(queue);
        for (; at < wire.nout; at++)
            came[seq_of(wire.out[at])]++;
        rte_pktmbuf_free_bulk(wire.out, wire.nout);
        wire.nout = 0;
    }
    return all;
}

/* Whether a count lies within four deviations of that of n independent trials. */
static bool as_likely(double count, double n, double p)
{
    return fabs(count - n * p) <= 4 * sqrt(n * p * (1 - p));
}

/* ---- loss ---- */

static void test_off(void **state)
{
    uint8_t came[500];

    assert_int_equal(port_tamper_wait(&port, 0, 0), UINT64_MAX);
    assert_int_equal(pass(0, 500, came), 500);
    add_rule(false, (struct tamper_conf){.loss = TAMPER_ALL});
    assert_int_equal(pass(0, 500, came), 0);
    assert_int_equal(counts_of(0).lost, 500);
    assert_int_equal(port_tamper_clear(&port, false), 1);
    assert_int_equal(port_tamper_clear(&port, false), 0);
    assert_int_equal(port_tamper_lost(&port), 500);
    assert_int_equal(pass(0, 500, came), 500);
    assert_int_equal(port_tamper_wait(&port, 0, 0), UINT64_MAX);
}

static void test_loss(void **state)
{
    enum {
        N = 100000
    };
    static uint8_t first[N], again[N], other[N];
    unsigned came;

    add_rule(false, (struct tamper_conf){.loss = PERCENT, .seed = 7});
    came = pass(0, N, first);
    assert_true(as_likely(N - came, N, 0.01));
    assert_int_equal(counts_of(0).matched, N);
    assert_int_equal(counts_of(0).lost, N - came);

    /* The same seed: the same frames. Another queue or seed: others. */
    port_tamper_clear(&port, false);
    add_rule(false, (struct tamper_conf){.loss = PERCENT, .seed = 7});
    assert_int_equal(pass(0, N, again), came);
    assert_memory_equal(first, again, N);
    pass(1, N, other);
    assert_memory_not_equal(first, other, N);
    port_tamper_clear(&port, false);
    add_rule(false, (struct tamper_conf){.loss = PERCENT, .seed = 8});
    assert_true(as_likely(N - pass(0, N, other), N, 0.01));
    assert_memory_not_equal(first, other, N);
}

/* Gilbert's model: a burst begins with p, ends with r; the share of p / (p + r) is lost in runs of
 * 1 / r on the average. */
static void test_bursts(void **state)
{
    enum {
        N = 200000
    };
    static uint8_t came[N];
    unsigned lost = 0, runs = 0;
    double mean;

    add_rule(false, (struct tamper_conf){.burst_enter = PERCENT / 2, .burst_leave = 20 * PERCENT});
    pass(0, N, came);
    for (unsigned i = 0; i < N; i++) {
        lost += !came[i];
        runs += !came[i] && (i == 0 || came[i - 1]);
    }
    mean = (double)lost / runs;
    assert_int_equal(counts_of(0).burst_lost, lost);
    assert_int_equal(counts_of(0).lost, lost);
    assert_true(fabs((double)lost / N - 0.005 / 0.205) < 0.003);
    /* Lengths of runs are geometric: mean 5, variance 20. */
    assert_true(fabs(mean - 5) < 4 * sqrt(20.0 / runs));
}

/* ---- time ---- */

static void test_delay(void **state)
{
    add_rule(false, (struct tamper_conf){.delay_us = 20000});
    bring(frame_of((struct frame){.seq = 1}));
    assert_int_equal(receive(0), 0);
    assert_int_equal(port_tamper_wait(&port, 0, 0), 20000);
    assert_int_equal(port_tamper_wait(&port, 1, 0), UINT64_MAX);
    assert_int_equal(port_tamper_wait(&port, -1, 0), UINT64_MAX);
    clock_to(START + 5000);
    bring(frame_of((struct frame){.seq = 2}));
    assert_int_equal(receive(0), 0);
    assert_int_equal(port_tamper_wait(&port, 0, 0), 15000);
    clock_to(START + 19999);
    assert_int_equal(receive(0), 0);
    clock_to(START + 20000);
    assert_int_equal(port_tamper_wait(&port, 0, 0), 0);
    assert_int_equal(receive(0), 1);
    assert_int_equal(seq_of(wire.out[0]), 1);
    assert_int_equal(port_tamper_wait(&port, 0, 0), 5000);

    /* What waits goes on waiting without the rule, and what comes now overtakes it. */
    port_tamper_clear(&port, false);
    bring(frame_of((struct frame){.seq = 3}));
    assert_int_equal(receive(0), 1);
    assert_int_equal(seq_of(wire.out[1]), 3);
    clock_to(START + 25000);
    assert_int_equal(receive(0), 1);
    assert_int_equal(seq_of(wire.out[2]), 2);
}

static void test_jitter(void **state)
{
    enum {
        N = 2000
    };
    static uint64_t due[N];
    unsigned at = 0;
    uint64_t least = UINT64_MAX, most = 0;

    add_rule(true, (struct tamper_conf){.delay_us = 10000, .jitter_us = 4000});
    for (unsigned i = 0; i < N; i++) { /* so far apart that keeping the order moves none */
        clock_to(START + i * 20000);
        assert_int_equal(transmit(1, frame_of((struct frame){.seq = i})), 1);
        due[i] = port_tamper_wait(&port, -1, 1);
        least = due[i] < least ? due[i] : least;
        most = due[i] > most ? due[i] : most;
        clock_to(now + due[i]);
        transmit(1, NULL);
        assert_int_equal(wire.nout, ++at);
    }
    assert_true(least >= 6000 && least < 6100 && most <= 14000 && most > 13900);

    /* Close together: the order stays, nothing is lost. */
    clock_to(now + 100000);
    for (unsigned i = 0; i < 500; i++) {
        clock_to(now + 10);
        assert_int_equal(transmit(1, frame_of((struct frame){.seq = N + i})), 1);
    }
    clock_to(now + 14000);
    transmit(1, NULL);
    assert_int_equal(wire.nout, N + 500);
    for (unsigned i = 0; i < N + 500; i++)
        assert_int_equal(seq_of(wire.out[i]), i);
}

static void test_reorder(void **state)
{
    enum {
        N = 3000
    };
    static uint8_t seen[N];
    unsigned late = 0;
    uint32_t top = 0;

    add_rule(false, (struct tamper_conf){.reorder = 5 * PERCENT, .reorder_us = 2000});
    for (unsigned i = 0; i < N; i++) {
        clock_to(START + i * 100);
        bring(frame_of((struct frame){.seq = i}));
        receive(0);
    }
    clock_to(now + 2000);
    receive(0);
    assert_int_equal(wire.nout, N);
    for (unsigned i = 0; i < N; i++) {
        uint32_t seq = seq_of(wire.out[i]);

        assert_int_equal(seen[seq]++, 0);
        if (seq < top) /* exactly those of the 20 slots before that were not late themselves */
            late++;
        else
            top = seq;
    }
    assert_true(as_likely((double)counts_of(0).reordered, N, 0.05));
    /* The last ones had nobody left to overtake them. */
    assert_true(late <= counts_of(0).reordered && late + 5 >= counts_of(0).reordered);
}

static void test_rate(void **state)
{
    const unsigned bytes = ETH + 20 + 32 + 1000;

    /* 1 Mbit/s: 1066 bytes take 8528 µs. */
    add_rule(true,
             (struct tamper_conf){.rate = 1000000, .queue_packets = 10, .queue_bytes = 8 * bytes});
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(transmit(0, frame_of((struct frame){.payload = 1000, .seq = i})), 1);
    assert_int_equal(wire.nout, 0);
    assert_int_equal(counts_of(0).queue_dropped, 22);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(port_tamper_wait(&port, -1, 0), START + (i + 1) * 8528 - now);
        clock_to(START + (i + 1) * 8528);
        transmit(0, NULL);
        assert_int_equal(wire.nout, i + 1);
        assert_int_equal(seq_of(wire.out[i]), i);
    }
    assert_int_equal(port_tamper_wait(&port, -1, 0), UINT64_MAX);

    /* By packets. One that is larger than the queue passes when nobody is before it. */
    port_tamper_clear(&port, true);
    add_rule(true, (struct tamper_conf){.rate = 1000000, .queue_packets = 3, .queue_bytes = 100});
    assert_int_equal(transmit(0, frame_of((struct frame){.payload = 1000})), 1);
    assert_int_equal(transmit(0, frame_of((struct frame){.payload = 1000})), 1);
    assert_int_equal(counts_of(0).queue_dropped, 1);
    port_tamper_clear(&port, true);
    add_rule(true, (struct tamper_conf){.rate = 1000000, .queue_packets = 3});
    for (unsigned i = 0; i < 5; i++)
        transmit(0, frame_of((struct frame){.payload = 1000}));
    assert_int_equal(counts_of(0).queue_dropped, 2);
    assert_int_equal(counts_of(0).matched, 5);
}

/* ---- copies ---- */

static void test_duplicate(void **state)
{
    enum {
        N = 20000
    };
    static uint8_t came[N];
    static uint8_t a[2000], b[2000];
    unsigned doubled = 0;

    add_rule(false, (struct tamper_conf){.duplicate = 2 * PERCENT});
    pass(0, N, came);
    for (unsigned i = 0; i < N; i++) {
        assert_true(came[i] == 1 || came[i] == 2);
        doubled += came[i] == 2;
    }
    assert_int_equal(counts_of(0).duplicated, doubled);
    assert_true(as_likely(doubled, N, 0.02));

    port_tamper_clear(&port, false);
    add_rule(false, (struct tamper_conf){.duplicate = TAMPER_ALL});
    bring(frame_of((struct frame){.payload = 1400, .seq = 3}));
    wire.in[0]->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_VLAN_STRIPPED;
    wire.in[0]->vlan_tci = 17;
    assert_int_equal(receive(0), 2);
    assert_int_equal(flat(wire.out[0], a, sizeof(a)), flat(wire.out[1], b, sizeof(b)));
    assert_memory_equal(a, b, wire.out[0]->pkt_len);
    assert_ptr_not_equal(rte_pktmbuf_mtod(wire.out[0], void *),
                         rte_pktmbuf_mtod(wire.out[1], void *));
    assert_int_equal(wire.out[0]->ol_flags, wire.out[1]->ol_flags);
    assert_int_equal(wire.out[0]->vlan_tci, 17);
    assert_int_equal(wire.out[1]->vlan_tci, 17);
}

/* One bit of the IP packet is another; with it turned back the checksums are right. */
static void check_one_bit(const struct rte_mbuf *m, struct frame f)
{
    static uint8_t is[2000], was[2000];
    unsigned n = flat(m, is, sizeof(is)), i, bits = 0;

    assert_int_equal(frame_bytes(&f, was), n);
    assert_memory_equal(is, was, ETH);
    assert_true(sums_right(was, n));
    for (i = ETH; i < n; i++)
        bits += (unsigned)__builtin_popcount(is[i] ^ was[i]);
    assert_int_equal(bits, 1);
}

static void test_corrupt(void **state)
{
    static const uint64_t rx[] = {0, RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD,
                                  RTE_MBUF_F_RX_L4_CKSUM_NONE | RTE_MBUF_F_RX_IP_CKSUM_NONE};

    add_rule(false, (struct tamper_conf){.corrupt = TAMPER_ALL});
    add_rule(true, (struct tamper_conf){.corrupt = TAMPER_ALL});
    for (unsigned i = 0; i < 300; i++) {
        struct frame f = {.family = i % 2 ? 6 : 4,
                          .proto = 6,
                          .payload = i,
                          .seq = i,
                          .sport = 1023,
                          .dport = 988};
        struct rte_mbuf *m = frame_of(f);
        unsigned ip = f.family == 6 ? 40 : 20;

        m->ol_flags = rx[i % 3];
        if (i % 3) /* nobody has computed it, or it is one of before */
            memset(rte_pktmbuf_mtod_offset(m, void *, ETH + ip + 16), 0x55, 2);
        bring(m);
        assert_int_equal(receive(0), 1);
        check_one_bit(wire.out[wire.nout - 1], f);
        assert_int_equal(wire.out[wire.nout - 1]->ol_flags &
                             (RTE_MBUF_F_RX_L4_CKSUM_MASK | RTE_MBUF_F_RX_IP_CKSUM_MASK),
                         0);

        m = frame_of(f);
        m->l2_len = ETH;
        m->l3_len = ip;
        m->ol_flags =
            RTE_MBUF_F_TX_TCP_CKSUM |
            (f.family == 4 ? RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM : RTE_MBUF_F_TX_IPV6);
        memset(rte_pktmbuf_mtod_offset(m, void *, ETH + ip + 16), 0x77, 2);
        if (f.family == 4)
            memset(rte_pktmbuf_mtod_offset(m, void *, ETH + 10), 0x77, 2);
        assert_int_equal(transmit(0, m), 1);
        check_one_bit(wire.out[wire.nout - 1], f);
        assert_int_equal(wire.out[wire.nout - 1]->ol_flags &
                             (RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_IP_CKSUM),
                         0);
    }
    assert_int_equal(counts_of(0).corrupted, 300);
    assert_int_equal(counts_of(1).corrupted, 300);

    /* What is no IP stays as it is. */
    uint8_t arp[60] = {0xff, [12] = 0x08, [13] = 0x06};
    bring(mbuf_of(arp, sizeof(arp), 0));
    assert_int_equal(receive(0), 1);
    assert_memory_equal(rte_pktmbuf_mtod(wire.out[wire.nout - 1], void *), arp, sizeof(arp));
    for (unsigned k = 0; k < 2; k++)
        assert_int_equal(counts_of(k).skipped, 0);
}

/* ---- which frames ---- */

static void matched(struct tamper_conf conf, const bool *want)
{
    static const uint8_t arp[60] = {0xff, [12] = 0x08, [13] = 0x06};
    static const struct frame frames[] = {
        {.host = 2},
        {.host = 2, .payload = 10},
        {.host = 3, .payload = 10, .sport = 7000, .dport = 80},
        {.host = 2, .family = 6, .payload = 1300},
        {.host = 2, .proto = 17, .payload = 10},
    };

    conf.loss = TAMPER_ALL;
    port_tamper_clear(&port, false);
    add_rule(false, conf);
    for (unsigned i = 0; i <= RTE_DIM(frames); i++) {
        bring(i == RTE_DIM(frames) ? mbuf_of(arp, sizeof(arp), 0) : frame_of(frames[i]));
        if (receive(0) != !want[i])
            fail_msg("frame %u", i);
    }
}

static void test_filters(void **state)
{
    struct tamper_conf peer = {.has_peer = true,
                               .peer = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}};
    struct tamper_conf peer6 = {.has_peer = true, .peer = {0xfd, [15] = 2}};
    uint8_t came[20000];

    /*                                                     TCP payload port v6 UDP ARP */
    matched((struct tamper_conf){.ip = false}, (const bool[]){1, 1, 1, 1, 1, 1});
    matched((struct tamper_conf){.ip = true}, (const bool[]){1, 1, 1, 1, 1, 0});
    matched((struct tamper_conf){.payload = true}, (const bool[]){0, 1, 1, 1, 0, 0});
    matched((struct tamper_conf){.tcp_port = 988}, (const bool[]){1, 1, 0, 1, 0, 0});
    matched((struct tamper_conf){.tcp_port = 7000}, (const bool[]){0, 0, 1, 0, 0, 0});
    matched((struct tamper_conf){.longer = 1000}, (const bool[]){0, 0, 0, 1, 0, 0});
    matched((struct tamper_conf){.longer = 40 + 32 + 1300}, (const bool[]){0, 0, 0, 0, 0, 0});
    matched((struct tamper_conf){.longer = 40 + 32 + 1299}, (const bool[]){0, 0, 0, 1, 0, 0});
    matched(peer, (const bool[]){1, 1, 0, 0, 1, 0});
    peer.payload = true;
    matched(peer, (const bool[]){0, 1, 0, 0, 0, 0});
    matched(peer6, (const bool[]){0, 0, 0, 1, 0, 0});

    port_tamper_clear(&port, false);
    add_rule(false, (struct tamper_conf){.chance = 10 * PERCENT, .loss = TAMPER_ALL});
    assert_true(as_likely(20000 - pass(0, 20000, came), 20000, 0.1));
    assert_int_equal(counts_of(0).matched, counts_of(0).lost);

    /* Going out, a peer is who it goes to. */
    peer.payload = false;
    peer.peer[15] = 200;
    peer.loss = TAMPER_ALL;
    add_rule(true, peer);
    assert_int_equal(transmit(0, frame_of((struct frame){.host = 2})), 1);
    assert_int_equal(wire.nout, 0);
}

/* Rules in a row: each has its own counters, the first that loses a frame ends it. */
static void test_rules(void **state)
{
    static uint8_t came[1000];
    struct tamper_conf bad = {.loss = TAMPER_ALL + 1};
    struct tamper_row rows[2 * TAMPER_RULES_MAX];
    struct err err = {0};
    unsigned id;

    add_rule(false, (struct tamper_conf){.delay_us = 1000});
    add_rule(false, (struct tamper_conf){.loss = 50 * PERCENT});
    add_rule(false, (struct tamper_conf){.duplicate = TAMPER_ALL});
    add_rule(true, (struct tamper_conf){.loss = 1});
    for (unsigned i = 0; i < 1000; i++)
        bring(frame_of((struct frame){.seq = i}));
    assert_int_equal(receive(0), 0);
    assert_int_equal(counts_of(0).delayed, 1000);
    assert_int_equal(counts_of(2).matched, 1000 - counts_of(1).lost);
    assert_int_equal(port_tamper_rows(&port, rows, 2 * TAMPER_RULES_MAX), 4);
    assert_true(rows[3].out && rows[3].conf.loss == 1);
    clock_to(now + 1000);
    assert_int_equal(receive(0), 2 * counts_of(2).matched);

    /* One goes, the others go on counting where they were. */
    assert_int_equal(port_tamper_del(&port, rows[1].id), 0);
    assert_int_equal(port_tamper_del(&port, rows[1].id), -ENOENT);
    assert_int_equal(counts_of(0).delayed, 1000);
    assert_int_equal(
        port_tamper_set(&port, false, &(struct tamper_conf){.loss = 5}, false, &id, &err), 0);
    assert_int_equal(port_tamper_rows(&port, rows, 2 * TAMPER_RULES_MAX), 2);
    assert_int_equal(rows[0].id, id);
    rte_pktmbuf_free_bulk(wire.out, wire.nout);
    wire.nout = 0;
    assert_true(pass(1, 1000, came) > 0);

    assert_int_equal(port_tamper_set(&port, false, &bad, true, &id, &err), -EINVAL);
    assert_int_equal(port_tamper_set(&port, false, &(struct tamper_conf){0}, true, &id, &err),
                     -EINVAL);
    while (port_tamper_rows(&port, rows, 2 * TAMPER_RULES_MAX) < TAMPER_RULES_MAX + 1)
        add_rule(false, (struct tamper_conf){.loss = 1});
    assert_int_equal(
        port_tamper_set(&port, false, &(struct tamper_conf){.loss = 1}, true, &id, &err), -ENOSPC);
}

/* ---- bounds ---- */

static void test_no_room(void **state)
{
    struct tamper_queues q;

    add_rule(false, (struct tamper_conf){.delay_us = 1000000});
    for (unsigned i = 0; i < TAMPER_HELD_MAX + 100; i++) {
        bring(frame_of((struct frame){.seq = i}));
        if (wire.nin == PORT_BURST)
            receive(0);
    }
    receive(0);
    port_tamper_queues(&port, false, &q);
    assert_int_equal(q.held, TAMPER_HELD_MAX);
    assert_int_equal(q.no_room, 100);
    /* Another queue has places of its own, as long as there are buffers: an eighth stays free. */
    for (unsigned i = 0; i < TAMPER_HELD_MAX; i++) {
        bring(frame_of((struct frame){.seq = i}));
        if (wire.nin == PORT_BURST)
            receive(1);
    }
    receive(1);
    port_tamper_queues(&port, false, &q);
    assert_true(rte_mempool_avail_count(pool) >= POOL_SIZE / 8 - 1);
    assert_int_equal(q.held + rte_mempool_avail_count(pool), POOL_SIZE);
    assert_int_equal(q.held + q.no_room, 2 * TAMPER_HELD_MAX + 100);
}

/* The device takes nothing for a while: what was taken stays in order, no more is taken. */
static void test_device_full(void **state)
{
    unsigned taken = 0;

    add_rule(true, (struct tamper_conf){.loss = 1});
    wire.room = 3;
    for (unsigned i = 0; i < 10; i++) {
        struct rte_mbuf *m = frame_of((struct frame){.seq = i});

        if (transmit(0, m))
            taken++;
        else
            rte_pktmbuf_free(m);
    }
    assert_int_equal(taken, 4);
    assert_int_equal(wire.nout, 3);
    assert_int_equal(port_tamper_wait(&port, -1, 0), 0);
    wire.room = 10;
    transmit(0, NULL);
    assert_int_equal(wire.nout, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(seq_of(wire.out[i]), i);
    assert_int_equal(port_tamper_wait(&port, -1, 0), UINT64_MAX);
}

/* Payload that is sent by reference is not referred to while the frame waits. */
static void test_payload_let_go(void **state)
{
    struct rte_mbuf *head = frame_of((struct frame){.seq = 9});
    struct rte_mbuf *payload = rte_pktmbuf_alloc(pool), *shell = rte_pktmbuf_alloc(pool);

    memset(rte_pktmbuf_append(payload, 100), 0xab, 100);
    rte_pktmbuf_attach(shell, payload);
    assert_int_equal(rte_mbuf_refcnt_read(payload), 2);
    assert_int_equal(rte_pktmbuf_chain(head, shell), 0);
    add_rule(true, (struct tamper_conf){.delay_us = 5});
    assert_int_equal(transmit(0, head), 1);
    assert_int_equal(rte_mbuf_refcnt_read(payload), 1);
    memset(rte_pktmbuf_mtod(payload, void *), 0, 100);
    rte_pktmbuf_free(payload);
    clock_to(now + 5);
    transmit(0, NULL);
    assert_int_equal(wire.nout, 1);
    assert_int_equal(wire.out[0]->pkt_len, ETH + 20 + 32 + 100);
    assert_int_equal(*rte_pktmbuf_mtod_offset(wire.out[0], uint8_t *, ETH + 52 + 99), 0xab);
}

/* ---- cutting ---- */

static struct rte_mbuf *large(struct frame f, uint64_t ol_flags, uint16_t segment)
{
    struct rte_mbuf *m = frame_of(f);

    m->ol_flags = ol_flags;
    m->tso_segsz = segment;
    m->l2_len = ETH;
    m->l3_len = f.family == 6 ? 40 : 20;
    m->l4_len = 32;
    return m;
}

/* Pieces of a frame, in wire.out from index `at` on: right in all, and together what it was. */
static void check_pieces(unsigned at, const struct frame *f, unsigned segment, unsigned lost)
{
    static uint8_t p[70000];
    unsigned ip = f->family == 6 ? 40 : 20, got = 0, n = 0;

    for (; at < wire.nout; at++, n++) {
        unsigned size = flat(wire.out[at], p, sizeof(p)), head = ETH + ip + 32, len = size - head;
        uint32_t off = long_at(p + ETH + ip + 4) - f->seq;
        uint8_t flags = p[ETH + ip + 13];

        assert_true(sums_right(p, size));
        assert_int_equal(off % segment, 0);
        assert_int_equal(len, off + segment < f->payload ? segment : f->payload - off);
        if (f->family == 4)
            assert_int_equal(word_at(p + ETH + 4), 0x1234 + off / segment);
        for (unsigned i = 0; i < len; i++)
            assert_int_equal(p[head + i], (uint8_t)(f->seq + off + i));
        assert_int_equal(flags & 0x80, off == 0 ? f->flags & 0x80 : 0); /* CWR: the first */
        assert_int_equal(flags & 0x09,
                         off + len == f->payload ? f->flags & 0x09 : 0); /* FIN, PSH: the last */
        got += len;
    }
    assert_int_equal(n, (f->payload + segment - 1) / segment - lost);
    if (!lost)
        assert_int_equal(got, f->payload);
}

static void test_cut(void **state)
{
    static const int families[] = {4, 6};
    unsigned at;

    add_rule(true, (struct tamper_conf){.cut = true});
    add_rule(false, (struct tamper_conf){.cut = true});
    for (unsigned i = 0; i < 2; i++) {
        struct frame f = {.family = families[i],
                          .proto = 6,
                          .payload = 30000,
                          .seq = 0xfffff000,
                          .sport = 1023,
                          .dport = 988,
                          .flags = 0x99};

        at = wire.nout;
        transmit(0, large(f,
                          RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM |
                              (f.family == 4 ? RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM
                                             : RTE_MBUF_F_TX_IPV6),
                          1400));
        check_pieces(at, &f, 1400, 0);
        assert_int_equal(wire.out[at]->ol_flags & (RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_L4_MASK),
                         0);

        at = wire.nout;
        bring(large(f, RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_GOOD, 1448));
        receive(0);
        check_pieces(at, &f, 1448, 0);
        assert_int_equal(wire.out[at]->ol_flags,
                         RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD);
        /* Put together by somebody who says nothing of it: as the MTU has it. */
        at = wire.nout;
        bring(large(f, RTE_MBUF_F_RX_L4_CKSUM_NONE, 0));
        receive(0);
        check_pieces(at, &f, 1500 - 32 - (f.family == 6 ? 40 : 20), 0);
        /* Of a damaged one no good ones are made. */
        at = wire.nout;
        bring(large(f, 0, 0));
        *rte_pktmbuf_mtod_offset(wire.in[0], uint8_t *, 90) ^= 1;
        assert_int_equal(receive(0), 1);
        assert_int_equal(wire.out[at]->pkt_len, ETH + (f.family == 6 ? 40 : 20) + 32 + 30000);
    }
    assert_int_equal(counts_of(0).skipped, 2);
    assert_int_equal(counts_of(1).cut, 2 * 22);
}

/* Loss of segments, not of whole frames; and a damaged segment is one of the frame. */
static void test_cut_and_fault(void **state)
{
    static uint8_t p[2000];
    struct frame f = {
        .family = 4, .proto = 6, .payload = 60000, .seq = 5, .sport = 1023, .dport = 988};
    uint64_t flags = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_IPV4 |
                     RTE_MBUF_F_TX_IP_CKSUM;
    unsigned bad = 0;

    add_rule(true, (struct tamper_conf){.cut = true, .loss = 10 * PERCENT});
    for (unsigned i = 0; i < 20; i++)
        transmit(0, large(f, flags, 1000));
    assert_int_equal(counts_of(0).cut, 20 * 60);
    assert_int_equal(counts_of(0).matched, 20 * 60);
    assert_true(as_likely((double)counts_of(0).lost, 20 * 60, 0.1));
    assert_int_equal(wire.nout, 20 * 60 - counts_of(0).lost);
    rte_pktmbuf_free_bulk(wire.out, wire.nout);
    wire.nout = 0;

    port_tamper_clear(&port, true);
    add_rule(true, (struct tamper_conf){.corrupt = 10 * PERCENT});
    for (unsigned i = 0; i < 20; i++)
        transmit(0, large(f, flags, 1000));
    assert_int_equal(wire.nout, 20 * 60);
    for (unsigned i = 0; i < wire.nout; i++)
        bad += !sums_right(p, flat(wire.out[i], p, sizeof(p)));
    assert_int_equal(bad, counts_of(0).corrupted);
    assert_true(as_likely(bad, 20 * 60, 0.1));

    /* By the size of the segments that it stands for. */
    port_tamper_clear(&port, true);
    add_rule(true, (struct tamper_conf){.longer = 1051, .loss = TAMPER_ALL});
    transmit(0, large(f, flags, 1000));
    assert_int_equal(counts_of(0).lost, 1);
    transmit(0, large(f, flags, 999));
    assert_int_equal(counts_of(0).lost, 1);
}

/* Nothing is believed of what a frame says of itself. */
static void test_malformed(void **state)
{
    uint64_t seed = 11;
    uint8_t p[200];
    unsigned i, n;

    add_rule(false, (struct tamper_conf){.corrupt = TAMPER_ALL,
                                         .cut = true,
                                         .payload = false,
                                         .duplicate = PERCENT,
                                         .delay_us = 1});
    add_rule(false,
             (struct tamper_conf){.tcp_port = 988, .payload = true, .longer = 10, .loss = 1});
    for (i = 0; i < 20000; i++) {
        struct frame f = {.family = i % 2 ? 6 : 4, .proto = 6, .payload = i % 60, .sport = 988};

        n = frame_bytes(&f, p);
        n = (unsigned)(test_random(&seed) % (n + 1));
        for (unsigned k = 0; k < 3 && n > 0; k++)
            p[12 + test_random(&seed) % 60] = (uint8_t)test_random(&seed);
        if (n == 0)
            continue;
        bring(mbuf_of(p, n, i % 3 ? 1 + (unsigned)(test_random(&seed) % n) : 0));
        wire.in[0]->ol_flags =
            test_random(&seed) &
            (RTE_MBUF_F_RX_L4_CKSUM_MASK | RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_LRO);
        wire.in[0]->tso_segsz = (uint16_t)(test_random(&seed) % 4);
        receive(0);
        clock_to(now + 1);
        receive(0);
        rte_pktmbuf_free_bulk(wire.out, wire.nout);
        wire.nout = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_off, begin, finish),
        cmocka_unit_test_setup_teardown(test_loss, begin, finish),
        cmocka_unit_test_setup_teardown(test_bursts, begin, finish),
        cmocka_unit_test_setup_teardown(test_delay, begin, finish),
        cmocka_unit_test_setup_teardown(test_jitter, begin, finish),
        cmocka_unit_test_setup_teardown(test_reorder, begin, finish),
        cmocka_unit_test_setup_teardown(test_rate, begin, finish),
        cmocka_unit_test_setup_teardown(test_duplicate, begin, finish),
        cmocka_unit_test_setup_teardown(test_corrupt, begin, finish),
        cmocka_unit_test_setup_teardown(test_filters, begin, finish),
        cmocka_unit_test_setup_teardown(test_rules, begin, finish),
        cmocka_unit_test_setup_teardown(test_no_room, begin, finish),
        cmocka_unit_test_setup_teardown(test_device_full, begin, finish),
        cmocka_unit_test_setup_teardown(test_payload_let_go, begin, finish),
        cmocka_unit_test_setup_teardown(test_cut, begin, finish),
        cmocka_unit_test_setup_teardown(test_cut_and_fault, begin, finish),
        cmocka_unit_test_setup_teardown(test_malformed, begin, finish),
    };
    int failed;

    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    pool = rte_pktmbuf_pool_create("tamper", POOL_SIZE, 0, PKT_PRIV, 1024 + RTE_PKTMBUF_HEADROOM,
                                   SOCKET_ID_ANY);
    if (!pool)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rte_mempool_free(pool);
    reactor_env_destroy(env);
    return failed;
}
