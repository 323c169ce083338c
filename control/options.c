/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns a configuration into the options of the node, the drivers, TCP and the ports. */
#include <limits.h>
#include <string.h>

#include "control/controller_internal.h"

static const struct lnd_ops *const drivers[] = {&lnd_sock_ops, &lnd_verbs_ops};

const struct lnd_ops *control_driver(lnet_net_t net)
{
    for (unsigned i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (drivers[i]->type == net >> 16)
            return drivers[i];
    return NULL;
}

void control_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts)
{
    *opts = (struct lnet_node_opts){
        .routing = cfg->routing,
        .tiny = (unsigned)cfg->tiny,
        .small = (unsigned)cfg->small,
        .large = (unsigned)cfg->large,
        .max_peers = (unsigned)cfg->max_peers,
        .check_interval = (unsigned)cfg->check_interval,
        .ping_timeout = (unsigned)cfg->ping_timeout,
        .egress_share = (unsigned)cfg->egress_share,
        .buffer_wait = (unsigned)cfg->buffer_wait,
        .source_check = (enum lnet_source_check)cfg->source_check,
    };
}

void control_sock_opts(const struct cfg *cfg, struct sock_opts *opts)
{
    *opts = SOCK_OPTS_DEFAULT;
    opts->accept = (enum sock_accept)cfg->accept;
    opts->accept_port = (uint16_t)cfg->accept_port;
    opts->accept_timeout = (unsigned)cfg->accept_timeout;
    opts->keepalive = (unsigned)cfg->keepalive;
    opts->min_reconnect = (unsigned)cfg->min_reconnect;
    opts->max_reconnect = (unsigned)cfg->max_reconnect;
    opts->max_conns = (unsigned)cfg->max_connections;
}

void control_verbs_opts(const struct cfg *cfg, struct verbs_opts *opts)
{
    *opts = VERBS_OPTS_DEFAULT;
    opts->service = (uint16_t)cfg->verbs_service;
    opts->keepalive = (unsigned)cfg->verbs_keepalive;
    opts->retry_count = (unsigned)cfg->verbs_retry_count;
    opts->rnr_retry_count = (unsigned)cfg->verbs_rnr_retry_count;
    opts->min_reconnect = (unsigned)cfg->min_reconnect;
    opts->max_reconnect = (unsigned)cfg->max_reconnect;
    opts->require_privileged_port = cfg->verbs_require_privileged_port;
    opts->use_privileged_port = cfg->verbs_use_privileged_port;
    opts->max_conns = (unsigned)cfg->verbs_max_connections;
}

void control_tcp_opts(const struct cfg *cfg, struct tcp_opts *opts)
{
    struct sock_opts sock;

    control_sock_opts(cfg, &sock);
    *opts = (struct tcp_opts){
        .max_conns = sock.max_conns,
        .cc = cfg_congestion_names[cfg->congestion],
        .wscale_max = UINT_MAX,
    };
}

unsigned control_neighbours(const struct cfg *cfg)
{
    return (unsigned)cfg->max_connections / 2;
}

bool control_port_opts(const struct cfg *cfg, unsigned index, struct port_opts *opts)
{
    const struct cfg_port *port = &cfg->port[index], *other;
    int mtu = 0;

    for (unsigned i = 0; i < cfg->port_count; i++) {
        other = &cfg->port[i];
        if (strcmp(cfg_port_device(port), cfg_port_device(other)) != 0)
            continue;
        if (i < index)
            return false;
        mtu = other->mtu > mtu ? other->mtu : mtu;
    }
    *opts = (struct port_opts){
        .name = port->name,
        .device = cfg_port_device(port),
        .mtu = (unsigned)mtu,
        .reactors = cfg_reactor_count(cfg),
        .rx_queues = cfg_reactor_count(cfg),
        .socket = -1,
    };
    return true;
}
