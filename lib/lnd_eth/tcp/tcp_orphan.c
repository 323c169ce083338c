/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orphans are connections that the user has closed. Their peers may never close, so the oldest
 * makes room when the pool is nearly empty. Until then all may end in order: many are closed at
 * once when an NI is removed.
 *
 * The queue may refer to buffers of messages that ended with the connection, and are in no share
 * any more. A peer that keeps its window closed would have them for a minute, and with ever new
 * connections all there are. So these orphans give way when their buffers run short.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define LOOK_US    250000
#define LOOKS      64 /* orphans looked at in one iteration, and … */
#define CLOSED     2 /* … when one more is closed, which has to keep up with those who close many */
#define SHORT      8       /* fewer free than three of so many parts */
#define LANDING_US 1000000 /* for landing memory, whose free buffers are not counted here */

static bool is_short(uint32_t free, uint32_t all)
{
    return free < all / SHORT * 3;
}

/* Returns whether others may need what its queue refers to. */
static bool scarce(const struct tcp_conn *c)
{
    const struct tcp_tx_data *d = c->tx.head;

    if (is_short((uint32_t)max(c->sh->copies->nfree_data, 0), TX_DATA_MAX))
        return true;
    while (d->copied)
        d = d->next;
    if (d->landing)
        return reactor_now_us() - c->tx.progress_us >= LANDING_US;
    return is_short(rte_mempool_avail_count(d->m->pool), d->m->pool->size);
}

static void reset(struct tcp_conn *c)
{
    count_add(&c->sh->stats.orphans_reset, 1);
    tcp_conn_abort(c, STREAM_END_RESET);
}

static void join(struct tcp_conn *c, struct tcp_conns *list)
{
    tcp_orphan_leave(c);
    c->orphans = list;
    TAILQ_INSERT_TAIL(list, c, orphan_link);
}

/* An orphan that need not give way goes behind the others, whose buffers may be of another port. */
static void look(struct tcp_shard *sh, unsigned looks)
{
    struct tcp_conn *c;

    for (; looks > 0 && (c = TAILQ_FIRST(&sh->orphans_keeping)); looks--) {
        if (c->tx.refers == 0)
            join(c, &sh->orphans_unacked);
        else if (scarce(c))
            reset(c);
        else
            join(c, &sh->orphans_keeping);
    }
}

static void on_look(struct reactor_timer *t)
{
    struct tcp_shard *sh = container_of(t, struct tcp_shard, orphan_timer);

    look(sh, LOOKS);
    if (!TAILQ_EMPTY(&sh->orphans_keeping))
        reactor_timer_arm(t, LOOK_US);
}

void tcp_orphans_init(struct tcp_shard *sh)
{
    TAILQ_INIT(&sh->orphans);
    TAILQ_INIT(&sh->orphans_unacked);
    TAILQ_INIT(&sh->orphans_keeping);
    reactor_timer_init(&sh->orphan_timer, on_look);
}

void tcp_orphan_closed(struct tcp_conn *c)
{
    struct tcp_shard *sh = c->sh;

    join(c, c->tx.refers > 0 ? &sh->orphans_keeping : &sh->orphans_unacked);
    look(sh, CLOSED);
    if (!TAILQ_EMPTY(&sh->orphans_keeping) && !reactor_timer_armed(&sh->orphan_timer))
        reactor_timer_arm(&sh->orphan_timer, LOOK_US);
}

void tcp_orphan_fin_acked(struct tcp_conn *c)
{
    join(c, &c->sh->orphans);
}

void tcp_orphan_leave(struct tcp_conn *c)
{
    if (!c->orphans)
        return;
    TAILQ_REMOVE(c->orphans, c, orphan_link);
    c->orphans = NULL;
}

void tcp_orphan_reset(struct tcp_shard *sh)
{
    struct tcp_conn *c = TAILQ_FIRST(&sh->orphans);

    if (!c)
        c = TAILQ_FIRST(&sh->orphans_unacked);
    if (!c)
        c = TAILQ_FIRST(&sh->orphans_keeping);
    if (c)
        reset(c);
}
