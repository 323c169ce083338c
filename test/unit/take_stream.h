/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of a stream transport that hands over segments: as a TCP whose receive buffers are all of
 * one size, whatever is in them, whose segments come in any order, which sends no byte more than it
 * was allowed to, and keeps to the memory that it was given. The test is the network and the peer.
 */
#ifndef MILLRACE_TAKE_STREAM_H
#define MILLRACE_TAKE_STREAM_H

#include "test/unit/lnet_test.h"

#include <errno.h>

#include "lib/lnd_eth/stream.h"

#define ROOM   2048u /* payload in a buffer */
#define BUFFER 2304u
#define PEERS  200

/* ---- the transport: a stream and the peer behind it ---- */

struct buf { /* at an address that its bytes tell */
    uint32_t refs;
    int reactor; /* whose budget it is counted in; -1: the transport's own */
    uint8_t data[ROOM];
};

struct chunk {
    struct buf *buf;
    uint32_t off, len;
};

struct wire {
    struct stream base;
    struct reactor *reactor;
    const struct stream_events *ev;
    void *user;
    union stream_addr addr;
    bool open, paused, told, readable, ended;
    uint8_t header[STREAM_PEEK_MAX];
    struct chunk *queue; /* in order */
    uint32_t head, tail;
    uint32_t nbufs; /* in queue and out of order */
    uint64_t consumed, edge, memory;
    uint64_t squeezed, refused; /* how often buffers were copied together; segments not accepted */
    /* the peer: all it will ever say, cut into segments */
    struct lnet_nid nid;
    uint8_t *script;
    uint64_t len;
    uint32_t mss, nsegs, next; /* next: the first segment that is not in order yet */
    struct buf **early;        /* by segment: came out of order */
};

static const struct stream_ops ops;
static struct wire wires[PEERS];
static unsigned nwires;
static uint64_t in_use[REACTOR_MAX]; /* bytes of buffers */
static struct stream_listener listener;
static struct reactor *listen_on;
static void (*on_accept)(void *user, struct stream *s, const union stream_addr *peer);
static void *accept_user;

static uint64_t rnd_state;

static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rnd_state >> 33) % n;
}

static struct buf *buf_new(int reactor)
{
    struct buf *b = NULL;

    assert_int_equal(posix_memalign((void **)&b, 4096, sizeof(*b)), 0);
    b->refs = 1;
    b->reactor = reactor;
    if (reactor >= 0)
        in_use[reactor] += BUFFER;
    return b;
}

/* From the transport's own memory into the budget. */
static void buf_adopt(struct buf *b)
{
    if (b->reactor >= 0)
        return;
    b->reactor = (int)reactor_index(reactor_self());
    in_use[b->reactor] += BUFFER;
}

static void buf_put(struct buf *b)
{
    if (--b->refs > 0)
        return;
    if (b->reactor >= 0)
        in_use[b->reactor] -= BUFFER;
    free(b);
}

static struct buf *buf_of(const uint8_t *addr)
{
    return (struct buf *)((uintptr_t)addr & ~4095ull);
}

static struct wire *wire(struct stream *s)
{
    return container_of(s, struct wire, base);
}

static int owner(const struct wire *w)
{
    return w->told ? (int)reactor_index(w->reactor) : -1;
}

static uint32_t seg_len(const struct wire *w, uint32_t i)
{
    uint64_t at = (uint64_t)i * w->mss;

    return w->len - at < w->mss ? (uint32_t)(w->len - at) : w->mss;
}

static void push(struct wire *w, struct buf *b, uint32_t len)
{
    w->queue[w->tail++] = (struct chunk){b, 0, len};
}

static void append(struct wire *w, const uint8_t *p, uint32_t len)
{
    while (len > 0) {
        struct chunk *last = w->tail > 0 ? &w->queue[w->tail - 1] : NULL;
        uint32_t n;

        if (!last || last->len == ROOM) {
            push(w, buf_new(owner(w)), 0);
            w->nbufs++;
            continue;
        }
        n = len < ROOM - last->len ? len : ROOM - last->len;
        memcpy(last->buf->data + last->len, p, n);
        last->len += n;
        p += n;
        len -= n;
    }
}

/* Copies what is in order into as few buffers as it takes. */
static void squeeze(struct wire *w)
{
    uint32_t i, n = w->tail - w->head;
    struct chunk *old = malloc(n * sizeof(*old) + 1);

    memcpy(old, w->queue + w->head, n * sizeof(*old));
    w->head = w->tail = 0;
    for (i = 0; i < n; i++) {
        append(w, old[i].buf->data + old[i].off, old[i].len);
        buf_put(old[i].buf);
        w->nbufs--;
    }
    free(old);
    w->squeezed++;
}

/* To what it may occupy. What is in order and was accepted has room. */
static void fit(struct wire *w)
{
    uint32_t i = w->nsegs;

    if (!w->told || w->nbufs * BUFFER <= w->memory)
        return;
    squeeze(w);
    while (w->nbufs * BUFFER > w->memory) {
        do {
            assert_true(i > w->next);
            i--;
        } while (!w->early[i]);
        buf_put(w->early[i]);
        w->early[i] = NULL;
        w->nbufs--;
        w->refused++;
    }
}

static bool may_come(const struct wire *w, uint32_t i)
{
    return w->open && i < w->nsegs && i >= w->next && !w->early[i] &&
           (uint64_t)i * w->mss + seg_len(w, i) <= w->edge;
}

/* A segment comes. */
static void deliver(struct wire *w, uint32_t i)
{
    struct buf *b = buf_new(owner(w));

    assert_true(may_come(w, i));
    memcpy(b->data, w->script + (uint64_t)i * w->mss, seg_len(w, i));
    w->early[i] = b;
    w->nbufs++;
    fit(w); /* it may be this one that has no room */
    for (; w->next < w->nsegs && w->early[w->next]; w->next++) {
        push(w, w->early[w->next], seg_len(w, w->next));
        w->early[w->next] = NULL;
        w->readable = true;
    }
}

static void drop_all(struct wire *w)
{
    uint32_t i;

    for (; w->head < w->tail; w->head++)
        buf_put(w->queue[w->head].buf);
    for (i = w->next; i < w->nsegs; i++)
        if (w->early[i])
            buf_put(w->early[i]);
    w->next = w->nsegs;
    w->nbufs = 0;
}

/* ---- what socklnd calls ---- */

static int w_listen(void *ctx, const union stream_addr *addr, const char *ifname,
                    struct reactor *on,
                    void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
                    void *user, struct stream_listener **out)
{
    listen_on = on;
    on_accept = accepted;
    accept_user = user;
    listener.ops = &ops;
    *out = &listener;
    return 0;
}

static void w_unlisten(struct stream_listener *l)
{
    listen_on = NULL;
}

static int w_connect(void *ctx, const union stream_addr *local, const char *ifname,
                     const union stream_addr *remote, int tos, const struct stream_events *ev,
                     void *user, struct stream **out)
{
    return -ECONNREFUSED;
}

static int w_attach(struct stream *s, const struct stream_events *ev, void *user)
{
    wire(s)->reactor = reactor_self();
    wire(s)->ev = ev;
    wire(s)->user = user;
    return 0;
}

static void w_detach(struct stream *s)
{
    wire(s)->reactor = NULL;
}

static void w_established(struct stream *s, int tos)
{
}

static size_t w_peek(struct stream *s, size_t want, const uint8_t **p)
{
    struct wire *w = wire(s);
    size_t n = 0;
    uint32_t i;

    assert_true(want <= STREAM_PEEK_MAX);
    for (i = w->head; i < w->tail && n < want; i++) {
        const struct chunk *c = &w->queue[i];
        size_t part = c->len < want - n ? c->len : want - n;

        memcpy(w->header + n, c->buf->data + c->off, part);
        n += part;
    }
    *p = w->header;
    return n;
}

/* Takes up to n bytes from the front of the queue's first buffer; the reference is the caller's. */
static struct chunk pop(struct wire *w, size_t n)
{
    struct chunk *c = &w->queue[w->head], out = *c;

    if (n < c->len) {
        out.len = (uint32_t)n;
        out.buf->refs++;
        c->off += out.len;
        c->len -= out.len;
    } else {
        w->head++;
        w->nbufs--;
    }
    w->consumed += out.len;
    return out;
}

static void w_skip(struct stream *s, size_t n)
{
    while (n > 0) {
        struct chunk c = pop(wire(s), n);

        n -= c.len;
        buf_put(c.buf);
    }
}

static size_t w_take(struct stream *s, size_t max, struct mem_seg *segs, unsigned maxsegs,
                     unsigned *nsegs, size_t *truesize)
{
    struct wire *w = wire(s);
    size_t done = 0;

    *nsegs = 0;
    while (w->head < w->tail && done < max && *nsegs < maxsegs) {
        struct chunk c = pop(w, max - done);

        segs[(*nsegs)++] = (struct mem_seg){c.buf->data + c.off, c.len, MEM_REGION_NONE, 0};
        buf_adopt(c.buf);
        done += c.len;
    }
    *truesize = (size_t)*nsegs * BUFFER;
    return done;
}

static void w_give_back(struct mem_seg *segs, unsigned nsegs)
{
    unsigned i;

    for (i = 0; i < nsegs; i++) {
        struct buf *b = buf_of(segs[i].addr);

        assert_int_equal(b->reactor, (int)reactor_index(reactor_self()));
        buf_put(b);
    }
}

static void w_window(struct stream *s, size_t bytes, size_t memory)
{
    struct wire *w = wire(s);
    uint32_t i;

    assert_true(w->consumed + bytes >= w->edge); /* never taken back */
    if (!w->told) {
        w->told = true;
        for (i = w->head; i < w->tail; i++)
            buf_adopt(w->queue[i].buf);
        for (i = w->next; i < w->nsegs; i++)
            if (w->early[i])
                buf_adopt(w->early[i]);
    }
    w->edge = w->consumed + bytes;
    w->memory = memory;
    fit(w);
}

static void w_pause(struct stream *s, bool pause)
{
    wire(s)->paused = pause;
    if (!pause && wire(s)->head < wire(s)->tail)
        wire(s)->readable = true;
}

static ssize_t w_send(struct stream *s, const struct mem_seg *segs, unsigned nsegs, bool more)
{
    ssize_t n = 0;
    unsigned i;

    for (i = 0; i < nsegs; i++)
        n += segs[i].len;
    return n;
}

static void w_stats(struct stream *s, struct stream_stats *out)
{
    *out = (struct stream_stats){0};
}

static void w_close(struct stream *s, bool abort)
{
    drop_all(wire(s));
    wire(s)->open = false;
    wire(s)->reactor = NULL;
}

static const struct stream_ops ops = {
    .name = "model",
    .caps = STREAM_CAP_TAKE,
    .rx_buffer = BUFFER,
    .listen = w_listen,
    .unlisten = w_unlisten,
    .connect = w_connect,
    .attach = w_attach,
    .detach = w_detach,
    .established = w_established,
    .peek = w_peek,
    .skip = w_skip,
    .take = w_take,
    .give_back = w_give_back,
    .rx_window = w_window,
    .rx_pause = w_pause,
    .send = w_send,
    .stats = w_stats,
    .close = w_close,
};

#endif
