/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports: a line per interval, or one line that is overwritten on a terminal; the file of --csv;
 * and at the end the results, for people or as one JSON object. Only verdict() decides
 * whether a run was good.
 */
#include "app/millrace-perf/perf.h"
#include "lib/base/version.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct report {
    struct perf *perf;
    struct reactor_timer timer; /* of a server, a pinger */
    uint64_t last_ns;
    uint64_t last_messages, last_bytes;
    uint64_t bad; /* of the intervals so far */
    FILE *csv;
    bool terminal; /* one line, written over */
    bool shown;    /* there is such a line now */
};

static const char *const op_name[OP_KINDS] = {"put", "get"};

static double run_seconds(const struct load_results *r)
{
    return (double)(r->end_ns - r->start_ns) / 1e9;
}

static double per_second(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static double us_of(uint64_t ns)
{
    return (double)ns / 1e3;
}

struct verdict {
    bool ok;
    uint64_t duplicates; /* answers to nothing we wait for, beyond those that came late */
    char why[1024];
};

/* A counter of a result, a uint64_t. Tables end with a row of zeros. */
struct figure {
    const char *key; /* in JSON; NULL: only in the verdict */
    size_t offset;
    const char *words; /* behind the number in the text; NULL: not there */
    const char *wrong; /* behind the number in the verdict, unless it is 0; NULL: not there */
};

#define OP(field)       offsetof(struct op_counters, field)
#define RECEIVER(field) offsetof(struct run_report, field)
#define SERVER(field)   offsetof(struct server_counters, field)

static const struct figure op_figures[] = {
    {"sent", OP(sent), " sent, "},
    {"answered", OP(done), " answered, "},
    {"bytes", OP(bytes)},
    {"lost", OP(lost), " lost, ", "lost"},
    {"altered", OP(altered), " altered, ", "altered"},
    {"not_sent", OP(failed), " not sent, ", "not sent"},
    {"unfinished", OP(unfinished), " given up\n"},
    {NULL},
};

static const struct figure receiver_figures[] = {
    {"received", RECEIVER(received), " PUTs, "},
    {"bytes", RECEIVER(bytes), " bytes, "},
    {"checked", RECEIVER(checked), " checked; "},
    {"bad_checksum", RECEIVER(bad_checksum), " altered, ", "altered on the way to the receiver"},
    {"cut", RECEIVER(cut), NULL, "cut short at the receiver"},
    {"repeated", RECEIVER(repeated), " twice, ", "reached the receiver twice"},
    {"stale", RECEIVER(stale), NULL, "too late to be judged"},
    {"missing", RECEIVER(missing), " missing\n", "never reached the receiver"},
    {NULL},
};

static const struct figure server_figures[] = {
    {"puts", SERVER(puts), " PUTs, "},
    {"put_bytes", SERVER(put_bytes), " bytes, "},
    {"checked", SERVER(checked), " checked; "},
    {"bad_checksum", SERVER(bad_checksum), " altered, ", "received PUTs altered"},
    {"cut", SERVER(cut), " cut, ", "received PUTs cut short"},
    {"repeated", SERVER(repeated), " twice, ", "PUTs received twice"},
    {"stale", SERVER(stale), NULL, "PUTs received too late to be judged"},
    {"missing", SERVER(missing), " missing, ", "PUTs missing"},
    {"rx_failed", SERVER(rx_failed), " broken off\n        ", "PUTs broken off"},
    {"untracked", SERVER(untracked), NULL, "PUTs of too many clients, not counted per run"},
    {"gets", SERVER(gets), " GETs, "},
    {"get_bytes", SERVER(get_bytes), " bytes, "},
    {"gets_failed", SERVER(gets_failed), " not sent\n", "REPLYs not sent"},
    {NULL, SERVER(not_posted), NULL, "buffers lost"},
    {NULL},
};

static uint64_t figure_of(const struct figure *figure, const void *counters)
{
    return *(const uint64_t *)(const void *)((const char *)counters + figure->offset);
}

/* Fills *out with the counters of the server, also `missing`. False: this process is no server. */
static bool server_results(const struct perf_engine *e, struct server_counters *out)
{
    const struct server_counters *served = e->ops->served(e);

    if (!served)
        return false;
    *out = *served;
    out->missing = e->ops->missing(e);
    return true;
}

/* ---- progress ---- */

static void line_end(struct report *r)
{
    r->shown = r->terminal;
    if (!r->terminal)
        fputc('\n', r->perf->progress);
    fflush(r->perf->progress);
}

static void line_begin(struct report *r, uint64_t when_ns, double messages, double bytes,
                       uint64_t bad)
{
    FILE *f = r->perf->progress;

    if (r->terminal)
        fprintf(f, "\r\x1b[K");
    fprintf(f, "%7.1f s  %10.0f messages/s  %10.2f MB/s  %" PRIu64 " bad", (double)when_ns / 1e9,
            messages, bytes / 1e6, bad);
}

/* Prints the counts of a server or a pinger since the last line. */
static void progress_tick(struct reactor_timer *timer)
{
    struct report *r = container_of(timer, struct report, timer);
    struct perf *p = r->perf;
    const struct server_counters *served = p->engine->ops->served(p->engine);
    uint64_t now = perf_now_ns();
    double span = (double)(now - r->last_ns) / 1e9;
    uint64_t messages = 0, bytes = 0, bad = 0;

    reactor_timer_arm(&r->timer, p->opts.interval_us);
    if (p->load && !p->work_done)
        return; /* report_interval() tells */
    if (served) {
        messages = relaxed_load(&served->puts) + relaxed_load(&served->gets);
        bytes = relaxed_load(&served->put_bytes) + relaxed_load(&served->get_bytes);
        bad = relaxed_load(&served->bad_checksum) + relaxed_load(&served->cut) +
              relaxed_load(&served->repeated) + relaxed_load(&served->rx_failed);
    }
    if (p->pinger)
        messages = ping_results(p->pinger)->answered;
    line_begin(r, now - p->start_ns, (double)(messages - r->last_messages) / span,
               (double)(bytes - r->last_bytes) / span, bad);
    line_end(r);
    r->last_ns = now;
    r->last_messages = messages;
    r->last_bytes = bytes;
}

static void interval_line(struct report *r, const struct interval *iv)
{
    FILE *f = r->perf->progress;
    uint64_t messages = iv->counts.done[OP_PUT] + iv->counts.done[OP_GET];
    double s = interval_seconds(iv);

    line_begin(r, iv->to_ns, per_second((double)messages, s),
               per_second((double)iv->counts.bytes, s), r->bad);
    if (messages > 0)
        fprintf(f, "  p50 %.0f  p99 %.0f  max %.0f us", us_of(iv->quantile[0]),
                us_of(iv->quantile[2]), us_of(iv->quantile[HIST_POINTS - 1]));
    if (r->perf->opts.rate > 0)
        fprintf(f, "  %" PRIu64 " waiting", iv->counts.waiting);
    line_end(r);
}

void report_interval(struct perf *p)
{
    struct report *r = p->report;
    struct interval iv;

    while (load_interval(p->load, &iv)) {
        r->bad += iv.counts.bad;
        if (p->opts.lines || r->terminal)
            interval_line(r, &iv);
        if (r->csv) {
            csv_row(r->csv, &iv);
            fflush(r->csv); /* so that it can be followed */
        }
    }
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
    r->terminal = !p->opts.interval_set && isatty(fileno(p->progress));
    if (!p->opts.csv)
        return 0;
    r->csv = fopen(p->opts.csv, "we");
    if (!r->csv) {
        fprintf(stderr, "millrace-perf: cannot write %s: %s\n", p->opts.csv, strerror(errno));
        return -EIO;
    }
    csv_header(r->csv);
    return 0;
}

void report_begin(struct perf *p)
{
    struct report *r = p->report;

    r->last_ns = p->start_ns;
    if (p->opts.lines || r->terminal)
        reactor_timer_arm(&r->timer, p->opts.interval_us);
}

void report_end(struct perf *p)
{
    struct report *r = p->report;

    reactor_timer_cancel(&r->timer);
    if (r->shown)
        fprintf(p->progress, "\r\x1b[K");
    r->shown = false;
}

/* Closes the file of --csv. Returns whether all of it could be written. */
static bool csv_close(struct report *r)
{
    bool good = !r->csv || ferror(r->csv) == 0;

    if (r->csv && fclose(r->csv) != 0)
        good = false;
    r->csv = NULL;
    return good;
}

void report_free(struct report *r)
{
    if (r)
        csv_close(r);
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

static void trouble_figures(struct verdict *v, const struct figure *figure, const void *counters)
{
    for (; figure->key || figure->wrong; figure++)
        if (figure->wrong)
            trouble_count(v, figure_of(figure, counters), figure->wrong);
}

static void judge_load(struct verdict *v, const struct load_results *r, uint64_t answers)
{
    uint64_t late = r->pings_lost, done = 0;
    struct run_report report = r->report;

    if (r->trouble[0] != '\0')
        trouble(v, "%s", r->trouble);
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const struct op_counters *o = &r->op[kind];
        trouble_figures(v, op_figures, o);
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
    if (r->interrupted)
        report.missing = 0; /* messages were still on the way */
    if (r->have_report)
        trouble_figures(v, receiver_figures, &report);
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
    struct perf_engine_counters counters;
    struct server_counters served;

    e->ops->counters(e, &counters);
    *v = (struct verdict){.ok = true};
    if (p->load)
        judge_load(v, load_results(p->load), counters.unmatched);
    if (server_results(e, &served))
        trouble_figures(v, server_figures, &served);
    if (p->pinger)
        judge_ping(v, ping_results(p->pinger));
    trouble_count(v, counters.failed_peers, "simulated peers gave up");
    trouble_count(v, counters.broken_input, "received messages broke the protocol");
}

/* ---- for people ---- */

static void print_figures(const struct figure *figure, const void *counters)
{
    for (; figure->key; figure++)
        if (figure->words)
            printf("%" PRIu64 "%s", figure_of(figure, counters), figure->words);
}

static void print_quantiles(const char *what, const struct hist *h)
{
    printf("     %s (us): min %.1f, mean %.1f", what, us_of(h->min), hist_mean(h) / 1e3);
    for (unsigned i = 0; i < HIST_POINTS; i++)
        printf(", %s %.1f", hist_points[i].text, us_of(hist_quantile(h, hist_points[i].fraction)));
    printf("\n");
}

static void print_op(const struct perf *p, int kind)
{
    const struct load_results *r = load_results(p->load);
    const struct op_counters *o = &r->op[kind];
    double s = run_seconds(r);

    if (o->sent + o->failed == 0)
        return;
    printf("%s: ", op_name[kind]);
    print_figures(op_figures, o);
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

static void print_load(const struct perf *p)
{
    const struct load_results *r = load_results(p->load);
    uint64_t done = r->op[OP_PUT].done + r->op[OP_GET].done;

    if (r->interrupted)
        printf("interrupted: results so far\n");
    if (r->start_ns == 0)
        return;
    print_loop(p);
    for (int kind = 0; kind < OP_KINDS; kind++)
        print_op(p, kind);
    if (r->have_report) {
        printf("receiver: ");
        print_figures(receiver_figures, &r->report);
    }
    if (done > 0 && r->total_cycles > 0)
        printf("this process: %.0f cycles per message, its reactor busy for %.0f %%\n",
               (double)r->busy_cycles / (double)done,
               100.0 * (double)r->busy_cycles / (double)r->hz / run_seconds(r));
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
           (unsigned long long)r->sent, (unsigned long long)r->answered, us_of(r->rtt.min),
           hist_mean(&r->rtt) / 1e3, us_of(r->rtt.max));
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
    struct server_counters served;

    if (p->pinger)
        print_ping(p, ping_results(p->pinger));
    if (p->load)
        print_load(p);
    if (server_results(e, &served)) {
        printf("server: ");
        print_figures(server_figures, &served);
    }
    if (e->ops->figures)
        e->ops->figures(e, print_figure, stdout);
    e->ops->drops(e, print_drop, p->pinger ? stderr : stdout);
    if (!v->ok)
        fprintf(stderr, "FAILED: %s\n", v->why);
}

/* ---- for programs: times are in microseconds, but for `seconds` ---- */

static json_t *json_count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static void set_count(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void set_string(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

static json_t *json_figures(const struct figure *figure, const void *counters)
{
    json_t *o = json_object();

    for (; figure->key; figure++)
        set_count(o, figure->key, figure_of(figure, counters));
    return o;
}

static json_t *json_hist(const struct hist *h)
{
    json_t *o = json_pack("{s:o, s:f, s:f}", "count", json_count(h->count), "min", us_of(h->min),
                          "mean", hist_mean(h) / 1e3);

    for (unsigned i = 0; i < HIST_POINTS; i++)
        json_object_set_new(o, hist_points[i].name,
                            json_real(us_of(hist_quantile(h, hist_points[i].fraction))));
    return o;
}

static json_t *json_op(const struct load_results *r, int kind)
{
    const struct op_counters *counters = &r->op[kind];
    json_t *o = json_figures(op_figures, counters);
    double s = run_seconds(r);

    json_object_update_new(o, json_pack("{s:f, s:f, s:o}", "messages_per_second",
                                        per_second((double)counters->done, s), "bytes_per_second",
                                        per_second((double)counters->bytes, s), "round_trip_us",
                                        json_hist(&r->rtt[kind])));
    return o;
}

static void json_open_loop(json_t *root, const struct perf *p)
{
    const struct load_results *r = load_results(p->load);

    json_object_set_new(root, "rate", json_real(p->opts.rate));
    set_string(root, "arrivals", p->opts.arrivals == ARRIVALS_POISSON ? "poisson" : "fixed");
    json_object_set_new(root, "queue",
                        json_pack("{s:i, s:o, s:o, s:o}", "places", (int)p->opts.queue, "most",
                                  json_count(r->waiting_most), "overflowed",
                                  json_count(r->overflowed), "expired", json_count(r->expired)));
    json_object_set_new(root, "sent_late_us", json_hist(&r->wait));
}

/* The settings of the run, so that it can be repeated. */
static void json_settings(json_t *root, const struct perf *p)
{
    const struct perf_opts *o = &p->opts;
    json_t *targets = json_array();
    char nid[LNET_NIDSTR_SIZE], text[LNET_NIDSTR_SIZE + 16];

    set_string(root, "engine", p->engine->ops->name);
    set_string(root, "target", nid_format(&o->target, nid));
    for (unsigned i = 0; i < o->ntargets; i++) {
        snprintf(text, sizeof(text), "%s*%u", nid_format(&o->targets[i].first, nid),
                 o->targets[i].count);
        json_array_append_new(targets, json_string(o->targets[i].count == 1 ? nid : text));
    }
    json_object_set_new(root, "targets", targets);
    set_count(root, "sources", p->engine->sources);
    set_string(root, "order", o->random_order ? "random" : o->kept_order ? "kept" : "round-robin");
    set_string(root, "size", o->sizes.text);
    if (o->kinds.text)
        set_string(root, "mix", o->kinds.text);
    set_count(root, "inflight", o->inflight);
    snprintf(text, sizeof(text), "1/%u", o->verify_every);
    set_string(root, "verify", o->verify_every > 1 ? text : o->verify_every ? "full" : "none");
    set_count(root, "seed", o->seed);
    set_string(root, "loop", o->rate > 0 ? "open" : "closed");
    if (o->rate > 0)
        json_open_loop(root, p);
}

static json_t *json_reactor(const struct load_results *r)
{
    uint64_t done = r->op[OP_PUT].done + r->op[OP_GET].done;
    double s = run_seconds(r);

    return json_pack("{s:f, s:f, s:o}", "cycles_per_message",
                     per_second((double)r->busy_cycles, (double)done), "busy",
                     r->hz > 0 ? per_second((double)r->busy_cycles / (double)r->hz, s) : 0,
                     "cycles_per_second", json_count(r->hz));
}

/* How evenly the sources were served. Jain's index: 1 is evenly, 1/n is one alone. */
static json_t *json_sources(const struct load_results *r, uint32_t sources)
{
    uint64_t least = UINT64_MAX, most = 0;
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < sources; i++) {
        uint64_t n = r->source_bytes[i];

        least = n < least ? n : least;
        most = n > most ? n : most;
        sum += (double)n;
        squares += (double)n * (double)n;
    }
    return json_pack("{s:o, s:o, s:f}", "bytes_least", json_count(sources > 0 ? least : 0),
                     "bytes_most", json_count(most), "jain",
                     squares > 0 ? sum * sum / squares / sources : 0);
}

static void json_load(json_t *root, const struct perf *p, const struct verdict *v)
{
    const struct load_results *r = load_results(p->load);

    json_settings(root, p);
    json_object_set_new(root, "seconds", json_real(run_seconds(r)));
    json_object_set_new(root, "interrupted", json_boolean(r->interrupted));
    for (int kind = 0; kind < OP_KINDS; kind++)
        if (r->op[kind].sent + r->op[kind].failed > 0)
            json_object_set_new(root, op_name[kind], json_op(r, kind));
    set_count(root, "checked", r->checked);
    set_count(root, "answered_twice", v->duplicates);
    if (r->have_report)
        json_object_set_new(root, "receiver", json_figures(receiver_figures, &r->report));
    json_object_set_new(root, "source", json_sources(r, p->engine->sources));
    json_object_set_new(root, "reactor", json_reactor(r));
}

static json_t *json_ping(const struct perf *p, const struct ping_results *r)
{
    char nid[LNET_NIDSTR_SIZE];
    json_t *nids = json_array();

    for (uint32_t i = 0; r->have_info && i < r->info.count; i++)
        json_array_append_new(nids, json_string(nid_format(&r->info.ni[i].nid, nid)));
    return json_pack("{s:s, s:o, s:o, s:o, s:i, s:o}", "target", nid_format(&p->opts.target, nid),
                     "nids", nids, "sent", json_count(r->sent), "answered", json_count(r->answered),
                     "features", r->have_info ? (int)r->info.features : 0, "round_trip_us",
                     json_hist(&r->rtt));
}

static void json_row(void *arg, const char *name, const char *text, uint64_t value)
{
    set_count(arg, name, value);
}

static void json_engine(json_t *root, const struct perf_engine *e)
{
    json_t *drops = json_object(), *figures = json_object();

    e->ops->drops(e, json_row, drops);
    json_object_set_new(root, "drops", drops);
    if (e->ops->figures)
        e->ops->figures(e, json_row, figures);
    json_object_set_new(root, "figures", figures);
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void report_json(const struct perf *p, const struct verdict *v)
{
    const struct perf_engine *e = p->engine;
    struct server_counters served;
    json_t *root = json_pack("{s:s, s:s, s:s}", "program", "millrace-perf", "version",
                             MILLRACE_VERSION, "command", p->opts.command_name);

    if (p->load)
        json_load(root, p, v);
    if (server_results(e, &served))
        json_object_set_new(root, "server", json_figures(server_figures, &served));
    if (p->pinger)
        json_object_set_new(root, "ping", json_ping(p, ping_results(p->pinger)));
    json_engine(root, e);
    json_object_set_new(root, "cpu_seconds", json_real(cpu_seconds()));
    json_object_set_new(root, "ok", json_boolean(v->ok));
    set_string(root, "trouble", v->why);
    json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(root);
}

/* ---- the whole ---- */

int report_final(struct perf *p)
{
    struct verdict v;

    verdict(p, &v);
    if (p->load)
        report_interval(p);
    if (!csv_close(p->report))
        trouble(&v, "could not write all of %s", p->opts.csv);
    if (p->opts.json)
        report_json(p, &v);
    else
        print_human(p, &v);
    fflush(stdout);
    if (!v.ok)
        return PERF_EXIT_FAILED;
    return p->load && load_results(p->load)->interrupted ? PERF_EXIT_SIGNAL : PERF_EXIT_OK;
}
