// SPDX-License-Identifier: BSD-3-Clause
// rdma_pair [--filter X] [--mode M] A B: tries the RDMA provider of lib/lnd_verbs between two
// addresses of this machine, each of a device of its own. Both ends are in this process: reactors
// are turned by hand, so what happens is as its test says; the provider's worker is a thread as
// ever. Prints `PASS name` or `FAIL name: why`; the status is 0 if none failed.
#include "lib/lnd_verbs/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SERVICE   4987
#define WORDS     56 // of a call
#define RECV_SIZE 4096
#define SLOT      MEM_LANDING_SLOT
#define WAIT_S    20
#define REACTORS  2
#define CALLERS   256
#define PAIRS     48

static struct reactor_env *env;
static struct rdma *rdma;
static struct rdma_port port[2]; // 0: calls, on reactor 0; 1: is called, on reactor 1
static struct sockaddr_in address[2];
static unsigned port_events[2][4];
static const char *test_name;
static const struct rdma_ops *const ops = &rdma_core;

// -------------------------------------------------------------------------------------------------------
// what tests say

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *fmt, ...)
{
    va_list ap;

    printf("FAIL %s: ", test_name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    // The ends of other tests would stumble over what is left of this one.
    _exit(1);
}

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            fail("line %d: %s", __LINE__, #what);                                                  \
    } while (0)

#define EQUAL(a, b)                                                                                \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_)                                                                              \
            fail("line %d: %s is %lld, not %lld", __LINE__, #a, a_, b_);                           \
    } while (0)

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

// --------------------------------------------------------------------------------------------------------------
// reactors

static void as(unsigned reactor)
{
    reactor_bind(reactor_at(env, reactor));
}

static void as_control(void)
{
    reactor_bind(reactor_control(env));
}

static void turn(void)
{
    struct timespec pause = {.tv_nsec = 100000};

    for (unsigned i = 0; i < REACTORS; i++) {
        as(i);
        reactor_step(reactor_self(), 0);
    }
    as_control();
    reactor_step(reactor_self(), 0);
    nanosleep(&pause, NULL);
}

#define UNTIL(what)                                                                                \
    do {                                                                                           \
        double end_ = now() + WAIT_S;                                                              \
        while (!(what)) {                                                                          \
            if (now() > end_)                                                                      \
                fail("line %d: not within %d s: %s", __LINE__, WAIT_S, #what);                     \
            turn();                                                                                \
        }                                                                                          \
    } while (0)

static void for_a_while(double seconds)
{
    double end = now() + seconds;

    while (now() < end)
        turn();
}

// ------------------------------------------------------------------------------------------------------------------
// ends

struct end {
    struct rdma_link link;
    unsigned home;
    unsigned count[RDMA_EV_CLOSED + 1];
    int error, status; // of the last event that has one
    size_t priv_len;
    uint8_t priv[RDMA_PRIV_MAX];
    unsigned recvs, sends, flushed; // completions
    int bad;                        // status of the last that failed otherwise
    bool shut_when_told;            // shut from inside the next event
};

static void told(struct rdma_link *link, const struct rdma_event *ev)
{
    struct end *e = (struct end *)link;

    CHECK(reactor_self() == link->home);
    CHECK(e->count[RDMA_EV_CLOSED] == 0); // it is the last one
    e->count[ev->kind]++;
    e->error = ev->error;
    e->status = ev->status;
    if (ev->kind == RDMA_EV_ESTABLISHED || ev->kind == RDMA_EV_REJECTED) {
        CHECK(ev->priv_len <= sizeof(e->priv));
        e->priv_len = ev->priv_len;
        if (ev->priv_len > 0)
            memcpy(e->priv, ev->priv, ev->priv_len);
    }
    if (e->shut_when_told && ev->kind != RDMA_EV_CLOSED) {
        e->shut_when_told = false;
        ops->shut(link);
    }
}

static struct end *end_new(unsigned home)
{
    struct end *e = calloc(1, sizeof(*e));

    CHECK(e != NULL);
    e->home = home;
    e->link.event = told;
    e->link.port = &port[home];
    e->link.home = reactor_at(env, home);
    return e;
}

static struct rdma_open usual(void)
{
    return (struct rdma_open){.recv_wrs = 18,
                              .send_wrs = 32,
                              .send_sges = 8,
                              .inline_bytes = 128,
                              .area = 20 * RECV_SIZE};
}

#define COUNT(e, what) ((e)->count[RDMA_EV_##what])

static bool dial_privileged = true;
static int dial_tos = -1;

static void dial_to(struct end *e, struct sockaddr_in to, uint16_t service)
{
    struct rdma_dial dial = {
        .to = to, .privileged = dial_privileged, .tos = dial_tos, .timeout_ms = 3000};

    dial.to.sin_port = htons(service);
    as(e->home);
    ops->dial(&e->link, &dial);
}

static void open_end(struct end *e, const struct rdma_open *open)
{
    unsigned before = COUNT(e, OPENED) + COUNT(e, OPEN_FAILED);

    as(e->home);
    ops->open_qp(&e->link, open);
    UNTIL(COUNT(e, OPENED) + COUNT(e, OPEN_FAILED) > before);
}

static void post_recvs(struct end *e, unsigned n)
{
    as(e->home);
    for (unsigned i = 0; i < n; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)(e->link.area + i * RECV_SIZE),
                              .length = RECV_SIZE,
                              .lkey = e->link.area_lkey};
        struct ibv_recv_wr wr = {.wr_id = (uintptr_t)e | 1, .sg_list = &sge, .num_sge = 1}, *bad;

        EQUAL(ops->post_recv(&e->link, &wr, &bad), 0);
    }
}

// Takes what completed; the amount.
static int drain(struct end *e)
{
    struct ibv_wc wc[16];
    int n, all = 0;

    as(e->home);
    while ((n = ops->poll(e->link.cq, wc, 16)) > 0) {
        for (int i = 0; i < n; i++) {
            struct end *of = (struct end *)(uintptr_t)(wc[i].wr_id & ~1ull);

            if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
                of->flushed++;
            else if (wc[i].status != IBV_WC_SUCCESS)
                of->bad = (int)wc[i].status;
            else if (wc[i].wr_id & 1)
                of->recvs++;
            else
                of->sends++;
        }
        all += n;
    }
    CHECK(n == 0);
    return all;
}

static void shut_end(struct end *e)
{
    as(e->home);
    ops->shut(&e->link);
    ops->shut(&e->link);
    UNTIL(COUNT(e, CLOSED));
    if (e->link.cq != NULL)
        (void)drain(e);
    turn();
    EQUAL(COUNT(e, CLOSED), 1);
    free(e);
}

static void send_bytes(struct end *e, const void *data, uint32_t len, uint32_t lkey, unsigned flags)
{
    struct ibv_sge sge = {.addr = (uintptr_t)data, .length = len, .lkey = lkey};
    struct ibv_send_wr wr = {.wr_id = (uintptr_t)e,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED | flags},
                       *bad;

    as(e->home);
    EQUAL(ops->post_send(&e->link, &wr, &bad), 0);
}

// ---------------------------------------------------------------------------------------------------------------
// callers

static struct rdma_request *callers[CALLERS];
static unsigned ncallers;
static unsigned requests_on[REACTORS], unlistened_on[REACTORS];

static struct reactor *route(void *arg, const void *priv, size_t len)
{
    CHECK(arg == &rdma && len >= 1);
    return ((const uint8_t *)priv)[0] == 255 ? NULL : reactor_at(env, 1);
}

static void request(void *arg, struct rdma_request *req)
{
    CHECK(arg == &rdma && ncallers < CALLERS && req->port == &port[1]);
    callers[ncallers++] = req;
    requests_on[reactor_index(reactor_self())]++;
}

static void unlistened(void *arg)
{
    CHECK(arg == &rdma);
    unlistened_on[reactor_index(reactor_self())]++;
}

static const struct rdma_listener listener = {route, request, unlistened, &rdma};

static struct rdma_request *next_caller(void)
{
    struct rdma_request *req;

    UNTIL(ncallers > 0);
    req = callers[0];
    memmove(callers, callers + 1, --ncallers * sizeof(callers[0]));
    return req;
}

static void words_fill(uint8_t *words, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        words[i] = (uint8_t)(1 + (seed + i * 7) % 250);
}

static void listen_on(uint16_t service)
{
    char err[256];

    as_control();
    if (ops->listen(&port[1], service, &listener, err, sizeof(err)) < 0)
        fail("listen: %s", err);
}

static void unlisten(void)
{
    unsigned before[REACTORS];

    memcpy(before, unlistened_on, sizeof(before));
    as_control();
    ops->unlisten(&port[1]);
    UNTIL(unlistened_on[0] > before[0] && unlistened_on[1] > before[1]);
    turn();
    EQUAL(unlistened_on[0], before[0] + 1);
    EQUAL(unlistened_on[1], before[1] + 1);
}

// ------------------------------------------------------------------------------------------------------------
// connections

static struct end *dialled(const struct rdma_open *open)
{
    struct end *e = end_new(0);

    dial_to(e, address[1], SERVICE);
    UNTIL(COUNT(e, RESOLVED) || COUNT(e, FAILED));
    EQUAL(COUNT(e, FAILED), 0);
    if (open != NULL) {
        open_end(e, open);
        EQUAL(COUNT(e, OPENED), 1);
        post_recvs(e, open->recv_wrs);
    }
    return e;
}

static void connect_end(struct end *e, unsigned seed)
{
    uint8_t words[WORDS];

    words_fill(words, sizeof(words), seed);
    as(e->home);
    ops->connect(&e->link, words, sizeof(words), 5, 6);
}

static struct end *adopted(const struct rdma_open *open)
{
    struct rdma_request *req = next_caller();
    struct end *e = end_new(1);

    as(1);
    ops->adopt(&e->link, req);
    if (open != NULL) {
        open_end(e, open);
        EQUAL(COUNT(e, OPENED), 1);
        post_recvs(e, open->recv_wrs);
    }
    return e;
}

static void accept_end(struct end *e, unsigned seed, size_t len)
{
    uint8_t words[RDMA_PRIV_MAX];

    words_fill(words, len, seed);
    as(e->home);
    ops->accept(&e->link, words, len, 5, 6);
}

static void pair_up(struct end *pair[2], const struct rdma_open *open)
{
    pair[0] = dialled(open);
    connect_end(pair[0], 1);
    pair[1] = adopted(open);
    accept_end(pair[1], 2, WORDS);
    UNTIL(COUNT(pair[0], ESTABLISHED) && COUNT(pair[1], ESTABLISHED));
}

static void leave(struct end *e)
{
    as(e->home);
    ops->disconnect(&e->link);
    ops->disconnect(&e->link);
}

static void pair_end(struct end *pair[2])
{
    leave(pair[0]);
    leave(pair[1]);
    shut_end(pair[0]);
    shut_end(pair[1]);
}

static struct rdma_counters counters(void)
{
    struct rdma_counters c;

    ops->counters(rdma, &c);
    return c;
}

// -----------------------------------------------------------------------------------------------------------------
// tests

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
        char err[256] = "";

        inet_pton(AF_INET, rows[i].ip, &to.sin_addr);
        as_control();
        EQUAL(ops->bind(rdma, &other, &to, err, sizeof(err)), rows[i].rc);
        printf("   %s\n", err);
        CHECK(strstr(err, rows[i].says) != NULL);
    }
    EQUAL(counters().registered, before);
}

static void test_listen_twice(void)
{
    char err[256] = "";

    as_control();
    EQUAL(ops->listen(&port[1], SERVICE, &listener, err, sizeof(err)), -EALREADY);
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

static struct mem_arena *arena;
static struct mem_pool landing;
static uint8_t *slot[2]; // 0: source, 1: sink

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

// A link is shut at each stage of its life, twice, with and without a disconnect before; nothing
// but CLOSED is told after it.
static void test_shut_anywhere(void)
{
    for (unsigned polite = 0; polite < 2; polite++) {
        for (unsigned stage = 0; stage < 9; stage++) {
            struct rdma_open open = usual();
            struct end *e = NULL, *other = NULL;
            unsigned events = 0;

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
                connect_end(e, 1);
                break;
            case 6: // it has called, and its call is there
                e = dialled(&open);
                connect_end(e, 1);
                UNTIL(ncallers > 0);
                break;
            case 7: // called, adopted, not accepted
                other = dialled(&open);
                connect_end(other, 1);
                e = adopted(NULL);
                break;
            case 8: // accepted
                other = dialled(&open);
                connect_end(other, 1);
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
            if (other != NULL) {
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
    char err[256];

    as_control();
    if (mem_arena_create(&opts, &other, err, sizeof(err)) < 0 ||
        mem_pool_init(&pool, other, MEM_LOCAL, 4096, 4, "late", err, sizeof(err)) < 0)
        fail("%s", err);
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

static void port_event(struct rdma_port *p, enum rdma_port_event event)
{
    CHECK(reactor_self() == p->home && (p == &port[0] || p == &port[1]));
    port_events[p - port][event]++;
}

// The interface of the second device goes down and comes back.
static void test_port_events(void)
{
    const char *device = getenv("RDMA_PAIR_INTERFACE");
    char command[256];

    if (device == NULL)
        fail("RDMA_PAIR_INTERFACE is not set");
    memset(port_events, 0, sizeof(port_events));
    snprintf(command, sizeof(command), "ip link set %s down", device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_DOWN] > 0);
    CHECK(__atomic_load_n(&port[1].info.state, __ATOMIC_RELAXED) != IBV_PORT_ACTIVE);
    EQUAL(port_events[1][RDMA_PORT_UP], 0);
    snprintf(command, sizeof(command), "ip link set %s up", device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_UP] > 0);
    EQUAL(__atomic_load_n(&port[1].info.state, __ATOMIC_RELAXED), IBV_PORT_ACTIVE);
    EQUAL(port_events[1][RDMA_PORT_REMOVED], 0);
}

// Its address is taken away and given back.
static void test_port_address(void)
{
    const char *device = getenv("RDMA_PAIR_INTERFACE");
    char command[256], ip[INET_ADDRSTRLEN];

    if (device == NULL)
        fail("RDMA_PAIR_INTERFACE is not set");
    inet_ntop(AF_INET, &address[1].sin_addr, ip, sizeof(ip));
    memset(port_events, 0, sizeof(port_events));
    snprintf(command, sizeof(command), "ip address del %s/24 dev %s", ip, device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_DOWN] > 0);
    snprintf(command, sizeof(command), "ip address add %s/24 dev %s", ip, device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_UP] > 0);
}

struct test {
    const char *name;
    void (*run)(void);
};

static const struct test usual_tests[] = {
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
    {"data", test_data},
    {"qp_error", test_qp_error},
    {"shut_anywhere", test_shut_anywhere},
    {"shut_when_told", test_shut_when_told},
    {"caller_gives_up", test_caller_gives_up},
    {"limits", test_limits},
    {"cq_room", test_cq_room},
    {"many", test_many},
    {"last_not_polled", test_last_not_polled},
    {"arm", test_arm},
    {"want_region", test_want_region},
    {"unlisten", test_unlisten},
    {"unlisten_with_caller", test_unlisten_with_caller},
    {NULL, NULL},
};

static const struct test port_tests[] = {
    {"port_events", test_port_events},
    {"port_address", test_port_address},
    {NULL, NULL},
};

// Links are up when the second device is taken away: both ends and its port are told, and all can
// be shut.
static void test_device_removed(void)
{
    struct rdma_open open = usual();
    struct end *pair[2], *early = end_new(1);
    char command[256];
    uint64_t busy;

    pair_up(pair, &open);
    dial_to(early, address[0], SERVICE);
    UNTIL(COUNT(early, RESOLVED));
    memset(port_events, 0, sizeof(port_events));
    // It comes back only when the last of ours has let go of the device.
    snprintf(command, sizeof(command), "rdma link delete %s &", port[1].info.device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_REMOVED] > 0);
    UNTIL(COUNT(pair[1], DISCONNECTED) && COUNT(early, DISCONNECTED));
    EQUAL(pair[1]->error, -EIO);
    EQUAL(early->error, -EIO);
    leave(pair[1]);
    UNTIL(COUNT(pair[0], DISCONNECTED));
    leave(pair[0]);
    shut_end(early);
    shut_end(pair[1]);
    shut_end(pair[0]);
    EQUAL(port_events[1][RDMA_PORT_REMOVED], 1);
    EQUAL(port_events[0][RDMA_PORT_REMOVED], 0);
    // What the worker waits for does not keep it busy now.
    busy = counters().worker_busy_us;
    for_a_while(0.5);
    CHECK(counters().worker_busy_us - busy < 250000);
}

// Without the right to use ports below 1024: another port calls, and to listen there fails with the
// remedy.
static void test_unprivileged(void)
{
    struct rdma_open open = usual();
    struct rdma_request *req;
    struct end *e;
    char err[256] = "";

    unlisten();
    as_control();
    EQUAL(ops->listen(&port[1], 987, &listener, err, sizeof(err)), -EACCES);
    printf("   %s\n", err);
    CHECK(strstr(err, "CAP_NET_BIND_SERVICE") != NULL);
    listen_on(SERVICE);
    e = dialled(&open);
    connect_end(e, 1);
    req = next_caller();
    CHECK(ntohs(req->from.sin_port) >= 1024);
    as(1);
    ops->reject(req, NULL, 0);
    UNTIL(COUNT(e, REJECTED));
    shut_end(e);
}

static const struct test removal_tests[] = {{"device_removed", test_device_removed}, {NULL, NULL}};
static const struct test unprivileged_tests[] = {{"unprivileged", test_unprivileged}, {NULL, NULL}};

// ------------------------------------------------------------------------------------------------------------------
// main

static void setup(bool bind)
{
    struct reactor_opts opts = {
        .prog = "rdma_pair", .cores = "auto", .count = REACTORS, .mem_mb = 32};
    struct mem_arena_opts want = {.socket = -1, .landing_bytes = 2 * SLOT, .local_bytes = 65536};
    char err[256];

    if (reactor_env_create(&opts, &env, err, sizeof(err)) < 0 ||
        mem_arena_create(&want, &arena, err, sizeof(err)) < 0 ||
        mem_pool_init(&landing, arena, MEM_LANDING, SLOT, 2, "landing", err, sizeof(err)) < 0 ||
        ops->open(env, &rdma, err, sizeof(err)) < 0)
        fail("%s", err);
    slot[0] = mem_pool_get(&landing);
    slot[1] = mem_pool_get(&landing);
    for (unsigned i = 0; bind && i < 2; i++) {
        port[i].event = port_event;
        port[i].home = reactor_at(env, i);
        if (ops->bind(rdma, &port[i], &address[i], err, sizeof(err)) < 0)
            fail("bind: %s", err);
    }
    if (bind)
        listen_on(SERVICE);
}

static void teardown(bool bound)
{
    if (bound)
        unlisten();
    as_control();
    for (unsigned i = 0; bound && i < 2; i++)
        ops->unbind(&port[i]);
    ops->close(rdma);
    mem_pool_put(&landing, slot[0]);
    mem_pool_put(&landing, slot[1]);
    mem_pool_fini(&landing);
    mem_arena_destroy(arena);
    reactor_env_destroy(env);
}

// With next to no memory that may be pinned, as a user that is not root: the port cannot be bound,
// and says why.
static void little_memory(void)
{
    struct rlimit limit = {65536, 65536};
    char err[512] = "";
    int rc;

    EQUAL(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    rc = ops->bind(rdma, &port[0], &address[0], err, sizeof(err));
    printf("   %s\n", err);
    EQUAL(rc, -ENOMEM);
    CHECK(strstr(err, "RLIMIT_MEMLOCK") != NULL && strstr(err, "64 KiB") != NULL);
    EQUAL(counters().registered, 0);
}

static void run(const struct test *tests, const char *filter)
{
    for (; tests->name != NULL; tests++) {
        double begun = now();

        if (filter != NULL && strcmp(tests->name, filter) != 0)
            continue;
        test_name = tests->name;
        tests->run();
        printf("PASS %s (%.1f s)\n", tests->name, now() - begun);
        fflush(stdout);
    }
}

int main(int argc, char *argv[])
{
    const char *filter = NULL, *mode = "usual";
    int option = 1;

    for (; option + 1 < argc && argv[option][0] == '-'; option += 2) {
        if (strcmp(argv[option], "--filter") == 0)
            filter = argv[option + 1];
        else if (strcmp(argv[option], "--mode") == 0)
            mode = argv[option + 1];
    }
    for (int i = 0; i < 2; i++) {
        address[i].sin_family = AF_INET;
        if (option + i >= argc || inet_pton(AF_INET, argv[option + i], &address[i].sin_addr) != 1) {
            fprintf(
                stderr,
                "usage: rdma_pair [--filter X] [--mode usual|port|removal|unprivileged|memory] A B\n");
            return 2;
        }
    }
    test_name = "setup";
    setup(strcmp(mode, "memory") != 0);
    if (strcmp(mode, "memory") == 0) {
        test_name = "little_memory";
        little_memory();
        printf("PASS little_memory\n");
    } else if (strcmp(mode, "port") == 0) {
        run(port_tests, filter);
    } else if (strcmp(mode, "removal") == 0) {
        run(removal_tests, filter);
    } else if (strcmp(mode, "unprivileged") == 0) {
        run(unprivileged_tests, filter);
    } else {
        run(usual_tests, filter);
    }
    test_name = "teardown";
    teardown(strcmp(mode, "memory") != 0);
    printf("PASS all\n");
    return 0;
}
