/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the server and the client on real sockets share; the control reactor is stepped
 * by the test. What the kernel says of a client, and the time, can be the test's own. */
#ifndef MILLRACE_RPC_SERVER_TEST_H
#define MILLRACE_RPC_SERVER_TEST_H

#include "reactor_test.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/err.h"
#include "rpc/engine/rpc_server.h"
#include "rpc/rpc_client.h"

#define TEXT_MAX (40u << 20)

static char dir[] = "/tmp/millrace-test-XXXXXX";
static char path[64], lock_path[80];
static struct rpc_server *server;
static struct jrpc_call *waiting[64];
static unsigned waiting_count;
static unsigned large_count; /* calls of `large` */
static char *text;           /* what a client has received */
static size_t text_len;

/* ---- the clock, and who clients are ---- */

static uint64_t skip_s;            /* the clock is ahead by so much */
static struct timespec *creeps_at; /* it goes on from there, by 100 us at each look */

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = __real_clock_gettime(id, ts);

    ts->tv_sec += (time_t)skip_s;
    if (creeps_at && id == CLOCK_MONOTONIC) {
        creeps_at->tv_nsec += 100000;
        creeps_at->tv_sec += creeps_at->tv_nsec / 1000000000;
        creeps_at->tv_nsec %= 1000000000;
        *ts = *creeps_at;
    }
    return rc;
}

static struct ucred fake_cred; /* pid 0: what the kernel says */
static gid_t fake_groups[100];
static unsigned fake_group_count;

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    socklen_t have = fake_group_count * (socklen_t)sizeof(gid_t);

    if (!fake_cred.pid || (name != SO_PEERCRED && name != SO_PEERGROUPS))
        return __real_getsockopt(fd, level, name, value, size);
    if (name == SO_PEERCRED) {
        memcpy(value, &fake_cred, sizeof(fake_cred));
        return 0;
    }
    if (*size < have) {
        *size = have;
        errno = ERANGE;
        return -1;
    }
    memcpy(value, fake_groups, have);
    *size = have;
    return 0;
}

/* The next clients are of this user, which is neither root nor ours. */
static inline void be_nobody(void)
{
    fake_cred = (struct ucred){.pid = 77, .uid = 65533, .gid = 65533};
}

static inline void be_myself(void)
{
    fake_cred.pid = 0;
}

static unsigned logged[RPC_CLIENT_EVENTS];
static struct rpc_peer last_peer; /* the last one logged */

static inline void note_client(void *arg, enum rpc_client_event event, const struct rpc_peer *peer)
{
    assert_ptr_equal(arg, logged);
    assert_true(strlen(rpc_client_event_name(event)) > 0);
    logged[event]++;
    last_peer = *peer;
}

/* ---- methods ---- */

static inline void do_echo(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_integer(args[0].integer));
}

static inline void do_wait(struct jrpc_call *call, const struct jrpc_arg *args)
{
    waiting[waiting_count++] = call;
}

static inline json_t *large(size_t len)
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

static inline void do_large(struct jrpc_call *call, const struct jrpc_arg *args)
{
    large_count++;
    jrpc_result(call, large((size_t)args[0].integer));
}

static inline void do_fail(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_fail(call, ENOENT, "n", "try another", "there is no %d", (int)args[0].integer);
}

/* Also tells something in between, as other methods' clients may be told. */
static inline void do_pages(struct jrpc_call *call, const struct jrpc_arg *args)
{
    int from = args[1].given ? atoi(args[1].string) : 0, i;
    json_t *rows = json_array(), *result = json_pack("{s:o}", "rows", rows);
    char cursor[16];

    jrpc_notify(jrpc_session_of(call), "turned", json_pack("{s:i}", "at", from));
    for (i = from; i < from + 3 && i < args[0].integer; i++)
        json_array_append_new(rows, json_integer(i));
    snprintf(cursor, sizeof(cursor), "%d", i);
    if (i < args[0].integer)
        json_object_set_new(result, "cursor", json_string(cursor));
    jrpc_result(call, result);
}

static struct jrpc_session *subscriber;
static unsigned subscriptions_gone;

static inline void gone(struct jrpc_session *session)
{
    assert_ptr_equal(session, subscriber);
    subscriptions_gone++;
}

static inline void do_subscribe(struct jrpc_call *call, const struct jrpc_arg *args)
{
    subscriber = jrpc_session_of(call);
    subscriber->closed = gone;
    jrpc_result(call, json_true());
}

static const struct jrpc_param number[] = {
    {.name = "n", .type = JRPC_INTEGER, .max = 1 << 30, .help = "a number"}, {.name = NULL}};
static const struct jrpc_param page_params[] = {
    {.name = "n", .type = JRPC_INTEGER, .max = 1000, .help = "how many"},
    {.name = "cursor", .type = JRPC_STRING, .max = 16, .help = "where to go on"},
    {.name = NULL}};
static const struct jrpc_method methods[] = {
    {.name = "echo",
     .help = "Gives back.",
     .result = "number",
     .phase = JRPC_ALWAYS,
     .params = number},
    {.name = "wait", .help = "Ends later.", .result = "anything", .phase = JRPC_ALWAYS},
    {.name = "large",
     .help = "Gives n bytes.",
     .result = "string",
     .phase = JRPC_ALWAYS,
     .params = number},
    {.name = "fail", .help = "Fails.", .result = "nothing", .phase = JRPC_ALWAYS, .params = number},
    {.name = "change",
     .help = "Changes.",
     .result = "number",
     .role = JRPC_ADMIN,
     .phase = JRPC_ALWAYS,
     .params = number},
    {.name = "operate",
     .help = "Changes a little.",
     .result = "number",
     .role = JRPC_OPERATOR,
     .phase = JRPC_ALWAYS,
     .params = number},
    {.name = "subscribe", .help = "Is told.", .result = "true", .phase = JRPC_ALWAYS},
    {.name = "pages",
     .help = "Counts to n, three a page.",
     .result = "object",
     .phase = JRPC_ALWAYS,
     .params = page_params},
    {.name = NULL},
};
static const jrpc_handler handlers[] = {do_echo, do_wait, do_large,     do_fail,
                                        do_echo, do_echo, do_subscribe, do_pages};
static const struct jrpc engine = {.methods = methods, .handlers = handlers};

/* ---- around a test ---- */

static inline int setup(void **state)
{
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/sub/sock", dir);
    snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
    text = malloc(TEXT_MAX);
    return text ? 0 : -1;
}

static inline int teardown(void **state)
{
    char sub[64];

    snprintf(sub, sizeof(sub), "%s/sub", dir);
    free(text);
    rmdir(sub);
    rmdir(dir);
    reactor_env_destroy(env);
    return 0;
}

static struct rpc_server_opts server_opts;

static inline int create(struct err *err)
{
    server_opts.path = path;
    server_opts.mode = 0640;
    server_opts.log = note_client;
    server_opts.log_arg = logged;
    *err = (struct err){0};
    return rpc_server_create(&server_opts, &engine, &server, err);
}

static inline int begin(void **state)
{
    struct err err = {0};

    waiting_count = large_count = subscriptions_gone = 0;
    subscriber = NULL;
    text_len = 0;
    server_opts = (struct rpc_server_opts){0};
    memset(logged, 0, sizeof(logged));
    be_myself();
    if (create(&err) != 0)
        fail_msg("%s", err.message);
    return 0;
}

static inline int end(void **state)
{
    rpc_server_destroy(server);
    server = NULL;
    return 0;
}

static inline int dial(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static inline void say(int fd, const char *what)
{
    assert_int_equal(send(fd, what, strlen(what), MSG_NOSIGNAL), strlen(what));
}

/* Takes what has come. -1: nothing more will. */
static inline int hear(int fd)
{
    ssize_t n = recv(fd, text + text_len, TEXT_MAX - text_len - 1, 0);

    if (n > 0)
        text_len += (size_t)n;
    text[text_len] = '\0';
    return n == 0 || (n < 0 && errno != EAGAIN) ? -1 : 0;
}

static inline unsigned lines(void)
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
static inline void hear_lines(int fd, unsigned n)
{
    WAIT_FOR((hear(fd), lines() >= n));
    assert_int_equal(lines(), n);
}

#define CALL(method, params, id)                                                                   \
    "{\"jsonrpc\":\"2.0\",\"method\":\"" method "\",\"params\":[" params "],\"id\":" id "}"
#define RESULT(value, id) "{\"jsonrpc\":\"2.0\",\"result\":" value ",\"id\":" id "}\n"

/* Takes one more connection. True: it is served; else it was told why not. */
static inline bool is_served(int *fd, const char *why)
{
    *fd = dial();
    text_len = 0;
    say(*fd, CALL("echo", "1", "1"));
    WAIT_FOR((hear(*fd), lines() > 0));
    if (strcmp(text, RESULT("1", "1")) == 0)
        return true;
    if (!strstr(text, why))
        fail_msg("%s", text);
    WAIT_FOR(hear(*fd) < 0);
    close(*fd);
    return false;
}

/* Of one of the groups every system has. */
static inline const char *group_name(gid_t gid)
{
    static char names[3][64];
    const struct group *group = getgrgid(gid);

    assert_true(gid < 3 && group && strlen(group->gr_name) < sizeof(names[0]));
    return strcpy(names[gid], group->gr_name);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

#endif
