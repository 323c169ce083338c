/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for settings: those of lnetctl global (docs/protocol/lnet-core.md §10.5), and all
 * tunables. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

/* ---- lnetctl global ---- */

/* Returns the value in the running document; cfg NULL: the default. */
static long setting_value(const struct cfg *cfg, const char *name)
{
    char path[CFG_MAX_PATH], text[CFG_MAX_VALUE];
    struct cfg_setting setting;

    snprintf(path, sizeof(path), "global.%s", name);
    if (!cfg_setting_find(path, &setting))
        return 0;
    return strtol(cfg_setting_text(&setting, cfg, text), NULL, 10);
}

/* lnd_timeout is no setting; it follows from others, docs/protocol/lnet-core.md §6.1. */
static long lnd_timeout(const struct cfg *cfg)
{
    long seconds =
        (setting_value(cfg, "transaction_timeout") - 1) / (setting_value(cfg, "retry_count") + 1);

    return seconds > 1 ? seconds : 1;
}

/* Members have the names of the settings. */
void rpc_global_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct cfg *cfg = rpc_document(jrpc_ctx(call));
    json_t *global = json_object();

    for (const struct jrpc_field *field = jrpc_method_of(call)->fields; field->name; field++) {
        bool derived = strcmp(field->name, "lnd_timeout") == 0;
        long value = derived ? lnd_timeout(cfg) : setting_value(cfg, field->name);

        json_object_set_new(global, field->name, json_integer(value));
    }
    jrpc_result(call, global);
}

/* Parameters have the names and ranges of the settings. */
void rpc_global_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct jrpc_param *param = jrpc_method_of(call)->params;
    struct err err = {0};
    char path[CFG_MAX_PATH], value[24];
    struct cfg *cfg = rpc_edit(call);
    struct cfg_setting setting;
    bool any = false;
    unsigned n = 0;

    while (param[n].name)
        n++;
    /* retry_count after health_sensitivity, which may set it to 0 */
    for (unsigned i = n; cfg && i-- > 0;) {
        if (!args[i].given)
            continue;
        any = true;
        snprintf(path, sizeof(path), "global.%s", param[i].name);
        snprintf(value, sizeof(value), "%lld", (long long)args[i].integer);
        if (!cfg_setting_find(path, &setting) || cfg_setting_set(&setting, cfg, value, &err) != 0) {
            jrpc_refuse(call, param[i].name, "tunables_get lists the ranges", "%s", err.message);
            return;
        }
    }
    if (any)
        rpc_commit(call, cfg, rpc_changed, call);
    else if (cfg)
        jrpc_refuse(call, NULL, "give one or more of the keys of global", "nothing is to be set");
}

/* ---- tunables ---- */

static const char *const scopes[] = {"global", "net", "lnd", "millrace"};

static json_t *setting_row(const struct cfg_setting *s, const char *scope, const char *fallback,
                           const char *value)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s*}", "scope", scope,
                            "name", s->name, "key", s->path, "type", s->type, "default", fallback,
                            "value", value, "applies", cfg_applies_name(s->applies), "acted_on",
                            !s->kept, "help", s->help, "unit", s->unit);
    json_t *words;

    if (strcmp(s->type, "integer") == 0)
        json_object_set_new(row, "min", json_integer(s->min));
    if (strcmp(s->type, "integer") == 0 || strcmp(s->type, "string") == 0)
        json_object_set_new(row, "max", json_integer(s->max));
    if (s->words) {
        words = json_array();
        for (unsigned i = 0; s->words[i]; i++)
            json_array_append_new(words, json_string(s->words[i]));
        json_object_set_new(row, "words", words);
    }
    return row;
}

static void ni_rows(json_t *list, const struct cfg_ni *ni, bool lnd)
{
    struct cfg_setting s;
    char text[24], nid[LNET_NIDSTR_SIZE];
    json_t *row;
    int value;

    for (unsigned i = 0; cfg_ni_setting_at(lnd, i, &s); i++) {
        value = cfg_ni_setting_get(&s, ni);
        snprintf(text, sizeof(text), "%d", value);
        row = setting_row(&s, lnd ? "lnd" : "net", "-1", text);
        if (ni->live.known || !nid_is_any(&ni->conf.nid))
            json_object_set_new(
                row, "ni",
                json_string(nid_format(ni->live.known ? &ni->live.nid : &ni->conf.nid, nid)));
        json_array_append_new(list, row);
    }
}

void rpc_tunables_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct cfg *cfg = cfg_running_get(ctx->control->running);
    const char *only = args[0].given ? args[0].string : NULL;
    char value[CFG_MAX_VALUE], fallback[CFG_MAX_VALUE];
    json_t *list = json_array();
    struct cfg_setting s;

    for (unsigned i = 0; cfg_setting_at(i, &s); i++)
        if (!only || strcmp(only, s.scope) == 0)
            json_array_append_new(list,
                                  setting_row(&s, s.scope, cfg_setting_text(&s, NULL, fallback),
                                              cfg_setting_text(&s, cfg, value)));
    for (unsigned i = 0; i < cfg->ni_count; i++) {
        if (!only || strcmp(only, "net") == 0)
            ni_rows(list, &cfg->ni[i], false);
        if (!only || strcmp(only, "lnd") == 0)
            ni_rows(list, &cfg->ni[i], true);
    }
    jrpc_result(call, json_pack("{s:o}", "tunables", list));
}

/* Distinguishes a value out of range from a text that is no value. */
static int value_error(const char *err)
{
    return strstr(err, "out of range") ? ERANGE : EINVAL;
}

static bool set_on_nis(struct jrpc_call *call, struct cfg *cfg, const struct cfg_setting *s,
                       const struct jrpc_arg *args)
{
    struct err err = {0};
    bool any = false;

    for (unsigned i = 0; i < cfg->ni_count; i++) {
        if (args[3].given && cfg->ni[i].conf.net != args[3].net)
            continue;
        any = true;
        if (cfg_setting_set(s, &cfg->ni[i], args[2].string, &err) != 0) {
            jrpc_fail(call, value_error(err.message), "value", "tunables_get lists the ranges",
                      "%s", err.message);
            return false;
        }
    }
    if (!any)
        jrpc_fail(call, ENOENT, "net", "net_get lists the nets there are", "there is no such NI");
    return any;
}

void rpc_tunables_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const char *scope = scopes[args[0].integer];
    bool lnd = strcmp(scope, "lnd") == 0, of_ni = lnd || strcmp(scope, "net") == 0, found;
    struct err err = {0};
    struct cfg *cfg = rpc_edit(call);
    struct cfg_setting s;
    unsigned i;

    if (!cfg)
        return;
    for (i = 0, found = false; of_ni && !found && cfg_ni_setting_at(lnd, i, &s); i++)
        found = strcmp(s.name, args[1].string) == 0 || strcmp(s.path, args[1].string) == 0;
    if (!of_ni)
        found = cfg_setting_find(args[1].string, &s) && strcmp(s.scope, scope) == 0;
    if (!found) {
        jrpc_fail(call, ENOENT, "name", "tunables_get lists those there are",
                  "there is no tunable %s in the scope %s", args[1].string, scope);
    } else if (of_ni) {
        if (set_on_nis(call, cfg, &s, args))
            rpc_commit(call, cfg, rpc_changed, call);
    } else if (cfg_setting_set(&s, cfg, args[2].string, &err) != 0) {
        jrpc_fail(call, value_error(err.message), "value", "tunables_get lists the ranges", "%s",
                  err.message);
    } else {
        rpc_commit(call, cfg, rpc_changed, call);
    }
}
