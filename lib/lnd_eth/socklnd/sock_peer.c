/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connections of one peer NI on one NI: which of them takes a message, messages that wait for
 * one, closing them together, liveness. docs/protocol/socklnd.md §3, §6.
 */
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <string.h>

/* ---- life ---- */

static void poll_timer(struct reactor_timer *t);
static void queue_timer(struct reactor_timer *t);

static void arm_poll(struct sock_peer *sp)
{
    uint64_t period = sock_timeout_us(sp->sni) / 4;
    uint64_t half_keepalive = sp->sni->sock->opts.keepalive * SOCK_SEC / 2;

    if (half_keepalive > 0 && half_keepalive < period)
        period = half_keepalive;
    reactor_timer_arm(&sp->poll_timer, period);
}

struct sock_peer *sock_peer_find(const struct sock_ni *sni, const struct lnet_peer_ni *peer)
{
    struct sock_peer *sp = peer->lnd_peer;

    while (sp && sp->sni != sni)
        sp = sp->next_of_peer;
    return sp;
}

struct sock_peer *sock_peer_get(struct sock_ni *sni, struct lnet_peer_ni *peer)
{
    struct sock_shard *shard = &sni->sock->shards[reactor_index(reactor_self())];
    struct sock_peer *sp = sock_peer_find(sni, peer);

    if (sp)
        return sp;
    sp = sock_peer_alloc(shard);
    if (!sp && sock_peer_forget_one(shard))
        sp = sock_peer_alloc(shard);
    if (!sp)
        return NULL;
    lnet_peer_hold(peer);
    sp->sni = sni;
    sp->peer = peer;
    sp->version = sock_hello_version(sni);
    sp->queue_tail = &sp->queue;
    sp->alive_us = reactor_now_us();
    TAILQ_INIT(&sp->conns);
    reactor_timer_init(&sp->queue_timer, queue_timer);
    reactor_timer_init(&sp->poll_timer, poll_timer);
    reactor_timer_init(&sp->dial.timer, sock_dial_timer);
    sp->next_of_peer = peer->lnd_peer;
    peer->lnd_peer = sp;
    TAILQ_INSERT_TAIL(&sock_ns(sp)->peers, sp, link);
    arm_poll(sp);
    return sp;
}

static bool in_use(const struct sock_peer *sp)
{
    return sp->busy > 0 || sp->objects > 0 || sp->queue || sp->dial.state != SOCK_DIAL_IDLE;
}

/* A peer that failed is remembered for a while, so that its back-off goes on growing. */
static bool needed(const struct sock_peer *sp)
{
    const struct sock_opts *o = &sp->sni->sock->opts;

    if (in_use(sp))
        return true;
    if (sock_ns(sp)->stopping || sp->dial.interval == 0)
        return false;
    return reactor_now_us() < sp->dial.next_us + o->max_reconnect * SOCK_SEC;
}

static void spare_set(struct sock_peer *sp, bool spare)
{
    if (sp->spare == spare)
        return;
    sp->spare = spare;
    if (spare)
        TAILQ_INSERT_TAIL(&sp->shard->spare, sp, spare_link);
    else
        TAILQ_REMOVE(&sp->shard->spare, sp, spare_link);
}

static void forget(struct sock_peer *sp)
{
    struct lnet_peer_ni *peer = sp->peer;
    struct sock_ni_shard *ns = sock_ns(sp);
    struct sock_peer **at = (struct sock_peer **)&peer->lnd_peer;

    spare_set(sp, false);
    while (*at != sp)
        at = &(*at)->next_of_peer;
    *at = sp->next_of_peer;
    TAILQ_REMOVE(&ns->peers, sp, link);
    reactor_timer_cancel(&sp->queue_timer);
    reactor_timer_cancel(&sp->poll_timer);
    reactor_timer_cancel(&sp->dial.timer);
    sock_peer_free(sp);
    lnet_peer_put(peer);
    sock_ni_progress(ns);
}

/* Whoever sends can name any number of destinations that cannot be reached: what is only remembered
 * of them must not keep others out. */
bool sock_peer_forget_one(struct sock_shard *shard)
{
    struct sock_peer *sp = TAILQ_FIRST(&shard->spare);

    if (!sp)
        return false;
    forget(sp);
    return true;
}

void sock_peer_hold(struct sock_peer *sp)
{
    sp->busy++;
    spare_set(sp, false);
}

void sock_peer_release(struct sock_peer *sp)
{
    /* An idle peer that was never called goes with the next look at it. */
    if (--sp->busy > 0)
        return;
    if (sock_ns(sp)->stopping && !needed(sp))
        forget(sp);
    else
        spare_set(sp, !in_use(sp));
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
    TAILQ_FOREACH(c, &sp->conns, link) {
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
    struct sock_conn *c = TAILQ_FIRST(&sp->conns);

    while (c && c->type != type)
        c = TAILQ_NEXT(c, link);
    return c;
}

/* Where there is no choice it need not be made for each message. */
static void conns_changed(struct sock_peer *sp)
{
    for (int bulk = 0; bulk < 2; bulk++) {
        enum sock_ctype best = bulk ? SOCK_CTYPE_BULK_OUT : SOCK_CTYPE_CONTROL;
        enum sock_ctype other = bulk ? SOCK_CTYPE_CONTROL : SOCK_CTYPE_BULK_OUT;
        enum sock_ctype type = sp->count[best] > 0 ? best : other;

        sp->only[bulk] = sp->count[type] == 1 ? only_of_type(sp, type) : NULL;
    }
}

/* ---- sending ---- */

static void fail_msg(struct lnet_msg *msg, enum lnet_drop reason, enum lnet_health health)
{
    lnet_send_done(msg, (struct lnet_result){reason, health});
}

/* Frame header and LNet header, as the peer's version wants them, are encoded when they are sent.
 */
static enum lnet_drop prepare(const struct sock_peer *sp, struct lnet_msg *msg)
{
    bool large = sp->version == SOCK_HELLO_V4;

    msg->lnd_hdr_len = SOCK_FRAME_SIZE + (large ? LNET_HDR16_SIZE : LNET_HDR4_SIZE);
    msg->lnd_sent = 0;
    msg->lnd_next = NULL;
    return large || lnet_hdr_fits4(&msg->hdr) ? LNET_DROP_NONE : LNET_DROP_LARGE_NID_ON_NID4;
}

static void queue_timer_set(struct sock_peer *sp)
{
    uint64_t now = reactor_now_us();

    if (!sp->queue)
        reactor_timer_cancel(&sp->queue_timer);
    else
        reactor_timer_arm(&sp->queue_timer,
                          sp->queue->lnd_deadline_us > now ? sp->queue->lnd_deadline_us - now : 0);
}

static void enqueue(struct sock_peer *sp, struct lnet_msg *msg)
{
    msg->lnd_deadline_us = reactor_now_us() + sock_timeout_us(sp->sni);
    *sp->queue_tail = msg;
    sp->queue_tail = &msg->lnd_next;
    if (sp->queue == msg)
        queue_timer_set(sp);
}

static struct lnet_msg *dequeue(struct sock_peer *sp)
{
    struct lnet_msg *msg = sp->queue;

    sp->queue = msg->lnd_next;
    if (!sp->queue)
        sp->queue_tail = &sp->queue;
    msg->lnd_next = NULL;
    return msg;
}

/* All wait equally long, so the first is the first to expire. */
static void queue_timer(struct reactor_timer *t)
{
    struct sock_peer *sp = sock_container(t, struct sock_peer, queue_timer);

    sock_peer_hold(sp);
    while (sp->queue && sp->queue->lnd_deadline_us <= reactor_now_us())
        fail_msg(dequeue(sp), LNET_DROP_NEXT_HOP_TIMEOUT, LNET_HEALTH_NETWORK_TIMEOUT);
    queue_timer_set(sp);
    sock_peer_release(sp);
}

void sock_peer_fail_queue(struct sock_peer *sp, enum lnet_drop reason, enum lnet_health health)
{
    struct lnet_msg *last = NULL, *msg = sp->queue;

    /* What the core sends anew while it hears of these is not among them. */
    sp->queue = NULL;
    sp->queue_tail = &sp->queue;
    queue_timer_set(sp);
    sock_peer_hold(sp);
    while (msg) {
        last = msg;
        msg = msg->lnd_next;
        fail_msg(last, reason, health);
    }
    sock_peer_release(sp);
}

static void flush_queue(struct sock_peer *sp)
{
    struct lnet_msg **at = &sp->queue;

    while (*at) {
        struct lnet_msg *msg = *at;
        struct sock_conn *c = choose(sp, msg->lnd_hdr_len + msg->payload.bytes);

        if (!c) {
            at = &msg->lnd_next;
            continue;
        }
        *at = msg->lnd_next;
        sock_tx_queue(c, msg);
    }
    sp->queue_tail = at;
    queue_timer_set(sp);
}

void sock_send(struct lnet_msg *msg)
{
    struct sock_ni *sni = msg->tx_ni->lnd_ni;
    struct sock_ni_shard *ns = &sni->shard[reactor_index(reactor_self())];
    struct sock_peer *sp;
    struct sock_conn *c;
    enum lnet_drop drop;

    if (ns->stopping || !ns->started) {
        fail_msg(msg, LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
        return;
    }
    sp = sock_peer_get(sni, msg->tx_peer);
    if (!sp) {
        fail_msg(msg, LNET_DROP_NO_PEER_MEMORY, LNET_HEALTH_LOCAL_ERROR);
        return;
    }
    drop = prepare(sp, msg);
    if (drop != LNET_DROP_NONE) {
        fail_msg(msg, drop, LNET_HEALTH_OK); /* says nothing about the health of either side */
        return;
    }
    c = choose(sp, msg->lnd_hdr_len + msg->payload.bytes);
    sock_peer_hold(sp);
    if (c) {
        sock_tx_queue(c, msg);
        sock_dial_complete(sp);
    } else if (sp->dial.state != SOCK_DIAL_IDLE) {
        enqueue(sp, msg);
    } else if (!sock_dial_may(sp)) {
        fail_msg(msg, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR);
    } else {
        enqueue(sp, msg);
        sock_dial_start(sp);
    }
    sock_peer_release(sp);
}

/* ---- what watchers are told ---- */

static void tell(const struct sock_peer *sp, enum lnet_event_kind kind, enum lnet_drop drop,
                 const char *cause)
{
    struct lnet_event_row row = {.kind = kind, .nid = sp->peer->nid, .drop = drop, .cause = cause};

    lnet_event_post(sp->sni->ni->node, &row);
}

/* On any of our NIs. */
static bool is_connected(const struct lnet_peer_ni *peer)
{
    const struct sock_peer *sp = peer->lnd_peer;

    while (sp && TAILQ_EMPTY(&sp->conns))
        sp = sp->next_of_peer;
    return sp != NULL;
}

static void tell_gone(const struct sock_peer *sp, const struct sock_why *why)
{
    enum lnet_drop drop = why->event != LNET_DROP_NONE ? why->event : why->cause;

    if (drop == LNET_DROP_SHUTDOWN && __atomic_load_n(&sp->sni->ni->removed, __ATOMIC_RELAXED))
        drop = LNET_DROP_NI_REMOVED;
    tell(sp, LNET_EV_PEER_DOWN, drop, drop == LNET_DROP_NONE ? "closed_by_peer" : NULL);
}

/* The peer says in which incarnation it is. */
static void note_incarnation(const struct sock_peer *sp, uint64_t incarnation)
{
    struct lnet_peer_ni *peer = sp->peer;

    if (peer->incarnation != 0 && peer->incarnation != incarnation)
        tell(sp, LNET_EV_PEER_RESTART, LNET_DROP_NONE, "new_incarnation");
    peer->incarnation = incarnation;
}

/* ---- connections come and go ---- */

void sock_peer_conn_up(struct sock_peer *sp, struct sock_conn *c, uint64_t incarnation)
{
    bool first = TAILQ_EMPTY(&sp->conns), first_of_all = !is_connected(sp->peer);

    c->state = SOCK_CONN_UP;
    c->listed = true;
    TAILQ_INSERT_TAIL(&sp->conns, c, link);
    sp->count[c->type]++;
    conns_changed(sp);
    sp->incarnation = incarnation;
    sp->alive_us = reactor_now_us();
    c->rx_us = sp->alive_us;
    c->tx_us = sp->alive_us;
    c->stream->ops->established(c->stream, sock_setting(&sp->sni->ni->lnd_tun.tos));
    sock_rx_open(c);
    note_incarnation(sp, incarnation);
    if (first_of_all)
        tell(sp, LNET_EV_PEER_UP, LNET_DROP_NONE, c->dialled ? "called" : "accepted");
    if (first)
        lnet_peer_notify(sp->sni->ni, sp->peer, true);
    flush_queue(sp);
    sock_ready(c); /* frames may have come with the HELLO */
}

static void close_listed(struct sock_peer *sp, const struct sock_why *why)
{
    struct sock_conn *c, *list = NULL;

    while ((c = TAILQ_LAST(&sp->conns, sock_conns))) {
        TAILQ_REMOVE(&sp->conns, c, link);
        sp->count[c->type]--;
        c->listed = false;
        c->next = list;
        list = c;
        sock_conn_hold(c);
    }
    conns_changed(sp);
    while ((c = list)) {
        list = c->next;
        sock_conn_close(c, why);
        sock_conn_release(c);
    }
}

void sock_peer_close(struct sock_peer *sp, const struct sock_why *why, const struct lnet_hdr *hdr)
{
    bool had = !TAILQ_EMPTY(&sp->conns);

    sock_peer_hold(sp);
    if (why->event != LNET_DROP_NONE)
        sock_event(sp->sni, why->event, &sp->peer->nid, hdr);
    sp->dial.complete = false;
    if (sp->dial.state == SOCK_DIAL_IDLE)
        sp->dial.record = false; /* who begins the next set decides who completes it */
    close_listed(sp, why);
    if (had && !is_connected(sp->peer))
        tell_gone(sp, why);
    if (had && why->event != LNET_DROP_NONE && TAILQ_EMPTY(&sp->conns) && !sock_ns(sp)->stopping)
        lnet_peer_notify(sp->sni->ni, sp->peer, false);
    sock_peer_release(sp);
}

void sock_peer_restarted(struct sock_peer *sp, uint64_t incarnation)
{
    static const struct sock_why why = {
        .cause = LNET_DROP_TCP_HELLO_STALE,
        .tx = LNET_DROP_NEXT_HOP_LOST,
        .rx = LNET_DROP_RX_INCOMPLETE,
        .tx_health = LNET_HEALTH_LOCAL_ERROR,
        .begun_health = LNET_HEALTH_LOCAL_ERROR,
    };

    note_incarnation(sp, incarnation);
    sock_peer_close(sp, &why, NULL);
}

/* Ends everything, told to the messages as `why`. */
static void close_all(struct sock_peer *sp, enum lnet_drop why)
{
    struct sock_why w = {
        .cause = why,
        .tx = why,
        .rx = why == LNET_DROP_SHUTDOWN ? why : LNET_DROP_RX_INCOMPLETE,
        .tx_health = LNET_HEALTH_LOCAL_ERROR,
        .begun_health = LNET_HEALTH_LOCAL_ERROR,
    };

    sock_peer_hold(sp);
    sock_dial_cancel(sp);
    sock_peer_fail_queue(sp, why, LNET_HEALTH_REMOTE_DROPPED);
    sock_peer_close(sp, &w, NULL);
    sock_peer_release(sp);
}

void sock_peer_shutdown(struct sock_peer *sp)
{
    close_all(sp, LNET_DROP_SHUTDOWN);
}

void sock_peer_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why)
{
    struct sock_peer *sp = sock_peer_find(ni->lnd_ni, peer);

    if (sp)
        close_all(sp, why);
}

void sock_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    const struct sock_conn *c;
    struct stream_stats st;

    memset(out, 0, sizeof(*out));
    for (const struct sock_peer *sp = peer->lnd_peer; sp; sp = sp->next_of_peer) {
        for (int i = 0; i < 4; i++)
            out->conns[i] += sp->count[i];
        out->connecting += sp->dial.state != SOCK_DIAL_IDLE;
        out->bytes_in += sp->bytes_in;
        out->bytes_out += sp->bytes_out;
        TAILQ_FOREACH(c, &sp->conns, link) {
            c->stream->ops->stats(c->stream, &st);
            out->bytes_in += st.bytes_in;
            out->bytes_out += st.bytes_out;
        }
    }
}

/* ---- looked at four times per timeout, §3.5 ---- */

static void keepalive(struct sock_peer *sp, uint64_t now)
{
    uint64_t idle = sp->sni->sock->opts.keepalive * SOCK_SEC;
    struct sock_conn *c;

    if (idle == 0 || now < sp->alive_us + idle ||
        (sp->ping_us != 0 && now < sp->ping_us + SOCK_PING_GAP))
        return;
    TAILQ_FOREACH(c, &sp->conns, link) {
        if (c->type != SOCK_CTYPE_BULK_IN || !sock_tx_idle(c))
            continue;
        sp->ping_us = now;
        sock_tx_ack(c, SOCK_COOKIE_PING);
        return;
    }
}

void sock_peer_probe(struct sock_peer *sp)
{
    struct sock_conn *c = TAILQ_LAST(&sp->conns, sock_conns), *i;

    TAILQ_FOREACH(i, &sp->conns, link) {
        if (i->type == SOCK_CTYPE_BULK_IN)
            c = i;
    }
    if (c && sock_tx_idle(c) && reactor_now_us() - sp->alive_us >= SOCK_DOUBT)
        sock_tx_ack(c, SOCK_COOKIE_PING);
}

static void poll_timer(struct reactor_timer *t)
{
    struct sock_peer *sp = sock_container(t, struct sock_peer, poll_timer);
    uint64_t now = reactor_now_us();
    struct sock_conn *c;

    sock_peer_hold(sp);
    arm_poll(sp);
    TAILQ_FOREACH(c, &sp->conns, link) {
        if (!sock_conn_check(c, now))
            break; /* all are closed */
    }
    keepalive(sp, now);
    sp->busy--;
    if (needed(sp))
        spare_set(sp, !in_use(sp));
    else
        forget(sp);
}
