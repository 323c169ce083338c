/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of the kernel's modules: what they become, what is said of those that become nothing. */
#include <errno.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/millrace/modprobe.h"
#include "lib/lnd/code.h"
#include "test/lnds_test.h"

static const struct cfg_address machine[] = {
    {"eth0", {172, 16, 0, 9}},
    {"eth1", {192, 168, 0, 2}},
    {"eth1", {192, 168, 0, 3}},
    {"ib0", {10, 0, 4, 7}},
};
#define ADDRESSES (sizeof(machine) / sizeof(machine[0]))

static struct cfg_report report;
static struct cfg *cfg; /* the document, read back */
static char *yaml;

static int convert(const char *text)
{
    struct convert_file file = {"f", text, strlen(text)};

    return convert_files(&file, 1, machine, ADDRESSES, &yaml, &report);
}

static void done(void)
{
    cfg_report_free(&report);
    cfg_free(cfg);
    free(yaml);
    cfg = NULL;
    yaml = NULL;
}

/* Converts what is good, reads the document. */
static void good(const char *text)
{
    struct cfg_report back;

    if (convert(text) != 0)
        fail_msg("%s\nrefused: %s", text, report.count ? report.message[0].text : "no reason");
    if (cfg_parse("back", yaml, strlen(yaml), &cfg, &back) != 0)
        fail_msg("%s\ncannot be read back: %s", yaml, back.count ? back.message[0].text : "?");
    cfg_report_free(&back);
}

static unsigned find_message(const char *want)
{
    unsigned i;

    for (i = 0; i < report.count && !strstr(report.message[i].text, want); i++)
        ;
    if (i == report.count)
        fail_msg("said: %s\nnot: %s", i ? report.message[0].text : "nothing", want);
    return i;
}

static void refused(const char *text, const char *want)
{
    assert_int_equal(convert(text), -EINVAL);
    assert_null(yaml);
    assert_true(report.message[find_message(want)].error);
    done();
}

static void warns(const char *text, const char *want)
{
    good(text);
    assert_false(report.message[find_message(want)].error);
    done();
}

/* Nothing of it is changed, and nothing ignored that would have had an effect. */
static void nothing_lost(void)
{
    for (unsigned i = 0; i < report.count; i++)
        if (report.message[i].verdict != CFG_TAKEN && report.message[i].verdict != CFG_NO_LOSS)
            fail_msg("said: %s", report.message[i].text);
    assert_int_equal(report.warnings, 0);
}

static void silent(const char *text)
{
    good(text);
    nothing_lost();
    done();
}

/* The document behind the comments at its head. */
static const char *document(void)
{
    const char *text = strstr(yaml, "\nnet:");

    assert_non_null(text);
    return text;
}

#define LNET     "options lnet networks=tcp(eth0),tcp1(eth1) forwarding=enabled "
#define TWO      "options lnet networks=tcp(eth0),tcp1(eth1) forwarding=enabled\n"
#define ROUTE(x) TWO "options lnet routes=\"" x "\"\n"

static const char *routes(void)
{
    static char text[4096];
    char net[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE];
    size_t len = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < cfg->route_count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %d %s:%u", i ? " " : "",
                                net_format(cfg->route[i].conf.net, net), cfg->route[i].conf.hops,
                                nid_format(&cfg->route[i].conf.gateway, nid),
                                cfg->route[i].conf.priority);
    return text;
}

static const char *nis(void)
{
    static char text[1024];
    char net[LNET_NETSTR_SIZE];
    size_t len = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < cfg->ni_count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s(%s)%s", i ? " " : "",
                                net_format(cfg->ni[i].conf.net, net), cfg->ni[i].conf.ifname,
                                cfg->ni[i].cpt);
    return text;
}

/* ---- whole files ---- */

static void test_router(void **state)
{
    good(
        "# LNet of router 7\n"
        "options lnet networks=\"tcp0(eth0),tcp1(eth1)\" \\\n"
        "    forwarding=\"enabled\" routes=\"tcp2 2 192.168.0.[200-201]@tcp1; \\\n"
        "    tcp3 192.168.0.77@tcp1:4\"\n"
        "options lnet tiny_router_buffers=1024 small_router_buffers=0x2000 large_router_buffers=0\n"
        "options ksocklnd credits=512 peer_credits=16 keepalive=0 sock_timeout=20 tos=010\n"
        "options bonding mode=4\n");
    nothing_lost();
    assert_string_equal(nis(), "tcp(eth0) tcp1(eth1)");
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(cfg->ni[i].conf.tun.peer_credits, 16);
        assert_int_equal(cfg->ni[i].conf.tun.credits, 512);
        assert_int_equal(cfg->ni[i].conf.tun.peer_timeout, -1);
        assert_int_equal(cfg->ni[i].conf.lnd_tun.timeout, 20);
        assert_int_equal(cfg->ni[i].conf.lnd_tun.tos, 8);
    }
    assert_string_equal(routes(), "tcp2 2 192.168.0.200@tcp1:0 tcp2 2 192.168.0.201@tcp1:0 "
                                  "tcp3 -1 192.168.0.77@tcp1:4");
    assert_int_equal(cfg->tiny, 1024);
    assert_int_equal(cfg->small, 8192);
    assert_int_equal(cfg->large, 0);
    assert_int_equal(cfg->keepalive, 0);
    assert_int_equal(cfg->routing, 1);
    assert_null(strstr(yaml, "accept")); /* what is not given is not written */
    assert_non_null(strstr(yaml, "enable: 1"));
    done();
}

/* The defaults of a kernel node, as it shows them, say nothing but that it does not forward. */
static void test_kernel_defaults(void **state)
{
    char text[8192], list[2048], *save;
    size_t len = 0;

    len += (size_t)sprintf(text, LNET "\n");
    for (unsigned i = 0; mp_no_effect[i][0]; i++) {
        snprintf(list, sizeof(list), "%s", mp_no_effect[i][1]);
        for (char *one = strtok_r(list, " ", &save); one; one = strtok_r(NULL, " ", &save))
            len += (size_t)sprintf(text + len, "options %s %s\n", mp_no_effect[i][0], one);
    }
    silent(text);
    silent(LNET
           "accept=secure accept_port=988 accept_timeout=5 alive_router_check_interval=60 "
           "avoid_asym_router_failure=1 check_routers_before_use=0 "
           "ip2nets= large_router_buffers=0 lnet_drop_asym_route=0 lnet_health_sensitivity=100 "
           "lnet_interfaces_max=200 lnet_max_recovery_ping_interval=900 lnet_numa_range=0 "
           "lnet_peer_discovery_disabled=0 lnet_recovery_interval=1 lnet_recovery_limit=0 "
           "lnet_response_tracking=3 lnet_retry_count=2 lnet_transaction_timeout=150 "
           "peer_buffer_credits=0 router_ping_timeout=50 router_sensitivity_percentage=100 "
           "routes= small_router_buffers=0 tiny_router_buffers=0\n"
           "options ksocklnd conns_per_peer=0 credits=256 keepalive=30 max_reconnectms=60000 "
           "min_reconnectms=1000 peer_buffer_credits=0 peer_credits=8 peer_timeout=180 "
           "sock_timeout=50 tos=-1\n");
}

/* Parameters of a module as a kernel node listed them, as options; those that make the node what it
 * is are left out. */
static void add_recorded(char *text, size_t size, const char *recording, const char *module)
{
    char line[512], heading[64], path[512];
    char xz[] = "xz", how[] = "-dc", end[] = "--", *argv[] = {xz, how, end, path, NULL};
    posix_spawn_file_actions_t actions;
    int to[2], status;
    pid_t pid;
    size_t len = strlen(text);
    unsigned found = 0;
    bool here = false;
    FILE *in;

    snprintf(path, sizeof(path), TEST_OUTPUTS "/%s.txt.xz", recording);
    snprintf(heading, sizeof(heading), "$ parameters of %s\n", module);
    assert_int_equal(pipe(to), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, to[0]);
    posix_spawn_file_actions_addclose(&actions, to[1]);
    assert_int_equal(posix_spawnp(&pid, xz, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[1]);
    in = fdopen(to[0], "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in)) {
        if (strcmp(line, heading) == 0)
            here = true;
        else if (line[0] == '\n')
            here = false;
        else if (here && strncmp(line, "networks=", 9) != 0 &&
                 strncmp(line, "forwarding=", 11) != 0) {
            assert_in_range(len, 0, size - sizeof(line) - 64);
            len += (size_t)sprintf(text + len, "options %s %s", module, line);
            found++;
        }
    }
    fclose(in);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(found > 15);
}

/* A node of which nothing was set gives nothing to say, whatever is read of it. */
static void test_recorded(void **state)
{
    char *text = calloc(1, 65536);

    memcpy(text, LNET "\n", sizeof(LNET "\n"));
    add_recorded(text, 65536, "A-vm1", "lnet");
    add_recorded(text, 65536, "A-vm1", "ksocklnd");
    add_recorded(text, 65536, "C-vm1", "ko2iblnd");
    add_recorded(text, 65536, "A-vm1", "libcfs");
    good(text);
    assert_string_equal(nis(), "tcp(eth0) tcp1(eth1)");
    assert_int_equal(cfg->transaction_timeout, 150);
    find_message(
        "libcfs.libcfs_debug_file_path: has no effect here"); /* the path is left out there */
    assert_int_equal(report.warnings, 1);
    done();
    free(text);
}

static void test_several_files(void **state)
{
    struct convert_file file[] = {
        {"a.conf", "options lnet networks=tcp(eth0) accept=all\n", 43},
        {"b.conf", "\n# later\noptions lnet networks=tcp(eth1) forwarding=disabled\n", 61},
    };

    assert_int_equal(convert_files(file, 2, machine, ADDRESSES, &yaml, &report), 0);
    assert_non_null(strstr(yaml, "0: eth1"));
    assert_null(strstr(yaml, "eth0"));
    assert_non_null(strstr(yaml, "accept: all"));
    assert_string_equal(report.message[0].text, "a.conf:1: ignored: lnet.networks: is given again "
                                                "at b.conf:3, which counts");
    assert_int_equal(report.warnings, 1);
    done();
    assert_int_equal(convert_files(file, 0, machine, ADDRESSES, &yaml, &report), -EINVAL);
    find_message("no options of lnet, ksocklnd or ko2iblnd, and no keys");
    done();
}

/* The example of the documentation, as it stands there. */
static void test_documented(void **state)
{
    char *text, *start, *end;
    size_t len;

    assert_int_equal(cfg_read_file(TEST_DOCS "/config.md", &text, &len), 0);
    start = strstr(text, "```\noptions lnet");
    assert_non_null(start);
    start += 4;
    end = strstr(start, "```");
    assert_non_null(end);
    *end = '\0';
    good(start);
    assert_int_equal(report.errors, 0);
    assert_string_equal(nis(), "tcp(eth0) tcp1(eth1)");
    assert_int_equal(cfg->route_count, 6);
    assert_int_equal(cfg->keepalive, 60);
    done();
    free(text);
}

/* ---- lines ---- */

static void test_lines(void **state)
{
    good("\t options\tlnet  networks=tcp(eth0)\tforwarding=disabled\r\n\n   # nothing\n"
         "options lnet \"routes=tcp1 172.16.0.1@tcp\" accept-port=1988");
    assert_string_equal(routes(), "tcp1 -1 172.16.0.1@tcp:0");
    assert_int_equal(cfg->accept_port, 1988);
    nothing_lost();
    done();
    /* a line that is joined has no space between */
    good("options lnet networks=tcp(eth0),\\\ntcp1(et\\\nh1) forwarding=enabled\n");
    assert_string_equal(nis(), "tcp(eth0) tcp1(eth1)");
    done();
    warns(TWO "# one \\\noptions lnet accept=all\n",
          "f:2: ignored: a comment ends with a backslash");
    warns(LNET "# routers\n", "f:1: ignored: lnet: '#' does not begin a comment in the middle");
    warns("options lnet 'networks=\"tcp(eth0)\"' forwarding=disabled",
          "single quotes are no quotes");
    warns("options lnet networks='tcp(eth0), tcp1(eth1)' forwarding=enabled", "single quotes");
    warns(TWO "option lnet accept=all\n", "f:2: ignored: 'option' is no command of modprobe");
    warns(TWO "install lnet /bin/true\n", "install lnet: only `options` are read");
    warns(TWO "include /etc/x\n", "include /etc/x: only `options` are read");
    warns(TWO "options kgnilnd credits=1\n", "options kgnilnd: there is no such driver here");
    warns(TWO "options ko2iblnd-opa credits=1024\n", "are for an alias of ko2iblnd");
    silent(TWO "alias eth0 e1000\ninstall usb-storage /bin/true\nblacklist x\noptions lustre a=b\n"
               "softdep\n");
    warns(TWO "options\n", "f:2: ignored: options: names no module");
    refused(TWO "options lnet accept=\"all\noptions lnet accept=all\n",
            "f:2: lnet: a quote is not closed");
    refused(TWO "options lnet \"", "a quote is not closed");
    refused(TWO "options lnet accept\n", "f:2: lnet.accept: has no value");
    warns(TWO "options lnet acept=all\n", "f:2: ignored: lnet.acept: is not an option of this "
                                          "module; did you mean 'accept'?");
    warns(TWO "options lnet xyzzyplugh=all\n", "lnet.xyzzyplugh: is not an option of this module");
    warns(TWO "options ksocklnd networks=tcp\n", "ksocklnd.networks: is not an option");
    warns(TWO "options lnet keepalive=60\n", "lnet.keepalive: is not an option");
    refused("options bonding mode=4\n", "no options of lnet, ksocklnd or ko2iblnd, and no keys");
    refused("", "no options of lnet");
}

static void test_bounds(void **state)
{
    struct convert_file file = {"f", "options lnet\0accept=all", 23};
    char *text = malloc(CONVERT_MAX_BYTES + 2);
    size_t len;

    assert_int_equal(convert_files(&file, 1, machine, ADDRESSES, &yaml, &report), -EINVAL);
    find_message("f:1: has a NUL character");
    done();
    memset(text, '\n', CONVERT_MAX_BYTES + 1);
    text[CONVERT_MAX_BYTES + 1] = '\0';
    refused(text, "is larger than 1048576 bytes");
    len = (size_t)sprintf(text, "options lnet networks=");
    memset(text + len, 'x', CONVERT_MAX_VALUE + 1);
    text[len + CONVERT_MAX_VALUE + 1] = '\0';
    refused(text, "has a value of more than 65536 characters");
    free(text);
    refused(ROUTE("tcp[1-4096] 172.16.0.[1-255]@tcp"), "stands for more than 65536 routes");
    refused(ROUTE("tcp[2-101] 172.16.0.[10-209]@tcp"), "is more than 16384 routes");
    refused(ROUTE("tcp[0-65535] 172.16.0.1@tcp"), "stands for too many");
    refused(ROUTE("tcp2 172.[0-255].[0-255].[0-255]@tcp"), "stands for too many");
}

/* ---- nets ---- */

static void test_networks(void **state)
{
    static const struct {
        const char *value, *want;
    } table[] = {
        {"tcp(eth0)", "tcp(eth0)"},
        {"tcp0(eth0,eth1)", "tcp(eth0) tcp(eth1)"},
        {"tcp(eth0)[0],tcp1(eth1[0,1],ib0)[2]", "tcp(eth0)[0] tcp1(eth1)[0,1] tcp1(ib0)[2]"},
        {"\"tcp(eth0), tcp7(eth1)\"", "tcp(eth0) tcp7(eth1)"},
        {"lo,tcp(eth1),o2ib3(ib0)", "tcp(eth1) o2ib3(ib0)"},
        {"tcp", "tcp(eth0)"},
        {"o2ib,tcp[1]", "o2ib(ib0) tcp(eth0)[1]"},
        {"\"\"", "tcp(eth0)"},
        {"tcp(eth0:1)", "tcp(eth0:1)"},
    };
    char text[256];

    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        snprintf(text, sizeof(text), "options lnet forwarding=disabled networks=%s\n",
                 table[i].value);
        good(text);
        assert_string_equal(nis(), table[i].want);
        done();
    }
    good("options lnet networks=o2ib forwarding=disabled\noptions ko2iblnd ipif_name=ib7\n");
    assert_string_equal(nis(), "o2ib(ib7)");
    find_message("f:1: changed: lnet.networks: net o2ib names no interface: it is on ib7");
    done();
    good("options lnet networks=tcp(eth0),kfi(cxi0) forwarding=disabled\n");
    find_message("net kfi is left out: this version has no network driver");
    done();
    warns("options lnet accept=all\n", "changed: lnet.networks: net tcp names no interface: it is "
                                       "on eth0, which a kernel node would take; write tcp(eth0)");
    refused("options lnet networks=tcp(eth0),tcp(eth0)", "net tcp is on eth0 twice");
    refused("options lnet networks=tcp(eth0", "does not end");
    refused("options lnet networks=tcp(eth0),", "ends with a comma");
    refused("options lnet networks=\"tcp(eth0) tcp1(eth1)\"", "'tcp1(eth1)' cannot stand after");
    refused("options lnet networks=tcp(eth0);tcp1(eth1)", "cannot stand after a net");
    refused("options lnet networks=qsw0", "'qsw0' is not a net");
    refused("options lnet networks=tcp(eth0)[0-2/2]", "is not a list of CPTs");
    refused("options lnet networks=kfi", "gives this machine no net");
    warns("options lnet networks=tcp(eth0),kfi", "net kfi is left out");
    refused("options lnet networks=gip", "gives this machine no net");
    refused("options lnet networks=lo", "gives this machine no net");
    refused("options lnet networks=tcp(eth0) ip2nets=\"tcp *.*.*.*\"", "networks is given too");
}

static void test_ip2nets(void **state)
{
    good(
        "options lnet forwarding=enabled "
        "ip2nets=\"tcp(eth9) 134.32.1.[4-10/2]; tcp1(eth1),o2ib 10.0.*.[1-8/2]; tcp1(eth0) *.*.*.*;"
        " tcp 172.16.0.[7-10] # others; tcp(eth4) *.*.*.*\"\n"
        "options ksocklnd peer_credits=3\noptions ko2iblnd peer_credits=9\n");
    assert_string_equal(nis(), "tcp1(eth1) o2ib(ib0) tcp(eth0)");
    assert_int_equal(cfg->ni[0].conf.tun.peer_credits, 3);
    assert_int_equal(cfg->ni[1].conf.tun.peer_credits, 9);
    assert_null(strstr(yaml, "ip2nets"));
    done();
    warns("options lnet forwarding=disabled ip2nets=\"tcp 192.168.0.*\"",
          "f:1: changed: lnet.ip2nets: net tcp names no interface: it is on eth1, whose address "
          "matches; a kernel node takes its first one, eth0");
    refused("options lnet ip2nets=\"tcp(eth0) 9.*.*.*\"",
            "f:1: lnet.ip2nets: gives this machine no "
            "net; name one");
    refused("options lnet ip2nets=\"tcp(eth0) 9.*.*\"", "'9.*.*' is no pattern");
}

/* No address is known: what does not need one can be converted. */
static void test_no_address(void **state)
{
    const char *text = "options lnet networks=tcp(eth0)\n", *first = "options lnet networks=tcp\n";
    struct convert_file file = {"f", text, strlen(text)};

    assert_int_equal(convert_files(&file, 1, NULL, 0, &yaml, &report), 0);
    done();
    file.text = first;
    file.len = strlen(first);
    assert_int_equal(convert_files(&file, 1, NULL, 0, &yaml, &report), -EINVAL);
    find_message("which one is meant cannot be found; write tcp(IF)");
    done();
}

/* ---- routes, forwarding ---- */

static void test_routes(void **state)
{
    static const struct {
        const char *value, *want;
    } table[] = {
        {"tcp2 172.16.0.1@tcp", "tcp2 -1 172.16.0.1@tcp:0"},
        {"tcp2 1 172.16.0.1@tcp", "tcp2 1 172.16.0.1@tcp:0"},
        {"tcp2 172.16.0.1", "tcp2 -1 172.16.0.1@tcp:0"},
        {"tcp2 255 172.16.0.1@tcp:7", "tcp2 255 172.16.0.1@tcp:7"},
        {"o2ib[1-2] 192.168.0.[9,20-24/2]@tcp1",
         "o2ib1 -1 192.168.0.9@tcp1:0 o2ib2 -1 192.168.0.9@tcp1:0 o2ib1 -1 192.168.0.20@tcp1:0 "
         "o2ib2 -1 192.168.0.20@tcp1:0 o2ib1 -1 192.168.0.22@tcp1:0 o2ib2 -1 192.168.0.22@tcp1:0 "
         "o2ib1 -1 192.168.0.24@tcp1:0 o2ib2 -1 192.168.0.24@tcp1:0"},
        {"tcp2,tcp[5,7] 3 172.16.0.1@tcp",
         "tcp2 3 172.16.0.1@tcp:0 tcp5 3 172.16.0.1@tcp:0 tcp7 3 172.16.0.1@tcp:0"},
        {"tcp2 2 172.16.0.1@tcp 172.16.0.2@tcp:1",
         "tcp2 2 172.16.0.1@tcp:1 tcp2 2 172.16.0.2@tcp:1"},
        {"# routers; tcp2 172.16.0.1@tcp # the old one; ;tcp3 172.16.0.2@tcp;",
         "tcp2 -1 172.16.0.1@tcp:0 tcp3 -1 172.16.0.2@tcp:0"},
        /* as the kernel: of two alike the first, none to a net of this machine or through itself */
        {"tcp2 1 172.16.0.1@tcp; tcp2 9 172.16.0.1@tcp", "tcp2 1 172.16.0.1@tcp:0"},
        {"tcp1 172.16.0.1@tcp", ""},
        {"tcp2 172.16.0.[8-10]@tcp", "tcp2 -1 172.16.0.8@tcp:0 tcp2 -1 172.16.0.10@tcp:0"},
        {"tcp2 192.168.0.[1-3]@tcp[0-1]",
         "tcp2 -1 192.168.0.1@tcp:0 tcp2 -1 192.168.0.1@tcp1:0 tcp2 -1 192.168.0.2@tcp:0 "
         "tcp2 -1 192.168.0.3@tcp:0 tcp2 -1 192.168.0.3@tcp1:0"},
    };
    char text[512];

    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        snprintf(text, sizeof(text), TWO "options lnet routes=\"%s\"\n", table[i].value);
        good(text);
        assert_string_equal(routes(), table[i].want);
        nothing_lost();
        done();
    }
}

static void test_routes_said(void **state)
{
    warns(ROUTE("o2ib 10.0.0.[1-3]@o2ib7; tcp9 172.16.0.1@tcp"),
          "f:2: changed: lnet.routes: 3 routes are left out: this machine is on no net of their");
    warns(ROUTE("tcp2 172.16.0.1@tcp:1 172.16.0.2@tcp:2"), "one rule has priorities 1 and 2");
    refused(ROUTE("tcp2"), "f:2: lnet.routes: a rule names no gateway");
    refused(ROUTE("tcp2 5"), "names no gateway");
    refused(ROUTE("tcp2 0 172.16.0.1@tcp"), "'0' hops are out of range; write 1 to 255");
    refused(ROUTE("tcp2 256 172.16.0.1@tcp"), "out of range");
    refused(ROUTE("tcp2 99999999999999999999 172.16.0.1@tcp"), "out of range");
    refused(ROUTE("tcp2 172.16.0.[1-3]@tcp 2"),
            "'2' stands among the gateways; write the hops before");
    refused(ROUTE("tcp2 172.16.0.1@tcp:x"), "'x' is not a priority");
    refused(ROUTE("tcp2 172.16.0.1@tcp:"), "'' is not a priority");
    refused(ROUTE("tcp2 172.16.0.1@tcp:4294967296"), "is not a priority");
    refused(ROUTE("tcp2 fd00::1@tcp"), "this option cannot have IPv6 gateways");
    refused(ROUTE("tcp2 router1@tcp"), "'router1@tcp' is not a NID");
    refused(ROUTE("tcp2 tcp3 172.16.0.1@tcp"), "'tcp3' is not a NID");
    refused(ROUTE("172.16.0.1@tcp tcp2"), "'172.16.0.1@tcp' is not a net");
    refused(ROUTE("tcp[2-1] 172.16.0.1@tcp"), "'tcp[2-1]' has a range that cannot be read");
    refused(ROUTE("tcp[2 172.16.0.1@tcp"), "has a range that cannot be read");
    refused(ROUTE("tcp2 172.16.0.[1-a]@tcp"), "has a range that cannot be read");
    refused(ROUTE("tcp2 172.16.0.[1-4/0]@tcp"), "has a range that cannot be read");
    refused(ROUTE("tcp2 172.16.0.[254-256]@tcp"), "'172.16.0.256@tcp' is not a NID");
    refused(ROUTE("tcp2 172.16.0.1@tcp2"), "gateway 172.16.0.1@tcp2 is itself on net tcp2");
    refused(ROUTE("lo 172.16.0.1@tcp"), "lo cannot be routed");
    refused(ROUTE("tcp2,,tcp3 172.16.0.1@tcp"), "'' is not a net");
}

static void test_forwarding(void **state)
{
    static const struct {
        const char *more;
        int routing;
        bool said;
    } table[] = {
        {"forwarding=enabled", 1, false},
        {"forwarding=disabled", 0, false},
        {"forwarding=", 0, true},
        {"", 0, true},
        {"routes=\"tcp2 172.16.0.9@tcp\"", 1, false},
        {"routes=\"tcp2 172.16.0.8@tcp\"", 0, true},
        {"routes=\"tcp2 192.168.0.[1-9]@tcp1\"", 1, false},
        {"routes=\"tcp2 172.16.0.9@tcp\" forwarding=disabled", 0, false},
    };
    char text[256];

    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        snprintf(text, sizeof(text), "options lnet networks=tcp(eth0),tcp1(eth1) %s\n",
                 table[i].more);
        good(text);
        assert_int_equal(cfg->routing, table[i].routing);
        assert_int_equal(report.warnings, table[i].said);
        assert_non_null(strstr(yaml, table[i].routing ? "enable: 1" : "enable: 0"));
        done();
    }
    warns("options lnet networks=tcp(eth0) forwarding=yes",
          "f:1: changed: lnet.forwarding: 'yes' is neither enabled nor disabled");
}

/* ---- settings and tunables ---- */

static void test_settings(void **state)
{
    good(LNET "accept=all accept_port=1988 accept_timeout=9 alive_router_check_interval=61 "
              "router_ping_timeout=51 router_sensitivity_percentage=99 lnet_numa_range=3 "
              "lnet_interfaces_max=17 lnet_peer_discovery_disabled=1 lnet_drop_asym_route=1 "
              "lnet_retry_count=4 lnet_transaction_timeout=149 lnet_health_sensitivity=98 "
              "lnet_recovery_interval=5 lnet_recovery_limit=6 lnet_max_recovery_ping_interval=901 "
              "lnet_response_tracking=2 tiny_router_buffers=10 small_router_buffers=11 "
              "large_router_buffers=12 avoid_asym_router_failure=0 check_routers_before_use=1\n"
              "options ksocklnd keepalive=-1 min_reconnectms=2000 max_reconnectms=3000\n");
    assert_int_equal(cfg->accept, LND_ACCEPT_ALL);
    assert_int_equal(cfg->accept_port, 1988);
    assert_int_equal(cfg->accept_timeout, 9);
    assert_int_equal(cfg->check_interval, 61);
    assert_int_equal(cfg->ping_timeout, 51);
    assert_int_equal(cfg->router_sensitivity, 99);
    assert_int_equal(cfg->numa_range, 3);
    assert_int_equal(cfg->max_interfaces, 17);
    assert_int_equal(cfg->discovery, 0);
    assert_int_equal(cfg->drop_asym_route, 1);
    assert_int_equal(cfg->avoid_asym_router_failure, 0);
    assert_int_equal(cfg->check_routers_before_use, 1);
    assert_int_equal(cfg->retry_count, 4);
    assert_int_equal(cfg->transaction_timeout, 149);
    assert_int_equal(cfg->health_sensitivity, 98);
    assert_int_equal(cfg->recovery_interval, 5);
    assert_int_equal(cfg->recovery_limit, 6);
    assert_int_equal(cfg->max_recovery_ping_interval, 901);
    assert_int_equal(cfg->response_tracking, 2);
    assert_int_equal(cfg->tiny, 10);
    assert_int_equal(cfg->small, 11);
    assert_int_equal(cfg->large, 12);
    assert_int_equal(cfg->keepalive, 0);
    assert_int_equal(cfg->min_reconnect, 2);
    assert_int_equal(cfg->max_reconnect, 3);
    done();
}

static void test_tunables(void **state)
{
    struct cfg_ni *tcp, *o2ib;

    good("options lnet networks=tcp(eth0),o2ib(ib0) forwarding=enabled peer_buffer_credits=77\n"
         "options ksocklnd credits=1 peer_credits=2 peer_buffer_credits=3 peer_timeout=-4 "
         "conns_per_peer=5 sock_timeout=6 tos=7\n"
         "options ko2iblnd credits=11 peer_credits=12 peer_timeout=14 peer_credits_hiw=15 "
         "concurrent_sends=16 conns_per_peer=17 fmr_cache=1 fmr_flush_trigger=18 fmr_pool_size=19 "
         "map_on_demand=1 ntx=20 timeout=21 tos=22\n");
    tcp = &cfg->ni[0];
    o2ib = &cfg->ni[1];
    assert_int_equal(tcp->conf.tun.credits, 1);
    assert_int_equal(tcp->conf.tun.peer_credits, 2);
    assert_int_equal(tcp->conf.tun.peer_buffer_credits, 3);
    assert_int_equal(tcp->conf.tun.peer_timeout, 0);
    assert_int_equal(tcp->conf.lnd_tun.conns_per_peer, 5);
    assert_int_equal(tcp->conf.lnd_tun.timeout, 6);
    assert_int_equal(tcp->conf.lnd_tun.tos, 7);
    assert_int_equal(*own_tunable(&tcp->conf.lnd_tun, "ntx"), -1);
    assert_int_equal(o2ib->conf.tun.credits, 11);
    assert_int_equal(o2ib->conf.tun.peer_credits, 12);
    assert_int_equal(o2ib->conf.tun.peer_buffer_credits, 77);
    assert_int_equal(o2ib->conf.tun.peer_timeout, 14);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "peercredits_hiw"), 15);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "concurrent_sends"), 16);
    assert_int_equal(o2ib->conf.lnd_tun.conns_per_peer, 17);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "fmr_cache"), 1);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "fmr_flush_trigger"), 18);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "fmr_pool_size"), 19);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "map_on_demand"), 1);
    assert_int_equal(*own_tunable(&o2ib->conf.lnd_tun, "ntx"), 20);
    assert_int_equal(o2ib->conf.lnd_tun.timeout, 21);
    assert_int_equal(o2ib->conf.lnd_tun.tos, 22);
    done();
    /* those of the driver as a whole */
    good("options lnet networks=tcp(eth0),o2ib(ib0) forwarding=enabled\n"
         "options ko2iblnd service=1987 keepalive=0 retry_count=7 rnr_retry_count=3 "
         "require_privileged_port=1 use_privileged_port=0\n");
    nothing_lost();
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "service"), 1987);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "keepalive"), 0);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "retry_count"), 7);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "rnr_retry_count"), 3);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "require_privileged_port"), 1);
    assert_int_equal(*lnd_option_of(cfg->lnd_option, "verbs", "use_privileged_port"), 0);
    done();
    warns(TWO "options ko2iblnd require_privileged_port=2", "2 is out of range, 0 to 1: 1 is the");
    warns(TWO "options ko2iblnd rnr_retry_count=8", "8 is out of range, 0 to 7: 7 is the nearest");
    /* the kernel's "as it comes" is left out */
    good(TWO "options ksocklnd conns_per_peer=0 sock_timeout=0 peer_buffer_credits=0\n");
    assert_null(strstr(yaml, "tunables"));
    done();
}

/* An option without effect is named once, and changes nothing. */
static void test_no_effect(void **state)
{
    char text[256], list[2048], *save, *plain, *equals;

    good(TWO);
    plain = strdup(document());
    done();
    for (unsigned i = 0; mp_no_effect[i][0]; i++) {
        snprintf(list, sizeof(list), "%s", mp_no_effect[i][1]);
        for (char *one = strtok_r(list, " ", &save); one; one = strtok_r(NULL, " ", &save)) {
            equals = strchr(one, '=');
            snprintf(text, sizeof(text), TWO "options %s %.*s=77\n", mp_no_effect[i][0],
                     (int)(equals - one), one);
            good(text);
            find_message("has no effect here");
            assert_int_equal(report.warnings, 1);
            assert_string_equal(document(), plain);
            done();
        }
    }
    free(plain);
}

/* Every row leads somewhere: a value that is not the default changes the document. */
static void test_every_row(void **state)
{
    const char *base = "options lnet networks=tcp(eth0),o2ib(ib0) forwarding=enabled\n";
    char text[256], *plain;

    good(base);
    plain = strdup(document());
    done();
    for (const struct mp_option *o = mp_options; o->name; o++) {
        bool verbs = o->to && strncmp(o->to, "millrace.verbs", 14) == 0;
        const char *value = "99";

        if (!o->to)
            continue;
        if (strcmp(o->name, "accept") == 0)
            value = "none";
        else if (o->unit == MP_MS_TO_S)
            value = "59000";
        else if (strcmp(o->name, "use_privileged_port") == 0 ||
                 strcmp(o->name, "avoid_asym_router_failure") == 0)
            value = "0";
        else if (verbs && strstr(o->name, "retry_count"))
            value = "7";
        else if (o->unit == MP_NOT || strcmp(o->name, "map_on_demand") == 0 ||
                 strcmp(o->name, "require_privileged_port") == 0 ||
                 strcmp(o->name, "lnet_drop_asym_route") == 0 ||
                 strcmp(o->name, "check_routers_before_use") == 0 ||
                 strcmp(o->name, "lnet_response_tracking") == 0)
            value = "1";
        snprintf(text, sizeof(text), "%soptions %s %s=%s\n", base, o->module, o->name, value);
        good(text);
        if (strcmp(document(), plain) == 0)
            fail_msg("nothing comes of %s", text);
        done();
    }
    free(plain);
}

static void test_values_said(void **state)
{
    warns(LNET "alive_router_check_interval=0", "0 has no effect: gateways are always pinged here");
    warns(LNET "live_router_check_interval=60",
          "lnet.live_router_check_interval: has no effect here;"
          " the kernel does not use it any more; set");
    warns(LNET "dead_router_check_interval=60",
          "lnet.dead_router_check_interval: has no effect here;"
          " the kernel does not use it any more; set alive_router_check_interval");
    warns(LNET "router_sensitivity_percentage=50",
          "f:1: ignored: lnet.router_sensitivity_percentage: has no effect, as on kernel nodes "
          "since Lustre 2.17");
    warns(LNET "lnet_numa_range=3", "f:1: ignored: lnet.lnet_numa_range: not acted on yet");
    warns(TWO "options ksocklnd nagle=1", "f:2: ignored: ksocklnd.nagle: has no effect here");
    warns(TWO "options libcfs libcfs_of_old=1", "libcfs.libcfs_of_old: has no effect here");
    warns(TWO "options libcfs cpu_npartitions=4", "set the threads with `millrace: {cores: …}`");
    warns(TWO "options ksocklnd min_reconnectms=1500", "1500 ms are taken for 1 s");
    warns(TWO "options ksocklnd min_reconnectms=500", "500 is out of range, 1 s to 3600 s: 1 s is");
    refused(TWO "options ksocklnd min_reconnectms=5000 max_reconnectms=2000",
            "min_reconnect is above");
    warns(TWO "options ksocklnd credits=0", "f:2: ignored: ksocklnd.credits: 0 lets no message");
    warns(TWO "options ksocklnd credits=65536", "f:2: changed: ksocklnd.credits: 65536 is out of "
                                                "range, -1 to 65535: 65535 is the nearest");
    warns(TWO "options ksocklnd credits=many", "'many' is not a whole number");
    warns(TWO "options ksocklnd credits=\" 8\"", "' 8' is not a whole number");
    warns(TWO "options ksocklnd credits=8x", "'8x' is not a whole number");
    warns(TWO "options ksocklnd credits=99999999999999999999", "65535 is the nearest");
    warns(TWO "options ksocklnd keepalive=3601", "out of range, 0 to 3600: 3600 is");
    warns(LNET "accept=some",
          "f:1: ignored: lnet.accept: 'some' is not known; write one of: secure, all, none");
    warns(LNET "accept_port=0", "out of range, 1 to 65535: 1 is");
    warns(LNET "tiny_router_buffers=-2", "out of range");
    warns(LNET "peer_buffer_credits=-1", "out of range");
    warns(LNET "lnet_transaction_timeout=90000", "out of range");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router),      cmocka_unit_test(test_kernel_defaults),
        cmocka_unit_test(test_recorded),    cmocka_unit_test(test_several_files),
        cmocka_unit_test(test_no_effect),   cmocka_unit_test(test_documented),
        cmocka_unit_test(test_lines),       cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_networks),    cmocka_unit_test(test_ip2nets),
        cmocka_unit_test(test_no_address),  cmocka_unit_test(test_routes),
        cmocka_unit_test(test_routes_said), cmocka_unit_test(test_forwarding),
        cmocka_unit_test(test_settings),    cmocka_unit_test(test_tunables),
        cmocka_unit_test(test_every_row),   cmocka_unit_test(test_values_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
