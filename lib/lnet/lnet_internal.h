/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of lib/lnet share. A node is cut into shards, one per reactor (and one for the
 * counters of the control thread); a shard is touched by its reactor only, except that counters are
 * read anywhere with relaxed loads.
 */
#ifndef MILLRACE_LNET_INTERNAL_H
#define MILLRACE_LNET_INTERNAL_H

#include "lib/lnet/lnet.h"

#define LNET_MAX_GATEWAYS 1024
#define LNET_MAX_LNDS     8
#define LNET_MAX_NETS     LNET_MAX_NI
#define LNET_MD_BUCKETS   4096u
#define LNET_ASKERS       1024u

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Single-writer values that other threads read. */
#define shared_set(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define shared_get(p)    __atomic_load_n((p), __ATOMIC_RELAXED)
#define count_add(p, n)  shared_set((p), *(p) + (n))

enum lnet_msg_state {
    LNET_MSG_FREE,      /* on its shard's free list */
    LNET_MSG_RECEIVING, /* the ingress LND writes its payload; owner: that LND, on msg->home */
    LNET_MSG_ROUTING,   /* the core looks for its next hop, on msg->home */
    LNET_MSG_CROSSING,  /* in a mailbox to the next hop's home, or on its way back; no owner */
    LNET_MSG_WAIT_PEER, /* in the next hop's txq, on its home */
    LNET_MSG_WAIT_NI,   /* in the NI's queue there; holds a peer credit */
    LNET_MSG_SENDING,   /* has its credits. Owner: the egress LND, on the next hop's home */
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
    struct lnet_dest_wait wait[LNET_POOLS][LNET_CLASSES];
    struct lnet_dest *hash_next;
};

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
    uint8_t turn; /* enum lnet_class that is served next */
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

struct lnet_shard {
    struct lnet_node *node;
    struct reactor *reactor; /* NULL: the control thread's shard, counters only */
    unsigned index;
    /* messages */
    struct lnet_msg *msgs, *free_msgs;
    unsigned total_msgs, used_msgs, local_msgs, max_local;
    struct lnet_router_pool pool[LNET_POOLS];
    struct lnet_budget budget;
    uint8_t turn; /* enum lnet_pool that is served first */
    struct lnet_dest *dests, *free_dests;
    struct lnet_dest **dest_hash;
    uint32_t dest_mask;
    struct lnet_rx_ages waiting;   /* all headers that wait, the first to expire first */
    struct lnet_rx_ages receiving; /* all that are received into a buffer, the oldest first */
    struct reactor_timer wait_timer;
    struct reactor_timer stall_timer; /* looks for receives that hold what others wait for */
    struct reactor_task wake;
    bool wake_posted;
    bool wake_all;                 /* all that wait may have become able to go on */
    struct lnet_peer_ni *rtr_wake; /* peers whose waiting headers may go on */
    /* sending */
    struct lnet_tx_queue *tq;    /* [LNET_MAX_NI] */
    struct lnet_msg_queue ready; /* have all credits */
    bool handing;                /* lnet_hand_ready() is on the stack */
    struct reactor_timer overdue_timer;
    /* peers */
    struct lnet_peer_ni *peers, *free_peers;
    struct lnet_peer_ni **hash;
    uint32_t hash_mask, npeers;
    struct lnet_peer_ni *idle_head, *idle_tail; /* refs == 0, oldest first */
    /* selection */
    uint64_t *gw_seq; /* [LNET_MAX_GATEWAYS] last use of each gateway by this shard */
    uint64_t *ni_seq; /* [LNET_MAX_NI] */
    uint64_t seq;     /* 32 bits would wrap within the hour */
    struct lnet_pinged_mail pinged;
    /* counters */
    uint64_t stats[LNET_STAT_COUNT];
    uint64_t drops[LNET_DROP_COUNT];
    struct lnet_drop_slot drop_slots[LNET_DROP_COUNT];
    struct lnet_ni_stats ni_stats[LNET_MAX_NI];
};

/* A gateway: kept for the node's life, reused when a route names it again. Each dynamic field has
 * one writer. */
struct lnet_gw {
    struct lnet_node *node;
    struct lnet_nid nid;
    unsigned index;
    uint32_t routes; /* control: how many routes use it */
    uint32_t wanted; /* control: counts requests for a check soon */
    struct reactor_task bind;
    /* node home */
    bool ping_down;
    uint64_t ping_down_us;
    struct lnet_gw_check *check;
    /* home of the gateway's NID */
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
};

/* What the operator configured, as the data path sees it: immutable, published by pointer. */
struct lnet_conf {
    uint64_t generation;
    unsigned ngws; /* gateways with routes */
    unsigned nroutes;
    uint32_t mask;   /* of first[] */
    uint32_t *first; /* hash of net -> index + 1 of its first route; routes of a net adjoin */
    struct lnet_route **route;
};

struct lnet_net_state { /* by net, configuration order */
    lnet_net_t net;
    unsigned nni;
    unsigned ni[LNET_MAX_NI];
    bool removed;      /* control; with all its NIs */
    uint64_t alive_us; /* node home: last ping GET of anybody on this net */
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
    struct lnet_ni *ni[LNET_MAX_NI]; /* fixed once started */
    unsigned nnis;
    struct lnet_net_state *net[LNET_MAX_NETS];
    unsigned nnets;
    bool started;
    bool stopping;
    struct lnet_conf *conf; /* atomic: release by control, acquire by reactors */
    struct lnet_gw *gw[LNET_MAX_GATEWAYS];
    unsigned ngws; /* atomic */
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
    /* control, while stopping */
    struct lnet_stop *stop;
    struct lnet_net_del *net_del; /* control, while a net is being removed */
};

/* ---- node.c ---- */
/* The net that was being removed is gone: a node that stops has waited for it. Control. */
void lnet_stop_net_gone(struct lnet_node *node);

/* ---- shard.c: messages, counters ---- */
struct lnet_shard *lnet_shard_self(const struct lnet_node *node);
int lnet_shard_create(struct lnet_node *node, unsigned index, char *err, size_t errlen);
void lnet_shard_destroy(struct lnet_shard *s);
struct lnet_msg *lnet_msg_alloc(struct lnet_shard *s, enum lnet_msg_kind kind);
void lnet_msg_free(struct lnet_msg *msg);
/* A message is gone: counts reason, example, drop_count, drop_length, NI and peer counters. */
void lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *ni,
                       struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                       const struct lnet_hdr *hdr);

/* ---- pool.c: router buffers, how many and where ---- */
unsigned lnet_local_msgs(const struct lnet_node_opts *opts);
unsigned lnet_peers_per_shard(const struct lnet_node_opts *opts, unsigned reactors);
int lnet_pools_init(struct lnet_shard *s, char *err, size_t errlen);
void lnet_pools_fini(struct lnet_shard *s);
static inline int32_t lnet_pool_free(const struct lnet_router_pool *p)
{
    return (int32_t)p->total - (int32_t)p->used;
}

/* ---- dest.c: accounts of next hops ---- */
int lnet_dests_init(struct lnet_shard *s, unsigned max, char *err, size_t errlen);
void lnet_dests_fini(struct lnet_shard *s);
/* The account of a next hop, made if there is none, with a reference. NULL: the table is full. */
struct lnet_dest *lnet_dest_get(struct lnet_shard *s, const struct lnet_nid *nid, bool gateway);
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
/* Lets those that wait look again: more memory or another rule. */
void lnet_wake_soon(struct lnet_shard *s);
void lnet_rx_queue_init(struct lnet_rx_queue *q);
void lnet_rx_queue_add(struct lnet_rx_queue *q, struct lnet_rx *rx);
void lnet_rx_queue_put_back(struct lnet_rx_queue *q, struct lnet_rx *rx); /* at the front */
void lnet_rx_queue_del(struct lnet_rx_queue *q, struct lnet_rx *rx);
/* Tells the LND to discard the payload; counts the drop. On rx's reactor. */
void lnet_discard(struct lnet_rx *rx, enum lnet_drop reason);

/* ---- credit.c: send side credits, on the next hop's home ---- */
int lnet_credits_init(struct lnet_shard *s, char *err, size_t errlen);
void lnet_credits_fini(struct lnet_shard *s);
/* First numbers of a new peer NI, from the tunables of its net. */
void lnet_peer_credits_init(const struct lnet_node *node, struct lnet_peer_ni *peer);
/* The NI's tx credits on each reactor; before the node starts. */
void lnet_ni_credits_init(struct lnet_node *node, const struct lnet_ni *ni);
/* Takes the credits msg needs, or queues it; then the LND gets it. tx_ni, tx_peer are set. */
void lnet_credit_send(struct lnet_msg *msg);
/* The LND has accepted msg: NI credit, then peer credit, and whoever waits for them. */
void lnet_credit_return(struct lnet_msg *msg);
/* Fails what waits for credits: of a peer (forwarded messages only), or for an NI. */
void lnet_credit_fail_peer(struct lnet_peer_ni *peer, struct lnet_result result);
void lnet_credit_fail_ni(struct lnet_shard *s, const struct lnet_ni *ni, struct lnet_result result);

/* ---- peer.c ---- */
int lnet_peers_init(struct lnet_shard *s, unsigned max, char *err, size_t errlen);
void lnet_peers_fini(struct lnet_shard *s);

/* ---- route.c ---- */
static inline const struct lnet_conf *lnet_conf_get(const struct lnet_node *node)
{
    return __atomic_load_n(&node->conf, __ATOMIC_ACQUIRE);
}
int lnet_conf_init(struct lnet_node *node);
void lnet_conf_fini(struct lnet_node *node);
/* Routes of a net: returns their number, *first the first. */
unsigned lnet_conf_routes(const struct lnet_conf *conf, lnet_net_t net,
                          struct lnet_route *const **first);
bool lnet_gw_alive(const struct lnet_gw *gw);
struct lnet_gw *lnet_gw_find(const struct lnet_node *node, const struct lnet_nid *nid);
/* True if messages of src may come through `via`: via has a route to src's net, or src is on via's
 * own net and via is a gateway for something. */
struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net);

/* True if there is a route to net through a gateway on `over`. */
bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over);

/* ---- select.c ---- */
struct lnet_net_state *lnet_net_find(const struct lnet_node *node, lnet_net_t net);
/* The way to dest. via: the next hop, or ANY; src: NI that must be used, or NULL. */
enum lnet_drop lnet_select(struct lnet_shard *s, const struct lnet_nid *dest,
                           const struct lnet_nid *via, struct lnet_ni *src, struct lnet_path *out);
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
/* A message that waits for credits fails; tx_peer is set. */
void lnet_send_failed(struct lnet_msg *msg, struct lnet_result result);

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
void lnet_ping_seen(struct lnet_node *node, unsigned ni);         /* a ping GET came in on ni */
void lnet_ping_passing(struct lnet_shard *s, struct lnet_ni *ni); /* same, from any shard */
/* ---- monitor.c: NI status and gateway checks (node home) ---- */
void lnet_gw_check_soon(struct lnet_gw *gw); /* control: at the next tick */
void lnet_monitor_start(struct lnet_node *node);
void lnet_monitor_stop(struct lnet_node *node);
uint64_t lnet_check_interval_us(const struct lnet_node *node);
uint64_t lnet_ping_timeout_us(const struct lnet_node *node);
int lnet_gw_check_new(struct lnet_node *node, struct lnet_gw *gw); /* control */
/* nid pushed its info to us itself: if it is a gateway, that decides its routes. */
void lnet_gw_pushed(struct lnet_node *node, const struct lnet_nid *nid,
                    const struct lnet_ping_info *info);

static inline bool lnet_is_home(const struct lnet_node *node)
{
    return reactor_self() == lnet_node_home(node);
}

#endif
