/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PUSHes: who may begin one, and the line of those for which no buffer is posted.
 *
 * A PUSH has its buffer from its header on. A peer that begins many and ends none gets a share of
 * the buffers, and while others wait, a buffer is taken from each PUSH that does not go on.
 *
 * The merge of a long list takes tens of microseconds. So a task begins a few PUSHes in each
 * iteration of the reactor. The others wait in their connections and need no memory.
 */
#include "lib/lnet/api/api_internal.h"

#include <errno.h>

#define LAZY_WAIT_US  10000000ull
#define LAZY_MOST     256u
#define PUSHES_ANYWAY 4
#define SERVE_BURST   4 /* PUSHes that begin in one iteration of the reactor */
/* While a PUSH waits for a buffer, one is taken from a PUSH that was begun and … */
#define LOOK_US  100000ull
#define STALL_US 500000ull  /* … of which so long nothing came */
#define SLOW_US  2000000ull /* … or which is not whole after so long */

bool lnet_is_push(const struct lnet_hdr *hdr)
{
    struct lnet_put put;

    if (hdr->type != LNET_MSG_PUT)
        return false;
    lnet_body_get_put(hdr, &put);
    return put.portal == LNET_RESERVED_PORTAL && put.match_bits == LNET_PING_MATCH_BITS;
}

/* The account of a prefix of many NIDs has a key that is no NID. */
struct share_account *lnet_asker_of(struct lnet_node *node, struct share *s,
                                    const struct lnet_nid *nid)
{
    struct lnet_nid prefix = lnet_nid_prefix(node, nid);
    bool same = nid_same(&prefix, nid);

    prefix.type = LNET_LND_ANY;
    return share_of(s, nid, same ? NULL : &prefix);
}

/* As with the messages: who begins PUSHes and ends none leaves buffers for others. A few may always
 * wait for one. */
bool lnet_push_allowed(const struct lnet_api *api, const struct share_account *a)
{
    return a->part < PUSHES_ANYWAY || a->part + api->arriving_all <= LNET_PUSH_BUFFERS;
}

/* The account of the prefix of a peer, or of the peer. */
static struct share_account *widest(struct share_account *a)
{
    return a->prefix ? a->prefix : a;
}

/* Adds n to the PUSHes of an asker that are being received. The waiters of its prefix have a copy
 * of their number. */
static void count_arriving(struct lnet_api *api, struct share_account *a, int n)
{
    struct share_account *waiter;

    a->part += (uint32_t)n;
    if (a->prefix)
        a->prefix->part += (uint32_t)n;
    api->arriving_all += (uint32_t)n;
    if (api->nlazy == 0)
        return;
    waiter = share_of(&api->waiters, a->key, a->prefix ? a->prefix->key : NULL);
    if (waiter) {
        widest(waiter)->part = widest(a)->part;
        share_drop(&api->waiters, waiter);
    }
}

void lnet_push_begins(struct lnet_node *node, const struct lnet_msg *msg)
{
    count_arriving(node->api, msg->asker, 1);
}

void lnet_push_ends(struct lnet_node *node, const struct lnet_msg *msg)
{
    count_arriving(node->api, msg->asker, -1);
}

/* ---- those that are being received, on the reactor of the connection ---- */

static struct lnet_push_shard *pushes_of(const struct lnet_rx *rx)
{
    return &rx->ni->node->api->pushes[rx->shard->index];
}

void lnet_push_receiving(struct lnet_rx *rx)
{
    struct lnet_push_shard *p = pushes_of(rx);

    rx->begun_us = rx->progress_us = reactor_now_us();
    TAILQ_INSERT_TAIL(&p->begun, rx, age);
    if (!reactor_timer_armed(&p->look))
        reactor_timer_arm(&p->look, LOOK_US);
}

void lnet_push_received(struct lnet_rx *rx)
{
    struct lnet_push_shard *p = pushes_of(rx);

    if (!lnet_is_push(&rx->msg->hdr))
        return;
    TAILQ_REMOVE(&p->begun, rx, age);
    if (TAILQ_EMPTY(&p->begun))
        reactor_timer_cancel(&p->look);
}

/* Takes the buffer of a PUSH whose sender does not go on. */
static void push_abandon(struct lnet_rx *rx, bool too_long)
{
    struct lnet_msg *msg = rx->msg;

    rx->msg = NULL; /* as in credit/stall.c */
    if (rx->ni->lnd->recv_abandon && rx->ni->lnd->recv_abandon(rx, too_long) == LNET_ABANDON_DONE) {
        rx->msg = msg;
        rx->drop = LNET_DROP_RX_STALLED;
        lnet_local_received(rx, (struct lnet_result){rx->drop, LNET_HEALTH_REMOTE_ERROR});
    } else {
        rx->msg = msg;
    }
}

static void look_for_stalled(struct reactor_timer *t)
{
    struct lnet_push_shard *p = container_of(t, struct lnet_push_shard, look);
    uint64_t now = reactor_now_us();
    struct lnet_rx *rx, *next;

    reactor_timer_arm(t, LOOK_US); /* the end of the last PUSH cancels it */
    for (rx = TAILQ_FIRST(&p->begun); rx && relaxed_load(&p->api->buffer_wanted); rx = next) {
        bool too_long = now - rx->begun_us >= SLOW_US;

        next = TAILQ_NEXT(rx, age);
        if (too_long || now - rx->progress_us >= STALL_US)
            push_abandon(rx, too_long);
    }
}

/* ---- PUSHes that wait for a buffer ---- */

/* PUSHes that are being received from the prefix of a peer, or from the peer. */
static uint32_t arriving_from(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct share_account *a = lnet_asker_of(node, &node->api->askers, nid);
    uint32_t n = a ? widest(a)->part : 0;

    if (a)
        share_drop(&node->api->askers, a);
    return n;
}

/* Lets a PUSH wait for a buffer, if its sender's share of the line allows. */
static void lazy_wait(struct lnet_node *node, struct lnet_rx *rx)
{
    struct lnet_api *api = node->api;
    struct share_account *a = lnet_asker_of(node, &api->waiters, &rx->from->nid);

    if (!a || api->nlazy == LAZY_MOST || !share_may(a, LAZY_MOST - api->nlazy)) {
        if (a)
            share_drop(&api->waiters, a);
        lnet_local_answer(rx, LNET_DROP_NO_MSG_MEMORY);
        return;
    }
    share_take(a);
    widest(a)->part = arriving_from(node, &rx->from->nid);
    rx->waiter = a;
    api->nlazy++;
    rx->wait_until_us = reactor_now_us() + LAZY_WAIT_US;
    TAILQ_INSERT_TAIL(&api->lazy, rx, queue);
    relaxed_store(&api->buffer_wanted, true);
    if (!reactor_timer_armed(&api->lazy_timer))
        reactor_timer_arm(&api->lazy_timer, LAZY_WAIT_US);
}

static void lazy_left(struct lnet_api *api, struct share_account *waiter)
{
    api->nlazy--;
    relaxed_store(&api->buffer_wanted, api->nlazy > 0);
    share_give(&api->waiters, waiter);
}

static void lazy_end(struct lnet_node *node, struct lnet_rx *rx, enum lnet_drop why)
{
    TAILQ_REMOVE(&node->api->lazy, rx, queue);
    lazy_left(node->api, rx->waiter);
    lnet_local_answer(rx, why);
}

/* The one that has waited longest, of those of whose prefix the fewest are being received. */
static struct lnet_rx *lazy_next(struct lnet_api *api)
{
    struct lnet_rx *rx, *best = NULL;
    uint32_t least = UINT32_MAX;

    TAILQ_FOREACH(rx, &api->lazy, queue) {
        uint32_t n = widest(rx->waiter)->part;

        if (n < least) {
            best = rx;
            least = n;
        }
    }
    return best;
}

static void lazy_expired(struct reactor_timer *t)
{
    struct lnet_node *node = container_of(t, struct lnet_api, lazy_timer)->node;
    uint64_t now = reactor_now_us();
    struct lnet_rx *rx;

    while ((rx = TAILQ_FIRST(&node->api->lazy)) && rx->wait_until_us <= now)
        lazy_end(node, rx, LNET_DROP_BUFFER_WAIT);
    if (rx)
        reactor_timer_arm(t, rx->wait_until_us - now);
}

/* Returns whether the PUSH that is next in the line got a buffer. */
static bool serve_lazy(struct lnet_api *api)
{
    struct lnet_rx *rx = lazy_next(api), *next = TAILQ_NEXT(rx, queue);
    struct share_account *waiter = rx->waiter;

    TAILQ_REMOVE(&api->lazy, rx, queue);
    if (lnet_local_put(api->node, rx)) {
        lazy_left(api, waiter);
        return true;
    }
    if (next)
        TAILQ_INSERT_BEFORE(next, rx, queue);
    else
        TAILQ_INSERT_TAIL(&api->lazy, rx, queue);
    return false;
}

static void serve_arrived(struct lnet_api *api)
{
    struct lnet_rx *rx = TAILQ_FIRST(&api->arrived);

    TAILQ_REMOVE(&api->arrived, rx, queue);
    if (lnet_local_put(api->node, rx))
        return;
    if (relaxed_load(&api->node->stopping))
        lnet_local_answer(rx, LNET_DROP_SHUTDOWN);
    else
        lazy_wait(api->node, rx);
}

static void serve_soon(struct lnet_api *api)
{
    if (api->serve_posted)
        return;
    api->serve_posted = true;
    reactor_post(lnet_node_home(api->node), &api->serve);
}

static void push_serve(struct reactor_task *task)
{
    struct lnet_api *api = container_of(task, struct lnet_api, serve);
    unsigned left = SERVE_BURST;

    while (left > 0 && !TAILQ_EMPTY(&api->lazy) && serve_lazy(api))
        left--;
    for (; left > 0 && !TAILQ_EMPTY(&api->arrived); left--)
        serve_arrived(api);
    api->serve_posted = false; /* not before: a receive that ends at once posts its buffer again */
    if (left == 0)
        serve_soon(api);
    if (TAILQ_EMPTY(&api->lazy))
        reactor_timer_cancel(&api->lazy_timer);
}

void lnet_push_arrived(struct lnet_node *node, struct lnet_rx *rx)
{
    TAILQ_INSERT_TAIL(&node->api->arrived, rx, queue);
    serve_soon(node->api);
}

void lnet_lazy_retry(struct lnet_node *node)
{
    if (!TAILQ_EMPTY(&node->api->lazy))
        serve_soon(node->api);
}

void lnet_lazy_flush(struct lnet_node *node)
{
    struct lnet_rx *rx;

    while ((rx = TAILQ_FIRST(&node->api->lazy)))
        lazy_end(node, rx, LNET_DROP_SHUTDOWN);
    reactor_timer_cancel(&node->api->lazy_timer);
}

int lnet_push_init(struct lnet_api *api)
{
    TAILQ_INIT(&api->arrived);
    TAILQ_INIT(&api->lazy);
    api->serve.fn = push_serve;
    reactor_timer_init(&api->lazy_timer, lazy_expired);
    for (unsigned i = 0; i < api->node->nshards; i++) {
        api->pushes[i].api = api;
        TAILQ_INIT(&api->pushes[i].begun);
        reactor_timer_init(&api->pushes[i].look, look_for_stalled);
    }
    /* Who has an account waits, but for one that is about to. */
    return share_init(&api->waiters, LAZY_MOST + 1) ? 0 : -ENOMEM;
}

void lnet_push_fini(struct lnet_api *api)
{
    share_fini(&api->waiters);
}
