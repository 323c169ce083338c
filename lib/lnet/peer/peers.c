/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/shard/conf.h"

#include <errno.h>
#include <stdlib.h>

static bool is_own(void *node, const struct lnet_nid *nid)
{
    return lnet_is_own_nid(node, nid);
}

/* Each NID of a peer takes a peer NI once it is used, so there are as many of both. */
static struct peer_table_opts table_opts(const struct lnet_node_opts *o)
{
    return (struct peer_table_opts){.max_peers = lnet_max_peers(o),
                                    .max_nids = lnet_max_peers(o),
                                    .max_pinned = LNET_GW_SLOTS,
                                    .prefix4 = (uint8_t)(o->prefix4 ? o->prefix4 : LNET_PREFIX4),
                                    .prefix6 = (uint8_t)(o->prefix6 ? o->prefix6 : LNET_PREFIX6),
                                    .is_own = is_own};
}

size_t lnet_peers_bytes(const struct lnet_node_opts *o)
{
    struct peer_table_opts opts = table_opts(o);

    return peer_table_bytes(&opts);
}

int lnet_peers_init(struct lnet_node *node,
                    void (*notify)(void *node, const struct peer_event *event))
{
    struct peer_table_opts opts = table_opts(&node->opts);

    opts.notify = notify;
    opts.arg = node;
    node->peers = calloc(1, sizeof(*node->peers));
    return node->peers ? peer_table_init(node->peers, &opts) : -ENOMEM;
}

void lnet_peers_fini(struct lnet_node *node)
{
    if (node->peers)
        peer_table_fini(node->peers);
    free(node->peers);
    node->peers = NULL;
}

void lnet_peer_set_gateway(struct lnet_gw *gw)
{
    if (!gw->pinned)
        gw->pinned = peer_table_pin(gw->node->peers, &gw->nid);
}

void lnet_peer_unset_gateway(struct lnet_gw *gw)
{
    if (gw->pinned)
        peer_table_unpin(gw->node->peers, &gw->nid);
    gw->pinned = false;
}
