/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ping info of this node: the ping target (portal 0 GET) and operator pings.
 * docs/protocol/lnet-core.md §3.1 to §3.7. All on the node's home reactor.
 *
 * A published info never changes, since a REPLY may be reading it: each change of state takes
 * another of a few buffers.
 */
#include "lib/lnet/health/health.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/ping/ping_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the published info ---- */

static void collect_info(const struct lnet_node *node, bool draining, struct lnet_ping_info *info)
{
    const struct lnet_conf *conf = lnet_conf_get(node);

    memset(info, 0, offsetof(struct lnet_ping_info, ni));
    info->features = LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL;
    if (lnet_discovery_is_on(node))
        info->features |= LNET_PING_DISCOVERY;
    /* A starting router says so only once every node had the time to ping it, §3.9. */
    if (relaxed_load(&node->routing) != LNET_ROUTING_ON || draining)
        info->features |= LNET_PING_RTE_DISABLED;
    info->pid = LNET_PID_LUSTRE;
    info->seqno = node->ping->seqno;
    for (unsigned i = 0; i < conf->nnis; i++) {
        info->ni[info->count].nid = conf->ni[i]->nid;
        info->ni[info->count++].status = draining ? LNET_NI_DOWN : conf->ni[i]->status;
    }
}

void lnet_ping_target_put(struct lnet_ping *p, struct ping_target *t)
{
    /* A change that found no free buffer is published and pushed now. */
    if (--t->refs == 0 && p->dirty && lnet_ping_republish(p->node))
        lnet_ping_push_all(p->node, true);
}

static void target_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct ping_target *t = md->user;
    struct lnet_ping *p = md->eq->arg;

    if (ev->type == LNET_EVENT_GET && ev->status == 0 && t->drain)
        lnet_peer_told(peer_table_find(p->node->peers, &ev->initiator), t->drain);
    if (ev->unlinked)
        lnet_ping_target_put(p, t);
}

static struct ping_target *target_free(struct lnet_ping *p)
{
    for (unsigned i = 0; i < PING_TARGETS; i++)
        if (p->target[i].refs == 0)
            return &p->target[i];
    return NULL;
}

int lnet_ping_attach(struct lnet_node *node, struct lnet_me *me, struct lnet_md *md,
                     struct mem_seg *seg)
{
    *me = (struct lnet_me){.match_nid = LNET_NID_ANY,
                           .match_pid = UINT32_MAX,
                           .match_bits = LNET_PING_MATCH_BITS,
                           .portal = LNET_RESERVED_PORTAL};
    md->segs = seg;
    md->nsegs = 1;
    md->length = seg->len;
    return lnet_me_attach(node, me, md);
}

bool lnet_ping_republish(struct lnet_node *node)
{
    struct lnet_ping *p = node->ping;
    struct ping_target *t = target_free(p), *old = p->current;

    p->dirty = !t;
    if (!t)
        return false;
    t->drain = relaxed_load(&node->drain);
    collect_info(node, t->drain, &p->scratch);
    t->seg.len = (uint32_t)lnet_ping_encode(&p->scratch, t->data, sizeof(t->data));
    t->seg.addr = t->data;
    t->seg.region = MEM_REGION_NONE;
    t->seqno = p->seqno;
    t->refs = 1;
    t->md = (struct lnet_md){.options = LNET_MD_OP_GET | LNET_MD_TRUNCATE | LNET_MD_MANAGE_REMOTE,
                             .threshold = LNET_THRESH_INF,
                             .eq = &p->target_eq,
                             .user = t};
    p->current = t;
    if (lnet_ping_attach(node, &t->me, &t->md, &t->seg)) {
        t->refs = 0;
        p->current = old;
        return false;
    }
    if (old)
        lnet_md_unlink(&old->md);
    return true;
}

void lnet_ping_changed(struct lnet_node *node)
{
    node->ping->seqno++;
    if (lnet_ping_republish(node))
        lnet_ping_push_all(node, false);
}

/* ---- pings on request ---- */

struct ping_request {
    struct lnet_ping_op op;
    struct lnet_nid src;
    uint64_t timeout_us;
    lnet_ping_fn fn;
    void *arg;
    int result;
    bool give_up;   /* lnet_ping_connected() */
    bool delivered; /* at the deadline, while the LND still had the GET */
    struct reactor_task task, deadline;
    struct lnet_ping_info info;
    uint8_t data[PING_CLI_SINK];
};

static void request_deliver(struct reactor_task *task)
{
    struct ping_request *q = container_of(task, struct ping_request, task);

    if (!q->delivered)
        q->fn(q->arg, q->result, q->result == 0 ? &q->info : NULL);
    free(q);
}

static void request_deliver_late(struct reactor_task *task)
{
    struct ping_request *q = container_of(task, struct ping_request, deadline);

    q->fn(q->arg, q->result, q->result == 0 ? &q->info : NULL);
}

static void request_answered(struct lnet_ping_op *op, const struct lnet_ping_info *info)
{
    struct ping_request *q = container_of(op, struct ping_request, op);

    if (!q->delivered)
        q->info = *info;
}

/* A GET that waits for a connection can take much longer than the operator wants to wait. */
static void request_late(struct lnet_ping_op *op)
{
    struct ping_request *q = container_of(op, struct ping_request, op);

    if (op->md.refs == 0)
        return; /* completes at once */
    q->result = op->status;
    q->delivered = true;
    q->deadline.fn = request_deliver_late;
    reactor_post(reactor_control(op->node->env), &q->deadline);
}

static void request_done(struct lnet_ping_op *op)
{
    struct ping_request *q = container_of(op, struct ping_request, op);

    if (!q->delivered)
        q->result = op->status;
    q->task.fn = request_deliver;
    reactor_post(reactor_control(op->node->env), &q->task);
}

static const struct lnet_ping_kind request_kind = {
    .answered = request_answered, .late = request_late, .done = request_done};

static void request_begin(struct reactor_task *task)
{
    struct ping_request *q = container_of(task, struct ping_request, task);
    const struct ping_target *own = q->op.node->ping->current;

    if (lnet_is_own_nid(q->op.node, &q->op.target) && own) {
        q->op.status = lnet_ping_decode(own->data, own->seg.len, &q->info) ? -EPROTO : 0;
        request_done(&q->op);
    } else {
        lnet_ping_op_start(&q->op, &q->src, q->data, sizeof(q->data), q->timeout_us);
    }
}

/* Returns true where the ping itself shows what is wrong, too. */
static bool is_connected(struct lnet_node *node, const struct lnet_nid *nid, bool give_up,
                         struct lnet_nid *from)
{
    const struct lnet_route *route;
    struct lnet_path path;
    struct lnet_peer_ni *peer;
    bool is;

    if (lnet_choose(lnet_shard_self(node), nid, &LNET_NID_ANY, NULL, &path, &route) !=
            LNET_DROP_NONE ||
        !lnet_ni_is_active(path.ni) || !path.ni->lnd->peer_connect)
        return true;
    peer = lnet_peer_ni_get(node, nid);
    if (!peer)
        return true;
    *from = path.ni->nid; /* the ping goes to this peer NI, not to another of the peer */
    is = path.ni->lnd->peer_connect(path.ni, peer, give_up);
    lnet_peer_ni_put(peer);
    return is;
}

/* On the home reactor of the peer NI. */
static void request_connect(struct reactor_task *task)
{
    struct ping_request *q = container_of(task, struct ping_request, task);
    struct lnet_node *node = q->op.node;

    if (is_connected(node, &q->op.target, q->give_up, &q->src)) {
        q->task.fn = request_begin;
        reactor_post(lnet_node_home(node), &q->task);
        return;
    }
    q->result = -ENOTCONN;
    q->task.fn = request_deliver;
    reactor_post(reactor_control(node->env), &q->task);
}

/* Reactors stopped: the operation cannot complete. */
static void request_abandon(struct ping_request *q)
{
    if (!q->delivered)
        q->fn(q->arg, -ESHUTDOWN, NULL);
    free(q);
}

static struct ping_request *request_new(struct lnet_node *node, const struct lnet_nid *dest,
                                        unsigned timeout_ms, lnet_ping_fn fn, void *arg)
{
    struct ping_request *q = calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    q->op.node = node;
    q->op.kind = &request_kind;
    q->op.target = *dest;
    q->src = LNET_NID_ANY;
    q->timeout_us = (uint64_t)timeout_ms * 1000;
    q->fn = fn;
    q->arg = arg;
    return q;
}

int lnet_ping(struct lnet_node *node, const struct lnet_nid *dest, const struct lnet_nid *src,
              unsigned timeout_ms, lnet_ping_fn fn, void *arg)
{
    struct ping_request *q = request_new(node, dest, timeout_ms, fn, arg);

    if (!q)
        return -ENOMEM;
    if (src)
        q->src = *src;
    q->task.fn = request_begin;
    reactor_post(lnet_node_home(node), &q->task);
    return 0;
}

int lnet_ping_connected(struct lnet_node *node, const struct lnet_nid *dest, unsigned timeout_ms,
                        bool give_up, lnet_ping_fn fn, void *arg)
{
    struct ping_request *q = request_new(node, dest, timeout_ms, fn, arg);

    if (!q)
        return -ENOMEM;
    q->give_up = give_up;
    q->task.fn = request_connect;
    reactor_post(lnet_nid_home(node, dest), &q->task);
    return 0;
}

/* ---- life ---- */

int lnet_ping_init(struct lnet_node *node)
{
    struct lnet_ping *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    node->ping = p;
    p->node = node;
    p->target_eq = (struct lnet_eq){target_event, p};
    lnet_ping_push_init(p);
    lnet_health_on_ni(node, lnet_ni_health_changed);
    if (lnet_recovery_start(p))
        return -ENOMEM;
    return lnet_discovery_init(p);
}

void lnet_ping_fini(struct lnet_node *node)
{
    struct lnet_ping *p = node->ping;
    struct lnet_ping_op *op;

    if (!p)
        return;
    lnet_discover_abandon(p);
    while ((op = LIST_FIRST(&p->ops))) {
        LIST_REMOVE(op, link);
        if (op->kind == &request_kind)
            request_abandon(container_of(op, struct ping_request, op));
    }
    lnet_discovery_fini(p);
    lnet_recovery_fini(p);
    free(p);
    node->ping = NULL;
}

void lnet_ping_start(struct lnet_node *node)
{
    struct lnet_ping *p = node->ping;

    /* As a node that was configured net by net: 1 + nets, §3.2. */
    p->seqno = 1 + lnet_conf_get(node)->nnets;
    lnet_ping_republish(node);
    lnet_ping_push_start(p);
    lnet_lazy_retry(node); /* another reactor's mail may have been quicker than the start's */
}

void lnet_ping_stop(struct lnet_node *node)
{
    struct lnet_ping *p = node->ping;
    struct lnet_ping_op *next;

    p->stopped = true;
    for (struct lnet_ping_op *op = LIST_FIRST(&p->ops); op; op = next) {
        next = LIST_NEXT(op, link);
        lnet_ping_op_cancel(op);
    }
    lnet_discover_stop(p);
    lnet_lazy_flush(node);
}
