/* SPDX-License-Identifier: BSD-3-Clause */
/* The parameters of capture_start and of the command `capture`. */
#ifndef MILLRACE_CAPTURE_PARAMS_H
#define MILLRACE_CAPTURE_PARAMS_H

#define CAPTURE_PARAMS                                                                             \
    {.name = "port", .type = JRPC_STRING, .max = 15, .letter = 'p', .help = "only of this port"},  \
        {.name = "peer",                                                                           \
         .type = JRPC_STRING,                                                                      \
         .max = 63,                                                                                \
         .help = "only packets from and to this IP address or NID"},                               \
        {.name = "reason",                                                                         \
         .type = JRPC_STRING,                                                                      \
         .max = 63,                                                                                \
         .letter = 'r',                                                                            \
         .help = "only what is dropped, for this reason of pkt_drops_get or for `any`"},           \
        {.name = "drops",                                                                          \
         .type = JRPC_BOOLEAN,                                                                     \
         .letter = 'd',                                                                            \
         .help = "also what is dropped: such a packet comes twice, once with the reason"},         \
        {.name = "snap",                                                                           \
         .type = JRPC_INTEGER,                                                                     \
         .min = 0,                                                                                 \
         .max = 65535,                                                                             \
         .unit = "bytes",                                                                          \
         .help = "of each packet that are kept: users' data, too; default 0: headers only"},       \
        {.name = "packets",                                                                        \
         .type = JRPC_INTEGER,                                                                     \
         .min = 1,                                                                                 \
         .max = INT32_MAX,                                                                         \
         .letter = 'c',                                                                            \
         .help = "end after so many; default 100000"},                                             \
        {.name = "bytes",                                                                          \
         .type = JRPC_INTEGER,                                                                     \
         .min = 1,                                                                                 \
         .max = INT64_C(1) << 40,                                                                  \
         .unit = "bytes",                                                                          \
         .help = "end when so many have been kept; default 64 MiB"},                               \
        {.name = "seconds",                                                                        \
         .type = JRPC_INTEGER,                                                                     \
         .min = 1,                                                                                 \
         .max = 86400,                                                                             \
         .unit = "s",                                                                              \
         .help = "end after this time; default 60"},                                               \
    {                                                                                              \
        .name = "buffer_kb", .type = JRPC_INTEGER, .min = 64, .max = 65536, .unit = "KiB",         \
        .help =                                                                                    \
            "memory of each reactor for packets not asked for yet, rounded up to a power of two; " \
            "default 1024"                                                                         \
    }

#endif
