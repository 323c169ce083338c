/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An LND that is only registered (loopback.c) works as the others do: its settings in a
 * configuration, its NIs and drop reasons in answers, messages between nodes and through a router.
 */
#include "test/unit/rpc_test.h"

#include "config/save.h"
#include "control/diff.h"
#include "test/lnds_test.h"
#include "test/unit/loopback.h"

#define DOCUMENT                                                                                   \
    "net: [{net type: efa, local NI(s): [{nid: 10.9.0.1@efa, lnd tunables: {loop_batch: %d, "      \
    "loop_colour: 3}}]}]\nmillrace: {loop: {limit: %d}}\n"

static void __attribute__((constructor)) register_loop(void)
{
    if (!lnd_type_register(&loop_type))
        abort();
}

static struct cfg *parse(int batch, int limit, struct cfg_report *report)
{
    struct cfg *cfg = NULL;
    char text[400];

    snprintf(text, sizeof(text), DOCUMENT, batch, limit);
    cfg_parse("f", text, strlen(text), &cfg, report);
    return cfg;
}

/* ---- configuration ---- */

static void refused(int batch, int limit, const char *key)
{
    struct cfg_report report;
    bool named = false;

    assert_null(parse(batch, limit, &report));
    for (unsigned i = 0; i < report.count; i++)
        named |= report.message[i].error && strstr(report.message[i].text, key);
    assert_true(named);
    cfg_report_free(&report);
}

static void test_config(void **state)
{
    struct cfg_report report;
    struct cfg *cfg = parse(4, 7, &report);
    struct cfg_setting setting;
    char *out = NULL;
    enum cfg_saved how;
    struct err err = {0};

    assert_non_null(cfg);
    assert_non_null(strstr(report.message[0].text, "not acted on yet: loop_colour"));
    assert_int_equal(*own_tunable(&cfg->ni[0].conf.lnd_tun, "loop_batch"), 4);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "loop", "limit"), 7);
    assert_true(cfg_setting_find("millrace.loop.limit", &setting));
    assert_int_equal(setting.max, 1000);
    assert_int_equal(cfg_save_text("f", NULL, 0, cfg, &out, &how, &err), 0);
    assert_non_null(strstr(out, "loop_batch: 4"));
    assert_non_null(strstr(out, "loop_colour: 3"));
    assert_non_null(strstr(out, "limit: 7"));
    free(out);
    cfg_report_free(&report);
    cfg_free(cfg);
    refused(65, 7, "loop_batch");
    refused(4, 0, "limit");
}

static void test_diff(void **state)
{
    struct cfg_report report;
    struct cfg *a = parse(4, 7, &report), *b;
    struct cfg_diff diff;

    cfg_report_free(&report);
    b = parse(5, 7, &report);
    cfg_report_free(&report);
    cfg_diff_make(a, b, &diff);
    assert_int_equal(diff.count, 1);
    assert_non_null(strstr(diff.change[0].key, "lnd tunables.loop_batch"));
    assert_int_equal(diff.change[0].applies, CFG_NI_RESTART);
    cfg_diff_free(&diff);
    cfg_free(a);
    cfg_free(b);
}

/* ---- a node ---- */

static void *loop;
static struct lnet_node *far[2];

static int begin(void **state)
{
    setup(state);
    loop = lnd_create_default(&loop_code);
    assert_non_null(loop);
    return lnet_lnd_register(node, loop_code.ops, loop);
}

static int end(void **state)
{
    for (unsigned i = 0; i < 2; i++)
        if (far[i]) {
            stopped = false;
            lnet_node_stop(far[i], 0, note_stopped, NULL);
            RUN_UNTIL(stopped);
            lnet_node_destroy(far[i]);
        }
    stopped = false;
    teardown(state);
    loop_code.destroy(loop);
    return 0;
}

static void test_shown(void **state)
{
    json_t *ni, *row;
    size_t i;
    bool found = false;

    is_true("net_add", "{\"net\":\"efa\",\"nid\":\"10.9.0.1@efa\",\"lnd_timeout\":20}");
    ni = at(result("net_get", "{\"net\":\"efa\"}"), "net/0/local NI(s)/0");
    assert_string_equal(json_string_value(at(ni, "nid")), "10.9.0.1@efa");
    assert_int_equal(json_integer_value(at(ni, "lnd tunables/loop_batch")), 32);
    assert_int_equal(json_integer_value(at(ni, "lnd tunables/timeout")), 20);
    assert_null(json_object_get(at(ni, "lnd tunables"), "loop_colour"));
    json_array_foreach(at(result("drops_get", ""), "drops"), i, row)
        found |= strcmp(json_string_value(at(row, "name")), "loop_no_ni") == 0;
    assert_true(found);
    row = at(result("counters_capture", "{\"match\":\"loop.*\",\"interval_ms\":10}"), "counters");
    assert_int_equal(json_array_size(row), 2);
    assert_string_equal(json_string_value(at(row, "0/name")), "loop.10.9.0.1@efa.received");
    is_true("net_del", "{\"net\":\"efa\"}");
}

/* ---- messages ---- */

static void far_node(unsigned i, const char *nid, const char *net, const char *gateway)
{
    struct lnet_node_opts opts = {.env = env,
                                  .tiny = 16 * nreactors,
                                  .small = 8 * nreactors,
                                  .large = nreactors,
                                  .max_peers = 64,
                                  .local_msgs = 16};
    struct lnet_ni_conf ni = {.tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};
    struct lnet_route_conf route = {.hops = LNET_HOPS_UNDEFINED};
    struct err err = {0};

    if (lnet_node_create(&opts, &far[i], &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(lnet_lnd_register(far[i], loop_code.ops, loop), 0);
    assert_int_equal(nid_parse(nid, &ni.nid), 0);
    ni.net = nid_net(&ni.nid);
    assert_int_equal(lnet_ni_add(far[i], &ni, NULL, &err), 0);
    assert_int_equal(net_parse(net, &route.net), 0);
    assert_int_equal(nid_parse(gateway, &route.gateway), 0);
    assert_int_equal(lnet_route_add(far[i], &route, &err), 0);
    if (lnet_node_start(far[i], &err) != 0)
        fail_msg("%s", err.message);
}

struct pong {
    bool ended;
    int status;
    unsigned count;
};

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    *(struct pong *)arg = (struct pong){true, status, status == 0 ? info->count : 0};
}

static struct pong ping_for(struct lnet_node *from, const char *dest, unsigned ms)
{
    struct pong p = {0};
    struct lnet_nid nid;

    assert_int_equal(nid_parse(dest, &nid), 0);
    assert_int_equal(lnet_ping(from, &nid, NULL, ms, on_pong, &p), 0);
    RUN_UNTIL(p.ended);
    return p;
}

static struct pong ping(struct lnet_node *from, const char *dest)
{
    return ping_for(from, dest, 5000);
}

static bool answers(struct lnet_node *from, const char *dest)
{
    return ping_for(from, dest, 200).status == 0;
}

static void make_nodes(void)
{
    is_true("net_add", "{\"net\":\"efa\",\"nid\":\"10.9.0.1@efa\"}");
    is_true("net_add", "{\"net\":\"efa1\",\"nid\":\"10.9.1.1@efa1\"}");
    far_node(0, "10.9.0.2@efa", "efa1", "10.9.0.1@efa");
    far_node(1, "10.9.1.2@efa1", "efa", "10.9.1.1@efa1");
}

/* A ping between two nodes, and pings through the router between two nets. */
static void test_ping(void **state)
{
    make_nodes();
    assert_int_equal(ping(node, "10.9.0.2@efa").count, 1);
    assert_int_equal(ping(far[0], "10.9.0.1@efa").status, 0);
    assert_int_equal(ping(far[0], "10.9.1.2@efa1").status, 0);
    assert_int_equal(ping(far[1], "10.9.0.2@efa").status, 0);
    assert_false(answers(far[0], "10.9.0.3@efa"));
}

/* ---- payload through the router ---- */

#define ON_HOME(statement)                                                                         \
    do {                                                                                           \
        reactor_bind(reactor_at(env, 0));                                                          \
        statement;                                                                                 \
        reactor_bind(reactor_control(env));                                                        \
    } while (0)

static struct {
    unsigned put, acked, sent, unlinked;
    int status;
} seen;

static void on_event(struct lnet_md *md, const struct lnet_event *event)
{
    seen.put += event->type == LNET_EVENT_PUT;
    seen.acked += event->type == LNET_EVENT_ACK;
    seen.sent += event->type == LNET_EVENT_SEND;
    seen.unlinked += event->unlinked;
    seen.status = event->status ? event->status : seen.status;
}

static uint8_t source[LNET_MAX_PAYLOAD], target[LNET_MAX_PAYLOAD];
static struct lnet_eq eq = {.fn = on_event};

static void put(uint32_t len)
{
    struct mem_seg from = {.addr = source, .len = len, .region = MEM_REGION_NONE};
    struct mem_seg to = {.addr = target, .len = sizeof(target), .region = MEM_REGION_NONE};
    struct lnet_md out = {.segs = &from, .nsegs = 1, .length = len, .threshold = 2, .eq = &eq};
    struct lnet_md in = {.segs = &to,
                         .nsegs = 1,
                         .length = sizeof(target),
                         .options = LNET_MD_OP_PUT | LNET_MD_TRUNCATE,
                         .threshold = 1,
                         .eq = &eq};
    struct lnet_me me = {.match_nid = LNET_NID_ANY,
                         .match_pid = UINT32_MAX,
                         .match_bits = len,
                         .portal = LNET_PORTAL_RPC};
    struct lnet_nid dest;
    int rc = 0;

    memset(&seen, 0, sizeof(seen));
    memset(target, 0, sizeof(target));
    for (uint32_t i = 0; i < len; i++)
        source[i] = (uint8_t)(i * 31 + len);
    assert_int_equal(nid_parse("10.9.1.2@efa1", &dest), 0);
    ON_HOME(rc = lnet_me_attach(far[1], &me, &in));
    assert_int_equal(rc, 0);
    ON_HOME(rc = lnet_md_bind(far[0], &out));
    assert_int_equal(rc, 0);
    ON_HOME(rc = lnet_put(&out, true, NULL, &dest, 12345, LNET_PORTAL_RPC, len, 0, 0));
    assert_int_equal(rc, 0);
    RUN_UNTIL(seen.unlinked == 2);
    assert_int_equal(seen.status, 0);
    assert_int_equal(seen.put + seen.acked + seen.sent, 3);
    assert_memory_equal(source, target, len);
}

/* Each size arrives whole, and all router buffers come back. */
static void test_forward(void **state)
{
    static const uint32_t sizes[] = {0, 1, 4095, 4096, 4097, 65536, LNET_MAX_PAYLOAD};
    struct lnet_pool_stats pool;
    uint64_t stat[LNET_STAT_COUNT];

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        put(sizes[i]);
    lnet_stats_get(node, stat);
    assert_true(stat[LNET_STAT_ROUTE_COUNT] >= 14); /* PUTs and ACKs */
    for (unsigned i = 0; i < LNET_POOLS * nreactors; i++) {
        lnet_pool_stats_get(node, i / LNET_POOLS, (enum lnet_pool)(i % LNET_POOLS), &pool);
        assert_int_equal(pool.free, pool.total);
    }
}

/* ---- the running node changes ---- */

/* An NI goes and comes while pings through it are under way: each ping ends, later ones arrive. */
static void test_live(void **state)
{
    struct pong p[8] = {{0}};
    struct lnet_nid nid;

    assert_int_equal(nid_parse("10.9.1.2@efa1", &nid), 0);
    for (unsigned round = 0; round < 4; round++) {
        memset(p, 0, sizeof(p));
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(lnet_ping(far[0], &nid, NULL, 200, on_pong, &p[i]), 0);
        is_true("net_del", "{\"net\":\"efa1\"}");
        for (unsigned i = 0; i < 8; i++)
            RUN_UNTIL(p[i].ended);
        assert_false(answers(far[0], "10.9.1.2@efa1"));
        assert_int_equal(ping(far[0], "10.9.0.1@efa").status, 0);
        is_true("net_add", "{\"net\":\"efa1\",\"nid\":\"10.9.1.1@efa1\"}");
        assert_int_equal(ping(far[0], "10.9.1.2@efa1").status, 0);
    }
}

/* The first argument is the number of reactors. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config), cmocka_unit_test(test_diff),    cmocka_unit_test(test_shown),
        cmocka_unit_test(test_ping),   cmocka_unit_test(test_forward), cmocka_unit_test(test_live),
    };

    nreactors = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    return cmocka_run_group_tests(tests, begin, end);
}
