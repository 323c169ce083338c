/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Health: how well an NI, or a peer NI, has worked lately, from 0 to LNET_MAX_HEALTH. A failure of
 * a message lowers it by the sensitivity, a message that got through raises it by as much. Path
 * selection prefers what is healthy. docs/protocol/lnet-core.md §6.
 *
 * Each value has one writer. That of a peer NI is written by the home of its NID, which also
 * publishes it for gateways (struct lnet_gw_ni). That of an NI is written by the node's home. Other
 * reactors collect the changes of an NI as one step (struct lnet_ni_step) and send it there. While
 * all is well a message costs a look at the values, and nothing more.
 *
 * The table of peers has a copy of the value of each NID, for the node's home. It is sent in
 * bounded parts.
 */
#ifndef MILLRACE_LNET_HEALTH_H
#define MILLRACE_LNET_HEALTH_H

#include "lib/lnet/event.h"
#include "lib/lnet/shard/conf.h"

/* Why a value changes: a status of enum lnet_health (OK: a message got through), or one of these.
 */
enum {
    LNET_CAUSE_COMMAND = LNET_HEALTH_COUNT,
    LNET_CAUSE_RESPONSE_TIMEOUT,
    LNET_CAUSE_STATUS_DOWN,
    LNET_CAUSES
};

struct lnet_health_why {
    uint16_t drop; /* of the message that failed */
    uint8_t cause;
    struct lnet_event_msg msg;
};

/* Changes of a value, in order, as one: value = min(max(value + add, low), high). That is exact,
 * for any number of changes. */
struct lnet_ni_step {
    int32_t add;
    int16_t low, high;
    struct lnet_health_why why; /* of the last change */
    bool used;
    bool message; /* a message came in: its recovery pings begin anew */
};

#define LNET_RECOVERY_PINGS 32  /* that a reactor asks for in a second */
#define LNET_HEALTH_ROWS    32  /* peer NIs in one message to the node's home, and back */
#define LNET_HEALTH_LOWER   128 /* in one message from it */

struct lnet_health_shard {
    struct lnet_shard *shard;
    /* NIs: the shard's, and what is on its way */
    struct lnet_ni_step step[LNET_MAX_NI], sent[LNET_MAX_NI];
    bool busy;
    struct reactor_task task;
    /* peer NIs whose health changed, to the node's home and back */
    struct reactor_task report;
    bool reporting;
    unsigned nrows;
    struct lnet_health_row {
        struct lnet_nid nid;
        uint16_t health, asked;
        uint8_t cause;
    } row[LNET_HEALTH_ROWS];
    /* recovery.c: the tick, peer NIs that it still has to look at, and those that are to be pinged:
     * on their way to the node's home, which sets `begun`, and back */
    struct reactor_timer tick;
    struct reactor_task look, pings;
    unsigned looks, npings;
    bool pinging;
    struct lnet_recovery_ping {
        struct lnet_nid nid;
        bool begun;
    } ping[LNET_RECOVERY_PINGS];
    /* node home: peer NIs of this shard that are to be lowered */
    struct reactor_task lower;
    bool lowering;
    unsigned nlower, nlowered;
    struct lnet_health_lower {
        struct lnet_nid nid;
        uint8_t cause;
    } to_lower[LNET_HEALTH_LOWER], lowered[LNET_HEALTH_LOWER];
};

int lnet_health_init(struct lnet_shard *s, struct err *err); /* control, before start */
void lnet_health_fini(struct lnet_shard *s);
/* Sets what is called on the node's home when the health of an NI has changed. Control, before
 * start. */
void lnet_health_on_ni(struct lnet_node *node, void (*fn)(struct lnet_ni *ni));
/* Returns the name of a cause. */
const char *lnet_health_cause(unsigned cause);

/* ---- messages (home of the peer NI) ---- */

/* A send or a receive of this message failed. since_us: when the LND got it; 0: not known. */
void lnet_health_failed(struct lnet_shard *s, const struct lnet_ni *ni, struct lnet_peer_ni *peer,
                        const struct lnet_hdr *hdr, struct lnet_result result, uint64_t since_us);
void lnet_health_ni_ok(struct lnet_shard *s, const struct lnet_ni *ni, const struct lnet_hdr *hdr,
                       bool received);
void lnet_health_peer_ok(struct lnet_peer_ni *peer, const struct lnet_hdr *hdr);

/* A message was sent by an NI: §6.2 row 0. */
static inline void lnet_health_sent(struct lnet_shard *s, const struct lnet_ni *ni,
                                    const struct lnet_hdr *hdr)
{
    if (relaxed_load(&ni->health) != LNET_MAX_HEALTH || s->ni_steps)
        lnet_health_ni_ok(s, ni, hdr, false);
}

/* A message was received. */
static inline void lnet_health_received(struct lnet_rx *rx)
{
    if (relaxed_load(&rx->ni->health) != LNET_MAX_HEALTH || rx->shard->ni_steps)
        lnet_health_ni_ok(rx->shard, rx->ni, &rx->hdr, true);
    if (rx->from->health != LNET_MAX_HEALTH)
        lnet_health_peer_ok(rx->from, &rx->hdr);
}

/* ---- resends (§6.2; resend.c) ---- */

/* Returns whether a message that ended with msg->result is sent again. Its status must be one that
 * is resent, and the send `unsent`. Counts a message that had its last resend. Home of
 * msg->tx_peer. */
bool lnet_may_resend(struct lnet_shard *s, const struct lnet_msg *msg);
/* Returns whether the deadline of a message is past that was committed at since_us; 0: no. */
bool lnet_is_late(const struct lnet_node *node, const struct lnet_ni *ni, uint64_t since_us);
/* Returns when a message was committed for sending, in us. */
uint64_t lnet_msg_since_us(const struct lnet_msg *msg);

/* ---- other changes ---- */

/* Sets the health of a peer NI. Home of the NID. */
void lnet_health_peer_set(struct lnet_peer_ni *peer, unsigned health, unsigned cause);
/* Raises the health of an NI by a step, for the reply to a recovery ping, or sets it. Node home. */
void lnet_health_ni_raise(struct lnet_ni *ni);
void lnet_health_ni_set(struct lnet_ni *ni, unsigned health, unsigned cause);
/* Lowers the health of a NID's peer NI, if there is one, by a step: soon. Node home. */
void lnet_health_lower(struct lnet_node *node, const struct lnet_nid *nid, unsigned cause);

/* ---- recovery of peer NIs (§6.3; recovery.c) ---- */

void lnet_recovery_init(struct lnet_shard *s);
/* Takes an unhealthy peer NI into a queue of its shard: the one that is pinged, if the peer NI was
 * alive not too long ago, else the other one. Takes a healthy one out. Home of the NID. */
void lnet_recovery_look(struct lnet_peer_ni *peer);
/* Returns when the next ping is due, after so many. */
uint64_t lnet_recovery_next_us(const struct lnet_node *node, unsigned pings);
/* Sets the function, for the node's home, that begins the pings of a shard (its task is
 * lnet_health_shard.pings) and calls lnet_recovery_begun(). Control, before start. */
void lnet_recovery_on_pings(struct lnet_node *node, void (*fn)(struct reactor_task *pings));
void lnet_recovery_begun(struct lnet_health_shard *h);

#endif
