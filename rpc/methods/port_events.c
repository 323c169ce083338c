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

void rpc_events_of_port(struct rpc_ctx *ctx, const struct inet_event *e)
{
    bool conflict = e->kind == INET_EV_ADDRESS_CONFLICT, defended = conflict && e->used;
    json_t *more = json_pack("{s:s}", "port", e->port);
    char text[200];

    if (e->ifname)
        json_object_update_new(
            more, json_pack("{s:s, s:o}", "interface", e->ifname, "address", rpc_inet(&e->addr)));
    if (conflict)
        json_object_set_new(more, "mac", rpc_mac(&e->mac));
    if (defended)
        json_object_set_new(more, "state", json_string("defended"));
    if (e->kind == INET_EV_MTU_BLACK_HOLE)
        json_object_set_new(more, "mtu", json_integer(e->value));
    if (e->kind == INET_EV_PORT_UP)
        json_object_set_new(more, "speed", json_integer(e->value));
    if (defended)
        snprintf(text, sizeof(text),
                 "address %s of %s is used by %s too, who was told that it is ours",
                 json_string_value(json_object_get(more, "address")), e->ifname,
                 json_string_value(json_object_get(more, "mac")));
    rpc_events_emit(ctx, types[e->kind], e->cause, defended ? text : NULL, more);
}
