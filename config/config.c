/* SPDX-License-Identifier: BSD-3-Clause */
/* From text to a checked struct cfg. */
#include "config/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What holds when a key is left out. docs/protocol/lnet-core.md §11 for those that lnetctl knows.
 */
static const struct cfg defaults = {
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
    .drain = 10,
};

int cfg_parse(const char *name, const char *text, size_t len, struct cfg **out,
              struct cfg_report *report)
{
    struct cfg_reader r = {.report = report, .name = name};
    struct yaml_tree_error err = {0};
    struct yaml_tree_node *root;

    *out = NULL;
    memset(report, 0, sizeof(*report));
    r.cfg = malloc(sizeof(*r.cfg));
    if (!r.cfg)
        return -ENOMEM;
    *r.cfg = defaults;
    root = yaml_tree_parse(text, len, &err);
    if (root) {
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

void cfg_free(struct cfg *cfg)
{
    if (!cfg)
        return;
    free(cfg->ni);
    free(cfg->route);
    free(cfg->hello);
    free(cfg);
}

void cfg_report_print(const struct cfg_report *report, FILE *to)
{
    unsigned i, more = report->errors + report->warnings - report->count;

    for (i = 0; i < report->count; i++)
        fprintf(to, "%s\n", report->message[i].text);
    if (more)
        fprintf(to, "… and %u more\n", more);
}

void cfg_report_free(struct cfg_report *report)
{
    unsigned i;

    for (i = 0; i < report->count; i++)
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
    unsigned count = 0, i, j;

    for (i = 0; i < cfg->route_count; i++) {
        for (j = 0; j < i; j++)
            if (nid_same(&cfg->route[i].conf.gateway, &cfg->route[j].conf.gateway))
                break;
        count += j == i;
    }
    return count;
}
