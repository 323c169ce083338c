/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Eviction of peer NIs when places for connections run short on a reactor: in the pool of an LND or
 * of its transport. No peer NI is refused because others are idle.
 *
 * Order: first, where connections run short, a call of ours without an answer (connect.h). Then a
 * peer NI in whose prefix others have more than a quarter of all connections. Then the peer NI with
 * the most connections beyond a normal set, 2 x conns_per_peer + 1. Then the one that sent no
 * message for longest; keep-alives do not count. It goes only if it ranks before the caller, or
 * sent none for LND_EVICT_IDLE_US. All of its connections are closed, with a drop reason and an
 * event. A gateway is never evicted, since routes depend on it.
 *
 * A call looks at LND_EVICT_LOOKS peer NIs, and the next call at the next ones. So a call has a
 * bounded cost, and a peer NI that holds many connections is found soon.
 */
#ifndef MILLRACE_LND_EVICT_H
#define MILLRACE_LND_EVICT_H

#include "lib/base/minmax.h"
#include "lib/lnd/peer_ni.h"

#define LND_EVICT_LOOKS   128u
#define LND_EVICT_IDLE_US (10 * LND_SEC)
#define LND_CONNS_KEPT    64u /* free connections below which callers cost others theirs */

/* Whether connections of a reactor are so few that a caller costs another peer NI its own. */
static inline bool lnd_conns_short(const struct lnd_shard *shard)
{
    return shard->conns.nfree < min(LND_CONNS_KEPT, shard->driver->max_conns / 8);
}
/* Whether there are more than those kept for calls of this node itself. */
static inline bool lnd_conns_for_callers(const struct lnd_shard *shard)
{
    return shard->conns.nfree > min(LND_CONNS_KEPT / 4, shard->driver->max_conns / 32);
}
/* Closes the connections of the peer NI that gives way to `caller`, or to a new one if that is
 * NULL. Returns false if none does. On the shard's reactor; the caller holds `caller`. */
bool lnd_evict(struct lnd_shard *shard, struct lnd_peer_ni *caller);
/* Returns the set of a peer NI that calls, as lnd_peer_get_nid() does, after another gave way if
 * that is what it takes. */
struct lnd_peer_ni *lnd_peer_of_caller(struct lnd_ni_shard *ns, const struct lnet_nid *nid);

#endif
