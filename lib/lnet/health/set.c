/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Health by the operator: the rules, `lnetctl peer set` and `net set --health`.
 * docs/protocol/lnet-core.md §6.1, §10.1. The node's home goes through the table of peers, some in
 * an iteration; the homes of the NIDs set the values of their peer NIs.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/health/health.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"

#include <errno.h>
#include <stdlib.h>

int lnet_health_set(struct lnet_node *node, const struct lnet_health_rules *rules, struct err *err)
{
    if (rules->sensitivity > LNET_MAX_HEALTH)
        return err_set(err, -EINVAL, "health_sensitivity: at most %d", LNET_MAX_HEALTH);
    if (rules->transaction_timeout == 0 || rules->max_interval == 0)
        return err_set(err, -EINVAL,
                       "transaction_timeout and max_recovery_ping_interval: 1 s at least");
    if (rules->transaction_timeout <= rules->retry_count)
        return err_set(err, -EINVAL, "transaction_timeout: it must be above retry_count");
    if (rules->response_tracking > 3)
        return err_set(err, -EINVAL, "response_tracking: at most 3");
    relaxed_store(&node->health.sensitivity, rules->sensitivity);
    relaxed_store(&node->health.retry_count, rules->sensitivity ? rules->retry_count : 0);
    relaxed_store(&node->health.response_tracking, rules->response_tracking);
    relaxed_store(&node->health.transaction_timeout, rules->transaction_timeout);
    relaxed_store(&node->health.recovery_limit, rules->recovery_limit);
    relaxed_store(&node->health.max_interval, rules->max_interval);
    return 0;
}

/* ---- peer set ---- */

/* Bits that say what is known of a peer, not what goes on. */
#define STATE_SETTABLE                                                                             \
    (PEER_MULTI_RAIL | PEER_NO_DISCOVERY | PEER_ROUTER_ENABLED | PEER_DISCOVERED |                 \
     PEER_REDISCOVER | PEER_NIDS_UPTODATE | PEER_LOCK_PRIMARY)

#define SET_BURST 64 /* peers looked at, or NIDs set, in one iteration of a reactor */
#define SET_NIDS  (SET_BURST + LNET_PING_MAX_NIDS)

struct peer_set {
    struct lnet_node *node;
    struct lnet_nid nid; /* ANY: all */
    int health;
    int64_t state;
    unsigned next; /* index of a peer */
    lnet_done_fn done;
    void *arg;
    int rc;
    struct err err;
    struct reactor_task task;
    unsigned reactor, n; /* that sets its peer NIs, of so many NIDs */
    struct lnet_nid list[SET_NIDS];
};

static void set_deliver(struct reactor_task *task)
{
    struct peer_set *s = container_of(task, struct peer_set, task);

    s->done(s->arg, s->rc, s->rc ? &s->err : NULL);
    free(s);
}

static void go_on(struct peer_set *s, struct reactor *to, void (*fn)(struct reactor_task *task))
{
    s->task.fn = fn;
    reactor_post(to, &s->task);
}

static void set_state(struct peer *p, int64_t state)
{
    if (state >= 0)
        p->state =
            (p->state & ~(uint32_t)STATE_SETTABLE) | ((uint32_t)state & (uint32_t)STATE_SETTABLE);
}

static void set_ni(struct peer_set *s, struct peer_ni *ni)
{
    if (s->health < 0 || s->n == SET_NIDS)
        return;
    ni->health = s->health;
    s->list[s->n++] = ni->nid;
}

static void set_peer(struct peer_set *s, struct peer *p)
{
    struct peer_net *net;
    struct peer_ni *ni;

    set_state(p, s->state);
    TAILQ_FOREACH(net, &p->nets, link)
        TAILQ_FOREACH(ni, &net->nis, link)
            set_ni(s, ni);
}

static void set_one(struct peer_set *s)
{
    struct peer *p = peer_table_get(s->node->peers, &s->nid);
    char nid[LNET_NIDSTR_SIZE];

    if (!p) {
        s->rc =
            err_set(&s->err, -ENOSPC, "peer %s: there is no room for more peers; raise max_peers",
                    nid_format(&s->nid, nid));
        return;
    }
    set_state(p, s->state);
    set_ni(s, peer_table_find_ni(s->node->peers, &s->nid));
}

static void set_some(struct reactor_task *task);

/* Returns the peer NI of a NID at home here, with a reference. The named NID gets one if it has
 * none. */
static struct lnet_peer_ni *peer_ni_here(const struct peer_set *s, const struct lnet_nid *nid)
{
    struct lnet_node *node = s->node;
    struct lnet_peer_ni *p;

    if (nid_cpt_hash(nid, node->nshards) != s->reactor)
        return NULL;
    p = lnet_peer_ni_find_here(node, nid);
    if (!p && (nid_is_any(&s->nid) || !lnet_net_find(node, nid_net(nid))))
        return NULL;
    return lnet_peer_ni_get(node, nid);
}

/* On each reactor in turn. */
static void set_values(struct reactor_task *task)
{
    struct peer_set *s = container_of(task, struct peer_set, task);
    struct lnet_node *node = s->node;

    for (unsigned i = 0; i < s->n; i++) {
        struct lnet_peer_ni *p = peer_ni_here(s, &s->list[i]);

        if (!p)
            continue;
        lnet_health_peer_set(p, (unsigned)s->health, LNET_CAUSE_COMMAND);
        lnet_peer_ni_put(p);
    }
    if (++s->reactor < node->nshards)
        go_on(s, node->shard[s->reactor]->reactor, set_values);
    else
        go_on(s, lnet_node_home(node), set_some);
}

static bool set_is_done(const struct peer_set *s)
{
    return s->next > 0 && (!nid_is_any(&s->nid) || s->next >= s->node->peers->highest);
}

static void set_some(struct reactor_task *task)
{
    struct peer_set *s = container_of(task, struct peer_set, task);
    struct peer_table *t = s->node->peers;

    s->n = s->reactor = 0;
    if (set_is_done(s)) {
        go_on(s, reactor_control(s->node->env), set_deliver);
        return;
    }
    if (!nid_is_any(&s->nid)) {
        set_one(s);
        s->next = 1;
    }
    for (unsigned i = 0; nid_is_any(&s->nid) && i < SET_BURST && s->n < SET_BURST; i++, s->next++)
        if (s->next < t->highest && t->peers[s->next].nnis)
            set_peer(s, &t->peers[s->next]);
    if (s->n > 0)
        go_on(s, s->node->shard[0]->reactor, set_values);
    else
        go_on(s, lnet_node_home(s->node), set_some);
}

int lnet_peer_set(struct lnet_node *node, const struct lnet_nid *nid, int health, int64_t state,
                  lnet_done_fn done, void *arg, struct err *err)
{
    struct peer_set *s;

    if (health > LNET_MAX_HEALTH)
        return err_set(err, -ERANGE, "health: at most %d", LNET_MAX_HEALTH);
    if (state > UINT32_MAX)
        return err_set(err, -ERANGE, "state: at most 32 bits");
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    *s = (struct peer_set){
        .node = node, .nid = *nid, .health = health, .state = state, .done = done, .arg = arg};
    go_on(s, lnet_node_home(node), set_some);
    return 0;
}

/* ---- net set ---- */

struct ni_set {
    struct lnet_node *node;
    struct lnet_nid nid;
    int health;
    lnet_done_fn done;
    void *arg;
    int rc;
    struct err err;
    struct reactor_task task;
};

static void ni_deliver(struct reactor_task *task)
{
    struct ni_set *s = container_of(task, struct ni_set, task);

    s->done(s->arg, s->rc, s->rc ? &s->err : NULL);
    free(s);
}

static int no_ni(const struct lnet_nid *nid, struct err *err)
{
    char text[LNET_NIDSTR_SIZE];

    return err_set(err, -ENOENT, "nid: %s is not a NID of this node", nid_format(nid, text));
}

static void ni_set_home(struct reactor_task *task)
{
    struct ni_set *s = container_of(task, struct ni_set, task);
    struct lnet_ni *ni = lnet_ni_find(s->node, &s->nid);

    if (ni) {
        lnet_health_ni_set(ni, (unsigned)s->health, LNET_CAUSE_COMMAND);
        relaxed_store(&ni->heard_us, 0); /* 0: it is down with the next tick */
    } else {
        s->rc = no_ni(&s->nid, &s->err);
    }
    s->task.fn = ni_deliver;
    reactor_post(reactor_control(s->node->env), &s->task);
}

int lnet_ni_health_set(struct lnet_node *node, const struct lnet_nid *nid, int health,
                       lnet_done_fn done, void *arg, struct err *err)
{
    struct ni_set *s;

    if (health < 0 || health > LNET_MAX_HEALTH)
        return err_set(err, -ERANGE, "health: at most %d", LNET_MAX_HEALTH);
    if (!lnet_ni_find(node, nid))
        return no_ni(nid, err);
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    *s = (struct ni_set){.node = node, .nid = *nid, .health = health, .done = done, .arg = arg};
    s->task.fn = ni_set_home;
    reactor_post(lnet_node_home(node), &s->task);
    return 0;
}
