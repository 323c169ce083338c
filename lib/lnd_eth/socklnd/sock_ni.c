/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of the LND and what each reactor has of it: settings, pools, start, quiesce, stop.
 * docs/protocol/socklnd.md §3.1, §5.1.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MUCH_MOST 1024 /* of what sock_rx_run() counts: eight runs in one iteration, or 2 MiB */

/* ---- connections with something to do ---- */

void sock_ready(struct sock_conn *c)
{
    if (c->ready != SOCK_NOT_READY || c->state != SOCK_CONN_UP)
        return;
    c->ready = SOCK_READY;
    TAILQ_INSERT_TAIL(&c->shard->ready, c, ready_link);
    c->shard->base.poller.max_sleep_us = 0;
}

void sock_unready(struct sock_conn *c)
{
    if (c->ready == SOCK_READY) {
        TAILQ_REMOVE(&c->shard->ready, c, ready_link);
    } else if (c->ready == SOCK_TURN) {
        TAILQ_REMOVE(&c->shard->turn, c, ready_link);
    } else if (c->ready == SOCK_MUCH) {
        TAILQ_REMOVE(&c->shard->much, c, ready_link);
        c->shard->nmuch--;
    }
    c->ready = SOCK_NOT_READY;
}

void sock_much(struct sock_conn *c)
{
    sock_unready(c);
    c->ready = SOCK_MUCH;
    TAILQ_INSERT_TAIL(&c->shard->much, c, ready_link);
    c->shard->nmuch++;
    c->shard->base.poller.max_sleep_us = 0;
}

/* Prefetches what the next connection will send, and the connection after that. */
static void fetch_next(const struct sock_conn *c)
{
    const struct sock_conn *next = TAILQ_NEXT(c, ready_link);

    if (!next)
        return;
    if (STAILQ_FIRST(&next->txq))
        prefetch_write(STAILQ_FIRST(&next->txq), 3 * CPU_BLOCK);
    if (next->stream)
        prefetch_write(next->stream, 1 * CPU_BLOCK);
    next = TAILQ_NEXT(next, ready_link);
    if (next)
        prefetch_write(next, 2 * CPU_BLOCK);
}

static void run(struct sock_conn *c)
{
    fetch_next(c);
    sock_unready(c);
    sock_conn_hold(c);
    sock_tx_run(c);
    sock_rx_run(c);
    sock_conn_release(c);
}

static int shard_poll(void *arg)
{
    struct sock_shard *shard = arg;
    struct sock_conn *c;
    int work = 0;

    /* Connections that become ready meanwhile run in the next iteration. */
    TAILQ_CONCAT(&shard->turn, &shard->ready, ready_link);
    TAILQ_FOREACH(c, &shard->turn, ready_link)
        c->ready = SOCK_TURN;
    for (; (c = TAILQ_FIRST(&shard->turn)); work++)
        run(c);
    shard->spent = 0;
    for (; (c = TAILQ_FIRST(&shard->much)) && shard->spent < MUCH_MOST; work++)
        run(c);
    shard->base.poller.max_sleep_us =
        TAILQ_EMPTY(&shard->ready) && TAILQ_EMPTY(&shard->much) ? UINT64_MAX : 0;
    return work;
}

/* ---- pools ---- */

/* Returns whether an NI may have a transport that hands over segments. */
static bool has_takes(const struct sock_opts *o)
{
    return o->transport->caps & STREAM_CAP_TAKE ||
           (o->ports && o->ports->transport.ops->caps & STREAM_CAP_TAKE);
}

static bool shard_init(struct lnd_shard *base)
{
    struct sock_shard *shard = sock_shard_of(base);

    shard->sock = container_of(base->driver, struct lnd_sock, base);
    TAILQ_INIT(&shard->ready);
    TAILQ_INIT(&shard->turn);
    TAILQ_INIT(&shard->much);
    TAILQ_INIT(&shard->pending);
    shard->scratch = malloc(SOCK_SCRATCH);
    return shard->scratch &&
           lnd_pool_init(&shard->hss, SOCK_HS_MAX, sizeof(struct sock_hs), sizeof(void *)) &&
           share_init(&shard->callers, SOCK_HS_MAX + 1) &&
           (!has_takes(&shard->sock->opts) ||
            lnd_pool_init(&shard->takes, SOCK_TAKES, sizeof(struct sock_take), sizeof(void *)));
}

static void shard_fini(struct lnd_shard *base)
{
    struct sock_shard *shard = sock_shard_of(base);

    lnd_pool_fini(&shard->hss);
    share_fini(&shard->callers);
    lnd_pool_fini(&shard->takes);
    free(shard->scratch);
}

void lnd_sock_memory(const struct sock_opts *opts, unsigned reactors, bool takes,
                     struct lnd_memory *out)
{
    size_t conns = opts->max_conns ? opts->max_conns : SOCK_CONNS_DEFAULT;
    size_t shard = SOCK_SCRATCH + lnd_shard_bytes(&sock_proto, (unsigned)conns) +
                   lnd_pool_bytes(SOCK_HS_MAX, sizeof(struct sock_hs)) +
                   share_bytes(SOCK_HS_MAX + 1);

    if (takes || has_takes(opts))
        shard += lnd_pool_bytes(SOCK_TAKES, sizeof(struct sock_take));
    *out = (struct lnd_memory){
        .conns = (unsigned)conns,
        .beside = "handshakes",
        .pools = reactors * shard,
        .streams = reactors * (conns + SOCK_HS_MAX) * opts->transport->stream_bytes,
    };
}

/* ---- the LND as a whole ---- */

struct lnd_sock *lnd_sock_new(const struct sock_opts *opts)
{
    struct lnd_sock *sock = calloc(1, sizeof(*sock));

    if (!sock)
        return NULL;
    sock->opts = *opts;
    if (opts->hello_map_count > 0) {
        sock->map = calloc(opts->hello_map_count, sizeof(*sock->map));
        if (!sock->map) {
            free(sock);
            return NULL;
        }
        memcpy(sock->map, opts->hello_map, opts->hello_map_count * sizeof(*sock->map));
    }
    sock->opts.hello_map = sock->map;
    lnd_driver_init(&sock->base, &sock_proto, opts->max_conns, opts->min_reconnect,
                    opts->max_reconnect);
    return sock;
}

static void driver_fini(struct lnd_driver *driver)
{
    free(container_of(driver, struct lnd_sock, base)->map);
}

/* ---- settings ---- */

/* §3.1 */
static int conns_default(const struct lnd_ni *lni)
{
    const struct sock_ni *sni = container_of(lni, struct sock_ni, base);

    if (sni->ifp)
        return sock_link_conns_of_speed(sni->sock->opts.ports->speed(sni->ifp));
    return sock_link_conns_by_speed(lni->ni->ifname);
}

/* ---- on each reactor ---- */

static bool is_link_shard(const struct lnd_ni_shard *ns)
{
    const struct sock_ni *sni = sock_ni_of(ns->lni);

    return ns->shard->index == sni->link_shard && !sni->ifp;
}

static bool is_listening_shard(const struct lnd_ni_shard *ns)
{
    return ns->shard == &sock_ni_of(ns->lni)->listener->shard->base;
}

static void ns_start(struct lnd_ni_shard *ns)
{
    struct sock_ni *sni = sock_ni_of(ns->lni);

    if (is_listening_shard(ns))
        TAILQ_INSERT_TAIL(&sni->listener->nis, sni, of_listener);
    if (is_link_shard(ns))
        sock_link_start(sni);
}

static void ns_shut(struct lnd_ni_shard *ns)
{
    if (is_listening_shard(ns))
        sock_unlisten(sock_ni_of(ns->lni));
}

/* Counts the connections in the middle of a message. */
static void ns_quiesce(struct lnd_ni_shard *ns)
{
    struct lnd_peer_ni *lp;
    struct sock_conn *c;

    TAILQ_FOREACH(lp, &ns->peers, link) {
        SOCK_CONN_FOREACH(c, sock_peer_of(lp)) {
            if (c->rx_state == SOCK_RX_FRAME)
                continue;
            c->draining = true;
            sock_ns_of(ns)->begun++;
        }
    }
}

static bool ns_quiet(const struct lnd_ni_shard *ns)
{
    return sock_ns_of(ns)->begun == 0;
}

static void ns_stop(struct lnd_ni_shard *ns)
{
    if (is_link_shard(ns))
        sock_link_stop(sock_ni_of(ns->lni));
}

static bool ns_closed(const struct lnd_ni_shard *ns)
{
    return sock_ns_of(ns)->hs_away == 0;
}

/* ---- on the control thread ---- */

/* Finds the address, the interface and the transport of an NI. */
static int ni_resolve(struct lnd_ni *lni, struct err *err)
{
    struct sock_ni *sni = sock_ni_of(lni);
    int rc = 0;

    sni->sock = container_of(lni->driver, struct lnd_sock, base);
    if (sni->sock->opts.ports)
        rc = sock_port_resolve(sni, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    sni->transport = (struct stream_transport){.ops = sni->sock->opts.transport};
    return sock_link_resolve(sni, err);
}

static int ni_init(struct lnd_ni *lni, struct err *err)
{
    struct sock_ni *sni = sock_ni_of(lni);
    struct lnet_ni *ni = lni->ni;

    ni->rx_take = sni->transport.ops->caps & STREAM_CAP_TAKE;
    ni->tx_refers = sni->transport.ops->caps & STREAM_CAP_BY_REFERENCE;
    if (ni->rx_take && lnet_segment_memory(ni->node) == 0)
        return err_set(err, -EINVAL, "%s: no memory for received segments; set `segments`",
                       sni->transport.ops->name);
    sni->link_shard = reactor_index(lnet_nid_home(ni->node, &ni->nid));
    if (sock_listener_get(sni) < 0)
        return err_set(err, -ENOMEM, "no memory for an NI");
    return 0;
}

static void ni_fini(struct lnd_ni *lni)
{
    struct sock_ni *sni = sock_ni_of(lni);
    struct sock_listener *l = sni->listener;

    sock_port_free(sni);
    sni->listener = NULL;
    if (lnd_listener_put(lni))
        free(l);
}

static int ni_start(struct lnet_ni *ni, struct err *err)
{
    struct sock_ni *sni = ni->lnd_ni;
    int rc = lnd_ni_start(ni, err);

    if (rc == 0 && sni->ifp)
        sock_port_watch(sni);
    return rc;
}

static void ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    sock_port_unwatch(ni->lnd_ni);
    lnd_ni_stop(ni, done);
}

const struct lnd_proto sock_proto = {
    .name = "tcp",
    .shard_size = sizeof(struct sock_shard),
    .ni_size = offsetof(struct sock_ni, shard),
    .ni_shard_size = sizeof(struct sock_ni_shard),
    .conn_size = sizeof(struct sock_conn),
    .conn_kept = sizeof(struct sock_conn),
    .peer_size = sizeof(struct sock_peer),
    .peer_base = offsetof(struct sock_peer, base),
    .credits_min = 1,
    .stamp_ns = 1,
    .max_conns = SOCK_CONNS_DEFAULT,
    .linger = 60,
    .abort_waiting = LNET_HEALTH_REMOTE_DROPPED,
    .abort_begun = LNET_HEALTH_LOCAL_ERROR,
    .driver_fini = driver_fini,
    .shard_init = shard_init,
    .shard_fini = shard_fini,
    .ni_resolve = ni_resolve,
    .ni_init = ni_init,
    .ni_fini = ni_fini,
    .conns_default = conns_default,
    .listen = sock_listen,
    .poll = shard_poll,
    .ns_start = ns_start,
    .ns_shut = ns_shut,
    .ns_quiesce = ns_quiesce,
    .ns_stop = ns_stop,
    .ns_quiet = ns_quiet,
    .ns_closed = ns_closed,
    .peer_init = sock_peer_init,
    .peer_fini = sock_peer_fini,
    .connect_begin = sock_dial_begin,
    .connect_next = sock_dial_next,
    .connect_late = sock_dial_late,
    .conn_close = sock_conn_close,
    .conn_listed = sock_peer_conn_listed,
};

const struct lnd_ops lnd_sock_ops = {
    .name = "tcp",
    .type = LNET_LND_SOCK,
    LND_OPS_COMMON,
    .ni_start = ni_start,
    .ni_stop = ni_stop,
    .send = sock_send,
    .recv = sock_rx_recv,
    .recv_abandon = sock_rx_give_up,
    .peer_info = sock_peer_info,
};
