/* SPDX-License-Identifier: BSD-3-Clause */
/* What ports do in software, on a device of paper that can do nothing. */
#include "port_test.h"

#include <errno.h>

#include "lib/lnd_eth/port/port_internal.h"

#define PAPER_MAX 64
#define LINEAR    32 /* buffers for chains made one */

static struct port *port;
static struct rte_mempool *payload;
static uint8_t frame[FRAME_MAX], got[FRAME_MAX];

/* ---- the device ---- */

static struct {
    struct rte_mbuf *in[PAPER_MAX], *out[PAPER_MAX];
    unsigned nin, nout, room, segs;
    uint32_t soft;
} paper;

static int paper_open(struct port *p, const struct port_opts *opts, struct err *e)
{
    int rc = port_pools_copied(p, opts->buffer_bytes, e);

    if (rc == 0 && paper.segs < 8)
        rc = port_pool(p, "linear", LINEAR, PORT_ROOM_LARGE, &p->tx_linear, e);
    p->rx_queues = p->tx_queues = 1;
    p->tx_segs = paper.segs;
    p->soft = paper.soft;
    p->mtu = 9000;
    return rc;
}

static int paper_start(struct port *p, struct err *e)
{
    return 0;
}

static void paper_nothing(struct port *p)
{
}

static unsigned paper_rx(struct port *p, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    n = min(n, paper.nin);
    memcpy(pkts, paper.in, n * sizeof(pkts[0]));
    paper.nin -= n;
    memmove(paper.in, paper.in + n, paper.nin * sizeof(pkts[0]));
    return n;
}

static unsigned paper_tx(struct port *p, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    n = min(n, paper.room - paper.nout);
    memcpy(paper.out + paper.nout, pkts, n * sizeof(pkts[0]));
    paper.nout += n;
    return n;
}

static bool paper_link(struct port *p, unsigned *speed)
{
    return true;
}

static const struct port_ops paper_ops = {
    .name = "paper",
    .open = paper_open,
    .start = paper_start,
    .stop = paper_nothing,
    .close = paper_nothing,
    .rx = paper_rx,
    .tx = paper_tx,
    .link = paper_link,
};

static void port_up(uint32_t soft, unsigned segs)
{
    struct port_opts opts = {
        .name = "paper", .device = "paper", .reactors = 1, .buffer_bytes = 1 << 20, .socket = -1};

    memset(&paper, 0, sizeof(paper));
    paper.soft = soft;
    paper.segs = segs;
    paper.room = PAPER_MAX;
    if (port_open(&opts, &paper_ops, &port, &err) < 0 || port_start(port, &err) < 0)
        fail_msg("%s", err.message);
}

static void port_down(void)
{
    rte_pktmbuf_free_bulk(paper.out, paper.nout);
    rte_pktmbuf_free_bulk(paper.in, paper.nin);
    port_stop(port);
    pools_are_full(port);
    assert_true(rte_mempool_full(payload));
    port_close(port);
    assert_int_equal(mem_region_count(), 1); /* payload's */
}

static struct rte_mbuf *tcp_chain(bool v6, size_t size, unsigned seed, size_t piece)
{
    size_t len = frame_make(frame, v6, size, seed, SUM_PSEUDO);
    struct rte_mbuf *m;

    if (!v6)
        put16(frame + 24, 0x1234); /* what a header has there before it is summed */
    m = chain_make(port, payload, frame, v6 ? FRAME_HEAD6 : FRAME_HEAD4, len, piece);
    m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    return m;
}

static void send_one(struct rte_mbuf *m)
{
    assert_int_equal(port_tx(port, 0, &m, 1), 1);
    assert_true(paper.nout > 0);
}

/* ---- sending ---- */

static void test_sums(void **state)
{
    port_up(PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM, 100);
    for (size_t size = 0; size < 3000; size += 37) {
        bool v6 = size % 2;
        size_t len;

        send_one(tcp_chain(v6, size, (unsigned)size, 1 + size / 7));
        assert_int_equal(paper.nout, 1);
        assert_int_equal(paper.out[0]->ol_flags & (RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_L4_MASK),
                         0);
        len = chain_read(paper.out[0], got);
        assert_int_equal(len, frame_make(frame, v6, size, (unsigned)size, SUM_WHOLE));
        assert_memory_equal(got, frame, len);
        rte_pktmbuf_free(paper.out[0]);
        paper.nout = 0;
    }
    port_down();
}

/* A packet computed by hand: 10.0.0.1:1 → 10.0.0.2:2, UDP, payload ff fe. Words of the pseudo
 * header and packet: 0a00+0001+0a00+0002+0011+000a = 141e; +0001+0002+000a+fffe = 1_1429 → 142a;
 * its
 * complement is ebd5. With a payload of ebd4 that would be 0, and ffff is sent. */
static void test_udp_by_hand(void **state)
{
    static const uint8_t packet[] = {
        2,    2,  2, 2, 2,  2, 4, 4, 4,  4, 4, 4, 8, 0, 0x45, 0, 0, 30, 0,    0,    0,    0,
        0x40, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0,    2, 0, 10, 0x14, 0x1e, 0xff, 0xfe};
    struct port_queue_stats stats;
    struct rte_mbuf *m;

    port_up(PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM, 100);
    for (unsigned i = 0; i < 2; i++) {
        m = port_tx_alloc(port);
        memcpy(rte_pktmbuf_append(m, sizeof(packet)), packet, sizeof(packet));
        if (i == 1)
            put16(rte_pktmbuf_mtod_offset(m, uint8_t *, 42), 0xebd4);
        m->l2_len = 14;
        m->l3_len = 20;
        m->l4_len = 8;
        m->ol_flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_UDP_CKSUM;
        send_one(m);
    }
    assert_int_equal(chain_read(paper.out[0], got), sizeof(packet));
    /* 4500+001e+0000+0000+4011+0a00+0001+0a00+0002 = 9932 */
    assert_int_equal(get16(got + 24), 0xffff - 0x9932);
    assert_int_equal(get16(got + 40), 0xebd5);
    assert_int_equal(chain_read(paper.out[1], got), sizeof(packet));
    assert_int_equal(get16(got + 40), 0xffff);
    port_stats_get(port, true, 0, &stats);
    assert_int_equal(stats.csums, 2);
    port_down();
}

static void test_vlan_put(void **state)
{
    struct rte_mbuf *m;
    size_t len;

    port_up(PORT_SOFT_VLAN_TX | PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM, 100);
    m = tcp_chain(false, 77, 1, 10);
    m->ol_flags |= RTE_MBUF_F_TX_VLAN;
    m->vlan_tci = 0x6064;
    send_one(m);
    len = chain_read(paper.out[0], got);
    assert_int_equal(len, frame_make(frame, false, 77, 1, SUM_WHOLE) + 4);
    assert_memory_equal(got, frame, 12);
    assert_int_equal(get16(got + 12), 0x8100);
    assert_int_equal(get16(got + 14), 0x6064);
    assert_memory_equal(got + 16, frame + 12, len - 16);
    assert_int_equal(paper.out[0]->l2_len, 18);
    assert_int_equal(paper.out[0]->ol_flags & RTE_MBUF_F_TX_VLAN, 0);
    port_down();
}

static void test_linear(void **state)
{
    struct port_queue_stats stats;
    struct rte_mbuf *m;
    size_t len;

    port_up(PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM, 2);
    send_one(tcp_chain(false, 8900, 3, 0)); /* two segments: as it is */
    assert_int_equal(paper.out[0]->nb_segs, 2);
    send_one(tcp_chain(true, 8900, 3, 100));
    m = paper.out[1];
    assert_int_equal(m->nb_segs, 1);
    assert_ptr_equal(m->pool, port->tx_linear);
    len = chain_read(m, got);
    assert_int_equal(len, frame_make(frame, true, 8900, 3, SUM_WHOLE));
    assert_memory_equal(got, frame, len);
    assert_int_equal(m->l3_len, 40);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_IPV6);
    port_stats_get(port, true, 0, &stats);
    assert_int_equal(stats.copies, 1);
    assert_int_equal(stats.copied_bytes, len);
    /* None left: it waits, and goes when there is one again. */
    for (unsigned i = 1; i < LINEAR; i++)
        send_one(tcp_chain(false, 10, i, 1));
    m = tcp_chain(false, 10, 99, 1);
    assert_int_equal(port_tx(port, 0, &m, 1), 0);
    rte_pktmbuf_free(paper.out[--paper.nout]);
    assert_int_equal(port_tx(port, 0, &m, 1), 1);
    port_down();
}

/* What a device takes in few segments it cuts in more; a frame of more than that is refused. */
static void test_cut(void **state)
{
    struct rte_mbuf *m[3];
    struct port_queue_stats stats;

    port_up(0, 2);
    port->caps |= PORT_TX_TSO;
    port->tso_segs = 6;
    for (unsigned i = 0; i < 3; i++) {
        m[i] = tcp_chain(false, 5000, i, i == 1 ? 500 : 1000);
        m[i]->ol_flags |= i == 2 ? 0 : RTE_MBUF_F_TX_TCP_SEG;
        m[i]->tso_segsz = i == 2 ? 0 : 1400;
    }
    m[1]->pkt_len += PORT_ROOM_LARGE; /* too long for one buffer, by what it says */
    assert_int_equal(port_tx(port, 0, m, 3), 3);
    assert_int_equal(paper.nout, 2);
    assert_ptr_equal(paper.out[0], m[0]);
    assert_int_equal(paper.out[0]->nb_segs, 6);
    assert_int_equal(paper.out[1]->nb_segs, 1);
    port_stats_get(port, true, 0, &stats);
    assert_int_equal(stats.copies, 1);
    assert_int_equal(stats.bad, 1);
    port_down();
}

/* A device's limits, as DPDK states them: of each TCP segment, and of a whole frame. */
static void test_limits(void **state)
{
    static const struct {
        bool chains, cuts;
        unsigned each, all, tx_segs, tso_segs, tso_run;
    } row[] = {
        {true, true, 0, 0, UINT16_MAX, 0, 0}, {true, true, 255, 255, 255, 0, 0},
        {true, true, 8, 255, 8, 255, 6},      {true, true, 16, 255, 16, 255, 14},
        {true, true, 40, 40, 40, 40, 38},     {true, false, 7, 255, 7, 0, 0},
        {true, false, 8, 4, 8, 0, 0},         {true, true, 8, 0, 8, UINT16_MAX, 6},
        {false, false, 255, 255, 1, 0, 0},
    };
    struct port p = {0};

    for (unsigned i = 0; i < RTE_DIM(row); i++) {
        assert_int_equal(port_segs_set(&p, row[i].chains, row[i].each, row[i].all), row[i].cuts);
        assert_int_equal(p.tx_segs, row[i].tx_segs);
        assert_int_equal(p.tso_segs, row[i].tso_segs);
        assert_int_equal(p.tso_run, row[i].tso_run);
    }
}

/* The device takes a part; the rest is offered again and goes out as right as the first. */
static void test_again(void **state)
{
    struct rte_mbuf *m[6];
    struct port_queue_stats stats;

    port_up(PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM | PORT_SOFT_VLAN_TX, 2);
    for (unsigned i = 0; i < 6; i++) {
        m[i] = tcp_chain(false, 500, i, i % 2 ? 0 : 100);
        m[i]->ol_flags |= RTE_MBUF_F_TX_VLAN;
        m[i]->vlan_tci = 5;
    }
    paper.room = 2;
    assert_int_equal(port_tx(port, 0, m, 6), 2);
    paper.room = 3;
    assert_int_equal(port_tx(port, 0, m + 2, 4), 1);
    assert_int_equal(port_tx(port, 0, m + 3, 3), 0);
    paper.room = 64;
    assert_int_equal(port_tx(port, 0, m + 3, 3), 3);
    for (unsigned i = 0; i < 6; i++) {
        size_t len = frame_make(frame, false, 500, i, SUM_WHOLE);

        assert_int_equal(chain_read(paper.out[i], got), len + 4);
        assert_memory_equal(got + 16, frame + 12, len - 12);
    }
    port_stats_get(port, true, 0, &stats);
    assert_int_equal(stats.packets, 6);
    assert_int_equal(stats.full, 3);
    assert_int_equal(stats.bytes, 6 * (FRAME_HEAD4 + 500 + 4));
    port_down();
}

/* Frames that say nonsense are freed and counted when their turn comes, the others go. */
static void test_bad(void **state)
{
    struct rte_mbuf *m[5];
    struct port_queue_stats stats;

    port_up(PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM, 100);
    for (unsigned i = 0; i < 5; i++)
        m[i] = tcp_chain(false, 50, i, 0);
    m[0]->l2_len = 100; /* the IP header is behind the end */
    m[2]->l3_len = 8;
    m[3]->ol_flags |= RTE_MBUF_F_TX_TCP_SEG; /* there is no TSO here */
    m[3]->tso_segsz = 20;
    paper.room = 1;
    assert_int_equal(port_tx(port, 0, m, 5), 4);
    paper.room = 64;
    assert_int_equal(port_tx(port, 0, m + 4, 1), 1);
    assert_int_equal(paper.nout, 2);
    port_stats_get(port, true, 0, &stats);
    assert_int_equal(stats.bad, 3);
    port_down();
}

/* ---- receiving ---- */

static struct rte_mbuf *rx_one(void)
{
    struct rte_mbuf *m = NULL;

    assert_int_equal(port_rx(port, 0, &m, 1), 1);
    return m;
}

static void comes_in(struct rte_mempool *pool, const uint8_t *f, size_t len, size_t piece)
{
    struct rte_mbuf *first = NULL, *last = NULL;

    for (size_t at = 0; at < len; at += piece) {
        struct rte_mbuf *s = rte_pktmbuf_alloc(pool);
        size_t part = min(len - at, piece);

        memcpy(rte_pktmbuf_append(s, (uint16_t)part), f + at, part);
        if (!first) {
            first = s;
        } else {
            last->next = s;
            first->nb_segs++;
            first->pkt_len += (uint32_t)part;
        }
        last = s;
    }
    paper.in[paper.nin++] = first;
}

static void test_pull(void **state)
{
    port_up(PORT_SOFT_PULL, 100);
    for (size_t piece = 1; piece < 300; piece = piece * 2 + 1) {
        size_t len = frame_make(frame, false, 400, (unsigned)piece, SUM_WHOLE);
        struct rte_mbuf *m;

        comes_in(port->rx_small, frame, len, piece);
        m = rx_one();
        assert_int_equal(frame_read(m, got), len);
        assert_memory_equal(got, frame, len);
        rte_pktmbuf_free(m);
    }
    port_down();
}

static void test_vlan_take(void **state)
{
    size_t len;
    struct rte_mbuf *m;

    port_up(PORT_SOFT_VLAN_RX, 100);
    len = frame_make(frame, false, 20, 1, SUM_WHOLE);
    comes_in(port->rx_small, frame, len, len);
    m = rx_one();
    assert_int_equal(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED, 0);
    rte_pktmbuf_free(m);
    memmove(frame + 16, frame + 12, len - 12);
    put16(frame + 12, 0x8100);
    put16(frame + 14, 0x0ffe);
    comes_in(port->rx_small, frame, len + 4, len + 4);
    m = rx_one();
    assert_true(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED);
    assert_int_equal(m->vlan_tci, 0x0ffe);
    assert_int_equal(frame_read(m, got), len);
    frame_make(frame, false, 20, 1, SUM_WHOLE);
    assert_memory_equal(got, frame, len);
    rte_pktmbuf_free(m);
    /* Too short for a tag: as it came. */
    put16(frame + 12, 0x8100);
    comes_in(port->rx_small, frame, 17, 17);
    m = rx_one();
    assert_int_equal(m->pkt_len, 17);
    assert_int_equal(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED, 0);
    rte_pktmbuf_free(m);
    port_down();
}

/* Buffers of another pool, or shared, are copied; our own are not. */
static void test_foreign(void **state)
{
    struct port_queue_stats stats;
    struct rte_mbuf *m, *mine;
    size_t len;

    port_up(PORT_SOFT_FOREIGN, 100);
    len = frame_make(frame, false, 12000, 8, SUM_WHOLE);
    comes_in(payload, frame, len, 333);
    m = rx_one();
    assert_int_equal(frame_read(m, got), len);
    assert_memory_equal(got, frame, len);
    assert_ptr_equal(m->pool, port->rx_large);
    assert_true(rte_mempool_full(payload));
    rte_pktmbuf_free(m);

    comes_in(port->rx_small, frame, 100, 100);
    mine = paper.in[0];
    m = rx_one();
    assert_ptr_equal(m, mine);
    rte_mbuf_refcnt_update(m, 1); /* somebody else has it too */
    paper.in[paper.nin++] = m;
    mine = rx_one();
    assert_ptr_not_equal(m, mine);
    assert_int_equal(frame_read(mine, got), 100);
    rte_pktmbuf_free(m);
    rte_pktmbuf_free(mine);
    port_stats_get(port, false, 0, &stats);
    assert_int_equal(stats.copies, 2);
    assert_int_equal(stats.copied_bytes, len + 100);
    port_down();
}

/* Without buffers frames are lost and counted; what was begun goes back. */
static void test_no_buffers(void **state)
{
    struct port_queue_stats stats;
    struct rte_mbuf *held[4096];
    unsigned n = 0;

    port_up(PORT_SOFT_FOREIGN, 100);
    while ((held[n] = rte_pktmbuf_alloc(port->rx_large)))
        n++;
    while ((held[n] = rte_pktmbuf_alloc(port->rx_small)))
        n++;
    rte_pktmbuf_free(held[--n]);
    comes_in(payload, frame, 12000, 500); /* takes more than one */
    assert_int_equal(port_rx(port, 0, held + n, 1), 0);
    port_stats_get(port, false, 0, &stats);
    assert_int_equal(stats.no_buffer, 1);
    held[n] = rte_pktmbuf_alloc(port->rx_small);
    assert_non_null(held[n]);
    rte_pktmbuf_free_bulk(held, n + 1);
    port_down();
}

/* ---- buffers ---- */

static void test_mbuf_of(void **state)
{
    uint16_t region;
    struct rte_mbuf *m[8];

    port_up(0, 100);
    region = mem_mbufs_region(port->rx_large);
    assert_int_not_equal(region, mem_mbufs_region(port->rx_small));
    for (unsigned i = 0; i < 8; i++) {
        m[i] = rte_pktmbuf_alloc(port->rx_large);
        assert_ptr_equal(mem_mbuf_of(region, m[i]->buf_addr), m[i]);
        assert_ptr_equal(mem_mbuf_of(region, (uint8_t *)m[i]->buf_addr + m[i]->buf_len - 1), m[i]);
    }
    assert_null(mem_mbuf_of(region, (uint8_t *)mem_region_get(region)->base - 1));
    assert_null(
        mem_mbuf_of(region, (uint8_t *)mem_region_get(region)->base + mem_region_get(region)->len));
    assert_null(mem_mbuf_of(MEM_REGION_NONE, m[0]->buf_addr));
    assert_null(mem_mbuf_of(MEM_REGION_MAX - 1, m[0]->buf_addr));
    assert_true(mem_mbufs_truesize(port->rx_large) >=
                PORT_ROOM_LARGE + PKT_PRIV + sizeof(struct rte_mbuf));
    rte_pktmbuf_free_bulk(m, 8);
    port_down();
    assert_null(mem_mbuf_of(region, frame));
}

static void test_mbufs_refused(void **state)
{
    struct rte_mempool *pool = NULL;

    assert_int_equal(mem_mbufs_create("none", 0, PKT_PRIV, 2048, -1, &pool, &err), -EINVAL);
    assert_int_equal(mem_mbufs_create("odd", 10, 3, 2048, -1, &pool, &err), -EINVAL);
    assert_true(mem_mbufs_create("huge", 1000000, PKT_PRIV, 9000, -1, &pool, &err) < 0);
    assert_non_null(strstr(err.message, "KiB"));
    assert_int_equal(mem_mbufs_create("test", 10, PKT_PRIV, 2048, -1, &pool, &err), -EEXIST);
    assert_null(pool);
}

static int setup(void **state)
{
    test_env_make(REACTOR_IDLE_SPIN, "auto", 2);
    return mem_mbufs_create("test", 256, PKT_PRIV, 9216 + RTE_PKTMBUF_HEADROOM, -1, &payload, &err);
}

static int teardown(void **state)
{
    mem_mbufs_destroy(payload);
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_udp_by_hand),
        cmocka_unit_test(test_vlan_put), cmocka_unit_test(test_linear),
        cmocka_unit_test(test_cut),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_bad),
        cmocka_unit_test(test_pull),     cmocka_unit_test(test_vlan_take),
        cmocka_unit_test(test_foreign),  cmocka_unit_test(test_no_buffers),
        cmocka_unit_test(test_mbuf_of),  cmocka_unit_test(test_mbufs_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
