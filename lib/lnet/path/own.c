/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that this node originates without a given source, to a peer with several NIDs: which of
 * them the message goes to. docs/protocol/lnet-core.md §7.2, §7.3, §7.5, §7.6. Node home.
 *
 * Health is that of the table of peers, a copy that is a moment old. Credits of peer NIs that are
 * no gateway's are known to their home only, and a node that routes has few messages of its own, so
 * they are not compared.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peers.h"

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

/* Whether a peer net is better than the best so far. First comes one with a NID that is not known
 * to be dead, then higher health of the peer net, and of ours, then the least recently used. */
static bool is_better(const struct lnet_shard *s, const struct peer_net *net,
                      const struct peer_net *best)
{
    bool dead = net_dead(net), best_dead = net_dead(best);

    if (dead != best_dead)
        return best_dead;
    if (peer_net_health(net) != peer_net_health(best))
        return peer_net_health(net) > peer_net_health(best);
    if (net_health(s, net->net) != net_health(s, best->net))
        return net_health(s, net->net) > net_health(s, best->net);
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

/* §7.3: one that is up and answers, higher health, then the least recently used. */
static struct peer_ni *best_peer_ni(const struct peer_net *net)
{
    struct peer_ni *ni, *best = NULL;

    TAILQ_FOREACH(ni, &net->nis, link) {
        bool down = is_dead(ni), best_down = best && is_dead(best);

        if (best && down == best_down && ni->health != best->health)
            best = ni->health > best->health ? ni : best;
        else if (!best || (down != best_down ? best_down : ni->used < best->used))
            best = ni;
    }
    return best;
}

struct lnet_nid lnet_select_nid(struct lnet_shard *s, const struct lnet_nid *dest)
{
    struct peer_ni *ni = peer_table_find_ni(s->node->peers, dest);
    struct peer *peer = ni ? ni->net->peer : NULL;
    struct peer_net *net;

    if (!peer || peer->nnis == 1 || !(peer->state & PEER_MULTI_RAIL))
        return *dest;
    if (peer_ni_merely_listed(ni) && peer->pins == 0)
        return *dest; /* another node may have it; what is behind a gateway goes to it anyway */
    net = best_net(s, peer, true);
    if (!net)
        net = best_net(s, peer, false);
    if (!net)
        return *dest;
    ni = best_peer_ni(net);
    net->used = ++s->seq;
    ni->used = ++s->seq;
    return ni->nid;
}
