/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millraced/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The journal has times of its own. */
static int put_time(char *line, size_t size)
{
    struct timespec now;
    struct tm utc;
    size_t n;

    if (getenv("JOURNAL_STREAM"))
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    n = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &utc);
    return (int)n + snprintf(line + n, size - n, ".%03ldZ ", now.tv_nsec / 1000000);
}

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
    static const char *const names[] = {"info", "warning", "error"};
    char line[1024];
    va_list args;
    char *p;
    int n;

    n = put_time(line, sizeof(line));
    n += snprintf(line + n, sizeof(line) - (size_t)n, "%s %s ", names[level], module);
    va_start(args, fmt);
    vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
    va_end(args);
    for (p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    *p++ = '\n';
    /* One write, so that lines of several threads do not mix; a log nobody reads stops nothing. */
    if (write(STDERR_FILENO, line, (size_t)(p - line)) < 0)
        return;
}
