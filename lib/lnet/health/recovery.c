/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peer NIs in recovery: pinged with a growing gap until they are healthy. Each reactor has a queue
 * of those at home there, and looks at it once a second, a part in an iteration. The node's home
 * sends the pings (ping/recovery.c), as many as it has room for; the others are due again a second
 * later. Pings change health as all messages do. docs/protocol/lnet-core.md §6.3.
 */
#include "lib/lnet/health/health.h"
#include "lib/lnet/peer/peer_ni.h"

#define TICK_US    1000000ull
#define LOOK_BURST 128 /* peer NIs looked at in one iteration of a reactor */

uint64_t lnet_recovery_next_us(const struct lnet_node *node, unsigned pings)
{
    uint64_t most = relaxed_load(&node->health.max_interval);
    uint64_t gap = pings < 32 && 1ull << pings <= most ? 1ull << pings : most;

    return reactor_now_us() + gap * 1000000;
}

static bool is_too_old(const struct lnet_peer_ni *peer)
{
    uint64_t limit = relaxed_load(&peer->shard->node->health.recovery_limit);

    return peer->last_alive_us == 0 ||
           (limit > 0 && reactor_now_us() > peer->last_alive_us + limit * 1000000);
}

void lnet_recovery_look(struct lnet_peer_ni *peer)
{
    struct lnet_shard *s = peer->shard;
    bool healthy = peer->health == LNET_MAX_HEALTH, wanted = !healthy && !is_too_old(peer);

    if (wanted == peer->is_recovering && (healthy || wanted) == !peer->is_unpinged)
        return;
    lnet_peer_ni_unqueue_recovery(peer);
    if (!wanted) {
        peer->next_ping_us = 0;
        peer->ping_count = 0;
    }
    if (!healthy && !wanted) {
        TAILQ_INSERT_TAIL(&s->peer->unpinged, peer, recovery);
        s->peer->nunpinged++;
        peer->is_unpinged = true;
    }
    if (!wanted)
        return;
    TAILQ_INSERT_TAIL(&s->peer->recovering, peer, recovery);
    s->peer->nrecovering++;
    peer->is_recovering = true;
    peer->next_ping_us = lnet_recovery_next_us(s->node, peer->ping_count);
    if (!reactor_timer_armed(&s->health->tick))
        reactor_timer_arm(&s->health->tick, TICK_US);
}

/* ---- the tick ---- */

static bool is_full(const struct lnet_health_shard *h)
{
    return h->npings == LNET_RECOVERY_PINGS;
}

static void look_at(struct lnet_health_shard *h, struct lnet_peer_ni *p)
{
    lnet_recovery_look(p);
    if (p->is_recovering && !h->pinging && reactor_now_us() >= p->next_ping_us)
        h->ping[h->npings++] = (struct lnet_recovery_ping){.nid = p->nid};
}

static void send_pings(struct lnet_health_shard *h)
{
    struct lnet_node *node = h->shard->node;

    if (h->pinging || h->npings == 0 || !node->recover)
        return;
    h->pinging = true;
    h->pings.fn = node->recover;
    reactor_post(lnet_node_home(node), &h->pings);
}

/* Each peer NI that was looked at goes to the end of the queue. Without room for another ping the
 * rest of the queue comes first at the next tick. */
static void look(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, look);
    struct lnet_peer_shard *peers = h->shard->peer;
    struct lnet_peer_ni *p;

    for (unsigned i = 0; i < LOOK_BURST && h->looks > 0 && !is_full(h); i++, h->looks--) {
        p = TAILQ_FIRST(&peers->recovering);
        if (!p)
            break;
        TAILQ_REMOVE(&peers->recovering, p, recovery);
        TAILQ_INSERT_TAIL(&peers->recovering, p, recovery);
        look_at(h, p);
    }
    if (TAILQ_EMPTY(&peers->recovering) || is_full(h))
        h->looks = 0;
    if (h->looks > 0)
        reactor_post(h->shard->reactor, task);
    else
        send_pings(h);
}

static void tick(struct reactor_timer *t)
{
    struct lnet_health_shard *h = container_of(t, struct lnet_health_shard, tick);
    unsigned n = h->shard->peer->nrecovering;

    if (n == 0 || relaxed_load(&h->shard->node->stopping))
        return;
    reactor_timer_arm(t, TICK_US);
    if (h->looks == 0) {
        h->looks = n;
        look(&h->look);
    }
}

/* ---- pings (of the node's home) ---- */

static void pings_back(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, pings);

    for (unsigned i = 0; i < h->npings; i++) {
        struct lnet_peer_ni *p = lnet_peer_ni_find_here(h->shard->node, &h->ping[i].nid);

        if (!p || !p->is_recovering || !h->ping[i].begun)
            continue;
        p->ping_count += p->ping_count < UINT8_MAX;
        p->next_ping_us = lnet_recovery_next_us(h->shard->node, p->ping_count);
    }
    h->npings = 0;
    h->pinging = false;
}

void lnet_recovery_begun(struct lnet_health_shard *h)
{
    h->pings.fn = pings_back;
    reactor_post(h->shard->reactor, &h->pings);
}

void lnet_recovery_on_pings(struct lnet_node *node, void (*fn)(struct reactor_task *pings))
{
    node->recover = fn;
}

void lnet_recovery_init(struct lnet_shard *s)
{
    s->health->look.fn = look;
    reactor_timer_init(&s->health->tick, tick);
}
