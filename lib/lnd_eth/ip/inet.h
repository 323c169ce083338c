/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * IPv4 and IPv6 over ports: neighbours, routes, ICMP, and the passing of packets between ports
 * and their home reactors.
 *
 * One struct inet per process, one shard of it per reactor. A reactor polls its own receive
 * queues and checks each frame. It handles the packet itself, or passes it before TCP to the home
 * reactor of its two addresses (one ring per pair of reactors). Facts about
 * neighbours and paths (ARP, ND, ICMP errors) go to all shards; each shard has its own tables.
 *
 * Addresses: inet_addr.h.
 */
#ifndef MILLRACE_INET_H
#define MILLRACE_INET_H

#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet_addr.h"
#include "lib/lnd_eth/ip/pkt_drops.h"
#include "lib/lnd_eth/port/port.h"

#define INET_IF_MAX    64
#define INET_ADDR_MAX  16  /* of an interface */
#define INET_RANGE_MAX 4   /* of an interface */
#define INET_ROUTE_MAX 256 /* of all interfaces */
/* Neighbours of a reactor. */
#define INET_NEIGH_MIN  8192
#define INET_NEIGH_MAX  65535
#define INET_NEIGH_HELD 4 /* packets that wait for a neighbour's address, each */
#define INET_DAD_MS     1200

struct inet;
struct inet_shard;
struct inet_if;

/* Consecutive IPv4 addresses that one process has for many simulated stations. */
struct inet_range {
    struct inet_prefix first;
    unsigned count;
};

/* An interface: a port, or a VLAN of it, with its addresses. */
struct inet_if_opts {
    const char *name; /* what an NI is given as its interface; < 16 characters; copied */
    struct port *port;
    uint16_t vlan; /* 0 = untagged, else 1..4094 */
    unsigned mtu;  /* 0 = the port's */
    const struct inet_prefix *addr;
    unsigned addrs;
    /* More of them, as ranges: found by arithmetic, so they may be thousands. ARP is answered for
     * each and packets for each are taken, but none is asked for before or defended, and
     * inet_if_addr() does not tell them. Then addrs may be 0. */
    const struct inet_range *range;
    unsigned ranges;
    const struct inet_route *route;
    unsigned routes;
    /* How long it is asked whether another station has an address of ours before it is used:
     * INET_DAD_MS; 0: addresses are used at once. */
    unsigned dad_ms;
    /* Bit i: addr[i] was this process's a moment ago. It is used while it is checked, and given up
     * if another station answers. */
    uint32_t known;
};

/* Kinds of events for the operator. */
enum inet_event_kind {
    INET_EV_PORT_UP,          /* port; value: Mbit/s, 0 = unknown */
    INET_EV_PORT_DOWN,        /* port */
    INET_EV_ADDRESS_READY,    /* addr was checked and is used from now on */
    INET_EV_ADDRESS_CONFLICT, /* addr is another station's too: mac; used: we go on using it */
    INET_EV_MTU_BLACK_HOLE,   /* large packets to addr vanish; value: MTU that is used instead */
    INET_EV_COUNT
};

struct inet_event {
    enum inet_event_kind kind;
    const char *cause; /* a word, static */
    const char *port;
    const char *ifname; /* NULL: it concerns the whole port */
    struct inet_addr addr;
    struct rte_ether_addr mac;
    bool used;
    unsigned value;
};

/* An ICMP error about a packet of ours: addresses and ports as in that packet, seq as quoted. */
struct inet_error { /* ports in host order */
    enum inet_icmp_error what;
    struct inet_addr local, remote;
    uint16_t lport, rport;
    uint16_t mtu; /* with INET_ICMP_TOO_BIG, else 0 */
    uint32_t seq;
};

/* The protocol above IP. Called on the packet's home reactor. */
struct inet_upper {
    void *ctx;
    /* Whole, checked IP packets whose destination is ours, n of them in the order they came in, at
     * most PORT_BURST; pkt_of() of each is filled, data begins with the Ethernet header. Takes
     * them. */
    void (*input)(void *ctx, struct inet_shard *sh, struct rte_mbuf *const *m, unsigned n);
    /* Whether an error is plausible is the callee's to judge. On every reactor. */
    void (*error)(void *ctx, struct inet_shard *sh, const struct inet_error *error);
    /* At the end of each burst of received packets, and before the reactor may sleep: what is to be
     * sent in answer goes out now. Returns the work done. */
    unsigned (*flush)(void *ctx, struct inet_shard *sh);
};

struct inet_opts {
    struct reactor_env *env;
    /* The reactor at home for packets between two addresses: the same for all that concern one
     * peer. Any reactor. NULL: by a hash of the pair. */
    unsigned (*home)(void *ctx, const struct inet_addr *local, const struct inet_addr *remote);
    void *home_ctx;
    struct inet_upper tcp;
    /* How many each reactor's table of neighbours has room for; fewer than INET_NEIGH_MIN are as
     * many as that, more than INET_NEIGH_MAX as many as this. */
    unsigned neighbours;
    /* Bits that the addresses of a prefix have in common, which share tables; 0: 32 and 64. */
    unsigned prefix4, prefix6;
    /* Receives events on the control reactor; must not stop anything here. NULL: not needed. */
    void (*event)(void *ctx, const struct inet_event *event);
    void *event_ctx;
};

/* ---- making (control thread) ---- */

int inet_create(const struct inet_opts *opts, struct inet **out, struct err *err);
/* After inet_stop(). */
void inet_destroy(struct inet *inet);
/* TCP is made after this, on top of it. Before any interface. */
void inet_upper_set(struct inet *inet, const struct inet_upper *tcp);
/* Adds an interface; before inet_start(). Refuses what cannot work: an address that is the host's
 * there, a gateway that is on no net of it, two interfaces of one name or of one port and VLAN. */
int inet_if_add(struct inet *inet, const struct inet_if_opts *opts, struct err *err);
/* Begins to poll the ports (port_start() was called). Duplicate-address detection and gratuitous
 * announcements begin. */
int inet_start(struct inet *inet, struct err *err);
/* Reactors still run: polling ends, queues are emptied; done is posted to the control reactor. */
void inet_stop(struct inet *inet, struct reactor_task *done);
/* Heap, with opts.neighbours. */
size_t inet_memory(unsigned reactors, unsigned neighbours);

/* ---- interfaces (any thread; they do not change after inet_start()) ---- */

struct inet_if *inet_if_find(struct inet *inet, const char *name);
struct inet_if *inet_if_of(struct inet *inet,
                           const struct inet_addr *own); /* who has the address */
const char *inet_if_name(const struct inet_if *ifp);
struct port *inet_if_port(const struct inet_if *ifp);
unsigned inet_if_mtu(const struct inet_if *ifp);
unsigned inet_if_count(const struct inet *inet);
struct inet_if *inet_if_at(struct inet *inet, unsigned index);
/* Its address at index, and its bits; false: no more. The first is what an NI without NID takes. */
bool inet_if_addr(const struct inet_if *ifp, unsigned index, struct inet_prefix *out);
/* The link is up, and its addresses were checked and not found to be another station's. */
bool inet_if_link(const struct inet_if *ifp);
/* Returns how many configured addresses are still checked for duplicates and so are not used. */
unsigned inet_checking(const struct inet *inet);
/* changed() is called on the control reactor after each change of inet_if_link(), with what it is
 * then. Control thread. */
void inet_if_watch(struct inet_if *ifp, struct inet_watch *w);
void inet_if_unwatch(struct inet_if *ifp, struct inet_watch *w);
/* Tells inet_opts.event; *event is read only meanwhile. Control thread. */
void inet_event(const struct inet *inet, const struct inet_event *event);

/* ---- sending (self) ---- */

struct inet_shard *inet_shard_of(struct inet *inet, unsigned reactor);
unsigned inet_shard_reactor(const struct inet_shard *sh);
unsigned inet_home(struct inet *inet, const struct inet_addr *local,
                   const struct inet_addr *remote);

/* How packets from local get to remote. A path is kept in a connection and looked up again when
 * inet_path_valid() says so; it holds no reference. */
struct inet_path {
    struct inet_if *ifp;
    struct inet_addr local, remote, next_hop;
    uint32_t generation;
    uint16_t neigh; /* index of the neighbour, a hint */
    bool own;       /* of a connection that is up or that we open: its neighbour has a reserve */
    unsigned mtu;   /* of the path: IP bytes, 1280 or 576 at least */
};
/* ifp: the interface to leave by, needed where local is a link-local address of several; NULL: the
 * one that has local. Its nets and routes decide, the longest prefix first. 0, -ENETUNREACH, or
 * -EADDRNOTAVAIL: local is not ours, is still being checked, or is another station's too. */
int inet_path_get(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *local,
                  const struct inet_addr *remote, struct inet_path *out);
bool inet_path_valid(struct inet_shard *sh, const struct inet_path *path);
/* The path's MTU was learnt (by ICMP and believed by TCP, or by its own probing). Kept 10 min. */
void inet_path_mtu_set(struct inet_shard *sh, const struct inet_addr *remote, unsigned mtu);
/* A call that came in, m from its Ethernet header on, is about to be answered at this path. */
void inet_path_called(struct inet_shard *sh, const struct inet_path *path,
                      const struct rte_mbuf *m);
/* Peer answers at this path: reachability of its neighbour is confirmed (RFC 4861 §7.3.1). */
void inet_path_confirm(struct inet_shard *sh, const struct inet_path *path);

/* Sends one packet: m begins with the L4 header (l4_len set), the rest of the chain is payload.
 * Puts IP and Ethernet headers in front, asks for checksums and for TSO when tso_segsz is set, and
 * queues it for the port. Takes m in any case; what cannot be sent is counted. tos: the whole byte,
 * ECN included. */
void inet_send(struct inet_shard *sh, struct inet_path *path, struct rte_mbuf *m, uint8_t proto,
               uint8_t tos);
/* Returns true while the port of a path has a long queue. A caller with more than a few packets
 * (ACKs, RSTs) waits then, because a full queue drops packets. The caller checks again in
 * upper.flush(), which runs soon after this function returned true. */
bool inet_tx_busy(struct inet_shard *sh, const struct inet_path *path);
/* Returns true when a port had at least as many packets as were received in this iteration. */
bool inet_rx_behind(const struct inet_shard *sh);
/* Gives what was queued to the ports now. inet calls it itself after each burst and before sleep.
 */
void inet_flush(struct inet_shard *sh);
/* An mbuf for headers on the path's port, with room for all headers in front and 128 bytes behind;
 * NULL: none left (counted). */
struct rte_mbuf *inet_alloc(struct inet_shard *sh, const struct inet_path *path);

/* Hands a received packet to another reactor, where upper.input gets it again (pkt.hops + 1; at
 * most 3, then it is dropped and counted). */
void inet_hand_over(struct inet_shard *sh, struct rte_mbuf *m, unsigned reactor);
/* Counts and frees a received packet. */
void inet_drop(struct inet_shard *sh, struct rte_mbuf *m, enum pkt_drop why);
/* Counts only. */
void inet_count_drop(struct inet_shard *sh, enum pkt_drop why);

/* ---- looking ---- */

struct inet_neigh_row {
    unsigned reactor;
    char ifname[16];
    struct inet_addr addr;
    struct rte_ether_addr mac;
    const char *state; /* "incomplete", "reachable", "stale", "delay", "probe", "failed" */
    uint64_t age_us;   /* since confirmed */
};
/* Rows of a shard from index *at on, at most max; *at moves on, returns how many, 0 at the end.
 * Self. */
unsigned inet_neigh_rows(struct inet_shard *sh, uint32_t *at, struct inet_neigh_row *out,
                         unsigned max);
/* The way to an address as it is now, without any effect. */
struct inet_path_row {
    struct inet_neigh_row neigh; /* of the next hop; state also "unknown": never asked for */
    unsigned mtu;
};
/* 0, or an error of inet_path_get(). Self. */
int inet_path_look(struct inet_shard *sh, const struct inet_addr *local,
                   const struct inet_addr *remote, struct inet_path_row *out);
/* Packets from and to an address that this shard has dropped within that time, by reason; as far
 * as it still knows. Returns how many rows. Self. */
struct inet_drop_row {
    enum pkt_drop why;
    uint32_t count;
    uint64_t age_us; /* of the last one */
};
unsigned inet_drops_of(struct inet_shard *sh, const struct inet_addr *remote, uint64_t within_us,
                       struct inet_drop_row out[PKT_DROP_COUNT]);
void inet_drops_get(const struct inet *inet, uint64_t out[PKT_DROP_COUNT]); /* any thread */
struct inet_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t sums_known;  /* sent without a look at the payload: its sum was that of its arrival */
    uint64_t handed_over; /* to other reactors */
    uint64_t arp_sent, arp_received, nd_sent, nd_received;
    uint64_t icmp_sent, icmp_received, echoes;
};
void inet_stats_get(const struct inet *inet, unsigned reactor, struct inet_stats *out);

/* ---- taps on packets: capture, see capture.h; NULL: none ---- */

struct inet_tap {
    void *ctx;
    /* A frame as it came in or goes out (normal form), or one that is dropped and why. Must not
     * change or keep it. On the reactor that has it. */
    void (*frame)(void *ctx, struct inet_shard *sh, struct inet_if *ifp, struct port *port,
                  const struct rte_mbuf *m, bool out, enum pkt_drop why);
};
/* Published under QSBR: after reactor_synchronize() the one before is not called any more. Control
 * thread. */
void inet_tap_set(struct inet *inet, const struct inet_tap *tap);

#endif
