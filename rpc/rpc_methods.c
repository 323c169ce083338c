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

static const struct jrpc_param net_del_params[] = {
    {.name = "net", .type = JRPC_NET, .required = true, .help = "the net to be removed"},
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

static const struct jrpc_param buffers_set_params[] = {
    {.name = "tiny",
     .type = JRPC_INTEGER,
     .min = 0,
     .max = RPC_MAX_BUFFERS,
     .help = "for messages without payload"},
    {.name = "small",
     .type = JRPC_INTEGER,
     .min = 0,
     .max = RPC_MAX_BUFFERS,
     .help = "for payload up to 4 KiB"},
    {.name = "large",
     .type = JRPC_INTEGER,
     .min = 0,
     .max = RPC_MAX_BUFFERS,
     .help = "for payload up to 1 MiB"},
    {.name = NULL},
};

static const struct jrpc_param admission_set_params[] = {
    {.name = "egress_share",
     .type = JRPC_INTEGER,
     .min = 1,
     .max = 100,
     .help = "%: of the free router buffers, what one next hop may hold"},
    {.name = "buffer_wait",
     .type = JRPC_INTEGER,
     .min = 1,
     .max = 12,
     .help = "s that a message may wait for a router buffer"},
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
     .result = "object: net, an array as `lnetctl net show -v 4` has it; counters are 64 bit; in "
               "each NI the object `millrace` has its tx credits: max_tx_credits, "
               "available_tx_credits, min_tx_credits, tx_waiting, tx_waited, sums over the "
               "reactors but for min, the lowest of any",
     .params = net_get_params,
     .handler = rpc_net_get},
    {.name = "net_del",
     .help = "Removes all NIs of a net: connections close, messages queued for them are dropped, "
             "routes through gateways on it stop working.",
     .result = "true, when nothing is left of the net",
     .params = net_del_params,
     .handler = rpc_net_del},
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
     .result = "object: peer, an array of {primary nid, Multi-Rail, peer ni}; a peer ni has the "
               "keys of `lnetctl peer show -v 2` (credits below 0 are negative numbers) and an "
               "object `millrace` with what lnetctl does not know: reactor, max_rtr_credits, "
               "tx_waiting, tx_waited, rtr_waiting, rtr_waited, tx_queued, connecting, bytes_in, "
               "bytes_out, connections, alive_ms_ago",
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
    {.name = "waits_get",
     .help = "Everything a message may have to wait for, and how many do.",
     .result = "object: waits, an array of {name, waiting (now), waited (ever; at peers: since "
               "they are known), text} and, where some wait now for what belongs to a NID, worst: "
               "{nid, waiting}, the NID with most",
     .handler = rpc_waits_get},
    {.name = "buffers_get",
     .help = "Router buffers of each reactor.",
     .result = "object: enable (0 or 1), buffers (totals), reactors, an array of {reactor, cpt, "
               "tiny, small, large}, each of these {npages, nbuffers, credits (free now; below 0 "
               "after shrinking), mincredits (lowest of free minus waiting since the last change "
               "of size), waiting (headers, now), waited (ever)}",
     .handler = rpc_buffers_get},
    {.name = "buffers_set",
     .help = "Sets numbers of router buffers, totals over all reactors; 0 = the default, left out "
             "= as it is. What is too many vanishes as it comes back.",
     .result = "object: buffers, the totals as they are now",
     .params = buffers_set_params,
     .handler = rpc_buffers_set},
    {.name = "admission_get",
     .help = "By what rules messages get router buffers.",
     .result = "object: egress_share (%), buffer_wait (s)",
     .handler = rpc_admission_get},
    {.name = "admission_set",
     .help = "Changes these rules; left out = as it is. Messages that wait already keep their "
             "time.",
     .result = "object: egress_share, buffer_wait as they are now",
     .params = admission_set_params,
     .handler = rpc_admission_set},
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
