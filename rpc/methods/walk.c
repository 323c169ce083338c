/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages of rows that reactors keep. A message reads few rows, so that no reactor is delayed. Rows
 * that the filter excludes are left out here, so a page may take many messages. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/container.h"
#include "rpc/methods/port.h"

static void end(struct rpc_walk *w)
{
    char cursor[32];

    snprintf(cursor, sizeof(cursor), "%u.%" PRIu32, w->reactor, w->at);
    jrpc_result(w->call, w->reactor < reactor_count(w->ctx->control->env)
                             ? json_pack("{s:o, s:s}", w->key, w->list, "cursor", cursor)
                             : json_pack("{s:o}", w->key, w->list));
}

static void take_rows(struct reactor_task *task);

/* On the reactor. */
static void read_rows(struct reactor_task *task)
{
    struct rpc_walk *w = container_of(task, struct rpc_walk, task);
    unsigned room = w->limit - (unsigned)json_array_size(w->list);

    w->n = w->read(w, w->reactor, &w->at, room < RPC_WALK_ROWS ? room : RPC_WALK_ROWS);
    task->fn = take_rows;
    reactor_post(reactor_control(w->ctx->control->env), task);
}

static void take_rows(struct reactor_task *task)
{
    struct rpc_walk *w = container_of(task, struct rpc_walk, task);

    for (unsigned i = 0; i < w->n; i++) {
        json_t *row = w->show(w, i);

        if (row)
            json_array_append_new(w->list, row);
    }
    if (w->n == 0) {
        w->reactor++;
        w->at = 0;
    }
    if (!jrpc_session_of(w->call) || w->reactor == reactor_count(w->ctx->control->env) ||
        json_array_size(w->list) >= w->limit) {
        end(w);
        return;
    }
    task->fn = read_rows;
    reactor_post(reactor_at(w->ctx->control->env, w->reactor), task);
}

void rpc_walk(struct rpc_walk *w, struct jrpc_call *call, const struct jrpc_arg *from,
              const struct jrpc_arg *limit, unsigned default_limit)
{
    const char *cursor = from->string;
    int used = 0;

    w->call = call;
    w->ctx = jrpc_ctx(call);
    w->limit = limit->given ? (unsigned)limit->integer : default_limit;
    if (from->given && (cursor[0] < '0' || cursor[0] > '9' || strlen(cursor) > 22 ||
                        sscanf(cursor, "%u.%" SCNu32 "%n", &w->reactor, &w->at, &used) != 2 ||
                        cursor[used] != '\0')) {
        rpc_refuse_cursor(w->call);
        return;
    }
    w->list = json_array();
    if (!w->ctx->control->inet || w->reactor >= reactor_count(w->ctx->control->env)) {
        w->reactor = reactor_count(w->ctx->control->env);
        end(w);
        return;
    }
    w->task.fn = read_rows;
    reactor_post(reactor_at(w->ctx->control->env, w->reactor), &w->task);
}
