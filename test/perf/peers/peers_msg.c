/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LNet messages of simulated peers: PUTs and GETs of the load and what is answered to them, and as
 * servers the ACKs and REPLYs to those of others. docs/protocol/lnet-core.md §2.3, §3.4, §4.
 */
#include "test/perf/peers/peers.h"

#include <errno.h>

#define INJECT_EVERY 10 /* REPLYs */
#define INJECT_SHIFT 8  /* bytes of the pattern */

/* ---- what is sent ---- */

void peers_tx_fill(struct peers_tx *tx, struct lnet_hdr *h, const void *small, unsigned small_len)
{
    struct sock_frame frame = {.type = SOCK_FRAME_LNET};

    h->dest_pid = h->src_pid = LNET_PID_LUSTRE;
    sock_frame_encode(&frame, tx->head);
    (void)lnet_hdr_encode4(h, tx->head + SOCK_FRAME_SIZE); /* all NIDs here are short ones */
    if (small_len > 0)
        memcpy(tx->head + PEERS_HEAD, small, small_len);
    tx->head_len = (uint16_t)(PEERS_HEAD + small_len);
}

struct peers_tx *peers_answer(struct peer *p)
{
    struct peers_tx *tx = TAILQ_FIRST(&p->e->free_answers);

    if (!tx || p->answers >= PEER_ANSWERS + PEER_OWN)
        return NULL;
    TAILQ_REMOVE(&p->e->free_answers, tx, link);
    p->answers++;
    tx->peer = p;
    tx->offset = tx->length = 0;
    return tx;
}

static void op_free(struct peers *e, struct peers_op *op)
{
    op->state = PEERS_OP_FREE;
    op->generation++;
    TAILQ_INSERT_HEAD(&e->free_ops, op, link);
    if (!e->wanted)
        return;
    e->wanted = false;
    perf_room(&e->base, PERF_ALL_SOURCES);
}

void peers_tx_end(struct peers_tx *tx, bool sent)
{
    struct peer *p = tx->peer;

    if (!tx->op) {
        TAILQ_INSERT_HEAD(&p->e->free_answers, tx, link);
        p->answers--;
        peer_resume(p);
    } else if (tx->op->state == PEERS_OP_GONE) {
        op_free(p->e, tx->op);
    } else {
        tx->op->state = sent ? PEERS_OP_SENT : PEERS_OP_UNSENT;
    }
}

static struct lnet_handle handle_of(const struct peers *e, uint64_t object)
{
    return (struct lnet_handle){e->incarnation, object};
}

bool peers_ping(struct peer *p, const struct lnet_nid *nid, uint64_t object)
{
    struct lnet_hdr h = {.dest_nid = *nid, .src_nid = p->nid, .type = LNET_MSG_GET};
    struct lnet_get get = {
        .ret = handle_of(p->e, object),
        .match_bits = LNET_PING_MATCH_BITS,
        .portal = LNET_RESERVED_PORTAL,
        .sink_length = LNET_PING_MIN_SINK,
    };
    struct peers_tx *tx = peers_answer(p);

    if (!tx)
        return false;
    lnet_body_set_get(&h, &get);
    peers_tx_fill(tx, &h, NULL, 0);
    peer_queue(p, tx);
    return true;
}

/* ---- the load's messages ---- */

static struct peers_op *op_take(struct peer *p, unsigned kind, uint64_t cookie)
{
    struct peers *e = p->e;
    struct peers_op *op = TAILQ_FIRST(&e->free_ops);

    if (!op)
        return NULL;
    TAILQ_REMOVE(&e->free_ops, op, link);
    TAILQ_INSERT_TAIL(&p->ops, op, link);
    op->state = PEERS_OP_QUEUED;
    op->kind = (uint8_t)kind;
    op->cookie = cookie;
    op->verify = false;
    op->tx.op = op;
    op->tx.peer = p;
    op->tx.offset = op->tx.length = 0;
    return op;
}

static struct lnet_handle op_handle(const struct peers *e, const struct peers_op *op)
{
    return handle_of(e, (uint64_t)(op->generation & 0x3fffffffu) << 32 | (uint64_t)(op - e->op));
}

static void fill_put(struct peers *e, struct peers_op *op, const struct perf_msg *m,
                     struct lnet_hdr *h)
{
    struct match match = {MATCH_PUT, m->verify, m->run, e->put_seq};
    struct lnet_put put = {
        .ack = op_handle(e, op),
        .hdr_data = m->sum,
        .portal = LNET_PORTAL_RPC,
    };

    if (m->repeat && match.seq > 0)
        match.seq--;
    else
        e->put_seq++;
    put.match_bits = match_pack(&match);
    h->type = LNET_MSG_PUT;
    h->payload_len = m->length;
    lnet_body_set_put(h, &put);
    op->tx.offset = m->offset;
    op->tx.length = m->length;
}

static void fill_get(struct peers *e, struct peers_op *op, const struct perf_msg *m,
                     struct lnet_hdr *h)
{
    struct match match = {MATCH_GET, m->window, m->run, 0};
    struct lnet_get get = {
        .ret = op_handle(e, op),
        .match_bits = match_pack(&match),
        .portal = LNET_PORTAL_RPC,
        .src_offset = m->offset,
        .sink_length = m->length,
    };

    h->type = LNET_MSG_GET;
    lnet_body_set_get(h, &get);
    op->expect = pattern_source_offset(m->window) + m->offset;
}

int peers_send(struct perf_engine *base, const struct perf_msg *m)
{
    struct peers *e = (struct peers *)(void *)base;
    struct lnet_hdr h = {0};
    struct peers_op *op;
    struct peer *p;

    if (m->from >= base->sources || m->to >= base->targets || m->length > LNET_MAX_PAYLOAD ||
        m->offset > PATTERN_SIZE - m->length)
        return -EINVAL;
    peers_mark_begin(e);
    p = &e->side[0].peer[m->from];
    op = op_take(p, m->op, m->cookie);
    if (!op) {
        e->wanted = true;
        return -EAGAIN;
    }
    op->verify = m->verify;
    op->length = m->length;
    h.src_nid = p->nid;
    h.dest_nid = peers_target(e, m->to);
    if (m->op == OP_PUT)
        fill_put(e, op, m, &h);
    else
        fill_get(e, op, m, &h);
    peers_tx_fill(&op->tx, &h, NULL, 0);
    peer_queue(p, &op->tx);
    return 0;
}

/* No answer to it counts any more. */
static void op_drop(struct peers *e, struct peers_op *op)
{
    TAILQ_REMOVE(&op->tx.peer->ops, op, link);
    if (op->state == PEERS_OP_QUEUED && !peer_unqueue(&op->tx)) {
        op->state = PEERS_OP_GONE;
        op->generation++;
        return;
    }
    op_free(e, op);
}

void peers_cancel(struct perf_engine *base, uint64_t cookie)
{
    struct peers *e = (struct peers *)(void *)base;

    for (unsigned i = 0; i < PEERS_OPS; i++) {
        struct peers_op *op = &e->op[i];

        if (op->cookie == cookie && op->kind < OP_KINDS && op->state != PEERS_OP_FREE &&
            op->state != PEERS_OP_GONE) {
            struct peer *p = op->tx.peer;

            op_drop(e, op);
            peer_push(p); /* it may have had a credit */
            return;
        }
    }
}

static void op_done(struct peers *e, struct peers_op *op, struct perf_end *end)
{
    uint64_t cookie = op->cookie;
    bool report = op->kind == PEERS_OP_REPORT;

    end->unsent = end->status != 0 && op->state != PEERS_OP_SENT;
    end->when_ns = perf_now_ns();
    op_drop(e, op);
    if (report) {
        e->collecting = NULL;
        perf_collected(&e->base, false, NULL);
    } else {
        perf_done(&e->base, cookie, end);
    }
}

void peers_fail_ops(struct peer *p, int error)
{
    struct peers_op *op;

    while ((op = TAILQ_FIRST(&p->ops))) {
        struct perf_end end = {.status = error};

        op_done(p->e, op, &end);
    }
}

/* ---- the record of a run ---- */

void peers_collect(struct perf_engine *base, uint32_t run, unsigned patience_ms)
{
    struct peers *e = (struct peers *)(void *)base;
    struct match match = {.kind = MATCH_REPORT, .run = run};
    struct peer *p = &e->side[0].peer[0];
    struct lnet_hdr h = {.dest_nid = peers_target(e, 0), .src_nid = p->nid, .type = LNET_MSG_GET};
    struct lnet_get get = {
        .match_bits = match_pack(&match),
        .portal = LNET_PORTAL_RPC,
        .sink_length = RUN_REPORT_SIZE,
    };
    struct peers_op *op = op_take(p, PEERS_OP_REPORT, 0);

    if (!op) {
        perf_collected(base, false, NULL);
        return;
    }
    e->collecting = op;
    e->collect_until_us = reactor_now_us() + patience_ms * UINT64_C(1000);
    op->length = RUN_REPORT_SIZE;
    get.ret = op_handle(e, op);
    lnet_body_set_get(&h, &get);
    peers_tx_fill(&op->tx, &h, NULL, 0);
    peer_queue(p, &op->tx);
}

void peers_collect_look(struct peers *e)
{
    struct perf_end end = {.status = -ETIMEDOUT};

    if (e->collecting && reactor_now_us() >= e->collect_until_us)
        op_done(e, e->collecting, &end);
}

/* ---- what comes: headers ---- */

static struct peers_op *op_find(struct peer *p, const struct lnet_handle *h)
{
    struct peers *e = p->e;
    uint32_t index = (uint32_t)h->object_cookie;
    struct peers_op *op;

    if (h->interface_cookie != e->incarnation || index >= PEERS_OPS)
        return NULL;
    op = &e->op[index];
    if (h->object_cookie >> 32 != (op->generation & 0x3fffffffu) || op->tx.peer != p ||
        (op->state != PEERS_OP_SENT && op->state != PEERS_OP_QUEUED))
        return NULL;
    return op;
}

static void unmatched(struct peer *p, enum lnet_drop why)
{
    count_add(&p->e->count.unmatched, 1);
    count_add(&p->e->drops[why], 1);
}

static void header_put(struct peer_conn *c)
{
    struct lnet_put put;

    lnet_body_get_put(&c->hdr, &put);
    if (put.portal != LNET_PORTAL_RPC || match_unpack(put.match_bits).source == 0)
        return;
    c->rx_use = PEER_RX_SUM;
    payload_sum_begin(&c->sum);
}

static enum lnet_drop header_reply(struct peer_conn *c)
{
    struct lnet_reply reply;

    lnet_body_get_reply(&c->hdr, &reply);
    if (reply.dst.object_cookie & PEERS_PING) {
        c->rx_use = PEER_RX_KEEP;
        return LNET_DROP_NONE;
    }
    c->op = op_find(c->peer, &reply.dst);
    if (!c->op)
        return LNET_DROP_NONE;
    c->op_generation = c->op->generation;
    if (c->op->kind == OP_PUT || c->hdr.payload_len > c->op->length)
        return LNET_DROP_REPLY_TOO_LONG;
    if (c->op->kind == PEERS_OP_REPORT) {
        c->rx_use = PEER_RX_KEEP;
    } else if (c->op->verify) {
        c->rx_use = PEER_RX_COMPARE;
        c->expect = c->op->expect;
    }
    return LNET_DROP_NONE;
}

enum lnet_drop peers_header(struct peer_conn *c)
{
    if (!nid_same(&c->hdr.dest_nid, &c->peer->nid))
        return LNET_DROP_DEST_OTHER_OWN_NID;
    if (c->hdr.type == LNET_MSG_PUT)
        header_put(c);
    else if (c->hdr.type == LNET_MSG_REPLY)
        return header_reply(c);
    else if (c->hdr.type != LNET_MSG_ACK && c->hdr.type != LNET_MSG_GET)
        return LNET_DROP_HDR_TYPE;
    return LNET_DROP_NONE;
}

/* ---- whole messages ---- */

static void answer(struct peer_conn *c, struct lnet_hdr *h, uint32_t offset, const void *small,
                   unsigned small_len)
{
    struct peers_tx *tx = peers_answer(c->peer); /* there is one, or the header had not been read */

    if (!tx)
        return;
    h->dest_nid = c->hdr.src_nid;
    h->src_nid = c->peer->nid;
    if (small_len > 0)
        h->payload_len = small_len;
    else
        tx->length = h->payload_len;
    tx->offset = offset;
    peers_tx_fill(tx, h, small, small_len);
    peer_queue(c->peer, tx);
}

static void got_put(struct peer_conn *c)
{
    struct peer *p = c->peer;
    struct lnet_hdr h = {.type = LNET_MSG_ACK};
    struct lnet_put put;
    struct lnet_ack ack;
    struct match match;

    lnet_body_get_put(&c->hdr, &put);
    match = match_unpack(put.match_bits);
    if (put.portal == LNET_PORTAL_RPC && p->e->side[p->side].serves && match.kind == MATCH_PUT) {
        bool good = c->rx_use != PEER_RX_SUM || payload_sum_end(&c->sum) == put.hdr_data;

        peers_put_received(p->e, &match, c->rx_done, good);
    } else if (put.portal != LNET_RESERVED_PORTAL) { /* a PUSH of the router's is for us */
        count_add(&p->e->drops[LNET_DROP_PUT_NO_MATCH], 1);
        return;
    }
    if (put.ack.interface_cookie == UINT64_MAX && put.ack.object_cookie == UINT64_MAX)
        return;
    ack = (struct lnet_ack){put.ack, put.match_bits, c->rx_done};
    lnet_body_set_ack(&h, &ack);
    answer(c, &h, 0, NULL, 0);
}

static void ping_answer(struct peer_conn *c, struct lnet_hdr *h, uint32_t room)
{
    struct lnet_ping_info info = {
        .features =
            LNET_PING_BASE | LNET_PING_NI_STATUS | LNET_PING_RTE_DISABLED | LNET_PING_MULTI_RAIL,
        .pid = LNET_PID_LUSTRE,
        .seqno = 1,
        .count = 1,
        .ni = {{c->peer->nid, LNET_NI_UP}},
    };
    uint8_t buf[PEERS_SMALL];
    size_t len;

    len = lnet_ping_encode(&info, buf, sizeof(buf));
    answer(c, h, 0, buf, (unsigned)(len < room ? len : room));
}

static void content_answer(struct peer_conn *c, struct lnet_hdr *h, const struct lnet_get *get)
{
    struct peers *e = c->peer->e;
    struct match match = match_unpack(get->match_bits);
    uint32_t at;

    if (match.source >= PATTERN_SOURCES || get->sink_length > LNET_MAX_PAYLOAD ||
        get->src_offset > LNET_MAX_PAYLOAD - get->sink_length) {
        count_add(&e->drops[LNET_DROP_GET_OFFSET], 1);
        count_add(&e->served.gets_failed, 1);
        return;
    }
    peers_mark_begin(e);
    count_add(&e->served.gets, 1);
    count_add(&e->served.get_bytes, get->sink_length);
    at = pattern_source_offset(match.source) + get->src_offset;
    if (e->inject_replies && ++e->replies % INJECT_EVERY == 0 &&
        at <= PATTERN_SIZE - get->sink_length - INJECT_SHIFT)
        at += INJECT_SHIFT;
    h->payload_len = get->sink_length;
    answer(c, h, at, NULL, 0);
}

static void got_get(struct peer_conn *c)
{
    struct peer *p = c->peer;
    struct lnet_hdr h = {.type = LNET_MSG_REPLY};
    uint8_t report[RUN_REPORT_SIZE];
    struct lnet_reply reply;
    struct lnet_get get;
    struct match match;

    lnet_body_get_get(&c->hdr, &get);
    reply.dst = get.ret;
    lnet_body_set_reply(&h, &reply);
    match = match_unpack(get.match_bits);
    if (get.portal == LNET_RESERVED_PORTAL && get.match_bits == LNET_PING_MATCH_BITS &&
        get.src_offset == 0) {
        ping_answer(c, &h, get.sink_length);
    } else if (get.portal == LNET_PORTAL_RPC && p->e->side[p->side].serves &&
               match.kind == MATCH_GET) {
        content_answer(c, &h, &get);
    } else if (get.portal == LNET_PORTAL_RPC && p->e->side[p->side].serves &&
               match.kind == MATCH_REPORT && get.sink_length >= RUN_REPORT_SIZE) {
        peers_report(p->e, match.run, report);
        answer(c, &h, 0, report, RUN_REPORT_SIZE);
    } else {
        count_add(&p->e->drops[LNET_DROP_GET_NO_MATCH], 1);
    }
}

static enum lnet_drop got_ack(struct peer_conn *c)
{
    struct perf_end end = {.check = PERF_UNCHECKED};
    struct peers_op *op;
    struct lnet_ack ack;

    lnet_body_get_ack(&c->hdr, &ack);
    op = op_find(c->peer, &ack.dst);
    if (!op) {
        unmatched(c->peer, LNET_DROP_ACK_NO_MATCH);
        return LNET_DROP_NONE;
    }
    if (op->kind != OP_PUT)
        return LNET_DROP_ACK_NO_MATCH;
    end.length = ack.mlength;
    if (ack.mlength != op->length)
        end.check = PERF_ALTERED;
    op_done(c->peer->e, op, &end);
    return LNET_DROP_NONE;
}

static enum lnet_drop ping_heard(struct peer_conn *c, uint64_t object)
{
    struct peer *p = c->peer;
    struct lnet_ping_info info;
    enum lnet_drop why =
        lnet_ping_decode(c->small, c->rx_done < PEERS_SMALL ? c->rx_done : PEERS_SMALL, &info);

    if (why != LNET_DROP_NONE)
        return why;
    if (object & PEERS_PING_TO)
        peers_target_heard(p->e, (uint32_t)object);
    else if ((uint32_t)object == p->ping)
        peer_answered(p);
    return LNET_DROP_NONE;
}

static void report_heard(struct peer_conn *c, struct peers_op *op)
{
    struct peers *e = c->peer->e;
    struct run_report report;
    bool have = run_report_decode(c->small, c->rx_done, &report) == 0;

    op_drop(e, op);
    e->collecting = NULL;
    perf_collected(&e->base, have, have ? &report : NULL);
}

static enum lnet_drop got_reply(struct peer_conn *c)
{
    struct perf_end end = {.check = PERF_UNCHECKED, .length = c->rx_done};
    struct peers *e = c->peer->e;
    struct lnet_reply reply;
    struct peers_op *op;

    lnet_body_get_reply(&c->hdr, &reply);
    if (reply.dst.object_cookie & PEERS_PING)
        return reply.dst.interface_cookie == e->incarnation ? ping_heard(c, reply.dst.object_cookie)
                                                            : LNET_DROP_NONE;
    op = op_find(c->peer, &reply.dst); /* it may have been given up since its header came */
    if (!op || op != c->op || op->generation != c->op_generation) {
        unmatched(c->peer, LNET_DROP_REPLY_NO_MATCH);
        return LNET_DROP_NONE;
    }
    if (op->kind == PEERS_OP_REPORT) {
        report_heard(c, op);
        return LNET_DROP_NONE;
    }
    if (c->rx_done != op->length || c->rx_bad)
        end.check = PERF_ALTERED;
    else if (op->verify)
        end.check = PERF_GOOD;
    op_done(e, op, &end);
    return LNET_DROP_NONE;
}

enum lnet_drop peers_payload(struct peer_conn *c)
{
    switch (c->hdr.type) {
    case LNET_MSG_PUT:
        got_put(c);
        return LNET_DROP_NONE;
    case LNET_MSG_GET:
        got_get(c);
        return LNET_DROP_NONE;
    case LNET_MSG_ACK:
        return got_ack(c);
    default:
        return got_reply(c);
    }
}
