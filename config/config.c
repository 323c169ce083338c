/* SPDX-License-Identifier: BSD-3-Clause */
/* From text to a checked struct cfg. */
#include "config/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What holds when a key is left out. docs/protocol/lnet-core.md §11 for those that lnetctl knows.
 */
const struct cfg cfg_defaults = {
    .routing = 1, /* a router is what this program is */
    .check_interval = 60,
    .ping_timeout = 50,
    .cores = "auto",
    .reactors = 2,
    .idle = CFG_IDLE_ADAPTIVE,
    .rpc_socket = CFG_DEFAULT_SOCKET,
    .rpc_mode = 0660,
    .accept = CFG_ACCEPT_SECURE,
    .accept_port = 988,
    .accept_timeout = 5,
    .keepalive = 30,
    .min_reconnect = 1,
    .max_reconnect = 60,
    .source_check = CFG_SOURCE_NET,
    .egress_share = 50,
    .buffer_wait = 10,
    .max_peers = 16384,
    .max_connections = 8192,
    .verbs_service = 987,
    .verbs_keepalive = 100,
    .verbs_retry_count = 5,
    .verbs_rnr_retry_count = 6,
    .verbs_use_privileged_port = 1,
    .verbs_max_connections = 1024,
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
    .log_level = CFG_LOG_INFO,
    .log_levels = {-1, -1, -1, -1, -1, -1, -1},
};

const char *const cfg_mode_names[] = {"replace", "merge", "delete", NULL};

/* ---- documents ---- */

struct cfg *cfg_new(void)
{
    struct cfg *cfg = malloc(sizeof(*cfg));

    if (cfg)
        *cfg = cfg_defaults;
    return cfg;
}

/* Rounded up to the size cfg_room() keeps arrays at. */
static void *copy_array(const void *from, unsigned count, size_t size, bool *failed)
{
    size_t room = 1;
    void *to;

    if (!count)
        return NULL;
    while (room < count)
        room = 2 * room + 1;
    to = malloc(room * size);
    if (to)
        memcpy(to, from, count * size);
    else
        *failed = true;
    return to;
}

static bool copy_peers(struct cfg *to, const struct cfg *from)
{
    bool failed = false;

    to->peer_count = 0;
    to->peer = copy_array(from->peer, from->peer_count, sizeof(*to->peer), &failed);
    for (unsigned i = 0; i < from->peer_count && !failed; i++) {
        to->peer[i].nid =
            copy_array(from->peer[i].nid, from->peer[i].nid_count, sizeof(*to->peer->nid), &failed);
        to->peer_count += !failed;
    }
    return !failed;
}

struct cfg *cfg_copy(const struct cfg *cfg)
{
    struct cfg *to = malloc(sizeof(*to));
    bool failed = false;

    if (!to)
        return NULL;
    *to = *cfg;
    to->ni = copy_array(cfg->ni, cfg->ni_count, sizeof(*to->ni), &failed);
    to->route = copy_array(cfg->route, cfg->route_count, sizeof(*to->route), &failed);
    to->hello = copy_array(cfg->hello, cfg->hello_count, sizeof(*to->hello), &failed);
    to->udsp = copy_array(cfg->udsp, cfg->udsp_count, sizeof(*to->udsp), &failed);
    to->name = copy_array(cfg->name, cfg->name_count, sizeof(*to->name), &failed);
    to->port = copy_array(cfg->port, cfg->port_count, sizeof(*to->port), &failed);
    if (!copy_peers(to, cfg) || failed) {
        cfg_free(to);
        return NULL;
    }
    return to;
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

void *cfg_room(void *array, unsigned count, size_t size)
{
    if ((count & (count + 1)) == 0) /* full at 0, 1, 3, 7, … elements */
        return realloc(array, (2 * (size_t)count + 1) * size);
    return array;
}

bool cfg_add_ni(struct cfg *cfg, const struct cfg_ni *ni)
{
    struct cfg_ni *grown = cfg_room(cfg->ni, cfg->ni_count, sizeof(*grown));

    if (grown)
        cfg->ni = grown;
    if (!grown || cfg->ni_count == LNET_MAX_NI)
        return false;
    cfg->ni[cfg->ni_count++] = *ni;
    return true;
}

bool cfg_add_route(struct cfg *cfg, const struct cfg_route *route)
{
    struct cfg_route *grown = cfg_room(cfg->route, cfg->route_count, sizeof(*grown));

    if (grown)
        cfg->route = grown;
    if (!grown || cfg->route_count == CFG_MAX_ROUTES)
        return false;
    cfg->route[cfg->route_count++] = *route;
    return true;
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

/* Of a later version than this one? Must be known before the first key is read. */
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

void cfg_free(struct cfg *cfg)
{
    if (!cfg)
        return;
    for (unsigned i = 0; i < cfg->peer_count; i++)
        free(cfg->peer[i].nid);
    free(cfg->peer);
    free(cfg->udsp);
    free(cfg->name);
    free(cfg->port);
    free(cfg->ni);
    free(cfg->route);
    free(cfg->hello);
    free(cfg);
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
