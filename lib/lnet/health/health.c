/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of health. health.h has the rules, docs/protocol/lnet-core.md §6.1 and §6.2 the table. */
#include "lib/lnet/health/health.h"
#include "lib/lnet/event.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const lnet_health_names[LNET_HEALTH_COUNT] = {
    [LNET_HEALTH_LOCAL_INTERRUPT] = "local_interrupt",
    [LNET_HEALTH_LOCAL_DROPPED] = "local_dropped",
    [LNET_HEALTH_LOCAL_ABORTED] = "local_aborted",
    [LNET_HEALTH_LOCAL_NO_ROUTE] = "local_no_route",
    [LNET_HEALTH_LOCAL_ERROR] = "local_error",
    [LNET_HEALTH_LOCAL_TIMEOUT] = "local_timeout",
    [LNET_HEALTH_REMOTE_ERROR] = "remote_error",
    [LNET_HEALTH_REMOTE_DROPPED] = "remote_dropped",
    [LNET_HEALTH_REMOTE_TIMEOUT] = "remote_timeout",
    [LNET_HEALTH_NETWORK_TIMEOUT] = "network_timeout",
};
static const char *const causes[LNET_CAUSES] = {
    [LNET_HEALTH_OK] = "message_passed",
    [LNET_CAUSE_COMMAND] = "command",
    [LNET_CAUSE_RESPONSE_TIMEOUT] = "response_timeout",
    [LNET_CAUSE_STATUS_DOWN] = "status_down",
};

const char *lnet_health_cause(unsigned cause)
{
    if (cause != LNET_HEALTH_OK && cause < LNET_HEALTH_COUNT)
        return lnet_health_names[cause];
    return cause < LNET_CAUSES ? causes[cause] : "?";
}

static int clamp(int value)
{
    return min(max(value, 0), LNET_MAX_HEALTH);
}

static int sensitivity(const struct lnet_node *node)
{
    return (int)relaxed_load(&node->health.sensitivity);
}

/* hdr NULL: no message is known. */
static struct lnet_health_why why_of(unsigned cause, enum lnet_drop drop,
                                     const struct lnet_hdr *hdr)
{
    struct lnet_health_why why = {.drop = (uint16_t)drop, .cause = (uint8_t)cause};

    if (hdr)
        why.msg = (struct lnet_event_msg){true, (uint8_t)hdr->type, hdr->src_nid, hdr->dest_nid};
    return why;
}

static void post_event(struct lnet_node *node, enum lnet_node_event_kind kind,
                       const struct lnet_nid *nid, unsigned health,
                       const struct lnet_health_why *why)
{
    struct lnet_node_event row = {.kind = kind,
                                  .nid = *nid,
                                  .value = (int)health,
                                  .drop = (enum lnet_drop)why->drop,
                                  .cause = lnet_health_cause(why->cause),
                                  .msg = why->msg};

    lnet_node_event_post(node, &row);
}

/* ---- NIs: the node's home ---- */

static void ni_set(struct lnet_ni *ni, unsigned health, const struct lnet_health_why *why)
{
    if (ni->health == health)
        return;
    relaxed_store(&ni->health, (uint16_t)health);
    post_event(ni->node, LNET_NODE_EV_NI_HEALTH, &ni->nid, health, why);
    if (ni->node->ni_health)
        ni->node->ni_health(ni);
}

void lnet_health_ni_set(struct lnet_ni *ni, unsigned health, unsigned cause)
{
    struct lnet_health_why why = why_of(cause, LNET_DROP_NONE, NULL);

    ni_set(ni, health, &why);
}

/* Returns the health of an NI that works. Without health no step would raise one that is at 0, and
 * published as down. */
static unsigned of_working(const struct lnet_ni *ni, int health)
{
    return health == 0 && sensitivity(ni->node) == 0 ? LNET_MAX_HEALTH : (unsigned)clamp(health);
}

void lnet_health_ni_raise(struct lnet_ni *ni)
{
    lnet_health_ni_set(ni, of_working(ni, ni->health + sensitivity(ni->node)), LNET_HEALTH_OK);
}

static void step_apply(struct lnet_ni *ni, const struct lnet_ni_step *t)
{
    const int health = min(max(ni->health + t->add, t->low), t->high);

    if (!lnet_ni_is_active(ni))
        return;
    if (t->message) {
        relaxed_store(&ni->ping_count, 0);
        relaxed_store(&ni->heard_us, reactor_now_us());
    }
    ni_set(ni, t->why.cause == LNET_HEALTH_OK ? of_working(ni, health) : (unsigned)health, &t->why);
}

/* ---- NIs: steps of other reactors ---- */

static void steps_post(struct lnet_health_shard *h);

static void steps_back(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, task);

    h->busy = false;
    h->shard->ni_steps = false;
    for (unsigned i = 0; i < LNET_MAX_NI; i++) {
        if (h->sent[i].used)
            lnet_ni_put(h->shard, h->shard->node->ni[i]);
        h->sent[i].used = false;
        h->shard->ni_steps |= h->step[i].used;
    }
    if (h->shard->ni_steps)
        steps_post(h);
}

static void steps_home(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, task);

    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        if (h->sent[i].used)
            step_apply(h->shard->node->ni[i], &h->sent[i]);
    task->fn = steps_back;
    reactor_post(h->shard->reactor, task);
}

static void steps_post(struct lnet_health_shard *h)
{
    memcpy(h->sent, h->step, sizeof(h->sent));
    for (unsigned i = 0; i < LNET_MAX_NI; i++)
        h->step[i].used = false;
    h->busy = true;
    h->task.fn = steps_home;
    reactor_post(lnet_node_home(h->shard->node), &h->task);
}

static struct lnet_ni_step *ni_step(struct lnet_shard *s, const struct lnet_ni *ni)
{
    struct lnet_ni_step *t = &s->health->step[ni->index];

    if (!t->used) {
        *t = (struct lnet_ni_step){.high = LNET_MAX_HEALTH, .used = true};
        lnet_ni_hold(s, ni);
    }
    s->ni_steps = true;
    return t;
}

static void ni_change(struct lnet_shard *s, const struct lnet_ni *ni, int add,
                      const struct lnet_health_why *why, bool message)
{
    struct lnet_ni_step *t = ni_step(s, ni);

    t->low = (int16_t)clamp(t->low + add);
    t->high = (int16_t)clamp(t->high + add);
    t->add = t->low == t->high ? 0 : t->add + add; /* then it does not matter */
    t->why = *why;
    t->message |= message;
    if (!s->health->busy)
        steps_post(s->health);
}

void lnet_health_ni_ok(struct lnet_shard *s, const struct lnet_ni *ni, const struct lnet_hdr *hdr,
                       bool received)
{
    struct lnet_health_why why = why_of(LNET_HEALTH_OK, LNET_DROP_NONE, hdr);
    const struct lnet_health_shard *h = s->health;

    if (relaxed_load(&ni->health) != LNET_MAX_HEALTH || h->step[ni->index].used ||
        h->sent[ni->index].used)
        ni_change(s, ni, sensitivity(s->node), &why, received);
}

/* ---- peer NIs ---- */

static void peer_step(struct lnet_peer_ni *peer, int steps, const struct lnet_health_why *why);
static void report_home(struct reactor_task *task);

/* Sends some of the peer NIs that changed. */
static void report(struct lnet_health_shard *h)
{
    struct lnet_peer_shard *peers = h->shard->peer;
    struct lnet_peer_ni *p;

    for (h->nrows = 0; h->nrows < LNET_HEALTH_ROWS && (p = TAILQ_FIRST(&peers->changed));) {
        h->row[h->nrows++] =
            (struct lnet_health_row){p->nid, p->health, p->health_asked, p->health_cause};
        TAILQ_REMOVE(&peers->changed, p, health_changed);
        p->is_changed = false;
        p->health_asked = 0;
    }
    h->reporting = h->nrows > 0;
    if (!h->reporting)
        return;
    h->report.fn = report_home;
    reactor_post(lnet_node_home(h->shard->node), &h->report);
}

static void report_back(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, report);

    for (unsigned i = 0; i < h->nrows; i++) {
        const struct lnet_health_row *row = &h->row[i];
        struct lnet_health_why why = why_of(row->cause, LNET_DROP_NONE, NULL);
        struct lnet_peer_ni *p =
            row->asked ? lnet_peer_ni_find_here(h->shard->node, &row->nid) : NULL;

        if (p)
            peer_step(p, -(int)row->asked, &why);
    }
    report(h);
}

/* Takes the copies over, and says of which peers failures count: those with several NIs. */
static void report_home(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, report);
    const struct peer_table *peers = h->shard->node->peers;

    for (unsigned i = 0; i < h->nrows; i++) {
        struct lnet_health_row *row = &h->row[i];
        struct peer_ni *ni = peer_table_find_ni(peers, &row->nid);

        if (ni)
            ni->health = row->health;
        if (!ni || ni->net->peer->nnis == 1)
            row->asked = 0;
    }
    task->fn = report_back;
    reactor_post(h->shard->reactor, task);
}

static void changed(struct lnet_peer_ni *peer)
{
    struct lnet_shard *s = peer->shard;

    if (!peer->is_changed)
        TAILQ_INSERT_TAIL(&s->peer->changed, peer, health_changed);
    peer->is_changed = true;
    if (!s->health->reporting)
        report(s->health);
}

static void peer_set(struct lnet_peer_ni *peer, unsigned health, const struct lnet_health_why *why)
{
    if (peer->health == health)
        return;
    peer->health = (uint16_t)health;
    lnet_gw_ni_publish_health(peer);
    post_event(peer->shard->node, LNET_NODE_EV_PEER_HEALTH, &peer->nid, health, why);
    lnet_recovery_look(peer);
    changed(peer);
}

void lnet_health_peer_set(struct lnet_peer_ni *peer, unsigned health, unsigned cause)
{
    struct lnet_health_why why = why_of(cause, LNET_DROP_NONE, NULL);

    peer_set(peer, health, &why);
}

static void peer_step(struct lnet_peer_ni *peer, int steps, const struct lnet_health_why *why)
{
    int by = steps * sensitivity(peer->shard->node);

    peer_set(peer, (unsigned)clamp(peer->health + by), why);
}

/* §6.2: a gateway, or any peer of a router, has full health at once. */
void lnet_health_peer_ok(struct lnet_peer_ni *peer, const struct lnet_hdr *hdr)
{
    struct lnet_health_why why = why_of(LNET_HEALTH_OK, LNET_DROP_NONE, hdr);

    peer->ping_count = 0;
    if (peer->gw_ni || lnet_is_router(peer->shard->node))
        peer_set(peer, LNET_MAX_HEALTH, &why);
    else
        peer_step(peer, 1, &why);
}

/* ---- failures (§6.2) ---- */

static void peer_failed(struct lnet_peer_ni *peer, const struct lnet_health_why *why)
{
    if (peer->gw_ni || lnet_is_router(peer->shard->node)) {
        peer_step(peer, -1, why);
        return;
    }
    peer->health_cause = why->cause;
    if (peer->health_asked < LNET_MAX_HEALTH)
        peer->health_asked++;
    changed(peer);
}

void lnet_health_failed(struct lnet_shard *s, const struct lnet_ni *ni, struct lnet_peer_ni *peer,
                        const struct lnet_hdr *hdr, struct lnet_result result, uint64_t since_us)
{
    struct lnet_health_why why = why_of(result.health, result.reason, hdr);
    enum lnet_health health = result.health;

    if (!result.reason || health == LNET_HEALTH_OK || health >= LNET_HEALTH_COUNT ||
        lnet_is_late(s->node, ni, since_us))
        return;
    lnet_count_failed(s, ni, peer, health);
    if (!lnet_ni_is_active(ni) || relaxed_load(&s->node->stopping) || !sensitivity(s->node))
        return;
    if (health < LNET_HEALTH_REMOTE_ERROR || health == LNET_HEALTH_NETWORK_TIMEOUT)
        ni_change(s, ni, -sensitivity(s->node), &why, false);
    if (health >= LNET_HEALTH_REMOTE_ERROR)
        peer_failed(peer, &why);
}

/* ---- peer NIs that the node's home knows to have failed ---- */

static void lower_post(struct lnet_health_shard *h);

static void lower_back(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, lower);

    h->lowering = false;
    if (h->nlower > 0)
        lower_post(h);
}

static void lower_here(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, lower);

    for (unsigned i = 0; i < h->nlowered; i++) {
        struct lnet_peer_ni *p = lnet_peer_ni_find_here(h->shard->node, &h->lowered[i].nid);
        struct lnet_health_why why = why_of(h->lowered[i].cause, LNET_DROP_NONE, NULL);

        if (p)
            peer_step(p, -1, &why);
    }
    task->fn = lower_back;
    reactor_post(lnet_node_home(h->shard->node), task);
}

static void lower_post(struct lnet_health_shard *h)
{
    memcpy(h->lowered, h->to_lower, sizeof(h->lowered));
    h->nlowered = h->nlower;
    h->nlower = 0;
    h->lowering = true;
    h->lower.fn = lower_here;
    reactor_post(h->shard->reactor, &h->lower);
}

/* A node can push that all of its NIDs are down. Those for which there is no room stay as they are.
 */
void lnet_health_lower(struct lnet_node *node, const struct lnet_nid *nid, unsigned cause)
{
    struct lnet_health_shard *h = node->shard[nid_cpt_hash(nid, node->nshards)]->health;

    if (h->nlower == LNET_HEALTH_LOWER)
        return;
    h->to_lower[h->nlower++] = (struct lnet_health_lower){*nid, (uint8_t)cause};
    if (!h->lowering)
        lower_post(h);
}

/* ---- life ---- */

int lnet_health_init(struct lnet_shard *s, struct err *err)
{
    s->health = calloc(1, sizeof(*s->health));
    if (!s->health)
        return err_set(err, -ENOMEM, "no memory for changes of health");
    s->health->shard = s;
    s->node->peer_made = changed; /* the table of peers may have a copy of an earlier one */
    lnet_recovery_init(s);
    return 0;
}

void lnet_health_fini(struct lnet_shard *s)
{
    free(s->health);
}

void lnet_health_on_ni(struct lnet_node *node, void (*fn)(struct lnet_ni *ni))
{
    node->ni_health = fn;
}
