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
        json_object_set_new(levels, log_module_name((enum log_module)i),
                            json_string(log_level_name(log_level_get((enum log_module)i))));
    log_stats_get(&stats);
    jrpc_result(call, json_pack("{s:s, s:o, s:I, s:I, s:I}", "to", log_to(), "levels", levels,
                                "written", (json_int_t)stats.written, "suppressed",
                                (json_int_t)stats.suppressed, "lost", (json_int_t)stats.lost));
}

void rpc_log_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    int level = log_level_find(args[0].string);
    int module = args[1].given ? log_module_find(args[1].string) : -1;
    char text[80];

    if (level < 0 || (args[1].given && module < 0)) {
        jrpc_refuse(call, NULL, NULL,
                    "no such level or module"); /* the words differ from the log's */
        return;
    }
    for (int i = 0; i < LOG_MODULES; i++)
        if (module < 0 || module == i)
            log_level_set((enum log_module)i, (enum log_level)level);
    snprintf(text, sizeof(text), "%s %s logged from %s on",
             module < 0 ? "all modules" : log_module_name((enum log_module)module),
             module < 0 ? "are" : "is", log_level_name((enum log_level)level));
    rpc_events_emit(jrpc_ctx(call), "log_level", "log_set", text,
                    json_pack("{s:s}", "state", log_level_name((enum log_level)level)));
    jrpc_result(call, json_true());
}
