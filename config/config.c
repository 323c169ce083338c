/* SPDX-License-Identifier: BSD-3-Clause */
/* From text to a checked struct cfg. */
#include "config/config_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/lnd/code.h"

/* The defaults of all keys. docs/protocol/lnet-core.md §11 has those that lnetctl knows. */
struct cfg cfg_defaults = {
    .routing = 1, /* this program is a router */
    .check_interval = 60,
    .ping_timeout = 50,
    .cores = "auto",
    .reactors = 2,
    .idle = REACTOR_IDLE_ADAPTIVE,
    .rpc_socket = CFG_DEFAULT_SOCKET,
    .rpc_mode = 0660,
    .user = "millrace",
    .accept = LND_ACCEPT_SECURE,
    .accept_port = 988,
    .accept_timeout = 5,
    .keepalive = 30,
    .min_reconnect = 1,
    .max_reconnect = 60,
    .source_check = LNET_SOURCE_NET,
    .avoid_asym_router_failure = 1,
    .egress_share = 50,
    .buffer_wait = 10,
    .max_peers = 16384,
#define GUARD(symbol, key, what) .guard[LNET_GUARD_##symbol] = true,
#include "lib/lnet/wire/guard.def"
#undef GUARD
    .share_prefix4 = 32,
    .share_prefix6 = 64,
    .max_connections = 8192,
    .drain = 10,
    .max_interfaces = 200,
    .discovery = 1,
    .retry_count = 2,
    .transaction_timeout = 150,
    .health_sensitivity = 100,
    .recovery_interval = 1,
    .router_sensitivity = 100,
    .response_tracking = 3,
    .max_recovery_ping_interval = 900,
    .log_to = "stderr",
    .log_level = LOG_LEVEL_INFO,
    .log_levels = {-1, -1, -1, -1, -1, -1, -1},
};

const char *const cfg_mode_names[] = {"replace", "merge", "delete", NULL};

/* ---- documents ---- */

struct cfg *cfg_new(void)
{
    struct cfg *cfg = malloc(sizeof(*cfg));

    cfg_lnds();
    if (cfg)
        *cfg = cfg_defaults;
    return cfg;
}

/* ---- lists ---- */

/* The order of NIDs, and of items that begin with the NID that identifies them. */
static int nid_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct lnet_nid));
}

/* NIs have an identity and no order. */
static int ni_order(const void *a, const void *b)
{
    return !cfg_same_ni(a, b);
}

static int route_order(const void *a, const void *b)
{
    const struct cfg_route *x = a, *y = b;
    int by_net = (x->conf.net > y->conf.net) - (x->conf.net < y->conf.net);

    return by_net ? by_net : nid_order(&x->conf.gateway, &y->conf.gateway);
}

static int hello_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct cfg_hello)); /* an entry is all identity */
}

static int udsp_order(const void *a, const void *b)
{
    const struct cfg_udsp *x = a, *y = b;
    int by_src = strcmp(x->src, y->src), by_dst = strcmp(x->dst, y->dst);

    return by_src ? by_src : by_dst ? by_dst : strcmp(x->rte, y->rte);
}

static int access_order(const void *a, const void *b)
{
    const struct cfg_access *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int port_order(const void *a, const void *b)
{
    const struct cfg_port *x = a, *y = b;

    return strcmp(x->name, y->name);
}

_Static_assert(offsetof(struct cfg_peer, primary) == 0 && offsetof(struct cfg_name, nid) == 0 &&
                   sizeof(struct cfg_hello) == 2 * sizeof(struct lnet_nid),
               "as the orders expect");

/* A growing array of a document: it has room for 1, 3, 7, … items. */
static const struct list {
    const char *one; /* in messages */
    size_t array, count, size;
    unsigned max;
    int (*order)(const void *a, const void *b); /* by identity */
    size_t line; /* offset in an item; 0: items of the base are not told from those read */
} lists[CFG_LISTS] = {
#define LIST(field, one, max, order, ...)                                                          \
    {                                                                                              \
        one, offsetof(struct cfg, field), offsetof(struct cfg, field##_count),                     \
            sizeof(*((struct cfg *)0)->field), max, order, ##__VA_ARGS__                           \
    }
    [CFG_NIS] = LIST(ni, "NI", LNET_MAX_NI, ni_order, offsetof(struct cfg_ni, line)),
    [CFG_ROUTES] =
        LIST(route, "route", CFG_MAX_ROUTES, route_order, offsetof(struct cfg_route, line)),
    [CFG_HELLOS] = LIST(hello, "entry", CFG_MAX_HELLO_MAP, hello_order),
    [CFG_PEERS] = LIST(peer, "peer", CFG_MAX_PEERS, nid_order),
    [CFG_UDSPS] = LIST(udsp, "policy", CFG_MAX_UDSP, udsp_order, offsetof(struct cfg_udsp, line)),
    [CFG_NAMES] = LIST(name, "name", CFG_MAX_NAMES, nid_order),
    [CFG_PORTS] = LIST(port, "port", CFG_MAX_PORTS, port_order, offsetof(struct cfg_port, line)),
    [CFG_ACCESSES] =
        LIST(access, "rule", LNET_ACCESS_RULES, access_order, offsetof(struct cfg_access, line)),
};

static char **array_of(struct cfg *cfg, const struct list *l)
{
    return (char **)(void *)((char *)cfg + l->array);
}

static unsigned *count_of(struct cfg *cfg, const struct list *l)
{
    return (unsigned *)(void *)((char *)cfg + l->count);
}

unsigned cfg_count(const struct cfg *cfg, enum cfg_list list)
{
    return *count_of((struct cfg *)(uintptr_t)cfg, &lists[list]);
}

static void *item_at(const struct cfg *cfg, enum cfg_list list, unsigned index)
{
    return *array_of((struct cfg *)(uintptr_t)cfg, &lists[list]) + index * lists[list].size;
}

/* Returns the line of an item; NULL: it has none. */
static unsigned *line_of(const struct list *l, void *item)
{
    return l->line ? (unsigned *)(void *)((char *)item + l->line) : NULL;
}

unsigned cfg_index(const struct cfg *cfg, enum cfg_list list, const void *item)
{
    return (unsigned)((size_t)((const char *)item - (char *)item_at(cfg, list, 0)) /
                      lists[list].size);
}

int cfg_order(enum cfg_list list, const void *x, const void *y)
{
    return lists[list].order(x, y);
}

void *cfg_find(const struct cfg *cfg, enum cfg_list list, const void *like)
{
    const struct list *l = &lists[list];
    const char *item = cfg_count(cfg, list) ? item_at(cfg, list, 0) : NULL;

    for (unsigned i = cfg_count(cfg, list); i > 0; i--, item += l->size)
        if (l->order(item, like) == 0)
            return (void *)(uintptr_t)item;
    return NULL;
}

void *cfg_find_base(const struct cfg_reader *r, enum cfg_list list, const void *like)
{
    for (unsigned i = 0; cfg_mode(r) != CFG_REPLACE && i < cfg_count(r->cfg, list); i++) {
        void *item = item_at(r->cfg, list, i);
        const unsigned *line = line_of(&lists[list], item);

        if ((!line || *line == 0) && cfg_order(list, item, like) == 0)
            return item;
    }
    return NULL;
}

/* Items with the same identity keep the order of the list. */
static int by_identity(const void *a, const void *b, void *list)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    int order = ((const struct list *)list)->order(x, y);

    return order ? order : (x > y) - (x < y);
}

const void **cfg_sorted(const struct cfg *cfg, enum cfg_list list)
{
    const void **out = calloc(cfg_count(cfg, list) + 1, sizeof(*out));

    for (unsigned i = 0; out && i < cfg_count(cfg, list); i++)
        out[i] = item_at(cfg, list, i);
    if (out)
        qsort_r(out, cfg_count(cfg, list), sizeof(*out), by_identity,
                (void *)(uintptr_t)&lists[list]);
    return out;
}

void *cfg_append(struct cfg *cfg, enum cfg_list list, const void *item)
{
    const struct list *l = &lists[list];
    char **array = array_of(cfg, l);
    unsigned *count = count_of(cfg, l);

    if (*count == l->max)
        return NULL;
    if ((*count & (*count + 1)) == 0) { /* full */
        char *grown = realloc(*array, (2 * (size_t)*count + 1) * l->size);

        if (!grown)
            return NULL;
        *array = grown;
    }
    return memcpy(*array + (*count)++ * l->size, item, l->size);
}

void cfg_take(struct cfg *cfg, enum cfg_list list, const void *item)
{
    unsigned at = cfg_index(cfg, list, item);

    --*count_of(cfg, &lists[list]);
    memmove(item_at(cfg, list, at), item_at(cfg, list, at + 1),
            (cfg_count(cfg, list) - at) * lists[list].size);
}

void cfg_put(struct cfg_reader *r, enum cfg_list list, const void *item, const void *there,
             unsigned line, const char *none)
{
    const struct list *l = &lists[list];

    if (cfg_mode(r) == CFG_DELETE && there)
        cfg_take(r->cfg, list, there);
    else if (cfg_mode(r) == CFG_DELETE && none)
        cfg_error(r, line, "%s", none);
    else if (there && cfg_mode(r) != CFG_DELETE)
        memcpy((void *)(uintptr_t)there, item, l->size);
    else if (cfg_mode(r) == CFG_DELETE || cfg_append(r->cfg, list, item))
        return;
    else if (*count_of(r->cfg, l) == l->max)
        cfg_error(r, line, "is one %s too many; at most %d", l->one, l->max);
    else
        cfg_error(r, line, "out of memory");
}

struct cfg *cfg_copy(const struct cfg *cfg)
{
    struct cfg *to = malloc(sizeof(*to));
    bool ok = true;

    if (!to)
        return NULL;
    *to = *cfg;
    for (enum cfg_list i = 0; i < CFG_LISTS; i++) {
        *array_of(to, &lists[i]) = NULL;
        *count_of(to, &lists[i]) = 0;
        for (unsigned j = 0; ok && j < cfg_count(cfg, i); j++)
            ok = cfg_append(to, i, item_at(cfg, i, j)) != NULL;
    }
    if (ok)
        return to;
    cfg_free(to);
    return NULL;
}

void cfg_free(struct cfg *cfg)
{
    for (int i = 0; cfg && i < CFG_LISTS; i++)
        free(*array_of(cfg, &lists[i]));
    free(cfg);
}

const struct lnet_nid *cfg_ni_nid(const struct cfg_ni *ni)
{
    return nid_is_any(&ni->conf.nid) && ni->live.known ? &ni->live.nid : &ni->conf.nid;
}

bool cfg_same_ni(const struct cfg_ni *a, const struct cfg_ni *b)
{
    const struct lnet_nid *x = cfg_ni_nid(a), *y = cfg_ni_nid(b);

    if (a->conf.net != b->conf.net)
        return false;
    if (!nid_is_any(x) && !nid_is_any(y))
        return nid_same(x, y);
    return a->conf.ifname[0] && strcmp(a->conf.ifname, b->conf.ifname) == 0;
}

struct cfg_ni *cfg_find_ni(const struct cfg *cfg, const struct cfg_ni *like)
{
    return cfg_find(cfg, CFG_NIS, like);
}

/* ---- reading ---- */

/* Items of the base have no line, so that those of the text can be told from them. */
static struct cfg *base_of(const struct cfg_text *from)
{
    struct cfg *cfg = from->mode == CFG_REPLACE ? cfg_new() : cfg_copy(from->base);

    for (enum cfg_list i = 0; cfg && i < CFG_LISTS; i++)
        for (unsigned j = 0; lists[i].line && j < cfg_count(cfg, i); j++)
            *line_of(&lists[i], item_at(cfg, i, j)) = 0;
    return cfg;
}

void cfg_force_retry_count(struct cfg *cfg)
{
    if (cfg->health_sensitivity == 0)
        cfg->retry_count = 0;
}

static bool has_retry_count(const struct yaml_tree_node *root)
{
    return yaml_tree_get(root, "retry_count") ||
           yaml_tree_get(yaml_tree_get(root, "global"), "retry_count");
}

/* Whether the file is of a later version than this program. Called before the first key is read. */
static bool is_newer(const struct yaml_tree_node *root)
{
    const struct yaml_tree_node *schema = yaml_tree_get(yaml_tree_get(root, "millrace"), "schema");

    return schema && schema->kind == YAML_SCALAR && strtol(schema->text, NULL, 10) > CFG_SCHEMA;
}

int cfg_parse_onto(const struct cfg_text *from, struct cfg **out, struct cfg_report *report)
{
    struct cfg_reader r = {.report = report, .name = from->name, .from = from};
    struct yaml_tree_error err = {0};
    struct yaml_tree_node *own = NULL;
    const struct yaml_tree_node *root = from->tree;

    *out = NULL;
    memset(report, 0, sizeof(*report));
    r.cfg = base_of(from);
    if (!r.cfg) {
        cfg_error(&r, 0, "out of memory");
        return -ENOMEM;
    }
    if (!root)
        root = own = yaml_tree_parse(from->text, from->len, &err);
    if (root) {
        r.newer = is_newer(root);
        cfg_read_map(&r, root, cfg_top_keys, r.cfg);
        if (!has_retry_count(root))
            cfg_force_retry_count(r.cfg);
        cfg_check(&r);
    } else {
        cfg_error(&r, err.line, "%s", err.text);
    }
    yaml_tree_free(own);
    if (report->errors) {
        cfg_free(r.cfg);
        return -EINVAL;
    }
    *out = r.cfg;
    return 0;
}

int cfg_parse(const char *name, const char *text, size_t len, struct cfg **out,
              struct cfg_report *report)
{
    struct cfg_text from = {.name = name, .text = text, .len = len, .mode = CFG_REPLACE};

    return cfg_parse_onto(&from, out, report);
}

int cfg_validate(const char *name, const struct cfg *cfg, struct cfg_report *report)
{
    struct cfg_text from = {.name = name, .mode = CFG_MERGE};
    struct cfg_reader r = {
        .report = report, .name = name, .from = &from, .cfg = (struct cfg *)(uintptr_t)cfg};

    memset(report, 0, sizeof(*report));
    cfg_check(&r);
    return report->errors ? -EINVAL : 0;
}

void cfg_report_print(const struct cfg_report *report, FILE *to)
{
    unsigned more = report->errors + report->warnings - report->count;

    for (unsigned i = 0; i < report->count; i++)
        fprintf(to, "%s\n", report->message[i].text);
    if (more)
        fprintf(to, "… and %u more\n", more);
}

void cfg_report_free(struct cfg_report *report)
{
    for (unsigned i = 0; i < report->count; i++)
        free(report->message[i].text);
    free(report->message);
    memset(report, 0, sizeof(*report));
}

unsigned cfg_reactor_count(const struct cfg *cfg)
{
    return strcmp(cfg->cores, "auto") == 0 ? (unsigned)cfg->reactors : cfg_cores_count(cfg->cores);
}

unsigned cfg_guard(const struct cfg *cfg)
{
    unsigned rules = 0;

    for (unsigned i = 0; i < LNET_GUARD_RULES; i++)
        rules |= (unsigned)(cfg->guard[i] != 0) << i;
    return rules;
}

unsigned cfg_gateway_count(const struct cfg *cfg)
{
    unsigned count = 0, j;

    for (unsigned i = 0; i < cfg->route_count; i++) {
        for (j = 0; j < i; j++)
            if (nid_same(&cfg->route[i].conf.gateway, &cfg->route[j].conf.gateway))
                break;
        count += j == i;
    }
    return count;
}
