/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selection policies: docs/protocol/lnet-core.md §8. A comment of each test names the row of §8.1,
 * the bullet of §8.2 or the step of §7 that it is about.
 */
#include "config/nid_list.h"
#include "lib/lnet/shard/udsp.h"
#include "test/unit/lnet_rails.h"

#define FROM "10.0.0.9@tcp"

static struct lnet_udsp list[LNET_UDSPS];
static unsigned nlist;

static void parse(const char *text, struct lnet_udsp_nids *out)
{
    struct err err = {0};

    if (text && cfg_nid_expr_parse(text, out, &err) != 0)
        fail_msg("%s", err.message);
}

/* Adds a policy behind the others. NULL: not given. */
static void rule(const char *src, const char *dst, const char *rte, uint32_t priority)
{
    struct lnet_udsp *r = &list[nlist++];

    *r = (struct lnet_udsp){.priority = priority};
    parse(src, &r->src);
    parse(dst, &r->dst);
    parse(rte, &r->rte);
}

/* Puts the list in place of the policies there are, and begins another. */
static void set_rules(void)
{
    struct err err = {0};

    assert_int_equal(lnet_udsp_set(node, list, nlist, &err), 0);
    nlist = 0;
    settle();
}

static const struct lnet_udsp_info *info(const char *text, bool ours)
{
    static struct lnet_udsp_info out;
    struct lnet_nid nid = N(text);

    lnet_udsp_info(node, &nid, ours, &out);
    return &out;
}

static struct lnet_why_answer said;

static void note(void *arg, const struct lnet_why_answer *answer)
{
    said = *answer;
}

static void ask(const char *dest, const char *from)
{
    struct lnet_nid to = N(dest), src = from ? N(from) : LNET_NID_ANY;

    assert_int_equal(lnet_why(node, &to, &src, note, NULL), 0);
    settle();
}

static enum lnet_why pair_why(const struct lnet_ni *ni, const char *nid)
{
    struct lnet_nid n = N(nid);

    for (unsigned i = 0; i < said.nnis; i++)
        if (said.nis[i].index == ni->index && nid_same(&said.nis[i].peer_ni, &n))
            return said.nis[i].why;
    return LNET_WHY_COUNT;
}

static enum lnet_why route_why(const char *gw)
{
    struct lnet_nid n = N(gw);

    for (unsigned i = 0; i < said.nroutes; i++)
        if (nid_same(&said.route[i].row.conf.gateway, &n))
            return said.route[i].why;
    return LNET_WHY_COUNT;
}

/* ---- the kinds of §8.1 ---- */

/* §8.1 row 2, src = NID: local NI priority. §7.1 step 3, after health, before credits. */
static void test_ni_priority(void **state)
{
    static const char dest[] = "10.1.0.77@tcp1";

    rails_up(false);
    assert_int_equal(count(20, dest, dest, tcp1), 10);
    rule("10.1.0.2@tcp1", NULL, NULL, 0);
    set_rules();
    assert_int_equal(count(20, dest, dest, tcp1b), 20);
    ni_credits_add(tcp1b, -3);
    assert_int_equal(count(20, dest, dest, tcp1b), 20);
    ask(dest, FROM);
    assert_int_equal(pair_why(tcp1, dest), LNET_WHY_NI_PRIORITY);
    tcp1b->health = LNET_MAX_HEALTH - 1; /* health comes first */
    assert_int_equal(count(20, dest, dest, tcp1), 20);
    tcp1b->health = LNET_MAX_HEALTH;
    ni_credits_add(tcp1b, 3);
    assert_int_equal(info("10.1.0.2@tcp1", true)->nid_priority, 0);
    assert_int_equal(info("10.1.0.1@tcp1", true)->nid_priority, LNET_UDSP_NONE);
    assert_int_equal(info("10.1.0.2@tcp1", true)->net_priority, LNET_UDSP_NONE);
    set_rules(); /* none: §8.2, deleting reverts the effect */
    assert_int_equal(count(20, dest, dest, tcp1), 10);
    node_down();
}

/* §8.1 row 4, dst = NID: peer NI priority of a gateway. §7.3, after health, before credits. */
static void test_gateway_ni_priority(void **state)
{
    rails_up(true);
    assert_int_equal(count(30, TO, B, NULL), 10);
    rule(NULL, "10.1.0.102@tcp1", NULL, 5);
    set_rules();
    assert_int_equal(count(30, TO, B, NULL), 30);
    gw_ni(A)->tx_credits++;
    assert_int_equal(count(30, TO, B, NULL), 30);
    gw_ni(A)->tx_credits--;
    ask(TO, FROM);
    assert_int_equal(pair_why(tcp1, A), LNET_WHY_PEER_NI_PRIORITY);
    assert_int_equal(pair_why(ib0, C), LNET_WHY_PEER_NI_PRIORITY);
    gw_ni(B)->health = LNET_MAX_HEALTH - 1;
    assert_int_equal(count(30, TO, B, NULL), 0);
    gw_ni(B)->health = LNET_MAX_HEALTH;
    assert_int_equal(info(B, false)->nid_priority, 5);
    set_rules();
    assert_int_equal(count(30, TO, B, NULL), 10);
    node_down();
}

/* §8.1 row 5, src + dst: preferred NIs. §7.3: the NI is given, the gateway's peer NI that prefers
 * it wins, before credits and after priority. */
static void test_pair_of_gateway(void **state)
{
    struct lnet_path path;

    rails_up(true);
    rule("10.1.0.2@tcp1", "10.1.0.102@tcp1", NULL, LNET_UDSP_NONE);
    set_rules();
    gw_ni(A)->tx_credits++;
    path = sel_via(TO, tcp1b, LNET_NID_ANY);
    assert_true(goes_to(&path, B));
    path = sel_via(TO, tcp1, LNET_NID_ANY);
    assert_true(goes_to(&path, A));
    ask(TO, "10.1.0.2@tcp1");
    assert_int_equal(pair_why(tcp1b, A), LNET_WHY_PEER_NI_PREFERRED);
    gw_ni(A)->tx_credits--;
    assert_int_equal(info(B, false)->nsources, 1);
    assert_true(nid_same(&info(B, false)->source[0], &tcp1b->nid));
    assert_int_equal(info(A, false)->nsources, 0);
    rule("10.1.0.2@tcp1", "10.1.0.102@tcp1", NULL, LNET_UDSP_NONE);
    rule(NULL, "10.1.0.101@tcp1", NULL, 0);
    set_rules();
    path = sel_via(TO, tcp1b, LNET_NID_ANY);
    assert_true(goes_to(&path, A));
    node_down();
}

/* §8.1 row 6, dst + rte: preferred gateways. §7.4, before the priority of the route. The
 * destination may be a net, or NIDs of it. */
static void test_router(void **state)
{
    static const char one[] = "10.5.0.1@tcp5", two[] = "10.5.0.2@tcp5";

    rails_up(false);
    assert_int_equal(route_add("tcp5", N(D), 1, 0), 0);
    assert_int_equal(route_add("tcp5", N(E), 1, 0), 0);
    assert_int_equal(route_add("tcp5", N(F), 1, 1), 0);
    settle();
    assert_int_equal(count(20, one, D, NULL), 10);
    rule(NULL, "tcp5", E, LNET_UDSP_NONE);
    set_rules();
    assert_int_equal(count(20, one, E, NULL), 20);
    ask(one, FROM);
    assert_int_equal(route_why(D), LNET_WHY_GATEWAY_PREFERRED);
    assert_int_equal(route_why(E), LNET_WHY_CHOSEN);
    rule(NULL, "10.5.0.[2-4]@tcp5", F, LNET_UDSP_NONE);
    set_rules();
    assert_int_equal(count(20, one, D, NULL), 10);
    assert_int_equal(count(20, two, F, NULL), 20); /* before priority 0 of others */
    assert_int_equal(info(two, false)->ngateways, 1);
    assert_int_equal(info(one, false)->ngateways, 0);
    gw_ni(F)->ping_down_us = clock_us; /* one that is down is not chosen */
    assert_int_equal(count(20, two, D, NULL), 10);
    gw_ni(F)->ping_down_us = 0;
    /* The lowest index that names a gateway holds; §8.2. */
    rule(NULL, "tcp5", "10.9.9.9@tcp1", LNET_UDSP_NONE);
    rule(NULL, "*@tcp5", "10.1.0.[111-112]@tcp1", LNET_UDSP_NONE);
    rule(NULL, "*@tcp5", F, LNET_UDSP_NONE);
    set_rules();
    assert_int_equal(count(20, two, D, NULL), 10);
    assert_int_equal(count(20, two, E, NULL), 10);
    set_rules();
    assert_int_equal(count(20, two, F, NULL), 0);
    assert_int_equal(count(20, two, E, NULL), 10);
    node_down();
}

/* ---- messages of this node ---- */

static struct lnet_ni *chosen_src;

static struct lnet_nid own(const char *dest)
{
    struct lnet_nid d = N(dest), out;

    ON(0, out = lnet_select_nid(node->shard[0], &d, &chosen_src));
    return out;
}

static unsigned own_count(unsigned n, const char *dest, const char *nid)
{
    struct lnet_nid want = N(nid);
    unsigned k = 0;

    while (n-- > 0) {
        struct lnet_nid got = own(dest);

        k += nid_same(&got, &want);
    }
    return k;
}

static struct peer_ni *ni_of(const char *text)
{
    struct lnet_nid nid = N(text);

    return peer_table_find_ni(node->peers, &nid);
}

/* §8.1 row 1, src = net, and row 3, dst = net. §7.2: health, peer net priority, local net health,
 * local net priority, then turns. */
static void test_net_priority(void **state)
{
    static const char p[] = "10.0.0.50@tcp", q[] = "10.1.0.50@tcp1";

    rails_up(false);
    peer_add(p, p);
    peer_add(p, q);
    assert_int_equal(own_count(20, p, q), 10);
    rule("tcp1", NULL, NULL, 7);
    set_rules();
    assert_int_equal(own_count(20, p, q), 20);
    assert_int_equal(info("10.1.0.1@tcp1", true)->net_priority, 7);
    assert_int_equal(info("10.0.0.1@tcp", true)->net_priority, LNET_UDSP_NONE);
    tcp1->health = tcp1b->health = LNET_MAX_HEALTH - 1; /* comes before the priority of our net */
    assert_int_equal(own_count(20, p, p), 20);
    rule(NULL, "tcp1", NULL, 3); /* and the priority of the peer net before that */
    set_rules();
    assert_int_equal(own_count(20, p, q), 20);
    assert_int_equal(info(q, false)->net_priority, 3);
    assert_int_equal(info(q, false)->nid_priority, LNET_UDSP_NONE);
    tcp1->health = tcp1b->health = LNET_MAX_HEALTH;
    ni_of(q)->health = LNET_MAX_HEALTH - 1;
    assert_int_equal(own_count(20, p, p), 20);
    ni_of(q)->health = LNET_MAX_HEALTH;
    set_rules();
    assert_int_equal(own_count(20, p, q), 10);
    node_down();
}

/* §7.5: the priority of a remote net. §7.3: of a peer NI behind a gateway. §8.1 rows 3 and 4. */
static void test_remote_net(void **state)
{
    static const char p[] = "10.5.0.60@tcp5", q[] = "10.6.0.60@tcp6", r[] = "10.6.0.61@tcp6";

    rails_up(false);
    peer_add(p, p);
    peer_add(p, q);
    peer_add(p, r);
    assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
    assert_int_equal(route_add("tcp6", N(C), 1, 0), 0);
    settle();
    assert_int_equal(own_count(20, p, p), 10);
    rule(NULL, "tcp6", NULL, 0);
    rule(NULL, "*.*.*.61@tcp6", NULL, 0);
    set_rules();
    assert_int_equal(own_count(20, p, r), 20);
    ni_of(r)->health = LNET_MAX_HEALTH - 1;
    assert_int_equal(own_count(20, p, q), 20);
    node_down();
}

/* §8.1 row 5 for peers of the table. §7.3: the NI is chosen first; of the peer NIs the one that
 * prefers it wins. §7.6: a peer that is not multi-rail determines the NI. */
static void test_pair_of_peer(void **state)
{
    static const char p[] = "10.1.0.50@tcp1", q[] = "10.1.0.51@tcp1", single[] = "10.1.0.60@tcp1";
    static const char far[] = "10.5.0.70@tcp5", multi[] = "10.1.0.80@tcp1";

    rails_up(false);
    peer_add(p, p);
    peer_add(p, q);
    peer_add(multi, multi);
    rule("10.1.0.2@tcp1", q, NULL, LNET_UDSP_NONE);
    rule("10.1.0.1@tcp1", multi, NULL, LNET_UDSP_NONE);
    rule("10.1.0.1@tcp1", single, NULL, LNET_UDSP_NONE);
    rule("10.2.0.1@o2ib", far, NULL, LNET_UDSP_NONE);
    set_rules();
    ni_credits_add(tcp1, -1);
    assert_int_equal(own_count(20, p, q), 20);
    assert_ptr_equal(chosen_src, tcp1b);
    ni_credits_add(tcp1, 2);
    assert_int_equal(own_count(20, p, q), 10);
    assert_ptr_equal(chosen_src, tcp1);
    ni_credits_add(tcp1, -2); /* the other one has more, and is not preferred */
    own(single);
    assert_ptr_equal(chosen_src, tcp1);
    ask(single, NULL);
    assert_int_equal(pair_why(tcp1b, single), LNET_WHY_NI_PREFERRED);
    assert_int_equal(pair_why(tcp1, single), LNET_WHY_CHOSEN);
    own(multi); /* multi-rail, though with one NID: the NI is chosen first */
    assert_ptr_equal(chosen_src, tcp1b);
    tcp1->fatal = true;
    own(single);
    assert_null(chosen_src);
    tcp1->fatal = false;
    /* It restricts the net of the gateway. */
    assert_int_equal(route_add("tcp5", N(D), 1, 0), 0);
    assert_int_equal(route_add("tcp5", N("10.2.0.112@o2ib"), 1, 1), 0);
    settle();
    own(far);
    assert_ptr_equal(chosen_src, ib0);
    assert_int_equal(count(10, "10.1.0.60@tcp1", "10.1.0.60@tcp1", tcp1b),
                     10); /* forwarded: §7.1 */
    node_down();
}

/* ---- expressions ---- */

static bool nid_fits(const char *expr, const char *nid)
{
    struct lnet_udsp_nids e = {0};
    struct lnet_nid n = N(nid);

    parse(expr, &e);
    return lnet_udsp_has_nid(&e, &n);
}

static bool net_fits(const char *expr, const char *net)
{
    struct lnet_udsp_nids e = {0};
    lnet_net_t n;

    parse(expr, &e);
    assert_int_equal(net_parse(net, &n), 0);
    return lnet_udsp_has_net(&e, n);
}

/* §1.5 last bullets, §8.1: the last paragraph. */
static void test_expressions(void **state)
{
    static const char *const bad[] = {
        "",      "tcp*[1]", "tcp1[2-3]",      "tcp[3-1]", "10.0.0@tcp", "nonsense",
        "tcp[1", "@tcp",    "10.0.0.300@tcp", "* @tcp",   "tcp[70000]"};

    assert_true(net_fits("tcp", "tcp"));
    assert_false(net_fits("tcp", "tcp1"));
    assert_false(net_fits("tcp", "o2ib"));
    assert_true(net_fits("o2ib3", "o2ib3"));
    assert_true(net_fits("tcp*", "tcp") && net_fits("tcp*", "tcp65535"));
    assert_true(net_fits("tcp[1-3,9]", "tcp2") && net_fits("tcp[1-3,9]", "tcp9"));
    assert_false(net_fits("tcp[1-3,9]", "tcp4"));
    assert_true(net_fits("tcp[1-9/2]", "tcp3") && !net_fits("tcp[1-9/2]", "tcp4"));
    assert_true(nid_fits("*@tcp1", "10.0.0.1@tcp1") && !nid_fits("*@tcp1", "10.0.0.1@tcp"));
    assert_true(nid_fits("10.1.1.[1-5]@tcp[1-2]", "10.1.1.5@tcp2"));
    assert_false(nid_fits("10.1.1.[1-5]@tcp[1-2]", "10.1.1.6@tcp2"));
    assert_false(nid_fits("tcp1", "10.0.0.1@tcp1")); /* a net names no NIDs */
    assert_true(nid_fits("[1-4]@kfi", "3@kfi"));
    assert_true(nid_fits("10.1.0.0/16@tcp*", "10.1.9.9@tcp7"));
    /* Octets are compared with the first word of a large address. */
    assert_true(nid_fits("253.0.*.*@tcp", "fd00:7::1@tcp"));
    assert_true(nid_fits("fd00:7::/32@tcp1", "fd00:7::1@tcp1"));
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct lnet_udsp_nids e;
        struct err err = {0};

        if (cfg_nid_expr_parse(bad[i], &e, &err) != -EINVAL)
            fail_msg("'%s' was accepted", bad[i]);
    }
}

/* §8.1 row 7 and the paragraph below it: rules that are no kind, and pair rules whose src is a net,
 * match nothing. */
static void test_no_kind(void **state)
{
    rails_up(true);
    rule(NULL, NULL, B, 0);
    rule("*@tcp1", NULL, B, 0);
    rule("*@tcp1", "tcp5", B, 0);
    rule("tcp1", B, NULL, 0);
    set_rules();
    assert_int_equal(count(30, TO, B, NULL), 10);
    assert_int_equal(info(B, false)->nid_priority, LNET_UDSP_NONE);
    assert_int_equal(info(B, false)->nsources, 0);
    assert_int_equal(info(TO, false)->ngateways, 0);
    assert_int_equal(info("10.1.0.1@tcp1", true)->net_priority, LNET_UDSP_NONE);
    node_down();
}

/* ---- §8.2 ---- */

/* §8.2, first bullet: the lowest index wins, for priorities and for lists. */
static void test_lowest_index(void **state)
{
    rails_up(true);
    rule(NULL, B, NULL, 4);
    rule(NULL, "*@tcp1", NULL, 2);
    rule("10.77.0.1@tcp1", A, NULL, LNET_UDSP_NONE); /* sets nothing: there is no such NI */
    rule("10.1.0.1@tcp1", A, NULL, LNET_UDSP_NONE);
    rule("10.1.0.2@tcp1", "*@tcp1", NULL, LNET_UDSP_NONE);
    set_rules();
    assert_int_equal(info(B, false)->nid_priority, 4);
    assert_int_equal(info(A, false)->nid_priority, 2);
    assert_int_equal(count(30, TO, A, NULL), 30);
    assert_true(nid_same(&info(A, false)->source[0], &tcp1->nid));
    assert_true(nid_same(&info(B, false)->source[0], &tcp1b->nid));
    assert_int_equal(info(A, false)->nsources, 1);
    node_down();
}

static int added;

static void on_added(void *arg, int rc, const struct err *err)
{
    added = rc;
}

/* §8.2, second bullet: policies hold for what is created later: an NI, a gateway's NID, a peer. */
static void test_created_later(void **state)
{
    static const char p[] = "10.0.0.50@tcp", q[] = "10.0.0.51@tcp";
    struct lnet_ni_conf conf = {.net = LNET_NET(LNET_LND_SOCK, 1),
                                .nid = N("10.1.0.3@tcp1"),
                                .tun = {-1, -1, -1, -1},
                                .lnd_tun = LND_TUNABLES_DEFAULT};
    struct lnet_nid nid = conf.nid;
    struct err err = {0};

    rails_up(false);
    rule("10.1.0.3@tcp1", NULL, NULL, 0);
    rule(NULL, "10.1.0.102@tcp1", NULL, 0);
    rule(NULL, q, NULL, 0);
    set_rules();
    added = 1;
    assert_int_equal(lnet_ni_add_live(node, &conf, on_added, NULL, &err), 0);
    settle();
    assert_int_equal(added, 0);
    assert_int_equal(count(20, "10.1.0.77@tcp1", "10.1.0.77@tcp1", lnet_ni_find(node, &nid)), 20);
    peer_add(A, A);
    assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
    settle();
    pass(SEC);
    assert_int_equal(count(20, TO, A, NULL), 20);
    peer_add(A, B);
    pass(SEC);
    assert_int_equal(count(20, TO, B, NULL), 20);
    peer_add(p, p);
    assert_int_equal(own_count(4, p, p), 4);
    peer_add(p, q);
    assert_int_equal(own_count(20, p, q), 20);
    node_down();
}

/* A destination on a net that is not configured does no harm: §12.2, tests 400 to 404. */
static void test_other_net(void **state)
{
    rails_up(true);
    rule(NULL, "o2ib9", NULL, 0);
    rule(NULL, "*@o2ib9", B, LNET_UDSP_NONE);
    rule("*@o2ib9", "*@o2ib8", NULL, LNET_UDSP_NONE);
    set_rules();
    assert_int_equal(count(30, TO, B, NULL), 10);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_ni_priority),     LNET_TEST(test_gateway_ni_priority),
    LNET_TEST(test_pair_of_gateway), LNET_TEST(test_router),
    LNET_TEST(test_net_priority),    LNET_TEST(test_remote_net),
    LNET_TEST(test_pair_of_peer),    cmocka_unit_test(test_expressions),
    LNET_TEST(test_no_kind),         LNET_TEST(test_lowest_index),
    LNET_TEST(test_created_later),   LNET_TEST(test_other_net),
};

LNET_TESTS_MAIN("test-lnet-udsp", tests)
