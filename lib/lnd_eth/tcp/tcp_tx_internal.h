/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of TCP's sending side. All runs on the connection's reactor. */
#ifndef MILLRACE_TCP_TX_INTERNAL_H
#define MILLRACE_TCP_TX_INTERNAL_H

#include "lib/lnd_eth/tcp/tcp_internal.h"

#define TX_DATA_MAX   65536        /* pieces of queues a reactor has */
#define TX_SEGS_MAX   32768        /* records of sent segments a reactor has */
#define TX_UNSENT_MIN (256u << 10) /* bytes a connection may have queued and not sent yet: */
#define TX_UNSENT_MAX (2u << 20)   /* … two congestion windows, within these bounds */
#define TX_QUEUE_MAX  (1u << 30)   /* … and queued in all: sequence numbers must not wrap */
#define TX_FEW        8u           /* frames of a connection in one run; who sends so many … */
#define TX_BURST      64u          /* … gets so many when its turn comes among such connections */
#define TX_PIECES     40           /* pieces of payload in one frame */
#define TX_HEADERS    118u         /* Ethernet with a tag, IPv6, TCP with all options */
#define TX_HEAD_MOST  128u         /* bytes that are put in front of payload in its buffer */
#define TX_PREFETCH   1536u        /* bytes of the next piece */
#define TX_COPY_ROOM  2048u        /* bytes of a copy buffer */
#define TX_COPIES_US  1000         /* how old a count of the copy buffers may be */
#define TX_DUPTHRESH  3            /* RFC 5681 */

#define TX_RTO_FIRST   1000000u   /* µs, RFC 6298 §2.1 */
#define TX_RTO_MIN     200000u    /* above the longest delay of an ACK that systems use */
#define TX_RTO_MAX     120000000u /* §2.5 wants 60 s at least */
#define TX_PERSIST_MAX 60000000u  /* between probes of a closed window */
#define TX_HOLD_US     5000       /* a partial segment waits so long for what `more` promised */
#define TX_RETRY_US    5000       /* after the port had no buffer */

/* Limits the share of one connection in a stock to a part of the free rest, so that other
 * connections always find some. The last eighth is reserved: up to `least` may be taken from its
 * first half, and up to TX_LEAST from the other. Each connection has TX_LEAST pieces and records in
 * any case. They do not count as free, so `free` may be negative. */
#define TX_RESERVE    8
#define TX_LEAST      2u
#define TX_LEAST_MOST (TX_SEGS_MAX / 2) /* of all connections: of the default number, each */
#define TX_DATA_PART  16
#define TX_DATA_LEAST 16u
#define TX_SEGS_PART  8
#define TX_SEGS_LEAST 16u
#define TX_COPY_PART  8
#define TX_COPY_LEAST 4u

static inline uint32_t tx_share(int32_t free, uint32_t all, uint32_t part, uint32_t least)
{
    int32_t reserve = (int32_t)(all / TX_RESERVE);

    if (free < reserve / 2)
        least = TX_LEAST;
    return free > reserve ? max((uint32_t)(free - reserve) / part, least) : least;
}

enum tcp_limit {
    TCP_LIMIT_NONE, /* nothing is left to send */
    TCP_LIMIT_WINDOW,
    TCP_LIMIT_CWND,
    TCP_LIMIT_PORT,
    TCP_LIMIT_BURST, /* the others' turn; it goes on in the next round of the reactor */
    TCP_LIMIT_HOLD,  /* `more` was promised */
    TCP_LIMIT_QUEUE, /* what waits for the port is much: in sh->port_waiters */
    TCP_LIMIT_STOCK, /* its part of the records: its own acknowledgements make room */
};

#define TX_PIECE_MAX ((1u << 23) - 1) /* bytes */

/* A piece of the queue: bytes in one buffer, which is referred to. */
struct tcp_tx_data {
    struct tcp_tx_data *next;
    union {
        struct rte_mbuf *m;
        struct rte_mbuf_ext_shared_info *info; /* landing */
    };
    uint8_t *addr;
    uint32_t seq;
    uint32_t len     : 23;
    uint32_t region  : 6; /* of landing memory */
    uint32_t landing : 1; /* in a buffer of landing memory, mem_hold.h */
    uint32_t copied  : 1;
    uint32_t own     : 1; /* headers may be put in front of it: the room is unused */
};

_Static_assert(MEM_REGION_MAX <= 1 << 6, "fits into tcp_tx_data.region");

enum tcp_seg_state {
    TCP_SEG_SENT,
    TCP_SEG_LOST,
    TCP_SEG_SACKED, /* neighbours that are both are one record */
};

struct tcp_tx_seg {
    struct tcp_tx_seg *left, *right, *up; /* tree by sequence number, a heap by prio */
    struct tcp_tx_seg *prev, *next;       /* by sequence number; next: free list */
    TAILQ_ENTRY(tcp_tx_seg) link;         /* in tx.sent or tx.lost */
    struct tcp_tx_data *data;             /* where its first byte is; with FIN alone NULL */
    uint64_t sent_us;                     /* last transmission … */
    uint32_t sent_ts;                     /* … and its TSval */
    uint32_t prio;
    uint32_t seq, len; /* sequence space, FIN included */
    uint32_t size;     /* payload of each segment of it but the last */
    uint32_t segs;     /* segments it stands for */
    uint8_t state;     /* enum tcp_seg_state */
    bool resent;       /* sent more than once */
    bool fin;          /* its last number is the FIN's */
    bool probe;        /* one byte beyond the window, RFC 9293 §3.8.6.1 */
};

/* A reactor's stock. */
struct tcp_copies {
    struct tcp_shard *sh;
    struct tcp_tx_data *data, *free_data;
    struct tcp_tx_seg *segs, *free_segs;
    int32_t nfree_data, nfree_segs; /* beyond TX_LEAST of each connection */
    uint32_t copies_free;           /* buffers of the process's pool, counted … */
    uint64_t copies_us;             /* … then; those taken here since are not in it */
    uint32_t random;
    struct tcp_conns waiters; /* that found it empty */
    struct tcp_conns holders; /* of buffers of the pool, by tx.held_us */
    struct reactor_timer wake, look;
    /* To be told: the last path that was found to swallow large packets. */
    struct reactor_task mtu_task;
    bool mtu_posted;
    struct inet_if *mtu_ifp;
    struct inet_addr mtu_remote;
    uint32_t mtu_size;
};

/* Results of one segment of the peer. */
struct tcp_ack_sum {
    uint64_t now_us;
    const struct tcp_seg *seg;
    uint32_t prior_una;
    uint32_t flight;    /* outstanding before it */
    uint32_t acked;     /* una moved by so much */
    uint32_t delivered; /* newly known to have arrived, by ACK or SACK */
    uint32_t sacked;    /* of which by SACK */
    uint32_t largest;   /* payload of the largest segment of delivered */
    uint32_t rto_rtt;   /* µs; of the oldest segment acknowledged that was sent once; 0: none */
    uint32_t rtt;       /* µs; of the newest */
    bool dsack;
    struct tcp_sack_block dsack_block;
    bool resent_acked; /* something that was sent twice is acknowledged */
    bool lost_more;    /* something was found lost by it */
};

/* tcp_queue.c */
/* Returns how many of the next len bytes, beginning in d, go into one segment of at most mss when
 * the port does not cut. Segments end where pieces end, unless that makes small ones. */
uint32_t tcp_queue_cut(const struct tcp_tx_data *d, uint32_t seq, uint32_t len, uint32_t mss);
/* Returns how many of len > mss bytes may go in one frame that the port cuts into segments of mss.
 * That is all of them, or whole segments. mss: the port may not cut them. The first byte is seq, in
 * d or a later piece. */
uint32_t tcp_queue_tso(const struct tcp_conn *c, struct tcp_tx_data *d, uint32_t seq, uint32_t len,
                       uint32_t mss);
/* For the first transmission of these bytes: the buffer they lie in, with room for headers in front
 * of them, if they are all of a piece that has it; else tcp_queue_chain(). */
struct rte_mbuf *tcp_queue_first(struct tcp_conn *c, struct tcp_tx_data *d, uint32_t seq,
                                 uint32_t len);
struct tcp_tx_data *tcp_queue_at(struct tcp_tx_data *d, uint32_t seq);
/* A chain of shells that refer to up to len bytes from seq on, which d or a later piece has; less
 * when there are more than TX_PIECES. NULL: no shells. */
struct rte_mbuf *tcp_queue_chain(struct tcp_conn *c, struct tcp_tx_data *d, uint32_t seq,
                                 uint32_t len);
void tcp_queue_acked(struct tcp_conn *c); /* frees what is below una */
void tcp_queue_detach(struct tcp_conn *c);
void tcp_queue_attach(struct tcp_conn *c);
void tcp_queue_free(struct tcp_conn *c);
void tcp_queue_wake(struct tcp_conn *c);          /* writable(), if it is owed and there is room */
uint32_t tcp_tx_unsent(const struct tcp_conn *c); /* bytes, FIN not counted */

/* Whether there is something that was never sent, a FIN included. */
static inline bool tcp_tx_to_send(const struct tcp_conn *c)
{
    return tcp_tx_unsent(c) > 0 || (c->tx.fin && !c->tx.fin_sent);
}

/* tcp_sack.c */
uint32_t tcp_pipe(const struct tcp_conn *c); /* bytes in flight: neither sacked nor lost */
/* Returns true when the connection may take another record for new data. */
bool tcp_segs_room(const struct tcp_conn *c);
struct tcp_tx_seg *tcp_segs_add(struct tcp_conn *c, uint32_t len); /* at nxt; NULL: none left */
struct tcp_tx_seg *tcp_segs_split(struct tcp_conn *c, struct tcp_tx_seg *s, uint32_t len);
void tcp_segs_drop_last(struct tcp_conn *c);
void tcp_segs_sent(struct tcp_conn *c, struct tcp_tx_seg *s, uint64_t now_us); /* again */
void tcp_segs_lose(struct tcp_conn *c, struct tcp_tx_seg *s);
void tcp_segs_found(struct tcp_conn *c); /* nothing was lost after all */
void tcp_segs_forget_sacks(struct tcp_conn *c);
void tcp_segs_acked(struct tcp_conn *c, struct tcp_ack_sum *sum);
void tcp_segs_sacks(struct tcp_conn *c, struct tcp_ack_sum *sum);
void tcp_segs_free(struct tcp_conn *c);

/* tcp_tx.c */
bool tcp_tx_resend(struct tcp_conn *c, struct tcp_tx_seg *s, uint32_t most, uint64_t now_us);
bool tcp_tx_new(struct tcp_conn *c, uint32_t most, uint64_t now_us);

/* tcp_rto.c */
void tcp_rto_open(struct tcp_conn *c, uint64_t rtt_us);
void tcp_rto_sample(struct tcp_conn *c, struct tcp_ack_sum *sum);
uint32_t tcp_rto_now(const struct tcp_conn *c); /* µs, with back-off */
uint32_t tcp_min_rtt(const struct tcp_conn *c);
void tcp_rto_restart(struct tcp_conn *c, uint64_t now_us);
void tcp_timers_set(struct tcp_conn *c, uint64_t now_us);

/* tcp_rack.c */
void tcp_rack_delivered(struct tcp_conn *c, const struct tcp_tx_seg *s, uint32_t end,
                        struct tcp_ack_sum *sum);
void tcp_rack_detect(struct tcp_conn *c, struct tcp_ack_sum *sum); /* all of an ACK */
bool tcp_rack_mark(struct tcp_conn *c, uint64_t now_us);           /* the losses of now */
void tcp_rack_rto(struct tcp_conn *c, uint64_t now_us);            /* those of an RTO */
void tcp_rack_recovered(struct tcp_conn *c);
void tcp_tlp_ack(struct tcp_conn *c, struct tcp_ack_sum *sum);
void tcp_tlp_schedule(struct tcp_conn *c, uint64_t now_us);
void tcp_tlp_send(struct tcp_conn *c, uint64_t now_us);

/* tcp_recover.c */
void tcp_recover_ack(struct tcp_conn *c, struct tcp_ack_sum *sum);
void tcp_recover_enter(struct tcp_conn *c, uint32_t delivered);
void tcp_recover_moved(struct tcp_conn *c); /* lost not by congestion: sent again, cwnd stays */
void tcp_recover_rto(struct tcp_conn *c, uint64_t now_us);
void tcp_reduce(struct tcp_conn *c); /* at once, without recovery: ECE, a loss that TLP mended */
void tcp_resent(struct tcp_conn *c, uint32_t end, uint32_t len); /* counts, for undoing too */

/* tcp_cc.c */
uint32_t tcp_cc_initial(const struct tcp_conn *c);              /* RFC 6928 */
uint32_t tcp_cc_slow_start(struct tcp_conn *c, uint32_t acked); /* what is left of acked */
uint32_t tcp_cc_flight(const struct tcp_conn *c); /* FlightSize of RFC 5681, cwnd at most */
void tcp_cc_idle(struct tcp_conn *c, uint64_t idle_us);
void tcp_cc_grow(struct tcp_conn *c, uint32_t by);
extern const struct tcp_cc tcp_cc_cubic, tcp_cc_newreno;

/* tcp_mtu.c */
void tcp_mtu_rto(struct tcp_conn *c, const struct tcp_tx_seg *s);
void tcp_mtu_ack(struct tcp_conn *c, const struct tcp_ack_sum *sum);
uint32_t tcp_mtu_most(const struct tcp_conn *c, const struct tcp_tx_seg *s, uint32_t most);

#endif
