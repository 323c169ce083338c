/* SPDX-License-Identifier: BSD-3-Clause */
/* The pools, next hop accounts and waiting headers of a shard. For the files of credit/ only. */
#ifndef MILLRACE_LNET_CREDIT_INTERNAL_H
#define MILLRACE_LNET_CREDIT_INTERNAL_H

#include "lib/lnet/credit/credit.h"
#include "lib/lnet/shard/conf.h"

/* ---- accounts of next hops ---- */

/* The headers for one next hop that wait for a buffer of one pool. Linked in a ring of the pool. */
struct lnet_next_hop_wait {
    struct lnet_rx_queue queue;
    TAILQ_ENTRY(lnet_next_hop_wait) ring; /* while the queue is not empty */
    uint32_t turn;                        /* of the header that was served last */
    bool rests    : 1;                    /* in which list of the ring it is */
    uint32_t held : 31;                   /* LNET_CLASS_QUICK: buffers of such messages */
};

enum lnet_class {      /* class of a message: what it leaves of a pool for others */
    LNET_CLASS_URGENT, /* portal 0, ACK, empty PUT and REPLY */
    LNET_CLASS_QUICK,  /* its next hop is known to take such messages soon */
    LNET_CLASS_BULK,
    LNET_CLASS_SLOW, /* with payload, from a sender whose receives stop: has the stall account */
    LNET_CLASSES
};

#define QUICK_PART  16    /* of a pool, or of the budget, is left to messages for quick next hops */
#define LNET_QUICKS 16384 /* rows of a table; next hops that meet in one count as one */

/* How soon a next hop takes messages. quick.c */
struct lnet_quick {
    uint32_t paid_s; /* second at which it has made up for all that it had for long */
    uint32_t soon;   /* messages since then that it did not have for long, up to a few */
};

#define LNET_LOOKS 64 /* next hops of a shard that are looked at together */

/* How much a next hop takes while others wait. On its way to the home of the next hop while `away`.
 * next_hop_stall.c */
struct lnet_next_hop_look {
    struct reactor_task task;
    struct lnet_shard *shard;
    uint64_t us;     /* when it began */
    uint64_t taken;  /* lnd_peer_info.taken then; … */
    uint64_t target; /* … and at which the next hop takes something; 0: it owes nothing */
    uint64_t heard;  /* messages that had come from its net then */
    bool away;
    bool again;   /* `target` counts */
    bool cut;     /* it may lose its connections, … */
    bool guarded; /* … if its net was heard from since */
    bool idle;    /* result: it took nothing since the look before */
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
    uint32_t hash;    /* nid_hash() */
    struct lnet_next_hop_wait wait[LNET_POOLS][LNET_CLASSES];
    struct lnet_next_hop_look look;
    uint64_t moved_us[LNET_POOLS]; /* when it got its first buffer, or last gave one back */
    bool vain[LNET_POOLS]; /* since it took a message, one has waited for it until it expired */
    bool idle; /* counted in lnet_credit_shard.idle: a look found that it takes nothing */
    uint8_t spare[7 - LNET_POOLS];
};

_Static_assert(offsetof(struct lnet_next_hop, wait) == 64,
               "the fields that every message needs are in one cache line");
_Static_assert(sizeof(struct lnet_next_hop) % CPU_BLOCK == 0, "blocks of two cache lines");

TAILQ_HEAD(lnet_next_hop_waits, lnet_next_hop_wait);

/* Next hops for which headers wait, in the order in which they are served. */
struct lnet_ring {
    struct lnet_next_hop_waits look; /* next hops that may now be able to have a buffer */
    struct lnet_next_hop_waits rest; /* next hops that could not when they were looked at */
};

TAILQ_HEAD(lnet_rx_ages, lnet_rx);

/* Whose payload a router buffer has: up to `own` that of a peer NI, from there up to `old` that of
 * others. */
struct lnet_router_buffer {
    uint32_t owner; /* nid_hash() */
    uint32_t own, old;
};

struct lnet_router_pool {
    struct mem_pool mem;                /* not for tiny, which has no memory */
    struct lnet_router_buffer *content; /* by place in the pool */
    uint32_t capacity;                  /* buffers there is memory for */
    uint32_t total; /* buffers that may be used: as many as the operator configured */
    uint32_t used;
    int32_t low; /* §4.9 mincredits */
    uint32_t waiting;
    uint64_t waited;
    uint32_t stalled;     /* of used: held by stalled receives */
    uint32_t gw_held;     /* of used: for gateways, with stalled ones, which will go there */
    uint32_t end_held;    /* of used: for end nodes, without stalled ones */
    uint32_t gws_holding; /* gateways that hold one */
    uint32_t unconnected; /* of used: for next hops that had no connection when they were taken */
    struct lnet_ring ring[LNET_CLASSES];
    uint8_t turn;        /* enum lnet_class that is served next */
    bool reported_short; /* watchers know that headers wait because no buffer is free */
    bool short_seen;     /* that happened again since the last look */
};

/* Memory for the segments of transports, counted by truesize. grant.c */
struct lnet_budget {
    uint64_t total, used;
    uint64_t held[2];     /* of used: by messages for end nodes, and for gateways */
    uint64_t stalled;     /* of held: by stalled receives */
    uint64_t unconnected; /* of held: for next hops that had no connection */
    uint64_t quick;       /* of held: for next hops that were known to be quick */
    uint64_t low;         /* least that was free */
    /* The header that waits longest for memory, for an end node and for a gateway. */
    struct lnet_rx *first[2];
    uint32_t waiting; /* headers */
    uint64_t waited;
    TAILQ_HEAD(, lnet_grant) grants;  /* wait for their base */
    uint32_t grants_waiting, ngrants; /* ngrants: open ones too */
    uint64_t copies, copy_bytes;      /* messages copied since their segments found no memory */
};

struct lnet_credit_shard {
    struct lnet_shard *shard;
    struct lnet_router_pool pool[LNET_POOLS];
    struct lnet_budget budget;
    uint8_t turn; /* enum lnet_pool that is served first */
    struct lnet_next_hop *next_hops, *free_next_hops;
    void *next_hops_memory;
    struct lnet_rx_ages waiting;   /* all waiting headers, the first to expire first */
    struct lnet_rx_ages receiving; /* all messages under receive, the oldest first */
    struct reactor_timer wait_timer;
    struct reactor_timer stall_timer; /* looks for what has stalled while headers wait */
    uint32_t look_at;                 /* descriptor of a message: next_hop_stall.c goes on there */
    uint32_t looks;                   /* accounts on their way */
    uint32_t idle;          /* next hops that took nothing, and gave no buffer back since */
    uint64_t credits_us;    /* last look at router credits */
    uint64_t slow_until_us; /* the latest of all peer NIs: no sender is slow after it */
    struct reactor_timer calm_timer; /* looks whether a shortage of buffers has ended */
    struct reactor_task wake;
    bool wake_posted;
    bool wake_all;                 /* memory or a buffer came free: every header is looked at */
    struct lnet_peer_ni *rtr_wake; /* peer NIs whose waiting headers may have a credit */
    struct lnet_quick quick[LNET_POOLS][LNET_QUICKS]; /* by nid_hash(); last, as it is large */
};

/* ---- pool.c: router buffers, how many and where ---- */
/* Takes a router buffer for the payload of msg. One is free, since msg is counted in the pool.
 * Where the sender's device may write to it and need not, it has no payload of other peer NIs. */
void lnet_msg_buffer(struct lnet_msg *msg);
int lnet_pools_init(struct lnet_shard *s, struct err *err);
void lnet_pools_fini(struct lnet_shard *s);
/* Notes that a header waits because no buffer is free. Watchers get one event for each shortage. */
void lnet_pool_short(struct lnet_shard *s, enum lnet_pool pool);
static inline int32_t lnet_pool_free(const struct lnet_router_pool *p)
{
    return (int32_t)p->total - (int32_t)p->used;
}

/* Updates the low-water mark of a pool: one more buffer is used or waited for. */
static inline void lnet_pool_note_low(struct lnet_router_pool *p)
{
    int32_t low = lnet_pool_free(p) - (int32_t)p->waiting;

    if (low < p->low)
        relaxed_store(&p->low, low);
}

/* ---- admit.c: accounts of next hops, and admission ---- */
/* Returns the account of a next hop with a reference; creates it if it does not exist. hash is
 * nid_hash() of the NID. NULL: the table is full. */
struct lnet_next_hop *lnet_next_hop_get(struct lnet_shard *s, const struct lnet_nid *nid,
                                        uint32_t hash, bool gateway);
static inline struct lnet_next_hop *lnet_next_hop_of(struct lnet_shard *s,
                                                     const struct lnet_path *path)
{
    const struct lnet_nid *nid = path->gw_ni ? &path->gw_ni->account : &path->next_hop;

    return lnet_next_hop_get(s, nid, nid_hash(nid), path->gw_ni != NULL);
}
void lnet_next_hop_put(struct lnet_shard *s, struct lnet_next_hop *d);
/* Charges the buffer of a message to d; takes it off again. */
void lnet_next_hop_charge(struct lnet_next_hop *d, const struct lnet_msg *msg);
void lnet_next_hop_credit(struct lnet_next_hop *d, const struct lnet_msg *msg);
/* The class of a header by what is known of its sender and its next hop now. */
enum lnet_class lnet_class_of(const struct lnet_rx *rx);
/* Returns the buffers of a pool that messages of a class leave to others. */
int32_t lnet_pool_aside(const struct lnet_shard *s, enum lnet_pool pool, enum lnet_class class);
/* Returns why a header may not have a buffer. */
enum lnet_drop lnet_next_hop_why(const struct lnet_rx *rx);
/* Whether a header waits for the share of next hops without a connection: buffers of others that
 * come free are no use to it. */
bool lnet_waits_for_unconnected(const struct lnet_rx *rx);
/* Returns whether the pool has a buffer for a header, and the budget memory for its segments. */
bool lnet_may_admit(struct lnet_rx *rx);
/* Returns whether admitting this header delays no earlier one: it needs a resource that no earlier
 * header waits for. While a wake-up is posted, earlier headers may be able to go on; then this one
 * waits behind them. */
bool lnet_may_go_now(struct lnet_rx *rx);
/* Takes a buffer for the message and lets the LND receive its payload. */
void lnet_admit_now(struct lnet_rx *rx);

/* ---- quick.c ---- */
/* Whether the next hop of a header is known to take such messages soon. */
bool lnet_next_hop_quick(const struct lnet_rx *rx);
/* A message is through with its next hop: learns how long that took. */
void lnet_quick_learn(const struct lnet_msg *msg);

/* ---- next_hop_stall.c ---- */
/* Looks whether next hops that hold what others wait for take anything; ends the connections of
 * those that do not. While headers wait. */
void lnet_next_hops_look(struct lnet_shard *s);
/* The receive of a message has ended: gives its router credit back, if it is known that its next
 * hop will not take it soon. */
void lnet_credit_early(struct lnet_msg *msg);
/* Gives back router credits of messages that their next hops have had for long, where headers of
 * their sender wait for one. */
void lnet_credits_look(struct lnet_shard *s);
/* A next hop gave a buffer back or is gone: it is not known to take nothing any more. */
static inline void lnet_next_hop_moves(struct lnet_shard *s, struct lnet_next_hop *d)
{
    s->credit->idle -= d->idle;
    d->idle = false;
}

/* ---- wait.c: headers that wait ---- */
void lnet_wait_init(struct lnet_credit_shard *c);
/* Lets a new header wait, or drops it behind an expired one. */
void lnet_wait(struct lnet_rx *rx, enum lnet_rx_wait what);
/* Why a header that waits for a buffer does. */
enum lnet_drop lnet_buffer_why(const struct lnet_rx *rx);
/* Whether a header that waits is not to wait on, since its next hop is not connected. */
bool lnet_connects_in_vain(struct lnet_rx *rx);
/* Ends the wait of a header that is not admitted, and gives back what it holds. */
void lnet_wait_leave(struct lnet_rx *rx);
/* Moves a header into the queue of its account, or out of it. */
void lnet_buffer_wait(struct lnet_rx *rx);
void lnet_buffer_wait_ends(struct lnet_rx *rx);
/* Lets waiting headers try again soon: memory came free, or a rule changed. */
void lnet_wake_soon(struct lnet_shard *s);
/* Wakes the headers that can have a router credit of a peer NI soon. */
void lnet_wake_credited(struct lnet_peer_ni *peer);
static inline struct lnet_next_hop_wait *lnet_wait_of(const struct lnet_rx *rx)
{
    return &rx->account->wait[rx->pool][rx->class];
}
static inline bool lnet_rx_waits(const struct lnet_rx *rx)
{
    return rx->wait == LNET_RX_WAIT_CREDIT || rx->wait == LNET_RX_WAIT_BUFFER ||
           rx->wait == LNET_RX_WAIT_LIMIT || rx->wait == LNET_RX_WAIT_DELAY;
}
/* Returns whether a header that waits for a router credit can have one. */
static inline bool lnet_has_credited(const struct lnet_peer_ni *peer)
{
    return (int64_t)peer->rtr_waiting + min(peer->rtr.now, 0) > 0;
}

static inline void lnet_give_router_credit(struct lnet_peer_ni *peer)
{
    peer->rtr.now++;
    if (lnet_has_credited(peer))
        lnet_wake_credited(peer);
}

/* ---- stall.c: stalled receives ---- */
void lnet_stall_init(struct lnet_credit_shard *c);
/* Whether receives from a peer NI have stopped in the middle not long ago. */
static inline bool lnet_sender_slow(const struct lnet_peer_ni *from, uint64_t now)
{
    return from->shard->credit->slow_until_us > now && from->slow_until_us > now;
}
/* Whether a message with payload from this sender is expected to come in soon. */
static inline bool lnet_sender_prompt(const struct lnet_rx *rx)
{
    return rx->hdr.payload_len == 0 || rx->from->gw_ni ||
           rx->from->prompt_s <= (uint32_t)(reactor_now_us() / 1000000);
}
/* Whether stalled receives hold more than a next hop may; or as much, while a header waits for a
 * place among them. */
bool lnet_too_many_stalled(const struct lnet_shard *s, enum lnet_pool pool);
/* Learns from a receive that has ended, or goes on. */
void lnet_sender_learn(struct lnet_rx *rx, uint64_t now);
/* Looks for stalled receives from now on, until no header waits for a buffer. */
void lnet_stall_watch(struct lnet_shard *s);
/* Charges the buffer and memory of a message to the stall account instead of its next hop; charges
 * them to the next hop again once its receive makes progress. */
void lnet_set_stalled(struct lnet_msg *msg, bool stalled);
/* The same for a message that was stalled, when it is received or its connection has ended. */
void lnet_stalled_ends(struct lnet_rx *rx, bool whole);

/* ---- grant.c: memory for segments of transports ---- */
/* Returns the bytes that a reactor needs at least. */
size_t lnet_budget_least(void);
void lnet_budget_init(struct lnet_shard *s);
static inline bool lnet_budget_wanted(const struct lnet_budget *b)
{
    return b->waiting > 0 || !TAILQ_EMPTY(&b->grants);
}
/* Returns whether the message of a header takes memory of the budget. */
static inline bool lnet_needs_budget(const struct lnet_rx *rx)
{
    return rx->grant && rx->grant->shard && rx->hdr.payload_len > 0;
}
/* Returns whether there is memory for such a message. The message needs a buffer, too. If there is
 * no memory, rx->lacks has the reason. */
bool lnet_budget_may(struct lnet_rx *rx);
/* Ends the wait of a header for memory: it waits for a buffer only, or not at all. */
void lnet_budget_forget(struct lnet_rx *rx);
/* Reserves memory for rx->msg, and promises its payload to the connection. */
void lnet_budget_admit(struct lnet_rx *rx);
/* Gives back the memory that was reserved and that no segment of the message takes: all of them
 * have arrived, or were given back (msg->truesize is 0). */
void lnet_budget_settle(struct lnet_msg *msg);
/* Charges the memory of a message to the stall account instead of msg->account, or back. */
void lnet_budget_stall(struct lnet_msg *msg, bool stalled);
/* Charges the memory of a message to another next hop. */
void lnet_budget_move(struct lnet_msg *msg, struct lnet_next_hop *to);
/* Opens grants that wait for the memory of their base. */
void lnet_budget_serve(struct lnet_shard *s);
/* Returns whether stalled receives hold more memory than a next hop may. */
bool lnet_budget_stalled(const struct lnet_shard *s);

#endif
