/* SPDX-License-Identifier: BSD-3-Clause */
/* millrace-perf: one LNet node that serves, or makes load. The options that only a node has. */
#include "app/millrace-perf/node.h"

#include <errno.h>
#include <string.h>

static struct lnet_ni_conf *ni_new(struct perf_opts *o, struct err *err)
{
    struct lnet_ni_conf *ni;

    if (o->nnis == PERF_MAX_NIS) {
        err_text(err, "no more than %u NIs", PERF_MAX_NIS);
        return NULL;
    }
    ni = &o->ni[o->nnis++];
    ni->nid = LNET_NID_ANY;
    ni->tun = (struct lnet_tunables){-1, -1, -1, -1};
    ni->lnd_tun = LND_TUNABLES_DEFAULT;
    return ni;
}

static int set_nid(struct perf_opts *o, const char *arg, struct err *err)
{
    struct lnet_nid nid;
    struct lnet_ni_conf *ni;

    if (nid_parse(arg, &nid) != 0)
        return err_set(err, -EINVAL, "'%s' is not a NID (ADDRESS@NET, such as 10.0.0.1@tcp)", arg);

    ni = ni_new(o, err);
    if (!ni)
        return -EINVAL;
    ni->nid = nid;
    ni->net = nid_net(&nid);
    return 0;
}

static int set_if(struct perf_opts *o, const char *arg, struct err *err)
{
    struct lnet_ni_conf *ni;

    if (*arg == '\0' || strlen(arg) >= sizeof(ni->ifname))
        return err_set(err, -EINVAL, "'%s' is not the name of an interface", arg);

    ni = ni_new(o, err);
    if (!ni)
        return -EINVAL;
    memcpy(ni->ifname, arg, strlen(arg) + 1);
    ni->net = LNET_NET_ANY; /* --net may still come */
    return 0;
}

static int set_net(struct perf_opts *o, const char *arg, struct err *err)
{
    if (net_parse(arg, &o->net) == 0)
        return 0;
    return err_set(err, -EINVAL, "'%s' is not a net (such as tcp or tcp1)", arg);
}

static int set_route(struct perf_opts *o, const char *arg, struct err *err)
{
    struct lnet_route_conf route = {.hops = LNET_HOPS_UNDEFINED};
    char net[LNET_NETSTR_SIZE], gateway[LNET_NIDSTR_SIZE], more;

    if (o->nroutes == PERF_MAX_ROUTES)
        return err_set(err, -EINVAL, "no more than %u routes", PERF_MAX_ROUTES);

    if (sscanf(arg, "%23s %63s %c", net, gateway, &more) != 2 || net_parse(net, &route.net) != 0 ||
        nid_parse(gateway, &route.gateway) != 0)
        return err_set(err, -EINVAL,
                       "wants 'NET GATEWAY_NID', such as 'tcp1 10.0.0.254@tcp', not '%s'", arg);

    o->route[o->nroutes++] = route;
    return 0;
}

static const struct perf_option options[] = {
    {"nid", "NID", "own NID; may be given several times", .set = set_nid},
    {"if", "IFACE", "or: own interface, whose address makes the NID", .set = set_if},
    {"net", "NET", "net of that interface (tcp); o2ib nets are over RDMA", .set = set_net},
    {"route", "'NET GATEWAY_NID'", "a route; may be given several times", .set = set_route},
    {"serve", NULL, "put, get, both: serve too, and go on serving until a signal", PERF_OPTION_FLAG,
     offsetof(struct perf_opts, serve)},
    {"buffers", "N", "server: receive buffers, at least one per connection that sends at once (32)",
     PERF_OPTION_NUMBER, offsetof(struct perf_opts, buffers), 1, PERF_MAX_BUFFERS},
    {"conns-per-peer", "N", "connections of each kind to a peer", PERF_OPTION_NUMBER,
     offsetof(struct perf_opts, conns_per_peer), 1, 127},
    {"peer-credits", "N",
     "messages handed to the network for a peer at a time; o2ib: depth of the queues (8)",
     PERF_OPTION_NUMBER, offsetof(struct perf_opts, peer_credits), 1, UINT16_MAX},
};

static int complete(struct perf_opts *o, struct err *err)
{
    uint64_t targets = 0;

    for (unsigned i = 0; i < o->nnis; i++) {
        if (o->ni[i].net == LNET_NET_ANY)
            o->ni[i].net = o->net;
        o->ni[i].lnd_tun.conns_per_peer = o->conns_per_peer;
        o->ni[i].tun.peer_credits = o->peer_credits;
    }
    for (unsigned i = 0; i < o->ntargets; i++)
        targets += o->targets[i].count;
    if (o->serve && !options_send(o))
        return err_set(err, -EINVAL, "--serve is for put, get and both");
    if (o->nnis == 0)
        return err_set(err, -EINVAL, "no own NID: give --nid NID, or --if IFACE");
    if (o->inflight > PERF_NODE_INFLIGHT)
        return err_set(err, -EINVAL, "--concurrency is %u at most", PERF_NODE_INFLIGHT);
    if (targets > PERF_NODE_TARGETS)
        return err_set(err, -EINVAL, "%u targets at most", PERF_NODE_TARGETS);
    return 0;
}

static const struct perf_program program = {
    .name = "millrace-perf",
    .engine = &engine_node,
    .options = options,
    .noptions = sizeof(options) / sizeof(options[0]),
    .complete = complete,
};

int main(int argc, char **argv)
{
    lnd_codes_register();
    return perf_run(&program, argc, argv);
}
