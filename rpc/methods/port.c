/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for ports as a whole: port_get, pkt_drops_get, tcp_stats_get; helpers for other methods
 * about ports. */
#include "rpc/methods/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/lnd_eth/tcp/tcp.h"

/* ---- names, addresses, numbers ---- */

const char *rpc_inet_text(const struct inet_addr *addr, char out[RPC_INET_SIZE])
{
    bool v4 = inet_is4(addr);

    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? addr->b + 12 : addr->b, out, RPC_INET_SIZE);
    return out;
}

json_t *rpc_inet(const struct inet_addr *addr)
{
    char text[RPC_INET_SIZE];

    return json_string(rpc_inet_text(addr, text));
}

json_t *rpc_mac(const struct rte_ether_addr *mac)
{
    char text[RTE_ETHER_ADDR_FMT_SIZE];

    rte_ether_format_addr(text, sizeof(text), mac);
    return rte_is_zero_ether_addr(mac) ? NULL : json_string(text);
}

json_t *rpc_age(uint64_t age_us)
{
    return age_us == UINT64_MAX ? NULL : json_integer((json_int_t)(age_us / 1000));
}

bool rpc_inet_parse(const char *text, struct inet_addr *out)
{
    size_t len = strcspn(text, "@");
    char addr[RPC_INET_SIZE];

    if (len >= sizeof(addr))
        return false;
    memcpy(addr, text, len);
    addr[len] = '\0';
    *out = (struct inet_addr){.b = {[10] = 0xff, [11] = 0xff}};
    return inet_pton(AF_INET, addr, out->b + 12) == 1 || inet_pton(AF_INET6, addr, out->b) == 1;
}

bool rpc_inet_arg(struct jrpc_call *call, const struct jrpc_arg *arg, const char *name,
                  struct inet_addr *out)
{
    if (rpc_inet_parse(arg->string, out))
        return true;
    jrpc_refuse(call, name, "give an IPv4 or IPv6 address, or a NID with one",
                "%s is not an address", name);
    return false;
}

uint64_t rpc_number_of(const struct rpc_number *row, const void *from)
{
    const uint8_t *at = (const uint8_t *)from + row->off;

    if (row->size == 0)
        return *(const bool *)at;
    if (row->size == 8)
        return *(const uint64_t *)at;
    if (row->size == 2)
        return *(const uint16_t *)at;
    return row->size == 4 ? *(const uint32_t *)at : *at;
}

void rpc_add_numbers(json_t *object, const void *from, const struct rpc_number *row)
{
    for (; row->name; row++) {
        uint64_t value = rpc_number_of(row, from);

        json_object_set_new(object, row->name,
                            row->size == 0 ? json_boolean(value) : json_integer((json_int_t)value));
    }
}

unsigned rpc_ports(const struct rpc_ctx *ctx, struct port *out[PORT_MAX])
{
    unsigned n = 0, k;

    for (unsigned i = 0; ctx->control->inet && i < inet_if_count(ctx->control->inet); i++) {
        struct port *port = inet_if_port(inet_if_at(ctx->control->inet, i));

        for (k = 0; k < n && out[k] != port; k++)
            ;
        if (k == n && n < PORT_MAX)
            out[n++] = port;
    }
    return n;
}

struct port *rpc_port_find(struct jrpc_call *call, const char *name)
{
    struct port *all[PORT_MAX];
    unsigned n = rpc_ports(jrpc_ctx(call), all), i;

    for (i = 0; i < n; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    jrpc_fail(call, ENOENT, "port", "port_get lists the ports there are", "there is no port %s",
              name);
    return NULL;
}

/* ---- port_get ---- */

static json_t *offloads(uint32_t caps)
{
    static const struct {
        uint32_t cap;
        const char *name;
    } names[] = {
        {PORT_TX_TSO, "tx_tso"},         {PORT_TX_CSUM, "tx_csum"},
        {PORT_RX_CSUM, "rx_csum"},       {PORT_TX_CHAINS, "tx_chains"},
        {PORT_RX_SLEEPS, "rx_sleeps"},   {PORT_COPIES_IN, "copies_in"},
        {PORT_COPIES_OUT, "copies_out"}, {PORT_TX_RETURNS, "tx_returns"},
    };
    json_t *list = json_array();

    for (size_t i = 0; i < RTE_DIM(names); i++)
        if (caps & names[i].cap)
            json_array_append_new(list, json_string(names[i].name));
    return list;
}

static json_t *addresses(const struct inet_if *ifp)
{
    json_t *list = json_array();
    struct inet_prefix p;
    char text[RPC_INET_SIZE];

    for (unsigned i = 0; inet_if_addr(ifp, i, &p); i++)
        json_array_append_new(list, json_sprintf("%s/%u", rpc_inet_text(&p.addr, text), p.bits));
    return list;
}

static json_t *interfaces(struct inet *inet, const struct port *port)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < inet_if_count(inet); i++) {
        const struct inet_if *ifp = inet_if_at(inet, i);

        if (inet_if_port(ifp) == port)
            json_array_append_new(list, json_pack("{s:s, s:i, s:s, s:o}", "name", inet_if_name(ifp),
                                                  "mtu", (int)inet_if_mtu(ifp), "link",
                                                  inet_if_link(ifp) ? "up" : "down", "addresses",
                                                  addresses(ifp)));
    }
    return list;
}

const struct rpc_number rpc_queue_numbers[] = {
    RPC_NUMBER(port_queue_stats, packets),
    RPC_NUMBER(port_queue_stats, bytes),
    RPC_NUMBER(port_queue_stats, bursts),
    RPC_NUMBER(port_queue_stats, full),
    RPC_NUMBER(port_queue_stats, no_buffer),
    RPC_NUMBER(port_queue_stats, bad),
    RPC_NUMBER(port_queue_stats, copies),
    RPC_NUMBER(port_queue_stats, copied_bytes),
    {"checksums", offsetof(struct port_queue_stats, csums), 8},
    {NULL},
};

void rpc_port_sum(const struct port *port, bool tx, struct port_queue_stats *out)
{
    unsigned n = tx ? port->tx_queues : port->rx_queues;

    *out = (struct port_queue_stats){0};
    for (unsigned i = 0; i < n; i++) {
        struct port_queue_stats q = {0};

        port_stats_get(port, tx, i, &q);
        for (const struct rpc_number *row = rpc_queue_numbers; row->name; row++)
            *(uint64_t *)((uint8_t *)out + row->off) += rpc_number_of(row, &q);
    }
}

static json_t *queue_row(const struct port *port, bool tx, unsigned queue)
{
    struct port_queue_stats stats = {0};
    json_t *row = json_pack("{s:s, s:i}", "direction", tx ? "tx" : "rx", "queue", (int)queue);

    port_stats_get(port, tx, queue, &stats);
    rpc_add_numbers(row, &stats, rpc_queue_numbers);
    return row;
}

static json_t *queues(const struct port *port)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < port->rx_queues; i++)
        json_array_append_new(list, queue_row(port, false, i));
    for (unsigned i = 0; i < port->tx_queues; i++)
        json_array_append_new(list, queue_row(port, true, i));
    return list;
}

#define XSTATS_MAX 1024

static json_t *xstats(struct port *port)
{
    struct port_xstat *row = calloc(XSTATS_MAX, sizeof(*row));
    unsigned n = row && port->ops->xstats ? port->ops->xstats(port, row, XSTATS_MAX) : 0, i;
    json_t *map = json_object();

    for (i = 0; i < n && i < XSTATS_MAX; i++)
        json_object_set_new(map, row[i].name, json_integer((json_int_t)row[i].value));
    free(row);
    return map;
}

static json_t *port_row(struct inet *inet, struct port *port, bool with_xstats)
{
    struct port_info info = {0};
    char mac[RTE_ETHER_ADDR_FMT_SIZE];
    json_t *row;

    port_info_get(port, &info);
    rte_ether_format_addr(mac, sizeof(mac), &info.mac);
    row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:i, s:i, s:I, s:I, s:I}",
                    "name", info.name, "device", info.device, "backend", info.backend, "driver",
                    info.driver, "mac", mac, "link", info.link_up ? "up" : "down", "speed",
                    (int)info.speed, "mtu", (int)info.mtu, "numa", info.socket, "offloads",
                    offloads(info.caps), "rx_queues", (int)info.rx_queues, "tx_queues",
                    (int)info.tx_queues, "buffers", (json_int_t)info.buffers, "buffers_free",
                    (json_int_t)info.buffers_free, "buffer_bytes", (json_int_t)info.buffer_bytes);
    json_object_set_new(row, "interfaces", interfaces(inet, port));
    json_object_set_new(row, "queues", queues(port));
    if (with_xstats)
        json_object_set_new(row, "xstats", xstats(port));
    return row;
}

void rpc_port_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct port *all[PORT_MAX], *one = NULL;
    unsigned n = rpc_ports(ctx, all), i;
    json_t *list;

    if (args[0].given && !(one = rpc_port_find(call, args[0].string)))
        return;
    list = json_array();
    for (i = 0; i < n; i++)
        if (!one || all[i] == one)
            json_array_append_new(list, port_row(ctx->control->inet, all[i], args[1].boolean));
    jrpc_result(call, json_pack("{s:o}", "port", list));
}

/* ---- pkt_drops_get ---- */

void rpc_pkt_drops(const struct rpc_ctx *ctx, uint64_t out[PKT_DROP_COUNT])
{
    struct port *port[PORT_MAX];

    memset(out, 0, PKT_DROP_COUNT * sizeof(out[0]));
    if (ctx->control->inet)
        inet_drops_get(ctx->control->inet, out);
    for (unsigned i = 0, n = rpc_ports(ctx, port); i < n; i++)
        if (port[i]->faults)
            out[PKT_DROP_TAMPER] += port[i]->faults->lost(port[i]);
}

void rpc_pkt_drops_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    uint64_t count[PKT_DROP_COUNT];
    json_t *list = json_array();

    rpc_pkt_drops(jrpc_ctx(call), count);
    for (int i = PKT_DROP_NONE + 1; i < PKT_DROP_COUNT; i++) {
        const struct pkt_drop_info *info = pkt_drop_info((enum pkt_drop)i);

        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "name", info->name, "count",
                                              (json_int_t)count[i], "text", info->text));
    }
    jrpc_result(call, json_pack("{s:o}", "drops", list));
}

/* ---- tcp_stats_get ---- */

const struct rpc_number rpc_inet_numbers[] = {
    RPC_NUMBER(inet_stats, rx_packets), RPC_NUMBER(inet_stats, rx_bytes),
    RPC_NUMBER(inet_stats, tx_packets), RPC_NUMBER(inet_stats, tx_bytes),
    RPC_NUMBER(inet_stats, sums_known), RPC_NUMBER(inet_stats, handed_over),
    RPC_NUMBER(inet_stats, arp_sent),   RPC_NUMBER(inet_stats, arp_received),
    RPC_NUMBER(inet_stats, nd_sent),    RPC_NUMBER(inet_stats, nd_received),
    RPC_NUMBER(inet_stats, icmp_sent),  RPC_NUMBER(inet_stats, icmp_received),
    RPC_NUMBER(inet_stats, echoes),     {NULL},
};

const struct rpc_number rpc_tcp_numbers[] = {
    RPC_NUMBER(tcp_stats, segs_in),
    RPC_NUMBER(tcp_stats, segs_out),
    RPC_NUMBER(tcp_stats, bytes_in),
    RPC_NUMBER(tcp_stats, bytes_out),
    RPC_NUMBER(tcp_stats, conns_in),
    RPC_NUMBER(tcp_stats, conns_out),
    RPC_NUMBER(tcp_stats, conns_now),
    RPC_NUMBER(tcp_stats, half_open),
    RPC_NUMBER(tcp_stats, time_wait),
    RPC_NUMBER(tcp_stats, resent),
    RPC_NUMBER(tcp_stats, rtos),
    RPC_NUMBER(tcp_stats, tlps),
    RPC_NUMBER(tcp_stats, resets_in),
    RPC_NUMBER(tcp_stats, resets_out),
    RPC_NUMBER(tcp_stats, challenges),
    RPC_NUMBER(tcp_stats, challenges_limited),
    RPC_NUMBER(tcp_stats, predicted),
    RPC_NUMBER(tcp_stats, passed_on),
    RPC_NUMBER(tcp_stats, copies),
    RPC_NUMBER(tcp_stats, copied_bytes),
    RPC_NUMBER(tcp_stats, copies_short),
    RPC_NUMBER(tcp_stats, stuck_reset),
    RPC_NUMBER(tcp_stats, in_place),
    RPC_NUMBER(tcp_stats, sparse),
    RPC_NUMBER(tcp_stats, sparse_bytes),
    RPC_NUMBER(tcp_stats, mtu_black_holes),
    RPC_NUMBER(tcp_stats, stubs_short),
    RPC_NUMBER(tcp_stats, orphans_reset),
    {NULL},
};

void rpc_tcp_stats_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    json_t *list = json_array();

    for (unsigned i = 0; ctx->control->inet && i < reactor_count(ctx->control->env); i++) {
        json_t *ip = json_object(), *tcp = json_object();
        struct inet_stats is = {0};
        struct tcp_stats ts = {0};

        inet_stats_get(ctx->control->inet, i, &is);
        if (ctx->control->tcp)
            tcp_stats_get(ctx->control->tcp, i, &ts);
        rpc_add_numbers(ip, &is, rpc_inet_numbers);
        rpc_add_numbers(tcp, &ts, rpc_tcp_numbers);
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:o}", "reactor", (int)i, "ip", ip, "tcp", tcp));
    }
    jrpc_result(call, json_pack("{s:o}", "reactors", list));
}
