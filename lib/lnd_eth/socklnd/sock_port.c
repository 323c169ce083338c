/* SPDX-License-Identifier: BSD-3-Clause */
/* NIs on ports: their addresses, their transport, the state of their link. */
#include "lib/base/err.h"
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- NID <-> address ---- */

static void addr_of_nid(const struct lnet_nid *nid, struct inet_addr *out)
{
    if (nid_is_nid4(nid))
        inet_addr4(out, nid->addr_be);
    else
        memcpy(out->b, nid->addr_be, sizeof(out->b));
}

static struct lnet_nid nid_of_addr(lnet_net_t net, const struct inet_addr *addr)
{
    return inet_is4(addr) ? nid_make(net, addr->b + 12, 4) : nid_make(net, addr->b, 16);
}

/* ---- the home of what comes to an address ---- */

static struct sock_home *home_of(struct lnd_sock *sock, const struct inet_addr *addr)
{
    unsigned n = __atomic_load_n(&sock->nhomes, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < n; i++) {
        if (inet_same(&sock->home[i].addr, addr))
            return &sock->home[i];
    }
    return NULL;
}

static int home_take(struct sock_ni *sni, struct err *err)
{
    struct lnd_sock *sock = sni->sock;
    struct sock_home *h;
    struct inet_addr addr;

    addr_of_nid(&sni->base.ni->nid, &addr);
    h = home_of(sock, &addr);
    if (!h && sock->nhomes == SOCK_HOMES) {
        return err_set(err, -ENOSPC, "NIs have had more than %u addresses; restart the program",
                       SOCK_HOMES);
    }
    if (!h) {
        h = &sock->home[sock->nhomes];
        h->addr = addr;
        __atomic_store_n(&sock->nhomes, sock->nhomes + 1, __ATOMIC_RELEASE);
    }
    if (h->refs++ == 0)
        relaxed_store(&h->net, sni->base.ni->net);
    sni->home = h;
    return 0;
}

unsigned lnd_sock_home(void *ctx, const struct inet_addr *local, const struct inet_addr *remote)
{
    struct lnd_sock *sock = ctx;
    struct sock_home *h = home_of(sock, local);
    lnet_net_t net = LNET_NET(LNET_LND_SOCK, 0);
    struct lnet_nid nid;

    if (!sock->base.node)
        return 0;
    if (h)
        net = relaxed_load(&h->net);
    nid = nid_of_addr(net, remote);
    return reactor_index(lnet_nid_home(sock->base.node, &nid));
}

/* ---- interface <-> address, docs/protocol/socklnd.md §1.2 ---- */

/* As of an interface of the host's: its first IPv4 address, or the first IPv6 one that is not of
 * the link only. */
static bool first_address(const struct eth_ports *ports, const struct inet_if *ifp,
                          struct inet_addr *out)
{
    struct inet_prefix p;
    bool found = false;

    for (unsigned i = 0; ports->addr(ifp, i, &p); i++) {
        if (inet_is4(&p.addr)) {
            *out = p.addr;
            return true;
        }
        if (!found && !inet_is_link_local(&p.addr)) {
            *out = p.addr;
            found = true;
        }
    }
    return found;
}

static int address_of_port(struct sock_ni *sni, const struct eth_ports *ports, struct err *err)
{
    struct lnet_ni *ni = sni->base.ni;
    struct inet_addr addr;

    if (!first_address(ports, sni->ifp, &addr)) {
        return err_set(err, -EINVAL,
                       "port %s has no IP address but those of its link; give it one (addresses:)",
                       ni->ifname);
    }
    ni->nid = nid_of_addr(ni->net, &addr);
    return 0;
}

static int check_address(const struct sock_ni *sni, const struct eth_ports *ports, struct err *err)
{
    const struct lnet_ni *ni = sni->base.ni;
    char nid[LNET_NIDSTR_SIZE];
    struct inet_addr addr;
    struct inet_prefix p;

    addr_of_nid(&ni->nid, &addr);
    for (unsigned i = 0; ports->addr(sni->ifp, i, &p); i++) {
        if (inet_same(&p.addr, &addr))
            return 0;
    }
    return err_set(err, -EINVAL,
                   "%s: the address is not on port %s; add it there (addresses:) or correct the NI",
                   nid_format(&ni->nid, nid), ni->ifname);
}

static struct inet_if *port_of(const struct eth_ports *ports, const struct lnet_ni *ni)
{
    struct inet_addr addr;

    if (ni->ifname[0] != '\0')
        return ports->find(ports->inet, ni->ifname);
    if (nid_is_any(&ni->nid))
        return NULL;
    addr_of_nid(&ni->nid, &addr);
    return ports->owner(ports->inet, &addr);
}

int sock_port_resolve(struct sock_ni *sni, struct err *err)
{
    const struct eth_ports *ports = sni->sock->opts.ports;
    struct lnet_ni *ni = sni->base.ni;
    struct inet_if *ifp = port_of(ports, ni);
    int rc;

    if (!ifp)
        return 0;
    sni->ifp = ifp;
    sni->transport = ports->transport;
    snprintf(ni->ifname, sizeof(ni->ifname), "%s", ports->name(ifp));
    rc = nid_is_any(&ni->nid) ? address_of_port(sni, ports, err) : check_address(sni, ports, err);
    if (rc < 0)
        return rc;
    sock_nid_to_addr(sni, &ni->nid, 0, &sni->addr);
    rc = home_take(sni, err);
    return rc < 0 ? rc : 1;
}

/* ---- watching ---- */

static void link_told(struct reactor_task *task);

/* Reports the link's state to the core, always from the same reactor. */
static void link_tell(struct reactor_task *task)
{
    struct sock_watch *w = container_of(task, struct sock_watch, task);
    struct sock_ni *sni = container_of(w, struct sock_ni, watch);

    lnet_ni_link(sni->base.ni, w->told);
    task->fn = link_told;
    reactor_post(reactor_control(lnet_node_env(sni->base.ni->node)), task);
}

static void link_send(struct sock_ni *sni)
{
    struct sock_watch *w = &sni->watch;

    if (w->away)
        return;
    w->away = true;
    w->told = w->up;
    w->task.fn = link_tell;
    reactor_post(lnd_shard_at(sni->base.driver, sni->link_shard)->reactor, &w->task);
}

static void link_told(struct reactor_task *task)
{
    struct sock_watch *w = container_of(task, struct sock_watch, task);

    w->away = false;
    /* The state may have changed meanwhile. */
    if (w->on && w->up != w->told)
        link_send(container_of(w, struct sock_ni, watch));
}

static void link_changed(struct inet_watch *watch, bool up)
{
    struct sock_watch *w = container_of(watch, struct sock_watch, watch);

    w->up = up;
    link_send(container_of(w, struct sock_ni, watch));
}

void sock_port_watch(struct sock_ni *sni)
{
    const struct eth_ports *ports = sni->sock->opts.ports;
    struct sock_watch *w = &sni->watch;

    w->on = true;
    w->watch.changed = link_changed;
    ports->watch(sni->ifp, &w->watch);
    w->up = ports->link(sni->ifp);
    link_send(sni);
}

void sock_port_unwatch(struct sock_ni *sni)
{
    struct sock_watch *w = &sni->watch;

    if (!w->on)
        return;
    w->on = false;
    sni->sock->opts.ports->unwatch(sni->ifp, &w->watch);
}

void sock_port_free(struct sock_ni *sni)
{
    sock_port_unwatch(sni); /* if the node was not stopped in order */
    if (sni->home)
        sni->home->refs--;
    sni->home = NULL;
}
