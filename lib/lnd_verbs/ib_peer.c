/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connections of one peer NI on one NI: which of them takes a message, messages that wait for
 * one, closing them together, what the core and watchers are told. docs/protocol/o2iblnd.md §1.10,
 * §6.
 */
#include "lib/lnd_verbs/ib_internal.h"

#include <assert.h>
#include <string.h>

#define QUEUE_SLACK (10 * IB_SEC) /* beyond the time that one call may take, §6.1 */

/* ---- life ---- */

static void queue_timer(struct reactor_timer *t);

struct ib_peer *ib_peer_find(const struct ib_ni *ini, const struct lnet_peer_ni *peer)
{
    struct ib_peer *p = peer->lnd_peer;

    while (p && p->ini != ini)
        p = p->next_of_peer;
    return p;
}

struct ib_peer *ib_peer_get(struct ib_ni *ini, struct lnet_peer_ni *peer)
{
    struct ib_shard *shard = &ini->lv->shards[reactor_index(reactor_self())];
    struct ib_peer *p = ib_peer_find(ini, peer);

    if (p)
        return p;
    p = ib_peer_alloc(shard);
    if (!p && ib_peer_forget_one(shard))
        p = ib_peer_alloc(shard);
    if (!p)
        return NULL;
    lnet_peer_hold(peer);
    p->ini = ini;
    p->peer = peer;
    p->queue_tail = &p->queue;
    p->depth_max = IB_DEPTH_MAX;
    TAILQ_INIT(&p->conns);
    TAILQ_INIT(&p->making);
    reactor_timer_init(&p->queue_timer, queue_timer);
    ib_dial_init(p);
    p->next_of_peer = peer->lnd_peer;
    peer->lnd_peer = p;
    TAILQ_INSERT_TAIL(&ib_ns(p)->peers, p, link);
    return p;
}

static bool in_use(const struct ib_peer *p)
{
    return p->busy > 0 || p->objects > 0 || p->queue || p->dial.state != IB_DIAL_IDLE;
}

static void spare_set(struct ib_peer *p, bool spare)
{
    if (p->spare == spare)
        return;
    p->spare = spare;
    if (spare)
        TAILQ_INSERT_TAIL(&p->shard->spare, p, spare_link);
    else
        TAILQ_REMOVE(&p->shard->spare, p, spare_link);
}

static void forget(struct ib_peer *p)
{
    struct lnet_peer_ni *peer = p->peer;
    struct ib_ni_shard *ns = ib_ns(p);
    struct ib_peer **at = (struct ib_peer **)&peer->lnd_peer;

    spare_set(p, false);
    while (*at != p)
        at = &(*at)->next_of_peer;
    *at = p->next_of_peer;
    TAILQ_REMOVE(&ns->peers, p, link);
    reactor_timer_cancel(&p->queue_timer);
    reactor_timer_cancel(&p->dial.timer);
    ib_peer_free(p);
    lnet_peer_put(peer);
    ib_ni_progress(ns);
}

/* Whoever sends can name any number of destinations that cannot be reached: what is only remembered
 * of them must not keep others out. */
bool ib_peer_forget_one(struct ib_shard *shard)
{
    struct ib_peer *p = TAILQ_FIRST(&shard->spare);

    if (!p)
        return false;
    forget(p);
    return true;
}

void ib_peer_hold(struct ib_peer *p)
{
    p->busy++;
    spare_set(p, false);
}

void ib_peer_release(struct ib_peer *p)
{
    if (--p->busy > 0 || in_use(p))
        return;
    if (ib_ns(p)->stopping) {
        forget(p);
        return;
    }
    /* What was learned of it (incarnation, depths, back-off) is worth keeping for a while. */
    spare_set(p, true);
    ib_dial_linger(p);
}

void ib_peer_lingered(struct ib_peer *p)
{
    if (!in_use(p))
        forget(p);
}

/* ---- sending ---- */

static void fail_msg(struct lnet_msg *msg, enum lnet_drop reason, enum lnet_health health)
{
    lnet_send_done(msg, (struct lnet_result){reason, health});
}

static void queue_timer_set(struct ib_peer *p)
{
    uint64_t now = reactor_now_us();

    if (!p->queue)
        reactor_timer_cancel(&p->queue_timer);
    else
        reactor_timer_arm(&p->queue_timer,
                          p->queue->lnd_deadline_us > now ? p->queue->lnd_deadline_us - now : 0);
}

static void enqueue(struct ib_peer *p, struct lnet_msg *msg)
{
    msg->lnd_deadline_us = reactor_now_us() + ib_answer_us(p->ini) + QUEUE_SLACK;
    msg->lnd_next = NULL;
    *p->queue_tail = msg;
    p->queue_tail = &msg->lnd_next;
    if (p->queue == msg)
        queue_timer_set(p);
}

static struct lnet_msg *dequeue(struct ib_peer *p)
{
    struct lnet_msg *msg = p->queue;

    p->queue = msg->lnd_next;
    if (!p->queue)
        p->queue_tail = &p->queue;
    msg->lnd_next = NULL;
    return msg;
}

/* The first is the first to expire, or nearly, should the timeout have been changed. */
static void queue_timer(struct reactor_timer *t)
{
    struct ib_peer *p = ib_container(t, struct ib_peer, queue_timer);

    ib_peer_hold(p);
    while (p->queue && p->queue->lnd_deadline_us <= reactor_now_us())
        fail_msg(dequeue(p), LNET_DROP_NEXT_HOP_TIMEOUT, LNET_HEALTH_NETWORK_TIMEOUT);
    queue_timer_set(p);
    ib_peer_release(p);
}

void ib_peer_fail_queue(struct ib_peer *p, enum lnet_drop reason, enum lnet_health health)
{
    struct lnet_msg *last = NULL, *msg = p->queue;

    /* What the core sends anew while it hears of these is not among them. */
    p->queue = NULL;
    p->queue_tail = &p->queue;
    queue_timer_set(p);
    ib_peer_hold(p);
    while (msg) {
        last = msg;
        msg = msg->lnd_next;
        last->lnd_next = NULL;
        fail_msg(last, reason, health);
    }
    ib_peer_release(p);
}

/* They take turns, §1.10. */
static struct ib_conn *choose(struct ib_peer *p)
{
    struct ib_conn *c = TAILQ_FIRST(&p->conns);

    if (p->nconns > 1) {
        TAILQ_REMOVE(&p->conns, c, link_of_peer);
        TAILQ_INSERT_TAIL(&p->conns, c, link_of_peer);
    }
    return c;
}

/* A connection may be lost by what is sent on it. */
static void flush_queue(struct ib_peer *p)
{
    while (p->queue && !TAILQ_EMPTY(&p->conns)) {
        struct lnet_msg *msg = dequeue(p);

        ib_conn_send(choose(p), msg);
    }
    queue_timer_set(p);
    if (p->queue)
        ib_dial_start(p);
}

static void send_by_peer(struct ib_peer *p, struct lnet_msg *msg)
{
    if (!TAILQ_EMPTY(&p->conns)) {
        ib_conn_send(choose(p), msg);
        ib_dial_complete(p);
    } else if (p->dial.state != IB_DIAL_IDLE || p->accepting > 0) {
        enqueue(p, msg);
    } else if (!ib_dial_may(p)) {
        fail_msg(msg, LNET_DROP_NEXT_HOP_DOWN, p->dial.health);
    } else {
        enqueue(p, msg);
        ib_dial_start(p);
    }
}

void ib_send(struct lnet_msg *msg)
{
    struct ib_ni *ini = msg->tx_ni->lnd_ni;
    struct ib_ni_shard *ns = &ini->shard[reactor_index(reactor_self())];
    struct ib_peer *p;

    if (ns->stopping || !ns->started) {
        fail_msg(msg, LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
        return;
    }
    /* Says nothing about the health of either side. §2.6 */
    if (!lnet_hdr_fits4(&msg->hdr) || !nid_is_nid4(&msg->tx_peer->nid)) {
        fail_msg(msg, LNET_DROP_LARGE_NID_ON_NID4, LNET_HEALTH_OK);
        return;
    }
    p = ib_peer_get(ini, msg->tx_peer);
    if (!p) {
        fail_msg(msg, LNET_DROP_NO_PEER_MEMORY, LNET_HEALTH_LOCAL_ERROR);
        return;
    }
    ib_peer_hold(p);
    send_by_peer(p, msg);
    ib_peer_release(p);
}

/* ---- what watchers are told ---- */

static void tell(const struct ib_peer *p, enum lnet_event_kind kind, enum lnet_drop drop,
                 const char *cause)
{
    struct lnet_event_row row = {.kind = kind, .nid = p->peer->nid, .drop = drop, .cause = cause};

    lnet_event_post(p->ini->ni->node, &row);
}

/* On any of our NIs. */
static bool is_connected(const struct lnet_peer_ni *peer)
{
    const struct ib_peer *p = peer->lnd_peer;

    while (p && TAILQ_EMPTY(&p->conns))
        p = p->next_of_peer;
    return p != NULL;
}

static void tell_gone(const struct ib_peer *p, const struct ib_cause *why)
{
    enum lnet_drop drop = why->event != LNET_DROP_NONE ? why->event : why->cause;

    if (drop == LNET_DROP_SHUTDOWN && __atomic_load_n(&p->ini->ni->removed, __ATOMIC_RELAXED))
        drop = LNET_DROP_NI_REMOVED;
    tell(p, LNET_EV_PEER_DOWN, drop, drop == LNET_DROP_NONE ? "closed_by_peer" : NULL);
}

void ib_peer_note(struct ib_peer *p, uint64_t stamp)
{
    struct lnet_peer_ni *peer = p->peer;

    if (peer->incarnation != 0 && peer->incarnation != stamp)
        tell(p, LNET_EV_PEER_RESTART, LNET_DROP_NONE, "new_incarnation");
    peer->incarnation = stamp;
    if (p->stamp != 0 && p->stamp != stamp) { /* what it agreed to before may be otherwise now */
        p->depth_max = IB_DEPTH_MAX;
        p->dial.ask.mine = p->ini->terms;
    }
    p->stamp = stamp;
}

/* ---- connections come and go ---- */

static void stage_timer(struct reactor_timer *t)
{
    struct ib_conn *c = ib_container(t, struct ib_conn, setup);
    struct rdma_event late = {.kind = RDMA_EV_FAILED, .error = -ETIMEDOUT};

    ib_link_event(&c->link, &late);
}

struct ib_conn *ib_conn_new(struct ib_peer *p, bool active)
{
    struct ib_conn *c = ib_conn_alloc(p->shard);

    if (!c)
        return NULL;
    c->ibp = p;
    c->active = active;
    c->state = active ? IB_CONN_RESOLVING : IB_CONN_OPENING;
    c->link.event = ib_link_event;
    c->link.port = &p->ini->port->port;
    c->link.home = p->shard->reactor;
    TAILQ_INIT(&c->free_txs);
    TAILQ_INIT(&c->answers);
    TAILQ_INIT(&c->active_txs);
    TAILQ_INIT(&c->early);
    c->rsrvd_tail = &c->rsrvd;
    c->sendq_tail = &c->sendq;
    c->ends = (struct ib_ends){
        .my_nid = p->ini->terms.nid,
        .my_stamp = p->ini->terms.stamp,
        .peer_nid = nid_to_u64(&p->peer->nid),
    };
    reactor_timer_init(&c->setup, stage_timer);
    TAILQ_INSERT_TAIL(&p->making, c, link_of_peer);
    p->objects++;
    if (!active) {
        p->accepting++;
        p->shard->accepting++;
    }
    return c;
}

static void made(struct ib_conn *c)
{
    struct ib_peer *p = c->ibp;

    reactor_timer_cancel(&c->setup);
    TAILQ_REMOVE(&p->making, c, link_of_peer);
    if (!c->active) {
        p->accepting--;
        p->shard->accepting--;
    }
    if (p->dial.conn == c)
        p->dial.conn = NULL;
}

void ib_conn_unmake(struct ib_conn *c, const struct ib_cause *why)
{
    made(c);
    ib_conn_close(c, why);
}

/* What waited for that call to come up is called for now, or fails. */
void ib_peer_call_over(struct ib_peer *p)
{
    if (!p->queue || p->nconns > 0 || p->accepting > 0 || p->dial.state != IB_DIAL_IDLE)
        return;
    if (ib_dial_may(p))
        ib_dial_start(p);
    else
        ib_peer_fail_queue(p, LNET_DROP_NEXT_HOP_DOWN, p->dial.health);
}

void ib_link_event(struct rdma_link *link, const struct rdma_event *ev)
{
    struct ib_conn *c = ib_container(link, struct ib_conn, link);
    struct ib_peer *p = c->ibp;

    ib_peer_hold(p);
    switch (c->state) {
    case IB_CONN_RESOLVING:
    case IB_CONN_OPENING:
    case IB_CONN_CONNECTING:
    case IB_CONN_ACCEPTING:
        if (c->active)
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
    ib_peer_release(p);
}

/* Connections of another life of the node do not end by themselves. */
static bool is_restart(const struct ib_peer *p, uint64_t stamp)
{
    return p->stamp != 0 && p->stamp != stamp && (p->nconns > 0 || p->accepting > 0);
}

void ib_peer_conn_up(struct ib_peer *p, struct ib_conn *c)
{
    struct ib_ni_shard *ns = ib_ns(p);
    bool first, first_of_all;

    ib_peer_hold(p);
    made(c);
    if (is_restart(p, c->ends.peer_stamp))
        ib_peer_restarted(p, c->ends.peer_stamp);
    ib_peer_note(p, c->ends.peer_stamp);
    first = TAILQ_EMPTY(&p->conns);
    first_of_all = !is_connected(p->peer);
    p->races = 0;
    p->dial.interval = 0; /* whoever called: it can be reached again */
    p->dial.next_us = 0;
    c->state = IB_CONN_UP;
    c->listed = true;
    c->up_us = reactor_now_us();
    TAILQ_INSERT_TAIL(&p->conns, c, link_of_peer);
    p->nconns++;
    ib_count(&ns->count.conns, 1);
    ib_count(c->active ? &ns->count.dialled : &ns->count.accepted, 1);
    if (first_of_all)
        tell(p, LNET_EV_PEER_UP, LNET_DROP_NONE, c->active ? "called" : "accepted");
    if (first)
        lnet_peer_notify(p->ini->ni, p->peer, true);
    ib_conn_up(c);
    flush_queue(p);
    ib_peer_release(p);
}

static void unlist(struct ib_peer *p, struct ib_conn *c)
{
    struct ib_ni_shard *ns = ib_ns(p);

    TAILQ_REMOVE(&p->conns, c, link_of_peer);
    p->nconns--;
    c->listed = false;
    ib_count(&ns->count.conns, (uint64_t)-1);
    ib_count(&ns->count.closed, 1);
}

/* Its last connection has gone. */
static void all_gone(struct ib_peer *p, const struct ib_cause *why)
{
    if (!is_connected(p->peer))
        tell_gone(p, why);
    if (why->event != LNET_DROP_NONE && !ib_ns(p)->stopping)
        lnet_peer_notify(p->ini->ni, p->peer, false);
}

void ib_peer_conn_down(struct ib_peer *p, struct ib_conn *c, const struct ib_cause *why,
                       const struct lnet_hdr *hdr)
{
    if (!c->listed) /* it is being closed already */
        return;
    ib_peer_hold(p);
    ib_blame(c, NULL, 0);
    if (why->event != LNET_DROP_NONE)
        ib_peer_failed(p, why->event, hdr, &c->blame);
    unlist(p, c);
    ib_conn_close(c, why);
    if (TAILQ_EMPTY(&p->conns))
        all_gone(p, why);
    ib_peer_release(p);
}

void ib_peer_conn_gone(struct ib_conn *c)
{
    struct ib_peer *p = c->ibp;

    ib_peer_hold(p);
    p->bytes_in += c->bytes_in;
    p->bytes_out += c->bytes_out;
    ib_conn_free(c);
    p->objects--;
    ib_peer_release(p);
}

/* All that are up. Closing one tells the core of its messages, which may send others. */
static void close_listed(struct ib_peer *p, const struct ib_cause *why)
{
    struct ib_conn *c, *list = NULL;

    while ((c = TAILQ_FIRST(&p->conns))) {
        unlist(p, c);
        c->next = list;
        list = c;
        ib_conn_hold(c);
    }
    while ((c = list)) {
        list = c->next;
        ib_conn_close(c, why);
        ib_conn_release(c);
    }
}

/* Those that called and are not up; not those of the life *but. The stamp is the peer's word, so no
 * value of it stands for none. */
static void close_called(struct ib_peer *p, const uint64_t *but, const struct ib_cause *why)
{
    struct ib_conn *next;

    for (struct ib_conn *c = TAILQ_FIRST(&p->making); c; c = next) {
        next = TAILQ_NEXT(c, link_of_peer);
        if (!c->active && (!but || c->ends.peer_stamp != *but))
            ib_conn_unmake(c, why);
    }
}

void ib_peer_restarted(struct ib_peer *p, uint64_t stamp)
{
    static const struct ib_cause why = {
        .cause = LNET_DROP_O2IB_CONN_RESTARTED,
        .tx = LNET_DROP_NEXT_HOP_LOST,
        .rx = LNET_DROP_RX_INCOMPLETE,
        .queued = LNET_HEALTH_LOCAL_ERROR,
        .sending = LNET_HEALTH_REMOTE_DROPPED,
    };
    bool had = p->nconns > 0;

    ib_peer_hold(p);
    ib_peer_note(p, stamp);
    close_called(p, &stamp, &why);
    close_listed(p, &why);
    if (had && TAILQ_EMPTY(&p->conns))
        all_gone(p, &why);
    ib_peer_release(p);
}

/* Ends everything, told to the messages as a reason of the core's. */
static void close_all(struct ib_peer *p, enum lnet_drop reason)
{
    const struct ib_cause *why = &p->shard->lv->aborts[reason];
    bool had = p->nconns > 0;

    ib_peer_hold(p);
    ib_dial_cancel(p);
    close_called(p, NULL, why);
    ib_peer_fail_queue(p, reason, LNET_HEALTH_LOCAL_ABORTED);
    close_listed(p, why);
    if (had && TAILQ_EMPTY(&p->conns))
        all_gone(p, why);
    ib_peer_release(p);
}

void ib_aborts_init(struct lnd_verbs *lv)
{
    for (unsigned i = 0; i < LNET_DROP_COUNT; i++) {
        lv->aborts[i] = (struct ib_cause){
            .cause = i,
            .tx = i,
            .rx = i == LNET_DROP_SHUTDOWN ? LNET_DROP_SHUTDOWN : LNET_DROP_RX_INCOMPLETE,
            .queued = LNET_HEALTH_LOCAL_ERROR, /* what was posted: it was us, says nothing */
        };
    }
}

void ib_peer_shutdown(struct ib_peer *p)
{
    close_all(p, LNET_DROP_SHUTDOWN);
}

void ib_peer_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why)
{
    struct ib_peer *p = ib_peer_find(ni->lnd_ni, peer);

    if (p)
        close_all(p, why);
}

void ib_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    const struct ib_conn *c;

    memset(out, 0, sizeof(*out));
    for (const struct ib_peer *p = peer->lnd_peer; p; p = p->next_of_peer) {
        out->conns[0] += p->nconns;
        out->connecting += p->dial.state != IB_DIAL_IDLE || p->accepting > 0;
        out->bytes_in += p->bytes_in;
        out->bytes_out += p->bytes_out;
        TAILQ_FOREACH(c, &p->conns, link_of_peer) {
            out->bytes_in += c->bytes_in;
            out->bytes_out += c->bytes_out;
        }
    }
}
