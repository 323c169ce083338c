/* SPDX-License-Identifier: BSD-3-Clause */
/* Expressions of ranges as in "10.0.[0-3].*" and "[1-9/2,12]"; docs/protocol/lnet-core.md §1.5,
 * §1.6. Pure functions. */
#ifndef MILLRACE_EXPR_H
#define MILLRACE_EXPR_H

#include <stdbool.h>
#include <stdint.h>

/* Does an IPv4 address match "a.b.c.d" of numbers, '*' and brackets, or "a.b.c.d/len"? 1, 0, or
 * -EINVAL when it is no such pattern. */
int cfg_expr_match(const char *pattern, const uint8_t addr[4]);

#define CFG_EXPAND_MAX 4096 /* words of one token */
/* Calls fn for each word that a token with any number of brackets stands for, in order. 0, -EINVAL
 * when it is malformed, -E2BIG when it stands for more than CFG_EXPAND_MAX, or what fn returned if
 * that was not 0. */
int cfg_expand(const char *token, int (*fn)(void *arg, const char *word), void *arg);

#endif
