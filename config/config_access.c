/* SPDX-License-Identifier: BSD-3-Clause */
/* Access rules: `millrace: access:`. */
#include "config/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/nid_list.h"
#include "lib/base/minmax.h"

#define BURST_DEFAULT 1000 /* ms */

const char *const cfg_permit_names[] = {"deny", "allow", NULL};
const char *const cfg_per_names[] = {[LNET_ACCESS_PER_NID] = "nid",
                                     [LNET_ACCESS_PER_PREFIX] = "prefix",
                                     [LNET_ACCESS_PER_ALL] = "all",
                                     NULL};

struct access_reader {
    struct cfg_access rule;
    int connect, forward, limit; /* index of the word, -1 = not given */
    char nid[CFG_ACCESS_TEXT], on[CFG_ACCESS_TEXT];
};

#define OF(key, type, member, ...) CFG_FIELD(struct access_reader, key, type, member, ##__VA_ARGS__)
#define RANGES(key, member)        OF(key, CFG_TEXT, member, .max = CFG_ACCESS_TEXT)
#define RATE(key, member, most)    OF(key, CFG_INT, rule.member, .min = 1, .max = (most))

static const struct cfg_key access_keys[] = {
    OF("name", CFG_TEXT, rule.name, .max = LNET_ACCESS_NAME),
    OF("connect", CFG_WORD, connect, .words = cfg_permit_names),
    OF("forward", CFG_WORD, forward, .words = cfg_permit_names),
    OF("limit", CFG_WORD, limit, .words = cfg_per_names),
    RANGES("nid", nid),
    RANGES("on", on),
    RANGES("from", rule.from),
    RANGES("to", rule.to),
    RATE("messages", messages, CFG_MAX_INT),
    RATE("bandwidth", bandwidth, 1 << 20),
    RATE("connects", connects, 1000000),
    OF("burst", CFG_INT, rule.burst_ms, .min = 1, .max = 60000),
    CFG_KEYS_END,
};

/* The key that says what a rule is about; NULL: there is not just one. */
static const char *kind_of(struct access_reader *a)
{
    struct cfg_access *rule = &a->rule;

    if ((a->connect >= 0) + (a->forward >= 0) + (a->limit >= 0) != 1)
        return NULL;
    rule->allow = max(a->connect, a->forward) == 1;
    if (a->limit >= 0) {
        rule->kind = LNET_ACCESS_LIMIT;
        rule->per = (enum lnet_access_per)a->limit;
        return "limit";
    }
    rule->kind = a->connect >= 0 ? LNET_ACCESS_CONNECT : LNET_ACCESS_FORWARD;
    return a->connect >= 0 ? "connect" : "forward";
}

/* Returns what is wrong with the keys of a rule; NULL: nothing. */
static const char *check_keys(const struct access_reader *a)
{
    const struct cfg_access *rule = &a->rule;
    bool rates = rule->messages || rule->bandwidth || rule->connects;

    if (rule->kind == LNET_ACCESS_FORWARD ? a->nid[0] || a->on[0] : rule->from[0] || rule->to[0])
        return "has ranges of another kind of rule; 'forward' has 'from' and 'to', others have "
               "'nid' and 'on'";
    if ((rule->kind == LNET_ACCESS_LIMIT) != rates)
        return "a rule with 'limit', and no other, has 'messages', 'bandwidth' or 'connects'";
    if (rule->kind != LNET_ACCESS_LIMIT && rule->burst_ms)
        return "'burst' belongs to a rule with 'limit'";
    return NULL;
}

static bool check_ranges(struct cfg_reader *r, unsigned line, const char *text)
{
    struct nid_list list;
    struct err err = {0};

    if (cfg_nid_list_parse(text, &list, &err) < 0) {
        cfg_error(r, line, "%s", err.message);
        return false;
    }
    free(list.range);
    return true;
}

void cfg_read_access(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct access_reader a = {.connect = -1, .forward = -1, .limit = -1};
    struct cfg_access *rule = &a.rule, *twin;
    const char *wrong;

    cfg_read_map(r, item, access_keys, &a);
    rule->line = item->line;
    if (!rule->name[0] || (!kind_of(&a) && cfg_mode(r) != CFG_DELETE)) {
        cfg_error(r, item->line,
                  "needs 'name' and one of 'connect', 'forward' and 'limit'; write {name: guests, "
                  "connect: deny, nid: 10.1.*.*@tcp}");
        return;
    }
    wrong = cfg_mode(r) == CFG_DELETE ? NULL : check_keys(&a);
    if (wrong) {
        cfg_error(r, item->line, "%s", wrong);
        return;
    }
    if (rule->kind != LNET_ACCESS_FORWARD) {
        memcpy(rule->from, a.nid, sizeof(rule->from));
        memcpy(rule->to, a.on, sizeof(rule->to));
    }
    if (rule->kind == LNET_ACCESS_LIMIT && !rule->burst_ms)
        rule->burst_ms = BURST_DEFAULT;
    if (!check_ranges(r, item->line, rule->from) || !check_ranges(r, item->line, rule->to))
        return;
    twin = cfg_find(r->cfg, CFG_ACCESSES, rule);
    if (twin && twin->line)
        cfg_error(r, item->line, "a rule on line %u has the name '%s', too", twin->line,
                  rule->name);
    else
        cfg_put(r, CFG_ACCESSES, rule, twin, item->line, "there is no such rule to be removed");
}

/* Notes of each rule which one comes before it, so that another order is another document. */
void cfg_check_access(struct cfg_reader *r)
{
    struct cfg_access *rule = r->cfg->access;
    unsigned limits = 0;

    for (unsigned i = 0; i < r->cfg->access_count; i++) {
        memset(rule[i].after, 0, sizeof(rule[i].after));
        if (i > 0)
            memcpy(rule[i].after, rule[i - 1].name, sizeof(rule[i].after));
        limits += rule[i].kind == LNET_ACCESS_LIMIT;
    }
    if (limits > LNET_ACCESS_LIMITS)
        cfg_error(r, 0, "millrace.access: %u limits are too many; at most %d", limits,
                  LNET_ACCESS_LIMITS);
}

int cfg_access_rules(const struct cfg *cfg, struct lnet_access_rule **out, struct err *err)
{
    struct lnet_access_rule *rules = calloc(cfg->access_count + 1, sizeof(*rules));
    int rc = rules ? 0 : err_set(err, -ENOMEM, "out of memory");

    *out = rules;
    for (unsigned i = 0; rc == 0 && i < cfg->access_count; i++) {
        const struct cfg_access *a = &cfg->access[i];

        rules[i] = (struct lnet_access_rule){
            .kind = a->kind,
            .allow = a->allow,
            .per = a->per,
            .rate = {(uint64_t)a->messages, (uint64_t)a->bandwidth << 20, (uint64_t)a->connects},
            .burst_ms = (unsigned)a->burst_ms};
        memcpy(rules[i].name, a->name, sizeof(rules[i].name));
        rc = cfg_nid_list_parse(a->from, &rules[i].from, err);
        if (rc == 0)
            rc = cfg_nid_list_parse(a->to, &rules[i].to, err);
    }
    return rc;
}

void cfg_access_rules_free(struct lnet_access_rule *rules, unsigned n)
{
    for (unsigned i = 0; rules && i < n; i++) {
        free(rules[i].from.range);
        free(rules[i].to.range);
    }
    free(rules);
}
