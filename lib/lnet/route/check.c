/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of this node's gateways with pings, once per check interval and sooner while a gateway
 * does not answer. docs/protocol/lnet-core.md §3.8. Node home.
 *
 * Each check pings the peer NI that a message would go to, from the NI that it would leave by. A
 * check that fails takes those peer NIs out of use that no message came from since it began. An NI
 * of ours and a peer NI are a pair. As long as a gateway is alive, pairs that do not work and NIDs
 * that never answered are pinged beside the checks, each peer NI with a back-off. Such a ping that
 * fails takes nothing else out of use.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/route/route_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US      1000000ull
#define RECOVER_US   5000000ull /* for the answer of a pair that is tried */
#define CHECK_LOOKS  128        /* gateways looked at, */
#define CHECK_BURST  4          /* and checks begun in one part */
#define CHECK_GAP_US 1000ull    /* between two parts */

/* A gateway pushes a link that went down within a second, so that its routes lose no messages until
 * the next check (§16 on §3.7). */
void lnet_gw_pushed(struct lnet_gw_ni *ni, const struct lnet_ping_info *info)
{
    const struct lnet_conf *conf = lnet_conf_get(ni->node);

    if (info->truncated) /* a part says too little of the routes */
        return;
    for (unsigned i = 0; i < conf->ngws_known; i++)
        for (unsigned k = 0; k < conf->gw[i].nnis; k++)
            if (conf->gw[i].ni[k].ni == ni)
                lnet_evaluate_routes(conf->gw[i].gw->check, info, true);
}

/* The peer NI that was pinged; NULL: it is no gateway's any more. */
static struct lnet_gw_ni *pinged(const struct lnet_gw_ping *g)
{
    return lnet_gw_ni_find(g->check->gw->node, &g->op.target);
}

/* §3.8: a check that fails takes all of the gateway out of use, but for peer NIs that a message
 * came from meanwhile. A rail that fails is the LND's to report. */
static void gw_down(const struct lnet_gw_check *c, const char *cause)
{
    const struct lnet_conf_gw *g = lnet_conf_gateway(lnet_conf_get(c->gw->node), c->gw);
    const struct lnet_gw_ni *target = pinged(&c->alive);
    uint64_t now = reactor_now_us();

    if (!g || !target)
        return;
    for (unsigned i = 0; i < g->nnis; i++)
        if (g->ni[i].ni == target || relaxed_load(&g->ni[i].ni->message_us) < c->alive.begun_us)
            relaxed_store(&g->ni[i].ni->ping_down_us, now);
    for (unsigned i = 0; i < g->nnis; i++) /* others may have the same peer NIs */
        lnet_gw_ni_report(g->ni[i].ni, cause);
}

/* On the home of the NID. */
static void pairs_failed(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, fail);

    __atomic_store_n(&ni->fail_mailed, false, __ATOMIC_SEQ_CST);
    lnet_gw_ni_pairs(ni, __atomic_exchange_n(&ni->fail_pairs, 0, __ATOMIC_SEQ_CST), false,
                     relaxed_load(&ni->fail_cause));
}

static void pairs_fail(struct lnet_gw_ni *ni, uint64_t pairs, const char *cause)
{
    relaxed_store(&ni->fail_cause, cause);
    (void)__atomic_fetch_or(&ni->fail_pairs, pairs, __ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&ni->fail_mailed, true, __ATOMIC_SEQ_CST))
        return;
    ni->fail.fn = pairs_failed;
    reactor_post(lnet_nid_home(ni->node, &ni->nid), &ni->fail);
}

/* A pair that does not work still does not, even if its connection came up meanwhile. */
static void pair_failed(const struct lnet_gw_ping *g)
{
    struct lnet_gw_ni *ni = pinged(g);

    if (ni)
        pairs_fail(ni, g->pair, "ping_failed");
}

/* Pings what does not answer again after 1 s, 2 s, 4 s … up to the interval, so that routes come
 * back soon after the gateway does. */
static uint64_t next_after(const struct lnet_gw_check *c, unsigned *failures)
{
    uint64_t interval = lnet_check_interval_us(c->gw->node);
    uint64_t wait = *failures < 6 ? TICK_US << *failures : interval;

    ++*failures;
    return reactor_now_us() + min(wait, interval);
}

static void check_failed(struct lnet_gw_check *c)
{
    if (c->alive.op.status != -ETIMEDOUT) /* else ping_late() has said so */
        gw_down(c, "ping_failed");
    if (lnet_gw_alive(c->gw))
        c->next_us = 0; /* another peer NI */
    else
        c->next_us = next_after(c, &c->failures);
}

static void ping_failed(struct lnet_gw_ping *g)
{
    peer_table_silent(g->check->gw->node->peers, &g->op.target, reactor_now_us());
    if (g->kind == LNET_CHECK_PAIR && g->op.status != -ETIMEDOUT)
        pair_failed(g);
    else if (g->kind == LNET_CHECK_GATEWAY)
        check_failed(g->check);
}

static void ping_done(struct lnet_ping_op *op)
{
    struct lnet_gw_ping *g = container_of(op, struct lnet_gw_ping, op);

    if (g->kind == LNET_CHECK_GATEWAY)
        relaxed_store(&g->check->gw->checked, true);
    if (g->check->leaving)
        lnet_gw_check_idle(g->check);
    else if (op->status == 0 && g->kind == LNET_CHECK_GATEWAY)
        g->check->failures = 0;
    else if (op->status != 0 &&
             op->status != -ESHUTDOWN) /* a cancelled ping says nothing about the gateway */
        ping_failed(g);
}

static void ping_answered(struct lnet_ping_op *op, const struct lnet_ping_info *info)
{
    struct lnet_gw_ping *g = container_of(op, struct lnet_gw_ping, op);
    struct lnet_gw_check *c = g->check;
    struct lnet_gw_ni *ni = pinged(g);

    if (!lnet_gw_proves(c->gw, &op->target, info)) {
        c->next_us = g->kind == LNET_CHECK_GATEWAY ? 0 : c->next_us; /* another node's info */
        return;
    }
    if (g->kind == LNET_CHECK_NID)
        return;
    if (info->truncated && c->sink < LNET_GW_SINK_MAX) {
        c->sink = min(max(2 * c->sink, info->full_size), (uint32_t)LNET_GW_SINK_MAX);
        c->next_us = 0; /* pings again with room for the whole info, §3.4 */
        return;
    }
    if (ni) {
        relaxed_store(&ni->ping_down_us, 0);
        lnet_gw_ni_report(ni, "ping_answered");
    }
    if (g->kind == LNET_CHECK_PAIR && ni && g->progress) { /* the next pair of it, soon */
        ni->tries = 0;
        ni->next_try_us = reactor_now_us() + TICK_US;
    }
    lnet_evaluate_routes(c, info, false);
    /* Last, as a discovery decodes into the place of info. */
    lnet_discover_replied(c->gw->node, &op->target);
}

/* The routes go down now; the ping ends only when the LND has released its GET. */
static void ping_late(struct lnet_ping_op *op)
{
    struct lnet_gw_ping *g = container_of(op, struct lnet_gw_ping, op);

    if (op->status && g->kind == LNET_CHECK_GATEWAY)
        gw_down(g->check, "ping_timeout");
    else if (op->status && g->kind == LNET_CHECK_PAIR)
        pair_failed(g);
}

static const struct lnet_ping_kind ping_kind = {
    .count_timeout = true, .answered = ping_answered, .late = ping_late, .done = ping_done};

static void ping(struct lnet_gw_ping *g, enum lnet_check_kind kind, const struct lnet_nid *to,
                 const struct lnet_ni *from)
{
    uint64_t timeout_us = lnet_ping_timeout_us(g->check->gw->node);

    g->kind = kind;
    g->pair = from ? lnet_ni_bit(from) : 0;
    g->begun_us = reactor_now_us();
    g->op.target = *to;
    if (pinged(g))
        pinged(g)->pinged_us = g->begun_us;
    lnet_ping_op_start(&g->op, from ? &from->nid : &LNET_NID_ANY, g->data, g->check->sink,
                       kind == LNET_CHECK_GATEWAY ? timeout_us : min(timeout_us, RECOVER_US));
}

static void check_begin(struct lnet_gw_check *c)
{
    struct lnet_node *node = c->gw->node;
    struct lnet_path path = {.next_hop = c->gw->nid};

    (void)lnet_select_gateway(lnet_shard_self(node), c->gw, &path);
    c->next_us = reactor_now_us() + lnet_check_interval_us(node);
    ping(&c->alive, LNET_CHECK_GATEWAY, &path.next_hop, path.ni);
}

/* ---- pairs of NIs that do not work, and NIDs that are not proved ---- */

/* Returns the NIs, by their bits, that do not work with a peer NI. A gateway says that its NI is up
 * again once it was pinged (§3.7). */
static uint64_t to_try(const struct lnet_conf_gw_ni *g)
{
    uint64_t down = relaxed_load(&g->ni->pairs_down), bits = 0;

    if (relaxed_load(&g->ni->ping_down_us) ||
        (g->gw->nnis > 1 && relaxed_load(&g->ni->status_down)))
        down = UINT64_MAX;
    for (unsigned i = 0; down && g->net && i < g->net->nni; i++)
        if (!relaxed_load(&g->net->ni[i]->fatal))
            bits |= down & lnet_ni_bit(g->net->ni[i]);
    return bits;
}

/* Whether something that does not work is due, by its back-off. That begins anew only after
 * progress, or when nothing was wrong for a whole interval: a status or a list that changes back
 * and forth brings no more pings. */
static bool try_due(const struct lnet_gw_check *c, bool wrong, unsigned *tries, uint64_t next_us)
{
    uint64_t now = reactor_now_us();

    if (!wrong && now >= next_us + lnet_check_interval_us(c->gw->node))
        *tries = 0;
    return wrong && now >= next_us;
}

/* Whether the LND still has the GET of a ping that was not answered in time. */
static bool is_late(const struct lnet_ping_op *op)
{
    return op->running && op->status != -EINPROGRESS;
}

/* Pings a pair of a peer NI, a different one each time. */
static bool try_pair(struct lnet_gw_check *c, const struct lnet_conf_gw_ni *g)
{
    struct lnet_gw_ni *ni = g->ni;
    uint64_t bits = to_try(g);
    unsigned turn;

    if (c->alive.op.running && nid_same(&c->alive.op.target, &ni->nid)) /* the check says it */
        bits &= is_late(&c->alive.op) ? ~c->alive.pair : 0;
    if (!try_due(c, bits != 0, &ni->tries, ni->next_try_us))
        return false;
    turn = ni->turn++ % g->net->nni;
    for (unsigned i = 0; i < g->net->nni; i++) {
        const struct lnet_ni *from = g->net->ni[(turn + i) % g->net->nni];

        if (!(bits & lnet_ni_bit(from)))
            continue;
        ni->next_try_us = next_after(c, &ni->tries);
        c->other.progress =
            relaxed_load(&ni->ping_down_us) || relaxed_load(&ni->pairs_down) & lnet_ni_bit(from);
        ping(&c->other, LNET_CHECK_PAIR, &ni->nid, from);
        return true;
    }
    return false;
}

/* Pings a NID that the gateway lists and that never answered, a different one each time. */
static bool try_nid(struct lnet_gw_check *c)
{
    struct lnet_nid nid;
    struct lnet_path path;
    const struct lnet_route *route;
    bool is = lnet_gw_nid_unproved(c->gw, c->prove.turn, &nid);

    if (!try_due(c, is, &c->prove.tries, c->prove.next_us))
        return false;
    c->prove.turn++;
    c->prove.next_us = next_after(c, &c->prove.tries);
    if (lnet_choose(lnet_shard_self(c->gw->node), &nid, &LNET_NID_ANY, NULL, &path, &route))
        return false;
    ping(&c->other, LNET_CHECK_NID, &nid, path.ni);
    return true;
}

/* Returns the rail of a net that works and was pinged longest ago; NULL: none works, or one was
 * pinged within the interval. */
static const struct lnet_conf_gw_ni *not_pinged(const struct lnet_conf_gw *g,
                                                const struct lnet_conf_net *net)
{
    const uint64_t interval_us = lnet_check_interval_us(g->gw->node), now = reactor_now_us();
    const struct lnet_conf_gw_ni *oldest = NULL;

    for (unsigned i = 0; i < g->nnis; i++) {
        if (g->ni[i].net != net || to_try(&g->ni[i]))
            continue;
        if (g->ni[i].ni->pinged_us + interval_us > now)
            return NULL;
        if (!oldest || g->ni[i].ni->pinged_us < oldest->ni->pinged_us)
            oldest = &g->ni[i];
    }
    return oldest;
}

/* Each net that a gateway has in common with this node is pinged in each interval. A router sets
 * its NIs of a net down if nobody pings them, §3.7. */
static bool try_net(struct lnet_gw_check *c, const struct lnet_conf_gw *g)
{
    for (unsigned i = 0; i < g->nnis; i++) {
        const struct lnet_conf_net *net = g->ni[i].net;
        const struct lnet_conf_gw_ni *e = net ? not_pinged(g, net) : NULL;

        if (!e)
            continue;
        c->other.progress = false;
        ping(&c->other, LNET_CHECK_PAIR, &e->ni->nid, net->ni[e->ni->turn++ % net->nni]);
        return true;
    }
    return false;
}

/* Pings what is due of a gateway that is alive, or may be: its check does not end. Returns whether
 * there was something. */
static bool recover(struct lnet_gw_check *c, const struct lnet_conf_gw *g)
{
    const bool late = is_late(&c->alive.op);

    if (c->other.op.running || !(late || lnet_gw_alive(c->gw)))
        return false;
    for (unsigned i = 0; i < g->nnis; i++)
        if (try_pair(c, &g->ni[i]))
            return true;
    return (g->nnis > 1 && !late && try_net(c, g)) || try_nid(c);
}

/* ---- links of our NIs ---- */

/* Whether a gateway has a pair that works, but for those of an NI. */
static bool works_without(const struct lnet_conf_gw *g, const struct lnet_ni *ni)
{
    for (unsigned i = 0; i < g->nnis; i++) {
        const struct lnet_conf_gw_ni *e = &g->ni[i];
        uint64_t down = relaxed_load(&e->ni->pairs_down);

        for (unsigned k = 0; e->net && k < e->net->nni; k++)
            if (e->net->ni[k] != ni && !relaxed_load(&e->net->ni[k]->fatal) &&
                !(down & lnet_ni_bit(e->net->ni[k])) && !lnet_gw_ni_silent(e->ni))
                return true;
    }
    return false;
}

void lnet_gateways_link(struct lnet_ni *ni, bool up)
{
    const struct lnet_conf *conf = lnet_conf_get(ni->node);

    for (unsigned i = 0; i < conf->ngws_known; i++) {
        const struct lnet_conf_gw *g = &conf->gw[i];

        if (up && !lnet_gw_alive(g->gw))
            lnet_gw_check_soon(g->gw);
        for (unsigned k = 0; !up && works_without(g, ni) && k < g->nnis; k++)
            if (g->ni[k].local & lnet_ni_bit(ni))
                pairs_fail(g->ni[k].ni, lnet_ni_bit(ni), "link_down");
    }
}

static void ping_init(struct lnet_gw_ping *g, struct lnet_gw_check *c)
{
    g->check = c;
    g->op.node = c->gw->node;
    g->op.kind = &ping_kind;
    g->op.target = c->gw->nid;
}

int lnet_gw_check_new(struct lnet_node *node, struct lnet_gw *gw)
{
    struct lnet_gw_check *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->gw = gw;
    c->evaluate.fn = lnet_evaluate_task;
    ping_init(&c->alive, c);
    ping_init(&c->other, c);
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

static bool is_busy(const struct lnet_gw_check *c)
{
    return c->alive.op.running || c->other.op.running || c->evaluating;
}

bool lnet_gw_check_end(struct lnet_gw *gw)
{
    struct lnet_gw_check *c = gw->check;
    const bool alive = c->alive.op.running;

    if (!is_busy(c))
        return true;
    c->leaving = true;
    lnet_ping_op_cancel(
        &c->other.op); /* may complete the last ping before it returns: c is freed */
    if (alive)
        lnet_ping_op_cancel(&c->alive.op);
    return false;
}

void lnet_gw_check_idle(struct lnet_gw_check *c)
{
    if (!c->leaving || is_busy(c))
        return;
    c->leaving = false; /* once */
    lnet_gw_leave(c->gw);
}

static bool is_due(const struct lnet_gw *gw, uint64_t now)
{
    const struct lnet_gw_check *c = gw->check;

    return now >= c->next_us || relaxed_load(&gw->wanted) != c->seen_wanted;
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

        if (looks++ == CHECK_LOOKS || begun >= CHECK_BURST) {
            reactor_timer_arm(t, CHECK_GAP_US);
            return;
        }
        lnet_gw_nis_look(gw);
        if (!gw->check->alive.op.running && is_due(gw, now)) {
            if (wanted != gw->check->seen_wanted)
                lnet_routes_report(node); /* a new one, perhaps of a gateway that is down */
            gw->check->seen_wanted = wanted;
            check_begin(gw->check);
            begun++;
        }
        begun += recover(gw->check, &conf->gw[routes->gw_next]);
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
