/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet capture of a running node: copies of frames that pass or are dropped between the ports
 * and TCP. Each reactor has a ring, which the control thread empties; no file is written. Without
 * a capture there is no tap and no cost.
 *
 * By default only headers are kept, since LNet carries users' data. Frames that go
 * out are seen before the port finishes them: checksums are not there yet, and one frame may be
 * many segments. A VLAN tag is where it is on the wire.
 */
#ifndef MILLRACE_CAPTURE_H
#define MILLRACE_CAPTURE_H

#include "lib/lnd_eth/ip/inet.h"

#define CAPTURE_SNAP_MAX 65535
#define CAPTURE_RING_MIN (64u << 10)
#define CAPTURE_RING_MAX (64u << 20)

enum capture_drops {
    CAPTURE_PASSING, /* as they come in and go out */
    CAPTURE_BOTH,    /* those that are dropped once more, with the reason */
    CAPTURE_DROPS,   /* only those that are dropped */
};

struct capture_conf {
    const struct port *port; /* NULL: any */
    bool has_peer;
    struct inet_addr peer; /* of the other end: source (in) or destination (out) */
    enum capture_drops drops;
    enum pkt_drop why;  /* with CAPTURE_DROPS: only this reason; PKT_DROP_NONE: any */
    uint32_t snap;      /* bytes of a frame that are kept; 0 = headers only */
    uint32_t ring_size; /* of each reactor; a power of two in CAPTURE_RING_MIN .. MAX */
};

/* One frame, as it lies in a ring: its data follows, then the next record at a multiple of 8. */
struct capture_record {
    uint32_t size; /* of the record with all that belongs to it */
    uint32_t len;  /* of the frame */
    uint32_t caplen;
    uint8_t out;
    uint8_t port;        /* its index */
    uint16_t why;        /* enum pkt_drop */
    uint64_t time_ns;    /* CLOCK_REALTIME */
    const uint8_t *data; /* caplen bytes; set by capture_next() */
};

struct capture;

/* All on the control thread. */

/* Begins. One at a time for an inet. 0, -EINVAL, -ENOMEM. reactors: that run inet. */
int capture_start(struct inet *inet, struct reactor_env *env, const struct capture_conf *conf,
                  struct capture **out);
/* The oldest frame that is there, over all reactors; valid until capture_pop(), which forgets it.
 * False: there is none now. */
bool capture_next(struct capture *c, struct capture_record *out);
void capture_pop(struct capture *c);
/* Frames that were wanted and found no room since the start. */
uint64_t capture_missed(const struct capture *c);
/* No more frames come; those in the rings can still be taken. */
void capture_stop(struct capture *c);
/* Stops and frees. NULL is allowed. */
void capture_free(struct capture *c);

#endif
