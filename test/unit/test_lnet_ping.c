/* SPDX-License-Identifier: BSD-3-Clause */
/* The ping info, NI status words and pings on request:
 * docs/protocol/lnet-core.md §3.1 to §3.4, §3.7, §16. */
#include <errno.h>

#include "test/unit/lnet_push_test.h"
#include "test/unit/wire_bytes.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_ERROR};

static void ping_from(struct lnet_ni *ni, struct lnet_nid from)
{
    arrive(ni, from, hdr_ping(from, ni->nid));
    settle();
}

static void assert_info(const struct sent *s, const char *hex)
{
    uint8_t want[512];
    size_t n = unhex(hex, want, sizeof(want));

    assert_int_equal(s->len, n);
    assert_memory_equal(s->payload, want, n);
}

/* ---- the info ---- */

static void test_router_info(void **state)
{
    struct lnet_nid from;
    struct lnet_ni *ni;

    node_up(opts_default());
    from = peer();
    ping_from(tcp0, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 1a000000 39300000 04000000"
                                           "0000000000000900 04000000 00000000"
                                           "0100000a00000200 dec0aa15 00000000"
                                           "0100010a01000200 dec0aa15 00000000"
                                           "0100020a00000500 dec0aa15 00000000");
    assert_true(nid_same(&sent_last(LNET_MSG_REPLY)->hdr.src_nid, &tcp0->nid));
    from = peer_on(0, 1, "tcp1", 0);
    ping_from(tcp1, from);
    assert_true(nid_same(&sent_last(LNET_MSG_REPLY)->hdr.src_nid, &tcp1->nid));
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 80);
    /* §3.8 check 9 */
    ping_from(tcp1, from);
    ping_from(tcp1, from);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 4);
    sent_clear();
    /* from an offset; a sink that is shorter; both */
    from = peer();
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 16, 4096));
    settle();
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 64);
    assert_memory_equal(sent_last(LNET_MSG_REPLY)->payload, node->ping->current->data + 16, 64);
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, 20));
    settle();
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 20);
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 79, UINT32_MAX));
    settle();
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 1);
    assert_int_equal(drops_sum(), 0);
    /* past the end: refused */
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 81, 16));
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, UINT32_MAX, 4096));
    settle();
    assert_int_equal(drops_of(LNET_DROP_GET_OFFSET), 2);
    /* other match bits are not the ping target's */
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, 0, 0, 4096));
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS | 1, 0, 4096));
    settle();
    assert_int_equal(drops_of(LNET_DROP_GET_NO_MATCH), 2);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 3);
    node_down();

    /* NIs of a net adjoin, in the order of their nets */
    node_make(opts_default());
    ni = ni_add("10.0.0.1@tcp");
    ni_add("10.1.0.1@tcp1");
    ni_add("10.0.0.2@tcp");
    node_begin();
    ping_from(ni, peer());
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 1a000000 39300000 04000000"
                                           "0000000000000900 03000000 00000000"
                                           "0100000a00000200 dec0aa15 00000000"
                                           "0200000a00000200 dec0aa15 00000000"
                                           "0100010a01000200 dec0aa15 00000000");
    node_down();
}

static void test_end_node_info(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_ni *six, *four;
    struct lnet_nid from;

    o.routing = false;
    node_make(o);
    four = ni_add("10.0.0.1@tcp");
    node_begin();
    ping_from(four, peer());
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 1e000000 39300000 02000000"
                                           "0000000000000900 02000000 00000000"
                                           "0100000a00000200 dec0aa15 00000000");
    node_down();

    /* IPv6 only, then mixed in both orders */
    node_make(o);
    six = ni_add("fd00::1@tcp");
    node_begin();
    from = N("fd00::9@tcp");
    ping_from(six, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 7e000000 39300000 01000000"
                                           "0000000000000900 02000000 38000000"
                                           "dec0aa15 0c020000 fd000000 00000000 00000000 00000001");
    node_down();

    node_make(o);
    six = ni_add("fd00::1@tcp");
    ni_add("10.1.0.1@tcp1");
    node_begin();
    ping_from(six, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 7e000000 39300000 02000000"
                                           "0000000000000900 03000000 48000000"
                                           "0100010a01000200 dec0aa15 00000000"
                                           "dec0aa15 0c020000 fd000000 00000000 00000000 00000001");
    node_down();

    node_make(o);
    ni_add("10.1.0.1@tcp1");
    six = ni_add("fd00::1@tcp");
    node_begin();
    ping_from(six, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 3e000000 39300000 02000000"
                                           "0000000000000900 03000000 48000000"
                                           "0100010a01000200 dec0aa15 00000000"
                                           "dec0aa15 0c020000 fd000000 00000000 00000000 00000001");
    node_down();
}

/* As many NIs as there may be, all with large NIDs. */
static void test_largest_info(void **state)
{
    struct lnet_ni *ni = NULL;

    node_make(opts_default());
    for (unsigned i = 1; i <= LNET_MAX_NI; i++) {
        char text[64];

        snprintf(text, sizeof(text), "fd00::%x@tcp", i);
        ni = ni_add(text);
    }
    node_begin();
    ping_from(ni, N("fd00::ffff@tcp"));
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 4096); /* the sink */
    assert_int_equal(published()->count, LNET_MAX_NI);
    assert_int_equal(node->ping->current->seg.len, 32 + 24 * LNET_MAX_NI);
    node_down();
}

/* ---- status words ---- */

#define AGE (110 * SEC)

static uint32_t status_of(const struct lnet_ni *ni)
{
    const struct lnet_ping_info *info = published();

    for (unsigned i = 0; i < info->count; i++)
        if (nid_same(&info->ni[i].nid, &ni->nid)) {
            assert_int_equal(info->ni[i].status, ni->status);
            return info->ni[i].status;
        }
    fail_msg("NI is not listed");
    return 0;
}

/* Time goes by and every PUSH is acknowledged within the second. */
static void pass_acking(uint64_t us)
{
    unsigned i = 0;

    sent_clear();
    for (; us >= SEC; us -= SEC) {
        pass(SEC);
        for (; i < loop.nsent; i++)
            if (loop.sent[i].hdr.type == LNET_MSG_PUT)
                ack_push(&loop.sent[i]);
    }
}

static void test_ageing(void **state)
{
    struct lnet_nid from, from1;
    uint32_t seqno;

    node_up(opts_default());
    from = peer();
    from1 = peer_on(0, 1, "tcp1", 0);
    befriend(tcp0, from);
    seqno = published()->seqno;
    pass(AGE - 3 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    assert_int_equal(loop.nsent, 0);
    /* tcp1 is pinged in time, by a ping for another node; no peer reaches us over tcp0 and o2ib: a
     * refused GET with a NID of ours as source does not count */
    arrive(tcp1, from1, hdr_ping(from1, N("10.0.0.77@tcp")));
    arrive(tcp0, from, hdr_ping(tcp1->nid, from1));
    settle();
    sent_clear();
    pass(5 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    assert_int_equal(status_of(ib0), LNET_NI_DOWN);
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(published()->seqno, seqno);   /* no new configuration */
    assert_int_equal(sent_count(LNET_MSG_PUT), 1); /* forced: the number was acknowledged */
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    pass(20 * SEC);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);   /* once per change */
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN); /* the ACK did not raise it */
    /* UP again by a ping for us; the answer says so already */
    ping_from(tcp0, from);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    assert_memory_equal(sent_last(LNET_MSG_REPLY)->payload, node->ping->current->data, 80);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    ping_from(tcp0, from);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    /* and by one that passes through, on every reactor */
    for (unsigned i = 0; i < nreactors; i++) {
        struct lnet_nid p = peer_on(i, 0, "tcp", 0);

        pass_acking(AGE + 2 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
        sent_clear();
        arrive(tcp0, p, hdr_ping(p, from1));
        settle();
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        assert_int_equal(status_of(ib0), LNET_NI_DOWN);
        assert_int_equal(sent_count(LNET_MSG_GET), 1);
        assert_int_equal(sent_count(LNET_MSG_PUT), 1);
        ack_push(sent_last(LNET_MSG_PUT));
    }
    node_down();
}

/* Peers that send data and no pings keep the net they send over up, and raise it again. */
static void test_ageing_data(void **state)
{
    node_up(opts_default());
    for (unsigned i = 0; i < nreactors; i++) {
        struct lnet_nid from = peer_on(i, 0, "tcp", 0), to = peer_on(0, 1, "tcp1", 0);

        pass(AGE - 10 * SEC);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
        settle();
        pass(AGE - 10 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
        assert_int_equal(status_of(ib0), LNET_NI_DOWN);
        arrive(tcp0, from, hdr_get(from, to, 1, LNET_PING_MATCH_BITS, 0, 10));
        settle();
        pass(AGE - 10 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        pass(20 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 0));
        settle();
        pass(2 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    }
    node_down();
}

/* Messages that came before a link went down do not raise its NI once the link is back. */
static void test_ageing_data_and_link(void **state)
{
    struct lnet_nid from, to;

    node_up(opts_default());
    from = peer();
    to = peer_on(0, 1, "tcp1", 0);
    ping_from(tcp0, from);
    pass(2 * SEC);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    ON(nreactors - 1, lnet_ni_link(tcp0, true); lnet_ni_link(tcp0, false));
    settle();
    ON(nreactors - 1, lnet_ni_link(tcp0, true));
    settle();
    pass(5 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    settle();
    pass(2 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    node_down();
}

static void test_ageing_settings(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from, to;
    struct lnet_timing t;
    struct err err;

    o.check_interval = 5;
    o.ping_timeout = 2;
    node_up(o);
    pass(5 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    pass(3 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(0, 1, "tcp1", 0);
    t = node->timing; /* and at once when it is set */
    t.ping_timeout = 20;
    assert_int_equal(lnet_timing_set(node, &t, &err), 0);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    settle();
    pass(20 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    pass(7 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    node_down();
    o.routing = false; /* an end node does not age */
    node_up(o);
    pass(500 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    node_down();
}

/* A ping raises the ingress NI only; ageing lowers all NIs of the net. */
static void test_ageing_two_nis(void **state)
{
    struct lnet_ni *a, *b;

    node_make(opts_default());
    a = ni_add("10.0.0.1@tcp");
    b = ni_add("10.0.0.2@tcp");
    node_begin();
    pass(AGE - 10 * SEC);
    ping_from(b, peer()); /* keeps the whole net */
    pass(20 * SEC);
    assert_int_equal(status_of(a), LNET_NI_UP);
    pass(AGE);
    assert_int_equal(status_of(a), LNET_NI_DOWN);
    assert_int_equal(status_of(b), LNET_NI_DOWN);
    ping_from(b, peer());
    assert_int_equal(status_of(a), LNET_NI_DOWN);
    assert_int_equal(status_of(b), LNET_NI_UP);
    node_down();
}

static void test_link_router(void **state)
{
    struct lnet_nid from, from1;

    node_up(opts_default());
    from = peer();
    from1 = peer_on(0, 1, "tcp1", 0);
    befriend(tcp0, from);
    /* a link that is late at the start: as if it had been there */
    ON(nreactors - 1, lnet_ni_link(tcp1, false));
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    ping_from(tcp1, from1);
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    ON(nreactors - 1, lnet_ni_link(tcp1, true));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    ack_push(sent_last(LNET_MSG_PUT));
    /* one that was in use */
    ping_from(tcp1, from1);
    sent_clear();
    ON(nreactors - 1, lnet_ni_link(tcp1, false); lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    /* down stays down, even when pinged (by another way in) */
    ping_from(tcp1, from1);
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    ON(nreactors - 1, lnet_ni_link(tcp1, true));
    settle();
    pass(3 * SEC);
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ping_from(tcp1, from1);
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(published()->seqno, 4);
    node_down();
}

static void test_link_end_node(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from;

    o.routing = false;
    node_up(o);
    from = peer();
    befriend(tcp0, from);
    ON(nreactors - 1, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    assert_int_equal(published()->seqno, 5);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    ON(nreactors - 1, lnet_ni_link(tcp1, true));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(published()->seqno, 6);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    pass(2 * SEC);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    node_down();
}

/* Replies that are still being read pin their info. When all buffers are pinned a change waits, and
 * is published and pushed as soon as one is free. */
static void test_changes_while_read(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from;

    o.check_interval = 5;
    o.ping_timeout = 2;
    node_up(o);
    from = peer();
    befriend(tcp0, from);
    /* each round: a reply in flight with the present info, then a change */
    for (unsigned i = 0; i < PING_TARGETS - 1; i++) {
        loop.hold_send = true;
        ping_from(ib0, peer_on(0, 2, "o2ib", 1));
        loop.hold_send = false;
        ON(0, lnet_ni_link(tcp1, i & 1));
        settle();
        if (i & 1)
            ping_from(tcp1, N("10.1.0.9@tcp1"));
        settle();
        ack_push(sent_last(LNET_MSG_PUT));
        assert_int_equal(status_of(tcp1), i & 1 ? LNET_NI_UP : LNET_NI_DOWN);
    }
    assert_int_equal(loop.nheld, PING_TARGETS - 1);
    loop.hold_send = true;
    ping_from(ib0, peer_on(0, 2, "o2ib", 1));
    loop.hold_send = false;
    sent_clear();
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    ping_from(tcp0, from);
    ON(0, lnet_ni_link(tcp1, true));
    settle();
    sent_clear();
    ping_from(tcp1, N("10.1.0.9@tcp1"));
    assert_int_equal(tcp1->status, LNET_NI_UP);
    assert_int_equal(published()->count, 3);
    assert_int_equal(published()->ni[1].status, LNET_NI_DOWN); /* not yet */
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);             /* the old one is no news */
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    send_end_all(ok);
    settle();
    node_down();
}

/* ---- pings on request ---- */

struct pong {
    int calls, status;
    struct lnet_ping_info info;
};

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    struct pong *p = arg;

    assert_ptr_equal(reactor_self(), reactor_control(env));
    p->calls++;
    p->status = status;
    assert_true((status == 0) == (info != NULL));
    if (info)
        p->info = *info;
}

static struct pong ping_begin(struct pong *p, struct lnet_nid dest, const struct lnet_nid *src)
{
    memset(p, 0, sizeof(*p));
    sent_clear();
    assert_int_equal(lnet_ping(node, &dest, src, 2500, on_pong, p), 0);
    settle();
    return *p;
}

static void test_ping_request(void **state)
{
    static struct pong p;
    static uint8_t data[8192];
    struct lnet_nid dest, src;
    struct lnet_get get;
    uint32_t len;

    node_up(opts_default());
    dest = peer();
    ping_begin(&p, dest, NULL);
    assert_int_equal(p.calls, 0);
    lnet_body_get_get(&sent_last(LNET_MSG_GET)->hdr, &get);
    assert_int_equal(get.sink_length, 3960);
    assert_int_equal(get.src_offset, 0);
    assert_true(get.match_bits == LNET_PING_MATCH_BITS && get.portal == 0);
    len = make_info(data, sizeof(data), dest, 0x1e, 7, 2);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.info.seqno, 7);
    assert_int_equal(p.info.count, 3);
    /* garbage */
    ping_begin(&p, dest, NULL);
    reply_to(sent_last(LNET_MSG_GET), (const uint8_t *)"no ping info here at all", 24);
    assert_int_equal(p.status, -EPROTO);
    assert_int_equal(p.calls, 1);
    assert_int_equal(drops_of(LNET_DROP_PING_BAD_INFO), 1);
    /* nothing */
    ping_begin(&p, dest, NULL);
    pass(2 * SEC);
    assert_int_equal(p.calls, 0);
    pass(SEC);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, -ETIMEDOUT);
    /* too late */
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 1);
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 1);
    /* the reply breaks off */
    ping_begin(&p, dest, NULL);
    loop.recv_result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    reply_to(sent_last(LNET_MSG_GET), data, len);
    loop.recv_result = ok;
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, -EIO);
    /* not sent, at once and later */
    loop.send_result = lost;
    ping_begin(&p, dest, NULL);
    assert_int_equal(p.status, -EHOSTUNREACH);
    loop.send_result = ok;
    loop.hold_send = true;
    ping_begin(&p, dest, NULL);
    send_end_all(lost);
    settle();
    assert_int_equal(p.status, -EHOSTUNREACH);
    assert_int_equal(p.calls, 1);
    /* timed out while the LND still has it: told in time, and the memory stays until it lets go;
     * not even a reply in that time makes a second call */
    ping_begin(&p, dest, NULL);
    reply_hold = true;
    reply_to(sent_last(LNET_MSG_GET), data, len);
    reply_hold = false;
    assert_int_equal(p.calls, 0);
    pass(3 * SEC);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, -ETIMEDOUT);
    recv_end(loop.rxs, ok);
    settle();
    send_end_all(ok);
    settle();
    assert_int_equal(p.calls, 1);
    /* the reply before the send is done */
    ping_begin(&p, dest, NULL);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 0);
    send_end_all(ok);
    settle();
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    /* as before, and the send is not done in time either: the answer counts */
    ping_begin(&p, dest, NULL);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    pass(3 * SEC);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.info.seqno, 7);
    send_end_all(ok);
    settle();
    assert_int_equal(p.calls, 1);
    loop.hold_send = false;
    /* no way there, an unknown source, ourselves */
    ping_begin(&p, N("10.9.0.1@tcp9"), NULL);
    assert_int_equal(p.status, -EHOSTUNREACH);
    src = N("10.0.0.200@tcp");
    ping_begin(&p, dest, &src);
    assert_int_equal(p.status, -EHOSTUNREACH);
    ping_begin(&p, ib0->nid, NULL);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.info.count, 3);
    assert_int_equal(loop.nsent, 0);
    node_down();
}

/* ---- pings of connected peers ---- */

static bool is_connected;
static unsigned connects, give_ups;

static bool on_connect(struct lnet_ni *ni, struct lnet_peer_ni *p, bool give_up)
{
    assert_ptr_equal(ni, tcp0);
    assert_true(p->refs > 0);
    assert_ptr_equal(reactor_self(), lnet_nid_home(node, &p->nid));
    connects += !give_up;
    give_ups += give_up;
    return is_connected;
}

static int ping_connected(struct pong *p, struct lnet_nid dest, bool give_up)
{
    memset(p, 0, sizeof(*p));
    sent_clear();
    assert_int_equal(lnet_ping_connected(node, &dest, 2500, give_up, on_pong, p), 0);
    settle();
    return p->status;
}

/* A peer that is not connected costs no message. */
static void test_ping_connected(void **state)
{
    static struct pong p;
    static uint8_t data[8192];
    struct lnet_nid dest;
    uint32_t len;

    node_up(opts_default());
    dest = peer();
    loop_tcp.peer_connect = on_connect;
    is_connected = false;
    assert_int_equal(ping_connected(&p, dest, false), -ENOTCONN);
    assert_int_equal(ping_connected(&p, dest, true), -ENOTCONN);
    assert_int_equal(p.calls, 1);
    assert_int_equal(loop.nsent, 0);
    assert_true(connects == 1 && give_ups == 1);
    is_connected = true;
    ping_connected(&p, dest, false);
    assert_int_equal(p.calls, 0);
    len = make_info(data, sizeof(data), dest, 0x1e, 7, 2);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    /* no path; an LND that has no connections */
    assert_int_equal(ping_connected(&p, N("10.9.0.1@tcp9"), false), -EHOSTUNREACH);
    loop_tcp.peer_connect = NULL;
    ping_connected(&p, dest, false);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.status, 0);
    assert_int_equal(connects, 2);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_router_info),        LNET_TEST(test_end_node_info),
    LNET_TEST(test_largest_info),       LNET_TEST(test_ageing),
    LNET_TEST(test_ageing_data),        LNET_TEST(test_ageing_data_and_link),
    LNET_TEST(test_ageing_settings),    LNET_TEST(test_ageing_two_nis),
    LNET_TEST(test_link_router),        LNET_TEST(test_link_end_node),
    LNET_TEST(test_changes_while_read), LNET_TEST(test_ping_request),
    LNET_TEST(test_ping_connected),
};

LNET_TESTS_MAIN("test_lnet_ping", tests)
