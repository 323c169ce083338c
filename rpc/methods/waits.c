/* SPDX-License-Identifier: BSD-3-Clause */
/* waits_get: where messages queue, over all reactors, NIs and peers, and who has the longest. */
#include "rpc/methods/methods_internal.h"

#define PAGE_ROWS 128

enum wait_for {
    WAIT_TINY, /* in the order of enum lnet_pool */
    WAIT_SMALL,
    WAIT_LARGE,
    WAIT_PEER_RTR,
    WAIT_PEER_TX,
    WAIT_NI_TX,
    WAIT_LIMIT,
    WAIT_KINDS
};

static const struct {
    const char *name;
    const char *text;
} kinds[WAIT_KINDS] = {
    [WAIT_TINY] = {"tiny_buffer", "Messages without payload, for a router buffer or for their next "
                                  "hop's share of these."},
    [WAIT_SMALL] = {"small_buffer", "Messages of up to 4 KiB, for a router buffer or for their "
                                    "next hop's share of these."},
    [WAIT_LARGE] = {"large_buffer", "Larger messages, for a router buffer or for their next hop's "
                                    "share of these."},
    [WAIT_PEER_RTR] = {"peer_router_credit",
                       "Messages whose sender holds as many router buffers as it may."},
    [WAIT_PEER_TX] = {"peer_tx_credit",
                      "Messages for a peer that is being sent as many as it may."},
    [WAIT_NI_TX] = {"ni_tx_credit", "Messages for an NI that is sending as many as it may."},
    [WAIT_LIMIT] = {"limit", "Messages whose sender has sent as many or as much as a limit of the "
                             "access rules lets through."},
};

struct waits {
    struct jrpc_call *call;
    struct {
        uint64_t waiting, waited;
        uint64_t worst; /* waiting of that NID */
        struct lnet_nid nid;
    } sum[WAIT_KINDS];
};

static void add(struct waits *w, enum wait_for kind, uint64_t waiting, uint64_t waited,
                const struct lnet_nid *nid)
{
    w->sum[kind].waiting += waiting;
    w->sum[kind].waited += waited;
    if (nid && waiting > w->sum[kind].worst) {
        w->sum[kind].worst = waiting;
        w->sum[kind].nid = *nid;
    }
}

static void add_pools(struct waits *w, const struct rpc_ctx *ctx)
{
    for (unsigned r = 0; r < reactor_count(ctx->control->env); r++) {
        for (int i = 0; i < LNET_POOLS; i++) {
            struct lnet_pool_stats s = {0};

            lnet_pool_stats_get(ctx->control->node, r, (enum lnet_pool)i, &s);
            add(w, (enum wait_for)(WAIT_TINY + i), s.waiting, s.waited, NULL);
        }
    }
}

static void add_nis(struct waits *w, const struct rpc_ctx *ctx)
{
    for (unsigned i = 0; i < lnet_ni_count(ctx->control->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(ctx->control->node, i);
        struct lnet_credits tx = {0};
        uint32_t waiting = 0;

        if (!ni)
            continue;
        lnet_ni_credits_get(ctx->control->node, i, &tx, &waiting);
        add(w, WAIT_NI_TX, waiting, tx.waited, &ni->nid);
    }
}

static json_t *wait_row(const struct waits *w, enum wait_for kind)
{
    json_t *row = json_pack("{s:s, s:I, s:I, s:s}", "name", kinds[kind].name, "waiting",
                            (json_int_t)w->sum[kind].waiting, "waited",
                            (json_int_t)w->sum[kind].waited, "text", kinds[kind].text);

    if (w->sum[kind].worst)
        json_object_set_new(row, "worst",
                            json_pack("{s:o, s:I}", "nid", rpc_nid(&w->sum[kind].nid), "waiting",
                                      (json_int_t)w->sum[kind].worst));
    return row;
}

static void peer_page(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                      const struct lnet_peer_ni_cursor *next)
{
    struct waits *w = arg;
    const struct rpc_ctx *ctx = jrpc_ctx(w->call);
    json_t *list;

    for (unsigned i = 0; i < n; i++) {
        add(w, WAIT_PEER_RTR, rows[i].rtr_waiting, rows[i].rtr.waited, &rows[i].nid);
        add(w, WAIT_PEER_TX, rows[i].tx_waiting, rows[i].tx.waited, &rows[i].nid);
        add(w, WAIT_LIMIT, rows[i].limit_waiting, rows[i].limit_waited, &rows[i].nid);
    }
    if (!next->end && !lnet_peer_ni_page(ctx->control->node, next, PAGE_ROWS, peer_page, w))
        return; /* without memory, the sums end here */
    list = json_array();
    for (unsigned i = 0; i < WAIT_KINDS; i++)
        json_array_append_new(list, wait_row(w, (enum wait_for)i));
    jrpc_result(w->call, json_pack("{s:o}", "waits", list));
}

void rpc_waits_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct lnet_peer_ni_cursor begin = {0};
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct waits *w = jrpc_alloc(call, sizeof(*w));

    if (!w)
        return;
    w->call = call;
    add_pools(w, ctx);
    add_nis(w, ctx);
    if (lnet_peer_ni_page(ctx->control->node, &begin, PAGE_ROWS, peer_page, w) != 0)
        jrpc_result(call, NULL);
}
