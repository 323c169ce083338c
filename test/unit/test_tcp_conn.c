/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of our TCP between two hosts of it: how they begin, carry data and end. */
#include "test/unit/tcp_fake.h"

#define PORT 988

static struct app a, b; /* who calls, who is called */
static struct stream_listener *listener;

static void open_with(const struct tcp_opts *x, const struct tcp_opts *y, bool v6)
{
    net_open(x, y);
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    a.window = b.window = 256 << 10;
    a.memory = b.memory = 1 << 20;
    a.seed_out = b.seed_in = 3;
    listener = app_listen(1, 0, PORT, v6, &b);
}

static const struct tcp_opts plain = {.wscale_max = UINT_MAX, .max_conns = 64};

static void connect_both(bool v6)
{
    assert_int_equal(app_connect(&a, 0, 0, 1023, PORT, v6), 0);
    assert_false(a.connected); /* not from inside the call */
    NET_UNTIL(a.connected && b.connected, 1 * SECONDS);
}

static void close_both(void)
{
    a.close_at_eof = b.close_at_eof = true;
    if (!a.gone)
        app_close(&a, false);
    NET_UNTIL(b.gone, 5 * SECONDS);
    net_run(100 * MS);
    app_unlisten(1, 0, listener);
    net_close();
}

static void data_both_ways(bool v6)
{
    const uint64_t n = 2 << 20;

    open_with(&plain, &plain, v6);
    connect_both(v6);
    app_send(&a, n);
    app_send(&b, n);
    NET_UNTIL(a.got == n && b.got == n, 20 * SECONDS);
    assert_false(a.corrupt || b.corrupt);
    assert_true(a.ackeds > 0 && b.ackeds > 0);
    assert_true(net.tcp[0]->shard[0]->stats.predicted > 100);
    close_both();
    assert_int_equal(b.end, STREAM_END_EOF);
}

static void test_data_v4(void **state)
{
    data_both_ways(false);
}

static void test_data_v6(void **state)
{
    data_both_ways(true);
}

/* ---- segments by hand, as from host 0 to host 1 ---- */

static struct tcp_seg last; /* that host 1 sent */
static unsigned heard;      /* how many */
static uint16_t speaker;    /* the port that host 0 last spoke from: only what goes there counts */

static bool watch(struct wire *w)
{
    if (w->from == 1 && w->seg.dport == speaker) {
        last = w->seg;
        heard++;
    }
    return w->from != 1;
}

static struct tcp_key hand_key(uint16_t port)
{
    struct tcp_key key = {.lport = PORT, .rport = port};

    key.local = net.host[1].ifp.addr4;
    key.remote = net.host[0].ifp.addr4;
    return key;
}

static struct tcp_seg hand(uint16_t port, uint32_t seq, uint32_t ack, uint8_t flags)
{
    return (struct tcp_seg){
        .sport = port, .dport = PORT, .seq = seq, .ack = ack, .flags = flags, .win = 60000};
}

/* What host 1 answers at once, or before 60 ms are over. */
static void say(struct tcp_seg seg, const char *text)
{
    struct tcp_key key = hand_key(seg.sport);

    heard = 0;
    speaker = seg.sport;
    memset(&last, 0, sizeof(last));
    net_inject(1, &key, &seg, text, text ? (uint32_t)strlen(text) : 0);
    net_run(60 * MS);
}

/* A connection by hand; returns its ISS. Timestamps if ts is not 0. */
static uint32_t shake(uint16_t port, uint32_t iss, uint32_t ts)
{
    struct tcp_seg syn = hand(port, iss, 0, TCP_FLAG_SYN), ack;
    uint32_t theirs;

    syn.has_ts = ts > 0;
    syn.ts_val = ts;
    syn.has_mss = true;
    syn.mss = 1460;
    say(syn, NULL);
    assert_int_equal(last.flags, TCP_FLAG_SYN | TCP_FLAG_ACK);
    assert_int_equal(last.ack, iss + 1);
    assert_int_equal(last.has_ts, ts > 0);
    theirs = last.seq;
    ack = hand(port, iss + 1, theirs + 1, TCP_FLAG_ACK);
    ack.has_ts = ts > 0;
    ack.ts_val = ts;
    ack.ts_ecr = last.ts_val;
    say(ack, NULL);
    assert_int_equal(heard, 0);
    return theirs;
}

static void open_by_hand(void)
{
    open_with(&plain, &plain, false);
    b.window = 0;
    net.filter = watch;
}

static void close_by_hand(void)
{
    if (b.s)
        app_close(&b, true);
    app_unlisten(1, 0, listener);
    net_run(61 * SECONDS);
    for (unsigned i = 0, n = 0; i <= plain.max_conns; i++) {
        const struct tcp_conn *c = net.tcp[1]->shard[0]->free_conns;

        for (; i == plain.max_conns && c; c = c->next)
            n++;
        if (i == plain.max_conns)
            assert_int_equal(n, plain.max_conns);
    }
    net_close();
}

/* RFC 9293 §3.10.7.1, .2. */
static void test_no_connection(void **state)
{
    struct tcp_key key;
    struct tcp_seg seg;

    open_by_hand();
    say(hand(5000, 100, 777, TCP_FLAG_ACK), "abc"); /* LISTEN */
    assert_int_equal(last.flags, TCP_FLAG_RST);
    assert_int_equal(last.seq, 777);
    say(hand(5000, 100, 0, TCP_FLAG_RST), NULL);
    assert_int_equal(heard, 0);
    say(hand(5000, 100, 0, TCP_FLAG_FIN), NULL);
    assert_int_equal(heard, 0);
    seg = hand(5000, 100, 0, TCP_FLAG_SYN); /* nobody listens */
    seg.dport = 1;
    key = hand_key(5000);
    key.lport = 1;
    net_inject(1, &key, &seg, "abcde", 5);
    net_run(1 * MS);
    assert_int_equal(last.flags, TCP_FLAG_RST | TCP_FLAG_ACK);
    assert_int_equal(last.ack, 106);
    assert_int_equal(last.seq, 0);
    close_by_hand();
}

/* However many challenges a host has had, a node that was started anew gets its own. */
static void test_challenges_of_others(void **state)
{
    open_by_hand();
    (void)shake(5000, 1000, 0);
    for (uint16_t port = 6000; port < 6000 + 120; port++) {
        struct tcp_key key = hand_key(port);
        struct tcp_seg seg = hand(port, 1000, 0, TCP_FLAG_SYN);

        net_inject(1, &key, &seg, NULL, 0);
        seg.seq = 7777777; /* not of the connection that it has begun */
        for (unsigned i = 0; i < 10; i++)
            net_inject(1, &key, &seg, NULL, 0);
        seg = hand(port, 1001, 0, TCP_FLAG_RST);
        net_inject(1, &key, &seg, NULL, 0);
        net_run(1 * MS);
    }
    assert_true(net.tcp[1]->shard[0]->stats.challenges >= 1200);
    say(hand(5000, 77777, 0, TCP_FLAG_SYN), NULL);
    assert_int_equal(last.flags, TCP_FLAG_ACK);
    assert_int_equal(last.ack, 1001);
    close_by_hand();
}

/* RFC 5961 §3, §4, §5. */
static void test_challenges(void **state)
{
    uint32_t iss;
    unsigned n = 0;

    open_by_hand();
    iss = shake(5000, 1000, 0);
    assert_true(b.connected);
    say(hand(5000, 1002, 0, TCP_FLAG_RST), NULL); /* within the window, not at its edge */
    assert_int_equal(last.flags, TCP_FLAG_ACK);
    assert_int_equal(last.ack, 1001);
    say(hand(5000, 1000, 0, TCP_FLAG_RST), NULL); /* outside: nothing */
    assert_int_equal(heard, 0);
    say(hand(5000, 1001 + 4097, 0, TCP_FLAG_RST), NULL);
    assert_int_equal(heard, 0);
    say(hand(5000, 77777, 0, TCP_FLAG_SYN), NULL); /* a node that was started anew */
    assert_int_equal(last.flags, TCP_FLAG_ACK);
    assert_int_equal(last.seq, iss + 1);
    assert_int_equal(last.ack, 1001);
    say(hand(5000, 1001, iss + 2, TCP_FLAG_ACK), NULL); /* never sent */
    assert_int_equal(last.flags, TCP_FLAG_ACK);
    assert_false(b.closed);
    for (int i = 0; i < 40; i++) {
        say(hand(5000, 1002, 0, TCP_FLAG_RST), NULL);
        n += heard;
    }
    assert_true(n > 0 && n < 20); /* in 2.4 s */
    assert_true(net.tcp[1]->shard[0]->stats.challenges_limited > 0);
    say(hand(5000, 1001, 0, TCP_FLAG_RST), NULL);
    assert_true(b.closed);
    assert_int_equal(b.end, STREAM_END_RESET);
    close_by_hand();
}

/* What came in order before a RST is delivered before the end is. */
static void test_data_before_reset(void **state)
{
    uint32_t iss;

    open_by_hand();
    b.hold = true;
    iss = shake(5000, 1000, 0);
    say(hand(5000, 1001, iss + 1, TCP_FLAG_ACK), "hello");
    say(hand(5000, 1006, iss + 1, TCP_FLAG_RST), NULL);
    assert_false(b.closed);
    net_bind(0);
    app_read(&b);
    assert_int_equal(b.got, 5);
    net_run(1 * MS);
    assert_true(b.closed);
    assert_int_equal(b.end, STREAM_END_RESET);
    close_by_hand();
}

/* FIN and then RST is how Linux closes: an end in peace. */
static void test_fin_then_reset(void **state)
{
    uint32_t iss;

    open_by_hand();
    b.hold = true;
    iss = shake(5000, 1000, 0);
    say(hand(5000, 1001, iss + 1, TCP_FLAG_ACK | TCP_FLAG_FIN), "hello");
    assert_int_equal(last.ack, 1007);
    say(hand(5000, 1007, iss + 1, TCP_FLAG_RST), NULL);
    net_bind(0);
    app_read(&b);
    net_run(1 * MS);
    assert_true(b.closed);
    assert_int_equal(b.end, STREAM_END_EOF);
    close_by_hand();
}

/* RFC 7323 §5: an old timestamp is acknowledged and dropped; after 24 days it is not old. */
static void test_paws(void **state)
{
    struct tcp_seg seg;
    uint32_t iss;

    open_by_hand();
    iss = shake(5000, 1000, 5000);
    seg = hand(5000, 1001, iss + 1, TCP_FLAG_ACK);
    seg.has_ts = true;
    seg.ts_val = 4999;
    say(seg, "x");
    assert_int_equal(last.ack, 1001);
    assert_int_equal(b.got, 0);
    assert_int_equal(net.host[1].drops[PKT_DROP_TCP_PAWS], 1);
    seg.has_ts = false; /* §3.2 */
    say(seg, "x");
    assert_int_equal(b.got, 0);
    seg.has_ts = true;
    seg.ts_val = 5001;
    say(seg, "x");
    assert_int_equal(b.got, 1);
    assert_int_equal(last.ack, 1002);
    assert_int_equal(last.ts_ecr, 5001);
    close_by_hand();
}

/* ACKs: delayed, at least every second full segment, at once where something is amiss. */
static void test_acks(void **state)
{
    static char full[1461];
    uint32_t iss;

    memset(full, 'f', 1460);
    open_by_hand();
    b.hold = true;
    iss = shake(5000, 1000, 0);
    heard = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct tcp_seg seg = hand(5000, 1001 + i * 1460, iss + 1, TCP_FLAG_ACK);
        struct tcp_key key = hand_key(5000);

        net_inject(1, &key, &seg, full, 1460);
        net_run(5 * MS);
        assert_int_equal(heard, i); /* every second one at once */
    }
    full[700] = 0;
    heard = 0;
    say(hand(5000, 1001 + 2920, iss + 1, TCP_FLAG_ACK), full);
    assert_int_equal(heard, 1); /* within 60 ms */
    assert_int_equal(last.ack, 1001 + 3620);
    heard = 0;
    say(hand(5000, 1001 + 3630, iss + 1, TCP_FLAG_ACK), "behind a gap");
    assert_int_equal(heard, 1);
    assert_int_equal(last.ack, 1001 + 3620);
    close_by_hand();
}

/* RFC 9293 §3.8.4: probes are answered; a window that is closed too. */
static void test_probes_answered(void **state)
{
    static char full[1461];
    uint32_t iss, at = 1001;

    memset(full, 'f', 1460);
    open_by_hand();
    b.hold = true;
    iss = shake(5000, 1000, 0);
    say(hand(5000, 1000, iss + 1, TCP_FLAG_ACK), NULL);
    assert_int_equal(last.ack, 1001);
    say(hand(5000, 1000, iss + 1, TCP_FLAG_ACK), "x"); /* with one byte, as some do */
    assert_int_equal(last.ack, 1001);
    for (int i = 0; i < 2; i++, at += 1460)
        say(hand(5000, at, iss + 1, TCP_FLAG_ACK), full);
    full[4096 - 2920] = 0;
    say(hand(5000, at, iss + 1, TCP_FLAG_ACK), full);
    at = 1001 + 4096;
    assert_int_equal(last.ack, at);
    assert_int_equal(last.win, 0);
    say(hand(5000, at, iss + 1, TCP_FLAG_ACK), "z");
    assert_int_equal(last.ack, at);
    assert_int_equal(b.got, 0);
    heard = 0;
    net_bind(0);
    app_read(&b);
    b.s->ops->rx_window(b.s, 20000, 100000); /* the peer hears of it */
    net_run(1 * MS);
    assert_int_equal(heard, 1);
    assert_int_equal(last.win, 20000);
    close_by_hand();
}

/* ---- who closes how ---- */

/* The user reads later than it is told to, and finds less than it wants. */
static void test_reset_after_half_a_header(void **state)
{
    const uint8_t *p;
    uint32_t iss;

    open_by_hand();
    b.hold = true;
    iss = shake(5000, 1000, 0);
    say(hand(5000, 1001, iss + 1, TCP_FLAG_ACK), "half");
    say(hand(5000, 1005, iss + 1, TCP_FLAG_RST), NULL);
    assert_false(b.closed);
    net_bind(0);
    assert_int_equal(b.s->ops->peek(b.s, 24, &p), 4);
    assert_false(b.closed); /* not from inside the call */
    net_run(1 * MS);
    assert_true(b.closed);
    close_by_hand();
}

/* A refusal: an answer, and then RST for what was not read. */
static void test_answer_before_reset(void **state)
{
    open_with(&plain, &plain, false);
    connect_both(false);
    net_run(100 * MS);
    b.hold = true;
    app_send(&a, 100);
    net_run(5 * MS);
    b.seed_out = a.seed_in = 9;
    app_send(&b, 16);
    app_close(&b, false);
    NET_UNTIL(a.closed, 1 * SECONDS);
    assert_int_equal(a.got, 16);
    assert_int_equal(a.end, STREAM_END_RESET);
    app_close(&a, false);
    app_unlisten(1, 0, listener);
    net_close();
}

static void test_both_close_at_once(void **state)
{
    open_with(&plain, &plain, false);
    connect_both(false);
    net_run(100 * MS);
    app_close(&a, false);
    app_close(&b, false);
    net_run(50 * MS);
    assert_int_equal(net.tcp[0]->shard[0]->stats.conns_now, 0);
    assert_int_equal(net.tcp[1]->shard[0]->stats.conns_now, 0);
    assert_int_equal(net.tcp[0]->shard[0]->stats.time_wait, 1);
    assert_int_equal(net.tcp[1]->shard[0]->stats.time_wait, 1);
    net_run(61 * SECONDS);
    assert_int_equal(net.tcp[0]->shard[0]->stats.time_wait, 0);
    app_unlisten(1, 0, listener);
    net_close();
}

static void test_unread_resets(void **state)
{
    open_with(&plain, &plain, false);
    connect_both(false);
    b.hold = true;
    app_send(&a, 100);
    net_run(50 * MS);
    app_close(&b, false);
    NET_UNTIL(a.closed, 1 * SECONDS);
    assert_int_equal(a.end, STREAM_END_RESET);
    app_close(&a, false);
    app_unlisten(1, 0, listener);
    net_close();
}

static void test_data_for_who_has_gone(void **state)
{
    open_with(&plain, &plain, false);
    connect_both(false);
    net_run(100 * MS);
    app_close(&b, false);
    NET_UNTIL(a.closed, 1 * SECONDS);
    assert_int_equal(a.end, STREAM_END_EOF);
    app_send(&a, 10);
    net_run(50 * MS);
    assert_int_equal(net.host[1].drops[PKT_DROP_TCP_CLOSED], 1);
    assert_int_equal(net.tcp[0]->shard[0]->stats.resets_in, 1);
    app_close(&a, false);
    app_unlisten(1, 0, listener);
    net_close();
}

/* TIME-WAIT, and the same addresses again: RFC 6191. */
static void test_again_from_time_wait(void **state)
{
    open_with(&plain, &plain, false);
    for (int i = 0; i < 3; i++) {
        memset(&a, 0, sizeof(a));
        b.s = NULL;
        b.connected = b.closed = b.gone = false;
        connect_both(false);
        net_run(20 * MS);
        a.close_at_eof = true;
        app_close(&b, false); /* the listener's side has the TIME-WAIT */
        NET_UNTIL(a.gone, 1 * SECONDS);
        net_run(20 * MS);
        assert_int_equal(net.tcp[1]->shard[0]->stats.time_wait, 1);
    }
    app_unlisten(1, 0, listener);
    net_close();
}

static void test_refused(void **state)
{
    open_with(&plain, &plain, false);
    assert_int_equal(app_connect(&a, 0, 0, 1023, 4711, false), 0);
    NET_UNTIL(a.closed, 1 * SECONDS);
    assert_int_equal(a.end, STREAM_END_REFUSED);
    app_close(&a, false);
    app_unlisten(1, 0, listener);
    net_close();
}

/* Both call each other from the ports that they call: §3.5, figure 7. */
static void test_both_call(void **state)
{
    open_with(&plain, &plain, false);
    b.host = 1;
    assert_int_equal(app_connect(&a, 0, 0, 2000, 2001, false), 0);
    assert_int_equal(app_connect(&b, 1, 0, 2001, 2000, false), 0);
    NET_UNTIL(a.connected && b.connected, 1 * SECONDS);
    app_send(&a, 50000);
    NET_UNTIL(b.got == 50000, 2 * SECONDS);
    assert_false(b.corrupt);
    close_both();
}

static unsigned lose_n;

static bool lose_first(struct wire *w)
{
    if (!(w->seg.flags & TCP_FLAG_SYN) || lose_n == 0)
        return true;
    lose_n--;
    return false;
}

static void test_lost_syns(void **state)
{
    for (unsigned n = 1; n < 4; n++) {
        uint64_t began;

        open_with(&plain, &plain, false);
        net.filter = lose_first;
        lose_n = n;
        began = net.now;
        assert_int_equal(app_connect(&a, 0, 0, 1023, PORT, false), 0);
        NET_UNTIL(a.connected && b.connected, 10 * SECONDS);
        assert_true(net.now - began <= n * SECONDS + 100 * MS);
        close_both();
    }
}

/* Half-open ones beyond the limit push out the oldest, and nobody else. */
static void test_syn_flood(void **state)
{
    static const struct tcp_opts few = {.wscale_max = UINT_MAX, .max_conns = 64, .syn_max = 8};

    open_with(&plain, &few, false);
    net.filter = watch;
    for (uint16_t i = 0; i < 100; i++)
        say(hand((uint16_t)(6000 + i), 1000, 0, TCP_FLAG_SYN), NULL);
    assert_int_equal(net.tcp[1]->shard[0]->half_open, 8);
    assert_int_equal(net.host[1].drops[PKT_DROP_TCP_SYN_FULL], 92);
    net.filter = NULL;
    connect_both(false);
    app_send(&a, 1000);
    NET_UNTIL(b.got == 1000, 1 * SECONDS);
    net_run(70 * SECONDS); /* nobody answers their SYN-ACKs */
    assert_int_equal(net.tcp[1]->shard[0]->half_open, 0);
    close_both();
}

/* Callers whose connections we close, and who never close theirs, are reset only when others need
 * their places; those who have our FIN go first. */
static void test_orphans(void **state)
{
    const struct tcp_shard *sh;

    open_by_hand();
    sh = net.tcp[1]->shard[0];
    for (uint16_t i = 0; i < 150; i++) {
        uint32_t theirs = shake((uint16_t)(6000 + i), 1000, 0);

        app_close(&b, false);
        b.gone = false;
        net_run(1 * MS);
        if (i != 0) /* the first never says that it has our FIN */
            say(hand((uint16_t)(6000 + i), 1001, theirs + 2, TCP_FLAG_ACK), NULL);
        if (i < plain.max_conns - plain.max_conns / 8)
            assert_int_equal(sh->stats.orphans_reset, 0);
        assert_true(sh->nfree >= plain.max_conns / 8 - 1);
    }
    assert_true(sh->stats.orphans_reset >= 150 - plain.max_conns);
    assert_non_null(TAILQ_FIRST(&sh->orphans_unacked));
    net.filter = NULL;
    connect_both(false);
    app_send(&a, 1000);
    net_run(1 * SECONDS);
    assert_true(b.connected);
    app_close(&a, true);
    net_run(1 * MS);
    close_by_hand();
}

/* Callers take all objects but a few, which are for our own calls. */
static void test_place_for_our_calls(void **state)
{
    open_by_hand();
    for (uint16_t i = 0; i < 100; i++)
        say(hand((uint16_t)(6000 + i), 1000, 0, TCP_FLAG_SYN), NULL);
    assert_int_equal(net.tcp[1]->shard[0]->half_open, plain.max_conns - plain.max_conns / 16);
    assert_int_equal(app_connect(&a, 1, 0, 1023, PORT, false), 0);
    app_close(&a, true);
    close_by_hand();
}

static bool silent(struct wire *w)
{
    return false;
}

/* docs/protocol/socklnd.md §3.5: after 30 s, every 5 s, 5 times. */
static void test_keepalive(void **state)
{
    uint64_t began;

    open_with(&plain, &plain, false);
    connect_both(false);
    net_run(100 * MS);
    net_bind(0);
    a.s->ops->established(a.s, -1);
    began = net.now;
    net_run(200 * SECONDS);
    assert_false(a.closed);
    assert_in_range(app_conn(&a)->count.keepalives_out, 5, 7);
    net.filter = silent;
    began = net.now;
    NET_UNTIL(a.closed, 70 * SECONDS);
    assert_in_range(net.now - began, 25 * SECONDS, 56 * SECONDS);
    assert_int_equal(a.end, STREAM_END_TIMEOUT);
    app_close(&a, false);
    app_close(&b, true);
    app_unlisten(1, 0, listener);
    net_close();
}

static void on_done(struct reactor_task *task)
{
    task->fn = NULL;
}

/* The process ends: peers hear of it. */
static void test_stop(void **state)
{
    struct reactor_task done = {.fn = on_done};

    open_with(&plain, &plain, false);
    connect_both(false);
    net_run(50 * MS);
    net_bind(REACTOR_CONTROL);
    tcp_stop(net.tcp[0], &done);
    NET_UNTIL(!done.fn, 1 * SECONDS);
    NET_UNTIL(b.closed && a.closed, 1 * SECONDS);
    assert_int_equal(b.end, STREAM_END_RESET);
    app_close(&a, false);
    app_close(&b, false);
    app_unlisten(1, 0, listener);
    net_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_v4),
        cmocka_unit_test(test_data_v6),
        cmocka_unit_test(test_no_connection),
        cmocka_unit_test(test_challenges),
        cmocka_unit_test(test_challenges_of_others),
        cmocka_unit_test(test_data_before_reset),
        cmocka_unit_test(test_fin_then_reset),
        cmocka_unit_test(test_paws),
        cmocka_unit_test(test_acks),
        cmocka_unit_test(test_probes_answered),
        cmocka_unit_test(test_both_close_at_once),
        cmocka_unit_test(test_reset_after_half_a_header),
        cmocka_unit_test(test_answer_before_reset),
        cmocka_unit_test(test_unread_resets),
        cmocka_unit_test(test_data_for_who_has_gone),
        cmocka_unit_test(test_again_from_time_wait),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_both_call),
        cmocka_unit_test(test_lost_syns),
        cmocka_unit_test(test_syn_flood),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_place_for_our_calls),
        cmocka_unit_test(test_keepalive),
        cmocka_unit_test(test_stop),
    };

    net_make(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
