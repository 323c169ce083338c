/* SPDX-License-Identifier: BSD-3-Clause */
/* Shards: which one is the caller's, and their message descriptors. */
#include "lib/lnet/shard/shard.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reactor *lnet_node_home(const struct lnet_node *node)
{
    return reactor_at(node->env, 0);
}

struct reactor_env *lnet_node_env(const struct lnet_node *node)
{
    return node->env;
}

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

/* ---- messages ---- */

int lnet_msgs_init(struct lnet_shard *s, unsigned total, unsigned local, struct err *err)
{
    s->max_local = local;
    s->total_msgs = total;
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

void lnet_msgs_fini(struct lnet_shard *s)
{
    free(s->msgs_memory);
}

/* Sets the fields of a forwarded message; admission writes header and path whole. */
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

    if (msg->kind == LNET_KIND_LOCAL)
        s->local_msgs--;
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
