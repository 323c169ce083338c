/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PUSHes that this node receives. docs/protocol/lnet-core.md §3.1, §3.6. All on the node's home
 * reactor.
 */
#include "lib/lnet/path/path.h"
#include "lib/lnet/ping/ping_internal.h"

static void heard_on(struct peer *peer, const struct lnet_event *ev)
{
    peer->push.nid = ev->initiator;
    peer->push.local = ev->target;
    peer->push.via = nid_same(&ev->sender, &ev->initiator) ? LNET_NID_ANY : ev->sender;
}

/* Part of a list says too little, and a list without the NID that the PUSH came from is not that
 * node's. */
static bool is_usable(const struct lnet_ping_info *info, const struct lnet_nid *from)
{
    for (uint32_t i = 0; !info->truncated && i < info->count; i++)
        if (nid_same(&info->ni[i].nid, from))
            return true;
    return false;
}

/* The peer of the NID has pushed p->scratch, and is pushed to unless it knows our info. A new peer
 * behind a gateway is pinged once it has acknowledged our PUSH. So a node that somebody made up
 * costs one message. */
static void learn(struct lnet_ping *p, struct peer *peer, const struct lnet_event *ev)
{
    struct peer_table *peers = p->node->peers;
    bool on = lnet_discovery_is_on(p->node);

    if (nid_is_any(&peer->push.nid) && !nid_same(&ev->sender, &ev->initiator))
        peer->push.ping_after = true;
    heard_on(peer, ev);
    peer_table_hear(peers, peer, &p->scratch, on);
    if (peer->state & PEER_MARK_DELETION && !peer->push.slot) {
        peer_table_recreate(peers, peer, &ev->initiator);
        peer_table_hear(peers, peer, &p->scratch, on);
    }
    if (is_usable(&p->scratch, &ev->initiator))
        lnet_discover_pushed(p, peer);
    else
        lnet_discover_pushed_bad(p, peer, p->scratch.full_size);
    peer = peer_table_find(peers, &ev->initiator); /* may be another one's NID now */
    if (!peer)
        return;
    heard_on(peer, ev);
    lnet_discover(p, peer, 0);
}

static void push_received(struct lnet_ping *p, const struct push_in *in,
                          const struct lnet_event *ev)
{
    struct lnet_node *node = p->node;
    struct peer *peer;
    const bool own = nid_same(&ev->sender, &ev->initiator); /* it came from the node itself */
    struct lnet_gw_ni *gw_ni;
    enum lnet_drop why;

    why = lnet_ping_decode(in->data, ev->mlength, &p->scratch);
    if (!why && !(p->scratch.features & LNET_PING_MULTI_RAIL))
        return;
    /* Who is neither the node itself nor the gateway of its net may have made this up. */
    if (!why && !own && !lnet_source_gateway(node, &ev->sender, nid_net(&ev->initiator)))
        why = LNET_DROP_PUSH_SOURCE;
    if (why) {
        lnet_drop_event(node, why, lnet_ni_find(node, &ev->target), &ev->sender, NULL);
        peer = peer_table_find(node->peers, &ev->initiator);
        if (peer && own) {
            lnet_discover_pushed_bad(p, peer, 0);
            lnet_discover_some(p);
        }
        return;
    }
    /* A gateway speaks for itself only: another node could have forged what it forwarded. */
    gw_ni = own ? lnet_gw_ni_find(node, &ev->initiator) : NULL;
    if (gw_ni)
        p->on_push(gw_ni, &p->scratch);
    peer = peer_table_get_pusher(node->peers, &ev->initiator, own ? &p->scratch : NULL);
    if (!peer)
        return;
    lnet_ping_limit(p);
    learn(p, peer, ev);
    lnet_discover_some(p);
}

static void push_in_post(struct lnet_ping *p, struct push_in *in)
{
    in->seg.addr = in->data;
    in->seg.len = sizeof(in->data);
    in->seg.region = MEM_REGION_NONE;
    in->md = (struct lnet_md){
        .options = LNET_MD_OP_PUT | LNET_MD_TRUNCATE, .threshold = 1, .eq = &p->in_eq, .user = in};
    (void)lnet_ping_attach(p->node, &in->me, &in->md,
                           &in->seg); /* portal and lengths are constants */
}

static void push_in_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct lnet_ping *p = md->eq->arg;
    struct push_in *in = md->user;

    if (ev->type == LNET_EVENT_PUT && ev->status == 0)
        push_received(p, in, ev);
    if (ev->unlinked && !p->stopped) {
        push_in_post(p, in);
        lnet_lazy_retry(p->node);
    }
}

/* ---- life ---- */

void lnet_ping_on_push(struct lnet_node *node,
                       void (*fn)(struct lnet_gw_ni *from, const struct lnet_ping_info *info))
{
    node->ping->on_push = fn;
}

void lnet_ping_push_init(struct lnet_ping *p)
{
    p->in_eq = (struct lnet_eq){push_in_event, p};
}

void lnet_ping_push_start(struct lnet_ping *p)
{
    for (unsigned i = 0; i < PUSH_IN; i++)
        push_in_post(p, &p->in[i]);
}
