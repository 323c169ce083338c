/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path selection: from a destination NID to the NI it leaves by and the next hop.
 * docs/protocol/lnet-core.md §4.4, §7.1, §7.4. Runs on the shard that holds the message.
 */
#include "lib/lnet/lnet_internal.h"

struct lnet_net_state *lnet_net_find(const struct lnet_node *node, lnet_net_t net)
{
    unsigned i;

    for (i = 0; i < node->nnets; i++)
        if (node->net[i]->net == net && !shared_get(&node->net[i]->removed))
            return node->net[i];
    return NULL;
}

bool lnet_nid_is_mine(const struct lnet_node *node, const struct lnet_nid *nid)
{
    unsigned i;

    if (nid_is_lo(nid))
        return true;
    for (i = 0; i < node->nnis; i++)
        if (nid_same(&node->ni[i]->nid, nid) && !shared_get(&node->ni[i]->removed))
            return true;
    return false;
}

/* §7.1 as far as it applies without health: link up before link down, a NID of the same length
 * (IPv4 or IPv6) as the next hop's, then the least recently used. */
static struct lnet_ni *best_ni(struct lnet_shard *s, const struct lnet_net_state *net,
                               const struct lnet_nid *next_hop)
{
    struct lnet_ni *best = NULL;
    unsigned i, score, best_score = 0;

    for (i = 0; i < net->nni; i++) {
        struct lnet_ni *ni = s->node->ni[net->ni[i]];

        score = 1 + (shared_get(&ni->fatal) ? 0 : 2) + (ni->nid.size == next_hop->size ? 4 : 0);
        if (!best || score > best_score ||
            (score == best_score && s->ni_seq[ni->index] < s->ni_seq[best->index])) {
            best = ni;
            best_score = score;
        }
    }
    if (best)
        s->ni_seq[best->index] = ++s->seq;
    return best;
}

static int hops_of(const struct lnet_route *r)
{
    return r->hops == LNET_HOPS_UNDEFINED ? 1 : r->hops;
}

/* §7.4: true if a is the better choice. */
static bool route_better(const struct lnet_shard *s, const struct lnet_route *a,
                         const struct lnet_route *b)
{
    uint64_t qa, qb;

    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (hops_of(a) != hops_of(b))
        return hops_of(a) < hops_of(b);
    qa = shared_get(&a->gw->queued_bytes);
    qb = shared_get(&b->gw->queued_bytes);
    if (qa != qb)
        return qa < qb;
    return s->gw_seq[a->gw->index] < s->gw_seq[b->gw->index];
}

static enum lnet_drop best_gateway(struct lnet_shard *s, lnet_net_t net, lnet_net_t from_net,
                                   struct lnet_gw **out)
{
    struct lnet_route *const *r;
    const struct lnet_route *best = NULL;
    bool unreachable = false;
    unsigned i, n;

    n = lnet_conf_routes(lnet_conf_get(s->node), net, &r);
    if (n == 0)
        return LNET_DROP_NO_ROUTE;
    for (i = 0; i < n; i++) {
        if (from_net != LNET_NET_ANY && nid_net(&r[i]->gw->nid) != from_net)
            continue;
        if (!lnet_gw_alive(r[i]->gw) || !shared_get(&r[i]->up))
            continue;
        if (!lnet_net_find(s->node, nid_net(&r[i]->gw->nid))) { /* removed */
            unreachable = true;
            continue;
        }
        if (!best || route_better(s, r[i], best))
            best = r[i];
    }
    if (!best)
        return unreachable ? LNET_DROP_NO_LND : LNET_DROP_NO_LIVE_ROUTE;
    s->gw_seq[best->gw->index] = ++s->seq;
    *out = best->gw;
    return LNET_DROP_NONE;
}

enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out)
{
    lnet_net_t dest_net = nid_net(dest);
    struct lnet_net_state *net;
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

bool lnet_path_good(const struct lnet_shard *s, const struct lnet_path *path)
{
    if (shared_get(&path->ni->removed))
        return false;
    if (!path->gw)
        return true;
    return path->generation == lnet_conf_get(s->node)->generation && lnet_gw_alive(path->gw);
}

void lnet_msg_set_path(struct lnet_msg *msg, const struct lnet_path *path)
{
    msg->tx_ni = path->ni;
    msg->next_hop = path->next_hop;
    msg->next_gw = path->gw;
    msg->generation = path->generation;
}
