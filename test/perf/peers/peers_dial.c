/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Simulated peers call the router as a kernel node does: control, bulk in, bulk out, from ports
 * 1023 down, then a ping. docs/protocol/socklnd.md §1.1, §2.3, §3.1.
 */
#include "test/perf/peers/peers.h"

#include <errno.h>

#define DIAL_US  10000000 /* for one connection */
#define PAUSE_US 1000000  /* until it calls again; doubled up to … */
#define PAUSES   4        /* … so many times */
#define PING_US  1000000  /* until the router is asked again */
#define AGAIN_US 30000000 /* the first of each net keeps it alive, lnet-core.md §3.9 */

static const enum sock_ctype types[PEER_CONNS] = {SOCK_CTYPE_CONTROL, SOCK_CTYPE_BULK_IN,
                                                  SOCK_CTYPE_BULK_OUT};

static void timer_fired(struct reactor_timer *t);

static void addr_of(const struct lnet_nid *nid, uint16_t port, union stream_addr *out)
{
    memset(out, 0, sizeof(*out));
    out->in.sin_family = AF_INET;
    out->in.sin_port = htons(port);
    out->in.sin_addr.s_addr = nid->addr_be[0];
}

static void pause_dial(struct peer *p)
{
    unsigned shift = p->pauses < PAUSES ? p->pauses : PAUSES;

    p->pauses += p->pauses < PAUSES;
    p->state = PEER_PAUSES;
    reactor_timer_arm(&p->timer, (uint64_t)PAUSE_US << shift);
}

static void dial_one(struct peer *p, unsigned i)
{
    struct peers *e = p->e;
    struct peer_conn *c = &p->conn[i];
    union stream_addr local, remote;
    int rc = -EADDRINUSE;

    memset(c, 0, sizeof(*c));
    TAILQ_INIT(&c->queue);
    c->peer = p;
    c->type = types[i];
    c->window = STREAM_FIRST_WINDOW;
    addr_of(&e->side[p->side].gateway, SOCK_ACCEPTOR_PORT, &remote);
    for (uint16_t port = SOCK_PORT_MAX; port >= SOCK_PORT_MIN; port--) {
        if (port == SOCK_ACCEPTOR_PORT)
            continue;
        addr_of(&p->nid, port, &local);
        rc = e->transport.ops->connect(e->transport.ctx, &local, e->side[p->side].ifname, &remote,
                                       -1, &peers_events, c, &c->stream);
        if (rc != -EADDRINUSE)
            break;
    }
    reactor_timer_arm(&p->timer, DIAL_US);
    if (rc < 0) {
        c->stream = NULL;
        peer_fail(p, SOCK_DROP(DIAL_FAILED), false);
    }
}

static void dial_more(struct peer *p)
{
    unsigned i = 0;

    while (i < PEER_CONNS && p->conn[i].up)
        i++;
    if (i < PEER_CONNS) {
        if (!p->e->direct || p->side == 0)
            dial_one(p, i);
        else
            reactor_timer_arm(&p->timer, DIAL_US); /* it is called */
        return;
    }
    p->e->dialling--;
    p->state = PEER_PINGS;
    p->ping++;
    (void)peers_ping(p, &p->e->side[p->side].gateway, PEERS_PING | p->ping);
    reactor_timer_arm(&p->timer, PING_US);
    peers_dial_next(p->e);
}

void peer_begin(struct peer *p)
{
    reactor_timer_init(&p->timer, timer_fired);
    p->state = PEER_IDLE;
    TAILQ_INSERT_TAIL(&p->e->idle, p, link);
    peers_dial_next(p->e);
}

void peers_dial_next(struct peers *e)
{
    struct peer *p;

    while (e->dialling < PEERS_DIALS && !e->stopping && (p = TAILQ_FIRST(&e->idle))) {
        TAILQ_REMOVE(&e->idle, p, link);
        e->dialling++;
        p->state = PEER_DIALS;
        p->credits = PEER_CREDITS;
        p->gateway_incarnation = 0;
        /* From the timer: a call that fails at once is not nested. */
        reactor_timer_arm(&p->timer, 0);
    }
}

void peer_conn_up(struct peer_conn *c)
{
    c->up = true;
    count_add(&c->peer->e->connections, 1);
    reactor_timer_arm(&c->peer->timer, 0);
}

void peer_answered(struct peer *p)
{
    if (p->state != PEER_PINGS)
        return;
    p->state = PEER_READY;
    p->pauses = 0;
    p->was_ready = true;
    p->e->ready++;
    reactor_timer_cancel(&p->timer);
    if (p == p->e->side[p->side].peer)
        reactor_timer_arm(&p->timer, AGAIN_US);
    peer_push(p);
    peers_ready_changed(p->e);
}

static void ping_again(struct peer *p)
{
    p->ping++;
    (void)peers_ping(p, &p->e->side[p->side].gateway, PEERS_PING | p->ping);
    reactor_timer_arm(&p->timer, p->state == PEER_READY ? AGAIN_US : PING_US);
}

static bool under_way(const struct peer *p)
{
    for (unsigned i = 0; i < PEER_CONNS; i++)
        if (p->conn[i].stream && !p->conn[i].up)
            return true;
    return false;
}

static void timer_fired(struct reactor_timer *t)
{
    struct peer *p = container_of(t, struct peer, timer);

    switch ((enum peer_state)p->state) {
    case PEER_DIALS:
        if (under_way(p))
            peer_fail(p, SOCK_DROP(DIAL_FAILED), false);
        else
            dial_more(p);
        break;
    case PEER_PAUSES:
        peer_begin(p);
        break;
    case PEER_PINGS:
    case PEER_READY:
        ping_again(p);
        break;
    case PEER_IDLE:
    case PEER_STOPPED:
        break;
    }
}

static void close_all(struct peer *p, bool abort)
{
    struct peers_tx *tx;

    reactor_timer_cancel(&p->timer);
    for (unsigned i = 0; i < PEER_CONNS; i++)
        peer_conn_close(&p->conn[i], abort);
    while ((tx = TAILQ_FIRST(&p->wait))) {
        TAILQ_REMOVE(&p->wait, tx, link);
        peers_tx_end(tx, false);
    }
    if (p->state == PEER_DIALS)
        p->e->dialling--;
    if (p->state == PEER_READY)
        p->e->ready--;
    if (p->state == PEER_IDLE)
        TAILQ_REMOVE(&p->e->idle, p, link);
}

void peer_fail(struct peer *p, enum lnet_drop why, bool broken)
{
    struct peers *e = p->e;

    if (p->state == PEER_STOPPED || p->state == PEER_PAUSES)
        return;
    count_add(&e->drops[why], 1);
    count_add(&e->count.broken_input, broken);
    count_add(&e->count.failed_peers, broken);
    p->was_ready = false;
    close_all(p, true);
    pause_dial(p);
    peers_fail_ops(p, -ECOMM);
    peers_dial_next(e);
}

void peer_stop(struct peer *p)
{
    close_all(p, false);
    p->state = PEER_STOPPED;
}
