/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of this node's gateways with pings, once per check interval and sooner while a gateway
 * does not answer. docs/protocol/lnet-core.md §3.8. Node home.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/route/route_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US      1000000ull
#define CHECK_LOOKS  128     /* gateways looked at, */
#define CHECK_BURST  4       /* and checks begun in one part */
#define CHECK_GAP_US 1000ull /* between two parts */

/* A gateway pushes a link that went down within a second, so that its routes lose no messages until
 * the next check (§16 on §3.7). */
void lnet_gw_pushed(struct lnet_gw *gw, const struct lnet_ping_info *info)
{
    if (!info->truncated) /* a part says too little of the routes */
        lnet_evaluate_routes(gw->check, info, true);
}

static void gw_down(struct lnet_gw *gw, const char *cause)
{
    relaxed_store(&gw->ping_down_us, reactor_now_us());
    relaxed_store(&gw->ping_down, true);
    lnet_gw_report(gw, cause);
}

/* Pings a gateway that does not answer again after 1 s, 2 s, 4 s … up to the interval, so that its
 * routes come back soon after the gateway does. */
static void check_failed(struct lnet_gw_check *c)
{
    struct lnet_gw *gw = c->gw;
    uint64_t interval = lnet_check_interval_us(gw->node);
    uint64_t wait = c->failures < 6 ? TICK_US << c->failures : interval;

    c->failures++;
    c->next_us = reactor_now_us() + (wait < interval ? wait : interval);
    gw_down(gw, c->op.status == -ETIMEDOUT ? "ping_timeout" : "ping_failed");
}

static void check_done(struct lnet_ping_op *op)
{
    struct lnet_gw_check *c = container_of(op, struct lnet_gw_check, op);

    if (c->leaving)
        lnet_gw_check_idle(c);
    else if (op->status == 0)
        c->failures = 0;
    else if (op->status != -ESHUTDOWN) /* a cancelled ping says nothing about the gateway */
        check_failed(c);
}

static void check_answered(struct lnet_ping_op *op, const struct lnet_ping_info *info)
{
    struct lnet_gw_check *c = container_of(op, struct lnet_gw_check, op);

    if (info->truncated && c->sink < LNET_GW_SINK_MAX) {
        c->sink = min(max(2 * c->sink, info->full_size), (uint32_t)LNET_GW_SINK_MAX);
        c->next_us = 0; /* pings again with room for the whole info, §3.4 */
        return;
    }
    relaxed_store(&c->gw->ping_down, false);
    lnet_gw_report(c->gw, "ping_answered");
    lnet_evaluate_routes(c, info, false);
    /* Last, as a discovery decodes into the place of info. */
    lnet_discover_replied(c->gw->node, &c->gw->nid, info->seqno);
}

/* The routes go down now; the check ends only when the LND has released its GET. */
static void check_late(struct lnet_ping_op *op)
{
    if (op->status)
        gw_down(container_of(op, struct lnet_gw_check, op)->gw, "ping_timeout");
}

static const struct lnet_ping_kind check_kind = {
    .count_timeout = true, .answered = check_answered, .late = check_late, .done = check_done};

static void check_begin(struct lnet_gw_check *c)
{
    struct lnet_node *node = c->gw->node;

    c->next_us = reactor_now_us() + lnet_check_interval_us(node);
    lnet_ping_op_start(&c->op, &LNET_NID_ANY, c->data, c->sink, lnet_ping_timeout_us(node));
}

int lnet_gw_check_new(struct lnet_node *node, struct lnet_gw *gw)
{
    struct lnet_gw_check *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->gw = gw;
    c->evaluate.fn = lnet_evaluate_task;
    c->op.node = node;
    c->op.kind = &check_kind;
    c->op.target = gw->nid;
    c->sink = LNET_PING_MIN_SINK;
    gw->check = c;
    return 0;
}

void lnet_gw_check_soon(struct lnet_gw *gw)
{
    count_add(&gw->wanted, 1);
}

void lnet_checks_retime(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    uint64_t last = reactor_now_us() + lnet_check_interval_us(node);

    for (unsigned i = 0; i < conf->ngws_known; i++)
        if (conf->gw[i].gw->check->next_us > last)
            conf->gw[i].gw->check->next_us = last;
}

bool lnet_gw_check_end(struct lnet_gw *gw)
{
    struct lnet_gw_check *c = gw->check;

    if (!c->op.running && !c->evaluating)
        return true;
    c->leaving = true;
    lnet_ping_op_cancel(&c->op); /* may complete the check before it returns */
    return false;
}

void lnet_gw_check_idle(struct lnet_gw_check *c)
{
    if (!c->leaving || c->op.running || c->evaluating)
        return;
    c->leaving = false; /* once */
    lnet_gw_leave(c->gw);
}

static bool is_due(const struct lnet_gw *gw, uint64_t now)
{
    const struct lnet_gw_check *c = gw->check;

    return !c->op.running && (now >= c->next_us || relaxed_load(&gw->wanted) != c->seen_wanted);
}

/* Goes through all gateways once and begins the checks that are due, in bounded parts. */
static void check_gateways(struct reactor_timer *t)
{
    struct lnet_routes *routes = container_of(t, struct lnet_routes, gw_timer);
    struct lnet_node *node = routes->node;
    const struct lnet_conf *conf = lnet_conf_get(node);
    uint64_t now = reactor_now_us();
    unsigned looks = 0, begun = 0;

    for (; routes->gw_next < conf->ngws; routes->gw_next++) {
        struct lnet_gw *gw = conf->gw[routes->gw_next].gw;
        uint32_t wanted = relaxed_load(&gw->wanted);

        if (looks++ == CHECK_LOOKS || begun == CHECK_BURST) {
            reactor_timer_arm(t, CHECK_GAP_US);
            return;
        }
        if (!is_due(gw, now))
            continue;
        if (wanted != gw->check->seen_wanted)
            lnet_routes_report(node); /* a new one, perhaps of a gateway that is down */
        gw->check->seen_wanted = wanted;
        check_begin(gw->check);
        begun++;
    }
    routes->gw_next = 0;
}

/* ---- tick ---- */

static void tick(struct reactor_timer *t)
{
    struct lnet_routes *routes = container_of(t, struct lnet_routes, tick);

    if (!reactor_timer_armed(&routes->gw_timer))
        check_gateways(&routes->gw_timer);
    reactor_timer_arm(t, TICK_US);
}

void lnet_checks_start(struct lnet_node *node)
{
    struct lnet_routes *routes = node->routes;

    reactor_timer_init(&routes->tick, tick);
    reactor_timer_init(&routes->gw_timer, check_gateways);
    check_gateways(&routes->gw_timer);
    reactor_timer_arm(&routes->tick, TICK_US);
}

void lnet_checks_stop(struct lnet_node *node)
{
    reactor_timer_cancel(&node->routes->tick);
    reactor_timer_cancel(&node->routes->gw_timer);
}
