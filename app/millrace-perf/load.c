/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load: decides what is sent when, from whom to whom, and accounts for each message. All but
 * the last part runs on the engine's home reactor, and everything is sent from one poller.
 *
 * Closed loop: a fixed number of messages is outstanding, and the next message is sent when one is
 * answered. A router that stalls gets fewer messages, and times count from sending. Open loop:
 * messages are due at times that do not depend on answers. A message that cannot be sent when it is
 * due waits in its source's line, and its time counts from when it was due, so that the histogram
 * shows the delay of all messages behind a stall. The program's own lateness is included.
 *
 * A run goes through the phases in order. A message is a struct msg from when it is due until it
 * is answered or given up; its number is the engine's cookie.
 */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>

#define TICK_US        10000
#define PAUSE_NS       100000000ull  /* closed loop, after a message that could not be sent */
#define INTERRUPT_NS   1000000000ull /* what is on the way at a signal gets this long */
#define QUIET_FACTOR   2             /* timeouts without any success end the run */
#define QUIET_MESSAGES 10            /* open loop: … if so many are due in that time */
#define INJECT_EVERY   10            /* PUTs */
#define SLICE_ALIGN    8
#define SPIN_NS        120000ull /* before a message is due: waking up takes about half of this */
#define ROUND_DUE      1024      /* messages of one round of the poller */
#define ROUND_SENT     64

enum phase {
    PHASE_WAIT,   /* for the engine */
    PHASE_RUN,    /* new messages are sent */
    PHASE_DRAIN,  /* waiting for what is due or on the way */
    PHASE_REPORT, /* asking the receivers what they saw */
    PHASE_ENDED,
};

TAILQ_HEAD(msg_list, msg);

struct msg {
    struct perf_msg m;
    uint64_t due_ns, sent_ns;
    TAILQ_ENTRY(msg) link; /* in flight, in the order of sent_ns; or free */
    bool in_flight;        /* given to the engine */
};

struct load {
    struct perf *perf;
    struct perf_engine *engine;
    enum phase phase;
    bool open;
    struct msg *msgs;
    uint32_t nmsgs, fresh; /* from `fresh` on they were never used */
    struct msg_list free, flight;
    uint32_t in_flight;
    struct lines lines;
    struct arrivals arrivals;
    uint64_t due_ns; /* of the next one, open loop */
    struct order order;
    uint64_t sizes, kinds, content, samples; /* states of the generators */
    uint32_t run;
    uint64_t issued; /* messages that were due, or begun */
    uint64_t puts;
    uint64_t stop_ns;      /* nothing new after it, 0 = no limit */
    uint64_t pause_ns;     /* nothing new before it */
    uint64_t last_good_ns; /* last success, or the start */
    uint64_t give_up_ns;   /* PHASE_DRAIN after a signal: end of patience, 0 = none */
    bool stop_was_time;    /* PHASE_DRAIN of a closed loop: what waits need not be sent */
    struct load_results results;
    struct intervals intervals;
    struct reactor_stats before; /* of the home reactor, when the run began */
    struct reactor_poller poller;
    struct reactor_timer tick, interval;
    struct reactor_task start, stop, ended, told;
    uint8_t told_posted;
    bool stop_posted;
};

/* ---- messages ---- */

static struct msg *msg_alloc(struct load *c)
{
    struct msg *msg = TAILQ_FIRST(&c->free);

    if (msg)
        TAILQ_REMOVE(&c->free, msg, link);
    else if (c->fresh < c->nmsgs)
        msg = &c->msgs[c->fresh++];
    return msg;
}

static void msg_free(struct load *c, struct msg *msg)
{
    TAILQ_INSERT_HEAD(&c->free, msg, link);
}

static void flight_remove(struct load *c, struct msg *msg)
{
    msg->in_flight = false;
    TAILQ_REMOVE(&c->flight, msg, link);
    c->in_flight--;
}

/* ---- what is sent ---- */

static uint32_t slice_offset(struct load *c, uint32_t room)
{
    return (uint32_t)random_below(&c->content, (uint64_t)room + 1) / SLICE_ALIGN * SLICE_ALIGN;
}

static bool to_be_checked(struct load *c)
{
    unsigned every = c->perf->opts.verify_every;

    return every == 1 || (every > 1 && random_below(&c->samples, every) == 0);
}

static void put_fill(struct load *c, struct perf_msg *m)
{
    bool inject = c->puts++ % INJECT_EVERY == INJECT_EVERY - 1;

    m->offset = slice_offset(c, PATTERN_SIZE - m->length);
    m->sum = m->verify ? payload_sum(c->perf->pattern + m->offset, m->length) : 0;
    if (c->perf->opts.inject == PERF_INJECT_CORRUPT && inject)
        m->sum ^= 1;
    m->repeat = c->perf->opts.inject == PERF_INJECT_REPEAT && inject;
}

static void get_fill(struct load *c, struct perf_msg *m)
{
    m->window = (unsigned)random_below(&c->content, PATTERN_SOURCES);
    m->offset = slice_offset(c, LNET_MAX_PAYLOAD - m->length);
}

/* A message is due. False: the queue is full. */
static bool msg_due(struct load *c, uint64_t due_ns)
{
    const struct perf_opts *o = &c->perf->opts;
    uint32_t fresh = c->fresh;
    struct msg *msg = msg_alloc(c);
    struct perf_msg before;

    if (!msg)
        return false;
    before = msg->m;
    msg->m = (struct perf_msg){.cookie = (uint64_t)(msg - c->msgs), .run = c->run};
    msg->m.op = kinds_next(&o->kinds, c->issued, &c->kinds);
    msg->m.length = sizes_next(&o->sizes, &c->sizes);
    msg->m.verify = to_be_checked(c);
    if (o->kept_order && !c->open && msg->m.cookie < fresh) {
        msg->m.from = before.from;
        msg->m.to = before.to;
    } else {
        order_next(&c->order, &msg->m.from, &msg->m.to);
    }
    if (msg->m.op == OP_PUT)
        put_fill(c, &msg->m);
    else
        get_fill(c, &msg->m);
    msg->due_ns = due_ns;
    lines_put(&c->lines, msg->m.from, (uint32_t)msg->m.cookie);
    return true;
}

static bool more_wanted(const struct load *c, uint64_t when)
{
    if (c->stop_ns != 0 && when >= c->stop_ns)
        return false;
    return c->issued < (c->perf->opts.count != 0 ? c->perf->opts.count : UINT32_MAX);
}

/* Gives up messages that have waited to be sent for the whole timeout, or that are no longer
 * wanted. */
static void expire_waiting(struct load *c, uint64_t now)
{
    uint64_t timeout = c->perf->opts.timeout_ms * 1000000ull;
    bool interrupted = c->results.interrupted;
    bool none_wanted = c->phase == PHASE_DRAIN && !c->open && c->stop_was_time;

    for (uint32_t s = 0; s < c->lines.sources && c->lines.waiting > 0; s++) {
        uint32_t i;
        while ((i = lines_first(&c->lines, s)) != LINES_NONE) {
            struct op_counters *counters = &c->results.op[c->msgs[i].m.op];
            bool late = now - c->msgs[i].due_ns >= timeout;
            if (!late && !interrupted && !none_wanted)
                break;
            lines_drop(&c->lines, s);
            if (late) {
                count_add(&counters->failed, 1);
                c->results.expired++;
            } else if (c->open) {
                count_add(&counters->unfinished, 1);
            }
            msg_free(c, &c->msgs[i]);
        }
    }
}

static void drain(struct load *c, bool stop_was_time)
{
    c->phase = PHASE_DRAIN;
    c->stop_was_time = stop_was_time;
    expire_waiting(c, perf_now_ns());
}

static int due_open(struct load *c, uint64_t now)
{
    struct load_results *r = &c->results;
    int n = 0;

    while (c->due_ns <= now && n < ROUND_DUE) {
        if (!more_wanted(c, c->due_ns)) {
            drain(c, false);
            break;
        }
        if (!msg_due(c, c->due_ns) && r->overflowed++ == 0)
            r->overflow_ns = now - r->start_ns;
        c->issued++;
        c->due_ns = r->start_ns + arrivals_next(&c->arrivals);
        n++;
    }
    return n;
}

static int due_closed(struct load *c, uint64_t now)
{
    int n = 0;

    while (n < ROUND_DUE && now >= c->pause_ns && more_wanted(c, now) && msg_due(c, now)) {
        c->issued++;
        n++;
    }
    if (!more_wanted(c, now))
        drain(c, c->stop_ns != 0 && now >= c->stop_ns);
    return n;
}

/* ---- sending ---- */

static void not_sent(struct load *c, struct msg *msg, uint64_t now)
{
    count_add(&c->results.op[msg->m.op].failed, 1);
    if (!c->open)
        c->pause_ns = now + PAUSE_NS;
    msg_free(c, msg);
}

/* The message whose turn it is. perf_done() may come for it before send() returns. */
static void send_turn(struct load *c, struct msg *msg)
{
    struct load_results *r = &c->results;
    enum perf_op op = msg->m.op;
    uint64_t now = perf_now_ns(), late = now - msg->due_ns;
    int rc;

    msg->sent_ns = now;
    msg->in_flight = true;
    TAILQ_INSERT_TAIL(&c->flight, msg, link);
    c->in_flight++;
    rc = c->engine->ops->send(c->engine, &msg->m);
    if (rc == -EAGAIN) {
        flight_remove(c, msg);
        lines_block(&c->lines);
        return;
    }
    lines_sent(&c->lines);
    if (rc != 0) {
        flight_remove(c, msg);
        not_sent(c, msg, now);
        return;
    }
    count_add(&r->op[op].sent, 1);
    if (c->open)
        hist_add(&r->wait, late);
}

static int send_waiting(struct load *c, uint64_t now)
{
    uint32_t source, i;
    int n = 0;

    while (n < ROUND_SENT && now >= c->pause_ns &&
           (i = lines_turn(&c->lines, &source)) != LINES_NONE) {
        send_turn(c, &c->msgs[i]);
        n++;
    }
    return n;
}

/* ---- answers ---- */

void perf_done(struct perf_engine *e, uint64_t cookie, const struct perf_end *end)
{
    struct load *c = e->perf->load;
    struct load_results *r = &c->results;
    struct op_counters *counters;
    struct msg *msg;

    if (cookie >= c->nmsgs || !c->msgs[cookie].in_flight)
        return;
    msg = &c->msgs[cookie];
    counters = &r->op[msg->m.op];
    flight_remove(c, msg);
    if (end->status != 0 && end->unsent) {
        not_sent(c, msg, end->when_ns);
        return;
    }
    if (end->status != 0) {
        count_add(&counters->lost, 1);
    } else if (end->check == PERF_ALTERED || end->length != msg->m.length) {
        count_add(&counters->altered, 1);
    } else {
        uint64_t took = end->when_ns - (c->open ? msg->due_ns : msg->sent_ns);
        count_add(&counters->done, 1);
        count_add(&counters->bytes, msg->m.length);
        if (c->phase == PHASE_RUN)
            r->source_bytes[msg->m.from] += msg->m.length;
        r->checked += msg->m.verify;
        hist_add(&r->rtt[msg->m.op], took);
        hist_add(&c->intervals.hist, took);
        c->last_good_ns = end->when_ns;
    }
    r->end_ns = end->when_ns;
    msg_free(c, msg);
}

void perf_room(struct perf_engine *e, uint32_t from)
{
    struct load *c = e->perf->load;

    if (from == PERF_ALL_SOURCES)
        lines_room_all(&c->lines);
    else
        lines_room(&c->lines, from);
}

/* ---- intervals ---- */

static void interval_told(struct reactor_task *task)
{
    struct load *c = container_of(task, struct load, told);

    __atomic_store_n(&c->told_posted, 0, __ATOMIC_RELEASE);
    report_interval(c->perf);
}

static void interval_end(struct load *c, uint64_t now)
{
    const struct load_results *r = &c->results;
    struct interval_counts t = {.waiting = c->lines.waiting, .in_flight = c->in_flight};

    for (int op = 0; op < OP_KINDS; op++) {
        t.done[op] = r->op[op].done;
        t.bytes += r->op[op].bytes;
        t.bad += r->op[op].lost + r->op[op].altered + r->op[op].failed;
    }
    interval_close(&c->intervals, now - r->start_ns, &t);
    if (__atomic_exchange_n(&c->told_posted, 1, __ATOMIC_ACQ_REL) == 0) {
        c->told.fn = interval_told;
        reactor_post(reactor_control(c->perf->env), &c->told);
    }
}

static void interval_tick(struct reactor_timer *timer)
{
    struct load *c = container_of(timer, struct load, interval);

    reactor_timer_arm(&c->interval, c->perf->opts.interval_us);
    interval_end(c, perf_now_ns());
}

/* ---- the end of a run ---- */

static void load_ended(struct reactor_task *task)
{
    struct load *c = container_of(task, struct load, ended);

    perf_load_ended(c->perf);
}

/* All messages are answered or given up: what was done while they moved. */
static void run_over(struct load *c)
{
    struct load_results *r = &c->results;
    uint64_t now = perf_now_ns();
    struct reactor_stats stats;

    reactor_stats_get(c->engine->home, &stats);
    r->busy_cycles = stats.busy_cycles - c->before.busy_cycles;
    r->total_cycles = stats.total_cycles - c->before.total_cycles;
    r->hz = stats.hz;
    r->waiting_most = c->lines.most;
    reactor_timer_cancel(&c->interval);
    if (now - r->start_ns > c->intervals.from_ns)
        interval_end(c, now);
}

static void finish(struct load *c)
{
    c->phase = PHASE_ENDED;
    reactor_timer_cancel(&c->tick);
    reactor_poller_del(c->engine->home, &c->poller);
    c->ended.fn = load_ended;
    reactor_post(reactor_control(c->perf->env), &c->ended);
}

void perf_collected(struct perf_engine *e, bool have, const struct run_report *sum)
{
    struct load *c = e->perf->load;

    if (c->phase != PHASE_REPORT)
        return;
    c->results.have_report = have;
    if (sum)
        c->results.report = *sum;
    finish(c);
}

/* Asks the receivers for their records; without PUTs there are none. */
static void collect(struct load *c)
{
    unsigned patience = c->perf->opts.timeout_ms;

    run_over(c);
    c->phase = PHASE_REPORT;
    if (c->results.op[OP_PUT].sent == 0) {
        finish(c);
        return;
    }
    c->results.want_report = true;
    if (c->results.interrupted && patience > INTERRUPT_NS / 1000000)
        patience = INTERRUPT_NS / 1000000;
    c->engine->ops->collect(c->engine, c->run, patience);
}

/* ---- the poller ---- */

/* How long the reactor may sleep: answers, room and timers wake it, but not that a message is due.
 */
static uint64_t sleep_us(const struct load *c)
{
    uint64_t now;
    uint32_t source;

    if (lines_turn(&c->lines, &source) != LINES_NONE && c->pause_ns == 0)
        return 0;
    if (!c->open || c->phase != PHASE_RUN)
        return UINT64_MAX;
    now = perf_now_ns();
    return c->due_ns <= now + SPIN_NS ? 0 : (c->due_ns - now - SPIN_NS) / 1000;
}

static int load_poll(void *arg)
{
    struct load *c = arg;
    uint64_t now = perf_now_ns();
    int did = 0;

    if (c->phase == PHASE_RUN)
        did += c->open ? due_open(c, now) : due_closed(c, now);
    if (c->phase == PHASE_RUN || c->phase == PHASE_DRAIN)
        did += send_waiting(c, now);
    if (c->phase == PHASE_DRAIN && c->in_flight == 0 && c->lines.waiting == 0) {
        collect(c);
        did++;
    }
    c->poller.max_sleep_us = sleep_us(c);
    return did;
}

/* ---- time ---- */

static void give_up(struct load *c, struct msg *msg, uint64_t *counter)
{
    count_add(counter, 1);
    c->engine->ops->cancel(c->engine, msg->m.cookie);
    flight_remove(c, msg);
    msg_free(c, msg);
}

static void expire_flight(struct load *c, uint64_t now)
{
    uint64_t timeout = c->perf->opts.timeout_ms * 1000000ull;
    bool patience_over = c->give_up_ns != 0 && now >= c->give_up_ns;
    struct msg *msg;

    while ((msg = TAILQ_FIRST(&c->flight))) {
        struct op_counters *counters = &c->results.op[msg->m.op];
        if (now - msg->sent_ns >= timeout)
            give_up(c, msg, &counters->lost);
        else if (patience_over)
            give_up(c, msg, &counters->unfinished);
        else
            break;
    }
}

static void check_quiet(struct load *c, uint64_t now)
{
    uint64_t quiet = QUIET_FACTOR * 1000000ull * c->perf->opts.timeout_ms;

    if (c->phase != PHASE_RUN || now - c->last_good_ns < quiet)
        return;
    if (c->open && c->perf->opts.rate * (double)quiet / 1e9 < QUIET_MESSAGES)
        return; /* too little was asked for to say so */
    snprintf(c->results.trouble, sizeof(c->results.trouble),
             "gave up: no message got through for %.1f s", (double)quiet / 1e9);
    drain(c, true);
}

static void load_tick(struct reactor_timer *timer)
{
    struct load *c = container_of(timer, struct load, tick);
    uint64_t now = perf_now_ns();

    reactor_timer_arm(&c->tick, TICK_US);
    if (c->phase != PHASE_RUN && c->phase != PHASE_DRAIN)
        return;
    if (now >= c->pause_ns)
        c->pause_ns = 0;
    expire_flight(c, now);
    expire_waiting(c, now);
    check_quiet(c, now);
}

static void load_stop(struct reactor_task *task)
{
    struct load *c = container_of(task, struct load, stop);
    uint64_t now = perf_now_ns();

    if (c->phase == PHASE_ENDED)
        return;
    c->results.interrupted = true;
    c->give_up_ns = now + INTERRUPT_NS;
    if (c->phase == PHASE_RUN)
        drain(c, true);
    else if (c->phase == PHASE_DRAIN)
        expire_waiting(c, now);
}

static void load_start(struct reactor_task *task)
{
    struct load *c = container_of(task, struct load, start);
    struct load_results *r = &c->results;
    uint64_t now = perf_now_ns();

    r->start_ns = r->end_ns = c->last_good_ns = now;
    if (c->perf->opts.duration_us != 0)
        c->stop_ns = now + c->perf->opts.duration_us * 1000;
    if (c->open)
        c->due_ns = now + arrivals_next(&c->arrivals);
    reactor_stats_get(c->engine->home, &c->before);
    reactor_timer_init(&c->tick, load_tick);
    reactor_timer_arm(&c->tick, TICK_US);
    reactor_timer_init(&c->interval, interval_tick);
    reactor_timer_arm(&c->interval, c->perf->opts.interval_us);
    c->poller = (struct reactor_poller){.fn = load_poll, .arg = c};
    reactor_poller_add(c->engine->home, &c->poller);
}

/* ---- control thread ---- */

static int load_alloc(struct load *c)
{
    const struct perf_opts *o = &c->perf->opts;

    c->nmsgs = c->open ? o->queue + o->inflight : o->inflight;
    c->msgs = calloc(c->nmsgs, sizeof(*c->msgs)); /* untouched pages cost nothing */
    c->results.source_bytes = calloc(c->engine->sources, sizeof(uint64_t));
    if (!c->msgs || !c->results.source_bytes)
        return -ENOMEM;
    return lines_init(&c->lines, c->engine->sources, c->nmsgs);
}

static void load_seed(struct load *c)
{
    const struct perf_opts *o = &c->perf->opts;

    c->sizes = seed_state(o->seed, SEED_SIZES);
    c->kinds = seed_state(o->seed, SEED_KINDS);
    c->content = seed_state(o->seed, SEED_CONTENT);
    c->samples = seed_state(o->seed, SEED_SAMPLES);
    order_init(&c->order, o->random_order, c->engine->sources, c->engine->targets, o->seed);
    if (c->open)
        arrivals_init(&c->arrivals, o->arrivals, o->rate, o->seed);
}

int load_new(struct perf *p)
{
    struct load *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    p->load = c;
    c->perf = p;
    c->engine = p->engine;
    c->open = p->opts.rate > 0;
    TAILQ_INIT(&c->free);
    TAILQ_INIT(&c->flight);
    if (load_alloc(c) != 0)
        return -ENOMEM;
    /* A number that no earlier run had, also with the same seed: receivers distinguish runs by it.
     */
    if (getrandom(&c->run, sizeof(c->run), 0) != sizeof(c->run))
        return -EIO;
    c->run &= MATCH_RUN_MASK;
    if (!p->opts.seed_set && getrandom(&p->opts.seed, 4, 0) != 4)
        return -EIO;
    load_seed(c);
    return 0;
}

void load_begin(struct load *c, int error, const char *why, unsigned unanswered)
{
    c->results.pings_lost = unanswered;
    if (c->phase == PHASE_ENDED)
        return; /* interrupted meanwhile */
    if (error != 0) {
        snprintf(c->results.trouble, sizeof(c->results.trouble), "%s", why);
        c->phase = PHASE_ENDED;
        perf_load_ended(c->perf);
        return;
    }
    c->phase = PHASE_RUN;
    c->start.fn = load_start;
    reactor_post(c->engine->home, &c->start);
}

/* Until load_begin() the phase is the control thread's. */
void load_interrupt(struct load *c)
{
    if (c->phase == PHASE_WAIT) {
        c->phase = PHASE_ENDED;
        c->results.interrupted = true;
        perf_load_ended(c->perf);
    } else if (!c->stop_posted) {
        c->stop_posted = true;
        c->stop.fn = load_stop;
        reactor_post(c->engine->home, &c->stop);
    }
}

void load_free(struct load *c)
{
    if (!c)
        return;
    lines_fini(&c->lines);
    free(c->msgs);
    free(c->results.source_bytes);
    free(c);
}

const struct load_results *load_results(const struct load *c)
{
    return &c->results;
}

bool load_interval(struct load *c, struct interval *out)
{
    return interval_take(&c->intervals, out);
}
