/* SPDX-License-Identifier: BSD-3-Clause */
/* The list is short. */
#include "control/absent.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "lib/log/log.h"

struct control_absent {
    unsigned count;
    struct absent_ni {
        struct lnet_ni_conf conf;
        char why[768]; /* message and remedy */
    } ni[LNET_MAX_NI];
};

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

int control_absent_add(struct controller *c, const struct lnet_ni_conf *conf, const struct err *why)
{
    struct absent_ni *ni;

    if (!c->absent)
        c->absent = calloc(1, sizeof(*c->absent));
    if (!c->absent || c->absent->count == LNET_MAX_NI)
        return -ENOMEM;
    ni = &c->absent->ni[c->absent->count++];
    ni->conf = *conf;
    snprintf(ni->why, sizeof(ni->why), "%s%s%s", why->message, why->remedy[0] ? "; " : "",
             why->remedy);
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
    free(c->absent);
    c->absent = NULL;
}
