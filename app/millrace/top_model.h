/* SPDX-License-Identifier: BSD-3-Clause */
/* What `millrace top` shows: two samples of a running millraced made into rates, and these into
 * lines of text. Knows neither socket nor terminal. */
#ifndef MILLRACE_TOP_MODEL_H
#define MILLRACE_TOP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define TOP_STAGES   8
#define TOP_WORKS    10
#define TOP_POOLS    3
#define TOP_NAME     24
#define TOP_NID      64 /* longest text of a NID is below */
#define TOP_HOST     64
#define TOP_LINE     400 /* bytes */
#define TOP_MAX_COLS 300

/* Answers of methods at one time; any of them may be NULL: not known. */
struct top_sample {
    double when; /* s, of a clock that does not jump */
    json_t *version, *stats, *reactors, *nets, *buffers, *drops, *peers, *names;
};

/* Rates are per second; NAN: not known, since there is one sample only or a counter began anew. */
struct top_reactor {
    int64_t index, cpt;
    double busy; /* share of the time in turns that did something, 0 to 1 */
    double asleep;
    double preempted; /* others had its core in the middle of a turn */
    unsigned nworks;  /* 0: not looked at */
    struct {
        char name[TOP_NAME];
        double share; /* of the cycles busy */
    } work[TOP_WORKS];
    unsigned nstages;
    struct {
        char name[TOP_NAME];
        double share; /* of the cycles awake */
    } stage[TOP_STAGES];
    double sleeps;
    int64_t stalls; /* ever */
};

struct top_ni {
    char nid[TOP_NID], status[TOP_NAME];
    double sent, received, dropped; /* messages */
    int64_t credits, min_credits, max_credits, waiting;
};

struct top_peer {
    char nid[TOP_NID], host[TOP_HOST];
    double in, out; /* bytes */
    int64_t queued, waiting, rtr_waiting;
    bool up;
};

struct top_pool {
    const char *name;
    int64_t total, free, low, waiting, waited;
};

struct top_drop {
    char name[48];
    int64_t count;
    double rate;
};

struct top_view {
    char version[TOP_NAME], routing[TOP_NAME];
    int64_t uptime; /* s */
    double messages, bytes, drops;
    unsigned nreactors, nnis, npeers, ndrops;
    struct top_reactor *reactors;
    struct top_ni *nis;
    struct top_peer *peers;
    struct top_drop *drop; /* by rate, then by count; none that never happened */
    struct top_pool pool[TOP_POOLS];
    bool has_peers;
    const json_t *names;
};

void top_sample_free(struct top_sample *sample);
/* before may be NULL. The view is valid as long as now is. 0, or -ENOMEM. */
int top_view_make(struct top_view *view, const struct top_sample *before,
                  const struct top_sample *now);
void top_view_free(struct top_view *view);

/* ---- text ---- */

enum top_look {
    TOP_PLAIN,
    TOP_TITLE,
    TOP_ALERT
};

struct top_row {
    enum top_look look;
    char text[TOP_LINE];
};

struct top_text {
    struct top_row *row;
    size_t n, room;
    int cols;
};

/* The lines of a view: those of the header, and the rest. max: how many peers at most; sort: by
 * what they are sorted. -ENOMEM or 0. Of each line at most cols columns. */
int top_head(struct top_text *t, const struct top_view *v, int cols);
int top_body(struct top_text *t, const struct top_view *v, const char *sort, unsigned max,
             int cols);
void top_text_clear(struct top_text *text);
/* Text as it can be shown, in at most cols columns: what is no character of the locale, or moves
 * the cursor, becomes '?'. Returns the columns used. */
int top_fit(char *out, size_t len, const char *text, int cols);

/* A number in at most 6 columns: "0", "999", "12.3k", "1.23M"; "-" for NAN. */
const char *top_number(double n, char buf[16]);

#endif
