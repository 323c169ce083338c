/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the method files: JSON of common values, and changes of the running document. */
#include <errno.h>

#include "config/settings.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

const char *const rpc_pool_names[LNET_POOLS] = {"tiny", "small", "large"};

json_t *rpc_nid(const struct lnet_nid *nid)
{
    char text[LNET_NIDSTR_SIZE];

    return json_string(nid_format(nid, text));
}

json_t *rpc_net(lnet_net_t net)
{
    char text[LNET_NETSTR_SIZE];

    return json_string(net_format(net, text));
}

json_t *rpc_ms_ago(uint64_t when_us)
{
    uint64_t now = reactor_now_us();

    return when_us && when_us <= now ? json_integer((json_int_t)((now - when_us) / 1000)) : NULL;
}

static json_t *by_type(const uint64_t count[LNET_MSG_TYPES])
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "put", (json_int_t)count[LNET_MSG_PUT], "get",
                     (json_int_t)count[LNET_MSG_GET], "reply", (json_int_t)count[LNET_MSG_REPLY],
                     "ack", (json_int_t)count[LNET_MSG_ACK], "hello",
                     (json_int_t)count[LNET_MSG_HELLO]);
}

static json_int_t sum(const uint64_t count[LNET_MSG_TYPES])
{
    uint64_t all = 0;

    for (unsigned i = 0; i < LNET_MSG_TYPES; i++)
        all += count[i];
    return (json_int_t)all;
}

void rpc_add_sums(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                  const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES])
{
    json_object_set_new(object, "statistics",
                        json_pack("{s:I, s:I, s:I}", "send_count", sum(sent), "recv_count",
                                  sum(received), "drop_count", sum(dropped)));
}

void rpc_add_types(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                   const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES])
{
    json_object_set_new(object, "sent_stats", by_type(sent));
    json_object_set_new(object, "received_stats", by_type(received));
    json_object_set_new(object, "dropped_stats", by_type(dropped));
}

void rpc_add_counts(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                    const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES])
{
    rpc_add_sums(object, sent, received, dropped);
    rpc_add_types(object, sent, received, dropped);
}

/* ---- the running document ---- */

const struct cfg *rpc_document(const struct rpc_ctx *ctx)
{
    return ctx->control->running ? cfg_running_get(ctx->control->running) : NULL;
}

struct cfg *rpc_edit(struct jrpc_call *call)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct err err = {0};
    struct cfg *cfg;

    if (cfg_running_busy(ctx->control->running, &err) != 0) {
        err.code = -EBUSY;
        rpc_fail(call, &err, NULL, NULL);
        return NULL;
    }
    cfg = cfg_copy(cfg_running_get(ctx->control->running));
    if (cfg)
        rpc_own_document(call, cfg);
    else
        jrpc_result(call, NULL);
    return cfg;
}

static void free_document(void *cfg)
{
    cfg_free(cfg);
}

void rpc_own_document(struct jrpc_call *call, struct cfg *cfg)
{
    jrpc_own(call, cfg, free_document);
}

void rpc_commit(struct jrpc_call *call, struct cfg *cfg, cfg_outcome_fn done, void *arg)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const char *method = jrpc_method_of(call)->name;
    struct cfg_report report;
    unsigned i = 0;

    if (cfg_validate(method, cfg, &report) == 0) {
        jrpc_disown(call);
        cfg_running_change(ctx->control->running, cfg, 0, method, done, arg);
    } else {
        while (i < report.count && !report.message[i].error)
            i++;
        jrpc_fail(call, EINVAL, NULL, "config_get shows the document that it does not fit", "%s",
                  i < report.count ? report.message[i].text : "it does not fit");
    }
    cfg_report_free(&report);
}

void rpc_fail(struct jrpc_call *call, const struct err *err, const char *parameter,
              const char *remedy)
{
    bool named = jrpc_has_param(jrpc_method_of(call), err->where);

    jrpc_fail(call, -err->code, named ? err->where : parameter,
              err->remedy[0] ? err->remedy : remedy, "%s", err->message);
}

void rpc_change_failed(struct jrpc_call *call, const struct cfg_outcome *outcome,
                       const char *parameter)
{
    struct err err = *outcome->err;

    err_set(&err, outcome->rc, "%s%s%s", outcome->key ? outcome->key : "", outcome->key ? ": " : "",
            outcome->err->message);
    err_remedy(&err, "%s", outcome->err->remedy);
    err_where(&err, "%s", outcome->err->where);
    rpc_fail(call, &err, parameter,
             "the old document holds; correct what is named and apply again");
}

void rpc_changed(void *arg, const struct cfg_outcome *outcome)
{
    if (outcome->rc == 0)
        jrpc_result(arg, json_true());
    else
        rpc_change_failed(arg, outcome, NULL);
}

void rpc_refuse_cursor(struct jrpc_call *call)
{
    jrpc_refuse(call, "cursor",
                "give the `cursor` of the page before, unchanged; none for the first",
                "cursor is none of this method");
}
