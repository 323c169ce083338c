/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/peer_ni.h"

#include "lib/lnd/connect.h"

#include <assert.h>

/* ---- life ---- */

static void queue_timer(struct reactor_timer *t);
static void linger_timer(struct reactor_timer *t);

static struct lnd_peer_ni *alloc(struct lnd_shard *shard)
{
    char *object = lnd_pool_get_zeroed(&shard->peers);

    return object ? (void *)(object + shard->driver->proto->peer_base) : NULL;
}

struct lnd_peer_ni *lnd_peer_get(struct lnd_ni_shard *ns, struct lnet_peer_ni *peer)
{
    struct lnd_peer_ni *lp = lnd_peer_find(ns, peer);

    if (lp)
        return lp;
    lp = alloc(ns->shard);
    if (!lp && lnd_peer_forget_one(ns->shard))
        lp = alloc(ns->shard);
    if (!lp)
        return NULL;
    lnet_peer_ni_hold(peer);
    lp->ns = ns;
    lp->peer = peer;
    STAILQ_INIT(&lp->queue);
    TAILQ_INIT(&lp->conns);
    reactor_timer_init(&lp->queue_timer, queue_timer);
    reactor_timer_init(&lp->linger_timer, linger_timer);
    reactor_timer_init(&lp->connect.timer, lnd_connect_timer);
    lp->next_of_peer = peer->lnd_peer;
    peer->lnd_peer = lp;
    TAILQ_INSERT_TAIL(&ns->peers, lp, link);
    lnd_proto_of(lp->ns->lni)->peer_init(lp);
    return lp;
}

struct lnd_peer_ni *lnd_peer_get_nid(struct lnd_ni_shard *ns, const struct lnet_nid *nid)
{
    struct lnet_peer_ni *peer = lnet_peer_ni_get(ns->shard->driver->node, nid);
    struct lnd_peer_ni *lp = peer ? lnd_peer_get(ns, peer) : NULL;

    if (peer)
        lnet_peer_ni_put(peer);
    return lp;
}

struct lnd_peer_ni *lnd_peer_for(struct lnd_ni_shard *ns, struct lnet_msg *msg)
{
    struct lnd_peer_ni *lp;

    if (!lnd_ns_sends(ns)) {
        lnd_msg_fail(msg, LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
        return NULL;
    }
    lp = lnd_peer_get(ns, msg->tx_peer);
    if (!lp)
        lnd_msg_fail(msg, LNET_DROP_NO_PEER_MEMORY, LNET_HEALTH_LOCAL_ERROR);
    return lp;
}

void lnd_peer_spare_set(struct lnd_peer_ni *lp, bool spare)
{
    if (lp->spare == spare)
        return;
    lp->spare = spare;
    if (spare)
        TAILQ_INSERT_TAIL(&lp->ns->shard->spare, lp, spare_link);
    else
        TAILQ_REMOVE(&lp->ns->shard->spare, lp, spare_link);
}

static void forget(struct lnd_peer_ni *lp)
{
    const struct lnd_proto *proto = lnd_proto_of(lp->ns->lni);
    struct lnet_peer_ni *peer = lp->peer;
    struct lnd_ni_shard *ns = lp->ns;
    struct lnd_peer_ni **at = (struct lnd_peer_ni **)&peer->lnd_peer;

    lnd_peer_spare_set(lp, false);
    while (*at != lp)
        at = &(*at)->next_of_peer;
    *at = lp->next_of_peer;
    TAILQ_REMOVE(&ns->peers, lp, link);
    reactor_timer_cancel(&lp->queue_timer);
    reactor_timer_cancel(&lp->linger_timer);
    reactor_timer_cancel(&lp->connect.timer);
    if (proto->peer_fini)
        proto->peer_fini(lp);
    lnd_pool_put(&ns->shard->peers, (char *)lp - proto->peer_base);
    lnet_peer_ni_put(peer);
    lnd_ns_progress(ns);
}

/* A sender can name any number of unreachable destinations. Peer NIs that are only remembered must
 * not keep other peer NIs out. */
bool lnd_peer_forget_one(struct lnd_shard *shard)
{
    struct lnd_peer_ni *lp = TAILQ_FIRST(&shard->spare);

    if (!lp)
        return false;
    forget(lp);
    return true;
}

/* Keeps the back-off and the incarnation of the peer NI for a while. */
void lnd_peer_idle(struct lnd_peer_ni *lp)
{
    uint64_t now = reactor_now_us();
    uint64_t wait = lp->connect.next_us > now ? lp->connect.next_us - now : 0;

    if (lnd_ns_is_stopping(lp->ns)) {
        forget(lp);
        return;
    }
    lnd_peer_spare_set(lp, true);
    reactor_timer_arm(&lp->linger_timer, wait + lnd_proto_of(lp->ns->lni)->linger * LND_SEC);
}

static void linger_timer(struct reactor_timer *t)
{
    struct lnd_peer_ni *lp = container_of(t, struct lnd_peer_ni, linger_timer);

    if (lp->spare)
        forget(lp);
}

/* ---- messages that wait for a connection ---- */

void lnd_queue_timer_set(struct lnd_peer_ni *lp)
{
    const struct lnet_msg *first = STAILQ_FIRST(&lp->queue);
    uint64_t now = reactor_now_us();

    if (!first)
        reactor_timer_cancel(&lp->queue_timer);
    else
        reactor_timer_arm(&lp->queue_timer,
                          first->lnd_deadline_us > now ? first->lnd_deadline_us - now : 0);
}

static void enqueue(struct lnd_peer_ni *lp, struct lnet_msg *msg, uint64_t wait_us)
{
    msg->lnd_deadline_us = reactor_now_us() + wait_us;
    STAILQ_INSERT_TAIL(&lp->queue, msg, queue);
    if (STAILQ_FIRST(&lp->queue) == msg)
        lnd_queue_timer_set(lp);
}

void lnd_peer_wait(struct lnd_peer_ni *lp, struct lnet_msg *msg, uint64_t wait_us)
{
    bool waits = lp->connecting != LND_CONNECT_IDLE || lp->accepting > 0;

    if (!waits && !lnd_connect_may(lp)) {
        lnd_msg_fail(msg, LNET_DROP_NEXT_HOP_DOWN, lp->connect.health);
    } else {
        enqueue(lp, msg, wait_us);
        lnd_connect_start(lp);
    }
}

/* All wait equally long, so the first message expires first, or nearly so if the timeout was
 * changed meanwhile. */
static void queue_timer(struct reactor_timer *t)
{
    struct lnd_peer_ni *lp = container_of(t, struct lnd_peer_ni, queue_timer);

    lnd_peer_hold(lp);
    while (STAILQ_FIRST(&lp->queue) &&
           STAILQ_FIRST(&lp->queue)->lnd_deadline_us <= reactor_now_us())
        lnd_msg_fail(lnet_msg_queue_pop(&lp->queue), LNET_DROP_NEXT_HOP_TIMEOUT,
                     LNET_HEALTH_NETWORK_TIMEOUT);
    lnd_queue_timer_set(lp);
    lnd_peer_release(lp);
}

void lnd_msgs_fail(struct lnet_msg *list, enum lnet_drop reason, enum lnet_health health)
{
    struct lnet_msg *msg;

    while ((msg = list)) {
        list = msg->lnd_next;
        msg->lnd_next = NULL;
        lnd_msg_fail(msg, reason, health);
    }
}

void lnd_peer_fail_queue(struct lnd_peer_ni *lp, enum lnet_drop reason, enum lnet_health health)
{
    struct lnet_msg *list = lnet_msg_queue_take(&lp->queue);

    lnd_queue_timer_set(lp);
    lnd_peer_hold(lp);
    lnd_msgs_fail(list, reason, health);
    lnd_peer_release(lp);
}

/* ---- events ---- */

static void post(const struct lnd_peer_ni *lp, enum lnet_node_event_kind kind, enum lnet_drop drop,
                 const char *cause)
{
    struct lnet_node_event row = {.kind = kind, .nid = lp->peer->nid, .drop = drop, .cause = cause};

    lnet_node_event_post(lp->ns->lni->ni->node, &row);
}

/* On any local NI. */
static bool is_connected(const struct lnet_peer_ni *peer)
{
    const struct lnd_peer_ni *lp = peer->lnd_peer;

    while (lp && lp->nconns == 0)
        lp = lp->next_of_peer;
    return lp != NULL;
}

static void post_down(const struct lnd_peer_ni *lp, const struct lnd_close *why)
{
    enum lnet_drop drop = why->event != LNET_DROP_NONE ? why->event : why->cause;

    if (drop == LNET_DROP_SHUTDOWN && !lnet_ni_is_active(lp->ns->lni->ni))
        drop = LNET_DROP_NI_REMOVED;
    post(lp, LNET_NODE_EV_PEER_DOWN, drop, drop == LNET_DROP_NONE ? "closed_by_peer" : NULL);
}

bool lnd_peer_note(struct lnd_peer_ni *lp, uint64_t incarnation)
{
    bool other = lp->incarnation != 0 && lp->incarnation != incarnation;
    struct lnet_peer_ni *peer = lp->peer;

    if (peer->incarnation != 0 && peer->incarnation != incarnation)
        post(lp, LNET_NODE_EV_PEER_RESTART, LNET_DROP_NONE, "new_incarnation");
    peer->incarnation = incarnation;
    lp->incarnation = incarnation;
    return other;
}

/* ---- the set ---- */

void lnd_conn_up(struct lnd_peer_ni *lp, struct lnd_conn *conn)
{
    bool first = lp->nconns == 0, first_of_all = !is_connected(lp->peer);

    conn->listed = true;
    TAILQ_INSERT_TAIL(&lp->conns, conn, link);
    lp->nconns++;
    if (first) {
        lp->up_us = reactor_now_us();
        TAILQ_INSERT_TAIL(&lp->ns->shard->connected, lp, connected);
        lnet_peer_ni_connected(lp->peer, true);
    }
    lnd_proto_of(lp->ns->lni)->conn_listed(lp, conn, true);
    if (first_of_all)
        post(lp, LNET_NODE_EV_PEER_UP, LNET_DROP_NONE, conn->initiated ? "called" : "accepted");
    if (first)
        lnet_peer_ni_notify(lp->ns->lni->ni, lp->peer, true);
}

static void unlist(struct lnd_peer_ni *lp, struct lnd_conn *conn)
{
    TAILQ_REMOVE(&lp->conns, conn, link);
    if (--lp->nconns == 0) {
        TAILQ_REMOVE(&lp->ns->shard->connected, lp, connected);
        lnet_peer_ni_connected(lp->peer, false);
    }
    conn->listed = false;
    lnd_proto_of(lp->ns->lni)->conn_listed(lp, conn, false);
}

static bool is_lost(const struct lnd_peer_ni *lp, const struct lnd_close *why)
{
    return lp->nconns == 0 && why->event != LNET_DROP_NONE && !lnd_ns_is_stopping(lp->ns);
}

/* Before the messages of a connection that is unlisted are ended. */
static void losing(struct lnd_peer_ni *lp, const struct lnd_close *why)
{
    if (is_lost(lp, why))
        lnet_peer_ni_lost(lp->ns->lni->ni, lp->peer);
}

/* The last connection of the set was lost. The core may have opened others meanwhile. */
static void all_lost(struct lnd_peer_ni *lp, const struct lnd_close *why)
{
    if (lp->nconns > 0)
        return;
    /* A refused call is not repeated: its messages have been sent on these connections. */
    if (lp->connecting == LND_CONNECT_WAIT && STAILQ_EMPTY(&lp->queue))
        lnd_connect_cancel(lp);
    if (!is_connected(lp->peer))
        post_down(lp, why);
    if (is_lost(lp, why))
        lnet_peer_ni_notify(lp->ns->lni->ni, lp->peer, false);
}

void lnd_conn_down(struct lnd_peer_ni *lp, struct lnd_conn *conn, const struct lnd_close *why)
{
    unlist(lp, conn);
    losing(lp, why);
    lnd_proto_of(lp->ns->lni)->conn_close(conn, why);
    all_lost(lp, why);
}

/* Closing a connection reports its messages to the core, which may send others: these must not find
 * a connection that is closed next. */
void lnd_peer_close(struct lnd_peer_ni *lp, const struct lnd_close *why)
{
    struct lnd_conn *conn, *list = NULL;
    bool had = lp->nconns > 0;

    lnd_peer_hold(lp);
    if (lp->connecting == LND_CONNECT_IDLE)
        lp->record = false; /* the node that begins the next set completes it */
    while ((conn = TAILQ_LAST(&lp->conns, lnd_conns))) {
        unlist(lp, conn);
        conn->next = list;
        list = conn;
    }
    if (had)
        losing(lp, why);
    while ((conn = list)) {
        list = conn->next;
        lnd_proto_of(lp->ns->lni)->conn_close(conn, why);
    }
    if (had)
        all_lost(lp, why);
    lnd_peer_release(lp);
}

void lnd_peer_abort(struct lnd_peer_ni *lp, enum lnet_drop reason)
{
    const struct lnd_proto *proto = lnd_proto_of(lp->ns->lni);
    const struct lnd_close why = {
        .cause = reason,
        .tx = reason,
        .rx = reason == LNET_DROP_SHUTDOWN ? LNET_DROP_SHUTDOWN : LNET_DROP_RX_INCOMPLETE,
        .queued = LNET_HEALTH_LOCAL_ERROR,
        .begun = proto->abort_begun,
    };

    lnd_peer_hold(lp);
    lnd_connect_cancel(lp);
    if (proto->peer_abort)
        proto->peer_abort(lp, &why);
    lnd_peer_fail_queue(lp, reason, proto->abort_waiting);
    lnd_peer_close(lp, &why);
    lnd_peer_release(lp);
}

bool lnd_peer_began(const struct lnd_peer_ni *lp)
{
    const struct lnd_conn *conn;

    TAILQ_FOREACH(conn, &lp->conns, link) {
        if (conn->initiated)
            return false;
    }
    return lp->nconns > 0;
}

/* ---- struct lnd_ops ---- */

void lnd_ni_peer_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop reason)
{
    struct lnd_peer_ni *lp =
        lnd_peer_find(lnd_ns_at(ni->lnd_ni, reactor_index(reactor_self())), peer);

    if (lp)
        lnd_peer_abort(lp, reason);
}

bool lnd_ni_peer_connect(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool give_up)
{
    struct lnd_ni_shard *ns = lnd_ns_at(ni->lnd_ni, reactor_index(reactor_self()));
    struct lnd_peer_ni *lp = NULL;
    bool up;

    if (lnd_ns_sends(ns))
        lp = give_up ? lnd_peer_find(ns, peer) : lnd_peer_get(ns, peer);
    if (!lp)
        return false;
    lnd_peer_hold(lp);
    up = lp->nconns > 0;
    if (!up && !give_up)
        lnd_connect_start(lp);
    else if (!up && lp->accepting == 0 && STAILQ_EMPTY(&lp->queue))
        lnd_connect_cancel(lp);
    lnd_peer_release(lp);
    return up;
}

void lnd_peer_shrink(void *ctx)
{
    struct lnd_driver *driver = ctx;

    if (driver->shards)
        (void)lnd_peer_forget_one(lnd_shard_at(driver, reactor_index(reactor_self())));
}

void lnd_peer_free(struct lnet_peer_ni *peer)
{
    assert(!peer->lnd_peer); /* each lnd_peer_ni has a reference */
}
