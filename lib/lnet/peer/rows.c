/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of peers for observers: what the table of peers has (§3.6), with the counters of each peer
 * NI. A request goes to the node's home for the peers of the table, and from reactor to reactor
 * for peer NIs that no peer of the table has, and for counters. It ends on the control thread. In
 * one iteration a reactor fills a few rows and looks at a few slots.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/shard/conf.h"

#include <errno.h>
#include <stdlib.h>

#define ROW_LOOKS 128 /* slots or rows looked at in one iteration of a reactor */

struct peer_request {
    struct lnet_node *node;
    lnet_peer_page_fn fn;
    void *arg;
    struct lnet_peer_cursor at;
    struct lnet_nid nid;           /* lnet_peer_find() */
    unsigned npeers, n, max, room; /* rows: n of room */
    unsigned from_table;           /* rows at the beginning that the table gave */
    unsigned next;                 /* row that the reactor looks at next */
    unsigned reactor;              /* that rows are being completed by */
    unsigned nnew;                 /* rows at the end that are not compared with the table yet */
    struct reactor_task task;
    struct lnet_peer_row rows[];
};

/* Whether one more peer NI fits. */
static bool has_room(const struct peer_request *q)
{
    return q->npeers < q->max && q->n < q->room;
}

static void go_on(struct peer_request *q, struct reactor *to, void (*fn)(struct reactor_task *task))
{
    q->task.fn = fn;
    reactor_post(to, &q->task);
}

static void deliver(struct reactor_task *task)
{
    struct peer_request *q = container_of(task, struct peer_request, task);

    /* Neither the table nor a reactor knows the NID that lnet_peer_find() looked for. */
    if (q->n == 1 && !q->rows[0].in_table && !q->rows[0].known)
        q->n = 0;
    q->fn(q->arg, q->rows, q->n, &q->at);
    free(q);
}

static void end(struct peer_request *q)
{
    go_on(q, reactor_control(q->node->env), deliver);
}

/* ---- counters, on each reactor ---- */

/* A NID without a peer NI shows what one would begin with. */
static void fill_unused(const struct lnet_node *node, struct lnet_peer_row *row)
{
    const struct lnet_conf_net *net = lnet_net_find(node, nid_net(&row->nid));

    row->ni = (struct lnet_peer_ni_row){.nid = row->nid, .refs = 1, .health = LNET_MAX_HEALTH};
    row->ni.reactor = reactor_index(lnet_nid_home(node, &row->nid));
    if (!net)
        return;
    lnet_credits_init(&row->ni.tx, net->ni[0]->tun.peer_credits);
    lnet_credits_init(&row->ni.rtr, net->ni[0]->tun.peer_buffer_credits > 0
                                        ? net->ni[0]->tun.peer_buffer_credits
                                        : net->ni[0]->tun.peer_credits);
}

static void fill_counters(struct lnet_shard *s, struct lnet_peer_row *row)
{
    const struct lnet_peer_ni *p = lnet_peer_ni_find_here(s->node, &row->nid);

    row->known = p;
    if (p) {
        lnet_peer_ni_row_fill(s, p, &row->ni);
        row->health = p->health;
    } else {
        fill_unused(s->node, row);
    }
}

static void complete_some(struct reactor_task *task)
{
    struct peer_request *q = container_of(task, struct peer_request, task);
    struct lnet_shard *s = q->node->shard[q->reactor];
    unsigned filled = 0, looks = 0;

    for (; q->next < q->from_table; q->next++) {
        struct lnet_peer_row *row = &q->rows[q->next];

        if (lnet_nid_home(q->node, &row->nid) == s->reactor) {
            fill_counters(s, row);
            filled++;
        }
        if (filled == LNET_PEER_BURST || ++looks == ROW_LOOKS) {
            q->next++;
            reactor_post(s->reactor, &q->task);
            return;
        }
    }
    q->next = 0;
    if (++q->reactor < q->node->nshards)
        go_on(q, q->node->shard[q->reactor]->reactor, complete_some);
    else
        end(q);
}

/* Fills in the counters of the rows that the table gave. */
static void complete(struct peer_request *q)
{
    q->next = q->reactor = 0;
    if (q->from_table)
        go_on(q, q->node->shard[0]->reactor, complete_some);
    else
        end(q);
}

/* ---- peers of the table, on the node's home ---- */

static void add_rows(struct peer_request *q, const struct peer *p)
{
    uint32_t drain = relaxed_load(&q->node->drain);
    const struct peer_net *net;
    const struct peer_ni *ni;

    for (int other = 0; other < 2; other++) /* the primary NID comes first */
        TAILQ_FOREACH(net, &p->nets, link)
            TAILQ_FOREACH(ni, &net->nis, link)
                if (q->n < q->room && nid_same(&ni->nid, &p->primary) != other)
                    q->rows[q->n++] =
                        (struct lnet_peer_row){.primary = p->primary,
                                               .nid = ni->nid,
                                               .in_table = true,
                                               .state = p->state,
                                               .status = ni->status,
                                               .health = ni->health,
                                               .told = drain && p->push.drain == drain};
    q->npeers++;
    q->from_table = q->n;
}

static void collect_nis(struct reactor_task *task);

/* True: all of the table has been seen. */
static bool table_some(struct peer_request *q)
{
    const struct peer_table *t = q->node->peers;
    unsigned first = q->n;

    for (unsigned looks = 0; q->at.at < t->highest && q->npeers < q->max; q->at.at++) {
        const struct peer *p = &t->peers[q->at.at];

        if (q->n > 0 && q->n + p->nnis > q->room)
            return false;
        if (p->nnis)
            add_rows(q, p);
        if (++looks == ROW_LOOKS || q->n - first >= ROW_LOOKS) {
            q->at.at++;
            return q->at.at >= t->highest;
        }
    }
    return q->at.at >= t->highest;
}

static bool is_full(const struct peer_request *q)
{
    const struct peer_table *t = q->node->peers;

    return q->npeers == q->max ||
           (q->n > 0 && q->at.at < t->highest && q->n + t->peers[q->at.at].nnis > q->room);
}

static void collect_table(struct reactor_task *task)
{
    struct peer_request *q = container_of(task, struct peer_request, task);

    if (table_some(q)) {
        q->at = (struct lnet_peer_cursor){.part = 1};
        if (has_room(q))
            go_on(q, q->node->shard[0]->reactor, collect_nis);
        else
            complete(q);
    } else if (is_full(q)) {
        complete(q);
    } else {
        reactor_post(lnet_node_home(q->node), task);
    }
}

/* ---- peer NIs that no peer of the table has ---- */

/* On the node's home: removes the rows of NIDs that the table has, for they are in the part of the
 * table. */
static void drop_known(struct reactor_task *task)
{
    struct peer_request *q = container_of(task, struct peer_request, task);
    unsigned end_of_part = min(q->n, q->next + ROW_LOOKS), kept = q->reactor;

    for (; q->next < end_of_part; q->next++)
        if (!peer_table_find_ni(q->node->peers, &q->rows[q->next].nid))
            q->rows[kept++] = q->rows[q->next];
    q->reactor = kept; /* the row that the next one goes to */
    if (q->next < q->n) {
        reactor_post(lnet_node_home(q->node), task);
        return;
    }
    q->npeers -= q->n - kept;
    q->n = kept;
    if (q->at.end || !has_room(q))
        complete(q);
    else
        go_on(q, q->node->shard[q->at.part - 1]->reactor, collect_nis);
}

static void collect_nis(struct reactor_task *task)
{
    struct peer_request *q = container_of(task, struct peer_request, task);
    const struct lnet_shard *s = q->node->shard[q->at.part - 1];
    unsigned rows = 0, looks = 0;

    while (q->at.at < s->peer->peers_used && has_room(q) && rows < LNET_PEER_BURST &&
           looks++ < ROW_LOOKS) {
        const struct lnet_peer_ni *p = &s->peer->peers[q->at.at++];
        struct lnet_peer_row *row = &q->rows[q->n];

        if (!p->shard)
            continue;
        *row = (struct lnet_peer_row){
            .primary = p->nid, .nid = p->nid, .health = p->health, .known = true};
        lnet_peer_ni_row_fill(s, p, &row->ni);
        q->n++;
        q->nnew++;
        q->npeers++;
        rows++;
    }
    if (q->at.at >= s->peer->peers_used) {
        q->at.at = 0;
        q->at.end = q->at.part++ == q->node->nshards;
    }
    if (!q->at.end && has_room(q)) {
        reactor_post(q->node->shard[q->at.part - 1]->reactor, task);
        return;
    }
    q->next = q->reactor = q->n - q->nnew;
    q->nnew = 0;
    go_on(q, lnet_node_home(q->node), drop_known);
}

/* ---- one peer ---- */

static void find(struct reactor_task *task)
{
    struct peer_request *q = container_of(task, struct peer_request, task);
    const struct peer *p = peer_table_find(q->node->peers, &q->nid);

    q->at.end = true;
    if (p) {
        add_rows(q, p);
    } else {
        q->rows[0] =
            (struct lnet_peer_row){.primary = q->nid, .nid = q->nid, .health = LNET_MAX_HEALTH};
        q->from_table = q->n = 1;
    }
    complete(q);
}

/* ---- requests (control) ---- */

static struct peer_request *request_new(struct lnet_node *node, unsigned max, lnet_peer_page_fn fn,
                                        void *arg)
{
    unsigned room = max + LNET_PING_MAX_NIDS; /* of the last peer */
    struct peer_request *q = lnet_request_alloc(sizeof(*q) + room * sizeof(q->rows[0]));

    if (!q)
        return NULL;
    q->node = node;
    q->max = max;
    q->room = room;
    q->fn = fn;
    q->arg = arg;
    return q;
}

int lnet_peer_page(struct lnet_node *node, const struct lnet_peer_cursor *from, unsigned max,
                   lnet_peer_page_fn fn, void *arg)
{
    struct peer_request *q;

    if (max == 0 || max > LNET_PEER_PAGE_MAX || from->end || from->part > node->nshards)
        return -EINVAL;
    q = request_new(node, max, fn, arg);
    if (!q)
        return -ENOMEM;
    q->at = *from;
    if (from->part)
        go_on(q, node->shard[from->part - 1]->reactor, collect_nis);
    else
        go_on(q, lnet_node_home(node), collect_table);
    return 0;
}

int lnet_peer_find(struct lnet_node *node, const struct lnet_nid *nid, lnet_peer_page_fn fn,
                   void *arg)
{
    struct peer_request *q = request_new(node, 1, fn, arg);

    if (!q)
        return -ENOMEM;
    q->nid = *nid;
    go_on(q, lnet_node_home(node), find);
    return 0;
}
