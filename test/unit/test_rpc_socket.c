/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may use the server's socket and for what, its path, and the client. */
#include "rpc_server_test.h"

#include "lib/base/err.h"

/* ---- roles ---- */

/* What a client with these credentials may do: -1 nothing, else its role. */
/* Whether the client may call the method. If not, the error has this remedy. */
static bool answers(int fd, const char *method, const char *remedy)
{
    char call[128];

    snprintf(call, sizeof(call), CALL("%s", "5", "2"), method);
    text_len = 0;
    say(fd, call);
    hear_lines(fd, 1);
    if (strcmp(text, RESULT("5", "2")) == 0)
        return true;
    if (!strstr(text, "-13") || !strstr(text, remedy) || !strstr(text, "needs the role"))
        fail_msg("%s", text);
    return false;
}

/* Returns the role of a client with these credentials; -1: it is refused. */
static int may_do(uid_t uid, gid_t gid, unsigned groups)
{
    int fd, role;

    fake_cred = (struct ucred){.pid = 77, .uid = uid, .gid = gid};
    fake_group_count = groups;
    if (!is_served(&fd, "this user may not use the socket"))
        return -1;
    role = JRPC_READ;
    if (answers(fd, "operate", "run it as root"))
        role = JRPC_OPERATOR;
    if (answers(fd, "change", "run it as root")) {
        assert_int_equal(role, JRPC_OPERATOR); /* an admin may do what an operator may */
        role = JRPC_ADMIN;
    }
    assert_int_equal(last_peer.role, role);
    assert_int_equal(last_peer.uid, uid);
    assert_int_equal(last_peer.gid, gid);
    assert_int_equal(last_peer.pid, 77);
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
    return role;
}

static void with_groups(const char *admin, const char *operators, const char *read)
{
    struct err err = {0};

    rpc_server_destroy(server);
    server = NULL;
    server_opts.role_group[JRPC_ADMIN] = admin;
    server_opts.role_group[JRPC_OPERATOR] = operators;
    server_opts.role_group[JRPC_READ] = read;
    if (create(&err) != 0)
        fail_msg("%s", err.message);
}

static void test_roles(void **state)
{
    const gid_t admins = 1, readers = 2;

    for (unsigned i = 0; i < 100; i++)
        fake_groups[i] = 1000 + i;
    fake_groups[3] = readers;
    fake_groups[99] = admins;                              /* more groups than fit at once */
    assert_int_equal(may_do(65533, 65533, 0), JRPC_ADMIN); /* no groups are named */
    with_groups(group_name(admins), "", "");
    assert_int_equal(may_do(65533, 65533, 0), JRPC_READ);
    assert_int_equal(may_do(65533, 65533, 4), JRPC_READ);
    assert_int_equal(may_do(65533, admins, 0), JRPC_ADMIN);
    assert_int_equal(may_do(65533, 65533, 100), JRPC_ADMIN);
    assert_int_equal(may_do(0, 0, 0), JRPC_ADMIN);
    assert_int_equal(may_do(geteuid(), 65533, 0), JRPC_ADMIN);
    with_groups(group_name(admins), NULL, group_name(readers));
    assert_int_equal(may_do(65533, 65533, 0), -1);
    assert_int_equal(logged[RPC_CLIENT_REFUSED], 1);
    assert_int_equal(may_do(65533, 65533, 4), JRPC_READ);
    assert_int_equal(may_do(65533, readers, 0), JRPC_READ);
    assert_int_equal(may_do(65533, 65533, 100), JRPC_ADMIN);
    assert_int_equal(may_do(0, 65533, 0), JRPC_ADMIN);
    with_groups(NULL, NULL, group_name(readers));
    assert_int_equal(may_do(65533, 65533, 0), -1);
    assert_int_equal(may_do(65533, readers, 0), JRPC_READ);
    assert_int_equal(may_do(geteuid(), 65533, 0), JRPC_ADMIN);
}

/* A group of operators alone leaves reading to all others, and everything to root alone. */
static void test_operators(void **state)
{
    const gid_t operators = 1, others = 2;

    fake_groups[0] = others;
    fake_groups[1] = operators;
    with_groups(NULL, group_name(operators), NULL);
    assert_int_equal(may_do(65533, operators, 0), JRPC_OPERATOR);
    assert_int_equal(may_do(65533, 65533, 2), JRPC_OPERATOR);
    assert_int_equal(may_do(65533, 65533, 1), JRPC_READ);
    assert_int_equal(may_do(0, 0, 0), JRPC_ADMIN);
    with_groups(NULL, group_name(operators), group_name(others));
    assert_int_equal(may_do(65533, operators, 0), JRPC_OPERATOR); /* need not be a reader too */
    assert_int_equal(may_do(65533, 65533, 1), JRPC_READ);
    assert_int_equal(may_do(65533, 65533, 0), -1);
    with_groups(group_name(others), group_name(operators), NULL);
    assert_int_equal(may_do(65533, 65533, 2), JRPC_ADMIN); /* the higher of two roles */
    assert_int_equal(may_do(65533, operators, 0), JRPC_OPERATOR);
    assert_int_equal(may_do(65533, 65533, 0), JRPC_READ);
}

/* What the kernel itself says of a client. */
static void test_credentials(void **state)
{
    int fd;

    assert_true(is_served(&fd, ""));
    assert_int_equal(logged[RPC_CLIENT_CONNECTED], 1);
    assert_int_equal(last_peer.pid, getpid());
    assert_int_equal(last_peer.uid, geteuid());
    assert_int_equal(last_peer.gid, getegid());
    assert_int_equal(last_peer.role, JRPC_ADMIN);
    assert_true(last_peer.privileged);
    close(fd);
    WAIT_FOR(rpc_server_clients(server) == 0);
    assert_int_equal(logged[RPC_CLIENT_CLOSED], 1);
}

static void check_bad_group(const char *group, const char *admin, const char *operators,
                            const char *read, const char *key)
{
    struct rpc_server_opts opts = {
        .path = path, .mode = 0600, .group = group, .role_group = {read, operators, admin}};
    struct rpc_server *none = NULL;
    struct err err = {0};

    assert_int_equal(rpc_server_create(&opts, &engine, &none, &err), -ENOENT);
    if (!strstr(err.message, "there is no group nosuchgroup") || !strstr(err.message, key))
        fail_msg("%s", err.message);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_groups(void **state)
{
    struct err err = {0};
    struct stat st;

    rpc_server_destroy(server);
    server = NULL;
    check_bad_group("nosuchgroup", "", "", "", "rpc: group:");
    check_bad_group("", "nosuchgroup", "", "", "admin_group:");
    check_bad_group("", "", "nosuchgroup", "", "operator_group:");
    check_bad_group("", NULL, NULL, "nosuchgroup", "read_group:");
    server_opts.group = group_name(2);
    if (create(&err) == 0) {
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_gid, 2);
        assert_int_equal(st.st_mode & 0777, 0640);
    } else { /* not everybody may give a socket to any group */
        assert_int_not_equal(geteuid(), 0);
        assert_non_null(strstr(err.message, "rpc: group:"));
        assert_int_equal(access(path, F_OK), -1);
    }
}

/* The client waits in the queue; looking at it all the time would not help it. */
static void test_no_descriptors(void **state)
{
    struct rlimit limit, none;
    int fd, next, busy = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    fd = dial();
    next = dup(fd);
    close(next);
    none = limit;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 100; i++)
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
    struct err err = {0};

    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(rpc_server_create(&opts, &engine, &second, &err), -EADDRINUSE);
    assert_non_null(strstr(err.message, "is served by another process"));
    assert_null(second);
    rpc_server_destroy(server);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(stat(lock_path, &st), -1);
    assert_int_equal(create(&err), 0);
}

/* The socket of a process that was killed is replaced; anything else at the path is not. */
static void test_stale(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct err err = {0};
    int fd;

    rpc_server_destroy(server);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    close(open(lock_path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(create(&err), 0);
    fd = dial();
    say(fd, CALL("echo", "1", "1"));
    hear_lines(fd, 1);
    close(fd);
    rpc_server_destroy(server);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    server = NULL;
    assert_int_equal(create(&err), -EADDRINUSE);
    assert_non_null(strstr(err.message, "remove what is there"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(create(&err), 0);
}

static void check_bad_path(const char *bad, int rc)
{
    struct rpc_server_opts opts = {.path = bad, .mode = 0600};
    struct rpc_server *none = NULL;
    struct err err = {0};

    assert_int_equal(rpc_server_create(&opts, &engine, &none, &err), rc);
    assert_true(err.message[0] != '\0');
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

static int count_pages(void *arg, json_t *result)
{
    int *left = arg;

    return --*left || json_array_size(json_object_get(result, "rows")) == 0 ? 0 : 99;
}

/* Rows come in order, each once. */
static int check_rows(void *arg, json_t *result)
{
    int *row = arg;
    size_t i;
    json_t *value;

    json_array_foreach(json_object_get(result, "rows"), i, value)
        if (json_integer_value(value) != (*row)++)
            return 98;
    return 0;
}

/* Pages and what was told while they were turned. */
static void client_walks(struct rpc_client *client)
{
    json_t *out = NULL;
    struct err err = {0};
    int rc, left = 100, row = 0;

    rc = rpc_client_walk(client, "pages", json_pack("{s:i}", "n", 10), 20000, check_rows, &row,
                         &out, &err);
    CHECK(10, rc == 0 && row == 10 && !out);
    for (int i = 0; i < 4; i++) {
        rc = rpc_client_next_notification(client, 20000, &out, &err);
        CHECK(13,
              rc == 0 && strcmp(json_string_value(json_object_get(out, "method")), "turned") == 0);
        CHECK(14,
              json_integer_value(json_object_get(json_object_get(out, "params"), "at")) == 3 * i);
        json_decref(out);
    }
    rc = rpc_client_next_notification(client, 0, &out, &err);
    CHECK(15, rc == -ETIMEDOUT && !out);
    rc = rpc_client_walk(client, "pages", json_pack("{s:i}", "n", 9), 20000, count_pages, &left,
                         &out, &err);
    CHECK(16, rc == 0 && left == 97 && !out);
    left = 2;
    rc = rpc_client_walk(client, "pages", json_pack("{s:i}", "n", 9), 20000, count_pages, &left,
                         &out, &err);
    CHECK(17, rc == 99 && !out);
    rc = rpc_client_walk(client, "fail", NULL, 20000, count_pages, &left, &out, &err);
    CHECK(18, rc == 1 && json_integer_value(json_object_get(out, "code")) == -ENOENT);
    json_decref(out);
    CHECK(20, rpc_client_fd(client) >= 0);
}

static void *client_main(void *arg)
{
    struct rpc_client *client = NULL;
    json_t *out = NULL;
    struct err err = {0};
    int rc;

    CHECK(1, rpc_client_open(path, &client, &err) == 0);
    rc = rpc_client_call(client, "echo", json_pack("{s:i}", "n", 5), 20000, &out, &err);
    CHECK(2, rc == 0 && json_integer_value(out) == 5);
    json_decref(out);
    rc = rpc_client_call(client, "large", json_pack("[i]", 3 << 20), 20000, &out, &err);
    CHECK(3, rc == 0 && json_string_length(out) == 3 << 20);
    json_decref(out);
    rc = rpc_client_call(client, "fail", json_pack("[i]", 4), 20000, &out, &err);
    CHECK(4, rc == 1 && json_integer_value(json_object_get(out, "code")) == -ENOENT);
    json_decref(out);
    client_walks(client);
    rc = rpc_client_call(client, "wait", NULL, 1, &out, &err);
    CHECK(5, rc == -ETIMEDOUT && !out && strstr(err.message, "no answer to wait"));
    ATOMIC_SET(client_done, 1);
    while (ATOMIC_GET(client_done) == 1) /* the test answers it now, too late */
        sched_yield();
    rc = rpc_client_call(client, "echo", json_pack("[i]", 6), 20000, &out, &err);
    CHECK(6, rc == 0 && json_integer_value(out) == 6);
    json_decref(out);
    rpc_client_close(client);
    ATOMIC_SET(client_done, 3);
    return NULL;
}

static void test_client(void **state)
{
    pthread_t thread;

    client_done = client_bad = 0;
    assert_int_equal(pthread_create(&thread, NULL, client_main, NULL), 0);
    WAIT_FOR(ATOMIC_GET(client_done) == 1 && waiting_count == 1);
    jrpc_result(waiting[0], json_true());
    ATOMIC_SET(client_done, 2);
    WAIT_FOR(ATOMIC_GET(client_done) == 3);
    pthread_join(thread, NULL);
    assert_int_equal(client_bad, 0);
    WAIT_FOR(rpc_server_clients(server) == 0);
}

static void test_client_alone(void **state)
{
    struct rpc_client *client = NULL;
    struct err err = {0};
    char long_path[200];

    memset(long_path, 'a', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(rpc_client_open("/nonexistent", &client, &err), -ENOENT);
    assert_non_null(strstr(err.message, "is millraced running?"));
    assert_int_equal(rpc_client_open(long_path, &client, &err), -ENAMETOOLONG);
    assert_null(client);
    rpc_client_close(NULL);
}

/* A server that answers with what is no response. */
static void check_answer(const char *answer, int want)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct rpc_client *client = NULL;
    json_t *out = NULL;
    struct err err = {0};
    char other[80];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd;

    snprintf(other, sizeof(other), "%s/other", dir);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", other);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(rpc_client_open(other, &client, &err), 0);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    say(fd, answer); /* fits into the socket, so it can be sent before it is asked for */
    shutdown(fd, SHUT_WR);
    assert_int_equal(rpc_client_call(client, "x", NULL, 20000, &out, &err), want);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_roles),
        TEST(test_operators),
        TEST(test_credentials),
        TEST(test_groups),
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
