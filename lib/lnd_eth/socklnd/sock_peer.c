/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer NI: which connection takes a message, and whether the peer is alive.
 * docs/protocol/socklnd.md §3, §6.
 */
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <string.h>

/* ---- life ---- */

static void poll_timer(struct reactor_timer *t);

static void arm_poll(struct sock_peer *sp)
{
    uint64_t period = lnd_timeout_us(sp->sni->base.ni) / 4;
    uint64_t half_keepalive = sp->sni->sock->opts.keepalive * LND_SEC / 2;

    if (half_keepalive > 0 && half_keepalive < period)
        period = half_keepalive;
    reactor_timer_arm(&sp->poll_timer, period);
}

void sock_peer_init(struct lnd_peer_ni *lp)
{
    struct sock_peer *sp = sock_peer_of(lp);

    sp->sni = sock_ni_of(lp->ns->lni);
    sp->version = sock_hello_version(sp->sni);
    sp->alive_us = reactor_now_us();
    reactor_timer_init(&sp->poll_timer, poll_timer);
    arm_poll(sp);
}

void sock_peer_fini(struct lnd_peer_ni *lp)
{
    reactor_timer_cancel(&sock_peer_of(lp)->poll_timer);
}

/* ---- choosing a connection, §3.3 ---- */

enum verdict {
    VERDICT_NO,
    VERDICT_MAY,
    VERDICT_YES
};

static enum verdict match(enum sock_ctype type, bool bulk)
{
    switch (type) {
    case SOCK_CTYPE_CONTROL:
        return bulk ? VERDICT_MAY : VERDICT_YES;
    case SOCK_CTYPE_BULK_OUT:
        return bulk ? VERDICT_YES : VERDICT_MAY;
    default:
        return VERDICT_NO;
    }
}

static uint64_t load(const struct sock_conn *c)
{
    struct stream_stats st;

    c->stream->ops->stats(c->stream, &st);
    return c->txq_bytes + st.unacked;
}

static bool better(const struct sock_conn *c, const struct sock_conn *best)
{
    uint64_t mine = load(c), its = load(best);

    return mine != its ? mine < its : c->used < best->used;
}

static struct sock_conn *choose(const struct sock_peer *sp, size_t nob)
{
    bool bulk = sock_msg_is_bulk(nob);
    enum verdict best_verdict = VERDICT_NO;
    struct sock_conn *c, *best = NULL;

    if (sp->only[bulk])
        return sp->only[bulk];
    SOCK_CONN_FOREACH(c, sp) {
        enum verdict v = match(c->type, bulk);

        if (v < best_verdict || v == VERDICT_NO || (v == best_verdict && !better(c, best)))
            continue;
        best = c;
        best_verdict = v;
    }
    return best;
}

static struct sock_conn *only_of_type(const struct sock_peer *sp, enum sock_ctype type)
{
    struct sock_conn *c;

    SOCK_CONN_FOREACH(c, sp) {
        if (c->type == type)
            break;
    }
    return c;
}

/* Stores the connection that takes all messages where there is no choice. */
static void conns_changed(struct sock_peer *sp)
{
    for (int bulk = 0; bulk < 2; bulk++) {
        enum sock_ctype best = bulk ? SOCK_CTYPE_BULK_OUT : SOCK_CTYPE_CONTROL;
        enum sock_ctype other = bulk ? SOCK_CTYPE_CONTROL : SOCK_CTYPE_BULK_OUT;
        enum sock_ctype type = sp->count[best] > 0 ? best : other;

        sp->only[bulk] = sp->count[type] == 1 ? only_of_type(sp, type) : NULL;
    }
}

void sock_peer_conn_listed(struct lnd_peer_ni *lp, struct lnd_conn *conn, bool listed)
{
    struct sock_peer *sp = sock_peer_of(lp);
    uint16_t *count = &sp->count[sock_conn_of(conn)->type];

    *count = (uint16_t)(listed ? *count + 1 : *count - 1);
    conns_changed(sp);
    if (lp->nconns == 0)
        sp->dial.complete = false;
}

/* ---- sending ---- */

/* Frame header and LNet header, as the peer's version wants them, are encoded when they are sent.
 */
static enum lnet_drop prepare(const struct sock_peer *sp, struct lnet_msg *msg)
{
    bool large = sp->version == SOCK_HELLO_V4;

    msg->lnd_hdr_len = SOCK_FRAME_SIZE + (large ? LNET_HDR16_SIZE : LNET_HDR4_SIZE);
    msg->lnd_sent = 0;
    return large || lnet_hdr_fits4(&msg->hdr) ? LNET_DROP_NONE : LNET_DROP_LARGE_NID_ON_NID4;
}

void sock_peer_version(struct sock_peer *sp, uint32_t version)
{
    struct lnet_msg *list, *msg;

    if (version == sp->version)
        return;
    sp->version = version;
    list = lnet_msg_queue_take(&sp->base.queue);
    while ((msg = list)) {
        enum lnet_drop drop = prepare(sp, msg);

        list = msg->lnd_next;
        if (drop == LNET_DROP_NONE)
            STAILQ_INSERT_TAIL(&sp->base.queue, msg, queue);
        else
            lnd_msg_fail(msg, drop, LNET_HEALTH_OK);
    }
    lnd_queue_timer_set(&sp->base);
}

static void flush_queue(struct sock_peer *sp)
{
    struct lnet_msg *list = lnet_msg_queue_take(&sp->base.queue), *msg;

    while ((msg = list)) {
        struct sock_conn *c = choose(sp, msg->lnd_hdr_len + msg->payload.bytes);

        list = msg->lnd_next;
        if (c)
            sock_tx_queue(c, msg);
        else
            STAILQ_INSERT_TAIL(&sp->base.queue, msg, queue);
    }
    lnd_queue_timer_set(&sp->base);
}

void sock_send(struct lnet_msg *msg)
{
    struct sock_ni *sni = msg->tx_ni->lnd_ni;
    struct lnd_ni_shard *ns = &sni->shard[reactor_index(reactor_self())].base;
    struct lnd_peer_ni *lp = lnd_peer_for(ns, msg);
    struct sock_peer *sp;
    struct sock_conn *c;
    enum lnet_drop drop;

    if (!lp)
        return;
    sp = sock_peer_of(lp);
    lnd_peer_hold(lp); /* a peer NI that stays unused becomes spare when it is released */
    drop = prepare(sp, msg);
    if (drop != LNET_DROP_NONE) {
        /* A header that does not fit says nothing about the health of either side. */
        lnd_msg_fail(msg, drop, LNET_HEALTH_OK);
    } else if ((c = choose(sp, msg->lnd_hdr_len + msg->payload.bytes))) {
        sock_tx_queue(c, msg);
        sock_dial_complete(sp);
    } else {
        lnd_peer_wait(lp, msg, lnd_timeout_us(sni->base.ni));
    }
    lnd_peer_release(lp);
}

/* ---- connections come and go ---- */

void sock_peer_conn_up(struct sock_peer *sp, struct sock_conn *c, uint64_t incarnation)
{
    c->state = SOCK_CONN_UP;
    sp->alive_us = reactor_now_us();
    c->rx_us = sp->alive_us;
    c->tx_us = sp->alive_us;
    c->stream->ops->established(c->stream, lnd_setting(&sp->sni->base.ni->lnd_tun.tos));
    sock_rx_open(c);
    lnd_peer_note(&sp->base, incarnation);
    lnd_conn_up(&sp->base, &c->base);
    flush_queue(sp);
    sock_ready(c); /* frames may have come with the HELLO */
}

void sock_peer_close(struct sock_peer *sp, const struct lnd_close *why, const struct lnet_hdr *hdr)
{
    if (why->event != LNET_DROP_NONE)
        lnd_drop(&sp->sni->base, why->event, &sp->base.peer->nid, hdr);
    lnd_peer_close(&sp->base, why);
}

void sock_peer_restarted(struct sock_peer *sp, uint64_t incarnation)
{
    static const struct lnd_close why = {
        .cause = SOCK_DROP(HELLO_STALE),
        LND_CLOSE_LOST,
        .begun = LNET_HEALTH_LOCAL_ERROR,
    };

    lnd_peer_note(&sp->base, incarnation);
    sock_peer_close(sp, &why, NULL);
}

void sock_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    const struct sock_conn *c;
    struct stream_stats st;

    memset(out, 0, sizeof(*out));
    for (struct lnd_peer_ni *lp = peer->lnd_peer; lp; lp = lp->next_of_peer) {
        const struct sock_peer *sp = sock_peer_of(lp);

        for (int i = 0; i < 4; i++)
            out->conns[i] += sp->count[i];
        out->connecting += sp->base.connecting != LND_CONNECT_IDLE;
        out->bytes_in += sp->base.bytes_in;
        out->bytes_out += sp->base.bytes_out;
        SOCK_CONN_FOREACH(c, sp) {
            c->stream->ops->stats(c->stream, &st);
            out->bytes_in += st.bytes_in;
            out->bytes_out += st.bytes_out;
            out->taken += st.bytes_out - st.unacked;
            out->owed += c->txq_bytes + st.unacked;
        }
    }
}

/* ---- checks, four times per timeout, §3.5 ---- */

static void keepalive(struct sock_peer *sp, uint64_t now)
{
    uint64_t idle = sp->sni->sock->opts.keepalive * LND_SEC;
    struct sock_conn *c;

    if (idle == 0 || now < sp->alive_us + idle ||
        (sp->ping_us != 0 && now < sp->ping_us + SOCK_PING_GAP))
        return;
    SOCK_CONN_FOREACH(c, sp) {
        if (c->type != SOCK_CTYPE_BULK_IN || !sock_tx_idle(c))
            continue;
        sp->ping_us = now;
        sock_tx_ack(c, SOCK_COOKIE_PING);
        return;
    }
}

void sock_peer_probe(struct sock_peer *sp)
{
    struct sock_conn *c = sock_conn_of(TAILQ_LAST(&sp->base.conns, lnd_conns)), *i;

    SOCK_CONN_FOREACH(i, sp) {
        if (i->type == SOCK_CTYPE_BULK_IN)
            c = i;
    }
    if (c && sock_tx_idle(c) && reactor_now_us() - sp->alive_us >= SOCK_DOUBT)
        sock_tx_ack(c, SOCK_COOKIE_PING);
}

static void poll_timer(struct reactor_timer *t)
{
    struct sock_peer *sp = container_of(t, struct sock_peer, poll_timer);
    uint64_t now = reactor_now_us();
    struct sock_conn *c;

    arm_poll(sp);
    if (sp->base.nconns == 0)
        return;
    lnd_peer_hold(&sp->base);
    SOCK_CONN_FOREACH(c, sp) {
        if (!sock_conn_check(c, now))
            break; /* all are closed */
    }
    keepalive(sp, now);
    lnd_peer_release(&sp->base);
}
