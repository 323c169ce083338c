/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection on the data path: what becomes of each frame, and those that wait. */
#include "test/faults/tamper_internal.h"

#include <string.h>

/* What the rules have decided about a frame so far. */
struct fate {
    uint64_t release_us;
    unsigned duplicates;
    bool lost;
    uint32_t flips; /* bits to be turned over … */
    uint32_t flip[TAMPER_RULES_MAX];
    struct tamper_state *flipper[TAMPER_RULES_MAX], *doubler[TAMPER_RULES_MAX]; /* … for whom */
};

/* ---- chance ---- */

/* A Weyl sequence, its steps mixed by multiplications and shifts. */
static uint64_t draw(struct tamper_state *st)
{
    uint64_t x = st->random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* 0..n-1, n < 2^32. */
static uint32_t draw_below(struct tamper_state *st, uint32_t n)
{
    return (uint32_t)(((draw(st) >> 32) * n) >> 32);
}

static bool happens(struct tamper_state *st, uint32_t ppm)
{
    return ppm > 0 && draw_below(st, TAMPER_ALL) < ppm;
}

static void count(uint64_t *counter)
{
    relaxed_store(counter, *counter + 1);
}

/* ---- rules ---- */

/* Bytes of the IP packet, or of the largest one that it is to be cut into or was made of. */
static uint32_t packet_size(const struct port *port, const struct rte_mbuf *m,
                            const struct frame_view *v, bool out)
{
    uint32_t segment = tamper_segment(port, m, v, out);

    return segment ? v->payload - v->l3 + segment : v->ip_end - v->l3;
}

static bool of_its_kind(const struct port *port, const struct tamper_conf *c,
                        const struct rte_mbuf *m, const struct frame_view *v, bool out)
{
    if (c->ip && v->family == 0)
        return false;
    if (c->has_peer && (v->family == 0 || memcmp(out ? v->dst : v->src, c->peer, 16) != 0))
        return false;
    if (c->tcp_port && (!v->tcp || (v->sport != c->tcp_port && v->dport != c->tcp_port)))
        return false;
    if (c->longer && (v->family == 0 || packet_size(port, m, v, out) <= c->longer))
        return false;
    return !c->payload || (v->tcp && v->ip_end > v->payload);
}

static bool lose(const struct tamper_conf *c, struct tamper_state *st)
{
    if (c->burst_enter) {
        if (happens(st, st->in_burst ? c->burst_leave : c->burst_enter))
            st->in_burst = !st->in_burst;
        if (st->in_burst) {
            count(&st->counts.burst_lost);
            count(&st->counts.lost);
            return true;
        }
    }
    if (!happens(st, c->loss))
        return false;
    count(&st->counts.lost);
    return true;
}

/* Waits for the rate behind those before it. False: there is no place to wait. */
static bool queue_for_rate(const struct tamper_conf *c, struct tamper_state *st, uint32_t bytes,
                           struct fate *f)
{
    uint64_t at_ns = f->release_us * 1000, start;
    struct tamper_departure *d;

    while (st->queued > 0 && st->queue[st->head].ns <= at_ns) {
        st->queued_bytes -= st->queue[st->head].bytes;
        st->head = (st->head + 1) % c->queue_packets;
        st->queued--;
    }
    if (st->queued > 0 && (st->queued == c->queue_packets ||
                           (c->queue_bytes && st->queued_bytes + bytes > c->queue_bytes))) {
        count(&st->counts.queue_dropped);
        return false;
    }
    start = max(at_ns, st->free_ns);
    st->free_ns = start + bytes * UINT64_C(8000000000) / c->rate;
    d = &st->queue[(st->head + st->queued) % c->queue_packets];
    *d = (struct tamper_departure){st->free_ns, bytes};
    st->queued++;
    st->queued_bytes += bytes;
    f->release_us = (st->free_ns + 999) / 1000;
    return true;
}

static void delay(const struct tamper_conf *c, struct tamper_state *st, struct fate *f)
{
    uint64_t at = f->release_us;

    if (c->jitter_us) {
        uint32_t spread = draw_below(st, 2 * c->jitter_us + 1);

        at += c->delay_us + spread > c->jitter_us ? c->delay_us + spread - c->jitter_us : 0;
        at = st->last_us = max(at, st->last_us);
    } else {
        at += c->delay_us;
    }
    if (happens(st, c->reorder)) {
        at += c->reorder_us;
        count(&st->counts.reordered);
    }
    if (at > f->release_us)
        count(&st->counts.delayed);
    f->release_us = at;
}

static void apply(const struct tamper_rule *rule, unsigned queue, const struct rte_mbuf *m,
                  const struct frame_view *v, struct fate *f)
{
    const struct tamper_conf *c = &rule->conf;
    struct tamper_state *st = &rule->state[queue];

    if (c->chance && !happens(st, c->chance))
        return;
    count(&st->counts.matched);
    if (lose(c, st)) {
        f->lost = true;
        return;
    }
    if (happens(st, c->duplicate))
        f->doubler[f->duplicates++] = st;
    if (v->family && happens(st, c->corrupt)) {
        f->flip[f->flips] = v->l3 * 8u + draw_below(st, (v->ip_end - v->l3) * 8u);
        f->flipper[f->flips++] = st;
    }
    if (c->rate && !queue_for_rate(c, st, m->pkt_len, f))
        f->lost = true;
    else
        delay(c, st, f);
}

/* ---- frames that wait: a heap, by time and then by order ---- */

static bool before(const struct tamper_held *a, const struct tamper_held *b)
{
    return a->release_us != b->release_us ? a->release_us < b->release_us : a->order < b->order;
}

static void push(struct tamper_queue *q, struct tamper_held held)
{
    uint32_t i = q->n++;

    for (; i > 0 && before(&held, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = held;
}

static struct rte_mbuf *pop(struct tamper_queue *q)
{
    struct rte_mbuf *m = q->heap[0].m;
    struct tamper_held last = q->heap[--q->n];
    uint32_t i = 0, child;

    for (; (child = 2 * i + 1) < q->n; i = child) {
        child += child + 1 < q->n && before(&q->heap[child + 1], &q->heap[child]);
        if (!before(&q->heap[child], &last))
            break;
        q->heap[i] = q->heap[child];
    }
    q->heap[i] = last;
    return m;
}

static unsigned pop_due(struct tamper_queue *q, uint64_t now, struct rte_mbuf **out, unsigned max)
{
    unsigned n = 0;

    while (n < max && q->n > 0 && q->heap[0].release_us <= now)
        out[n++] = pop(q);
    return n;
}

/* Takes m. What goes out and has to wait is copied: nobody's payload is referred to for long. */
static void hold(struct port *port, struct tamper_queue *q, bool out, struct rte_mbuf *m,
                 uint64_t release_us, uint64_t now)
{
    bool waits = release_us > now;
    struct rte_mbuf *kept = m;

    if (q->n == TAMPER_HELD_MAX || (waits && !out && tamper_pool_low(m->pool))) {
        kept = NULL;
    } else if (waits && out) {
        kept = tamper_copy(port, m);
    }
    if (kept != m)
        rte_pktmbuf_free(m);
    if (kept)
        push(q, (struct tamper_held){release_us, q->order++, kept});
    else
        count(&q->counts.no_room);
}

/* ---- one frame ---- */

/* Another one with the bits turned over, if it can be made. */
static struct rte_mbuf *corrupt(struct port *port, struct rte_mbuf *m, const struct frame_view *v,
                                bool out, struct fate *f)
{
    struct rte_mbuf *copy = tamper_copy(port, m);

    if (copy && !tamper_complete(copy, v, out)) {
        rte_pktmbuf_free(copy);
        copy = NULL;
    }
    for (uint32_t i = 0; i < f->flips; i++)
        count(copy ? &f->flipper[i]->counts.corrupted : &f->flipper[i]->counts.skipped);
    if (!copy)
        return m;
    for (uint32_t i = 0; i < f->flips; i++)
        tamper_flip(copy, f->flip[i]);
    rte_pktmbuf_free(m);
    return copy;
}

static void treat(struct port_tamper *t, const struct tamper_rules *rules, bool out, unsigned queue,
                  struct rte_mbuf *m, uint64_t now)
{
    struct tamper_queue *q = &t->queue[out][queue];
    struct fate f = {.release_us = now};
    struct frame_view v;

    frame_view(m, &v);
    for (unsigned i = 0; i < rules->n && !f.lost; i++)
        if (of_its_kind(t->port, &rules->rule[i]->conf, m, &v, out))
            apply(rules->rule[i], queue, m, &v, &f);
    if (f.lost) {
        rte_pktmbuf_free(m);
        return;
    }
    if (f.flips > 0)
        m = corrupt(t->port, m, &v, out, &f);
    for (unsigned i = 0; i < f.duplicates; i++) {
        struct rte_mbuf *copy = tamper_copy(t->port, m);

        count(copy ? &f.doubler[i]->counts.duplicated : &f.doubler[i]->counts.skipped);
        if (copy)
            hold(t->port, q, out, copy, f.release_us, now);
    }
    hold(t->port, q, out, m, f.release_us, now);
}

/* The rule for which a larger frame is cut. */
static struct tamper_state *cutter(const struct port *port, const struct tamper_rules *rules,
                                   const struct rte_mbuf *m, const struct frame_view *v, bool out,
                                   unsigned queue)
{
    unsigned i;

    for (i = 0; i < rules->n; i++) {
        const struct tamper_conf *c = &rules->rule[i]->conf;

        if ((c->cut || (c->corrupt && out)) && of_its_kind(port, c, m, v, out))
            return &rules->rule[i]->state[queue];
    }
    return NULL;
}

static void take(struct port_tamper *t, const struct tamper_rules *rules, bool out, unsigned queue,
                 struct rte_mbuf *m, uint64_t now)
{
    struct rte_mbuf *piece[TAMPER_PIECES_MAX];
    struct tamper_state *st = NULL;
    struct frame_view v;
    unsigned n = 0;
    uint32_t size = 0;

    if (rules->cuts) {
        frame_view(m, &v);
        size = tamper_segment(t->port, m, &v, out);
        st = size ? cutter(t->port, rules, m, &v, out, queue) : NULL;
    }
    if (!st) {
        treat(t, rules, out, queue, m, now);
        return;
    }
    n = tamper_cut(t->port, m, &v, size, out, piece);
    if (n == 0) {
        count(&st->counts.skipped);
        treat(t, rules, out, queue, m, now);
        return;
    }
    count_add(&st->counts.cut, n);
    rte_pktmbuf_free(m);
    for (unsigned i = 0; i < n; i++)
        treat(t, rules, out, queue, piece[i], now);
}

static const struct tamper_rules *rules_of(struct port_tamper *t, bool out)
{
    return __atomic_load_n(&t->rules[out], __ATOMIC_ACQUIRE);
}

static void tell_held(struct tamper_queue *q)
{
    relaxed_store(&q->counts.held, q->n + q->nready);
}

/* ---- bursts ---- */

unsigned port_tamper_rx(struct port_faults *f, unsigned queue, struct rte_mbuf **pkts, unsigned n,
                        port_burst_fn plain)
{
    struct port_tamper *t = (struct port_tamper *)f;
    struct tamper_queue *q = &t->queue[false][queue];
    const struct tamper_rules *rules = rules_of(t, false);
    unsigned got = plain(t->port, queue, pkts, n), i;
    uint64_t now;

    if (rules->n == 0 && q->n == 0)
        return got;
    now = reactor_now_us();
    for (i = 0; i < got; i++)
        take(t, rules, false, queue, pkts[i], now);
    got = pop_due(q, now, pkts, n);
    tell_held(q);
    return got;
}

/* Gives the device what is due, as far as it takes it. */
static void send_due(struct port_tamper *t, struct tamper_queue *q, unsigned queue, uint64_t now,
                     port_burst_fn plain)
{
    for (;;) {
        unsigned sent;

        q->nready += pop_due(q, now, q->ready + q->nready, PORT_BURST - q->nready);
        if (q->nready == 0)
            return;
        sent = plain(t->port, queue, q->ready, q->nready);
        q->nready -= sent;
        memmove(q->ready, q->ready + sent, q->nready * sizeof(q->ready[0]));
        if (q->nready > 0)
            return;
    }
}

unsigned port_tamper_tx(struct port_faults *f, unsigned queue, struct rte_mbuf **pkts, unsigned n,
                        port_burst_fn plain)
{
    struct port_tamper *t = (struct port_tamper *)f;
    struct tamper_queue *q = &t->queue[true][queue];
    const struct tamper_rules *rules = rules_of(t, true);
    uint64_t now;

    if (rules->n == 0 && q->n == 0 && q->nready == 0)
        return n ? plain(t->port, queue, pkts, n) : 0;
    now = reactor_now_us();
    send_due(t, q, queue, now, plain);
    if (q->nready > 0)
        n = 0;
    for (unsigned i = 0; i < n; i++)
        take(t, rules, true, queue, pkts[i], now);
    if (n > 0)
        send_due(t, q, queue, now, plain);
    tell_held(q);
    return n;
}

static uint64_t until(const struct tamper_queue *q, uint64_t now)
{
    if (q->nready > 0)
        return 0;
    if (q->n == 0)
        return UINT64_MAX;
    return q->heap[0].release_us > now ? q->heap[0].release_us - now : 0;
}

uint64_t port_tamper_due(struct port_faults *f, int rx_queue, unsigned tx_queue)
{
    struct port_tamper *t = (struct port_tamper *)f;
    uint64_t now = reactor_now_us();
    uint64_t out = until(&t->queue[true][tx_queue], now);
    uint64_t in = rx_queue < 0 ? UINT64_MAX : until(&t->queue[false][rx_queue], now);

    return min(in, out);
}
