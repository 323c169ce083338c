/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of lib/log. */
#ifndef MILLRACE_LOG_INTERNAL_H
#define MILLRACE_LOG_INTERNAL_H

#include <sys/queue.h>
#include <time.h>

#include "lib/base/err.h"
#include "lib/log/log.h"

/* A line that waits to be written: what it says in the form its sink wants. */
struct log_record {
    STAILQ_ENTRY(log_record) link;
    enum log_level level;
    size_t len;
    uint64_t lost;   /* tells of so many lost lines */
    unsigned fields; /* journal: number of "KEY=value\0" in text; else 0, and text is the line */
    char text[];
};
STAILQ_HEAD(log_queue, log_record);

/* ---- log_format.c ---- */

struct log_buffer {
    char text[LOG_LINE_MAX];
    size_t len;
    bool cut; /* something did not fit */
};

struct log_line {
    enum log_level level;
    enum log_module module;
    const char *event;
    const struct log_field *fields;
};

/* One line with its newline. when: NULL = without time; prefix: systemd's "<N>" before it. */
void log_format_text(struct log_buffer *b, const struct log_line *line, const struct timespec *when,
                     bool prefix);
/* "KEY=value\0" one after the other; returns how many. */
unsigned log_format_journal(struct log_buffer *b, const struct log_line *line);
int log_priority(enum log_level level); /* syslog's */

/* ---- log_sink.c; the log's thread, but for opening ---- */

enum log_sink_kind {
    LOG_SINK_FD, /* stderr */
    LOG_SINK_FILE,
    LOG_SINK_JOURNAL
};

struct log_sink {
    enum log_sink_kind kind;
    int fd;
    bool systemd; /* stderr is a stream of the journal: it knows the time, and reads "<N>" */
    bool torn;    /* a line was written in part */
    char path[512];
    int (*journal)(const struct iovec *fields, int n);
};

int log_sink_open(struct log_sink *sink, const struct log_opts *opts, struct err *err);
void log_sink_close(struct log_sink *sink);
/* Opens the file at the path anew, if it is no longer the one that is open. */
void log_sink_renew(struct log_sink *sink);
/* False: could not be written. */
bool log_sink_write(struct log_sink *sink, const struct log_record *record);

#endif
