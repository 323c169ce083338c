/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of the IP layer. inet.c: creation, start and end; inet_if.c: interfaces;
 * inet_in.c: frames up to TCP; inet_out.c: from TCP to the port. inet_hand.c: between reactors;
 * inet_wire.c: validators; inet_look.c: facts about one address. neigh.c with arp.c and nd.c:
 * neighbours; dad.c: duplicate addresses; mld.c: groups; route.c, pmtu.c, icmp.c.
 *
 * Everything of a shard belongs to its reactor. Interfaces are shared and fixed after
 * inet_start(). Only the state of their addresses changes, written by reactor 0 (dad.c), and the
 * state of links, written by the control reactor.
 */
#ifndef MILLRACE_INET_INTERNAL_H
#define MILLRACE_INET_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/minmax.h"
#include "lib/base/share.h"
#include "lib/base/sip.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/lnd_eth/ip/inet_wire.h"

#include <sys/queue.h>

#include <rte_ring.h>

#define INET_OWN_MAX    (INET_ADDR_MAX + 1 + INET_RANGE_MAX) /* and a link-local one of our own */
#define INET_TXQ        1024               /* frames that wait for a port, per reactor; 2^n */
#define INET_TXQ_BUSY   (INET_TXQ / 4 * 3) /* bulk waits from here on … */
#define INET_TXQ_MBUFS  2048   /* … or from so many buffers: half a reactor's of a port */
#define INET_HAND_RING  1024   /* packets between two reactors; 2^n */
#define INET_NOTE_RING  128    /* notes between two reactors; 2^n */
#define INET_LINK_US    100000 /* how often the links are looked at */
#define INET_BACKLOG_US 50     /* longest sleep while a port has not taken all */
#define INET_POLL_US    100    /* … while a port is idle that cannot wake a reactor */
#define INET_HOP_LIMIT  64
#define INET_NEIGH_NONE UINT16_MAX
#define INET_PMTU_MAX   4096
#define INET_RECENT     512 /* addresses and reasons */
#define INET_SEC        UINT64_C(1000000)
#define INET_MTU_MIN4   576
#define INET_MTU_MIN6   1280

/* An IPv4 address as a number. */
static inline uint32_t inet_v4_value(const struct inet_addr *a)
{
    return inet_get32(a->b + 12);
}

static inline void inet_v4_set(struct inet_addr *a, uint32_t v)
{
    v = rte_cpu_to_be_32(v);
    memcpy(a->b + 12, &v, sizeof(v));
}

/* Hashes an address, with what else there is of the key, for a table. */
static inline uint32_t inet_hash(const struct inet_addr *a, uint64_t with)
{
    struct {
        struct inet_addr addr;
        uint64_t with;
    } key = {*a, with};

    return sip_bucket(&key, sizeof(key));
}

/* ---- interfaces ---- */

enum own_state {
    OWN_TENTATIVE, /* being checked: not used */
    OWN_VALID,
    OWN_CONFLICT /* another station has it: not used, checked again now and then */
};

struct inet_own {
    struct inet_prefix net;
    uint32_t count; /* of a range that begins at net.addr, always valid; 0: one address */
    struct inet_if *ifp;
    uint8_t state;  /* enum own_state; written by reactor 0 */
    bool generated; /* the link-local one, made here */
    bool trial;     /* used before its check has ended; reactor 0's */
    /* Reactor 0's: dad.c. */
    struct reactor_timer timer;
    uint8_t probes, announcements; /* still to be sent */
    uint32_t announced;            /* of a range */
    uint64_t defended_us;
    struct rte_ether_addr other; /* who has it; the control reactor's while telling … */
    const char *cause;           /* … as is this */
    struct reactor_task tell;
    bool telling;
};

/* A port, with what lies over it. */
struct inet_port {
    struct port *port;
    bool link; /* the control reactor's */
    unsigned speed;
    uint8_t by_vlan[4096]; /* index of the interface + 1; 0: none */
};

struct inet_if {
    struct inet *inet;
    char name[PORT_NAME_MAX];
    unsigned index;
    struct inet_port *ip;
    unsigned port_index; /* in inet->port */
    uint16_t vlan;
    unsigned mtu;
    unsigned dad_ms;
    struct inet_own own[INET_OWN_MAX];
    unsigned owns;            /* ranges included, which are the last … */
    unsigned ranges;          /* … so many */
    struct inet_route *route; /* nets of its own are not among them */
    unsigned routes;
    /* The control reactor's. */
    LIST_HEAD(, inet_watch) watches;
    bool told;
    /* Reactor 0's: mld.c. */
    struct {
        struct reactor_timer tell_timer, answer_timer;
        uint8_t reports;      /* still to be sent without being asked */
        uint64_t answer_us;   /* when the answer is due */
        uint64_t v1_until_us; /* somebody asks in MLDv1 */
    } mld;
    /* The link has come back: reactor 0 checks and announces. */
    struct reactor_task back;
    bool back_posted;
};

/* ---- between reactors ---- */

enum note_kind {
    NOTE_NEIGH,      /* neigh_heard() */
    NOTE_CONFLICT,   /* dad_conflict(), for reactor 0 */
    NOTE_ICMP_ERROR, /* upper.error() */
    NOTE_MLD,        /* mld_asked(), for reactor 0 */
};

struct note {
    uint8_t kind, flags, ifindex;
    struct rte_ether_addr mac;
    uint32_t within_ms;
    union {
        struct inet_addr addr;
        struct inet_error error;
    };
};

/* From one reactor to another, one writer and one reader. */
struct inet_pair {
    struct rte_ring *packets;
    struct note *notes;
    uint32_t note_head __rte_cache_aligned; /* writer's */
    uint32_t note_tail __rte_cache_aligned; /* reader's */
    struct reactor_task wake __rte_cache_aligned;
    uint32_t woken; /* the task is under way */
};

/* ---- neighbours ---- */

enum neigh_state {
    NEIGH_FREE,
    NEIGH_INCOMPLETE,
    NEIGH_REACHABLE,
    NEIGH_STALE,
    NEIGH_DELAY,
    NEIGH_PROBE,
    NEIGH_FAILED
};

struct neigh {
    struct inet_addr addr;
    struct rte_ether_addr mac;
    uint8_t state;
    uint8_t ifindex;
    uint8_t probes; /* sent in this state */
    bool disputed;  /* another MAC claims the address; the one we know is being asked */
    bool proven;    /* a TCP connection received something from there */
    bool own;       /* connections of ours want it, not just answers to callers */
    struct rte_ether_addr claimed;
    uint16_t next; /* in its hash chain, or free */
    uint8_t nheld;
    uint32_t reachable_us;
    uint64_t confirmed_us, used_us, asked_us, disputed_us;
    struct rte_mbuf *held[INET_NEIGH_HELD];
    uint64_t since_us; /* not known where */
    struct inet_shard *sh;
    struct reactor_timer timer;
    TAILQ_ENTRY(neigh) link; /* in unresolved_list */
};

TAILQ_HEAD(neigh_list, neigh);

#define NEIGH_SOLICITED 1 /* an answer to us */
#define NEIGH_OVERRIDE  2 /* RFC 4861 §4.4; ARP always says so */
#define NEIGH_ASKED     4 /* a question about an address of ours */
#define NEIGH_CALLED    8 /* a call, which is answered now */

/* A station that asked for an address of ours, or called it: it is about to send something. */
struct neigh_asker {
    struct inet_addr addr;
    uint64_t at_us; /* 0: none */
    struct rte_ether_addr mac;
    uint8_t ifindex;
    bool disputed; /* since the last call another MAC asked in the name of the same address */
};

struct pmtu_entry {
    struct inet_addr remote;
    struct share_account *account; /* of its prefix */
    uint16_t mtu;                  /* 0: free */
    uint16_t next;
    uint64_t until_us;
};

/* A bucket of tokens. */
struct inet_bucket {
    uint64_t at_us; /* up to when it is filled */
};

/* ---- a reactor's part ---- */

struct inet_txq {
    struct rte_mbuf *m[INET_TXQ];
    uint32_t head, tail;
    uint32_t mbufs; /* of all frames */
};

struct inet_rxq {
    struct inet_port *ip;
    unsigned queue;
    uint64_t bytes; /* a full burst of frames as large as those of the last one */
    struct reactor_fd fd;
    bool sleeps; /* fd wakes the reactor */
};

/* The last packet from or to an address that was dropped for a reason. */
struct inet_recent {
    struct inet_addr addr;
    uint64_t last_us;
    uint32_t count;
    uint8_t why; /* 0: none yet */
};

struct inet_shard {
    struct inet *inet;
    struct reactor *reactor;
    unsigned index;
    bool running;
    struct reactor_poller poller;
    struct inet_rxq *rxq;
    unsigned rxqs;
    bool rx_behind; /* a queue had as many packets as are received in an iteration */
    struct inet_txq *txq[PORT_MAX];  /* by inet->port */
    uint32_t backlog;                /* bits: ports with frames in txq … */
    uint32_t tried, refused;         /* … that were flushed, or said to be busy, in this poll */
    struct inet_pair **in;           /* by sender; NULL for itself */
    struct rte_mbuf *up[PORT_BURST]; /* of this burst: TCP's, in order */
    unsigned nup;
    uint32_t generation; /* of paths: those of an older one are looked up again */

    struct neigh *neigh;
    uint16_t *neigh_hash;
    struct neigh_asker *askers; /* by hash; the newest takes the place of an older one */
    unsigned neigh_max;         /* entries */
    uint32_t neigh_mask;        /* of the hash */
    uint16_t neigh_free;        /* list of those never used or given back */
    uint16_t neigh_hand;        /* where the next victim is looked for */
    unsigned neighs, held;
    unsigned unresolved[2]; /* by neigh.own … */
    struct neigh_list unresolved_list[2];
    struct inet_bucket ask_bucket[2]; /* … as these are */
    struct inet_bucket make_bucket, error_bucket, echo_bucket;

    struct pmtu_entry *pmtu;
    uint16_t *pmtu_hash;
    uint16_t pmtu_hand, pmtu_crowd_hand;
    struct share pmtu_share;
    struct reactor_timer pmtu_timer;

    uint64_t drops[PKT_DROP_COUNT];
    struct inet_recent recent[INET_RECENT];
    struct inet_stats stats;
    struct reactor_task begin, end;
};

struct inet {
    struct inet_opts opts;
    struct reactor_env *env;
    unsigned nshards;
    struct inet_shard *shard[REACTOR_MAX];
    struct inet_port *port[PORT_MAX];
    unsigned ports;
    struct inet_if *ifs[INET_IF_MAX];
    unsigned nifs;
    unsigned routes;
    bool started;
    bool watching; /* the links have been looked at */
    const struct inet_tap *tap;
    struct reactor_timer link_timer; /* control */
    unsigned stop_waits, stop_round;
    struct reactor_task *stop_done;
};

/* ---- inet_if.c ---- */

/* Whether a is the address, or one of the range. */
static inline bool own_is(const struct inet_own *own, const struct inet_addr *a)
{
    if (own->count == 0)
        return inet_same(&own->net.addr, a);
    return memcmp(own->net.addr.b, a->b, 12) == 0 &&
           inet_v4_value(a) - inet_v4_value(&own->net.addr) < own->count;
}

/* Which address of the interface a is; NULL: none of it. In any state. */
struct inet_own *own_find(struct inet_if *ifp, const struct inet_addr *a);
static inline bool own_usable(const struct inet_own *own)
{
    return __atomic_load_n(&own->state, __ATOMIC_ACQUIRE) == OWN_VALID;
}
/* Looks at all links; tells what has changed. Control. */
void if_links_look(struct inet *inet);
/* Tells watchers if inet_if_link() has changed. Control. */
void if_judge(struct inet_if *ifp);
void if_free(struct inet_if *ifp);
/* An address of the interface to send from, of that family; link-local ones last. NULL: none may be
 * used. */
const struct inet_own *if_source(const struct inet_if *ifp, bool is4);

/* ---- inet_in.c ---- */

/* Shows a frame to the tap, if there is one. ifp NULL: the frame belongs to no interface. */
void inet_show(struct inet_shard *sh, struct inet_if *ifp, struct port *port,
               const struct rte_mbuf *m, bool out, enum pkt_drop why);
/* Counts the drop of a packet that is still needed, and shows the packet. */
void inet_drop_keep(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m, bool out,
                    enum pkt_drop why);
/* Cuts the chain to len bytes. */
void pkt_cut(struct rte_mbuf *m, uint32_t len);
int inet_poll(void *arg);

/* ---- inet_out.c ---- */

/* Queues a frame whose headers are complete; takes m. */
void out_queue(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m);
/* A buffer with size zeros and room for headers in front. NULL: there is none, which is counted. */
struct rte_mbuf *out_alloc(struct inet_shard *sh, struct inet_if *ifp, size_t size);
/* Ethernet header in front; m is a buffer whose data begins with L3. */
void out_ether(struct inet_if *ifp, struct rte_mbuf *m, const struct rte_ether_addr *to,
               uint16_t type);
/* An IP header in front of an L4 message that is complete but for what is said of checksums; and
 * room for Ethernet's. hops: 0 = the usual. False: it does not fit, m is freed and counted. */
bool out_ip(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *src,
            const struct inet_addr *dst, unsigned mtu, struct rte_mbuf *m, uint8_t proto,
            uint8_t tos, uint8_t hops);
/* At the end of a poll, when ports have got what they take: whether one that was busy in it is not
 * any more. */
bool out_eased(const struct inet_shard *sh);
/* Frees frames that wait for ports. */
void out_clear(struct inet_shard *sh);
bool bucket_take(struct inet_bucket *b, uint32_t per_second, uint32_t burst);
/* Counts and frees what was to be sent. */
void out_drop(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m, enum pkt_drop why);

/* ---- inet_hand.c ---- */

int hand_init(struct inet_shard *sh);
void hand_fini(struct inet_shard *sh);
/* Handles packets and facts from other reactors; returns their number. */
unsigned hand_poll(struct inet_shard *sh);
/* To all other reactors, or to one. */
void hand_note(struct inet_shard *sh, const struct note *note);
void hand_note_to(struct inet_shard *sh, unsigned reactor, const struct note *note);
size_t hand_memory(unsigned reactors);

/* ---- neigh.c ---- */

int neigh_init(struct inet_shard *sh);
void neigh_fini(struct inet_shard *sh);
void neigh_stop(struct inet_shard *sh); /* timers and packets held */
size_t neigh_memory(unsigned neighbours);
/* Sends m (IP header at its front, room for Ethernet's before it) to a neighbour, or keeps it until
 * the neighbour is known. Takes m. hint: index of the neighbour, in and out; NULL: not TCP's. own:
 * as inet_path has it. */
void neigh_output(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *next_hop,
                  uint16_t *hint, bool own, struct rte_mbuf *m);
/* A station says that addr is at mac. Changes only an entry that is there, or notes who asks. */
void neigh_heard(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *addr,
                 const struct rte_ether_addr *mac, unsigned flags);
/* neigh_heard() here and on all other reactors. */
void neigh_tell(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *addr,
                const struct rte_ether_addr *mac, unsigned flags);
uint16_t neigh_find(struct inet_shard *sh, const struct inet_if *ifp, const struct inet_addr *addr);
/* The entry at an index as it is shown. */
void neigh_row(const struct inet_shard *sh, uint16_t index, struct inet_neigh_row *out);

/* ---- inet_look.c ---- */

/* Remembers a packet that is dropped, by the other end's address. Received ones begin with the
 * Ethernet header; of those to be sent l2_len and l3_len say what they have. */
void inet_look_drop(struct inet_shard *sh, const struct rte_mbuf *m, bool out, enum pkt_drop why);
void look_drop_addr(struct inet_shard *sh, const struct inet_addr *addr, enum pkt_drop why);

/* ---- arp.c, nd.c ---- */

/* This and the other functions of received messages: PKT_DROP_NONE and m is taken, or the reason to
 * drop it. */
enum pkt_drop arp_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m);
/* from NULL: a probe (RFC 5227). to NULL: broadcast. */
void arp_send_request(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *from,
                      const struct inet_addr *target, const struct rte_ether_addr *to);
enum pkt_drop nd_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                       const struct inet_hdr *ip);
void nd_send_solicit(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *from,
                     const struct inet_addr *target, const struct rte_ether_addr *to);
/* Sends an unsolicited advertisement to all nodes. */
void nd_announce(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *own);

/* IPv6's and Ethernet's headers in front of a message on the link; queues it. to NULL: the stations
 * of the group dst. False: it does not fit. */
bool nd_send(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *src,
             const struct inet_addr *dst, struct rte_mbuf *m, uint8_t proto, uint8_t hops,
             const struct rte_ether_addr *to);
/* Asks who has target, by ARP or ND; arguments as arp_send_request(). */
void neigh_ask(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *from,
               const struct inet_addr *target, const struct rte_ether_addr *to);

/* ---- mld.c (reactor 0, but mld_input, mld_in_group and mld_asked: any) ---- */

void mld_start(struct inet_if *ifp);
void mld_stop(struct inet_if *ifp);
/* Groups are told: at the start, and when the link or an address to tell it from is new. */
void mld_tell(struct inet_if *ifp);
/* The group is of an address of the interface; ::, any is. */
bool mld_in_group(const struct inet_if *ifp, const struct inet_addr *wanted);
enum pkt_drop mld_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                        const struct inet_hdr *ip);
/* Somebody asks for our groups, in MLDv1 or 2. */
void mld_asked(struct inet_shard *sh, struct inet_if *ifp, bool v1, uint32_t within_ms);

/* ---- dad.c (reactor 0, but dad_conflict: any) ---- */

void dad_start(struct inet_shard *sh); /* all interfaces */
void dad_stop(struct inet_shard *sh);
void dad_link_back(struct reactor_task *task);
/* Another station uses or wants an address of ours. probe: it only asks whether it may. */
void dad_conflict(struct inet_shard *sh, struct inet_own *own, const struct rte_ether_addr *mac,
                  bool probe);

/* ---- route.c ---- */

/* The next hop of a destination by the nets and routes of an interface; false: none. */
bool route_find(const struct inet_if *ifp, const struct inet_addr *to, struct inet_addr *next_hop);

/* ---- pmtu.c ---- */

int pmtu_init(struct inet_shard *sh);
void pmtu_fini(struct inet_shard *sh);
void pmtu_start(struct inet_shard *sh);
size_t pmtu_memory(void);
/* Returns the path MTU to remote over an interface with that MTU. */
unsigned pmtu_get(struct inet_shard *sh, const struct inet_addr *remote, unsigned mtu);

/* ---- icmp.c ---- */

enum pkt_drop icmp_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                         const struct inet_hdr *ip);
/* Drops m (data begins with the Ethernet header) because of why and tells its sender, within limits
 * and as far as it may be sent back (RFC 1812 §4.3.2.3, RFC 4443 §2.4 (c)). */
enum pkt_drop icmp_error_send(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                              const struct inet_hdr *ip, uint8_t type, uint8_t code, uint32_t param,
                              enum pkt_drop why);
/* Puts the checksum into an ICMP message of which m begins with the header. */
void icmp_csum_put(struct rte_mbuf *m, const struct inet_addr *src, const struct inet_addr *dst);

#endif
