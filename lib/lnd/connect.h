/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of connection attempts to a peer NI, and the back-off between them.
 *
 * A run opens the missing connections of a peer NI one after the other, as the protocol wants it
 * (lnd_proto.connect_next). A message that finds no connection begins a run. When a run fails, the
 * waiting messages fail too, and no new run begins before the back-off ends. The back-off is
 * min_reconnect seconds after the first failure, twice as long after each further failure, and at
 * most max_reconnect seconds.
 *
 * States: enum lnd_connect_state in peer_ni.h. A run begins in WAIT, so that connect_next() always
 * runs from the timer and not on the stack of a sender. All functions run on the home reactor.
 */
#ifndef MILLRACE_LND_CONNECT_H
#define MILLRACE_LND_CONNECT_H

#include "lib/lnd/peer_ni.h"

#define LND_CALL_US (5 * LND_SEC) /* in which who is there and has time answers a call */

/* Whether a run may begin: there is none, and the back-off has ended. */
bool lnd_connect_may(const struct lnd_peer_ni *lp);
/* Begins a run if it may and the NI is not being stopped. */
void lnd_connect_start(struct lnd_peer_ni *lp);
/* Continues the run after delay_us. */
void lnd_connect_later(struct lnd_peer_ni *lp, uint64_t delay_us);
/* Closes the connection that is being opened, if any; the run goes on. */
void lnd_connect_drop(struct lnd_peer_ni *lp);
/* Called before each call. Takes the place that it needs, if the run has none yet; gateways need
 * none. There are two kinds: peer NIs that connected once and whose last run did not fail, and all
 * others. Each may have a quarter of the connections of the reactor, and half as many as are free.
 * Of one prefix no more than what is left of that. A call that is not answered gives its place to
 * the next one after LND_CALL_US. Kept until the run ends. Returns NULL, or why there is none. */
const char *lnd_connect_place(struct lnd_peer_ni *lp);
/* Ends a call that had no answer for LND_CALL_US. Returns false if there is none. */
bool lnd_connect_give_way(struct lnd_shard *shard);
/* Whether the call under way is younger than that. */
static inline bool lnd_call_is_young(const struct lnd_peer_ni *lp)
{
    return reactor_now_us() - lp->connect.call_us < LND_CALL_US;
}
/* Takes over conns_per_peer as it is set now. A change applies from the next set on. */
void lnd_connect_number(struct lnd_peer_ni *lp);

/* Ends the run without a result: closes the connection that is being opened. */
void lnd_connect_stop(struct lnd_peer_ni *lp);
/* Ends the run and forgets that we began this set. */
void lnd_connect_cancel(struct lnd_peer_ni *lp);
/* Ends the run with success: there is no back-off any more. */
void lnd_connect_done(struct lnd_peer_ni *lp);
/* Ends the run with failure. Fails the waiting messages with health `now`; messages that come
 * before the end of the back-off fail with health `later`. Reports the peer NI down if it has no
 * connection. Fails no message while the peer itself is opening a connection. May free lp. */
void lnd_connect_failed(struct lnd_peer_ni *lp, enum lnet_health now, enum lnet_health later);

/* Doubles the back-off, within the driver's limits. */
void lnd_connect_back_off(struct lnd_peer_ni *lp);
static inline void lnd_connect_reachable(struct lnd_peer_ni *lp) /* ends the back-off */
{
    lp->connect.interval = 0;
    lp->connect.next_us = 0;
}

void lnd_connect_timer(struct reactor_timer *t); /* of lnd_peer_get() */

#endif
