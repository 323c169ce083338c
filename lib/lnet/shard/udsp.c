/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/shard/udsp.h"

#include "lib/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(LNET_UDSP_GATEWAYS == LNET_MAX_GATEWAYS, "all of them can be shown");
_Static_assert(LNET_UDSPS % 64 == 0, "whole words");

/* ---- expressions ---- */

bool lnet_udsp_has_net(const struct lnet_udsp_nids *e, lnet_net_t net)
{
    uint32_t number = net & 0xffff;

    if (!e->given || net >> 16 != e->type)
        return false;
    for (unsigned i = 0; i < e->nnumbers; i++)
        if (number >= e->number[i].lo && number <= e->number[i].hi &&
            (number - e->number[i].lo) % e->number[i].stride == 0)
            return true;
    return false;
}

/* Only the first word of a large address is compared with octets and numbers: §8.1. */
bool lnet_udsp_has_nid(const struct lnet_udsp_nids *e, const struct lnet_nid *nid)
{
    struct nid_range range = e->range;
    struct lnet_nid first = *nid;

    if (!e->addresses || !lnet_udsp_has_net(e, nid_net(nid)))
        return false;
    range.net = nid_net(nid);
    if (range.kind == NID_RANGE_PREFIX) {
        range.prefix.num_be = nid->num_be;
        return nid_range_has(&range, nid);
    }
    first.size = 0;
    memset(&first.addr_be[1], 0, sizeof(first.addr_be) - sizeof(first.addr_be[0]));
    return nid_range_has(&range, &first);
}

/* ---- which rule holds ---- */

static bool is_priority(const struct lnet_udsp *r, bool ours)
{
    return r->src.given == ours && r->dst.given == !ours && !r->rte.given;
}

static const struct lnet_udsp_nids *subject(const struct lnet_udsp *r, bool ours)
{
    return ours ? &r->src : &r->dst;
}

uint32_t lnet_udsp_net(const struct lnet_udsps *u, lnet_net_t net, bool ours)
{
    for (unsigned i = 0; u && i < u->n; i++) {
        const struct lnet_udsp *r = &u->rule[i];

        if (is_priority(r, ours) && !subject(r, ours)->addresses &&
            lnet_udsp_has_net(subject(r, ours), net))
            return r->priority;
    }
    return LNET_UDSP_NONE;
}

uint32_t lnet_udsp_nid(const struct lnet_udsps *u, const struct lnet_nid *nid, bool ours)
{
    for (unsigned i = 0; u && i < u->n; i++)
        if (is_priority(&u->rule[i], ours) && lnet_udsp_has_nid(subject(&u->rule[i], ours), nid))
            return u->rule[i].priority;
    return LNET_UDSP_NONE;
}

/* The destination of a rule with two expressions may be a net, with all its peer NIs. */
static bool has_dst(const struct lnet_udsp *r, const struct lnet_nid *nid)
{
    return r->dst.addresses ? lnet_udsp_has_nid(&r->dst, nid)
                            : lnet_udsp_has_net(&r->dst, nid_net(nid));
}

static bool names_ni(const struct lnet_udsp *r, const struct lnet_conf *conf)
{
    for (unsigned i = 0; i < conf->nnis; i++)
        if (lnet_udsp_has_nid(&r->src, &conf->ni[i]->nid))
            return true;
    return false;
}

const struct lnet_udsp *lnet_udsp_pair(const struct lnet_udsps *u, const struct lnet_conf *conf,
                                       const struct lnet_nid *nid)
{
    for (unsigned i = 0; u && i < u->n; i++) {
        const struct lnet_udsp *r = &u->rule[i];

        if (r->src.given && r->dst.given && has_dst(r, nid) && names_ni(r, conf))
            return r;
    }
    return NULL;
}

/* ---- preferred gateways ---- */

static bool bit(const uint64_t *words, unsigned i)
{
    return words[i / 64] >> i % 64 & 1;
}

static void set_bit(uint64_t *words, unsigned i)
{
    words[i / 64] |= 1ull << i % 64;
}

/* Looks at the rules that can match a destination on that net, the lowest index first. */
int lnet_udsp_gateway_rule(const struct lnet_conf *conf, struct lnet_route *const *first,
                           const struct lnet_nid *dest)
{
    const struct lnet_conf_rules *rules = &conf->rules_of[first - conf->route];

    for (unsigned w = 0; w < LNET_UDSP_WORDS; w++)
        for (uint64_t left = rules->word[w]; left; left &= left - 1) {
            unsigned i = 64 * w + (unsigned)__builtin_ctzll(left);

            if (has_dst(&conf->udsps->rule[i], dest))
                return (int)i;
        }
    return -1;
}

/* Lists with each net those rules that name a gateway and may match a destination on that net. */
static int apply_gateways(struct lnet_conf *c)
{
    struct lnet_conf_rules used = {{0}};
    bool any = false;

    for (unsigned i = 0; i < c->udsps->n; i++) {
        const struct lnet_udsp *r = &c->udsps->rule[i];

        for (unsigned k = 0; r->dst.given && r->rte.given && k < c->ngws; k++)
            if (lnet_udsp_has_nid(&r->rte, &c->gw[k].gw->nid)) {
                set_bit(c->gw[k].rules.word, i);
                set_bit(used.word, i);
                any = true;
            }
    }
    if (!any)
        return 0;
    c->rules_of = calloc(c->nroutes + 1, sizeof(*c->rules_of));
    if (!c->rules_of)
        return -ENOMEM;
    for (unsigned i = 0; i < c->nroutes; i++) {
        if (i > 0 && c->route[i]->net == c->route[i - 1]->net)
            continue;
        for (unsigned k = 0; k < c->udsps->n; k++)
            if (bit(used.word, k) && lnet_udsp_has_net(&c->udsps->rule[k].dst, c->route[i]->net))
                set_bit(c->rules_of[i].word, k);
    }
    return 0;
}

/* ---- a snapshot ---- */

static void apply_gw_ni(const struct lnet_conf *c, struct lnet_conf_gw_ni *g)
{
    const struct lnet_udsp *pair = lnet_udsp_pair(c->udsps, c, &g->ni->nid);

    g->priority = lnet_udsp_nid(c->udsps, &g->ni->nid, false);
    for (unsigned i = 0; pair && g->net && i < g->net->nni; i++)
        if (lnet_udsp_has_nid(&pair->src, &g->net->ni[i]->nid))
            g->preferred |= lnet_ni_bit(g->net->ni[i]);
}

int lnet_udsp_apply(struct lnet_conf *c)
{
    for (unsigned i = 0; i < c->nnets; i++)
        c->net[i].priority = lnet_udsp_net(c->udsps, c->net[i].net, true);
    for (unsigned i = 0; i < c->ngws_known; i++)
        for (unsigned k = 0; k < c->gw[i].nnis; k++)
            apply_gw_ni(c, &c->gw[i].ni[k]);
    return c->udsps ? apply_gateways(c) : 0;
}

/* ---- change (control) ---- */

int lnet_udsp_set(struct lnet_node *node, const struct lnet_udsp *rules, unsigned n,
                  struct err *err)
{
    struct lnet_udsps *old = node->udsps, *u = NULL;
    const struct lnet_conf *now = node->conf;
    struct lnet_conf *c;

    if (n > 0) {
        u = malloc(sizeof(*u) + n * sizeof(u->rule[0]));
        if (!u)
            return err_set(err, -ENOMEM, "no memory for %u selection policies", n);
        u->n = n;
        memcpy(u->rule, rules, n * sizeof(u->rule[0]));
    }
    node->udsps = u;
    c = lnet_conf_build(node, now->route, now->nroutes, now->ni, now->nnis);
    if (!c) {
        node->udsps = old;
        free(u);
        return err_set(err, -ENOMEM, "no memory for %u selection policies", n);
    }
    lnet_conf_publish(node, c);
    free(old);
    return 0;
}

void lnet_udsps_fini(struct lnet_node *node)
{
    free(node->udsps);
}

/* ---- observation (control) ---- */

void lnet_udsp_info(const struct lnet_node *node, const struct lnet_nid *nid, bool ours,
                    struct lnet_udsp_info *out)
{
    const struct lnet_conf *c = node->conf;
    const struct lnet_udsp *pair = ours ? NULL : lnet_udsp_pair(c->udsps, c, nid);
    struct lnet_route *const *first;
    int rule = -1;

    out->net_priority = lnet_udsp_net(c->udsps, nid_net(nid), ours);
    out->nid_priority = lnet_udsp_nid(c->udsps, nid, ours);
    out->nsources = out->ngateways = 0;
    for (unsigned i = 0; pair && i < c->nnis; i++)
        if (lnet_udsp_has_nid(&pair->src, &c->ni[i]->nid))
            out->source[out->nsources++] = c->ni[i]->nid;
    if (!ours && lnet_conf_routes(c, nid_net(nid), &first) > 0)
        rule = lnet_conf_gateway_rule(c, first, nid);
    for (unsigned i = 0; rule >= 0 && i < c->ngws; i++)
        if (bit(c->gw[i].rules.word, (unsigned)rule))
            out->gateway[out->ngateways++] = c->gw[i].gw->nid;
}
