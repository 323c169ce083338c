/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Responses that this node's GETs and PUTs wait for: an MD whose response does not come within the
 * transaction timeout is unlinked. docs/protocol/lnet-core.md §6.4. Node home.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/api/api_internal.h"
#include "lib/lnet/health/health.h"

#include <errno.h>

static uint64_t timeout_us(const struct lnet_node *node)
{
    return relaxed_load(&node->health.transaction_timeout) * 1000000ull;
}

void lnet_response_expect(struct lnet_md *md, unsigned kind, uint32_t portal)
{
    struct lnet_api *api = md->node->api;

    if (portal == LNET_RESERVED_PORTAL ||
        !(relaxed_load(&md->node->health.response_tracking) & kind))
        return;
    lnet_response_forget(md); /* the last request counts */
    md->tracked = true;
    md->asked_us = reactor_now_us();
    TAILQ_INSERT_TAIL(&api->tracked, md, track);
    lnet_rst_add(md->node, 1);
    if (!reactor_timer_armed(&api->response_timer))
        reactor_timer_arm(&api->response_timer, timeout_us(md->node) / 2);
}

void lnet_response_forget(struct lnet_md *md)
{
    if (!md->tracked)
        return;
    TAILQ_REMOVE(&md->node->api->tracked, md, track);
    md->tracked = false;
    lnet_rst_add(md->node, -1);
}

void lnet_response_came(struct lnet_md *md)
{
    if (md->replies + md->acks == 0)
        lnet_response_forget(md);
}

static void expire(struct lnet_md *md)
{
    struct lnet_node *node = md->node;

    count_add(&lnet_shard_self(node)->stats[LNET_STAT_RESPONSE_TIMEOUT_COUNT], 1);
    lnet_health_lower(node, &md->next_hop, LNET_CAUSE_RESPONSE_TIMEOUT);
    lnet_md_end(md, -ETIMEDOUT);
}

/* Twice in each timeout. */
static void look(struct reactor_timer *t)
{
    struct lnet_api *api = container_of(t, struct lnet_api, response_timer);
    uint64_t limit = timeout_us(api->node), now = reactor_now_us();
    struct lnet_md *md;

    while ((md = TAILQ_FIRST(&api->tracked)) && now - md->asked_us >= limit)
        expire(md);
    if (!TAILQ_EMPTY(&api->tracked) && !reactor_timer_armed(t))
        reactor_timer_arm(t, limit / 2);
}

void lnet_responses_init(struct lnet_api *api)
{
    TAILQ_INIT(&api->tracked);
    reactor_timer_init(&api->response_timer, look);
}

void lnet_responses_stop(struct lnet_node *node)
{
    struct lnet_md *md;

    reactor_timer_cancel(&node->api->response_timer);
    while ((md = TAILQ_FIRST(&node->api->tracked)))
        lnet_response_forget(md);
}
