/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for ports: their rows are as the table of methods says, complete, and in pages. */
#include "test/unit/rpc_test.h"

#include "test/unit/fake_eth.h"
#include "test/unit/rpc_check.h"

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

static int begin(void **state)
{
    setup(state);
    eth_begin();
    control.inet = &eth.inet;
    control.tcp = &eth.tcp;
    return 0;
}

static int finish(void **state)
{
    eth_end();
    return teardown(state);
}

/* A node without ports answers all the same. */
static void test_none(void **state)
{
    control.inet = NULL;
    control.tcp = NULL;
    assert_int_equal(json_array_size(at(checked("port_get", ""), "port")), 0);
    assert_int_equal(json_array_size(at(checked("arp_get", ""), "arp")), 0);
    assert_int_equal(json_array_size(at(checked("tcp_get", ""), "tcp")), 0);
    assert_int_equal(json_array_size(at(checked("tcp_stats_get", ""), "reactors")), 0);
    assert_int_equal(json_array_size(at(checked("pkt_drops_get", ""), "drops")),
                     PKT_DROP_COUNT - 1);
    assert_int_equal(json_array_size(at(checked("tamper_get", ""), "tamper")), 0);
    assert_int_equal(json_array_size(at(checked("tamper_set", "{\"loss\":1}"), "set")), 0);
    assert_int_equal(NUMBER(checked("tamper_clear", ""), "removed"), 0);
    fails("port_get", "[\"eth0\"]", -ENOENT, "port");
    fails("tamper_set", "{\"port\":\"eth0\",\"loss\":1}", -ENOENT, "port");
    control.inet = &eth.inet;
    control.tcp = &eth.tcp;
}

static void test_port(void **state)
{
    json_t *ports, *row;
    size_t i;

    eth.port[0]->rx_stats[0].packets = 5;
    eth.port[0]->rx_stats[0].csums = 6;
    eth.port[0]->tx_stats[0].full = 7;
    ports = at(checked("port_get", ""), "port");
    assert_int_equal(json_array_size(ports), 2);
    row = json_array_get(ports, 0);
    IS(row, "name", "eth0");
    IS(row, "backend", "paper");
    IS(row, "driver", "paper");
    IS(row, "mac", "02:00:00:00:00:00");
    IS(row, "link", "up");
    IS(row, "offloads/4", "copies_in");
    assert_int_equal(json_array_size(at(row, "offloads")), 5);
    assert_int_equal(NUMBER(row, "speed"), 25000);
    assert_true(NUMBER(row, "buffers") >= 512 &&
                NUMBER(row, "buffers_free") <= NUMBER(row, "buffers"));
    IS(row, "interfaces/0/addresses/0", "10.0.0.1/24");
    IS(row, "interfaces/0/addresses/1", "fd00::1/64");
    IS(row, "interfaces/1/name", "eth0.7");
    assert_int_equal(json_array_size(at(row, "interfaces")), 2);
    assert_int_equal(json_array_size(at(row, "queues")), 2);
    IS(row, "queues/0/direction", "rx");
    assert_int_equal(NUMBER(row, "queues/0/packets"), 5);
    assert_int_equal(NUMBER(row, "queues/0/checksums"), 6);
    assert_int_equal(NUMBER(row, "queues/1/full"), 7);
    assert_null(json_object_get(row, "xstats"));
    IS(json_array_get(ports, 1), "interfaces/0/link", "down");

    ports = at(checked("port_get", "{\"name\":\"eth1\",\"xstats\":true}"), "port");
    assert_int_equal(json_array_size(ports), 1);
    IS(ports, "0/name", "eth1");
    IS(ports, "0/link", "down");
    assert_int_equal(NUMBER(ports, "0/xstats/rx_missed_errors"), 3);
    json_array_foreach(ports, i, row)
        assert_int_equal(NUMBER(row, "mtu"), 9000);
}

/* ---- lists of reactors ---- */

/* All rows over all pages; how many pages. */
static json_t *all_pages(const char *method, const char *key, const char *params, unsigned *pages)
{
    json_t *all = json_array();
    char text[256], cursor[64] = "";

    for (*pages = 0;; ++*pages) {
        json_t *r;

        snprintf(text, sizeof(text), "{%s%s%s%s%s}", params, params[0] && cursor[0] ? "," : "",
                 cursor[0] ? "\"cursor\":\"" : "", cursor, cursor[0] ? "\"" : "");
        r = checked(method, text);
        json_array_extend(all, at(r, key));
        if (!json_object_get(r, "cursor"))
            return all;
        snprintf(cursor, sizeof(cursor), "%s", TEXT(r, "cursor"));
    }
}

static void test_arp(void **state)
{
    unsigned pages;
    json_t *all;

    for (unsigned i = 0; i < 600; i++)
        eth.neigh[i] = (struct inet_neigh_row){.ifname = "eth0",
                                               .addr = addr_of("10.0.0.9"),
                                               .mac = {{2, 1, 0, 0, (uint8_t)(i >> 8), (uint8_t)i}},
                                               .state = "reachable",
                                               .age_us = 1000 * i};
    eth.nneigh = 600;
    snprintf(eth.neigh[3].ifname, 16, "eth1");
    eth.neigh[3].addr = addr_of("fd00::9");
    eth.neigh[4] = (struct inet_neigh_row){
        .ifname = "eth1", .addr = addr_of("fd00::10"), .state = "incomplete"};
    all = all_pages("arp_get", "arp", "", &pages);
    assert_int_equal(json_array_size(all), 600);
    assert_int_equal(pages, 2);
    IS(all, "599/mac", "02:01:00:00:02:57");
    assert_int_equal(NUMBER(all, "599/age_ms"), 599);
    IS(all, "3/address", "fd00::9");
    assert_null(json_object_get(at(all, "4"), "mac"));
    json_decref(all);
    all = all_pages("arp_get", "arp", "\"limit\":599", &pages);
    assert_int_equal(json_array_size(all), 600);
    json_decref(all);

    all = all_pages("arp_get", "arp", "\"interface\":\"eth1\"", &pages);
    assert_int_equal(json_array_size(all), 2);
    json_decref(all);
    all = all_pages("arp_get", "arp", "\"address\":\"fd00:0::9\"", &pages);
    assert_int_equal(json_array_size(all), 1);
    json_decref(all);
    fails("arp_get", "{\"address\":\"10.0.0\"}", -32602, "address");
    fails("arp_get", "{\"cursor\":\"x\"}", -32602, "cursor");
    fails("arp_get", "{\"cursor\":\"0.1 \"}", -32602, "cursor");
    /* One that was right once. */
    assert_int_equal(json_array_size(at(checked("arp_get", "{\"cursor\":\"9.9\"}"), "arp")), 0);
}

static void test_tcp(void **state)
{
    unsigned pages;
    json_t *all, *row;

    for (unsigned i = 0; i < 250; i++)
        eth.conn[i] = (struct tcp_info){.local = addr_of("10.0.0.1"),
                                        .remote = addr_of(i % 2 ? "10.0.0.2" : "fd00::2"),
                                        .lport = 988,
                                        .rport = (uint16_t)(1000 + i),
                                        .ifname = "eth0",
                                        .state = i % 5 ? "established" : "time_wait",
                                        .cc = i % 5 ? "cubic" : NULL,
                                        .cc_state = i % 5 ? "open" : NULL,
                                        .mss = 1448,
                                        .cwnd = 14480,
                                        .ssthresh = i ? UINT32_MAX : 7,
                                        .snd_wscale = 14,
                                        .sack = true,
                                        .bytes_in = UINT64_C(1) << 40,
                                        .limited_port_us = i,
                                        .queue_bytes = 12,
                                        .idle_us = 99};
    eth.nconns = 250;
    all = all_pages("tcp_get", "tcp", "", &pages);
    assert_int_equal(json_array_size(all), 250);
    assert_int_equal(pages, 2);
    row = at(all, "0");
    IS(row, "remote", "fd00::2");
    assert_int_equal(NUMBER(row, "ssthresh"), 7);
    assert_null(json_object_get(at(all, "1"), "ssthresh"));
    assert_int_equal(NUMBER(row, "snd_wscale"), 14);
    assert_int_equal(NUMBER(row, "bytes_in"), (json_int_t)1 << 40);
    assert_int_equal(NUMBER(row, "queue_bytes"), 12);
    assert_int_equal(NUMBER(row, "idle_us"), 99);
    assert_int_equal(NUMBER(all, "249/limited_port_us"), 249);
    assert_true(json_is_true(at(row, "sack")) && json_is_false(at(row, "ecn")));
    json_decref(all);

    all = all_pages("tcp_get", "tcp", "\"peer\":\"10.0.0.2\"", &pages);
    assert_int_equal(json_array_size(all), 125);
    json_decref(all);
    all = all_pages("tcp_get", "tcp", "\"peer\":\"10.0.0.2@tcp\",\"state\":\"time_wait\"", &pages);
    assert_int_equal(json_array_size(all), 25);
    json_decref(all);
    all = all_pages("tcp_get", "tcp", "\"tcp_port\":1003", &pages);
    assert_int_equal(json_array_size(all), 1);
    json_decref(all);
    all = all_pages("tcp_get", "tcp", "\"tcp_port\":988,\"limit\":1", &pages);
    assert_int_equal(json_array_size(all), 250);
    json_decref(all);
    fails("tcp_get", "{\"peer\":\"tcp\"}", -32602, "peer");
    fails("tcp_get", "{\"state\":\"open\"}", -32602, "state");
}

static void test_counters(void **state)
{
    json_t *all = at(checked("tcp_stats_get", ""), "reactors"), *row;
    size_t i;

    assert_int_equal(json_array_size(all), 1);
    assert_int_equal(NUMBER(all, "0/ip/rx_packets"), 0);
    assert_int_equal(NUMBER(all, "0/ip/echoes"), 12);
    assert_int_equal(NUMBER(all, "0/tcp/segs_out"), 1);
    assert_int_equal(NUMBER(all, "0/tcp/sparse_bytes"), 24);
    assert_int_equal(json_object_size(at(all, "0/ip")), sizeof(struct inet_stats) / 8);
    assert_int_equal(json_object_size(at(all, "0/tcp")), sizeof(struct tcp_stats) / 8);

    for (i = 1; i < PKT_DROP_COUNT; i++)
        eth.drops[i] = i;
    all = at(checked("pkt_drops_get", ""), "drops");
    json_array_foreach(all, i, row) {
        IS(row, "name", pkt_drop_info((enum pkt_drop)(i + 1))->name);
        assert_int_equal(NUMBER(row, "count"), i + 1);
    }
}

/* What is counted of ports is among the counters by name, and is what the other methods show. */
static json_t *captured(const char *match)
{
    char text[96];

    snprintf(text, sizeof(text), "{\"interval_ms\":10,\"match\":\"%s\"}", match);
    return at(checked("counters_capture", text), "counters");
}

static void test_captured(void **state)
{
    json_t *rows;

    eth.port[0]->rx_stats[0].packets = 5;
    eth.port[0]->tx_stats[0].bytes = 600;
    eth.port[0]->tx_stats[0].csums = 8;
    rows = captured("port.eth0.*");
    assert_int_equal(json_array_size(rows), 2 * 9);
    rows = captured("port.eth0.rx.packets");
    assert_int_equal(NUMBER(rows, "0/before"), 5);
    assert_int_equal(NUMBER(rows, "0/delta"), 0);
    assert_int_equal(NUMBER(captured("port.eth0.tx.bytes"), "0/after"), 600);
    assert_int_equal(NUMBER(captured("port.*.tx.checksums"), "0/after"), 8);
    assert_int_equal(NUMBER(captured("tcp.0.resent"), "0/after"),
                     offsetof(struct tcp_stats, resent) / 8);
    assert_int_equal(json_array_size(captured("tcp.*")), sizeof(struct tcp_stats) / 8);
    assert_int_equal(json_array_size(captured("ip.*")), sizeof(struct inet_stats) / 8);
    eth.drops[PKT_DROP_TCP_CSUM] = 77;
    assert_int_equal(NUMBER(captured("pkt_drops.tcp_csum"), "0/after"), 77);
    assert_int_equal(json_array_size(captured("pkt_drops.*")), PKT_DROP_COUNT - 1);
    control.inet = NULL;
    control.tcp = NULL;
    assert_int_equal(json_array_size(captured("port.*")), 0);
    assert_int_equal(json_array_size(captured("pkt_drops.*")), 0);
    control.inet = &eth.inet;
    control.tcp = &eth.tcp;
}

/* ---- why, over a port ---- */

static json_t *way(void)
{
    return at(checked("why", "[\"10.0.0.70@tcp\",\"10.0.0.1@tcp\"]"), "why");
}

static void test_why(void **state)
{
    json_t *why;

    eth.path = (struct inet_path_row){
        .mtu = 1500,
        .neigh = {.addr = addr_of("10.0.0.70"),
                  .ifname = "eth0",
                  .mac = {{2, 0, 0, 0, 0, 0x70}},
                  .state = "reachable",
                  .age_us = 4000},
    };
    why = way();
    IS(why, "ni", "10.0.0.1@tcp");
    IS(why, "nis/0/port", "eth0");
    IS(why, "port_path/port", "eth0");
    IS(why, "port_path/interface", "eth0");
    IS(why, "port_path/link", "up");
    IS(why, "port_path/local", "10.0.0.1");
    IS(why, "port_path/remote", "10.0.0.70");
    IS(why, "port_path/next_hop", "10.0.0.70");
    IS(why, "port_path/neighbour", "reachable");
    IS(why, "port_path/mac", "02:00:00:00:00:70");
    assert_int_equal(NUMBER(why, "port_path/mtu"), 1500);
    assert_int_equal(NUMBER(why, "port_path/confirmed_ms_ago"), 4);
    assert_int_equal(json_array_size(at(why, "port_path/drops")), 0);
    assert_non_null(strstr(TEXT(why, "port_path/text"), "is known"));

    eth.path.neigh = (struct inet_neigh_row){
        .addr = addr_of("10.0.0.254"), .ifname = "eth0", .state = "failed", .age_us = UINT64_MAX};
    eth.of_late[0] = (struct inet_drop_row){PKT_DROP_NEIGH_UNKNOWN, 7, 12000};
    eth.of_late[1] = (struct inet_drop_row){PKT_DROP_TCP_CSUM, 1, 500000};
    eth.nof_late = 2;
    why = way();
    IS(why, "port_path/next_hop", "10.0.0.254");
    IS(why, "port_path/neighbour", "failed");
    assert_null(json_object_get(at(why, "port_path"), "mac"));
    assert_null(json_object_get(at(why, "port_path"), "confirmed_ms_ago"));
    assert_non_null(strstr(TEXT(why, "port_path/text"), "10.0.0.254 does not answer"));
    IS(why, "port_path/drops/0/name", "neigh_unknown");
    assert_int_equal(NUMBER(why, "port_path/drops/0/count"), 7);
    assert_int_equal(NUMBER(why, "port_path/drops/0/ms_ago"), 12);
    IS(why, "port_path/drops/1/name", "tcp_csum");

    eth.path_rc = -EADDRNOTAVAIL;
    why = way();
    assert_null(json_object_get(at(why, "port_path"), "neighbour"));
    assert_non_null(strstr(TEXT(why, "port_path/text"), "another station"));
    eth.path_rc = eth.nof_late = 0;
    /* An NI of the host's, and a NID of our own. */
    why = at(checked("why", "[\"10.0.0.70@tcp\",\"10.0.0.2@tcp\"]"), "why");
    IS(why, "ni", "10.0.0.2@tcp");
    assert_null(json_object_get(why, "port_path"));
    assert_null(json_object_get(at(checked("why", "[\"10.0.0.1@tcp\"]"), "why"), "port_path"));
}

/* ---- fault injection ---- */

static void test_tamper(void **state)
{
    json_t *r, *row;

    r = checked("tamper_set", "{\"loss\":1,\"delay_ms\":0.5,\"direction\":\"in\"}");
    assert_int_equal(json_array_size(at(r, "set")), 2);
    r = checked(
        "tamper_set",
        "{\"port\":\"eth1\",\"peer\":\"10.1.0.2@tcp1\",\"tcp_port\":988,\"ip\":true,"
        "\"payload\":true,\"longer\":1300,\"chance\":50,\"burst_begin\":0.5,\"burst_end\":20,"
        "\"duplicate\":2,\"corrupt\":0.0001,\"jitter_ms\":3,\"reorder\":4,\"rate_mbit\":10.5,"
        "\"queue_kb\":64,\"queue_packets\":5,\"cut\":true,\"seed\":9}");
    assert_int_equal(json_array_size(at(r, "set")), 2);
    r = checked("tamper_get", "");
    assert_int_equal(json_array_size(at(r, "tamper")), 3); /* of eth1 in: the newer one alone */
    assert_int_equal(json_array_size(at(r, "held")), 4);
    row = at(r, "tamper/0");
    IS(row, "port", "eth0");
    IS(row, "direction", "in");
    assert_true(json_real_value(at(row, "loss")) == 1.0);
    assert_true(json_real_value(at(row, "delay_ms")) == 0.5);
    assert_int_equal(NUMBER(row, "seed"), 1);
    assert_null(json_object_get(row, "peer"));
    row = at(r, "tamper/2");
    IS(row, "port", "eth1");
    IS(row, "direction", "out");
    IS(row, "peer", "10.1.0.2");
    assert_int_equal(NUMBER(row, "longer"), 1300);
    assert_true(json_real_value(at(row, "corrupt")) == 0.0001);
    assert_true(json_real_value(at(row, "reorder_ms")) == 1.0);
    assert_true(json_real_value(at(row, "rate_mbit")) == 10.5);
    assert_int_equal(NUMBER(row, "queue_kb"), 64);
    assert_true(json_is_true(at(row, "cut")));

    checked("tamper_set", "{\"port\":\"eth1\",\"direction\":\"out\",\"loss\":3,\"add\":true}");
    r = checked("tamper_get", "");
    assert_int_equal(json_array_size(at(r, "tamper")), 4);
    fails("tamper_clear", "{\"rule\":1}", -32602, "rule");
    fails("tamper_clear", "{\"port\":\"eth0\",\"rule\":77}", -ENOENT, "rule");
    assert_int_equal(NUMBER(checked("tamper_clear", "{\"port\":\"eth0\",\"rule\":1}"), "removed"),
                     1);
    assert_int_equal(NUMBER(checked("tamper_clear", "{\"direction\":\"in\"}"), "removed"), 1);
    assert_int_equal(NUMBER(checked("tamper_clear", ""), "removed"), 2);

    fails("tamper_set", "{}", -EINVAL, NULL);
    fails("tamper_set", "{\"burst_begin\":1}", -EINVAL, NULL);
    fails("tamper_set", "{\"loss\":101}", -32602, "loss");
    fails("tamper_set", "{\"loss\":1,\"port\":\"eth2\"}", -ENOENT, "port");
    fails("tamper_set", "{\"loss\":1,\"peer\":\"x\"}", -32602, "peer");
    session.role = JRPC_READ;
    fails("tamper_set", "{\"loss\":1}", -EACCES, NULL);
    fails("tamper_clear", "", -EACCES, NULL);
    session.role = JRPC_ADMIN;
    /* Without an effect none was made. */
    assert_int_equal(json_array_size(at(checked("tamper_get", ""), "tamper")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),     cmocka_unit_test(test_port),
        cmocka_unit_test(test_arp),      cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_counters), cmocka_unit_test(test_tamper),
        cmocka_unit_test(test_captured), cmocka_unit_test(test_why),
    };

    return cmocka_run_group_tests(tests, begin, finish);
}
