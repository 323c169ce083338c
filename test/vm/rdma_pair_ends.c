// SPDX-License-Identifier: BSD-3-Clause
// What tests of rdma_pair are made of: reactors turned by hand, ends of links, callers.
#include "lib/base/err.h"
#include "test/vm/rdma_pair.h"

#include <stdarg.h>
#include <time.h>
#include <unistd.h>

struct reactor_env *env;
struct rdma *rdma;
struct rdma_port port[2];
struct sockaddr_in address[2];
const char *test_name;
const struct rdma_ops *const ops = &rdma_core;

// -------------------------------------------------------------------------------------------------------
// what tests say

void fail(const char *fmt, ...)
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

double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

// --------------------------------------------------------------------------------------------------------------
// reactors

void as(unsigned reactor)
{
    reactor_bind(reactor_at(env, reactor));
}

void as_control(void)
{
    reactor_bind(reactor_control(env));
}

void turn(void)
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

void for_a_while(double seconds)
{
    double end = now() + seconds;

    while (now() < end)
        turn();
}

// ------------------------------------------------------------------------------------------------------------------
// ends

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

struct end *end_new(unsigned home)
{
    struct end *e = calloc(1, sizeof(*e));

    CHECK(e != NULL);
    e->home = home;
    e->link.event = told;
    e->link.port = &port[home];
    e->link.home = reactor_at(env, home);
    return e;
}

struct rdma_open usual(void)
{
    return (struct rdma_open){.recv_wrs = 18,
                              .send_wrs = 32,
                              .send_sges = 8,
                              .inline_bytes = 128,
                              .area = 20 * RECV_SIZE};
}

bool dial_privileged = true;
int dial_tos = -1;

void dial_to(struct end *e, struct sockaddr_in to, uint16_t service)
{
    struct rdma_dial dial = {
        .to = to, .privileged = dial_privileged, .tos = dial_tos, .timeout_ms = 3000};

    dial.to.sin_port = htons(service);
    as(e->home);
    ops->dial(&e->link, &dial);
}

void open_end(struct end *e, const struct rdma_open *open)
{
    unsigned before = COUNT(e, OPENED) + COUNT(e, OPEN_FAILED);

    as(e->home);
    ops->open_qp(&e->link, open);
    UNTIL(COUNT(e, OPENED) + COUNT(e, OPEN_FAILED) > before);
}

void post_recvs(struct end *e, unsigned n)
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
int drain(struct end *e)
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

void shut_end(struct end *e)
{
    as(e->home);
    ops->shut(&e->link);
    ops->shut(&e->link);
    UNTIL(COUNT(e, CLOSED));
    if (e->link.cq)
        (void)drain(e);
    turn();
    EQUAL(COUNT(e, CLOSED), 1);
    free(e);
}

void send_bytes(struct end *e, const void *data, uint32_t len, uint32_t lkey, unsigned flags)
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

struct rdma_request *callers[CALLERS];
unsigned ncallers;
unsigned requests_on[REACTORS], unlistened_on[REACTORS];

static struct reactor *route(void *arg, const void *priv, size_t len)
{
    CHECK(arg == &rdma && len >= 1);
    return ((const uint8_t *)priv)[0] == 255 ? NULL : reactor_at(env, 1);
}

static void request(void *arg, struct rdma_request *req)
{
    const uint8_t *gid = req->gid.raw; /* as RoCE has the address */

    CHECK(arg == &rdma && ncallers < CALLERS && req->port == &port[1]);
    CHECK(req->roce && gid[10] == 0xff && gid[11] == 0xff &&
          memcmp(&gid[12], &req->from.sin_addr, 4) == 0);
    callers[ncallers++] = req;
    requests_on[reactor_index(reactor_self())]++;
}

static void unlistened(void *arg)
{
    CHECK(arg == &rdma);
    unlistened_on[reactor_index(reactor_self())]++;
}

const struct rdma_listener listener = {route, request, unlistened, &rdma};

struct rdma_request *next_caller(void)
{
    struct rdma_request *req;

    UNTIL(ncallers > 0);
    req = callers[0];
    memmove(callers, callers + 1, --ncallers * sizeof(callers[0]));
    return req;
}

void words_fill(uint8_t *words, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        words[i] = (uint8_t)(1 + (seed + i * 7) % 250);
}

void listen_on(uint16_t service)
{
    struct err err = {0};

    as_control();
    if (ops->listen(&port[1], service, &listener, &err) < 0)
        fail("listen: %s", err.message);
}

void unlisten(void)
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

struct end *dialled(const struct rdma_open *open)
{
    struct end *e = end_new(0);

    dial_to(e, address[1], SERVICE);
    UNTIL(COUNT(e, RESOLVED) || COUNT(e, FAILED));
    EQUAL(COUNT(e, FAILED), 0);
    if (open) {
        open_end(e, open);
        EQUAL(COUNT(e, OPENED), 1);
        post_recvs(e, open->recv_wrs);
    }
    return e;
}

void connect_end(struct end *e, unsigned seed)
{
    uint8_t words[WORDS];

    words_fill(words, sizeof(words), seed);
    as(e->home);
    ops->connect(&e->link, words, sizeof(words), 5, 6);
}

struct end *adopted(const struct rdma_open *open)
{
    struct rdma_request *req = next_caller();
    struct end *e = end_new(1);

    as(1);
    ops->adopt(&e->link, req);
    if (open) {
        open_end(e, open);
        EQUAL(COUNT(e, OPENED), 1);
        post_recvs(e, open->recv_wrs);
    }
    return e;
}

void accept_end(struct end *e, unsigned seed, size_t len)
{
    uint8_t words[RDMA_PRIV_MAX];

    words_fill(words, len, seed);
    as(e->home);
    ops->accept(&e->link, words, len, 5, 6);
}

void pair_up(struct end *pair[2], const struct rdma_open *open)
{
    pair[0] = dialled(open);
    connect_end(pair[0], 1);
    pair[1] = adopted(open);
    accept_end(pair[1], 2, WORDS);
    UNTIL(COUNT(pair[0], ESTABLISHED) && COUNT(pair[1], ESTABLISHED));
}

void leave(struct end *e)
{
    as(e->home);
    ops->disconnect(&e->link);
    ops->disconnect(&e->link);
}

void pair_end(struct end *pair[2])
{
    leave(pair[0]);
    leave(pair[1]);
    shut_end(pair[0]);
    shut_end(pair[1]);
}

struct rdma_counters counters(void)
{
    struct rdma_counters c;

    ops->counters(rdma, &c);
    return c;
}
