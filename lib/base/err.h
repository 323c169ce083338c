/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one error value of the program: a code for the caller, a sentence for the operator, the
 * remedy, and the parameter or file position that the error is about.
 *
 * The caller owns a `struct err`, zeroed, and passes its address; the function that fails fills it
 * in. A function that succeeds leaves the value alone. Any thread; nothing is allocated.
 */
#ifndef MILLRACE_BASE_ERR_H
#define MILLRACE_BASE_ERR_H

#include <stdarg.h>

struct err {
    int code;          /* negative errno; 0: no error, or the function's result alone tells */
    char message[512]; /* what happened, to which object with its value */
    char remedy[192];  /* what the operator can do; "": nothing in particular */
    char where[96];    /* parameter ("tunables.credits") or position ("millrace.yaml:12:3"); "" */
};

/* Sets code and message, clears remedy and position. Returns code, so that a function can end with
 * `return err_set(err, -EINVAL, …)`. err NULL: only returns code. A longer message is cut. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Sets the message only. */
void err_text(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Append to the message. */
void err_add(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void err_vadd(struct err *err, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Sets the remedy of an error that has been set. */
void err_remedy(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets the parameter or file position of an error that has been set. */
void err_where(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
