/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs and completion queues of the fake provider.
 */
#include "test/unit/rdma_fake_internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Memory that the driver has poisoned for itself may be a device's all the same. */
#define DEVICE __attribute__((no_sanitize("address")))

struct fake_wc {
    struct fake_wc *next;
    struct fake_link *fl;
    struct ibv_wc wc;
    unsigned slots; /* of the send queue that come back with it */
};

struct cq {
    struct rdma_cq base;
    struct fake_wc *head, **tail;
    bool armed;
};

static struct cq cqs[FAKE_NODES][IR_REACTORS];
static struct fake_wc *free_wcs;
static struct fake_wr *free_wrs;

void fk_cqs_init(void)
{
    memset(cqs, 0, sizeof(cqs));
}

struct rdma_cq *fk_cq(struct rdma *rdma, unsigned reactor)
{
    struct cq *q = &cqs[rdma->index][reactor];

    if (!q->tail) {
        q->base = (struct rdma_cq){.rdma = rdma, .fd = ir_fd_new(), .impl = q};
        q->tail = &q->head;
    }
    return &q->base;
}

void fk_cqs_fini(void)
{
    for (unsigned n = 0; n < FAKE_NODES; n++) {
        for (unsigned r = 0; r < IR_REACTORS; r++) {
            while (cqs[n][r].head) {
                struct fake_wc *w = cqs[n][r].head;

                cqs[n][r].head = w->next;
                free(w);
            }
        }
    }
    while (free_wcs) {
        struct fake_wc *w = free_wcs;

        free_wcs = w->next;
        free(w);
    }
    while (free_wrs) {
        struct fake_wr *w = free_wrs;

        free_wrs = w->next;
        free(w);
    }
}

/* ---- completions ---- */

static struct fake_wc *wc_new(struct fake_link *fl, uint64_t wr_id, enum ibv_wc_status status)
{
    struct fake_wc *w = free_wcs;

    if (w)
        free_wcs = w->next;
    else
        w = malloc(sizeof(*w));
    memset(w, 0, sizeof(*w));
    w->fl = fl;
    w->wc.wr_id = wr_id;
    w->wc.status = status;
    w->wc.qp_num = fl->id;
    if (status != IBV_WC_SUCCESS) { /* nothing else is said to be there */
        w->wc.opcode = (enum ibv_wc_opcode)0x5a5a;
        w->wc.byte_len = 0x5a5a5a5a;
    }
    return w;
}

static void wc_push(struct fake_wc *w)
{
    struct cq *q = w->fl->link->cq->impl;

    *q->tail = w;
    q->tail = &w->next;
    w->fl->unpolled++;
    if (q->armed) {
        q->armed = false;
        ir_fd_ready(q->base.fd, true);
    }
}

int fk_poll(struct rdma_cq *cq, struct ibv_wc *wc, int n)
{
    struct cq *q = cq->impl;
    int got = 0;

    assert_int_equal(reactor_index(reactor_self()), (q - &cqs[0][0]) % IR_REACTORS);
    while (got < n && q->head) {
        struct fake_wc *w = q->head;

        q->head = w->next;
        if (!q->head)
            q->tail = &q->head;
        wc[got++] = w->wc;
        w->fl->sq_used -= w->slots;
        w->fl->unpolled--;
        w->next = free_wcs;
        free_wcs = w;
    }
    return got;
}

int fk_arm(struct rdma_cq *cq)
{
    struct cq *q = cq->impl;

    if (fake.arming)
        fake.arming();
    q->armed = true;
    return 0;
}

void fk_disarm(struct rdma_cq *cq)
{
    ir_fd_ready(cq->fd, false);
}

/* ---- receives ---- */

/* In its error state, and the driver cannot know: what it posts is flushed. */
static bool is_broken(const struct fake_link *fl)
{
    return fl->phase == FAKE_DOWN && fl->disconnects == 0 && fl->shuts == 0;
}

static void flush_posted(struct fake_link *fl)
{
    if (is_broken(fl) && !fl->hold_flush)
        fake_flush(fl, UINT32_MAX);
}

int fk_post_recv(struct rdma_link *link, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fake_link *fl = fk_of(link);

    (void)bad;
    for (; wr; wr = wr->next) {
        struct fake_recv *r;

        assert_true((fl->phase >= FAKE_OPENED && fl->phase <= FAKE_UP) || is_broken(fl));
        assert_true(fl->nrecvs < fl->open.recv_wrs);
        assert_int_equal(wr->num_sge, 1);
        assert_true(wr->sg_list[0].length >= PE_MSG);
        fk_check_sge(fl, &wr->sg_list[0]);
        r = &fl->recvs[(fl->recv_head + fl->nrecvs++) % (2 * FAKE_DEPTH + 2)];
        *r = (struct fake_recv){wr->wr_id, (uint8_t *)(uintptr_t)wr->sg_list[0].addr,
                                wr->sg_list[0].length};
        for (unsigned i = 0; i + 1 < fl->nrecvs && !fake.fast; i++) {
            const struct fake_recv *o = &fl->recvs[(fl->recv_head + i) % (2 * FAKE_DEPTH + 2)];

            assert_true(o->addr >= r->addr + r->len || r->addr >= o->addr + o->len);
            assert_true(o->wr_id != r->wr_id);
        }
    }
    flush_posted(fl);
    return 0;
}

static struct fake_recv take_recv(struct fake_link *fl)
{
    struct fake_recv r = fl->recvs[fl->recv_head];

    fl->recv_head = (fl->recv_head + 1) % (2 * FAKE_DEPTH + 2);
    fl->nrecvs--;
    return r;
}

static void show_or_hold(struct fake_link *fl, struct fake_wc *w)
{
    if (!fl->hold_recvs) {
        wc_push(w);
        return;
    }
    *fl->shown_tail = w;
    fl->shown_tail = &w->next;
}

void fake_show(struct fake_link *fl, unsigned n)
{
    while (n-- > 0 && fl->shown) {
        struct fake_wc *w = fl->shown;

        fl->shown = w->next;
        if (!fl->shown)
            fl->shown_tail = &fl->shown;
        w->next = NULL;
        wc_push(w);
    }
}

DEVICE static void fill(uint8_t *to, const uint8_t *from, size_t len, size_t room)
{
    for (size_t i = 0; i < len; i++)
        to[i] = from[i];
    for (size_t i = len; i < room && !fake.fast; i++)
        to[i] = 0xee;
}

bool fake_deliver(struct fake_link *fl, const void *bytes, size_t len)
{
    struct fake_recv r;
    struct fake_wc *w;

    assert_true(fl->phase == FAKE_UP || fl->phase == FAKE_ACCEPTING ||
                fl->phase == FAKE_CONNECTING);
    if (fl->nrecvs == 0) {
        fl->rnrs++;
        if (!fl->rnr_wanted)
            fail_msg("a message came and no receive is posted");
        return false;
    }
    r = take_recv(fl);
    assert_true(len <= r.len);
    fill(r.addr, bytes, len, r.len);
    if (!fake.fast)
        led_received(fl, bytes, (uint32_t)len);
    w = wc_new(fl, r.wr_id, IBV_WC_SUCCESS);
    w->wc.opcode = IBV_WC_RECV;
    w->wc.byte_len = (uint32_t)len;
    fl->received++;
    show_or_hold(fl, w);
    return true;
}

void fake_fail_recv(struct fake_link *fl, enum ibv_wc_status status)
{
    struct fake_recv r;

    assert_true(fl->nrecvs > 0);
    r = take_recv(fl);
    show_or_hold(fl, wc_new(fl, r.wr_id, status));
    fk_error(fl);
}

void fake_ghost(struct fake_link *fl, uint64_t wr_id, enum ibv_wc_status status)
{
    struct fake_wc *w = wc_new(fl, wr_id, status);

    if (status == IBV_WC_SUCCESS)
        w->wc.byte_len = PE_MSG;
    show_or_hold(fl, w);
}

DEVICE void fake_write(struct fake_link *fl, uint32_t rkey, uint64_t addr, const void *bytes,
                       size_t len)
{
    uint8_t *to = fk_exported(rkey, addr, (uint32_t)len);

    assert_non_null(to);
    if (!led_told(fl, rkey, addr, len) || !fake_key_works(fl, rkey, addr, len))
        fail_msg("the test writes where it was not told to");
    for (size_t i = 0; i < len; i++)
        to[i] = ((const uint8_t *)bytes)[i];
}

/* ---- sends ---- */

DEVICE static void gather(const struct fake_wr *w, uint8_t *to)
{
    for (unsigned i = 0; i < w->nsge; i++) {
        const uint8_t *from = (const uint8_t *)(uintptr_t)w->sge[i].addr;

        for (uint32_t b = 0; b < w->sge[i].length; b++)
            *to++ = from[b];
    }
}

DEVICE static bool unchanged(const struct fake_wr *w)
{
    const uint8_t *was = w->bytes;

    for (unsigned i = 0; i < w->nsge; i++) {
        const uint8_t *is = (const uint8_t *)(uintptr_t)w->sge[i].addr;

        for (uint32_t b = 0; b < w->sge[i].length; b++) {
            if (*was++ != is[b])
                return false;
        }
    }
    return true;
}

static void check_unchanged(const struct fake_wr *w)
{
    if (!fake.fast && !w->inlined && !unchanged(w))
        fail_msg("memory of a posted request was changed before it completed");
}

void fk_check_posted(const struct fake_link *fl)
{
    for (const struct fake_wr *w = fl->wrs; w; w = w->next)
        check_unchanged(w);
}

static enum fake_wr_kind kind_of(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_SEND:
        return FAKE_SEND;
    case IBV_WR_RDMA_WRITE:
        return FAKE_WRITE;
    case IBV_WR_BIND_MW:
        return FAKE_BIND;
    default:
        assert_int_equal(opcode, IBV_WR_LOCAL_INV);
        return FAKE_INVALIDATE;
    }
}

static uint32_t rkey_of(const struct ibv_send_wr *wr)
{
    switch (kind_of(wr->opcode)) {
    case FAKE_WRITE:
        return wr->wr.rdma.rkey;
    case FAKE_BIND:
        return wr->bind_mw.rkey;
    case FAKE_INVALIDATE:
        return wr->invalidate_rkey;
    default:
        return 0;
    }
}

static struct fake_wr *wr_new(struct fake_link *fl, const struct ibv_send_wr *wr)
{
    struct fake_wr *w = free_wrs;

    if (w)
        free_wrs = w->next;
    else
        w = malloc(sizeof(*w));
    memset(w, 0, offsetof(struct fake_wr, sge));
    w->wr_id = wr->wr_id;
    w->kind = kind_of(wr->opcode);
    w->signaled = wr->send_flags & IBV_SEND_SIGNALED;
    w->inlined = wr->send_flags & IBV_SEND_INLINE;
    w->nsge = (unsigned)wr->num_sge;
    w->len = 0;
    w->bytes = NULL;
    if (w->nsge > 0)
        memcpy(w->sge, wr->sg_list, w->nsge * sizeof(w->sge[0]));
    for (unsigned i = 0; i < w->nsge; i++)
        w->len += w->sge[i].length;
    w->remote = w->kind == FAKE_WRITE ? wr->wr.rdma.remote_addr : 0;
    w->rkey = rkey_of(wr);
    w->type = 0;
    if (w->len > 0 && (!fake.fast || w->kind == FAKE_SEND)) {
        w->bytes = malloc(w->len);
        gather(w, w->bytes);
        w->type = w->kind == FAKE_SEND ? pe_type_of(w->bytes) : 0;
    }
    (void)fl;
    return w;
}

static void wr_free(struct fake_wr *w)
{
    free(w->bytes);
    w->next = free_wrs;
    free_wrs = w;
}

static void check_send(const struct fake_link *fl, const struct ibv_send_wr *wr)
{
    uint64_t len = 0;

    if (fl->phase != FAKE_UP && !is_broken(fl))
        fail_msg("a message is posted on a connection that is not up");
    assert_int_equal(wr->send_flags & ~(unsigned)(IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
    assert_true(fl->sq_used < fl->open.send_wrs);
    if (kind_of(wr->opcode) > FAKE_WRITE) {
        assert_int_equal(wr->num_sge, 0);
        return;
    }
    assert_true(wr->num_sge > 0 && (uint32_t)wr->num_sge <= fl->link->send_sges);
    for (int i = 0; i < wr->num_sge; i++) {
        assert_true(wr->sg_list[i].length > 0);
        len += wr->sg_list[i].length;
        if (!(wr->send_flags & IBV_SEND_INLINE))
            fk_check_sge(fl, &wr->sg_list[i]);
    }
    if (wr->send_flags & IBV_SEND_INLINE)
        assert_true(len <= fl->link->inline_bytes);
}

int fk_post_send(struct rdma_link *link, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fake_link *fl = fk_of(link);

    for (; wr; wr = wr->next) {
        struct fake_wr *w;

        check_send(fl, wr);
        if (fl->post_error != 0) {
            *bad = wr;
            return fl->post_error;
        }
        w = wr_new(fl, wr);
        if (w->kind == FAKE_BIND)
            fk_window_bind(fl, wr);
        if (w->kind == FAKE_WRITE && !fake.fast)
            led_write(fl, w->rkey, w->remote, w->len);
        else if (w->kind == FAKE_SEND && !fake.fast)
            led_sent(fl, w->bytes, w->len);
        w->next = NULL;
        *fl->wrs_tail = w;
        fl->wrs_tail = &w->next;
        fl->sq_used++;
        fl->sends += w->kind == FAKE_SEND;
        fl->writes += w->kind == FAKE_WRITE;
    }
    flush_posted(fl);
    return 0;
}

static void keep_out(struct fake_link *fl, const struct fake_wr *w)
{
    struct fake_out *o = malloc(sizeof(*o) + w->len);

    o->next = NULL;
    o->len = w->len;
    memcpy(o->bytes, w->bytes, w->len);
    *fl->out_tail = o;
    fl->out_tail = &o->next;
}

DEVICE static void apply_write(struct fake_link *fl, const struct fake_wr *w)
{
    uint8_t *to = fk_exported(w->rkey, w->remote, w->len);

    if (fake.fast)
        return;
    if (fl->mate)
        assert_true(led_told(fl->mate, w->rkey, w->remote, w->len) &&
                    fake_key_works(fl->mate, w->rkey, w->remote, w->len));
    for (uint32_t i = 0; i < w->len && to; i++)
        to[i] = w->bytes[i];
}

static bool wire_one(struct fake_link *fl, struct fake_wr *w)
{
    if (w->kind == FAKE_BIND)
        fk_window_bound(fl, w->rkey);
    else if (w->kind == FAKE_INVALIDATE)
        fk_window_invalid(fl, w->rkey);
    else if (fl->mate && fl->mate->phase != FAKE_UP && fl->mate->phase != FAKE_ACCEPTING)
        return false;
    else if (w->kind == FAKE_WRITE)
        apply_write(fl, w);
    else if (!fl->mate)
        keep_out(fl, w);
    else if (!fake_deliver(fl->mate, w->bytes, w->len))
        return false;
    w->wired = true;
    return true;
}

bool fake_wire(struct fake_link *fl)
{
    struct fake_wr *w = fl->wrs;

    while (w && w->wired)
        w = w->next;
    return w && fl->phase == FAKE_UP && wire_one(fl, w);
}

bool fake_next(struct fake_link *fl, struct pe_msg *m)
{
    while (!fl->out && fake_wire(fl))
        ;
    if (!fl->out)
        return false;
    free(fl->last);
    fl->last = fl->out;
    fl->out = fl->last->next;
    if (!fl->out)
        fl->out_tail = &fl->out;
    if (!pe_decode(fl->last->bytes, fl->last->len, m))
        fail_msg("not a message");
    return true;
}

unsigned fake_unsent(const struct fake_link *fl)
{
    unsigned n = 0;

    for (const struct fake_out *o = fl->out; o; o = o->next)
        n++;
    for (const struct fake_wr *w = fl->wrs; w; w = w->next)
        n += w->kind == FAKE_SEND && !w->wired;
    return n;
}

/* ---- completions of sends ---- */

static struct fake_wr *take_wr(struct fake_link *fl)
{
    struct fake_wr *w = fl->wrs;

    fl->wrs = w->next;
    if (!fl->wrs)
        fl->wrs_tail = &fl->wrs;
    check_unchanged(w);
    if (w->type == PE_NOOP && fl->led.noops > 0)
        fl->led.noops--;
    return w;
}

/* The oldest requests, up to and with the first that says so: signalled, or failed. */
static bool complete_one(struct fake_link *fl, enum ibv_wc_status status)
{
    struct fake_wr *end = fl->wrs;
    unsigned slots = 1;
    struct fake_wc *wc;
    static const enum ibv_wc_opcode opcodes[] = {[FAKE_SEND] = IBV_WC_SEND,
                                                 [FAKE_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [FAKE_BIND] = IBV_WC_BIND_MW,
                                                 [FAKE_INVALIDATE] = IBV_WC_LOCAL_INV};

    while (end && !end->signaled && status == IBV_WC_SUCCESS) {
        end = end->next;
        slots++;
    }
    if (!end)
        return false;
    while (!end->wired && status == IBV_WC_SUCCESS) {
        if (!fake_wire(fl))
            return false;
    }
    wc = wc_new(fl, end->wr_id, status);
    wc->slots = slots;
    if (status == IBV_WC_SUCCESS)
        wc->wc.opcode = opcodes[end->kind];
    for (unsigned i = 0; i < slots; i++)
        wr_free(take_wr(fl));
    wc_push(wc);
    return true;
}

unsigned fake_complete(struct fake_link *fl, unsigned n)
{
    unsigned done = 0;

    while (done < n && fl->phase == FAKE_UP && complete_one(fl, IBV_WC_SUCCESS))
        done++;
    return done;
}

void fake_flush(struct fake_link *fl, unsigned n)
{
    assert_true(fl->phase == FAKE_DOWN || fl->phase == FAKE_SHUT);
    while (n > 0 && fl->wrs) {
        complete_one(fl, IBV_WC_WR_FLUSH_ERR);
        n--;
    }
    while (n-- > 0 && fl->nrecvs > 0) {
        struct fake_recv r = take_recv(fl);

        show_or_hold(fl, wc_new(fl, r.wr_id, IBV_WC_WR_FLUSH_ERR));
    }
}

void fk_error(struct fake_link *fl)
{
    fl->phase = FAKE_DOWN;
    if (!fl->hold_flush)
        fake_flush(fl, UINT32_MAX);
}

void fake_fail_send(struct fake_link *fl, enum ibv_wc_status status)
{
    assert_non_null(fl->wrs);
    complete_one(fl, status);
    fk_error(fl);
}

void fake_break(struct fake_link *fl)
{
    if (fl->phase < FAKE_DOWN)
        fk_error(fl);
}

void fk_drop_requests(struct fake_link *fl)
{
    while (fl->wrs) {
        struct fake_wr *w = fl->wrs;

        fl->wrs = w->next;
        wr_free(w);
    }
    fl->wrs_tail = &fl->wrs;
    fl->nrecvs = 0;
    while (fl->shown) {
        struct fake_wc *w = fl->shown;

        fl->shown = w->next;
        free(w);
    }
    fl->shown_tail = &fl->shown;
    while (fl->out) {
        struct fake_out *o = fl->out;

        fl->out = o->next;
        free(o);
    }
    fl->out_tail = &fl->out;
    free(fl->last);
    fl->last = NULL;
}

/* ---- all of it ---- */

void fk_depth_from(struct fake_link *fl, const uint8_t *priv, size_t len)
{
    struct pe_msg m;

    led_init(fl, len >= 56 && pe_decode(priv, len, &m) && m.depth > 0 && m.depth < FAKE_DEPTH
                     ? m.depth
                     : 8);
}

void fake_settle(void)
{
    unsigned done;

    do {
        done = 0;
        ir_run();
        for (struct fake_link *fl = fake.links; fl; fl = fl->next) {
            if (!fl->hold_sends)
                done += fake_complete(fl, UINT32_MAX);
        }
    } while (done > 0);
    for (struct fake_link *fl = fake.links; fl; fl = fl->next)
        led_check(fl);
}

/* ---- questions ---- */

static bool overlaps(const void *a, size_t alen, uint64_t b, uint64_t blen)
{
    uint64_t x = (uintptr_t)a;

    return x < b + blen && b < x + alen;
}

bool fake_in_flight(const void *addr, size_t len)
{
    for (const struct fake_link *fl = fake.links; fl; fl = fl->next) {
        for (const struct fake_wr *w = fl->wrs; w; w = w->next) {
            for (unsigned i = 0; i < w->nsge && !w->inlined; i++) {
                if (overlaps(addr, len, w->sge[i].addr, w->sge[i].length))
                    return true;
            }
        }
    }
    return false;
}

bool fk_told(const void *addr, size_t len)
{
    for (const struct fake_link *fl = fake.links; fl; fl = fl->next) {
        for (unsigned i = 0; i < fl->led.ntold; i++) {
            const struct led_told *t = &fl->led.told[i];

            for (uint32_t f = 0; f < t->nfrags; f++) {
                if (overlaps(addr, len, t->frag[f].addr, t->frag[f].nob))
                    return true;
            }
        }
    }
    return false;
}
