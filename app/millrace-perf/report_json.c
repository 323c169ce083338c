/* SPDX-License-Identifier: BSD-3-Clause */
/* The results as one JSON object. Times are in microseconds, but for `seconds`. */
#include "app/millrace-perf/perf.h"

#include <jansson.h>
#include <sys/resource.h>

static double us(uint64_t ns)
{
    return (double)ns / 1e3;
}

static json_t *json_count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *json_hist(const struct hist *h)
{
    json_t *o = json_pack("{s:o, s:f, s:f}", "count", json_count(h->count), "min", us(h->min),
                          "mean", hist_mean(h) / 1e3);

    for (unsigned i = 0; i < HIST_POINTS; i++)
        json_object_set_new(o, hist_points[i].name,
                            json_real(us(hist_quantile(h, hist_points[i].fraction))));
    return o;
}

static json_t *json_op(const struct load_results *r, int kind)
{
    const struct op_counters *o = &r->op[kind];
    double s = run_seconds(r);

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:o}", "sent",
                     json_count(o->sent), "answered", json_count(o->done), "bytes",
                     json_count(o->bytes), "lost", json_count(o->lost), "altered",
                     json_count(o->altered), "not_sent", json_count(o->failed), "unfinished",
                     json_count(o->unfinished), "messages_per_second",
                     per_second((double)o->done, s), "bytes_per_second",
                     per_second((double)o->bytes, s), "round_trip_us", json_hist(&r->rtt[kind]));
}

static json_t *json_receiver(const struct run_report *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "received",
                     json_count(r->received), "bytes", json_count(r->bytes), "checked",
                     json_count(r->checked), "bad_checksum", json_count(r->bad_checksum), "cut",
                     json_count(r->cut), "repeated", json_count(r->repeated), "stale",
                     json_count(r->stale), "missing", json_count(r->missing));
}

static void json_open_loop(json_t *root, const struct perf *p)
{
    const struct load_results *r = load_results(p->load);

    json_object_set_new(root, "rate", json_real(p->opts.rate));
    json_object_set_new(root, "arrivals",
                        json_string(p->opts.arrivals == ARRIVALS_POISSON ? "poisson" : "fixed"));
    json_object_set_new(root, "queue",
                        json_pack("{s:i, s:o, s:o, s:o}", "places", (int)p->opts.queue, "most",
                                  json_count(r->waiting_most), "overflowed",
                                  json_count(r->overflowed), "expired", json_count(r->expired)));
    json_object_set_new(root, "sent_late_us", json_hist(&r->wait));
}

static void json_verify(json_t *root, unsigned every)
{
    char text[32];

    snprintf(text, sizeof(text), "1/%u", every);
    json_object_set_new(root, "verify",
                        json_string(every == 0   ? "none"
                                    : every == 1 ? "full"
                                                 : text));
}

/* The settings of the run, so that it can be repeated. */
static void json_settings(json_t *root, const struct perf *p)
{
    const struct perf_opts *o = &p->opts;
    json_t *targets = json_array();
    char nid[LNET_NIDSTR_SIZE], text[LNET_NIDSTR_SIZE + 16];

    json_object_set_new(root, "engine", json_string(p->engine->ops->name));
    json_object_set_new(root, "target", json_string(nid_format(&o->target, nid)));
    for (unsigned i = 0; i < o->ntargets; i++) {
        snprintf(text, sizeof(text), "%s*%u", nid_format(&o->targets[i].first, nid),
                 o->targets[i].count);
        json_array_append_new(targets, json_string(o->targets[i].count == 1 ? nid : text));
    }
    json_object_set_new(root, "targets", targets);
    json_object_set_new(root, "sources", json_count(p->engine->sources));
    json_object_set_new(root, "order",
                        json_string(o->random_order ? "random"
                                    : o->kept_order ? "kept"
                                                    : "round-robin"));
    json_object_set_new(root, "size", json_string(o->sizes.text));
    if (o->kinds.text)
        json_object_set_new(root, "mix", json_string(o->kinds.text));
    json_object_set_new(root, "inflight", json_count(o->inflight));
    json_verify(root, o->verify_every);
    json_object_set_new(root, "seed", json_count(o->seed));
    json_object_set_new(root, "loop", json_string(o->rate > 0 ? "open" : "closed"));
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
static json_t *json_sources(const struct load_results *r)
{
    uint64_t least = UINT64_MAX, most = 0;
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < r->sources; i++) {
        uint64_t n = r->source_bytes[i];

        least = n < least ? n : least;
        most = n > most ? n : most;
        sum += (double)n;
        squares += (double)n * (double)n;
    }
    return json_pack("{s:o, s:o, s:f}", "bytes_least", json_count(r->sources > 0 ? least : 0),
                     "bytes_most", json_count(most), "jain",
                     squares > 0 ? sum * sum / squares / r->sources : 0);
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
    json_object_set_new(root, "checked", json_count(r->checked));
    json_object_set_new(root, "answered_twice", json_count(v->duplicates));
    if (r->have_report)
        json_object_set_new(root, "receiver", json_receiver(&r->report));
    json_object_set_new(root, "source", json_sources(r));
    json_object_set_new(root, "reactor", json_reactor(r));
}

static json_t *json_server(const struct server_counters *c, uint64_t missing)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "puts",
                     json_count(c->puts), "put_bytes", json_count(c->put_bytes), "checked",
                     json_count(c->checked), "bad_checksum", json_count(c->bad_checksum), "cut",
                     json_count(c->cut), "repeated", json_count(c->repeated), "stale",
                     json_count(c->stale), "missing", json_count(missing), "rx_failed",
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

static void json_row(void *arg, const char *name, const char *text, uint64_t value)
{
    (void)text;
    json_object_set_new(arg, name, json_count(value));
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

void report_json(const struct perf *p, const struct verdict *v)
{
    const struct perf_engine *e = p->engine;
    const struct server_counters *served = e->ops->served(e);
    json_t *root = json_pack("{s:s, s:s, s:s}", "program", "millrace-perf", "version",
                             MILLRACE_VERSION, "command", p->opts.command_name);

    if (p->load)
        json_load(root, p, v);
    if (served)
        json_object_set_new(root, "server", json_server(served, e->ops->missing(e)));
    if (p->pinger)
        json_object_set_new(root, "ping", json_ping(p, ping_results(p->pinger)));
    json_engine(root, e);
    json_object_set_new(root, "cpu_seconds", json_real(cpu_seconds()));
    json_object_set_new(root, "ok", json_boolean(v->ok));
    json_object_set_new(root, "trouble", json_string(v->why));
    json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(root);
}
