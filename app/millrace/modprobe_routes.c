/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Converts the option `routes`, docs/protocol/lnet-core.md §1.6. Rules are separated by ';' or
 * newlines, '#' begins a comment up to the next separator. A rule is NETS [HOPS]
 * GATEWAY[:PRIORITY]…, with ranges in brackets. As in the kernel, the last priority of a rule
 * holds for all of its gateways. A gateway that is this machine adds no route, and neither does
 * a gateway on a net that this machine is not on.
 */
#include "app/millrace/modprobe.h"

#include <errno.h>
#include <stdlib.h>

#include "config/expr.h"

#define MAX_TRIED (4 * CFG_MAX_ROUTES) /* routes of all rules, also those left out */

struct rule {
    struct mp_import *m;
    unsigned line;
    lnet_net_t net[CFG_MAX_ROUTES];
    unsigned net_count;
    struct lnet_nid gateway[CFG_MAX_ROUTES];
    unsigned gateway_count;
    int hops;
    unsigned priority;
    bool has_priority;
    /* of all rules */
    unsigned tried;   /* routes */
    unsigned skipped; /* routes whose gateway is on no net of this machine */
};

/* ---- words of a rule ---- */

/* Reports an error about a token. Returns false. */
static bool fail(struct rule *rule, const char *token, const char *fmt)
{
    cfg_error(&rule->m->r, rule->line, fmt, token);
    return false;
}

static int take_net(void *arg, const char *word)
{
    struct rule *rule = arg;

    if (rule->net_count == CFG_MAX_ROUTES)
        return -E2BIG;
    if (net_parse(word, &rule->net[rule->net_count++]) == 0)
        return 0;
    fail(rule, word,
         "'%.40s' is not a net; write NETS [HOPS] GATEWAYS as in tcp1 10.0.0.[1-3]@tcp");
    return -ECANCELED;
}

static int take_gateway(void *arg, const char *word)
{
    struct rule *rule = arg;

    if (rule->gateway_count == CFG_MAX_ROUTES)
        return -E2BIG;
    if (nid_parse(word, &rule->gateway[rule->gateway_count++]) == 0)
        return 0;
    fail(rule, word,
         "'%.60s' is not a NID; write a gateway as in 10.0.0.1@tcp or 10.0.0.[1-3]@tcp");
    return -ECANCELED;
}

static bool expand(struct rule *rule, const char *token, int (*fn)(void *arg, const char *word))
{
    int rc = cfg_expand(token, fn, rule);

    if (rc == -EINVAL)
        fail(rule, token, "'%.60s' has a range that cannot be read; write [1-3,7] or [2-8/2]");
    else if (rc == -E2BIG)
        fail(rule, token, "'%.60s' stands for too many routes; write smaller ranges");
    return rc == 0;
}

/* Reads nets, separated by commas outside brackets. */
static bool read_nets(struct rule *rule, char *list)
{
    char *p, *start = list;
    int depth = 0;

    for (p = list;; p++) {
        char c = *p;

        depth += (c == '[') - (c == ']');
        if (c && (c != ',' || depth > 0))
            continue;
        *p = '\0';
        if (!expand(rule, start, take_net))
            return false;
        if (!c)
            return true;
        start = p + 1;
    }
}

/* Returns a token as a number from min to max; -1: it is none. */
static long whole_number(const char *token, long min, long max)
{
    size_t len = strspn(token, "0123456789");
    long n = len && len < 11 && !token[len] ? strtol(token, NULL, 10) : -1;

    return n >= min && n <= max ? n : -1;
}

static bool is_number(const char *token)
{
    return token && token[strspn(token, "0123456789")] == '\0';
}

static bool read_gateway(struct rule *rule, char *token)
{
    char *colon = strchr(token, ':');
    long n;

    if (is_number(token))
        return fail(rule, token,
                    "'%.20s' stands among the gateways; write the hops before them, as in tcp1 2 "
                    "10.0.0.1@tcp");
    if (colon && strchr(colon + 1, ':'))
        return fail(rule, token,
                    "'%.60s': this option cannot have IPv6 gateways; write the route under "
                    "`route:`");
    if (colon) {
        *colon = '\0';
        n = whole_number(colon + 1, 0, CFG_MAX_INT);
        if (n < 0)
            return fail(rule, colon + 1,
                        "'%.20s' is not a priority; write a number from 0 to 2147483647");
        if (rule->has_priority && rule->priority != (unsigned)n)
            cfg_warning(&rule->m->r, rule->line,
                        "one rule has priorities %u and %ld: the last one is that of all its "
                        "gateways, as in the kernel; write a rule for each",
                        rule->priority, n);
        rule->priority = (unsigned)n;
        rule->has_priority = true;
    }
    return expand(rule, token, take_gateway);
}

static bool read_words(struct rule *rule, char *text)
{
    char *save = NULL, *token = strtok_r(text, " \t\r", &save);

    if (!read_nets(rule, token))
        return false;
    token = strtok_r(NULL, " \t\r", &save);
    if (is_number(token)) {
        rule->hops = (int)whole_number(token, 1, 255);
        if (rule->hops < 0)
            return fail(rule, token, "'%.20s' hops are out of range; write 1 to 255");
        token = strtok_r(NULL, " \t\r", &save);
    }
    if (!token)
        return fail(rule, "",
                    "a rule names no gateway; write NETS [HOPS] GATEWAYS as in tcp1 10.0.0.1@tcp"
                    "%s");
    for (; token; token = strtok_r(NULL, " \t\r", &save))
        if (!read_gateway(rule, token))
            return false;
    return true;
}

/* ---- its routes ---- */

/* Whether the NID is that of the first address of an interface that an NI is on. */
static bool is_mine(const struct mp_import *m, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < m->r.cfg->ni_count; i++) {
        const struct lnet_ni_conf *ni = &m->r.cfg->ni[i].conf;
        const struct cfg_address *a = m->from.address, *end = a + m->from.address_count;
        struct lnet_nid mine;

        while (a < end && strcmp(a->ifname, ni->ifname) != 0)
            a++;
        if (a == end || !lnd_type_has_ip((uint8_t)(ni->net >> 16)))
            continue;
        mine = nid_make(ni->net, a->addr, 4);
        if (nid_same(&mine, nid))
            return true;
    }
    return false;
}

/* Returns the first route of this gateway, or the end of the list. */
static unsigned first_route(const struct cfg *cfg, const struct lnet_nid *gateway)
{
    unsigned i = 0;

    while (i < cfg->route_count && !nid_same(&cfg->route[i].conf.gateway, gateway))
        i++;
    return i;
}

static bool has_route(const struct cfg *cfg, unsigned from, lnet_net_t net,
                      const struct lnet_nid *gateway)
{
    for (unsigned i = from; i < cfg->route_count; i++)
        if (cfg->route[i].conf.net == net && nid_same(&cfg->route[i].conf.gateway, gateway))
            return true;
    return false;
}

/* Adds a route; those of its gateway begin at `from`. False: the rule is in error.
 * docs/protocol/lnet-core.md §11 "Route add rules" */
static bool add_route(struct rule *rule, unsigned from, lnet_net_t net,
                      const struct lnet_nid *gateway)
{
    struct cfg_reader *r = &rule->m->r;
    struct cfg_route route = {
        .conf = {.net = net, .gateway = *gateway, .hops = rule->hops, .priority = rule->priority},
        .line = rule->line};
    char name[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE];

    if (net >> 16 == LNET_LND_LO || nid_is_lo(gateway)) {
        cfg_error(r, rule->line, "lo cannot be routed; remove it");
        return false;
    }
    if (nid_net(gateway) == net) {
        cfg_error(r, rule->line, "gateway %s is itself on net %s; name one on another net",
                  nid_format(gateway, nid), net_format(net, name));
        return false;
    }
    if (cfg_has_net(r->cfg, net) || has_route(r->cfg, from, net, gateway))
        return true;
    if (!cfg_has_net(r->cfg, nid_net(gateway))) {
        rule->skipped++;
        return true;
    }
    if (cfg_append(r->cfg, CFG_ROUTES, &route))
        return true;
    cfg_error(r, rule->line, "is more than %d routes, or memory is out; write fewer",
              CFG_MAX_ROUTES);
    return false;
}

static void add_routes(struct rule *rule)
{
    unsigned from;

    rule->tried += rule->net_count * rule->gateway_count;
    if (rule->tried > MAX_TRIED) {
        cfg_error(&rule->m->r, rule->line, "stands for more than %d routes; write fewer",
                  MAX_TRIED);
        return;
    }
    for (unsigned j = 0; j < rule->gateway_count; j++) {
        if (is_mine(rule->m, &rule->gateway[j])) {
            rule->m->is_gateway = true;
            continue;
        }
        from = first_route(rule->m->r.cfg, &rule->gateway[j]);
        for (unsigned i = 0; i < rule->net_count; i++)
            if (!add_route(rule, from, rule->net[i], &rule->gateway[j]))
                return;
    }
}

void mp_read_routes(struct mp_import *m, unsigned line, const char *text)
{
    struct rule *rule = calloc(1, sizeof(*rule));
    char *copy = strdup(text), *rest = copy, *one;

    if (!rule || !copy) {
        cfg_error(&m->r, line, "out of memory");
        goto out;
    }
    rule->m = m;
    rule->line = line;
    while ((one = strsep(&rest, ";\n"))) {
        one[strcspn(one, "#")] = '\0';
        if (one[strspn(one, " \t\r")] == '\0')
            continue;
        rule->net_count = rule->gateway_count = 0;
        rule->hops = LNET_HOPS_UNDEFINED;
        rule->priority = 0;
        rule->has_priority = false;
        if (read_words(rule, one))
            add_routes(rule);
        if (rule->tried > MAX_TRIED)
            break;
    }
    if (rule->skipped)
        cfg_say(&m->r, CFG_CHANGED, line,
                "%u routes are left out: this machine is on no net of their gateways, the "
                "kernel leaves them out too",
                rule->skipped);
out:
    free(copy);
    free(rule);
}
