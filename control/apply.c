/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of control/running.h on a real node. The argument of each is the struct
 * controller. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/absent.h"
#include "control/controller_internal.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/log/log.h"

static int set_buffers(void *arg, const int totals[LNET_POOLS], struct err *err)
{
    const struct controller *c = arg;
    int rc = lnet_pools_resize(c->node, totals, err);

    if (rc == -ENOMEM)
        err_remedy(err, "give less, or raise `millrace: memory:` in the configuration and restart; "
                        "`millraced --check` shows what fits");
    return rc;
}

struct lnet_ni *control_find_ni(const struct controller *c, const struct lnet_ni_conf *like)
{
    for (unsigned i = 0; i < lnet_ni_count(c->node); i++) {
        struct lnet_ni *ni = lnet_ni_at(c->node, i);

        if (!ni || ni->net != like->net || !lnet_ni_is_active(ni))
            continue;
        if (nid_is_any(&like->nid) ? strcmp(ni->ifname, like->ifname) == 0
                                   : nid_same(&ni->nid, &like->nid))
            return ni;
    }
    return NULL;
}

static struct lnet_ni *find_ni(const struct controller *c, const struct cfg_ni *like)
{
    return control_find_ni(c, &like->conf);
}

void control_log_lowered(const struct lnet_ni_conf *conf, const struct lnet_ni *ni)
{
    char nid[LNET_NIDSTR_SIZE];

    if (!ni || conf->tun.peer_credits <= ni->tun.peer_credits)
        return;
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "peer_credits",
              LOG_S("nid", nid_format(&ni->nid, nid)), LOG_I("configured", conf->tun.peer_credits),
              LOG_I("used", ni->tun.peer_credits), LOG_I("credits", ni->tun.credits),
              LOG_S("msg", "the NI cannot use as many; raise credits or lower peer_credits"));
}

struct adding {
    struct controller *c;
    struct cfg_ni ni;
    cfg_done_fn done;
    void *arg;
};

static void added(void *arg, int rc, const struct err *err)
{
    struct adding a = *(struct adding *)arg;

    free(arg);
    if (rc == 0) {
        control_log_lowered(&a.ni.conf, find_ni(a.c, &a.ni));
        control_absent_routes_back(a.c, a.ni.conf.net);
    }
    a.done(a.arg, rc, err);
}

/* Restores an absent NI when a change is undone. */
static int add_absent(struct controller *c, const struct cfg_ni *ni, cfg_done_fn done,
                      void *done_arg, struct err *err)
{
    int rc = control_absent_add(c, &ni->conf, err);

    if (rc == 0)
        done(done_arg, 0, NULL);
    else
        err_text(err, "out of memory");
    return rc;
}

static int add_ni(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                  struct err *err)
{
    struct controller *c = arg;
    struct adding *a = malloc(sizeof(*a));
    int rc = -ENOMEM;

    if (a) {
        *a = (struct adding){c, *ni, done, done_arg};
        rc = lnet_ni_add_live(c->node, &ni->conf, added, a, err);
    } else {
        err_text(err, "out of memory");
    }
    if (rc != 0)
        free(a);
    if (ni->live.absent && control_absent_may(ni->conf.net, rc))
        rc = add_absent(c, ni, done, done_arg, err);
    return rc;
}

static int del_ni(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                  struct err *err)
{
    struct controller *c = arg;
    const struct lnet_ni *there = find_ni(c, ni);

    if (!there && control_absent_del(c, &ni->conf)) {
        done(done_arg, 0, NULL);
        return 0;
    }
    if (!there)
        return err_set(err, -ENOENT, "there is no such NI");
    return lnet_ni_del(c->node, &there->nid, done, done_arg, err);
}

static int set_ni(void *arg, const struct cfg_ni *ni, struct err *err)
{
    const struct controller *c = arg;
    const struct lnet_ni *there = find_ni(c, ni);

    if (!there && control_absent_is(c, &ni->conf))
        return 0; /* the NI gets these tunables when it is added */
    if (!there)
        return err_set(err, -ENOENT, "there is no such NI");
    return lnet_ni_set(c->node, &there->nid, &ni->conf.lnd_tun, err);
}

/* Copies to out the routes that the node can have, and returns their number. */
static unsigned possible(const struct controller *c, const struct lnet_route_conf *list, unsigned n,
                         struct lnet_route_conf *out)
{
    unsigned m = 0;

    for (unsigned i = 0; i < n; i++)
        if (!control_absent_net(c, nid_net(&list[i].gateway)))
            out[m++] = list[i];
    return m;
}

static bool has_route(const struct lnet_route_row *rows, unsigned n,
                      const struct lnet_route_conf *route)
{
    for (unsigned i = 0; i < n; i++)
        if (rows[i].conf.net == route->net && nid_same(&rows[i].conf.gateway, &route->gateway))
            return true;
    return false;
}

/* Removes from list the routes that the node lacks because they were left out. Returns how many
 * remain, or -ENOMEM. */
static int only_there(const struct controller *c, struct lnet_route_conf *list, unsigned n)
{
    unsigned m = 0, count = lnet_route_rows(c->node, NULL, 0);
    struct lnet_route_row *rows;

    if (!c->absent)
        return (int)n;
    rows = calloc(count + 1, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    count = min(count, lnet_route_rows(c->node, rows, count));
    for (unsigned i = 0; i < n; i++)
        if (has_route(rows, count, &list[i]))
            list[m++] = list[i];
    free(rows);
    return (int)m;
}

static int change_routes(void *arg, const struct lnet_route_conf *del, unsigned ndel,
                         const struct lnet_route_conf *add, unsigned nadd, struct err *err)
{
    const struct controller *c = arg;
    struct lnet_route_conf *some = calloc(ndel + nadd + 1, sizeof(*some));
    int n, rc;

    if (!some)
        return err_set(err, -ENOMEM, "out of memory");
    n = only_there(c, some, possible(c, del, ndel, some));
    if (n < 0)
        rc = err_set(err, n, "out of memory");
    else
        rc = lnet_routes_change(c->node, some, (unsigned)n, some + ndel,
                                possible(c, add, nadd, some + ndel), NULL, err);
    free(some);
    return rc;
}

static int change_peers(void *arg, const struct lnet_peer_op *peer_ops, unsigned n, bool undo,
                        cfg_done_fn done, void *done_arg, struct err *err)
{
    const struct controller *c = arg;

    return lnet_peers_change(c->node, peer_ops, n, undo, done, done_arg, err);
}

/* A peer that the node cannot have does not keep it from running. */
static void peer_begun(void *arg, int rc, const struct err *err)
{
    if (rc != 0)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "peer_refused", LOG_S("msg", err->message));
}

int control_begin_peers(struct lnet_node *node, const struct cfg *cfg, struct err *err)
{
    for (unsigned i = 0; i < cfg->peer_count; i++) {
        const struct cfg_peer *peer = &cfg->peer[i];
        struct lnet_peer_op op[CFG_MAX_PEER_NIDS + 1] = {{.kind = LNET_PEER_ADD,
                                                          .primary = peer->primary,
                                                          .nid = peer->primary,
                                                          .multi_rail = peer->multi_rail,
                                                          .lock_primary = peer->lock_primary}};
        unsigned n = 1;
        int rc;

        for (unsigned j = 0; j < peer->nid_count; j++) {
            if (nid_same(&peer->nid[j], &peer->primary))
                continue;
            op[n] = op[0];
            op[n++].nid = peer->nid[j];
        }
        rc = lnet_peers_change(node, op, n, false, peer_begun, NULL, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int set_timing(const struct controller *c, const struct cfg *to, struct err *err)
{
    struct lnet_timing timing = {.check_interval = (unsigned)to->check_interval,
                                 .ping_timeout = (unsigned)to->ping_timeout,
                                 .max_interfaces = (unsigned)to->max_interfaces,
                                 .source_check = (enum lnet_source_check)to->source_check,
                                 .rules = control_route_rules(to)};

    return lnet_timing_set(c->node, &timing, err);
}

int control_set_health(struct lnet_node *node, const struct cfg *to, struct err *err)
{
    struct lnet_health_rules rules = {.sensitivity = (unsigned)to->health_sensitivity,
                                      .retry_count = (unsigned)to->retry_count,
                                      .transaction_timeout = (unsigned)to->transaction_timeout,
                                      .recovery_limit = (unsigned)to->recovery_limit,
                                      .max_interval = (unsigned)to->max_recovery_ping_interval,
                                      .response_tracking = (unsigned)to->response_tracking};

    return lnet_health_set(node, &rules, err);
}

static void set_log(const struct cfg *to)
{
    for (int i = 0; i < LOG_MODULES; i++)
        log_level_set((enum log_module)i,
                      (enum log_level)(to->log_levels[i] >= 0 ? to->log_levels[i] : to->log_level));
}

int control_set_access(struct lnet_node *node, const struct cfg *to, struct err *err)
{
    struct lnet_access_rule *rules;
    int rc = cfg_access_rules(to, &rules, err);

    if (rc == 0)
        rc = lnet_access_set(node, rules, to->access_count, err);
    cfg_access_rules_free(rules, to->access_count);
    return rc;
}

int control_set_udsp(struct lnet_node *node, const struct cfg *to, struct err *err)
{
    struct lnet_udsp *rules;
    int rc = cfg_udsp_rules(to, &rules, err);

    if (rc == 0)
        rc = lnet_udsp_set(node, rules, to->udsp_count, err);
    free(rules);
    return rc;
}

static int set_part(void *arg, enum cfg_part part, const struct cfg *to, struct err *err)
{
    struct controller *c = arg;
    struct lnet_admission admission = {.egress_share = (unsigned)to->egress_share,
                                       .buffer_wait = (unsigned)to->buffer_wait,
                                       .set_guard = true,
                                       .guard = cfg_guard(to)};

    switch (part) {
    case CFG_PART_ROUTING:
        return lnet_routing_set(c->node, to->routing, err);
    case CFG_PART_TIMING:
        return set_timing(c, to, err);
    case CFG_PART_HEALTH:
        return control_set_health(c->node, to, err);
    case CFG_PART_ADMISSION:
        return lnet_admission_set(c->node, &admission, err);
    case CFG_PART_ACCESS:
        return control_set_access(c->node, to, err);
    case CFG_PART_UDSP:
        return control_set_udsp(c->node, to, err);
    case CFG_PART_DISCOVERY:
        return lnet_discovery_set(c->node, to->discovery, err);
    case CFG_PART_LOG:
        set_log(to);
        return 0;
    default:
        c->drain_s = (unsigned)to->drain;
        return 0;
    }
}

static void see_ni(void *arg, struct cfg_ni *ni)
{
    const struct controller *c = arg;
    const struct lnet_ni *there = find_ni(c, ni);

    ni->live =
        (struct cfg_ni_live){.known = there, .absent = !there && control_absent_is(c, &ni->conf)};
    if (there) {
        ni->live.nid = there->nid;
        ni->live.tun = there->tun;
        ni->live.lnd_tun = there->lnd_tun;
    }
}

static void confirm_over(struct reactor_timer *timer)
{
    struct controller *c = container_of(timer, struct controller, confirm);

    cfg_running_expired(c->running);
}

static void set_timer(void *arg, unsigned seconds)
{
    struct controller *c = arg;

    reactor_timer_cancel(&c->confirm);
    if (!seconds)
        return;
    c->confirm_us = reactor_now_us() + seconds * 1000000ull;
    reactor_timer_arm(&c->confirm, seconds * 1000000ull);
}

static unsigned timer_left(void *arg)
{
    const struct controller *c = arg;
    uint64_t now = reactor_now_us();

    return now < c->confirm_us ? (unsigned)((c->confirm_us - now + 999999) / 1000000) : 0;
}

static void tell(void *arg, const char *type, const char *cause, const char *text)
{
    const struct control_event event = {.type = type, .cause = cause, .text = text};

    control_happened(arg, &event);
}

static const struct cfg_ops ops = {
    .buffers = set_buffers,
    .ni_add = add_ni,
    .ni_del = del_ni,
    .ni_set = set_ni,
    .routes = change_routes,
    .peers = change_peers,
    .set = set_part,
    .live = see_ni,
    .timer = set_timer,
    .timer_left = timer_left,
    .changed = tell,
};

void control_apply_start(struct controller *c)
{
    reactor_timer_init(&c->confirm, confirm_over);
    cfg_running_started(c->running, &ops, c);
}
