/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Once a second on the node's home: the status words that the ping info publishes
 * (docs/protocol/lnet-core.md §3.7) and the checks of our own gateways (§3.8).
 */
#include "lib/lnet/wire/ping.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US        1000000ull
#define CHECK_SINK_MAX 4096
#define CHECK_LOOKS    128     /* gateways looked at, */
#define CHECK_BURST    4       /* and checks begun at once, */
#define CHECK_GAP_US   1000ull /* then others have their turn */

uint64_t lnet_check_interval_us(const struct lnet_node *node)
{
    return relaxed_load(&node->timing.check_interval) * 1000000ull;
}

uint64_t lnet_ping_timeout_us(const struct lnet_node *node)
{
    return relaxed_load(&node->timing.ping_timeout) * 1000000ull;
}

/* ---- status of our NIs ---- */

static bool set_status(struct lnet_ni *ni, uint32_t status, const char *cause)
{
    struct lnet_event_row row = {.kind = status == LNET_NI_UP ? LNET_EV_NI_UP : LNET_EV_NI_DOWN,
                                 .nid = ni->nid,
                                 .cause = cause};

    if (ni->status == status)
        return false;
    relaxed_store(&ni->status, status);
    lnet_event_post(ni->node, &row);
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
    if (relaxed_load(&ni->removed))
        return false;
    net_alive(ni->node, ni->net, when_us);
    if (ni->fatal)
        return false;
    ni->pinged = true;
    return set_status(ni, LNET_NI_UP, cause);
}

void lnet_ping_seen(struct lnet_ni *ni)
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
        if (has_requests(conf->ni[i]))
            changed |= ni_reached(conf->ni[i], node->ticked_us, "message_received");
    return changed;
}

/* Publishes all NIDs of a net as DOWN when no peer has reached this node over it in time. */
static bool age_nets(struct lnet_node *node)
{
    uint64_t limit = lnet_check_interval_us(node) + lnet_ping_timeout_us(node);
    const struct lnet_conf *conf = lnet_conf_get(node);
    uint64_t now = reactor_now_us();
    bool changed = false;
    unsigned i;

    for (i = 0; i < conf->nnis; i++) {
        struct lnet_ni *ni = conf->ni[i];

        if (ni->fatal || (lnet_is_router(node) && now >= ni->alive_us + limit))
            changed |= set_status(ni, LNET_NI_DOWN, ni->fatal ? "link_down" : "not_pinged");
    }
    return changed;
}

/* ---- pings that pass through other reactors ---- */

static void pinged_home(struct reactor_task *task);

static void pinged_post(struct lnet_shard *s)
{
    struct lnet_pinged_mail *m = &s->pinged;

    memcpy(m->sent, m->pending, sizeof(m->sent));
    memset(m->pending, 0, sizeof(m->pending));
    m->busy = true;
    m->task.fn = pinged_home;
    reactor_post(lnet_node_home(s->node), &m->task);
}

static void pinged_back(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_shard, pinged.task);

    s->pinged.busy = false;
    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (s->pinged.sent[i])
            lnet_ni_put(s, s->node->ni[i]);
    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (s->pinged.pending[i]) {
            pinged_post(s);
            return;
        }
}

static void pinged_home(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_shard, pinged.task);

    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (s->pinged.sent[i])
            lnet_ping_seen(s->node->ni[i]);
    task->fn = pinged_back;
    reactor_post(s->reactor, task);
}

void lnet_ping_passing(struct lnet_shard *s, struct lnet_ni *ni)
{
    if (lnet_is_home(s->node)) {
        lnet_ping_seen(ni);
        return;
    }
    if (!s->pinged.pending[ni->index])
        lnet_ni_hold(s, ni);
    s->pinged.pending[ni->index] = true;
    if (!s->pinged.busy)
        pinged_post(s);
}

/* ---- link state ---- */

struct link_mail {
    struct lnet_ni *ni;
    bool up;
    struct reactor_task task;
};

/* A link that comes up does not set a router's NI up, that takes a ping GET (2.17; §16), unless it
 * is the first time and nobody has pinged it yet: then it is as at the start. A node that does not
 * route tells at once (§3.7 "A non-router"). */
static void link_home(struct reactor_task *task)
{
    struct link_mail *m = container_of(task, struct link_mail, task);
    struct lnet_ni *ni = m->ni;
    struct lnet_node *node = ni->node;
    bool changed = false, up = m->up;

    free(m);
    relaxed_store(&ni->fatal, !up);
    /* From the next loop on nothing of this mail points to the NI. */
    __atomic_store_n(&ni->links_heard, ni->links_heard + 1, __ATOMIC_RELEASE);
    if (relaxed_load(&ni->removed))
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

/* Rare, and told by whoever watches links, not by a data path: the mail is from the heap. */
void lnet_ni_link(struct lnet_ni *ni, bool up)
{
    struct link_mail *m;

    if (ni->link_up == up)
        return;
    m = malloc(sizeof(*m));
    if (!m)
        return;
    ni->link_up = up;
    count_add(&ni->links_told, 1);
    m->ni = ni;
    m->up = up;
    m->task.fn = link_home;
    reactor_post(lnet_node_home(ni->node), &m->task);
}

/* As at the start: nobody has had the time to ping it. A node that does not route has no net that
 * ages. */
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
    struct lnet_event_row row = {.kind = LNET_EV_NI_ADDED, .nid = ni->nid, .cause = "command"};

    lnet_event_post(ni->node, &row);
    if (ni->fatal)
        set_status(ni, LNET_NI_DOWN, "link_down");
    lnet_ping_changed(ni->node);
}

/* ---- our gateways ---- */

struct lnet_gw_check {
    struct lnet_ping_op op;
    struct lnet_gw *gw;
    bool leaving; /* to be freed when it has ended */
    uint32_t seen_wanted;
    unsigned failures; /* in a row */
    uint64_t next_us;
    uint32_t sink;
    uint8_t data[CHECK_SINK_MAX];
};

/* A router PUSHes a link that went down within a second: its routes need not take messages to their
 * loss until the next check (§16 on §3.7). */
void lnet_gw_pushed(struct lnet_node *node, const struct lnet_nid *nid,
                    const struct lnet_ping_info *info)
{
    struct lnet_gw *gw = lnet_gw_find(node, nid);

    if (gw && !info->truncated) /* half of it judges nothing */
        lnet_judge_routes(gw, info, true);
}

static void gw_down(struct lnet_gw *gw, const char *cause)
{
    relaxed_store(&gw->ping_down_us, reactor_now_us());
    relaxed_store(&gw->ping_down, true);
    lnet_gw_tell(gw, cause);
}

/* A gateway that does not answer is asked again after 1 s, 2 s, 4 s … up to the interval: it costs
 * little, and its routes come back soon after it does. */
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
        lnet_gw_judged(c->gw);
    else if (op->status == 0)
        c->failures = 0;
    else if (op->status != -ESHUTDOWN) /* our end says nothing about the gateway */
        check_failed(c);
}

static void check_answered(struct lnet_ping_op *op, const struct lnet_ping_info *info)
{
    struct lnet_gw_check *c = container_of(op, struct lnet_gw_check, op);

    if (info->truncated && c->sink < CHECK_SINK_MAX) {
        c->sink *= 2;
        if (info->full_size > c->sink)
            c->sink = info->full_size;
        if (c->sink > CHECK_SINK_MAX)
            c->sink = CHECK_SINK_MAX;
        c->next_us = 0; /* once more with room for all of it, §3.4; half of it judges nothing */
        return;
    }
    relaxed_store(&c->gw->ping_down, false);
    lnet_gw_tell(c->gw, "ping_answered");
    lnet_judge_routes(c->gw, info, false);
}

/* The routes go down now; the check ends only when the network driver lets go of its GET. */
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
    if (lnet_judge_new(gw)) {
        free(c);
        return -ENOMEM;
    }
    c->gw = gw;
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

    if (!c->op.running && !lnet_judge_busy(gw))
        return true;
    c->leaving = true;
    lnet_ping_op_cancel(&c->op); /* may complete the check before it returns */
    return false;
}

void lnet_gw_judged(struct lnet_gw *gw)
{
    struct lnet_gw_check *c = gw->check;

    if (!c->leaving || c->op.running || lnet_judge_busy(gw))
        return;
    c->leaving = false; /* once */
    lnet_gw_leave(gw);
}

static bool is_due(const struct lnet_gw *gw, uint64_t now)
{
    const struct lnet_gw_check *c = gw->check;

    return !c->op.running && (now >= c->next_us || relaxed_load(&gw->wanted) != c->seen_wanted);
}

/* Goes through all gateways once, and sends to those that are due; not more at a time than a
 * reactor has time for. */
static void check_gateways(struct reactor_timer *t)
{
    struct lnet_node *node = container_of(t, struct lnet_node, gw_timer);
    const struct lnet_conf *conf = lnet_conf_get(node);
    uint64_t now = reactor_now_us();
    unsigned looks = 0, begun = 0;

    for (; node->gw_next < conf->ngws; node->gw_next++) {
        struct lnet_gw *gw = conf->gw[node->gw_next].gw;
        uint32_t wanted = relaxed_load(&gw->wanted);

        if (looks++ == CHECK_LOOKS || begun == CHECK_BURST) {
            reactor_timer_arm(t, CHECK_GAP_US);
            return;
        }
        if (!is_due(gw, now))
            continue;
        if (wanted != gw->check->seen_wanted)
            lnet_routes_tell(node); /* a new one, perhaps of a gateway that is down */
        gw->check->seen_wanted = wanted;
        check_begin(gw->check);
        begun++;
    }
    node->gw_next = 0;
}

/* ---- tick ---- */

static void tick(struct reactor_timer *t)
{
    struct lnet_node *node = container_of(t, struct lnet_node, tick);

    bool changed = look_for_messages(node);

    changed |= age_nets(node);
    node->ticked_us = reactor_now_us();
    if (changed)
        status_changed(node);
    if (!reactor_timer_armed(&node->gw_timer))
        check_gateways(&node->gw_timer);
    reactor_timer_arm(t, TICK_US);
}

void lnet_monitor_start(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);

    for (unsigned i = 0; i < conf->nnis; i++)
        conf->ni[i]->alive_us = reactor_now_us();
    node->ticked_us = reactor_now_us();
    reactor_timer_init(&node->tick, tick);
    reactor_timer_init(&node->gw_timer, check_gateways);
    check_gateways(&node->gw_timer);
    reactor_timer_arm(&node->tick, TICK_US);
}

void lnet_monitor_stop(struct lnet_node *node)
{
    reactor_timer_cancel(&node->tick);
    reactor_timer_cancel(&node->gw_timer);
}
