/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection policies: `udsp:`. docs/protocol/lnet-core.md §8. The index of a policy is its place in
 * the list. */
#include "config/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/nid_list.h"
#include "lib/base/minmax.h"

/* ---- one policy ---- */

/* Parses what is given. -EINVAL, with the key. */
static int parse(const struct cfg_udsp *u, struct lnet_udsp *out, struct err *err)
{
    const struct {
        const char *key, *text;
        struct lnet_udsp_nids *to;
    } part[] = {{"src", u->src, &out->src}, {"dst", u->dst, &out->dst}, {"rte", u->rte, &out->rte}};

    *out = (struct lnet_udsp){.priority = u->priority < 0 ? LNET_UDSP_NONE : (uint32_t)u->priority};
    for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++)
        if (part[i].text[0] && cfg_nid_expr_parse(part[i].text, part[i].to, err) < 0) {
            err_where(err, "%s", part[i].key);
            return -EINVAL;
        }
    return 0;
}

static int refuse(struct err *err, const char *key, const char *text)
{
    err_set(err, -EINVAL, "%s", text);
    err_where(err, "%s", key);
    return -EINVAL;
}

int cfg_udsp_settle(struct cfg_udsp *u, struct err *err)
{
    bool one = (u->src[0] != 0) + (u->dst[0] != 0) + (u->rte[0] != 0) == 1;
    struct lnet_udsp rule;
    int rc = parse(u, &rule, err);

    if (rc != 0)
        return rc;
    if (!rule.src.given && !rule.dst.given && !rule.rte.given)
        return refuse(err, "src", "needs one of 'src', 'dst' and 'rte'; add what it is about");
    if (rule.rte.given && (!rule.dst.given || rule.src.given))
        return refuse(err, "rte", "'rte' goes with 'dst', and not with 'src'");
    if (rule.rte.given && !rule.rte.addresses)
        return refuse(err, "rte", "'rte' names NIDs of gateways; for all of a net write *@NET");
    if (!one && rule.src.given && !rule.src.addresses)
        return refuse(err, "src", "'src' with 'dst' names NIDs; for all of a net write *@NET");
    if (!one && u->priority >= 0)
        return refuse(err, "priority", "only a policy with 'src' or 'dst' alone has a priority");
    if (one && u->priority < 0)
        u->priority = 0;
    return 0;
}

/* Sorts the policies of a document by the index that it gives them. A policy of an earlier document
 * moves behind the new one, as in lnetctl. */
int cfg_udsp_add(struct cfg *cfg, const struct cfg_udsp *udsp)
{
    struct cfg_udsp *there = cfg_find(cfg, CFG_UDSPS, udsp), item = *udsp;
    unsigned n = cfg->udsp_count, at = n;

    if (there && there->priority == udsp->priority)
        return -EALREADY;
    if (there) {
        there->priority = udsp->priority;
        return 0;
    }
    if (n == CFG_MAX_UDSP)
        return -ENOSPC;
    if (item.idx < 0)
        item.idx = n > 0 ? max(cfg->udsp[n - 1].idx, (int)n) : 0;
    else
        while (at > 0 && cfg->udsp[at - 1].idx >= item.idx)
            at--;
    if (!cfg_append(cfg, CFG_UDSPS, &item))
        return -ENOMEM;
    memmove(&cfg->udsp[at + 1], &cfg->udsp[at], (n - at) * sizeof(item));
    cfg->udsp[at] = item;
    for (unsigned i = at + 1; i <= n; i++)
        cfg->udsp[i].idx += cfg->udsp[i].line == 0;
    return 0;
}

/* ---- the document ---- */

static const struct cfg_key action_keys[] = {
    CFG_FIELD(struct cfg_udsp, "priority", CFG_INT, priority, .min = -1, .max = CFG_MAX_INT),
    CFG_KEYS_END,
};

static const struct cfg_key udsp_keys[] = {
    CFG_FIELD(struct cfg_udsp, "idx", CFG_INT, idx, .min = -1, .max = CFG_MAX_INT),
    CFG_FIELD(struct cfg_udsp, "src", CFG_TEXT, src, .max = 64),
    CFG_FIELD(struct cfg_udsp, "dst", CFG_TEXT, dst, .max = 64),
    CFG_FIELD(struct cfg_udsp, "rte", CFG_TEXT, rte, .max = 64),
    CFG_READS("action", action_keys),
    CFG_KEYS_END,
};

void cfg_read_udsp(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_udsp udsp = {.idx = -1, .priority = -1, .line = item->line};
    unsigned errors = r->report->errors;
    struct err err = {0};
    int rc;

    cfg_read_map(r, item, udsp_keys, &udsp);
    if (r->report->errors != errors)
        return;
    if (cfg_udsp_settle(&udsp, &err) != 0) {
        cfg_error(r, item->line, "%s", err.message);
        return;
    }
    if (cfg_mode(r) == CFG_DELETE) {
        cfg_put(r, CFG_UDSPS, &udsp, cfg_find(r->cfg, CFG_UDSPS, &udsp), item->line,
                "there is no such policy to be removed");
        return;
    }
    rc = cfg_udsp_add(r->cfg, &udsp);
    if (rc == -ENOSPC)
        cfg_error(r, item->line, "is one policy too many; at most %d", CFG_MAX_UDSP);
    else if (rc == -ENOMEM)
        cfg_error(r, item->line, "out of memory");
}

void cfg_check_udsp(struct cfg_reader *r)
{
    for (unsigned i = 0; i < r->cfg->udsp_count; i++)
        r->cfg->udsp[i].idx = (int)i;
}

int cfg_udsp_rules(const struct cfg *cfg, struct lnet_udsp **out, struct err *err)
{
    int rc;

    *out = calloc(cfg->udsp_count + 1, sizeof(**out));
    rc = *out ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (unsigned i = 0; rc == 0 && i < cfg->udsp_count; i++)
        rc = parse(&cfg->udsp[i], &(*out)[i], err);
    return rc;
}
