/* SPDX-License-Identifier: BSD-3-Clause */
/* `ping`: portal-0 GETs one after the other, as `lnetctl ping` sends them. All on the control
 * thread. */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_US 100000 /* between a failure and the next attempt */

struct pinger {
    struct perf *perf;
    struct reactor_timer next;
    uint64_t sent_ns;
    uint64_t stop_ns; /* 0 = none */
    bool waiting;
    struct ping_results results;
};

static void ping_end(struct pinger *g)
{
    reactor_timer_cancel(&g->next);
    perf_stop(g->perf);
}

static void ping_answer(void *arg, int status, const struct lnet_ping_info *info)
{
    struct pinger *g = arg;
    struct ping_results *r = &g->results;

    g->waiting = false;
    if (perf_stopping(g->perf))
        return;
    if (status != 0) {
        r->last_error = status;
        reactor_timer_arm(&g->next, RETRY_US);
        return;
    }
    r->answered++;
    hist_add(&r->rtt, perf_now_ns() - g->sent_ns);
    if (!r->have_info)
        r->info = *info;
    r->have_info = true;
    reactor_timer_arm(&g->next, 0); /* not from here: LNet is still in this ping */
}

static void ping_next(struct reactor_timer *timer)
{
    struct pinger *g = container_of(timer, struct pinger, next);
    const struct perf_opts *o = &g->perf->opts;
    int rc;

    if ((o->count != 0 && g->results.sent >= o->count) ||
        (g->stop_ns != 0 && perf_now_ns() >= g->stop_ns)) {
        ping_end(g);
        return;
    }
    g->results.sent++;
    g->sent_ns = perf_now_ns();
    g->waiting = true;
    rc = lnet_ping(g->perf->node, &o->target, &LNET_NID_ANY, o->timeout_ms, ping_answer, g);
    if (rc != 0)
        ping_answer(g, rc, NULL);
}

int ping_begin(struct perf *p)
{
    struct pinger *g = calloc(1, sizeof(*g));

    if (!g)
        return -ENOMEM;
    p->pinger = g;
    g->perf = p;
    if (p->opts.duration_us != 0)
        g->stop_ns = perf_now_ns() + p->opts.duration_us * 1000;
    reactor_timer_init(&g->next, ping_next);
    reactor_timer_arm(&g->next, 0);
    return 0;
}

void ping_interrupt(struct pinger *g)
{
    if (g->waiting && !perf_stopping(g->perf))
        g->results.sent--; /* unanswered because we stop, not because it was lost */
    ping_end(g);
}

const struct ping_results *ping_results(const struct pinger *g)
{
    return &g->results;
}
