/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our own TCP, on ports, as a stream transport (stream_tcp; receive mode take, sends by reference).
 * docs/tcp.md lists which part of which RFC is done, and by which test it is shown.
 *
 * A connection belongs to one reactor: that on which it was dialled or attached. Its packets come
 * there by inet's steering; where a connection lives elsewhere than its addresses say, the reactor
 * at home for the addresses passes them on.
 */
#ifndef MILLRACE_TCP_H
#define MILLRACE_TCP_H

#include "lib/base/err.h"
#include "lib/base/sip.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/lnd_eth/stream.h"

struct tcp;

/* Bytes of receive buffers per reactor, by truesize, for what comes over connections before their
 * users granted any: who connects and says much costs others nothing. */
#define TCP_OWN_MEMORY (4u << 20)
/* Of these, the part that data out of order may use, and data behind a HELLO: the rest is for
 * requests and HELLOs. */
#define TCP_OWN_SPARSE (TCP_OWN_MEMORY / 2)
/* Small buffers per reactor, into which requests and HELLOs are copied: as many as greetings may be
 * pending there, and as many for the connections that we open. */
#define TCP_OWN_SMALL 2048u

struct tcp_opts {
    unsigned max_conns; /* per reactor, those being made and TIME-WAIT included; 0 = 8192 */
    unsigned syn_max;   /* half-open ones per reactor; 0 = 1024 */
    const char *cc;     /* congestion control: "cubic" (default, NULL), "newreno" */
    /* 0..14; the scale offered. UINT_MAX: 6, since a window above 4 MiB is never granted; windows
     * are told in units of the scale, so it is no larger than it must be. */
    unsigned wscale_max;
    bool ecn; /* ask for ECN where we dial; callers that ask for it have it in any case */
    unsigned user_timeout; /* s without progress until a connection is given up; 0 = 50 */
    /* Memory for payload that must be copied before it can be sent, beside a small buffer for each
     * connection; 0 = 4 MiB. */
    size_t copy_bytes;
    const struct sip_key *secret; /* of sequence numbers and hashes; NULL: random */
    bool no_timestamps, no_sack;  /* tests */
};

/* Makes TCP over inet, which it becomes the upper of; before inet_start(). Control thread. */
int tcp_create(const struct tcp_opts *opts, struct inet *inet, struct tcp **out, struct err *err);
/* After inet_stop(); all streams closed. */
void tcp_destroy(struct tcp *tcp);
/* Memory that TCP takes. Any thread. */
struct tcp_memory {
    size_t heap, eal;
};
void tcp_memory(const struct tcp_opts *opts, unsigned reactors, struct tcp_memory *out);
/* Stops TCP on all reactors, for the end or a restart of the process. Open connections are reset;
 * closing ones have up to 2 s to be acknowledged. done is posted to the control reactor. Call
 * before inet_stop(). Control thread. */
void tcp_stop(struct tcp *tcp, struct reactor_task *done);

/* ---- looking ---- */

/* Counted for each connection. The last three: time during which there was something to send that
 * waited for the peer's window, for congestion control, or for our own port. */
#define TCP_COUNTS                                                                                 \
    uint64_t bytes_in, bytes_out, bytes_acked, bytes_resent;                                       \
    uint64_t segs_in, segs_out, resent, rtos, tlps, fast_recoveries, undone;                       \
    uint64_t sacks_in, dsacks_in, sacks_out, dsacks_out, reordered_in, reass_dropped;              \
    uint64_t challenges, probes_out, keepalives_out;                                               \
    uint64_t limited_window_us, limited_cwnd_us, limited_port_us

struct tcp_counts {
    TCP_COUNTS;
};

struct tcp_info { /* of a connection */
    struct inet_addr local, remote;
    uint16_t lport, rport;
    char ifname[16];
    unsigned reactor;
    const char *state;            /* "syn_sent", "established" …, RFC 9293 §3.3.2 */
    const char *cc;               /* "cubic" */
    const char *cc_state;         /* "open", "disorder", "recovery", "loss" */
    uint32_t mss, cwnd, ssthresh; /* bytes; ssthresh UINT32_MAX: none yet */
    uint32_t in_flight, unsent;
    uint32_t snd_wnd, rcv_wnd; /* bytes */
    uint8_t snd_wscale, rcv_wscale;
    bool timestamps, sack, ecn;
    uint32_t srtt_us, rttvar_us, min_rtt_us, rto_us;
    uint32_t reorder; /* µs of RACK's window */
    union {
        struct tcp_counts counts;
        struct {
            TCP_COUNTS;
        };
    };
    uint32_t reass_bytes, queue_bytes; /* received out of order; in order and not taken */
    uint64_t age_us, idle_us;
};
/* Rows of a reactor from *at (0 at first) on, at most max; *at moves on; 0 at the end. Self. */
unsigned tcp_info_rows(struct tcp *tcp, uint32_t *at, struct tcp_info *out, unsigned max);

/* The addresses and ports of a connection, in host order: what outlives the process that had it. */
struct tcp_pair {
    struct inet_addr local, remote;
    uint16_t lport, rport;
};
/* Established connections of a reactor from *at (0 at first) on, as tcp_info_rows(). Self. */
unsigned tcp_pairs(struct tcp *tcp, uint32_t *at, struct tcp_pair *out, unsigned max);
/* Ends a connection of a process before this one at its peer. The peer gets an ACK of random
 * numbers. A peer that still has the connection answers with the numbers that it expects (RFC 9293
 * §3.10.7.4). No connection of ours wants that answer, so the peer gets the exact RST. A peer that
 * is making a new connection of the same addresses and ports goes on (§3.10.7.3). Does nothing
 * where the local address is none of ours. Self. */
void tcp_end_old(struct tcp *tcp, const struct tcp_pair *pair);

struct tcp_stats { /* of a reactor since start; any thread, relaxed */
    uint64_t segs_in, segs_out, bytes_in, bytes_out;
    uint64_t conns_in, conns_out, conns_now, half_open, time_wait;
    uint64_t resent, rtos, tlps, resets_in, resets_out, challenges, challenges_limited;
    uint64_t predicted;            /* segments that took the short way */
    uint64_t passed_on;            /* to another reactor */
    uint64_t copies, copied_bytes; /* payload copied before sending */
    uint64_t copies_short;         /* into small buffers of their own: the pool was empty */
    uint64_t stuck_reset;          /* connections that held buffers of it and took nothing */
    uint64_t in_place;             /* frames sent in the buffer that their payload came in */
    uint64_t sparse, sparse_bytes; /* received buffers copied together */
    uint64_t mtu_black_holes;      /* paths found to swallow large packets */
    uint64_t stubs_short;          /* moves between reactors that nothing was left for to tell of */
    uint64_t
        orphans_reset; /* closed by us and not by the peer, whose place or buffers were needed */
};
void tcp_stats_get(const struct tcp *tcp, unsigned reactor, struct tcp_stats *out);

#endif
