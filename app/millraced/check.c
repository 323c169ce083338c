/* SPDX-License-Identifier: BSD-3-Clause */
/* What a configuration needs and makes: memory, drivers, `--check`. */
#include <stdio.h>
#include <string.h>

#include "app/millraced/daemon_internal.h"

#define MIB              (1024.0 * 1024.0)
#define OVERHEAD_MIB     16 /* DPDK's own tables and what alignment wastes */
#define OVERHEAD_REACTOR 2  /* mailboxes, per reactor and the control thread */

static const struct lnd_ops *const drivers[] = {&lnd_sock_ops};

const struct lnd_ops *daemon_driver(lnet_net_t net)
{
    unsigned i;

    for (i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (drivers[i]->type == net >> 16)
            return drivers[i];
    return NULL;
}

static enum lnet_source_check source_check(const struct cfg *cfg)
{
    switch (cfg->source_check) {
    case CFG_SOURCE_STRICT:
        return LNET_SOURCE_STRICT;
    case CFG_SOURCE_OFF:
        return LNET_SOURCE_OFF;
    default:
        return LNET_SOURCE_NET;
    }
}

void daemon_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts)
{
    *opts = (struct lnet_node_opts){
        .routing = cfg->routing,
        .tiny = (unsigned)cfg->tiny,
        .small = (unsigned)cfg->small,
        .large = (unsigned)cfg->large,
        .max_peers = (unsigned)cfg->max_peers,
        .check_interval = (unsigned)cfg->check_interval,
        .ping_timeout = (unsigned)cfg->ping_timeout,
        .buffer_wait = (unsigned)cfg->buffer_wait,
        .source_check = source_check(cfg),
    };
}

static unsigned mib_up(size_t bytes)
{
    return (unsigned)((bytes + (1 << 20) - 1) >> 20);
}

void daemon_memory(const struct cfg *cfg, struct daemon_memory *out)
{
    unsigned reactors = cfg_reactor_count(cfg);
    struct lnet_memory plan = {.landing = 0};
    struct lnet_node_opts opts;
    char err[256];

    daemon_node_opts(cfg, &opts);
    lnet_memory_plan(&opts, reactors, &plan, err, sizeof(err));
    out->landing = mib_up(plan.landing);
    out->local = mib_up(plan.local);
    out->overhead = OVERHEAD_MIB + OVERHEAD_REACTOR * (reactors + 1);
    out->total = out->landing + out->local + out->overhead;
}

bool daemon_memory_enough(const struct cfg *cfg, char *err, size_t errlen)
{
    struct daemon_memory need;

    daemon_memory(cfg, &need);
    if (!cfg->memory || (unsigned)cfg->memory >= need.landing + need.local)
        return true;
    snprintf(err, errlen,
             "memory: %d MiB is too little, buffers and peers alone take %u MiB; write memory: 0 "
             "to have it computed, %u or more, or lower buffers: or max_peers:",
             cfg->memory, need.landing + need.local, need.total);
    return false;
}

/* ---- --check ---- */

static bool print_ni(const struct cfg_ni *ni)
{
    const struct lnd_ops *driver = daemon_driver(ni->conf.net);
    char nid[LNET_NIDSTR_SIZE], net[LNET_NETSTR_SIZE];

    net_format(ni->conf.net, net);
    if (!driver) {
        printf("  - {net: %s, line: %u}  # ERROR: no network driver for nets of this type in this "
               "version; remove it\n",
               net, ni->line);
        return false;
    }
    printf("  - {net: %s, nid: %s, interface: %s}\n", net,
           nid_is_any(&ni->conf.nid) ? "of the interface" : nid_format(&ni->conf.nid, nid),
           ni->conf.ifname[0] ? ni->conf.ifname : "of the address");
    return true;
}

static void print_route(const struct cfg_route *route)
{
    char net[LNET_NETSTR_SIZE], gateway[LNET_NIDSTR_SIZE];

    printf("  - {net: %s, gateway: '%s', hop: %d, priority: %u}\n",
           net_format(route->conf.net, net), nid_format(&route->conf.gateway, gateway),
           route->conf.hops, route->conf.priority);
}

static void print_memory(const struct cfg *cfg)
{
    struct lnet_node_opts opts;
    struct daemon_memory need;
    struct lnet_memory plan = {.landing = 0};
    char err[256];

    daemon_node_opts(cfg, &opts);
    lnet_memory_plan(&opts, cfg_reactor_count(cfg), &plan, err, sizeof(err));
    daemon_memory(cfg, &need);
    printf("memory:  # %s\n", cfg->hugepages ? "hugepages" : "without hugepages");
    printf("    landing: %.1f  # MiB, large router buffers\n", (double)plan.landing / MIB);
    printf("    local: %.1f  # MiB, small buffers, descriptors, peers\n", (double)plan.local / MIB);
    printf("    overhead: %u  # MiB, %u + %u for each of %u threads\n", need.overhead, OVERHEAD_MIB,
           OVERHEAD_REACTOR, cfg_reactor_count(cfg) + 1);
    printf("    needed: %u  # MiB, their sum\n", need.total);
    printf("    configured: %d  # MiB, 0 = what is needed\n", cfg->memory);
}

int daemon_check(const struct cfg *cfg)
{
    static const char *const accept[] = {"secure", "all", "none"};
    char err[320];
    bool ok = true;
    unsigned i;

    printf("ni:\n");
    for (i = 0; i < cfg->ni_count; i++)
        ok &= print_ni(&cfg->ni[i]);
    if (cfg->route_count)
        printf("route:\n");
    for (i = 0; i < cfg->route_count; i++)
        print_route(&cfg->route[i]);
    printf("routing: %s\n", cfg->routing ? "enabled" : "disabled");
    printf("reactors: {count: %u, cores: '%s', idle: %s}\n", cfg_reactor_count(cfg), cfg->cores,
           cfg->idle == CFG_IDLE_SPIN ? "spin" : "adaptive");
    printf("acceptor: {accept: %s, port: %d}\n", accept[cfg->accept], cfg->accept_port);
    printf("rpc: {socket: '%s', mode: '%04o'}\n", cfg->rpc_socket, (unsigned)cfg->rpc_mode);
    print_memory(cfg);
    if (!daemon_memory_enough(cfg, err, sizeof(err))) {
        fprintf(stderr, "millraced: %s\n", err);
        ok = false;
    }
    return ok ? 0 : 1;
}
