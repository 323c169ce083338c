/* SPDX-License-Identifier: BSD-3-Clause */
/* Serves the methods for a controller, and logs events, clients and changes. */
#include "rpc/service.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log/log.h"
#include "rpc/engine/rpc_server.h"
#include "rpc/methods/capture.h"
#include "rpc/methods/events.h"
#include "rpc/methods/methods.h"
#include "rpc/methods/timed.h"

struct rpc_service {
    struct rpc_ctx ctx;
    struct jrpc jrpc;
    struct rpc_server *server;
    struct control_listener listener;
    unsigned calls; /* of clients, in flight */
};

/* Of parameters that are longer, a whole configuration, the log has the beginning. */
#define PARAMS_MAX 400

/* ---- events ---- */

static const char *member(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

static void log_event_row(void *arg, const json_t *event, uint64_t missed)
{
    const char *type = member(event, "type");
    const json_t *reactor = json_object_get(event, "reactor");
    char number[24] = "";

    if (!type)
        return;
    if (json_is_integer(reactor))
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(reactor));
    if (missed)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_EVENTS, "missed", LOG_U("count", missed));
    if (strcmp(type, "drops") == 0)
        return; /* there are lines about these: control/drop_watch.c */
    log_event(rpc_event_is_trouble(type) ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, LOG_MODULE_EVENTS,
              type, LOG_S("nid", member(event, "nid")), LOG_S("net", member(event, "net")),
              LOG_S("gateway", member(event, "gateway")), LOG_S("pool", member(event, "pool")),
              LOG_S("reactor", number[0] ? number : NULL), LOG_S("port", member(event, "port")),
              LOG_S("interface", member(event, "interface")),
              LOG_S("address", member(event, "address")), LOG_S("mac", member(event, "mac")),
              LOG_S("state", member(event, "state")), LOG_S("cause", member(event, "cause")),
              LOG_S("msg", member(event, "text")));
}

/* ---- clients ---- */

static void log_client(void *arg, enum rpc_client_event event, const struct rpc_peer *peer)
{
    bool usual = event == RPC_CLIENT_CONNECTED || event == RPC_CLIENT_CLOSED;
    char name[32];

    snprintf(name, sizeof(name), "client_%s", rpc_client_event_name(event));
    log_event(usual ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, LOG_MODULE_RPC, name,
              LOG_I("client_pid", peer->pid), LOG_U("uid", peer->uid), LOG_U("gid", peer->gid),
              LOG_S("role", jrpc_role_name(peer->role)));
}

static void log_change(const struct jrpc_change *change)
{
    char params[PARAMS_MAX + 4] = "", code[24];

    if (change->params && json_dumpb(change->params, params, PARAMS_MAX, JSON_COMPACT) >
                              PARAMS_MAX) /* what fits is there */
        memcpy(params + strlen(params), "...", sizeof("..."));
    snprintf(code, sizeof(code), "%d", change->code);
    log_event(change->code ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, LOG_MODULE_CONFIG,
              change->code ? "change_refused" : "change", LOG_S("method", change->method),
              LOG_U("uid", change->who.uid), LOG_I("client_pid", change->who.pid),
              LOG_S("params", params[0] ? params : NULL), LOG_S("code", change->code ? code : NULL),
              LOG_S("msg", change->message));
}

/* ---- the controller's phases ---- */

static void phase(void *arg, enum control_phase phase)
{
    struct rpc_service *s = arg;

    if (phase == CONTROL_STARTED)
        s->jrpc.started = true;
    if (phase != CONTROL_ENDED)
        return;
    rpc_timed_stop(&s->ctx);
    rpc_packets_stop(&s->ctx);
}

/* ---- life ---- */

int rpc_service_start(struct controller *c, struct rpc_service **out, struct err *err)
{
    const struct cfg *cfg = cfg_running_get(c->running);
    struct rpc_server_opts opts = {.path = cfg->rpc_socket,
                                   .mode = (unsigned)cfg->rpc_mode,
                                   .group = cfg->rpc_group,
                                   .role_group = {[JRPC_READ] = cfg->rpc_read_group,
                                                  [JRPC_OPERATOR] = cfg->rpc_operator_group,
                                                  [JRPC_ADMIN] = cfg->rpc_admin_group},
                                   .log = log_client};
    struct rpc_service *s = calloc(1, sizeof(*s));

    *out = s;
    if (s)
        s->ctx.control = c;
    if (!s || rpc_events_start(&s->ctx) != 0)
        return err_set(err, -ENOMEM, "out of memory");
    rpc_events_listen(&s->ctx, log_event_row, NULL);
    s->listener = (struct control_listener){.phase = phase, .arg = s};
    controller_listen(c, &s->listener);
    s->jrpc = (struct jrpc){.methods = rpc_method_table,
                            .handlers = rpc_handlers,
                            .ctx = &s->ctx,
                            .calls = &s->calls,
                            .changed = log_change};
    return rpc_server_create(&opts, &s->jrpc, &s->server, err);
}

void rpc_service_stop(struct rpc_service *s)
{
    if (!s)
        return;
    assert(s->calls == 0); /* each call has its answer, or its client has gone */
    rpc_events_stop(&s->ctx);
    rpc_server_destroy(s->server);
    free(s);
}
