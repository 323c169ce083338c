/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of the configuration file. lnetctl's keys: docs/protocol/lnet-core.md §10.2 to §10.7.
 * A file that lnetctl exports can be loaded; keys that lnetctl only shows are ignored. The keys
 * of `millrace:` are our own. config_items.c and config_kept.c read the lists.
 */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#include "lib/lnd/code.h"

/* An integer setting. A new value applies at once unless the row has `.applies`. */
#define INT(key, field, lo, hi, text, ...)                                                         \
    CFG_FIELD(struct cfg, key, CFG_INT, field, .min = (lo), .max = (hi), .help = (text),           \
              ##__VA_ARGS__)
#define BOOL(key, field, text, ...)                                                                \
    CFG_FIELD(struct cfg, key, CFG_BOOL, field, .help = (text), ##__VA_ARGS__)
#define WORD(key, field, list, text, ...)                                                          \
    CFG_FIELD(struct cfg, key, CFG_WORD, field, .words = (list), .help = (text), ##__VA_ARGS__)
#define TEXT(key, field, text, ...)                                                                \
    CFG_FIELD(struct cfg, key, CFG_TEXT, field, .max = sizeof(((struct cfg *)0)->field),           \
              .help = (text), ##__VA_ARGS__)
#define RESTART .applies = CFG_RESTART
#define KEPT    .kept = true

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
    INT("enable", routing, 0, 1, "whether the node forwards messages", .fn = routing_enable),
    CFG_IGNORES("cpt["),
    CFG_KEYS_END,
};

/* -1 leaves a pool as it is; in a whole document it means the default. */
static const struct cfg_key buffers_keys[] = {
    INT("tiny", tiny, 0, 1 << 20, "router buffers for messages without payload; 0 = default",
        .or_as_is = true),
    INT("small", small, 0, 1 << 20, "router buffers for payload up to 4 KiB; 0 = default",
        .or_as_is = true),
    INT("large", large, 0, 1 << 18, "router buffers for payload up to 1 MiB; 0 = default",
        .or_as_is = true),
    CFG_KEYS_END,
};

/* §6.1, §6.3, §10.5, §11. lnetctl reads these keys in the section `global` and at the top level,
 * §10.7. */
#define GLOBAL_KEYS(...)                                                                           \
    INT("numa_range", numa_range, 0, CFG_MAX_INT, "distance up to which NUMA nodes count as near", \
        KEPT, ##__VA_ARGS__),                                                                      \
        INT("max_interfaces", max_interfaces, 16, 65535, "number of NIDs taken of one node",       \
            .exported = true, ##__VA_ARGS__),                                                      \
        INT("max_intf", max_interfaces, 16, 65535, NULL, .alias = true),                           \
        INT("discovery", discovery, 0, 1, "discover peers", .exported = true, ##__VA_ARGS__),      \
        INT("drop_asym_route", drop_asym_route, 0, 1,                                              \
            "drop messages that arrive over another route than the answer would take",             \
            .exported = true, ##__VA_ARGS__),                                                      \
        INT("retry_count", retry_count, 0, 255,                                                    \
            "number of resends of a message; 0 if health_sensitivity is 0", .exported = true,      \
            ##__VA_ARGS__),                                                                        \
        INT("transaction_timeout", transaction_timeout, 1, 86400,                                  \
            "longest time of a message, with its resends", .unit = "s", .exported = true,          \
            ##__VA_ARGS__),                                                                        \
        INT("health_sensitivity", health_sensitivity, 0, 1000, "decrease of health by a failure",  \
            .exported = true, ##__VA_ARGS__),                                                      \
        INT("recovery_interval", recovery_interval, 1, 86400,                                      \
            "time between pings of an NI that is not healthy", KEPT, .unit = "s", ##__VA_ARGS__),  \
        INT("router_sensitivity", router_sensitivity, 0, 100,                                      \
            "least health of a usable gateway; without effect, as on kernel nodes since 2.17",     \
            KEPT, .no_effect_since = "2.17", .unit = "%", ##__VA_ARGS__),                          \
        CFG_IGNORES("lnd_timeout"),                                                                \
        INT("response_tracking", response_tracking, 0, 3,                                          \
            "responses to this node that have a time limit: 1 to GETs, 2 ACKs, 3 both",            \
            .exported = true, ##__VA_ARGS__),                                                      \
        INT("recovery_limit", recovery_limit, 0, CFG_MAX_INT,                                      \
            "time since a peer NI was last heard after which it is not pinged any more, 0: none",  \
            .exported = true, .unit = "s", ##__VA_ARGS__),                                         \
        INT("max_recovery_ping_interval", max_recovery_ping_interval, 1, 86400,                    \
            "longest time between pings of an NI that is not healthy", .unit = "s",                \
            .exported = true, ##__VA_ARGS__)

static const struct cfg_key global_keys[] = {
    GLOBAL_KEYS(),
    INT("alive_router_check_interval", check_interval, 1, 86400,
        "time between pings of each gateway", .unit = "s"),
    INT("router_ping_timeout", ping_timeout, 1, 86400,
        "a net over which no peer sent a message for this and the interval is published as down",
        .unit = "s"),
    CFG_KEYS_END,
};

static const struct cfg_key numa_keys[] = {
    INT("range", numa_range, 0, CFG_MAX_INT, NULL, KEPT, .alias = true),
    CFG_KEYS_END,
};

/* ---- millrace ---- */

static const struct cfg_key rpc_keys[] = {
    TEXT("socket", rpc_socket, "path of the control socket", RESTART),
    CFG_FIELD(struct cfg, "mode", CFG_MODE, rpc_mode, .max = 0777, RESTART,
              .help = "permissions of the control socket"),
    TEXT("group", rpc_group, "group that owns the control socket", RESTART),
    TEXT("admin_group", rpc_admin_group, "group whose members may change everything", RESTART),
    TEXT("operator_group", rpc_operator_group,
         "group whose members may change routes, peers and forwarding", RESTART),
    TEXT("read_group", rpc_read_group, "group whose members may read", RESTART),
    CFG_KEYS_END,
};

const char *const cfg_log_level_names[] = {"debug", "info", "warning", "error", NULL};

#define MODULE(key, module)                                                                        \
    WORD(key, log_levels[module], cfg_log_level_names, "level of this module; left out: `level`",  \
         .min = -1)

static const struct cfg_key levels_keys[] = {
    MODULE("millraced", LOG_MODULE_MILLRACED),
    MODULE("config", LOG_MODULE_CONFIG),
    MODULE("rpc", LOG_MODULE_RPC),
    MODULE("lnet", LOG_MODULE_LNET),
    MODULE("socklnd", LOG_MODULE_SOCKLND),
    MODULE("events", LOG_MODULE_EVENTS),
    MODULE("drops", LOG_MODULE_DROPS),
    CFG_KEYS_END,
};

static bool is_place(const char *text)
{
    return text[0] == '/' || strcmp(text, "stderr") == 0 || strcmp(text, "journald") == 0;
}

static const struct cfg_key log_keys[] = {
    TEXT("to", log_to, "stderr, journald or a path", RESTART, .valid = is_place,
         .otherwise = "is no place for a log; write stderr, journald or a path"),
    WORD("level", log_level, cfg_log_level_names, "least level that is logged"),
    CFG_READS("levels", levels_keys),
    CFG_KEYS_END,
};

static const struct cfg_key guard_keys[] = {
#define GUARD(symbol, key, what) BOOL(key, guard[LNET_GUARD_##symbol], what),
#include "lib/lnet/wire/guard.def"
#undef GUARD
    CFG_KEYS_END,
};

_Static_assert(REACTOR_MAX == 64, "as the message about `cores` says");

static bool is_cores(const char *text)
{
    return strcmp(text, "auto") == 0 || cfg_cores_count(text) > 0;
}

/* A file of a later version can be read: keys that this version does not know are left out. */
static void read_schema(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg *cfg = obj;

    if (cfg_read_int(r, value, 1, CFG_MAX_INT, &cfg->schema) && cfg->schema > CFG_SCHEMA)
        cfg_warning(r, value->line,
                    "the file is of schema %d, this version knows %d: keys it does not know are "
                    "left out",
                    cfg->schema, CFG_SCHEMA);
}

const char *const cfg_idle_names[] = {
    [REACTOR_IDLE_SPIN] = "spin", [REACTOR_IDLE_ADAPTIVE] = "adaptive", NULL};
const char *const cfg_accept_names[] = {
    [LND_ACCEPT_SECURE] = "secure", [LND_ACCEPT_ALL] = "all", [LND_ACCEPT_NONE] = "none", NULL};
const char *const cfg_source_names[] = {
    [LNET_SOURCE_NET] = "net", [LNET_SOURCE_STRICT] = "strict", [LNET_SOURCE_OFF] = "off", NULL};
const char *const cfg_seccomp_names[] = {
    [CFG_SECCOMP_ON] = "on", [CFG_SECCOMP_OFF] = "off", [CFG_SECCOMP_LOG] = "log", NULL};
const char *const cfg_congestion_names[] = {"cubic", "newreno", NULL};

struct cfg_key cfg_millrace_keys[CFG_LND_KEYS_ROOM] = {
    CFG_CALLS("schema", read_schema),
    TEXT("cores", cores, "auto, or the cores of the threads", RESTART, .valid = is_cores,
         .otherwise = "is not a list of cores; write auto, \"2,3\" or by CPT \"0:2,3;1:8-11\"; at "
                      "most 64, each once"),
    INT("reactors", reactors, 1, REACTOR_MAX, "threads with cores: auto", RESTART),
    WORD("idle", idle, cfg_idle_names, "what an idle thread does", RESTART),
    BOOL("hugepages", hugepages, "take memory from hugepages", RESTART),
    INT("memory", memory, 0, 1 << 20, "DPDK's memory; 0 = computed", RESTART, .unit = "MiB"),
    TEXT("eal_args", eal_args, "further arguments for DPDK's EAL", RESTART),
    BOOL("telemetry", telemetry, "DPDK's telemetry socket beside that of rpc", RESTART),
    TEXT("user", user, "user that the process becomes when root starts it", RESTART),
    WORD("seccomp", seccomp, cfg_seccomp_names, "filter of system calls", RESTART),
    CFG_READS("rpc", rpc_keys),
    CFG_READS("guard", guard_keys),
    CFG_EACH("access", cfg_read_access),
    CFG_READS("log", log_keys),
    WORD("accept", accept, cfg_accept_names, "which peers may connect", RESTART),
    INT("accept_port", accept_port, 1, 65535, "TCP port listened on and called", RESTART),
    INT("accept_timeout", accept_timeout, 1, 600, "time for a greeting", RESTART, .unit = "s"),
    INT("keepalive", keepalive, 0, 3600, "silence after which a keepalive is sent; 0 = never",
        RESTART, .unit = "s"),
    INT("min_reconnect", min_reconnect, 1, 3600, "shortest time between attempts to connect",
        RESTART, .unit = "s"),
    INT("max_reconnect", max_reconnect, 1, 3600, "longest time between attempts to connect",
        RESTART, .unit = "s"),
    CFG_EACH("hello_map", cfg_read_hello),
    WORD("source_check", source_check, cfg_source_names,
         "which route a message needs whose source is not its sender"),
    BOOL("avoid_asym_router_failure", avoid_asym_router_failure,
         "a route is down while its gateway's NIs on the far net are"),
    BOOL("check_routers_before_use", check_routers_before_use,
         "a route is down until its gateway was checked"),
    INT("egress_share", egress_share, 1, 100,
        "of the free router buffers, what one next hop may hold", .unit = "%"),
    INT("buffer_wait", buffer_wait, 1, 12, "time a message may wait for a router buffer",
        .unit = "s"),
    INT("max_peers", max_peers, 1, 1 << 20, "peers kept", RESTART),
    INT("share_prefix4", share_prefix4, 8, 32, "IPv4 addresses with so many bits in common share",
        RESTART, .unit = "bits"),
    INT("share_prefix6", share_prefix6, 16, 128, "IPv6 addresses with so many bits in common share",
        RESTART, .unit = "bits"),
    INT("max_connections", max_connections, 16, 1 << 17, "connections of each thread", RESTART),
    INT("drain", drain, 0, 3600, "time for messages in flight at the end", .unit = "s"),
    CFG_CALLS("names", cfg_read_names),
    CFG_EACH("ports", cfg_read_port),
    CFG_LND_KEYS,
    WORD("congestion", congestion, cfg_congestion_names,
         "congestion control of connections on ports", RESTART),
    INT("segments", segments, 0, 1 << 20,
        "memory for payload received on ports that waits to be sent; 0 = computed", RESTART,
        .unit = "MiB"),
    CFG_KEYS_END,
};

/* ---- top ---- */

const struct cfg_key cfg_top_keys[] = {
    CFG_EACH("net", cfg_read_net_item),
    CFG_CALLS("ip2nets", cfg_read_ip2nets),
    CFG_EACH("route", cfg_read_route),
    CFG_KEY("peer", CFG_ITEMS, .fn = cfg_read_peer),
    CFG_KEY("routing", CFG_ITEMS, .sub = routing_keys),
    CFG_READS("buffers", buffers_keys),
    CFG_READS("global", global_keys),
    CFG_READS("numa", numa_keys),
    CFG_KEY("udsp", CFG_ITEMS, .fn = cfg_read_udsp),
    CFG_READS("millrace", cfg_millrace_keys),
    CFG_IGNORES("statistics"),
    GLOBAL_KEYS(.alias = true),
    CFG_KEYS_END,
};
