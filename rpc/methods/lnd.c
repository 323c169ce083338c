/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods about the NIs of one LND: devices, counters, connections, as the LND shows them. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/absent.h"
#include "lib/lnd/type.h"
#include "rpc/methods/lnd_show.h"

#define CONNS_DEFAULT 256

struct lnd_call {
    struct jrpc_call *call;
    const struct rpc_ctx *ctx;
    const struct lnd_type *type;
    const struct lnd_show *show; /* NULL: the node has no such LND */
    void *lnd;                   /* what the LND is registered with */
    lnet_net_t net;              /* ANY: all */
    bool has_nid, conns;
    struct lnet_nid nid;
    unsigned max;
    json_t *list;
    unsigned index; /* of the NI whose connections are being gathered */
};

/* ---- rows as JSON ---- */

static json_t *top(struct rpc_sink *s)
{
    return s->at[s->depth];
}

static void put(struct lnd_sink *to, const char *name, json_t *value)
{
    json_t *in = top((struct rpc_sink *)to);

    if (name)
        json_object_set_new(in, name, value);
    else
        json_array_append_new(in, value);
}

static void put_number(struct lnd_sink *to, const char *name, int64_t value)
{
    put(to, name, json_integer((json_int_t)value));
}

static void put_flag(struct lnd_sink *to, const char *name, bool value)
{
    put(to, name, json_boolean(value));
}

static void put_text(struct lnd_sink *to, const char *name, const char *value)
{
    put(to, name, json_string(value));
}

static void put_nid(struct lnd_sink *to, const char *name, const struct lnet_nid *value)
{
    put(to, name, rpc_nid(value));
}

static void enter(struct lnd_sink *to, const char *name, json_t *value)
{
    struct rpc_sink *s = (struct rpc_sink *)to;

    put(to, name, value);
    assert(s->depth + 1 < RPC_SINK_DEPTH);
    s->at[++s->depth] = value;
}

static void open_object(struct lnd_sink *to, const char *name)
{
    enter(to, name, json_object());
}

static void open_list(struct lnd_sink *to, const char *name)
{
    enter(to, name, json_array());
}

static void end(struct lnd_sink *to)
{
    ((struct rpc_sink *)to)->depth--;
}

struct rpc_sink rpc_sink(json_t *object)
{
    return (struct rpc_sink){
        .base = {put_number, put_flag, put_text, put_nid, open_object, open_list, end},
        .at = {object}};
}

/* ---- one NI ---- */

static json_t *ni_row(const struct lnd_call *v, const struct lnet_ni *ni)
{
    json_t *row = json_pack("{s:o, s:o*}", "nid", rpc_nid(&ni->nid), "interface",
                            ni->ifname[0] ? json_string(ni->ifname) : NULL);
    struct rpc_sink to = rpc_sink(row);

    v->show->ni(ni, &to.base);
    to.base.open(&to.base, "counters");
    v->show->counters(ni, &to.base);
    to.base.end(&to.base);
    return row;
}

/* ---- the answer ---- */

static bool wanted(const struct lnd_call *v, lnet_net_t net, const struct lnet_nid *nid)
{
    return net >> 16 == v->type->net_type && (v->net == LNET_NET_ANY || v->net == net) &&
           (!v->has_nid || nid_same(&v->nid, nid));
}

static json_t *absent_list(const struct lnd_call *v)
{
    const struct lnet_ni_conf *conf;
    json_t *list = json_array();
    const char *why;

    for (unsigned i = 0; (conf = control_absent_at(v->ctx->control, i, &why)); i++) {
        if (wanted(v, conf->net, &conf->nid))
            json_array_append_new(
                list, json_pack("{s:o, s:o*, s:o*, s:o*}", "net", rpc_net(conf->net), "nid",
                                nid_is_any(&conf->nid) ? NULL : rpc_nid(&conf->nid), "interface",
                                conf->ifname[0] ? json_string(conf->ifname) : NULL, "reason",
                                json_string(why)));
    }
    return list;
}

static void finish(struct lnd_call *v)
{
    json_t *absent = absent_list(v), *result, *memory = json_object();
    struct rpc_sink to = rpc_sink(memory);
    char remedy[96];

    if (v->has_nid && !json_array_size(v->list) && !json_array_size(absent)) {
        json_decref(v->list);
        json_decref(absent);
        json_decref(memory);
        snprintf(remedy, sizeof(remedy), "%s_get without parameters lists the NIs there are",
                 v->type->section);
        jrpc_fail(v->call, ENOENT, "nid", remedy, "there is no such NI on %s %s net",
                  strchr("aeiou", v->type->name[0]) ? "an" : "a", v->type->name);
        return;
    }
    result = json_pack("{s:o, s:o}", v->type->section, v->list, "absent", absent);
    if (v->show && v->show->memory(v->lnd, &to.base))
        json_object_set(result, "memory", memory);
    json_decref(memory);
    jrpc_result(v->call, result);
}

static void next_ni(struct lnd_call *v);

static void add_conns(void *arg, const void *rows)
{
    struct lnd_call *v = arg;
    struct rpc_sink to = rpc_sink(json_array_get(v->list, json_array_size(v->list) - 1));

    v->show->conn_rows(rows, &to.base);
    next_ni(v);
}

/* Continues from v->index: NIs in their order, each with its connections before the next NI. */
static void next_ni(struct lnd_call *v)
{
    while (v->show && v->index < lnet_ni_count(v->ctx->control->node)) {
        struct lnet_ni *ni = lnet_ni_at(v->ctx->control->node, v->index++);

        if (!ni || !lnet_ni_is_active(ni) || !wanted(v, ni->net, &ni->nid))
            continue;
        json_array_append_new(v->list, ni_row(v, ni));
        if (!v->conns)
            continue;
        if (v->show->conns(ni, v->max, add_conns, v) == 0)
            return; /* add_conns() continues */
        json_decref(v->list);
        jrpc_result(v->call, NULL);
        return;
    }
    finish(v);
}

/* Returns the type whose options have the name that the method begins with. */
static const struct lnd_type *type_of(const char *method)
{
    const struct lnd_type *type;

    for (unsigned i = 0; (type = lnd_type_at(i)); i++) {
        size_t n = type->section ? strlen(type->section) : 0;

        if (n && strncmp(method, type->section, n) == 0 && strcmp(method + n, "_get") == 0)
            return type;
    }
    return NULL;
}

void rpc_lnd_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct lnd_type *type = type_of(jrpc_method_of(call)->name);
    struct lnd_call *v = jrpc_alloc(call, sizeof(*v));
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct lnd_ops *ops;

    if (!v)
        return;
    if (!type) {
        jrpc_result(call, NULL);
        return;
    }
    *v = (struct lnd_call){
        .call = call,
        .ctx = ctx,
        .type = type,
        .net = args[0].given ? args[0].net : LNET_NET_ANY,
        .has_nid = args[1].given,
        .nid = args[1].given ? args[1].nid : LNET_NID_ANY,
        .conns = args[2].given && args[2].boolean,
        .max = args[3].given ? (unsigned)args[3].integer : CONNS_DEFAULT,
        .list = json_array(),
    };
    ops = lnet_lnd_of(ctx->control->node, type->net_type, &v->lnd);
    v->show = ops ? ops->show : NULL;
    next_ni(v);
}
