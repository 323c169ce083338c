/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: what happens to up to three connections of a peer after their handshakes, step by step:
 * segments of the peer, honest and not, ICMP errors, calls of the user's, and time. All payload of
 * the peer's is the pattern of its place in the stream, so that whatever is delivered can be
 * compared. What the stack sends is checked as in the conformance tests (test/tcp/peer.c): the
 * right edge never moves left, nothing is acknowledged that was not sent, payload is the user's.
 * Afterwards nothing is left. With TRACE=1 a failure shows all segments.
 */
#include "lib/base/minmax.h"
#include "test/fuzz/fuzz_calls.h"
#include "test/fuzz/fuzz_clock.h"
#include "test/fuzz/fuzz_stack.h"

#include <netinet/in.h>

enum step {
    HONEST,    /* the next bytes of the peer's */
    AHEAD,     /* bytes behind a gap */
    AGAIN,     /* bytes once more */
    ACK_SOME,  /* acknowledges some of what is out */
    SACK_SOME, /* SACKs some of it */
    WILD,      /* any flags, any numbers near the right ones */
    OPTIONS,   /* any bytes as options */
    ICMP,
    SEND,
    READ,
    GRANT,
    CLOSE,
    TIME,
    TIME_LONG,
    SHUT,   /* the peer's window changes */
    LENGTH, /* a segment that lies about its length */
    STEPS
};

static struct run run; /* its world is a copy of the process's */
static struct world *real;

/* Of each connection, beyond its chan. */
static struct life {
    uint32_t una;
    uint32_t fin_end[16]; /* behind the last FINs of the peer's */
    unsigned fins;
    bool reborn; /* a SYN made a new connection where the old one had ended */
} lives[3];

static struct life *life_of(const struct chan *c)
{
    return &lives[c - run.chan];
}

static struct chan *chan_at(uint16_t peer_port)
{
    for (unsigned i = 0; i < run.chans; i++)
        if (run.chan[i].peer_port == peer_port)
            return &run.chan[i];
    return NULL;
}

/* ---- the user ---- */

static void ignore(void *user)
{
    (void)user;
}

static void on_closed(void *user, enum stream_end end)
{
    (void)end;
    ((struct chan *)user)->closed++;
}

static const struct stream_events events = {.connected = ignore,
                                            .readable = ignore,
                                            .writable = ignore,
                                            .acked = ignore,
                                            .closed = on_closed};

static void on_accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    struct chan *c = chan_at(ntohs(peer->in.sin_port));

    (void)user;
    HOLDS(c);
    if (c->accepted)
        s->ops->close(s, true);
    else
        c->accepted = s;
}

/* Returns the pattern for a segment of the peer's, which may begin before the stream does. */
static const uint8_t *segment_bytes(uint32_t offset, size_t n)
{
    static uint8_t bytes[66000];

    if ((int32_t)offset >= 0)
        return pattern_from(offset, n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = *pattern_from(offset + (uint32_t)i, 1);
    return bytes;
}

static size_t do_read(struct chan *c, size_t most)
{
    struct mem_seg segs[8];
    unsigned nsegs;
    size_t truesize, n = c->s->ops->take(c->s, most, segs, 8, &nsegs, &truesize), at = 0;

    if (n == 0)
        return 0;
    for (unsigned i = 0; i < nsegs; at += segs[i++].len)
        HOLDS(memcmp(segs[i].addr, pattern_from(c->read + at, segs[i].len), segs[i].len) == 0);
    HOLDS(at == n && truesize >= n);
    c->read += n;
    HOLDS(c->read <= (uint32_t)(c->peer_sent - c->peer_isn - 1));
    c->s->ops->give_back(segs, nsegs);
    return n;
}

static void do_send(struct chan *c, uint32_t n)
{
    static uint8_t bytes[70000];
    struct mem_seg seg = {.addr = bytes, .len = n, .region = MEM_REGION_NONE};
    uint64_t before = c->sent;
    ssize_t rc;

    memcpy(bytes, pattern_from(before, n), n);
    c->sent += n;
    rc = c->s->ops->send(c->s, &seg, 1, false);
    HOLDS(rc <= (ssize_t)n);
    c->sent = before + (rc > 0 ? (uint64_t)rc : 0);
}

/* ---- the peer ---- */

/* The old connection has died; its user hears of it once all is read. */
static void must_be_told(struct chan *c)
{
    if (!c->s)
        return;
    while (c->closed == 0 && do_read(c, 1 << 20) > 0)
        world_settle(real);
    HOLDS(c->closed > 0);
}

/*
 * A new connection of the same ports is only let live when the old one has died. Numbers do not
 * tell the two apart: when no time has passed, the new one begins at the old one's.
 */
static bool is_reborn(struct chan *c, const struct frame_tcp *t)
{
    if ((t->flags & SYN) != 0 && c->accepted) {
        life_of(c)->reborn = true;
        must_be_told(c);
    }
    return life_of(c)->reborn;
}

static void look(void)
{
    struct world_frame *f;

    while ((f = world_take(real))) {
        struct frame_ends ends;
        struct frame_tcp t;
        struct chan *who, *c;
        struct life *l;

        HOLDS(frame_tcp_read(f->data, f->len, &ends, &t));
        HOLDS(!t.bad);
        c = chan_at(t.dport);
        HOLDS(c);
        if (is_reborn(c, &t)) {
            free(f);
            continue;
        }
        l = life_of(c);
        /* Behind a FIN the window has no meaning any more. */
        for (unsigned i = 0; i < min(l->fins, RTE_DIM(l->fin_end)); i++)
            if (l->fin_end[i] == t.ack)
                c->peer_fin = true, c->peer_end = l->fin_end[i];
        if (!peer_learn(&run, f, &t, &who) || who != c) {
            fprintf(stderr, "%s\n%s\n", run.why,
                    run.trace ? run.trace : "(TRACE=1 shows the segments)");
            abort();
        }
        free(f);
    }
}

static void feed(struct chan *c, struct frame_tcp *t)
{
    static uint8_t frame[70000];
    uint32_t end = t->seq + (uint32_t)t->len + ((t->flags & FIN) != 0);
    struct frame_ends ends;
    uint32_t edge;

    t->sport = c->peer_port;
    t->dport = c->own_port;
    t->data = segment_bytes(t->seq - c->peer_isn - 1, t->len);
    if ((int32_t)(end - c->peer_sent) > 0)
        c->peer_sent = end;
    if ((t->flags & FIN) != 0)
        life_of(c)->fin_end[life_of(c)->fins++ % RTE_DIM(life_of(c)->fin_end)] = end;
    if ((t->flags & ACK) != 0) {
        edge = t->ack + ((uint32_t)t->win << ((t->flags & SYN) != 0 ? 0 : c->peer_wscale));
        if ((int32_t)(edge - c->peer_edge) > 0)
            c->peer_edge = edge;
    }
    peer_addresses(c, &ends);
    world_feed(real, frame, frame_tcp_write(frame, &ends, t));
    look();
}

static void segment(struct chan *c, struct frame_tcp *t)
{
    t->win = c->peer_win;
    t->has_ts = true;
    t->ts_val = (uint32_t)(real->now_us / MS);
    t->ts_ecr = c->ts_seen;
}

static uint32_t own_sent(const struct chan *c)
{
    return c->own_isn + 1 + (uint32_t)c->sent;
}

static bool handshake(struct chan *c, bool keepalive)
{
    struct frame_tcp t = {.flags = SYN,
                          .seq = c->peer_isn,
                          .win = 65535,
                          .has_mss = true,
                          .mss = 1460,
                          .has_sackok = true,
                          .has_ts = true,
                          .has_wscale = true,
                          .wscale = 7,
                          .ts_val = (uint32_t)(real->now_us / MS)};

    c->peer_ts = c->peer_sack = c->peer_ws = c->peer_known = true;
    c->peer_wscale = 7;
    c->peer_sent = c->peer_isn + 1;
    feed(c, &t);
    if (!c->own_known)
        return false;
    t = (struct frame_tcp){.flags = ACK, .seq = c->peer_isn + 1, .ack = c->own_isn + 1};
    segment(c, &t);
    feed(c, &t);
    if (!c->accepted)
        return false;
    c->s = c->accepted;
    HOLDS(c->s->ops->attach(c->s, &events, c) == 0);
    c->s->ops->rx_window(c->s, 65536, 400000);
    if (keepalive)
        c->s->ops->established(c->s, -1);
    world_settle(real);
    look();
    return true;
}

/* ---- steps ---- */

static void data_step(struct chan *c, enum step what, struct input *in, uint32_t *una)
{
    uint32_t off = take_bytes(in, 2), n = take_bytes(in, 2) % 3000;
    struct frame_tcp t = {.flags = ACK | PSH, .seq = c->peer_sent, .ack = *una, .len = n + 1};

    segment(c, &t);
    if (what == AHEAD)
        t.seq += off % 30000;
    else if (what == AGAIN)
        t.seq = c->peer_isn + 1 + off % (c->peer_sent - c->peer_isn);
    else if (off % 64 == 63)
        t.flags |= FIN;
    /* A peer keeps to the window, and to its own place in the stream. */
    if ((int32_t)(t.seq + (uint32_t)t.len - c->edge) > 0)
        return;
    feed(c, &t);
}

static void ack_step(struct chan *c, enum step what, struct input *in, uint32_t *una)
{
    uint32_t out = own_sent(c) - *una, n = take_bytes(in, 2) + 1, m = take_bytes(in, 2) + 1;
    struct frame_tcp t = {.flags = ACK, .seq = c->peer_sent, .ack = *una};

    segment(c, &t);
    if (what == ACK_SOME && out > 0)
        *una = t.ack = *una + (n < out ? n : out);
    if (what == SACK_SOME && out > 2) {
        t.nsack = 1;
        t.sack[0].left = *una + n % (out - 1);
        t.sack[0].right = t.sack[0].left + 1 + m % (own_sent(c) - t.sack[0].left);
    }
    feed(c, &t);
}

static void wild_step(struct chan *c, enum step what, struct input *in)
{
    struct frame_tcp t = {.seq = c->peer_sent, .ack = own_sent(c)};

    segment(c, &t);
    t.flags = (uint8_t)take_bytes(in, 1);
    t.seq += take_bytes(in, 2) - 0x8000;
    t.ack += take_bytes(in, 2) - 0x8000;
    t.len = take_bytes(in, 1) * 8;
    t.urg = (uint16_t)take_bytes(in, 1);
    t.tos = (uint8_t)take_bytes(in, 1) & 3;
    if (take_bytes(in, 1) % 4 == 0)
        t.ts_val -= take_bytes(in, 2);
    if (what == OPTIONS) {
        t.has_ts = take_bytes(in, 1) % 2;
        t.raw_opt_len = take_bytes(in, 1) % 25;
        for (size_t i = 0; i < t.raw_opt_len; i++)
            t.raw_opt[i] = (uint8_t)take_bytes(in, 1);
    }
    if (what == LENGTH) {
        t.doff = (int)take_bytes(in, 1) % 16;
        t.ip_len = (int8_t)take_bytes(in, 1);
    }
    feed(c, &t);
}

static void icmp_step(struct chan *c, struct input *in)
{
    static const uint8_t type[2][4] = {{3, 11, 12, 3}, {1, 2, 3, 4}};
    uint8_t frame[2048];
    unsigned kind = take_bytes(in, 1), mtu = take_bytes(in, 2);
    size_t n;

    if (!c->last)
        return;
    n = station_icmp_error(real, frame, c->last->data, c->last->len, type[c->ip6][kind & 3],
                           (uint8_t)(kind >> 2 & 15), mtu);
    world_feed(real, frame, n);
    look();
}

/* Short times go from event to event. In long ones timers come up to an eighth late, as on a busy
 * reactor: the link timer alone has ten events a second. */
static void time_step(uint64_t us)
{
    uint64_t until = real->now_us + us;

    while (real->now_us < until) {
        if (us < SECOND)
            world_advance(real, until);
        else
            world_jump(real, min(until, real->now_us + us / 8));
        look();
    }
}

static void user_step(struct chan *c, enum step what, struct input *in)
{
    uint32_t n = take_bytes(in, 2);

    if (!c->s)
        return;
    if (what == READ)
        do_read(c, n + 1);
    else if (what == GRANT)
        c->s->ops->rx_window(c->s, n * 4u, n * 8u + 65536);
    else if (what == SEND)
        do_send(c, n % 20000 + 1);
    else if (n % 8 == 0 || c->closed > 0) {
        c->s->ops->close(c->s, n % 16 == 0);
        c->s = NULL;
    }
    world_settle(real);
    look();
}

static void steps(struct input *in)
{
    while (in->left > 0) {
        unsigned byte = take_bytes(in, 1);
        enum step what = byte % STEPS;
        struct chan *c = &run.chan[byte / STEPS % run.chans];
        uint32_t *una = &life_of(c)->una;

        switch (what) {
        case HONEST:
        case AHEAD:
        case AGAIN:
            data_step(c, what, in, una);
            break;
        case ACK_SOME:
        case SACK_SOME:
            ack_step(c, what, in, una);
            break;
        case WILD:
        case OPTIONS:
        case LENGTH:
            wild_step(c, what, in);
            break;
        case ICMP:
            icmp_step(c, in);
            break;
        case TIME:
            time_step((1 + take_bytes(in, 1)) * MS);
            break;
        case TIME_LONG:
            time_step((1 + take_bytes(in, 1) % 64) * SECOND);
            break;
        case SHUT:
            c->peer_win = (uint16_t)take_bytes(in, 2);
            break;
        default:
            user_step(c, what, in);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    static const char *const names[] = {"A", "B", "C"};
    unsigned how, n;

    real = stack_world(on_accepted);
    memset(&run, 0, sizeof(run));
    memset(lives, 0, sizeof(lives));
    run.w = *real;
    run.quiet = !getenv("TRACE");
    run.ip6 = take_bytes(&in, 1) & 1;
    how = take_bytes(&in, 1);
    n = 1 + (how >> 2) % RTE_DIM(lives);
    for (unsigned i = 0; i < n; i++) {
        struct chan *c = chan_add(&run, names[i]);

        c->host = world_peer(real, run.ip6)->b[15];
        if ((how & 1) != 0 && i == 0)
            c->peer_isn = 0xffffff00u;
        HOLDS(handshake(c, (how & 2) != 0));
        life_of(c)->una = c->own_isn + 1;
    }
    steps(&in);
    for (unsigned i = 0; i < n; i++) {
        struct chan *c = &run.chan[i];

        if (c->s)
            do_read(c, 1 << 20);
        if (c->s)
            c->s->ops->close(c->s, true);
        world_settle(real);
        look();
    }
    stack_end(real);
    for (unsigned i = 0; i < n; i++)
        free(run.chan[i].last);
    free(run.trace);
    return 0;
}
