/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A node is cut into shards, one for each reactor and one for the counters of the control thread. A
 * shard owns message descriptors, counters, and pointers to what each room of lib/lnet keeps for
 * its reactor: peer NIs (peer/), router buffers and accounts (credit/), send queues (tx.c).
 *
 * Threads: only its reactor touches a shard. Counters are the exception: one thread writes them,
 * any thread reads them with relaxed loads.
 *
 * This is the lowest room: it calls no other.
 */
#ifndef MILLRACE_LNET_SHARD_H
#define MILLRACE_LNET_SHARD_H

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/base/prefetch.h"
#include "lib/lnet/lnet.h"

#define LNET_MAX_GATEWAYS 1024 /* with routes */
#define LNET_GW_KEPT      64   /* without */
/* Slots for gateways: one change may replace all of them by others. */
#define LNET_GW_SLOTS (2 * LNET_MAX_GATEWAYS + LNET_GW_KEPT)
/* Peer NIs of gateways: the NID of each, and as many others. Twice, as some leave. */
#define LNET_GW_NI_SLOTS (4 * LNET_GW_SLOTS)
#define LNET_MAX_LNDS    8
#define LNET_PREFIX4     32 /* bits of an address that one source has in common, by default */
#define LNET_PREFIX6     64
#define LNET_CONNECTED   65536u /* a power of two, and more than there are peer NIs */

enum lnet_msg_state {
    LNET_MSG_FREE,      /* on its shard's free list */
    LNET_MSG_RECEIVING, /* the ingress LND writes its payload; owner: that LND, on msg->home */
    LNET_MSG_ROUTING,   /* the core looks for its next hop, on msg->home */
    LNET_MSG_CROSSING,  /* in a mailbox to the next hop's home, or on its way back; no owner */
    LNET_MSG_WAIT_PEER, /* in the next hop's txq, on its home */
    LNET_MSG_WAIT_NI,   /* in the NI's queue there; holds a peer credit */
    LNET_MSG_DELAYED,   /* has its credits; a delay rule holds it, on the next hop's home */
    LNET_MSG_SENDING,   /* has its credits. Owner: the egress LND, on the next hop's home */
    LNET_MSG_HELD,      /* completed, but frames still refer to its buffer; on msg->home */
};

enum lnet_msg_kind {
    LNET_KIND_FORWARD, /* from another node to another node; has a router buffer or the ingress
                          LND's segments */
    LNET_KIND_LOCAL,   /* sent or received by this node; its data lie in an MD */
};

enum lnet_rx_wait { /* what a received header waits for */
    LNET_RX_NOT_WAITING,
    LNET_RX_WAIT_CREDIT, /* for a router credit, in from->rtrq */
    LNET_RX_WAIT_BUFFER, /* for a buffer, in its next hop's account; has a router credit */
    LNET_RX_WAIT_LIMIT,  /* until a limit of the access rules lets it go on */
    LNET_RX_WAIT_DELAY,  /* as long as a delay rule holds it, in rx->fault */
    LNET_RX_BUSY         /* for nothing: it is being parsed, or its payload received */
};

#define LNET_DROP_WORDS ((sizeof(struct lnet_drop_example) + 7) / 8)

union lnet_drop_words {
    struct lnet_drop_example example;
    uint64_t word[LNET_DROP_WORDS];
};

struct lnet_drop_slot {
    uint32_t lock; /* odd while being written */
    union lnet_drop_words u;
};

#define LNET_NODE_EVENT_RING 1024u /* a power of two */
#define LNET_NODE_EVENT_KEYS 1024u

/* Events of one shard on their way to the control thread. event.c */
struct lnet_node_event_ring {
    struct lnet_node *node;
    struct reactor_task mail;
    bool mailed;     /* set by the shard, cleared by control as it begins to read */
    uint32_t head;   /* shard: written up to here */
    uint32_t tail;   /* control: read up to here */
    uint64_t missed; /* shard: events that found no room, or no share, ever */
    uint64_t told;   /* control: of missed, reported to the watcher */
    /* shard: when the share of a host, or of a prefix, is whole again; by hash */
    uint64_t host_us[LNET_NODE_EVENT_KEYS], prefix_us[LNET_NODE_EVENT_KEYS];
    uint64_t health_us[LNET_NODE_EVENT_KEYS], all_health_us; /* the same of changes of health */
    struct lnet_node_event row[LNET_NODE_EVENT_RING];
};

struct lnet_shard {
    struct lnet_node *node;
    struct reactor *reactor; /* NULL: the control thread's shard, counters only */
    unsigned index;
    /* what the rooms keep for this reactor */
    struct lnet_peer_shard *peer;
    struct lnet_credit_shard *credit;
    struct lnet_tx_shard *tx;
    struct lnet_health_shard *health;
    bool ni_steps; /* health/: a change of an NI's health is on its way to the node's home */
    struct lnet_next_hop **next_hop_hash; /* of credit/; here so that rx.c can prefetch from it */
    uint32_t next_hop_mask;
    /* message descriptors */
    struct lnet_msg *msgs, *free_msgs;
    void *msgs_memory; /* of which msgs is a part */
    unsigned total_msgs, used_msgs, local_msgs, max_local;
    /* path selection: sequence number of the last use by this shard. path/ */
    uint64_t *gw_seq;    /* [LNET_GW_SLOTS] */
    uint64_t *gw_ni_seq; /* [LNET_GW_NI_SLOTS] */
    uint64_t *ni_seq;    /* [LNET_MAX_NI] */
    uint64_t seq;        /* 32 bits would wrap within the hour */
    int32_t *ni_credits; /* [LNET_MAX_NI] free tx credits of this reactor, for any reactor. tx.c */
    /* [LNET_MAX_NI] messages, headers and pending ping notices of this shard that point to an NI.
     * A removed NI can be freed when all shards have 0. */
    uint32_t *ni_refs;
    /* counters */
    uint64_t stats[LNET_STAT_COUNT];
    uint64_t drops[LNET_DROP_COUNT];
    struct lnet_drop_slot drop_slots[LNET_DROP_COUNT];
    struct lnet_ni_stats ni_stats[LNET_MAX_NI];
    struct lnet_node_event_ring events;
    struct lnet_stats_reset { /* node/stats.c */
        struct reactor_task task;
        uint32_t slot;    /* of the peer table: slots before it have been reset */
        bool busy, again; /* control */
    } reset;
};

/* Returns for how many peer NIs there is to be room, over all reactors. */
static inline unsigned lnet_max_peers(const struct lnet_node_opts *o)
{
    return o->max_peers ? o->max_peers : 16384;
}

struct lnet_lnd {
    const struct lnd_ops *ops;
    void *ctx;
};

struct lnet_node {
    struct lnet_node_opts opts;
    struct lnet_memory plan;
    /* control writes, all read */
    unsigned egress_share;  /* % */
    unsigned buffer_wait;   /* s */
    unsigned guard;         /* rules of wire/guard.h that are on */
    uint32_t any_stalled_s; /* last second in stalled_s: homes of next hops write it; relaxed */
    unsigned totals[LNET_POOLS]; /* control: router buffers asked for */
    struct reactor_env *env;
    struct mem_arena *arena;
    unsigned nshards; /* reactors; shard[nshards] is the control thread's */
    struct lnet_shard *shard[REACTOR_MAX + 1];
    struct lnet_lnd lnd[LNET_MAX_LNDS];
    unsigned nlnds;
    /* All NIs by index, also those that are starting, and those that were removed as long as
     * messages may point to them. Control; a reactor uses only an index that it has a reference to.
     */
    struct lnet_ni *ni[LNET_MAX_NI];
    unsigned nnis; /* indices ever used */
    bool started;
    bool stopping;
    /* control writes, all read */
    enum lnet_routing routing;
    struct lnet_timing timing;
    struct lnet_health_rules health;
    bool no_discovery;                 /* the operator turned discovery off */
    uint32_t drain;                    /* number of the drain that goes on; 0: none */
    uint32_t drains;                   /* control: drains ever */
    struct lnet_conf *conf;            /* snapshot: release by control, acquire by reactors */
    struct lnet_access *access;        /* a snapshot, too; NULL: no rules */
    uint64_t access_generation;        /* control */
    struct lnet_udsps *udsps;          /* control: selection policies; NULL: none */
    struct lnet_faults *faults;        /* a snapshot, too; NULL: no rules */
    struct lnet_faults *faults_last;   /* control: the snapshot when the node began to stop */
    struct lnet_fault *faults_deleted; /* control: rules whose messages are being let go */
    struct lnet_gw *gw[LNET_GW_SLOTS]; /* control */
    struct lnet_gw_ni *gw_ni[LNET_GW_NI_SLOTS]; /* control */
    unsigned ngw_nis;                           /* control: not those that leave */
    uint64_t stat_base[LNET_STAT_COUNT];        /* control: values at the last reset */
    struct lnet_ni_stats ni_base[LNET_MAX_NI];
    /* Sets of connections, by nid_hash() of the peer NI; relaxed. Peer NIs that meet in a row count
     * as connected with each other. */
    uint16_t connected[LNET_CONNECTED];
    /* By the same hash: until which second the next hop counts as not connected, since it took
     * nothing while others waited; relaxed. */
    uint32_t stalled_s[LNET_CONNECTED];
    /* what the rooms keep for the node */
    struct lnet_api *api;
    struct lnet_ping *ping;
    struct peer_table *peers; /* peer/peers.h */
    struct lnet_routes *routes;
    void (*local_sent)(struct lnet_msg *msg);    /* lnet_tx_on_local_sent() */
    void (*recover)(struct reactor_task *pings); /* lnet_recovery_on_pings() */
    void (*ni_health)(struct lnet_ni *ni);       /* lnet_health_on_ni() */
    void (*peer_made)(struct lnet_peer_ni *p);   /* of health/: a peer NI is new */
    struct lnet_stop *stop;                      /* control, while stopping */
    struct lnet_change *change;                  /* control, while NIs are being added or removed */
    bool events_wanted;                          /* control writes, all read: there is a watcher */
    lnet_node_events_fn events_fn;               /* control */
    void *events_arg;
};

/* The row of `connected` for a peer NI with this nid_hash(). */
static inline uint16_t *lnet_connected_at(struct lnet_node *node, uint32_t hash)
{
    return &node->connected[hash % LNET_CONNECTED];
}

/* Whether a next hop with this nid_hash() has stalled lately. */
static inline bool lnet_stalled_lately(const struct lnet_node *node, uint32_t hash)
{
    uint32_t any = relaxed_load(&node->any_stalled_s), now;

    if (any == 0)
        return false;
    now = (uint32_t)(reactor_now_us() / 1000000);
    return now < any && now < relaxed_load(&node->stalled_s[hash % LNET_CONNECTED]);
}

/* ---- shards and messages (shard.c) ---- */

/* Runs fn(node, arg) on the node's home. Takes memory of the heap; -ENOMEM. Control. */
int lnet_call_home(struct lnet_node *node, void (*fn)(struct lnet_node *node, bool arg), bool arg);

/* Returns the shard of the calling reactor, or the control thread's. */
static inline struct lnet_shard *lnet_shard_self(const struct lnet_node *node)
{
    const struct reactor *r = reactor_self();
    unsigned index = r ? reactor_index(r) : REACTOR_CONTROL;

    return node->shard[index < node->nshards ? index : node->nshards];
}
/* Returns the LND of a net type, or NULL. */
static inline const struct lnet_lnd *lnet_lnd_find(const struct lnet_node *node, unsigned type)
{
    for (unsigned i = 0; i < node->nlnds; i++)
        if (node->lnd[i].ops->type == type)
            return &node->lnd[i];
    return NULL;
}
/* Allocates a zeroed table that begins at a block; *memory is to be freed. NULL: no memory. */
void *lnet_table_alloc(size_t n, size_t size, void **memory);
/* Makes total descriptors, of which local ones may be used for this node's own messages. */
int lnet_msgs_init(struct lnet_shard *s, unsigned total, unsigned local, struct err *err);
void lnet_msgs_fini(struct lnet_shard *s);

static inline void lnet_ni_hold(struct lnet_shard *s, const struct lnet_ni *ni)
{
    count_add(&s->ni_refs[ni->index], 1);
}
static inline void lnet_ni_put(struct lnet_shard *s, const struct lnet_ni *ni)
{
    __atomic_store_n(&s->ni_refs[ni->index], s->ni_refs[ni->index] - 1, __ATOMIC_RELEASE);
}
/* Sets the NI that a message came in by. The message references it until it is freed, as it does
 * tx_ni. */
static inline void lnet_msg_set_rx_ni(struct lnet_msg *msg, struct lnet_ni *ni)
{
    lnet_ni_hold(msg->home, ni);
    msg->rx_ni = ni;
}

/* Returns a zeroed message, but that admission writes header and path of a forwarded one. NULL:
 * there is none left for a message of this node itself. */
static inline struct lnet_msg *lnet_msg_alloc(struct lnet_shard *s, enum lnet_msg_kind kind)
{
    struct lnet_msg *msg = s->free_msgs;

    if (!msg || (kind == LNET_KIND_LOCAL && s->local_msgs >= s->max_local))
        return NULL;
    s->free_msgs = msg->lnd_next;
    if (s->free_msgs)
        prefetch_write(s->free_msgs, 3 * CPU_BLOCK); /* for the next one, in good time */
    if (kind == LNET_KIND_LOCAL) {
        memset(msg, 0, sizeof(*msg));
        msg->via = LNET_NID_ANY;
        relaxed_store(&s->local_msgs, s->local_msgs + 1);
    } else {
        memset(msg, 0, offsetof(struct lnet_msg, hdr));
        msg->buffer = NULL;
        msg->handed_us = 0;
        msg->result = LNET_RESULT_OK;
    }
    msg->kind = (uint8_t)kind;
    msg->home = s;
    s->used_msgs++;
    relaxed_store(&s->stats[LNET_STAT_MSGS_ALLOC], s->used_msgs);
    if (s->used_msgs > s->stats[LNET_STAT_MSGS_MAX])
        relaxed_store(&s->stats[LNET_STAT_MSGS_MAX], s->used_msgs);
    return msg;
}

static inline void lnet_msg_free(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;

    if (msg->kind == LNET_KIND_LOCAL)
        relaxed_store(&s->local_msgs, s->local_msgs - 1);
    if (msg->tx_ni)
        lnet_ni_put(s, msg->tx_ni);
    if (msg->rx_ni)
        lnet_ni_put(s, msg->rx_ni);
    s->used_msgs--;
    relaxed_store(&s->stats[LNET_STAT_MSGS_ALLOC], s->used_msgs);
    msg->state = LNET_MSG_FREE;
    msg->lnd_next = s->free_msgs;
    s->free_msgs = msg;
}

static inline bool lnet_is_home(const struct lnet_node *node)
{
    return reactor_self() == lnet_node_home(node);
}
/* Returns whether messages of other nodes are forwarded. Any thread. */
static inline bool lnet_is_router(const struct lnet_node *node)
{
    return relaxed_load(&node->routing) != LNET_ROUTING_OFF;
}

static inline int lnet_credits_max(int configured)
{
    return configured > 1 ? configured : 1;
}
static inline void lnet_credits_init(struct lnet_credits *c, int max)
{
    c->max = c->now = c->min = lnet_credits_max(max);
    c->waited = 0;
}

/* ---- counters (drops.c) ---- */

/* Adds n to the count of requests of this node that wait for an answer. Node home. */
void lnet_rst_add(struct lnet_node *node, int n);
/* Counts a send or receive that failed by the health that the LND reported: for the node, and for
 * ni or (if not NULL) peer, whose that is. */
void lnet_count_failed(struct lnet_shard *s, const struct lnet_ni *ni, struct lnet_peer_ni *peer,
                       enum lnet_health health);
/* Returns the number of PUTs and GETs received over an NI since its start. Any thread. */
uint64_t lnet_ni_requests(const struct lnet_node *node, unsigned ni);
/* Counts a received message for its NI and its sender. */
static inline void lnet_rx_count(struct lnet_rx *rx)
{
    count_add(&rx->shard->ni_stats[rx->ni->index].received[rx->hdr.type], 1);
    rx->from->recv_count[rx->hdr.type]++;
}
/* Returns the result of a send or receive on ni. An LND that stops an NI cannot know whether the
 * node stops too, or only the NI is removed. */
static inline struct lnet_result lnet_result_of_ni(const struct lnet_ni *ni,
                                                   struct lnet_result result)
{
    if (result.reason == LNET_DROP_SHUTDOWN && !lnet_ni_is_active(ni))
        result.reason = LNET_DROP_NI_REMOVED;
    return result;
}
/* Counts a dropped message: reason, example, drop_count, drop_length, NI and peer counters. */
void lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *ni,
                       struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                       const struct lnet_hdr *hdr);
/* Clears the counters of an NI index before another NI uses it. */
void lnet_shard_clear_ni(struct lnet_shard *s, unsigned index);

#endif
