/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RDMA provider over rdma-core, without rdma-core: verbs_sim.c stands in for its libraries.
 * Reactors are turned by hand; the provider's worker is a thread as ever, and what it does is
 * waited for. What takes a device is tried by test/vm/rdma_pair.
 */
#include "lib/base/err.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "lib/lnd_verbs/rdma.h"
#include "lib/log/log.h"
#include "test/unit/reactor_test.h"
#include "test/unit/verbs_sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define ASAN_EXPECT(addr, poisoned) assert_int_equal(__asan_address_is_poisoned(addr), poisoned)
#else
#define ASAN_EXPECT(addr, poisoned) ((void)(addr))
#endif

#define SERVICE 987
#define CALLERS 1024 /* the provider's bound */
#define MORE    50
#define AREA    8192u
#define BUSY    "too many"
#define HANG_S  50 /* then something waits for what never comes */

static const struct rdma_ops *const ops = &rdma_core;
static struct rdma *rdma;
static struct rdma_port port;
static unsigned removed, downs, ups;
static struct rdma_request *callers[CALLERS + MORE];
static unsigned ncallers, unlistens;

/* ---- reactors ---- */

static void as_reactor(void)
{
    reactor_bind(reactor_at(env, 0));
}

static void as_control(void)
{
    reactor_bind(reactor_control(env));
}

static void turn(void)
{
    struct timespec pause = {.tv_nsec = 100000};

    as_reactor();
    reactor_step(reactor_self(), 0);
    as_control();
    reactor_step(reactor_self(), 0);
    nanosleep(&pause, NULL);
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t until_us = reactor_now_us() + DEADLINE_US;                                        \
                                                                                                   \
        while (!(cond)) {                                                                          \
            if (reactor_now_us() > until_us)                                                       \
                fail_msg("never happened: %s", #cond);                                             \
            turn();                                                                                \
        }                                                                                          \
    } while (0)

static struct rdma_counters counters(void)
{
    struct rdma_counters now;

    ops->counters(rdma, &now);
    return now;
}

/* ---- the provider ---- */

static void port_event(struct rdma_port *p, enum rdma_port_event event)
{
    assert_ptr_equal(p->home, reactor_self());
    removed += event == RDMA_PORT_REMOVED;
    downs += event == RDMA_PORT_DOWN;
    ups += event == RDMA_PORT_UP;
}

static struct reactor *route(void *arg, const void *priv, size_t len)
{
    (void)arg;
    (void)priv;
    (void)len;
    return reactor_at(env, 0);
}

static void request(void *arg, struct rdma_request *req)
{
    (void)arg;
    assert_true(ncallers < sizeof(callers) / sizeof(callers[0]));
    callers[ncallers++] = req;
}

static void unlistened(void *arg)
{
    (void)arg;
    unlistens++;
}

static void bind_port(struct rdma_port *p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct err err = {0};

    *p = (struct rdma_port){.event = port_event, .home = reactor_at(env, 0)};
    inet_pton(AF_INET, SIM_ADDRESS, &addr.sin_addr);
    as_control();
    if (ops->bind(rdma, p, &addr, &err) < 0)
        fail_msg("%s", err.message);
}

static int setup(void **state)
{
    static const struct rdma_listener listener = {route, request, unlistened,
                                                  NULL,  BUSY,    sizeof(BUSY)};
    struct err err = {0};

    (void)state;
    alarm(HANG_S);
    sim_init();
    removed = ncallers = unlistens = downs = ups = 0;
    as_control();
    if (ops->open(env, &rdma, &err) < 0)
        fail_msg("%s", err.message);
    bind_port(&port);
    if (ops->listen(&port, SERVICE, &listener, &err) < 0)
        fail_msg("%s", err.message);
    return 0;
}

static int teardown(void **state)
{
    struct sim_count left;

    (void)state;
    as_control();
    ops->unlisten(&port);
    UNTIL(unlistens == 1);
    as_control();
    ops->unbind(&port);
    ops->close(rdma);
    left = sim_count();
    assert_int_equal(left.ids + left.qps + left.mrs + left.pds + left.cqs + left.channels, 0);
    assert_int_equal(left.lists, 0);
    alarm(0);
    return 0;
}

/* ---- links ---- */

struct end {
    struct rdma_link link;
    unsigned count[RDMA_EV_CLOSED + 1];
    int error, status;
};

#define COUNT(e, what) ((e)->count[RDMA_EV_##what])

static void told(struct rdma_link *link, const struct rdma_event *ev)
{
    struct end *e = (struct end *)link;

    assert_int_equal(COUNT(e, CLOSED), 0);
    e->count[ev->kind]++;
    e->error = ev->error;
    e->status = ev->status;
}

static void dial(struct end *e, struct rdma_port *by)
{
    struct rdma_dial to = {.to = by->addr, .privileged = true, .tos = -1, .timeout_ms = 1000};

    *e = (struct end){.link = {.event = told, .port = by, .home = reactor_at(env, 0)}};
    as_reactor();
    ops->dial(&e->link, &to);
    UNTIL(COUNT(e, RESOLVED) + COUNT(e, FAILED) > 0);
}

static void open_and_connect(struct end *e, struct rdma_port *by)
{
    static const struct rdma_open open = {
        .recv_wrs = 16, .send_wrs = 16, .send_sges = 4, .inline_bytes = 64, .area = AREA};

    dial(e, by);
    assert_int_equal(COUNT(e, RESOLVED), 1);
    as_reactor();
    ops->open_qp(&e->link, &open);
    UNTIL(COUNT(e, OPENED) == 1);
    as_reactor();
    ops->connect(&e->link, "words", 5, 5, 6);
    UNTIL(COUNT(e, ESTABLISHED) + COUNT(e, FAILED) + COUNT(e, REJECTED) > 0);
}

static void bring_up(struct end *e, struct rdma_port *by)
{
    open_and_connect(e, by);
    assert_int_equal(COUNT(e, ESTABLISHED), 1);
}

static void shut(struct end *e)
{
    as_reactor();
    ops->disconnect(&e->link);
    ops->shut(&e->link);
}

/* The area goes back once the queue was found empty. */
static void drain(struct end *e)
{
    struct ibv_wc wc;

    as_reactor();
    assert_int_equal(ops->poll(e->link.cq, &wc, 1), 0);
}

static void end_up(struct end *e)
{
    shut(e);
    UNTIL(COUNT(e, CLOSED) == 1);
    drain(e);
}

/* ---- a queue pair that its device does not let go of ---- */

static void refuse_all(void)
{
    as_reactor();
    while (ncallers > 0)
        ops->reject(callers[--ncallers], NULL, 0);
}

static void test_qp_kept(void **state)
{
    struct end kept, other;
    const uint8_t *area;
    uint64_t areas;

    (void)state;
    bring_up(&kept, &port);
    areas = counters().areas;
    area = kept.link.area;
    sim_keep_qps(EBUSY);
    shut(&kept);
    /* It is tried again and again, and its owner may not use the memory otherwise. */
    UNTIL(sim_count().destroys >= 3);
    assert_int_equal(COUNT(&kept, CLOSED), 0);
    assert_int_equal(counters().kept, 1);
    assert_int_equal(counters().areas, areas);
    ASAN_EXPECT(area, 0);
    /* Nor may anybody else; what is not stuck goes on. */
    bring_up(&other, &port);
    assert_ptr_not_equal(other.link.area, kept.link.area);
    assert_int_equal(counters().areas, 2 * areas);
    sim_keep_qps(0);
    UNTIL(COUNT(&kept, CLOSED) == 1);
    assert_int_equal(counters().kept, 0);
    drain(&kept);
    end_up(&other);
    UNTIL(counters().areas == 0);
    ASAN_EXPECT(area, 1);
    ASAN_EXPECT(area + AREA - 1, 1);
    assert_int_equal(sim_count().qps, 0);
}

/* Others keep the queue busy: what was in it when a link closed has been polled some day. */
static void test_queue_never_empty(void **state)
{
    struct end busy, one;
    struct ibv_wc wc[2];
    uint64_t areas;
    unsigned n = 0;

    (void)state;
    bring_up(&busy, &port);
    areas = counters().areas;
    bring_up(&one, &port);
    assert_ptr_equal(one.link.cq, busy.link.cq);
    shut(&one);
    UNTIL(COUNT(&one, CLOSED) == 1);
    sim_completions = 1;
    as_reactor();
    for (; n < RDMA_CQ_ENTRIES; n++)
        assert_int_equal(ops->poll(busy.link.cq, wc, 1), 1);
    UNTIL(counters().areas == areas);
    /* It was emptied when there are fewer than asked for. */
    bring_up(&one, &port);
    shut(&one);
    UNTIL(COUNT(&one, CLOSED) == 1);
    assert_int_equal(counters().areas, 2 * areas);
    as_reactor();
    assert_int_equal(ops->poll(busy.link.cq, wc, 1), 1);
    assert_int_equal(counters().areas, 2 * areas);
    as_reactor();
    assert_int_equal(ops->poll(busy.link.cq, wc, 2), 1);
    UNTIL(counters().areas == areas);
    sim_completions = 0;
    end_up(&busy);
}

/* A device that is gone writes nowhere. */
static void test_qp_kept_then_device_gone(void **state)
{
    struct end kept;

    (void)state;
    bring_up(&kept, &port);
    sim_keep_qps(EINTR);
    shut(&kept);
    UNTIL(sim_count().destroys >= 2);
    assert_int_equal(COUNT(&kept, CLOSED), 0);
    sim_remove_device();
    UNTIL(COUNT(&kept, CLOSED) == 1);
    assert_int_equal(removed, 1);
    assert_int_equal(counters().kept, 0);
    drain(&kept);
    UNTIL(counters().areas == 0);
}

/* ---- what the connection manager says, docs/protocol/o2iblnd.md §1.11 ---- */

static void fails_to_resolve(enum rdma_cm_event_type well, enum rdma_cm_event_type said, int status,
                             int error)
{
    struct end e;

    sim_say(well, said, status);
    dial(&e, &port);
    assert_int_equal(COUNT(&e, FAILED), 1);
    assert_int_equal(e.error, error);
    assert_int_equal(e.status, status);
    shut(&e);
    UNTIL(COUNT(&e, CLOSED) == 1);
}

static void fails_to_connect(enum rdma_cm_event_type said, int status, int error)
{
    struct end e;

    sim_say(RDMA_CM_EVENT_ESTABLISHED, said, status);
    open_and_connect(&e, &port);
    assert_int_equal(COUNT(&e, FAILED), 1);
    assert_int_equal(e.error, error);
    assert_int_equal(e.status, status);
    end_up(&e);
}

static void test_what_failed(void **state)
{
    (void)state;
    fails_to_resolve(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT,
                     -EHOSTUNREACH);
    fails_to_resolve(RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL,
                     -ENETUNREACH);
    /* What it is called goes by the event; that it took long is no other kind of failure. */
    fails_to_connect(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, -ENETDOWN);
    fails_to_connect(RDMA_CM_EVENT_UNREACHABLE, -ENETUNREACH, -ENETDOWN);
    fails_to_connect(RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT, -ENOTCONN);
}

/* ---- floods of calls ---- */

/* What else the worker is asked to do is done while events of the connection manager never end. */
static void test_flood_of_events(void **state)
{
    struct rdma_info info;

    (void)state;
    sim_call_for_ever(true);
    UNTIL(sim_count().rejects > 100); /* more than are kept */
    as_control();
    ops->info(&port, &info);
    assert_string_equal(info.device, "sim0");
    sim_call_for_ever(false);
    UNTIL(sim_count().events == 0);
    as_control();
    ops->info(&port, &info); /* the last event is dealt with */
    UNTIL(ncallers == CALLERS);
    refuse_all();
    UNTIL(sim_count().ids == 2); /* the port's and the listener's */
}

/* So many callers may wait for an answer; more are refused, until some have got theirs. */
static void test_callers_are_bounded(void **state)
{
    (void)state;
    sim_call(CALLERS + MORE);
    UNTIL(sim_count().rejects == MORE);
    assert_int_equal(sim_count().last_len, sizeof(BUSY));
    assert_string_equal((const char *)sim_count().last, BUSY);
    assert_int_equal(counters().turned_away, MORE);
    UNTIL(ncallers == CALLERS);
    assert_true(callers[0]->roce);
    assert_int_equal(callers[0]->gid.raw[15], SIM_CALLER);
    assert_int_equal(sim_count().ids, CALLERS + 2);
    refuse_all();
    UNTIL(sim_count().rejects == MORE + CALLERS);
    UNTIL(sim_count().ids == 2);
    sim_call(MORE);
    UNTIL(ncallers == MORE);
    assert_int_equal(sim_count().rejects, MORE + CALLERS);
    refuse_all();
    UNTIL(sim_count().ids == 2);
}

/* ---- what no event tells of ---- */

static void test_address_goes(void **state)
{
    (void)state;
    sim_address(0);
    UNTIL(downs == 1);
    sim_address(1);
    UNTIL(ups == 1);
    sim_interface(false);
    UNTIL(downs == 2);
    sim_interface(true);
    UNTIL(ups == 2);
}

/* A port is queried when something changed, and not else. */
static void test_unchanged_port_is_not_queried(void **state)
{
    uint64_t end_us = reactor_now_us() + 2500000;
    unsigned before = sim_count().queries;

    (void)state;
    while (reactor_now_us() < end_us)
        turn();
    assert_int_equal(sim_count().queries, before);
    sim_interface(false);
    UNTIL(downs == 1);
    assert_true(sim_count().queries > before);
}

/* A bond of two ports of one device: the one that has the address is the one that counts. */
static void test_address_moves(void **state)
{
    struct rdma_info info;

    (void)state;
    sim_port(1, false);
    UNTIL(downs == 1);
    sim_address(2);
    UNTIL(ups == 1);
    as_control();
    ops->info(&port, &info);
    assert_int_equal(info.port, 2);
    assert_int_equal(info.lid, 2);
    assert_int_equal(info.gid.raw[15], 2);
    assert_int_equal(info.state, IBV_PORT_ACTIVE);
    sim_port(2, false);
    UNTIL(downs == 2);
}

/* A port that could not be asked when the address came to it is asked again. */
static void test_address_moves_unasked(void **state)
{
    struct rdma_info info;

    (void)state;
    sim_port(1, false);
    UNTIL(downs == 1);
    sim_port_fails(2);
    sim_address(2);
    UNTIL(ups == 1);
    as_control();
    ops->info(&port, &info);
    assert_int_equal(info.port, 2);
    assert_int_equal(info.lid, 2);
}

/* ---- devices that go and come ---- */

/* The context of a device that is gone is kept open, as its queues may be polled still; so each
 * device holds the list of devices. */
static void test_device_is_held(void **state)
{
    struct rdma_port second;

    (void)state;
    assert_int_equal(sim_count().lists, 1);
    sim_remove_device();
    UNTIL(removed == 1);
    assert_int_equal(sim_count().lists, 1);
    sim_add_device(false);
    bind_port(&second);
    assert_int_equal(sim_count().lists, 2);
    as_control();
    ops->unbind(&second);
    assert_int_equal(sim_count().lists, 2);
}

/* An NI does not listen before its device has all memory: the log says that it is registered. */
static void test_registering_is_logged(void **state)
{
    char path[] = "/tmp/millrace-test-XXXXXX", text[4096] = "";
    struct log_opts opts = {.to = path};
    struct rdma_port second;
    struct err err = {0};
    FILE *f;

    (void)state;
    close(mkstemp(path));
    assert_int_equal(log_open(&opts, &err), 0);
    sim_remove_device();
    UNTIL(removed == 1);
    sim_add_device(false);
    bind_port(&second);
    as_control();
    ops->unbind(&second);
    log_close();
    f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    unlink(path);
    assert_non_null(strstr(text, "event=rdma_registering device="));
    assert_non_null(strstr(text, "event=rdma_registered device="));
}

/* It is closed when nothing of ours is on it any more: its driver may wait for that. Others hold
 * its context too, until they have taken their lists anew. */
static void test_device_is_let_go_of(void **state)
{
    struct rdma_port other;
    struct end e;

    (void)state;
    bring_up(&e, &port);
    sim_remove_device();
    UNTIL(removed == 1 && COUNT(&e, DISCONNECTED) == 1);
    sim_add_device(false);
    bind_port(&other);
    end_up(&e);
    as_control();
    ops->unlisten(&port);
    UNTIL(unlistens == 1);
    assert_int_equal(sim_count().pds, 2);
    assert_int_equal(sim_count().taken, 2);
    as_control();
    ops->unbind(&port);
    UNTIL(sim_count().taken == 4); /* one for the other, one to look for changes */
    UNTIL(sim_count().lists == 1);
    assert_int_equal(sim_count().pds, 1);
    bring_up(&e, &other);
    end_up(&e);
    bind_port(&port);
    as_control();
    ops->unbind(&other);
}

/* A device that came back is another one, also if its context is the one there was. */
static void test_dead_device_is_skipped(void **state)
{
    struct rdma_port second;
    struct rdma_info info;
    struct end e;

    (void)state;
    sim_remove_device();
    UNTIL(removed == 1);
    sim_add_device(true);
    bind_port(&second);
    as_control();
    ops->info(&port, &info);
    assert_int_equal(info.state, IBV_PORT_NOP);
    ops->info(&second, &info);
    assert_int_equal(info.state, IBV_PORT_ACTIVE);
    bring_up(&e, &second);
    end_up(&e);
    as_control();
    ops->unbind(&second);
}

/* While there is none no link is made, and a link on one that is gone is told so. */
static void test_device_removed(void **state)
{
    struct end up, resolved;

    (void)state;
    bring_up(&up, &port);
    dial(&resolved, &port);
    sim_remove_device();
    UNTIL(COUNT(&up, DISCONNECTED) == 1 && COUNT(&resolved, DISCONNECTED) == 1);
    assert_int_equal(up.error, -EIO);
    shut(&resolved);
    UNTIL(COUNT(&resolved, CLOSED) == 1);
    end_up(&up);
    dial(&up, &port);
    assert_int_equal(COUNT(&up, FAILED), 1);
    assert_int_equal(up.error, -EHOSTUNREACH);
    shut(&up);
    UNTIL(COUNT(&up, CLOSED) == 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- memory ---- */

static void *some_memory(void *arg)
{
    return malloc(400);
}

/* As librdmacm, which compares lower halves of addresses, sees what different threads allocate. */
static void test_memory_of_threads(void **state)
{
    char *here = malloc(400), *there;
    pthread_t thread;
    void *out;

    assert_int_equal(pthread_create(&thread, NULL, some_memory, NULL), 0);
    assert_int_equal(pthread_join(thread, &out), 0);
    there = out;
    assert_true(there - here < INT32_MAX && here - there < INT32_MAX);
    free(here);
    free(there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_qp_kept),
        CASE(test_queue_never_empty),
        CASE(test_qp_kept_then_device_gone),
        CASE(test_flood_of_events),
        CASE(test_callers_are_bounded),
        CASE(test_device_is_held),
        CASE(test_device_is_let_go_of),
        CASE(test_dead_device_is_skipped),
        CASE(test_device_removed),
        CASE(test_what_failed),
        CASE(test_address_goes),
        CASE(test_unchanged_port_is_not_queried),
        CASE(test_registering_is_logged),
        CASE(test_address_moves),
        CASE(test_address_moves_unasked),
        CASE(test_memory_of_threads),
    };
    struct mem_arena_opts want = {.socket = -1, .landing_bytes = 2 << 20, .local_bytes = 65536};
    struct mem_arena *arena;
    struct err err = {0};
    int failed;

    lnd_verbs_process_init();
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    if (mem_arena_create(&want, &arena, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_arena_destroy(arena);
    reactor_env_destroy(env);
    return failed;
}
