/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PUSHes sent and received. docs/protocol/lnet-core.md §3.5 to §3.7. All on the node's home
 * reactor.
 *
 * This node does not discover others. It pushes to peers that have pushed their info to it, as
 * routed nodes do at each router check.
 */
#include "lib/lnet/path/path.h"
#include "lib/lnet/ping/ping_internal.h"

#include <string.h>

#define SWEEP_BURST     256         /* peers looked at, */
#define PUSH_BURST      4           /* and PUSHes sent in one iteration of the reactor */
#define PUSH_TIMEOUT_US 30000000ull /* for the ACK */
#define QUIET_FIRST_US  60000000ull /* no PUSH to a peer after two that it did not acknowledge; */
#define QUIET_DOUBLINGS 6           /* twice as long each time, up to half an hour */

/* ---- peers to be pushed to ---- */

static void push_some(struct lnet_ping *p);

static void queue_push(struct lnet_ping *p, struct peer *peer)
{
    const uint32_t need = LNET_PING_MULTI_RAIL | LNET_PING_DISCOVERY;
    struct peer_push *push = &peer->push;

    if (push->queued || (peer->features & need) != need || reactor_now_us() < push->quiet_until_us)
        return;
    if (peer->state & PEER_PUSH_SENT) { /* one at a time */
        push->again = true;
        return;
    }
    push->queued = true;
    push->to_answered = peer->answered;
    TAILQ_INSERT_TAIL(&p->to_push[push->to_answered], peer, push.link);
}

static void unqueue(struct lnet_ping *p, struct peer *peer)
{
    if (peer->push.queued)
        TAILQ_REMOVE(&p->to_push[peer->push.to_answered], peer, push.link);
    peer->push.queued = false;
}

/* A PUSH that is on its way to a freed peer keeps its slot, without a peer. */
static void peer_gone(struct lnet_ping *p, struct peer *peer)
{
    unqueue(p, peer);
    for (unsigned i = 0; i < PUSH_OUT; i++)
        if (p->out[i].to == peer)
            p->out[i].to = NULL;
}

static void peer_changed(void *node, const struct peer_event *event)
{
    if (event->kind == PEER_GONE)
        peer_gone(((struct lnet_node *)node)->ping, event->peer);
}

static void sweep_soon(struct lnet_ping *p)
{
    if (p->sweep_posted)
        return;
    p->sweep_posted = true;
    reactor_post(lnet_node_home(p->node), &p->sweep);
}

static void sweep(struct reactor_task *task)
{
    struct lnet_ping *p = container_of(task, struct lnet_ping, sweep);
    const struct peer_table *peers = p->node->peers;

    p->sweep_posted = false;
    for (unsigned i = 0; i < SWEEP_BURST && p->sweep_next < peers->highest; i++, p->sweep_next++) {
        struct peer *peer = &peers->peers[p->sweep_next];

        if (peer->nnis > 0 && (p->sweep_force || peer->discovery.acked_seqno < p->seqno))
            queue_push(p, peer);
    }
    push_some(p);
    if (p->sweep_next < peers->highest)
        sweep_soon(p);
    else
        p->sweep_force = false;
}

void lnet_ping_push_all(struct lnet_node *node, bool force)
{
    struct lnet_ping *p = node->ping;

    p->sweep_force |= force;
    p->sweep_next = 0;
    sweep_soon(p);
}

/* ---- sending PUSHes ---- */

static void peer_pushed_to(struct lnet_ping *p, struct peer *peer, const struct push_out *o)
{
    struct peer_push *push = &peer->push;

    peer->state &= ~(uint32_t)PEER_PUSH_SENT;
    peer_table_answers(p->node->peers, peer, o->op.status == 0);
    if (o->op.status == 0) {
        peer->discovery.acked_seqno = o->target->seqno;
        push->failures = 0;
    } else { /* sends nothing more to the peer until it pushes again, and not soon */
        peer->discovery.acked_seqno = 0;
        peer->features = 0;
        if (push->failures > 0)
            push->quiet_until_us = reactor_now_us() + (QUIET_FIRST_US << (push->failures - 1));
        push->failures += push->failures < QUIET_DOUBLINGS;
    }
    if (push->again)
        queue_push(p, peer);
    push->again = false;
}

static void push_done(struct lnet_ping_op *op)
{
    struct push_out *o = container_of(op, struct push_out, op);
    struct lnet_ping *p = o->ping;

    p->out_new -= o->is_new;
    if (o->to)
        peer_pushed_to(p, o->to, o);
    o->to = NULL;
    o->next = p->out_free;
    p->out_free = o;
    lnet_ping_target_put(p, o->target);
    push_some(p);
}

static const struct lnet_ping_kind push_kind = {
    .push = true, .count_timeout = true, .done = push_done};

/* Returns the NID of ours that the peer talks to, or another on that net if we do not have it. */
static const struct lnet_nid *our_nid(const struct lnet_node *node, const struct peer *peer)
{
    const struct lnet_conf_net *net;

    if (lnet_ni_find(node, &peer->push.local))
        return &peer->push.local;
    net = lnet_net_find(node, nid_net(&peer->push.local));
    return net ? &net->ni[0]->nid : &LNET_NID_ANY;
}

static void push_to(struct lnet_ping *p, struct push_out *o, struct peer *peer)
{
    o->to = peer;
    o->target = p->current;
    o->target->refs++;
    o->is_new = !peer->answered;
    p->out_new += o->is_new;
    peer->state |= PEER_PUSH_SENT;
    o->op.target = peer->primary;
    lnet_ping_op_start(&o->op, our_nid(p->node, peer), o->target->data, o->target->seg.len,
                       PUSH_TIMEOUT_US);
}

/* Who never answers leaves place for those who do. */
static struct peer *next_to_push(const struct lnet_ping *p)
{
    struct peer *peer = TAILQ_FIRST(&p->to_push[1]);

    return peer || p->out_new >= PUSH_OUT_NEW ? peer : TAILQ_FIRST(&p->to_push[0]);
}

/* in_push_some bounds the depth: a PUSH that fails at once calls push_done(), which calls this. */
static void push_some(struct lnet_ping *p)
{
    struct peer *peer;
    unsigned n = 0;

    if (p->in_push_some)
        return;
    p->in_push_some = true;
    while (n++ < PUSH_BURST && (peer = next_to_push(p)) && p->out_free && p->current &&
           !relaxed_load(&p->node->stopping)) {
        struct push_out *o = p->out_free;

        unqueue(p, peer);
        p->out_free = o->next;
        push_to(p, o, peer);
    }
    p->in_push_some = false;
    if (n > PUSH_BURST && next_to_push(p) && p->out_free)
        sweep_soon(p);
}

/* ---- receiving PUSHes ---- */

static void push_received(struct lnet_ping *p, const struct push_in *in,
                          const struct lnet_event *ev)
{
    struct lnet_node *node = p->node;
    struct peer *peer;
    struct lnet_gw *gw;
    enum lnet_drop why;

    why = lnet_ping_decode(in->data, ev->mlength, &p->scratch);
    if (why) {
        lnet_drop_event(node, why, lnet_ni_find(node, &ev->target), &ev->sender, NULL);
        return;
    }
    if (!(p->scratch.features & LNET_PING_MULTI_RAIL))
        return;
    /* Who is neither the node itself nor the gateway of its net may have made this up. */
    if (!nid_same(&ev->sender, &ev->initiator) &&
        !lnet_source_gateway(node, &ev->sender, nid_net(&ev->initiator))) {
        lnet_drop_event(node, LNET_DROP_PUSH_SOURCE, lnet_ni_find(node, &ev->target), &ev->sender,
                        NULL);
        return;
    }
    peer = peer_table_get(node->peers, &ev->initiator);
    if (!peer)
        return;
    /* A gateway speaks for itself only: another node could have forged what it forwarded. */
    gw = nid_same(&ev->sender, &ev->initiator) ? lnet_gw_find(node, &ev->initiator) : NULL;
    if (gw)
        p->on_push(gw, &p->scratch);
    peer->features = p->scratch.features;
    peer->seqno = p->scratch.seqno;
    peer->push.local = ev->target;
    if (peer->discovery.acked_seqno < p->seqno && !(peer->state & PEER_PUSH_SENT))
        queue_push(p, peer);
    push_some(p);
}

static void push_in_post(struct lnet_ping *p, struct push_in *in)
{
    in->seg.addr = in->data;
    in->seg.len = sizeof(in->data);
    in->seg.region = MEM_REGION_NONE;
    in->md = (struct lnet_md){
        .options = LNET_MD_OP_PUT | LNET_MD_TRUNCATE, .threshold = 1, .eq = &p->in_eq, .user = in};
    (void)lnet_ping_attach(p->node, &in->me, &in->md,
                           &in->seg); /* portal and lengths are constants */
}

static void push_in_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct lnet_ping *p = md->eq->arg;
    struct push_in *in = md->user;

    if (ev->type == LNET_EVENT_PUT && ev->status == 0)
        push_received(p, in, ev);
    if (ev->unlinked && !p->stopped) {
        push_in_post(p, in);
        lnet_lazy_retry(p->node);
    }
}

/* ---- life ---- */

void lnet_ping_on_push(struct lnet_node *node,
                       void (*fn)(struct lnet_gw *gw, const struct lnet_ping_info *info))
{
    node->ping->on_push = fn;
}

int lnet_ping_push_init(struct lnet_ping *p)
{
    p->sweep.fn = sweep;
    p->in_eq = (struct lnet_eq){push_in_event, p};
    TAILQ_INIT(&p->to_push[0]);
    TAILQ_INIT(&p->to_push[1]);
    for (unsigned i = 0; i < PUSH_OUT; i++) {
        p->out[i].ping = p;
        p->out[i].op.node = p->node;
        p->out[i].op.kind = &push_kind;
        p->out[i].next = p->out_free;
        p->out_free = &p->out[i];
    }
    return lnet_peers_init(p->node, peer_changed);
}

void lnet_ping_push_start(struct lnet_ping *p)
{
    for (unsigned i = 0; i < PUSH_IN; i++)
        push_in_post(p, &p->in[i]);
}
