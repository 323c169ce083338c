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
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (inet_pton(AF_INET, text, out->b + 12) == 1) {
        memcpy(out->b, mapped, sizeof(mapped));
        return true;
    }
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

bool cfg_same_port(const struct cfg_port *a, const struct cfg_port *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(cfg_port_device(a), cfg_port_device(b)) == 0 &&
           a->mtu == b->mtu && a->vlan == b->vlan && a->duplicate_check == b->duplicate_check &&
           a->address_count == b->address_count && a->gateway_count == b->gateway_count &&
           a->route_count == b->route_count &&
           memcmp(a->address, b->address, a->address_count * sizeof(*a->address)) == 0 &&
           memcmp(a->gateway, b->gateway, a->gateway_count * sizeof(*a->gateway)) == 0 &&
           memcmp(a->route, b->route, a->route_count * sizeof(*a->route)) == 0;
}

/* ---- values ---- */

static void port_name(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_port *port = obj;
    const char *text = cfg_scalar(r, value), *p;

    for (p = text; p && *p && (isalnum((unsigned char)*p) || strchr("-_.@:", *p)); p++)
        ;
    if (!text)
        return;
    if (*p || p == text || strlen(text) >= sizeof(port->name))
        cfg_error(r, value->line,
                  "'%.40s' cannot be a port's name; write up to %zu letters, digits and -_.@:",
                  text, sizeof(port->name) - 1);
    else
        memcpy(port->name, text, strlen(text) + 1);
}

/* A device is an interface of the kernel, a PCI address, or a device name of DPDK; the last two may
 * have arguments. */
static void port_device(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_port *port = obj;
    const char *text = cfg_scalar(r, value), *p;

    for (p = text; p && *p > ' ' && *p < 0x7f; p++)
        ;
    if (!text)
        return;
    if (*p || p == text || strlen(text) >= sizeof(port->device))
        cfg_error(r, value->line,
                  "'%.40s' cannot be a device; write an interface (`ip link`), a PCI address as in "
                  "0000:3b:00.0, or a device of DPDK's as in net_memif0,role=client",
                  text);
    else
        memcpy(port->device, text, strlen(text) + 1);
}

static bool read_addr(struct cfg_reader *r, const struct yaml_tree_node *value,
                      struct inet_addr *out)
{
    const char *text = cfg_scalar(r, value);

    if (!text)
        return false;
    if (cfg_addr_parse(text, out))
        return true;
    cfg_error(r, value->line, "'%.60s' is not an IP address; write one as in 10.0.0.254 or fd00::1",
              text);
    return false;
}

static bool read_prefix(struct cfg_reader *r, const struct yaml_tree_node *value,
                        struct inet_prefix *out)
{
    const char *text = cfg_scalar(r, value);

    if (!text)
        return false;
    if (cfg_prefix_parse(text, out))
        return true;
    cfg_error(
        r, value->line,
        "'%.60s' is not an address with the length of its net; write one as in 10.0.0.1/24 or "
        "'fd00::1/64'",
        text);
    return false;
}

static void port_address(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_port *port = obj;
    struct inet_prefix prefix;

    if (!read_prefix(r, item, &prefix))
        return;
    if (port->address_count == CFG_PORT_ADDRESSES)
        cfg_error(r, item->line, "is one address too many; at most %d", CFG_PORT_ADDRESSES);
    else
        port->address[port->address_count++] = prefix;
}

static void port_addresses(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_port *port = obj;

    port->address_count = 0;
    cfg_read_items(r, value, port_address, port);
}

static void port_gateway(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_port *port = obj;
    struct inet_addr addr;
    bool there = false;

    if (!read_addr(r, item, &addr))
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

static void port_gateways(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_port *port = obj;

    port->gateway_count = 0;
    cfg_read_items(r, value, port_gateway, port);
}

static void route_to(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct inet_route *route = obj;

    (void)read_prefix(r, value, &route->to);
}

static void route_via(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct inet_route *route = obj;

    (void)read_addr(r, value, &route->via);
}

static const struct cfg_key route_keys[] = {
    CFG_CALLS("to", route_to),
    CFG_CALLS("via", route_via),
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

static void port_routes(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_port *port = obj;

    port->route_count = 0;
    cfg_read_items(r, value, port_route, port);
}

#define INT(key, field, lo, hi)                                                                    \
    {                                                                                              \
        .name = (key), .kind = CFG_INT, .offset = offsetof(struct cfg_port, field), .min = (lo),   \
        .max = (hi)                                                                                \
    }

static const struct cfg_key port_keys[] = {
    CFG_CALLS("name", port_name),
    CFG_CALLS("device", port_device),
    INT("mtu", mtu, MTU_MIN, MTU_MAX),
    INT("vlan", vlan, 0, VLAN_MAX),
    CFG_CALLS("addresses", port_addresses),
    CFG_CALLS("gateway", port_gateways),
    CFG_CALLS("routes", port_routes),
    {.name = "duplicate_check",
     .kind = CFG_BOOL,
     .offset = offsetof(struct cfg_port, duplicate_check)},
    CFG_KEYS_END,
};

/* ---- the list ---- */

/* Finds a port of the base that the text changes. An item of the base has no line. */
static struct cfg_port *find_base(const struct cfg_reader *r, const char *name)
{
    struct cfg_port *port = cfg_mode(r) == CFG_REPLACE ? NULL : cfg_find_port(r->cfg, name);

    return port && port->line == 0 ? port : NULL;
}

void cfg_read_port(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    const struct yaml_tree_node *name = yaml_tree_get(item, "name");
    struct cfg_port port;
    unsigned errors = r->report->errors;
    const struct cfg_port *there;
    char none[64];

    if (!name) {
        cfg_error(r, item->line, "has no 'name'; write {name: eth0, addresses: [10.0.0.1/24]}");
        return;
    }
    memset(&port, 0, sizeof(port));
    port.duplicate_check = 1;
    /* A key that the text lacks keeps the value that the port has in the base. */
    there = cfg_mode(r) == CFG_MERGE && name->kind == YAML_SCALAR ? find_base(r, name->text) : NULL;
    if (there)
        port = *there;
    port.line = item->line;
    cfg_read_map(r, item, port_keys, &port);
    if (r->report->errors > errors)
        return;
    snprintf(none, sizeof(none), "there is no port %s to be removed", port.name);
    cfg_put(r, CFG_PORTS, &port, find_base(r, port.name), port.line, none);
}
