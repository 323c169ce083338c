/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that says anything at any time, to the o2iblnd driver: messages of all types with fields
 * that are right, nearly right and wrong, bytes that are damaged, credits it does not have, answers
 * to what it was asked and to what it was not, connections that break in between, while completions
 * come when they like. Whatever it does costs its own connection at most: the driver keeps no
 * message and no receive for ever, ends none twice, and touches nothing that a device has. The fake
 * and the core of the harness look at that at every step. Arguments: steps, seed.
 */
#include "test/unit/ib_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEY     0x4711u
#define ADDR    0x7f0000200003ull
#define THEIRS  (1u << 20)
#define COOKIES 64
#define HONEST  200 /* messages of which one is anything, on average */

static unsigned steps = 60000;
static uint64_t seed = 1;
static struct fake_link *fl;
static uint8_t *theirs;
static unsigned conns, said[16], ended_well, received_well;

/* What an honest peer would know. */
struct cookies {
    uint64_t cookie[COOKIES];
    unsigned n;
};
static struct cookies asked, acked; /* its PUT_REQs, its PUT_ACKs, that are not answered */
static uint64_t seen[COOKIES];      /* of either, lately */
static unsigned nseen, credits, owed;

static uint32_t rnd(uint32_t n) /* below n */
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}

static bool once_in(uint32_t n)
{
    return rnd(n) == 0;
}

/* ---- what it says ---- */

static uint64_t some_cookie(void)
{
    uint64_t c = seen[rnd(COOKIES)];

    if (once_in(20))
        c ^= 1ull << rnd(64);
    return once_in(20) ? rnd(1000) : c;
}

static void know(struct cookies *list, uint64_t cookie)
{
    seen[nseen++ % COOKIES] = cookie;
    assert_true(list->n < COOKIES);
    list->cookie[list->n++] = cookie;
}

static uint64_t take(struct cookies *list)
{
    unsigned i = rnd(list->n);
    uint64_t cookie = list->cookie[i];

    list->cookie[i] = list->cookie[--list->n];
    return cookie;
}

static void listen_to_it(void)
{
    struct pe_msg m;

    while (fake_next(fl, &m)) {
        credits += m.credits;
        owed += m.type == PE_IMMEDIATE;
        if (m.type == PE_PUT_REQ)
            know(&asked, m.cookie);
        else if (m.type == PE_PUT_ACK)
            know(&acked, m.dst_cookie);
        else if (m.type == PE_PUT_DONE)
            owed++;
    }
}

static uint32_t some_length(void)
{
    switch (rnd(6)) {
    case 0:
        return 0;
    case 1:
        return rnd(PE_SMALL + 1);
    case 2:
        return PE_SMALL + rnd(3) - 1;
    case 3:
        return rnd(1u << 20) + rnd(2);
    default:
        return 1 + rnd(9000);
    }
}

static void some_lnet(struct pe_lnet *h)
{
    if (once_in(30))
        h->type = rnd(6);
    else if (h->type == PE_LNET_PUT && once_in(3))
        h->type = PE_LNET_REPLY;
    if (once_in(60))
        h->dest = pe_nid("10.0.9.9");
    if (once_in(200))
        h->src = (uint64_t)rnd(1u << 31) << 20;
}

static void some_fragments(struct pe_msg *m, uint32_t sum)
{
    uint32_t at = rnd(1000);

    m->key = once_in(30) ? rnd(1u << 31) : KEY;
    m->nfrags = once_in(4) ? 1 + rnd(PE_FRAGS) : 1;
    if (m->nfrags > sum && sum > 0)
        m->nfrags = sum;
    for (uint32_t i = 0; i < m->nfrags; i++) {
        uint32_t left = m->nfrags - i, part = left == 1 ? sum : sum / left;

        m->frag[i] = (struct pe_frag){ADDR + at, part};
        sum -= part;
        at = (at + part) % (THEIRS / 2);
    }
    if (once_in(200))
        m->frag[rnd(m->nfrags)].nob = rnd(1u << 31);
    if (once_in(200))
        m->nfrags = rnd(PE_FRAGS + 2);
}

static struct pe_msg anything(uint8_t type)
{
    struct pe_msg m = ih_base(type, 0);
    uint32_t len = some_length();

    switch (type) {
    case PE_IMMEDIATE:
        len = len <= PE_SMALL ? len : rnd(PE_SMALL + 1);
        m = ih_immediate(len, 0);
        if (once_in(20))
            m.lnet.len = rnd(PE_SMALL * 2);
        some_lnet(&m.lnet);
        break;
    case PE_PUT_REQ:
        m = ih_put_req(len, some_cookie(), 0);
        some_lnet(&m.lnet);
        break;
    case PE_GET_REQ:
        m = ih_put_req(0, some_cookie(), 0);
        m.type = PE_GET_REQ;
        m.lnet.type = PE_LNET_GET;
        some_lnet(&m.lnet);
        some_fragments(&m, len + 1);
        break;
    case PE_PUT_ACK:
        m = ih_put_ack(some_cookie(), rnd(1u << 30), KEY, ADDR, len + 1);
        some_fragments(&m, len + 1);
        break;
    case PE_PUT_NAK:
    case PE_PUT_DONE:
    case PE_GET_DONE:
        m = ih_completion(type, some_cookie(), once_in(4) ? -(int)rnd(200) : (int)len);
        break;
    default:
        break;
    }
    m.credits = (uint8_t)(once_in(100) ? rnd(256) : once_in(3) ? rnd(3) : 0);
    if (once_in(200))
        m.src_stamp++;
    if (once_in(200))
        m.dst = m.src;
    return m;
}

static void say_anything(void)
{
    uint8_t buf[PE_MSG], type = once_in(20) ? (uint8_t)rnd(256) : (uint8_t)(PE_NOOP + rnd(8));
    struct pe_msg m = anything(type);
    size_t len = pe_encode(&m, buf);

    if (once_in(6))
        buf[rnd((uint32_t)len)] ^= (uint8_t)(1u << rnd(8));
    if (once_in(6))
        len = rnd((uint32_t)len + 1);
    said[m.type & 15]++;
    fake_deliver(fl, buf, len);
}

static uint8_t owed_now(void)
{
    uint8_t n = (uint8_t)rnd(owed + 1);

    owed -= n;
    return n;
}

static void say_message(struct pe_msg m)
{
    m.credits = owed_now();
    said[m.type & 15]++;
    ih_tell(fl, &m);
}

/* What is asked of the driver. */
static void say_request(void)
{
    uint32_t len = some_length();
    struct pe_msg m;

    if (credits == 0)
        return;
    credits--;
    switch (rnd(3)) {
    case 0:
        m = ih_immediate(len <= PE_SMALL ? len : rnd(PE_SMALL + 1), 0);
        if (once_in(20))
            m.lnet.len = PE_SMALL; /* carries less than it says */
        break;
    case 1:
        m = ih_put_req(len, 0x1000 + rnd(1u << 30), 0);
        break;
    default:
        m = ih_put_req(0, 0x1000 + rnd(1u << 30), 0);
        m.type = PE_GET_REQ;
        m.lnet.type = PE_LNET_GET;
        some_fragments(&m, len + 1);
        break;
    }
    say_message(m);
}

/* What answers the driver. */
static void say_answer(void)
{
    struct pe_msg m = ih_base(PE_NOOP, 0);

    if (acked.n > 0 && once_in(2)) {
        m = ih_completion(PE_PUT_DONE, take(&acked), once_in(10) ? -5 : 1);
    } else if (asked.n > 0 && once_in(4)) {
        m = ih_completion(PE_PUT_NAK, take(&asked), once_in(2) ? -12 : 0);
        owed++;
    } else if (asked.n > 0) {
        m = ih_put_ack(take(&asked), rnd(1u << 30), KEY, ADDR, 1);
        some_fragments(&m, 1 + rnd(4000));
    }
    say_message(m);
}

static void say(void)
{
    if (once_in(HONEST))
        say_anything();
    else if (once_in(2))
        say_request();
    else
        say_answer();
}

/* ---- what else happens ---- */

static void give(void)
{
    static const uint32_t types[] = {LNET_MSG_PUT, LNET_MSG_PUT, LNET_MSG_REPLY, LNET_MSG_GET,
                                     LNET_MSG_ACK};
    uint32_t type = types[rnd(5)];
    int region = once_in(4) ? -1 : (int)rnd(2);

    ih_give(ih_msg(0, PEER, type, some_length(), region, 1 + rnd(3)));
}

static void receive_one(void)
{
    struct ih_rx *r = ih_waiting();

    if (r)
        ih_recv(r, once_in(4) ? 0 : r->rdma_get ? 1 + rnd(9000) : r->hdr.payload_len);
}

static void receive_all(void)
{
    while (ih_waiting())
        receive_one();
}

static void step(void)
{
    switch (rnd(16)) {
    case 0:
    case 1:
        give();
        break;
    case 2:
        core.parse = (enum ih_parse)rnd(IH_REFUSE);
        core.truncate = rnd(100);
        break;
    case 3:
        receive_one();
        break;
    case 4:
        fl->hold_sends = once_in(2);
        break;
    case 5:
        fake_complete(fl, rnd(4));
        break;
    case 6:
        if (once_in(300))
            fake_break(fl);
        break;
    case 7:
        if (once_in(100))
            ir_advance(rnd(30) * IR_SEC);
        break;
    default:
        say();
        break;
    }
    if (!once_in(4))
        fake_settle();
    if (fl->link)
        listen_to_it();
}

/* ---- one connection after the other ---- */

static void begin(void)
{
    ih_persona_is(PEER);
    peer.big = once_in(4);
    fl = ih_called();
    fl->hostile = true;
    fl->rnr_wanted = true;
    asked.n = acked.n = owed = 0;
    credits = peer.depth;
    core.parse = IH_RECEIVE;
    conns++;
}

/* All that it had must end. */
static void end(void)
{
    for (unsigned i = 0; i < 20 && fl && fake.links; i++) {
        fake.links->hold_sends = false;
        receive_all();
        ir_advance(IR_SEC);
        fake_settle();
    }
    assert_null(fake.links);
    assert_int_equal(core.open, 0);
    ended_well += core.sent;
    received_well += core.nreceived;
    core.sent = core.nreceived = 0;
    for (struct ih_msg *m = core.msgs; m; m = m->next)
        assert_int_equal(m->done, 1);
    ih_forget();
}

static void test_hostile(void **state)
{
    (void)state;
    theirs = calloc(1, THEIRS * 2);
    fake_export(KEY, ADDR, theirs, THEIRS * 2);
    begin();
    for (unsigned i = 0; i < steps; i++) {
        step();
        if (fl->link && fl->phase == FAKE_UP)
            continue;
        end();
        begin();
    }
    fake_break(fl);
    end();
    printf("%u connections, %u messages sent, %u receives ended, the peer said:", conns, ended_well,
           received_well);
    for (unsigned t = 0; t < 8; t++)
        printf(" %u", said[t]);
    printf("\n");
    assert_true(steps < 10000 || (conns > 100 && ended_well > 100));
    free(theirs);
}

/* ---- what it is unlikely to hit upon ---- */

/* PUT_DONE for a PUT_ACK that it was not sent yet: cookies can be guessed, and what is told
 * afterwards would be memory of another message. */
static void test_done_before_ack(void **state)
{
    struct pe_msg m, ack;

    (void)state;
    begin();
    m = ih_put_req(5000, 1, 0);
    ih_say(fl, &m);
    ack = ih_take(fl, PE_PUT_ACK);
    m = ih_completion(PE_PUT_DONE, ack.dst_cookie, 5000);
    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 1);
    fl->hold_sends = true;
    for (unsigned i = 0; i < 8; i++)
        ih_put(10);
    m = ih_put_req(5000, 2, 0);
    ih_say(fl, &m);
    assert_int_equal(fake_unsent(fl), 8); /* PUT_ACK is not among them */
    assert_int_equal(core.open, 1);
    m = ih_completion(PE_PUT_DONE, ack.dst_cookie + (1 << 16), 5000);
    ih_say(fl, &m);
    assert_int_equal(core.drops[IB_DROP(ANSWER)], 1);
    assert_int_equal(core.nreceived, 2);
    assert_int_not_equal(ih_last()->result.reason, LNET_DROP_NONE);
    end();
}

/* A message that is known to have arrived when the connection is being closed already: not lost. */
static void test_arrived(void **state)
{
    struct pe_msg m;
    struct ih_msg *first, *second;

    (void)state;
    begin();
    fl->hold_sends = true;
    first = ih_put(10);
    second = ih_put(10);
    m = ih_base(PE_NOOP, 200); /* credits that were never spent */
    ih_tell(fl, &m);
    fake_complete(fl, 1);
    fake_settle();
    assert_int_equal(core.drops[IB_DROP(CREDITS)], 1);
    ih_expect_ok(first);
    ih_expect(second, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED);
    end();
}

/* What comes before the connection is up is taken in its order. */
static void test_early_order(void **state)
{
    struct fake_call *call;
    struct pe_msg m, ack;

    (void)state;
    ih_persona_is(PEER);
    call = ih_call();
    assert_true(pe_decode(call->link->priv, call->link->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
    for (uint32_t i = 1; i <= 3; i++) {
        m = ih_immediate(i, 0);
        ih_tell(call->link, &m);
    }
    fake_settle();
    assert_int_equal(core.nreceived, 0);
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.nreceived, 3);
    assert_int_equal(core.rxs->hdr.payload_len, 3); /* the newest */
    assert_int_equal(core.rxs->next->hdr.payload_len, 2);
    fl = call->link;
    fake_break(fl);
    end();
}

/* The same while the NI quiesces: it is received. */
static void test_early_quiet(void **state)
{
    struct fake_call *call;
    struct pe_msg m, ack;

    (void)state;
    ih_persona_is(PEER);
    call = ih_call();
    fl = call->link;
    assert_true(pe_decode(fl->priv, fl->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
    for (uint32_t i = 1; i <= 2; i++) {
        m = ih_immediate(i, 0);
        ih_tell(fl, &m);
    }
    ih_quiesce(0);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_ACCEPTING);
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.nreceived, 2);
    assert_int_equal(core.open, 0);
    assert_int_equal(fl->phase, FAKE_UP);
    fake_break(fl);
    end();
}

/* With all answers to come, too, every receive counts: credits leave behind the buffers they
 * announce. The ledger compares at each post. */
static void test_all_buffers(void **state)
{
    (void)state;
    begin();
    fl->hostile = fl->rnr_wanted = peer.big = false;
    for (unsigned i = 0; i < 8; i++)
        ih_put(5000);
    assert_int_equal(fl->led.nasked, 8);
    for (unsigned i = 0; i < 8; i++) {
        struct pe_msg m = ih_immediate(10, 0);

        ih_tell(fl, &m);
    }
    fake_settle();
    assert_int_equal(core.nreceived, 8);
    assert_int_equal(fl->led.theirs, 8);
    assert_int_equal(fl->nrecvs, 18);
    fake_break(fl);
    end();
}

/* Completions of a queue pair that is gone come while its place is another's. */
static void test_ghosts(void **state)
{
    uint64_t recv, send;
    struct fake_link *old;

    (void)state;
    begin();
    old = fl;
    recv = fl->recvs[fl->recv_head].wr_id;
    fl->hold_sends = true;
    ih_put(10);
    send = fl->wrs->wr_id;
    fake_break(fl);
    end();
    begin();
    assert_true(fl != old || fl->link);
    assert_true(recv != fl->recvs[fl->recv_head].wr_id); /* or the test shows nothing */
    assert_int_equal(recv >> 44, fl->recvs[fl->recv_head].wr_id >> 44);
    for (unsigned i = 0; i < 20; i++) { /* more than the connection has receives */
        fake_ghost(fl, recv, i % 2 == 0 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
        fake_ghost(fl, send, i % 2 == 0 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    }
    fake_settle();
    assert_int_equal(fl->phase, FAKE_UP);
    ih_expect_ok(ih_put(10));
    fake_break(fl);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_done_before_ack, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(test_arrived, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(test_early_order, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(test_early_quiet, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(test_all_buffers, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(test_ghosts, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(test_hostile, ih_setup_plain, ih_teardown),
    };

    if (argc > 1)
        steps = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
