/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Findings about the router and its host, as `millrace status` and `millrace doctor` report them. A
 * finding is an object {check, object, level, text, remedy}: what was looked at, what was found,
 * and the command that helps. The worst level is the exit status of the command.
 */
#ifndef MILLRACE_REPORT_H
#define MILLRACE_REPORT_H

#include <stdio.h>

#include <jansson.h>

enum report_level { /* also exit statuses */
    REPORT_OK = 0,
    REPORT_WARNING = 1,
    REPORT_ERROR = 2,
};
#define REPORT_UNKNOWN 3 /* exit status: wrong arguments, or the output could not be written */

/* Appends a finding to a list. object: what it is about, as an NI; "" where the check says it. */
void report_add(json_t *list, enum report_level level, const char *check, const char *object,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Gives the newest finding of the list its remedy: a command. */
void report_remedy(json_t *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum report_level report_worst(const json_t *list);
/* Prints the findings of a level or a worse one, the worst first: at most `most` of each check and
 * level, then how many more there are. */
void report_print(FILE *to, const json_t *list, enum report_level from, unsigned most);

#endif
