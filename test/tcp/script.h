/* SPDX-License-Identifier: BSD-3-Clause */
/* The text files of cases: reading them into lines of words. The language is described in
 * README.md. */
#ifndef MILLRACE_TEST_TCP_SCRIPT_H
#define MILLRACE_TEST_TCP_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

#define WORDS_MAX 64

struct script_line {
    int number; /* in its file; of a macro: of the line that used it */
    char *text; /* as written, for messages */
    char *copy; /* cut into words */
    char *word[WORDS_MAX];
    unsigned words;
    int64_t i; /* index of the innermost `repeat` */
};

struct script_case {
    char *name;
    char *rfc, *shows; /* as written */
    const char *file;
    int number; /* of the line `case` */
    bool ip4, ip6;
    struct script_line *line;
    unsigned lines;
    struct script_case *next;
};

/* Reads a file; cases in order. NULL and a sentence in err: it is not as it should be. common: a
 * file of macros alone, or NULL. */
struct script_case *script_read(const char *path, const char *common, struct err *err);
void script_free(struct script_case *cases);

/* A number: digits, + - * and i, the index of the innermost `repeat`. */
bool script_number(const struct script_line *line, const char *text, int64_t *out);
/* A time: 10us, 10ms, 2s, 3d; microseconds. */
bool script_time(const struct script_line *line, const char *text, uint64_t *out);
/* A..B or one value, each as read by script_number(). */
bool script_range(const struct script_line *line, const char *text, int64_t *from, int64_t *to);

#endif
