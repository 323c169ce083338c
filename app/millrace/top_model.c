/* SPDX-License-Identifier: BSD-3-Clause */
/* From two samples to rates. Whatever is missing in a sample is shown as not known. */
#include "app/millrace/top_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void top_sample_free(struct top_sample *s)
{
    if (!s)
        return;
    json_decref(s->version);
    json_decref(s->stats);
    json_decref(s->reactors);
    json_decref(s->nets);
    json_decref(s->buffers);
    json_decref(s->drops);
    json_decref(s->peers);
    json_decref(s->names);
    free(s);
}

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void copy(char *out, size_t len, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    snprintf(out, len, "%s", text ? text : "");
}

/* Growth of a counter; NAN: there is no earlier value, or it began anew. */
static double growth(const json_t *before, const json_t *now, const char *key)
{
    const json_t *a = json_object_get(before, key), *b = json_object_get(now, key);

    if (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(b) < json_integer_value(a))
        return NAN;
    return (double)(json_integer_value(b) - json_integer_value(a));
}

/* The row of a list whose member key is as that of row. */
static const json_t *same_row(const json_t *list, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key), *other;
    size_t i;

    json_array_foreach(list, i, other)
        if (value && json_equal(json_object_get(other, key), value))
            return other;
    return NULL;
}

/* ---- reactors ---- */

#define IDLE_STAGE "rest"      /* turns that found nothing */
#define LOST_STAGE "preempted" /* no turns of its own */

/* What busy turns were spent on, where somebody has asked for that. */
static void works(struct top_reactor *r, const json_t *before, const json_t *now)
{
    json_t *is = json_object_get(now, "work"), *value;
    const json_t *was = json_object_get(before, "work");
    double all = 0;
    const char *name;

    if (number(is, "every") <= 0)
        return;
    json_object_foreach(is, name, value) {
        if (strcmp(name, "every") == 0 || strcmp(name, "turns") == 0 || r->nworks == TOP_WORKS)
            continue;
        snprintf(r->work[r->nworks].name, TOP_NAME, "%s", name);
        r->work[r->nworks].share = growth(was, is, name);
        all += r->work[r->nworks++].share;
    }
    for (unsigned i = 0; i < r->nworks; i++)
        r->work[i].share = all > 0 ? r->work[i].share / all : NAN;
}

/* Times in us. Returns the time awake, and in *work and *lost that of turns that did something, and
 * that in which others had the core. */
static double stages(struct top_reactor *r, const json_t *before, const json_t *now, double *work,
                     double *lost)
{
    json_t *is = json_object_get(now, "stages"), *value;
    const json_t *was = json_object_get(before, "stages");
    double awake = 0;
    const char *name;

    *work = *lost = 0;
    json_object_foreach(is, name, value) {
        double us = growth(was, is, name);

        awake += us;
        if (strcmp(name, LOST_STAGE) == 0)
            *lost += us;
        else if (strcmp(name, IDLE_STAGE) != 0)
            *work += us;
        if (r->nstages == TOP_STAGES)
            continue;
        snprintf(r->stage[r->nstages].name, TOP_NAME, "%s", name);
        r->stage[r->nstages++].share = us;
    }
    for (unsigned i = 0; i < r->nstages; i++)
        r->stage[i].share = awake > 0 ? r->stage[i].share / awake : NAN;
    return awake;
}

static void one_reactor(struct top_reactor *r, const json_t *before, const json_t *now,
                        double seconds)
{
    double asleep = growth(before, now, "sleep_us"), awake, work, lost;

    *r = (struct top_reactor){
        .index = number(now, "reactor"),
        .cpt = number(now, "cpt"),
        .sleeps = growth(before, now, "sleeps") / seconds,
        .stalls = number(now, "stalls"),
    };
    works(r, before, now);
    awake = stages(r, before, now, &work, &lost);
    if (r->nstages == 0) { /* without times: the share of the time awake */
        awake = growth(before, now, "total_cycles");
        work = growth(before, now, "busy_cycles");
        asleep = 0;
    }
    r->busy = awake + asleep > 0 ? work / (awake + asleep) : NAN;
    r->preempted = r->nstages && awake + asleep > 0 ? lost / (awake + asleep) : NAN;
    r->asleep = r->nstages && awake + asleep > 0 ? asleep / (awake + asleep) : NAN;
}

static int reactors(struct top_view *v, const struct top_sample *before,
                    const struct top_sample *now, double seconds)
{
    const json_t *list = json_object_get(now->reactors, "reactors"), *row;
    const json_t *was = before ? json_object_get(before->reactors, "reactors") : NULL;
    size_t i;

    v->reactors = calloc(json_array_size(list) + 1, sizeof(*v->reactors));
    if (!v->reactors)
        return -ENOMEM;
    json_array_foreach(list, i, row)
        one_reactor(&v->reactors[v->nreactors++], same_row(was, row, "reactor"), row, seconds);
    return 0;
}

/* ---- NIs ---- */

static const json_t *find_ni(const json_t *nets, const json_t *ni)
{
    const json_t *net, *found;
    size_t i;

    json_array_foreach(json_object_get(nets, "net"), i, net) {
        found = same_row(json_object_get(net, "local NI(s)"), ni, "nid");
        if (found)
            return found;
    }
    return NULL;
}

static void one_ni(struct top_ni *n, const json_t *before, const json_t *now, double seconds)
{
    const json_t *is = json_object_get(now, "statistics");
    const json_t *was = json_object_get(before, "statistics");
    const json_t *own = json_object_get(now, "millrace");

    *n = (struct top_ni){
        .sent = growth(was, is, "send_count") / seconds,
        .received = growth(was, is, "recv_count") / seconds,
        .dropped = growth(was, is, "drop_count") / seconds,
        .credits = number(own, "available_tx_credits"),
        .min_credits = number(own, "min_tx_credits"),
        .max_credits = number(own, "max_tx_credits"),
        .waiting = number(own, "tx_waiting"),
    };
    copy(n->nid, sizeof(n->nid), now, "nid");
    copy(n->status, sizeof(n->status), now, "status");
}

/* All but 0@lo, through which nothing is sent. */
static int nis(struct top_view *v, const struct top_sample *before, const struct top_sample *now,
               double seconds)
{
    const json_t *net, *ni;
    size_t i, j, n = 0;

    json_array_foreach(json_object_get(now->nets, "net"), i, net)
        n += json_array_size(json_object_get(net, "local NI(s)"));
    v->nis = calloc(n + 1, sizeof(*v->nis));
    if (!v->nis)
        return -ENOMEM;
    json_array_foreach(json_object_get(now->nets, "net"), i, net) {
        json_array_foreach(json_object_get(net, "local NI(s)"), j, ni) {
            const char *nid = json_string_value(json_object_get(ni, "nid"));

            if (nid && strcmp(nid, "0@lo") != 0)
                one_ni(&v->nis[v->nnis++], find_ni(before ? before->nets : NULL, ni), ni, seconds);
        }
    }
    return 0;
}

/* ---- peers ---- */

static int peers(struct top_view *v, const struct top_sample *now)
{
    const json_t *list = json_object_get(now->peers, "peers"), *row;
    size_t i;

    v->has_peers = json_is_array(list);
    v->peers = calloc(json_array_size(list) + 1, sizeof(*v->peers));
    if (!v->peers)
        return -ENOMEM;
    json_array_foreach(list, i, row) {
        struct top_peer *p = &v->peers[v->npeers++];

        p->in = real(row, "bytes_in_per_s");
        p->out = real(row, "bytes_out_per_s");
        p->queued = number(row, "tx_queued");
        p->waiting = number(row, "tx_waiting");
        p->rtr_waiting = number(row, "rtr_waiting");
        p->up = json_is_true(json_object_get(row, "up"));
        copy(p->nid, sizeof(p->nid), row, "nid");
        copy(p->host, sizeof(p->host), now->names, p->nid);
    }
    return 0;
}

/* ---- buffers ---- */

static void pools(struct top_view *v, const struct top_sample *now)
{
    static const char *const names[TOP_POOLS] = {"tiny", "small", "large"};
    const json_t *reactor;
    size_t i;

    for (int k = 0; k < TOP_POOLS; k++)
        v->pool[k].name = names[k];
    json_array_foreach(json_object_get(now->buffers, "reactors"), i, reactor) {
        for (int k = 0; k < TOP_POOLS; k++) {
            const json_t *pool = json_object_get(reactor, names[k]);

            v->pool[k].total += number(pool, "nbuffers");
            v->pool[k].free += number(pool, "credits");
            v->pool[k].low += number(pool, "mincredits");
            v->pool[k].waiting += number(pool, "waiting");
            v->pool[k].waited += number(pool, "waited");
        }
    }
}

/* ---- drops ---- */

static int by_rate(const void *a, const void *b)
{
    const struct top_drop *x = a, *y = b;
    double p = isnan(x->rate) ? 0 : x->rate, q = isnan(y->rate) ? 0 : y->rate;

    if (p != q)
        return p < q ? 1 : -1;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->name, y->name);
}

static int drops(struct top_view *v, const struct top_sample *before, const struct top_sample *now,
                 double seconds)
{
    const json_t *list = json_object_get(now->drops, "drops"), *row;
    const json_t *was = before ? json_object_get(before->drops, "drops") : NULL;
    size_t i;

    v->drop = calloc(json_array_size(list) + 1, sizeof(*v->drop));
    if (!v->drop)
        return -ENOMEM;
    json_array_foreach(list, i, row) {
        struct top_drop *d = &v->drop[v->ndrops];

        d->count = number(row, "count");
        if (d->count <= 0)
            continue;
        d->rate = growth(same_row(was, row, "name"), row, "count") / seconds;
        copy(d->name, sizeof(d->name), row, "name");
        v->ndrops++;
    }
    qsort(v->drop, v->ndrops, sizeof(*v->drop), by_rate);
    return 0;
}

/* ---- all of it ---- */

static void node(struct top_view *v, const struct top_sample *before, const struct top_sample *now,
                 double seconds)
{
    const json_t *was = before ? before->stats : NULL;
    const json_t *enable = json_object_get(now->buffers, "enable");
    static const char *const states[] = {"off", "on", "stopping", "starting"};

    copy(v->version, sizeof(v->version), now->version, "version");
    v->uptime = number(now->version, "uptime");
    v->messages = growth(was, now->stats, "route_count") / seconds;
    v->bytes = growth(was, now->stats, "route_length") / seconds;
    v->drops = growth(was, now->stats, "drop_count") / seconds;
    snprintf(v->routing, sizeof(v->routing), "%s",
             json_is_integer(enable) && json_integer_value(enable) >= 0 &&
                     json_integer_value(enable) < 4
                 ? states[json_integer_value(enable)]
                 : "?");
}

/* Counters of another process say nothing about this one's. */
static bool same_process(const struct top_sample *before, const struct top_sample *now)
{
    return number(before->version, "pid") == number(now->version, "pid") &&
           number(before->version, "uptime") <= number(now->version, "uptime") &&
           now->when > before->when;
}

int top_view_make(struct top_view *view, const struct top_sample *before,
                  const struct top_sample *now)
{
    double seconds;
    int rc;

    if (before && !same_process(before, now))
        before = NULL;
    seconds = before ? now->when - before->when : NAN;
    *view = (struct top_view){.names = now->names};
    node(view, before, now, seconds);
    pools(view, now);
    rc = reactors(view, before, now, seconds);
    if (rc == 0)
        rc = nis(view, before, now, seconds);
    if (rc == 0)
        rc = peers(view, now);
    if (rc == 0)
        rc = drops(view, before, now, seconds);
    if (rc != 0)
        top_view_free(view);
    return rc;
}

void top_view_free(struct top_view *view)
{
    free(view->reactors);
    free(view->nis);
    free(view->peers);
    free(view->drop);
    *view = (struct top_view){.version = ""};
}
