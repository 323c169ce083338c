/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/connect.h"

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

const char *lnd_connect_place(struct lnd_peer_ni *lp)
{
    struct lnd_shard *shard = lp->ns->shard;
    unsigned nfree = lnd_calls_most(shard->driver->max_conns) - shard->ncalls;
    struct share_account *a;
    struct lnet_nid prefix;

    if (lp->connect.place || lp->peer->gw ||
        (lp->peer->incarnation != 0 && lp->connect.interval == 0))
        return NULL;
    prefix = lnet_nid_prefix(shard->driver->node, &lp->peer->nid);
    a = nfree > 0 ? share_of(&shard->calls, &prefix, NULL) : NULL;
    if (!a || !share_may(a, nfree))
        return "too many calls of this thread wait for a first answer (max_connections)";
    share_take(a);
    shard->ncalls++;
    lp->connect.place = a;
    return NULL;
}

static void place_end(struct lnd_peer_ni *lp)
{
    struct lnd_shard *shard = lp->ns->shard;

    if (!lp->connect.place)
        return;
    share_give(&shard->calls, lp->connect.place);
    lp->connect.place = NULL;
    shard->ncalls--;
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
