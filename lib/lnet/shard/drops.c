/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of a shard, and the newest example of each drop reason. */
#include "lib/lnet/shard/shard.h"

#include <string.h>

/* ---- counting (the shard's reactor) ---- */

void lnet_rst_add(struct lnet_node *node, int n)
{
    uint64_t *count = &lnet_shard_self(node)->stats[LNET_STAT_RST_ALLOC];

    relaxed_store(count, *count + (uint64_t)(int64_t)n);
}

static const enum lnet_stat stat_of_health[LNET_HEALTH_COUNT] = {
    [LNET_HEALTH_LOCAL_INTERRUPT] = LNET_STAT_LOCAL_INTERRUPT_COUNT,
    [LNET_HEALTH_LOCAL_DROPPED] = LNET_STAT_LOCAL_DROPPED_COUNT,
    [LNET_HEALTH_LOCAL_ABORTED] = LNET_STAT_LOCAL_ABORTED_COUNT,
    [LNET_HEALTH_LOCAL_NO_ROUTE] = LNET_STAT_LOCAL_NO_ROUTE_COUNT,
    [LNET_HEALTH_LOCAL_ERROR] = LNET_STAT_LOCAL_ERROR_COUNT,
    [LNET_HEALTH_LOCAL_TIMEOUT] = LNET_STAT_LOCAL_TIMEOUT_COUNT,
    [LNET_HEALTH_REMOTE_ERROR] = LNET_STAT_REMOTE_ERROR_COUNT,
    [LNET_HEALTH_REMOTE_DROPPED] = LNET_STAT_REMOTE_DROPPED_COUNT,
    [LNET_HEALTH_REMOTE_TIMEOUT] = LNET_STAT_REMOTE_TIMEOUT_COUNT,
    [LNET_HEALTH_NETWORK_TIMEOUT] = LNET_STAT_NETWORK_TIMEOUT_COUNT,
};

static const enum lnet_peer_health peer_count_of[LNET_HEALTH_COUNT] = {
    [LNET_HEALTH_REMOTE_ERROR] = LNET_PEER_ERROR,
    [LNET_HEALTH_REMOTE_DROPPED] = LNET_PEER_DROPPED,
    [LNET_HEALTH_REMOTE_TIMEOUT] = LNET_PEER_TIMEOUT,
    [LNET_HEALTH_NETWORK_TIMEOUT] = LNET_PEER_NETWORK_TIMEOUT,
};

void lnet_count_failed(struct lnet_shard *s, const struct lnet_ni *ni, struct lnet_peer_ni *peer,
                       enum lnet_health health)
{
    count_add(&s->stats[stat_of_health[health]], 1);
    if (health < LNET_HEALTH_REMOTE_ERROR)
        count_add(&s->ni_stats[ni->index].health[health], 1);
    else if (peer)
        peer->health_count[peer_count_of[health]]++;
}

uint64_t lnet_ni_requests(const struct lnet_node *node, unsigned ni)
{
    uint64_t n = 0;

    for (unsigned i = 0; i <= node->nshards; i++) {
        const uint64_t *received = node->shard[i]->ni_stats[ni].received;

        n += relaxed_load(&received[LNET_MSG_PUT]) + relaxed_load(&received[LNET_MSG_GET]);
    }
    return n;
}

/* ---- drops ---- */

/* One writer, any reader: a sequence lock around words that are written and read one by one. */
static void example_write(struct lnet_drop_slot *slot, const union lnet_drop_words *new)
{
    uint32_t lock = slot->lock;

    relaxed_store(&slot->lock, lock + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (unsigned i = 0; i < LNET_DROP_WORDS; i++)
        relaxed_store(&slot->u.word[i], new->word[i]);
    __atomic_store_n(&slot->lock, lock + 2, __ATOMIC_RELEASE);
}

static void example_set(struct lnet_drop_slot *slot, const struct lnet_ni *ni,
                        const struct lnet_nid *peer, const struct lnet_hdr *hdr,
                        const struct lnet_drop_why *why)
{
    union lnet_drop_words new = {.example = {.seen = true}};
    struct lnet_drop_example *e = &new.example;

    e->when_us = reactor_now_us();
    e->ni = ni ? (int)ni->index : -1;
    e->has_peer = peer != NULL;
    e->has_hdr = hdr != NULL;
    if (peer)
        e->peer = *peer;
    if (hdr) {
        e->src = hdr->src_nid;
        e->dest = hdr->dest_nid;
        e->type = hdr->type;
        e->payload_len = hdr->payload_len;
    }
    if (why)
        e->why = *why;
    example_write(slot, &new);
}

static void example_get(const struct lnet_drop_slot *slot, struct lnet_drop_example *out)
{
    union lnet_drop_words copy;
    uint32_t before, after;

    do {
        before = __atomic_load_n(&slot->lock, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < LNET_DROP_WORDS; i++)
            copy.word[i] = relaxed_load(&slot->u.word[i]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = relaxed_load(&slot->lock);
    } while ((before & 1) || before != after);
    *out = copy.example;
}

static void count_drop(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *ni,
                       const struct lnet_nid *peer, const struct lnet_hdr *hdr,
                       const struct lnet_drop_why *why)
{
    count_add(&s->drops[reason], 1);
    example_set(&s->drop_slots[reason], ni, peer, hdr, why);
}

void lnet_drop_event(struct lnet_node *node, enum lnet_drop reason, const struct lnet_ni *ni,
                     const struct lnet_nid *peer, const struct lnet_hdr *hdr)
{
    count_drop(lnet_shard_self(node), reason, ni, peer, hdr, NULL);
}

void lnet_drop_event_why(struct lnet_node *node, enum lnet_drop reason, const struct lnet_ni *ni,
                         const struct lnet_nid *peer, const struct lnet_hdr *hdr,
                         const struct lnet_drop_why *why)
{
    count_drop(lnet_shard_self(node), reason, ni, peer, hdr, why);
}

void lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *ni,
                       struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                       const struct lnet_hdr *hdr)
{
    unsigned type = hdr->type < LNET_MSG_TYPES ? hdr->type : LNET_MSG_HELLO;

    count_drop(s, reason, ni, peer ? &peer->nid : peer_nid, hdr, NULL);
    count_add(&s->stats[LNET_STAT_DROP_COUNT], 1);
    count_add(&s->stats[LNET_STAT_DROP_LENGTH], hdr->payload_len);
    if (ni)
        count_add(&s->ni_stats[ni->index].dropped[type], 1);
    if (peer)
        peer->drop_count[type]++;
}

/* ---- an index that is used again ---- */

static void example_forget_ni(struct lnet_drop_slot *slot, unsigned index)
{
    union lnet_drop_words copy;

    example_get(slot, &copy.example);
    if (!copy.example.seen || copy.example.ni != (int)index)
        return;
    copy.example.ni = -1;
    example_write(slot, &copy);
}

void lnet_shard_clear_ni(struct lnet_shard *s, unsigned index)
{
    uint64_t *count = (uint64_t *)&s->ni_stats[index];

    for (unsigned i = 0; i < sizeof(s->ni_stats[index]) / sizeof(*count); i++)
        relaxed_store(&count[i], 0);
    for (unsigned i = 0; i < LNET_DROP_COUNT; i++)
        example_forget_ni(&s->drop_slots[i], index);
    if (s->ni_seq)
        s->ni_seq[index] = 0;
}

/* ---- drops, read from outside ---- */

void lnet_drops_get(const struct lnet_node *node, uint64_t out[LNET_DROP_COUNT])
{
    memset(out, 0, LNET_DROP_COUNT * sizeof(out[0]));
    for (unsigned i = 0; i <= node->nshards; i++)
        counters_add(out, node->shard[i]->drops, LNET_DROP_COUNT);
}

void lnet_drop_example_get(const struct lnet_node *node, enum lnet_drop reason,
                           struct lnet_drop_example *out)
{
    struct lnet_drop_example e;

    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i <= node->nshards; i++) {
        example_get(&node->shard[i]->drop_slots[reason], &e);
        if (e.seen && (!out->seen || e.when_us > out->when_us))
            *out = e;
    }
}
