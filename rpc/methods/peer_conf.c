/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configured peers in peer_get. They are shown as configured, with all their NIDs; NIDs that the
 * node knows have counters. Their pages follow those of the other peers.
 */
#include <stdlib.h>

#include "rpc/methods/methods_internal.h"

/* A NID of a configured peer, and what the node knows of it. */
struct item {
    struct lnet_nid primary, nid;
    bool multi_rail;
    bool known;
    struct lnet_peer_ni_row row;
};

struct conf_page {
    struct jrpc_call *call;
    struct item *item;
    unsigned count, at; /* items; the item that is requested now */
    unsigned next;      /* index of the first peer of the next page; 0 = this is the last */
    bool brief;
};

static bool has_nid(const struct cfg_peer *peer, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < peer->nid_count; i++)
        if (nid_same(&peer->nid[i], nid))
            return true;
    return nid_same(&peer->primary, nid);
}

int rpc_peer_conf_find(const struct rpc_ctx *ctx, const struct lnet_nid *nid)
{
    const struct cfg *cfg = rpc_document(ctx);

    for (unsigned i = 0; cfg && i < cfg->peer_count; i++)
        if (has_nid(&cfg->peer[i], nid))
            return (int)i;
    return -1;
}

unsigned rpc_peer_conf_count(const struct rpc_ctx *ctx)
{
    const struct cfg *cfg = rpc_document(ctx);

    return cfg ? cfg->peer_count : 0;
}

/* ---- the answer ---- */

/* A NID that the node does not know has neither a connection nor credits. */
static json_t *item_ni(const struct item *item, bool brief)
{
    if (item->known)
        return rpc_peer_ni(&item->row, brief);
    return json_pack("{s:o, s:s}", "nid", rpc_nid(&item->nid), "state", "NA");
}

static json_t *peer_rows(const struct conf_page *p)
{
    json_t *list = json_array(), *nis = NULL;
    unsigned i;

    for (i = 0; i < p->count; i++) {
        const struct item *item = &p->item[i];

        if (i == 0 || !nid_same(&item->primary, &item[-1].primary)) {
            json_t *row = json_pack("{s:o, s:b}", "primary nid", rpc_nid(&item->primary),
                                    "Multi-Rail", item->multi_rail);

            if (!p->brief)
                json_object_set_new(row, "peer state", json_integer(RPC_PEER_CONFIGURED));
            nis = json_array();
            json_object_set_new(row, "peer ni", nis);
            json_array_append_new(list, row);
        }
        json_array_append_new(nis, item_ni(item, p->brief));
    }
    return list;
}

static void answer(struct conf_page *p)
{
    json_t *cursor = p->next ? json_sprintf(RPC_PEER_CONF_CURSOR "%u", p->next) : NULL;

    jrpc_result(p->call, json_pack("{s:o, s:o*}", "peer", peer_rows(p), "cursor", cursor));
    free(p->item);
    free(p);
}

/* ---- asking the node, one NID after the other ---- */

static void ask(struct conf_page *p);

static void found(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                  const struct lnet_peer_ni_cursor *next)
{
    struct conf_page *p = arg;

    if (n) {
        p->item[p->at].known = true;
        p->item[p->at].row = rows[0];
    }
    p->at++;
    ask(p);
}

static void ask(struct conf_page *p)
{
    const struct rpc_ctx *ctx = jrpc_ctx(p->call);

    if (p->at == p->count) {
        answer(p);
    } else if (lnet_peer_ni_find(ctx->control->node, &p->item[p->at].nid, found, p) != 0) {
        jrpc_result(p->call, NULL);
        free(p->item);
        free(p);
    }
}

/* NIDs of a peer as lnetctl lists them: the primary one first. */
static void add_items(struct conf_page *p, const struct cfg_peer *peer)
{
    struct item *item = &p->item[p->count++];

    *item = (struct item){
        .primary = peer->primary, .nid = peer->primary, .multi_rail = peer->multi_rail};
    for (unsigned i = 0; i < peer->nid_count; i++) {
        if (nid_same(&peer->nid[i], &peer->primary))
            continue;
        p->item[p->count] = *item;
        p->item[p->count++].nid = peer->nid[i];
    }
}

void rpc_peer_conf_page(struct jrpc_call *call, unsigned from, unsigned limit, bool brief,
                        bool more)
{
    const struct cfg *cfg = rpc_document(jrpc_ctx(call));
    unsigned peers = cfg ? cfg->peer_count : 0, end;
    struct conf_page *p = calloc(1, sizeof(*p));
    size_t room = 1;

    from = from < peers ? from : peers;
    end = peers - from > limit ? from + limit : peers;
    for (unsigned i = from; i < end; i++)
        room += cfg->peer[i].nid_count + 1;
    if (p)
        p->item = calloc(room, sizeof(*p->item));
    if (!p || !p->item) {
        free(p);
        jrpc_result(call, NULL);
        return;
    }
    p->call = call;
    p->brief = brief;
    p->next = more && end < peers ? end : 0;
    for (unsigned i = from; i < end; i++)
        add_items(p, &cfg->peer[i]);
    ask(p);
}
