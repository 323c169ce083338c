/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the conformance cases run in: one reactor on a clock that stands until it is moved, one port
 * whose other side is this program, and IP and TCP on it. A station at the far end answers ARP and
 * neighbour discovery for every address of its nets; TCP frames of ours are kept for the case to
 * look at.
 */
#ifndef MILLRACE_TEST_TCP_WORLD_H
#define MILLRACE_TEST_TCP_WORLD_H

#include "lib/lnd_eth/tcp/tcp.h"
#include "test/tcp/frame.h"

#define WORLD_START_US UINT64_C(1000000000) /* the clock when a world is made */
#define MS             UINT64_C(1000)
#define SECOND         UINT64_C(1000000)

struct world_opts {
    struct tcp_opts tcp;
    unsigned mtu;             /* of the port; 0: 1500 */
    unsigned buffers;         /* receive buffers; 0: 2048 */
    bool tso;                 /* the port takes frames above the MTU, and computes checksums */
    const char *own4, *peer4; /* NULL: 10.9.8.1 and 10.9.8.2 */
    bool far;                 /* the peers are behind a router */
    bool silent;              /* the station does not answer for the peers' addresses */
    bool no_neighbour;        /* nor has it been heard before */
};

struct world_frame {
    struct world_frame *next;
    uint64_t at_us;
    size_t len;
    uint8_t data[];
};

struct world {
    struct reactor_env *env;
    struct reactor *reactor, *control;
    struct port *port;
    struct inet *inet;
    struct inet_if *ifp;
    struct inet_shard *shard;
    struct tcp *tcp;
    struct inet_addr own4, own6, peer4, peer6;
    uint64_t now_us;
    struct world_opts opts;

    struct world_frame *out, **out_tail; /* TCP frames that the stack sent, not looked at yet */
    struct world_frame *icmp, **icmp_tail;
    struct world_frame *in, **in_tail; /* what the port has for the stack */
    uint64_t frames_out, frames_in;
    bool deaf;           /* the port takes no frames: tx returns 0 */
    unsigned arps;       /* requests that the station answered */
    const char *trouble; /* a frame of the stack's that no station may send */
};

extern const uint8_t world_mac[6], station_mac[6];

/* DPDK's environment and the reactors, which take most of the time of a short case: made once, and
 * each case runs in a process forked from here. NULL, or what is wrong. */
const char *world_start(void);
/* Nothing where a case has ended it in its own process. */
void world_stop(void);
/* In a process just forked: DPDK maps its memory shared, so that it would have all cases' marks.
 * From here on this process writes to pages of its own. NULL, or what is wrong. */
const char *world_own_memory(void);
/* NULL, or what is wrong. Once per process, after world_start(). */
const char *world_open(struct world *w, const struct world_opts *opts);
/* All streams are closed. Ends what world_start() made, too. NULL, or what was left behind. */
const char *world_close(struct world *w);

/* Runs the reactors until they have nothing more to do at this instant. */
void world_settle(struct world *w);
/* Moves the clock to until_us, from event to event; stops early once a TCP frame waits in w->out.
 */
void world_advance(struct world *w, uint64_t until_us);
/* Moves the clock at once; what was due in between comes late. */
void world_jump(struct world *w, uint64_t to_us);
/* A frame for the stack; it has it when this returns. */
void world_feed(struct world *w, const uint8_t *frame, size_t len);
/* The same, but the stack sees it together with the next: world_settle() ends the burst. */
void world_queue(struct world *w, const uint8_t *frame, size_t len);
/* Frees what waits to be looked at or received. */
void world_forget(struct world *w);
/* The first TCP frame not looked at, which the caller frees; NULL: none. */
struct world_frame *world_take(struct world *w);

/* The addresses as the stack gets or sends them. */
void world_ends_in(const struct world *w, bool ip6, struct frame_ends *out);
const struct inet_addr *world_own(const struct world *w, bool ip6);
const struct inet_addr *world_peer(const struct world *w, bool ip6);
/* Frames of ARP and neighbour discovery; the size, or 0. */
size_t station_answer(const struct world *w, const uint8_t *frame, size_t len, uint8_t *out);
size_t station_arp(uint8_t *out, uint16_t op, const uint8_t sha[6], const uint8_t spa[4],
                   const uint8_t tha[6], const uint8_t tpa[4]);
/* An ICMP error of the given type and code about a packet of the stack's; mtu for too big. */
size_t station_icmp_error(const struct world *w, uint8_t *out, const uint8_t *about,
                          size_t about_len, uint8_t type, uint8_t code, uint32_t mtu);

/* ---- fakeport.c ---- */
extern const struct port_ops fake_port;
void fake_port_world(struct world *w);
/* world.c: what the device puts on the wire */
void fake_port_sent(struct world *w, const uint8_t *frame, size_t len);

#endif
