/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/lnet/ping/discover.h: the state machine of docs/protocol/lnet-core.md §3.6. Each of its rows,
 * and each condition of "Needs push", "Completion" and "Push handling", has a test that names it
 * (test/lint/rows.py).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/lnet/ping/discover.h"

#define GOOD (PEER_DISCOVERED | PEER_NIDS_UPTODATE)

static struct discover_self self;
static struct peer peer;
static uint64_t now;

static int setup(void **state)
{
    (void)state;
    self =
        (struct discover_self){.discovery = true, .seqno = 5, .timeout_us = 1000, .max_tries = 3};
    peer = (struct peer){0};
    peer.discovery.push_to = peer.discovery.push_from = LNET_NID_ANY;
    nid_parse("10.0.0.1@tcp", &peer.primary);
    now = 100;
    return 0;
}

static enum discover_action step(struct discover_event event)
{
    return discover_step(&peer, &event, &self, now);
}

#define STEP(...) step((struct discover_event){__VA_ARGS__})

/* A multi-rail peer that has answered and knows our info. */
static void be_discovered(void)
{
    peer.state = GOOD | PEER_MULTI_RAIL;
    peer.discovery.acked_seqno = self.seqno;
}

static void whole_discovery(void **state)
{
    struct lnet_nid to, from;
    struct discover_event reply = {.kind = DISCOVER_REPLY};

    (void)state;
    /* §3.6 row 5 */
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PING);
    assert_int_equal(peer.state, PEER_DISCOVERING | PEER_PING_SENT);
    assert_int_equal(peer.discovery.sink, LNET_PING_MIN_SINK);
    assert_int_equal(discover_deadline_us(&peer), 1100);
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_WAIT);
    /* §3.6 row 2 */
    nid_parse("10.0.0.2@tcp", &reply.to);
    nid_parse("10.0.0.254@tcp", &reply.from);
    peer.state |= PEER_MULTI_RAIL; /* peer_table_hear() */
    assert_int_equal(step(reply), DISCOVER_MERGE);
    assert_true(peer.state & PEER_NIDS_UPTODATE);
    /* §3.6 row 6, needs push 5 */
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_PUSH);
    /* §3.6 needs push 7, needs push 8 */
    discover_push_nids(&peer, &to, &from);
    assert_true(nid_same(&to, &reply.to) && nid_same(&from, &reply.from));
    discover_push_nids(&peer, &to, &from);
    assert_true(nid_same(&to, &peer.primary) && nid_is_any(&from));
    /* §3.6 row 7 */
    self.seqno = 6; /* while the PUSH is on its way: another one follows */
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_DONE);
    assert_int_equal(peer.discovery.error, 0);
    assert_int_equal(peer.discovery.acked_seqno, 6);
    assert_int_equal(peer.state, GOOD | PEER_MULTI_RAIL);
    assert_int_equal(discover_deadline_us(&peer), UINT64_MAX);
}

static void deletion(void **state)
{
    (void)state;
    /* §3.6 row 1 */
    STEP(DISCOVER_START);
    peer.state |= PEER_MARK_DELETION; /* peer_table_hear() */
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_DELETE);
}

static void ping_fails(void **state)
{
    (void)state;
    /* §3.6 row 3, completion 1, row 5 */
    STEP(DISCOVER_START);
    assert_int_equal(STEP(DISCOVER_PING_ERROR, .error = -EHOSTUNREACH), DISCOVER_DONE);
    assert_int_equal(peer.discovery.error, -EHOSTUNREACH);
    assert_int_equal(peer.state, PEER_REDISCOVER | PEER_FORCE_PING);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PING);
    assert_false(peer.state & PEER_FORCE_PING);
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_DONE);
    assert_int_equal(peer.state, GOOD);
    assert_int_equal(peer.discovery.error, 0);
}

static void unusable_reply(void **state)
{
    (void)state;
    /* §3.6 row 3 */
    STEP(DISCOVER_START);
    assert_int_equal(STEP(DISCOVER_REPLY_BAD, .size = 4000), DISCOVER_PING);
    assert_int_equal(peer.discovery.sink, 4000);
    assert_int_equal(STEP(DISCOVER_REPLY_BAD, .size = UINT32_MAX), DISCOVER_PING);
    assert_int_equal(peer.discovery.sink, LNET_PING_MAX_SIZE);
    /* A peer that answers so each time is not asked for ever. */
    assert_int_equal(STEP(DISCOVER_REPLY_BAD), DISCOVER_DONE);
    assert_int_equal(peer.discovery.error, -EPROTO);
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PING);
    assert_int_equal(STEP(DISCOVER_REPLY_BAD), DISCOVER_PING);
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_MERGE);
}

static void push_fails(void **state)
{
    (void)state;
    /* §3.6 row 4 */
    be_discovered();
    self.seqno++;
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_PUSH_ERROR, .error = -EIO), DISCOVER_DONE);
    assert_int_equal(peer.discovery.error, -EIO);
    assert_true(peer.state & PEER_REDISCOVER);
    assert_int_equal(peer.discovery.acked_seqno, self.seqno - 1);
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_DONE);
    assert_false(peer.state & PEER_REDISCOVER);
}

static void timeouts(void **state)
{
    (void)state;
    /* §3.6 completion 3, completion 4 */
    STEP(DISCOVER_START);
    now = 1099;
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_WAIT);
    now = 1100;
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_DONE);
    assert_int_equal(peer.discovery.error, -ETIMEDOUT);
    /* Answers after the deadline change nothing. */
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_REPLY_BAD), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_PING_ERROR, .error = -EIO), DISCOVER_WAIT);
    assert_int_equal(peer.state, PEER_REDISCOVER | PEER_FORCE_PING);
    /* §3.6 completion 4 */
    be_discovered();
    self.seqno++;
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PUSH);
    now = 2100;
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_DONE);
    assert_int_equal(peer.discovery.error, -ETIMEDOUT);
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_PUSH_ERROR, .error = -EIO), DISCOVER_WAIT);
    assert_int_equal(peer.discovery.acked_seqno, self.seqno - 1);
}

static void ping_fails_while_a_push_is_on_its_way(void **state)
{
    (void)state;
    be_discovered();
    self.seqno++;
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_START, .set = PEER_FORCE_PING), DISCOVER_PING);
    now = 500;
    assert_int_equal(STEP(DISCOVER_PING_ERROR, .error = -EIO), DISCOVER_DONE);
    /* The PUSH fails after the end. The next discovery begins as if it had not. */
    assert_int_equal(STEP(DISCOVER_PUSH_ERROR, .error = -EIO), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PING);
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_PUSH);
}

static void needs_push(void **state)
{
    (void)state;
    be_discovered();
    assert_false(discover_needs_push(&peer, &self));
    peer.state |= PEER_FORCE_PUSH;
    /* §3.6 needs push 2 */
    assert_true(discover_needs_push(&peer, &self));
    peer.state |= PEER_NO_DISCOVERY;
    assert_true(discover_needs_push(&peer, &self));
    /* §3.6 needs push 1 */
    peer.state |= PEER_PUSH_SENT;
    assert_false(discover_needs_push(&peer, &self));
    /* §3.6 needs push 1 */
    peer.state = GOOD | PEER_FORCE_PUSH;
    assert_false(discover_needs_push(&peer, &self));
    self.seqno++;
    peer.state = GOOD | PEER_MULTI_RAIL;
    assert_true(discover_needs_push(&peer, &self));
    /* §3.6 needs push 3 */
    peer.state |= PEER_NO_DISCOVERY;
    assert_false(discover_needs_push(&peer, &self));
    /* §3.6 needs push 4 */
    peer.state = GOOD | PEER_MULTI_RAIL;
    self.discovery = false;
    assert_false(discover_needs_push(&peer, &self));
}

static void uptodate(void **state)
{
    const uint32_t bad[] = {PEER_DISCOVERING, PEER_FORCE_PING, PEER_FORCE_PUSH, PEER_REDISCOVER};

    (void)state;
    /* §3.5 "Up to date" */
    be_discovered();
    assert_true(discover_is_uptodate(&peer, &self));
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        be_discovered();
        peer.state |= bad[i];
        assert_false(discover_is_uptodate(&peer, &self));
    }
    be_discovered();
    peer.state &= ~(uint32_t)PEER_DISCOVERED;
    assert_false(discover_is_uptodate(&peer, &self));
    be_discovered();
    peer.state &= ~(uint32_t)PEER_NIDS_UPTODATE;
    assert_false(discover_is_uptodate(&peer, &self));
    be_discovered();
    self.seqno++;
    assert_false(discover_is_uptodate(&peer, &self));
}

/* Recordings A-01 and B-01: a PUSH is answered with a PUSH and no GET, or with neither. */
static void received_push(void **state)
{
    (void)state;
    /* §3.6 push 6, push 7, push 10 */
    peer.state = PEER_MULTI_RAIL;
    assert_int_equal(STEP(DISCOVER_PUSHED), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_DONE);
    assert_int_equal(STEP(DISCOVER_PUSHED), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_DONE);
    /* §3.6 push 3 */
    assert_int_equal(STEP(DISCOVER_PUSHED_BAD, .size = 512), DISCOVER_PING);
    assert_int_equal(peer.discovery.sink, 512);
    /* A PUSH comes while a ping is on its way: the discovery completes with the REPLY. */
    assert_int_equal(STEP(DISCOVER_PUSHED), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_DONE);
    /* A PUSH comes while ours is on its way. */
    self.seqno++;
    assert_int_equal(STEP(DISCOVER_START), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_PUSHED), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_WAIT);
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_DONE);
}

static void what_was_received(void **state)
{
    static struct lnet_ping_info info;

    (void)state;
    info.features = LNET_PING_MULTI_RAIL;
    assert_int_equal(discover_reply_kind(&info), DISCOVER_REPLY);
    assert_int_equal(discover_push_kind(&info), DISCOVER_PUSHED);
    /* §3.6 push 5 */
    info.truncated = true;
    assert_int_equal(discover_reply_kind(&info), DISCOVER_REPLY_BAD);
    assert_int_equal(discover_push_kind(&info), DISCOVER_PUSHED_BAD);
    /* §3.6 push 4 */
    info.features = 0;
    assert_int_equal(discover_push_kind(&info), DISCOVER_LOOK);
    assert_int_equal(discover_reply_kind(NULL), DISCOVER_REPLY_BAD);
    assert_int_equal(discover_push_kind(NULL), DISCOVER_PUSHED_BAD);
}

/* Recordings B-00 and B-09: GET, REPLY, PUT, ACK, although nothing has changed. */
static void router_check(void **state)
{
    (void)state;
    /* §3.5 "router check due", §3.8 check 3, completion 1 */
    be_discovered();
    assert_int_equal(STEP(DISCOVER_START, .set = PEER_RTR_DISCOVERY), DISCOVER_PING);
    assert_false(peer.state & PEER_NIDS_UPTODATE);
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_PUSH);
    assert_int_equal(STEP(DISCOVER_ACK), DISCOVER_DONE);
    assert_int_equal(peer.state, GOOD | PEER_MULTI_RAIL | PEER_RTR_DISCOVERED);
    /* A gateway without multi-rail gets no PUSH. */
    peer.state = GOOD;
    assert_int_equal(STEP(DISCOVER_START, .set = PEER_RTR_DISCOVERY), DISCOVER_PING);
    assert_int_equal(STEP(DISCOVER_REPLY), DISCOVER_MERGE);
    assert_int_equal(STEP(DISCOVER_LOOK), DISCOVER_DONE);
    assert_true(discover_is_uptodate(&peer, &self));
    assert_int_equal(STEP(DISCOVER_START, .set = PEER_RTR_DISCOVERY), DISCOVER_PING);
    assert_int_equal(STEP(DISCOVER_PING_ERROR, .error = -EIO), DISCOVER_DONE);
    assert_int_equal(peer.state & (PEER_RTR_DISCOVERY | PEER_RTR_DISCOVERED), PEER_RTR_DISCOVERED);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whole_discovery),
        TEST(deletion),
        TEST(ping_fails),
        TEST(unusable_reply),
        TEST(push_fails),
        TEST(timeouts),
        TEST(ping_fails_while_a_push_is_on_its_way),
        TEST(needs_push),
        TEST(uptodate),
        TEST(received_push),
        TEST(what_was_received),
        TEST(router_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
