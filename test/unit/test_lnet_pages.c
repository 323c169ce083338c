/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages of peers: each peer once, however many reactors have them and whoever comes and goes. */
#include <errno.h>
#include <sys/resource.h>

#include "test/unit/lnet_test.h"

struct page {
    struct lnet_peer_ni_cursor next;
    struct lnet_nid nid[LNET_PEER_PAGE_MAX];
    unsigned n, calls;
};

static void on_page(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                    const struct lnet_peer_ni_cursor *next)
{
    struct page *p = arg;

    assert_ptr_equal(reactor_self(), reactor_control(env));
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(rows[i].reactor, home_of(&rows[i].nid));
        p->nid[i] = rows[i].nid;
    }
    p->n = n;
    p->calls++;
    p->next = *next;
}

static unsigned times(const struct lnet_nid *all, unsigned n, const struct lnet_nid *nid)
{
    unsigned k = 0;

    for (unsigned i = 0; i < n; i++)
        k += nid_same(&all[i], nid);
    return k;
}

static void make_peer(struct lnet_nid nid)
{
    ON(home_of(&nid), lnet_peer_ni_put(lnet_peer_ni_get(node, &nid)));
}

/* Pages of any size show each peer once, also when others come and go between them. */
static void test_pages(void **state)
{
    static struct lnet_nid all[4096];
    static struct page p;
    static const unsigned sizes[] = {1, 7, LNET_PEER_BURST, LNET_PEER_BURST + 1, 100, 1000};
    struct lnet_node_opts o = opts_default();
    unsigned k, n;

    o.max_peers = 300 * nreactors;
    node_up(o);
    for (unsigned i = 0; i < 200 * nreactors; i++)
        make_peer(peer_on(i, 4, "tcp", i / nreactors));
    for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        memset(&p.next, 0, sizeof(p.next));
        n = 0;
        do {
            struct lnet_peer_ni_cursor from = p.next;

            p.calls = 0;
            assert_int_equal(lnet_peer_ni_page(node, &from, sizes[k], on_page, &p), 0);
            settle();
            assert_int_equal(p.calls, 1);
            assert_true(p.n == sizes[k] || p.next.end);
            memcpy(&all[n], p.nid, p.n * sizeof(p.nid[0]));
            n += p.n;
        } while (!p.next.end);
        assert_int_equal(n, 200 * nreactors);
        for (unsigned i = 0; i < 200 * nreactors; i++) {
            struct lnet_nid nid = peer_on(i, 4, "tcp", i / nreactors);

            assert_int_equal(times(all, n, &nid), 1);
        }
    }
    /* others come, and the oldest go, between pages */
    memset(&p.next, 0, sizeof(p.next));
    n = 0;
    k = 0;
    do {
        struct lnet_peer_ni_cursor from = p.next;

        assert_int_equal(lnet_peer_ni_page(node, &from, 10, on_page, &p), 0);
        settle();
        memcpy(&all[n], p.nid, p.n * sizeof(p.nid[0]));
        n += p.n;
        for (unsigned i = 0; i < 5 * nreactors; i++, k++)
            make_peer(peer_on(i, 5, "tcp", k / nreactors));
    } while (!p.next.end && n < 4000);
    assert_true(p.next.end);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(times(all, n, &all[i]), 1);
    node_down();
}

static void test_page_rules(void **state)
{
    static struct page p;
    struct lnet_peer_ni_cursor from = {0};
    struct lnet_nid nid;

    node_up(opts_default());
    assert_int_equal(lnet_peer_ni_page(node, &from, 0, on_page, &p), -EINVAL);
    assert_int_equal(lnet_peer_ni_page(node, &from, LNET_PEER_PAGE_MAX + 1, on_page, &p), -EINVAL);
    from.reactor = nreactors;
    assert_int_equal(lnet_peer_ni_page(node, &from, 1, on_page, &p), -EINVAL);
    from = (struct lnet_peer_ni_cursor){.end = true};
    assert_int_equal(lnet_peer_ni_page(node, &from, 1, on_page, &p), -EINVAL);
    from = (struct lnet_peer_ni_cursor){.slot = UINT32_MAX};
    p.calls = 0;
    assert_int_equal(lnet_peer_ni_page(node, &from, 1, on_page, &p), 0);
    settle();
    assert_int_equal(p.calls, 1);
    /* one */
    nid = peer_on(1, 4, "tcp", 0);
    p.calls = 0;
    assert_int_equal(lnet_peer_ni_find(node, &nid, on_page, &p), 0);
    settle();
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.n, 0);
    assert_true(p.next.end);
    make_peer(nid);
    assert_int_equal(lnet_peer_ni_find(node, &nid, on_page, &p), 0);
    settle();
    assert_int_equal(p.n, 1);
    assert_true(nid_same(&p.nid[0], &nid));
    node_down();
}

/* A reactor is never asked for more than a few rows at a time. */
static void test_burst(void **state)
{
    static struct page p;
    struct lnet_node_opts o = opts_default();
    struct lnet_peer_ni_cursor from = {0};
    unsigned steps = 0;

    o.max_peers = 1000 * nreactors;
    node_up(o);
    for (unsigned i = 0; i < 640; i++)
        make_peer(peer_on(0, 4, "tcp", i));
    p.calls = 0;
    assert_int_equal(lnet_peer_ni_page(node, &from, 640, on_page, &p), 0);
    while (p.calls == 0) {
        step_all();
        steps++;
    }
    assert_int_equal(p.n, 640);
    assert_true(steps >= 640 / LNET_PEER_BURST);
    node_down();
}

/* Where the rows of a page are put is there before reactors write to it: none of them waits for the
 * kernel to find memory. */
static void test_no_faults(void **state)
{
    enum {
        PEERS = 640
    };
    static struct page p;
    struct lnet_node_opts o = opts_default();
    struct lnet_peer_ni_cursor from = {0};
    const long pages = (long)(PEERS * sizeof(struct lnet_peer_ni_row)) / sysconf(_SC_PAGESIZE);
    struct rusage before, after;

    o.max_peers = 1000 * nreactors;
    node_up(o);
    for (unsigned i = 0; i < PEERS; i++)
        make_peer(peer_on(0, 4, "tcp", i));
    p.calls = 0;
    assert_int_equal(lnet_peer_ni_page(node, &from, 1, on_page, &p), 0); /* all code has run once */
    settle();
    assert_int_equal(p.calls, 1);
    from = (struct lnet_peer_ni_cursor){0};
    assert_int_equal(lnet_peer_ni_page(node, &from, LNET_PEER_PAGE_MAX, on_page, &p), 0);
    assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
    for (unsigned i = 0; i < PEERS / LNET_PEER_BURST; i++)
        ON(0, reactor_step(reactor_self(), 0));
    assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
    settle();
    assert_int_equal(p.calls, 2);
    assert_int_equal(p.n, PEERS);
    assert_true(pages > 16);
    assert_in_range(after.ru_minflt - before.ru_minflt, 0, pages / 4);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_pages),
    LNET_TEST(test_page_rules),
    LNET_TEST(test_burst),
    LNET_TEST(test_no_faults),
};

LNET_TESTS_MAIN("test_lnet_pages", tests)
