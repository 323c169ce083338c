/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of the configuration file. lnetctl's: docs/protocol/lnet-core.md §10.2 to §10.7 (what it
 * exports can be loaded again, what it only shows is ignored); those of `millrace:` are our own.
 */
#include "config/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INT(key, type, field, lo, hi)                                                              \
    {                                                                                              \
        .name = (key), .kind = CFG_INT, .offset = offsetof(type, field), .min = (lo), .max = (hi)  \
    }
#define BOOL(key, type, field)                                                                     \
    {                                                                                              \
        .name = (key), .kind = CFG_BOOL, .offset = offsetof(type, field)                           \
    }
#define WORD(key, type, field, list)                                                               \
    {                                                                                              \
        .name = (key), .kind = CFG_WORD, .offset = offsetof(type, field), .words = (list)          \
    }
#define TEXT(key, type, field)                                                                     \
    {                                                                                              \
        .name = (key), .kind = CFG_TEXT, .offset = offsetof(type, field),                          \
        .max = sizeof(((type *)0)->field)                                                          \
    }
#define SECTION(key, table)                                                                        \
    {                                                                                              \
        .name = (key), .kind = CFG_SECTION, .sub = (table)                                         \
    }
#define CALL(key, function)                                                                        \
    {                                                                                              \
        .name = (key), .kind = CFG_CALL, .fn = (function)                                          \
    }
#define READ_ONLY(key)                                                                             \
    {                                                                                              \
        .name = (key), .kind = CFG_READ_ONLY                                                       \
    }
#define NOT_YET(key)                                                                               \
    {                                                                                              \
        .name = (key), .kind = CFG_NOT_YET                                                         \
    }
#define REFUSED(key, reason)                                                                       \
    {                                                                                              \
        .name = (key), .kind = CFG_REFUSED, .why = (reason)                                        \
    }
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* Room for one more element of a growing array; NULL when out of memory (reported). */
static void *grow(struct cfg_reader *r, unsigned line, void *array, unsigned count, size_t size)
{
    void *grown = array;

    if ((count & (count + 1)) == 0) /* full at 0, 1, 3, 7, … elements */
        grown = realloc(array, (2 * (size_t)count + 1) * size);
    if (!grown)
        cfg_error(r, line, "out of memory");
    return grown;
}

/* ---- net ---- */

static bool read_net(struct cfg_reader *r, const struct yaml_tree_node *value, lnet_net_t *out)
{
    const char *text = cfg_scalar(r, value);

    if (!text)
        return false;
    if (net_parse(text, out) != 0) {
        cfg_error(r, value->line,
                  "'%.40s' is not a net; write a type and number as in tcp or o2ib1", text);
        return false;
    }
    return true;
}

static bool read_nid(struct cfg_reader *r, const struct yaml_tree_node *value, struct lnet_nid *out)
{
    const char *text = cfg_scalar(r, value);

    if (!text)
        return false;
    if (nid_parse(text, out) != 0) {
        cfg_error(r, value->line, "'%.60s' is not a NID; write address@net as in 10.0.0.1@tcp",
                  text);
        return false;
    }
    return true;
}

static void ni_nid(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_ni *ni = obj;
    char net[LNET_NETSTR_SIZE];

    if (!read_nid(r, value, &ni->conf.nid))
        return;
    if (nid_net(&ni->conf.nid) != ni->conf.net)
        cfg_error(r, value->line, "'%.60s' is not of net %s; give it that net or move it",
                  value->text, net_format(ni->conf.net, net));
}

static void ni_interfaces(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_ni *ni = obj;
    const struct yaml_tree_node *entry = value->child;
    const char *name;

    if (value->kind != YAML_MAP || value->children != 1) {
        cfg_error(r, value->line, "must be one interface, as in `0: eth0`; an NI has exactly one");
        return;
    }
    name = cfg_scalar(r, entry);
    if (!name)
        return;
    if (strlen(name) >= sizeof(ni->conf.ifname) || strpbrk(name, "/ \t\r\n")) {
        cfg_error(r, entry->line, "'%.40s' cannot be an interface name; see `ip link`", name);
        return;
    }
    memcpy(ni->conf.ifname, name, strlen(name) + 1);
}

/* "[0,1]": numbers, ranges and commas in brackets. */
static void ni_cpt(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_ni *ni = obj;
    const char *text = value->kind == YAML_SCALAR ? value->text : NULL;
    size_t len = text ? strlen(text) : 0;

    if (len < 3 || len >= sizeof(ni->cpt) || text[0] != '[' || text[len - 1] != ']' ||
        strspn(text + 1, "0123456789,-") != len - 2) {
        cfg_error(r, value->line, "must be a quoted list of CPTs as in \"[0,1]\"");
        return;
    }
    memcpy(ni->cpt, text, len + 1);
    if (strcmp(text, "[0]") != 0)
        cfg_warning(r, value->line, "not acted on yet: an NI uses all CPTs");
}

#define TUN(key, field, lo, hi)     INT(key, struct cfg_ni, conf.tun.field, lo, hi)
#define LND_TUN(key, field, lo, hi) INT(key, struct cfg_ni, conf.lnd_tun.field, lo, hi)

static const struct cfg_key tunables_keys[] = {
    TUN("peer_timeout", peer_timeout, -1, 86400),
    TUN("peer_credits", peer_credits, -1, 65535),
    TUN("peer_buffer_credits", peer_buffer_credits, -1, 65535),
    TUN("credits", credits, -1, 65535),
    END,
};

static const struct cfg_key lnd_tunables_keys[] = {
    LND_TUN("conns_per_peer", conns_per_peer, -1, 127),
    LND_TUN("timeout", timeout, -1, 3600),
    LND_TUN("tos", tos, -1, 255),
    NOT_YET("peercredits_hiw"),
    NOT_YET("map_on_demand"),
    NOT_YET("concurrent_sends"),
    NOT_YET("fmr_pool_size"),
    NOT_YET("fmr_flush_trigger"),
    NOT_YET("fmr_cache"),
    NOT_YET("ntx"),
    NOT_YET("auth_key"),
    NOT_YET("traffic_class"),
    NOT_YET("traffic_class_num"),
    READ_ONLY("prov_major_version"),
    READ_ONLY("prov_minor_version"),
    END,
};

static const struct cfg_key ni_keys[] = {
    CALL("nid", ni_nid),
    CALL("interfaces", ni_interfaces),
    SECTION("tunables", tunables_keys),
    SECTION("lnd tunables", lnd_tunables_keys),
    CALL("CPT", ni_cpt),
    READ_ONLY("status"),
    READ_ONLY("statistics"),
    READ_ONLY("udsp info"),
    READ_ONLY("sent_stats"),
    READ_ONLY("received_stats"),
    READ_ONLY("dropped_stats"),
    READ_ONLY("health stats"),
    READ_ONLY("dev cpt"),
    READ_ONLY("tcp bonding"),
    END,
};

/* Zero credits can carry nothing, docs/protocol/lnet-core.md §5.1. */
static void check_credits(struct cfg_reader *r, const struct cfg_ni *ni)
{
    if (ni->conf.tun.credits == 0)
        cfg_error(r, ni->line, "credits: 0 lets no message pass; write 1 or more, or -1");
    if (ni->conf.tun.peer_credits == 0)
        cfg_error(r, ni->line, "peer_credits: 0 lets no message pass; write 1 or more, or -1");
}

static void read_ni(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg *cfg = r->cfg;
    const lnet_net_t *net = obj;
    struct cfg_ni ni = {.conf = {.net = *net,
                                 .nid = LNET_NID_ANY,
                                 .tun = {-1, -1, -1, -1},
                                 .lnd_tun = {-1, -1, -1}},
                        .line = item->line};
    struct cfg_ni *grown;

    cfg_read_map(r, item, ni_keys, &ni);
    check_credits(r, &ni);
    if (!yaml_tree_get(item, "nid") && !yaml_tree_get(item, "interfaces"))
        cfg_error(r, item->line,
                  "has no address; add `interfaces: {0: NAME}` or `nid: ADDRESS@NET`");
    if (cfg->ni_count == LNET_MAX_NI) {
        cfg_error(r, item->line, "is one NI too many; a node has at most %d", LNET_MAX_NI);
        return;
    }
    grown = grow(r, item->line, cfg->ni, cfg->ni_count, sizeof(ni));
    if (!grown)
        return;
    cfg->ni = grown;
    cfg->ni[cfg->ni_count++] = ni;
}

/* "net type" was read before the NIs, whatever their order. */
static void net_type(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
}

static void net_nis(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    cfg_read_items(r, value, read_ni, obj);
}

static const struct cfg_key net_keys[] = {
    CALL("net type", net_type),
    CALL("local NI(s)", net_nis),
    END,
};

static void read_net_item(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    const struct yaml_tree_node *type = yaml_tree_get(item, "net type");
    lnet_net_t net;

    if (!type) {
        cfg_error(r, item->line, "has no 'net type'; add one, as in `net type: tcp`");
        return;
    }
    if (!read_net(r, type, &net))
        return;
    if (net >> 16 != LNET_LND_LO) /* every node has it */
        cfg_read_map(r, item, net_keys, &net);
}

static void read_nets(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    cfg_read_items(r, value, read_net_item, NULL);
}

/* ---- route ---- */

static void route_net(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_route *route = obj;

    read_net(r, value, &route->conf.net);
}

static void route_gateway(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_route *route = obj;

    read_nid(r, value, &route->conf.gateway);
}

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
    int n;

    if (cfg_read_int(r, value, 0, CFG_MAX_INT, &n))
        route->conf.priority = (unsigned)n;
}

static const struct cfg_key route_keys[] = {
    CALL("net", route_net),
    CALL("gateway", route_gateway),
    CALL("hop", route_hop),
    CALL("priority", route_priority),
    READ_ONLY("state"),
    READ_ONLY("type"),
    READ_ONLY("health_sensitivity"),
    READ_ONLY("seq_no"),
    END,
};

static void read_route(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg *cfg = r->cfg;
    struct cfg_route route = {
        .conf = {.net = LNET_NET_ANY, .gateway = LNET_NID_ANY, .hops = LNET_HOPS_UNDEFINED},
        .line = item->line};
    struct cfg_route *grown;

    cfg_read_map(r, item, route_keys, &route);
    if (!yaml_tree_get(item, "net") || !yaml_tree_get(item, "gateway")) {
        cfg_error(r, item->line, "needs both 'net' and 'gateway'; add what is missing");
        return;
    }
    if (route.conf.net == LNET_NET_ANY || nid_is_any(&route.conf.gateway))
        return; /* reported */
    if (cfg->route_count == CFG_MAX_ROUTES) {
        cfg_error(r, item->line, "is one route too many; at most %d", CFG_MAX_ROUTES);
        return;
    }
    grown = grow(r, item->line, cfg->route, cfg->route_count, sizeof(route));
    if (!grown)
        return;
    cfg->route = grown;
    cfg->route[cfg->route_count++] = route;
}

static void read_routes(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    cfg_read_items(r, value, read_route, NULL);
}

/* ---- routing, buffers, global ---- */

/* §10.4: 0 disabled, 1 enabled, 2 stopping, 3 starting. */
static void routing_enable(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg *cfg = obj;
    int state;

    if (cfg_read_int(r, value, 0, 3, &state))
        cfg->routing = state == 1 || state == 3;
}

static const struct cfg_key routing_keys[] = {
    CALL("enable", routing_enable),
    READ_ONLY("cpt["),
    END,
};

static void routing_item(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    cfg_read_map(r, item, routing_keys, r->cfg);
}

static void read_routing(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    cfg_read_items(r, value, routing_item, NULL);
}

/* -1 leaves a pool as it is, which here is its default. */
static void read_pool(struct cfg_reader *r, const struct yaml_tree_node *value, int max, int *out)
{
    int n;

    if (cfg_read_int(r, value, -1, max, &n))
        *out = n < 0 ? 0 : n;
}

static void buffers_tiny(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    read_pool(r, value, 1 << 20, &((struct cfg *)obj)->tiny);
}

static void buffers_small(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    read_pool(r, value, 1 << 20, &((struct cfg *)obj)->small);
}

static void buffers_large(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    read_pool(r, value, 1 << 18, &((struct cfg *)obj)->large);
}

static const struct cfg_key buffers_keys[] = {
    CALL("tiny", buffers_tiny),
    CALL("small", buffers_small),
    CALL("large", buffers_large),
    END,
};

/* The single settings of §10.5, also accepted at the top level (§10.7). */
#define GLOBAL_NOT_YET                                                                             \
    NOT_YET("numa_range"), NOT_YET("max_interfaces"), NOT_YET("max_intf"), NOT_YET("discovery"),   \
        NOT_YET("drop_asym_route"), NOT_YET("retry_count"), NOT_YET("transaction_timeout"),        \
        NOT_YET("health_sensitivity"), NOT_YET("recovery_interval"),                               \
        NOT_YET("router_sensitivity"), READ_ONLY("lnd_timeout"), NOT_YET("response_tracking"),     \
        NOT_YET("recovery_limit"), NOT_YET("max_recovery_ping_interval")

static const struct cfg_key global_keys[] = {
    INT("alive_router_check_interval", struct cfg, check_interval, 1, 86400),
    INT("router_ping_timeout", struct cfg, ping_timeout, 1, 86400),
    GLOBAL_NOT_YET,
    END,
};

/* ---- millrace ---- */

static void rpc_mode(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg *cfg = obj;
    const char *text = cfg_scalar(r, value);

    if (!text)
        return;
    if (strspn(text, "01234567") != strlen(text) || strlen(text) < 3 || strlen(text) > 4 ||
        strtol(text, NULL, 8) > 0777) {
        cfg_error(r, value->line, "'%.20s' is not a file mode; write octal digits as in \"0660\"",
                  text);
        return;
    }
    cfg->rpc_mode = (int)strtol(text, NULL, 8);
}

static const struct cfg_key rpc_keys[] = {
    TEXT("socket", struct cfg, rpc_socket),
    CALL("mode", rpc_mode),
    END,
};

struct hello_reader {
    char address[LNET_NIDSTR_SIZE];
    struct lnet_nid nid;
};

static void hello_nid(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct hello_reader *hello = obj;

    read_nid(r, value, &hello->nid);
}

static const struct cfg_key hello_keys[] = {
    TEXT("address", struct hello_reader, address),
    CALL("nid", hello_nid),
    END,
};

/* The address is of the net that the NID is claimed on, whether written with it or without. */
static bool hello_address(const struct hello_reader *hello, struct lnet_nid *out)
{
    char text[LNET_NIDSTR_SIZE + LNET_NETSTR_SIZE + 2], net[LNET_NETSTR_SIZE];
    bool whole = strchr(hello->address, '@') != NULL;

    snprintf(text, sizeof(text), "%s%s%s", hello->address, whole ? "" : "@",
             whole ? "" : net_format(nid_net(&hello->nid), net));
    return nid_parse(text, out) == 0 && nid_net(out) == nid_net(&hello->nid);
}

static void read_hello(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg *cfg = r->cfg;
    struct hello_reader hello = {.nid = LNET_NID_ANY};
    struct cfg_hello entry, *grown;

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
    if (cfg->hello_count == CFG_MAX_HELLO_MAP) {
        cfg_error(r, item->line, "is one entry too many; at most %d", CFG_MAX_HELLO_MAP);
        return;
    }
    entry.nid = hello.nid;
    grown = grow(r, item->line, cfg->hello, cfg->hello_count, sizeof(entry));
    if (!grown)
        return;
    cfg->hello = grown;
    cfg->hello[cfg->hello_count++] = entry;
}

static void read_hello_map(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    cfg_read_items(r, value, read_hello, NULL);
}

static void read_cores(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg *cfg = obj;
    const char *text = cfg_scalar(r, value);

    if (!text)
        return;
    if (strlen(text) >= sizeof(cfg->cores) ||
        (strcmp(text, "auto") != 0 && cfg_cores_count(text) == 0)) {
        cfg_error(r, value->line,
                  "'%.60s' is not a list of cores; write auto, \"2,3\" or by CPT "
                  "\"0:2,3;1:8-11\"; at most %d, each once",
                  text, REACTOR_MAX);
        return;
    }
    memcpy(cfg->cores, text, strlen(text) + 1);
}

static const char *const idle_words[] = {"adaptive", "spin", NULL};
static const char *const accept_words[] = {"secure", "all", "none", NULL};
static const char *const source_words[] = {"net", "strict", "off", NULL};

static const struct cfg_key millrace_keys[] = {
    CALL("cores", read_cores),
    INT("reactors", struct cfg, reactors, 1, REACTOR_MAX),
    WORD("idle", struct cfg, idle, idle_words),
    BOOL("hugepages", struct cfg, hugepages),
    INT("memory", struct cfg, memory, 0, 1 << 20),
    TEXT("eal_args", struct cfg, eal_args),
    SECTION("rpc", rpc_keys),
    WORD("accept", struct cfg, accept, accept_words),
    INT("accept_port", struct cfg, accept_port, 1, 65535),
    INT("accept_timeout", struct cfg, accept_timeout, 1, 600),
    INT("keepalive", struct cfg, keepalive, 0, 3600),
    INT("min_reconnect", struct cfg, min_reconnect, 1, 3600),
    INT("max_reconnect", struct cfg, max_reconnect, 1, 3600),
    CALL("hello_map", read_hello_map),
    WORD("source_check", struct cfg, source_check, source_words),
    INT("egress_share", struct cfg, egress_share, 1, 100),
    INT("buffer_wait", struct cfg, buffer_wait, 1, 12),
    INT("max_peers", struct cfg, max_peers, 1, 1 << 20),
    INT("drain", struct cfg, drain, 0, 3600),
    END,
};

/* ---- top ---- */

const struct cfg_key cfg_top_keys[] = {
    CALL("net", read_nets),
    CALL("route", read_routes),
    CALL("routing", read_routing),
    SECTION("buffers", buffers_keys),
    SECTION("global", global_keys),
    SECTION("millrace", millrace_keys),
    NOT_YET("peer"),
    NOT_YET("udsp"),
    NOT_YET("numa"),
    READ_ONLY("statistics"),
    REFUSED("ip2nets", "not supported; list this node's NIs under net: instead"),
    GLOBAL_NOT_YET,
    END,
};
