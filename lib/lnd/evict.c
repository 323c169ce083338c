/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/evict.h"

#include "lib/base/sip.h"
#include "lib/lnd/connect.h"

#include <string.h>

#define GROUPS     512u /* of prefixes, by hash */
#define CROWD_PART 4

struct sample {
    struct lnd_peer_ni *row[LND_EVICT_LOOKS];
    unsigned n, conns;
    uint16_t group[GROUPS]; /* connections of the prefixes in it */
};

struct rank {
    bool crowd;
    unsigned beyond; /* connections beyond a normal set */
    uint64_t silent_us;
};

static unsigned group_of(const struct lnd_peer_ni *lp)
{
    struct lnet_nid prefix = lnet_nid_prefix(lp->ns->shard->driver->node, &lp->peer->nid);

    return (unsigned)(sip_bucket(&prefix, sizeof(prefix)) % GROUPS);
}

static void take_sample(struct lnd_shard *shard, struct sample *s)
{
    struct lnd_peer_ni *lp;

    memset(s, 0, sizeof(*s));
    while (s->n < LND_EVICT_LOOKS && (lp = TAILQ_FIRST(&shard->connected)) &&
           (s->n == 0 || lp != s->row[0])) {
        TAILQ_REMOVE(&shard->connected, lp, connected);
        TAILQ_INSERT_TAIL(&shard->connected, lp, connected);
        s->row[s->n++] = lp;
        s->conns += lp->objects;
        s->group[group_of(lp)] += (uint16_t)lp->objects;
    }
}

static struct rank rank_of(const struct sample *s, const struct lnd_peer_ni *lp)
{
    unsigned normal = 2 * (unsigned)lnd_setting(&lp->ns->lni->ni->lnd_tun.conns_per_peer) + 1;
    int of_others = s->group[group_of(lp)] - (int)lp->objects;
    uint64_t now = reactor_now_us();

    return (struct rank){
        .crowd = of_others * CROWD_PART > (int)s->conns,
        .beyond = lp->objects > normal ? lp->objects - normal : 0,
        .silent_us = now - min(max(lp->peer->message_s * 1000000ull, lp->up_us), now),
    };
}

/* Whether a goes rather than b, for what they have. 0: neither. */
static int compare(const struct rank *a, const struct rank *b)
{
    if (a->crowd != b->crowd)
        return a->crowd ? 1 : -1;
    return a->beyond == b->beyond ? 0 : a->beyond > b->beyond ? 1 : -1;
}

static struct lnd_peer_ni *find_victim(const struct sample *s, const struct lnd_peer_ni *caller)
{
    struct rank worst = {0}, own = {0};
    struct lnd_peer_ni *victim = NULL;

    if (caller)
        own = rank_of(s, caller);
    for (unsigned i = 0; i < s->n; i++) {
        struct lnd_peer_ni *lp = s->row[i];
        struct rank r = rank_of(s, lp);
        int c = compare(&r, &own), w = compare(&r, &worst);

        if (lp == caller || lp->peer->gw_ni || c < 0 || (c == 0 && r.silent_us < LND_EVICT_IDLE_US))
            continue;
        if (victim && (w < 0 || (w == 0 && r.silent_us <= worst.silent_us)))
            continue;
        victim = lp;
        worst = r;
    }
    return victim;
}

bool lnd_evict(struct lnd_shard *shard, struct lnd_peer_ni *caller)
{
    static const struct lnd_close why = {
        .event = LNET_DROP_EVICTED,
        LND_CLOSE_LOST,
        .begun = LNET_HEALTH_LOCAL_ERROR,
        .abort = true,
    };
    struct lnd_peer_ni *victim;
    struct sample s;

    if (lnd_conns_short(shard) && lnd_connect_give_way(shard))
        return true;
    take_sample(shard, &s);
    victim = find_victim(&s, caller);
    if (!victim)
        return false;
    lnd_drop(victim->ns->lni, why.event, &victim->peer->nid, NULL);
    lnd_peer_close(victim, &why);
    return true;
}

struct lnd_peer_ni *lnd_peer_of_caller(struct lnd_ni_shard *ns, const struct lnet_nid *nid)
{
    struct lnd_peer_ni *lp = lnd_peer_get_nid(ns, nid);

    return lp || !lnd_evict(ns->shard, NULL) ? lp : lnd_peer_get_nid(ns, nid);
}
