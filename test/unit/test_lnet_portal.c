/* SPDX-License-Identifier: BSD-3-Clause */
/* The Put/Get API and messages for this node: docs/protocol/lnet-core.md §2.4, §3.1, §4.8. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_test.h"

#include "lib/reactor/mem_hold.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_ERROR};

#define PORTAL 50

struct seen {
    struct lnet_md *md;
    struct lnet_event ev;
};

static struct seen seen[4096];
static unsigned nseen;

static void on_event(struct lnet_md *md, const struct lnet_event *ev)
{
    assert_ptr_equal(reactor_self(), lnet_node_home(node));
    assert_true(nseen < 4096);
    seen[nseen].md = md;
    seen[nseen++].ev = *ev;
}

static struct lnet_eq eq = {.fn = on_event};

/* An MD over three uneven segments of one buffer. */
struct buf {
    uint8_t data[20000];
    struct mem_seg seg[3];
    struct lnet_md md;
    struct lnet_me me;
};

static void buf_init(struct buf *b, uint32_t len, uint32_t options, int threshold)
{
    uint32_t a = len / 5, c = len / 3;

    assert_true(len <= sizeof(b->data));
    memset(b, 0, sizeof(*b));
    b->seg[0] = (struct mem_seg){.addr = b->data, .len = a, .region = MEM_REGION_NONE};
    b->seg[1] = (struct mem_seg){.addr = b->data + a, .len = c, .region = MEM_REGION_NONE};
    b->seg[2] =
        (struct mem_seg){.addr = b->data + a + c, .len = len - a - c, .region = MEM_REGION_NONE};
    b->md.segs = b->seg;
    b->md.nsegs = 3;
    b->md.length = len;
    b->md.options = options;
    b->md.threshold = threshold;
    b->md.eq = &eq;
    b->me.match_nid = LNET_NID_ANY;
    b->me.match_pid = UINT32_MAX;
    b->me.portal = PORTAL;
}

static void attach(struct buf *b, uint64_t bits, uint64_t ignore)
{
    b->me.match_bits = bits;
    b->me.ignore_bits = ignore;
    ON(0, assert_int_equal(lnet_me_attach(node, &b->me, &b->md), 0));
}

static void bind(struct buf *b)
{
    ON(0, assert_int_equal(lnet_md_bind(node, &b->md), 0));
}

static void unlink_md(struct buf *b)
{
    ON(0, lnet_md_unlink(&b->md));
}

static unsigned unlinks_of(const struct buf *b)
{
    unsigned n = 0;

    for (unsigned i = 0; i < nseen; i++)
        n += seen[i].md == &b->md && seen[i].ev.unlinked;
    return n;
}

static void begin(void)
{
    node_up(opts_default());
    nseen = 0;
}

static struct lnet_nid peer(void)
{
    return peer_on(nreactors - 1, 0, "tcp", 0);
}

static struct peer_msg *put_in(uint64_t bits, uint32_t offset, uint32_t len, bool ack)
{
    struct peer_msg *fx =
        arrive(tcp0, peer(), hdr_put(peer(), tcp0->nid, PORTAL, bits, offset, len, ack));

    settle();
    return fx;
}

static struct peer_msg *get_in(uint64_t bits, uint32_t offset, uint32_t sink)
{
    struct peer_msg *fx =
        arrive(tcp0, peer(), hdr_get(peer(), tcp0->nid, PORTAL, bits, offset, sink));

    settle();
    return fx;
}

static void assert_ack(uint32_t mlength, uint64_t bits)
{
    struct sent *s = sent_last(LNET_MSG_ACK);
    struct lnet_nid to = peer();
    struct lnet_ack ack;

    lnet_body_get_ack(&s->hdr, &ack);
    assert_int_equal(ack.dst.interface_cookie, 0x3333);
    assert_int_equal(ack.dst.object_cookie, 0x4441);
    assert_int_equal(ack.match_bits, bits);
    assert_int_equal(ack.mlength, mlength);
    assert_int_equal(s->hdr.payload_len, 0);
    assert_int_equal(s->hdr.dest_pid, PID);
    assert_int_equal(s->hdr.src_pid, PID);
    assert_true(nid_same(&s->hdr.dest_nid, &to) && nid_same(&s->to, &to));
    assert_true(nid_same(&s->hdr.src_nid, &tcp0->nid));
}

/* ---- matching ---- */

static void test_match_rules(void **state)
{
    static struct buf b;
    struct lnet_nid other;

    begin();
    other = peer_on(0, 0, "tcp", 5);
    buf_init(&b, 1000, LNET_MD_OP_PUT, LNET_THRESH_INF);
    b.me.match_nid = peer();
    b.me.match_pid = PID;
    attach(&b, 0xff00, 0x00ff);

    put_in(0xff00, 0, 10, true);
    assert_int_equal(nseen, 1);
    assert_ack(10, 0xff00);
    put_in(0xff55, 0, 10, false); /* ignored bits */
    assert_int_equal(nseen, 2);
    put_in(0xfe00, 0, 10, false); /* wrong bits */
    get_in(0xff00, 0, 10);        /* wrong operation */
    arrive(tcp0, other, hdr_put(other, tcp0->nid, PORTAL, 0xff00, 0, 10, true)); /* source */
    {
        struct lnet_hdr h = hdr_put(peer(), tcp0->nid, PORTAL, 0xff00, 0, 10, true);

        h.src_pid = PID + 1;
        arrive(tcp0, peer(), h);
        settle();
        h = hdr_put(peer(), tcp0->nid, 63, 0xff00, 0, 10, true);
        arrive(tcp0, peer(), h); /* another portal */
        settle();
        h = hdr_put(peer(), tcp0->nid, LNET_PORTALS, 0xff00, 0, 10, true);
        arrive(tcp0, peer(), h);
        h = hdr_put(peer(), tcp0->nid, UINT32_MAX, 0xff00, 0, 10, true);
        arrive(tcp0, peer(), h);
        h = hdr_get(peer(), tcp0->nid, LNET_PORTALS, 0, 0, 1);
        arrive(tcp0, peer(), h);
        settle();
    }
    assert_int_equal(nseen, 2);
    assert_int_equal(sent_count(LNET_MSG_ACK), 1);
    assert_int_equal(drops_of(LNET_DROP_PUT_NO_MATCH), 4);
    assert_int_equal(drops_of(LNET_DROP_GET_NO_MATCH), 1);
    assert_int_equal(drops_of(LNET_DROP_PORTAL_RANGE), 3);
    assert_int_equal(drops_sum(), 8);
    assert_int_equal(stat_of(LNET_STAT_DROP_COUNT), 8);
    assert_int_equal(stat_of(LNET_STAT_RECV_COUNT), 2);
    assert_int_equal(stat_of(LNET_STAT_RECV_LENGTH), 20);
    assert_int_equal(stat_of(LNET_STAT_SEND_COUNT), 1);
    unlink_md(&b);
    assert_int_equal(seen[2].ev.type, LNET_EVENT_UNLINK);
    assert_int_equal(unlinks_of(&b), 1);
    put_in(0xff00, 0, 10, false);
    assert_int_equal(nseen, 3);
    unlink_md(&b);
    assert_int_equal(nseen, 3);
    node_down();
}

static void test_bad_mds(void **state)
{
    static struct buf b;
    struct mem_seg five[5] = {{0}};

    begin();
    buf_init(&b, 1000, LNET_MD_OP_PUT, 1);
    b.me.portal = LNET_PORTALS;
    ON(0, assert_int_equal(lnet_me_attach(node, &b.me, &b.md), -EINVAL));
    b.me.portal = PORTAL;
    b.md.length = 999;
    ON(0, assert_int_equal(lnet_me_attach(node, &b.me, &b.md), -EINVAL));
    b.md.length = 0;
    b.md.segs = five;
    b.md.nsegs = 5;
    ON(0, assert_int_equal(lnet_md_bind(node, &b.md), -EINVAL));
    /* a threshold of none matches nothing */
    buf_init(&b, 1000, LNET_MD_OP_PUT, 0);
    attach(&b, 1, 0);
    put_in(1, 0, 5, false);
    assert_int_equal(drops_of(LNET_DROP_PUT_NO_MATCH), 1);
    unlink_md(&b);
    assert_int_equal(nseen, 1);
    node_down();
}

/* Where the bytes go, over segment borders. */
static void test_offsets(void **state)
{
    static struct buf b;
    struct peer_msg *fx;

    begin();
    buf_init(&b, 1000, LNET_MD_OP_PUT, LNET_THRESH_INF);
    attach(&b, 1, 0);
    fx = put_in(1, 77, 300, true); /* the offset of the initiator is not used */
    assert_memory_equal(b.data, fx->in.payload, 300);
    assert_int_equal(seen[0].ev.offset, 0);
    fx = put_in(1, 77, 600, true);
    assert_memory_equal(b.data + 300, fx->in.payload, 600);
    assert_int_equal(seen[1].ev.offset, 300);
    put_in(1, 0, 101, true); /* too long and not to be cut */
    assert_int_equal(drops_of(LNET_DROP_PUT_NO_MATCH), 1);
    put_in(1, 0, 100, true);
    assert_int_equal(seen[2].ev.mlength, 100);
    put_in(1, 0, 0, true); /* nothing always fits */
    assert_int_equal(nseen, 4);
    assert_ack(0, 1);
    unlink_md(&b);

    buf_init(&b, 1000, LNET_MD_OP_PUT | LNET_MD_MANAGE_REMOTE | LNET_MD_TRUNCATE, LNET_THRESH_INF);
    attach(&b, 2, 0);
    nseen = 0;
    fx = put_in(2, 900, 500, true);
    assert_memory_equal(b.data + 900, fx->in.payload, 100);
    assert_int_equal(seen[0].ev.offset, 900);
    assert_int_equal(seen[0].ev.mlength, 100);
    assert_int_equal(seen[0].ev.rlength, 500);
    assert_int_equal(fx->in.mlen, 100);
    assert_ack(100, 2);
    put_in(2, 1000, 5, true);
    assert_ack(0, 2);
    put_in(2, 1001, 5, true);
    put_in(2, UINT32_MAX, LNET_MAX_PAYLOAD, true);
    assert_int_equal(drops_of(LNET_DROP_PUT_NO_MATCH), 3);
    unlink_md(&b);
    node_down();
}

static void test_event_fields(void **state)
{
    static struct buf b;
    const struct lnet_event *ev;
    struct lnet_nid from;

    begin();
    from = peer();
    buf_init(&b, 1000, LNET_MD_OP_PUT | LNET_MD_OP_GET, LNET_THRESH_INF);
    attach(&b, 9, 0);
    put_in(9, 0, 40, false);
    ev = &seen[0].ev;
    assert_int_equal(ev->type, LNET_EVENT_PUT);
    assert_int_equal(ev->status, 0);
    assert_true(nid_same(&ev->initiator, &from) && nid_same(&ev->sender, &from));
    assert_true(nid_same(&ev->target, &tcp0->nid));
    assert_int_equal(ev->initiator_pid, PID);
    assert_int_equal(ev->portal, PORTAL);
    assert_int_equal(ev->match_bits, 9);
    assert_int_equal(ev->hdr_data, 0x0123456789abcdef);
    assert_int_equal(ev->rlength, 40);
    assert_false(ev->unlinked);
    assert_int_equal(sent_count(LNET_MSG_ACK), 0); /* the handle was none */
    get_in(9, 0, 30);
    ev = &seen[1].ev;
    assert_int_equal(ev->type, LNET_EVENT_GET);
    assert_true(nid_same(&ev->initiator, &from));
    assert_int_equal(ev->portal, PORTAL);
    assert_int_equal(ev->rlength, 30);
    assert_int_equal(ev->mlength, 30);
    assert_int_equal(ev->offset, 40);
    unlink_md(&b);
    /* no ACKs wanted here */
    buf_init(&b, 1000, LNET_MD_OP_PUT | LNET_MD_ACK_DISABLE, 1);
    attach(&b, 10, 0);
    put_in(10, 0, 40, true);
    assert_int_equal(sent_count(LNET_MSG_ACK), 0);
    assert_int_equal(unlinks_of(&b), 2);
    node_down();
}

static void test_thresholds(void **state)
{
    static struct buf b, c;
    struct peer_msg *fx[4];

    begin();
    /* operations in flight when it is used up: unlinked with the last, once */
    buf_init(&b, 1000, LNET_MD_OP_PUT, 2);
    attach(&b, 1, 0);
    loop.hold_recv = true;
    for (unsigned i = 0; i < 3; i++)
        fx[i] = put_in(1, 0, 100, false);
    assert_int_equal(drops_of(LNET_DROP_PUT_NO_MATCH), 1);
    recv_end(fx[2], ok); /* thrown away */
    assert_int_equal(nseen, 0);
    recv_end(fx[1], ok);
    settle();
    assert_int_equal(nseen, 1);
    assert_false(seen[0].ev.unlinked);
    recv_end(fx[0], ok);
    settle();
    assert_int_equal(nseen, 2);
    assert_true(seen[1].ev.unlinked);

    /* unlinked by the API meanwhile: the same */
    nseen = 0;
    buf_init(&b, 1000, LNET_MD_OP_PUT, LNET_THRESH_INF);
    attach(&b, 1, 0);
    fx[0] = put_in(1, 0, 100, false);
    fx[1] = put_in(1, 0, 100, false);
    unlink_md(&b);
    unlink_md(&b);
    assert_int_equal(nseen, 0);
    recv_end(fx[0], (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR});
    settle();
    assert_int_equal(nseen, 1);
    assert_int_equal(seen[0].ev.status, -EIO);
    assert_false(seen[0].ev.unlinked);
    recv_end(fx[1], ok);
    settle();
    assert_int_equal(nseen, 2);
    assert_true(seen[1].ev.unlinked);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 1);
    loop.hold_recv = false;

    /* less than max_size left; the next entry takes over */
    nseen = 0;
    buf_init(&b, 1000, LNET_MD_OP_PUT | LNET_MD_MAX_SIZE, LNET_THRESH_INF);
    b.md.max_size = 400;
    attach(&b, 1, 0);
    buf_init(&c, 1000, LNET_MD_OP_PUT, LNET_THRESH_INF);
    attach(&c, 1, 0);
    put_in(1, 0, 600, false);
    assert_int_equal(unlinks_of(&b), 0); /* exactly 400 left */
    put_in(1, 0, 1, false);
    assert_int_equal(unlinks_of(&b), 1);
    put_in(1, 0, 1, false);
    assert_ptr_equal(seen[2].md, &c.md);
    unlink_md(&c);
    node_down();
}

/* An event may post its MD again. */
static void on_repost(struct lnet_md *md, const struct lnet_event *ev)
{
    struct buf *b = container_of(md, struct buf, md);

    on_event(md, ev);
    if (!ev->unlinked || ev->type == LNET_EVENT_UNLINK)
        return;
    b->md.threshold = 1;
    assert_int_equal(lnet_me_attach(node, &b->me, &b->md), 0);
}

static void test_repost(void **state)
{
    static struct buf b;
    struct lnet_eq again = {.fn = on_repost};

    begin();
    buf_init(&b, 1000, LNET_MD_OP_PUT, 1);
    b.md.eq = &again;
    attach(&b, 1, 0);
    for (unsigned i = 0; i < 10; i++)
        put_in(1, 0, 10, true);
    assert_int_equal(nseen, 10);
    assert_int_equal(unlinks_of(&b), 10);
    assert_int_equal(sent_count(LNET_MSG_ACK), 10);
    unlink_md(&b);
    node_down();
}

/* Only a handle of which both halves are all ones says that no ACK is wanted, §2.3. */
static void test_half_a_handle(void **state)
{
    static const struct {
        struct lnet_handle ack;
        bool wanted;
    } cases[] = {
        {{UINT64_MAX, 0x4441}, true},
        {{0x3333, UINT64_MAX}, true},
        {{UINT64_MAX, UINT64_MAX}, false},
        {{0, 0}, true},
    };
    static struct buf b;
    unsigned acks = 0;

    begin();
    buf_init(&b, 1000, LNET_MD_OP_PUT, LNET_THRESH_INF);
    attach(&b, 1, 0);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lnet_hdr h = hdr_put(peer(), tcp0->nid, PORTAL, 1, 0, 10, true);
        struct lnet_put put;
        struct lnet_ack ack;

        lnet_body_get_put(&h, &put);
        put.ack = cases[i].ack;
        lnet_body_set_put(&h, &put);
        arrive(tcp0, peer(), h);
        settle();
        acks += cases[i].wanted;
        assert_int_equal(sent_count(LNET_MSG_ACK), acks);
        if (!cases[i].wanted)
            continue;
        lnet_body_get_ack(&sent_last(LNET_MSG_ACK)->hdr, &ack);
        assert_memory_equal(&ack.dst, &cases[i].ack, sizeof(ack.dst));
    }
    unlink_md(&b);
    node_down();
}

/* ---- GET for us ---- */

static void assert_reply(const uint8_t *data, uint32_t len)
{
    struct sent *s = sent_last(LNET_MSG_REPLY);
    struct lnet_reply r;

    lnet_body_get_reply(&s->hdr, &r);
    assert_int_equal(r.dst.interface_cookie, 0x1111);
    assert_int_equal(r.dst.object_cookie, 0x2221);
    assert_int_equal(s->len, len);
    assert_memory_equal(s->payload, data, len);
}

static void test_get(void **state)
{
    static struct buf b;

    begin();
    buf_init(&b, 10000, LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE | LNET_MD_TRUNCATE, LNET_THRESH_INF);
    for (unsigned i = 0; i < 10000; i++)
        b.data[i] = pattern(3, i);
    attach(&b, 1, 0);
    get_in(1, 0, 10000);
    assert_reply(b.data, 10000);
    get_in(1, 1999, 3);
    assert_reply(b.data + 1999, 3);
    get_in(1, 9990, UINT32_MAX);
    assert_reply(b.data + 9990, 10);
    get_in(1, 0, 0);
    assert_reply(b.data, 0);
    get_in(1, 10000, 5);
    assert_reply(b.data, 0);
    assert_int_equal(nseen, 5);
    get_in(1, 10001, 5);
    get_in(1, UINT32_MAX, UINT32_MAX);
    assert_int_equal(drops_of(LNET_DROP_GET_OFFSET), 2);
    assert_int_equal(nseen, 5);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 5);
    assert_int_equal(stat_of(LNET_STAT_RECV_COUNT), 5); /* what is dropped is not received */
    assert_int_equal(stat_of(LNET_STAT_SEND_COUNT), 5);
    /* the REPLY fails */
    loop.send_result = lost;
    get_in(1, 0, 100);
    assert_int_equal(seen[5].ev.status, -EIO);
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_LOST), 1);
    loop.send_result = ok;
    /* not to be cut */
    unlink_md(&b);
    b.md.options = LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE;
    b.md.threshold = 1;
    attach(&b, 1, 0);
    get_in(1, 1, 10000);
    assert_int_equal(drops_of(LNET_DROP_GET_NO_MATCH), 1);
    get_in(1, 1, 9999);
    assert_reply(b.data + 1, 9999);
    assert_int_equal(unlinks_of(&b), 2);
    node_down();
}

static struct peer_msg *rdma_get_in(uint64_t bits, uint32_t offset, uint32_t sink)
{
    struct peer_msg *fx =
        rx_new(tcp0, peer(), hdr_get(peer(), tcp0->nid, PORTAL, bits, offset, sink), 1);

    fx->in.rx.rdma_get = true;
    fx->in.payload = realloc(fx->in.payload, sink);
    rx_parse(fx);
    settle();
    return fx;
}

/* The LND answers it with the segments it is given; there is no REPLY. */
static void test_rdma_get(void **state)
{
    static struct buf b;
    struct lnet_ni_stats st;
    struct peer_msg *fx;

    begin();
    buf_init(&b, 10000, LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE | LNET_MD_TRUNCATE, LNET_THRESH_INF);
    for (unsigned i = 0; i < 10000; i++)
        b.data[i] = pattern(5, i);
    attach(&b, 1, 0);
    fx = rdma_get_in(1, 1999, 5000);
    assert_true(fx->done);
    assert_int_equal(fx->in.mlen, 5000);
    assert_memory_equal(fx->in.payload, b.data + 1999, 5000);
    assert_int_equal(fx->in.rx.drop, LNET_DROP_NONE);
    assert_int_equal(nseen, 1);
    assert_int_equal(seen[0].ev.type, LNET_EVENT_GET);
    assert_int_equal(seen[0].ev.status, 0);
    assert_int_equal(seen[0].ev.offset, 1999);
    assert_int_equal(seen[0].ev.mlength, 5000);
    assert_int_equal(seen[0].ev.rlength, 5000);
    assert_int_equal(seen[0].ev.match_bits, 1);
    assert_int_equal(seen[0].ev.portal, PORTAL);
    assert_int_equal(stat_of(LNET_STAT_RECV_COUNT), 1);
    assert_int_equal(stat_of(LNET_STAT_RECV_LENGTH), 0);
    assert_int_equal(stat_of(LNET_STAT_SEND_COUNT), 1);
    assert_int_equal(stat_of(LNET_STAT_SEND_LENGTH), 5000);
    lnet_ni_stats_get(node, tcp0->index, &st);
    assert_int_equal(st.received[LNET_MSG_GET], 1);
    assert_int_equal(st.sent[LNET_MSG_GET], 1);
    /* nothing of it is left behind its end */
    fx = rdma_get_in(1, 10000, 5);
    assert_int_equal(fx->in.mlen, 0);
    assert_int_equal(fx->in.rx.drop, LNET_DROP_NONE);
    assert_int_equal(nseen, 2);
    /* it matches nothing */
    fx = rdma_get_in(2, 0, 5);
    assert_true(fx->done);
    assert_int_equal(fx->in.mlen, 0);
    assert_int_equal(fx->in.rx.drop, LNET_DROP_GET_NO_MATCH);
    assert_int_equal(drops_of(LNET_DROP_GET_NO_MATCH), 1);
    assert_int_equal(nseen, 2);
    /* the connection is lost while the data is written; the MD stays in use until then */
    loop.hold_recv = true;
    fx = rdma_get_in(1, 0, 100);
    assert_false(fx->done);
    unlink_md(&b);
    assert_int_equal(nseen, 2);
    recv_end(fx, lost);
    settle();
    assert_int_equal(nseen, 3);
    assert_int_equal(seen[2].ev.type, LNET_EVENT_GET);
    assert_int_equal(seen[2].ev.status, -EIO);
    assert_true(seen[2].ev.unlinked);
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_LOST), 1);
    assert_int_equal(stat_of(LNET_STAT_SEND_COUNT), 2);
    loop.hold_recv = false;
    assert_int_equal(loop.nsent, 0);
    node_down();
}

/* An answer goes back through the gateway that brought the request, not the best one. */
static void test_answers_through_gateway(void **state)
{
    static struct buf b;
    struct lnet_nid gw, far;
    struct sent *s;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    nseen = 0;
    gw = peer_on(nreactors - 1, 0, "tcp", 7);
    far = N("10.5.0.9@tcp5");
    node_begin();
    route_add("tcp5", N("10.0.0.99@tcp"), 1, 0);
    route_add("tcp5", gw, 9, 9);
    settle();
    buf_init(&b, 100, LNET_MD_OP_PUT | LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE, LNET_THRESH_INF);
    attach(&b, 1, 0);
    arrive(tcp0, gw, hdr_get(far, tcp0->nid, PORTAL, 1, 0, 10));
    settle();
    s = sent_last(LNET_MSG_REPLY);
    assert_true(nid_same(&s->to, &gw) && nid_same(&s->hdr.dest_nid, &far));
    assert_true(nid_same(&s->hdr.src_nid, &tcp0->nid));
    arrive(tcp0, gw, hdr_put(far, tcp0->nid, PORTAL, 1, 0, 10, true));
    settle();
    s = sent_last(LNET_MSG_ACK);
    assert_true(nid_same(&s->to, &gw) && nid_same(&s->hdr.dest_nid, &far));
    assert_true(nid_same(&seen[1].ev.sender, &gw) && nid_same(&seen[1].ev.initiator, &far));
    unlink_md(&b);
    node_down();
}

/* ---- our own PUTs and GETs ---- */

static struct peer_msg *answer_put(const struct sent *put, uint32_t mlength)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_ACK, put->hdr.dest_nid, put->hdr.src_nid, 0);
    struct lnet_ack ack = {.mlength = mlength};
    struct lnet_put p;

    lnet_body_get_put(&put->hdr, &p);
    ack.dst = p.ack;
    ack.match_bits = p.match_bits;
    lnet_body_set_ack(&h, &ack);
    return arrive(put->ni, put->to, h);
}

static struct peer_msg *answer_get(const struct sent *get, uint32_t len)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_REPLY, get->hdr.dest_nid, get->hdr.src_nid, len);
    struct lnet_reply r;
    struct lnet_get g;

    lnet_body_get_get(&get->hdr, &g);
    r.dst = g.ret;
    lnet_body_set_reply(&h, &r);
    return arrive(get->ni, get->to, h);
}

static int do_put(struct buf *b, bool ack, struct lnet_nid dest)
{
    int rc;

    ON(0, rc = lnet_put(&b->md, ack, NULL, &dest, PID, PORTAL, 0x42, 17, 0xfeedface));
    settle();
    return rc;
}

static int do_get(struct buf *b, struct lnet_nid dest)
{
    int rc;

    ON(0, rc = lnet_get(&b->md, NULL, &dest, PID, PORTAL, 0x42, 17));
    settle();
    return rc;
}

static void test_put_ack(void **state)
{
    static struct buf b;
    struct lnet_put put;
    struct sent *s;

    begin();
    for (unsigned order = 0; order < 2; order++) {
        nseen = 0;
        sent_clear();
        buf_init(&b, 5000, 0, 2);
        for (unsigned i = 0; i < 5000; i++)
            b.data[i] = pattern(order, i);
        bind(&b);
        loop.hold_send = true;
        assert_int_equal(do_put(&b, true, peer()), 0);
        s = sent_last(LNET_MSG_PUT);
        lnet_body_get_put(&s->hdr, &put);
        assert_int_equal(s->len, 5000);
        assert_memory_equal(s->payload, b.data, 5000);
        assert_true(nid_same(&s->hdr.src_nid, &tcp0->nid));
        assert_int_equal(put.ack.object_cookie & 3, 1);
        assert_int_equal(put.match_bits, 0x42);
        assert_int_equal(put.hdr_data, 0xfeedface);
        assert_int_equal(put.portal, PORTAL);
        assert_int_equal(put.offset, 17);
        assert_int_equal(nseen, 0);
        if (order == 0)
            send_end_all(ok);
        settle();
        answer_put(s, 4999);
        settle();
        if (order == 1)
            send_end_all(ok);
        settle();
        assert_int_equal(nseen, 2);
        assert_int_equal(seen[order].ev.type, LNET_EVENT_SEND);
        assert_int_equal(seen[!order].ev.type, LNET_EVENT_ACK);
        assert_int_equal(seen[!order].ev.mlength, 4999);
        assert_int_equal(seen[!order].ev.match_bits, 0x42);
        assert_false(seen[0].ev.unlinked);
        assert_true(seen[1].ev.unlinked);
        answer_put(s, 1); /* once more: nobody waits for it */
        settle();
        assert_int_equal(nseen, 2);
        assert_int_equal(drops_of(LNET_DROP_ACK_NO_MATCH), order + 1);
    }
    /* no ACK wanted: none is accepted either */
    nseen = 0;
    buf_init(&b, 50, 0, 2);
    bind(&b);
    loop.hold_send = false;
    assert_int_equal(do_put(&b, false, peer()), 0);
    lnet_body_get_put(&sent_last(LNET_MSG_PUT)->hdr, &put);
    assert_int_equal(put.ack.interface_cookie, UINT64_MAX);
    assert_int_equal(put.ack.object_cookie, UINT64_MAX);
    assert_int_equal(nseen, 1);
    assert_false(seen[0].ev.unlinked);
    unlink_md(&b);
    assert_int_equal(unlinks_of(&b), 1);
    node_down();
}

static void test_get_reply(void **state)
{
    static struct buf b;
    struct peer_msg *fx;
    struct lnet_get get;
    struct sent *s;

    begin();
    for (unsigned order = 0; order < 2; order++) {
        nseen = 0;
        sent_clear();
        buf_init(&b, 5000, 0, 2);
        bind(&b);
        loop.hold_send = true;
        assert_int_equal(do_get(&b, peer()), 0);
        s = sent_last(LNET_MSG_GET);
        lnet_body_get_get(&s->hdr, &get);
        assert_int_equal(get.sink_length, 5000);
        assert_int_equal(get.src_offset, 17);
        assert_int_equal(get.portal, PORTAL);
        assert_int_equal(s->len, 0);
        if (order == 0)
            send_end_all(ok);
        settle();
        fx = answer_get(s, 3000);
        settle();
        if (order == 1)
            send_end_all(ok);
        settle();
        assert_int_equal(nseen, 2);
        assert_int_equal(seen[order].ev.type, LNET_EVENT_SEND);
        assert_int_equal(seen[!order].ev.type, LNET_EVENT_REPLY);
        assert_int_equal(seen[!order].ev.mlength, 3000);
        assert_memory_equal(b.data, fx->in.payload, 3000);
        assert_false(seen[0].ev.unlinked);
        assert_true(seen[1].ev.unlinked);
        answer_get(s, 3000);
        settle();
        assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), order + 1);
    }
    node_down();
}

/* Handles can be guessed and lengths lie. */
static void test_hostile_answers(void **state)
{
    static struct buf g, p;
    struct sent *gs, *ps, fake;
    struct peer_msg *first;
    struct lnet_get get;
    struct lnet_put put;

    begin();
    buf_init(&g, 1000, 0, 2);
    bind(&g);
    buf_init(&p, 1000, 0, 2);
    memset(p.data, 0x77, 1000);
    bind(&p);
    assert_int_equal(do_get(&g, peer()), 0);
    gs = sent_last(LNET_MSG_GET);
    assert_int_equal(do_put(&p, true, peer()), 0);
    gs = sent_last(LNET_MSG_GET);
    ps = sent_last(LNET_MSG_PUT);
    assert_int_equal(nseen, 2);
    lnet_body_get_get(&gs->hdr, &get);
    lnet_body_get_put(&ps->hdr, &put);
    assert_int_equal(get.ret.interface_cookie, put.ack.interface_cookie);
    assert_int_equal(get.ret.object_cookie & 3, 1);
    assert_int_equal(put.ack.object_cookie & 3, 1);
    assert_true(put.ack.object_cookie - get.ret.object_cookie > 1u << 16); /* not the next one */
    /* a REPLY into what was PUT, which is memory of ours that nobody may write */
    fake = *gs;
    get.ret = put.ack;
    lnet_body_set_get(&fake.hdr, &get);
    answer_get(&fake, 500);
    settle();
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 1);
    assert_int_equal(p.data[0], 0x77);
    /* a REPLY and an ACK of somebody who was not asked, and knows the handles */
    fake = *gs;
    fake.to = fake.hdr.dest_nid = peer_on(0, 0, "tcp", 7);
    answer_get(&fake, 500);
    fake = *ps;
    fake.to = fake.hdr.dest_nid = peer_on(0, 0, "tcp", 7);
    answer_put(&fake, 500);
    settle();
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 2);
    assert_int_equal(drops_of(LNET_DROP_ACK_NO_MATCH), 1);
    /* an ACK for the GET */
    lnet_body_get_get(&gs->hdr, &get);
    fake = *ps;
    put.ack = get.ret;
    lnet_body_set_put(&fake.hdr, &put);
    answer_put(&fake, 5);
    settle();
    assert_int_equal(drops_of(LNET_DROP_ACK_NO_MATCH), 2);
    /* a former life's handle, none, and what was never made */
    fake = *gs;
    get.ret.interface_cookie--;
    lnet_body_set_get(&fake.hdr, &get);
    answer_get(&fake, 5);
    get.ret = LNET_HANDLE_NONE;
    lnet_body_set_get(&fake.hdr, &get);
    answer_get(&fake, 5);
    get.ret.interface_cookie = node->api->interface_cookie;
    get.ret.object_cookie = 0xfffffffffffffff1;
    lnet_body_set_get(&fake.hdr, &get);
    answer_get(&fake, 5);
    settle();
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 5);
    /* longer than asked for */
    answer_get(gs, 1001);
    settle();
    assert_int_equal(drops_of(LNET_DROP_REPLY_TOO_LONG), 1);
    assert_int_equal(nseen, 2);
    /* two REPLYs at once: one is taken */
    loop.hold_recv = true;
    first = answer_get(gs, 1000);
    settle();
    answer_get(gs, 900);
    settle();
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 6);
    loop.hold_recv = false;
    recv_end(first, ok);
    recv_end(loop.rxs, ok);
    settle();
    assert_int_equal(nseen, 3);
    assert_true(seen[2].ev.unlinked);
    assert_memory_equal(g.data, first->in.payload, 1000);
    /* and the PUT's own ACK is still good */
    answer_put(ps, 1000);
    settle();
    assert_int_equal(nseen, 4);
    assert_int_equal(unlinks_of(&p), 1);
    /* a long REPLY is cut where that is allowed */
    buf_init(&g, 1000, LNET_MD_TRUNCATE, 2);
    bind(&g);
    assert_int_equal(do_get(&g, peer()), 0);
    answer_get(sent_last(LNET_MSG_GET), 5000);
    settle();
    assert_int_equal(seen[nseen - 1].ev.mlength, 1000);
    assert_int_equal(seen[nseen - 1].ev.rlength, 5000);
    node_down();
}

/* A multi-rail node behind a router may be given the GET at another of its NIDs (§4.4), and answers
 * from there. */
static void test_answer_from_behind(void **state)
{
    static struct buf b;
    struct lnet_nid gw;
    struct sent s;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    nseen = 0;
    gw = peer_on(nreactors - 1, 0, "tcp", 7);
    node_begin();
    route_add("tcp5", gw, 1, 0);
    settle();
    buf_init(&b, 1000, 0, 2);
    bind(&b);
    assert_int_equal(do_get(&b, N("10.5.0.9@tcp5")), 0);
    s = *sent_last(LNET_MSG_GET);
    assert_true(nid_same(&s.to, &gw));
    s.hdr.dest_nid = N("10.5.0.10@tcp5");
    answer_get(&s, 500);
    settle();
    assert_int_equal(nseen, 2);
    assert_int_equal(seen[1].ev.type, LNET_EVENT_REPLY);
    assert_int_equal(seen[1].ev.mlength, 500);
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 0);
    node_down();
}

static void test_failed_operations(void **state)
{
    static struct buf b;
    struct peer_msg *fx;

    begin();
    for (unsigned late = 0; late < 2; late++) {
        nseen = 0;
        buf_init(&b, 100, 0, 2);
        bind(&b);
        loop.hold_send = late;
        loop.send_result = lost;
        assert_int_equal(do_put(&b, true, peer()), 0);
        send_end_all(lost);
        settle();
        assert_int_equal(nseen, 1);
        assert_int_equal(seen[0].ev.type, LNET_EVENT_SEND);
        assert_int_equal(seen[0].ev.status, -EIO);
        assert_false(seen[0].ev.unlinked);
        unlink_md(&b);
        assert_int_equal(nseen, 2);
        assert_true(seen[1].ev.unlinked);
        assert_int_equal(seen[1].ev.type, LNET_EVENT_UNLINK);
        assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_LOST), late + 1);
    }
    assert_int_equal(stat_of(LNET_STAT_SEND_COUNT), 0);
    loop.send_result = ok;
    loop.hold_send = false;
    /* the REPLY breaks off */
    nseen = 0;
    buf_init(&b, 100, 0, 2);
    bind(&b);
    assert_int_equal(do_get(&b, peer()), 0);
    loop.hold_recv = true;
    fx = answer_get(sent_last(LNET_MSG_GET), 100);
    settle();
    recv_end(fx, (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR});
    settle();
    assert_int_equal(nseen, 2);
    assert_int_equal(seen[1].ev.type, LNET_EVENT_REPLY);
    assert_int_equal(seen[1].ev.status, -EIO);
    assert_true(seen[1].ev.unlinked);
    /* refused before anything happened */
    buf_init(&b, 100, 0, 1);
    assert_int_equal(do_put(&b, false, peer()), -EINVAL); /* not bound */
    bind(&b);
    nseen = 0;
    assert_int_equal(do_put(&b, false, N("10.9.0.1@tcp9")), -EHOSTUNREACH);
    assert_int_equal(do_put(&b, false, tcp0->nid), -EHOSTUNREACH);
    assert_int_equal(do_put(&b, false, LNET_NID_LO), -EHOSTUNREACH);
    assert_int_equal(do_put(&b, false, LNET_NID_ANY), -EHOSTUNREACH);
    {
        struct lnet_nid to = peer(), src = N("10.0.0.2@tcp");
        int rc;

        ON(0, rc = lnet_put(&b.md, false, &src, &to, PID, PORTAL, 1, 0, 0));
        assert_int_equal(rc, -EHOSTUNREACH); /* not a NID of ours */
    }
    assert_int_equal(nseen, 0);
    assert_int_equal(do_put(&b, false, peer()), 0); /* it was as before */
    assert_int_equal(nseen, 1);
    assert_true(seen[0].ev.unlinked);
    node_down();
}

/* No message carries more than 1 MiB, so no MD may ask for more. Nothing is read: the length alone
 * decides. */
static void test_too_long(void **state)
{
    static uint8_t byte;
    struct mem_seg seg = {&byte, LNET_MAX_PAYLOAD + 1, MEM_REGION_NONE, 0};
    struct lnet_md md = {.segs = &seg, .nsegs = 1, .length = seg.len, .threshold = 2};
    struct lnet_nid dest;

    begin();
    dest = N("10.1.0.9@tcp1");
    ON(0, assert_int_equal(lnet_md_bind(node, &md), 0));
    ON(0, assert_int_equal(lnet_put(&md, true, NULL, &dest, PID, 5, 1, 0, 0), -EMSGSIZE));
    ON(0, assert_int_equal(lnet_get(&md, NULL, &dest, PID, 5, 1, 0), -EMSGSIZE));
    ON(0, lnet_md_unlink(&md));
    node_down();
}

/* All descriptors of this node itself taken: local messages are refused, routed ones go on. */
static void test_descriptors_used_up(void **state)
{
    struct lnet_node_opts o = opts_default();
    static struct buf b, target;
    struct lnet_nid from;
    struct peer_msg *fx;
    int rc = 0;

    o.local_msgs = 20;
    node_up(o);
    nseen = 0;
    buf_init(&target, 1000, LNET_MD_OP_PUT | LNET_MD_OP_GET | LNET_MD_TRUNCATE, LNET_THRESH_INF);
    attach(&target, 1, 0);
    buf_init(&b, 100, 0, LNET_THRESH_INF);
    bind(&b);
    loop.hold_send = true;
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(do_put(&b, false, peer()), 0);
    rc = do_put(&b, false, peer());
    assert_int_equal(rc, -ENOMEM);
    put_in(1, 0, 10, true);
    get_in(1, 0, 10);
    assert_int_equal(drops_of(LNET_DROP_NO_MSG_MEMORY), 2);
    from = peer_on(0, 0, "tcp", 9);
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.1.0.9@tcp1"), 10));
    settle();
    assert_true(fx->done);
    send_end_all(ok);
    settle();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 1);
    loop.hold_send = false;
    put_in(1, 0, 10, true);
    assert_int_equal(sent_count(LNET_MSG_ACK), 1);
    unlink_md(&b);
    unlink_md(&target);
    node_down();
}

/* An LND that could hand over segments of its own receives into the MD as any other. */
static void test_take(void **state)
{
    static struct buf b;
    struct peer_msg *fx;

    begin();
    tcp0->rx_take = true;
    buf_init(&b, 1000, LNET_MD_OP_PUT | LNET_MD_TRUNCATE, LNET_THRESH_INF);
    attach(&b, 1, 0);
    fx = put_in(1, 0, 1000, true);
    assert_memory_equal(b.data, fx->in.payload, 1000);
    assert_int_equal(fx->releases, 0);
    unlink_md(&b);
    b.md.options |= LNET_MD_MANAGE_REMOTE;
    attach(&b, 1, 0);
    fx = put_in(1, 990, 1000, true);
    assert_memory_equal(b.data + 990, fx->in.payload, 10);
    assert_int_equal(fx->releases, 0);
    fx = put_in(1, 1000, 1000, true); /* room for nothing */
    assert_int_equal(fx->in.mlen, 0);
    assert_int_equal(fx->releases, 0);
    loop.recv_result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    fx = put_in(1, 0, 1000, true);
    assert_int_equal(fx->releases, 0);
    assert_int_equal(seen[nseen - 1].ev.status, -EIO);
    unlink_md(&b);
    node_down();
}

/* Memory of an MD that devices know: frames that refer to it keep it the node's, until they are
 * gone; only then is it told that the message has left, and given back. */
static void test_md_memory(void **state)
{
    struct mem_arena_opts opts = {.socket = -1, .landing_bytes = 16 * 4096};
    struct rte_mbuf_ext_shared_info *info;
    struct mem_arena *arena;
    struct mem_pool pool;
    static struct buf b;
    struct err err = {0};

    begin();
    if (mem_arena_create(&opts, &arena, &err) != 0 ||
        mem_pool_init(&pool, arena, MEM_LANDING, 8000, 8, "md", &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(mem_region_get(pool.region)->part, MEM_LANDING);
    buf_init(&b, 5000, 0, 1);
    b.md.nsegs = 1;
    b.seg[0] = (struct mem_seg){mem_pool_get(&pool), 5000, pool.region, 0};
    memset(b.seg[0].addr, 'x', 5000);
    bind(&b);
    loop.hold_send = true;
    tcp0->tx_refers = true;
    assert_int_equal(do_put(&b, false, peer()), 0);
    assert_int_equal(loop.held[0]->payload.seg[0].region, pool.region);
    info = mem_hold_of(pool.region, b.seg[0].addr, 5000);
    rte_mbuf_ext_refcnt_update(info, 1);
    send_end_all(LNET_RESULT_OK);
    pass(5000);
    assert_int_equal(nseen, 0);
    rte_mbuf_ext_refcnt_update(info, -1);
    pass(2000);
    assert_int_equal(nseen, 1);
    assert_int_equal(seen[0].ev.type, LNET_EVENT_SEND);
    assert_int_equal(seen[0].ev.status, 0);
    assert_int_equal(unlinks_of(&b), 1);
    mem_pool_put(&pool, b.seg[0].addr);
    mem_pool_fini(&pool);
    mem_arena_destroy(arena);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_match_rules),
    LNET_TEST(test_bad_mds),
    LNET_TEST(test_offsets),
    LNET_TEST(test_event_fields),
    LNET_TEST(test_thresholds),
    LNET_TEST(test_repost),
    LNET_TEST(test_half_a_handle),
    LNET_TEST(test_get),
    LNET_TEST(test_rdma_get),
    LNET_TEST(test_answers_through_gateway),
    LNET_TEST(test_put_ack),
    LNET_TEST(test_get_reply),
    LNET_TEST(test_hostile_answers),
    LNET_TEST(test_answer_from_behind),
    LNET_TEST(test_failed_operations),
    LNET_TEST(test_too_long),
    LNET_TEST(test_descriptors_used_up),
    LNET_TEST(test_take),
    LNET_TEST(test_md_memory),
};

LNET_TESTS_MAIN("test_lnet_portal", tests)
