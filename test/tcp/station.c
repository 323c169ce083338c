/* SPDX-License-Identifier: BSD-3-Clause */
/* The far end below TCP: ARP (RFC 826), neighbour discovery (RFC 4861), ICMP errors (RFC 792, RFC
 * 4443). */
#include "test/tcp/world.h"

#include <string.h>

size_t station_arp(uint8_t *out, uint16_t op, const uint8_t sha[6], const uint8_t spa[4],
                   const uint8_t tha[6], const uint8_t tpa[4])
{
    static const uint8_t head[] = {0x08, 0x06, 0, 1, 8, 0, 6, 4, 0};

    memcpy(out, op == 1 ? (const uint8_t *)"\xff\xff\xff\xff\xff\xff" : tha, 6);
    memcpy(out + 6, sha, 6);
    memcpy(out + 12, head, 9);
    out[21] = (uint8_t)op;
    memcpy(out + 22, sha, 6);
    memcpy(out + 28, spa, 4);
    memcpy(out + 32, tha, 6);
    memcpy(out + 38, tpa, 4);
    memset(out + 42, 0, 18);
    return 60;
}

/* Ours are the addresses of the stack's net, but not its own: the peers', or the router's. */
static bool answers_for(const struct world *w, const uint8_t addr[16])
{
    if (w->opts.silent)
        return false;
    if (frame_is4(addr))
        return memcmp(addr, w->own4.b, 15) == 0 && memcmp(addr, w->own4.b, 16) != 0;
    return memcmp(addr, w->own6.b, 15) == 0 && memcmp(addr, w->own6.b, 16) != 0;
}

static size_t arp_answer(const struct world *w, const uint8_t *frame, size_t len, uint8_t *out)
{
    uint8_t target[16] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t zero[4];

    if (len < 42 || frame[21] != 1)
        return 0;
    memcpy(target + 12, frame + 38, 4);
    if (!answers_for(w, target) || memcmp(frame + 28, zero, 4) == 0)
        return 0; /* a probe (RFC 5227) is of the stack's own address */
    return station_arp(out, 2, station_mac, target + 12, frame + 22, frame + 28);
}

static size_t nd_answer(const struct world *w, const uint8_t *frame, size_t len, uint8_t *out)
{
    struct frame_ends ends;
    uint8_t *na = out + 54;
    uint16_t sum;

    if (len < 54 + 24 || frame[20] != 58 || frame[54] != 135 || !answers_for(w, frame + 62))
        return 0;
    memcpy(ends.src_mac, station_mac, 6);
    memcpy(ends.dst_mac, frame + 6, 6);
    memcpy(ends.src, frame + 62, 16);
    memcpy(ends.dst, frame + 22, 16);
    memset(na, 0, 32);
    na[0] = 136;
    na[4] = 0x60; /* solicited, override */
    memcpy(na + 8, frame + 62, 16);
    na[24] = 2; /* target link-layer address */
    na[25] = 1;
    memcpy(na + 26, station_mac, 6);
    sum = frame_l4_sum(&ends, 58, na, 32);
    na[2] = (uint8_t)(sum >> 8);
    na[3] = (uint8_t)sum;
    return frame_ip(out, &ends, 58, 32, 0, 255);
}

size_t station_answer(const struct world *w, const uint8_t *frame, size_t len, uint8_t *out)
{
    if (len < 14)
        return 0;
    if (frame[12] == 0x08 && frame[13] == 0x06)
        return arp_answer(w, frame, len, out);
    if (frame[12] == 0x86 && frame[13] == 0xdd)
        return nd_answer(w, frame, len, out);
    return 0;
}

size_t station_icmp_error(const struct world *w, uint8_t *out, const uint8_t *about,
                          size_t about_len, uint8_t type, uint8_t code, uint32_t mtu)
{
    struct frame_ends ends;
    bool ip6 = about[12] == 0x86;
    size_t quoted = about_len - 14;
    uint8_t *icmp;
    uint16_t sum;

    world_ends_in(w, ip6, &ends);
    if (quoted > (ip6 ? 1232u : 548u))
        quoted = ip6 ? 1232 : 548;
    icmp = out + frame_l4(&ends);
    memset(icmp, 0, 8);
    icmp[0] = type;
    icmp[1] = code;
    if (ip6) {
        icmp[4] = (uint8_t)(mtu >> 24);
        icmp[5] = (uint8_t)(mtu >> 16);
    }
    icmp[6] = (uint8_t)(mtu >> 8);
    icmp[7] = (uint8_t)mtu;
    memcpy(icmp + 8, about + 14, quoted);
    sum = ip6 ? frame_l4_sum(&ends, 58, icmp, 8 + quoted)
              : frame_fold(frame_sum(icmp, 8 + quoted, 0));
    icmp[2] = (uint8_t)(sum >> 8);
    icmp[3] = (uint8_t)sum;
    return frame_ip(out, &ends, ip6 ? 58 : 1, 8 + quoted, 0, 64);
}
