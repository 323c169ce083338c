/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints JSON values as YAML in the layouts of lnetctl. docs/protocol/lnet-core.md §10. */
#ifndef MILLRACE_YAML_OUT_H
#define MILLRACE_YAML_OUT_H

#include <stdio.h>

#include <jansson.h>

#include "config/yaml_tree.h" /* yaml_control() */

struct yaml_style {
    unsigned map;  /* columns that a mapping is indented below its key */
    unsigned dash; /* columns that the dash of an item is indented below the key of its list */
    unsigned item; /* columns from a dash to the keys of its item */
};

extern const struct yaml_style yaml_style_wide;    /* net, route, peer: 6 columns */
extern const struct yaml_style yaml_style_classic; /* routing, statistics, errors: 4 columns */
extern const struct yaml_style yaml_style_narrow;  /* ping: 2 columns */

/* Where and how to print. */
struct yaml_out {
    FILE *to;
    const struct yaml_style *style;
    /* Returns a comment to be written behind a string, or NULL. NULL: there are no comments. */
    const char *(*comment)(void *arg, const char *text);
    void *arg;
};

/* Prints text with each control character escaped as `\x1b`. */
void yaml_put_plain(FILE *to, const char *text);
/* Prints fmt, in which %s is the only conversion, with each text as yaml_put_plain() prints it. */
void yaml_printf(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints text of several lines likewise, except their ends (LF, CR LF) and tabs. */
void yaml_put_lines(FILE *to, const char *text);
/* Prints a value as JSON with each control character escaped as JSON does. flags: of
 * json_dumpf(). */
void yaml_put_json(FILE *to, const json_t *value, size_t flags);
/* Prints a value likewise and ends the line. */
void yaml_put_json_line(FILE *to, const json_t *value, size_t flags);
/* Prints the members of an object as YAML, or the items of a list as they stand below a key of the
 * top. */
void yaml_print(const struct yaml_out *out, const json_t *value);

#endif
