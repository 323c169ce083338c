/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The remote keys of transfers to the o2iblnd driver, with each kind that a device may have: whose
 * they are, how long they work, and what happens when the device does not give or take them.
 */
#include "lib/lnd_verbs/ib_internal.h"
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BIG       (100u << 10)
#define TRANSFERS 1000u /* more than a window has keys */

static struct fake_link *fl;

static int setup(enum rdma_keys keys)
{
    ih_defaults();
    ih_opts.verbs.remote_keys = keys;
    ih_setup(NULL);
    fl = ih_called();
    return 0;
}

static int windows(void **state)
{
    (void)state;
    return setup(RDMA_KEYS_WINDOWS);
}

static int registrations(void **state)
{
    (void)state;
    return setup(RDMA_KEYS_REGISTRATIONS);
}

static int shared(void **state)
{
    (void)state;
    return setup(RDMA_KEYS_SHARED);
}

static struct pe_msg offer_on(struct fake_link *on, uint64_t cookie)
{
    struct pe_msg m = ih_put_req(BIG, cookie, (uint8_t)(on->led.depth - on->led.ours));

    ih_say(on, &m);
    return ih_take(on, PE_PUT_ACK);
}

static void done(const struct pe_msg *ack, int status)
{
    struct pe_msg m = ih_completion(PE_PUT_DONE, ack->dst_cookie, status);

    ih_say(fl, &m);
}

static bool works(const struct fake_link *on, const struct pe_msg *ack)
{
    return fake_key_works(on, ack->key, ack->frag[0].addr, BIG);
}

/* A peer may write what it was told of, no byte around it, and nothing after PUT_DONE. */
static void for_its_time(void **state)
{
    struct pe_msg first = offer_on(fl, 1), second = offer_on(fl, 2);
    uint8_t bytes[16] = {1, 2, 3};

    (void)state;
    assert_int_not_equal(first.key, second.key);
    assert_int_equal(fake_keys(), 2);
    assert_true(works(fl, &first) && works(fl, &second));
    assert_false(fake_key_works(fl, first.key, first.frag[0].addr, BIG + 1));
    assert_false(fake_key_works(fl, first.key, first.frag[0].addr - 1, 2));
    assert_false(fake_key_works(fl, first.key, second.frag[0].addr, 1));
    fake_write(fl, first.key, first.frag[0].addr + 7, bytes, sizeof(bytes));
    done(&first, BIG);
    assert_int_equal(core.nreceived, 1);
    assert_false(works(fl, &first));
    assert_true(works(fl, &second));
    done(&second, -EIO);
    assert_int_equal(core.nreceived, 2);
    assert_int_equal(core.rxs->result.reason, IB_DROP(PEER_FAILED));
    assert_false(works(fl, &second));
    assert_int_equal(fake_keys(), 0);
}

static void are_flat(void **state)
{
    uint32_t before = 0;

    (void)state;
    for (unsigned i = 0; i < TRANSFERS; i++) {
        struct pe_msg ack = offer_on(fl, i);

        assert_int_not_equal(ack.key, before);
        assert_int_equal(fake_keys(), 1);
        before = ack.key;
        done(&ack, BIG);
        assert_int_equal(fake_keys(), 0);
        while (fake_unsent(fl) > 0)
            ih_take(fl, PE_NOOP);
        ih_forget();
    }
    assert_int_equal(core.nreceived, TRANSFERS);
}

/* A connection that ends takes the keys of its transfers with it. */
static void end_with_the_connection(void **state)
{
    struct pe_msg ack = offer_on(fl, 1);

    (void)state;
    assert_true(works(fl, &ack));
    fake_break(fl);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.open, 0);
    assert_int_equal(core.rxs->result.reason, LNET_DROP_RX_INCOMPLETE);
    assert_int_equal(fake_keys(), 0);
}

/* ---- windows alone ---- */

static void other_connection(void **state)
{
    struct fake_link *other;
    struct pe_msg mine = offer_on(fl, 1), theirs;

    (void)state;
    ih_persona_is(PEER2);
    other = ih_called();
    theirs = offer_on(other, 1);
    assert_true(works(fl, &mine) && works(other, &theirs));
    assert_false(works(other, &mine));
    assert_false(works(fl, &theirs));
}

/* The core gets the memory, and the peer its credit, only when the key is invalid. */
static void invalid_first(void **state)
{
    struct pe_msg ack = offer_on(fl, 1);
    unsigned theirs = fl->led.theirs;
    unsigned posted;

    (void)state;
    fl->hold_sends = true;
    posted = fl->nrecvs;
    done(&ack, BIG);
    assert_int_equal(core.nreceived, 0);
    assert_true(works(fl, &ack));
    assert_int_equal(fl->nrecvs, posted - 1);
    assert_int_equal(fl->led.theirs, theirs);
    assert_int_equal(fake_complete(fl, 1), 1);
    ir_run();
    assert_false(works(fl, &ack));
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(core.rxs->result.reason, LNET_DROP_NONE);
    assert_int_equal(fl->nrecvs, posted);
    fl->hold_sends = false;
}

static void queue_has_room(void **state)
{
    struct rdma_open without, with;

    (void)state;
    ib_conn_sizes(8, 8, false, &without);
    ib_conn_sizes(8, 8, true, &with);
    assert_int_equal(without.windows, 0);
    assert_int_equal(with.windows, 8);
    assert_int_equal(with.send_wrs, without.send_wrs + 16); /* to bind and to invalidate each */
    assert_int_equal(fl->open.windows, 8);
}

static void bind_fails(void **state)
{
    struct pe_msg m = ih_put_req(BIG, 1, 0);

    (void)state;
    fl->hold_sends = true;
    ih_say(fl, &m);
    assert_int_equal(fl->wrs->kind, FAKE_BIND);
    fake_fail_send(fl, IBV_WC_MW_BIND_ERR);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.open, 0);
    assert_int_equal(core.rxs->result.reason, IB_DROP(KEY));
    assert_int_equal(core.drops[IB_DROP(KEY)], 1);
}

static void invalidate_fails(void **state)
{
    struct pe_msg ack = offer_on(fl, 1);

    (void)state;
    fl->hold_sends = true;
    done(&ack, BIG);
    assert_int_equal(fl->wrs->kind, FAKE_INVALIDATE);
    fake_fail_send(fl, IBV_WC_LOC_QP_OP_ERR);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.drops[IB_DROP(KEY)], 1);
    assert_int_equal(core.rxs->result.reason, LNET_DROP_NONE); /* the payload is complete */
}

/* A device that never completes an invalidate costs its connection. */
static void invalidate_hangs(void **state)
{
    struct pe_msg ack = offer_on(fl, 1);

    (void)state;
    fl->hold_sends = true;
    done(&ack, BIG);
    for (unsigned i = 0; i < 80 && core.open > 0; i++) {
        ir_advance(IR_SEC);
        ir_run();
    }
    assert_int_equal(core.drops[IB_DROP(STALL)], 1);
    assert_int_equal(core.open, 0);
}

/* ---- registrations alone ---- */

static void register_fails(void **state)
{
    struct pe_msg m = ih_put_req(BIG, 1, 0), nak;

    (void)state;
    fake.register_errors = 1;
    ih_say(fl, &m);
    nak = ih_take(fl, PE_PUT_NAK);
    assert_int_equal(nak.status, -ENOMEM);
    assert_int_equal(core.rxs->result.reason, IB_DROP(KEY));
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(fake_keys(), 0);
}

/* ---- the shared key ---- */

static void one_for_all(void **state)
{
    struct pe_msg first = offer_on(fl, 1), second = offer_on(fl, 2);

    (void)state;
    assert_int_equal(first.key, FAKE_RKEY);
    assert_int_equal(second.key, FAKE_RKEY);
    assert_int_equal(fl->open.windows, 0);
    done(&first, BIG);
    done(&second, BIG);
    assert_int_equal(core.nreceived, 2);
}

#define T(fn, keys)                                                                                \
    {                                                                                              \
#fn "_" #keys, fn, keys, ih_teardown, NULL                                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(for_its_time, windows),
        T(for_its_time, registrations),
        T(are_flat, windows),
        T(are_flat, registrations),
        T(end_with_the_connection, windows),
        T(end_with_the_connection, registrations),
        T(other_connection, windows),
        T(invalid_first, windows),
        T(queue_has_room, windows),
        T(bind_fails, windows),
        T(invalidate_fails, windows),
        T(invalidate_hangs, windows),
        T(register_fails, registrations),
        T(one_for_all, shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
