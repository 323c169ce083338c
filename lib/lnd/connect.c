/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/connect.h"

#include "lib/base/minmax.h"

/* ---- beginning ---- */

bool lnd_connect_may(const struct lnd_peer_ni *lp)
{
    return lp->connecting == LND_CONNECT_IDLE && reactor_now_us() >= lp->connect.next_us;
}

void lnd_connect_number(struct lnd_peer_ni *lp)
{
    lp->connect.wanted = (unsigned)lnd_setting(&lp->ns->lni->ni->lnd_tun.conns_per_peer);
}

void lnd_connect_later(struct lnd_peer_ni *lp, uint64_t delay_us)
{
    lp->connecting = LND_CONNECT_WAIT;
    reactor_timer_arm(&lp->connect.timer, delay_us);
}

void lnd_connect_start(struct lnd_peer_ni *lp)
{
    if (!lnd_connect_may(lp) || lnd_ns_is_stopping(lp->ns))
        return;
    if (!lp->record || lp->nconns == 0)
        lnd_connect_number(lp);
    lp->record = true;
    lnd_proto_of(lp->ns->lni)->connect_begin(lp);
    lnd_connect_later(lp, 0);
}

void lnd_connect_timer(struct reactor_timer *t)
{
    struct lnd_peer_ni *lp = container_of(t, struct lnd_peer_ni, connect.timer);

    lnd_peer_hold(lp);
    if (lp->connecting == LND_CONNECT_RUN && lp->connect.conn)
        lnd_proto_of(lp->ns->lni)->connect_late(lp);
    else if (lp->connecting != LND_CONNECT_IDLE)
        lnd_proto_of(lp->ns->lni)->connect_next(lp);
    lnd_peer_release(lp);
}

/* ---- limit for calls ---- */

/* Ends the call of these that waits longest, if that is too long. */
static bool give_way(struct lnd_calls *of)
{
    struct lnd_peer_ni *lp = TAILQ_FIRST(&of->waiting);

    if (!lp || lnd_call_is_young(lp))
        return false;
    if (lp->connect.conn)
        lnd_proto_of(lp->ns->lni)->connect_late(lp);
    else
        lnd_connect_failed(lp, LNET_HEALTH_NETWORK_TIMEOUT, LNET_HEALTH_REMOTE_ERROR);
    return true;
}

bool lnd_connect_give_way(struct lnd_shard *shard)
{
    return give_way(&shard->calls[0]) || give_way(&shard->calls[1]);
}

static unsigned places_left(const struct lnd_shard *shard, const struct lnd_calls *of)
{
    unsigned most = min(lnd_calls_most(shard->driver->max_conns), (shard->conns.nfree + 1) / 2);

    return most > of->n ? most - of->n : 0;
}

static struct share_account *take_place(struct lnd_shard *shard, struct lnd_calls *of,
                                        const struct lnet_nid *nid)
{
    struct lnet_nid prefix = lnet_nid_prefix(shard->driver->node, nid);
    unsigned left = places_left(shard, of);
    struct share_account *a = left > 0 ? share_of(&of->share, &prefix, NULL) : NULL;

    if (!a || !share_may(a, left))
        return NULL;
    share_take(a);
    of->n++;
    return a;
}

const char *lnd_connect_place(struct lnd_peer_ni *lp)
{
    struct lnd_shard *shard = lp->ns->shard;
    bool known = lp->peer->incarnation != 0 && lp->connect.interval == 0;
    struct lnd_calls *of = lp->connect.calls;

    lp->connect.call_us = reactor_now_us();
    if (of) {
        TAILQ_REMOVE(&of->waiting, lp, connect.waiting);
    } else if (lp->peer->gw_ni) {
        return NULL;
    } else {
        of = &shard->calls[known];
        lp->connect.place = take_place(shard, of, &lp->peer->nid);
        if (!lp->connect.place && give_way(of))
            lp->connect.place = take_place(shard, of, &lp->peer->nid);
        if (!lp->connect.place)
            return "too many calls of this thread wait for an answer (max_connections)";
        lp->connect.calls = of;
    }
    TAILQ_INSERT_TAIL(&of->waiting, lp, connect.waiting);
    return NULL;
}

static void place_end(struct lnd_peer_ni *lp)
{
    struct lnd_calls *of = lp->connect.calls;

    if (!of)
        return;
    share_give(&of->share, lp->connect.place);
    TAILQ_REMOVE(&of->waiting, lp, connect.waiting);
    lp->connect.calls = NULL;
    of->n--;
}

/* ---- end of a run ---- */

void lnd_connect_drop(struct lnd_peer_ni *lp)
{
    static const struct lnd_close why = {.tx = LNET_DROP_NEXT_HOP_LOST,
                                         .rx = LNET_DROP_RX_INCOMPLETE};
    struct lnd_conn *conn = lp->connect.conn;

    lp->connect.conn = NULL;
    if (conn)
        lnd_proto_of(lp->ns->lni)->conn_close(conn, &why);
}

void lnd_connect_stop(struct lnd_peer_ni *lp)
{
    reactor_timer_cancel(&lp->connect.timer);
    lnd_connect_drop(lp);
    place_end(lp);
    lp->connecting = LND_CONNECT_IDLE;
}

void lnd_connect_cancel(struct lnd_peer_ni *lp)
{
    lnd_connect_stop(lp);
    lp->record = false;
}

void lnd_connect_done(struct lnd_peer_ni *lp)
{
    lnd_connect_stop(lp);
    lnd_connect_reachable(lp);
}

void lnd_connect_back_off(struct lnd_peer_ni *lp)
{
    const struct lnd_driver *d = lp->ns->shard->driver;
    unsigned twice = lp->connect.interval * 2;

    lp->connect.interval = twice < d->min_reconnect   ? d->min_reconnect
                           : twice > d->max_reconnect ? d->max_reconnect
                                                      : twice;
    lp->connect.next_us = reactor_now_us() + lp->connect.interval * LND_SEC;
}

void lnd_connect_failed(struct lnd_peer_ni *lp, enum lnet_health now, enum lnet_health later)
{
    lnd_peer_hold(lp);
    lnd_connect_stop(lp);
    lnd_connect_back_off(lp);
    lp->connect.health = later;
    if (lp->nconns == 0 && lp->accepting == 0) {
        lp->record = false;
        if (!lnd_ns_is_stopping(lp->ns))
            lnet_peer_ni_notify(lp->ns->lni->ni, lp->peer, false);
    }
    if (lp->accepting == 0)
        lnd_peer_fail_queue(lp, LNET_DROP_NEXT_HOP_DOWN, now);
    lnd_peer_release(lp);
}
