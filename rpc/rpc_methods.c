/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of methods, and those that concern the process rather than the node. */
#include "rpc/rpc_methods.h"

#include <unistd.h>

#include "rpc/rpc_internal.h"

static void rpc_version(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    jrpc_result(call, json_pack("{s:s, s:s, s:i, s:I}", "program", "millraced", "version",
                                MILLRACE_VERSION, "pid", (int)getpid(), "uptime",
                                (json_int_t)((reactor_now_us() - ctx->start_us) / 1000000)));
}

static void rpc_describe(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_pack("{s:o}", "methods", jrpc_describe(jrpc_of(call))));
}

static void rpc_shutdown(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    ctx->shutdown(ctx->shutdown_arg, args[0].given ? (unsigned)args[0].integer : ctx->drain_s);
    jrpc_result(call, json_true());
}

static const struct jrpc_param net_get_params[] = {
    {.name = "net", .type = JRPC_NET, .help = "only the NIs of this net"},
    {.name = NULL},
};

static const struct jrpc_param route_get_params[] = {
    {.name = "net", .type = JRPC_NET, .help = "only routes to this net"},
    {.name = "gateway", .type = JRPC_NID, .help = "only routes through this gateway"},
    {.name = NULL},
};

static const struct jrpc_param route_add_params[] = {
    {.name = "net", .type = JRPC_NET, .required = true, .help = "the net to be reached"},
    {.name = "gateway",
     .type = JRPC_NID,
     .required = true,
     .help = "NID of the router, on a local net"},
    {.name = "hop",
     .type = JRPC_INTEGER,
     .min = -1,
     .max = 255,
     .help = "number of routers on the way, 1 or more; -1 (the default) = not stated"},
    {.name = "priority",
     .type = JRPC_INTEGER,
     .min = 0,
     .max = UINT32_MAX,
     .help = "a lower one is preferred; default 0"},
    {.name = NULL},
};

static const struct jrpc_param route_del_params[] = {
    {.name = "net", .type = JRPC_NET, .required = true, .help = "net of the route"},
    {.name = "gateway", .type = JRPC_NID, .required = true, .help = "gateway of the route"},
    {.name = NULL},
};

static const struct jrpc_param peer_get_params[] = {
    {.name = "nid", .type = JRPC_NID, .help = "only this peer"},
    {.name = NULL},
};

static const struct jrpc_param ping_params[] = {
    {.name = "nid", .type = JRPC_NID, .required = true, .help = "the node to be pinged"},
    {.name = "source", .type = JRPC_NID, .help = "NID of ours to ping from; default: by path"},
    {.name = "timeout_ms",
     .type = JRPC_INTEGER,
     .min = 1,
     .max = 600000,
     .help = "how long to wait, in ms; default 1000"},
    {.name = NULL},
};

static const struct jrpc_param shutdown_params[] = {
    {.name = "drain",
     .type = JRPC_INTEGER,
     .min = 0,
     .max = 3600,
     .help = "seconds that messages in flight may take; default: the configured `drain`"},
    {.name = NULL},
};

const struct jrpc_method rpc_method_table[] = {
    {.name = "version",
     .help = "Version of the running program.",
     .result = "object: program, version, pid, uptime (s)",
     .handler = rpc_version},
    {.name = "rpc_methods",
     .help = "Lists the methods and their parameters.",
     .result = "object: methods, an array of {name, help, result, params}",
     .handler = rpc_describe},
    {.name = "net_get",
     .help = "Lists nets and their NIs.",
     .result = "object: net, an array as `lnetctl net show -v 4` has it; counters are 64 bit",
     .params = net_get_params,
     .handler = rpc_net_get},
    {.name = "route_get",
     .help = "Lists routes.",
     .result = "object: route, an array of {net, gateway, hop, priority, state, type}",
     .params = route_get_params,
     .handler = rpc_route_get},
    {.name = "route_add",
     .help = "Adds a route.",
     .result = "true",
     .params = route_add_params,
     .handler = rpc_route_add},
    {.name = "route_del",
     .help = "Removes a route.",
     .result = "true",
     .params = route_del_params,
     .handler = rpc_route_del},
    {.name = "peer_get",
     .help = "Lists peers with their counters and connections.",
     .result = "object: peer, an array of {primary nid, Multi-Rail, peer ni}; in each peer ni the "
               "object `millrace` has what lnetctl does not know",
     .params = peer_get_params,
     .handler = rpc_peer_get},
    {.name = "stats_get",
     .help = "Counters of the whole node.",
     .result = "object with the names of `lnetctl stats show`",
     .handler = rpc_stats_get},
    {.name = "drops_get",
     .help = "Every reason for which something was refused or dropped, with its count.",
     .result = "object: drops, an array of {name, kind, count, text} and, where one was seen, "
               "example: {age_ms, peer, src, dest, type, payload_length, ni}",
     .handler = rpc_drops_get},
    {.name = "buffers_get",
     .help = "Router buffers of each reactor.",
     .result = "object: enable (0 or 1), buffers (totals), reactors, an array of {reactor, cpt, "
               "tiny, small, large}",
     .handler = rpc_buffers_get},
    {.name = "reactors_get",
     .help = "The polling threads and how busy they are.",
     .result = "object: reactors, an array; control, the thread of this socket",
     .handler = rpc_reactors_get},
    {.name = "ping",
     .help = "Pings a node as `lnetctl ping` does.",
     .result = "object: ping, an array of one {primary nid, Multi-Rail, peer_ni, features, pid, "
               "seqno}",
     .params = ping_params,
     .handler = rpc_ping},
    {.name = "shutdown",
     .help = "Stops the program as SIGTERM does: no new messages, a bounded wait for those in "
             "flight, then the end.",
     .result = "true, at once",
     .params = shutdown_params,
     .handler = rpc_shutdown},
    {.name = NULL},
};
