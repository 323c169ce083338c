/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault injection: docs/protocol/lnet-core.md §9.1. The comment of a test names the rows of the
 * table of attributes and the items below it that the test is about.
 */
#include <errno.h>

#include "lib/base/err.h"
#include "lib/lnet/fault/fault.h"
#include "test/unit/lnet_test.h"

static const struct lnet_result broken = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

/* ---- rules ---- */

static struct lnet_fault_nids prefix(const char *text, unsigned bits)
{
    struct lnet_fault_nids n = {.range = {.kind = NID_RANGE_PREFIX, .n = bits}};
    struct lnet_nid nid = N(text);

    n.range.net = nid_net(&nid);
    n.range.prefix = nid_prefix(&nid, bits);
    snprintf(n.text, sizeof(n.text), "%s/%u", text, bits);
    return n;
}

/* "*", "*@tcp", or one NID. */
static struct lnet_fault_nids nids(const char *text)
{
    struct lnet_fault_nids n = {.any = strcmp(text, "*") == 0};

    if (strncmp(text, "*@", 2) == 0)
        assert_int_equal(net_parse(text + 2, &n.range.net), 0);
    else if (!n.any)
        n = prefix(text, 32);
    snprintf(n.text, sizeof(n.text), "%s", text);
    return n;
}

static struct lnet_fault_rule rule_of(enum lnet_fault_kind kind)
{
    return (struct lnet_fault_rule){
        .kind = kind, .src = nids("*"), .dst = nids("*"), .local = nids("*")};
}

static struct lnet_fault_rule one_in(uint32_t rate)
{
    struct lnet_fault_rule r = rule_of(LNET_FAULT_DROP);

    r.rate = rate;
    return r;
}

static struct lnet_fault_rule delay_of(uint32_t latency)
{
    struct lnet_fault_rule r = rule_of(LNET_FAULT_DELAY);

    r.rate = 1;
    r.latency = latency;
    return r;
}

static int try_add(struct lnet_fault_rule r, const char **where)
{
    static struct err err;
    int rc;

    memset(&err, 0, sizeof(err));
    rc = lnet_fault_add(node, &r, &err);
    assert_true((rc == 0) == (err.message[0] == 0));
    if (where)
        *where = err.where;
    return rc;
}

static void add(struct lnet_fault_rule r)
{
    assert_int_equal(try_add(r, NULL), 0);
}

static int del(enum lnet_fault_kind kind, const char *src, const char *dst)
{
    struct lnet_fault_nids s = nids(src), d = nids(dst);
    struct err err = {0};
    int n = lnet_fault_del(node, kind, &s, &d, &err);

    settle();
    return n;
}

/* The i-th rule, the newest first. */
static struct lnet_fault_row row(unsigned i)
{
    static struct lnet_fault_row rows[LNET_FAULT_RULES];

    assert_true(i < lnet_fault_rows(node, rows, LNET_FAULT_RULES));
    return rows[i];
}

static unsigned rules(void)
{
    struct lnet_fault_row one;

    return lnet_fault_rows(node, &one, 1);
}

/* ---- messages ---- */

static void up(void)
{
    struct lnet_node_opts o = opts_default();

    o.tiny = o.small = 1024 * nreactors;
    o.max_peers = 1024;
    node_up(o);
    node->health.retry_count = 0; /* resends: test_lnet_resend.c */
}

static struct lnet_nid client(void)
{
    return peer_on(0, 0, "tcp", 0);
}

static struct lnet_nid server(void)
{
    return peer_on(1, 1, "tcp1", 0);
}

/* Whether a message arrives at its destination, which is not this node. */
static bool passes(struct lnet_ni *ni, struct lnet_hdr hdr)
{
    unsigned before = loop.nsent;
    struct peer_msg *fx = arrive(ni, hdr.src_nid, hdr);

    settle();
    assert_int_equal(fx->parse, LNET_DROP_NONE);
    assert_true(fx->done);
    if (loop.nsent == MAX_SENT / 2) {
        sent_clear();
        return before < MAX_SENT / 2;
    }
    return loop.nsent > before;
}

static bool ack_passes(void)
{
    return passes(tcp0, hdr_of(LNET_MSG_ACK, client(), server(), 0));
}

/* ---- what rules match ---- */

/* fa_src, fa_dst: one NID, a whole net, ANY, and a range. */
static void test_nids(void **state)
{
    struct lnet_nid c = N("10.0.3.7@tcp"), s = N("10.1.3.7@tcp1");
    struct lnet_hdr there = hdr_of(LNET_MSG_ACK, c, s, 0), back = hdr_of(LNET_MSG_ACK, s, c, 0);
    const struct {
        struct lnet_fault_nids src, dst;
        bool there, back; /* they are dropped */
    } rows[] = {
        {nids("*"), nids("*"), true, true},
        {nids("10.0.3.7@tcp"), nids("*"), true, false},
        {nids("10.0.3.8@tcp"), nids("*"), false, false},
        {nids("*"), nids("10.0.3.7@tcp"), false, true},
        {nids("*@tcp"), nids("*"), true, false},
        {nids("*"), nids("*@tcp"), false, true},
        {nids("*@tcp1"), nids("*@tcp"), false, true},
        {nids("*@tcp1"), nids("*@tcp1"), false, false},
        {prefix("10.0.3.0@tcp", 24), nids("*"), true, false},
        {prefix("10.0.2.0@tcp", 24), nids("*"), false, false},
        {nids("10.0.3.7@tcp"), nids("10.1.3.7@tcp1"), true, false},
        {nids("10.0.3.7@tcp"), nids("10.1.3.8@tcp1"), false, false},
    };

    up();
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lnet_fault_rule r = one_in(1);

        r.src = rows[i].src;
        r.dst = rows[i].dst;
        add(r);
        if (passes(tcp0, there) == rows[i].there || passes(tcp1, back) == rows[i].back)
            fail_msg("rule %u", i);
        assert_int_equal(row(0).count, rows[i].there + rows[i].back);
        assert_int_equal(row(0).affected, rows[i].there + rows[i].back);
        assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 1);
    }
    assert_true(passes(tcp0, there) && passes(tcp1, back));
    node_down();
}

/* fa_local_nid: the NI that the message came in by. */
static void test_ingress(void **state)
{
    struct lnet_fault_rule r = one_in(1);

    up();
    r.local = nids("10.1.0.1@tcp1");
    add(r);
    assert_true(ack_passes());
    assert_false(passes(tcp1, hdr_of(LNET_MSG_ACK, server(), client(), 0)));
    assert_int_equal(row(0).count, 1);
    node_down();
}

/* fa_ptl_mask: non-zero restricts to PUT and GET. fa_msg_mask: 0 is all. */
static void test_masks(void **state)
{
    const struct {
        uint64_t portals;
        uint32_t types;
        unsigned dropped; /* of the messages below, a bit each */
    } rows[] = {
        {0, 0, 0xff},
        {0, 1u << LNET_MSG_ACK, 0x01},
        {0, 1u << LNET_MSG_PUT, 0x0e},
        {0, 1u << LNET_MSG_GET, 0x70},
        {0, 1u << LNET_MSG_REPLY, 0x80},
        {0, 1u << LNET_MSG_ACK | 1u << LNET_MSG_REPLY, 0x81},
        {1ull << 63, 0, 0x44},
        {1ull << 12, 0, 0x22},
        {1ull << 12 | 1ull << 63, 1u << LNET_MSG_PUT | 1u << LNET_MSG_ACK, 0x06},
        {1ull << 12, 1u << LNET_MSG_GET, 0x20},
        {1, 0, 0},
    };
    struct lnet_nid c, s;
    struct lnet_hdr msgs[8];

    up();
    c = client();
    s = server();
    msgs[0] = hdr_of(LNET_MSG_ACK, c, s, 0);
    msgs[1] = hdr_put(c, s, 12, 1, 0, 10, false);
    msgs[2] = hdr_put(c, s, 63, 1, 0, 10, false);
    msgs[3] = hdr_put(c, s, 1000, 1, 0, 10, false);
    msgs[4] = hdr_get(c, s, 50, 1, 0, 10);
    msgs[5] = hdr_get(c, s, 12, 1, 0, 10);
    msgs[6] = hdr_get(c, s, 63, 1, 0, 10);
    msgs[7] = hdr_of(LNET_MSG_REPLY, c, s, 10);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lnet_fault_rule r = one_in(1);
        unsigned dropped = 0;

        r.portals = rows[i].portals;
        r.types = rows[i].types;
        add(r);
        for (unsigned m = 0; m < 8; m++)
            dropped |= (unsigned)!passes(tcp0, msgs[m]) << m;
        if (dropped != rows[i].dropped)
            fail_msg("rule %u drops %x", i, dropped);
        assert_int_equal(row(0).by_type[LNET_MSG_ACK], dropped & 1);
        assert_int_equal(row(0).by_type[LNET_MSG_PUT], __builtin_popcount(dropped & 0x0e));
        assert_int_equal(row(0).by_type[LNET_MSG_GET], __builtin_popcount(dropped & 0x70));
        assert_int_equal(row(0).by_type[LNET_MSG_REPLY], dropped >> 7);
        assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 1);
    }
    node_down();
}

/* fa_msg_mask with a portal mask is reduced to PUT and GET, an empty result is an error; rate and
 * interval are exclusive, one is required; the random and drop_all attributes; la_latency > 0. */
static void test_refused(void **state)
{
    const struct {
        struct lnet_fault_rule rule;
        const char *where; /* NULL: it is taken */
    } rows[] = {
        {{.rate = 1, .portals = 2, .types = 1u << LNET_MSG_ACK | 1u << LNET_MSG_REPLY}, "portal"},
        {{.rate = 1, .portals = 2, .types = 1u << LNET_MSG_ACK | 1u << LNET_MSG_GET}, NULL},
        {{.rate = 1, .interval = 1}, "interval"},
        {{0}, "rate"},
        {{.drop_all = true}, NULL},
        {{.rate = 5, .random = true}, "random"},
        {{.interval = 5, .random = true}, NULL},
        {{.rate = 1, .health = 1}, "health_error"},
        {{.rate = 1, .health = 1u << LNET_HEALTH_COUNT}, "health_error"},
        {{.rate = 1, .health = LNET_FAULT_HEALTH}, NULL},
        {{.rate = 1, .latency = 1}, "latency"},
        {{.kind = LNET_FAULT_DELAY, .rate = 1}, "latency"},
        {{.kind = LNET_FAULT_DELAY, .latency = 1}, "rate"},
        {{.kind = LNET_FAULT_DELAY, .latency = 1, .interval = 1, .random = true}, "type"},
        {{.kind = LNET_FAULT_DELAY, .latency = 1, .rate = 1, .health = 2}, "type"},
        {{.kind = LNET_FAULT_DELAY, .latency = 1, .rate = 1, .drop_all = true}, "type"},
        {{.kind = LNET_FAULT_DELAY, .latency = 1, .interval = 1}, NULL},
    };
    const char *where;

    up();
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lnet_fault_rule r = rows[i].rule;
        unsigned before = rules();

        r.src = r.dst = r.local = nids("*");
        if (try_add(r, &where) != (rows[i].where ? -EINVAL : 0) ||
            rules() != before + !rows[i].where)
            fail_msg("row %u", i);
        if (rows[i].where)
            assert_string_equal(where, rows[i].where);
    }
    assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 4);
    assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), 1);
    for (unsigned i = 0; i < LNET_FAULT_RULES; i++)
        add(one_in(1));
    assert_int_equal(try_add(one_in(1), NULL), -ENOSPC);
    node_down();
}

/* ---- which of the messages that match ---- */

/* da_rate: one in each window of R; its position differs; it is a normal drop, and none else is. */
static void test_rate(void **state)
{
    unsigned positions = 0;

    up();
    add(one_in(7));
    for (unsigned window = 0; window < 60; window++) {
        unsigned dropped = 0;

        for (unsigned i = 0; i < 7; i++)
            if (!ack_passes()) {
                dropped++;
                positions |= 1u << i;
            }
        assert_int_equal(dropped, 1);
    }
    assert_true(__builtin_popcount(positions) >= 4);
    assert_int_equal(row(0).count, 420);
    assert_int_equal(row(0).affected, 60);
    assert_int_equal(row(0).by_type[LNET_MSG_ACK], 60);
    assert_int_equal(drops_of(LNET_DROP_FAULT), 60);
    assert_int_equal(drops_sum(), 60);
    assert_int_equal(stat_of(LNET_STAT_DROP_COUNT), 60);
    assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_ACK], 60);
    assert_int_equal(ni_stats(tcp0).received[LNET_MSG_ACK], 360);
    node_down();
}

/* da_interval: one in I seconds, the next drop at base + random(0..I-1), and base advances by I. */
static void test_interval(void **state)
{
    struct lnet_fault_rule r = rule_of(LNET_FAULT_DROP);
    unsigned seconds = 0; /* of a window at which a drop came */

    up();
    r.interval = 5;
    add(r);
    for (unsigned window = 0; window < 40; window++) {
        unsigned dropped = 0;

        for (unsigned i = 0; i < 50; i++) {
            if (!ack_passes()) {
                dropped++;
                seconds |= 1u << i / 10;
            }
            clock_us += SEC / 10;
        }
        assert_int_equal(dropped, 1);
    }
    assert_true(__builtin_popcount(seconds) >= 3);
    assert_int_equal(row(0).affected, 40);
    assert_int_equal(row(0).count, 2000);
    /* After a pause one is dropped, not one for each interval that passed. */
    pass(100 * SEC);
    clock_us += 4 * SEC;
    for (unsigned i = 0; i < 10; i++)
        (void)ack_passes();
    assert_in_range(row(0).affected, 41, 42);
    node_down();
}

/* da_random: each match is dropped with probability ½. */
static void test_random(void **state)
{
    struct lnet_fault_rule r = rule_of(LNET_FAULT_DROP);

    up();
    r.interval = 1000;
    r.random = true;
    add(r);
    for (unsigned i = 0; i < 1000; i++)
        (void)ack_passes();
    assert_in_range(row(0).affected, 400, 600); /* 6 sigma */
    assert_int_equal(drops_of(LNET_DROP_FAULT), row(0).affected);
    node_down();
}

/* da_drop_all: every match is dropped, whatever rate and health mask say. */
static void test_drop_all(void **state)
{
    struct lnet_fault_rule r = one_in(1000);

    up();
    r.drop_all = true;
    r.health = 1u << LNET_HEALTH_LOCAL_ERROR;
    add(r);
    for (unsigned i = 0; i < 100; i++)
        assert_false(ack_passes());
    assert_int_equal(drops_of(LNET_DROP_FAULT), 100);
    assert_int_equal(drops_sum(), 100);
    node_down();
}

/* A message for this node is dropped at arrival, too, and is still a sign of life of its net. */
static void test_own(void **state)
{
    struct lnet_fault_rule r = one_in(1);

    up();
    r.types = 1u << LNET_MSG_GET;
    add(r);
    arrive(tcp0, client(), hdr_ping(client(), tcp0->nid));
    settle();
    assert_int_equal(sent_count(LNET_MSG_REPLY), 0);
    assert_int_equal(drops_of(LNET_DROP_FAULT), 1);
    assert_true(relaxed_load(&tcp0->pinged));
    assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 1);
    arrive(tcp0, client(), hdr_ping(client(), tcp0->nid));
    settle();
    assert_int_equal(sent_count(LNET_MSG_REPLY), 1);
    node_down();
}

/* With routing off a message for others is dropped for that reason: §4.2 row 8 is before row 10. */
static void test_not_router(void **state)
{
    struct lnet_node_opts o = opts_default();

    o.routing = false;
    node_up(o);
    add(one_in(1));
    arrive(tcp0, client(), hdr_of(LNET_MSG_ACK, client(), server(), 0));
    settle();
    assert_int_equal(drops_of(LNET_DROP_ROUTING_OFF), 1);
    assert_int_equal(drops_of(LNET_DROP_FAULT), 0);
    assert_int_equal(row(0).count, 0);
    node_down();
}

/* ---- the send fails ---- */

/* Counts forwarded messages by the status with which they failed. */
static void statuses(uint32_t mask, unsigned n, uint64_t got[LNET_HEALTH_COUNT])
{
    static const enum lnet_stat stats[LNET_HEALTH_COUNT] = {
        0,
        LNET_STAT_LOCAL_INTERRUPT_COUNT,
        LNET_STAT_LOCAL_DROPPED_COUNT,
        LNET_STAT_LOCAL_ABORTED_COUNT,
        LNET_STAT_LOCAL_NO_ROUTE_COUNT,
        LNET_STAT_LOCAL_ERROR_COUNT,
        LNET_STAT_LOCAL_TIMEOUT_COUNT,
        LNET_STAT_REMOTE_ERROR_COUNT,
        LNET_STAT_REMOTE_DROPPED_COUNT,
        LNET_STAT_REMOTE_TIMEOUT_COUNT,
        LNET_STAT_NETWORK_TIMEOUT_COUNT,
    };
    struct lnet_fault_rule r = one_in(1);
    uint64_t before = drops_of(LNET_DROP_FAULT_SEND), sum = 0;

    for (unsigned s = 1; s < LNET_HEALTH_COUNT; s++)
        got[s] = stat_of(stats[s]);
    r.health = mask;
    add(r);
    for (unsigned i = 0; i < n; i++)
        assert_false(ack_passes());
    for (unsigned s = 1; s < LNET_HEALTH_COUNT; s++) {
        got[s] = stat_of(stats[s]) - got[s];
        sum += got[s];
    }
    assert_int_equal(sum, n);
    assert_int_equal(drops_of(LNET_DROP_FAULT_SEND) - before, n);
    assert_int_equal(row(0).affected, n);
    assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 1);
    assert_int_equal(loop.nsent, 0);
    check_quiet();
}

/* da_health_error_mask: each bit is its status. The message is not transmitted; a drop of NI and
 * peer NI, not one at arrival. */
static void test_health(void **state)
{
    uint64_t got[LNET_HEALTH_COUNT];

    up();
    for (unsigned s = 1; s < LNET_HEALTH_COUNT; s++) {
        statuses(1u << s, 3, got);
        assert_int_equal(got[s], 3);
    }
    assert_int_equal(drops_of(LNET_DROP_FAULT), 0);
    assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_ACK], 0);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_ACK], 30);
    assert_int_equal(ni_stats(tcp1).sent[LNET_MSG_ACK], 0);
    node_down();
}

/* Health status choice: random over all, status 1 twice as likely; else the nearest bit that is
 * set. */
static void test_health_choice(void **state)
{
    uint64_t got[LNET_HEALTH_COUNT];

    up();
    statuses(LNET_FAULT_HEALTH, 1100, got);
    assert_in_range(got[1], 130, 270);
    for (unsigned s = 2; s < LNET_HEALTH_COUNT; s++)
        assert_in_range(got[s], 50, 150);
    /* 0 to 5 are nearer to 2, 7 to 10 to 10; 6 is as near to both. */
    statuses(1u << 2 | 1u << 10, 1100, got);
    assert_int_equal(got[2] + got[10], 1100);
    assert_in_range(got[2], 600, 800);
    node_down();
}

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    int *statuses_ = arg;

    statuses_[0]++;
    statuses_[1] = status;
}

/* A message of this node itself fails, too, and its caller is told. */
static void test_health_own(void **state)
{
    struct lnet_fault_rule r = one_in(1);
    struct lnet_nid s;
    int pong[2] = {0};

    up();
    s = server();
    r.health = 1u << LNET_HEALTH_NETWORK_TIMEOUT;
    r.types = 1u << LNET_MSG_GET;
    add(r);
    assert_int_equal(lnet_ping(node, &s, NULL, 100000, on_pong, pong), 0);
    settle();
    assert_int_equal(pong[0], 1);
    assert_int_equal(pong[1], -EHOSTUNREACH);
    assert_int_equal(stat_of(LNET_STAT_NETWORK_TIMEOUT_COUNT), 1);
    assert_int_equal(loop.nsent, 0);
    node_down();
}

/* ---- several rules ---- */

/* New rules go to the head of the list; the first that decides stops the scan. */
static void test_order(void **state)
{
    struct lnet_fault_rule delay = delay_of(1);

    up();
    add(one_in(1));
    add(one_in(4));
    for (unsigned i = 0; i < 8; i++)
        assert_false(ack_passes());
    assert_int_equal(row(0).rule.rate, 4);
    assert_int_equal(row(0).count, 8);
    assert_int_equal(row(0).affected, 2);
    assert_int_equal(row(1).count, 6);
    assert_int_equal(row(1).affected, 6);
    assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 2);
    add(delay);
    delay.latency = 50;
    delay.rate = 1000;
    add(delay);
    arrive(tcp0, client(), hdr_of(LNET_MSG_ACK, client(), server(), 0));
    settle();
    assert_int_equal(row(0).count, 1);
    assert_int_equal(row(0).affected + row(1).affected, 1);
    assert_int_equal(row(1).count + row(0).affected, 1);
    node_down();
}

/* Statistics per rule; a reset zeroes them and restarts rate and interval, of one kind only. */
static void test_reset(void **state)
{
    struct lnet_fault_rule r = rule_of(LNET_FAULT_DROP);
    unsigned at[2] = {0}, same = 0;

    up();
    r.interval = 1000;
    add(r);
    add(one_in(1000));
    add(delay_of(1));
    for (unsigned round = 0; round < 6; round++) {
        assert_int_equal(row(1).count, 0);
        assert_int_equal(row(1).affected, 0);
        assert_int_equal(row(1).by_type[LNET_MSG_ACK], 0);
        assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), round == 0 ? 1 : -ENOENT);
        if (round == 0)
            continue;
        for (at[1] = 0; row(0).affected == 0; at[1]++)
            (void)ack_passes();
        assert_true(at[1] <= 1000); /* of the first window, which begins with the reset */
        same += at[0] == at[1];
        at[0] = at[1];
        lnet_fault_reset(node, LNET_FAULT_DELAY);
        assert_int_equal(row(0).count, at[1]);
        clock_us += 1500 * SEC;
        (void)ack_passes();
        /* Its second of the interval has passed; it may have been the first one. */
        assert_in_range(row(1).affected, 1, 2);
        lnet_fault_reset(node, LNET_FAULT_DROP);
        (void)ack_passes();
        lnet_fault_reset(node, LNET_FAULT_DROP);
        add(delay_of(1));
        assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), 1);
    }
    assert_true(same < 5);
    node_down();
}

/* Delete: by source and destination, ANY in either matches all; the number; none is an error. */
static void test_delete(void **state)
{
    struct lnet_fault_rule r = one_in(1);

    up();
    assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), -ENOENT);
    for (unsigned i = 0; i < 3; i++) {
        static const char *const srcs[] = {"10.0.0.2@tcp", "10.0.0.3@tcp", "*@tcp"};

        r.src = nids(srcs[i]);
        r.dst = nids("10.1.0.2@tcp1");
        add(r);
        r.dst = nids("*");
        add(r);
    }
    assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), -ENOENT);
    assert_int_equal(del(LNET_FAULT_DROP, "10.0.0.4@tcp", "*"), -ENOENT);
    assert_int_equal(del(LNET_FAULT_DROP, "10.0.0.3@tcp", "10.1.0.2@tcp1"), 1);
    assert_int_equal(del(LNET_FAULT_DROP, "10.0.0.2@tcp", "*"), 2);
    assert_int_equal(del(LNET_FAULT_DROP, "*", "10.1.0.2@tcp1"), 1);
    assert_int_equal(rules(), 2);
    assert_int_equal(del(LNET_FAULT_DROP, "*", "*"), 2);
    assert_null(lnet_faults(node));
    assert_null(node->faults_deleted);
    node_down();
}

/* ---- delays ---- */

static struct peer_msg *ack_comes(void)
{
    struct peer_msg *fx = arrive(tcp0, client(), hdr_of(LNET_MSG_ACK, client(), server(), 0));

    settle();
    return fx;
}

/* Evaluated at arrival and again when sending, each time held for the latency; by a timer. */
static void test_delay(void **state)
{
    struct peer_msg *fx;

    up();
    add(delay_of(3));
    fx = ack_comes();
    assert_int_equal(fx->recvs, 0);
    assert_int_equal(row(0).held, 1);
    pass(2900000);
    assert_int_equal(fx->recvs, 0);
    pass(200000);
    assert_int_equal(fx->recvs, 1); /* and is held again */
    assert_int_equal(loop.nsent, 0);
    assert_int_equal(row(0).held, 1);
    pass(2700000);
    assert_int_equal(loop.nsent, 0);
    pass(400000);
    assert_int_equal(loop.nsent, 1);
    assert_int_equal(row(0).held, 0);
    assert_int_equal(row(0).affected, 2);
    assert_int_equal(row(0).by_type[LNET_MSG_ACK], 2);
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* Messages for this node, and of this node. */
static void test_delay_own(void **state)
{
    struct lnet_nid s;
    int pong[2] = {0};

    up();
    s = server();
    add(delay_of(2));
    arrive(tcp0, client(), hdr_ping(client(), tcp0->nid));
    settle();
    pass_ms(3900);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 0);
    pass_ms(300);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 1);
    assert_int_equal(lnet_ping(node, &s, NULL, 10000, on_pong, pong), 0);
    settle();
    pass_ms(1900);
    assert_int_equal(sent_count(LNET_MSG_GET), 0);
    pass_ms(300);
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    pass(10 * SEC);
    assert_int_equal(pong[0], 1);
    node_down();
}

/* A held message keeps its credits and its buffer, as one that waits. */
static void test_delay_credits(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_fault_rule r = delay_of(5);
    struct lnet_peer_ni *to;
    struct lnet_nid s;

    o.max_peers = 1024;
    node_make(o);
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add_with("10.1.0.1@tcp1", -1, 2, -1);
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
    s = server();
    r.rate = 1000000;
    r.dst = nids("*@tcp1");
    add(r);
    for (unsigned i = 0; i < 3; i++)
        ack_comes();
    assert_int_equal(loop.nsent, 3);
    assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), 1);
    /* At sending only: they have arrived when the rule comes. */
    loop.hold_recv = true;
    {
        struct peer_msg *fx[3] = {ack_comes(), ack_comes(), ack_comes()};

        add(delay_of(5));
        loop.hold_recv = false;
        for (unsigned i = 0; i < 3; i++)
            recv_end(fx[i], ok);
        settle();
    }
    to = peer_find(&s);
    assert_int_equal(row(0).held, 2);
    assert_int_equal(to->tx.now, -1);
    assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 3);
    pass(5100000);
    assert_int_equal(loop.nsent, 5);
    assert_int_equal(row(0).held, 1);
    pass(5100000);
    assert_int_equal(loop.nsent, 6);
    node_down();
}

/* Deleting a delay rule releases its messages at once, headers and messages, however many. */
static void test_delete_releases(void **state)
{
    struct peer_msg *fx[200];

    up();
    loop.hold_recv = true;
    for (unsigned i = 0; i < 100; i++)
        fx[i] = ack_comes();
    add(delay_of(1000));
    loop.hold_recv = false;
    for (unsigned i = 0; i < 100; i++)
        recv_end(fx[i], ok);
    for (unsigned i = 100; i < 200; i++)
        fx[i] = ack_comes();
    settle();
    assert_int_equal(row(0).held, 200);
    pass(10 * SEC);
    assert_int_equal(loop.nsent, 0);
    assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), 1);
    assert_int_equal(loop.nsent, 200);
    assert_null(node->faults_deleted);
    check_quiet();
    node_down();
}

/* A connection that ends while its header is held: the header is dropped by name. */
static void test_delay_cancel(void **state)
{
    struct peer_msg *fx;

    up();
    add(delay_of(1000));
    fx = ack_comes();
    assert_true(rx_cancel(fx));
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 1);
    assert_int_equal(row(0).held, 0);
    check_quiet();
    fx = ack_comes();
    assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), 1);
    assert_true(fx->done);
    node_down();
}

static void on_removed(void *arg, int rc, const struct err *why)
{
    assert_int_equal(rc, 0);
    ++*(int *)arg;
}

/* An NI is removed: what a rule holds for it fails at once, what it holds for others stays. */
static void test_ni_removed(void **state)
{
    struct peer_msg *out, *stays;
    struct err err = {0};
    int removed = 0;

    up();
    loop.hold_recv = true;
    out = ack_comes();
    stays = arrive(tcp1, server(), hdr_of(LNET_MSG_ACK, server(), client(), 0));
    settle();
    add(delay_of(1000));
    loop.hold_recv = false;
    recv_end(out, ok);
    recv_end(stays, ok);
    settle();
    arrive(tcp1, server(), hdr_of(LNET_MSG_ACK, server(), client(), 0)); /* a header of that NI */
    settle();
    assert_int_equal(row(0).held, 3);
    assert_int_equal(lnet_ni_del(node, &tcp1->nid, on_removed, &removed, &err), 0);
    settle();
    pass(3 * SEC);
    assert_int_equal(removed, 1);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 2);
    assert_int_equal(row(0).held, 1);
    assert_int_equal(loop.nsent, 0);
    assert_int_equal(del(LNET_FAULT_DELAY, "*", "*"), 1);
    assert_int_equal(loop.nsent, 1);
    node_down();
}

/* A stop ends all rules: messages that they hold are delivered, and no rule comes any more. */
static void test_stop(void **state)
{
    int stopped = 0;

    up();
    add(delay_of(1000));
    ack_comes();
    loop.hold_recv = true;
    ack_comes();
    loop.hold_recv = false;
    assert_int_equal(row(0).held, 2);
    lnet_node_stop(node, 5, on_stopped, &stopped);
    settle();
    assert_int_equal(loop.nsent, 2);
    assert_int_equal(drops_sum(), 0);
    assert_int_equal(rules(), 0);
    assert_int_equal(try_add(one_in(1), NULL), -ESHUTDOWN);
    pass(10 * SEC);
    assert_int_equal(stopped, 1);
    check_quiet();
    rx_free_all();
    sent_clear();
    node_gone();
}

/* The end of a node that was not stopped in order, while messages are held. */
static void test_end(void **state)
{
    int stopped = 0;

    up();
    add(one_in(1000));
    add(delay_of(1000));
    ack_comes();
    lnet_node_end(node);
    settle();
    lnet_node_stop(node, 0, on_stopped, &stopped); /* its timers */
    pass(5 * SEC);
    assert_int_equal(rules(), 0);
    assert_int_equal(drops_of(LNET_DROP_SHUTDOWN) + loop.nsent, 1);
    check_quiet();
    rx_free_all();
    sent_clear();
    node_gone();
}

/* The LND refuses a message that is let go: credits return as always. */
static void test_refused_by_lnd(void **state)
{
    up();
    loop.send_result = broken;
    add(delay_of(1));
    for (unsigned i = 0; i < 50; i++)
        ack_comes();
    pass(3 * SEC);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 50);
    assert_int_equal(loop.max_sending, 1);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_nids),
    LNET_TEST(test_ingress),
    LNET_TEST(test_masks),
    LNET_TEST(test_refused),
    LNET_TEST(test_rate),
    LNET_TEST(test_interval),
    LNET_TEST(test_random),
    LNET_TEST(test_drop_all),
    LNET_TEST(test_own),
    LNET_TEST(test_not_router),
    LNET_TEST(test_health),
    LNET_TEST(test_health_choice),
    LNET_TEST(test_health_own),
    LNET_TEST(test_order),
    LNET_TEST(test_reset),
    LNET_TEST(test_delete),
    LNET_TEST(test_delay),
    LNET_TEST(test_delay_own),
    LNET_TEST(test_delay_credits),
    LNET_TEST(test_delete_releases),
    LNET_TEST(test_delay_cancel),
    LNET_TEST(test_ni_removed),
    LNET_TEST(test_stop),
    LNET_TEST(test_end),
    LNET_TEST(test_refused_by_lnd),
};

LNET_TESTS_MAIN("test_lnet_fault", tests)
