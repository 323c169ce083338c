/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sending side of a connection, o2iblnd §3.2 to §3.4, §5.1, §5.3, §5.7.
 *
 * Messages of the core wait in queues; a tx is taken when a message is posted. All messages that
 * may be posted go to the device in one call, after the receive buffers whose credits they
 * announce. One transfer writes at a time: messages behind it wait until its last WRITE is posted.
 * So only its own WRITEs can be without a signalled request behind them.
 *
 * The core's credits return (lnet_send_accepted) when the device has all of a message: an IMMEDIATE
 * when it is posted, a PUT when its PUT_DONE is posted. So the tx credits bound both the messages
 * queued here and those that wait for a PUT_ACK. A kernel node returns them a round trip later,
 * when the last message has completed (§3.8).
 */
#include "lib/lnd_verbs/ib_conn.h"

#include <assert.h>
#include <errno.h>

#define STATUS_PROTO (-71) /* EPROTO on the wire, §6.4 */

#define TX_HIDDEN_AT   offsetof(struct ib_tx, type)
#define TX_HIDDEN_SIZE (sizeof(struct ib_tx) - TX_HIDDEN_AT)
#define TX_HEADS       ((size_t)IB_HEADS * IB_HEAD)

static const char no_posts[] = "the device takes no requests";

struct batch {
    unsigned n, nsge;
    struct ibv_send_wr wr[IB_POSTS];
    struct ibv_sge sge[IB_POST_SGES];
    struct ib_tx *tx[IB_POSTS]; /* the message that the request sends; NULL: a WRITE */
};

/* ---- txs ---- */

void ib_tx_layout(struct ib_conn *c, struct ib_tx *txs, unsigned n, uint8_t *heads)
{
    c->txs = txs;
    c->ntxs = n;
    STAILQ_INIT(&c->rsrvd);
    STAILQ_INIT(&c->sendq);
    TAILQ_INIT(&c->free_txs);
    TAILQ_INIT(&c->answers);
    TAILQ_INIT(&c->active_txs);
    for (unsigned i = 0; i < n; i++) {
        struct ib_tx *tx = &txs[i];

        tx->index = (uint16_t)i;
        tx->head = heads + i * TX_HEADS;
        TAILQ_INSERT_TAIL(&c->free_txs, tx, link);
        asan_poison((uint8_t *)tx + TX_HIDDEN_AT, TX_HIDDEN_SIZE);
        asan_poison(tx->head, TX_HEADS);
    }
}

/* The one used last: it is in the caches. */
static struct ib_tx *tx_get(struct ib_conn *c, unsigned type)
{
    struct ib_tx *tx = TAILQ_FIRST(&c->free_txs);

    if (!tx)
        return NULL;
    TAILQ_REMOVE(&c->free_txs, tx, link);
    asan_unpoison((uint8_t *)tx + TX_HIDDEN_AT, TX_HIDDEN_SIZE);
    asan_unpoison(tx->head, TX_HEADS);
    tx->used = true;
    tx->type = (uint8_t)type;
    tx->sending = 0;
    tx->queued = tx->waiting = tx->writing = false;
    tx->msg = NULL;
    tx->recv = NULL;
    tx->bounce = NULL;
    tx->result = LNET_RESULT_OK;
    tx->len = 0;
    tx->w.left = 0;
    tx->w.quiet = 0;
    tx->w.rx = NULL;
    return tx;
}

static void tx_put(struct ib_conn *c, struct ib_tx *tx)
{
    if (tx->bounce)
        ib_bounce_put(c, tx->bounce);
    tx->used = false;
    TAILQ_INSERT_HEAD(&c->free_txs, tx, link);
    asan_poison(tx->head, TX_HEADS);
    asan_poison((uint8_t *)tx + TX_HIDDEN_AT, TX_HIDDEN_SIZE);
}

static uint64_t size_of(const struct lnet_msg *msg)
{
    return IB_IMMEDIATE_SIZE + msg->payload.bytes;
}

/* Completes the message and the receive of a tx that is in no list any more, and frees the tx. */
static void tx_end(struct ib_conn *c, struct ib_tx *tx, struct lnet_result result)
{
    struct lnet_msg *msg = tx->msg;
    struct ib_recv *recv = tx->type == IB_GET_DONE ? tx->recv : NULL;

    if (msg)
        c->taken += size_of(msg) - (tx->type == IB_PUT_DONE ? size_of(msg) / 2 : 0);
    tx_put(c, tx);
    if (msg)
        lnet_send_done(msg, result);
    if (recv)
        ib_recv_end(recv, recv->result);
}

/* ---- queueing ---- */

static unsigned type_of(const struct lnet_msg *msg)
{
    return msg->hdr.type == LNET_MSG_GET || msg->payload.bytes <= IB_IMMEDIATE_MAX ? IB_IMMEDIATE
                                                                                   : IB_PUT_REQ;
}

/* §5.1. A GET is always sent as a message. Then its REPLY comes as a message of any length, as it
 * does when a GET is forwarded (GET_REQ has a defect in kernels, §4.2). */
void ib_conn_send(struct ib_conn *c, struct lnet_msg *msg)
{
    if (!lnet_hdr_fits4(&msg->hdr)) {
        lnet_send_done(msg, (struct lnet_result){LNET_DROP_LARGE_NID_ON_NID4, LNET_HEALTH_OK});
        return;
    }
    msg->lnd_deadline_us = reactor_now_us() + lnd_timeout_us(c->ibp->ini->base.ni);
    msg->lnd_sent = 0;
    c->given += size_of(msg);
    if (type_of(msg) == IB_PUT_REQ)
        STAILQ_INSERT_TAIL(&c->rsrvd, msg, queue);
    else
        STAILQ_INSERT_TAIL(&c->sendq, msg, queue);
    ib_conn_soon(c);
}

struct ib_tx *ib_tx_answer(struct ib_conn *c, unsigned type, struct ib_recv *recv)
{
    struct ib_tx *tx = tx_get(c, type);

    assert(tx);
    tx->recv = recv;
    tx->peer_cookie = recv->cookie;
    return tx;
}

void ib_tx_queue_answer(struct ib_conn *c, struct ib_tx *tx)
{
    tx->queued = true;
    tx->deadline_us = reactor_now_us() + lnd_timeout_us(c->ibp->ini->base.ni);
    TAILQ_INSERT_TAIL(&c->answers, tx, link);
    ib_conn_soon(c);
}

/* ---- requests for the device ---- */

struct ib_hdr ib_tx_hdr(const struct ib_conn *c, unsigned type, uint8_t credits)
{
    return (struct ib_hdr){
        .version = IB_VERSION_2,
        .type = (uint8_t)type,
        .credits = credits,
        .src_nid = c->ends.my_nid,
        .src_stamp = c->ends.my_stamp,
        .dst_nid = c->ends.peer_nid,
        .dst_stamp = c->ends.peer_stamp,
    };
}

/* Returns whether there is room for one more request with a list of this many entries. */
static bool has_room(const struct ib_conn *c, const struct batch *b, unsigned sges)
{
    return c->sq_free > 0 && b->n < IB_POSTS && b->nsge + sges <= IB_POST_SGES;
}

static struct ibv_send_wr *add(struct ib_conn *c, struct batch *b, struct ib_tx *tx)
{
    c->sq_free--;
    b->tx[b->n] = tx;
    return &b->wr[b->n++];
}

/* Adds the SEND of a message whose list begins at b->sge[b->nsge] with n entries. */
static void add_send(struct ib_conn *c, struct batch *b, struct ib_tx *tx, unsigned n,
                     uint32_t bytes)
{
    bool last = tx->type == IB_PUT_DONE;
    struct ibv_send_wr *wr = add(c, b, tx);

    *wr = (struct ibv_send_wr){
        .wr_id = ib_wr_id(c, last ? IB_WR_LAST : IB_WR_FIRST, tx->w.quiet + 1, tx->index),
        .opcode = IBV_WR_SEND,
        .sg_list = &b->sge[b->nsge],
        .num_sge = (int)n,
        .send_flags = IBV_SEND_SIGNALED | (bytes <= c->link.inline_bytes ? IBV_SEND_INLINE : 0u),
    };
    b->nsge += n;
    tx->w.quiet = 0;
    tx->sending++;
    tx->queued = tx->writing = false;
    c->outstanding++;
    TAILQ_INSERT_TAIL(&c->active_txs, tx, link);
}

/* A message without payload of its own. */
static void add_plain(struct ib_conn *c, struct batch *b, struct ib_tx *tx)
{
    uint8_t *at = tx->type == IB_PUT_DONE ? tx->head + IB_HEAD : tx->head;
    struct ib_msg m;

    tx->returned = ib_credits_post(&c->credits, tx->type);
    if (tx->len > 0) { /* PUT_ACK */
        at = tx->bounce ? tx->bounce->mem : at;
        ((struct ib_wire_hdr *)at)->credits = tx->returned;
    } else {
        m.hdr = ib_tx_hdr(c, tx->type, tx->returned);
        if (tx->type == IB_PUT_REQ)
            m.lnet = tx->msg->hdr;
        m.cookie = tx->type == IB_PUT_REQ ? tx->cookie : tx->peer_cookie;
        m.status = tx->status;
        tx->len = (uint32_t)ib_msg_encode(&m, NULL, at, IB_HEAD);
    }
    b->sge[b->nsge] = (struct ibv_sge){(uintptr_t)at, tx->len, c->link.area_lkey};
    add_send(c, b, tx, 1, tx->len);
    tx->len = 0;
}

/* ---- keys of transfers to us ---- */

/* The window is bound right before the message that has its key. */
static bool add_bind(struct ib_conn *c, struct batch *b, struct ib_tx *tx)
{
    if (tx->type != IB_PUT_ACK)
        return has_room(c, b, 1);
    if (c->sq_free < 2 || b->n + 2 > IB_POSTS || b->nsge == IB_POST_SGES)
        return false;
    if (ib_key_bind(tx->recv, &b->wr[b->n]) > 0) {
        add(c, b, NULL);
        tx->w.quiet = 1;
    }
    return true;
}

static bool add_invalidates(struct ib_conn *c, struct batch *b)
{
    while (c->revokes) {
        if (!has_room(c, b, 0))
            return false;
        ib_key_invalidate(c, add(c, b, NULL));
        c->outstanding++;
    }
    return true;
}

/* ---- transfers ---- */

/* The completion of a signalled WRITE returns all requests since the signalled one before it. */
static void add_write(struct ib_conn *c, struct batch *b, struct ib_tx *tx,
                      const struct ib_bounce *bounce)
{
    struct ibv_send_wr *wr = add(c, b, NULL);
    unsigned wrs = ++tx->w.quiet;

    b->nsge += (unsigned)wr->num_sge;
    tx->writing = true;
    if (bounce) {
        wr->wr_id = ib_wr_id(c, IB_WR_BOUNCE, wrs, bounce->index);
    } else if (wrs == IB_WRITE_BATCH) {
        wr->wr_id = ib_wr_id(c, IB_WR_BATCH, wrs, tx->index);
    } else {
        wr->wr_id = ib_wr_id(c, IB_WR_WRITE, 0, tx->index);
        return;
    }
    wr->send_flags = IBV_SEND_SIGNALED;
    tx->w.quiet = 0;
    c->outstanding++;
}

/* Returns true when the last WRITE is added, so that the completion message follows. */
static bool add_writes(struct ib_conn *c, struct batch *b, struct ib_tx *tx)
{
    unsigned sges = min(c->link.send_sges, (uint32_t)IB_SGES);
    struct ib_bounce *bounce;

    while (tx->w.left > 0) {
        if (!has_room(c, b, sges) ||
            !ib_writer_next(c, &tx->w, &b->wr[b->n], &b->sge[b->nsge], sges, &bounce))
            return false;
        add_write(c, b, tx, bounce);
    }
    if (tx->w.rx)
        ib_rx_repost(c, tx->w.rx, IB_PUT_ACK, false);
    tx->w.rx = NULL;
    return true;
}

/* ---- what may be sent, §3.3 ---- */

static bool add_answer(struct ib_conn *c, struct batch *b, struct ib_tx *tx)
{
    if (!tx->writing && ib_credits_may_post(&c->credits, tx->type) != IB_MAY_POST)
        return false;
    if (!add_writes(c, b, tx) || !add_bind(c, b, tx))
        return false;
    TAILQ_REMOVE(&c->answers, tx, link);
    if (tx->status > 0 && (tx->type == IB_PUT_DONE || tx->type == IB_GET_DONE)) {
        c->bytes_out += (uint32_t)tx->status;
        count_add(&ib_counters(c)->bytes_out, (uint32_t)tx->status);
    }
    add_plain(c, b, tx);
    return true;
}

/* Adds header and payload as a gather list, or copies both into bounce memory. */
static bool add_immediate(struct ib_conn *c, struct batch *b, struct lnet_msg *msg)
{
    uint32_t bytes = IB_IMMEDIATE_SIZE + msg->payload.bytes;
    unsigned max = min(min(c->link.send_sges, (uint32_t)IB_SGES), (uint32_t)IB_POST_SGES - b->nsge),
             n = 0;
    bool inlined = bytes <= c->link.inline_bytes;
    struct ib_bounce *bounce = NULL;
    struct ib_tx *tx;
    struct ib_msg m;
    uint8_t *at;

    if (ib_gather(c, &msg->payload, inlined, &b->sge[b->nsge + 1], max - 1, &n) ==
        IB_GATHER_BOUNCE) {
        if (max < min(c->link.send_sges, (uint32_t)IB_SGES))
            return false; /* there is room in the next batch */
        bounce = ib_bounce_get(c);
        if (!bounce)
            return false; /* goes on when one completes */
        n = 0;
    }
    tx = tx_get(c, IB_IMMEDIATE);
    if (!tx) {
        if (bounce)
            ib_bounce_put(c, bounce);
        return false;
    }
    tx->msg = msg;
    tx->bounce = bounce;
    at = bounce ? bounce->mem : tx->head;
    tx->returned = ib_credits_post(&c->credits, IB_IMMEDIATE);
    m.hdr = ib_tx_hdr(c, IB_IMMEDIATE, tx->returned);
    m.lnet = msg->hdr;
    m.carried = msg->payload.bytes;
    ib_msg_encode(&m, NULL, at, IB_HEAD);
    if (bounce)
        ib_copy_out(c, at + IB_IMMEDIATE_SIZE, msg->payload.seg, msg->payload.n, 0,
                    msg->payload.bytes);
    b->sge[b->nsge] =
        (struct ibv_sge){(uintptr_t)at, bounce ? bytes : IB_IMMEDIATE_SIZE, c->link.area_lkey};
    add_send(c, b, tx, n + 1, bytes);
    c->bytes_out += msg->payload.bytes;
    count_add(&ib_counters(c)->immediates_out, 1);
    count_add(&ib_counters(c)->bytes_out, msg->payload.bytes);
    return true;
}

static bool add_put_req(struct ib_conn *c, struct batch *b, struct lnet_msg *msg)
{
    struct ib_tx *tx = tx_get(c, IB_PUT_REQ);

    if (!tx)
        return false;
    tx->msg = msg;
    tx->cookie = ++c->next_cookie << 16 | tx->index;
    tx->waiting = true;
    add_plain(c, b, tx);
    count_add(&ib_counters(c)->puts_out, 1);
    return true;
}

/* Once per message. */
static void count_wait(struct lnet_msg *msg, uint64_t *counter)
{
    if (msg->lnd_sent == 0)
        count_add(counter, 1);
    msg->lnd_sent = 1;
}

static bool add_queued(struct ib_conn *c, struct batch *b)
{
    struct lnet_msg *msg = STAILQ_FIRST(&c->sendq);
    unsigned type = type_of(msg);
    bool added;

    switch (ib_credits_may_post(&c->credits, type)) {
    case IB_MAY_POST:
        break;
    case IB_MAY_WAIT_CREDIT:
        count_wait(msg, &ib_counters(c)->credit_waits);
        return false;
    default:
        count_wait(msg, &ib_counters(c)->send_waits);
        return false;
    }
    if (!has_room(c, b, 2))
        return false;
    added = type == IB_IMMEDIATE ? add_immediate(c, b, msg) : add_put_req(c, b, msg);
    if (!added)
        return false;
    TAILQ_LAST(&c->active_txs, ib_txs)->deadline_us = msg->lnd_deadline_us;
    lnet_msg_queue_pop(&c->sendq);
    return true;
}

/* Whether a NOOP is to show if the peer is there: for the keepalive, or as a probe. */
static bool is_idle(const struct ib_conn *c)
{
    uint64_t keepalive = c->shard->lv->opts.keepalive * LND_SEC;

    return c->sent_us < c->probe_us ||
           (keepalive > 0 && reactor_now_us() - c->sent_us >= keepalive);
}

static bool add_noop(struct ib_conn *c, struct batch *b)
{
    struct ib_tx *tx;

    if (!has_room(c, b, 1) || ib_credits_may_post(&c->credits, IB_NOOP) != IB_MAY_POST)
        return false;
    tx = tx_get(c, IB_NOOP);
    if (!tx)
        return false;
    tx->deadline_us = reactor_now_us() + lnd_timeout_us(c->ibp->ini->base.ni);
    add_plain(c, b, tx);
    count_add(&ib_counters(c)->noops_out, 1);
    return true;
}

static void reserve(struct ib_conn *c)
{
    while (STAILQ_FIRST(&c->rsrvd) && ib_credits_reserve(&c->credits)) {
        struct lnet_msg *msg = lnet_msg_queue_pop(&c->rsrvd);

        STAILQ_INSERT_TAIL(&c->sendq, msg, queue);
    }
    if (STAILQ_FIRST(&c->rsrvd))
        count_wait(STAILQ_FIRST(&c->rsrvd), &ib_counters(c)->reserve_waits);
}

static void gather(struct ib_conn *c, struct batch *b)
{
    struct ib_tx *tx;

    reserve(c);
    if (!add_invalidates(c, b))
        return;
    while ((tx = TAILQ_FIRST(&c->answers))) {
        if (!add_answer(c, b, tx))
            return;
    }
    if (ib_credits_need_noop(&c->credits, is_idle(c), STAILQ_FIRST(&c->sendq) != NULL))
        add_noop(c, b);
    while (STAILQ_FIRST(&c->sendq)) {
        if (!add_queued(c, b))
            return;
    }
}

/* ---- posting ---- */

/* Undoes a message that could not be posted: the connection is closed next. */
static void unpost(struct ib_conn *c, struct batch *b, unsigned from)
{
    for (unsigned i = b->n; i-- > from;) {
        struct ib_tx *tx = b->tx[i];

        c->sq_free++;
        if (b->wr[i].send_flags & IBV_SEND_SIGNALED)
            c->outstanding--;
        if (!tx)
            continue;
        ib_credits_unpost(&c->credits, tx->type, tx->returned);
        tx->sending--;
        tx->waiting = false;
        if (tx->result.reason == LNET_DROP_NONE)
            tx->result = (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR};
    }
}

/* The device has it. */
static void on_posted(struct ib_tx *tx)
{
    struct ib_recv *recv = tx->recv;

    if (tx->type == IB_PUT_ACK) {
        recv->told = true;
        ib_key_bound(recv);
        tx->recv = NULL;
    } else if (tx->type == IB_PUT_NAK) {
        tx->recv = NULL;
        ib_recv_end(recv, recv->result);
    } else if (tx->type == IB_IMMEDIATE || tx->type == IB_PUT_DONE) {
        lnet_send_accepted(tx->msg);
    }
}

static void post(struct ib_conn *c, struct batch *b)
{
    struct ibv_send_wr *bad = NULL;
    unsigned good = b->n;
    int rc;

    for (unsigned i = 0; i + 1 < b->n; i++)
        b->wr[i].next = &b->wr[i + 1];
    rc = ib_rdma(c)->post_send(&c->link, b->wr, &bad);
    if (rc != 0) {
        good = bad ? (unsigned)(bad - b->wr) : 0;
        unpost(c, b, good);
    }
    count_add(&ib_counters(c)->posts, 1);
    count_add(&ib_counters(c)->requests, good);
    c->sent_us = reactor_now_us();
    for (unsigned i = 0; i < good; i++) {
        if (b->tx[i])
            on_posted(b->tx[i]);
    }
    if (rc != 0) {
        ib_blame(c, no_posts, -rc);
        ib_conn_fail(c, &ib_cause_broken, IB_DROP(POST), NULL);
    }
}

void ib_tx_run(struct ib_conn *c)
{
    struct batch b;

    if (c->state != IB_CONN_UP || c->in_tx) {
        c->tx_again = true;
        return;
    }
    c->in_tx = true;
    ib_conn_hold(c);
    do {
        c->tx_again = false;
        b.n = 0;
        b.nsge = 0;
        if (ib_rx_post(c) != 0) {
            ib_blame(c, no_posts, 0);
            ib_conn_fail(c, &ib_cause_broken, IB_DROP(POST), NULL);
            break;
        }
        gather(c, &b);
        if (b.n > 0)
            post(c, &b);
    } while (c->state == IB_CONN_UP && (b.n > 0 || c->tx_again || c->repost));
    c->in_tx = false;
    ib_conn_release(c);
}

/* ---- answers to ours, §5.3 ---- */

/* Returns the PUT_REQ with this cookie that waits for its answer, or NULL. */
static struct ib_tx *find_waiting(const struct ib_conn *c, uint64_t cookie)
{
    unsigned index = cookie & 0xffff;
    struct ib_tx *tx = index < c->ntxs ? &c->txs[index] : NULL;

    if (!tx || !tx->used || tx->type != IB_PUT_REQ || !tx->waiting || tx->cookie != cookie)
        return NULL;
    return tx;
}

enum lnet_drop ib_tx_put_acked(struct ib_conn *c, const struct ib_msg *m, struct ib_rx *rx,
                               bool *keep)
{
    struct ib_tx *tx = find_waiting(c, m->cookie);

    if (!tx)
        return IB_DROP(ANSWER);
    tx->waiting = false;
    tx->type = IB_PUT_DONE;
    tx->peer_cookie = m->dst_cookie;
    c->taken += size_of(tx->msg) / 2; /* it has memory for all */
    if (m->rd.total > tx->msg->payload.bytes) {
        tx->status = STATUS_PROTO;
        tx->result = (struct lnet_result){IB_DROP(TOO_MUCH), LNET_HEALTH_REMOTE_ERROR};
    } else {
        tx->status = (int32_t)m->rd.total;
        *keep = ib_writer_init(&tx->w, &m->rd, tx->msg->payload.seg, tx->msg->payload.n,
                               m->rd.total, rx);
    }
    TAILQ_REMOVE(&c->active_txs, tx, link);
    ib_tx_queue_answer(c, tx);
    return LNET_DROP_NONE;
}

static bool is_over(const struct ib_tx *tx)
{
    return !tx->queued && tx->sending == 0 && !tx->waiting;
}

static void end_if_over(struct ib_conn *c, struct ib_tx *tx)
{
    if (!is_over(tx))
        return;
    TAILQ_REMOVE(&c->active_txs, tx, link);
    tx_end(c, tx, tx->result);
}

enum lnet_drop ib_tx_put_refused(struct ib_conn *c, const struct ib_msg *m)
{
    struct ib_tx *tx = find_waiting(c, m->cookie);

    if (!tx)
        return IB_DROP(ANSWER);
    tx->waiting = false;
    if (m->status < 0)
        tx->result = (struct lnet_result){IB_DROP(PEER_FAILED), LNET_HEALTH_REMOTE_ERROR};
    end_if_over(c, tx);
    return LNET_DROP_NONE;
}

/* ---- completions ---- */

static void failed(struct ib_conn *c, struct ib_tx *tx)
{
    if (tx && tx->result.reason == LNET_DROP_NONE)
        tx->result = (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED};
    ib_conn_fail(c, &ib_cause_broken, IB_DROP(SEND), NULL);
}

static void send_done(struct ib_conn *c, struct ib_tx *tx, bool last, bool good)
{
    ib_credits_sent(&c->credits, last ? IB_PUT_DONE : tx->type);
    tx->sending--;
    if (good && c->state == IB_CONN_CLOSING && is_over(tx))
        tx->result = tx->own; /* the message has arrived */
    if (good)
        end_if_over(c, tx);
    else
        failed(c, tx);
}

void ib_tx_done(struct ib_conn *c, const struct ib_wr *wr, bool good)
{
    if (wr->kind != IB_WR_WRITE)
        c->outstanding--;
    c->sq_free += wr->wrs;
    switch (wr->kind) {
    case IB_WR_FIRST:
    case IB_WR_LAST:
        assert(wr->index < c->ntxs);
        send_done(c, &c->txs[wr->index], wr->kind == IB_WR_LAST, good);
        break;
    case IB_WR_BOUNCE:
        ib_bounce_put(c, &c->bounces[wr->index]);
        if (!good)
            failed(c, NULL);
        break;
    default: /* a WRITE, also one that was not to complete */
        if (!good)
            failed(c, &c->txs[wr->index]);
        break;
    }
}

/* ---- time ---- */

static bool any_expired(const struct lnet_msg *msg, uint64_t now, const struct lnet_hdr **hdr)
{
    for (; msg; msg = msg->lnd_next) {
        if (now >= msg->lnd_deadline_us) {
            *hdr = &msg->hdr;
            return true;
        }
    }
    return false;
}

static bool any_tx_expired(const struct ib_txs *list, uint64_t now, const struct lnet_hdr **hdr)
{
    const struct ib_tx *tx;

    TAILQ_FOREACH(tx, list, link) {
        if (now >= tx->deadline_us) {
            *hdr = tx->msg ? &tx->msg->hdr : NULL;
            return true;
        }
    }
    return false;
}

bool ib_tx_expired(const struct ib_conn *c, uint64_t now, const struct lnet_hdr **hdr)
{
    return any_tx_expired(&c->active_txs, now, hdr) || any_tx_expired(&c->answers, now, hdr) ||
           any_expired(STAILQ_FIRST(&c->sendq), now, hdr) ||
           any_expired(STAILQ_FIRST(&c->rsrvd), now, hdr);
}

/* ---- the end, §6.2, §6.3 ---- */

static void mark(struct ib_txs *list, const struct lnd_close *why)
{
    struct ib_tx *tx;

    TAILQ_FOREACH(tx, list, link) {
        enum lnet_health health = tx->sending > 0 || tx->writing ? why->begun
                                  : tx->waiting                  ? why->waiting
                                                                 : why->queued;

        tx->own = tx->result;
        if (tx->result.reason == LNET_DROP_NONE)
            tx->result = (struct lnet_result){why->tx, health};
    }
}

void ib_tx_abort(struct ib_conn *c)
{
    struct lnet_msg *sendq = lnet_msg_queue_take(&c->sendq);
    struct lnet_msg *rsrvd = lnet_msg_queue_take(&c->rsrvd);

    mark(&c->active_txs, &c->why);
    mark(&c->answers, &c->why);
    lnd_msgs_fail(sendq, c->why.tx, c->why.queued);
    lnd_msgs_fail(rsrvd, c->why.tx, c->why.queued);
}

/* ib_rx_finalize() completes the receives of unsent answers. */
static void finalize(struct ib_conn *c, struct ib_txs *list)
{
    struct ib_tx *tx;

    while ((tx = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, tx, link);
        tx->recv = NULL;
        tx_end(c, tx, tx->result);
    }
}

void ib_tx_finalize(struct ib_conn *c)
{
    finalize(c, &c->active_txs);
    finalize(c, &c->answers);
}
