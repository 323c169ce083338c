/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Comparing the core with the books: after each event every number must be the same; when everybody
 * has run until idle nobody may wait who need not; at the end all must be as it began.
 */
#include "test/unit/property_model.h"

#define WHEEL_US 5000ull   /* a timer may be late by this */
#define LOOK_US  (SEC / 4) /* those that wait are looked at once more so often */

/* ---- comparing ---- */

static void compare_credits(const char *what, unsigned index, const struct lnet_credits *core,
                            const struct credit *model)
{
    if (core->max != model->max || core->now != model->now || core->min != model->min ||
        core->waited != model->waited)
        prop_fail("%s %u: credits max %d now %d min %d waited %llu, should be %d %d %d %llu", what,
                  index, core->max, core->now, core->min, (unsigned long long)core->waited,
                  model->max, model->now, model->min, (unsigned long long)model->waited);
}

/* The core's low-water mark is at least as low as what is seen from outside. */
static void check_low(unsigned r, enum lnet_pool k, int now)
{
    const struct lnet_router_pool *core = &node->shard[r]->credit->pool[k];
    struct model_pool *m = &books.pool[r][k];

    if (m->total_then != core->total || now < m->lowest)
        m->lowest = now;
    m->total_then = core->total;
    if (core->low > m->lowest)
        prop_fail("reactor %u pool %d: low is %d, but it has been at %d", r, k, core->low,
                  m->lowest);
}

static void compare_pool(unsigned r, enum lnet_pool k)
{
    const struct lnet_router_pool *core = &node->shard[r]->credit->pool[k];
    const struct model_pool *m = &books.pool[r][k];
    unsigned waiting = 0, gw_holding = 0, with_memory = 0;

    for (unsigned i = 0; i < nconns; i++)
        waiting += conns[i].peer->reactor == r && conns[i].pool == k &&
                   stage_now(&conns[i]) == STAGE_BUFFER;
    for (unsigned i = 0; i < npeers; i++)
        gw_holding += m->held[2 * i + 1] > 0;
    for (unsigned i = 0; i < books.nactive; i++)
        with_memory +=
            books.active[i]->home == r && books.active[i]->pool == k && books.active[i]->buffer;
    if (core->used != m->used || core->stalled != m->stalled || core->waiting != waiting ||
        core->gw_held != held_for(r, k, true) || core->end_held != held_for(r, k, false) ||
        core->gws_holding != gw_holding)
        prop_fail("reactor %u pool %d: used %u stalled %u waiting %u gw_held %u end_held %u "
                  "gws_holding %u, should be %u %u %u %u %u %u",
                  r, k, core->used, core->stalled, core->waiting, core->gw_held, core->end_held,
                  core->gws_holding, m->used, m->stalled, waiting, held_for(r, k, true),
                  held_for(r, k, false), gw_holding);
    if (core->used > core->capacity || core->total > core->capacity)
        prop_fail("reactor %u pool %d: used %u, total %u, memory for %u", r, k, core->used,
                  core->total, core->capacity);
    if (core->total * nreactors != pool_totals[k] && core->total * nreactors != pool_totals_old[k])
        prop_fail("reactor %u pool %d: total %u, asked for %u over all", r, k, core->total,
                  pool_totals[k]);
    if (k != LNET_POOL_TINY && core->mem.total - core->mem.nfree != with_memory)
        prop_fail("reactor %u pool %d: %u buffers out, %u messages have one", r, k,
                  core->mem.total - core->mem.nfree, with_memory);
    if (core->used > core->total)
        covered(COVER_SHRUNK);
    check_low(r, k, (int)core->total - (int)m->used - (int)waiting);
}

static void compare(void)
{
    unsigned i;

    for (i = 0; i < nreactors; i++) {
        for (unsigned k = 0; k < LNET_POOLS; k++)
            compare_pool(i, (enum lnet_pool)k);
        for (unsigned k = 0; k < run.plan->nnis; k++)
            compare_credits("NI", k, &node->shard[i]->tx->tq[k].credits, &books.tq[i][k].credit);
    }
    for (i = 0; i < npeers; i++) {
        const struct lnet_peer_ni *core = peers[i].core;

        if (!core)
            continue;
        compare_credits("tx of peer", i, &core->tx, &peers[i].tx);
        compare_credits("router credits of peer", i, &core->rtr, &peers[i].rtr);
        if (core->tx_queued != books.tx_queued[i] ||
            core->tx_queued_bytes != books.tx_queued_bytes[i])
            prop_fail("peer %u: %u messages, %llu bytes queued, should be %llu, %llu", i,
                      core->tx_queued, (unsigned long long)core->tx_queued_bytes,
                      (unsigned long long)books.tx_queued[i],
                      (unsigned long long)books.tx_queued_bytes[i]);
    }
    for (i = 0; i < books.nactive; i++) {
        const struct tracked *t = books.active[i];

        if (t->msg->account->held[t->pool] != books.pool[t->home][t->pool].held[t->acct])
            prop_fail("message %x: its next hop's account has %u, should be %u", t->id,
                      t->msg->account->held[t->pool], books.pool[t->home][t->pool].held[t->acct]);
    }
}

static void sync_conn(struct conn *c)
{
    enum stage s = stage_now(c);
    unsigned acct;

    if (c->state != CONN_PARSED || c->local)
        return;
    if (s == STAGE_NONE)
        prop_fail("header %x neither waits nor is received", c->id);
    acct = acct_of(&c->in.rx.path.next_hop, c->in.rx.path.gw_ni != NULL);
    if (s == c->stage && acct == c->acct && c->class == c->in.rx.class)
        return;
    if (c->stage == STAGE_BUFFER && s == STAGE_CREDIT)
        prop_fail("header %x had a router credit and waits for one again", c->id);
    if (c->stage == STAGE_BUFFER && acct != c->acct)
        covered(COVER_REROUTED);
    if (s == STAGE_BUFFER) {
        covered(COVER_BUFFER_WAIT);
        for (unsigned i = 0; i < nconns; i++)
            if (conns[i].peer == c->peer && stage_now(&conns[i]) == STAGE_CREDIT &&
                conns[i].seq < c->seq)
                prop_fail("header %x passed %x, which waits for the same router credits", c->id,
                          conns[i].id);
    }
    c->stage = s;
    c->acct = acct;
    c->class = c->in.rx.class;
    c->stamp = event_number;
}

void model_sync(void)
{
    sync_stalled();
    for (unsigned i = 0; i < nreactors; i++)
        sync_overdue(i);
    for (unsigned i = 0; i < nconns; i++)
        sync_conn(&conns[i]);
    compare();
}

/* ---- at rest ---- */

static void check_waiting(const struct conn *c)
{
    int waiting = waiting_for_credit(c->peer);

    if (clock_us > c->parsed_us + c->wait_us + WHEEL_US)
        prop_fail("header %x still waits after %llu us", c->id,
                  (unsigned long long)(clock_us - c->parsed_us));
    if (waiting > 0 && waiting != -c->peer->rtr.now)
        prop_fail("%d headers of peer %u wait for router credits, %d should", waiting,
                  c->peer->index, c->peer->rtr.now < 0 ? -c->peer->rtr.now : 0);
    if (stage_now(c) == STAGE_BUFFER && clock_us > books.rule_changed_us + LOOK_US + WHEEL_US &&
        model_may(c->peer->reactor, c->pool, c->acct, c->in.rx.class))
        prop_fail("header %x waits and could have a buffer: reactor %u pool %d, %u of %u in use",
                  c->id, c->peer->reactor, c->pool, books.pool[c->peer->reactor][c->pool].used,
                  node->shard[c->peer->reactor]->credit->pool[c->pool].total);
}

void model_rule_changed(void)
{
    books.rule_changed_us = clock_us;
}

static unsigned headers_waiting(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < nconns; i++)
        n += conns[i].state == CONN_PARSED && !conns[i].local;
    return n;
}

/* What observers are told is what is so. */
static void check_told(void)
{
    struct lnet_pool_stats p;
    struct lnet_credits c;
    unsigned i, k;
    uint32_t waiting;

    for (i = 0; i < run.plan->nnis; i++) {
        int now = 0, max = 0, waits = 0;

        for (k = 0; k < nreactors; k++) {
            const struct credit *mine = &books.tq[k][i].credit;

            now += mine->now;
            max += mine->max;
            waits += mine->now < 0 ? -mine->now : 0;
        }
        lnet_ni_credits_get(node, i, &c, &waiting);
        if (c.now != now || c.max != max || waiting != (unsigned)waits)
            prop_fail("NI %u is told to have %d of %d credits, %u wait; it has %d of %d, %d", i,
                      c.now, c.max, waiting, now, max, waits);
    }
    for (i = 0; i < nreactors; i++)
        for (k = 0; k < LNET_POOLS; k++) {
            lnet_pool_stats_get(node, i, (enum lnet_pool)k, &p);
            if (p.total * nreactors != pool_totals[k] ||
                p.free != (int)p.total - (int)books.pool[i][k].used)
                prop_fail("reactor %u pool %u is told to have %d of %u free, %u are in use", i, k,
                          p.free, p.total, books.pool[i][k].used);
        }
}

void model_quiet(void)
{
    covered(COVER_QUIET);
    for (unsigned i = 0; i < nconns; i++)
        if (conns[i].state == CONN_PARSED && !conns[i].local)
            check_waiting(&conns[i]);
    for (unsigned i = 0; i < books.nactive; i++)
        if (books.active[i]->state != T_RECEIVING && books.active[i]->state != T_WAIT_PEER &&
            books.active[i]->state != T_WAIT_NI && books.active[i]->state != T_LND)
            prop_fail("message %x is in state %d and nobody does anything", books.active[i]->id,
                      books.active[i]->state);
    for (unsigned i = 0; i < nreactors; i++) {
        if (books.ready[i].head)
            prop_fail("message %x has its credits and was not handed to the LND",
                      books.ready[i].head->id);
        for (unsigned k = 0; k < LNET_POOLS; k++)
            if (node->shard[i]->credit->pool[k].total * nreactors != pool_totals[k])
                prop_fail("reactor %u pool %u: total %u, asked for %u over all", i, k,
                          node->shard[i]->credit->pool[k].total, pool_totals[k]);
    }
    memcpy(pool_totals_old, pool_totals, sizeof(pool_totals));
    check_told();
    if (books.parsed != books.done + books.dropped + headers_waiting() + books.nactive)
        prop_fail("%llu messages came; %llu were forwarded, %llu dropped, %u wait, %u are here",
                  (unsigned long long)books.parsed, (unsigned long long)books.done,
                  (unsigned long long)books.dropped, headers_waiting(), books.nactive);
}

bool model_open(void)
{
    for (unsigned i = 0; i < nconns; i++)
        if (conns[i].state != CONN_IDLE)
            return true;
    return books.nactive > 0 || nat_lnd > 0;
}

static void end_of_shard(const struct lnet_shard *s)
{
    unsigned i, free_dests = 0;

    for (const struct lnet_next_hop *d = s->credit->free_next_hops; d; d = d->hash_next)
        free_dests++;
    for (i = 0; i <= s->next_hop_mask; i++)
        if (s->next_hop_hash[i])
            prop_fail("reactor %u: an account is left", s->index);
    if (free_dests != books.dests_at_start[s->index])
        prop_fail("reactor %u: %u of %u accounts are free", s->index, free_dests,
                  books.dests_at_start[s->index]);
    if (!TAILQ_EMPTY(&s->credit->waiting) || !TAILQ_EMPTY(&s->credit->receiving) ||
        s->credit->rtr_wake || !STAILQ_EMPTY(&s->tx->ready))
        prop_fail("reactor %u: something is left in a list", s->index);
    if (reactor_timer_armed(&s->credit->wait_timer))
        prop_fail("reactor %u: the timer of waiting headers is armed", s->index);
    for (i = 0; i < LNET_POOLS; i++) {
        const struct lnet_router_pool *p = &s->credit->pool[i];

        if (p->used || p->waiting || p->stalled || p->gw_held || p->end_held || p->gws_holding)
            prop_fail("reactor %u pool %u: used %u waiting %u stalled %u gw_held %u holding %u",
                      s->index, i, p->used, p->waiting, p->stalled, p->gw_held, p->gws_holding);
        if (i != LNET_POOL_TINY && p->mem.nfree != p->mem.total)
            prop_fail("reactor %u pool %u: %u of %u buffers are back", s->index, i, p->mem.nfree,
                      p->mem.total);
    }
}

void model_end(void)
{
    uint64_t stats[LNET_STAT_COUNT];
    unsigned i;

    model_sync();
    model_quiet();
    if (model_open())
        prop_fail("%u headers wait, %u messages are here, %u with the LND", headers_waiting(),
                  books.nactive, nat_lnd);
    for (i = 0; i < nreactors; i++) {
        end_of_shard(node->shard[i]);
        for (unsigned k = 0; k < run.plan->nnis; k++)
            if (node->shard[i]->tx->tq[k].credits.now != node->shard[i]->tx->tq[k].credits.max)
                prop_fail("NI %u on reactor %u has %d of %d credits", k, i,
                          node->shard[i]->tx->tq[k].credits.now,
                          node->shard[i]->tx->tq[k].credits.max);
    }
    for (i = 0; i < npeers; i++) {
        const struct lnet_peer_ni *p = peers[i].core;

        if (p && (p->tx.now != p->tx.max || p->rtr.now != p->rtr.max || p->tx_queued ||
                  p->tx_queued_bytes || p->refs != 0 || !TAILQ_EMPTY(&p->rtrq) || p->rtr_waiting ||
                  !STAILQ_EMPTY(&p->txq)))
            prop_fail("peer %u: tx %d of %d, router %d of %d, queued %u, refs %u", i, p->tx.now,
                      p->tx.max, p->rtr.now, p->rtr.max, p->tx_queued, p->refs);
    }
    lnet_stats_get(node, stats);
    if (stats[LNET_STAT_MSGS_ALLOC] != 0)
        prop_fail("%llu messages are allocated", (unsigned long long)stats[LNET_STAT_MSGS_ALLOC]);
    if (stats[LNET_STAT_ROUTE_COUNT] != books.done)
        prop_fail("route_count %llu, forwarded %llu",
                  (unsigned long long)stats[LNET_STAT_ROUTE_COUNT], (unsigned long long)books.done);
}
