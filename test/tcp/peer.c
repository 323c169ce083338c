/* SPDX-License-Identifier: BSD-3-Clause */
/* The far end of a connection: what it sends as lines say, and whether what comes is what lines
 * say. */
#include "test/tcp/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool after(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

void peer_addresses(const struct chan *c, struct frame_ends *out)
{
    world_ends_in(&c->run->w, c->ip6, out);
    out->src[15] = c->host;
}

static void trace(struct chan *c, bool out, uint64_t at_us, const struct frame_tcp *t)
{
    char text[512];

    if (c->run->quiet)
        return;
    peer_describe(c, out, t, text, sizeof(text));
    run_trace(c->run, "%10.6f %s %s %s", (double)(at_us - WORLD_START_US) / 1e6, c->name,
              out ? "out" : "in ", text);
}

/* ---- in ---- */

/* The peer's clock of timestamps, in ms. */
static uint32_t peer_clock(const struct chan *c)
{
    return (uint32_t)((int64_t)(c->run->w.now_us / MS) - c->ts_lag);
}

/* What the line left out. */
static void fill_in(struct chan *c, struct wanted *x)
{
    bool agreed = c->own_ts && c->peer_ts;

    x->t.sport = c->peer_port;
    x->t.dport = c->own_port;
    if (!x->win)
        x->t.win = c->peer_win;
    if ((x->ts || (agreed && (x->t.flags & RST) == 0)) && !x->nots) {
        x->t.has_ts = true;
        if (!x->ts_val)
            x->t.ts_val = peer_clock(c);
        if (!x->ts_ecr && (x->t.flags & ACK) != 0)
            x->t.ts_ecr = x->ts_mark ? c->ts_saved : c->ts_seen;
    }
}

static void learn_in(struct chan *c, const struct frame_tcp *t)
{
    uint32_t end = t->seq + (uint32_t)t->len + ((t->flags & SYN) != 0) + ((t->flags & FIN) != 0);
    uint32_t edge;

    if (c->raw || t->bad_sum || (t->flags & RST) != 0)
        return;
    if ((t->flags & SYN) != 0 && t->seq == c->peer_isn) {
        c->peer_known = true;
        c->peer_ts = t->has_ts;
        c->peer_sack = t->has_sackok;
        c->peer_ws = t->has_wscale;
        c->peer_wscale = t->wscale < 14 ? t->wscale : 14;
        c->peer_sent = end;
        c->peer_edge = c->own_isn + 1;
    }
    if (after(end, c->peer_sent))
        c->peer_sent = end;
    if ((t->flags & FIN) != 0 &&
        !c->peer_fin) { /* a second one elsewhere is none of the stream's */
        c->peer_fin = true;
        c->peer_end = end;
    }
    if ((t->flags & ACK) == 0 || !c->own_known)
        return;
    edge = t->ack + ((uint32_t)t->win
                     << ((t->flags & SYN) == 0 && c->own_ws && c->peer_ws ? c->peer_wscale : 0));
    if (after(edge, c->peer_edge))
        c->peer_edge = edge;
}

bool peer_in(struct run *r, unsigned at)
{
    static uint8_t frame[FRAME_MAX + 128], data[FRAME_MAX];
    struct chan *c = r->c;
    struct frame_ends ends;
    struct wanted x;
    size_t size;

    if (!segment_read(r, at, c->peer_isn, c->own_known ? c->own_isn : 0, &x))
        return false;
    if (x.t.len > FRAME_MAX - 200)
        return run_fail(r, "too long for a frame");
    if (r->w.out) {
        struct frame_tcp t;
        struct chan *who;
        char text[512] = "?";
        struct world_frame *f = world_take(&r->w);

        if (peer_learn(r, f, &t, &who))
            peer_describe(who, true, &t, text, sizeof(text));
        free(f);
        return run_fail(r, "sent, but no line expects it: %s", text);
    }
    fill_in(c, &x);
    for (size_t i = 0; i < x.t.len; i++)
        data[i] = pattern_at(x.t.seq + ((x.t.flags & SYN) != 0) - c->peer_isn - 1 + (uint32_t)i);
    x.t.data = data;
    peer_addresses(c, &ends);
    learn_in(c, &x.t);
    trace(c, false, r->w.now_us, &x.t);
    size = frame_tcp_write(frame, &ends, &x.t);
    if (strcmp(r->line->word[at - 1], "queue") == 0)
        world_queue(&r->w, frame, size);
    else
        world_feed(&r->w, frame, size);
    r->event_us = r->w.now_us;
    return true;
}

/* ---- out: what every segment of the stack's must obey ---- */

static void learn_syn(struct chan *c, const struct frame_tcp *t)
{
    if (!c->own_known) {
        c->own_known = true;
        c->own_isn = t->seq;
        c->peer_edge = t->seq + 1;
    }
    c->own_ts = t->has_ts;
    c->own_sack = t->has_sackok;
    c->own_ws = t->has_wscale;
    c->own_wscale = t->wscale;
}

static const char *check_options(const struct chan *c, const struct frame_tcp *t)
{
    bool ts = c->own_ts && c->peer_ts;

    if ((t->flags & SYN) == 0 && (t->has_mss || t->has_wscale || t->has_sackok))
        return "an option that only a SYN may have";
    if ((t->flags & RST) != 0 || (t->flags & SYN) != 0)
        return NULL;
    if (ts && !t->has_ts)
        return "no timestamp though timestamps were agreed (RFC 7323 §3.2)";
    if (!ts && t->has_ts)
        return "a timestamp though none was agreed";
    if (ts && c->ts_known && after(c->ts_seen, t->ts_val))
        return "TSval went backwards";
    if (t->nsack > 0 && !(c->own_sack && c->peer_sack))
        return "SACK blocks though SACK was not agreed";
    for (unsigned i = 0; i < t->nsack; i++)
        if (!after(t->sack[i].right, t->sack[i].left) || after(t->sack[i].right, c->peer_sent))
            return "a SACK block of what was never sent";
    return NULL;
}

static const char *check_window(struct chan *c, const struct frame_tcp *t)
{
    bool scaled = (t->flags & SYN) == 0 && c->own_ws && c->peer_ws;
    uint32_t unit = 1u << (scaled ? c->own_wscale : 0), edge = t->ack + t->win * unit;

    if ((t->flags & ACK) == 0 || (t->flags & RST) != 0)
        return NULL;
    if (c->peer_fin && t->ack == c->peer_end)
        return NULL; /* nothing more will come: the window has no meaning */
    /* What is not a whole unit of the scale cannot be told (RFC 7323 §2.4). */
    if (c->edge_known && after(c->edge, edge + unit - 1))
        return "the right edge of the window moved left (RFC 9293 §3.8.6)";
    c->edge_now = edge;
    c->edge = c->edge_known && after(c->edge, edge) ? c->edge : edge;
    c->edge_known = true;
    if (c->peer_known && after(t->ack, c->peer_sent))
        return "acknowledges what was never sent";
    return NULL;
}

static bool is_pattern(const uint8_t *p, uint32_t at, size_t n)
{
    if ((int32_t)at >= 0)
        return memcmp(p, pattern_from(at, n), n) == 0;
    for (size_t i = 0; i < n; i++) /* before the stream: the numbers wrap */
        if (p[i] != pattern_at(at + (uint32_t)i))
            return false;
    return true;
}

static const char *check_payload(const struct chan *c, const struct frame_tcp *t)
{
    uint32_t at = t->seq - c->own_isn - 1 + ((t->flags & SYN) != 0);

    if (!is_pattern(t->data, at, t->len))
        return "payload is not what the user sent there";
    if (t->len > 1 && after(t->seq + (uint32_t)t->len, c->peer_edge))
        return "data behind the peer's window";
    if (at + t->len > c->sent && t->len > 0)
        return "more payload than the user sent";
    return NULL;
}

bool peer_learn(struct run *r, const struct world_frame *f, struct frame_tcp *t, struct chan **who)
{
    struct frame_ends ends;
    const char *bad;
    struct chan *c;

    frame_tcp_read(f->data, f->len, &ends, t);
    if (t->bad)
        return run_fail(r, "a frame that is wrong: %s", t->bad);
    c = *who = chan_of(r, ends.dst[15], t->sport, t->dport);
    if (!c)
        return run_fail(r, "a segment from port %u to %u, of no connection here", t->sport,
                        t->dport);
    if ((t->flags & SYN) != 0)
        learn_syn(c, t);
    trace(c, true, f->at_us, t);
    if (memcmp(ends.src_mac, world_mac, 6) != 0 || memcmp(ends.dst_mac, station_mac, 6) != 0 ||
        memcmp(ends.src, world_own(&r->w, c->ip6)->b, 16) != 0 || ends.dst[15] != c->host)
        return run_fail(r, "a frame from or to a wrong address");
    bad = check_options(c, t);
    if (!bad && !c->raw)
        bad = check_window(c, t);
    if (!bad && !c->raw)
        bad = check_payload(c, t);
    if (bad) {
        char text[512];

        peer_describe(c, true, t, text, sizeof(text));
        return run_fail(r, "%s: %s", bad, text);
    }
    if (t->has_ts && (t->flags & RST) == 0) {
        c->ts_seen = t->ts_val;
        c->ts_known = true;
    }
    free(c->last);
    c->last = malloc(sizeof(*f) + f->len);
    memcpy(c->last, f, sizeof(*f) + f->len);
    return true;
}

/* ---- out: what a line says ---- */

/* The next frame, which must come within the time. */
static struct world_frame *wait_frame(struct run *r, uint64_t from_us, uint64_t to_us)
{
    struct world_frame *f;

    world_advance(&r->w, r->event_us + to_us);
    f = world_take(&r->w);
    if (!f) {
        run_fail(r, "nothing was sent");
        return NULL;
    }
    if (f->at_us < r->event_us + from_us || f->at_us > r->event_us + to_us) {
        struct frame_tcp t;
        struct chan *c;
        char text[512] = "?";

        if (peer_learn(r, f, &t, &c))
            peer_describe(c, true, &t, text, sizeof(text));
        run_fail(r, "at the wrong time, after %.3f ms: %s", (double)(f->at_us - r->event_us) / 1e3,
                 text);
        free(f);
        return NULL;
    }
    return f;
}

bool peer_out(struct run *r, unsigned at, uint64_t from_us, uint64_t to_us)
{
    struct world_frame *f = wait_frame(r, from_us, to_us);
    char got[512], d[256];
    struct frame_tcp t;
    struct wanted x;
    struct chan *c;
    bool ok;

    if (!f)
        return false;
    ok = peer_learn(r, f, &t, &c);
    if (ok) {
        r->gap_us = f->at_us - r->out_us;
        r->out_us = r->event_us = f->at_us;
        ok = segment_read(r, at, r->c->own_known ? r->c->own_isn : 0, r->c->peer_isn, &x);
    }
    if (ok && c != r->c)
        ok = run_fail(r, "it is of connection %s, not %s", c->name, r->c->name);
    if (ok) {
        segment_compare(c, &x, &t, d, sizeof(d));
        peer_describe(c, true, &t, got, sizeof(got));
        if (d[0] != '\0')
            ok = run_fail(r, "differs in: %s\n  wanted: %s\n  got:    %s", d, r->line->text, got);
    }
    free(f);
    return ok;
}

/* Data in order without a gap: whole segments of mss but the last. */
bool peer_burst(struct run *r, unsigned at, uint64_t from_us, uint64_t to_us)
{
    int64_t seq = segment_word(r, at, "seq", -1), len = segment_word(r, at, "len", -1);
    int64_t mss = segment_word(r, at, "mss", 0), done = 0;

    if (seq < 0 || len <= 0)
        return run_fail(r, "`burst` wants seq and len");
    while (done < len) {
        struct world_frame *f = wait_frame(r, from_us, to_us);
        struct frame_tcp t;
        struct chan *c;
        bool ok;

        if (!f)
            return false;
        ok = peer_learn(r, f, &t, &c);
        if (ok)
            r->event_us = f->at_us;
        if (ok && (c != r->c || (t.flags & ~(PSH | CWR)) != ACK || t.len == 0 ||
                   t.seq != c->own_isn + (uint32_t)(seq + done) || done + (int64_t)t.len > len)) {
            char got[512];

            peer_describe(c, true, &t, got, sizeof(got));
            ok = run_fail(r, "not the burst's part at %" PRId64 ": %s", seq + done, got);
        }
        if (ok && mss > 0 && (int64_t)t.len != mss && done + (int64_t)t.len < len)
            ok = run_fail(r, "a part of %zu bytes, not %" PRId64, t.len, mss);
        done += ok ? (int64_t)t.len : 0;
        free(f);
        if (!ok)
            return false;
    }
    return true;
}

/* A probe of a window of zero: an ACK below SND.NXT without data, or with one byte of it. */
bool peer_probe(struct run *r, unsigned at, uint64_t from_us, uint64_t to_us)
{
    int64_t seq = segment_word(r, at, "seq", -1);
    struct world_frame *f = wait_frame(r, from_us, to_us);
    struct frame_tcp t;
    char got[512];
    struct chan *c;
    bool ok;

    if (!f)
        return false;
    ok = peer_learn(r, f, &t, &c);
    if (ok) {
        r->event_us = f->at_us;
        peer_describe(c, true, &t, got, sizeof(got));
        ok = c == r->c && (t.flags & ~PSH) == ACK &&
             ((t.len == 0 && t.seq == c->own_isn + (uint32_t)seq - 1) ||
              (t.len == 1 && t.seq == c->own_isn + (uint32_t)seq));
        if (!ok)
            run_fail(r, "not a probe: %s", got);
    }
    free(f);
    return ok;
}

bool peer_back_off(struct run *r)
{
    uint64_t gap = r->gap_us;
    int64_t times;

    if (!run_number(r, 1, &times))
        return false;
    gap *= (uint64_t)times;
    if (!peer_nothing(r, gap - gap / 20))
        return false;
    return peer_out(r, 2, 0, gap / 10 + 2 * MS);
}

bool peer_nothing(struct run *r, uint64_t us)
{
    struct world_frame *f;
    char text[512] = "?";
    struct frame_tcp t;
    struct chan *c;

    world_advance(&r->w, r->event_us + us);
    f = world_take(&r->w);
    if (!f) {
        r->event_us += us;
        return true;
    }
    if (peer_learn(r, f, &t, &c))
        peer_describe(c, true, &t, text, sizeof(text));
    run_fail(r, "something was sent after %.3f ms: %s", (double)(f->at_us - r->event_us) / 1e3,
             text);
    free(f);
    return false;
}

/* Whatever comes until then is learnt from, but not compared. */
bool peer_ignore(struct run *r, uint64_t us)
{
    uint64_t until = r->event_us + us;
    struct world_frame *f;
    struct frame_tcp t;
    struct chan *c;

    for (;;) {
        world_advance(&r->w, until);
        f = world_take(&r->w);
        if (!f)
            break;
        if (!peer_learn(r, f, &t, &c)) {
            free(f);
            return false;
        }
        free(f);
    }
    r->event_us = until;
    return true;
}

/* ---- ICMP errors, and many SYNs ---- */

/* icmp toobig MTU | unreach CODE | exceeded   [seq N] [forged]: about the last segment. */
bool peer_icmp(struct run *r, unsigned at)
{
    const char *what = at < r->line->words ? r->line->word[at] : "";
    struct chan *c = r->c;
    uint8_t frame[2048], *about;
    struct frame_tcp t;
    struct frame_ends ends;
    int64_t n = 0, seq = segment_word(r, at, "seq", INT64_MIN);
    uint8_t type, code = 0;
    uint32_t mtu = 0, raw;
    size_t l4;

    if (!c->last)
        return run_fail(r, "nothing was sent that an ICMP error could be about");
    if (strcmp(what, "exceeded") != 0 && !run_number(r, at + 1, &n))
        return false;
    if (strcmp(what, "toobig") == 0) {
        type = c->ip6 ? 2 : 3;
        code = c->ip6 ? 0 : 4;
        mtu = (uint32_t)n;
    } else if (strcmp(what, "unreach") == 0) {
        type = c->ip6 ? 1 : 3;
        code = (uint8_t)n;
    } else if (strcmp(what, "exceeded") == 0) {
        type = c->ip6 ? 3 : 11;
    } else {
        return run_fail(r, "no such ICMP error: %s", what);
    }
    about = malloc(c->last->len);
    memcpy(about, c->last->data, c->last->len);
    frame_tcp_read(about, c->last->len, &ends, &t);
    l4 = frame_l4(&ends);
    if (seq != INT64_MIN) {
        raw = rte_cpu_to_be_32(c->own_isn + (uint32_t)seq);
        memcpy(about + l4 + 4, &raw, 4);
    }
    if (strcmp(r->line->word[r->line->words - 1], "forged") == 0)
        about[l4] ^= 1; /* another port */
    run_trace(r, "%10.6f %s in  ICMP %s", (double)(r->w.now_us - WORLD_START_US) / 1e6, c->name,
              r->line->text);
    world_feed(&r->w, frame,
               station_icmp_error(&r->w, frame, about, c->last->len, type, code, mtu));
    free(about);
    r->event_us = r->w.now_us;
    return true;
}

/* flood N port P: N SYNs from ports P on; how many were answered with SYN|ACK is `answered A`. */
bool peer_flood(struct run *r, unsigned at)
{
    int64_t n, port = segment_word(r, at, "port", 2000), want = segment_word(r, at, "answered", -1);
    int64_t answered = 0;
    uint8_t frame[256];
    struct frame_ends ends;

    if (!run_number(r, at, &n))
        return false;
    peer_addresses(r->c, &ends);
    for (int64_t i = 0; i < n; i++) {
        struct frame_tcp t = {.sport = (uint16_t)(port + i),
                              .dport = r->c->own_port,
                              .seq = (uint32_t)(77777 * i),
                              .flags = SYN,
                              .win = 65535,
                              .has_mss = true,
                              .mss = 1460};
        struct world_frame *f;

        world_feed(&r->w, frame, frame_tcp_write(frame, &ends, &t));
        while ((f = world_take(&r->w))) {
            struct frame_ends e;
            struct frame_tcp o;

            if (frame_tcp_read(f->data, f->len, &e, &o) && !o.bad && o.flags == (SYN | ACK) &&
                o.ack == t.seq + 1 && o.dport == t.sport)
                answered++;
            free(f);
        }
    }
    r->event_us = r->w.now_us;
    if (want >= 0 && answered != want)
        return run_fail(r, "%" PRId64 " of %" PRId64 " SYNs were answered, not %" PRId64, answered,
                        n, want);
    return true;
}
