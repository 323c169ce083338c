/* SPDX-License-Identifier: BSD-3-Clause */
/* Publishes a drain of the node, and counts the messages in the node. docs/protocol/lnet-core.md
 * §3.7, §3.8. */
#include "lib/base/err.h"
#include "lib/lnet/ping/ping_internal.h"

#include <errno.h>

/* When no buffer is free, target_put() in ping.c does both once there is one. */
static void publish(struct lnet_node *node, bool arg)
{
    if (lnet_ping_republish(node))
        lnet_ping_push_all(node, true);
}

int lnet_drain_set(struct lnet_node *node, bool on, struct err *err)
{
    uint32_t before = node->drain;

    if (relaxed_load(&node->stopping))
        return err_set(err, -EBUSY, "the node stops");
    if (on == (before != 0))
        return 0;
    relaxed_store(&node->drain, on ? ++node->drains : 0);
    if (lnet_call_home(node, publish, false) == 0)
        return 0;
    relaxed_store(&node->drain, before);
    return err_set(err, -ENOMEM, "no memory");
}

unsigned lnet_in_flight(const struct lnet_node *node)
{
    unsigned n = 0;

    for (unsigned i = 0; i < node->nshards; i++) {
        const struct lnet_shard *s = node->shard[i];
        uint64_t all = relaxed_load(&s->stats[LNET_STAT_MSGS_ALLOC]);
        unsigned local = relaxed_load(&s->local_msgs);

        n += all > local ? (unsigned)(all - local) : 0;
        for (unsigned k = 0; k < LNET_POOLS; k++) {
            struct lnet_pool_stats pool;

            lnet_pool_stats_get(node, i, (enum lnet_pool)k, &pool);
            n += pool.waiting;
        }
    }
    return n;
}
