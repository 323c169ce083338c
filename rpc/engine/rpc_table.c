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

/* "lnd tunables" of net_get. */
#include "rpc/methods/fields.def"
static const struct jrpc_field rpc_lnd_tunables[] = {
#include "lib/lnds/tunables.def"
    {.name = "timeout",
     .type = JRPC_INTEGER,
     .unit = "s",
     .help = "time for a connection to make progress"},
    COUNT("tos", "type of service; −1 = as the system has it"),
    {.name = NULL},
};

const struct jrpc_method rpc_method_table[] = {
#define METHOD(id, text, ...) {.name = text, __VA_ARGS__},
#define LND_METHOD            METHOD
#include "rpc/methods/methods.def"
#undef LND_METHOD
#undef METHOD
    {.name = NULL},
};
