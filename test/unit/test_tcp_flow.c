/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that move between reactors while data comes: nothing is lost, nothing is reset, and
 * all that stood for them is gone in the end.
 */
#include "test/unit/tcp_fake.h"

#define PORT  988
#define CONNS 12
#define BYTES (256u << 10)

static const struct tcp_opts plain = {.wscale_max = UINT_MAX, .max_conns = 64};
static struct app a[CONNS], b[CONNS];
static unsigned accepted_n, listen_on;
static uint64_t rnd_state;

static uint32_t rnd(uint32_t n)
{
    return (uint32_t)(test_random(&rnd_state) >> 20) % n;
}

/* The port of the caller says whose it is. */
static void on_accept(void *user, struct stream *s, const union stream_addr *peer)
{
    struct app *app = &b[1023 - be16toh(peer->in.sin_port)];

    assert_null(app->s);
    assert_int_equal(reactor_index(reactor_self()), listen_on);
    app->s = s;
    app->reactor = listen_on;
    app->connected = true;
    accepted_n++;
    assert_int_equal(s->ops->attach(s, &app_events, app), 0);
    s->ops->rx_window(s, app->window, app->memory);
}

static struct stream_listener *begin(unsigned home, unsigned listen, uint64_t seed)
{
    struct stream_listener *l;
    union stream_addr addr;

    rnd_state = seed;
    accepted_n = 0;
    listen_on = listen;
    net_open(&plain, &plain);
    net.host[0].home = 1 - home;
    net.host[1].home = home;
    memset(a, 0, sizeof(a));
    memset(b, 0, sizeof(b));
    for (unsigned i = 0; i < CONNS; i++) {
        a[i].window = b[i].window = 32 << 10; /* all of it can be held */
        a[i].memory = b[i].memory = 1 << 20;
        a[i].seed_out = b[i].seed_in = (uint8_t)(i * 5);
        b[i].host = 1;
        a[i].close_at_eof = b[i].close_at_eof = true;
    }
    tcp_addr_out(&net.host[1].ifp.addr4, PORT, &addr);
    net_bind(REACTOR_CONTROL);
    assert_int_equal(stream_tcp.listen(net.tcp[1], &addr, "eth1", reactor_at(net_env(), listen),
                                       on_accept, NULL, &l),
                     0);
    net_run(1 * MS);
    return l;
}

static unsigned count_conns(unsigned host, unsigned shard)
{
    unsigned n = 0;

    for (const struct tcp_conn *c = net.tcp[host]->shard[shard]->free_conns; c; c = c->next)
        n++;
    return n;
}

static unsigned count_stubs(unsigned host, unsigned shard)
{
    unsigned n = 0;

    for (const struct tcp_stub *s = net.tcp[host]->shard[shard]->free_stubs; s; s = s->next)
        n++;
    return n;
}

/* Everything is back where it came from, and nobody was told of an error. */
static void end(struct stream_listener *l, bool lossless)
{
    app_unlisten(1, listen_on, l);
    net_run(3 * SECONDS); /* what forwards for a while */
    for (unsigned h = 0; h < HOSTS; h++) {
        for (unsigned k = 0; k < SHARDS; k++) {
            struct tcp_shard *sh = net.tcp[h]->shard[k];

            assert_int_equal(count_conns(h, k), plain.max_conns);
            assert_int_equal(count_stubs(h, k), plain.max_conns);
            assert_int_equal(sh->stats.conns_now, 0);
            if (lossless) {
                /* A probe is sent when an ACK is late, which a move may be the cause of. */
                assert_true(sh->stats.resent <= sh->stats.tlps);
                assert_int_equal(sh->stats.rtos, 0);
                assert_int_equal(sh->stats.resets_out, 0);
            }
        }
        if (lossless) {
            assert_int_equal(net.host[h].drops[PKT_DROP_TCP_NO_CONN], 0);
            assert_int_equal(net.host[h].drops[PKT_DROP_HANDOVER_FULL], 0);
            assert_int_equal(net.host[h].drops[PKT_DROP_HANDOVER_LOOP], 0);
        }
    }
    net_close();
}

static bool all_there(void)
{
    for (unsigned i = 0; i < CONNS; i++)
        if (a[i].got < BYTES || b[i].got < BYTES)
            return false;
    return true;
}

static bool all_gone(void)
{
    for (unsigned i = 0; i < CONNS; i++)
        if (!a[i].gone || !b[i].gone)
            return false;
    return true;
}

/* From wherever it is; it is nobody's for a while. */
static void move(struct app *app)
{
    struct stream *s = app->s;
    unsigned to = rnd(SHARDS);

    net_bind(app->reactor);
    s->ops->detach(s);
    net_run(250 * rnd(12));
    app->reactor = to;
    net_bind(to);
    assert_int_equal(s->ops->attach(s, &app_events, app), 0);
    app_read(app); /* what came before is not announced again */
}

static uint64_t time_waits(void)
{
    uint64_t n = 0;

    for (unsigned h = 0; h < HOSTS; h++)
        for (unsigned k = 0; k < SHARDS; k++)
            n += net.tcp[h]->shard[k]->stats.time_wait;
    return n;
}

static void run(unsigned home, unsigned listen, uint64_t seed)
{
    struct stream_listener *l = begin(home, listen, seed);

    for (unsigned i = 0; i < CONNS; i++)
        assert_int_equal(app_connect(&a[i], 0, i % SHARDS, (uint16_t)(1023 - i), PORT, false), 0);
    NET_UNTIL(accepted_n == CONNS, 2 * SECONDS);
    NET_UNTIL(a[0].connected && a[CONNS - 1].connected, 1 * SECONDS);
    for (unsigned i = 0; i < CONNS; i++) {
        app_send(&a[i], BYTES);
        app_send(&b[i], BYTES);
    }
    for (unsigned i = 0; i < 80; i++) {
        move(&b[rnd(CONNS)]);
        move(&a[rnd(CONNS)]);
        net_run(250 * rnd(4));
    }
    NET_UNTIL(all_there(), 30 * SECONDS);
    for (unsigned i = 0; i < CONNS; i++) {
        assert_false(a[i].corrupt || b[i].corrupt || a[i].closed || b[i].closed);
        app_close(i % 2 ? &a[i] : &b[i], false);
    }
    NET_UNTIL(all_gone(), 5 * SECONDS);
    for (unsigned i = 0; i < CONNS; i++)
        assert_int_equal(i % 2 ? b[i].end : a[i].end, STREAM_END_EOF);
    net_run(1 * SECONDS);
    assert_int_equal(time_waits(), CONNS);
    end(l, true);
}

static void test_moves(void **state)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        run(0, 0, seed * 7919);
        run(0, 1, seed * 104729);
        run(1, 0, seed * 15485863);
    }
}

/* As socklnd does it: the listener's reactor reads the first bytes, then its home has it. */
static void test_hello_then_home(void **state)
{
    struct stream_listener *l = begin(1, 0, 5);

    assert_int_equal(app_connect(&a[0], 0, 0, 1023, PORT, false), 0);
    NET_UNTIL(b[0].connected, 2 * SECONDS);
    app_send(&a[0], 56);
    NET_UNTIL(b[0].got == 56, 1 * SECONDS);
    app_send(&a[0], 30000); /* comes while it is on its way */
    net_bind(0);
    b[0].s->ops->detach(b[0].s);
    net_run(3 * MS);
    assert_int_equal(b[0].got, 56);
    b[0].reactor = 1;
    net_bind(1);
    assert_int_equal(b[0].s->ops->attach(b[0].s, &app_events, &b[0]), 0);
    NET_UNTIL(b[0].got == 30056, 1 * SECONDS);
    assert_false(b[0].corrupt);
    net.host[1].handed_over = 0;
    app_send(&a[0], 30000);
    NET_UNTIL(b[0].got == 60056, 1 * SECONDS);
    assert_int_equal(net.host[1].handed_over, 0); /* it is at home */
    app_close(&a[0], false);
    NET_UNTIL(b[0].gone, 1 * SECONDS);
    end(l, true);
}

/* What is sent on a detached connection, as the answer to a HELLO is, is kept by the reactor that
 * sends it, and none of the one that it left. */
static void test_answer_on_the_way(void **state)
{
    struct stream_listener *l = begin(1, 0, 5);
    uint8_t answer[56] = {0};
    struct mem_seg seg = {answer, sizeof(answer), MEM_REGION_NONE, 0};

    assert_int_equal(app_connect(&a[0], 0, 0, 1023, PORT, false), 0);
    NET_UNTIL(b[0].connected, 2 * SECONDS);
    net_bind(0);
    b[0].s->ops->detach(b[0].s);
    net_bind(1);
    assert_int_equal(b[0].s->ops->send(b[0].s, &seg, 1, false), sizeof(answer));
    assert_ptr_equal(app_conn(&b[0])->sh, net.tcp[1]->shard[1]);
    b[0].reactor = 1;
    app_close(&b[0], false);
    NET_UNTIL(a[0].got == sizeof(answer) && a[0].gone, 1 * SECONDS);
    end(l, true);
}

/* Detached, and then nobody wants it. */
static void test_closed_on_the_way(void **state)
{
    for (unsigned closer = 0; closer < SHARDS; closer++) {
        struct stream_listener *l = begin(0, 0, 6);

        assert_int_equal(app_connect(&a[0], 0, 1, 1023, PORT, false), 0);
        NET_UNTIL(b[0].connected && a[0].connected, 2 * SECONDS);
        net_bind(0);
        b[0].s->ops->detach(b[0].s);
        app_send(&a[0], 100);
        net_run(3 * MS);
        b[0].reactor = closer;
        app_close(&b[0], false);
        NET_UNTIL(a[0].closed, 2 * SECONDS);
        end(l, false);
    }
}

/* The peer resets while nobody has it: the next who takes it hears so. */
static void test_reset_on_the_way(void **state)
{
    struct stream_listener *l = begin(0, 0, 7);

    assert_int_equal(app_connect(&a[0], 0, 1, 1023, PORT, false), 0);
    NET_UNTIL(b[0].connected && a[0].connected, 2 * SECONDS);
    net_bind(0);
    b[0].s->ops->detach(b[0].s);
    app_send(&a[0], 100);
    net_run(2 * MS);
    app_close(&a[0], true);
    net_run(2 * MS);
    assert_false(b[0].closed);
    b[0].reactor = 1;
    net_bind(1);
    assert_int_equal(b[0].s->ops->attach(b[0].s, &app_events, &b[0]), 0);
    NET_UNTIL(b[0].closed, 2 * SECONDS);
    assert_int_equal(b[0].got, 100);
    assert_int_equal(b[0].end, STREAM_END_RESET);
    end(l, false);
}

/* The addresses of a connection that has moved and gone are used again at once. */
static void test_same_addresses_again(void **state)
{
    struct stream_listener *l = begin(0, 1, 8);

    for (unsigned i = 0; i < 4; i++) {
        memset(&a[0], 0, sizeof(a[0]));
        b[0].s = NULL;
        b[0].connected = b[0].closed = b[0].gone = false;
        a[0].window = 65536;
        a[0].memory = 1 << 20;
        assert_int_equal(app_connect(&a[0], 0, 0, 1023, PORT, false), 0);
        NET_UNTIL(b[0].connected && a[0].connected, 3 * SECONDS);
        move(&b[0]);
        move(&b[0]);
        app_close(&a[0], true);
        NET_UNTIL(b[0].gone, 2 * SECONDS);
    }
    end(l, false);
}

/* Nothing is left to stand for a connection on its way: that is counted. It goes on if its packets
 * have not come meanwhile. */
static void test_no_stub(void **state)
{
    struct stream_listener *l = begin(0, 0, 9);
    struct tcp_shard *sh = net.tcp[1]->shard[0];
    struct tcp_stub *kept;

    assert_int_equal(app_connect(&a[0], 0, 1, 1023, PORT, false), 0);
    NET_UNTIL(b[0].connected && a[0].connected, 2 * SECONDS);
    assert_int_equal(sh->stats.stubs_short, 0);
    kept = sh->free_stubs;
    sh->free_stubs = NULL;
    net_bind(0);
    b[0].s->ops->detach(b[0].s);
    assert_int_equal(sh->stats.stubs_short, 1);
    sh->free_stubs = kept;
    net_run(2 * MS);
    assert_false(sh->stubs_posted); /* it was logged */
    net_bind(0);
    assert_int_equal(b[0].s->ops->attach(b[0].s, &app_events, &b[0]), 0);
    app_send(&a[0], 1000);
    NET_UNTIL(b[0].got == 1000, 2 * SECONDS);
    app_close(&a[0], false);
    NET_UNTIL(b[0].gone && a[0].gone, 3 * SECONDS);
    end(l, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_then_home),
        cmocka_unit_test(test_answer_on_the_way),
        cmocka_unit_test(test_closed_on_the_way),
        cmocka_unit_test(test_reset_on_the_way),
        cmocka_unit_test(test_same_addresses_again),
        cmocka_unit_test(test_no_stub),
        cmocka_unit_test(test_moves),
    };

    net_make(SHARDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
