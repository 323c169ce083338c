/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints what would run by a configuration: `millraced --check`. */
#include <stdio.h>
#include <string.h>

#include "control/controller_internal.h"
#include "lib/base/err.h"

static bool print_ni(const struct cfg *cfg, const struct cfg_ni *ni)
{
    const struct cfg_port *port = cfg_port_of(cfg, ni);
    const struct lnd_ops *driver = control_driver(ni->conf.net);
    char nid[LNET_NIDSTR_SIZE], net[LNET_NETSTR_SIZE];

    net_format(ni->conf.net, net);
    if (!driver) {
        printf("  - {net: %s, line: %u}  # ERROR: no network driver for nets of this type in this "
               "version; remove it\n",
               net, ni->line);
        return false;
    }
    printf("  - {net: %s, nid: %s, interface: %s}%s\n", net,
           nid_is_any(&ni->conf.nid) ? "of the interface" : nid_format(&ni->conf.nid, nid),
           ni->conf.ifname[0] ? ni->conf.ifname
           : port             ? port->name
                              : "of the address",
           port ? "  # a port" : "");
    return true;
}

static void print_port(const struct cfg_port *port)
{
    char text[CFG_PREFIX_SIZE];

    printf("  - {name: %s, device: '%s', mtu: ", port->name, cfg_port_device(port));
    if (port->mtu)
        printf("%d", port->mtu);
    else
        printf("of the device");
    if (port->vlan)
        printf(", vlan: %d", port->vlan);
    printf(", addresses: [");
    for (unsigned i = 0; i < port->address_count; i++)
        printf("%s'%s'", i ? ", " : "", cfg_prefix_text(&port->address[i], text));
    printf("]");
    for (unsigned i = 0; i < port->gateway_count; i++)
        printf("%s'%s'%s", i ? ", " : ", gateway: [", cfg_addr_text(&port->gateway[i], text),
               i + 1 == port->gateway_count ? "]" : "");
    if (port->route_count)
        printf(", routes: %u", port->route_count);
    printf("}\n");
}

static void print_route(const struct cfg_route *route)
{
    char net[LNET_NETSTR_SIZE], gateway[LNET_NIDSTR_SIZE];

    printf("  - {net: %s, gateway: '%s', hop: %d, priority: %u}\n",
           net_format(route->conf.net, net), nid_format(&route->conf.gateway, gateway),
           route->conf.hops, route->conf.priority);
}

static double mib(size_t bytes)
{
    return (double)bytes / (double)CONTROL_MIB;
}

static void print_eal(const struct cfg *cfg, const struct control_memory *m)
{
    size_t large = (size_t)m->node.buffers[LNET_POOL_LARGE] * MEM_LANDING_SLOT;
    size_t small = (size_t)m->node.buffers[LNET_POOL_SMALL] * LNET_SMALL_BUFFER;

    printf("    eal:  # MiB, %s\n", cfg->hugepages ? "of hugepages" : "without hugepages");
    printf("        large: %.1f  # %u router buffers x 1 MiB\n", mib(large),
           m->node.buffers[LNET_POOL_LARGE]);
    printf("        small: %.1f  # %u router buffers x 4 KiB\n", mib(small),
           m->node.buffers[LNET_POOL_SMALL]);
    printf("        room: %.1f  # for more of them at run time\n",
           mib(m->node.landing - large - small));
    if (m->devices)
        printf("        ports: %.1f  # %u devices x (%.1f received, of which %.1f are promised to "
               "peers as segments), sending, TCP\n",
               mib(m->ports), m->devices, mib(m->port_buffers), mib(m->segments));
    if (m->devices)
        printf("        # segments are enough for %u connections at a time; for another the idlest "
               "gives way\n",
               lnet_segments_conns(m->segments, m->reactors));
    printf("        dpdk: %.1f  # its own tables, alignment\n", mib(m->env.eal));
    printf("        sum: %u  # asked of EAL, rounded up\n", m->eal);
    printf("        configured: %d  # memory:, 0 = computed\n", cfg->memory);
    if (m->unlimited)
        printf("        # limited to a quarter of the %.0f MiB of RAM, or else %u; for more write "
               "memory: or buffers:\n",
               mib(m->ram), m->unlimited);
}

/* Returns the bytes. */
static size_t print_lnd(const struct control_memory *m, const struct control_lnd *lnd)
{
    const struct lnd_memory *own = &lnd->memory;

    if (own->pools && own->beside)
        printf("        %s: %.1f  # %u threads x (%u connections, %s)\n", lnd->name,
               mib(own->pools), m->reactors, own->conns, own->beside);
    else if (own->pools)
        printf("        %s: %.1f  # %u threads x %u connections\n", lnd->name, mib(own->pools),
               m->reactors, own->conns);
    return own->pools;
}

static void print_lnd_more(const struct control_lnd *lnd)
{
    if (lnd->memory.streams)
        printf("        %s streams: %.1f  # more, when all these connections are in use\n",
               lnd->name, mib(lnd->memory.streams));
    if (lnd->memory.per_conn)
        printf("        %s connections: %.1f  # more, for each 100 of them; it is locked\n",
               lnd->name, mib(100 * lnd->memory.per_conn));
}

static void print_heap(const struct cfg *cfg, const struct control_memory *m)
{
    size_t sum = m->node.tables + m->ports_heap + m->env.heap + m->env.pages;

    printf("    heap:  # MiB\n");
    printf("        node: %.1f  # descriptors of messages, %d peers, accounts of next hops\n",
           mib(m->node.tables), cfg->max_peers);
    for (unsigned i = 0; i < m->lnds; i++)
        if (m->lnd[i].memory.beside)
            sum += print_lnd(m, &m->lnd[i]);
    if (m->devices)
        printf("        ports: %.1f  # %u threads x (connections, neighbours, routes)\n",
               mib(m->ports_heap), m->reactors);
    for (unsigned i = 0; i < m->lnds; i++)
        if (!m->lnd[i].memory.beside)
            sum += print_lnd(m, &m->lnd[i]);
    printf("        reactors: %.1f  # %u threads and their mailboxes\n", mib(m->env.heap),
           m->reactors + 1);
    printf("        dpdk: %.1f  # its list of the pages of eal\n", mib(m->env.pages));
    printf("        sum: %.1f\n", mib(sum));
    for (unsigned i = 0; i < m->lnds; i++)
        print_lnd_more(&m->lnd[i]);
}

static void print_memory(const struct cfg *cfg, const struct control_memory *m)
{
    static const unsigned recommended[LNET_POOLS] = {512, 4096, 256}; /* lnet-core §4.9 */
    const unsigned *now = m->node.buffers, *most = m->node.most;
    bool few = false;

    printf("memory:\n");
    print_eal(cfg, m);
    print_heap(cfg, m);
    printf("buffers: {tiny: %u, small: %u, large: %u}\n", now[LNET_POOL_TINY], now[LNET_POOL_SMALL],
           now[LNET_POOL_LARGE]);
    printf("most: {tiny: %u, small: %u, large: %u}  # up to which they can be set at run time\n",
           most[LNET_POOL_TINY], most[LNET_POOL_SMALL], most[LNET_POOL_LARGE]);
    for (unsigned i = 0; i < LNET_POOLS; i++)
        few |= now[i] < recommended[i];
    if (few)
        printf("# kernel routers are recommended to have at least: tiny: %u, small: %u, "
               "large: %u\n",
               recommended[LNET_POOL_TINY], recommended[LNET_POOL_SMALL],
               recommended[LNET_POOL_LARGE]);
}

static void say_warning(const char *text)
{
    fprintf(stderr, "millraced: warning: %s\n", text);
}

static bool check_memory(const struct cfg *cfg)
{
    struct control_memory m;
    struct err err = {0};
    int rc = control_memory(cfg, control_ram(), &m, &err);

    if (m.eal)
        print_memory(cfg, &m);
    if (rc == 0)
        control_memory_warn(cfg, &m, say_warning);
    else
        fprintf(stderr, "millraced: %s\n", err.message);
    return rc == 0;
}

int controller_check(const struct cfg *cfg)
{
    bool ok = true;

    printf("ni:\n");
    for (unsigned i = 0; i < cfg->ni_count; i++)
        ok &= print_ni(cfg, &cfg->ni[i]);
    if (cfg->port_count)
        printf("ports:\n");
    for (unsigned i = 0; i < cfg->port_count; i++)
        print_port(&cfg->port[i]);
    if (cfg->port_count)
        printf("congestion: %s\n", cfg_congestion_names[cfg->congestion]);
    if (cfg->route_count)
        printf("route:\n");
    for (unsigned i = 0; i < cfg->route_count; i++)
        print_route(&cfg->route[i]);
    printf("routing: %s\n", cfg->routing ? "enabled" : "disabled");
    printf("reactors: {count: %u, cores: '%s', idle: %s}\n", cfg_reactor_count(cfg), cfg->cores,
           cfg_idle_names[cfg->idle]);
    printf("acceptor: {accept: %s, port: %d}\n", cfg_accept_names[cfg->accept], cfg->accept_port);
    printf("rpc: {socket: '%s', mode: '%04o'}\n", cfg->rpc_socket, (unsigned)cfg->rpc_mode);
    printf("admission: {egress_share: %d, buffer_wait: %d}\n", cfg->egress_share, cfg->buffer_wait);
    ok &= check_memory(cfg);
    return ok ? 0 : 1;
}
