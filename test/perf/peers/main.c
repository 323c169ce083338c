/* SPDX-License-Identifier: BSD-3-Clause */
/* millrace-peers: load from many simulated LNet nodes on a port. Its options and its checks; a
 * device is named as in millraced's ports. */
#include "test/perf/peers/peers.h"

#include <errno.h>

static int set_port(struct perf_opts *o, const char *arg, struct err *err)
{
    peers_opts.port = arg;
    return 0;
}

static int set_server_port(struct perf_opts *o, const char *arg, struct err *err)
{
    peers_opts.server_port = arg;
    return 0;
}

static int set_peers(struct perf_opts *o, const char *arg, struct err *err)
{
    if (range_parse(arg, &peers_opts.peers) == 0)
        return 0;
    return err_set(err, -EINVAL, "wants FIRST_NID*COUNT, such as 10.0.0.2@tcp*64, not '%s'", arg);
}

static int gateway_set(struct lnet_nid *out, const char *arg, struct err *err)
{
    if (nid_parse(arg, out) == 0)
        return 0;
    return err_set(err, -EINVAL, "'%s' is not a NID", arg);
}

static int set_gateway(struct perf_opts *o, const char *arg, struct err *err)
{
    return gateway_set(&peers_opts.gateway, arg, err);
}

static int set_server_gateway(struct perf_opts *o, const char *arg, struct err *err)
{
    return gateway_set(&peers_opts.server_gateway, arg, err);
}

static const struct perf_option options[] = {
    {"port", "DEVICE", "the port of the simulated peers", .set = set_port},
    {"peers", "NID*COUNT", "the simulated peers: consecutive NIDs", .set = set_peers},
    {"gateway", "NID", "their router", .set = set_gateway},
    {"server-port", "DEVICE", "put, get, both: the targets are here too, on this port",
     .set = set_server_port},
    {"server-gateway", "NID", "the router of the targets", .set = set_server_gateway},
};

static int complete(struct perf_opts *o, struct err *err)
{
    if (!peers_opts.port || peers_opts.peers.count == 0)
        return err_set(err, -EINVAL, "give --port DEVICE and --peers NID*COUNT");
    if (o->command == PERF_PING)
        return err_set(err, -EINVAL, "ping is for millrace-perf");
    return 0;
}

static const struct perf_program program = {
    .name = "millrace-peers",
    .engine = &engine_peers,
    .options = options,
    .noptions = sizeof(options) / sizeof(options[0]),
    .complete = complete,
};

int main(int argc, char **argv)
{
    return perf_run(&program, argc, argv);
}
