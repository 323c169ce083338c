/* SPDX-License-Identifier: BSD-3-Clause */
#include "items.h"

#include <stdlib.h>

#define DECODED    ((struct decoded){LNET_DROP_NONE, false})
#define CUT        ((struct decoded){LNET_DROP_NONE, true})
#define REFUSED(d) ((struct decoded){(d), false})

static size_t hdr_size(uint32_t version)
{
    return version == SOCK_HELLO_V4 ? LNET_HDR16_SIZE : LNET_HDR4_SIZE;
}

struct decoded item_decode_req(struct item *item, const uint8_t *buf, size_t len)
{
    struct sock_stage stage = sock_req_stage(buf, len);
    enum lnet_drop drop;

    memset(item, 0, sizeof(*item));
    item->kind = ITEM_REQ;
    if (stage.drop != LNET_DROP_NONE)
        return REFUSED(stage.drop);
    if (stage.need > 0)
        return CUT;
    drop = sock_req_decode(buf, len, &item->req);
    item->size = item->req.version == SOCK_REQ_V1 ? SOCK_REQ4_SIZE : SOCK_REQ16_SIZE;
    return REFUSED(drop);
}

struct decoded item_decode_hello(struct item *item, const uint8_t *buf, size_t len,
                                 uint32_t version)
{
    struct sock_stage stage = sock_hello_stage(buf, len, version);
    enum lnet_drop drop;

    memset(item, 0, sizeof(*item));
    item->kind = ITEM_HELLO;
    item->version = version;
    if (stage.drop != LNET_DROP_NONE)
        return REFUSED(stage.drop);
    if (stage.need > 0)
        return CUT;
    drop = sock_hello_decode(buf, len, version, &item->hello);
    item->size =
        version == SOCK_HELLO_V4 ? SOCK_HELLO16_SIZE : SOCK_HELLO4_SIZE + 4 * item->hello.nips;
    return REFUSED(drop);
}

void item_take_body(struct item *item)
{
    item->body_type = item->hdr.type;
    switch (item->body_type) {
    case LNET_MSG_ACK:
        lnet_body_get_ack(&item->hdr, &item->ack);
        break;
    case LNET_MSG_PUT:
        lnet_body_get_put(&item->hdr, &item->put);
        break;
    case LNET_MSG_GET:
        lnet_body_get_get(&item->hdr, &item->get);
        break;
    default:
        lnet_body_get_reply(&item->hdr, &item->reply);
        break;
    }
    memset(item->hdr.body, 0, sizeof(item->hdr.body));
}

struct decoded item_decode_frame(struct item *item, const uint8_t *buf, size_t len,
                                 uint32_t version)
{
    uint64_t acked;
    enum lnet_drop drop;

    memset(item, 0, sizeof(*item));
    item->kind = ITEM_NOOP;
    item->version = version;
    item->size = SOCK_FRAME_SIZE;
    if (len < SOCK_FRAME_SIZE)
        return CUT;
    drop = sock_frame_decode(buf, &item->frame);
    if (drop == LNET_DROP_NONE)
        drop = sock_frame_zc_ack(&item->frame, &acked);
    if (drop != LNET_DROP_NONE || item->frame.type == SOCK_FRAME_NOOP)
        return REFUSED(drop);
    item->kind = ITEM_LNET;
    item->size += hdr_size(version);
    if (len < item->size)
        return CUT;
    drop = version == SOCK_HELLO_V4 ? lnet_hdr_decode16(buf + SOCK_FRAME_SIZE, &item->hdr)
                                    : lnet_hdr_decode4(buf + SOCK_FRAME_SIZE, &item->hdr);
    if (drop != LNET_DROP_NONE)
        return REFUSED(drop);
    item->size += item->hdr.payload_len;
    item_take_body(item);
    return DECODED;
}

size_t item_head_size(const struct item *item)
{
    return item->kind == ITEM_LNET ? SOCK_FRAME_SIZE + hdr_size(item->version) : item->size;
}

struct lnet_hdr item_hdr(const struct item *item)
{
    struct lnet_hdr hdr = item->hdr;

    memset(hdr.body, 0xa5, sizeof(hdr.body)); /* setting the union must not depend on it */
    switch (item->body_type) {
    case LNET_MSG_ACK:
        lnet_body_set_ack(&hdr, &item->ack);
        break;
    case LNET_MSG_PUT:
        lnet_body_set_put(&hdr, &item->put);
        break;
    case LNET_MSG_GET:
        lnet_body_set_get(&hdr, &item->get);
        break;
    default:
        lnet_body_set_reply(&hdr, &item->reply);
        break;
    }
    return hdr;
}

static size_t encode_lnet(const struct item *item, uint8_t *buf)
{
    struct lnet_hdr hdr = item_hdr(item);

    sock_frame_encode(&item->frame, buf);
    if (item->version == SOCK_HELLO_V4)
        lnet_hdr_encode16(&hdr, buf + SOCK_FRAME_SIZE);
    else if (lnet_hdr_encode4(&hdr, buf + SOCK_FRAME_SIZE) != LNET_DROP_NONE)
        return 0;
    return SOCK_FRAME_SIZE + hdr_size(item->version);
}

size_t item_encode_head(const struct item *item, uint8_t buf[ITEM_HEAD_MAX])
{
    _Static_assert(ITEM_HEAD_MAX >= SOCK_HELLO_MAX, "HELLO");
    _Static_assert(ITEM_HEAD_MAX >= SOCK_FRAME_SIZE + LNET_HDR16_SIZE, "frame and header");
    switch (item->kind) {
    case ITEM_REQ:
        return sock_req_encode(&item->req.target, buf);
    case ITEM_REPLY:
        sock_reply_encode(buf);
        return SOCK_REPLY_SIZE;
    case ITEM_HELLO:
        return sock_hello_encode(&item->hello, buf);
    case ITEM_NOOP:
        sock_frame_encode(&item->frame, buf);
        return SOCK_FRAME_SIZE;
    default:
        return encode_lnet(item, buf);
    }
}

/* ---- fields ---- */

#define PUT(x) (list[n++] = (struct field){&(x), sizeof(x)})

static size_t nid_fields(struct lnet_nid *nid, struct field *list)
{
    size_t n = 0;

    PUT(nid->size);
    PUT(nid->type);
    PUT(nid->num_be);
    /* Behind the significant bytes there are only zeroes, which is checked, not carried. */
    list[n++] = (struct field){nid->addr_be, nid->size > 12 ? 16 : nid->size + 4u};
    return n;
}

static size_t hello_fields(struct sock_hello *h, struct field *list)
{
    size_t n = 0;

    PUT(h->version);
    n += nid_fields(&h->src_nid, list + n);
    n += nid_fields(&h->dst_nid, list + n);
    PUT(h->src_pid);
    PUT(h->dst_pid);
    PUT(h->src_incarnation);
    PUT(h->dst_incarnation);
    PUT(h->ctype);
    PUT(h->nips);
    if (h->version == SOCK_HELLO_V3 && h->nips > 0 && h->nips <= SOCK_NIPS_MAX)
        list[n++] = (struct field){h->ips, h->nips * sizeof(h->ips[0])};
    return n;
}

static size_t body_fields(struct item *item, struct field *list)
{
    size_t n = 0;

    switch (item->body_type) {
    case LNET_MSG_ACK:
        PUT(item->ack.dst);
        PUT(item->ack.match_bits);
        PUT(item->ack.mlength);
        break;
    case LNET_MSG_PUT:
        PUT(item->put.ack);
        PUT(item->put.match_bits);
        PUT(item->put.hdr_data);
        PUT(item->put.portal);
        PUT(item->put.offset);
        break;
    case LNET_MSG_GET:
        PUT(item->get.ret);
        PUT(item->get.match_bits);
        PUT(item->get.portal);
        PUT(item->get.src_offset);
        PUT(item->get.sink_length);
        break;
    default:
        PUT(item->reply.dst);
        break;
    }
    return n;
}

size_t item_hdr_fields(struct item *item, struct field *list)
{
    size_t n = 0;

    n += nid_fields(&item->hdr.dest_nid, list + n);
    n += nid_fields(&item->hdr.src_nid, list + n);
    PUT(item->hdr.dest_pid);
    PUT(item->hdr.src_pid);
    PUT(item->hdr.type);
    PUT(item->hdr.payload_len);
    return n + body_fields(item, list + n);
}

static size_t frame_fields(struct item *item, struct field *list)
{
    size_t n = 0;

    PUT(item->frame.type);
    PUT(item->frame.csum);
    PUT(item->frame.cookie);
    if (item->kind == ITEM_NOOP)
        return n;
    return n + item_hdr_fields(item, list + n);
}

size_t item_fields(struct item *item, struct field list[ITEM_FIELDS_MAX], bool derived)
{
    size_t n = 0;

    switch (item->kind) {
    case ITEM_REQ:
        if (derived) { /* the encoder takes version by the NID, and writes our byte order */
            PUT(item->req.version);
            PUT(item->req.flip);
        }
        return n + nid_fields(&item->req.target, list + n);
    case ITEM_REPLY:
        return 0;
    case ITEM_HELLO:
        return hello_fields(&item->hello, list);
    default:
        return frame_fields(item, list);
    }
}

size_t ping_fields(struct lnet_ping_info *info, struct field list[PING_FIELDS_MAX], bool derived)
{
    size_t n = 0;

    PUT(info->features);
    PUT(info->pid);
    PUT(info->seqno);
    PUT(info->count);
    if (derived) {
        PUT(info->msg_size);
        PUT(info->nnis);
        PUT(info->full_size);
        PUT(info->truncated);
        PUT(info->swapped);
    }
    for (uint32_t i = 0; i < info->count && i < LNET_PING_MAX_NIDS; i++) {
        n += nid_fields(&info->ni[i].nid, list + n);
        PUT(info->ni[i].status);
    }
    return n;
}

/* ---- bytes without meaning ---- */

size_t item_body_used(const struct item *item)
{
    static const size_t used[] = {
        [LNET_MSG_ACK] = 28, [LNET_MSG_PUT] = 40, [LNET_MSG_GET] = 36, [LNET_MSG_REPLY] = 16};

    return used[item->body_type];
}

bool item_head_ignored(const struct item *item, size_t offset)
{
    if (item->kind != ITEM_LNET)
        return false;
    return offset >= item_head_size(item) - LNET_BODY_SIZE + item_body_used(item);
}

bool ping_ignored(const struct lnet_ping_info *info, size_t offset)
{
    size_t end = LNET_PING_HDR_SIZE + 16 * (size_t)info->nnis;

    return offset >= LNET_PING_HDR_SIZE + 16 && offset < end && offset % 16 >= 12;
}

/* ---- */

static bool is_reserved(uint32_t portal, uint64_t match_bits)
{
    return portal == LNET_RESERVED_PORTAL && match_bits == LNET_PING_MATCH_BITS;
}

const char *item_kind_name(const struct item *item)
{
    static const char *const names[] = {
        [ITEM_REQ] = "acceptor request", [ITEM_REPLY] = "acceptor reply", [ITEM_HELLO] = "HELLO",
        [ITEM_NOOP] = "frame",           [ITEM_LNET] = "message",
    };

    return names[item->kind];
}

bool item_is_ping_get(const struct item *item)
{
    return item->kind == ITEM_LNET && item->body_type == LNET_MSG_GET &&
           is_reserved(item->get.portal, item->get.match_bits);
}

bool item_is_push(const struct item *item)
{
    return item->kind == ITEM_LNET && item->body_type == LNET_MSG_PUT &&
           is_reserved(item->put.portal, item->put.match_bits);
}

void item_free(struct item *item)
{
    free(item->ping);
    free(item->payload);
}
