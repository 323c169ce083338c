/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: what is the same for all back-ends. See port.h. */
#include "lib/base/err.h"
#include "lib/lnd_eth/port/port_internal.h"
#include "lib/reactor/mem_mbuf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_branch_prediction.h>

#define TX_MBUFS   4096u /* per reactor: what one may have with the device and in its own queues */
#define SMALL_MIN  512u
#define LARGE_MIN  256u
#define STATS_WANT REACTOR_MAX /* so that no index of a reactor's is out of range */

static struct port *ports[PORT_MAX]; /* control thread */

/* ---- pools ---- */

int port_pool(struct port *port, const char *what, uint32_t count, uint16_t room,
              struct rte_mempool **out, struct err *err)
{
    char name[RTE_MEMPOOL_NAMESIZE];

    snprintf(name, sizeof(name), "port%u_%s", port->index, what);
    return mem_mbufs_create(name, count, PKT_PRIV, room, port->socket, out, err);
}

/* A quarter for short frames: a frame that finds none of its kind takes the other. */
static void counts_copied(size_t buffer_bytes, uint32_t *small, uint32_t *large)
{
    size_t each_small = PORT_ROOM_SMALL + sizeof(struct rte_mbuf) + PKT_PRIV;
    size_t each_large = PORT_ROOM_LARGE + sizeof(struct rte_mbuf) + PKT_PRIV;

    *small = (uint32_t)max(buffer_bytes / 4 / each_small, (size_t)SMALL_MIN);
    *large = (uint32_t)max(buffer_bytes / 4 * 3 / each_large, (size_t)LARGE_MIN);
}

int port_pools_copied(struct port *port, size_t buffer_bytes, struct err *err)
{
    uint32_t small, large;
    int rc;

    counts_copied(buffer_bytes, &small, &large);
    rc = port_pool(port, "small", small, PORT_ROOM_SMALL, &port->rx_small, err);
    if (rc == 0)
        rc = port_pool(port, "large", large, PORT_ROOM_LARGE, &port->rx_large, err);
    return rc;
}

size_t port_pools_copied_memory(size_t buffer_bytes)
{
    uint32_t small, large;

    counts_copied(buffer_bytes, &small, &large);
    return mem_mbufs_memory(small, PKT_PRIV, PORT_ROOM_SMALL) +
           mem_mbufs_memory(large, PKT_PRIV, PORT_ROOM_LARGE);
}

static void pools_destroy(struct port *port)
{
    mem_mbufs_destroy(port->rx_small);
    if (port->rx_large != port->rx_small)
        mem_mbufs_destroy(port->rx_large);
    mem_mbufs_destroy(port->tx_linear);
    mem_mbufs_destroy(port->tx_pool);
}

/* ---- making ---- */

static int opts_check(const struct port_opts *opts, struct err *err)
{
    if (!opts->name || opts->name[0] == '\0' || strlen(opts->name) >= PORT_NAME_MAX)
        return err_set(err, -EINVAL, "a port's name has 1 to %d characters", PORT_NAME_MAX - 1);
    if (!opts->device || opts->device[0] == '\0' ||
        strlen(opts->device) >= sizeof(((struct port *)NULL)->device)) {
        return err_set(err, -EINVAL, "port %s: the name of its device is missing or too long",
                       opts->name);
    }
    if (opts->mtu != 0 && (opts->mtu < PORT_MTU_MIN || opts->mtu > PORT_MTU_MAX)) {
        return err_set(err, -EINVAL, "port %s: an MTU of %u; it may be %d to %d", opts->name,
                       opts->mtu, PORT_MTU_MIN, PORT_MTU_MAX);
    }
    for (unsigned i = 0; i < PORT_MAX; i++) {
        if (ports[i] && (strcmp(ports[i]->name, opts->name) == 0 ||
                         strcmp(ports[i]->device, opts->device) == 0)) {
            return err_set(err, -EEXIST, "port %s (%s): there is a port %s on %s already",
                           opts->name, opts->device, ports[i]->name, ports[i]->device);
        }
    }
    return 0;
}

static int index_get(struct port *port, struct err *err)
{
    for (unsigned i = 0; i < PORT_MAX; i++) {
        if (!ports[i]) {
            ports[i] = port;
            port->index = i;
            return 0;
        }
    }
    return err_set(err, -ENOSPC, "more than %d ports", PORT_MAX);
}

void *port_zalloc(size_t size)
{
    void *p;

    return posix_memalign(&p, RTE_CACHE_LINE_SIZE, size) == 0 ? memset(p, 0, size) : NULL;
}

/* Frees a port that has neither device nor pools. */
static void port_free(struct port *port)
{
    if (ports[port->index] == port)
        ports[port->index] = NULL;
    free(port->rx_stats);
    free(port->tx_stats);
    free(port);
}

int port_open(const struct port_opts *opts, const struct port_ops *ops, struct port **out,
              struct err *err)
{
    struct port_opts want = *opts;
    struct port *port;
    int rc = opts_check(opts, err);

    if (rc < 0)
        return rc;
    port = calloc(1, sizeof(*port));
    if (!port)
        return err_set(err, -ENOMEM, "port %s: out of memory", opts->name);
    port->rx_stats = port_zalloc(STATS_WANT * sizeof(*port->rx_stats));
    port->tx_stats = port_zalloc(STATS_WANT * sizeof(*port->tx_stats));
    snprintf(port->name, sizeof(port->name), "%s", opts->name);
    snprintf(port->device, sizeof(port->device), "%s", opts->device);
    port->socket = opts->socket;
    port->tx_segs = UINT16_MAX;
    want.reactors = min(max(want.reactors, 1u), (unsigned)REACTOR_MAX);
    want.rx_queues = min(max(want.rx_queues, 1u), want.reactors);
    port->ops = ops ? ops : port_is_ethdev(opts->device) ? &port_ethdev_ops : &port_packet_ops;
    if (port->rx_stats && port->tx_stats)
        rc = index_get(port, err);
    else
        rc = err_set(err, -ENOMEM, "port %s: out of memory", opts->name);
    if (rc == 0)
        rc = port_pool(port, "tx", TX_MBUFS * want.reactors, PORT_ROOM_TX, &port->tx_pool, err);
    if (rc == 0)
        rc = port->ops->open(port, &want, err);
    if (rc < 0) {
        pools_destroy(port);
        port_free(port);
        return rc;
    }
    *out = port;
    return 0;
}

int port_start(struct port *port, struct err *err)
{
    int rc = port->ops->start(port, err);

    port->started = rc == 0;
    return rc;
}

static void faults_end(struct port *port)
{
    if (port->faults)
        port->faults->end(port);
}

void port_stop(struct port *port)
{
    if (!port->started)
        return;
    faults_end(port);
    if (port->ops->stop)
        port->ops->stop(port);
    port->started = false;
}

void port_close(struct port *port)
{
    if (!port)
        return;
    port_stop(port);
    faults_end(port); /* rules that came after the stop */
    port->ops->close(port);
    pools_destroy(port);
    port_free(port);
}

size_t port_memory(const struct port_opts *opts)
{
    size_t rx = port_is_ethdev(opts->device) ? port_ethdev_memory(opts)
                                             : port_pools_copied_memory(opts->buffer_bytes);

    return rx + mem_mbufs_memory(TX_MBUFS * max(opts->reactors, 1u), PKT_PRIV, PORT_ROOM_TX);
}

/* ---- the host's own addresses ---- */

static bool same_address(const struct sockaddr *sa, const uint8_t addr[16])
{
    uint8_t mine[16] = {[10] = 0xff, [11] = 0xff};

    if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
        return false;
    if (sa->sa_family == AF_INET)
        memcpy(mine + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    else
        memcpy(mine, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    return memcmp(mine, addr, 16) == 0;
}

bool port_host_has(const uint8_t addr[16], char ifname[16])
{
    struct ifaddrs *all;
    bool found = false;

    if (getifaddrs(&all) < 0)
        return false;
    for (struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        if (same_address(at->ifa_addr, addr)) {
            snprintf(ifname, IFNAMSIZ, "%s", at->ifa_name);
            found = true;
        }
    }
    freeifaddrs(all);
    return found;
}

/* ---- the data path ---- */

static unsigned rx_plain(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct port_queue_stats *stats = &port->rx_stats[queue];
    uint64_t bytes = 0;
    unsigned got = port->ops->rx(port, queue, pkts, n);

    if (got == 0)
        return 0;
    if (port->soft & (PORT_SOFT_VLAN_RX | PORT_SOFT_PULL | PORT_SOFT_FOREIGN))
        got = port_finish_rx(port, stats, pkts, got);
    for (unsigned i = 0; i < got; i++)
        bytes += pkts[i]->pkt_len;
    count_add(&stats->packets, got);
    count_add(&stats->bytes, bytes);
    count_add(&stats->bursts, 1);
    return got;
}

unsigned port_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct port_faults *f = port_faults_of(port);

    if (unlikely(f != NULL))
        return f->rx(f, queue, pkts, n, rx_plain);
    return rx_plain(port, queue, pkts, n);
}

/* Finishes frames up to the first that is not ready; how many are. */
static unsigned tx_finish(struct port *port, struct port_queue_stats *stats, struct rte_mbuf **pkts,
                          unsigned n, enum port_finish *why)
{
    unsigned k = 0;

    *why = PORT_READY;
    while (k < n && (*why = port_finish_tx(port, stats, &pkts[k])) == PORT_READY)
        k++;
    return k;
}

/* Offers n finished frames to the device. */
static unsigned tx_offer(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct port_queue_stats *stats = &port->tx_stats[queue];
    uint64_t bytes = 0;
    unsigned took;

    /* Frames that tx() takes may be freed when it returns. */
    for (unsigned i = 0; i < n; i++)
        bytes += pkts[i]->pkt_len;
    took = port->ops->tx(port, queue, pkts, n);
    for (unsigned i = took; i < n; i++)
        bytes -= pkts[i]->pkt_len;
    count_add(&stats->packets, took);
    count_add(&stats->bytes, bytes);
    count_add(&stats->bursts, 1);
    return took;
}

static unsigned tx_plain(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct port_queue_stats *stats = &port->tx_stats[queue];
    unsigned done = 0, run, took;
    enum port_finish why;

    while (done < n) {
        run = tx_finish(port, stats, pkts + done, n - done, &why);
        took = run > 0 ? tx_offer(port, queue, pkts + done, run) : 0;
        done += took;
        if (took < run || why == PORT_LATER) {
            count_add(&stats->full, 1);
            break;
        }
        if (why == PORT_BAD) {
            rte_pktmbuf_free(pkts[done++]);
            count_add(&stats->bad, 1);
        }
    }
    return done;
}

unsigned port_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct port_faults *f = port_faults_of(port);

    if (unlikely(f != NULL))
        return f->tx(f, queue, pkts, n, tx_plain);
    return tx_plain(port, queue, pkts, n);
}

struct rte_mbuf *port_tx_alloc(struct port *port)
{
    return rte_pktmbuf_alloc(port->tx_pool);
}

/* ---- looking ---- */

bool port_lacks(const struct port *port)
{
    return relaxed_load(&port->lacks);
}

void port_info_get(struct port *port, struct port_info *out)
{
    *out = (struct port_info){
        .backend = port->ops->name,
        .mac = port->mac,
        .mtu = port->mtu,
        .caps = port->caps,
        .rx_queues = port->rx_queues,
        .tx_queues = port->tx_queues,
        .socket = port->socket,
    };
    snprintf(out->name, sizeof(out->name), "%s", port->name);
    snprintf(out->device, sizeof(out->device), "%s", port->device);
    snprintf(out->driver, sizeof(out->driver), "%s", port->driver);
    out->link_up = port->ops->link(port, &out->speed);
    out->buffers = port->rx_small->size;
    out->buffers_free = rte_mempool_avail_count(port->rx_small);
    if (port->rx_large != port->rx_small) {
        out->buffers += port->rx_large->size;
        out->buffers_free += rte_mempool_avail_count(port->rx_large);
    }
    out->buffer_bytes = mem_mbufs_truesize(port->rx_large);
}

void port_stats_get(const struct port *port, bool tx, unsigned queue, struct port_queue_stats *out)
{
    const struct port_queue_stats *s = tx ? &port->tx_stats[queue] : &port->rx_stats[queue];

    counters_copy_all(out, s);
}
