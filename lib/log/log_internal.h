/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of lib/log. */
#ifndef MILLRACE_LOG_INTERNAL_H
#define MILLRACE_LOG_INTERNAL_H

#include <sys/queue.h>

#include "lib/base/err.h"
#include "lib/log/log.h"

/* A line that waits to be written, in the form of its sink. */
struct log_record {
    STAILQ_ENTRY(log_record) link;
    size_t len;
    uint64_t lost;   /* of a report of lost lines: log_stats.lost at that time; else 0 */
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

/* Formats one line with its newline. dated: begins with the time; prefix: systemd's "<N>" first. */
void log_format_text(struct log_buffer *b, const struct log_line *line, bool dated, bool prefix);
/* Formats "KEY=value\0" one after the other; returns how many. */
unsigned log_format_journal(struct log_buffer *b, const struct log_line *line);

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
/* Opens the path of a file again when another file is there now. */
void log_sink_renew(struct log_sink *sink);
bool log_sink_write(struct log_sink *sink, const struct log_record *record);

#endif
