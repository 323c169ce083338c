/* SPDX-License-Identifier: BSD-3-Clause */
/* Which NIs rules of ip2nets give a machine, as a list and as the text of the module option. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config_internal.h"
#include "config/ip2nets.h"
#include "config/netspec.h"
#include "lib/base/err.h"
#include "test/lnds_test.h"

static const struct cfg_address machine[] = {
    {"eth0", {172, 16, 0, 9}}, {"eth1", {192, 168, 0, 2}}, {"eth1", {192, 168, 0, 3}},
    {"eth2", {134, 32, 1, 6}}, {"ib0", {10, 0, 4, 7}},     {"ib1", {10, 1, 4, 7}},
};

static struct cfg *cfg;
static struct cfg_report report;

static int parse(const char *text)
{
    struct cfg_text from = {.name = "f",
                            .text = text,
                            .len = strlen(text),
                            .address = machine,
                            .address_count = sizeof(machine) / sizeof(machine[0])};

    return cfg_parse_onto(&from, &cfg, &report);
}

static void done(void)
{
    cfg_free(cfg);
    cfg_report_free(&report);
    cfg = NULL;
}

/* "tcp(eth1) o2ib1(ib0)[0,1]" */
static const char *nis(void)
{
    static char text[2048];
    char net[LNET_NETSTR_SIZE];
    size_t len = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < cfg->ni_count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s(%s)%s", i ? " " : "",
                                net_format(cfg->ni[i].conf.net, net), cfg->ni[i].conf.ifname,
                                cfg->ni[i].cpt);
    return text;
}

static void gives(const char *text, const char *want)
{
    if (parse(text) != 0)
        fail_msg("%s\nrefused: %s", text, report.count ? report.message[0].text : "no reason");
    assert_string_equal(nis(), want);
    done();
}

static void says(const char *text, const char *want)
{
    int rc = parse(text);
    unsigned i;

    for (i = 0; i < report.count; i++)
        if (strstr(report.message[i].text, want))
            break;
    if (i == report.count)
        fail_msg("%s\nsaid: %s\nnot: %s", text, i ? report.message[0].text : "nothing", want);
    assert_int_equal(rc, report.errors ? -EINVAL : 0);
    assert_int_equal(report.message[i].error, !strstr(report.message[i].text, "warning: "));
    done();
}

#define TEXT(rules) "ip2nets: \"" rules "\"\n"

static void test_text(void **state)
{
    gives(TEXT("tcp(eth1) 192.168.0.*"), "tcp(eth1)");
    gives(TEXT("tcp 172.16.*.*"), "tcp(eth0)");
    gives(TEXT("tcp0(eth1) 192.168.0.[1-5]; o2ib1(ib0) 10.0.*.[1-8/2]"), "tcp(eth1) o2ib1(ib0)");
    gives(TEXT("tcp0(eth1) 192.168.0.[1-5]; o2ib1(ib0) 10.0.*.[2-8/2]"), "tcp(eth1)");
    /* the address chooses the machine, not the interface */
    gives(TEXT("tcp(eth0),o2ib(ib1,ib0) 134.32.1.6"), "tcp(eth0) o2ib(ib1) o2ib(ib0)");
    /* any pattern will do; several addresses of an interface make one NI of it */
    gives(TEXT("tcp1(eth7) 1.2.3.4 10.0.0.0/8 *.*.*.0"), "tcp1(eth7)");
}

static void test_first_rule_counts(void **state)
{
    gives(TEXT("tcp(eth2) 134.32.1.[4-10/2]; tcp(eth1) *.*.*.*"), "tcp(eth2)");
    gives(TEXT("tcp(eth2) 134.32.1.[5-10/2]; tcp(eth1) *.*.*.*"), "tcp(eth1)");
    gives(TEXT("tcp(eth2),o2ib(ib0) 134.32.1.6; tcp(eth1),o2ib1(ib1) *.*.*.*"),
          "tcp(eth2) o2ib(ib0) o2ib1(ib1)");
    /* of a list all count */
    gives("ip2nets: [{net-spec: tcp, interfaces: {0: eth0}, ip-range: {0: '*.*.*.*'}},"
          " {net-spec: tcp, interfaces: {0: eth1}, ip-range: {0: '*.*.*.*'}}]",
          "tcp(eth0) tcp(eth1)");
}

static void test_text_layout(void **state)
{
    gives(
        TEXT("# all of them; tcp(eth0)  172.16.0.9 # this one; ; lo 10.0.*.*; o2ib(ib0) 10.0.*.*"),
        "tcp(eth0) o2ib(ib0)");
    gives("ip2nets: |\n  tcp(eth0, eth1), tcp1(eth2)\t*.*.*.*\n  # nothing\n  o2ib(ib0) 10.*.*.*\n",
          "tcp(eth0) tcp(eth1) tcp1(eth2) o2ib(ib0)");
    gives(TEXT("o2ib(ib0[0,1],ib1)[2-3] 10.0.*.*"), "o2ib(ib0)[0,1] o2ib(ib1)[2-3]");
    gives(TEXT("o2ib[1] 10.0.*.*"), "o2ib(ib0)[1]");
}

static void test_list(void **state)
{
    gives("ip2nets:\n  - {net-spec: tcp1, ip-range: {0: 10.9.0.0/16, 1: 192.168.0.0/24}}\n"
          "  - net-spec: o2ib\n    interfaces: {0: ib0, 1: ib1}\n    ip-range: {0: '10.0.*.*'}\n"
          "    CPT: '[0]'\n",
          "tcp1(eth1) o2ib(ib0)[0] o2ib(ib1)[0]");
    assert_int_equal(parse("ip2nets: {net-spec: tcp, ip-range: {0: 172.16.0.9/32},"
                           " tunables: {credits: 7}, lnd tunables: {conns_per_peer: 3}}"),
                     0);
    assert_int_equal(cfg->ni[0].conf.tun.credits, 7);
    assert_int_equal(cfg->ni[0].conf.lnd_tun.conns_per_peer, 3);
    assert_true(cfg->ni[0].by_rule);
    assert_int_equal(report.warnings, 1); /* one net: nothing to route between */
    done();
}

static void test_said(void **state)
{
    says(TEXT("tcp 134.32.*.*"),
         "takes its first one, eth0; name the one that is meant, as in tcp(eth2)");
    says(TEXT("tcp 9.9.9.9"), "f:1: warning: ip2nets: no rule matches an address of this machine");
    says(TEXT("tcp(eth0)"), "f:1: ip2nets: 'tcp(eth0)' has no pattern of addresses");
    says(TEXT("tcp 10.0.*"), "'10.0.*' is no pattern");
    says(TEXT("tcp 10.0.0.[3-1]"), "'10.0.0.[3-1]' is no pattern");
    says(TEXT("tcp 10.0.0.0/33"), "'10.0.0.0/33' is no pattern");
    says(TEXT("tcp 10.0.0.256"), "'10.0.0.256' is no pattern");
    says(TEXT("tcpp 10.0.*.*"), "'tcpp' is not a net");
    says(TEXT("tcp(eth0),tcp0(eth1) *.*.*.*"), "net tcp stands twice in one rule");
    /* also what would not hold here */
    says(TEXT("tcp(eth0 9.9.9.9"), "has no pattern of addresses");
    says(TEXT("tcp(eth0)x 9.9.9.9"), "'x' cannot stand after a net");
    says(TEXT("tcp() 9.9.9.9"), "no interface can be read");
    says(TEXT("tcp(eth0[a]) 9.9.9.9"), "is not a list of CPTs");
    says(TEXT("tcp(averylonginterface) 9.9.9.9"), "no interface can be read");
    says(TEXT("tcp(eth0), 9.9.9.9"), "has no pattern");
    says("ip2nets: [{net-spec: tcp}]", "f:1: ip2nets[0]: has no 'ip-range'");
    says("ip2nets: [{ip-range: {0: 1.2.3.4}}]", "has no 'net-spec'");
    says("ip2nets: [{net-spec: tcp, ip-range: 1.2.3.4}]", "ip-range: must be a mapping");
    says("ip2nets: [{net-spec: tcp, interfaces: [a]}]", "interfaces: must be a mapping");
    says("ip2nets: [{net-spec: tcp, interfaces: {0: a/b}, ip-range: {0: 1.2.3.4}}]",
         "'a/b' cannot be an interface name");
    says("ip2nets: [{net-spec: tcp, ip-ranges: {0: 1.2.3.4}}]", "did you mean 'ip-range'");
}

/* Too much of anything is refused; nothing is silently left out. */
static void test_bounds(void **state)
{
    char *text = malloc(70000);
    unsigned len;

    len = (unsigned)sprintf(text, "ip2nets: \"");
    for (unsigned i = 0; i < 513; i++)
        len += (unsigned)sprintf(text + len, ";");
    sprintf(text + len, "\"");
    says(text, "has more than 512 rules");
    len = (unsigned)sprintf(text, "ip2nets: \"tcp(eth0) ");
    for (unsigned i = 0; i < 65; i++)
        len += (unsigned)sprintf(text + len, " 1.1.1.1");
    sprintf(text + len, "\"");
    says(text, "one too many; at most 64");
    len = (unsigned)sprintf(text, "ip2nets: \"");
    for (unsigned i = 0; i < 65; i++)
        len += (unsigned)sprintf(text + len, "tcp%u(eth0) *.*.*.*;", i);
    sprintf(text + len, "\"");
    says(text, "gives more than 64 nets");
    len = (unsigned)sprintf(text, "ip2nets: \"");
    for (unsigned i = 0; i < 65; i++)
        len += (unsigned)sprintf(text + len, "%stcp%u(eth0)", i ? "," : "", i);
    sprintf(text + len, " 9.9.9.9\"");
    says(text, "or is one too many");
    len = (unsigned)sprintf(text, "ip2nets: \"tcp(");
    for (unsigned i = 0; i < 65; i++)
        len += (unsigned)sprintf(text + len, "%se%u", i ? "," : "", i);
    sprintf(text + len, ") 9.9.9.9\"");
    says(text, "has more than 64 interfaces");
    free(text);
}

static void test_own_addresses(void **state)
{
    struct cfg_address own[CFG_MAX_ADDRESSES];
    unsigned count = ip2nets_addresses(own, CFG_MAX_ADDRESSES), i;

    for (i = 0; i < count; i++) {
        assert_true(own[i].ifname[0] && memchr(own[i].ifname, 0, sizeof(own[i].ifname)));
        assert_int_not_equal(own[i].addr[0], 127);
    }
    assert_int_equal(ip2nets_addresses(own, 0), 0);
}

static void test_netspec(void **state)
{
    const char *text = "tcp1(eth0[0], eth1)[2] , x";
    struct netspec spec;
    struct err err = {0};

    assert_int_equal(netspec_next(&text, &spec, &err), 1);
    assert_int_equal(spec.net, LNET_NET(LNET_LND_SOCK, 1));
    assert_int_equal(spec.count, 2);
    assert_string_equal(spec.interface[0].cpt, "[0]");
    assert_string_equal(spec.interface[1].name, "eth1");
    assert_string_equal(spec.interface[1].cpt, "[2]");
    assert_string_equal(text, " , x");
    assert_int_equal(netspec_next(&text, &spec, &err), 0);
    text = "o2ib,";
    assert_int_equal(netspec_next(&text, &spec, &err), -EINVAL);
    assert_string_equal(text, "o2ib,");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),          cmocka_unit_test(test_first_rule_counts),
        cmocka_unit_test(test_text_layout),   cmocka_unit_test(test_list),
        cmocka_unit_test(test_said),          cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_own_addresses), cmocka_unit_test(test_netspec),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
