/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/err.h"

#include <stdio.h>
#include <string.h>

#define FORMAT(buffer, at, fmt)                                                                    \
    do {                                                                                           \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        vsnprintf((buffer) + (at), sizeof(buffer) - (at), fmt, ap);                                \
        va_end(ap);                                                                                \
    } while (0)

int err_set(struct err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    err->code = code;
    err->remedy[0] = '\0';
    err->where[0] = '\0';
    FORMAT(err->message, 0, fmt);
    return code;
}

void err_text(struct err *err, const char *fmt, ...)
{
    if (err)
        FORMAT(err->message, 0, fmt);
}

void err_add(struct err *err, const char *fmt, ...)
{
    if (err)
        FORMAT(err->message, strlen(err->message), fmt);
}

void err_vadd(struct err *err, const char *fmt, va_list ap)
{
    size_t at = err ? strlen(err->message) : 0;

    if (err)
        vsnprintf(err->message + at, sizeof(err->message) - at, fmt, ap);
}

void err_remedy(struct err *err, const char *fmt, ...)
{
    if (err)
        FORMAT(err->remedy, 0, fmt);
}

void err_where(struct err *err, const char *fmt, ...)
{
    if (err)
        FORMAT(err->where, 0, fmt);
}
