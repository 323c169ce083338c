/* SPDX-License-Identifier: BSD-3-Clause */
/* See plan.h. */
#include "control/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planner {
    const struct cfg *from, *to;
    const struct cfg_diff *diff;
    struct cfg_plan *plan;
};

static struct cfg_step *add_step(struct planner *p, enum cfg_step_kind kind, const char *key)
{
    struct cfg_plan *plan = p->plan;
    struct cfg_step *grown = plan->step;

    if (!plan->failed && (plan->count & (plan->count + 1)) == 0)
        grown = realloc(grown, (2 * (size_t)plan->count + 1) * sizeof(*grown));
    if (plan->failed || !grown) {
        plan->failed = true;
        return NULL;
    }
    plan->step = grown;
    grown[plan->count] = (struct cfg_step){.kind = kind};
    snprintf(grown[plan->count].key, sizeof(grown[plan->count].key), "%s", key);
    return &grown[plan->count++];
}

/* Returns the next change of NIs from *index on, and moves *index behind it. NULL: there is none.
 */
static const struct cfg_change *next_ni(const struct planner *p, enum cfg_action action,
                                        unsigned *index)
{
    while (*index < p->diff->count) {
        const struct cfg_change *c = &p->diff->change[(*index)++];

        if (c->what == CFG_OF_NI && c->action == action)
            return c;
    }
    return NULL;
}

/* ---- buffers ---- */

/* 0 is the default of docs/protocol/lnet-core.md §4.9, or fewer. */
static int pool_size(int value, int pool)
{
    static const int defaults[LNET_POOLS] = {2048, 16384, 1024};

    return value ? value : defaults[pool];
}

static void plan_buffers(struct planner *p, bool grow)
{
    const int from[LNET_POOLS] = {p->from->tiny, p->from->small, p->from->large};
    const int to[LNET_POOLS] = {p->to->tiny, p->to->small, p->to->large};
    struct cfg_step step = {.key = ""}, *made;
    bool any = false;

    for (int i = 0; i < LNET_POOLS; i++) {
        bool now = from[i] != to[i] && (pool_size(to[i], i) > pool_size(from[i], i)) == grow;

        step.pools[i] = now ? to[i] : -1;
        step.pools_back[i] = now ? from[i] : -1;
        any |= now;
    }
    made = any ? add_step(p, CFG_STEP_BUFFERS, "buffers") : NULL;
    if (made) {
        memcpy(made->pools, step.pools, sizeof(step.pools));
        memcpy(made->pools_back, step.pools_back, sizeof(step.pools_back));
    }
}

/* ---- NIs ---- */

static void plan_ni(struct planner *p, enum cfg_step_kind kind, const struct cfg_ni *ni,
                    const char *key)
{
    struct cfg_step *step = add_step(p, kind, key);

    if (step)
        step->ni = *ni;
}

/* Returns whether two NIs exclude each other: they would listen on the same address. */
static bool in_the_way(const struct cfg_ni *x, const struct cfg_ni *y)
{
    const struct lnet_nid *a = cfg_ni_nid(x), *b = cfg_ni_nid(y);

    if (!nid_is_any(a) && !nid_is_any(b))
        return a->type == b->type && memcmp(a->addr_be, b->addr_be, sizeof(a->addr_be)) == 0;
    return x->conf.ifname[0] && strcmp(x->conf.ifname, y->conf.ifname) == 0;
}

/* Returns the NI that a change adds or removes. */
static const struct cfg_ni *ni_of(const struct planner *p, const struct cfg_change *c)
{
    return c->action == CFG_ADD ? &p->to->ni[c->b] : &p->from->ni[c->a];
}

/* Returns whether the NI that a change removes is in the way of one that is added, or the NI that
 * it adds in the way of one that is removed. */
static bool makes_room(const struct planner *p, const struct cfg_change *change)
{
    enum cfg_action other = change->action == CFG_ADD ? CFG_DEL : CFG_ADD;
    const struct cfg_change *c;

    for (unsigned i = 0; (c = next_ni(p, other, &i));)
        if (in_the_way(ni_of(p, change), ni_of(p, c)))
            return true;
    return false;
}

/* Returns whether this is the first of several changes of one NI that needs so much. */
static bool first_of(const struct planner *p, unsigned index, enum cfg_applies applies)
{
    const struct cfg_change *c = &p->diff->change[index], *other;

    for (unsigned i = 0; i < index; i++) {
        other = &p->diff->change[i];
        if (other->what == CFG_OF_NI && other->a == c->a && other->applies == applies)
            return false;
    }
    return true;
}

static bool restarts(const struct planner *p, unsigned ni)
{
    const struct cfg_change *c;

    for (unsigned i = 0; (c = next_ni(p, CFG_SET, &i));)
        if (c->a == ni && c->applies == CFG_NI_RESTART)
            return true;
    return false;
}

/* Adds or removes the NIs that exclude one that is removed or added, or the other ones. */
static void plan_nis(struct planner *p, enum cfg_action action, bool room)
{
    const struct cfg_change *c;

    for (unsigned i = 0; (c = next_ni(p, action, &i));)
        if (makes_room(p, c) == room)
            plan_ni(p, action == CFG_ADD ? CFG_STEP_NI_ADD : CFG_STEP_NI_DEL, ni_of(p, c), c->key);
}

/* Replaces -1 by the value that the NI has, so that the change can be undone. */
static struct cfg_ni settled(const struct cfg_ni *ni, const struct cfg_ni_live *live)
{
    struct cfg_ni out = *ni;
    struct lnd_tunables *tun = &out.conf.lnd_tun;

    if (live->known) {
        tun->conns_per_peer =
            tun->conns_per_peer == -1 ? live->lnd_tun.conns_per_peer : tun->conns_per_peer;
        tun->timeout = tun->timeout == -1 ? live->lnd_tun.timeout : tun->timeout;
        tun->tos = tun->tos == -1 ? live->lnd_tun.tos : tun->tos;
    }
    out.live = *live;
    return out;
}

static void plan_ni_sets(struct planner *p)
{
    for (unsigned i = 0; i < p->diff->count; i++) {
        const struct cfg_change *c = &p->diff->change[i];
        const struct cfg_ni *old, *new;
        struct cfg_step *step;

        if (c->what != CFG_OF_NI || c->action != CFG_SET || c->kept || !first_of(p, i, c->applies))
            continue;
        old = &p->from->ni[c->a];
        new = &p->to->ni[c->b];
        if (c->applies == CFG_NI_RESTART) {
            plan_ni(p, CFG_STEP_NI_DEL, old, c->key);
            plan_ni(p, CFG_STEP_NI_ADD, new, c->key);
        } else if (!restarts(p, c->a)) {
            step = add_step(p, CFG_STEP_NI_SET, c->key);
            if (step) {
                step->ni = settled(new, &old->live);
                step->ni_back = settled(old, &old->live);
            }
        }
    }
}

/* ---- routes ---- */

enum when {
    EARLY, /* to nets that become local: the NI could not be added; through NIs that make room */
    ADDS,
    LAST,
    LATE, /* to nets that were local until now */
};

/* Returns whether a net ends before the NIs that are only removed: its routes could not be restored
 * after that. */
static bool net_makes_room(const struct planner *p, lnet_net_t net)
{
    const struct cfg_change *c;
    unsigned i = 0;

    while (!cfg_has_net(p->to, net) && (c = next_ni(p, CFG_DEL, &i)))
        if (p->from->ni[c->a].conf.net == net && makes_room(p, c))
            return true;
    return false;
}

static enum when route_when(const struct planner *p, const struct cfg_change *c)
{
    const struct lnet_route_conf *gone;

    if (c->action == CFG_DEL) {
        gone = &p->from->route[c->a].conf;
        return cfg_has_net(p->to, gone->net) || net_makes_room(p, nid_net(&gone->gateway)) ? EARLY
                                                                                           : LAST;
    }
    return cfg_has_net(p->from, p->to->route[c->b].conf.net) ? LATE : ADDS;
}

static void put_route(struct cfg_plan *plan, struct lnet_route_conf **list, unsigned *count,
                      const struct lnet_route_conf *conf)
{
    struct lnet_route_conf *grown = *list;

    if ((*count & (*count + 1)) == 0)
        grown = realloc(grown, (2 * (size_t)*count + 1) * sizeof(*grown));
    if (!grown) {
        plan->failed = true;
        return;
    }
    *list = grown;
    grown[(*count)++] = *conf;
}

static void plan_routes(struct planner *p, enum when when)
{
    struct cfg_step *step = NULL;

    for (unsigned i = 0; i < p->diff->count && !p->plan->failed; i++) {
        const struct cfg_change *c = &p->diff->change[i];

        if (c->what != CFG_OF_ROUTE || route_when(p, c) != when)
            continue;
        if (!step)
            step = add_step(p, CFG_STEP_ROUTES, c->key);
        if (!step)
            return;
        if (c->a != CFG_NONE)
            put_route(p->plan, &step->del, &step->ndel, &p->from->route[c->a].conf);
        if (c->b != CFG_NONE)
            put_route(p->plan, &step->add, &step->nadd, &p->to->route[c->b].conf);
    }
}

/* ---- peers ---- */

static void put_peer_op(struct planner *p, struct cfg_step *step, const struct lnet_peer_op *op)
{
    struct lnet_peer_op *grown = step->peer;

    if ((step->npeer & (step->npeer + 1)) == 0)
        grown = realloc(grown, (2 * (size_t)step->npeer + 1) * sizeof(*grown));
    if (!grown) {
        p->plan->failed = true;
        return;
    }
    step->peer = grown;
    grown[step->npeer++] = *op;
}

static struct lnet_peer_op peer_op(enum lnet_peer_op_kind kind, const struct cfg_peer *peer)
{
    return (struct lnet_peer_op){.kind = kind,
                                 .primary = peer->primary,
                                 .nid = peer->primary,
                                 .multi_rail = peer->multi_rail,
                                 .lock_primary = peer->lock_primary};
}

/* Adds or removes the NIDs that one peer has and the other one lacks (NULL: all); not the primary
 * NID. */
static void plan_peer_nids(struct planner *p, struct cfg_step *step, enum lnet_peer_op_kind kind,
                           const struct cfg_peer *has, const struct cfg_peer *lacks)
{
    struct lnet_peer_op op = peer_op(kind, has);

    for (unsigned i = 0; i < has->nid_count && !p->plan->failed; i++) {
        op.nid = has->nid[i];
        if (!nid_same(&op.nid, &has->primary) && (!lacks || !cfg_peer_has(lacks, &op.nid)))
            put_peer_op(p, step, &op);
    }
}

/* The NIDs and peers that go. */
static void plan_peer_less(struct planner *p, struct cfg_step *step, const struct cfg_peer *old,
                           const struct cfg_peer *new)
{
    struct lnet_peer_op op;

    if (!old)
        return;
    plan_peer_nids(p, step, LNET_PEER_DEL, old, new);
    op = peer_op(LNET_PEER_DEL, old);
    if (!new)
        put_peer_op(p, step, &op);
}

static void plan_peer_more(struct planner *p, struct cfg_step *step, const struct cfg_peer *old,
                           const struct cfg_peer *new)
{
    struct lnet_peer_op op;

    if (!new)
        return;
    op = peer_op(old ? LNET_PEER_SET : LNET_PEER_ADD, new);
    op.was_multi_rail = old && old->multi_rail;
    op.was_lock_primary = old && old->lock_primary;
    put_peer_op(p, step, &op);
    plan_peer_nids(p, step, LNET_PEER_ADD, new, old);
}

/* Removals come first: a NID may come to another peer. */
static void plan_peers(struct planner *p)
{
    struct cfg_step *step = NULL;

    for (int more = 0; more < 2; more++)
        for (unsigned i = 0; i < p->diff->count && !p->plan->failed; i++) {
            const struct cfg_change *c = &p->diff->change[i];
            const struct cfg_peer *old, *new;

            if (c->what != CFG_OF_PEER)
                continue;
            old = c->a == CFG_NONE ? NULL : &p->from->peer[c->a];
            new = c->b == CFG_NONE ? NULL : &p->to->peer[c->b];
            if (!step)
                step = add_step(p, CFG_STEP_PEERS, c->key);
            if (step)
                (more ? plan_peer_more : plan_peer_less)(p, step, old, new);
        }
}

/* ---- settings ---- */

static enum cfg_part part_of(const char *path)
{
    static const struct {
        const char *prefix;
        enum cfg_part part;
    } parts[] = {
        {"routing.", CFG_PART_ROUTING},
        {"global.alive_router_check_interval", CFG_PART_TIMING},
        {"global.router_ping_timeout", CFG_PART_TIMING},
        {"global.max_interfaces", CFG_PART_TIMING},
        {"global.drop_asym_route", CFG_PART_TIMING},
        {"global.transaction_timeout", CFG_PART_HEALTH},
        {"global.retry_count", CFG_PART_HEALTH},
        {"global.response_tracking", CFG_PART_HEALTH},
        {"global.health_sensitivity", CFG_PART_HEALTH},
        {"global.recovery_limit", CFG_PART_HEALTH},
        {"global.max_recovery_ping_interval", CFG_PART_HEALTH},
        {"millrace.source_check", CFG_PART_TIMING},
        {"millrace.avoid_asym_router_failure", CFG_PART_TIMING},
        {"millrace.check_routers_before_use", CFG_PART_TIMING},
        {"millrace.egress_share", CFG_PART_ADMISSION},
        {"millrace.buffer_wait", CFG_PART_ADMISSION},
        {"millrace.guard.", CFG_PART_ADMISSION},
        {"millrace.access[", CFG_PART_ACCESS},
        {"udsp[", CFG_PART_UDSP},
        {"global.discovery", CFG_PART_DISCOVERY},
        {"millrace.log.", CFG_PART_LOG},
        {"millrace.drain", CFG_PART_REST},
        {"millrace.names[", CFG_PART_REST},
    };

    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strncmp(path, parts[i].prefix, strlen(parts[i].prefix)) == 0)
            return parts[i].part;
    return CFG_PARTS;
}

static void plan_parts(struct planner *p)
{
    bool planned[CFG_PARTS + 1] = {[CFG_PARTS] = true}; /* buffers; what is only kept */

    for (unsigned i = 0; i < p->diff->count; i++) {
        const struct cfg_change *c = &p->diff->change[i];
        enum cfg_part part = part_of(c->key);
        struct cfg_step *step;

        if (planned[part] || (c->what != CFG_OF_SETTING && c->what != CFG_OF_NAME &&
                              c->what != CFG_OF_ACCESS && c->what != CFG_OF_UDSP))
            continue;
        planned[part] = true;
        step = add_step(p, CFG_STEP_PART, c->key);
        if (step)
            step->part = part;
    }
}

void cfg_plan_make(const struct cfg *from, const struct cfg *to, const struct cfg_diff *diff,
                   struct cfg_plan *out)
{
    struct planner p = {.from = from, .to = to, .diff = diff, .plan = out};

    memset(out, 0, sizeof(*out));
    plan_buffers(&p, true);
    plan_routes(&p, EARLY);
    plan_nis(&p, CFG_ADD, false); /* NIs that need no place of another NI come first */
    plan_nis(&p, CFG_DEL, true);
    plan_nis(&p, CFG_ADD, true);
    plan_ni_sets(&p);
    plan_routes(&p, ADDS);
    plan_peers(&p);
    plan_parts(&p);
    plan_routes(&p, LAST);
    plan_nis(&p, CFG_DEL, false);
    plan_routes(&p, LATE);
    plan_buffers(&p, false);
}

void cfg_plan_free(struct cfg_plan *plan)
{
    for (unsigned i = 0; i < plan->count; i++) {
        free(plan->step[i].del);
        free(plan->step[i].add);
        free(plan->step[i].peer);
    }
    free(plan->step);
    memset(plan, 0, sizeof(*plan));
}
