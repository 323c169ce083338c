/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_top: the peers with most bytes per second, or most messages queued or waiting. All peers are
 * read twice, page by page. The first pass keeps NIDs and bytes, the second the best rows so far.
 */
#include <stdlib.h>
#include <string.h>

#include "rpc/methods/methods_internal.h"
#include "rpc/methods/timed.h"

#define PAGE        256
#define MAX_PEERS   (1u << 20) /* of the first look: 36 MiB */
#define MAX_ROWS    100
#define DEFAULT_TOP 10
#define DEFAULT_MS  1000

enum by {
    BY_BYTES, /* in the order of the words in the table of methods */
    BY_QUEUED,
    BY_WAITING
};

struct seen {
    struct lnet_nid nid;
    uint64_t in, out;
};

struct best {
    double rank;
    double in, out; /* bytes per second */
    struct lnet_nid nid;
    uint64_t bytes_in, bytes_out;
    uint32_t queued, tx_waiting, rtr_waiting;
    uint16_t health;
    bool up;
};

struct top {
    struct rpc_timed timed; /* first */
    enum by by;
    unsigned count, ms;
    uint64_t began_us;
    double seconds;
    struct seen *seen;
    size_t nseen, room;
    unsigned known, connected; /* peers of the second look */
    unsigned nbest;
    struct best best[MAX_ROWS];
};

/* ---- end ---- */

static void top_end(struct top *top, json_t *answer)
{
    free(top->seen);
    rpc_timed_end(&top->timed);
    jrpc_result(top->timed.call, answer);
}

static json_t *best_row(const struct best *b)
{
    return json_pack("{s:o, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:i, s:b}", "nid", rpc_nid(&b->nid),
                     "bytes_in_per_s", b->in, "bytes_out_per_s", b->out, "bytes_in",
                     (json_int_t)b->bytes_in, "bytes_out", (json_int_t)b->bytes_out, "tx_queued",
                     (json_int_t)b->queued, "tx_waiting", (json_int_t)b->tx_waiting, "rtr_waiting",
                     (json_int_t)b->rtr_waiting, "health", (int)b->health, "up", b->up);
}

static void answer(struct top *top)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < top->nbest; i++)
        json_array_append_new(list, best_row(&top->best[i]));
    top_end(top, json_pack("{s:o, s:f, s:I, s:I}", "peers", list, "seconds", top->seconds, "known",
                           (json_int_t)top->known, "connected", (json_int_t)top->connected));
}

/* ---- the second look ---- */

static int by_nid(const void *a, const void *b)
{
    return memcmp(&((const struct seen *)a)->nid, &((const struct seen *)b)->nid,
                  sizeof(struct lnet_nid));
}

/* A peer may have been forgotten with the bytes of its closed connections. */
static double rate(uint64_t before, uint64_t after, double seconds)
{
    return after > before ? (double)(after - before) / seconds : 0;
}

static double rank_of(const struct top *top, const struct best *b)
{
    switch (top->by) {
    case BY_QUEUED:
        return b->queued;
    case BY_WAITING:
        return (double)b->tx_waiting + b->rtr_waiting;
    default:
        return b->in + b->out;
    }
}

static void insert(struct top *top, const struct best *b)
{
    unsigned i;

    if (top->nbest == top->count && b->rank <= top->best[top->count - 1].rank)
        return;
    i = top->nbest < top->count ? top->nbest++ : top->count - 1;
    for (; i > 0 && top->best[i - 1].rank < b->rank; i--)
        top->best[i] = top->best[i - 1];
    top->best[i] = *b;
}

static void judge(struct top *top, const struct lnet_peer_ni_row *row)
{
    struct seen key = {.nid = row->nid};
    const struct seen *was =
        top->nseen ? bsearch(&key, top->seen, top->nseen, sizeof(key), by_nid) : NULL;
    struct best b = {
        .nid = row->nid,
        .queued = row->tx_queued,
        .tx_waiting = row->tx_waiting,
        .rtr_waiting = row->rtr_waiting,
        .health = (uint16_t)row->health,
        .up = row->up,
        .bytes_in = row->lnd.bytes_in,
        .bytes_out = row->lnd.bytes_out,
        .in = rate(was ? was->in : 0, row->lnd.bytes_in, top->seconds),
        .out = rate(was ? was->out : 0, row->lnd.bytes_out, top->seconds),
    };

    top->known++;
    top->connected += row->up;
    b.rank = rank_of(top, &b);
    insert(top, &b);
}

static void second(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                   const struct lnet_peer_ni_cursor *next)
{
    struct top *top = arg;

    for (unsigned i = 0; i < n; i++)
        judge(top, &rows[i]);
    if (next->end)
        answer(top);
    else if (lnet_peer_ni_page(top->timed.ctx->control->node, next, PAGE, second, top) != 0)
        top_end(top, NULL);
}

static void look_again(struct rpc_timed *t, bool cancelled)
{
    const struct lnet_peer_ni_cursor first = {0};
    struct top *top = (struct top *)t;

    if (top->nseen)
        qsort(top->seen, top->nseen, sizeof(*top->seen), by_nid);
    top->seconds = (double)(reactor_now_us() - top->began_us) / 1e6;
    if (cancelled || lnet_peer_ni_page(t->ctx->control->node, &first, PAGE, second, top) != 0)
        top_end(top, NULL);
}

/* ---- the first look ---- */

static bool remember(struct top *top, const struct lnet_peer_ni_row *row)
{
    if (top->nseen == top->room) {
        size_t room = top->room ? 2 * top->room : 1024;
        struct seen *grown =
            room <= MAX_PEERS ? reallocarray(top->seen, room, sizeof(*grown)) : NULL;

        if (!grown)
            return false;
        top->seen = grown;
        top->room = room;
    }
    top->seen[top->nseen++] = (struct seen){row->nid, row->lnd.bytes_in, row->lnd.bytes_out};
    return true;
}

static void first_look(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                       const struct lnet_peer_ni_cursor *next)
{
    struct top *top = arg;
    bool ok = true;

    for (unsigned i = 0; i < n && ok; i++)
        ok = remember(top, &rows[i]);
    if (ok && next->end)
        rpc_timed_wait(&top->timed, top->ms);
    else if (!ok ||
             lnet_peer_ni_page(top->timed.ctx->control->node, next, PAGE, first_look, top) != 0)
        top_end(top, NULL);
}

void rpc_peer_top(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct lnet_peer_ni_cursor first = {0};
    struct top *top = jrpc_alloc(call, sizeof(*top));

    if (!top)
        return;
    if (!rpc_timed_begin(&top->timed, call, look_again))
        return;
    top->by = (enum by)args[0].integer;
    top->count = args[1].given ? (unsigned)args[1].integer : DEFAULT_TOP;
    top->ms = args[2].given ? (unsigned)args[2].integer : DEFAULT_MS;
    top->began_us = reactor_now_us();
    if (lnet_peer_ni_page(top->timed.ctx->control->node, &first, PAGE, first_look, top) != 0)
        top_end(top, NULL);
}
