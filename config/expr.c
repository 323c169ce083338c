/* SPDX-License-Identifier: BSD-3-Clause */
/* See expr.h. */
#include "config/expr.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 256

long cfg_expr_number(const char **p, long max)
{
    char *end;
    long n;

    if (**p < '0' || **p > '9')
        return -1;
    errno = 0;
    n = strtol(*p, &end, 10);
    *p = end;
    return errno == 0 && n <= max ? n : -1;
}

bool cfg_expr_range(const char **p, long max, struct cfg_range *out)
{
    out->lo = out->hi = cfg_expr_number(p, max);
    out->stride = 1;
    if (**p == '-') {
        (*p)++;
        out->hi = cfg_expr_number(p, max);
        if (**p == '/') {
            (*p)++;
            out->stride = cfg_expr_number(p, max);
        }
    }
    return out->lo >= 0 && out->hi >= out->lo && out->stride > 0;
}

/* One part of an address: number, '*' or brackets. 1: value is in it. */
static int match_part(const char **p, long value)
{
    struct cfg_range r;
    int hit = 0;

    if (**p == '*') {
        (*p)++;
        return 1;
    }
    if (**p != '[') {
        r.lo = cfg_expr_number(p, 255);
        return r.lo < 0 ? -EINVAL : r.lo == value;
    }
    do {
        (*p)++;
        if (!cfg_expr_range(p, 255, &r))
            return -EINVAL;
        hit |= value >= r.lo && value <= r.hi && (value - r.lo) % r.stride == 0;
    } while (**p == ',');
    if (*(*p)++ != ']')
        return -EINVAL;
    return hit;
}

/* "a.b.c.d/len" */
static int match_mask(const char *pattern, const uint8_t addr[4])
{
    const char *p = pattern;
    uint32_t want = 0, have = 0, mask;
    long n;

    for (int i = 0; i < 4; i++) {
        n = cfg_expr_number(&p, 255);
        if (n < 0 || *p++ != (i < 3 ? '.' : '/'))
            return -EINVAL;
        want = want << 8 | (uint32_t)n;
        have = have << 8 | addr[i];
    }
    n = cfg_expr_number(&p, 32);
    if (n < 1 || *p)
        return -EINVAL;
    mask = UINT32_MAX << (32 - n);
    return (want & mask) == (have & mask);
}

int cfg_expr_match(const char *pattern, const uint8_t addr[4])
{
    const char *p = pattern, *slash = strchr(pattern, '/');
    int rc, hit = 1;

    if (slash && !strchr(pattern, '['))
        return match_mask(pattern, addr);
    for (int i = 0; i < 4; i++) {
        rc = match_part(&p, addr[i]);
        if (rc < 0 || *p != (i < 3 ? '.' : '\0'))
            return -EINVAL;
        p++;
        hit &= rc;
    }
    return hit;
}

/* ---- words ---- */

struct expansion {
    int (*fn)(void *arg, const char *word);
    void *arg;
    unsigned count;
    char word[WORD_MAX];
};

/* Appends the expansions of rest, the end of the token, to the first len bytes of the word.
 * Recursion is as deep as the token has brackets, at most WORD_MAX / 3. */
static int expand(struct expansion *e, size_t len, const char *rest)
{
    const char *open = strchr(rest, '['), *close = open ? strchr(open, ']') : NULL, *p;
    size_t before = open ? (size_t)(open - rest) : strlen(rest);
    struct cfg_range r;
    int rc = 0, n;

    if (len + before >= WORD_MAX || (open && !close) || (!open && strchr(rest, ']')))
        return -EINVAL;
    memcpy(e->word + len, rest, before);
    len += before;
    e->word[len] = '\0';
    if (!open)
        return ++e->count > CFG_EXPAND_MAX ? -E2BIG : e->fn(e->arg, e->word);
    p = open;
    do {
        p++;
        if (!cfg_expr_range(&p, 65535, &r))
            return -EINVAL;
        for (long i = r.lo; i <= r.hi && rc == 0; i += r.stride) {
            n = snprintf(e->word + len, WORD_MAX - len, "%ld", i);
            rc = len + (size_t)n < WORD_MAX ? expand(e, len + (size_t)n, close + 1) : -EINVAL;
        }
    } while (*p == ',' && rc == 0);
    return rc == 0 && p != close ? -EINVAL : rc;
}

int cfg_expand(const char *token, int (*fn)(void *arg, const char *word), void *arg)
{
    struct expansion e = {.fn = fn, .arg = arg};

    if (strlen(token) >= WORD_MAX)
        return -EINVAL;
    return expand(&e, 0, token);
}
