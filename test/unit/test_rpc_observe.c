/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that count and explain: their results are as the table of methods says, and true. */
#include "lib/base/err.h"
#include "test/unit/rpc_test.h"

#include <fcntl.h>
#include <unistd.h>

#include "control/controller_internal.h"
#include "control/drop_watch.h"
#include "lib/lnd_eth/socklnd/sock_drops.h"
#include "lib/lnd_verbs/ib_drops.h"
#include "lib/log/log.h"
#include "lib/reactor/wait.h"
#include "test/drops_test.h"
#include "test/lnds_test.h"

/* ---- results are what the table says ---- */

static bool is_of_type(const json_t *value, enum jrpc_type type)
{
    switch (type) {
    case JRPC_INTEGER:
        return json_is_integer(value);
    case JRPC_NUMBER:
        return json_is_number(value);
    case JRPC_BOOLEAN:
        return json_is_boolean(value);
    case JRPC_OBJECT:
    case JRPC_MAP:
        return json_is_object(value);
    case JRPC_ARRAY:
        return json_is_array(value);
    case JRPC_ANY:
        return true;
    default:
        return json_is_string(value);
    }
}

static void check_object(json_t *object, const struct jrpc_field *fields, const char *where);

static void check_value(json_t *value, const struct jrpc_field *f)
{
    json_t *row;
    size_t i;

    if (!is_of_type(value, f->type))
        fail_msg("%s is not what the table says: %s", f->name, json_dumps(value, JSON_ENCODE_ANY));
    if (f->type == JRPC_OBJECT)
        check_object(value, f->sub, f->name);
    if (f->type == JRPC_ARRAY && f->sub)
        json_array_foreach(value, i, row)
            check_object(row, f->sub, f->name);
}

/* All members that must be there, and none that the table does not know. */
static void check_object(json_t *object, const struct jrpc_field *fields, const char *where)
{
    const struct jrpc_field *f;
    const char *key;
    json_t *value;

    assert_true(json_is_object(object));
    for (f = fields; f && f->name; f++) {
        value = json_object_get(object, f->name);
        if (value)
            check_value(value, f);
        else if (!f->optional)
            fail_msg("%s has no %s", where, f->name);
    }
    json_object_foreach(object, key, value) {
        for (f = fields; f && f->name && strcmp(f->name, key) != 0; f++)
            ;
        if (!f || !f->name)
            fail_msg("%s has %s, of which the table says nothing", where, key);
    }
}

/* The result of a method, checked. */
static json_t *checked(const char *method, const char *params)
{
    json_t *r = result(method, params);
    const struct jrpc_method *m;

    for (m = rpc_method_table; strcmp(m->name, method) != 0; m++)
        ;
    check_object(r, m->fields, method);
    return r;
}

/* ---- counters ---- */

static void test_stats(void **state)
{
    struct lnet_shard *s = node->shard[0];
    json_t *stats;

    s->stats[LNET_STAT_ROUTE_COUNT] += 5;
    stats = checked("stats_get", "");
    assert_int_equal(json_object_size(stats), LNET_STAT_COUNT);
    assert_true(NUMBER(stats, "route_count") >= 5);
    is_true("stats_reset", "");
    RUN_UNTIL(NUMBER(checked("stats_get", ""), "route_count") == 0);
    session.role = JRPC_READ;
    fails("stats_reset", "", -EACCES, NULL);
    session.role = JRPC_ADMIN;
}

static void test_drops(void **state)
{
    struct lnet_hdr hdr = {.type = LNET_MSG_PUT, .payload_len = 4096};
    struct lnet_nid peer;
    json_t *rows, *row;
    enum lnet_drop reason;
    size_t i;

    assert_int_equal(nid_parse("10.0.0.77@tcp", &peer), 0);
    hdr.src_nid = hdr.dest_nid = peer;
    lnet_drop_event(node, LNET_DROP_NO_ROUTE, node->ni[0], &peer, &hdr);
    rows = at(checked("drops_get", ""), "drops");
    json_array_foreach(rows, i, row)
        assert_null(json_object_get(row, "remedy"));
    rows = at(checked("drops_get", "[true]"), "drops");
    assert_int_equal(json_array_size(rows), drop_rows());
    reason = LNET_DROP_NONE;
    json_array_foreach(rows, i, row) {
        const struct lnet_drop_info *info = lnet_drop_info(reason = lnet_drop_next(reason));

        IS(row, "remedy", info->remedy);
        assert_true(strlen(info->remedy) > 40);
        assert_int_equal(info->remedy[strlen(info->remedy) - 1], '.');
        assert_string_not_equal(info->remedy, info->text);
    }
    fails("drops_get", "[1]", -32602, "explain");
}

static struct control_event told;
static unsigned tellings;

static void tell(void *arg, const struct control_event *event)
{
    static struct lnet_nid peer;

    assert_ptr_equal(arg, node);
    told = *event;
    if (event->peer)
        peer = *event->peer;
    told.peer = event->peer ? &peer : NULL;
    tellings++;
}

/* What more is known of one is in the answer, in the log and in an event. */
static void test_drop_why(void **state)
{
    static const struct lnet_drop_why why = {"connecting", "nobody listens there", 8};
    struct drop_watch *watch = drop_watch_start(node, tell, node);
    struct err err = {0};
    char text[4096] = "";
    struct log_opts opts = {.to = "stderr"};
    struct lnet_nid peer;
    json_t *row;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    opts.fd = ends[1];
    assert_int_equal(log_open(&opts, &err), 0);
    assert_int_equal(nid_parse("10.0.0.78@o2ib", &peer), 0);
    lnet_drop_event_why(node, IB_DROP(DIAL_FAILED), node->ni[0], &peer, NULL, &why);
    row = json_array_get(at(checked("drops_get", ""), "drops"), drop_rows() - 1);
    IS(row, "name", "o2ib_dial_failed");
    IS(row, "example/stage", "connecting");
    IS(row, "example/why", "nobody listens there");
    assert_int_equal(NUMBER(row, "example/code"), 8);
    lnet_drop_event_why(node, IB_DROP(DIAL_FAILED), node->ni[0], &peer, NULL, &why);
    drop_watch_stop(watch); /* looks once more */
    assert_string_equal(told.type, "drops");
    assert_string_equal(told.cause, "o2ib_dial_failed");
    assert_int_equal(told.count, 2);
    assert_true(nid_same(told.peer, &peer));
    log_close(); /* writes what there is */
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    if (!strstr(text, " drop=o2ib_dial_failed ") || !strstr(text, " peer=10.0.0.78@o2ib ") ||
        !strstr(text, " stage=connecting why=\"nobody listens there\" code=8\n"))
        fail_msg("%s", text);
    if (!strstr(text, " event=drops_total counts=\"") || !strstr(text, "o2ib_dial_failed 2"))
        fail_msg("%s", text);
    close(ends[0]);
    close(ends[1]);
}

/* Adds drops of two reasons from one host, and reads what was logged. */
static bool logs(int from, const struct lnet_nid *host, const char *what)
{
    static char text[16384];
    ssize_t n = read(from, text, sizeof(text) - 1);

    lnet_drop_event(node, LNET_DROP_HDR_TYPE, node->ni[0], host, NULL);
    lnet_drop_event(node, LNET_DROP_HDR_BAD_NID, node->ni[0], host, NULL);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, what);
}

/* A host whose drops use up the limit of the log does not hide those of its neighbours. */
static void test_drop_turns(void **state)
{
    struct log_opts opts = {.to = "stderr", .burst = 2, .refill = 2, .interval_ms = 100};
    struct drop_watch *watch = drop_watch_start(node, NULL, NULL);
    struct err err = {0};
    struct lnet_nid host, other;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    opts.fd = ends[1];
    assert_int_equal(log_open(&opts, &err), 0);
    assert_int_equal(nid_parse("10.0.0.66@tcp", &host), 0);
    assert_int_equal(nid_parse("10.0.0.7@tcp", &other), 0);
    lnet_drop_event(node, LNET_DROP_NO_ROUTE, node->ni[0], &other, NULL);
    RUN_UNTIL(logs(ends[0], &host, " drop=no_route "));
    drop_watch_stop(watch);
    log_close();
    close(ends[0]);
    close(ends[1]);
}

static void test_waits(void **state)
{
    assert_int_equal(json_array_size(at(checked("waits_get", ""), "waits")), 7);
}

static void test_reactors(void **state)
{
    json_t *r, *row;
    double share;

    for (unsigned i = 0; i < 10; i++)
        step_all();
    r = checked("reactors_get", "");
    row = at(r, "reactors/0");
    share = json_number_value(at(row, "busy_share"));
    assert_true(share > 0 && share <= 1);
    assert_true(NUMBER(row, "mails_in") > 0);
    assert_true(NUMBER(row, "polls") >= NUMBER(row, "useful_polls"));
    assert_true(json_number_value(at(row, "longest_us")) > 0);
    assert_int_equal(json_object_size(at(row, "stages")), REACTOR_STAGES);
    assert_int_equal(json_array_size(at(r, "reactors")), 1);
    assert_int_equal(json_array_size(at(row, "waited")), REACTOR_WAITS);
    assert_null(json_object_get(at(r, "control"), "waited")); /* it carries no messages */
    assert_null(json_object_get(row, "capacity"));            /* nobody watches */
}

/* Waits are shown by the times that they took. */
static void test_reactor_waits(void **state)
{
    json_t *row, *times;

    reactor_bind(reactor_at(env, 0));
    reactor_step(reactor_at(env, 0), 0);
    reactor_waited(REACTOR_WAIT_BUFFER, reactor_now_us());
    reactor_waited(REACTOR_WAIT_BUFFER, reactor_now_us() - 3000000);
    reactor_wait_none(REACTOR_WAIT_PEER_CREDIT);
    reactor_bind(reactor_control(env));
    row = at(checked("reactors_get", ""), "reactors/0");
    IS(row, "waited/1/name", "router_buffer");
    assert_int_equal(NUMBER(row, "waited/1/waits"), 2);
    assert_true(NUMBER(row, "waited/1/longest_us") >= 3000000);
    times = at(row, "waited/1/times");
    assert_int_equal(json_array_size(times), 2);
    assert_int_equal(NUMBER(times, "1/below_us"), 1 << 22);
    assert_int_equal(NUMBER(times, "1/count"), 1);
    assert_int_equal(NUMBER(row, "waited/2/none"), 1);
    assert_int_equal(json_array_size(at(row, "waited/2/times")), 0);
}

/* ---- why ---- */

static void test_why_local(void **state)
{
    json_t *why = at(checked("why", "[\"10.0.0.70@tcp\"]"), "why");
    struct lnet_peer_ni *p;

    IS(why, "verdict", "local");
    IS(why, "next_hop", "10.0.0.70@tcp");
    IS(why, "peer_ni/state", "unknown");
    assert_null(json_object_get(why, "gateway"));
    assert_non_null(strstr(TEXT(why, "text"), "10.0.0.70@tcp"));
    assert_int_equal(json_array_size(at(why, "routes")), 0);
    assert_int_equal(json_array_size(at(why, "nis")), 2);
    assert_string_not_equal(TEXT(why, "nis/0/verdict"), TEXT(why, "nis/1/verdict"));
    p = make_peer("10.0.0.70@tcp");
    why = at(checked("why", "{\"nid\":\"10.0.0.70@tcp\",\"source\":\"10.1.0.5@tcp1\"}"), "why");
    IS(why, "verdict", "forwarded");
    IS(why, "peer_ni/state", "up"); /* as the fake driver has it of all */
    assert_int_equal(NUMBER(why, "peer_ni/max_ni_tx_credits"), 8);
    drop_peer(p);
    why = at(checked("why", "[\"10.1.0.70@tcp1\",\"10.1.0.1@tcp1\"]"), "why");
    IS(why, "verdict", "local");
    IS(why, "ni", "10.1.0.1@tcp1");
}

static void test_why_routed(void **state)
{
    json_t *why;

    is_true("route_add", "[\"o2ib7\",\"10.0.0.9@tcp\",1,0]");
    is_true("route_add", "[\"o2ib7\",\"10.1.0.9@tcp1\",1,5]");
    why = at(checked("why", "[\"10.7.0.1@o2ib7\"]"), "why");
    IS(why, "verdict", "forwarded");
    IS(why, "gateway", "10.0.0.9@tcp");
    IS(why, "next_hop", "10.0.0.9@tcp");
    assert_int_equal(json_array_size(at(why, "routes")), 2);
    assert_true(strcmp(TEXT(why, "routes/0/verdict"), "chosen") == 0 ||
                strcmp(TEXT(why, "routes/1/verdict"), "chosen") == 0);
    assert_true(strcmp(TEXT(why, "routes/0/verdict"), "priority") == 0 ||
                strcmp(TEXT(why, "routes/1/verdict"), "priority") == 0);
    is_true("route_del", "[\"o2ib7\",\"10.0.0.9@tcp\"]");
    is_true("route_del", "[\"o2ib7\",\"10.1.0.9@tcp1\"]");
}

static void test_why_not(void **state)
{
    json_t *why = at(checked("why", "[\"10.7.0.1@o2ib9\"]"), "why");

    IS(why, "verdict", "dropped");
    IS(why, "drop", "no_route");
    IS(why, "text", lnet_drop_info(LNET_DROP_NO_ROUTE)->text);
    IS(why, "remedy", lnet_drop_info(LNET_DROP_NO_ROUTE)->remedy);
    assert_null(json_object_get(why, "next_hop"));
    why = at(checked("why", "[\"10.0.0.2@tcp\",\"10.0.0.70@tcp\"]"), "why");
    IS(why, "verdict", "mine");
    why = at(checked("why", "[\"10.0.0.71@tcp\",\"10.0.0.70@tcp\"]"), "why");
    IS(why, "drop", "dest_on_ingress_net");
    fails("why", "[]", -32602, "nid");
    fails("why", "[\"frob\"]", -32602, "nid");
    fails("why", "[\"10.0.0.2@tcp\",\"frob\"]", -32602, "source");
}

/* The client goes before the answer comes. */
static void test_unheard(void **state)
{
    static const char text[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"why\",\"params\":[\"10.0.0.70@tcp\"]}";

    jrpc_input(&session, text, strlen(text));
    jrpc_session_close(&session);
    jrpc_session_init(&session, &engine, take, NULL);
    session.role = JRPC_ADMIN;
    checked("why", "[\"10.0.0.70@tcp\"]");
}

/* ---- calls that look twice ---- */

/* Begins a call; the answer is waited for by finish(). */
static void begin(const char *method, const char *params)
{
    char text[256];

    json_decref(answer);
    answer = NULL;
    snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}",
             method, params);
    jrpc_input(&session, text, strlen(text));
}

static json_t *finish(const char *method)
{
    const struct jrpc_method *m;

    RUN_UNTIL(answer);
    for (m = rpc_method_table; strcmp(m->name, method) != 0; m++)
        ;
    check_object(at(answer, "result"), m->fields, method);
    return at(answer, "result");
}

static json_t *named(json_t *rows, const char *name)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
        if (strcmp(TEXT(row, "name"), name) == 0)
            return row;
    fail_msg("there is no %s", name);
    return NULL;
}

static void test_capture(void **state)
{
    json_t *r, *rows, *row;
    double seconds;

    node->shard[0]->stats[LNET_STAT_SEND_COUNT] = 10;
    begin("counters_capture", "{\"interval_ms\":50}");
    node->shard[0]->stats[LNET_STAT_SEND_COUNT] += 7;
    node->shard[0]->ni_stats[0].sent[LNET_MSG_PUT] += 3;
    assert_null(answer);
    r = finish("counters_capture");
    seconds = json_number_value(at(r, "seconds"));
    assert_true(seconds >= 0.05 && seconds < 60);
    rows = at(r, "counters");
    row = named(rows, "stats.send_count");
    assert_int_equal(NUMBER(row, "before"), 10);
    assert_int_equal(NUMBER(row, "after"), 17);
    assert_int_equal(NUMBER(row, "delta"), 7);
    assert_true(json_number_value(at(row, "per_second")) * seconds > 6.99);
    assert_true(json_number_value(at(row, "per_second")) * seconds < 7.01);
    assert_int_equal(NUMBER(named(rows, "ni.10.0.0.1@tcp.sent.put"), "delta"), 3);
    assert_int_equal(NUMBER(named(rows, "drops.no_lnd"), "delta"), 0);
    assert_true(NUMBER(named(rows, "reactor.0.loops"), "delta") > 0);
    named(rows, "reactor.control.mails_in");
    assert_int_equal(NUMBER(named(rows, "reactor.0.waited.ni_tx_credit.none"), "delta"), 0);
    named(rows, "reactor.0.cycles.preempted");
    named(rows, "reactor.0.waited.router_buffer.total_us");
    named(rows, "buffers.0.small.waited");
    begin("counters_capture", "{\"match\":\"stats.send_*\",\"interval_ms\":10}");
    rows = at(finish("counters_capture"), "counters");
    assert_int_equal(json_array_size(rows), 2);
    fails("counters_capture", "{\"seconds\":1,\"interval_ms\":10}", -32602, "interval_ms");
    fails("counters_capture", "{\"seconds\":61}", -32602, "seconds");
    fails("counters_capture", "{\"interval_ms\":9}", -32602, "interval_ms");
}

static void test_top(void **state)
{
    static const char *const by[] = {"bytes", "queued", "waiting"};
    struct lnet_peer_ni *a = make_peer("10.0.0.60@tcp"), *b = make_peer("10.0.0.61@tcp");
    char params[64];
    json_t *whole, *peers;

    a->tx_queued = 5;
    b->tx_queued = 9;
    a->rtr_waiting = 4;
    for (unsigned i = 0; i < 3; i++) {
        snprintf(params, sizeof(params), "[\"%s\",1,50]", by[i]);
        begin("peer_top", params);
        peers = at(finish("peer_top"), "peers");
        assert_int_equal(json_array_size(peers), 1);
        if (i > 0)
            IS(peers, "0/nid", i == 1 ? "10.0.0.61@tcp" : "10.0.0.60@tcp");
    }
    begin("peer_top", "[\"queued\",100,50]");
    whole = finish("peer_top");
    peers = at(whole, "peers");
    assert_true(json_array_size(peers) >= 2);
    assert_int_equal(NUMBER(whole, "known"), json_array_size(peers));
    assert_int_equal(NUMBER(whole, "connected"), json_array_size(peers));
    assert_int_equal(NUMBER(peers, "0/tx_queued"), 9);
    assert_int_equal(NUMBER(peers, "0/health"), 1000);
    assert_int_equal(NUMBER(peers, "1/tx_queued"), 5);
    assert_true(json_is_true(at(peers, "0/up")));
    assert_true(json_number_value(at(peers, "0/bytes_in_per_s")) == 0); /* the fake one's stand */
    a->tx_queued = b->tx_queued = a->rtr_waiting = 0;
    fails("peer_top", "[]", -32602, "by");
    fails("peer_top", "[\"frob\"]", -32602, "by");
    fails("peer_top", "[\"bytes\",101]", -32602, "count");
    fails("peer_top", "[\"bytes\",1,49]", -32602, "interval_ms");
    drop_peer(a);
    drop_peer(b);
}

/* What is not healthy: an NI, a peer NI, and a gateway, which its routes show, too. */
static void test_health(void **state)
{
    struct lnet_peer_ni *p = make_peer("10.0.0.60@tcp");
    json_t *r = checked("health_get", "");

    assert_int_equal(NUMBER(r, "nis/total"), json_array_size(at(r, "ni")));
    assert_int_equal(NUMBER(r, "nis/unhealthy"), 0);
    assert_int_equal(NUMBER(r, "peer_nis/unhealthy"), 0);
    assert_int_equal(NUMBER(r, "ni/0/health"), 1000);
    assert_null(json_object_get(at(r, "ni/0"), "next_ping_ms"));
    is_true("route_add", "[\"o2ib7\",\"10.0.0.9@tcp\"]");
    assert_int_equal(NUMBER(checked("route_get", ""), "route/0/millrace/gateway_health"), 1000);
    is_true("net_set", "{\"nid\":\"10.0.0.1@tcp\",\"health\":700}");
    is_true("peer_set", "{\"nid\":\"10.0.0.60@tcp\",\"health\":600}");
    is_true("peer_set", "{\"nid\":\"10.0.0.9@tcp\",\"health\":500}");
    r = checked("health_get", "");
    assert_int_equal(NUMBER(r, "nis/unhealthy"), 1);
    assert_int_equal(NUMBER(r, "nis/recovering"), 1);
    IS(r, "ni/0/nid", "10.0.0.1@tcp");
    assert_int_equal(NUMBER(r, "ni/0/health"), 700);
    assert_true(json_is_true(at(r, "ni/0/recovering")));
    assert_in_range(NUMBER(r, "ni/0/next_ping_ms"), 0, 1000);
    assert_int_equal(NUMBER(r, "peer_nis/unhealthy"), 2);
    IS(r, "peer_ni/0/nid", "10.0.0.9@tcp"); /* the worst first */
    assert_true(json_is_true(at(r, "peer_ni/0/gateway")));
    assert_int_equal(NUMBER(r, "peer_ni/0/health"), 500);
    IS(r, "peer_ni/1/nid", "10.0.0.60@tcp");
    assert_true(json_is_false(at(r, "peer_ni/1/gateway")));
    assert_int_equal(NUMBER(checked("route_get", ""), "route/0/millrace/gateway_health"), 500);
    is_true("peer_set", "{\"nid\":\"10.0.0.60@tcp\",\"health\":1000}");
    is_true("peer_set", "{\"nid\":\"10.0.0.9@tcp\",\"health\":1000}");
    is_true("net_set", "{\"nid\":\"10.0.0.1@tcp\",\"health\":1000}");
    r = checked("health_get", "");
    assert_int_equal(NUMBER(r, "nis/unhealthy") + NUMBER(r, "peer_nis/unhealthy"), 0);
    is_true("route_del", "[\"o2ib7\",\"10.0.0.9@tcp\"]");
    drop_peer(p);
}

/* So many at once and no more; those of a client that has gone make room. */
static void test_in_flight(void **state)
{
    for (unsigned i = 0; i < RPC_TIMED_MAX_SESSION; i++)
        begin("counters_capture", i % 2 ? "{\"seconds\":60}" : "{\"match\":\"no\",\"seconds\":60}");
    assert_null(answer);
    fails("counters_capture", "{\"seconds\":60}", -EBUSY, NULL);
    fails("peer_top", "[\"bytes\"]", -EBUSY, NULL);
    jrpc_session_close(&session);
    jrpc_session_init(&session, &engine, take, NULL);
    session.role = JRPC_ADMIN;
    begin("peer_top", "[\"bytes\",1,50]");
    finish("peer_top");
    assert_true(LIST_EMPTY(&ctx.timed));
    begin("counters_capture", "{\"seconds\":60}"); /* ended by teardown */
}

/* An NI that uses fewer peer credits than configured is a warning; any other NI is none. */
static void test_log_lowered(void **state)
{
    struct lnet_ni_conf conf = {.tun = {.peer_credits = 300}};
    struct log_opts opts = {.to = "stderr"};
    struct lnet_ni ni = {.tun = {.peer_credits = 256, .credits = 256}};
    struct err err = {0};
    char text[1024] = "";
    int ends[2];

    assert_int_equal(nid_parse("10.0.0.1@tcp", &ni.nid), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    opts.fd = ends[1];
    assert_int_equal(log_open(&opts, &err), 0);
    control_log_lowered(&conf, &ni);
    conf.tun.peer_credits = 256; /* as many as it uses */
    control_log_lowered(&conf, &ni);
    conf.tun.peer_credits = -1; /* the default */
    control_log_lowered(&conf, &ni);
    control_log_lowered(&conf, NULL);
    log_close();
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    if (!strstr(text, "Z warning lnet event=peer_credits nid=10.0.0.1@tcp configured=300 used=256 "
                      "credits=256 msg=") ||
        strchr(text, '\n') != text + strlen(text) - 1)
        fail_msg("%s", text);
    close(ends[0]);
    close(ends[1]);
}

/* log_set takes the index of a word for a level or a module of the log. */
static void test_log_words(void **state)
{
    const struct jrpc_method *m = rpc_method_table;

    while (strcmp(m->name, "log_set") != 0)
        m++;
    for (int i = 0; i < LOG_LEVELS; i++)
        assert_string_equal(m->params[0].words[i], log_level_names[i]);
    assert_null(m->params[0].words[LOG_LEVELS]);
    for (int i = 0; i < LOG_MODULES; i++)
        assert_string_equal(m->params[1].words[i], log_module_names[i]);
    assert_null(m->params[1].words[LOG_MODULES]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats),         cmocka_unit_test(test_drops),
        cmocka_unit_test(test_drop_why),      cmocka_unit_test(test_drop_turns),
        cmocka_unit_test(test_waits),         cmocka_unit_test(test_reactors),
        cmocka_unit_test(test_reactor_waits), cmocka_unit_test(test_why_local),
        cmocka_unit_test(test_why_routed),    cmocka_unit_test(test_why_not),
        cmocka_unit_test(test_unheard),       cmocka_unit_test(test_capture),
        cmocka_unit_test(test_top),           cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_log_words),     cmocka_unit_test(test_log_lowered),
        cmocka_unit_test(test_health),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
