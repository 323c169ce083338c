/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receiving side of a connection: o2iblnd §3.5, §5.2 to §5.5. Each message has its own receive
 * buffer and goes to the core by itself. A message that waits for a router buffer keeps its credit
 * and delays no other message.
 */
#include "lib/lnd_verbs/ib_conn.h"

#include <assert.h>
#include <string.h>

/* Status codes for the other side, §6.4. */
#define STATUS_NO_DATA (-61)
#define STATUS_NO_MEM  (-12)
#define STATUS_PROTO   (-71)

/* The part of a free receive that is not read. */
#define RECV_HIDDEN_AT   offsetof(struct ib_recv, rx)
#define RECV_HIDDEN_SIZE sizeof(struct lnet_rx)

/* ---- receive buffers ---- */

void ib_rx_layout(struct ib_conn *c, struct ib_rx *rxs, unsigned n, uint8_t *bufs,
                  struct ib_recv *recvs, unsigned nrecvs)
{
    c->rxs = rxs;
    c->nrxs = n;
    c->recvs = recvs;
    c->nrecvs = nrecvs;
    c->free_recvs = NULL;
    c->repost = NULL;
    c->repost_tail = &c->repost;
    c->revokes = NULL;
    c->revokes_tail = &c->revokes;
    TAILQ_INIT(&c->early);
    for (unsigned i = 0; i < n; i++) {
        struct ib_rx *rx = &rxs[i];

        rx->index = (uint16_t)i;
        rx->buf = bufs + (size_t)i * IB_MSG_SIZE;
        rx->sge = (struct ibv_sge){(uintptr_t)rx->buf, IB_MSG_SIZE, c->link.area_lkey};
        rx->wr = (struct ibv_recv_wr){
            .wr_id = ib_wr_id(c, IB_WR_RECV, 0, i), .sg_list = &rx->sge, .num_sge = 1};
        ib_rx_repost(c, rx, IB_NOOP, false);
    }
    while (nrecvs-- > 0) {
        struct ib_recv *r = &recvs[nrecvs];

        r->conn = c;
        r->index = (uint16_t)nrecvs;
        r->next = c->free_recvs;
        c->free_recvs = r;
        asan_poison((uint8_t *)r + RECV_HIDDEN_AT, RECV_HIDDEN_SIZE);
    }
}

/* Returns whether posting the buffer of this message returns a credit, §3.5. */
static bool returns_credit(unsigned type, bool acked)
{
    enum ib_class class = ib_class_of(type);

    return type == IB_PUT_DONE || class == IB_CLASS_SEND || (class == IB_CLASS_REQUEST && !acked);
}

/* While the NI quiesces the peer gets no more credits. Messages that it still sends are received,
 * and then it must stop. */
void ib_rx_repost(struct ib_conn *c, struct ib_rx *rx, unsigned type, bool acked)
{
    asan_poison(rx->buf, IB_MSG_SIZE); /* the device's, until it says what came */
    rx->wr.next = NULL;
    *c->repost_tail = &rx->wr;
    c->repost_tail = &rx->wr.next;
    if (type == IB_NOOP || (lnd_ns_is_shut(c->ibp->base.ns) && returns_credit(type, acked)))
        return;
    ib_credits_repost(&c->credits, type, acked);
}

int ib_rx_post(struct ib_conn *c)
{
    struct ibv_recv_wr *first = c->repost, *bad = NULL;
    int rc;

    if (!first)
        return 0;
    c->repost = NULL;
    c->repost_tail = &c->repost;
    rc = ib_rdma(c)->post_recv(&c->link, first, &bad);
    for (struct ibv_recv_wr *wr = first; wr && (rc == 0 || wr != bad); wr = wr->next)
        c->posted++;
    return rc > 0 ? -rc : rc;
}

/* ---- messages the core has ---- */

static struct ib_recv *recv_get(struct ib_conn *c)
{
    struct ib_recv *r = c->free_recvs;

    if (!r)
        return NULL;
    c->free_recvs = r->next;
    asan_unpoison((uint8_t *)r + RECV_HIDDEN_AT, RECV_HIDDEN_SIZE);
    c->held++;
    return r;
}

static void recv_put(struct ib_recv *r)
{
    struct ib_conn *c = r->conn;
    struct ib_ni_shard *ns = ib_ns(c->ibp);

    r->state = IB_RECV_FREE;
    r->next = c->free_recvs;
    c->free_recvs = r;
    asan_poison((uint8_t *)r + RECV_HIDDEN_AT, RECV_HIDDEN_SIZE);
    c->held--;
    if (lnd_ns_is_shut(&ns->base))
        lnd_ns_progress(&ns->base);
}

/* Posts the buffer again with the credit, if the message still has it. */
void ib_recv_end(struct ib_recv *r, struct lnet_result result)
{
    struct ib_conn *c = r->conn;
    struct ib_rx *buf = r->buf;
    unsigned type = r->type;

    ib_conn_hold(c);
    lnet_recv_done(&r->rx, result);
    recv_put(r);
    if (buf && c->state == IB_CONN_UP) {
        ib_rx_repost(c, buf, type, false);
        ib_conn_soon(c);
    }
    ib_conn_release(c);
}

bool ib_conn_quiet(const struct ib_conn *c, uint64_t since_us)
{
    bool silent = c->ibp->base.peer->last_alive_us <= since_us;

    return c->held == 0 && (silent || c->credits.spent == c->credits.depth);
}

/* ---- ops->recv() ---- */

/* Copies received payload. No other function does. */
static void copy_in(struct ib_conn *c, const struct mem_seg *segs, unsigned nsegs,
                    const uint8_t *from, uint32_t bytes)
{
    count_add(&ib_counters(c)->copied_in, bytes);
    for (unsigned i = 0; bytes > 0; i++) {
        uint32_t len;

        assert(i < nsegs);
        len = segs[i].len < bytes ? segs[i].len : bytes;
        memcpy(segs[i].addr, from, len);
        from += len;
        bytes -= len;
    }
}

static void count_in(struct ib_conn *c, uint32_t bytes)
{
    c->bytes_in += bytes;
    count_add(&ib_counters(c)->bytes_in, bytes);
}

/* Receives payload that is in the message already. Needs no connection. */
static void take_immediate(struct ib_recv *r, const struct mem_seg *segs, unsigned nsegs,
                           uint32_t mlen)
{
    if (mlen > 0) {
        copy_in(r->conn, segs, nsegs, r->payload, mlen);
        count_in(r->conn, mlen);
    }
    ib_recv_end(r, LNET_RESULT_OK);
}

/* ends: the result of the receive, which completes once the answer is posted or sent. */
static void queue_answer(struct ib_recv *r, struct ib_tx *tx, int32_t status,
                         struct lnet_result ends)
{
    r->state = IB_RECV_ANSWERING;
    r->result = ends;
    tx->status = status;
    ib_tx_queue_answer(r->conn, tx);
}

static void answer(struct ib_recv *r, unsigned type, int32_t status, struct lnet_result ends)
{
    queue_answer(r, ib_tx_answer(r->conn, type, r), status, ends);
}

/* Refuses a PUT: nothing of it is wanted, or it cannot be received. */
static void refuse_put(struct ib_recv *r, int32_t status, struct lnet_result ends)
{
    count_add(&ib_counters(r->conn)->naks_out, 1);
    answer(r, IB_PUT_NAK, status, ends);
}

/* Describes the first mlen bytes of segs as fragments of one region. Returns 0 if a peer may not
 * write there. */
static uint32_t describe(struct ib_conn *c, const struct mem_seg *segs, unsigned nsegs,
                         uint32_t mlen, struct ib_frag frags[IB_ACK_FRAGS],
                         const struct rdma_key **of)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < nsegs && mlen > 0; i++) {
        const struct rdma_key *key = ib_key(c, segs[i].region);
        uint32_t len = segs[i].len < mlen ? segs[i].len : mlen;

        if (len == 0)
            continue;
        if (!key && segs[i].region < MEM_REGION_MAX)
            ib_rdma(c)->want_region(c->link.port, segs[i].region);
        if (!key || !key->landing || n == IB_ACK_FRAGS || (n > 0 && key != *of))
            return 0;
        *of = key;
        frags[n++] = (struct ib_frag){.addr = (uintptr_t)segs[i].addr, .nob = len};
        mlen -= len;
    }
    return mlen == 0 ? n : 0;
}

/* Encodes the message but for the credits that it returns, which are known when it is posted.
 * Returns NONE, or why the peer cannot write there. */
static enum lnet_drop put_ack(struct ib_recv *r, struct ib_tx *tx, const struct mem_seg *segs,
                              unsigned nsegs)
{
    struct ib_conn *c = r->conn;
    const struct rdma_key *key = NULL;
    struct ib_frag frags[IB_ACK_FRAGS];
    struct ib_msg m;
    size_t size;

    m.hdr = ib_tx_hdr(c, IB_PUT_ACK, 0);
    m.cookie = r->cookie;
    m.dst_cookie = r->own_cookie;
    m.rd.nfrags = describe(c, segs, nsegs, r->mlen, frags, &key);
    if (m.rd.nfrags == 0)
        return IB_DROP(NO_LANDING);
    size = IB_PUT_ACK_SIZE + (size_t)m.rd.nfrags * IB_FRAG_SIZE;
    if (size > IB_HEAD) {
        tx->bounce = ib_bounce_get(c);
        if (!tx->bounce)
            return IB_DROP(NO_LANDING);
    }
    m.rd.key = ib_key_begin(r, key, frags, m.rd.nfrags);
    if (m.rd.key == 0)
        return IB_DROP(KEY);
    tx->len = (uint32_t)ib_msg_encode(&m, frags, tx->bounce ? tx->bounce->mem : tx->head,
                                      tx->bounce ? IB_MSG_SIZE : IB_HEAD);
    return tx->len > 0 ? LNET_DROP_NONE : IB_DROP(NO_LANDING);
}

/* §5.2: PUT_REQ, wanted > 0. The buffer is posted again before PUT_ACK leaves, for PUT_DONE. */
static void accept_put(struct ib_recv *r, const struct mem_seg *segs, unsigned nsegs)
{
    struct ib_conn *c = r->conn;
    struct ib_tx *tx = ib_tx_answer(c, IB_PUT_ACK, r);
    struct ib_rx *buf = r->buf;
    enum lnet_drop why;

    r->own_cookie = ++c->next_cookie << 16 | r->index;
    why = put_ack(r, tx, segs, nsegs);
    if (why != LNET_DROP_NONE) {
        ib_key_finalize(r);
        tx->type = IB_PUT_NAK;
        tx->len = 0;
        count_add(&ib_counters(c)->naks_out, 1);
        queue_answer(r, tx, STATUS_NO_MEM, (struct lnet_result){why, LNET_HEALTH_LOCAL_ERROR});
        return;
    }
    r->state = IB_RECV_ACKED;
    r->told = false;
    r->buf = NULL;
    r->deadline_us = reactor_now_us() + lnd_timeout_us(c->ibp->ini->base.ni);
    ib_rx_repost(c, buf, IB_PUT_REQ, true);
    ib_tx_queue_answer(c, tx);
}

static void take_put(struct ib_recv *r, const struct mem_seg *segs, unsigned nsegs)
{
    if (r->mlen == 0)
        refuse_put(r, 0, LNET_RESULT_OK);
    else
        accept_put(r, segs, nsegs);
}

/* §5.2, §5.5: the segments are what is asked for. */
static void serve_get(struct ib_recv *r, const struct mem_seg *segs, unsigned nsegs)
{
    static const struct lnet_result too_small = {IB_DROP(TOO_MUCH), LNET_HEALTH_REMOTE_ERROR};
    struct ib_conn *c = r->conn;
    struct ib_tx *tx;

    if (r->rx.drop != LNET_DROP_NONE) {
        answer(r, IB_GET_DONE, STATUS_NO_DATA, LNET_RESULT_OK);
        return;
    }
    if (r->mlen > r->rd.total) {
        answer(r, IB_GET_DONE, STATUS_PROTO, too_small);
        return;
    }
    if (r->mlen == 0) {
        answer(r, IB_GET_DONE, 0, LNET_RESULT_OK);
        return;
    }
    tx = ib_tx_answer(c, IB_GET_DONE, r);
    ib_writer_init(&tx->w, &r->rd, segs, nsegs, r->mlen,
                   NULL); /* rd stays until it has been sent */
    queue_answer(r, tx, (int32_t)r->mlen, LNET_RESULT_OK);
}

static struct lnet_result incomplete(const struct ib_conn *c)
{
    enum lnet_drop why = c->state >= IB_CONN_CLOSING ? c->why.rx : LNET_DROP_RX_INCOMPLETE;

    if (lnd_ns_is_stopping(c->ibp->base.ns))
        why = !lnet_ni_is_active(c->ibp->ini->base.ni) ? LNET_DROP_NI_REMOVED : LNET_DROP_SHUTDOWN;
    return (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR};
}

void ib_recv(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen)
{
    struct ib_recv *r = container_of(rx, struct ib_recv, rx);
    struct ib_conn *c = r->conn;
    assert(r->state == IB_RECV_PARSED);
    ib_conn_hold(c);
    r->mlen = mlen;
    c->parsed--;
    if (r->type == IB_IMMEDIATE)
        take_immediate(r, segs, nsegs, mlen);
    else if (c->state != IB_CONN_UP)
        ib_recv_end(r, incomplete(c));
    else if (r->type == IB_PUT_REQ)
        take_put(r, segs, nsegs);
    else
        serve_get(r, segs, nsegs);
    ib_conn_release(c);
}

/* ---- messages that come ---- */

static bool has_hdr(const struct ib_msg *m)
{
    return ib_class_of(m->hdr.type) < IB_CLASS_ANSWER;
}

/* Closes the connection for an invalid message, or only counts the reason if the connection is
 * being closed already. m: NULL if the message could not be decoded. */
static void fail(struct ib_conn *c, enum lnet_drop why, const struct ib_msg *m)
{
    const struct lnet_hdr *hdr = m && has_hdr(m) ? &m->lnet : NULL;

    if (c->state == IB_CONN_UP)
        ib_conn_fail(c, &ib_cause_broken, why, hdr);
    else
        lnd_drop(&c->ibp->ini->base, why, &c->ibp->base.peer->nid, hdr);
}

/* Gives an LNet message to the core. */
static void begin(struct ib_conn *c, struct ib_rx *rx, const struct ib_msg *m)
{
    struct ib_recv *r = recv_get(c);
    enum lnet_drop why;

    assert(r); /* one for each credit, and the credits were checked */
    r->buf = rx;
    r->type = m->hdr.type;
    r->cookie = m->cookie;
    r->payload = m->payload;
    r->carried = m->carried;
    r->rd = m->rd;
    r->window = NULL;
    r->part = NULL;
    r->unbound = false;
    r->state = IB_RECV_PARSED;
    r->rx.hdr = m->lnet;
    r->rx.ni = c->ibp->ini->base.ni;
    r->rx.from = c->ibp->base.peer;
    r->rx.rdma_get = m->hdr.type == IB_GET_REQ;
    r->rx.grant = NULL;
    r->rx.expired_us = 0; /* it is behind no other message */
    r->rx.taken = (struct lnet_sgl){0};
    r->rx.release = NULL;
    c->parsed++;
    why = lnet_parse(&r->rx);
    if (why == LNET_DROP_NONE)
        return;
    c->parsed--;
    recv_put(r);
    fail(c, why, m);
}

/* Ends a transfer once its key is invalid. Until then the buffer of PUT_DONE is not posted again:
 * the peer gets the credit of this receive with it. */
static void end_transfer(struct ib_recv *r, struct ib_rx *rx, struct lnet_result result, bool *keep)
{
    if (ib_key_end(r)) {
        ib_recv_end(r, result);
        return;
    }
    r->state = IB_RECV_REVOKING;
    r->result = result;
    r->buf = rx;
    r->type = IB_PUT_DONE;
    r->deadline_us = reactor_now_us() + lnd_timeout_us(r->conn->ibp->ini->base.ni);
    *keep = true;
}

/* §5.4. The status is not compared with the length, as in a kernel: the sink cannot see what the
 * source did not write. *keep: rx is posted again later. */
static enum lnet_drop put_done(struct ib_conn *c, struct ib_rx *rx, const struct ib_msg *m,
                               bool *keep)
{
    unsigned index = m->cookie & 0xffff;
    struct ib_recv *r = index < c->nrecvs ? &c->recvs[index] : NULL;

    if (!r || r->state != IB_RECV_ACKED || !r->told || r->own_cookie != m->cookie)
        return IB_DROP(ANSWER);
    if (m->status < 0) {
        end_transfer(r, rx, (struct lnet_result){IB_DROP(PEER_FAILED), LNET_HEALTH_REMOTE_ERROR},
                     keep);
    } else {
        count_in(c, r->mlen);
        end_transfer(r, rx, LNET_RESULT_OK, keep);
    }
    return LNET_DROP_NONE;
}

static void count_message(struct ib_conn *c, unsigned type)
{
    struct verbs_counters *n = ib_counters(c);

    switch (type) {
    case IB_IMMEDIATE:
        count_add(&n->immediates_in, 1);
        break;
    case IB_PUT_REQ:
        count_add(&n->puts_in, 1);
        break;
    case IB_NOOP:
        count_add(&n->noops_in, 1);
        break;
    case IB_PUT_NAK:
        count_add(&n->naks_in, 1);
        break;
    default:
        break;
    }
}

/* Handles a message. Posts the buffer again at once if the core does not get the message: a message
 * that is sent first would announce a receive buffer that is not posted. */
static void dispatch(struct ib_conn *c, struct ib_rx *rx, const struct ib_msg *m)
{
    enum lnet_drop why = LNET_DROP_NONE;
    bool keep = false;

    switch (m->hdr.type) {
    case IB_IMMEDIATE:
    case IB_PUT_REQ:
    case IB_GET_REQ:
        begin(c, rx, m);
        return;
    case IB_PUT_ACK:
        why = ib_tx_put_acked(c, m, rx, &keep);
        break;
    case IB_PUT_NAK:
        why = ib_tx_put_refused(c, m);
        break;
    case IB_PUT_DONE:
        why = put_done(c, rx, m, &keep);
        break;
    case IB_GET_DONE: /* we send no GET_REQ */
        why = IB_DROP(ANSWER);
        break;
    default:
        break;
    }
    if (why != LNET_DROP_NONE)
        fail(c, why, m);
    else if (!keep && c->state == IB_CONN_UP)
        ib_rx_repost(c, rx, m->hdr.type, false);
}

/* Handles a message of a connection that is being closed or never came up. The device has
 * acknowledged the message, so the peer counts it as received. Payload in the message needs no
 * connection; a message that needs one is dropped with a named reason. */
static void dispatch_last(struct ib_conn *c, struct ib_rx *rx, const struct ib_msg *m)
{
    bool takes =
        c->state == IB_CONN_CLOSING && c->up_us != 0 && !lnd_ns_is_stopping(c->ibp->base.ns);
    enum lnet_drop why = LNET_DROP_NONE;
    bool keep = false;

    if (takes && m->hdr.type == IB_IMMEDIATE) {
        begin(c, rx, m);
        return;
    }
    if (takes && m->hdr.type == IB_PUT_DONE)
        why = put_done(c, rx, m, &keep);
    else if (has_hdr(m))
        why = incomplete(c).reason;
    if (why != LNET_DROP_NONE)
        fail(c, why, m);
}

/* Checks a message: its bytes, its two ends, its credits, in this order. A connection that never
 * came up has agreed on neither ends nor credits. */
static enum lnet_drop check(struct ib_conn *c, struct ib_rx *rx, struct ib_msg *m)
{
    enum lnet_drop why = ib_msg_decode(rx->buf, rx->len, m), worse;

    if ((why != LNET_DROP_NONE && why != IB_DROP(PAYLOAD)) || c->up_us == 0)
        return why;
    worse = ib_msg_ends(&m->hdr, &c->ends);
    if (worse == LNET_DROP_NONE)
        worse = ib_credits_receive(&c->credits, m->hdr.type, m->hdr.credits);
    return worse != LNET_DROP_NONE ? worse : why;
}

static void take(struct ib_conn *c, struct ib_rx *rx)
{
    struct ib_msg m;
    enum lnet_drop why;

    m.hdr.type = 0;
    m.cookie = 0;
    m.payload = NULL;
    m.carried = 0;
    memset(&m.rd, 0, sizeof(m.rd));
    why = check(c, rx, &m);
    if (why == IB_DROP(PAYLOAD)) {
        lnd_drop(&c->ibp->ini->base, why, &c->ibp->base.peer->nid, &m.lnet);
        if (c->state == IB_CONN_UP)
            ib_rx_repost(c, rx, m.hdr.type, false);
        return;
    }
    if (why != LNET_DROP_NONE) {
        fail(c, why, NULL);
        return;
    }
    count_message(c, m.hdr.type);
    if (c->state == IB_CONN_UP)
        dispatch(c, rx, &m);
    else
        dispatch_last(c, rx, &m);
}

void ib_rx_done(struct ib_conn *c, unsigned index, bool good, uint32_t len)
{
    struct ib_rx *rx = &c->rxs[index];

    assert(index < c->nrxs);
    c->posted--;
    rx->len = len;
    if (!good) {
        ib_conn_fail(c, &ib_cause_broken, IB_DROP(LOST), NULL);
        return;
    }
    asan_unpoison(rx->buf, len);
    if (c->state < IB_CONN_UP) {
        TAILQ_INSERT_TAIL(&c->early, rx, link);
        return;
    }
    ib_conn_hold(c);
    if (c->state == IB_CONN_UP)
        c->ibp->base.peer->last_alive_us = reactor_now_us();
    take(c, rx);
    ib_conn_release(c);
}

void ib_rx_early(struct ib_conn *c)
{
    struct ib_rx *rx;

    while ((rx = TAILQ_FIRST(&c->early))) {
        TAILQ_REMOVE(&c->early, rx, link);
        take(c, rx);
    }
}

/* ---- the end ---- */

/* Whether it waits for the peer's PUT_DONE, or for the device after that. */
static bool is_timed(const struct ib_recv *r)
{
    return r->state == IB_RECV_ACKED || r->state == IB_RECV_REVOKING;
}

bool ib_recv_expired(const struct ib_conn *c, uint64_t now, const struct lnet_hdr **hdr)
{
    for (uint32_t i = 0; i < c->nrecvs; i++) {
        const struct ib_recv *r = &c->recvs[i];

        if (is_timed(r) && now >= r->deadline_us) {
            *hdr = &r->rx.hdr;
            return true;
        }
    }
    return false;
}

/* Until the queue pair is gone the peer may write to the memory. So a transfer can be given up only
 * with its connection, whose timer does it: others need what the peer has kept for long. */
enum lnet_abandon ib_recv_abandon(struct lnet_rx *rx, bool too_long)
{
    struct ib_recv *r = container_of(rx, struct ib_recv, rx);

    if (!too_long || r->conn->state != IB_CONN_UP || !is_timed(r))
        return LNET_ABANDON_NOT;
    r->deadline_us = reactor_now_us();
    reactor_timer_arm(&r->conn->timer, 0);
    return LNET_ABANDON_SOON;
}

void ib_rx_cancel(struct ib_conn *c)
{
    for (uint32_t i = 0; c->parsed > 0 && i < c->nrecvs; i++) {
        struct ib_recv *r = &c->recvs[i];

        if (r->state != IB_RECV_PARSED || !lnet_rx_cancel(&r->rx))
            continue;
        c->parsed--;
        recv_put(r);
    }
}

static struct lnet_result final(const struct ib_recv *r)
{
    if (r->state == IB_RECV_REVOKING)
        return r->result; /* the payload is here, and the key went with the queue pair */
    if (r->unbound)
        return (struct lnet_result){IB_DROP(KEY), LNET_HEALTH_LOCAL_ERROR};
    return incomplete(r->conn);
}

static void finalize(struct ib_recv *r)
{
    struct lnet_result result = final(r);

    ib_key_finalize(r);
    ib_recv_end(r, result);
}

void ib_rx_finalize(struct ib_conn *c)
{
    for (uint32_t i = 0; i < c->nrecvs; i++) {
        struct ib_recv *r = &c->recvs[i];

        if (r->state == IB_RECV_ANSWERING && r->type == IB_PUT_REQ)
            ib_recv_end(r, r->result); /* nothing of it was to be received any more */
        else if (r->state != IB_RECV_FREE && r->state != IB_RECV_PARSED)
            finalize(r);
    }
}
