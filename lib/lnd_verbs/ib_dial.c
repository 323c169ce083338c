/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calling a peer: its connections one after the other, so that what the first one is taught by
 * rejects serves all; what to do when it says no. docs/protocol/o2iblnd.md §1.1, §1.6, §1.8 to
 * §1.11, §6.3.
 */
#include "lib/lnd_verbs/ib_internal.h"

#include <errno.h>
#include <string.h>

#define RESOLVE_MS 5000          /* of the address and of the route, each, §1.1 */
#define ANSWER_MIN (5 * IB_SEC)  /* §1.1 */
#define OPEN_US    (20 * IB_SEC) /* for the worker to make a queue pair, others before it too */
#define RESOLVE_US (2 * RESOLVE_MS * 1000ull + OPEN_US)
#define PAUSE_MIN  1u /* s, for the other node's call to come up, §1.8 */
#define PAUSE_MAX  8u
#define ACCEPT_US  100000         /* between looks at a call of the peer's */
#define LINGER_US  (180 * IB_SEC) /* an idle peer is remembered for */

static const char no_cq[] = "the connections of this thread have too many completion queues";
static const char no_posts[] = "the device takes no receives";

static void dial_timer(struct reactor_timer *t);

uint64_t ib_answer_us(const struct ib_ni *ini)
{
    uint64_t quarter = ib_timeout_us(ini) / 4;

    return quarter > ANSWER_MIN ? quarter : ANSWER_MIN;
}

void ib_dial_init(struct ib_peer *p)
{
    reactor_timer_init(&p->dial.timer, dial_timer);
    p->dial.ask = (struct ib_ask){.mine = p->ini->terms, .peer_nid = nid_to_u64(&p->peer->nid)};
}

/* ---- queue pairs, of both sides ---- */

void ib_open(struct ib_conn *c)
{
    struct rdma_open open;

    ib_conn_sizes(c->ibp->ini, c->depth, c->frags, &open);
    reactor_timer_arm(&c->setup, OPEN_US);
    ib_rdma(c)->open_qp(&c->link, &open);
}

bool ib_open_less(struct ib_conn *c, int error)
{
    unsigned less = c->depth - (c->depth >= 8 ? c->depth / 4 : 1);

    if ((error != -ENOMEM && error != -EINVAL) || less < IB_DEPTH_MIN)
        return false;
    c->depth = (uint16_t)less;
    c->ibp->depth_max = less;
    ib_open(c);
    return true;
}

bool ib_opened(struct ib_conn *c, struct lnet_drop_why *why)
{
    *why = ib_why_error(c, 0, 0);
    why->why = no_cq;
    if (!ib_shard_add_cq(c))
        return false;
    why->why = no_posts;
    why->code = ib_conn_ready(c);
    return why->code == 0;
}

/* ---- ends of a round ---- */

static void drop_conn(struct ib_peer *p)
{
    static const struct ib_cause why = {.tx = LNET_DROP_NEXT_HOP_LOST,
                                        .rx = LNET_DROP_RX_INCOMPLETE};

    if (p->dial.conn)
        ib_conn_unmake(p->dial.conn, &why);
}

static void stop_round(struct ib_peer *p)
{
    reactor_timer_cancel(&p->dial.timer);
    drop_conn(p);
    p->dial.state = IB_DIAL_IDLE;
    p->dial.ask.tries = 0;
    p->dial.pause = 0;
}

void ib_dial_cancel(struct ib_peer *p)
{
    stop_round(p);
    p->dial.record = false;
}

/* Goes on by the timer: not on the stack of whoever sends or tells. */
static void go_on(struct ib_peer *p, uint64_t delay_us)
{
    p->dial.state = IB_DIAL_WAIT;
    reactor_timer_arm(&p->dial.timer, delay_us);
}

static void round_done(struct ib_peer *p)
{
    stop_round(p);
    p->dial.interval = 0;
    p->dial.next_us = 0;
}

static void back_off(struct ib_peer *p)
{
    const struct verbs_opts *o = &p->shard->lv->opts;
    unsigned twice = p->dial.interval * 2;

    p->dial.interval = twice < o->min_reconnect   ? o->min_reconnect
                       : twice > o->max_reconnect ? o->max_reconnect
                                                  : twice;
    p->dial.next_us = reactor_now_us() + p->dial.interval * IB_SEC;
}

/* It has what it made so far, if anything, and is called again later. */
static void round_failed(struct ib_peer *p, enum lnet_health health)
{
    ib_peer_hold(p);
    ib_count(&ib_ns(p)->count.failed, 1);
    stop_round(p);
    back_off(p);
    p->dial.health = health;
    /* A call of the peer's may still bring what the queue waits for. */
    if (p->nconns == 0 && p->accepting == 0) {
        p->dial.record = false;
        if (!ib_ns(p)->stopping)
            lnet_peer_notify(p->ini->ni, p->peer, false);
        ib_peer_fail_queue(p, LNET_DROP_NEXT_HOP_DOWN, health);
    }
    ib_peer_release(p);
}

/* §6.3, where a connect has failed */
static enum lnet_health health_of(int error)
{
    switch (-error) {
    case EHOSTUNREACH:
    case ENETUNREACH: /* to the kernel the same */
    case ETIMEDOUT:   /* that we set */
        return LNET_HEALTH_NETWORK_TIMEOUT;
    case ECONNREFUSED:
        return LNET_HEALTH_REMOTE_DROPPED;
    default:
        return LNET_HEALTH_LOCAL_DROPPED;
    }
}

static void call_failed(struct ib_peer *p, int error, const struct lnet_drop_why *why)
{
    ib_peer_failed(p, LNET_DROP_O2IB_DIAL_FAILED, NULL, why);
    round_failed(p, health_of(error));
}

/* ---- a call ---- */

static struct sockaddr_in address_of(const struct ib_peer *p)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->shard->lv->opts.service)};

    memcpy(&to.sin_addr, p->peer->nid.addr_be, sizeof(to.sin_addr));
    return to;
}

static void call_one(struct ib_peer *p)
{
    struct rdma_dial dial = {
        .to = address_of(p),
        .privileged = p->shard->lv->opts.use_privileged_port,
        .tos = ib_setting(&p->ini->ni->lnd_tun.tos),
        .timeout_ms = RESOLVE_MS,
    };
    static const struct lnet_drop_why none_free = {
        .why = "all connections of this thread are in use (verbs: max_connections)"};
    struct ib_conn *c = ib_conn_new(p, true);

    if (!c) {
        ib_peer_failed(p, LNET_DROP_O2IB_CONN_NO_MEMORY, NULL, &none_free);
        round_failed(p, LNET_HEALTH_LOCAL_DROPPED);
        return;
    }
    p->dial.ask.peer_stamp = p->stamp;
    if (p->dial.ask.mine.depth > p->depth_max)
        p->dial.ask.mine.depth = (uint16_t)p->depth_max;
    c->depth = p->dial.ask.mine.depth;
    c->frags = p->dial.ask.mine.frags;
    p->dial.conn = c;
    p->dial.state = IB_DIAL_RUN;
    reactor_timer_arm(&c->setup, RESOLVE_US);
    ib_rdma(c)->dial(&c->link, &dial);
}

/* All there is was opened by the peer: then the set is the peer's to complete. */
static bool peer_began(const struct ib_peer *p)
{
    const struct ib_conn *c;

    TAILQ_FOREACH(c, &p->conns, link_of_peer) {
        if (c->active)
            return false;
    }
    return p->nconns > 0;
}

/* What is set while a set is made is for the next one. */
static void number_set(struct ib_peer *p)
{
    if (p->nconns == 0)
        p->dial.wanted = (unsigned)ib_setting(&p->ini->ni->lnd_tun.conns_per_peer);
}

static void call_next(struct ib_peer *p)
{
    if (peer_began(p)) {
        p->dial.record = false;
        round_done(p);
    } else if (p->nconns >= p->dial.wanted) {
        round_done(p);
    } else if (p->nconns == 0 && p->accepting > 0) {
        go_on(p, ACCEPT_US); /* each stage of that has its time */
    } else if (p->nconns == 0 && !p->queue) {
        stop_round(p); /* nobody waits for it any more */
    } else {
        call_one(p);
    }
}

static void dial_timer(struct reactor_timer *t)
{
    struct ib_peer *p = ib_container(t, struct ib_peer, dial.timer);

    if (p->dial.state == IB_DIAL_IDLE) {
        ib_peer_lingered(p);
        return;
    }
    ib_peer_hold(p);
    if (p->dial.state == IB_DIAL_WAIT)
        call_next(p);
    ib_peer_release(p);
}

/* ---- beginning ---- */

bool ib_dial_may(const struct ib_peer *p)
{
    return p->dial.state == IB_DIAL_IDLE && reactor_now_us() >= p->dial.next_us;
}

void ib_dial_start(struct ib_peer *p)
{
    if (!ib_dial_may(p) || ib_ns(p)->stopping)
        return;
    number_set(p);
    p->dial.record = true;
    p->dial.ask.tries = 0;
    p->dial.pause = 0;
    go_on(p, 0);
}

void ib_dial_complete(struct ib_peer *p)
{
    if (p->dial.record && p->nconns < p->dial.wanted)
        ib_dial_start(p);
}

void ib_dial_linger(struct ib_peer *p)
{
    uint64_t now = reactor_now_us();
    uint64_t wait = p->dial.next_us > now ? p->dial.next_us - now : 0;

    reactor_timer_arm(&p->dial.timer, wait + LINGER_US);
}

/* ---- answers ---- */

static void send_request(struct ib_conn *c)
{
    struct ib_peer *p = c->ibp;
    const struct verbs_opts *o = &p->shard->lv->opts;
    struct ib_conn_msg req;
    uint8_t priv[IB_CONN_SIZE];

    p->dial.ask.mine.depth = c->depth; /* of the queue pair that could be made */
    c->frags = p->dial.ask.mine.frags;
    ib_ask_request(&p->dial.ask, &req);
    ib_conn_encode(&req, priv);
    c->state = IB_CONN_CONNECTING;
    reactor_timer_arm(&c->setup, ib_answer_us(p->ini));
    ib_rdma(c)->connect(&c->link, priv, sizeof(priv), o->retry_count, o->rnr_retry_count);
}

static void accepted(struct ib_conn *c, const struct rdma_event *ev)
{
    struct ib_peer *p = c->ibp;
    struct lnet_drop_why wrong = {.stage = ib_state_name(c->state),
                                  .why = "what it accepted with is not what was asked for"};
    struct ib_ask asked = p->dial.ask;
    struct ib_conn_msg ack;
    enum lnet_drop drop = ib_conn_decode(ev->priv, ev->priv_len, &ack);

    /* What would be asked for next may be more by now: the peer has called in another life. */
    asked.mine.depth = c->depth;
    asked.mine.frags = c->frags;
    drop = ib_ack_judge(&asked, drop, &ack);
    if (drop != LNET_DROP_NONE) {
        ib_peer_failed(p, drop, NULL, &wrong);
        round_failed(p, LNET_HEALTH_LOCAL_DROPPED);
        return;
    }
    c->depth = ack.queue_depth;
    c->frags = ack.max_frags;
    c->ends.peer_stamp = ack.hdr.src_stamp;
    number_set(p); /* what the round had made before may have ended */
    p->dial.conn = NULL;
    c->retries = p->dial.ask.tries;
    p->dial.ask.tries = 0;
    p->dial.pause = 0;
    /* The next one by the timer, so that the first message goes before it. */
    go_on(p, 0);
    ib_peer_conn_up(p, c);
}

/* The other node calls us, or has just done so: one of the two calls comes up. */
static void wait_for_call(struct ib_peer *p)
{
    unsigned pause = p->dial.pause * 2;

    drop_conn(p);
    p->dial.pause = pause < PAUSE_MIN ? PAUSE_MIN : pause > PAUSE_MAX ? PAUSE_MAX : pause;
    go_on(p, p->dial.pause * IB_SEC);
}

/* §6.3: nothing listens there, or who does will not have us. */
static int error_of_reject(int status)
{
    return status == IB_CM_INVALID_SERVICE ? -EHOSTUNREACH : -ECONNREFUSED;
}

/* Its NIs are coming up: messages may wait for that, others are told to look elsewhere (§1.8). */
static bool is_early(const struct rdma_event *ev)
{
    struct ib_reject rej;

    return (ev->status == IB_CM_CONSUMER || ev->status == -ECONNREFUSED) &&
           ib_reject_decode(ev->priv, ev->priv_len, &rej) == LNET_DROP_NONE &&
           rej.why == IB_WHY_EARLY;
}

static void call_later(struct ib_peer *p, const struct rdma_event *ev)
{
    if (!is_early(ev) || !p->queue) {
        round_failed(p, health_of(error_of_reject(ev->status)));
        return;
    }
    drop_conn(p);
    back_off(p);
    go_on(p, p->dial.interval * IB_SEC);
}

static void rejected(struct ib_conn *c, const struct rdma_event *ev)
{
    struct ib_peer *p = c->ibp;
    struct lnet_drop_why why = ib_why_reject(c, ev);
    struct ib_ask *ask = &p->dial.ask;
    uint64_t known = ask->peer_stamp;
    enum ib_next next = ib_rejected(ask, ev->status, ev->priv, ev->priv_len);

    if (next != IB_NEXT_GIVE_UP)
        ib_peer_failed(p, LNET_DROP_O2IB_DIAL_REFUSED, NULL, &why);
    /* Unless it has called meanwhile, and that is how we know. */
    if (ask->peer_stamp != known && ask->peer_stamp != p->stamp)
        ib_peer_restarted(p, ask->peer_stamp);
    if (next == IB_NEXT_NOW)
        ib_count(&ib_ns(p)->count.retried, 1);
    switch (next) {
    case IB_NEXT_NOW:
        drop_conn(p);
        go_on(p, 0);
        break;
    case IB_NEXT_WAIT:
        wait_for_call(p);
        break;
    case IB_NEXT_LATER:
        call_later(p, ev);
        break;
    case IB_NEXT_GIVE_UP:
        call_failed(p, error_of_reject(ev->status), &why);
        break;
    }
}

static void opened(struct ib_conn *c)
{
    struct lnet_drop_why why;

    if (ib_opened(c, &why)) {
        send_request(c);
        return;
    }
    ib_peer_failed(c->ibp, LNET_DROP_O2IB_CONN_NO_MEMORY, NULL, &why);
    round_failed(c->ibp, LNET_HEALTH_LOCAL_DROPPED);
}

void ib_dial_event(struct ib_conn *c, const struct rdma_event *ev)
{
    struct lnet_drop_why why = ib_why_event(c, ev);
    struct ib_peer *p = c->ibp;

    switch (ev->kind) {
    case RDMA_EV_RESOLVED:
        c->state = IB_CONN_OPENING;
        ib_open(c);
        break;
    case RDMA_EV_OPENED:
        opened(c);
        break;
    case RDMA_EV_OPEN_FAILED:
        if (!ib_open_less(c, ev->error))
            call_failed(p, ev->error, &why);
        break;
    case RDMA_EV_ESTABLISHED:
        accepted(c, ev);
        break;
    case RDMA_EV_REJECTED:
        rejected(c, ev);
        break;
    case RDMA_EV_FAILED:
        call_failed(p, ev->error, &why);
        break;
    case RDMA_EV_DISCONNECTED: /* before it was up, §1.11 */
        call_failed(p, -ECONNRESET, &why);
        break;
    case RDMA_EV_CLOSED: /* only after shut(), which leaves this state */
        break;
    }
}
