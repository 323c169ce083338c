/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/engine/json_wide.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SAFE_DIGITS 18 /* no number of so many has more than 64 bits */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the string literal that begins at text, with its quotes, or what there is of it. */
static size_t string_length(const char *text, size_t len)
{
    size_t i;

    for (i = 1; i < len && text[i] != '"'; i++)
        if (text[i] == '\\' && i + 1 < len)
            i++;
    return i < len ? i + 1 : len;
}

/* Length of the number at text; *whole: it has neither fraction nor exponent. */
static size_t number_length(const char *text, size_t len, bool *whole)
{
    size_t i;

    *whole = true;
    for (i = 0; i < len && (is_digit(text[i]) || strchr("+-.eE", text[i])) && text[i]; i++)
        if (strchr(".eE", text[i]))
            *whole = false;
    return i;
}

static bool is_wide(const char *text, size_t len)
{
    char copy[SAFE_DIGITS + 4], *end;

    if (len <= SAFE_DIGITS)
        return false;
    if (len >= sizeof(copy))
        return true;
    memcpy(copy, text, len);
    copy[len] = '\0';
    errno = 0;
    strtoll(copy, &end, 10);
    return errno == ERANGE;
}

char *json_wide_as_reals(const char *text, size_t len, size_t *out_len)
{
    char *out = malloc(len + 2 * (len / SAFE_DIGITS) + 1);
    size_t used = 0, i = 0;

    while (out && i < len) {
        bool wide = false, whole;
        size_t n = 1;

        if (text[i] == '"') {
            n = string_length(text + i, len - i);
        } else if (is_digit(text[i]) || text[i] == '-') {
            n = number_length(text + i, len - i, &whole);
            wide = whole && is_wide(text + i, n);
        }
        memcpy(out + used, text + i, n);
        used += n;
        i += n;
        if (wide) {
            memcpy(out + used, "e0", 2);
            used += 2;
        }
    }
    *out_len = used;
    return out;
}
