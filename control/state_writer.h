/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the state file on a thread of its own: the text is made there, too, and the disk may be
 * slow. So neither requests nor the control thread's timers wait for the disk. One write at a time.
 *
 * Life: zero bytes with a place, any number of state_writer_begin(), state_writer_end(). The
 * temporary file has a fixed name, so a process that is killed in a write leaves one at most, and
 * the next write replaces it. Control thread.
 */
#ifndef MILLRACE_STATE_WRITER_H
#define MILLRACE_STATE_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "config/place.h"

struct state_writer {
    struct cfg_place place;
    pthread_t thread;
    bool running; /* the thread must be joined */
    bool done;    /* the thread has ended; atomic */

    /* The thread's while it runs. */
    json_t *root;
    char *written; /* the content of the file; NULL: not known */
    uint64_t touched_us;
    bool failed; /* the last write, which is logged once */
};

/* Returns whether a write is under way. While one is, nothing may use what its JSON refers to. */
bool state_writer_busy(struct state_writer *w);
/* Writes the text of `root`, whose reference becomes w's, if it is another text than the last one.
 * Else sets the time of the file now and then, which says that the process runs. Not busy. */
void state_writer_begin(struct state_writer *w, json_t *root);
/* Waits for a write that is under way, and frees what w has. */
void state_writer_end(struct state_writer *w);

#endif
