/* SPDX-License-Identifier: BSD-3-Clause */
/* State of ping.c, push.c, discovery.c, op.c and monitor.c. Node home only. */
#ifndef MILLRACE_LNET_PING_INTERNAL_H
#define MILLRACE_LNET_PING_INTERNAL_H

#include "lib/lnet/api/api.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/ping/discover.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/shard/conf.h"

#include <sys/queue.h>

#define PING_TARGETS    8    /* versions of the info that REPLYs and PUSHes may read at once */
#define PING_INFO_MAX   8192 /* 200 NIDs of either length */
#define PING_CLI_SINK   3960 /* what lnetctl ping asks for, §3.4 */
#define PUSH_IN         LNET_PUSH_BUFFERS
#define PUSH_IN_SIZE    8192
#define SINK_MAX        8192u /* bytes that a discovery asks for: LNET_PING_MAX_NIDS large NIDs fit */
#define DISCOVERIES     128   /* at once, */
#define DISCOVERIES_NEW 80    /* of these, of peers that do not answer */

struct ping_target {
    unsigned refs; /* linked, and each PUSH that sends it */
    uint32_t seqno;
    uint32_t drain; /* number of the drain that it tells of; 0: none */
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PING_INFO_MAX];
};

/* A slot: the discovery of one peer. */
struct discovery {
    struct lnet_ping_op get, put;
    struct lnet_ping *ping;
    struct peer *peer;          /* NULL: the peer's discovery is complete, or the peer is freed */
    struct ping_target *target; /* that put sends */
    struct share_account *account; /* that holds the slot; part: slots that are in lnet_ping.nnew */
    uint64_t begun_us;
    bool is_new; /* counts in lnet_ping.nnew */
    bool ending; /* it took too long while others wait */
    bool free;
    TAILQ_ENTRY(discovery) link; /* in lnet_ping.busy */
    struct discovery *next;      /* in lnet_ping.free_slots */
    uint8_t sink[SINK_MAX];
};

struct push_in {
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PUSH_IN_SIZE];
};

/* NIs that were pinged by messages passing through a shard; sent to the node's home. */
struct lnet_pinged_mail {
    struct lnet_shard *shard;
    struct reactor_task task;
    bool busy;
    bool pending[LNET_MAX_NI]; /* the shard's */
    bool sent[LNET_MAX_NI];    /* the node's home's while busy */
};

struct lnet_ping {
    struct lnet_node *node;
    uint32_t seqno;
    bool dirty; /* state changed and no target was free */
    bool stopped;
    struct ping_target target[PING_TARGETS], *current;
    struct lnet_eq target_eq, in_eq;
    /* discovery.c */
    struct waiting {
        struct peer_list peers; /* for a slot, in order */
        unsigned n,
            looks; /* looks: so many have not been looked at since one came or a slot came free */
    } waiting[2];  /* [1]: peers that answered */
    struct discovery slot[DISCOVERIES], *free_slots;
    TAILQ_HEAD(, discovery) busy; /* that began first is first */
    struct share share;           /* of the slots */
    unsigned nbusy;
    unsigned nnew;    /* slots of peers that did not answer when they got them */
    bool turn_of_new; /* whose turn it is among those that wait */
    bool starting;
    /* goes through the peers and begins discoveries, some at a time */
    struct reactor_task sweep;
    bool sweep_posted, sweep_force;
    unsigned sweep_next; /* index of a peer; all before have been looked at */
    struct push_in in[PUSH_IN];
    LIST_HEAD(, discover_request) requests; /* command.c: who waits for the end of a discovery */
    LIST_HEAD(, lnet_ping_op) ops;          /* running operations */
    struct lnet_recovery *recovery;         /* recovery.c */
    struct lnet_ping_info scratch;
    void (*on_push)(struct lnet_gw_ni *from, const struct lnet_ping_info *info);
    struct reactor_timer tick; /* monitor.c */
    uint64_t ticked_us;        /* last tick */
    struct lnet_pinged_mail pinged[REACTOR_MAX];
};

static inline bool lnet_discovery_is_on(const struct lnet_node *node)
{
    return !relaxed_load(&node->no_discovery);
}

/* Takes note that a peer has an info of ours: of a drain, or (0) of none. peer may be NULL. */
static inline void lnet_peer_told(struct peer *peer, uint32_t drain)
{
    if (peer)
        peer->push.drain = drain;
}

/* Removes the NIDs of p->scratch behind the first max_interfaces, before the table of peers gets
 * it. The status of a gateway's NIs counts however many they are. */
static inline void lnet_ping_limit(struct lnet_ping *p)
{
    uint32_t most = relaxed_load(&p->node->timing.max_interfaces);

    p->scratch.count = p->scratch.count < most ? p->scratch.count : most;
}

/* ---- recovery.c ---- */
int lnet_recovery_start(struct lnet_ping *p); /* control, before start */
void lnet_recovery_fini(struct lnet_ping *p);
/* The health of an NI changed. */
void lnet_recovery_ni(struct lnet_ni *ni);
/* Once a second. */
void lnet_recovery_tick(struct lnet_node *node);

/* Lets go of an info that a PUSH or a REPLY has sent. */
void lnet_ping_target_put(struct lnet_ping *p, struct ping_target *t);
/* Attaches an MD of one segment to the place where ping infos are read and pushed. */
int lnet_ping_attach(struct lnet_node *node, struct lnet_me *me, struct lnet_md *md,
                     struct mem_seg *seg);
/* Both control, before start; the second one creates the table of peers. */
void lnet_ping_push_init(struct lnet_ping *p);
int lnet_discovery_init(struct lnet_ping *p);
void lnet_discovery_fini(struct lnet_ping *p);
void lnet_ping_push_start(struct lnet_ping *p);
/* Begins the discovery of a peer, or queues it. set: 0 does it only if a PUSH is due, else as of
 * DISCOVER_START. A peer that fails again and again is left alone for a while. */
void lnet_discover(struct lnet_ping *p, struct peer *peer, uint32_t set);
/* A peer has pushed p->scratch, the whole of its info, which peer_table_hear() has. The peer may be
 * freed. */
void lnet_discover_pushed(struct lnet_ping *p, struct peer *peer);
/* A peer has pushed a part of its info, or another node's. size: bytes that the whole needs, or 0.
 */
void lnet_discover_pushed_bad(struct lnet_ping *p, struct peer *peer, uint32_t size);
/* Begins some of the discoveries that wait for a slot; begins them in the next iteration. */
void lnet_discover_some(struct lnet_ping *p);
void lnet_discover_soon(struct lnet_ping *p);
/* Ends discoveries that take long while others wait for their slots. Once a second. */
void lnet_discover_make_room(struct lnet_ping *p);
/* Begins the discovery of a peer or queues it, also of one that is left alone. lnet_discover_soon()
 * is due. */
void lnet_discover_now(struct lnet_ping *p, struct peer *peer, uint32_t set);

/* The peer has a slot or waits for one. */
static inline bool lnet_is_discovering(const struct peer *peer)
{
    return peer->push.slot || peer->push.queued;
}

/* Looks at the requests for discoveries: some may be complete. command.c */
void lnet_discover_look(struct lnet_ping *p);
/* Ends all requests: while reactors run, and when they are stopped. */
void lnet_discover_stop(struct lnet_ping *p);
void lnet_discover_abandon(struct lnet_ping *p);

#endif
