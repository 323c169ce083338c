/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of o2iblnd: settings, ports and their listeners, hooks of the life cycle.
 * docs/protocol/o2iblnd.md §1.1, §1.5, §7.
 */
#include "lib/base/err.h"
#include "lib/lnd_verbs/ib_internal.h"
#include "lib/lnd_verbs/ib_type.h"

#include "lib/lnd/host_if.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_LEAST 8         /* that is offered, §1.6 */
#define QUIET_US    200000ull /* a silent peer that has credits counts as quiet after this time */

/* ---- the LND as a whole ---- */

struct lnd_verbs *lnd_verbs_new(const struct verbs_opts *opts)
{
    struct lnd_verbs *lv = calloc(1, sizeof(*lv));

    if (!lv)
        return NULL;
    lv->opts = *opts;
    lnd_driver_init(&lv->base, &ib_proto, opts->max_conns, opts->min_reconnect,
                    opts->max_reconnect);
    return lv;
}

static void driver_fini(struct lnd_driver *driver)
{
    struct lnd_verbs *lv = container_of(driver, struct lnd_verbs, base);

    if (lv->rdma)
        lv->opts.rdma->close(lv->rdma);
}

/* ---- settings, §7 ---- */

static int clamp(int value, int min, int max)
{
    return value < min ? min : value > max ? max : value;
}

/* Offers a depth of at least 8, and takes a smaller one only from a peer that asks for it: with
 * fewer, kernels get into storms of NOOPs (§11 no. 22). */
unsigned lnd_verbs_depth(const struct lnet_tunables *t)
{
    struct lnet_tunables full = *t;

    lnd_credits_default(&full);
    return (unsigned)clamp(full.peer_credits, DEPTH_LEAST,
                           clamp(full.credits, DEPTH_LEAST, IB_DEPTH_MAX));
}

unsigned ib_sends_max(const struct verbs_opts *o, int own, unsigned peer_credits)
{
    unsigned pc = peer_credits;
    unsigned sends = own > 0 ? (unsigned)own : o->concurrent_sends != 0 ? o->concurrent_sends : pc;

    return (unsigned)clamp((int)sends, (int)(pc / 2), (int)(2 * pc));
}

/* Works out the NI's terms. A setting of the NI overrides the setting of the node; the setting
 * shows the value in use. */
static void set_terms(struct ib_ni *ini)
{
    const struct verbs_opts *o = &ini->lv->opts;
    int *own = ini->base.ni->lnd_tun.own;
    int *hiw_set = &own[lnd_slot(&lnd_verbs_type, IB_TUN_HIW)];
    int *sends_set = &own[lnd_slot(&lnd_verbs_type, IB_TUN_CONCURRENT_SENDS)];
    unsigned pc = (unsigned)ini->base.ni->tun.peer_credits;
    unsigned hiw = *hiw_set > 0 ? (unsigned)*hiw_set : o->peer_credits_hiw;

    ini->hiw = ib_credits_hiw(pc, pc, hiw);
    ini->sends_max = ib_sends_max(o, *sends_set, pc);
    *hiw_set = (int)ini->hiw;
    *sends_set = (int)ini->sends_max;
    ini->terms = (struct ib_terms){
        .nid = nid_to_u64(&ini->base.ni->nid),
        .stamp = ini->base.incarnation, /* never 0, which stands for an unknown one (§1.5) */
        .depth = (uint16_t)pc,
        .frags = IB_FRAGS_MAX,
    };
}

/* ---- ports ---- */

/* On port->home. */
static void port_event(struct rdma_port *port, enum rdma_port_event event)
{
    struct ib_port *p = container_of(port, struct ib_port, port);
    struct ib_shard *shard = ib_shard_of(lnd_shard_at(&p->lv->base, reactor_index(reactor_self())));
    struct ib_ni_shard *ns;

    if (event == RDMA_PORT_CHANGED)
        return;
    p->heard = true;
    p->down = event != RDMA_PORT_UP;
    TAILQ_FOREACH(ns, &shard->nis, of_shard) {
        if (ib_ni_of(ns->base.lni)->port == p)
            lnet_ni_link(ns->base.lni->ni, !p->down);
    }
}

static bool port_is_up(const struct ib_port *p)
{
    if (p->heard)
        return !p->down;
    return relaxed_load(&p->port.info.state) == IBV_PORT_ACTIVE;
}

static struct ib_port *shared_port(const struct ib_ni *ini)
{
    const struct lnd_verbs *lv = ini->lv;

    for (unsigned i = 0; i < lv->base.nnis; i++) {
        const struct ib_ni *other = ib_ni_of(lv->base.nis[i]);

        if (memcmp(other->base.ni->nid.addr_be, ini->base.ni->nid.addr_be, 4) == 0 &&
            other->port->bound > 0)
            return other->port;
    }
    return NULL;
}

static int port_new(struct ib_ni *ini, struct ib_port **out, struct err *err)
{
    struct lnd_verbs *lv = ini->lv;
    struct ib_port *p = calloc(1, sizeof(*p));
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct err why = {0};
    char nid[LNET_NIDSTR_SIZE];
    int rc;

    if (!p) {
        err_text(err, "no memory for an NI");
        return -ENOMEM;
    }
    memcpy(&addr.sin_addr, ini->base.ni->nid.addr_be, sizeof(addr.sin_addr));
    p->lv = lv;
    p->port.event = port_event;
    p->port.remote_keys = lv->opts.remote_keys;
    p->port.home = lnet_nid_home(ini->base.ni->node, &ini->base.ni->nid);
    rc = lv->opts.rdma->bind(lv->rdma, &p->port, &addr, &why);
    if (rc < 0) {
        err_text(err, "%s: %s", nid_format(&ini->base.ni->nid, nid),
                 why.message[0] ? why.message : strerror(-rc));
        free(p);
        return rc;
    }
    *out = p;
    return 0;
}

static int port_get(struct ib_ni *ini, struct err *err)
{
    struct ib_port *p = shared_port(ini);
    int rc = p ? 0 : port_new(ini, &p, err);

    if (rc < 0)
        return rc;
    lnd_listener_get(&ini->base, &p->base);
    p->bound++;
    ini->bound = true;
    __atomic_fetch_add(&p->starting, ini->base.driver->nshards, __ATOMIC_RELAXED);
    ini->port = p;
    return 0;
}

/* Unbinds the port when the NI has stopped. An NI may be freed much later, and the removal of a
 * device may have to wait for this. */
static void port_let_go(struct lnd_ni *lni)
{
    struct ib_ni *ini = ib_ni_of(lni);
    struct ib_port *p = ini->port;

    if (!ini->bound)
        return;
    ini->bound = false;
    if (--p->bound > 0)
        return;
    /* The NI was not stopped: then no reactor runs that unlisten() would report to. */
    if (p->listener)
        ini->lv->opts.rdma->unlisten(&p->port);
    ini->lv->opts.rdma->unbind(&p->port);
}

static void port_put(struct ib_ni *ini)
{
    struct ib_port *p = ini->port;

    port_let_go(&ini->base);
    ini->port = NULL;
    if (!lnd_listener_put(&ini->base))
        return;
    free(p->listener);
    free(p);
}

/* ---- listening ---- */

/* A reactor gets no more requests of a listener that was ended. */
static void unlistened(void *arg)
{
    struct ib_listener *l = arg;
    struct ib_ni_shard *ns = &l->last->shard[reactor_index(reactor_self())];

    ib_accept_early_end(ib_shard_of(ns->base.shard), l->port);
    ns->unlistened = true;
    lnd_ns_progress(&ns->base);
}

static int port_listen(struct lnd_ni *lni, struct err *err)
{
    struct ib_ni *ini = ib_ni_of(lni);
    const struct verbs_opts *o = &ini->lv->opts;
    struct ib_listener *l = calloc(1, sizeof(*l));
    struct err why = {0};
    char nid[LNET_NIDSTR_SIZE];
    struct ib_reject busy;
    int rc = -ENOMEM;

    if (l) {
        l->rdma = (struct rdma_listener){.route = ib_accept_route,
                                         .request = ib_accept_request,
                                         .unlistened = unlistened,
                                         .arg = l,
                                         .busy = l->busy,
                                         .busy_len = sizeof(l->busy)};
        ib_refuse(IB_DROP(CONN_NO_MEMORY), NULL, &busy);
        ib_reject_encode(&busy, l->busy);
        l->port = ini->port;
        rc = o->rdma->listen(&ini->port->port, o->service, &l->rdma, &why);
    }
    if (rc == 0) {
        ini->port->listener = l;
        return 0;
    }
    free(l);
    return err_set(err, rc, "cannot listen on %s service %u: %s%s",
                   nid_format(&ini->base.ni->nid, nid), o->service,
                   why.message[0] ? why.message : strerror(-rc), lnd_listen_hint(rc));
}

/* Ends the listener. The reactors were told before: they refuse a request that comes meanwhile,
 * since they do not find its NI. */
static void port_unlisten(struct lnd_ni *lni)
{
    struct ib_ni *ini = ib_ni_of(lni);
    struct ib_port *p = ini->port;

    ini->ending = p->listener;
    p->listener = NULL;
    ini->ending->last = ini;
    ini->lv->opts.rdma->unlisten(&p->port);
}

/* ---- on each reactor ---- */

/* The device acknowledges each message that it takes, so all must be received: until the peers have
 * no credits left, or have been silent for QUIET_US. */
static bool ns_quiet(const struct lnd_ni_shard *ns)
{
    uint64_t since = reactor_now_us() - QUIET_US;
    struct lnd_peer_ni *lp;
    const struct ib_conn *c;

    if (since < ib_ns_of(ns)->quiesced_us)
        since = 0;
    TAILQ_FOREACH(lp, &ns->peers, link) {
        IB_CONN_FOREACH(c, &lp->conns) {
            if (!ib_conn_quiet(c, since))
                return false;
        }
    }
    return true;
}

static bool ns_closed(const struct lnd_ni_shard *ns)
{
    return !ns->lni->last || ib_ns_of(ns)->unlistened;
}

static void quiet_look(struct reactor_timer *t)
{
    struct ib_ni_shard *ns = container_of(t, struct ib_ni_shard, quiet_timer);

    lnd_ns_progress(&ns->base);
    if (ns->base.state == LND_NI_QUIESCING)
        reactor_timer_arm(t, QUIET_US / 4);
}

static void ns_start(struct lnd_ni_shard *ns)
{
    struct ib_port *port = ib_ni_of(ns->lni)->port;

    reactor_timer_init(&ib_ns_of(ns)->quiet_timer, quiet_look);
    TAILQ_INSERT_TAIL(&ib_shard_of(ns->shard)->nis, ib_ns_of(ns), of_shard);
    __atomic_fetch_sub(&port->starting, 1, __ATOMIC_RELAXED);
    if (ns->shard->reactor == port->port.home)
        lnet_ni_link(ns->lni->ni, port_is_up(port));
}

static void ns_shut(struct lnd_ni_shard *ns)
{
    TAILQ_REMOVE(&ib_shard_of(ns->shard)->nis, ib_ns_of(ns), of_shard);
}

static void ns_quiesce(struct lnd_ni_shard *ns)
{
    ib_ns_of(ns)->quiesced_us = reactor_now_us();
    reactor_timer_arm(&ib_ns_of(ns)->quiet_timer, QUIET_US / 4);
}

static void ns_stop(struct lnd_ni_shard *ns)
{
    reactor_timer_cancel(&ib_ns_of(ns)->quiet_timer);
}

/* ---- on the control thread ---- */

/* Finds address and interface. The provider checks that the address is an RDMA device's. */
static int ni_resolve(struct lnd_ni *lni, struct err *err)
{
    struct lnet_ni *ni = lni->ni;
    char nid[LNET_NIDSTR_SIZE];

    ib_ni_of(lni)->lv = container_of(lni->driver, struct lnd_verbs, base);
    if (nid_is_any(&ni->nid) || nid_is_nid4(&ni->nid))
        return lnd_host_if(ni, 0, err);
    return err_set(
        err, -EAFNOSUPPORT,
        "%s: o2ib nets have IPv4 addresses only (their messages have no room for others)",
        nid_format(&ni->nid, nid));
}

static int ni_init(struct lnd_ni *lni, struct err *err)
{
    struct ib_ni *ini = ib_ni_of(lni);
    struct lnd_verbs *lv = ini->lv;
    int rc = 0;

    if (!lv->rdma)
        rc = lv->opts.rdma->open(lnet_node_env(lv->base.node), &lv->rdma, err);
    if (rc == 0)
        rc = port_get(ini, err);
    if (rc == 0)
        set_terms(ini);
    return rc;
}

static void ni_fini(struct lnd_ni *lni)
{
    struct ib_ni *ini = ib_ni_of(lni);

    if (lni->state == LND_NI_NEW && ini->port) /* no reactor will subtract its part */
        __atomic_fetch_sub(&ini->port->starting, lni->driver->nshards, __ATOMIC_RELAXED);
    port_put(ini);
    free(ini->ending);
}

const struct lnd_proto ib_proto = {
    .name = "o2ib",
    .shard_size = sizeof(struct ib_shard),
    .ni_size = offsetof(struct ib_ni, shard),
    .ni_shard_size = sizeof(struct ib_ni_shard),
    .conn_size = sizeof(struct ib_conn),
    .conn_kept = offsetof(struct ib_conn, link),
    .peer_size = sizeof(struct ib_peer),
    .peer_base = offsetof(struct ib_peer, base),
    .credits_min = DEPTH_LEAST,
    .stamp_ns = 1000,
    .max_conns = IB_CONNS_DEFAULT,
    .linger = 180,
    .abort_waiting = LNET_HEALTH_LOCAL_ABORTED,
    .abort_begun = LNET_HEALTH_OK, /* we broke it off, which says nothing about either side */
    .driver_fini = driver_fini,
    .shard_init = ib_shard_init,
    .shard_fini = ib_shard_fini,
    .ni_resolve = ni_resolve,
    .ni_init = ni_init,
    .ni_fini = ni_fini,
    .peer_credits = lnd_verbs_depth,
    .listen = port_listen,
    .unlisten = port_unlisten,
    .ni_stopped = port_let_go,
    .poll = ib_shard_poll,
    .ns_start = ns_start,
    .ns_shut = ns_shut,
    .ns_quiesce = ns_quiesce,
    .ns_stop = ns_stop,
    .ns_quiet = ns_quiet,
    .ns_closed = ns_closed,
    .peer_init = ib_peer_init,
    .peer_abort = ib_peer_abort,
    .connect_begin = ib_dial_begin,
    .connect_next = ib_dial_next,
    .connect_late = ib_dial_late,
    .conn_close = ib_conn_end,
    .conn_listed = ib_peer_conn_listed,
};

const struct lnd_ops lnd_verbs_ops = {
    .name = "o2ib",
    .type = LNET_LND_O2IB,
    .show = &lnd_verbs_show,
    LND_OPS_COMMON,
    .remote_writes = true,
    .ni_start = lnd_ni_start,
    .ni_stop = lnd_ni_stop,
    .send = ib_send,
    .recv = ib_recv,
    .recv_abandon = ib_recv_abandon,
    .peer_info = ib_peer_info,
};
