/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries the events of a run out: a node after the plan, an LND that does as the events say, and
 * at the end everything is completed (or the node stopped in the middle) and must be as it began.
 */
#include "lib/base/err.h"
#include "test/unit/property.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS   20000 /* of stepping before it is said that it never comes to rest */
#define REST_US  500000ull
#define EPOCH_US (1000 * SEC) /* runs begin at a multiple of it */

struct run run;
struct reactor_env *env;
unsigned nreactors;
struct lnet_node *node;
struct lnet_ni *ni[MAX_NIS];
uint64_t clock_us = 1000 * SEC;
bool stopping;
unsigned event_number;

static unsigned changes_pending;

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result rx_broke = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
static const struct lnet_result tx_broke = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_ERROR};

/* ---- the clock ---- */

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, ts);
    ts->tv_sec = (time_t)(clock_us / SEC);
    ts->tv_nsec = (long)(clock_us % SEC) * 1000;
    return 0;
}

/* ---- telling ---- */

void prop_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(run.out->text, sizeof(run.out->text), fmt, ap);
    va_end(ap);
    run.out->failed = true;
    run.out->at = event_number;
    _exit(1);
}

void say(const char *fmt, ...)
{
    va_list ap;

    if (!run.verbose)
        return;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* ---- stepping ---- */

static void after_step(void)
{
    stop_poll();
    answer_pings();
}

static int step_all(void)
{
    int work = 0;

    for (unsigned i = 0; i < nreactors; i++)
        ON(i, work += reactor_step(reactor_self(), 0));
    work += reactor_step(reactor_control(env), 0);
    after_step();
    return work;
}

static void rest(void)
{
    unsigned n = 0, idle = 0;

    while (idle < 2) {
        idle = step_all() == 0 ? idle + 1 : 0;
        if (++n > ROUNDS)
            prop_fail("never comes to rest");
    }
    model_sync();
    model_quiet();
}

/* Three of four peers are known to take messages soon, until they take one late. */
static void know_some(void)
{
    for (unsigned i = 0; i < npeers; i += 1 + (i % 4 == 2)) {
        uint32_t row = nid_hash(&peers[i].nid) % LNET_QUICKS;

        for (unsigned r = 0; r < nreactors; r++)
            for (unsigned k = 0; k < LNET_POOLS; k++)
                node->shard[r]->credit->quick[k][row] = (struct lnet_quick){0, 8};
    }
}

static void pass(uint64_t us)
{
    while (us > 0) {
        uint64_t some = us < REST_US ? us : REST_US;

        clock_us += some;
        us -= some;
        rest();
    }
    know_some();
}

/* ---- events ---- */

/* The first in that state from the n-th on. (Not the n-th of those in that state: it would be
 * another one when an event that has nothing to do with it is left out, and runs would not shrink
 * well.) */
static struct conn *conn_from(uint32_t n, enum conn_state state)
{
    for (unsigned i = 0; i < nconns; i++) {
        struct conn *c = &conns[(n + i) % nconns];

        if (c->state == state && !c->local)
            return c;
    }
    return NULL;
}

/* One of the messages with the LND, of the first peer from the n-th on that has any. */
static struct tracked *held_from(uint32_t n, bool accepted_too)
{
    unsigned k, skip = n / npeers % 4;
    struct tracked *found = NULL;

    for (unsigned i = 0; i < npeers && !found; i++)
        for (k = 0; k < nat_lnd; k++) {
            struct tracked *t = at_lnd[k];

            if (t->to != &peers[(n + i) % npeers] || (t->accepted && !accepted_too))
                continue;
            found = t;
            if (skip-- == 0)
                break;
        }
    return found;
}

static void do_arrive(const struct event *e)
{
    struct conn *c = &conns[e->a % nconns];

    if (c->gone || conn_is_for_answers(c))
        return;
    if (c->state == CONN_IDLE) {
        ON(c->peer->reactor, conn_parse(c, e->b, e->c));
    } else if (c->nbacklog < BACKLOG) {
        c->backlog[c->nbacklog][0] = e->b;
        c->backlog[c->nbacklog++][1] = e->c;
    }
}

static void do_notify(const struct event *e)
{
    struct model_peer *p = &peers[e->a % npeers];
    struct lnet_peer_ni *core;

    if (ni_gone[p->ni])
        return;
    say("    peer %u is %s", p->index, e->b % 2 ? "up" : "down");
    ON(p->reactor, {
        core = lnet_peer_ni_get(node, &p->nid);
        p->core = core;
        lnet_peer_ni_notify(ni[p->ni], core, e->b % 2);
        lnet_peer_ni_put(core);
    });
}

static void do_route(const struct event *e, bool add)
{
    struct err err = {0};
    struct lnet_route_conf conf = {.hops = LNET_HOPS_UNDEFINED};
    const struct plan_route *r;
    unsigned i;
    int rc;

    if (run.plan->nroutes == 0)
        return;
    i = e->a % run.plan->nroutes;
    r = &run.plan->route[i];
    if (route_there[i] == add || ni_gone[run.plan->peer[r->gw].ni] || changes_pending)
        return;
    conf.gateway = peers[r->gw].nid;
    conf.priority = r->priority;
    if (net_parse(r->net, &conf.net) != 0)
        prop_fail("bad net %s", r->net);
    rc = add ? lnet_route_add(node, &conf, &err) : route_del(node, conf.net, &conf.gateway, &err);
    if (rc)
        prop_fail("route: %s", err.message);
    route_there[i] = add;
    model_rule_changed();
}

static void ni_deleted(void *arg, int rc, const struct err *why)
{
    if (rc)
        prop_fail("NI del: %s", why->message);
    changes_pending--;
}

static void do_net_del(const struct event *e)
{
    unsigned index = e->a % run.plan->nnis, others = 0;
    struct err err = {0};
    int rc;

    if (ni_gone[index] || changes_pending)
        return;
    for (unsigned i = 0; i < run.plan->nnis; i++)
        others += !ni_gone[i] && ni[i]->net != ni[index]->net;
    if (others < 2)
        return;
    rc = lnet_ni_del(node, &ni[index]->nid, ni_deleted, NULL, &err);
    if (rc)
        prop_fail("NI del: %s", err.message);
    changes_pending++;
    ni_gone[index] = true;
    close_conns(index);
}

/* Nothing points to the NI that had it. */
static bool index_is_free(unsigned index)
{
    const struct lnet_ni *old = node->ni[index];

    if (!old)
        return true;
    if (old->state != LNET_NI_STOPPED || old->links_told != old->links_heard)
        return false;
    for (unsigned i = 0; i < nreactors; i++)
        if (node->shard[i]->ni_refs[index] > 0)
            return false;
    return true;
}

static void ni_added(void *arg, int rc, const struct err *why)
{
    unsigned index = *(unsigned *)arg;

    changes_pending--;
    if (stopping && rc == -ESHUTDOWN)
        return;
    if (ni_cannot_start != (rc == -EADDRINUSE) || ni_gone[index] != ni_cannot_start)
        prop_fail("NI add: %s", why->message);
    covered(rc ? COVER_NI_FAILED : COVER_NI_ADDED);
}

/* The books know NIs by their indices: it comes again when it gets the one it had. */
static void do_ni_add(const struct event *e)
{
    static unsigned index;
    struct lnet_ni_conf conf = {.lnd_tun = LND_TUNABLES_DEFAULT};
    struct err err = {0};

    if (changes_pending)
        return;
    for (index = 0; index < run.plan->nnis && !ni_gone[index]; index++)
        ;
    if (index == run.plan->nnis || !index_is_free(index))
        return;
    conf.nid = nid_of(run.plan->ni_nid[index]);
    conf.net = nid_net(&conf.nid);
    conf.tun = run.plan->tun[index];
    ni_cannot_start = e->b % 4 == 0;
    if (lnet_ni_add_live(node, &conf, ni_added, &index, &err))
        prop_fail("NI add: %s", err.message);
    changes_pending++;
}

static void do_link(const struct event *e)
{
    unsigned i = e->a % run.plan->nnis;

    if (!ni_gone[i])
        lnet_ni_link(ni[i], e->b % 2);
}

static void do_resize(const struct event *e)
{
    const uint32_t raw[LNET_POOLS] = {e->a, e->b, e->c};
    unsigned want[LNET_POOLS];
    int totals[LNET_POOLS];
    struct err err = {0};
    unsigned most;
    bool fits = true;

    for (unsigned i = 0; i < LNET_POOLS; i++) {
        most = node->shard[0]->credit->pool[i].capacity * nreactors;
        totals[i] = raw[i] % 4 == 0 ? -1 : 1 + (int)(raw[i] / 4 % (10 * nreactors));
        want[i] = totals[i] < 0 ? pool_totals[i] : (unsigned)totals[i] / nreactors * nreactors;
        if (want[i] < LNET_POOL_MIN * nreactors)
            want[i] = LNET_POOL_MIN * nreactors;
        fits &= want[i] <= most;
    }
    rest(); /* what was asked for before has become so */
    say("    pools %d %d %d", totals[0], totals[1], totals[2]);
    if ((lnet_pools_resize(node, totals, &err) == 0) != fits)
        prop_fail("resize to %d %d %d: %s", totals[0], totals[1], totals[2], err.message);
    if (fits)
        memcpy(pool_totals, want, sizeof(want));
}

static void do_admission(const struct event *e)
{
    struct lnet_admission set = {.egress_share = e->a % 101, .buffer_wait = e->b % 5};
    struct err err = {0};

    if (lnet_admission_set(node, &set, &err))
        prop_fail("admission: %s", err.message);
    if (set.egress_share)
        model_rule_changed();
    share = set.egress_share ? set.egress_share : share;
    wait_s = set.buffer_wait ? set.buffer_wait : wait_s;
    lnet_admission_get(node, &set);
    if (set.egress_share != share || set.buffer_wait != wait_s)
        prop_fail("admission is %u %u, not %u %u", set.egress_share, set.buffer_wait, share,
                  wait_s);
}

static void do_recv(const struct event *e)
{
    struct conn *c = conn_from(e->a, CONN_RECEIVING);

    if (!c)
        return;
    if (e->kind == EV_PROGRESS && !c->abandoned) {
        model_sync();
        c->in.rx.progress_us = c->progress_us = clock_us;
    } else if (e->kind != EV_PROGRESS) {
        ON(c->peer->reactor, recv_end(c, e->kind == EV_RECV_OK ? ok : rx_broke));
    }
}

static void do_send(const struct event *e)
{
    struct tracked *t = held_from(e->a, e->kind != EV_ACCEPT);

    if (!t)
        return;
    if (e->kind == EV_ACCEPT)
        ON(t->to->reactor, send_accepted(t));
    else
        ON(t->to->reactor, send_end(t, e->kind == EV_SEND_OK ? ok : tx_broke));
}

static void do_event(const struct event *e)
{
    struct conn *c;

    switch ((enum event_kind)e->kind) {
    case EV_ARRIVE:
        do_arrive(e);
        break;
    case EV_RECV_OK:
    case EV_RECV_FAIL:
    case EV_PROGRESS:
        do_recv(e);
        break;
    case EV_ACCEPT:
    case EV_SEND_OK:
    case EV_SEND_FAIL:
        do_send(e);
        break;
    case EV_CANCEL:
        c = conn_from(e->a, CONN_PARSED);
        if (c)
            (void)conn_cancel(c);
        break;
    case EV_PEER_FAIL:
        fail_peer(&peers[e->a % npeers], LNET_DROP_NEXT_HOP_LOST);
        break;
    case EV_NOTIFY:
        do_notify(e);
        break;
    case EV_ROUTE_DEL:
    case EV_ROUTE_ADD:
        do_route(e, e->kind == EV_ROUTE_ADD);
        break;
    case EV_NET_DEL:
        do_net_del(e);
        break;
    case EV_NI_ADD:
        do_ni_add(e);
        break;
    case EV_LINK:
        do_link(e);
        break;
    case EV_RESIZE:
        do_resize(e);
        break;
    case EV_ADMISSION:
        do_admission(e);
        break;
    case EV_MODE:
        mode = e->a % 8 + (e->b % 8 == 1 ? MODE_MUTE : 0);
        break;
    case EV_TIME:
        clock_us += e->a % 400000;
        break;
    case EV_TIME_REST:
        pass((e->a % 16 == 0 ? e->b % 15000 : e->b % 600) * 1000ull);
        break;
    case EV_STEP:
        if (e->a % (nreactors + 1) == nreactors)
            reactor_step(reactor_control(env), 0);
        else
            ON(e->a % (nreactors + 1), reactor_step(reactor_self(), 0));
        after_step();
        break;
    case EV_REST:
        rest();
        break;
    case EV_KINDS:
        break;
    }
}

/* ---- a whole run ---- */

/* All as at the start of the process, but for the clock, which only ever goes on. */
static void begin(void)
{
    clock_us = (clock_us / EPOCH_US + 1) * EPOCH_US;
    stopping = false;
    changes_pending = 0;
    ni_cannot_start = false;
    lnd_reset();
    model_reset();
}

static void make_peers(void)
{
    const struct plan *p = run.plan;

    for (unsigned i = 0; i < p->npeers; i++) {
        struct model_peer *peer = &peers[npeers++];

        *peer = (struct model_peer){.index = i,
                                    .ni = p->peer[i].ni,
                                    .nid = p->peer[i].nid,
                                    .gateway = p->peer[i].gateway,
                                    .reactor = reactor_index(lnet_nid_home(node, &p->peer[i].nid))};
        conns_make(peer, p->peer[i].conns);
    }
}

static void make_node(void)
{
    const struct plan *p = run.plan;
    struct lnet_node_opts opts = {.env = env,
                                  .routing = true,
                                  .tiny = p->pools[0],
                                  .small = p->pools[1],
                                  .large = p->pools[2],
                                  .memory = p->memory,
                                  .egress_share = p->egress_share,
                                  .buffer_wait = p->buffer_wait,
                                  .max_peers = 256,
                                  .local_msgs = 256,
                                  .source_check = LNET_SOURCE_OFF};
    struct err err = {0};

    if (lnet_node_create(&opts, &node, &err))
        prop_fail("%s", err.message);
    lnet_lnd_register(node, &lnd_tcp, NULL);
    lnet_lnd_register(node, &lnd_ib, NULL);
    for (unsigned i = 0; i < p->nnis; i++) {
        struct lnet_ni_conf conf = {
            .nid = nid_of(p->ni_nid[i]), .tun = p->tun[i], .lnd_tun = LND_TUNABLES_DEFAULT};

        conf.net = nid_net(&conf.nid);
        if (lnet_ni_add(node, &conf, &ni[i], &err))
            prop_fail("%s", err.message);
    }
    make_peers();
    share = p->egress_share;
    wait_s = p->buffer_wait;
    for (unsigned i = 0; i < LNET_POOLS; i++)
        pool_totals[i] = pool_totals_old[i] = node->shard[0]->credit->pool[i].total * nreactors;
}

static void start_node(void)
{
    struct err err = {0};
    struct event add = {.kind = EV_ROUTE_ADD};

    if (lnet_node_start(node, &err))
        prop_fail("%s", err.message);
    model_init();
    for (unsigned i = 0; i < run.plan->nroutes; i++) {
        add.a = i;
        do_route(&add, true);
    }
    rest();
}

/* Gives everything that is asked for: all must end without any time passing. */
static void drain(void)
{
    unsigned rounds = 0;

    mode = 0;
    rest();
    while (model_open()) {
        for (unsigned i = 0; i < nconns; i++)
            if (conns[i].state == CONN_RECEIVING)
                ON(conns[i].peer->reactor, recv_end(&conns[i], ok));
        while (nat_lnd > 0)
            ON(at_lnd[0]->to->reactor, send_end(at_lnd[0], ok));
        rest();
        if (++rounds > ROUNDS)
            prop_fail("does not come to an end");
    }
    mode = MODE_RECV | MODE_DONE; /* the node's own pings go on */
}

static void stopped(void *arg)
{
    *(bool *)arg = true;
}

static void stop_node(void)
{
    uint64_t until = clock_us + (run.plan->drain_s + 3) * SEC;
    bool is_stopped = false;

    stopping = true;
    lnet_node_stop(node, run.plan->drain_s, stopped, &is_stopped);
    while (!is_stopped) {
        rest();
        clock_us += 50000;
        if (clock_us > until)
            prop_fail("does not stop");
    }
    pass(2 * SEC);
    model_end();
    if (changes_pending > 0)
        prop_fail("a change of NIs never ended");
    if (takes > 0)
        prop_fail("%u payloads that the LND lent were not given back", takes);
    model_done();
    lnet_node_destroy(node);
}

void property_run(struct reactor_env *e, unsigned reactors)
{
    env = e;
    nreactors = reactors;
    begin();
    make_node();
    start_node();
    for (event_number = 0; event_number < run.n; event_number++) {
        const struct event *ev = &run.event[event_number];

        run.out->at = event_number;
        say("%s %u %u %u", event_names[ev->kind], ev->a, ev->b, ev->c);
        do_event(ev);
        model_sync();
    }
    if (!run.plan->stop_busy) {
        drain();
        pass(2 * SEC);
        model_end();
    }
    stop_node();
}
