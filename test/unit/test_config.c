/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration file: what lnetctl writes, what operators write, what they get wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/config_internal.h"
#include "config/settings.h"
#include "lib/base/err.h"
#include "lib/lnd/code.h"
#include "test/lnds_test.h"

#define NET                                                                                        \
    "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}, "                                  \
    "{net type: tcp1, local NI(s): [{nid: 10.1.0.1@tcp1}]}]\n"
#define SET(x) NET "millrace: {" x "}\n"

static struct cfg *cfg;
static struct cfg_report report;

static int parse(const char *text)
{
    return cfg_parse("f", text, strlen(text), &cfg, &report);
}

static void done(void)
{
    cfg_free(cfg);
    cfg_report_free(&report);
    cfg = NULL;
}

/* Parses text that must be good. */
static void good(const char *text)
{
    if (parse(text) != 0)
        fail_msg("refused: %s", report.count ? report.message[0].text : "without a reason");
}

static bool reported(const char *want)
{
    for (unsigned i = 0; i < report.count; i++)
        if (strstr(report.message[i].text, want))
            return true;
    return false;
}

/* ---- what is good ---- */

static void test_defaults(void **state)
{
    good(NET);
    assert_int_equal(report.errors + report.warnings, 0);
    assert_int_equal(cfg->ni_count, 2);
    assert_int_equal(cfg->ni[0].conf.tun.credits, -1);
    assert_int_equal(cfg->ni[1].conf.lnd_tun.tos, -1);
    assert_int_equal(cfg->routing, 1);
    assert_int_equal(cfg->tiny, 0);
    assert_int_equal(cfg->check_interval, 60);
    assert_int_equal(cfg->ping_timeout, 50);
    assert_string_equal(cfg->cores, "auto");
    assert_int_equal(cfg_reactor_count(cfg), 2);
    assert_int_equal(cfg->accept, LND_ACCEPT_SECURE);
    assert_int_equal(cfg->accept_port, 988);
    assert_int_equal(cfg->source_check, LNET_SOURCE_NET);
    assert_int_equal(cfg->rpc_mode, 0660);
    assert_string_equal(cfg->rpc_socket, CFG_DEFAULT_SOCKET);
    assert_int_equal(cfg->egress_share, 50);
    assert_int_equal(cfg->buffer_wait, 10);
    assert_int_equal(cfg->memory, 0);
    assert_int_equal(cfg_gateway_count(cfg), 0);
    assert_int_equal(cfg->drain, 10);
    done();
}

static void test_every_key(void **state)
{
    char nid[LNET_NIDSTR_SIZE];

    good(
        "net:\n"
        "  - net type: tcp\n"
        "    local NI(s):\n"
        "      - interfaces: {0: eth0}\n"
        "        nid: 10.0.0.1@tcp\n"
        "        tunables: {peer_timeout: 100, peer_credits: 16, peer_buffer_credits: 4, credits: 512}\n"
        "        lnd tunables: {conns_per_peer: 4, timeout: 16, tos: 0}\n"
        "        CPT: \"[0,1]\"\n"
        "  - {local NI(s): [{nid: 'fd00::1@tcp1'}, {nid: 10.1.0.1@tcp1}], net type: tcp1}\n"
        "route:\n"
        "  - {net: o2ib, gateway: 10.0.0.9@tcp}\n"
        "  - {net: o2ib, gateway: 10.0.0.8@tcp, hop: 255, priority: 7}\n"
        "  - {net: o2ib1, gateway: 'fd00::2@tcp1', hop: 4294967295}\n"
        "routing: {enable: 0}\n"
        "buffers: {tiny: 100, small: -1, large: 10}\n"
        "global: {alive_router_check_interval: 5, router_ping_timeout: 6, numa_range: 2}\n"
        "millrace:\n"
        "  cores: '0:2,3;1:8-11'\n"
        "  reactors: 3\n"
        "  idle: spin\n"
        "  hugepages: yes\n"
        "  memory: 300\n"
        "  eal_args: '--log-level 8'\n"
        "  rpc: {socket: /tmp/x, mode: '0600'}\n"
        "  accept: all\n"
        "  accept_port: 1988\n"
        "  accept_timeout: 6\n"
        "  keepalive: 0\n"
        "  min_reconnect: 2\n"
        "  max_reconnect: 3\n"
        "  hello_map: [{address: 10.0.0.5, nid: 10.0.0.77@tcp}, {address: 'fd00::5', nid: 10.9.9.9@tcp1}]\n"
        "  source_check: off\n"
        "  egress_share: 100\n"
        "  buffer_wait: 12\n"
        "  max_peers: 99\n"
        "  max_connections: 30000\n"
        "  drain: 0\n");
    assert_int_equal(cfg->ni_count, 3);
    assert_string_equal(cfg->ni[0].conf.ifname, "eth0");
    assert_string_equal(nid_format(&cfg->ni[0].conf.nid, nid), "10.0.0.1@tcp");
    assert_int_equal(cfg->ni[0].conf.tun.peer_timeout, 100);
    assert_int_equal(cfg->ni[0].conf.tun.peer_credits, 16);
    assert_int_equal(cfg->ni[0].conf.tun.peer_buffer_credits, 4);
    assert_int_equal(cfg->ni[0].conf.tun.credits, 512);
    assert_int_equal(cfg->ni[0].conf.lnd_tun.conns_per_peer, 4);
    assert_int_equal(cfg->ni[0].conf.lnd_tun.timeout, 16);
    assert_int_equal(cfg->ni[0].conf.lnd_tun.tos, 0);
    assert_string_equal(cfg->ni[0].cpt, "[0,1]");
    assert_int_equal(cfg->ni[0].line, 4);
    assert_int_equal(cfg->ni[1].conf.net, LNET_NET(LNET_LND_SOCK, 1));
    assert_string_equal(nid_format(&cfg->ni[1].conf.nid, nid), "fd00::1@tcp1");
    assert_int_equal(cfg->route_count, 3);
    assert_int_equal(cfg->route[0].conf.hops, LNET_HOPS_UNDEFINED);
    assert_int_equal(cfg->route[1].conf.hops, 255);
    assert_int_equal(cfg->route[1].conf.priority, 7);
    assert_int_equal(cfg->route[2].conf.hops, LNET_HOPS_UNDEFINED);
    assert_int_equal(cfg->routing, 0);
    assert_int_equal(cfg->tiny, 100);
    assert_int_equal(cfg->small, 0);
    assert_int_equal(cfg->large, 10);
    assert_int_equal(cfg->check_interval, 5);
    assert_int_equal(cfg->ping_timeout, 6);
    assert_int_equal(cfg_reactor_count(cfg), 6);
    assert_int_equal(cfg->idle, REACTOR_IDLE_SPIN);
    assert_int_equal(cfg->hugepages, 1);
    assert_int_equal(cfg->memory, 300);
    assert_string_equal(cfg->eal_args, "--log-level 8");
    assert_string_equal(cfg->rpc_socket, "/tmp/x");
    assert_int_equal(cfg->rpc_mode, 0600);
    assert_int_equal(cfg->accept, LND_ACCEPT_ALL);
    assert_int_equal(cfg->accept_port, 1988);
    assert_int_equal(cfg->accept_timeout, 6);
    assert_int_equal(cfg->keepalive, 0);
    assert_int_equal(cfg->min_reconnect, 2);
    assert_int_equal(cfg->max_reconnect, 3);
    assert_int_equal(cfg->hello_count, 2);
    assert_string_equal(nid_format(&cfg->hello[0].address, nid), "10.0.0.5@tcp");
    assert_string_equal(nid_format(&cfg->hello[0].nid, nid), "10.0.0.77@tcp");
    assert_string_equal(nid_format(&cfg->hello[1].address, nid), "fd00::5@tcp1");
    assert_int_equal(cfg->source_check, LNET_SOURCE_OFF);
    assert_int_equal(cfg->egress_share, 100);
    assert_int_equal(cfg->buffer_wait, 12);
    assert_int_equal(cfg_gateway_count(cfg), 3);
    assert_int_equal(cfg->max_peers, 99);
    assert_int_equal(cfg->max_connections, 30000);
    assert_int_equal(cfg->drain, 0);
    assert_int_equal(report.warnings, 2);
    assert_true(reported("f:16: warning: global: not acted on yet: numa_range"));
    assert_true(reported("f:8: warning: net[0].local NI(s)[0].CPT: not acted on yet"));
    done();
}

static const char *const good_texts[] = {
    NET "route:\n",
    NET "route: {net: o2ib, gateway: 10.0.0.9@tcp}\n", /* one without a list */
    NET "routing:\n    - cpt[0]:\n          tiny: {npages: 0}\n    - cpt[1]: {}\n    - enable: 3\n",
    NET "buffers:\n",
    NET "retry_count: 3\nmax_intf: 20\n",
    NET "peer: [{primary nid: 1.2.3.4@tcp}]\nudsp: []\nnuma: {range: 0}\n",
    "---\n" NET "...\n",
    "net: [{net type: lo, local NI(s): [{nid: 0@lo, anything: 1}]}, {net type: tcp, local NI(s): "
    "[{interfaces: {0: eth0}}]}]\n",
    /* two NIDs of one interface */
    "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp, interfaces: {0: e}}, "
    "{nid: 10.0.0.2@tcp, interfaces: {0: e}}]}]\n",
    SET("cores: 4"),
    SET("eal_args: ''"),
    SET("hello_map: [{address: 10.0.0.5@tcp, nid: 10.0.0.77@tcp}]"),
};

static void test_good(void **state)
{
    for (size_t i = 0; i < sizeof(good_texts) / sizeof(good_texts[0]); i++) {
        good(good_texts[i]);
        done();
    }
}

/* docs/protocol/lnet-core.md §6.1 */
static void test_retry_count(void **state)
{
    static const char *const forced[] = {NET "health_sensitivity: 0\n",
                                         NET "global: {health_sensitivity: 0, retry_count: 0}\n"};
    struct cfg_setting setting;
    struct err err;

    for (size_t i = 0; i < sizeof(forced) / sizeof(forced[0]); i++) {
        good(forced[i]);
        assert_int_equal(cfg->retry_count, 0);
        done();
    }
    good(NET "transaction_timeout: 3\n");
    assert_true(cfg_setting_find("health_sensitivity", &setting));
    assert_int_equal(cfg_setting_set(&setting, cfg, "0", &err), 0);
    assert_int_equal(cfg->retry_count, 0);
    done();
}

/* One gateway of several nets counts once. */
static void test_gateways(void **state)
{
    good(NET "route: [{net: o2ib, gateway: 10.0.0.9@tcp}, {net: o2ib1, gateway: 10.0.0.9@tcp}, "
             "{net: o2ib, gateway: 10.1.0.9@tcp1}]\n");
    assert_int_equal(cfg_gateway_count(cfg), 2);
    done();
}

static void is_udsp(unsigned i, const char *src, const char *dst, const char *rte, int priority)
{
    const struct cfg_udsp *u = &cfg->udsp[i];

    assert_true(i < cfg->udsp_count);
    assert_int_equal(u->idx, i);
    assert_string_equal(u->src, src);
    assert_string_equal(u->dst, dst);
    assert_string_equal(u->rte, rte);
    assert_int_equal(u->priority, priority);
}

/* docs/protocol/lnet-core.md §8.2: appended or inserted at idx; an equal policy gets the other
 * priority; src or dst alone gets priority 0, others none. */
static void test_udsp(void **state)
{
    static const char *const names[] = {"tcp", "tcp1", "tcp2", "tcp3", "tcp4"};
    struct lnet_udsp *rules;
    struct err err = {0};

    good(NET "udsp:\n"
             "  - {src: tcp, action: {priority: 7}}\n"
             "  - {dst: '*@tcp1', rte: 10.0.0.9@tcp}\n"
             "  - {idx: 0, src: '10.0.0.[1-3]@tcp', dst: 'tcp[1-2]'}\n"
             "  - {idx: 9, dst: tcp1}\n"
             "  - {idx: 1, src: tcp, action: {priority: 3}}\n");
    assert_int_equal(cfg->udsp_count, 4);
    is_udsp(0, "10.0.0.[1-3]@tcp", "tcp[1-2]", "", -1);
    is_udsp(1, "tcp", "", "", 3);
    is_udsp(2, "", "*@tcp1", "10.0.0.9@tcp", -1);
    is_udsp(3, "", "tcp1", "", 0);
    assert_int_equal(report.warnings, 0);
    assert_int_equal(cfg_udsp_add(cfg, &cfg->udsp[3]), -EALREADY);
    assert_int_equal(cfg_udsp_rules(cfg, &rules, &err), 0);
    assert_true(rules[0].src.addresses && !rules[0].dst.addresses && !rules[0].rte.given);
    assert_int_equal(rules[1].priority, 3);
    assert_int_equal(rules[3].dst.number[0].lo, 1);
    free(rules);
    done();
    /* as a file is that was saved after changes: in any order */
    good(NET "udsp: [{idx: 3, src: tcp3}, {idx: 2, src: tcp2}, {idx: 0, src: tcp}, {idx: 1, src: "
             "tcp1}, {src: tcp4}]\n");
    for (unsigned i = 0; i < 5; i++)
        is_udsp(i, names[i], "", "", 0);
    done();
}

static void test_enable(void **state)
{
    static const int want[] = {0, 1, 0, 1}; /* disabled, enabled, stopping, starting */
    char text[512];

    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), NET "routing: {enable: %d}\n", i);
        good(text);
        assert_int_equal(cfg->routing, want[i]);
        done();
    }
}

/* ---- files ---- */

static void load(const char *path)
{
    if (cfg_load(path, &cfg, &report) != 0)
        fail_msg("%s", report.count ? report.message[0].text : "without a reason");
}

static void test_lnetctl_router(void **state)
{
    static const char *const files[] = {TEST_DATA "/lnetctl-export-router-tcp-full.yaml",
                                        TEST_DATA "/lnetctl-export-router-tcp-backup.yaml"};
    char nid[LNET_NIDSTR_SIZE];

    for (int i = 0; i < 2; i++) {
        load(files[i]);
        assert_int_equal(cfg->ni_count, 2);
        assert_string_equal(cfg->ni[0].conf.ifname, "eth0");
        assert_int_equal(cfg->ni[0].conf.net, LNET_NET(LNET_LND_SOCK, 0));
        assert_string_equal(cfg->ni[1].conf.ifname, "eth1");
        assert_int_equal(cfg->ni[1].conf.net, LNET_NET(LNET_LND_SOCK, 1));
        assert_int_equal(nid_is_any(&cfg->ni[1].conf.nid), i);
        if (i == 0)
            assert_string_equal(nid_format(&cfg->ni[1].conf.nid, nid), "192.168.20.3@tcp1");
        assert_int_equal(cfg->ni[1].conf.tun.peer_timeout, 180);
        assert_int_equal(cfg->ni[1].conf.tun.peer_buffer_credits, 0);
        assert_int_equal(cfg->ni[1].conf.lnd_tun.conns_per_peer, 1);
        assert_int_equal(cfg->ni[1].conf.lnd_tun.timeout, i ? -1 : 50);
        assert_int_equal(cfg->routing, 1);
        assert_int_equal(cfg->tiny, 2048);
        assert_int_equal(cfg->small, 16384);
        assert_int_equal(cfg->large, 1024);
        assert_int_equal(report.warnings, 1); /* the single settings of global */
        done();
    }
}

static void test_lnetctl_client(void **state)
{
    char nid[LNET_NIDSTR_SIZE];

    load(TEST_DATA "/lnetctl-export-client-tcp-full.yaml");
    assert_int_equal(cfg->ni_count, 1);
    assert_int_equal(cfg->route_count, 1);
    assert_int_equal(cfg->route[0].conf.net, LNET_NET(LNET_LND_SOCK, 1));
    assert_string_equal(nid_format(&cfg->route[0].conf.gateway, nid), "192.168.10.3@tcp");
    assert_int_equal(cfg->route[0].conf.hops, 1);
    done();
    load(TEST_DATA "/lnetctl-export-client-tcp-backup.yaml");
    assert_int_equal(cfg->route_count, 1);
    done();
    load(TEST_DATA "/lnetctl-export-client-o2ib-full.yaml");
    assert_int_equal(cfg->ni[0].conf.net, LNET_NET(LNET_LND_O2IB, 0));
    assert_true(reported("map_on_demand"));
    done();
    load(TEST_DATA "/lnetctl-export-client-o2ib-backup.yaml");
    done();
}

static void test_samples(void **state)
{
    load(TEST_SAMPLES "/router.yaml");
    assert_int_equal(report.warnings, 0);
    done();
    load(TEST_SAMPLES "/two-hops.yaml");
    assert_int_equal(report.warnings, 0);
    assert_int_equal(cfg_reactor_count(cfg), 4);
    done();
    load(TEST_SAMPLES "/small.yaml");
    assert_int_equal(report.warnings, 0);
    assert_int_equal(cfg->hello_count, 1);
    done();
    load(TEST_SAMPLES "/o2ib.yaml");
    assert_int_equal(report.warnings, 0);
    assert_int_equal(cfg->ni[0].conf.net >> 16, LNET_LND_O2IB);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "max_connections"), 4096);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "keepalive"), 100);
    done();
}

/* A key that kernel nodes do not act on either is reported when it is not the default. */
static void test_no_effect(void **state)
{
    good(NET "global: {router_sensitivity: 99, numa_range: 2}\n");
    assert_int_equal(report.warnings, 2);
    assert_true(reported("warning: global.router_sensitivity: has no effect, as on kernel nodes "
                         "since Lustre 2.17: it is kept and shown"));
    assert_true(reported("warning: global: not acted on yet: numa_range"));
    assert_int_equal(cfg->router_sensitivity, 99);
    done();
    good(NET "router_sensitivity: 0\n");
    assert_true(reported("warning: router_sensitivity: has no effect"));
    done();
    /* §13: nodes before 2.17 export it of each route */
    good(NET "route: [{net: o2ib, gateway: 10.0.0.9@tcp, health_sensitivity: 50}]\n");
    assert_int_equal(report.warnings, 0);
    done();
    good(NET "global: {router_sensitivity: 100}\n");
    assert_int_equal(report.warnings, 0);
    done();
}

/* An NI gives no peer more credits than it has: the operator is told what it uses instead. */
static void test_peer_credits_above(void **state)
{
    static const struct {
        const char *tunables, *want; /* NULL: no warning */
    } rows[] = {
        {"peer_credits: 512, credits: 256",
         "peer_credits: 512 is more than credits, which is 256; the NI uses at most 256: raise "
         "credits or lower peer_credits"},
        {"peer_credits: 512", "peer_credits: 512 is more than credits, which is 256"},
        {"peer_credits: 512, credits: 512", NULL},
        {"credits: 4", NULL},
        {"peer_credits: -1, credits: 1", NULL},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];

        snprintf(text, sizeof(text),
                 "net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, tunables: {%s}}]}]\n",
                 rows[i].tunables);
        good(text);
        if (rows[i].want)
            assert_true(reported(rows[i].want));
        else
            assert_false(reported("is more than credits"));
        done();
    }
}

static void test_no_file(void **state)
{
    assert_int_equal(cfg_load("/nonexistent/file", &cfg, &report), -ENOENT);
    assert_null(cfg);
    assert_true(reported("/nonexistent/file: cannot be read"));
    done();
    assert_int_equal(cfg_load("/", &cfg, &report), -EISDIR);
    done();
}

static void test_large_file(void **state)
{
    char path[] = "/tmp/millrace-test-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, YAML_MAX_BYTES + 1), 0);
    assert_int_equal(cfg_load(path, &cfg, &report), -EFBIG);
    done();
    close(fd);
    unlink(path);
}

/* ---- what is wrong ---- */

static const struct {
    const char *text;
    const char *want; /* part of a message */
} bad[] = {
    {NET "retry_count: 2\nhealth_sensitivity: 0\n", "retry_count must be 0"},
    {NET "global: {health_sensitivity: 0, retry_count: 1}\n", "retry_count must be 0"},
    {NET "transaction_timeout: 2\n", "transaction_timeout must be above retry_count"},
    {NET "global: {retry_count: 150}\n", "transaction_timeout must be above retry_count"},
    /* not YAML, or too much of it */
    {"net: [1\n", "not YAML"},
    {"a: *b\n", "aliases"},
    {"a: &x [1]\nb: [*x]\n", "f:2: aliases"},
    {"a: 1\n---\nb: 2\n", "second document"},
    {"net: 1\nnet: 2\n", "f:2: key 'net' appears twice"},
    {"[a]: 1\n", "a key must be a plain word"},
    {"{a: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}", "nested too deeply"},
    {"a: \"\\0\"\n", "NUL"},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 1\n",
     "a key is longer"},
    {"", "no NI is configured"},
    {"- 1\n", "must be a mapping"},
    {"just text\n", "must be a mapping"},
    /* keys */
    {NET "rout: []\n", "f:2: rout: unknown key; did you mean 'route'?"},
    {NET "xyzzyxyzzy: 1\n", "f:2: xyzzyxyzzy: unknown key; remove it"},
    {SET("aceppt: all"), "millrace.aceppt: unknown key; did you mean 'accept'?"},
    {SET("ACCEPT: all"), "did you mean 'accept'?"},
    /* net */
    {"net: [{local NI(s): []}]\n", "net[0]: has no 'net type'"},
    {"net: [{net type: foo}]\n", "net[0]: 'foo' is not a net"},
    {"net: [{net type: [tcp]}]\n", "is a sequence; write one value"},
    {"net: [{net type: {tcp: 1}}]\n", "is a mapping; write one value"},
    {"net: [{net type: }]\n", "has no value"},
    {"net: [{net type: tcp, local NI(s): [{status: up}]}]\n",
     "net[0].local NI(s)[0]: has no address"},
    {"net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp1}]}]\n",
     "net[0].local NI(s)[0].nid: '10.0.0.1@tcp1' is not of net tcp"},
    {"net: [{net type: tcp, local NI(s): [{nid: 10.0.0.256@tcp}]}]\n", "is not a NID"},
    {"net: [{net type: tcp, local NI(s): [{nid: }]}]\n", "has no value"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: eth0}]}]\n", "must be one interface"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: a, 1: b}}]}]\n",
     "must be one interface"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: [a]}}]}]\n", "write one value"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: abcdefghijklmnopqrst}}]}]\n",
     "cannot be an interface name"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: ../x}}]}]\n",
     "cannot be an interface name"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, tunables: {credits: 0}}]}]\n",
     "credits: 0 lets no message pass"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, tunables: {peer_credits: 0}}]}]\n",
     "peer_credits: 0 lets no message pass"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, tunables: {credits: 70000}}]}]\n",
     "70000 is out of range; write a number from -1 to 65535"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, tunables: {credits: 1e3}}]}]\n",
     "'1e3' is not a whole number"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, tunables: [1]}]}]\n",
     "must be a mapping"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, CPT: 0}]}]\n", "quoted list of CPTs"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp, CPT: [0]}]}]\n",
     "quoted list of CPTs"},
    {"net: [{net type: tcp, local NI(s): [{nid: 1.1.1.1@tcp}, {nid: 1.1.1.1@tcp}]}]\n",
     "NID 1.1.1.1@tcp is already on line 1"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: e}}, {interfaces: {0: e}}]}]\n",
     "interface e is already on line 1"},
    /* route */
    {NET "route: [{net: o2ib}]\n", "f:2: route[0]: needs both 'net' and 'gateway'"},
    {NET "route: [{gateway: 10.0.0.9@tcp}]\n", "needs both"},
    {NET "route: [{net: '*', gateway: 10.0.0.9@tcp}]\n", "route[0].net: '*' is not a net"},
    {NET "route: [{net: o2ib, gateway: '*'}]\n", "is not a NID"},
    {NET "route: [{net: o2ib, gateway: 10.0.0.9@tcp, hop: 0}]\n", "write a number from 1 to 255"},
    {NET "route: [{net: o2ib, gateway: 10.0.0.9@tcp, hop: 256}]\n", "from 1 to 255"},
    {NET "route: [{net: o2ib, gateway: 10.0.0.9@tcp, priority: -1}]\n", "out of range"},
    {NET "route: [{net: lo, gateway: 10.0.0.9@tcp}]\n", "lo cannot be routed"},
    {NET "route: [{net: o2ib, gateway: 0@lo}]\n", "lo cannot be routed"},
    {NET "route: [{net: o2ib, gateway: 10.0.0.9@o2ib}]\n", "is itself on net o2ib"},
    {NET "route: [{net: tcp1, gateway: 10.0.0.9@tcp}]\n", "net tcp1 is local"},
    {NET "route: [{net: o2ib, gateway: 10.0.0.9@tcp7}]\n", "is on no local net"},
    {NET "route: [{net: o2ib, gateway: 10.0.0.1@tcp}]\n", "is this node itself"},
    {NET
     "route: [{net: o2ib, gateway: 10.0.0.9@tcp}, {net: o2ib, gateway: 10.0.0.9@tcp, hop: 2}]\n",
     "the same route is on line 2"},
    /* routing, buffers, global */
    {NET "routing: {enable: maybe}\n", "not a whole number"},
    {NET "routing: {enable: 4}\n", "from 0 to 3"},
    {NET "routing:\n    cpu[0]: 1\n", "unknown key"},
    {NET "buffers: {large: 10000000}\n", "out of range"},
    {NET "buffers: {tiny: -2}\n", "from -1 to 1048576"},
    {NET "buffers: {huge: 1}\n", "unknown key"},
    {NET "global: {alive_router_check_interval: 0}\n", "from 1 to 86400"},
    {NET "global: {alive_router_chek_interval: 9}\n", "did you mean 'alive_router_check_interval'"},
    /* millrace */
    {SET("cores: ''"), "is not a list of cores"},
    {SET("cores: '1,1'"), "is not a list of cores"},
    {SET("cores: '1-'"), "is not a list of cores"},
    {SET("cores: '3-1'"), "is not a list of cores"},
    {SET("cores: '0-64'"), "is not a list of cores"},
    {SET("cores: '64:1'"), "is not a list of cores"},
    {SET("cores: '0:1;'"), "is not a list of cores"},
    {SET("cores: 'x'"), "is not a list of cores"},
    {SET("cores: '1023,1024'"), "is not a list of cores"},
    {SET("cores: [2, 3]"), "write one value"},
    {SET("reactors: 0"), "from 1 to 64"},
    {SET("reactors: 99999999999999999999"), "out of range"},
    {SET("reactors: ' 1'"), "not a whole number"},
    {SET("idle: lazy"), "'lazy' is not known; write one of: spin, adaptive"},
    {SET("idle: []"), "write one value"},
    {SET("hugepages: 2"), "neither true nor false"},
    {NET
     "peer: [{primary nid: 1.2.3.4@tcp}, {primary nid: 1.2.3.5@tcp, peer ni: [{nid: 1.2.3.4@tcp}]}]\n",
     "1.2.3.4@tcp is a NID of two peers"},
    {NET "peer: [{primary nid: 1.2.3.4@tcp, Multi-Rail: false, peer ni: [{nid: 1.2.3.5@tcp}]}]\n",
     "peer 1.2.3.4@tcp is not multi-rail and has the further NID 1.2.3.5@tcp"},
    {NET "peer: [{primary nid: 1.2.3.4@tcp, millrace: {lock_prim: 2}}]\n",
     "neither true nor false"},
    {NET "peer: [{primary nid: 1.2.3.4@tcp, millrace: {lock: true}}]\n",
     "millrace.lock: unknown key"},
    {SET("hugepages: []"), "write one value"},
    {SET("memory: -1"), "out of range"},
    {SET("rpc: {mode: 660}, accept: maybe"), "write one of: secure, all, none"},
    {SET("rpc: {mode: '0999'}"), "is not a file mode"},
    {SET("rpc: {mode: '1777'}"), "is not a file mode"},
    {SET("rpc: {mode: []}"), "write one value"},
    {SET("rpc: {socket: []}"), "write one value"},
    {SET("rpc: {socket: /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}"),
     "is longer than the 107 characters allowed"},
    {SET("accept_port: 0"), "from 1 to 65535"},
    {SET("egress_share: 0"), "from 1 to 100"},
    {SET("egress_share: 101"), "from 1 to 100"},
    {SET("egress_share: 50%"), "not a whole number"},
    {SET("buffer_wait: 0"), "from 1 to 12"},
    {SET("buffer_wait: 13"), "from 1 to 12"},
    {SET("memory: 2000000"), "from 0 to 1048576"},
    {SET("min_reconnect: 9, max_reconnect: 8"), "min_reconnect is above max_reconnect"},
    {SET("hello_map: [{address: 10.0.0.5}]"), "needs 'address' and 'nid'"},
    {SET("hello_map: [{address: foo, nid: 10.0.0.1@tcp}]"),
     "is not an IP address of the NID's net"},
    {SET("hello_map: [{address: 10.0.0.5@tcp1, nid: 10.0.0.1@tcp}]"), "is not an IP address of"},
    {SET("hello_map: [{address: 5, nid: 5@kfi}]"), "is not an IP address of"},
    {SET("hello_map: 5"), "must be a mapping"},
    /* docs/protocol/lnet-core.md §8.1 */
    {NET "udsp: [{idx: 0}]\n", "needs one of"},
    {NET "udsp: [{rte: 10.0.0.9@tcp}]\n", "goes with 'dst'"},
    {NET "udsp: [{src: '*@tcp', rte: 10.0.0.9@tcp}]\n", "goes with 'dst'"},
    {NET "udsp: [{src: '*@tcp', dst: tcp1, rte: 10.0.0.9@tcp}]\n", "not with 'src'"},
    {NET "udsp: [{src: tcp, dst: tcp1}]\n", "'src' with 'dst' names NIDs"},
    {NET "udsp: [{dst: tcp1, rte: tcp}]\n", "names NIDs of gateways"},
    {NET "udsp: [{src: '*@tcp', dst: tcp1, action: {priority: 1}}]\n", "alone has a priority"},
    {NET "udsp: [{src: 10.0.0.300@tcp}]\n", "is neither a net"},
    {NET "udsp: [{src: 'tcp*[1]'}]\n", "is neither a net"},
};

static void test_bad(void **state)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (parse(bad[i].text) != -EINVAL || cfg)
            fail_msg("accepted: %s", bad[i].text);
        if (!reported(bad[i].want))
            fail_msg("%s\n  said: %s\n  want: %s", bad[i].text,
                     report.count ? report.message[0].text : "nothing", bad[i].want);
        done();
    }
}

static void test_all_errors(void **state)
{
    assert_int_equal(parse(SET("reactors: 0, idle: lazy, accept_port: 0") "rout: 1\n"), -EINVAL);
    assert_int_equal(report.errors, 4);
    assert_int_equal(report.count, 4);
    assert_string_equal(report.message[1].text,
                        "f:2: millrace.idle: 'lazy' is not known; write one of: spin, adaptive");
    done();
}

static void test_one_net(void **state)
{
    good("net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}]\n");
    assert_true(reported("nothing to route between"));
    done();
    good("net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}]\nrouting: {enable: 0}\n");
    assert_int_equal(report.warnings, 0);
    done();
}

/* A file may hold anything; a terminal must not get it. */
static void test_printable(void **state)
{
    assert_int_equal(parse("\"a\\e[31mb\\n\": 1\n"), -EINVAL);
    for (const char *p = report.message[0].text; *p; p++)
        assert_true((unsigned char)*p >= 0x20);
    done();
    assert_int_equal(parse("\"a\\x9b31mb\": 1\n"), -EINVAL);
    assert_null(strchr(report.message[0].text, 0x9b));
    done();
    assert_int_equal(parse(SET("names: {10.0.0.1@tcp: \"a\\e[2Jb\"}")), -EINVAL);
    done();
    assert_int_equal(parse(SET("names: {10.0.0.1@tcp: \"a\\x9b2Jb\"}")), -EINVAL);
    done();
}

/* ---- limits ---- */

/* unit, count times, between head and tail. */
static char *repeat(const char *head, const char *unit, unsigned count, const char *tail)
{
    size_t size = strlen(head) + (strlen(unit) + 16) * count + strlen(tail) + 1, used;
    char *text = malloc(size);

    assert_non_null(text);
    used = (size_t)snprintf(text, size, "%s", head);
    for (unsigned i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used, unit, i / 256 % 256, i % 256);
    snprintf(text + used, size - used, "%s", tail);
    return text;
}

static void check_limit(const char *head, const char *unit, unsigned count, const char *tail,
                        const char *want)
{
    char *text = repeat(head, unit, count, tail);
    int rc = parse(text);

    free(text);
    if (want) {
        assert_int_equal(rc, -EINVAL);
        if (!reported(want))
            fail_msg("said: %s", report.message[0].text);
    } else {
        assert_int_equal(rc, 0);
    }
    done();
}

static void test_limits(void **state)
{
    static const char ni[] = "{nid: 10.0.%u.%u@tcp}, ";
    static const char route[] = "{net: o2ib, gateway: 10.2.%u.%u@tcp}, ";
    static const char hello[] = "{address: 10.0.%u.%u, nid: 10.0.0.1@tcp}, ";

    check_limit("net: [{net type: tcp, local NI(s): [", ni, LNET_MAX_NI, "]}]", NULL);
    check_limit("net: [{net type: tcp, local NI(s): [", ni, LNET_MAX_NI + 1, "]}]",
                "one NI too many");
    check_limit(NET "route: [", route, CFG_MAX_ROUTES, "]", NULL);
    check_limit(NET "route: [", route, CFG_MAX_ROUTES + 1, "]", "one route too many");
    check_limit(NET "millrace: {hello_map: [", hello, 1000, "]}", NULL);
    check_limit("a: [", "1, ", YAML_MAX_NODES, "]", "too many values");
    check_limit("a: ", "aaaaaaaa", YAML_MAX_SCALAR / 8 + 1, "\n", "a value is too long");
    check_limit("", "k%u_%u: 1\n", YAML_MAX_KEYS + 1, "", "too many keys");
    check_limit("a: ", "aaaaaaaa", YAML_MAX_BYTES / 8 + 1, "\n", "larger than 4 MiB");
}

/* A key is compared with all before it in its mapping: a text of many large mappings would take
 * long. */
static void test_keys_in_all(void **state)
{
    char *map = repeat("{", "k%u_%u: ,", YAML_MAX_KEYS, "}");

    for (unsigned maps = 1; maps <= 3; maps++) {
        size_t room = maps * (strlen(map) + 2) + 8;
        char *text = malloc(room);

        assert_non_null(text);
        strcpy(text, "a: [");
        for (unsigned i = 0; i < maps; i++)
            strcat(strcat(text, map), ", ");
        strcat(text, "]");
        assert_int_equal(parse(text), -EINVAL);
        assert_true(reported("too many keys") == (maps == 3));
        free(text);
        done();
    }
    free(map);
}

static void test_many_errors(void **state)
{
    char *text = repeat("", "k%u_%u: 1\n", 300, ""), *out = NULL;
    size_t len;
    FILE *f = open_memstream(&out, &len);

    assert_int_equal(parse(text), -EINVAL);
    assert_int_equal(report.errors, 300);
    assert_int_equal(report.count, CFG_MAX_MESSAGES);
    cfg_report_print(&report, f);
    fclose(f);
    assert_non_null(strstr(out, "and 200 more"));
    free(out);
    free(text);
    done();
}

/* ---- documentation ---- */

static void check_documented(const char *text, const struct cfg_key *keys)
{
    for (; keys->name; keys++) {
        if (keys->sub)
            check_documented(text, keys->sub);
        else if (keys->kind != CFG_READ_ONLY && !strstr(text, keys->name))
            fail_msg("docs/config.md does not have: %s", keys->name);
    }
}

static void test_documented(void **state)
{
    static char text[1 << 16];
    FILE *f = fopen(TEST_DOCS "/config.md", "r");

    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
    fclose(f);
    check_documented(text, cfg_top_keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_udsp),
        cmocka_unit_test(test_enable),
        cmocka_unit_test(test_retry_count),
        cmocka_unit_test(test_gateways),
        cmocka_unit_test(test_lnetctl_router),
        cmocka_unit_test(test_lnetctl_client),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_no_effect),
        cmocka_unit_test(test_peer_credits_above),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_all_errors),
        cmocka_unit_test(test_one_net),
        cmocka_unit_test(test_printable),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_keys_in_all),
        cmocka_unit_test(test_many_errors),
        cmocka_unit_test(test_documented),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
