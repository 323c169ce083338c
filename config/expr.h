/* SPDX-License-Identifier: BSD-3-Clause */
/* Expressions of ranges as in "10.0.[0-3].*" and "[1-9/2,12]"; docs/protocol/lnet-core.md §1.5,
 * §1.6. Pure functions. */
#ifndef MILLRACE_EXPR_H
#define MILLRACE_EXPR_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a decimal number up to max; -1: there is none. */
long cfg_expr_number(const char **p, long max);

struct cfg_range {
    long lo, hi, stride;
};
/* Reads N, N-N or N-N/STRIDE of numbers up to max. False: malformed. */
bool cfg_expr_range(const char **p, long max, struct cfg_range *out);

/* Matches an IPv4 address against "a.b.c.d" of numbers, '*' and brackets, or "a.b.c.d/len". Returns
 * 1, 0, or -EINVAL when the pattern is malformed. */
int cfg_expr_match(const char *pattern, const uint8_t addr[4]);

#define CFG_EXPAND_MAX 4096 /* words of one token */
/* Calls fn for each word that a token with brackets stands for, in order. Returns 0; -EINVAL when
 * the token is malformed; -E2BIG when it stands for more than CFG_EXPAND_MAX words; or the first
 * nonzero result of fn. */
int cfg_expand(const char *token, int (*fn)(void *arg, const char *word), void *arg);

#endif
