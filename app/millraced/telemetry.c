/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What DPDK's telemetry is asked below /lnet. Its thread calls us while the node runs: only
 * counters that any thread may read are looked at. A lock keeps what they are part of from being
 * freed meanwhile; no reactor ever takes it.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <rte_telemetry.h>

#include "app/millraced/daemon_internal.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/lnet/wire/drops.h"

struct number {
    const char *name;
    size_t off; /* of a uint64_t */
};

#define NUMBER(type, member)                                                                       \
    {                                                                                              \
#member, offsetof(struct type, member)                                                     \
    }

static struct {
    pthread_mutex_t lock;
    const struct lnet_node *node; /* NULL: it is not started, or it ends */
    struct inet *inet;            /* NULL: there are no ports */
    const struct tcp *tcp;
    unsigned reactors;
} shown = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void add_numbers(struct rte_tel_data *out, const void *from, const struct number *row)
{
    uint64_t value;

    for (; row->name; row++) {
        memcpy(&value, (const uint8_t *)from + row->off, sizeof(value));
        rte_tel_data_add_dict_u64(out, row->name, value);
    }
}

/* Structures of nothing but uint64_t. */
static void add_up(void *sum, const void *more, size_t size)
{
    uint64_t *to = sum;
    const uint64_t *from = more;

    for (size_t i = 0; i < size / sizeof(*to); i++)
        to[i] += from[i];
}

/* ---- /lnet/ports ---- */

static void add_queues(struct rte_tel_data *out, const struct port *port, bool tx)
{
    static const struct number rows[2][9] = {
        {{"rx_packets", offsetof(struct port_queue_stats, packets)},
         {"rx_bytes", offsetof(struct port_queue_stats, bytes)},
         {"rx_no_buffer", offsetof(struct port_queue_stats, no_buffer)},
         {"rx_bad", offsetof(struct port_queue_stats, bad)},
         {"rx_copies", offsetof(struct port_queue_stats, copies)},
         {"rx_copied_bytes", offsetof(struct port_queue_stats, copied_bytes)},
         {"rx_checksums", offsetof(struct port_queue_stats, csums)}},
        {{"tx_packets", offsetof(struct port_queue_stats, packets)},
         {"tx_bytes", offsetof(struct port_queue_stats, bytes)},
         {"tx_full", offsetof(struct port_queue_stats, full)},
         {"tx_no_buffer", offsetof(struct port_queue_stats, no_buffer)},
         {"tx_bad", offsetof(struct port_queue_stats, bad)},
         {"tx_copies", offsetof(struct port_queue_stats, copies)},
         {"tx_copied_bytes", offsetof(struct port_queue_stats, copied_bytes)},
         {"tx_checksums", offsetof(struct port_queue_stats, csums)}},
    };
    struct port_queue_stats sum = {0}, one;
    unsigned n = tx ? port->tx_queues : port->rx_queues;

    _Static_assert(sizeof(sum) % sizeof(uint64_t) == 0, "nothing but uint64_t");
    for (unsigned i = 0; i < n; i++) {
        memset(&one, 0, sizeof(one));
        port_stats_get(port, tx, i, &one);
        add_up(&sum, &one, sizeof(sum));
    }
    add_numbers(out, &sum, rows[tx]);
}

static void list_ports(struct rte_tel_data *out)
{
    rte_tel_data_start_array(out, RTE_TEL_STRING_VAL);
    for (unsigned i = 0; shown.inet && i < inet_if_count(shown.inet); i++)
        rte_tel_data_add_array_string(out, inet_if_name(inet_if_at(shown.inet, i)));
}

static int show_port(const char *name, struct rte_tel_data *out)
{
    const struct inet_if *ifp = shown.inet ? inet_if_find(shown.inet, name) : NULL;
    const struct port *port;

    if (!ifp)
        return -ENOENT;
    port = inet_if_port(ifp);
    rte_tel_data_start_dict(out);
    rte_tel_data_add_dict_string(out, "name", name);
    rte_tel_data_add_dict_string(out, "device", port->device);
    rte_tel_data_add_dict_string(out, "link", inet_if_link(ifp) ? "up" : "down");
    rte_tel_data_add_dict_u64(out, "mtu", inet_if_mtu(ifp));
    add_queues(out, port, false);
    add_queues(out, port, true);
    return 0;
}

static int on_ports(const char *cmd, const char *params, struct rte_tel_data *out)
{
    int rc = 0;

    (void)cmd;
    pthread_mutex_lock(&shown.lock);
    if (params && params[0])
        rc = show_port(params, out);
    else
        list_ports(out);
    pthread_mutex_unlock(&shown.lock);
    return rc;
}

/* ---- /lnet/tcp ---- */

static const struct number inet_numbers[] = {
    NUMBER(inet_stats, rx_packets), NUMBER(inet_stats, rx_bytes),
    NUMBER(inet_stats, tx_packets), NUMBER(inet_stats, tx_bytes),
    NUMBER(inet_stats, sums_known), NUMBER(inet_stats, handed_over),
    NUMBER(inet_stats, arp_sent),   NUMBER(inet_stats, arp_received),
    NUMBER(inet_stats, nd_sent),    NUMBER(inet_stats, nd_received),
    NUMBER(inet_stats, icmp_sent),  NUMBER(inet_stats, icmp_received),
    NUMBER(inet_stats, echoes),     {NULL, 0},
};

static const struct number tcp_numbers[] = {
    NUMBER(tcp_stats, segs_in),      NUMBER(tcp_stats, segs_out),
    NUMBER(tcp_stats, bytes_in),     NUMBER(tcp_stats, bytes_out),
    NUMBER(tcp_stats, conns_in),     NUMBER(tcp_stats, conns_out),
    NUMBER(tcp_stats, conns_now),    NUMBER(tcp_stats, half_open),
    NUMBER(tcp_stats, time_wait),    NUMBER(tcp_stats, resent),
    NUMBER(tcp_stats, rtos),         NUMBER(tcp_stats, tlps),
    NUMBER(tcp_stats, resets_in),    NUMBER(tcp_stats, resets_out),
    NUMBER(tcp_stats, challenges),   NUMBER(tcp_stats, challenges_limited),
    NUMBER(tcp_stats, predicted),    NUMBER(tcp_stats, passed_on),
    NUMBER(tcp_stats, copies),       NUMBER(tcp_stats, copied_bytes),
    NUMBER(tcp_stats, in_place),     NUMBER(tcp_stats, sparse),
    NUMBER(tcp_stats, sparse_bytes), NUMBER(tcp_stats, mtu_black_holes),
    NUMBER(tcp_stats, stubs_short),  {NULL, 0},
};

static int on_tcp(const char *cmd, const char *params, struct rte_tel_data *out)
{
    struct inet_stats ip = {0}, ip_one;
    struct tcp_stats tcp = {0}, tcp_one;

    (void)cmd;
    (void)params;
    rte_tel_data_start_dict(out);
    pthread_mutex_lock(&shown.lock);
    for (unsigned i = 0; shown.inet && i < shown.reactors; i++) {
        memset(&ip_one, 0, sizeof(ip_one));
        memset(&tcp_one, 0, sizeof(tcp_one));
        inet_stats_get(shown.inet, i, &ip_one);
        tcp_stats_get(shown.tcp, i, &tcp_one);
        add_up(&ip, &ip_one, sizeof(ip));
        add_up(&tcp, &tcp_one, sizeof(tcp));
    }
    pthread_mutex_unlock(&shown.lock);
    add_numbers(out, &ip, inet_numbers);
    add_numbers(out, &tcp, tcp_numbers);
    return 0;
}

/* ---- /lnet/stats and /lnet/drops ---- */

static int on_stats(const char *cmd, const char *params, struct rte_tel_data *out)
{
    uint64_t stat[LNET_STAT_COUNT] = {0};

    (void)cmd;
    (void)params;
    pthread_mutex_lock(&shown.lock);
    if (shown.node)
        lnet_stats_ever(shown.node, stat);
    pthread_mutex_unlock(&shown.lock);
    rte_tel_data_start_dict(out);
    for (unsigned i = 0; i < LNET_STAT_COUNT; i++)
        rte_tel_data_add_dict_u64(out, lnet_stat_name((enum lnet_stat)i), stat[i]);
    return 0;
}

static void drops_of_node(struct rte_tel_data *out)
{
    uint64_t count[LNET_DROP_COUNT] = {0};

    if (shown.node)
        lnet_drops_get(shown.node, count);
    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d))
        rte_tel_data_add_dict_u64(out, lnet_drop_info(d)->name, count[d]);
}

/* All but what faults made on purpose cost, which tamper_get shows. */
static void drops_of_ports(struct rte_tel_data *out)
{
    uint64_t count[PKT_DROP_COUNT] = {0};

    if (shown.inet)
        inet_drops_get(shown.inet, count);
    for (unsigned i = PKT_DROP_NONE + 1; i < PKT_DROP_COUNT; i++)
        if (i != PKT_DROP_TAMPER)
            rte_tel_data_add_dict_u64(out, pkt_drop_info((enum pkt_drop)i)->name, count[i]);
}

static int on_drops(const char *cmd, const char *params, struct rte_tel_data *out)
{
    bool ports = params && strcmp(params, "ports") == 0;

    (void)cmd;
    if (params && params[0] && !ports)
        return -EINVAL;
    rte_tel_data_start_dict(out);
    pthread_mutex_lock(&shown.lock);
    if (ports)
        drops_of_ports(out);
    else
        drops_of_node(out);
    pthread_mutex_unlock(&shown.lock);
    return 0;
}

/* ---- when ---- */

int daemon_telemetry_register(void)
{
    static const struct {
        const char *cmd;
        telemetry_cb fn;
        const char *help;
    } row[] = {
        {"/lnet/ports", on_ports,
         "Names of the ports; with one of them, its link and counters. Parameters: name (optional)"},
        {"/lnet/tcp", on_tcp, "Counters of IP and TCP on the ports, all reactors. No parameters"},
        {"/lnet/stats", on_stats, "Counters of the node since its start. No parameters"},
        {"/lnet/drops", on_drops,
         "Messages and connections dropped, by reason; with `ports`, packets. Parameters: ports "
         "(optional)"},
    };
    int rc = 0;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]) && rc == 0; i++)
        rc = rte_telemetry_register_cmd(row[i].cmd, row[i].fn, row[i].help);
    return rc;
}

void daemon_telemetry_show(const struct lnet_node *node, const struct sock_ports *ports,
                           unsigned reactors)
{
    pthread_mutex_lock(&shown.lock);
    shown.node = node;
    shown.inet = ports ? ports->inet : NULL;
    shown.tcp = ports ? ports->transport.ctx : NULL;
    shown.reactors = reactors;
    pthread_mutex_unlock(&shown.lock);
}
