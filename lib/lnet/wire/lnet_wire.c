/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/lnet_wire.h"

#include "lib/base/container.h"

/* Headers are copied in and out whole, so the caller's buffers need no alignment. All of it is
 * little-endian but struct lnet_nid, handles and hdr_data (docs/protocol/lnet-core.md §2). */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are copied as they are");

#define TAIL_AT   offsetof(struct lnet_hdr, dest_pid) /* what follows the NIDs in both forms */
#define TAIL_SIZE (sizeof(struct lnet_hdr) - TAIL_AT)
#define TAIL_AT4  16 /* of the nid4 form */

/* §2.1 */
_Static_assert(TAIL_AT4 + TAIL_SIZE == LNET_HDR4_SIZE, "nid4 header size");
/* §2.2 */
ASSERT_AT(lnet_hdr, dest_nid, 0);
ASSERT_AT(lnet_hdr, src_nid, 20);
ASSERT_AT(lnet_hdr, dest_pid, 40);
ASSERT_AT(lnet_hdr, src_pid, 44);
ASSERT_AT(lnet_hdr, type, 48);
ASSERT_AT(lnet_hdr, payload_len, 52);
ASSERT_AT(lnet_hdr, body, 56);
_Static_assert(sizeof(struct lnet_hdr) == LNET_HDR16_SIZE, "nid16 header size");
/* §2.3, offsets of the nid4 form less 32 */
ASSERT_AT(lnet_ack, dst.interface_cookie, 0);
ASSERT_AT(lnet_ack, dst.object_cookie, 8);
ASSERT_AT(lnet_ack, match_bits, 16);
ASSERT_AT(lnet_ack, mlength, 24);
ASSERT_AT(lnet_put, ack, 0);
ASSERT_AT(lnet_put, match_bits, 16);
ASSERT_AT(lnet_put, hdr_data, 24);
ASSERT_AT(lnet_put, portal, 32);
ASSERT_AT(lnet_put, offset, 36);
_Static_assert(sizeof(struct lnet_put) == LNET_BODY_SIZE, "the PUT fills the union");
ASSERT_AT(lnet_get, ret, 0);
ASSERT_AT(lnet_get, match_bits, 16);
ASSERT_AT(lnet_get, portal, 24);
ASSERT_AT(lnet_get, src_offset, 28);
ASSERT_AT(lnet_get, sink_length, 32);

enum lnet_drop lnet_hdr_decode4(const void *wire, struct lnet_hdr *out)
{
    uint64_t nid[2];
    enum lnet_drop drop;

    memcpy(nid, wire, sizeof(nid));
    out->dest_nid = nid_from_u64(nid[0]);
    out->src_nid = nid_from_u64(nid[1]);
    memcpy((uint8_t *)out + TAIL_AT, (const uint8_t *)wire + TAIL_AT4, TAIL_SIZE);
    drop = lnet_hdr_validate(out);
    if (drop != LNET_DROP_NONE)
        return drop;
    return nid4_wire_valid(nid[0]) && nid4_wire_valid(nid[1]) ? LNET_DROP_NONE
                                                              : LNET_DROP_HDR_BAD_NID;
}

enum lnet_drop lnet_hdr_decode16(const void *wire, struct lnet_hdr *out)
{
    memcpy(out, wire, sizeof(*out));
    return lnet_hdr_validate(out);
}

enum lnet_drop lnet_hdr_encode4(const struct lnet_hdr *h, void *wire)
{
    const uint64_t nid[2] = {nid_to_u64(&h->dest_nid), nid_to_u64(&h->src_nid)};

    if (!lnet_hdr_fits4(h))
        return LNET_DROP_LARGE_NID_ON_NID4;
    memcpy(wire, nid, sizeof(nid));
    memcpy((uint8_t *)wire + TAIL_AT4, (const uint8_t *)h + TAIL_AT, TAIL_SIZE);
    return LNET_DROP_NONE;
}

void lnet_hdr_encode16(const struct lnet_hdr *h, void *wire)
{
    memcpy(wire, h, sizeof(*h));
}

const char *lnet_msg_type_name(uint32_t type)
{
    static const char *const names[LNET_MSG_TYPES] = {
        [LNET_MSG_ACK] = "ACK",     [LNET_MSG_PUT] = "PUT",     [LNET_MSG_GET] = "GET",
        [LNET_MSG_REPLY] = "REPLY", [LNET_MSG_HELLO] = "HELLO",
    };

    return type < LNET_MSG_TYPES ? names[type] : "?";
}
