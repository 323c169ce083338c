/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection of a simulated peer: its HELLO, frames in and frames out. socklnd.md §2, §4. */
#include "test/perf/peers/peers.h"

#include <assert.h>

#define RX_STEPS 256 /* messages of one connection before the next connection */
#define RX_SEGS  32

static const struct stream_ops *ops(const struct peer_conn *c)
{
    return c->stream->ops;
}

/* ---- out ---- */

static struct peer_conn *conn_for(struct peer *p, const struct peers_tx *tx)
{
    /* The order of types in peer.conn: control, bulk in, bulk out. */
    return &p->conn[sock_msg_is_bulk(tx->head_len + (size_t)tx->length) ? 2 : 0];
}

/* The rest of tx, from byte `done` on. Returns how many segments. */
static unsigned segments(const struct peers *e, struct peers_tx *tx, uint32_t done,
                         struct mem_seg segs[PEERS_SEGS + 1])
{
    uint32_t at, left;
    unsigned n = 0;

    if (done < tx->head_len) {
        segs[n++] = (struct mem_seg){tx->head + done, tx->head_len - done, MEM_REGION_NONE, 0};
        done = tx->head_len;
    }
    at = tx->offset + (done - tx->head_len);
    for (left = tx->length - (done - tx->head_len); left > 0;) {
        uint32_t in = at % PEERS_CHUNK;
        uint32_t len = PEERS_CHUNK - in < left ? PEERS_CHUNK - in : left;

        assert(n < PEERS_SEGS + 1);
        segs[n++] = (struct mem_seg){e->chunk[at / PEERS_CHUNK] + in, len, e->chunk_region, 0};
        at += len;
        left -= len;
    }
    return n;
}

/* As in a kernel node, a message is done when all of it is in the send buffer. Whether some are. */
static bool credits_back(struct peer_conn *c)
{
    unsigned before = c->ends;

    while (c->ends > 0 && c->end[c->end_at] <= c->acked + PEER_BUFFER) {
        c->end_at = (uint8_t)((c->end_at + 1) % PEER_CREDITS);
        c->ends--;
        c->peer->credits++;
    }
    return c->ends != before;
}

/* All of the first message is the transport's. */
static void first_taken(struct peer_conn *c, struct peers_tx *tx)
{
    struct peers *e = c->peer->e;

    TAILQ_REMOVE(&c->queue, tx, link);
    c->tx_done = 0;
    if (tx->credit) {
        assert(c->ends < PEER_CREDITS);
        c->end[(c->end_at + c->ends++) % PEER_CREDITS] = c->out;
        (void)credits_back(c); /* who calls conn_send() sees to those that wait */
        count_add(&e->messages_out, 1);
    }
    peers_tx_end(tx, true);
}

static void conn_send(struct peer_conn *c)
{
    struct mem_seg segs[PEERS_SEGS + 1];
    struct peers_tx *tx;
    unsigned nsegs;
    ssize_t n;

    while (c->up && (tx = TAILQ_FIRST(&c->queue))) {
        nsegs = segments(c->peer->e, tx, c->tx_done, segs);
        n = ops(c)->send(c->stream, segs, nsegs, TAILQ_NEXT(tx, link) != NULL);
        if (n < 0)
            return; /* it has ended: closed() comes */
        c->out += (size_t)n;
        c->tx_done += (uint32_t)n;
        if (c->tx_done < tx->head_len + tx->length)
            return; /* writable() comes */
        first_taken(c, tx);
    }
}

void peer_push(struct peer *p)
{
    struct peers_tx *tx;

    if (p->state != PEER_PINGS && p->state != PEER_READY)
        return;
    while (p->credits > 0 && (tx = TAILQ_FIRST(&p->wait))) {
        struct peer_conn *c = conn_for(p, tx);

        TAILQ_REMOVE(&p->wait, tx, link);
        p->credits--;
        TAILQ_INSERT_TAIL(&c->queue, tx, link);
        if (TAILQ_FIRST(&c->queue) == tx)
            conn_send(c);
    }
}

void peer_queue(struct peer *p, struct peers_tx *tx)
{
    tx->peer = p;
    tx->credit = true;
    TAILQ_INSERT_TAIL(&p->wait, tx, link);
    peer_push(p);
}

bool peer_noop(struct peer_conn *c, uint64_t cookie)
{
    struct sock_frame frame = {.type = SOCK_FRAME_NOOP, .cookie = {0, cookie}};
    struct peers_tx *tx = peers_answer(c->peer);

    if (!tx)
        return false;
    sock_frame_encode(&frame, tx->head);
    tx->peer = c->peer;
    tx->credit = false;
    tx->head_len = SOCK_FRAME_SIZE;
    tx->length = 0;
    TAILQ_INSERT_TAIL(&c->queue, tx, link);
    if (TAILQ_FIRST(&c->queue) == tx)
        conn_send(c);
    return true;
}

bool peer_unqueue(struct peers_tx *tx)
{
    struct peer *p = tx->peer;
    struct peer_conn *c = conn_for(p, tx);
    const struct peers_tx *at;

    TAILQ_FOREACH(at, &c->queue, link) {
        if (at != tx)
            continue;
        if (tx == TAILQ_FIRST(&c->queue) && c->tx_done > 0)
            return false;
        TAILQ_REMOVE(&c->queue, tx, link);
        p->credits++;
        return true;
    }
    TAILQ_REMOVE(&p->wait, tx, link);
    return true;
}

/* ---- in ---- */

static void window_tell(struct peer_conn *c)
{
    if (c->window > PEERS_WINDOW / 2)
        return;
    c->window = PEERS_WINDOW;
    ops(c)->rx_window(c->stream, PEERS_WINDOW, 2 * (size_t)PEERS_WINDOW);
}

static void consumed(struct peer_conn *c, size_t n)
{
    c->window -= c->window < n ? c->window : (uint32_t)n;
}

static void skip(struct peer_conn *c, size_t n)
{
    ops(c)->skip(c->stream, n);
    consumed(c, n);
}

/* The whole HELLO, as far as it has come. Returns its length; 0: not all of it, or *why. */
static size_t hello_peek(struct peer_conn *c, const uint8_t **at, enum lnet_drop *why)
{
    struct sock_stage stage = sock_hello_stage(*at, 0, SOCK_HELLO_V3);
    size_t want = 0;

    while (stage.drop == LNET_DROP_NONE && stage.need > 0) {
        want += stage.need;
        if (want > SOCK_HELLO_MAX || ops(c)->peek(c->stream, want, at) < want) {
            *why = want > SOCK_HELLO_MAX ? SOCK_DROP(HELLO_NIPS) : LNET_DROP_NONE;
            return 0;
        }
        stage = sock_hello_stage(*at, want, SOCK_HELLO_V3);
    }
    *why = stage.drop;
    return stage.drop == LNET_DROP_NONE ? want : 0;
}

/* §2.4, §2.5 as the one who called. */
static enum lnet_drop hello_check(struct peer_conn *c, const struct sock_hello *h)
{
    struct peer *p = c->peer;

    if (!nid_same(&h->src_nid, &p->e->side[p->side].gateway) || h->src_pid != LNET_PID_LUSTRE)
        return SOCK_DROP(HELLO_PEER);
    if (h->ctype == SOCK_CTYPE_NONE)
        return SOCK_DROP(DIAL_REFUSED);
    if (sock_ctype_invert(h->ctype) != c->type)
        return SOCK_DROP(HELLO_TYPE);
    if (p->gateway_incarnation != 0 && p->gateway_incarnation != h->src_incarnation)
        return SOCK_DROP(HELLO_STALE);
    p->gateway_incarnation = h->src_incarnation;
    return LNET_DROP_NONE;
}

/* Whether that is the router's fault. */
static bool is_broken(enum lnet_drop why)
{
    return why != SOCK_DROP(DIAL_REFUSED) && why != SOCK_DROP(HELLO_STALE);
}

/* With a request before it, if we have called. False: the peer has failed. */
static bool say_hello(struct peer_conn *c)
{
    struct peer *p = c->peer;
    const struct peers_side *side = &p->e->side[p->side];
    struct sock_hello hello = {
        .version = SOCK_HELLO_V3,
        .src_nid = p->nid,
        .dst_nid = side->gateway,
        .src_pid = LNET_PID_LUSTRE,
        .src_incarnation = p->e->incarnation,
        .ctype = c->type,
    };
    uint8_t buf[SOCK_REQ_MAX + SOCK_HELLO_MAX];
    size_t len = c->called ? 0 : sock_req_encode(&side->gateway, buf);
    struct mem_seg seg;

    len += sock_hello_encode(&hello, buf + len);
    seg = (struct mem_seg){buf, (uint32_t)len, MEM_REGION_NONE, 0};
    if (ops(c)->send(c->stream, &seg, 1, false) != (ssize_t)len) {
        peer_fail(p, SOCK_DROP(NO_MEMORY), false);
        return false;
    }
    c->out = len;
    return true;
}

/* Of one who has called: it must be for this peer. False: more must come, or the peer has failed.
 */
static bool read_request(struct peer_conn *c)
{
    uint8_t want[SOCK_REQ_MAX];
    size_t len = sock_req_encode(&c->peer->nid, want);
    const uint8_t *at = NULL;

    if (ops(c)->peek(c->stream, len, &at) < len)
        return false;
    if (memcmp(at, want, len) != 0) {
        peer_fail(c->peer, SOCK_DROP(REQ_NID), true);
        return false;
    }
    skip(c, len);
    c->asked = true;
    return true;
}

/* False: more must come, or the peer has failed. */
static bool read_hello(struct peer_conn *c)
{
    const uint8_t *at = NULL;
    struct sock_hello hello;
    enum lnet_drop why;
    size_t len;

    if (c->called && !c->asked && !read_request(c))
        return false;
    len = hello_peek(c, &at, &why);
    if (len == 0 && why == LNET_DROP_NONE)
        return false;
    if (why == LNET_DROP_NONE)
        why = sock_hello_decode(at, len, SOCK_HELLO_V3, &hello);
    if (why == LNET_DROP_NONE)
        why = hello_check(c, &hello);
    if (why != LNET_DROP_NONE) {
        peer_fail(c->peer, why, is_broken(why));
        return false;
    }
    skip(c, len);
    if (c->called && !say_hello(c))
        return false;
    ops(c)->established(c->stream, -1);
    c->rx_state = PEER_RX_FRAME;
    peer_conn_up(c);
    return true;
}

static bool broken(struct peer_conn *c, enum lnet_drop why)
{
    if (why != LNET_DROP_NONE)
        peer_fail(c->peer, why, true);
    return why != LNET_DROP_NONE;
}

static bool message_end(struct peer_conn *c)
{
    struct peers *e = c->peer->e;

    c->rx_state = PEER_RX_FRAME;
    count_add(&e->messages_in, 1);
    if (c->zc != 0)
        (void)peer_noop(c, c->zc); /* there is room: see read_frame() */
    return !broken(c, peers_payload(c));
}

static bool read_payload(struct peer_conn *c)
{
    struct mem_seg segs[RX_SEGS];
    size_t n, truesize;
    unsigned nsegs;

    while (c->rx_left > 0) {
        n = ops(c)->take(c->stream, c->rx_left, segs, RX_SEGS, &nsegs, &truesize);
        if (n == 0)
            return false;
        for (unsigned i = 0; i < nsegs; i++) {
            if (c->rx_use == PEER_RX_SUM)
                payload_sum_add(&c->sum, segs[i].addr, segs[i].len);
            else if (c->rx_use == PEER_RX_COMPARE)
                c->rx_bad |= memcmp(segs[i].addr, c->peer->e->pattern + c->expect + c->rx_done,
                                    segs[i].len) != 0;
            else if (c->rx_use == PEER_RX_KEEP && c->rx_done < PEERS_SMALL)
                memcpy(c->small + c->rx_done, segs[i].addr,
                       segs[i].len < PEERS_SMALL - c->rx_done ? segs[i].len
                                                              : PEERS_SMALL - c->rx_done);
            c->rx_done += segs[i].len;
        }
        ops(c)->give_back(segs, nsegs);
        c->rx_left -= (uint32_t)n;
        consumed(c, n);
        window_tell(c);
    }
    return message_end(c);
}

static bool read_header(struct peer_conn *c, const struct sock_frame *frame, const uint8_t *at)
{
    enum lnet_drop why = lnet_hdr_decode4(at + SOCK_FRAME_SIZE, &c->hdr);

    if (broken(c, why))
        return false;
    skip(c, PEERS_HEAD);
    c->zc = sock_frame_zc_req(frame);
    c->rx_state = PEER_RX_PAYLOAD;
    c->rx_left = c->hdr.payload_len;
    c->rx_done = 0;
    c->rx_bad = false;
    c->rx_use = PEER_RX_DROP;
    c->op = NULL;
    return !broken(c, peers_header(c));
}

/* An answer to what comes, and a NOOP, must find room. */
static bool may_read(struct peer_conn *c)
{
    if (c->peer->answers + 2u <= PEER_ANSWERS)
        return true;
    c->paused = true;
    ops(c)->rx_pause(c->stream, true);
    return false;
}

static bool read_frame(struct peer_conn *c)
{
    const uint8_t *at = NULL;
    struct sock_frame frame;
    uint64_t acked;
    enum lnet_drop why;

    if (ops(c)->peek(c->stream, SOCK_FRAME_SIZE, &at) < SOCK_FRAME_SIZE)
        return false;
    why = sock_frame_decode(at, &frame);
    if (why == LNET_DROP_NONE)
        why = sock_frame_zc_ack(&frame, &acked);
    if (why == LNET_DROP_NONE && acked > 0)
        why = SOCK_DROP(ZC_ACK); /* we never ask */
    if (why == LNET_DROP_NONE && frame.type == SOCK_FRAME_LNET && frame.csum != 0)
        why = SOCK_DROP(PAYLOAD_CSUM); /* never sent in this version */
    if (broken(c, why))
        return false;
    if (frame.type == SOCK_FRAME_NOOP) {
        skip(c, SOCK_FRAME_SIZE);
        return true;
    }
    if (ops(c)->peek(c->stream, PEERS_HEAD, &at) < PEERS_HEAD || !may_read(c))
        return false;
    return read_header(c, &frame, at);
}

static void on_readable(void *user)
{
    struct peer_conn *c = user;
    unsigned steps = 0;
    bool more = true;

    while (more && c->stream && !c->paused && steps++ < RX_STEPS) {
        if (c->rx_state == PEER_RX_HELLO)
            more = read_hello(c);
        else if (c->rx_state == PEER_RX_FRAME)
            more = read_frame(c);
        else
            more = read_payload(c);
    }
    if (!c->stream)
        return;
    if (c->up)
        window_tell(c);
    if (more && !c->paused) { /* to be called again */
        ops(c)->rx_pause(c->stream, true);
        ops(c)->rx_pause(c->stream, false);
    }
}

void peer_resume(struct peer *p)
{
    if (p->answers > PEER_ANSWERS / 2)
        return;
    for (unsigned i = 0; i < PEER_CONNS; i++) {
        struct peer_conn *c = &p->conn[i];

        if (!c->paused || !c->stream)
            continue;
        c->paused = false;
        ops(c)->rx_pause(c->stream, false);
    }
}

/* ---- the transport's callbacks ---- */

static void on_connected(void *user)
{
    (void)say_hello(user);
}

static void on_writable(void *user)
{
    struct peer_conn *c = user;

    conn_send(c);
    peer_push(c->peer);
}

static void on_acked(void *user)
{
    struct peer_conn *c = user;
    struct stream_stats st;

    ops(c)->stats(c->stream, &st);
    c->acked = st.bytes_out - st.unacked;
    if (credits_back(c))
        peer_push(c->peer);
}

static void on_closed(void *user, enum stream_end end)
{
    struct peer_conn *c = user;

    if (!c->up)
        peer_fail(c->peer, SOCK_DROP(DIAL_FAILED), false);
    else if (end == STREAM_END_EOF && c->rx_state == PEER_RX_PAYLOAD)
        peer_fail(c->peer, SOCK_DROP(EOF_IN_MESSAGE), true);
    else
        peer_fail(c->peer, SOCK_DROP(RESET), false);
}

const struct stream_events peers_events = {on_connected, on_readable, on_writable, on_acked,
                                           on_closed};

void peer_conn_close(struct peer_conn *c, bool abort)
{
    struct peers_tx *tx;

    if (!c->stream)
        return;
    ops(c)->close(c->stream, abort);
    c->stream = NULL;
    if (c->up)
        count_add(&c->peer->e->connections, (uint64_t)-1);
    c->up = false;
    c->paused = false;
    while ((tx = TAILQ_FIRST(&c->queue))) {
        TAILQ_REMOVE(&c->queue, tx, link);
        peers_tx_end(tx, false);
    }
}
