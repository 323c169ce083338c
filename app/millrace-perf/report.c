/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is printed: a line of progress per interval, and at the end the results for people or as one
 * JSON object. The verdict is made here, in verdict(), and nowhere else.
 */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define TROUBLE_MAX 1024

struct report {
    struct perf *perf;
    struct reactor_timer timer;
    uint64_t last_ns;
    uint64_t last_messages, last_bytes;
};

static const char *const op_name[OP_KINDS] = {"put", "get"};

/* ---- progress ---- */

struct totals {
    uint64_t messages, bytes, bad;
};

static void totals_of_client(const struct client *c, struct totals *t)
{
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const struct op_counters *o = client_counters(c, kind);
        t->messages += counter_get(&o->done);
        t->bytes += counter_get(&o->bytes);
        t->bad += counter_get(&o->altered) + counter_get(&o->lost) + counter_get(&o->failed);
    }
}

static void totals_of_server(const struct server *s, struct totals *t)
{
    const struct server_counters *c = server_counters(s);

    t->messages += counter_get(&c->puts) + counter_get(&c->gets);
    t->bytes += counter_get(&c->put_bytes) + counter_get(&c->get_bytes);
    t->bad += counter_get(&c->bad_checksum) + counter_get(&c->cut) + counter_get(&c->repeated) +
              counter_get(&c->rx_failed);
}

static void progress_line(struct report *r)
{
    struct perf *p = r->perf;
    struct totals t = {0};
    uint64_t now = perf_now_ns();
    double span = (double)(now - r->last_ns) / 1e9;

    if (p->client != NULL)
        totals_of_client(p->client, &t);
    if (p->server != NULL)
        totals_of_server(p->server, &t);
    if (p->pinger != NULL)
        t.messages = ping_results(p->pinger)->answered;
    fprintf(p->progress, "%7.1f s  %10.0f messages/s  %10.2f MB/s  %llu bad\n",
            (double)(now - p->start_ns) / 1e9, (double)(t.messages - r->last_messages) / span,
            (double)(t.bytes - r->last_bytes) / span / 1e6, (unsigned long long)t.bad);
    fflush(p->progress);
    r->last_ns = now;
    r->last_messages = t.messages;
    r->last_bytes = t.bytes;
}

static void progress_tick(struct reactor_timer *timer)
{
    struct report *r = PERF_OUTER(timer, struct report, timer);

    reactor_timer_arm(&r->timer, r->perf->opts.interval_us);
    progress_line(r);
}

void report_begin(struct perf *p)
{
    struct report *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return; /* no progress is shown; the results are */
    p->report = r;
    r->perf = p;
    r->last_ns = p->start_ns;
    reactor_timer_init(&r->timer, progress_tick);
    if (p->opts.interval_us != 0)
        reactor_timer_arm(&r->timer, p->opts.interval_us);
}

void report_end(struct perf *p)
{
    if (p->report != NULL)
        reactor_timer_cancel(&p->report->timer);
}

void report_free(struct report *r)
{
    free(r);
}

/* ---- verdict ---- */

struct verdict {
    bool ok;
    uint64_t duplicates; /* answers to nothing we wait for, beyond those that came late */
    char why[TROUBLE_MAX];
};

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

static void judge_client(struct verdict *v, const struct client_results *r, const uint64_t *drops)
{
    uint64_t answers = drops[LNET_DROP_ACK_NO_MATCH] + drops[LNET_DROP_REPLY_NO_MATCH];
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

static void judge_server(struct verdict *v, const struct server *s)
{
    const struct server_counters *c = server_counters(s);

    trouble_count(v, c->bad_checksum, "received PUTs altered");
    trouble_count(v, c->cut, "received PUTs cut short");
    trouble_count(v, c->repeated, "PUTs received twice");
    trouble_count(v, c->stale, "PUTs received too late to be judged");
    trouble_count(v, c->rx_failed, "PUTs broken off");
    trouble_count(v, c->gets_failed, "REPLYs not sent");
    trouble_count(v, c->not_posted, "buffers lost");
    trouble_count(v, c->untracked, "PUTs of too many clients, not counted per run");
    trouble_count(v, server_missing(s), "PUTs missing");
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

static void verdict(const struct perf *p, const uint64_t *drops, struct verdict *v)
{
    *v = (struct verdict){.ok = true};
    if (p->client != NULL)
        judge_client(v, client_results(p->client), drops);
    if (p->server != NULL)
        judge_server(v, p->server);
    if (p->pinger != NULL)
        judge_ping(v, ping_results(p->pinger));
}

/* ---- for people ---- */

static double seconds_of(const struct client_results *r)
{
    return (double)(r->end_ns - r->start_ns) / 1e9;
}

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static double us(uint64_t ns)
{
    return (double)ns / 1e3;
}

static void print_op(const struct client_results *r, int kind)
{
    const struct op_counters *o = &r->op[kind];
    const struct hist *h = &r->rtt[kind];
    double s = seconds_of(r);

    if (o->sent + o->failed == 0)
        return;
    printf("%s: %llu sent, %llu answered, %llu lost, %llu altered, %llu not sent, %llu given up\n",
           op_name[kind], (unsigned long long)o->sent, (unsigned long long)o->done,
           (unsigned long long)o->lost, (unsigned long long)o->altered,
           (unsigned long long)o->failed, (unsigned long long)o->unfinished);
    printf("     %.0f messages/s, %.2f MB/s over %.2f s; answered after min %.0f, mean %.0f, "
           "p50 %.0f, p99 %.0f, max %.0f us\n",
           rate((double)o->done, s), rate((double)o->bytes, s) / 1e6, s, us(h->min),
           hist_mean(h) / 1e3, us(hist_quantile(h, 0.5)), us(hist_quantile(h, 0.99)), us(h->max));
}

static void print_client(const struct client_results *r)
{
    for (int kind = 0; kind < OP_KINDS; kind++)
        print_op(r, kind);
    if (r->have_report)
        printf("receiver: %llu PUTs, %llu bytes, %llu checked; %llu altered, %llu twice, "
               "%llu missing\n",
               (unsigned long long)r->report.received, (unsigned long long)r->report.bytes,
               (unsigned long long)r->report.checked, (unsigned long long)r->report.bad_checksum,
               (unsigned long long)r->report.repeated, (unsigned long long)r->report.missing);
}

static void print_server(const struct server *s)
{
    const struct server_counters *c = server_counters(s);

    printf("server: %llu PUTs, %llu bytes, %llu checked; %llu altered, %llu cut, %llu twice, "
           "%llu missing, %llu broken off\n        %llu GETs, %llu bytes, %llu not sent\n",
           (unsigned long long)c->puts, (unsigned long long)c->put_bytes,
           (unsigned long long)c->checked, (unsigned long long)c->bad_checksum,
           (unsigned long long)c->cut, (unsigned long long)c->repeated,
           (unsigned long long)server_missing(s), (unsigned long long)c->rx_failed,
           (unsigned long long)c->gets, (unsigned long long)c->get_bytes,
           (unsigned long long)c->gets_failed);
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

static void print_drops(FILE *f, const uint64_t *drops)
{
    for (int i = 1; i < LNET_DROP_COUNT; i++)
        if (drops[i] > 0)
            fprintf(f, "dropped here: %llu %s: %s\n", (unsigned long long)drops[i],
                    lnet_drop_info((enum lnet_drop)i)->name,
                    lnet_drop_info((enum lnet_drop)i)->text);
}

static void print_human(const struct perf *p, const uint64_t *drops, const struct verdict *v)
{
    if (p->pinger != NULL)
        print_ping(p, ping_results(p->pinger));
    if (p->client != NULL)
        print_client(client_results(p->client));
    if (p->server != NULL)
        print_server(p->server);
    print_drops(p->pinger != NULL ? stderr : stdout, drops);
    if (!v->ok)
        fprintf(stderr, "FAILED: %s\n", v->why);
}

/* ---- for programs ---- */

static json_t *json_count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *json_hist(const struct hist *h)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "min", us(h->min), "mean", hist_mean(h) / 1e3,
                     "p50", us(hist_quantile(h, 0.5)), "p99", us(hist_quantile(h, 0.99)), "max",
                     us(h->max));
}

static json_t *json_op(const struct client_results *r, int kind)
{
    const struct op_counters *o = &r->op[kind];
    double s = seconds_of(r);

    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:o}", "sent", json_count(o->sent),
        "answered", json_count(o->done), "bytes", json_count(o->bytes), "lost", json_count(o->lost),
        "altered", json_count(o->altered), "not_sent", json_count(o->failed), "unfinished",
        json_count(o->unfinished), "messages_per_second", rate((double)o->done, s),
        "bytes_per_second", rate((double)o->bytes, s), "round_trip_us", json_hist(&r->rtt[kind]));
}

static json_t *json_receiver(const struct run_report *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "received",
                     json_count(r->received), "bytes", json_count(r->bytes), "checked",
                     json_count(r->checked), "bad_checksum", json_count(r->bad_checksum), "cut",
                     json_count(r->cut), "repeated", json_count(r->repeated), "stale",
                     json_count(r->stale), "missing", json_count(r->missing));
}

static void json_client(json_t *root, const struct perf *p, const struct verdict *v)
{
    const struct client_results *r = client_results(p->client);
    char nid[LNET_NIDSTR_SIZE];

    json_object_set_new(root, "target", json_string(nid_format(&p->opts.target, nid)));
    json_object_set_new(root, "size", json_string(p->opts.sizes.text));
    json_object_set_new(root, "inflight", json_count(p->opts.inflight));
    json_object_set_new(root, "verify", json_string(p->opts.verify ? "full" : "none"));
    json_object_set_new(root, "seconds", json_real(seconds_of(r)));
    json_object_set_new(root, "interrupted", json_boolean(r->interrupted));
    for (int kind = 0; kind < OP_KINDS; kind++)
        if (r->op[kind].sent + r->op[kind].failed > 0)
            json_object_set_new(root, op_name[kind], json_op(r, kind));
    json_object_set_new(root, "answered_twice", json_count(v->duplicates));
    if (r->have_report)
        json_object_set_new(root, "receiver", json_receiver(&r->report));
}

static json_t *json_server(const struct server *s)
{
    const struct server_counters *c = server_counters(s);

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "puts",
                     json_count(c->puts), "put_bytes", json_count(c->put_bytes), "checked",
                     json_count(c->checked), "bad_checksum", json_count(c->bad_checksum), "cut",
                     json_count(c->cut), "repeated", json_count(c->repeated), "stale",
                     json_count(c->stale), "missing", json_count(server_missing(s)), "rx_failed",
                     json_count(c->rx_failed), "untracked", json_count(c->untracked), "gets",
                     json_count(c->gets), "get_bytes", json_count(c->get_bytes), "gets_failed",
                     json_count(c->gets_failed));
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

static json_t *json_drops(const uint64_t *drops)
{
    json_t *o = json_object();

    for (int i = 1; i < LNET_DROP_COUNT; i++)
        if (drops[i] > 0)
            json_object_set_new(o, lnet_drop_info((enum lnet_drop)i)->name, json_count(drops[i]));
    return o;
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void print_json(const struct perf *p, const uint64_t *drops, const struct verdict *v)
{
    json_t *root = json_pack("{s:s, s:s, s:s}", "program", "millrace-perf", "version",
                             MILLRACE_VERSION, "command", p->opts.command_name);

    if (p->client != NULL)
        json_client(root, p, v);
    if (p->server != NULL)
        json_object_set_new(root, "server", json_server(p->server));
    if (p->pinger != NULL)
        json_object_set_new(root, "ping", json_ping(p, ping_results(p->pinger)));
    json_object_set_new(root, "drops", json_drops(drops));
    json_object_set_new(root, "cpu_seconds", json_real(cpu_seconds()));
    json_object_set_new(root, "ok", json_boolean(v->ok));
    json_object_set_new(root, "trouble", json_string(v->why));
    json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(root);
}

int report_final(struct perf *p)
{
    uint64_t drops[LNET_DROP_COUNT];
    struct verdict v;

    lnet_drops_get(p->node, drops);
    verdict(p, drops, &v);
    if (p->opts.json)
        print_json(p, drops, &v);
    else
        print_human(p, drops, &v);
    fflush(stdout);
    return v.ok ? PERF_EXIT_OK : PERF_EXIT_FAILED;
}
