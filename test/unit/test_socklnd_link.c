/* SPDX-License-Identifier: BSD-3-Clause */
/* The link watcher: netlink messages written by the test, and the numbers of connections by speed.
 */
#include <sys/ioctl.h>

static int test_ioctl(int fd, unsigned long what, void *arg);

#define ioctl(fd, what, arg) test_ioctl(fd, what, arg)
#include "lib/lnd_eth/socklnd/sock_link.c"
#undef ioctl

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct lnet_ni ni;
static struct sock_ni sni;
static struct sock_link *l;
static short flags;
static bool gone;
static unsigned reports;
static bool up;
static int feed[2];

static int test_ioctl(int fd, unsigned long what, void *arg)
{
    struct ifreq *req = arg;

    assert_int_equal(fd, l->sock);
    assert_int_equal(what, SIOCGIFFLAGS);
    assert_string_equal(req->ifr_name, "lo");
    req->ifr_flags = flags;
    return gone ? -1 : 0;
}

void lnet_ni_link(struct lnet_ni *which, bool is_up)
{
    assert_ptr_equal(which, &ni);
    reports++;
    up = is_up;
}

int reactor_fd_add(struct reactor_fd *f, int fd, uint32_t events, reactor_fd_fn fn)
{
    assert_ptr_equal(fn, link_event);
    f->fd = fd;
    return 0;
}

void reactor_fd_del(struct reactor_fd *f)
{
    assert_ptr_equal(f, &l->fd);
}

/* Started on the real netlink; then its socket is one end of a pair that the test writes to. */
static int setup(void **state)
{
    memset(&ni, 0, sizeof(ni));
    memset(&sni, 0, sizeof(sni));
    snprintf(ni.ifname, sizeof(ni.ifname), "lo");
    sni.base.ni = &ni;
    sni.addr.in.sin_family = AF_INET;
    sni.addr.in.sin_addr.s_addr = htonl(0x7f000001);
    l = &sni.link;
    flags = IFF_UP | IFF_RUNNING;
    gone = false;
    reports = 0;
    up = true;
    sock_link_start(&sni);
    assert_true(l->on);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, feed), 0);
    close(l->sock);
    l->sock = feed[0];
    return 0;
}

static int teardown(void **state)
{
    sock_link_stop(&sni);
    close(feed[1]);
    return 0;
}

static void tell(const void *msg, size_t len)
{
    assert_int_equal(send(feed[1], msg, len, 0), len);
    link_event(&l->fd, EPOLLIN);
}

static void tell_link(void)
{
    struct {
        struct nlmsghdr h;
        struct ifinfomsg i;
    } m = {.h = {.nlmsg_len = sizeof(m), .nlmsg_type = RTM_NEWLINK}};

    tell(&m, sizeof(m));
}

static void tell_address(uint16_t type, unsigned ifindex, uint32_t address)
{
    struct {
        struct nlmsghdr h;
        struct ifaddrmsg a;
        struct rtattr r;
        uint32_t address;
    } m = {
        .h = {.nlmsg_len = sizeof(m), .nlmsg_type = type},
        .a = {.ifa_family = AF_INET, .ifa_index = ifindex},
        .r = {.rta_len = RTA_LENGTH(4), .rta_type = IFA_LOCAL},
        .address = htonl(address),
    };

    tell(&m, sizeof(m));
}

static void expect(unsigned n, bool is_up)
{
    assert_int_equal(reports, n);
    assert_int_equal(up, is_up);
}

static void test_link(void **state)
{
    tell_link();
    expect(0, true);
    flags = IFF_UP;
    tell_link();
    expect(1, false);
    tell_link();
    expect(1, false);
    flags = IFF_UP | IFF_RUNNING;
    tell_link();
    expect(2, true);
    flags = IFF_RUNNING;
    tell_link();
    expect(3, false);
    gone = true;
    tell_link();
    expect(3, false);
    gone = false;
    flags = IFF_UP | IFF_RUNNING;
    tell_link();
    expect(4, true);
}

static void test_address(void **state)
{
    unsigned lo = if_nametoindex("lo");

    tell_address(RTM_DELADDR, lo, 0x7f000002); /* another address */
    tell_address(RTM_DELADDR, lo + 1, 0x7f000001);
    expect(0, true);
    tell_address(RTM_DELADDR, lo, 0x7f000001);
    expect(1, false);
    flags = IFF_UP;
    tell_link();
    tell_address(RTM_NEWADDR, lo, 0x7f000001);
    expect(1, false); /* back, but the link is not */
    flags |= IFF_RUNNING;
    tell_link();
    expect(2, true);
}

/* Messages cut short are read no further than they reach. */
static void test_truncated(void **state)
{
    struct nlmsghdr h = {.nlmsg_len = 200, .nlmsg_type = RTM_DELADDR};

    tell(&h, sizeof(h));
    h.nlmsg_len = sizeof(h);
    tell(&h, sizeof(h));
    h.nlmsg_len = 3;
    tell(&h, sizeof(h));
    expect(0, true);
}

static void test_address_is_here(void **state)
{
    assert_true(address_is_here(l));
    sni.addr.in.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, of nobody */
    assert_false(address_is_here(l));
}

static void test_speed(void **state)
{
    static const int rows[][2] = {
        {0, 1},     {100, 1},   {1000, 1},   {2500, 1},   {5000, 2},   {10000, 2},  {25000, 3},
        {40000, 3}, {50000, 3}, {100000, 4}, {200000, 4}, {400000, 5}, {800000, 5},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(sock_link_conns_of_speed((unsigned)rows[i][0]), rows[i][1]);
    assert_int_equal(sock_link_conns_by_speed("nosuchlink0"), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_link),
        TEST(test_address),
        TEST(test_truncated),
        TEST(test_address_is_here),
        cmocka_unit_test(test_speed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
