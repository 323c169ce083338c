/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events on their way to the control thread: a ring per shard, written by its reactor only and
 * emptied by the control thread, and one mail that says that there is something in it.
 */
#include "lib/lnet/lnd.h"
#include "lib/lnet/shard/shard.h"

#define BATCH 64u

/* ---- reading (control) ---- */

static void deliver(struct lnet_node_event_ring *ring, uint32_t n, uint64_t missed)
{
    const struct lnet_node *node = ring->node;

    if (node->events_fn)
        node->events_fn(node->events_arg, &ring->row[ring->tail % LNET_NODE_EVENT_RING], n, missed);
    __atomic_store_n(&ring->tail, ring->tail + n, __ATOMIC_RELEASE);
}

static void drain(struct reactor_task *task)
{
    struct lnet_node_event_ring *ring = container_of(task, struct lnet_node_event_ring, mail);
    uint64_t missed, lost = relaxed_load(&ring->missed);
    uint32_t head, n;

    /* From here on the writer mails again; what it wrote before is seen now. */
    __atomic_store_n(&ring->mailed, false, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
    missed = lost - ring->told;
    ring->told = lost;
    do {
        n = head - ring->tail;
        n = min(n, BATCH);
        n = min(n, LNET_NODE_EVENT_RING - ring->tail % LNET_NODE_EVENT_RING); /* in one piece */
        if (n > 0 || missed > 0)
            deliver(ring, n, missed);
        missed = 0;
    } while (n > 0);
}

void lnet_node_events_watch(struct lnet_node *node, lnet_node_events_fn fn, void *arg)
{
    node->events_fn = fn;
    node->events_arg = arg;
    relaxed_store(&node->events_wanted, fn != NULL);
}

/* ---- writing (any reactor) ---- */

/* Events that a host, and a prefix, may report at once: as it connects and goes, which it can as
 * often as it likes. A prefix has half of the events that are kept. Later ones have a gap. */
#define HOST_EVENTS   64u
#define HOST_GAP_US   10000000ull
#define PREFIX_EVENTS 512u /* on all reactors together */
#define PREFIX_GAP_US 2000000ull

/* Takes an event of a share. */
static bool take(uint64_t *due_us, unsigned burst, uint64_t gap_us)
{
    uint64_t now = reactor_now_us(), next = max(*due_us, now) + gap_us;

    if (next > now + burst * gap_us)
        return false;
    *due_us = next;
    return true;
}

/* Health may change with each message: events of one NI or peer NI, and of all on a reactor. */
#define HEALTH_EVENTS 16u
#define HEALTH_GAP_US 5000000ull
#define ALL_EVENTS    256u
#define ALL_GAP_US    500000ull

static bool may_post_health(struct lnet_node_event_ring *ring, const struct lnet_node_event *row)
{
    unsigned nid = nid_hash(&row->nid) % LNET_NODE_EVENT_KEYS;

    return take(&ring->health_us[nid], HEALTH_EVENTS, HEALTH_GAP_US) &&
           take(&ring->all_health_us, ALL_EVENTS, ALL_GAP_US);
}

static bool may_post(const struct lnet_node *node, struct lnet_node_event_ring *ring,
                     const struct lnet_node_event *row)
{
    unsigned n = node->nshards, host, prefix;
    struct lnet_nid of;

    if (row->kind == LNET_NODE_EV_NI_HEALTH || row->kind == LNET_NODE_EV_PEER_HEALTH)
        return may_post_health(ring, row);
    if (row->kind != LNET_NODE_EV_PEER_UP && row->kind != LNET_NODE_EV_PEER_DOWN &&
        row->kind != LNET_NODE_EV_PEER_RESTART)
        return true;
    of = lnet_nid_prefix(node, &row->nid);
    host = nid_hash(&row->nid) % LNET_NODE_EVENT_KEYS;
    prefix = nid_hash(&of) % LNET_NODE_EVENT_KEYS;
    return take(&ring->host_us[host], HOST_EVENTS, HOST_GAP_US) &&
           take(&ring->prefix_us[prefix], (PREFIX_EVENTS + n - 1) / n, PREFIX_GAP_US * n);
}

void lnet_node_event_post(struct lnet_node *node, const struct lnet_node_event *row)
{
    struct lnet_shard *s = lnet_shard_self(node);
    struct lnet_node_event_ring *ring = &s->events;
    struct lnet_node_event *to = &ring->row[ring->head % LNET_NODE_EVENT_RING];

    if (!relaxed_load(&node->events_wanted))
        return;
    if (!may_post(node, ring, row) ||
        ring->head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == LNET_NODE_EVENT_RING) {
        count_add(&ring->missed, 1);
    } else {
        *to = *row;
        to->when_us = reactor_now_us();
        to->reactor = s->reactor ? s->index : REACTOR_CONTROL;
        __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
    }
    /* Either this sees that the last mail was read, or its reader sees what was just written. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&ring->mailed, __ATOMIC_ACQUIRE))
        return;
    relaxed_store(&ring->mailed, true);
    if (!ring->node) { /* once: the control thread reads both while the next mail is written */
        ring->node = node;
        ring->mail.fn = drain;
    }
    reactor_post(reactor_control(node->env), &ring->mail);
}
