/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sending side against a network that loses, reorders, doubles and delays, and a receiver that
 * tells what it has. After each event the scoreboard is compared with what was told, byte by byte.
 */
#include "tcp_tx_test.h"

#include <math.h>

#define MAX_TOTAL  (6u << 20)
#define MAX_EVENTS 65536
#define MAX_RANGES 4096

struct net {
    uint64_t delay_us;                /* one way */
    uint64_t jitter_us;               /* added at random: reorders */
    uint32_t rate;                    /* bytes per ms; 0: no end */
    uint64_t queue_us;                /* what would wait longer is lost */
    uint32_t loss, ack_loss, doubled; /* per 10000 */
    bool delayed_acks;
    uint32_t window;   /* receiver's buffer */
    uint32_t reads_us; /* its user reads all so often; 0: at once */
};

enum kind {
    DATA,
    ACK,
    READ,
    DELACK,
};

struct event {
    uint64_t at_us, order;
    enum kind kind;
    struct sent s;
    struct told t;
};

static struct net net;
static struct event *heap;
static unsigned nheap;
static uint64_t order, rng, link_free_us;
static uint64_t total, given;
static uint64_t arrived_segs, drops;

/* the receiver */
static struct {
    uint64_t nxt, read;
    struct {
        uint64_t left, right, stamp;
    } range[MAX_RANGES];
    unsigned nranges, unacked;
    uint64_t stamp, dsack_left, dsack_right;
    uint32_t ts_recent;
    uint64_t last_ack;
    bool fin_known, fin_got, delack_on;
    uint64_t fin_at;
} rcv;

static uint8_t *told_map; /* bytes the sender has been told are there, out of order */

static uint64_t any(uint64_t below)
{
    return below == 0 ? 0 : test_random(&rng) % below;
}

static bool chance(uint32_t per10000)
{
    return any(10000) < per10000;
}

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct event e)
{
    unsigned i = nheap++;

    assert_true(nheap < MAX_EVENTS);
    e.order = order++;
    for (; i > 0 && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static struct event pop(void)
{
    struct event top = heap[0], e = heap[--nheap];
    unsigned i = 0, k;

    while ((k = 2 * i + 1) < nheap) {
        if (k + 1 < nheap && before(&heap[k + 1], &heap[k]))
            k++;
        if (!before(&heap[k], &e))
            break;
        heap[i] = heap[k];
        i = k;
    }
    heap[i] = e;
    return top;
}

/* ---- the link ---- */

static void wire(const struct sent *s)
{
    uint64_t at = now;

    if (net.rate > 0) {
        link_free_us = max(link_free_us, now);
        if (link_free_us - now > net.queue_us) {
            drops++;
            return;
        }
        link_free_us += (uint64_t)(s->len + 66) * 1000 / net.rate;
        at = link_free_us;
    }
    if (chance(net.loss)) {
        drops++;
        return;
    }
    at += net.delay_us + any(net.jitter_us);
    push((struct event){.at_us = at, .kind = DATA, .s = *s});
    if (chance(net.doubled))
        push((struct event){.at_us = at + any(2000), .kind = DATA, .s = *s});
}

/* ---- the receiver ---- */

static void put_range(uint64_t left, uint64_t right)
{
    unsigned keep = 0;

    for (unsigned i = 0; i < rcv.nranges; i++) {
        if (rcv.range[i].right < left || right < rcv.range[i].left) {
            rcv.range[keep++] = rcv.range[i];
            continue;
        }
        left = min(left, rcv.range[i].left);
        right = max(right, rcv.range[i].right);
    }
    rcv.nranges = keep;
    assert_true(keep < MAX_RANGES);
    rcv.range[rcv.nranges].left = left;
    rcv.range[rcv.nranges].right = right;
    rcv.range[rcv.nranges++].stamp = ++rcv.stamp;
}

static bool had_all(uint64_t left, uint64_t right)
{
    if (right <= rcv.nxt)
        return true;
    for (unsigned i = 0; i < rcv.nranges; i++) {
        if (rcv.range[i].left <= left && right <= rcv.range[i].right)
            return true;
    }
    return false;
}

static void send_ack(void)
{
    struct told t = {.ack = rcv.nxt, .ecr = rcv.ts_recent};
    unsigned n = 0;
    uint64_t below = UINT64_MAX;

    rcv.unacked = 0;
    rcv.last_ack = rcv.nxt;
    t.win = (uint32_t)(rcv.read + net.window - min(rcv.nxt, rcv.read + net.window));
    if (rcv.fin_got)
        t.ack++;
    if (rcv.dsack_right > 0) {
        t.sack[0] = rcv.dsack_left;
        t.sack[1] = rcv.dsack_right;
        rcv.dsack_right = 0;
        n = 1;
    }
    while (n < (c->ts_on ? 3u : 4u)) { /* the newest first */
        unsigned best = UINT_MAX;

        for (unsigned i = 0; i < rcv.nranges; i++) {
            if (rcv.range[i].stamp < below &&
                (best == UINT_MAX || rcv.range[i].stamp > rcv.range[best].stamp))
                best = i;
        }
        if (best == UINT_MAX)
            break;
        below = rcv.range[best].stamp;
        t.sack[2 * n] = rcv.range[best].left;
        t.sack[2 * n + 1] = rcv.range[best].right;
        n++;
    }
    if (!c->sack_on)
        memset(t.sack, 0, sizeof(t.sack));
    if (!chance(net.ack_loss))
        push((struct event){.at_us = now + net.delay_us, .kind = ACK, .t = t});
}

static void data_came(const struct sent *s)
{
    uint64_t left = s->off, right = s->off + s->len, had = rcv.nxt;
    bool at_once = true;

    arrived_segs++;
    if (s->off <= rcv.last_ack && (int32_t)(s->ts - rcv.ts_recent) >= 0)
        rcv.ts_recent = s->ts;
    if (s->flags & TCP_FLAG_FIN) {
        rcv.fin_known = true;
        rcv.fin_at = right;
    }
    if (right > rcv.read + net.window) { /* beyond what it may send, as probes are */
        right = max(left, rcv.read + net.window);
    }
    if (left < right && had_all(left, right)) {
        rcv.dsack_left = left;
        rcv.dsack_right = right;
    } else if (left < right) {
        put_range(max(left, rcv.nxt), right);
        for (unsigned i = 0; i < rcv.nranges; i++) {
            if (rcv.range[i].left > rcv.nxt)
                continue;
            rcv.nxt = rcv.range[i].right;
            rcv.range[i] = rcv.range[--rcv.nranges];
            i = UINT_MAX; /* from the beginning: another may touch now */
        }
        at_once = rcv.nranges > 0 || had != left || !net.delayed_acks;
    }
    if (rcv.fin_known && rcv.nxt == rcv.fin_at)
        rcv.fin_got = true;
    if (net.reads_us == 0)
        rcv.read = rcv.nxt;
    if (at_once || rcv.fin_got || ++rcv.unacked >= 2) {
        send_ack();
    } else if (!rcv.delack_on) {
        rcv.delack_on = true;
        push((struct event){.at_us = now + 40 * MS, .kind = DELACK});
    }
}

static void user_reads(void)
{
    bool was_small = rcv.read + net.window - rcv.nxt < net.window / 2;

    rcv.read = rcv.nxt;
    if (was_small)
        send_ack();
    if (!rcv.fin_got)
        push((struct event){.at_us = now + net.reads_us / 2 + any(net.reads_us), .kind = READ});
}

/* ---- the sender's model: which bytes it was told of ---- */

static void note_told(const struct told *t)
{
    for (unsigned i = 0; i < TCP_SACK_MAX; i++) {
        for (uint64_t at = max(t->sack[2 * i], t->ack); at < t->sack[2 * i + 1]; at++)
            told_map[at] = 1;
    }
}

static void compare(void)
{
    uint64_t at = una_off;

    for (const struct tcp_tx_seg *s = c->tx.first; s; s = s->next) {
        for (uint32_t i = 0; i < s->len - s->fin; i++, at++) {
            if (told_map[at] != (s->state == TCP_SEG_SACKED))
                fail_msg("byte %" PRIu64 " of the scoreboard: told %d, record %" PRIu64
                         " + %u (%u) state %d, una %" PRIu64,
                         at, told_map[at], at - i, s->len, s->size, s->state, una_off);
        }
        at += s->fin;
    }
}

/* ---- a transfer ---- */

static void feed(void)
{
    uint32_t n;

    while (given < total && !c->tx.blocked) {
        n = (uint32_t)min(total - given, 1 + any(20000));
        given += give(given, n, 1 + (uint32_t)any(1900), any(4) != 0, false);
    }
    if (given == total && !c->tx.fin)
        tcp_tx_fin(c);
}

static void happen(struct event e, bool exact)
{
    switch (e.kind) {
    case DATA:
        data_came(&e.s);
        break;
    case ACK:
        if (c->tx.fin_acked)
            break;
        if (exact && e.t.ack >= una_off)
            note_told(&e.t);
        else if (exact)
            note_told(&(struct told){.ack = una_off,
                                     .sack = {e.t.sack[0], e.t.sack[1], e.t.sack[2], e.t.sack[3],
                                              e.t.sack[4], e.t.sack[5], e.t.sack[6], e.t.sack[7]}});
        tell_ack(e.t);
        if (exact && !c->tx.fin_acked)
            compare();
        break;
    case READ:
        user_reads();
        break;
    case DELACK:
        rcv.delack_on = false;
        if (rcv.unacked > 0)
            send_ack();
        break;
    }
}

static void reset_net(uint64_t seed)
{
    rng = seed * UINT64_C(0x2545f4914f6cdd1d) + 99;
    memset(&rcv, 0, sizeof(rcv));
    memset(told_map, 0, MAX_TOTAL);
    nheap = 0;
    order = given = arrived_segs = drops = link_free_us = 0;
}

/* Runs until all is acknowledged. Returns the microseconds it took. */
static uint64_t transfer(uint64_t limit_us, bool exact)
{
    uint64_t start = now, wake;
    struct event e;

    if (net.reads_us > 0)
        push((struct event){.at_us = now + net.reads_us, .kind = READ});
    feed();
    flush();
    while (!c->tx.fin_acked && !aborted) {
        if (now - start > limit_us)
            fail_msg("not done: una %" PRIu64 " of %" PRIu64 ", state %d, cwnd %u", una_off, total,
                     c->tx.state, c->tx.cwnd);
        wake = (now / 1000 + 1) * 1000;
        if (reactor_timer_armed(&c->tx.timer) && c->tx.timer.expires_us > wake)
            wake = (c->tx.timer.expires_us + 999) / 1000 * 1000;
        if (reactor_timer_armed(&sh.copies->wake))
            wake = (now / 1000 + 1) * 1000;
        if (nheap > 0 && heap[0].at_us <= wake) {
            e = pop();
            clock_to(max(e.at_us, now));
            happen(e, exact);
        } else {
            clock_to(wake);
            reactor_step(reactor_self(), 0);
            if (c->tx.open)
                check_board();
        }
        if (c->tell_writable || !c->tx.blocked) {
            c->tell_writable = false;
            if (c->tx.open)
                feed();
        }
        flush();
    }
    return now - start;
}

static void finish(void)
{
    assert_true(c->tx.fin_acked);
    assert_int_equal(rcv.nxt, total);
    assert_int_equal(c->count.bytes_acked, total);
    close_conn();
}

/* ---- tests ---- */

static unsigned first = 1, seeds = 400;

static void random_run(uint64_t seed)
{
    static const uint32_t losses[] = {0, 10, 100, 500, 2000};
    uint64_t most = 3600;

    reset_net(seed);
    net = (struct net){
        .delay_us = 100 + any(any(2) ? 2000 : 100000),
        .jitter_us = any(2) ? 0 : any(20000),
        .rate = any(2) ? 0 : 100 + (uint32_t)any(10000),
        .queue_us = 2000 + any(200000),
        .loss = losses[any(5)],
        .ack_loss = losses[any(5)],
        .doubled = any(2) ? 0 : 300,
        .delayed_acks = any(2),
        .window = any(4) == 0 ? 3000 + (uint32_t)any(60000) : 1 << 20,
        .reads_us = any(4) == 0 ? 1000 + (uint32_t)any(800000) : 0,
    };
    total = 1 + any(any(4) == 0 ? 600000 : 60000);
    open_conn((struct test_opts){
        .isn = (uint32_t)(0 - any(total + 2)),
        .mss = 536 + (uint32_t)any(1500),
        .wnd = min(net.window, 60000u),
        .cc = any(2) ? "cubic" : "newreno",
        .no_ts = any(4) == 0,
        .no_sack = any(4) == 0,
        .rtt_us = any(4) == 0 ? 0 : 2 * net.delay_us,
        .wscale = 5,
    });
    tcp.opts.user_timeout = (unsigned)most;
    test_tso = any(2) ? 0 : 65000;
    transfer(most * 1000000, c->sack_on && net.window >= 1 << 20);
    finish();
}

static void test_random_nets(void **state)
{
    for (uint64_t seed = first; seed <= seeds; seed++) {
        if (getenv("TCP_TX_SHOW"))
            fprintf(stderr, "seed %" PRIu64 "\n", seed);
        random_run(seed);
    }
}

/* Bytes per second over 10 ms, 1 Gbit/s, 1 % loss at random. */
static double goodput(const char *cc, uint32_t loss, uint64_t bytes)
{
    uint64_t us;

    reset_net(4242);
    net = (struct net){
        .delay_us = 5 * MS, .rate = 125000, .queue_us = 20 * MS, .loss = loss, .window = 4 << 20};
    total = bytes;
    open_conn((struct test_opts){
        .mss = 1448, .wnd = 60000, .cc = cc, .rtt_us = 10 * MS, .wscale = 7, .isn = 1});
    us = transfer(600 * UINT64_C(1000000), false);
    if (getenv("TCP_TX_SHOW"))
        fprintf(stderr,
                "%s: %.2f MB/s, %" PRIu64 " sent again, %" PRIu64 " RTOs, %" PRIu64 " lost\n", cc,
                (double)total / (double)us, c->count.resent, c->count.rtos, drops);
    /* Losses are mended by SACK, and nothing is sent again that was not lost. */
    assert_true(c->count.rtos <= 2 + drops / 50);
    assert_true(c->count.resent <= drops + drops / 10 + 5);
    finish();
    return (double)total / ((double)us / 1e6);
}

/* RFC 5681's window under random loss is MSS sqrt(3 / 2 p) on average (a model of Mathis and
 * others); CUBIC's is not below it (RFC 9438 §4.3 wants it to be as much). */
static void test_goodput(void **state)
{
    double model = 1448 / 0.010 * sqrt(1.5 / 0.01), reno, cubic;

    reno = goodput("newreno", 100, 5 << 20);
    cubic = goodput("cubic", 100, 5 << 20);
    assert_true(reno > 0.6 * model && reno < 1.3 * model);
    assert_true(cubic > 0.8 * reno && cubic < 2.5 * model);
}

/* Without loss but what the queue's end brings, the link is used. */
static void test_fills_link(void **state)
{
    assert_true(goodput("cubic", 0, 6 << 20) > 0.25 * 125e6);
    assert_true(goodput("newreno", 0, 6 << 20) > 0.25 * 125e6);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goodput),
        cmocka_unit_test(test_fills_link),
        cmocka_unit_test(test_random_nets),
    };

    if (argc > 1)
        seeds = (unsigned)atoi(argv[1]);
    if (argc > 2)
        first = (unsigned)atoi(argv[2]);
    heap = calloc(MAX_EVENTS, sizeof(*heap));
    told_map = calloc(1, MAX_TOTAL);
    return cmocka_run_group_tests_name("tcp_tx_net", tests, begin_env, end_env);
}
