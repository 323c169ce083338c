/* SPDX-License-Identifier: BSD-3-Clause */
/* A node: creates and starts it, and its NIs before the start. Control thread. */
#include "lib/base/err.h"
#include "lib/lnet/access/access.h"
#include "lib/lnet/api/api.h"
#include "lib/lnet/credit/credit.h"
#include "lib/lnet/fault/fault.h"
#include "lib/lnet/health/health.h"
#include "lib/lnet/node/node_internal.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/route/route.h"
#include "lib/lnet/shard/udsp.h"
#include "lib/lnet/tx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_DEFAULT     60 /* s */
#define TIMEOUT_DEFAULT      50 /* s */
#define EGRESS_SHARE_DEFAULT 50 /* % */
#define BUFFER_WAIT_DEFAULT  10 /* s */
#define BUFFER_WAIT_MAX      12 /* s: 2.15 peers give a connection up after 16 */

/* ---- shards ---- */

static int shard_create(struct lnet_node *node, unsigned index, struct err *err)
{
    struct lnet_shard *s = calloc(1, sizeof(*s));
    unsigned max_peers = lnet_peer_nis_per_shard(&node->opts, node->nshards);
    unsigned local = lnet_local_msgs(&node->opts);
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "no memory for a shard");
    s->node = node;
    s->index = index;
    node->shard[index] = s;
    if (index == node->nshards)
        return 0; /* control: counters only */

    s->reactor = reactor_at(node->env, index);
    s->gw_seq = calloc(LNET_GW_SLOTS, sizeof(*s->gw_seq));
    s->gw_ni_seq = calloc(LNET_GW_NI_SLOTS, sizeof(*s->gw_ni_seq));
    s->ni_seq = calloc(LNET_MAX_NI, sizeof(*s->ni_seq));
    s->ni_credits = calloc(LNET_MAX_NI, sizeof(*s->ni_credits));
    s->ni_refs = calloc(LNET_MAX_NI, sizeof(*s->ni_refs));
    if (!s->gw_seq || !s->gw_ni_seq || !s->ni_seq || !s->ni_credits || !s->ni_refs)
        return err_set(err, -ENOMEM, "no memory for selection state");
    rc = lnet_credit_shard_init(s, max_peers, err);
    if (rc)
        return rc;
    /* A forwarded message has a buffer, so there are as many descriptors as buffers. */
    rc = lnet_msgs_init(s, local + lnet_credit_capacity(s), local, err);
    if (rc)
        return rc;
    rc = lnet_tx_init(s, err);
    if (rc)
        return rc;
    rc = lnet_health_init(s, err);
    if (rc)
        return rc;
    return lnet_peer_nis_init(s, max_peers, err);
}

static void shard_destroy(struct lnet_shard *s)
{
    if (!s)
        return;
    lnet_credit_shard_fini(s);
    lnet_tx_fini(s);
    lnet_health_fini(s);
    lnet_peer_nis_fini(s);
    lnet_msgs_fini(s);
    free(s->gw_seq);
    free(s->gw_ni_seq);
    free(s->ni_seq);
    free(s->ni_credits);
    free(s->ni_refs);
    free(s);
}

/* ---- the node ---- */

int lnet_node_create(const struct lnet_node_opts *opts, struct lnet_node **out, struct err *err)
{
    struct lnet_node *node = calloc(1, sizeof(*node));
    struct mem_arena_opts arena = {.socket = -1};
    int rc = -ENOMEM;

    err_text(err, "no memory for the node");
    if (!node)
        return rc;
    node->opts = *opts;
    node->env = opts->env;
    node->nshards = reactor_count(opts->env);
    node->timing.check_interval = opts->check_interval ? opts->check_interval : INTERVAL_DEFAULT;
    node->timing.ping_timeout = opts->ping_timeout ? opts->ping_timeout : TIMEOUT_DEFAULT;
    node->timing.max_interfaces = opts->max_interfaces ? opts->max_interfaces : LNET_MAX_NI;
    node->timing.source_check = opts->source_check;
    node->timing.rules = opts->rules;
    node->guard = opts->guard;
    node->health = LNET_HEALTH_RULES;
    node->egress_share = opts->egress_share ? opts->egress_share : EGRESS_SHARE_DEFAULT;
    node->buffer_wait = opts->buffer_wait ? opts->buffer_wait : BUFFER_WAIT_DEFAULT;
    rc = lnet_memory_plan(opts, node->nshards, &node->plan, err);
    if (rc)
        goto fail;
    memcpy(node->totals, node->plan.buffers, sizeof(node->totals));
    arena.landing_bytes = node->plan.landing;
    rc = mem_arena_create(&arena, &node->arena, err);
    if (rc)
        goto fail;
    if (lnet_conf_init(node) || lnet_stop_init(node) || lnet_api_init(node) ||
        lnet_ping_init(node) || lnet_routes_init(node)) {
        rc = -ENOMEM;
        goto fail;
    }
    for (unsigned i = 0; i <= node->nshards; i++) {
        rc = shard_create(node, i, err);
        if (rc)
            goto fail;
    }
    *out = node;
    return 0;
fail:
    lnet_node_destroy(node);
    return rc;
}

void lnet_node_destroy(struct lnet_node *node)
{
    lnet_stop_fini(node);
    for (unsigned i = 0; i < node->nnis; i++)
        if (node->ni[i])
            lnet_ni_free(node->ni[i]);
    for (unsigned i = 0; i <= node->nshards; i++)
        shard_destroy(node->shard[i]);
    lnet_ping_fini(node);
    lnet_peers_fini(node);
    lnet_api_fini(node);
    lnet_routes_fini(node);
    lnet_access_fini(node);
    lnet_udsps_fini(node);
    lnet_faults_fini(node);
    if (node->arena)
        mem_arena_destroy(node->arena);
    free(node->change);
    free(node);
}

/* ---- NIs ---- */

int lnet_lnd_register(struct lnet_node *node, const struct lnd_ops *ops, void *ctx)
{
    if (node->nlnds == LNET_MAX_LNDS)
        return -ENOSPC;
    node->lnd[node->nlnds].ops = ops;
    node->lnd[node->nlnds].ctx = ctx;
    node->nlnds++;
    return 0;
}

const struct lnd_ops *lnet_lnd_of(const struct lnet_node *node, uint8_t type, void **ctx)
{
    const struct lnet_lnd *lnd = lnet_lnd_find(node, type);

    if (!lnd)
        return NULL;
    *ctx = lnd->ctx;
    return lnd->ops;
}

unsigned lnet_ni_count(const struct lnet_node *node)
{
    return node->nnis;
}

struct lnet_ni *lnet_ni_at(const struct lnet_node *node, unsigned index)
{
    struct lnet_ni *ni = index < node->nnis ? node->ni[index] : NULL;

    return ni && lnet_ni_is_active(ni) ? ni : NULL;
}

static int check_ni(const struct lnet_node *node, const struct lnet_ni_conf *conf, struct err *err)
{
    char net[LNET_NETSTR_SIZE];
    struct lnet_route *const *r;

    net_format(conf->net, net);
    if (!nid_is_any(&conf->nid) && nid_net(&conf->nid) != conf->net)
        return err_set(err, -EINVAL, "net %s: the NID given is on another net", net);
    if (lnet_conf_routes(node->conf, conf->net, &r) > 0) {
        return err_set(err, -EUSERS, "net %s: there are routes to it; delete them first", net);
    }
    return 0;
}

static int free_index(const struct lnet_node *node, unsigned *index, struct err *err)
{
    for (*index = 0; *index < LNET_MAX_NI && node->ni[*index]; ++*index)
        ;
    if (*index < LNET_MAX_NI)
        return 0;
    if (node->conf->nnis < LNET_MAX_NI) {
        return err_set(err, -EAGAIN,
                       "messages of NIs that were removed are still in flight; try again");
    }
    return err_set(err, -ENOSPC, "at most %d NIs (a ping info holds no more)", LNET_MAX_NI);
}

/* Returns a bit that no NI of the net has. It prefers a bit that is clear in the states of all
 * pairs: there it may still be set for an NI that was removed. */
static uint8_t free_pair(const struct lnet_node *node, lnet_net_t net)
{
    uint64_t used = 0, stale = 0;

    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (node->ni[i] && node->ni[i]->net == net)
            used |= lnet_ni_bit(node->ni[i]);
    for (unsigned i = 0; i < LNET_GW_NI_SLOTS; i++)
        if (node->gw_ni[i] && nid_net(&node->gw_ni[i]->nid) == net)
            stale |= relaxed_load(&node->gw_ni[i]->pairs_down);
    if (~(used | stale))
        used |= stale;
    /* The NIs of a net beyond 64 have the last one in common. */
    return (uint8_t)(~used ? __builtin_ctzll(~used) : 63);
}

static struct lnet_ni *ni_new(struct lnet_node *node, const struct lnet_ni_conf *conf,
                              const struct lnet_lnd *lnd, unsigned index)
{
    struct lnet_ni *ni = calloc(1, sizeof(*ni));

    if (!ni)
        return NULL;
    ni->node = node;
    ni->lnd = lnd->ops;
    ni->lnd_ctx = lnd->ctx;
    ni->nid = conf->nid;
    ni->net = conf->net;
    ni->tun = conf->tun;
    ni->lnd_tun = conf->lnd_tun;
    ni->index = index;
    ni->pair = free_pair(node, conf->net);
    ni->status = LNET_NI_UP;
    ni->health = LNET_MAX_HEALTH;
    ni->link_up = true;
    ni->state = LNET_NI_NEW;
    memcpy(ni->ifname, conf->ifname, sizeof(ni->ifname));
    ni->ifname[sizeof(ni->ifname) - 1] = 0;
    return ni;
}

static void drivers_remedy(const struct lnet_node *node, struct err *err)
{
    char names[64] = "";

    for (unsigned i = 0; i < node->nlnds; i++) {
        size_t used = strlen(names);

        snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
                 node->lnd[i].ops->name);
    }
    err_remedy(err, "use a net of a type that this program drives: %s", names);
}

int lnet_ni_make(struct lnet_node *node, const struct lnet_ni_conf *conf, struct lnet_ni **out,
                 struct err *err)
{
    char net[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE];
    struct lnet_ni *ni;
    const struct lnet_lnd *lnd;
    unsigned index;
    int rc;

    net_format(conf->net, net);
    rc = check_ni(node, conf, err);
    if (!rc)
        rc = free_index(node, &index, err);
    if (rc)
        return rc;
    lnd = lnet_lnd_find(node, conf->net >> 16);
    if (!lnd) {
        err_set(err, -EOPNOTSUPP, "net %s: no network driver for nets of type %s in this program",
                net, lnd_type_name((uint8_t)(conf->net >> 16)));
        err_where(err, "net");
        drivers_remedy(node, err);
        return -EOPNOTSUPP;
    }
    ni = ni_new(node, conf, lnd, index);
    if (!ni)
        return err_set(err, -ENOMEM, "no memory");
    rc = ni->lnd->ni_init(ni, err);
    if (rc) {
        free(ni);
        return rc;
    }
    if (lnet_is_own_nid(node, &ni->nid)) {
        err_text(err, "NID %s is configured twice", nid_format(&ni->nid, nid));
        lnet_ni_free(ni);
        return -EEXIST;
    }
    *out = ni;
    return 0;
}

void lnet_ni_free(struct lnet_ni *ni)
{
    ni->lnd->ni_fini(ni);
    free(ni);
}

void lnet_ni_place(struct lnet_ni *ni)
{
    struct lnet_node *node = ni->node;

    __atomic_store_n(&node->ni[ni->index], ni, __ATOMIC_RELEASE);
    if (ni->index >= node->nnis)
        relaxed_store(&node->nnis, ni->index + 1);
}

struct lnet_conf *lnet_conf_with(const struct lnet_node *node, struct lnet_ni *ni, bool add)
{
    const struct lnet_conf *old = node->conf;
    struct lnet_ni *all[LNET_MAX_NI + 1];
    unsigned n = 0;

    for (unsigned i = 0; i < old->nnis; i++)
        if (old->ni[i] != ni)
            all[n++] = old->ni[i];
    if (add)
        all[n++] = ni;
    return lnet_conf_build(node, old->route, old->nroutes, all, n);
}

int lnet_ni_add(struct lnet_node *node, const struct lnet_ni_conf *conf, struct lnet_ni **out,
                struct err *err)
{
    char net[LNET_NETSTR_SIZE];
    struct lnet_conf *c;
    struct lnet_ni *ni;
    int rc;

    net_format(conf->net, net);
    if (node->started)
        return err_set(err, -EBUSY, "net %s: the node has started", net);
    rc = lnet_ni_make(node, conf, &ni, err);
    if (rc)
        return rc;
    c = lnet_conf_with(node, ni, true);
    if (!c) {
        lnet_ni_free(ni);
        return err_set(err, -ENOMEM, "no memory");
    }
    ni->state = LNET_NI_ACTIVE;
    for (unsigned i = 0; i < node->nshards; i++)
        lnet_ni_credits_init(node->shard[i], ni);
    lnet_ni_place(ni);
    lnet_conf_publish(node, c);
    if (out)
        *out = ni;
    return 0;
}

/* ---- admission ---- */

void lnet_admission_get(const struct lnet_node *node, struct lnet_admission *out)
{
    out->egress_share = node->egress_share;
    out->buffer_wait = node->buffer_wait;
    out->set_guard = false;
    out->guard = node->guard;
}

int lnet_admission_set(struct lnet_node *node, const struct lnet_admission *set, struct err *err)
{
    if (set->egress_share > 100)
        return err_set(err, -EINVAL, "egress_share: %u is not a percentage of 1 to 100",
                       set->egress_share);
    if (set->buffer_wait > BUFFER_WAIT_MAX)
        return err_set(err, -EINVAL, "buffer_wait: %u s is too long, at most %u", set->buffer_wait,
                       BUFFER_WAIT_MAX);
    if (set->egress_share)
        relaxed_store(&node->egress_share, set->egress_share);
    if (set->buffer_wait)
        relaxed_store(&node->buffer_wait, set->buffer_wait);
    if (set->set_guard)
        relaxed_store(&node->guard, set->guard);
    return 0;
}

/* ---- start ---- */

static void start_ping(struct lnet_node *node, bool arg)
{
    lnet_ping_start(node);
}

static void start_monitor(struct lnet_node *node, bool arg)
{
    lnet_monitor_start(node);
    lnet_checks_start(node);
}

int lnet_node_start(struct lnet_node *node, struct err *err)
{
    int rc;

    err_text(err, "no memory");
    /* Before the NIs: by the time a peer can reach us the ping target stands. */
    rc = lnet_call_home(node, start_ping, false);
    if (rc)
        return rc;
    node->started = true;
    for (unsigned i = 0; i < node->nnis; i++) { /* maybe none: they can be added later */
        rc = node->ni[i]->lnd->ni_start(node->ni[i], err);
        if (rc)
            return rc;
    }
    /* After them: its first gateway checks are sent at once. */
    err_text(err, "no memory");
    rc = lnet_call_home(node, start_monitor, false);
    /* LNDs tell reactors of listeners by mail: who is told that the node is up can call it. */
    if (rc == 0)
        reactor_mail_settle(node->env);
    return rc;
}
