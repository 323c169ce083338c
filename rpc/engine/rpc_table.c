/* SPDX-License-Identifier: BSD-3-Clause */
/* The method table, without the handlers; links with nothing of the node. */
#include "rpc/engine/rpc_table.h"

#include <errno.h>

#define PARAMS(...)                                                                                \
    .params = (const struct jrpc_param[])                                                          \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define FIELDS(...)                                                                                \
    .fields = (const struct jrpc_field[])                                                          \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define SUB(...)                                                                                   \
    .sub = (const struct jrpc_field[])                                                             \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define WORDS(...)                                                                                 \
    .words = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define ERRORS(...)                                                                                \
    .errors = (const struct jrpc_error_info[])                                                     \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .err = 0                                                                               \
        }                                                                                          \
    }

const struct jrpc_method rpc_method_table[] = {
#define METHOD(id, text, ...) {.name = text, __VA_ARGS__},
#include "rpc/methods/methods.def"
#undef METHOD
    {.name = NULL},
};
