/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the file, whole, in memory ---- */

struct blob {
    uint8_t *data;
    size_t len;
};

static bool read_all(int fd, struct blob *out)
{
    size_t cap = 1 << 20;
    ssize_t n;

    out->len = 0;
    out->data = malloc(cap);
    while (out->data) {
        n = read(fd, out->data + out->len, cap - out->len);
        if (n <= 0)
            return n == 0;
        out->len += (size_t)n;
        if (out->len == cap)
            out->data = realloc(out->data, cap *= 2);
    }
    return false;
}

static bool read_xz(const char *path, struct blob *out)
{
    char xz[] = "xz", how[] = "-dc", end[] = "--";
    char *const argv[] = {xz, how, end, (char *)(uintptr_t)path, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2], status = -1;
    bool ok = false;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    if (posix_spawnp(&pid, "xz", &actions, NULL, argv, environ) == 0) {
        close(fds[1]);
        fds[1] = -1;
        ok = read_all(fds[0], out);
        waitpid(pid, &status, 0);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(fds[0]);
    if (fds[1] >= 0)
        close(fds[1]);
    return ok && status == 0;
}

static bool read_plain(const char *path, struct blob *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok;

    if (fd < 0)
        return false;
    ok = read_all(fd, out);
    close(fd);
    return ok;
}

static bool has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && strcmp(s + n - k, suffix) == 0;
}

/* ---- packets ---- */

#define LINK_ETHERNET 1
#define LINK_RAW      101
#define LINK_SLL      113
#define LINK_SLL2     276

struct sink {
    segment_fn segment; /* one of the two */
    datagram_fn datagram;
    void *arg;
    uint64_t now; /* of the packet, microseconds */
    unsigned per_us;
    bool swapped; /* file written on a machine of the other byte order */
};

static uint16_t be16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)be16(p) << 16 | be16(p + 2);
}

/* cap: bytes there are; len: bytes there were. */
static void tcp_packet(const struct sink *sink, struct tcp_segment *seg, const uint8_t *p,
                       size_t cap, size_t len)
{
    size_t hdr;

    if (cap < 20)
        return;
    hdr = (size_t)(p[12] >> 4) * 4;
    if (hdr < 20 || hdr > cap || hdr > len)
        return;
    seg->src.port = be16(p);
    seg->dst.port = be16(p + 2);
    seg->seq = be32(p + 4);
    seg->fin = p[13] & 1;
    seg->syn = p[13] & 2;
    seg->rst = p[13] & 4;
    seg->ack = p[13] & 16;
    seg->len = len - hdr;
    seg->captured = cap - hdr < seg->len ? cap - hdr : seg->len;
    seg->data = p + hdr;
    sink->segment(sink->arg, seg);
}

static void udp_packet(const struct sink *sink, const struct tcp_segment *seg, const uint8_t *p,
                       size_t cap, size_t len)
{
    struct udp_datagram d = {.ipv6 = seg->ipv6, .src = seg->src, .dst = seg->dst};

    if (cap < 8 || be16(p + 4) < 8 || be16(p + 4) > len)
        return;
    d.time_us = sink->now;
    d.src.port = be16(p);
    d.dst.port = be16(p + 2);
    d.len = (size_t)be16(p + 4) - 8;
    d.captured = cap - 8 < d.len ? cap - 8 : d.len;
    d.data = p + 8;
    sink->datagram(sink->arg, &d);
}

static bool is_wanted(const struct sink *sink, unsigned protocol)
{
    return protocol == (sink->segment ? 6 : 17);
}

static void transport_packet(const struct sink *sink, struct tcp_segment *seg, const uint8_t *p,
                             size_t cap, size_t len)
{
    if (sink->segment)
        tcp_packet(sink, seg, p, cap, len);
    else
        udp_packet(sink, seg, p, cap, len);
}

static void ipv4_packet(const struct sink *sink, const uint8_t *p, size_t cap, size_t len)
{
    struct tcp_segment seg = {0};
    size_t hdr, total;

    if (cap < 20)
        return;
    hdr = (size_t)(p[0] & 15) * 4;
    total = be16(p + 2);
    if (total == 0) /* cut into frames only below the place of recording */
        total = len;
    /* Fragments never carry this traffic: the nodes use path MTU discovery. */
    if (!is_wanted(sink, p[9]) || hdr < 20 || hdr > cap || total < hdr ||
        (be16(p + 6) & 0x3fff) != 0)
        return;
    memcpy(seg.src.addr, p + 12, 4);
    memcpy(seg.dst.addr, p + 16, 4);
    if (cap > total)
        cap = total; /* Ethernet padding */
    transport_packet(sink, &seg, p + hdr, cap - hdr, total - hdr);
}

static void ipv6_packet(const struct sink *sink, const uint8_t *p, size_t cap, size_t len)
{
    struct tcp_segment seg = {.ipv6 = true};
    size_t total;

    if (cap < 40 || !is_wanted(sink, p[6]))
        return;
    total = 40 + (size_t)be16(p + 4);
    if (total == 40)
        total = len;
    memcpy(seg.src.addr, p + 8, 16);
    memcpy(seg.dst.addr, p + 24, 16);
    if (cap > total)
        cap = total;
    transport_packet(sink, &seg, p + 40, cap - 40, total - 40);
}

static void ip_packet(const struct sink *sink, unsigned ethertype, const uint8_t *p, size_t cap,
                      size_t len)
{
    if (ethertype == 0x0800)
        ipv4_packet(sink, p, cap, len);
    else if (ethertype == 0x86dd)
        ipv6_packet(sink, p, cap, len);
}

static void packet(const struct sink *sink, uint32_t link, const uint8_t *p, size_t cap, size_t len)
{
    size_t hdr, type_at;

    switch (link) {
    case LINK_ETHERNET:
        hdr = 14;
        type_at = 12;
        while (cap >= hdr + 4 && (be16(p + type_at) == 0x8100 || be16(p + type_at) == 0x88a8)) {
            hdr += 4;
            type_at += 4;
        }
        break;
    case LINK_SLL:
        hdr = 16;
        type_at = 14;
        break;
    case LINK_SLL2:
        hdr = 20;
        type_at = 0;
        break;
    case LINK_RAW:
        if (cap > 0)
            ip_packet(sink, p[0] >> 4 == 4 ? 0x0800 : 0x86dd, p, cap, len);
        return;
    default:
        return;
    }
    if (cap >= hdr && len >= hdr)
        ip_packet(sink, be16(p + type_at), p + hdr, cap - hdr, len - hdr);
}

/* ---- file formats ---- */

static uint32_t get32(const struct sink *sink, const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, 4);
    return sink->swapped ? __builtin_bswap32(v) : v;
}

static uint16_t get16(const struct sink *sink, const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, 2);
    return sink->swapped ? __builtin_bswap16(v) : v;
}

static const char *read_pcap(struct sink *sink, const uint8_t *p, size_t len)
{
    uint32_t link;
    size_t pos = 24;

    if (len < 24)
        return "shorter than a pcap header";
    link = get32(sink, p + 20) & 0x0fffffff;
    if (link != LINK_ETHERNET && link != LINK_RAW && link != LINK_SLL && link != LINK_SLL2)
        return "unknown link type";
    while (len - pos >= 16) {
        size_t cap = get32(sink, p + pos + 8), orig = get32(sink, p + pos + 12);

        sink->now =
            get32(sink, p + pos) * UINT64_C(1000000) + get32(sink, p + pos + 4) / sink->per_us;
        pos += 16;
        if (len - pos < cap)
            return "ends in the middle of a packet";
        packet(sink, link, p + pos, cap, orig);
        pos += cap;
    }
    return pos == len ? NULL : "ends in the middle of a packet";
}

#define NG_SECTION   0x0a0d0d0au
#define NG_INTERFACE 1
#define NG_SIMPLE    3
#define NG_ENHANCED  6
#define NG_LINKS_MAX 64

static const char *read_pcapng(struct sink *sink, const uint8_t *p, size_t len)
{
    uint32_t links[NG_LINKS_MAX] = {0};
    unsigned nlinks = 0;
    size_t pos = 0;

    while (len - pos >= 12) {
        uint32_t type = get32(sink, p + pos), size, cap;

        if (type == NG_SECTION) {
            uint32_t order;

            memcpy(&order, p + pos + 8, 4);
            sink->swapped = order != 0x1a2b3c4d;
            nlinks = 0;
        }
        size = get32(sink, p + pos + 4);
        if (size < 12 || size % 4 != 0 || len - pos < size)
            return "broken block in a pcapng file";
        if (type == NG_INTERFACE && size >= 20 && nlinks < NG_LINKS_MAX) {
            links[nlinks++] = get16(sink, p + pos + 8);
        } else if (type == NG_ENHANCED && size >= 32) {
            uint32_t iface = get32(sink, p + pos + 8);

            cap = get32(sink, p + pos + 20);
            if (cap > size - 32 || iface >= nlinks)
                return "broken packet block in a pcapng file";
            packet(sink, links[iface], p + pos + 28, cap, get32(sink, p + pos + 24));
        } else if (type == NG_SIMPLE) {
            return "simple packet blocks are not understood";
        }
        pos += size;
    }
    return pos == len ? NULL : "ends in the middle of a block";
}

static const char *read_any(struct sink *sink, const uint8_t *p, size_t len)
{
    uint32_t magic;

    if (len < 4)
        return "empty";
    memcpy(&magic, p, 4);
    sink->per_us = magic == 0x4d3cb2a1 || magic == 0xa1b23c4d ? 1000 : 1;
    switch (magic) {
    case 0xd4c3b2a1:
    case 0x4d3cb2a1: /* nanoseconds */
        sink->swapped = true;
        return read_pcap(sink, p, len);
    case 0xa1b2c3d4:
    case 0xa1b23c4d:
        return read_pcap(sink, p, len);
    case NG_SECTION:
        return read_pcapng(sink, p, len);
    default:
        return "neither pcap nor pcapng";
    }
}

static const char *read_file(struct sink *sink, const char *path)
{
    struct blob blob = {0};
    const char *why = "cannot be read";

    if (has_suffix(path, ".xz") ? read_xz(path, &blob) : read_plain(path, &blob))
        why = read_any(sink, blob.data, blob.len);
    free(blob.data);
    return why;
}

const char *capture_read(const char *path, segment_fn fn, void *arg)
{
    struct sink sink = {.segment = fn, .arg = arg};

    return read_file(&sink, path);
}

const char *capture_read_udp(const char *path, datagram_fn fn, void *arg)
{
    struct sink sink = {.datagram = fn, .arg = arg};

    return read_file(&sink, path);
}
