/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of one connection: its area, its completions, its timeouts and its end (o2iblnd §6.1,
 * §6.2). A connection ends in four steps: disconnect, wait until the device has returned all
 * requests, destroy the queue pair, report to the core.
 */
#include "lib/lnd_verbs/ib_conn.h"

#define DRAIN_US   (5 * LND_SEC) /* for what is posted to complete after a disconnect */
#define LOOKS      4             /* per timeout, §6.1 */
#define POLLS      4             /* of one queue per iteration */
#define DOUBT_US   (2 * LND_SEC) /* a peer that was heard of more recently is alive */
#define PROBE_US   (5 * LND_SEC) /* the device sends a message twice again meanwhile, §6.1 */
#define AREA_ALIGN 64u

/* §6.3: closed for another reason than a timeout. Messages being sent complete in error, §5.3. */
const struct lnd_close ib_cause_broken = {
    .event = IB_DROP(LOST),
    LND_CLOSE_LOST,
    .begun = LNET_HEALTH_REMOTE_DROPPED,
    .waiting = LNET_HEALTH_OK,
};

static const struct lnd_close cause_stall = {
    .event = IB_DROP(STALL),
    .tx = LNET_DROP_NEXT_HOP_LOST,
    .rx = LNET_DROP_RX_INCOMPLETE,
    .queued = LNET_HEALTH_LOCAL_TIMEOUT,
    .begun = LNET_HEALTH_NETWORK_TIMEOUT,
    .waiting = LNET_HEALTH_REMOTE_TIMEOUT,
};

static const char no_sign[] = "the peer calls again and acknowledges nothing on this connection";

/* Ended by the peer, which is no error. */
static const struct lnd_close cause_ended = {
    LND_CLOSE_LOST,
    .begun = LNET_HEALTH_REMOTE_DROPPED,
    .waiting = LNET_HEALTH_OK,
};

/* ---- area ---- */

struct layout {
    unsigned nrxs, nrecvs, ntxs;
    size_t bufs, bounce_mem, heads, rxs, recvs, txs, bounces, size;
};

static size_t place(size_t *at, size_t n, size_t size)
{
    size_t here = *at;

    *at += (n * size + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
    return here;
}

/* A tx is needed for each posted message, for each answer that is not posted (one per receive), and
 * for each PUT that waits for PUT_ACK or has not posted its PUT_DONE. There are as many such PUTs
 * as reserves: while a PUT_DONE waits, no PUT_REQ is posted. */
static void lay_out(unsigned depth, unsigned sends_max, struct layout *l)
{
    size_t at = 0;

    l->nrxs = ib_rx_buffers(depth);
    l->nrecvs = depth;
    l->ntxs = depth + depth + sends_max;
    l->bufs = place(&at, l->nrxs, IB_MSG_SIZE);
    l->bounce_mem = place(&at, IB_BOUNCES, IB_MSG_SIZE);
    l->heads = place(&at, l->ntxs, (size_t)IB_HEADS * IB_HEAD);
    l->rxs = place(&at, l->nrxs, sizeof(struct ib_rx));
    l->recvs = place(&at, l->nrecvs, sizeof(struct ib_recv));
    l->txs = place(&at, l->ntxs, sizeof(struct ib_tx));
    l->bounces = place(&at, IB_BOUNCES, sizeof(struct ib_bounce));
    l->size = at;
}

void ib_conn_sizes(unsigned depth, unsigned sends_max, bool windows, struct rdma_open *out)
{
    struct layout l;

    lay_out(depth, sends_max, &l);
    *out = (struct rdma_open){
        .recv_wrs = l.nrxs,
        .send_wrs = 2 * sends_max + IB_WRITE_ROOM + (windows ? IB_KEY_WRS * l.nrecvs : 0),
        .send_sges = IB_SGES,
        .inline_bytes = IB_INLINE,
        .windows = windows ? l.nrecvs : 0,
        .area = l.size + AREA_ALIGN,
    };
}

static void bounce_layout(struct ib_conn *c, struct ib_bounce *b, uint8_t *mem)
{
    c->bounces = b;
    c->free_bounces = NULL;
    for (unsigned i = IB_BOUNCES; i-- > 0;) {
        b[i].mem = mem + (size_t)i * IB_MSG_SIZE;
        b[i].index = (uint16_t)i;
        ib_bounce_put(c, &b[i]);
    }
}

static uint8_t *area_of(const struct ib_conn *c)
{
    return c->link.area + (AREA_ALIGN - (uintptr_t)c->link.area % AREA_ALIGN) % AREA_ALIGN;
}

/* Makes the area usable for its next owner. */
static void area_leave(struct ib_conn *c)
{
    struct layout l;

    lay_out(c->nrecvs, c->ntxs - 2 * c->nrecvs, &l);
    asan_unpoison(area_of(c), l.size);
}

static void on_timer(struct reactor_timer *t);

int ib_conn_ready(struct ib_conn *c)
{
    uint8_t *area = area_of(c);
    struct layout l;

    c->generation = ++c->shard->generations;
    c->sq_free = c->link.send_wrs;
    c->posted = c->outstanding = c->held = c->parsed = 0;
    reactor_timer_init(&c->timer, on_timer);
    lay_out(c->depth, c->ibp->ini->sends_max, &l);
    ib_rx_layout(c, (struct ib_rx *)(area + l.rxs), l.nrxs, area + l.bufs,
                 (struct ib_recv *)(area + l.recvs), l.nrecvs);
    ib_tx_layout(c, (struct ib_tx *)(area + l.txs), l.ntxs, area + l.heads);
    bounce_layout(c, (struct ib_bounce *)(area + l.bounces), area + l.bounce_mem);
    return ib_rx_post(c);
}

/* ---- holding ---- */

static void try_end(struct ib_conn *c);

void ib_conn_hold(struct ib_conn *c)
{
    c->busy++;
}

void ib_conn_release(struct ib_conn *c)
{
    if (--c->busy == 0 && c->state == IB_CONN_CLOSING)
        try_end(c);
}

void ib_conn_soon(struct ib_conn *c)
{
    struct ib_shard *shard = c->shard;

    if (c->ready)
        return;
    c->ready = true;
    c->next_ready = shard->ready;
    shard->ready = c;
}

/* ---- up ---- */

/* Often enough for the timeout and for the keepalive. */
static void arm(struct ib_conn *c)
{
    uint64_t wait = lnd_timeout_us(c->ibp->ini->base.ni) / LOOKS;
    uint64_t keepalive = c->shard->lv->opts.keepalive * LND_SEC;

    if (keepalive > 0)
        wait = min(wait, keepalive);
    if (c->probe_us != 0)
        wait = min(wait, c->probe_us + PROBE_US - reactor_now_us());
    reactor_timer_arm(&c->timer, wait);
}

void ib_conn_up(struct ib_conn *c)
{
    const struct ib_ni *ini = c->ibp->ini;

    ib_credits_init(&c->credits, c->depth, ib_credits_hiw(c->depth, ini->terms.depth, ini->hiw),
                    ini->sends_max);
    c->up_us = c->sent_us = c->heard_us = reactor_now_us();
    ib_conn_hold(c);
    arm(c);
    ib_rx_early(c);
    ib_conn_soon(c);
    ib_conn_release(c);
}

void ib_conn_probe(struct ib_conn *c)
{
    uint64_t now = reactor_now_us();

    if (c->probe_us != 0 || c->credits.sends > 0 || now - c->heard_us < DOUBT_US)
        return;
    c->probe_us = now;
    arm(c);
    ib_conn_soon(c);
}

static void check(struct ib_conn *c)
{
    const struct lnet_hdr *hdr = NULL;
    uint64_t now = reactor_now_us();

    if (c->heard_us >= c->probe_us)
        c->probe_us = 0;
    if (c->probe_us != 0 && now - c->probe_us >= PROBE_US) {
        ib_blame(c, no_sign, 0);
        ib_conn_fail(c, &cause_stall, IB_DROP(STALL), NULL);
        return;
    }
    if (ib_tx_expired(c, now, &hdr) || ib_recv_expired(c, now, &hdr)) {
        ib_conn_fail(c, &cause_stall, IB_DROP(STALL), hdr);
        return;
    }
    arm(c);
    ib_conn_soon(c); /* a keepalive may be due */
}

static void on_timer(struct reactor_timer *t)
{
    struct ib_conn *c = container_of(t, struct ib_conn, timer);

    ib_conn_hold(c);
    if (c->state == IB_CONN_UP)
        check(c);
    else
        c->undrained = true;
    ib_conn_release(c);
}

/* ---- the end ---- */

void ib_conn_fail(struct ib_conn *c, const struct lnd_close *why, enum lnet_drop event,
                  const struct lnet_hdr *hdr)
{
    struct lnd_close failed = *why;

    if (c->state != IB_CONN_UP)
        return;
    failed.event = event;
    ib_peer_conn_down(c->ibp, c, &failed, hdr);
}

/* Destroys the queue pair once all requests have come back, or will not come back: that ends the
 * device's use of memory too. Messages and receives complete only after that. While the disconnect
 * is on its way, messages may have used up all receives, and the peer may still write to the memory
 * that a PUT_ACK named. */
static void try_end(struct ib_conn *c)
{
    bool drained = c->posted == 0 && c->outstanding == 0;

    if (!drained && !c->undrained)
        return;
    c->busy++;
    if (c->rxs)
        ib_rx_cancel(c);
    if (c->parsed == 0) {
        reactor_timer_cancel(&c->timer);
        c->state = IB_CONN_SHUT;
        ib_rdma(c)->shut(&c->link);
    }
    c->busy--;
}

void ib_conn_close(struct ib_conn *c, const struct lnd_close *why)
{
    if (c->state == IB_CONN_FREE || c->state == IB_CONN_CLOSING || c->state == IB_CONN_SHUT)
        return;
    ib_conn_hold(c);
    c->state = IB_CONN_CLOSING;
    c->shard->closing++;
    c->why = *why;
    ib_rdma(c)->disconnect(&c->link);
    if (c->rxs) {
        reactor_timer_arm(&c->timer, DRAIN_US);
        ib_rx_early(c);
        ib_tx_abort(c);
        ib_rx_cancel(c);
    }
    ib_conn_release(c);
}

/* No device uses the memory of the messages any more, and no peer can write to it: completes all
 * messages and receives to the core. */
static void closed(struct ib_conn *c)
{
    if (c->rxs) {
        ib_tx_finalize(c);
        ib_rx_finalize(c);
        area_leave(c);
    }
    c->rxs = NULL; /* completions that are polled from now on are not looked at */
    ib_peer_conn_gone(c);
}

void ib_conn_event(struct ib_conn *c, const struct rdma_event *ev)
{
    switch (ev->kind) {
    case RDMA_EV_CLOSED:
        if (c->state == IB_CONN_SHUT)
            closed(c);
        break;
    case RDMA_EV_DISCONNECTED:
        if (c->state == IB_CONN_UP && ev->error == 0) {
            ib_peer_conn_down(c->ibp, c, &cause_ended, NULL);
            break;
        }
        ib_blame_error(c, ev->error);
        ib_conn_fail(c, &ib_cause_broken, IB_DROP(LOST), NULL);
        break;
    default:
        break;
    }
}

/* ---- completions ---- */

static void completed(struct ib_shard *shard, const struct ibv_wc *wc)
{
    struct ib_wr wr = ib_wr_of(wc->wr_id);
    struct ib_conn *c = ib_conn_at(shard, wr.slot);
    bool good = wc->status == IBV_WC_SUCCESS;

    if (!c->rxs || (c->generation & IB_WR_GENERATIONS) != wr.generation)
        return; /* of a queue pair that is gone */
    count_add(&ib_counters(c)->completions, 1);
    ib_conn_soon(c);
    if (!good)
        ib_blame_status(c, wc->status);
    else if (wr.kind != IB_WR_BIND && wr.kind != IB_WR_INVALIDATE)
        c->heard_us = reactor_now_us();
    if (wr.kind == IB_WR_RECV)
        ib_rx_done(c, wr.index, good, good ? wc->byte_len : 0);
    else if (wr.kind == IB_WR_BIND || wr.kind == IB_WR_INVALIDATE)
        ib_key_done(c, &wr, wc->status);
    else
        ib_tx_done(c, &wr, good);
}

int ib_settle_all(struct ib_shard *shard)
{
    struct ib_conn *c;
    int n = 0;

    while ((c = shard->ready)) {
        shard->ready = c->next_ready;
        c->ready = false;
        if (c->state == IB_CONN_UP)
            ib_tx_run(c);
        else if (c->state == IB_CONN_CLOSING && c->busy == 0)
            try_end(c);
        n++;
    }
    return n;
}

int ib_cq_poll(struct ib_shard *shard, struct rdma_cq *cq)
{
    const struct rdma_ops *rdma = shard->lv->opts.rdma;
    struct ibv_wc wc[IB_WCS];
    int n, all = 0;

    for (unsigned i = 0; i < POLLS; i++) {
        n = rdma->poll(cq, wc, IB_WCS);
        if (n <= 0)
            break;
        for (int k = 0; k < n; k++)
            completed(shard, &wc[k]);
        ib_settle_all(shard);
        all += n;
        if (n < IB_WCS)
            break;
    }
    return all;
}

/* ---- rows for RPC ---- */

static uint32_t queued(const struct ib_conn *c)
{
    const struct ib_tx *tx;
    uint32_t n = 0;

    for (const struct lnet_msg *msg = STAILQ_FIRST(&c->sendq); msg; msg = msg->lnd_next)
        n++;
    for (const struct lnet_msg *msg = STAILQ_FIRST(&c->rsrvd); msg; msg = msg->lnd_next)
        n++;
    TAILQ_FOREACH(tx, &c->answers, link)
        n++;
    return n;
}

static uint32_t waiting(const struct ib_conn *c)
{
    const struct ib_tx *tx;
    uint32_t n = 0;

    TAILQ_FOREACH(tx, &c->active_txs, link)
        n += tx->waiting;
    return n;
}

void ib_conn_row(const struct ib_conn *c, struct verbs_conn_row *out)
{
    uint64_t now = reactor_now_us();
    bool was_up = c->up_us != 0;

    *out = (struct verbs_conn_row){
        .peer = c->ibp->base.peer->nid,
        .reactor = c->shard->base.index,
        .state = ib_state_name(c->state),
        .active = c->base.initiated,
        .depth = c->depth,
        .frags = c->frags,
        .credits = c->credits.credits,
        .owed = c->credits.owed,
        .reserved = c->credits.reserved,
        .sends = c->credits.sends,
        .noops = c->credits.noops,
        .queued = c->rxs ? queued(c) : 0,
        .waiting = c->rxs ? waiting(c) : 0,
        .send_wrs = c->link.send_wrs,
        .inline_bytes = c->link.inline_bytes,
        .retries = was_up || !c->base.initiated ? c->retries : c->ibp->dial.ask.tries,
        .age_us = was_up ? now - c->up_us : 0,
        .idle_us = was_up ? now - c->sent_us : 0,
        .bytes_in = c->bytes_in,
        .bytes_out = c->bytes_out,
    };
}
