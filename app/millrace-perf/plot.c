/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The drawing of a run: four panels, one above the other. Bytes and messages per second and latency
 * over time, and latency by quantile, with the tail spread out: each nine is as wide as the last.
 */
#include "app/millrace-perf/output.h"

#include <math.h>
#include <string.h>

#define WIDTH        960
#define LEFT         90
#define RIGHT        150 /* of the legend */
#define TOP          64
#define PANEL        190
#define GAP          66
#define PANELS       4
#define HEIGHT       (TOP + PANELS * (PANEL + GAP) + 10)
#define QUANTILE_END 5.0 /* nines: 99.999 % */

struct axis {
    double lo, hi; /* of values; of their logarithms if log */
    bool log;
};

struct panel {
    FILE *f;
    int top;
    struct axis x, y;
    unsigned lines; /* for the legend */
};

static const char *const colours[] = {"#1f6fb4", "#d9730d", "#2f8f4e", "#b03a48"};

/* ---- text ---- */

static void text_escaped(FILE *f, const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '<')
            fputs("&lt;", f);
        else if (*s == '>')
            fputs("&gt;", f);
        else if (*s == '&')
            fputs("&amp;", f);
        else if (*s == '"')
            fputs("&quot;", f);
        else if ((unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f)
            fputc(*s, f);
        else
            fputc('?', f); /* what a command line has may be no UTF-8, which would be no XML */
    }
}

static void text_at(FILE *f, double x, double y, const char *how, const char *s)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, how);
    text_escaped(f, s);
    fprintf(f, "</text>\n");
}

/* ---- axes ---- */

static double along(const struct axis *a, double v)
{
    if (a->log)
        v = log10(v > 0 ? v : 1e-9);
    v = a->hi > a->lo ? (v - a->lo) / (a->hi - a->lo) : 0;
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

static double x_of(const struct panel *p, double v)
{
    return LEFT + along(&p->x, v) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct panel *p, double v)
{
    return p->top + (1 - along(&p->y, v)) * PANEL;
}

/* 1, 2 or 5 times a power of ten, so that about n of them make `span`. */
static double step_of(double span, int n)
{
    double raw = span / n, power = pow(10, floor(log10(raw)));
    double m = raw / power;

    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void number_text(double v, char *buf, size_t size)
{
    static const char suffix[] = {' ', 'k', 'M', 'G', 'T'};
    unsigned i = 0;

    for (; fabs(v) >= 1000 && i < sizeof(suffix) - 1; i++)
        v /= 1000;
    if (i == 0)
        snprintf(buf, size, "%.4g", v);
    else
        snprintf(buf, size, "%.4g %c", v, suffix[i]);
}

static void time_text(double ns, char *buf, size_t size)
{
    if (ns >= 1e9)
        snprintf(buf, size, "%.4g s", ns / 1e9);
    else if (ns >= 1e6)
        snprintf(buf, size, "%.4g ms", ns / 1e6);
    else if (ns >= 1e3)
        snprintf(buf, size, "%.4g us", ns / 1e3);
    else
        snprintf(buf, size, "%.4g ns", ns);
}

static void grid_y(const struct panel *p, double v, const char *label)
{
    double y = y_of(p, v);

    fprintf(p->f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT, y,
            WIDTH - RIGHT, y);
    text_at(p->f, LEFT - 8, y + 4, "class=\"tick\" text-anchor=\"end\"", label);
}

static void grid_x(const struct panel *p, double v, const char *label)
{
    double x = x_of(p, v);

    fprintf(p->f, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" class=\"grid\"/>\n", x, p->top,
            x, p->top + PANEL);
    text_at(p->f, x, p->top + PANEL + 16, "class=\"tick\" text-anchor=\"middle\"", label);
}

static void ticks_linear(const struct panel *p, bool on_x)
{
    const struct axis *a = on_x ? &p->x : &p->y;
    double step = step_of(a->hi - a->lo, on_x ? 10 : 5);
    char label[32];

    for (double v = a->lo; v <= a->hi + step * 1e-6; v += step) {
        number_text(fabs(v) < step * 1e-6 ? 0 : v, label, sizeof(label));
        (on_x ? grid_x : grid_y)(p, v, label);
    }
}

/* Decades of time; between them 2 and 5 if there are few. */
static void ticks_log_time(const struct panel *p)
{
    static const double parts[] = {1, 2, 5};
    bool few = p->y.hi - p->y.lo <= 2.01;
    char label[32];

    for (double d = floor(p->y.lo); d <= p->y.hi; d++) {
        for (unsigned i = 0; i < (few ? 3u : 1u); i++) {
            double v = parts[i] * pow(10, d);
            if (log10(v) < p->y.lo - 1e-9 || log10(v) > p->y.hi + 1e-9)
                continue;
            time_text(v, label, sizeof(label));
            grid_y(p, v, label);
        }
    }
}

static void panel_frame(const struct panel *p, const char *title, const char *x_title)
{
    fprintf(p->f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"frame\"/>\n", LEFT,
            p->top, WIDTH - LEFT - RIGHT, PANEL);
    text_at(p->f, LEFT, p->top - 8, "class=\"panel\"", title);
    text_at(p->f, (LEFT + WIDTH - RIGHT) / 2.0, p->top + PANEL + 34,
            "class=\"tick\" text-anchor=\"middle\"", x_title);
}

static struct panel panel_new(FILE *f, unsigned index)
{
    return (struct panel){.f = f, .top = TOP + (int)index * (PANEL + GAP) + 16};
}

/* ---- lines ---- */

static void line_begin(struct panel *p, const char *name)
{
    const char *colour = colours[p->lines % (sizeof(colours) / sizeof(colours[0]))];
    double y = p->top + 14 + 20.0 * p->lines;

    fprintf(p->f,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"%s\" class=\"data\"/>\n",
            WIDTH - RIGHT + 12, y - 4, WIDTH - RIGHT + 32, y - 4, colour);
    text_at(p->f, WIDTH - RIGHT + 38, y, "class=\"tick\"", name);
    fprintf(p->f, "<polyline fill=\"none\" stroke=\"%s\" class=\"data\" points=\"", colour);
    p->lines++;
}

static void line_point(const struct panel *p, double x, double y)
{
    fprintf(p->f, "%.1f,%.1f ", x_of(p, x), y_of(p, y));
}

static void line_end(const struct panel *p)
{
    fprintf(p->f, "\"/>\n");
}

/* ---- panels over time ---- */

static double middle_s(const struct interval *iv)
{
    return (double)(iv->from_ns + iv->to_ns) / 2e9;
}

static uint64_t messages_of(const struct interval *iv)
{
    return iv->done[OP_PUT] + iv->done[OP_GET];
}

static double bytes_rate(const struct interval *iv)
{
    double s = interval_seconds(iv);

    return s > 0 ? (double)iv->bytes / s / 1e6 : 0;
}

static double message_rate(const struct interval *iv)
{
    double s = interval_seconds(iv);

    return s > 0 ? (double)messages_of(iv) / s : 0;
}

static struct axis time_axis(const struct series *s)
{
    double end = s->n > 0 ? (double)s->point[s->n - 1].to_ns / 1e9 : 0;

    return (struct axis){0, end > 0 ? end : 1, false};
}

static void rate_panel(FILE *f, unsigned index, const struct series *s, const char *title,
                       const char *name, double (*value)(const struct interval *))
{
    struct panel p = panel_new(f, index);
    double most = 0;

    for (unsigned i = 0; i < s->n; i++)
        most = fmax(most, value(&s->point[i]));
    p.x = time_axis(s);
    p.y.hi = most > 0 ? ceil(most / step_of(most, 5)) * step_of(most, 5) : 1;
    panel_frame(&p, title, "seconds since the start");
    ticks_linear(&p, true);
    ticks_linear(&p, false);
    line_begin(&p, name);
    for (unsigned i = 0; i < s->n; i++)
        line_point(&p, middle_s(&s->point[i]), value(&s->point[i]));
    line_end(&p);
}

/* Whole decades around what there is. */
static struct axis log_axis(double lo, double hi)
{
    struct axis a = {floor(log10(fmax(lo, 1))), ceil(log10(fmax(hi, 10))), true};

    if (a.hi <= a.lo)
        a.hi = a.lo + 1;
    return a;
}

static void latency_panel(FILE *f, unsigned index, const struct plot *plot)
{
    static const unsigned shown[] = {0, 2, HIST_POINTS - 1}; /* p50, p99, max */
    const struct series *s = plot->series;
    struct panel p = panel_new(f, index);
    double lo = INFINITY, hi = 0;
    char title[160];

    for (unsigned i = 0; i < s->n; i++) {
        if (messages_of(&s->point[i]) == 0)
            continue;
        lo = fmin(lo, (double)s->point[i].quantile[0]);
        hi = fmax(hi, (double)s->point[i].quantile[HIST_POINTS - 1]);
    }
    p.x = time_axis(s);
    p.y = log_axis(isfinite(lo) ? lo : 1e3, hi);
    snprintf(title, sizeof(title), "latency (%s)", plot->latency);
    panel_frame(&p, title, "seconds since the start");
    ticks_linear(&p, true);
    ticks_log_time(&p);
    for (unsigned q = sizeof(shown) / sizeof(shown[0]); q-- > 0;) {
        line_begin(&p, hist_points[shown[q]].text);
        for (unsigned i = 0; i < s->n; i++)
            if (messages_of(&s->point[i]) > 0)
                line_point(&p, middle_s(&s->point[i]), (double)s->point[i].quantile[shown[q]]);
        line_end(&p);
    }
}

/* ---- latency by quantile ---- */

/* As far into the tail as there are values: of 1000 there is no p99.99. */
static double nines_of(const struct hist *h)
{
    double most = log10((double)h->count);

    return most < QUANTILE_END ? most : QUANTILE_END;
}

static void quantile_panel(FILE *f, unsigned index, const struct plot *plot)
{
    static const struct {
        double nines;
        const char *label;
    } ticks[] = {{0, "0 %"},    {0.30103, "50 %"}, {1, "90 %"},    {2, "99 %"},
                 {3, "99.9 %"}, {4, "99.99 %"},    {5, "99.999 %"}};
    struct panel p = panel_new(f, index);
    double lo = INFINITY, hi = 0, end = 0;
    char title[160];

    for (int op = 0; op < OP_KINDS; op++) {
        const struct hist *h = plot->rtt[op];
        if (!h || h->count == 0)
            continue;
        lo = fmin(lo, (double)h->min);
        hi = fmax(hi, (double)h->max);
        end = fmax(end, nines_of(h));
    }
    p.x = (struct axis){0, end > 1 ? ceil(end) : 1, false};
    p.y = log_axis(isfinite(lo) ? lo : 1e3, hi);
    snprintf(title, sizeof(title), "latency by quantile (%s)", plot->latency);
    panel_frame(&p, title, "share of messages that took no longer");
    for (unsigned i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++)
        if (ticks[i].nines <= p.x.hi + 1e-9)
            grid_x(&p, ticks[i].nines, ticks[i].label);
    ticks_log_time(&p);
    for (int op = 0; op < OP_KINDS; op++) {
        const struct hist *h = plot->rtt[op];
        if (!h || h->count == 0)
            continue;
        line_begin(&p, plot->rtt_name[op]);
        for (double n = 0; n <= nines_of(h) + 1e-9; n += 0.02)
            line_point(&p, n, (double)hist_quantile(h, 1 - pow(10, -n)));
        line_end(&p);
    }
}

void plot_write(FILE *f, const struct plot *plot)
{
    fprintf(f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n"
            "<style>.grid{stroke:#e2e2e2}.frame{fill:none;stroke:#777}"
            ".data{stroke-width:1.8;stroke-linejoin:round}.tick{font-size:12px;fill:#333}"
            ".panel{font-size:14px;font-weight:bold;fill:#111}"
            ".title{font-size:18px;font-weight:bold;fill:#111}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    text_at(f, LEFT, 28, "class=\"title\"", plot->title);
    text_at(f, LEFT, 48, "class=\"tick\"", plot->subtitle);
    rate_panel(f, 0, plot->series, "throughput, MB/s of payload", "MB/s", bytes_rate);
    rate_panel(f, 1, plot->series, "throughput, messages/s", "messages/s", message_rate);
    latency_panel(f, 2, plot);
    quantile_panel(f, 3, plot);
    fprintf(f, "</svg>\n");
}
