/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ethernet frames as the far end of the conformance tests writes and reads them. Shares no code
 * with lib/: what the stack gets wrong about the wire must show here.
 */
#ifndef MILLRACE_TEST_TCP_FRAME_H
#define MILLRACE_TEST_TCP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX     65600
#define FRAME_OPT_MAX 40

enum {
    FIN = 0x01,
    SYN = 0x02,
    RST = 0x04,
    PSH = 0x08,
    ACK = 0x10,
    URG = 0x20,
    ECE = 0x40,
    CWR = 0x80
};

/* Both ends of what is exchanged; IPv4 addresses as ::ffff:a.b.c.d. */
struct frame_ends {
    uint8_t src_mac[6], dst_mac[6];
    uint8_t src[16], dst[16];
};

struct frame_block {
    uint32_t left, right;
};

/* A segment; numbers as on the wire, in host order. */
struct frame_tcp {
    uint16_t sport, dport;
    uint32_t seq, ack;
    uint8_t flags;
    uint16_t win, urg;
    uint8_t tos;
    bool has_mss, has_wscale, has_sackok, has_ts;
    uint16_t mss;
    uint8_t wscale;
    uint32_t ts_val, ts_ecr;
    unsigned nsack;
    struct frame_block sack[4];
    const uint8_t *data;
    size_t len;

    /* Sending: what is wrong on purpose. */
    uint8_t raw_opt[FRAME_OPT_MAX]; /* written behind the options above */
    size_t raw_opt_len;
    int doff;         /* 0: right; else this, in words */
    int ip_len;       /* added to the IP length; 0: right */
    bool bad_sum;     /* TCP checksum */
    bool bad_ip_sum;  /* IPv4 header checksum */
    uint8_t reserved; /* the four reserved bits */

    /* Receiving: what the reader saw. */
    const char *bad; /* NULL, or what is wrong with the frame */
    uint8_t opt_kinds;
};

/* One's complement sum over len bytes, bytes in pairs as RFC 1071 has it. */
uint32_t frame_sum(const uint8_t *p, size_t len, uint32_t sum);
uint16_t frame_fold(uint32_t sum);
bool frame_is4(const uint8_t addr[16]);

/* Writes Ethernet and IP headers for a packet of proto with len bytes behind them, already at
 * out + frame_l4(ends); returns the whole size. */
size_t frame_ip(uint8_t *out, const struct frame_ends *ends, uint8_t proto, size_t len, uint8_t tos,
                uint8_t ttl);
size_t frame_l4(const struct frame_ends *ends);
uint16_t frame_l4_sum(const struct frame_ends *ends, uint8_t proto, const uint8_t *l4, size_t len);

size_t frame_tcp_write(uint8_t *out, const struct frame_ends *ends, const struct frame_tcp *t);
/* False: the frame is no TCP. Else *t is filled (data points into the frame), and t->bad says what
 * no correct sender writes. */
bool frame_tcp_read(const uint8_t *p, size_t len, struct frame_ends *ends, struct frame_tcp *t);

#endif
