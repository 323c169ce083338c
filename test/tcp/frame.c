/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/tcp/frame.h"

#include <string.h>

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)(v >> 16));
    put16(p + 2, (uint16_t)v);
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

bool frame_is4(const uint8_t addr[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(addr, mapped, 12) == 0;
}

uint32_t frame_sum(const uint8_t *p, size_t len, uint32_t sum)
{
    uint64_t words = 0, total;
    uint16_t folded;
    size_t i = 0;

    /* Words of this machine's byte order, which the sum is turned back from (RFC 1071 §2). */
    for (; i + 4 <= len; i += 4) {
        uint32_t word;

        memcpy(&word, p + i, 4);
        words += word;
    }
    while (words >> 16 != 0)
        words = (words & 0xffff) + (words >> 16);
    folded = (uint16_t)words;
    total = (uint64_t)sum + get16((const uint8_t *)&folded);
    for (; i + 1 < len; i += 2)
        total += get16(p + i);
    if (len % 2 != 0)
        total += (uint32_t)p[len - 1] << 8;
    while (total >> 16 != 0)
        total = (total & 0xffff) + (total >> 16);
    return (uint32_t)total;
}

uint16_t frame_fold(uint32_t sum)
{
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

size_t frame_l4(const struct frame_ends *ends)
{
    return 14 + (frame_is4(ends->dst) ? 20 : 40);
}

/* RFC 9293 §3.1, RFC 8200 §8.1: the sum over pseudo header and packet; 0 when the sum in it is
 * right. */
uint16_t frame_l4_sum(const struct frame_ends *ends, uint8_t proto, const uint8_t *l4, size_t len)
{
    unsigned skip = frame_is4(ends->dst) ? 12 : 0;
    uint32_t sum = frame_sum(ends->src + skip, 16 - skip, 0);

    sum = frame_sum(ends->dst + skip, 16 - skip, sum);
    sum += proto + (uint32_t)(len >> 16) + (uint32_t)(len & 0xffff);
    return frame_fold(frame_sum(l4, len, sum));
}

size_t frame_ip(uint8_t *out, const struct frame_ends *ends, uint8_t proto, size_t len, uint8_t tos,
                uint8_t ttl)
{
    static uint16_t id;
    uint8_t *ip = out + 14;
    size_t l4 = frame_l4(ends);

    memcpy(out, ends->dst_mac, 6);
    memcpy(out + 6, ends->src_mac, 6);
    memset(ip, 0, l4 - 14);
    if (frame_is4(ends->dst)) {
        put16(out + 12, 0x0800);
        ip[0] = 0x45;
        ip[1] = tos;
        put16(ip + 2, (uint16_t)(20 + len));
        put16(ip + 4, ++id);
        put16(ip + 6, 0x4000);
        ip[8] = ttl;
        ip[9] = proto;
        memcpy(ip + 12, ends->src + 12, 4);
        memcpy(ip + 16, ends->dst + 12, 4);
        put16(ip + 10, frame_fold(frame_sum(ip, 20, 0)));
    } else {
        put16(out + 12, 0x86dd);
        put32(ip, 0x60000000u | (uint32_t)tos << 20);
        put16(ip + 4, (uint16_t)len);
        ip[6] = proto;
        ip[7] = ttl;
        memcpy(ip + 8, ends->src, 16);
        memcpy(ip + 24, ends->dst, 16);
    }
    return l4 + len;
}

static size_t options_write(uint8_t *o, const struct frame_tcp *t)
{
    uint8_t *p = o;

    if (t->has_mss) {
        p[0] = 2, p[1] = 4;
        put16(p + 2, t->mss);
        p += 4;
    }
    if (t->has_sackok) {
        p[0] = 4, p[1] = 2;
        p += 2;
    }
    if (t->has_ts) {
        p[0] = 8, p[1] = 10;
        put32(p + 2, t->ts_val);
        put32(p + 6, t->ts_ecr);
        p += 10;
    }
    if (t->has_wscale) {
        p[0] = 3, p[1] = 3, p[2] = t->wscale;
        p += 3;
    }
    if (t->nsack > 0) {
        p[0] = 5, p[1] = (uint8_t)(2 + 8 * t->nsack);
        p += 2;
        for (unsigned i = 0; i < t->nsack; i++, p += 8) {
            put32(p, t->sack[i].left);
            put32(p + 4, t->sack[i].right);
        }
    }
    memcpy(p, t->raw_opt, t->raw_opt_len);
    p += t->raw_opt_len;
    while ((p - o) % 4 != 0)
        *p++ = t->raw_opt_len > 0 ? 0 : 1;
    return (size_t)(p - o);
}

size_t frame_tcp_write(uint8_t *out, const struct frame_ends *ends, const struct frame_tcp *t)
{
    uint8_t *h = out + frame_l4(ends);
    size_t opts, len, size;

    memset(h, 0, 20);
    put16(h, t->sport);
    put16(h + 2, t->dport);
    put32(h + 4, t->seq);
    put32(h + 8, t->ack);
    opts = options_write(h + 20, t);
    h[12] = (uint8_t)((t->doff != 0 ? (unsigned)t->doff : 5 + opts / 4) << 4) | t->reserved;
    h[13] = t->flags;
    put16(h + 14, t->win);
    put16(h + 18, t->urg);
    if (t->len > 0)
        memcpy(h + 20 + opts, t->data, t->len);
    len = 20 + opts + t->len;
    put16(h + 16, frame_l4_sum(ends, 6, h, len));
    if (t->bad_sum)
        h[16] ^= 0x55;
    size = frame_ip(out, ends, 6, len, t->tos, 64);
    if (frame_is4(ends->dst)) {
        uint8_t *ip = out + 14;

        put16(ip + 2, (uint16_t)(20 + len + (size_t)t->ip_len));
        put16(ip + 10, 0);
        put16(ip + 10, frame_fold(frame_sum(ip, 20, 0)));
        if (t->bad_ip_sum)
            ip[10] ^= 0x55;
    } else {
        put16(out + 14 + 4, (uint16_t)(len + (size_t)t->ip_len));
    }
    return size;
}

/* ---- reading ---- */

static void addr4(uint8_t out[16], const uint8_t *p)
{
    memset(out, 0, 16);
    out[10] = out[11] = 0xff;
    memcpy(out + 12, p, 4);
}

static void options_read(const uint8_t *p, size_t len, struct frame_tcp *t)
{
    size_t at = 0;

    while (at < len && p[at] != 0) {
        size_t size = p[at] == 1 ? 1 : at + 1 < len ? p[at + 1] : 0;

        if (p[at] == 1) {
            at++;
            continue;
        }
        if (size < 2 || at + size > len) {
            t->bad = "an option runs out of the header";
            return;
        }
        if (p[at] == 2 && size == 4 && !t->has_mss) {
            t->has_mss = true;
            t->mss = get16(p + at + 2);
        } else if (p[at] == 3 && size == 3 && !t->has_wscale) {
            t->has_wscale = true;
            t->wscale = p[at + 2];
        } else if (p[at] == 4 && size == 2 && !t->has_sackok) {
            t->has_sackok = true;
        } else if (p[at] == 8 && size == 10 && !t->has_ts) {
            t->has_ts = true;
            t->ts_val = get32(p + at + 2);
            t->ts_ecr = get32(p + at + 6);
        } else if (p[at] == 5 && t->nsack == 0 && size > 2 && (size - 2) % 8 == 0 && size <= 34) {
            t->nsack = (unsigned)(size - 2) / 8;
            for (unsigned i = 0; i < t->nsack; i++) {
                t->sack[i].left = get32(p + at + 2 + 8 * i);
                t->sack[i].right = get32(p + at + 6 + 8 * i);
            }
        } else {
            t->bad = "an option is unknown, twice there or of a wrong size";
            return;
        }
        at += size;
    }
    for (; at < len; at++)
        if (p[at] != 0)
            t->bad = "padding behind the end of options is not 0";
}

static bool ip_read(const uint8_t *p, size_t len, struct frame_ends *ends, struct frame_tcp *t,
                    size_t *l4, size_t *l4_len)
{
    const uint8_t *ip = p + 14;
    uint16_t type;

    if (len < 14 + 20)
        return false;
    memcpy(ends->dst_mac, p, 6);
    memcpy(ends->src_mac, p + 6, 6);
    type = get16(p + 12);
    if (type == 0x0800 && ip[9] == 6) {
        *l4 = 34;
        if (ip[0] != 0x45 || get16(ip + 2) + 14u != len || get16(ip + 2) < 40)
            t->bad = "the IPv4 header or its length is wrong";
        if (frame_sum(ip, 20, 0) != 0xffff)
            t->bad = "the IPv4 header's checksum is wrong";
        if ((get16(ip + 6) & 0x4000) == 0)
            t->bad = "DF is not set";
        t->tos = ip[1];
        addr4(ends->src, ip + 12);
        addr4(ends->dst, ip + 16);
    } else if (type == 0x86dd && len >= 54 + 20 && ip[6] == 6) {
        *l4 = 54;
        if (ip[0] >> 4 != 6 || get16(ip + 4) + 54u != len)
            t->bad = "the IPv6 header or its length is wrong";
        t->tos = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
        memcpy(ends->src, ip + 8, 16);
        memcpy(ends->dst, ip + 24, 16);
    } else {
        return false;
    }
    *l4_len = len - *l4;
    return true;
}

bool frame_tcp_read(const uint8_t *p, size_t len, struct frame_ends *ends, struct frame_tcp *t)
{
    size_t l4, l4_len, hdr;
    const uint8_t *h;

    memset(t, 0, sizeof(*t));
    if (!ip_read(p, len, ends, t, &l4, &l4_len))
        return false;
    h = p + l4;
    t->sport = get16(h);
    t->dport = get16(h + 2);
    t->seq = get32(h + 4);
    t->ack = get32(h + 8);
    t->flags = h[13];
    t->win = get16(h + 14);
    t->urg = get16(h + 18);
    hdr = (h[12] >> 4) * 4u;
    if (hdr < 20 || hdr > l4_len) {
        t->bad = "the data offset is wrong";
        return true;
    }
    if ((h[12] & 0x0f) != 0)
        t->bad = "reserved bits are set";
    if (frame_l4_sum(ends, 6, h, l4_len) != 0)
        t->bad = "the TCP checksum is wrong";
    options_read(h + 20, hdr - 20, t);
    t->data = h + hdr;
    t->len = l4_len - hdr;
    return true;
}
