/* SPDX-License-Identifier: BSD-3-Clause */
/* Both lists are short. */
#include "control/absent.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "lib/log/log.h"

struct absent_ni {
    struct lnet_ni_conf conf;
    char why[768]; /* message and remedy */
};

struct control_absent {
    struct absent_ni *ni;
    unsigned nis;
    struct lnet_route_conf *route;
    unsigned routes;
};

bool control_absent_may(lnet_net_t net, int rc)
{
    const struct lnd_type *type = lnd_type_of(net);

    return type && type->device_may_lack && (rc == -ENODEV || rc == -EADDRNOTAVAIL);
}

static struct control_absent *lists(struct controller *c)
{
    if (!c->absent)
        c->absent = calloc(1, sizeof(*c->absent));
    return c->absent;
}

/* ---- NIs ---- */

static bool same(const struct lnet_ni_conf *x, const struct lnet_ni_conf *y)
{
    return x->net == y->net && nid_same(&x->nid, &y->nid) && strcmp(x->ifname, y->ifname) == 0;
}

static unsigned find(const struct controller *c, const struct lnet_ni_conf *conf)
{
    unsigned i = 0;

    while (c->absent && i < c->absent->nis && !same(&c->absent->ni[i].conf, conf))
        i++;
    return i;
}

bool control_absent_is(const struct controller *c, const struct lnet_ni_conf *conf)
{
    return c->absent && find(c, conf) < c->absent->nis;
}

const struct lnet_ni_conf *control_absent_at(const struct controller *c, unsigned index,
                                             const char **why)
{
    if (!c->absent || index >= c->absent->nis)
        return NULL;
    *why = c->absent->ni[index].why;
    return &c->absent->ni[index].conf;
}

int control_absent_add(struct controller *c, const struct lnet_ni_conf *conf, const struct err *why)
{
    struct control_absent *a = lists(c);
    struct absent_ni *grown = a ? realloc(a->ni, (a->nis + 1) * sizeof(*grown)) : NULL;

    if (!grown)
        return -ENOMEM;
    a->ni = grown;
    a->ni[a->nis].conf = *conf;
    snprintf(a->ni[a->nis].why, sizeof(a->ni[a->nis].why), "%s%s%s", why->message,
             why->remedy[0] ? "; " : "", why->remedy);
    a->nis++;
    control_happened(c, &(struct control_event){.type = "ni_absent",
                                                .cause = "no device",
                                                .text = a->ni[a->nis - 1].why,
                                                .ni = conf});
    return 0;
}

bool control_absent_del(struct controller *c, const struct lnet_ni_conf *conf)
{
    struct control_absent *a = c->absent;
    unsigned i = find(c, conf);

    if (!a || i == a->nis)
        return false;
    memmove(&a->ni[i], &a->ni[i + 1], (--a->nis - i) * sizeof(*a->ni));
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
    for (unsigned i = 0; c->absent && i < c->absent->nis; i++)
        if (c->absent->ni[i].conf.net == net)
            return !has_ni(c, net);
    return false;
}

/* ---- routes ---- */

static bool same_route(const struct lnet_route_conf *x, const struct lnet_route_conf *y)
{
    return x->net == y->net && nid_same(&x->gateway, &y->gateway);
}

int control_absent_route(struct controller *c, const struct lnet_route_conf *route)
{
    struct control_absent *a = lists(c);
    struct lnet_route_conf *grown = a ? realloc(a->route, (a->routes + 1) * sizeof(*grown)) : NULL;

    if (!grown)
        return -ENOMEM;
    a->route = grown;
    a->route[a->routes++] = *route;
    return 0;
}

static void take_route(struct control_absent *a, unsigned i)
{
    memmove(&a->route[i], &a->route[i + 1], (--a->routes - i) * sizeof(*a->route));
}

bool control_absent_route_del(struct controller *c, const struct lnet_route_conf *route)
{
    struct control_absent *a = c->absent;

    for (unsigned i = 0; a && i < a->routes; i++)
        if (same_route(&a->route[i], route)) {
            take_route(a, i);
            return true;
        }
    return false;
}

void control_absent_routes_back(struct controller *c, lnet_net_t net)
{
    struct control_absent *a = c->absent;
    struct err err = {0};
    unsigned i = 0;

    while (a && i < a->routes) {
        if (nid_net(&a->route[i].gateway) != net) {
            i++;
            continue;
        }
        if (lnet_route_add(c->node, &a->route[i], &err) != 0)
            log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "route", LOG_S("msg", err.message));
        take_route(a, i);
    }
}

void control_absent_clear(struct controller *c)
{
    if (!c->absent)
        return;
    free(c->absent->ni);
    free(c->absent->route);
    free(c->absent);
    c->absent = NULL;
}
