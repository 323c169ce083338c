/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results of methods as metrics in Prometheus' text format or OpenMetrics. The table of methods
 * (rpc/methods/methods.def) names the members of each result, with their type, unit and help. A
 * row of metric_rows.c says which results are metrics, and what differs from the rules. So a member
 * that is added to a method becomes a metric by itself.
 *
 * Rules: a number is `millrace_PREFIX_PATH_MEMBER`, PATH being the objects that it lies in. It is a
 * counter (`_total`) unless the row lists it as a gauge. Its unit becomes a base unit and a suffix:
 * us, ms and s are `_seconds`, bytes `_bytes`, Mbit/s `_bytes_per_second`. Any thread, one at a
 * time for each set.
 */
#ifndef MILLRACE_METRICS_H
#define MILLRACE_METRICS_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "rpc/engine/jsonrpc.h"

/*
 * Describes the metrics of one result. Lists are words separated by commas; a word is the name of a
 * member, `LIST.MEMBER` where only the member in that array or object is meant, or a prefix and
 * `*`. A word `MEMBER=TEXT` also gives a text.
 */
struct metric_row {
    const char *method;
    const char *params; /* JSON, or NULL */
    const char *list; /* the array or object of the result that has the metrics; NULL = all of it */
    const char *prefix; /* of the names behind "millrace_"; "" = none */
    const char *labels; /* members that are labels, with the label's name if it is another */
    const char *gauges; /* members that are gauges; all other numbers are counters */
    const char *skip;   /* members that are not shown */
    /* Members, objects and arrays with another name; an empty one adds nothing. A number's name
     * that begins with "lustre_" is the whole name. */
    const char *names;
    const char *states;   /* texts, with the value for which their gauge `_up` is 1 */
    const char *by_key;   /* objects whose own name is the value of a label, and the label */
    const char *by_child; /* objects whose members' names are values of a label, and the label */
    const char *info;     /* texts that are labels of the gauge `_info`, whose value is 1 */
    const char *help;     /* of a metric whose member has an empty name */
    const struct jrpc_field *fields; /* of the result; NULL = those of the method */
    unsigned limit; /* rows of the list at most; 0 = all, the list is small by itself */
};

extern const struct metric_row metric_rows[]; /* ends with a row without method */
extern const struct metric_row metric_routes, metric_gateways, metric_peers, metric_exporter;

struct metrics;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* Adds a result by its row. Returns the number of rows beyond the limit. */
size_t metrics_add(struct metrics *m, const struct metric_row *row, const json_t *result);
/* Writes all metrics; those of one name stand together. */
void metrics_write(const struct metrics *m, bool openmetrics, FILE *to);

#endif
