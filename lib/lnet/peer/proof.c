/* SPDX-License-Identifier: BSD-3-Clause */
/* Which NIDs are proved to be their peer's: table.h. */
#include "lib/lnet/peer/table.h"

/* Returns whether an info lists another proved NID of ni's peer, or that peer has no other one. */
static bool lists_proved(const struct peer_table *t, const struct peer_ni *ni,
                         const struct lnet_ping_info *info)
{
    const struct peer *p = ni->net->peer;
    const struct peer_net *n;
    const struct peer_ni *other;

    for (uint32_t i = 0; i < info->count; i++) {
        other = peer_table_find_ni(t, &info->ni[i].nid);
        if (other && other != ni && other->net->peer == p && peer_ni_proved(other))
            return true;
    }
    TAILQ_FOREACH(n, &p->nets, link)
        TAILQ_FOREACH(other, &n->nis, link)
            if (other != ni && peer_ni_proved(other))
                return false;
    return true;
}

/* A NID answered as another node's than the peer's that had it. No list takes it, but that of the
 * peer that it names first. */
static void give_up_to(struct peer_table *t, struct peer *p, const struct lnet_ping_info *info)
{
    const struct peer *owner = p;

    peer_table_answers(t, p, true);
    for (uint32_t i = 0; i < info->count && owner == p; i++) {
        p->claimed = info->ni[i].nid;
        owner = peer_table_find(t, &p->claimed);
        owner = owner ? owner : p;
    }
}

struct peer *peer_table_replied(struct peer_table *t, const struct lnet_nid *nid,
                                const struct lnet_ping_info *info)
{
    const struct lnet_nid own = *nid;
    struct peer_ni *ni = peer_table_find_ni(t, &own);
    struct peer *p = ni ? ni->net->peer : NULL;

    if (!ni)
        return NULL;
    ni->silent_us = 0;
    if (ni->pins == 0 && !(p->state & PEER_CONFIGURED) && (!ni->answered || p->pins > 0) &&
        !lists_proved(t, ni, info)) {
        if (info->truncated) /* the rest may list one */
            return p;
        p = peer_table_split(t, &own);
        ni = peer_table_find_ni(t, &own);
        if (p)
            give_up_to(t, p, info);
    }
    if (ni)
        ni->answered = true;
    return p;
}

void peer_table_silent(struct peer_table *t, const struct lnet_nid *nid, uint64_t since_us)
{
    struct peer_ni *ni = peer_table_find_ni(t, nid);

    if (ni)
        ni->silent_us = since_us;
}
