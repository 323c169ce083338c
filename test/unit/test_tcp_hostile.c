/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer, or who forges its segments, could do to us with little effort. */
#include "lib/reactor/mem_mbuf.h"
#include "test/unit/tcp_fake.h"

#define PORT  988
#define MANY  1200 /* connections at once */
#define QUICK 40   /* segments */

static struct app a, b;
static struct app many_a[MANY], many_b[MANY];
static unsigned accepted_n;
static const struct tcp_opts plain = {.wscale_max = UINT_MAX, .max_conns = 64, .user_timeout = 5};
static const struct tcp_opts patient = {
    .wscale_max = UINT_MAX, .max_conns = 64, .user_timeout = 60};
static const struct tcp_opts bare = {
    .wscale_max = UINT_MAX, .max_conns = 64, .no_timestamps = true};
static const struct tcp_opts large = {.wscale_max = UINT_MAX, .max_conns = 2048};

static struct stream_listener *begin(const struct tcp_opts *opts)
{
    net_open(opts, opts);
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    a.window = b.window = 256 << 10;
    a.memory = b.memory = 1 << 20;
    a.seed_out = b.seed_in = 3;
    return app_listen(1, 0, PORT, false, &b);
}

static unsigned free_conns(unsigned host, unsigned shard)
{
    unsigned n = 0;

    for (const struct tcp_conn *c = net.tcp[host]->shard[shard]->free_conns; c; c = c->next)
        n++;
    return n;
}

static struct tcp_key key_at(unsigned host, uint16_t lport, uint16_t rport)
{
    return (struct tcp_key){.local = net.host[host].ifp.addr4,
                            .remote = net.host[1 - host].ifp.addr4,
                            .lport = lport,
                            .rport = rport};
}

/* One byte that the other never sent, as from the other. */
static void slip_in(unsigned host, struct app *app)
{
    const struct tcp_conn *c = app_conn(app);
    struct tcp_key key = key_at(host, c->lport, c->rport);
    struct tcp_seg seg = {.sport = c->rport,
                          .dport = c->lport,
                          .seq = c->rx.nxt,
                          .ack = c->tx.nxt,
                          .flags = TCP_FLAG_ACK,
                          .win = 1000};

    net_inject(host, &key, &seg, "x", 1);
}

/* Two ends that do not agree on what was sent do not acknowledge each other for ever: each one's
 * number is then the one before what the other expects, as a keepalive probe's is. */
static void test_ack_storm(void **state)
{
    struct stream_listener *l = begin(&bare);
    uint64_t sent;

    assert_int_equal(app_connect(&a, 0, 0, 1023, PORT, false), 0);
    NET_UNTIL(a.connected && b.connected, 1 * SECONDS);
    slip_in(0, &a);
    slip_in(1, &b);
    net_run(1 * SECONDS);
    sent = net.host[0].sent + net.host[1].sent;
    net_run(4 * SECONDS);
    sent = net.host[0].sent + net.host[1].sent - sent;
    assert_true(sent < QUICK);
    assert_true(net.tcp[0]->shard[0]->stats.challenges_limited > 0);
    app_close(&a, true);
    app_close(&b, true);
    app_unlisten(1, 0, l);
    net_close();
}

/* ---- by hand ---- */

static struct tcp_seg last;
static unsigned heard;

static bool watch(struct wire *w)
{
    if (w->from == 1) {
        last = w->seg;
        heard++;
    }
    return w->from != 1;
}

static void say(uint32_t seq, uint32_t ack, uint8_t flags, uint16_t win)
{
    struct tcp_key key = key_at(1, PORT, 5000);
    struct tcp_seg seg = {
        .sport = 5000, .dport = PORT, .seq = seq, .ack = ack, .flags = flags, .win = win};

    heard = 0;
    net_inject(1, &key, &seg, NULL, 0);
    net_run(60 * MS);
}

/* The answer to a SYN, which may be forged, has no part of what is kept of the neighbour table for
 * our own connections. One that is up has, and one that we open. */
static void test_reserve_of_neighbours(void **state)
{
    struct stream_listener *l = begin(&plain);
    const struct tcp_conn *half;

    net.filter = watch;
    say(1000, 0, TCP_FLAG_SYN, 2000);
    half = TAILQ_FIRST(&net.tcp[1]->shard[0]->half);
    assert_non_null(half);
    assert_false(half->path.own);
    say(1001, last.seq + 1, TCP_FLAG_ACK, 2000);
    app_send(&b, 100);
    net_run(10 * MS);
    assert_true(app_conn(&b)->path.own);
    assert_int_equal(app_connect(&a, 0, 0, 1023, PORT, false), 0);
    assert_true(app_conn(&a)->path.own);
    app_close(&a, true);
    app_close(&b, true);
    app_unlisten(1, 0, l);
    net_close();
}

static bool refuses(void *user, const union stream_addr *peer)
{
    assert_ptr_equal(user, &b);
    return ntohs(peer->in.sin_port) == 5000;
}

/* The listener has no place for a caller: its SYN has no answer and leaves nothing. */
static void test_refused_caller(void **state)
{
    struct stream_listener *l = begin(&plain);

    l->refuses = refuses;
    net.filter = watch;
    say(1000, 0, TCP_FLAG_SYN, 2000);
    assert_int_equal(heard, 0);
    assert_int_equal(free_conns(1, 0), plain.max_conns);
    net.filter = NULL;
    assert_int_equal(app_connect(&a, 0, 0, 1023, PORT, false), 0);
    NET_UNTIL(a.connected && b.connected, 1 * SECONDS);
    app_close(&a, true);
    app_close(&b, true);
    app_unlisten(1, 0, l);
    net_close();
}

/* Who has gone leaves what it had queued to nobody: a peer that keeps its window closed, and
 * answers each probe, does not keep our buffers for ever. */
static void test_orphan_behind_closed_window(void **state)
{
    struct stream_listener *l = begin(&plain);
    uint32_t acked;

    net.filter = watch;
    say(1000, 0, TCP_FLAG_SYN, 2000);
    acked = last.seq + 1;
    say(1001, acked, TCP_FLAG_ACK, 2000);
    assert_true(b.connected);
    app_send(&b, 100000);
    net_run(10 * MS);
    acked = last.seq + 536;
    say(1001, acked, TCP_FLAG_ACK, 0);
    assert_int_equal(app_conn(&b)->tx.wnd, 0);
    net_run(1 * SECONDS);
    app_close(&b, false);
    for (unsigned i = 0; i < 8; i++) {
        net_run(1 * SECONDS);
        if (heard > 0)
            say(1001, acked, TCP_FLAG_ACK, 0);
    }
    assert_int_equal(free_conns(1, 0), plain.max_conns);
    assert_int_equal(rte_mempool_in_use_count(net.tcp[1]->copy_pool), 0);
    app_unlisten(1, 0, l);
    net_close();
}

#define BLOCKS 64 /* of a pool that messages are in */

/* The same, but what is queued refers to buffers of messages: they come back as soon as they are
 * short, and no sooner. */
static void test_orphan_gives_way(void **state)
{
    struct stream_listener *l = begin(&patient);
    struct rte_mbuf *m[BLOCKS];
    struct rte_mempool *pool;
    struct err err = {0};
    uint32_t acked;

    assert_int_equal(mem_mbufs_create("orphans", BLOCKS, 0, 1024, -1, &pool, &err), 0);
    net.filter = watch;
    say(1000, 0, TCP_FLAG_SYN, 2000);
    acked = last.seq + 1;
    say(1001, acked, TCP_FLAG_ACK, 0);
    assert_true(b.connected);
    for (unsigned i = 0; i < BLOCKS; i++)
        m[i] = rte_pktmbuf_alloc(pool);
    net_bind(b.reactor);
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        struct mem_seg seg = {m[i]->buf_addr, 100, mem_mbufs_region(pool), 0};

        assert_int_equal(b.s->ops->send(b.s, &seg, 1, false), 100);
        rte_pktmbuf_free(m[i]);
    }
    for (unsigned i = BLOCKS / 2; i < BLOCKS; i++)
        rte_pktmbuf_free(m[i]);
    app_close(&b, false);
    net_run(5 * SECONDS);
    assert_int_equal(rte_mempool_avail_count(pool), BLOCKS / 2);
    assert_int_equal(free_conns(1, 0), patient.max_conns - 1);
    for (unsigned i = 0; i < BLOCKS / 8 + 1; i++)
        m[i] = rte_pktmbuf_alloc(pool);
    net_run(300 * MS);
    assert_int_equal(rte_mempool_in_use_count(pool), BLOCKS / 8 + 1);
    assert_int_equal(free_conns(1, 0), patient.max_conns);
    assert_int_equal(net.tcp[1]->shard[0]->stats.orphans_reset, 1);
    for (unsigned i = 0; i < BLOCKS / 8 + 1; i++)
        rte_pktmbuf_free(m[i]);
    app_unlisten(1, 0, l);
    net_close();
    mem_mbufs_destroy(pool);
}

/* ---- thousands ---- */

static void on_accept(void *user, struct stream *s, const union stream_addr *peer)
{
    struct app *app = &many_b[be16toh(peer->in.sin_port) - 1];

    app->s = s;
    app->host = 1;
    app->connected = true;
    accepted_n++;
    assert_int_equal(s->ops->attach(s, &app_events, app), 0);
}

static unsigned count(bool (*is)(const struct app *app))
{
    unsigned n = 0;

    for (unsigned i = 0; i < MANY; i++)
        n += is(&many_a[i]);
    return n;
}

static bool is_connected(const struct app *app)
{
    return app->connected && !app->closed;
}

static struct stream_listener *connect_many(bool hold)
{
    struct stream_listener *l;
    union stream_addr addr;

    memset(many_a, 0, sizeof(many_a));
    memset(many_b, 0, sizeof(many_b));
    accepted_n = 0;
    tcp_addr_out(&net.host[1].ifp.addr4, PORT, &addr);
    net_bind(REACTOR_CONTROL);
    assert_int_equal(
        stream_tcp.listen(net.tcp[1], &addr, "eth1", reactor_at(net_env(), 0), on_accept, NULL, &l),
        0);
    net_run(1 * MS);
    for (unsigned i = 0; i < MANY; i++) {
        many_a[i].close_at_eof = many_b[i].close_at_eof = true;
        many_b[i].hold = hold;
        assert_int_equal(app_connect(&many_a[i], 0, 0, (uint16_t)(i + 1), PORT, false), 0);
        net_run(250);
    }
    net_run(2 * SECONDS);
    assert_int_equal(count(is_connected), MANY);
    return l;
}

static void send_many(unsigned bytes)
{
    for (unsigned i = 0; i < MANY; i++)
        app_send(&many_a[i], bytes);
    net_run(1 * SECONDS);
}

/* More connections than greetings may be pending, with a byte each and no grant, while data out of
 * order has all that it may have: each byte finds room. */
static void test_many_before_a_grant(void **state)
{
    struct stream_listener *l;
    struct tcp_shard *sh;

    net_open(&large, &large);
    sh = net.tcp[1]->shard[0];
    l = connect_many(true);
    sh->rx_own += TCP_OWN_SPARSE;
    send_many(1);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(app_conn(&many_b[i])->rx.queued, 1);
    sh->rx_own -= TCP_OWN_SPARSE;
    for (unsigned i = 0; i < MANY; i++) {
        app_close(&many_a[i], true);
        app_close(&many_b[i], true);
    }
    net_run(1 * SECONDS);
    assert_int_equal(sh->rx_own, 0);
    assert_int_equal(rte_mempool_in_use_count(net.tcp[1]->own_pool), 0);
    app_unlisten(1, 0, l);
    net_close();
}

/* The reactor at home for our packets is not the one that has the connections. */
static void test_many_away_from_home(void **state)
{
    struct stream_listener *l;

    net_open(&large, &large);
    net.host[0].home = 1;
    l = connect_many(false);
    send_many(100);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(many_b[i].got, 100);
    for (unsigned i = 0; i < MANY; i++)
        app_close(&many_a[i], false);
    net_run(5 * SECONDS);
    app_unlisten(1, 0, l);
    net_run(3 * SECONDS);
    for (unsigned k = 0; k < SHARDS; k++)
        assert_int_equal(free_conns(0, k), large.max_conns);
    net_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ack_storm),
        cmocka_unit_test(test_reserve_of_neighbours),
        cmocka_unit_test(test_refused_caller),
        cmocka_unit_test(test_orphan_behind_closed_window),
        cmocka_unit_test(test_orphan_gives_way),
        cmocka_unit_test(test_many_before_a_grant),
        cmocka_unit_test(test_many_away_from_home),
    };

    net_make(SHARDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
