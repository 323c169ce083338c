/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for the document as a whole: show, compare, apply, confirm. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/save.h"
#include "config/write.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

/* ---- a tree as JSON; its depth is that of our own tables ---- */

static json_t *to_json(const struct yaml_tree_node *node)
{
    json_t *out;

    if (node->kind == YAML_SCALAR) {
        if (node->literal && strcmp(node->text, "true") == 0)
            return json_true();
        if (node->literal && strcmp(node->text, "false") == 0)
            return json_false();
        return node->literal ? json_integer(strtoll(node->text, NULL, 10))
                             : json_string(node->text);
    }
    out = node->kind == YAML_MAP ? json_object() : json_array();
    for (const struct yaml_tree_node *child = node->child; child; child = child->next) {
        if (node->kind == YAML_MAP)
            json_object_set_new(out, child->key, to_json(child));
        else
            json_array_append_new(out, to_json(child));
    }
    return out;
}

static json_t *document(const struct cfg *cfg, enum cfg_form form, bool yaml)
{
    struct yaml_tree_node *tree = cfg_tree(cfg, form);
    char *text = tree && yaml ? cfg_print(tree) : NULL;
    json_t *out = NULL;

    if (tree && yaml && text)
        out = json_pack("{s:s}", "yaml", text);
    else if (tree && !yaml)
        out = json_pack("{s:o}", "config", to_json(tree));
    free(text);
    yaml_tree_free(tree);
    return out;
}

/* ---- reading documents ---- */

static json_t *warnings(const struct cfg_report *report)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < report->count; i++)
        if (!report->message[i].error)
            json_array_append_new(list, json_string(report->message[i].text));
    return list;
}

static void fail_report(struct jrpc_call *call, const struct cfg_report *report,
                        const char *parameter)
{
    char *text = control_messages(report, true);

    if (text)
        jrpc_fail(call, EINVAL, parameter,
                  "correct what is named; `millraced --check` and config_diff tell the same", "%s",
                  text);
    else
        jrpc_result(call, NULL);
    free(text);
}

static struct cfg *parse(const struct rpc_ctx *ctx, const char *name, const char *text, size_t len,
                         enum cfg_mode mode, bool may_be_empty, struct cfg_report *report)
{
    struct cfg_text from = {.name = name,
                            .text = text,
                            .len = len,
                            .mode = mode,
                            .base = cfg_running_get(ctx->control->running),
                            .may_be_empty = may_be_empty};
    struct cfg *cfg = NULL;

    cfg_parse_onto(&from, &cfg, report);
    return cfg;
}

/* ---- changes ---- */

static json_t *change_row(const struct cfg_change *c)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:o*, s:o*}", "action", cfg_action_names[c->action],
                     "what", cfg_what_names[c->what], "key", c->key, "applies",
                     cfg_applies_name(c->applies), "acted_on", !c->kept, "from",
                     json_string(c->from), "to", json_string(c->to));
}

/* changes, text, warnings; NULL: out of memory. */
static json_t *compared(const struct cfg_diff *diff, const struct cfg_report *report)
{
    char *text = diff->failed ? NULL : cfg_diff_text(diff);
    json_t *list, *out = NULL;

    if (text) {
        list = json_array();
        for (unsigned i = 0; i < diff->count; i++)
            json_array_append_new(list, change_row(&diff->change[i]));
        out = json_pack("{s:o, s:s, s:o}", "changes", list, "text", text, "warnings",
                        warnings(report));
    }
    free(text);
    return out;
}

static void compare(struct jrpc_call *call, const char *name, const char *text, size_t len,
                    enum cfg_mode mode, const char *parameter)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct cfg_report report;
    struct cfg *cfg = parse(ctx, name, text, len, mode, true, &report);
    struct cfg_diff diff = {0};

    if (cfg) {
        cfg_diff_make(cfg_running_get(ctx->control->running), cfg, &diff);
        jrpc_result(call, compared(&diff, &report));
    } else {
        fail_report(call, &report, parameter);
    }
    cfg_diff_free(&diff);
    cfg_free(cfg);
    cfg_report_free(&report);
}

/* Opens the place of a file that a client names: the daemon reads and writes files with its own
 * rights, and messages quote their text. False: the call has been ended. */
static bool open_place(struct jrpc_call *call, const char *path, struct cfg_place *place)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct jrpc_session *session = jrpc_session_of(call);
    const char *source = cfg_running_source(ctx->control->running);
    bool is_source = strcmp(path, source) == 0;
    int rc;

    if (!is_source && session && session->role != JRPC_ADMIN) {
        jrpc_fail(call, EACCES, "path", "give the text of the document instead",
                  "only a client with the role admin may name a file");
        return false;
    }
    /* Who started the daemon named its file, wherever links of that name lead. */
    rc = is_source ? cfg_place_open(place, path, NULL) : control_place_open(place, source, path);
    if (rc == -EACCES && !is_source)
        jrpc_fail(call, EACCES, "path",
                  "name a file in the folder of the file that the daemon was started with, or "
                  "below $STATE_DIRECTORY",
                  "%s is in a folder that is none of the daemon's", path);
    else if (rc != 0)
        jrpc_fail(call, -rc, "path", "name a file in a folder that the daemon can use",
                  "%s cannot be read: %s", path, strerror(-rc));
    return rc == 0;
}

static void compare_file(struct jrpc_call *call, const char *path, enum cfg_mode mode)
{
    struct cfg_place place;
    char *text = NULL;
    size_t len = 0;
    int rc;

    if (!open_place(call, path, &place))
        return;
    rc = cfg_place_read(&place, &text, &len);
    cfg_place_close(&place);
    if (rc != 0)
        jrpc_fail(call, -rc, "path", "name a configuration file that the daemon can read",
                  "%s cannot be read: %s", path, strerror(-rc));
    else
        compare(call, path, text, len, mode, "path");
    free(text);
}

/* ---- methods ---- */

void rpc_config_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    static const enum cfg_form forms[] = {CFG_FORM_RUNNING, CFG_FORM_BACKUP, CFG_FORM_FILE};
    const char *path = cfg_running_source(ctx->control->running);
    enum cfg_form form = forms[args[0].given ? args[0].integer : 0];
    bool yaml = args[1].given && args[1].integer == 1;
    struct cfg_report report = {0};
    struct cfg *file = NULL;
    json_t *result = NULL;
    char *text = NULL;
    size_t len = 0;
    int rc = 0;

    if (form == CFG_FORM_FILE) {
        rc = path[0] ? control_read_document(path, &text, &len) : -ENOENT;
        if (rc == 0 && !yaml)
            file = parse(ctx, path, text, len, CFG_REPLACE, true, &report);
    }
    if (rc != 0)
        jrpc_fail(call, -rc, "form", "give running or backup; config_save writes a file",
                  "%s cannot be read: %s", path[0] ? path : "the file", strerror(-rc));
    else if (report.errors)
        fail_report(call, &report, "form");
    else {
        if (form == CFG_FORM_FILE && yaml)
            result = json_pack("{s:s%}", "yaml", text, len);
        else
            result = document(file ? file : cfg_running_get(ctx->control->running), form, yaml);
        if (result)
            json_object_set_new(result, "revision",
                                json_integer(cfg_running_revision(ctx->control->running)));
        jrpc_result(call, result);
    }
    cfg_free(file);
    cfg_report_free(&report);
    free(text);
}

void rpc_config_diff(struct jrpc_call *call, const struct jrpc_arg *args)
{
    enum cfg_mode mode = args[3].given ? (enum cfg_mode)args[3].integer : CFG_REPLACE;

    if (args[0].given == args[1].given)
        jrpc_refuse(call, args[0].given ? "path" : "text", "give one of text and path",
                    args[0].given ? "text and path cannot both be given"
                                  : "there is nothing to compare with");
    else if (args[0].given)
        compare(call, args[2].given ? args[2].string : "text", args[0].string,
                strlen(args[0].string), mode, "text");
    else
        compare_file(call, args[1].string, mode);
}

struct apply_call {
    struct jrpc_call *call;
    json_t *result; /* as far as it is known before */
};

static void applied(void *arg, const struct cfg_outcome *outcome)
{
    struct apply_call *a = arg;
    const struct rpc_ctx *ctx = jrpc_ctx(a->call);

    if (outcome->rc != 0) {
        json_decref(a->result);
        rpc_change_failed(a->call, outcome, "text");
        return;
    }
    json_object_set_new(a->result, "revision",
                        json_integer(cfg_running_revision(ctx->control->running)));
    json_object_set_new(a->result, "applied", json_true());
    jrpc_result(a->call, a->result);
}

/* A dry run: reports whether the change would be refused. */
static void tried(struct apply_call *a, const struct cfg_diff *diff)
{
    const struct rpc_ctx *ctx = jrpc_ctx(a->call);
    struct err err = {0};
    int rc = cfg_running_busy(ctx->control->running, &err);

    if (rc == 0)
        rc = cfg_running_check(ctx->control->running, diff, &err);
    if (rc != 0) {
        json_decref(a->result);
        err.code = rc;
        rpc_fail(a->call, &err, "text", NULL);
        return;
    }
    json_object_set_new(a->result, "revision",
                        json_integer(cfg_running_revision(ctx->control->running)));
    json_object_set_new(a->result, "applied", json_false());
    jrpc_result(a->call, a->result);
}

void rpc_config_apply(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct apply_call *a = jrpc_alloc(call, sizeof(*a));
    const char *name = args[1].given ? args[1].string : "text";
    enum cfg_mode mode = args[2].given ? (enum cfg_mode)args[2].integer : CFG_REPLACE;
    struct cfg_report report;
    struct cfg_diff diff = {0};
    struct cfg *cfg;

    if (!a)
        return;
    cfg = parse(ctx, name, args[0].string, strlen(args[0].string), mode, false, &report);
    if (!cfg) {
        fail_report(call, &report, "text");
        cfg_report_free(&report);
        return;
    }
    cfg_diff_make(cfg_running_get(ctx->control->running), cfg, &diff);
    a->call = call;
    a->result = compared(&diff, &report);
    if (!a->result) {
        cfg_free(cfg);
        jrpc_result(call, NULL);
    } else if (args[4].given && args[4].boolean) {
        cfg_free(cfg);
        tried(a, &diff);
    } else {
        cfg_running_change(ctx->control->running, cfg,
                           args[3].given ? (unsigned)args[3].integer : 0, "config_apply", applied,
                           a);
    }
    cfg_diff_free(&diff);
    cfg_report_free(&report);
}

void rpc_config_confirm(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    if (cfg_running_confirm(ctx->control->running) == 0)
        jrpc_result(call, json_true());
    else
        jrpc_fail(call, ENOENT, NULL, "config_status tells whether something does",
                  "nothing waits for a confirmation");
}

void rpc_config_rollback(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    if (cfg_running_rollback(ctx->control->running, "config_rollback", rpc_changed, call) != 0)
        jrpc_fail(call, ENOENT, NULL, "config_status tells whether something does",
                  "nothing waits for a confirmation");
}

void rpc_config_save(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const char *source = cfg_running_source(ctx->control->running);
    const char *path = args[0].given ? args[0].string : source;
    enum cfg_saved how = CFG_SAVED_SAME;
    struct err err = {0};
    struct cfg_place place;
    int rc = cfg_running_busy(ctx->control->running, &err);

    if (rc == 0 && path[0] != '/') {
        err_text(&err, "%s%s", path,
                 path[0] ? " is no absolute path" : "the document came from no file");
        rc = path[0] ? -EINVAL : -ENOENT;
    }
    if (rc == 0) {
        if (!open_place(call, path, &place))
            return;
        rc = cfg_save_place(&place, path, cfg_running_get(ctx->control->running), &how, &err);
        cfg_place_close(&place);
    }
    if (rc != 0) {
        err.code = rc;
        rpc_fail(call, &err, rc == -EBUSY ? NULL : "path",
                 "give the path of a file in a directory that the daemon may write");
        return;
    }
    if (path == source || strcmp(path, source) == 0 || !source[0])
        cfg_running_saved(ctx->control->running, path);
    jrpc_result(call, json_pack("{s:s, s:s}", "path", path, "how", cfg_saved_names[how]));
}

void rpc_config_status(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned left = 0;
    json_t *result = json_pack("{s:i, s:s, s:b, s:b}", "revision",
                               (int)cfg_running_revision(ctx->control->running), "source",
                               cfg_running_source(ctx->control->running), "unsaved",
                               cfg_running_unsaved(ctx->control->running), "waiting",
                               cfg_running_waiting(ctx->control->running));

    if (result && cfg_running_pending(ctx->control->running, &left))
        json_object_set_new(result, "pending_confirm_s", json_integer(left));
    jrpc_result(call, result);
}

void rpc_names_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct cfg *cfg = cfg_running_get(ctx->control->running);
    json_t *names = json_object();
    char nid[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < cfg->name_count; i++)
        if (!args[0].given || nid_same(&args[0].nid, &cfg->name[i].nid))
            json_object_set_new(names, nid_format(&cfg->name[i].nid, nid),
                                json_string(cfg->name[i].host));
    jrpc_result(call, json_pack("{s:o}", "names", names));
}
