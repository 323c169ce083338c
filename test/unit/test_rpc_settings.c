/* SPDX-License-Identifier: BSD-3-Clause */
/* Each parameter of a method that sets settings reaches the running node. The table of methods is
 * the list; docs/testing.md "Settings" names the test of what each setting does then. */
#include "test/unit/rpc_test.h"

#include "config/settings.h"
#include "lib/lnet/peer/peers.h"

#define PEER "10.0.0.77@tcp"

/* Methods that set nothing of the node, or any setting by its name. */
static const char *const others[] = {"log_set", "tamper_set", "tunables_set"};

static struct lnet_ni *ni_of(const char *text)
{
    struct lnet_nid nid;
    struct lnet_ni *ni;

    assert_int_equal(nid_parse(text, &nid), 0);
    ni = lnet_ni_find(node, &nid);
    assert_non_null(ni);
    return ni;
}

static struct peer_ni *peer_ni(void)
{
    struct lnet_nid nid;

    assert_int_equal(nid_parse(PEER, &nid), 0);
    return peer_table_find_ni(node->peers, &nid);
}

static long pool(enum lnet_pool pool)
{
    struct lnet_pool_stats s;

    lnet_pool_stats_get(node, 0, pool, &s);
    return s.total;
}

#define VALUES                                                                                     \
    VALUE(routing, lnet_routing_get(node) == LNET_ROUTING_ON)                                      \
    VALUE(tiny, pool(LNET_POOL_TINY))                                                              \
    VALUE(small, pool(LNET_POOL_SMALL))                                                            \
    VALUE(large, pool(LNET_POOL_LARGE))                                                            \
    VALUE(egress_share, node->egress_share)                                                        \
    VALUE(buffer_wait, node->buffer_wait)                                                          \
    VALUE(max_interfaces, node->timing.max_interfaces)                                             \
    VALUE(discovery, !node->no_discovery)                                                          \
    VALUE(drop_asym_route, node->timing.rules.drop_asym_route)                                     \
    VALUE(check_interval, node->timing.check_interval)                                             \
    VALUE(ping_timeout, node->timing.ping_timeout)                                                 \
    VALUE(retry_count, node->health.retry_count)                                                   \
    VALUE(transaction_timeout, node->health.transaction_timeout)                                   \
    VALUE(sensitivity, node->health.sensitivity)                                                   \
    VALUE(response_tracking, node->health.response_tracking)                                       \
    VALUE(recovery_limit, node->health.recovery_limit)                                             \
    VALUE(max_interval, node->health.max_interval)                                                 \
    VALUE(lnd_timeout, ni_of("10.0.0.2@tcp")->lnd_tun.timeout)                                     \
    VALUE(conns_per_peer, ni_of("10.0.0.2@tcp")->lnd_tun.conns_per_peer)                           \
    VALUE(ni_health, ni_of("10.0.0.2@tcp")->health)                                                \
    VALUE(peer_health, peer_ni()->health)                                                          \
    VALUE(peer_state, peer_ni()->net->peer->state &PEER_NO_DISCOVERY)

#define VALUE(name, value)                                                                         \
    static long name##_value(void)                                                                 \
    {                                                                                              \
        return (long)(value);                                                                      \
    }
VALUES
#undef VALUE

static const struct row {
    const char *method, *param;
    long (*value)(void); /* in the node; NULL: the setting is kept without effect */
    long set;
    const char *with; /* further parameters */
} rows[] = {
    {"buffers_set", "tiny", tiny_value, 17, ""},
    {"buffers_set", "small", small_value, 5, ""},
    {"buffers_set", "large", large_value, LARGE_MOST, ""},
    {"admission_set", "egress_share", egress_share_value, 60, ""},
    {"admission_set", "buffer_wait", buffer_wait_value, 3, ""},
    {"global_set", "numa_range", NULL, 1, ""},
    {"global_set", "max_interfaces", max_interfaces_value, 33, ""},
    {"global_set", "discovery", discovery_value, 0, ""},
    {"global_set", "drop_asym_route", drop_asym_route_value, 1, ""},
    {"global_set", "retry_count", retry_count_value, 1, ""},
    {"global_set", "transaction_timeout", transaction_timeout_value, 77, ""},
    {"global_set", "health_sensitivity", sensitivity_value, 50, ""},
    {"global_set", "recovery_interval", NULL, 5, ""},
    {"global_set", "router_sensitivity", NULL, 90, ""},
    {"global_set", "response_tracking", response_tracking_value, 1, ""},
    {"global_set", "recovery_limit", recovery_limit_value, 9, ""},
    {"global_set", "max_recovery_ping_interval", max_interval_value, 600, ""},
    {"global_set", "alive_router_check_interval", check_interval_value, 30, ""},
    {"global_set", "router_ping_timeout", ping_timeout_value, 20, ""},
    {"net_set", "lnd_timeout", lnd_timeout_value, 20, "\"net\":\"tcp\","},
    {"net_set", "conns_per_peer", conns_per_peer_value, 2, "\"nid\":\"10.0.0.2@tcp\","},
    {"net_set", "health", ni_health_value, 900, "\"all\":true,"},
    {"peer_set", "health", peer_health_value, 400, "\"nid\":\"" PEER "\","},
    {"peer_set", "state", peer_state_value, PEER_NO_DISCOVERY, "\"nid\":\"" PEER "\","},
    {"routing_set", "enable", routing_value, 0, ""},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void check(const struct row *r)
{
    struct cfg_setting setting;
    char params[128], path[64];
    long now = r->value ? r->value() : 0;

    snprintf(path, sizeof(path), "global.%s", r->param);
    if (strcmp(r->method, "global_set") == 0) {
        assert_true(cfg_setting_find(path, &setting));
        assert_int_equal(setting.kept, !r->value);
    }
    if (r->value && now == r->set)
        fail_msg("%s %s is %ld before it is set", r->method, r->param, now);
    snprintf(params, sizeof(params), "{%s\"%s\":%ld}", r->with, r->param, r->set);
    result(r->method, params);
    // The node's home hears of the health of a peer NI once more, soon after.
    if (r->value)
        RUN_UNTIL(r->value() == r->set);
}

static void test_reach_the_node(void **state)
{
    result("peer_add", "{\"prim_nid\":\"" PEER "\"}");
    for (unsigned i = 0; i < ROWS; i++)
        check(&rows[i]);
}

/* The parameters that say which object is meant. */
static bool selects(const char *param)
{
    return strcmp(param, "nid") == 0 || strcmp(param, "net") == 0 || strcmp(param, "all") == 0;
}

static bool is_other(const char *method)
{
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(method, others[i]) == 0)
            return true;
    return false;
}

static bool has_row(const char *method, const char *param)
{
    for (unsigned i = 0; i < ROWS; i++)
        if (strcmp(rows[i].method, method) == 0 && strcmp(rows[i].param, param) == 0)
            return true;
    return false;
}

static void test_each_has_a_row(void **state)
{
    unsigned n = 0;

    for (const struct jrpc_method *m = rpc_method_table; m->name; m++) {
        const char *tail = strrchr(m->name, '_');

        if (!tail || strcmp(tail, "_set") != 0 || is_other(m->name))
            continue;
        for (const struct jrpc_param *p = m->params; p->name; p++, n++) {
            if (selects(p->name))
                n--;
            else if (!has_row(m->name, p->name))
                fail_msg("%s %s: no row says where the node has it", m->name, p->name);
        }
    }
    assert_int_equal(n, ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_has_a_row),
        cmocka_unit_test(test_reach_the_node),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
