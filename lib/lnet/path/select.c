/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path selection: from a destination NID to the NI it leaves by and the next hop.
 * docs/protocol/lnet-core.md §4.4, §7.1, §7.3, §7.4. Runs on the shard that holds the message.
 *
 * Beside health a pair of an NI and a peer NI can be down. That is compared first: no message
 * gets through.
 */
#include "lib/lnet/path/path.h"

/* ---- NIs ---- */

struct lnet_hop lnet_hop_of(const struct lnet_shard *s, const struct lnet_nid *nid,
                            const struct lnet_gw_ni *gw_ni)
{
    return (struct lnet_hop){nid, gw_ni, nid_cpt_hash(nid, s->node->nshards)};
}

/* Returns whether the NI could not connect to the next hop, or lost its connections to it. It does
 * not count when the next hop answers nothing: by any NI it may answer again. */
static bool pair_down(const struct lnet_ni *ni, const struct lnet_hop *hop)
{
    return hop->gw_ni && !lnet_gw_ni_silent(hop->gw_ni) &&
           relaxed_load(&hop->gw_ni->pairs_down) & lnet_ni_bit(ni);
}

/* Returns the credits of the queue that the message would go to. A kernel node adds up those of all
 * CPTs, but only this queue can hold the message up. */
static int32_t ni_credits(const struct lnet_shard *s, const struct lnet_ni *ni,
                          const struct lnet_hop *hop)
{
    return relaxed_load(&s->node->shard[hop->home]->ni_credits[ni->index]);
}

/* §7.1. A NID of the same length (IPv4 or IPv6) as the next hop's comes first. Then: link up, a
 * pair that works, higher health, lower priority, more tx credits, the least recently used. */
enum lnet_why lnet_ni_behind(const struct lnet_shard *s, const struct lnet_ni *ni,
                             const struct lnet_ni *best, const struct lnet_hop *hop)
{
    bool fits = ni->nid.size == hop->nid->size, best_fits = best->nid.size == hop->nid->size;
    bool down = relaxed_load(&ni->fatal), best_down = relaxed_load(&best->fatal);
    unsigned health = relaxed_load(&ni->health), best_health = relaxed_load(&best->health);
    uint32_t priority = relaxed_load(&ni->priority);
    uint32_t best_priority = relaxed_load(&best->priority);
    int32_t credits, best_credits;

    if (fits != best_fits)
        return fits ? LNET_WHY_CHOSEN : LNET_WHY_NID_SIZE;
    if (down != best_down)
        return best_down ? LNET_WHY_CHOSEN : LNET_WHY_LINK_DOWN;
    down = pair_down(ni, hop);
    best_down = pair_down(best, hop);
    if (down != best_down)
        return best_down ? LNET_WHY_CHOSEN : LNET_WHY_PAIR_DOWN;
    if (health != best_health)
        return health > best_health ? LNET_WHY_CHOSEN : LNET_WHY_NI_HEALTH;
    if (priority != best_priority)
        return priority < best_priority ? LNET_WHY_CHOSEN : LNET_WHY_NI_PRIORITY;
    credits = ni_credits(s, ni, hop);
    best_credits = ni_credits(s, best, hop);
    if (credits != best_credits)
        return credits > best_credits ? LNET_WHY_CHOSEN : LNET_WHY_NI_CREDITS;
    return s->ni_seq[ni->index] < s->ni_seq[best->index] ? LNET_WHY_CHOSEN : LNET_WHY_USED_LATER;
}

struct lnet_ni *lnet_best_ni(const struct lnet_shard *s, const struct lnet_conf_net *net,
                             const struct lnet_nid *nid, const struct lnet_gw_ni *gw_ni)
{
    struct lnet_ni *best = net->ni[0];
    struct lnet_hop hop;

    if (net->nni == 1)
        return best;
    hop = lnet_hop_of(s, nid, gw_ni);
    for (unsigned i = 1; i < net->nni; i++)
        if (lnet_ni_behind(s, net->ni[i], best, &hop) == LNET_WHY_CHOSEN)
            best = net->ni[i];
    return best;
}

/* ---- the peer NIs of a gateway ---- */

static const struct lnet_wanted any = {.net = LNET_NET_ANY, .rule = -1};

/* Returns whether an NI with a link may send to it. */
static bool has_link(const struct lnet_conf_gw_ni *g)
{
    uint64_t down = relaxed_load(&g->ni->pairs_down);

    for (unsigned i = 0; g->net && i < g->net->nni; i++)
        if (!(down & lnet_ni_bit(g->net->ni[i])) && !relaxed_load(&g->net->ni[i]->fatal))
            return true;
    return false;
}

/* §7.3: one that works and is up, higher health, lower priority, preferred, more tx credits, then
 * the least recently used. A policy prefers it for an NI of ours: ni is the bit of the NI that must
 * be used, or 0. */
enum lnet_why lnet_gw_ni_behind(const struct lnet_shard *s, const struct lnet_conf_gw_ni *g,
                                const struct lnet_conf_gw_ni *best, uint64_t ni)
{
    bool usable = lnet_gw_ni_usable(g), best_usable = lnet_gw_ni_usable(best);
    bool down = relaxed_load(&g->ni->status_down), best_down = relaxed_load(&best->ni->status_down);
    bool link = has_link(g), best_link = has_link(best);
    unsigned health = relaxed_load(&g->ni->health), best_health = relaxed_load(&best->ni->health);
    int32_t credits = relaxed_load(&g->ni->tx_credits);
    int32_t best_credits = relaxed_load(&best->ni->tx_credits);

    if (usable != best_usable)
        return usable ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_DOWN;
    if (!usable) /* any may work again: they are pinged in turn */
        goto turn;
    if (down != best_down)
        return best_down ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_DOWN;
    if (link != best_link)
        return link ? LNET_WHY_CHOSEN : LNET_WHY_LINK_DOWN;
    if (health != best_health)
        return health > best_health ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_HEALTH;
    if (g->priority != best->priority)
        return g->priority < best->priority ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_PRIORITY;
    if (!(g->preferred & ni) != !(best->preferred & ni))
        return g->preferred & ni ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_PREFERRED;
    if (credits != best_credits)
        return credits > best_credits ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_CREDITS;
turn:
    return s->gw_ni_seq[g->ni->index] < s->gw_ni_seq[best->ni->index] ? LNET_WHY_CHOSEN
                                                                      : LNET_WHY_USED_LATER;
}

/* Returns the best peer NI of a gateway on our nets as it is wanted; NULL: there is none. g: NULL
 * if a snapshot that was published meanwhile does not list the gateway. */
static const struct lnet_conf_gw_ni *
best_gw_ni(const struct lnet_shard *s, const struct lnet_conf_gw *g, const struct lnet_wanted *w)
{
    const struct lnet_conf_gw_ni *best = NULL;

    for (unsigned i = 0; g && i < g->nnis; i++) {
        const struct lnet_conf_gw_ni *ni = &g->ni[i];

        if (!ni->net || ni->ni == w->other_than ||
            (w->net != LNET_NET_ANY && ni->net->net != w->net))
            continue;
        if (!best || lnet_gw_ni_behind(s, ni, best, w->ni) == LNET_WHY_CHOSEN)
            best = ni;
    }
    return best;
}

/* ---- routes ---- */

enum lnet_why lnet_route_usable(const struct lnet_shard *s, const struct lnet_route *r,
                                const struct lnet_wanted *w, struct lnet_route_choice *out)
{
    const struct lnet_conf_gw *g = lnet_conf_gateway(lnet_conf_get(s->node), r->gw);

    out->route = r;
    out->ni = best_gw_ni(s, g, w);
    out->preferred = w->rule >= 0 && g && g->rules.word[w->rule / 64] >> w->rule % 64 & 1;
    if (!out->ni)
        return best_gw_ni(s, g, &any) ? LNET_WHY_OTHER_NET : LNET_WHY_NO_LOCAL_NET;
    if (!lnet_gw_ni_usable(out->ni))
        return LNET_WHY_GATEWAY_DOWN;
    return relaxed_load(&r->up) ? LNET_WHY_CHOSEN : LNET_WHY_NET_DOWN;
}

static int hops_of(const struct lnet_route *r)
{
    return r->hops == LNET_HOPS_UNDEFINED ? 1 : r->hops;
}

/* §7.4: preferred by a selection policy, priority, hops, the gateway's peer NI: health, queued
 * bytes, tx credits; then the least recently used. */
enum lnet_why lnet_route_behind(const struct lnet_shard *s, const struct lnet_route_choice *r,
                                const struct lnet_route_choice *best)
{
    uint64_t queued = relaxed_load(&r->ni->ni->queued_bytes);
    uint64_t best_queued = relaxed_load(&best->ni->ni->queued_bytes);
    int32_t credits = relaxed_load(&r->ni->ni->tx_credits);
    int32_t best_credits = relaxed_load(&best->ni->ni->tx_credits);
    unsigned health = relaxed_load(&r->ni->ni->health);
    unsigned best_health = relaxed_load(&best->ni->ni->health);

    if (r->preferred != best->preferred)
        return r->preferred ? LNET_WHY_CHOSEN : LNET_WHY_GATEWAY_PREFERRED;
    if (r->route->priority != best->route->priority)
        return r->route->priority < best->route->priority ? LNET_WHY_CHOSEN : LNET_WHY_PRIORITY;
    if (hops_of(r->route) != hops_of(best->route))
        return hops_of(r->route) < hops_of(best->route) ? LNET_WHY_CHOSEN : LNET_WHY_HOPS;
    if (health != best_health)
        return health > best_health ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_HEALTH;
    if (queued != best_queued)
        return queued < best_queued ? LNET_WHY_CHOSEN : LNET_WHY_QUEUE;
    if (credits != best_credits)
        return credits > best_credits ? LNET_WHY_CHOSEN : LNET_WHY_PEER_NI_CREDITS;
    return s->gw_seq[r->route->gw->index] < s->gw_seq[best->route->gw->index] ? LNET_WHY_CHOSEN
                                                                              : LNET_WHY_USED_LATER;
}

static enum lnet_drop best_route(const struct lnet_shard *s, const struct lnet_nid *dest,
                                 const struct lnet_ni *src, struct lnet_route_choice *best)
{
    const struct lnet_conf *conf = lnet_conf_get(s->node);
    struct lnet_wanted wanted;
    struct lnet_route *const *r;
    struct lnet_route_choice c;
    bool unreachable = false;
    unsigned n;

    best->route = NULL;
    n = lnet_conf_routes(conf, nid_net(dest), &r);
    if (n == 0)
        return LNET_DROP_NO_ROUTE;
    wanted = lnet_wanted_of(conf, src, r, n, dest);
    for (unsigned i = 0; i < n; i++) {
        enum lnet_why why = lnet_route_usable(s, r[i], &wanted, &c);

        unreachable |= why == LNET_WHY_NO_LOCAL_NET;
        if (why != LNET_WHY_CHOSEN)
            continue;
        if (!best->route || lnet_route_behind(s, &c, best) == LNET_WHY_CHOSEN)
            *best = c;
    }
    if (best->route)
        return LNET_DROP_NONE;
    return unreachable ? LNET_DROP_NO_LND : LNET_DROP_NO_LIVE_ROUTE;
}

/* ---- the path ---- */

enum lnet_drop lnet_choose(const struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out,
                           const struct lnet_route **route)
{
    lnet_net_t dest_net = nid_net(dest);
    const struct lnet_conf_net *net = NULL;
    struct lnet_route_choice best;
    enum lnet_drop why;

    *route = NULL;
    out->gw_ni = NULL;
    out->generation = lnet_conf_get(s->node)->generation;
    if (!nid_is_any(via)) {
        out->next_hop = *via; /* an answer goes back the way the request came, §3.1 */
    } else if (src ? src->net == dest_net : (net = lnet_net_find(s->node, dest_net)) != NULL) {
        out->next_hop = *dest;
    } else {
        why = best_route(s, dest, src, &best);
        if (why)
            return why;
        *route = best.route;
        out->gw_ni = best.ni->ni;
        out->next_hop = best.ni->ni->nid;
        net = best.ni->net;
    }
    if (src) {
        out->ni = src;
        return LNET_DROP_NONE;
    }
    if (!net)
        net = lnet_net_find(s->node, nid_net(&out->next_hop));
    if (!net)
        return LNET_DROP_NO_LND;
    out->ni = lnet_best_ni(s, net, &out->next_hop, out->gw_ni);
    return LNET_DROP_NONE;
}

enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out)
{
    const struct lnet_route *route;
    enum lnet_drop why = lnet_choose(s, dest, via, src, out, &route);

    if (why)
        return why;
    /* Equal candidates take turns. */
    if (route) {
        s->gw_seq[route->gw->index] = ++s->seq;
        s->gw_ni_seq[out->gw_ni->index] = ++s->seq;
    }
    s->ni_seq[out->ni->index] = ++s->seq;
    return LNET_DROP_NONE;
}

/* ---- the path of a resend ---- */

/* Takes another NI to the same next hop. Returns false if none can be used. */
static bool other_ni(struct lnet_shard *s, struct lnet_path *path)
{
    const struct lnet_conf_net *net = lnet_net_find(s->node, nid_net(&path->next_hop));
    const struct lnet_hop hop = lnet_hop_of(s, &path->next_hop, path->gw_ni);
    struct lnet_ni *best = NULL;

    for (unsigned i = 0; net && i < net->nni; i++) {
        struct lnet_ni *ni = net->ni[i];

        if (ni == path->ni || ni->nid.size != path->ni->nid.size || relaxed_load(&ni->fatal) ||
            pair_down(ni, &hop))
            continue;
        if (!best || lnet_ni_behind(s, ni, best, &hop) == LNET_WHY_CHOSEN)
            best = ni;
    }
    if (!best)
        return false;
    path->ni = best;
    s->ni_seq[best->index] = ++s->seq;
    return true;
}

/* Takes another peer NI of a gateway: of the same one, or of another that has a route. */
static bool other_gw_ni(struct lnet_shard *s, const struct lnet_nid *dest, struct lnet_path *path)
{
    const struct lnet_conf *conf = lnet_conf_get(s->node);
    struct lnet_route_choice best = {0}, c;
    struct lnet_wanted wanted;
    struct lnet_route *const *r;
    unsigned n = path->gw_ni ? lnet_conf_routes(conf, nid_net(dest), &r) : 0;

    if (n == 0)
        return false;
    wanted = lnet_wanted_of(conf, NULL, r, n, dest);
    wanted.other_than = path->gw_ni;
    for (unsigned i = 0; i < n; i++) {
        if (lnet_route_usable(s, r[i], &wanted, &c) != LNET_WHY_CHOSEN)
            continue;
        if (!best.route || lnet_route_behind(s, &c, &best) == LNET_WHY_CHOSEN)
            best = c;
    }
    if (!best.route)
        return false;
    path->gw_ni = best.ni->ni;
    path->next_hop = best.ni->ni->nid;
    path->ni = lnet_best_ni(s, best.ni->net, &path->next_hop, path->gw_ni);
    s->gw_seq[best.route->gw->index] = ++s->seq;
    s->gw_ni_seq[path->gw_ni->index] = ++s->seq;
    s->ni_seq[path->ni->index] = ++s->seq;
    return true;
}

enum lnet_drop lnet_select_other(struct lnet_shard *s, const struct lnet_nid *dest,
                                 enum lnet_health status, struct lnet_path *path)
{
    const struct lnet_path failed = *path;
    enum lnet_drop why = lnet_select(s, dest, &LNET_NID_ANY, NULL, path);

    if (why || path->ni != failed.ni || !nid_same(&path->next_hop, &failed.next_hop))
        return why;
    if (status >= LNET_HEALTH_REMOTE_ERROR)
        (void)(other_gw_ni(s, dest, path) || other_ni(s, path));
    else
        (void)(other_ni(s, path) || other_gw_ni(s, dest, path));
    return LNET_DROP_NONE;
}

bool lnet_select_gateway(struct lnet_shard *s, const struct lnet_gw *gw, struct lnet_path *out)
{
    const struct lnet_conf *conf = lnet_conf_get(s->node);
    const struct lnet_conf_gw *g = lnet_conf_gateway(conf, gw);
    const struct lnet_conf_gw_ni *best = best_gw_ni(s, g, &any);

    if (!best)
        return false;
    *out = (struct lnet_path){
        .next_hop = best->ni->nid, .gw_ni = best->ni, .generation = conf->generation};
    out->ni = lnet_best_ni(s, best->net, &out->next_hop, best->ni);
    s->gw_ni_seq[best->ni->index] = ++s->seq;
    s->ni_seq[out->ni->index] = ++s->seq;
    return true;
}
