/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine `peers`: its memory, how it begins and ends, and what it tells of itself. */
#include "test/perf/peers/peers.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

struct peers_opts peers_opts;

#define TICK_US      10000
#define PINGS_A_TICK 64      /* of targets */
#define LINGER_US    200000  /* above the longest delay of an ACK */
#define ROUND_US     1000000 /* until a target that has not answered is asked again */

static struct peers *engine(struct perf_engine *base)
{
    return (struct peers *)(void *)base;
}

/* ---- ranges ---- */

struct lnet_nid peers_nid(const struct perf_range *r, uint32_t index)
{
    struct lnet_nid nid = r->first;

    nid.addr_be[0] = htonl(ntohl(nid.addr_be[0]) + index);
    return nid;
}

struct lnet_nid peers_target(const struct peers *e, uint32_t index)
{
    const struct perf_opts *o = &e->base.perf->opts;
    unsigned i = 0;

    while (i + 1 < o->ntargets && index >= o->targets[i].count)
        index -= o->targets[i++].count;
    return peers_nid(&o->targets[i], index);
}

static void range_format(const struct perf_range *r, char out[LNET_NIDSTR_SIZE + 16])
{
    char nid[LNET_NIDSTR_SIZE];

    snprintf(out, LNET_NIDSTR_SIZE + 16, "%s*%u", nid_format(&r->first, nid), r->count);
}

/* Returns why a range cannot be simulated, or NULL. */
static const char *range_wrong(const struct perf_range *r, const struct lnet_nid *gateway)
{
    uint32_t first = ntohl(r->first.addr_be[0]);

    if (r->count == 0 || r->count > PEERS_MAX || r->count - 1 > UINT32_MAX - first)
        return "simulated peers are 1 to 16384 consecutive NIDs";
    if (r->first.type != LNET_LND_SOCK || !nid_is_nid4(&r->first))
        return "simulated peers have NIDs of a tcp net with IPv4 addresses";
    if (gateway->type == 0 || nid_net(gateway) != nid_net(&r->first) || !nid_is_nid4(gateway))
        return "the gateway's NID must be on the net of the simulated peers";
    if (ntohl(gateway->addr_be[0]) - first < r->count)
        return "the gateway's NID is one of the simulated peers'";
    return NULL;
}

/* ---- memory ---- */

static void peers_init(struct peers *e, unsigned side)
{
    struct peers_side *s = &e->side[side];

    for (uint32_t i = 0; i < s->range.count; i++) {
        struct peer *p = &s->peer[i];

        p->e = e;
        p->side = (uint8_t)side;
        p->nid = peers_nid(&s->range, i);
        TAILQ_INIT(&p->wait);
        TAILQ_INIT(&p->ops);
    }
}

int peers_make(struct peers *e)
{
    size_t answers = (size_t)e->all * (PEER_ANSWERS + PEER_OWN);

    e->chunk_region = MEM_REGION_NONE;
    for (unsigned i = 0; i < PEERS_CHUNKS; i++)
        e->chunk[i] = e->pattern + (size_t)i * PEERS_CHUNK;
    TAILQ_INIT(&e->idle);
    TAILQ_INIT(&e->free_ops);
    TAILQ_INIT(&e->free_answers);
    e->op = calloc(PEERS_OPS, sizeof(*e->op));
    e->answer = calloc(answers, sizeof(*e->answer));
    e->target_up = calloc(e->base.targets + 1, 1);
    if (!e->op || !e->answer || !e->target_up)
        return -ENOMEM;
    for (size_t i = 0; i < PEERS_OPS; i++)
        TAILQ_INSERT_TAIL(&e->free_ops, &e->op[i], link);
    for (size_t i = 0; i < answers; i++)
        TAILQ_INSERT_TAIL(&e->free_answers, &e->answer[i], link);
    for (unsigned i = 0; i < e->sides; i++) {
        e->side[i].peer = calloc(e->side[i].range.count, sizeof(*e->side[i].peer));
        if (!e->side[i].peer)
            return -ENOMEM;
        peers_init(e, i);
    }
    return getrandom(&e->incarnation, sizeof(e->incarnation), 0) == sizeof(e->incarnation) ? 0
                                                                                           : -EIO;
}

void peers_unmake(struct peers *e)
{
    for (unsigned i = 0; i < e->sides; i++)
        free(e->side[i].peer);
    peers_runs_free(e);
    free(e->target_up);
    free(e->answer);
    free(e->op);
}

/* ---- making ---- */

static void side_fill(struct peers *e, const char *device, const struct perf_range *range,
                      const struct lnet_nid *gateway, bool serves)
{
    struct peers_side *s = &e->side[e->sides];

    s->device = device;
    s->range = *range;
    s->gateway = *gateway;
    s->serves = serves;
    snprintf(s->ifname, sizeof(s->ifname), "%s", e->sides == 0 ? "port" : "server-port");
    e->sides++;
    e->all += range->count;
}

static const char *fill(struct peers *e)
{
    const struct perf_opts *o = &e->base.perf->opts;
    const struct peers_opts *po = &peers_opts;
    bool only_serves = o->command == PERF_SERVER;
    const char *wrong;

    side_fill(e, po->port, &po->peers, &po->gateway, only_serves);
    wrong = range_wrong(&po->peers, &po->gateway);
    if (!wrong && !only_serves && o->ntargets == 0)
        return "nobody to send to: name the targets";
    if (!wrong && !only_serves && po->server_port) {
        if (o->ntargets != 1)
            return "targets on a port of this process are one range of NIDs";
        side_fill(e, po->server_port, &o->targets[0], &po->server_gateway, true);
        wrong = range_wrong(&o->targets[0], &po->server_gateway);
    }
    if (wrong || only_serves)
        return wrong;
    e->direct = peers_are_direct(e);
    e->base.sources = po->peers.count;
    for (unsigned i = 0; i < o->ntargets; i++)
        e->base.targets += o->targets[i].count;
    return NULL;
}

static int peers_open(struct perf *p, struct perf_engine **out)
{
    struct peers *e = calloc(1, sizeof(*e));
    struct err err = {.message = "out of memory"};
    const char *wrong;
    int rc = -ENOMEM;

    if (!e)
        goto failed;
    *out = &e->base;
    e->base.ops = &engine_peers;
    e->base.perf = p;
    e->pattern = p->pattern;
    e->inject_replies = p->opts.inject == PERF_INJECT_CORRUPT && p->opts.command == PERF_SERVER;
    wrong = fill(e);
    if (wrong) {
        err_text(&err, "%s", wrong);
        rc = -EINVAL;
        goto failed;
    }
    rc = peers_make(e);
    if (rc == 0)
        rc = peers_ports_open(e, &err);
    if (rc == 0)
        e->base.home = reactor_at(p->env, 0);
    if (rc == 0)
        return 0;
failed:
    fprintf(stderr, "millrace-peers: %s\n", err.message);
    return rc;
}

/* ---- beginning ---- */

static void tell_ready(struct reactor_task *task)
{
    struct peers *e = container_of(task, struct peers, ready_task);

    if (!relaxed_load(&e->stopping))
        perf_engine_ready(&e->base, e->told_error, e->why, e->pings_out - e->targets_up);
}

static void tell_serving(struct reactor_task *task)
{
    struct peers *e = container_of(task, struct peers, serving_task);
    char who[LNET_NIDSTR_SIZE + 16];

    for (unsigned i = 0; i < e->sides; i++) {
        if (!e->side[i].serves)
            continue;
        range_format(&e->side[i].range, who);
        perf_engine_serving(&e->base, who);
    }
}

static void ready(struct peers *e, int error)
{
    if (e->told_ready || !e->ready_task.fn)
        return;
    e->told_ready = true;
    e->told_error = error;
    reactor_post(reactor_control(e->base.perf->env), &e->ready_task);
}

void peers_ready_changed(struct peers *e)
{
    e->progress_us = reactor_now_us();
    if (e->ready < e->all || e->told_serving || !e->serving_task.fn)
        return;
    e->told_serving = true;
    reactor_post(reactor_control(e->base.perf->env), &e->serving_task);
}

void peers_target_heard(struct peers *e, uint32_t index)
{
    if (index >= e->base.targets || e->target_up[index])
        return;
    e->target_up[index] = true;
    e->targets_up++;
    e->progress_us = reactor_now_us();
    if (e->targets_up == e->base.targets)
        ready(e, 0);
}

static void ping_targets(struct peers *e)
{
    uint64_t now = reactor_now_us();
    unsigned n = 0;

    if (e->target_at == e->base.targets && now < e->round_us)
        return;
    if (e->target_at == e->base.targets)
        e->target_at = 0;
    for (; n < PINGS_A_TICK && e->target_at < e->base.targets; e->target_at++) {
        uint32_t i = e->target_at;
        struct lnet_nid nid = peers_target(e, i);
        struct peer *p = &e->side[0].peer[i % e->base.sources];

        if (e->target_up[i] || p->state != PEER_READY)
            continue;
        e->pings_out += peers_ping(p, &nid, PEERS_PING | PEERS_PING_TO | i);
        n++;
    }
    if (e->target_at == e->base.targets)
        e->round_us = now + ROUND_US;
}

static void tick(struct reactor_timer *t)
{
    struct peers *e = container_of(t, struct peers, tick);
    uint64_t patience = e->base.perf->opts.timeout_ms * UINT64_C(1000);

    reactor_timer_arm(t, TICK_US);
    peers_collect_look(e);
    if (e->told_ready)
        return;
    if (e->ready == e->all)
        ping_targets(e);
    if (reactor_now_us() - e->progress_us < patience)
        return;
    snprintf(e->why, sizeof(e->why),
             "%u of %u peers have an answer of their router, %u of %u targets answer a ping",
             e->ready, e->all, e->targets_up, e->base.targets);
    ready(e, -ETIMEDOUT);
}

static void start_on_home(struct reactor_task *task)
{
    struct peers *e = container_of(task, struct peers, start_task);

    e->progress_us = reactor_now_us();
    e->target_at = 0;
    for (unsigned s = e->sides; s-- > 0;) /* those who are sent to at first */
        for (uint32_t i = 0; i < e->side[s].range.count; i++)
            peer_begin(&e->side[s].peer[i]);
    reactor_timer_init(&e->tick, tick);
    reactor_timer_arm(&e->tick, TICK_US);
    if (e->base.sources == 0)
        ready(e, 0);
}

static int peers_start(struct perf_engine *base)
{
    struct peers *e = engine(base);
    struct err err = {0};
    int rc = peers_ports_start(e, &err);

    if (rc == 0) {
        rc = peers_direct_start(e);
        if (rc != 0)
            err_text(&err, "the target cannot listen: %s", strerror(-rc));
    }
    if (rc != 0) {
        fprintf(stderr, "millrace-peers: %s\n", err.message);
        return rc;
    }
    e->ready_task.fn = tell_ready;
    e->serving_task.fn = tell_serving;
    e->start_task.fn = start_on_home;
    reactor_post(base->home, &e->start_task);
    return 0;
}

/* ---- ending ---- */

static void stopped(struct reactor_task *task)
{
    peers_ports_stop(container_of(task, struct peers, stop_task));
}

static void close_all(struct reactor_timer *t)
{
    struct peers *e = container_of(t, struct peers, tick);

    peers_direct_stop(e);
    for (unsigned s = 0; s < e->sides; s++)
        for (uint32_t i = 0; i < e->side[s].range.count; i++)
            peer_stop(&e->side[s].peer[i]);
    e->stop_task.fn = stopped;
    reactor_post(reactor_control(e->base.perf->env), &e->stop_task);
}

/* Acknowledges what came last before the connections close: the router would otherwise count it as
 * lost. */
static void stop_on_home(struct reactor_task *task)
{
    struct peers *e = container_of(task, struct peers, stop_task);

    relaxed_store(&e->stopping, true);
    reactor_timer_cancel(&e->tick);
    reactor_timer_init(&e->tick, close_all);
    reactor_timer_arm(&e->tick, LINGER_US);
}

static void peers_stop(struct perf_engine *base)
{
    struct peers *e = engine(base);

    e->stop_task.fn = stop_on_home;
    reactor_post(base->home, &e->stop_task);
}

static void peers_halt(struct perf_engine *base)
{
    struct reactor_env *env = base->perf->env;

    if (!env || !base->home)
        return;
    reactor_env_stop(env);
    (void)reactor_env_drain(env);
    reactor_env_clear(env);
}

static void peers_close(struct perf_engine *base)
{
    struct peers *e = engine(base);

    peers_ports_close(e);
    peers_unmake(e);
    free(e);
}

/* ---- looking ---- */

static void peers_counters(const struct perf_engine *base, struct perf_engine_counters *out)
{
    const struct peers *e = (const struct peers *)(const void *)base;
    const uint64_t *from = (const uint64_t *)(const void *)&e->count;
    uint64_t *to = (uint64_t *)(void *)out;

    for (size_t i = 0; i < sizeof(*out) / sizeof(*to); i++)
        to[i] = relaxed_load(&from[i]);
}

static const struct server_counters *peers_served(const struct perf_engine *base)
{
    const struct peers *e = (const struct peers *)(const void *)base;

    for (unsigned i = 0; i < e->sides; i++)
        if (e->side[i].serves)
            return &e->served;
    return NULL;
}

static void peers_drops(const struct perf_engine *base, perf_row_fn row, void *arg)
{
    const struct peers *e = (const struct peers *)(const void *)base;

    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d))
        if (e->drops[d] != 0)
            row(arg, lnet_drop_info(d)->name, lnet_drop_info(d)->text, e->drops[d]);
    peers_ports_drops(e, row, arg);
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void peers_mark_begin(struct peers *e)
{
    if (e->has_begun || !e->base.home)
        return;
    e->has_begun = true;
    reactor_stats_get(e->base.home, &e->begun);
    e->begun_cpu_ns = cpu_ns();
    e->begun_messages = e->messages_in + e->messages_out;
}

static void peers_figures(const struct perf_engine *base, perf_row_fn row, void *arg)
{
    const struct peers *e = (const struct peers *)(const void *)base;
    uint64_t messages = e->messages_in + e->messages_out - e->begun_messages;
    struct reactor_stats st;

    row(arg, "peers", "simulated peers", e->all);
    if (!e->has_begun || messages == 0)
        return;
    reactor_stats_get(base->home, &st);
    row(arg, "cycles_per_message", "cycles of this process for each LNet message, sent or received",
        (st.busy_cycles - e->begun.busy_cycles) / messages);
    row(arg, "cpu_ns_per_message",
        "CPU time of this process for each of them, time without work included",
        (cpu_ns() - e->begun_cpu_ns) / messages);
    row(arg, "messages_carried", "LNet messages sent and received since the first of the load",
        messages);
    row(arg, "busy_percent", "of the cycles of this process's core",
        100 * (st.busy_cycles - e->begun.busy_cycles) /
            (st.total_cycles - e->begun.total_cycles + 1));
}

_Static_assert(sizeof(struct perf_engine_counters) % sizeof(uint64_t) == 0, "counters only");

const struct perf_engine_ops engine_peers = {
    .name = "peers",
    .open = peers_open,
    .start = peers_start,
    .stop = peers_stop,
    .halt = peers_halt,
    .close = peers_close,
    .send = peers_send,
    .cancel = peers_cancel,
    .collect = peers_collect,
    .counters = peers_counters,
    .served = peers_served,
    .missing = peers_missing,
    .drops = peers_drops,
    .figures = peers_figures,
};
