/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP header and options on the wire: RFC 9293 §3.1, RFC 7323, RFC 2018, RFC 3168. */
#ifndef MILLRACE_TCP_WIRE_H
#define MILLRACE_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/lnd_eth/ip/pkt_drops.h"

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_PSH 0x08
#define TCP_FLAG_ACK 0x10
#define TCP_FLAG_URG 0x20
#define TCP_FLAG_ECE 0x40
#define TCP_FLAG_CWR 0x80

#define TCP_HDR_SIZE    20
#define TCP_HDR_MAX     60
#define TCP_SACK_MAX    4 /* blocks in a header; 3 beside a timestamp */
#define TCP_DEFAULT_MSS 536

struct tcp_sack_block {
    uint32_t left, right; /* right: behind the last byte */
};

/* A checked segment in host order. */
struct tcp_seg {
    uint16_t sport, dport;
    uint32_t seq, ack;
    uint8_t flags;
    uint8_t hdr_len;
    uint16_t win; /* as on the wire */
    uint32_t len; /* payload bytes */
    bool has_ts, has_mss, has_wscale, sack_ok;
    uint32_t ts_val, ts_ecr;
    uint16_t mss;
    uint8_t wscale;
    uint8_t nsack;
    struct tcp_sack_block sack[TCP_SACK_MAX];
    uint8_t ecn; /* of the IP header */
};

/* Reads a segment of len bytes (header contiguous up to `have`). PKT_DROP_NONE, or TCP_BAD: lengths
 * that lie, options that run out of the header, a known option of a wrong size. Unknown options are
 * passed over. */
enum pkt_drop tcp_seg_decode(const uint8_t *p, size_t have, uint32_t len, struct tcp_seg *out);
/* Writes header and options (padded to 4) into p[TCP_HDR_MAX]; returns its size. seg->len is not
 * used; the checksum field is 0. has_ts, has_mss … select the options; a SYN has all of them. */
size_t tcp_seg_encode(const struct tcp_seg *seg, uint8_t *p);

#endif
