/* SPDX-License-Identifier: BSD-3-Clause */
/* One ping operation: a portal-0 GET or PUSH to a peer and its answer. The header says the rest. */
#include "lib/lnet/health/health.h"
#include "lib/lnet/ping/ping_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static void fail(struct lnet_ping_op *op, int rc)
{
    if (op->status == -EINPROGRESS)
        op->status = rc;
}

static void complete(struct lnet_ping_op *op)
{
    reactor_timer_cancel(&op->timer);
    lnet_rst_add(op->node, -1);
    LIST_REMOVE(op, link);
    op->running = false;
    op->kind->done(op);
}

static void take_reply(struct lnet_ping_op *op, uint32_t len)
{
    struct lnet_ping_info *info = &op->node->ping->scratch;
    enum lnet_drop why;

    op->len = len;
    why = lnet_ping_decode(op->seg.addr, len, info);

    op->status = why ? -EPROTO : 0;
    if (why)
        lnet_drop_event(op->node, why, NULL, &op->target, NULL);
    else if (op->kind->answered)
        op->kind->answered(op, info);
}

static void on_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct lnet_ping_op *op = md->user;

    op->target = md->target;
    if (ev->type == LNET_EVENT_ACK)
        op->status = 0;
    else if (ev->type == LNET_EVENT_REPLY && ev->status == 0)
        take_reply(op, ev->mlength);
    else if (ev->type == LNET_EVENT_REPLY)
        fail(op, -EIO);
    else if (ev->type == LNET_EVENT_SEND && ev->status)
        fail(op, -EHOSTUNREACH);
    if (ev->unlinked)
        complete(op);
    else if (op->status != -EINPROGRESS && ev->type != LNET_EVENT_UNLINK)
        lnet_md_unlink(md);
}

/* Returns whether a missing answer speaks against the next hop. A node behind a gateway can push in
 * the name of nodes that do not exist, so only one that has answered before counts. */
static bool is_next_hops_fault(const struct lnet_ping_op *op)
{
    const struct peer_ni *ni = peer_table_find_ni(op->node->peers, &op->target);

    if (nid_is_any(&op->md.next_hop))
        return false;
    return nid_same(&op->md.next_hop, &op->target) || (ni && ni->net->peer->answered);
}

/* §6.2: the next hop is to blame. Pings that operators limit to a short time are not counted. */
static void response_timeout(const struct lnet_ping_op *op)
{
    count_add(&lnet_shard_self(op->node)->stats[LNET_STAT_RESPONSE_TIMEOUT_COUNT], 1);
    if (is_next_hops_fault(op))
        lnet_health_lower(op->node, &op->md.next_hop, LNET_CAUSE_RESPONSE_TIMEOUT);
}

static void on_deadline(struct reactor_timer *t)
{
    struct lnet_ping_op *op = container_of(t, struct lnet_ping_op, timer);

    op->target = op->md.target;
    if (op->status) { /* 0: the answer is there, the LND has not released the request yet */
        op->status = -ETIMEDOUT;
        if (op->kind->count_timeout)
            response_timeout(op);
    }
    if (op->kind->late)
        op->kind->late(op);
    lnet_md_unlink(&op->md);
}

void lnet_ping_op_start(struct lnet_ping_op *op, const struct lnet_nid *src, void *data,
                        uint32_t size, uint64_t timeout_us)
{
    struct lnet_ping *p = op->node->ping;
    int rc;

    assert(!op->running); /* its MD and its link are in use */
    op->seg = (struct mem_seg){.addr = data, .len = size, .region = MEM_REGION_NONE};
    op->eq.fn = on_event;
    op->md = (struct lnet_md){.segs = &op->seg,
                              .nsegs = 1,
                              .length = size,
                              .options = LNET_MD_TRUNCATE | (op->kind->once ? LNET_MD_ONCE : 0),
                              .threshold = 2,
                              .target = op->target,
                              .next_hop = LNET_NID_ANY,
                              .eq = &op->eq,
                              .user = op};
    op->status = -EINPROGRESS;
    op->running = true;
    LIST_INSERT_HEAD(&p->ops, op, link);
    lnet_rst_add(op->node, 1);
    reactor_timer_init(&op->timer, on_deadline);
    reactor_timer_arm(&op->timer, timeout_us);
    rc = p->stopped ? -ESHUTDOWN : lnet_md_bind(op->node, &op->md);
    if (rc) {
        op->status = rc;
        complete(op);
        return;
    }
    if (op->kind->push)
        rc = lnet_put(&op->md, true, src, &op->target, LNET_PID_LUSTRE, LNET_RESERVED_PORTAL,
                      LNET_PING_MATCH_BITS, 0, 0);
    else
        rc = lnet_get(&op->md, src, &op->target, LNET_PID_LUSTRE, LNET_RESERVED_PORTAL,
                      LNET_PING_MATCH_BITS, 0);
    if (rc) {
        op->status = rc;
        lnet_md_unlink(&op->md); /* completes the operation: nothing refers to the MD */
    }
}

void lnet_ping_op_expire(struct lnet_ping_op *op)
{
    if (!op->running)
        return;
    reactor_timer_cancel(&op->timer);
    on_deadline(&op->timer);
}

void lnet_ping_op_cancel(struct lnet_ping_op *op)
{
    if (!op->running)
        return;
    fail(op, -ESHUTDOWN);
    lnet_md_unlink(&op->md);
}
