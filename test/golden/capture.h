/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads recordings: pcap and pcapng, as they are or packed with xz. Hands out TCP segments, or UDP
 * datagrams. */
#ifndef MILLRACE_TEST_GOLDEN_CAPTURE_H
#define MILLRACE_TEST_GOLDEN_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct endpoint {
    uint8_t addr[16]; /* IPv4 in the first four bytes */
    uint16_t port;
};

struct tcp_segment {
    bool ipv6;
    struct endpoint src, dst;
    uint32_t seq;
    bool syn, ack, fin, rst;
    size_t len;          /* payload bytes on the wire */
    size_t captured;     /* of these, in data */
    const uint8_t *data; /* valid during the call only */
};

typedef void (*segment_fn)(void *arg, const struct tcp_segment *segment);

/* Returns NULL, or what is wrong with the file. */
const char *capture_read(const char *path, segment_fn fn, void *arg);

struct udp_datagram {
    bool ipv6;
    struct endpoint src, dst;
    uint64_t time_us;    /* of a pcap; 0 of a pcapng */
    size_t len;          /* payload bytes on the wire */
    size_t captured;     /* of these, in data */
    const uint8_t *data; /* valid during the call only */
};

typedef void (*datagram_fn)(void *arg, const struct udp_datagram *datagram);

/* The same. */
const char *capture_read_udp(const char *path, datagram_fn fn, void *arg);

#endif
