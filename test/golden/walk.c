/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "lib/lnet/wire/guard.h"
#include "test/drops_test.h"

REGISTER_DROPS(sock_drops);

/* ---- keeping ---- */

static struct item *keep(struct run *run, const struct item *item)
{
    if (run->nitems == run->cap_items) {
        run->cap_items = run->cap_items ? run->cap_items * 2 : 256;
        run->items = realloc(run->items, run->cap_items * sizeof(*run->items));
        if (!run->items)
            abort();
    }
    run->items[run->nitems] = *item;
    return &run->items[run->nitems++];
}

/* ---- streams ---- */

struct walk {
    struct run *run;
    const struct stream *stream, *back; /* this direction, the other one */
    size_t pos;
    size_t first_item;   /* of the run of units that is to be encoded again */
    size_t checked_from; /* where in the stream that run begins */
    uint32_t version;    /* header form, from the HELLO */
    bool resynced;       /* frames were found again behind a hole */
};

static const uint8_t *at(const struct walk *w)
{
    return w->stream->bytes + w->pos;
}

static size_t left(const struct walk *w)
{
    return w->stream->len - w->pos;
}

/* What can be read without falling into a hole. */
static size_t readable(const struct walk *w)
{
    return stream_contiguous(w->stream, w->pos);
}

/* The stream since the last call once more, into a fresh buffer from the kept fields. */
static void re_encode(struct walk *w)
{
    size_t want = w->pos - w->checked_from, room = want + ITEM_HEAD_MAX, len = 0, i;
    uint8_t *out;

    if (w->run->decode_only)
        return;
    out = calloc(1, room);
    if (!out)
        abort();
    for (i = w->first_item; i < w->run->nitems; i++) {
        const struct item *item = &w->run->items[i];
        size_t payload = item->kind == ITEM_LNET ? item->hdr.payload_len : 0;
        uint8_t head[ITEM_HEAD_MAX];
        size_t n = item_encode_head(item, head);

        if (len + n + payload > room)
            break;
        memcpy(out + len, head, n);
        if (payload > 0)
            memcpy(out + len + n, item->payload, payload);
        len += n + payload;
    }
    if (len != want || memcmp(out, w->stream->bytes + w->checked_from, len) != 0) {
        printf("    a stream of %zu bytes encodes to others\n", w->stream->len);
        w->run->failures++;
    }
    free(out);
    w->first_item = w->run->nitems;
    w->checked_from = w->pos;
}

static void count_message(struct counts *c, const struct item *item)
{
    switch (item->body_type) {
    case LNET_MSG_ACK:
        c->ack++;
        break;
    case LNET_MSG_PUT:
        c->put++;
        break;
    case LNET_MSG_GET:
        c->get++;
        break;
    default:
        c->msg_reply++;
        break;
    }
    c->payload += item->hdr.payload_len;
}

static void count_item(struct counts *c, const struct item *item)
{
    uint64_t acked;

    switch (item->kind) {
    case ITEM_REQ:
        c->req++;
        return;
    case ITEM_REPLY:
        c->reply++;
        return;
    case ITEM_HELLO:
        c->hello++;
        c->none += item->hello.ctype == SOCK_CTYPE_NONE;
        return;
    case ITEM_NOOP:
        c->noop++;
        break;
    case ITEM_LNET:
        count_message(c, item);
        break;
    }
    sock_frame_zc_ack(&item->frame, &acked);
    c->keepalive += acked == 0 && item->frame.cookie[1] == SOCK_COOKIE_PING;
    c->zc_acked += acked;
    c->zc_req += sock_frame_zc_req(&item->frame) != 0;
}

/* A unit that is there whole: check it, keep its fields and a copy of its payload, go on. */
static void accept_item(struct walk *w, struct item *item)
{
    size_t head = item_head_size(item), payload = item->size - head;
    bool odd = item->kind == ITEM_REQ && (item->req.flip || (item->req.version == SOCK_REQ_V2) ==
                                                                nid_is_nid4(&item->req.target));

    if (odd) {
        w->run->counts.odd_req++;
        check_odd_req(w->run, item, at(w));
    } else {
        check_head(w->run, item, at(w));
    }
    if (payload > 0) {
        item->payload = malloc(payload);
        if (!item->payload)
            abort();
        memcpy(item->payload, at(w) + head, payload);
    }
    count_item(&w->run->counts, item);
    if (item->kind == ITEM_LNET) {
        const struct lnet_hdr hdr = item_hdr(item);
        enum lnet_drop drop = lnet_guard(&hdr, LNET_GUARD_ALL);

        if (drop != LNET_DROP_NONE)
            complain(w->run, lnet_drop_info(drop)->name, item);
    }
    keep(w->run, item);
    w->pos += item->size;
    if (odd) { /* first of its stream: what follows is encoded from here */
        w->first_item = w->run->nitems;
        w->checked_from = w->pos;
    }
}

static void give_up(struct walk *w)
{
    re_encode(w);
    w->pos = w->checked_from = w->stream->len;
}

/* The recorded node refused it too: it closed the connection before the sender did, and said
 * nothing but perhaps why (which goes before frames only) once it had the bytes. */
static bool node_agrees(const struct walk *w, bool in_frames)
{
    size_t closed = w->back->closed;

    if (closed == 0 || (w->stream->closed != 0 && w->stream->closed < closed))
        return false;
    return !in_frames || stream_last_packet(w->back) < stream_packet(w->stream, w->pos);
}

static void refused(struct walk *w, const struct item *item, enum lnet_drop drop)
{
    bool agreed = node_agrees(w, item->kind == ITEM_NOOP || item->kind == ITEM_LNET);

    w->run->counts.refused++;
    w->run->refusal = drop;
    w->run->counts.rest += left(w);
    printf("    %s refused: %s, %zu bytes; %s\n", item_kind_name(item), lnet_drop_info(drop)->name,
           left(w), agreed ? "so did the node" : "the node took it");
    /* What a kernel takes and we do not speak, by design: other versions, the other byte order. */
    if (!agreed && drop != SOCK_DROP(HELLO_VERSION) && drop != SOCK_DROP(HELLO_MAGIC))
        w->run->failures++;
    give_up(w);
}

/* To the next segment from the place on that begins with a frame. */
static bool find_frame(struct walk *w)
{
    struct item item;
    size_t from = w->pos, i;

    re_encode(w);
    w->resynced = true;
    for (i = 0; i < w->stream->nstarts; i++) {
        struct decoded d;

        w->pos = w->stream->starts[i];
        if (w->pos < from || readable(w) == 0)
            continue;
        d = item_decode_frame(&item, at(w), readable(w), w->version);
        if (d.drop == LNET_DROP_NONE && !d.cut)
            break;
    }
    if (i == w->stream->nstarts)
        w->pos = w->stream->len;
    w->run->counts.skipped += w->pos - from;
    w->checked_from = w->pos;
    return w->pos < w->stream->len;
}

/* The payload against the checksum of its frame (socklnd.md §4.6). */
static bool csum_ok(const struct walk *w, const struct item *item)
{
    size_t head = item_head_size(item);

    if (item->kind != ITEM_LNET || item->frame.csum == 0 || readable(w) < item->size)
        return true;
    return sock_crc32(SOCK_CRC_SEED, at(w) + head, item->size - head) == item->frame.csum;
}

/* False when the stream ends here. */
static bool step(struct walk *w, struct item *item, struct decoded d)
{
    if (d.drop != LNET_DROP_NONE) {
        refused(w, item, d.drop);
        return false;
    }
    if (d.cut && readable(w) < left(w)) /* the head lies in a hole */
        return find_frame(w);
    if (d.cut || left(w) < item->size) {
        w->run->counts.cut += left(w);
        give_up(w);
        return false;
    }
    if (!csum_ok(w, item)) {
        refused(w, item, SOCK_DROP(PAYLOAD_CSUM));
        return false;
    }
    accept_item(w, item);
    return true;
}

static bool decode_hello(struct walk *w, struct item *item)
{
    uint32_t said;

    if (readable(w) >= 8) { /* a sender may use either version on either family (socklnd.md §2.2) */
        memcpy(&said, at(w) + 4, sizeof(said));
        if (said == SOCK_HELLO_V3 || said == SOCK_HELLO_V4)
            w->version = said;
    }
    return step(w, item, item_decode_hello(item, at(w), readable(w), w->version));
}

static bool decode_reply(struct walk *w, struct item *item)
{
    memset(item, 0, sizeof(*item));
    item->kind = ITEM_REPLY;
    item->size = SOCK_REPLY_SIZE;
    return step(w, item, (struct decoded){LNET_DROP_NONE, false});
}

static void decode_frames(struct walk *w)
{
    struct item item;

    while (left(w) > 0) {
        if (!step(w, &item, item_decode_frame(&item, at(w), readable(w), w->version)))
            return;
    }
}

static enum sock_magic first_magic(const struct walk *w)
{
    return readable(w) >= 4 ? sock_magic(at(w)) : SOCK_FIRST_UNKNOWN;
}

static void decode_to_server(struct walk *w)
{
    struct item item;

    if (w->stream->syn_seen || first_magic(w) == SOCK_FIRST_ACCEPTOR) {
        if (!step(w, &item, item_decode_req(&item, at(w), readable(w))))
            return;
        if (!w->resynced && (left(w) == 0 || !decode_hello(w, &item)))
            return;
    } else {
        find_frame(w);
    }
    decode_frames(w);
}

/* Nothing may follow a refusal. */
static void expect_end(struct walk *w, const struct item *item)
{
    if (left(w) > 0 && !w->resynced)
        refused(w, item, SOCK_DROP(FRAME_TYPE));
}

static void decode_to_client(struct walk *w)
{
    struct item item;

    if (first_magic(w) == SOCK_FIRST_ACCEPTOR) {
        if (decode_reply(w, &item))
            expect_end(w, &item);
        return;
    }
    if (w->stream->syn_seen || first_magic(w) == SOCK_FIRST_LNET) {
        if (!decode_hello(w, &item))
            return;
        if (!w->resynced && item.hello.ctype == SOCK_CTYPE_NONE) {
            expect_end(w, &item);
            return;
        }
    } else {
        find_frame(w);
    }
    decode_frames(w);
}

void decode_stream(struct run *run, const struct connection *conn, bool to_server)
{
    const struct stream *s = to_server ? &conn->to_server : &conn->to_client;
    struct walk w = {
        .run = run,
        .stream = s,
        .back = to_server ? &conn->to_client : &conn->to_server,
        .first_item = run->nitems,
        .version = conn->ipv6 ? SOCK_HELLO_V4 : SOCK_HELLO_V3,
    };

    run->counts.lost += stream_missing(s);
    if (s->conflicts > 0) {
        printf("    %zu bytes were sent twice with different content\n", s->conflicts);
        run->failures++;
    }
    if (s->len == 0)
        return;
    if (to_server)
        decode_to_server(&w);
    else
        decode_to_client(&w);
    re_encode(&w);
}
