/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace/scrape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "app/millrace/metrics.h"

#define WINDOW_MS 500 /* in which millraced measures its peers, if the time allows it */
#define PAGE_ROWS 2000

static const char *const ranks[SCRAPE_CLIENTS] = {
    [SCRAPE_BYTES] = "bytes", [SCRAPE_WAITING] = "waiting"};

/* The state of one scrape. */
struct page {
    struct scraper *s;
    struct metrics *m;
    json_t *methods; /* rows of metric_exporter */
    size_t omitted;
    bool lost; /* millraced does not answer */
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* At least 1 ms, so that what has been received already is taken. */
static unsigned left_ms(const struct scraper *s)
{
    double left = (s->end - now_s()) * 1000;

    return left > 1 ? (unsigned)left : 1;
}

static void disconnect(struct scraper *s)
{
    for (int i = 0; i < SCRAPE_CLIENTS; i++) {
        rpc_client_close(s->client[i]);
        s->client[i] = NULL;
    }
}

/* Connections last for one scrape: millraced closes idle ones, and may have been restarted. */
static bool connect_all(struct scraper *s)
{
    struct err err = {0};

    for (int i = 0; i < (s->peers ? SCRAPE_CLIENTS : 1); i++)
        if (rpc_client_open(s->path, &s->client[i], &err) != 0)
            return false;
    return true;
}

/* Returns the time for one of several calls: a reactor that does not answer costs a scrape the
 * metrics that it is asked for, not all. */
static unsigned share_ms(const struct scraper *s)
{
    return left_ms(s) / 3 + 1;
}

/* Notes how a call ended. The first call of a scrape has to be answered. The result, or NULL. */
static json_t *note(struct page *p, const char *method, int rc, json_t *result)
{
    bool first = json_array_size(p->methods) == 0;

    p->lost = p->lost || (rc < 0 && (first || rc != -ETIMEDOUT));
    json_array_append_new(p->methods,
                          json_pack("{s:s, s:i}", "method", method, "success", rc == 0));
    if (rc == 0)
        return result;
    json_decref(result);
    return NULL;
}

/* ---- peers: asked first, answered last ---- */

static void ask_peers(struct page *p)
{
    unsigned window = left_ms(p->s) / 4 < WINDOW_MS ? left_ms(p->s) / 4 : WINDOW_MS;
    struct err err = {0};

    for (int i = SCRAPE_BYTES; p->s->peers && i < SCRAPE_CLIENTS; i++)
        if (rpc_client_ask(p->s->client[i], "peer_top",
                           json_pack("{s:s, s:i, s:i}", "by", ranks[i], "count", (int)p->s->peers,
                                     "interval_ms", window > 50 ? (int)window : 50),
                           &err) != 0)
            p->lost = true;
}

/* Appends the peers of `more` for which messages wait and that are not in `peers` yet. */
static void merge_peers(json_t *peers, const json_t *more)
{
    json_t *known = json_object(), *row;
    size_t i;

    json_array_foreach(peers, i, row)
        json_object_set_new(known, json_string_value(json_object_get(row, "nid")), json_true());
    json_array_foreach(json_object_get(more, "peers"), i, row)
        if (json_integer_value(json_object_get(row, "tx_waiting")) +
                    json_integer_value(json_object_get(row, "rtr_waiting")) >
                0 &&
            !json_object_get(known, json_string_value(json_object_get(row, "nid"))))
            json_array_append(peers, row);
    json_decref(known);
}

static void add_peers(struct page *p)
{
    json_t *answer[SCRAPE_CLIENTS] = {NULL};
    struct err err = {0};
    int rc = 0;

    for (int i = SCRAPE_BYTES; i < SCRAPE_CLIENTS && rc == 0 && !p->lost; i++)
        rc = rpc_client_answer(p->s->client[i], "peer_top", left_ms(p->s), &answer[i], &err);
    if (!p->lost && note(p, "peer_top", rc, json_incref(answer[SCRAPE_BYTES]))) {
        merge_peers(json_object_get(answer[SCRAPE_BYTES], "peers"), answer[SCRAPE_WAITING]);
        metrics_add(p->m, &metric_peers, answer[SCRAPE_BYTES]);
        json_decref(answer[SCRAPE_BYTES]);
    }
    for (int i = 0; i < SCRAPE_CLIENTS; i++)
        json_decref(answer[i]);
}

/* ---- routes ---- */

static int take_routes(void *arg, json_t *result)
{
    json_t *all = json_object_get(arg, "route");

    json_array_extend(all, json_object_get(result, "route"));
    return 0;
}

/* Counts the routes of each gateway. */
static json_t *gateways_of(const json_t *routes)
{
    json_t *by_nid = json_object(), *list = json_array(), *row;
    size_t i;

    json_array_foreach((json_t *)routes, i, row) {
        const char *nid = json_string_value(json_object_get(row, "gateway"));
        const char *state = json_string_value(json_object_get(row, "state"));
        json_t *health = json_object_get(json_object_get(row, "millrace"), "gateway_health");
        json_t *gateway = json_object_get(by_nid, nid);

        if (!gateway) {
            gateway = json_pack("{s:s, s:i, s:i, s:O*}", "gateway", nid ? nid : "", "routes", 0,
                                "routes_up", 0, "health", health);
            json_object_set(by_nid, nid, gateway);
            json_array_append_new(list, gateway);
        }
        json_integer_set(json_object_get(gateway, "routes"),
                         json_integer_value(json_object_get(gateway, "routes")) + 1);
        json_integer_set(json_object_get(gateway, "routes_up"),
                         json_integer_value(json_object_get(gateway, "routes_up")) +
                             (state && strcmp(state, "up") == 0));
    }
    json_decref(by_nid);
    return list;
}

static void add_routes(struct page *p)
{
    json_t *all = json_pack("{s:[]}", "route"), *refused = NULL;
    struct metric_row routes = metric_routes, gateways = metric_gateways;
    struct err err = {0};
    int rc = rpc_client_walk(p->s->client[SCRAPE_ALL], "route_get",
                             json_pack("{s:i}", "limit", PAGE_ROWS), share_ms(p->s), take_routes,
                             all, &refused, &err);

    json_decref(refused);
    if (note(p, "route_get", rc, all)) {
        routes.limit = gateways.limit = p->s->routes;
        json_object_set_new(all, "gateways", gateways_of(json_object_get(all, "route")));
        p->omitted = metrics_add(p->m, &routes, all) + metrics_add(p->m, &gateways, all);
        json_decref(all);
    }
}

/* ---- all else ---- */

/* An NI without a NID is known by its interface. */
static void name_interfaces(json_t *result)
{
    json_t *net, *ni, *name;
    size_t i, k;

    json_array_foreach(json_object_get(result, "net"), i, net)
        json_array_foreach(json_object_get(net, "local NI(s)"), k, ni) {
            name = json_object_get(json_object_get(ni, "interfaces"), "0");
            json_object_set_new(ni, "interface", name ? json_incref(name) : json_string(""));
        }
}

static void add_rows(struct page *p)
{
    json_t *result = NULL;
    struct err err = {0};
    int rc = 0;

    for (const struct metric_row *row = metric_rows; row->method && !p->lost; row++) {
        if (row == metric_rows || strcmp(row->method, row[-1].method) != 0) {
            json_decref(result);
            rc =
                rpc_client_call(p->s->client[SCRAPE_ALL], row->method, NULL,
                                row == metric_rows ? left_ms(p->s) : share_ms(p->s), &result, &err);
            result = note(p, row->method, rc, result);
            name_interfaces(result);
        }
        if (result)
            metrics_add(p->m, row, result);
    }
    json_decref(result);
}

/* ---- the page ---- */

static uint64_t cpu_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Adds the metrics of the exporter itself. They are all there is where millraced is lost. */
static void add_own(struct page *p, double began)
{
    json_t *own = json_pack("{s:i, s:{s:I, s:I, s:I, s:I}, s:O}", "up", !p->lost, "exporter",
                            "scrape", (json_int_t)((now_s() - began) * 1e6), "scrapes",
                            (json_int_t)++p->s->scrapes, "cpu", (json_int_t)cpu_us(),
                            "routes_omitted", (json_int_t)p->omitted, "methods", p->methods);

    metrics_add(p->m, &metric_exporter, own);
    json_decref(own);
}

struct metrics *scrape(struct scraper *s, double seconds)
{
    struct page p = {.s = s, .m = metrics_new(), .methods = json_array()};
    double began = now_s();

    s->end = began + seconds;
    p.lost = !connect_all(s);
    if (!p.lost) {
        ask_peers(&p);
        add_rows(&p);
        if (!p.lost)
            add_routes(&p);
        if (!p.lost && s->peers)
            add_peers(&p);
    }
    disconnect(s);
    if (p.lost) {
        metrics_free(p.m);
        p.m = metrics_new();
        json_array_clear(p.methods);
        p.omitted = 0;
    }
    if (p.m)
        add_own(&p, began);
    json_decref(p.methods);
    return p.m;
}
