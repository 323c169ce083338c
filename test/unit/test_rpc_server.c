/* SPDX-License-Identifier: BSD-3-Clause */
/* The server and the client on real sockets; the control reactor is stepped by the test. */
#include "reactor_test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/rpc_client.h"
#include "rpc/rpc_server.h"

#define TEXT_MAX (40u << 20)

static char dir[] = "/tmp/millrace-test-XXXXXX";
static char path[64], lock_path[80];
static struct rpc_server *server;
static struct jrpc_call *waiting[64];
static unsigned waiting_count;
static unsigned large_count; /* calls of `large` */
static char *text;           /* what a client has received */
static size_t text_len;

/* ---- methods ---- */

static void do_echo(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_integer(args[0].integer));
}

static void do_wait(struct jrpc_call *call, const struct jrpc_arg *args)
{
    waiting[waiting_count++] = call;
}

static json_t *large(size_t len)
{
    char *x = malloc(len + 1);
    json_t *value;

    assert_non_null(x);
    memset(x, 'x', len);
    x[len] = '\0';
    value = json_string(x);
    free(x);
    return value;
}

static void do_large(struct jrpc_call *call, const struct jrpc_arg *args)
{
    large_count++;
    jrpc_result(call, large((size_t)args[0].integer));
}

static void do_fail(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_fail(call, ENOENT, "n", "try another", "there is no %d", (int)args[0].integer);
}

static const struct jrpc_param number[] = {
    {.name = "n", .type = JRPC_INTEGER, .max = 1 << 30, .help = "a number"}, {.name = NULL}};
static const struct jrpc_method methods[] = {
    {"echo", "Gives back.", "number", number, do_echo},
    {"wait", "Ends later.", "anything", NULL, do_wait},
    {"large", "Gives n bytes.", "string", number, do_large},
    {"fail", "Fails.", "nothing", number, do_fail},
    {.name = NULL},
};
static const struct jrpc engine = {.methods = methods};

/* ---- around a test ---- */

static int setup(void **state)
{
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/sub/sock", dir);
    snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
    text = malloc(TEXT_MAX);
    return text ? 0 : -1;
}

static int teardown(void **state)
{
    char sub[64];

    snprintf(sub, sizeof(sub), "%s/sub", dir);
    free(text);
    rmdir(sub);
    rmdir(dir);
    reactor_env_destroy(env);
    return 0;
}

static int create(char err[320])
{
    struct rpc_server_opts opts = {.path = path, .mode = 0640};

    err[0] = '\0';
    return rpc_server_create(&opts, &engine, &server, err, 320);
}

static int begin(void **state)
{
    char err[320];

    waiting_count = large_count = 0;
    text_len = 0;
    if (create(err) != 0)
        fail_msg("%s", err);
    return 0;
}

static int end(void **state)
{
    rpc_server_destroy(server);
    server = NULL;
    return 0;
}

static int dial(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void say(int fd, const char *what)
{
    assert_int_equal(send(fd, what, strlen(what), MSG_NOSIGNAL), strlen(what));
}

/* Takes what has come. -1: nothing more will. */
static int hear(int fd)
{
    ssize_t n = recv(fd, text + text_len, TEXT_MAX - text_len - 1, 0);

    if (n > 0)
        text_len += (size_t)n;
    text[text_len] = '\0';
    return n == 0 || (n < 0 && errno != EAGAIN) ? -1 : 0;
}

static unsigned lines(void)
{
    unsigned n = 0;
    const char *p = text;

    while ((p = memchr(p, '\n', text_len - (size_t)(p - text)))) {
        n++;
        p++;
    }
    return n;
}

/* Until n lines have come. */
static void hear_lines(int fd, unsigned n)
{
    WAIT_FOR((hear(fd), lines() >= n));
    assert_int_equal(lines(), n);
}

#define CALL(method, params, id)                                                                   \
    "{\"jsonrpc\":\"2.0\",\"method\":\"" method "\",\"params\":[" params "],\"id\":" id "}"
#define RESULT(value, id) "{\"jsonrpc\":\"2.0\",\"result\":" value ",\"id\":" id "}\n"

/* ---- requests in pieces ---- */

static void test_byte_by_byte(void **state)
{
    static const char request[] = CALL("echo", "7", "1");
    int fd = dial(), i;

    for (i = 0; request[i]; i++) {
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
    assert_int_equal(rpc_server_clients(server), 0);
}

static void test_lost_frame(void **state)
{
    check_cut("{\"a\":[}" CALL("echo", "1", "1"), "a bracket closes");
    check_cut("{\"a\n\"", "a line ends within a string");
    check_cut("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested too deeply");
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
    assert_int_equal(rpc_server_clients(server), 0);
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

/* Destroying the server with a call in flight: the call ends later and answers nobody. */
static void test_destroyed_before_answer(void **state)
{
    int fd = dial();
    char err[320];

    say(fd, CALL("wait", "", "1"));
    WAIT_FOR(waiting_count == 1);
    rpc_server_destroy(server);
    WAIT_FOR(hear(fd) < 0);
    jrpc_result(waiting[0], json_true());
    close(fd);
    assert_int_equal(create(err), 0);
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

/* What waits for a client is bounded even where it was asked for before the limit was reached. */
static void test_never_reads(void **state)
{
    int fd = dial();

    say(fd, CALL("wait", "", "1") CALL("wait", "", "2") CALL("wait", "", "3"));
    WAIT_FOR(waiting_count == 3);
    jrpc_result(waiting[0], large(30 << 20));
    jrpc_result(waiting[1], large(30 << 20));
    assert_int_equal(rpc_server_clients(server), 1);
    jrpc_result(waiting[2], large(30 << 20));
    assert_int_equal(rpc_server_clients(server), 0);
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
    int fd[RPC_MAX_CLIENTS], one_more, i;

    for (i = 0; i < RPC_MAX_CLIENTS; i++)
        fd[i] = dial();
    WAIT_FOR(rpc_server_clients(server) == RPC_MAX_CLIENTS);
    one_more = dial();
    WAIT_FOR(hear(one_more) < 0);
    assert_non_null(strstr(text, "too many clients"));
    close(one_more);
    close(fd[0]);
    WAIT_FOR(rpc_server_clients(server) == RPC_MAX_CLIENTS - 1);
    one_more = dial();
    text_len = 0;
    say(one_more, CALL("echo", "1", "1"));
    hear_lines(one_more, 1);
    close(one_more);
    for (i = 1; i < RPC_MAX_CLIENTS; i++)
        close(fd[i]);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* The client waits in the queue; looking at it all the time would not help it. */
static void test_no_descriptors(void **state)
{
    struct rlimit limit, none;
    int fd, next, i, busy = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    fd = dial();
    next = dup(fd);
    close(next);
    none = limit;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (i = 0; i < 100; i++)
        busy += reactor_step(reactor_control(env), 0) > 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(rpc_server_clients(server), 0);
    assert_in_range(busy, 0, 3);
    say(fd, CALL("echo", "7", "1"));
    hear_lines(fd, 1);
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

/* ---- the path ---- */

static void test_path(void **state)
{
    struct rpc_server_opts opts = {.path = path, .mode = 0640};
    struct rpc_server *second = NULL;
    struct stat st;
    char err[320] = "";

    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(rpc_server_create(&opts, &engine, &second, err, sizeof(err)), -EADDRINUSE);
    assert_non_null(strstr(err, "is served by another process"));
    assert_null(second);
    rpc_server_destroy(server);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(stat(lock_path, &st), -1);
    assert_int_equal(create(err), 0);
}

/* The socket of a process that was killed is replaced; anything else at the path is not. */
static void test_stale(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char err[320];
    int fd;

    rpc_server_destroy(server);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    close(open(lock_path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(create(err), 0);
    fd = dial();
    say(fd, CALL("echo", "1", "1"));
    hear_lines(fd, 1);
    close(fd);
    rpc_server_destroy(server);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    server = NULL;
    assert_int_equal(create(err), -EADDRINUSE);
    assert_non_null(strstr(err, "remove what is there"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(create(err), 0);
}

static void check_bad_path(const char *bad, int rc)
{
    struct rpc_server_opts opts = {.path = bad, .mode = 0600};
    struct rpc_server *none = NULL;
    char err[320] = "";

    assert_int_equal(rpc_server_create(&opts, &engine, &none, err, sizeof(err)), rc);
    assert_true(err[0] != '\0');
    assert_null(none);
}

static void test_bad_paths(void **state)
{
    char long_path[200];

    memset(long_path, 'a', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    check_bad_path("", -ENAMETOOLONG);
    check_bad_path(long_path, -ENAMETOOLONG);
    check_bad_path("/nonexistent/directory/sock", -ENOENT);
}

/* ---- the client ---- */

static int client_done; /* set by the client's thread */
static int client_bad;  /* number of the first check that failed */

#define CHECK(number, cond)                                                                        \
    do {                                                                                           \
        if (!client_bad && !(cond))                                                                \
            client_bad = (number);                                                                 \
    } while (0)

static void *client_main(void *arg)
{
    struct rpc_client *client = NULL;
    json_t *out = NULL;
    char err[320] = "";
    int rc;

    CHECK(1, rpc_client_open(path, &client, err, sizeof(err)) == 0);
    rc = rpc_client_call(client, "echo", json_pack("{s:i}", "n", 5), 20000, &out, err, sizeof(err));
    CHECK(2, rc == 0 && json_integer_value(out) == 5);
    json_decref(out);
    rc = rpc_client_call(client, "large", json_pack("[i]", 3 << 20), 20000, &out, err, sizeof(err));
    CHECK(3, rc == 0 && json_string_length(out) == 3 << 20);
    json_decref(out);
    rc = rpc_client_call(client, "fail", json_pack("[i]", 4), 20000, &out, err, sizeof(err));
    CHECK(4, rc == 1 && json_integer_value(json_object_get(out, "code")) == -ENOENT);
    json_decref(out);
    rc = rpc_client_call(client, "wait", NULL, 1, &out, err, sizeof(err));
    CHECK(5, rc == -ETIMEDOUT && !out && strstr(err, "no answer to wait"));
    rpc_client_close(client);
    ATOMIC_SET(client_done, 1);
    return NULL;
}

static void test_client(void **state)
{
    pthread_t thread;

    client_done = client_bad = 0;
    assert_int_equal(pthread_create(&thread, NULL, client_main, NULL), 0);
    WAIT_FOR(ATOMIC_GET(client_done));
    pthread_join(thread, NULL);
    assert_int_equal(client_bad, 0);
    WAIT_FOR(waiting_count == 1 && rpc_server_clients(server) == 0);
    jrpc_result(waiting[0], json_true());
}

static void test_client_alone(void **state)
{
    struct rpc_client *client = NULL;
    char err[320] = "", long_path[200];

    memset(long_path, 'a', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(rpc_client_open("/nonexistent", &client, err, sizeof(err)), -ENOENT);
    assert_non_null(strstr(err, "is millraced running?"));
    assert_int_equal(rpc_client_open(long_path, &client, err, sizeof(err)), -ENAMETOOLONG);
    assert_null(client);
    rpc_client_close(NULL);
}

/* A server that answers with what is no response. */
static void check_answer(const char *answer, int want)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct rpc_client *client = NULL;
    json_t *out = NULL;
    char err[320], other[80];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd;

    snprintf(other, sizeof(other), "%s/other", dir);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", other);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(rpc_client_open(other, &client, err, sizeof(err)), 0);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    say(fd, answer); /* fits into the socket, so it can be sent before it is asked for */
    shutdown(fd, SHUT_WR);
    assert_int_equal(rpc_client_call(client, "x", NULL, 20000, &out, err, sizeof(err)), want);
    assert_int_equal(out != NULL, want >= 0);
    json_decref(out);
    rpc_client_close(client);
    close(fd);
    close(listener);
    unlink(other);
}

static void test_client_answers(void **state)
{
    check_answer(RESULT("1", "1"), 0);
    check_answer("{\"error\":{\"code\":-32000},\"id\":null}\n", 1);
    check_answer("", -ECONNRESET);
    check_answer("{\"result\":1", -ECONNRESET);
    check_answer("{\"result\"}\n", -EPROTO);
    check_answer(RESULT("1", "2"), -EPROTO);
    check_answer("{\"id\":1}\n", -EPROTO);
    check_answer("{\"error\":1,\"id\":1}\n", -EPROTO);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_byte_by_byte),
        TEST(test_pipelined),
        TEST(test_two_clients),
        TEST(test_bad_json),
        TEST(test_lost_frame),
        TEST(test_oversized),
        TEST(test_end_in_request),
        TEST(test_half_closed),
        TEST(test_gone_before_answer),
        TEST(test_destroyed_before_answer),
        TEST(test_slow_reader),
        TEST(test_never_reads),
        TEST(test_calls_in_flight),
        TEST(test_client_limit),
        TEST(test_no_descriptors),
        TEST(test_path),
        TEST(test_stale),
        TEST(test_client),
        cmocka_unit_test(test_bad_paths),
        cmocka_unit_test(test_client_alone),
        cmocka_unit_test(test_client_answers),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
