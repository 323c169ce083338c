/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's log: one line per event on stderr, `[time] level module key=value …`. Any thread. */
#ifndef MILLRACE_LOG_H
#define MILLRACE_LOG_H

enum log_level {
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_ERROR
};

/* fmt makes the key=value part. Control characters in it come out as '?'. */
void log_line(enum log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
