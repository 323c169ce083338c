/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: checks a header that an LND brought, and decides whether it is for this node or to be
 * forwarded. Sends a forwarded message on when its payload is in.
 * docs/protocol/lnet-core.md §4.2; docs/architecture.md "A forwarded message".
 */
#include "lib/lnet/access/access.h"
#include "lib/lnet/api/api.h"
#include "lib/lnet/credit/credit.h"
#include "lib/lnet/fault/fault.h"
#include "lib/lnet/health/health.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/tx.h"
#include "lib/lnet/wire/guard.h"

/* §4.2 rows 5..7 and 8: what may be asked of a router. */
static enum lnet_drop check_foreign(const struct lnet_rx *rx)
{
    const struct lnet_node *node = rx->ni->node;

    if (nid_net(&rx->hdr.dest_nid) == rx->ni->net)
        return LNET_DROP_DEST_SAME_NET;
    if (lnet_is_own_nid(node, &rx->hdr.dest_nid))
        return LNET_DROP_DEST_OTHER_OWN_NID;
    if (rx->rdma_get)
        return LNET_DROP_RDMA_GET_NOT_LOCAL;
    return LNET_DROP_NONE;
}

/* A message that came through a gateway shows that it forwards (§4.2 row 14). */
static void heard_through(struct lnet_gw_ni *ni)
{
    bool failed = relaxed_load(&ni->heard_us) <= relaxed_load(&ni->ping_down_us);

    relaxed_store(&ni->heard_us, reactor_now_us());
    if (failed)
        lnet_gw_ni_changed(ni, "message_received");
}

/* The source NID is what servers trust: it must be the sender's own, or of a net that lies behind
 * the sender. Routes may be asymmetric (§12.1), so by default it is enough that somebody on the
 * ingress net is the way to the source's net. */
static enum lnet_drop check_source(const struct lnet_rx *rx, bool local)
{
    struct lnet_node *node = rx->ni->node;
    const struct lnet_nid *src = &rx->hdr.src_nid;
    enum lnet_source_check rule = relaxed_load(&node->timing.source_check);
    struct lnet_gw *gw;

    if (nid_same(src, &rx->from->nid))
        return LNET_DROP_NONE;
    if (lnet_is_own_nid(node, src))
        return LNET_DROP_SRC_IS_OWN;
    gw = lnet_source_gateway(node, &rx->from->nid, nid_net(src));
    if (gw) {
        if (rx->from->gw_ni && relaxed_load(&rx->from->gw_ni->ping_down_us) &&
            nid_net(src) != nid_net(&rx->from->nid))
            heard_through(rx->from->gw_ni);
        return LNET_DROP_NONE;
    }
    if (local && relaxed_load(&node->timing.rules.drop_asym_route) &&
        nid_net(src) != nid_net(&rx->from->nid)) /* §4.2 row 13 */
        return LNET_DROP_ASYM_ROUTE;
    if (rule == LNET_SOURCE_OFF ||
        (rule == LNET_SOURCE_NET && lnet_net_routed_over(node, nid_net(src), rx->ni->net)))
        return LNET_DROP_NONE;
    return LNET_DROP_SRC_NOT_ALLOWED;
}

/* Prefetches where the account of the next hop and its peer NI are found. */
static void fetch_next_hop(const struct lnet_shard *s, uint32_t hash)
{
    __builtin_prefetch(&s->next_hop_hash[hash & s->next_hop_mask]);
    __builtin_prefetch(&s->peer->hash[hash & s->peer->hash_mask]);
}

/* Returns whether a header is a GET of the ping info that another node than this one sent. */
static bool is_ping(const struct lnet_node *node, const struct lnet_hdr *hdr)
{
    struct lnet_get get;

    if (hdr->type != LNET_MSG_GET)
        return false;
    lnet_body_get_get(hdr, &get);
    return get.portal == LNET_RESERVED_PORTAL && !lnet_is_own_nid(node, &hdr->src_nid);
}

/* Receives a message for this node. Runs on the node's home. A ping raises the status of its NI
 * first, so that its REPLY already says UP. */
static void local_rx(struct lnet_rx *rx)
{
    struct lnet_node *node = rx->ni->node;

    if (lnet_is_router(node) && is_ping(node, &rx->hdr))
        lnet_ping_seen(lnet_shard_self(node), rx->ni);
    lnet_local_rx(rx);
}

static void local_rx_task(struct reactor_task *task)
{
    local_rx(container_of(task, struct lnet_rx, task));
}

static void receive_local(struct lnet_rx *rx)
{
    struct lnet_node *node = rx->ni->node;

    rx->local = NULL;
    if (lnet_is_home(node)) {
        local_rx(rx);
        return;
    }
    rx->task.fn = local_rx_task;
    reactor_post(lnet_node_home(node), &rx->task);
}

/* Lets a message go on to its admission as the access rules want it. */
static void admit_by_rules(const struct lnet_access *access, struct lnet_rx *rx)
{
    enum lnet_drop why = lnet_access_header(access, &rx->hdr);
    uint64_t wait_us = 0;

    if (!why)
        why = lnet_access_take(access, rx, lnet_limit_wait_us(rx->ni->node), &wait_us);
    if (why)
        lnet_discard(rx, why);
    else if (wait_us > 0)
        lnet_admit_after(rx, wait_us);
    else
        lnet_admit(rx);
}

/* Lets a header that was checked go on. */
static void go_on(struct lnet_rx *rx, const struct lnet_access *access, bool for_me)
{
    if (for_me)
        receive_local(rx);
    else if (access)
        admit_by_rules(access, rx);
    else
        lnet_admit(rx);
}

static void delay_ends(struct reactor_task *task)
{
    struct lnet_rx *rx = container_of(task, struct lnet_rx, task);

    go_on(rx, lnet_access(rx->ni->node), nid_same(&rx->hdr.dest_nid, &rx->ni->nid));
}

/* Returns whether a rule of fault injection drops a header that is otherwise received. A ping shows
 * that the net is alive even so (§4.2 row 4). */
static bool fault_drops(const struct lnet_faults *faults, struct lnet_rx *rx, bool for_me)
{
    const bool router = lnet_is_router(rx->ni->node);

    if ((!for_me && !router) || !lnet_fault_drops(faults, rx))
        return false;
    if (for_me && router && is_ping(rx->ni->node, &rx->hdr))
        lnet_ping_seen(rx->shard, rx->ni);
    lnet_discard(rx, LNET_DROP_FAULT);
    return true;
}

enum lnet_drop lnet_parse(struct lnet_rx *rx)
{
    struct lnet_node *node = rx->ni->node;
    const struct lnet_access *access = lnet_access(node);
    const struct lnet_faults *faults = lnet_faults(node);
    bool for_me = nid_same(&rx->hdr.dest_nid, &rx->ni->nid);
    enum lnet_drop why;

    rx->shard = rx->from->shard;
    rx->hash = nid_hash(&rx->hdr.dest_nid);
    if (!for_me)
        fetch_next_hop(rx->shard, rx->hash);
    rx->msg = NULL;
    rx->drop = LNET_DROP_NONE;
    rx->wait = LNET_RX_BUSY;
    rx->taken.n = 0;
    rx->release = NULL;

    why = lnet_hdr_validate(&rx->hdr);
    if (why)
        return why;
    if (access && !lnet_access_sender(access, rx))
        return LNET_DROP_ACCESS_CONNECT;
    if (!for_me) {
        if (lnet_is_router(node) && is_ping(node, &rx->hdr))
            lnet_ping_seen(rx->shard, rx->ni);
        why = check_foreign(rx);
        if (why)
            return why;
    }
    if (faults && fault_drops(faults, rx, for_me))
        return LNET_DROP_NONE;
    rx->from->last_alive_us = reactor_now_us();
    rx->from->message_s = (uint32_t)(reactor_now_us() / 1000000);
    if (rx->from->gw_ni)
        lnet_gw_ni_heard(rx->from->gw_ni, rx->ni);
    why = !for_me && !lnet_is_router(node) ? LNET_DROP_ROUTING_OFF : check_source(rx, for_me);
    if (!why && !for_me)
        why = lnet_guard(&rx->hdr, relaxed_load(&node->guard));
    if (why) {
        lnet_discard(rx, why);
        return LNET_DROP_NONE;
    }
    if (faults) {
        rx->task.fn = delay_ends;
        if (lnet_fault_holds_rx(faults, rx))
            return LNET_DROP_NONE;
    }
    go_on(rx, access, for_me);
    return LNET_DROP_NONE;
}

/* ---- the payload is in ---- */

/* An RDMA-optimised GET, by the LND: as a REPLY of our own counts (counted_type()). */
static void count_answered(struct lnet_rx *rx)
{
    count_add(&rx->shard->ni_stats[rx->ni->index].sent[LNET_MSG_GET], 1);
    rx->from->send_count[LNET_MSG_GET]++;
}

static void local_done_task(struct reactor_task *task)
{
    lnet_local_rx_done(container_of(task, struct lnet_msg, task));
}

void lnet_local_received(struct lnet_rx *rx, struct lnet_result result)
{
    struct lnet_msg *msg = rx->msg;
    struct lnet_node *node = rx->ni->node;

    lnet_push_received(rx);
    rx->msg = NULL;
    if (result.reason)
        lnet_drop_message(rx->shard, result.reason, rx->ni, rx->from, NULL, &msg->hdr);
    else
        lnet_rx_count(rx);
    if (!result.reason && rx->rdma_get)
        count_answered(rx);
    msg->result = result;
    if (lnet_is_home(node)) {
        lnet_local_rx_done(msg);
        return;
    }
    msg->task.fn = local_done_task;
    reactor_post(lnet_node_home(node), &msg->task);
}

enum lnet_drop lnet_choose_again(struct lnet_msg *msg)
{
    struct lnet_path path = {msg->tx_ni, msg->next_hop, msg->next_gw_ni, msg->generation};
    enum lnet_drop why;

    if (lnet_path_good(msg->home, &path) && !relaxed_load(&path.ni->fatal))
        return LNET_DROP_NONE;
    why = lnet_select(msg->home, &msg->hdr.dest_nid, &LNET_NID_ANY, NULL, &path);
    if (!why)
        lnet_admit_rerouted(msg, &path);
    return why;
}

enum lnet_drop lnet_choose_other(struct lnet_msg *msg)
{
    struct lnet_path path = {msg->tx_ni, msg->next_hop, msg->next_gw_ni, msg->generation};
    enum lnet_drop why;

    if (msg->kind == LNET_KIND_LOCAL)
        return lnet_local_choose_other(msg);
    why = lnet_select_other(msg->home, &msg->hdr.dest_nid, msg->result.health, &path);
    if (!why)
        lnet_admit_rerouted(msg, &path);
    return why;
}

/* Sends a message on; ends it if its receive failed or no path is left. */
static void forward(struct lnet_rx *rx, struct lnet_result result)
{
    struct lnet_msg *msg = rx->msg;
    enum lnet_drop why;

    lnet_admit_received(rx, !result.reason);
    rx->msg = NULL;
    if (rx->taken.n > 0) {
        msg->payload = rx->taken;
        msg->release = rx->release;
        msg->release_owner = rx->release_owner;
    }
    if (result.reason) {
        lnet_drop_message(rx->shard, result.reason, rx->ni, rx->from, NULL, &msg->hdr);
        lnet_forward_free(msg);
        return;
    }
    lnet_rx_count(rx);
    msg->state = LNET_MSG_ROUTING;
    why = lnet_choose_again(msg);
    if (why) {
        msg->result = (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR};
        lnet_drop_message(msg->home, why, msg->rx_ni, msg->rx_peer, NULL, &msg->hdr);
        lnet_transmit_failed(msg);
        return;
    }
    lnet_transmit(msg);
}

void lnet_recv_done(struct lnet_rx *rx, struct lnet_result result)
{
    const struct lnet_peer_ni *to = lnet_peer_ni_bucket(rx->shard, rx->hash);

    if (rx->msg && to && to->lnd_peer)
        __builtin_prefetch(to->lnd_peer, 1);
    result = lnet_result_of_ni(rx->ni, result);
    rx->wait = LNET_RX_NOT_WAITING;
    if (!rx->msg) {
        if (rx->drop == LNET_DROP_NONE && !result.reason) {
            lnet_rx_count(rx);
            lnet_health_received(rx);
        }
        return;
    }
    if (result.reason)
        lnet_health_failed(rx->shard, rx->ni, rx->from, &rx->hdr, result, 0);
    else if (result.health == LNET_HEALTH_OK)
        lnet_health_received(rx);
    if (rx->msg->kind == LNET_KIND_FORWARD)
        forward(rx, result);
    else
        lnet_local_received(rx, result);
}
