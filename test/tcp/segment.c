/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments in the words of lines: reading, describing, comparing. */
#include "test/tcp/run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- words for segments ---- */

static const struct {
    const char *name;
    uint8_t bit;
} flag_names[] = {{"SYN", SYN}, {"FIN", FIN}, {"RST", RST}, {"PSH", PSH},
                  {"ACK", ACK}, {"URG", URG}, {"ECE", ECE}, {"CWR", CWR}};

static bool read_flags(const char *text, uint8_t *out)
{
    *out = 0;
    if (strcmp(text, "-") == 0)
        return true;
    while (*text != '\0') {
        size_t n = strcspn(text, "|");
        uint8_t bit = 0;

        for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++)
            if (n == 3 && strncmp(text, flag_names[i].name, 3) == 0)
                bit = flag_names[i].bit;
        if (bit == 0)
            return false;
        *out |= bit;
        text += n + (text[n] == '|');
    }
    return true;
}

void peer_describe(const struct chan *c, bool out, const struct frame_tcp *t, char *text,
                   size_t size)
{
    uint32_t seq0 = out ? (c->own_known ? c->own_isn : 0) : c->peer_isn;
    uint32_t ack0 = out ? c->peer_isn : c->own_known ? c->own_isn : 0;
    size_t n = 0;

#define ADD(...)                                                                                   \
    do {                                                                                           \
        if (n < size)                                                                              \
            n += (size_t)snprintf(text + n, size - n, __VA_ARGS__);                                \
    } while (0)
    for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++)
        if ((t->flags & flag_names[i].bit) != 0)
            ADD("%s%s", n > 0 ? "|" : "", flag_names[i].name);
    if (t->flags == 0)
        ADD("-");
    ADD(" seq %" PRId32, (int32_t)(t->seq - seq0));
    if ((t->flags & ACK) != 0)
        ADD(" ack %" PRId32, (int32_t)(t->ack - ack0));
    ADD(" len %zu win %u", t->len, t->win);
    if (t->has_mss)
        ADD(" mss %u", t->mss);
    if (t->has_wscale)
        ADD(" wscale %u", t->wscale);
    if (t->has_sackok)
        ADD(" sackok");
    if (t->has_ts)
        ADD(" ts %" PRIu32 " %" PRIu32, t->ts_val, t->ts_ecr);
    for (unsigned i = 0; i < t->nsack; i++)
        ADD("%s%" PRId32 "-%" PRId32, i == 0 ? " sack " : ",", (int32_t)(t->sack[i].left - ack0),
            (int32_t)(t->sack[i].right - ack0));
    if ((t->tos & 3) != 0)
        ADD(" ecn %u", t->tos & 3);
#undef ADD
}

/* ---- a segment as a line gives it ---- */

static bool read_blocks(struct run *r, const char *text, uint32_t base, struct frame_tcp *t)
{
    char copy[256], *save = NULL;

    snprintf(copy, sizeof(copy), "%s", text);
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        char *dots = strstr(w, "..");
        int64_t left, right;

        if (!dots || t->nsack == 4)
            return run_fail(r, "not SACK blocks L..R,L..R: %s", text);
        *dots = '\0';
        if (!script_number(r->line, w, &left) || !script_number(r->line, dots + 2, &right))
            return run_fail(r, "not SACK blocks L..R,L..R: %s", text);
        t->sack[t->nsack++] = (struct frame_block){base + (uint32_t)left, base + (uint32_t)right};
    }
    return true;
}

static bool read_hex(struct run *r, const char *text, struct frame_tcp *t)
{
    for (; text[0] != '\0' && text[1] != '\0'; text += 2) {
        unsigned v;

        if (sscanf(text, "%2x", &v) != 1 || t->raw_opt_len == FRAME_OPT_MAX)
            return run_fail(r, "not bytes of options: %s", text);
        t->raw_opt[t->raw_opt_len++] = (uint8_t)v;
    }
    return true;
}

/* Words without a value. */
static bool read_flag_word(const char *w, struct wanted *x)
{
    if (strcmp(w, "sackok") == 0)
        x->t.has_sackok = true;
    else if (strcmp(w, "nots") == 0)
        x->nots = true;
    else if (strcmp(w, "badsum") == 0)
        x->t.bad_sum = true;
    else if (strcmp(w, "badipsum") == 0)
        x->t.bad_ip_sum = true;
    else if (strcmp(w, "tsmark") == 0)
        x->ts_mark = true;
    else if (strcmp(w, "anyopts") == 0)
        x->any_opts = true;
    else if (strcmp(w, "anysack") == 0)
        x->any_sack = true;
    else if (strcmp(w, "nosack") == 0)
        x->any_sack = false;
    else
        return false;
    return true;
}

static bool read_option_word(struct run *r, const char *w, int64_t n, struct wanted *x)
{
    if (strcmp(w, "mss") == 0) {
        x->t.has_mss = true;
        x->t.mss = (uint16_t)n;
    } else if (strcmp(w, "wscale") == 0) {
        x->t.has_wscale = true;
        x->t.wscale = (uint8_t)n;
    } else if (strcmp(w, "urg") == 0) {
        x->t.urg = (uint16_t)n;
    } else if (strcmp(w, "doff") == 0) {
        x->t.doff = (int)n;
    } else if (strcmp(w, "iplen") == 0) {
        x->t.ip_len = (int)n;
    } else if (strcmp(w, "reserved") == 0) {
        x->t.reserved = (uint8_t)n;
    } else if (strcmp(w, "tos") == 0) {
        x->t.tos = (uint8_t)n;
        x->tos = true;
    } else if (strcmp(w, "len") == 0) {
        x->t.len = (size_t)n;
        x->len = true;
    } else if (strcmp(w, "tsval") == 0) {
        x->t.ts_val = (uint32_t)n;
        x->ts = x->ts_val = true;
    } else if (strcmp(w, "tsecr") == 0) {
        x->t.ts_ecr = (uint32_t)n;
        x->ts = x->ts_ecr = true;
    } else {
        return run_fail(r, "a segment has no `%s`", w);
    }
    return true;
}

bool segment_read(struct run *r, unsigned at, uint32_t seq0, uint32_t ack0, struct wanted *x)
{
    const struct script_line *l = r->line;
    int64_t a, b;

    memset(x, 0, sizeof(*x));
    if (at >= l->words || !read_flags(l->word[at], &x->t.flags))
        return run_fail(r, "flags are missing");
    for (at++; at < l->words; at++) {
        const char *w = l->word[at], *v = at + 1 < l->words ? l->word[at + 1] : "";

        if (read_flag_word(w, x))
            continue;
        if (strcmp(w, "linkmss") == 0) {
            x->t.has_mss = true;
            x->t.mss = (uint16_t)(inet_if_mtu(r->w.ifp) - (r->ip6 ? 60 : 40));
            continue;
        }
        if (strcmp(w, "ts") == 0) {
            x->ts = true;
            continue;
        }
        at++;
        if (strcmp(w, "sack") == 0) {
            if (!read_blocks(r, v, ack0, &x->t))
                return false;
            continue;
        }
        if (strcmp(w, "opt") == 0) {
            if (!read_hex(r, v, &x->t))
                return false;
            continue;
        }
        if (!script_range(l, v, &a, &b))
            return run_fail(r, "`%s` wants a number, not `%s`", w, v);
        if (strcmp(w, "seq") == 0) {
            x->t.seq = seq0 + (uint32_t)a;
            x->seq = true;
        } else if (strcmp(w, "rawseq") == 0) {
            x->t.seq = (uint32_t)a;
            x->seq = true;
        } else if (strcmp(w, "ack") == 0) {
            x->t.ack = ack0 + (uint32_t)a;
            x->ack = true;
        } else if (strcmp(w, "win") == 0) {
            x->t.win = (uint16_t)a;
            x->win_to = b;
            x->win = true;
        } else if (strcmp(w, "edge") == 0) {
            x->edge_from = a;
            x->edge_to = b;
            x->edge = true;
        } else if (!read_option_word(r, w, a, x)) {
            return false;
        }
    }
    return true;
}

int64_t segment_word(struct run *r, unsigned at, const char *key, int64_t other)
{
    int64_t n;

    for (; at + 1 < r->line->words; at++)
        if (strcmp(r->line->word[at], key) == 0 &&
            script_number(r->line, r->line->word[at + 1], &n))
            return n;
    return other;
}

/* ---- comparing ---- */

static void differ(char *text, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void differ(char *text, size_t size, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;

    if (n > 0 && n + 2 < size) {
        memcpy(text + n, "; ", 3);
        n += 2;
    }
    va_start(ap, fmt);
    vsnprintf(text + n, size - n, fmt, ap);
    va_end(ap);
}

static void compare_options(const struct wanted *x, const struct frame_tcp *t, char *d, size_t size)
{
    if (x->any_opts)
        return;
    if (x->t.has_mss != t->has_mss || x->t.mss != t->mss)
        differ(d, size, "mss");
    if (x->t.has_wscale != t->has_wscale || x->t.wscale != t->wscale)
        differ(d, size, "wscale");
    if (x->t.has_sackok != t->has_sackok)
        differ(d, size, "sackok");
    if (((t->flags & SYN) != 0 && x->ts != t->has_ts) || (x->ts && !t->has_ts))
        differ(d, size, "ts");
    if (x->nots && t->has_ts)
        differ(d, size, "a timestamp");
    if (x->ts_val && x->t.ts_val != t->ts_val)
        differ(d, size, "tsval");
    if (x->ts_ecr && x->t.ts_ecr != t->ts_ecr)
        differ(d, size, "tsecr");
    if (x->any_sack)
        return;
    if (x->t.nsack != t->nsack) {
        differ(d, size, "%u SACK blocks, not %u", t->nsack, x->t.nsack);
        return;
    }
    for (unsigned i = 0; i < t->nsack; i++)
        if (x->t.sack[i].left != t->sack[i].left || x->t.sack[i].right != t->sack[i].right)
            differ(d, size, "SACK block %u", i);
}

void segment_compare(const struct chan *c, const struct wanted *x, const struct frame_tcp *t,
                     char *d, size_t size)
{
    uint8_t flags = t->flags;
    int64_t edge;

    d[0] = '\0';
    if ((x->t.flags & PSH) == 0)
        flags &= (uint8_t)~PSH;
    if (flags != x->t.flags)
        differ(d, size, "flags");
    if (x->seq && x->t.seq != t->seq)
        differ(d, size, "seq");
    if (x->ack && x->t.ack != t->ack)
        differ(d, size, "ack");
    if (x->t.len != t->len)
        differ(d, size, "len");
    if (x->win && (t->win < x->t.win || t->win > x->win_to))
        differ(d, size, "win");
    if (x->tos && x->t.tos != t->tos)
        differ(d, size, "tos is %u", t->tos);
    if (t->urg != x->t.urg)
        differ(d, size, "urg");
    edge = (int32_t)(c->edge_now - c->peer_isn);
    if (x->edge && (edge < x->edge_from || edge > x->edge_to))
        differ(d, size, "edge is %" PRId64, edge);
    compare_options(x, t, d, size);
}
