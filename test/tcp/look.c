/* SPDX-License-Identifier: BSD-3-Clause */
/* What a line expects of the user's events, of a connection's figures and of counters. */
#include "test/tcp/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- events ---- */

static bool count_and_clear(struct run *r, unsigned *n, bool want, const char *what)
{
    unsigned had = *n;

    *n = 0;
    if ((had > 0) != want)
        return run_fail(r, "%s: %s() was called %u times", want ? "expected" : "not expected", what,
                        had);
    return true;
}

static bool expect_closed(struct run *r, bool want, unsigned at)
{
    static const char *const ends[] = {
        [STREAM_END_EOF] = "eof",         [STREAM_END_RESET] = "reset",
        [STREAM_END_REFUSED] = "refused", [STREAM_END_UNREACHABLE] = "unreachable",
        [STREAM_END_TIMEOUT] = "timeout", [STREAM_END_ERROR] = "error"};
    struct chan *c = r->c;

    if (!want)
        return c->closed == 0 || run_fail(r, "closed(%s) was called", ends[c->end]);
    if (c->closed != 1)
        return run_fail(r, "closed() was called %u times", c->closed);
    if (at < r->line->words && strcmp(ends[c->end], r->line->word[at]) != 0)
        return run_fail(r, "the stream's end is `%s`", ends[c->end]);
    return true;
}

static bool expect_number(struct run *r, unsigned at, int64_t is)
{
    int64_t a, b;

    if (at >= r->line->words || !script_range(r->line, r->line->word[at], &a, &b))
        return run_fail(r, "a number is missing");
    return (is >= a && is <= b) || run_fail(r, "it is %" PRId64, is);
}

static bool expect_stats(struct run *r, const char *what, unsigned at)
{
    struct stream_stats st;

    if (!r->c->s)
        return run_fail(r, "this connection has no stream");
    r->c->s->ops->stats(r->c->s, &st);
    return expect_number(r, at,
                         (int64_t)(strcmp(what, "unacked") == 0    ? st.unacked
                                   : strcmp(what, "bytes_in") == 0 ? st.bytes_in
                                                                   : st.bytes_out));
}

/* expect isn differs NAME | isn grew LEAST..MOST */
static bool expect_isn(struct run *r, unsigned at)
{
    const char *how = at < r->line->words ? r->line->word[at] : "";

    if (!r->c->own_known)
        return run_fail(r, "no SYN was sent");
    if (strcmp(how, "grew") == 0)
        return expect_number(r, at + 1, (int64_t)(uint32_t)(r->c->own_isn - r->c->own_isn_before));
    for (unsigned i = 0; i < r->chans && at + 1 < r->line->words; i++) {
        int64_t far = (int32_t)(r->chan[i].own_isn - r->c->own_isn);

        if (strcmp(r->chan[i].name, r->line->word[at + 1]) == 0)
            return (far > 1000000 || far < -1000000) || run_fail(r, "it is %" PRId64 " away", far);
    }
    return run_fail(r, "`expect isn` wants `differs NAME` or `grew A..B`");
}

/* tsgrew A..B: what TSval has grown by since the last such line; the first only sets the mark. */
bool look_ts_grew(struct run *r)
{
    uint32_t grew = r->c->ts_seen - r->c->ts_mark;
    bool first = r->c->ts_mark == 0;

    r->c->ts_mark = r->c->ts_seen;
    return first || expect_number(r, 1, (int32_t)grew);
}

/* expect ts differs NAME: the clocks that two connections show are far apart. */
static bool expect_ts_differs(struct run *r, unsigned at)
{
    for (unsigned i = 0; i < r->chans && at + 1 < r->line->words; i++) {
        int64_t far = (int32_t)(r->chan[i].ts_seen - r->c->ts_seen);

        if (strcmp(r->chan[i].name, r->line->word[at + 1]) == 0)
            return (far > 10000 || far < -10000) || run_fail(r, "they are %" PRId64 " apart", far);
    }
    return run_fail(r, "`expect ts differs` wants a name");
}

bool look_expect(struct run *r)
{
    unsigned at = 1;
    bool want = true;
    const char *what;
    struct chan *c = r->c;

    if (r->line->words > 1 && strcmp(r->line->word[1], "not") == 0) {
        want = false;
        at++;
    }
    what = at < r->line->words ? r->line->word[at] : "";
    if (strcmp(what, "connected") == 0)
        return count_and_clear(r, &c->connected, want, what);
    if (strcmp(what, "readable") == 0)
        return count_and_clear(r, &c->readable, want, what);
    if (strcmp(what, "writable") == 0)
        return count_and_clear(r, &c->writable, want, what);
    if (strcmp(what, "acked") == 0)
        return count_and_clear(r, &c->acked, want, what);
    if (strcmp(what, "accepted") == 0)
        return (c->accepted != NULL) == want ||
               run_fail(r, "accepted() was %scalled", want ? "not " : "");
    if (strcmp(what, "closed") == 0)
        return expect_closed(r, want, at + 1);
    if (strcmp(what, "unacked") == 0 || strncmp(what, "bytes_", 6) == 0)
        return expect_stats(r, what, at + 1);
    if (strcmp(what, "isn") == 0)
        return expect_isn(r, at + 1);
    if (strcmp(what, "ts") == 0)
        return expect_ts_differs(r, at + 1);
    if (strcmp(what, "icmp") == 0)
        return (r->w.icmp != NULL) == want || run_fail(r, "ICMP was %ssent", want ? "not " : "");
    return run_fail(r, "cannot expect `%s`", what);
}

/* ---- figures ---- */

#define F32(f)                                                                                     \
    {                                                                                              \
#f, offsetof(struct tcp_info, f), 4                                                        \
    }
#define F64(f)                                                                                     \
    {                                                                                              \
#f, offsetof(struct tcp_info, f), 8                                                        \
    }
#define F8(f)                                                                                      \
    {                                                                                              \
#f, offsetof(struct tcp_info, f), 1                                                        \
    }
#define FTXT(f)                                                                                    \
    {                                                                                              \
#f, offsetof(struct tcp_info, f), 0                                                        \
    }

static const struct {
    const char *name;
    size_t offset;
    unsigned size; /* 0: text */
} fields[] = {
    FTXT(state),
    FTXT(cc),
    FTXT(cc_state),
    F32(mss),
    F32(cwnd),
    F32(ssthresh),
    F32(in_flight),
    F32(unsent),
    F32(snd_wnd),
    F32(rcv_wnd),
    F8(snd_wscale),
    F8(rcv_wscale),
    F8(timestamps),
    F8(sack),
    F8(ecn),
    F32(srtt_us),
    F32(rttvar_us),
    F32(min_rtt_us),
    F32(rto_us),
    F32(reorder),
    F64(bytes_in),
    F64(bytes_out),
    F64(bytes_acked),
    F64(bytes_resent),
    F64(segs_in),
    F64(segs_out),
    F64(resent),
    F64(rtos),
    F64(tlps),
    F64(fast_recoveries),
    F64(undone),
    F64(sacks_in),
    F64(dsacks_in),
    F64(sacks_out),
    F64(dsacks_out),
    F64(reordered_in),
    F64(reass_dropped),
    F64(challenges),
    F64(probes_out),
    F64(keepalives_out),
    F64(limited_window_us),
    F64(limited_cwnd_us),
    F64(limited_port_us),
    F32(reass_bytes),
    F32(queue_bytes),
    F64(age_us),
    F64(idle_us),
};

static int64_t field_of(const struct tcp_info *info, unsigned i)
{
    const char *at = (const char *)info + fields[i].offset;

    switch (fields[i].size) {
    case 1:
        return *(const uint8_t *)at;
    case 4:
        return *(const uint32_t *)at;
    default:
        return (int64_t) * (const uint64_t *)at;
    }
}

static bool find_row(struct run *r, struct tcp_info *out)
{
    struct tcp_info rows[16];
    uint32_t at = 0;
    unsigned n;

    while ((n = tcp_info_rows(r->w.tcp, &at, rows, 16)) > 0) {
        for (unsigned i = 0; i < n; i++) {
            if (rows[i].lport != r->c->own_port || rows[i].rport != r->c->peer_port)
                continue;
            *out = rows[i];
            return true;
        }
    }
    return false;
}

/* info FIELD VALUE … : pairs. `info gone`: there is no such connection. */
bool look_info(struct run *r)
{
    const struct script_line *l = r->line;
    struct tcp_info info;
    bool there = find_row(r, &info);

    if (l->words == 2 && strcmp(l->word[1], "gone") == 0)
        return !there || run_fail(r, "the connection is there, in state %s", info.state);
    if (!there)
        return run_fail(r, "there is no such connection");
    for (unsigned w = 1; w + 1 < l->words; w += 2) {
        unsigned i = 0, n = sizeof(fields) / sizeof(fields[0]);
        int64_t a, b, is;

        while (i < n && strcmp(fields[i].name, l->word[w]) != 0)
            i++;
        if (i == n)
            return run_fail(r, "a connection has no figure `%s`", l->word[w]);
        if (fields[i].size == 0) {
            const char *text = *(const char *const *)((const char *)&info + fields[i].offset);

            if (strcmp(text, l->word[w + 1]) != 0)
                return run_fail(r, "%s is %s", l->word[w], text);
            continue;
        }
        is = field_of(&info, i);
        if (!script_range(l, l->word[w + 1], &a, &b))
            return run_fail(r, "`%s` wants a number", l->word[w]);
        if (is < a || is > b)
            return run_fail(r, "%s is %" PRId64, l->word[w], is);
    }
    return true;
}

static const struct {
    const char *name;
    size_t offset;
} stat_fields[] = {
#define S(f)                                                                                       \
    {                                                                                              \
#f, offsetof(struct tcp_stats, f)                                                          \
    }
    S(segs_in),   S(segs_out),     S(bytes_in),  S(bytes_out),          S(conns_in),
    S(conns_out), S(conns_now),    S(half_open), S(time_wait),          S(resent),
    S(rtos),      S(tlps),         S(resets_in), S(resets_out),         S(challenges),
    S(predicted), S(copies),       S(passed_on), S(challenges_limited), S(copied_bytes),
    S(sparse),    S(sparse_bytes),
#undef S
};

/* stat FIELD VALUE: of the reactor since its start. */
bool look_stat(struct run *r)
{
    struct tcp_stats st;

    tcp_stats_get(r->w.tcp, 0, &st);
    for (size_t i = 0; i < sizeof(stat_fields) / sizeof(stat_fields[0]); i++)
        if (r->line->words > 2 && strcmp(stat_fields[i].name, r->line->word[1]) == 0)
            return expect_number(
                r, 2, (int64_t) * (const uint64_t *)((char *)&st + stat_fields[i].offset));
    return run_fail(r, "no such counter");
}

/* drop NAME VALUE: packets dropped under that reason since the case began. */
bool look_drop(struct run *r)
{
    uint64_t now[PKT_DROP_COUNT];

    inet_drops_get(r->w.inet, now);
    for (unsigned i = 0; i < PKT_DROP_COUNT; i++)
        if (r->line->words > 2 && strcmp(pkt_drop_info(i)->name, r->line->word[1]) == 0)
            return expect_number(r, 2, (int64_t)(now[i] - r->drops_before[i]));
    return run_fail(r, "no such reason");
}
