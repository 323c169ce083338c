/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `millrace top` asks a running millraced for its counters again and again. It shows the rates
 * between the last two samples. The file top_text.c turns two samples into lines of text: it knows
 * neither socket nor terminal. The file top.c takes the samples and draws the lines.
 */
#ifndef MILLRACE_TOP_H
#define MILLRACE_TOP_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define TOP_LINE     400 /* bytes of a line */
#define TOP_MAX_COLS 300
#define TOP_HEAD     2 /* lines of the header */

/* The methods whose results make up a sample. The first one takes time; the others follow it. */
enum top_part {
    TOP_PEERS,
    TOP_VERSION,
    TOP_STATS,
    TOP_REACTORS,
    TOP_NETS,
    TOP_BUFFERS,
    TOP_DROPS,
    TOP_NAMES,
    TOP_HEALTH,
    TOP_PARTS
};

/* The results of the methods at one time. A part that is NULL is not known. */
struct top_sample {
    double when; /* s, CLOCK_MONOTONIC */
    json_t *part[TOP_PARTS];
};

enum top_page {
    TOP_PAGE_TRAFFIC,
    TOP_PAGE_HEALTH,
    TOP_PAGES
};

enum top_look {
    TOP_PLAIN,
    TOP_TITLE,
    TOP_ALERT
};

struct top_text {
    struct {
        enum top_look look;
        char text[TOP_LINE];
    } * row;
    size_t n;
    int cols;
};

/* Appends the lines of a frame to an empty text: TOP_HEAD lines of header, then the body. A line
 * has at most cols columns. The page of the traffic shows fewer peers if its body has more than
 * `lines` lines. Without `before` no rate is known. The title names `sort`, the order of peers. */
void top_frame(struct top_text *t, enum top_page page, const struct top_sample *before,
               const struct top_sample *now, const char *sort, int lines, int cols);
void top_text_clear(struct top_text *t);
/* Copies as much of text as fits into len bytes and cols columns. A byte that is no character of
 * the locale, or would move the cursor, becomes '?'. Returns the columns used. */
int top_fit(char *out, size_t len, const char *text, int cols);
/* Formats a number in at most 6 columns: "0", "999", "12.3k", "1.23M"; "-" for NAN. */
const char *top_number(double n, char buf[16]);

#endif
