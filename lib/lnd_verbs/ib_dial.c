/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the connections of a peer NI one after the other, so that what a reject teaches serves all
 * of them. Decides what follows a refusal. docs/protocol/o2iblnd.md §1.1, §1.6, §1.8 to §1.11,
 * §6.3.
 */
#include "lib/lnd_verbs/ib_internal.h"

#include <errno.h>
#include <string.h>

#define RESOLVE_MS 5000          /* of the address and of the route, each, §1.1 */
#define ANSWER_MIN (5 * LND_SEC) /* §1.1 */
#define OPEN_US                                                                                    \
    (20 * LND_SEC) /* for the worker to create a queue pair, after those queued before it */
#define RESOLVE_US (2 * RESOLVE_MS * 1000ull + OPEN_US)
#define PAUSE_MIN  1u /* s, for the other node's connection to come up, §1.8 */
#define PAUSE_MAX  8u
#define LACKS      5u     /* runs that the peer refuses before the set ends as it is */
#define ACCEPT_US  100000 /* between looks at a call of the peer's, … */
#define LOOKS      20u    /* … as many in a run: who calls need not be the peer */

static const char no_cq[] = "the connections of this thread have too many completion queues";
static const char no_posts[] = "the device takes no receives";

uint64_t ib_answer_us(const struct ib_ni *ini)
{
    uint64_t quarter = lnd_timeout_us(ini->base.ni) / 4;

    return quarter > ANSWER_MIN ? quarter : ANSWER_MIN;
}

/* ---- queue pairs, of both sides ---- */

void ib_open(struct ib_conn *c)
{
    bool windows = c->link.port->info.remote_keys == RDMA_KEYS_WINDOWS;
    struct rdma_open open;

    ib_conn_sizes(c->depth, c->ibp->ini->sends_max, windows, &open);
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

/* The peer NI keeps the connections that were made so far. The next run comes later. */
static void round_failed(struct ib_peer *p, enum lnet_health health)
{
    count_add(&ib_ns(p)->count.failed, 1);
    lnd_connect_failed(&p->base, health, health);
}

static void failed_here(struct ib_peer *p, enum lnet_drop drop, const struct lnet_drop_why *why)
{
    ib_peer_failed(p, drop, NULL, why);
    round_failed(p, LNET_HEALTH_LOCAL_DROPPED);
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
    ib_peer_failed(p, IB_DROP(DIAL_FAILED), NULL, why);
    round_failed(p, health_of(error));
}

/* ---- a call ---- */

static struct sockaddr_in address_of(const struct ib_peer *p)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->shard->lv->opts.service)};

    memcpy(&to.sin_addr, p->base.peer->nid.addr_be, sizeof(to.sin_addr));
    return to;
}

static void call_one(struct ib_peer *p)
{
    struct rdma_dial dial = {
        .to = address_of(p),
        .privileged = p->shard->lv->opts.use_privileged_port,
        .tos = lnd_setting(&p->ini->base.ni->lnd_tun.tos),
        .timeout_ms = RESOLVE_MS,
    };
    struct lnet_drop_why none_free = {.why = lnd_connect_place(&p->base)};
    struct ib_conn *c = none_free.why ? NULL : ib_conn_new(p, true);

    if (!c) {
        if (!none_free.why)
            none_free.why = "all connections of this thread are in use (verbs: max_connections)";
        failed_here(p, IB_DROP(CONN_NO_MEMORY), &none_free);
        return;
    }
    p->dial.ask.peer_stamp = p->base.incarnation;
    if (p->dial.ask.mine.depth > p->depth_max)
        p->dial.ask.mine.depth = (uint16_t)p->depth_max;
    c->depth = p->dial.ask.mine.depth;
    c->frags = p->dial.ask.mine.frags;
    p->base.connect.conn = &c->base;
    p->base.connecting = LND_CONNECT_RUN;
    reactor_timer_arm(&c->setup, RESOLVE_US);
    ib_rdma(c)->dial(&c->link, &dial);
}

void ib_dial_next(struct lnd_peer_ni *lp)
{
    struct ib_peer *p = ib_peer_of(lp);

    if (lnd_peer_began(lp)) {
        lp->record = false;
        lnd_connect_done(lp);
    } else if (lp->nconns >= lp->connect.wanted) {
        lnd_connect_done(lp);
    } else if (lp->nconns == 0 && lp->accepting > 0 && p->dial.looks < LOOKS) {
        p->dial.looks++;
        lnd_connect_later(lp, ACCEPT_US);
    } else if (lp->nconns == 0 && !STAILQ_FIRST(&lp->queue)) {
        lnd_connect_stop(lp); /* no message waits for it any more */
    } else {
        call_one(p);
    }
}

/* ---- beginning ---- */

void ib_dial_begin(struct lnd_peer_ni *lp)
{
    struct ib_peer *p = ib_peer_of(lp);

    p->dial.ask.tries = 0;
    p->dial.pause = 0;
    p->dial.looks = 0;
}

void ib_dial_complete(struct ib_peer *p)
{
    if (p->base.record && p->base.nconns < p->base.connect.wanted)
        lnd_connect_start(&p->base);
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

    /* The next request may ask for more by now: the peer has restarted and connected to us. */
    asked.mine.depth = c->depth;
    asked.mine.frags = c->frags;
    drop = ib_ack_judge(&asked, drop, &ack);
    if (drop != LNET_DROP_NONE) {
        failed_here(p, drop, &wrong);
        return;
    }
    c->depth = ack.queue_depth;
    c->frags = ack.max_frags;
    c->ends.peer_stamp = ack.hdr.src_stamp;
    if (p->base.nconns == 0)
        lnd_connect_number(&p->base); /* the run's earlier connections may be closed */
    p->base.connect.conn = NULL;
    c->retries = p->dial.ask.tries;
    p->dial.ask.tries = 0;
    p->dial.pause = 0;
    p->dial.lacks = 0;
    ib_peer_conn_up(p, c);
    /* Not before: a peer that has restarted loses its old connections first, which ends a run that
     * waits. */
    if (p->base.connecting == LND_CONNECT_RUN)
        lnd_connect_later(&p->base, 0);
}

/* Waits for the connection that the other node opens, or has just opened: one of the two comes up.
 */
static void wait_for_call(struct ib_peer *p)
{
    unsigned pause = p->dial.pause * 2;

    lnd_connect_drop(&p->base);
    p->dial.pause = pause < PAUSE_MIN ? PAUSE_MIN : pause > PAUSE_MAX ? PAUSE_MAX : pause;
    lnd_connect_later(&p->base, p->dial.pause * LND_SEC);
}

/* §6.3: nothing listens there, or the listener refuses us. */
static int error_of_reject(int status)
{
    return status == IB_CM_INVALID_SERVICE ? -EHOSTUNREACH : -ECONNREFUSED;
}

/* Returns the reason of an o2iblnd reject (§1.8), or 0. */
static unsigned why_of(const struct rdma_event *ev)
{
    struct ib_reject rej;

    if ((ev->status != IB_CM_CONSUMER && ev->status != -ECONNREFUSED) ||
        ib_reject_decode(ev->priv, ev->priv_len, &rej) != LNET_DROP_NONE)
        return 0;
    return rej.why;
}

/* Ends the set with the connections that there are when the peer refuses more of them time and
 * again, until all are lost or it has restarted. NO_RESOURCES is also what a node says that allows
 * fewer connections than we want. A node that has no memory just now has some a few runs later. */
static void learn_number(struct ib_peer *p)
{
    if (p->base.nconns > 0 && ++p->dial.lacks < LACKS)
        return;
    p->dial.lacks = 0;
    if (p->base.nconns > 0)
        p->base.connect.wanted = p->base.nconns;
}

/* While the peer's NIs are starting, messages may wait for that (§1.8). */
static void call_later(struct ib_peer *p, const struct rdma_event *ev)
{
    unsigned why = why_of(ev);

    if (why == IB_WHY_NO_RESOURCES)
        learn_number(p);
    if (why != IB_WHY_EARLY || !STAILQ_FIRST(&p->base.queue)) {
        round_failed(p, health_of(error_of_reject(ev->status)));
        return;
    }
    lnd_connect_drop(&p->base);
    lnd_connect_back_off(&p->base);
    lnd_connect_later(&p->base, p->base.connect.interval * LND_SEC);
}

static void rejected(struct ib_conn *c, const struct rdma_event *ev)
{
    struct ib_peer *p = c->ibp;
    struct lnet_drop_why why = ib_why_reject(c, ev);
    struct ib_ask *ask = &p->dial.ask;
    uint64_t known = ask->peer_stamp;
    enum ib_next next = ib_rejected(ask, ev->status, ev->priv, ev->priv_len);

    if (next != IB_NEXT_GIVE_UP)
        ib_peer_failed(p, IB_DROP(DIAL_REFUSED), NULL, &why);
    /* Not if its own connection told us the incarnation meanwhile. */
    if (ask->peer_stamp != known && ask->peer_stamp != p->base.incarnation)
        ib_peer_restarted(p, ask->peer_stamp);
    if (next == IB_NEXT_NOW)
        count_add(&ib_ns(p)->count.retried, 1);
    switch (next) {
    case IB_NEXT_NOW:
        lnd_connect_drop(&p->base);
        lnd_connect_later(&p->base, 0);
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

    if (ib_opened(c, &why))
        send_request(c);
    else
        failed_here(c->ibp, IB_DROP(CONN_NO_MEMORY), &why);
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
