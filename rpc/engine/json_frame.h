/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a JSON value ends in a stream of bytes: values follow each other with or without white
 * space between them, in pieces of any size. Looks at brackets and strings only; whether what is
 * between them is JSON is the parser's to say. Pure functions.
 */
#ifndef MILLRACE_JSON_FRAME_H
#define MILLRACE_JSON_FRAME_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_FRAME_MAX_DEPTH  32
#define JSON_FRAME_MAX_VALUES 8192 /* one takes up to 100 times as much memory as text */

enum json_frame_result {
    JSON_FRAME_MORE,     /* all of it is looked at, the value does not end in it */
    JSON_FRAME_VALUE,    /* a value ends */
    JSON_FRAME_MISMATCH, /* a bracket closes what was not opened: where values end is lost */
    JSON_FRAME_DEPTH,    /* nested too deeply */
    JSON_FRAME_MANY,     /* too many values in it */
    JSON_FRAME_STRING,   /* a line ends within a string */
};

/* Zero it before the first use; after any result but MORE and VALUE it is of no more use. */
struct json_frame {
    unsigned depth;
    unsigned values; /* in it so far: brackets that open, and commas */
    bool begun;      /* something of the value has been seen */
    bool scalar;     /* it is a number or a word: ends before white space or a bracket */
    bool string;     /* within a string */
    bool escaped;    /* after a backslash in it */
    char closer[JSON_FRAME_MAX_DEPTH];
};

/* Looks at more of the stream. *used: bytes that belong to what was looked at before, and, with
 * VALUE, that end the value; white space before a value counts to it. */
enum json_frame_result json_frame_feed(struct json_frame *frame, const char *buf, size_t len,
                                       size_t *used);

#endif
