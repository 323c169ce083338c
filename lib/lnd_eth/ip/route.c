/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths: an interface's own nets, then its routes, the longest prefix of both. Few and unchanging:
 * they are looked through when a path is made, not per packet.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <errno.h>

bool route_find(const struct inet_if *ifp, const struct inet_addr *to, struct inet_addr *next_hop)
{
    int bits = -1;

    for (unsigned i = 0; i < ifp->owns; i++)
        if (inet_in_prefix(to, &ifp->own[i].net))
            bits = max(bits, (int)ifp->own[i].net.bits);
    if (bits >= 0)
        *next_hop = *to;
    for (unsigned i = 0; i < ifp->routes; i++) {
        const struct inet_route *r = &ifp->route[i];

        /* A link-local address never leaves its link, RFC 4291 §2.5.6. */
        if (!inet_is_link_local(to) && inet_in_prefix(to, &r->to) && (int)r->to.bits > bits) {
            bits = r->to.bits;
            *next_hop = r->via;
        }
    }
    return bits >= 0;
}

static bool may_be_remote(const struct inet_if *ifp, const struct inet_addr *a)
{
    if (!inet_is_unicast(a))
        return false;
    for (unsigned i = 0; i < ifp->owns; i++)
        if (own_is(&ifp->own[i], a) || inet_is_net_broadcast(a, &ifp->own[i].net))
            return false;
    return true;
}

int inet_path_get(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *local,
                  const struct inet_addr *remote, struct inet_path *out)
{
    const struct inet_own *own;

    if (!ifp)
        ifp = inet_if_of(sh->inet, local);
    own = !ifp ? NULL : own_find(ifp, local);
    if (!own || !own_usable(own))
        return -EADDRNOTAVAIL;
    *out = (struct inet_path){
        .ifp = ifp, .local = *local, .remote = *remote, .generation = sh->generation};
    if (inet_is4(local) != inet_is4(remote) || !may_be_remote(ifp, remote) ||
        !route_find(ifp, remote, &out->next_hop))
        return -ENETUNREACH;
    out->neigh = neigh_find(sh, ifp, &out->next_hop);
    out->mtu = pmtu_get(sh, remote, ifp->mtu);
    return 0;
}

bool inet_path_valid(struct inet_shard *sh, const struct inet_path *path)
{
    return path->generation == sh->generation;
}
