/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: one byte that says how deep the connection's queues are, then what a peer sends on it,
 * message after message. */
#include "lib/lnd_verbs/ib_credits.h"
#include "test/drops_test.h"
#include "test/fuzz/fuzz.h"

REGISTER_DROPS(ib_drops);

static struct ib_frag frags[IB_FRAGS_MAX];

static void check_descriptor(const struct ib_msg *m, const uint8_t *data)
{
    uint64_t total = 0;

    HOLDS(m->rd.nfrags >= 1 && m->rd.nfrags <= IB_FRAGS_MAX);
    HOLDS(m->rd.wire + (size_t)m->rd.nfrags * IB_FRAG_SIZE <= data + m->hdr.nob);
    for (uint32_t i = 0; i < m->rd.nfrags; i++) {
        ib_rd_frag(&m->rd, i, &frags[i]);
        HOLDS(frags[i].nob > 0);
        HOLDS(frags[i].addr + (frags[i].nob - 1) >= frags[i].addr);
        total += frags[i].nob;
    }
    HOLDS(total == m->rd.total && total <= INT32_MAX);
}

/* Encoded from its fields it is what came, but for a length that was too long. */
static void check_encode(const struct ib_msg *m, const uint8_t *data)
{
    static uint8_t wire[IB_MSG_SIZE];
    size_t n = ib_msg_encode(m, frags, wire, sizeof(wire));

    HOLDS(n >= IB_HDR_SIZE && n <= m->hdr.nob);
    if (n + m->carried != m->hdr.nob)
        memcpy(wire + 8, data + 8, sizeof(uint32_t));
    HOLDS(memcmp(wire, data, n) == 0);
}

/* Said in the other byte order it means the same. */
static void check_other_order(const struct ib_msg *m)
{
    static uint8_t wire[IB_MSG_SIZE];
    struct ib_msg turned = *m, back;
    struct ib_frag frag;

    turned.hdr.flip = !m->hdr.flip;
    turned.hdr.cksum = 0;
    memset(wire, 0, sizeof(wire));
    HOLDS(ib_msg_encode(&turned, frags, wire, sizeof(wire)) > 0);
    HOLDS(ib_msg_decode(wire, sizeof(wire), &back) == LNET_DROP_NONE);
    HOLDS(back.hdr.flip == turned.hdr.flip && back.hdr.type == m->hdr.type);
    HOLDS(back.hdr.src_nid == m->hdr.src_nid && back.hdr.dst_stamp == m->hdr.dst_stamp);
    if (m->hdr.type == IB_PUT_NAK || m->hdr.type == IB_PUT_DONE || m->hdr.type == IB_GET_DONE)
        HOLDS(back.status == m->status && back.cookie == m->cookie);
    if (m->hdr.type != IB_PUT_ACK && m->hdr.type != IB_GET_REQ)
        return;
    HOLDS(back.rd.key == m->rd.key && back.rd.nfrags == m->rd.nfrags);
    HOLDS(back.rd.total == m->rd.total && back.cookie == m->cookie);
    for (uint32_t i = 0; i < back.rd.nfrags; i++) {
        ib_rd_frag(&back.rd, i, &frag);
        HOLDS(frag.addr == frags[i].addr && frag.nob == frags[i].nob);
    }
}

static void check_cksum(const uint8_t *data, const struct ib_msg *m)
{
    HOLDS(ib_cksum(data, m->hdr.nob, false) != 0 && ib_cksum(data, m->hdr.nob, true) != 0);
    HOLDS(m->hdr.cksum == 0 || m->hdr.cksum == ib_cksum(data, m->hdr.nob, false) ||
          m->hdr.cksum == ib_cksum(data, m->hdr.nob, true));
}

/* The ends of a connection are those of its messages alone. */
static void check_ends(const struct ib_hdr *h)
{
    struct ib_ends ends = {h->dst_nid, h->dst_stamp, h->src_nid, h->src_stamp};

    HOLDS(ib_msg_ends(h, &ends) == LNET_DROP_NONE);
    ends.peer_stamp ^= 1;
    HOLDS(ib_msg_ends(h, &ends) == IB_DROP(STAMP));
    ends.my_nid ^= 1;
    HOLDS(ib_msg_ends(h, &ends) == IB_DROP(NID));
}

static void check_counters(const struct ib_credits *c)
{
    HOLDS(c->credits <= c->depth && c->reserved <= c->depth);
    HOLDS(c->owed <= c->spent && c->spent <= c->depth);
    HOLDS(c->asked + c->reserved <= c->depth && c->acked <= c->spent);
    HOLDS(c->noops <= c->sends && c->noops <= IB_NOOPS_MAX && c->sends <= c->sends_max);
}

static void send_one(struct ib_credits *c, unsigned type)
{
    bool request = ib_class_of(type) == IB_CLASS_REQUEST;
    struct ib_credits before = *c;
    uint8_t returned;

    if (ib_credits_may_post(c, type) != IB_MAY_POST || (request && !ib_credits_reserve(c)))
        return;
    returned = ib_credits_post(c, type);
    HOLDS(returned == before.owed && c->owed == 0);
    check_counters(c);
    ib_credits_unpost(c, type, returned);
    if (request)
        c->reserved++; /* as before ib_credits_reserve() */
    HOLDS(memcmp(c, &before, sizeof(before)) == 0);
    if (request)
        ib_credits_reserve(c);
    ib_credits_post(c, type);
    ib_credits_sent(c, type);
}

/* What the peer sends is counted, and answered in kind. Returns whether the connection lives on. */
static bool account(struct ib_credits *c, const struct ib_msg *m)
{
    unsigned type = m->hdr.type;
    bool acked = type == IB_PUT_REQ && (m->cookie & 1);

    if (ib_credits_receive(c, type, m->hdr.credits) != LNET_DROP_NONE)
        return false;
    check_counters(c);
    if (type == IB_PUT_REQ)
        send_one(c, acked ? IB_PUT_ACK : IB_PUT_NAK);
    ib_credits_repost(c, type, acked);
    check_counters(c);
    if (type == IB_IMMEDIATE)
        send_one(c, m->lnet.payload_len > 0        ? IB_PUT_REQ
                    : m->lnet.type == LNET_MSG_GET ? IB_GET_REQ
                                                   : IB_IMMEDIATE);
    else if (type == IB_PUT_ACK)
        send_one(c, IB_PUT_DONE);
    if (ib_credits_need_noop(c, false, false))
        send_one(c, IB_NOOP);
    check_counters(c);
    return true;
}

/* Returns the bytes of a good message, 0 when the peer is cut off here. */
static size_t one_message(const uint8_t *data, size_t size, struct ib_credits *c)
{
    struct ib_msg m = {0};
    enum lnet_drop drop = ib_msg_decode(data, size, &m);

    if (drop == IB_DROP(PAYLOAD)) {
        HOLDS(m.hdr.type == IB_IMMEDIATE && m.lnet.payload_len > m.carried);
        return m.hdr.nob;
    }
    if (drop != LNET_DROP_NONE) {
        HOLDS(lnet_drop_info(drop)->kind == DROP_KIND_CONNECTION);
        return 0;
    }
    HOLDS(m.hdr.nob >= IB_HDR_SIZE && m.hdr.nob <= size && m.hdr.nob <= IB_MSG_SIZE);
    HOLDS(m.hdr.version == IB_VERSION_2);
    HOLDS(ib_msg_decode(data, m.hdr.nob - 1, &m) == IB_DROP(LENGTH));
    HOLDS(ib_msg_decode(data, m.hdr.nob, &m) == LNET_DROP_NONE);
    if (m.hdr.type == IB_IMMEDIATE)
        HOLDS(m.payload + m.carried == data + m.hdr.nob && m.lnet.payload_len <= m.carried);
    if (m.hdr.type == IB_PUT_ACK || m.hdr.type == IB_GET_REQ)
        check_descriptor(&m, data);
    check_cksum(data, &m);
    check_encode(&m, data);
    check_other_order(&m);
    check_ends(&m.hdr);
    return account(c, &m) ? m.hdr.nob : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ib_credits c;
    unsigned depth;
    size_t n;

    if (size < 1)
        return 0;
    depth = data[0] < IB_DEPTH_MIN ? IB_DEPTH_MIN : data[0];
    ib_credits_init(&c, depth, ib_credits_hiw(depth, depth < 8 ? 8 : depth, 0), depth);
    data++;
    size--;
    while ((n = one_message(data, size, &c)) > 0) {
        HOLDS(n <= size);
        data += n;
        size -= n;
    }
    return 0;
}
