/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns two samples of `millrace top` into lines of text. A value that a sample lacks is shown as
 * "-". */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "app/millrace/cli.h"
#include "app/millrace/top.h"

#define MIN_PEERS 3 /* shown on any terminal */

/* ---- text ---- */

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
    snprintf(buf, 16, isnan(share) ? "-" : "%.0f%%", 100 * share);
    return buf;
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

__attribute__((format(printf, 3, 4))) static void add(struct top_text *t, enum top_look look,
                                                      const char *fmt, ...)
{
    char text[TOP_LINE], *row;
    va_list args;

    t->row = reallocarray(t->row, t->n + 1, sizeof(*t->row));
    if (!t->row)
        abort();
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    row = t->row[t->n].text;
    top_fit(row, TOP_LINE, text, t->cols);
    for (size_t len = strlen(row); len && row[len - 1] == ' ';)
        row[--len] = '\0';
    t->row[t->n++].look = look;
}

void top_text_clear(struct top_text *t)
{
    free(t->row);
    *t = (struct top_text){.row = NULL};
}

/* ---- values ---- */

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Growth of a counter; NAN when there is no earlier value, or the counter was reset. */
static double growth(const json_t *was, const json_t *is, const char *key)
{
    const json_t *a = json_object_get(was, key), *b = json_object_get(is, key);

    if (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(b) < json_integer_value(a))
        return NAN;
    return (double)(json_integer_value(b) - json_integer_value(a));
}

/* The row of a list whose member key is equal to that of row. */
static const json_t *same_row(const json_t *list, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key), *other;
    size_t i;

    json_array_foreach(list, i, other)
        if (value && json_equal(json_object_get(other, key), value))
            return other;
    return NULL;
}

static const json_t *list_of(const struct top_sample *s, enum top_part part, const char *key)
{
    return s ? json_object_get(s->part[part], key) : NULL;
}

/* ---- the frame ---- */

struct frame {
    struct top_text *t;
    const struct top_sample *was, *is;
    double seconds; /* between the samples; NAN: there is only one */
};

static void put_head(const struct frame *f)
{
    static const char *const states[] = {"off", "on", "stopping", "starting"};
    const json_t *version = f->is->part[TOP_VERSION], *is = f->is->part[TOP_STATS];
    const json_t *was = f->was ? f->was->part[TOP_STATS] : NULL;
    const json_t *enable = json_object_get(f->is->part[TOP_BUFFERS], "enable");
    long long up = cli_integer(version, "uptime"), state = json_integer_value(enable);
    char a[16], b[16], c[16];

    add(f->t, TOP_PLAIN, "millraced %s  up %lldd %02d:%02d:%02d  routing %s",
        cli_text(version, "version"), up / 86400, (int)(up / 3600 % 24), (int)(up / 60 % 60),
        (int)(up % 60), json_is_integer(enable) && state >= 0 && state < 4 ? states[state] : "?");
    add(f->t, TOP_PLAIN, "forwarded %s messages/s  %sB/s  dropped %s/s",
        top_number(growth(was, is, "route_count") / f->seconds, a),
        top_number(growth(was, is, "route_length") / f->seconds, b),
        top_number(growth(was, is, "drop_count") / f->seconds, c));
}

/* ---- reactors ---- */

/* Writes the members of an object of times that grow as " name percent" each. Returns the sum of
 * their growth. */
static double put_shares(char out[TOP_LINE], const json_t *was, json_t *is)
{
    json_t *value;
    const char *key;
    double sum = 0;
    size_t n = 0;

    out[0] = '\0';
    json_object_foreach(is, key, value)
        sum += growth(was, is, key);
    json_object_foreach(is, key, value)
        if (sum > 0 && n < TOP_LINE - 64)
            n += (size_t)snprintf(out + n, TOP_LINE - n, " %.16s %.0f", key,
                                  100 * growth(was, is, key) / sum);
    return sum;
}

/* Growth of a stage, 0 where there is no such stage. */
static double stage(const json_t *was, const json_t *is, const char *key)
{
    return json_object_get(is, key) ? growth(was, is, key) : 0;
}

static void put_reactor(const struct frame *f, const json_t *was, const json_t *is)
{
    json_t *stages = json_object_get(is, "stages");
    const json_t *before = json_object_get(was, "stages");
    bool timed = json_object_size(stages) > 0;
    char a[16], b[16], c[16], d[16], shares[TOP_LINE];
    double all, busy, awake = put_shares(shares, before, stages);

    if (timed) {
        all = awake + growth(was, is, "sleep_us");
        busy = awake - stage(before, stages, "rest") - stage(before, stages, "preempted");
    } else { /* without times: the share of the time awake */
        all = growth(was, is, "total_cycles");
        busy = growth(was, is, "busy_cycles");
    }
    busy = all > 0 ? busy / all : NAN;
    all = timed && all > 0 ? all : NAN;
    add(f->t, busy > 0.9 ? TOP_ALERT : TOP_PLAIN, "%7lld %3lld %5s %7s %6s %8s %6lld %s",
        cli_integer(is, "reactor"), cli_integer(is, "cpt"), percent(busy, a),
        percent(stage(before, stages, "preempted") / all, b),
        percent(growth(was, is, "sleep_us") / all, c),
        top_number(growth(was, is, "sleeps") / f->seconds, d), cli_integer(is, "stalls"), shares);
}

static void put_reactors(const struct frame *f)
{
    const json_t *was = list_of(f->was, TOP_REACTORS, "reactors"), *row;
    size_t i;

    add(f->t, TOP_TITLE, "%-7s %3s %5s %7s %6s %8s %6s  %s", "REACTOR", "CPT", "BUSY", "PREEMPT",
        "ASLEEP", "SLEEPS/s", "STALLS", "AWAKE, IN %");
    json_array_foreach(list_of(f->is, TOP_REACTORS, "reactors"), i, row)
        put_reactor(f, same_row(was, row, "reactor"), row);
}

/* ---- NIs and peers ---- */

/* Formats a NID with its host in a column of the width that the numbers leave. */
static const char *who(const struct frame *f, char out[TOP_LINE], const char *nid, int numbers)
{
    const char *host = cli_text(json_object_get(f->is->part[TOP_NAMES], "names"), nid);
    int width = f->t->cols - numbers, used;
    char both[TOP_LINE];
    size_t len;

    width = width < 16 ? 16 : width > 48 ? 48 : width;
    snprintf(both, sizeof(both), host[0] ? "%.64s (%.64s)" : "%.64s", nid, host);
    used = top_fit(out, TOP_LINE, both, width);
    len = strlen(out);
    snprintf(out + len, TOP_LINE - len, "%*s", width - used, "");
    return out;
}

static void put_ni(const struct frame *f, const json_t *before, const json_t *ni)
{
    const json_t *is = json_object_get(ni, "statistics"), *own = json_object_get(ni, "millrace");
    const json_t *was = json_object_get(before, "statistics");
    char a[16], b[16], c[16], name[TOP_LINE];

    add(f->t, strcmp(cli_text(ni, "status"), "up") != 0 ? TOP_ALERT : TOP_PLAIN,
        "%s %-6s %7s %7s %7s %7lld %6lld %6lld", who(f, name, cli_text(ni, "nid"), 54),
        cli_text(ni, "status"), top_number(growth(was, is, "recv_count") / f->seconds, a),
        top_number(growth(was, is, "send_count") / f->seconds, b),
        top_number(growth(was, is, "drop_count") / f->seconds, c),
        cli_integer(own, "available_tx_credits"), cli_integer(own, "min_tx_credits"),
        cli_integer(own, "tx_waiting"));
}

/* Prints all NIs except 0@lo. */
static void put_nis(const struct frame *f)
{
    const json_t *nets = list_of(f->was, TOP_NETS, "net"), *net, *ni, *was;
    char name[TOP_LINE];
    size_t i, j;

    add(f->t, TOP_TITLE, "%s %-6s %7s %7s %7s %7s %6s %6s", who(f, name, "NI", 54), "STATUS",
        "IN/s", "OUT/s", "DROP/s", "CREDITS", "LOW", "WAIT");
    json_array_foreach(list_of(f->is, TOP_NETS, "net"), i, net) {
        was = json_object_get(same_row(nets, net, "net type"), "local NI(s)");
        json_array_foreach(json_object_get(net, "local NI(s)"), j, ni)
            if (cli_text(ni, "nid")[0] && strcmp(cli_text(ni, "nid"), "0@lo") != 0)
                put_ni(f, same_row(was, ni, "nid"), ni);
    }
}

static void put_peers(const struct frame *f, const char *sort)
{
    const json_t *list = list_of(f->is, TOP_PEERS, "peers"), *row;
    char a[16], b[16], name[TOP_LINE], title[64];
    size_t i;

    snprintf(title, sizeof(title), "PEER by %s", sort);
    add(f->t, TOP_TITLE, "%s %-5s %8s %8s %6s %6s %6s", who(f, name, title, 45), "STATE", "IN B/s",
        "OUT B/s", "QUEUE", "WAIT", "RTR");
    if (!json_is_array(list))
        add(f->t, TOP_PLAIN, "  this millraced does not report peers, or not now");
    json_array_foreach(list, i, row)
        add(f->t, TOP_PLAIN, "%s %-5s %8s %8s %6lld %6lld %6lld",
            who(f, name, cli_text(row, "nid"), 45),
            json_is_true(json_object_get(row, "up")) ? "up" : "down",
            top_number(real(row, "bytes_in_per_s"), a), top_number(real(row, "bytes_out_per_s"), b),
            cli_integer(row, "tx_queued"), cli_integer(row, "tx_waiting"),
            cli_integer(row, "rtr_waiting"));
}

/* ---- buffers and drops ---- */

static void put_pools(const struct frame *f)
{
    static const char *const names[] = {"tiny", "small", "large"};
    static const char *const keys[] = {"nbuffers", "credits", "mincredits", "waiting", "waited"};
    const json_t *reactor;
    size_t i;

    add(f->t, TOP_TITLE, "%-8s %9s %9s %9s %9s %10s", "BUFFERS", "TOTAL", "FREE", "LOW", "WAITING",
        "WAITED");
    for (int n = 0; n < 3; n++) {
        long long sum[5] = {0};

        json_array_foreach(list_of(f->is, TOP_BUFFERS, "reactors"), i, reactor)
            for (int k = 0; k < 5; k++)
                sum[k] += cli_integer(json_object_get(reactor, names[n]), keys[k]);
        add(f->t, sum[3] ? TOP_ALERT : TOP_PLAIN, "%-8s %9lld %9lld %9lld %9lld %10lld", names[n],
            sum[0], sum[1], sum[2], sum[3], sum[4]);
    }
}

struct drop {
    const char *name;
    long long count;
    double rate;
};

/* By rate, then by count. */
static int by_rate(const void *a, const void *b)
{
    const struct drop *x = a, *y = b;
    double p = isnan(x->rate) ? 0 : x->rate, q = isnan(y->rate) ? 0 : y->rate;

    if (p != q)
        return p < q ? 1 : -1;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void put_drops(const struct frame *f)
{
    const json_t *list = list_of(f->is, TOP_DROPS, "drops"), *row;
    const json_t *was = list_of(f->was, TOP_DROPS, "drops");
    struct drop *drop = calloc(json_array_size(list) + 1, sizeof(*drop));
    size_t i, n = 0;
    char a[16];

    if (!drop)
        abort();
    json_array_foreach(list, i, row)
        if (cli_integer(row, "count") > 0)
            drop[n++] =
                (struct drop){cli_text(row, "name"), cli_integer(row, "count"),
                              growth(same_row(was, row, "name"), row, "count") / f->seconds};
    qsort(drop, n, sizeof(*drop), by_rate);
    add(f->t, TOP_TITLE, "%-32s %9s %12s", "DROPS", "PER s", "TOTAL");
    if (n == 0)
        add(f->t, TOP_PLAIN, "none");
    for (i = 0; i < n; i++)
        add(f->t, drop[i].rate > 0 ? TOP_ALERT : TOP_PLAIN, "%-32.47s %9s %12lld", drop[i].name,
            top_number(drop[i].rate, a), drop[i].count);
    free(drop);
}

/* ---- health ---- */

/* Formats the time until the next recovery ping. */
static const char *next_ping(const json_t *row, char buf[16])
{
    const json_t *ms = json_object_get(row, "next_ping_ms");

    if (!json_is_integer(ms))
        return strcpy(buf, "-");
    snprintf(buf, 16, "%llds", (long long)json_integer_value(ms) / 1000 % 1000000);
    return buf;
}

/* Writes some members of an object of counters, each behind a space and so wide. */
static const char *counts(char out[TOP_LINE], const json_t *object, const char *const *keys,
                          int width)
{
    char n[16];
    int len = 0;

    for (out[0] = '\0'; *keys && len < TOP_LINE - 32; keys++)
        len += snprintf(out + len, (size_t)(TOP_LINE - len), " %*s", width,
                        top_number(real(object, *keys), n));
    return out;
}

static void put_ni_health(const struct frame *f)
{
    static const char *const keys[] = {"local_interrupt",
                                       "local_dropped",
                                       "local_aborted",
                                       "local_no_route",
                                       "local_timeout",
                                       "local_error",
                                       NULL};
    char name[TOP_LINE], text[TOP_LINE], next[16];
    const json_t *row;
    size_t i;

    add(f->t, TOP_TITLE, "%s %6s %5s %5s %6s %6s %6s %6s %6s %6s", who(f, name, "NI", 62), "HEALTH",
        "PINGS", "NEXT", "INTR", "DROP", "ABORT", "NOWAY", "TIMEO", "ERROR");
    json_array_foreach(list_of(f->is, TOP_HEALTH, "ni"), i, row)
        add(f->t, cli_integer(row, "health") < 1000 ? TOP_ALERT : TOP_PLAIN, "%s %6lld %5lld %5s%s",
            who(f, name, cli_text(row, "nid"), 62), cli_integer(row, "health"),
            cli_integer(row, "ping_count"), next_ping(row, next),
            counts(text, json_object_get(row, "failures"), keys, 6));
}

static void put_peer_health(const struct frame *f)
{
    static const char *const keys[] = {"remote_dropped", "remote_timeout", "remote_error",
                                       "network_timeout", NULL};
    const json_t *sums = list_of(f->is, TOP_HEALTH, "peer_nis"), *row;
    const json_t *list = list_of(f->is, TOP_HEALTH, "peer_ni");
    char name[TOP_LINE], text[TOP_LINE], next[16];
    size_t i;

    add(f->t, TOP_TITLE, "%s %2s %6s %5s %5s %7s %7s %7s %7s", who(f, name, "PEER NI", 57), "",
        "HEALTH", "PINGS", "NEXT", "DROP", "TIMEO", "ERROR", "NETW");
    if (!json_is_array(list))
        add(f->t, TOP_PLAIN, "  this millraced does not report health, or not now");
    else
        add(f->t, TOP_PLAIN, "  %lld below full health, %lld of these in recovery",
            cli_integer(sums, "unhealthy"), cli_integer(sums, "recovering"));
    json_array_foreach(list, i, row)
        add(f->t, TOP_ALERT, "%s %2s %6lld %5lld %5s%s", who(f, name, cli_text(row, "nid"), 57),
            json_is_true(json_object_get(row, "gateway")) ? "gw" : "", cli_integer(row, "health"),
            cli_integer(row, "ping_count"), next_ping(row, next),
            counts(text, json_object_get(row, "failures"), keys, 7));
}

static void put_resends(const struct frame *f)
{
    static const char *const keys[] = {"resend_count", "successful_resends", "failed_resends",
                                       "response_timeout_count"};
    const json_t *is = f->is->part[TOP_STATS], *was = f->was ? f->was->part[TOP_STATS] : NULL;
    double rate;
    char a[16];

    add(f->t, TOP_TITLE, "%-32s %9s %12s", "RESENDS, TIMEOUTS OF RESPONSES", "PER s", "TOTAL");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        rate = growth(was, is, keys[i]) / f->seconds;
        add(f->t, rate > 0 ? TOP_ALERT : TOP_PLAIN, "%-32s %9s %12lld", keys[i],
            top_number(rate, a), cli_integer(is, keys[i]));
    }
}

/* ---- all of it ---- */

/* The counters of another process say nothing about those of this one. */
static bool same_process(const struct top_sample *was, const struct top_sample *is)
{
    const json_t *a = was->part[TOP_VERSION], *b = is->part[TOP_VERSION];

    return cli_integer(a, "pid") == cli_integer(b, "pid") &&
           cli_integer(a, "uptime") <= cli_integer(b, "uptime") && is->when > was->when;
}

/* Removes the last peers, MIN_PEERS stay, so that the body fits into `lines` lines. */
static void cut_peers(struct top_text *t, size_t first, size_t end, int lines)
{
    size_t body = t->n - TOP_HEAD, cut = body > (size_t)lines ? body - (size_t)lines : 0;
    size_t spare = end - first > MIN_PEERS ? end - first - MIN_PEERS : 0;

    cut = cut < spare ? cut : spare;
    memmove(&t->row[end - cut], &t->row[end], (t->n - end) * sizeof(*t->row));
    t->n -= cut;
}

static void put_traffic(const struct frame *f, const char *sort, int lines)
{
    size_t peers, end;

    put_reactors(f);
    put_nis(f);
    peers = f->t->n + 1; /* behind the title */
    put_peers(f, sort);
    end = f->t->n;
    put_pools(f);
    put_drops(f);
    cut_peers(f->t, peers, end, lines < 0 ? 0 : lines);
}

static void put_health(const struct frame *f)
{
    put_ni_health(f);
    put_resends(f);
    put_peer_health(f);
}

void top_frame(struct top_text *t, enum top_page page, const struct top_sample *before,
               const struct top_sample *now, const char *sort, int lines, int cols)
{
    struct frame f = {t, before && same_process(before, now) ? before : NULL, now, NAN};

    t->cols = cols;
    if (f.was)
        f.seconds = now->when - before->when;
    put_head(&f);
    if (page == TOP_PAGE_HEALTH)
        put_health(&f);
    else
        put_traffic(&f, sort, lines);
}
