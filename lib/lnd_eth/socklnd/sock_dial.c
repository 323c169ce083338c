/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the missing connections of a peer NI one after the other: C, I, O, I, O …. Decides what
 * follows a refusal. docs/protocol/socklnd.md §1.1, §2.3 to §2.7, §3.1, §3.2.
 */
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <errno.h>

#define SYN_US LND_SEC /* in which a host that is there answers a SYN */

#define REFUSALS_MAX 3     /* in a row, then the run ends with the connections that exist, §2.6 */
#define FIRST_US     50000 /* from the first refusal to the next attempt */

/* ---- what is missing, §3.1 ---- */

static enum sock_ctype missing(const struct sock_peer *sp)
{
    unsigned max = sp->base.connect.wanted; /* of each bulk type */
    unsigned in = sp->count[SOCK_CTYPE_BULK_IN], out = sp->count[SOCK_CTYPE_BULK_OUT];

    if (sp->count[SOCK_CTYPE_CONTROL] == 0)
        return SOCK_CTYPE_CONTROL;
    if (in < max && (in <= out || out >= max))
        return SOCK_CTYPE_BULK_IN;
    return out < max ? SOCK_CTYPE_BULK_OUT : SOCK_CTYPE_NONE;
}

static bool has_each(const struct sock_peer *sp)
{
    return sp->count[SOCK_CTYPE_CONTROL] > 0 && sp->count[SOCK_CTYPE_BULK_IN] > 0 &&
           sp->count[SOCK_CTYPE_BULK_OUT] > 0;
}

/* ---- ends of a run ---- */

static void dial_failed(struct sock_peer *sp, enum lnet_health health)
{
    lnd_connect_failed(&sp->base, health, LNET_HEALTH_REMOTE_ERROR);
}

static void dial_done(struct sock_peer *sp)
{
    lnd_connect_done(&sp->base);
    /* No connection can take the waiting messages. Does not happen when all types exist. */
    if (STAILQ_FIRST(&sp->base.queue))
        lnd_peer_fail_queue(&sp->base, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR);
}

/* The peer refused a connection: tries again later, when its own connections may have come. */
static void dial_again(struct sock_peer *sp, uint64_t delay_us)
{
    lnd_connect_drop(&sp->base);
    lnd_connect_later(&sp->base, delay_us);
}

static uint64_t retry_us(const struct sock_peer *sp)
{
    return sp->sni->sock->opts.min_reconnect * LND_SEC;
}

static void refused(struct sock_peer *sp)
{
    lnd_drop(&sp->sni->base, SOCK_DROP(DIAL_REFUSED), &sp->base.peer->nid, NULL);
    if (++sp->dial.refusals >= REFUSALS_MAX && has_each(sp)) {
        sp->dial.complete = true;
        dial_done(sp);
        return;
    }
    /* A peer that still has connections of our last life refuses the first attempt and closes them,
     * §2.5 #4: the next attempt succeeds at once. */
    dial_again(sp, sp->dial.refusals == 1 && sp->base.nconns == 0 ? FIRST_US : retry_us(sp));
}

/* ---- connecting ---- */

/* Tries source ports from 1023 down: the peer's acceptor wants a reserved one, §1.2. */
static int connect_from_reserved(struct sock_peer *sp, struct sock_conn *c)
{
    const struct sock_ni *sni = sp->sni;
    union stream_addr local = sni->addr, remote;
    int rc = -EADDRINUSE;

    sock_nid_to_addr(sni, &sp->base.peer->nid, sni->sock->opts.accept_port, &remote);
    for (uint16_t port = SOCK_PORT_MAX; port >= SOCK_PORT_MIN; port--) {
        if (port == SOCK_ACCEPTOR_PORT)
            continue;
        if (local.sa.sa_family == AF_INET6)
            local.in6.sin6_port = htons(port);
        else
            local.in.sin_port = htons(port);
        rc = sni->transport.ops->connect(sni->transport.ctx, &local, sni->base.ni->ifname, &remote,
                                         lnd_setting(&sni->base.ni->lnd_tun.tos), &sock_conn_events,
                                         c, &c->stream);
        if (rc != -EADDRINUSE && rc != -EADDRNOTAVAIL)
            break;
    }
    return rc;
}

/* §6.3 */
static enum lnet_health health_of_end(enum stream_end end)
{
    switch (end) {
    case STREAM_END_EOF:
    case STREAM_END_RESET:
    case STREAM_END_REFUSED:
    case STREAM_END_UNREACHABLE:
        return LNET_HEALTH_REMOTE_DROPPED;
    case STREAM_END_TIMEOUT:
        return LNET_HEALTH_NETWORK_TIMEOUT;
    default:
        return LNET_HEALTH_LOCAL_ERROR;
    }
}

static void connect_failed(struct sock_peer *sp, enum lnet_health health)
{
    lnd_drop(&sp->sni->base, SOCK_DROP(DIAL_FAILED), &sp->base.peer->nid, NULL);
    dial_failed(sp, health);
}

static void dial_one(struct sock_peer *sp, enum sock_ctype type)
{
    struct lnd_ni *lni = &sp->sni->base;
    struct lnet_drop_why none = {.why = lnd_connect_place(&sp->base)};
    struct sock_conn *c = none.why ? NULL : sock_conn_new(sp, type);
    int rc;

    if (!c) {
        lnet_drop_event_why(lni->ni->node, SOCK_DROP(NO_MEMORY), lni->ni, &sp->base.peer->nid, NULL,
                            &none);
        dial_failed(sp, LNET_HEALTH_LOCAL_ERROR);
        return;
    }
    c->state = SOCK_CONN_CONNECTING;
    sp->base.connect.conn = &c->base;
    sp->base.connecting = LND_CONNECT_RUN;
    reactor_timer_arm(&sp->base.connect.timer, lnd_timeout_us(sp->sni->base.ni));
    rc = connect_from_reserved(sp, c);
    if (rc < 0)
        connect_failed(sp, health_of_end(stream_end_of_errno(-rc)));
}

/* The peer opened all connections that there are, and messages can be sent on them: then the peer
 * completes the set, §3.2. */
static bool peer_began(const struct sock_peer *sp)
{
    return lnd_peer_began(&sp->base) &&
           sp->count[SOCK_CTYPE_CONTROL] + sp->count[SOCK_CTYPE_BULK_OUT] > 0;
}

void sock_dial_next(struct lnd_peer_ni *lp)
{
    struct sock_peer *sp = sock_peer_of(lp);
    bool waited = lp->connecting == LND_CONNECT_WAIT;
    enum sock_ctype type = sp->dial.complete && has_each(sp) ? SOCK_CTYPE_NONE : missing(sp);

    if (waited)
        sp->dial.yield = false;
    if (peer_began(sp)) {
        sp->base.record = false;
        dial_done(sp);
    } else if (type == SOCK_CTYPE_NONE) {
        dial_done(sp);
    } else if (reactor_now_us() - sp->dial.started_us >= lnd_timeout_us(sp->sni->base.ni)) {
        connect_failed(sp, LNET_HEALTH_NETWORK_TIMEOUT);
    } else if (sp->dial.yield) {
        sp->dial.yield = false;
        dial_again(sp, retry_us(sp));
    } else {
        dial_one(sp, type);
    }
}

void sock_dial_late(struct lnd_peer_ni *lp)
{
    connect_failed(sock_peer_of(lp), LNET_HEALTH_NETWORK_TIMEOUT);
}

/* ---- beginning, §3.2 ---- */

void sock_dial_begin(struct lnd_peer_ni *lp)
{
    struct sock_peer *sp = sock_peer_of(lp);

    if (sp->base.nconns == 0) {
        sock_peer_version(sp, sock_hello_version(sp->sni));
        sp->dial.complete = false;
    }
    sp->dial.yield = false;
    sp->dial.refusals = 0;
    sp->dial.started_us = reactor_now_us();
}

void sock_dial_complete(struct sock_peer *sp)
{
    if (sp->base.record && !sp->dial.complete && missing(sp) != SOCK_CTYPE_NONE)
        lnd_connect_start(&sp->base);
}

/* A message for the peer is enough to make us call it. A call that may come to nothing must not
 * keep the peer's own away. */
bool sock_dial_races(const struct sock_peer *sp)
{
    struct lnd_conn *conn = sp->base.connect.conn;
    uint64_t age_us = reactor_now_us() - sp->base.connect.call_us;

    return sp->base.connecting == LND_CONNECT_RUN &&
           (!conn ||
            age_us < (sock_conn_of(conn)->state == SOCK_CONN_HELLO ? LND_CALL_US : SYN_US));
}

void sock_dial_yield(struct sock_peer *sp)
{
    if (sock_dial_races(sp))
        sp->dial.yield = true;
    else if (sp->base.connecting == LND_CONNECT_RUN)
        dial_again(sp, retry_us(sp));
}

void sock_dial_other_version(struct sock_peer *sp)
{
    if (sp->base.connecting == LND_CONNECT_RUN)
        dial_again(sp, retry_us(sp));
}

/* ---- request and HELLO ---- */

void sock_dial_connected(struct sock_conn *c)
{
    const struct sock_peer *sp = c->sp;
    size_t n = sock_req_encode(&sp->base.peer->nid, c->raw);

    n += sock_hello_write(sp->sni, sp->version, &sp->base.peer->nid, c->type, NULL, c->raw + n);
    c->raw_len = (uint16_t)n;
    c->state = SOCK_CONN_HELLO;
    sock_tx_run(c);
}

static void hello_wrong(struct sock_peer *sp, enum lnet_drop reason)
{
    lnd_drop(&sp->sni->base, reason, &sp->base.peer->nid, NULL);
    dial_failed(sp, LNET_HEALTH_LOCAL_ERROR);
}

/* The peer has restarted: closes all connections with its old incarnation, §2.5 #4. */
static void peer_restarted(struct sock_peer *sp, uint64_t incarnation)
{
    lnd_drop(&sp->sni->base, SOCK_DROP(HELLO_STALE), &sp->base.peer->nid, NULL);
    sock_peer_restarted(sp, incarnation);
    dial_again(sp, 0);
}

static void hello_answered(struct sock_conn *c, const struct sock_hello *in)
{
    struct sock_peer *sp = c->sp;

    if (!nid_same(&in->src_nid, &sp->base.peer->nid) || in->src_pid != LNET_PID_LUSTRE) {
        hello_wrong(sp, SOCK_DROP(HELLO_PEER));
    } else if (in->ctype == SOCK_CTYPE_NONE) {
        refused(sp);
    } else if (sock_ctype_invert(in->ctype) != c->type) {
        hello_wrong(sp, SOCK_DROP(HELLO_TYPE));
    } else if (sp->base.nconns > 0 && in->src_incarnation != sp->base.incarnation) {
        peer_restarted(sp, in->src_incarnation);
    } else {
        sp->base.connect.conn = NULL;
        sp->dial.refusals = 0;
        if (sp->base.nconns == 0)
            lnd_connect_number(&sp->base); /* the run's earlier connections may be closed */
        c->base.initiated = true;
        /* Opens the next connection from the timer, so that the first message goes before it. */
        reactor_timer_arm(&sp->base.connect.timer, 0);
        sock_peer_conn_up(sp, c, in->src_incarnation);
    }
}

void sock_dial_readable(struct sock_conn *c)
{
    struct sock_peer *sp = c->sp;
    size_t want = 4, n;
    struct sock_stage stage;
    struct sock_hello in;
    const uint8_t *p;
    enum lnet_drop drop;

    if (c->state != SOCK_CONN_HELLO)
        return;
    lnd_peer_hold(&sp->base);
    do {
        n = c->stream->ops->peek(c->stream, want, &p);
        if (n < want)
            goto out;
        stage = sock_hello_stage(p, n, sp->version);
        want += stage.need;
    } while (stage.need > 0);
    drop = sock_hello_decode(p, n, sp->version, &in);
    c->stream->ops->skip(c->stream, n);
    if (drop != LNET_DROP_NONE)
        hello_wrong(sp, drop);
    else
        hello_answered(c, &in);
out:
    lnd_peer_release(&sp->base);
}

void sock_dial_closed(struct sock_conn *c, enum stream_end end)
{
    struct sock_peer *sp = c->sp;

    if (sp->base.connect.conn == &c->base)
        connect_failed(sp, health_of_end(end));
}
