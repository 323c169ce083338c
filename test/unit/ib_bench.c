/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the o2iblnd driver itself takes per message, in cycles of the time stamp counter: fake
 * devices and a core that does nothing, whose own time is not counted. Each change between them and
 * the driver costs the driver some 20 cycles of measuring. Not a test: nothing is expected of the
 * figures.
 *
 *     ib_bench [messages]
 */
#include "test/unit/ib_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEPTH 32
#define BATCH 8
#define SMALL 128u
#define BIG   (64u << 10)
#define PARTS 100

#define LARGE  (1u << 20)
#define LARGES 4
#define FRAME  1448u
#define FRAMES ((LARGE + FRAME - 1) / FRAME)
#define LAST   (LARGE - (FRAMES - 1) * FRAME)

static struct fake_link *fl;
static unsigned messages = 200000;

/* One turn of the peer's home reactor; the poller of the driver is all there is. */
static void turn(void)
{
    ir_turn(0);
}

static void complete_all(void)
{
    while (fake_complete(fl, BATCH) > 0)
        turn();
}

static void credits(uint8_t n)
{
    struct pe_msg m = ih_base(PE_NOOP, n);

    ih_tell(fl, &m);
    turn();
}

/* All that was sent: the PUT_REQs and PUT_ACKs among it, in order. */
static unsigned sent(struct pe_msg *out, uint8_t type)
{
    static struct pe_msg m;
    unsigned n = 0;

    while (fake_next(fl, &m)) {
        if (m.type == type)
            out[n++] = m;
    }
    complete_all();
    return n;
}

static struct pe_msg seen[2 * DEPTH];

static void immediate_in(void)
{
    for (unsigned i = 0; i < BATCH; i++) {
        struct pe_msg m = ih_immediate(SMALL, 0);

        ih_tell(fl, &m);
    }
    turn();
    sent(seen, PE_NOOP);
}

static void immediate_out(void)
{
    for (unsigned i = 0; i < BATCH; i++)
        ih_give(ih_msg(0, PEER, LNET_MSG_PUT, SMALL, FAKE_LOCAL, 1));
    turn();
    complete_all();
    sent(seen, PE_IMMEDIATE);
    credits(BATCH);
}

static void put_in(void)
{
    unsigned n;

    for (unsigned i = 0; i < BATCH; i++) {
        struct pe_msg m = ih_put_req(BIG, i, 0);

        ih_tell(fl, &m);
    }
    turn();
    n = sent(seen, PE_PUT_ACK);
    for (unsigned i = 0; i < n; i++) {
        struct pe_msg m = ih_completion(PE_PUT_DONE, seen[i].dst_cookie, BIG);

        ih_tell(fl, &m);
    }
    turn();
    assert_int_equal(n, BATCH);
    sent(seen, PE_NOOP);
}

static void put_out(void)
{
    unsigned n;

    for (unsigned i = 0; i < BATCH; i++)
        ih_give(ih_msg(0, PEER, LNET_MSG_PUT, BIG, FAKE_LOCAL, 1));
    turn();
    n = sent(seen, PE_PUT_REQ);
    assert_int_equal(n, BATCH);
    for (unsigned i = 0; i < n; i++) {
        struct pe_msg m = ih_put_ack(seen[i].cookie, i, 1, 0x1000, BIG);

        ih_tell(fl, &m);
    }
    turn();
    sent(seen, PE_PUT_DONE);
    credits(BATCH);
}

/* 1 MiB each as frames of an MTU of 1500 leave it, in memory that the device has a key for or not.
 */
static void put_frames(uint16_t region)
{
    static struct mem_seg segs[LARGES][FRAMES];
    unsigned n;

    for (unsigned i = 0; i < LARGES; i++) {
        struct ih_msg *m = ih_msg(0, PEER, LNET_MSG_PUT, LARGE, FAKE_LOCAL, 1);
        uint8_t *at = m->msg.segs[0].addr;

        for (unsigned k = 0; k < FRAMES; k++, at += FRAME)
            segs[i][k] = (struct mem_seg){at, k + 1 < FRAMES ? FRAME : LAST, region, 0};
        m->msg.payload.seg = segs[i];
        m->msg.payload.n = FRAMES;
        ih_give(m);
    }
    turn();
    n = sent(seen, PE_PUT_REQ);
    assert_int_equal(n, LARGES);
    for (unsigned i = 0; i < n; i++) {
        struct pe_msg m = ih_put_ack(seen[i].cookie, i, 1, 0x1000, LARGE);

        ih_tell(fl, &m);
    }
    turn();
    sent(seen, PE_PUT_DONE);
    credits(LARGES);
}

static void put_listed(void)
{
    put_frames(FAKE_LOCAL);
}

static void put_copied(void)
{
    put_frames(MEM_REGION_NONE);
}

/* The least of many parts: others use this machine too. */
static void measure(const char *name, void (*fn)(void), unsigned batch)
{
    unsigned rounds = messages / batch / PARTS + 1;
    double least = 0;

    for (unsigned part = 0; part <= PARTS; part++) {
        double cycles;

        fake_meter = (struct fake_meter){.on = true};
        for (unsigned i = 0; i < rounds; i++)
            fn();
        fake_meter.on = false;
        ih_forget();
        cycles = (double)fake_meter.driver / (rounds * (double)batch);
        if (part == 1 || (part > 1 && cycles < least)) /* the first one warms up */
            least = cycles;
    }
    printf("%-28s %7.0f cycles per message\n", name, least);
    assert_int_equal(core.open, 0);
    assert_int_equal(core.failed, 0);
}

static int setup(void **state)
{
    ih_defaults();
    ih_opts.peer_credits = DEPTH;
    ih_setup(state);
    peer.depth = DEPTH;
    fl = ih_called();
    fake.fast = true;
    fl->hostile = true;
    fl->hold_sends = true;
    fl->link->inline_bytes = 128;
    return 0;
}

static void bench(void **state)
{
    static const unsigned limits[] = {1, 2, 4, 8, 16, 30};
    char name[40];

    measure("IMMEDIATE in", immediate_in, BATCH);
    measure("IMMEDIATE out", immediate_out, BATCH);
    measure("PUT in", put_in, BATCH);
    measure("PUT out", put_out, BATCH);
    messages = messages / 100 + 1;
    for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        fl->link->send_sges = limits[i];
        snprintf(name, sizeof(name), "PUT out 1 MiB, lists of %u", limits[i]);
        measure(name, put_listed, LARGES);
    }
    measure("PUT out 1 MiB, copied", put_copied, LARGES);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bench, setup, ih_teardown),
    };

    if (argc > 1)
        messages = (unsigned)strtoul(argv[1], NULL, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
