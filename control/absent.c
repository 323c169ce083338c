/* SPDX-License-Identifier: BSD-3-Clause */
/* The list is short. */
#include "control/absent.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "lib/base/container.h"
#include "lib/log/log.h"

#define AGAIN_US 2000000 /* between attempts to add absent NIs */

struct control_absent {
    struct controller *c; /* NULL: not watched yet */
    struct reactor_timer timer;
    bool trying;   /* an attempt has not ended */
    unsigned next; /* the NI of the next attempt */
    unsigned count;
    struct absent_ni {
        struct lnet_ni_conf conf;
        char why[768]; /* message and remedy */
    } ni[LNET_MAX_NI];
};

static void set_why(struct absent_ni *ni, const struct err *why)
{
    snprintf(ni->why, sizeof(ni->why), "%s%s%s", why->message, why->remedy[0] ? "; " : "",
             why->remedy);
}

bool control_absent_may(lnet_net_t net, int rc)
{
    const struct lnd_type *type = lnd_type_of(net);

    return type && type->device_may_lack && (rc == -ENODEV || rc == -EADDRNOTAVAIL);
}

static bool same(const struct lnet_ni_conf *x, const struct lnet_ni_conf *y)
{
    return x->net == y->net && nid_same(&x->nid, &y->nid) && strcmp(x->ifname, y->ifname) == 0;
}

/* Returns the absent NI; NULL: it is none. */
static struct absent_ni *find(const struct controller *c, const struct lnet_ni_conf *conf)
{
    for (unsigned i = 0; c->absent && i < c->absent->count; i++)
        if (same(&c->absent->ni[i].conf, conf))
            return &c->absent->ni[i];
    return NULL;
}

bool control_absent_is(const struct controller *c, const struct lnet_ni_conf *conf)
{
    return find(c, conf);
}

const struct lnet_ni_conf *control_absent_at(const struct controller *c, unsigned index,
                                             const char **why)
{
    if (!c->absent || index >= c->absent->count)
        return NULL;
    *why = c->absent->ni[index].why;
    return &c->absent->ni[index].conf;
}

/* ---- taking them when their device comes ---- */

static void gone(void *arg, int rc, const struct err *err)
{
    (void)arg;
    (void)rc;
    (void)err;
}

struct attempt {
    struct controller *c;
    struct lnet_ni_conf conf;
};

static void attempted(void *arg, int rc, const struct err *err)
{
    struct attempt a = *(struct attempt *)arg;
    struct err ignored = {0};
    char nid[LNET_NIDSTR_SIZE];
    const struct lnet_ni *ni;

    (void)err;
    free(arg);
    a.c->absent->trying = false;
    if (rc != 0)
        return;
    ni = control_find_ni(a.c, &a.conf);
    if (!control_absent_del(a.c, &a.conf)) { /* a change has removed it meanwhile */
        if (ni)
            lnet_ni_del(a.c->node, &ni->nid, gone, NULL, &ignored);
        return;
    }
    control_log_lowered(&a.conf, ni);
    control_absent_routes_back(a.c, a.conf.net);
    cfg_running_look(a.c->running);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "ni_came",
              LOG_S("nid", ni ? nid_format(&ni->nid, nid) : NULL),
              LOG_S("interface", a.conf.ifname[0] ? a.conf.ifname : NULL));
}

static void try_next(struct controller *c)
{
    struct control_absent *list = c->absent;
    struct attempt *a = malloc(sizeof(*a));
    struct err why = {0};
    struct absent_ni *ni;

    if (!a)
        return;
    ni = &list->ni[list->next++ % list->count];
    *a = (struct attempt){c, ni->conf};
    list->trying = true;
    if (lnet_ni_add_live(c->node, &a->conf, attempted, a, &why) == 0)
        return;
    list->trying = false;
    free(a);
    set_why(ni, &why);
}

/* Tries one NI. No change may be under way: it could remove the same NI. */
static void again(struct reactor_timer *timer)
{
    struct control_absent *list = container_of(timer, struct control_absent, timer);
    struct controller *c = list->c;
    struct err busy = {0};

    if (list->count && !list->trying && !cfg_running_waiting(c->running) &&
        cfg_running_busy(c->running, &busy) == 0)
        try_next(c);
    reactor_timer_arm(timer, AGAIN_US / (list->count ? list->count : 1));
}

void control_absent_watch(struct controller *c)
{
    if (!c->absent)
        return;
    c->absent->c = c;
    reactor_timer_init(&c->absent->timer, again);
    reactor_timer_arm(&c->absent->timer, AGAIN_US);
}

int control_absent_add(struct controller *c, const struct lnet_ni_conf *conf, const struct err *why)
{
    struct absent_ni *ni;

    if (!c->absent)
        c->absent = calloc(1, sizeof(*c->absent));
    if (!c->absent || c->absent->count == LNET_MAX_NI)
        return -ENOMEM;
    ni = &c->absent->ni[c->absent->count++];
    ni->conf = *conf;
    set_why(ni, why);
    control_happened(c,
                     &(struct control_event){
                         .type = "ni_absent", .cause = "no device", .text = ni->why, .ni = conf});
    return 0;
}

bool control_absent_del(struct controller *c, const struct lnet_ni_conf *conf)
{
    struct absent_ni *ni = find(c, conf);

    if (!ni)
        return false;
    c->absent->count--;
    memmove(ni, ni + 1, (size_t)(&c->absent->ni[c->absent->count] - ni) * sizeof(*ni));
    return true;
}

static bool has_ni(const struct controller *c, lnet_net_t net)
{
    for (unsigned i = 0; i < lnet_ni_count(c->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(c->node, i);

        if (ni && ni->net == net && lnet_ni_is_active(ni))
            return true;
    }
    return false;
}

bool control_absent_net(const struct controller *c, lnet_net_t net)
{
    for (unsigned i = 0; c->absent && i < c->absent->count; i++)
        if (c->absent->ni[i].conf.net == net)
            return !has_ni(c, net);
    return false;
}

void control_absent_routes_back(struct controller *c, lnet_net_t net)
{
    const struct cfg *now = cfg_running_get(c->running), *to = cfg_running_target(c->running);
    struct err err = {0};

    for (unsigned i = 0; c->absent && i < now->route_count; i++) {
        const struct lnet_route_conf *route = &now->route[i].conf;
        int rc = 0;

        if (nid_net(&route->gateway) == net && cfg_find_route(to, route->net, &route->gateway))
            rc = lnet_route_add(c->node, route, &err);
        if (rc != 0 && rc != -EEXIST)
            log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "route", LOG_S("msg", err.message));
    }
}

void control_absent_clear(struct controller *c)
{
    if (c->absent && c->absent->c)
        reactor_timer_cancel(&c->absent->timer);
    free(c->absent);
    c->absent = NULL;
}
