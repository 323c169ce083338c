/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of a message through the node: parse, receive, select, cross to the next hop's home,
 * send, come back, give its memory back. docs/protocol/lnet-core.md §4; docs/architecture.md "A
 * forwarded message".
 */
#include "lib/lnet/lnet_internal.h"
#include "lib/reactor/mark.h"

#include <string.h>

/* ---- receiving ---- */

/* §4.2 rows 5..7 and 8: what may be asked of a router. */
static enum lnet_drop check_foreign(const struct lnet_rx *rx)
{
    const struct lnet_node *node = rx->ni->node;

    if (nid_net(&rx->hdr.dest_nid) == rx->ni->net)
        return LNET_DROP_DEST_SAME_NET;
    if (lnet_nid_is_mine(node, &rx->hdr.dest_nid))
        return LNET_DROP_DEST_OTHER_OWN_NID;
    if (rx->rdma_get)
        return LNET_DROP_RDMA_GET_NOT_LOCAL;
    return LNET_DROP_NONE;
}

/* A message that came through a gateway shows that it forwards (§4.2 row 14). */
static void heard_through(struct lnet_gw *gw)
{
    bool was_alive = lnet_gw_alive(gw);

    relaxed_store(&gw->heard_us, reactor_now_us());
    if (!was_alive)
        lnet_gw_changed(gw, "message_received");
}

/* The source NID is what servers trust: it must be the sender's own, or of a net that lies behind
 * the sender. Routes may be asymmetric (§12.1), so by default it is enough that somebody on the
 * ingress net is the way to the source's net. */
static enum lnet_drop check_source(const struct lnet_rx *rx)
{
    struct lnet_node *node = rx->ni->node;
    const struct lnet_nid *src = &rx->hdr.src_nid;
    enum lnet_source_check rule = relaxed_load(&node->timing.source_check);
    struct lnet_gw *gw;

    if (nid_same(src, &rx->from->nid))
        return LNET_DROP_NONE;
    if (lnet_nid_is_mine(node, src))
        return LNET_DROP_SRC_IS_OWN;
    gw = lnet_source_gateway(node, &rx->from->nid, nid_net(src));
    if (gw) {
        if (relaxed_load(&gw->ping_down) && nid_net(src) != nid_net(&rx->from->nid))
            heard_through(gw);
        return LNET_DROP_NONE;
    }
    if (rule == LNET_SOURCE_OFF ||
        (rule == LNET_SOURCE_NET && lnet_net_routed_over(node, nid_net(src), rx->ni->net)))
        return LNET_DROP_NONE;
    return LNET_DROP_SRC_NOT_ALLOWED;
}

static void local_rx_task(struct reactor_task *task)
{
    lnet_local_rx(container_of(task, struct lnet_rx, task));
}

/* Where the account of the next hop and its peer NI are found. */
static void fetch_way(const struct lnet_shard *s, uint32_t hash)
{
    __builtin_prefetch(&s->dest_hash[hash & s->dest_mask]);
    __builtin_prefetch(&s->hash[hash & s->hash_mask]);
}

static enum lnet_drop parse(struct lnet_rx *rx)
{
    struct lnet_node *node = rx->ni->node;
    bool for_me = nid_same(&rx->hdr.dest_nid, &rx->ni->nid);
    enum lnet_drop why;

    rx->shard = rx->from->shard;
    rx->hash = nid_hash(&rx->hdr.dest_nid);
    if (!for_me)
        fetch_way(rx->shard, rx->hash);
    rx->msg = NULL;
    rx->drop = LNET_DROP_NONE;
    rx->wait = LNET_RX_BUSY;
    rx->taken.n = 0;
    rx->release = NULL;

    why = lnet_hdr_validate(&rx->hdr);
    if (why)
        return why;
    if (lnet_is_router(node) && rx->hdr.type == LNET_MSG_GET && !for_me) {
        struct lnet_get get;

        lnet_body_get_get(&rx->hdr, &get);
        if (get.portal == LNET_RESERVED_PORTAL && !lnet_nid_is_mine(node, &rx->hdr.src_nid))
            lnet_ping_passing(rx->shard, rx->ni);
    }
    if (!for_me) {
        why = check_foreign(rx);
        if (why)
            return why;
    }
    rx->from->last_alive_us = reactor_now_us();
    if (rx->from->gw && rx->from->gw->lnd_down) {
        relaxed_store(&rx->from->gw->lnd_down, false);
        lnet_gw_changed(rx->from->gw, "message_received");
    }
    why = !for_me && !lnet_is_router(node) ? LNET_DROP_ROUTING_OFF : check_source(rx);
    if (why) {
        lnet_discard(rx, why);
    } else if (!for_me) {
        lnet_admit(rx);
    } else if (lnet_is_home(node)) {
        lnet_local_rx(rx);
    } else {
        rx->task.fn = local_rx_task;
        reactor_post(lnet_node_home(node), &rx->task);
    }
    return LNET_DROP_NONE;
}

enum lnet_drop lnet_parse(struct lnet_rx *rx)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_LNET);
    enum lnet_drop why = parse(rx);

    reactor_mark(was);
    return why;
}

static void count_received(struct lnet_rx *rx)
{
    count_add(&rx->shard->ni_stats[rx->ni->index].received[rx->hdr.type], 1);
    rx->from->recv_count[rx->hdr.type]++;
}

/* An RDMA-optimised GET, by the LND: as a REPLY of our own counts (counted_type()). */
static void count_answered(struct lnet_rx *rx)
{
    count_add(&rx->shard->ni_stats[rx->ni->index].sent[LNET_MSG_GET], 1);
    rx->from->send_count[LNET_MSG_GET]++;
}

void lnet_forward_free(struct lnet_msg *msg)
{
    lnet_release_buffer(msg);
    lnet_peer_put(msg->rx_peer);
    lnet_msg_free(msg);
}

static void forward_received(struct lnet_rx *rx, struct lnet_result result)
{
    struct lnet_msg *msg = rx->msg;

    lnet_admit_received(rx);
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
    count_received(rx);
    lnet_forward(msg);
}

static void local_done_task(struct reactor_task *task)
{
    lnet_local_rx_done(container_of(task, struct lnet_msg, task));
}

static void local_received(struct lnet_rx *rx, struct lnet_result result)
{
    struct lnet_msg *msg = rx->msg;
    struct lnet_node *node = rx->ni->node;

    rx->msg = NULL;
    if (result.reason)
        lnet_drop_message(rx->shard, result.reason, rx->ni, rx->from, NULL, &msg->hdr);
    else
        count_received(rx);
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

/* An LND that stops an NI cannot know whether the node stops too. */
static struct lnet_result of_ni(const struct lnet_ni *ni, struct lnet_result result)
{
    if (result.reason == LNET_DROP_SHUTDOWN && relaxed_load(&ni->removed))
        result.reason = LNET_DROP_NI_REMOVED;
    return result;
}

static void received(struct lnet_rx *rx, struct lnet_result result)
{
    result = of_ni(rx->ni, result);
    rx->wait = LNET_RX_NOT_WAITING;
    if (!rx->msg) {
        if (rx->drop == LNET_DROP_NONE && !result.reason)
            count_received(rx);
        return;
    }
    lnet_count_health(rx->shard, result);
    if (rx->msg->kind == LNET_KIND_FORWARD)
        forward_received(rx, result);
    else
        local_received(rx, result);
}

void lnet_recv_done(struct lnet_rx *rx, struct lnet_result result)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_LNET);
    const struct lnet_peer_ni *to = rx->shard->hash[rx->hash & rx->shard->hash_mask];

    if (rx->msg && to && to->lnd_peer)
        __builtin_prefetch(to->lnd_peer, 1);
    received(rx, result);
    reactor_mark(was);
}

/* ---- sending ---- */

static void finish(struct lnet_msg *msg);

static void finish_task(struct reactor_task *task)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_LNET);

    finish(container_of(task, struct lnet_msg, task));
    reactor_mark(was);
}

/* Its memory is nobody else's any more. */
static void end(struct lnet_msg *msg)
{
    if (msg->kind == LNET_KIND_LOCAL)
        lnet_local_tx_done(msg);
    else
        lnet_forward_free(msg);
}

/* ---- what frames still refer to ----
 *
 * A transport that sends by reference is through with a message when the next hop has acknowledged
 * it, or when the connection is no more. Frames of it may be under way even so: sent twice, or in a
 * queue. They are looked after until the last has gone; until then the buffer counts as in use. */

#define HELD_LOOK_US 1000

static bool is_held(const struct lnet_msg *msg)
{
    uint32_t i;

    if (!msg->tx_ni || !msg->tx_ni->tx_refers || msg->release)
        return false;
    for (i = 0; i < msg->payload.n; i++) {
        const struct mem_seg *seg = &msg->payload.seg[i];

        if (seg->region != MEM_REGION_NONE && mem_held(seg->region, seg->addr, seg->len))
            return true;
    }
    return false;
}

static void held_look(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_shard, held_timer);
    enum reactor_work was = reactor_mark(REACTOR_WORK_LNET);
    struct lnet_msg **link = &s->held, *msg, *list = NULL;

    while ((msg = *link)) {
        if (is_held(msg)) {
            link = &msg->lnd_next;
            continue;
        }
        *link = msg->lnd_next;
        msg->lnd_next = list;
        list = msg;
    }
    while ((msg = list)) { /* may bring more that is held */
        list = msg->lnd_next;
        end(msg);
    }
    if (s->held && !reactor_timer_armed(t))
        reactor_timer_arm(t, HELD_LOOK_US);
    reactor_mark(was);
}

static void hold(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;

    msg->state = LNET_MSG_HELD;
    msg->lnd_next = s->held;
    s->held = msg;
    if (!reactor_timer_armed(&s->held_timer))
        reactor_timer_arm(&s->held_timer, HELD_LOOK_US);
}

void lnet_send_init(struct lnet_shard *s)
{
    reactor_timer_init(&s->held_timer, held_look);
}

/* The message is through, well or badly, and back on the shard that allocated it. */
static void finish(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;
    bool local = msg->kind == LNET_KIND_LOCAL;

    if (!msg->result.reason) {
        count_add(&s->stats[local ? LNET_STAT_SEND_COUNT : LNET_STAT_ROUTE_COUNT], 1);
        count_add(&s->stats[local ? LNET_STAT_SEND_LENGTH : LNET_STAT_ROUTE_LENGTH],
                  msg->hdr.payload_len);
    }
    if (is_held(msg))
        hold(msg);
    else
        end(msg);
}

/* Back from the next hop's home, where the failure was counted. */
static void go_home(struct lnet_msg *msg)
{
    if (msg->home->reactor == reactor_self()) {
        finish(msg);
        return;
    }
    msg->state = LNET_MSG_CROSSING;
    msg->task.fn = finish_task;
    reactor_post(msg->home->reactor, &msg->task);
}

static void note_gateway_queue(struct lnet_peer_ni *peer)
{
    struct lnet_gw *gw = peer->gw;

    if (gw)
        relaxed_store(&gw->queued_bytes, peer->tx_queued_bytes);
}

/* On the home of msg->next_hop. */
static void send_here(struct lnet_msg *msg)
{
    struct lnet_node *node = msg->home->node;
    struct lnet_shard *s = lnet_shard_self(node);
    struct lnet_peer_ni *peer = lnet_peer_get(node, &msg->next_hop);

    if (!peer) {
        msg->result = (struct lnet_result){LNET_DROP_NO_PEER_MEMORY, LNET_HEALTH_LOCAL_ERROR};
        lnet_drop_message(s, LNET_DROP_NO_PEER_MEMORY, msg->tx_ni, NULL, &msg->next_hop, &msg->hdr);
        go_home(msg);
        return;
    }
    msg->tx_peer = peer;
    peer->tx_queued++;
    peer->tx_queued_bytes += msg->hdr.payload_len + LNET_HDR4_SIZE;
    note_gateway_queue(peer);
    if (relaxed_load(&msg->tx_ni->removed))
        lnet_send_failed(msg, (struct lnet_result){LNET_DROP_NI_REMOVED, LNET_HEALTH_LOCAL_ERROR});
    else
        lnet_credit_send(msg);
}

static void send_task(struct reactor_task *task)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_LNET);

    send_here(container_of(task, struct lnet_msg, task));
    reactor_mark(was);
}

void lnet_transmit(struct lnet_msg *msg)
{
    struct reactor *to = lnet_nid_home(msg->home->node, &msg->next_hop);

    if (to == reactor_self()) {
        send_here(msg);
        return;
    }
    msg->state = LNET_MSG_CROSSING;
    msg->task.fn = send_task;
    reactor_post(to, &msg->task);
}

/* The way was chosen when the header came; meanwhile it may have gone. */
static enum lnet_drop choose_again(struct lnet_msg *msg)
{
    struct lnet_path path = {msg->tx_ni, msg->next_hop, msg->next_gw, msg->generation};
    enum lnet_drop why;

    if (lnet_path_good(msg->home, &path) && !relaxed_load(&path.ni->fatal))
        return LNET_DROP_NONE;
    why = lnet_select(msg->home, &msg->hdr.dest_nid, &LNET_NID_ANY, NULL, &path);
    if (!why)
        lnet_admit_rerouted(msg, &path);
    return why;
}

void lnet_forward(struct lnet_msg *msg)
{
    enum lnet_drop why;

    msg->state = LNET_MSG_ROUTING;
    why = choose_again(msg);
    if (why) {
        msg->result = (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR};
        lnet_drop_message(msg->home, why, msg->rx_ni, msg->rx_peer, NULL, &msg->hdr);
        finish(msg);
        return;
    }
    lnet_transmit(msg);
}

/* It is no longer in the way of others to this peer. */
static void unqueue(struct lnet_msg *msg)
{
    struct lnet_peer_ni *peer = msg->tx_peer;

    peer->tx_queued--;
    peer->tx_queued_bytes -= msg->hdr.payload_len + LNET_HDR4_SIZE;
    note_gateway_queue(peer);
}

static void accepted(struct lnet_msg *msg)
{
    if (msg->accepted)
        return;
    msg->accepted = true;
    unqueue(msg);
    lnet_credit_return(msg);
}

static void accept_task(struct reactor_task *task)
{
    lnet_return_router_credit(container_of(task, struct lnet_msg, accept_task));
}

/* The payload stays until the next hop has acknowledged it, which may take its TCP 40 ms. The
 * sender's router credit does not wait for that: to a kernel router a message is gone when its
 * socket has taken it. What its memory allows is for the budget to say. Mail keeps its order: this
 * is home before the message is. */
void lnet_send_accepted(struct lnet_msg *msg)
{
    enum reactor_work was;

    if (msg->accepted)
        return;
    was = reactor_mark(REACTOR_WORK_LNET);
    accepted(msg);
    if (msg->kind != LNET_KIND_FORWARD) {
        /* holds none */
    } else if (msg->home->reactor == reactor_self()) {
        lnet_return_router_credit(msg);
    } else {
        msg->accept_task.fn = accept_task;
        reactor_post(msg->home->reactor, &msg->accept_task);
    }
    reactor_mark(was);
}

/* The type a sent message counts as: an answer of our own as what it answers, as kernel nodes show
 * it (docs/protocol/lnet-core.md §10.5). */
static uint32_t counted_type(const struct lnet_msg *msg)
{
    bool own = msg->kind == LNET_KIND_LOCAL;

    if (own && msg->hdr.type == LNET_MSG_ACK)
        return LNET_MSG_PUT;
    if (own && msg->hdr.type == LNET_MSG_REPLY)
        return LNET_MSG_GET;
    return msg->hdr.type;
}

static void sent(struct lnet_msg *msg, struct lnet_result result)
{
    struct lnet_peer_ni *peer = msg->tx_peer;
    struct lnet_shard *s = peer->shard;

    msg->result = result = of_ni(msg->tx_ni, result);
    lnet_count_health(s, result);
    if (result.reason) {
        lnet_drop_message(s, result.reason, msg->tx_ni, peer, NULL, &msg->hdr);
    } else {
        count_add(&s->ni_stats[msg->tx_ni->index].sent[counted_type(msg)], 1);
        peer->send_count[counted_type(msg)]++;
    }
    msg->tx_peer = NULL;
    lnet_peer_put(peer);
    go_home(msg);
}

void lnet_msg_fetch(const struct lnet_msg *msg)
{
    if (!msg->rx_peer || msg->home->reactor != reactor_self())
        return;
    prefetch_write(msg->rx_peer, 2 * CPU_BLOCK);
    __builtin_prefetch(msg->dest, 1);
}

void lnet_send_done(struct lnet_msg *msg, struct lnet_result result)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_LNET);

    accepted(msg);
    sent(msg, result);
    reactor_mark(was);
}

void lnet_send_failed(struct lnet_msg *msg, struct lnet_result result)
{
    unqueue(msg);
    sent(msg, result);
}
