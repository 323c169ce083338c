/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/drain.h"

#include "control/controller.h"
#include "lib/base/container.h"
#include "lib/base/minmax.h"

#define LOOK_US   1000000
#define PAGE_ROWS 256
#define US        1000000ull

/* ---- the decision ---- */

const char *drain_state_name(enum drain_state state)
{
    static const char *const names[DRAIN_STATES] = {"off", "draining", "safe", "late"};

    return names[state];
}

void drain_begin(struct drain *d, uint64_t now_us, uint64_t forwarded, uint64_t timeout_us,
                 uint64_t check_us)
{
    *d = (struct drain){.state = DRAIN_DRAINING,
                        .begun_us = now_us,
                        .until_us = now_us + timeout_us,
                        .check_us = check_us + DRAIN_CHECK_US,
                        .used_us = now_us,
                        .last = {.now_us = now_us, .forwarded = forwarded}};
}

bool drain_is_unaware(const struct drain *d)
{
    return d->last.told < d->last.nodes && d->last.now_us - d->begun_us < d->check_us;
}

/* With no node connected there is none that could choose this router. */
static bool is_unused(const struct drain *d)
{
    if (d->last.nodes == 0)
        return d->used_us < d->last.now_us;
    return d->last.now_us - d->used_us >= DRAIN_QUIET_US && !drain_is_unaware(d);
}

bool drain_step(struct drain *d, const struct drain_look *seen)
{
    enum drain_state before = d->state;
    uint64_t had = d->last.forwarded;

    /* Counters may have been reset. */
    d->recent = (unsigned)(seen->forwarded >= had ? seen->forwarded - had : seen->forwarded);
    if (d->recent > 0 || seen->in_flight > 0)
        d->used_us = seen->now_us;
    d->last = *seen;
    if (is_unused(d))
        d->state = DRAIN_SAFE;
    else
        d->state = seen->now_us >= d->until_us ? DRAIN_LATE : DRAIN_DRAINING;
    return d->state != before;
}

/* ---- looks ---- */

static uint64_t forwarded(const struct lnet_node *node)
{
    uint64_t stats[LNET_STAT_COUNT] = {0};

    lnet_stats_get(node, stats);
    return stats[LNET_STAT_ROUTE_COUNT];
}

static void report(struct control_drain *w, const char *cause, const char *text)
{
    struct control_event event = {.type = "drain", .cause = cause, .text = text};

    control_happened(w->c, &event);
}

static void report_state(struct control_drain *w)
{
    static const char *const texts[DRAIN_STATES] = {
        [DRAIN_DRAINING] = "the router is in use again, or may be",
        [DRAIN_SAFE] = "nothing uses the router any more: it is safe to stop it",
        [DRAIN_LATE] =
            "the time limit of the drain has passed, and the router is in use, or may be",
    };

    report(w, drain_state_name(w->d.state), texts[w->d.state]);
}

static void count_peer(struct control_drain *w)
{
    w->seen.nodes += w->up;
    w->seen.told += w->up && w->told;
    w->up = w->told = false;
}

static void end_look(struct control_drain *w)
{
    count_peer(w);
    w->seen.now_us = reactor_now_us();
    w->seen.forwarded = forwarded(w->c->node);
    w->seen.in_flight += lnet_in_flight(w->c->node);
    if (drain_step(&w->d, &w->seen))
        report_state(w);
    reactor_timer_arm(&w->timer, LOOK_US);
}

static void page(void *arg, const struct lnet_peer_row *rows, unsigned n,
                 const struct lnet_peer_cursor *next);

static void walk(struct control_drain *w, const struct lnet_peer_cursor *from)
{
    w->looking = lnet_peer_page(w->c->node, from, PAGE_ROWS, page, w) == 0;
    if (!w->looking) /* no memory now */
        reactor_timer_arm(&w->timer, LOOK_US);
}

static void look(struct reactor_timer *timer)
{
    struct control_drain *w = container_of(timer, struct control_drain, timer);

    w->seen = (struct drain_look){0};
    w->primary = LNET_NID_ANY;
    w->up = w->told = false;
    walk(w, &(struct lnet_peer_cursor){0});
}

/* The rows of a peer are together. */
static void page(void *arg, const struct lnet_peer_row *rows, unsigned n,
                 const struct lnet_peer_cursor *next)
{
    struct control_drain *w = arg;

    w->looking = false;
    if (w->d.state == DRAIN_OFF)
        return;
    for (unsigned i = 0; i < n; i++) {
        if (!nid_same(&rows[i].primary, &w->primary))
            count_peer(w);
        w->primary = rows[i].primary;
        w->up |= rows[i].known && rows[i].ni.up;
        w->told |= rows[i].told;
        w->seen.in_flight += rows[i].ni.rtr_waiting + rows[i].ni.limit_waiting;
    }
    if (next->end)
        end_look(w);
    else
        walk(w, next);
}

/* ---- commands ---- */

int control_drain_begin(struct controller *c, unsigned timeout_s, struct err *err)
{
    struct control_drain *w = &c->drain;
    uint64_t now = reactor_now_us();
    struct lnet_timing timing;
    int rc;

    if (w->d.state != DRAIN_OFF) {
        w->d.until_us = now + timeout_s * US;
        if (w->d.state == DRAIN_LATE)
            w->d.state = DRAIN_DRAINING;
        return 0;
    }
    rc = lnet_drain_set(c->node, true, err);
    if (rc)
        return rc;
    if (!w->ready)
        reactor_timer_init(&w->timer, look);
    w->ready = true;
    w->c = c;
    lnet_timing_get(c->node, &timing);
    drain_begin(&w->d, now, forwarded(c->node), timeout_s * US, timing.check_interval * US);
    report(w, "begun", "the router is drained: peers are told that its NIs are down");
    if (!w->looking) /* else the walk of the last drain goes on as the first of this one */
        look(&w->timer);
    return 0;
}

int control_drain_undo(struct controller *c, struct err *err)
{
    struct control_drain *w = &c->drain;
    int rc;

    if (w->d.state == DRAIN_OFF)
        return 0;
    rc = lnet_drain_set(c->node, false, err);
    if (rc)
        return rc;
    control_drain_stop(c);
    report(w, "undone", "the drain was taken back: peers are told the status of the NIs");
    return 0;
}

void control_drain_stop(struct controller *c)
{
    c->drain.d.state = DRAIN_OFF;
    if (c->drain.ready)
        reactor_timer_cancel(&c->drain.timer);
}
