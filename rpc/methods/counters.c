/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counters_capture: named counters now and a while later, and how they moved. Nothing of this asks
 * a reactor: all are numbers that anybody may read.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/lnd/show.h"
#include "lib/lnd/type.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/reactor/wait.h"
#include "rpc/methods/port.h"
#include "rpc/methods/timed.h"

#define DEFAULT_MS 1000

struct snapshot {
    const char *match; /* NULL: all; lives as long as the call */
    json_t *values;    /* name: integer */
};

struct capture {
    struct rpc_timed timed; /* first */
    uint64_t began_us;
    struct snapshot before;
};

/* ---- names and values ---- */

static void put(struct snapshot *s, uint64_t value, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct snapshot *s, uint64_t value, const char *fmt, ...)
{
    char name[112];
    va_list args;

    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    if (!s->match || fnmatch(s->match, name, 0) == 0)
        json_object_set_new(s->values, name, json_integer((json_int_t)value));
}

static void put_node(struct snapshot *s, const struct lnet_node *node)
{
    uint64_t stat[LNET_STAT_COUNT], drop[LNET_DROP_COUNT];

    lnet_stats_get(node, stat);
    lnet_drops_get(node, drop);
    for (int i = 0; i < LNET_STAT_COUNT; i++)
        put(s, stat[i], "stats.%s", lnet_stat_name((enum lnet_stat)i));
    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d))
        put(s, drop[d], "drops.%s", lnet_drop_info(d)->name);
}

static void put_ni(struct snapshot *s, const struct lnet_node *node, const struct lnet_ni *ni)
{
    static const char *const types[LNET_MSG_TYPES] = {"ack", "put", "get", "reply", "hello"};
    struct lnet_ni_stats stats = {0};
    struct lnet_credits tx = {0};
    char nid[LNET_NIDSTR_SIZE];
    uint32_t waiting = 0;

    nid_format(&ni->nid, nid);
    lnet_ni_stats_get(node, ni->index, &stats);
    lnet_ni_credits_get(node, ni->index, &tx, &waiting);
    for (unsigned t = 0; t < LNET_MSG_TYPES; t++) {
        put(s, stats.sent[t], "ni.%s.sent.%s", nid, types[t]);
        put(s, stats.received[t], "ni.%s.received.%s", nid, types[t]);
        put(s, stats.dropped[t], "ni.%s.dropped.%s", nid, types[t]);
    }
    put(s, waiting, "ni.%s.tx_waiting", nid);
    put(s, tx.waited, "ni.%s.tx_waited", nid);
}

static void put_buffers(struct snapshot *s, const struct lnet_node *node, unsigned reactor)
{
    for (unsigned i = 0; i < LNET_POOLS; i++) {
        const char *name = rpc_pool_names[i];
        struct lnet_pool_stats p = {0};

        lnet_pool_stats_get(node, reactor, (enum lnet_pool)i, &p);
        put(s, p.total, "buffers.%u.%s.total", reactor, name);
        put(s, (uint64_t)(int64_t)p.free, "buffers.%u.%s.free", reactor, name);
        put(s, p.waiting, "buffers.%u.%s.waiting", reactor, name);
        put(s, p.waited, "buffers.%u.%s.waited", reactor, name);
    }
}

static void put_reactor(struct snapshot *s, const struct reactor *r, const char *name)
{
    struct reactor_stats st = {0};
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"loops", (reactor_stats_get(r, &st), st.loops)},
        {"busy_loops", st.busy_loops},
        {"busy_cycles", st.busy_cycles},
        {"total_cycles", st.total_cycles},
        {"polls", st.polls},
        {"useful_polls", st.useful_polls},
        {"sleeps", st.sleeps},
        {"sleep_us", st.sleep_us},
        {"mails_in", st.mails_in},
        {"mails_queued", st.mails_queued},
        {"timers_fired", st.timers_fired},
        {"stalls", st.long_calls},
        {"preempted", st.preempted},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        put(s, rows[i].value, "reactor.%s.%s", name, rows[i].name);
    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        put(s, st.stage_cycles[i], "reactor.%s.cycles.%s", name,
            reactor_stage_name((enum reactor_stage)i));
}

static void put_waits(struct snapshot *s, const struct reactor *r, const char *name)
{
    struct reactor_wait_hist waits_of[REACTOR_WAITS];
    unsigned i;

    reactor_waits_get(r, waits_of);
    for (i = 0; i < REACTOR_WAITS; i++) {
        const struct reactor_wait_hist *h = &waits_of[i];
        const char *what = reactor_wait_name((enum reactor_wait)i);
        uint64_t waits = 0;

        for (unsigned k = 0; k < REACTOR_WAIT_BUCKETS; k++)
            waits += h->bucket[k];
        put(s, h->none, "reactor.%s.waited.%s.none", name, what);
        put(s, waits, "reactor.%s.waited.%s.waits", name, what);
        put(s, h->total_us, "reactor.%s.waited.%s.total_us", name, what);
    }
}

/* ---- ports, IP and TCP ---- */

/* Each number of a struct, below a name. */
static void put_numbers(struct snapshot *s, const struct rpc_number *row, const void *from,
                        const char *of, const char *part)
{
    for (; row->name; row++)
        put(s, rpc_number_of(row, from), "%s.%s.%s", of, part, row->name);
}

static void put_port(struct snapshot *s, const struct port *port)
{
    struct port_queue_stats sum;
    char of[8 + PORT_NAME_MAX];

    snprintf(of, sizeof(of), "port.%s", port->name);
    rpc_port_sum(port, false, &sum);
    put_numbers(s, rpc_queue_numbers, &sum, of, "rx");
    rpc_port_sum(port, true, &sum);
    put_numbers(s, rpc_queue_numbers, &sum, of, "tx");
}

struct counter_sink {
    struct lnd_sink base;
    struct snapshot *to;
    const char *section;
    char nid[LNET_NIDSTR_SIZE];
};

static void put_counter(struct lnd_sink *to, const char *name, int64_t value)
{
    struct counter_sink *c = (struct counter_sink *)to;

    put(c->to, (uint64_t)value, "%s.%s.%s", c->section, c->nid, name);
}

/* Counters that the LND of an NI has beside those that all have. */
static void put_lnd(struct snapshot *s, const struct lnet_ni *ni)
{
    const struct lnd_type *type = lnd_type_of(ni->net);
    struct counter_sink to = {.base = {.number = put_counter}, .to = s};

    if (!type || !ni->lnd->show)
        return;
    to.section = type->section;
    nid_format(&ni->nid, to.nid);
    ni->lnd->show->counters(ni, &to.base);
}

static void put_tcp(struct snapshot *s, const struct rpc_ctx *ctx, unsigned reactor)
{
    struct inet_stats ip = {0};
    struct tcp_stats tcp = {0};
    char name[16];

    snprintf(name, sizeof(name), "%u", reactor);
    inet_stats_get(ctx->control->inet, reactor, &ip);
    put_numbers(s, rpc_inet_numbers, &ip, "ip", name);
    if (!ctx->control->tcp)
        return;
    tcp_stats_get(ctx->control->tcp, reactor, &tcp);
    put_numbers(s, rpc_tcp_numbers, &tcp, "tcp", name);
}

/* A node without ports has none of this. */
static void put_eth(struct snapshot *s, const struct rpc_ctx *ctx)
{
    uint64_t drop[PKT_DROP_COUNT];
    struct port *port[PORT_MAX];
    unsigned n = rpc_ports(ctx, port), i;

    if (!ctx->control->inet)
        return;
    for (i = 0; i < n; i++)
        put_port(s, port[i]);
    for (i = 0; i < reactor_count(ctx->control->env); i++)
        put_tcp(s, ctx, i);
    rpc_pkt_drops(ctx, drop);
    for (i = PKT_DROP_NONE + 1; i < PKT_DROP_COUNT; i++)
        put(s, drop[i], "pkt_drops.%s", pkt_drop_info((enum pkt_drop)i)->name);
}

static void look(struct snapshot *s, const struct rpc_ctx *ctx)
{
    const struct lnet_ni *ni;
    char name[16];

    s->values = json_object();
    put_node(s, ctx->control->node);
    for (unsigned i = 0; i < lnet_ni_count(ctx->control->node); i++)
        if ((ni = lnet_ni_at(ctx->control->node, i))) {
            put_ni(s, ctx->control->node, ni);
            put_lnd(s, ni);
        }
    for (unsigned i = 0; i < reactor_count(ctx->control->env); i++) {
        put_buffers(s, ctx->control->node, i);
        snprintf(name, sizeof(name), "%u", i);
        put_reactor(s, reactor_at(ctx->control->env, i), name);
        put_waits(s, reactor_at(ctx->control->env, i), name);
    }
    put_reactor(s, reactor_control(ctx->control->env), "control");
    put_eth(s, ctx);
}

/* ---- the answer ---- */

static json_t *row(const char *name, json_int_t before, json_int_t after, double seconds)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:f}", "name", name, "before", before, "after", after,
                     "delta", after - before, "per_second", (double)(after - before) / seconds);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Compares the counters present in both. NULL: out of memory. */
static json_t *compare(json_t *before, json_t *after, double seconds)
{
    const char **names = calloc(json_object_size(after) + 1, sizeof(*names)), *name;
    json_t *list = names ? json_array() : NULL, *value;
    size_t n = 0;

    if (!names)
        return NULL;
    json_object_foreach(after, name, value)
        if (json_object_get(before, name))
            names[n++] = name;
    qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list,
                              row(names[i], json_integer_value(json_object_get(before, names[i])),
                                  json_integer_value(json_object_get(after, names[i])), seconds));
    free(names);
    return list;
}

static void capture_over(struct rpc_timed *t, bool cancelled)
{
    struct capture *c = (struct capture *)t;
    struct snapshot after = {.match = c->before.match};
    double seconds = (double)(reactor_now_us() - c->began_us) / 1e6;
    json_t *answer = NULL;

    if (!cancelled) {
        look(&after, t->ctx);
        answer = json_pack("{s:f, s:o}", "seconds", seconds, "counters",
                           compare(c->before.values, after.values, seconds));
    }
    json_decref(after.values);
    json_decref(c->before.values);
    rpc_timed_end(t);
    jrpc_result(t->call, answer);
}

void rpc_counters_capture(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct capture *c;
    unsigned ms = args[1].given   ? (unsigned)args[1].integer * 1000
                  : args[2].given ? (unsigned)args[2].integer
                                  : DEFAULT_MS;

    if (args[1].given && args[2].given) {
        jrpc_refuse(call, "interval_ms", "give one of them",
                    "seconds and interval_ms exclude each "
                    "other");
        return;
    }
    c = jrpc_alloc(call, sizeof(*c));
    if (!c)
        return;
    if (!rpc_timed_begin(&c->timed, call, capture_over))
        return;
    c->before.match = args[0].given ? args[0].string : NULL;
    c->began_us = reactor_now_us();
    look(&c->before, c->timed.ctx);
    rpc_timed_wait(&c->timed, ms);
}
