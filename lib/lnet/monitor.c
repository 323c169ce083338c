/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Once a second on the node's home: the status words that the ping info publishes
 * (docs/protocol/lnet-core.md §3.7) and the checks of our own gateways (§3.8).
 */
#include "lib/lnet/ping.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US          1000000ull
#define CHECK_SINK_MAX   4096
#define INTERVAL_DEFAULT 60
#define TIMEOUT_DEFAULT  50

uint64_t lnet_check_interval_us(const struct lnet_node *node)
{
    return (node->opts.check_interval ? node->opts.check_interval : INTERVAL_DEFAULT) * 1000000ull;
}

uint64_t lnet_ping_timeout_us(const struct lnet_node *node)
{
    return (node->opts.ping_timeout ? node->opts.ping_timeout : TIMEOUT_DEFAULT) * 1000000ull;
}

/* ---- status of our NIs ---- */

static bool set_status(struct lnet_ni *ni, uint32_t status)
{
    if (ni->status == status)
        return false;
    shared_set(&ni->status, status);
    return true;
}

static void status_changed(struct lnet_node *node)
{
    /* When no buffer is free, target_put() in ping.c does both once there is one. */
    if (lnet_ping_republish(node))
        lnet_ping_push_all(node, true);
}

void lnet_ping_seen(struct lnet_node *node, unsigned index)
{
    struct lnet_ni *ni = node->ni[index];

    if (shared_get(&ni->removed))
        return;
    lnet_net_find(node, ni->net)->alive_us = reactor_now_us();
    if (ni->fatal)
        return;
    ni->pinged = true;
    if (set_status(ni, LNET_NI_UP))
        status_changed(node);
}

/* A net that nobody pings is of no use to anybody: all its NIDs are published DOWN. */
static bool age_nets(struct lnet_node *node)
{
    uint64_t limit = lnet_check_interval_us(node) + lnet_ping_timeout_us(node);
    uint64_t now = reactor_now_us();
    bool changed = false;
    unsigned i, k;

    for (i = 0; i < node->nnets; i++)
        for (k = 0; k < node->net[i]->nni; k++) {
            struct lnet_ni *ni = node->ni[node->net[i]->ni[k]];

            if (shared_get(&ni->removed))
                continue;
            if (ni->fatal || (node->opts.routing && now >= node->net[i]->alive_us + limit))
                changed |= set_status(ni, LNET_NI_DOWN);
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
    unsigned i;

    s->pinged.busy = false;
    for (i = 0; i < s->node->nnis; i++)
        if (s->pinged.pending[i]) {
            pinged_post(s);
            return;
        }
}

static void pinged_home(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_shard, pinged.task);
    unsigned i;

    for (i = 0; i < s->node->nnis; i++)
        if (s->pinged.sent[i])
            lnet_ping_seen(s->node, i);
    task->fn = pinged_back;
    reactor_post(s->reactor, task);
}

void lnet_ping_passing(struct lnet_shard *s, struct lnet_ni *ni)
{
    if (lnet_is_home(s->node)) {
        lnet_ping_seen(s->node, ni->index);
        return;
    }
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
    bool changed = false;

    shared_set(&ni->fatal, !m->up);
    if (shared_get(&ni->removed)) {
        free(m);
        return;
    }
    if (!m->up)
        changed = set_status(ni, LNET_NI_DOWN);
    else if (!node->opts.routing || !ni->pinged)
        changed = set_status(ni, LNET_NI_UP);
    if (m->up && changed)
        lnet_net_find(node, ni->net)->alive_us = reactor_now_us();
    free(m);
    if (node->opts.routing) {
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
    m->ni = ni;
    m->up = up;
    m->task.fn = link_home;
    reactor_post(lnet_node_home(ni->node), &m->task);
}

/* ---- our gateways ---- */

struct lnet_gw_check {
    struct lnet_gw *gw;
    bool busy;
    uint32_t seen_wanted;
    unsigned failures; /* in a row */
    uint64_t next_us;
    uint32_t sink;
    int status;
    struct reactor_timer timer;
    struct lnet_eq eq;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[CHECK_SINK_MAX];
};

static bool net_listed(const struct lnet_ping_info *info, lnet_net_t net, bool *up)
{
    bool listed = false;
    unsigned i;

    *up = false;
    for (i = 0; i < info->count; i++)
        if (nid_net(&info->ni[i].nid) == net) {
            listed = true;
            *up |= info->ni[i].status == LNET_NI_UP;
        }
    return listed;
}

/* §3.8 "Cached flag from a ping reply", with avoid_asym_router_failure on. */
static void judge_route(struct lnet_route *r, const struct lnet_ping_info *info)
{
    bool remote_up, local_up, single;

    net_listed(info, nid_net(&r->gw->nid), &local_up);
    single = net_listed(info, r->net, &remote_up);
    shared_set(&r->single_hop, single);
    if ((info->features & LNET_PING_RTE_DISABLED) || !local_up)
        shared_set(&r->up, false);
    else
        shared_set(&r->up, r->hops == 1 || single ? remote_up : true);
}

static void judge_routes(const struct lnet_gw *gw, const struct lnet_ping_info *info)
{
    const struct lnet_conf *conf = lnet_conf_get(gw->node);
    unsigned i;

    for (i = 0; i < conf->nroutes; i++)
        if (conf->route[i]->gw == gw)
            judge_route(conf->route[i], info);
}

/* A router PUSHes a link that went down within a second: its routes need not take messages to their
 * loss until the next check (§16 on §3.7). */
void lnet_gw_pushed(struct lnet_node *node, const struct lnet_nid *nid,
                    const struct lnet_ping_info *info)
{
    const struct lnet_gw *gw = lnet_gw_find(node, nid);

    if (gw && !info->truncated) /* half of it judges nothing */
        judge_routes(gw, info);
}

static void gw_down(struct lnet_gw *gw)
{
    shared_set(&gw->ping_down_us, reactor_now_us());
    shared_set(&gw->ping_down, true);
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
    gw_down(gw);
}

static void check_end(struct lnet_gw_check *c)
{
    reactor_timer_cancel(&c->timer);
    c->busy = false;
    if (c->status)
        check_failed(c);
    else
        c->failures = 0;
}

static void check_reply(struct lnet_gw_check *c, uint32_t len)
{
    struct lnet_ping_info *info = &c->gw->node->ping->scratch;
    enum lnet_drop why = lnet_ping_decode(c->data, len, info);

    c->status = why ? -EPROTO : 0;
    if (why) {
        lnet_drop_event(c->gw->node, why, NULL, &c->gw->nid, NULL);
        return;
    }
    if (info->truncated && c->sink < CHECK_SINK_MAX) {
        c->sink *= 2;
        if (info->full_size > c->sink)
            c->sink = info->full_size;
        if (c->sink > CHECK_SINK_MAX)
            c->sink = CHECK_SINK_MAX;
        c->next_us = 0; /* once more with room for all of it, §3.4; half of it judges nothing */
        return;
    }
    shared_set(&c->gw->ping_down, false);
    judge_routes(c->gw, info);
}

static void check_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct lnet_gw_check *c = md->user;

    if (ev->type == LNET_EVENT_REPLY && ev->status == 0)
        check_reply(c, ev->mlength);
    else if (ev->type == LNET_EVENT_REPLY && c->status == -EINPROGRESS)
        c->status = -EIO;
    if (ev->type == LNET_EVENT_SEND && ev->status != 0 && c->status == -EINPROGRESS)
        c->status = -EHOSTUNREACH;
    if (ev->unlinked)
        check_end(c);
    else if (c->status != -EINPROGRESS && ev->type != LNET_EVENT_UNLINK)
        lnet_md_unlink(md);
}

static void check_timeout(struct reactor_timer *t)
{
    struct lnet_gw_check *c = container_of(t, struct lnet_gw_check, timer);
    struct lnet_node *node = c->gw->node;

    count_add(&lnet_shard_self(node)->stats[LNET_STAT_RESPONSE_TIMEOUT_COUNT], 1);
    c->status = -ETIMEDOUT;
    gw_down(c->gw); /* now: the check ends only when the network driver lets go of its GET */
    lnet_md_unlink(&c->md);
}

static void check_begin(struct lnet_gw_check *c)
{
    struct lnet_node *node = c->gw->node;

    c->seg = (struct mem_seg){.addr = c->data, .len = c->sink, .region = MEM_REGION_NONE};
    memset(&c->md, 0, sizeof(c->md));
    c->md.segs = &c->seg;
    c->md.nsegs = 1;
    c->md.length = c->sink;
    c->md.options = LNET_MD_TRUNCATE;
    c->md.threshold = 2;
    c->md.eq = &c->eq;
    c->md.user = c;
    c->status = -EINPROGRESS;
    c->busy = true;
    c->next_us = reactor_now_us() + lnet_check_interval_us(node);
    reactor_timer_arm(&c->timer, lnet_ping_timeout_us(node));
    if (lnet_md_bind(node, &c->md) || lnet_get(&c->md, NULL, &c->gw->nid, LNET_PID_LUSTRE,
                                               LNET_RESERVED_PORTAL, LNET_PING_MATCH_BITS, 0)) {
        c->status = -EHOSTUNREACH;
        lnet_md_unlink(&c->md);
    }
}

int lnet_gw_check_new(struct lnet_node *node, struct lnet_gw *gw)
{
    struct lnet_gw_check *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->gw = gw;
    c->sink = LNET_PING_MIN_SINK;
    c->eq.fn = check_event;
    reactor_timer_init(&c->timer, check_timeout);
    gw->check = c;
    return 0;
}

void lnet_gw_check_soon(struct lnet_gw *gw)
{
    shared_set(&gw->wanted, gw->wanted + 1);
}

static void check_gateways(struct lnet_node *node)
{
    unsigned i, n = __atomic_load_n(&node->ngws, __ATOMIC_ACQUIRE);
    uint64_t now = reactor_now_us();

    for (i = 0; i < n; i++) {
        struct lnet_gw *gw = node->gw[i];
        struct lnet_gw_check *c = gw->check;
        uint32_t wanted = shared_get(&gw->wanted);

        if (c->busy || shared_get(&gw->routes) == 0 ||
            (now < c->next_us && wanted == c->seen_wanted))
            continue;
        c->seen_wanted = wanted;
        check_begin(c);
    }
}

/* ---- tick ---- */

static void tick(struct reactor_timer *t)
{
    struct lnet_node *node = container_of(t, struct lnet_node, tick);

    if (age_nets(node))
        status_changed(node);
    check_gateways(node);
    reactor_timer_arm(t, TICK_US);
}

void lnet_monitor_start(struct lnet_node *node)
{
    unsigned i;

    for (i = 0; i < node->nnets; i++)
        node->net[i]->alive_us = reactor_now_us();
    reactor_timer_init(&node->tick, tick);
    check_gateways(node);
    reactor_timer_arm(&node->tick, TICK_US);
}

void lnet_monitor_stop(struct lnet_node *node)
{
    unsigned i;

    reactor_timer_cancel(&node->tick);
    for (i = 0; i < node->ngws; i++) {
        struct lnet_gw_check *c = node->gw[i]->check;

        if (c->busy && c->status == -EINPROGRESS) {
            c->status = 0; /* our end says nothing about the gateway */
            lnet_md_unlink(&c->md);
        }
    }
}
