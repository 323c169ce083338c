/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The status of each NI that the ping info publishes, looked at once a second on the node's home.
 * docs/protocol/lnet-core.md §3.7.
 */
#include "lib/lnet/ping/ping_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US    1000000ull
#define UNHEARD_US 5000000ull /* for the answers to pings of an NI that is not healthy */

/* ---- status of our NIs ---- */

static bool set_status(struct lnet_ni *ni, uint32_t status, const char *cause)
{
    struct lnet_node_event row = {.kind = status == LNET_NI_UP ? LNET_NODE_EV_NI_UP
                                                               : LNET_NODE_EV_NI_DOWN,
                                  .nid = ni->nid,
                                  .cause = cause};

    if (ni->status == status)
        return false;
    relaxed_store(&ni->status, status);
    lnet_node_event_post(ni->node, &row);
    return true;
}

static void status_changed(struct lnet_node *node)
{
    /* When no buffer is free, target_put() in ping.c does both once there is one. */
    if (lnet_ping_republish(node))
        lnet_ping_push_all(node, true);
}

static void net_alive(struct lnet_node *node, lnet_net_t net, uint64_t when_us)
{
    const struct lnet_conf_net *n = lnet_net_find(node, net);

    for (unsigned i = 0; n && i < n->nni; i++)
        if (n->ni[i]->alive_us < when_us)
            n->ni[i]->alive_us = when_us;
}

/* A peer has reached this node over the NI. Returns whether the NI's status changed. */
static bool ni_reached(struct lnet_ni *ni, uint64_t when_us, const char *cause)
{
    if (!lnet_ni_is_active(ni))
        return false;
    net_alive(ni->node, ni->net, when_us);
    if (ni->fatal)
        return false;
    ni->pinged = true;
    return set_status(ni, LNET_NI_UP, cause);
}

static void ping_seen(struct lnet_ni *ni)
{
    if (ni_reached(ni, reactor_now_us(), "pinged"))
        status_changed(ni->node);
}

/* Returns whether peers have sent PUTs or GETs over the NI since the last call. Answers do not
 * count: peers acknowledge the PUSH that says that the NI is down, which would raise it again. */
static bool has_requests(struct lnet_ni *ni)
{
    uint64_t before = ni->requests;

    ni->requests = lnet_ni_requests(ni->node, ni->index);
    return ni->requests != before;
}

/* A peer may send data for minutes without a ping. A kernel router counts only ping GETs, and the
 * routes through it then go down although they work. The messages came after the last tick. */
static bool look_for_messages(const struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    bool changed = false;

    for (unsigned i = 0; lnet_is_router(node) && i < conf->nnis; i++)
        if (has_requests(conf->ni[i]) && conf->ni[i]->health > 0)
            changed |= ni_reached(conf->ni[i], node->ping->ticked_us, "message_received");
    return changed;
}

/* Returns whether no peer has reached this node over the NI's net in time. */
static bool is_aged(const struct lnet_ni *ni)
{
    uint64_t limit = lnet_check_interval_us(ni->node) + lnet_ping_timeout_us(ni->node);

    return lnet_is_router(ni->node) && reactor_now_us() >= ni->alive_us + limit;
}

/* Publishes all NIDs of a net as DOWN when no peer has reached this node over it in time. */
static bool age_nets(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    bool changed = false;
    unsigned i;

    for (i = 0; i < conf->nnis; i++) {
        struct lnet_ni *ni = conf->ni[i];

        if (ni->fatal || is_aged(ni))
            changed |= set_status(ni, LNET_NI_DOWN, ni->fatal ? "link_down" : "not_pinged");
    }
    return changed;
}

/* An NI is down at health 0 and up again at full health (2.17). Peers see it with their next ping,
 * for this alone is not pushed (§3.7). */
void lnet_ni_health_changed(struct lnet_ni *ni)
{
    if (!ni->recovering)
        relaxed_store(&ni->heard_us, reactor_now_us());
    lnet_recovery_ni(ni);
    if (lnet_ni_is_active(ni) && ni->health == LNET_MAX_HEALTH && !ni->fatal && !is_aged(ni) &&
        set_status(ni, LNET_NI_UP, "healthy"))
        lnet_ping_republish(ni->node);
}

/* A silent neighbour lowers the health of the NI, too (§6.2 row 10), and any node can have messages
 * sent to some. So the NI is down only when nothing comes in by it, though it pings others. */
static void look_at_health(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    uint64_t now = reactor_now_us();
    bool changed = false;

    for (unsigned i = 0; i < conf->nnis; i++) {
        struct lnet_ni *ni = conf->ni[i];

        if (ni->health == 0 && now - ni->heard_us >= UNHEARD_US)
            changed |= set_status(ni, LNET_NI_DOWN, "not_healthy");
    }
    if (changed)
        lnet_ping_republish(node);
}

/* ---- pings that pass through other reactors ---- */

static void pinged_home(struct reactor_task *task);

static struct lnet_pinged_mail *pinged_of(const struct lnet_shard *s)
{
    return &s->node->ping->pinged[s->index];
}

static void pinged_post(struct lnet_shard *s)
{
    struct lnet_pinged_mail *m = pinged_of(s);

    m->shard = s;
    memcpy(m->sent, m->pending, sizeof(m->sent));
    memset(m->pending, 0, sizeof(m->pending));
    m->busy = true;
    m->task.fn = pinged_home;
    reactor_post(lnet_node_home(s->node), &m->task);
}

static void pinged_back(struct reactor_task *task)
{
    struct lnet_pinged_mail *m = container_of(task, struct lnet_pinged_mail, task);
    struct lnet_shard *s = m->shard;

    m->busy = false;
    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (m->sent[i])
            lnet_ni_put(s, s->node->ni[i]);
    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (m->pending[i]) {
            pinged_post(s);
            return;
        }
}

static void pinged_home(struct reactor_task *task)
{
    struct lnet_pinged_mail *m = container_of(task, struct lnet_pinged_mail, task);

    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (m->sent[i])
            ping_seen(m->shard->node->ni[i]);
    task->fn = pinged_back;
    reactor_post(m->shard->reactor, task);
}

void lnet_ping_seen(struct lnet_shard *s, struct lnet_ni *ni)
{
    struct lnet_pinged_mail *m;

    if (lnet_is_home(s->node)) {
        ping_seen(ni);
        return;
    }
    m = pinged_of(s);
    if (!m->pending[ni->index])
        lnet_ni_hold(s, ni);
    m->pending[ni->index] = true;
    if (!m->busy)
        pinged_post(s);
}

/* ---- link state ---- */

/* A link that comes up does not set a router's NI up: that takes a message of a peer (2.17; §16).
 * The exception is an NI that no peer has reached yet, which is as at the start. A node that does
 * not route publishes the change at once (§3.7 "A non-router"). */
void lnet_link_changed(struct lnet_ni *ni, bool up)
{
    struct lnet_node *node = ni->node;
    bool changed = false;

    relaxed_store(&ni->fatal, !up);
    if (!lnet_ni_is_active(ni))
        return;
    (void)has_requests(ni); /* those until now came before the link changed */
    if (!up)
        changed = set_status(ni, LNET_NI_DOWN, "link_down");
    else if (!lnet_is_router(node) || !ni->pinged)
        changed = set_status(ni, LNET_NI_UP, "link_up");
    if (up && changed)
        net_alive(node, ni->net, reactor_now_us());
    if (lnet_is_router(node)) {
        if (changed)
            status_changed(node);
        return;
    }
    node->ping->seqno++;
    if (lnet_ping_republish(node))
        lnet_ping_push_all(node, false);
}

/* Ages begin anew when the node begins to route, as at its start. Without routing no net ages. */
void lnet_routing_changed(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);

    for (unsigned i = 0; i < conf->nnis; i++) {
        if (relaxed_load(&node->routing) == LNET_ROUTING_STARTING)
            conf->ni[i]->alive_us = reactor_now_us();
        if (!lnet_is_router(node) && !conf->ni[i]->fatal)
            set_status(conf->ni[i], LNET_NI_UP, "routing_off");
    }
}

/* Its link may have told before it was listed. */
void lnet_ni_listed(struct lnet_ni *ni)
{
    struct lnet_node_event row = {
        .kind = LNET_NODE_EV_NI_ADDED, .nid = ni->nid, .cause = "command"};

    lnet_node_event_post(ni->node, &row);
    if (ni->fatal)
        set_status(ni, LNET_NI_DOWN, "link_down");
    lnet_ping_changed(ni->node);
}

/* ---- tick ---- */

static void tick(struct reactor_timer *t)
{
    struct lnet_ping *p = container_of(t, struct lnet_ping, tick);
    struct lnet_node *node = p->node;
    bool changed = look_for_messages(node);

    changed |= age_nets(node);
    p->ticked_us = reactor_now_us();
    if (changed)
        status_changed(node);
    lnet_discover_make_room(p);
    look_at_health(node);
    lnet_recovery_tick(node);
    reactor_timer_arm(t, TICK_US);
}

void lnet_monitor_start(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);

    for (unsigned i = 0; i < conf->nnis; i++)
        conf->ni[i]->alive_us = reactor_now_us();
    node->ping->ticked_us = reactor_now_us();
    reactor_timer_init(&node->ping->tick, tick);
    reactor_timer_arm(&node->ping->tick, TICK_US);
}

void lnet_monitor_stop(struct lnet_node *node)
{
    reactor_timer_cancel(&node->ping->tick);
}
