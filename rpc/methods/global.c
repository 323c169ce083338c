/* SPDX-License-Identifier: BSD-3-Clause */
/* routing_get and global_get: docs/protocol/lnet-core.md §10.4, §10.5. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "rpc/methods/methods_internal.h"

void rpc_routing_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static const char *const names[] = {
        [LNET_ROUTING_OFF] = "off",
        [LNET_ROUTING_ON] = "on",
        [LNET_ROUTING_STOPPING] = "stopping",
        [LNET_ROUTING_STARTING] = "starting",
    };
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    enum lnet_routing routing = lnet_routing_get(ctx->control->node);

    jrpc_result(call, json_pack("{s:i, s:s}", "enable", (int)routing, "state", names[routing]));
}

/* The keys in lnetctl's order. */
static const char *const global_keys[] = {
    "numa_range",
    "max_interfaces",
    "discovery",
    "drop_asym_route",
    "retry_count",
    "transaction_timeout",
    "health_sensitivity",
    "recovery_interval",
    "router_sensitivity",
    "lnd_timeout",
    "response_tracking",
    "recovery_limit",
    "max_recovery_ping_interval",
};

/* As the running document has it; cfg NULL: the default. */
static long setting_value(const struct cfg *cfg, const char *name)
{
    char path[CFG_MAX_PATH], text[CFG_MAX_VALUE];
    struct cfg_setting setting;

    snprintf(path, sizeof(path), "global.%s", name);
    if (!cfg_setting_find(path, &setting))
        return 0;
    if (cfg)
        cfg_setting_text(&setting, cfg, text);
    else
        cfg_setting_default(&setting, text);
    return strtol(text, NULL, 10);
}

/* No setting: it follows from others, docs/protocol/lnet-core.md §6.1. */
static long lnd_timeout(const struct cfg *cfg)
{
    long seconds =
        (setting_value(cfg, "transaction_timeout") - 1) / (setting_value(cfg, "retry_count") + 1);

    return seconds > 1 ? seconds : 1;
}

void rpc_global_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct cfg *cfg = rpc_document(jrpc_ctx(call));
    json_t *global = json_object();
    unsigned i;

    for (i = 0; i < sizeof(global_keys) / sizeof(global_keys[0]); i++) {
        const char *key = global_keys[i];
        long value = strcmp(key, "lnd_timeout") == 0 ? lnd_timeout(cfg) : setting_value(cfg, key);

        json_object_set_new(global, key, json_integer(value));
    }
    jrpc_result(call, global);
}
