/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many connections over a port that takes few frames: two whole stacks (TCP, IP, ports) on one
 * reactor and a clock of the test's own, and a wire between them that takes so many frames in a
 * round of the reactor. Nothing of our own may be lost before it.
 */
#include "reactor_test.h"

#include <arpa/inet.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/reactor/mem_mbuf.h"

#define CONNS   200
#define BYTES   (1u << 20) /* that each sends */
#define STEP_US 100
#define RX_ROOM (RTE_PKTMBUF_HEADROOM + 2048)
#define RX_BUFS 16384
#define BLOCKS  64 /* buffers that all payload lies in, over and over */
#define BLOCK   2048u
#define PERIOD  ((uint64_t)BLOCKS * BLOCK)

/* ---- the wire ---- */

static struct side {
    struct port *port;
    struct inet *inet;
    struct tcp *tcp;
    struct rte_mbuf *in[RX_BUFS];
    unsigned head, tail;
    unsigned room; /* frames it still takes in this round */
    unsigned most; /* frames that it took in one round */
    bool tso;
} side[2];

static unsigned sides_open;
static uint64_t now_us = UINT64_C(1000000000);
static struct rte_mempool *payload;
static uint8_t *block[BLOCKS];

static struct side *side_of(const struct port *port)
{
    return port->dev;
}

static int wire_open(struct port *port, const struct port_opts *opts, struct err *err)
{
    struct side *s = &side[sides_open++];
    char name[16];

    snprintf(name, sizeof(name), "wire_%u", sides_open);
    port->dev = s;
    port->caps = PORT_TX_CHAINS | PORT_TX_CSUM | PORT_RX_CSUM;
    if (s->tso) {
        port->caps |= PORT_TX_TSO;
        port->tso_max = 65535;
    }
    port->mtu = 1500;
    port->rx_queues = port->tx_queues = 1;
    port->mac = (struct rte_ether_addr){{2, 0, 0, 0, 0, (uint8_t)sides_open}};
    if (mem_mbufs_create(name, RX_BUFS, PKT_PRIV, RX_ROOM, -1, &port->rx_small, err) < 0)
        return -ENOMEM;
    port->rx_large = port->rx_small;
    return 0;
}

static int wire_start(struct port *port, struct err *err)
{
    return 0;
}

static void wire_stop(struct port *port)
{
}

static void wire_close(struct port *port)
{
    mem_mbufs_destroy(port->rx_small);
    port->rx_small = port->rx_large = NULL;
}

static unsigned wire_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct side *s = side_of(port);
    unsigned got = 0;

    while (got < n && s->head != s->tail)
        pkts[got++] = s->in[s->head++ % RX_BUFS];
    return got;
}

/* What the other end gets of a frame; one that the device would cut comes as one put together. */
static struct rte_mbuf *carry(const struct rte_mbuf *m, struct port *to)
{
    struct rte_mbuf *first = NULL, *last = NULL;
    uint32_t at = 0;

    while (at < m->pkt_len) {
        struct rte_mbuf *p = rte_pktmbuf_alloc(to->rx_small);
        uint32_t n = min(m->pkt_len - at, (uint32_t)RX_ROOM - RTE_PKTMBUF_HEADROOM);
        uint8_t *put;
        const uint8_t *from;

        assert_non_null(p);
        put = (uint8_t *)rte_pktmbuf_append(p, (uint16_t)n);
        from = rte_pktmbuf_read(m, at, n, put);
        if (from != put)
            memcpy(put, from, n);
        at += n;
        if (!first) {
            first = p;
        } else {
            last->next = p;
            first->nb_segs++;
            first->pkt_len += n;
        }
        last = p;
    }
    first->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    if ((m->ol_flags & RTE_MBUF_F_TX_TCP_SEG) != 0) {
        first->ol_flags |= RTE_MBUF_F_RX_LRO;
        first->tso_segsz = m->tso_segsz;
    }
    return first;
}

static unsigned wire_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct side *s = side_of(port), *to = &side[s == side];

    n = min(n, s->room);
    for (unsigned i = 0; i < n; i++) {
        assert_true(to->tail - to->head < RX_BUFS);
        to->in[to->tail++ % RX_BUFS] = carry(pkts[i], to->port);
        rte_pktmbuf_free(pkts[i]);
    }
    s->room -= n;
    return n;
}

static int wire_rx_fd(struct port *port, unsigned queue)
{
    return -1;
}

static bool wire_link(struct port *port, unsigned *speed)
{
    *speed = 10000;
    return true;
}

static unsigned wire_xstats(struct port *port, struct port_xstat *out, unsigned max)
{
    return 0;
}

static const struct port_ops wire_ops = {
    .name = "wire",
    .open = wire_open,
    .start = wire_start,
    .stop = wire_stop,
    .close = wire_close,
    .rx = wire_rx,
    .tx = wire_tx,
    .rx_fd = wire_rx_fd,
    .link = wire_link,
    .xstats = wire_xstats,
};

/* ---- time ---- */

static unsigned frames_a_round;

static void round_of(unsigned frames)
{
    now_us += STEP_US;
    reactor_test_clock(now_us);
    side[0].room = side[1].room = frames;
    reactor_bind(reactor_at(env, 0));
    reactor_step(reactor_self(), 0);
    reactor_bind(reactor_control(env));
    reactor_step(reactor_self(), 0);
    reactor_bind(reactor_at(env, 0));
    side[0].most = max(side[0].most, frames - side[0].room);
}

#define UNTIL(cond, rounds)                                                                        \
    do {                                                                                           \
        for (unsigned n_ = 0; !(cond); n_++) {                                                     \
            if (n_ == (rounds))                                                                    \
                fail_msg("never happened: %s", #cond);                                             \
            round_of(frames_a_round);                                                              \
        }                                                                                          \
    } while (0)

/* ---- users ---- */

static struct user {
    struct stream *s;
    bool connected, closed;
    uint64_t sent, got;
} tx_user[CONNS], rx_user[CONNS];

static unsigned accepted_n, connected_n, done_n;
static uint64_t least_at_first_done;

static void push(struct user *u)
{
    while (u->sent < BYTES) {
        struct mem_seg segs[16];
        uint64_t left = BYTES - u->sent, all = 0;
        unsigned n = 0;
        ssize_t took;

        for (; n < RTE_DIM(segs) && left > 0; n++) {
            uint64_t at = (u->sent + all) % PERIOD;
            uint32_t len = (uint32_t)min(left, (uint64_t)(BLOCK - at % BLOCK));

            segs[n] =
                (struct mem_seg){block[at / BLOCK] + at % BLOCK, len, mem_mbufs_region(payload), 0};
            all += len;
            left -= len;
        }
        took = u->s->ops->send(u->s, segs, n, false);
        assert_true(took >= 0);
        u->sent += (uint64_t)took;
        if ((uint64_t)took < all)
            return;
    }
}

static void note_done(void)
{
    if (done_n++ > 0)
        return;
    least_at_first_done = BYTES;
    for (unsigned i = 0; i < CONNS; i++)
        least_at_first_done = min(least_at_first_done, rx_user[i].got);
}

static void read_all(struct user *u)
{
    struct mem_seg segs[16];
    size_t got, truesize;
    unsigned n;

    while ((got = u->s->ops->take(u->s, 1u << 20, segs, RTE_DIM(segs), &n, &truesize)) > 0) {
        for (unsigned i = 0; i < n; i++) {
            for (uint32_t done = 0; done < segs[i].len;) {
                uint64_t at = (u->got + done) % PERIOD;
                uint32_t len = (uint32_t)min(segs[i].len - done, BLOCK - at % BLOCK);

                assert_memory_equal(segs[i].addr + done, block[at / BLOCK] + at % BLOCK, len);
                done += len;
            }
            u->got += segs[i].len;
        }
        u->s->ops->give_back(segs, n);
        if (u->got == BYTES)
            note_done();
    }
    u->s->ops->rx_window(u->s, 256 << 10, 512 << 10);
}

static void on_connected(void *user)
{
    ((struct user *)user)->connected = true;
    connected_n++;
}

static void on_readable(void *user)
{
    read_all(user);
}

static void on_writable(void *user)
{
    push(user);
}

static void on_acked(void *user)
{
}

static void on_closed(void *user, enum stream_end end)
{
    ((struct user *)user)->closed = true;
}

static const struct stream_events events = {on_connected, on_readable, on_writable, on_acked,
                                            on_closed};

static void on_accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    struct user *u = &rx_user[accepted_n++];

    u->s = s;
    assert_int_equal(s->ops->attach(s, &events, u), 0);
    s->ops->rx_window(s, 256 << 10, 512 << 10);
}

/* ---- making ---- */

static struct inet_addr address(unsigned i)
{
    return (struct inet_addr){{[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(i + 1)}};
}

static void open_side(unsigned i)
{
    struct port_opts po = {.name = i == 0 ? "w0" : "w1",
                           .device = i == 0 ? "w0" : "w1",
                           .reactors = 1,
                           .rx_queues = 1,
                           .socket = -1};
    struct inet_prefix addr = {.addr = address(i), .bits = 24};
    struct inet_opts io = {.env = env};
    struct inet_if_opts ifo = {.name = po.name, .addr = &addr, .addrs = 1};
    struct tcp_opts to = {.max_conns = 2 * CONNS, .wscale_max = 6};
    struct side *s = &side[i];
    struct err err = {0};

    if (port_open(&po, &wire_ops, &s->port, &err) < 0 || port_start(s->port, &err) < 0 ||
        inet_create(&io, &s->inet, &err) < 0 || tcp_create(&to, s->inet, &s->tcp, &err) < 0)
        fail_msg("%s", err.message);
    ifo.port = s->port;
    if (inet_if_add(s->inet, &ifo, &err) < 0 || inet_start(s->inet, &err) < 0)
        fail_msg("%s", err.message);
}

static bool stopped;

static void has_stopped(struct reactor_task *task)
{
    stopped = true;
}

static void close_side(unsigned i)
{
    struct reactor_task tcp_done = {.fn = has_stopped}, inet_done = {.fn = has_stopped};
    struct side *s = &side[i];

    stopped = false;
    reactor_bind(reactor_control(env));
    tcp_stop(s->tcp, &tcp_done);
    UNTIL(stopped, 30000);
    stopped = false;
    reactor_bind(reactor_control(env));
    inet_stop(s->inet, &inet_done);
    UNTIL(stopped, 100);
}

static void free_side(unsigned i)
{
    struct side *s = &side[i];

    while (s->head != s->tail)
        rte_pktmbuf_free(s->in[s->head++ % RX_BUFS]);
    reactor_bind(reactor_control(env));
    tcp_destroy(s->tcp);
    inet_destroy(s->inet);
    port_stop(s->port);
    assert_int_equal(rte_mempool_in_use_count(s->port->rx_small), 0);
    assert_int_equal(rte_mempool_in_use_count(s->port->tx_pool), 0);
    port_close(s->port);
}

static void dial(struct user *u, uint16_t port)
{
    struct inet_addr from = address(0), to = address(1);
    union stream_addr local = {.in = {.sin_family = AF_INET}}, remote = local;

    memcpy(&local.in.sin_addr, from.b + 12, 4);
    memcpy(&remote.in.sin_addr, to.b + 12, 4);
    remote.in.sin_port = htons(port);
    assert_int_equal(stream_tcp.connect(side[0].tcp, &local, NULL, &remote, -1, &events, u, &u->s),
                     0);
}

/* The sum over all connections of the sender's. */
static void look(uint64_t *limited_us, uint64_t *resent)
{
    static struct tcp_info row[CONNS];
    uint32_t at = 0;
    unsigned n = tcp_info_rows(side[0].tcp, &at, row, CONNS);

    *limited_us = *resent = 0;
    for (unsigned i = 0; i < n; i++) {
        *limited_us += row[i].limited_port_us;
        *resent += row[i].resent;
    }
}

/* Opens two sides with CONNS connections between them. */
static struct stream_listener *connect_all(bool tso)
{
    union stream_addr local = {.in = {.sin_family = AF_INET, .sin_port = htons(988)}};
    struct inet_addr to = address(1);
    struct stream_listener *l;

    memset(side, 0, sizeof(side));
    memset(tx_user, 0, sizeof(tx_user));
    memset(rx_user, 0, sizeof(rx_user));
    sides_open = accepted_n = connected_n = done_n = 0;
    side[0].tso = side[1].tso = tso;
    frames_a_round = 64;
    reactor_bind(reactor_control(env));
    open_side(0);
    open_side(1);
    memcpy(&local.in.sin_addr, to.b + 12, 4);
    reactor_bind(reactor_control(env));
    assert_int_equal(
        stream_tcp.listen(side[1].tcp, &local, NULL, reactor_at(env, 0), on_accepted, NULL, &l), 0);
    for (unsigned i = 0; i < 100; i++)
        round_of(64);
    dial(&tx_user[0], 988); /* the neighbours get to know each other */
    UNTIL(connected_n == 1, 10000);
    for (unsigned i = 1; i < CONNS; i++)
        dial(&tx_user[i], 988);
    UNTIL(connected_n == CONNS && accepted_n == CONNS, 30000);
    return l;
}

static void close_all(struct stream_listener *l)
{
    frames_a_round = 64;
    for (unsigned i = 0; i < CONNS; i++) {
        tx_user[i].s->ops->close(tx_user[i].s, true);
        rx_user[i].s->ops->close(rx_user[i].s, true);
    }
    stream_tcp.unlisten(l);
    for (unsigned i = 0; i < 100; i++)
        round_of(64);
    close_side(0);
    close_side(1);
    free_side(0);
    free_side(1);
}

static void crowd(bool tso, unsigned frames)
{
    struct stream_listener *l = connect_all(tso);
    uint64_t drops[PKT_DROP_COUNT], limited_us, resent;

    frames_a_round = frames;
    for (unsigned i = 0; i < CONNS; i++)
        push(&tx_user[i]);
    UNTIL(done_n == CONNS, 100000);
    look(&limited_us, &resent);
    inet_drops_get(side[0].inet, drops);
    print_message("waited %" PRIu64 " ms, %" PRIu64 " sent again; when the first was done the last "
                  "had %" PRIu64 "; dropped %" PRIu64 " (port), %" PRIu64 " (no buffer)\n",
                  limited_us / 1000, resent, least_at_first_done, drops[PKT_DROP_PORT_FULL],
                  drops[PKT_DROP_NO_MBUF]);
    assert_int_equal(drops[PKT_DROP_PORT_FULL], 0);
    assert_int_equal(drops[PKT_DROP_NO_MBUF], 0);
    assert_true(limited_us > 0); /* it was the port that held them back */
    assert_true(least_at_first_done >= BYTES / 4);
    inet_drops_get(side[1].inet, drops);
    assert_int_equal(drops[PKT_DROP_PORT_FULL], 0);
    close_all(l);
}

static void test_crowd(void **state)
{
    crowd(false, 16);
}

/* Frames that the port is to cut: few, but of many buffers each. */
static void test_crowd_tso(void **state)
{
    crowd(true, 1);
}

/* Sends BYTES over each connection. */
static void send_all(void)
{
    done_n = 0;
    for (unsigned i = 0; i < CONNS; i++) {
        tx_user[i].sent = rx_user[i].got = 0;
        push(&tx_user[i]);
    }
}

/* A port that takes all, and windows that are open from earlier messages: of what could go at once
 * an iteration sends a part, so that answers find room where they arrive. */
static void test_windows_are_open(void **state)
{
    struct stream_listener *l = connect_all(false);

    frames_a_round = 64;
    send_all();
    UNTIL(done_n == CONNS, 100000);
    frames_a_round = 4096;
    side[0].most = 0;
    send_all();
    for (unsigned i = 0; i < 3; i++)
        round_of(frames_a_round);
    print_message("%u frames in one iteration\n", side[0].most);
    assert_in_range(side[0].most, 256, CONNS * 8 + 256 + 64);
    close_all(l);
}

static int begin(void **state)
{
    struct reactor_opts opts = {.prog = "millrace-test",
                                .cores = "auto",
                                .count = 1,
                                .idle = REACTOR_IDLE_SPIN,
                                .mem_mb = 192};
    struct err err = {0};

    reactor_test_clock(now_us);
    if (reactor_env_create(&opts, &env, &err) < 0 ||
        mem_mbufs_create("payload", BLOCKS, 0, BLOCK, -1, &payload, &err) < 0)
        fail_msg("%s", err.message);
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct rte_mbuf *m = rte_pktmbuf_alloc(payload);

        block[i] = m->buf_addr;
        for (unsigned k = 0; k < BLOCK; k++)
            block[i][k] = (uint8_t)(k * 31 + (k >> 8) * 7 + i * 13);
    }
    return 0;
}

static int end(void **state)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        rte_pktmbuf_free_seg(mem_mbuf_of(mem_mbufs_region(payload), block[i]));
    reactor_test_clock(UINT64_MAX);
    reactor_bind(reactor_control(env));
    mem_mbufs_destroy(payload);
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_tso),
        cmocka_unit_test(test_windows_are_open),
    };

    return cmocka_run_group_tests_name("tcp_crowd", tests, begin, end);
}
