/* SPDX-License-Identifier: BSD-3-Clause */
/* Events: who is told of which, in what order, and what a client that does not read misses. */
#include "lib/lnd_eth/socklnd/sock_drops.h"
#include "lib/lnd_verbs/ib_drops.h"
#include "test/drops_test.h"
#include "test/lnds_test.h"
#include "test/unit/rpc_test.h"

static size_t backlog; /* what the session says */

static size_t tell_backlog(void *arg)
{
    return backlog;
}

static struct lnet_nid nid_of(const char *text)
{
    struct lnet_nid nid;

    assert_int_equal(nid_parse(text, &nid), 0);
    return nid;
}

static void post(enum lnet_node_event_kind kind, const char *nid, const char *cause)
{
    struct lnet_node_event row = {.kind = kind, .nid = nid_of(nid), .cause = cause};

    reactor_bind(reactor_at(env, 0));
    lnet_node_event_post(node, &row);
    reactor_bind(reactor_control(env));
}

/* Lets everything come that has been posted: an event behind them is the last. */
static uint64_t heard; /* by the listener */
static json_t *heard_last;

static void note_event(void *arg, const json_t *event, uint64_t missed)
{
    assert_ptr_equal(arg, &heard);
    heard += 1 + missed;
    json_decref(heard_last);
    heard_last = json_deep_copy(event);
}

static int begin(void **state)
{
    json_array_clear(notes);
    backlog = 0;
    session.backlog = tell_backlog;
    heard = 0;
    rpc_events_listen(&ctx, note_event, &heard);
    return 0;
}

static int end(void **state)
{
    rpc_events_listen(&ctx, NULL, NULL);
    json_decref(heard_last);
    heard_last = NULL;
    return 0;
}

static json_int_t subscribe(const char *params)
{
    return NUMBER(result("events_subscribe", params), "subscription");
}

static void unsubscribe(json_int_t id)
{
    char params[64];

    snprintf(params, sizeof(params), "[%lld]", (long long)id);
    is_true("events_unsubscribe", params);
}

static json_t *note(unsigned i)
{
    json_t *n = json_array_get(notes, i);

    assert_non_null(n);
    IS(n, "jsonrpc", "2.0");
    IS(n, "method", "event");
    assert_null(json_object_get(n, "id"));
    return at(n, "params");
}

/* ---- what is told ---- */

static void test_told(void **state)
{
    double now = (double)time(NULL);
    json_int_t id = subscribe(""), seq;
    struct lnet_node_event row = {.kind = LNET_NODE_EV_ROUTE_DOWN,
                                  .nid = nid_of("10.0.0.9@tcp"),
                                  .net = LNET_NET(LNET_LND_O2IB, 0),
                                  .cause = "ping_timeout"};

    post(LNET_NODE_EV_PEER_UP, "10.0.0.7@tcp", "accepted");
    RUN_UNTIL(json_array_size(notes) == 1);
    IS(note(0), "type", "peer_up");
    IS(note(0), "nid", "10.0.0.7@tcp");
    IS(note(0), "state", "up");
    IS(note(0), "cause", "accepted");
    assert_non_null(strstr(TEXT(note(0), "text"), "10.0.0.7@tcp"));
    assert_int_equal(NUMBER(note(0), "subscription"), id);
    assert_null(json_object_get(note(0), "missed"));
    assert_true(json_number_value(at(note(0), "time")) > now - 5);
    assert_true(json_number_value(at(note(0), "time")) < now + 120);
    seq = NUMBER(note(0), "seq");

    lnet_node_event_post(node, &row);
    row = (struct lnet_node_event){.kind = LNET_NODE_EV_BUFFERS_EXHAUSTED,
                                   .value = LNET_POOL_LARGE,
                                   .cause = "no_free_buffer"};
    lnet_node_event_post(node, &row);
    row = (struct lnet_node_event){
        .kind = LNET_NODE_EV_PEER_DOWN, .nid = nid_of("10.0.0.7@tcp"), .drop = SOCK_DROP(RESET)};
    lnet_node_event_post(node, &row);
    row = (struct lnet_node_event){.kind = LNET_NODE_EV_ROUTING, .value = LNET_ROUTING_OFF};
    lnet_node_event_post(node, &row);
    RUN_UNTIL(json_array_size(notes) == 5);
    IS(note(1), "type", "route_down");
    IS(note(1), "net", "o2ib");
    IS(note(1), "gateway", "10.0.0.9@tcp");
    IS(note(1), "state", "down");
    assert_null(json_object_get(note(1), "nid"));
    IS(note(2), "pool", "large");
    assert_true(json_is_integer(at(note(2), "reactor")));
    IS(note(3), "cause", "tcp_reset");
    IS(note(4), "state", "off");
    IS(note(4), "cause", "unspecified");
    assert_int_equal(NUMBER(note(4), "seq"), seq + 4);
    assert_int_equal(heard, 5);
    IS(heard_last, "type", "routing");
    unsubscribe(id);
    fails("events_unsubscribe", "[999]", -ENOENT, "subscription");
    post(LNET_NODE_EV_PEER_UP, "10.0.0.8@tcp", "accepted");
    RUN_UNTIL(heard == 6);
    step_all();
    assert_int_equal(json_array_size(notes), 5);
}

/* A change of health says which message failed, or got through. */
static void test_health(void **state)
{
    struct lnet_node_event row = {
        .kind = LNET_NODE_EV_NI_HEALTH,
        .nid = nid_of("10.0.0.1@tcp"),
        .value = 900,
        .drop = LNET_DROP_NEXT_HOP_LOST,
        .cause = "local_error",
        .msg = {true, LNET_MSG_PUT, nid_of("10.0.0.7@tcp"), nid_of("10.2.0.8@tcp2")}};
    json_int_t id = subscribe("{\"types\":[\"ni_health\",\"peer_health\"]}");

    lnet_node_event_post(node, &row);
    row.kind = LNET_NODE_EV_PEER_HEALTH;
    row.value = LNET_MAX_HEALTH;
    row.drop = LNET_DROP_NONE;
    row.msg.type = LNET_MSG_GET;
    lnet_node_event_post(node, &row);
    row.msg.known = false;
    lnet_node_event_post(node, &row);
    RUN_UNTIL(json_array_size(notes) == 3);
    IS(note(0), "cause", "local_error");
    IS(note(0), "reason", "next_hop_connection_lost");
    IS(note(0), "message/type", "PUT");
    IS(note(0), "message/src", "10.0.0.7@tcp");
    IS(note(0), "message/dest", "10.2.0.8@tcp2");
    IS(note(0), "text",
       "the health of NI 10.0.0.1@tcp is 900: a PUT from 10.0.0.7@tcp to 10.2.0.8@tcp2 failed");
    IS(note(1), "state", "healthy");
    IS(note(1), "text",
       "the health of peer NI 10.0.0.1@tcp is 1000: a GET from 10.0.0.7@tcp to 10.2.0.8@tcp2 got "
       "through");
    assert_null(json_object_get(note(2), "message"));
    IS(note(2), "text", "the health of peer NI 10.0.0.1@tcp is 1000");
    unsubscribe(id);
}

/* Of every kind something can be said. */
static void test_every_kind(void **state)
{
    json_int_t id = subscribe("{\"queue\":1024}");

    for (unsigned i = 0; i < LNET_NODE_EV_COUNT; i++)
        post((enum lnet_node_event_kind)i, "10.0.0.7@tcp", "because");
    RUN_UNTIL(json_array_size(notes) == LNET_NODE_EV_COUNT);
    for (unsigned i = 0; i < LNET_NODE_EV_COUNT; i++) {
        assert_true(strlen(TEXT(note(i), "type")) >= 5);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(TEXT(note(i), "type"), TEXT(note(k), "type"));
        IS(note(i), "cause", "because");
        assert_true(json_string_length(at(note(i), "text")) > 10);
        assert_string_not_equal(TEXT(note(i), "state"), "unknown");
    }
    unsubscribe(id);
}

static void test_emit(void **state)
{
    json_int_t id = subscribe("{\"types\":[\"config_applied\",\"log_level\"]}");

    rpc_events_emit(&ctx, "config_applied", "config_apply", "router.yaml was applied",
                    json_pack("{s:s}", "state", "unsaved"));
    rpc_events_emit(&ctx, "drops", "no_route", "messages are dropped", NULL);
    rpc_events_emit(&ctx, "log_level", "log_set", "rpc is at debug", NULL);
    rpc_events_emit(&ctx, "nonsense", "none", "nobody hears of this", NULL);
    assert_int_equal(json_array_size(notes), 0); /* not from inside */
    assert_int_equal(heard, 3);
    RUN_UNTIL(json_array_size(notes) == 2);
    IS(note(0), "type", "config_applied");
    IS(note(0), "cause", "config_apply");
    IS(note(0), "state", "unsaved");
    IS(note(1), "type", "log_level");
    assert_int_equal(NUMBER(note(1), "seq"), NUMBER(note(0), "seq") + 2);
    unsubscribe(id);
}

static void test_filters(void **state)
{
    json_int_t a = subscribe("{\"types\":[\"peer_up\"],\"nids\":[\"10.0.0.7@tcp\"]}");
    json_int_t b = subscribe("{\"nids\":[\"10.0.0.9@tcp\",\"10.0.0.8@tcp\"]}");
    struct lnet_node_event row = {.kind = LNET_NODE_EV_ROUTE_UP, .nid = nid_of("10.0.0.9@tcp")};

    post(LNET_NODE_EV_PEER_UP, "10.0.0.7@tcp", "x");
    post(LNET_NODE_EV_PEER_DOWN, "10.0.0.7@tcp", "x");
    post(LNET_NODE_EV_PEER_UP, "10.0.0.8@tcp", "x");
    lnet_node_event_post(node, &row); /* as gateway */
    row = (struct lnet_node_event){.kind = LNET_NODE_EV_ROUTING};
    lnet_node_event_post(node, &row); /* of no NID */
    RUN_UNTIL(heard == 5);
    RUN_UNTIL(json_array_size(notes) == 3);
    step_all();
    assert_int_equal(json_array_size(notes), 3);
    unsubscribe(a);
    unsubscribe(b);
    fails("events_subscribe", "{\"types\":[\"frob\"]}", -32602, "types");
    fails("events_subscribe", "{\"nids\":[\"frob\"]}", -32602, "nids");
    fails("events_subscribe", "{\"nids\":[7]}", -32602, "nids");
    fails("events_subscribe", "{\"queue\":0}", -32602, "queue");
    fails("events_subscribe", "{\"queue\":1025}", -32602, "queue");
}

/* ---- clients that do not read ---- */

static void emit(unsigned n)
{
    while (n-- > 0)
        rpc_events_emit(&ctx, n % 2 ? "config_applied" : "log_level", "test", "text", NULL);
}

static void test_queue(void **state)
{
    json_int_t seq, id = subscribe("{\"queue\":10,\"types\":[\"config_applied\"]}");

    backlog = 1u << 20;
    emit(20); /* ten that it wants */
    RUN_UNTIL(heard == 20);
    step_all();
    step_all();
    assert_int_equal(json_array_size(notes), 0);
    backlog = 0;
    RUN_UNTIL(json_array_size(notes) == 10); /* all of these, without another event */
    assert_null(json_object_get(note(0), "missed"));
    seq = NUMBER(note(9), "seq");
    backlog = 1u << 20;
    emit(2 * 17);
    RUN_UNTIL(heard == 54);
    backlog = 0;
    RUN_UNTIL(json_array_size(notes) == 20);
    assert_int_equal(NUMBER(note(10), "missed"), 7);
    assert_int_equal(NUMBER(note(10), "seq"), seq + 2 + 14);
    assert_null(json_object_get(note(11), "missed"));
    assert_int_equal(NUMBER(note(19), "seq"), seq + 2 * 17);
    unsubscribe(id);
}

/* More come than are kept: what was overwritten is counted, once. */
static void test_overrun(void **state)
{
    json_int_t a = subscribe("{\"queue\":1024}"), b = subscribe("{\"types\":[\"config_applied\"]}");
    uint64_t want = 3 * RPC_EVENTS_KEPT, got = 0, got_b = 0;

    backlog = 1u << 20;
    for (size_t i = 0; i < 3 * RPC_EVENTS_KEPT / 64; i++) {
        emit(64);
        step_all();
    }
    backlog = 0;
    RUN_UNTIL(json_array_size(notes) == 1024 + 256);
    for (size_t i = 0; i < 1024 + 256; i++) {
        json_t *n = note((unsigned)i);
        uint64_t some = 1 + (uint64_t)json_integer_value(json_object_get(n, "missed"));

        if (NUMBER(n, "subscription") == a)
            got += some;
        else
            got_b += some;
    }
    assert_int_equal(got, want);
    assert_int_equal(got_b, want / 2);
    unsubscribe(a);
    unsubscribe(b);
}

/* What reactors could not tell is missed by all, and numbers say so. */
static void test_lost(void **state)
{
    json_int_t id = subscribe("{\"queue\":1024,\"types\":[\"ni_up\"]}"), before, after;

    json_t *r = result("events_get", "");

    before = NUMBER(r, "missed");
    for (unsigned i = 0; i < LNET_NODE_EVENT_RING + 50; i++)
        post(LNET_NODE_EV_NI_UP, "10.0.0.7@tcp", "x");
    RUN_UNTIL(json_array_size(notes) == LNET_NODE_EVENT_RING);
    r = result("events_get", "{\"limit\":1}");
    after = NUMBER(r, "missed");
    assert_int_equal(after - before, 50);
    assert_int_equal(NUMBER(note(0), "missed"), 50);
    assert_int_equal(NUMBER(r, "events/0/seq"), NUMBER(note(LNET_NODE_EVENT_RING - 1), "seq"));
    unsubscribe(id);
}

/* ---- kept ---- */

static void test_get(void **state)
{
    json_t *events;

    emit(2000);
    events = at(result("events_get", ""), "events");
    assert_int_equal(json_array_size(events), RPC_EVENTS_KEPT);
    for (size_t i = 1; i < RPC_EVENTS_KEPT; i++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(events, i), "seq")),
                         json_integer_value(json_object_get(json_array_get(events, i - 1), "seq")) +
                             1);
    assert_null(json_object_get(json_array_get(events, 0), "subscription"));
    events = at(result("events_get", "[3]"), "events");
    assert_int_equal(json_array_size(events), 3);
    fails("events_get", "[0]", -32602, "limit");
    fails("events_get", "[1025]", -32602, "limit");
}

/* ---- many, and those that go ---- */

static void test_many(void **state)
{
    struct jrpc_session other;
    json_int_t id[RPC_EVENTS_SUBS];

    for (unsigned i = 0; i < RPC_EVENTS_SUBS; i++)
        id[i] = subscribe("");
    fails("events_subscribe", "", -EMFILE, NULL);
    emit(1);
    RUN_UNTIL(json_array_size(notes) == RPC_EVENTS_SUBS);
    for (unsigned i = 0; i < RPC_EVENTS_SUBS; i++)
        unsubscribe(id[i]);
    assert_null(session.closed); /* nothing is kept for it */
    subscribe("");
    emit(5);
    other = session;
    jrpc_session_close(&session); /* with events under way */
    emit(5);
    step_all();
    step_all();
    session = other;
    session.closed = NULL;
    fails("events_unsubscribe", "[1]", -ENOENT, "subscription");
    emit(1);
    step_all();
    assert_int_equal(json_array_size(notes), RPC_EVENTS_SUBS);
}

static void test_none(void **state)
{
    struct rpc_events *events = ctx.events;

    ctx.events = NULL;
    rpc_events_emit(&ctx, "log_level", "x", "x", json_object());
    fails("events_subscribe", "", -ENOTSUP, NULL);
    fails("events_get", "", -ENOTSUP, NULL);
    ctx.events = events;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_told),    TEST(test_health), TEST(test_every_kind), TEST(test_emit),
        TEST(test_filters), TEST(test_queue),  TEST(test_overrun),    TEST(test_lost),
        TEST(test_get),     TEST(test_many),   TEST(test_none),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
