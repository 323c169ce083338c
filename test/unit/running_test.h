/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the running document share: a model of a node, to which each step of a change
 * does what it would do to the node, and can be made to fail; documents by chance; changes. */
#ifndef MILLRACE_RUNNING_TEST_H
#define MILLRACE_RUNNING_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/write.h"
#include "control/plan.h"
#include "lib/base/err.h"
#include "test/lnds_test.h"

#define ROUNDS 400

/* ---- a model of a node ---- */

struct model {
    struct cfg_ni ni[LNET_MAX_NI];
    unsigned nis;
    struct lnet_route_conf route[256];
    unsigned routes;
    struct lnet_peer_op peer[64]; /* the NIDs of configured peers */
    unsigned peers;
    int pools[LNET_POOLS];
    int routing, discovery, check_interval, ping_timeout, source_check, egress_share, buffer_wait,
        log_level, drain;
    /* how it behaves */
    bool later;      /* asynchronous operations end when deliver() is called */
    unsigned calls;  /* operations so far */
    unsigned fail;   /* the number of the one that fails, 0 = none */
    unsigned broken; /* every one from this on fails, 0 = none */
    cfg_done_fn done;
    void *arg;
    int rc;
    unsigned timer;
    char event[32], cause[64];
    unsigned events;
    /* what must not happen on the way */
    const struct cfg *a, *b;
};

static struct model node;

static inline bool fails(struct err *err)
{
    node.calls++;
    if (node.calls != node.fail && (!node.broken || node.calls < node.broken))
        return false;
    err_text(err, "operation %u fails", node.calls);
    return true;
}

static inline int set_buffers(void *arg, const int totals[LNET_POOLS], struct err *err)
{
    int i;

    if (fails(err))
        return -ENOMEM;
    for (i = 0; i < LNET_POOLS; i++)
        node.pools[i] = totals[i] >= 0 ? totals[i] : node.pools[i];
    return 0;
}

static inline int find(const struct cfg_ni *like)
{
    unsigned i;

    for (i = 0; i < node.nis; i++)
        if (cfg_same_ni(&node.ni[i], like))
            return (int)i;
    return -1;
}

static inline bool local(lnet_net_t net)
{
    unsigned i;

    for (i = 0; i < node.nis; i++)
        if (node.ni[i].conf.net == net)
            return true;
    return false;
}

/* Ends an asynchronous operation now or later; if it fails then, it fails by its callback. */
static inline int end(cfg_done_fn done, void *arg, int rc)
{
    const struct err err = {.message = "failed at once", .remedy = "try later", .where = "nid"};

    if (!node.later) {
        done(arg, rc, rc ? &err : NULL);
        return 0;
    }
    assert_null(node.done); /* one at a time */
    node.done = done;
    node.arg = arg;
    node.rc = rc;
    return 0;
}

static inline void deliver(void)
{
    const struct err err = {.message = "failed later", .remedy = "try again", .where = "nid"};

    while (node.done) {
        cfg_done_fn done = node.done;

        node.done = NULL;
        done(node.arg, node.rc, node.rc ? &err : NULL);
    }
}

static inline int add_ni(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                         struct err *err)
{
    unsigned i;

    if (fails(err))
        return node.calls % 2 ? -ENODEV : end(done, done_arg, -EADDRINUSE);
    assert_int_equal(find(ni), -1);
    for (i = 0; i < node.routes; i++) /* docs/protocol/lnet-core.md §11: -EUSERS */
        assert_int_not_equal(node.route[i].net, ni->conf.net);
    for (i = 0; i < node.nis; i++) /* two cannot listen on one address */
        assert_true(memcmp(node.ni[i].conf.nid.addr_be, ni->conf.nid.addr_be, 16) != 0);
    node.ni[node.nis++] = *ni;
    return end(done, done_arg, 0);
}

static inline int del_ni(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                         struct err *err)
{
    int i = find(ni);

    if (fails(err))
        return -EBUSY;
    assert_true(i >= 0);
    node.ni[i] = node.ni[--node.nis];
    return end(done, done_arg, 0);
}

static inline int set_ni(void *arg, const struct cfg_ni *ni, struct err *err)
{
    int i = find(ni);

    if (fails(err))
        return -EINVAL;
    assert_true(i >= 0);
    node.ni[i].conf.lnd_tun = ni->conf.lnd_tun;
    return 0;
}

static inline int find_route(const struct lnet_route_conf *conf)
{
    unsigned i;

    for (i = 0; i < node.routes; i++)
        if (node.route[i].net == conf->net && nid_same(&node.route[i].gateway, &conf->gateway))
            return (int)i;
    return -1;
}

static inline int change_routes(void *arg, const struct lnet_route_conf *del, unsigned ndel,
                                const struct lnet_route_conf *add, unsigned nadd, struct err *err)
{
    unsigned i;

    if (fails(err))
        return -EHOSTUNREACH;
    for (i = 0; i < ndel; i++) {
        int at = find_route(&del[i]);

        assert_true(at >= 0);
        node.route[at] = node.route[--node.routes];
    }
    for (i = 0; i < nadd; i++) {
        assert_int_equal(find_route(&add[i]), -1);
        assert_false(local(add[i].net));
        assert_true(local(nid_net(&add[i].gateway)));
        node.route[node.routes++] = add[i];
    }
    return 0;
}

static inline int find_peer(const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < node.peers; i++)
        if (nid_same(&node.peer[i].nid, nid))
            return (int)i;
    return -1;
}

static inline void set_peer_flags(const struct lnet_nid *primary, bool multi_rail, bool lock)
{
    for (unsigned i = 0; i < node.peers; i++)
        if (nid_same(&node.peer[i].primary, primary)) {
            node.peer[i].multi_rail = multi_rail;
            node.peer[i].lock_primary = lock;
        }
}

/* A peer goes with its primary NID, which is its last. */
static inline void change_peer(const struct lnet_peer_op *op, bool undo)
{
    int at = find_peer(&op->nid);

    if (op->kind == LNET_PEER_SET) {
        assert_true(at >= 0);
        set_peer_flags(&op->primary, undo ? op->was_multi_rail : op->multi_rail,
                       undo ? op->was_lock_primary : op->lock_primary);
    } else if ((op->kind == LNET_PEER_ADD) != undo) {
        assert_int_equal(at, -1);
        assert_true(nid_same(&op->nid, &op->primary) || find_peer(&op->primary) >= 0);
        node.peer[node.peers++] = *op;
    } else {
        assert_true(at >= 0 && nid_same(&node.peer[at].primary, &op->primary));
        node.peer[at] = node.peer[--node.peers];
        for (unsigned i = 0; i < node.peers && nid_same(&op->nid, &op->primary); i++)
            assert_false(nid_same(&node.peer[i].primary, &op->primary));
    }
}

static inline int change_peers(void *arg, const struct lnet_peer_op *peer_ops, unsigned n,
                               bool undo, cfg_done_fn done, void *done_arg, struct err *err)
{
    if (fails(err))
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        change_peer(&peer_ops[undo ? n - 1 - i : i], undo);
    return end(done, done_arg, 0);
}

static inline int set_part(void *arg, enum cfg_part part, const struct cfg *to, struct err *err)
{
    if (fails(err))
        return -EINVAL;
    switch (part) {
    case CFG_PART_ROUTING:
        node.routing = to->routing;
        break;
    case CFG_PART_TIMING:
        node.check_interval = to->check_interval;
        node.ping_timeout = to->ping_timeout;
        node.source_check = to->source_check;
        break;
    case CFG_PART_ADMISSION:
        node.egress_share = to->egress_share;
        node.buffer_wait = to->buffer_wait;
        break;
    case CFG_PART_DISCOVERY:
        node.discovery = to->discovery;
        break;
    case CFG_PART_LOG:
        node.log_level = to->log_level;
        break;
    default:
        node.drain = to->drain;
        break;
    }
    return 0;
}

/* Defaults of the driver. */
static inline void see_ni(void *arg, struct cfg_ni *ni)
{
    ni->live = (struct cfg_ni_live){
        .known = true, .nid = ni->conf.nid, .tun = ni->conf.tun, .lnd_tun = ni->conf.lnd_tun};
    if (ni->live.tun.credits == -1)
        ni->live.tun.credits = 256;
    if (ni->live.lnd_tun.timeout == -1)
        ni->live.lnd_tun.timeout = 50;
}

static inline void set_timer(void *arg, unsigned seconds)
{
    node.timer = seconds;
}

static inline unsigned timer_left(void *arg)
{
    return node.timer;
}

static inline void changed(void *arg, const char *type, const char *cause, const char *text)
{
    snprintf(node.event, sizeof(node.event), "%s", type);
    snprintf(node.cause, sizeof(node.cause), "%s", cause);
    node.events++;
}

static const struct cfg_ops ops = {set_buffers,   add_ni,       del_ni,   set_ni,
                                   change_routes, change_peers, set_part, see_ni,
                                   set_timer,     timer_left,   changed};

static inline void put_peer(const struct cfg_peer *peer, const struct lnet_nid *nid)
{
    node.peer[node.peers++] = (struct lnet_peer_op){.primary = peer->primary,
                                                    .nid = *nid,
                                                    .multi_rail = peer->multi_rail,
                                                    .lock_primary = peer->lock_primary};
}

/* What a document makes of a node. */
static inline void start_model(const struct cfg *cfg)
{
    unsigned i;

    memset(&node, 0, sizeof(node));
    for (i = 0; i < cfg->ni_count; i++)
        node.ni[node.nis++] = cfg->ni[i];
    for (i = 0; i < cfg->route_count; i++)
        node.route[node.routes++] = cfg->route[i].conf;
    for (i = 0; i < cfg->peer_count; i++)
        for (unsigned j = 0; j < cfg->peer[i].nid_count; j++)
            put_peer(&cfg->peer[i], &cfg->peer[i].nid[j]);
    node.pools[0] = cfg->tiny;
    node.pools[1] = cfg->small;
    node.pools[2] = cfg->large;
    node.routing = cfg->routing;
    node.discovery = cfg->discovery;
    node.check_interval = cfg->check_interval;
    node.ping_timeout = cfg->ping_timeout;
    node.source_check = cfg->source_check;
    node.egress_share = cfg->egress_share;
    node.buffer_wait = cfg->buffer_wait;
    node.log_level = cfg->log_level;
    node.drain = cfg->drain;
}

static inline void are_peers_of(const struct cfg *cfg)
{
    unsigned n = 0;

    for (unsigned i = 0; i < cfg->peer_count; i++)
        for (unsigned j = 0; j < cfg->peer[i].nid_count; j++) {
            const struct cfg_peer *peer = &cfg->peer[i];
            int at = find_peer(&peer->nid[j]);

            assert_true(at >= 0 && nid_same(&node.peer[at].primary, &peer->primary));
            assert_int_equal(node.peer[at].multi_rail, peer->multi_rail);
            assert_int_equal(node.peer[at].lock_primary, peer->lock_primary);
            n++;
        }
    assert_int_equal(node.peers, n);
}

static inline void is_model_of(const struct cfg *cfg)
{
    unsigned i;

    assert_int_equal(node.nis, cfg->ni_count);
    for (i = 0; i < cfg->ni_count; i++) {
        int at = find(&cfg->ni[i]);
        int credits = cfg->ni[i].conf.tun.credits, timeout = cfg->ni[i].conf.lnd_tun.timeout;

        assert_true(at >= 0);
        /* a default and what it stands for are the same */
        assert_true(node.ni[at].conf.tun.credits == credits || credits == -1 ||
                    (node.ni[at].conf.tun.credits == -1 && credits == 256));
        assert_true(node.ni[at].conf.lnd_tun.timeout == timeout || timeout == -1 ||
                    (node.ni[at].conf.lnd_tun.timeout == -1 && timeout == 50));
    }
    assert_int_equal(node.routes, cfg->route_count);
    for (i = 0; i < cfg->route_count; i++) {
        int at = find_route(&cfg->route[i].conf);

        assert_true(at >= 0);
        assert_int_equal(node.route[at].hops, cfg->route[i].conf.hops);
        assert_int_equal(node.route[at].priority, cfg->route[i].conf.priority);
    }
    assert_int_equal(node.pools[0], cfg->tiny);
    assert_int_equal(node.pools[1], cfg->small);
    assert_int_equal(node.pools[2], cfg->large);
    assert_int_equal(node.routing, cfg->routing);
    assert_int_equal(node.discovery, cfg->discovery);
    are_peers_of(cfg);
    assert_int_equal(node.check_interval, cfg->check_interval);
    assert_int_equal(node.ping_timeout, cfg->ping_timeout);
    assert_int_equal(node.source_check, cfg->source_check);
    assert_int_equal(node.egress_share, cfg->egress_share);
    assert_int_equal(node.buffer_wait, cfg->buffer_wait);
    assert_int_equal(node.log_level, cfg->log_level);
    assert_int_equal(node.drain, cfg->drain);
}

/* ---- documents by chance ---- */

static uint32_t seed;

static inline unsigned draw(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static inline struct lnet_nid nid_of(lnet_net_t net, unsigned host)
{
    uint8_t addr[4] = {10, 0, 0, (uint8_t)host};

    return nid_make(net, addr, 4);
}

#define NETS 5
static inline lnet_net_t net_of(unsigned n)
{
    return LNET_NET(LNET_LND_SOCK, n);
}

static inline bool has_net(const struct cfg *cfg, lnet_net_t net)
{
    unsigned i;

    for (i = 0; i < cfg->ni_count; i++)
        if (cfg->ni[i].conf.net == net)
            return true;
    return false;
}

static inline void draw_nis(struct cfg *cfg)
{
    unsigned n = 1 + draw(4), host;

    for (host = 1; host <= n; host++) { /* each address at most once */
        struct cfg_ni ni = {.conf = {.net = net_of(draw(NETS)),
                                     .tun = {-1, -1, -1, -1},
                                     .lnd_tun = LND_TUNABLES_DEFAULT}};
        static const int credits[] = {-1, 128, 256}, timeouts[] = {-1, 20, 50};

        memset(&ni.kept, 0xff, sizeof(ni.kept));
        ni.kept.traffic_class[0] = '\0';
        ni.conf.nid = nid_of(ni.conf.net, host);
        ni.conf.tun.credits = credits[draw(3)];
        ni.conf.lnd_tun.timeout = timeouts[draw(3)];
        assert_true(cfg_append(cfg, CFG_NIS, &ni));
    }
}

static inline void draw_routes(struct cfg *cfg)
{
    unsigned n = draw(12), i;

    for (i = 0; i < n; i++) {
        struct cfg_route route = {.conf = {.net = net_of(draw(NETS + 3)), .hops = -1}};
        lnet_net_t via = cfg->ni[draw(cfg->ni_count)].conf.net;

        route.conf.gateway = nid_of(via, 100 + draw(3));
        route.conf.priority = draw(2);
        if (!has_net(cfg, route.conf.net) &&
            !cfg_find_route(cfg, route.conf.net, &route.conf.gateway))
            assert_true(cfg_append(cfg, CFG_ROUTES, &route));
    }
}

/* Up to three peers, who may have had each other's NIDs in another document. */
static inline void draw_peers(struct cfg *cfg)
{
    bool used[8] = {false};

    for (unsigned i = 0; i < 3; i++) {
        unsigned n = draw(8);
        struct lnet_nid nid = nid_of(net_of(0), 50 + n);
        struct cfg_peer *peer;

        if (used[n] || draw(3) == 0)
            continue;
        used[n] = true;
        peer = cfg_add_peer(cfg, &nid, draw(4) != 0, 0);
        assert_true(peer && cfg_peer_add_nid(peer, &nid));
        peer->lock_primary = draw(2) != 0;
        for (unsigned j = draw(3); peer->multi_rail && j > 0; j--) {
            n = draw(8);
            nid = nid_of(net_of(0), 50 + n);
            if (!used[n])
                assert_true(cfg_peer_add_nid(peer, &nid));
            used[n] = true;
        }
    }
}

static inline struct cfg *draw_document(void)
{
    static const int pools[] = {0, 100, 2048, 20000};
    struct cfg *cfg = cfg_new();
    struct cfg_report report;

    assert_non_null(cfg);
    draw_nis(cfg);
    draw_routes(cfg);
    cfg->tiny = pools[draw(4)];
    cfg->small = pools[draw(4)];
    cfg->large = pools[draw(4)];
    cfg->routing = (int)draw(2);
    cfg->check_interval = 60 + (int)draw(2);
    cfg->source_check = (int)draw(3);
    cfg->egress_share = 50 + (int)draw(2);
    cfg->log_level = (int)draw(4);
    cfg->drain = (int)draw(3);
    cfg->retry_count = (int)draw(3);
    cfg->discovery = (int)draw(2);
    draw_peers(cfg);
    if (cfg_validate("drawn", cfg, &report) != 0)
        fail_msg("%s", report.message[0].text);
    cfg_report_free(&report);
    return cfg;
}

/* ---- changes ---- */

static struct cfg_outcome outcome;
static unsigned outcomes;
static char outcome_err[CFG_ERR_SIZE];

static inline void note(void *arg, const struct cfg_outcome *o)
{
    outcome = *o;
    snprintf(outcome_err, sizeof(outcome_err), "%s", o->err ? o->err->message : "");
    outcomes++;
}

static inline int change(struct cfg_running *r, const struct cfg *to, unsigned confirm_s)
{
    unsigned before = outcomes;

    cfg_running_change(r, cfg_copy(to), confirm_s, "test", note, NULL);
    deliver();
    assert_int_equal(outcomes, before + 1);
    return outcome.rc;
}

static inline struct cfg_running *start(const struct cfg *cfg)
{
    struct cfg_running *r = cfg_running_new(cfg_copy(cfg), NULL);

    assert_non_null(r);
    start_model(cfg);
    cfg_running_started(r, &ops, NULL);
    return r;
}

static inline void is_same(const struct cfg *a, const struct cfg *b)
{
    struct cfg_diff diff;
    char *text;

    cfg_diff_make(a, b, &diff);
    assert_false(diff.failed);
    text = cfg_diff_text(&diff);
    if (diff.count)
        fail_msg("they differ:\n%s", text);
    free(text);
    cfg_diff_free(&diff);
}

#endif
