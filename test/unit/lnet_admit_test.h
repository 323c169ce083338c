/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of admission share: messages from many senders to many next hops, all of them at
 * home on reactor 0, where the sends are held. */
#ifndef MILLRACE_LNET_ADMIT_TEST_H
#define MILLRACE_LNET_ADMIT_TEST_H

#include "test/unit/lnet_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

/* ---- messages ---- */

static inline void admit_up(unsigned small, unsigned share)
{
    struct lnet_node_opts o = opts_default();

    o.tiny = o.small = small * nreactors;
    o.egress_share = share;
    o.max_peers = 1024;
    node_up(o);
    loop.hold_send = true;
}

static inline struct lnet_nid sender(unsigned k)
{
    return peer_on(0, 0, "tcp", k);
}

static inline struct lnet_nid hop(unsigned k)
{
    return peer_on(0, 1, "tcp1", k);
}

static inline struct peer_msg *from_to(struct lnet_nid from, struct lnet_nid to, uint32_t type,
                                       uint32_t len)
{
    struct peer_msg *fx = arrive(tcp0, from, hdr_of(type, from, to, len));

    assert_int_equal(fx->parse, LNET_DROP_NONE);
    settle();
    return fx;
}

/* Each from another sender, so that router credits are no matter. */
static inline struct peer_msg *put(struct lnet_nid to, uint32_t len)
{
    static unsigned k;

    return from_to(sender(k++ % 200), to, LNET_MSG_PUT, len);
}

static inline struct lnet_pool_stats small_pool(void)
{
    return pool_stats(0, LNET_POOL_SMALL);
}

/* Ends a held send by the length of its payload. */
static inline void end(uint32_t len)
{
    unsigned i;

    for (i = 0; i < loop.nheld; i++)
        if (loop.held[i]->hdr.payload_len == len) {
            send_end(loop.held[i], ok);
            settle();
            return;
        }
    fail_msg("no message of %u bytes is held", len);
}

/* Until nothing waits any more. */
static inline void end_all(void)
{
    while (loop.nheld > 0) {
        send_end_all(ok);
        settle();
    }
    check_quiet();
}

/* Sends to a next hop that hangs until one has to wait; that one's connection closes again. Says
 * how many are in. */
static inline unsigned hang(struct lnet_nid to, uint32_t len)
{
    unsigned n;

    for (n = 0;; n++) {
        struct peer_msg *fx = put(to, len);

        if (fx->recvs)
            continue;
        assert_true(rx_cancel(fx));
        return n;
    }
}

/* Fills with one message for each of many next hops, from the 100th on. Says how many are in. */
static inline unsigned fill(uint32_t len)
{
    unsigned n;

    for (n = 0;; n++) {
        struct peer_msg *fx = put(hop(100 + n), len);

        if (fx->recvs)
            continue;
        assert_true(rx_cancel(fx));
        return n;
    }
}

static inline void check_example(enum lnet_drop why, const struct peer_msg *fx)
{
    struct lnet_drop_example e;

    lnet_drop_example_get(node, why, &e);
    assert_true(e.seen && e.has_peer && e.has_hdr);
    assert_true(nid_same(&e.peer, &fx->in.from));
    assert_true(nid_same(&e.dest, &fx->in.rx.hdr.dest_nid));
    assert_int_equal(e.payload_len, fx->in.rx.hdr.payload_len);
    assert_int_equal(e.ni, (int)tcp0->index);
}

static inline void check_discarded(const struct peer_msg *fx)
{
    assert_int_equal(fx->recvs, 1);
    assert_int_equal(fx->in.mlen, 0);
    assert_true(fx->done);
}

/* ---- gateways ---- */

static inline struct lnet_nid gateway(unsigned k)
{
    return peer_on(0, 1, "tcp1", 300 + k);
}

/* Net tcp<50 + k> lies behind gateway k. */
static inline struct lnet_nid behind(unsigned k)
{
    char text[64];

    snprintf(text, sizeof(text), "10.50.0.%u@tcp%u", 1 + k, 50 + k);
    return N(text);
}

static inline void gateways_up(unsigned small, unsigned share, unsigned n)
{
    struct lnet_node_opts o = opts_default();
    char net[32];
    unsigned k;

    o.small = small * nreactors;
    o.tiny = 1024 * nreactors;
    o.egress_share = share;
    o.max_peers = 1024;
    node_up(o);
    for (k = 0; k < n; k++) {
        snprintf(net, sizeof(net), "tcp%u", 50 + k);
        assert_int_equal(route_add(net, gateway(k), -1, 0), 0);
    }
    settle();
    loop.hold_send = true;
}

#endif
