/* SPDX-License-Identifier: BSD-3-Clause */
/* The pools, next hop accounts and waiting headers of a shard. For the files of credit/ only. */
#ifndef MILLRACE_LNET_CREDIT_INTERNAL_H
#define MILLRACE_LNET_CREDIT_INTERNAL_H

#include "lib/lnet/credit/credit.h"
#include "lib/lnet/shard/conf.h"
#include "lib/lnet/shard/queue.h"

/* ---- accounts of next hops ---- */

/* The headers for one next hop that wait for a buffer of one pool. Linked in a ring of the pool. */
struct lnet_next_hop_wait {
    struct lnet_next_hop *account;
    struct lnet_rx_queue queue;
    struct lnet_next_hop_wait *next, *prev; /* NULL: nothing waits */
};

enum lnet_class {      /* class of a message: urgent ones may use the reserve of a pool */
    LNET_CLASS_URGENT, /* portal 0, ACK, empty PUT and REPLY */
    LNET_CLASS_BULK,
    LNET_CLASSES
};

/* Next hop account: the buffers of a shard that messages to one next hop hold. It exists while such
 * a message holds a buffer or waits for one. A gateway that is also the destination of messages has
 * two accounts. */
struct lnet_next_hop {
    struct lnet_nid nid;
    bool gateway;
    uint32_t refs; /* messages and waiting headers */
    uint32_t held[LNET_POOLS];
    uint64_t memory; /* of the budget for segments */
    struct lnet_next_hop *hash_next;
    uint32_t waiting; /* headers in all queues of wait[][] */
    struct lnet_next_hop_wait wait[LNET_POOLS][LNET_CLASSES];
    uint8_t spare[32];
};

_Static_assert(offsetof(struct lnet_next_hop, wait) == 64,
               "the fields that every message needs are in one cache line");
_Static_assert(sizeof(struct lnet_next_hop) % CPU_BLOCK == 0, "blocks of two cache lines");

/* Next hops for which headers wait, in the order in which they are served. */
struct lnet_ring {
    struct lnet_next_hop_wait look; /* head: next hops that may now be able to have a buffer */
    struct lnet_next_hop_wait rest; /* head: next hops that could not when they were looked at */
};

struct lnet_rx_ages { /* by age_next */
    struct lnet_rx *head, **tail;
};

struct lnet_router_pool {
    struct mem_pool mem; /* not for tiny, which has no memory */
    uint32_t capacity;   /* buffers there is memory for */
    uint32_t total;      /* buffers that may be used: as many as the operator configured */
    uint32_t used;
    int32_t low; /* §4.9 mincredits */
    uint32_t waiting;
    uint64_t waited;
    uint32_t stalled;     /* of used: held by stalled receives */
    uint32_t gw_held;     /* of used: for gateways, with stalled ones, which will go there */
    uint32_t end_held;    /* of used: for end nodes, without stalled ones */
    uint32_t gws_holding; /* gateways that hold one */
    struct lnet_ring ring[LNET_CLASSES];
    uint8_t turn;        /* enum lnet_class that is served next */
    bool reported_short; /* watchers know that headers wait because no buffer is free */
    bool short_seen;     /* that happened again since the last look */
};

struct lnet_grants { /* by next */
    struct lnet_grant *head, **tail;
};

/* Memory for the segments of transports, counted by truesize. grant.c */
struct lnet_budget {
    uint64_t total, used;
    uint64_t held[2]; /* of used: by messages for end nodes, and for gateways */
    uint64_t stalled; /* of held: by stalled receives */
    uint64_t low;     /* least that was free */
    /* The header that waits longest for memory, for an end node and for a gateway. */
    struct lnet_rx *first[2];
    uint32_t waiting; /* headers */
    uint64_t waited;
    struct lnet_grants grants; /* wait for their base */
    uint32_t grants_waiting;
    uint64_t copies, copy_bytes; /* messages copied since their segments found no memory */
};

struct lnet_credit_shard {
    struct lnet_shard *shard;
    struct lnet_router_pool pool[LNET_POOLS];
    struct lnet_budget budget;
    uint8_t turn; /* enum lnet_pool that is served first */
    struct lnet_next_hop *next_hops, *free_next_hops;
    void *next_hops_memory;
    struct lnet_next_hop **next_hop_hash;
    uint32_t next_hop_mask;
    struct lnet_rx_ages waiting;   /* all waiting headers, the first to expire first */
    struct lnet_rx_ages receiving; /* all messages under receive, the oldest first */
    struct reactor_timer wait_timer;
    struct reactor_timer stall_timer; /* looks for stalled receives while headers wait */
    struct reactor_timer calm_timer;  /* looks whether a shortage of buffers has ended */
    struct reactor_task wake;
    bool wake_posted;
    bool wake_all;                 /* memory or a buffer came free: every header is looked at */
    struct lnet_peer_ni *rtr_wake; /* peer NIs whose waiting headers may have a credit */
};

/* ---- pool.c: router buffers, how many and where ---- */
int lnet_pools_init(struct lnet_shard *s, struct err *err);
void lnet_pools_fini(struct lnet_shard *s);
/* Notes that a header waits because no buffer is free. Watchers get one event for each shortage. */
void lnet_pool_short(struct lnet_shard *s, enum lnet_pool pool);
static inline int32_t lnet_pool_free(const struct lnet_router_pool *p)
{
    return (int32_t)p->total - (int32_t)p->used;
}

/* ---- next_hop.c: accounts of next hops ---- */
int lnet_next_hops_init(struct lnet_shard *s, unsigned max, struct err *err);
void lnet_next_hops_fini(struct lnet_shard *s);
/* Returns the account of a next hop with a reference; creates it if it does not exist. NULL: the
 * table is full. */
struct lnet_next_hop *lnet_next_hop_get(struct lnet_shard *s, const struct lnet_nid *nid,
                                        bool gateway);
/* Does the same; hash is nid_hash() of the NID. */
struct lnet_next_hop *lnet_next_hop_get_hashed(struct lnet_shard *s, const struct lnet_nid *nid,
                                               uint32_t hash, bool gateway);
void lnet_next_hop_put(struct lnet_shard *s, struct lnet_next_hop *d);
/* Returns whether a message to d may have one more buffer of a pool. The budget is another rule. */
bool lnet_next_hop_may(const struct lnet_shard *s, const struct lnet_next_hop *d,
                       enum lnet_pool pool, enum lnet_class class);
/* Returns why it may not. */
enum lnet_drop lnet_next_hop_why(const struct lnet_shard *s, const struct lnet_next_hop *d,
                                 enum lnet_pool pool);
/* Charges a buffer to d; takes it off again. */
void lnet_next_hop_charge(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);
void lnet_next_hop_credit(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);
/* Charges a stalled buffer to the stall account instead of d; charges it to d again once its
 * receive makes progress. */
void lnet_next_hop_stall(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);
void lnet_next_hop_unstall(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);

/* ---- grant.c: memory for segments of transports ---- */
/* Returns the bytes that a reactor needs at least. */
size_t lnet_budget_least(void);
void lnet_budget_init(struct lnet_shard *s);
static inline bool lnet_budget_wanted(const struct lnet_budget *b)
{
    return b->waiting > 0 || b->grants.head;
}
/* Returns whether there is memory for the message of a header with a grant. The message needs a
 * buffer, too. If there is no memory, rx->lacks has the reason. */
bool lnet_budget_may(struct lnet_rx *rx);
/* Ends the wait of a header for memory: it waits for a buffer only, or not at all. */
void lnet_budget_forget(struct lnet_rx *rx);
/* Reserves memory for rx->msg, and promises its payload to the connection. */
void lnet_budget_admit(struct lnet_rx *rx);
/* Gives back the memory that was reserved and not used: the whole message has arrived. */
void lnet_budget_received(struct lnet_msg *msg);
/* Returns all memory of a message. */
void lnet_budget_release(struct lnet_msg *msg);
/* Charges the memory of a message to the stall account instead of msg->account, or back. */
void lnet_budget_stall(struct lnet_msg *msg, bool stalled);
/* Charges the memory of a message to another next hop. */
void lnet_budget_move(struct lnet_msg *msg, struct lnet_next_hop *to);
/* Opens grants that wait for the memory of their base. */
void lnet_budget_serve(struct lnet_shard *s);
/* Returns whether stalled receives hold more memory than a next hop may. */
bool lnet_budget_stalled(const struct lnet_shard *s);
/* Takes a router buffer for the payload of msg. One is free, since msg is counted in the pool. */
void lnet_msg_buffer(struct lnet_msg *msg);

/* ---- admit.c ---- */
/* Lets waiting headers try again soon: memory came free, or a rule changed. */
void lnet_wake_soon(struct lnet_shard *s);

#endif
