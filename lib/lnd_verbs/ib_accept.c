/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accepts connections: the decision about a request, on the home reactor of the NID that it claims,
 * and the steps until the connection is up. docs/protocol/o2iblnd.md §1.7, §1.9, §1.11.
 */
#include "lib/base/sip.h"
#include "lib/lnd_verbs/ib_internal.h"

#include <errno.h>
#include <string.h>

#define CONNS_SLACK 16   /* connections of a peer NI in any case; above: four times our own */
#define CONNS_MOST  127  /* a kernel opens */
#define GROUPS      256u /* of prefixes, by hash */
#define CROWD_PART  4

#define EARLY_LOOK_US 2000    /* between checks of requests that wait */
#define EARLY_US      LND_SEC /* the longest wait of a request */

/* ---- whose it is; on the worker thread ---- */

struct reactor *ib_accept_route(void *arg, const void *priv, size_t len)
{
    const struct ib_listener *l = arg;
    const struct rdma_port *port = &l->port->port;
    struct ib_conn_msg req;
    struct lnet_nid src;

    if (ib_conn_decode(priv, len, &req) != LNET_DROP_NONE)
        return port->home; /* who only counts it and says no */
    src = nid_from_u64(req.hdr.src_nid);
    return lnet_nid_home(l->port->lv->base.node, &src);
}

/* ---- a request ---- */

struct request {
    struct rdma_request *rdma;
    const struct ib_port *port;
    struct ib_shard *shard;
    struct ib_ni_shard *ns; /* of the NI that is asked for, or NULL */
    struct ib_conn_msg msg;
    struct ib_caller caller;
    struct ib_verdict verdict;
    struct lnet_nid nid; /* the caller's, as it says */
    bool may_wait;
    unsigned waiting, own; /* requests that wait for a connection: all; of the same NID */
};

static struct ib_ni_shard *find_ni(const struct request *r, bool any)
{
    struct ib_ni_shard *ns;

    TAILQ_FOREACH(ns, &r->shard->nis, of_shard) {
        const struct ib_ni *ini = ib_ni_of(ns->base.lni);

        if (ini->port == r->port && (any || ini->terms.nid == r->msg.hdr.dst_nid))
            break;
    }
    return ns;
}

/* Counts the other requests that wait for a connection. */
static void count_waiting(struct request *r)
{
    for (const struct rdma_request *req = r->shard->early; req; req = req->next) {
        r->waiting += req->caller != 0;
        r->own += req->caller == r->msg.hdr.src_nid;
    }
}

static void take_request(struct request *r, struct rdma_request *req, bool may_wait)
{
    const struct ib_port *port = container_of(req->port, struct ib_port, port);
    struct lnd_verbs *lv = port->lv;

    *r = (struct request){
        .rdma = req,
        .port = port,
        .shard = ib_shard_of(lnd_shard_at(&lv->base, reactor_index(reactor_self()))),
        .may_wait = may_wait,
    };
    r->caller = (struct ib_caller){
        .secure = lv->opts.require_privileged_port,
        .port = ntohs(req->from.sin_port),
        .decoded = ib_conn_decode(req->priv, req->priv_len, &r->msg),
        .starting = relaxed_load(&port->starting) > 0,
        .depth_max = IB_DEPTH_MAX,
    };
    if (r->caller.decoded == LNET_DROP_NONE)
        r->ns = find_ni(r, false);
    if (r->ns)
        r->caller.ni = &ib_ni_of(r->ns->base.lni)->terms;
    if (r->caller.decoded == LNET_DROP_NONE) {
        r->nid = nid_from_u64(r->msg.hdr.src_nid);
        count_waiting(r);
    }
}

/* Counts a refusal. A NID that is unknown or not verified is shown as the address on the NI's net.
 */
static void count_refusal(struct request *r, enum lnet_drop drop)
{
    struct ib_ni_shard *ns = r->ns ? r->ns : find_ni(r, true);
    struct ib_ni *ini = ns ? ib_ni_of(ns->base.lni) : NULL;
    lnet_net_t net = ini ? ini->base.ni->net : LNET_NET(LNET_LND_O2IB, 0);
    struct lnet_nid nid = nid_make(net, &r->rdma->from.sin_addr, 4);

    if (r->caller.decoded == LNET_DROP_NONE && drop != IB_DROP(CONN_SOURCE))
        nid = r->nid;
    if (!ini)
        lnet_drop_event(r->shard->lv->base.node, drop, NULL, &nid, NULL);
    else
        lnd_drop(&ini->base, drop, &nid, NULL);
    if (r->ns)
        count_add(&r->ns->count.refused, 1);
}

static void refuse(struct request *r, enum lnet_drop drop)
{
    uint8_t priv[IB_REJECT_SIZE];
    struct ib_reject rej;

    ib_refuse(drop, r->caller.ni, &rej);
    ib_reject_encode(&rej, priv);
    count_refusal(r, drop);
    r->shard->lv->opts.rdma->reject(r->rdma, priv, sizeof(priv));
}

/* Whether the connection will lead to the address that the request claims. The address is private
 * data (§1.2). On RoCE the GID of an address has it in its last bytes, and packets go there. */
static bool leads_to_source(const struct rdma_request *req)
{
    union ibv_gid mapped = {.raw = {[10] = 0xff, [11] = 0xff}};

    memcpy(&mapped.raw[12], &req->from.sin_addr, 4);
    return !req->roce || memcmp(&req->gid, &mapped, sizeof(mapped)) == 0;
}

/* Checks the source NID, which servers trust: it must be the address that the request comes from,
 * on the net that it is for. */
static enum lnet_drop check_source(const struct request *r)
{
    const struct lnet_ni *ni = ib_ni_of(r->ns->base.lni)->base.ni;
    struct lnet_nid address = nid_make(ni->net, &r->rdma->from.sin_addr, 4);

    if (!nid_same(&address, &r->nid) || !leads_to_source(r->rdma))
        return IB_DROP(CONN_SOURCE);
    return lnet_nid_is_mine(ni->node, &r->nid) ? IB_DROP(CONN_NID) : LNET_DROP_NONE;
}

static enum lnet_drop check_rules(const struct request *r)
{
    const struct lnet_ni *ni = ib_ni_of(r->ns->base.lni)->base.ni;
    enum lnet_drop drop = lnet_may_call(ni, &r->nid);

    return drop == LNET_DROP_NONE ? lnet_may_connect(ni, &r->nid) : drop;
}

/* ---- limits ---- */

static void give_up(struct ib_conn *c, enum lnet_drop drop, const struct lnet_drop_why *how)
{
    static const struct lnd_close why = {.tx = LNET_DROP_NEXT_HOP_LOST,
                                         .rx = LNET_DROP_RX_INCOMPLETE};
    struct ib_peer *p = c->ibp;

    ib_peer_failed(p, drop, NULL, how);
    count_add(&ib_ns(p)->count.refused, 1);
    ib_conn_end(&c->base, &why);
    ib_peer_call_over(p);
}

static unsigned group_of(const struct ib_conn *c)
{
    struct lnet_nid prefix = lnet_nid_prefix(c->shard->lv->base.node, &c->ibp->base.peer->nid);

    return sip_bucket(&prefix, sizeof(prefix)) % GROUPS;
}

/* Returns the oldest connection being accepted of the peer NI with most: first of those in a prefix
 * with more than a quarter of all. */
static struct ib_conn *find_worst(const struct ib_shard *shard)
{
    struct ib_conn *c, *worst = NULL;
    uint16_t group[GROUPS] = {0};
    bool crowd = false;

    TAILQ_FOREACH(c, &shard->calls, call)
        group[group_of(c)]++;
    TAILQ_FOREACH(c, &shard->calls, call) {
        bool in_crowd = group[group_of(c)] * CROWD_PART > shard->accepting;

        if (worst &&
            (in_crowd != crowd ? crowd : c->ibp->base.accepting <= worst->ibp->base.accepting))
            continue;
        worst = c;
        crowd = in_crowd;
    }
    return worst;
}

static struct ib_conn *oldest_of(const struct ib_peer *p)
{
    struct ib_conn *c;

    IB_CONN_FOREACH(c, &p->making) {
        if (!c->base.initiated)
            break;
    }
    return c;
}

static void make_way(struct ib_conn *c)
{
    struct lnet_drop_why why = {.stage = ib_state_name(c->state), .why = "later calls need room"};
    struct ib_peer *p = c->ibp;

    lnd_peer_hold(&p->base);
    give_up(c, IB_DROP(CONN_LIMIT), &why);
    lnd_peer_release(&p->base);
}

/* A node that is set for more connections than we are may have some more, so that settings need not
 * agree, but not all there are. */
static unsigned conns_allowed(const struct ib_peer *p)
{
    unsigned ours = (unsigned)lnd_setting(&p->ini->base.ni->lnd_tun.conns_per_peer);

    return min(max(4 * ours, (unsigned)CONNS_SLACK), (unsigned)CONNS_MOST);
}

/* Whether connections that are being closed are more than requests wait for. */
static bool places_come(const struct request *r)
{
    return r->shard->closing > r->waiting;
}

/* Connections being accepted may never come up. They make room for others, before any peer NI loses
 * connections that are up. Those of an earlier incarnation end soon. A request for which others
 * made way, and that waits since, makes no others do so. */
static enum lnet_drop make_room(struct request *r, struct ib_peer *p)
{
    unsigned allowed = conns_allowed(p);
    bool same = p->base.incarnation == r->msg.hdr.src_stamp;
    unsigned conns = p->base.accepting + (same ? p->base.nconns : 0) + r->own;
    struct ib_shard *shard = r->shard;
    unsigned max = shard->lv->base.max_conns;
    bool is_short = lnd_conns_short(&shard->base);
    unsigned most = is_short ? max / 8 : max >= 2 * CONNS_SLACK ? max / 2 : max;

    /* While some are up, the oldest call may be about to be. */
    if (p->base.objects >= 3 * allowed ||
        (conns >= allowed && (p->base.accepting == 0 || (same && p->base.nconns > 0))))
        return IB_DROP(CONN_LIMIT);
    if (conns >= allowed)
        make_way(oldest_of(p));
    else if (r->rdma->caller != 0 || (!lnd_conns_for_callers(&shard->base) && places_come(r)))
        return LNET_DROP_NONE;
    else if (shard->accepting > 0 && shard->accepting >= most)
        make_way(find_worst(shard));
    else if (is_short)
        (void)lnd_evict(&shard->base, &p->base);
    return LNET_DROP_NONE;
}

/* Lets a request wait. Returns false if it has waited long enough. */
static bool wait_on(struct request *r)
{
    struct ib_shard *shard = r->shard;
    uint64_t now = reactor_now_us();

    if (r->rdma->held_us == 0)
        r->rdma->held_us = now;
    if (!r->may_wait || now - r->rdma->held_us >= EARLY_US)
        return false;
    r->rdma->next = shard->early;
    shard->early = r->rdma;
    if (!reactor_timer_armed(&shard->early_timer))
        reactor_timer_arm(&shard->early_timer, EARLY_LOOK_US);
    return true;
}

/* A connection that made way for the request is free only when the device has let go of it. */
static void wait_for_place(struct request *r)
{
    uint64_t caller = r->rdma->caller;

    r->rdma->caller = r->msg.hdr.src_nid;
    if (places_come(r) && wait_on(r))
        return;
    r->rdma->caller = caller;
    refuse(r, IB_DROP(CONN_NO_MEMORY));
}

static void adopt(struct request *r, struct ib_peer *p)
{
    struct lnd_shard *shard = p->base.ns->shard;
    struct ib_conn *c = lnd_conns_for_callers(shard) ? ib_conn_new(p, false) : NULL;

    if (!c) {
        wait_for_place(r);
        return;
    }
    c->depth = r->verdict.depth;
    c->frags = r->verdict.frags;
    c->ends.peer_stamp = r->msg.hdr.src_stamp;
    ib_rdma(c)->adopt(&c->link, r->rdma);
    ib_open(c);
}

/* Decides rows 14 and 15, which depend on the state of the peer NI. A new incarnation, row 13,
 * shows when the connection is up: a request may come from anybody. */
static void judge_peer(struct request *r, struct ib_peer *p)
{
    enum lnet_drop drop;

    r->caller.dialling = p->base.connecting == LND_CONNECT_RUN;
    r->caller.races = p->races;
    r->caller.depth_max = p->depth_max;
    drop = ib_request_judge(&r->caller, &r->msg, &r->verdict);
    if (drop == IB_DROP(CONN_RACE))
        p->races++;
    if (drop == LNET_DROP_NONE)
        drop = make_room(r, p);
    /* A peer that closed its ends while the link was down calls again, and our ends are in its way:
     * it never said that it closed them. */
    if (drop == IB_DROP(CONN_LIMIT))
        ib_peer_probe(p);
    if (drop == LNET_DROP_NONE)
        adopt(r, p);
    else
        refuse(r, drop);
}

static void with_peer(struct request *r)
{
    struct lnd_peer_ni *lp = r->rdma->caller != 0 ? lnd_peer_get_nid(&r->ns->base, &r->nid)
                                                  : lnd_peer_of_caller(&r->ns->base, &r->nid);

    if (!lp) {
        wait_for_place(r);
        return;
    }
    lnd_peer_hold(lp);
    judge_peer(r, ib_peer_of(lp));
    lnd_peer_release(lp);
}

static void decide(struct rdma_request *req, bool may_wait)
{
    struct request r;
    enum lnet_drop drop;

    take_request(&r, req, may_wait);
    /* The first checks need no peer NI: a refused request creates none. */
    drop = ib_request_judge(&r.caller, &r.msg, &r.verdict);
    /* Every reactor is told to start an NI before the listener begins, but a request comes on
     * another path and may be seen first. A kernel that is refused with EARLY does not try again by
     * itself (§1.8). */
    if (drop == IB_DROP(CONN_EARLY) && wait_on(&r))
        return;
    if (drop == LNET_DROP_NONE)
        drop = check_source(&r);
    if (drop == LNET_DROP_NONE && req->caller == 0) /* a call is counted once */
        drop = check_rules(&r);
    if (drop != LNET_DROP_NONE)
        refuse(&r, drop);
    else
        with_peer(&r);
}

void ib_accept_request(void *arg, struct rdma_request *req)
{
    decide(req, true);
}

/* ---- calls that wait ---- */

void ib_accept_early(struct reactor_timer *t)
{
    struct ib_shard *shard = container_of(t, struct ib_shard, early_timer);
    struct rdma_request *req = shard->early;

    shard->early = NULL;
    while (req) {
        struct rdma_request *next = req->next;

        decide(req, true);
        req = next;
    }
}

void ib_accept_early_end(struct ib_shard *shard, const struct ib_port *port)
{
    struct rdma_request **at = &shard->early, *req;

    while ((req = *at)) {
        if (req->port != &port->port) {
            at = &req->next;
            continue;
        }
        *at = req->next;
        decide(req, false);
    }
    if (!shard->early)
        reactor_timer_cancel(&shard->early_timer);
}

/* ---- until it is up ---- */

/* Row 15: no queue pair can be made. */
static void refuse_call(struct ib_conn *c, const struct lnet_drop_why *how)
{
    uint8_t priv[IB_REJECT_SIZE];
    struct ib_reject rej;

    ib_refuse(IB_DROP(CONN_NO_MEMORY), &c->ibp->ini->terms, &rej);
    ib_reject_encode(&rej, priv);
    ib_rdma(c)->refuse(&c->link, priv, sizeof(priv));
    give_up(c, IB_DROP(CONN_NO_MEMORY), how);
}

static void accept_call(struct ib_conn *c)
{
    const struct verbs_opts *o = &c->shard->lv->opts;
    struct ib_conn_msg ack;
    uint8_t priv[IB_CONN_SIZE];

    ib_conn_msg_init(&ack, IB_CONNACK, &c->ends, c->depth, c->frags);
    ib_conn_encode(&ack, priv);
    c->state = IB_CONN_ACCEPTING;
    reactor_timer_arm(&c->setup, ib_answer_us(c->ibp->ini));
    ib_rdma(c)->accept(&c->link, priv, sizeof(priv), o->retry_count, o->rnr_retry_count);
}

void ib_accept_event(struct ib_conn *c, const struct rdma_event *ev)
{
    struct lnet_drop_why why = ib_why_event(c, ev);
    bool late;

    switch (ev->kind) {
    case RDMA_EV_OPENED:
        if (ib_opened(c, &why))
            accept_call(c);
        else
            refuse_call(c, &why);
        break;
    case RDMA_EV_OPEN_FAILED:
        if (!ib_open_less(c, ev->error))
            refuse_call(c, &why);
        break;
    case RDMA_EV_ESTABLISHED:
        ib_peer_conn_up(c->ibp, c);
        break;
    case RDMA_EV_FAILED:
        late = ev->error == -ETIMEDOUT || ev->status == -ETIMEDOUT;
        give_up(c, late ? IB_DROP(CONN_TIMEOUT) : IB_DROP(CONN_ACCEPT), &why);
        break;
    case RDMA_EV_REJECTED: /* the caller took it back */
        why = ib_why_reject(c, ev);
        give_up(c, IB_DROP(CONN_ACCEPT), &why);
        break;
    case RDMA_EV_DISCONNECTED: /* before it was up */
        give_up(c, IB_DROP(CONN_ACCEPT), &why);
        break;
    case RDMA_EV_RESOLVED: /* of those we dial */
    case RDMA_EV_CLOSED:   /* only after shut(), which leaves this state */
        break;
    }
}
