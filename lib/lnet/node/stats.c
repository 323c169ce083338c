/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of messages, in lnetctl's words: docs/protocol/lnet-core.md §10.5. Each is written by
 * the shard it belongs to and read by the control thread.
 */
#include "lib/lnet/peer/peer_ni.h"

#include <string.h>

/* ---- reading ---- */

static const char *const stat_names[LNET_STAT_COUNT] = {
#define STAT(sym, name) [LNET_STAT_##sym] = name,
#include "lib/lnet/stats.def"
#undef STAT
};

const char *lnet_stat_name(enum lnet_stat stat)
{
    return stat < LNET_STAT_COUNT ? stat_names[stat] : "?";
}

/* How many there are now, not how many there were. */
static bool is_level(enum lnet_stat stat)
{
    return stat == LNET_STAT_MSGS_ALLOC || stat == LNET_STAT_MSGS_MAX ||
           stat == LNET_STAT_RST_ALLOC;
}

static void sum_stats(const struct lnet_node *node, uint64_t out[LNET_STAT_COUNT])
{
    memset(out, 0, LNET_STAT_COUNT * sizeof(out[0]));
    for (unsigned i = 0; i <= node->nshards; i++)
        counters_add(out, node->shard[i]->stats, LNET_STAT_COUNT);
}

void lnet_stats_get(const struct lnet_node *node, uint64_t out[LNET_STAT_COUNT])
{
    sum_stats(node, out);
    for (unsigned k = 0; k < LNET_STAT_COUNT; k++)
        out[k] -= node->stat_base[k];
}

static void sum_ni(const struct lnet_node *node, unsigned ni, struct lnet_ni_stats *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i <= node->nshards; i++)
        counters_add_all(out, &node->shard[i]->ni_stats[ni]);
}

void lnet_ni_stats_get(const struct lnet_node *node, unsigned ni, struct lnet_ni_stats *out)
{
    const struct lnet_ni_stats *base;

    memset(out, 0, sizeof(*out));
    if (ni >= LNET_MAX_NI)
        return;
    base = &node->ni_base[ni];
    sum_ni(node, ni, out);
    for (unsigned t = 0; t < LNET_MSG_TYPES; t++) {
        out->sent[t] -= base->sent[t];
        out->received[t] -= base->received[t];
        out->dropped[t] -= base->dropped[t];
    }
    for (unsigned h = 0; h < LNET_HEALTH_COUNT; h++)
        out->health[h] -= base->health[h];
}

/* ---- beginning again ---- */

static void reset_shard(struct reactor_task *task);

static void reset_post(struct lnet_shard *s)
{
    s->reset.busy = true;
    s->reset.again = false;
    s->reset.slot = 0;
    s->reset.task.fn = reset_shard;
    reactor_post(s->reactor, &s->reset.task);
}

static void reset_done(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_shard, reset.task);

    s->reset.busy = false;
    if (s->reset.again)
        reset_post(s);
}

static void reset_shard(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_shard, reset.task);

    relaxed_store(&s->stats[LNET_STAT_MSGS_MAX], s->used_msgs);
    if (!lnet_peer_nis_reset_counts(s, &s->reset.slot)) {
        reactor_post(s->reactor, task);
        return;
    }
    task->fn = reset_done;
    reactor_post(reactor_control(s->node->env), task);
}

void lnet_stats_reset(struct lnet_node *node)
{
    sum_stats(node, node->stat_base);
    for (unsigned i = 0; i < LNET_STAT_COUNT; i++)
        if (is_level((enum lnet_stat)i))
            node->stat_base[i] = 0;
    for (unsigned i = 0; i < node->nnis; i++)
        sum_ni(node, i, &node->ni_base[i]);
    for (unsigned i = 0; i < node->nshards; i++)
        if (node->shard[i]->reset.busy)
            node->shard[i]->reset.again = true;
        else
            reset_post(node->shard[i]);
}
