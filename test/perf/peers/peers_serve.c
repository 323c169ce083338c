/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated peers as servers: counters, and a record for each run of a client. */
#include "test/perf/peers/peers.h"

#include <stdlib.h>

static struct peers_run *run_find(const struct peers *e, uint32_t number)
{
    for (unsigned i = e->runs; i > 0; i--) { /* the newest first */
        if (e->run[i - 1]->number == number)
            return e->run[i - 1];
    }
    return NULL;
}

/* Once for each run of a client, not for each message. */
static struct peers_run *run_new(struct peers *e, uint32_t number)
{
    struct peers_run *r;

    if (e->runs == PEERS_RUNS)
        return NULL;
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    if (track_init(&r->track) != 0) {
        free(r);
        return NULL;
    }
    r->number = number;
    e->run[e->runs++] = r;
    return r;
}

void peers_put_received(struct peers *e, const struct match *m, uint32_t length, bool good)
{
    struct peers_run *r = run_find(e, m->run);
    uint64_t repeated, stale;
    bool check = m->source != 0;

    peers_mark_begin(e);
    count_add(&e->served.puts, 1);
    count_add(&e->served.put_bytes, length);
    count_add(&e->served.checked, check);
    count_add(&e->served.bad_checksum, check && !good);
    if (!r)
        r = run_new(e, m->run);
    if (!r) {
        count_add(&e->served.untracked, 1);
        return;
    }
    repeated = r->track.repeated;
    stale = r->track.stale;
    track_add(&r->track, m->seq);
    count_add(&e->served.repeated, r->track.repeated - repeated);
    count_add(&e->served.stale, r->track.stale - stale);
    r->report.received++;
    r->report.bytes += length;
    r->report.checked += check;
    r->report.bad_checksum += check && !good;
}

void peers_report(const struct peers *e, uint32_t run, uint8_t out[RUN_REPORT_SIZE])
{
    const struct peers_run *r = run_find(e, run);
    struct run_report report = {0};

    if (r) {
        report = r->report;
        report.repeated = r->track.repeated;
        report.stale = r->track.stale;
        report.missing = track_missing(&r->track);
    }
    run_report_encode(&report, out);
}

void peers_runs_free(struct peers *e)
{
    for (unsigned i = 0; i < e->runs; i++) {
        track_fini(&e->run[i]->track);
        free(e->run[i]);
    }
    e->runs = 0;
}

uint64_t peers_missing(const struct perf_engine *base)
{
    const struct peers *e = (const struct peers *)(const void *)base;
    uint64_t n = 0;

    for (unsigned i = 0; i < e->runs; i++)
        n += track_missing(&e->run[i]->track);
    return n;
}
