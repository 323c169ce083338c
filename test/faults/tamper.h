/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault injection at a port: frames are lost, delayed and damaged on purpose, for tests and to see
 * how a net would behave. Off until a rule is added; a port that never had one pays a branch per
 * burst. Built with -Dfaults=true.
 *
 * A port has rules for frames that come in and for those that go out. A frame meets all rules of
 * its direction, in the order they were added; each looks whether the frame is one of its kind, and
 * then may lose it, delay it, and so on. Every rule has, for each queue, a generator of its own
 * with a seed: the same frames meet the same fate in each run. Rates and queues of a rule are those
 * of one queue of the port.
 *
 * Frames that come in are treated as the device gave them, those that go out before the port
 * finishes them. A corrupted frame has its checksums completed first, and nobody is told any more
 * that they are right. Frames larger than a segment (TSO, or put together by the kernel) are one
 * frame, unless a rule cuts them; those that go out to be corrupted always are.
 */
#ifndef MILLRACE_TAMPER_H
#define MILLRACE_TAMPER_H

#include "lib/base/err.h"
#include "lib/lnd_eth/port/port.h"

#define TAMPER_RULES_MAX 16      /* of a direction of a port */
#define TAMPER_HELD_MAX  4096    /* frames that wait in a queue; more are lost (no_room) */
#define TAMPER_ALL       1000000 /* chances are parts per million */
#define TAMPER_DELAY_MAX 60000000
#define TAMPER_QUEUE_MAX 4096 /* packets in the queue of a rate */

struct tamper_conf {
    /* Which frames: all that are asked for must be so. */
    bool ip;           /* IPv4 and IPv6 only */
    bool has_peer;     /* packets from (in) or to (out) this address; v4 as ::ffff:a.b.c.d */
    uint8_t peer[16];  /* … */
    uint16_t tcp_port; /* TCP with this source or destination port; 0 = any frame */
    bool payload;      /* TCP with payload only */
    uint16_t longer; /* IP packets of more bytes than this only, larger frames by their segments */
    uint32_t chance; /* ppm of those; 0 = all */

    /* What happens to them. Chances in ppm. */
    uint32_t loss;
    uint32_t burst_enter, burst_leave; /* Gilbert: all is lost between entering and leaving */
    uint32_t duplicate;
    uint32_t corrupt; /* IP packets only: one bit from the IP header on is turned over */
    uint32_t delay_us, jitter_us; /* uniform in delay ± jitter; order is kept */
    uint32_t reorder, reorder_us; /* these wait so much longer, and are overtaken */
    uint64_t rate;                /* bits per second of frames without FCS; 0 = no limit */
    uint32_t queue_packets;       /* that wait for the rate, 0 = 1000; one may always */
    uint32_t queue_bytes;         /* 0 = no further limit */
    bool cut;                     /* larger frames into segments first, so that each has its fate */
    uint64_t seed;
};

/* Sums over the queues. */
struct tamper_counts {
    uint64_t matched;       /* frames of the rule's kind: passed and lost */
    uint64_t lost;          /* by loss and in bursts */
    uint64_t burst_lost;    /* of these, in bursts */
    uint64_t queue_dropped; /* there was no place in the queue of the rate */
    uint64_t delayed, reordered, duplicated, corrupted;
    uint64_t cut;     /* pieces made of larger frames */
    uint64_t skipped; /* to be copied for one of these, which could not be: it passed as it was */
};

struct tamper_row {
    unsigned id;
    bool out;
    struct tamper_conf conf;
    struct tamper_counts counts;
};

struct tamper_queues { /* of a direction of a port */
    uint32_t held;     /* frames that wait now */
    uint64_t no_room;  /* frames lost since too many waited, or buffers ran low */
};

/* ---- control thread ---- */

/* Adds a rule behind those there are, or puts it in their place, and gives its number, unique in
 * the port. -EINVAL with a sentence (no effect, a value out of range), -ENOSPC, -ENOMEM. */
int port_tamper_set(struct port *port, bool out, const struct tamper_conf *conf, bool add,
                    unsigned *id, struct err *err);
/* -ENOENT. What waits already goes on waiting. */
int port_tamper_del(struct port *port, unsigned id);
/* Deletes all rules of a direction; returns how many there were. */
unsigned port_tamper_clear(struct port *port, bool out);
/* Rows of both directions, in their order; at most max (2 × TAMPER_RULES_MAX are enough). */
unsigned port_tamper_rows(const struct port *port, struct tamper_row *rows, unsigned max);
void port_tamper_queues(const struct port *port, bool out, struct tamper_queues *sum);
/* Frames lost on purpose since the port was made, by rules that are gone too. */
uint64_t port_tamper_lost(const struct port *port);
/* Nobody polls the port any more: frees what waits, rules and all. */
void port_tamper_end(struct port *port);

/* ---- for port_rx() and port_tx(), on the queue's reactor ---- */

/* As port_rx(); plain does it without faults. */
unsigned port_tamper_rx(struct port_faults *f, unsigned queue, struct rte_mbuf **pkts, unsigned n,
                        port_burst_fn plain);
/* As port_tx(); also with n = 0, to send what has waited long enough. Takes all or nothing. */
unsigned port_tamper_tx(struct port_faults *f, unsigned queue, struct rte_mbuf **pkts, unsigned n,
                        port_burst_fn plain);
/* Microseconds until something that waits is due, UINT64_MAX: nothing waits. rx_queue -1: this
 * reactor polls none. */
uint64_t port_tamper_due(struct port_faults *f, int rx_queue, unsigned tx_queue);

static inline uint64_t port_tamper_wait(const struct port *port, int rx_queue, unsigned tx_queue)
{
    struct port_faults *f = port_faults_of(port);

    return f ? port_tamper_due(f, rx_queue, tx_queue) : UINT64_MAX;
}

#endif
