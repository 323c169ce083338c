/* SPDX-License-Identifier: BSD-3-Clause */
/* The method table, without the handlers; links with nothing of the node. */
#include "rpc/engine/rpc_table.h"

#include <errno.h>

/* The rows of a member of struct jrpc_method, behind them an empty one. */
#define ROWS(of, ...)                                                                              \
    (const struct of[])                                                                            \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define PARAMS(...) .params = ROWS(jrpc_param, __VA_ARGS__)
#define FIELDS(...) .fields = ROWS(jrpc_field, __VA_ARGS__)
#define SUB(...)    .sub = ROWS(jrpc_field, __VA_ARGS__)
#define ERRORS(...) .errors = ROWS(jrpc_error_info, __VA_ARGS__)
#define WORDS(...)                                                                                 \
    .words = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
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
