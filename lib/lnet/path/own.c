/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that this node originates without a given source, to a peer with several NIDs: which of
 * them the message goes to. docs/protocol/lnet-core.md §7.2, §7.3, §7.5, §7.6. Node home.
 *
 * Health is that of the table of peers, a copy that is a moment old. Credits of peer NIs that are
 * no gateway's are known to their home only, and a node that routes has few messages of its own, so
 * they are not compared. For the same reason selection policies are matched here: those about peer
 * nets and peer NIs once for each snapshot, those that prefer NIs for each message.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/shard/udsp.h"

/* A NID that did not answer gets no message for so long while the peer has others. */
#define SILENT_US 60000000ull

/* When an NI of the net was last used. */
static uint64_t net_used(const struct lnet_shard *s, lnet_net_t net)
{
    const struct lnet_conf_net *n = lnet_net_find(s->node, net);
    uint64_t seq = 0;

    for (unsigned i = 0; n && i < n->nni; i++)
        if (s->ni_seq[n->ni[i]->index] > seq)
            seq = s->ni_seq[n->ni[i]->index];
    return seq;
}

static bool is_dead(const struct peer_ni *ni)
{
    return ni->status == LNET_NI_DOWN ||
           (ni->silent_us > 0 && reactor_now_us() - ni->silent_us < SILENT_US);
}

static bool net_dead(const struct peer_net *net)
{
    const struct peer_ni *ni;

    TAILQ_FOREACH(ni, &net->nis, link)
        if (!is_dead(ni))
            return false;
    return true;
}

/* The health of a net is that of its best peer NI, or of our best NI. */
static int peer_net_health(const struct peer_net *net)
{
    const struct peer_ni *ni;
    int health = 0;

    TAILQ_FOREACH(ni, &net->nis, link)
        health = max(health, ni->health);
    return health;
}

static int net_health(const struct lnet_shard *s, lnet_net_t net)
{
    const struct lnet_conf_net *n = lnet_net_find(s->node, net);
    int health = 0;

    for (unsigned i = 0; n && i < n->nni; i++)
        if (!relaxed_load(&n->ni[i]->fatal))
            health = max(health, (int)relaxed_load(&n->ni[i]->health));
    return health;
}

/* ---- selection policies ---- */

/* Keeps what the policies say of a peer's nets and NIs until the configuration changes. */
static void look_up(const struct lnet_conf *c, struct peer *peer)
{
    struct peer_net *net;
    struct peer_ni *ni;

    TAILQ_FOREACH(net, &peer->nets, link) {
        if (net->policy_seen != (uint32_t)c->generation)
            net->priority = lnet_udsp_net(c->udsps, net->net, false);
        net->policy_seen = (uint32_t)c->generation;
        TAILQ_FOREACH(ni, &net->nis, link) {
            const struct lnet_udsp *pair;

            if (ni->policy_seen == (uint32_t)c->generation)
                continue;
            pair = lnet_udsp_pair(c->udsps, c, &ni->nid);
            ni->policy_seen = (uint32_t)c->generation;
            ni->priority = lnet_udsp_nid(c->udsps, &ni->nid, false);
            ni->pair = pair ? (int)(pair - c->udsps->rule) : -1;
        }
    }
}

static uint32_t net_priority(const struct lnet_shard *s, lnet_net_t net)
{
    const struct lnet_conf_net *n = lnet_net_find(s->node, net);

    return n ? n->priority : LNET_UDSP_NONE;
}

/* Returns the NI that a message over a net of ours leaves by, if a policy prefers NIs for a peer NI
 * there: the choice of the peer NI depends on it. Else NULL. */
static struct lnet_ni *pair_ni(const struct lnet_shard *s, const struct peer_net *net)
{
    const struct lnet_conf_net *ours = lnet_net_find(s->node, net->net);
    const struct peer_ni *ni;

    TAILQ_FOREACH(ni, &net->nis, link)
        if (ni->pair >= 0 && ours)
            return lnet_best_ni(s, ours, &ni->nid, NULL);
    return NULL;
}

static bool is_preferred(const struct lnet_conf *c, const struct peer_ni *ni,
                         const struct lnet_ni *src)
{
    return src && ni->pair >= 0 && lnet_udsp_has_nid(&c->udsps->rule[ni->pair].src, &src->nid);
}

/* Returns whether the NID is chosen among those of the peer, which may have only one. A NID that a
 * peer merely lists may be another node's; messages to a gateway's NIDs go to the gateway in any
 * case. */
static bool may_change(const struct peer_ni *ni)
{
    const struct peer *peer = ni ? ni->net->peer : NULL;

    return peer && peer->state & PEER_MULTI_RAIL && (!peer_ni_merely_listed(ni) || peer->pins > 0);
}

/* §7.6: the preferred NI of a peer that is not multi-rail. One with its link down is left out. */
struct lnet_ni *lnet_preferred_ni(const struct lnet_shard *s, const struct lnet_nid *dest)
{
    const struct lnet_conf *c = lnet_conf_get(s->node);
    const struct lnet_udsp *pair = c->udsps ? lnet_udsp_pair(c->udsps, c, dest) : NULL;
    const struct lnet_route *route;
    struct lnet_ni *best = NULL;
    struct lnet_path path;

    if (!pair || may_change(peer_table_find_ni(s->node->peers, dest)))
        return NULL;
    for (unsigned i = 0; i < c->nnis; i++) {
        struct lnet_hop hop;

        if (!lnet_udsp_has_nid(&pair->src, &c->ni[i]->nid) || relaxed_load(&c->ni[i]->fatal) ||
            lnet_choose(s, dest, &LNET_NID_ANY, c->ni[i], &path, &route))
            continue;
        hop = lnet_hop_of(s, &path.next_hop, path.gw_ni);
        if (!best || lnet_ni_behind(s, c->ni[i], best, &hop) == LNET_WHY_CHOSEN)
            best = c->ni[i];
    }
    return best;
}

/* ---- the choice ---- */

/* Whether a peer net is better than the best so far. First comes one with a NID that is not known
 * to be dead, then higher health and lower priority of the peer net, then of ours, then the least
 * recently used. */
static bool is_better(const struct lnet_shard *s, const struct peer_net *net,
                      const struct peer_net *best)
{
    bool dead = net_dead(net), best_dead = net_dead(best);

    if (dead != best_dead)
        return best_dead;
    if (peer_net_health(net) != peer_net_health(best))
        return peer_net_health(net) > peer_net_health(best);
    if (net->priority != best->priority)
        return net->priority < best->priority;
    if (net_health(s, net->net) != net_health(s, best->net))
        return net_health(s, net->net) > net_health(s, best->net);
    if (net_priority(s, net->net) != net_priority(s, best->net))
        return net_priority(s, net->net) < net_priority(s, best->net);
    if (net->used != best->used)
        return net->used < best->used;
    return net_used(s, net->net) < net_used(s, best->net);
}

/* §7.2 of nets of ours, §7.5 of others. */
static struct peer_net *best_net(const struct lnet_shard *s, struct peer *peer, bool local)
{
    struct peer_net *net, *best = NULL;
    struct lnet_route *const *r;

    TAILQ_FOREACH(net, &peer->nets, link) {
        if (local ? !lnet_net_find(s->node, net->net)
                  : lnet_conf_routes(lnet_conf_get(s->node), net->net, &r) == 0)
            continue;
        if (!best || is_better(s, net, best))
            best = net;
    }
    return best;
}

/* §7.3, without the turns: one that is up and answers, higher health, lower priority, one that
 * prefers the NI that the message leaves by (NULL: not known). Returns whether ni comes first:
 * above 0 if so, below 0 if best does. */
static int compare(const struct lnet_conf *c, const struct peer_ni *ni, const struct peer_ni *best,
                   const struct lnet_ni *src)
{
    if (is_dead(ni) != is_dead(best))
        return is_dead(best) ? 1 : -1;
    if (ni->health != best->health)
        return ni->health - best->health;
    if (ni->priority != best->priority)
        return ni->priority < best->priority ? 1 : -1;
    return is_preferred(c, ni, src) - is_preferred(c, best, src);
}

static struct peer_ni *best_peer_ni(const struct lnet_conf *c, const struct peer_net *net,
                                    const struct lnet_ni *src)
{
    struct peer_ni *ni, *best = NULL;

    TAILQ_FOREACH(ni, &net->nis, link) {
        int order = best ? compare(c, ni, best, src) : 1;

        if (order > 0 || (order == 0 && ni->used < best->used))
            best = ni;
    }
    return best;
}

struct lnet_nid lnet_select_nid(struct lnet_shard *s, const struct lnet_nid *dest,
                                struct lnet_ni **src)
{
    const struct lnet_conf *c = lnet_conf_get(s->node);
    struct peer_ni *ni = peer_table_find_ni(s->node->peers, dest);
    struct peer_net *net;

    *src = NULL;
    if (!may_change(ni)) {
        *src = lnet_preferred_ni(s, dest);
        return *dest;
    }
    look_up(c, ni->net->peer);
    net = best_net(s, ni->net->peer, true);
    if (!net)
        net = best_net(s, ni->net->peer, false);
    if (!net)
        return *dest;
    *src = pair_ni(s, net);
    ni = best_peer_ni(c, net, *src);
    net->used = ++s->seq;
    ni->used = ++s->seq;
    return ni->nid;
}
