/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP connections of a recording, each direction put together to one run of bytes. */
#ifndef MILLRACE_TEST_GOLDEN_STREAMS_H
#define MILLRACE_TEST_GOLDEN_STREAMS_H

#include "capture.h"

struct span {
    uint32_t seq;
    size_t packet; /* number in the recording */
    size_t len;
    uint8_t *data;
};

struct hole {
    size_t from, to;
};

struct stream {
    bool syn_seen;
    uint32_t isn;       /* of the SYN */
    size_t closed;      /* number of the first packet with FIN or RST; 0 = none */
    struct span *spans; /* segments as they came */
    size_t nspans, cap_spans;

    /* After connections_assemble(): */
    uint8_t *bytes;
    size_t len;
    struct hole *holes; /* what the recording misses: zeroes in bytes; ascending */
    size_t nholes;
    size_t conflicts; /* bytes sent twice with different content */
    size_t *starts;   /* where segments begin, ascending */
    size_t nstarts;
};

struct connection {
    bool ipv6;
    struct endpoint client, server;
    struct stream to_server, to_client;
};

struct connections {
    uint16_t port; /* the server's */
    struct connection *list;
    size_t count, cap;
    size_t packets;
};

void connections_add(void *connections, const struct tcp_segment *segment); /* a segment_fn */
void connections_assemble(struct connections *all);
/* Bytes from pos to the next hole or the end; 0 in a hole. */
size_t stream_contiguous(const struct stream *s, size_t pos);
/* Number of the packet that first brought the byte at pos; of the last packet with data. */
size_t stream_packet(const struct stream *s, size_t pos);
size_t stream_last_packet(const struct stream *s);
size_t stream_missing(const struct stream *s); /* bytes in holes */
void connections_free(struct connections *all);

#endif
