/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports on DPDK's devices: rings within the process, and memif between two ports. */
#include "port_test.h"

#include <errno.h>
#include <unistd.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>

#define RING_SIZE 1024u

static struct port *near, *far;
static struct rte_mempool *payload;
static struct rte_ring *ring[4];
static uint8_t frame[FRAME_MAX], got[FRAME_MAX];

static struct port_opts opts_for(const char *name, const char *device)
{
    return (struct port_opts){.name = name,
                              .device = device,
                              .reactors = 1,
                              .rx_queues = 1,
                              .buffer_bytes = 1 << 20,
                              .socket = -1};
}

static struct port *port_up(const struct port_opts *opts)
{
    struct port *port;

    if (port_open(opts, NULL, &port, &err) < 0)
        fail_msg("%s", err.message);
    if (port_start(port, &err) < 0)
        fail_msg("%s", err.message);
    return port;
}

/* What is still on its way between two ports goes back to its pools first. */
static void ports_down(void)
{
    port_stop(near);
    port_stop(far);
    for (unsigned i = 0; i < RTE_DIM(ring); i++) {
        void *m;

        while (ring[i] && rte_ring_dequeue(ring[i], &m) == 0)
            rte_pktmbuf_free(m);
    }
    pools_are_full(near);
    pools_are_full(far);
    assert_true(rte_mempool_full(payload));
    port_close(near);
    port_close(far);
    near = far = NULL;
}

static struct rte_mbuf *next(struct port *port, unsigned queue)
{
    uint64_t until = reactor_now_us() + DEADLINE_US;
    struct rte_mbuf *m;

    while (reactor_now_us() < until) {
        if (port_rx(port, queue, &m, 1) == 1)
            return m;
    }
    fail_msg("no frame came");
    return NULL;
}

static struct rte_mbuf *tcp_chain(struct port *port, bool v6, size_t size, unsigned seed,
                                  size_t piece)
{
    size_t len = frame_make(frame, v6, size, seed, SUM_PSEUDO);
    struct rte_mbuf *m =
        chain_make(port, payload, frame, v6 ? FRAME_HEAD6 : FRAME_HEAD4, len, piece);

    m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    return m;
}

static struct mem_arena *arena;
static struct mem_pool landing;

/* Payload in a router buffer: the frame is the same, the buffer free when the device is through. */
static struct rte_mbuf *tcp_landing(struct port *port, bool v6, size_t size, unsigned seed,
                                    size_t piece, uint8_t *buffer)
{
    size_t len = frame_make(frame, v6, size, seed, SUM_PSEUDO);
    struct rte_mbuf *m =
        chain_landing(port, &landing, buffer, frame, v6 ? FRAME_HEAD6 : FRAME_HEAD4, len, piece);

    m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    return m;
}

/* A memif's receiver makes room when it polls. */
static void send_one(struct port *from, struct port *to, struct rte_mbuf *m)
{
    uint64_t until = reactor_now_us() + DEADLINE_US;
    struct rte_mbuf *none;

    while (port_tx(from, 0, &m, 1) == 0) {
        assert_int_equal(port_rx(to, 0, &none, 1), 0);
        assert_true(reactor_now_us() < until);
    }
}

static void passes(struct port *from, struct port *to, bool v6, size_t size, unsigned seed,
                   size_t piece, int vlan)
{
    struct rte_mbuf *m = tcp_chain(from, v6, size, seed, piece);
    size_t len;

    if (vlan >= 0) {
        m->ol_flags |= RTE_MBUF_F_TX_VLAN;
        m->vlan_tci = (uint16_t)vlan;
    }
    send_one(from, to, m);
    m = next(to, 0);
    len = frame_read(m, got);
    assert_int_equal(len, frame_make(frame, v6, size, seed, SUM_WHOLE));
    assert_memory_equal(got, frame, len);
    assert_int_equal((m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0, vlan >= 0);
    if (vlan >= 0)
        assert_int_equal(m->vlan_tci, vlan);
    for (struct rte_mbuf *s = m; s; s = s->next)
        assert_ptr_equal(mem_mbuf_of(mem_mbufs_region(to->rx_small), rte_pktmbuf_mtod(s, void *)),
                         s);
    rte_pktmbuf_free(m);
}

static void passes_landing(struct port *from, struct port *to, bool v6, size_t size, unsigned seed,
                           size_t piece)
{
    uint8_t *buffer = mem_pool_get(&landing);
    size_t len;
    struct rte_mbuf *m = tcp_landing(from, v6, size, seed, piece, buffer);

    assert_true(from->caps & PORT_TX_RETURNS);
    assert_int_equal(mem_held(landing.region, buffer, size), size > 0);
    send_one(from, to, m);
    m = next(to, 0);
    assert_false(mem_held(landing.region, buffer, size));
    memset(buffer, 0xee, size);
    mem_pool_put(&landing, buffer);
    len = frame_read(m, got);
    assert_int_equal(len, frame_make(frame, v6, size, seed, SUM_WHOLE));
    assert_memory_equal(got, frame, len);
    rte_pktmbuf_free(m);
}

static void passes_all(unsigned mtu)
{
    for (unsigned i = 0; i < 40; i++) {
        size_t size = i % 5 == 0 ? mtu - 60 : i * 97 % (mtu - 60);

        passes_landing(near, far, i % 2, size, i, i % 3 ? mtu : 1 + size / 3);
    }
    for (unsigned i = 0; i < 40; i++) {
        size_t size = i * 97 % (mtu - 60);

        passes(near, far, i % 2, i % 5 == 0 ? mtu - 60 : size, i, 100 + size / 3, i % 3 ? -1 : 7);
        passes(far, near, i % 2, size, i, 2000, i % 4 ? -1 : 0xfff);
    }
}

/* ---- rings ---- */

static void rings_make(unsigned near_tx)
{
    char name[32];

    for (unsigned i = 0; i < RTE_DIM(ring); i++) {
        snprintf(name, sizeof(name), "wire%u", i);
        ring[i] = rte_ring_create(name, RING_SIZE, SOCKET_ID_ANY, 0);
        assert_non_null(ring[i]);
    }
    assert_true(rte_eth_from_rings("near", &ring[0], 2, &ring[2], near_tx, 0) >= 0);
    assert_true(rte_eth_from_rings("far", &ring[2], 2, &ring[0], 2, 0) >= 0);
}

static void rings_free(void)
{
    for (unsigned i = 0; i < RTE_DIM(ring); i++) {
        rte_ring_free(ring[i]);
        ring[i] = NULL;
    }
}

static void test_rings(void **state)
{
    struct port_opts a = opts_for("near", "net_ring_near"), b = opts_for("far", "net_ring_far");
    struct port_info info;
    struct port_xstat xstat[8];

    rings_make(2);
    a.mtu = b.mtu = 9000;
    a.reactors = a.rx_queues = b.reactors = b.rx_queues = 2;
    near = port_up(&a);
    far = port_up(&b);
    port_info_get(near, &info);
    assert_string_equal(info.backend, "ethdev");
    assert_string_equal(info.driver, "net_ring");
    assert_int_equal(info.mtu, 9000);
    assert_true(info.link_up);
    assert_int_equal(info.rx_queues, 2);
    assert_int_equal(info.caps & (PORT_TX_TSO | PORT_TX_CSUM | PORT_RX_SLEEPS), 0);
    assert_true(info.caps & PORT_TX_CHAINS);
    passes_all(9000);
    assert_true(near->ops->xstats(near, xstat, 8) > 0);
    assert_string_equal(xstat[0].name, "rx_good_packets");
    assert_int_equal(xstat[0].value, 40);
    ports_down();
    rings_free();
}

/* Stopped and started again it goes on. */
static void test_restart(void **state)
{
    struct port_opts a = opts_for("near", "net_ring_near"), b = opts_for("far", "net_ring_far");

    rings_make(2);
    near = port_up(&a);
    far = port_up(&b);
    passes_all(1500);
    port_stop(near);
    assert_int_equal(port_start(near, &err), 0);
    passes_all(1500);
    ports_down();
    rings_free();
}

/* The device's ring is full: what is not taken stays ours. */
static void test_full(void **state)
{
    struct port_opts a = opts_for("near", "net_ring_near"), b = opts_for("far", "net_ring_far");
    struct port_queue_stats stats;
    unsigned sent = 0, n;
    struct rte_mbuf *m[PORT_BURST];

    rings_make(2);
    near = port_up(&a);
    far = port_up(&b);
    do {
        for (unsigned i = 0; i < PORT_BURST; i++)
            m[i] = tcp_chain(near, false, 0, sent + i, 0);
        n = port_tx(near, 0, m, PORT_BURST);
        rte_pktmbuf_free_bulk(m + n, PORT_BURST - n);
        sent += n;
    } while (n == PORT_BURST);
    assert_int_equal(sent, RING_SIZE - 1);
    port_stats_get(near, true, 0, &stats);
    assert_int_equal(stats.packets, sent);
    assert_int_equal(stats.full, 1);
    for (unsigned i = 0; i < sent; i++) {
        m[0] = next(far, 0);
        frame_read(m[0], got);
        assert_int_equal(get16(got + 38), i);
        rte_pktmbuf_free(m[0]);
    }
    ports_down();
    rings_free();
}

/* One send queue for three reactors: frames of all come out, in the order of each. */
static void test_shared(void **state)
{
    struct port_opts a = opts_for("near", "net_ring_near"), b = opts_for("far", "net_ring_far");
    unsigned seen[3] = {0};
    struct rte_mbuf *m;

    rings_make(1);
    a.reactors = 3;
    near = port_up(&a);
    far = port_up(&b);
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned r = 0; r < 3; r++) {
            reactor_bind(reactor_at(env, r));
            m = tcp_chain(near, false, 10, r << 8 | i, 0);
            assert_int_equal(port_tx(near, r, &m, 1), 1);
        }
        if (i % 10 == 0) { /* the one that polls takes what others left */
            reactor_bind(reactor_at(env, 1));
            port_rx(near, 0, &m, 1);
        }
    }
    reactor_bind(reactor_at(env, 1));
    for (unsigned i = 0; i < 20; i++)
        port_rx(near, 0, &m, 1);
    for (unsigned i = 0; i < 300; i++) {
        unsigned r;

        m = next(far, 0);
        frame_read(m, got);
        r = get16(got + 38) >> 8;
        assert_true(r < 3);
        assert_int_equal(get16(got + 38) & 0xff, seen[r]++);
        rte_pktmbuf_free(m);
    }
    /* What waits when the port stops comes back. */
    reactor_bind(reactor_at(env, 2));
    m = tcp_chain(near, false, 10, 1, 0);
    assert_int_equal(port_tx(near, 2, &m, 1), 1);
    reactor_bind(reactor_control(env));
    ports_down();
    rings_free();
}

/* ---- memif ---- */

static void test_memif(void **state)
{
    char server[128] = "", client[128] = "", path[64];
    struct port_opts a = opts_for("near", server), b = opts_for("far", client);

    snprintf(path, sizeof(path), "/tmp/millrace-test-%d.memif", (int)getpid());
    snprintf(server, sizeof(server), "net_memif0,role=server,id=0,socket-abstract=no,socket=%s",
             path);
    snprintf(client, sizeof(client), "net_memif1,role=client,id=0,socket-abstract=no,socket=%s",
             path);
    a.mtu = b.mtu = 9000;
    near = port_up(&a);
    far = port_up(&b);
    WAIT_FOR(near->ops->link(near, NULL) && far->ops->link(far, NULL));
    passes_all(9000);
    ports_down();
    unlink(path);
}

/* ---- refusals ---- */

static void refused(const char *device, unsigned mtu, const char *remedy)
{
    struct port_opts opts = opts_for("eth0", device);
    struct port *port = NULL;

    opts.mtu = mtu;
    assert_true(port_open(&opts, NULL, &port, &err) < 0);
    if (!strstr(err.message, remedy))
        fail_msg("\"%s\" does not say \"%s\"", err.message, remedy);
    assert_null(port);
}

static void test_refusals(void **state)
{
    refused("0000:03:00.0", 0, "vfio-pci");
    refused("03:00.1,mprq_en=1", 0, "0000:03:00.1");
    refused("net_nosuch0", 0, "net_nosuch0");
    refused("net_memif0,role=nonsense", 0, "net_memif0");
    assert_int_equal(rte_eth_dev_count_avail(), 0);
}

static void test_memory(void **state)
{
    struct port_opts small = opts_for("eth0", "0000:03:00.0"), large = small;

    large.mtu = 9000;
    small.mtu = 1500;
    large.rx_queues = large.reactors = 4;
    assert_true(port_memory(&small) > 1024 * 2048 * 2);
    assert_true(port_memory(&large) > 4 * port_memory(&small));
}

static int setup(void **state)
{
    struct reactor_opts opts = {
        .prog = "millrace-test", .cores = "auto", .count = 3, .mem_mb = 128};
    struct mem_arena_opts want = {.socket = -1, .landing_bytes = MEM_LANDING_SLOT};

    if (reactor_env_create(&opts, &env, &err) < 0 || mem_arena_create(&want, &arena, &err) < 0 ||
        mem_pool_init(&landing, arena, MEM_LANDING, FRAME_MAX, 4, "landing", &err) < 0)
        fail_msg("%s", err.message);
    return mem_mbufs_create("test", 2048, PKT_PRIV, 9216 + RTE_PKTMBUF_HEADROOM, -1, &payload,
                            &err);
}

static int teardown(void **state)
{
    mem_mbufs_destroy(payload);
    mem_pool_fini(&landing);
    mem_arena_destroy(arena);
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings),  cmocka_unit_test(test_restart),
        cmocka_unit_test(test_full),   cmocka_unit_test(test_shared),
        cmocka_unit_test(test_memif),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
