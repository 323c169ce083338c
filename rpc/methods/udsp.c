/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for selection policies. Words and keys: docs/protocol/lnet-core.md §8.3. */
#include <errno.h>
#include <stdio.h>

#include "config/settings.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

/* ---- what there is ---- */

static json_t *text(const char *value)
{
    return value[0] ? json_string(value) : NULL;
}

static json_t *policy(const struct cfg_udsp *u, unsigned idx)
{
    json_t *action = u->priority < 0 ? NULL : json_pack("{s:i}", "priority", u->priority);

    return json_pack("{s:i, s:o*, s:o*, s:o*, s:o*}", "idx", (int)idx, "src", text(u->src), "dst",
                     text(u->dst), "rte", text(u->rte), "action", action);
}

void rpc_udsp_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct cfg *cfg = rpc_document(jrpc_ctx(call));
    json_t *list = json_array();

    for (unsigned i = 0; cfg && i < cfg->udsp_count; i++)
        if (!args[0].given || args[0].integer < 0 || args[0].integer == i)
            json_array_append_new(list, policy(&cfg->udsp[i], i));
    jrpc_result(call, json_pack("{s:o}", "udsp", list));
}

static void put_nids(json_t *to, const char *key, const struct lnet_nid *nid, unsigned n)
{
    json_t *map = n > 0 ? json_object() : NULL;
    char name[24];

    for (unsigned i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "NID-%u", i);
        json_object_set_new(map, name, rpc_nid(&nid[i]));
    }
    if (map)
        json_object_set_new(to, key, map);
}

static int priority(uint32_t value)
{
    return value == LNET_UDSP_NONE ? -1 : (int)value;
}

json_t *rpc_udsp(const struct rpc_ctx *ctx, const struct lnet_nid *nid, bool ours)
{
    static struct lnet_udsp_info info; /* of the control thread */
    json_t *out;

    lnet_udsp_info(ctx->control->node, nid, ours, &info);
    out = json_pack("{s:i, s:i}", "net priority", priority(info.net_priority), "nid priority",
                    priority(info.nid_priority));
    put_nids(out, "Preferred gateway NIDs", info.gateway, info.ngateways);
    put_nids(out, "Preferred source NIDs", info.source, info.nsources);
    return out;
}

/* ---- changes ---- */

static void take_text(char *to, size_t size, const struct jrpc_arg *arg)
{
    if (arg->given)
        snprintf(to, size, "%s", arg->string);
}

void rpc_udsp_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_udsp udsp = {.priority = args[3].given ? (int)args[3].integer : -1,
                            .idx = args[4].given ? (int)args[4].integer : -1};
    struct err err = {0};
    struct cfg *cfg;
    int rc;

    take_text(udsp.src, sizeof(udsp.src), &args[0]);
    take_text(udsp.dst, sizeof(udsp.dst), &args[1]);
    take_text(udsp.rte, sizeof(udsp.rte), &args[2]);
    if (cfg_udsp_settle(&udsp, &err) != 0) {
        rpc_fail(call, &err, NULL, "docs/config.md, udsp, has the kinds of policies");
        return;
    }
    cfg = rpc_edit(call);
    if (!cfg)
        return;
    rc = cfg_udsp_add(cfg, &udsp);
    if (rc == 0)
        rpc_commit(call, cfg, rpc_changed, call);
    else if (rc == -ENOMEM)
        jrpc_result(call, NULL);
    else
        jrpc_fail(call, -rc, NULL, "udsp_get lists the policies there are; udsp_del deletes one",
                  rc == -EALREADY ? "there is such a policy already"
                                  : "there are as many policies as there may be: %d",
                  CFG_MAX_UDSP);
}

void rpc_udsp_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    bool all = args[1].boolean || (args[0].given && args[0].integer < 0);
    struct cfg *cfg;

    if (args[0].given == args[1].boolean) {
        jrpc_refuse(call, "idx", "give idx, or all, not both", "it is not clear which policies");
        return;
    }
    cfg = rpc_edit(call);
    if (!cfg)
        return;
    if (!all && args[0].integer >= cfg->udsp_count) {
        jrpc_fail(call, ENOENT, "idx", "udsp_get lists the policies there are",
                  "there is no policy with the index %lld", (long long)args[0].integer);
        return;
    }
    while (all && cfg->udsp_count > 0)
        cfg_take(cfg, CFG_UDSPS, &cfg->udsp[cfg->udsp_count - 1]);
    if (!all)
        cfg_take(cfg, CFG_UDSPS, &cfg->udsp[args[0].integer]);
    rpc_commit(call, cfg, rpc_changed, call);
}
