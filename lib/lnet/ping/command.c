/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery on the operator's command. docs/protocol/lnet-core.md §3.5, §3.6, §10.6. */
#include "lib/base/err.h"
#include "lib/lnet/ping/ping_internal.h"

#include <errno.h>
#include <stdlib.h>

/* ---- discovery on and off ---- */

/* The feature bits change, not the sequence number (§3.2). Switching on sends nothing (§3.5). */
static void discovery_switched(struct lnet_node *node, bool on)
{
    if (lnet_ping_republish(node) && !on)
        lnet_ping_push_all(node, true);
}

int lnet_discovery_set(struct lnet_node *node, bool on, struct err *err)
{
    if (node->no_discovery == !on)
        return 0;
    relaxed_store(&node->no_discovery, !on);
    if (!node->started || lnet_call_home(node, discovery_switched, on) == 0)
        return 0;
    relaxed_store(&node->no_discovery, on);
    return err_set(err, -ENOMEM, "no memory");
}

/* ---- the discovery of one peer ---- */

#define TRIES 3 /* discoveries begun for one request: the peer may become another one meanwhile */

struct discover_request {
    struct lnet_ping *ping;
    struct lnet_nid nid;
    bool force;
    uint64_t timeout_us;
    unsigned tries;
    int status;
    lnet_discover_fn fn;
    void *arg;
    struct reactor_task task;
    struct reactor_timer timer;
    LIST_ENTRY(discover_request) link; /* in lnet_ping.requests */
};

static void request_deliver(struct reactor_task *task)
{
    struct discover_request *q = container_of(task, struct discover_request, task);

    q->fn(q->arg, q->status);
    free(q);
}

static void request_end(struct discover_request *q, int status)
{
    LIST_REMOVE(q, link);
    reactor_timer_cancel(&q->timer);
    q->status = status;
    q->task.fn = request_deliver;
    reactor_post(reactor_control(q->ping->node->env), &q->task);
}

/* The discovery itself goes on: other requests, or the next PUSH, have its result. */
static void request_late(struct reactor_timer *timer)
{
    request_end(container_of(timer, struct discover_request, timer), -ETIMEDOUT);
}

static bool is_done(const struct discover_request *q, const struct peer *peer)
{
    const uint32_t good = PEER_DISCOVERED | PEER_NIDS_UPTODATE;
    const struct discover_self self = {.discovery = lnet_discovery_is_on(q->ping->node),
                                       .seqno = q->ping->seqno};

    if (q->tries == 0)
        return !q->force && discover_is_uptodate(peer, &self);
    return (peer->state & (good | PEER_REDISCOVER)) == good;
}

static void request_again(struct discover_request *q, struct peer *peer)
{
    struct lnet_ping *p = q->ping;

    if (!peer)
        peer = peer_table_get(p->node->peers, &q->nid);
    if (!peer || q->tries++ == TRIES) {
        request_end(q, peer ? -EAGAIN : -ENOSPC);
        return;
    }
    /* The operator's NID is as good as one that the peer pushed from: its primary NID may be on a
     * net that this node does not reach. */
    if (nid_is_any(&peer->push.nid) && !nid_same(&peer->primary, &q->nid))
        peer->push.nid = q->nid;
    lnet_discover_now(p, peer, PEER_FORCE_PING);
    lnet_discover_soon(p);
}

/* Ends a request whose discovery is complete; begins one that is not under way. The peer is looked
 * up each time: its NID may have come to another peer. */
static void request_look(struct discover_request *q)
{
    struct peer *peer = peer_table_find(q->ping->node->peers, &q->nid);

    if (peer && lnet_is_discovering(peer))
        return;
    if (peer && is_done(q, peer))
        request_end(q, 0);
    else if (peer && q->tries > 0 && peer->state & PEER_REDISCOVER)
        request_end(q, peer->discovery.error);
    else
        request_again(q, peer);
}

void lnet_discover_look(struct lnet_ping *p)
{
    struct discover_request *q, *next;

    for (q = LIST_FIRST(&p->requests); q; q = next) {
        next = LIST_NEXT(q, link);
        request_look(q);
    }
}

static void request_begin(struct reactor_task *task)
{
    struct discover_request *q = container_of(task, struct discover_request, task);
    struct lnet_ping *p = q->ping;

    LIST_INSERT_HEAD(&p->requests, q, link);
    reactor_timer_init(&q->timer, request_late);
    reactor_timer_arm(&q->timer, q->timeout_us);
    if (p->stopped)
        request_end(q, -ESHUTDOWN);
    else
        request_look(q);
}

int lnet_peer_discover(struct lnet_node *node, const struct lnet_nid *nid, bool force,
                       unsigned timeout_ms, lnet_discover_fn fn, void *arg)
{
    struct discover_request *q = calloc(1, sizeof(*q));

    if (!q)
        return -ENOMEM;
    q->ping = node->ping;
    q->nid = *nid;
    q->force = force;
    q->timeout_us = (uint64_t)timeout_ms * 1000;
    q->fn = fn;
    q->arg = arg;
    q->task.fn = request_begin;
    reactor_post(lnet_node_home(node), &q->task);
    return 0;
}

void lnet_discover_stop(struct lnet_ping *p)
{
    while (!LIST_EMPTY(&p->requests))
        request_end(LIST_FIRST(&p->requests), -ESHUTDOWN);
}

void lnet_discover_abandon(struct lnet_ping *p)
{
    struct discover_request *q;

    while ((q = LIST_FIRST(&p->requests))) {
        LIST_REMOVE(q, link);
        q->fn(q->arg, -ESHUTDOWN);
        free(q);
    }
}
