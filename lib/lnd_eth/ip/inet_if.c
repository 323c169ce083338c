/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces: ports and their VLANs with addresses and routes; what is refused, and their links. */
#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define REFUSE(rc, ...) (err_text(err, __VA_ARGS__), (rc))

/* ---- finding ---- */

struct inet_own *own_find(struct inet_if *ifp, const struct inet_addr *a)
{
    for (unsigned i = 0; i < ifp->owns; i++)
        if (own_is(&ifp->own[i], a))
            return &ifp->own[i];
    return NULL;
}

struct inet_if *inet_if_find(struct inet *inet, const char *name)
{
    for (unsigned i = 0; i < inet->nifs; i++)
        if (strcmp(inet->ifs[i]->name, name) == 0)
            return inet->ifs[i];
    return NULL;
}

struct inet_if *inet_if_of(struct inet *inet, const struct inet_addr *own)
{
    for (unsigned i = 0; i < inet->nifs; i++)
        if (own_find(inet->ifs[i], own))
            return inet->ifs[i];
    return NULL;
}

const char *inet_if_name(const struct inet_if *ifp)
{
    return ifp->name;
}

struct port *inet_if_port(const struct inet_if *ifp)
{
    return ifp->ip->port;
}

unsigned inet_if_mtu(const struct inet_if *ifp)
{
    return ifp->mtu;
}

unsigned inet_if_count(const struct inet *inet)
{
    return inet->nifs;
}

struct inet_if *inet_if_at(struct inet *inet, unsigned index)
{
    return index < inet->nifs ? inet->ifs[index] : NULL;
}

bool inet_if_addr(const struct inet_if *ifp, unsigned index, struct inet_prefix *out)
{
    if (index >= ifp->owns - ifp->ranges)
        return false;
    *out = ifp->own[index].net;
    return true;
}

const struct inet_own *if_source(const struct inet_if *ifp, bool is4)
{
    const struct inet_own *found = NULL;

    for (unsigned i = 0; i < ifp->owns; i++) {
        const struct inet_own *own = &ifp->own[i];

        if (inet_is4(&own->net.addr) != is4 || !own_usable(own))
            continue;
        if (!inet_is_link_local(&own->net.addr))
            return own;
        found = own;
    }
    return found;
}

/* ---- adding ---- */

/* Whether the address is among the first addrs addresses, or in the first ranges ranges. */
static bool given_before(const struct inet_if_opts *opts, unsigned addrs, unsigned ranges,
                         const struct inet_addr *a)
{
    for (unsigned i = 0; i < addrs; i++)
        if (inet_same(&opts->addr[i].addr, a))
            return true;
    for (unsigned i = 0; i < ranges; i++)
        if (inet_v4_value(a) - inet_v4_value(&opts->range[i].first.addr) < opts->range[i].count)
            return true;
    return false;
}

static int check_station(struct inet *inet, const struct inet_if_opts *opts,
                         const struct inet_prefix *net, bool twice, struct err *err)
{
    const struct inet_if *other =
        inet_is_link_local(&net->addr) ? NULL : inet_if_of(inet, &net->addr);
    char text[INET_TEXT_MAX], host[16] = "";

    inet_text(&net->addr, text);
    if (!inet_is_unicast(&net->addr) || net->bits > (inet_is4(&net->addr) ? 32 : 128) ||
        inet_is_net_broadcast(&net->addr, net))
        return REFUSE(-EINVAL, "interface %s: %s/%u is no address of a station", opts->name, text,
                      net->bits);
    if (twice)
        return REFUSE(-EEXIST, "interface %s: address %s is given twice", opts->name, text);
    if (other)
        return REFUSE(-EEXIST, "interface %s: interface %s has address %s already", opts->name,
                      other->name, text);
    if (port_host_has(net->addr.b, host))
        return REFUSE(-EADDRINUSE,
                      "interface %s: address %s is the host's own (on %s), which would answer "
                      "in our place; remove it there (ip address delete %s/%u dev %s) or give "
                      "another one here",
                      opts->name, text, host, text, net->bits, host);
    return 0;
}

static int check_addr(struct inet *inet, const struct inet_if_opts *opts, unsigned index,
                      struct err *err)
{
    const struct inet_prefix *net = &opts->addr[index];

    if (!inet_is4(&net->addr) && opts->port->mtu < INET_MTU_MIN6)
        return REFUSE(-EINVAL, "interface %s: IPv6 needs an MTU of at least %u, not %u", opts->name,
                      INET_MTU_MIN6, opts->port->mtu);
    return check_station(inet, opts, net, given_before(opts, index, 0, &net->addr), err);
}

static int check_range(struct inet *inet, const struct inet_if_opts *opts, unsigned index,
                       struct err *err)
{
    const struct inet_range *range = &opts->range[index];
    struct inet_prefix net = range->first;
    uint32_t first = inet_v4_value(&net.addr), mask = 0;
    char text[INET_TEXT_MAX];
    int rc = 0;

    if (inet_is4(&net.addr) && net.bits > 0 && net.bits <= 32)
        mask = UINT32_MAX << (32 - net.bits);
    if (mask == 0 || range->count == 0 || range->count - 1 > UINT32_MAX - first ||
        ((first + range->count - 1) & mask) != (first & mask))
        return REFUSE(-EINVAL,
                      "interface %s: %u addresses from %s on are not all IPv4 of one net /%u",
                      opts->name, range->count, inet_text(&net.addr, text), net.bits);
    for (uint32_t v = first; rc == 0 && v - first < range->count; v++) {
        inet_v4_set(&net.addr, v);
        rc =
            check_station(inet, opts, &net, given_before(opts, opts->addrs, index, &net.addr), err);
    }
    return rc;
}

static int check_route(const struct inet_if *ifp, const struct inet_route *r, struct err *err)
{
    char to[INET_TEXT_MAX], via[INET_TEXT_MAX];

    inet_text(&r->to.addr, to);
    inet_text(&r->via, via);
    if (inet_is4(&r->to.addr) != inet_is4(&r->via) ||
        r->to.bits > (inet_is4(&r->to.addr) ? 32 : 128) || !inet_is_unicast(&r->via))
        return REFUSE(-EINVAL, "interface %s: route to %s/%u via %s is not possible", ifp->name, to,
                      r->to.bits, via);
    for (unsigned i = 0; i < ifp->owns; i++) {
        const struct inet_prefix *net = &ifp->own[i].net;

        if (own_is(&ifp->own[i], &r->via))
            return REFUSE(-EINVAL, "interface %s: gateway %s is an address of its own", ifp->name,
                          via);
        if (inet_in_prefix(&r->via, net) && !inet_is_net_broadcast(&r->via, net))
            return 0;
    }
    return REFUSE(-ENETUNREACH,
                  "interface %s: gateway %s is on no net of it; give the interface an address of "
                  "the gateway's net",
                  ifp->name, via);
}

static int check_if(struct inet *inet, const struct inet_if_opts *opts, struct err *err)
{
    size_t len = !opts->name ? 0 : strlen(opts->name);
    int rc = 0;

    if (inet->started)
        return REFUSE(-EBUSY, "interfaces cannot be added while they are in use");
    if (len == 0 || len >= PORT_NAME_MAX)
        return REFUSE(-EINVAL, "an interface needs a name of 1 to %d characters",
                      PORT_NAME_MAX - 1);
    if (inet_if_find(inet, opts->name))
        return REFUSE(-EEXIST, "interface %s is there already", opts->name);
    if (inet->nifs == INET_IF_MAX)
        return REFUSE(-ENOSPC, "interface %s: more than %d", opts->name, INET_IF_MAX);
    if (opts->vlan > 4094)
        return REFUSE(-EINVAL, "interface %s: VLAN %u is not 1 to 4094", opts->name, opts->vlan);
    if (opts->mtu != 0 && (opts->mtu < PORT_MTU_MIN || opts->mtu > opts->port->mtu))
        return REFUSE(-EINVAL, "interface %s: MTU %u is not between %d and %u, its port's",
                      opts->name, opts->mtu, PORT_MTU_MIN, opts->port->mtu);
    if ((opts->addrs == 0 && opts->ranges == 0) || opts->addrs > INET_ADDR_MAX ||
        opts->ranges > INET_RANGE_MAX)
        return REFUSE(-EINVAL, "interface %s: %u addresses; 1 to %d are possible", opts->name,
                      opts->addrs, INET_ADDR_MAX);
    if (opts->routes > INET_ROUTE_MAX - inet->routes)
        return REFUSE(-ENOSPC, "interface %s: more than %d routes in all", opts->name,
                      INET_ROUTE_MAX);
    for (unsigned i = 0; rc == 0 && i < opts->addrs; i++)
        rc = check_addr(inet, opts, i, err);
    for (unsigned i = 0; rc == 0 && i < opts->ranges; i++)
        rc = check_range(inet, opts, i, err);
    return rc;
}

static int port_find(struct inet *inet, struct port *port, unsigned *index)
{
    unsigned i = 0;

    while (i < inet->ports && inet->port[i]->port != port)
        i++;
    *index = i;
    if (i < inet->ports)
        return 0;
    if (i == PORT_MAX)
        return -ENOSPC;
    inet->port[i] = calloc(1, sizeof(*inet->port[i]));
    if (!inet->port[i])
        return -ENOMEM;
    inet->port[i]->port = port;
    inet->ports++;
    return 0;
}

/* The part of a link-local address that is ours: the same each time, not made of the MAC as the
 * host's kernel makes it on the same device. RFC 7217 §5, with the MAC in place of a secret: it is
 * no aim that a station cannot be recognised. */
static void link_local_make(const struct inet_if *ifp, struct inet_prefix *out)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    uint8_t in[6 + sizeof(ifp->vlan) + PORT_NAME_MAX];

    memcpy(in, ifp->ip->port->mac.addr_bytes, 6);
    memcpy(in + 6, &ifp->vlan, sizeof(ifp->vlan));
    memcpy(in + 8, ifp->name, PORT_NAME_MAX);
    for (unsigned i = 0; i < sizeof(in); i++)
        h = (h ^ in[i]) * UINT64_C(0x100000001b3);
    for (unsigned i = 0; i < 2; i++)
        h = (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 32;
    /* Not all zeros, and not of the reserved ones of RFC 5453, which begin with fdff. */
    h = (h & ~(UINT64_C(1) << 56)) | 1;
    *out = (struct inet_prefix){.addr = {{0xfe, 0x80}}, .bits = 64};
    for (unsigned i = 0; i < 8; i++)
        out->addr.b[8 + i] = (uint8_t)(h >> (56 - 8 * i));
}

/* count: of a range, else 0. known: the address was ours a moment ago. */
static void own_add(struct inet_if *ifp, const struct inet_prefix *net, uint32_t count,
                    bool generated, bool known)
{
    bool checked = ifp->dad_ms > 0 && count == 0;

    ifp->own[ifp->owns++] = (struct inet_own){
        .net = *net,
        .count = count,
        .ifp = ifp,
        .generated = generated,
        .trial = checked && known,
        .state = checked && !known ? OWN_TENTATIVE : OWN_VALID,
    };
}

static void owns_add(struct inet_if *ifp, const struct inet_if_opts *opts)
{
    bool has6 = false, has_link_local = false;
    struct inet_prefix net;

    for (unsigned i = 0; i < opts->addrs; i++) {
        own_add(ifp, &opts->addr[i], 0, false, opts->known >> i & 1);
        has6 |= !inet_is4(&opts->addr[i].addr);
        has_link_local |= inet_is_link_local(&opts->addr[i].addr);
    }
    if (has6 && !has_link_local) {
        link_local_make(ifp, &net);
        own_add(ifp, &net, 0, true, false);
    }
    for (unsigned i = 0; i < opts->ranges; i++)
        own_add(ifp, &opts->range[i].first, opts->range[i].count, false, false);
    ifp->ranges = opts->ranges;
}

static struct inet_if *if_make(struct inet *inet, const struct inet_if_opts *opts, unsigned port)
{
    struct inet_if *ifp = calloc(1, sizeof(*ifp));

    if (!ifp)
        return NULL;
    ifp->inet = inet;
    snprintf(ifp->name, sizeof(ifp->name), "%s", opts->name);
    ifp->index = inet->nifs;
    ifp->ip = inet->port[port];
    ifp->port_index = port;
    ifp->vlan = opts->vlan;
    ifp->mtu = opts->mtu != 0 ? opts->mtu : opts->port->mtu;
    ifp->dad_ms = opts->dad_ms;
    ifp->back.fn = dad_link_back;
    ifp->routes = opts->routes;
    ifp->route = calloc(opts->routes + 1, sizeof(ifp->route[0]));
    if (!ifp->route) {
        free(ifp);
        return NULL;
    }
    if (opts->routes > 0)
        memcpy(ifp->route, opts->route, opts->routes * sizeof(ifp->route[0]));
    owns_add(ifp, opts);
    return ifp;
}

int inet_if_add(struct inet *inet, const struct inet_if_opts *opts, struct err *err)
{
    struct inet_if *ifp;
    unsigned port;
    int rc = check_if(inet, opts, err);

    if (rc < 0)
        return rc;
    rc = port_find(inet, opts->port, &port);
    if (rc < 0)
        return REFUSE(rc, "interface %s: %s", opts->name,
                      rc == -ENOSPC ? "too many ports" : "out of memory");
    if (inet->port[port]->by_vlan[opts->vlan] != 0)
        return REFUSE(-EEXIST, "interface %s: interface %s is of that port and VLAN already",
                      opts->name, inet->ifs[inet->port[port]->by_vlan[opts->vlan] - 1]->name);
    ifp = if_make(inet, opts, port);
    if (!ifp)
        return REFUSE(-ENOMEM, "interface %s: out of memory", opts->name);
    for (unsigned i = 0; rc == 0 && i < ifp->routes; i++)
        rc = check_route(ifp, &ifp->route[i], err);
    if (rc < 0) {
        if_free(ifp);
        return rc;
    }
    inet->port[port]->by_vlan[opts->vlan] = (uint8_t)(ifp->index + 1);
    inet->ifs[inet->nifs++] = ifp;
    inet->routes += ifp->routes;
    return 0;
}

void if_free(struct inet_if *ifp)
{
    free(ifp->route);
    free(ifp);
}

/* ---- links (control) ---- */

bool inet_if_link(const struct inet_if *ifp)
{
    if (!relaxed_load(&ifp->ip->link))
        return false;
    for (unsigned i = 0; i < ifp->owns; i++)
        if (!ifp->own[i].generated && !own_usable(&ifp->own[i]))
            return false;
    return true;
}

unsigned inet_checking(const struct inet *inet)
{
    unsigned n = 0;

    for (unsigned i = 0; i < inet->nifs; i++) {
        const struct inet_if *ifp = inet->ifs[i];

        for (unsigned k = 0; k < ifp->owns; k++)
            n += !ifp->own[k].generated &&
                 __atomic_load_n(&ifp->own[k].state, __ATOMIC_ACQUIRE) == OWN_TENTATIVE;
    }
    return n;
}

void inet_if_watch(struct inet_if *ifp, struct inet_watch *w)
{
    LIST_INSERT_HEAD(&ifp->watches, w, link);
}

void inet_if_unwatch(struct inet_if *ifp, struct inet_watch *w)
{
    LIST_REMOVE(w, link);
}

void if_judge(struct inet_if *ifp)
{
    struct inet_watch *next;
    bool up = inet_if_link(ifp);

    if (up == ifp->told)
        return;
    ifp->told = up;
    for (struct inet_watch *w = LIST_FIRST(&ifp->watches); w; w = next) {
        next = LIST_NEXT(w, link);
        w->changed(w, up);
    }
}

void inet_event(const struct inet *inet, const struct inet_event *event)
{
    if (inet->opts.event)
        inet->opts.event(inet->opts.event_ctx, event);
}

static void tell_link(const struct inet *inet, const struct inet_port *ip)
{
    static const char *const causes[2][2] = {{"no_link", "start"}, {"link_lost", "link_back"}};
    const struct port_ops *ops = ip->port->ops;
    /* Where the back-end knows more than that there is no link. */
    const char *why = !ip->link && ops->link_why ? ops->link_why(ip->port) : NULL;
    struct inet_event event = {
        .kind = ip->link ? INET_EV_PORT_UP : INET_EV_PORT_DOWN,
        .cause = why ? why : causes[inet->watching][ip->link],
        .port = ip->port->name,
        .value = ip->link ? ip->speed : 0,
    };

    inet_event(inet, &event);
}

/* Addresses are checked again; at the start that begins by itself. */
static void link_back(struct inet *inet, const struct inet_port *ip)
{
    for (unsigned i = 0; i < inet->nifs; i++) {
        struct inet_if *ifp = inet->ifs[i];

        if (ifp->ip == ip && !__atomic_exchange_n(&ifp->back_posted, true, __ATOMIC_ACQ_REL))
            reactor_post(inet->shard[0]->reactor, &ifp->back);
    }
}

void if_links_look(struct inet *inet)
{
    for (unsigned i = 0; i < inet->ports; i++) {
        struct inet_port *ip = inet->port[i];
        const struct port_ops *ops = ip->port->ops;
        bool up = ops->link(ip->port, &ip->speed);

        if (ops->look)
            ops->look(ip->port);
        if (up == ip->link && inet->watching) /* what it is at the start is told, too */
            continue;
        relaxed_store(&ip->link, up);
        tell_link(inet, ip);
        if (up && inet->watching)
            link_back(inet, ip);
    }
    for (unsigned i = 0; i < inet->nifs; i++)
        if_judge(inet->ifs[i]);
    inet->watching = true;
}
