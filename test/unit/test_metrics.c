/* SPDX-License-Identifier: BSD-3-Clause */
/* Results of methods as metrics: names, units, labels, types, limits, both formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/millrace/metrics.h"
#include "rpc/engine/rpc_table.h"

static const struct metric_row *row_of(const char *method, const char *prefix)
{
    for (const struct metric_row *r = metric_rows; r->method; r++)
        if (strcmp(r->method, method) == 0 && (!prefix || strcmp(r->prefix, prefix) == 0))
            return r;
    fail_msg("no row for %s", method);
    return NULL;
}

/* The page of one result, to be freed. */
static char *page_of(const struct metric_row *row, const char *json, bool openmetrics,
                     size_t beyond)
{
    struct metrics *m = metrics_new();
    json_t *result = json_loads(json, 0, NULL);
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);

    assert_non_null(result);
    assert_int_equal(metrics_add(m, row, result), beyond);
    metrics_write(m, openmetrics, to);
    fclose(to);
    metrics_free(m);
    json_decref(result);
    return text;
}

static void has(const struct metric_row *row, const char *json, const char *const *lines)
{
    char *text = page_of(row, json, false, 0);

    for (; *lines; lines++)
        if (!strstr(text, *lines))
            fail_msg("not there: %s\nin:\n%s", *lines, text);
    free(text);
}
#define HAS(row, json, ...) has(row, json, (const char *const[]){__VA_ARGS__, NULL})

static void test_drops(void **state)
{
    HAS(row_of("drops_get", NULL),
        "{\"drops\": [{\"name\": \"a\\\"b\\\\c\\nd\", \"kind\": \"message\", \"count\": "
        "9007199254740993, \"text\": \"t\", \"example\": {\"age_ms\": 7}}]}",
        "# TYPE millrace_drops_total counter\n",
        "millrace_drops_total{reason=\"a\\\"b\\\\c\\nd\",kind=\"message\"} 9007199254740992\n");
}

static void test_units(void **state)
{
    HAS(row_of("reactors_get", "reactor"),
        "{\"reactors\": [{\"reactor\": 1, \"cpt\": 0, \"sleep_us\": 1500000, \"longest_us\": 12.5,"
        "\"stages\": {\"poll\": 250000, \"rest\": 1}, \"capacity\": {\"busy\": 0.25},"
        "\"waited\": [{\"name\": \"ni_tx_credit\", \"none\": 4, \"total_us\": 2000000,"
        "\"times\": [{\"below_us\": 1, \"count\": 3}]}]}]}",
        "millrace_reactor_slept_seconds_total{reactor=\"1\",cpt=\"0\"} 1.5\n",
        "# TYPE millrace_reactor_longest_seconds gauge\n",
        "millrace_reactor_longest_seconds{reactor=\"1\",cpt=\"0\"} 1.25e-05\n",
        "millrace_reactor_stage_seconds_total{reactor=\"1\",cpt=\"0\",stage=\"poll\"} 0.25\n",
        "millrace_reactor_capacity_busy{reactor=\"1\",cpt=\"0\"} 0.25\n",
        "millrace_reactor_wait_seconds_total{reactor=\"1\",cpt=\"0\",resource=\"ni_tx_credit\"} 2\n");
    HAS(row_of("port_get", NULL),
        "{\"port\": [{\"name\": \"p0\", \"driver\": \"net_x\", \"link\": \"down\", \"speed\": 8,"
        "\"mtu\": 9000, \"interfaces\": [{\"name\": \"v7\", \"link\": \"up\"}],"
        "\"queues\": [{\"direction\": \"rx\", \"queue\": 2, \"bytes\": 77}]}]}",
        "millrace_port_up{port=\"p0\"} 0\n",
        "millrace_port_speed_bytes_per_second{port=\"p0\"} 1000000\n",
        "millrace_port_mtu_bytes{port=\"p0\"} 9000\n",
        "millrace_port_interface_up{port=\"p0\",interface=\"v7\"} 1\n",
        "millrace_port_queue_bytes_total{port=\"p0\",direction=\"rx\",queue=\"2\"} 77\n",
        "millrace_port_info{port=\"p0\",driver=\"net_x\"} 1\n");
}

static void test_health(void **state)
{
    const struct metric_row *ni = row_of("health_get", "ni");

    HAS(ni,
        "{\"ni\": [{\"net\": \"tcp\", \"nid\": \"10.0.0.1@tcp\", \"status\": \"up\", \"health\": 700,"
        "\"recovering\": true, \"ping_count\": 3, \"next_ping_ms\": 5, \"failures\": {"
        "\"local_dropped\": 4, \"local_timeout\": 5}}], \"peer_ni\": [{\"nid\": \"x@tcp\"}]}",
        "# TYPE millrace_ni_health gauge\nmillrace_ni_health{net=\"tcp\",nid=\"10.0.0.1@tcp\"} 700\n",
        "millrace_ni_recovering{net=\"tcp\",nid=\"10.0.0.1@tcp\"} 1\n",
        "# TYPE millrace_ni_failures_total counter\n",
        "millrace_ni_failures_total{net=\"tcp\",nid=\"10.0.0.1@tcp\",status=\"local_dropped\"} 4\n",
        "millrace_ni_failures_total{net=\"tcp\",nid=\"10.0.0.1@tcp\",status=\"local_timeout\"} 5\n");
    HAS(row_of("stats_get", NULL),
        "{\"resend_count\": 1, \"failed_resends\": 2, \"response_timeout_count\": 3}",
        "millrace_node_resend_count_total 1\n", "millrace_node_failed_resends_total 2\n",
        "millrace_node_response_timeout_count_total 3\n");
    HAS(row_of("drain_get", NULL),
        "{\"state\": \"late\", \"text\": \"t\", \"elapsed_s\": 91, \"limit_s\": 0, \"in_flight\": 7}",
        "millrace_drain_info{state=\"late\"} 1\n",
        "# TYPE millrace_drain_elapsed_seconds gauge\nmillrace_drain_elapsed_seconds 91\n",
        "millrace_drain_limit_seconds 0\n", "millrace_drain_in_flight 7\n");
}

/* Numbers of peer NIs are metrics, their rows are not: there may be as many as peers. */
static void test_health_sums(void **state)
{
    char *text =
        page_of(row_of("health_get", ""),
                "{\"nis\": {\"total\": 2, \"unhealthy\": 1, \"recovering\": 1}, \"peer_nis\": "
                "{\"unhealthy\": 9, \"recovering\": 8}, \"ni\": [{\"nid\": \"n@tcp\", \"health\": "
                "1}], \"peer_ni\": [{\"nid\": \"p@tcp\", \"health\": 2}]}",
                false, 0);

    assert_non_null(strstr(text, "# TYPE millrace_peer_nis_recovering gauge\n"
                                 "millrace_peer_nis_recovering 8\n"));
    assert_non_null(strstr(text, "millrace_peer_nis_unhealthy 9\n"));
    assert_non_null(strstr(text, "millrace_nis_unhealthy 1\n"));
    assert_non_null(strstr(text, "millrace_nis_recovering 1\n"));
    assert_null(strstr(text, "@tcp"));
    free(text);
}

/* A result of verbs_get as its table has it: a machine without an RDMA device has no row of its
 * own. */
static void test_verbs(void **state)
{
    HAS(row_of("verbs_get", "verbs"),
        "{\"verbs\": [{\"nid\": \"10.0.0.1@o2ib\", \"device\": \"mlx5_0\", \"port\": 1,"
        "\"transport\": \"InfiniBand\", \"state\": \"active\", \"mtu\": 4096, \"speed\": 100000,"
        "\"limits\": {\"max_qp\": 5}, \"counters\": {\"conns\": 3, \"dialled\": 2, \"bytes_in\": "
        "9}}]}",
        "millrace_verbs_up{nid=\"10.0.0.1@o2ib\"} 1\n",
        "# TYPE millrace_verbs_conns gauge\nmillrace_verbs_conns{nid=\"10.0.0.1@o2ib\"} 3\n",
        "millrace_verbs_dialled_total{nid=\"10.0.0.1@o2ib\"} 2\n",
        "millrace_verbs_in_bytes_total{nid=\"10.0.0.1@o2ib\"} 9\n",
        "millrace_verbs_info{nid=\"10.0.0.1@o2ib\",device=\"mlx5_0\",transport=\"InfiniBand\"} 1\n");
}

static void test_limit(void **state)
{
    struct metric_row row = metric_routes;
    char *text;

    row.limit = 1;
    text = page_of(&row,
                   "{\"route\": [{\"net\": \"tcp1\", \"gateway\": \"g\", \"state\": \"up\"},"
                   "{\"net\": \"tcp2\", \"gateway\": \"g\", \"state\": \"down\"},"
                   "{\"net\": \"tcp3\", \"gateway\": \"g\", \"state\": \"down\"}]}",
                   false, 2);
    assert_non_null(strstr(text, "millrace_route_up{net=\"tcp1\",gateway=\"g\"} 1\n"));
    assert_null(strstr(text, "tcp2"));
    free(text);
}

static void test_formats(void **state)
{
    const char *json = "{\"route_count\": 5, \"send_length\": 6, \"msgs_alloc\": 7}";
    char *text = page_of(row_of("stats_get", NULL), json, false, 0);

    assert_string_equal(text, "# HELP millrace_node_msgs_alloc messages in the node now\n"
                              "# TYPE millrace_node_msgs_alloc gauge\n"
                              "millrace_node_msgs_alloc 7\n"
                              "# HELP millrace_node_route_count_total messages forwarded\n"
                              "# TYPE millrace_node_route_count_total counter\n"
                              "millrace_node_route_count_total 5\n"
                              "# HELP lustre_send_bytes_total payload of messages sent\n"
                              "# TYPE lustre_send_bytes_total counter\n"
                              "lustre_send_bytes_total 6\n");
    free(text);
    text = page_of(row_of("stats_get", NULL), json, true, 0);
    assert_non_null(strstr(text, "# TYPE lustre_send_bytes counter\nlustre_send_bytes_total 6\n"));
    assert_non_null(strstr(text, "# EOF\n"));
    free(text);
}

/* A result of another version, or of another shape than the table says, is no danger. */
static void test_strange(void **state)
{
    static const char *const strange[] = {"{}",
                                          "[]",
                                          "7",
                                          "{\"drops\": 7}",
                                          "{\"drops\": [7, null, [], {}]}",
                                          "{\"drops\": [{\"name\": [], \"count\": \"x\"}]}",
                                          "{\"drops\": {\"name\": \"x\"}}"};
    char *big = malloc(8192), *text;

    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        json_t *result = json_loads(strange[i], JSON_DECODE_ANY, NULL);
        struct metrics *m = metrics_new();

        for (const struct metric_row *r = metric_rows; r->method; r++)
            metrics_add(m, r, result);
        json_decref(result);
        metrics_free(m);
    }
    memset(big, '"', 4000);
    snprintf(big, 8192, "{\"drops\": [{\"kind\": \"k\", \"count\": 1, \"name\": \"%0*d\"}]}", 4000,
             0);
    text = page_of(row_of("drops_get", NULL), big, false, 0);
    assert_non_null(strstr(text, "millrace_drops_total{kind=\"k\"} 1\n"));
    free(text);
    free(big);
}

/* Each row fits the table of methods: its method is there, and so is its list. */
static void test_rows(void **state)
{
    for (const struct metric_row *r = metric_rows; r->method; r++) {
        const struct jrpc_method *m = rpc_method_table;
        const struct jrpc_field *f;

        while (m->name && strcmp(m->name, r->method) != 0)
            m++;
        assert_non_null(m->name);
        assert_int_equal(m->role, JRPC_READ);
        for (f = m->fields; r->list && f->name && strcmp(f->name, r->list) != 0;)
            f++;
        assert_true(!r->list || f->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drops),       cmocka_unit_test(test_units),
        cmocka_unit_test(test_verbs),       cmocka_unit_test(test_limit),
        cmocka_unit_test(test_formats),     cmocka_unit_test(test_strange),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_health),
        cmocka_unit_test(test_health_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
