/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/tcp/run.h"
#include "lib/base/asan.h"
#include "lib/base/err.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failing and tracing ---- */

bool run_fail(struct run *r, const char *fmt, ...)
{
    size_t n;
    va_list ap;

    if (r->why[0] != '\0')
        return false;
    if (r->line)
        snprintf(r->why, sizeof(r->why), "%s:%d: `%s`: ", r->cs->file, r->line->number,
                 r->line->text);
    n = strlen(r->why);
    va_start(ap, fmt);
    vsnprintf(r->why + n, sizeof(r->why) - n, fmt, ap);
    va_end(ap);
    return false;
}

void run_trace(struct run *r, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (r->verbose)
        fprintf(stderr, "%s\n", line);
    n = strlen(line) + 1;
    r->trace = realloc(r->trace, r->trace_len + n + 1);
    memcpy(r->trace + r->trace_len, line, n - 1);
    r->trace_len += n;
    r->trace[r->trace_len - 1] = '\n';
    r->trace[r->trace_len] = '\0';
}

uint8_t pattern_at(uint64_t offset)
{
    offset %= PATTERN_PERIOD;
    return (uint8_t)(offset * 31 + (offset >> 8) * 7 + 1);
}

const uint8_t *pattern_from(uint64_t offset, size_t n)
{
    static uint8_t bytes[PATTERN_PERIOD + FRAME_MAX];

    assert(n <= FRAME_MAX);
    for (size_t i = 0; bytes[0] != pattern_at(0) && i < sizeof(bytes); i++)
        bytes[sizeof(bytes) - 1 - i] = pattern_at(sizeof(bytes) - 1 - i);
    return bytes + offset % PATTERN_PERIOD;
}

bool run_number(struct run *r, unsigned word, int64_t *out)
{
    if (word >= r->line->words || !script_number(r->line, r->line->word[word], out))
        return run_fail(r, "a number is missing");
    return true;
}

bool run_time(struct run *r, unsigned word, uint64_t *out)
{
    if (word >= r->line->words || !script_time(r->line, r->line->word[word], out))
        return run_fail(r, "a time is missing");
    return true;
}

/* ---- connections ---- */

struct chan *chan_of(struct run *r, uint8_t host, uint16_t own_port, uint16_t peer_port)
{
    for (unsigned i = 0; i < r->chans; i++)
        if (r->chan[i].host == host && r->chan[i].own_port == own_port &&
            r->chan[i].peer_port == peer_port)
            return &r->chan[i];
    return NULL;
}

struct chan *chan_add(struct run *r, const char *name)
{
    struct chan *c;

    if (r->chans == CHANS_MAX)
        return NULL;
    c = &r->chan[r->chans++];
    *c = (struct chan){.run = r,
                       .peer_port = (uint16_t)(1024 - r->chans),
                       .own_port = 988,
                       .host = 2,
                       .ip6 = r->ip6,
                       .peer_isn = 1000000 * r->chans,
                       .peer_win = 65535,
                       .ts_lag = 990000};
    snprintf(c->name, sizeof(c->name), "%s", name);
    return c;
}

/* chan NAME [port N] [own N] [host N] [isn N] [win N] [lag MS] [raw 0|1] [new 1]: makes or chooses
 * a connection. */
static bool do_chan(struct run *r)
{
    const struct script_line *l = r->line;
    struct chan *c = NULL;

    for (unsigned i = 0; i < r->chans && l->words > 1; i++)
        if (strcmp(r->chan[i].name, l->word[1]) == 0)
            c = &r->chan[i];
    if (!c && l->words > 1)
        c = chan_add(r, l->word[1]);
    if (!c)
        return run_fail(r, "no name, or too many connections");
    r->c = c;
    for (unsigned i = 2; i + 1 < l->words; i += 2) {
        const char *k = l->word[i];
        int64_t n;

        if (!run_number(r, i + 1, &n))
            return false;
        if (strcmp(k, "port") == 0)
            c->peer_port = (uint16_t)n;
        else if (strcmp(k, "own") == 0)
            c->own_port = (uint16_t)n;
        else if (strcmp(k, "host") == 0)
            c->host = (uint8_t)n;
        else if (strcmp(k, "isn") == 0)
            c->peer_isn = (uint32_t)n;
        else if (strcmp(k, "win") == 0)
            c->peer_win = (uint16_t)n;
        else if (strcmp(k, "lag") == 0)
            c->ts_lag = n;
        else if (strcmp(k, "raw") == 0)
            c->raw = n != 0;
        else
            return run_fail(r, "a connection has no `%s`", k);
    }
    return true;
}

/* again [isn N]: what comes on this connection from now on is of its next incarnation. */
static bool do_again(struct run *r, unsigned at)
{
    struct chan *c = r->c;
    int64_t isn = (int64_t)c->peer_isn + 5000000;

    if (r->line->words > at + 2 && !run_number(r, at + 2, &isn))
        return false;
    c->own_isn_before = c->own_isn;
    c->own_known = c->peer_known = c->edge_known = c->peer_fin = c->ts_known = false;
    c->own_ts = c->peer_ts = c->own_sack = c->peer_sack = c->own_ws = c->peer_ws = false;
    c->ts_seen = 0;
    c->raw = false;
    c->peer_isn = (uint32_t)isn;
    c->connected = c->readable = c->writable = c->acked = c->closed = 0;
    c->sent = c->read = 0;
    return true;
}

/* again_peer ISN: the peer has forgotten all and begins anew; the stack has not. */
static bool do_again_peer(struct run *r)
{
    int64_t isn;

    if (!run_number(r, 1, &isn))
        return false;
    r->c->peer_isn = (uint32_t)isn;
    r->c->raw = true;
    return true;
}

static void on_stopped(struct reactor_task *task)
{
    free(task);
}

/* stop: the process ends. */
static bool do_stop(struct run *r)
{
    struct reactor_task *done = calloc(1, sizeof(*done));

    done->fn = on_stopped;
    reactor_bind(r->w.control);
    tcp_stop(r->w.tcp, done);
    reactor_bind(r->w.reactor);
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

/* ---- the head of a case ---- */

static bool is_setting(const struct script_line *l)
{
    return strcmp(l->word[0], "set") == 0;
}

static bool setting(struct run *r, const struct script_line *l, struct world_opts *o)
{
    const char *k = l->words > 1 ? l->word[1] : "";
    int64_t n = 0;

    r->line = l;
    if (strcmp(k, "no_sack") == 0)
        return o->tcp.no_sack = true;
    if (strcmp(k, "no_timestamps") == 0)
        return o->tcp.no_timestamps = true;
    if (strcmp(k, "tso") == 0)
        return o->tso = true;
    if (strcmp(k, "far") == 0)
        return o->far = true;
    if (strcmp(k, "silent") == 0)
        return o->silent = o->no_neighbour = true;
    if (strcmp(k, "cc") == 0 && l->words > 2) {
        o->tcp.cc = l->word[2];
        return true;
    }
    if (!run_number(r, 2, &n))
        return false;
    if (strcmp(k, "user_timeout") == 0)
        o->tcp.user_timeout = (unsigned)n;
    else if (strcmp(k, "wscale_max") == 0)
        o->tcp.wscale_max = (unsigned)n;
    else if (strcmp(k, "syn_max") == 0)
        o->tcp.syn_max = (unsigned)n;
    else if (strcmp(k, "max_conns") == 0)
        o->tcp.max_conns = (unsigned)n;
    else if (strcmp(k, "copy_bytes") == 0)
        o->tcp.copy_bytes = (size_t)n;
    else if (strcmp(k, "mtu") == 0)
        o->mtu = (unsigned)n;
    else if (strcmp(k, "buffers") == 0)
        o->buffers = (unsigned)n;
    else
        return run_fail(r, "no such setting");
    return true;
}

/* ---- lines ---- */

/* A time before a verb: +T (at T, timers being whole milliseconds late at most two) or A..B. */
static bool when(struct run *r, const char *text, uint64_t *from, uint64_t *to)
{
    const char *dots = strstr(text, "..");
    char first[64];

    if (text[0] == '+') {
        if (!script_time(r->line, text + 1, from))
            return run_fail(r, "not a time: %s", text);
        *to = *from + 2 * MS;
        return true;
    }
    if (!dots || (size_t)(dots - text) >= sizeof(first))
        return run_fail(r, "not a time: %s", text);
    memcpy(first, text, (size_t)(dots - text));
    first[dots - text] = '\0';
    if (!script_time(r->line, first, from) || !script_time(r->line, dots + 2, to))
        return run_fail(r, "not a time: %s", text);
    return true;
}

static bool wire_verb(struct run *r, unsigned at, uint64_t from, uint64_t to, bool timed)
{
    const char *v = r->line->word[at];

    if (strcmp(v, "out") == 0)
        return peer_out(r, at + 1, from, to);
    if (strcmp(v, "probe") == 0)
        return peer_probe(r, at + 1, from, to);
    if (strcmp(v, "burst") == 0)
        return peer_burst(r, at + 1, from, to);
    if (timed && !peer_nothing(r, from))
        return false;
    if (strcmp(v, "again") == 0)
        return do_again(r, at);
    if (strcmp(v, "in") == 0 || strcmp(v, "queue") == 0)
        return peer_in(r, at + 1);
    if (strcmp(v, "icmp") == 0)
        return peer_icmp(r, at + 1);
    if (strcmp(v, "flood") == 0)
        return peer_flood(r, at + 1);
    return run_fail(r, "no such verb");
}

static bool time_verb(struct run *r, const char *v, bool *known)
{
    uint64_t us;

    *known = true;
    if ((strcmp(v, "nothing") == 0 || strcmp(v, "ignore") == 0) && r->line->words == 3 &&
        strcmp(r->line->word[1], "for") == 0) {
        if (!run_time(r, 2, &us))
            return false;
        return v[0] == 'n' ? peer_nothing(r, us) : peer_ignore(r, us);
    }
    if (strcmp(v, "jump") == 0) {
        if (!run_time(r, 1, &us))
            return false;
        world_jump(&r->w, r->w.now_us + us);
        r->event_us = r->w.now_us;
        for (unsigned i = 0; i < r->chans; i++)
            r->chan[i].ts_known = false; /* too far to compare, perhaps */
        return true;
    }
    if (strcmp(v, "jump_isn") == 0) {
        /* Until the clock of RFC 6528 has brought the ISN of these ports to N. */
        int64_t n;

        if (!run_number(r, 1, &n))
            return false;
        us = (uint64_t)(uint32_t)((uint32_t)n - r->c->own_isn) * 4;
        world_jump(&r->w, r->w.now_us + us);
        r->event_us = r->w.now_us;
        return true;
    }
    if (strcmp(v, "forget") == 0) {
        /* What was sent meanwhile, to whomever. */
        world_forget(&r->w);
        return true;
    }
    if (strcmp(v, "settle") == 0) {
        world_settle(&r->w);
        return true;
    }
    if (strcmp(v, "deaf") == 0) {
        r->w.deaf = r->line->words > 1 && strcmp(r->line->word[1], "on") == 0;
        world_settle(&r->w);
        return true;
    }
    *known = false;
    return true;
}

static bool do_line(struct run *r)
{
    const char *v = r->line->word[0];
    uint64_t from = 0, to = 0;
    bool known, ok;

    if (is_setting(r->line))
        return true;
    if (v[0] == '+' || strstr(v, "..")) {
        if (!when(r, v, &from, &to))
            return false;
        if (r->line->words < 2)
            return run_fail(r, "a verb is missing");
        return wire_verb(r, 1, from, to, true);
    }
    if (strcmp(v, "chan") == 0)
        return do_chan(r);
    if (strcmp(v, "again") == 0)
        return do_again(r, 0);
    if (strcmp(v, "again_peer") == 0)
        return do_again_peer(r);
    if (strcmp(v, "stop") == 0)
        return do_stop(r);
    if (strcmp(v, "expect") == 0)
        return look_expect(r);
    if (strcmp(v, "info") == 0)
        return look_info(r);
    if (strcmp(v, "stat") == 0)
        return look_stat(r);
    if (strcmp(v, "backoff") == 0)
        return peer_back_off(r);
    if (strcmp(v, "mark") == 0) {
        r->c->ts_saved = r->c->ts_seen;
        return true;
    }
    if (strcmp(v, "tsgrew") == 0)
        return look_ts_grew(r);
    if (strcmp(v, "drop") == 0)
        return look_drop(r);
    if (strcmp(v, "model") == 0)
        return model_run(r);
    ok = time_verb(r, v, &known);
    if (known)
        return ok;
    ok = user_verb(r, &known);
    if (known)
        return ok;
    return wire_verb(r, 0, 0, 0, false);
}

/* ---- a whole case ---- */

static const char *make_memory(struct run *r)
{
    struct mem_arena_opts opts = {.socket = -1, .landing_bytes = 2 * MEM_LANDING_SLOT};
    static struct err err = {0};
    const struct mem_region *region;

    reactor_bind(r->w.control);
    if (mem_arena_create(&opts, &r->arena, &err) < 0)
        return err.message;
    reactor_bind(r->w.reactor);
    for (uint16_t i = 0; i < MEM_REGION_MAX && !r->memory; i++) {
        region = mem_region_get(i);
        if (region && region->part == MEM_LANDING) {
            r->memory = region->base;
            r->region = i;
        }
    }
    if (!r->memory)
        return "no landing memory";
    /* Without a pool, as one piece: what is in no pool is poisoned under ASan. */
    asan_unpoison(r->memory, 2 * MEM_LANDING_SLOT);
    for (size_t i = 0; i < 2 * MEM_LANDING_SLOT; i++)
        r->memory[i] = pattern_at(i);
    return NULL;
}

static bool prepare(struct run *r)
{
    static const struct sip_key secret = {{0x636f6e666f726d61, 0x6e63652030303031}};
    struct world_opts opts = {.tcp = {.wscale_max = 7, .secret = &secret}};
    const char *wrong;

    for (unsigned i = 0; i < r->cs->lines; i++)
        if (is_setting(&r->cs->line[i]) && !setting(r, &r->cs->line[i], &opts))
            return false;
    r->line = NULL;
    wrong = world_open(&r->w, &opts);
    if (wrong)
        return run_fail(r, "%s", wrong);
    r->world_up = true;
    wrong = make_memory(r);
    if (wrong)
        return run_fail(r, "%s", wrong);
    inet_drops_get(r->w.inet, r->drops_before);
    chan_add(r, "A");
    r->c = &r->chan[0];
    r->event_us = r->w.now_us;
    return true;
}

bool run_case(struct run *r, const struct script_case *cs, bool ip6)
{
    bool ok;

    r->cs = cs;
    r->ip6 = ip6;
    ok = prepare(r);
    for (unsigned i = 0; ok && i < cs->lines; i++) {
        r->line = &cs->line[i];
        ok = do_line(r);
        if (ok && r->w.trouble)
            ok = run_fail(r, "%s", r->w.trouble);
    }
    if (ok && r->w.out) {
        struct world_frame *f = world_take(&r->w);
        char text[512] = "?";
        struct frame_tcp t;
        struct chan *c;

        r->line = NULL;
        if (peer_learn(r, f, &t, &c))
            peer_describe(c, true, &t, text, sizeof(text));
        ok = run_fail(r, "%s: at the end: sent, but no line expects it: %s", cs->file, text);
        free(f);
    }
    if (ok && r->world_up) {
        const char *wrong;

        r->line = NULL;
        user_end(r);
        wrong = world_close(&r->w);
        if (wrong)
            ok = run_fail(r, "%s: after the end: %s", cs->file, wrong);
    }
    return ok;
}
