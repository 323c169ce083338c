/* SPDX-License-Identifier: BSD-3-Clause */
/* Which messages are sent again. docs/protocol/lnet-core.md §6.1, §6.2; health.h has the rules. */
#include "lib/lnet/health/health.h"

/* §6.2, column resend. */
static const bool resendable[LNET_HEALTH_COUNT] = {
    [LNET_HEALTH_LOCAL_INTERRUPT] = true, [LNET_HEALTH_LOCAL_DROPPED] = true,
    [LNET_HEALTH_LOCAL_ABORTED] = true,   [LNET_HEALTH_LOCAL_NO_ROUTE] = true,
    [LNET_HEALTH_LOCAL_TIMEOUT] = true,   [LNET_HEALTH_REMOTE_DROPPED] = true,
};

bool lnet_is_late(const struct lnet_node *node, const struct lnet_ni *ni, uint64_t since_us)
{
    uint64_t tries = relaxed_load(&node->health.retry_count) + 1;
    int lnd_timeout = relaxed_load(&ni->lnd_tun.timeout);
    uint64_t limit_s = lnd_timeout > 0 ? (uint64_t)lnd_timeout * tries + 1
                                       : relaxed_load(&node->health.transaction_timeout);

    return since_us > 0 && reactor_now_us() > since_us + limit_s * 1000000;
}

uint64_t lnet_msg_since_us(const struct lnet_msg *msg)
{
    return msg->kind == LNET_KIND_LOCAL ? msg->committed_us : msg->handed_us;
}

/* Returns whether the connection that a message for a gateway waited for is lost. The message may
 * go to another gateway with any status: this rule is Millrace's own. */
static bool lost_gateway(const struct lnet_msg *msg)
{
    const enum lnet_drop why = msg->result.reason;

    return msg->kind == LNET_KIND_FORWARD && msg->next_gw_ni &&
           (why == LNET_DROP_NEXT_HOP_LOST || why == LNET_DROP_NEXT_HOP_DOWN ||
            why == LNET_DROP_NEXT_HOP_TIMEOUT);
}

/* Local statuses need a second NI of this node, remote ones a second NI of the peer. The node's
 * home knows the peers of its own messages: lnet_local_choose_again(). */
static bool by_status(const struct lnet_node *node, const struct lnet_msg *msg)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    const struct lnet_conf_gw_ni *g;

    if (!resendable[msg->result.health])
        return false;
    if (msg->result.health < LNET_HEALTH_REMOTE_ERROR)
        return conf->nnis > 1;
    if (!msg->next_gw_ni)
        return msg->kind == LNET_KIND_LOCAL;
    g = lnet_conf_gw_ni(conf, &msg->next_hop);
    return g && g->gw->nnis > 1;
}

bool lnet_may_resend(struct lnet_shard *s, const struct lnet_msg *msg)
{
    const unsigned resends = msg->resent ? msg->resends : 0;

    if (!msg->result.unsent || msg->result.reason == LNET_DROP_NONE ||
        msg->result.reason == LNET_DROP_SHUTDOWN)
        return false;
    if (msg->kind == LNET_KIND_LOCAL && msg->once)
        return false;
    if (!lost_gateway(msg) && !by_status(s->node, msg))
        return false;
    if (lnet_is_late(s->node, msg->tx_ni, lnet_msg_since_us(msg)))
        return false;
    if (resends < relaxed_load(&s->node->health.retry_count))
        return true;
    if (resends > 0)
        count_add(&s->stats[LNET_STAT_FAILED_RESENDS], 1);
    return false;
}
