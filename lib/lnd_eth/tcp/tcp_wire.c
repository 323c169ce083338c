/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP header and options: the one validator, and the writer. */
#include "lib/lnd_eth/tcp/tcp_wire.h"
#include "lib/lnd_eth/ip/inet_addr.h"

#include <string.h>

#define OPT_END      0
#define OPT_NOP      1
#define OPT_MSS      2
#define OPT_WSCALE   3
#define OPT_SACK_OK  4
#define OPT_SACK     5
#define OPT_TS       8
#define WSCALE_MAX   14 /* RFC 7323 §2.3 */
#define OPT_LEN_MSS  4
#define OPT_LEN_WS   3
#define OPT_LEN_SACK 2 /* and 8 for each block; SACK-permitted is 2 */
#define OPT_LEN_TS   10
#define SACK_BLOCK   8

static uint8_t *put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
    return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
    return put16(put16(p, (uint16_t)(v >> 16)), (uint16_t)v);
}

/* ---- reading ---- */

static bool read_sack(const uint8_t *p, uint8_t len, struct tcp_seg *out)
{
    unsigned n = (len - OPT_LEN_SACK) / SACK_BLOCK;

    if ((len - OPT_LEN_SACK) % SACK_BLOCK != 0 || n < 1 || n > TCP_SACK_MAX)
        return false;
    out->nsack = (uint8_t)n;
    for (unsigned i = 0; i < n; i++, p += SACK_BLOCK)
        out->sack[i] = (struct tcp_sack_block){inet_get32(p), inet_get32(p + 4)};
    return true;
}

/* One option of len bytes, kind and length included; p is behind those two. An option of a SYN is
 * ignored elsewhere, but checked there too. */
static bool read_option(uint8_t kind, const uint8_t *p, uint8_t len, struct tcp_seg *out)
{
    static const uint8_t sizes[] = {[OPT_MSS] = OPT_LEN_MSS,
                                    [OPT_WSCALE] = OPT_LEN_WS,
                                    [OPT_SACK_OK] = OPT_LEN_SACK,
                                    [OPT_TS] = OPT_LEN_TS};
    bool syn = out->flags & TCP_FLAG_SYN;

    if (kind < sizeof(sizes) && sizes[kind] != 0 && len != sizes[kind])
        return false;
    switch (kind) {
    case OPT_MSS:
        out->has_mss = syn;
        out->mss = inet_get16(p);
        return true;
    case OPT_WSCALE:
        out->has_wscale = syn;
        out->wscale = *p > WSCALE_MAX ? WSCALE_MAX : *p;
        return true;
    case OPT_SACK_OK:
        out->sack_ok = syn;
        return true;
    case OPT_SACK:
        return read_sack(p, len, out);
    case OPT_TS:
        out->has_ts = true;
        out->ts_val = inet_get32(p);
        out->ts_ecr = inet_get32(p + 4);
        return true;
    default:
        return true;
    }
}

/* RFC 9293 §3.1: an option is one byte, or kind, length, data. */
static bool read_options(const uint8_t *p, size_t len, struct tcp_seg *out)
{
    size_t at = 0;

    while (at < len && p[at] != OPT_END) {
        if (p[at] == OPT_NOP) {
            at++;
            continue;
        }
        if (len - at < 2 || p[at + 1] < 2 || p[at + 1] > len - at)
            return false;
        if (!read_option(p[at], p + at + 2, p[at + 1], out))
            return false;
        at += p[at + 1];
    }
    return true;
}

enum pkt_drop tcp_seg_decode(const uint8_t *p, size_t have, uint32_t len, struct tcp_seg *out)
{
    size_t hdr;

    if (have < TCP_HDR_SIZE || len < TCP_HDR_SIZE)
        return PKT_DROP_TCP_BAD;
    hdr = (size_t)(p[12] >> 4) * 4;
    if (hdr < TCP_HDR_SIZE || hdr > have || hdr > len)
        return PKT_DROP_TCP_BAD;
    memset(out, 0, sizeof(*out));
    out->sport = inet_get16(p);
    out->dport = inet_get16(p + 2);
    out->seq = inet_get32(p + 4);
    out->ack = inet_get32(p + 8);
    out->flags = p[13];
    out->hdr_len = (uint8_t)hdr;
    out->win = inet_get16(p + 14);
    out->len = len - (uint32_t)hdr;
    if (out->sport == 0 || out->dport == 0)
        return PKT_DROP_TCP_BAD;
    return read_options(p + TCP_HDR_SIZE, hdr - TCP_HDR_SIZE, out) ? PKT_DROP_NONE
                                                                   : PKT_DROP_TCP_BAD;
}

/* ---- writing ---- */

static uint8_t *write_syn_options(const struct tcp_seg *seg, uint8_t *p)
{
    if (seg->has_mss) {
        *p++ = OPT_MSS;
        *p++ = OPT_LEN_MSS;
        p = put16(p, seg->mss);
    }
    if (seg->sack_ok) {
        *p++ = OPT_NOP;
        *p++ = OPT_NOP;
        *p++ = OPT_SACK_OK;
        *p++ = OPT_LEN_SACK;
    }
    if (seg->has_wscale) {
        *p++ = OPT_NOP;
        *p++ = OPT_WSCALE;
        *p++ = OPT_LEN_WS;
        *p++ = seg->wscale;
    }
    return p;
}

/* The layout of RFC 7323 appendix A. */
static uint8_t *write_ts(const struct tcp_seg *seg, uint8_t *p)
{
    *p++ = OPT_NOP;
    *p++ = OPT_NOP;
    *p++ = OPT_TS;
    *p++ = OPT_LEN_TS;
    p = put32(p, seg->ts_val);
    return put32(p, seg->ts_ecr);
}

static uint8_t *write_sack(const struct tcp_seg *seg, uint8_t *p)
{
    unsigned most = seg->has_ts ? TCP_SACK_MAX - 1 : TCP_SACK_MAX;
    unsigned n = seg->nsack < most ? seg->nsack : most;

    *p++ = OPT_NOP;
    *p++ = OPT_NOP;
    *p++ = OPT_SACK;
    *p++ = (uint8_t)(OPT_LEN_SACK + n * SACK_BLOCK);
    for (unsigned i = 0; i < n; i++) {
        p = put32(p, seg->sack[i].left);
        p = put32(p, seg->sack[i].right);
    }
    return p;
}

/* All that is written is a multiple of 4. */
size_t tcp_seg_encode(const struct tcp_seg *seg, uint8_t *p)
{
    uint8_t *at = p + TCP_HDR_SIZE;
    size_t hdr;

    put16(p, seg->sport);
    put16(p + 2, seg->dport);
    put32(p + 4, seg->seq);
    put32(p + 8, seg->ack);
    p[13] = seg->flags;
    put16(p + 14, seg->win);
    put32(p + 16, 0); /* checksum, urgent pointer */
    if (seg->flags & TCP_FLAG_SYN)
        at = write_syn_options(seg, at);
    if (seg->has_ts)
        at = write_ts(seg, at);
    if (seg->nsack > 0)
        at = write_sack(seg, at);
    hdr = (size_t)(at - p);
    p[12] = (uint8_t)(hdr / 4 << 4);
    return hdr;
}
