/* SPDX-License-Identifier: BSD-3-Clause */
/* The server on real sockets: streams of requests, clients that end or do not read. */
#include "rpc_server_test.h"

#include "lib/base/err.h"

/* ---- requests in pieces ---- */

static void test_byte_by_byte(void **state)
{
    static const char request[] = CALL("echo", "7", "1");
    int fd = dial();

    for (int i = 0; request[i]; i++) {
        assert_int_equal(send(fd, request + i, 1, MSG_NOSIGNAL), 1);
        reactor_step(reactor_control(env), 0);
        assert_int_equal(hear(fd), 0);
        if (request[i + 1])
            assert_int_equal(lines(), 0);
    }
    hear_lines(fd, 1); /* no newline was needed */
    assert_string_equal(text, RESULT("7", "1"));
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

static void test_pipelined(void **state)
{
    int fd = dial();

    say(fd, CALL("echo", "1", "1") CALL("echo", "2", "2") "\n\r\n [" CALL(
                "echo", "3", "3") "]\n" CALL("echo", "4", "4"));
    hear_lines(fd, 4);
    assert_string_equal(
        text, RESULT("1", "1") RESULT(
                  "2", "2") "[{\"jsonrpc\":\"2.0\",\"result\":3,\"id\":3}]\n" RESULT("4", "4"));
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

static void test_two_clients(void **state)
{
    int a = dial(), b = dial();

    say(a, "{\"jsonrpc\":");
    say(b, CALL("echo", "2", "2"));
    hear_lines(b, 1); /* a half request of another holds nobody up */
    say(a, "\"2.0\",\"method\":\"echo\",\"id\":9,\"params\":[5]}");
    hear_lines(a, 2);
    assert_string_equal(text, RESULT("2", "2") RESULT("5", "9"));
    close(a);
    close(b);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* ---- what is no request ---- */

/* A parse error is answered; what stands behind it still is when the frame was whole. */
static void test_bad_json(void **state)
{
    int fd = dial();

    say(fd, "{\"a\":}\n" CALL("echo", "1", "1"));
    hear_lines(fd, 2);
    assert_non_null(strstr(text, "-32700"));
    assert_non_null(strstr(text, RESULT("1", "1")));
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* Where the frames are lost the connection ends after the answer. */
static void check_cut(const char *what, const char *why)
{
    int fd = dial();

    text_len = 0;
    say(fd, what);
    WAIT_FOR(hear(fd) < 0);
    assert_int_equal(lines(), 1);
    assert_non_null(strstr(text, "-32700"));
    assert_non_null(strstr(text, why));
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

static void test_lost_frame(void **state)
{
    check_cut("{\"a\":[}" CALL("echo", "1", "1"), "a bracket closes");
    check_cut("{\"a\n\"", "a line ends within a string");
    check_cut("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested too deeply");
}

/* A client that is still sending when it is refused reads the reason and then the end of the
 * stream, no error. */
static void test_orderly_end(void **state)
{
    static char block[100000];
    int fd = dial();
    size_t sent = 0;

    memset(block, '[', sizeof(block));
    while (sent < 20 * sizeof(block)) {
        ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);

        if (n > 0)
            sent += (size_t)n;
        else
            assert_int_equal(errno, EAGAIN);
        reactor_step(reactor_control(env), 0);
    }
    hear_lines(fd, 1);
    assert_non_null(strstr(text, "nested too deeply"));
    WAIT_FOR(recv(fd, block, sizeof(block), 0) == 0);
    assert_int_equal(rpc_server_clients(server), 1);
    skip_s += RPC_LINGER_S + 1; /* it never closes: not for ever */
    WAIT_FOR(rpc_server_clients(server) == 0);
    close(fd);
}

static void test_oversized(void **state)
{
    static char block[65536];
    int fd = dial();
    ssize_t n = 0;

    memset(block, 'x', sizeof(block));
    say(fd, "{\"a\":\"");
    /* Until the server has had enough, which is after about 1 MiB. */
    WAIT_FOR((n = send(fd, block, sizeof(block), MSG_NOSIGNAL), hear(fd) < 0) ||
             (n < 0 && errno != EAGAIN) || lines() == 1);
    hear_lines(fd, 1);
    assert_non_null(strstr(text, "the request is too long"));
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* ---- ends ---- */

static void test_end_in_request(void **state)
{
    int fd = dial();

    say(fd, CALL("echo", "1", "1") "{\"jsonrpc\"");
    shutdown(fd, SHUT_WR);
    WAIT_FOR(hear(fd) < 0);
    assert_int_equal(lines(), 2);
    assert_non_null(strstr(text, "the request ends in its middle"));
    close(fd);
    fd = dial();
    text_len = 0;
    say(fd, "17"); /* a number ends with the stream */
    shutdown(fd, SHUT_WR);
    WAIT_FOR(hear(fd) < 0);
    assert_non_null(strstr(text, "-32600"));
    close(fd);
    fd = dial();
    text_len = 0;
    shutdown(fd, SHUT_WR);
    WAIT_FOR(hear(fd) < 0);
    assert_int_equal(text_len, 0);
    close(fd);
}

/* A client that asks and then only listens gets its answer. */
static void test_half_closed(void **state)
{
    int fd = dial();

    say(fd, CALL("wait", "", "1"));
    shutdown(fd, SHUT_WR);
    WAIT_FOR(waiting_count == 1);
    for (int i = 0; i < 10; i++)
        reactor_step(reactor_control(env), 0);
    assert_int_equal(hear(fd), 0);
    assert_int_equal(rpc_server_clients(server), 1);
    jrpc_result(waiting[0], json_true());
    WAIT_FOR(hear(fd) < 0);
    assert_string_equal(text, RESULT("true", "1"));
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

static void test_gone_before_answer(void **state)
{
    int fd = dial(), other = dial();

    say(fd, CALL("wait", "", "1") CALL("wait", "", "2"));
    WAIT_FOR(waiting_count == 2);
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 1);
    jrpc_result(waiting[0], json_true());
    jrpc_fail(waiting[1], EIO, NULL, NULL, "nobody hears it");
    say(other, CALL("echo", "3", "3"));
    hear_lines(other, 1);
    close(other);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* A client that says something and is gone at once: it is done all the same. */
static void test_gone_at_once(void **state)
{
    int fd = dial();

    say(fd, CALL("wait", "", "1") CALL("wait", "", "2"));
    close(fd);
    WAIT_FOR(waiting_count == 2 && rpc_server_clients(server) == 0);
    jrpc_result(waiting[0], json_true());
    jrpc_result(waiting[1], json_true());
}

/* All places are taken by clients that have just gone: a newcomer is not turned away. */
static void test_gone_make_place(void **state)
{
    int fd[RPC_MAX_CLIENTS], next, i;

    be_nobody();
    for (i = 0; i < RPC_MAX_CLIENTS; i++)
        fd[i] = dial();
    WAIT_FOR(rpc_server_clients(server) == RPC_MAX_CLIENTS);
    next = dial(); /* its arrival is seen before the others' end */
    for (i = 0; i < RPC_MAX_CLIENTS; i++)
        close(fd[i]);
    say(next, CALL("echo", "5", "1"));
    hear_lines(next, 1);
    assert_string_equal(text, RESULT("5", "1"));
    assert_int_equal(logged[RPC_CLIENT_TURNED_AWAY], 0);
    close(next);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* Destroying the server with a call in flight: the call ends later and answers nobody. */
static void test_destroyed_before_answer(void **state)
{
    int fd = dial();
    struct err err = {0};

    say(fd, CALL("wait", "", "1"));
    WAIT_FOR(waiting_count == 1);
    rpc_server_destroy(server);
    WAIT_FOR(hear(fd) < 0);
    jrpc_result(waiting[0], json_true());
    close(fd);
    assert_int_equal(create(&err), 0);
}

/* ---- clients that do not read ---- */

#define ASKED 200

static void test_slow_reader(void **state)
{
    int slow = dial(), other = dial();
    unsigned asked = 0, i;
    char want[32], *p;

    /* 200 responses of 64 KiB are asked for and not read: the server must stop reading. */
    for (asked = 0; asked < ASKED; asked++) {
        char request[128];

        snprintf(request, sizeof(request), CALL("large", "65536", "%u"), asked);
        say(slow, request);
    }
    for (i = 0; i < 100; i++)
        reactor_step(reactor_control(env), 0);
    say(other, CALL("echo", "1", "1"));
    hear_lines(other, 1);
    /* A client that waits for answers of its own is not hindered, and the slow one loses nothing.
     */
    text_len = 0;
    hear_lines(slow, ASKED);
    for (p = text, i = 0; i < ASKED; i++) {
        p = strchr(p, '\n') + 1;
        snprintf(want, sizeof(want), "\"id\":%u}\n", i);
        assert_memory_equal(p - strlen(want), want, strlen(want));
    }
    close(slow);
    close(other);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* The bytes that wait for a client are bounded, also those asked for before. */
static void test_never_reads(void **state)
{
    int fd = dial();

    say(fd, CALL("wait", "", "1") CALL("wait", "", "2") CALL("wait", "", "3"));
    WAIT_FOR(waiting_count == 3);
    jrpc_result(waiting[0], large(30 << 20));
    jrpc_result(waiting[1], large(30 << 20));
    assert_int_equal(rpc_server_clients(server), 1);
    jrpc_result(waiting[2], large(30 << 20));
    WAIT_FOR(rpc_server_clients(server) == 0);
    close(fd);
}

/* Calls in flight are bounded: further requests stay in the socket. */
static void test_calls_in_flight(void **state)
{
    int fd = dial();
    unsigned i;

    for (i = 0; i < RPC_MAX_CALLS + 8; i++)
        say(fd, CALL("wait", "", "1"));
    WAIT_FOR(waiting_count == RPC_MAX_CALLS);
    for (i = 0; i < 10; i++)
        reactor_step(reactor_control(env), 0);
    assert_int_equal(waiting_count, RPC_MAX_CALLS);
    for (i = 0; i < RPC_MAX_CALLS; i++)
        jrpc_result(waiting[i], json_true());
    WAIT_FOR(waiting_count == RPC_MAX_CALLS + 8);
    for (; i < RPC_MAX_CALLS + 8; i++)
        jrpc_result(waiting[i], json_true());
    hear_lines(fd, RPC_MAX_CALLS + 8);
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

static void test_client_limit(void **state)
{
    int fd[RPC_MAX_CLIENTS + RPC_USER_CLIENTS], one_more, i;

    be_nobody();
    for (i = 0; i < RPC_MAX_CLIENTS; i++)
        assert_true(is_served(&fd[i], ""));
    assert_int_equal(rpc_server_clients(server), RPC_MAX_CLIENTS);
    assert_false(is_served(&one_more, "too many clients"));
    assert_int_equal(logged[RPC_CLIENT_TURNED_AWAY], 1);
    close(fd[0]);
    WAIT_FOR(rpc_server_clients(server) == RPC_MAX_CLIENTS - 1);
    assert_true(is_served(&fd[0], ""));
    /* who runs the process has a few places more; then others give way until it has its share */
    be_myself();
    for (; i < RPC_MAX_CLIENTS + RPC_USER_CLIENTS; i++)
        assert_true(is_served(&fd[i], ""));
    assert_int_equal(rpc_server_clients(server), RPC_MAX_CLIENTS + RPC_MORE_CLIENTS);
    assert_int_equal(logged[RPC_CLIENT_DISPLACED], RPC_USER_CLIENTS - RPC_MORE_CLIENTS);
    assert_false(is_served(&one_more, "too many clients"));
    for (i = 0; i < RPC_MAX_CLIENTS + RPC_USER_CLIENTS; i++)
        close(fd[i]);
    WAIT_FOR(rpc_server_clients(server) == 0);
    assert_int_equal(logged[RPC_CLIENT_TURNED_AWAY], 2);
    assert_int_equal(logged[RPC_CLIENT_CLOSED] + logged[RPC_CLIENT_DISPLACED],
                     logged[RPC_CLIENT_CONNECTED]);
}

/* All places are taken by clients that do nothing: he who does so for longest makes way, but not
 * one with a subscription, a call in flight or privileges of which the newcomer has none. */
static void test_idle_makes_way(void **state)
{
    int fd[RPC_MAX_CLIENTS], one_more, i;

    be_myself();
    assert_true(is_served(&fd[0], ""));
    be_nobody();
    for (i = 1; i < RPC_MAX_CLIENTS; i++)
        assert_true(is_served(&fd[i], ""));
    text_len = 0;
    say(fd[1], CALL("subscribe", "", "1"));
    hear_lines(fd[1], 1);
    say(fd[2], CALL("wait", "", "1"));
    WAIT_FOR(waiting_count == 1);
    skip_s += RPC_IDLE_S / 2;
    text_len = 0;
    say(fd[3], CALL("echo", "1", "1"));
    hear_lines(fd[3], 1);
    skip_s += RPC_IDLE_S - RPC_IDLE_S / 2; /* now 4 is the oldest that may go */
    assert_true(is_served(&one_more, ""));
    assert_int_equal(rpc_server_clients(server), RPC_MAX_CLIENTS);
    assert_int_equal(logged[RPC_CLIENT_DISPLACED], 1);
    text_len = 0;
    WAIT_FOR(hear(fd[4]) < 0);
    assert_int_equal(text_len, 0);
    close(one_more);
    for (i = 0; i < RPC_MAX_CLIENTS; i++)
        close(fd[i]);
    WAIT_FOR(rpc_server_clients(server) == 0);
    assert_int_equal(subscriptions_gone, 1);
    jrpc_result(waiting[0], json_true());
}

/* A user who has its share makes no idle client of another user give way. */
static void test_idle_of_others(void **state)
{
    int fd[RPC_MAX_CLIENTS], one_more, i;

    be_nobody();
    fake_cred.uid = 65532;
    assert_true(is_served(&fd[0], ""));
    skip_s += RPC_IDLE_S;
    be_nobody();
    for (i = 1; i < RPC_MAX_CLIENTS; i++)
        assert_true(is_served(&fd[i], ""));
    assert_false(is_served(&one_more, "too many clients"));
    skip_s += RPC_IDLE_S;
    assert_true(is_served(&one_more, "")); /* in the place of an own one */
    text_len = 0;
    say(fd[0], CALL("echo", "1", "1"));
    hear_lines(fd[0], 1);
    close(one_more);
    for (i = 0; i < RPC_MAX_CLIENTS; i++)
        close(fd[i]);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* Of several idle ones those that may only read go first, and for one of their kind no admin goes.
 */
static void test_readers_make_way(void **state)
{
    int fd[RPC_MAX_CLIENTS], one_more, i;
    struct err err = {0};

    rpc_server_destroy(server);
    server_opts.role_group[JRPC_ADMIN] = group_name(0);
    assert_int_equal(create(&err), 0);
    be_nobody();
    fake_cred.gid = 0;
    for (i = 0; i < RPC_MAX_CLIENTS - 1; i++)
        assert_true(is_served(&fd[i], ""));
    assert_int_equal(last_peer.role, JRPC_ADMIN);
    be_nobody();
    fake_group_count = 0;
    assert_true(is_served(&fd[i], ""));
    assert_int_equal(last_peer.role, JRPC_READ);
    skip_s += RPC_IDLE_S;
    fake_cred.gid = 0;
    assert_true(is_served(&one_more, ""));
    text_len = 0;
    WAIT_FOR(hear(fd[i]) < 0); /* the only reader, though it came last */
    fake_cred.gid = 65533;
    close(fd[i]);
    assert_false(is_served(&fd[i], "too many clients"));
    close(one_more);
    for (i = 0; i < RPC_MAX_CLIENTS - 1; i++)
        close(fd[i]);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* Who takes nothing of what waits for him is cut off in the end; who takes a little is not. */
static void test_stalled(void **state)
{
    int dead = dial(), slow = dial();

    say(dead, CALL("large", "1000000", "1"));
    say(slow, CALL("large", "1000000", "1"));
    WAIT_FOR(large_count == 2);
    for (int i = 0; i < 3; i++) {
        skip_s += RPC_STALL_S - 10;
        hear(slow);
        WAIT_FOR(rpc_server_clients(server) == (i ? 1 : 2));
        reactor_step(reactor_control(env), 0);
    }
    assert_int_equal(logged[RPC_CLIENT_STALLED], 1);
    WAIT_FOR((hear(slow), lines() == 1));
    close(dead);
    close(slow);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* ---- notifications ---- */

/* A subscriber that does not read: the backlog tells it, and nothing is closed under the feet of
 * whoever notifies. */
static void test_notifications(void **state)
{
    int fd = dial();
    unsigned sent = 0;

    say(fd, CALL("subscribe", "", "1"));
    hear_lines(fd, 1);
    jrpc_notify(subscriber, "event", json_pack("{s:i}", "n", 1));
    hear_lines(fd, 2);
    assert_non_null(
        strstr(text, "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"n\":1}}\n"));
    assert_int_equal(jrpc_backlog(subscriber), 0);
    while (jrpc_backlog(subscriber) < 100000 && sent < 10000) {
        jrpc_notify(subscriber, "event", json_pack("{s:i}", "n", 2));
        sent++;
    }
    assert_true(jrpc_backlog(subscriber) >= 100000);
    text_len = 0;
    hear_lines(fd, sent);
    assert_int_equal(jrpc_backlog(subscriber), 0);
    while (jrpc_backlog(subscriber) + (1 << 20) < RPC_OUT_MAX)
        jrpc_notify(subscriber, "event", large(1 << 20));
    for (int i = 0; i < 3; i++) /* too much: it is cut off, but not within this call */
        jrpc_notify(subscriber, "event", large(1 << 20));
    assert_int_equal(subscriptions_gone, 0);
    WAIT_FOR(rpc_server_clients(server) == 0);
    assert_int_equal(subscriptions_gone, 1);
    assert_int_equal(logged[RPC_CLIENT_STALLED], 1);
    close(fd);
}

/* `echo … | socat - UNIX:…` sends no more and still listens. */
static void test_half_closed_subscriber(void **state)
{
    int fd = dial();

    say(fd, CALL("subscribe", "", "1"));
    shutdown(fd, SHUT_WR);
    hear_lines(fd, 1);
    for (int i = 0; i < 10; i++)
        reactor_step(reactor_control(env), 0);
    jrpc_notify(subscriber, "event", json_object());
    hear_lines(fd, 2);
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
    assert_int_equal(subscriptions_gone, 1);
}

/* All clients together have a limit. The clock hardly moves meanwhile: on a slow machine this takes
 * longer than RPC_STALL_S, after which all are cut off. */
static void test_all_queues(void **state)
{
    struct timespec now;
    int fd[6];

    for (unsigned i = 0; i < 6; i++) {
        fd[i] = dial();
        say(fd[i], CALL("wait", "", "1") CALL("wait", "", "2"));
        WAIT_FOR(waiting_count == 2 * i + 2);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    creeps_at = &now;
    for (unsigned i = 0; i < 12; i++) {
        jrpc_result(waiting[i], large(i == 6 ? 31 << 20 : 24 << 20));
        reactor_step(reactor_control(env), 0);
    }
    WAIT_FOR(rpc_server_clients(server) == 5);
    assert_int_equal(logged[RPC_CLIENT_STALLED], 1);
    text_len = 0;
    WAIT_FOR(hear(fd[3]) < 0); /* whose queue was the longest */
    creeps_at = NULL;
    for (unsigned i = 0; i < 6; i++)
        close(fd[i]);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* Responses of batches that are not whole count, too: their client is not read from, and beyond the
 * limit of all clients the one with most is ended, though its call goes on. */
static void test_unfinished_batches(void **state)
{
    int fd[9];

    for (unsigned i = 0; i < 9; i++) {
        fd[i] = dial();
        say(fd[i], "[" CALL("wait", "", "1") "," CALL("large", "30000000", "2") "]");
        say(fd[i], CALL("echo", "1", "3"));
        WAIT_FOR(large_count == i + 1);
    }
    WAIT_FOR(rpc_server_clients(server) == 8);
    assert_int_equal(logged[RPC_CLIENT_STALLED], 1);
    for (unsigned i = 0; i < 9; i++) {
        text_len = 0;
        if (hear(fd[i]) == 0)
            assert_int_equal(text_len, 0);
        jrpc_result(waiting[i], json_true());
        WAIT_FOR(hear(fd[i]) < 0 || lines() == 2);
        close(fd[i]);
    }
    WAIT_FOR(rpc_server_clients(server) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_byte_by_byte),       TEST(test_pipelined),
        TEST(test_two_clients),        TEST(test_bad_json),
        TEST(test_lost_frame),         TEST(test_oversized),
        TEST(test_end_in_request),     TEST(test_half_closed),
        TEST(test_gone_before_answer), TEST(test_gone_at_once),
        TEST(test_gone_make_place),    TEST(test_destroyed_before_answer),
        TEST(test_slow_reader),        TEST(test_never_reads),
        TEST(test_calls_in_flight),    TEST(test_client_limit),
        TEST(test_idle_makes_way),     TEST(test_idle_of_others),
        TEST(test_readers_make_way),   TEST(test_stalled),
        TEST(test_notifications),      TEST(test_half_closed_subscriber),
        TEST(test_all_queues),         TEST(test_orderly_end),
        TEST(test_unfinished_batches),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
