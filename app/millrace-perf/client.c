/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client: keeps a number of PUTs and GETs on the way to one node until a count or a time is
 * reached, and accounts for each. The control thread pings the target first, so that connections
 * and routes are there before anything is measured; the rest runs on the node's home reactor.
 *
 * A run goes through the phases in order. Each message is one `op`, which owns its MD and memory.
 */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define TICK_US       10000
#define PAUSE_NS      100000000ull /* after a message that could not be sent */
#define PING_MS       1000         /* one attempt */
#define PING_RETRY_US 100000
#define INTERRUPT_NS  1000000000ull /* what is on the way at a signal gets this long */
#define QUIET_FACTOR  2             /* timeouts without any success end the run */
#define INJECT_EVERY  10            /* messages */
#define SLICE_ALIGN   8

enum phase {
    PHASE_PING,   /* waiting for the target to answer */
    PHASE_RUN,    /* new messages are sent */
    PHASE_DRAIN,  /* waiting for what is on the way */
    PHASE_REPORT, /* asking the receiver what it saw */
    PHASE_ENDED,
};

enum op_state {
    OP_FREE,     /* in the free list */
    OP_BUSY,     /* sent, no answer yet */
    OP_ANSWERED, /* counted; LNet still has the MD */
    OP_RETIRED,  /* given up and counted; LNet still has the MD */
};

#define OP_REPORT OP_KINDS /* third kind of op, one of its own */

struct op {
    struct client *client;
    struct op *next;
    struct lnet_md md;
    struct mem_seg seg;
    enum op_state state;
    int kind;
    uint32_t size;
    const uint8_t *expect; /* GET: what must come */
    uint8_t *buffer;       /* GET: where it comes */
    uint64_t start_ns;
};

struct client {
    struct perf *perf;
    struct lnet_eq eq;
    enum phase phase;
    struct op *ops;
    unsigned nops;
    struct op *free_ops;
    struct op report_op;
    uint8_t report_memory[RUN_REPORT_SIZE];
    uint8_t *memory; /* of GETs */
    unsigned busy;   /* ops in OP_BUSY */
    bool issuing;
    uint64_t random;
    uint32_t run;
    uint64_t issued;
    uint32_t put_seq;
    uint64_t stop_ns;      /* nothing new after it, 0 = no limit */
    uint64_t pause_ns;     /* nothing new before it */
    uint64_t last_good_ns; /* last success, or the start */
    uint64_t give_up_ns;   /* PHASE_DRAIN after a signal, PHASE_REPORT: end of patience, 0 = none */
    struct client_results results;
    struct reactor_timer tick;
    struct reactor_task start, stop, ended;
    bool stop_posted;
    /* control thread */
    struct reactor_timer ping_timer;
    uint64_t ping_until_ns;
    bool pinging;
};

static void client_progress(struct client *c);

/* ---- ops ---- */

static void op_release(struct op *op)
{
    op->state = OP_FREE;
    if (op->kind == OP_REPORT)
        return;
    op->next = op->client->free_ops;
    op->client->free_ops = op;
}

static void op_leave_busy(struct op *op, enum op_state state)
{
    op->state = state;
    op->client->busy--;
}

static bool reply_good(const struct op *op, const struct lnet_event *ev)
{
    if (ev->mlength != op->size)
        return false;
    if (op->kind != OP_GET || !op->client->perf->opts.verify || op->size == 0)
        return true;
    return memcmp(op->buffer, op->expect, op->size) == 0;
}

static void report_answered(struct client *c, const struct lnet_event *ev)
{
    c->results.have_report = ev->status == 0 && run_report_decode(c->report_memory, ev->mlength,
                                                                  &c->results.report) == 0;
}

static void op_answered(struct op *op, const struct lnet_event *ev)
{
    struct client *c = op->client;
    struct op_counters *counters;
    uint64_t now = perf_now_ns();

    op_leave_busy(op, OP_ANSWERED);
    if (op->kind == OP_REPORT) {
        report_answered(c, ev);
        return;
    }
    counters = &c->results.op[op->kind];
    if (ev->status != 0) {
        counter_add(&counters->lost, 1);
    } else if (!reply_good(op, ev)) {
        counter_add(&counters->altered, 1);
    } else {
        counter_add(&counters->done, 1);
        counter_add(&counters->bytes, op->size);
        hist_add(&c->results.rtt[op->kind], now - op->start_ns);
        c->last_good_ns = now;
    }
    c->results.end_ns = now;
}

/* Stops waiting for an answer; the op comes back when LNet is through with it. */
static void op_retire(struct op *op, uint64_t *counter)
{
    op_leave_busy(op, OP_RETIRED);
    if (counter != NULL)
        counter_add(counter, 1);
    lnet_md_unlink(&op->md); /* may release op at once */
}

static void op_send_failed(struct op *op, const struct lnet_event *ev)
{
    struct client *c = op->client;

    if (op->kind != OP_REPORT)
        counter_add(&c->results.op[op->kind].failed, 1);
    c->pause_ns = perf_now_ns() + PAUSE_NS;
    op_leave_busy(op, OP_RETIRED);
    if (!ev->unlinked)
        lnet_md_unlink(&op->md);
}

static void client_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct op *op = md->user;
    struct client *c = op->client;
    bool unlinked = ev->unlinked;

    if (op->state == OP_BUSY && (ev->type == LNET_EVENT_ACK || ev->type == LNET_EVENT_REPLY))
        op_answered(op, ev);
    else if (op->state == OP_BUSY && ev->type == LNET_EVENT_SEND && ev->status != 0)
        op_send_failed(op, ev);
    if (unlinked)
        op_release(op);
    client_progress(c);
}

/* ---- sending ---- */

static uint32_t slice_offset(struct client *c, uint32_t room)
{
    return (uint32_t)(payload_random(&c->random) % ((uint64_t)room + 1)) / SLICE_ALIGN *
           SLICE_ALIGN;
}

static int op_bind(struct op *op, uint8_t *addr, uint32_t size)
{
    memset(&op->md, 0, sizeof(op->md));
    op->seg = (struct mem_seg){addr, size, MEM_REGION_NONE, 0};
    op->size = size;
    op->md.segs = &op->seg;
    op->md.nsegs = size > 0;
    op->md.length = size;
    op->md.threshold = 2; /* the message and its answer */
    op->md.eq = &op->client->eq;
    op->md.user = op;
    return lnet_md_bind(op->client->perf->node, &op->md);
}

/* Entered with the MD bound: from here on events may come, even before this returns. */
static void op_begin(struct op *op)
{
    op->state = OP_BUSY;
    op->start_ns = perf_now_ns();
    op->client->busy++;
}

static int put_send(struct client *c, struct op *op, uint32_t size)
{
    const struct perf_opts *o = &c->perf->opts;
    struct match match = {MATCH_PUT, o->verify, c->run, c->put_seq};
    uint8_t *data = c->perf->pattern + slice_offset(c, PATTERN_SIZE - size);
    bool inject = c->put_seq % INJECT_EVERY == INJECT_EVERY - 1;
    uint64_t sum = o->verify ? payload_sum(data, size) : 0;
    int rc = op_bind(op, data, size);

    if (rc != 0)
        return rc;
    if (o->inject == PERF_INJECT_CORRUPT && inject)
        sum ^= 1;
    if (o->inject == PERF_INJECT_REPEAT && inject)
        match.seq--;
    op_begin(op);
    rc = lnet_put(&op->md, true, &LNET_NID_ANY, &o->target, LNET_PID_LUSTRE, LNET_PORTAL_RPC,
                  match_pack(&match), 0, sum);
    c->put_seq += rc == 0;
    return rc;
}

static int get_send(struct client *c, struct op *op, uint32_t size)
{
    const struct perf_opts *o = &c->perf->opts;
    struct match match = {MATCH_GET, payload_random(&c->random) % PATTERN_SOURCES, c->run,
                          (uint32_t)c->issued};
    uint32_t offset = slice_offset(c, LNET_MAX_PAYLOAD - size);
    int rc = op_bind(op, op->buffer, size);

    if (rc != 0)
        return rc;
    op->expect = c->perf->pattern + pattern_source_offset(match.source) + offset;
    op_begin(op);
    return lnet_get(&op->md, &LNET_NID_ANY, &o->target, LNET_PID_LUSTRE, LNET_PORTAL_RPC,
                    match_pack(&match), offset);
}

/* A message that LNet did not take. Without memory it is tried again, else it counts as failed. */
static void send_refused(struct client *c, struct op *op, int kind, int error)
{
    if (error != -ENOMEM) {
        counter_add(&c->results.op[kind].failed, 1);
        c->issued++;
        c->pause_ns = perf_now_ns() + PAUSE_NS;
    }
    if (op->state == OP_BUSY)
        op_retire(op, NULL);
    else
        op_release(op);
}

static int kind_next(const struct client *c)
{
    if (c->perf->opts.command == PERF_BOTH)
        return c->issued & 1 ? OP_GET : OP_PUT;
    return c->perf->opts.command == PERF_GET ? OP_GET : OP_PUT;
}

static bool issue_one(struct client *c)
{
    struct op *op = c->free_ops;
    uint32_t size = sizes_next(&c->perf->opts.sizes, &c->random);
    int rc;

    c->free_ops = op->next;
    op->kind = kind_next(c);
    rc = op->kind == OP_PUT ? put_send(c, op, size) : get_send(c, op, size);
    if (rc != 0) {
        send_refused(c, op, op->kind, rc);
        return false;
    }
    counter_add(&c->results.op[op->kind].sent, 1);
    c->issued++;
    return true;
}

static bool more_wanted(const struct client *c, uint64_t now)
{
    if (c->stop_ns != 0 && now >= c->stop_ns)
        return false;
    return c->issued < (c->perf->opts.count != 0 ? c->perf->opts.count : UINT32_MAX);
}

static void issue(struct client *c)
{
    uint64_t now = perf_now_ns();

    c->issuing = true;
    while (c->free_ops != NULL && now >= c->pause_ns && more_wanted(c, now) && issue_one(c))
        now = perf_now_ns();
    c->issuing = false;
    if (!more_wanted(c, now))
        c->phase = PHASE_DRAIN;
}

/* ---- end of a run ---- */

/* Asks the receiver for its record; without PUTs there is none. */
static void report_ask(struct client *c)
{
    struct op *op = &c->report_op;
    struct match match = {MATCH_REPORT, 0, c->run, 0};
    uint64_t patience = c->perf->opts.timeout_ms * 1000000ull;

    c->phase = PHASE_REPORT;
    if (c->results.op[OP_PUT].sent == 0)
        return;
    c->results.want_report = true;
    if (c->results.interrupted && patience > INTERRUPT_NS)
        patience = INTERRUPT_NS;
    c->give_up_ns = perf_now_ns() + patience;
    if (op_bind(op, c->report_memory, sizeof(c->report_memory)) != 0)
        return;
    op_begin(op);
    if (lnet_get(&op->md, &LNET_NID_ANY, &c->perf->opts.target, LNET_PID_LUSTRE, LNET_PORTAL_RPC,
                 match_pack(&match), 0) != 0)
        op_retire(op, NULL);
}

static void client_ended(struct reactor_task *task)
{
    struct client *c = PERF_OUTER(task, struct client, ended);

    perf_client_ended(c->perf);
}

static void client_finish(struct client *c)
{
    c->phase = PHASE_ENDED;
    reactor_timer_cancel(&c->tick);
    c->ended.fn = client_ended;
    reactor_post(reactor_control(c->perf->env), &c->ended);
}

/* Does whatever can be done now. Not entered again from within issue(). */
static void client_progress(struct client *c)
{
    if (c->issuing)
        return;
    if (c->phase == PHASE_RUN)
        issue(c);
    if (c->phase == PHASE_DRAIN && c->busy == 0) {
        c->issuing = true;
        report_ask(c);
        c->issuing = false;
    }
    if (c->phase == PHASE_REPORT && c->busy == 0)
        client_finish(c);
}

/* ---- time ---- */

static void expire(struct client *c, uint64_t now)
{
    uint64_t timeout = c->perf->opts.timeout_ms * 1000000ull;
    bool give_up = c->give_up_ns != 0 && now >= c->give_up_ns;

    for (unsigned i = 0; i < c->nops; i++) {
        struct op *op = &c->ops[i];
        if (op->state != OP_BUSY)
            continue;
        if (now - op->start_ns >= timeout)
            op_retire(op, &c->results.op[op->kind].lost);
        else if (give_up)
            op_retire(op, &c->results.op[op->kind].unfinished);
    }
    if (give_up && c->report_op.state == OP_BUSY)
        op_retire(&c->report_op, NULL);
}

static void check_quiet(struct client *c, uint64_t now)
{
    uint64_t quiet = QUIET_FACTOR * 1000000ull * c->perf->opts.timeout_ms;

    if (c->phase != PHASE_RUN || now - c->last_good_ns < quiet)
        return;
    snprintf(c->results.trouble, sizeof(c->results.trouble),
             "gave up: no message got through for %.1f s", (double)quiet / 1e9);
    c->phase = PHASE_DRAIN;
}

static void client_tick(struct reactor_timer *timer)
{
    struct client *c = PERF_OUTER(timer, struct client, tick);
    uint64_t now = perf_now_ns();

    reactor_timer_arm(&c->tick, TICK_US);
    c->issuing = true; /* events while we walk over the ops start nothing new */
    expire(c, now);
    check_quiet(c, now);
    c->issuing = false;
    client_progress(c);
}

static void client_stop(struct reactor_task *task)
{
    struct client *c = PERF_OUTER(task, struct client, stop);

    if (c->phase == PHASE_ENDED)
        return;
    c->results.interrupted = true;
    if (c->phase == PHASE_RUN)
        c->phase = PHASE_DRAIN;
    c->give_up_ns = perf_now_ns() + INTERRUPT_NS;
    client_progress(c);
}

static void client_start(struct reactor_task *task)
{
    struct client *c = PERF_OUTER(task, struct client, start);
    uint64_t now = perf_now_ns();

    c->results.start_ns = c->results.end_ns = c->last_good_ns = now;
    if (c->perf->opts.duration_us != 0)
        c->stop_ns = now + c->perf->opts.duration_us * 1000;
    c->phase = PHASE_RUN;
    reactor_timer_init(&c->tick, client_tick);
    reactor_timer_arm(&c->tick, TICK_US);
    client_progress(c);
}

/* ---- control thread ---- */

static void client_ping(struct reactor_timer *timer);

static void ping_failed(struct client *c, int error)
{
    if (perf_now_ns() < c->ping_until_ns) {
        reactor_timer_arm(&c->ping_timer, PING_RETRY_US);
        return;
    }
    c->pinging = false;
    snprintf(c->results.trouble, sizeof(c->results.trouble),
             "the target does not answer a ping: %s", strerror(-error));
    perf_client_ended(c->perf);
}

static void ping_answer(void *arg, int status, const struct lnet_ping_info *info)
{
    struct client *c = arg;

    if (!c->pinging)
        return; /* interrupted */
    if (status != 0) {
        c->results.pings_lost++;
        ping_failed(c, status);
        return;
    }
    c->pinging = false;
    c->start.fn = client_start;
    reactor_post(lnet_node_home(c->perf->node), &c->start);
}

static void client_ping(struct reactor_timer *timer)
{
    struct client *c = PERF_OUTER(timer, struct client, ping_timer);
    int rc =
        lnet_ping(c->perf->node, &c->perf->opts.target, &LNET_NID_ANY, PING_MS, ping_answer, c);

    if (rc != 0)
        ping_failed(c, rc);
}

static int client_alloc(struct client *c, const struct perf_opts *o)
{
    uint32_t room = o->command == PERF_PUT ? 0 : (sizes_max(&o->sizes) + 63) / 64 * 64;

    c->nops = o->inflight;
    c->ops = calloc(c->nops, sizeof(*c->ops));
    c->memory = aligned_alloc(64, (size_t)c->nops * room + 64);
    if (c->ops == NULL || c->memory == NULL)
        return -ENOMEM;
    for (unsigned i = c->nops; i > 0; i--) {
        struct op *op = &c->ops[i - 1];
        op->client = c;
        op->buffer = c->memory + (size_t)(i - 1) * room;
        op_release(op);
    }
    c->report_op.client = c;
    c->report_op.kind = OP_REPORT;
    return 0;
}

int client_begin(struct perf *p)
{
    struct client *c = calloc(1, sizeof(*c));
    uint64_t seed;

    if (c == NULL)
        return -ENOMEM;
    p->client = c;
    c->perf = p;
    c->eq = (struct lnet_eq){client_event, c};
    if (client_alloc(c, &p->opts) != 0)
        return -ENOMEM;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return -EIO;
    c->random = seed | 1;
    c->run = (uint32_t)(seed >> 32) & MATCH_RUN_MASK;
    c->ping_until_ns = perf_now_ns() + p->opts.timeout_ms * 1000000ull;
    c->pinging = true;
    reactor_timer_init(&c->ping_timer, client_ping);
    client_ping(&c->ping_timer);
    return 0;
}

void client_interrupt(struct client *c)
{
    if (c->pinging) {
        c->pinging = false;
        reactor_timer_cancel(&c->ping_timer);
        c->results.interrupted = true;
        perf_client_ended(c->perf);
    } else if (!c->stop_posted) {
        c->stop_posted = true;
        c->stop.fn = client_stop;
        reactor_post(lnet_node_home(c->perf->node), &c->stop);
    }
}

void client_free(struct client *c)
{
    if (c == NULL)
        return;
    free(c->memory);
    free(c->ops);
    free(c);
}

const struct op_counters *client_counters(const struct client *c, int kind)
{
    return &c->results.op[kind];
}

const struct client_results *client_results(const struct client *c)
{
    return &c->results;
}
