/* SPDX-License-Identifier: BSD-3-Clause */
/* NIs: settings, addresses, several on one address: docs/protocol/socklnd.md §3.1, §5.1, §5.2. */
#include "lib/base/err.h"
#include "lib/lnd/driver.h"
#include "test/unit/socklnd_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DEFAULT_TUN                                                                                \
    {                                                                                              \
        -1, -1, -1, -1                                                                             \
    }
#define DEFAULT_LND                                                                                \
    {                                                                                              \
        -1, -1, -1                                                                                 \
    }

static struct err err;

static struct lnet_ni make(const char *nid, const char *ifname)
{
    struct lnet_ni ni = {
        .node = fake_node(),
        .state = LNET_NI_ACTIVE,
        .lnd = &lnd_sock_ops,
        .lnd_ctx = fake_lnd(),
        .net = LNET_NET(LNET_LND_SOCK, 0),
        .nid = LNET_NID_ANY,
        .tun = DEFAULT_TUN,
        .lnd_tun = DEFAULT_LND,
    };

    if (nid) {
        assert_int_equal(nid_parse(nid, &ni.nid), 0);
        ni.net = nid_net(&ni.nid);
    }
    snprintf(ni.ifname, sizeof(ni.ifname), "%s", ifname);
    err.message[0] = '\0';
    return ni;
}

static int init(struct lnet_ni *ni)
{
    return lnd_sock_ops.ni_init(ni, &err);
}

static void test_defaults(void **state)
{
    struct lnet_ni ni = make("10.0.0.5@tcp4", "");

    (void)state;
    assert_int_equal(init(&ni), 0);
    assert_string_equal(ni.ifname, "eth0");
    assert_int_equal(ni.tun.credits, 256);
    assert_int_equal(ni.tun.peer_credits, 8);
    assert_int_equal(ni.tun.peer_timeout, 180);
    assert_int_equal(ni.tun.peer_buffer_credits, 0);
    assert_int_equal(ni.lnd_tun.timeout, 50);
    assert_true(ni.lnd_tun.conns_per_peer >= 1);
    assert_int_equal(ni.lnd_tun.tos, -1);
    assert_int_equal(lnd_timeout_us(&ni), 50000000);
    assert_false(ni.rx_take);
    lnd_sock_ops.ni_fini(&ni);
}

/* An LND timeout of 0 is the node's: docs/protocol/lnet-core.md §6.1. */
static void test_derived_timeout(void **state)
{
    struct lnet_ni ni = make("10.0.0.5@tcp4", "");

    (void)state;
    ni.lnd_tun.timeout = 0;
    assert_int_equal(init(&ni), 0);
    assert_int_equal(ni.lnd_tun.timeout, 0);
    assert_int_equal(lnd_timeout_us(&ni), 49000000); /* of the fake node */
    lnd_sock_ops.ni_fini(&ni);
}

static void test_settings(void **state)
{
    static const struct {
        struct lnet_tunables tun; /* peer_timeout, peer_credits, peer_buffer_credits, credits */
        struct lnd_tunables lnd;  /* conns_per_peer, timeout, tos */
        int rc;
        const char *says; /* what is wrong */
        int peer_credits;
    } rows[] = {
        {DEFAULT_TUN, {127, 16, 255}, 0, NULL, 8},
        {DEFAULT_TUN, {0, 0, 0}, 0, NULL, 8},
        {{-1, 300, -1, 100}, DEFAULT_LND, 0, NULL, 100},
        {{-1, -1, -1, 0}, DEFAULT_LND, -EINVAL, "credits is 0", 0},
        {{-1, 0, -1, -1}, DEFAULT_LND, -EINVAL, "peer_credits is 0", 0},
        {{-1, -1, -2, -1}, DEFAULT_LND, -EINVAL, "peer_buffer_credits is -2", 0},
        {{-1, -1, -1, 65536}, DEFAULT_LND, -EINVAL, "credits is 65536", 0},
        {DEFAULT_TUN, {128, -1, -1}, -EINVAL, "conns_per_peer is 128", 0},
        {DEFAULT_TUN, {-2, -1, -1}, -EINVAL, "conns_per_peer is -2", 0},
        {DEFAULT_TUN, {-1, -2, -1}, -EINVAL, "timeout is -2", 0},
        {DEFAULT_TUN, {-1, 3601, -1}, -EINVAL, "timeout is 3601", 0},
        {DEFAULT_TUN, {-1, -1, 256}, -EINVAL, "tos is 256", 0},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lnet_ni ni = make("10.0.0.5@tcp4", "");

        ni.tun = rows[i].tun;
        ni.lnd_tun = rows[i].lnd;
        assert_int_equal(init(&ni), rows[i].rc);
        if (rows[i].rc < 0) {
            assert_non_null(strstr(err.message, rows[i].says));
            assert_null(ni.lnd_ni);
            continue;
        }
        assert_int_equal(ni.tun.peer_credits, rows[i].peer_credits);
        lnd_sock_ops.ni_fini(&ni);
    }
}

static void test_addresses(void **state)
{
    static const struct {
        const char *nid, *ifname;
        int rc;
        const char *gives; /* NID, or what the error names */
    } rows[] = {
        {NULL, "eth0", 0, "10.0.0.5@tcp"},
        {"fd00::5@tcp", "eth0", 0, "fd00::5@tcp"},
        {"127.3.4.5@tcp", "", 0, "127.3.4.5@tcp"},
        {NULL, "eth7", -ENODEV, "there is no interface eth7"},
        {"10.0.0.6@tcp", "", -EADDRNOTAVAIL, "not on any interface"},
        {"10.0.0.6@tcp", "eth0", -EADDRNOTAVAIL, "not on interface eth0"},
        {"10.0.0.5@tcp", "eth7", -EADDRNOTAVAIL, "not on interface eth7"},
    };
    char nid[LNET_NIDSTR_SIZE];

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lnet_ni ni = make(rows[i].nid, rows[i].ifname);

        assert_int_equal(init(&ni), rows[i].rc);
        if (rows[i].rc < 0) {
            assert_non_null(strstr(err.message, rows[i].gives));
            continue;
        }
        assert_string_equal(nid_format(&ni.nid, nid), rows[i].gives);
        lnd_sock_ops.ni_fini(&ni);
    }
}

static void on_done(struct reactor_task *task)
{
    task->fn = NULL;
}

static void stop(struct lnet_ni *ni)
{
    struct reactor_task quiet = {.fn = on_done}, done = {.fn = on_done};

    fake_on(FAKE_REACTORS);
    lnd_sock_ops.ni_quiesce(ni, &quiet);
    lnd_sock_ops.ni_stop(ni, &done);
    fake_run();
    assert_null(quiet.fn);
    assert_null(done.fn);
    lnd_sock_ops.ni_fini(ni);
}

/* Two nets on one address: one socket, and the request says which NI is meant. */
static void test_shared_address(void **state)
{
    struct lnet_ni ni = make("10.0.0.5@tcp7", "");
    struct fake_stream *s;
    struct sock_hello in;
    uint8_t buf[256];
    size_t n;

    (void)state;
    assert_int_equal(init(&ni), 0);
    assert_int_equal(lnd_sock_ops.ni_start(&ni, &err), 0);
    fake_run();
    s = fake_call("10.0.0.3", 1023);
    fake_feed(s, buf, fake_hello(buf, "10.0.0.3@tcp7", "10.0.0.5@tcp7", SOCK_CTYPE_CONTROL, 1));
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V3, &in), LNET_DROP_NONE);
    assert_true(nid_same(&in.src_nid, &ni.nid));
    fake_up("10.0.0.3", 1022, SOCK_CTYPE_CONTROL, 1); /* on tcp */
    s = fake_call("10.0.0.4", 1023);
    fake_feed(s, buf, fake_hello(buf, "10.0.0.4@tcp7", "10.0.0.5@tcp", SOCK_CTYPE_CONTROL, 1));
    assert_true(s->closed); /* named one net and said to come from the other */
    assert_int_equal(core.drops[SOCK_DROP(HELLO_SOURCE)], 1);
    stop(&ni);
    s = fake_call("10.0.0.3", 1021); /* the socket is still there for tcp */
    fake_feed(s, buf, fake_hello(buf, "10.0.0.3@tcp7", "10.0.0.5@tcp7", SOCK_CTYPE_CONTROL, 1));
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(REQ_NID)], 1);
    fake_up("10.0.0.3", 1020, SOCK_CTYPE_BULK_IN, 1);
}

/* What was never started is stopped at once. */
static void test_stop_not_started(void **state)
{
    struct lnet_ni ni = make("10.0.0.5@tcp7", "");

    (void)state;
    assert_int_equal(init(&ni), 0);
    stop(&ni);
}

static int setup_take(void **state)
{
    fake_defaults();
    fake_transport.caps = STREAM_CAP_TAKE;
    return fake_setup(state);
}

static void test_rx_take(void **state)
{
    (void)state;
    assert_true(fake_ni()->rx_take);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_derived_timeout),
        TEST(test_settings),
        TEST(test_addresses),
        TEST(test_shared_address),
        TEST(test_stop_not_started),
        cmocka_unit_test_setup_teardown(test_rx_take, setup_take, fake_teardown),
    };

    fake_defaults();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
