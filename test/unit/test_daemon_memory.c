/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a configuration takes of a machine's memory: numbers of buffers, what EAL is asked for, and
 * that a node really takes what was computed. argv[1] is the number of reactors.
 */
#include "reactor_test.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_eth/socklnd/sock_type.h"
#include "lib/lnd_verbs/ib_type.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "test/lnds_test.h"

#if defined(__SANITIZE_ADDRESS__)
size_t __sanitizer_get_current_allocated_bytes(void); /* gcc has no header for it */
#endif

#define GIB ((size_t)1 << 30)
#define NET                                                                                        \
    "net: [{net type: tcp, local NI(s): [{nid: 127.0.0.1@tcp}]}, "                                 \
    "{net type: tcp1, local NI(s): [{nid: 127.0.0.1@tcp1}]}]\n"

static int reactors;
static struct cfg *cfg;
static struct control_memory m;
static struct err err;

static void parse_all(const char *text)
{
    struct cfg_report report;

    cfg_free(cfg);
    if (cfg_parse("f", text, strlen(text), &cfg, &report) != 0)
        fail_msg("%s: %s", text, report.count ? report.message[0].text : "refused");
    cfg_report_free(&report);
    cfg->reactors = reactors;
}

static void parse(const char *text)
{
    char all[1024];

    snprintf(all, sizeof(all), NET "%s", text);
    parse_all(all);
}

static int plan(const char *text, size_t ram)
{
    parse(text);
    err.message[0] = '\0';
    return control_memory(cfg, ram, &m, &err);
}

/* The plan of what must be possible. */
static void good(const char *text, size_t ram)
{
    if (plan(text, ram) != 0)
        fail_msg("%s: %s", text, err.message);
    assert_true(m.node.landing + m.env.eal <= m.eal * CONTROL_MIB);
    assert_true((size_t)m.node.buffers[LNET_POOL_LARGE] * MEM_LANDING_SLOT +
                    (size_t)m.node.buffers[LNET_POOL_SMALL] * LNET_SMALL_BUFFER <=
                m.node.landing);
}

static unsigned even(unsigned total)
{
    return total / (unsigned)reactors * (unsigned)reactors;
}

static void is(unsigned tiny, unsigned small, unsigned large)
{
    assert_int_equal(m.node.buffers[LNET_POOL_TINY], even(tiny));
    assert_int_equal(m.node.buffers[LNET_POOL_SMALL], even(small));
    assert_int_equal(m.node.buffers[LNET_POOL_LARGE], even(large));
}

/* ---- memory: 0 ---- */

static void test_defaults(void **state)
{
    good("", 64 * GIB);
    is(2048, 16384, 1024); /* docs/protocol/lnet-core.md §4.9 */
    assert_true(m.eal >= 1024 + 64 && m.eal < 1024 + 64 + 8);
    assert_int_equal(m.unlimited, 0);
    assert_int_equal(m.for_buffers, 0);
}

static void test_counts(void **state)
{
    good("buffers: {tiny: 30, small: 60, large: 90}", 64 * GIB);
    is(30, 60, 90);
    assert_true(m.eal >= 90 && m.eal < 90 + 8);
    /* what is asked for by number is not limited by the size of the machine */
    good("buffers: {small: 60, large: 90}", 128 * CONTROL_MIB);
    is(2048, 60, 90);
    assert_int_equal(m.unlimited, 0);
}

static void test_quarter(void **state)
{
    for (size_t ram = 256; ram <= 4096; ram += 77) {
        good("", ram * CONTROL_MIB);
        assert_int_equal(m.unlimited, even(1024) + 64 + 2);
        assert_true(m.eal <= ram / 4);
        assert_true(m.eal >= ram / 4 - 2 * (unsigned)reactors - 2); /* and makes use of it */
        assert_true(m.node.buffers[LNET_POOL_LARGE] >= ram / 5 - 2 * (unsigned)reactors);
        assert_true(m.node.buffers[LNET_POOL_LARGE] < 1024);
        assert_true(m.node.buffers[LNET_POOL_SMALL] < 16384);
    }
    good("", 4400 * CONTROL_MIB);
    assert_int_equal(m.unlimited, 0);
}

/* Beside what was asked for by number the others have the rest of the quarter, or the fewest. */
static void test_quarter_and_counts(void **state)
{
    good("buffers: {small: 6400}", 2048 * CONTROL_MIB);
    is(2048, 6400, m.node.buffers[LNET_POOL_LARGE]);
    assert_in_range(m.node.buffers[LNET_POOL_LARGE], 460, 512 - 25);
    good("buffers: {large: 1000}", 2048 * CONTROL_MIB);
    is(2048, LNET_POOL_MIN * (unsigned)reactors, 1000);
    assert_int_equal(m.unlimited, even(1000) + 64 + 2);
    good("", 4 * CONTROL_MIB);
    is(2048, LNET_POOL_MIN * (unsigned)reactors, LNET_POOL_MIN * (unsigned)reactors);
}

/* ---- memory: N ---- */

static void test_memory(void **state)
{
    good("millrace: {memory: 300}", 64 * GIB);
    assert_int_equal(m.eal, 300);
    assert_in_range(m.node.buffers[LNET_POOL_LARGE], 270, 298);
    good("millrace: {memory: 300}\nbuffers: {tiny: 20, small: 200, large: 100}", 64 * GIB);
    is(20, 200, 100);
    assert_int_equal(m.eal, 300);
    assert_in_range(m.node.most[LNET_POOL_LARGE], 250, 297); /* the rest is room for more */
    assert_true(m.node.most[LNET_POOL_SMALL] > 200);
}

/* Whatever is written, it fits or is refused. */
static void test_any_memory(void **state)
{
    unsigned fit = 0;
    char text[64];

    for (unsigned mib = 1; mib < 1500; mib += 1 + mib / 16) {
        snprintf(text, sizeof(text), "millrace: {memory: %u}", mib);
        if (plan(text, 64 * GIB) != 0) {
            assert_int_equal(fit, 0); /* more is never too little */
            continue;
        }
        fit++;
        good(text, 64 * GIB);
        assert_int_equal(m.eal, mib);
    }
    assert_true(fit > 20);
}

static void check_too_little(const char *buffers, unsigned mib)
{
    char text[256];
    const char *p;
    unsigned need;

    snprintf(text, sizeof(text), "%s\nmillrace: {memory: %u}", buffers, mib);
    assert_int_equal(plan(text, 64 * GIB), -ENOMEM);
    assert_non_null(strstr(err.message, "memory: "));
    assert_true(m.eal > mib); /* what it would be, for --check to show */
    p = strstr(err.message, "write ");
    assert_non_null(p);
    need = (unsigned)atoi(p + 6);
    snprintf(text, sizeof(text), "%s\nmillrace: {memory: %u}", buffers, need);
    good(text, 64 * GIB);
    snprintf(text, sizeof(text), "%s\nmillrace: {memory: %u}", buffers, need - 2);
    assert_int_equal(plan(text, 64 * GIB), -ENOMEM); /* nor is too much asked for */
}

static void test_too_little(void **state)
{
    check_too_little("buffers: {tiny: 60, small: 600, large: 600}", 300);
    assert_non_null(strstr(err.message, " large would fit"));
    check_too_little("buffers: {large: 600}", 300);
    check_too_little("buffers: {small: 600000, large: 60}", 300);
    check_too_little("buffers: {tiny: 6, small: 6, large: 6}", 1);
}

/* ---- ports ---- */

/* Two devices, one of them with a VLAN. */
#define PORTS                                                                                      \
    "ports: [{name: p0, addresses: [10.9.0.1/24]}, {name: p1, addresses: [10.9.1.1/24]}, "         \
    "{name: v1, device: p1, vlan: 7, mtu: 9000, addresses: [10.9.2.1/24]}]"

/* What is promised to peers is there, over each device, and all of it is asked for. */
static void good_ports(const char *text, size_t ram)
{
    good(text, ram);
    assert_int_equal(m.devices, 2);
    assert_true(m.segments >= lnet_segments_least((unsigned)reactors));
    assert_true(m.port_buffers >= m.segments + 4 * CONTROL_MIB);
    assert_true(m.ports >= 2 * m.port_buffers);
    assert_true(m.node.landing + m.env.eal + m.ports <= m.eal * CONTROL_MIB);
    assert_true(m.ports_heap > 0);
}

static void test_ports(void **state)
{
    size_t without;
    unsigned pools;

    good("", 64 * GIB);
    assert_int_equal(m.devices, 0);
    assert_int_equal(m.segments, 0);
    assert_int_equal(m.ports, 0);
    assert_int_equal(m.ports_heap, 0);
    without = m.eal;
    pools = (unsigned)m.lnd[0].memory.pools;
    good_ports("millrace: {" PORTS "}", 64 * GIB);
    is(2048, 16384, 1024); /* as many router buffers as without */
    assert_in_range(m.segments, m.node.landing / 4 - 1, m.node.landing / 4);
    assert_true(m.eal > without);
    assert_true(m.lnd[0].memory.pools > pools); /* lists of segments */
}

/* Segments by number; as buffers that are written they are kept, or refused. */
static void test_segments(void **state)
{
    unsigned least = (unsigned)(lnet_segments_least((unsigned)reactors) / CONTROL_MIB) + 1;
    char text[512], want[64];

    good_ports("millrace: {segments: 600, " PORTS "}", 64 * GIB);
    assert_int_equal(m.segments, 600 * CONTROL_MIB);
    good_ports("millrace: {segments: 600, " PORTS "}", 2 * GIB);
    assert_int_equal(m.segments, 600 * CONTROL_MIB);
    snprintf(text, sizeof(text), "millrace: {segments: %u, memory: 400, " PORTS "}", least);
    good_ports(text, 64 * GIB);
    assert_int_equal(m.segments, least * CONTROL_MIB);
    assert_int_equal(m.eal, 400);
    assert_int_equal(plan("millrace: {segments: 1, " PORTS "}", 64 * GIB), -ENOMEM);
    snprintf(want, sizeof(want), "segments: 1.0 MiB are too little for %d threads", reactors);
    assert_non_null(strstr(err.message, want));
    /* Without ports there is nothing they could be of. */
    good("millrace: {segments: 600}", 64 * GIB);
    assert_int_equal(m.segments, 0);
}

/* All defaults together are within a quarter of the machine's RAM, as long as there is room for
 * the least of each. */
static void test_ports_quarter(void **state)
{
    for (size_t ram = 2048; ram <= 8192; ram += 307) {
        good_ports("millrace: {" PORTS "}", ram * CONTROL_MIB);
        assert_true(m.eal <= ram / 4 || m.unlimited == 0);
        if (m.unlimited)
            assert_true(m.eal + 6 * (unsigned)reactors + 6 >= ram / 4); /* and use is made of it */
    }
    good_ports("millrace: {" PORTS "}", 16 * CONTROL_MIB);
    is(2048, LNET_POOL_MIN * (unsigned)reactors, LNET_POOL_MIN * (unsigned)reactors);
}

static void test_ports_any_memory(void **state)
{
    unsigned fit = 0;
    char text[512];

    for (unsigned mib = 1; mib < 3000; mib += 1 + mib / 16) {
        snprintf(text, sizeof(text), "millrace: {memory: %u, " PORTS "}", mib);
        if (plan(text, 64 * GIB) != 0) {
            assert_int_equal(fit, 0); /* more is never too little */
            continue;
        }
        fit++;
        good_ports(text, 64 * GIB);
        assert_int_equal(m.eal, mib);
        /* Devices have half of what there is, unless the least takes more. */
        assert_true(2 * m.port_buffers <=
                        (size_t)mib * CONTROL_MIB / 2 + 8 * (size_t)reactors * CONTROL_MIB ||
                    m.segments == lnet_segments_least((unsigned)reactors));
    }
    assert_true(fit > 20);
}

static void test_ports_too_little(void **state)
{
    const char *p;
    unsigned need;
    char text[512];

    assert_int_equal(plan("millrace: {memory: 40, " PORTS "}", 64 * GIB), -ENOMEM);
    assert_non_null(strstr(err.message, " and ports "));
    p = strstr(err.message, "write ");
    assert_non_null(p);
    need = (unsigned)atoi(p + 6);
    assert_true(need > 40);
    snprintf(text, sizeof(text), "millrace: {memory: %u, " PORTS "}", need);
    good_ports(text, 64 * GIB);
    snprintf(text, sizeof(text), "millrace: {memory: %u, " PORTS "}", need - 2);
    assert_int_equal(plan(text, 64 * GIB), -ENOMEM);
}

/* What a device is opened with is of its first entry, with the largest MTU of all of them. */
static void test_port_opts(void **state)
{
    struct port_opts opts;

    parse("millrace: {" PORTS "}");
    assert_true(control_port_opts(cfg, 0, &opts));
    assert_string_equal(opts.name, "p0");
    assert_int_equal(opts.mtu, 0);
    assert_true(control_port_opts(cfg, 1, &opts));
    assert_string_equal(opts.name, "p1");
    assert_string_equal(opts.device, "p1");
    assert_int_equal(opts.mtu, 9000);
    assert_int_equal(opts.reactors, reactors);
    assert_false(control_port_opts(cfg, 2, &opts));
}

/* ---- warnings ---- */

static char said[2048];

static void note(const char *text)
{
    strncat(said, text, sizeof(said) - strlen(said) - 2);
    strcat(said, "\n");
}

static const char *warnings(const char *text, size_t ram)
{
    good(text, ram);
    said[0] = '\0';
    control_memory_warn(cfg, &m, note);
    return said;
}

#define ROUTES                                                                                     \
    "route: [{net: tcp7, gateway: 127.0.0.9@tcp}, {net: tcp8, gateway: 127.0.0.9@tcp}, "           \
    "{net: tcp8, gateway: 127.0.0.8@tcp}, {net: tcp9, gateway: 127.0.0.7@tcp1}]\n"

/* Connections of o2ib are planned as those of the NI whose are the largest. */
static void test_o2ib(void **state)
{
    static const char *const nis[] = {"{nid: 10.0.0.1@o2ib}",
                                      "{nid: 10.0.0.1@o2ib, lnd tunables: {concurrent_sends: 16}}",
                                      "{nid: 10.0.0.1@o2ib, tunables: {peer_credits: 16}}"};
    size_t per_conn[3];
    char text[400];

    for (unsigned i = 0; i < 3; i++) {
        snprintf(text, sizeof(text),
                 "net: [{net type: o2ib, local NI(s): [{nid: 10.0.0.2@o2ib}, %s, "
                 "{nid: 10.0.0.3@o2ib}]}]",
                 nis[i]);
        parse_all(text);
        assert_int_equal(control_memory(cfg, 64 * GIB, &m, &err), 0);
        assert_int_equal(m.lnd[1].nis, 3);
        per_conn[i] = m.lnd[1].memory.per_conn;
    }
    assert_true(per_conn[1] > per_conn[0]);
    assert_true(per_conn[2] > per_conn[1]);
}

static size_t per_conn_of(const char *tunables)
{
    char text[200];

    snprintf(text, sizeof(text),
             "net: [{net type: o2ib, local NI(s): [{nid: 10.0.0.1@o2ib, tunables: {%s}}]}]",
             tunables);
    parse_all(text);
    assert_int_equal(control_memory(cfg, 64 * GIB, &m, &err), 0);
    return m.lnd[1].memory.per_conn;
}

/* By the depth as the driver uses it, not as it is written. */
static void test_o2ib_depth(void **state)
{
    size_t least = per_conn_of("peer_credits: 8");

    (void)state;
    assert_int_equal(per_conn_of("credits: 256"), least);
    assert_int_equal(per_conn_of("peer_credits: 1"), least);
    assert_int_equal(per_conn_of("peer_credits: 16, credits: 8"), least);
    assert_int_equal(per_conn_of("peer_credits: 1000, credits: 1000"),
                     per_conn_of("peer_credits: 255"));
    assert_true(per_conn_of("peer_credits: 255") > least);
}

static void test_warnings(void **state)
{
    unsigned few = 5 * (unsigned)reactors; /* 3 gateways need 6 */
    char text[512], want[64];

    assert_string_equal(warnings(ROUTES, 64 * GIB), "");
    snprintf(text, sizeof(text), ROUTES "buffers: {tiny: 500, small: 500, large: %u}", few);
    snprintf(want, sizeof(want), "write %d or more", 6 * reactors);
    warnings(text, 64 * GIB);
    assert_non_null(strstr(said, "buffers: large: "));
    assert_non_null(strstr(said, want));
    assert_null(strstr(said, "small"));
    snprintf(text, sizeof(text), ROUTES "buffers: {tiny: %u, small: %u, large: %u}", few, few,
             6 * (unsigned)reactors);
    warnings(text, 64 * GIB);
    assert_non_null(strstr(said, "buffers: tiny: "));
    assert_non_null(strstr(said, "buffers: small: "));
    assert_null(strstr(said, "large: "));
    strcat(text, "\nrouting: {enable: 0}");
    assert_string_equal(warnings(text, 64 * GIB), "");
    /* without gateways the fewest there can be are enough */
    assert_string_equal(warnings("buffers: {tiny: 1, small: 1, large: 1}", 64 * GIB), "");
    assert_non_null(strstr(warnings("millrace: {memory: 3000}", 2 * GIB), "has 2048 MiB in all"));
}

/* ---- what is taken ---- */

static size_t heap(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return __sanitizer_get_current_allocated_bytes();
#else
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
#endif
}

/* Within a tenth and 1 MiB of what was said. */
static void near(const char *what, size_t taken, size_t computed)
{
    size_t off = computed / 10 + CONTROL_MIB;

    if (taken + off < computed || taken > computed + off)
        fail_msg("%s: %zu bytes taken, %zu computed", what, taken, computed);
}

/* EAL is asked for exactly what was computed, and a node fits into it. */
static void test_taken(void **state)
{
    struct lnet_node_opts opts;
    struct lnd_conf conf;
    void *sock;
    struct lnet_node *node;
    struct reactor_opts r = {.prog = "test", .cores = "auto"};
    size_t before;

    good("buffers: {tiny: 3000, small: 4000, large: 50}", 64 * GIB);
    r.count = (unsigned)reactors;
    r.mem_mb = m.eal;
    before = heap();
    if (reactor_env_create(&r, &env, &err) != 0)
        fail_msg("%s", err.message);
    near("reactors", heap() - before, m.env.heap);
    before = heap();
    control_node_opts(cfg, &opts);
    opts.env = env;
    opts.memory = m.for_buffers;
    if (lnet_node_create(&opts, &node, &err) != 0)
        fail_msg("%s", err.message);
    near("node", heap() - before, m.node.tables);
    before = heap();
    conf = control_lnd_conf(cfg, &lnd_sock_type);
    sock = lnd_sock_code.create(&conf);
    assert_non_null(sock);
    assert_int_equal(lnet_lnd_register(node, &lnd_sock_ops, sock), 0);
    if (lnet_ni_add(node, &cfg->ni[0].conf, NULL, &err) != 0)
        fail_msg("%s", err.message);
    near("tcp", heap() - before, m.lnd[0].memory.pools);
    lnet_node_destroy(node);
    lnd_sock_code.destroy(sock);
    reactor_env_destroy(env);
}

/* Each setting of the document comes to the driver it is for. */
static void test_verbs_opts(void **state)
{
    struct lnd_conf conf;
    struct verbs_opts o;

    (void)state;
    parse("millrace: {min_reconnect: 3, max_reconnect: 7, verbs: {service: 1001, keepalive: 11, "
          "retry_count: 2, rnr_retry_count: 4, require_privileged_port: true, "
          "use_privileged_port: false, max_connections: 99}}\n");
    conf = control_lnd_conf(cfg, &lnd_verbs_type);
    o = lnd_verbs_opts(&conf);
    assert_int_equal(o.min_reconnect, 3);
    assert_int_equal(o.max_reconnect, 7);
    assert_int_equal(o.service, 1001);
    assert_int_equal(o.keepalive, 11);
    assert_int_equal(o.retry_count, 2);
    assert_int_equal(o.rnr_retry_count, 4);
    assert_true(o.require_privileged_port);
    assert_false(o.use_privileged_port);
    assert_int_equal(o.max_conns, 99);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_quarter),
        cmocka_unit_test(test_quarter_and_counts),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_any_memory),
        cmocka_unit_test(test_too_little),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_ports_quarter),
        cmocka_unit_test(test_ports_any_memory),
        cmocka_unit_test(test_ports_too_little),
        cmocka_unit_test(test_port_opts),
        cmocka_unit_test(test_o2ib),
        cmocka_unit_test(test_o2ib_depth),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_verbs_opts),
        cmocka_unit_test(test_taken), /* EAL is only there once */
    };
    int failed;

    reactors = argc > 1 ? atoi(argv[1]) : 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cfg_free(cfg);
    return failed;
}
