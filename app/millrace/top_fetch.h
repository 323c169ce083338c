/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that samples a running millraced for `millrace top`, so that the terminal answers
 * whatever millraced does. */
#ifndef MILLRACE_TOP_FETCH_H
#define MILLRACE_TOP_FETCH_H

#include "app/millrace/top_model.h"

struct top_fetch;

/* Begins to sample at once, then every interval_s seconds. path is copied; sort: a word of
 * peer_top, static. NULL: no memory or no thread. */
struct top_fetch *top_fetch_start(const char *path, unsigned interval_s, const char *sort);
/* Ends within a second. */
void top_fetch_stop(struct top_fetch *fetch);
/* Readable when there is something new. */
int top_fetch_fd(const struct top_fetch *fetch);
/* The newest sample, the caller's, or NULL: none since the last call. err: "" or why there is none
 * now; millraced is tried again each second. */
struct top_sample *top_fetch_take(struct top_fetch *fetch, char *err, size_t errlen);
/* Holds from now on; sampling goes on at once. */
void top_fetch_set(struct top_fetch *fetch, unsigned interval_s, const char *sort);

#endif
