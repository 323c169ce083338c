/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of `tcp` nets come and go on running reactors: two nodes of one process on loopback
 * addresses, host sockets, the real clock. Needs the right to bind reserved ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/err.h"
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnet/lnet.h"

#define SEC      1000000ull
#define DEADLINE (60 * SEC) /* of anything: the machine may be busy */
#define ROUNDS   8

static struct reactor_env *env;
static struct lnet_node *router, *client;
static struct lnd_sock *router_sock, *client_sock;
static uint16_t port; /* of this run */
static struct err err;

static struct lnet_nid N(const char *text) {
    struct lnet_nid nid;

    assert_int_equal(nid_parse(text, &nid), 0);
    return nid;
}

/* Until *flag is set. */
static void
wait_for(const bool *flag, const char *what)
{
    uint64_t until = reactor_now_us() + DEADLINE;

    while (!*flag) {
        reactor_step(reactor_control(env), 10000);
        if (reactor_now_us() > until)
            fail_msg("no end of: %s", what);
    }
}

/* ---- nodes ---- */

static struct lnet_node *node_new(struct lnd_sock **sock, bool routing)
{
    struct lnet_node_opts opts = {.env = env,
                                  .routing = routing,
                                  .tiny = 64,
                                  .small = 64,
                                  .large = 4,
                                  .max_peers = 64,
                                  .local_msgs = 256};
    struct sock_opts sopts = SOCK_OPTS_DEFAULT;
    struct lnet_node *node;

    sopts.accept_port = port;
    sopts.max_conns = 64;
    sopts.max_reconnect = 1;
    if (lnet_node_create(&opts, &node, &err))
        fail_msg("%s", err.message);
    *sock = lnd_sock_new(&sopts);
    assert_non_null(*sock);
    assert_int_equal(lnet_lnd_register(node, &lnd_sock_ops, *sock), 0);
    return node;
}

static struct lnet_ni_conf conf_of(const char *nid)
{
    struct lnet_ni_conf conf = {
        .nid = N(nid), .tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};

    conf.net = nid_net(&conf.nid);
    return conf;
}

static void on_stopped(void *arg)
{
    *(bool *)arg = true;
}

static void node_stop(struct lnet_node *node)
{
    bool stopped = false;

    lnet_node_stop(node, 0, on_stopped, &stopped);
    wait_for(&stopped, "stopping a node");
}

static int up(void **state)
{
    static const char *const nids[] = {"127.0.0.3@tcp", "127.0.0.3@tcp1", "127.0.0.3@tcp2"};

    router = node_new(&router_sock, true);
    client = node_new(&client_sock, false);
    for (unsigned i = 0; i < sizeof(nids) / sizeof(nids[0]); i++) {
        struct lnet_ni_conf conf = conf_of(nids[i]);

        if (lnet_ni_add(client, &conf, NULL, &err))
            fail_msg("%s", err.message);
    }
    assert_int_equal(reactor_env_start(env), 0);
    if (lnet_node_start(router, &err) || lnet_node_start(client, &err))
        fail_msg("%s", err.message);
    return 0;
}

static int down(void **state)
{
    node_stop(client);
    node_stop(router);
    reactor_env_stop(env);
    lnet_node_destroy(client);
    lnet_node_destroy(router);
    lnd_driver_free(client_sock);
    lnd_driver_free(router_sock);
    return 0;
}

/* ---- changes of the router ---- */

struct end {
    bool ended;
    int rc;
};

static void on_end(void *arg, int rc, const struct err *why)
{
    struct end *end = arg;

    end->ended = true;
    end->rc = rc;
    err = *why;
}

static int add(const char *nid)
{
    struct lnet_ni_conf conf = conf_of(nid);
    struct end end = {0};

    if (lnet_ni_add_live(router, &conf, on_end, &end, &err))
        fail_msg("%s", err.message);
    wait_for(&end.ended, "adding an NI");
    return end.rc;
}

static void del(const char *text)
{
    struct lnet_nid nid = N(text);
    struct end end = {0};

    if (lnet_ni_del(router, &nid, on_end, &end, &err))
        fail_msg("%s", err.message);
    wait_for(&end.ended, "removing an NI");
    assert_int_equal(end.rc, 0);
}

/* ---- pings by the client ---- */

struct pong {
    bool ended;
    int status;
    unsigned count;
};

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    struct pong *p = arg;

    p->ended = true;
    p->status = status;
    p->count = status == 0 ? info->count : 0;
}

static int ping_for(unsigned ms, const char *dest, unsigned *count)
{
    struct lnet_nid nid = N(dest);
    struct pong p = {0};

    assert_int_equal(lnet_ping(client, &nid, NULL, ms, on_pong, &p), 0);
    wait_for(&p.ended, "a ping");
    if (count)
        *count = p.count;
    return p.status;
}

/* Where there is a connection, or nobody listens: that is known at once on an idle machine. */
static int ping_once(const char *dest, unsigned *count)
{
    return ping_for(20000, dest, count);
}

/* A peer that was gone is called again after its back-off; what went to one that went is lost. */
static unsigned ping(const char *dest)
{
    uint64_t until = reactor_now_us() + DEADLINE;
    unsigned count;

    while (ping_for(5000, dest, &count))
        if (reactor_now_us() > until)
            fail_msg("%s never answers", dest);
    return count;
}

static int listens_at(const char *addr)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    int sock = socket(AF_INET, SOCK_STREAM, 0), rc;

    inet_pton(AF_INET, addr, &in.sin_addr);
    rc = connect(sock, (const struct sockaddr *)&in, sizeof(in)) < 0 ? -errno : 0;
    close(sock);
    return rc;
}

/* ---- tests ---- */

/* Two nets on one address. The listener goes with the last of them, whichever that is, and what is
 * on the other does not notice. */
static void test_shared_listener(void **state)
{
    static const char *const nid[] = {"127.0.0.2@tcp", "127.0.0.2@tcp1"};

    assert_int_equal(listens_at("127.0.0.2"), -ECONNREFUSED);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const char *first = nid[i % 2], *second = nid[(i + 1) % 2];

        assert_int_equal(add(first), 0);
        assert_int_equal(ping(first), 1);
        assert_int_equal(add(second), 0);
        assert_int_equal(ping(second), 2);
        assert_int_equal(ping_once(first, NULL), 0); /* still the same connection */
        del(first);
        assert_int_equal(listens_at("127.0.0.2"), 0);
        assert_int_equal(ping_once(second, NULL), 0);
        assert_int_equal(add("127.0.0.4@tcp2"), 0);
        assert_int_equal(ping_once(second, NULL), 0);
        assert_int_equal(ping("127.0.0.4@tcp2"), 2);
        del(second);
        assert_int_equal(listens_at("127.0.0.2"), -ECONNREFUSED);
        del("127.0.0.4@tcp2");
        assert_int_not_equal(ping_once(first, NULL), 0);
    }
    assert_true(lnet_ni_count(router) <= 4); /* indices are used again */
}

/* A call that has not said whom it wants, and one that has, while that NI goes. */
static void test_half_open_calls(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    int sock[2];
    char byte;

    inet_pton(AF_INET, "127.0.0.2", &in.sin_addr);
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_int_equal(add("127.0.0.2@tcp"), 0);
        for (unsigned k = 0; k < 2; k++) {
            struct sockaddr_in from = {.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)(700 + 2 * i + k))};
            int one = 1;

            inet_pton(AF_INET, "127.0.0.5", &from.sin_addr);
            sock[k] = socket(AF_INET, SOCK_STREAM, 0);
            setsockopt(sock[k], SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
            if (bind(sock[k], (struct sockaddr *)&from, sizeof(from)) < 0 ||
                connect(sock[k], (struct sockaddr *)&in, sizeof(in)) < 0)
                fail_msg("call: %s", strerror(errno));
        }
        assert_int_equal(write(sock[1], "\x01", 1), 1);
        ping("127.0.0.2@tcp"); /* both have been accepted */
        del("127.0.0.2@tcp");
        for (unsigned k = 0; k < 2; k++) {
            assert_true(read(sock[k], &byte, 1) <= 0); /* closed */
            close(sock[k]);
        }
    }
}

/* The port is taken: nothing stays of the NI; when it is free the same NI comes. */
static void test_start_fails(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    int sock = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    inet_pton(AF_INET, "127.0.0.2", &in.sin_addr);
    assert_int_equal(bind(sock, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(sock, 1), 0);
    assert_int_equal(add("127.0.0.4@tcp1"), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct lnet_nid nid = N("127.0.0.2@tcp");

        assert_int_equal(add("127.0.0.2@tcp"), -EADDRINUSE);
        assert_non_null(strstr(err.message, "127.0.0.2@tcp"));
        assert_false(lnet_nid_is_mine(router, &nid));
        assert_int_equal(ping("127.0.0.4@tcp1"), 1);
    }
    close(sock);
    assert_int_equal(add("127.0.0.2@tcp"), 0);
    assert_int_equal(ping("127.0.0.2@tcp"), 2);
    assert_true(lnet_ni_count(router) <= 3);
}

static void on_row(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                   const struct lnet_peer_ni_cursor *next)
{
    struct pong *p = arg;

    p->ended = true;
    p->count = n == 0 ? 0
                      : rows[0].lnd.conns[0] + rows[0].lnd.conns[1] + rows[0].lnd.conns[2] +
                            rows[0].lnd.conns[3];
}

static unsigned conns_to(const char *text)
{
    struct lnet_nid nid = N(text);
    struct pong p = {0};

    assert_int_equal(lnet_peer_ni_find(client, &nid, on_row, &p), 0);
    wait_for(&p.ended, "a row");
    return p.count;
}

/* The client completes its set with the next message when a call of it fails. */
static void complete_set(const char *dest, unsigned conns)
{
    uint64_t until = reactor_now_us() + DEADLINE;

    while (conns_to(dest) != conns && reactor_now_us() < until)
        ping(dest);
    assert_int_equal(conns_to(dest), conns);
}

/* Settings of an NI count for sets of connections to come: what is set while one is made is not for
 * it. */
static void test_set(void **state)
{
    struct lnd_tunables tun = {.conns_per_peer = 1, .timeout = 30, .tos = -1};
    struct lnet_nid mine = N("127.0.0.3@tcp"), other = N("127.0.0.9@tcp");

    assert_int_equal(lnet_ni_set(client, &other, &tun, &err), -ENOENT);
    assert_int_equal(lnet_ni_set(client, &mine, &tun, &err), 0);
    assert_int_equal(add("127.0.0.2@tcp"), 0);
    complete_set("127.0.0.2@tcp", 3); /* control and one of each bulk type */
    tun = (struct lnd_tunables){.conns_per_peer = 2, .timeout = 100000, .tos = -1};
    assert_int_equal(lnet_ni_set(client, &mine, &tun, &err), -EINVAL);
    assert_non_null(strstr(err.message, "timeout is 100000"));
    tun.timeout = -1;
    assert_int_equal(lnet_ni_set(client, &mine, &tun, &err), 0);
    ping("127.0.0.2@tcp");
    assert_int_equal(conns_to("127.0.0.2@tcp"), 3); /* they keep their number */
    for (unsigned i = 0; i < lnet_ni_count(client); i++)
        if (nid_same(&lnet_ni_at(client, i)->nid, &mine)) {
            assert_int_equal(lnet_ni_at(client, i)->lnd_tun.timeout, 30);
            assert_int_equal(lnet_ni_at(client, i)->lnd_tun.conns_per_peer, 2);
        }
    del("127.0.0.2@tcp");
    assert_int_equal(add("127.0.0.2@tcp"), 0);
    complete_set("127.0.0.2@tcp", 5);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, up, down)

static bool may_bind(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(600)};
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    bool may;

    inet_pton(AF_INET, "127.0.0.5", &in.sin_addr);
    may = bind(sock, (const struct sockaddr *)&in, sizeof(in)) == 0;
    close(sock);
    return may;
}

/* A port that no other run of a test has: as own_port.py, a bound socket keeps it for as long as
 * this process lives. */
static bool take_port(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    int sock = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, "127.255.255.254", &in.sin_addr);
    for (unsigned i = 0; i < 20000; i++) {
        port = (uint16_t)(10000 + ((unsigned)getpid() + i) % 20000);
        in.sin_port = htons(port);
        if (bind(sock, (const struct sockaddr *)&in, sizeof(in)) == 0)
            return true;
    }
    close(sock);
    return false;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_shared_listener),
        TEST(test_half_open_calls),
        TEST(test_start_fails),
        TEST(test_set),
    };
    struct reactor_opts opts = {
        .prog = argv[0], .cores = "auto", .idle = REACTOR_IDLE_ADAPTIVE, .mem_mb = 64};
    int rc;

    if (!may_bind())
        return 77; /* meson: skipped */
    if (!take_port()) {
        fprintf(stderr, "no port is free\n");
        return 1;
    }
    opts.count = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    if (reactor_env_create(&opts, &env, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    reactor_env_destroy(env);
    return rc;
}
