/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the LNet core and a network driver (LND). The core knows no device; an LND
 * knows no routing. docs/protocol/lnet-core.md §4.1.
 *
 * Threads: every connection, queue and message of a peer NI lives on that peer NI's home reactor.
 * All functions here are called there ("home"), unless marked otherwise.
 *
 * Receiving. The LND decodes a header into a struct lnet_rx that it owns (one per connection or
 * posted descriptor) and calls lnet_parse(). The core answers by calling ops->recv() exactly once,
 * now or later, and the LND ends with lnet_recv_done() exactly once. Until ops->recv() is called
 * the LND reads nothing further from that connection and gives no flow-control credit back: that
 * is the only back-pressure (§4.5).
 *
 * Some transports place payload in their own memory before the core asks for it, so not reading
 * is not enough: the window of a peer is a promise of memory. Such a connection has a struct
 * lnet_grant, and its transport limits the peer to that grant.
 *
 * Sending. The core calls ops->send() with a message that has its next hop. The LND reports
 * lnet_send_accepted() when it no longer queues the message: credits return there. It reports
 * lnet_send_done() when no device will touch its payload again, but for what is counted at the
 * buffer itself (ni->tx_refers). A message of which any byte may have reached the next hop is never
 * sent twice. A message is sent again only if it waits for a credit of the core, or if the LND
 * returns it as unsent (struct lnet_result).
 */
#ifndef MILLRACE_LND_H
#define MILLRACE_LND_H

#include "lib/base/atomic.h"
#include "lib/base/err.h"
#include "lib/lnet/event.h"
#include "lib/lnet/wire/lnet_wire.h"
#include "lib/reactor/mem.h"
#include "lib/reactor/reactor.h"

#include <assert.h>
#include <sys/queue.h>

struct lnd_show;
struct lnet_node;
struct lnet_shard;
struct lnet_ni;
struct lnet_peer_ni;
struct lnet_msg;
struct lnet_rx;
struct lnet_md;
struct lnet_gw_ni;
struct lnet_fault_held;

#define LNET_MAX_NI 200 /* NIDs a ping info may list towards a 2.17 node, §3.2 */

/* The result of a send or receive, in the words and order of §6.2. */
enum lnet_health {
    LNET_HEALTH_OK,
    LNET_HEALTH_LOCAL_INTERRUPT,
    LNET_HEALTH_LOCAL_DROPPED,
    LNET_HEALTH_LOCAL_ABORTED,
    LNET_HEALTH_LOCAL_NO_ROUTE,
    LNET_HEALTH_LOCAL_ERROR,
    LNET_HEALTH_LOCAL_TIMEOUT,
    LNET_HEALTH_REMOTE_ERROR,
    LNET_HEALTH_REMOTE_DROPPED,
    LNET_HEALTH_REMOTE_TIMEOUT,
    LNET_HEALTH_NETWORK_TIMEOUT,
    LNET_HEALTH_COUNT
};
extern const char *const lnet_health_names[LNET_HEALTH_COUNT]; /* lnetctl's; NULL for OK */

/* Result of a send or receive: why it failed (NONE = it did not) and whom that speaks against. */
struct lnet_result {
    enum lnet_drop reason;
    enum lnet_health health : 31;
    /* The send failed, and no part of the message was given to the device or the peer. Only then
     * the core may send the message another way. An LND that is not sure leaves it false. */
    bool unsent : 1;
};
_Static_assert(sizeof(struct lnet_result) == 8, "it is kept in each message");
#define LNET_RESULT_OK ((struct lnet_result){LNET_DROP_NONE, LNET_HEALTH_OK})

/* Failures that a peer NI counts, in lnetctl's order. §10.3 */
enum lnet_peer_health {
    LNET_PEER_DROPPED,
    LNET_PEER_TIMEOUT,
    LNET_PEER_ERROR,
    LNET_PEER_NETWORK_TIMEOUT,
    LNET_PEER_HEALTH_COUNTS
};

/* Payload: a list of segments and who gives them back. */
struct lnet_sgl {
    struct mem_seg *seg;
    uint32_t n;
    uint32_t bytes; /* sum of seg[].len */
};

/* ---- objects both sides see ---- */

struct lnet_tunables { /* per NI; defaults of the LND when -1. §5.1 */
    int peer_timeout;
    int peer_credits;
    int peer_buffer_credits;
    int credits;
};

#define LND_OWN_TUNABLES 16

/* Tunables of an NI that its LND acts on; -1: the LND's default. lnet-core §10.2 */
struct lnd_tunables {
    int conns_per_peer;
    int timeout; /* seconds, the LND timeout; 0: lnet_lnd_timeout() */
    int tos;
    int own[LND_OWN_TUNABLES]; /* those that not every LND has, by slot: lib/lnd/type.h */
};
#define LND_TUNABLES_DEFAULT                                                                       \
    ((struct lnd_tunables){-1, -1, -1, .own = {[0 ... LND_OWN_TUNABLES - 1] = -1}})

/* Helpers of ops->ni_set() for settings that change while an NI runs. The first merges the given
 * settings (not -1) into the present ones; the second publishes settings for reactors, which read
 * them relaxed.
 */
static inline struct lnd_tunables lnd_tunables_with(struct lnd_tunables now,
                                                    const struct lnd_tunables *set)
{
    if (set->conns_per_peer != -1)
        now.conns_per_peer = set->conns_per_peer;
    if (set->timeout != -1)
        now.timeout = set->timeout;
    if (set->tos != -1)
        now.tos = set->tos;
    return now;
}

static inline void lnd_tunables_store(struct lnd_tunables *to, const struct lnd_tunables *from)
{
    relaxed_store(&to->conns_per_peer, from->conns_per_peer);
    relaxed_store(&to->timeout, from->timeout);
    relaxed_store(&to->tos, from->tos);
}

enum lnet_ni_state {
    LNET_NI_NEW,      /* made; only its LND and the control thread know it */
    LNET_NI_STARTING, /* its LND may bring connections, but no snapshot lists it yet */
    LNET_NI_ACTIVE,   /* listed: it is chosen for messages, and its NID is this node's */
    LNET_NI_REMOVED,  /* no longer listed; its LND finishes receives and closes connections */
    LNET_NI_STOPPED,  /* its LND has stopped it; it is freed when no message points to it */
};

/* A network interface. Made by lnet_ni_add() or lnet_ni_add_live() on the control thread. It lives
 * until lnet_node_destroy(), or after its removal until its LND has stopped it and no message
 * points to it any more. Fields above the line do not change once started, but for lnd_tun: that is
 * what ops->ni_set() made it (relaxed). */
struct lnet_ni {
    struct lnet_node *node;
    const struct lnd_ops *lnd;
    void *lnd_ctx; /* what the LND was registered with: one per node */
    void *lnd_ni;  /* the LND's own, one per NI */
    struct lnet_nid nid;
    lnet_net_t net;
    unsigned index;  /* 0..LNET_MAX_NI-1, in configuration order */
    uint8_t pair;    /* its bit among the NIs of its net: lnet_ni_bit() of shard/conf.h */
    char ifname[16]; /* "" when only the NID was given */
    struct lnet_tunables tun;
    struct lnd_tunables lnd_tun;
    bool rx_take; /* the LND hands over received payload as its own segments */
    /* Frames may refer to landing memory of a message when the LND says lnet_send_done(): the
     * memory is used again when mem_held() says no. */
    bool tx_refers;
    /* ---- written on the node's home reactor only, read anywhere (relaxed) ---- */
    uint32_t status;       /* LNET_NI_UP or LNET_NI_DOWN, as published in the ping info */
    bool fatal;            /* the link or device is down */
    bool pinged;           /* a ping GET has come in on it */
    uint16_t health;       /* 0..LNET_MAX_HEALTH: health/health.h */
    uint8_t ping_count;    /* recovery pings since a message came in on it */
    bool recovering;       /* it is in the recovery queue */
    uint64_t next_ping_us; /* of these; 0: none is due */
    uint64_t heard_us;     /* last message that came in on it while it was not healthy */
    uint64_t alive_us;     /* last sign of life of its net: a PUT or a GET of any peer */
    uint64_t requests;     /* lnet_ni_requests() at the last look */
    uint32_t links_heard;  /* calls of lnet_ni_link() that have arrived */
    /* ---- written by the caller of lnet_ni_link() ---- */
    bool link_up;
    uint32_t links_told;
    /* ---- written by the control thread, read anywhere (relaxed) ---- */
    enum lnet_ni_state state;
    uint32_t priority; /* by a selection policy: shard/udsp.h */
};

/* Returns whether a snapshot lists the NI. Any thread. */
static inline bool lnet_ni_is_active(const struct lnet_ni *ni)
{
    return relaxed_load(&ni->state) == LNET_NI_ACTIVE;
}

/* A kind of credit, §5.1. now below 0: that many wait for one. */
struct lnet_credits {
    int32_t max, now, min;
    uint64_t waited; /* how often one had to wait */
};

STAILQ_HEAD(lnet_msg_queue, lnet_msg);
TAILQ_HEAD(lnet_rx_queue, lnet_rx);

/* A peer NI: an address we have connections to or want to. Home reactor only. In blocks of two
 * cache lines, what messages touch first. */
struct lnet_peer_ni {
    struct lnet_nid nid;
    uint32_t refs; /* lnet_peer_ni_get()/put(): objects that point here */
    struct lnet_peer_ni *hash_next;
    struct lnet_shard *shard;  /* of its home reactor */
    void *lnd_peer;            /* the LND's own: list of its connection sets, one per local NI */
    struct lnet_gw_ni *gw_ni;  /* if it is one of a gateway's (shard/conf.h) */
    uint64_t tx_queued_bytes;  /* of tx_queued: their payload + 72 each (lnet-core §4.5) */
    struct lnet_credits tx;    /* messages handed to the LND and not yet accepted */
    struct lnet_msg_queue txq; /* wait for a tx credit */
    uint64_t last_alive_us;    /* last time anything was received from it; 0 = never */
    uint32_t tx_queued;        /* messages for it that the LND has not accepted yet */
    bool rtr_waking;
    uint16_t health;               /* 0..LNET_MAX_HEALTH: health/health.h */
    struct lnet_peer_ni *rtr_next; /* in shard->rtr_wake */
    /* ---- */
    struct lnet_credits rtr;   /* router credits of messages from it (credit/admit.c) */
    struct lnet_rx_queue rtrq; /* wait for a router credit */
    uint32_t rtr_waiting;      /* headers in rtrq */
    uint32_t message_s;        /* when a message last came from it: keep-alives are none */
    uint64_t recv_count[LNET_MSG_TYPES];
    uint64_t send_count[LNET_MSG_TYPES];
    /* ---- */
    uint64_t drop_count[LNET_MSG_TYPES];
    uint64_t incarnation;           /* the LND's: what the peer said last, 0 = nothing yet */
    TAILQ_ENTRY(lnet_peer_ni) idle; /* in lnet_peer_shard.idle, while refs is 0 */
    uint16_t unconnected[4]; /* by pool: buffers of its messages to next hops without connection */
    uint64_t access_limits;  /* access rules: which limits hold for it, a bit each */
    uint32_t access_seen;    /* the configuration that these are of */
    uint32_t prompt_s;       /* from this second on it sends payload at once: credit/stall.c */
    uint16_t access_ni;
    bool access_denied;         /* it may not connect */
    uint32_t limit_waiting;     /* headers from it that wait for a limit */
    uint32_t limit_waited;      /* ever */
    uint32_t buffer_waits;      /* headers from it that wait for a buffer */
    uint64_t slow_until_us;     /* receives from it stop in the middle: credit/stall.c */
    uint32_t stalled;           /* receives from it that are charged to the stall account */
    uint32_t slow_hops_until_s; /* until then only what goes to quick next hops holds its credits */
    uint64_t unconnected_until_us; /* until then none of its headers waits for their share */
    /* ---- health/health.h ---- */
    uint64_t health_count[LNET_PEER_HEALTH_COUNTS];
    uint64_t next_ping_us; /* of the recovery pings; 0: none is due */
    TAILQ_ENTRY(lnet_peer_ni) health_changed, recovery;
    bool is_changed, is_recovering; /* it is in these queues of its shard */
    uint8_t ping_count;             /* recovery pings since a message came from it */
    uint8_t health_cause;           /* of the failures in health_asked */
    uint16_t health_asked;          /* failures that count if its peer has several NIs */
    bool is_unpinged;               /* in the queue `unpinged`, which `recovery` links too */
    uint8_t spare[49];
};

_Static_assert(offsetof(struct lnet_peer_ni, rtr) == 128, "blocks of two cache lines");
_Static_assert(offsetof(struct lnet_peer_ni, drop_count) == 256, "blocks of two cache lines");
_Static_assert(offsetof(struct lnet_peer_ni, health_count) == 384, "blocks of two cache lines");
_Static_assert(sizeof(struct lnet_peer_ni) == 512, "blocks of two cache lines");

#define LNET_MD_MAX_SEGS 4 /* segments of an end node's MD */

/* The way a message leaves: chosen from the configuration of a generation. */
struct lnet_path {
    struct lnet_ni *ni;
    struct lnet_nid next_hop;
    struct lnet_gw_ni *gw_ni; /* the next hop as chosen of a gateway's; NULL: it is the destination.
                               * Valid while the generation is the present one */
    uint64_t generation;
};

#define LNET_GRANT_BASE       8192u  /* bytes that the peer of an idle connection may send */
#define LNET_GRANT_BUFFER_MAX 16384u /* the largest receive buffer of a transport */

/* The window of the peer of one connection. Embedded in the LND's connection, zeroed when that
 * is made; the core's own. grant.c. */
struct lnet_grant {
    struct lnet_shard *shard; /* NULL: closed */
    bool open;                /* has its base; else it waits for it */
    uint16_t ratio;           /* memory per byte of payload as seen of late, in 1/256 */
    uint32_t buffer;          /* memory that one receive buffer of the transport takes */
    uint32_t body;            /* promised: of the message that is being received */
    uint32_t ahead;           /* promised: of what comes behind it */
    uint32_t fresh;           /* consumed since the last look */
    uint32_t charge;          /* memory that is set aside for `ahead` */
    void (*opened)(struct lnet_grant *grant);
    TAILQ_ENTRY(lnet_grant) queue; /* while it waits for its base */
};

/* A received header and what the core does with it. Embedded in the LND's connection or receive
 * descriptor, zeroed when that is made. The LND fills the first part before lnet_parse(). */
struct lnet_rx {
    struct lnet_hdr hdr;
    struct lnet_ni *ni;
    struct lnet_peer_ni *from; /* immediate sender; the LND holds a reference */
    bool rdma_get;             /* an RDMA-optimised GET (o2iblnd, kfilnd): see ops->recv() */
    struct lnet_grant *grant;  /* of its connection, or NULL */
    uint64_t progress_us;      /* when a good part of it last arrived, or ops->recv() was called */
    /* Set by an LND with ni->rx_take before lnet_recv_done(). The core calls release, on the same
     * reactor, when it is through with the segments; until then they are the core's. */
    struct lnet_sgl taken;
    void (*release)(void *owner, struct lnet_sgl *sgl);
    void *release_owner;
    /* ---- below: the core's own ---- */
    struct lnet_msg *msg; /* the message being received, NULL: payload is discarded */
    struct lnet_shard *shard;
    uint8_t wait;         /* enum lnet_rx_wait: which queue it waits in */
    uint8_t pool;         /* enum lnet_pool it needs a buffer of */
    uint8_t class;        /* enum lnet_class: may it use the reserve? */
    uint32_t turn;        /* in which it is served among those that wait for its next hop */
    uint32_t hash;        /* nid_hash() of hdr.dest_nid */
    enum lnet_drop drop;  /* why it is being discarded, NONE = it is not */
    enum lnet_drop lacks; /* DEST_SHARE, BUFFER_WAIT: waits for memory of the budget; or NONE */
    struct lnet_next_hop *account; /* its next hop's account */
    struct share_account *waiter;  /* of a PUSH that waits for a buffer, api/push.c */
    struct lnet_path path;
    TAILQ_ENTRY(lnet_rx) age; /* of those that wait for a credit or a buffer, or all that receive */
    struct reactor_timer limit;    /* ends a wait for a limit */
    struct lnet_fault_held *fault; /* that holds it: fault/held.c */
    uint64_t begun_us;             /* when ops->recv() was called; before, when it began to wait */
    uint64_t wait_until_us;
    /* When the last message received with it waited until it expired; 0 = never. An LND whose
     * messages do not follow one another as in a stream sets it to 0 before each. */
    uint64_t expired_us;
    TAILQ_ENTRY(lnet_rx) queue; /* of those that wait for the same thing */
    struct reactor_task task;
    /* For a message to this node: what msg becomes, written by the node's home. */
    struct lnet_msg *local;
};

/* A message on its way through the node. In blocks of two cache lines each, by when they are used:
 * a forwarded message is written when it comes, and looked at again when the next hop has
 * acknowledged it, long after it has left the caches. */
struct lnet_msg {
    /* ---- block 0: while it is sent and when it is through ---- */
    union {
        struct lnet_msg *lnd_next;    /* the LND's own while it has the message */
        STAILQ_ENTRY(lnet_msg) queue; /* the core's while it waits or is free */
    };
    uint64_t lnd_deadline_us;
    uint32_t lnd_sent; /* bytes of framing, header and payload gone */
    uint32_t lnd_hdr_len;
    /* for the LND that sends it */
    struct lnet_sgl payload; /* hdr.payload_len bytes; stays valid until lnet_send_done() */
    struct lnet_ni *tx_ni;
    struct lnet_peer_ni *tx_peer;
    /* from here on the core's own, but for hdr */
    uint8_t state; /* enum lnet_msg_state, shard/shard.h */
    uint8_t kind;  /* enum lnet_msg_kind */
    uint8_t pool;  /* enum lnet_pool of buffer */
    bool accepted;
    bool ni_credit;               /* holds a tx credit of tx_ni on this reactor */
    bool stalled;                 /* its buffer is charged to the stall account, not to `account` */
    bool router_credit;           /* forwarded: holds one of rx_peer's. Home */
    bool unconnected : 1;         /* counted as such in its pool and in rx_peer */
    bool quick       : 1;         /* its memory is counted as such in the budget */
    bool received    : 1;         /* forwarded: its payload is in. Home, as those beside it */
    bool seen        : 1;         /* … and a look at router credits has found it so */
    bool resent      : 1;         /* it was sent again */
    bool delayed     : 1;         /* delay rules have been evaluated */
    struct lnet_shard *home;      /* shard that allocated it and gets it back */
    struct lnet_ni *rx_ni;        /* forwarded: where it came in */
    struct lnet_peer_ni *rx_peer; /* forwarded: from whom (referenced) */
    struct lnet_next_hop *account; /* forwarded: the account its buffer is charged to */
    TAILQ_ENTRY(lnet_msg) tx;      /* messages with an LND by NI, oldest first */
    void (*release)(void *owner, struct lnet_sgl *sgl);
    void *release_owner;
    /* ---- block 1 ---- */
    uint32_t memory;     /* forwarded: of the shard's budget, for segments of the transport's */
    uint32_t truesize;   /* what the segments that it has take */
    struct lnet_hdr hdr; /* for the LND: to be encoded and sent as it is */
    void *buffer;        /* router buffer, or NULL */
    uint64_t handed_us;  /* when it was handed to the LND; before, when it began to wait */
    struct lnet_result result;
    /* ---- block 2 ---- */
    struct mem_seg segs[LNET_MD_MAX_SEGS];
    struct lnet_nid next_hop;
    struct lnet_gw_ni *next_gw_ni; /* as in struct lnet_path */
    uint64_t generation;           /* of the configuration it was chosen from */
    struct lnet_nid via;           /* answers: the gateway that delivered the request, or ANY */
    /* ---- block 3: crossing, and of local ones ---- */
    struct reactor_task task;
    struct reactor_task accept_task; /* on its way home ahead of `task` */
    struct lnet_md *md;              /* local: the MD it reads or writes */
    uint32_t md_offset, mlen;
    struct lnet_get get;         /* REPLY: what was asked, for the event */
    struct share_account *asker; /* of whose doing it is; NULL: our own */
    uint64_t committed_us;       /* local: when it began to wait for credits */
    uint8_t resends;             /* how often it was sent again */
    bool once;                   /* local: never */
    bool given_src;              /* local: by the NI that the caller gave */
    uint8_t spare[21];
};

/* Takes the first message off a queue, which is not empty. lnd_next is undefined from then on. */
static inline struct lnet_msg *lnet_msg_queue_pop(struct lnet_msg_queue *q)
{
    struct lnet_msg *msg = STAILQ_FIRST(q);

    STAILQ_REMOVE_HEAD(q, queue);
    return msg;
}

/* Empties a queue. Returns the first of its messages, which are linked by lnd_next. */
static inline struct lnet_msg *lnet_msg_queue_take(struct lnet_msg_queue *q)
{
    struct lnet_msg *list = STAILQ_FIRST(q);

    STAILQ_INIT(q);
    return list;
}

_Static_assert(offsetof(struct lnet_msg, memory) == 128, "blocks of two cache lines");
_Static_assert(offsetof(struct lnet_msg, segs) == 256, "blocks of two cache lines");
_Static_assert(offsetof(struct lnet_msg, task) == 384, "blocks of two cache lines");
_Static_assert(sizeof(struct lnet_msg) == 512, "blocks of two cache lines");

/* ---- what an LND offers ---- */

struct lnd_peer_info { /* for peer_get */
    unsigned conns[4]; /* by type: tcp: any, control, bulk in, bulk out */
    unsigned connecting;
    uint64_t bytes_in, bytes_out;
    /* On the connections that are up: bytes that the peer has taken, and bytes that it was given to
     * take and has not. An LND that cannot tell leaves both 0. */
    uint64_t taken, owed;
};

/* The result of lnd_ops.recv_abandon(). */
enum lnet_abandon {
    LNET_ABANDON_NOT,  /* The receive goes on: bytes have arrived and only were not read yet (unless
                          too_long), or a device may still be writing. */
    LNET_ABANDON_DONE, /* The LND writes no more to the segments of recv, discards the rest of the
                          payload, and then calls lnet_recv_done(), not before this has returned. */
    LNET_ABANDON_SOON, /* too_long, and the peer writes into the segments itself: the connection
                          ends for it, and the receive with it, not before this has returned. */
};

struct lnd_ops {
    const char *name;            /* "tcp" */
    uint8_t type;                /* enum lnet_lnd_type */
    const struct lnd_show *show; /* lib/lnd/show.h; NULL: it shows nothing of its own */

    bool connects; /* calls lnet_peer_ni_connected() */
    /* Peers write into the segments of recv() themselves, and may leave bytes out. */
    bool remote_writes;

    /* Checks and completes ni->tun, ni->lnd_tun (-1 = default), resolves ifname <-> nid address,
     * allocates ni->lnd_ni. Nothing is on the network yet. Control thread, may block. 0 or -errno
     * with a sentence naming the remedy. */
    int (*ni_init)(struct lnet_ni *ni, struct err *err);
    /* Begins to listen and serve. Control thread, reactors running. 0 or -errno as above. */
    int (*ni_start)(struct lnet_ni *ni, struct err *err);
    /* Changes ni->lnd_tun as far as that is possible while it runs, for the connections there are
     * or those to come; -1 = as it is. All or nothing. Control thread. 0 or -errno as above. May be
     * NULL. */
    int (*ni_set)(struct lnet_ni *ni, const struct lnd_tunables *set, struct err *err);
    /* Stops reading new messages on all connections of ni; those begun are finished. Where a device
     * takes and acknowledges messages by itself, peers get no more leave to send, and what comes
     * until they have used up theirs is received. Any number of reactors involved; done is posted
     * to the control reactor when it is so. Control thread. */
    void (*ni_quiesce)(struct lnet_ni *ni, struct reactor_task *done);
    /* Closes everything; each queued message and open receive gets its lnet_*_done first
     * (LNET_DROP_SHUTDOWN). done is posted to the control reactor afterwards, and after the answer
     * to ni_quiesce if that is still owed. Control thread. */
    void (*ni_stop)(struct lnet_ni *ni, struct reactor_task *done);
    /* Frees ni->lnd_ni. Control thread, reactors stopped or ni stopped. */
    void (*ni_fini)(struct lnet_ni *ni);

    /* Takes msg (tx_ni, tx_peer, hdr, payload are set) and reports accepted and done, possibly
     * before it returns. Home of msg->tx_peer. */
    void (*send)(struct lnet_msg *msg);
    /* The core's answer to lnet_parse(): place the first mlen bytes of the payload into segs (they
     * stay valid until done), discard the rest (all of it when mlen is 0), then lnet_recv_done().
     * On an ni with rx_take, segs may be NULL with mlen > 0: hand over own segments in rx->taken.
     * For an rx->rdma_get, segs are the requested mlen bytes: the LND sends them to the place in
     * the request, they stay valid until done, and the core sends no REPLY. rx->drop names the
     * reason if nothing matched; mlen may be 0 otherwise too. */
    void (*recv)(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen);

    /* Abandons a stalled receive whose memory is needed. May be NULL. */
    enum lnet_abandon (*recv_abandon)(struct lnet_rx *rx, bool too_long);

    /* Closes all connections to a peer; queued messages fail with `why`. */
    void (*peer_abort)(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why);
    /* Opens connections to a peer NI as a message to it would; if give_up, ends an attempt that no
     * message waits for instead. Returns whether there is a connection. Home of the peer NI. NULL:
     * the LND has no connections. */
    bool (*peer_connect)(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool give_up);
    void (*peer_info)(const struct lnet_peer_ni *peer, struct lnd_peer_info *out);
    /* The LND's last look before an idle peer is freed (refs is 0). */
    void (*peer_free)(struct lnet_peer_ni *peer);
    /* The calling reactor's table of peers is full: lets go of one that the LND holds but does not
     * use, if there is any. ctx: what the LND was registered with. May be NULL. */
    void (*peer_shrink)(void *ctx);
};

/* ---- what an LND calls, in the order of a message's life ----
 *
 * In lnd.c, but where a heading names another file. Home reactor of the peer NI, but where marked
 * otherwise.
 */

/* ---- the node and its peer NIs (lnet_peer_ni_*() in peer/peer_ni.c) ---- */

/* The reactors of this node. Any thread. */
struct reactor_env *lnet_node_env(const struct lnet_node *node);
/* Home reactor of a NID in this node. Any thread. */
struct reactor *lnet_nid_home(const struct lnet_node *node, const struct lnet_nid *nid);
/* Whether nid is 0@lo or the NID of one of the node's NIs. Any thread once started. */
bool lnet_nid_is_mine(const struct lnet_node *node, const struct lnet_nid *nid);
/* Returns the LND timeout in s that follows from transaction_timeout and retry_count, for NIs that
 * have none of their own. Any thread. §6.1 */
unsigned lnet_lnd_timeout(const struct lnet_node *node);

/* The peer NI of a NID, made if unknown; must be called on its home. NULL: table full (the caller
 * counts LNET_DROP_NO_PEER_MEMORY). The caller gets a reference. */
struct lnet_peer_ni *lnet_peer_ni_get(struct lnet_node *node, const struct lnet_nid *nid);
/* The first reference begins, the last one ends. For the next two functions only. */
void lnet_peer_ni_used(struct lnet_peer_ni *peer);
void lnet_peer_ni_unused(struct lnet_peer_ni *peer);
static inline void lnet_peer_ni_hold(struct lnet_peer_ni *peer)
{
    if (peer->refs++ == 0)
        lnet_peer_ni_used(peer);
}
static inline void lnet_peer_ni_put(struct lnet_peer_ni *peer)
{
    assert(peer->refs > 0);
    if (--peer->refs == 0)
        lnet_peer_ni_unused(peer);
}

/* ---- a connection of a transport that hands over segments (credit/grant.c) ---- */

/* Bytes of memory there are for segments of transports, over all reactors; 0 = none, then no grant
 * ever opens. Any thread. lnd.c. */
size_t lnet_segment_memory(const struct lnet_node *node);
/* Begins to promise. buffer: memory that one receive buffer takes, up to LNET_GRANT_BUFFER_MAX.
 * Until there is memory for the base grant (lnet_grant_is_open()) nothing may be read or promised;
 * opened() is called when there is, not from inside this. */
void lnet_grant_open(struct lnet_grant *grant, struct lnet_node *node, uint32_t buffer,
                     void (*opened)(struct lnet_grant *grant));
static inline bool lnet_grant_is_open(const struct lnet_grant *grant)
{
    return grant->open;
}

/* The prefix of a NID, by the lengths that the operator set. Any thread. lnd.c. */
struct lnet_nid lnet_nid_prefix(const struct lnet_node *node, const struct lnet_nid *nid);
/* Whether an interface has NIs and none of them is of this net: what comes in there is not of it.
 * Any reactor. lnd.c. */
bool lnet_is_of_other_net(const struct lnet_node *node, const char *ifname, lnet_net_t net);
/* Whether a caller's connection, with receive buffers of that size, may have a base grant. Some are
 * kept for calls of this node itself. On the reactor of the connection. credit/grant.c. */
bool lnet_grant_has_room(struct lnet_node *node, uint32_t buffer);

/* ---- callers (access/access.c; any reactor) ---- */

/* An LND asks when a connection comes in, from the NID of the caller's address, or once it knows
 * which of several NIs is called: LNET_DROP_NONE, or LNET_DROP_CONNECT_RATE if a limit is used up.
 */
enum lnet_drop lnet_may_call(const struct lnet_ni *ni, const struct lnet_nid *from);
/* And when it knows the caller's NID: LNET_DROP_NONE, or LNET_DROP_ACCESS_CONNECT by a rule. */
enum lnet_drop lnet_may_connect(const struct lnet_ni *ni, const struct lnet_nid *from);

/* ---- a header (rx.c; lnet_rx_cancel() in credit/wait.c) ---- */

/* Takes a header whose wire form was valid. LNET_DROP_NONE: ops->recv() will be called once, maybe
 * before this returns. Anything else is a protocol error: close the connection with that reason and
 * expect no recv. §4.2 */
enum lnet_drop lnet_parse(struct lnet_rx *rx);
/* The connection dies while its rx is parsed but recv has not been called. True: the core forgot
 * the rx (it was waiting for a buffer) and the LND may free it. False: recv comes, wait for it. */
bool lnet_rx_cancel(struct lnet_rx *rx);

/* ---- its payload as segments of the transport (credit/grant.c) ---- */

/* A place for up to LNET_MD_MAX_SEGS segments of the message that ops->recv() asked for. It is part
 * of the message and valid until they are released, or until lnet_rx_copy(): a message of few
 * segments needs no memory of the LND. NULL: the message is not to be forwarded. lnd.c. */
struct mem_seg *lnet_rx_segs(struct lnet_rx *rx);
/* Segments were taken for the message that ops->recv() asked for without segs; truesize is what the
 * buffers they lie in take. False: that is more than there is; lnet_rx_copy() must follow. */
bool lnet_rx_took(struct lnet_rx *rx, uint32_t bytes, uint32_t truesize);
/* Copies the segments taken so far for that message into a router buffer; the LND gives them back
 * and receives the rest into what this returns (one segment of the whole payload). At any time,
 * where it would rather not keep them. */
const struct mem_seg *lnet_rx_copy(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs);
/* Bytes have left the transport's receive queue and take no memory: skipped, copied or thrown away.
 */
void lnet_grant_consumed(struct lnet_grant *grant, uint32_t bytes);
/* Returns the window for the transport after each round of reading: the bytes beyond those
 * consumed and taken that the peer may send; it never shrinks. Sets *memory to the memory that
 * arrived bytes may take until they are consumed or taken. */
uint32_t lnet_grant_window(struct lnet_rx *rx, uint32_t *memory);

/* ---- the payload is in (rx.c) ---- */

/* The receive asked for by ops->recv() has ended; rx may be reused as soon as this returns. A
 * failed receive (connection lost) gives LNET_DROP_RX_INCOMPLETE and REMOTE_ERROR. */
void lnet_recv_done(struct lnet_rx *rx, struct lnet_result result);

/* ---- a message is sent (tx.c) ---- */

/* The LND no longer queues msg (all of it is with the transport). At most once, before done. */
void lnet_send_accepted(struct lnet_msg *msg);
/* Prefetches the memory that lnet_send_done() of a message reads. lnd.c. */
void lnet_msg_fetch(const struct lnet_msg *msg);
/* The LND is through with msg; exactly once. Implies accepted. */
void lnet_send_done(struct lnet_msg *msg, struct lnet_result result);

/* ---- a connection ends (credit/grant.c) ---- */

/* The transport has given its memory back and promises nothing more: the stream is closed. */
void lnet_grant_close(struct lnet_grant *grant);

/* ---- what happened (drops in shard/drops.c) ---- */

/* Reports that all sends to a peer NI failed, or that it came up; for gateways this decides
 * routes. The LND itself posts events of peers (lnet_node_event_post(), event.h). */
void lnet_peer_ni_notify(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool up);
/* The last connection to a peer NI is lost. Called before its messages are ended, so that those
 * that may go another way do not choose this one again; lnet_peer_ni_notify() follows. */
void lnet_peer_ni_lost(struct lnet_ni *ni, struct lnet_peer_ni *peer);
/* A set of connections to a peer NI has its first one, or has lost its last: while there are none,
 * messages to it share a small part of the router buffers. Home of the peer NI; each first one is
 * followed by a last. */
void lnet_peer_ni_connected(struct lnet_peer_ni *peer, bool is);
/* Link or address of an NI went away or came back. Always from the same reactor. §3.7 */
void lnet_ni_link(struct lnet_ni *ni, bool up);

/* Counts a refusal or drop under its name; one call per event, by the code that detects it. ni
 * and hdr may be NULL. Keeps the newest example per reason. Any reactor thread (counts in the
 * caller's shard). The core itself counts messages; an LND counts connections and refusals. */
void lnet_drop_event(struct lnet_node *node, enum lnet_drop reason, const struct lnet_ni *ni,
                     const struct lnet_nid *peer, const struct lnet_hdr *hdr);
/* The same where more is known of it: it is shown with the example, and logged. */
void lnet_drop_event_why(struct lnet_node *node, enum lnet_drop reason, const struct lnet_ni *ni,
                         const struct lnet_nid *peer, const struct lnet_hdr *hdr,
                         const struct lnet_drop_why *why);

#endif
