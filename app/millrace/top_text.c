/* SPDX-License-Identifier: BSD-3-Clause */
/* A view of `millrace top` as lines of text. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "app/millrace/top_model.h"

const char *top_number(double n, char buf[16])
{
    static const char units[] = " kMGTPE";
    const char *unit = units;

    if (isnan(n)) {
        snprintf(buf, 16, "-");
        return buf;
    }
    while (fabs(n) >= 999.5 && unit[1]) {
        n /= 1000;
        unit++;
    }
    if (unit == units)
        snprintf(buf, 16, n > 0 && n < 9.95 && n != floor(n) ? "%.1f" : "%.0f", n);
    else
        snprintf(buf, 16, "%.*f%c", n < 9.995 ? 2 : n < 99.95 ? 1 : 0, n, *unit);
    return buf;
}

static const char *percent(double share, char buf[16])
{
    if (isnan(share))
        snprintf(buf, 16, "-");
    else
        snprintf(buf, 16, "%.0f%%", 100 * share);
    return buf;
}

/* ---- lines ---- */

void top_text_clear(struct top_text *text)
{
    free(text->row);
    *text = (struct top_text){.row = NULL};
}

int top_fit(char *out, size_t len, const char *text, int cols)
{
    mbstate_t state = {0};
    size_t left = strlen(text), used = 0;
    int at = 0;

    while (left) {
        wchar_t c;
        size_t n = mbrtowc(&c, text, left, &state);
        bool bad = n == (size_t)-1 || n == (size_t)-2 || n == 0;
        int width = bad ? -1 : wcwidth(c);

        if (bad) {
            n = 1;
            memset(&state, 0, sizeof(state));
        }
        if (at + (width < 0 ? 1 : width) > cols || used + n >= len)
            break;
        if (width < 0)
            out[used++] = '?';
        else
            memcpy(out + used, text, n);
        used += width < 0 ? 0 : n;
        at += width < 0 ? 1 : width;
        text += n;
        left -= n;
    }
    out[used] = '\0';
    return at;
}

/* The same, filled with blanks up to the width. */
static const char *column(char *out, size_t len, const char *text, int width)
{
    int at = top_fit(out, len, text, width);
    size_t used = strlen(out);

    while (at++ < width && used + 1 < len)
        out[used++] = ' ';
    out[used] = '\0';
    return out;
}

__attribute__((format(printf, 3, 4))) static int add(struct top_text *t, enum top_look look,
                                                     const char *fmt, ...)
{
    char text[TOP_LINE];
    va_list args;

    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        struct top_row *row = realloc(t->row, room * sizeof(*row));

        if (!row)
            return -ENOMEM;
        t->row = row;
        t->room = room;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    t->row[t->n].look = look;
    top_fit(t->row[t->n].text, TOP_LINE, text, t->cols);
    for (size_t len = strlen(t->row[t->n].text); len && t->row[t->n].text[len - 1] == ' ';)
        t->row[t->n].text[--len] = '\0';
    t->n++;
    return 0;
}

/* ---- header ---- */

int top_head(struct top_text *t, const struct top_view *v, int cols)
{
    char a[16], b[16], c[16];
    int64_t s = v->uptime;
    int rc;

    t->cols = cols;
    rc = add(t, TOP_PLAIN, "millraced %s  up %lldd %02d:%02d:%02d  routing %s", v->version,
             (long long)(s / 86400), (int)(s / 3600 % 24), (int)(s / 60 % 60), (int)(s % 60),
             v->routing);
    if (rc == 0)
        rc = add(t, TOP_PLAIN, "forwarded %s messages/s  %sB/s  dropped %s/s",
                 top_number(v->messages, a), top_number(v->bytes, b), top_number(v->drops, c));
    return rc;
}

/* ---- body ---- */

/* Of a reactor that looks at what its work is. */
static int put_work(struct top_text *t, const struct top_reactor *r)
{
    char text[TOP_LINE] = "";
    size_t n = 0;

    for (unsigned k = 0; k < r->nworks && n < sizeof(text) - 64; k++)
        if (!isnan(r->work[k].share))
            n += (size_t)snprintf(text + n, sizeof(text) - n, " %.16s %.0f", r->work[k].name,
                                  100 * r->work[k].share);
    return n ? add(t, TOP_PLAIN, "%11s work, in %%:%s", "", text) : 0;
}

static int put_reactors(struct top_text *t, const struct top_view *v)
{
    char a[16], b[16], c[16], d[16], stages[TOP_LINE];
    unsigned i;
    int rc = add(t, TOP_TITLE, "%-7s %3s %5s %7s %6s %8s %6s  %s", "REACTOR", "CPT", "BUSY",
                 "PREEMPT", "ASLEEP", "SLEEPS/s", "STALLS", "AWAKE, IN %");

    for (i = 0; rc == 0 && i < v->nreactors; i++) {
        const struct top_reactor *r = &v->reactors[i];
        size_t n = 0;

        stages[0] = '\0';
        for (unsigned k = 0; k < r->nstages && n < sizeof(stages) - 64; k++)
            if (!isnan(r->stage[k].share))
                n += (size_t)snprintf(stages + n, sizeof(stages) - n, "%s%.16s %.0f", n ? " " : "",
                                      r->stage[k].name, 100 * r->stage[k].share);
        rc = add(t, r->busy > 0.9 ? TOP_ALERT : TOP_PLAIN, "%7lld %3lld %5s %7s %6s %8s %6lld  %s",
                 (long long)r->index, (long long)r->cpt, percent(r->busy, a),
                 percent(r->preempted, d), percent(r->asleep, b), top_number(r->sleeps, c),
                 (long long)r->stalls, stages);
        if (rc == 0)
            rc = put_work(t, r);
    }
    return rc;
}

/* A NID with the host it stands for. */
static const char *who(char out[TOP_LINE], const char *nid, const char *host, int width)
{
    char both[TOP_NID + TOP_HOST + 4];

    snprintf(both, sizeof(both), host[0] ? "%s (%s)" : "%s", nid, host);
    return column(out, TOP_LINE, both, width);
}

/* Columns for NIDs: what the numbers leave. */
static int who_width(const struct top_text *t, int numbers)
{
    int width = t->cols - numbers;

    return width < 16 ? 16 : width > 48 ? 48 : width;
}

static int put_nis(struct top_text *t, const struct top_view *v)
{
    char a[16], b[16], c[16], name[TOP_LINE];
    int width = who_width(t, 54), rc;
    unsigned i;

    rc = add(t, TOP_TITLE, "%s %-6s %7s %7s %7s %7s %6s %6s",
             column(name, sizeof(name), "NI", width), "STATUS", "IN/s", "OUT/s", "DROP/s",
             "CREDITS", "LOW", "WAIT");
    for (i = 0; rc == 0 && i < v->nnis; i++) {
        const struct top_ni *n = &v->nis[i];
        const char *host = json_string_value(json_object_get(v->names, n->nid));

        rc = add(t, strcmp(n->status, "up") ? TOP_ALERT : TOP_PLAIN,
                 "%s %-6s %7s %7s %7s %7lld %6lld %6lld",
                 who(name, n->nid, host ? host : "", width), n->status, top_number(n->received, a),
                 top_number(n->sent, b), top_number(n->dropped, c), (long long)n->credits,
                 (long long)n->min_credits, (long long)n->waiting);
    }
    return rc;
}

static int put_peers(struct top_text *t, const struct top_view *v, const char *sort, unsigned max)
{
    char a[16], b[16], name[TOP_LINE], title[64];
    int width = who_width(t, 45), rc;
    unsigned i;

    snprintf(title, sizeof(title), "PEER by %s", sort);
    rc = add(t, TOP_TITLE, "%s %-5s %8s %8s %6s %6s %6s", column(name, sizeof(name), title, width),
             "STATE", "IN B/s", "OUT B/s", "QUEUE", "WAIT", "RTR");
    if (rc == 0 && !v->has_peers)
        rc = add(t, TOP_PLAIN, "  not told by this millraced, or not now");
    for (i = 0; rc == 0 && i < v->npeers && i < max; i++) {
        const struct top_peer *p = &v->peers[i];

        rc = add(t, TOP_PLAIN, "%s %-5s %8s %8s %6lld %6lld %6lld",
                 who(name, p->nid, p->host, width), p->up ? "up" : "down", top_number(p->in, a),
                 top_number(p->out, b), (long long)p->queued, (long long)p->waiting,
                 (long long)p->rtr_waiting);
    }
    return rc;
}

static int put_pools(struct top_text *t, const struct top_view *v)
{
    int rc = add(t, TOP_TITLE, "%-8s %9s %9s %9s %9s %10s", "BUFFERS", "TOTAL", "FREE", "LOW",
                 "WAITING", "WAITED"),
        k;

    for (k = 0; rc == 0 && k < TOP_POOLS; k++) {
        const struct top_pool *p = &v->pool[k];

        rc = add(t, p->waiting ? TOP_ALERT : TOP_PLAIN, "%-8s %9lld %9lld %9lld %9lld %10lld",
                 p->name, (long long)p->total, (long long)p->free, (long long)p->low,
                 (long long)p->waiting, (long long)p->waited);
    }
    return rc;
}

static int put_drops(struct top_text *t, const struct top_view *v)
{
    char a[16];
    int rc = add(t, TOP_TITLE, "%-32s %9s %12s", "DROPS", "PER s", "TOTAL");

    if (rc == 0 && v->ndrops == 0)
        rc = add(t, TOP_PLAIN, "none");
    for (unsigned i = 0; rc == 0 && i < v->ndrops; i++)
        rc = add(t, v->drop[i].rate > 0 ? TOP_ALERT : TOP_PLAIN, "%-32s %9s %12lld",
                 v->drop[i].name, top_number(v->drop[i].rate, a), (long long)v->drop[i].count);
    return rc;
}

int top_body(struct top_text *t, const struct top_view *v, const char *sort, unsigned max, int cols)
{
    int rc;

    t->cols = cols;
    rc = put_reactors(t, v);
    if (rc == 0)
        rc = put_nis(t, v);
    if (rc == 0)
        rc = put_peers(t, v, sort, max);
    if (rc == 0)
        rc = put_pools(t, v);
    if (rc == 0)
        rc = put_drops(t, v);
    return rc;
}
