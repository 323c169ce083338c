/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports: a line per interval, or one line that is overwritten on a terminal; the file of --csv;
 * and at the end the results for people (report_json.c: for programs). Only verdict() decides
 * whether a run was good.
 */
#include "app/millrace-perf/output.h"
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TERMINAL_US 1000000 /* between updates of the line on a terminal */

struct report {
    struct perf *perf;
    struct reactor_timer timer; /* of a server, a pinger */
    uint64_t last_ns;
    uint64_t last_messages, last_bytes;
    uint64_t bad; /* of the intervals so far */
    FILE *csv;
    bool terminal; /* one line, written over */
    bool lines;
    bool shown; /* there is such a line now */
};

const char *const op_name[OP_KINDS] = {"put", "get"};

double run_seconds(const struct load_results *r)
{
    return (double)(r->end_ns - r->start_ns) / 1e9;
}

double per_second(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static double us(uint64_t ns)
{
    return (double)ns / 1e3;
}

/* ---- progress ---- */

struct totals {
    uint64_t messages, bytes, bad;
};

static void totals_of_server(const struct server_counters *c, struct totals *t)
{
    t->messages += relaxed_load(&c->puts) + relaxed_load(&c->gets);
    t->bytes += relaxed_load(&c->put_bytes) + relaxed_load(&c->get_bytes);
    t->bad += relaxed_load(&c->bad_checksum) + relaxed_load(&c->cut) + relaxed_load(&c->repeated) +
              relaxed_load(&c->rx_failed);
}

static void line_begin(struct report *r)
{
    if (r->terminal)
        fprintf(r->perf->progress, "\r\x1b[K");
}

static void line_end(struct report *r)
{
    r->shown = r->terminal;
    if (!r->terminal)
        fputc('\n', r->perf->progress);
    fflush(r->perf->progress);
}

/* Prints the counts of a server or a pinger since the last line. */
static void progress_tick(struct reactor_timer *timer)
{
    struct report *r = container_of(timer, struct report, timer);
    struct perf *p = r->perf;
    const struct server_counters *served = p->engine->ops->served(p->engine);
    uint64_t every = p->opts.interval_us, now = perf_now_ns();
    double span = (double)(now - r->last_ns) / 1e9;
    struct totals t = {0};

    reactor_timer_arm(&r->timer, every != 0 ? every : TERMINAL_US);
    if (p->load && !p->work_done)
        return; /* report_interval() tells */
    if (served)
        totals_of_server(served, &t);
    if (p->pinger)
        t.messages = ping_results(p->pinger)->answered;
    line_begin(r);
    fprintf(p->progress, "%7.1f s  %10.0f messages/s  %10.2f MB/s  %" PRIu64 " bad",
            (double)(now - p->start_ns) / 1e9, (double)(t.messages - r->last_messages) / span,
            (double)(t.bytes - r->last_bytes) / span / 1e6, t.bad);
    line_end(r);
    r->last_ns = now;
    r->last_messages = t.messages;
    r->last_bytes = t.bytes;
}

static void interval_line(struct report *r, const struct interval *iv)
{
    FILE *f = r->perf->progress;
    uint64_t messages = iv->done[OP_PUT] + iv->done[OP_GET];
    double s = interval_seconds(iv);

    line_begin(r);
    fprintf(f, "%7.1f s  %10.0f messages/s  %10.2f MB/s  %" PRIu64 " bad", (double)iv->to_ns / 1e9,
            per_second((double)messages, s), per_second((double)iv->bytes, s) / 1e6, r->bad);
    if (messages > 0)
        fprintf(f, "  p50 %.0f  p99 %.0f  max %.0f us", us(iv->quantile[0]), us(iv->quantile[2]),
                us(iv->quantile[HIST_POINTS - 1]));
    if (r->perf->opts.rate > 0)
        fprintf(f, "  %" PRIu64 " waiting", iv->waiting);
    line_end(r);
}

void report_interval(struct perf *p)
{
    struct report *r = p->report;
    struct interval iv;

    while (load_interval(p->load, &iv)) {
        r->bad += iv.bad;
        if (r->lines || r->terminal)
            interval_line(r, &iv);
        if (r->csv) {
            csv_row(r->csv, &iv);
            fflush(r->csv); /* so that it can be followed */
        }
    }
}

static int file_open(const char *path, FILE **out)
{
    if (!path)
        return 0;
    *out = fopen(path, "we");
    if (*out)
        return 0;
    fprintf(stderr, "millrace-perf: cannot write %s: %s\n", path, strerror(errno));
    return -EIO;
}

int report_open(struct perf *p)
{
    struct report *r = calloc(1, sizeof(*r));

    if (!r) {
        fprintf(stderr, "millrace-perf: out of memory\n");
        return -ENOMEM;
    }
    p->report = r;
    r->perf = p;
    reactor_timer_init(&r->timer, progress_tick);
    r->lines = p->opts.interval_us != 0;
    r->terminal = !p->opts.interval_set && isatty(fileno(p->progress));
    if (file_open(p->opts.csv, &r->csv) != 0)
        return -EIO;
    if (r->csv)
        csv_header(r->csv);
    return 0;
}

void report_begin(struct perf *p)
{
    struct report *r = p->report;

    r->last_ns = p->start_ns;
    if (r->lines || r->terminal)
        reactor_timer_arm(&r->timer, r->lines ? p->opts.interval_us : TERMINAL_US);
}

void report_end(struct perf *p)
{
    struct report *r = p->report;

    reactor_timer_cancel(&r->timer);
    if (r->shown)
        fprintf(p->progress, "\r\x1b[K");
    r->shown = false;
}

void report_free(struct report *r)
{
    if (!r)
        return;
    if (r->csv)
        fclose(r->csv);
    free(r);
}

/* ---- verdict ---- */

__attribute__((format(printf, 2, 3))) static void trouble(struct verdict *v, const char *fmt, ...)
{
    size_t used = strlen(v->why);
    va_list ap;

    if (!v->ok && used + 3 < sizeof(v->why))
        used += (size_t)snprintf(v->why + used, sizeof(v->why) - used, "; ");
    v->ok = false;
    va_start(ap, fmt);
    vsnprintf(v->why + used, sizeof(v->why) - used, fmt, ap);
    va_end(ap);
}

static void trouble_count(struct verdict *v, uint64_t n, const char *what)
{
    if (n > 0)
        trouble(v, "%llu %s", (unsigned long long)n, what);
}

static void judge_load(struct verdict *v, const struct load_results *r, uint64_t answers)
{
    uint64_t late = r->pings_lost, done = 0;

    if (r->trouble[0] != '\0')
        trouble(v, "%s", r->trouble);
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const struct op_counters *o = &r->op[kind];
        trouble_count(v, o->lost, "lost");
        trouble_count(v, o->failed, "not sent");
        trouble_count(v, o->altered, "altered");
        late += o->lost + o->unfinished;
        done += o->done;
    }
    if (r->expired > 0)
        trouble(v, "%llu of these waited for the whole timeout", (unsigned long long)r->expired);
    if (r->overflowed > 0)
        trouble(v, "%llu did not fit into the queue, since %.3f s, and are in no figure",
                (unsigned long long)r->overflowed, (double)r->overflow_ns / 1e9);
    v->duplicates = answers > late ? answers - late : 0;
    trouble_count(v, v->duplicates, "answers came twice");
    if (done == 0 && !r->interrupted)
        trouble(v, "no message got through");
    if (r->want_report && !r->have_report && !r->interrupted)
        trouble(v, "the receiver did not say what it got");
    if (!r->have_report)
        return;
    trouble_count(v, r->report.bad_checksum, "altered on the way to the receiver");
    trouble_count(v, r->report.cut, "cut short at the receiver");
    trouble_count(v, r->report.repeated, "reached the receiver twice");
    trouble_count(v, r->report.stale, "too late to be judged");
    if (!r->interrupted)
        trouble_count(v, r->report.missing, "never reached the receiver");
}

static void judge_server(struct verdict *v, const struct server_counters *c, uint64_t missing)
{
    trouble_count(v, c->bad_checksum, "received PUTs altered");
    trouble_count(v, c->cut, "received PUTs cut short");
    trouble_count(v, c->repeated, "PUTs received twice");
    trouble_count(v, c->stale, "PUTs received too late to be judged");
    trouble_count(v, c->rx_failed, "PUTs broken off");
    trouble_count(v, c->gets_failed, "REPLYs not sent");
    trouble_count(v, c->not_posted, "buffers lost");
    trouble_count(v, c->untracked, "PUTs of too many clients, not counted per run");
    trouble_count(v, missing, "PUTs missing");
}

static void judge_ping(struct verdict *v, const struct ping_results *r)
{
    if (r->answered < r->sent)
        trouble(v, "%llu of %llu pings unanswered (%s)",
                (unsigned long long)(r->sent - r->answered), (unsigned long long)r->sent,
                strerror(-r->last_error));
    else if (r->answered == 0)
        trouble(v, "no ping was answered");
}

static void verdict(const struct perf *p, struct verdict *v)
{
    const struct perf_engine *e = p->engine;
    const struct server_counters *served = e->ops->served(e);
    struct perf_engine_counters counters;

    e->ops->counters(e, &counters);
    *v = (struct verdict){.ok = true};
    if (p->load)
        judge_load(v, load_results(p->load), counters.unmatched);
    if (served)
        judge_server(v, served, e->ops->missing(e));
    if (p->pinger)
        judge_ping(v, ping_results(p->pinger));
    trouble_count(v, counters.failed_peers, "simulated peers gave up");
    trouble_count(v, counters.broken_input, "received messages broke the protocol");
}

/* ---- for people ---- */

static void print_quantiles(const char *what, const struct hist *h)
{
    printf("     %s (us): min %.1f, mean %.1f", what, us(h->min), hist_mean(h) / 1e3);
    for (unsigned i = 0; i < HIST_POINTS; i++)
        printf(", %s %.1f", hist_points[i].text, us(hist_quantile(h, hist_points[i].fraction)));
    printf("\n");
}

static void print_op(const struct perf *p, int kind)
{
    const struct load_results *r = load_results(p->load);
    const struct op_counters *o = &r->op[kind];
    double s = run_seconds(r);

    if (o->sent + o->failed == 0)
        return;
    printf("%s: %llu sent, %llu answered, %llu lost, %llu altered, %llu not sent, %llu given up\n",
           op_name[kind], (unsigned long long)o->sent, (unsigned long long)o->done,
           (unsigned long long)o->lost, (unsigned long long)o->altered,
           (unsigned long long)o->failed, (unsigned long long)o->unfinished);
    printf("     %.0f messages/s, %.2f MB/s over %.2f s\n", per_second((double)o->done, s),
           per_second((double)o->bytes, s) / 1e6, s);
    if (o->done > 0)
        print_quantiles(p->opts.rate > 0 ? "answered after it was due" : "answered after sending",
                        &r->rtt[kind]);
}

static void print_loop(const struct perf *p)
{
    const struct perf_opts *o = &p->opts;
    const struct load_results *r = load_results(p->load);

    if (o->rate == 0) {
        printf(
            "closed loop: %u on the way, the next when one is answered (a router that stands still "
            "is asked less)\n",
            o->inflight);
        return;
    }
    printf("open loop: %.10g messages/s due, %s, seed %llu; at most %llu waited at once%s\n",
           o->rate, o->arrivals == ARRIVALS_POISSON ? "at random (Poisson)" : "evenly",
           (unsigned long long)o->seed, (unsigned long long)r->waiting_most,
           r->overflowed > 0 ? ", and more found the queue full" : "");
    if (r->wait.count > 0)
        print_quantiles("sent after it was due", &r->wait);
}

static void print_cost(const struct load_results *r)
{
    uint64_t done = r->op[OP_PUT].done + r->op[OP_GET].done;

    if (done > 0 && r->total_cycles > 0)
        printf("this process: %.0f cycles per message, its reactor busy for %.0f %%\n",
               (double)r->busy_cycles / (double)done,
               100.0 * (double)r->busy_cycles / (double)r->hz / run_seconds(r));
}

static void print_load(const struct perf *p)
{
    const struct load_results *r = load_results(p->load);

    if (r->interrupted)
        printf("interrupted: results so far\n");
    if (r->start_ns == 0)
        return;
    print_loop(p);
    for (int kind = 0; kind < OP_KINDS; kind++)
        print_op(p, kind);
    if (r->have_report)
        printf("receiver: %llu PUTs, %llu bytes, %llu checked; %llu altered, %llu twice, "
               "%llu missing\n",
               (unsigned long long)r->report.received, (unsigned long long)r->report.bytes,
               (unsigned long long)r->report.checked, (unsigned long long)r->report.bad_checksum,
               (unsigned long long)r->report.repeated, (unsigned long long)r->report.missing);
    print_cost(r);
}

static void print_server(const struct server_counters *c, uint64_t missing)
{
    printf("server: %llu PUTs, %llu bytes, %llu checked; %llu altered, %llu cut, %llu twice, "
           "%llu missing, %llu broken off\n        %llu GETs, %llu bytes, %llu not sent\n",
           (unsigned long long)c->puts, (unsigned long long)c->put_bytes,
           (unsigned long long)c->checked, (unsigned long long)c->bad_checksum,
           (unsigned long long)c->cut, (unsigned long long)c->repeated, (unsigned long long)missing,
           (unsigned long long)c->rx_failed, (unsigned long long)c->gets,
           (unsigned long long)c->get_bytes, (unsigned long long)c->gets_failed);
}

/* As lnetctl prints it, docs/protocol/lnet-core.md §10.6, with the times added. */
static void print_ping(const struct perf *p, const struct ping_results *r)
{
    char nid[LNET_NIDSTR_SIZE];
    struct lnet_nid primary;

    if (!r->have_info) {
        printf(
            "manage:\n    - ping:\n          errno: %d\n          descr: \"failed to ping %s\"\n",
            r->last_error, nid_format(&p->opts.target, nid));
        return;
    }
    if (!lnet_ping_primary(&r->info, &primary))
        primary = p->opts.target;
    printf("ping:\n    - primary nid: %s\n", nid_format(&primary, nid));
    printf("      Multi-Rail: %s\n", r->info.features & LNET_PING_MULTI_RAIL ? "true" : "false");
    printf("      peer_ni:\n");
    for (uint32_t i = 0; i < r->info.count; i++)
        printf("        - nid: %s\n", nid_format(&r->info.ni[i].nid, nid));
    printf("      round trip us: {sent: %llu, answered: %llu, min: %.0f, mean: %.0f, max: %.0f}\n",
           (unsigned long long)r->sent, (unsigned long long)r->answered, us(r->rtt.min),
           hist_mean(&r->rtt) / 1e3, us(r->rtt.max));
}

static void print_drop(void *arg, const char *name, const char *text, uint64_t value)
{
    fprintf(arg, "dropped here: %llu %s: %s\n", (unsigned long long)value, name, text);
}

static void print_figure(void *arg, const char *name, const char *text, uint64_t value)
{
    fprintf(arg, "%s: %llu (%s)\n", name, (unsigned long long)value, text);
}

static void print_human(const struct perf *p, const struct verdict *v)
{
    const struct perf_engine *e = p->engine;
    const struct server_counters *served = e->ops->served(e);

    if (p->pinger)
        print_ping(p, ping_results(p->pinger));
    if (p->load)
        print_load(p);
    if (served)
        print_server(served, e->ops->missing(e));
    if (e->ops->figures)
        e->ops->figures(e, print_figure, stdout);
    e->ops->drops(e, print_drop, p->pinger ? stderr : stdout);
    if (!v->ok)
        fprintf(stderr, "FAILED: %s\n", v->why);
}

/* ---- the whole ---- */

/* The file, once: whether all of it could be written. */
static void file_close(FILE **f, const char *path, struct verdict *v)
{
    bool bad;

    if (!*f)
        return;
    bad = ferror(*f) != 0;
    bad |= fclose(*f) != 0;
    *f = NULL;
    if (bad)
        trouble(v, "could not write all of %s", path);
}

static int exit_code(const struct perf *p, const struct verdict *v)
{
    if (!v->ok)
        return PERF_EXIT_FAILED;
    return p->load && load_results(p->load)->interrupted ? PERF_EXIT_SIGNAL : PERF_EXIT_OK;
}

int report_final(struct perf *p)
{
    struct report *r = p->report;
    struct verdict v;

    verdict(p, &v);
    if (p->load)
        report_interval(p);
    file_close(&r->csv, p->opts.csv, &v);
    if (p->opts.json)
        report_json(p, &v);
    else
        print_human(p, &v);
    fflush(stdout);
    return exit_code(p, &v);
}
