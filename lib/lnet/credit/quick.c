/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Next hops that take messages soon. While many next hops are slow, each holds a buffer for long,
 * and a message for another one waits until all had a turn. So a next hop that is known to give
 * buffers back soon has turns of its own. It also has a part of each pool and of the budget, which
 * others leave to it.
 *
 * A next hop is known by its last few messages that need the same pool: a small one says nothing
 * about a large one. After one that it had for long it is not quick for many times as long. So
 * those that only pretend to be quick hold a small part of the buffers on average.
 */
#include "lib/lnet/credit/credit_internal.h"

#define LONG_US 100000ull /* a message is with its next hop for long */
#define PAY     16        /* times as long it is not quick then */
#define KNOWN   8         /* so many messages in a row that were not long */

static uint32_t seconds(uint64_t us)
{
    return (uint32_t)(us / 1000000);
}

static struct lnet_quick *record_of(const struct lnet_shard *s, unsigned pool,
                                    const struct lnet_next_hop *d)
{
    return &s->credit->quick[pool][d->hash % LNET_QUICKS];
}

bool lnet_next_hop_quick(const struct lnet_rx *rx)
{
    const struct lnet_next_hop *d = rx->account;
    const struct lnet_quick *q = record_of(rx->shard, rx->pool, d);
    uint64_t now = reactor_now_us();

    return q->soon == KNOWN && q->paid_s <= seconds(now) &&
           (d->held[rx->pool] == 0 || now - d->moved_us[rx->pool] < LONG_US);
}

void lnet_quick_learn(const struct lnet_msg *msg)
{
    struct lnet_quick *q = record_of(msg->home, msg->pool, msg->account);
    uint64_t now = reactor_now_us(), had_us = now - msg->handed_us;

    if (msg->handed_us == 0)
        return;
    if (had_us >= LONG_US)
        *q = (struct lnet_quick){max(q->paid_s, seconds(now + PAY * had_us)), 0};
    else if (q->soon < KNOWN)
        q->soon++;
}
