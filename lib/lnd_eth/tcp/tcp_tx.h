/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending side of a connection, from its being established on: queue, loss recovery, congestion
 * control. The handshake's own segments are the connection's business (tcp_conn.c), and so are RSTs
 * and bare ACKs.
 */
#ifndef MILLRACE_TCP_TX_H
#define MILLRACE_TCP_TX_H

#include "lib/base/err.h"
#include "lib/lnd_eth/port/pkt.h"
#include "lib/lnd_eth/tcp/tcp_wire.h"
#include "lib/reactor/mem.h"
#include "lib/reactor/reactor.h"

#include <sys/queue.h>
#include <sys/types.h>

struct tcp_conn;
struct tcp_info;
struct tcp_tx_data; /* tcp_queue.c: a piece of the queue */
struct tcp_tx_seg;  /* tcp_sack.c: a stretch that was sent: times, flags, count */
TAILQ_HEAD(tcp_tx_segs, tcp_tx_seg);

/* Congestion control: a row of a table. Windows in bytes. RFC 5681, RFC 9438. */
struct tcp_cc {
    const char *name;
    void (*init)(struct tcp_conn *c);
    /* acked bytes were acknowledged while not in recovery; limited: cwnd was what held us back. */
    void (*acked)(struct tcp_conn *c, uint32_t acked, uint64_t now_us, bool limited);
    uint32_t (*ssthresh)(struct tcp_conn *c); /* a loss (or CE): what cwnd becomes */
    void (*rto)(struct tcp_conn *c);
    void (*undo)(struct tcp_conn *c);                   /* the loss was none */
    void (*idle)(struct tcp_conn *c, uint64_t idle_us); /* nothing was sent for so long */
};
const struct tcp_cc *tcp_cc_find(const char *name); /* NULL: default. Not found: NULL */

enum tcp_cc_state {
    TCP_CC_OPEN,
    TCP_CC_DISORDER,
    TCP_CC_RECOVERY, /* fast recovery, PRR */
    TCP_CC_LOSS,     /* after an RTO */
};

enum tcp_mtu_state {
    TCP_MTU_OK,          /* large segments pass, or nothing is known */
    TCP_MTU_SMALL_SENT,  /* a large segment was lost several times; its first bytes go alone */
    TCP_MTU_SMALL_ACKED, /* the small segment passed; if the next large one is lost: black hole */
};

/* Bytes of a connection's sequence space and where they are. In struct tcp_tx, `due` times are of
 * the reactor's clock in microseconds, 0 = off; one timer is armed for the earliest of them. */
struct tcp_tx {
    uint32_t una, nxt; /* SND.UNA, SND.NXT */
    uint32_t wnd;      /* SND.WND in bytes */
    uint32_t wl1, wl2; /* of the segment that last set it */
    uint32_t wnd_max;  /* largest ever */
    uint32_t end;      /* behind the last byte queued (FIN not counted) */
    bool open;         /* tcp_tx_open() was called, tcp_tx_free() was not */
    bool fin;          /* FIN behind `end` is wanted */
    bool fin_sent, fin_acked;
    bool more;          /* the user said that more follows at once */
    bool blocked;       /* send() took less: writable() is owed */
    bool copy_blocked;  /* … as it has its part of the copy buffers */
    bool piece_blocked; /* … or of the reactor's pieces */
    bool waiting; /* … and it is the reactor's own stock that was short: in copies->waiters */
    TAILQ_ENTRY(tcp_conn) wait_link;
    uint8_t port_wait; /* in sh->port_waiters[port_wait - 1]; 0: in none */
    bool turn;         /* its turn has come */
    bool much;         /* the last run sent TX_FEW frames or more */
    TAILQ_ENTRY(tcp_conn) port_link;

    /* the queue, tcp_queue.c */
    struct tcp_tx_data *head, *tail;
    struct tcp_tx_data *unsent; /* that holds nxt; NULL: all is sent */
    struct rte_mbuf *fill;      /* buffer of the copy pool that is being filled, and how far */
    uint32_t fill_used;
    struct rte_mbuf *small; /* its own, for when the pool is empty; NULL: never was */
    bool holds;             /* buffers of the pool: in copies->holders */
    TAILQ_ENTRY(tcp_conn) hold_link;
    uint64_t held_us;  /* since when … */
    uint32_t held_end; /* … what is below has not been acknowledged */
    uint32_t copied;   /* bytes of the queue that were copied */
    uint32_t refers;   /* pieces of it that were not */
    uint32_t pieces;   /* of the reactor's stock that it has: of the queue, … */
    uint32_t records;  /* … and of what was sent */
    uint64_t unacked;  /* bytes for stream_stats */

    /* what was sent and is not acknowledged, tcp_sack.c */
    struct tcp_tx_seg *root, *first, *last; /* by sequence number */
    struct tcp_tx_segs sent;                /* in flight, by time of the last transmission */
    struct tcp_tx_segs lost;                /* found lost and not sent again since */
    uint32_t sacked_bytes, lost_bytes;
    uint32_t sacked_segs; /* segments of sacked_bytes */
    uint32_t dupacks;     /* without SACK: each stands for a segment that arrived */

    /* recovery, tcp_recover.c */
    enum tcp_cc_state state;
    uint32_t recover; /* recovery ends when una gets there */
    uint32_t prr_delivered, prr_out, prr_flight;
    bool undo;                    /* prior_* are what there was before the last reduction */
    uint32_t undo_una, undo_end;  /* una then; nothing to undo once una is beyond undo_end */
    uint32_t undo_ts, undo_bytes; /* TSval of the first retransmission since; bytes sent again */
    bool undo_sent;               /* undo_ts and undo_high are set */
    uint32_t undo_high;           /* behind the highest byte sent again */
    uint32_t prior_cwnd, prior_ssthresh;
    bool ecn_cwr;     /* the next new segment tells CWR */
    uint32_t ecn_seq; /* no second reduction for ECE before una is here */

    /* round-trip times in µs, tcp_rto.c: RFC 6298 */
    uint32_t srtt, rttvar, rto; /* srtt 0: none yet; rto without back-off */
    uint32_t rtt_seq;           /* the next sample for srtt when una is here */
    unsigned backoff;
    uint32_t min_rtt, min_rtt_last; /* of this stretch of time and of the one before, 0: none */
    uint64_t min_rtt_us;            /* when this one began */

    /* RACK-TLP, RFC 8985 */
    uint64_t rack_sent_us;
    uint32_t rack_end, rack_rtt, rack_fack;
    bool rack_valid; /* a sample was taken */
    bool rack_reordering, rack_dsack_round;
    uint32_t rack_round_seq;
    uint32_t rack_reo_mult, rack_reo_persist, rack_reo_wnd;
    bool tlp_out, tlp_retrans;
    bool tlp_rtt; /* a round-trip time was measured since the last probe */
    uint32_t tlp_end, tlp_flight;

    /* timers, tcp_rto.c */
    struct reactor_timer timer;
    uint64_t rto_due, tlp_due, reo_due, persist_due, hold_due;
    unsigned persists;    /* probes of a closed window in a row */
    bool hold_over;       /* what `more` promised has not come in time */
    bool persist_push;    /* the next run sends what the window has room for, however little */
    uint64_t progress_us; /* when something was last acknowledged, or the queue was empty */
    uint64_t sent_us;     /* when data was last sent */

    /* search for an MTU black hole, tcp_mtu.c */
    enum tcp_mtu_state mtu_state;
    unsigned mtu_rtos; /* RTOs in a row of a large segment */
    uint64_t mtu_us;   /* when the small segment was acknowledged */

    uint32_t cwnd, ssthresh; /* bytes */
    bool cwnd_limited;       /* the last run stopped for cwnd */
    uint8_t limit;           /* what the last run stopped for (enum tcp_limit), … */
    uint64_t limit_us;       /* … since when */
    uint32_t flight;         /* in flight when what is reacted to was found */
    uint64_t cc[10];         /* the congestion control's own */
};

/* ---- of the process and of a reactor; control thread ---- */

struct tcp;
struct tcp_shard;
struct tcp_opts;
/* Makes the pool for payload that must be copied (tcp->copy_pool). 0 or -errno with a sentence. */
int tcp_tx_create(struct tcp *tcp, struct err *err);
/* Makes sh->copies, a reactor's stock of queue pieces and records of segments. */
int tcp_tx_shard_create(struct tcp_shard *sh);
void tcp_tx_shard_destroy(struct tcp_shard *sh);
/* Adds what both take. Any thread. */
void tcp_tx_memory(const struct tcp_opts *opts, unsigned reactors, size_t *heap, size_t *eal);

/* ---- of a connection; on its reactor ---- */

/* Payload bytes in one segment now: c->mss without what SACK blocks take of it. */
uint32_t tcp_tx_mss(const struct tcp_conn *c);

/* The connection is established. una: our ISS + 1. rtt_us: of the handshake, 0 = not known (it was
 * sent more than once). wnd: the peer's window, scaled (the window of a SYN is not). */
void tcp_tx_open(struct tcp_conn *c, uint32_t una, uint32_t wnd, uint32_t wl1, uint64_t rtt_us);
/* Processes the ACK of an acceptable segment in a synchronized state; the caller has checked
 * SEG.ACK within [una - max wnd, nxt] (RFC 5961 §5). Handles SACK, window update, round-trip
 * time, recovery and congestion control; frees acknowledged data; sets tx.fin_acked.
 * data: the segment had payload or FIN, so it is no duplicate ACK. Sends nothing by itself: puts
 * the connection to work. */
void tcp_tx_ack(struct tcp_conn *c, const struct tcp_seg *seg, bool data);
/* Sends what may be sent now. From tcp_flush(). True: something was sent that carried our
 * acknowledgement. */
bool tcp_tx_run(struct tcp_conn *c);
/* Returns the connection that has waited longest for a port that is free again; the caller calls
 * tcp_tx_run(). NULL: none. */
struct tcp_conn *tcp_tx_next_waiter(struct tcp_shard *sh);
/* stream.h send(). */
ssize_t tcp_tx_append(struct tcp_conn *c, const struct mem_seg *segs, unsigned nsegs, bool more);
/* FIN behind what is queued. */
void tcp_tx_fin(struct tcp_conn *c);
/* The path's MTU became smaller (c->mss is already): what was sent larger is cut anew. */
void tcp_tx_remss(struct tcp_conn *c, bool by_icmp);
/* Leaves this reactor (timers stop) and comes to another. */
void tcp_tx_detach(struct tcp_conn *c);
void tcp_tx_attach(struct tcp_conn *c);
/* Forgets all, timers too. */
void tcp_tx_free(struct tcp_conn *c);
void tcp_tx_info(struct tcp_conn *c, struct tcp_info *out);
bool tcp_tx_idle(
    const struct tcp_conn *c); /* nothing sent that is not acknowledged, nothing queued */

#endif
