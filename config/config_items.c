/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the lists that have an effect: NIs, routes, hello_map, names. */
#include "config/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- net ---- */

static void ni_nid(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_ni *ni = obj;
    char net[LNET_NETSTR_SIZE];

    if (!cfg_read_named(r, CFG_NID, value, &ni->conf.nid))
        return;
    if (nid_net(&ni->conf.nid) != ni->conf.net)
        cfg_error(r, value->line, "'%.60s' is not of net %s; give it that net or move it",
                  value->text, net_format(ni->conf.net, net));
}

bool cfg_read_ifname(struct cfg_reader *r, const struct yaml_tree_node *value, char out[16])
{
    const char *name = cfg_scalar(r, value);
    bool ok = name && strlen(name) < 16 && !strpbrk(name, "/ \t\r\n");

    if (ok)
        memcpy(out, name, strlen(name) + 1);
    else if (name)
        cfg_error(r, value->line, "'%.40s' cannot be an interface name; see `ip link`", name);
    return ok;
}

static void ni_interfaces(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_ni *ni = obj;

    if (value->kind != YAML_MAP || value->children != 1)
        cfg_error(r, value->line, "must be one interface, as in `0: eth0`; an NI has exactly one");
    else
        cfg_read_ifname(r, value->child, ni->conf.ifname);
}

bool cfg_cpt_valid(const char *text)
{
    size_t len = strlen(text);

    return len >= 3 && len < sizeof(((struct cfg_ni *)NULL)->cpt) && text[0] == '[' &&
           text[len - 1] == ']' && strspn(text + 1, "0123456789,-") == len - 2;
}

void cfg_read_cpt(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_ni *ni = obj;
    const char *text = value->kind == YAML_SCALAR ? value->text : NULL;

    if (!text || !cfg_cpt_valid(text)) {
        cfg_error(r, value->line, "must be a quoted list of CPTs as in \"[0,1]\"");
        return;
    }
    memcpy(ni->cpt, text, strlen(text) + 1);
    if (strcmp(text, "[0]") != 0)
        cfg_say(r, CFG_IGNORED, value->line, "not acted on yet: an NI uses all CPTs");
}

#define TUN(key, field, lo, hi, when, text)                                                        \
    CFG_FIELD(struct cfg_ni, key, CFG_INT, field, .min = (lo), .max = (hi), .applies = (when),     \
              .help = (text))

const struct cfg_key cfg_tunables_keys[] = {
    TUN("peer_timeout", conf.tun.peer_timeout, -1, 86400, CFG_NI_RESTART,
        "after which a silent peer counts as down"),
    TUN("peer_credits", conf.tun.peer_credits, -1, 65535, CFG_NI_RESTART,
        "messages handed to the network for one peer at a time"),
    TUN("peer_buffer_credits", conf.tun.peer_buffer_credits, -1, 65535, CFG_NI_RESTART,
        "router buffers that messages of one peer may hold; 0 = peer_credits"),
    TUN("credits", conf.tun.credits, -1, 65535, CFG_NI_RESTART,
        "messages handed to the network on this NI at a time"),
    CFG_KEYS_END,
};

struct cfg_key cfg_lnd_tunables_keys[CFG_LND_KEYS_ROOM] = {
    CFG_LND_KEYS,
    TUN("conns_per_peer", conf.lnd_tun.conns_per_peer, -1, 127, CFG_NEW_CONNECTIONS,
        "connections to a peer; tcp: bulk connections per direction"),
    TUN("timeout", conf.lnd_tun.timeout, -1, 3600, CFG_NEW_CONNECTIONS,
        "without progress after which a connection is given up"),
    TUN("tos", conf.lnd_tun.tos, -1, 255, CFG_NEW_CONNECTIONS,
        "type of service of the connections"),
    CFG_FIELD(struct cfg_ni, "auth_key", CFG_INT, kept.auth_key, .min = -1, .max = CFG_MAX_INT,
              .kept = true),
    CFG_FIELD(struct cfg_ni, "traffic_class", CFG_TEXT, kept.traffic_class, .max = 32,
              .kept = true),
    CFG_FIELD(struct cfg_ni, "traffic_class_num", CFG_INT, kept.traffic_class_num, .min = -1,
              .max = CFG_MAX_INT, .kept = true),
    CFG_IGNORES("prov_major_version"),
    CFG_IGNORES("prov_minor_version"),
    CFG_KEYS_END,
};

static const struct cfg_key ni_keys[] = {
    CFG_CALLS("nid", ni_nid),
    CFG_CALLS("interfaces", ni_interfaces),
    CFG_NI_TUNING,
    CFG_IGNORES("status"),
    CFG_IGNORES("reason"),
    CFG_IGNORES("dev cpt"),
    CFG_IGNORES("tcp bonding"),
    CFG_IGNORES_COUNTS,
    CFG_KEYS_END,
};

#define CREDITS_DEFAULT 256 /* of every LND */

/* Zero credits can carry nothing, and a peer cannot have more than all, docs/protocol/lnet-core.md
 * §5.1. */
static void check_credits(struct cfg_reader *r, const struct cfg_ni *ni)
{
    int credits = ni->conf.tun.credits == -1 ? CREDITS_DEFAULT : ni->conf.tun.credits;

    if (ni->conf.tun.credits == 0)
        cfg_error(r, ni->line, "credits: 0 lets no message pass; write 1 or more, or -1");
    if (ni->conf.tun.peer_credits == 0)
        cfg_error(r, ni->line, "peer_credits: 0 lets no message pass; write 1 or more, or -1");
    if (credits > 0 && ni->conf.tun.peer_credits > credits)
        cfg_warning(
            r, ni->line,
            "peer_credits: %d is more than credits, which is %d; the NI uses at most %d: raise "
            "credits or lower peer_credits",
            ni->conf.tun.peer_credits, credits, credits);
}

struct cfg_ni cfg_new_ni(lnet_net_t net, unsigned line)
{
    return (struct cfg_ni){.conf = {.net = net,
                                    .nid = LNET_NID_ANY,
                                    .tun = {-1, -1, -1, -1},
                                    .lnd_tun = LND_TUNABLES_DEFAULT},
                           .kept = {-1, -1, ""},
                           .line = line};
}

void cfg_put_ni(struct cfg_reader *r, const struct cfg_ni *ni)
{
    char net[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE], none[200];

    snprintf(none, sizeof(none),
             "there is no NI %s on net %s to be removed; `millrace net show` lists them",
             nid_is_any(&ni->conf.nid) ? ni->conf.ifname : nid_format(&ni->conf.nid, nid),
             net_format(ni->conf.net, net));
    cfg_put(r, CFG_NIS, ni, cfg_find_base(r, CFG_NIS, ni), ni->line, none);
}

static void read_ni(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    const lnet_net_t *net = obj;
    const struct yaml_tree_node *nid = yaml_tree_get(item, "nid"),
                                *interfaces = yaml_tree_get(item, "interfaces");
    struct cfg_ni ni = cfg_new_ni(*net, item->line);
    unsigned errors = r->report->errors;
    const struct cfg_ni *there;

    if (!nid && !interfaces)
        cfg_error(r, item->line,
                  "has no address; add `interfaces: {0: NAME}` or `nid: ADDRESS@NET`");
    /* A key that the text lacks keeps the value that the NI has in the base. */
    if (cfg_mode(r) == CFG_MERGE) {
        struct cfg_report silent = {0}, *said = r->report;

        r->report = &silent;
        if (nid)
            ni_nid(r, &ni, nid);
        if (interfaces)
            ni_interfaces(r, &ni, interfaces);
        r->report = said;
        cfg_report_free(&silent);
        there = cfg_find_base(r, CFG_NIS, &ni);
        if (there)
            ni = *there;
        ni.line = item->line;
    }
    cfg_read_map(r, item, ni_keys, &ni);
    check_credits(r, &ni);
    if (cfg_mode(r) == CFG_DELETE && r->report->errors > errors)
        return;
    cfg_put_ni(r, &ni);
}

static const struct cfg_key net_keys[] = {
    CFG_CALLS("net type", NULL), /* read before the NIs, in any order */
    CFG_EACH("local NI(s)", read_ni),
    CFG_KEYS_END,
};

/* Removes all NIs of a net: the text names the net and no NI. */
static void take_net(struct cfg_reader *r, lnet_net_t net, unsigned line)
{
    char name[LNET_NETSTR_SIZE];
    unsigned before = r->cfg->ni_count;

    for (unsigned i = r->cfg->ni_count; i-- > 0;)
        if (r->cfg->ni[i].conf.net == net)
            cfg_take(r->cfg, CFG_NIS, &r->cfg->ni[i]);
    if (r->cfg->ni_count == before)
        cfg_error(r, line, "there is no net %s to be removed; `millrace net show` lists them",
                  net_format(net, name));
}

void cfg_read_net_item(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    const struct yaml_tree_node *type = yaml_tree_get(item, "net type");
    lnet_net_t net;

    if (!type) {
        cfg_error(r, item->line, "has no 'net type'; add one, as in `net type: tcp`");
        return;
    }
    if (!cfg_read_named(r, CFG_NET, type, &net))
        return;
    if (net >> 16 == LNET_LND_LO) /* every node has it */
        return;
    if (cfg_mode(r) == CFG_DELETE && !yaml_tree_get(item, "local NI(s)"))
        take_net(r, net, item->line);
    else
        cfg_read_map(r, item, net_keys, &net);
}

/* ---- route ---- */

/* 1..255, or undefined: -1 or its unsigned form. */
static void route_hop(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_route *route = obj;
    const char *text = cfg_scalar(r, value);

    if (text && strcmp(text, "-1") != 0 && strcmp(text, "4294967295") != 0)
        cfg_read_int(r, value, 1, 255, &route->conf.hops);
}

static void route_priority(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_route *route = obj;
    const char *text = cfg_scalar(r, value);
    unsigned long long n;

    if (!text)
        return;
    errno = 0;
    n = strtoull(text, NULL, 10);
    if (text[strspn(text, "0123456789")] || errno || n > UINT32_MAX)
        cfg_error(r, value->line, "%.40s is out of range; write a number from 0 to %u", text,
                  UINT32_MAX);
    else
        route->conf.priority = (unsigned)n;
}

static const struct cfg_key route_keys[] = {
    CFG_FIELD(struct cfg_route, "net", CFG_NET, conf.net),
    CFG_FIELD(struct cfg_route, "gateway", CFG_NID, conf.gateway),
    CFG_CALLS("hop", route_hop),
    CFG_CALLS("priority", route_priority),
    CFG_IGNORES("state"),
    CFG_IGNORES("type"),
    CFG_IGNORES("health_sensitivity"),
    CFG_IGNORES("seq_no"),
    CFG_KEYS_END,
};

struct cfg_route *cfg_find_route(const struct cfg *cfg, lnet_net_t net,
                                 const struct lnet_nid *gateway)
{
    return cfg_find(cfg, CFG_ROUTES,
                    &(struct cfg_route){.conf = {.net = net, .gateway = *gateway}});
}

void cfg_read_route(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_route route = {
        .conf = {.net = LNET_NET_ANY, .gateway = LNET_NID_ANY, .hops = LNET_HOPS_UNDEFINED},
        .line = item->line};

    cfg_read_map(r, item, route_keys, &route);
    if (!yaml_tree_get(item, "net") || !yaml_tree_get(item, "gateway")) {
        cfg_error(r, item->line, "needs both 'net' and 'gateway'; add what is missing");
        return;
    }
    if (route.conf.net == LNET_NET_ANY || nid_is_any(&route.conf.gateway))
        return; /* reported */
    cfg_put(r, CFG_ROUTES, &route, cfg_find_base(r, CFG_ROUTES, &route), route.line,
            "there is no such route to be removed; `millrace route show` lists them");
}

/* ---- hello_map ---- */

struct hello_reader {
    char address[LNET_NIDSTR_SIZE];
    struct lnet_nid nid;
};

static const struct cfg_key hello_keys[] = {
    CFG_FIELD(struct hello_reader, "address", CFG_TEXT, address, .max = LNET_NIDSTR_SIZE),
    CFG_FIELD(struct hello_reader, "nid", CFG_NID, nid),
    CFG_KEYS_END,
};

/* The address is of the net that the NID is claimed on, whether written with it or without. */
static bool hello_address(const struct hello_reader *hello, struct lnet_nid *out)
{
    char text[LNET_NIDSTR_SIZE + LNET_NETSTR_SIZE + 1], net[LNET_NETSTR_SIZE];
    bool whole = strchr(hello->address, '@');

    snprintf(text, sizeof(text), "%s%s%s", hello->address, whole ? "" : "@",
             whole ? "" : net_format(nid_net(&hello->nid), net));
    return nid_parse(text, out) == 0 && nid_net(out) == nid_net(&hello->nid);
}

void cfg_read_hello(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct hello_reader hello = {.nid = LNET_NID_ANY};
    struct cfg_hello entry;

    cfg_read_map(r, item, hello_keys, &hello);
    if (!hello.address[0] || nid_is_any(&hello.nid)) {
        cfg_error(r, item->line,
                  "needs 'address' and 'nid'; write {address: 10.0.0.5, "
                  "nid: 10.0.0.77@tcp}");
        return;
    }
    if (!lnd_type_has_ip(hello.nid.type) || !hello_address(&hello, &entry.address)) {
        cfg_error(r, item->line,
                  "'%.60s' is not an IP address of the NID's net; "
                  "write {address: 10.0.0.5, nid: 10.0.0.77@tcp}",
                  hello.address);
        return;
    }
    entry.nid = hello.nid;
    cfg_put(r, CFG_HELLOS, &entry, cfg_find_base(r, CFG_HELLOS, &entry), item->line,
            "there is no such entry to be removed");
}

/* ---- names ---- */

_Static_assert(CFG_MAX_NAMES <= YAML_MAX_KEYS, "what is written can be read again");

/* A host name is printed on terminals and in logs, so it has no control characters. */
static bool is_host(const char *text)
{
    for (; *text && *text != ' ' && !yaml_control(text); text++)
        ;
    return !*text;
}

void cfg_read_names(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_name name;
    const char *host;

    if (yaml_tree_is_null(value))
        return;
    if (value->kind != YAML_MAP) {
        cfg_error(r, value->line, "must be a mapping; write `10.0.0.1@tcp: host` lines below it");
        return;
    }
    for (const struct yaml_tree_node *entry = value->child; entry; entry = entry->next) {
        host = cfg_scalar(r, entry);
        if (!host)
            continue;
        memset(&name, 0, sizeof(name));
        if (nid_parse(entry->key, &name.nid) != 0)
            cfg_error(r, entry->line, "'%.60s' is not a NID; write 10.0.0.1@tcp: host", entry->key);
        else if (strlen(host) >= sizeof(name.host) || !is_host(host))
            cfg_error(
                r, entry->line,
                "'%.40s' is not a host name; write up to %zu characters without spaces and control "
                "characters",
                host, sizeof(name.host) - 1);
        else {
            memcpy(name.host, host, strlen(host) + 1);
            cfg_put(r, CFG_NAMES, &name, cfg_find(r->cfg, CFG_NAMES, &name), entry->line, NULL);
        }
    }
}
