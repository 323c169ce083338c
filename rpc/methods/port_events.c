/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of ports: links, addresses, paths that lose large packets. */
#include <stdio.h>

#include "rpc/methods/events.h"
#include "rpc/methods/port.h"

static const char *const types[INET_EV_COUNT] = {
    [INET_EV_PORT_UP] = "port_up",
    [INET_EV_PORT_DOWN] = "port_down",
    [INET_EV_ADDRESS_READY] = "address_ready",
    [INET_EV_ADDRESS_CONFLICT] = "address_conflict",
    [INET_EV_MTU_BLACK_HOLE] = "mtu_black_hole",
};

static const char *state_of(const struct inet_event *e)
{
    switch (e->kind) {
    case INET_EV_PORT_UP:
        return "up";
    case INET_EV_PORT_DOWN:
        return "down";
    case INET_EV_ADDRESS_CONFLICT:
        return e->used ? "defended" : "not_used";
    case INET_EV_MTU_BLACK_HOLE:
        return "lowered";
    default:
        return "used";
    }
}

static void text_of(const struct inet_event *e, const char *mac, char *out, size_t len)
{
    char addr[RPC_INET_SIZE];

    rpc_inet_text(&e->addr, addr);
    switch (e->kind) {
    case INET_EV_PORT_UP:
        snprintf(out, len, "the link of port %s is up", e->port);
        break;
    case INET_EV_PORT_DOWN:
        snprintf(out, len, "the link of port %s is down", e->port);
        break;
    case INET_EV_ADDRESS_CONFLICT:
        snprintf(out, len,
                 e->used ? "address %s of %s is used by %s too, who was told that it is ours"
                         : "address %s of %s is that of %s and not used here until nobody answers "
                           "for it any more",
                 addr, e->ifname, mac);
        break;
    case INET_EV_MTU_BLACK_HOLE:
        snprintf(out, len,
                 "large packets to %s vanish without a word: no more than %u bytes are sent from "
                 "now on; let ICMP through on the path, or set a smaller mtu",
                 addr, e->value);
        break;
    default:
        snprintf(out, len, "address %s of %s is ours and used", addr, e->ifname);
    }
}

void rpc_events_of_port(struct rpc_ctx *ctx, const struct inet_event *e)
{
    json_t *more = json_pack("{s:s, s:s}", "state", state_of(e), "port", e->port);
    char mac[RTE_ETHER_ADDR_FMT_SIZE], text[300];

    rte_ether_format_addr(mac, sizeof(mac), &e->mac);
    text_of(e, mac, text, sizeof(text));
    if (e->ifname) {
        json_object_set_new(more, "interface", json_string(e->ifname));
        json_object_set_new(more, "address", rpc_inet(&e->addr));
    }
    if (e->kind == INET_EV_ADDRESS_CONFLICT)
        json_object_set_new(more, "mac", json_string(mac));
    if (e->kind == INET_EV_MTU_BLACK_HOLE)
        json_object_set_new(more, "mtu", json_integer(e->value));
    if (e->kind == INET_EV_PORT_UP)
        json_object_set_new(more, "speed", json_integer(e->value));
    rpc_events_emit(ctx, types[e->kind], e->cause, text, more);
}
