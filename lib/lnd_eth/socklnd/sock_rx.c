/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frame receive machine, docs/protocol/socklnd.md §4.4. A connection whose message waits for the
 * core is not read: that is the back-pressure towards the sender. A transport that hands over
 * segments is told after each run how much its peer may send: what the core has memory for.
 */
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <assert.h>
#include <string.h>

#define RX_STEPS     128 /* per run, so that all connections get their share */
#define RX_RUN_BYTES (1u << 20)
#define RX_SEGS      64
#define RX_PACE      20 /* parts of a message: each that comes is progress */
#define RX_FEW       16 /* connections with much to read: more of them hold up what else is reported */
#define RX_UNIT      2048 /* bytes that cost as much as a step */

static const struct stream_ops *ops(const struct sock_conn *c)
{
    return c->stream->ops;
}

static bool takes(const struct sock_conn *c)
{
    return ops(c)->caps & STREAM_CAP_TAKE;
}

static void park(struct sock_conn *c)
{
    if (c->parked)
        return;
    c->parked = true;
    ops(c)->rx_pause(c->stream, true);
}

static void unpark(struct sock_conn *c)
{
    if (!c->parked)
        return;
    c->parked = false;
    ops(c)->rx_pause(c->stream, false);
}

/* More data has come on a connection that waits for its turn. It need not be reported again: the
 * reports of many such connections would delay those of others. */
static void hush(struct sock_conn *c)
{
    if (c->parked || c->quiet || c->shard->nmuch <= RX_FEW)
        return;
    c->quiet = true;
    ops(c)->rx_pause(c->stream, true);
}

static void unhush(struct sock_conn *c)
{
    if (!c->quiet)
        return;
    c->quiet = false;
    ops(c)->rx_pause(c->stream, false);
}

/* Between two messages. */
static void boundary(struct sock_conn *c)
{
    struct sock_ni_shard *ns = sock_ns(c->sp);

    c->rx_state = SOCK_RX_FRAME;
    c->rx_begun = false;
    if (c->draining) {
        c->draining = false;
        ns->begun--;
        lnd_ns_progress(&ns->base);
    }
}

/* ---- grants ---- */

static_assert(STREAM_FIRST_WINDOW <= LNET_GRANT_BASE, "a grant never promises less than before");

static void on_grant(struct lnet_grant *grant)
{
    struct sock_conn *c = container_of(grant, struct sock_conn, grant);

    unpark(c);
    sock_ready(c);
}

void sock_rx_open(struct sock_conn *c)
{
    if (!takes(c))
        return;
    if (c->base.initiated && !lnet_grant_has_room(c->shard->sock->base.node, ops(c)->rx_buffer))
        (void)lnd_evict(&c->shard->base, &c->sp->base);
    lnet_grant_open(&c->grant, c->shard->sock->base.node, ops(c)->rx_buffer, on_grant);
    c->rx.grant = &c->grant;
}

/* n bytes have left the transport's queue and take no memory any more. */
static void consumed(struct sock_conn *c, size_t n)
{
    if (takes(c))
        lnet_grant_consumed(&c->grant, (uint32_t)n);
}

static void skip(struct sock_conn *c, size_t n)
{
    ops(c)->skip(c->stream, n);
    consumed(c, n);
}

static void tell_window(struct sock_conn *c)
{
    uint32_t bytes, memory;

    if (!takes(c) || !lnet_grant_is_open(&c->grant))
        return;
    bytes = lnet_grant_window(&c->rx, &memory);
    ops(c)->rx_window(c->stream, bytes, memory);
}

/* ---- segments lent to the core ---- */

static void take_release(void *owner, struct lnet_sgl *sgl)
{
    struct sock_take *take = owner;

    take->ops->give_back(sgl->seg, sgl->n);
    lnd_pool_put(&take->shard->takes, take);
}

/* Returns segments that lie in the message itself. */
static void place_release(void *owner, struct lnet_sgl *sgl)
{
    const struct stream_ops *stream_ops = owner;

    stream_ops->give_back(sgl->seg, sgl->n);
}

static bool take_alloc(struct sock_conn *c)
{
    c->take = lnd_pool_get(&c->shard->takes);
    if (!c->take)
        return false;
    c->take->shard = c->shard;
    c->take->ops = c->stream->ops;
    for (unsigned i = 0; i < c->nsegs; i++)
        c->take->segs[i] = c->place[i];
    c->place = c->take->segs;
    return true;
}

/* Returns for how many more segments there is a place. A few lie in the message, more in a `take`.
 */
static unsigned place_room(struct sock_conn *c)
{
    if (!c->place) {
        c->nsegs = 0;
        c->place = lnet_rx_segs(&c->rx);
    }
    if (!c->take && (!c->place || c->nsegs == LNET_MD_MAX_SEGS) && !take_alloc(c))
        return 0;
    return (c->take ? SOCK_TAKE_SEGS : LNET_MD_MAX_SEGS) - c->nsegs;
}

static void give_back_place(struct sock_conn *c)
{
    if (!c->place)
        return;
    c->sp->sni->transport.ops->give_back(c->place, c->nsegs);
    c->place = NULL;
    if (c->take)
        lnd_pool_put(&c->shard->takes, c->take);
    c->take = NULL;
}

/* ---- payload ---- */

static bool checksummed(const struct sock_conn *c)
{
    /* The checksum is not verified when part of the payload is dropped, §4.6. */
    return c->frame.csum != 0 && c->mlen == c->rx.hdr.payload_len;
}

/* n bytes have been placed at the current position of the core's segments. */
static void advance(struct sock_conn *c, size_t n)
{
    bool sum = checksummed(c);

    c->left -= (uint32_t)n;
    while (n > 0) {
        const struct mem_seg *seg = &c->segs[c->seg];
        size_t part = seg->len - c->seg_off;

        part = part < n ? part : n;
        if (sum)
            c->crc = sock_crc32(c->crc, seg->addr + c->seg_off, part);
        c->seg_off += (uint32_t)part;
        n -= part;
        if (c->seg_off == seg->len) {
            c->seg++;
            c->seg_off = 0;
        }
    }
}

/* The rest of the core's segments, not more than is wanted. */
static unsigned remaining_segs(const struct sock_conn *c, struct mem_seg out[RX_SEGS])
{
    uint32_t left = c->left, off = c->seg_off;
    unsigned n = 0;

    for (unsigned i = c->seg; i < c->nsegs && left > 0 && n < RX_SEGS; i++) {
        uint32_t len = c->segs[i].len - off;

        if (len > left)
            len = left;
        if (len > 0)
            out[n++] = (struct mem_seg){c->segs[i].addr + off, len, c->segs[i].region, 0};
        left -= len;
        off = 0;
    }
    return n;
}

static void copy_to_core(struct sock_conn *c, const uint8_t *from, size_t n)
{
    while (n > 0) {
        const struct mem_seg *seg = &c->segs[c->seg];
        size_t part = seg->len - c->seg_off;

        if (part == 0) { /* an empty one */
            c->seg++;
            continue;
        }
        part = part < n ? part : n;
        memcpy(seg->addr + c->seg_off, from, part);
        advance(c, part);
        from += part;
        n -= part;
    }
}

/* Take mode, but the core wants the bytes in its own memory. */
static size_t take_and_copy(struct sock_conn *c)
{
    struct mem_seg segs[RX_SEGS];
    unsigned n = 0;
    size_t truesize, got = ops(c)->take(c->stream, c->left, segs, RX_SEGS, &n, &truesize);

    for (unsigned i = 0; i < n; i++)
        copy_to_core(c, segs[i].addr, segs[i].len);
    ops(c)->give_back(segs, n);
    consumed(c, got);
    return got;
}

/* There is no room for the message as segments: the core copies the segments so far, and the rest
 * is copied too. */
static void leave_take(struct sock_conn *c)
{
    unsigned n = c->place ? c->nsegs : 0;
    struct mem_seg few[LNET_MD_MAX_SEGS];

    if (n > 0 && !c->take) { /* lnet_rx_copy() overwrites the place */
        memcpy(few, c->place, n * sizeof(few[0]));
        c->place = few;
    }
    c->segs = lnet_rx_copy(&c->rx, n > 0 ? c->place : NULL, n);
    give_back_place(c);
    c->nsegs = 1;
    c->seg = 0;
    c->seg_off = c->mlen - c->left;
}

static size_t take_for_core(struct sock_conn *c)
{
    unsigned n = 0, room = place_room(c);
    bool sum = checksummed(c);
    size_t got, truesize;
    struct mem_seg *segs;

    if (room == 0) {
        leave_take(c);
        return take_and_copy(c);
    }
    segs = c->place + c->nsegs;
    got = ops(c)->take(c->stream, c->left, segs, room, &n, &truesize);
    for (unsigned i = 0; sum && i < n; i++)
        c->crc = sock_crc32(c->crc, segs[i].addr, segs[i].len);
    c->nsegs += n;
    c->left -= (uint32_t)got;
    if (!lnet_rx_took(&c->rx, (uint32_t)got, (uint32_t)truesize))
        leave_take(c);
    return got;
}

static size_t read_payload(struct sock_conn *c)
{
    struct mem_seg segs[RX_SEGS];
    size_t got;

    if (takes(c))
        return !c->segs ? take_for_core(c) : take_and_copy(c);
    got = ops(c)->read_into(c->stream, segs, remaining_segs(c, segs));
    advance(c, got);
    return got;
}

static size_t discard(struct sock_conn *c)
{
    struct mem_seg segs[RX_SEGS];
    size_t got, truesize;
    unsigned n = 0;

    if (takes(c)) {
        got = ops(c)->take(c->stream, c->slop, segs, RX_SEGS, &n, &truesize);
        ops(c)->give_back(segs, n);
        consumed(c, got);
    } else {
        segs[0] = (struct mem_seg){
            c->shard->scratch, c->slop < SOCK_SCRATCH ? c->slop : SOCK_SCRATCH, MEM_REGION_NONE, 0};
        got = ops(c)->read_into(c->stream, segs, 1);
    }
    c->slop -= (uint32_t)got;
    return got;
}

/* All payload that the core wanted has come. Sends the ZC-ACK first, then reports to the core; the
 * unwanted payload is discarded last. So a dropped message is acknowledged too (§4.4). */
static void payload_done(struct sock_conn *c)
{
    uint64_t cookie = sock_frame_zc_req(&c->frame);

    if (checksummed(c) && c->crc != c->frame.csum) {
        sock_conn_fail(c, SOCK_DROP(PAYLOAD_CSUM), &c->rx.hdr);
        return;
    }
    if (cookie != 0)
        sock_tx_ack(c, cookie);
    if (c->state != SOCK_CONN_UP)
        return;
    if (c->place) {
        c->rx.taken = (struct lnet_sgl){c->place, c->nsegs, c->mlen};
        c->rx.release = c->take ? take_release : place_release;
        c->rx.release_owner = c->take ? c->take : (void *)(uintptr_t)c->sp->sni->transport.ops;
        c->place = NULL;
        c->take = NULL;
    }
    c->rx_state = SOCK_RX_SLOP;
    lnet_recv_done(&c->rx, LNET_RESULT_OK);
    if (c->state == SOCK_CONN_UP && c->slop == 0)
        boundary(c);
}

/* ---- headers ---- */

/* We never ask for an acknowledgement, so that any acknowledgement is an error (§4.5). */
static enum lnet_drop check_zc_ack(const struct sock_frame *frame)
{
    uint64_t count;
    enum lnet_drop drop = sock_frame_zc_ack(frame, &count);

    if (drop == LNET_DROP_NONE && count > 0)
        drop = SOCK_DROP(ZC_ACK);
    return drop;
}

static bool step_frame(struct sock_conn *c)
{
    const uint8_t *p;
    enum lnet_drop drop;
    size_t n;

    if (lnd_ns_is_shut(c->sp->base.ns) || c->nacks == SOCK_ACKS ||
        (takes(c) && !lnet_grant_is_open(&c->grant))) {
        park(c);
        return false;
    }
    n = ops(c)->peek(c->stream, SOCK_FRAME_SIZE, &p);
    c->rx_begun = n > 0;
    if (n < SOCK_FRAME_SIZE)
        return false;
    drop = sock_frame_decode(p, &c->frame);
    skip(c, SOCK_FRAME_SIZE);
    if (drop == LNET_DROP_NONE)
        drop = check_zc_ack(&c->frame);
    if (drop != LNET_DROP_NONE) {
        sock_conn_fail(c, drop, NULL);
        return false;
    }
    if (c->frame.type == SOCK_FRAME_NOOP)
        c->rx_begun = false;
    else
        c->rx_state = SOCK_RX_HDR;
    return true;
}

static bool step_hdr(struct sock_conn *c)
{
    bool large = c->sp->version == SOCK_HELLO_V4;
    size_t size = large ? LNET_HDR16_SIZE : LNET_HDR4_SIZE;
    const uint8_t *p;
    enum lnet_drop drop;

    if (ops(c)->peek(c->stream, size, &p) < size)
        return false;
    drop = large ? lnet_hdr_decode16(p, &c->rx.hdr) : lnet_hdr_decode4(p, &c->rx.hdr);
    skip(c, size);
    if (drop == LNET_DROP_NONE) {
        c->rx_state = SOCK_RX_PARSE;
        c->rx.ni = c->sp->sni->base.ni;
        c->rx.from = c->sp->base.peer;
        c->rx.rdma_get = false;
        c->rx.taken = (struct lnet_sgl){0};
        c->rx.release = NULL;
        drop = lnet_parse(&c->rx);
        if (drop == LNET_DROP_NONE)
            return true;
        c->rx_state = SOCK_RX_HDR;
    }
    sock_conn_fail(c, drop, &c->rx.hdr);
    return false;
}

/* A byte now and then is no progress: the sender would keep a buffer from others for nothing. A
 * sender at this pace has sent all before the core takes the message for stalled. */
static void note_progress(struct sock_conn *c)
{
    if (c->paced_left - c->left <= c->mlen / RX_PACE)
        return;
    c->paced_left = c->left;
    c->rx.progress_us = reactor_now_us();
}

static bool step(struct sock_conn *c, size_t *bytes)
{
    size_t got;

    switch (c->rx_state) {
    case SOCK_RX_FRAME:
        return step_frame(c);
    case SOCK_RX_HDR:
        return step_hdr(c);
    case SOCK_RX_PARSE:
        return false;
    case SOCK_RX_PAYLOAD:
        if (c->left == 0) {
            payload_done(c);
            return true;
        }
        got = read_payload(c);
        note_progress(c);
        break;
    case SOCK_RX_SLOP:
    default:
        got = discard(c);
        if (c->slop == 0)
            boundary(c);
        break;
    }
    *bytes += got;
    return got > 0;
}

void sock_rx_run(struct sock_conn *c)
{
    unsigned steps = 0;
    size_t bytes = 0;
    bool more = true;

    if (c->in_rx || c->state != SOCK_CONN_UP)
        return;
    c->in_rx = true;
    sock_conn_hold(c);
    unhush(c);
    while (more && c->state == SOCK_CONN_UP && steps++ < RX_STEPS && bytes < RX_RUN_BYTES)
        more = step(c, &bytes);
    c->in_rx = false;
    c->shard->spent += steps + bytes / RX_UNIT;
    if (c->state == SOCK_CONN_UP)
        tell_window(c);
    if (more && c->state == SOCK_CONN_UP)
        sock_much(c);
    sock_conn_release(c);
}

void sock_rx_readable(struct sock_conn *c)
{
    uint64_t now = reactor_now_us();

    prefetch_write(c->sp->base.peer, 2 * CPU_BLOCK);
    c->rx_us = now;
    c->sp->alive_us = now;
    c->sp->base.peer->last_alive_us = now;
    if (c->rx_state == SOCK_RX_PARSE)
        park(c);
    else if (c->ready == SOCK_MUCH)
        hush(c);
    else
        sock_rx_run(c);
}

/* Continues to read on a connection that stopped because it owed too many acknowledgements. */
void sock_rx_resume(struct sock_conn *c)
{
    if (c->parked && c->rx_state == SOCK_RX_FRAME && c->nacks < SOCK_ACKS &&
        !lnd_ns_is_shut(c->sp->base.ns)) {
        unpark(c);
        sock_ready(c);
    }
}

/* ---- the core's side ---- */

static struct lnet_result incomplete(const struct sock_conn *c)
{
    enum lnet_drop why =
        lnd_ns_is_stopping(c->sp->base.ns) ? LNET_DROP_SHUTDOWN : LNET_DROP_RX_INCOMPLETE;

    return (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR};
}

void sock_rx_recv(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen)
{
    struct sock_conn *c = container_of(rx, struct sock_conn, rx);

    assert(c->rx_state == SOCK_RX_PARSE && mlen <= rx->hdr.payload_len);
    c->segs = segs;
    c->nsegs = nsegs;
    c->seg = 0;
    c->seg_off = 0;
    c->mlen = mlen;
    c->left = mlen;
    c->paced_left = mlen;
    c->slop = rx->hdr.payload_len - mlen;
    c->crc = SOCK_CRC_SEED;
    c->rx_us = reactor_now_us();
    if (c->state == SOCK_CONN_DEAD) {
        sock_conn_hold(c);
        boundary(c);
        lnet_recv_done(rx, incomplete(c));
        sock_conn_release(c);
        return;
    }
    c->rx_state = SOCK_RX_PAYLOAD;
    if (!c->in_rx) {
        unpark(c);
        sock_ready(c);
    }
}

/* Returns whether bytes wait: a transport may collect some before it reports them. */
static bool unread(const struct sock_conn *c)
{
    const uint8_t *p;

    return ops(c)->peek(c->stream, 1, &p) > 0;
}

enum lnet_abandon sock_rx_give_up(struct lnet_rx *rx, bool too_long)
{
    struct sock_conn *c = container_of(rx, struct sock_conn, rx);

    if (c->state != SOCK_CONN_UP || c->rx_state != SOCK_RX_PAYLOAD || c->left == 0)
        return LNET_ABANDON_NOT;
    if (!too_long && unread(c)) {
        sock_ready(c);
        return LNET_ABANDON_NOT;
    }
    give_back_place(c);
    c->slop += c->left;
    c->mlen -= c->left;
    c->left = 0;
    c->segs = NULL;
    c->nsegs = 0;
    if (takes(c)) {
        while (discard(c) > 0)
            ;
        tell_window(c); /* the peer may send less from now on */
    }
    sock_ready(c); /* payload_done() acknowledges and reports it like an unwanted message */
    return LNET_ABANDON_DONE;
}

void sock_rx_abandon(struct sock_conn *c, const struct lnd_close *why)
{
    struct lnet_result result = {why->rx, LNET_HEALTH_REMOTE_ERROR};

    lnet_grant_close(&c->grant);
    if (c->rx_state == SOCK_RX_PARSE)
        return; /* sock_rx_let_go() */
    if (c->rx_state == SOCK_RX_PAYLOAD) {
        give_back_place(c);
        c->rx_state = SOCK_RX_SLOP;
        lnet_recv_done(&c->rx, result);
    }
    boundary(c);
}

bool sock_rx_let_go(struct sock_conn *c)
{
    if (c->rx_state != SOCK_RX_PARSE)
        return true;
    if (c->rx_asked)
        return false;
    c->rx_asked = true;
    if (!lnet_rx_cancel(&c->rx))
        return false;
    boundary(c);
    return true;
}
