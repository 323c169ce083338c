/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of any length are compared in sorted order. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"
#include "control/diff.h"

const char *const cfg_action_names[] = {"add", "del", "set", NULL};
const char *const cfg_what_names[] = {"setting",   "ni",   "route", "peer",   "udsp",
                                      "hello_map", "name", "port",  "access", NULL};

/* Returns the new change; NULL: out of memory. */
static struct cfg_change *add(struct cfg_diff *d, enum cfg_action action, enum cfg_what what,
                              unsigned a, unsigned b)
{
    struct cfg_change *grown = d->change;

    if (!d->failed && (d->count & (d->count + 1)) == 0)
        grown = realloc(grown, (2 * (size_t)d->count + 1) * sizeof(*grown));
    if (d->failed || !grown) {
        d->failed = true;
        return NULL;
    }
    d->change = grown;
    grown[d->count] = (struct cfg_change){.action = action, .what = what, .a = a, .b = b};
    return &grown[d->count++];
}

static void set_key(struct cfg_change *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void set_key(struct cfg_change *c, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(c->key, sizeof(c->key), fmt, args);
    va_end(args);
}

static void set_text(struct cfg_diff *d, char **to, const char *text)
{
    *to = strdup(text);
    d->failed |= !*to;
}

/* ---- settings ---- */

static void diff_settings(struct cfg_diff *d, const struct cfg *a, const struct cfg *b)
{
    struct cfg_setting setting;
    char text[CFG_MAX_VALUE];
    struct cfg_change *c;

    for (unsigned i = 0; cfg_setting_at(i, &setting); i++) {
        if (cfg_setting_same(&setting, a, b))
            continue;
        c = add(d, CFG_SET, CFG_OF_SETTING, i, i);
        if (!c)
            return;
        set_key(c, "%s", setting.path);
        set_text(d, &c->from, cfg_setting_text(&setting, a, text));
        set_text(d, &c->to, cfg_setting_text(&setting, b, text));
        c->applies = setting.applies;
        c->kept = setting.kept;
    }
}

/* ---- NIs ---- */

static const char *ni_name(const struct cfg_ni *ni, char buf[96])
{
    char net[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE];

    if (ni->conf.ifname[0] && nid_is_any(&ni->conf.nid))
        snprintf(buf, 96, "net[%s %s]", net_format(ni->conf.net, net), ni->conf.ifname);
    else
        snprintf(buf, 96, "net[%s %s]", net_format(ni->conf.net, net),
                 nid_format(&ni->conf.nid, nid));
    return buf;
}

/* The NIs that are compared: number i of the first document, j of the second. */
struct ni_pair {
    unsigned i, j;
    const struct cfg_ni *x, *y;
};

static void ni_set(struct cfg_diff *d, const struct ni_pair *p, const char *key, const char *from,
                   const char *to, enum cfg_applies applies, bool kept)
{
    struct cfg_change *c = add(d, CFG_SET, CFG_OF_NI, p->i, p->j);
    char name[96];

    if (!c)
        return;
    set_key(c, "%s.%s", ni_name(p->x, name), key);
    set_text(d, &c->from, from);
    set_text(d, &c->to, to);
    c->applies = applies;
    c->kept = kept;
}

static void diff_tunable(struct cfg_diff *d, const struct ni_pair *p, const char *name,
                         const struct cfg_key *key)
{
    int x = *(const int *)cfg_field(key, p->x), y = *(const int *)cfg_field(key, p->y);
    const int *x_live = cfg_ni_live(key, p->x), *y_live = cfg_ni_live(key, p->y);
    bool kept = !cfg_ni_acts_on(key, p->x);
    char from[24], to[24];

    if (x == y || (x == -1 && x_live && *x_live == y) || (y == -1 && y_live && *y_live == x))
        return;
    snprintf(from, sizeof(from), "%d", x);
    snprintf(to, sizeof(to), "%d", y);
    /* Only a new start of the NI gives the default of the driver. */
    ni_set(d, p, name, from, to,
           kept      ? CFG_AT_ONCE
           : y == -1 ? CFG_NI_RESTART
                     : key->applies,
           kept);
}

static void diff_tunables(struct cfg_diff *d, const struct ni_pair *p, const char *section,
                          const struct cfg_key *key)
{
    char name[CFG_MAX_PATH];

    for (; key->name; key++) {
        const char *x = cfg_field(key, p->x), *y = cfg_field(key, p->y);

        snprintf(name, sizeof(name), "%s.%s", section, key->name);
        if (cfg_is_setting(key) && key->kind != CFG_TEXT)
            diff_tunable(d, p, name, key);
        else if (key->kind == CFG_TEXT && strcmp(x, y) != 0)
            ni_set(d, p, name, x, y, CFG_AT_ONCE, true);
    }
}

static void diff_ni(struct cfg_diff *d, const struct ni_pair *p)
{
    const struct cfg_ni *x = p->x, *y = p->y;
    const char *from_cpt = x->cpt[0] ? x->cpt : "[0]", *to_cpt = y->cpt[0] ? y->cpt : "[0]";

    diff_tunables(d, p, "tunables", cfg_tunables_keys);
    diff_tunables(d, p, "lnd tunables", cfg_lnd_tunables_keys);
    if (strcmp(from_cpt, to_cpt) != 0)
        ni_set(d, p, "CPT", from_cpt, to_cpt, CFG_AT_ONCE, true);
    if (x->conf.ifname[0] && y->conf.ifname[0] && strcmp(x->conf.ifname, y->conf.ifname) != 0)
        ni_set(d, p, "interfaces.0", x->conf.ifname, y->conf.ifname, CFG_NI_RESTART, false);
}

static void ni_whole(struct cfg_diff *d, enum cfg_action action, unsigned i, unsigned j,
                     const struct cfg_ni *ni)
{
    struct cfg_change *c = add(d, action, CFG_OF_NI, i, j);
    char name[96], nid[LNET_NIDSTR_SIZE];

    if (!c)
        return;
    set_key(c, "%s", ni_name(ni, name));
    set_text(d, action == CFG_ADD ? &c->to : &c->from,
             nid_is_any(&ni->conf.nid) ? ni->conf.ifname : nid_format(&ni->conf.nid, nid));
}

static void diff_nis(struct cfg_diff *d, const struct cfg *a, const struct cfg *b)
{
    const struct cfg_ni *there;

    for (unsigned i = 0; i < a->ni_count; i++) {
        there = cfg_find_ni(b, &a->ni[i]);
        if (there)
            diff_ni(d, &(struct ni_pair){i, (unsigned)(there - b->ni), &a->ni[i], there});
        else
            ni_whole(d, CFG_DEL, i, CFG_NONE, &a->ni[i]);
    }
    for (unsigned i = 0; i < b->ni_count; i++)
        if (!cfg_find_ni(a, &b->ni[i]))
            ni_whole(d, CFG_ADD, CFG_NONE, i, &b->ni[i]);
}

/* ---- sorted lists ---- */

/* How the lists of one kind are compared. */
struct kind {
    enum cfg_what what;
    enum cfg_list list;
    bool (*same)(const void *x, const void *y); /* of items with the same identity */
    void (*key)(const void *x, struct cfg_change *c);
    void (*text)(const void *x, FILE *to);
    bool kept;
    enum cfg_applies applies;
};

/* Returns the item as text, to be freed; NULL: out of memory. */
static char *text_of(const struct kind *kind, const void *item)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return NULL;
    kind->text(item, to);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

/* x, y: items of the documents a and b; NULL: none. */
static void list_change(struct cfg_diff *d, const struct kind *kind, const struct cfg *a,
                        const void *x, const struct cfg *b, const void *y)
{
    struct cfg_change *c = add(d,
                               !x   ? CFG_ADD
                               : !y ? CFG_DEL
                                    : CFG_SET,
                               kind->what, x ? cfg_index(a, kind->list, x) : CFG_NONE,
                               y ? cfg_index(b, kind->list, y) : CFG_NONE);

    if (!c)
        return;
    kind->key(x ? x : y, c);
    c->kept = kind->kept;
    c->applies = kind->applies;
    c->from = x ? text_of(kind, x) : NULL;
    c->to = y ? text_of(kind, y) : NULL;
    d->failed |= (x && !c->from) || (y && !c->to);
}

static void diff_list(struct cfg_diff *d, const struct kind *kind, const struct cfg *a,
                      const struct cfg *b)
{
    unsigned m = cfg_count(a, kind->list), n = cfg_count(b, kind->list), i = 0, j = 0;
    const void **x = cfg_sorted(a, kind->list), **y = cfg_sorted(b, kind->list);
    int cmp;

    d->failed |= !x || !y;
    while (!d->failed && (i < m || j < n)) {
        cmp = i == m ? 1 : j == n ? -1 : cfg_order(kind->list, x[i], y[j]);
        if (cmp != 0 || !kind->same(x[i], y[j]))
            list_change(d, kind, a, cmp <= 0 ? x[i] : NULL, b, cmp >= 0 ? y[j] : NULL);
        i += cmp <= 0;
        j += cmp >= 0;
    }
    free(y);
    free(x);
}

static bool route_same(const void *a, const void *b)
{
    const struct cfg_route *x = a, *y = b;

    return x->conf.hops == y->conf.hops && x->conf.priority == y->conf.priority;
}

static void route_key(const void *a, struct cfg_change *c)
{
    const struct cfg_route *x = a;
    char net[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE];

    set_key(c, "route[%s %s]", net_format(x->conf.net, net), nid_format(&x->conf.gateway, nid));
}

static void route_text(const void *a, FILE *to)
{
    const struct cfg_route *x = a;

    fprintf(to, "hop %d priority %u", x->conf.hops, x->conf.priority);
}

static bool peer_same(const void *a, const void *b)
{
    const struct cfg_peer *x = a, *y = b;

    return x->multi_rail == y->multi_rail && x->lock_primary == y->lock_primary &&
           x->nid_count == y->nid_count &&
           (!x->nid_count || memcmp(x->nid, y->nid, x->nid_count * sizeof(*x->nid)) == 0);
}

static void peer_key(const void *a, struct cfg_change *c)
{
    const struct cfg_peer *x = a;
    char nid[LNET_NIDSTR_SIZE];

    set_key(c, "peer[%s]", nid_format(&x->primary, nid));
}

static void peer_text(const void *a, FILE *to)
{
    const struct cfg_peer *x = a;

    fprintf(to, "%u NIDs%s%s", x->nid_count, x->multi_rail ? "" : ", not multi-rail",
            x->lock_primary ? ", primary NID locked" : "");
}

static bool udsp_same(const void *a, const void *b)
{
    const struct cfg_udsp *x = a, *y = b;

    return x->priority == y->priority && x->idx == y->idx;
}

static void udsp_key(const void *a, struct cfg_change *c)
{
    const struct cfg_udsp *x = a;

    set_key(c, "udsp[%s%s%s%s%s]", x->src, x->dst[0] ? " -> " : "", x->dst, x->rte[0] ? " by " : "",
            x->rte);
}

static void udsp_text(const void *a, FILE *to)
{
    const struct cfg_udsp *x = a;

    fprintf(to, "idx %d priority %d", x->idx, x->priority);
}

static bool hello_same(const void *a, const void *b)
{
    return true; /* an entry is all identity */
}

static void hello_key(const void *a, struct cfg_change *c)
{
    const struct cfg_hello *x = a;
    char address[LNET_NIDSTR_SIZE];

    set_key(c, "millrace.hello_map[%s]", nid_format(&x->address, address));
}

static void hello_text(const void *a, FILE *to)
{
    const struct cfg_hello *x = a;
    char nid[LNET_NIDSTR_SIZE];

    fputs(nid_format(&x->nid, nid), to);
}

static bool name_same(const void *a, const void *b)
{
    const struct cfg_name *x = a, *y = b;

    return strcmp(x->host, y->host) == 0;
}

static void name_key(const void *a, struct cfg_change *c)
{
    const struct cfg_name *x = a;
    char nid[LNET_NIDSTR_SIZE];

    set_key(c, "millrace.names[%s]", nid_format(&x->nid, nid));
}

static void name_text(const void *a, FILE *to)
{
    const struct cfg_name *x = a;

    fputs(x->host, to);
}

static bool port_same(const void *a, const void *b)
{
    const struct cfg_port *x = a, *y = b;

    return strcmp(cfg_port_device(x), cfg_port_device(y)) == 0 && x->mtu == y->mtu &&
           x->vlan == y->vlan && x->duplicate_check == y->duplicate_check &&
           x->address_count == y->address_count && x->gateway_count == y->gateway_count &&
           x->route_count == y->route_count &&
           memcmp(x->address, y->address, x->address_count * sizeof(*x->address)) == 0 &&
           memcmp(x->gateway, y->gateway, x->gateway_count * sizeof(*x->gateway)) == 0 &&
           memcmp(x->route, y->route, x->route_count * sizeof(*x->route)) == 0;
}

static void port_key(const void *a, struct cfg_change *c)
{
    const struct cfg_port *x = a;

    set_key(c, "millrace.ports[%s]", x->name);
}

static void port_text(const void *a, FILE *to)
{
    const struct cfg_port *x = a;
    char buf[CFG_PREFIX_SIZE], via[CFG_PREFIX_SIZE];

    fputs(cfg_port_device(x), to);
    if (x->mtu)
        fprintf(to, " mtu %d", x->mtu);
    if (x->vlan)
        fprintf(to, " vlan %d", x->vlan);
    for (unsigned i = 0; i < x->address_count; i++)
        fprintf(to, " %s", cfg_prefix_text(&x->address[i], buf));
    for (unsigned i = 0; i < x->gateway_count; i++)
        fprintf(to, " gateway %s", cfg_addr_text(&x->gateway[i], buf));
    for (unsigned i = 0; i < x->route_count; i++)
        fprintf(to, " route %s via %s", cfg_prefix_text(&x->route[i].to, buf),
                cfg_addr_text(&x->route[i].via, via));
    if (!x->duplicate_check)
        fputs(" without duplicate_check", to);
}

static bool access_same(const void *a, const void *b)
{
    const struct cfg_access *x = a, *y = b;

    return x->kind == y->kind && x->allow == y->allow && x->per == y->per &&
           strcmp(x->from, y->from) == 0 && strcmp(x->to, y->to) == 0 &&
           x->messages == y->messages && x->bandwidth == y->bandwidth &&
           x->connects == y->connects && x->burst_ms == y->burst_ms &&
           strcmp(x->after, y->after) == 0;
}

static void access_key(const void *a, struct cfg_change *c)
{
    const struct cfg_access *x = a;

    set_key(c, "millrace.access[%s]", x->name);
}

static void access_text(const void *a, FILE *to)
{
    static const char *const kinds[] = {"connect", "forward", "limit"};
    const struct cfg_access *x = a;
    bool limit = x->kind == LNET_ACCESS_LIMIT;

    fprintf(to, "%s %s %s%s%s", kinds[x->kind],
            limit ? cfg_per_names[x->per] : cfg_permit_names[x->allow], x->from[0] ? x->from : "*",
            x->kind == LNET_ACCESS_FORWARD ? " -> " : " on ", x->to[0] ? x->to : "*");
    if (x->messages)
        fprintf(to, " %d messages/s", x->messages);
    if (x->bandwidth)
        fprintf(to, " %d MiB/s", x->bandwidth);
    if (x->connects)
        fprintf(to, " %d connects/s", x->connects);
    if (limit)
        fprintf(to, " burst %d ms", x->burst_ms);
    if (x->after[0])
        fprintf(to, ", after %s", x->after);
}

static const struct kind kinds[] = {
    {CFG_OF_ROUTE, CFG_ROUTES, route_same, route_key, route_text, false, CFG_AT_ONCE},
    {CFG_OF_PEER, CFG_PEERS, peer_same, peer_key, peer_text, false, CFG_AT_ONCE},
    {CFG_OF_UDSP, CFG_UDSPS, udsp_same, udsp_key, udsp_text, false, CFG_AT_ONCE},
    {CFG_OF_HELLO, CFG_HELLOS, hello_same, hello_key, hello_text, false, CFG_RESTART},
    {CFG_OF_NAME, CFG_NAMES, name_same, name_key, name_text, false, CFG_AT_ONCE},
    {CFG_OF_ACCESS, CFG_ACCESSES, access_same, access_key, access_text, false, CFG_AT_ONCE},
    {CFG_OF_PORT, CFG_PORTS, port_same, port_key, port_text, false, CFG_RESTART},
};

void cfg_diff_make(const struct cfg *a, const struct cfg *b, struct cfg_diff *out)
{
    memset(out, 0, sizeof(*out));
    diff_nis(out, a, b);
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        diff_list(out, &kinds[i], a, b);
    diff_settings(out, a, b);
}

void cfg_diff_free(struct cfg_diff *diff)
{
    for (unsigned i = 0; i < diff->count; i++) {
        free(diff->change[i].from);
        free(diff->change[i].to);
    }
    free(diff->change);
    memset(diff, 0, sizeof(*diff));
}

static void put_change(FILE *to, const struct cfg_change *c)
{
    static const char signs[] = {'+', '-', '~'};

    fprintf(to, "%c %s", signs[c->action], c->key);
    if (c->action == CFG_SET)
        fprintf(to, ": %s -> %s", c->from, c->to);
    else if (c->what != CFG_OF_NI)
        fprintf(to, ": %s", c->from ? c->from : c->to);
    if (c->kept)
        fprintf(to, "  (kept, not acted on)");
    else if (c->applies != CFG_AT_ONCE)
        fprintf(to, "  (%s)", cfg_applies_name(c->applies));
    putc('\n', to);
}

char *cfg_diff_text(const struct cfg_diff *diff)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return NULL;
    for (unsigned i = 0; i < diff->count; i++)
        put_change(to, &diff->change[i]);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
