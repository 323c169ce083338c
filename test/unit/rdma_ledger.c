/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ledger of a connection: what each side may still say, from the bytes alone. It knows
 * o2iblnd §3 and §5 by itself and nothing of the driver's own counters.
 */
#include "test/unit/rdma_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void led_init(struct fake_link *fl, unsigned depth)
{
    struct fake_ledger *l = &fl->led;

    assert_true(depth > 0 && depth < FAKE_DEPTH);
    led_fini(fl);
    l->depth = depth;
    l->ours = l->theirs = depth;
}

void led_fini(struct fake_link *fl)
{
    struct fake_ledger *l = &fl->led;

    for (unsigned i = 0; i < l->nto_write; i++)
        free(l->to_write[i].frag);
    for (unsigned i = 0; i < l->ntold; i++)
        free(l->told[i].frag);
    memset(l, 0, offsetof(struct fake_ledger, asked)); /* the lists are empty then */
}

/* ---- cookies ---- */

static int find_cookie(const uint64_t *list, unsigned n, uint64_t cookie)
{
    for (unsigned i = 0; i < n; i++) {
        if (list[i] == cookie)
            return (int)i;
    }
    return -1;
}

static int find_told(const struct led_told *list, unsigned n, uint64_t cookie)
{
    for (unsigned i = 0; i < n; i++) {
        if (list[i].cookie == cookie)
            return (int)i;
    }
    return -1;
}

static void add_told(struct led_told *list, unsigned *n, uint64_t cookie, const struct pe_msg *m)
{
    struct led_told *t = &list[(*n)++];

    assert_true(*n < FAKE_DEPTH);
    *t = (struct led_told){.cookie = cookie, .key = m->key, .nfrags = m->nfrags};
    t->frag = malloc(m->nfrags * sizeof(*t->frag));
    memcpy(t->frag, m->frag, m->nfrags * sizeof(*t->frag));
    for (uint32_t i = 0; i < m->nfrags; i++)
        t->total += m->frag[i].nob;
}

static void drop_told(struct led_told *list, unsigned *n, unsigned i)
{
    free(list[i].frag);
    list[i] = list[--*n];
}

static bool within(const struct led_told *t, uint32_t key, uint64_t addr, uint64_t len)
{
    if (t->key != key)
        return false;
    for (uint32_t i = 0; i < t->nfrags; i++) {
        if (addr >= t->frag[i].addr && addr + len <= t->frag[i].addr + t->frag[i].nob)
            return true;
    }
    return false;
}

bool led_told(const struct fake_link *fl, uint32_t key, uint64_t addr, uint64_t len)
{
    for (unsigned i = 0; i < fl->led.ntold; i++) {
        if (within(&fl->led.told[i], key, addr, len))
            return true;
    }
    return false;
}

/* ---- what we said ---- */

static bool credited(uint8_t type)
{
    return type == PE_IMMEDIATE || type == PE_PUT_REQ || type == PE_GET_REQ;
}

static void sent_done(struct fake_ledger *l, const struct pe_msg *m)
{
    int i = find_told(l->to_write, l->nto_write, m->cookie);

    if (i < 0)
        fail_msg("a DONE with a cookie that nobody gave us, or twice");
    if (m->status >= 0) {
        assert_int_equal(l->to_write[i].written, m->status);
        if (m->type == PE_PUT_DONE)
            assert_int_equal(l->to_write[i].total, m->status);
    }
    drop_told(l->to_write, &l->nto_write, (unsigned)i);
}

static void sent_answer(struct fake_link *fl, const struct pe_msg *m)
{
    struct fake_ledger *l = &fl->led;
    int i = find_cookie(l->puts, l->nputs, m->cookie);
    uint64_t sum = 0;

    if (i < 0)
        fail_msg("an answer to a PUT_REQ that nobody sent, or twice");
    if (m->type == PE_PUT_ACK) {
        assert_true(find_told(l->told, l->ntold, m->dst_cookie) < 0);
        for (uint32_t f = 0; f < m->nfrags; f++) {
            uint64_t base = (uintptr_t)fake_memory(FAKE_LANDING);

            if (!fk_key_given(fl, m->key, m->frag[f].addr, m->frag[f].nob))
                fail_msg("a key is sent that does not let its peer write");
            assert_true(m->frag[f].addr >= base &&
                        m->frag[f].addr + m->frag[f].nob <= base + FAKE_LANDING_BYTES);
            sum += m->frag[f].nob;
        }
        assert_true(sum <= l->put_len[i]);
        add_told(l->told, &l->ntold, m->dst_cookie, m);
    }
    l->puts[i] = l->puts[--l->nputs];
    l->put_len[i] = l->put_len[l->nputs];
}

/* Whatever the peer may send now, there is a buffer for it. NOOPs have two beyond these, which it
 * may have used. */
static void check_buffers(const struct fake_link *fl)
{
    const struct fake_ledger *l = &fl->led;

    if (fl->phase != FAKE_UP) /* broken: those there were are being flushed */
        return;
    if (fl->nrecvs < l->theirs + l->nasked + l->ntold)
        fail_msg("%u receives are posted, the peer may send %u requests, %u answers, %u DONEs",
                 fl->nrecvs, l->theirs, l->nasked, l->ntold);
}

void led_sent(struct fake_link *fl, const uint8_t *bytes, uint32_t len)
{
    static struct pe_msg m; /* large */
    struct fake_ledger *l = &fl->led;

    if (!pe_decode(bytes, len, &m) || m.nob != len || len > PE_MSG)
        fail_msg("the driver sent what is no message: type 0x%x, %u bytes", bytes[6], len);
    if (fl->hostile)
        return;
    assert_int_equal(m.src, fl->port_nid);
    assert_int_equal(m.cksum, 0);
    if (l->theirs + m.credits > l->depth)
        fail_msg("credits returned that were never spent");
    l->theirs += m.credits;
    if (credited(m.type)) {
        if (l->ours == 0)
            fail_msg("message 0x%x without a credit: the peer's node stops", m.type);
        l->ours--;
    }
    switch (m.type) {
    case PE_NOOP:
        if (++l->noops > 2)
            fail_msg("a third NOOP");
        break;
    case PE_PUT_REQ:
        assert_true(find_cookie(l->asked, l->nasked, m.cookie) < 0);
        assert_true(l->nasked < l->depth); /* a place for the answer was reserved */
        l->asked[l->nasked++] = m.cookie;
        break;
    case PE_PUT_ACK:
    case PE_PUT_NAK:
        sent_answer(fl, &m);
        break;
    case PE_PUT_DONE:
    case PE_GET_DONE:
        sent_done(l, &m);
        break;
    case PE_IMMEDIATE:
        break;
    default:
        fail_msg("the driver sent type 0x%x", m.type);
    }
    check_buffers(fl);
}

void led_write(struct fake_link *fl, uint32_t rkey, uint64_t remote, uint32_t len)
{
    struct fake_ledger *l = &fl->led;

    if (fl->hostile)
        return;
    for (unsigned i = 0; i < l->nto_write; i++) {
        if (!within(&l->to_write[i], rkey, remote, len))
            continue;
        l->to_write[i].written += len;
        assert_true(l->to_write[i].written <= l->to_write[i].total);
        return;
    }
    fail_msg("a WRITE to memory that was not given, or not any more");
}

/* ---- what the peer says; when the test makes it break the rules it must have said so ---- */

static void received_request(struct fake_ledger *l, const struct pe_msg *m)
{
    if (m->type == PE_PUT_REQ) {
        assert_true(l->nputs < FAKE_DEPTH);
        l->put_len[l->nputs] = m->lnet.len;
        l->puts[l->nputs++] = m->cookie;
    } else if (m->type == PE_GET_REQ) {
        add_told(l->to_write, &l->nto_write, m->cookie, m);
    }
}

static void received_answer(struct fake_ledger *l, const struct pe_msg *m)
{
    int i = find_cookie(l->asked, l->nasked, m->cookie);

    if (i < 0)
        fail_msg("the test answers what was not asked");
    l->asked[i] = l->asked[--l->nasked];
    if (m->type == PE_PUT_ACK)
        add_told(l->to_write, &l->nto_write, m->dst_cookie, m);
}

static void received_done(struct fake_ledger *l, const struct pe_msg *m)
{
    int i = find_told(l->told, l->ntold, m->cookie);

    if (i < 0)
        fail_msg("the test ends what was not begun");
    drop_told(l->told, &l->ntold, (unsigned)i);
}

void led_received(struct fake_link *fl, const uint8_t *bytes, uint32_t len)
{
    static struct pe_msg m;
    struct fake_ledger *l = &fl->led;

    if (fl->hostile)
        return;
    if (!pe_decode(bytes, len, &m))
        fail_msg("the test says what is no message: call it hostile");
    l->ours += m.credits;
    if (l->ours > l->depth)
        fail_msg("the test returns credits that were not spent");
    if (credited(m.type)) {
        if (l->theirs == 0)
            fail_msg("the test sends without a credit");
        l->theirs--;
    }
    switch (m.type) {
    case PE_PUT_REQ:
    case PE_GET_REQ:
        received_request(l, &m);
        break;
    case PE_PUT_ACK:
    case PE_PUT_NAK:
        received_answer(l, &m);
        break;
    case PE_PUT_DONE:
        received_done(l, &m);
        break;
    default:
        break;
    }
}

/* Buffers and credits, at any time between turns of an established connection at rest. */
void led_check(const struct fake_link *fl)
{
    const struct fake_ledger *l = &fl->led;

    if (fl->hostile || fl->phase != FAKE_UP)
        return;
    assert_true(l->ours <= l->depth && l->theirs <= l->depth);
    assert_true(fl->nrecvs <= fl->open.recv_wrs);
    check_buffers(fl);
}
