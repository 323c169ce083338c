/* SPDX-License-Identifier: BSD-3-Clause */
/* Shards: the part of a node that one reactor owns; its message descriptors and counters. */
#include "lib/base/err.h"
#include "lib/lnet/lnet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lnet_shard *lnet_shard_self(const struct lnet_node *node)
{
    const struct reactor *r = reactor_self();
    unsigned index = r ? reactor_index(r) : REACTOR_CONTROL;

    return node->shard[index < node->nshards ? index : node->nshards];
}

void *lnet_table_alloc(size_t n, size_t size, void **memory)
{
    uintptr_t at;

    *memory = calloc(n + 1, size);
    if (!*memory)
        return NULL;
    at = ((uintptr_t)*memory + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
    return (void *)at;
}

static int msgs_init(struct lnet_shard *s, struct err *err)
{
    s->max_local = lnet_local_msgs(&s->node->opts);
    s->total_msgs = s->max_local;
    for (unsigned i = 0; i < LNET_POOLS; i++) /* a forwarded message holds a buffer */
        s->total_msgs += s->pool[i].capacity;
    s->msgs = lnet_table_alloc(s->total_msgs, sizeof(*s->msgs), &s->msgs_memory);
    if (!s->msgs) {
        return err_set(err, -ENOMEM,
                       "no memory for %u message descriptors; lower the buffer counts",
                       s->total_msgs);
    }
    for (unsigned i = s->total_msgs; i-- > 0;) {
        s->msgs[i].lnd_next = s->free_msgs;
        s->free_msgs = &s->msgs[i];
    }
    return 0;
}

int lnet_shard_create(struct lnet_node *node, unsigned index, struct err *err)
{
    struct lnet_shard *s = calloc(1, sizeof(*s));
    unsigned max_peers = lnet_peers_per_shard(&node->opts, node->nshards);
    int rc;

    if (!s) {
        return err_set(err, -ENOMEM, "no memory for a shard");
    }
    s->node = node;
    s->index = index;
    node->shard[index] = s;
    if (index == node->nshards)
        return 0; /* control: counters only */

    s->reactor = reactor_at(node->env, index);
    rc = lnet_pools_init(s, err);
    if (rc)
        return rc;
    rc = msgs_init(s, err);
    if (rc)
        return rc;
    s->gw_seq = calloc(LNET_GW_SLOTS, sizeof(*s->gw_seq));
    s->ni_seq = calloc(LNET_MAX_NI, sizeof(*s->ni_seq));
    s->ni_refs = calloc(LNET_MAX_NI, sizeof(*s->ni_refs));
    if (!s->gw_seq || !s->ni_seq || !s->ni_refs) {
        return err_set(err, -ENOMEM, "no memory for selection state");
    }
    lnet_budget_init(s);
    lnet_admit_init(s);
    lnet_send_init(s);
    rc = lnet_credits_init(s, err);
    if (rc)
        return rc;
    /* One for each buffer held, and for what waits: at worst every peer's header for another. */
    rc = lnet_dests_init(s, s->total_msgs - s->max_local + max_peers, err);
    if (rc)
        return rc;
    return lnet_peers_init(s, max_peers, err);
}

void lnet_shard_destroy(struct lnet_shard *s)
{
    if (!s)
        return;
    if (s->reactor) {
        lnet_pools_fini(s);
        lnet_credits_fini(s);
        lnet_dests_fini(s);
        lnet_peers_fini(s);
    }
    free(s->msgs_memory);
    free(s->gw_seq);
    free(s->ni_seq);
    free(s->ni_refs);
    free(s);
}

/* ---- messages ---- */

/* What a forwarded message has; header and path are written whole by whoever admits it. */
static void clear_forward(struct lnet_msg *msg)
{
    memset(msg, 0, offsetof(struct lnet_msg, hdr));
    msg->buffer = NULL;
    msg->handed_us = 0;
    msg->result = LNET_RESULT_OK;
}

struct lnet_msg *lnet_msg_alloc(struct lnet_shard *s, enum lnet_msg_kind kind)
{
    struct lnet_msg *msg = s->free_msgs;

    if (!msg || (kind == LNET_KIND_LOCAL && s->local_msgs >= s->max_local))
        return NULL;
    s->free_msgs = msg->lnd_next;
    if (s->free_msgs)
        prefetch_write(s->free_msgs, 3 * CPU_BLOCK); /* for the next one, in good time */
    if (kind == LNET_KIND_LOCAL) {
        memset(msg, 0, sizeof(*msg));
        msg->via = LNET_NID_ANY;
        s->local_msgs++;
    } else {
        clear_forward(msg);
    }
    msg->kind = (uint8_t)kind;
    msg->home = s;
    s->used_msgs++;
    relaxed_store(&s->stats[LNET_STAT_MSGS_ALLOC], s->used_msgs);
    if (s->used_msgs > s->stats[LNET_STAT_MSGS_MAX])
        relaxed_store(&s->stats[LNET_STAT_MSGS_MAX], s->used_msgs);
    return msg;
}

void lnet_msg_free(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;

    if (msg->kind == LNET_KIND_LOCAL) {
        s->local_msgs--;
        if (msg->asker)
            s->node->asked[msg->asker - 1]--;
    }
    if (msg->tx_ni)
        lnet_ni_put(s, msg->tx_ni);
    if (msg->rx_ni)
        lnet_ni_put(s, msg->rx_ni);
    s->used_msgs--;
    relaxed_store(&s->stats[LNET_STAT_MSGS_ALLOC], s->used_msgs);
    msg->state = LNET_MSG_FREE;
    msg->lnd_next = s->free_msgs;
    s->free_msgs = msg;
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
        for (unsigned k = 0; k < LNET_DROP_COUNT; k++)
            out[k] += relaxed_load(&node->shard[i]->drops[k]);
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
