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
 * used, or NULL. Returns why there is no path. */
enum lnet_drop lnet_choose(const struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out);
/* Chooses a path for a message that takes it: the next message may take an equal one. */
enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out);
/* ---- comparison of candidates ---- */

/* Returns LNET_WHY_CHOSEN if a route can be used, else why it cannot. from_net: net of the NI that
 * must be used, or LNET_NET_ANY. */
enum lnet_why lnet_route_usable(const struct lnet_shard *s, const struct lnet_route *r,
                                lnet_net_t from_net);
/* Returns LNET_WHY_CHOSEN if a candidate is better than the best so far, else why it is not. */
enum lnet_why lnet_route_behind(const struct lnet_shard *s, const struct lnet_route *r,
                                const struct lnet_route *best);
enum lnet_why lnet_ni_behind(const struct lnet_shard *s, const struct lnet_ni *ni,
                             const struct lnet_ni *best, const struct lnet_nid *next_hop);

/* ---- gateways ---- */

/* Returns whether messages may be sent to a gateway: it is connected or was never lost, and it
 * answers pings or has forwarded a message since it last failed to. */
static inline bool lnet_gw_alive(const struct lnet_gw *gw)
{
    if (relaxed_load(&gw->lnd_down))
        return false;
    return !relaxed_load(&gw->ping_down) ||
           relaxed_load(&gw->heard_us) > relaxed_load(&gw->ping_down_us);
}
/* Returns whether a path could still be chosen: its NI is in use, and either the configuration is
 * the same or its next hop is the destination; a gateway must be alive. */
static inline bool lnet_path_good(const struct lnet_shard *s, const struct lnet_path *path)
{
    if (!lnet_ni_is_active(path->ni))
        return false;
    if (!path->gw)
        return true;
    return path->generation == lnet_conf_get(s->node)->generation && lnet_gw_alive(path->gw);
}
static inline void lnet_msg_set_path(struct lnet_msg *msg, const struct lnet_path *path)
{
    lnet_ni_hold(msg->home, path->ni);
    if (msg->tx_ni)
        lnet_ni_put(msg->home, msg->tx_ni);
    msg->tx_ni = path->ni;
    msg->next_hop = path->next_hop;
    msg->next_gw = path->gw;
    msg->generation = path->generation;
}
/* Notifies the node's home that the state of a gateway may have changed. Home of its NID. */
void lnet_gw_changed(struct lnet_gw *gw, const char *cause);
/* Returns the gateway that messages of src_net may come through: via, if it has a route to src_net,
 * or if src_net is via's own net and via is the gateway of some route. NULL: via is neither. */
struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net);
/* Returns whether a route leads to net through a gateway on net `over`. */
bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over);

#endif
