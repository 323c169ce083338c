/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of the LND and what each reactor has of it: settings, pools, start, quiesce, stop.
 * docs/protocol/socklnd.md §3.1, §5.1.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREDITS_DEFAULT      256
#define PEER_CREDITS_DEFAULT 8
#define PEER_TIMEOUT_DEFAULT 180 /* s */
#define CONNS_PER_PEER_MAX   127
#define TIMEOUT_MAX          3600 /* s */
#define TOS_MAX              255

/* ---- connections with something to do ---- */

void sock_ready(struct sock_conn *c)
{
    if (c->ready != SOCK_NOT_READY || c->state != SOCK_CONN_UP)
        return;
    c->ready = SOCK_READY;
    TAILQ_INSERT_TAIL(&c->shard->ready, c, ready_link);
    c->shard->poller.max_sleep_us = 0;
}

void sock_unready(struct sock_conn *c)
{
    if (c->ready == SOCK_READY)
        TAILQ_REMOVE(&c->shard->ready, c, ready_link);
    else if (c->ready == SOCK_TURN)
        TAILQ_REMOVE(&c->shard->turn, c, ready_link);
    c->ready = SOCK_NOT_READY;
}

/* While this one has its turn, what the next one will send is fetched, and the one behind. */
static void fetch_next(const struct sock_conn *c)
{
    const struct sock_conn *next = TAILQ_NEXT(c, ready_link);

    if (!next)
        return;
    if (next->txq)
        prefetch_write(next->txq, 3 * CPU_BLOCK);
    if (next->stream)
        prefetch_write(next->stream, 1 * CPU_BLOCK);
    next = TAILQ_NEXT(next, ready_link);
    if (next)
        prefetch_write(next, 2 * CPU_BLOCK);
}

static int shard_poll(void *arg)
{
    struct sock_shard *shard = arg;
    struct sock_conn *c;
    int work = 0;

    /* Those that become ready meanwhile wait for the next round. */
    TAILQ_CONCAT(&shard->turn, &shard->ready, ready_link);
    TAILQ_FOREACH(c, &shard->turn, ready_link)
        c->ready = SOCK_TURN;
    while ((c = TAILQ_FIRST(&shard->turn))) {
        fetch_next(c);
        sock_unready(c);
        sock_conn_hold(c);
        sock_tx_run(c);
        sock_rx_run(c);
        sock_conn_release(c);
        work++;
    }
    shard->poller.max_sleep_us = TAILQ_EMPTY(&shard->ready) ? UINT64_MAX : 0;
    return work;
}

/* ---- pools ---- */

/* Whether an NI may have a transport that hands over segments. */
static bool has_takes(const struct sock_opts *o)
{
    return o->transport->caps & STREAM_CAP_TAKE ||
           (o->ports && o->ports->transport.ops->caps & STREAM_CAP_TAKE);
}

static bool shard_init(struct sock_shard *shard, struct lnd_sock *sock, unsigned index)
{
    bool take = has_takes(&sock->opts);

    shard->sock = sock;
    shard->poller =
        (struct reactor_poller){.fn = shard_poll, .arg = shard, .max_sleep_us = UINT64_MAX};
    TAILQ_INIT(&shard->ready);
    TAILQ_INIT(&shard->turn);
    shard->scratch = malloc(SOCK_SCRATCH);
    return lnd_shard_init(&shard->base, &sock->base, index) && shard->scratch &&
           lnd_pool_init(&shard->hss, SOCK_HS_MAX, sizeof(struct sock_hs), sizeof(void *)) &&
           (!take ||
            lnd_pool_init(&shard->takes, SOCK_TAKES, sizeof(struct sock_take), sizeof(void *)));
}

void lnd_sock_memory(const struct sock_opts *opts, unsigned reactors, bool takes,
                     struct sock_memory *out)
{
    size_t conns = opts->max_conns ? opts->max_conns : SOCK_CONNS_DEFAULT;
    size_t shard = sizeof(struct sock_shard) + SOCK_SCRATCH +
                   lnd_shard_bytes(&sock_proto, (unsigned)conns) +
                   lnd_pool_bytes(SOCK_HS_MAX, sizeof(struct sock_hs));

    if (takes || has_takes(opts))
        shard += lnd_pool_bytes(SOCK_TAKES, sizeof(struct sock_take));
    out->conns = (unsigned)conns;
    out->pools = reactors * shard;
    out->streams = reactors * (conns + SOCK_HS_MAX) * opts->transport->stream_bytes;
}

static void shards_fini(struct lnd_sock *sock)
{
    for (unsigned i = 0; sock->shards && i < sock->nshards; i++) {
        struct sock_shard *shard = &sock->shards[i];

        lnd_shard_fini(&shard->base);
        lnd_pool_fini(&shard->hss);
        lnd_pool_fini(&shard->takes);
        free(shard->scratch);
    }
    free(sock->shards);
    sock->shards = NULL;
}

static int shards_init(struct lnd_sock *sock, struct lnet_node *node, struct err *err)
{
    if (sock->shards)
        return 0;
    sock->base.node = node;
    sock->nshards = reactor_count(lnet_node_env(node));
    sock->shards = calloc(sock->nshards, sizeof(*sock->shards));
    for (unsigned i = 0; sock->shards && i < sock->nshards; i++) {
        if (!shard_init(&sock->shards[i], sock, i))
            shards_fini(sock);
    }
    if (!sock->shards) {
        return err_set(err, -ENOMEM, "no memory for %u connections per reactor; lower max_conns",
                       sock->opts.max_conns);
    }
    return 0;
}

/* ---- the LND as a whole ---- */

struct lnd_sock *lnd_sock_new(const struct sock_opts *opts)
{
    struct lnd_sock *sock = calloc(1, sizeof(*sock));

    if (!sock)
        return NULL;
    sock->opts = *opts;
    if (sock->opts.max_conns == 0)
        sock->opts.max_conns = SOCK_CONNS_DEFAULT;
    if (opts->hello_map_count > 0) {
        sock->map = calloc(opts->hello_map_count, sizeof(*sock->map));
        if (!sock->map) {
            free(sock);
            return NULL;
        }
        memcpy(sock->map, opts->hello_map, opts->hello_map_count * sizeof(*sock->map));
    }
    sock->opts.hello_map = sock->map;
    sock->base.max_conns = sock->opts.max_conns;
    sock->base.min_reconnect = opts->min_reconnect;
    sock->base.max_reconnect = opts->max_reconnect;
    sock->base.linger_us = opts->max_reconnect * LND_SEC;
    lnd_driver_init(&sock->base, &sock_proto);
    return sock;
}

void lnd_sock_free(struct lnd_sock *sock)
{
    if (!sock)
        return;
    shards_fini(sock);
    free(sock->map);
    free(sock);
}

void sock_event(struct sock_ni *sni, enum lnet_drop reason, const struct lnet_nid *peer,
                const struct lnet_hdr *hdr)
{
    lnet_drop_event(sni->ni->node, reason, sni->ni, peer, hdr);
}

/* ---- settings ---- */

static int bad(struct err *err, const char *name, int value, int min, int max)
{
    return err_set(err, -EINVAL, "%s is %d; it must be %d to %d (or left out)", name, value, min,
                   max);
}

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
    if (t->credits < 1 || t->credits > 65535)
        return bad(err, "credits", t->credits, 1, 65535);
    if (t->peer_credits < 1 || t->peer_credits > 65535)
        return bad(err, "peer_credits", t->peer_credits, 1, 65535);
    if (t->peer_buffer_credits < 0)
        return bad(err, "peer_buffer_credits", t->peer_buffer_credits, 0, 65535);
    if (t->peer_credits > t->credits)
        t->peer_credits = t->credits;
    return 0;
}

static int conns_by_speed(const struct sock_ni *sni)
{
    if (sni->ifp)
        return sock_link_conns_of_speed(sni->sock->opts.ports->speed(sni->ifp));
    return sock_link_conns_by_speed(sni->ni->ifname);
}

static int check_lnd_tunables(struct lnd_tunables *t, const struct sock_ni *sni, struct err *err)
{
    if (t->timeout == -1 || t->timeout == 0)
        t->timeout = SOCK_TIMEOUT;
    if (t->timeout < 1 || t->timeout > TIMEOUT_MAX)
        return bad(err, "timeout", t->timeout, 1, TIMEOUT_MAX);
    if (t->conns_per_peer == -1 || t->conns_per_peer == 0)
        t->conns_per_peer = conns_by_speed(sni);
    if (t->conns_per_peer < 1 || t->conns_per_peer > CONNS_PER_PEER_MAX)
        return bad(err, "conns_per_peer", t->conns_per_peer, 0, CONNS_PER_PEER_MAX);
    if (t->tos < -1 || t->tos > TOS_MAX)
        return bad(err, "tos", t->tos, -1, TOS_MAX);
    return 0;
}

/* ---- on each reactor ---- */

void sock_ni_progress(struct sock_ni_shard *ns)
{
    struct reactor *control = reactor_control(lnet_node_env(ns->shard->sock->base.node));

    if (ns->quiet_asked && !ns->quiet && ns->begun == 0) {
        ns->quiet = true;
        reactor_post(control, &ns->quiet_mail);
    }
    if (ns->base.stopping && !ns->stopped && TAILQ_EMPTY(&ns->base.peers) && ns->hs_away == 0) {
        ns->stopped = true;
        if (--ns->shard->users == 0)
            reactor_poller_del(ns->shard->base.reactor, &ns->shard->poller);
        reactor_post(control, &ns->stopped_mail);
    }
}

static void on_start(struct reactor_task *task)
{
    struct sock_ni_shard *ns = container_of(task, struct sock_ni_shard, start);

    ns->started = true;
    if (ns->shard->users++ == 0)
        reactor_poller_add(ns->shard->base.reactor, &ns->shard->poller);
    if (ns->shard == ns->sni->listener->shard)
        sock_serve(ns->sni);
    if (ns->shard->base.index == ns->sni->link_shard && !ns->sni->ifp)
        sock_link_start(ns->sni);
}

static void mark_begun(struct sock_ni_shard *ns)
{
    struct lnd_peer_ni *lp;
    struct sock_conn *c;

    TAILQ_FOREACH(lp, &ns->base.peers, link) {
        SOCK_CONN_FOREACH(c, sock_peer_of(lp))
        {
            if (c->rx_state == SOCK_RX_FRAME)
                continue;
            c->draining = true;
            ns->begun++;
        }
    }
}

static void shut_for_new(struct sock_ni_shard *ns)
{
    if (ns->quiesced)
        return;
    ns->quiesced = true;
    if (ns->shard == ns->sni->listener->shard)
        sock_unlisten(ns->sni);
}

static void on_quiesce(struct reactor_task *task)
{
    struct sock_ni_shard *ns = container_of(task, struct sock_ni_shard, quiesce);

    shut_for_new(ns);
    ns->quiet_asked = true;
    mark_begun(ns);
    sock_ni_progress(ns);
}

static struct lnd_peer_ni *next_to_shut(struct sock_ni_shard *ns)
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
    struct sock_ni_shard *ns = container_of(task, struct sock_ni_shard, stop);
    struct lnd_peer_ni *lp;

    shut_for_new(ns);
    if (ns->shard->base.index == ns->sni->link_shard && !ns->sni->ifp)
        sock_link_stop(ns->sni);
    ns->base.stopping = true;
    /* Closing one tells the core of its messages, which may make others go too. */
    while ((lp = next_to_shut(ns))) {
        lp->shut = true;
        lnd_peer_abort(lp, LNET_DROP_SHUTDOWN);
    }
    sock_ni_progress(ns);
}

/* ---- on the control thread ---- */

static void on_quiet(struct reactor_task *task)
{
    struct sock_ni *sni = container_of(task, struct sock_ni_shard, quiet_mail)->sni;

    if (--sni->quiet_wait == 0)
        reactor_post(reactor_self(), sni->quiesce_done);
}

static void on_stopped(struct reactor_task *task)
{
    struct sock_ni *sni = container_of(task, struct sock_ni_shard, stopped_mail)->sni;

    if (--sni->stop_wait == 0) {
        sni->running = false;
        reactor_post(reactor_self(), sni->stop_done);
    }
}

static void ni_shards_init(struct sock_ni *sni)
{
    for (unsigned i = 0; i < sni->nshards; i++) {
        sni->shard[i] = (struct sock_ni_shard){
            .sni = sni,
            .shard = &sni->sock->shards[i],
            .start.fn = on_start,
            .quiesce.fn = on_quiesce,
            .stop.fn = on_stop,
            .quiet_mail.fn = on_quiet,
            .stopped_mail.fn = on_stopped,
        };
        sni->shard[i].base.shard = &sni->sock->shards[i].base;
        sni->shard[i].base.ni = sni->ni;
        TAILQ_INIT(&sni->shard[i].base.peers);
    }
}

/* Its address, its interface and what carries its streams. */
static int ni_resolve(struct sock_ni *sni, struct err *err)
{
    int rc = 0;

    if (sni->sock->opts.ports)
        rc = sock_port_resolve(sni, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    sni->transport = (struct stream_transport){.ops = sni->sock->opts.transport};
    return sock_link_resolve(sni, err);
}

static int ni_prepare(struct sock_ni *sni, struct err *err)
{
    struct lnet_ni *ni = sni->ni;
    int rc = ni_resolve(sni, err);

    if (rc == 0)
        rc = check_tunables(&ni->tun, err);
    if (rc == 0)
        rc = check_lnd_tunables(&ni->lnd_tun, sni, err);
    if (rc < 0)
        return rc;
    ni->rx_take = sni->transport.ops->caps & STREAM_CAP_TAKE;
    ni->tx_refers = sni->transport.ops->caps & STREAM_CAP_BY_REFERENCE;
    if (ni->rx_take && lnet_segment_memory(ni->node) == 0) {
        return err_set(err, -EINVAL, "%s: no memory for received segments; set `segments`",
                       sni->transport.ops->name);
    }
    sni->link_shard = reactor_index(lnet_nid_home(ni->node, &ni->nid));
    sni->link = sock_link_new();
    if (!sni->link || sock_listener_get(sni) < 0) {
        return err_set(err, -ENOMEM, "no memory for an NI");
    }
    return 0;
}

static void ni_free(struct sock_ni *sni)
{
    sock_port_free(sni);
    sock_listener_put(sni);
    free(sni->link);
    free(sni);
}

static int ni_init(struct lnet_ni *ni, struct err *err)
{
    struct lnd_sock *sock = ni->lnd_ctx;
    struct sock_ni *sni;
    int rc = shards_init(sock, ni->node, err);

    if (rc < 0)
        return rc;
    sni = calloc(1, sizeof(*sni) + sock->nshards * sizeof(sni->shard[0]));
    if (!sni || sock->nnis == LNET_MAX_NI) {
        free(sni);
        return err_set(err, -ENOMEM, "no room for another NI");
    }
    sni->ni = ni;
    sni->sock = sock;
    sni->nshards = sock->nshards;
    ni_shards_init(sni);
    rc = ni_prepare(sni, err);
    if (rc < 0) {
        ni_free(sni);
        return rc;
    }
    ni->lnd_ni = sni;
    sock->nis[sock->nnis++] = sni;
    return 0;
}

static int ni_start(struct lnet_ni *ni, struct err *err)
{
    struct sock_ni *sni = ni->lnd_ni;
    int rc;

    sni->incarnation = lnd_incarnation_new(&sni->sock->base, 1);
    /* Before the first caller can come; mail is run in the order it is posted. */
    for (unsigned i = 0; i < sni->nshards; i++)
        reactor_post(sni->sock->shards[i].base.reactor, &sni->shard[i].start);
    sni->running = true;
    rc = sock_listen(sni, err);
    if (rc == 0 && sni->ifp)
        sock_port_watch(sni);
    return rc;
}

static int ni_set(struct lnet_ni *ni, const struct lnd_tunables *set, struct err *err)
{
    struct lnd_tunables tun = lnd_tunables_with(ni->lnd_tun, set);
    int rc = check_lnd_tunables(&tun, ni->lnd_ni, err);

    if (rc == 0)
        lnd_tunables_store(&ni->lnd_tun, &tun);
    return rc;
}

static void ni_quiesce(struct lnet_ni *ni, struct reactor_task *done)
{
    struct sock_ni *sni = ni->lnd_ni;

    if (!sni->running) {
        reactor_post(reactor_self(), done);
        return;
    }
    sock_shut_begin(sni);
    sni->quiesce_done = done;
    sni->quiet_wait = sni->nshards;
    for (unsigned i = 0; i < sni->nshards; i++)
        reactor_post(sni->sock->shards[i].base.reactor, &sni->shard[i].quiesce);
}

static void ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    struct sock_ni *sni = ni->lnd_ni;

    if (!sni->running) {
        reactor_post(reactor_self(), done);
        return;
    }
    sock_shut_begin(sni);
    sock_port_unwatch(sni);
    sni->stop_done = done;
    sni->stop_wait = sni->nshards;
    for (unsigned i = 0; i < sni->nshards; i++)
        reactor_post(sni->sock->shards[i].base.reactor, &sni->shard[i].stop);
}

static void ni_fini(struct lnet_ni *ni)
{
    struct sock_ni *sni = ni->lnd_ni;
    struct lnd_sock *sock = sni->sock;

    for (unsigned i = 0; i < sock->nnis; i++) {
        if (sock->nis[i] == sni) {
            sock->nis[i] = sock->nis[--sock->nnis];
            break;
        }
    }
    ni->lnd_ni = NULL;
    ni_free(sni);
}

static void peer_shrink(void *ctx)
{
    struct lnd_sock *sock = ctx;

    if (sock->shards)
        (void)lnd_peer_forget_one(&sock->shards[reactor_index(reactor_self())].base);
}

static void peer_free(struct lnet_peer_ni *peer)
{
    assert(!peer->lnd_peer); /* each of ours has a reference */
    (void)peer;
}

static void on_progress(struct lnd_ni_shard *ns)
{
    sock_ni_progress(container_of(ns, struct sock_ni_shard, base));
}

const struct lnd_proto sock_proto = {
    .conn_size = sizeof(struct sock_conn),
    .conn_kept = sizeof(struct sock_conn),
    .peer_size = sizeof(struct sock_peer),
    .peer_base = offsetof(struct sock_peer, base),
    .abort_waiting = LNET_HEALTH_REMOTE_DROPPED,
    .abort_begun = LNET_HEALTH_LOCAL_ERROR,
    .peer_init = sock_peer_init,
    .peer_fini = sock_peer_fini,
    .ni_progress = on_progress,
    .connect_begin = sock_dial_begin,
    .connect_next = sock_dial_next,
    .connect_late = sock_dial_late,
    .conn_close = sock_conn_end,
    .conn_listed = sock_peer_conn_listed,
};

const struct lnd_ops lnd_sock_ops = {
    .name = "tcp",
    .type = LNET_LND_SOCK,
    .ni_init = ni_init,
    .ni_start = ni_start,
    .ni_set = ni_set,
    .ni_quiesce = ni_quiesce,
    .ni_stop = ni_stop,
    .ni_fini = ni_fini,
    .send = sock_send,
    .recv = sock_rx_recv,
    .recv_abandon = sock_rx_give_up,
    .peer_abort = sock_peer_abort,
    .peer_info = sock_peer_info,
    .peer_free = peer_free,
    .peer_shrink = peer_shrink,
};
