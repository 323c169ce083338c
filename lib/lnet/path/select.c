/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path selection: from a destination NID to the NI it leaves by and the next hop.
 * docs/protocol/lnet-core.md §4.4, §7.1, §7.4. Runs on the shard that holds the message.
 */
#include "lib/lnet/path/path.h"

/* ---- NIs ---- */

/* §7.1 as far as it applies without health: a NID of the same length (IPv4 or IPv6) as the next
 * hop's, link up before link down, then the least recently used. */
enum lnet_why lnet_ni_behind(const struct lnet_shard *s, const struct lnet_ni *ni,
                             const struct lnet_ni *best, const struct lnet_nid *next_hop)
{
    bool fits = ni->nid.size == next_hop->size, best_fits = best->nid.size == next_hop->size;
    bool down = relaxed_load(&ni->fatal), best_down = relaxed_load(&best->fatal);

    if (fits != best_fits)
        return fits ? LNET_WHY_CHOSEN : LNET_WHY_NID_SIZE;
    if (down != best_down)
        return best_down ? LNET_WHY_CHOSEN : LNET_WHY_LINK_DOWN;
    return s->ni_seq[ni->index] < s->ni_seq[best->index] ? LNET_WHY_CHOSEN : LNET_WHY_USED_LATER;
}

static struct lnet_ni *best_ni(const struct lnet_shard *s, const struct lnet_conf_net *net,
                               const struct lnet_nid *next_hop)
{
    struct lnet_ni *best = NULL;

    for (unsigned i = 0; i < net->nni; i++)
        if (!best || lnet_ni_behind(s, net->ni[i], best, next_hop) == LNET_WHY_CHOSEN)
            best = net->ni[i];
    return best;
}

/* ---- routes ---- */

enum lnet_why lnet_route_usable(const struct lnet_shard *s, const struct lnet_route *r,
                                lnet_net_t from_net)
{
    if (from_net != LNET_NET_ANY && nid_net(&r->gw->nid) != from_net)
        return LNET_WHY_OTHER_NET;
    if (!lnet_gw_alive(r->gw))
        return LNET_WHY_GATEWAY_DOWN;
    if (!relaxed_load(&r->up))
        return LNET_WHY_NET_DOWN;
    if (!lnet_net_find(s->node, nid_net(&r->gw->nid)))
        return LNET_WHY_NO_LOCAL_NET;
    return LNET_WHY_CHOSEN;
}

static int hops_of(const struct lnet_route *r)
{
    return r->hops == LNET_HOPS_UNDEFINED ? 1 : r->hops;
}

/* §7.4 */
enum lnet_why lnet_route_behind(const struct lnet_shard *s, const struct lnet_route *r,
                                const struct lnet_route *best)
{
    uint64_t queued = relaxed_load(&r->gw->queued_bytes);
    uint64_t best_queued = relaxed_load(&best->gw->queued_bytes);

    if (r->priority != best->priority)
        return r->priority < best->priority ? LNET_WHY_CHOSEN : LNET_WHY_PRIORITY;
    if (hops_of(r) != hops_of(best))
        return hops_of(r) < hops_of(best) ? LNET_WHY_CHOSEN : LNET_WHY_HOPS;
    if (queued != best_queued)
        return queued < best_queued ? LNET_WHY_CHOSEN : LNET_WHY_QUEUE;
    return s->gw_seq[r->gw->index] < s->gw_seq[best->gw->index] ? LNET_WHY_CHOSEN
                                                                : LNET_WHY_USED_LATER;
}

static enum lnet_drop best_gateway(const struct lnet_shard *s, lnet_net_t net, lnet_net_t from_net,
                                   struct lnet_gw **out)
{
    struct lnet_route *const *r;
    const struct lnet_route *best = NULL;
    bool unreachable = false;
    unsigned n;

    n = lnet_conf_routes(lnet_conf_get(s->node), net, &r);
    if (n == 0)
        return LNET_DROP_NO_ROUTE;
    for (unsigned i = 0; i < n; i++) {
        enum lnet_why why = lnet_route_usable(s, r[i], from_net);

        unreachable |= why == LNET_WHY_NO_LOCAL_NET;
        if (why != LNET_WHY_CHOSEN)
            continue;
        if (!best || lnet_route_behind(s, r[i], best) == LNET_WHY_CHOSEN)
            best = r[i];
    }
    if (!best)
        return unreachable ? LNET_DROP_NO_LND : LNET_DROP_NO_LIVE_ROUTE;
    *out = best->gw;
    return LNET_DROP_NONE;
}

/* ---- the path ---- */

enum lnet_drop lnet_choose(const struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out)
{
    lnet_net_t dest_net = nid_net(dest);
    const struct lnet_conf_net *net;
    enum lnet_drop why;

    out->gw = NULL;
    out->generation = lnet_conf_get(s->node)->generation;
    if (!nid_is_any(via)) {
        out->next_hop = *via; /* an answer goes back the way the request came, §3.1 */
    } else if (src ? src->net == dest_net : lnet_net_find(s->node, dest_net) != NULL) {
        out->next_hop = *dest;
    } else {
        why = best_gateway(s, dest_net, src ? src->net : LNET_NET_ANY, &out->gw);
        if (why)
            return why;
        out->next_hop = out->gw->nid;
    }
    if (src) {
        out->ni = src;
        return LNET_DROP_NONE;
    }
    net = lnet_net_find(s->node, nid_net(&out->next_hop));
    out->ni = net ? best_ni(s, net, &out->next_hop) : NULL;
    return out->ni ? LNET_DROP_NONE : LNET_DROP_NO_LND;
}

enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out)
{
    enum lnet_drop why = lnet_choose(s, dest, via, src, out);

    if (why)
        return why;
    /* Equal candidates take turns. */
    if (out->gw)
        s->gw_seq[out->gw->index] = ++s->seq;
    if (!src)
        s->ni_seq[out->ni->index] = ++s->seq;
    return LNET_DROP_NONE;
}
