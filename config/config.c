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
    .accept = LND_ACCEPT_SECURE,
    .accept_port = 988,
    .accept_timeout = 5,
    .keepalive = 30,
    .min_reconnect = 1,
    .max_reconnect = 60,
    .source_check = LNET_SOURCE_NET,
    .egress_share = 50,
    .buffer_wait = 10,
    .max_peers = 16384,
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

/* A growing array of a document: it has room for 1, 3, 7, … items. */
static const struct list {
    const char *one; /* in messages */
    size_t array, count, size;
    unsigned max;
} lists[CFG_LISTS] = {
#define LIST(field, one, max)                                                                      \
    {                                                                                              \
        one, offsetof(struct cfg, field), offsetof(struct cfg, field##_count),                     \
            sizeof(*((struct cfg *)0)->field), max                                                 \
    }
    [CFG_NIS] = LIST(ni, "NI", LNET_MAX_NI),
    [CFG_ROUTES] = LIST(route, "route", CFG_MAX_ROUTES),
    [CFG_HELLOS] = LIST(hello, "entry", CFG_MAX_HELLO_MAP),
    [CFG_PEERS] = LIST(peer, "peer", CFG_MAX_PEERS),
    [CFG_UDSPS] = LIST(udsp, "policy", CFG_MAX_UDSP),
    [CFG_NAMES] = LIST(name, "name", CFG_MAX_NAMES),
    [CFG_PORTS] = LIST(port, "port", CFG_MAX_PORTS),
};

static char **array_of(struct cfg *cfg, const struct list *l)
{
    return (char **)(void *)((char *)cfg + l->array);
}

static unsigned *count_of(struct cfg *cfg, const struct list *l)
{
    return (unsigned *)(void *)((char *)cfg + l->count);
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
    const struct list *l = &lists[list];
    char *array = *array_of(cfg, l);
    size_t at = (size_t)((const char *)item - array);

    memmove(array + at, array + at + l->size, --*count_of(cfg, l) * l->size - at);
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

/* Gives each peer of a copied document its own copy of the NIDs. */
static bool copy_nids(struct cfg *to)
{
    for (unsigned i = 0; i < to->peer_count; i++) {
        struct cfg_peer *peer = &to->peer[i];
        struct lnet_nid *nid = malloc((peer->nid_count + 1) * sizeof(*nid));

        if (!nid) {
            to->peer_count = i; /* the rest belongs to the other document */
            return false;
        }
        peer->nid = memcpy(nid, peer->nid_count ? peer->nid : nid, peer->nid_count * sizeof(*nid));
    }
    return true;
}

struct cfg *cfg_copy(const struct cfg *cfg)
{
    struct cfg *to = malloc(sizeof(*to));
    bool ok = to != NULL;

    if (!to)
        return NULL;
    *to = *cfg;
    for (int i = 0; i < CFG_LISTS; i++) {
        const struct list *l = &lists[i];
        char *from = *array_of(to, l);
        size_t count = *count_of(to, l), room = 1;

        while (room < count)
            room = 2 * room + 1;
        *array_of(to, l) = malloc(room * l->size);
        if (*array_of(to, l) && count)
            memcpy(*array_of(to, l), from, count * l->size);
        ok &= *array_of(to, l) != NULL;
    }
    if (!ok)
        to->peer_count = 0;
    if (ok && copy_nids(to))
        return to;
    cfg_free(to);
    return NULL;
}

void cfg_free(struct cfg *cfg)
{
    for (unsigned i = 0; cfg && i < cfg->peer_count; i++)
        free(cfg->peer[i].nid);
    for (int i = 0; cfg && i < CFG_LISTS; i++)
        free(*array_of(cfg, &lists[i]));
    free(cfg);
}

static bool nid_of(const struct cfg_ni *ni, struct lnet_nid *out)
{
    *out = nid_is_any(&ni->conf.nid) && ni->live.known ? ni->live.nid : ni->conf.nid;
    return !nid_is_any(out);
}

bool cfg_same_ni(const struct cfg_ni *a, const struct cfg_ni *b)
{
    struct lnet_nid x, y;

    if (a->conf.net != b->conf.net)
        return false;
    if (nid_of(a, &x) && nid_of(b, &y))
        return nid_same(&x, &y);
    return a->conf.ifname[0] && strcmp(a->conf.ifname, b->conf.ifname) == 0;
}

struct cfg_ni *cfg_find_ni(const struct cfg *cfg, const struct cfg_ni *like)
{
    for (unsigned i = 0; i < cfg->ni_count; i++)
        if (cfg_same_ni(&cfg->ni[i], like))
            return &cfg->ni[i];
    return NULL;
}

bool cfg_add_ni(struct cfg *cfg, const struct cfg_ni *ni)
{
    return cfg_append(cfg, CFG_NIS, ni);
}

bool cfg_add_route(struct cfg *cfg, const struct cfg_route *route)
{
    return cfg_append(cfg, CFG_ROUTES, route);
}

/* ---- reading ---- */

/* Items of the base have no line, so that those of the text can be told from them. */
static struct cfg *base_of(const struct cfg_text *from)
{
    struct cfg *cfg = from->mode == CFG_REPLACE ? cfg_new() : cfg_copy(from->base);

    for (unsigned i = 0; cfg && i < cfg->ni_count; i++)
        cfg->ni[i].line = 0;
    for (unsigned i = 0; cfg && i < cfg->route_count; i++)
        cfg->route[i].line = 0;
    for (unsigned i = 0; cfg && i < cfg->port_count; i++)
        cfg->port[i].line = 0;
    return cfg;
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
    struct yaml_tree_node *root;

    *out = NULL;
    memset(report, 0, sizeof(*report));
    r.cfg = base_of(from);
    if (!r.cfg) {
        cfg_error(&r, 0, "out of memory");
        return -ENOMEM;
    }
    root = yaml_tree_parse(from->text, from->len, &err);
    if (root) {
        r.newer = is_newer(root);
        cfg_read_map(&r, root, cfg_top_keys, r.cfg);
        cfg_check(&r);
    } else {
        cfg_error(&r, err.line, "%s", err.text);
    }
    yaml_tree_free(root);
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
