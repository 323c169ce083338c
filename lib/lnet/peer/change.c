/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes of peers by the operator: which peers are configured (`lnetctl peer add`, `peer del`).
 * docs/protocol/lnet-core.md §10.1. The node's home makes them, some in an iteration; requests are
 * served in their order.
 */
#include "lib/lnet/peer/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHANGE_BURST 64 /* operations in one iteration of a reactor */

struct peer_change {
    struct lnet_node *node;
    lnet_done_fn done;
    void *arg;
    int rc;
    struct err err;
    unsigned n, next; /* operations; undoing: those still to be undone */
    bool undoing;
    struct reactor_task task;
    struct lnet_peer_op op[];
};

static void change_deliver(struct reactor_task *task)
{
    struct peer_change *c = container_of(task, struct peer_change, task);

    c->done(c->arg, c->rc, c->rc ? &c->err : NULL);
    free(c);
}

/* A peer that routes pin stays as one that is not configured. One whose discovery is under way is
 * made anew when the next event of it comes. */
static void unconfigure(struct peer_table *t, struct peer *p)
{
    const struct lnet_nid primary = p->primary;

    if (p->pins == 0)
        peer_table_del(t, p);
    else if (p->push.slot)
        p->state = (p->state & ~(uint32_t)PEER_CONFIGURED) | PEER_MARK_DELETION;
    else
        peer_table_recreate(t, p, &primary);
}

static int del(struct peer_table *t, const struct lnet_peer_op *op)
{
    struct peer_ni *ni = peer_table_find_ni(t, &op->nid);
    struct peer *p = ni ? ni->net->peer : NULL;

    if (!p || !nid_same(&p->primary, &op->primary))
        return 0; /* it could not be added at the start */
    if (nid_same(&op->nid, &op->primary)) {
        unconfigure(t, p);
        return 0;
    }
    return peer_table_del_nid(t, &op->primary, &op->nid);
}

static uint32_t state_of(bool multi_rail, bool lock_primary)
{
    return (multi_rail ? PEER_MULTI_RAIL : 0) | (lock_primary ? PEER_LOCK_PRIMARY : 0);
}

static int apply(struct peer_table *t, const struct lnet_peer_op *op, bool undo)
{
    bool is_set = op->kind == LNET_PEER_SET;
    bool was = is_set && undo;

    if ((op->kind == LNET_PEER_DEL) != undo && !is_set)
        return del(t, op);
    return peer_table_add(t, &op->primary, &op->nid,
                          state_of(was ? op->was_multi_rail : op->multi_rail,
                                   was ? op->was_lock_primary : op->lock_primary));
}

static const char *why(int rc)
{
    switch (rc) {
    case -EEXIST:
        return "another configured peer has it";
    case -EINVAL:
        return "it is a NID of this node, or no NID of a peer";
    case -EPERM:
        return "a peer with several NIDs is multi-rail";
    default:
        return "there is no room for more peers; raise max_peers";
    }
}

static void fail(struct peer_change *c, const struct lnet_peer_op *op, int rc)
{
    char nid[LNET_NIDSTR_SIZE];

    c->rc = rc;
    err_set(&c->err, rc, "peer %s: %s", nid_format(&op->nid, nid), why(rc));
    c->undoing = true;
}

static void change_some(struct reactor_task *task)
{
    struct peer_change *c = container_of(task, struct peer_change, task);
    struct peer_table *t = c->node->peers;

    for (unsigned i = 0; i < CHANGE_BURST && (c->undoing ? c->next > 0 : c->next < c->n); i++) {
        const struct lnet_peer_op *op = &c->op[c->undoing ? --c->next : c->next];
        int rc = apply(t, op, c->undoing);

        if (c->undoing)
            continue;
        if (rc < 0)
            fail(c, op, rc);
        else
            c->next++;
    }
    if (c->undoing ? c->next > 0 : c->next < c->n) {
        reactor_post(lnet_node_home(c->node), task);
        return;
    }
    c->task.fn = change_deliver;
    reactor_post(reactor_control(c->node->env), &c->task);
}

int lnet_peers_change(struct lnet_node *node, const struct lnet_peer_op *ops, unsigned n, bool undo,
                      lnet_done_fn done, void *arg, struct err *err)
{
    struct peer_change *c = calloc(1, sizeof(*c) + n * sizeof(*ops));

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->node = node;
    c->n = n;
    c->undoing = undo;
    c->next = undo ? n : 0;
    c->done = done;
    c->arg = arg;
    memcpy(c->op, ops, n * sizeof(*ops));
    c->task.fn = change_some;
    reactor_post(lnet_node_home(node), &c->task);
    return 0;
}
