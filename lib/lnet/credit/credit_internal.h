/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of credit/ share: the pools, accounts and waiting headers of a shard. */
#ifndef MILLRACE_LNET_CREDIT_INTERNAL_H
#define MILLRACE_LNET_CREDIT_INTERNAL_H

#include "lib/lnet/credit/credit.h"
#include "lib/lnet/shard/conf.h"
#include "lib/lnet/shard/queue.h"

/* ---- accounts of next hops ---- */

/* Headers for one next hop that wait for a buffer of one pool; in a ring of the pool's. */
struct lnet_next_hop_wait {
    struct lnet_next_hop *account;
    struct lnet_rx_queue queue;
    struct lnet_next_hop_wait *next, *prev; /* NULL: nothing waits */
};

enum lnet_class {      /* who may use the reserve of a pool */
    LNET_CLASS_URGENT, /* portal 0, ACK, empty PUT and REPLY */
    LNET_CLASS_BULK,
    LNET_CLASSES
};

/* What one next hop holds of a shard's buffers. There while it holds any or somebody waits for it.
 * A gateway that is also the destination of messages has two. */
struct lnet_next_hop {
    struct lnet_nid nid;
    bool gateway;
    uint32_t refs; /* messages and waiting headers */
    uint32_t held[LNET_POOLS];
    uint64_t memory; /* of the budget for segments */
    struct lnet_next_hop *hash_next;
    uint32_t waiting; /* headers in all of wait[][] */
    struct lnet_next_hop_wait wait[LNET_POOLS][LNET_CLASSES];
    uint8_t spare[32];
};

_Static_assert(offsetof(struct lnet_next_hop, wait) == 64,
               "what is always needed lies in one line");
_Static_assert(sizeof(struct lnet_next_hop) % CPU_BLOCK == 0, "blocks of two cache lines");

/* Next hops for which headers wait, in the order of their turns. */
struct lnet_ring {
    struct lnet_next_hop_wait look; /* head: those that may have become able to go on */
    struct lnet_next_hop_wait rest; /* head: those that could not when they were looked at */
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

struct lnet_credit_shard {
    struct lnet_shard *shard;
    struct lnet_router_pool pool[LNET_POOLS];
    struct lnet_budget budget;
    uint8_t turn; /* enum lnet_pool that is served first */
    struct lnet_next_hop *next_hops, *free_next_hops;
    void *next_hops_memory;
    struct lnet_next_hop **next_hop_hash;
    uint32_t next_hop_mask;
    struct lnet_rx_ages waiting;   /* all headers that wait, the first to expire first */
    struct lnet_rx_ages receiving; /* all that are received into a buffer, the oldest first */
    struct reactor_timer wait_timer;
    struct reactor_timer stall_timer; /* looks for receives that hold what others wait for */
    struct reactor_timer calm_timer;  /* looks whether watchers can be told that some are free */
    struct reactor_task wake;
    bool wake_posted;
    bool wake_all;                 /* all that wait may have become able to go on */
    struct lnet_peer_ni *rtr_wake; /* peers whose waiting headers may go on */
};

/* ---- pool.c: router buffers, how many and where ---- */
int lnet_pools_init(struct lnet_shard *s, struct err *err);
void lnet_pools_fini(struct lnet_shard *s);
/* A header waits because no buffer is free: watchers are told once until that has ended. */
void lnet_pool_short(struct lnet_shard *s, enum lnet_pool pool);
static inline int32_t lnet_pool_free(const struct lnet_router_pool *p)
{
    return (int32_t)p->total - (int32_t)p->used;
}

/* ---- next_hop.c: accounts of next hops ---- */
int lnet_next_hops_init(struct lnet_shard *s, unsigned max, struct err *err);
void lnet_next_hops_fini(struct lnet_shard *s);
/* The account of a next hop, made if there is none, with a reference. NULL: the table is full. */
struct lnet_next_hop *lnet_next_hop_get(struct lnet_shard *s, const struct lnet_nid *nid,
                                        bool gateway);
/* The same with nid_hash() of the NID. */
struct lnet_next_hop *lnet_next_hop_get_hashed(struct lnet_shard *s, const struct lnet_nid *nid,
                                               uint32_t hash, bool gateway);
void lnet_next_hop_put(struct lnet_shard *s, struct lnet_next_hop *d);
/* Whether one more buffer of a pool may be used for d, as far as buffers go. */
bool lnet_next_hop_may(const struct lnet_shard *s, const struct lnet_next_hop *d,
                       enum lnet_pool pool, enum lnet_class class);
/* Why it may not. */
enum lnet_drop lnet_next_hop_why(const struct lnet_shard *s, const struct lnet_next_hop *d,
                                 enum lnet_pool pool);
/* One more, one less is held for d. */
void lnet_next_hop_charge(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);
void lnet_next_hop_credit(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);
/* One that is held for d stalls, or moves again: then it is d's. */
void lnet_next_hop_stall(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);
void lnet_next_hop_unstall(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool);

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
/* What it has is no longer or again charged to msg->account. */
void lnet_budget_stall(struct lnet_msg *msg, bool stalled);
/* What it has moves to another next hop. */
void lnet_budget_move(struct lnet_msg *msg, struct lnet_next_hop *to);
/* Opens grants that wait for their base. */
void lnet_budget_serve(struct lnet_shard *s);
/* Whether receives that do not move hold more than a next hop might. */
bool lnet_budget_stalled(const struct lnet_shard *s);
/* A router buffer for all of msg's payload. It is there: msg has its place in the pool. */
void lnet_msg_buffer(struct lnet_msg *msg);

/* ---- admit.c ---- */
/* Lets headers that wait try again soon: memory came free, or a rule changed. */
void lnet_wake_soon(struct lnet_shard *s);

#endif
