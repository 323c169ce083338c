/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of lib/lnet share. A node is cut into shards, one per reactor (and one for the
 * counters of the control thread); a shard is touched by its reactor only, except that counters are
 * read anywhere with relaxed loads.
 */
#ifndef MILLRACE_LNET_INTERNAL_H
#define MILLRACE_LNET_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/base/prefetch.h"
#include "lib/lnet/lnet.h"
#include "lib/lnet/node/event.h"

#define LNET_MAX_GATEWAYS 1024 /* with routes */
#define LNET_GW_KEPT      64   /* without */
/* Of gateways: all of them may be replaced by others in one change. */
#define LNET_GW_SLOTS   (2 * LNET_MAX_GATEWAYS + LNET_GW_KEPT)
#define LNET_GW_BUCKETS 1024u
#define LNET_MAX_LNDS   8
#define LNET_MD_BUCKETS 4096u
#define LNET_ASKERS     1024u

enum lnet_msg_state {
    LNET_MSG_FREE,      /* on its shard's free list */
    LNET_MSG_RECEIVING, /* the ingress LND writes its payload; owner: that LND, on msg->home */
    LNET_MSG_ROUTING,   /* the core looks for its next hop, on msg->home */
    LNET_MSG_CROSSING,  /* in a mailbox to the next hop's home, or on its way back; no owner */
    LNET_MSG_WAIT_PEER, /* in the next hop's txq, on its home */
    LNET_MSG_WAIT_NI,   /* in the NI's queue there; holds a peer credit */
    LNET_MSG_SENDING,   /* has its credits. Owner: the egress LND, on the next hop's home */
    LNET_MSG_HELD,      /* through, but frames still refer to its buffer: in held, on msg->home */
};

enum lnet_msg_kind {
    LNET_KIND_FORWARD, /* of others, holds a router buffer or the ingress LND's segments */
    LNET_KIND_LOCAL,   /* ours to send or to receive; data in an MD */
};

enum lnet_rx_wait {
    LNET_RX_NOT_WAITING,
    LNET_RX_WAIT_CREDIT, /* in from->rtrq */
    LNET_RX_WAIT_BUFFER, /* in dest->wait; holds a router credit */
    LNET_RX_BUSY
};

/* ---- accounts of next hops ---- */

/* Headers for one next hop that wait for a buffer of one pool; in a ring of the pool's. */
struct lnet_dest_wait {
    struct lnet_dest *dest;
    struct lnet_rx_queue queue;
    struct lnet_dest_wait *next, *prev; /* NULL: nothing waits */
};

enum lnet_class {      /* who may use the reserve of a pool */
    LNET_CLASS_URGENT, /* portal 0, ACK, empty PUT and REPLY */
    LNET_CLASS_BULK,
    LNET_CLASSES
};

/* What one next hop holds of a shard's buffers. There while it holds any or somebody waits for it.
 * A gateway that is also the destination of messages has two. */
struct lnet_dest {
    struct lnet_nid nid;
    bool gateway;
    uint32_t refs; /* messages and waiting headers */
    uint32_t held[LNET_POOLS];
    uint64_t memory; /* of the budget for segments */
    struct lnet_dest *hash_next;
    uint32_t waiting; /* headers in all of wait[][] */
    struct lnet_dest_wait wait[LNET_POOLS][LNET_CLASSES];
    uint8_t spare[32];
};

_Static_assert(offsetof(struct lnet_dest, wait) == 64, "what is always needed lies in one line");
_Static_assert(sizeof(struct lnet_dest) % CPU_BLOCK == 0, "blocks of two cache lines");

/* Next hops for which headers wait, in the order of their turns. */
struct lnet_ring {
    struct lnet_dest_wait look; /* head: those that may have become able to go on */
    struct lnet_dest_wait rest; /* head: those that could not when they were looked at */
};

struct lnet_rx_ages { /* by age_next */
    struct lnet_rx *head, **tail;
};

struct lnet_router_pool {
    struct mem_pool mem; /* not for tiny, which has no memory */
    uint32_t capacity;   /* buffers there is memory for */
    uint32_t total;      /* of these in use as router buffers: what the operator asked for */
    uint32_t used;
    int32_t low; /* §4.9 mincredits */
    uint32_t waiting;
    uint64_t waited;
    uint32_t stalled;     /* of used, held by receives that do not move */
    uint32_t gw_held;     /* of used, bound for gateways; stalled ones too, they will go there */
    uint32_t end_held;    /* of used, bound for end nodes, without stalled ones */
    uint32_t gws_holding; /* gateways that hold one */
    struct lnet_ring ring[LNET_CLASSES];
    uint8_t turn;    /* enum lnet_class that is served next */
    bool told_short; /* watchers: headers wait because none is free */
    bool short_seen; /* again, since the last look */
};

struct lnet_grants { /* by next */
    struct lnet_grant *head, **tail;
};

/* Memory for segments that transports hand over, by truesize. grant.c */
struct lnet_budget {
    uint64_t total, used;
    uint64_t held[2]; /* of used, by messages for end nodes, and for gateways */
    uint64_t stalled; /* of these, by receives that do not move */
    uint64_t low;     /* least that was free */
    /* The header that waits longest for memory, for an end node and for a gateway. */
    struct lnet_rx *first[2];
    uint32_t waiting; /* headers */
    uint64_t waited;
    struct lnet_grants grants; /* wait for their base */
    uint32_t grants_waiting;
    uint64_t copies, copy_bytes; /* messages whose segments were more than there was memory for */
};

/* tx credits of an NI on this reactor. */
struct lnet_tx_queue {
    struct lnet_credits credits;
    struct lnet_msg_queue queue;       /* wait for a credit */
    struct lnet_msg *oldest, **newest; /* messages with the LND that hold one */
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

/* NIs of one net that were pinged by messages passing through; mailed to the node's home. */
struct lnet_pinged_mail {
    struct reactor_task task;
    bool busy;
    bool pending[LNET_MAX_NI]; /* this shard's */
    bool sent[LNET_MAX_NI];    /* the mail's while busy */
};

#define LNET_EVENT_RING 1024u /* a power of two */

/* Events of one shard on their way to the control thread. event.c */
struct lnet_event_ring {
    struct lnet_node *node;
    struct reactor_task mail;
    bool mailed;     /* set by the shard, cleared by control as it begins to read */
    uint32_t head;   /* shard: written up to here */
    uint32_t tail;   /* control: read up to here */
    uint64_t missed; /* shard: found no room, ever */
    uint64_t told;   /* control: of these */
    struct lnet_event_row row[LNET_EVENT_RING];
};

struct lnet_shard {
    struct lnet_node *node;
    struct reactor *reactor; /* NULL: the control thread's shard, counters only */
    unsigned index;
    /* messages */
    struct lnet_msg *msgs, *free_msgs;
    void *msgs_memory; /* of which msgs is a part */
    unsigned total_msgs, used_msgs, local_msgs, max_local;
    struct lnet_router_pool pool[LNET_POOLS];
    struct lnet_budget budget;
    uint8_t turn; /* enum lnet_pool that is served first */
    struct lnet_dest *dests, *free_dests;
    void *dests_memory;
    struct lnet_dest **dest_hash;
    uint32_t dest_mask;
    struct lnet_rx_ages waiting;   /* all headers that wait, the first to expire first */
    struct lnet_rx_ages receiving; /* all that are received into a buffer, the oldest first */
    struct reactor_timer wait_timer;
    struct reactor_timer stall_timer; /* looks for receives that hold what others wait for */
    struct reactor_timer calm_timer;  /* looks whether watchers can be told that some are free */
    struct reactor_task wake;
    bool wake_posted;
    bool wake_all;                 /* all that wait may have become able to go on */
    struct lnet_peer_ni *rtr_wake; /* peers whose waiting headers may go on */
    /* sending */
    struct lnet_tx_queue *tq;    /* [LNET_MAX_NI] */
    struct lnet_msg_queue ready; /* have all credits */
    bool handing;                /* lnet_hand_ready() is on the stack */
    struct reactor_timer overdue_timer;
    /* Messages of this shard that are through and whose memory frames still refer to, by lnd_next.
     * send.c */
    struct lnet_msg *held;
    struct reactor_timer held_timer;
    /* peers */
    struct lnet_peer_ni *peers, *free_peers;
    void *peers_memory;
    struct lnet_peer_ni **hash;
    uint32_t hash_mask, npeers;
    uint32_t peers_used;                        /* places of peers[] that have ever been used */
    struct lnet_peer_ni *idle_head, *idle_tail; /* refs == 0, oldest first */
    /* selection */
    uint64_t *gw_seq; /* [LNET_GW_SLOTS] last use of each gateway by this shard */
    uint64_t *ni_seq; /* [LNET_MAX_NI] */
    /* [LNET_MAX_NI] messages and headers of this shard that point to an NI, and pings that were
     * noted: when it is removed and all shards have 0, it can be freed. */
    uint32_t *ni_refs;
    uint64_t seq; /* 32 bits would wrap within the hour */
    struct lnet_pinged_mail pinged;
    /* counters */
    uint64_t stats[LNET_STAT_COUNT];
    uint64_t drops[LNET_DROP_COUNT];
    struct lnet_drop_slot drop_slots[LNET_DROP_COUNT];
    struct lnet_ni_stats ni_stats[LNET_MAX_NI];
    struct lnet_event_ring events;
    struct lnet_stats_reset {
        struct reactor_task task;
        uint32_t slot;    /* of peers: those before have been reset */
        bool busy, again; /* control */
    } reset;
};

/* A gateway: kept for a while when its last route has gone. Each dynamic field has one writer. */
struct lnet_gw {
    struct lnet_node *node;
    struct lnet_nid nid;
    unsigned index; /* in node->gw */
    /* control */
    uint32_t routes; /* how many routes use it */
    uint32_t wanted; /* counts requests for a check soon */
    uint64_t used;   /* generation in which a route was last added */
    bool bound;      /* its peer NI was told */
    bool leaving;    /* no snapshot will have it */
    struct lnet_gw *next;
    struct reactor_task bind, leave;
    /* node home */
    bool ping_down;
    uint64_t ping_down_us;
    struct lnet_gw_check *check;
    struct lnet_judge *judge;
    bool told_down; /* to watchers */
    const char *told_cause;
    /* home of the gateway's NID */
    struct reactor_task changed; /* to the node's home */
    bool change_mailed;          /* cleared there */
    const char *lnd_cause;       /* of the last change */
    bool lnd_down;
    uint64_t heard_us; /* last message of a foreign source while it was thought down */
    uint64_t queued_bytes;
};

/* A route: allocated by control, freed after it is out of the snapshot and all reactors have passed
 * a quiescent state. */
struct lnet_route {
    lnet_net_t net;
    struct lnet_gw *gw;
    int hops;
    unsigned priority;
    /* node home, from the gateway's ping replies (§3.8 "Cached flag") */
    bool up;
    bool single_hop;
    const char *cause; /* of up as it is */
    bool told_down;    /* to watchers */
    bool told_by_gw;   /* because its gateway was */
};

struct lnet_conf_net {
    lnet_net_t net;
    unsigned nni; /* 1 or more */
    struct lnet_ni **ni;
};

struct lnet_conf_gw {
    struct lnet_gw *gw;
    unsigned nroutes;
    struct lnet_route **route;
};

/* What the operator configured, as the data path sees it: immutable, published by pointer. An NI in
 * it listens; nets and NIs are in configuration order. */
struct lnet_conf {
    uint64_t generation;
    unsigned nnets, nnis;
    struct lnet_conf_net *net;
    struct lnet_ni **ni; /* those of a net adjoin */
    unsigned nroutes;
    uint32_t mask;   /* of first[] */
    uint32_t *first; /* hash of net -> index + 1 of its first route; routes of a net adjoin */
    struct lnet_route **route;
    unsigned ngws;           /* gateways with routes: the first ones */
    unsigned ngws_known;     /* all */
    struct lnet_conf_gw *gw; /* pointer and routes of each */
    struct lnet_route **by_gw;
    uint32_t gw_mask; /* of gw_at[] */
    uint32_t *gw_at;  /* hash of NID -> index + 1 in gw[] */
};

/* Node home: goes through all routes for what watchers have not been told. route_event.c */
struct lnet_route_events {
    struct reactor_task task;
    bool busy;
    bool again; /* from the first route */
    unsigned next;
    uint64_t generation;
};

struct lnet_ping; /* ping.c */

struct lnet_lnd {
    const struct lnd_ops *ops;
    void *ctx;
};

struct lnet_node {
    struct lnet_node_opts opts;
    struct lnet_memory plan;
    /* control writes, all read */
    unsigned egress_share;       /* % */
    unsigned buffer_wait;        /* s */
    unsigned totals[LNET_POOLS]; /* control: router buffers asked for */
    struct reactor_env *env;
    struct mem_arena *arena;
    unsigned nshards; /* reactors; shard[nshards] is the control thread's */
    struct lnet_shard *shard[REACTOR_MAX + 1];
    struct lnet_lnd lnd[LNET_MAX_LNDS];
    unsigned nlnds;
    /* All NIs there are, by index: those that start and those that are gone too, as long as
     * messages may point to them. Control; a reactor looks only at indices that it has a reference
     * of. */
    struct lnet_ni *ni[LNET_MAX_NI];
    unsigned nnis; /* indices ever used */
    bool started;
    bool stopping;
    /* control writes, all read */
    enum lnet_routing routing;
    struct lnet_timing timing;
    uint64_t routing_since_us; /* control */
    struct reactor_timer routing_timer;
    uint64_t stat_base[LNET_STAT_COUNT]; /* control: what there was at the last reset */
    struct lnet_ni_stats ni_base[LNET_MAX_NI];
    struct lnet_conf *conf;            /* atomic: release by control, acquire by reactors */
    struct lnet_gw *gw[LNET_GW_SLOTS]; /* control */
    struct lnet_gw *gw_bucket[LNET_GW_BUCKETS]; /* control: hash by NID */
    /* node home */
    uint64_t interface_cookie;
    uint64_t next_cookie;
    struct lnet_md **md_hash;
    struct {
        struct lnet_me *head, *tail;
    } portal[LNET_PORTALS];
    uint32_t asked[LNET_ASKERS]; /* by hash of the sender: local messages it made us use */
    uint32_t arriving[LNET_ASKERS], arriving_all; /* PUSHes of these that have no end yet */
    struct lnet_rx_queue lazy; /* PUTs on portal 0 while no push buffer is posted */
    struct reactor_timer lazy_timer;
    bool lazy_busy; /* in lnet_lazy_retry() */
    struct lnet_ping *ping;
    struct reactor_timer tick; /* monitor.c */
    uint64_t ticked_us;        /* last tick */
    struct reactor_timer gw_timer;
    unsigned gw_next; /* gateway to be looked at, of the snapshot */
    struct lnet_route_events route_events;
    /* control, while stopping */
    struct lnet_stop *stop;
    struct lnet_change *change;           /* control, while NIs are being added or removed */
    struct reactor_task end[LNET_MAX_NI]; /* lnet_node_end() */
    bool events_wanted;                   /* control writes, all read: there is a watcher */
    lnet_events_fn events_fn;             /* control */
    void *events_arg;
};

/* ---- live.c ---- */
/* Answers whoever waits for a change of NIs, if there is one, with -ESHUTDOWN. Reactors stopped. */
void lnet_change_abandon(struct lnet_node *node);

/* ---- node.c ---- */
/* The change of NIs has ended: a node that stops has waited for it. Control. */
void lnet_stop_change_ended(struct lnet_node *node);
/* An NI that its LND knows, with an index, but in no table yet. Errors as lnet_ni_add(). Control.
 */
int lnet_ni_make(struct lnet_node *node, const struct lnet_ni_conf *conf, struct lnet_ni **out,
                 struct err *err);
void lnet_ni_place(struct lnet_ni *ni);
void lnet_ni_free(struct lnet_ni *ni);

/* ---- shard.c: messages, counters; stats.c: reading them ---- */
struct lnet_shard *lnet_shard_self(const struct lnet_node *node);
/* A table that begins at a block, all zero; *memory is what free() takes. NULL: no memory. */
void *lnet_table_alloc(size_t n, size_t size, void **memory);
int lnet_shard_create(struct lnet_node *node, unsigned index, struct err *err);
void lnet_shard_destroy(struct lnet_shard *s);
/* Another NI will have the index: nothing is left of the one that had it. */
void lnet_shard_clear_ni(struct lnet_shard *s, unsigned index);
struct lnet_msg *lnet_msg_alloc(struct lnet_shard *s, enum lnet_msg_kind kind);
void lnet_msg_free(struct lnet_msg *msg);
static inline void lnet_ni_hold(struct lnet_shard *s, const struct lnet_ni *ni)
{
    count_add(&s->ni_refs[ni->index], 1);
}
static inline void lnet_ni_put(struct lnet_shard *s, const struct lnet_ni *ni)
{
    __atomic_store_n(&s->ni_refs[ni->index], s->ni_refs[ni->index] - 1, __ATOMIC_RELEASE);
}
/* Where it came in: referenced until it is freed, as is tx_ni. */
static inline void lnet_msg_set_rx_ni(struct lnet_msg *msg, struct lnet_ni *ni)
{
    lnet_ni_hold(msg->home, ni);
    msg->rx_ni = ni;
}
/* One more or less of ours waits for an answer. Node home. */
void lnet_rst_add(struct lnet_node *node, int n);
/* A send or receive has failed: counts it by what the LND says of it. */
void lnet_count_health(struct lnet_shard *s, struct lnet_result result);
/* Returns the number of PUTs and GETs received over an NI since its start. Any thread. */
uint64_t lnet_ni_requests(const struct lnet_node *node, unsigned ni);
/* A message is gone: counts reason, example, drop_count, drop_length, NI and peer counters. */
void lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *ni,
                       struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                       const struct lnet_hdr *hdr);

/* ---- pool.c: router buffers, how many and where ---- */
unsigned lnet_local_msgs(const struct lnet_node_opts *opts);
unsigned lnet_peers_per_shard(const struct lnet_node_opts *opts, unsigned reactors);
int lnet_pools_init(struct lnet_shard *s, struct err *err);
void lnet_pools_fini(struct lnet_shard *s);
/* A header waits because no buffer is free: watchers are told once until that has ended. */
void lnet_pool_short(struct lnet_shard *s, enum lnet_pool pool);
static inline int32_t lnet_pool_free(const struct lnet_router_pool *p)
{
    return (int32_t)p->total - (int32_t)p->used;
}

/* ---- dest.c: accounts of next hops ---- */
int lnet_dests_init(struct lnet_shard *s, unsigned max, struct err *err);
void lnet_dests_fini(struct lnet_shard *s);
/* The account of a next hop, made if there is none, with a reference. NULL: the table is full. */
struct lnet_dest *lnet_dest_get(struct lnet_shard *s, const struct lnet_nid *nid, bool gateway);
/* The same with nid_hash() of the NID. */
struct lnet_dest *lnet_dest_get_hashed(struct lnet_shard *s, const struct lnet_nid *nid,
                                       uint32_t hash, bool gateway);
void lnet_dest_put(struct lnet_shard *s, struct lnet_dest *d);
/* Whether one more buffer of a pool may be used for d, as far as buffers go. */
bool lnet_dest_may(const struct lnet_shard *s, const struct lnet_dest *d, enum lnet_pool pool,
                   enum lnet_class class);
/* Why it may not. */
enum lnet_drop lnet_dest_why(const struct lnet_shard *s, const struct lnet_dest *d,
                             enum lnet_pool pool);
/* One more, one less is held for d. */
void lnet_dest_charge(struct lnet_shard *s, struct lnet_dest *d, enum lnet_pool pool);
void lnet_dest_credit(struct lnet_shard *s, struct lnet_dest *d, enum lnet_pool pool);
/* One that is held for d stalls, or moves again: then it is d's. */
void lnet_dest_stall(struct lnet_shard *s, struct lnet_dest *d, enum lnet_pool pool);
void lnet_dest_unstall(struct lnet_shard *s, struct lnet_dest *d, enum lnet_pool pool);

/* ---- grant.c: memory for segments of transports ---- */
/* Bytes a reactor needs at least. */
size_t lnet_budget_least(void);
void lnet_budget_init(struct lnet_shard *s);
static inline bool lnet_budget_wanted(const struct lnet_budget *b)
{
    return b->waiting > 0 || b->grants.head;
}
/* Whether there is memory for the message of a header with a grant, as one more condition beside
 * its buffer; if not, rx->lacks says why. */
bool lnet_budget_may(struct lnet_rx *rx);
/* It no longer waits for memory: it waits for something else, or not at all. */
void lnet_budget_forget(struct lnet_rx *rx);
/* Reserves memory for rx->msg, and promises its payload. */
void lnet_budget_admit(struct lnet_rx *rx);
/* All of the message is there: what was set aside for more goes back. */
void lnet_budget_received(struct lnet_msg *msg);
/* Gives back all it has. */
void lnet_budget_release(struct lnet_msg *msg);
/* What it has is no longer or again charged to msg->dest. */
void lnet_budget_stall(struct lnet_msg *msg, bool stalled);
/* What it has moves to another next hop. */
void lnet_budget_move(struct lnet_msg *msg, struct lnet_dest *to);
/* Opens grants that wait for their base. */
void lnet_budget_serve(struct lnet_shard *s);
/* Whether receives that do not move hold more than a next hop might. */
bool lnet_budget_stalled(const struct lnet_shard *s);
/* A router buffer for all of msg's payload. It is there: msg has its place in the pool. */
void lnet_msg_buffer(struct lnet_msg *msg);

/* ---- admit.c: receive side credits ---- */
void lnet_admit_init(struct lnet_shard *s);
/* Finds a router credit and memory for a message to be forwarded, or lets it wait; then the LND
 * receives it. */
void lnet_admit(struct lnet_rx *rx);
/* The payload of a message is in (or failed): it is no longer watched. */
void lnet_admit_received(struct lnet_rx *rx);
/* A message goes another way than it was admitted for. */
void lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path);
/* Gives a forwarded message's memory and its sender's router credit back, in the order of §4.6, and
 * lets waiting ones have them. */
void lnet_release_buffer(struct lnet_msg *msg);
/* Home; with the buffer, or before it when the LND has taken the message and keeps the payload. */
void lnet_return_router_credit(struct lnet_msg *msg);
/* Lets those that wait look again: more memory or another rule. */
void lnet_wake_soon(struct lnet_shard *s);
void lnet_rx_queue_init(struct lnet_rx_queue *q);
void lnet_rx_queue_add(struct lnet_rx_queue *q, struct lnet_rx *rx);
void lnet_rx_queue_put_back(struct lnet_rx_queue *q, struct lnet_rx *rx); /* at the front */
void lnet_rx_queue_del(struct lnet_rx_queue *q, struct lnet_rx *rx);
/* Tells the LND to discard the payload; counts the drop. On rx's reactor. */
void lnet_discard(struct lnet_rx *rx, enum lnet_drop reason);

/* ---- credit.c: send side credits, on the next hop's home ---- */
int lnet_credits_init(struct lnet_shard *s, struct err *err);
void lnet_credits_fini(struct lnet_shard *s);
/* First numbers of a peer NI that is new, or was not used: from the tunables of its net. */
void lnet_peer_credits_init(const struct lnet_node *node, struct lnet_peer_ni *peer);
/* The NI's tx credits on a reactor: on it, or before the node starts. */
void lnet_ni_credits_init(struct lnet_shard *s, const struct lnet_ni *ni);
/* Takes the credits msg needs, or queues it; then the LND gets it. tx_ni, tx_peer are set. */
void lnet_credit_send(struct lnet_msg *msg);
/* The LND has accepted msg: NI credit, then peer credit, and whoever waits for them. */
void lnet_credit_return(struct lnet_msg *msg);
/* Fails what waits for credits of a peer (forwarded messages only). */
void lnet_credit_fail_peer(struct lnet_peer_ni *peer, struct lnet_result result);
/* Some of those that wait and leave by an NI that is removed; *bucket: 0 at first. True: that was
 * all. */
bool lnet_credit_fail_removed(struct lnet_shard *s, uint32_t *bucket);

/* ---- peer.c ---- */
int lnet_peers_init(struct lnet_shard *s, unsigned max, struct err *err);
void lnet_peers_fini(struct lnet_shard *s);
/* The peer NI of a NID whose home this is, if there is one; without a reference. */
struct lnet_peer_ni *lnet_peer_find_here(const struct lnet_node *node, const struct lnet_nid *nid);

/* ---- conf.c ---- */
static inline const struct lnet_conf *lnet_conf_get(const struct lnet_node *node)
{
    return __atomic_load_n(&node->conf, __ATOMIC_ACQUIRE);
}
int lnet_conf_init(struct lnet_node *node);
/* The next snapshot, with all gateways of node->gw; takes copies of the pointers. NULL: no memory.
 * Control. */
struct lnet_conf *lnet_conf_build(const struct lnet_node *node, struct lnet_route *const *routes,
                                  unsigned nroutes, struct lnet_ni *const *nis, unsigned nnis);
/* Returns when nobody uses the one before any more, which is freed. Control. */
void lnet_conf_publish(struct lnet_node *node, struct lnet_conf *conf);
void lnet_conf_free(struct lnet_conf *conf);
/* What these return lives as long as the snapshot: on a reactor until the end of its loop. */
const struct lnet_conf_net *lnet_net_find(const struct lnet_node *node, lnet_net_t net);
struct lnet_ni *lnet_ni_find(const struct lnet_node *node, const struct lnet_nid *nid);
/* Routes of a net: returns their number, *first the first. */
unsigned lnet_conf_routes(const struct lnet_conf *conf, lnet_net_t net,
                          struct lnet_route *const **first);
const struct lnet_conf_gw *lnet_conf_gateway(const struct lnet_conf *conf,
                                             const struct lnet_nid *nid);
struct lnet_gw *lnet_gw_find(const struct lnet_node *node, const struct lnet_nid *nid);

/* ---- route.c ---- */
void lnet_routes_fini(struct lnet_node *node);
bool lnet_gw_alive(const struct lnet_gw *gw);
/* Nothing on a reactor knows the gateway any more: frees it. Node home. */
void lnet_gw_leave(struct lnet_gw *gw);
/* True if messages of src may come through `via`: via has a route to src's net, or src is on via's
 * own net and via is a gateway for something. */
struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net);

/* True if there is a route to net through a gateway on `over`. */
bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over);

/* ---- routing.c (control) ---- */
void lnet_routing_init(struct lnet_node *node);
void lnet_routing_stop(struct lnet_node *node); /* the node stops */
/* Whether messages of others are forwarded. Any thread. */
static inline bool lnet_is_router(const struct lnet_node *node)
{
    return relaxed_load(&node->routing) != LNET_ROUTING_OFF;
}

/* ---- route_event.c ---- */
/* The gateway may have become alive or not, as its own home sees it (which must be the caller's).
 */
void lnet_gw_changed(struct lnet_gw *gw, const char *cause);
/* The same, as the node's home sees it. */
void lnet_gw_tell(struct lnet_gw *gw, const char *cause);
/* Some routes may have. Node home. */
void lnet_routes_tell(struct lnet_node *node);

/* ---- select.c ---- */
/* The way to dest, as of now. via: the next hop, or ANY; src: NI that must be used, or NULL. */
enum lnet_drop lnet_choose(const struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out);
/* The same for a message that will take it: the next one may take another that is as good. */
enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out);
/* What decides between candidates. Usable: CHOSEN, or why it is none; from_net: of the NI that must
 * be used, or LNET_NET_ANY. Behind: CHOSEN if it is better than the best so far, else why not. */
enum lnet_why lnet_route_usable(const struct lnet_shard *s, const struct lnet_route *r,
                                lnet_net_t from_net);
enum lnet_why lnet_route_behind(const struct lnet_shard *s, const struct lnet_route *r,
                                const struct lnet_route *best);
enum lnet_why lnet_ni_behind(const struct lnet_shard *s, const struct lnet_ni *ni,
                             const struct lnet_ni *best, const struct lnet_nid *next_hop);
/* Whether it could still be chosen: its NI is there, and the configuration is the same or at least
 * the gateway alive. */
bool lnet_path_good(const struct lnet_shard *s, const struct lnet_path *path);
void lnet_msg_set_path(struct lnet_msg *msg, const struct lnet_path *path);

/* ---- send.c ---- */
/* Sends a message whose tx_ni and next_hop are known; on msg->home. */
void lnet_transmit(struct lnet_msg *msg);
void lnet_forward(struct lnet_msg *msg);
/* A forwarded message is gone, delivered or dropped: gives all it holds back. On its shard. */
void lnet_forward_free(struct lnet_msg *msg);
void lnet_send_init(struct lnet_shard *s);
/* A message that waits for credits fails; tx_peer is set. */
void lnet_send_failed(struct lnet_msg *msg, struct lnet_result result);

/* ---- md.c (node home) ---- */
enum md_state {
    MD_FREE,
    MD_ACTIVE,
    MD_UNLINKED
};

/* NULL: there is none, or not any more. */
struct lnet_md *lnet_md_find(struct lnet_node *node, const struct lnet_handle *h);
/* Takes one operation from the threshold. */
void lnet_md_use(struct lnet_md *md);
/* An operation has ended: its owner is told, with what this does to the MD. */
void lnet_md_event(struct lnet_md *md, struct lnet_event *ev);
/* Segments of the MD's bytes [offset, offset + len), as the payload of msg. */
void lnet_md_slice(const struct lnet_md *md, uint32_t offset, uint32_t len, struct lnet_msg *msg);

/* ---- portal.c (node home) ---- */
int lnet_portals_init(struct lnet_node *node);
void lnet_portals_fini(struct lnet_node *node);
/* A received header for this node; decides what happens to its payload. */
void lnet_local_rx(struct lnet_rx *rx);
void lnet_local_rx_done(struct lnet_msg *msg); /* its payload is in the MD, or it failed */
void lnet_local_tx_done(struct lnet_msg *msg);
/* A push buffer was posted: parked PUTs may have it. */
void lnet_lazy_retry(struct lnet_node *node);
/* Drops all parked PUTs: the node stops. */
void lnet_lazy_flush(struct lnet_node *node);

/* ---- ping.c (node home unless said) ---- */
int lnet_ping_init(struct lnet_node *node);  /* control, before start */
void lnet_ping_fini(struct lnet_node *node); /* control, reactors stopped */
void lnet_ping_start(struct lnet_node *node);
void lnet_ping_stop(struct lnet_node *node);
/* The list of NIs is another: new sequence number, and everybody is told. */
void lnet_ping_changed(struct lnet_node *node);
void lnet_ping_seen(struct lnet_ni *ni); /* a ping GET came in on ni */
/* An NI has come that the snapshot lists: everybody is told. */
void lnet_ni_listed(struct lnet_ni *ni);
void lnet_ping_passing(struct lnet_shard *s, struct lnet_ni *ni); /* same, from any shard */
/* ---- monitor.c: NI status and gateway checks (node home) ---- */
void lnet_gw_check_soon(struct lnet_gw *gw); /* control: at the next tick */
void lnet_monitor_start(struct lnet_node *node);
void lnet_monitor_stop(struct lnet_node *node);
/* The node has begun or ceased to route: how its NIs' status ages is another. */
void lnet_routing_changed(struct lnet_node *node);
/* The interval is another: no check is further away. */
void lnet_checks_retime(struct lnet_node *node);
uint64_t lnet_check_interval_us(const struct lnet_node *node);
uint64_t lnet_ping_timeout_us(const struct lnet_node *node);
int lnet_gw_check_new(struct lnet_node *node, struct lnet_gw *gw); /* control */
/* The gateway leaves. True: its check has ended; else lnet_gw_leave() is called when it has. */
bool lnet_gw_check_end(struct lnet_gw *gw);
/* All its routes have been judged, or its check has ended: it may leave. */
void lnet_gw_judged(struct lnet_gw *gw);
/* ---- judge.c (node home) ---- */
int lnet_judge_new(struct lnet_gw *gw); /* control */
/* A gateway says what it is: that decides its routes, some now, others by and by. */
void lnet_judge_routes(struct lnet_gw *gw, const struct lnet_ping_info *info, bool pushed);
bool lnet_judge_busy(const struct lnet_gw *gw);
/* nid pushed its info to us itself: if it is a gateway, that decides its routes. */
void lnet_gw_pushed(struct lnet_node *node, const struct lnet_nid *nid,
                    const struct lnet_ping_info *info);

static inline bool lnet_is_home(const struct lnet_node *node)
{
    return reactor_self() == lnet_node_home(node);
}

#endif
