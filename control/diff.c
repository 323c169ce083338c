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
const char *const cfg_what_names[] = {"setting",   "ni",   "route", "peer", "udsp",
                                      "hello_map", "name", "port",  NULL};

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

static void ni_set(struct cfg_diff *d, unsigned i, const struct cfg_ni *x, unsigned j,
                   const char *key, const char *from, const char *to, enum cfg_applies applies,
                   bool kept)
{
    struct cfg_change *c = add(d, CFG_SET, CFG_OF_NI, i, j);
    char name[96];

    if (!c)
        return;
    set_key(c, "%s.%s", ni_name(x, name), key);
    set_text(d, &c->from, from);
    set_text(d, &c->to, to);
    c->applies = applies;
    c->kept = kept;
}

/* -1 is what the NI really has. */
static bool same_value(int x, bool x_known, int x_live, int y, bool y_known, int y_live)
{
    return x == y || (x == -1 && x_known && x_live == y) || (y == -1 && y_known && y_live == x);
}

struct ni_field {
    const char *key;
    size_t set, live;
    bool live_known;
    enum cfg_applies applies;
};
#define TUN(field)                                                                                 \
    {                                                                                              \
        "tunables." #field, offsetof(struct cfg_ni, conf.tun.field),                               \
            offsetof(struct cfg_ni, live.tun.field), true, CFG_NI_RESTART                          \
    }
#define LND(field)                                                                                 \
    {                                                                                              \
        "lnd tunables." #field, offsetof(struct cfg_ni, conf.lnd_tun.field),                       \
            offsetof(struct cfg_ni, live.lnd_tun.field), true, CFG_NEW_CONNECTIONS                 \
    }
#define KEPT(field)                                                                                \
    {                                                                                              \
        "lnd tunables." #field, offsetof(struct cfg_ni, kept.field), 0, false, CFG_AT_ONCE         \
    }
static const struct ni_field ni_fields[] = {
    TUN(peer_timeout),   TUN(peer_credits), TUN(credits), TUN(peer_buffer_credits),
    LND(conns_per_peer), LND(timeout),      LND(tos),
};
static const struct ni_field kept_fields[] = {
    KEPT(auth_key),
    KEPT(traffic_class_num),
};

static int field(const struct cfg_ni *ni, size_t offset)
{
    int n;

    memcpy(&n, (const char *)ni + offset, sizeof(n));
    return n;
}

/* The NIs that are compared: number i of the first document, j of the second. */
struct ni_pair {
    unsigned i, j;
    const struct cfg_ni *x, *y;
};

static void diff_field(struct cfg_diff *d, const struct ni_pair *p, const struct ni_field *row)
{
    const struct cfg_ni *x = p->x, *y = p->y;
    int xs = field(x, row->set), ys = field(y, row->set);
    char from[24], to[24];

    if (same_value(xs, row->live_known && x->live.known, field(x, row->live), ys,
                   row->live_known && y->live.known, field(y, row->live)))
        return;
    snprintf(from, sizeof(from), "%d", xs);
    snprintf(to, sizeof(to), "%d", ys);
    /* Only a new start of the NI gives the default of the driver. */
    ni_set(d, p->i, x, p->j, row->key, from, to,
           !row->live_known ? CFG_AT_ONCE
           : ys == -1       ? CFG_NI_RESTART
                            : row->applies,
           !row->live_known);
}

/* Compares a tunable that not every LND has. */
static void diff_own(struct cfg_diff *d, const struct ni_pair *p, unsigned slot)
{
    char key[CFG_MAX_PATH];
    struct ni_field row = {
        .key = key,
        .set = offsetof(struct cfg_ni, conf.lnd_tun.own) + slot * sizeof(int),
        .live = offsetof(struct cfg_ni, live.lnd_tun.own) + slot * sizeof(int),
        .live_known = lnd_acts_on(lnd_type_of(p->x->conf.net), slot),
        .applies = CFG_NI_RESTART,
    };

    snprintf(key, sizeof(key), "lnd tunables.%s", lnd_slot_setting(slot)->name);
    diff_field(d, p, &row);
}

static void diff_ni(struct cfg_diff *d, unsigned i, const struct cfg_ni *x, unsigned j,
                    const struct cfg_ni *y)
{
    const char *from_cpt = x->cpt[0] ? x->cpt : "[0]", *to_cpt = y->cpt[0] ? y->cpt : "[0]";
    const struct ni_pair p = {i, j, x, y};

    for (unsigned f = 0; f < sizeof(ni_fields) / sizeof(ni_fields[0]); f++)
        diff_field(d, &p, &ni_fields[f]);
    for (unsigned s = 0; lnd_slot_setting(s); s++)
        diff_own(d, &p, s);
    for (unsigned f = 0; f < sizeof(kept_fields) / sizeof(kept_fields[0]); f++)
        diff_field(d, &p, &kept_fields[f]);
    if (strcmp(x->kept.traffic_class, y->kept.traffic_class) != 0)
        ni_set(d, i, x, j, "lnd tunables.traffic_class", x->kept.traffic_class,
               y->kept.traffic_class, CFG_AT_ONCE, true);
    if (strcmp(from_cpt, to_cpt) != 0)
        ni_set(d, i, x, j, "CPT", from_cpt, to_cpt, CFG_AT_ONCE, true);
    if (x->conf.ifname[0] && y->conf.ifname[0] && strcmp(x->conf.ifname, y->conf.ifname) != 0)
        ni_set(d, i, x, j, "interfaces.0", x->conf.ifname, y->conf.ifname, CFG_NI_RESTART, false);
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
            diff_ni(d, i, &a->ni[i], (unsigned)(there - b->ni), there);
        else
            ni_whole(d, CFG_DEL, i, CFG_NONE, &a->ni[i]);
    }
    for (unsigned i = 0; i < b->ni_count; i++)
        if (!cfg_find_ni(a, &b->ni[i]))
            ni_whole(d, CFG_ADD, CFG_NONE, i, &b->ni[i]);
}

/* ---- sorted lists ---- */

struct list {
    const char *items;
    unsigned count;
    size_t size;
};

/* How the lists of one kind are compared. */
struct kind {
    enum cfg_what what;
    struct list (*list)(const struct cfg *cfg);
    int (*order)(const void *x, const void *y); /* of keys */
    bool (*same)(const void *x, const void *y);
    void (*key)(const void *x, struct cfg_change *c);
    /* Allocated; NULL: out of memory. */
    char *(*text)(const void *x);
    bool kept;
    enum cfg_applies applies;
};

static void list_change(struct cfg_diff *d, const struct kind *kind, enum cfg_action action,
                        const struct list *a, const void *x, const struct list *b, const void *y)
{
    struct cfg_change *c =
        add(d, action, kind->what,
            x ? (unsigned)((size_t)((const char *)x - a->items) / a->size) : CFG_NONE,
            y ? (unsigned)((size_t)((const char *)y - b->items) / b->size) : CFG_NONE);

    if (!c)
        return;
    kind->key(x ? x : y, c);
    c->kept = kind->kept;
    c->applies = kind->applies;
    if (x && !(c->from = kind->text(x)))
        d->failed = true;
    if (y && !(c->to = kind->text(y)))
        d->failed = true;
}

static const void **sorted(const struct list *list, const struct kind *kind)
{
    const void **out = calloc(list->count + 1, sizeof(*out));

    for (unsigned i = 0; out && i < list->count; i++)
        out[i] = list->items + i * list->size;
    if (out)
        qsort(out, list->count, sizeof(*out), kind->order);
    return out;
}

static void diff_list(struct cfg_diff *d, const struct kind *kind, const struct cfg *from,
                      const struct cfg *to)
{
    struct list a = kind->list(from), b = kind->list(to);
    const void **x = sorted(&a, kind), **y = sorted(&b, kind);
    unsigned i = 0, j = 0;
    int cmp;

    d->failed |= !x || !y;
    while (!d->failed && (i < a.count || j < b.count)) {
        cmp = i == a.count ? 1 : j == b.count ? -1 : kind->order(&x[i], &y[j]);
        if (cmp < 0) {
            list_change(d, kind, CFG_DEL, &a, x[i++], &b, NULL);
        } else if (cmp > 0) {
            list_change(d, kind, CFG_ADD, &a, NULL, &b, y[j++]);
        } else {
            if (!kind->same(x[i], y[j]))
                list_change(d, kind, CFG_SET, &a, x[i], &b, y[j]);
            i++;
            j++;
        }
    }
    free(y);
    free(x);
}

static char *text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *text_of(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    return text;
}

#define ITEM(type, name, from) const type *name = *(const type *const *)(from)

static int nid_order(const struct lnet_nid *x, const struct lnet_nid *y)
{
    return memcmp(x, y, sizeof(*x));
}

/* routes */
static struct list route_list(const struct cfg *cfg)
{
    return (struct list){(const char *)cfg->route, cfg->route_count, sizeof(*cfg->route)};
}

static int route_order(const void *a, const void *b)
{
    ITEM(struct cfg_route, x, a);
    ITEM(struct cfg_route, y, b);
    int by_net = (x->conf.net > y->conf.net) - (x->conf.net < y->conf.net);

    return by_net ? by_net : nid_order(&x->conf.gateway, &y->conf.gateway);
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

static char *route_text(const void *a)
{
    const struct cfg_route *x = a;

    return text_of("hop %d priority %u", x->conf.hops, x->conf.priority);
}

/* peers */
static struct list peer_list(const struct cfg *cfg)
{
    return (struct list){(const char *)cfg->peer, cfg->peer_count, sizeof(*cfg->peer)};
}

static int peer_order(const void *a, const void *b)
{
    ITEM(struct cfg_peer, x, a);
    ITEM(struct cfg_peer, y, b);

    return nid_order(&x->primary, &y->primary);
}

static bool peer_same(const void *a, const void *b)
{
    const struct cfg_peer *x = a, *y = b;

    return x->multi_rail == y->multi_rail && x->nid_count == y->nid_count &&
           (!x->nid_count || memcmp(x->nid, y->nid, x->nid_count * sizeof(*x->nid)) == 0);
}

static void peer_key(const void *a, struct cfg_change *c)
{
    const struct cfg_peer *x = a;
    char nid[LNET_NIDSTR_SIZE];

    set_key(c, "peer[%s]", nid_format(&x->primary, nid));
}

static char *peer_text(const void *a)
{
    const struct cfg_peer *x = a;

    return text_of("%u NIDs%s", x->nid_count, x->multi_rail ? "" : ", not multi-rail");
}

/* udsp */
static struct list udsp_list(const struct cfg *cfg)
{
    return (struct list){(const char *)cfg->udsp, cfg->udsp_count, sizeof(*cfg->udsp)};
}

static int udsp_order(const void *a, const void *b)
{
    ITEM(struct cfg_udsp, x, a);
    ITEM(struct cfg_udsp, y, b);
    int by_src = strcmp(x->src, y->src), by_dst = strcmp(x->dst, y->dst);

    return by_src ? by_src : by_dst ? by_dst : strcmp(x->rte, y->rte);
}

static bool udsp_same(const void *a, const void *b)
{
    const struct cfg_udsp *x = a, *y = b;

    return x->priority == y->priority && (x->idx == y->idx || x->idx < 0 || y->idx < 0);
}

static void udsp_key(const void *a, struct cfg_change *c)
{
    const struct cfg_udsp *x = a;

    set_key(c, "udsp[%s%s%s%s%s]", x->src, x->dst[0] ? " -> " : "", x->dst, x->rte[0] ? " by " : "",
            x->rte);
}

static char *udsp_text(const void *a)
{
    const struct cfg_udsp *x = a;

    return text_of("idx %d priority %d", x->idx, x->priority);
}

/* hello_map */
static struct list hello_list(const struct cfg *cfg)
{
    return (struct list){(const char *)cfg->hello, cfg->hello_count, sizeof(*cfg->hello)};
}

static int hello_order(const void *a, const void *b)
{
    ITEM(struct cfg_hello, x, a);
    ITEM(struct cfg_hello, y, b);
    int by_address = nid_order(&x->address, &y->address);

    return by_address ? by_address : nid_order(&x->nid, &y->nid);
}

static bool always_same(const void *a, const void *b)
{
    return true;
}

static void hello_key(const void *a, struct cfg_change *c)
{
    const struct cfg_hello *x = a;
    char address[LNET_NIDSTR_SIZE];

    set_key(c, "millrace.hello_map[%s]", nid_format(&x->address, address));
}

static char *hello_text(const void *a)
{
    const struct cfg_hello *x = a;
    char nid[LNET_NIDSTR_SIZE];

    return strdup(nid_format(&x->nid, nid));
}

/* names */
static struct list name_list(const struct cfg *cfg)
{
    return (struct list){(const char *)cfg->name, cfg->name_count, sizeof(*cfg->name)};
}

static int name_order(const void *a, const void *b)
{
    ITEM(struct cfg_name, x, a);
    ITEM(struct cfg_name, y, b);

    return nid_order(&x->nid, &y->nid);
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

static char *name_text(const void *a)
{
    const struct cfg_name *x = a;

    return strdup(x->host);
}

/* ports */
static struct list port_list(const struct cfg *cfg)
{
    return (struct list){(const char *)cfg->port, cfg->port_count, sizeof(*cfg->port)};
}

static int port_order(const void *a, const void *b)
{
    ITEM(struct cfg_port, x, a);
    ITEM(struct cfg_port, y, b);

    return strcmp(x->name, y->name);
}

static bool port_same(const void *a, const void *b)
{
    return cfg_same_port(a, b);
}

static void port_key(const void *a, struct cfg_change *c)
{
    const struct cfg_port *x = a;

    set_key(c, "millrace.ports[%s]", x->name);
}

static char *port_text(const void *a)
{
    const struct cfg_port *x = a;
    char buf[CFG_PREFIX_SIZE], via[CFG_PREFIX_SIZE], *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return NULL;
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
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static const struct kind kinds[] = {
    {CFG_OF_ROUTE, route_list, route_order, route_same, route_key, route_text, false, CFG_AT_ONCE},
    {CFG_OF_PEER, peer_list, peer_order, peer_same, peer_key, peer_text, true, CFG_AT_ONCE},
    {CFG_OF_UDSP, udsp_list, udsp_order, udsp_same, udsp_key, udsp_text, true, CFG_AT_ONCE},
    {CFG_OF_HELLO, hello_list, hello_order, always_same, hello_key, hello_text, false, CFG_RESTART},
    {CFG_OF_NAME, name_list, name_order, name_same, name_key, name_text, false, CFG_AT_ONCE},
    {CFG_OF_PORT, port_list, port_order, port_same, port_key, port_text, false, CFG_RESTART},
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
