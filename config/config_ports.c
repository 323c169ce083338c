/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads `ports:` and checks each value by itself. */
#include "config/config_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MTU_MIN  576
#define MTU_MAX  9000
#define VLAN_MAX 4094

/* ---- addresses as text ---- */

bool cfg_addr_parse(const char *text, struct inet_addr *out)
{
    inet_addr4(out, &(struct in_addr){0});
    if (inet_pton(AF_INET, text, out->b + 12) == 1)
        return true;
    return inet_pton(AF_INET6, text, out->b) == 1 && !inet_is4(out);
}

bool cfg_prefix_parse(const char *text, struct inet_prefix *out)
{
    const char *slash = strchr(text, '/');
    char addr[INET6_ADDRSTRLEN];
    size_t len = slash ? (size_t)(slash - text) : 0, digits;
    long bits;

    if (!slash || len >= sizeof(addr))
        return false;
    memcpy(addr, text, len);
    addr[len] = '\0';
    digits = strspn(slash + 1, "0123456789");
    if (digits < 1 || digits > 3 || slash[1 + digits] || !cfg_addr_parse(addr, &out->addr))
        return false;
    bits = strtol(slash + 1, NULL, 10);
    out->bits = (uint8_t)bits;
    return bits <= (inet_is4(&out->addr) ? 32 : 128);
}

char *cfg_addr_text(const struct inet_addr *addr, char buf[CFG_PREFIX_SIZE])
{
    bool is4 = inet_is4(addr);

    if (!inet_ntop(is4 ? AF_INET : AF_INET6, is4 ? addr->b + 12 : addr->b, buf, CFG_PREFIX_SIZE))
        buf[0] = '\0';
    return buf;
}

char *cfg_prefix_text(const struct inet_prefix *prefix, char buf[CFG_PREFIX_SIZE])
{
    size_t used = strlen(cfg_addr_text(&prefix->addr, buf));

    snprintf(buf + used, CFG_PREFIX_SIZE - used, "/%u", prefix->bits);
    return buf;
}

/* ---- looking ---- */

struct cfg_port *cfg_find_port(const struct cfg *cfg, const char *name)
{
    for (unsigned i = 0; i < cfg->port_count; i++)
        if (strcmp(cfg->port[i].name, name) == 0)
            return &cfg->port[i];
    return NULL;
}

const char *cfg_port_device(const struct cfg_port *port)
{
    return port->device[0] ? port->device : port->name;
}

/* [domain:]bus:device.function */
bool cfg_port_is_pci(const struct cfg_port *port)
{
    const char *device = cfg_port_device(port);
    unsigned domain, bus, slot, function;

    return sscanf(device, "%4x:%2x:%2x.%1x", &domain, &bus, &slot, &function) == 4 ||
           sscanf(device, "%2x:%2x.%1x", &bus, &slot, &function) == 3;
}

/* ---- values ---- */

static bool is_port_name(const char *text)
{
    const char *p = text;

    while (*p && (isalnum((unsigned char)*p) || strchr("-_.@:", *p)))
        p++;
    return p > text && !*p;
}

/* A device is an interface of the kernel, a PCI address, or a device name of DPDK; the last two may
 * have arguments. */
static bool is_device(const char *text)
{
    const char *p = text;

    while (*p > ' ' && *p < 0x7f)
        p++;
    return p > text && !*p;
}

static void port_address(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_port *port = obj;
    struct inet_prefix prefix;

    if (!cfg_read_named(r, CFG_PREFIX, item, &prefix))
        return;
    if (port->address_count == CFG_PORT_ADDRESSES)
        cfg_error(r, item->line, "is one address too many; at most %d", CFG_PORT_ADDRESSES);
    else
        port->address[port->address_count++] = prefix;
}

static void port_gateway(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_port *port = obj;
    struct inet_addr addr;
    bool there = false;

    if (!cfg_read_named(r, CFG_ADDR, item, &addr))
        return;
    for (unsigned i = 0; i < port->gateway_count; i++)
        there |= inet_is4(&port->gateway[i]) == inet_is4(&addr);
    if (there)
        cfg_error(r, item->line,
                  "is a second gateway for IPv%d; write one, and routes for the rest",
                  inet_is4(&addr) ? 4 : 6);
    else
        port->gateway[port->gateway_count++] = addr;
}

static const struct cfg_key route_keys[] = {
    CFG_FIELD(struct inet_route, "to", CFG_PREFIX, to),
    CFG_FIELD(struct inet_route, "via", CFG_ADDR, via),
    CFG_KEYS_END,
};

static void port_route(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_port *port = obj;
    unsigned errors = r->report->errors;
    struct inet_route route;

    memset(&route, 0, sizeof(route));
    cfg_read_map(r, item, route_keys, &route);
    if (r->report->errors > errors)
        return;
    if (!yaml_tree_get(item, "to") || !yaml_tree_get(item, "via"))
        cfg_error(r, item->line, "needs 'to' and 'via'; write {to: 10.2.0.0/16, via: 10.0.0.253}");
    else if (port->route_count == CFG_PORT_ROUTES)
        cfg_error(r, item->line, "is one route too many; at most %d", CFG_PORT_ROUTES);
    else
        port->route[port->route_count++] = route;
}

static const struct cfg_key port_keys[] = {
    CFG_FIELD(struct cfg_port, "name", CFG_TEXT, name, .max = 16, .valid = is_port_name,
              .otherwise = "cannot be a port's name; write up to 15 letters, digits and -_.@:"),
    CFG_FIELD(struct cfg_port, "device", CFG_TEXT, device, .max = 128, .valid = is_device,
              .otherwise = "cannot be a device; write an interface (`ip link`), a PCI address as "
                           "in 0000:3b:00.0, or a device of DPDK's as in net_memif0,role=client"),
    CFG_FIELD(struct cfg_port, "mtu", CFG_INT, mtu, .min = MTU_MIN, .max = MTU_MAX),
    CFG_FIELD(struct cfg_port, "vlan", CFG_INT, vlan, .max = VLAN_MAX),
    CFG_FIELD(struct cfg_port, "addresses", CFG_ITEMS, address_count, .fn = port_address),
    CFG_FIELD(struct cfg_port, "gateway", CFG_ITEMS, gateway_count, .fn = port_gateway),
    CFG_FIELD(struct cfg_port, "routes", CFG_ITEMS, route_count, .fn = port_route),
    CFG_FIELD(struct cfg_port, "duplicate_check", CFG_BOOL, duplicate_check),
    CFG_KEYS_END,
};

/* ---- the list ---- */

void cfg_read_port(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    const struct yaml_tree_node *name = yaml_tree_get(item, "name");
    struct cfg_port port;
    unsigned errors = r->report->errors;
    const struct cfg_port *there = NULL;
    char none[64];

    if (!name) {
        cfg_error(r, item->line, "has no 'name'; write {name: eth0, addresses: [10.0.0.1/24]}");
        return;
    }
    memset(&port, 0, sizeof(port));
    port.duplicate_check = 1;
    /* A key that the text lacks keeps the value that the port has in the base. */
    if (cfg_mode(r) == CFG_MERGE && name->kind == YAML_SCALAR) {
        snprintf(port.name, sizeof(port.name), "%s", name->text);
        there = cfg_find_base(r, CFG_PORTS, &port);
    }
    if (there)
        port = *there;
    port.line = item->line;
    cfg_read_map(r, item, port_keys, &port);
    if (r->report->errors > errors)
        return;
    snprintf(none, sizeof(none), "there is no port %s to be removed", port.name);
    cfg_put(r, CFG_PORTS, &port, cfg_find_base(r, CFG_PORTS, &port), port.line, none);
}
