// SPDX-License-Identifier: BSD-3-Clause
// Data and memory: requests and their completions, errors of queue pairs, limits, queues, regions.
#include "lib/base/err.h"
#include "test/vm/rdma_pair.h"

#include <poll.h>

#define PAIRS 48

struct mem_pool landing;
uint8_t *slot[2];

// Data goes by SEND, inline and not, and by WRITE into landing memory, gathered from two places.
static void test_data(void)
{
    static uint8_t small[64];
    struct rdma_open open = usual();
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .num_sge = 2}, *bad;
    struct rdma_key key[2] = {port[0].keys[landing.region], port[1].keys[landing.region]};
    struct ibv_sge sge[2];
    struct end *pair[2];

    CHECK(key[0].valid && key[1].valid && key[1].rkey != 0);
    pair_up(pair, &open);
    CHECK(pair[0]->link.inline_bytes >= sizeof(small) && pair[0]->link.send_sges >= 2);
    EQUAL(pair[0]->link.send_wrs, open.send_wrs);
    words_fill(small, sizeof(small), 77);
    send_bytes(pair[0], small, sizeof(small), 0, IBV_SEND_INLINE);
    memset(small, 0, sizeof(small)); // it has gone
    UNTIL(drain(pair[1]) >= 0 && pair[1]->recvs == 1);
    words_fill(small, sizeof(small), 77);
    EQUAL(memcmp(pair[1]->link.area, small, sizeof(small)), 0);

    words_fill(slot[0], SLOT, 5);
    memset(slot[1], 0, SLOT);
    sge[0] = (struct ibv_sge){(uintptr_t)slot[0], 300001, key[0].lkey};
    sge[1] = (struct ibv_sge){(uintptr_t)slot[0] + 300001, 400000, key[0].lkey};
    wr.sg_list = sge;
    wr.wr.rdma.remote_addr = (uintptr_t)slot[1] + 1000;
    wr.wr.rdma.rkey = key[1].rkey;
    as(0);
    EQUAL(ops->post_send(&pair[0]->link, &wr, &bad), 0);
    memcpy(pair[0]->link.area + 19 * RECV_SIZE, small, sizeof(small));
    send_bytes(pair[0], pair[0]->link.area + 19 * RECV_SIZE, sizeof(small), pair[0]->link.area_lkey,
               0);
    UNTIL(drain(pair[1]) >= 0 && pair[1]->recvs == 2);
    EQUAL(memcmp(slot[1] + 1000, slot[0], 700001), 0);
    EQUAL(slot[1][999], 0);
    EQUAL(slot[1][1000 + 700001], 0);
    UNTIL(drain(pair[0]) >= 0 && pair[0]->sends == 2); // the WRITE was not signalled
    pair_end(pair);
}

// A peer that writes where it may not: its request fails, and so do both queue pairs.
static void test_qp_error(void)
{
    struct rdma_open open = usual();
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct ibv_sge sge = {(uintptr_t)slot[0], 4096, port[0].keys[landing.region].lkey};
    struct end *pair[2];

    pair_up(pair, &open);
    wr.wr_id = (uintptr_t)pair[0];
    wr.sg_list = &sge;
    wr.wr.rdma.remote_addr = (uintptr_t)pair[1]->link.area;
    wr.wr.rdma.rkey = pair[1]->link.area_lkey; // areas are not for others to write
    as(0);
    EQUAL(ops->post_send(&pair[0]->link, &wr, &bad), 0);
    UNTIL(drain(pair[0]) >= 0 && pair[0]->bad != 0);
    EQUAL(pair[0]->bad, IBV_WC_REM_ACCESS_ERR);
    UNTIL(drain(pair[1]) >= 0 && (pair[1]->bad != 0 || pair[1]->flushed > 0));
    leave(pair[0]);
    leave(pair[1]);
    UNTIL(drain(pair[0]) >= 0 && pair[0]->flushed == open.recv_wrs);
    UNTIL(drain(pair[1]) >= 0 && pair[1]->flushed + (pair[1]->bad != 0) == open.recv_wrs);
    CHECK(COUNT(pair[1], DISCONNECTED) <= 1); // rxe has no event for it
    shut_end(pair[0]);
    shut_end(pair[1]);
}

static void test_limits(void)
{
    struct rdma_open open = usual();
    struct end *e = dialled(NULL);

    open.send_wrs = port[0].info.max_qp_wr + 1;
    open_end(e, &open);
    EQUAL(COUNT(e, OPEN_FAILED), 1);
    EQUAL(e->error, -EINVAL);
    open = usual();
    open.recv_wrs = port[0].info.max_cqe;
    open_end(e, &open);
    EQUAL(COUNT(e, OPEN_FAILED), 2);
    EQUAL(e->error, -EINVAL);
    open = usual();
    open.area = (size_t)1 << 42;
    open_end(e, &open);
    EQUAL(COUNT(e, OPEN_FAILED), 3);
    UNTIL(counters().areas == 0);
    // After all that it can be made, with what the device grants of more than it can.
    open = usual();
    open.send_sges = 1000;
    open.inline_bytes = 65536;
    open_end(e, &open);
    EQUAL(COUNT(e, OPENED), 1);
    printf("   of 1000 segments %u, of 65536 bytes inline %u\n", e->link.send_sges,
           e->link.inline_bytes);
    CHECK(e->link.send_sges >= 1 && e->link.send_sges <= port[0].info.max_sge);
    CHECK(e->link.inline_bytes < 65536);
    shut_end(e);
}

// A completion queue has room for what its queue pairs may have posted: the next one comes when
// there is none, and when a link has gone its room is there again.
static void test_cq_room(void)
{
    struct rdma_open open = usual(), large = usual();
    struct end *first = dialled(&open), *big, *last;
    struct rdma_cq *cq = first->link.cq;

    large.recv_wrs = 8000;
    large.send_wrs = 8000;
    large.area = 8192 * 8;
    big = dialled(NULL);
    open_end(big, &large);
    EQUAL(COUNT(big, OPENED), 1);
    CHECK(big->link.cq == cq); // 50 and 16000 of 16384
    last = dialled(NULL);
    open_end(last, &large);
    EQUAL(COUNT(last, OPENED), 1);
    CHECK(last->link.cq != cq);
    shut_end(last);
    shut_end(big);
    last = dialled(NULL);
    open_end(last, &large);
    big = dialled(NULL);
    open_end(big, &large);
    CHECK(last->link.cq != big->link.cq && (last->link.cq == cq || big->link.cq == cq));
    shut_end(last);
    shut_end(big);
    shut_end(first);
}

// Links by the dozen, twice: the second time no more memory is taken, and at the end none is in
// use.
static void test_many(void)
{
    struct rdma_open open = usual();
    uint64_t reserved = 0;

    UNTIL(counters().areas == 0);
    for (unsigned round = 0; round < 2; round++) {
        static struct end *pairs[PAIRS][2];
        unsigned up = 0;

        for (unsigned i = 0; i < PAIRS; i++) {
            pairs[i][0] = end_new(0);
            dial_to(pairs[i][0], address[1], SERVICE);
        }
        for (unsigned i = 0; i < PAIRS; i++) {
            UNTIL(COUNT(pairs[i][0], RESOLVED));
            open_end(pairs[i][0], &open);
            post_recvs(pairs[i][0], open.recv_wrs);
            connect_end(pairs[i][0], i);
        }
        for (unsigned i = 0; i < PAIRS; i++) {
            pairs[i][1] = adopted(&open);
            // Zeroed, also where another link was before.
            for (size_t k = 0; k < open.area; k++)
                CHECK(pairs[i][1]->link.area[k] == 0);
            accept_end(pairs[i][1], i, WORDS);
        }
        for (unsigned i = 0; i < PAIRS; i++) {
            UNTIL(COUNT(pairs[i][0], ESTABLISHED) && COUNT(pairs[i][1], ESTABLISHED));
            up++;
        }
        EQUAL(up, PAIRS);
        CHECK(counters().areas >= 2 * PAIRS * open.area);
        for (unsigned i = 0; i < PAIRS; i++) {
            for (unsigned k = 0; k < 2; k++) {
                uint8_t *at = pairs[i][k]->link.area + 19 * RECV_SIZE;

                words_fill(at, 100, i);
                send_bytes(pairs[i][k], at, 100, pairs[i][k]->link.area_lkey, 0);
            }
        }
        for (unsigned i = 0; i < PAIRS; i++) {
            for (unsigned k = 0; k < 2; k++)
                UNTIL(drain(pairs[i][k]) >= 0 && pairs[i][k]->recvs == 1 &&
                      pairs[i][k]->sends == 1);
        }
        for (unsigned i = 0; i < PAIRS; i++)
            pair_end(pairs[i]);
        UNTIL(counters().areas == 0);
        if (round > 0)
            CHECK(counters().areas_reserved <= reserved);
        reserved = counters().areas_reserved;
    }
}

// The last link of a queue goes, and its area comes back, though nobody polls; what was posted
// completes unseen, and is not there for the next one.
static void test_last_not_polled(void)
{
    struct rdma_open open = usual();
    struct end *e;

    UNTIL(counters().areas == 0);
    e = dialled(&open);
    CHECK(counters().areas > 0);
    leave(e);
    as(0);
    ops->shut(&e->link);
    UNTIL(COUNT(e, CLOSED));
    UNTIL(counters().areas == 0);
    free(e);
    e = dialled(&open);
    EQUAL(drain(e), 0);
    shut_end(e);
}

static bool readable(struct rdma_cq *cq)
{
    struct pollfd p = {.fd = cq->fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void test_arm(void)
{
    struct rdma_open open = usual();
    struct end *pair[2];

    pair_up(pair, &open);
    as(1);
    for (unsigned i = 1; i <= 2; i++) {
        EQUAL(ops->arm(pair[1]->link.cq), 0);
        EQUAL(drain(pair[1]), 0);
        CHECK(!readable(pair[1]->link.cq));
        send_bytes(pair[0], pair[0]->link.area, 10, pair[0]->link.area_lkey, 0);
        UNTIL(readable(pair[1]->link.cq));
        ops->disarm(pair[1]->link.cq);
        CHECK(!readable(pair[1]->link.cq));
        UNTIL(drain(pair[1]) >= 0 && pair[1]->recvs == i);
    }
    // Without arm() it stays as it is.
    send_bytes(pair[0], pair[0]->link.area, 10, pair[0]->link.area_lkey, 0);
    UNTIL(drain(pair[1]) >= 0 && pair[1]->recvs == 3);
    CHECK(!readable(pair[1]->link.cq));
    pair_end(pair);
}

// A region that comes after bind() gets its keys when it is wanted, and loses them when it is given
// back.
static void test_want_region(void)
{
    struct mem_arena_opts opts = {.socket = -1, .local_bytes = 65536};
    struct mem_arena *other;
    struct mem_pool pool;
    uint64_t before = counters().registered;
    uint16_t region;
    struct err err = {0};

    as_control();
    if (mem_arena_create(&opts, &other, &err) < 0 ||
        mem_pool_init(&pool, other, MEM_LOCAL, 4096, 4, "late", &err) < 0)
        fail("%s", err.message);
    region = pool.region;
    CHECK(!port[0].keys[region].valid);
    as(0);
    ops->want_region(&port[0], region);
    ops->want_region(&port[0], region);
    ops->want_region(&port[0], MEM_REGION_NONE);
    UNTIL(__atomic_load_n(&port[0].keys[region].valid, __ATOMIC_ACQUIRE));
    EQUAL(port[0].keys[region].rkey, 0);
    CHECK(!port[1].keys[region].valid);
    EQUAL(counters().registered, before + 65536);
    as_control();
    mem_pool_fini(&pool);
    mem_arena_destroy(other);
    CHECK(!port[0].keys[region].valid);
    EQUAL(counters().registered, before);
}

const struct test data_tests[] = {
    {"data", test_data},
    {"qp_error", test_qp_error},
    {"limits", test_limits},
    {"cq_room", test_cq_room},
    {"many", test_many},
    {"last_not_polled", test_last_not_polled},
    {"arm", test_arm},
    {"want_region", test_want_region},
    {NULL, NULL},
};
