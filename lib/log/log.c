/* SPDX-License-Identifier: BSD-3-Clause */
/* Levels, limits, the queue and its thread. */
#include "lib/log/log.h"
#include "lib/base/err.h"
#include "lib/base/sip.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/log/log_internal.h"

#define SOURCES       256 /* that are limited one by one; further sources share the last row */
#define GROUPS        16  /* of peers */
#define CLOSE_SECONDS 2
#define TICK_MS       1000 /* longest time between reports of missing lines */

const char *const log_level_names[LOG_LEVELS + 1] = {"debug", "info", "warning", "error"};
const char *const log_module_names[LOG_MODULES + 1] = {
    "millraced", "config", "rpc", "lnet", "socklnd", "events", "drops",
};

/* A source: one module and event, and one group of peers. So a flood about one peer does not hide
 * lines about most others. It has a bucket of tokens, one per line. */
struct source {
    enum log_module module;
    char event[32];
    unsigned group; /* 0: of no peer */
    unsigned tokens;
    uint64_t since_ms; /* start of the interval */
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
    uint64_t lost_logged; /* of stats.lost */
} L = {
    .level = {[0 ... LOG_MODULES - 1] = LOG_LEVEL_INFO},
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

/* ---- levels ---- */

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

/* Returns the group of the peer that a line is about: all of a /24, or an IPv6 /64, have one. */
static unsigned group_of(const struct log_field *field)
{
    static const char *const keys[] = {"nid", "peer", "gateway", "address"};
    const char *text = NULL, *end;

    for (; field->key && !text; field++)
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            if (field->kind == LOG_KIND_STRING && field->string && strcmp(field->key, keys[i]) == 0)
                text = field->string;
    if (!text)
        return 0;
    end = text;
    if (text[strcspn(text, ":@")] == ':')
        for (unsigned i = 0; i < 4; i++)
            end += strcspn(end, ":@") + (end[strcspn(end, ":@")] == ':');
    else
        for (const char *p = text; *p && *p != '@'; p++)
            end = *p == '.' ? p : end;
    if (end == text) /* neither kind of address: each number is a group */
        end += strcspn(text, "@");
    return 1 + sip_bucket(text, (size_t)(end - text)) % GROUPS;
}

/* Sources without a row of their own share the last row. */
static struct source *find_source(enum log_module module, const char *event, unsigned group,
                                  uint64_t now)
{
    struct source *s;

    for (unsigned i = 0; i < L.sources; i++)
        if (L.source[i].module == module && L.source[i].group == group &&
            strcmp(L.source[i].event, event) == 0)
            return &L.source[i];
    if (L.sources == SOURCES)
        return &L.source[SOURCES - 1];
    s = &L.source[L.sources++];
    *s = (struct source){.module = module, .group = group, .tokens = L.opts.burst, .since_ms = now};
    snprintf(s->event, sizeof(s->event), "%s", L.sources == SOURCES ? "others" : event);
    return s;
}

static bool allowed(const struct log_line *line)
{
    uint64_t now = now_ms();
    struct source *s = find_source(line->module, line->event, group_of(line->fields), now);
    uint64_t intervals = (now - s->since_ms) / L.opts.interval_ms;
    uint64_t tokens = s->tokens + intervals * L.opts.refill;

    s->since_ms += intervals * L.opts.interval_ms;
    s->tokens = tokens < L.opts.burst ? (unsigned)tokens : L.opts.burst;
    if (s->tokens) {
        s->tokens--;
        return true;
    }
    s->suppressed++;
    L.stats.suppressed++;
    return false;
}

/* ---- the queue; with the lock ---- */

/* Returns the record of a line, which is in the queue; NULL: out of memory. */
static struct log_record *enqueue(const struct log_line *line)
{
    struct log_record *record;
    struct log_buffer b;
    unsigned fields = 0;

    if (L.sink.kind == LOG_SINK_JOURNAL)
        fields = log_format_journal(&b, line);
    else
        log_format_text(&b, line, !L.sink.systemd, L.sink.systemd);
    record = malloc(sizeof(*record) + b.len);
    if (!record)
        return NULL;
    *record = (struct log_record){.len = b.len, .fields = fields};
    memcpy(record->text, b.text, b.len);
    STAILQ_INSERT_TAIL(&L.queue, record, link);
    L.queued++;
    pthread_cond_signal(&L.wake);
    return record;
}

/* Writes a line to stderr at once, because there is no thread. */
static void write_now(const struct log_line *line)
{
    struct log_buffer b;

    log_format_text(&b, line, !getenv("JOURNAL_STREAM"), false);
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
    else if (!allowed(&line))
        logged = false;
    else if (L.queued >= L.opts.queue || !enqueue(&line))
        L.stats.lost++;
    pthread_mutex_unlock(&L.lock);
    return logged;
}

/* ---- lost and suppressed lines are counted; with the lock ---- */

static struct log_record *log_count(enum log_module module, const char *event, const char *of,
                                    uint64_t count)
{
    const struct log_field fields[] = {LOG_S("of", of), LOG_U("count", count), {0}};

    return enqueue(&(struct log_line){LOG_LEVEL_WARNING, module, event, fields});
}

/* Logs the counts of sources whose interval has passed; with all, of all sources. The thread calls
 * it before it takes the queue, so these few lines exceed the limit only until then. */
static void log_counts(bool all)
{
    uint64_t now = now_ms();
    struct log_record *record;

    for (struct source *s = L.source; s < L.source + L.sources; s++)
        if (s->suppressed && (all || now - s->since_ms >= L.opts.interval_ms) &&
            log_count(s->module, "suppressed", s->event, s->suppressed))
            s->suppressed = 0;
    if (L.stats.lost == L.lost_logged)
        return;
    record = log_count(LOG_MODULE_MILLRACED, "log_lost", NULL, L.stats.lost - L.lost_logged);
    if (record)
        record->lost = L.stats.lost;
}

/* ---- the thread ---- */

static void wait_for_work(void)
{
    unsigned ms = L.opts.interval_ms < TICK_MS ? L.opts.interval_ms : TICK_MS;
    uint64_t until = now_ms() + ms;
    struct timespec at = {(time_t)(until / 1000), (long)(until % 1000) * 1000000};

    if (STAILQ_EMPTY(&L.queue) && !L.closing)
        pthread_cond_timedwait(&L.wake, &L.lock, &at);
}

/* Takes the queue and writes it. With the lock, which it gives up meanwhile. A report of lost lines
 * that could not be written is no lost line: the next report has its count. */
static void write_queue(void)
{
    struct log_queue list = STAILQ_HEAD_INITIALIZER(list);
    struct log_stats done = {0};
    uint64_t logged = L.lost_logged;
    struct log_record *record;

    STAILQ_CONCAT(&list, &L.queue);
    L.queued = 0;
    pthread_mutex_unlock(&L.lock);
    if (!STAILQ_EMPTY(&list))
        log_sink_renew(&L.sink);
    while ((record = STAILQ_FIRST(&list))) {
        STAILQ_REMOVE_HEAD(&list, link);
        if (!log_sink_write(&L.sink, record)) {
            done.lost += !record->lost;
        } else {
            done.written++;
            logged = record->lost ? record->lost : logged;
        }
        free(record);
    }
    pthread_mutex_lock(&L.lock);
    L.stats.written += done.written;
    L.stats.lost += done.lost;
    L.lost_logged = logged;
}

static void *run(void *arg)
{
    bool last;

    pthread_mutex_lock(&L.lock);
    do {
        wait_for_work();
        last = L.closing; /* then the queue gets no more lines */
        log_counts(last);
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

int log_open(const struct log_opts *opts, struct err *err)
{
    struct log_sink sink;
    int rc = log_sink_open(&sink, opts, err);

    if (rc != 0)
        return rc;
    pthread_mutex_lock(&L.lock);
    L.opts = *opts;
    L.opts.queue = opts->queue ? opts->queue : LOG_QUEUE;
    L.opts.burst = opts->burst ? opts->burst : LOG_BURST;
    L.opts.refill = opts->refill ? opts->refill : LOG_REFILL;
    L.opts.interval_ms = opts->interval_ms ? opts->interval_ms : LOG_INTERVAL_MS;
    L.sink = sink;
    STAILQ_INIT(&L.queue);
    L.queued = L.sources = 0;
    L.stats = (struct log_stats){0};
    L.lost_logged = 0;
    L.closing = false;
    rc = start_thread();
    L.open = rc == 0;
    pthread_mutex_unlock(&L.lock);
    if (rc != 0) {
        log_sink_close(&sink);
        return err_set(err, rc, "log: no thread: %s", strerror(-rc));
    }
    for (int i = 0; i < LOG_MODULES; i++)
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
