/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for the process, nets, routes, counters, buffers, peers. */
#include "lib/base/err.h"
#include "lib/base/version.h"
#include "lib/lnd_eth/socklnd/sock_drops.h"
#include "lib/lnd_verbs/ib_drops.h"
#include "test/drops_test.h"
#include "test/lnds_test.h"
#include "test/unit/rpc_test.h"

/* ---- the process ---- */

static void test_version(void **state)
{
    json_t *r = result("version", "");

    IS(r, "program", "millraced");
    IS(r, "version", MILLRACE_VERSION);
    assert_true(NUMBER(r, "pid") > 0);
}

static void test_shutdown(void **state)
{
    is_true("shutdown", "");
    assert_int_equal(drain, 9);
    is_true("shutdown", "[3]");
    assert_int_equal(drain, 3);
    fails("shutdown", "{\"drain\":-1}", -32602, "drain");
}

static int started; /* what the next start returns */

static int note_start(struct controller *c, struct err *err)
{
    assert_ptr_equal(c, &control);
    err_text(err, "there is no interface eth9");
    engine.started = started == 0;
    return started;
}

static void test_start(void **state)
{
    fails("start", "", -EALREADY, NULL);
    engine.started = false;
    fails("net_get", "", -EAGAIN, NULL);
    result("version", "");
    control.start = note_start;
    started = -ENODEV;
    fails("start", "", -ENODEV, NULL);
    IS(answer, "error/message", "there is no interface eth9");
    fails("net_get", "", -EAGAIN, NULL);
    started = 0;
    is_true("start", "");
    result("net_get", "");
    fails("start", "", -EALREADY, NULL);
}

/* Each error of a document is told, and a value that is refused is shown. */
static void test_errors_are_whole(void **state)
{
    char params[512], key[16];
    const char *message;

    snprintf(params, sizeof(params), "[\"");
    for (int i = 0; i < 12; i++)
        snprintf(params + strlen(params), sizeof(params) - strlen(params), "unknown_key_%d: 1\\n",
                 i);
    snprintf(params + strlen(params), sizeof(params) - strlen(params), "\"]");
    fails("config_apply", params, -EINVAL, "text");
    message = TEXT(answer, "error/message");
    assert_true(strlen(message) > 511);
    for (int i = 0; i < 12; i++) {
        snprintf(key, sizeof(key), "key_%d:", i);
        assert_non_null(strstr(message, key));
    }
    fails("buffers_set", "{\"tiny\":-5}", -32602, "tiny");
    IS(answer, "error/message", "tiny is out of range (-5)");
    fails("route_del", "[\"tcp\",\"frob\"]", -32602, "gateway");
    assert_non_null(strstr(TEXT(answer, "error/message"), "gateway is not a NID (\"frob\")"));
}

/* ---- nets ---- */

static void test_net_get(void **state)
{
    json_t *nets = at(result("net_get", ""), "net"), *ni;

    assert_int_equal(json_array_size(nets), 3);
    IS(nets, "0/net type", "lo");
    IS(nets, "0/local NI(s)/0/nid", "0@lo");
    IS(nets, "0/local NI(s)/0/status", "up");
    IS(nets, "1/net type", "tcp");
    assert_int_equal(json_array_size(at(nets, "1/local NI(s)")), 2);
    ni = at(nets, "1/local NI(s)/1");
    IS(ni, "nid", "10.0.0.2@tcp");
    IS(ni, "status", "up");
    IS(ni, "interfaces/0", "eth0");
    assert_int_equal(NUMBER(ni, "tunables/peer_timeout"), 180);
    assert_int_equal(NUMBER(ni, "tunables/peer_credits"), 8);
    assert_int_equal(NUMBER(ni, "tunables/peer_buffer_credits"), 0);
    assert_int_equal(NUMBER(ni, "tunables/credits"), 256);
    assert_int_equal(NUMBER(ni, "lnd tunables/conns_per_peer"), 4);
    assert_int_equal(NUMBER(ni, "lnd tunables/timeout"), 50);
    assert_int_equal(NUMBER(ni, "lnd tunables/tos"), -1);
    assert_int_equal(NUMBER(ni, "statistics/send_count"), 0);
    assert_int_equal(NUMBER(ni, "sent_stats/put"), 0);
    assert_int_equal(NUMBER(ni, "received_stats/hello"), 0);
    assert_int_equal(NUMBER(ni, "dropped_stats/reply"), 0);
    assert_int_equal(NUMBER(ni, "millrace/max_tx_credits"), 256);
    assert_int_equal(NUMBER(ni, "millrace/available_tx_credits"), 256);
    assert_int_equal(NUMBER(ni, "millrace/min_tx_credits"), 256);
    assert_int_equal(NUMBER(ni, "millrace/tx_waiting"), 0);
    assert_int_equal(NUMBER(ni, "millrace/tx_waited"), 0);
    IS(nets, "2/net type", "tcp1");
    assert_null(json_object_get(at(nets, "2/local NI(s)/0"), "interfaces"));
    /* docs/protocol/lnet-core.md §10.2 */
    is_in_order(ni, "nid,status,interfaces,statistics,udsp info,sent_stats,received_stats,"
                    "dropped_stats,health stats,tunables,lnd tunables,dev cpt,CPT,millrace");
    is_in_order(at(ni, "health stats"), "fatal_error,health value,interrupts,dropped,aborted,"
                                        "no route,timeouts,error,ping_count,next_ping");
    assert_int_equal(NUMBER(ni, "health stats/health value"), 1000);
    assert_int_equal(NUMBER(ni, "udsp info/net priority"), -1);
    assert_int_equal(NUMBER(ni, "dev cpt"), -1);
    IS(ni, "CPT", "[0]");
    ni = at(nets, "0/local NI(s)/0");
    is_in_order(ni, "nid,status,statistics,udsp info,sent_stats,received_stats,dropped_stats,"
                    "health stats,tunables,dev cpt,CPT");
    assert_int_equal(NUMBER(ni, "health stats/health value"), 0);
    assert_int_equal(NUMBER(ni, "dev cpt"), 0);
}

static void test_net_get_filter(void **state)
{
    json_t *nets = at(result("net_get", "{\"net\":\"tcp1\"}"), "net");

    assert_int_equal(json_array_size(nets), 1);
    IS(nets, "0/local NI(s)/0/nid", "10.1.0.1@tcp1");
    assert_int_equal(json_array_size(at(result("net_get", "[\"lo\"]"), "net")), 1);
    fails("net_get", "[\"tcp9\"]", -ESRCH, "net");
    fails("net_get", "[\"frob\"]", -32602, "net");
}

static void test_global(void **state)
{
    json_t *global = result("global_get", "");

    is_in_order(global, "numa_range,max_interfaces,discovery,drop_asym_route,retry_count,"
                        "transaction_timeout,health_sensitivity,recovery_interval,"
                        "router_sensitivity,lnd_timeout,response_tracking,recovery_limit,"
                        "max_recovery_ping_interval");
    assert_int_equal(NUMBER(global, "max_recovery_ping_interval"), 900);
    assert_int_equal(NUMBER(global, "response_tracking"), 3);
    /* test/golden/outputs/B-router.txt.xz */
    assert_int_equal(NUMBER(global, "transaction_timeout"), 150);
    assert_int_equal(NUMBER(global, "lnd_timeout"), 49);
}

static void test_routing_get(void **state)
{
    json_t *r = result("routing_get", "");

    assert_int_equal(NUMBER(r, "enable"), 1);
    IS(r, "state", "on");
    assert_true(json_is_false(at(r, "draining")));
}

/* Without peers a drain is safe at the first look. docs/operations.md "Drain" */
static void test_drain(void **state)
{
    json_t *r = result("drain_get", "");

    IS(r, "state", "off");
    assert_null(json_object_get(r, "elapsed_s"));
    r = result("drain_start", "{\"timeout\":30}");
    IS(r, "state", "draining");
    assert_in_range(NUMBER(r, "limit_s"), 29, 30);
    RUN_UNTIL(control.drain.d.state == DRAIN_SAFE);
    r = result("drain_get", "");
    IS(r, "state", "safe");
    assert_int_equal(NUMBER(r, "peers"), 0);
    assert_int_equal(NUMBER(r, "check_s"), 0);
    r = result("routing_get", "");
    assert_true(json_is_true(at(r, "draining")));
    r = result("drain_start", ""); /* the drain goes on with another time limit */
    IS(r, "state", "safe");
    assert_in_range(NUMBER(r, "limit_s"), 89, 90);
    is_true("drain_undo", "");
    r = result("drain_get", "");
    IS(r, "state", "off");
    is_true("drain_undo", "");
    /* at once again, while the walk of a last look may be under way */
    result("drain_start", "");
    result("drain_undo", "");
    result("drain_start", "");
    RUN_UNTIL(control.drain.d.state == DRAIN_SAFE);
    is_true("drain_undo", "");
}

/* ---- pages ---- */

/* Walks through a method's pages of a size; each row once, `seen` in all. Between two pages the
 * function is called. */
static void walk(const char *method, const char *list, unsigned limit, unsigned seen,
                 unsigned pages, const char *key, void (*between)(void))
{
    json_t *names = json_object(), *row, *r;
    char params[256], cursor[128] = "";
    unsigned turned = 0;
    size_t i;

    do {
        snprintf(params, sizeof(params), "{\"limit\":%u%s%s%s}", limit,
                 cursor[0] ? ",\"cursor\":\"" : "", cursor, cursor[0] ? "\"" : "");
        r = result(method, params);
        assert_in_range(json_array_size(at(r, list)), 0, limit);
        json_array_foreach(at(r, list), i, row) {
            char *name = NULL;

            assert_true(asprintf(&name, "%s %s", TEXT(row, key),
                                 json_string_value(json_object_get(row, "gateway"))) > 0);
            if (json_object_get(names, name))
                fail_msg("%s is there twice", name);
            json_object_set_new(names, name, json_true());
            free(name);
        }
        turned++;
        snprintf(cursor, sizeof(cursor), "%s",
                 json_object_get(r, "cursor") ? TEXT(r, "cursor") : "");
        if (between)
            between();
    } while (cursor[0] && turned < 1000);
    assert_int_equal(json_object_size(names), seen);
    if (pages)
        assert_int_equal(turned, pages);
    json_decref(names);
}

static void remove_a_route(void)
{
    static unsigned n;
    char params[64];

    snprintf(params, sizeof(params), "[\"o2ib%u\",\"10.0.0.9@tcp\"]", 10 + n++);
    is_true("route_del", params);
}

static void test_route_pages(void **state)
{
    char params[128];
    json_t *r;

    for (int i = 10; i < 30; i++) {
        snprintf(params, sizeof(params), "[\"o2ib%d\",\"10.0.0.9@tcp\",2,%d]", i, i % 2);
        is_true("route_add", params);
        snprintf(params, sizeof(params), "[\"o2ib%d\",\"10.1.0.9@tcp1\"]", i);
        is_true("route_add", params);
    }
    walk("route_get", "route", 7, 40, 6, "net", NULL);
    walk("route_get", "route", 40, 40, 1, "net", NULL);
    walk("route_get", "route", 39, 40, 2, "net", NULL);
    r = result("route_get", "{\"hop\":2}");
    assert_int_equal(json_array_size(at(r, "route")), 20);
    r = result("route_get", "{\"priority\":1,\"limit\":4}");
    assert_int_equal(json_array_size(at(r, "route")), 4);
    at(r, "cursor");
    r = result("route_get", "{\"priority\":1,\"hop\":2,\"net\":\"o2ib11\"}");
    assert_int_equal(json_array_size(at(r, "route")), 1);
    IS(r, "route/0/net", "o2ib11");
    /* the row that the cursor names is gone, and one before it too: nothing is missed */
    r = result("route_get", "{\"limit\":2}");
    snprintf(params, sizeof(params), "{\"limit\":1,\"cursor\":\"%s\"}", TEXT(r, "cursor"));
    IS(r, "route/0/net", "o2ib10");
    is_true("route_del", "[\"o2ib10\",\"10.0.0.9@tcp\"]");
    is_true("route_del", "[\"o2ib10\",\"10.1.0.9@tcp1\"]");
    IS(result("route_get", params), "route/0/net", "o2ib11");
    is_true("route_add", "[\"o2ib10\",\"10.0.0.9@tcp\"]");
    is_true("route_add", "[\"o2ib10\",\"10.1.0.9@tcp1\"]");
    walk("route_get", "route", 5, 40, 0, "net", remove_a_route);
    for (int i = 10; i < 30; i++) {
        snprintf(params, sizeof(params), "[\"o2ib%d\",\"10.1.0.9@tcp1\"]", i);
        is_true("route_del", params);
        snprintf(params, sizeof(params), "[\"o2ib%d\",\"10.0.0.9@tcp\"]", i);
        call("route_del", params);
    }
    fails("route_get", "{\"cursor\":\"\"}", -32602, "cursor");
    fails("route_get", "{\"cursor\":\"tcp9\"}", -32602, "cursor");
    fails("route_get", "{\"cursor\":\"tcp9 x\"}", -32602, "cursor");
    fails("route_get", "{\"cursor\":\"9 10.0.0.9@tcp\"}", -32602, "cursor");
    fails("route_get", "{\"limit\":0}", -32602, "limit");
    fails("route_get", "{\"limit\":2001}", -32602, "limit");
}

/* Runs last: the net does not come back. */
static void test_net_del(void **state)
{
    static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"net_del\","
                               "\"params\":[\"tcp\"]}";
    json_t *nets;

    fails("net_del", "[\"lo\"]", -EPERM, "net");
    fails("net_del", "[\"tcp9\"]", -ENOENT, "net");
    fails("net_del", "[]", -32602, "net");
    fails("net_del", "[\"frob\"]", -32602, "net");
    jrpc_input(&session, text, strlen(text));
    fails("net_del", "[\"tcp1\"]", -EBUSY, NULL); /* one at a time */
    json_decref(answer);
    answer = NULL;
    RUN_UNTIL(answer);
    assert_true(json_object_get(answer, "result") == json_true());
    nets = at(result("net_get", ""), "net");
    assert_int_equal(json_array_size(nets), 2);
    IS(nets, "1/net type", "tcp1");
    fails("net_get", "[\"tcp\"]", -ESRCH, "net");
    fails("net_del", "[\"tcp\"]", -ENOENT, "net");
    /* what names its NIs, or counts over all of them, goes on */
    result("drops_get", "");
    result("waits_get", "");
    result("peer_get", "");
    fails("route_add", "[\"o2ib\",\"10.0.0.9@tcp\"]", -EHOSTUNREACH, "gateway");
}

/* Checks the error of an NI that is refused while it starts, after the call has returned. */
static void start_fails(const char *method, const char *params, const char *at_where,
                        const char *parameter)
{
    const json_t *told;

    start_fails_at = at_where;
    fails(method, params, -EADDRINUSE, NULL);
    start_fails_at = NULL;
    assert_non_null(strstr(TEXT(answer, "error/message"), "fake: cannot start"));
    IS(answer, "error/data/remedy", "free the address");
    told = json_object_get(at(answer, "error/data"), "parameter");
    assert_true(parameter ? told && !strcmp(json_string_value(told), parameter) : !told);
}

/* The remedy of an asynchronous start arrives; a position is named only if the method has it. */
static void test_start_fails(void **state)
{
    const char *ni = "{\"net\":\"tcp5\",\"nid\":\"10.5.0.1@tcp5\"}";
    const char *document = "{\"text\":\"net: [{net type: tcp5, local NI(s): "
                           "[{nid: 10.5.0.1@tcp5}]}]\",\"mode\":\"merge\"}";

    start_fails("net_add", ni, "nid", "nid");
    start_fails("net_add", ni, "cores", NULL);
    start_fails("config_apply", document, "text", "text");
    start_fails("config_apply", document, "nid", "text"); /* config_apply has no parameter nid */
    is_true("net_add", ni);
    is_true("net_del", "[\"tcp5\"]");
}

/* What net_add takes can be saved and read again. */
static void test_cpt(void **state)
{
    fails("net_add", "{\"net\":\"tcp5\",\"nid\":\"10.5.0.1@tcp5\",\"cpt\":\"0,1\"}", -EINVAL,
          "cpt");
    fails("net_add", "{\"net\":\"tcp5\",\"nid\":\"10.5.0.1@tcp5\",\"cpt\":\"[]\"}", -EINVAL, "cpt");
    fails("net_add", "{\"net\":\"tcp5\",\"nid\":\"10.5.0.1@tcp5\",\"credits\":0}",
          JRPC_INVALID_PARAMS, "credits");
    fails("net_add", "{\"net\":\"tcp5\",\"nid\":\"10.5.0.1@tcp5\",\"peer_credits\":0}",
          JRPC_INVALID_PARAMS, "peer_credits");
    is_true("net_add", "{\"net\":\"tcp5\",\"nid\":\"10.5.0.1@tcp5\",\"cpt\":\"[0,1]\"}");
    is_true("net_del", "[\"tcp5\"]");
}

static void test_ni_down(void **state)
{
    lnet_ni_at(node, 1)->fatal = true;
    IS(result("net_get", "[\"tcp1\"]"), "net/0/local NI(s)/0/status", "down");
    lnet_ni_at(node, 1)->fatal = false;
    IS(result("net_get", "[\"tcp1\"]"), "net/0/local NI(s)/0/status", "up");
}

/* ---- routes ---- */

static void test_routes(void **state)
{
    json_t *routes;

    is_true("route_add", "{\"net\":\"o2ib\",\"gateway\":\"10.0.0.9@tcp\"}");
    result("route_add", "[\"o2ib\",\"10.1.0.9@tcp1\",2,4294967295]");
    routes = at(result("route_get", ""), "route");
    assert_int_equal(json_array_size(routes), 2);
    routes = at(result("route_get", "{\"gateway\":\"10.1.0.9@tcp1\"}"), "route");
    assert_int_equal(json_array_size(routes), 1);
    IS(routes, "0/net", "o2ib");
    IS(routes, "0/gateway", "10.1.0.9@tcp1");
    assert_int_equal(NUMBER(routes, "0/hop"), 2);
    assert_int_equal(NUMBER(routes, "0/priority"), 4294967295);
    IS(routes, "0/type", "multi-hop");
    at(routes, "0/state");
    routes = at(result("route_get", "{\"net\":\"o2ib\",\"gateway\":\"10.0.0.9@tcp\"}"), "route");
    assert_int_equal(NUMBER(routes, "0/hop"), -1);
    assert_int_equal(NUMBER(routes, "0/priority"), 0);
    assert_int_equal(json_array_size(at(result("route_get", "[\"tcp7\"]"), "route")), 0);
    /* docs/protocol/lnet-core.md §11, "Route add rules" */
    fails("route_add", "[\"o2ib\",\"10.0.0.9@tcp\"]", -EEXIST, "net");
    fails("route_add", "[\"tcp1\",\"10.0.0.9@tcp\"]", -EEXIST, "net");
    fails("route_add", "[\"o2ib\",\"10.0.0.9@tcp7\"]", -EHOSTUNREACH, "gateway");
    fails("route_add", "[\"tcp\",\"10.0.0.9@tcp\"]", -EINVAL, NULL);
    fails("route_add", "[\"lo\",\"10.0.0.9@tcp\"]", -EINVAL, NULL);
    fails("route_add", "[\"tcp7\",\"10.0.0.9@tcp\",0]", -32602, "hop");
    fails("route_add", "[\"tcp7\",\"10.0.0.9@tcp\",256]", -32602, "hop");
    fails("route_add", "[\"tcp7\"]", -32602, "gateway");
    fails("route_del", "[\"tcp7\",\"10.0.0.9@tcp\"]", -ENOENT, NULL);
    is_true("route_del", "[\"o2ib\",\"10.0.0.9@tcp\"]");
    result("route_del", "[\"o2ib\",\"10.1.0.9@tcp1\"]");
    assert_int_equal(json_array_size(at(result("route_get", ""), "route")), 0);
}

/* ---- counters ---- */

static void test_stats(void **state)
{
    json_t *stats = result("stats_get", "");

    assert_int_equal(json_object_size(stats), LNET_STAT_COUNT);
    for (int i = 0; i < LNET_STAT_COUNT; i++)
        assert_true(json_is_integer(at(stats, lnet_stat_name((enum lnet_stat)i))));
}

static json_t *drop_row(const char *name)
{
    json_t *drops = at(result("drops_get", ""), "drops"), *row;
    size_t i;

    assert_int_equal(json_array_size(drops), drop_rows());
    json_array_foreach(drops, i, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            return row;
    fail_msg("%s is not listed", name);
    return NULL;
}

static void test_drops(void **state)
{
    struct lnet_hdr hdr = {.type = LNET_MSG_PUT, .payload_len = 4096};
    struct lnet_nid peer;
    json_t *row = drop_row("no_route");

    assert_int_equal(NUMBER(row, "count"), 0);
    assert_null(json_object_get(row, "example"));
    IS(row, "kind", "message");
    assert_true(json_string_length(at(row, "text")) > 10);
    nid_parse("10.0.0.7@tcp", &peer);
    hdr.src_nid = peer;
    nid_parse("1.2.3.4@o2ib7", &hdr.dest_nid);
    reactor_bind(reactor_at(env, 0));
    lnet_drop_event(node, LNET_DROP_NO_ROUTE, lnet_ni_at(node, 0), &peer, &hdr);
    lnet_drop_event(node, SOCK_DROP(PORT), NULL, NULL, NULL);
    reactor_bind(reactor_control(env));
    row = drop_row("no_route");
    assert_int_equal(NUMBER(row, "count"), 1);
    IS(row, "example/peer", "10.0.0.7@tcp");
    IS(row, "example/src", "10.0.0.7@tcp");
    IS(row, "example/dest", "1.2.3.4@o2ib7");
    IS(row, "example/type", "PUT");
    IS(row, "example/ni", "10.0.0.1@tcp");
    assert_int_equal(NUMBER(row, "example/payload_length"), 4096);
    assert_true(NUMBER(row, "example/age_ms") >= 0);
    row = drop_row("tcp_source_port");
    assert_int_equal(NUMBER(row, "count"), 1);
    IS(row, "kind", "refusal");
    assert_null(json_object_get(at(row, "example"), "src"));
    assert_null(json_object_get(at(row, "example"), "ni"));
}

/* ---- router buffers, admission ---- */

static void test_buffers(void **state)
{
    static const char *const pools[] = {"tiny", "small", "large"};
    static const char *const keys[] = {"npages",     "nbuffers", "credits",
                                       "mincredits", "waiting",  "waited"};
    static const int want[3][6] = {{0, 16, 16, 16, 0, 0}, {1, 8, 8, 8, 0, 0}, {256, 2, 2, 2, 0, 0}};
    json_t *r = result("buffers_get", "");
    char path[64];

    assert_int_equal(NUMBER(r, "enable"), 1);
    assert_int_equal(json_array_size(at(r, "reactors")), 1);
    assert_int_equal(NUMBER(r, "reactors/0/reactor"), 0);
    assert_int_equal(NUMBER(r, "reactors/0/cpt"), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "buffers/%s", pools[i]);
        assert_int_equal(NUMBER(r, path), want[i][1]);
        snprintf(path, sizeof(path), "reactors/0/%s", pools[i]);
        assert_int_equal(json_object_size(at(r, path)), 6);
        for (int k = 0; k < 6; k++) {
            snprintf(path, sizeof(path), "reactors/0/%s/%s", pools[i], keys[k]);
            assert_int_equal(NUMBER(r, path), want[i][k]);
        }
    }
}

static void test_buffers_set(void **state)
{
    json_t *r = result("buffers_set", "{\"large\":3}");

    assert_int_equal(NUMBER(r, "buffers/large"), 3);
    r = result("buffers_set", "[4, 6]");
    assert_int_equal(NUMBER(r, "buffers/tiny"), 4);
    assert_int_equal(NUMBER(r, "buffers/small"), 6);
    assert_int_equal(NUMBER(r, "buffers/large"), 3);
    r = result("buffers_get", "");
    assert_int_equal(NUMBER(r, "reactors/0/large/nbuffers"), 3);
    assert_int_equal(NUMBER(r, "reactors/0/large/credits"), 3);
    assert_int_equal(NUMBER(r, "reactors/0/tiny/mincredits"), 4);
    /* 0 is the default, here as many as there is memory for */
    r = result("buffers_set", "{\"large\":0}");
    assert_int_equal(NUMBER(r, "buffers/large"), LARGE_MOST);
    fails("buffers_set", "{\"large\":1000}", -ENOMEM, "large");
    IS(answer, "error/data/name", "ENOMEM");
    assert_non_null(
        strstr(TEXT(answer, "error/message"), "memory for " LARGE_MOST_TEXT " buffers"));
    assert_non_null(strstr(TEXT(answer, "error/data/remedy"), "memory:"));
    fails("buffers_set", "{\"tiny\":3, \"large\":1000}", -ENOMEM, NULL); /* then neither is set */
    assert_int_equal(NUMBER(result("buffers_get", ""), "buffers/tiny"), 4);
    fails("buffers_set", "", -32602, NULL);
    fails("buffers_set", "{\"tiny\":-1}", -32602, "tiny");
    fails("buffers_set", "{\"small\":1048577}", -32602, "small");
    fails("buffers_set", "{\"large\":\"many\"}", -32602, "large");
    fails("buffers_set", "{\"huge\":1}", -32602, "huge");
    r = result("buffers_set", "[16, 8, 2]");
    assert_int_equal(NUMBER(r, "buffers/tiny"), 16);
}

/* The client goes before the reactors have the new numbers. */
static void test_buffers_set_unheard(void **state)
{
    static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"buffers_set\","
                               "\"params\":{\"small\":7}}";

    jrpc_input(&session, text, strlen(text));
    jrpc_session_close(&session);
    jrpc_session_init(&session, &engine, take, NULL);
    session.role = JRPC_ADMIN;
    assert_int_equal(NUMBER(result("buffers_set", "{\"tiny\":16}"), "buffers/small"), 7);
    result("buffers_set", "{\"small\":8}");
}

/* Fewer than are in use: credits are below 0 until enough have come back. */
static void test_negative(void **state)
{
    struct lnet_pool_stats s;
    json_t *r;

    router_pool(0, LNET_POOL_SMALL)->used = 8;
    result("buffers_set", "{\"small\":5}");
    r = result("buffers_get", "");
    assert_int_equal(NUMBER(r, "reactors/0/small/credits"), -3);
    assert_int_equal(NUMBER(r, "reactors/0/small/mincredits"), -3);
    lnet_pool_stats_get(node, 0, LNET_POOL_SMALL, &s);
    assert_int_equal(s.free, -3);
    router_pool(0, LNET_POOL_SMALL)->used = 0;
    result("buffers_set", "{\"small\":8}");
}

static void test_admission(void **state)
{
    json_t *r = result("admission_get", "");

    assert_int_equal(NUMBER(r, "egress_share"), 50);
    assert_int_equal(NUMBER(r, "buffer_wait"), 10);
    r = result("admission_set", "{\"egress_share\":100}");
    assert_int_equal(NUMBER(r, "egress_share"), 100);
    assert_int_equal(NUMBER(r, "buffer_wait"), 10);
    r = result("admission_set", "{\"buffer_wait\":1}");
    assert_int_equal(NUMBER(r, "egress_share"), 100);
    r = result("admission_get", "");
    assert_int_equal(NUMBER(r, "egress_share"), 100);
    assert_int_equal(NUMBER(r, "buffer_wait"), 1);
    fails("admission_set", "", -32602, NULL);
    fails("admission_set", "{\"egress_share\":0}", -32602, "egress_share");
    fails("admission_set", "{\"egress_share\":101}", -32602, "egress_share");
    fails("admission_set", "{\"buffer_wait\":0}", -32602, "buffer_wait");
    fails("admission_set", "{\"buffer_wait\":13}", -32602, "buffer_wait");
    fails("admission_set", "{\"egress_share\":50.5}", -32602, "egress_share");
    result("admission_set", "[50, 10]");
}

static void test_reactors(void **state)
{
    json_t *r = result("reactors_get", "");

    assert_int_equal(json_array_size(at(r, "reactors")), 1);
    assert_int_equal(NUMBER(r, "reactors/0/reactor"), 0);
    assert_int_equal(NUMBER(r, "reactors/0/cpt"), 0);
    assert_true(NUMBER(r, "reactors/0/loops") > 0);
    assert_true(NUMBER(r, "control/loops") > 0);
}

/* ---- peers ---- */

static json_t *wait_row(const char *name)
{
    json_t *waits = at(result("waits_get", ""), "waits"), *row;
    size_t i;

    assert_int_equal(json_array_size(waits), 7);
    json_array_foreach(waits, i, row)
        if (strcmp(TEXT(row, "name"), name) == 0)
            return row;
    fail_msg("%s is not listed", name);
    return NULL;
}

/* Messages wait for credits of this peer, and some for small buffers. */
static void check_waits(const struct lnet_peer_ni *peer)
{
    struct lnet_router_pool *pool = router_pool(0, LNET_POOL_SMALL);
    json_t *row = wait_row("peer_tx_credit");
    char nid[LNET_NIDSTR_SIZE];

    nid_format(&peer->nid, nid);
    assert_int_equal(NUMBER(row, "waiting"), 2);
    assert_int_equal(NUMBER(row, "waited"), 6);
    assert_true(json_string_length(at(row, "text")) > 10);
    IS(row, "worst/nid", nid);
    assert_int_equal(NUMBER(row, "worst/waiting"), 2);
    row = wait_row("peer_router_credit");
    assert_int_equal(NUMBER(row, "waiting"), 4);
    assert_int_equal(NUMBER(row, "waited"), 9);
    IS(row, "worst/nid", nid);
    row = wait_row("ni_tx_credit");
    assert_int_equal(NUMBER(row, "waiting"), 0);
    assert_null(json_object_get(row, "worst"));
    pool->waiting = 3;
    pool->waited = 5;
    row = wait_row("small_buffer");
    assert_int_equal(NUMBER(row, "waiting"), 3);
    assert_int_equal(NUMBER(row, "waited"), 5);
    assert_null(json_object_get(row, "worst"));
    pool->waiting = 0;
    pool->waited = 0;
    assert_int_equal(NUMBER(wait_row("small_buffer"), "waiting"), 0);
    wait_row("tiny_buffer");
    wait_row("large_buffer");
}

static void test_peers(void **state)
{
    struct lnet_peer_ni *a = make_peer("10.0.0.50@tcp"), *b = make_peer("10.1.0.50@tcp1");
    json_t *peers, *ni;

    a->send_count[LNET_MSG_PUT] = 5;
    a->send_count[LNET_MSG_ACK] = 1;
    a->recv_count[LNET_MSG_GET] = 3;
    a->drop_count[LNET_MSG_REPLY] = 2;
    a->tx_queued = 4;
    a->tx_queued_bytes = 4000;
    a->tx.now = -2;
    a->tx.min = -5;
    a->tx.waited = 6;
    a->rtr.now = 3;
    a->rtr.min = -1;
    a->rtr.waited = 9;
    a->rtr_waiting = 4;
    assert_true(json_array_size(at(result("peer_get", ""), "peer")) >= 2);
    peers = at(result("peer_get", "[\"10.0.0.50@tcp\"]"), "peer");
    assert_int_equal(json_array_size(peers), 1);
    IS(peers, "0/primary nid", "10.0.0.50@tcp");
    assert_true(json_is_false(at(peers, "0/Multi-Rail")));
    ni = at(peers, "0/peer ni/0");
    IS(ni, "nid", "10.0.0.50@tcp");
    at(ni, "state");
    assert_int_equal(NUMBER(ni, "max_ni_tx_credits"), 8);
    assert_int_equal(NUMBER(ni, "available_tx_credits"), -2);
    assert_int_equal(NUMBER(ni, "min_tx_credits"), -5);
    assert_int_equal(NUMBER(ni, "tx_q_num_of_buf"), 4000);
    assert_int_equal(NUMBER(ni, "available_rtr_credits"), 3);
    assert_int_equal(NUMBER(ni, "min_rtr_credits"), -1);
    assert_int_equal(NUMBER(ni, "refcount"), 1);
    /* docs/protocol/lnet-core.md §10.3 */
    is_in_order(at(peers, "0"), "primary nid,Multi-Rail,peer state,peer ni");
    is_in_order(ni, "nid,udsp info,state,max_ni_tx_credits,available_tx_credits,min_tx_credits,"
                    "tx_q_num_of_buf,available_rtr_credits,min_rtr_credits,refcount,statistics,"
                    "sent_stats,received_stats,dropped_stats,health stats,millrace");
    is_in_order(at(ni, "health stats"),
                "health value,dropped,timeout,error,network timeout,ping_count,next_ping");
    assert_int_equal(NUMBER(ni, "statistics/send_count"), 6);
    assert_int_equal(NUMBER(ni, "statistics/recv_count"), 3);
    assert_int_equal(NUMBER(ni, "statistics/drop_count"), 2);
    assert_int_equal(NUMBER(ni, "sent_stats/put"), 5);
    assert_int_equal(NUMBER(ni, "sent_stats/ack"), 1);
    assert_int_equal(NUMBER(ni, "received_stats/get"), 3);
    assert_int_equal(NUMBER(ni, "dropped_stats/reply"), 2);
    assert_int_equal(NUMBER(ni, "millrace/tx_queued"), 4);
    assert_int_equal(NUMBER(ni, "millrace/reactor"), 0);
    assert_int_equal(NUMBER(ni, "millrace/max_rtr_credits"), 8);
    assert_int_equal(NUMBER(ni, "millrace/tx_waiting"), 2);
    assert_int_equal(NUMBER(ni, "millrace/tx_waited"), 6);
    assert_int_equal(NUMBER(ni, "millrace/rtr_waiting"), 4);
    assert_int_equal(NUMBER(ni, "millrace/rtr_waited"), 9);
    check_waits(a);
    a->tx.now = a->tx.min = a->rtr.now = a->rtr.min = 8;
    a->rtr_waiting = 0;
    a->tx_queued = 0;
    a->tx_queued_bytes = 0;
    fails("peer_get", "[\"10.0.0.51@tcp\"]", -ENOENT, "nid");
    drop_peer(a);
    drop_peer(b);
}

static void test_peer_pages(void **state)
{
    struct lnet_peer_ni *peers[30];
    unsigned others = (unsigned)json_array_size(at(result("peer_get", ""), "peer")), i;
    char nid[64];
    json_t *r;

    for (i = 0; i < 30; i++) {
        snprintf(nid, sizeof(nid), "10.0.1.%u@tcp", i + 1);
        peers[i] = make_peer(nid);
    }
    walk("peer_get", "peer", 7, 30 + others, 0, "primary nid", NULL);
    walk("peer_get", "peer", 1, 30 + others, 0, "primary nid", NULL);
    walk("peer_get", "peer", 2000, 30 + others, 1, "primary nid", NULL);
    r = result("peer_get", "{\"brief\":true,\"limit\":3}");
    assert_int_equal(json_array_size(at(r, "peer")), 3);
    is_in_order(at(r, "peer/0"), "primary nid,Multi-Rail,peer ni");
    is_in_order(at(r, "peer/0/peer ni/0"), "nid,state");
    r = result("peer_get", "{\"brief\":true,\"nid\":\"10.0.1.3@tcp\"}");
    is_in_order(at(r, "peer/0/peer ni/0"), "nid,state");
    fails("peer_get", "{\"cursor\":\"\"}", -32602, "cursor");
    fails("peer_get", "{\"cursor\":\"0\"}", -32602, "cursor");
    fails("peer_get", "{\"cursor\":\"-1.0\"}", -32602, "cursor");
    fails("peer_get", "{\"cursor\":\"0.0x\"}", -32602, "cursor");
    fails("peer_get", "{\"cursor\":\"99.0\"}", -32602, "cursor"); /* no such reactor */
    fails("peer_get", "{\"cursor\":\"99999999999999.1\"}", -32602, "cursor");
    /* a place behind all there are is an empty last page */
    r = result("peer_get", "{\"cursor\":\"1.4000000000\"}");
    assert_int_equal(json_array_size(at(r, "peer")), 0);
    assert_null(json_object_get(r, "cursor"));
    for (i = 0; i < 30; i++)
        drop_peer(peers[i]);
}

static int changed_rc;

static void peers_changed(void *arg, int rc, const struct err *err)
{
    changed_rc = rc;
    if (rc != 0)
        assert_true(err->message[0]);
}

static int change_peers(const struct lnet_peer_op *ops, unsigned n, bool undo)
{
    struct err err = {0};

    changed_rc = 1;
    assert_int_equal(lnet_peers_change(control.node, ops, n, undo, peers_changed, NULL, &err), 0);
    RUN_UNTIL(changed_rc <= 0);
    return changed_rc;
}

static struct lnet_peer_op peer_op(enum lnet_peer_op_kind kind, const char *primary,
                                   const char *nid, bool multi_rail)
{
    struct lnet_peer_op op = {
        .kind = kind, .multi_rail = multi_rail, .was_multi_rail = !multi_rail};

    assert_int_equal(nid_parse(primary, &op.primary), 0);
    assert_int_equal(nid_parse(nid, &op.nid), 0);
    return op;
}

/* Peers of the table are shown with all their NIDs, before the others and only there (§10.3). */
static void test_configured_peers(void **state)
{
    struct lnet_peer_ni *known = make_peer("10.0.2.1@tcp"), *other = make_peer("10.0.2.9@tcp");
    unsigned others = (unsigned)json_array_size(at(result("peer_get", ""), "peer")) - 1, i;
    struct lnet_peer_op op[12];
    char text[64];
    json_t *r;

    for (i = 0; i < 10; i++) {
        snprintf(text, sizeof(text), "10.0.2.%u@tcp", 100 + i);
        op[i] = peer_op(LNET_PEER_ADD, text, text, i % 2);
    }
    op[10] = peer_op(LNET_PEER_ADD, "10.9.0.1@o2ib", "10.9.0.1@o2ib", true);
    op[11] = peer_op(LNET_PEER_ADD, "10.9.0.1@o2ib", "10.0.2.1@tcp", true);
    assert_int_equal(change_peers(op, 12, false), 0);
    walk("peer_get", "peer", 2000, others + 11, 1, "primary nid", NULL);
    walk("peer_get", "peer", 3, others + 11, 0, "primary nid", NULL);
    walk("peer_get", "peer", 11, others + 11, 0, "primary nid", NULL);
    r = result("peer_get", "[\"10.0.2.1@tcp\"]");
    assert_int_equal(json_array_size(at(r, "peer")), 1);
    assert_null(json_object_get(r, "cursor"));
    IS(r, "peer/0/primary nid", "10.9.0.1@o2ib");
    assert_true(json_is_true(at(r, "peer/0/Multi-Rail")));
    assert_int_equal(NUMBER(r, "peer/0/peer state"), 9);
    assert_int_equal(json_array_size(at(r, "peer/0/peer ni")), 2);
    IS(r, "peer/0/peer ni/0/nid", "10.9.0.1@o2ib");
    IS(r, "peer/0/peer ni/0/state", "NA");
    assert_int_equal(NUMBER(r, "peer/0/peer ni/0/max_ni_tx_credits"), 0); /* no local net */
    IS(r, "peer/0/peer ni/1/nid", "10.0.2.1@tcp");
    IS(r, "peer/0/peer ni/1/state", "up");
    assert_int_equal(NUMBER(r, "peer/0/peer ni/1/max_ni_tx_credits"), 8);
    r = result("peer_get", "{\"nid\":\"10.9.0.1@o2ib\",\"brief\":true}");
    is_in_order(at(r, "peer/0"), "primary nid,Multi-Rail,peer ni");
    is_in_order(at(r, "peer/0/peer ni/1"), "nid,state");
    IS(result("peer_get", "[\"10.0.2.9@tcp\"]"), "peer/0/primary nid", "10.0.2.9@tcp");
    is_true("peer_set", "{\"all\":true,\"health\":7}");
    is_true("peer_set", "{\"nid\":\"10.0.2.1@tcp\",\"health\":8,\"state\":4294967295}");
    r = result("peer_get", "[\"10.0.2.1@tcp\"]");
    assert_int_equal(NUMBER(r, "peer/0/peer ni/0/health stats/health value"), 7);
    assert_int_equal(NUMBER(r, "peer/0/peer ni/1/health stats/health value"), 8);
    assert_int_equal(NUMBER(r, "peer/0/peer state"), 0x100137 | 8); /* nothing goes on */
    is_true("peer_set", "{\"nid\":\"10.0.2.1@tcp\",\"state\":1}");
    assert_int_equal(change_peers(op, 12, true), 0);
    walk("peer_get", "peer", 2000, others + 1, 1, "primary nid", NULL); /* known on its own */
    drop_peer(known);
    drop_peer(other);
}

/* A change of peers holds as a whole or not at all. */
static void test_peers_change(void **state)
{
    struct lnet_peer_op op[4] = {
        peer_op(LNET_PEER_ADD, "10.0.3.1@tcp", "10.0.3.1@tcp", true),
        peer_op(LNET_PEER_ADD, "10.0.3.1@tcp", "10.0.3.2@tcp", true),
        peer_op(LNET_PEER_ADD, "10.0.3.3@tcp", "10.0.3.3@tcp", false),
        peer_op(LNET_PEER_ADD, "10.0.3.4@tcp", "10.0.3.2@tcp", true), /* another one's */
    };
    struct lnet_peer_op own = peer_op(LNET_PEER_ADD, "10.0.0.1@tcp", "10.0.0.1@tcp", true);
    struct lnet_peer_op set[2] = {peer_op(LNET_PEER_SET, "10.0.3.3@tcp", "10.0.3.3@tcp", true),
                                  peer_op(LNET_PEER_ADD, "10.0.3.3@tcp", "10.0.3.2@tcp", true)};

    assert_int_equal(change_peers(op, 4, false), -EEXIST);
    fails("peer_get", "[\"10.0.3.1@tcp\"]", -ENOENT, "nid");
    fails("peer_get", "[\"10.0.3.3@tcp\"]", -ENOENT, "nid");
    assert_int_equal(change_peers(op, 3, false), 0);
    assert_int_equal(change_peers(&own, 1, false), -EINVAL);
    assert_int_equal(change_peers(set, 2, false), -EEXIST);
    assert_true(json_is_false(at(result("peer_get", "[\"10.0.3.3@tcp\"]"), "peer/0/Multi-Rail")));
    assert_int_equal(change_peers(set, 1, false), 0);
    assert_true(json_is_true(at(result("peer_get", "[\"10.0.3.3@tcp\"]"), "peer/0/Multi-Rail")));
    assert_int_equal(change_peers(set, 1, true), 0);
    assert_true(json_is_false(at(result("peer_get", "[\"10.0.3.3@tcp\"]"), "peer/0/Multi-Rail")));
    assert_int_equal(change_peers(op, 3, true), 0);
    fails("peer_get", "[\"10.0.3.2@tcp\"]", -ENOENT, "nid");
}

/* The client goes while reactors are being asked. */
static void test_peers_unheard(void **state)
{
    static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"peer_get\"}";

    jrpc_input(&session, text, strlen(text));
    jrpc_session_close(&session);
    jrpc_session_init(&session, &engine, take, NULL);
    session.role = JRPC_ADMIN;
    result("peer_get", ""); /* the first has been answered before this */
}

/* ---- ping ---- */

static void test_ping(void **state)
{
    json_t *ping = at(result("ping", "[\"10.1.0.1@tcp1\"]"), "ping/0");

    IS(ping, "primary nid", "10.0.0.1@tcp");
    assert_true(json_is_true(at(ping, "Multi-Rail")));
    assert_int_equal(json_array_size(at(ping, "peer_ni")), 3);
    IS(ping, "peer_ni/2/nid", "10.1.0.1@tcp1");
    IS(ping, "peer_ni/2/status", "up");
    assert_int_equal(NUMBER(ping, "features") & LNET_PING_RTE_DISABLED, 0);
    fails("ping", "[\"10.0.0.60@tcp\"]", -EHOSTUNREACH, "nid"); /* the driver reaches nobody */
    fails("ping", "[\"10.0.0.60@tcp9\"]", -EHOSTUNREACH, "nid");
    fails("ping", "[\"10.0.0.60@tcp\",\"10.0.0.61@tcp\"]", -32602, "source");
    fails("ping", "[\"10.0.0.60@tcp\",\"10.0.0.1@tcp\",0]", -32602, "timeout_ms");
    fails("ping", "[]", -32602, "nid");
}

static void test_discover_peer(void **state)
{
    json_t *row = at(result("discover", "[\"10.1.0.1@tcp1\"]"), "discover/0");

    IS(row, "primary nid", "10.0.0.1@tcp"); /* ourselves */
    assert_int_equal(json_array_size(at(row, "peer_ni")), 3);
    fails("discover", "[\"10.0.0.60@tcp\"]", -EHOSTUNREACH, "nid"); /* the driver reaches nobody */
    fails("discover", "[\"10.0.0.60@tcp9\"]", -EHOSTUNREACH, "nid");
    fails("discover", "[\"10.0.0.60@tcp\",true,0]", -32602, "timeout_ms");
    fails("discover", "[]", -32602, "nid");
}

/* ---- what there is ---- */

static void test_discover(void **state)
{
    json_t *document = result("rpc.discover", ""), *listed, *method;
    size_t i, n = json_array_size(at(document, "methods"));

    IS(document, "openrpc", "1.2.6");
    IS(document, "info/version", MILLRACE_VERSION);
    json_incref(document);
    listed = at(result("rpc_methods", ""), "methods");
    assert_int_equal(json_array_size(listed), n);
    json_array_foreach(listed, i, method) {
        json_t *row = json_array_get(at(document, "methods"), i);

        IS(row, "name", TEXT(method, "name"));
        IS(row, "x-role", TEXT(method, "role"));
        IS(row, "x-phase", TEXT(method, "phase"));
        assert_int_equal(json_array_size(at(row, "params")), json_array_size(at(method, "params")));
    }
    json_decref(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drain), /* while there is no peer */
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_errors_are_whole),
        cmocka_unit_test(test_net_get),
        cmocka_unit_test(test_net_get_filter),
        cmocka_unit_test(test_ni_down),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_drops),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_buffers_set),
        cmocka_unit_test(test_buffers_set_unheard),
        cmocka_unit_test(test_negative),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_reactors),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_peers_unheard),
        cmocka_unit_test(test_peer_pages),
        cmocka_unit_test(test_configured_peers),
        cmocka_unit_test(test_peers_change),
        cmocka_unit_test(test_route_pages),
        cmocka_unit_test(test_global),
        cmocka_unit_test(test_routing_get),
        cmocka_unit_test(test_ping),
        cmocka_unit_test(test_discover_peer),
        cmocka_unit_test(test_discover),
        cmocka_unit_test(test_start_fails),
        cmocka_unit_test(test_cpt),
        cmocka_unit_test(test_net_del),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
