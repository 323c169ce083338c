/* SPDX-License-Identifier: BSD-3-Clause */
/* reactors_get: how busy the threads are, and how long messages wait. */
#include "lib/reactor/wait.h"
#include "rpc/methods/methods_internal.h"

static double to_us(uint64_t cycles, const struct reactor_stats *s)
{
    return s->hz ? (double)cycles * 1e6 / (double)s->hz : 0;
}

static json_t *stages(const struct reactor_stats *s)
{
    json_t *object = json_object();

    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        json_object_set_new(object, reactor_stage_name((enum reactor_stage)i),
                            json_integer((json_int_t)to_us(s->stage_cycles[i], s)));
    return object;
}

/* Returns the busy share of all time since the start: without idle iterations, without the time
 * of other threads on the core, without sleep. */
static double busy_share(const struct reactor_stats *s)
{
    double all = to_us(s->total_cycles, s) + (double)s->sleep_us, work = 0;

    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        if (i != REACTOR_STAGE_REST && i != REACTOR_STAGE_PREEMPTED)
            work += to_us(s->stage_cycles[i], s);
    return all > work ? work / all : work > 0;
}

/* NULL: not known yet. */
static json_t *capacity(const struct reactor *r)
{
    struct reactor_capacity c;
    double left;

    reactor_capacity_get(r, &c);
    if (c.seconds <= 0)
        return NULL;
    left = 1 - c.busy - c.preempted;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", c.seconds, "busy", c.busy, "preempted",
                     c.preempted, "free", left > 0 ? left : 0, "cpu", c.cpu);
}

static json_t *wait_row(enum reactor_wait wait, const struct reactor_wait_hist *h)
{
    json_t *times = json_array();
    uint64_t waits = 0;

    for (unsigned i = 0; i < REACTOR_WAIT_BUCKETS; i++) {
        json_t *row = json_object();

        waits += h->bucket[i];
        json_object_set_new(row, "count", json_integer((json_int_t)h->bucket[i]));
        if (i < REACTOR_WAIT_BUCKETS - 1)
            json_object_set_new(row, "below_us", json_integer((json_int_t)1 << i));
        if (h->bucket[i] > 0)
            json_array_append(times, row);
        json_decref(row);
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "name", reactor_wait_name(wait), "none",
                     (json_int_t)h->none, "waits", (json_int_t)waits, "total_us",
                     (json_int_t)h->total_us, "longest_us", (json_int_t)h->longest_us, "times",
                     times);
}

static json_t *waits(const struct reactor_wait_hist wait[REACTOR_WAITS])
{
    json_t *list = json_array();

    for (unsigned i = 0; i < REACTOR_WAITS; i++)
        json_array_append_new(list, wait_row((enum reactor_wait)i, &wait[i]));
    return list;
}

/* The control thread carries no messages. */
static void put_waits(json_t *row, const struct reactor *r)
{
    struct reactor_wait_hist wait[REACTOR_WAITS];

    if (reactor_index(r) == REACTOR_CONTROL)
        return;
    reactor_waits_get(r, wait);
    json_object_set_new(row, "waited", waits(wait));
}

static json_t *reactor_row(const struct reactor *r)
{
    struct reactor_stats s = {0};
    json_t *row = json_object(), *counters, *now = capacity(r);

    if (reactor_index(r) != REACTOR_CONTROL) {
        json_object_set_new(row, "reactor", json_integer(reactor_index(r)));
        json_object_set_new(row, "cpt", json_integer(reactor_cpt(r)));
    }
    reactor_stats_get(r, &s);
    counters = json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}", "loops",
        (json_int_t)s.loops, "busy_loops", (json_int_t)s.busy_loops, "busy_cycles",
        (json_int_t)s.busy_cycles, "total_cycles", (json_int_t)s.total_cycles, "busy_share",
        busy_share(&s), "polls", (json_int_t)s.polls, "useful_polls", (json_int_t)s.useful_polls,
        "sleeps", (json_int_t)s.sleeps, "sleep_us", (json_int_t)s.sleep_us, "mails_in",
        (json_int_t)s.mails_in, "mails_queued", (json_int_t)s.mails_queued, "timers_fired",
        (json_int_t)s.timers_fired, "longest_us", to_us(s.longest_cycles, &s), "stalls",
        (json_int_t)s.long_calls, "preempted", (json_int_t)s.preempted, "stages", stages(&s));
    json_object_update(row, counters);
    json_decref(counters);
    if (now)
        json_object_set_new(row, "capacity", now);
    put_waits(row, r);
    return row;
}

void rpc_reactors_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    json_t *list = json_array();

    for (unsigned i = 0; i < reactor_count(ctx->control->env); i++)
        json_array_append_new(list, reactor_row(reactor_at(ctx->control->env, i)));
    jrpc_result(call, json_pack("{s:o, s:o}", "reactors", list, "control",
                                reactor_row(reactor_control(ctx->control->env))));
}
