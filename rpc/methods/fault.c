/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for fault injection into LNet messages. Words: docs/protocol/lnet-core.md §9.2. */
#include <stdlib.h>
#include <string.h>

#include "config/nid_list.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

#define ANY "<?>" /* as lnetctl shows it */

static const char *const type_names[] = {
    [LNET_MSG_ACK] = "ACK",
    [LNET_MSG_PUT] = "PUT",
    [LNET_MSG_GET] = "GET",
    [LNET_MSG_REPLY] = "REPLY",
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* ---- parameters ---- */

/* The kernel's form of a whole net: an address of ones. §9.1 */
static struct lnet_nid whole_net(lnet_net_t net)
{
    return nid_make(net, "\xff\xff\xff\xff", 4);
}

/* A range of one NID is shown as the NID, a range of a net as the kernel shows it. */
static void name_range(struct lnet_fault_nids *nids, const char *text)
{
    struct lnet_nid nid, net = whole_net(nids->range.net);

    if (nid_parse(text, &nid) == 0 && nid_same(&nid, &net)) {
        memset(&nids->range, 0, sizeof(nids->range));
        nids->range.net = nid_net(&net);
        nids->range.kind = NID_RANGE_ALL;
    }
    if (nids->range.kind == NID_RANGE_ALL)
        nid_format(&net, nids->text);
    else if (nid_parse(text, &nid) == 0)
        nid_format(&nid, nids->text);
    else
        snprintf(nids->text, sizeof(nids->text), "%s", text);
}

/* False: the call has been ended. */
static bool read_nids(struct jrpc_call *call, const char *parameter, const struct jrpc_arg *arg,
                      struct lnet_fault_nids *out)
{
    struct nid_list list = {0};
    struct err err = {0};

    *out = (struct lnet_fault_nids){.any = true, .text = ANY};
    if (!arg->given || strcmp(arg->string, "*") == 0 || strcmp(arg->string, ANY) == 0)
        return true;
    if (cfg_nid_list_parse(arg->string, &list, &err) == 0 && list.n == 1 &&
        !strpbrk(arg->string, " \t\n")) {
        *out = (struct lnet_fault_nids){.range = list.range[0]};
        name_range(out, arg->string);
        free(list.range);
        return true;
    }
    free(list.range);
    jrpc_refuse(call, parameter, "give a NID, one range of NIDs, *@NET, or * for all",
                "'%s' is none of these", arg->string);
    return false;
}

/* Returns the index of a text among names; n: it is none. */
static size_t index_of(const char *const *names, size_t n, const char *text)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (names[i] && strcmp(names[i], text) == 0)
            break;
    return i;
}

/* Reads words into a mask, a bit each. False: the call has been ended. */
static bool read_words(struct jrpc_call *call, const char *parameter, const struct jrpc_arg *arg,
                       const char *const *names, size_t n, const char *all, uint32_t *mask)
{
    const json_t *word;
    size_t i, bit;

    json_array_foreach(arg->value, i, word) {
        const char *text = json_string_value(word);

        bit = index_of(names, n, text);
        if (all && strcmp(text, all) == 0) {
            *mask = LNET_FAULT_HEALTH;
        } else if (bit < n) {
            *mask |= 1u << bit;
        } else {
            jrpc_refuse(call, parameter, "docs/jsonrpc.md lists the words", "'%s' is no %s", text,
                        parameter);
            return false;
        }
    }
    return true;
}

static bool read_portals(struct jrpc_call *call, const struct jrpc_arg *arg, uint64_t *mask)
{
    const json_t *word;
    size_t i;

    json_array_foreach(arg->value, i, word) {
        const char *text = json_string_value(word);
        char *end;
        unsigned long portal = strtoul(text, &end, 10);

        if (end == text || *end || text[0] < '0' || text[0] > '9' || portal >= LNET_PORTALS) {
            jrpc_refuse(call, "portal", "portals are 0 to 63", "'%s' is no portal", text);
            return false;
        }
        *mask |= UINT64_C(1) << portal;
    }
    return true;
}

/* ---- changes ---- */

void rpc_fault_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct lnet_fault_rule rule = {.kind = (enum lnet_fault_kind)args[0].integer,
                                   .rate = (uint32_t)args[3].integer,
                                   .interval = (uint32_t)args[4].integer,
                                   .latency = (uint32_t)args[5].integer,
                                   .random = args[9].boolean,
                                   .drop_all = args[11].boolean};
    struct err err = {0};

    if (!read_nids(call, "source", &args[1], &rule.src) ||
        !read_nids(call, "dest", &args[2], &rule.dst) ||
        !read_nids(call, "local_nid", &args[10], &rule.local) ||
        !read_portals(call, &args[6], &rule.portals) ||
        !read_words(call, "message", &args[7], type_names, N(type_names), NULL, &rule.types) ||
        !read_words(call, "health_error", &args[8], lnet_health_names, LNET_HEALTH_COUNT, "random",
                    &rule.health))
        return;
    if (lnet_fault_add(ctx->control->node, &rule, &err) == 0)
        jrpc_result(call, json_true());
    else
        rpc_fail(call, &err, NULL, "correct what is named");
}

void rpc_fault_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct lnet_fault_nids src, dst;
    struct err err = {0};
    int n;

    if (args[3].boolean == (args[1].given || args[2].given) || args[1].given != args[2].given) {
        jrpc_refuse(call, args[1].given ? "dest" : "source",
                    "give source and dest, or all, not both", "it is not clear which rules");
        return;
    }
    if (!read_nids(call, "source", &args[1], &src) || !read_nids(call, "dest", &args[2], &dst))
        return;
    n = lnet_fault_del(ctx->control->node, (enum lnet_fault_kind)args[0].integer, &src, &dst, &err);
    if (n > 0)
        jrpc_result(call, json_pack("{s:i}", "removed", n));
    else
        rpc_fail(call, &err, NULL, "fault_get lists the rules");
}

void rpc_fault_reset(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    lnet_fault_reset(ctx->control->node, (enum lnet_fault_kind)args[0].integer);
    jrpc_result(call, json_true());
}

/* ---- what there is ---- */

static void set(json_t *row, const char *key, uint64_t n)
{
    json_object_set_new(row, key, json_integer((json_int_t)n));
}

static json_t *own_keys(const struct lnet_fault_row *r)
{
    json_t *errors = json_array();

    for (size_t i = 0; i < LNET_HEALTH_COUNT; i++)
        if (r->rule.health >> i & 1)
            json_array_append_new(errors, json_string(lnet_health_names[i]));
    return json_pack("{s:s, s:b, s:b, s:o, s:i}", "local_nid", r->rule.local.text, "random",
                     r->rule.random, "drop_all", r->rule.drop_all, "health_error", errors, "held",
                     (int)r->held);
}

static json_t *rule_row(const struct lnet_fault_row *r)
{
    const bool drop = r->rule.kind == LNET_FAULT_DROP;
    json_t *row = json_pack("{s:s, s:s, s:s}", "rule_type", drop ? "drop" : "delay", "fa_src",
                            r->rule.src.text, "fa_dst", r->rule.dst.text);

    set(row, "fa_ptl_mask", r->rule.portals);
    set(row, "fa_msg_mask", r->rule.types);
    set(row, drop ? "da_rate" : "la_rate", r->rule.rate);
    set(row, drop ? "da_interval" : "la_interval", r->rule.interval);
    if (!drop)
        set(row, "la_latency", r->rule.latency);
    set(row, drop ? "ds_dropped" : "ls_delayed", r->affected);
    set(row, "fs_count", r->count);
    set(row, "fs_put", r->by_type[LNET_MSG_PUT]);
    set(row, "fs_ack", r->by_type[LNET_MSG_ACK]);
    set(row, "fs_get", r->by_type[LNET_MSG_GET]);
    set(row, "fs_reply", r->by_type[LNET_MSG_REPLY]);
    json_object_set_new(row, "millrace", own_keys(r));
    return row;
}

void rpc_fault_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static struct lnet_fault_row rows[LNET_FAULT_RULES]; /* of the control thread */
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned n = lnet_fault_rows(ctx->control->node, rows, LNET_FAULT_RULES);
    json_t *list = json_array();

    for (unsigned i = 0; i < n; i++)
        if (!args[0].given || (int64_t)rows[i].rule.kind == args[0].integer)
            json_array_append_new(list, rule_row(&rows[i]));
    jrpc_result(call, json_pack("{s:o}", "fault", list));
}
