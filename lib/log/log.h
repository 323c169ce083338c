/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log of the process: events with named fields, to stderr, a file or journald.
 *
 * The calling thread formats the line and puts it into a bounded queue; the log's own thread
 * writes it. So a full pipe or a slow disk delays no caller: lines that do not fit are counted,
 * and the count is logged when there is room again. A source that repeats itself is limited; its
 * suppressed lines are counted likewise. Any thread may log but a reactor (it takes a lock and
 * memory).
 *
 * A line is `[time] level module event=NAME key=value …`. A value with anything but letters,
 * digits and plain punctuation stands in double quotes. The escapes in quotes are `\"`, `\\`,
 * `\n`, `\t`, `\r`, `\xNN` (a byte that is no text) and `\uNNNN` (a character that is invisible
 * or changes the direction). So no value can look like another field or line. In the journal each
 * field is one of MILLRACE_KEY.
 */
#ifndef MILLRACE_LOG_H
#define MILLRACE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum log_level {
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_ERROR,
    LOG_LEVELS
};

enum log_module {
    LOG_MODULE_MILLRACED, /* the process: start, stop, signals */
    LOG_MODULE_CONFIG,    /* what changed in the configuration, and who did it */
    LOG_MODULE_RPC,       /* clients of the socket */
    LOG_MODULE_LNET,
    LOG_MODULE_SOCKLND,
    LOG_MODULE_EVENTS, /* what events_subscribe tells */
    LOG_MODULE_DROPS,  /* messages refused and dropped */
    LOG_MODULES
};

#define LOG_VALUE_MAX 512 /* bytes of a value; longer ones end in "..." */
#define LOG_LINE_MAX  4096

/* Defaults of struct log_opts. */
#define LOG_QUEUE       2048  /* lines */
#define LOG_BURST       20    /* lines of one source (module and event) at once */
#define LOG_REFILL      10    /* … and so many more … */
#define LOG_INTERVAL_MS 10000 /* … in each interval */

struct iovec;

struct log_opts {
    const char *to;       /* "stderr", "journald" or the path of a file; NULL = stderr */
    enum log_level level; /* of all modules */
    /* 0 = default */
    unsigned queue, burst, refill, interval_ms;
    /* For tests: instead of file descriptor 2; instead of sd_journal_sendv(). */
    int fd;
    int (*journal)(const struct iovec *fields, int n);
};

struct log_stats {
    uint64_t written;    /* lines handed to the system */
    uint64_t suppressed; /* by the limit of their source */
    uint64_t lost;       /* the queue was full, or the file could not be written */
};

/* ---- life; one thread ---- */

/* Starts the thread. Before it, and after log_close(), lines of level info and above go to stderr
 * at once. 0 or -errno with a sentence that names the remedy; then nothing has changed. */
int log_open(const struct log_opts *opts, struct err *err);
/* Writes what waits, for up to 2 s, and ends the thread. */
void log_close(void);
/* Where it goes: "stderr", "journald" or a path. */
const char *log_to(void);

/* ---- levels; any thread ---- */

void log_level_set(enum log_module module, enum log_level level);
enum log_level log_level_get(enum log_module module);
extern const char *const log_level_names[LOG_LEVELS + 1]; /* ends with NULL */
extern const char *const log_module_names[LOG_MODULES + 1];

void log_stats_get(struct log_stats *out);

/* ---- logging ---- */

enum log_kind {
    LOG_KIND_STRING,
    LOG_KIND_INTEGER,
    LOG_KIND_UNSIGNED
};

struct log_field {
    const char *key; /* lower case letters, digits and '_' */
    enum log_kind kind;
    const char *string; /* NULL: the field is left out */
    int64_t integer;
    uint64_t number;
};

#define LOG_S(name, text)  ((struct log_field){(name), LOG_KIND_STRING, .string = (text)})
#define LOG_I(name, value) ((struct log_field){(name), LOG_KIND_INTEGER, .integer = (value)})
#define LOG_U(name, value) ((struct log_field){(name), LOG_KIND_UNSIGNED, .number = (value)})

/* log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "ni", LOG_S("nid", nid), LOG_I("credits", 8)): event
 * is a name of ours. False: below the level, or suppressed (and counted). */
#define log_event(level, module, event, ...)                                                       \
    log_fields(level, module, event, (const struct log_field[]){{0}, ##__VA_ARGS__, {0}} + 1)

/* The same with an array that ends with a row without key. */
bool log_fields(enum log_level level, enum log_module module, const char *event,
                const struct log_field *fields);

#endif
