/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks that need the whole file. Rules for routes: docs/protocol/lnet-core.md §11. */
#include "config/config_internal.h"
#include "config/expr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cfg_has_net(const struct cfg *cfg, lnet_net_t net)
{
    for (unsigned i = 0; i < cfg->ni_count; i++)
        if (cfg->ni[i].conf.net == net)
            return true;
    return false;
}

/* Knows only the NIDs that the file has: an NI given by its interface gets its NID at the start. */
static bool nid_is_own(const struct cfg *cfg, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < cfg->ni_count; i++)
        if (nid_same(&cfg->ni[i].conf.nid, nid))
            return true;
    return false;
}

const char *cfg_on_line(unsigned line, char buf[32])
{
    if (line)
        snprintf(buf, 32, "on line %u", line);
    return line ? buf : "there";
}

static void check_route(struct cfg_reader *r, const struct cfg_route *route)
{
    char net[LNET_NETSTR_SIZE], gateway[LNET_NIDSTR_SIZE];
    lnet_net_t via = nid_net(&route->conf.gateway);

    net_format(route->conf.net, net);
    nid_format(&route->conf.gateway, gateway);
    if (route->conf.net >> 16 == LNET_LND_LO || nid_is_lo(&route->conf.gateway))
        cfg_error(r, route->line, "route: lo cannot be routed; remove the route");
    else if (via == route->conf.net)
        cfg_error(r, route->line,
                  "route: gateway %s is itself on net %s; name a gateway on a local net", gateway,
                  net);
    else if (cfg_has_net(r->cfg, route->conf.net))
        cfg_error(r, route->line, "route: net %s is local, it needs no route; remove it", net);
    else if (!cfg_has_net(r->cfg, via))
        cfg_error(r, route->line,
                  "route: gateway %s is on no local net; add an NI of that net or another gateway",
                  gateway);
    else if (nid_is_own(r->cfg, &route->conf.gateway))
        cfg_error(r, route->line,
                  "route: gateway %s is this node itself; name the next router on the way",
                  gateway);
}

static void check_repeated_routes(struct cfg_reader *r)
{
    const struct cfg_route *const *sorted =
        (const struct cfg_route *const *)cfg_sorted(r->cfg, CFG_ROUTES);
    char where[32];

    for (unsigned i = 1; sorted && i < r->cfg->route_count; i++)
        if (cfg_order(CFG_ROUTES, sorted[i - 1], sorted[i]) == 0)
            cfg_error(r, sorted[i]->line, "route: the same route is %s; remove one",
                      cfg_on_line(sorted[i - 1]->line, where));
    free((void *)(uintptr_t)sorted);
}

static void check_ni(struct cfg_reader *r, unsigned index)
{
    const struct cfg_ni *ni = &r->cfg->ni[index], *other;
    char nid[LNET_NIDSTR_SIZE], where[32];

    for (unsigned i = 0; i < index; i++) {
        other = &r->cfg->ni[i];
        if (!nid_is_any(&ni->conf.nid) && nid_same(&ni->conf.nid, &other->conf.nid))
            cfg_error(r, ni->line, "net: NID %s is already %s; remove one",
                      nid_format(&ni->conf.nid, nid), cfg_on_line(other->line, where));
        else if (ni->conf.net == other->conf.net && ni->conf.ifname[0] &&
                 strcmp(ni->conf.ifname, other->conf.ifname) == 0 &&
                 (nid_is_any(&ni->conf.nid) || nid_is_any(&other->conf.nid)))
            cfg_error(r, ni->line,
                      "net: interface %s is already %s; remove one or give both "
                      "a nid",
                      ni->conf.ifname, cfg_on_line(other->line, where));
    }
}

static void check_nets(struct cfg_reader *r)
{
    struct cfg *cfg = r->cfg;
    bool several = false;

    if (!cfg->ni_count && r->from && (r->from->may_be_empty || r->from->mode != CFG_REPLACE)) {
        cfg_warning(r, 0, "net: no NI is left");
        return;
    }
    if (!cfg->ni_count) {
        cfg_error(r, 0,
                  "net: no NI is configured; add one, as in "
                  "`net: [{net type: tcp, local NI(s): [{interfaces: {0: eth0}}]}]`");
        return;
    }
    for (unsigned i = 0; i < cfg->ni_count; i++) {
        check_ni(r, i);
        several |= cfg->ni[i].conf.net != cfg->ni[0].conf.net;
    }
    if (cfg->routing && !several)
        cfg_warning(r, 0, "net: there is only one net, so there is nothing to route between");
}

/* ---- peers ---- */

struct peer_nid {
    struct lnet_nid nid;
    const struct cfg_peer *peer;
};

static int peer_nid_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct lnet_nid));
}

/* Lists the NIDs of all peers, each peer's primary NID once. Returns their number. */
static size_t list_peer_nids(const struct cfg *cfg, struct peer_nid *out)
{
    size_t n = 0;

    for (unsigned i = 0; i < cfg->peer_count; i++) {
        const struct cfg_peer *peer = &cfg->peer[i];

        out[n++] = (struct peer_nid){peer->primary, peer};
        for (unsigned j = 0; j < peer->nid_count; j++)
            if (!nid_same(&peer->nid[j], &peer->primary))
                out[n++] = (struct peer_nid){peer->nid[j], peer};
    }
    return n;
}

/* A NID belongs to one peer, §3.6, and a peer with several NIDs is multi-rail. */
static void check_peers(struct cfg_reader *r)
{
    const struct cfg *cfg = r->cfg;
    char nid[LNET_NIDSTR_SIZE], primary[LNET_NIDSTR_SIZE];
    size_t room = cfg->peer_count, n;
    struct peer_nid *all;

    for (unsigned i = 0; i < cfg->peer_count; i++)
        room += cfg->peer[i].nid_count;
    all = calloc(room + 1, sizeof(*all));
    if (!all) {
        cfg_error(r, 0, "out of memory");
        return;
    }
    n = list_peer_nids(cfg, all);
    for (size_t i = 0; i < n; i++)
        if (!all[i].peer->multi_rail && !nid_same(&all[i].nid, &all[i].peer->primary))
            cfg_error(r, all[i].peer->line,
                      "peer %s is not multi-rail and has the further NID %s; remove that NID, or "
                      "'Multi-Rail: false'",
                      nid_format(&all[i].peer->primary, primary), nid_format(&all[i].nid, nid));
    qsort(all, n, sizeof(*all), peer_nid_order);
    for (size_t i = 1; i < n; i++)
        if (nid_same(&all[i].nid, &all[i - 1].nid))
            cfg_error(r, all[i].peer->line, "%s is a NID of two peers; remove one of them",
                      nid_format(&all[i].nid, nid));
    free(all);
}

/* docs/protocol/lnet-core.md §6.1 */
static void check_resends(struct cfg_reader *r)
{
    if (r->cfg->transaction_timeout <= r->cfg->retry_count)
        cfg_error(r, 0, "global: transaction_timeout must be above retry_count; raise it");
    if (r->cfg->health_sensitivity == 0 && r->cfg->retry_count > 0)
        cfg_error(
            r, 0,
            "global: retry_count must be 0 while health_sensitivity is 0; leave it out, or raise "
            "health_sensitivity");
}

void cfg_check(struct cfg_reader *r)
{
    if (r->report->errors)
        return; /* an item may be missing because of such an error */
    check_nets(r);
    for (unsigned i = 0; i < r->cfg->route_count; i++)
        check_route(r, &r->cfg->route[i]);
    check_repeated_routes(r);
    check_peers(r);
    check_resends(r);
    cfg_check_ports(r);
    cfg_check_access(r);
    cfg_check_udsp(r);
    if (r->cfg->min_reconnect > r->cfg->max_reconnect)
        cfg_error(r, 0, "millrace: min_reconnect is above max_reconnect; lower it");
}

/* ---- lists of cores ---- */

/* Reads "2" or "2-5" and marks the cores in seen. Returns how many; 0 when malformed or seen
 * before. */
static unsigned core_range(const char **p, uint8_t seen[1024])
{
    struct cfg_range r;

    if (!cfg_expr_range(p, 1023, &r))
        return 0;
    for (long i = r.lo; i <= r.hi; i++)
        if (seen[i]++)
            return 0;
    return (unsigned)(r.hi - r.lo + 1);
}

/* [CPT:]CORES[,CORES…][;…] */
unsigned cfg_cores_count(const char *cores)
{
    uint8_t seen[1024] = {0};
    unsigned count = 0, n;
    const char *p = cores, *colon;

    if (strchr(cores, '/')) /* no strides */
        return 0;
    for (;;) {
        colon = p + strspn(p, "0123456789");
        if (*colon == ':') {
            if (cfg_expr_number(&p, REACTOR_MAX - 1) < 0)
                return 0;
            p++;
        }
        do {
            n = core_range(&p, seen);
            if (!n)
                return 0;
            count += n;
        } while (*p == ',' && p++);
        if (*p != ';')
            break;
        p++;
    }
    return *p == '\0' && count <= REACTOR_MAX ? count : 0;
}
