/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server: receive buffers for PUT, each offered for one message and offered again when that
 * message is checked; windows of the pattern for GET; and a record for each run of a client, which
 * the client fetches at its end. All runs on the node's home reactor, except begin and free.
 */
#include "app/millrace-perf/node.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_RUNS          1024 /* runs of clients that are told apart, 128 KiB each at most */
#define GET_ALTERED_EVERY 4096 /* bytes, --inject corrupt */

/* An offer on the portal: entry, descriptor and memory. */
struct offer {
    struct server *server;
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
};

struct run {
    uint32_t number;
    struct track track;
    struct run_report report;
    uint8_t record[RUN_REPORT_SIZE]; /* the report as clients read it */
    struct offer offer;              /* only the client of the run can ask for the record */
};

struct server {
    struct perf *perf;
    struct lnet_eq put_eq, get_eq;
    struct offer *buffers; /* opts.buffers of them */
    struct offer sources[PATTERN_SOURCES];
    uint8_t *memory;  /* of the buffers */
    uint8_t *content; /* for GET: the pattern, or an altered copy */
    struct run *runs[MAX_RUNS];
    unsigned nruns;
    struct server_counters counters;
    struct reactor_task start, started;
    int error;
};

static int offer_attach(struct offer *o)
{
    return lnet_me_attach(o->server->perf->node, &o->me, &o->md);
}

/* Describes an offer for one PUT, or for any number of GETs. eq NULL: their events do not matter.
 */
static void offer_fill(struct offer *o, struct server *s, const struct match *match, uint8_t *addr,
                       uint32_t len, struct lnet_eq *eq)
{
    bool put = match->kind == MATCH_PUT;

    memset(o, 0, sizeof(*o));
    o->server = s;
    o->seg = (struct mem_seg){addr, len, perf_region(s->perf, addr), 0};
    o->me.match_nid = LNET_NID_ANY;
    o->me.match_pid = UINT32_MAX;
    o->me.match_bits = match_pack(match);
    o->me.ignore_bits = match_ignore(match->kind);
    o->me.portal = LNET_PORTAL_RPC;
    o->md.segs = &o->seg;
    o->md.nsegs = 1;
    o->md.length = len;
    o->md.user = o;
    o->md.options = put ? LNET_MD_OP_PUT : LNET_MD_OP_GET | LNET_MD_MANAGE_REMOTE;
    o->md.threshold = put ? 1 : LNET_THRESH_INF;
    o->md.eq = eq;
}

/* ---- PUT ---- */

static void buffer_fill(struct server *s, struct offer *o, uint8_t *addr)
{
    offer_fill(o, s, &(struct match){.kind = MATCH_PUT}, addr, LNET_MAX_PAYLOAD, &s->put_eq);
}

static struct run *run_find(struct server *s, const struct lnet_event *ev, uint32_t number)
{
    for (unsigned i = s->nruns; i > 0; i--) { /* the newest first */
        struct run *r = s->runs[i - 1];
        const struct lnet_me *me = &r->offer.me;
        if (r->number == number && me->match_pid == ev->initiator_pid &&
            nid_same(&me->match_nid, &ev->initiator))
            return r;
    }
    return NULL;
}

static struct run *run_new(struct server *s, const struct lnet_event *ev, uint32_t number)
{
    struct match match = {.kind = MATCH_REPORT, .run = number};
    struct run *r;

    if (s->nruns == MAX_RUNS)
        return NULL;
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    if (track_init(&r->track) != 0)
        goto fail;
    r->number = number;
    offer_fill(&r->offer, s, &match, r->record, sizeof(r->record), NULL);
    r->offer.me.match_nid = ev->initiator;
    r->offer.me.match_pid = ev->initiator_pid;
    if (offer_attach(&r->offer) != 0)
        goto fail;
    s->runs[s->nruns++] = r;
    return r;

fail:
    track_fini(&r->track);
    free(r);
    return NULL;
}

/* Content and length of one PUT. */
static void put_check(struct server *s, struct run_report *report, const struct offer *o,
                      const struct lnet_event *ev, bool with_sum)
{
    if (ev->mlength != ev->rlength) {
        count_add(&s->counters.cut, 1);
        report->cut++;
    } else if (with_sum) {
        bool inside = ev->offset <= o->seg.len && ev->mlength <= o->seg.len - ev->offset;

        count_add(&s->counters.checked, 1);
        report->checked++;
        if (!inside || payload_sum(o->seg.addr + ev->offset, ev->mlength) != ev->hdr_data) {
            count_add(&s->counters.bad_checksum, 1);
            report->bad_checksum++;
        }
    }
}

static void run_update(struct run *r, struct server_counters *c, uint32_t seq)
{
    uint64_t repeated = r->track.repeated, stale = r->track.stale;

    track_add(&r->track, seq);
    count_add(&c->repeated, r->track.repeated - repeated);
    count_add(&c->stale, r->track.stale - stale);
    r->report.repeated = r->track.repeated;
    r->report.stale = r->track.stale;
    r->report.missing = track_missing(&r->track);
    run_report_encode(&r->report, r->record);
}

static void put_received(struct server *s, const struct offer *o, const struct lnet_event *ev)
{
    struct match match = match_unpack(ev->match_bits);
    struct run_report nowhere = {0};
    struct run *r;

    if (ev->status != 0) {
        count_add(&s->counters.rx_failed, 1);
        return;
    }
    r = run_find(s, ev, match.run);
    if (!r)
        r = run_new(s, ev, match.run);
    if (!r)
        count_add(&s->counters.untracked, 1);
    count_add(&s->counters.puts, 1);
    count_add(&s->counters.put_bytes, ev->mlength);
    put_check(s, r ? &r->report : &nowhere, o, ev, match.source != 0);
    if (!r)
        return;
    r->report.received++;
    r->report.bytes += ev->mlength;
    run_update(r, &s->counters, match.seq);
}

static void put_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct offer *o = md->user;
    struct server *s = o->server;

    if (ev->type == LNET_EVENT_PUT)
        put_received(s, o, ev);
    if (!ev->unlinked || perf_stopping(s->perf))
        return;
    buffer_fill(s, o, o->seg.addr);
    if (offer_attach(o) != 0)
        count_add(&s->counters.not_posted, 1);
}

/* ---- GET ---- */

static void get_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct offer *o = md->user;
    struct server_counters *c = &o->server->counters;

    if (ev->type != LNET_EVENT_GET)
        return;
    if (ev->status != 0) {
        count_add(&c->gets_failed, 1);
        return;
    }
    count_add(&c->gets, 1);
    count_add(&c->get_bytes, ev->mlength);
}

/* ---- life ---- */

static void server_started(struct reactor_task *task)
{
    struct server *s = container_of(task, struct server, started);

    perf_server_ready(s->perf, s->error);
}

static void server_start(struct reactor_task *task)
{
    struct server *s = container_of(task, struct server, start);

    for (unsigned i = 0; i < PATTERN_SOURCES && s->error == 0; i++) {
        struct match match = {.kind = MATCH_GET, .source = i};

        offer_fill(&s->sources[i], s, &match, s->content + pattern_source_offset(i),
                   LNET_MAX_PAYLOAD, &s->get_eq);
        s->error = offer_attach(&s->sources[i]);
    }
    for (unsigned i = 0; i < s->perf->opts.buffers && s->error == 0; i++) {
        buffer_fill(s, &s->buffers[i], s->memory + (size_t)i * LNET_MAX_PAYLOAD);
        s->error = offer_attach(&s->buffers[i]);
    }
    s->started.fn = server_started;
    reactor_post(reactor_control(s->perf->env), &s->started);
}

static uint8_t *content_altered(struct perf *p)
{
    uint8_t *copy = perf_memory_take(p, PATTERN_SIZE);

    if (!copy)
        return NULL;
    memcpy(copy, p->pattern, PATTERN_SIZE);
    for (size_t i = 0; i < PATTERN_SIZE; i += GET_ALTERED_EVERY)
        copy[i] ^= 1;
    return copy;
}

int server_begin(struct perf *p)
{
    struct server *s = calloc(1, sizeof(*s));
    bool altered = p->opts.inject == PERF_INJECT_CORRUPT && p->opts.command == PERF_SERVER;

    if (!s)
        return -ENOMEM;
    p->server = s;
    s->perf = p;
    s->put_eq = (struct lnet_eq){put_event, s};
    s->get_eq = (struct lnet_eq){get_event, s};
    s->buffers = calloc(p->opts.buffers, sizeof(*s->buffers));
    s->memory = perf_memory_take(p, (size_t)p->opts.buffers * LNET_MAX_PAYLOAD);
    s->content = altered ? content_altered(p) : p->pattern;
    if (!s->buffers || !s->memory || !s->content)
        return -ENOMEM;
    s->start.fn = server_start;
    reactor_post(lnet_node_home(p->node), &s->start);
    return 0;
}

void server_free(struct server *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->nruns; i++) {
        track_fini(&s->runs[i]->track);
        free(s->runs[i]);
    }
    if (s->content != s->perf->pattern)
        perf_memory_give(s->perf, s->content);
    perf_memory_give(s->perf, s->memory);
    free(s->buffers);
    free(s);
}

const struct server_counters *node_served(const struct perf_engine *e)
{
    return e->perf->server ? &e->perf->server->counters : NULL;
}

uint64_t node_missing(const struct perf_engine *e)
{
    const struct server *s = e->perf->server;
    uint64_t n = 0;

    for (unsigned i = 0; s && i < s->nruns; i++)
        n += track_missing(&s->runs[i]->track);
    return n;
}
