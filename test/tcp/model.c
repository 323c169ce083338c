/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random peers, by seed, against a model of what must come out.
 *
 *   model bulk seed S bytes N [loss P] [ackloss P] [dup P] [reorder P] [rtt MS] [nosack 1] [limit
 * S] The user sends N bytes over a net that loses, doubles and delays (P in per mille); a receiver
 *     acknowledges as RFC 5681, 2018 and 2883 want. All arrives; nothing that the stack was told of
 *     by SACK is sent again before a time-out; nothing leaves the window.
 *   model receive seed S bytes N [loss P] [dup P] [reorder P] [cut 1]
 *     The peer sends N bytes likewise, cut at random; the user grants and reads at random. Each
 *     acknowledgement is the model's, each SACK block is of what was received, the edge never moves
 *     left, and what lies in the window is kept.
 *   model serve to N
 *     A receiver that acknowledges what comes in order and keeps nothing else, until N.
 */
#include "lib/base/minmax.h"
#include "test/tcp/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 4096

struct event {
    uint64_t at_us;
    struct frame_tcp t;
};

struct model {
    struct run *r;
    struct chan *c;
    uint64_t rng;
    int64_t seed, bytes, loss, ackloss, dup, reorder, rtt_ms, nosack, limit, to, cut;
    struct event event[EVENTS_MAX];
    unsigned events;

    /* the receiver */
    uint8_t *have;   /* by byte of the stream */
    uint8_t *told;   /* the stack has been told that it is here */
    uint32_t nxt;    /* first byte that is missing, from 0 */
    uint32_t newest; /* a byte of the newest segment */
    uint32_t dsack_left, dsack_right;
    uint32_t recent[4]; /* a byte of each of the last stretches, newest first */
    unsigned delayed;
};

static uint64_t rnd(struct model *m)
{
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 7;
    m->rng ^= m->rng << 17;
    return m->rng;
}

static bool chance(struct model *m, int64_t per_mille)
{
    return (int64_t)(rnd(m) % 1000) < per_mille;
}

static bool read_words(struct model *m)
{
    const struct script_line *l = m->r->line;
    struct {
        const char *name;
        int64_t *to;
    } keys[] = {{"seed", &m->seed},   {"bytes", &m->bytes},  {"loss", &m->loss},
                {"dup", &m->dup},     {"rtt", &m->rtt_ms},   {"ackloss", &m->ackloss},
                {"limit", &m->limit}, {"to", &m->to},        {"reorder", &m->reorder},
                {"cut", &m->cut},     {"nosack", &m->nosack}};

    for (unsigned w = 2; w + 1 < l->words; w += 2) {
        size_t k = 0;

        while (k < sizeof(keys) / sizeof(keys[0]) && strcmp(keys[k].name, l->word[w]) != 0)
            k++;
        if (k == sizeof(keys) / sizeof(keys[0]))
            return run_fail(m->r, "a model has no `%s`", l->word[w]);
        if (!run_number(m->r, w + 1, keys[k].to))
            return false;
    }
    m->rng = (uint64_t)m->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    return true;
}

/* ---- what is on its way to the stack ---- */

static void later(struct model *m, const struct frame_tcp *t, uint64_t at_us)
{
    unsigned i = m->events;

    if (m->events == EVENTS_MAX)
        return; /* as a full queue in the net */
    while (i > 0 && m->event[i - 1].at_us > at_us) {
        m->event[i] = m->event[i - 1];
        i--;
    }
    m->event[i] = (struct event){at_us, *t};
    m->events++;
}

/* Through the net, with what it does to segments. */
static void post(struct model *m, const struct frame_tcp *t, int64_t loss)
{
    uint64_t at = m->r->w.now_us + (uint64_t)m->rtt_ms * MS / 2;

    if (chance(m, loss))
        return;
    if (chance(m, m->reorder))
        at += rnd(m) % (3 * MS);
    later(m, t, at);
    if (chance(m, m->dup))
        later(m, t, at + rnd(m) % (5 * MS));
}

static void complete(struct model *m, struct frame_tcp *t)
{
    struct chan *c = m->c;

    t->sport = c->peer_port;
    t->dport = c->own_port;
    t->win = c->peer_win;
    if (c->own_ts && c->peer_ts) {
        t->has_ts = true;
        t->ts_val = (uint32_t)((int64_t)(m->r->w.now_us / MS) - c->ts_lag);
        t->ts_ecr = c->ts_seen;
    }
}

static void feed(struct model *m, const struct frame_tcp *t)
{
    static uint8_t frame[FRAME_MAX + 128], data[FRAME_MAX];
    struct frame_tcp out = *t;
    struct frame_ends ends;
    char text[256];

    for (size_t i = 0; i < t->len; i++)
        data[i] = pattern_at(t->seq - m->c->peer_isn - 1 + (uint32_t)i);
    out.data = data;
    peer_addresses(m->c, &ends);
    peer_describe(m->c, false, &out, text, sizeof(text));
    run_trace(m->r, "%10.6f %s in  %s", (double)(m->r->w.now_us - WORLD_START_US) / 1e6, m->c->name,
              text);
    world_feed(&m->r->w, frame, frame_tcp_write(frame, &ends, &out));
}

/* Feeds what is due; moves the clock to the next thing that happens, or by `most` at most. */
static void go_on(struct model *m, uint64_t most_us)
{
    struct run *r = m->r;
    uint64_t until = r->w.now_us + most_us;

    if (m->events > 0 && m->event[0].at_us < until)
        until = m->event[0].at_us;
    world_advance(&r->w, until);
    while (m->events > 0 && m->event[0].at_us <= r->w.now_us && !r->w.out) {
        struct frame_tcp t = m->event[0].t;

        memmove(m->event, m->event + 1, --m->events * sizeof(m->event[0]));
        for (unsigned i = 0; i < t.nsack; i++)
            for (uint32_t b = t.sack[i].left; b != t.sack[i].right; b++)
                m->told[b - m->c->own_isn - 1] = 1;
        feed(m, &t);
    }
}

/* ---- a receiver ---- */

static struct frame_block stretch(const struct model *m, uint32_t byte)
{
    uint32_t from = byte, to = byte;

    while (from > m->nxt && m->have[from - 1])
        from--;
    while (to < m->bytes && m->have[to])
        to++;
    return (struct frame_block){m->c->own_isn + 1 + from, m->c->own_isn + 1 + to};
}

static void add_blocks(struct model *m, struct frame_tcp *t)
{
    unsigned max = t->has_ts ? 3 : 4;

    if (m->nosack || !m->c->peer_sack)
        return;
    if (m->dsack_right != m->dsack_left)
        t->sack[t->nsack++] = (struct frame_block){m->c->own_isn + 1 + m->dsack_left,
                                                   m->c->own_isn + 1 + m->dsack_right};
    m->dsack_left = m->dsack_right = 0;
    for (unsigned i = 0; i < 4 && t->nsack < max; i++) {
        struct frame_block b;
        bool twice = false;

        if (m->recent[i] < m->nxt || !m->have[m->recent[i]])
            continue;
        b = stretch(m, m->recent[i]);
        for (unsigned k = 0; k < t->nsack; k++)
            twice = twice || t->sack[k].left == b.left;
        if (!twice)
            t->sack[t->nsack++] = b;
    }
}

static void acknowledge(struct model *m)
{
    struct frame_tcp t = {
        .flags = ACK, .seq = m->c->peer_isn + 1, .ack = m->c->own_isn + 1 + m->nxt};

    complete(m, &t);
    add_blocks(m, &t);
    post(m, &t, m->ackloss);
    m->delayed = 0;
    m->c->peer_edge = t.ack + ((uint32_t)t.win << (m->c->own_ws ? m->c->peer_wscale : 0));
}

static void receive(struct model *m, uint32_t from, uint32_t len)
{
    uint32_t fresh = 0, before = m->nxt;

    for (uint32_t i = from; i < from + len; i++) {
        fresh += !m->have[i];
        m->have[i] = 1;
    }
    if (fresh == 0) {
        m->dsack_left = from;
        m->dsack_right = from + len;
    } else {
        memmove(m->recent + 1, m->recent, 3 * sizeof(m->recent[0]));
        m->recent[0] = from + len - 1;
    }
    while (m->nxt < m->bytes && m->have[m->nxt])
        m->nxt++;
    if (fresh == 0 || m->nxt != before + len || ++m->delayed >= 2)
        acknowledge(m);
}

/* ---- bulk ---- */

static uint64_t timeouts(const struct model *m)
{
    struct tcp_info rows[16];
    uint32_t at = 0;
    unsigned n = tcp_info_rows(m->r->w.tcp, &at, rows, 16);

    for (unsigned i = 0; i < n; i++)
        if (rows[i].rport == m->c->peer_port)
            return rows[i].rtos + rows[i].tlps;
    return 0;
}

static bool resent_needlessly(struct model *m, uint32_t from, uint32_t len, uint64_t *seen)
{
    uint64_t now = timeouts(m);

    if (now != *seen) {
        /* After a time-out the peer may be thought to have reneged: all may be sent again. */
        memset(m->told, 0, (size_t)m->bytes);
        *seen = now;
        return false;
    }
    for (uint32_t i = from; i < from + len; i++)
        if (m->told[i] && i >= m->nxt)
            return true;
    return false;
}

static bool bulk_take(struct model *m, struct world_frame *f, uint64_t *seen)
{
    struct frame_tcp t;
    struct chan *c;
    uint32_t from;

    if (!peer_learn(m->r, f, &t, &c))
        return false;
    if (t.len == 0)
        return true;
    from = t.seq - c->own_isn - 1;
    if (resent_needlessly(m, from, (uint32_t)t.len, seen))
        return run_fail(m->r, "%" PRIu32 " was sent again though SACKed", from + 1);
    if (!chance(m, m->loss))
        receive(m, from, (uint32_t)t.len);
    return true;
}

static void user_sends(struct model *m)
{
    struct chan *c = m->c;

    while ((int64_t)c->sent < m->bytes) {
        uint32_t n = (uint32_t)min(m->bytes - (int64_t)c->sent, (int64_t)(1 + rnd(m) % 60000));
        struct mem_seg seg = {
            .addr = m->r->memory + c->sent % PATTERN_PERIOD, .len = n, .region = m->r->region};
        uint64_t before = c->sent;
        ssize_t rc;

        /* What is sent at once is compared with what the user has sent. */
        c->sent += n;
        rc = c->s->ops->send(c->s, &seg, 1, false);
        c->sent = before + (uint64_t)(rc > 0 ? rc : 0);
        if (rc < (ssize_t)n)
            break;
    }
}

static bool bulk(struct model *m)
{
    struct run *r = m->r;
    uint64_t until = r->w.now_us + (uint64_t)m->limit * SECOND, seen = timeouts(m);
    uint64_t delayed_us = 0;

    while (m->nxt < m->bytes) {
        struct world_frame *f;

        user_sends(m);
        go_on(m, 40 * MS);
        while ((f = world_take(&r->w))) {
            bool ok = bulk_take(m, f, &seen);

            free(f);
            if (!ok)
                return false;
            delayed_us = r->w.now_us;
        }
        if (m->delayed > 0 && r->w.now_us >= delayed_us + 40 * MS)
            acknowledge(m);
        if (m->c->closed > 0 || r->w.now_us > until)
            return run_fail(r, "%" PRIu32 " of %" PRId64 " bytes arrived", m->nxt, m->bytes);
    }
    m->events = 0;
    m->loss = m->ackloss = 0;
    acknowledge(m);
    while (m->events > 0)
        go_on(m, SECOND);
    r->event_us = r->w.now_us;
    return true;
}

/* ---- receive ---- */

static bool receive_check(struct model *m, struct world_frame *f)
{
    struct frame_tcp t;
    struct chan *c;
    uint32_t base;

    if (!peer_learn(m->r, f, &t, &c))
        return false;
    base = c->peer_isn + 1;
    if (t.ack != base + m->nxt)
        return run_fail(m->r, "acknowledges %" PRIu32 ", what has arrived is %" PRIu32,
                        t.ack - base, m->nxt);
    for (unsigned i = 0; i < t.nsack; i++)
        for (uint32_t b = t.sack[i].left - base; b != t.sack[i].right - base; b++)
            if (!m->have[b])
                return run_fail(m->r, "SACKs byte %" PRIu32 ", which did not arrive", b);
    return true;
}

/* One segment of the peer's, new or once more, within the window. */
static void send_some(struct model *m)
{
    struct chan *c = m->c;
    uint32_t edge = c->edge - c->peer_isn - 1, from, len;
    struct frame_tcp t = {.flags = ACK | PSH, .ack = c->own_isn + 1};

    edge = (uint32_t)min((int64_t)edge, m->bytes);
    if (edge <= m->nxt)
        return;
    from = m->nxt;
    if (m->reorder > 0 && chance(m, m->reorder * 5))
        from += (uint32_t)(rnd(m) % (edge - from));
    if (from > 0 && chance(m, m->dup))
        from -= (uint32_t)(rnd(m) % min(from, 3000u));
    len = (uint32_t)(1 + rnd(m) % (m->cut ? 300 : 1460));
    if (from + len > edge)
        len = edge - from;
    if (len == 0)
        return;
    t.seq = c->peer_isn + 1 + from;
    t.len = len;
    complete(m, &t);
    if ((int32_t)(t.seq + len - c->peer_sent) > 0)
        c->peer_sent = t.seq + len;
    if (chance(m, m->loss))
        return;
    memset(m->have + from, 1, len);
    while (m->nxt < m->bytes && m->have[m->nxt])
        m->nxt++;
    feed(m, &t);
}

static bool read_some(struct model *m)
{
    struct chan *c = m->c;
    struct mem_seg segs[16];
    size_t truesize, rc;
    unsigned nsegs;

    while (chance(m, 800)) {
        size_t at = 0;

        rc = c->s->ops->take(c->s, 1 + rnd(m) % 20000, segs, 16, &nsegs, &truesize);
        if (rc == 0)
            break;
        for (unsigned i = 0; i < nsegs; i++)
            for (uint32_t b = 0; b < segs[i].len; b++, at++)
                if (segs[i].addr[b] != pattern_at(c->read + at))
                    return run_fail(m->r, "byte %" PRIu64 " is not what was sent", c->read + at);
        c->s->ops->give_back(segs, nsegs);
        c->read += rc;
    }
    if (c->read > m->nxt)
        return run_fail(m->r, "more was read than had arrived in order");
    if (chance(m, 300))
        c->s->ops->rx_window(c->s, 20000 + rnd(m) % 60000, 400000);
    world_settle(&m->r->w);
    return true;
}

static bool check_all(struct model *m)
{
    struct world_frame *f;

    while ((f = world_take(&m->r->w))) {
        bool ok = receive_check(m, f);

        free(f);
        if (!ok)
            return false;
    }
    return true;
}

static bool receive_all(struct model *m)
{
    struct run *r = m->r;
    uint64_t until = r->w.now_us + (uint64_t)m->limit * SECOND;

    while ((int64_t)m->c->read < m->bytes) {
        send_some(m);
        world_advance(&r->w, r->w.now_us + rnd(m) % (2 * MS));
        if (!check_all(m) || !read_some(m) || !check_all(m))
            return false;
        if (m->c->closed > 0 || r->w.now_us > until)
            return run_fail(r, "%" PRIu64 " of %" PRId64 " bytes were read", m->c->read, m->bytes);
    }
    r->event_us = r->w.now_us;
    return peer_ignore(r, SECOND);
}

/* ---- serve ---- */

static bool serve(struct model *m)
{
    struct run *r = m->r;
    uint64_t until = r->w.now_us + 120 * SECOND;
    struct tcp_info rows[16];
    uint32_t at = 0, nxt = 0;
    unsigned n = tcp_info_rows(r->w.tcp, &at, rows, 16);

    for (unsigned i = 0; i < n; i++)
        if (rows[i].rport == m->c->peer_port)
            nxt = (uint32_t)rows[i].bytes_acked;
    while (nxt < m->to) {
        struct world_frame *f;
        bool any = false;

        go_on(m, SECOND);
        while ((f = world_take(&r->w))) {
            struct frame_tcp t;
            struct chan *c;

            any = peer_learn(r, f, &t, &c);
            if (any && t.seq == c->own_isn + 1 + nxt)
                nxt += (uint32_t)t.len;
            free(f);
            if (!any)
                return false;
        }
        if (any) {
            struct frame_tcp t = {
                .flags = ACK, .seq = m->c->peer_isn + 1, .ack = m->c->own_isn + 1 + nxt};

            complete(m, &t);
            later(m, &t, r->w.now_us + 20 * MS);
        }
        if (r->w.now_us > until)
            return run_fail(r, "only %" PRIu32 " bytes came in order", nxt);
    }
    while (m->events > 0)
        go_on(m, SECOND);
    r->event_us = r->w.now_us;
    return true;
}

bool model_run(struct run *r)
{
    struct model *m = calloc(1, sizeof(*m));
    const char *what = r->line->words > 1 ? r->line->word[1] : "";
    bool ok;

    *m = (struct model){.r = r, .c = r->c, .rtt_ms = 20, .limit = 600};
    ok = read_words(m);
    if (ok && !r->c->s)
        ok = run_fail(r, "this connection has no stream");
    m->have = calloc(1, (size_t)m->bytes + 1);
    m->told = calloc(1, (size_t)m->bytes + 1);
    if (ok && strcmp(what, "bulk") == 0)
        ok = bulk(m);
    else if (ok && strcmp(what, "receive") == 0)
        ok = receive_all(m);
    else if (ok && strcmp(what, "serve") == 0)
        ok = serve(m);
    else if (ok)
        ok = run_fail(r, "no such model");
    free(m->have);
    free(m->told);
    free(m);
    return ok;
}
