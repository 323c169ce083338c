/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions for LNDs (lnd.h) that are neither a step of a message nor part of a room. */
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/route/route.h"
#include "lib/lnet/shard/conf.h"
#include "lib/lnet/tx.h"

#include <stdlib.h>
#include <string.h>

/* ---- the node ---- */

struct reactor_env *lnet_node_env(const struct lnet_node *node)
{
    return node->env;
}

struct reactor *lnet_nid_home(const struct lnet_node *node, const struct lnet_nid *nid)
{
    return reactor_at(node->env, nid_cpt_hash(nid, node->nshards));
}

bool lnet_nid_is_mine(const struct lnet_node *node, const struct lnet_nid *nid)
{
    return lnet_is_own_nid(node, nid);
}

size_t lnet_segment_memory(const struct lnet_node *node)
{
    return node->plan.segments;
}

unsigned lnet_lnd_timeout(const struct lnet_node *node)
{
    unsigned timeout = (relaxed_load(&node->health.transaction_timeout) - 1) /
                       (relaxed_load(&node->health.retry_count) + 1);

    return timeout > 1 ? timeout : 1;
}

/* ---- messages ---- */

struct mem_seg *lnet_rx_segs(struct lnet_rx *rx)
{
    return rx->msg && rx->msg->kind == LNET_KIND_FORWARD ? rx->msg->segs : NULL;
}

void lnet_msg_fetch(const struct lnet_msg *msg)
{
    if (!msg->rx_peer || msg->home->reactor != reactor_self())
        return;
    prefetch_write(msg->rx_peer, 2 * CPU_BLOCK);
    __builtin_prefetch(msg->account, 1);
}

/* ---- what happened ---- */

void lnet_peer_ni_notify(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool up)
{
    if (peer->gw_ni)
        lnet_gw_ni_pair(peer->gw_ni, ni, up, up ? "connected" : "connection_lost");
    /* Messages that wait for credits to a peer NI that is down are of no use later, §4.5. */
    if (!up)
        lnet_tx_fail_peer(
            peer, ni, (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED});
}

void lnet_peer_ni_lost(struct lnet_ni *ni, struct lnet_peer_ni *peer)
{
    if (peer->gw_ni)
        lnet_gw_ni_pair(peer->gw_ni, ni, false, "connection_lost");
    lnet_tx_fail_peer(peer, ni,
                      (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED});
}

void lnet_peer_ni_connected(struct lnet_peer_ni *peer, bool is)
{
    uint16_t *sets = lnet_connected_at(peer->shard->node, nid_hash(&peer->nid));

    (void)__atomic_fetch_add(sets, is ? 1 : UINT16_MAX, __ATOMIC_RELAXED);
}

struct link_mail {
    struct lnet_ni *ni;
    bool up;
    struct reactor_task task;
};

static void link_home(struct reactor_task *task)
{
    struct link_mail *m = container_of(task, struct link_mail, task);

    lnet_link_changed(m->ni, m->up);
    lnet_gateways_link(m->ni, m->up);
    /* From the next iteration on nothing of this message points to the NI. */
    __atomic_store_n(&m->ni->links_heard, m->ni->links_heard + 1, __ATOMIC_RELEASE);
    free(m);
}

/* Link changes are rare and do not come from the data path: the message is from the heap. */
void lnet_ni_link(struct lnet_ni *ni, bool up)
{
    struct link_mail *m;

    if (ni->link_up == up)
        return;
    m = malloc(sizeof(*m));
    if (!m)
        return;
    ni->link_up = up;
    count_add(&ni->links_told, 1);
    m->ni = ni;
    m->up = up;
    m->task.fn = link_home;
    reactor_post(lnet_node_home(ni->node), &m->task);
}

struct lnet_nid lnet_nid_prefix(const struct lnet_node *node, const struct lnet_nid *nid)
{
    const struct lnet_node_opts *o = &node->opts;

    return nid_prefix(nid, nid_is_nid4(nid) ? (o->prefix4 ? o->prefix4 : LNET_PREFIX4)
                                            : (o->prefix6 ? o->prefix6 : LNET_PREFIX6));
}

bool lnet_is_of_other_net(const struct lnet_node *node, const char *ifname, lnet_net_t net)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    bool other = false;

    for (unsigned i = 0; i < conf->nnis; i++) {
        if (strcmp(conf->ni[i]->ifname, ifname) != 0)
            continue;
        if (conf->ni[i]->net == net)
            return false;
        other = true;
    }
    return other;
}
