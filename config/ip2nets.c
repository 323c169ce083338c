/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ip2nets:` gives a node its NIs by its addresses, so that one file serves many nodes. It is a
 * list (docs/protocol/lnet-core.md §10.7) or the text of the module option (§1.6). A rule makes
 * an NI on each interface that it names, or on each interface with a matching address. In a
 * text, only the first matching rule counts for each net.
 */
#include "config/config_internal.h"
#include "lib/base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "config/expr.h"
#include "config/ip2nets.h"
#include "config/netspec.h"

#define MAX_WORDS 64 /* patterns of a rule */
#define MAX_NETS  64 /* that rules of a text give */

struct words {
    char word[MAX_WORDS][64];
    unsigned count;
};

struct rule {
    struct cfg_ni
        like; /* net, tunables, CPT; the first member, because CFG_NI_TUNING's offsets begin here */
    struct netspec spec; /* interfaces */
    struct words patterns;
};

struct addresses {
    const struct cfg_address *address;
    unsigned count;
    struct cfg_address own[CFG_MAX_ADDRESSES];
};

unsigned ip2nets_addresses(struct cfg_address *out, unsigned max)
{
    struct ifaddrs *all = NULL;
    unsigned count = 0;

    if (getifaddrs(&all) != 0)
        return 0;
    for (struct ifaddrs *one = all; one && count < max; one = one->ifa_next) {
        struct cfg_address *a = &out[count];

        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET ||
            strlen(one->ifa_name) >= sizeof(a->ifname) || one->ifa_flags & IFF_LOOPBACK ||
            !(one->ifa_flags & IFF_UP))
            continue;
        memcpy(a->ifname, one->ifa_name, strlen(one->ifa_name) + 1);
        memcpy(a->addr, &((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr, 4);
        count++;
    }
    freeifaddrs(all);
    return count;
}

/* Takes the addresses that the caller gave, else those of the system. */
static void find_addresses(const struct cfg_reader *r, struct addresses *out)
{
    if (r->from && r->from->address) {
        out->address = r->from->address;
        out->count = r->from->address_count;
    } else {
        out->address = out->own;
        out->count = ip2nets_addresses(out->own, CFG_MAX_ADDRESSES);
    }
}

static bool add_word(struct cfg_reader *r, struct words *words, const char *text, size_t len,
                     unsigned line)
{
    if (words->count == MAX_WORDS || len == 0 || len >= sizeof(words->word[0])) {
        cfg_error(r, line, "'%.*s' is too long or one too many; at most %d of 63 characters",
                  (int)(len < 40 ? len : 40), text, MAX_WORDS);
        return false;
    }
    memcpy(words->word[words->count], text, len);
    words->word[words->count++][len] = '\0';
    return true;
}

/* ---- applying a rule ---- */

static bool matches(struct cfg_reader *r, const struct rule *rule, const uint8_t addr[4])
{
    for (unsigned i = 0; i < rule->patterns.count; i++)
        if (cfg_expr_match(rule->patterns.word[i], addr) == 1)
            return true;
    return false;
}

static void put(struct cfg_reader *r, const struct rule *rule, const char *ifname, const char *cpt)
{
    struct cfg_ni ni = rule->like;

    snprintf(ni.conf.ifname, sizeof(ni.conf.ifname), "%s", ifname);
    if (cpt[0])
        snprintf(ni.cpt, sizeof(ni.cpt), "%s", cpt);
    ni.by_rule = true;
    for (unsigned i = 0; i < r->cfg->ni_count; i++)
        if (r->cfg->ni[i].by_rule && r->cfg->ni[i].line && cfg_same_ni(&r->cfg->ni[i], &ni))
            return; /* two addresses of it match, or two rules */
    cfg_put_ni(r, &ni);
}

static bool check_patterns(struct cfg_reader *r, const struct rule *rule)
{
    for (unsigned i = 0; i < rule->patterns.count; i++) {
        if (cfg_expr_match(rule->patterns.word[i], (const uint8_t[4]){0}) < 0) {
            cfg_error(
                r, rule->like.line,
                "'%s' is no pattern of addresses; write one as in 10.0.[0-3].* or 10.0.0.0/22",
                rule->patterns.word[i]);
            return false;
        }
    }
    return true;
}

/* Puts the NIs of a rule if an address matches. Returns whether one does. */
static bool apply(struct cfg_reader *r, const struct rule *rule, const struct addresses *have)
{
    const struct netspec_interface *one = rule->spec.interface;
    bool any = false;

    for (unsigned i = 0; i < have->count; i++) {
        if (!matches(r, rule, have->address[i].addr))
            continue;
        any = true;
        if (!rule->spec.count)
            put(r, rule, have->address[i].ifname, rule->spec.cpt);
    }
    for (unsigned i = 0; any && i < rule->spec.count; i++)
        put(r, rule, one[i].name, one[i].cpt);
    return any;
}

/* ---- as a list ---- */

/* Whether value is a mapping; example: of one. */
static bool is_map(struct cfg_reader *r, const struct yaml_tree_node *value, const char *example)
{
    if (value->kind != YAML_MAP)
        cfg_error(r, value->line, "must be a mapping of numbers, as in %s", example);
    return value->kind == YAML_MAP;
}

static void rule_interfaces(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct netspec *spec = &((struct rule *)obj)->spec;

    if (!is_map(r, value, "{0: eth0}"))
        return;
    for (const struct yaml_tree_node *entry = value->child; entry; entry = entry->next) {
        if (spec->count == NETSPEC_MAX_INTERFACES) {
            cfg_error(r, entry->line, "is one interface too many; at most %d",
                      NETSPEC_MAX_INTERFACES);
            return;
        }
        spec->count += cfg_read_ifname(r, entry, spec->interface[spec->count].name);
    }
}

static void rule_ranges(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct rule *rule = obj;
    const char *text;

    if (!is_map(r, value, "{0: 10.0.*.*}"))
        return;
    for (const struct yaml_tree_node *entry = value->child; entry; entry = entry->next) {
        text = cfg_scalar(r, entry);
        if (text && !add_word(r, &rule->patterns, text, strlen(text), entry->line))
            return;
    }
}

static const struct cfg_key rule_keys[] = {
    CFG_IGNORES("net-spec"), /* read before */
    CFG_CALLS("interfaces", rule_interfaces),
    CFG_CALLS("ip-range", rule_ranges),
    CFG_NI_TUNING,
    CFG_KEYS_END,
};

static void read_rule(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    const struct addresses *have = obj;
    const struct yaml_tree_node *net = yaml_tree_get(item, "net-spec");
    unsigned errors = r->report->errors;
    struct rule *rule = calloc(1, sizeof(*rule));
    lnet_net_t type;

    if (!rule) {
        cfg_error(r, item->line, "out of memory");
    } else if (!net) {
        cfg_error(r, item->line, "has no 'net-spec'; add one, as in `net-spec: tcp`");
    } else if (cfg_read_named(r, CFG_NET, net, &type)) {
        rule->like = cfg_new_ni(type, item->line);
        cfg_read_map(r, item, rule_keys, rule);
        if (r->report->errors == errors && !rule->patterns.count)
            cfg_error(r, item->line, "has no 'ip-range'; add one, as in {0: 10.0.*.*}");
        if (r->report->errors == errors && check_patterns(r, rule) && type >> 16 != LNET_LND_LO)
            apply(r, rule, have);
    }
    free(rule);
}

/* ---- as text: RULE[;RULE…], a rule: net[(if,…)][,net…] pattern… ---- */

struct text_reader {
    struct rule rule;
    struct addresses have;
    lnet_net_t done[MAX_NETS]; /* nets of rules that matched */
    unsigned done_count;
    unsigned rule_start; /* how many of done are of earlier rules */
};

/* Warns of a net without interface: a kernel node uses its first interface for tcp, not the one
 * that matches. */
static void check_interface(struct cfg_reader *r, const struct text_reader *t, unsigned before)
{
    const struct cfg_ni *ni = before < r->cfg->ni_count ? &r->cfg->ni[before] : NULL;
    char net[LNET_NETSTR_SIZE];

    if (ni && !t->rule.spec.count && ni->conf.net >> 16 == LNET_LND_SOCK &&
        strcmp(ni->conf.ifname, t->have.address[0].ifname) != 0)
        cfg_warning(r, ni->line,
                    "net %s names no interface: it is on %s, whose address matches; a kernel node "
                    "takes its first one, %s; name the one that is meant, as in %s(%s)",
                    net_format(ni->conf.net, net), ni->conf.ifname, t->have.address[0].ifname, net,
                    ni->conf.ifname);
}

static bool text_net(struct cfg_reader *r, struct text_reader *t, lnet_net_t net)
{
    unsigned before = r->cfg->ni_count, i = 0;

    t->rule.like = cfg_new_ni(net, t->rule.like.line);
    while (i < t->rule_start && t->done[i] != net)
        i++;
    if (net >> 16 == LNET_LND_LO || i < t->rule_start)
        return true; /* every node has lo; an earlier rule matched */
    if (t->done_count == MAX_NETS) {
        cfg_error(r, t->rule.like.line, "gives more than %d nets; write fewer", MAX_NETS);
        return false;
    }
    if (!apply(r, &t->rule, &t->have))
        return true;
    t->done[t->done_count++] = net;
    check_interface(r, t, before);
    return true;
}

/* Reads the nets of a rule, and with put_them puts them. The caller first checks all of them
 * without putting any. */
static void text_nets(struct cfg_reader *r, struct text_reader *t, const char *list, bool put_them)
{
    lnet_net_t seen[MAX_NETS];
    struct err err = {0};
    char net[LNET_NETSTR_SIZE];
    unsigned count = 0, i;
    int rc;

    t->rule_start = t->done_count;
    while ((rc = netspec_next(&list, &t->rule.spec, &err)) == 1) {
        for (i = 0; i < count && seen[i] != t->rule.spec.net; i++)
            ;
        if (i < count || count == MAX_NETS) {
            cfg_error(r, t->rule.like.line,
                      "net %s stands twice in one rule, or is one too many; "
                      "remove it",
                      net_format(t->rule.spec.net, net));
            return;
        }
        seen[count++] = t->rule.spec.net;
        if (put_them && !text_net(r, t, t->rule.spec.net))
            return;
    }
    if (rc < 0)
        cfg_error(r, t->rule.like.line, "%s", err.message);
}

/* Patterns follow the first white space that is neither in parentheses nor behind a comma. */
static char *find_patterns(char *text)
{
    bool comma = false;
    int depth = 0;

    for (; *text; text++) {
        if (*text == '(' || *text == ')')
            depth += *text == '(' ? 1 : -1;
        if (strchr(" \t\r", *text)) {
            if (depth <= 0 && !comma)
                return text;
            continue;
        }
        comma = *text == ',';
    }
    return text;
}

static void text_rule(struct cfg_reader *r, struct text_reader *t, char *text)
{
    unsigned errors = r->report->errors;
    char *save = NULL, *patterns;

    text[strcspn(text, "#")] = '\0';
    text += strspn(text, " \t\r");
    if (!*text)
        return;
    patterns = find_patterns(text);
    if (*patterns)
        *patterns++ = '\0';
    t->rule.patterns.count = 0;
    for (char *one = strtok_r(patterns, " \t\r", &save); one; one = strtok_r(NULL, " \t\r", &save))
        if (!add_word(r, &t->rule.patterns, one, strlen(one), t->rule.like.line))
            return;
    if (!t->rule.patterns.count)
        cfg_error(r, t->rule.like.line, "'%.40s' has no pattern of addresses; write `tcp 10.0.*.*`",
                  text);
    else if (check_patterns(r, &t->rule))
        text_nets(r, t, text, false);
    if (r->report->errors == errors)
        text_nets(r, t, text, true);
}

void ip2nets_read_text(struct cfg_reader *r, unsigned line, const char *text)
{
    struct text_reader *t = calloc(1, sizeof(*t));
    char *copy = strdup(text), *rest = copy, *rule;
    unsigned rules = 0;

    if (!t || !copy) {
        cfg_error(r, line, "out of memory");
        goto out;
    }
    t->rule.like.line = line;
    find_addresses(r, &t->have);
    while ((rule = strsep(&rest, ";\n"))) {
        if (++rules > CFG_MAX_RULES) {
            cfg_error(r, line, "has more than %d rules; write fewer", CFG_MAX_RULES);
            break;
        }
        text_rule(r, t, rule);
    }
out:
    free(copy);
    free(t);
}

static void read_list(struct cfg_reader *r, const struct yaml_tree_node *value)
{
    struct addresses *have = calloc(1, sizeof(*have));

    if (!have) {
        cfg_error(r, value->line, "out of memory");
    } else if (value->children > CFG_MAX_RULES && value->kind == YAML_SEQ) {
        cfg_error(r, value->line, "has more than %d rules; write fewer", CFG_MAX_RULES);
    } else {
        find_addresses(r, have);
        cfg_read_items(r, value, &(struct cfg_key)CFG_EACH(NULL, read_rule), have);
    }
    free(have);
}

void cfg_read_ip2nets(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    unsigned before = r->cfg->ni_count, errors = r->report->errors;

    if (yaml_tree_is_null(value))
        return;
    if (value->kind == YAML_SCALAR)
        ip2nets_read_text(r, value->line, value->text);
    else
        read_list(r, value);
    if (r->cfg->ni_count == before && r->report->errors == errors &&
        (!r->from || r->from->mode == CFG_REPLACE))
        cfg_say(r, CFG_IGNORED, value->line, "no rule matches an address of this machine");
}
