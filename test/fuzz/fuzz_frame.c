/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: frames, each a byte of flags, two of length, and its bytes. They go the whole way: port,
 * ARP and neighbour discovery, IP, ICMP, TCP, and a user that accepts, reads all and sends some of
 * it back. Whatever they are, what comes out is well formed, and afterwards nothing is left.
 */
#include "lib/base/minmax.h"
#include "test/fuzz/fuzz_stack.h"

#include <netinet/in.h>

#define STREAMS_MAX 32

enum {
    TO_US = 1,     /* our hardware address as its destination */
    SUMS = 2,      /* checksums made right */
    LATER = 4,     /* 300 ms pass behind it */
    ADDRESSES = 8, /* from the peer to us by IP, to port 988 */
    TOGETHER = 16, /* in one burst with the next */
    FITS = 32,     /* TCP: the numbers are what the last segment of ours waits for */
};

static struct stream *stream[STREAMS_MAX];
static struct frame_tcp last; /* of ours */

/* ---- the user ---- */

static void on_readable(void *user)
{
    struct stream *s = *(struct stream **)user;
    struct mem_seg segs[8];
    unsigned nsegs;
    size_t truesize, n;

    while ((n = s->ops->take(s, 100000, segs, 8, &nsegs, &truesize)) > 0) {
        size_t sum = 0;

        for (unsigned i = 0; i < nsegs; i++)
            sum += segs[i].len;
        HOLDS(sum == n && truesize >= n);
        s->ops->send(s, segs, 1, false);
        s->ops->give_back(segs, nsegs);
    }
    s->ops->rx_window(s, 65536, 400000);
}

static void on_closed(void *user, enum stream_end end)
{
    struct stream **s = user;

    (void)end;
    (*s)->ops->close(*s, false);
    *s = NULL;
}

static void nothing(void *user)
{
    (void)user;
}

static const struct stream_events events = {.connected = nothing,
                                            .readable = on_readable,
                                            .writable = nothing,
                                            .acked = nothing,
                                            .closed = on_closed};

static void on_accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    (void)user, (void)peer;
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        if (stream[i])
            continue;
        stream[i] = s;
        if (s->ops->attach(s, &events, &stream[i]) == 0) {
            s->ops->rx_window(s, 65536, 400000);
            return;
        }
        stream[i] = NULL;
        break;
    }
    s->ops->close(s, true);
}

/* ---- frames made to pass ---- */

static void aim(const struct world *w, uint8_t *p, size_t len)
{
    if (len >= 34 + 4 && p[12] == 0x08 && p[13] == 0x00) {
        memcpy(p + 26, w->peer4.b + 12, 4);
        memcpy(p + 30, w->own4.b + 12, 4);
        if (p[23] == 6)
            p[36] = 988 >> 8, p[37] = 988 & 0xff;
    } else if (len >= 54 + 4 && p[12] == 0x86 && p[13] == 0xdd) {
        memcpy(p + 22, w->peer6.b, 16);
        memcpy(p + 38, w->own6.b, 16);
        if (p[20] == 6)
            p[56] = 988 >> 8, p[57] = 988 & 0xff;
    } else if (len >= 42 && p[12] == 0x08 && p[13] == 0x06) {
        memcpy(p + 38, w->own4.b + 12, 4);
    }
}

static void put32(uint8_t *at, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Initial sequence numbers are not to be guessed: without this nothing gets behind a handshake. */
static void fit(uint8_t *p, size_t len)
{
    bool ip6 = len >= 74 && p[12] == 0x86 && p[13] == 0xdd && p[20] == IPPROTO_TCP;
    bool ip4 = len >= 54 && p[12] == 0x08 && p[13] == 0x00 && p[23] == IPPROTO_TCP;
    uint8_t *tcp = p + (ip6 ? 54 : 34);
    uint32_t taken = (uint32_t)last.len + ((last.flags & SYN) != 0) + ((last.flags & FIN) != 0);

    if (!ip4 && !ip6)
        return;
    put32(tcp + 4, last.ack);
    put32(tcp + 8, last.seq + taken);
    /* Timestamps, where peers have them: behind two NOPs. */
    if (tcp + 32 <= p + len && (tcp[12] >> 4) >= 8 && tcp[22] == 8 && tcp[23] == 10)
        put32(tcp + 28, last.ts_val);
}

static void put_sum(uint8_t *at, uint16_t sum)
{
    at[0] = (uint8_t)(sum >> 8);
    at[1] = (uint8_t)sum;
}

static void mend_l4(const struct frame_ends *ends, uint8_t proto, uint8_t *l4, size_t len)
{
    if (proto == IPPROTO_TCP && len >= 20) {
        put_sum(l4 + 16, 0);
        put_sum(l4 + 16, frame_l4_sum(ends, proto, l4, len));
    } else if (proto == IPPROTO_ICMPV6 && len >= 4) {
        put_sum(l4 + 2, 0);
        put_sum(l4 + 2, frame_l4_sum(ends, proto, l4, len));
    } else if (proto == IPPROTO_ICMP && len >= 4) {
        put_sum(l4 + 2, 0);
        put_sum(l4 + 2, frame_fold(frame_sum(l4, len, 0)));
    }
}

static void mend(uint8_t *p, size_t len)
{
    struct frame_ends ends = {0};
    size_t hdr, total;

    if (len >= 34 && p[12] == 0x08 && p[13] == 0x00) {
        hdr = (p[14] & 15u) * 4u;
        total = (size_t)p[16] << 8 | p[17];
        if (hdr < 20 || total < hdr || 14 + total > len)
            return;
        put_sum(p + 24, 0);
        put_sum(p + 24, frame_fold(frame_sum(p + 14, hdr, 0)));
        ends.src[10] = ends.src[11] = ends.dst[10] = ends.dst[11] = 0xff;
        memcpy(ends.src + 12, p + 26, 4);
        memcpy(ends.dst + 12, p + 30, 4);
        mend_l4(&ends, p[23], p + 14 + hdr, total - hdr);
    } else if (len >= 54 && p[12] == 0x86 && p[13] == 0xdd) {
        total = (size_t)p[18] << 8 | p[19];
        if (54 + total > len)
            return;
        memcpy(ends.src, p + 22, 16);
        memcpy(ends.dst, p + 38, 16);
        mend_l4(&ends, p[20], p + 54, total);
    }
}

/* ---- an input ---- */

static void look_at_answers(struct world *w)
{
    struct world_frame *f;

    while ((f = world_take(w))) {
        struct frame_ends ends;

        HOLDS(frame_tcp_read(f->data, f->len, &ends, &last));
        if (last.bad)
            fprintf(stderr, "%s\n", last.bad);
        HOLDS(!last.bad);
        HOLDS(memcmp(ends.src_mac, world_mac, 6) == 0);
        free(f);
    }
}

static void one_frame(struct world *w, struct input *in)
{
    static uint8_t frame[4096];
    unsigned flags = take_bytes(in, 1);
    size_t len = take_bytes(in, 2);

    len = min(len, in->left);
    len = min(len, sizeof(frame));
    memcpy(frame, in->p, len);
    in->p += len;
    in->left -= len;
    if ((flags & TO_US) != 0 && len >= 6 && (frame[0] & 1) == 0)
        memcpy(frame, world_mac, 6);
    if ((flags & ADDRESSES) != 0)
        aim(w, frame, len);
    if ((flags & FITS) != 0)
        fit(frame, len);
    if ((flags & SUMS) != 0)
        mend(frame, len);
    if (len == 0)
        return;
    world_queue(w, frame, len);
    if ((flags & TOGETHER) == 0)
        world_settle(w);
    if ((flags & LATER) != 0)
        world_jump(w, w->now_us + 300 * MS);
    look_at_answers(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *w = stack_world(on_accepted);
    struct input in = {data, size};

    while (in.left > 3)
        one_frame(w, &in);
    world_settle(w);
    look_at_answers(w);
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        if (stream[i])
            stream[i]->ops->close(stream[i], true);
        stream[i] = NULL;
    }
    world_settle(w);
    look_at_answers(w);
    stack_end(w);
    return 0;
}
