/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engine `node`, the messages: each that is on the way is one `op`, which owns its MD and memory
 * and comes back when LNet is through with it. Also the receivers' records at the end, one after
 * the other. All on the node's home reactor, but alloc and free.
 */
#include "app/millrace-perf/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_RETRY_US 10000 /* LNet had no memory */

enum op_state {
    OP_FREE,     /* in the free list */
    OP_BUSY,     /* sent, no answer yet */
    OP_ANSWERED, /* the load knows; LNet still has the MD */
    OP_RETIRED,  /* given up; LNet still has the MD */
};

struct op {
    struct node_engine *engine;
    struct op *next;
    struct lnet_md md;
    struct mem_seg seg;
    enum op_state state;
    uint64_t cookie;
    const uint8_t *expect; /* what must come; NULL: the content is not checked */
    uint8_t *buffer;       /* GET: where it comes */
};

static void collect_step(struct node_engine *n);

static void op_release(struct op *op)
{
    struct node_engine *n = op->engine;

    op->state = OP_FREE;
    if (op == n->report_op) {
        collect_step(n);
        return;
    }
    op->next = n->free_ops;
    n->free_ops = op;
    if (n->starved) {
        n->starved = false;
        perf_room(&n->base, PERF_ALL_SOURCES);
    }
}

/* ---- answers ---- */

static enum perf_check op_check(const struct op *op, const struct lnet_event *ev)
{
    if (ev->mlength != op->md.length)
        return PERF_ALTERED;
    if (!op->expect)
        return PERF_UNCHECKED;
    return memcmp(op->buffer, op->expect, ev->mlength) == 0 ? PERF_GOOD : PERF_ALTERED;
}

static void report_answered(struct node_engine *n, const struct lnet_event *ev)
{
    struct run_report one, *sum = &n->collected;

    if (ev->status != 0 || run_report_decode(n->report_memory, ev->mlength, &one) != 0) {
        n->collected_all = false;
        return;
    }
    sum->received += one.received;
    sum->bytes += one.bytes;
    sum->checked += one.checked;
    sum->bad_checksum += one.bad_checksum;
    sum->cut += one.cut;
    sum->repeated += one.repeated;
    sum->stale += one.stale;
    sum->missing += one.missing;
}

static void op_answered(struct op *op, const struct lnet_event *ev)
{
    struct node_engine *n = op->engine;
    struct perf_end end = {.status = ev->status, .length = ev->mlength, .when_ns = perf_now_ns()};

    op->state = OP_ANSWERED;
    if (op == n->report_op) {
        report_answered(n, ev);
        return;
    }
    if (ev->status == 0)
        end.check = op_check(op, ev);
    perf_done(&n->base, op->cookie, &end);
}

static void op_send_failed(struct op *op, const struct lnet_event *ev)
{
    struct perf_end end = {.status = ev->status, .unsent = true, .when_ns = perf_now_ns()};

    op->state = OP_RETIRED;
    if (op == op->engine->report_op)
        op->engine->collected_all = false;
    else
        perf_done(&op->engine->base, op->cookie, &end);
    if (!ev->unlinked)
        lnet_md_unlink(&op->md);
}

static void node_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct op *op = md->user;

    if (op->state == OP_BUSY && (ev->type == LNET_EVENT_ACK || ev->type == LNET_EVENT_REPLY))
        op_answered(op, ev);
    else if (op->state == OP_BUSY && ev->type == LNET_EVENT_SEND && ev->status != 0)
        op_send_failed(op, ev);
    if (ev->unlinked)
        op_release(op);
}

/* ---- sending ---- */

static int op_bind(struct op *op, uint8_t *addr, uint32_t size)
{
    memset(&op->md, 0, sizeof(op->md));
    op->seg = (struct mem_seg){addr, size, perf_region(op->engine->base.perf, addr), 0};
    op->md.segs = &op->seg;
    op->md.nsegs = size > 0;
    op->md.length = size;
    op->md.threshold = 2; /* the message and its answer */
    op->md.eq = &op->engine->eq;
    op->md.user = op;
    return lnet_md_bind(op->engine->base.perf->node, &op->md);
}

static int put_send(struct node_engine *n, struct op *op, const struct perf_msg *m)
{
    struct match match = {MATCH_PUT, m->verify, m->run, n->seq[m->to] - m->repeat};
    int rc = op_bind(op, n->base.perf->pattern + m->offset, m->length);

    if (rc != 0)
        return rc;
    op->state = OP_BUSY; /* from here on events may come */
    rc = lnet_put(&op->md, true, &LNET_NID_ANY, &n->target[m->to], LNET_PID_LUSTRE, LNET_PORTAL_RPC,
                  match_pack(&match), 0, m->sum);
    n->seq[m->to] += rc == 0;
    return rc;
}

/* Asks a target for length bytes, which are to come to addr. */
static int op_get(struct op *op, uint8_t *addr, uint32_t length, uint32_t target,
                  const struct match *match, uint32_t offset)
{
    int rc = op_bind(op, addr, length);

    if (rc != 0)
        return rc;
    op->state = OP_BUSY;
    return lnet_get(&op->md, &LNET_NID_ANY, &op->engine->target[target], LNET_PID_LUSTRE,
                    LNET_PORTAL_RPC, match_pack(match), offset);
}

static int get_send(struct node_engine *n, struct op *op, const struct perf_msg *m)
{
    struct match match = {MATCH_GET, m->window, m->run, (uint32_t)m->cookie};

    if (m->verify)
        op->expect = n->base.perf->pattern + pattern_source_offset(m->window) + m->offset;
    return op_get(op, op->buffer, m->length, m->to, &match, m->offset);
}

/* Stops waiting for an answer; the op comes back when LNet is through with it. */
static void op_retire(struct op *op)
{
    op->state = OP_RETIRED;
    lnet_md_unlink(&op->md); /* may release op at once */
}

static void room_again(struct reactor_timer *timer)
{
    struct node_engine *n = container_of(timer, struct node_engine, room);

    n->starved = false;
    perf_room(&n->base, PERF_ALL_SOURCES);
}

int node_send(struct perf_engine *e, const struct perf_msg *m)
{
    struct node_engine *n = container_of(e, struct node_engine, base);
    struct op *op = n->free_ops;
    int rc;

    if (!op) {
        n->starved = true;
        return -EAGAIN;
    }
    n->free_ops = op->next;
    op->expect = NULL;
    op->cookie = m->cookie;
    rc = m->op == OP_GET ? get_send(n, op, m) : put_send(n, op, m);
    if (rc == 0)
        return 0;
    if (op->state == OP_BUSY)
        op_retire(op);
    else
        op_release(op);
    if (rc != -ENOMEM)
        return rc;
    n->starved = true;
    reactor_timer_arm(&n->room, ROOM_RETRY_US);
    return -EAGAIN;
}

void node_cancel(struct perf_engine *e, uint64_t cookie)
{
    struct node_engine *n = container_of(e, struct node_engine, base);

    for (unsigned i = 0; i < n->nops; i++) {
        struct op *op = &n->ops[i];
        if (op->state != OP_BUSY || op->cookie != cookie)
            continue;
        op_retire(op);
        return;
    }
}

/* ---- the receivers' records ---- */

static void collect_end(struct node_engine *n)
{
    n->collecting = false;
    reactor_timer_cancel(&n->collect_patience);
    perf_collected(&n->base, n->collected_all, &n->collected);
}

static void collect_ask(struct node_engine *n, uint32_t target)
{
    struct op *op = n->report_op;
    struct match match = {MATCH_REPORT, 0, n->collect_run, 0};

    if (op_get(op, n->report_memory, sizeof(n->report_memory), target, &match, 0) == 0)
        return;
    n->collected_all = false;
    if (op->state == OP_BUSY)
        op_retire(op);
}

/* Asks the next of those who were sent PUTs; entered again when its op comes back. */
static void collect_step(struct node_engine *n)
{
    while (n->collecting && n->report_op->state == OP_FREE) {
        uint32_t target = n->collect_next;
        if (target == n->base.targets) {
            collect_end(n);
            return;
        }
        n->collect_next++;
        if (n->seq[target] > 0)
            collect_ask(n, target);
    }
}

static void collect_too_long(struct reactor_timer *timer)
{
    struct node_engine *n = container_of(timer, struct node_engine, collect_patience);

    n->collected_all = false;
    n->collecting = false; /* later answers do not ask the next target */
    if (n->report_op->state == OP_BUSY)
        op_retire(n->report_op);
    collect_end(n);
}

void node_collect(struct perf_engine *e, uint32_t run, unsigned patience_ms)
{
    struct node_engine *n = container_of(e, struct node_engine, base);

    n->collect_run = run;
    n->collecting = n->collected_all = true;
    reactor_timer_arm(&n->collect_patience, patience_ms * 1000ull);
    collect_step(n);
}

/* ---- memory ---- */

int node_ops_alloc(struct node_engine *n)
{
    const struct perf_opts *o = &n->base.perf->opts;
    size_t room = perf_get_room(o);

    n->eq = (struct lnet_eq){node_event, n};
    n->nops = o->inflight;
    n->ops = calloc(n->nops + 1, sizeof(*n->ops)); /* one to ask for records */
    n->memory = perf_memory_take(n->base.perf, n->nops * room + 64);
    n->seq = calloc(n->base.targets, sizeof(*n->seq));
    if (!n->ops || !n->memory || !n->seq)
        return -ENOMEM;
    for (unsigned i = n->nops; i > 0; i--) {
        struct op *op = &n->ops[i - 1];
        op->engine = n;
        op->buffer = n->memory + (i - 1) * room;
        op_release(op);
    }
    n->report_op = &n->ops[n->nops]; /* it asks for records */
    n->report_op->engine = n;
    reactor_timer_init(&n->room, room_again);
    reactor_timer_init(&n->collect_patience, collect_too_long);
    return 0;
}

void node_ops_free(struct node_engine *n)
{
    perf_memory_give(n->base.perf, n->memory);
    free(n->ops);
    free(n->seq);
}
