/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The methods on a real node with a network driver that delivers nothing. The node's reactor and
 * the control reactor are stepped by the test.
 */
#include "reactor_test.h"

#include <errno.h>
#include <string.h>

#include "lib/lnet/lnet_internal.h"
#include "rpc/rpc_methods.h"

static struct lnet_node *node;
static struct rpc_ctx ctx;
static struct jrpc engine = {.methods = rpc_method_table, .ctx = &ctx};
static struct jrpc_session session;
static json_t *answer; /* the last response */
static unsigned drain; /* what shutdown was called with */
static bool stopped;

/* ---- a driver ---- */

static int fake_init(struct lnet_ni *ni, char *err, size_t errlen)
{
    ni->tun = (struct lnet_tunables){180, 8, 0, 256};
    ni->lnd_tun = (struct lnd_tunables){4, 50, -1};
    return 0;
}

static int fake_start(struct lnet_ni *ni, char *err, size_t errlen)
{
    return 0;
}

static void fake_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    reactor_post(reactor_control(env), done);
}

static void fake_fini(struct lnet_ni *ni)
{
}

static void fake_send(struct lnet_msg *msg)
{
    lnet_send_done(msg, (struct lnet_result){LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR});
}

static void fake_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why)
{
}

static void fake_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    *out = (struct lnd_peer_info){.conns = {0, 1, 2, 3}, .bytes_in = 1u << 31, .bytes_out = 7};
}

static void fake_free(struct lnet_peer_ni *peer)
{
}

static const struct lnd_ops fake = {.name = "tcp",
                                    .type = LNET_LND_SOCK,
                                    .ni_init = fake_init,
                                    .ni_start = fake_start,
                                    .ni_quiesce = fake_stop,
                                    .ni_stop = fake_stop,
                                    .ni_fini = fake_fini,
                                    .send = fake_send,
                                    .peer_abort = fake_abort,
                                    .peer_info = fake_info,
                                    .peer_free = fake_free};

/* ---- around the tests ---- */

static void step_all(void)
{
    reactor_bind(reactor_at(env, 0));
    reactor_step(reactor_at(env, 0), 0);
    reactor_bind(reactor_control(env));
    reactor_step(reactor_control(env), 0);
}

#define RUN_UNTIL(cond)                                                                            \
    do {                                                                                           \
        uint64_t until_us = reactor_now_us() + DEADLINE_US;                                        \
                                                                                                   \
        while (!(cond)) {                                                                          \
            if (reactor_now_us() > until_us)                                                       \
                fail_msg("never happened: %s", #cond);                                             \
            step_all();                                                                            \
        }                                                                                          \
    } while (0)

static void take(void *arg, const char *text, size_t len)
{
    json_decref(answer);
    answer = json_loadb(text, len, 0, NULL);
    assert_non_null(answer);
}

static void note_shutdown(void *arg, unsigned drain_s)
{
    assert_ptr_equal(arg, &ctx);
    drain = drain_s;
}

static void note_stopped(void *arg)
{
    stopped = true;
}

static void add_ni(const char *text, const char *ifname)
{
    struct lnet_ni_conf conf = {.tun = {-1, -1, -1, -1}, .lnd_tun = {-1, -1, -1}};
    char err[320] = "";

    assert_int_equal(nid_parse(text, &conf.nid), 0);
    conf.net = nid_net(&conf.nid);
    snprintf(conf.ifname, sizeof(conf.ifname), "%s", ifname);
    if (lnet_ni_add(node, &conf, NULL, err, sizeof(err)) != 0)
        fail_msg("%s", err);
}

static int setup(void **state)
{
    struct lnet_node_opts opts = {.routing = true,
                                  .tiny = 16,
                                  .small = 8,
                                  .large = 2,
                                  .memory =
                                      (3u << 20) + (1 << 20) / 4, /* room for another large one */
                                  .max_peers = 64,
                                  .local_msgs = 16};
    char err[320] = "";

    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    opts.env = env;
    if (lnet_node_create(&opts, &node, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    assert_int_equal(lnet_lnd_register(node, &fake, NULL), 0);
    add_ni("10.0.0.1@tcp", "eth0");
    add_ni("10.1.0.1@tcp1", "");
    add_ni("10.0.0.2@tcp", "eth0");
    assert_int_equal(lnet_node_start(node, err, sizeof(err)), 0);
    ctx = (struct rpc_ctx){.node = node,
                           .env = env,
                           .routing = true,
                           .drain_s = 9,
                           .start_us = reactor_now_us(),
                           .shutdown = note_shutdown,
                           .shutdown_arg = &ctx};
    jrpc_session_init(&session, &engine, take, NULL);
    step_all();
    return 0;
}

static int teardown(void **state)
{
    jrpc_session_close(&session);
    json_decref(answer);
    lnet_node_stop(node, 0, note_stopped, NULL);
    RUN_UNTIL(stopped);
    lnet_node_destroy(node);
    reactor_env_destroy(env);
    return 0;
}

/* Calls a method with params (JSON, "" = none) and waits for the response. */
static void call(const char *method, const char *params)
{
    char text[512];

    json_decref(answer);
    answer = NULL;
    snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"%s%s}", method,
             params[0] ? ",\"params\":" : "", params);
    jrpc_input(&session, text, strlen(text));
    RUN_UNTIL(answer);
}

static json_t *result(const char *method, const char *params)
{
    call(method, params);
    if (!json_object_get(answer, "result"))
        fail_msg("%s %s: %s", method, params, json_dumps(answer, 0));
    return json_object_get(answer, "result");
}

static void is_true(const char *method, const char *params)
{
    json_t *value = result(method, params); /* the macros of jansson evaluate theirs twice */

    assert_true(json_is_true(value));
}

/* The call fails with code; a parameter (NULL: any) is named and the remedy said. */
static void fails(const char *method, const char *params, int code, const char *parameter)
{
    json_t *error, *data;

    call(method, params);
    error = json_object_get(answer, "error");
    data = json_object_get(error, "data");
    if (json_integer_value(json_object_get(error, "code")) != code)
        fail_msg("%s %s: %s", method, params, json_dumps(answer, 0));
    assert_true(json_string_length(json_object_get(error, "message")) > 0);
    if (parameter)
        assert_string_equal(json_string_value(json_object_get(data, "parameter")), parameter);
}

/* The value at a path of keys and indices, which must be there. */
static json_t *at(json_t *value, const char *path)
{
    char copy[256], *save, *word;

    snprintf(copy, sizeof(copy), "%s", path);
    for (word = strtok_r(copy, "/", &save); word && value; word = strtok_r(NULL, "/", &save))
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(word))
                                     : json_object_get(value, word);
    if (!value)
        fail_msg("there is no %s", path);
    return value;
}

#define IS(value, path, text) assert_string_equal(json_string_value(at(value, path)), text)
#define TEXT(value, path)     json_string_value(at(value, path))
#define NUMBER(value, path)   json_integer_value(at(value, path))

#define LARGE_MOST      3 /* of what node.memory has room for */
#define LARGE_MOST_TEXT "3"

static struct lnet_router_pool *router_pool(unsigned reactor, enum lnet_pool pool)
{
    return &node->shard[reactor]->pool[pool];
}

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

/* Runs last: the net does not come back. */
static void test_net_del(void **state)
{
    static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"net_del\","
                               "\"params\":[\"tcp\"]}";
    json_t *nets;

    fails("net_del", "[\"tcp9\"]", -ENOENT, "net");
    fails("net_del", "[]", -32602, "net");
    fails("net_del", "[\"frob\"]", -32602, "net");
    jrpc_input(&session, text, strlen(text));
    fails("net_del", "[\"tcp1\"]", -EBUSY, "net"); /* one at a time */
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
    int i;

    assert_int_equal(json_object_size(stats), LNET_STAT_COUNT);
    for (i = 0; i < LNET_STAT_COUNT; i++)
        assert_true(json_is_integer(at(stats, lnet_stat_name((enum lnet_stat)i))));
}

static json_t *drop_row(const char *name)
{
    json_t *drops = at(result("drops_get", ""), "drops"), *row;
    size_t i;

    assert_int_equal(json_array_size(drops), LNET_DROP_COUNT - 1);
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
    lnet_drop_event(node, LNET_DROP_TCP_PORT, NULL, NULL, NULL);
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
    int i, k;

    assert_int_equal(NUMBER(r, "enable"), 1);
    assert_int_equal(json_array_size(at(r, "reactors")), 1);
    assert_int_equal(NUMBER(r, "reactors/0/reactor"), 0);
    assert_int_equal(NUMBER(r, "reactors/0/cpt"), 0);
    for (i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "buffers/%s", pools[i]);
        assert_int_equal(NUMBER(r, path), want[i][1]);
        snprintf(path, sizeof(path), "reactors/0/%s", pools[i]);
        assert_int_equal(json_object_size(at(r, path)), 6);
        for (k = 0; k < 6; k++) {
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

static struct lnet_peer_ni *make_peer(const char *text)
{
    struct lnet_peer_ni *peer;
    struct lnet_nid nid;

    assert_int_equal(nid_parse(text, &nid), 0);
    reactor_bind(reactor_at(env, 0));
    peer = lnet_peer_get(node, &nid);
    assert_non_null(peer);
    reactor_bind(reactor_control(env));
    return peer;
}

static void drop_peer(struct lnet_peer_ni *peer)
{
    reactor_bind(reactor_at(env, 0));
    lnet_peer_put(peer);
    reactor_bind(reactor_control(env));
}

static void is_in_order(json_t *object, const char *keys)
{
    char all[512] = "";
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value) {
        strcat(all, all[0] ? " " : "");
        strcat(all, key);
    }
    assert_string_equal(all, keys);
}

static json_t *wait_row(const char *name)
{
    json_t *waits = at(result("waits_get", ""), "waits"), *row;
    size_t i;

    assert_int_equal(json_array_size(waits), 6);
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
    a->rtrq.length = 4;
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
    is_in_order(ni, "nid state max_ni_tx_credits available_tx_credits min_tx_credits "
                    "tx_q_num_of_buf available_rtr_credits min_rtr_credits refcount statistics "
                    "sent_stats received_stats dropped_stats millrace");
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
    a->rtrq.length = 0;
    a->tx_queued = 0;
    a->tx_queued_bytes = 0;
    fails("peer_get", "[\"10.0.0.51@tcp\"]", -ENOENT, "nid");
    drop_peer(a);
    drop_peer(b);
}

/* The client goes while reactors are being asked. */
static void test_peers_unheard(void **state)
{
    static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"peer_get\"}";

    jrpc_input(&session, text, strlen(text));
    jrpc_session_close(&session);
    jrpc_session_init(&session, &engine, take, NULL);
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

/* ---- documentation ---- */

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 16);

    if (!f || !text)
        fail_msg("cannot read %s", path);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Every method and parameter is in the reference, with the sentences of the table. */
static void test_documented(void **state)
{
    json_t *methods = at(result("rpc_methods", ""), "methods"), *method, *param;
    char *text = read_text(TEST_DOCS "/jsonrpc.md"), want[512];
    size_t i, j;

    assert_true(json_array_size(methods) >= 13);
    json_array_foreach(methods, i, method) {
        snprintf(want, sizeof(want), "### %s\n\n%s\n", json_string_value(at(method, "name")),
                 json_string_value(at(method, "help")));
        if (!strstr(text, want))
            fail_msg("docs/jsonrpc.md does not have: %s", want);
        snprintf(want, sizeof(want), "Result: %s.\n", json_string_value(at(method, "result")));
        if (!strstr(text, want))
            fail_msg("docs/jsonrpc.md does not have: %s", want);
        json_array_foreach(at(method, "params"), j, param) {
            snprintf(want, sizeof(want), "| %s | %s | %s |", json_string_value(at(param, "name")),
                     json_string_value(at(param, "type")),
                     json_is_true(at(param, "required")) ? "yes" : "no");
            if (!strstr(text, want) || !strstr(text, json_string_value(at(param, "help"))))
                fail_msg("docs/jsonrpc.md does not have: %s", want);
        }
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_shutdown),
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
        cmocka_unit_test(test_ping),
        cmocka_unit_test(test_documented),
        cmocka_unit_test(test_net_del),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
