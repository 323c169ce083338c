/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses that another station has too, and links: RFC 5227, RFC 4862 §5.4. */
#include "inet_test.h"

#include <errno.h>

static struct inet_if *ifp;
static unsigned changes;
static bool up;

static void changed(struct inet_watch *w, bool now)
{
    changes++;
    up = now;
}

static struct inet_watch watch = {.changed = changed};

static void begin_known(unsigned dad_ms, uint32_t known)
{
    ifp = known_inet(dad_ms, known);
    changes = 0;
    up = inet_if_link(ifp);
    inet_if_watch(ifp, &watch);
}

static void begin(unsigned dad_ms)
{
    begin_known(dad_ms, 0);
}

/* Of what went out: ARP questions from nowhere, announcements, and their like of IPv6. */
struct seen {
    unsigned probes4, announced4, probes6, announced6, reports, others;
};

static struct seen look(void)
{
    static const uint8_t none[16];
    struct seen s = {0};
    struct frame f;

    while (leave(&f)) {
        bool arp = get16(f.b + 12) == 0x0806;

        if (arp && memcmp(f.b + 28, none, 4) == 0)
            s.probes4++;
        else if (arp && get16(f.b + 20) == 1 && memcmp(f.b + 28, f.b + 38, 4) == 0)
            s.announced4++;
        else if (!arp && f.b[20] == 0)
            s.reports++; /* of groups: test_inet_mld.c */
        else if (!arp && f.b[54] == 135 && memcmp(f.b + 22, none, 16) == 0)
            s.probes6++;
        else if (!arp && f.b[54] == 136 && f.b[38] == 0xff)
            s.announced6++;
        else
            s.others++;
    }
    return s;
}

static void from_other(const char *sender, const char *target)
{
    struct frame f;

    make_arp(&f, all_mac, 1, third_mac, sender, NULL, target);
    arrive_on(&paper, 0, &f);
    settle();
}

/* An advertisement of another station for an address of ours; or its question from nowhere. */
static void from_other6(bool advertised, const char *target)
{
    struct inet_addr t = addr(target);
    uint8_t group[6] = {0x33, 0x33, 0, 0, 0, 1};
    char node[32];
    struct frame f;

    snprintf(node, sizeof(node), "ff02::1:ff%02x:%02x%02x", t.b[13], t.b[14], t.b[15]);
    if (!advertised) {
        group[2] = 0xff;
        memcpy(group + 3, t.b + 13, 3);
    }
    put_eth(&f, group, third_mac, 0x86dd);
    put_ip6(&f, advertised ? "fe80::3" : "::", advertised ? "ff02::1" : node, 58, 255);
    put8(&f, advertised ? 136 : 135);
    put8(&f, 0);
    put16(&f, 0);
    put32(&f, advertised ? 0x20000000 : 0);
    put(&f, t.b, 16);
    if (advertised) {
        put16(&f, 0x0201);
        put(&f, third_mac, 6);
    }
    end_ip6(&f);
    end_icmp(&f, 54);
    arrive_on(&paper, 0, &f);
    settle();
}

static int try_path(const char *local, const char *remote)
{
    struct inet_addr l = addr(local), r = addr(remote);
    struct inet_path path;
    int rc = 0;

    ON(test_reactors - 1,
       rc = inet_path_get(inet_shard_of(inet, test_reactors - 1), NULL, &l, &r, &path));
    return rc;
}

static void test_nobody_has_it(void **state)
{
    struct seen s;
    struct frame f;

    begin(INET_DAD_MS);
    assert_false(up);
    assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), -EADDRNOTAVAIL);
    make_ping4(&f, "10.0.0.2", "10.0.0.1", 8);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    make_arp(&f, all_mac, 1, peer_mac, "10.0.0.2", NULL, "10.0.0.1");
    arrive_on(&paper, 0, &f);
    pass_ms(1100);
    s = look();
    assert_int_equal(s.probes4, 3);
    assert_int_equal(s.probes6, 6); /* fd00::1 and the link-local one */
    assert_int_equal(s.announced4 + s.announced6 + s.others, 0);
    assert_int_equal(changes, 0);
    pass_ms(400);
    assert_int_equal(changes, 1);
    assert_true(up);
    assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), 0);
    pass_ms(3000);
    s = look();
    assert_int_equal(s.announced4, 2);
    assert_int_equal(s.announced6, 4);
    assert_int_equal(s.probes4 + s.probes6 + s.others, 0);
    end_inet();
}

static void test_at_once(void **state)
{
    struct seen s;

    begin(0);
    assert_true(up);
    assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), 0);
    assert_int_equal(try_path("fd00::1", "fd00::2"), 0);
    pass_ms(3000);
    s = look();
    assert_int_equal(s.probes4 + s.probes6, 0);
    assert_int_equal(s.announced4, 2);
    end_inet();
}

/* Both addresses were ours before a restart: they are used at once, and checked meanwhile. */
static void test_used_before(void **state)
{
    struct seen s;

    begin_known(INET_DAD_MS, 3);
    assert_true(up);
    assert_int_equal(inet_checking(inet), 0);
    assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), 0);
    assert_int_equal(try_path("fd00::1", "fd00::2"), 0);
    from_other("0.0.0.0", "10.0.0.1"); /* it asks before it takes it, and is told that it is ours */
    pass_ms(5000);
    s = look();
    assert_int_equal(s.probes4, 3);
    assert_int_equal(s.announced4, 2);
    assert_int_equal(s.others, 1);
    assert_true(up);
    from_other("10.0.0.1", "10.0.0.77"); /* from now on it is defended */
    assert_true(inet_if_link(ifp));
    assert_int_equal(changes, 0);
    end_inet();
}

/* Another station took one of them meanwhile: it is given up, as by a check that was waited for. */
static void test_used_before_and_taken(void **state)
{
    for (unsigned v6 = 0; v6 < 2; v6++) {
        begin_known(INET_DAD_MS, 3);
        assert_true(up);
        pass_ms(500);
        if (v6)
            from_other6(true, "fd00::1");
        else
            from_other("10.0.0.1", "10.0.0.77");
        pass_ms(2000);
        assert_false(inet_if_link(ifp));
        assert_false(up);
        assert_int_equal(try_path(v6 ? "fd00::1" : "10.0.0.1", v6 ? "fd00::2" : "10.0.0.2"),
                         -EADDRNOTAVAIL);
        assert_int_equal(drops(PKT_DROP_ARP_CONFLICT), 1);
        pass_ms(12000);
        assert_true(up);
        end_inet();
    }
}

/* Any ARP packet from the address, or another's question before it takes it. */
static void test_another_has_it(void **state)
{
    struct frame f;

    for (unsigned how = 0; how < 5; how++) {
        begin(INET_DAD_MS);
        pass_ms(500);
        if (how == 0)
            from_other("10.0.0.1", "10.0.0.77");
        else if (how == 1)
            from_other("0.0.0.0", "10.0.0.1");
        else if (how < 4)
            from_other6(how == 2, "fd00::1");
        if (how == 4) { /* the answer to a question from nowhere goes nowhere */
            make_arp(&f, our_mac, 2, third_mac, "10.0.0.1", our_mac, "0.0.0.0");
            arrive_on(&paper, 0, &f);
        }
        pass_ms(2000);
        assert_false(inet_if_link(ifp));
        assert_int_equal(
            try_path(how % 4 < 2 ? "10.0.0.1" : "fd00::1", how % 4 < 2 ? "10.0.0.2" : "fd00::2"),
            -EADDRNOTAVAIL);
        assert_int_equal(drops(PKT_DROP_ARP_CONFLICT), 1);
        /* It goes away. We ask again, and have it. */
        pass_ms(12000);
        assert_true(inet_if_link(ifp));
        assert_true(up);
        assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), 0);
        end_inet();
    }
}

/* However often another says that it has the address, it stays ours, and the other is told so once
 * in ten seconds. */
static void test_it_is_defended(void **state)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;
    struct inet_shard *sh;
    unsigned announced = 0;

    begin(0);
    pass_ms(3000);
    look();
    sh = inet_shard_of(inet, test_reactors - 1);
    ON(test_reactors - 1, assert_int_equal(inet_path_get(sh, NULL, &l, &r, &path), 0));
    for (unsigned i = 0; i < 300; i++) { /* half a minute */
        from_other("10.0.0.1", "10.0.0.77");
        announced += look().announced4;
        pass_ms(100);
        assert_true(inet_if_link(ifp));
    }
    assert_int_equal(announced, 3);
    assert_int_equal(changes, 0);
    ON(test_reactors - 1, assert_true(inet_path_valid(sh, &path)));
    assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), 0);
    end_inet();
}

static void test_who_asks_is_answered(void **state)
{
    struct frame f;

    begin(0);
    pass_ms(3000);
    look();
    from_other("0.0.0.0", "10.0.0.1");
    assert_true(leave(&f));
    assert_int_equal(get16(f.b + 20), 2);
    assert_memory_equal(f.b, third_mac, 6);
    from_other6(false, "fd00::1");
    assert_true(leave(&f));
    assert_int_equal(f.b[54], 136);
    assert_memory_equal(f.b + 38, addr("ff02::1").b, 16);
    assert_true(icmp_right(&f, 54));
    assert_false(leave(&f));
    assert_int_equal(changes, 0);
    assert_int_equal(all_drops(), 0);
    end_inet();
}

/* ---- links ---- */

static void test_link(void **state)
{
    struct seen s;

    begin(INET_DAD_MS);
    pass_ms(5000);
    assert_int_equal(changes, 1);
    look();
    paper.link = false;
    pass_ms(110);
    assert_int_equal(changes, 2);
    assert_false(up);
    pass_ms(5000);
    s = look();
    assert_int_equal(s.probes4 + s.announced4, 0);
    paper.link = true;
    pass_ms(110);
    assert_int_equal(changes, 3);
    assert_true(up);
    /* The place may be another one: it is asked and told again, and used meanwhile. */
    assert_int_equal(try_path("10.0.0.1", "10.0.0.2"), 0);
    pass_ms(5000);
    s = look();
    assert_int_equal(s.probes4, 3);
    assert_int_equal(s.announced4, 2);
    assert_int_equal(changes, 3);
    inet_if_unwatch(ifp, &watch);
    paper.link = false;
    pass_ms(110);
    assert_int_equal(changes, 3);
    end_inet();
}

static void test_many_watchers(void **state)
{
    struct inet_watch more[20];

    begin(0);
    for (unsigned i = 0; i < 20; i++) {
        more[i].changed = changed;
        inet_if_watch(ifp, &more[i]);
    }
    paper.link = false;
    pass_ms(110);
    assert_int_equal(changes, 21);
    for (unsigned i = 0; i < 20; i++)
        inet_if_unwatch(ifp, &more[i]);
    inet_if_unwatch(ifp, &watch);
    end_inet();
}

/* ---- what people are told ---- */

static void address_event(enum inet_event_kind kind, const char *cause, const char *address,
                          const uint8_t *mac, bool used)
{
    static const uint8_t none[6];
    struct inet_event e = next_event(kind, cause);
    struct inet_addr a = addr(address);

    assert_string_equal(e.ifname, "eth0");
    assert_memory_equal(e.addr.b, a.b, 16);
    assert_memory_equal(e.mac.addr_bytes, !mac ? none : mac, 6);
    assert_int_equal(e.used, used);
}

static void test_conflicts_are_told(void **state)
{
    begin(INET_DAD_MS);
    assert_int_equal(next_event(INET_EV_PORT_UP, "start").value, 10000);
    pass_ms(500);
    from_other("10.0.0.1", "10.0.0.77");
    address_event(INET_EV_ADDRESS_CONFLICT, "answered_check", "10.0.0.1", third_mac, false);
    pass_ms(1000);
    for (unsigned i = 0; i < 2; i++) { /* fd00::1 and the link-local one, in either order */
        struct inet_event e = next_event(INET_EV_ADDRESS_READY, "nobody_answered");

        assert_false(inet_is4(&e.addr));
        assert_true(e.used);
    }
    /* It is told once, however often the other one says so. */
    for (unsigned i = 0; i < 5; i++)
        from_other("10.0.0.1", "10.0.0.77");
    assert_int_equal(nhappened, 0);
    pass_ms(12000);
    address_event(INET_EV_ADDRESS_READY, "conflict_over", "10.0.0.1", NULL, true);
    from_other("10.0.0.1", "10.0.0.77");
    address_event(INET_EV_ADDRESS_CONFLICT, "used_by_another", "10.0.0.1", third_mac, true);
    from_other("10.0.0.1", "10.0.0.77");
    assert_int_equal(nhappened, 0);
    end_inet();
}

static void test_links_are_told(void **state)
{
    begin(0);
    next_event(INET_EV_PORT_UP, "start");
    paper.link = false;
    pass_ms(110);
    next_event(INET_EV_PORT_DOWN, "link_lost");
    pass_ms(1000);
    paper.link = true;
    pass_ms(110);
    assert_int_equal(next_event(INET_EV_PORT_UP, "link_back").value, 10000);
    paper.link = false;
    link_why = "no_carrier";
    pass_ms(110);
    assert_null(next_event(INET_EV_PORT_DOWN, "no_carrier").ifname);
    link_why = NULL;
    assert_int_equal(nhappened, 0);
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_has_it),         cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_another_has_it),        cmocka_unit_test(test_it_is_defended),
        cmocka_unit_test(test_who_asks_is_answered),  cmocka_unit_test(test_link),
        cmocka_unit_test(test_many_watchers),         cmocka_unit_test(test_conflicts_are_told),
        cmocka_unit_test(test_links_are_told),        cmocka_unit_test(test_used_before),
        cmocka_unit_test(test_used_before_and_taken),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
