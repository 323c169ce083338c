/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transmit queue of a connection, docs/protocol/socklnd.md §4.7: a frame once begun is finished,
 * then come NOOPs, then messages in order. As many frames as fit go out with one call.
 */
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <assert.h>
#include <errno.h>

#define TX_SEGS   64
#define TX_NOOPS  16
#define TX_HDRS   32
#define TX_ROUNDS 16 /* calls per run, so that all connections get their share */

struct tx_batch {
    struct mem_seg segs[TX_SEGS];
    unsigned nsegs;
    size_t bytes;
    bool more; /* frames are left that did not fit */
    unsigned nnoops, nhdrs;
    uint8_t noops[TX_NOOPS][SOCK_FRAME_SIZE];
    uint8_t hdrs[TX_HDRS][SOCK_FRAME_SIZE + LNET_HDR16_SIZE];
};

static uint32_t frame_len(const struct lnet_msg *msg)
{
    return msg->lnd_hdr_len + msg->payload.bytes;
}

bool sock_tx_idle(const struct sock_conn *c)
{
    return c->raw_sent == c->raw_len && c->nacks == 0 && !STAILQ_FIRST(&c->txq);
}

/* ---- what is sent next ---- */

static bool add(struct tx_batch *b, uint8_t *addr, size_t len, uint16_t region)
{
    if (len == 0)
        return true;
    if (b->nsegs == TX_SEGS) {
        b->more = true;
        return false;
    }
    b->segs[b->nsegs++] = (struct mem_seg){addr, (uint32_t)len, region, 0};
    b->bytes += len;
    return true;
}

static bool add_noop(struct tx_batch *b, uint64_t cookie, unsigned sent)
{
    struct sock_frame frame = {.type = SOCK_FRAME_NOOP, .cookie = {0, cookie}};

    if (b->nnoops == TX_NOOPS) {
        b->more = true;
        return false;
    }
    sock_frame_encode(&frame, b->noops[b->nnoops]);
    return add(b, b->noops[b->nnoops++] + sent, SOCK_FRAME_SIZE - sent, MEM_REGION_NONE);
}

/* The stream copies it. */
static bool add_hdr(struct tx_batch *b, const struct lnet_msg *msg, uint32_t skip)
{
    static const struct sock_frame frame = {.type = SOCK_FRAME_LNET}; /* no ZC request, no sum */
    uint8_t *hdr;

    if (b->nhdrs == TX_HDRS) {
        b->more = true;
        return false;
    }
    hdr = b->hdrs[b->nhdrs++];
    sock_frame_encode(&frame, hdr);
    if (msg->lnd_hdr_len == SOCK_FRAME_SIZE + LNET_HDR16_SIZE)
        lnet_hdr_encode16(&msg->hdr, hdr + SOCK_FRAME_SIZE);
    else
        lnet_hdr_encode4(&msg->hdr, hdr + SOCK_FRAME_SIZE); /* it fits: sock_send() */
    return add(b, hdr + skip, msg->lnd_hdr_len - skip, MEM_REGION_NONE);
}

static bool add_msg(struct tx_batch *b, const struct lnet_msg *msg)
{
    uint32_t skip = msg->lnd_sent;

    if (skip < msg->lnd_hdr_len) {
        if (!add_hdr(b, msg, skip))
            return false;
        skip = 0;
    } else {
        skip -= msg->lnd_hdr_len;
    }
    for (uint32_t i = 0; i < msg->payload.n; i++) {
        const struct mem_seg *seg = &msg->payload.seg[i];

        if (skip >= seg->len) {
            skip -= seg->len;
            continue;
        }
        if (!add(b, seg->addr + skip, seg->len - skip, seg->region))
            return false;
        skip = 0;
    }
    return true;
}

static bool add_noops(const struct sock_conn *c, struct tx_batch *b)
{
    for (unsigned i = 0; i < c->nacks; i++) {
        uint64_t cookie = c->acks[(c->ack_head + i) % SOCK_ACKS];

        if (!add_noop(b, cookie, i == 0 ? c->noop_sent : 0))
            return false;
    }
    return true;
}

static bool msg_begun(const struct sock_conn *c)
{
    return STAILQ_FIRST(&c->txq) && STAILQ_FIRST(&c->txq)->lnd_sent > 0;
}

static void gather(struct sock_conn *c, struct tx_batch *b)
{
    struct lnet_msg *msg = STAILQ_FIRST(&c->txq);

    b->nsegs = 0;
    b->bytes = 0;
    b->nnoops = 0;
    b->nhdrs = 0;
    b->more = false;
    add(b, c->raw + c->raw_sent, (size_t)(c->raw_len - c->raw_sent), MEM_REGION_NONE);
    if (c->state != SOCK_CONN_UP)
        return;
    if (msg_begun(c)) {
        if (!add_msg(b, msg))
            return;
        msg = msg->lnd_next;
    }
    if (!add_noops(c, b))
        return;
    for (; msg; msg = msg->lnd_next) {
        if (!add_msg(b, msg))
            return;
    }
}

/* ---- what was sent ---- */

static size_t consume_noop(struct sock_conn *c, size_t n)
{
    /* A keepalive does not count as a sign of life: it would delay the next keepalive. */
    if (c->acks[c->ack_head] != SOCK_COOKIE_PING)
        c->sent_us = reactor_now_us();
    n = min(n, SOCK_FRAME_SIZE - (size_t)c->noop_sent);
    c->noop_sent += (uint16_t)n;
    if (c->noop_sent == SOCK_FRAME_SIZE) {
        c->noop_sent = 0;
        c->ack_head = (c->ack_head + 1) % SOCK_ACKS;
        c->nacks--;
    }
    return n;
}

/* Takes n bytes off the front, in the order of gather(). Messages that are complete move to done;
 * where they end in the stream is kept in lnd_deadline_us, which is of no more use. */
static void consume(struct sock_conn *c, size_t n, struct lnet_msg_queue *done)
{
    while (n > 0) {
        size_t part;

        if (c->raw_sent < c->raw_len) {
            part = min(n, (size_t)(c->raw_len - c->raw_sent));
            c->sent_us = reactor_now_us();
            c->raw_sent += (uint16_t)part;
        } else if (c->nacks > 0 && !msg_begun(c)) {
            part = consume_noop(c, n);
        } else {
            struct lnet_msg *msg = STAILQ_FIRST(&c->txq);

            assert(msg);
            c->sent_us = reactor_now_us();
            part = min(n, frame_len(msg) - msg->lnd_sent);
            msg->lnd_sent += (uint32_t)part;
            if (msg->lnd_sent == frame_len(msg)) {
                c->txq_bytes -= frame_len(msg);
                msg->lnd_deadline_us = c->sent_total + part;
                lnet_msg_queue_pop(&c->txq);
                STAILQ_INSERT_TAIL(done, msg, queue);
            }
        }
        c->sent_total += part;
        n -= part;
    }
}

/* The stream has all of these messages. The kernel copied them; others refer to them until the peer
 * acknowledges. */
static void report(struct sock_conn *c, struct lnet_msg_queue *done)
{
    bool by_reference = c->sp->sni->transport.ops->caps & STREAM_CAP_BY_REFERENCE;
    struct lnet_msg *msg;

    if (!by_reference) {
        while (STAILQ_FIRST(done))
            lnet_send_done(lnet_msg_queue_pop(done), LNET_RESULT_OK);
        return;
    }
    msg = STAILQ_FIRST(done);
    STAILQ_CONCAT(&c->unacked, done);
    for (; msg; msg = msg->lnd_next) {
        lnet_send_accepted(msg);
        if (c->state == SOCK_CONN_DEAD)
            return; /* its closing failed the other messages of this list */
    }
}

static void send_failed(struct sock_conn *c, int err)
{
    struct lnd_close why = {
        .event = SOCK_DROP(RESET),
        LND_CLOSE_LOST,
        .begun = err == -ETIMEDOUT ? LNET_HEALTH_REMOTE_TIMEOUT : LNET_HEALTH_LOCAL_ERROR,
        .abort = true,
    };

    if (c->state == SOCK_CONN_HELLO)
        sock_dial_closed(c, err == -ETIMEDOUT ? STREAM_END_TIMEOUT : STREAM_END_RESET);
    else if (c->base.listed)
        sock_peer_close(c->sp, &why, NULL);
}

/* Calls send() once. Returns whether there is more to send and the stream may accept it. */
static bool send_some(struct sock_conn *c)
{
    struct lnet_msg_queue done;
    struct tx_batch b;
    ssize_t sent;

    gather(c, &b);
    if (b.nsegs == 0)
        return false;
    sent = c->stream->ops->send(c->stream, b.segs, b.nsegs, b.more);
    if (sent < 0) {
        send_failed(c, (int)sent);
        return false;
    }
    c->tx_blocked = (size_t)sent < b.bytes;
    STAILQ_INIT(&done);
    consume(c, (size_t)sent, &done);
    report(c, &done);
    return !c->tx_blocked;
}

void sock_tx_run(struct sock_conn *c)
{
    bool more = true;

    if (c->in_tx || c->tx_blocked || (c->state != SOCK_CONN_UP && c->state != SOCK_CONN_HELLO))
        return;
    c->in_tx = true;
    sock_conn_hold(c);
    for (int i = 0; more && i < TX_ROUNDS && c->state != SOCK_CONN_DEAD; i++)
        more = send_some(c);
    c->in_tx = false;
    if (c->state == SOCK_CONN_UP) {
        if (more)
            sock_ready(c);
        sock_rx_resume(c);
    }
    sock_conn_release(c);
}

/* ---- queueing ---- */

/* Stalls are counted from when there is something to send. */
static void note_start(struct sock_conn *c)
{
    if (sock_tx_idle(c) && c->sent_total == c->seen_acked)
        c->tx_us = reactor_now_us();
}

void sock_tx_queue(struct sock_conn *c, struct lnet_msg *msg)
{
    note_start(c);
    msg->lnd_sent = 0;
    STAILQ_INSERT_TAIL(&c->txq, msg, queue);
    c->txq_bytes += frame_len(msg);
    c->used = ++c->shard->uses;
    sock_ready(c);
}

bool sock_tx_ack(struct sock_conn *c, uint64_t cookie)
{
    if (c->nacks == SOCK_ACKS)
        return false;
    note_start(c);
    c->acks[(c->ack_head + c->nacks) % SOCK_ACKS] = cookie;
    c->nacks++;
    sock_tx_run(c);
    return true;
}

void sock_tx_acked(struct sock_conn *c)
{
    struct stream_stats st;
    struct lnet_msg *msg;

    if (STAILQ_FIRST(&c->unacked))
        prefetch_write(STAILQ_FIRST(&c->unacked), 3 * CPU_BLOCK);
    c->stream->ops->stats(c->stream, &st);
    sock_conn_hold(c);
    while ((msg = STAILQ_FIRST(&c->unacked)) && msg->lnd_deadline_us <= st.bytes_out - st.unacked) {
        lnet_msg_queue_pop(&c->unacked);
        if (STAILQ_FIRST(&c->unacked))
            prefetch_write(STAILQ_FIRST(&c->unacked), 3 * CPU_BLOCK);
        prefetch_write(msg->tx_peer, 2 * CPU_BLOCK);
        lnet_msg_fetch(msg);
        lnet_send_done(msg, LNET_RESULT_OK);
    }
    sock_conn_release(c);
}

void sock_tx_abandon(struct sock_conn *c, const struct lnd_close *why)
{
    struct lnet_msg *lists[2] = {lnet_msg_queue_take(&c->unacked), lnet_msg_queue_take(&c->txq)};
    struct lnet_msg *msg;

    c->txq_bytes = 0;
    c->nacks = 0;
    for (int i = 0; i < 2; i++) {
        while ((msg = lists[i])) {
            bool begun = msg->lnd_sent > 0;

            lists[i] = msg->lnd_next;
            lnet_send_done(msg, (struct lnet_result){why->tx, begun ? why->begun : why->queued,
                                                     .unsent = !begun});
        }
    }
}
