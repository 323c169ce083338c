/* SPDX-License-Identifier: BSD-3-Clause */
/* Levels, limits, the queue and its thread. */
#include "lib/log/log.h"
#include "lib/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/log/log_internal.h"

#define SOURCES       64 /* that are limited one by one; what else there is shares the last */
#define CLOSE_SECONDS 2
#define TICK_MS       1000 /* how often the file is looked at, and counts are told, at least */

const char *const log_level_names[] = {"debug", "info", "warning", "error", NULL};
const char *const log_module_names[] = {
    "millraced", "config", "rpc", "lnet", "socklnd", "events", "drops", NULL,
};

/* A source, one module and event: a bucket of tokens, one per line. */
struct source {
    enum log_module module;
    char event[32];
    unsigned tokens;
    uint64_t since_ms; /* begin of the interval */
    uint64_t suppressed;
};

/* One per process. Fields without a comment are protected by lock. */
static struct {
    atomic_int level[LOG_MODULES];
    pthread_mutex_t lock;
    pthread_cond_t wake; /* by CLOCK_MONOTONIC */
    pthread_t thread;
    bool open, closing;
    struct log_opts opts;
    struct log_sink sink; /* the thread's, while it runs */
    struct log_queue queue;
    unsigned queued;
    struct source source[SOURCES];
    unsigned sources;
    struct log_stats stats;
    uint64_t lost_told; /* of stats.lost */
} L = {
    .level = {LOG_LEVEL_INFO, LOG_LEVEL_INFO, LOG_LEVEL_INFO, LOG_LEVEL_INFO, LOG_LEVEL_INFO,
              LOG_LEVEL_INFO, LOG_LEVEL_INFO},
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

_Static_assert(sizeof(log_module_names) / sizeof(log_module_names[0]) == LOG_MODULES + 1,
               "a name for each module");
_Static_assert(LOG_MODULES == 7, "a level for each module");

/* ---- names and levels ---- */

const char *log_module_name(enum log_module module)
{
    return log_module_names[module];
}

const char *log_level_name(enum log_level level)
{
    return log_level_names[level];
}

static int find(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int log_module_find(const char *name)
{
    return find(log_module_names, name);
}

int log_level_find(const char *name)
{
    return find(log_level_names, name);
}

void log_level_set(enum log_module module, enum log_level level)
{
    atomic_store_explicit(&L.level[module], (int)level, memory_order_relaxed);
}

enum log_level log_level_get(enum log_module module)
{
    return (enum log_level)atomic_load_explicit(&L.level[module], memory_order_relaxed);
}

void log_stats_get(struct log_stats *out)
{
    pthread_mutex_lock(&L.lock);
    *out = L.stats;
    pthread_mutex_unlock(&L.lock);
}

const char *log_to(void)
{
    switch (L.sink.kind) {
    case LOG_SINK_FILE:
        return L.sink.path;
    case LOG_SINK_JOURNAL:
        return "journald";
    default:
        return "stderr";
    }
}

/* ---- the limit of a source; with the lock ---- */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The last row is for all that have none of their own. */
static struct source *find_source(enum log_module module, const char *event, uint64_t now)
{
    struct source *s;

    for (unsigned i = 0; i < L.sources; i++)
        if (L.source[i].module == module && strcmp(L.source[i].event, event) == 0)
            return &L.source[i];
    if (L.sources == SOURCES)
        return &L.source[SOURCES - 1];
    s = &L.source[L.sources++];
    *s = (struct source){.module = module, .tokens = L.opts.burst, .since_ms = now};
    snprintf(s->event, sizeof(s->event), "%s", L.sources == SOURCES ? "others" : event);
    return s;
}

static void refill(struct source *s, uint64_t now)
{
    uint64_t intervals = (now - s->since_ms) / L.opts.interval_ms;
    uint64_t tokens = s->tokens + intervals * L.opts.refill;

    s->tokens = tokens < L.opts.burst ? (unsigned)tokens : L.opts.burst;
    s->since_ms += intervals * L.opts.interval_ms;
}

static bool allowed(enum log_module module, const char *event)
{
    uint64_t now = now_ms();
    struct source *s = find_source(module, event, now);

    refill(s, now);
    if (s->tokens) {
        s->tokens--;
        return true;
    }
    s->suppressed++;
    L.stats.suppressed++;
    return false;
}

/* ---- the queue ---- */

static struct log_record *make_record(const struct log_line *line)
{
    struct log_buffer b;
    struct log_record *record;
    struct timespec when;
    unsigned fields = 0;

    clock_gettime(CLOCK_REALTIME, &when);
    if (L.sink.kind == LOG_SINK_JOURNAL)
        fields = log_format_journal(&b, line);
    else
        log_format_text(&b, line, L.sink.systemd ? NULL : &when, L.sink.systemd);
    record = malloc(sizeof(*record) + b.len);
    if (!record)
        return NULL;
    *record = (struct log_record){.level = line->level, .len = b.len, .fields = fields};
    memcpy(record->text, b.text, b.len);
    return record;
}

/* With the lock. */
static struct log_record *enqueue(const struct log_line *line)
{
    struct log_record *record = make_record(line);

    if (!record)
        return NULL;
    STAILQ_INSERT_TAIL(&L.queue, record, link);
    L.queued++;
    pthread_cond_signal(&L.wake);
    return record;
}

/* Without a thread: to stderr as it comes. */
static void write_now(const struct log_line *line)
{
    struct log_buffer b;
    struct timespec when;

    clock_gettime(CLOCK_REALTIME, &when);
    log_format_text(&b, line, getenv("JOURNAL_STREAM") ? NULL : &when, false);
    if (write(STDERR_FILENO, b.text, b.len) < 0)
        return;
}

bool log_fields(enum log_level level, enum log_module module, const char *event,
                const struct log_field *fields)
{
    struct log_line line = {level, module, event, fields};
    bool logged = true;

    if (level < log_level_get(module))
        return false;
    pthread_mutex_lock(&L.lock);
    if (!L.open)
        write_now(&line);
    else if (!allowed(module, event))
        logged = false;
    else if (L.queued >= L.opts.queue || !enqueue(&line))
        L.stats.lost++;
    pthread_mutex_unlock(&L.lock);
    return logged;
}

/* ---- counts of what is not there; with the lock ---- */

static void tell_suppressed(struct source *s)
{
    const struct log_field fields[] = {LOG_S("of", s->event), LOG_U("count", s->suppressed), {0}};
    struct log_line line = {LOG_LEVEL_WARNING, s->module, "suppressed", fields};

    if (enqueue(&line))
        s->suppressed = 0;
}

static void tell_lost(uint64_t lost)
{
    const struct log_field fields[] = {LOG_U("count", lost), {0}};
    struct log_line line = {LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "log_lost", fields};
    struct log_record *record = enqueue(&line);

    if (!record)
        return;
    record->lost = lost;
    L.lost_told += lost;
}

/* Logs the counts of sources whose interval has passed; at the end of all sources. The thread
 * calls it before it takes the queue, so these few lines exceed the limit only until then. */
static void tell_counts(bool all)
{
    uint64_t now = now_ms();
    unsigned i;

    for (i = 0; i < L.sources; i++) {
        struct source *s = &L.source[i];

        if (s->suppressed && (all || now - s->since_ms >= L.opts.interval_ms))
            tell_suppressed(s);
    }
    if (L.stats.lost > L.lost_told)
        tell_lost(L.stats.lost - L.lost_told);
}

/* ---- the thread ---- */

static void wait_for_work(void)
{
    unsigned ms = L.opts.interval_ms < TICK_MS ? L.opts.interval_ms : TICK_MS;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (STAILQ_EMPTY(&L.queue) && !L.closing)
        pthread_cond_timedwait(&L.wake, &L.lock, &until);
}

/* Writes a list without the lock and counts in *done. A report of lost lines that could not be
 * written is repeated later. */
static void write_list(struct log_queue *list, struct log_stats *done, uint64_t *untold)
{
    struct log_record *record;

    if (!STAILQ_EMPTY(list))
        log_sink_renew(&L.sink);
    while ((record = STAILQ_FIRST(list))) {
        STAILQ_REMOVE_HEAD(list, link);
        if (log_sink_write(&L.sink, record))
            done->written++;
        else if (record->lost)
            *untold += record->lost;
        else
            done->lost++;
        free(record);
    }
}

/* Takes the queue and writes it. With the lock, which it gives up meanwhile. */
static void write_queue(void)
{
    struct log_queue list = STAILQ_HEAD_INITIALIZER(list);
    struct log_stats done = {0};
    uint64_t untold = 0;

    STAILQ_CONCAT(&list, &L.queue);
    L.queued = 0;
    pthread_mutex_unlock(&L.lock);
    write_list(&list, &done, &untold);
    pthread_mutex_lock(&L.lock);
    L.stats.written += done.written;
    L.stats.lost += done.lost;
    L.lost_told -= untold;
}

static void *run(void *arg)
{
    bool last;

    pthread_mutex_lock(&L.lock);
    do {
        wait_for_work();
        last = L.closing; /* then the queue gets no more lines */
        tell_counts(last);
        write_queue();
    } while (!last);
    pthread_mutex_unlock(&L.lock);
    return NULL;
}

/* ---- life ---- */

static int start_thread(void)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    int rc;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&L.wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&L.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_setname_np(L.thread, "log");
    return -rc;
}

static unsigned or_default(unsigned value, unsigned fallback)
{
    return value ? value : fallback;
}

int log_open(const struct log_opts *opts, struct err *err)
{
    struct log_sink sink;
    int rc = log_sink_open(&sink, opts, err), i;

    if (rc != 0)
        return rc;
    pthread_mutex_lock(&L.lock);
    L.opts = *opts;
    L.opts.queue = or_default(opts->queue, LOG_QUEUE);
    L.opts.burst = or_default(opts->burst, LOG_BURST);
    L.opts.refill = or_default(opts->refill, LOG_REFILL);
    L.opts.interval_ms = or_default(opts->interval_ms, LOG_INTERVAL_MS);
    L.sink = sink;
    STAILQ_INIT(&L.queue);
    L.queued = L.sources = 0;
    L.stats = (struct log_stats){0};
    L.lost_told = 0;
    L.closing = false;
    rc = start_thread();
    L.open = rc == 0;
    pthread_mutex_unlock(&L.lock);
    if (rc != 0) {
        err_text(err, "log: no thread: %s", strerror(-rc));
        log_sink_close(&sink);
        return rc;
    }
    for (i = 0; i < LOG_MODULES; i++)
        log_level_set((enum log_module)i, opts->level);
    return 0;
}

void log_close(void)
{
    struct timespec until;

    pthread_mutex_lock(&L.lock);
    if (!L.open) {
        pthread_mutex_unlock(&L.lock);
        return;
    }
    L.open = false;
    L.closing = true;
    pthread_cond_signal(&L.wake);
    pthread_mutex_unlock(&L.lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_SECONDS;
    /* A thread that is stuck in a write keeps its lines: the process ends. */
    if (pthread_timedjoin_np(L.thread, NULL, &until) != 0)
        return;
    log_sink_close(&L.sink);
    L.sink = (struct log_sink){.kind = LOG_SINK_FD, .fd = STDERR_FILENO};
}
