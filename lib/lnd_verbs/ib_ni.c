/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of the driver: settings, ports and who listens there, start, quiesce, stop.
 * docs/protocol/o2iblnd.md §1.1, §1.5, §7.
 */
#include "lib/base/err.h"
#include "lib/lnd_verbs/ib_internal.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREDITS_DEFAULT        256
#define PEER_CREDITS_DEFAULT   8
#define DEPTH_LEAST            8   /* that is offered, §1.6 */
#define PEER_TIMEOUT_DEFAULT   180 /* s */
#define CONNS_PER_PEER_DEFAULT 1
#define CONNS_PER_PEER_MAX     127
#define TIMEOUT_MAX            3600 /* s */
#define TOS_MAX                255
#define LINGER_US              (180 * LND_SEC) /* a peer NI without connections is remembered for */
#define QUIET_US               200000ull /* after which a peer that has credits sends no more */

/* ---- the LND as a whole ---- */

struct lnd_verbs *lnd_verbs_new(const struct verbs_opts *opts)
{
    struct lnd_verbs *lv = calloc(1, sizeof(*lv));

    if (!lv)
        return NULL;
    lv->opts = *opts;
    if (lv->opts.max_conns == 0)
        lv->opts.max_conns = IB_CONNS_DEFAULT;
    lv->base.max_conns = lv->opts.max_conns;
    lv->base.min_reconnect = opts->min_reconnect;
    lv->base.max_reconnect = opts->max_reconnect;
    lv->base.linger_us = LINGER_US;
    lnd_driver_init(&lv->base, &ib_proto);
    return lv;
}

void lnd_verbs_free(struct lnd_verbs *lv)
{
    if (!lv)
        return;
    if (lv->rdma)
        lv->opts.rdma->close(lv->rdma);
    ib_shards_fini(lv);
    free(lv);
}

void ib_event(struct ib_ni *ini, enum lnet_drop reason, const struct lnet_nid *peer,
              const struct lnet_hdr *hdr)
{
    lnet_drop_event(ini->ni->node, reason, ini->ni, peer, hdr);
}

/* ---- settings, §7 ---- */

static int bad(struct err *err, const char *name, int value, int min, int max)
{
    return err_set(err, -EINVAL, "%s is %d; it must be %d to %d (or left out)", name, value, min,
                   max);
}

static int clamp(int value, int min, int max)
{
    return value < min ? min : value > max ? max : value;
}

/* No fewer than 8 are offered, and fewer are taken only from who asks for them: kernels get into
 * storms of NOOPs (§11 no. 22). */
unsigned lnd_verbs_depth(const struct lnet_tunables *t)
{
    int credits = t->credits == -1 ? CREDITS_DEFAULT : t->credits;
    int depth = t->peer_credits == -1 ? PEER_CREDITS_DEFAULT : t->peer_credits;

    return (unsigned)clamp(depth, DEPTH_LEAST, clamp(credits, DEPTH_LEAST, IB_DEPTH_MAX));
}

/* peer_credits is the queue depth that is offered: what a kernel would take to the nearer end of
 * its range is here, and shown as it is used. */
static int check_tunables(struct lnet_tunables *t, struct err *err)
{
    if (t->credits == -1)
        t->credits = CREDITS_DEFAULT;
    if (t->peer_credits == -1)
        t->peer_credits = PEER_CREDITS_DEFAULT;
    if (t->peer_timeout == -1)
        t->peer_timeout = PEER_TIMEOUT_DEFAULT;
    if (t->peer_buffer_credits == -1)
        t->peer_buffer_credits = 0;
    if (t->credits < DEPTH_LEAST || t->credits > 65535)
        return bad(err, "credits", t->credits, DEPTH_LEAST, 65535);
    if (t->peer_credits < 1 || t->peer_credits > 65535)
        return bad(err, "peer_credits", t->peer_credits, DEPTH_LEAST, IB_DEPTH_MAX);
    if (t->peer_buffer_credits < 0)
        return bad(err, "peer_buffer_credits", t->peer_buffer_credits, 0, 65535);
    t->peer_credits = (int)lnd_verbs_depth(t);
    return 0;
}

static int check_lnd_tunables(struct lnd_tunables *t, struct err *err)
{
    if (t->timeout == -1 || t->timeout == 0)
        t->timeout = IB_TIMEOUT;
    if (t->timeout < 1 || t->timeout > TIMEOUT_MAX)
        return bad(err, "timeout", t->timeout, 1, TIMEOUT_MAX);
    if (t->conns_per_peer == -1 || t->conns_per_peer == 0)
        t->conns_per_peer = CONNS_PER_PEER_DEFAULT;
    if (t->conns_per_peer < 1 || t->conns_per_peer > CONNS_PER_PEER_MAX)
        return bad(err, "conns_per_peer", t->conns_per_peer, 0, CONNS_PER_PEER_MAX);
    if (t->tos < -1 || t->tos > TOS_MAX)
        return bad(err, "tos", t->tos, -1, TOS_MAX);
    return 0;
}

unsigned ib_sends_max(const struct verbs_opts *o, int own, unsigned peer_credits)
{
    unsigned pc = peer_credits;
    unsigned sends = own > 0 ? (unsigned)own : o->concurrent_sends != 0 ? o->concurrent_sends : pc;

    return (unsigned)clamp((int)sends, (int)(pc / 2), (int)(2 * pc));
}

/* What the NI says goes before what is said for all; shown as it is used. */
static void set_terms(struct ib_ni *ini)
{
    const struct verbs_opts *o = &ini->lv->opts;
    struct lnd_tunables *t = &ini->ni->lnd_tun;
    unsigned pc = (unsigned)ini->ni->tun.peer_credits;
    unsigned hiw = t->peercredits_hiw > 0 ? (unsigned)t->peercredits_hiw : o->peer_credits_hiw;

    ini->hiw = ib_credits_hiw(pc, pc, hiw);
    ini->sends_max = ib_sends_max(o, t->concurrent_sends, pc);
    t->peercredits_hiw = (int)ini->hiw;
    t->concurrent_sends = (int)ini->sends_max;
    ini->terms = (struct ib_terms){
        .nid = nid_to_u64(&ini->ni->nid),
        .depth = (uint16_t)pc,
        .frags = IB_FRAGS_MAX,
    };
}

/* ---- address ---- */

static const struct ifaddrs *next_ip4(const struct ifaddrs *i)
{
    while (i && (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET))
        i = i->ifa_next;
    return i;
}

static struct in_addr ip4_of(const struct ifaddrs *i)
{
    return ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
}

/* The first IPv4 address of the interface. */
static int address_of_interface(struct lnet_ni *ni, const struct ifaddrs *list, struct err *err)
{
    for (const struct ifaddrs *i = next_ip4(list); i; i = next_ip4(i->ifa_next)) {
        struct in_addr addr = ip4_of(i);

        if (strcmp(i->ifa_name, ni->ifname) != 0)
            continue;
        ni->nid = nid_make(ni->net, &addr, 4);
        return 0;
    }
    if (if_nametoindex(ni->ifname) == 0) {
        return err_set(err, -ENODEV, "there is no interface %s; `ip link` lists those there are",
                       ni->ifname);
    }
    return err_set(err, -EADDRNOTAVAIL,
                   "interface %s has no IPv4 address, which o2ib needs; give it one (ip addr add)",
                   ni->ifname);
}

/* Whether the address is on the interface that was named, or which it is on, for people: that it is
 * an RDMA device's is the provider's to say. */
static int interface_of_address(struct lnet_ni *ni, const struct ifaddrs *list, struct err *err)
{
    char nid[LNET_NIDSTR_SIZE];

    for (const struct ifaddrs *i = next_ip4(list); i; i = next_ip4(i->ifa_next)) {
        struct in_addr addr = ip4_of(i);

        if (memcmp(&addr, ni->nid.addr_be, sizeof(addr)) != 0)
            continue;
        if (ni->ifname[0] == '\0')
            snprintf(ni->ifname, sizeof(ni->ifname), "%s", i->ifa_name);
        if (strcmp(ni->ifname, i->ifa_name) == 0)
            return 0;
    }
    if (ni->ifname[0] == '\0')
        return 0;
    return err_set(
        err, -EADDRNOTAVAIL,
        "%s: the address is not on interface %s; add it there (ip addr add) or correct the NI",
        nid_format(&ni->nid, nid), ni->ifname);
}

static int resolve(struct lnet_ni *ni, struct err *err)
{
    struct ifaddrs *list = NULL;
    char nid[LNET_NIDSTR_SIZE];
    int rc = 0;

    if (!nid_is_any(&ni->nid) && !nid_is_nid4(&ni->nid)) {
        return err_set(
            err, -EAFNOSUPPORT,
            "%s: o2ib nets have IPv4 addresses only (their messages have no room for others)",
            nid_format(&ni->nid, nid));
    }
    if (getifaddrs(&list) < 0) {
        rc = -errno;
        return err_set(err, rc, "cannot list the interfaces: %s", strerror(-rc));
    }
    if (nid_is_any(&ni->nid))
        rc = address_of_interface(ni, list, err);
    if (rc == 0)
        rc = interface_of_address(ni, list, err);
    freeifaddrs(list);
    return rc;
}

/* ---- ports ---- */

/* On port->home. */
static void port_event(struct rdma_port *port, enum rdma_port_event event)
{
    struct ib_port *p = container_of(port, struct ib_port, port);
    struct ib_shard *shard = &p->lv->shards[reactor_index(reactor_self())];
    struct ib_ni_shard *ns;

    if (event == RDMA_PORT_CHANGED)
        return;
    p->heard = true;
    p->down = event != RDMA_PORT_UP;
    TAILQ_FOREACH(ns, &shard->nis, of_shard) {
        if (ns->ini->port == p)
            lnet_ni_link(ns->ini->ni, !p->down);
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

    for (unsigned i = 0; i < lv->nnis; i++) {
        if (memcmp(lv->nis[i]->ni->nid.addr_be, ini->ni->nid.addr_be, 4) == 0 &&
            lv->nis[i]->port->bound > 0)
            return lv->nis[i]->port;
    }
    return NULL;
}

static struct ib_port *port_new(struct ib_ni *ini, struct err *err)
{
    struct lnd_verbs *lv = ini->lv;
    struct ib_port *p = calloc(1, sizeof(*p));
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct err why = {0};
    char nid[LNET_NIDSTR_SIZE];
    int rc;

    if (!p) {
        err_text(err, "no memory for an NI");
        return NULL;
    }
    memcpy(&addr.sin_addr, ini->ni->nid.addr_be, sizeof(addr.sin_addr));
    p->lv = lv;
    p->port.event = port_event;
    p->port.home = lnet_nid_home(ini->ni->node, &ini->ni->nid);
    rc = lv->opts.rdma->bind(lv->rdma, &p->port, &addr, &why);
    if (rc == 0)
        return p;
    err_text(err, "%s: %s", nid_format(&ini->ni->nid, nid),
             why.message[0] ? why.message : strerror(-rc));
    free(p);
    errno = -rc;
    return NULL;
}

static int port_get(struct ib_ni *ini, struct err *err)
{
    struct ib_port *p = shared_port(ini);

    errno = ENOMEM;
    if (!p)
        p = port_new(ini, err);
    if (!p)
        return -errno;
    p->refs++;
    p->bound++;
    ini->bound = true;
    __atomic_fetch_add(&p->starting, ini->nshards, __ATOMIC_RELAXED);
    ini->port = p;
    return 0;
}

/* Once the NI has been stopped, not only when it is freed, which may be much later: a device that
 * is taken away may have to wait for it. */
static void port_let_go(struct ib_ni *ini)
{
    struct ib_port *p = ini->port;

    if (!ini->bound)
        return;
    ini->bound = false;
    if (--p->bound > 0)
        return;
    /* It was not stopped: then no reactor runs that would be told. */
    if (p->listener)
        ini->lv->opts.rdma->unlisten(&p->port);
    ini->lv->opts.rdma->unbind(&p->port);
}

static void port_put(struct ib_ni *ini)
{
    struct ib_port *p = ini->port;

    port_let_go(ini);
    ini->port = NULL;
    if (!p || --p->refs > 0)
        return;
    free(p->listener);
    free(p);
}

/* Those that were asked to start have taken theirs back. */
static void never_starts(struct ib_ni *ini)
{
    if (ini->port)
        __atomic_fetch_sub(&ini->port->starting, ini->nshards, __ATOMIC_RELAXED);
}

/* ---- listening ---- */

/* The last reactor's part of a listener that was ended. */
static void unlistened(void *arg)
{
    struct ib_listener *l = arg;
    struct ib_ni_shard *ns = &l->last->shard[reactor_index(reactor_self())];

    ib_accept_early_end(ns->shard, l->port);
    ns->unlistened = true;
    ib_ni_progress(ns);
}

static int listener_new(struct ib_ni *ini, struct err *err)
{
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
    return err_set(err, rc, "cannot listen on %s service %u: %s%s", nid_format(&ini->ni->nid, nid),
                   o->service, why.message[0] ? why.message : strerror(-rc),
                   rc == -EADDRINUSE ? " (is LNet loaded, or another millraced running here?)"
                   : rc == -EACCES   ? " (needs CAP_NET_BIND_SERVICE)"
                                     : "");
}

static int serve(struct ib_ni *ini, struct err *err)
{
    int rc = 0;

    if (ini->port->users == 0)
        rc = listener_new(ini, err);
    if (rc == 0) {
        ini->port->users++;
        ini->serving = true;
    }
    return rc;
}

/* Before the mail that makes reactors shut it for new connections. The last NI of a port ends the
 * listener. */
static void unserve(struct ib_ni *ini)
{
    struct ib_port *p = ini->port;

    if (!ini->serving)
        return;
    ini->serving = false;
    if (--p->users > 0)
        return;
    ini->ending = p->listener;
    p->listener = NULL;
    ini->ending->last = ini;
}

/* After it: what was refused meanwhile was refused by the list of NIs. */
static void unlisten(struct ib_ni *ini, bool was_serving)
{
    if (was_serving && ini->ending)
        ini->lv->opts.rdma->unlisten(&ini->port->port);
}

/* ---- on each reactor ---- */

/* Not on the stack of whoever ended the last connection, who may look at its device again. */
static void on_stopped_here(struct reactor_task *task);

/* What a device has taken is acknowledged, so it must not be left lying: peers end their sending
 * for want of credits, or have nothing to send. */
static bool is_quiet(const struct ib_ni_shard *ns)
{
    uint64_t since = reactor_now_us() - QUIET_US;
    struct lnd_peer_ni *lp;
    const struct ib_conn *c;

    TAILQ_FOREACH(lp, &ns->base.peers, link) {
        IB_CONN_FOREACH(c, &lp->conns)
        {
            if (!ib_conn_quiet(c, since < ns->quiesced_us ? 0 : since))
                return false;
        }
    }
    return true;
}

void ib_ni_progress(struct ib_ni_shard *ns)
{
    struct reactor *control = reactor_control(lnet_node_env(ns->shard->lv->base.node));

    if (ns->quiet_asked && !ns->quiet && is_quiet(ns)) {
        ns->quiet = true;
        reactor_post(control, &ns->quiet_mail);
    }
    if (ns->base.stopping && !ns->stopped && TAILQ_EMPTY(&ns->base.peers) &&
        (!ns->unlisten || ns->unlistened)) {
        ns->stopped = true;
        reactor_post(ns->shard->base.reactor, &ns->stopped_mail);
    }
}

static void on_start(struct reactor_task *task)
{
    struct ib_ni_shard *ns = container_of(task, struct ib_ni_shard, start);
    struct ib_port *port = ns->ini->port;

    ns->started = true;
    ns->listed = true;
    TAILQ_INSERT_TAIL(&ns->shard->nis, ns, of_shard);
    __atomic_fetch_sub(&port->starting, 1, __ATOMIC_RELAXED);
    ib_shard_use(ns->shard);
    if (ns->shard->base.reactor == port->port.home)
        lnet_ni_link(ns->ini->ni, port_is_up(port));
}

static void shut_for_new(struct ib_ni_shard *ns)
{
    ns->quiesced = true;
    if (ns->listed)
        TAILQ_REMOVE(&ns->shard->nis, ns, of_shard);
    ns->listed = false;
}

static void quiet_look(struct reactor_timer *t)
{
    struct ib_ni_shard *ns = container_of(t, struct ib_ni_shard, quiet_timer);

    ib_ni_progress(ns);
    if (!ns->quiet)
        reactor_timer_arm(t, QUIET_US / 4);
}

static void on_quiesce(struct reactor_task *task)
{
    struct ib_ni_shard *ns = container_of(task, struct ib_ni_shard, quiesce);

    shut_for_new(ns);
    ns->quiet_asked = true;
    ns->quiesced_us = reactor_now_us();
    quiet_look(&ns->quiet_timer);
}

static struct lnd_peer_ni *next_to_shut(struct ib_ni_shard *ns)
{
    struct lnd_peer_ni *lp;

    TAILQ_FOREACH(lp, &ns->base.peers, link) {
        if (!lp->shut)
            return lp;
    }
    return NULL;
}

static void on_stop(struct reactor_task *task)
{
    struct ib_ni_shard *ns = container_of(task, struct ib_ni_shard, stop);
    struct lnd_peer_ni *lp;

    shut_for_new(ns);
    reactor_timer_cancel(&ns->quiet_timer);
    ns->base.stopping = true;
    ns->unlisten = ns->ini->ending != NULL;
    /* Closing one tells the core of its messages, which may make others go too. */
    while ((lp = next_to_shut(ns))) {
        lp->shut = true;
        lnd_peer_abort(lp, LNET_DROP_SHUTDOWN);
    }
    ib_ni_progress(ns);
}

/* ---- on the control thread ---- */

static void on_quiet(struct reactor_task *task)
{
    struct ib_ni *ini = container_of(task, struct ib_ni_shard, quiet_mail)->ini;

    if (--ini->quiet_wait == 0)
        reactor_post(reactor_self(), ini->quiesce_done);
}

static void stopped_all(struct ib_ni *ini)
{
    ini->gone = false;
    ini->running = false;
    port_let_go(ini);
    reactor_post(reactor_self(), ini->stop_done);
}

void ib_ni_asked(struct ib_ni *ini)
{
    if (--ini->asks == 0 && ini->gone)
        stopped_all(ini);
}

static void on_stopped(struct reactor_task *task)
{
    struct ib_ni *ini = container_of(task, struct ib_ni_shard, stopped_mail)->ini;

    if (--ini->stop_wait > 0)
        return;
    if (ini->asks > 0)
        ini->gone = true;
    else
        stopped_all(ini);
}

static void on_stopped_here(struct reactor_task *task)
{
    struct ib_ni_shard *ns = container_of(task, struct ib_ni_shard, stopped_mail);

    ib_shard_unuse(ns->shard);
    ns->stopped_mail.fn = on_stopped;
    reactor_post(reactor_control(lnet_node_env(ns->shard->lv->base.node)), &ns->stopped_mail);
}

static void ni_shards_init(struct ib_ni *ini)
{
    for (unsigned i = 0; i < ini->nshards; i++) {
        ini->shard[i] = (struct ib_ni_shard){
            .ini = ini,
            .shard = &ini->lv->shards[i],
            .start.fn = on_start,
            .quiesce.fn = on_quiesce,
            .stop.fn = on_stop,
            .quiet_mail.fn = on_quiet,
            .stopped_mail.fn = on_stopped_here,
        };
        reactor_timer_init(&ini->shard[i].quiet_timer, quiet_look);
        ini->shard[i].base.shard = &ini->lv->shards[i].base;
        ini->shard[i].base.ni = ini->ni;
        TAILQ_INIT(&ini->shard[i].base.peers);
    }
}

static int provider(struct lnd_verbs *lv, struct err *err)
{
    if (lv->rdma)
        return 0;
    return lv->opts.rdma->open(lnet_node_env(lv->base.node), &lv->rdma, err);
}

static int ni_prepare(struct ib_ni *ini, struct err *err)
{
    struct lnet_ni *ni = ini->ni;
    int rc = resolve(ni, err);

    if (rc == 0)
        rc = check_tunables(&ni->tun, err);
    if (rc == 0)
        rc = check_lnd_tunables(&ni->lnd_tun, err);
    if (rc == 0)
        rc = provider(ini->lv, err);
    if (rc == 0)
        rc = port_get(ini, err);
    if (rc == 0)
        set_terms(ini);
    return rc;
}

static void ni_free(struct ib_ni *ini)
{
    port_put(ini);
    free(ini->ending);
    free(ini);
}

static int ni_init(struct lnet_ni *ni, struct err *err)
{
    struct lnd_verbs *lv = ni->lnd_ctx;
    struct ib_ni *ini;
    int rc = ib_shards_init(lv, ni->node, err);

    if (rc < 0)
        return rc;
    ini = calloc(1, sizeof(*ini) + lv->nshards * sizeof(ini->shard[0]));
    if (!ini || lv->nnis == LNET_MAX_NI) {
        free(ini);
        return err_set(err, -ENOMEM, "no room for another NI");
    }
    ini->ni = ni;
    ini->lv = lv;
    ini->nshards = lv->nshards;
    ni_shards_init(ini);
    rc = ni_prepare(ini, err);
    if (rc < 0) {
        ni_free(ini);
        return rc;
    }
    ni->lnd_ni = ini;
    lv->nis[lv->nnis++] = ini;
    return 0;
}

static int ni_start(struct lnet_ni *ni, struct err *err)
{
    struct ib_ni *ini = ni->lnd_ni;

    ini->terms.stamp = lnd_incarnation_new(&ini->lv->base, 1000);
    /* Before the first caller can come; mail is run in the order it is posted. */
    ini->running = true;
    for (unsigned i = 0; i < ini->nshards; i++)
        reactor_post(ini->lv->shards[i].base.reactor, &ini->shard[i].start);
    return serve(ini, err);
}

static int ni_set(struct lnet_ni *ni, const struct lnd_tunables *set, struct err *err)
{
    struct lnd_tunables tun = lnd_tunables_with(ni->lnd_tun, set);
    int rc = check_lnd_tunables(&tun, err);

    if (rc == 0)
        lnd_tunables_store(&ni->lnd_tun, &tun);
    return rc;
}

static void ni_quiesce(struct lnet_ni *ni, struct reactor_task *done)
{
    struct ib_ni *ini = ni->lnd_ni;
    bool serving = ini->serving;

    if (!ini->running) {
        reactor_post(reactor_self(), done);
        return;
    }
    unserve(ini);
    ini->quiesce_done = done;
    ini->quiet_wait = ini->nshards;
    for (unsigned i = 0; i < ini->nshards; i++)
        reactor_post(ini->lv->shards[i].base.reactor, &ini->shard[i].quiesce);
    unlisten(ini, serving);
}

static void ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    struct ib_ni *ini = ni->lnd_ni;
    bool serving = ini->serving;

    if (!ini->running) {
        port_let_go(ini);
        reactor_post(reactor_self(), done);
        return;
    }
    unserve(ini);
    ini->stop_done = done;
    ini->stop_wait = ini->nshards;
    for (unsigned i = 0; i < ini->nshards; i++)
        reactor_post(ini->lv->shards[i].base.reactor, &ini->shard[i].stop);
    unlisten(ini, serving);
}

static void ni_fini(struct lnet_ni *ni)
{
    struct ib_ni *ini = ni->lnd_ni;
    struct lnd_verbs *lv = ini->lv;

    for (unsigned i = 0; i < lv->nnis; i++) {
        if (lv->nis[i] == ini) {
            lv->nis[i] = lv->nis[--lv->nnis];
            break;
        }
    }
    ni->lnd_ni = NULL;
    if (ini->terms.stamp == 0)
        never_starts(ini);
    ni_free(ini);
}

static void peer_shrink(void *ctx)
{
    struct lnd_verbs *lv = ctx;

    if (lv->shards)
        (void)lnd_peer_forget_one(&lv->shards[reactor_index(reactor_self())].base);
}

static void peer_free(struct lnet_peer_ni *peer)
{
    assert(!peer->lnd_peer); /* each of ours has a reference */
    (void)peer;
}

const struct lnd_ops lnd_verbs_ops = {
    .name = "o2ib",
    .type = LNET_LND_O2IB,
    .ni_init = ni_init,
    .ni_start = ni_start,
    .ni_set = ni_set,
    .ni_quiesce = ni_quiesce,
    .ni_stop = ni_stop,
    .ni_fini = ni_fini,
    .send = ib_send,
    .recv = ib_recv,
    .peer_abort = ib_peer_abort,
    .peer_info = ib_peer_info,
    .peer_free = peer_free,
    .peer_shrink = peer_shrink,
};
