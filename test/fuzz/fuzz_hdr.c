/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: an LNet header, in the 4-byte and (when long enough) in the 16-byte form. */
#include "lib/lnet/wire/guard.h"
#include "lib/lnet/wire/lnet_wire.h"
#include "test/fuzz/fuzz.h"

/* Fields of the union, put back, are the same fields; and the bytes they cover are the same. */
static void check_body(const struct lnet_hdr *h)
{
    struct lnet_hdr copy = *h;

    switch (h->type) {
    case LNET_MSG_ACK: {
        struct lnet_ack ack;

        lnet_body_get_ack(h, &ack);
        lnet_body_set_ack(&copy, &ack);
        HOLDS(memcmp(copy.body, h->body, 28) == 0);
        break;
    }
    case LNET_MSG_PUT: {
        struct lnet_put put;

        lnet_body_get_put(h, &put);
        lnet_body_set_put(&copy, &put);
        HOLDS(memcmp(copy.body, h->body, 40) == 0);
        break;
    }
    case LNET_MSG_GET: {
        struct lnet_get get;

        lnet_body_get_get(h, &get);
        lnet_body_set_get(&copy, &get);
        HOLDS(memcmp(copy.body, h->body, 36) == 0);
        break;
    }
    default: {
        struct lnet_reply reply;

        lnet_body_get_reply(h, &reply);
        lnet_body_set_reply(&copy, &reply);
        HOLDS(memcmp(copy.body, h->body, 16) == 0);
        break;
    }
    }
}

static void check_good(const struct lnet_hdr *h)
{
    HOLDS(h->type < LNET_MSG_HELLO);
    HOLDS(h->payload_len <= LNET_MAX_PAYLOAD);
    HOLDS(h->payload_len == 0 || h->type == LNET_MSG_PUT || h->type == LNET_MSG_REPLY);
    HOLDS(nid_wire_valid(&h->dest_nid) && nid_wire_valid(&h->src_nid));
    HOLDS(lnet_hdr_validate(h) == LNET_DROP_NONE);
    (void)lnet_guard(h, LNET_GUARD_ALL);
    HOLDS(strcmp(lnet_msg_type_name(h->type), "?") != 0);
    check_body(h);
}

static bool same_hdr(const struct lnet_hdr *a, const struct lnet_hdr *b)
{
    return nid_same(&a->dest_nid, &b->dest_nid) && nid_same(&a->src_nid, &b->src_nid) &&
           a->dest_pid == b->dest_pid && a->src_pid == b->src_pid && a->type == b->type &&
           a->payload_len == b->payload_len && memcmp(a->body, b->body, sizeof(a->body)) == 0;
}

static void check_hdr4(const uint8_t *data)
{
    uint8_t wire[LNET_HDR4_SIZE];
    struct lnet_hdr h;
    enum lnet_drop drop = lnet_hdr_decode4(data, &h);

    HOLDS(lnet_drop_info(drop)->kind == DROP_KIND_CONNECTION || drop == LNET_DROP_NONE);
    lnet_msg_type_name(h.type);
    if (drop != LNET_DROP_NONE)
        return;
    check_good(&h);
    HOLDS(lnet_hdr_encode4(&h, wire) == LNET_DROP_NONE);
    HOLDS(memcmp(wire, data, sizeof(wire)) == 0);
}

static void check_hdr16(const uint8_t *data)
{
    uint8_t wire[LNET_HDR16_SIZE];
    struct lnet_hdr h, back;

    if (lnet_hdr_decode16(data, &h) != LNET_DROP_NONE)
        return;
    check_good(&h);
    lnet_hdr_encode16(&h, wire);
    HOLDS(memcmp(wire, data, sizeof(wire)) == 0);
    if (nid_is_nid4(&h.dest_nid) && nid_is_nid4(&h.src_nid)) {
        HOLDS(lnet_hdr_encode4(&h, wire) == LNET_DROP_NONE);
        HOLDS(lnet_hdr_decode4(wire, &back) == LNET_DROP_NONE && same_hdr(&h, &back));
    } else {
        HOLDS(lnet_hdr_encode4(&h, wire) == LNET_DROP_LARGE_NID_ON_NID4);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= LNET_HDR4_SIZE)
        check_hdr4(data);
    if (size >= LNET_HDR16_SIZE)
        check_hdr16(data);
    return 0;
}
