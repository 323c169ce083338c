/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace: ports:` : reading, checking, writing, differences, saving, and what may change when.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/save.h"
#include "config/write.h"
#include "control/diff.h"
#include "control/plan.h"
#include "control/running.h"
#include "lib/base/err.h"
#include "test/lnds_test.h"

#define NI(nid) "net: [{net type: tcp, local NI(s): [{nid: '" nid "@tcp'}]}]\n"
#define PORTS(items)                                                                               \
    NI("10.0.0.1") "millrace: {ports: [{name: p0, addresses: [10.0.0.1/24]}, " items "]}\n"

static struct cfg *cfg;
static struct cfg_report report;

static int parse_onto(const char *text, enum cfg_mode mode, const struct cfg *base)
{
    struct cfg_text from = {
        .name = "f", .text = text, .len = strlen(text), .mode = mode, .base = base};

    return cfg_parse_onto(&from, &cfg, &report);
}

static void done(void)
{
    cfg_report_free(&report);
    cfg_free(cfg);
    cfg = NULL;
}

static void good(const char *text)
{
    if (parse_onto(text, CFG_REPLACE, NULL) != 0)
        fail_msg("%s\n  said: %s", text, report.message[0].text);
}

static void test_every_key(void **state)
{
    char text[CFG_PREFIX_SIZE];
    const struct cfg_port *p;

    good(
        "net: [{net type: tcp, local NI(s): [{interfaces: {0: client}}]},"
        "      {net type: tcp1, local NI(s): [{nid: 'fd00::1@tcp1'}]}]\n"
        "millrace:\n"
        "  congestion: newreno\n"
        "  segments: 300\n"
        "  ports:\n"
        "    - name: client\n"
        "      device: eth0\n"
        "      mtu: 9000\n"
        "      addresses: [10.0.0.1/24, 'FD00:0::1/64', 10.0.0.2/24]\n"
        "      gateway: [10.0.0.254, 'fe80::1']\n"
        "      routes: [{to: 10.2.0.0/16, via: 10.0.0.253}, {to: 'fd01::/48', via: 'fd00::9'}]\n"
        "    - {name: server, device: eth0, vlan: 100, addresses: 10.1.0.1/24, gateway: 10.1.0.9}\n"
        "    - {name: rail2, device: '0000:3b:00.0,dv_flow_en=1', addresses: [10.3.0.1/31],\n"
        "       duplicate_check: false}\n"
        "    - {name: mem, device: 'net_memif0,role=client', addresses: ['fe80::5/64']}\n");
    assert_int_equal(report.errors, 0);
    assert_int_equal(cfg->congestion, 1);
    assert_int_equal(cfg->segments, 300);
    assert_int_equal(cfg->port_count, 4);
    p = cfg_find_port(cfg, "client");
    assert_ptr_equal(p, &cfg->port[0]);
    assert_string_equal(cfg_port_device(p), "eth0");
    assert_int_equal(p->mtu, 9000);
    assert_int_equal(p->vlan, 0);
    assert_int_equal(p->duplicate_check, 1);
    assert_int_equal(p->address_count, 3);
    assert_string_equal(cfg_prefix_text(&p->address[0], text), "10.0.0.1/24");
    assert_string_equal(cfg_prefix_text(&p->address[1], text), "fd00::1/64");
    assert_int_equal(p->gateway_count, 2);
    assert_string_equal(cfg_addr_text(&p->gateway[1], text), "fe80::1");
    assert_int_equal(p->route_count, 2);
    assert_string_equal(cfg_prefix_text(&p->route[1].to, text), "fd01::/48");
    assert_string_equal(cfg_addr_text(&p->route[1].via, text), "fd00::9");
    assert_int_equal(cfg->port[1].vlan, 100);
    assert_int_equal(cfg->port[1].gateway_count, 1);
    assert_false(cfg_port_is_pci(&cfg->port[1]));
    assert_true(cfg_port_is_pci(&cfg->port[2]));
    assert_int_equal(cfg->port[2].duplicate_check, 0);
    assert_false(cfg_port_is_pci(&cfg->port[3]));
    assert_null(cfg_find_port(cfg, "eth0"));
    assert_ptr_equal(cfg_port_of(cfg, &cfg->ni[0]), &cfg->port[0]);
    assert_ptr_equal(cfg_port_of(cfg, &cfg->ni[1]), &cfg->port[0]); /* by its address */
    done();
}

static void test_defaults(void **state)
{
    good(NI("10.0.0.1"));
    assert_int_equal(cfg->port_count, 0);
    assert_int_equal(cfg->congestion, 0);
    assert_int_equal(cfg->segments, 0);
    assert_null(cfg_port_of(cfg, &cfg->ni[0]));
    done();
}

static const char *const good_texts[] = {
    /* host and port side by side */
    "net: [{net type: tcp, local NI(s): [{interfaces: {0: p0}}, {interfaces: {0: eth1}}]}]\n"
    "millrace: {ports: {name: p0, addresses: 10.0.0.1/24}}\n",
    /* a port without NI: one may come at run time */
    PORTS("{name: p1, addresses: [10.1.0.1/24]}"),
    /* one address, several nets */
    "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]},"
    " {net type: tcp1, local NI(s): [{nid: 10.0.0.1@tcp1}]}]\n"
    "millrace: {ports: [{name: p0, addresses: [10.0.0.1/24]}]}\n",
    /* link-local addresses are of their link */
    PORTS("{name: p1, addresses: ['fe80::1/64']}, {name: p2, addresses: ['fe80::1/64']}"),
    /* nets without a broadcast address */
    PORTS("{name: p1, addresses: [10.1.0.0/31]}, {name: p2, addresses: [10.1.0.255/32]}"),
    PORTS("{name: p1, device: 3b:00.1, addresses: [10.1.0.1/24]}"),
    PORTS("{name: eth0.5, device: eth0, vlan: 4094, mtu: 576, addresses: [10.1.0.1/24]}"),
};

static void test_good(void **state)
{
    for (size_t i = 0; i < sizeof(good_texts) / sizeof(good_texts[0]); i++) {
        good(good_texts[i]);
        done();
    }
}

static const struct {
    const char *text, *want;
} bad[] = {
    {PORTS("{addresses: [10.1.0.1/24]}"), "f:2: millrace.ports[1]: has no 'name'"},
    {PORTS("5"), "has no 'name'"},
    {PORTS("{name: [], addresses: [10.1.0.1/24]}"), "write one value"},
    {PORTS("{name: '', addresses: [10.1.0.1/24]}"), "'' cannot be a port's name"},
    {PORTS("{name: ~, addresses: [10.1.0.1/24]}"), "has no value"},
    {PORTS("{name: a/b, addresses: [10.1.0.1/24]}"), "'a/b' cannot be a port's name"},
    {PORTS("{name: abcdefghijklmnop, addresses: [10.1.0.1/24]}"), "up to 15 letters"},
    {PORTS("{name: p1, adresses: [10.1.0.1/24]}"), "did you mean 'addresses'"},
    {PORTS("{name: p1}"), "ports: p1 has no address"},
    {PORTS("{name: p0, device: eth9, addresses: [10.1.0.1/24]}"),
     "the name p0 is already on line 2"},
    /* device */
    {PORTS("{name: p1, device: 'eth 0', addresses: [10.1.0.1/24]}"), "cannot be a device"},
    {PORTS("{name: p1, device: abcdefghijklmnop, addresses: [10.1.0.1/24]}"),
     "neither an interface's name (up to 15"},
    {PORTS("{name: p1, device: 'eth0,x=1', addresses: [10.1.0.1/24]}"), "neither an interface's"},
    {PORTS("{name: p1, device: p0, addresses: [10.1.0.1/24]}"), "device p0 is already p0"},
    {PORTS("{name: p1, device: e, vlan: 7, addresses: [10.1.0.1/24]}, "
           "{name: p2, device: e, vlan: 7, addresses: [10.2.0.1/24]}"),
     "VLAN 7 of e is already p1"},
    {PORTS("{name: p1, mtu: 575, addresses: [10.1.0.1/24]}"), "from 576 to 9000"},
    {PORTS("{name: p1, mtu: 9001, addresses: [10.1.0.1/24]}"), "from 576 to 9000"},
    {PORTS("{name: p1, mtu: 1279, addresses: ['fd00::1/64']}"), "IPv6 needs an mtu of 1280"},
    {PORTS("{name: p1, vlan: 4095, addresses: [10.1.0.1/24]}"), "from 0 to 4094"},
    {PORTS("{name: p1, duplicate_check: maybe, addresses: [10.1.0.1/24]}"), "neither true nor"},
    /* addresses */
    {PORTS("{name: p1, addresses: [10.1.0.1]}"), "'10.1.0.1' is not an address with the length"},
    {PORTS("{name: p1, addresses: [10.1.0.1/33]}"), "is not an address with"},
    {PORTS("{name: p1, addresses: [10.1.0.1/]}"), "is not an address with"},
    {PORTS("{name: p1, addresses: [10.1.0.1/ 8]}"), "is not an address with"},
    {PORTS("{name: p1, addresses: [10.1.0.1/+8]}"), "is not an address with"},
    {PORTS("{name: p1, addresses: [10.1.0.1/0008]}"), "is not an address with"},
    {PORTS("{name: p1, addresses: ['fd00::1/129']}"), "is not an address with"},
    {PORTS("{name: p1, addresses: ['::ffff:10.1.0.1/128']}"), "is not an address with"},
    {PORTS("{name: p1, addresses: ['fe80::1%eth0/64']}"), "is not an address with"},
    {PORTS("{name: p1, addresses: [{a: b}]}"), "write one value"},
    {PORTS("{name: p1, addresses: [10.1.0.1/0]}"), "has a net that is everything"},
    {PORTS("{name: p1, addresses: [10.1.0.0/24]}"), "is the net itself"},
    {PORTS("{name: p1, addresses: [10.1.0.255/24]}"), "is the net's broadcast address"},
    {PORTS("{name: p1, addresses: [0.1.0.1/24]}"), "is of this network only"},
    {PORTS("{name: p1, addresses: [127.0.0.1/8]}"), "is a loopback address"},
    {PORTS("{name: p1, addresses: [224.0.0.1/24]}"), "is a multicast or reserved address"},
    {PORTS("{name: p1, addresses: ['::/64']}"), "is no address"},
    {PORTS("{name: p1, addresses: ['::1/128']}"), "is a loopback address"},
    {PORTS("{name: p1, addresses: ['ff02::1/64']}"), "is a multicast address"},
    {PORTS("{name: p1, addresses: [10.0.0.1/24]}"), "10.0.0.1 is already on p0"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24, 10.1.0.1/25]}"), "10.1.0.1 is already on p1"},
    {PORTS("{name: p1, addresses: ['fe80::1/64', 'fe80::1/10']}"), "fe80::1 is already on p1"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24,10.1.0.2/24,10.1.0.3/24,10.1.0.4/24,10.1.0.5/24,"
           "10.1.0.6/24,10.1.0.7/24,10.1.0.8/24,10.1.0.9/24,10.1.0.10/24,10.1.0.11/24,10.1.0.12/24,"
           "10.1.0.13/24,10.1.0.14/24,10.1.0.15/24,10.1.0.16/24,10.1.0.17/24]}"),
     "one address too many; at most 16"},
    /* gateways and routes */
    {PORTS("{name: p1, addresses: [10.1.0.1/24], gateway: x}"), "'x' is not an IP address"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], gateway: 10.1.0.9/24}"), "is not an IP address"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], gateway: [10.1.0.8, 10.1.0.9]}"),
     "is a second gateway for IPv4"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], gateway: 10.2.0.1}"),
     "gateway 10.2.0.1 is on no net of this port"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], gateway: 10.1.0.1}"),
     "gateway 10.1.0.1 is the port's own address"},
    {PORTS("{name: p1, addresses: ['fd00::1/61'], gateway: 'fd00:0:0:8::1'}"), "is on no net"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], gateway: 255.255.255.255}"), "multicast or"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 10.2.0.0/16}]}"),
     "needs 'to' and 'via'"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{via: 10.1.0.9}]}"), "needs 'to' and"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 10.2.0.0, via: 10.1.0.9}]}"),
     "millrace.ports[1].routes[0].to: '10.2.0.0' is not an address with the length"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 10.2.0.1/16, via: 10.1.0.9}]}"),
     "has bits behind the length of its net"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 10.2.0.0/16, via: 10.3.0.9}]}"),
     "route via 10.3.0.9 is on no net of this port"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 'fd00::/16', via: 10.1.0.9}]}"),
     "of different families"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 0.0.0.0/0, via: 10.1.0.9}]}"),
     "is for all; write gateway: instead"},
    {PORTS("{name: p1, addresses: [10.1.0.1/24], routes: [{to: 10.2.0.0/16, via: 10.1.0.9}, "
           "{to: 10.2.0.0/16, via: 10.1.0.8}]}"),
     "two routes to 10.2.0.0/16"},
    /* NIs */
    {"net: [{net type: tcp, local NI(s): [{nid: 10.0.0.9@tcp, interfaces: {0: p0}}]}]\n"
     "millrace: {ports: [{name: p0, addresses: [10.0.0.1/24]}]}\n",
     "f:1: net: the address of 10.0.0.9@tcp is not on port p0"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: eth0}}]}]\n"
     "millrace: {ports: [{name: p0, device: eth0, addresses: [10.0.0.1/24]}]}\n",
     "interface eth0 is the device of port p0; write interfaces: {0: p0}"},
    {"net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp, interfaces: {0: eth1}}]}]\n"
     "millrace: {ports: [{name: p0, addresses: [10.0.0.1/24]}]}\n",
     "the address of 10.0.0.1@tcp is on port p0, not on interface eth1"},
    {"net: [{net type: tcp, local NI(s): [{interfaces: {0: p0}}]}]\n"
     "millrace: {ports: [{name: p0, addresses: ['fe80::1/64']}]}\n",
     "port p0 has only addresses of its link"},
    /* the rest */
    {NI("10.0.0.1") "millrace: {congestion: bbr}\n", "write one of: cubic, newreno"},
    {NI("10.0.0.1") "millrace: {segments: -1}\n", "out of range"},
};

static bool reported(const char *want)
{
    for (unsigned i = 0; i < report.count; i++)
        if (strstr(report.message[i].text, want))
            return true;
    return false;
}

static void test_bad(void **state)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (parse_onto(bad[i].text, CFG_REPLACE, NULL) != -EINVAL || cfg)
            fail_msg("accepted: %s", bad[i].text);
        if (!reported(bad[i].want))
            fail_msg("%s\n  said: %s\n  want: %s", bad[i].text,
                     report.count ? report.message[0].text : "nothing", bad[i].want);
        done();
    }
}

/* count ports p0, p1, … on so many devices, each with as many routes. */
static char *many(unsigned count, unsigned devices, unsigned routes)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    assert_non_null(to);
    fputs(NI("10.0.0.1") "millrace:\n  ports:\n", to);
    for (unsigned i = 0; i < count; i++) {
        fprintf(to, "  - {name: p%u, device: e%u, vlan: %u, addresses: [10.0.%u.1/24], routes: [",
                i, i % devices, i / devices + 1, i);
        for (unsigned j = 0; j < routes; j++)
            fprintf(to, "%s{to: 11.%u.%u.0/24, via: 10.0.%u.9}", j ? ", " : "", i, j, i);
        fputs("]}\n", to);
    }
    assert_int_equal(fclose(to), 0);
    return text;
}

static void test_limits(void **state)
{
    static const struct {
        unsigned count, devices, routes;
        const char *want; /* NULL: it is good */
    } rows[] = {
        {CFG_MAX_PORTS, CFG_MAX_DEVICES, 0, NULL},
        {CFG_MAX_PORTS + 1, CFG_MAX_DEVICES, 0, "is one port too many; at most 64"},
        {CFG_MAX_DEVICES + 1, CFG_MAX_DEVICES + 1, 0, "17 devices are too many; at most 16"},
        {4, 1, CFG_PORT_ROUTES, NULL},
        {1, 1, CFG_PORT_ROUTES + 1, "is one route too many; at most 64"},
        {5, 1, 52, "260 routes and gateways are too many; at most 256"},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = many(rows[i].count, rows[i].devices, rows[i].routes);
        int rc = parse_onto(text, CFG_REPLACE, NULL);

        assert_int_equal(rc, rows[i].want ? -EINVAL : 0);
        if (rows[i].want && !reported(rows[i].want))
            fail_msg("said: %s", report.message[0].text);
        done();
        free(text);
    }
}

/* ---- written, and read again ---- */

#define ALL                                                                                        \
    NI("10.0.0.1")                                                                                 \
    "millrace:\n"                                                                                  \
    "    ports:\n"                                                                                 \
    "        - name: p0\n"                                                                         \
    "          device: eth0\n"                                                                     \
    "          mtu: 9000\n"                                                                        \
    "          vlan: 7\n"                                                                          \
    "          addresses:\n"                                                                       \
    "              - 10.0.0.1/24\n"                                                                \
    "              - fd00::1/64\n"                                                                 \
    "          gateway:\n"                                                                         \
    "              - \"10.0.0.254\"\n"                                                             \
    "              - fd00::fe\n"                                                                   \
    "          routes:\n"                                                                          \
    "              - to: 10.2.0.0/16\n"                                                            \
    "                via: \"10.0.0.253\"\n"                                                        \
    "          duplicate_check: false\n"                                                           \
    "        - name: p1\n"                                                                         \
    "          addresses:\n"                                                                       \
    "              - 10.1.0.1/24\n"                                                                \
    "          gateway: \"10.1.0.254\"\n"

static void test_written(void **state)
{
    static const enum cfg_form forms[] = {CFG_FORM_RUNNING, CFG_FORM_BACKUP, CFG_FORM_FILE};
    struct cfg *first;
    struct cfg_diff diff;

    good(ALL);
    first = cfg_copy(cfg);
    done();
    for (unsigned i = 0; i < 3; i++) {
        char *text = cfg_text(first, forms[i]);

        if (forms[i] == CFG_FORM_FILE)
            assert_string_equal(strstr(text, "millrace:"), strstr(ALL, "millrace:"));
        good(text);
        cfg_diff_make(first, cfg, &diff);
        assert_int_equal(diff.count, 0);
        assert_int_equal(cfg->port_count, 2);
        cfg_diff_free(&diff);
        free(text);
        done();
    }
    cfg_free(first);
    /* What has no ports says nothing of them. */
    good(NI("10.0.0.1"));
    for (unsigned i = 0; i < 3; i++) {
        char *text = cfg_text(cfg, forms[i]);

        assert_null(strstr(text, "ports"));
        free(text);
    }
    done();
}

/* ---- merged and deleted ---- */

static void test_merge_and_delete(void **state)
{
    struct cfg *base;
    struct cfg_diff diff;

    good(ALL);
    base = cfg_copy(cfg);
    done();
    /* What is named changes, the rest stays; what is new is added. */
    assert_int_equal(parse_onto("millrace: {ports: [{name: p0, mtu: 1500, gateway: []}, "
                                "{name: p2, addresses: [10.3.0.1/24]}]}\n",
                                CFG_MERGE, base),
                     0);
    assert_int_equal(cfg->port_count, 3);
    assert_int_equal(cfg->port[0].mtu, 1500);
    assert_int_equal(cfg->port[0].vlan, 7);
    assert_int_equal(cfg->port[0].address_count, 2);
    assert_int_equal(cfg->port[0].gateway_count, 0);
    assert_int_equal(cfg->port[0].route_count, 1);
    assert_string_equal(cfg->port[2].name, "p2");
    done();
    /* The same again is the same. */
    assert_int_equal(parse_onto(ALL, CFG_MERGE, base), 0);
    cfg_diff_make(base, cfg, &diff);
    assert_int_equal(diff.count, 0);
    cfg_diff_free(&diff);
    done();
    assert_int_equal(parse_onto("millrace: {ports: [{name: p0}]}\n", CFG_DELETE, base), 0);
    assert_int_equal(cfg->port_count, 1);
    assert_string_equal(cfg->port[0].name, "p1");
    done();
    assert_int_equal(parse_onto("millrace: {ports: [{name: p7}]}\n", CFG_DELETE, base), -EINVAL);
    assert_true(reported("there is no port p7 to be removed"));
    done();
    /* Twice in one text is not a merge of the two. */
    assert_int_equal(parse_onto("millrace: {ports: [{name: p7, addresses: [10.7.0.1/24]}, "
                                "{name: p7, vlan: 3, device: p7, addresses: [10.7.0.2/24]}]}\n",
                                CFG_MERGE, base),
                     -EINVAL);
    assert_true(reported("the name p7 is already on line 1"));
    done();
    cfg_free(base);
}

/* ---- differences ---- */

static struct cfg *parsed(const char *text)
{
    struct cfg *out;

    good(text);
    out = cfg;
    cfg = NULL;
    done();
    return out;
}

static void test_diff(void **state)
{
    struct cfg *a = parsed(ALL), *b;
    struct cfg_diff diff;
    char *text;

    b = parsed(NI(
        "10.0.0.1") "millrace: {congestion: newreno, ports: [{name: p2, addresses: [10.4.0.1/24]}, "
                    "{name: p1, addresses: [10.1.0.1/24], mtu: 9000}]}\n");
    cfg_diff_make(a, b, &diff);
    text = cfg_diff_text(&diff);
    assert_string_equal(
        text,
        "- millrace.ports[p0]: eth0 mtu 9000 vlan 7 10.0.0.1/24 fd00::1/64 gateway 10.0.0.254 gateway "
        "fd00::fe route 10.2.0.0/16 via 10.0.0.253 without duplicate_check  (restart)\n"
        "~ millrace.ports[p1]: p1 10.1.0.1/24 gateway 10.1.0.254 -> p1 mtu 9000 10.1.0.1/24  "
        "(restart)\n"
        "+ millrace.ports[p2]: p2 10.4.0.1/24  (restart)\n"
        "~ millrace.congestion: cubic -> newreno  (restart)\n");
    free(text);
    cfg_diff_free(&diff);
    cfg_free(b);
    cfg_free(a);
}

/* ---- a running node ---- */

static void live(void *arg, struct cfg_ni *ni)
{
}

/* Ports stand fast while it runs; an NI on one of them comes and goes. Before the node is started
 * they may change. */
static void test_running(void **state)
{
    static const struct cfg_ops ops = {.live = live};
    struct cfg_running *running = cfg_running_new(parsed(ALL), NULL);
    struct cfg *to =
        parsed(NI("10.0.0.1") "millrace: {ports: [{name: p0, addresses: [10.0.0.1/24]}]}\n");
    struct cfg_diff diff;
    struct cfg_plan plan;
    struct err err = {0};

    cfg_diff_make(cfg_running_get(running), to, &diff);
    assert_int_equal(cfg_running_check(running, &diff, &err), 0);
    cfg_running_started(running, &ops, NULL);
    assert_int_equal(cfg_running_check(running, &diff, &err), -EOPNOTSUPP);
    assert_string_equal(err.message,
                        "millrace.ports[p0], millrace.ports[p1] cannot change while it runs; "
                        "write it to the file and restart, or leave it as it is");
    cfg_diff_free(&diff);
    cfg_free(to);

    assert_int_equal(parse_onto("net: [{net type: tcp2, local NI(s): [{interfaces: {0: p1}}]}]\n",
                                CFG_MERGE, cfg_running_get(running)),
                     0);
    cfg_diff_make(cfg_running_get(running), cfg, &diff);
    assert_int_equal(cfg_running_check(running, &diff, &err), 0);
    cfg_plan_make(cfg_running_get(running), cfg, &diff, &plan);
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.step[0].kind, CFG_STEP_NI_ADD);
    cfg_plan_free(&plan);
    cfg_diff_free(&diff);
    done();
    cfg_running_free(running);
}

/* ---- saving ---- */

#define HAND                                                                                       \
    "# router 7\n" NI(                                                                             \
        "10.0.0.1") "millrace:\n"                                                                  \
                    "  # upper card\n"                                                             \
                    "  ports:\n"                                                                   \
                    "    - name: p0        # clients\n"                                            \
                    "      device: eth0\n"                                                         \
                    "      addresses: [10.0.0.1/24, 10.0.0.3/24, fd00::1/64]  # both\n"            \
                    "      gateway: 10.0.0.254\n"                                                  \
                    "      routes:\n"                                                              \
                    "        - {to: 10.2.0.0/16, via: 10.0.0.253} # far\n"                         \
                    "        - {to: 10.3.0.0/16, via: 10.0.0.253}\n"                               \
                    "    # lower card\n"                                                           \
                    "    - {name: p1, addresses: [10.1.0.1/24]}   # servers\n"                     \
                    "# end\n"

static void same_as_by_hand(const char *from, const char *to)
{
    const char *at = strstr(HAND, from);
    struct err err = {0};
    char *want = NULL, *got = NULL;
    enum cfg_saved how;

    assert_non_null(at);
    assert_true(asprintf(&want, "%.*s%s%s", (int)(at - HAND), HAND, to, at + strlen(from)) > 0);
    good(want);
    if (cfg_save_text("f", HAND, strlen(HAND), cfg, &got, &how, &err) != 0)
        fail_msg("%s", err.message);
    assert_string_equal(got, want);
    assert_int_equal(how, CFG_SAVED_PATCHED);
    free(got);
    free(want);
    done();
}

static void test_saved(void **state)
{
    same_as_by_hand("      gateway: 10.0.0.254\n", "");
    same_as_by_hand("gateway: 10.0.0.254", "gateway: \"10.0.0.252\"");
    same_as_by_hand("10.0.0.3/24, ", "");
    same_as_by_hand("fd00::1/64]", "fd00::1/64, 10.0.0.2/24]");
    same_as_by_hand("10.2.0.0/16, via: 10.0.0.253", "10.2.0.0/16, via: \"10.0.0.252\"");
    same_as_by_hand("        - {to: 10.3.0.0/16, via: 10.0.0.253}\n", "");
    same_as_by_hand("    - {name: p1, addresses: [10.1.0.1/24]}   # servers\n", "");
    same_as_by_hand("addresses: [10.1.0.1/24]}",
                    "addresses: [10.1.0.1/24], gateway: \"10.1.0.9\"}");
    same_as_by_hand("   # servers\n",
                    "   # servers\n    - name: p2\n      addresses:\n        - 10.5.0.1/24\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_good),      cmocka_unit_test(test_bad),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_written),
        cmocka_unit_test(test_diff),      cmocka_unit_test(test_merge_and_delete),
        cmocka_unit_test(test_running),   cmocka_unit_test(test_saved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
