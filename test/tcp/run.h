/* SPDX-License-Identifier: BSD-3-Clause */
/* A case while it runs: the world, the connections that its lines speak of, and the line. */
#ifndef MILLRACE_TEST_TCP_RUN_H
#define MILLRACE_TEST_TCP_RUN_H

#include "test/tcp/script.h"
#include "test/tcp/world.h"

#define CHANS_MAX 16
#define HELD_MAX  64 /* buffers that the user sent from */
#define KEEP_MAX  64 /* segments that the user holds */

struct run;

/* A connection as both the peer (this program) and the stack's user see it. */
struct chan {
    char name[16];
    struct run *run;
    uint16_t peer_port, own_port;
    uint8_t host; /* last byte of the peer's address */
    bool ip6;
    bool raw; /* no checks but what the line says: the peer plays foul */

    /* What the wire has shown. */
    uint32_t peer_isn, own_isn, own_isn_before;
    bool own_known, peer_known;
    bool own_ts, peer_ts, own_sack, peer_sack, own_ws, peer_ws;
    uint8_t own_wscale, peer_wscale;
    uint32_t ts_seen;  /* TSval last seen of the stack */
    uint32_t ts_saved; /* the same at `mark` */
    uint32_t ts_mark;  /* the same at the last `tsgrew` */
    int64_t ts_lag;    /* ms taken from the peer's clock */
    bool edge_known, peer_fin, ts_known;
    uint32_t edge_now;  /* … in its last segment: less by what scaling rounds away, at most */
    uint32_t edge;      /* right edge the stack has shown */
    uint32_t peer_end;  /* behind the peer's FIN */
    uint32_t peer_edge; /* right edge the peer has shown */
    uint32_t peer_sent; /* highest sequence number of the peer */
    uint16_t peer_win;  /* window field of the peer's segments where none is given */
    struct world_frame *last; /* of the stack, for ICMP errors */

    /* The user's side. */
    struct stream *s;
    struct stream *accepted;
    union stream_addr accepted_peer;
    unsigned connected, readable, writable, acked, closed;
    enum stream_end end;
    bool close_in_closed;
    uint64_t sent, read; /* bytes */
    struct mem_seg keep[KEEP_MAX];
    unsigned kept;
};

struct run {
    const struct script_case *cs;
    const struct script_line *line;
    struct world w;
    bool world_up;
    bool ip6;
    struct chan chan[CHANS_MAX];
    unsigned chans;
    struct chan *c; /* that lines speak of */
    struct stream_listener *listener[4];
    unsigned listeners;
    struct rte_mbuf *hold[HELD_MAX];
    unsigned held;
    struct mem_arena *arena;
    uint8_t *memory; /* two periods of the pattern */
    uint16_t region;
    uint64_t drops_before[PKT_DROP_COUNT];
    uint64_t out_us, gap_us; /* of the last frame compared, and how long after the one before */
    uint64_t event_us;       /* of the last event: times count from it */
    bool verbose;
    bool quiet; /* no trace: it takes as long as what it tells of */
    char *trace;
    size_t trace_len;
    char why[2048]; /* not empty: it has failed */
};

/* Remembers the first failure; always false. */
bool run_fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void run_trace(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One case over one family, from the world's making to its end. True: it passed; else r->why. */
bool run_case(struct run *r, const struct script_case *cs, bool ip6);

/* Bytes of a stream at an offset, the same both ways. */
#define PATTERN_PERIOD 1048573u
uint8_t pattern_at(uint64_t offset);
/* Returns n of them, FRAME_MAX at most, from a table. */
const uint8_t *pattern_from(uint64_t offset, size_t n);

struct chan *chan_of(struct run *r, uint8_t host, uint16_t own_port, uint16_t peer_port);
struct chan *chan_add(struct run *r, const char *name);

/* A word of a line is wanted: `key VALUE`. */
bool run_number(struct run *r, unsigned word, int64_t *out);
bool run_time(struct run *r, unsigned word, uint64_t *out);

/* ---- segment.c: segments as lines give them ---- */

struct wanted {
    struct frame_tcp t;
    bool seq, ack, len, win, edge, mss, wscale, ts_val, ts_ecr, tos;
    bool nots, ts, ts_mark, any_sack, any_opts;
    int64_t win_to, edge_from, edge_to;
};
/* The words of a segment from word `at` on. Numbers are relative to seq0 and ack0. */
bool segment_read(struct run *r, unsigned at, uint32_t seq0, uint32_t ack0, struct wanted *x);
/* The number behind a key; other: it is not there. */
int64_t segment_word(struct run *r, unsigned at, const char *key, int64_t other);
/* d: what differs between what is wanted and what came; empty: nothing. */
void segment_compare(const struct chan *c, const struct wanted *x, const struct frame_tcp *t,
                     char *d, size_t size);
void peer_describe(const struct chan *c, bool out, const struct frame_tcp *t, char *text,
                   size_t size);

/* ---- peer.c: verbs of the wire ---- */
bool peer_in(struct run *r, unsigned at);
/* from, to: when it may come, after the last event. */
bool peer_out(struct run *r, unsigned at, uint64_t from_us, uint64_t to_us);
bool peer_burst(struct run *r, unsigned at, uint64_t from_us, uint64_t to_us);
bool peer_probe(struct run *r, unsigned at, uint64_t from_us, uint64_t to_us);
/* The next frame comes after `times` the last gap, within a twentieth. */
bool peer_back_off(struct run *r);
bool peer_nothing(struct run *r, uint64_t us);
bool peer_ignore(struct run *r, uint64_t us);
bool peer_icmp(struct run *r, unsigned at);
bool peer_flood(struct run *r, unsigned at);
/* Checks and learns from a frame of the stack's what every such frame must obey; *c is whose it
 * is. */
bool peer_learn(struct run *r, const struct world_frame *f, struct frame_tcp *t, struct chan **c);
void peer_addresses(const struct chan *c, struct frame_ends *out);

/* ---- user.c: verbs of the stream's user ---- */
bool user_verb(struct run *r, bool *known);
void user_end(struct run *r);

/* ---- look.c: expectations ---- */
bool look_expect(struct run *r);
bool look_info(struct run *r);
bool look_stat(struct run *r);
bool look_drop(struct run *r);
bool look_ts_grew(struct run *r);

/* ---- model.c: random peers ---- */
bool model_run(struct run *r);

#endif
