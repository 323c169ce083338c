/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path selection: from a destination NID to the next hop and the NI that a message leaves by. The
 * choice follows the snapshot (shard/conf.h) and the state of gateways; among equal candidates a
 * shard takes the one that it used least recently. docs/protocol/lnet-core.md §4.4, §7.1, §7.4.
 *
 * All functions run on the shard that holds the message. lnet_why() in lnet.h explains a choice by
 * the same code.
 */
#ifndef MILLRACE_LNET_PATH_H
#define MILLRACE_LNET_PATH_H

#include "lib/lnet/shard/conf.h"

/* Chooses the path to dest without any effect. via: the next hop, or ANY; src: the NI that must be
 * used, or NULL. *route: whose gateway the next hop is, or NULL. Returns why there is no path. */
enum lnet_drop lnet_choose(const struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out,
                           const struct lnet_route **route);
/* Chooses a path for a message that takes it: the next message may take an equal one. */
enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out);
/* Chooses a path for a message that could not be sent by *path and ended with that status. The path
 * is another pair of NI and peer NI if there is one: a local status prefers another NI, a remote
 * one another peer NI. */
enum lnet_drop lnet_select_other(struct lnet_shard *s, const struct lnet_nid *dest,
                                 enum lnet_health status, struct lnet_path *path);
/* Chooses a path to a gateway itself for a message that takes it. Returns false if none of its peer
 * NIs is on a net of ours. */
bool lnet_select_gateway(struct lnet_shard *s, const struct lnet_gw *gw, struct lnet_path *out);

/* Returns the NID that a message of this node to dest goes to if no source is given: perhaps
 * another one of a multi-rail peer. Sets *src to the NI that a policy prefers, or NULL. Node home.
 * own.c. */
struct lnet_nid lnet_select_nid(struct lnet_shard *s, const struct lnet_nid *dest,
                                struct lnet_ni **src);
/* Returns the NI that a selection policy prefers for a message of this node to dest itself, or
 * NULL. own.c. */
struct lnet_ni *lnet_preferred_ni(const struct lnet_shard *s, const struct lnet_nid *dest);
/* Returns our best NI on a net for a next hop; gw_ni: NULL if the hop is no gateway's. */
struct lnet_ni *lnet_best_ni(const struct lnet_shard *s, const struct lnet_conf_net *net,
                             const struct lnet_nid *nid, const struct lnet_gw_ni *gw_ni);

/* ---- comparison of candidates ---- */

/* A next hop: a NID, and what is known of it. */
struct lnet_hop {
    const struct lnet_nid *nid;
    const struct lnet_gw_ni *gw_ni; /* NULL: not one of a gateway's */
    unsigned home;                  /* its reactor */
};
struct lnet_hop lnet_hop_of(const struct lnet_shard *s, const struct lnet_nid *nid,
                            const struct lnet_gw_ni *gw_ni);
/* The demands of a message on a gateway and its peer NIs. */
struct lnet_wanted {
    lnet_net_t net; /* of the NI that must be used, or LNET_NET_ANY */
    uint64_t ni;    /* lnet_ni_bit() of that NI, or 0 */
    int rule;       /* the selection policy that prefers gateways for the destination, or -1 */
    const struct lnet_gw_ni *other_than; /* NULL: any peer NI may be used */
};
/* src: NULL: any NI. first: of the n routes to the net of dest. */
static inline struct lnet_wanted lnet_wanted_of(const struct lnet_conf *conf,
                                                const struct lnet_ni *src,
                                                struct lnet_route *const *first, unsigned n,
                                                const struct lnet_nid *dest)
{
    return (struct lnet_wanted){.net = src ? src->net : LNET_NET_ANY,
                                .ni = src ? lnet_ni_bit(src) : 0,
                                .rule = n > 0 ? lnet_conf_gateway_rule(conf, first, dest) : -1};
}
/* A route that may be used, and the gateway's peer NI that it would use. */
struct lnet_route_choice {
    const struct lnet_route *route;
    const struct lnet_conf_gw_ni *ni;
    bool preferred; /* by a selection policy */
};
/* Returns LNET_WHY_CHOSEN if a route can be used, and sets *out; else why it cannot. */
enum lnet_why lnet_route_usable(const struct lnet_shard *s, const struct lnet_route *r,
                                const struct lnet_wanted *wanted, struct lnet_route_choice *out);
/* Returns LNET_WHY_CHOSEN if a candidate is better than the best so far, else why it is not. */
enum lnet_why lnet_route_behind(const struct lnet_shard *s, const struct lnet_route_choice *r,
                                const struct lnet_route_choice *best);
enum lnet_why lnet_gw_ni_behind(const struct lnet_shard *s, const struct lnet_conf_gw_ni *g,
                                const struct lnet_conf_gw_ni *best, uint64_t ni);
enum lnet_why lnet_ni_behind(const struct lnet_shard *s, const struct lnet_ni *ni,
                             const struct lnet_ni *best, const struct lnet_hop *hop);

/* ---- gateways ---- */

/* Returns whether a gateway's peer NI did not answer a ping, and has forwarded nothing since. */
static inline bool lnet_gw_ni_silent(const struct lnet_gw_ni *ni)
{
    uint64_t ping = relaxed_load(&ni->ping_down_us);

    return ping && relaxed_load(&ni->heard_us) <= ping;
}
/* Returns whether a gateway's peer NI may be used. It must answer pings, or have forwarded a
 * message since a ping failed. An NI of ours must be connected to it, or may try to connect. */
static inline bool lnet_gw_ni_usable(const struct lnet_conf_gw_ni *g)
{
    if ((relaxed_load(&g->ni->pairs_down) & g->local) == g->local)
        return false; /* also if the NID is on no net of ours */
    return !lnet_gw_ni_silent(g->ni);
}
/* Returns whether messages may be sent to a gateway: to one of its peer NIs. */
static inline bool lnet_gw_alive(const struct lnet_gw *gw)
{
    const struct lnet_conf_gw *g = lnet_conf_gateway(lnet_conf_get(gw->node), gw);

    for (unsigned i = 0; g && i < g->nnis; i++)
        if (lnet_gw_ni_usable(&g->ni[i]))
            return true;
    return false;
}
/* Returns whether a path could still be chosen. Its NI must be in use. A next hop that is no
 * destination must be of the present configuration, up, and usable by that NI. */
static inline bool lnet_path_good(const struct lnet_shard *s, const struct lnet_path *path)
{
    const struct lnet_conf_gw_ni g = {.ni = path->gw_ni, .local = lnet_ni_bit(path->ni)};

    if (!lnet_ni_is_active(path->ni))
        return false;
    if (!path->gw_ni)
        return true;
    return path->generation == lnet_conf_get(s->node)->generation && lnet_gw_ni_usable(&g) &&
           !relaxed_load(&path->gw_ni->status_down);
}
static inline void lnet_msg_set_path(struct lnet_msg *msg, const struct lnet_path *path)
{
    lnet_ni_hold(msg->home, path->ni);
    if (msg->tx_ni)
        lnet_ni_put(msg->home, msg->tx_ni);
    msg->tx_ni = path->ni;
    msg->next_hop = path->next_hop;
    msg->next_gw_ni = path->gw_ni;
    msg->generation = path->generation;
}
/* Returns the gateway that messages of src_net may come through: via, if it has a route to src_net,
 * or if src_net is via's own net and via is the gateway of some route. NULL: via is neither. */
struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net);
/* Returns whether a route leads to net through a gateway on net `over`. */
bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over);

#endif
