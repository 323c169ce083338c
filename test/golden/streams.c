/* SPDX-License-Identifier: BSD-3-Clause */
#include "streams.h"

#include <stdlib.h>
#include <string.h>

static void *grow(void *list, size_t *cap, size_t size)
{
    *cap = *cap ? *cap * 2 : 16;
    list = realloc(list, *cap * size);
    if (!list)
        abort();
    return list;
}

static bool same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
    return a->port == b->port && memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

/* The latest connection between the two; a SYN with another sequence number begins a new one. */
static struct connection *find(struct connections *all, const struct endpoint *client,
                               const struct endpoint *server, const struct tcp_segment *seg,
                               bool from_client)
{
    struct connection *conn = NULL;

    for (size_t i = all->count; i > 0 && !conn; i--) {
        if (same_endpoint(&all->list[i - 1].client, client) &&
            same_endpoint(&all->list[i - 1].server, server))
            conn = &all->list[i - 1];
    }
    if (conn && !(seg->syn && from_client && !seg->ack))
        return conn;
    if (conn && conn->to_server.syn_seen && conn->to_server.isn == seg->seq)
        return conn;
    if (all->count == all->cap)
        all->list = grow(all->list, &all->cap, sizeof(*all->list));
    conn = &all->list[all->count++];
    memset(conn, 0, sizeof(*conn));
    conn->ipv6 = seg->ipv6;
    conn->client = *client;
    conn->server = *server;
    return conn;
}

static void add_span(struct stream *s, const struct tcp_segment *seg, size_t packet)
{
    struct span *span;

    if (s->nspans == s->cap_spans)
        s->spans = grow(s->spans, &s->cap_spans, sizeof(*s->spans));
    span = &s->spans[s->nspans++];
    span->seq = seg->seq + seg->syn;
    span->packet = packet;
    span->len = seg->captured;
    span->data = malloc(seg->captured);
    if (!span->data)
        abort();
    memcpy(span->data, seg->data, seg->captured);
}

void connections_add(void *connections, const struct tcp_segment *seg)
{
    struct connections *all = connections;
    bool from_client = seg->dst.port == all->port;
    struct connection *conn;
    struct stream *s;

    if (!from_client && seg->src.port != all->port)
        return;
    conn = from_client ? find(all, &seg->src, &seg->dst, seg, true)
                       : find(all, &seg->dst, &seg->src, seg, false);
    s = from_client ? &conn->to_server : &conn->to_client;
    if (seg->syn) {
        s->syn_seen = true;
        s->isn = seg->seq;
    }
    all->packets++;
    if ((seg->fin || seg->rst) && s->closed == 0)
        s->closed = all->packets;
    if (seg->captured > 0)
        add_span(s, seg, all->packets);
}

/* ---- putting together ---- */

struct place {
    size_t offset;
    const struct span *span;
};

static int by_offset(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->span < y->span ? -1 : x->span > y->span;
}

/* Where the stream begins: behind the SYN, or at the lowest number seen. */
static uint32_t base_of(const struct stream *s)
{
    uint32_t base;

    if (s->syn_seen)
        return s->isn + 1;
    base = s->spans[0].seq;
    for (size_t i = 1; i < s->nspans; i++) {
        if ((int32_t)(s->spans[i].seq - base) < 0)
            base = s->spans[i].seq;
    }
    return base;
}

/* Appends what p has beyond the end of what there is, and a hole if it begins behind that. */
static void append(struct stream *s, const struct place *p)
{
    size_t end = p->offset + p->span->len, overlap;

    if (p->offset > s->len) {
        s->holes[s->nholes++] = (struct hole){s->len, p->offset};
        s->len = p->offset;
    }
    overlap = s->len - p->offset;
    if (overlap > p->span->len)
        overlap = p->span->len;
    /* Sorted by offset, so nothing here lies in a hole but what an earlier, longer one covers. */
    for (size_t i = 0; i < overlap; i++)
        s->conflicts += s->bytes[p->offset + i] != p->span->data[i];
    memcpy(s->bytes + p->offset + overlap, p->span->data + overlap, p->span->len - overlap);
    if (end > s->len)
        s->len = end;
}

/* Further ahead than any window: a stray packet of an older connection. */
#define STRAY (64 << 20)

static void assemble(struct stream *s)
{
    struct place *places;
    size_t end = 0, n = 0;
    uint32_t base;

    if (s->nspans == 0)
        return;
    base = base_of(s);
    places = calloc(s->nspans, sizeof(*places));
    s->starts = calloc(s->nspans, sizeof(*s->starts));
    s->holes = calloc(s->nspans, sizeof(*s->holes));
    if (!places || !s->starts || !s->holes)
        abort();
    for (size_t i = 0; i < s->nspans; i++) {
        int32_t offset = (int32_t)(s->spans[i].seq - base);

        if (offset < 0 || offset > STRAY) /* below the base are keepalive probes */
            continue;
        places[n++] = (struct place){(size_t)offset, &s->spans[i]};
        if ((size_t)offset + s->spans[i].len > end)
            end = (size_t)offset + s->spans[i].len;
    }
    s->bytes = calloc(1, end + 1);
    if (!s->bytes)
        abort();
    qsort(places, n, sizeof(*places), by_offset);
    for (size_t i = 0; i < n; i++) {
        s->starts[s->nstarts++] = places[i].offset;
        append(s, &places[i]);
    }
    free(places);
}

size_t stream_contiguous(const struct stream *s, size_t pos)
{
    for (size_t i = 0; i < s->nholes; i++) {
        if (pos < s->holes[i].from)
            return s->holes[i].from - pos;
        if (pos < s->holes[i].to)
            return 0;
    }
    return s->len - pos;
}

size_t stream_packet(const struct stream *s, size_t pos)
{
    uint32_t base = base_of(s);

    for (size_t i = 0; i < s->nspans; i++) {
        if (pos - (size_t)(s->spans[i].seq - base) < s->spans[i].len)
            return s->spans[i].packet;
    }
    return 0;
}

size_t stream_last_packet(const struct stream *s)
{
    return s->nspans > 0 ? s->spans[s->nspans - 1].packet : 0;
}

size_t stream_missing(const struct stream *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->nholes; i++)
        n += s->holes[i].to - s->holes[i].from;
    return n;
}

void connections_assemble(struct connections *all)
{
    for (size_t i = 0; i < all->count; i++) {
        assemble(&all->list[i].to_server);
        assemble(&all->list[i].to_client);
    }
}

static void stream_free(struct stream *s)
{
    for (size_t i = 0; i < s->nspans; i++)
        free(s->spans[i].data);
    free(s->spans);
    free(s->bytes);
    free(s->starts);
    free(s->holes);
}

void connections_free(struct connections *all)
{
    for (size_t i = 0; i < all->count; i++) {
        stream_free(&all->list[i].to_server);
        stream_free(&all->list[i].to_client);
    }
    free(all->list);
}
