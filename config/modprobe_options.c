/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters of the kernel's modules and what becomes of them here. Names and defaults:
 * docs/protocol/lnet-core.md §11, socklnd.md §5.1, o2iblnd.md §7.
 */
#include "config/modprobe_internal.h"

#define OTHER(module_, option)                                                                     \
    {                                                                                              \
        .module = (module_), .name = (option), .kind = MP_OTHER                                    \
    }
#define SET(module_, option, path, ...)                                                            \
    {                                                                                              \
        .module = (module_), .name = (option), .kind = MP_SETTING, .to = (path), __VA_ARGS__       \
    }
#define NI(module_, option, key, ...)                                                              \
    {                                                                                              \
        .module = (module_), .name = (option), .kind = MP_NI, .to = (key), __VA_ARGS__             \
    }
/* Options that a driver has, whichever it is. */
#define NI_OF_EACH(module_)                                                                        \
    NI(module_, "credits", "credits"), NI(module_, "peer_credits", "peer_credits"),                \
        NI(module_, "peer_buffer_credits", "peer_buffer_credits", .unit = MP_ZERO_IS_DEFAULT),     \
        NI(module_, "peer_timeout", "peer_timeout", .unit = MP_NOT_POSITIVE_IS_0),                 \
        NI(module_, "conns_per_peer", "conns_per_peer", .unit = MP_ZERO_IS_DEFAULT),               \
        NI(module_, "tos", "tos")
#define NONE(module_, option, default_, ...)                                                       \
    {                                                                                              \
        .module = (module_), .name = (option), .kind = MP_NO_EFFECT, .initial = (default_),        \
        __VA_ARGS__                                                                                \
    }
#define WHY   .why =
#define CORES WHY "set the threads with `millrace: {cores: …}` or `reactors`"
#define LOG   WHY "see `millrace: {log: …}`"

const struct mp_option mp_options[] = {
    OTHER("lnet", "networks"),
    OTHER("lnet", "ip2nets"),
    OTHER("lnet", "routes"),
    OTHER("lnet", "forwarding"),
    OTHER("lnet", "peer_buffer_credits"),
    SET("lnet", "tiny_router_buffers", "buffers.tiny"),
    SET("lnet", "small_router_buffers", "buffers.small"),
    SET("lnet", "large_router_buffers", "buffers.large"),
    SET("lnet", "alive_router_check_interval", "global.alive_router_check_interval",
        .unit = MP_POSITIVE_ONLY, WHY "gateways are always pinged here"),
    SET("lnet", "router_ping_timeout", "global.router_ping_timeout"),
    SET("lnet", "router_sensitivity_percentage", "global.router_sensitivity"),
    SET("lnet", "lnet_numa_range", "global.numa_range"),
    SET("lnet", "lnet_interfaces_max", "global.max_interfaces"),
    SET("lnet", "lnet_peer_discovery_disabled", "global.discovery", .unit = MP_NOT),
    SET("lnet", "lnet_drop_asym_route", "global.drop_asym_route"),
    SET("lnet", "lnet_retry_count", "global.retry_count"),
    SET("lnet", "lnet_transaction_timeout", "global.transaction_timeout"),
    SET("lnet", "lnet_health_sensitivity", "global.health_sensitivity"),
    SET("lnet", "lnet_recovery_interval", "global.recovery_interval"),
    SET("lnet", "lnet_recovery_limit", "global.recovery_limit"),
    SET("lnet", "lnet_max_recovery_ping_interval", "global.max_recovery_ping_interval"),
    SET("lnet", "lnet_response_tracking", "global.response_tracking"),
    SET("lnet", "accept", "millrace.accept"),
    SET("lnet", "accept_port", "millrace.accept_port"),
    SET("lnet", "accept_timeout", "millrace.accept_timeout"),
    NONE("lnet", "accept_port_bulk", "988", WHY "all connections use accept_port"),
    NONE("lnet", "accept_backlog", "127"),
    NONE("lnet", "auto_down", "1"),
    NONE("lnet", "avoid_asym_router_failure", "1"),
    NONE("lnet", "check_routers_before_use", "0"),
    NONE("lnet", "config_on_load", "0"),
    NONE("lnet", "cpu_npartitions", "0", CORES),
    NONE("lnet", "cpu_pattern", "N", CORES),
    NONE("lnet", "dead_router_check_interval", "-2147483648",
         WHY "the kernel does not use it any more either; set alive_router_check_interval"),
    NONE("lnet", "live_router_check_interval", "-2147483648",
         WHY "the kernel does not use it any more either; set alive_router_check_interval"),
    NONE("lnet", "enable_sysctl_setup", "0"),
    NONE("lnet", "local_nid_dist_zero", "1"),
    NONE("lnet", "lock_prim_nid", "1"),
    NONE("lnet", "portal_rotor", "3"),
    NONE("lnet", "rnet_htable_size", "128"),
    NONE("lnet", "use_tcp_bonding", "0", WHY "name several interfaces in networks instead"),

    NI_OF_EACH("ksocklnd"),
    NI("ksocklnd", "sock_timeout", "timeout", .unit = MP_ZERO_IS_DEFAULT),
    SET("ksocklnd", "keepalive", "millrace.keepalive", .unit = MP_NOT_POSITIVE_IS_0),
    SET("ksocklnd", "min_reconnectms", "millrace.min_reconnect", .unit = MP_MS_TO_S),
    SET("ksocklnd", "max_reconnectms", "millrace.max_reconnect", .unit = MP_MS_TO_S),
    NONE("ksocklnd", "eager_ack", "0"),
    NONE("ksocklnd", "enable_csum", "0", WHY "only version 2 of the protocol has checksums"),
    NONE("ksocklnd", "enable_irq_affinity", "0"),
    NONE("ksocklnd", "inject_csum_error", "0"),
    NONE("ksocklnd", "keepalive_count", "5", WHY "`millrace: {keepalive: …}` finds dead peers"),
    NONE("ksocklnd", "keepalive_idle", "30", WHY "`millrace: {keepalive: …}` finds dead peers"),
    NONE("ksocklnd", "keepalive_intvl", "5", WHY "`millrace: {keepalive: …}` finds dead peers"),
    NONE("ksocklnd", "min_bulk", "1024"),
    NONE("ksocklnd", "nagle", "0"),
    NONE("ksocklnd", "nconnds", "4"),
    NONE("ksocklnd", "nconnds_max", "64"),
    NONE("ksocklnd", "nonblk_zcack", "1"),
    NONE("ksocklnd", "nscheds", "0", CORES),
    NONE("ksocklnd", "round_robin", "1"),
    NONE("ksocklnd", "rx_buffer_size", "0", WHY "the system sizes buffers of sockets"),
    NONE("ksocklnd", "tx_buffer_size", "0", WHY "the system sizes buffers of sockets"),
    NONE("ksocklnd", "skip_mr_route_setup", "0"),
    NONE("ksocklnd", "typed_conns", "1"),
    NONE("ksocklnd", "zc_min_payload", "16384"),
    NONE("ksocklnd", "zc_recv", "0"),
    NONE("ksocklnd", "zc_recv_min_nfrags", "16"),

    OTHER("ko2iblnd", "ipif_name"),
    NI_OF_EACH("ko2iblnd"),
    NI("ko2iblnd", "peer_credits_hiw", "peercredits_hiw", .unit = MP_ZERO_IS_DEFAULT),
    NI("ko2iblnd", "concurrent_sends", "concurrent_sends", .unit = MP_ZERO_IS_DEFAULT),
    NI("ko2iblnd", "fmr_cache", "fmr_cache"),
    NI("ko2iblnd", "fmr_flush_trigger", "fmr_flush_trigger"),
    NI("ko2iblnd", "fmr_pool_size", "fmr_pool_size"),
    NI("ko2iblnd", "map_on_demand", "map_on_demand"),
    NI("ko2iblnd", "ntx", "ntx"),
    NI("ko2iblnd", "timeout", "timeout", .unit = MP_ZERO_IS_DEFAULT),
    NONE("ko2iblnd", "cksum", "0"),
    NONE("ko2iblnd", "dev_failover", "0"),
    NONE("ko2iblnd", "ib_mtu", "0"),
    SET("ko2iblnd", "keepalive", "millrace.verbs.keepalive", .unit = MP_NOT_POSITIVE_IS_0),
    NONE("ko2iblnd", "nscheds", "0", CORES),
    SET("ko2iblnd", "require_privileged_port", "millrace.verbs.require_privileged_port"),
    SET("ko2iblnd", "retry_count", "millrace.verbs.retry_count"),
    SET("ko2iblnd", "rnr_retry_count", "millrace.verbs.rnr_retry_count"),
    SET("ko2iblnd", "service", "millrace.verbs.service"),
    NONE("ko2iblnd", "use_fastreg_gaps", "0"),
    SET("ko2iblnd", "use_privileged_port", "millrace.verbs.use_privileged_port"),
    NONE("ko2iblnd", "wrq_sge", "2"),

    NONE("libcfs", "client_encryption_engine", "aes-ni"),
    NONE("libcfs", "cpu_npartitions", "0", CORES),
    NONE("libcfs", "cpu_pattern", "N", CORES),
    NONE("libcfs", "libcfs_console_backoff", "2", LOG),
    NONE("libcfs", "libcfs_console_max_delay", "6000", LOG),
    NONE("libcfs", "libcfs_console_min_delay", "5", LOG),
    NONE("libcfs", "libcfs_console_ratelimit", "1", LOG),
    NONE("libcfs", "libcfs_debug", "319686016", LOG),
    NONE("libcfs", "libcfs_debug_file_path", "", LOG),
    NONE("libcfs", "libcfs_debug_mb", "6", LOG),
    NONE("libcfs", "libcfs_panic_on_lbug", "1"),
    NONE("libcfs", "libcfs_printk", "33948672", LOG),
    NONE("libcfs", "libcfs_reserved_cache", "0"),
    NONE("libcfs", "libcfs_subsystem_debug", "-1", LOG),
    NONE("libcfs", "libcfs_subsystem_printk", "0", LOG),
    NONE("libcfs", "num_prealloc_crypto_ctxs", "128"),
    NONE("libcfs", "num_prealloc_crypto_pages", "32"),
    {.name = NULL},
};

_Static_assert(sizeof(mp_options) / sizeof(mp_options[0]) <= MP_MAX_OPTIONS,
               "each option needs a place in struct mp_import");

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '_' && *b == '-') && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

int mp_find(const char *module, const char *name)
{
    for (unsigned i = 0; mp_options[i].name; i++)
        if (same_name(mp_options[i].module, module) && same_name(mp_options[i].name, name))
            return (int)i;
    return -1;
}
