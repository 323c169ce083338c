// SPDX-License-Identifier: BSD-3-Clause
// Connections come and go: calls, answers and rejects, ends at any stage, listening.
#include "lib/base/err.h"
#include "test/vm/rdma_pair.h"

#include <unistd.h>

static void test_info(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct rdma_info info;

        as_control();
        ops->info(&port[i], &info);
        printf(
            "   %s port %u of %s on %s, state %d, mtu %u, %u Mbit/s, gid %u, pkey %#x, max_sge %u, max_qp_wr %u, "
            "max_cqe %u\n",
            info.device, info.port, info.transport, info.link_layer, info.state, info.mtu,
            info.speed, info.gid_index, info.pkey, info.max_sge, info.max_qp_wr, info.max_cqe);
        CHECK(info.device[0] != '\0' && info.port == 1 && info.state == IBV_PORT_ACTIVE);
        CHECK(info.max_sge > 0 && info.max_qp_wr > 0 && info.max_cqe > 0 && info.mtu >= 256);
        EQUAL(memcmp(info.gid.raw + 12, &address[i].sin_addr, 4), 0);
        EQUAL(memcmp(info.link_layer, "Ethernet", 9), 0);
    }
    CHECK(strcmp(port[0].info.device, port[1].info.device) != 0);
}

static void test_bind_errors(void)
{
    static const struct {
        const char *ip;
        int rc;
        const char *says;
    } rows[] = {{"127.0.0.1", -ENODEV, "rxe0"}, {"192.0.2.77", -EADDRNOTAVAIL, "192.0.2.77"}};
    uint64_t before = counters().registered;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_in to = {.sin_family = AF_INET};
        struct rdma_port other = {0};
        struct err err = {0};

        inet_pton(AF_INET, rows[i].ip, &to.sin_addr);
        as_control();
        EQUAL(ops->bind(rdma, &other, &to, &err), rows[i].rc);
        printf("   %s\n", err.message);
        CHECK(strstr(err.message, rows[i].says) != NULL);
    }
    EQUAL(counters().registered, before);
}

static void test_listen_twice(void)
{
    struct err err = {0};

    as_control();
    EQUAL(ops->listen(&port[1], SERVICE, &listener, &err), -EALREADY);
}

// What is said in each direction arrives, also where all 196 bytes of an answer are used; the port
// that calls is below 1024.
static void test_words(void)
{
    static const size_t lengths[] = {WORDS, 24, RDMA_PRIV_MAX};

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct rdma_open open = usual();
        struct end *pair[2];
        struct rdma_request *req;
        uint8_t words[RDMA_PRIV_MAX];

        pair[0] = dialled(&open);
        connect_end(pair[0], i);
        req = next_caller();
        words_fill(words, WORDS, i);
        CHECK(req->priv_len >= WORDS && memcmp(req->priv, words, WORDS) == 0);
        EQUAL(req->from.sin_addr.s_addr, address[0].sin_addr.s_addr);
        CHECK(ntohs(req->from.sin_port) > 0 && ntohs(req->from.sin_port) < 1024);
        callers[ncallers++] = req;
        pair[1] = adopted(&open);
        EQUAL(COUNT(pair[0], ESTABLISHED), 0);
        accept_end(pair[1], 100 + i, lengths[i]);
        UNTIL(COUNT(pair[0], ESTABLISHED) && COUNT(pair[1], ESTABLISHED));
        words_fill(words, lengths[i], 100 + i);
        CHECK(pair[0]->priv_len >= lengths[i] && memcmp(pair[0]->priv, words, lengths[i]) == 0);
        pair_end(pair);
    }
}

static void test_reject(void)
{
    static const size_t lengths[] = {24, 148, 0};

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct rdma_open open = usual();
        struct end *e = dialled(&open);
        uint8_t words[148];
        struct rdma_request *req;

        connect_end(e, i);
        req = next_caller();
        words_fill(words, lengths[i], 50 + i);
        as(1);
        ops->reject(req, words, lengths[i]);
        UNTIL(COUNT(e, REJECTED));
        EQUAL(e->status, 28);
        CHECK(e->priv_len >= lengths[i] && memcmp(e->priv, words, lengths[i]) == 0);
        leave(e);
        UNTIL(drain(e) >= 0 && e->flushed == open.recv_wrs);
        shut_end(e);
    }
}

// A call that was adopted is refused with words, before and after it has a queue pair.
static void test_refuse(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct rdma_open open = usual();
        struct end *pair[2] = {dialled(&open)};
        uint8_t words[24];

        connect_end(pair[0], i);
        pair[1] = adopted(i > 0 ? &open : NULL);
        words_fill(words, sizeof(words), 9);
        as(1);
        ops->refuse(&pair[1]->link, words, sizeof(words));
        UNTIL(COUNT(pair[0], REJECTED));
        EQUAL(pair[0]->status, 28);
        EQUAL(memcmp(pair[0]->priv, words, sizeof(words)), 0);
        shut_end(pair[0]);
        shut_end(pair[1]);
    }
}

// Without the wish for a port below 1024 there is another; with a type of service the packets have
// it.
static void test_dial_options(void)
{
    struct rdma_open open = usual();
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct end *pair[2];
    struct rdma_request *req;

    dial_privileged = false;
    dial_tos = 0x68;
    pair[0] = dialled(&open);
    connect_end(pair[0], 1);
    dial_privileged = true;
    dial_tos = -1;
    req = next_caller();
    CHECK(ntohs(req->from.sin_port) >= 1024);
    callers[ncallers++] = req;
    pair[1] = adopted(&open);
    accept_end(pair[1], 1, WORDS);
    UNTIL(COUNT(pair[0], ESTABLISHED) && COUNT(pair[1], ESTABLISHED));
    EQUAL(ibv_query_qp(pair[0]->link.qp, &attr, IBV_QP_AV, &init), 0);
    EQUAL(attr.ah_attr.grh.traffic_class, 0x68);
    pair_end(pair);
}

// What §1.2 of o2iblnd has queue pairs be once they are connected.
static void test_parameters(void)
{
    struct rdma_open open = usual();
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct end *pair[2];

    pair_up(pair, &open);
    for (unsigned i = 0; i < 2; i++) {
        EQUAL(ibv_query_qp(pair[i]->link.qp, &attr,
                           IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                               IBV_QP_MAX_DEST_RD_ATOMIC,
                           &init),
              0);
        EQUAL(attr.qp_state, IBV_QPS_RTS);
        EQUAL(attr.min_rnr_timer, 24); /* 41 ms */
        EQUAL(attr.retry_cnt, 5);
        EQUAL(attr.rnr_retry, 6);
        EQUAL(attr.max_rd_atomic, 0);
        EQUAL(attr.max_dest_rd_atomic, 0);
        EQUAL(init.sq_sig_all, 0);
    }
    pair_end(pair);
}

// Nobody decides about a call that no reactor is named for.
static void test_no_route(void)
{
    struct rdma_open open = usual();
    struct end *e = dialled(&open);
    uint8_t words[WORDS] = {255};

    as(0);
    ops->connect(&e->link, words, sizeof(words), 5, 6);
    UNTIL(COUNT(e, REJECTED));
    EQUAL(e->status, 28);
    EQUAL(ncallers, 0);
    shut_end(e);
}

static void test_nobody_listens(void)
{
    struct rdma_open open = usual();
    struct end *e = end_new(0);

    dial_to(e, address[1], SERVICE + 1);
    UNTIL(COUNT(e, RESOLVED));
    open_end(e, &open);
    connect_end(e, 1);
    UNTIL(COUNT(e, REJECTED));
    EQUAL(e->status, 8);
    shut_end(e);
}

static void test_unreachable(void)
{
    struct end *e = end_new(0);
    struct sockaddr_in nobody = address[1];

    nobody.sin_addr.s_addr = (nobody.sin_addr.s_addr & htonl(0xffffff00)) | htonl(99);
    dial_to(e, nobody, SERVICE);
    UNTIL(COUNT(e, FAILED));
    EQUAL(e->error, -EHOSTUNREACH);
    EQUAL(COUNT(e, RESOLVED), 0);
    shut_end(e);
}

// The other end is told, and all that is posted completes at both.
static void test_disconnect(void)
{
    for (unsigned side = 0; side < 2; side++) {
        struct rdma_open open = usual();
        struct end *pair[2], *first, *other;

        pair_up(pair, &open);
        first = pair[side];
        other = pair[!side];
        leave(first);
        UNTIL(COUNT(other, DISCONNECTED));
        EQUAL(other->error, 0);
        UNTIL(drain(first) >= 0 && first->flushed == open.recv_wrs);
        leave(other);
        UNTIL(drain(other) >= 0 && other->flushed == open.recv_wrs);
        for_a_while(0.05);
        EQUAL(COUNT(first, DISCONNECTED), 0); // it was the one
        EQUAL(COUNT(other, DISCONNECTED), 1);
        shut_end(first);
        shut_end(other);
    }
}

// One end is shut without a word before: the other still hears of it.
static void test_shut_up_link(void)
{
    struct rdma_open open = usual();
    struct end *pair[2];

    pair_up(pair, &open);
    shut_end(pair[0]);
    UNTIL(COUNT(pair[1], DISCONNECTED));
    EQUAL(pair[1]->error, 0);
    shut_end(pair[1]);
}

// Waits for the call that said what connect_end() says with this seed. Late calls of links that
// were shut are rejected.
static void await_call(unsigned seed)
{
    uint8_t words[WORDS];
    struct rdma_request *req;

    words_fill(words, WORDS, seed);
    while (req = next_caller(), memcmp(req->priv, words, WORDS) != 0) {
        as(1);
        ops->reject(req, NULL, 0);
    }
    callers[ncallers++] = req;
}

// A link is shut at each stage of its life, twice, with and without a disconnect before; nothing
// but CLOSED is told after it.
static void test_shut_anywhere(void)
{
    for (unsigned polite = 0; polite < 2; polite++) {
        for (unsigned stage = 0; stage < 9; stage++) {
            struct rdma_open open = usual();
            struct end *e = NULL, *other = NULL;
            unsigned events = 0, seed = 1 + 16 * polite + stage;

            switch (stage) {
            case 0: // nothing has begun
                e = end_new(0);
                dial_to(e, address[1], SERVICE);
                break;
            case 1: // addresses are being resolved
                e = end_new(0);
                dial_to(e, address[1], SERVICE);
                usleep(2000 * (1 + polite));
                break;
            case 2:
                e = dialled(NULL);
                break;
            case 3: // the queue pair is being made
                e = dialled(NULL);
                as(0);
                ops->open_qp(&e->link, &open);
                break;
            case 4:
                e = dialled(&open);
                break;
            case 5: // it has called
                e = dialled(&open);
                connect_end(e, seed);
                break;
            case 6: // it has called, and its call is there
                e = dialled(&open);
                connect_end(e, seed);
                await_call(seed);
                break;
            case 7: // called, adopted, not accepted
                other = dialled(&open);
                connect_end(other, seed);
                await_call(seed);
                e = adopted(NULL);
                break;
            case 8: // accepted
                other = dialled(&open);
                connect_end(other, seed);
                await_call(seed);
                e = adopted(&open);
                accept_end(e, 1, WORDS);
                break;
            }
            as(e->home);
            if (polite)
                leave(e);
            for (int i = 0; i < RDMA_EV_CLOSED; i++)
                events += e->count[i];
            as(e->home);
            ops->shut(&e->link);
            UNTIL(COUNT(e, CLOSED));
            for (int i = 0; i < RDMA_EV_CLOSED; i++)
                events -= e->count[i];
            EQUAL(events, 0);
            shut_end(e);
            if (other) {
                UNTIL(COUNT(other, REJECTED) + COUNT(other, FAILED) + COUNT(other, DISCONNECTED));
                shut_end(other);
            }
            for_a_while(0.02);
            while (ncallers > 0) { // of stages 5 and 6
                struct rdma_request *req = next_caller();

                as(1);
                ops->reject(req, NULL, 0);
            }
        }
    }
}

// The end that accepted is shut about when the caller becomes ready: the caller is told in any
// case.
static void test_shut_at_accept(void)
{
    struct rdma_open open = usual();
    unsigned late = 0; // told after it was up

    for (unsigned i = 0; i < 60; i++) {
        struct end *caller = dialled(&open), *e;
        double until;

        connect_end(caller, 100 + i);
        await_call(100 + i);
        e = adopted(&open);
        accept_end(e, 1, WORDS);
        until = now() + 1e-4 * i;
        while (now() < until)
            turn();
        as(e->home);
        ops->shut(&e->link);
        UNTIL(COUNT(caller, REJECTED) + COUNT(caller, FAILED) + COUNT(caller, DISCONNECTED));
        late += COUNT(caller, ESTABLISHED);
        shut_end(e);
        shut_end(caller);
    }
    printf("shut_at_accept: %u of 60 callers were up\n", late);
}

// From inside what an event calls.
static void test_shut_when_told(void)
{
    struct end *e = end_new(0);

    e->shut_when_told = true;
    dial_to(e, address[1], SERVICE);
    UNTIL(COUNT(e, CLOSED));
    EQUAL(COUNT(e, RESOLVED), 1);
    free(e);
}

// The other end takes its call back while we think about it.
static void test_caller_gives_up(void)
{
    struct rdma_open open = usual();
    struct end *pair[2] = {dialled(&open)};

    connect_end(pair[0], 1);
    UNTIL(ncallers > 0);
    shut_end(pair[0]);
    for_a_while(0.2);
    pair[1] = adopted(NULL);
    as(1);
    ops->open_qp(&pair[1]->link, &open);
    UNTIL(COUNT(pair[1], OPENED) + COUNT(pair[1], OPEN_FAILED));
    if (COUNT(pair[1], OPENED)) {
        accept_end(pair[1], 1, WORDS);
        UNTIL(COUNT(pair[1], FAILED) + COUNT(pair[1], REJECTED));
    }
    EQUAL(COUNT(pair[1], ESTABLISHED), 0);
    shut_end(pair[1]);
}

// After unlisten() every reactor is told once, no call comes, and one can listen again.
static void test_unlisten(void)
{
    struct rdma_open open = usual();
    struct end *e;

    unlisten();
    e = dialled(&open);
    connect_end(e, 1);
    UNTIL(COUNT(e, REJECTED));
    EQUAL(e->status, 8);
    EQUAL(ncallers, 0);
    shut_end(e);
    listen_on(SERVICE);
}

// A call that came before unlisten() may still be answered.
static void test_unlisten_with_caller(void)
{
    struct rdma_open open = usual();
    struct end *pair[2] = {dialled(&open)};

    connect_end(pair[0], 1);
    UNTIL(ncallers > 0);
    unlisten();
    pair[1] = adopted(&open);
    accept_end(pair[1], 2, WORDS);
    UNTIL(COUNT(pair[0], ESTABLISHED) && COUNT(pair[1], ESTABLISHED));
    pair_end(pair);
    listen_on(SERVICE);
}

const struct test connect_tests[] = {
    {"info", test_info},
    {"bind_errors", test_bind_errors},
    {"listen_twice", test_listen_twice},
    {"words", test_words},
    {"reject", test_reject},
    {"refuse", test_refuse},
    {"dial_options", test_dial_options},
    {"parameters", test_parameters},
    {"no_route", test_no_route},
    {"nobody_listens", test_nobody_listens},
    {"unreachable", test_unreachable},
    {"disconnect", test_disconnect},
    {"shut_up_link", test_shut_up_link},
    {"shut_anywhere", test_shut_anywhere},
    {"shut_at_accept", test_shut_at_accept},
    {"shut_when_told", test_shut_when_told},
    {"caller_gives_up", test_caller_gives_up},
    {"unlisten", test_unlisten},
    {"unlisten_with_caller", test_unlisten_with_caller},
    {NULL, NULL},
};
