/* SPDX-License-Identifier: BSD-3-Clause */
/* Health of NIs and peer NIs, and their recovery: docs/protocol/lnet-core.md §6.1 to §6.3. */
#include "test/unit/lnet_health_test.h"

#include "lib/base/err.h"
#include "lib/lnet/peer/peers.h"

static void set_ni(struct lnet_ni *ni, unsigned health)
{
    ON(0, lnet_health_ni_set(ni, health, LNET_CAUSE_COMMAND));
    settle();
}

static void rules(unsigned sensitivity, unsigned limit, unsigned interval)
{
    struct lnet_health_rules r = LNET_HEALTH_RULES;
    struct err err;

    r.sensitivity = sensitivity;
    r.recovery_limit = limit;
    r.max_interval = interval;
    assert_int_equal(lnet_health_set(node, &r, &err), 0);
}

/* ---- §6.2: the table ---- */

enum {
    LOCAL = 1,
    PEER = 2,
};

/* The columns of the table; ni_count: a status that the NI counts, else by index in `peer`. */
static const struct {
    enum lnet_health health;
    unsigned lowers;
    enum lnet_stat stat;
    int peer_count; /* -1: the NI counts it */
} table[] = {
    {LNET_HEALTH_LOCAL_INTERRUPT, LOCAL, LNET_STAT_LOCAL_INTERRUPT_COUNT, -1},
    {LNET_HEALTH_LOCAL_DROPPED, LOCAL, LNET_STAT_LOCAL_DROPPED_COUNT, -1},
    {LNET_HEALTH_LOCAL_ABORTED, LOCAL, LNET_STAT_LOCAL_ABORTED_COUNT, -1},
    {LNET_HEALTH_LOCAL_NO_ROUTE, LOCAL, LNET_STAT_LOCAL_NO_ROUTE_COUNT, -1},
    {LNET_HEALTH_LOCAL_ERROR, LOCAL, LNET_STAT_LOCAL_ERROR_COUNT, -1},
    {LNET_HEALTH_LOCAL_TIMEOUT, LOCAL, LNET_STAT_LOCAL_TIMEOUT_COUNT, -1},
    {LNET_HEALTH_REMOTE_ERROR, PEER, LNET_STAT_REMOTE_ERROR_COUNT, LNET_PEER_ERROR},
    {LNET_HEALTH_REMOTE_DROPPED, PEER, LNET_STAT_REMOTE_DROPPED_COUNT, LNET_PEER_DROPPED},
    {LNET_HEALTH_REMOTE_TIMEOUT, PEER, LNET_STAT_REMOTE_TIMEOUT_COUNT, LNET_PEER_TIMEOUT},
    {LNET_HEALTH_NETWORK_TIMEOUT, LOCAL | PEER, LNET_STAT_NETWORK_TIMEOUT_COUNT,
     LNET_PEER_NETWORK_TIMEOUT},
};
#define ROWS (sizeof(table) / sizeof(table[0]))

static void check_counts(const struct lnet_ni *ni, struct lnet_nid nid, unsigned row, uint64_t n)
{
    const struct lnet_peer_ni *p = peer_find(&nid);
    struct lnet_ni_stats s = ni_stats(ni);

    for (unsigned i = 0; i < ROWS; i++) {
        uint64_t want = i == row ? n : 0;

        assert_int_equal(stat_of(table[i].stat), want);
        if (table[i].peer_count < 0)
            assert_int_equal(s.health[table[i].health], want);
        else
            assert_int_equal(p->health_count[table[i].peer_count], want);
    }
}

/* §6.2 row 1, row 2, row 3, row 4, row 5, row 6, row 7, row 8, row 9, row 10: of a message that is
 * sent, the egress NI and the next hop. */
static void test_table_of_sends(void **state)
{
    for (unsigned i = 0; i < ROWS; i++) {
        health_up(true);
        forward(failure(table[i].health));
        assert_int_equal(tcp1->health, table[i].lowers & LOCAL ? 900 : 1000);
        assert_int_equal(health_of(to_nid), table[i].lowers & PEER ? 900 : 1000);
        assert_int_equal(tcp0->health, 1000);
        assert_int_equal(health_of(from_nid), 1000);
        check_counts(tcp1, to_nid, i, 1);
        for (unsigned k = 0; k < 10; k++) /* 0 is the least */
            forward(failure(table[i].health));
        assert_int_equal(tcp1->health, table[i].lowers & LOCAL ? 0 : 1000);
        assert_int_equal(health_of(to_nid), table[i].lowers & PEER ? 0 : 1000);
        check_counts(tcp1, to_nid, i, 11);
        lnet_stats_reset(node);
        settle();
        check_counts(tcp1, to_nid, i, 0);
        node_down();
    }
}

/* Of a message whose receive fails, the ingress NI and the sender. */
static void test_table_of_receives(void **state)
{
    for (unsigned i = 0; i < ROWS; i++) {
        health_up(true);
        loop.recv_result = failure(table[i].health);
        arrive(tcp0, from_nid, hdr_of(LNET_MSG_PUT, from_nid, to_nid, 100));
        settle();
        assert_int_equal(tcp0->health, table[i].lowers & LOCAL ? 900 : 1000);
        assert_int_equal(health_of(from_nid), table[i].lowers & PEER ? 900 : 1000);
        assert_int_equal(tcp1->health, 1000);
        check_counts(tcp0, from_nid, i, 1);
        loop.recv_result = ok;
        node_down();
    }
}

/* §6.2 row 0, rule 15, rule 16, rule 18: a message that passes raises the ingress and the egress NI
 * by a step and sets its sender to full health; that of the next hop stays. */
static void test_ok(void **state)
{
    struct lnet_peer_ni *p;

    health_up(true);
    set_ni(tcp0, 500);
    set_ni(tcp1, 950);
    set_peer(from_nid, 300);
    set_peer(to_nid, 300);
    p = peer_find(&from_nid);
    p->ping_count = 3;
    tcp0->ping_count = 2;
    forward(ok);
    assert_int_equal(tcp0->health, 600);
    assert_int_equal(tcp1->health, 1000);
    assert_int_equal(health_of(from_nid), 1000);
    assert_int_equal(health_of(to_nid), 300);
    assert_int_equal(p->ping_count, 0);
    assert_int_equal(tcp0->ping_count, 0);
    node_down();
}

/* Failures and successes in any order, collected while the node's home is busy: each counts. */
static void test_order(void **state)
{
    static const char order[] = "-+--+-+++-----+---++------------+++-+";
    unsigned want = 950;
    struct lnet_peer_ni *p;

    health_up(true);
    set_ni(tcp1, 950);
    ON(home_of(&to_nid), p = lnet_peer_ni_get(node, &to_nid));
    for (const char *c = order; *c; c++) {
        if (*c == '+')
            ON(home_of(&to_nid), lnet_health_sent(p->shard, tcp1, NULL));
        else
            ON(home_of(&to_nid),
               lnet_health_failed(p->shard, tcp1, p, NULL, failure(LNET_HEALTH_LOCAL_TIMEOUT), 0));
        want = *c == '+' ? (want > 900 ? 1000 : want + 100) : want < 100 ? 0 : want - 100;
    }
    settle();
    assert_int_equal(tcp1->health, want);
    assert_false(p->shard->ni_steps);
    ON(home_of(&to_nid), lnet_peer_ni_put(p));
    node_down();
}

/* §6.2 rule 1, rule 3, rule 4: what says nothing of health. */
static void test_no_handling(void **state)
{
    struct lnet_nid nowhere = N("10.9.0.1@tcp9");

    health_up(true);
    arrive(tcp0, from_nid, hdr_of(LNET_MSG_PUT, from_nid, nowhere, 10)); /* no path */
    settle();
    assert_int_equal(tcp0->health, 1000);
    assert_int_equal(health_of(from_nid), 1000);
    forward((struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_OK});
    set_ni(tcp1, 500);
    forward((struct lnet_result){LNET_DROP_NONE, LNET_HEALTH_LOCAL_ERROR});
    assert_int_equal(tcp1->health, 500);
    assert_int_equal(health_of(to_nid), 1000);
    check_counts(tcp1, to_nid, ROWS, 0);
    set_ni(tcp1, 1000);

    loop.hold_send = true; /* past the deadline: the transaction timeout, as this LND has none */
    forward(ok);
    pass(149 * SEC);
    send_end_all(failure(LNET_HEALTH_REMOTE_TIMEOUT));
    settle();
    assert_int_equal(health_of(to_nid), 900);
    forward(ok);
    pass(151 * SEC);
    send_end_all(failure(LNET_HEALTH_REMOTE_TIMEOUT));
    settle();
    assert_int_equal(health_of(to_nid), 900);
    assert_int_equal(stat_of(LNET_STAT_REMOTE_TIMEOUT_COUNT), 1);
    node_down();
}

/* The step is the sensitivity; 0: no health. */
static void test_sensitivity(void **state)
{
    struct lnet_health_rules r = LNET_HEALTH_RULES;
    struct err err;

    health_up(true);
    rules(300, 0, 900);
    forward(failure(LNET_HEALTH_NETWORK_TIMEOUT));
    assert_int_equal(tcp1->health, 700);
    assert_int_equal(health_of(to_nid), 700);
    for (unsigned i = 0; i < 3; i++)
        forward(failure(LNET_HEALTH_NETWORK_TIMEOUT));
    assert_int_equal(tcp1->health, 0); /* from 100 */
    rules(0, 0, 900);
    set_ni(tcp1, 700);
    forward(failure(LNET_HEALTH_NETWORK_TIMEOUT));
    forward(ok);
    assert_int_equal(tcp1->health, 700);
    assert_int_equal(stat_of(LNET_STAT_NETWORK_TIMEOUT_COUNT), 5);
    r.sensitivity = 1001;
    assert_int_equal(lnet_health_set(node, &r, &err), -EINVAL);
    r = LNET_HEALTH_RULES;
    r.max_interval = 0;
    assert_int_equal(lnet_health_set(node, &r, &err), -EINVAL);
    node_down();
}

/* ---- an end node ---- */

static void no_answer(void *arg, int status, const struct lnet_ping_info *info)
{
    ++*(unsigned *)arg;
}

static void ping_fails(struct lnet_nid nid, enum lnet_health health)
{
    unsigned answers = 0;

    loop.send_result = failure(health);
    assert_int_equal(lnet_ping(node, &nid, &tcp1->nid, 1000, no_answer, &answers), 0);
    settle();
    assert_int_equal(answers, 1);
    loop.send_result = ok;
}

/* §6.2 rule 6, rule 9, rule 17: where this node does not route, failures of a peer with one NI do
 * not count, those of one with several or of a gateway do; a message raises by a step. */
static void test_end_node(void **state)
{
    struct lnet_nid other, gw;

    health_up(false);
    other = peer_on(0, 1, "tcp1", 7);
    gw = peer_on(0, 1, "tcp1", 8);
    ping_fails(to_nid, LNET_HEALTH_REMOTE_ERROR);
    assert_int_equal(health_of(to_nid), 1000);
    assert_int_equal(stat_of(LNET_STAT_REMOTE_ERROR_COUNT), 1);
    ping_fails(to_nid, LNET_HEALTH_LOCAL_ERROR); /* the NI in any case */
    assert_int_equal(tcp1->health, 900);
    assert_int_equal(peer_table_add(node->peers, &to_nid, &to_nid, PEER_MULTI_RAIL), 0);
    ping_fails(to_nid, LNET_HEALTH_REMOTE_ERROR);
    assert_int_equal(health_of(to_nid), 1000);
    assert_int_equal(peer_table_add(node->peers, &to_nid, &other, PEER_MULTI_RAIL), 0);
    ping_fails(to_nid, LNET_HEALTH_REMOTE_ERROR);
    ping_fails(to_nid, LNET_HEALTH_REMOTE_TIMEOUT);
    assert_int_equal(health_of(to_nid), 800);
    assert_int_equal(peer_table_find_ni(node->peers, &to_nid)->health, 800);
    arrive(tcp1, to_nid, hdr_ping(to_nid, tcp1->nid));
    settle();
    assert_int_equal(health_of(to_nid), 900);

    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    settle();
    sent_clear();
    ping_fails(gw, LNET_HEALTH_REMOTE_ERROR);
    assert_int_equal(health_of(gw), 900);
    arrive(tcp1, gw, hdr_ping(gw, tcp1->nid));
    settle();
    assert_int_equal(health_of(gw), 1000);
    node_down();
}

/* §6.2 rule 19: a ping that is not answered lowers the next hop, and so does a peer that says that
 * its NI is down. */
static void test_other_sources(void **state)
{
    struct lnet_nid gw;
    const struct peer_event event = {.kind = PEER_NI_STATUS, .old_status = LNET_NI_UP};
    struct peer_ni *ni;
    struct peer_event down = event;

    health_up(true);
    gw = peer_on(nreactors - 1, 0, "tcp", 3);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    pass(2 * SEC);
    assert_int_equal(health_of(gw), 1000);
    pass(52 * SEC); /* router_ping_timeout: its first ping */
    assert_true(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT) > 0);
    assert_true(health_of(gw) < 1000);
    set_peer(gw, 700);
    ni = peer_table_find_ni(node->peers, &gw);
    ni->status = LNET_NI_DOWN;
    down.ni = ni;
    down.peer = ni->net->peer;
    ON(0, node->peers->opts.notify(node, &down));
    settle();
    assert_int_equal(health_of(gw), 600);
    assert_int_equal(ni->health, 600);
    node_down();
}

/* ---- the published status (2.17), and what operators set ---- */

static void set_done(void *arg, int rc, const struct err *err)
{
    *(int *)arg = rc;
}

static void test_status(void **state)
{
    struct err err;
    int rc = 1;

    health_up(true);
    assert_int_equal(route_add("tcp5", peer_on(0, 5, "tcp1", 0), -1, 0), 0);
    assert_int_equal(lnet_ni_health_set(node, &tcp1->nid, 100, set_done, &rc, &err), 0);
    settle();
    assert_int_equal(rc, 0);
    assert_int_equal(tcp1->health, 100);
    assert_int_equal(tcp1->status, LNET_NI_UP);
    forward(failure(LNET_HEALTH_LOCAL_ERROR));
    assert_int_equal(tcp1->health, 0);
    assert_int_equal(tcp1->status, LNET_NI_UP);
    loop.send_result = failure(LNET_HEALTH_LOCAL_ERROR);
    pass(6 * SEC);
    assert_int_equal(tcp1->health, 0);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    assert_int_equal(published()->ni[1].status, LNET_NI_DOWN);
    forward(ok);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    set_ni(tcp1, 1000);
    assert_int_equal(tcp1->status, LNET_NI_UP);
    assert_int_equal(published()->ni[1].status, LNET_NI_UP);
    set_ni(tcp1, 0);
    assert_int_equal(tcp1->status, LNET_NI_UP);
    assert_int_equal(lnet_ni_health_set(node, &tcp1->nid, 0, set_done, &rc, &err), 0);
    pass(SEC / 2);
    pass(SEC / 2);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    assert_int_equal(lnet_ni_health_set(node, &to_nid, 5, set_done, &rc, &err), -ENOENT);
    assert_int_equal(lnet_ni_health_set(node, &tcp1->nid, 1001, set_done, &rc, &err), -ERANGE);
    node_down();
}

/* Failures that any node can bring about do not take an NI down by which messages come in. */
static void test_status_of_a_living_net(void **state)
{
    health_up(true);
    for (unsigned i = 0; i < 60; i++) {
        pass(SEC);
        if (i < 30)
            arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 100));
        settle();
        for (unsigned k = 0; k < 8; k++)
            forward(failure(LNET_HEALTH_NETWORK_TIMEOUT));
        assert_true(i < 10 || tcp1->health == 0);
        if (i < 30)
            assert_int_equal(tcp1->status, LNET_NI_UP);
    }
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    node_down();
}

static void test_set_all(void **state)
{
    struct err err;
    int rc = 1;

    health_up(true);
    for (unsigned i = 0; i < 150; i++) {
        struct lnet_nid nid = peer_on(i, 2, "tcp1", i / nreactors);

        assert_int_equal(peer_table_add(node->peers, &nid, &nid, PEER_MULTI_RAIL), 0);
        if (i % 3)
            set_peer(nid, 900);
    }
    assert_int_equal(lnet_peer_set(node, &LNET_NID_ANY, 400, -1, set_done, &rc, &err), 0);
    settle();
    assert_int_equal(rc, 0);
    for (unsigned i = 0; i < 150; i++) {
        struct lnet_nid nid = peer_on(i, 2, "tcp1", i / nreactors);

        if (i % 3)
            assert_int_equal(health_of(nid), 400);
        else
            assert_null(peer_find(&nid)); /* none is made for it */
        assert_int_equal(peer_table_find_ni(node->peers, &nid)->health, 400);
    }
    node_down();
}

/* ---- §6.3: recovery ---- */

static unsigned pings_to(struct lnet_nid nid)
{
    unsigned n = 0;

    for (unsigned i = 0; i < loop.nsent; i++)
        n += loop.sent[i].hdr.type == LNET_MSG_GET && nid_same(&loop.sent[i].to, &nid);
    return n;
}

static struct lnet_nid listed[LNET_RECOVERY_MAX];
static unsigned nlisted;

static void list(void *arg, const struct lnet_nid *nids, unsigned n, unsigned total)
{
    memcpy(listed, nids, sizeof(listed[0]) * n);
    nlisted = n;
    *(bool *)arg = n == total;
}

static bool is_listed(bool local, struct lnet_nid nid)
{
    bool all = false;

    assert_int_equal(lnet_recovery_get(node, local, list, &all), 0);
    settle();
    assert_true(all);
    for (unsigned i = 0; i < nlisted; i++)
        if (nid_same(&listed[i], &nid))
            return true;
    return false;
}

/* Notes in which second after now each of n pings leaves. */
static void note_pings(struct lnet_nid nid, unsigned n, unsigned when[])
{
    sent_clear();
    for (unsigned s = 1, k = 0; k < n && s < 4000; s++) {
        clock_us += SEC;
        settle();
        if (pings_to(nid) > k)
            when[k++] = s;
    }
}

static void check_times(const unsigned got[], const unsigned want[], unsigned n)
{
    for (unsigned i = 0; i < n; i++) /* with the tick of a second */
        if (got[i] < want[i] || got[i] > want[i] + 1)
            fail_msg("ping %u in second %u, not %u", i, got[i], want[i]);
}

/* §6.3 recovery 2, recovery 4, recovery 7, recovery 8, recovery 9, recovery 10, recovery 11,
 * recovery 15: a peer NI that fails is pinged in the seconds 1, 3, 7, 15, 31, until it answers. */
static void test_peer_recovery(void **state)
{
    static const unsigned want[] = {1, 3, 7, 15, 31};
    struct lnet_nid other;
    unsigned when[5] = {0};
    struct lnet_get get;
    uint8_t data[64];
    struct sent *s;

    health_up(true);
    other = peer_on(0, 1, "tcp1", 9);
    set_peer(other, 500); /* nothing ever came from it */
    assert_false(is_listed(false, other));
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    settle();
    assert_false(is_listed(false, to_nid));
    forward(failure(LNET_HEALTH_REMOTE_DROPPED));
    assert_true(is_listed(false, to_nid));
    assert_int_equal(nlisted, 1);
    note_pings(to_nid, 5, when);
    check_times(when, want, 5);
    s = sent_last(LNET_MSG_GET);
    lnet_body_get_get(&s->hdr, &get);
    assert_int_equal(get.portal, 0);
    assert_int_equal(get.sink_length, 272);
    assert_true(nid_same(&s->hdr.dest_nid, &to_nid));
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    assert_int_equal(peer_find(&to_nid)->ping_count, 5);
    assert_true(health_of(to_nid) < 900); /* pings that were not answered */
    assert_true(is_listed(false, to_nid));
    reply_to(s, data, make_info(data, sizeof(data), to_nid, 0x1a, 1, 0));
    assert_int_equal(health_of(to_nid), 1000);
    assert_int_equal(peer_find(&to_nid)->ping_count, 0);
    assert_false(is_listed(false, to_nid));
    sent_clear();
    pass(100 * SEC);
    assert_int_equal(pings_to(to_nid), 0);
    node_down();
}

/* §6.3 recovery 5, recovery 6: the gap grows to the maximum. */
static void test_interval(void **state)
{
    static const unsigned want[] = {1, 3, 7, 11, 15, 19};
    unsigned when[6] = {0};

    health_up(true);
    rules(100, 0, 4);
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    settle();
    forward(failure(LNET_HEALTH_REMOTE_DROPPED));
    note_pings(to_nid, 6, when);
    check_times(when, want, 6);
    rules(100, 0, 900);
    assert_int_equal(lnet_recovery_next_us(node, 9) - reactor_now_us(), 512 * SEC);
    assert_int_equal(lnet_recovery_next_us(node, 10) - reactor_now_us(), 900 * SEC);
    assert_int_equal(lnet_recovery_next_us(node, 255) - reactor_now_us(), 900 * SEC);
    node_down();
}

/* §6.3 recovery 3: after recovery_limit a peer NI is left alone, until a message comes from it. */
static void test_limit(void **state)
{
    health_up(true);
    rules(100, 10, 900);
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    settle();
    forward(failure(LNET_HEALTH_REMOTE_DROPPED));
    pass(9 * SEC);
    assert_true(is_listed(false, to_nid));
    assert_true(peer_find(&to_nid)->ping_count > 0);
    pass(3 * SEC);
    assert_false(is_listed(false, to_nid));
    assert_int_equal(peer_find(&to_nid)->ping_count, 0);
    assert_true(health_of(to_nid) < 1000);
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    settle();
    forward(failure(LNET_HEALTH_REMOTE_DROPPED));
    assert_true(is_listed(false, to_nid));
    node_down();
}

/* §6.3 recovery 1, recovery 13: an NI that fails pings a neighbour; the answer raises it by a step,
 * and so do the message that is sent and the one that is received. */
static void test_ni_recovery(void **state)
{
    static const unsigned want[] = {1, 3};
    struct lnet_nid gw;
    unsigned when[2] = {0};
    uint8_t data[64];

    health_up(true);
    gw = peer_on(0, 1, "tcp1", 3);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    pass(SEC);
    reply_to(sent_last(LNET_MSG_GET), data, make_info(data, sizeof(data), gw, 0x1a, 1, 0));
    loop.send_result = ok;
    set_ni(tcp1, 200);
    assert_true(is_listed(true, tcp1->nid));
    assert_false(is_listed(true, tcp0->nid));
    note_pings(gw, 2, when);
    check_times(when, want, 2);
    assert_int_equal(tcp1->ping_count, 2);
    assert_int_equal(tcp1->health, 400); /* two were sent */
    assert_ptr_equal(sent_last(LNET_MSG_GET)->ni, tcp1);
    reply_to(sent_last(LNET_MSG_GET), data, make_info(data, sizeof(data), gw, 0x1a, 1, 0));
    assert_int_equal(tcp1->health, 600);
    set_ni(tcp1, 1000);
    assert_false(is_listed(true, tcp1->nid));
    assert_int_equal(tcp1->ping_count, 0);
    node_down();
}

/* An NI that has nobody to ping recovers by its link; not while that is down. */
static void test_ni_alone(void **state)
{
    health_up(true);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    set_ni(tcp1, 0);
    pass(20 * SEC);
    assert_int_equal(tcp1->health, 0);
    ON(0, lnet_ni_link(tcp1, true));
    settle();
    pass(2 * SEC);
    assert_true(tcp1->health > 0);
    pass(14 * SEC); /* four pings: 1, 3, 7, 15 s */
    assert_int_equal(tcp1->health, 1000);
    node_down();
}

/* Many fail at once: no more pings than the bounds, and all have their turn. */
static void test_storm(void **state)
{
    enum {
        N_PEERS = 200
    };
    unsigned most = 0, pinged = 0;

    health_up(true);
    for (unsigned i = 0; i < N_PEERS; i++) {
        struct lnet_nid nid = peer_on(i, 1, "tcp1", i / nreactors);

        arrive(tcp1, nid, hdr_of(LNET_MSG_PUT, nid, from_nid, 0));
        settle();
        sent_clear();
    }
    for (unsigned i = 0; i < N_PEERS; i++)
        set_peer(peer_on(i, 1, "tcp1", i / nreactors), 500);
    for (unsigned s = 0; s < 60; s++) {
        sent_clear();
        clock_us += SEC;
        settle();
        most = sent_count(LNET_MSG_GET) > most ? sent_count(LNET_MSG_GET) : most;
    }
    for (unsigned i = 0; i < N_PEERS; i++) {
        struct lnet_nid nid = peer_on(i, 1, "tcp1", i / nreactors);

        pinged += peer_find(&nid)->ping_count > 0;
    }
    assert_true(most > 0 && most <= LNET_RECOVERY_PINGS * nreactors);
    assert_int_equal(pinged, N_PEERS);
    node_down();
}

/* ---- §7: selection ---- */

/* §7.1: between fatal and credits. §7.3, §7.4: a gateway's peer NI. */
static void test_selection(void **state)
{
    struct lnet_nid g1 = N("10.0.0.11@tcp"), g2 = N("10.0.0.12@tcp"), dest = N("10.5.0.1@tcp5");
    struct lnet_path path;
    struct lnet_ni *tcp1b;
    unsigned n1 = 0;

    health_up(true);
    assert_int_equal(route_add("tcp5", g1, -1, 0), 0);
    assert_int_equal(route_add("tcp5", g2, -1, 0), 0);
    settle();
    for (unsigned i = 0; i < 10; i++) { /* equal: in turns */
        ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
        n1 += nid_same(&path.next_hop, &g1);
    }
    assert_int_equal(n1, 5);
    set_peer(g1, 900);
    for (unsigned i = 0; i < 10; i++) {
        ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
        assert_true(nid_same(&path.next_hop, &g2));
    }
    set_peer(g2, 800);
    ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
    assert_true(nid_same(&path.next_hop, &g1));
    node_down();

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    tcp1b = ni_add("10.1.0.2@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
    set_ni(tcp1, 900);
    dest = N("10.1.0.77@tcp1");
    for (unsigned i = 0; i < 10; i++) {
        ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
        assert_ptr_equal(path.ni, tcp1b);
    }
    set_ni(tcp1b, 800);
    ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
    assert_ptr_equal(path.ni, tcp1);
    set_ni(tcp1b, 1000);
    for (unsigned i = 0; i < nreactors; i++) /* credits come behind health */
        node->shard[i]->ni_credits[tcp1b->index] -= 100;
    ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
    assert_ptr_equal(path.ni, tcp1b);
    for (unsigned i = 0; i < nreactors; i++)
        node->shard[i]->ni_credits[tcp1b->index] += 100;
    ON(0, lnet_ni_link(tcp1b, false)); /* and a link that is down behind any health */
    settle();
    ON(0, assert_int_equal(lnet_select(node->shard[0], &dest, &LNET_NID_ANY, NULL, &path), 0));
    assert_ptr_equal(path.ni, tcp1);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_table_of_sends),
    LNET_TEST(test_table_of_receives),
    LNET_TEST(test_ok),
    LNET_TEST(test_order),
    LNET_TEST(test_no_handling),
    LNET_TEST(test_sensitivity),
    LNET_TEST(test_end_node),
    LNET_TEST(test_other_sources),
    LNET_TEST(test_status),
    LNET_TEST(test_status_of_a_living_net),
    LNET_TEST(test_set_all),
    LNET_TEST(test_peer_recovery),
    LNET_TEST(test_interval),
    LNET_TEST(test_limit),
    LNET_TEST(test_ni_recovery),
    LNET_TEST(test_ni_alone),
    LNET_TEST(test_storm),
    LNET_TEST(test_selection),
};

LNET_TESTS_MAIN("test-lnet-health", tests)
