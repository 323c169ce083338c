/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a message to a NID goes where it goes: the choice that select.c would make for it, and how
 * each other candidate compares with it. On the reactor that such a message would be handled by;
 * then the next hop's home is asked about its peer NI.
 */
#include "lib/lnet/access/access.h"
#include "lib/lnet/path/path.h"

#include <errno.h>
#include <stdlib.h>

static const struct {
    const char *name, *text;
} whys[LNET_WHY_COUNT] = {
#define WHY(sym, name, text) [LNET_WHY_##sym] = {name, text},
#include "lib/lnet/whys.def"
#undef WHY
};

const char *lnet_why_name(enum lnet_why why)
{
    return (unsigned)why < LNET_WHY_COUNT ? whys[why].name : "unknown";
}

const char *lnet_why_text(enum lnet_why why)
{
    return (unsigned)why < LNET_WHY_COUNT ? whys[why].text : "";
}

struct why_request {
    struct lnet_node *node;
    struct lnet_nid dest, src;
    lnet_why_fn fn;
    void *arg;
    struct reactor_task task;
    struct lnet_why_answer answer;
};

/* ---- candidates (any reactor) ---- */

/* Other reactors send meanwhile: queues and credits may have changed since the choice. */
static enum lnet_why behind(enum lnet_why why, enum lnet_why changed)
{
    return why == LNET_WHY_CHOSEN ? changed : why;
}

static struct lnet_why_route route_row(const struct lnet_route *r, const struct lnet_gw_ni *ni)
{
    return (struct lnet_why_route){
        .row = {.conf = {r->net, r->gw->nid, r->hops, r->priority},
                .up = lnet_gw_alive(r->gw) && relaxed_load(&r->up),
                .single_hop = relaxed_load(&r->single_hop)},
        .queued_bytes = relaxed_load(&ni->queued_bytes),
        .health = (int)relaxed_load(&ni->health),
    };
}

static void list_routes(const struct lnet_shard *s, struct lnet_why_answer *a,
                        const struct lnet_nid *dest, const struct lnet_ni *src,
                        const struct lnet_route *best)
{
    const struct lnet_conf *conf = lnet_conf_get(s->node);
    struct lnet_route_choice c, chosen = {0};
    struct lnet_route *const *r;
    unsigned n = lnet_conf_routes(conf, nid_net(dest), &r);
    const struct lnet_wanted wanted = lnet_wanted_of(conf, src, r, n, dest);

    if (best)
        (void)lnet_route_usable(s, best, &wanted, &chosen);
    a->nroutes = n;
    for (unsigned i = 0; i < n && i < LNET_WHY_MAX; i++) {
        enum lnet_why why = lnet_route_usable(s, r[i], &wanted, &c);

        if (why == LNET_WHY_CHOSEN && chosen.ni && r[i] != best)
            why = behind(lnet_route_behind(s, &c, &chosen), LNET_WHY_QUEUE);
        a->route[i] = route_row(r[i], c.ni ? c.ni->ni : r[i]->gw->ni[0]);
        a->route[i].why = why;
    }
}

/* Lists the NIs of a net with one peer NI of the next hop; other: why another peer NI is chosen, or
 * CHOSEN. */
static void list_pairs(const struct lnet_shard *s, struct lnet_why_answer *a,
                       const struct lnet_ni *src, const struct lnet_path *path,
                       const struct lnet_conf_net *net, const struct lnet_hop *hop,
                       enum lnet_why other)
{
    for (unsigned i = 0; i < net->nni; i++) {
        const struct lnet_ni *ni = net->ni[i];
        struct lnet_why_ni *row = &a->nis[a->nnis];

        if (a->nnis++ >= LNET_WHY_MAX)
            continue;
        row->index = ni->index;
        row->peer_ni = *hop->nid;
        row->health = (int)relaxed_load(&ni->health);
        row->peer_ni_health = hop->gw_ni ? (int)relaxed_load(&hop->gw_ni->health) : -1;
        if (src && ni != src)
            row->why = a->ni_preferred ? LNET_WHY_NI_PREFERRED : LNET_WHY_NOT_SOURCE;
        else if (other != LNET_WHY_CHOSEN)
            row->why = hop->gw_ni && relaxed_load(&hop->gw_ni->pairs_down) & lnet_ni_bit(ni)
                           ? LNET_WHY_PAIR_DOWN
                           : other;
        else if (ni == path->ni)
            row->why = LNET_WHY_CHOSEN;
        else
            row->why = behind(lnet_ni_behind(s, ni, path->ni, hop), LNET_WHY_NI_CREDITS);
    }
}

static void list_nis(const struct lnet_shard *s, struct lnet_why_answer *a,
                     const struct lnet_ni *src, const struct lnet_path *path,
                     const struct lnet_route *route)
{
    const struct lnet_conf_net *net = lnet_net_find(s->node, nid_net(&path->next_hop));
    const struct lnet_conf_gw *g =
        route ? lnet_conf_gateway(lnet_conf_get(s->node), route->gw) : NULL;
    const struct lnet_conf_gw_ni *best = NULL;
    struct lnet_hop hop = lnet_hop_of(s, &path->next_hop, path->gw_ni);

    if (!route && net)
        list_pairs(s, a, src, path, net, &hop, LNET_WHY_CHOSEN);
    for (unsigned i = 0; g && i < g->nnis; i++)
        if (g->ni[i].ni == path->gw_ni)
            best = &g->ni[i];
    for (unsigned i = 0; best && i < g->nnis; i++) { /* NULL: of another snapshot than the path */
        const struct lnet_conf_gw_ni *e = &g->ni[i];
        enum lnet_why why = LNET_WHY_CHOSEN;

        if (!e->net)
            continue;
        if (src && src->net != e->net->net)
            why = LNET_WHY_OTHER_NET;
        else if (e != best)
            why = behind(lnet_gw_ni_behind(s, e, best, src ? lnet_ni_bit(src) : 0),
                         LNET_WHY_PEER_NI_CREDITS);
        hop = lnet_hop_of(s, &e->ni->nid, e->ni);
        list_pairs(s, a, src, path, e->net, &hop, why);
    }
}

static enum lnet_drop explain(const struct lnet_shard *s, struct why_request *q,
                              struct lnet_ni *src)
{
    struct lnet_why_answer *a = &q->answer;
    const struct lnet_route *route;
    struct lnet_path path;
    enum lnet_drop drop = lnet_choose(s, &q->dest, &LNET_NID_ANY, src, &path, &route);

    a->local = !drop && !route;
    if (!a->local)
        list_routes(s, a, &q->dest, src, route);
    if (drop)
        return drop;
    a->next_hop = path.next_hop;
    a->ni = (int)path.ni->index;
    list_nis(s, a, src, &path, route);
    return LNET_DROP_NONE;
}

/* ---- a message of others ---- */

/* Returns the peer NI that would bring a message from src; ANY when it cannot be known. */
static struct lnet_nid sender_of(const struct lnet_shard *s, const struct lnet_nid *src)
{
    static const struct lnet_wanted any = {.net = LNET_NET_ANY, .rule = -1};
    struct lnet_route_choice c;
    struct lnet_route *const *r;
    unsigned n;

    if (lnet_net_find(s->node, nid_net(src)))
        return *src;
    n = lnet_conf_routes(lnet_conf_get(s->node), nid_net(src), &r);
    for (unsigned i = 0; i < n; i++)
        if (lnet_route_usable(s, r[i], &any, &c) == LNET_WHY_CHOSEN)
            return c.ni->ni->nid;
    return n > 0 ? r[0]->gw->nid : LNET_NID_ANY; /* down as it is, it may still bring one */
}

/* Returns what a rule refuses the message by. */
static enum lnet_drop check_access(const struct lnet_node *node, struct why_request *q,
                                   const struct lnet_nid *sender)
{
    const struct lnet_conf_net *net = lnet_net_find(node, nid_net(sender));
    const struct lnet_access *a = lnet_access(node);
    bool allowed = true;
    const char *rule = NULL;

    if (net)
        rule = lnet_access_why(a, LNET_ACCESS_CONNECT, sender, &net->ni[0]->nid, &allowed);
    if (!allowed) {
        memcpy(q->answer.access.rule, rule, LNET_ACCESS_NAME);
        return LNET_DROP_ACCESS_CONNECT;
    }
    rule = lnet_access_why(a, LNET_ACCESS_FORWARD, &q->src, &q->dest, &allowed);
    if (rule)
        memcpy(q->answer.access.rule, rule, LNET_ACCESS_NAME);
    return allowed ? LNET_DROP_NONE : LNET_DROP_ACCESS_FORWARD;
}

/* Applies the checks of rx.c to the header, as far as they can be known. */
static enum lnet_drop check(const struct lnet_node *node, struct why_request *q,
                            const struct lnet_nid *sender)
{
    struct lnet_why_answer *a = &q->answer;
    lnet_net_t over = nid_net(sender); /* LNET_NET_ANY if unknown */

    if (lnet_is_own_nid(node, &q->dest)) {
        a->mine = nid_is_lo(&q->dest) || nid_net(&q->dest) == over || nid_is_any(sender);
        return a->mine ? LNET_DROP_NONE : LNET_DROP_DEST_OTHER_OWN_NID;
    }
    if (nid_net(&q->dest) == over)
        return LNET_DROP_DEST_SAME_NET;
    if (!lnet_is_router(node))
        return LNET_DROP_ROUTING_OFF;
    if (nid_is_any(sender) && relaxed_load(&node->timing.source_check) != LNET_SOURCE_OFF)
        return LNET_DROP_SRC_NOT_ALLOWED;
    return check_access(node, q, sender);
}

/* ---- from reactor to reactor ---- */

static void answer_done(struct why_request *q)
{
    q->fn(q->arg, &q->answer);
    free(q);
}

static void peer_found(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                       const struct lnet_peer_ni_cursor *next)
{
    struct why_request *q = arg;

    (void)next;
    q->answer.peer_known = n > 0;
    if (n > 0)
        q->answer.peer = rows[0];
    answer_done(q);
}

static void chosen(struct reactor_task *task)
{
    struct why_request *q = container_of(task, struct why_request, task);

    if (q->answer.ni < 0 || lnet_peer_ni_find(q->node, &q->answer.next_hop, peer_found, q))
        answer_done(q);
}

static void choose(struct reactor_task *task)
{
    struct why_request *q = container_of(task, struct why_request, task);
    const struct lnet_shard *s = lnet_shard_self(q->node);
    struct lnet_ni *src = nid_is_any(&q->src) ? NULL : lnet_ni_find(q->node, &q->src);
    const struct lnet_conf_net *net = lnet_net_find(q->node, nid_net(&q->dest));
    bool own = nid_is_any(&q->src) || src;

    if (net)
        lnet_access_why_peer(lnet_access(q->node), &q->dest, &net->ni[0]->nid, &q->answer.access);
    if (own)
        q->answer.mine = lnet_is_own_nid(q->node, &q->dest);
    if (nid_is_any(&q->src) && !q->answer.mine) {
        src = lnet_preferred_ni(s, &q->dest);
        q->answer.ni_preferred = src != NULL;
    }
    if (!q->answer.mine && !q->answer.drop)
        q->answer.drop = explain(s, q, src);
    q->task.fn = chosen;
    reactor_post(reactor_control(q->node->env), &q->task);
}

/* Where the sender's connections are read, or where messages of our own are made. */
static struct reactor *home_of_sender(struct why_request *q)
{
    const struct lnet_shard *s = lnet_shard_self(q->node);
    struct lnet_nid sender;

    if (nid_is_any(&q->src) || lnet_ni_find(q->node, &q->src))
        return lnet_node_home(q->node);
    sender = sender_of(s, &q->src);
    q->answer.drop = check(q->node, q, &sender);
    return nid_is_any(&sender) ? lnet_node_home(q->node) : lnet_nid_home(q->node, &sender);
}

int lnet_why(struct lnet_node *node, const struct lnet_nid *dest, const struct lnet_nid *src,
             lnet_why_fn fn, void *arg)
{
    struct why_request *q = calloc(1, sizeof(*q));

    if (!q)
        return -ENOMEM;
    q->node = node;
    q->dest = *dest;
    q->src = *src;
    q->fn = fn;
    q->arg = arg;
    q->answer.ni = -1;
    q->task.fn = choose;
    reactor_post(home_of_sender(q), &q->task);
    return 0;
}
