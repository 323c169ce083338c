/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of peers with many NIDs. A peer is a whole node. It has peer nets, each with one or
 * several peer NIs, and each peer NI is one NID of the peer. One of the NIDs is the primary NID. A
 * NID belongs to at most one peer.
 *
 * A peer exists from the first message, discovery or configuration that names one of its NIDs until
 * its last NID is removed. Discovery (ping/discover.h) changes which NIDs it has:
 * docs/protocol/lnet-core.md §3.6. The operator's configuration has precedence over discovery: the
 * NIDs, the primary NID and MULTI_RAIL of a configured peer come from the operator only.
 *
 * The table has a fixed size and takes no memory after peer_table_init(). NIDs come from the wire,
 * so they are hashed with a key. Each unconfigured peer pays for its NIDs from the account of the
 * NID that it was created for and of that NID's prefix (lib/base/share.h). A full table frees the
 * peer that has been unused for longest, and one that never answered before one that did: a PUSH is
 * no answer, for any node can send one.
 *
 * A user outside the table, such as a route, pins the NID that it names. A pinned NID has a place
 * of its own, so that a full table does not refuse the NID, and is not removed by discovery.
 *
 * Any node can list any NID. A NID is proved when it answered a ping with an info that lists
 * another proved NID of its peer. Users that send messages of others to a peer use proved NIDs, and
 * those of configured peers, only.
 *
 * One thread, the owner of the table, calls all functions.
 */
#ifndef MILLRACE_PEER_TABLE_H
#define MILLRACE_PEER_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "lib/base/share.h"
#include "lib/lnet/wire/lnet_wire.h"

/* §3.6. `peer show -v 3` prints these bits as a number. */
enum peer_state {
    PEER_MULTI_RAIL = 1 << 0,
    PEER_NO_DISCOVERY = 1 << 1,   /* discovery is off at that node, or here */
    PEER_ROUTER_ENABLED = 1 << 2, /* the node routes */
    PEER_CONFIGURED = 1 << 3,     /* by the operator */
    PEER_DISCOVERED = 1 << 4,     /* discovery completed once */
    PEER_REDISCOVER = 1 << 5,     /* the last discovery failed */
    PEER_DISCOVERING = 1 << 6,
    PEER_DATA_PRESENT = 1 << 7, /* received ping info waits to be merged */
    PEER_NIDS_UPTODATE = 1 << 8,
    PEER_PING_SENT = 1 << 9,
    PEER_PUSH_SENT = 1 << 10,
    PEER_PING_FAILED = 1 << 11,
    PEER_PUSH_FAILED = 1 << 12,
    PEER_FORCE_PING = 1 << 13,
    PEER_FORCE_PUSH = 1 << 14,
    PEER_RTR_DISCOVERY = 1 << 16,  /* the router checker's discovery */
    PEER_RTR_DISCOVERED = 1 << 17, /* the router checker's discovery completed once */
    PEER_MARK_DELETION = 1 << 18,  /* to be deleted and created again */
    PEER_LOCK_PRIMARY = 1 << 20,   /* discovery may not change the primary NID */
};

enum peer_origin {
    PEER_BY_TRAFFIC,
    PEER_BY_DISCOVERY,
    PEER_BY_CONFIG
};

struct peer_ni {
    struct lnet_nid nid;
    uint32_t status; /* LNET_NI_UP, LNET_NI_DOWN; 0: no ping info has given a status yet */
    int health;      /* LNET_MAX_HEALTH, or what the operator set; §6.1 */
    enum peer_origin origin;
    uint32_t round;     /* the merge that listed this NID last */
    unsigned pins;      /* users outside the table that name this NID */
    bool answered;      /* proved: peer_table_replied() found it to be its peer's */
    uint64_t silent_us; /* when a message of this node was not answered; 0: the last one was */
    /* path/own.c: */
    uint64_t used;        /* sequence number of the last message of this node to it */
    uint32_t policy_seen; /* the snapshot that the next two are of; 0: none */
    uint32_t priority;    /* by a selection policy, or LNET_UDSP_NONE */
    int pair;             /* index of the policy that prefers NIs of ours for it, or -1 */
    struct peer_net *net;
    TAILQ_ENTRY(peer_ni) link;
    struct peer_ni *next; /* in the bucket, or the next free one */
};

struct peer_net {
    lnet_net_t net;
    uint64_t used; /* this and the next two as in struct peer_ni */
    uint32_t policy_seen, priority;
    struct peer *peer;
    TAILQ_HEAD(, peer_ni) nis; /* never empty */
    TAILQ_ENTRY(peer_net) link;
    struct peer_net *next_free;
};

/* The memory of discovery; ping/discover.h has the functions. */
struct peer_discovery {
    int error;                          /* of the last discovery: 0 or -errno */
    uint32_t acked_seqno;               /* newest of our ping infos that the peer acknowledged */
    uint32_t sent_seqno;                /* of the PUSH that waits for its ACK */
    uint32_t sink;                      /* bytes to ask for; 0: LNET_PING_MIN_SINK */
    unsigned tries;                     /* pings in a row without usable info */
    struct lnet_nid push_to, push_from; /* of the next PUSH; ANY: the primary NID, any of ours */
    uint64_t ping_deadline_us, push_deadline_us;
};

/* Runs the discoveries of a peer; ping/discovery.c has the functions. */
struct peer_push {
    struct lnet_nid nid, local; /* the NID that the peer pushed from last, and ours */
    struct lnet_nid via;        /* the gateway that the PUSH came through, or ANY */
    struct discovery *slot;     /* NULL: no discovery goes on */
    uint32_t want;              /* bits for DISCOVER_START */
    bool ping_after;            /* new: ping it after its first discovery */
    bool queued;                /* waits for a slot, */
    bool to_answered;           /* in this one of the queues */
    uint8_t failures;           /* discoveries in a row that failed, without an ACK */
    uint64_t quiet_until_us;    /* after failures: no discovery before */
    uint64_t slow_until_us;     /* after a failure: it counts as one that does not answer */
    uint32_t drain;             /* the newest of our drains that it knows of; 0: none */
    uint64_t claimed_us;        /* when it was asked last whether it still has its NIDs */
    TAILQ_ENTRY(peer) link;
};

/* The queue that makes room in its order, the peer unused for longest first. */
enum peer_age {
    PEER_UNANSWERED,
    PEER_ANSWERED,
    PEER_KEPT, /* pinned, or configured by the operator: makes no room */
    PEER_AGES
};

struct peer {
    struct lnet_nid primary;
    uint32_t state;    /* bits of enum peer_state */
    uint32_t features; /* of the last ping info; 0: none was received */
    uint32_t seqno;    /* of the last ping info */
    unsigned nnis;
    unsigned pins; /* of its NIDs together */
    struct peer_discovery discovery;
    struct peer_push push;
    TAILQ_HEAD(, peer_net) nets; /* never empty while the table has the peer */
    bool answered;               /* sent a REPLY or an ACK since its last failure */
    enum peer_age age;           /* the queue that it is in */
    TAILQ_ENTRY(peer) by_age;
    struct share_account *account; /* NULL: created by configuration or for a pin */
    /* That it listed last, of a peer that answers and does not merely list it; or ANY. */
    struct lnet_nid claimed;
    struct peer *next_free;
};

/* A change that others have to follow. The pointers are valid during the call only. */
struct peer_event {
    enum {
        PEER_NI_ADDED,
        PEER_NI_REMOVED,
        PEER_NI_MOVED,      /* from `other` to `peer` */
        PEER_NI_STATUS,     /* old_status has the word before */
        PEER_NI_CLAIMED,    /* `peer` lists a NID that `other` keeps, or (NULL) a NID of ours */
        PEER_PRIMARY,       /* the primary NID changed */
        PEER_NO_MULTI_RAIL, /* a multi-rail peer claims to be none */
        PEER_GONE,          /* is freed; its users go to `other`, or (NULL) start again */
    } kind;
    struct peer *peer, *other;
    const struct peer_ni *ni;
    uint32_t old_status;
};

struct peer_table_opts {
    unsigned max_peers, max_nids; /* without those that are pinned */
    unsigned max_pinned;          /* NIDs */
    uint8_t prefix4, prefix6;     /* address bits that all of one source have in common */
    /* Both are called by the functions below. notify() may not call back into the table. */
    bool (*is_own)(void *arg, const struct lnet_nid *nid); /* a NID of this node */
    void (*notify)(void *arg, const struct peer_event *event);
    void *arg;
};

struct peer_table {
    struct peer_table_opts opts;
    struct peer *peers, *free_peers;
    struct peer_net *nets, *free_nets;
    struct peer_ni *nis, *free_nis, **hash;
    uint32_t hash_mask;
    unsigned highest; /* of peers[], so many have ever been used; one with nnis 0 is free */
    unsigned npeers, nnis, nnis_unanswered;
    unsigned npinned_peers, npinned_nis;
    unsigned nrefused; /* NIDs for which there was no room or no share */
    uint32_t round;
    TAILQ_HEAD(peer_list, peer) by_age[PEER_AGES]; /* unused for longest first */
    struct share share;
};

/* Returns the bytes of heap that a table takes. Any thread. */
size_t peer_table_bytes(const struct peer_table_opts *opts);
/* Returns 0 or -ENOMEM; peer_table_fini() is due after both. */
int peer_table_init(struct peer_table *t, const struct peer_table_opts *opts);
void peer_table_fini(struct peer_table *t);

/* Returns the peer NI or the peer of a NID, or NULL. */
struct peer_ni *peer_table_find_ni(const struct peer_table *t, const struct lnet_nid *nid);
struct peer *peer_table_find(const struct peer_table *t, const struct lnet_nid *nid);
/* Returns the peer of a NID that traffic named, and creates it with this one NID if there is none.
 * The peer becomes the most recently used one. NULL: a NID that no peer can have, or no room. */
struct peer *peer_table_get(struct peer_table *t, const struct lnet_nid *nid);
/* The same of a NID that pushes. A peer that listed it may have made that up: if that peer failed,
 * or the NID did not answer as its NID and lists others. It loses the NID then, which is not left
 * alone for that peer's failures. own: the pushed info if it came from the node itself, else NULL.
 */
struct peer *peer_table_get_pusher(struct peer_table *t, const struct lnet_nid *nid,
                                   const struct lnet_ping_info *own);
/* Tells the table whether the peer answers: it sent a REPLY or an ACK, or did not send one in time.
 */
void peer_table_answers(struct peer_table *t, struct peer *p, bool answers);

/* Returns whether a NID is proved, or named by a user. */
static inline bool peer_ni_proved(const struct peer_ni *ni)
{
    return ni->answered || ni->pins > 0;
}
/* Returns whether the only sign that the peer has a NID is its list. */
static inline bool peer_ni_merely_listed(const struct peer_ni *ni)
{
    return !ni->answered && ni->origin == PEER_BY_DISCOVERY &&
           !nid_same(&ni->nid, &ni->net->peer->push.nid);
}
/* Makes a peer of its own of a NID that is not pinned. Returns it; NULL: no room. */
struct peer *peer_table_split(struct peer_table *t, const struct lnet_nid *nid);
/* Tells the table that a REPLY with this info came from a NID. If the info lists no other proved or
 * pinned NID of its peer, although there is one, another node has the NID: the NID becomes a peer
 * of its own. Else it is proved, and stays so unless its peer is pinned. Returns its peer, NULL:
 * the table does not have the NID any more. */
struct peer *peer_table_replied(struct peer_table *t, const struct lnet_nid *nid,
                                const struct lnet_ping_info *info);

/* Tells the table since when a NID does not answer this node; 0: it answered. */
void peer_table_silent(struct peer_table *t, const struct lnet_nid *nid, uint64_t since_us);

/* Pins a NID; creates its peer if there is none. A NID that is not proved leaves the peer that
 * lists it. Returns the peer; NULL: a NID that no peer can have, or max_pinned NIDs are pinned. */
struct peer *peer_table_pin(struct peer_table *t, const struct lnet_nid *nid);
/* Ends one pin. With its last pin goes a peer that sent no ping info, and one for which no other
 * makes room. */
void peer_table_unpin(struct peer_table *t, const struct lnet_nid *nid);

/* The operator's `peer add`: makes the peer of a primary NID a configured one and gives it `nid`,
 * which may be the primary NID. Takes the NIDs from unconfigured peers. state: PEER_MULTI_RAIL and
 * PEER_LOCK_PRIMARY or 0. Returns 0; -EINVAL: a NID that no peer can have; -EEXIST: one of the NIDs
 * is another configured peer's; -EPERM: a second NID without multi-rail; -ENOSPC: no room. A
 * gateway is refused by the caller (§11). */
int peer_table_add(struct peer_table *t, const struct lnet_nid *primary, const struct lnet_nid *nid,
                   uint32_t state);
/* Removes a NID; one that routes pin gets a peer of its own. Returns 0; -ENOENT: the peer of that
 * primary NID does not have it; -EBUSY: it is the primary NID and not the only one. */
int peer_table_del_nid(struct peer_table *t, const struct lnet_nid *primary,
                       const struct lnet_nid *nid);
/* Removes a peer and its NIDs. */
void peer_table_del(struct peer_table *t, struct peer *p);
/* Makes a new peer of p, with one NID: nid, or another one if that is not its or not pinned as the
 * other is. Further pinned NIDs become peers of their own. */
void peer_table_recreate(struct peer_table *t, struct peer *p, const struct lnet_nid *nid);

/* Sets the state bits of a peer from the feature bits of its valid ping info (§3.6 "Reply
 * handling"), and takes its sequence number. A lower number is accepted: the node restarted.
 * discovery: discovery is on at this node. */
void peer_table_hear(struct peer_table *t, struct peer *p, const struct lnet_ping_info *info,
                     bool discovery);
/* Merges a peer's valid ping info, of which peer_table_hear() has been told (§3.6 "Merge"). An info
 * that is longer than this node takes is truncated, and no NID is removed for it. No NID
 * is taken from a peer that answered, unless that peer lists a NID of this one, too: else it
 * notifies PEER_NI_CLAIMED. Returns the peer that has the data now: it is another one if the
 * primary NID was that peer's, and then p may have been freed (PEER_GONE). */
struct peer *peer_table_merge(struct peer_table *t, struct peer *p,
                              const struct lnet_ping_info *info, bool discovery);

#endif
