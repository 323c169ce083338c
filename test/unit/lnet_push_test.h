/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the tests of lib/lnet/ping: nodes that push their ping info, acknowledge ours and
 * answer pings. */
#ifndef MILLRACE_LNET_PUSH_TEST_H
#define MILLRACE_LNET_PUSH_TEST_H

#include "test/unit/lnet_test.h"

static inline struct lnet_nid peer(void)
{
    return peer_on(nreactors - 1, 0, "tcp", 0);
}

/* What is published now, decoded. */
static inline struct lnet_ping_info *published(void)
{
    static struct lnet_ping_info info;
    struct ping_target *t = node->ping->current;

    assert_int_equal(lnet_ping_decode(t->data, t->seg.len, &info), LNET_DROP_NONE);
    return &info;
}

static inline struct peer_msg *push_bytes(struct lnet_ni *ni, struct lnet_nid from,
                                          const uint8_t *data, uint32_t len)
{
    struct peer_msg *fx =
        rx_new(ni, from, hdr_put(from, ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    return fx;
}

static inline struct peer_msg *push_from(struct lnet_ni *ni, struct lnet_nid from,
                                         uint32_t features)
{
    uint8_t data[64];
    uint32_t len = make_info(data, sizeof(data), from, features, 2, 0);

    return push_bytes(ni, from, data, len);
}

static const char *reply_nids; /* NULL: the NID that the ping was sent to */

static inline uint32_t list_info(uint8_t *data, size_t size, uint32_t seqno, const char *nids)
{
    struct lnet_ping_info info = {.features = 0x1e, .seqno = seqno};
    char text[256], *save = NULL;

    snprintf(text, sizeof(text), "%s", nids);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        info.ni[info.count++] = (struct lnet_ping_ni){.nid = N(w), .status = LNET_NI_UP};
    return (uint32_t)lnet_ping_encode(&info, data, size);
}

static inline void answer_ping(const struct sent *get)
{
    char text[LNET_NIDSTR_SIZE];
    uint8_t data[512];

    nid_format(&get->hdr.dest_nid, text);
    reply_to(get, data, list_info(data, sizeof(data), 2, reply_nids ? reply_nids : text));
}

/* The peers answer the pings that were sent since. */
static inline void answer_pings(unsigned since)
{
    for (unsigned i = since; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_GET)
            answer_ping(&loop.sent[i]);
}

/* The peer acknowledges a PUSH of ours, and answers the ping that may follow. */
static inline void ack_push(const struct sent *push)
{
    unsigned since = loop.nsent;

    ack_push_only(push);
    answer_pings(since);
}

static inline void assert_push_of(const struct sent *s, struct lnet_nid next_hop,
                                  struct lnet_nid to)
{
    struct lnet_put put;

    lnet_body_get_put(&s->hdr, &put);
    assert_true(nid_same(&s->to, &next_hop) && nid_same(&s->hdr.dest_nid, &to));
    assert_int_equal(put.portal, 0);
    assert_true(put.match_bits == LNET_PING_MATCH_BITS);
    assert_int_equal(put.offset, 0);
    assert_int_equal(put.hdr_data, 0);
    assert_int_equal(put.ack.interface_cookie, node->api->interface_cookie);
    assert_int_equal(s->hdr.dest_pid, PID);
    assert_int_equal(s->hdr.src_pid, PID);
    assert_int_equal(s->len, node->ping->current->seg.len);
    assert_memory_equal(s->payload, node->ping->current->data, s->len);
}

static inline void assert_push(const struct sent *s, struct lnet_nid to)
{
    assert_push_of(s, to, to);
}

/* A known multi-rail peer that has acknowledged us. */
static inline void befriend(struct lnet_ni *ni, struct lnet_nid nid)
{
    push_from(ni, nid, 0x1e);
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    sent_clear();
}

static inline void push_list(struct lnet_nid from, const char *nids)
{
    uint8_t data[512];

    push_bytes(tcp0, from, data, list_info(data, sizeof(data), 2, nids));
    settle();
}

static inline struct peer *peer_of(const char *nid)
{
    struct lnet_nid n = N(nid);

    return peer_table_find(node->peers, &n);
}

/* A PUSH that `sender` sends for `from`. */
static inline void push_through(struct lnet_ni *ni, struct lnet_nid sender, struct lnet_nid from)
{
    uint8_t data[64];
    uint32_t len = make_info(data, sizeof(data), from, 0x1e, 2, 0);
    struct peer_msg *fx =
        rx_new(ni, sender, hdr_put(from, ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    settle();
}

#endif
