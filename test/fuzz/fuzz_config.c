/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the text of a configuration file; read as a document of its own, and onto another one. */
#include "config/nid_list.h"
#include "config/save.h"
#include "config/write.h"
#include "control/plan.h"
#include "lib/base/err.h"
#include "lib/lnd/code.h"
#include "test/fuzz/fuzz.h"
#include "test/lnds_test.h"

#include <stdlib.h>

static void check_ni(const struct cfg_ni *ni)
{
    HOLDS(ni->conf.ifname[0] || !nid_is_any(&ni->conf.nid));
    HOLDS(memchr(ni->conf.ifname, '\0', sizeof(ni->conf.ifname)));
    HOLDS(nid_is_any(&ni->conf.nid) || nid_net(&ni->conf.nid) == ni->conf.net);
    HOLDS(ni->conf.net >> 16 != LNET_LND_LO);
    HOLDS(ni->conf.tun.credits != 0 && ni->conf.tun.credits >= -1);
    HOLDS(ni->conf.tun.peer_credits != 0 && ni->conf.tun.peer_credits >= -1);
}

static void check_route(const struct cfg_route *route)
{
    HOLDS(route->conf.net != LNET_NET_ANY && !nid_is_any(&route->conf.gateway));
    HOLDS(route->conf.hops == LNET_HOPS_UNDEFINED ||
          (route->conf.hops >= 1 && route->conf.hops <= 255));
    HOLDS(nid_net(&route->conf.gateway) != route->conf.net);
}

/* No NID is in two peers. */
static void check_peer(const struct cfg *cfg, struct cfg_peer *peer)
{
    HOLDS(cfg_find_peer(cfg, &peer->primary) == peer);
    for (unsigned i = 0; i < peer->nid_count; i++)
        HOLDS(cfg_peer_with(cfg, &peer->nid[i]) == peer);
    HOLDS(peer->multi_rail || peer->nid_count <= 1);
}

static void check_port(const struct cfg_port *port)
{
    HOLDS(port->name[0] && memchr(port->name, '\0', sizeof(port->name)));
    HOLDS(memchr(port->device, '\0', sizeof(port->device)));
    HOLDS(port->mtu == 0 || (port->mtu >= 576 && port->mtu <= 9000));
    HOLDS(port->vlan >= 0 && port->vlan <= 4094);
    HOLDS(port->address_count >= 1 && port->address_count <= CFG_PORT_ADDRESSES);
    HOLDS(port->gateway_count <= 2 && port->route_count <= CFG_PORT_ROUTES);
    for (unsigned i = 0; i < port->address_count; i++)
        HOLDS(port->address[i].bits >= 1 && port->address[i].bits <= 128);
    for (unsigned i = 0; i < port->route_count; i++)
        HOLDS(inet_is4(&port->route[i].to.addr) == inet_is4(&port->route[i].via));
}

static void check_access(const struct cfg *cfg)
{
    struct lnet_access_rule *rules;
    struct err err = {0};

    HOLDS(cfg->access_count <= LNET_ACCESS_RULES);
    HOLDS(cfg_access_rules(cfg, &rules, &err) == 0);
    for (unsigned i = 0; i < cfg->access_count; i++) {
        HOLDS(rules[i].name[0] && memchr(rules[i].name, '\0', sizeof(rules[i].name)));
        HOLDS(rules[i].from.n <= CFG_NID_RANGES && rules[i].to.n <= CFG_NID_RANGES);
        HOLDS((rules[i].kind == LNET_ACCESS_LIMIT) ==
              (rules[i].rate[0] + rules[i].rate[1] + rules[i].rate[2] > 0));
    }
    cfg_access_rules_free(rules, cfg->access_count);
}

static void check_udsp(const struct cfg *cfg)
{
    struct lnet_udsp *rules;
    struct err err = {0};

    HOLDS(cfg->udsp_count <= CFG_MAX_UDSP);
    HOLDS(cfg_udsp_rules(cfg, &rules, &err) == 0);
    for (unsigned i = 0; i < cfg->udsp_count; i++) {
        HOLDS(rules[i].src.given || rules[i].dst.given);
        HOLDS(!rules[i].rte.given || rules[i].dst.given);
    }
    free(rules);
}

/* What is accepted is complete and within range. */
static void check(const struct cfg *cfg)
{
    HOLDS(cfg->ni_count <= LNET_MAX_NI);
    for (unsigned i = 0; i < cfg->ni_count; i++)
        check_ni(&cfg->ni[i]);
    for (unsigned i = 0; i < cfg->route_count; i++)
        check_route(&cfg->route[i]);
    for (unsigned i = 0; i < cfg->route_count; i++)
        HOLDS(cfg_is_gateway(cfg, &cfg->route[i].conf.gateway));
    for (unsigned i = 0; i < cfg->peer_count; i++)
        check_peer(cfg, &cfg->peer[i]);
    HOLDS(cfg->port_count <= CFG_MAX_PORTS);
    for (unsigned i = 0; i < cfg->port_count; i++)
        check_port(&cfg->port[i]);
    for (unsigned i = 0; i < cfg->hello_count; i++)
        HOLDS(nid_net(&cfg->hello[i].address) == nid_net(&cfg->hello[i].nid));
    check_access(cfg);
    check_udsp(cfg);
    HOLDS(cfg_reactor_count(cfg) >= 1 && cfg_reactor_count(cfg) <= REACTOR_MAX);
    HOLDS(cfg_gateway_count(cfg) <= cfg->route_count &&
          (cfg_gateway_count(cfg) > 0) == (cfg->route_count > 0));
    HOLDS(cfg->egress_share >= 1 && cfg->egress_share <= 100);
    HOLDS(cfg->routing == 0 || cfg->routing == 1);
    HOLDS(cfg->tiny >= 0 && cfg->small >= 0 && cfg->large >= 0 && cfg->memory >= 0);
    HOLDS(cfg->check_interval >= 1 && cfg->ping_timeout >= 1 && cfg->accept_timeout >= 1);
    HOLDS(cfg->accept >= LND_ACCEPT_SECURE && cfg->accept <= LND_ACCEPT_NONE);
    HOLDS(cfg->accept_port >= 1 && cfg->accept_port <= 65535);
    HOLDS(cfg->buffer_wait >= 1 && cfg->buffer_wait <= 12 && cfg->max_peers >= 1);
    HOLDS(cfg->rpc_mode >= 0 && cfg->rpc_mode <= 0777);
    HOLDS(cfg->min_reconnect >= 1 && cfg->min_reconnect <= cfg->max_reconnect);
}

static const struct cfg_address machine[] = {{"eth0", {10, 0, 0, 1}}, {"ib0", {192, 168, 0, 1}}};

static struct cfg *parse(const struct cfg *base, enum cfg_mode mode, const char *text, size_t len)
{
    static FILE *null;
    struct cfg_text from = {.name = "fuzz",
                            .text = text,
                            .len = len,
                            .mode = mode,
                            .base = base,
                            .address = machine,
                            .address_count = 2};
    struct cfg_report report;
    struct cfg *cfg;
    int rc = cfg_parse_onto(&from, &cfg, &report);

    HOLDS((rc == 0) == (cfg != NULL));
    HOLDS((report.errors == 0) == (rc == 0));
    HOLDS(report.count <= CFG_MAX_MESSAGES && report.count <= report.errors + report.warnings);
    for (unsigned i = 0; i < report.count; i++)
        HOLDS(strncmp(report.message[i].text, "fuzz:", 5) == 0 &&
              !strchr(report.message[i].text, '\n'));
    if (!null)
        null = fopen("/dev/null", "w");
    cfg_report_print(&report, null);
    cfg_report_free(&report);
    return cfg;
}

static unsigned changes(const struct cfg *a, const struct cfg *b)
{
    struct cfg_diff diff;
    struct cfg_plan plan;
    unsigned count;
    char *text;

    cfg_diff_make(a, b, &diff);
    cfg_plan_make(a, b, &diff, &plan);
    text = cfg_diff_text(&diff);
    HOLDS(!diff.failed && !plan.failed && text);
    count = diff.count;
    HOLDS(count || !plan.count);
    free(text);
    cfg_plan_free(&plan);
    cfg_diff_free(&diff);
    return count;
}

/* What holds for the table of settings whatever the input: each is found by its path, refuses a
 * wrong text with a message, and takes its default. */
static void check_table(void)
{
    struct cfg *other = cfg_new();
    struct err err = {0};
    char text[CFG_MAX_VALUE];
    struct cfg_setting s, found;

    HOLDS(other);
    for (unsigned i = 0; cfg_setting_at(i, &s); i++) {
        HOLDS(cfg_setting_find(s.path, &found) && strcmp(found.path, s.path) == 0);
        HOLDS(cfg_setting_set(&s, other, "\x01", &err) == 0 || err.message[0]);
        cfg_setting_text(&s, NULL, text);
        if (text[0] || strcmp(s.type, "string") == 0)
            HOLDS(cfg_setting_set(&s, other, text, &err) == 0);
    }
    cfg_free(other);
}

/* Each setting that is not the default can be taken from its text; the same document can be put
 * together by hand. */
static void check_settings(const struct cfg *cfg)
{
    struct cfg *other = cfg_new();
    struct err err = {0};
    char text[CFG_MAX_VALUE];
    struct cfg_report report;
    struct cfg_setting s;

    HOLDS(other);
    for (unsigned i = 0; cfg_setting_at(i, &s); i++) {
        if (cfg_setting_same(&s, cfg, other))
            continue;
        cfg_setting_text(&s, cfg, text);
        if (text[0] || strcmp(s.type, "string") == 0)
            HOLDS(cfg_setting_set(&s, other, text, &err) == 0 ? cfg_setting_same(&s, cfg, other)
                                                              : strchr(err.message, ':') != NULL);
    }
    for (unsigned i = 0; i < cfg->ni_count; i++)
        HOLDS(cfg_append(other, CFG_NIS, &cfg->ni[i]));
    for (unsigned i = 0; i < cfg->route_count; i++)
        HOLDS(cfg_append(other, CFG_ROUTES, &cfg->route[i]));
    HOLDS((cfg_validate("by hand", other, &report) == 0) == (report.errors == 0));
    cfg_report_free(&report);
    for (unsigned i = 0; other->ni_count && cfg_ni_setting_at(i & 1, i / 2, &s); i++) {
        HOLDS(cfg_setting_set(&s, &other->ni[0], "7", &err) == 0);
        HOLDS(cfg_ni_setting_get(&s, &other->ni[0]) == 7);
    }
    cfg_free(other);
}

/* Any text is one value, also as an item of a list. */
static void check_scalar(const char *text)
{
    char *copy = strdup(text), *printed;
    struct yaml_tree_node item = {.kind = YAML_SCALAR, .text = copy};
    struct yaml_tree_node list = {.kind = YAML_SEQ, .child = &item};
    struct yaml_tree_node root = {.kind = YAML_MAP, .child = &list}, *again;
    struct yaml_tree_error err;

    HOLDS(copy);
    list.key = (char[]){"list"};
    printed = cfg_print(&root);
    HOLDS(printed);
    again = yaml_tree_parse(printed, strlen(printed), &err);
    HOLDS(again && strcmp(yaml_tree_get(again, "list")->child->text, text) == 0);
    yaml_tree_free(again);
    free(printed);
    free(copy);
}

/* What is written is read as the same document. */
static void check_written(const struct cfg *cfg)
{
    static const enum cfg_form forms[] = {CFG_FORM_RUNNING, CFG_FORM_BACKUP, CFG_FORM_FILE};
    struct cfg *again, *copy = cfg_copy(cfg);
    char *text;

    HOLDS(copy && changes(cfg, copy) == 0);
    check_scalar(cfg->eal_args);
    cfg_free(copy);
    for (unsigned i = 0; i < 3 && cfg->ni_count; i++) {
        text = cfg_text(cfg, forms[i]);
        HOLDS(text);
        again = parse(NULL, CFG_REPLACE, text, strlen(text));
        HOLDS(again && changes(cfg, again) == 0 && changes(again, cfg) == 0);
        cfg_free(again);
        free(text);
    }
}

/* A document saved over the text of another one is read as the saved document. */
static void check_saved(const char *old, size_t len, const struct cfg *cfg)
{
    struct err err = {0};
    enum cfg_saved how;
    struct cfg *again;
    char *text;
    int rc = cfg_save_text("fuzz", old, len, cfg, &text, &how, &err);

    HOLDS(rc == 0 || err.message[0]);
    if (rc != 0)
        return;
    again = parse(NULL, CFG_REPLACE, text, strlen(text));
    HOLDS(again && changes(cfg, again) == 0);
    cfg_free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char base_text[] =
        "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}, {net type: tcp1, local NI(s): "
        "[{interfaces: {0: eth1}, tunables: {credits: 99}}]}]\n"
        "route: [{net: o2ib, gateway: 10.0.0.9@tcp}]\n"
        "peer: [{primary nid: 10.0.0.2@tcp, peer ni: [{nid: 10.0.0.2@tcp}, {nid: 10.0.0.3@tcp}]}]\n"
        "udsp: [{idx: 0, src: tcp, action: {priority: 1}}]\n"
        "millrace: {names: {10.0.0.2@tcp: oss}, "
        "ports: [{name: p0, addresses: [10.0.0.1/24]}, {name: p1, addresses: [10.9.0.1/24]}], "
        "hello_map: [{address: 10.0.0.5, nid: 10.0.0.77@tcp}]}\n";
    static const enum cfg_mode modes[] = {CFG_MERGE, CFG_DELETE};
    static struct cfg *base;
    struct cfg *cfg = parse(NULL, CFG_REPLACE, (const char *)data, size);

    if (!base) {
        check_table();
        base = parse(NULL, CFG_REPLACE, base_text, sizeof(base_text) - 1);
    }
    HOLDS(base);
    if (cfg) {
        HOLDS(cfg->ni_count >= 1);
        check(cfg);
        check_written(cfg);
        check_settings(cfg);
        changes(base, cfg);
        changes(cfg, base);
    }
    cfg_free(cfg);
    for (unsigned i = 0; i < 2; i++) {
        cfg = parse(base, modes[i], (const char *)data, size);
        if (cfg) {
            check(cfg);
            check_written(cfg);
            check_saved(base_text, sizeof(base_text) - 1, cfg);
        }
        cfg_free(cfg);
    }
    return 0;
}
