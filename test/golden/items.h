/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a stream consists of, as decoded fields. Nothing in an item but opaque payload is a copy of
 * recorded bytes: the union of an LNet header is kept as its fields, a ping info as its list.
 */
#ifndef MILLRACE_TEST_GOLDEN_ITEMS_H
#define MILLRACE_TEST_GOLDEN_ITEMS_H

#include "lib/lnd_eth/socklnd/socklnd_wire.h"

enum item_kind {
    ITEM_REQ,
    ITEM_REPLY,
    ITEM_HELLO,
    ITEM_NOOP,
    ITEM_LNET
};

struct item {
    enum item_kind kind;
    size_t size;      /* bytes in the stream, payload included */
    uint32_t version; /* of the HELLO: which header form frames have */
    struct sock_req req;
    struct sock_hello hello;
    struct sock_frame frame;
    struct lnet_hdr hdr; /* body all zero: it is in the next */
    uint32_t body_type;
    struct lnet_ack ack;
    struct lnet_put put;
    struct lnet_get get;
    struct lnet_reply reply;
    struct lnet_ping_info *ping; /* payload that is a whole ping info; owned */
    uint8_t *payload;            /* otherwise; owned */
};

/* Outcome of decoding at a place. */
struct decoded {
    enum lnet_drop drop; /* refused */
    bool cut;            /* the bytes end before the unit does */
};

/* Each decodes one unit at the start of buf. item is overwritten; payload is not taken in. */
struct decoded item_decode_req(struct item *item, const uint8_t *buf, size_t len);
struct decoded item_decode_hello(struct item *item, const uint8_t *buf, size_t len,
                                 uint32_t version);
struct decoded item_decode_frame(struct item *item, const uint8_t *buf, size_t len,
                                 uint32_t version);

/* Bytes of the unit without payload. */
size_t item_head_size(const struct item *item);
/* Writes the unit without payload; 0 when the fields cannot be put on the wire. */
#define ITEM_HEAD_MAX 128
size_t item_encode_head(const struct item *item, uint8_t buf[ITEM_HEAD_MAX]);

/* The decoded fields, one after the other. derived: also those that the encoder works out. */
struct field {
    void *at;
    size_t size;
};
#define ITEM_FIELDS_MAX 64
size_t item_fields(struct item *item, struct field list[ITEM_FIELDS_MAX], bool derived);
#define PING_FIELDS_MAX (16 + 8 * LNET_PING_MAX_NIDS)
size_t ping_fields(struct lnet_ping_info *info, struct field list[PING_FIELDS_MAX], bool derived);

/* The LNet header of an item alone: its union into fields, back, all as a list, and the bytes of
 * the union that mean something. */
void item_take_body(struct item *item);
struct lnet_hdr item_hdr(const struct item *item);
size_t item_hdr_fields(struct item *item, struct field *list);
size_t item_body_used(const struct item *item);

/* Bytes of the head that mean nothing: what is left over of the union (lnet-core.md §2.3). */
bool item_head_ignored(const struct item *item, size_t offset);
/* Of a ping info: the last word of all entries but the first (§3.2). */
bool ping_ignored(const struct lnet_ping_info *info, size_t offset);

const char *item_kind_name(const struct item *item);
bool item_is_ping_get(const struct item *item);
bool item_is_push(const struct item *item);
void item_free(struct item *item);

#endif
