/* SPDX-License-Identifier: BSD-3-Clause */
/* NIs on ports beside NIs on interfaces of the host: which transport carries whom, addresses, link,
 * home reactors. The interfaces of ports are the test's. */
#include "lib/base/err.h"
#include "test/unit/socklnd_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- interfaces ---- */

struct inet {
    int unused;
};

struct inet_if {
    const char *name;
    const char *addr[3]; /* with the bits */
    unsigned speed;
    bool up;
    LIST_HEAD(, inet_watch) watchers;
};

static struct inet inet;
static struct inet_if ifs[3];

static struct inet_addr addr_of(const char *text)
{
    struct inet_addr a = {{[10] = 0xff, [11] = 0xff}};
    struct lnet_nid nid;
    char full[64];

    snprintf(full, sizeof(full), "%s@tcp", text);
    assert_int_equal(nid_parse(full, &nid), 0);
    if (nid_is_nid4(&nid))
        memcpy(a.b + 12, nid.addr_be, 4);
    else
        memcpy(a.b, nid.addr_be, 16);
    return a;
}

static struct inet_if *find(struct inet *of, const char *name)
{
    assert_ptr_equal(of, &inet);
    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(ifs[i].name, name) == 0)
            return &ifs[i];
    }
    return NULL;
}

static bool addr_at(const struct inet_if *ifp, unsigned index, struct inet_prefix *out)
{
    if (index >= 3 || !ifp->addr[index])
        return false;
    out->addr = addr_of(ifp->addr[index]);
    out->bits = 24;
    return true;
}

static struct inet_if *owner(struct inet *of, const struct inet_addr *addr)
{
    struct inet_prefix p;

    assert_ptr_equal(of, &inet);
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned j = 0; addr_at(&ifs[i], j, &p); j++) {
            if (inet_same(&p.addr, addr))
                return &ifs[i];
        }
    }
    return NULL;
}

static const char *name_of(const struct inet_if *ifp)
{
    return ifp->name;
}

static unsigned speed_of(const struct inet_if *ifp)
{
    return ifp->speed;
}

static bool link_of(const struct inet_if *ifp)
{
    return ifp->up;
}

static void watch(struct inet_if *ifp, struct inet_watch *w)
{
    LIST_INSERT_HEAD(&ifp->watchers, w, link);
}

static void unwatch(struct inet_if *ifp, struct inet_watch *w)
{
    LIST_REMOVE(w, link);
}

/* On the control reactor, as inet does it. */
static void set_link(struct inet_if *ifp, bool up)
{
    struct reactor *before = fake_on(FAKE_REACTORS);

    ifp->up = up;
    for (struct inet_watch *w = LIST_FIRST(&ifp->watchers); w; w = LIST_NEXT(w, link))
        w->changed(w, up);
    fake_restore(before);
}

/* ---- their transport: the fake's, which knows one interface ---- */

static int tcp; /* its address is the context */
static unsigned listens, connects;
static char listens_on[16], connects_by[16];

static int
port_listen(void *ctx, const union stream_addr *addr, const char *ifname, struct reactor *on,
            void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
            void *user, struct stream_listener **out)
{
    assert_ptr_equal(ctx, &tcp);
    listens++;
    snprintf(listens_on, sizeof(listens_on), "%s", ifname);
    return fake_transport.listen(NULL, addr, "eth0", on, accepted, user, out);
}

static int port_connect(void *ctx, const union stream_addr *local, const char *ifname,
                        const union stream_addr *remote, int tos, const struct stream_events *ev,
                        void *user, struct stream **out)
{
    assert_ptr_equal(ctx, &tcp);
    connects++;
    snprintf(connects_by, sizeof(connects_by), "%s", ifname);
    return fake_transport.connect(NULL, local, "eth0", remote, tos, ev, user, out);
}

static struct stream_ops port_ops;

static const struct eth_ports ports = {
    .transport = {&port_ops, &tcp},
    .inet = &inet,
    .find = find,
    .owner = owner,
    .name = name_of,
    .addr = addr_at,
    .speed = speed_of,
    .link = link_of,
    .watch = watch,
    .unwatch = unwatch,
};

/* ---- set-up ---- */

static struct err err;
static struct lnet_ni ni;

static int setup(void **state)
{
    const struct inet_if fresh[3] = {
        {.name = "p0", .addr = {"fd00::20", "10.7.0.1", "10.7.0.2"}, .speed = 100000, .up = true},
        {.name = "p1", .addr = {"fe80::1", "fd00::21"}, .speed = 0, .up = false},
        {.name = "p2", .addr = {"fe80::1"}, .speed = 10000, .up = true},
    };

    memcpy(ifs, fresh, sizeof(ifs));
    fake_defaults();
    fake_opts.ports = &ports;
    port_ops = fake_transport;
    port_ops.name = "fake_port";
    port_ops.listen = port_listen;
    port_ops.connect = port_connect;
    listens = connects = 0;
    return fake_setup(state);
}

/* The NIs of the set-up are the host's throughout: nothing of theirs came by the port's. */
static int teardown(void **state)
{
    int rc = fake_teardown(state);

    for (unsigned i = 0; i < 3; i++)
        assert_true(LIST_EMPTY(&ifs[i].watchers));
    return rc;
}

static int init(const char *nid, const char *ifname)
{
    ni = (struct lnet_ni){
        .node = fake_node(),
        .lnd = &lnd_sock_ops,
        .lnd_ctx = fake_lnd(),
        .net = LNET_NET(LNET_LND_SOCK, 7),
        .nid = LNET_NID_ANY,
        .tun = {-1, -1, -1, -1},
        .lnd_tun = LND_TUNABLES_DEFAULT,
        .link_up = true,
    };

    if (nid) {
        assert_int_equal(nid_parse(nid, &ni.nid), 0);
        ni.net = nid_net(&ni.nid);
    }
    snprintf(ni.ifname, sizeof(ni.ifname), "%s", ifname);
    err.message[0] = '\0';
    return lnd_sock_ops.ni_init(&ni, &err);
}

static void start(void)
{
    fake_on(FAKE_REACTORS);
    assert_int_equal(lnd_sock_ops.ni_start(&ni, &err), 0);
    fake_run();
}

static void on_done(struct reactor_task *task)
{
    task->fn = NULL;
}

static void stop(void)
{
    struct reactor_task done = {.fn = on_done};

    fake_on(FAKE_REACTORS);
    lnd_sock_ops.ni_stop(&ni, &done);
    fake_run();
    assert_null(done.fn);
    lnd_sock_ops.ni_fini(&ni);
}

/* ---- tests ---- */

static void test_addresses(void **state)
{
    static const struct {
        const char *nid, *ifname;
        int rc;
        const char *gives, *on; /* NID, or what the error names; interface */
    } rows[] = {
        {NULL, "p0", 0, "10.7.0.1@tcp7", "p0"}, /* IPv4 first */
        {NULL, "p1", 0, "fd00::21@tcp7", "p1"}, /* not what is of the link only */
        {NULL, "p2", -EINVAL, "port p2 has no IP address but those of its link", ""},
        {"10.7.0.2@tcp7", "", 0, "10.7.0.2@tcp7", "p0"}, /* by its address */
        {"10.7.0.2@tcp7", "p0", 0, "10.7.0.2@tcp7", "p0"},
        {"fe80::1@tcp7", "p2", 0, "fe80::1@tcp7", "p2"},
        {"10.7.0.3@tcp7", "p0", -EINVAL, "10.7.0.3@tcp7: the address is not on port p0", ""},
        {"10.7.0.3@tcp7", "", -EADDRNOTAVAIL, "not on any interface", ""},
        {NULL, "eth0", 0, "10.0.0.5@tcp7", "eth0"}, /* the host's, as without ports */
        {NULL, "eth7", -ENODEV, "there is no interface eth7", ""},
    };
    char nid[LNET_NIDSTR_SIZE];

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(init(rows[i].nid, rows[i].ifname), rows[i].rc);
        if (rows[i].rc < 0) {
            if (!strstr(err.message, rows[i].gives))
                fail_msg("said: %s", err.message);
            assert_null(ni.lnd_ni);
            continue;
        }
        assert_string_equal(nid_format(&ni.nid, nid), rows[i].gives);
        assert_string_equal(ni.ifname, rows[i].on);
        lnd_sock_ops.ni_fini(&ni);
    }
}

/* By the port's speed, docs/protocol/socklnd.md §3.1. */
static void test_conns_per_peer(void **state)
{
    (void)state;
    assert_int_equal(init(NULL, "p0"), 0);
    assert_int_equal(ni.lnd_tun.conns_per_peer, 4);
    lnd_sock_ops.ni_fini(&ni);
    assert_int_equal(init(NULL, "p1"), 0);
    assert_int_equal(ni.lnd_tun.conns_per_peer, 1);
    lnd_sock_ops.ni_fini(&ni);
}

static int setup_take(void **state)
{
    int rc = setup(state);

    port_ops.caps = STREAM_CAP_TAKE;
    return rc;
}

/* Each NI receives as its own transport does. */
static void test_rx_take(void **state)
{
    (void)state;
    assert_false(fake_ni()->rx_take);
    assert_int_equal(init(NULL, "p0"), 0);
    assert_true(ni.rx_take);
    lnd_sock_ops.ni_fini(&ni);
    assert_int_equal(init(NULL, "eth0"), 0);
    assert_false(ni.rx_take);
    lnd_sock_ops.ni_fini(&ni);
}

/* Only where there is a transport that hands segments over is there memory for lists of them. */
static void test_memory(void **state)
{
    struct sock_opts o = fake_opts;
    struct lnd_memory with, without;

    (void)state;
    lnd_sock_memory(&o, 2, false, &without);
    port_ops.caps = STREAM_CAP_TAKE;
    lnd_sock_memory(&o, 2, false, &with);
    assert_true(with.pools >= without.pools + 2 * 256 * 4096 * sizeof(struct mem_seg));
    o.ports = NULL;
    lnd_sock_memory(&o, 2, false, &with);
    assert_int_equal(with.pools, without.pools);
    lnd_sock_memory(&o, 2, true, &with); /* before the ports are there */
    assert_true(with.pools > without.pools);
}

static void test_listens_and_calls(void **state)
{
    (void)state;
    assert_int_equal(listens, 0); /* the set-up's are the host's */
    assert_int_equal(init("10.7.0.1@tcp", ""), 0);
    start();
    assert_int_equal(listens, 1);
    assert_string_equal(listens_on, "p0");
    fake_send(fake_msg(&ni, "10.7.0.9@tcp", 8));
    fake_run();
    assert_int_equal(connects, 1);
    assert_string_equal(connects_by, "p0");
    assert_non_null(fake_dialled());
    fake_send(fake_msg(fake_ni(), "10.0.0.9@tcp", 8));
    fake_run();
    assert_int_equal(connects, 1);
    assert_non_null(fake_dialled());
    stop();
}

/* The core is told as it is at the start and after each change, by one reactor. */
static void test_link(void **state)
{
    (void)state;
    assert_int_equal(init(NULL, "p1"), 0);
    assert_true(ni.link_up);
    start();
    assert_false(ni.link_up);
    set_link(&ifs[1], true);
    fake_run();
    assert_true(ni.link_up);
    set_link(&ifs[0], false); /* another one */
    fake_run();
    assert_true(ni.link_up);
    /* Changes that come before the last was told: the newest counts. */
    set_link(&ifs[1], false);
    set_link(&ifs[1], true);
    set_link(&ifs[1], false);
    fake_run();
    assert_false(ni.link_up);
    set_link(&ifs[1], true);
    set_link(&ifs[1], false);
    fake_run();
    assert_false(ni.link_up);
    stop();
}

/* One that changes while the NI stops is not told any more, and nobody is left who watches. */
static void test_link_at_stop(void **state)
{
    (void)state;
    assert_int_equal(init(NULL, "p0"), 0);
    start();
    set_link(&ifs[0], false);
    stop();
    assert_true(LIST_EMPTY(&ifs[0].watchers));
    set_link(&ifs[0], true);
    fake_run();
}

/* Where NIs of two nets have an address, what comes to it goes home by the net of the first that is
 * there; by which net it goes shows in where it goes. */
static void test_home(void **state)
{
    static struct lnet_ni first;
    struct inet_addr local = addr_of("10.7.0.1"), remote;
    unsigned differ = 0, before[64];
    struct lnet_nid nid;
    char text[32];

    (void)state;
    assert_int_equal(init("10.7.0.1@tcp", "p0"), 0);
    first = ni;
    assert_int_equal(init("10.7.0.1@tcp7", "p0"), 0);
    for (unsigned i = 0; i < 64; i++) {
        snprintf(text, sizeof(text), "10.7.1.%u", i + 1);
        remote = addr_of(text);
        snprintf(text, sizeof(text), "10.7.1.%u@tcp", i + 1);
        assert_int_equal(nid_parse(text, &nid), 0);
        before[i] = lnd_sock_home(fake_lnd(), &local, &remote);
        assert_int_equal(before[i], reactor_index(lnet_nid_home(fake_node(), &nid)));
    }
    lnd_sock_ops.ni_fini(&first);
    lnd_sock_ops.ni_fini(&ni);
    assert_int_equal(init("10.7.0.1@tcp7", "p0"), 0);
    for (unsigned i = 0; i < 64; i++) {
        snprintf(text, sizeof(text), "10.7.1.%u", i + 1);
        remote = addr_of(text);
        snprintf(text, sizeof(text), "10.7.1.%u@tcp7", i + 1);
        assert_int_equal(nid_parse(text, &nid), 0);
        assert_int_equal(lnd_sock_home(fake_lnd(), &local, &remote),
                         reactor_index(lnet_nid_home(fake_node(), &nid)));
        differ += lnd_sock_home(fake_lnd(), &local, &remote) != before[i];
    }
    assert_true(differ > 0);
    lnd_sock_ops.ni_fini(&ni);
    /* An address without NI, and IPv6. */
    local = addr_of("fd00::21");
    remote = addr_of("fd00::99");
    assert_int_equal(nid_parse("fd00::99@tcp", &nid), 0);
    assert_int_equal(lnd_sock_home(fake_lnd(), &local, &remote),
                     reactor_index(lnet_nid_home(fake_node(), &nid)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_addresses),
        TEST(test_conns_per_peer),
        cmocka_unit_test_setup_teardown(test_rx_take, setup_take, teardown),
        TEST(test_memory),
        TEST(test_listens_and_calls),
        TEST(test_link),
        TEST(test_link_at_stop),
        TEST(test_home),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
