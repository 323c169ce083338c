/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LNet for programs: a node with its nets, NIs and routes, its Put/Get API and what can be observed
 * of it. A router is a node with routing enabled.
 *
 * Threads: "control" functions are called on the control thread; "home" functions on the node's
 * home reactor (reactor 0), which owns all that concerns the node as a whole: ping info, NI status,
 * MDs and MEs. Callbacks come on the thread their comment names.
 */
#ifndef MILLRACE_LNET_H
#define MILLRACE_LNET_H

#include "lib/base/err.h"
#include "lib/lnet/lnd.h"
#include "lib/lnet/wire/nid_range.h"

enum lnet_pool { /* router buffers by payload: none, up to 4 KiB, up to 1 MiB. §4.9 */
    LNET_POOL_TINY,
    LNET_POOL_SMALL,
    LNET_POOL_LARGE,
    LNET_POOLS
};
#define LNET_SMALL_BUFFER 4096u /* bytes; a large one is a MEM_LANDING_SLOT */

/* ---- node (control) ---- */

enum lnet_source_check {
    LNET_SOURCE_NET,    /* a foreign source NID needs a route to its net over the ingress net */
    LNET_SOURCE_STRICT, /* that route must be through the sender itself */
    LNET_SOURCE_OFF,    /* as the kernel: any source NID is forwarded */
};

/* Settings of the kernel for routes; all 0 = its defaults. */
struct lnet_route_rules {
    bool drop_asym_route;  /* of messages for this node: §4.2 row 13 */
    bool ignore_far_side;  /* avoid_asym_router_failure=0: §3.8 row 4 */
    bool check_before_use; /* check_routers_before_use: a new route is down until an answer */
};

struct lnet_node_opts {
    struct reactor_env *env;
    bool routing; /* forward messages of others */
    /* Router buffers, totals over all reactors; 0 = 2048/16384/1024 (§4.9), or with `memory` as
     * many as fit into it. Each reactor has at least LNET_POOL_MIN of each kind. */
    unsigned tiny, small, large;
    size_t memory; /* bytes for small and large buffers; 0 = what the counts take */
    /* Bytes for the segments of transports that hand over their own, by truesize, over all
     * reactors; 0 = there is no such transport. */
    size_t segments;
    unsigned egress_share; /* %, 1..100: of the free buffers, what one next hop may hold; 0 = 50 */
    unsigned max_peers;    /* peer NIs over all reactors; 0 = 16384 */
    /* Bits that the addresses of a prefix have in common, IPv4 and IPv6: who has the same prefix
     * also has one share together of what neighbours share; 0 = 32, 64. */
    unsigned prefix4, prefix6;
    unsigned check_interval; /* s, alive_router_check_interval; 0 = 60 */
    unsigned ping_timeout;   /* s, router_ping_timeout; 0 = 50 */
    unsigned max_interfaces; /* NIDs taken of a peer's ping info; 0 = LNET_MAX_NI */
    unsigned buffer_wait;    /* s a message may wait for a router buffer, 1..12; 0 = 10 */
    unsigned local_msgs;     /* descriptors for messages of this node itself; 0 = 4096 */
    unsigned guard;          /* rules of wire/guard.h that are on: bits 1 << enum lnet_guard_rule */
    enum lnet_source_check source_check;
    struct lnet_route_rules rules;
};

/* Allocates the node, its pools and tables; reactors exist but need not run. */
int lnet_node_create(const struct lnet_node_opts *opts, struct lnet_node **out, struct err *err);
#define LNET_POOL_MIN 2 /* of each kind per reactor: one for gateways, one for destinations */

/* Memory of a node with these options. */
struct lnet_memory {
    unsigned buffers[LNET_POOLS]; /* totals it starts with */
    unsigned most[LNET_POOLS];    /* totals up to which they can be raised at run time */
    size_t landing;               /* bytes of EAL memory: large and small buffers */
    size_t segments;              /* bytes of transports' own memory that are promised and held */
    size_t tables;                /* bytes of heap: message descriptors, peers, accounts */
};
/* The least bytes of `segments` there may be, if there are any. Any thread. */
size_t lnet_segments_least(unsigned reactors);
/* For how many connections so many bytes are enough: what each may always send is set aside for as
 * long as it lives, and for one beyond another gives way. Any thread. */
unsigned lnet_segments_conns(size_t segments, unsigned reactors);
/* Any thread. 0, or -ENOMEM with a sentence that says how many buffers would fit. */
int lnet_memory_plan(const struct lnet_node_opts *opts, unsigned reactors, struct lnet_memory *out,
                     struct err *err);
/* Sets the numbers of router buffers, totals over all reactors; 0 = default, -1 = as it is.
 * Surplus buffers are removed when they return. Control, node started. -EINVAL, or -ENOMEM with
 * the number that would fit; then nothing has changed. */
int lnet_pools_resize(struct lnet_node *node, const int totals[LNET_POOLS], struct err *err);
struct lnet_admission {
    unsigned egress_share; /* % */
    unsigned buffer_wait;  /* s */
    bool set_guard;        /* the guard is changed too */
    unsigned guard;        /* as struct lnet_node_opts has it */
};
void lnet_admission_get(const struct lnet_node *node, struct lnet_admission *out);
/* Changes the settings at run time; 0 = as it is. Headers that already wait keep their time.
 * Control. -EINVAL. */
int lnet_admission_set(struct lnet_node *node, const struct lnet_admission *set, struct err *err);

/* Access rules, access/access.h. */
enum lnet_access_kind {
    LNET_ACCESS_CONNECT, /* `from` may connect to an NI with a NID of `to`, or not */
    LNET_ACCESS_FORWARD, /* messages of source `from` to destination `to` are forwarded, or not */
    LNET_ACCESS_LIMIT,   /* rates of the peer NIs `from` that are connected to an NI of `to` */
};
enum lnet_access_per {
    LNET_ACCESS_PER_NID,
    LNET_ACCESS_PER_PREFIX,
    LNET_ACCESS_PER_ALL
};
#define LNET_ACCESS_NAME   32
#define LNET_ACCESS_RULES  256
#define LNET_ACCESS_LIMITS 64 /* of these */
struct lnet_access_rule {
    char name[LNET_ACCESS_NAME];
    enum lnet_access_kind kind;
    bool allow;               /* not of a limit */
    struct nid_list from, to; /* the caller's */
    enum lnet_access_per per; /* who shares a bucket */
    uint64_t rate[3];         /* messages, bytes of payload, connects per second; 0 = no limit */
    unsigned burst_ms;        /* what a bucket holds, as the time in which it fills */
};
/* Puts these rules in place of those there are; they hold from the next message or connection on.
 * Buckets begin full; counters go on with the name of a rule. At most LNET_ACCESS_RULES. Control.
 * -ENOMEM. */
int lnet_access_set(struct lnet_node *node, const struct lnet_access_rule *rules, unsigned n,
                    struct err *err);
struct lnet_access_row {
    char name[LNET_ACCESS_NAME];
    enum lnet_access_kind kind;
    uint64_t refused, waited; /* connections or messages */
};
/* Control. Returns the number of all: rules about connecting, forwarding, limits. */
unsigned lnet_access_rows(const struct lnet_node *node, struct lnet_access_row *rows, unsigned max);

/* User defined selection policies, shard/udsp.h; docs/protocol/lnet-core.md §8. */
#define LNET_UDSPS         256        /* a multiple of 64 */
#define LNET_UDSP_NONE     UINT32_MAX /* no policy sets the priority */
#define LNET_UDSP_GATEWAYS 1024       /* as many as there may be with routes */
/* An expression of §1.5: nets, or NIDs of these nets. */
struct lnet_udsp_nids {
    bool given;
    bool addresses; /* NIDs: those of the nets that are of `range`, whose net does not matter */
    uint8_t type;   /* of the nets, enum lnet_lnd_type */
    unsigned nnumbers;
    struct nid_part number[NID_RANGE_PARTS]; /* of the nets */
    struct nid_range range;
};
/* The kind follows from what is given, §8.1: src or dst has a priority; src and dst, or dst and
 * rte, prefer NIs or gateways. Another combination matches nothing. */
struct lnet_udsp {
    struct lnet_udsp_nids src, dst, rte;
    uint32_t priority; /* lower is better */
};
/* Puts these policies in place of those there are. The lowest index wins. They hold from the next
 * message on, and for nets, NIs and peer NIs that come later. At most LNET_UDSPS. Control. -ENOMEM.
 */
int lnet_udsp_set(struct lnet_node *node, const struct lnet_udsp *rules, unsigned n,
                  struct err *err);
/* The word of the policies about an NI or a peer NI. §8.3. */
struct lnet_udsp_info {
    uint32_t net_priority, nid_priority; /* LNET_UDSP_NONE: not set */
    unsigned nsources, ngateways;        /* preferred: NIs of ours, and gateways */
    struct lnet_nid source[LNET_MAX_NI], gateway[LNET_UDSP_GATEWAYS];
};
/* ours: the NID of an NI of this node. Control. */
void lnet_udsp_info(const struct lnet_node *node, const struct lnet_nid *nid, bool ours,
                    struct lnet_udsp_info *out);

/* Fault injection, fault/fault.h; docs/protocol/lnet-core.md §9.1. */
enum lnet_fault_kind {
    LNET_FAULT_DROP,
    LNET_FAULT_DELAY
};
#define LNET_FAULT_RULES  64
#define LNET_FAULT_TYPES  0xfu   /* ACK, PUT, GET, REPLY: 1 << enum lnet_msg_type */
#define LNET_FAULT_HEALTH 0x7feu /* 1 << enum lnet_health, without OK */
struct lnet_fault_nids {
    bool any;
    struct nid_range range;
    char text[LNET_NIDSTR_SIZE]; /* as it is shown; equal texts are equal NIDs */
};
struct lnet_fault_rule {
    enum lnet_fault_kind kind;
    struct lnet_fault_nids src, dst; /* of the header */
    struct lnet_fault_nids local;    /* NI that the message came in by; drops at arrival only */
    uint64_t portals;                /* 0: all messages; else PUTs and GETs of these */
    uint32_t types;                  /* LNET_FAULT_TYPES; 0: all */
    uint32_t rate;                   /* one message in so many; or … */
    uint32_t interval;               /* … in so many seconds */
    bool random;      /* with an interval: each message with probability ½ instead */
    bool drop_all;    /* all messages, at arrival */
    uint32_t health;  /* LNET_FAULT_HEALTH: fails at send with one of these. 0: drops at arrival */
    uint32_t latency; /* of a delay rule, s */
};
struct lnet_fault_row {
    struct lnet_fault_rule rule;
    uint64_t count;                   /* messages that matched */
    uint64_t affected;                /* of these, dropped or delayed */
    uint64_t by_type[LNET_MSG_TYPES]; /* the same by type */
    uint32_t held;                    /* messages that it delays now */
};
/* Adds a rule in front of the others. Control. -EINVAL, with where: the parameter of `fault_add`;
 * -ENOSPC, -ENOMEM, -ESHUTDOWN. */
int lnet_fault_add(struct lnet_node *node, const struct lnet_fault_rule *rule, struct err *err);
/* Deletes the rules of a kind with these sources and destinations; ANY stands for all. Messages
 * that they delay go on at once. Control. Returns how many rules there were, or -ENOENT, -ENOMEM.
 */
int lnet_fault_del(struct lnet_node *node, enum lnet_fault_kind kind,
                   const struct lnet_fault_nids *src, const struct lnet_fault_nids *dst,
                   struct err *err);
/* Sets the counters of all rules of a kind to 0, and begins their rates and intervals anew.
 * Control.
 */
void lnet_fault_reset(struct lnet_node *node, enum lnet_fault_kind kind);
/* Returns the number of rules; writes up to max of them, the newest first. Control. */
unsigned lnet_fault_rows(const struct lnet_node *node, struct lnet_fault_row *rows, unsigned max);

/* Makes NIs of the LND's type possible; ctx reaches it as ni->lnd_ctx and stays the caller's. */
int lnet_lnd_register(struct lnet_node *node, const struct lnd_ops *ops, void *ctx);
/* Returns the LND of a net type, with what it was registered with; NULL: there is none. */
const struct lnd_ops *lnet_lnd_of(const struct lnet_node *node, uint8_t type, void **ctx);
/* Starts all NIs; reactors must be running (or be stepped by the caller). After it each running
 * reactor serves them: who calls then is heard. 0 or -errno. */
int lnet_node_start(struct lnet_node *node, struct err *err);
/* Stops in order. No new messages are read; messages in flight and partly received ones get up to
 * drain_s seconds in all. Then NIs stop and the rest is dropped as LNET_DROP_SHUTDOWN.
 * done(arg) runs on the control thread. */
void lnet_node_stop(struct lnet_node *node, unsigned drain_s, void (*done)(void *arg), void *arg);
/* Closes the remaining connections and ends unanswered calls with -ESHUTDOWN. Call after reactors
 * were stopped and drained; the node may have stopped in order or not. Another
 * reactor_env_drain() delivers the results. */
void lnet_node_end(struct lnet_node *node);
/* After lnet_node_end() and a drain, or before any reactor ran. */
void lnet_node_destroy(struct lnet_node *node);
struct reactor *lnet_node_home(const struct lnet_node *node);

struct lnet_ni_conf {
    lnet_net_t net;
    struct lnet_nid nid;      /* ANY: derived from ifname */
    char ifname[16];          /* "" when the NID is given */
    struct lnet_tunables tun; /* -1 = default */
    struct lnd_tunables lnd_tun;
};
/* Before lnet_node_start(). -EINVAL, -EEXIST, -EOPNOTSUPP (no LND for the net), … with a sentence.
 */
int lnet_ni_add(struct lnet_node *node, const struct lnet_ni_conf *conf, struct lnet_ni **out,
                struct err *err);
/* Indices of NIs that are gone stay unused: lnet_ni_at() returns NULL for them. */
unsigned lnet_ni_count(const struct lnet_node *node);
struct lnet_ni *lnet_ni_at(const struct lnet_node *node, unsigned index);

#define LNET_HOPS_UNDEFINED (-1)
struct lnet_route_conf {
    lnet_net_t net;
    struct lnet_nid gateway;
    int hops;          /* 1..255 or LNET_HOPS_UNDEFINED */
    unsigned priority; /* lower is better */
};
/* At any time. Errors as §11 "Route add rules": -EINVAL, -EEXIST, -EHOSTUNREACH, with a sentence.
 */
int lnet_route_add(struct lnet_node *node, const struct lnet_route_conf *conf, struct err *err);

/* ---- the running node changes (control; node/live.c, route/route.c) ----
 *
 * An asynchronous change ends with done(arg, rc, err) on the control thread: rc 0, or -errno with
 * err, which is valid during the call. If the function itself returns an error, with a
 * sentence, done is not called and nothing has changed. Only one such change of NIs runs at a time:
 * -EBUSY. Other peers, connections and messages are not affected. */
typedef void (*lnet_done_fn)(void *arg, int rc, const struct err *err);

/* Adds an NI to a started node: it listens, is chosen and listed in the ping info when done. If it
 * cannot be started nothing of it is left. Errors as lnet_ni_add(), and -EUSERS (there are routes
 * to its net), -EAGAIN (all indices are in use, some by NIs that are gone but for messages in
 * flight). Its index may be one that an NI which is gone had. */
int lnet_ni_add_live(struct lnet_node *node, const struct lnet_ni_conf *conf, lnet_done_fn done,
                     void *arg, struct err *err);
/* Removes an NI; its net goes with the last one. Messages that peers have begun to send are
 * received, for two seconds at most. Then connections close, queued messages are dropped as
 * LNET_DROP_NI_REMOVED, and the ping info no longer lists the NI. -ENOENT. */
int lnet_ni_del(struct lnet_node *node, const struct lnet_nid *nid, lnet_done_fn done, void *arg,
                struct err *err);
/* Changes what can change without a restart of the NI; -1 = as it is. Connections there are keep
 * their number; their timeout is the new one. -ENOENT, -EINVAL. */
int lnet_ni_set(struct lnet_node *node, const struct lnet_nid *nid, const struct lnd_tunables *tun,
                struct err *err);

/* Several routes at once: published together, or with an error (as lnet_route_add(); -ENOENT for a
 * route that is not there) not at all. A net and gateway in both lists is a route whose hops or
 * priority change; it keeps its state. bad (may be NULL): index of the entry the error is about,
 * those of del first. */
int lnet_routes_change(struct lnet_node *node, const struct lnet_route_conf *del, unsigned ndel,
                       const struct lnet_route_conf *add, unsigned nadd, unsigned *bad,
                       struct err *err);

/* A change of the peers that the operator configured (`lnetctl peer add`, `peer del`). */
enum lnet_peer_op_kind {
    LNET_PEER_ADD, /* the peer gets the NID; with its primary NID the peer is made */
    LNET_PEER_DEL, /* the peer loses the NID; with its primary NID the peer is removed */
    LNET_PEER_SET, /* multi_rail and lock_primary change; nid is the primary NID */
};
struct lnet_peer_op {
    enum lnet_peer_op_kind kind;
    struct lnet_nid primary, nid;
    bool multi_rail, lock_primary;         /* of the peer; LNET_PEER_DEL: as they were */
    bool was_multi_rail, was_lock_primary; /* LNET_PEER_SET */
};
/* Makes the changes in order, all or none. undo: takes them back in reverse order. A configured
 * peer takes its NIDs from discovered peers. A peer that is gone need not be removed. Errors:
 * -EINVAL, no peer can have the NID; -EEXIST, another configured peer has the NID; -EPERM, a second
 * NID without multi_rail; -EBUSY, a gateway would lose its NID; -ENOSPC; -ENOMEM. */
int lnet_peers_change(struct lnet_node *node, const struct lnet_peer_op *ops, unsigned n, bool undo,
                      lnet_done_fn done, void *arg, struct err *err);
/* `lnetctl peer set` of a peer NI, or (ANY) of all peers of the table: health up to
 * LNET_MAX_HEALTH, and bits of §3.6 but for what is under way. A value of -1 changes nothing.
 * Returns 0, -ERANGE or -ENOMEM; done may get -ENOSPC: the table has no room for the NID. */
int lnet_peer_set(struct lnet_node *node, const struct lnet_nid *nid, int health, int64_t state,
                  lnet_done_fn done, void *arg, struct err *err);

enum lnet_routing { /* numbers of `lnetctl routing show`, docs/protocol/lnet-core.md §3.9, §10.4 */
    LNET_ROUTING_OFF,
    LNET_ROUTING_ON,
    LNET_ROUTING_STOPPING,
    LNET_ROUTING_STARTING,
};
enum lnet_routing lnet_routing_get(const struct lnet_node *node);
/* Starts or stops forwarding; no error if the state is the same already. Messages in flight are
 * delivered. A start forwards at once and publishes it after the time in which all peers have
 * pinged. A stop publishes it at once and goes on for that time, and until no buffer is in use
 * (at most three times as long). A start during a stop cancels the stop. -EBUSY: the node stops. */
int lnet_routing_set(struct lnet_node *node, bool on, struct err *err);

struct lnet_timing {
    unsigned check_interval, ping_timeout; /* s */
    unsigned max_interfaces;               /* NIDs taken of a peer's ping info, §3.2 */
    enum lnet_source_check source_check;
    struct lnet_route_rules rules;
};
/* At once, `ignore_far_side` with the next answer of each gateway, `check_before_use` for routes
 * that are added. A number of 0 = as it is, the rest is always taken. -EINVAL. */
int lnet_timing_set(struct lnet_node *node, const struct lnet_timing *set, struct err *err);
/* Control. */
void lnet_timing_get(const struct lnet_node *node, struct lnet_timing *out);

/* Rules of health, docs/protocol/lnet-core.md §6. */
struct lnet_health_rules {
    unsigned sensitivity;         /* step of health, 0..LNET_MAX_HEALTH; 0: no health */
    unsigned retry_count;         /* resends of a message; 0 if sensitivity is 0 */
    unsigned transaction_timeout; /* s; above retry_count. Messages have it as their deadline */
    unsigned recovery_limit;      /* s since the last sign of life of a peer NI; 0: no limit */
    unsigned max_interval;        /* s, between recovery pings */
    unsigned response_tracking;   /* of our own: 1 GETs, 2 PUTs with ACK, 3 both; 0 none */
};
#define LNET_HEALTH_RULES ((struct lnet_health_rules){100, 2, 150, 0, 900, 3}) /* the defaults */
/* Sets all of them, for what happens from now on. Control. -EINVAL: a value out of its range. */
int lnet_health_set(struct lnet_node *node, const struct lnet_health_rules *rules, struct err *err);
/* `lnetctl net set --health` of an NI. Control. done comes later. -ENOENT, -ERANGE, -ENOMEM. */
int lnet_ni_health_set(struct lnet_node *node, const struct lnet_nid *nid, int health,
                       lnet_done_fn done, void *arg, struct err *err);

/* Lists what is in recovery (`lnetctl debug recovery`): NIs if local, else peer NIs. n: of the
 * NIDs, at most LNET_RECOVERY_MAX; total: of all. fn runs once, on the control thread. 0 or
 * -ENOMEM. */
#define LNET_RECOVERY_MAX 1024
typedef void (*lnet_recovery_fn)(void *arg, const struct lnet_nid *nids, unsigned n,
                                 unsigned total);
int lnet_recovery_get(struct lnet_node *node, bool local, lnet_recovery_fn fn, void *arg);

/* A peer NI whose health is below LNET_MAX_HEALTH. */
struct lnet_unhealthy_peer {
    struct lnet_nid nid;
    uint16_t health;
    bool recovering;       /* it is pinged until it is healthy */
    bool gateway;          /* a gateway has it */
    unsigned ping_count;   /* recovery pings, and */
    uint64_t next_ping_us; /* when the next one is due; 0: none */
    uint64_t count[LNET_PEER_HEALTH_COUNTS];
};
#define LNET_UNHEALTHY_MAX 100
struct lnet_unhealthy {
    unsigned recovering, unpinged; /* all of them */
    unsigned n;                    /* rows */
    struct lnet_unhealthy_peer row[LNET_UNHEALTHY_MAX];
};
/* Counts the peer NIs that are not healthy, and lists some. fn runs once, on the control thread;
 * the list is valid until it returns. Control. 0 or -ENOMEM. */
typedef void (*lnet_unhealthy_fn)(void *arg, const struct lnet_unhealthy *list);
int lnet_unhealthy_get(struct lnet_node *node, lnet_unhealthy_fn fn, void *arg);

/* Turns the discovery of peers on or off, §3.5; it is on after lnet_node_create(). The ping info
 * says so at once. Multi-rail peers get it in a PUSH when discovery is turned off, and then this
 * node begins no discovery and learns no NIDs from PUSHes. -ENOMEM. */
int lnet_discovery_set(struct lnet_node *node, bool on, struct err *err);

/* Begins or ends a drain of the node. During a drain the ping info has RTE_DISABLED and all NIs
 * DOWN; each multi-rail peer gets it in a PUSH at once. Nodes that have another gateway then choose
 * that one. Forwarding goes on. DOWN alone would not do: each message of ours makes our NI UP again
 * at a kernel node (§4.2 row 15). -EBUSY: the node stops; -ENOMEM. */
int lnet_drain_set(struct lnet_node *node, bool on, struct err *err);
/* Returns the number of forwarded messages in the node, and of headers that wait for a buffer. */
unsigned lnet_in_flight(const struct lnet_node *node);

/* ---- observation (control) ---- */

struct lnet_route_row {
    struct lnet_route_conf conf;
    bool up;
    bool single_hop; /* a ping of the gateway has shown the net, §10.4 */
    int health;      /* of the gateway's peer NI that is worst */
};
/* Returns true when each gateway has been checked once. The result does not matter. */
bool lnet_gateways_checked(const struct lnet_node *node);
unsigned lnet_route_rows(const struct lnet_node *node, struct lnet_route_row *rows, unsigned max);

enum lnet_stat {
#define STAT(sym, name) LNET_STAT_##sym,
#include "lib/lnet/stats.def"
#undef STAT
    LNET_STAT_COUNT
};
const char *lnet_stat_name(enum lnet_stat stat);
void lnet_stats_get(const struct lnet_node *node, uint64_t out[LNET_STAT_COUNT]);
/* `lnetctl stats reset`: counts of the node, its NIs and peers begin again at 0 (numbers in use,
 * such as msgs_alloc, do not). Counters are not written by others than their owners: what is shown
 * is less than what was there. Asynchronous for those of peers. Control. */
void lnet_stats_reset(struct lnet_node *node);
void lnet_drops_get(const struct lnet_node *node, uint64_t out[LNET_DROP_COUNT]);

/* The newest event of a reason, if any was seen. */
struct lnet_drop_example {
    bool seen;
    uint64_t when_us; /* reactor_now_us() clock */
    bool has_peer, has_hdr;
    struct lnet_nid peer, src, dest;
    uint32_t type, payload_len;
    int ni; /* index, -1 = none */
    struct lnet_drop_why why;
};
void lnet_drop_example_get(const struct lnet_node *node, enum lnet_drop reason,
                           struct lnet_drop_example *out);

struct lnet_ni_stats {
    uint64_t sent[LNET_MSG_TYPES], received[LNET_MSG_TYPES], dropped[LNET_MSG_TYPES];
    uint64_t health[LNET_HEALTH_COUNT]; /* failures by status: those that are the NI's, §6.2 */
};
void lnet_ni_stats_get(const struct lnet_node *node, unsigned ni, struct lnet_ni_stats *out);

struct lnet_pool_stats {
    uint32_t total;
    int32_t free;     /* below 0: more are in use than there shall be, after shrinking */
    int32_t low;      /* lowest of free minus waiting since the last resize */
    uint32_t waiting; /* headers */
    uint64_t waited;
};
void lnet_pool_stats_get(const struct lnet_node *node, unsigned reactor, enum lnet_pool pool,
                         struct lnet_pool_stats *out);

struct lnet_segment_stats { /* bytes, by truesize */
    uint64_t total;
    uint64_t free;           /* neither promised nor held */
    uint64_t low;            /* least that was free */
    uint64_t held;           /* of messages: there, or reserved for what is still to come of them */
    uint32_t waiting;        /* headers that wait for memory */
    uint64_t waited;         /* ever */
    uint32_t grants_waiting; /* connections that may not send anything yet */
    uint64_t
        payload_copies; /* messages whose segments were copied, as there was no memory for them */
    uint64_t payload_copy_bytes;
};
void lnet_segment_stats_get(const struct lnet_node *node, unsigned reactor,
                            struct lnet_segment_stats *out);

/* Sums an NI's tx credits over all reactors. min is the sum of each reactor's lowest number, so a
 * fresh NI has min == max. */
void lnet_ni_credits_get(const struct lnet_node *node, unsigned ni, struct lnet_credits *out,
                         uint32_t *waiting);

struct lnet_peer_ni_row {
    struct lnet_nid nid;
    unsigned reactor;
    uint32_t refs;
    struct lnet_credits tx, rtr;
    uint32_t tx_waiting, rtr_waiting, limit_waiting;
    uint64_t limit_waited;
    bool up; /* has a connection */
    uint64_t last_alive_us;
    uint64_t send_count[LNET_MSG_TYPES], recv_count[LNET_MSG_TYPES], drop_count[LNET_MSG_TYPES];
    uint64_t health_count[LNET_PEER_HEALTH_COUNTS];
    int health;
    unsigned ping_count;   /* recovery pings, and */
    uint64_t next_ping_us; /* when the next one is due; 0: none */
    uint32_t tx_queued;
    uint64_t tx_queued_bytes;
    struct lnd_peer_info lnd;
};
/* Where a page of peers begins; all 0 = the first. Peers that come or go between two pages may be
 * missed or not, those that stay are seen exactly once. */
struct lnet_peer_ni_cursor {
    uint32_t reactor, slot;
    bool end; /* out: there are no more */
};
typedef void (*lnet_peer_ni_page_fn)(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                                     const struct lnet_peer_ni_cursor *next);
/* Collects up to max rows from a place on, LNET_PEER_BURST at a time from each reactor. fn runs
 * once, on the control thread. 0, -ENOMEM, or -EINVAL: max is not 1 to LNET_PEER_PAGE_MAX, or from
 * is not a place where a page of this node can begin. */
#define LNET_PEER_BURST    4
#define LNET_PEER_PAGE_MAX 4096
int lnet_peer_ni_page(struct lnet_node *node, const struct lnet_peer_ni_cursor *from, unsigned max,
                      lnet_peer_ni_page_fn fn, void *arg);
/* The row of one NID: fn with n 0 or 1. */
int lnet_peer_ni_find(struct lnet_node *node, const struct lnet_nid *nid, lnet_peer_ni_page_fn fn,
                      void *arg);

/* A NID of a peer (peer/table.h), or a peer NI that no peer has. */

struct lnet_peer_row {
    struct lnet_nid primary, nid;
    bool in_table;
    uint32_t state;  /* of the peer: bits of enum peer_state, §3.6 */
    uint32_t status; /* of the NID: LNET_NI_UP, LNET_NI_DOWN; 0: no ping info has given one yet */
    int health;      /* 0..LNET_MAX_HEALTH */
    bool told;       /* of a drain: acknowledged its PUSH, or got its info by a ping */
    bool known;      /* there is a peer NI; else `ni` has what one begins with */
    struct lnet_peer_ni_row ni;
};
/* Where a page begins; all 0 = the first. Peers of the table come first. A peer that comes or goes
 * between two pages may be missed, and one that the table lost meanwhile seen twice; those that
 * stay are seen exactly once. */
struct lnet_peer_cursor {
    uint32_t part, at;
    bool end; /* out: there are no more */
};
/* The rows of a peer are together, that of the primary NID first. */
typedef void (*lnet_peer_page_fn)(void *arg, const struct lnet_peer_row *rows, unsigned n,
                                  const struct lnet_peer_cursor *next);
/* Collects up to max peers from a place on, as lnet_peer_ni_page() does. At most
 * LNET_PING_MAX_NIDS NIDs of a peer are shown. */
int lnet_peer_page(struct lnet_node *node, const struct lnet_peer_cursor *from, unsigned max,
                   lnet_peer_page_fn fn, void *arg);
/* The rows of the peer that has a NID; n 0: there is none. */
int lnet_peer_find(struct lnet_node *node, const struct lnet_nid *nid, lnet_peer_page_fn fn,
                   void *arg);

/* ---- why a message to a NID goes where it goes (control; why.c) ---- */

enum lnet_why { /* of a candidate */
#define WHY(sym, name, text) LNET_WHY_##sym,
#include "lib/lnet/whys.def"
#undef WHY
    LNET_WHY_COUNT
};
const char *lnet_why_name(enum lnet_why why);
const char *lnet_why_text(enum lnet_why why); /* a sentence */

#define LNET_WHY_MAX 256 /* candidates told of; more are counted only */
struct lnet_why_route {
    struct lnet_route_row row;
    enum lnet_why why;
    uint64_t queued_bytes;
    int health; /* of the gateway's peer NI that is best */
};
struct lnet_why_ni { /* an NI of ours and a peer NI that a message could go to */
    unsigned index;
    struct lnet_nid peer_ni;
    enum lnet_why why;
    int health;         /* of the NI */
    int peer_ni_health; /* -1: of a peer NI that is no gateway's, its home knows it */
};
/* The verdict of the access rules; a name "" = no rule. */
struct lnet_why_access {
    char rule[LNET_ACCESS_NAME];    /* decided about the message, or about its sender */
    char connect[LNET_ACCESS_NAME]; /* decides whether the destination may connect */
    bool denied;                    /* it may not */
    unsigned nlimits;               /* that hold for what the destination sends */
    char limit[LNET_ACCESS_LIMITS][LNET_ACCESS_NAME];
};
struct lnet_why_answer {
    enum lnet_drop drop; /* NONE: it would be sent; else what it would be dropped as */
    struct lnet_why_access access;
    bool local; /* the NID is on a local net: no route is needed */
    bool mine;  /* it is ours: not sent at all */
    struct lnet_nid next_hop;
    bool ni_preferred;      /* a selection policy prefers its NI for this peer */
    int ni;                 /* index, -1 = none */
    unsigned nroutes, nnis; /* of all; told of: at most LNET_WHY_MAX */
    struct lnet_why_route route[LNET_WHY_MAX];
    struct lnet_why_ni nis[LNET_WHY_MAX];
    bool peer_known; /* the next hop's peer NI, as it is now */
    struct lnet_peer_ni_row peer;
};
/* Explains what would happen now to a message for dest from src (ANY: a message of this node
 * through any NI; a NID of this node: a message from that NI). By the same code that chooses paths,
 * on the reactor such a message would be handled by, without any effect. fn runs once on the
 * control thread. 0 or -ENOMEM. */
typedef void (*lnet_why_fn)(void *arg, const struct lnet_why_answer *answer);
int lnet_why(struct lnet_node *node, const struct lnet_nid *dest, const struct lnet_nid *src,
             lnet_why_fn fn, void *arg);

/* `lnetctl ping`: a portal-0 GET (sink 3960 B, §3.4). Control thread; fn runs there once: status 0
 * with the decoded info, or -errno (-ETIMEDOUT, -EHOSTUNREACH, -EIO). src ANY = best. */
typedef void (*lnet_ping_fn)(void *arg, int status, const struct lnet_ping_info *info);
int lnet_ping(struct lnet_node *node, const struct lnet_nid *dest, const struct lnet_nid *src,
              unsigned timeout_ms, lnet_ping_fn fn, void *arg);
/* Pings a peer NI of a local net if it is connected. Else begins to connect to it, or ends the
 * attempt if give_up; the status is -ENOTCONN, at once. So peers that do not answer cost neither
 * messages nor credits, however many they are. */
int lnet_ping_connected(struct lnet_node *node, const struct lnet_nid *dest, unsigned timeout_ms,
                        bool give_up, lnet_ping_fn fn, void *arg);

/* `lnetctl discover`: discovers the peer of a NID unless the peer is up to date; force: in any
 * case. While discovery is off, the peer is pinged and no NIDs are learned. fn runs once on the
 * control thread. Status 0: the discovery is complete, and lnet_peer_find() has the peer.
 * -ETIMEDOUT: the discovery goes on. -ENOSPC: the table has no room, or no peer can have the NID.
 * Or another -errno. Control. 0 or -ENOMEM. */
typedef void (*lnet_discover_fn)(void *arg, int status);
int lnet_peer_discover(struct lnet_node *node, const struct lnet_nid *nid, bool force,
                       unsigned timeout_ms, lnet_discover_fn fn, void *arg);

/* ---- Put/Get API of an end node (home) ---- */

#define LNET_PORTALS    64
#define LNET_THRESH_INF (-1)
#define LNET_PORTAL_RPC 50 /* free for programs; 0 is LNet's own */

enum lnet_md_option {
    LNET_MD_OP_PUT = 1,        /* a PUT may write into it */
    LNET_MD_OP_GET = 2,        /* a GET may read from it */
    LNET_MD_TRUNCATE = 4,      /* what is too long is cut, not refused */
    LNET_MD_MANAGE_REMOTE = 8, /* the initiator's offset is used; else one kept here */
    LNET_MD_ACK_DISABLE = 16,  /* PUTs are not acknowledged */
    LNET_MD_MAX_SIZE = 32,     /* unlink when less than max_size bytes are left */
    LNET_MD_ONCE = 64,         /* its requests are not sent again when they fail */
};

enum lnet_event_type {
    LNET_EVENT_GET,    /* a GET was answered from the MD: the REPLY has left */
    LNET_EVENT_PUT,    /* a PUT has been written into the MD */
    LNET_EVENT_REPLY,  /* the answer to our GET is in the MD */
    LNET_EVENT_ACK,    /* our PUT was acknowledged */
    LNET_EVENT_SEND,   /* our PUT or GET has left (or failed: status) */
    LNET_EVENT_UNLINK, /* the MD was unlinked by the API and nothing uses it any more */
};

struct lnet_event {
    enum lnet_event_type type;
    int status;                /* 0 or -errno */
    struct lnet_nid initiator; /* header source (GET, PUT), else the target */
    uint32_t initiator_pid;
    struct lnet_nid sender; /* immediate sender */
    struct lnet_nid target; /* our NID the message was for */
    uint32_t portal;
    uint64_t match_bits;
    uint64_t hdr_data;
    uint32_t rlength; /* length asked for or announced */
    uint32_t mlength; /* length moved */
    uint32_t offset;  /* in the MD */
    bool unlinked;    /* the MD is free: its memory is the caller's again */
};

struct lnet_md;
typedef void (*lnet_eq_fn)(struct lnet_md *md, const struct lnet_event *event);
struct lnet_eq { /* where events of an MD go; may be shared by many */
    lnet_eq_fn fn;
    void *arg;
};

/* Memory descriptor. The caller's memory from attach or bind until an event with unlinked = true.
 * Segments may be of buffers of a pool in landing memory (mem.h) and name its region: then a peer's
 * RDMA writes to them and reads from them, and other devices send from them without a copy. SEND
 * is not reported before all of them are done.
 * The caller fills the first part. threshold counts operations: a PUT sent, an ACK, a GET sent, a
 * REPLY, an incoming PUT or GET each take one. At 0 it is unlinked as soon as nothing uses it. */
struct lnet_md {
    struct mem_seg *segs;
    unsigned nsegs;  /* up to LNET_MD_MAX_SEGS */
    uint32_t length; /* sum of segs */
    uint32_t options;
    int threshold;
    uint32_t max_size;
    struct lnet_eq *eq;
    void *user;
    /* private */
    struct lnet_node *node;
    struct lnet_me *me;
    LIST_ENTRY(lnet_md) hash;
    uint64_t cookie;
    uint32_t refs;
    uint32_t local_offset;
    struct lnet_nid target; /* of its last PUT or GET: another NID of a multi-rail peer, perhaps */
    struct lnet_nid next_hop; /* of the same, as it was chosen */
    uint32_t replies, acks;   /* that may still come: asked for with this MD's handle */
    struct lnet_nid asked;    /* the neighbour asked for these; ANY: several, or behind a router */
    /* response.c: when its last request was sent, and the status of the last event */
    TAILQ_ENTRY(lnet_md) track;
    uint64_t asked_us;
    int end_status;
    bool tracked;
    uint8_t state;
};

/* Match entry: the caller's memory, from lnet_me_attach() until its MD is unlinked. */
struct lnet_me {
    struct lnet_nid match_nid; /* ANY matches all */
    uint32_t match_pid;        /* UINT32_MAX matches all */
    uint64_t match_bits;
    uint64_t ignore_bits;
    uint32_t portal;
    /* private */
    struct lnet_md *md;
    TAILQ_ENTRY(lnet_me) link;
};

/* Links me at the end of its portal's list with md. -EINVAL for a bad portal. */
int lnet_me_attach(struct lnet_node *node, struct lnet_me *me, struct lnet_md *md);
/* An MD for lnet_put()/lnet_get(). */
int lnet_md_bind(struct lnet_node *node, struct lnet_md *md);
/* Unlinks; an UNLINK event with unlinked = true comes now or when the last operation has ended. */
void lnet_md_unlink(struct lnet_md *md);

/* Sends the MD's whole contents to a node other than this one. src ANY = chosen by path. -ENOMEM,
 * -EHOSTUNREACH (also for a NID of our own), -EINVAL (an MD that is unlinked, used up or of an ME),
 * -EMSGSIZE (over 1 MiB): then no event comes and the MD is as before. SEND comes once, and ACK
 * once if requested, in either order. After a SEND with a status neither ACK nor REPLY comes:
 * unlink the MD. A message that could not be sent may be sent again first, to another NID of a
 * multi-rail peer if src is ANY. When the response does not come within the transaction timeout,
 * and such responses are tracked, the MD is unlinked: its last event has the status -ETIMEDOUT.
 */
int lnet_put(struct lnet_md *md, bool want_ack, const struct lnet_nid *src,
             const struct lnet_nid *dest, uint32_t pid, uint32_t portal, uint64_t match_bits,
             uint32_t offset, uint64_t hdr_data);
/* Asks for up to md->length bytes. SEND and REPLY in either order; errors as lnet_put(). */
int lnet_get(struct lnet_md *md, const struct lnet_nid *src, const struct lnet_nid *dest,
             uint32_t pid, uint32_t portal, uint64_t match_bits, uint32_t offset);

#endif
