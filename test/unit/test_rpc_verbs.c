/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_get, and NIs of o2ib nets that the node runs without: over a driver of o2ib that has a
 * device or has none, as a test wants it. */
#include "lib/base/err.h"
#include "test/unit/rpc_test.h"

#include <arpa/inet.h>

#include "control/absent.h"
#include "lib/lnd_eth/socklnd/sock_drops.h"
#include "lib/lnd_verbs/ib_drops.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "test/drops_test.h"
#include "test/lnds_test.h"
#include "test/unit/rpc_check.h"

/* ---- the driver ---- */

static bool no_device, has_memory;
static unsigned conns_now; /* of each NI */
static enum ibv_port_state port_now = IBV_PORT_ACTIVE;

static int ib_init(struct lnet_ni *ni, struct err *err)
{
    if (no_device) {
        return err_set(err, -ENODEV, "this host has no RDMA device");
    }
    ni->tun = (struct lnet_tunables){180, 8, 0, 256};
    ni->lnd_tun = LND_TUNABLES_DEFAULT;
    ni->lnd_tun.conns_per_peer = 1;
    ni->lnd_tun.timeout = 50;
    *own_tunable(&ni->lnd_tun, "peercredits_hiw") = 4;
    *own_tunable(&ni->lnd_tun, "concurrent_sends") = 8;
    return 0;
}

void lnd_verbs_info(const struct lnet_ni *ni, struct rdma_info *out)
{
    *out = (struct rdma_info){.device = "rxe0",
                              .transport = "InfiniBand",
                              .link_layer = "Ethernet",
                              .firmware = "1.2",
                              .vendor = 0xffffff,
                              .port = 1,
                              .state = port_now,
                              .pkey = 0xffff,
                              .gid_index = 1,
                              .mtu = 1024,
                              .speed = 2500,
                              .max_qp_wr = 65536,
                              .max_mr_size = UINT64_MAX};
    inet_pton(AF_INET6, "::ffff:10.2.0.1", out->gid.raw);
}

void lnd_verbs_counters(const struct lnet_ni *ni, struct verbs_counters *out)
{
    *out = (struct verbs_counters){.conns = 3, .bytes_in = 1ull << 40, .requests = 77};
}

struct gathering {
    struct reactor_task task;
    unsigned max;
    void (*done)(void *arg, const void *rows);
    void *arg;
};

static void gathered(struct reactor_task *task)
{
    struct gathering *g = (struct gathering *)task;
    struct verbs_conn_row rows[8] = {0};
    struct verbs_peer_row peers[2] = {{.state = "down",
                                       .depth_max = 7,
                                       .again_us = 2500000,
                                       .failed = IB_DROP(DIAL_FAILED),
                                       .why = {"connecting", "nobody listens there", 8},
                                       .failed_age_us = 1500000},
                                      {.state = "up", .conns = 2}};
    struct verbs_rows all;
    unsigned n = conns_now < g->max ? conns_now : g->max;

    assert_true(n <= 8);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(nid_parse("10.2.0.9@o2ib", &rows[i].peer), 0);
        peers[i % 2].peer = rows[i].peer;
        rows[i].state = "up";
        rows[i].active = i == 0;
        rows[i].depth = 300 + i; /* more than a byte holds */
        rows[i].bytes_out = 5;
    }
    all = (struct verbs_rows){rows, peers, n, conns_now, n > 2 ? 2 : n, conns_now};
    g->done(g->arg, &all);
    free(g);
}

int lnd_verbs_conns(struct lnet_ni *ni, unsigned max, void (*done)(void *arg, const void *rows),
                    void *arg)
{
    struct gathering *g = calloc(1, sizeof(*g));

    g->task.fn = gathered;
    g->max = max;
    g->done = done;
    g->arg = arg;
    reactor_post(reactor_control(env), &g->task);
    return 0;
}

bool lnd_verbs_provider(const struct lnd_verbs *lv, struct rdma_counters *out)
{
    *out = (struct rdma_counters){.registered = 1u << 20};
    return has_memory;
}

static struct lnd_ops ib;

/* ---- around the tests: a document with an o2ib NI and a route through it ---- */

static struct lnet_ni_conf absent_conf(void)
{
    return cfg_running_get(control.running)->ni[0].conf;
}

#define O2IB_NI                                                                                    \
    "{nid: 10.2.0.1@o2ib, lnd tunables: {peercredits_hiw: 4, map_on_demand: 1, "                   \
    "concurrent_sends: 8, fmr_pool_size: 512, fmr_flush_trigger: 384, fmr_cache: 1, ntx: 512}}"
#define ROUTE "route: [{net: o2ib7, gateway: 10.2.0.9@o2ib}]\n"
#define DOCUMENT(o2ib_nis, route)                                                                  \
    "net: [{net type: o2ib, local NI(s): [" o2ib_nis "]}, "                                        \
    "{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp, interfaces: {0: eth0}}, "                   \
    "{nid: 10.0.0.2@tcp, interfaces: {0: eth0}}]}, "                                               \
    "{net type: tcp1, local NI(s): [{nid: 10.1.0.1@tcp1}]}]\n" route                               \
    "buffers: {tiny: 16, small: 8, large: 2}\n"                                                    \
    "millrace: {reactors: 1, max_peers: 64}\n"

static int begin(void **state)
{
    struct err why = {0};
    static const char text[] = DOCUMENT(O2IB_NI, ROUTE);
    struct cfg_report report;
    struct lnet_ni_conf conf;
    struct cfg *cfg;

    assert_int_equal(cfg_parse("document", text, strlen(text), &cfg, &report), 0);
    cfg_report_free(&report);
    cfg_running_free(control.running);
    control.running = cfg_running_new(cfg, NULL);
    conf = absent_conf();
    err_text(&why, "this host has no RDMA device");
    no_device = true;
    assert_true(control_absent_may(conf.net, -ENODEV));
    assert_int_equal(control_absent_add(&control, &conf, &why), 0);
    assert_true(control_absent_net(&control, conf.net));
    control_apply_start(&control);
    return 0;
}

/* The node is left without o2ib. */
static int end(void **state)
{
    call("net_del", "{\"net\":\"o2ib\"}");
    call("net_del", "{\"net\":\"o2ib1\"}");
    call("route_del", "{\"net\":\"o2ib9\",\"gateway\":\"10.0.0.9@tcp\"}");
    control_absent_clear(&control);
    has_memory = false;
    return 0;
}

static int begin_all(void **state)
{
    setup(state);
    ib = fake;
    ib.name = "o2ib";
    ib.type = LNET_LND_O2IB;
    ib.ni_init = ib_init;
    ib.show = &lnd_verbs_show;
    return lnet_lnd_register(node, &ib, NULL);
}

static json_t *checked(const char *method, const char *params)
{
    json_t *r = result(method, params);
    const struct jrpc_method *m;
    const char *wrong;

    for (m = rpc_method_table; strcmp(m->name, method) != 0; m++)
        ;
    wrong = rpc_check_result(m, r);
    if (wrong)
        fail_msg("%s: %s: %s", method, wrong, json_dumps(r, 0));
    return r;
}

static unsigned routes(void)
{
    return (unsigned)json_array_size(at(checked("route_get", ""), "route"));
}

/* ---- an NI without a device ---- */

static void test_which(void **state)
{
    lnet_net_t o2ib = LNET_NET(LNET_LND_O2IB, 3), tcp = LNET_NET(LNET_LND_SOCK, 0);

    assert_true(control_absent_may(o2ib, -EADDRNOTAVAIL));
    assert_false(control_absent_may(o2ib, -EINVAL));
    assert_false(control_absent_may(o2ib, 0));
    assert_true(control_absent_may(tcp, -ENODEV));
    assert_false(control_absent_may(tcp, -EADDRINUSE));
    assert_false(control_absent_net(&control, tcp));
}

/* `lnd tunables` as test/golden/outputs/C-vm1.txt.xz has them. */
static void test_shown(void **state)
{
    json_t *nets = at(checked("net_get", "[\"o2ib\"]"), "net"), *tun, *r;
    size_t n;

    assert_int_equal(json_array_size(nets), 1);
    IS(nets, "0/local NI(s)/0/nid", "10.2.0.1@o2ib");
    IS(nets, "0/local NI(s)/0/status", "down");
    IS(nets, "0/local NI(s)/0/reason", "this host has no RDMA device");
    assert_int_equal(NUMBER(nets, "0/local NI(s)/0/health stats/fatal_error"), 1);
    tun = at(nets, "0/local NI(s)/0/lnd tunables");
    is_in_order(tun, "peercredits_hiw,concurrent_sends,map_on_demand,fmr_pool_size,"
                     "fmr_flush_trigger,fmr_cache,ntx,conns_per_peer,timeout,tos");
    assert_true(json_is_true(at(tun, "map_on_demand")));
    assert_int_equal(NUMBER(tun, "ntx"), 512);
    r = checked("verbs_get", "");
    assert_int_equal(json_array_size(at(r, "verbs")), 0);
    IS(r, "absent/0/net", "o2ib");
    IS(r, "absent/0/nid", "10.2.0.1@o2ib");
    IS(r, "absent/0/reason", "this host has no RDMA device");
    assert_null(json_object_get(r, "memory"));
    assert_int_equal(json_array_size(at(checked("verbs_get", "{\"net\":\"o2ib1\"}"), "absent")), 0);
    checked("verbs_get", "{\"nid\":\"10.2.0.1@o2ib\"}");
    fails("verbs_get", "{\"nid\":\"10.2.0.2@o2ib\"}", -ENOENT, "nid");
    fails("verbs_get", "{\"nid\":\"10.0.0.1@tcp\"}", -ENOENT, "nid");
    r = at(checked("events_get", ""), "events");
    for (n = json_array_size(r);
         n > 0 && strcmp(TEXT(json_array_get(r, n - 1), "type"), "ni_absent") != 0;)
        n--;
    assert_true(n > 0);
    IS(json_array_get(r, n - 1), "nid", "10.2.0.1@o2ib");
    assert_non_null(
        strstr(TEXT(checked("config_get", "{\"as\":\"yaml\"}"), "yaml"), "10.2.0.1@o2ib"));
    assert_int_equal(routes(), 0);
}

/* What is changed of it changes in the document, and holds when it comes. */
static void test_changed(void **state)
{
    is_true("route_add", "{\"net\":\"o2ib8\",\"gateway\":\"10.2.0.8@o2ib\"}");
    is_true("route_add", "{\"net\":\"o2ib9\",\"gateway\":\"10.0.0.9@tcp\"}");
    assert_int_equal(routes(), 1);
    is_true("route_del", "{\"net\":\"o2ib7\",\"gateway\":\"10.2.0.9@o2ib\"}");
    is_true("net_set", "{\"net\":\"o2ib\",\"lnd_timeout\":30}");
    no_device = false;
    /* Another on its net: the routes that were left out can be now. */
    is_true("net_add", "{\"net\":\"o2ib\",\"nid\":\"10.2.0.2@o2ib\"}");
    assert_int_equal(routes(), 2);
    is_true("net_del", "{\"net\":\"o2ib\"}");
    assert_int_equal(routes(), 1);
    fails("net_get", "[\"o2ib\"]", -ESRCH, "net");
}

static void test_removed(void **state)
{
    is_true("net_del", "{\"net\":\"o2ib\"}");
    assert_int_equal(json_array_size(at(checked("verbs_get", ""), "absent")), 0);
    assert_int_equal(at(checked("config_get", ""), "revision") != NULL, 1);
    fails("net_add", "{\"net\":\"o2ib\",\"nid\":\"10.2.0.1@o2ib\"}", -ENODEV, NULL);
    assert_non_null(strstr(TEXT(answer, "error/message"), "this host has no RDMA device"));
    fails("net_get", "[\"o2ib\"]", -ESRCH, "net");
    assert_int_equal(routes(), 0);
}

/* Removing it is taken back: it is absent as before, and so are its routes. */
static void test_taken_back(void **state)
{
    json_t *r;

    result("config_apply", "{\"text\":\"net: [{net type: o2ib}]\\nroute: [{net: o2ib7, gateway: "
                           "10.2.0.9@o2ib}]\",\"mode\":\"delete\",\"confirm_s\":60}");
    assert_int_equal(json_array_size(at(checked("verbs_get", ""), "absent")), 0);
    result("config_rollback", "");
    r = checked("verbs_get", "");
    IS(r, "absent/0/nid", "10.2.0.1@o2ib");
    assert_int_equal(routes(), 0);
    no_device = false;
    is_true("net_add", "{\"net\":\"o2ib\",\"nid\":\"10.2.0.2@o2ib\"}");
    assert_int_equal(routes(), 1);
}

/* One change brings the first NI of the net and deletes a route that was left out. */
static void test_route_deleted_with_the_first_ni(void **state)
{
    json_t *params = json_pack("{ss,ss}", "mode", "replace", "text",
                               DOCUMENT(O2IB_NI ", {nid: 10.2.0.2@o2ib}", ""));
    char *text = json_dumps(params, 0);

    no_device = false;
    result("config_apply", text);
    IS(checked("verbs_get", ""), "absent/0/nid", "10.2.0.1@o2ib");
    IS(at(checked("net_get", "[\"o2ib\"]"), "net"), "0/local NI(s)/0/nid", "10.2.0.2@o2ib");
    assert_int_equal(routes(), 0);
    free(text);
    json_decref(params);
}

/* ---- an NI with one ---- */

static void test_device(void **state)
{
    json_t *r, *ni;

    no_device = false;
    is_true("net_del", "{\"net\":\"o2ib\"}");
    is_true("net_add", "{\"net\":\"o2ib\",\"nid\":\"10.2.0.1@o2ib\"}");
    ni = at(checked("net_get", "[\"o2ib\"]"), "net/0/local NI(s)/0");
    IS(ni, "status", "up");
    assert_null(json_object_get(ni, "reason"));
    assert_int_equal(NUMBER(ni, "lnd tunables/peercredits_hiw"), 4);
    assert_int_equal(NUMBER(ni, "lnd tunables/concurrent_sends"), 8);
    assert_null(json_object_get(at(checked("net_get", "[\"tcp\"]"), "net/0/local NI(s)/0/lnd "
                                                                    "tunables"),
                                "concurrent_sends"));
    has_memory = true;
    r = checked("verbs_get", "");
    assert_int_equal(json_array_size(at(r, "verbs")), 1);
    IS(r, "verbs/0/nid", "10.2.0.1@o2ib");
    IS(r, "verbs/0/device", "rxe0");
    IS(r, "verbs/0/state", "active");
    IS(r, "verbs/0/gid", "::ffff:10.2.0.1");
    assert_int_equal(NUMBER(r, "verbs/0/pkey"), 0xffff);
    assert_int_equal(NUMBER(r, "verbs/0/limits/max_qp_wr"), 65536);
    assert_true(NUMBER(r, "verbs/0/limits/max_mr_size") == INT64_MAX);
    assert_true(NUMBER(r, "verbs/0/counters/bytes_in") == 1ll << 40);
    assert_int_equal(NUMBER(r, "verbs/0/counters/requests"), 77);
    assert_null(json_object_get(at(r, "verbs/0"), "connections"));
    assert_int_equal(NUMBER(r, "memory/registered"), 1 << 20);
    port_now = IBV_PORT_NOP;
    IS(checked("verbs_get", ""), "verbs/0/state", "removed");
    port_now = IBV_PORT_ACTIVE;
}

static void test_counters(void **state)
{
    no_device = false;
    is_true("net_add", "{\"net\":\"o2ib\",\"nid\":\"10.2.0.2@o2ib\"}");
    call("counters_capture", "{\"match\":\"verbs.*.requests\",\"interval_ms\":10}");
    IS(answer, "result/counters/0/name", "verbs.10.2.0.2@o2ib.requests");
    assert_int_equal(NUMBER(answer, "result/counters/0/after"), 77);
}

static void test_conns(void **state)
{
    json_t *r;

    no_device = false;
    is_true("net_add", "{\"net\":\"o2ib\",\"nid\":\"10.2.0.2@o2ib\"}");
    is_true("net_add", "{\"net\":\"o2ib1\",\"nid\":\"10.3.0.1@o2ib1\"}");
    conns_now = 3;
    r = checked("verbs_get", "{\"conns\":true,\"max\":2}");
    assert_int_equal(json_array_size(at(r, "verbs")), 2);
    IS(r, "verbs/1/nid", "10.3.0.1@o2ib1");
    assert_int_equal(NUMBER(r, "verbs/1/total"), 3);
    assert_int_equal(json_array_size(at(r, "verbs/1/connections")), 2);
    IS(r, "verbs/0/connections/0/peer", "10.2.0.9@o2ib");
    IS(r, "verbs/0/connections/0/state", "up");
    assert_true(json_is_true(at(r, "verbs/0/connections/0/active")));
    assert_int_equal(NUMBER(r, "verbs/0/connections/1/depth"), 301);
    assert_int_equal(NUMBER(r, "verbs/0/connections/1/bytes_out"), 5);
    assert_int_equal(NUMBER(r, "verbs/0/peers_total"), 3);
    IS(r, "verbs/0/peers/0/peer", "10.2.0.9@o2ib");
    IS(r, "verbs/0/peers/0/state", "down");
    assert_int_equal(NUMBER(r, "verbs/0/peers/0/depth_max"), 7);
    assert_int_equal(NUMBER(r, "verbs/0/peers/0/again_us"), 2500000);
    IS(r, "verbs/0/peers/0/failure/drop", "o2ib_dial_failed");
    IS(r, "verbs/0/peers/0/failure/stage", "connecting");
    IS(r, "verbs/0/peers/0/failure/why", "nobody listens there");
    assert_int_equal(NUMBER(r, "verbs/0/peers/0/failure/code"), 8);
    assert_int_equal(NUMBER(r, "verbs/0/peers/0/failure/age_ms"), 1500);
    assert_null(json_object_get(at(r, "verbs/0/peers/1"), "failure"));
    r = checked("verbs_get", "{\"net\":\"o2ib1\",\"conns\":true}");
    assert_int_equal(json_array_size(at(r, "verbs")), 1);
    assert_int_equal(json_array_size(at(r, "verbs/0/connections")), 3);
    ib.show = NULL; /* an LND that shows nothing */
    assert_int_equal(json_array_size(at(checked("verbs_get", ""), "verbs")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_which, begin, end),
        cmocka_unit_test_setup_teardown(test_shown, begin, end),
        cmocka_unit_test_setup_teardown(test_changed, begin, end),
        cmocka_unit_test_setup_teardown(test_removed, begin, end),
        cmocka_unit_test_setup_teardown(test_taken_back, begin, end),
        cmocka_unit_test_setup_teardown(test_route_deleted_with_the_first_ni, begin, end),
        cmocka_unit_test_setup_teardown(test_device, begin, end),
        cmocka_unit_test_setup_teardown(test_counters, begin, end),
        cmocka_unit_test_setup_teardown(test_conns, begin, end),
    };

    return cmocka_run_group_tests(tests, begin_all, teardown);
}
