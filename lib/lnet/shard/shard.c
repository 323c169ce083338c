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

struct home_call {
    struct reactor_task task;
    struct lnet_node *node;
    void (*fn)(struct lnet_node *node, bool arg);
    bool arg;
};

static void home_call(struct reactor_task *task)
{
    struct home_call *c = container_of(task, struct home_call, task);

    c->fn(c->node, c->arg);
    free(c);
}

int lnet_call_home(struct lnet_node *node, void (*fn)(struct lnet_node *node, bool arg), bool arg)
{
    struct home_call *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    *c = (struct home_call){.task.fn = home_call, .node = node, .fn = fn, .arg = arg};
    reactor_post(lnet_node_home(node), &c->task);
    return 0;
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
