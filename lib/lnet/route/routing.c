/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts and stops forwarding while the node runs, with times that depend on how often neighbours
 * ping. docs/protocol/lnet-core.md §3.9. Control thread.
 *
 * A node that begins to route forwards at once, but publishes it only after all neighbours had
 * the time to ping it, so no neighbour uses it before its NIs were pinged. A node that stops
 * publishes it at once and goes on until all may have seen it and no message uses a buffer,
 * within a limit. Buffers stay allocated, so messages in flight are delivered, and a stop can be
 * cancelled.
 */
#include "lib/base/err.h"
#include "lib/lnet/route/route_internal.h"

#include <errno.h>
#include <stdio.h>

#define LOOK_US      1000000ull /* between looks whether all buffers have come back */
#define STOP_PERIODS 3          /* in which others may all look, after which it stops anyway */
#define SECONDS_MAX  86400u

/* ---- telling others (node home) ---- */

static void tell(struct lnet_node *node, bool push)
{
    lnet_routing_changed(node);
    if (lnet_ping_republish(node) && push)
        lnet_ping_push_all(node, true);
}

/* ---- states ---- */

static uint64_t period_us(const struct lnet_node *node)
{
    return lnet_check_interval_us(node) + lnet_ping_timeout_us(node);
}

static int enter(struct lnet_node *node, enum lnet_routing state, bool push)
{
    struct lnet_node_event row = {
        .kind = LNET_NODE_EV_ROUTING, .value = (int)state, .cause = "command"};
    enum lnet_routing before = node->routing;

    relaxed_store(&node->routing, state); /* before the home looks at either */
    node->routes->routing_since_us = reactor_now_us();
    if (lnet_call_home(node, tell, push)) {
        relaxed_store(&node->routing, before);
        return -ENOMEM;
    }
    lnet_node_event_post(node, &row);
    return 0;
}

static bool buffers_in_use(const struct lnet_node *node)
{
    unsigned i, k;

    for (i = 0; i < node->nshards; i++)
        for (k = 0; k < LNET_POOLS; k++) {
            struct lnet_pool_stats p;

            lnet_pool_stats_get(node, i, (enum lnet_pool)k, &p);
            if (p.free < (int32_t)p.total || p.waiting > 0)
                return true;
        }
    return false;
}

static void period_over(struct reactor_timer *timer)
{
    struct lnet_routes *routes = container_of(timer, struct lnet_routes, routing_timer);
    struct lnet_node *node = routes->node;
    uint64_t since = reactor_now_us() - node->routes->routing_since_us;
    bool starting = node->routing == LNET_ROUTING_STARTING;

    if (!starting && buffers_in_use(node) && since < STOP_PERIODS * period_us(node)) {
        reactor_timer_arm(timer, LOOK_US);
        return;
    }
    if (enter(node, starting ? LNET_ROUTING_ON : LNET_ROUTING_OFF, starting))
        reactor_timer_arm(timer, LOOK_US);
}

void lnet_routing_init(struct lnet_node *node)
{
    node->routing = node->opts.routing ? LNET_ROUTING_ON : LNET_ROUTING_OFF;
    reactor_timer_init(&node->routes->routing_timer, period_over);
}

void lnet_routing_stop(struct lnet_node *node)
{
    reactor_timer_cancel(&node->routes->routing_timer);
    reactor_timer_cancel(&node->routes->nis_timer);
}

enum lnet_routing lnet_routing_get(const struct lnet_node *node)
{
    return relaxed_load(&node->routing);
}

static int begin(struct lnet_node *node, bool on)
{
    enum lnet_routing state = on ? LNET_ROUTING_STARTING : LNET_ROUTING_STOPPING;
    bool back = on && node->routing == LNET_ROUTING_STOPPING;
    int rc = enter(node, back ? LNET_ROUTING_ON : state, back);

    if (rc)
        return rc;
    if (back)
        reactor_timer_cancel(&node->routes->routing_timer);
    else
        reactor_timer_arm(&node->routes->routing_timer, period_us(node));
    return 0;
}

int lnet_routing_set(struct lnet_node *node, bool on, struct err *err)
{
    bool is_on = node->routing == LNET_ROUTING_ON || node->routing == LNET_ROUTING_STARTING;
    int rc;

    if (relaxed_load(&node->stopping))
        return err_set(err, -EBUSY, "routing cannot be changed: the node stops");
    if (is_on == on)
        return 0;
    if (!node->started) { /* no reader yet */
        node->routing = on ? LNET_ROUTING_ON : LNET_ROUTING_OFF;
        return 0;
    }
    rc = begin(node, on);
    if (rc)
        err_text(err, "no memory");
    return rc;
}

/* ---- timing ---- */

static int check_seconds(const char *name, unsigned seconds, struct err *err)
{
    if (seconds <= SECONDS_MAX)
        return 0;
    return err_set(err, -EINVAL, "%s: %u s is too long, at most %u", name, seconds, SECONDS_MAX);
}

static void retime(struct lnet_node *node, bool arg)
{
    lnet_checks_retime(node);
}

static void store(struct lnet_node *node, const struct lnet_timing *set)
{
    if (set->check_interval)
        relaxed_store(&node->timing.check_interval, set->check_interval);
    if (set->ping_timeout)
        relaxed_store(&node->timing.ping_timeout, set->ping_timeout);
    if (set->max_interfaces)
        relaxed_store(&node->timing.max_interfaces, set->max_interfaces);
    relaxed_store(&node->timing.source_check, set->source_check);
    relaxed_store(&node->timing.rules.drop_asym_route, set->rules.drop_asym_route);
    relaxed_store(&node->timing.rules.ignore_far_side, set->rules.ignore_far_side);
    node->timing.rules.check_before_use = set->rules.check_before_use;
}

void lnet_timing_get(const struct lnet_node *node, struct lnet_timing *out)
{
    *out = node->timing;
}

int lnet_timing_set(struct lnet_node *node, const struct lnet_timing *set, struct err *err)
{
    const struct lnet_timing old = node->timing;
    int rc = check_seconds("check_interval", set->check_interval, err);

    if (!rc)
        rc = check_seconds("ping_timeout", set->ping_timeout, err);
    if (rc)
        return rc;
    if (set->source_check > LNET_SOURCE_OFF)
        return err_set(err, -EINVAL, "source_check: %d is not one of its values",
                       (int)set->source_check);
    store(node, set);
    if (!node->started || lnet_call_home(node, retime, false) == 0)
        return 0;
    store(node, &old);
    return err_set(err, -ENOMEM, "no memory");
}
