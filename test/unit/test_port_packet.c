/* SPDX-License-Identifier: BSD-3-Clause */
/* The packet back-end on one end of a veth pair in a network namespace of the test's own; at the
 * other end a raw socket. */
#include "lib/lnd_eth/port/port_packet.h"
#include "port_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_lcore.h>
#include <rte_malloc.h>

static struct port *port;
static struct rte_mempool *payload; /* for what is sent */
static int peer = -1;
static uint8_t frame[FRAME_MAX], got[FRAME_MAX];

static int run(const char *command)
{
    int status = system(command);

    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void must(const char *command)
{
    if (run(command) != 0)
        fail_msg("%s", command);
}

/* ---- the far end ---- */

static void peer_open(void)
{
    struct sockaddr_ll ll = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex("far0")};
    int one = 1, room = 8 << 20;

    if (peer >= 0)
        close(peer);
    peer = socket(AF_PACKET, SOCK_RAW, 0);
    assert_true(peer >= 0);
    assert_int_equal(setsockopt(peer, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)), 0);
    assert_int_equal(setsockopt(peer, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one)), 0);
    assert_int_equal(setsockopt(peer, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)), 0);
    setsockopt(peer, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    assert_int_equal(bind(peer, (struct sockaddr *)&ll, sizeof(ll)), 0);
}

static void peer_send(const struct virtio_net_hdr *vh, const uint8_t *f, size_t len)
{
    static const struct virtio_net_hdr none;
    struct iovec iov[2] = {{(void *)(uintptr_t)(vh ? vh : &none), sizeof(none)},
                           {(void *)(uintptr_t)f, len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    assert_int_equal(sendmsg(peer, &msg, 0), (ssize_t)(sizeof(none) + len));
}

/* The next TCP frame; *vlan -1: it had no tag. */
static size_t peer_recv(struct virtio_net_hdr *vh, uint8_t *f, int *vlan)
{
    union {
        struct cmsghdr align;
        char room[256];
    } control;
    struct pollfd p = {.fd = peer, .events = POLLIN};

    for (;;) {
        struct iovec iov[2] = {{vh, sizeof(*vh)}, {f, FRAME_MAX}};
        struct msghdr msg = {.msg_iov = iov,
                             .msg_iovlen = 2,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
        struct tpacket_auxdata aux;
        ssize_t n;

        if (poll(&p, 1, 20000) != 1)
            fail_msg("no frame came to the far end");
        n = recvmsg(peer, &msg, 0);
        assert_true(n >= (ssize_t)sizeof(*vh) + 14);
        memset(&aux, 0, sizeof(aux));
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
            if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA)
                memcpy(&aux, CMSG_DATA(c), sizeof(aux));
        }
        *vlan = aux.tp_status & TP_STATUS_VLAN_VALID ? aux.tp_vlan_tci : -1;
        if (memcmp(f, "\2\2\2\2\2\2\4\4\4\4\4\4", 12) == 0)
            return (size_t)n - sizeof(*vh);
    }
}

/* ---- the port ---- */

static struct port_opts opts_default(void)
{
    return (struct port_opts){.name = "eth0",
                              .device = "near0",
                              .reactors = 2,
                              .rx_queues = 1,
                              .buffer_bytes = 4 << 20,
                              .socket = -1};
}

static void port_up(const struct port_opts *opts)
{
    if (port_open(opts, NULL, &port, &err) < 0)
        fail_msg("%s", err.message);
    if (port_start(port, &err) < 0)
        fail_msg("%s", err.message);
}

static void port_down(void)
{
    port_stop(port);
    pools_are_full(port);
    port_close(port);
    port = NULL;
}

/* The next frame that a test sent; what the kernel sends by itself is passed over. */
static struct rte_mbuf *port_next(unsigned queue)
{
    uint64_t until = reactor_now_us() + DEADLINE_US;
    struct rte_mbuf *m;

    while (reactor_now_us() < until) {
        if (port_rx(port, queue, &m, 1) == 0)
            continue;
        if (memcmp(rte_pktmbuf_mtod(m, void *), "\2\2\2\2\2\2\4\4\4\4\4\4", 12) == 0)
            return m;
        rte_pktmbuf_free(m);
    }
    fail_msg("no frame came");
    return NULL;
}

static uint64_t l4_flags(const struct rte_mbuf *m)
{
    return m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
}

static bool file_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;

    return f ? fclose(f) == 0 && ok : false;
}

/* A network namespace with the veth pair; without root in a user namespace. */
static bool namespace_make(void)
{
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWNET) < 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
            return false;
        snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
        if (!file_write("/proc/self/setgroups", "deny") || !file_write("/proc/self/uid_map", map))
            return false;
        snprintf(map, sizeof(map), "0 %u 1", (unsigned)gid);
        if (!file_write("/proc/self/gid_map", map))
            return false;
    }
    return run("ip link set lo up") == 0 &&
           run("ip link add near0 mtu 9000 type veth peer name far0 mtu 9000") == 0;
}

static int setup(void **state)
{
    static struct err why;

    must("ip link set near0 addrgenmode none up");
    must("ip link set far0 addrgenmode none up");
    test_env_make(REACTOR_IDLE_SPIN, "auto", 2);
    if (mem_mbufs_create("test", 256, PKT_PRIV, 8192 + RTE_PKTMBUF_HEADROOM, -1, &payload, &why) <
        0)
        fail_msg("%s", why.message);
    peer_open();
    return 0;
}

static int teardown(void **state)
{
    if (peer >= 0)
        close(peer);
    if (payload)
        assert_true(rte_mempool_full(payload));
    mem_mbufs_destroy(payload);
    reactor_env_destroy(env);
    return 0;
}

/* ---- opening ---- */

static void refused(const struct port_opts *opts, int rc, const char *remedy)
{
    assert_int_equal(port_open(opts, NULL, &port, &err), rc);
    if (!strstr(err.message, remedy))
        fail_msg("\"%s\" does not say \"%s\"", err.message, remedy);
    port = NULL;
}

static void test_refusals(void **state)
{
    struct port_opts opts = opts_default();

    opts.device = "nosuch0";
    refused(&opts, -ENODEV, "no interface nosuch0");
    opts.device = "lo";
    refused(&opts, -EINVAL, "not an Ethernet interface");
    opts.device = "not_an_interface_name";
    refused(&opts, -EINVAL, "PCI address");
    opts = opts_default();
    opts.mtu = 575;
    refused(&opts, -EINVAL, "576");
    must("ip link set near0 mtu 1500");
    opts.mtu = 9000;
    refused(&opts, -EMSGSIZE, "ip link set near0 mtu 9000");
    must("ip link set near0 mtu 9000");
    must("ip link set near0 down");
    opts = opts_default();
    refused(&opts, -ENETDOWN, "ip link set near0 up");
    must("ip link set near0 up");
}

static void test_twice(void **state)
{
    struct port_opts opts = opts_default();
    struct port *other;

    port_up(&opts);
    opts.name = "eth1";
    assert_int_equal(port_open(&opts, NULL, &other, &err), -EEXIST);
    opts.device = "far0";
    assert_int_equal(port_open(&opts, NULL, &other, &err), 0);
    port_close(other);
    port_down();
}

/* Without CAP_NET_RAW; in a child, which loses it for good. */
static void test_permission(void **state)
{
    struct port_opts opts = opts_default();
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    pid_t child = fork();
    int status;

    if (child == 0) {
        if (syscall(SYS_capset, &head, none) < 0)
            _exit(2);
        _exit(port_open(&opts, NULL, &port, &err) == -EPERM && strstr(err.message, "CAP_NET_RAW")
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_info(void **state)
{
    struct port_opts opts = opts_default();
    struct port_info info;

    port_up(&opts);
    port_info_get(port, &info);
    assert_string_equal(info.backend, "packet");
    assert_string_equal(info.driver, "veth");
    assert_string_equal(info.device, "near0");
    assert_true(info.link_up);
    assert_int_equal(info.mtu, 9000);
    assert_int_equal(info.speed, 10000); /* what veth says of itself */
    assert_int_equal(info.tx_queues, 2);
    assert_int_equal(info.buffers, info.buffers_free);
    port_down();
}

static size_t eal_used(void)
{
    struct rte_malloc_socket_stats stats;
    size_t used = 0;

    for (unsigned i = 0; i < rte_socket_count(); i++) {
        if (rte_malloc_get_socket_stats(rte_socket_id_by_idx(i), &stats) == 0)
            used += stats.heap_allocsz_bytes;
    }
    return used;
}

/* What is told ahead is what a port takes; all comes back. */
static void test_memory(void **state)
{
    struct port_opts opts = opts_default();
    size_t before = eal_used();

    for (unsigned i = 1; i <= 2; i++) {
        size_t told = port_memory(&opts), took;

        port_up(&opts);
        took = eal_used() - before;
        print_message("told %zu, took %zu\n", told, took);
        assert_true(took <= told);
        assert_true(took > told - told / 50);
        port_down();
        assert_int_equal(eal_used(), before);
        opts.buffer_bytes = i * (6 << 20);
        opts.reactors = i;
    }
}

/* ---- receiving ---- */

static void test_rx_short(void **state)
{
    struct port_opts opts = opts_default();
    struct rte_mbuf *m;
    size_t len;

    port_up(&opts);
    for (size_t size = 0; size < 1800; size += 31) {
        len = frame_make(frame, size % 2, size, (unsigned)size, SUM_WHOLE);
        frame[len - 1] ^= 1; /* nobody on the way looks at a sum */
        peer_send(NULL, frame, len);
        m = port_next(0);
        assert_int_equal(frame_read(m, got), len);
        assert_memory_equal(got, frame, len);
        assert_int_equal(l4_flags(m), RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN);
        assert_int_equal(m->ol_flags & (RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_VLAN_STRIPPED), 0);
        assert_ptr_equal(m->pool, port->rx_small);
        rte_pktmbuf_free(m);
    }
    port_down();
}

static void test_rx_tso(void **state)
{
    static const size_t size[] = {2000, 9000, 9001, 20000, 65517 - 40 - 20};
    struct port_opts opts = opts_default();

    port_up(&opts);
    for (unsigned i = 0; i < 2 * RTE_DIM(size); i++) {
        bool v6 = i % 2;
        size_t len = frame_make(frame, v6, size[i / 2], i, SUM_PSEUDO);
        struct virtio_net_hdr vh = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                    .gso_type =
                                        v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4,
                                    .gso_size = 1448,
                                    .hdr_len = v6 ? FRAME_HEAD6 : FRAME_HEAD4,
                                    .csum_start = v6 ? 54 : 34,
                                    .csum_offset = 16};
        struct rte_mbuf *m;

        peer_send(&vh, frame, len);
        m = port_next(0);
        assert_int_equal(frame_read(m, got), len);
        assert_memory_equal(got, frame, len);
        assert_int_equal(l4_flags(m), RTE_MBUF_F_RX_L4_CKSUM_NONE);
        assert_true(m->ol_flags & RTE_MBUF_F_RX_LRO);
        assert_int_equal(m->tso_segsz, 1448);
        for (struct rte_mbuf *s = m; s; s = s->next)
            assert_ptr_equal(mem_mbuf_of(mem_mbufs_region(s->pool),
                                         rte_pktmbuf_mtod_offset(s, void *, s->data_len - 1)),
                             s);
        rte_pktmbuf_free(m);
    }
    port_down();
}

static void vlan_comes(size_t size)
{
    size_t len;
    struct rte_mbuf *m;

    len = frame_make(frame, false, size, 5, SUM_WHOLE);
    memmove(frame + 16, frame + 12, len - 12);
    put16(frame + 12, 0x8100);
    put16(frame + 14, 0x6007);
    peer_send(NULL, frame, len + 4);
    m = port_next(0);
    assert_int_equal(frame_read(m, got), len);
    assert_true(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED);
    assert_int_equal(m->vlan_tci, 0x6007);
    frame_make(frame, false, size, 5, SUM_WHOLE);
    assert_memory_equal(got, frame, len);
    rte_pktmbuf_free(m);
}

static void test_rx_vlan(void **state)
{
    struct port_opts opts = opts_default();

    port_up(&opts);
    vlan_comes(100);
    vlan_comes(8000);
    port_down();
}

/* A frame longer than the MTU, as the kernel's TCP hands it on. */
static size_t peer_send_tso(unsigned seed, size_t payload_len)
{
    size_t len = frame_make(frame, false, payload_len, seed, SUM_PSEUDO);
    struct virtio_net_hdr vh = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                .gso_size = 1448,
                                .hdr_len = FRAME_HEAD4,
                                .csum_start = 34,
                                .csum_offset = 16};

    peer_send(&vh, frame, len);
    return len;
}

/* Frames of different lengths go through different rings. One by one, and many at a time. */
static void test_rx_order(void **state)
{
    static const size_t sizes[] = {10, 8000, 40000, 60000};
    struct port_opts opts = opts_default();
    struct rte_mbuf *m[PORT_BURST];
    uint64_t seed = 7;

    port_up(&opts);
    for (unsigned round = 0; round < 50; round++) {
        uint64_t until = reactor_now_us() + DEADLINE_US;
        unsigned n = 0;

        for (unsigned i = 0; i < 40; i++)
            peer_send_tso(i, sizes[test_random(&seed) % RTE_DIM(sizes)]);
        while (n < 40 && reactor_now_us() < until) {
            unsigned came = port_rx(port, 0, m, round % 2 ? 1 : PORT_BURST);

            for (unsigned k = 0; k < came; k++, n++) {
                frame_read(m[k], got);
                assert_int_equal(get16(got + 14 + 20 + 4), n);
                rte_pktmbuf_free(m[k]);
            }
        }
        assert_int_equal(n, 40);
    }
    port_down();
}

/* More of the longest frames than there is room for, and fewer buffers than frames: each comes
 * whole or is counted, and what comes later is not held up by them. */
static void test_rx_lost_long(void **state)
{
    struct port_opts opts = opts_default();
    struct port_queue_stats stats;
    unsigned sent = 700, came = 0;
    uint64_t until = reactor_now_us() + DEADLINE_US;

    port_up(&opts);
    for (unsigned i = 0; i < sent; i++)
        peer_send_tso(i, 50000);
    do {
        struct rte_mbuf *m[PORT_BURST];
        unsigned n = port_rx(port, 0, m, PORT_BURST);

        for (unsigned i = 0; i < n; i++)
            assert_int_equal(frame_read(m[i], got), FRAME_HEAD4 + 50000);
        rte_pktmbuf_free_bulk(m, n);
        came += n;
        port_stats_get(port, false, 0, &stats);
    } while (came + stats.no_buffer < sent && reactor_now_us() < until);
    assert_int_equal(came + stats.no_buffer, sent);
    assert_true(came >= 100);
    assert_int_equal(stats.bad, 0);
    peer_send_tso(1, 50000);
    rte_pktmbuf_free(port_next(0));
    port_down();
}

/* No buffer is free for a frame that waits in the socket: it is lost, the next one is not. */
static void test_rx_no_buffer(void **state)
{
    struct port_opts opts = opts_default();
    struct rte_mbuf *held[1024], *m;
    struct port_queue_stats stats;
    unsigned n = 0;

    opts.buffer_bytes = 1 << 20;
    port_up(&opts);
    for (uint64_t until = reactor_now_us() + DEADLINE_US; reactor_now_us() < until;) {
        port_stats_get(port, false, 0, &stats);
        if (stats.no_buffer > 0 || n == RTE_DIM(held))
            break;
        peer_send_tso(n, 60000);
        for (unsigned look = 0; look < 1000 && port_rx(port, 0, &m, 1) == 1; look++)
            held[n++] = m;
    }
    assert_int_equal(stats.no_buffer, 1);
    assert_true(n > 10);
    rte_pktmbuf_free_bulk(held, n);
    for (unsigned i = 0; i < 5; i++) {
        size_t len = peer_send_tso(i, 60000);

        m = port_next(0);
        assert_int_equal(frame_read(m, got), len);
        assert_memory_equal(got, frame, len);
        rte_pktmbuf_free(m);
    }
    port_down();
}

/* Should a socket not have the frame that a slot begins: what does not fit is dropped and counted,
 * and they find each other again. */
static void test_rx_astray(void **state)
{
    struct port_opts opts = opts_default();
    struct port_queue_stats stats;
    struct packet_dev *dev;
    struct rte_mbuf *m[PORT_BURST];
    struct virtio_net_hdr head;
    size_t len;

    port_up(&opts);
    dev = port->dev;
    assert_true(dev->rx[0]->ring[PACKET_LONG].handed);
    for (unsigned i = 0; i < 4; i++)
        peer_send_tso(i, 60000);
    assert_int_equal(recv(dev->rx[0]->ring[PACKET_LONG].fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(port_rx(port, 0, m, PORT_BURST), 0);
    port_stats_get(port, false, 0, &stats);
    assert_int_equal(stats.bad, 4);
    len = peer_send_tso(9, 60000);
    m[0] = port_next(0);
    assert_int_equal(frame_read(m[0], got), len);
    assert_memory_equal(got, frame, len);
    rte_pktmbuf_free(m[0]);
    port_down();
}

static void net_admin(bool effective)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];

    assert_int_equal(syscall(SYS_capget, &head, caps), 0);
    if (effective)
        caps[0].effective |= 1u << CAP_NET_ADMIN;
    else
        caps[0].effective &= ~(1u << CAP_NET_ADMIN);
    assert_int_equal(syscall(SYS_capset, &head, caps), 0);
}

/* Without CAP_NET_ADMIN no socket holds frames: slots do. */
static void test_rx_unprivileged(void **state)
{
    struct port_opts opts = opts_default();
    struct packet_dev *dev;
    struct rte_mbuf *m;
    size_t len;

    net_admin(false);
    port_up(&opts);
    net_admin(true);
    dev = port->dev;
    assert_false(dev->rx[0]->ring[PACKET_LONG].handed);
    for (unsigned i = 0; i < 400; i++) {
        len = peer_send_tso(i, i * 160);
        m = port_next(0);
        assert_int_equal(frame_read(m, got), len);
        assert_memory_equal(got, frame, len);
        rte_pktmbuf_free(m);
    }
    port_down();
}

static unsigned queue_of(unsigned queues)
{
    uint64_t until = reactor_now_us() + DEADLINE_US;

    while (reactor_now_us() < until) {
        for (unsigned q = 0; q < queues; q++) {
            struct rte_mbuf *m;

            if (port_rx(port, q, &m, 1) == 0)
                continue;
            rte_pktmbuf_free(m);
            return q;
        }
    }
    fail_msg("no frame came");
    return 0;
}

/* A pair of addresses has one queue, whatever the ports; pairs use them all. */
static void test_rx_queues(void **state)
{
    struct port_opts opts = opts_default();
    unsigned used[3] = {0};

    opts.reactors = opts.rx_queues = 3;
    port_up(&opts);
    for (unsigned host = 1; host < 60; host++) {
        size_t len = frame_make(frame, host % 2, 50, host, SUM_WHOLE);
        unsigned first = 0;

        frame[host % 2 ? 14 + 23 : 14 + 15] = (uint8_t)host;
        for (unsigned i = 0; i < 4; i++) {
            unsigned q;

            put16(frame + (host % 2 ? 54 : 34), 1000 + i * 77);
            peer_send(NULL, frame, i == 3 ? len + 4000 : len);
            q = queue_of(3);
            first = i == 0 ? q : first;
            assert_int_equal(q, first);
        }
        used[first]++;
    }
    for (unsigned q = 0; q < 3; q++)
        assert_true(used[q] > 5);
    port_down();
}

static void test_rx_sleeps(void **state)
{
    struct port_opts opts = opts_default();
    struct pollfd p = {.events = POLLIN};

    port_up(&opts);
    p.fd = port->ops->rx_fd(port, 0);
    assert_true(p.fd >= 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(poll(&p, 1, 0), 0);
        peer_send_tso(i, (i % 3) * 20000 + 10);
        assert_int_equal(poll(&p, 1, 20000), 1);
        rte_pktmbuf_free(port_next(0));
    }
    port_down();
}

/* Nobody reads: what the rings do not hold is counted, the rest is there, and then it goes on. */
static void test_rx_lost(void **state)
{
    struct port_opts opts = opts_default();
    struct port_queue_stats stats;
    unsigned sent = 3000, came = 0;
    uint64_t until = reactor_now_us() + DEADLINE_US;
    size_t len = frame_make(frame, false, 10, 1, SUM_WHOLE);

    port_up(&opts);
    for (unsigned i = 0; i < sent; i++)
        peer_send(NULL, frame, len);
    do {
        struct rte_mbuf *m[PORT_BURST];
        unsigned n = port_rx(port, 0, m, PORT_BURST);

        rte_pktmbuf_free_bulk(m, n);
        came += n;
        port_stats_get(port, false, 0, &stats);
    } while (came + stats.no_buffer < sent && reactor_now_us() < until);
    assert_int_equal(came + stats.no_buffer, sent);
    assert_true(stats.no_buffer > 0);
    assert_int_equal(stats.packets, came);
    peer_send(NULL, frame, len);
    rte_pktmbuf_free(port_next(0));
    port_down();
}

/* ---- sending ---- */

static void send_one(struct rte_mbuf *m)
{
    assert_int_equal(port_tx(port, 1, &m, 1), 1);
}

static void test_tx_short(void **state)
{
    struct port_opts opts = opts_default();
    struct virtio_net_hdr vh;
    int vlan;

    port_up(&opts);
    for (size_t size = 0; size < 8900; size += 801) {
        bool v6 = size % 2;
        size_t head = v6 ? FRAME_HEAD6 : FRAME_HEAD4, len;
        struct rte_mbuf *m;

        len = frame_make(frame, v6, size, (unsigned)size, SUM_PSEUDO);
        if (!v6)
            put16(frame + 24, 0xffff); /* is to be computed */
        m = chain_make(port, payload, frame, head, len, size / 3 + 1);
        m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
        send_one(m);
        assert_int_equal(peer_recv(&vh, got, &vlan), len);
        assert_int_equal(vlan, -1);
        frame_make(frame, v6, size, (unsigned)size, SUM_PSEUDO);
        assert_memory_equal(got, frame, len);
        assert_int_equal(vh.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM); /* veth leaves it to us again */
        assert_int_equal(vh.csum_start, head - 20);
        assert_int_equal(vh.csum_offset, 16);
        assert_int_equal(vh.gso_type, VIRTIO_NET_HDR_GSO_NONE);
    }
    port_down();
}

static void test_tx_tso(void **state)
{
    static const size_t size[] = {1449, 8949, 30000, 65517 - 40 - 20};
    struct port_opts opts = opts_default();
    struct virtio_net_hdr vh;
    int vlan;

    port_up(&opts);
    for (unsigned i = 0; i < 2 * RTE_DIM(size); i++) {
        bool v6 = i % 2;
        size_t head = v6 ? FRAME_HEAD6 : FRAME_HEAD4, len;
        struct rte_mbuf *m;

        len = frame_make(frame, v6, size[i / 2], i, SUM_PSEUDO_NO_LENGTH);
        m = chain_make(port, payload, frame, head, len, 4096);
        m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_TCP_SEG;
        m->tso_segsz = 1448;
        send_one(m);
        assert_int_equal(peer_recv(&vh, got, &vlan), len);
        frame_make(frame, v6, size[i / 2], i, SUM_PSEUDO);
        assert_memory_equal(got, frame, len);
        assert_int_equal(vh.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
        assert_int_equal(vh.gso_type, v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4);
        assert_int_equal(vh.gso_size, 1448);
    }
    port_down();
}

/* A far end without offloads: the kernel finishes what we left to it, tags included. */
static void test_tx_finished(void **state)
{
    struct port_opts opts = opts_default();
    struct virtio_net_hdr vh;
    size_t len;
    struct rte_mbuf *m;
    int vlan;

    must("ethtool -K near0 tx off tso off gso off txvlan off >/dev/null");
    port_up(&opts);
    len = frame_make(frame, false, 5 * 1000, 9, SUM_PSEUDO_NO_LENGTH);
    m = chain_make(port, payload, frame, FRAME_HEAD4, len, 700);
    m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_VLAN;
    m->vlan_tci = 7;
    m->tso_segsz = 1000;
    send_one(m);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(peer_recv(&vh, got, &vlan), FRAME_HEAD4 + 1000);
        assert_int_equal(vlan, 7);
        assert_int_equal(vh.gso_type, VIRTIO_NET_HDR_GSO_NONE);
        assert_int_equal(naive_sum(got + 14, 20, 0), 0xffff);
        assert_int_equal(naive_sum(got + 34, 1020, pseudo4(got + 14, 1020)), 0xffff);
        for (unsigned j = 0; j < 1000; j++)
            assert_int_equal(got[FRAME_HEAD4 + j], pattern(9, i * 1000 + j));
    }
    port_down();
    must("ethtool -K near0 tx on tso on gso on txvlan on >/dev/null");
}

/* A burst with frames that nobody can send among good ones. */
static void test_tx_bad(void **state)
{
    struct port_opts opts = opts_default();
    struct port_queue_stats stats;
    struct virtio_net_hdr vh;
    struct rte_mbuf *m[5];
    int vlan;

    port_up(&opts);
    for (unsigned i = 0; i < 5; i++) {
        size_t size = i == 1 ? 9001 : 100; /* one above the MTU */

        m[i] = chain_make(port, payload, frame, FRAME_HEAD4,
                          frame_make(frame, false, size, i, SUM_PSEUDO), 0);
        m[i]->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    }
    m[3]->l2_len = 127; /* headers behind the end */
    assert_int_equal(port_tx(port, 0, m, 5), 5);
    for (unsigned i = 0; i < 5; i += 2) {
        assert_int_equal(peer_recv(&vh, got, &vlan), FRAME_HEAD4 + 100);
        assert_int_equal(get16(got + 38), i);
    }
    port_stats_get(port, true, 0, &stats);
    assert_int_equal(stats.bad, 2);
    port_down();
}

/* What we send does not come back to us. */
static void test_tx_not_received(void **state)
{
    struct port_opts opts = opts_default();
    struct rte_mbuf *m;
    size_t len = frame_make(frame, false, 10, 1, SUM_WHOLE);

    port_up(&opts);
    m = chain_make(port, payload, frame, FRAME_HEAD4, len, 0);
    send_one(m);
    frame_make(frame, false, 10, 2, SUM_WHOLE);
    peer_send(NULL, frame, len);
    m = port_next(0);
    assert_int_equal(get16(rte_pktmbuf_mtod_offset(m, uint8_t *, 38)), 2);
    rte_pktmbuf_free(m);
    port_down();
    peer_open(); /* forget what it has not read */
}

/* ---- the interface comes and goes ---- */

static bool came_in(void)
{
    uint64_t until = reactor_now_us() + 10000;
    struct rte_mbuf *m;
    bool ours = false;

    while (!ours && reactor_now_us() < until) {
        if (port_rx(port, 0, &m, 1) == 0)
            continue;
        ours = memcmp(rte_pktmbuf_mtod(m, void *), "\2\2\2\2\2\2\4\4\4\4\4\4", 12) == 0;
        rte_pktmbuf_free(m);
    }
    return ours;
}

static bool went_out(void)
{
    struct pollfd p = {.fd = peer, .events = POLLIN};
    bool ours = false;

    while (!ours && poll(&p, 1, 10) == 1) {
        ssize_t n = recv(peer, got, sizeof(got), 0);

        ours = n > 22 && memcmp(got + 10, "\2\2\2\2\2\2\4\4\4\4\4\4", 12) == 0;
    }
    return ours;
}

/* An interface may say that it is up some time before frames pass. */
static void passes_both_ways(void)
{
    size_t len = frame_make(frame, false, 10, 1, SUM_WHOLE);
    uint64_t until = reactor_now_us() + DEADLINE_US;

    do {
        peer_send(NULL, frame, len);
    } while (!came_in() && reactor_now_us() < until);
    do {
        send_one(chain_make(port, payload, frame, FRAME_HEAD4, len, 0));
    } while (!went_out() && reactor_now_us() < until);
    assert_true(reactor_now_us() < until);
}

/* The descriptor does not wake a reactor for ever once the error was seen. */
static void is_quiet(void)
{
    struct pollfd p = {.fd = port->ops->rx_fd(port, 0), .events = POLLIN};
    uint64_t until = reactor_now_us() + DEADLINE_US;
    struct rte_mbuf *m;

    while (poll(&p, 1, 0) != 0 && reactor_now_us() < until) {
        if (port_rx(port, 0, &m, 1) > 0)
            rte_pktmbuf_free(m);
    }
    assert_int_equal(poll(&p, 1, 0), 0);
}

static void test_link(void **state)
{
    struct port_opts opts = opts_default();
    struct port_queue_stats stats;
    unsigned speed;

    port_up(&opts);
    passes_both_ways();
    must("ip link set far0 down"); /* no carrier */
    WAIT_FOR(!port->ops->link(port, &speed));
    assert_int_equal(speed, 0);
    is_quiet();
    must("ip link set far0 up");
    WAIT_FOR(port->ops->link(port, &speed));
    peer_open();
    passes_both_ways();

    must("ip link set near0 down");
    assert_false(port->ops->link(port, NULL));
    is_quiet();
    send_one(chain_make(port, payload, frame, FRAME_HEAD4,
                        frame_make(frame, false, 10, 1, SUM_WHOLE), 0));
    port_stats_get(port, true, 1, &stats);
    assert_int_equal(stats.bad, 1);
    must("ip link set near0 up");
    WAIT_FOR(port->ops->link(port, NULL));
    passes_both_ways();

    must("ip link del near0");
    assert_false(port->ops->link(port, NULL));
    is_quiet();
    send_one(chain_make(port, payload, frame, FRAME_HEAD4,
                        frame_make(frame, false, 10, 1, SUM_WHOLE), 0));
    port_stats_get(port, true, 1, &stats);
    assert_int_equal(stats.bad, 2);
    must("ip link add near0 mtu 9000 type veth peer name far0 mtu 9000");
    must("ip link set near0 addrgenmode none up");
    must("ip link set far0 addrgenmode none up");
    WAIT_FOR(port->ops->link(port, NULL));
    peer_open();
    passes_both_ways();
    port_down();
}

/* ---- the host's addresses ---- */

static void test_host_has(void **state)
{
    uint8_t a[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    char ifname[16];

    assert_true(port_host_has(a, ifname));
    assert_string_equal(ifname, "lo");
    a[15] = 2;
    assert_false(port_host_has(a, ifname));
    must("ip addr add 10.9.9.1/24 dev near0");
    memcpy(a + 12, "\x0a\x09\x09\x01", 4);
    assert_true(port_host_has(a, ifname));
    assert_string_equal(ifname, "near0");
    must("ip addr del 10.9.9.1/24 dev near0");
    assert_false(port_host_has(a, ifname));
    memset(a, 0, sizeof(a));
    a[15] = 1;
    assert_true(port_host_has(a, ifname)); /* ::1 */
}

static void test_needs_namespace(void **state)
{
    skip();
}

int main(void)
{
    const struct CMUnitTest cannot[] = {cmocka_unit_test(test_needs_namespace)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_permission),      cmocka_unit_test(test_info),
        cmocka_unit_test(test_memory),          cmocka_unit_test(test_rx_short),
        cmocka_unit_test(test_rx_tso),          cmocka_unit_test(test_rx_vlan),
        cmocka_unit_test(test_rx_order),        cmocka_unit_test(test_rx_queues),
        cmocka_unit_test(test_rx_sleeps),       cmocka_unit_test(test_rx_lost),
        cmocka_unit_test(test_rx_lost_long),    cmocka_unit_test(test_rx_no_buffer),
        cmocka_unit_test(test_rx_astray),       cmocka_unit_test(test_rx_unprivileged),
        cmocka_unit_test(test_tx_short),        cmocka_unit_test(test_tx_tso),
        cmocka_unit_test(test_tx_finished),     cmocka_unit_test(test_tx_bad),
        cmocka_unit_test(test_tx_not_received), cmocka_unit_test(test_link),
        cmocka_unit_test(test_host_has),
    };

    if (!namespace_make())
        return cmocka_run_group_tests(cannot, NULL, NULL);
    return cmocka_run_group_tests(tests, setup, teardown);
}
