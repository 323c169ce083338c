/* SPDX-License-Identifier: BSD-3-Clause */
/* A node with two NIs on a net, and a gateway with several NIDs: for test_lnet_rails*.c. */
#ifndef MILLRACE_LNET_RAILS_H
#define MILLRACE_LNET_RAILS_H

#include "lib/base/err.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/ping/ping_internal.h"
#include "lib/lnet/route/route_internal.h"
#include "test/unit/lnet_test.h"

#define A  "10.1.0.101@tcp1"
#define B  "10.1.0.102@tcp1"
#define C  "10.2.0.103@o2ib"
#define TO "10.5.0.1@tcp5"
#define D  "10.1.0.111@tcp1"
#define E  "10.1.0.112@tcp1"
#define F  "10.1.0.113@tcp1"

static struct lnet_ni *tcp1b;
static unsigned ping_timeout = 50;

static inline void peer_add(const char *primary, const char *nid)
{
    struct lnet_nid p = N(primary), n = N(nid);

    assert_int_equal(peer_table_add(node->peers, &p, &n, PEER_MULTI_RAIL), 0);
}

static inline void rails_up(bool gateway)
{
    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    tcp1b = ni_add("10.1.0.2@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    node->timing.ping_timeout = ping_timeout;
    node_begin();
    if (!gateway)
        return;
    peer_add(A, A);
    peer_add(A, B);
    peer_add(A, C);
    peer_add(A, "10.5.0.200@tcp5"); /* not one of our nets */
    assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
    settle();
    pass(SEC);
}

static inline struct lnet_gw_ni *gw_ni(const char *nid)
{
    struct lnet_nid n = N(nid);
    struct lnet_gw_ni *ni = lnet_gw_ni_find(node, &n);

    assert_non_null(ni);
    return ni;
}

static inline struct lnet_path sel_via(const char *dest, struct lnet_ni *src, struct lnet_nid via)
{
    struct lnet_nid d = N(dest);
    struct lnet_path path = {0};
    enum lnet_drop why;

    ON(0, why = lnet_select(node->shard[0], &d, &via, src, &path));
    if (why)
        path.next_hop = LNET_NID_ANY;
    return path;
}

static inline struct lnet_path sel(const char *dest)
{
    return sel_via(dest, NULL, LNET_NID_ANY);
}

static inline bool goes_to(const struct lnet_path *path, const char *nid)
{
    struct lnet_nid n = N(nid);

    return nid_same(&path->next_hop, &n);
}

/* Of n messages to dest, how many go to a NID, by an NI (NULL: any). */
static inline unsigned count(unsigned n, const char *dest, const char *nid,
                             const struct lnet_ni *ni)
{
    unsigned k = 0;

    while (n-- > 0) {
        struct lnet_path path = sel(dest);

        k += goes_to(&path, nid) && (!ni || path.ni == ni);
    }
    return k;
}

static inline void ni_credits_add(const struct lnet_ni *ni, int n)
{
    for (unsigned i = 0; i < nreactors; i++)
        node->shard[i]->ni_credits[ni->index] += n;
}

/* ---- the peers of the node ---- */

static inline void notify(const struct lnet_ni *ni, const char *nid, bool up)
{
    struct lnet_nid n = N(nid);
    struct lnet_peer_ni *p = peer_find(&n);

    ON(home_of(&n), lnet_peer_ni_notify((struct lnet_ni *)ni, p, up));
    settle();
}

static inline const struct sent *last_ping_to(const char *nid)
{
    struct lnet_nid n = N(nid);

    for (unsigned i = loop.nsent; i-- > 0;)
        if (loop.sent[i].hdr.type == LNET_MSG_GET && nid_same(&loop.sent[i].hdr.dest_nid, &n))
            return &loop.sent[i];
    return NULL;
}

/* What the gateway says of itself; down: of B. */
static inline struct lnet_ping_info *gw_info(bool down)
{
    static const char *const nids[] = {A, B, C, "10.5.0.200@tcp5"};
    static struct lnet_ping_info info;

    info = (struct lnet_ping_info){.features = 0x1a, .pid = PID, .seqno = 1, .count = 4};
    for (unsigned i = 0; i < 4; i++) {
        info.ni[i].nid = N(nids[i]);
        info.ni[i].status = down && i == 1 ? LNET_NI_DOWN : LNET_NI_UP;
    }
    return &info;
}

/* ---- what peers answer ---- */

/* The info of a router with these NIDs. */
static inline struct lnet_ping_info info_of(uint32_t seqno, const char *a, const char *b)
{
    struct lnet_ping_info info = {.features = 0x1a, .pid = PID, .seqno = seqno, .count = b ? 2 : 1};

    info.ni[0] = (struct lnet_ping_ni){.nid = N(a), .status = LNET_NI_UP};
    if (b)
        info.ni[1] = (struct lnet_ping_ni){.nid = N(b), .status = LNET_NI_UP};
    return info;
}

/* Answers a ping as a node with these NIDs. */
static inline void answer(const struct sent *get, uint32_t seqno, const char *a, const char *b)
{
    struct lnet_ping_info info = info_of(seqno, a, b);
    uint8_t data[256];

    assert_non_null(get);
    reply_to(get, data, (uint32_t)lnet_ping_encode(&info, data, sizeof(data)));
}

static inline const struct peer *peer_of(const char *nid)
{
    struct lnet_nid n = N(nid);

    return peer_table_find(node->peers, &n);
}

/* A gateway D that is not configured, and answered with a list of NIDs. */
static inline void gateway_lists(const char *a, const char *b)
{
    rails_up(false);
    assert_int_equal(route_add("tcp5", N(D), 2, 0), 0);
    settle();
    pass(SEC);
    answer(last_ping_to(D), 1, a, b);
}

static inline bool pinged_within(const char *nid, unsigned seconds)
{
    while (!last_ping_to(nid) && seconds-- > 0)
        pass(SEC);
    return last_ping_to(nid) != NULL;
}

static inline unsigned pings_to(const char *nid)
{
    struct lnet_nid n = N(nid);
    unsigned k = 0;

    for (unsigned i = 0; i < loop.nsent; i++)
        k += loop.sent[i].hdr.type == LNET_MSG_GET && nid_same(&loop.sent[i].hdr.dest_nid, &n);
    return k;
}

#endif
