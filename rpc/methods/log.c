/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for the log: lib/log. */
#include <stdio.h>

#include "lib/log/log.h"
#include "rpc/methods/events.h"
#include "rpc/methods/methods_internal.h"

void rpc_log_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    json_t *levels = json_object();
    struct log_stats stats;

    for (int i = 0; i < LOG_MODULES; i++)
        json_object_set_new(levels, log_module_names[i],
                            json_string(log_level_names[log_level_get((enum log_module)i)]));
    log_stats_get(&stats);
    jrpc_result(call, json_pack("{s:s, s:o, s:I, s:I, s:I}", "to", log_to(), "levels", levels,
                                "written", (json_int_t)stats.written, "suppressed",
                                (json_int_t)stats.suppressed, "lost", (json_int_t)stats.lost));
}

void rpc_log_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    enum log_level level = (enum log_level)args[0].integer;
    char text[80];

    for (int i = 0; i < LOG_MODULES; i++)
        if (!args[1].given || i == args[1].integer)
            log_level_set((enum log_module)i, level);
    snprintf(text, sizeof(text), "%s %s logged from %s on",
             args[1].given ? args[1].string : "all modules", args[1].given ? "is" : "are",
             args[0].string);
    rpc_events_emit(jrpc_ctx(call), "log_level", "log_set", text,
                    json_pack("{s:s}", "state", args[0].string));
    jrpc_result(call, json_true());
}
