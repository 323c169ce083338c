/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of neighbours share: their states, ARP packets of stations, and questions of ours.
 */
#ifndef MILLRACE_INET_NEIGH_TEST_H
#define MILLRACE_INET_NEIGH_TEST_H

#include "inet_test.h"

static inline const char *state_of(const char *text)
{
    struct inet_neigh_row rows[64];
    struct inet_addr a = addr(text);
    uint32_t at = 0;
    unsigned n;

    while ((n = inet_neigh_rows(inet_shard_of(inet, 0), &at, rows, RTE_DIM(rows))) > 0)
        for (unsigned i = 0; i < n; i++)
            if (inet_same(&rows[i].addr, &a))
                return rows[i].state;
    return "none";
}

static inline unsigned row_count(void)
{
    struct inet_neigh_row rows[64];
    unsigned n, sum = 0;
    uint32_t at = 0;

    while ((n = inet_neigh_rows(inet_shard_of(inet, 0), &at, rows, RTE_DIM(rows))) > 0)
        sum += n;
    return sum;
}

/* An ARP packet from a station arrives, to us alone or to all. */
static inline void hear(unsigned op, const uint8_t *mac, const char *ip, const char *target,
                        bool to_all)
{
    struct frame f;

    make_arp(&f, to_all ? all_mac : our_mac, op, mac, ip, op == 2 ? our_mac : NULL, target);
    arrive_on(&paper, 0, &f);
    settle();
}

/* The next frame out is a question for ip, to all or to one station. */
static inline void expect_question(const char *ip, const uint8_t *to)
{
    struct frame f;

    if (!leave(&f))
        fail_msg("nobody was asked");
    assert_int_equal(get16(f.b + 12), 0x0806);
    assert_int_equal(f.len, 42);
    assert_memory_equal(f.b, to, 6);
    assert_int_equal(get16(f.b + 20), 1);
    assert_memory_equal(f.b + 28, addr("10.0.0.1").b + 12, 4);
    assert_memory_equal(f.b + 38, addr(ip).b + 12, 4);
}

static inline void expect_tcp(const uint8_t *to, unsigned payload)
{
    struct frame f;

    if (!leave(&f))
        fail_msg("nothing was sent");
    assert_int_equal(get16(f.b + 12), 0x0800);
    assert_memory_equal(f.b, to, 6);
    assert_int_equal(f.len, 54 + payload);
}

static inline void expect_nothing(void)
{
    struct frame f;

    assert_false(leave(&f));
}

/* 10.0.0.2 is known at peer_mac, and nothing is left to look at. */
static inline void know_peer(void)
{
    send_tcp(0, "10.0.0.1", "10.0.0.2", 0);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    paper_clear(&paper);
}

static inline void send_to(const struct inet_addr *to, bool own)
{
    struct inet_addr local = addr("10.0.0.1");
    struct inet_path path;
    struct rte_mbuf *m;

    ON(0, {
        struct inet_shard *sh = inet_shard_of(inet, 0);

        assert_int_equal(inet_path_get(sh, NULL, &local, to, &path), 0);
        path.own = own;
        m = inet_alloc(sh, &path);
        memset(rte_pktmbuf_append(m, 20), 0, 20);
        m->l4_len = 20;
        inet_send(sh, &path, m, 6, 0);
    });
}

static inline void confirm_peer(void)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;

    ON(0, assert_int_equal(inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path), 0));
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    paper_clear(&paper);
    ON(0, {
        path.neigh = neigh_find(inet_shard_of(inet, 0), path.ifp, &r);
        inet_path_confirm(inet_shard_of(inet, 0), &path);
    });
}

#endif
