/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer NI: which connection takes a message; connections come and go. docs/protocol/o2iblnd.md
 * §1.10, §6.
 */
#include "lib/lnd_verbs/ib_internal.h"

#include <assert.h>
#include <string.h>

#define QUEUE_SLACK (10 * LND_SEC) /* in addition to the time of one connection attempt, §6.1 */

void ib_peer_init(struct lnd_peer_ni *lp)
{
    struct ib_peer *p = ib_peer_of(lp);

    p->ini = ib_ni_of(lp->ns->lni);
    p->shard = ib_shard_of(lp->ns->shard);
    p->depth_max = IB_DEPTH_MAX;
    p->dial.ask = (struct ib_ask){.mine = p->ini->terms, .peer_nid = nid_to_u64(&lp->peer->nid)};
    TAILQ_INIT(&p->making);
}

/* ---- sending ---- */

/* Returns the next connection in turn, §1.10. */
static struct ib_conn *choose(struct ib_peer *p)
{
    struct lnd_conn *conn = TAILQ_FIRST(&p->base.conns);

    if (p->base.nconns > 1) {
        TAILQ_REMOVE(&p->base.conns, conn, link);
        TAILQ_INSERT_TAIL(&p->base.conns, conn, link);
    }
    return ib_conn_of(conn);
}

/* Sending on a connection may close it. */
static void flush_queue(struct ib_peer *p)
{
    while (STAILQ_FIRST(&p->base.queue) && p->base.nconns > 0) {
        struct ib_conn *c = choose(p);

        ib_conn_send(c, lnet_msg_queue_pop(&p->base.queue));
    }
    lnd_queue_timer_set(&p->base);
    if (STAILQ_FIRST(&p->base.queue))
        lnd_connect_start(&p->base);
}

static void send_by_peer(struct ib_peer *p, struct lnet_msg *msg)
{
    if (p->base.nconns > 0) {
        ib_conn_send(choose(p), msg);
        ib_dial_complete(p);
    } else {
        lnd_peer_wait(&p->base, msg, ib_answer_us(p->ini) + QUEUE_SLACK);
    }
}

void ib_send(struct lnet_msg *msg)
{
    struct ib_ni *ini = msg->tx_ni->lnd_ni;
    struct lnd_peer_ni *lp;

    /* Says nothing about the health of either side. §2.6 */
    if (!lnet_hdr_fits4(&msg->hdr) || !nid_is_nid4(&msg->tx_peer->nid)) {
        lnd_msg_fail(msg, LNET_DROP_LARGE_NID_ON_NID4, LNET_HEALTH_OK);
        return;
    }
    lp = lnd_peer_for(&ini->shard[reactor_index(reactor_self())].base, msg);
    if (!lp)
        return;
    lnd_peer_hold(lp);
    send_by_peer(ib_peer_of(lp), msg);
    lnd_peer_release(lp);
}

void ib_peer_probe(struct ib_peer *p)
{
    struct ib_conn *c;

    IB_CONN_FOREACH(c, &p->base.conns)
        ib_conn_probe(c);
}

void ib_peer_note(struct ib_peer *p, uint64_t stamp)
{
    if (!lnd_peer_note(&p->base, stamp))
        return;
    /* The peer may accept other values than before. */
    p->depth_max = IB_DEPTH_MAX;
    p->dial.ask.mine = p->ini->terms;
    p->dial.lacks = 0;
    lnd_connect_number(&p->base);
}

/* ---- connections come and go ---- */

static void late(struct ib_conn *c)
{
    struct rdma_event ev = {.kind = RDMA_EV_FAILED, .error = -ETIMEDOUT};

    ib_link_event(&c->link, &ev);
}

static void stage_timer(struct reactor_timer *t)
{
    late(container_of(t, struct ib_conn, setup));
}

void ib_dial_late(struct lnd_peer_ni *lp)
{
    late(ib_conn_of(lp->connect.conn));
}

struct ib_conn *ib_conn_new(struct ib_peer *p, bool active)
{
    struct ib_conn *c = lnd_pool_get_zeroed(&p->shard->base.conns);

    if (!c)
        return NULL;
    c->shard = p->shard;
    c->ibp = p;
    c->base.initiated = active;
    c->state = active ? IB_CONN_RESOLVING : IB_CONN_OPENING;
    c->link.event = ib_link_event;
    c->link.port = &p->ini->port->port;
    c->link.home = p->shard->base.reactor;
    TAILQ_INIT(&c->free_txs);
    TAILQ_INIT(&c->answers);
    TAILQ_INIT(&c->active_txs);
    TAILQ_INIT(&c->early);
    STAILQ_INIT(&c->rsrvd);
    STAILQ_INIT(&c->sendq);
    c->ends = (struct ib_ends){
        .my_nid = p->ini->terms.nid,
        .my_stamp = p->ini->terms.stamp,
        .peer_nid = nid_to_u64(&p->base.peer->nid),
    };
    reactor_timer_init(&c->setup, stage_timer);
    TAILQ_INSERT_TAIL(&p->making, &c->base, link);
    p->base.objects++;
    if (!active) {
        p->base.accepting++;
        p->shard->accepting++;
        TAILQ_INSERT_TAIL(&p->shard->calls, c, call);
    }
    return c;
}

static void made(struct ib_conn *c)
{
    struct ib_peer *p = c->ibp;

    reactor_timer_cancel(&c->setup);
    TAILQ_REMOVE(&p->making, &c->base, link);
    if (!c->base.initiated) {
        p->base.accepting--;
        p->shard->accepting--;
        TAILQ_REMOVE(&p->shard->calls, c, call);
    }
    if (p->base.connect.conn == &c->base)
        p->base.connect.conn = NULL;
}

void ib_conn_end(struct lnd_conn *conn, const struct lnd_close *why)
{
    struct ib_conn *c = ib_conn_of(conn);

    if (c->state < IB_CONN_UP)
        made(c);
    ib_conn_close(c, why);
}

/* The waiting messages begin a run of our own, or fail. */
void ib_peer_call_over(struct ib_peer *p)
{
    if (!STAILQ_FIRST(&p->base.queue) || p->base.nconns > 0 || p->base.accepting > 0 ||
        p->base.connecting != LND_CONNECT_IDLE)
        return;
    if (lnd_connect_may(&p->base))
        lnd_connect_start(&p->base);
    else
        lnd_peer_fail_queue(&p->base, LNET_DROP_NEXT_HOP_DOWN, p->base.connect.health);
}

void ib_link_event(struct rdma_link *link, const struct rdma_event *ev)
{
    struct ib_conn *c = container_of(link, struct ib_conn, link);
    struct ib_peer *p = c->ibp;

    lnd_peer_hold(&p->base);
    switch (c->state) {
    case IB_CONN_RESOLVING:
    case IB_CONN_OPENING:
    case IB_CONN_CONNECTING:
    case IB_CONN_ACCEPTING:
        if (c->base.initiated)
            ib_dial_event(c, ev);
        else
            ib_accept_event(c, ev);
        break;
    case IB_CONN_UP:
    case IB_CONN_CLOSING:
    case IB_CONN_SHUT:
        ib_conn_event(c, ev);
        break;
    case IB_CONN_FREE:
        assert(!"an event of a link that is gone");
        break;
    }
    lnd_peer_release(&p->base);
}

/* Whether the peer has restarted: connections of its old incarnation do not end by themselves. A
 * kernel node closes them when the request comes, and refuses it (§1.7 row 13); but anybody may
 * send a request in the name of the peer. */
static bool is_restart(const struct ib_peer *p, uint64_t stamp)
{
    return p->base.incarnation != stamp && (p->base.nconns > 0 || p->base.accepting > 0);
}

void ib_peer_conn_up(struct ib_peer *p, struct ib_conn *c)
{
    lnd_peer_hold(&p->base);
    made(c);
    if (is_restart(p, c->ends.peer_stamp))
        ib_peer_restarted(p, c->ends.peer_stamp);
    ib_peer_note(p, c->ends.peer_stamp);
    p->races = 0;
    lnd_connect_reachable(&p->base); /* whichever side opened it */
    c->state = IB_CONN_UP;
    c->up_us = reactor_now_us();
    count_add(c->base.initiated ? &ib_ns(p)->count.dialled : &ib_ns(p)->count.accepted, 1);
    lnd_conn_up(&p->base, &c->base);
    ib_conn_up(c);
    flush_queue(p);
    lnd_peer_release(&p->base);
}

void ib_peer_conn_listed(struct lnd_peer_ni *lp, struct lnd_conn *conn, bool listed)
{
    struct verbs_counters *count = &ib_ns(ib_peer_of(lp))->count;

    count_add(&count->conns, listed ? 1 : (uint64_t)-1);
    count_add(&count->closed, !listed);
}

void ib_peer_conn_down(struct ib_peer *p, struct ib_conn *c, const struct lnd_close *why,
                       const struct lnet_hdr *hdr)
{
    if (!c->base.listed) /* it is being closed already */
        return;
    lnd_peer_hold(&p->base);
    ib_blame(c, NULL, 0);
    if (why->event != LNET_DROP_NONE)
        ib_peer_failed(p, why->event, hdr, &c->blame);
    lnd_conn_down(&p->base, &c->base, why);
    lnd_peer_release(&p->base);
}

void ib_peer_conn_gone(struct ib_conn *c)
{
    struct ib_peer *p = c->ibp;

    lnd_peer_hold(&p->base);
    p->base.bytes_in += c->bytes_in;
    p->base.bytes_out += c->bytes_out;
    ib_conn_free(c);
    p->base.objects--;
    lnd_peer_release(&p->base);
}

/* Closes the connections that the peer is opening, but those of the incarnation *but. Any value of
 * it may come from the peer, so that NULL stands for none. */
static void close_called(struct ib_peer *p, const uint64_t *but, const struct lnd_close *why)
{
    struct ib_conn *next;

    for (struct ib_conn *c = ib_conn_of(TAILQ_FIRST(&p->making)); c; c = next) {
        next = ib_conn_of(TAILQ_NEXT(&c->base, link));
        if (!c->base.initiated && (!but || c->ends.peer_stamp != *but))
            ib_conn_end(&c->base, why);
    }
}

void ib_peer_restarted(struct ib_peer *p, uint64_t stamp)
{
    static const struct lnd_close why = {
        .cause = IB_DROP(CONN_RESTARTED),
        LND_CLOSE_LOST,
        .begun = LNET_HEALTH_REMOTE_DROPPED,
    };

    lnd_peer_hold(&p->base);
    ib_peer_note(p, stamp);
    if (p->base.nconns > 0)
        lnd_drop(&p->ini->base, why.cause, &p->base.peer->nid, NULL);
    close_called(p, &stamp, &why);
    lnd_peer_close(&p->base, &why);
    lnd_peer_release(&p->base);
}

void ib_peer_abort(struct lnd_peer_ni *lp, const struct lnd_close *why)
{
    close_called(ib_peer_of(lp), NULL, why);
}

void ib_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    const struct ib_conn *c;

    memset(out, 0, sizeof(*out));
    for (struct lnd_peer_ni *lp = peer->lnd_peer; lp; lp = lp->next_of_peer) {
        const struct ib_peer *p = ib_peer_of(lp);

        out->conns[0] += p->base.nconns;
        out->connecting += p->base.connecting != LND_CONNECT_IDLE || p->base.accepting > 0;
        out->bytes_in += p->base.bytes_in;
        out->bytes_out += p->base.bytes_out;
        IB_CONN_FOREACH(c, &p->base.conns) {
            out->bytes_in += c->bytes_in;
            out->bytes_out += c->bytes_out;
            out->taken += c->taken;
            out->owed += c->given - c->taken;
        }
    }
}
