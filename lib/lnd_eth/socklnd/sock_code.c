/* SPDX-License-Identifier: BSD-3-Clause */
/* socklnd as a program uses it: lib/lnd/code.h. */
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_eth/socklnd/sock_type.h"

struct sock_opts lnd_sock_opts(const struct lnd_conf *conf)
{
    struct sock_opts opts = SOCK_OPTS_DEFAULT;

    opts.ports = conf->ports;
    opts.accept = conf->accept;
    opts.accept_port = conf->accept_port;
    opts.accept_timeout = conf->accept_timeout;
    opts.keepalive = conf->keepalive;
    opts.min_reconnect = conf->min_reconnect;
    opts.max_reconnect = conf->max_reconnect;
    opts.max_conns = conf->max_conns;
    opts.hello_map = conf->map;
    opts.hello_map_count = conf->map_count;
    return opts;
}

static void *create(const struct lnd_conf *conf)
{
    struct sock_opts opts = lnd_sock_opts(conf);

    return lnd_sock_new(&opts);
}

static void memory(const struct lnd_conf *conf, unsigned reactors, const struct lnet_tunables *tun,
                   const struct lnd_tunables *lnd_tun, struct lnd_memory *out)
{
    struct sock_opts opts = lnd_sock_opts(conf);

    lnd_sock_memory(&opts, reactors, conf->has_ports, out);
}

const struct lnd_code lnd_sock_code = {
    .type = &lnd_sock_type,
    .ops = &lnd_sock_ops,
    .create = create,
    .destroy = lnd_driver_free,
    .memory = memory,
    .port_home = lnd_sock_home,
};
