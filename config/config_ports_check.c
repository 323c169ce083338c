/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the ports as a whole: addresses, nets and routes against each other, devices, and NIs
 * against ports. */
#include "config/config_internal.h"

#include <string.h>

#define MTU_V6 1280 /* RFC 8200 §5 */
#define PORT_ERROR(r, port, fmt, ...)                                                              \
    cfg_error(r, (port)->line, "ports: %s: " fmt, (port)->name, ##__VA_ARGS__)

/* ---- addresses ---- */

static bool in_net(const struct inet_prefix *net, const struct inet_addr *addr)
{
    unsigned bits = net->bits, i;

    if (inet_is4(&net->addr) != inet_is4(addr))
        return false;
    if (inet_is4(addr))
        bits += 96;
    for (i = 0; i < 16 && bits >= 8; i++, bits -= 8)
        if (net->addr.b[i] != addr->b[i])
            return false;
    return bits == 0 || (net->addr.b[i] ^ addr->b[i]) >> (8 - bits) == 0;
}

/* The address's bits behind those of the net: all `bit`? */
static bool host_part_is(const struct inet_prefix *p, bool bit)
{
    unsigned from = p->bits + (inet_is4(&p->addr) ? 96 : 0);

    for (unsigned i = from; i < 128; i++)
        if ((p->addr.b[i / 8] >> (7 - i % 8) & 1) != bit)
            return false;
    return true;
}

/* Why a node cannot have the address or send to it; NULL: it can. */
static const char *why_not(const struct inet_addr *a)
{
    static const struct inet_addr none, loopback = {.b = {[15] = 1}};

    if (inet_is4(a)) {
        if (a->b[12] == 0)
            return "is of this network only";
        if (a->b[12] == 127)
            return "is a loopback address";
        return a->b[12] >= 224 ? "is a multicast or reserved address" : NULL;
    }
    if (inet_same(a, &none))
        return "is no address";
    if (inet_same(a, &loopback))
        return "is a loopback address";
    return a->b[0] == 0xff ? "is a multicast address" : NULL;
}

static void check_address(struct cfg_reader *r, const struct cfg_port *port,
                          const struct inet_prefix *p)
{
    bool is4 = inet_is4(&p->addr);
    const char *why = why_not(&p->addr);
    char text[CFG_PREFIX_SIZE];

    if (!why && p->bits == 0)
        why = "has a net that is everything";
    if (!why && is4 && p->bits < 31 && host_part_is(p, false))
        why = "is the net itself";
    if (!why && is4 && p->bits < 31 && host_part_is(p, true))
        why = "is the net's broadcast address";
    if (why)
        PORT_ERROR(r, port, "%s %s; write an address a node can have", cfg_prefix_text(p, text),
                   why);
    if (!is4 && port->mtu && port->mtu < MTU_V6)
        PORT_ERROR(r, port, "IPv6 needs an mtu of %d or more; raise it or remove %s", MTU_V6,
                   cfg_prefix_text(p, text));
}

/* Who among the ports up to this one has the address already? */
static const struct cfg_port *owner_before(const struct cfg *cfg, const struct cfg_port *port,
                                           unsigned index)
{
    const struct inet_addr *addr = &port->address[index].addr;

    for (const struct cfg_port *p = cfg->port; p <= port; p++)
        for (unsigned i = 0; i < (p == port ? index : p->address_count); i++)
            /* A link-local address is one on each link. */
            if (inet_same(&p->address[i].addr, addr) && (p == port || !inet_is_link_local(addr)))
                return p;
    return NULL;
}

static void check_addresses(struct cfg_reader *r, const struct cfg_port *port)
{
    const struct cfg_port *other;
    char text[CFG_PREFIX_SIZE];

    if (!port->address_count)
        cfg_error(r, port->line,
                  "ports: %s has no address; add one, as in addresses: [10.0.0.1/24]", port->name);
    for (unsigned i = 0; i < port->address_count; i++) {
        check_address(r, port, &port->address[i]);
        other = owner_before(r->cfg, port, i);
        if (other)
            PORT_ERROR(r, port, "%s is already on %s; remove one",
                       cfg_addr_text(&port->address[i].addr, text), other->name);
    }
}

/* ---- gateways and routes ---- */

static void check_next_hop(struct cfg_reader *r, const struct cfg_port *port, const char *what,
                           const struct inet_addr *via)
{
    bool on_net = inet_is_link_local(via), own = false;
    const char *why = why_not(via);
    char text[CFG_PREFIX_SIZE];

    for (unsigned i = 0; i < port->address_count; i++) {
        on_net |= in_net(&port->address[i], via);
        own |= inet_same(&port->address[i].addr, via);
    }
    if (!why && own)
        why = "is the port's own address";
    else if (!why && !on_net)
        why = "is on no net of this port";
    if (why)
        PORT_ERROR(r, port, "%s %s %s; name a router on one of its nets", what,
                   cfg_addr_text(via, text), why);
}

static void check_route(struct cfg_reader *r, const struct cfg_port *port, unsigned index)
{
    const struct inet_route *route = &port->route[index];
    char to[CFG_PREFIX_SIZE];

    cfg_prefix_text(&route->to, to);
    check_next_hop(r, port, "route via", &route->via);
    if (inet_is4(&route->to.addr) != inet_is4(&route->via))
        PORT_ERROR(r, port, "route to %s: net and router are of different families", to);
    if (!host_part_is(&route->to, false))
        PORT_ERROR(r, port,
                   "route to %s has bits behind the length of its net; lengthen it or clear them",
                   to);
    if (route->to.bits == 0)
        PORT_ERROR(r, port, "route to %s is for all; write gateway: instead", to);
    for (unsigned i = 0; i < index; i++)
        if (memcmp(&port->route[i].to, &route->to, sizeof(route->to)) == 0)
            PORT_ERROR(r, port, "there are two routes to %s; remove one", to);
}

static void check_routes(struct cfg_reader *r, const struct cfg_port *port)
{
    for (unsigned i = 0; i < port->gateway_count; i++)
        check_next_hop(r, port, "gateway", &port->gateway[i]);
    for (unsigned i = 0; i < port->route_count; i++)
        check_route(r, port, i);
}

/* ---- devices ---- */

static bool same_device(const struct cfg_port *a, const struct cfg_port *b)
{
    return strcmp(cfg_port_device(a), cfg_port_device(b)) == 0;
}

/* As the driver tells them apart: a PCI address or a virtual device, else an interface. */
static void check_device(struct cfg_reader *r, const struct cfg_port *port)
{
    const char *device = cfg_port_device(port);

    if (!cfg_port_is_pci(port) && strncmp(device, "net_", 4) != 0 &&
        (strlen(device) >= sizeof(port->name) || strpbrk(device, "/,")))
        PORT_ERROR(r, port,
                   "'%.40s' is neither an interface's name (up to %zu characters) nor a PCI "
                   "address nor a device of DPDK's (net_…); correct device:",
                   device, sizeof(port->name) - 1);
}

static void check_against(struct cfg_reader *r, const struct cfg_port *port,
                          const struct cfg_port *other)
{
    char where[32];

    if (strcmp(port->name, other->name) == 0)
        cfg_error(r, port->line, "ports: the name %s is already %s; remove one", port->name,
                  cfg_on_line(other->line, where));
    else if (same_device(port, other) && port->vlan == other->vlan && port->vlan)
        PORT_ERROR(r, port, "VLAN %d of %s is already %s; remove one", port->vlan,
                   cfg_port_device(port), other->name);
    else if (same_device(port, other) && port->vlan == other->vlan)
        PORT_ERROR(r, port,
                   "device %s is already %s; give one of them a vlan:, or put the addresses of "
                   "both there",
                   cfg_port_device(port), other->name);
}

static void check_devices(struct cfg_reader *r)
{
    const struct cfg *cfg = r->cfg;
    unsigned devices = 0;

    for (unsigned i = 0; i < cfg->port_count; i++) {
        bool first = true;

        check_device(r, &cfg->port[i]);
        for (unsigned j = 0; j < i; j++) {
            check_against(r, &cfg->port[i], &cfg->port[j]);
            first &= !same_device(&cfg->port[i], &cfg->port[j]);
        }
        devices += first;
    }
    if (devices > CFG_MAX_DEVICES)
        cfg_error(r, 0, "ports: %u devices are too many; at most %d", devices, CFG_MAX_DEVICES);
}

/* ---- NIs ---- */

static bool has_address(const struct cfg_port *port, const struct lnet_nid *nid)
{
    struct inet_addr addr;

    if (nid_is_nid4(nid))
        inet_addr4(&addr, nid->addr_be);
    else
        memcpy(addr.b, nid->addr_be, sizeof(addr.b));
    for (unsigned i = 0; i < port->address_count; i++)
        if (inet_same(&port->address[i].addr, &addr))
            return true;
    return false;
}

static const struct cfg_port *port_with(const struct cfg *cfg, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < cfg->port_count; i++)
        if (has_address(&cfg->port[i], nid))
            return &cfg->port[i];
    return NULL;
}

static bool may_be_on_port(const struct cfg_ni *ni)
{
    const struct lnd_type *type = lnd_type_of(ni->conf.net);

    return type && type->on_ports;
}

const struct cfg_port *cfg_port_of(const struct cfg *cfg, const struct cfg_ni *ni)
{
    if (!may_be_on_port(ni))
        return NULL;
    if (ni->conf.ifname[0])
        return cfg_find_port(cfg, ni->conf.ifname);
    return port_with(cfg, &ni->conf.nid);
}

static bool has_global(const struct cfg_port *port)
{
    for (unsigned i = 0; i < port->address_count; i++)
        if (!inet_is_link_local(&port->address[i].addr))
            return true;
    return false;
}

static void check_ni_on(struct cfg_reader *r, const struct cfg_ni *ni, const struct cfg_port *port)
{
    char nid[LNET_NIDSTR_SIZE];

    if (nid_is_any(&ni->conf.nid) && !has_global(port))
        cfg_error(r, ni->line,
                  "net: port %s has only addresses of its link; give it another one, or the NI a "
                  "nid",
                  port->name);
    else if (!nid_is_any(&ni->conf.nid) && !has_address(port, &ni->conf.nid))
        cfg_error(r, ni->line,
                  "net: the address of %s is not on port %s; add it to its addresses: or correct "
                  "the NI",
                  nid_format(&ni->conf.nid, nid), port->name);
}

/* An interface that is not a port's name: is it a port all the same? */
static void check_ni_beside(struct cfg_reader *r, const struct cfg_ni *ni)
{
    const struct cfg *cfg = r->cfg;
    const struct cfg_port *port = NULL;
    char nid[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < cfg->port_count && !port; i++)
        if (strcmp(cfg_port_device(&cfg->port[i]), ni->conf.ifname) == 0)
            port = &cfg->port[i];
    if (port) {
        cfg_error(r, ni->line,
                  "net: interface %s is the device of port %s; write interfaces: {0: %s}",
                  ni->conf.ifname, port->name, port->name);
        return;
    }
    port = nid_is_any(&ni->conf.nid) ? NULL : port_with(cfg, &ni->conf.nid);
    if (port)
        cfg_error(
            r, ni->line,
            "net: the address of %s is on port %s, not on interface %s; write interfaces: {0: "
            "%s}",
            nid_format(&ni->conf.nid, nid), port->name, ni->conf.ifname, port->name);
}

void cfg_check_ports(struct cfg_reader *r)
{
    const struct cfg *cfg = r->cfg;
    unsigned routes = 0, i;

    if (!cfg->port_count)
        return;
    check_devices(r);
    for (i = 0; i < cfg->port_count; i++) {
        check_addresses(r, &cfg->port[i]);
        check_routes(r, &cfg->port[i]);
        routes += cfg->port[i].gateway_count + cfg->port[i].route_count;
    }
    if (routes > CFG_ALL_ROUTES)
        cfg_error(r, 0, "ports: %u routes and gateways are too many; at most %d", routes,
                  CFG_ALL_ROUTES);
    for (i = 0; i < cfg->ni_count; i++) {
        const struct cfg_ni *ni = &cfg->ni[i];
        const struct cfg_port *port = cfg_port_of(cfg, ni);

        if (port)
            check_ni_on(r, ni, port);
        else if (may_be_on_port(ni) && ni->conf.ifname[0])
            check_ni_beside(r, ni);
    }
}
