/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the discoveries of peers (discover.h): sends the GETs and PUSHes, and queues the peers that
 * wait for a slot. docs/protocol/lnet-core.md §3.5 to §3.7. All on the node's home reactor.
 *
 * A peer is PEER_DISCOVERING exactly while it has a slot. A peer that waits for a slot has its
 * reasons in peer_push.want. When the peer is freed its slot stays busy until the LND has released
 * the slot's messages. A slot sends its next GET or PUSH only after the last one: PEER_PING_SENT
 * and PEER_PUSH_SENT are cleared when the operation is done, or when the peer leaves the slot.
 */
#include "lib/lnet/health/health.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/ping/ping_internal.h"

#include <errno.h>

#define SWEEP_BURST     256         /* peers looked at, */
#define START_BURST     4           /* and discoveries begun in one iteration of the reactor */
#define LOOKS           64          /* peers passed over for each of these */
#define LONG_US         2000000ull  /* while others wait a discovery has so long */
#define TIMEOUT_US      30000000ull /* for a REPLY and for an ACK */
#define QUIET_FIRST_US  60000000ull /* no discovery of a peer after two that failed; */
#define QUIET_DOUBLINGS 6           /* twice as long each time, up to half an hour */
#define SLOW_US         600000000ull /* after a failure a peer shares slots with those that are new */
#define CLAIM_US        60000000ull /* between questions for NIDs that others claim */
#define MAX_TRIES       3           /* pings in a row that a peer answers without usable info */

/* The operations have timers of their own. */
static struct discover_self self_of(const struct lnet_ping *p)
{
    return (struct discover_self){.discovery = lnet_discovery_is_on(p->node),
                                  .seqno = p->current ? p->current->seqno : 0,
                                  .timeout_us = UINT64_MAX,
                                  .max_tries = MAX_TRIES};
}

static bool is_quiet(const struct peer *peer)
{
    return reactor_now_us() < peer->push.quiet_until_us;
}

/* Whether the peer shares slots with those of which nothing is known yet. */
static bool is_new(const struct peer *peer)
{
    return !peer->answered || reactor_now_us() < peer->push.slow_until_us;
}

/* ---- shares ---- */

/* The NID that the peer pushed from last is known to work; its primary NID may be on a net that
 * this node does not reach. */
static struct lnet_nid nid_of(const struct lnet_ping *p, const struct peer *peer)
{
    const struct peer_push *push = &peer->push;

    return peer_table_find(p->node->peers, &push->nid) == peer ? push->nid : peer->primary;
}

/* Returns the account that a peer's slot is charged to. A gateway can make up as many peers behind
 * it as it likes: they are one prefix. The key of a prefix is no NID. A NID that comes directly and
 * then through a gateway keeps its first prefix while it holds a slot. */
static struct share_account *account_of(struct lnet_ping *p, const struct peer *peer)
{
    struct lnet_nid nid = nid_of(p, peer), prefix = peer->push.via;

    if (nid_is_any(&prefix) || !nid_same(&nid, &peer->push.nid))
        prefix = lnet_nid_prefix(p->node, &nid);
    prefix.type = LNET_LND_ANY;
    return share_of(&p->share, &nid, &prefix);
}

/* Returns whether a peer's account, and its prefix, hold no more slots than are free. */
static bool may_hold(const struct lnet_ping *p, const struct peer *peer,
                     const struct share_account *a)
{
    bool may = share_may(a, DISCOVERIES - p->nbusy);

    if (is_new(peer))
        may &= a->part + p->nnew <= DISCOVERIES_NEW && a->prefix->part + p->nnew <= DISCOVERIES_NEW;
    return may;
}

static bool may_start(struct lnet_ping *p, const struct peer *peer)
{
    struct share_account *a = account_of(p, peer);
    bool may = may_hold(p, peer, a);

    share_drop(&p->share, a);
    return may;
}

static void charge(struct discovery *d, int sign)
{
    struct share_account *a = d->account;
    unsigned n = d->is_new ? (unsigned)sign : 0;

    d->ping->nnew += n;
    d->ping->nbusy += (unsigned)sign;
    a->part += n;
    a->prefix->part += n;
}

/* ---- peers that wait for a slot ---- */

static void enqueue(struct lnet_ping *p, struct peer *peer, uint32_t set)
{
    struct peer_push *push = &peer->push;
    struct waiting *w;

    push->want |= set;
    if (push->queued)
        return;
    push->queued = true;
    push->to_answered = !is_new(peer);
    w = &p->waiting[push->to_answered];
    TAILQ_INSERT_TAIL(&w->peers, peer, push.link);
    w->looks = ++w->n;
}

static void dequeue(struct lnet_ping *p, struct peer *peer)
{
    struct waiting *w = &p->waiting[peer->push.to_answered];

    if (!peer->push.queued)
        return;
    peer->push.queued = false;
    TAILQ_REMOVE(&w->peers, peer, push.link);
    w->n--;
    w->looks = min(w->looks, w->n);
}

/* Returns the first peer that may start. Those before it wait behind the others. */
static struct peer *first_that_may(struct lnet_ping *p, struct waiting *w)
{
    struct peer *peer;

    for (unsigned i = 0; i < LOOKS && w->looks > 0; i++) {
        peer = TAILQ_FIRST(&w->peers);
        if (may_start(p, peer))
            return peer;
        w->looks--;
        TAILQ_REMOVE(&w->peers, peer, push.link);
        TAILQ_INSERT_TAIL(&w->peers, peer, push.link);
    }
    return NULL;
}

/* Returns whether a slot is free that peers of a queue may have. */
static bool has_slot(const struct lnet_ping *p, bool answered)
{
    return p->free_slots && p->current && !relaxed_load(&p->node->stopping) &&
           (answered || p->nnew < DISCOVERIES_NEW);
}

/* Who never answers leaves place for those who do. Else both take turns. */
static struct peer *next_waiting(struct lnet_ping *p)
{
    struct peer *known = has_slot(p, true) ? first_that_may(p, &p->waiting[1]) : NULL;
    struct peer *other = has_slot(p, false) ? first_that_may(p, &p->waiting[0]) : NULL;

    return !known || (other && p->turn_of_new) ? other : known;
}

/* ---- slots ---- */

static void slot_take(struct lnet_ping *p, struct peer *peer)
{
    struct discovery *d = p->free_slots;

    p->free_slots = d->next;
    d->free = d->ending = false;
    d->peer = peer;
    d->begun_us = reactor_now_us();
    TAILQ_INSERT_TAIL(&p->busy, d, link);
    d->is_new = is_new(peer);
    d->account = account_of(p, peer);
    share_take(d->account);
    charge(d, 1);
    p->turn_of_new = !d->is_new;
    peer->push.slot = d;
}

/* Frees a slot that has neither a peer nor a message on its way. */
static void slot_release(struct discovery *d)
{
    struct lnet_ping *p = d->ping;

    if (d->peer || d->get.running || d->put.running || d->free)
        return;
    charge(d, -1);
    share_give(&p->share, d->account);
    TAILQ_REMOVE(&p->busy, d, link);
    d->free = true;
    d->next = p->free_slots;
    p->free_slots = d;
}

static void slot_leave(struct peer *peer)
{
    struct discovery *d = peer->push.slot;

    if (!d)
        return;
    peer->push.slot = NULL;
    peer->state &= ~(uint32_t)(PEER_PING_SENT | PEER_PUSH_SENT); /* their ends are not heard of */
    d->peer = NULL;
    slot_release(d);
}

/* ---- one step ---- */

static void step(struct peer *peer, struct lnet_ping *p, struct discover_event event);

/* Returns the NID of ours that the peer pushed to, if its NI still leads to `to`; else ANY. The
 * other NIDs of a peer may be on other nets, and the route that the PUSH came by may be gone. */
static struct lnet_nid our_nid(const struct lnet_node *node, const struct peer *peer,
                               const struct lnet_nid *to)
{
    struct lnet_ni *ni = lnet_ni_find(node, &peer->push.local);
    const struct lnet_route *route;
    struct lnet_path path;

    if (!ni || !nid_same(to, &peer->push.nid) ||
        lnet_choose(lnet_shard_self(node), to, &LNET_NID_ANY, ni, &path, &route) != LNET_DROP_NONE)
        return LNET_NID_ANY;
    return ni->nid;
}

static void send_get(struct discovery *d)
{
    struct lnet_nid from;

    d->get.target = nid_of(d->ping, d->peer);
    if (d->peer->push.failures > 0) /* another NID of it may answer */
        from = LNET_NID_ANY;
    else
        from = our_nid(d->ping->node, d->peer, &d->get.target);
    lnet_ping_op_start(&d->get, &from, d->sink, min(d->peer->discovery.sink, SINK_MAX), TIMEOUT_US);
}

static void send_push(struct discovery *d)
{
    struct lnet_ping *p = d->ping;
    struct lnet_nid from, to;

    discover_push_nids(d->peer, &to, &from);
    if (nid_same(&to, &d->peer->primary))
        to = nid_of(p, d->peer);
    if (nid_is_any(&from) && d->peer->push.failures == 0) /* else another NID of it may answer */
        from = our_nid(p->node, d->peer, &to);
    d->target = p->current;
    d->target->refs++;
    d->put.target = to;
    lnet_ping_op_start(&d->put, &from, d->target->data, d->target->seg.len, TIMEOUT_US);
}

/* A peer that failed gets nothing more until it pushes again, and not soon. */
static void failed(struct lnet_ping *p, struct peer *peer)
{
    struct peer_push *push = &peer->push;

    push->slow_until_us = reactor_now_us() + SLOW_US;
    peer_table_answers(p->node->peers, peer, false);
    peer->discovery.acked_seqno = 0; /* its next PUSH is answered with one */
    if (push->failures > 0)
        push->quiet_until_us = reactor_now_us() + (QUIET_FIRST_US << (push->failures - 1));
    push->failures += push->failures < QUIET_DOUBLINGS;
}

/* Whether another NID of a peer that did not answer may: it is tried once. */
static bool has_other_nid(const struct peer *peer)
{
    return peer->nnis > 1 && peer->push.failures == 1 && peer->discovery.error != -EPROTO;
}

static void done(struct lnet_ping *p, struct peer *peer)
{
    bool failure = peer->discovery.error < 0;
    bool again = peer->push.ping_after && peer->answered;

    slot_leave(peer);
    if (failure)
        failed(p, peer);
    if (failure && has_other_nid(peer))
        enqueue(p, peer, PEER_FORCE_PUSH);
    else if (!failure && again && lnet_discovery_is_on(p->node))
        enqueue(p, peer, PEER_FORCE_PING);
    peer->push.ping_after &= !again;
}

/* Merges the info in p->scratch, and goes on with each peer that it concerns. */
static void merge(struct lnet_ping *p, struct peer *peer)
{
    struct discovery *d = peer->push.slot;
    struct lnet_nid primary;
    struct peer *to;
    bool other;

    peer->state |= PEER_NIDS_UPTODATE;
    to = peer_table_merge(p->node->peers, peer, &p->scratch, lnet_discovery_is_on(p->node));
    other = to != peer;
    primary = to->primary;
    if (d && d->peer == peer)
        step(peer, p, (struct discover_event){.kind = DISCOVER_LOOK});
    to = other ? peer_table_find(p->node->peers, &primary) : NULL; /* the step may have freed it */
    if (to)
        lnet_discover(p, to, 0);
}

static void step(struct peer *peer, struct lnet_ping *p, struct discover_event event)
{
    const struct discover_self self = self_of(p);
    struct discovery *d = peer->push.slot;

    switch (discover_step(peer, &event, &self, 0)) {
    case DISCOVER_WAIT:
        break;
    case DISCOVER_DELETE:
        slot_leave(peer);
        peer_table_recreate(p->node->peers, peer, &peer->push.nid);
        break;
    case DISCOVER_MERGE:
        merge(p, peer);
        break;
    case DISCOVER_PING:
        send_get(d);
        break;
    case DISCOVER_PUSH:
        send_push(d);
        break;
    case DISCOVER_DONE:
        done(p, peer);
        break;
    }
}

/* ---- messages that are complete ---- */

/* A list that is longer than a discovery asks for, or has more NIDs than an info, is used as far as
 * it came. The peer would be pinged for ever for the rest, and never pushed to. */
static enum discover_kind reply_kind(const struct lnet_ping_op *op,
                                     const struct lnet_ping_info *info)
{
    if (op->len == SINK_MAX || info->full_size <= op->len)
        return DISCOVER_REPLY;
    return discover_reply_kind(info);
}

/* Takes the info of a REPLY, which op.c has found valid. */
static struct discover_event take_reply(struct lnet_ping *p, struct peer *peer,
                                        const struct lnet_ping_op *op)
{
    struct lnet_gw_ni *gw_ni = lnet_gw_ni_find(p->node, &op->target);
    struct discover_event event = {.to = op->target, .from = LNET_NID_ANY};
    bool had = peer_table_find(p->node->peers, &op->target) == peer;

    (void)lnet_ping_decode(op->seg.addr, op->len, &p->scratch);
    if (peer_table_replied(p->node->peers, &op->target, &p->scratch) != peer && had) {
        event.kind = DISCOVER_REPLY_BAD; /* it was another node's NID */
        return event;
    }
    event.kind = reply_kind(op, &p->scratch);
    event.size = p->scratch.full_size;
    peer_table_answers(p->node->peers, peer, true);
    if (gw_ni) /* as if it had pushed this: most of these pings follow a PUSH */
        p->on_push(gw_ni, &p->scratch);
    lnet_ping_limit(p);
    if (event.kind == DISCOVER_REPLY)
        peer_table_hear(p->node->peers, peer, &p->scratch, lnet_discovery_is_on(p->node));
    return event;
}

static void get_done(struct lnet_ping_op *op)
{
    struct discovery *d = container_of(op, struct discovery, get);
    struct discover_event event = {.kind = DISCOVER_PING_ERROR, .error = op->status};
    struct lnet_ping *p = d->ping;
    struct peer *peer = d->peer;

    if (peer && op->status == 0) {
        event = take_reply(p, peer, op);
    } else if (op->status == -EPROTO) {
        event.kind = DISCOVER_REPLY_BAD;
    } else if (op->status != 0 && op->status != -ESHUTDOWN) {
        peer_table_silent(p->node->peers, &op->target, reactor_now_us());
    }
    if (peer)
        step(peer, p, event);
    slot_release(d);
    lnet_discover_some(p);
}

static void put_done(struct lnet_ping_op *op)
{
    struct discovery *d = container_of(op, struct discovery, put);
    struct discover_event event = {.kind = DISCOVER_PUSH_ERROR, .error = op->status};
    struct ping_target *target = d->target;
    struct lnet_ping *p = d->ping;

    if (d->peer && op->status == 0) {
        event.kind = DISCOVER_ACK;
        lnet_peer_told(d->peer, target->drain);
        peer_table_answers(p->node->peers, d->peer, true);
        d->peer->push.failures = 0;
    }
    if (op->status != -ESHUTDOWN)
        peer_table_silent(p->node->peers, &op->target, op->status ? reactor_now_us() : 0);
    if (d->peer)
        step(d->peer, p, event);
    slot_release(d);
    lnet_ping_target_put(p, target);
    lnet_discover_some(p);
}

static const struct lnet_ping_kind get_kind = {.count_timeout = true, .done = get_done};
static const struct lnet_ping_kind put_kind = {
    .push = true, .count_timeout = true, .done = put_done};

/* ---- begin ---- */

void lnet_discover(struct lnet_ping *p, struct peer *peer, uint32_t set)
{
    const struct discover_self self = self_of(p);

    if (!(set & PEER_FORCE_PUSH) && !self.discovery) /* §3.5: peers still learn that it is off */
        return;
    if (!set && !discover_needs_push(peer, &self))
        return;
    if (peer->push.slot || !is_quiet(peer))
        lnet_discover_now(p, peer, set);
}

void lnet_discover_now(struct lnet_ping *p, struct peer *peer, uint32_t set)
{
    if (peer->push.slot)
        step(peer, p, (struct discover_event){.kind = DISCOVER_START, .set = set});
    else
        enqueue(p, peer, set);
}

void lnet_discover_pushed(struct lnet_ping *p, struct peer *peer)
{
    if (peer->push.slot)
        step(peer, p, (struct discover_event){.kind = DISCOVER_PUSHED});
    else
        merge(p, peer);
}

void lnet_discover_pushed_bad(struct lnet_ping *p, struct peer *peer, uint32_t size)
{
    peer->discovery.sink = max(peer->discovery.sink, min(size, SINK_MAX));
    lnet_discover(p, peer, PEER_FORCE_PING);
}

/* Takes the NIDs in p->scratch. */
static void learn(struct lnet_ping *p, struct peer *peer, const struct lnet_nid *nid)
{
    bool on = lnet_discovery_is_on(p->node);

    peer_table_hear(p->node->peers, peer, &p->scratch, on);
    if (peer->state & PEER_MARK_DELETION && !peer->push.slot) {
        peer_table_recreate(p->node->peers, peer, nid);
        peer_table_hear(p->node->peers, peer, &p->scratch, on);
    }
    if (!p->scratch.truncated)
        merge(p, peer);
}

static unsigned without_pins(const struct peer *peer)
{
    const struct peer_net *net;
    const struct peer_ni *ni;
    unsigned n = 0;

    TAILQ_FOREACH(net, &peer->nets, link)
        TAILQ_FOREACH(ni, &net->nis, link)
            n += ni->pins == 0;
    return n;
}

/* Whether a gateway lists a NID that it has not, and may get, or lists one less. Another gateway
 * may have claimed the NID, and lost it since. */
static bool lists_other(const struct lnet_ping *p, const struct peer *peer)
{
    const struct lnet_ping_info *info = &p->scratch;
    unsigned listed = 0;

    if (!(peer->state & PEER_MULTI_RAIL) || peer->state & (PEER_CONFIGURED | PEER_NO_DISCOVERY))
        return false;
    for (uint32_t i = 0; i < info->count; i++) {
        const struct peer_ni *ni = peer_table_find_ni(p->node->peers, &info->ni[i].nid);
        const struct peer *owner = ni ? ni->net->peer : NULL;

        if (!owner && !info->truncated)
            return true;
        if (owner && owner != peer && owner->pins == 0 && !(owner->state & PEER_CONFIGURED))
            return true;
        listed += owner == peer && ni->pins == 0;
    }
    return !info->truncated && listed < without_pins(peer);
}

/* Whether the reply in p->scratch says something new. A node that starts again may have the
 * sequence number that it had before. */
static bool is_news(const struct lnet_ping *p, const struct peer *peer)
{
    return peer->seqno != p->scratch.seqno || peer->features != p->scratch.features ||
           lists_other(p, peer);
}

/* Whether the whole list came from the NID that routes name. Other NIDs of a gateway may be another
 * node's by now, which answers a discovery at one of them. */
static bool is_asked_for(const struct lnet_ping *p, const struct lnet_nid *nid)
{
    const struct peer_ni *ni = peer_table_find_ni(p->node->peers, nid);

    return ni && ni->pins > 0 && !p->scratch.truncated;
}

void lnet_discover_replied(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct peer *peer = peer_table_find(node->peers, nid);

    if (!peer)
        return;
    lnet_ping_limit(node->ping);
    peer_table_answers(node->peers, peer, true);
    if (!peer->features || (is_news(node->ping, peer) && is_asked_for(node->ping, nid)))
        learn(node->ping, peer, nid);
    else if (is_news(node->ping, peer) && lnet_discovery_is_on(node)) /* it answers: not quiet */
        lnet_discover_now(node->ping, peer, PEER_FORCE_PING);
    peer = peer_table_find(node->peers, nid); /* the merge may have moved the NID */
    if (peer && peer->state & PEER_MULTI_RAIL && lnet_discovery_is_on(node)) /* §3.5, §3.8 */
        lnet_discover(node->ping, peer, PEER_FORCE_PUSH);
    lnet_discover_some(node->ping);
}

/* starting bounds the depth: a message that fails at once ends the discovery, which begins others.
 */
static void begin_some(struct lnet_ping *p)
{
    struct peer *peer = NULL;

    if (p->starting)
        return;
    p->starting = true;
    for (unsigned n = 0; n < START_BURST && (peer = next_waiting(p)); n++) {
        struct discover_event event = {.kind = DISCOVER_START, .set = peer->push.want};

        dequeue(p, peer);
        peer->push.want = 0;
        slot_take(p, peer);
        step(peer, p, event);
    }
    p->starting = false;
    lnet_discover_look(p);
    for (unsigned i = 0; i < 2; i++)
        if (p->waiting[i].looks > 0 && has_slot(p, i))
            lnet_discover_soon(p);
}

void lnet_discover_some(struct lnet_ping *p)
{
    for (unsigned i = 0; i < 2; i++)
        p->waiting[i].looks = p->waiting[i].n;
    begin_some(p);
}

/* ---- discoveries that take long ---- */

/* Returns whether a peer that waits, of account a, could start if this slot came free. */
static bool is_in_the_way(const struct lnet_ping *p, const struct discovery *d,
                          const struct peer *peer, const struct share_account *a)
{
    if (!may_hold(p, peer, a))
        return d->account->prefix == a->prefix;
    return !p->free_slots || (is_new(peer) && d->is_new && p->nnew == DISCOVERIES_NEW);
}

/* Ends the discoveries that have begun first, no more than peers wait. */
static void make_room_for(struct lnet_ping *p, const struct waiting *w)
{
    const struct peer *peer = TAILQ_FIRST(&w->peers);
    struct share_account *a = account_of(p, peer);
    uint64_t now = reactor_now_us();
    struct discovery *d, *end[DISCOVERIES];
    unsigned n = 0;

    TAILQ_FOREACH(d, &p->busy, link) {
        if (n == w->n || now - d->begun_us < LONG_US)
            break;
        if (!d->ending && is_in_the_way(p, d, peer, a))
            end[n++] = d;
    }
    share_drop(&p->share, a);
    for (unsigned i = 0; i < n; i++) {
        end[i]->ending = true;
        lnet_ping_op_expire(&end[i]->get);
        lnet_ping_op_expire(&end[i]->put);
    }
}

void lnet_discover_make_room(struct lnet_ping *p)
{
    p->starting = true; /* no slot that comes free is taken meanwhile */
    for (unsigned i = 0; i < 2; i++)
        if (p->waiting[i].n > 0)
            make_room_for(p, &p->waiting[i]);
    p->starting = false;
    lnet_discover_some(p);
}

/* ---- all peers ---- */

/* A peer that failed has one more chance, as it may have been slow while others waited. After two
 * failures a peer is left alone until it pushes. */
static void push_if_due(struct lnet_ping *p, struct peer *peer)
{
    if (peer->nnis > 0 && peer->state & PEER_MULTI_RAIL && peer->push.failures < 2)
        lnet_discover(p, peer, p->sweep_force ? PEER_FORCE_PUSH : 0);
}

static void sweep(struct reactor_task *task)
{
    struct lnet_ping *p = container_of(task, struct lnet_ping, sweep);
    const struct peer_table *peers = p->node->peers;

    p->sweep_posted = false;
    for (unsigned i = 0; i < SWEEP_BURST && p->sweep_next < peers->highest; i++)
        push_if_due(p, &peers->peers[p->sweep_next++]);
    begin_some(p);
    if (p->sweep_next < peers->highest)
        lnet_discover_soon(p);
    else
        p->sweep_force = false;
}

void lnet_discover_soon(struct lnet_ping *p)
{
    if (p->sweep_posted)
        return;
    p->sweep_posted = true;
    reactor_post(lnet_node_home(p->node), &p->sweep);
}

void lnet_ping_push_all(struct lnet_node *node, bool force)
{
    struct lnet_ping *p = node->ping;

    p->sweep_force |= force;
    p->sweep_next = 0;
    lnet_discover_soon(p);
}

/* ---- life ---- */

/* A PUSH claims a NID of a peer that answers. The peer is asked whether it still has the NID; if
 * not, the next PUSH moves it. This may be called in the middle of a step of that peer. */
static void check_claim(struct lnet_ping *p, struct peer *owner)
{
    uint64_t now = reactor_now_us(), *last = &owner->push.claimed_us;

    if (owner->state & (PEER_CONFIGURED | PEER_LOCK_PRIMARY) || !owner->answered ||
        (*last > 0 && now - *last < CLAIM_US))
        return;
    *last = now;
    if (owner->push.slot)
        owner->state |= PEER_FORCE_PING;
    else if (!is_quiet(owner))
        enqueue(p, owner, PEER_FORCE_PING);
}

static void peer_changed(void *node, const struct peer_event *event)
{
    struct lnet_ping *p = ((struct lnet_node *)node)->ping;

    if (event->kind == PEER_NI_CLAIMED && event->other)
        check_claim(p, event->other);
    if (event->kind == PEER_NI_STATUS && event->old_status == LNET_NI_UP &&
        event->ni->status == LNET_NI_DOWN)
        lnet_health_lower(node, &event->ni->nid, LNET_CAUSE_STATUS_DOWN);
    if (event->kind != PEER_GONE)
        return;
    dequeue(p, event->peer);
    slot_leave(event->peer);
}

int lnet_discovery_init(struct lnet_ping *p)
{
    p->sweep.fn = sweep;
    TAILQ_INIT(&p->waiting[0].peers);
    TAILQ_INIT(&p->waiting[1].peers);
    TAILQ_INIT(&p->busy);
    for (unsigned i = 0; i < DISCOVERIES; i++) {
        struct discovery *d = &p->slot[i];

        *d = (struct discovery){.ping = p, .free = true, .next = p->free_slots};
        d->get.node = d->put.node = p->node;
        d->get.kind = &get_kind;
        d->put.kind = &put_kind;
        p->free_slots = d;
    }
    if (!share_init(&p->share, DISCOVERIES + 1)) /* one that waits */
        return -ENOMEM;
    return lnet_peers_init(p->node, peer_changed);
}

void lnet_discovery_fini(struct lnet_ping *p)
{
    share_fini(&p->share);
}
