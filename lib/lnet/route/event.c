/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of gateways and routes that go down or come up again. Whether a gateway is alive depends
 * on its connections, which its own home sees, and on its pings, which the node's home sees. Only
 * the node's home compares the present state with the state that was reported last.
 */
#include "lib/lnet/route/route_internal.h"

#define BURST 64 /* routes looked at in one iteration of the reactor */

/* ---- routes (node home) ---- */

static void report_route(struct lnet_node *node, struct lnet_route *r)
{
    bool gw_down = r->gw->reported_down, down = gw_down || !relaxed_load(&r->up);
    struct lnet_node_event row = {.kind = down ? LNET_NODE_EV_ROUTE_DOWN : LNET_NODE_EV_ROUTE_UP,
                                  .net = r->net,
                                  .nid = r->gw->nid};

    if (r->reported_down == down)
        return;
    row.cause = gw_down || r->reported_by_gw ? r->gw->reported_cause : r->cause;
    relaxed_store(&r->reported_down, down);
    relaxed_store(&r->reported_by_gw, gw_down);
    lnet_node_event_post(node, &row);
}

static void report_some(struct reactor_task *task)
{
    struct lnet_route_events *t = container_of(task, struct lnet_route_events, task);
    struct lnet_node *node = container_of(t, struct lnet_routes, events)->node;
    const struct lnet_conf *c = lnet_conf_get(node);

    if (t->again || t->generation != c->generation)
        t->next = 0;
    t->again = false;
    t->generation = c->generation;
    for (unsigned n = 0; n < BURST && t->next < c->nroutes; n++)
        report_route(node, c->route[t->next++]);
    t->busy = t->next < c->nroutes;
    if (t->busy)
        reactor_post(lnet_node_home(node), task);
}

void lnet_routes_report(struct lnet_node *node)
{
    struct lnet_route_events *t = &node->routes->events;

    t->again = true;
    if (t->busy)
        return;
    t->busy = true;
    t->task.fn = report_some;
    reactor_post(lnet_node_home(node), &t->task);
}

/* ---- gateways ---- */

static void report_gateway(struct lnet_gw *gw, const char *cause)
{
    bool down = !lnet_gw_alive(gw);
    struct lnet_node_event row = {.kind =
                                      down ? LNET_NODE_EV_GATEWAY_DOWN : LNET_NODE_EV_GATEWAY_UP,
                                  .nid = gw->nid,
                                  .cause = cause};

    if (gw->reported_down == down)
        return;
    gw->reported_down = down;
    gw->reported_cause = cause;
    if (relaxed_load(&gw->routes) == 0)
        return;
    lnet_node_event_post(gw->node, &row);
    lnet_routes_report(gw->node);
}

void lnet_gw_ni_report(struct lnet_gw_ni *ni, const char *cause)
{
    const struct lnet_conf *c = lnet_conf_get(ni->node);

    for (unsigned i = 0; i < c->ngws_known; i++)
        for (unsigned k = 0; k < c->gw[i].nnis; k++)
            if (c->gw[i].ni[k].ni == ni)
                report_gateway(c->gw[i].gw, cause);
}

void lnet_gw_ni_changed_home(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, changed);

    /* A change from here on sends another message; earlier ones are seen now. */
    relaxed_store(&ni->change_mailed, false);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    lnet_gw_ni_report(ni, relaxed_load(&ni->lnd_cause));
}
