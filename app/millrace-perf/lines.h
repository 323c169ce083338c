/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that wait until their source can send: one line per source, so that a source without
 * room delays no other source. A message is a number below `items`, in one line at a time. Sources
 * with a message and room for it take turns.
 *
 * An open loop needs this: a message that could not be sent when it was due waits here with its due
 * time, and is not forgotten. One thread.
 */
#ifndef MILLRACE_PERF_LINES_H
#define MILLRACE_PERF_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define LINES_NONE UINT32_MAX

struct lines_item {
    STAILQ_ENTRY(lines_item) next;
};

struct lines_line {
    STAILQ_HEAD(, lines_item) items;
    TAILQ_ENTRY(lines_line) turn;
    bool blocked; /* its source has no room */
    bool ready;   /* among those that can send */
};

struct lines {
    struct lines_line *line; /* of each source */
    uint32_t sources;
    struct lines_item *item;
    TAILQ_HEAD(, lines_line) ready; /* lines that can send, in the order of their turns */
    uint32_t blocked;
    uint64_t waiting, most; /* items now, and at once at most */
};

int lines_init(struct lines *l, uint32_t sources, uint32_t items); /* 0 or -ENOMEM */
void lines_fini(struct lines *l);                                  /* also if lines_init() failed */

/* At the end of its source's line. */
void lines_put(struct lines *l, uint32_t source, uint32_t item);
/* The item whose turn it is, and its source; LINES_NONE: none can be sent. */
uint32_t lines_turn(const struct lines *l, uint32_t *source);
/* That one has been sent: it leaves, and its source goes to the end of the ring. */
void lines_sent(struct lines *l);
/* That one could not be sent: its source waits for lines_room(). */
void lines_block(struct lines *l);
void lines_room(struct lines *l, uint32_t source);
void lines_room_all(struct lines *l);
/* The first message in a source's line, whether it can be sent or not; LINES_NONE: the line is
 * empty. */
uint32_t lines_first(const struct lines *l, uint32_t source);
/* That one leaves without being sent. */
void lines_drop(struct lines *l, uint32_t source);

#endif
