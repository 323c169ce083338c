/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_COMPLAINTS 20

void complain(struct run *run, const char *what, const struct item *item)
{
    if (run->failures++ < MAX_COMPLAINTS)
        printf("    %s: %s\n", item_kind_name(item), what);
}

/* ---- mutations ---- */

static bool fields_equal(const struct field *a, size_t na, const struct field *b, size_t nb)
{
    if (na != nb)
        return false;
    for (size_t i = 0; i < na; i++) {
        if (a[i].size != b[i].size || memcmp(a[i].at, b[i].at, a[i].size) != 0)
            return false;
    }
    return true;
}

/* Two values per byte of each field: the low bit and the high one. */
static const uint8_t field_flips[] = {0x01, 0x80};

static void mutate_item_fields(struct run *run, struct item *item, const uint8_t *head, size_t len)
{
    struct field list[ITEM_FIELDS_MAX];
    uint8_t out[ITEM_HEAD_MAX];
    size_t n = item_fields(item, list, false), i, k, f;

    for (i = 0; i < n; i++) {
        for (k = 0; k < list[i].size; k++) {
            for (f = 0; f < sizeof(field_flips); f++) {
                uint8_t *at = (uint8_t *)list[i].at + k;

                *at ^= field_flips[f];
                if (item_encode_head(item, out) == len && memcmp(out, head, len) == 0)
                    complain(run, "a changed field is not in the encoded bytes", item);
                *at ^= field_flips[f];
                run->fields++;
            }
        }
    }
}

static struct decoded decode_again(const struct item *item, struct item *out, const uint8_t *buf,
                                   size_t len)
{
    switch (item->kind) {
    case ITEM_REQ:
        return item_decode_req(out, buf, len);
    case ITEM_HELLO:
        return item_decode_hello(out, buf, len, item->version);
    default:
        return item_decode_frame(out, buf, len, item->version);
    }
}

static bool same_item(struct item *a, struct item *b)
{
    struct field la[ITEM_FIELDS_MAX], lb[ITEM_FIELDS_MAX];

    return a->kind == b->kind &&
           fields_equal(la, item_fields(a, la, true), lb, item_fields(b, lb, true));
}

static void mutate_head_bits(struct run *run, struct item *item, const uint8_t *head, size_t len)
{
    uint8_t copy[ITEM_HEAD_MAX];
    struct item other;

    memcpy(copy, head, len);
    for (size_t i = 0; i < len; i++) {
        if (item_head_ignored(item, i))
            continue;
        for (unsigned bit = 0; bit < 8; bit++) {
            struct decoded d;

            copy[i] ^= (uint8_t)(1u << bit);
            d = decode_again(item, &other, copy, len);
            if (d.drop == LNET_DROP_NONE && !d.cut && same_item(item, &other))
                complain(run, "a changed bit is neither refused nor seen", item);
            copy[i] ^= (uint8_t)(1u << bit);
            run->bits++;
        }
    }
}

void check_head(struct run *run, struct item *item, const uint8_t *head)
{
    size_t len = item_head_size(item);
    uint8_t out[ITEM_HEAD_MAX];

    if (run->decode_only)
        return;
    if (item_encode_head(item, out) != len || memcmp(out, head, len) != 0) {
        complain(run, "encodes to other bytes than were recorded", item);
        return;
    }
    if (item->kind == ITEM_REPLY)
        return; /* no fields */
    mutate_item_fields(run, item, head, len);
    mutate_head_bits(run, item, head, len);
}

void check_odd_req(struct run *run, struct item *item, const uint8_t *head)
{
    uint8_t out[ITEM_HEAD_MAX];
    struct item back;
    struct decoded d;

    if (run->decode_only)
        return;
    d = item_decode_req(&back, out, item_encode_head(item, out));
    if (d.drop != LNET_DROP_NONE || d.cut || !nid_same(&back.req.target, &item->req.target))
        complain(run, "does not come back as the same target", item);
    mutate_head_bits(run, item, head, item_head_size(item));
}

/* ---- ping infos ---- */

static bool same_ping(struct lnet_ping_info *a, struct lnet_ping_info *b)
{
    static struct field la[PING_FIELDS_MAX], lb[PING_FIELDS_MAX];

    return fields_equal(la, ping_fields(a, la, true), lb, ping_fields(b, lb, true));
}

static void mutate_ping_fields(struct run *run, const struct item *item, const uint8_t *wire,
                               size_t len)
{
    static uint8_t out[LNET_PING_MAX_SIZE];
    static struct field list[PING_FIELDS_MAX];
    size_t n = ping_fields(item->ping, list, false), i, k, f;

    for (i = 0; i < n; i++) {
        for (k = 0; k < list[i].size; k++) {
            for (f = 0; f < sizeof(field_flips); f++) {
                uint8_t *at = (uint8_t *)list[i].at + k;

                *at ^= field_flips[f];
                if (lnet_ping_encode(item->ping, out, sizeof(out)) == len &&
                    memcmp(out, wire, len) == 0)
                    complain(run, "a changed field of a ping info is not encoded", item);
                *at ^= field_flips[f];
                run->fields++;
            }
        }
    }
}

static void mutate_ping_bits(struct run *run, const struct item *item, const uint8_t *wire,
                             size_t len)
{
    static struct lnet_ping_info other;
    static uint8_t copy[LNET_PING_MAX_SIZE];

    memcpy(copy, wire, len);
    for (size_t i = 0; i < len; i++) {
        if (ping_ignored(item->ping, i))
            continue;
        for (unsigned bit = 0; bit < 8; bit++) {
            copy[i] ^= (uint8_t)(1u << bit);
            if (lnet_ping_decode(copy, len, &other) == LNET_DROP_NONE &&
                same_ping(item->ping, &other))
                complain(run, "a changed bit of a ping info is neither refused nor seen", item);
            copy[i] ^= (uint8_t)(1u << bit);
            run->bits++;
        }
    }
}

static void check_ping(struct run *run, const struct item *item, const uint8_t *wire, size_t len)
{
    static uint8_t out[LNET_PING_MAX_SIZE];

    if (run->decode_only)
        return;
    if (lnet_ping_encode(item->ping, out, sizeof(out)) != len || memcmp(out, wire, len) != 0) {
        complain(run, "the ping info encodes to other bytes than were recorded", item);
        return;
    }
    mutate_ping_fields(run, item, wire, len);
    mutate_ping_bits(run, item, wire, len);
}

/* The payload of item is a ping info: decode it in place of the bytes. */
static void take_ping(struct run *run, struct item *item)
{
    size_t len = item->hdr.payload_len;
    enum lnet_drop drop;

    item->ping = malloc(sizeof(*item->ping));
    if (!item->ping)
        abort();
    drop = lnet_ping_decode(item->payload, len, item->ping);
    if (drop == LNET_DROP_NONE && !item->ping->truncated) {
        run->counts.ping++;
        check_ping(run, item, item->payload, len);
        return;
    }
    if (drop == LNET_DROP_NONE)
        run->counts.ping_cut++;
    else
        run->counts.ping_bad++;
    free(item->ping);
    item->ping = NULL;
}

/* The ping GET that a REPLY answers, by its handle. */
static const struct item *asked_by(const struct run *run, const struct item *reply)
{
    size_t i;

    for (i = 0; i < run->nitems; i++) {
        const struct item *item = &run->items[i];

        if (item_is_ping_get(item) &&
            memcmp(&item->get.ret, &reply->reply.dst, sizeof(reply->reply.dst)) == 0)
            return item;
    }
    return NULL;
}

void take_pings(struct run *run)
{
    size_t i;

    for (i = 0; i < run->nitems; i++) {
        struct item *item = &run->items[i];
        const struct item *get = NULL;

        if (item->kind != ITEM_LNET || item->hdr.payload_len == 0)
            continue;
        if (item->body_type == LNET_MSG_REPLY)
            get = asked_by(run, item);
        if (get && get->get.src_offset != 0)
            run->counts.ping_cut++;
        else if (get || item_is_push(item))
            take_ping(run, item);
    }
}
