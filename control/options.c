/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns a configuration into the options of the node, the drivers, TCP and the ports. */
#include <limits.h>
#include <string.h>

#include "control/controller_internal.h"

const struct lnd_ops *control_driver(lnet_net_t net)
{
    for (unsigned i = 0; lnd_codes[i]; i++)
        if (lnd_codes[i]->type->net_type == net >> 16)
            return lnd_codes[i]->ops;
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
        .guard = cfg_guard(cfg),
        .prefix4 = (unsigned)cfg->share_prefix4,
        .prefix6 = (unsigned)cfg->share_prefix6,
        .check_interval = (unsigned)cfg->check_interval,
        .ping_timeout = (unsigned)cfg->ping_timeout,
        .max_interfaces = (unsigned)cfg->max_interfaces,
        .egress_share = (unsigned)cfg->egress_share,
        .buffer_wait = (unsigned)cfg->buffer_wait,
        .source_check = (enum lnet_source_check)cfg->source_check,
        .rules = control_route_rules(cfg),
    };
}

struct lnd_conf control_lnd_conf(const struct cfg *cfg, const struct lnd_type *type)
{
    return (struct lnd_conf){
        .option = &cfg->lnd_option[lnd_first_option(type)],
        .accept = (enum lnd_accept)cfg->accept,
        .accept_port = (uint16_t)cfg->accept_port,
        .accept_timeout = (unsigned)cfg->accept_timeout,
        .keepalive = (unsigned)cfg->keepalive,
        .min_reconnect = (unsigned)cfg->min_reconnect,
        .max_reconnect = (unsigned)cfg->max_reconnect,
        .max_conns = (unsigned)cfg->max_connections,
    };
}

void control_tcp_opts(const struct cfg *cfg, struct tcp_opts *opts)
{
    *opts = (struct tcp_opts){
        .max_conns = (unsigned)cfg->max_connections,
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
