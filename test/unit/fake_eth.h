/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of paper, and an IP and a TCP that say what a test wants them to: for what looks at them.
 */
#ifndef MILLRACE_FAKE_ETH_H
#define MILLRACE_FAKE_ETH_H

#include <string.h>

#include <arpa/inet.h>

#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/lnd_eth/port/port_internal.h"
#include "lib/lnd_eth/tcp/tcp.h"

#define FAKE_PORTS 2
#define FAKE_ROWS  1000

struct inet {
    int any;
};
struct tcp {
    int any;
};
struct inet_shard {
    unsigned reactor;
};
struct inet_if {
    char name[16];
    struct port *port;
    unsigned mtu;
    bool link;
    struct inet_prefix addr[2];
    unsigned addrs;
};

static struct {
    struct inet inet;
    struct tcp tcp;
    struct inet_shard shard[REACTOR_MAX];
    struct inet_if ifs[4];
    unsigned nifs;
    struct port *port[FAKE_PORTS];
    struct inet_neigh_row neigh[FAKE_ROWS];
    unsigned nneigh;
    struct tcp_info conn[FAKE_ROWS];
    unsigned nconns;
    uint64_t drops[PKT_DROP_COUNT];
    const struct inet_tap *tap;
    struct inet_path_row path; /* to whomever */
    int path_rc;
    struct inet_drop_row of_late[4];
    unsigned nof_late;
} eth;

static inline struct inet_addr addr_of(const char *text)
{
    struct inet_addr a = {.b = {[10] = 0xff, [11] = 0xff}};

    if (inet_pton(AF_INET, text, a.b + 12) != 1 && inet_pton(AF_INET6, text, a.b) != 1)
        abort();
    return a;
}

/* ---- inet.h, tcp.h: as the tests say ---- */

unsigned inet_if_count(const struct inet *inet)
{
    return eth.nifs;
}

struct inet_if *inet_if_at(struct inet *inet, unsigned index)
{
    return &eth.ifs[index];
}

const char *inet_if_name(const struct inet_if *ifp)
{
    return ifp->name;
}

struct port *inet_if_port(const struct inet_if *ifp)
{
    return ifp->port;
}

unsigned inet_if_mtu(const struct inet_if *ifp)
{
    return ifp->mtu;
}

bool inet_if_link(const struct inet_if *ifp)
{
    return ifp->link;
}

bool inet_if_addr(const struct inet_if *ifp, unsigned index, struct inet_prefix *out)
{
    if (index >= ifp->addrs)
        return false;
    *out = ifp->addr[index];
    return true;
}

struct inet_if *inet_if_of(struct inet *inet, const struct inet_addr *own)
{
    for (unsigned i = 0; i < eth.nifs; i++)
        for (unsigned k = 0; k < eth.ifs[i].addrs; k++)
            if (inet_same(&eth.ifs[i].addr[k].addr, own))
                return &eth.ifs[i];
    return NULL;
}

unsigned inet_home(struct inet *inet, const struct inet_addr *local, const struct inet_addr *remote)
{
    return 0;
}

int inet_path_look(struct inet_shard *sh, const struct inet_addr *local,
                   const struct inet_addr *remote, struct inet_path_row *out)
{
    *out = eth.path;
    return eth.path_rc;
}

unsigned inet_drops_of(struct inet_shard *sh, const struct inet_addr *remote, uint64_t within_us,
                       struct inet_drop_row out[PKT_DROP_COUNT])
{
    memcpy(out, eth.of_late, sizeof(eth.of_late));
    return eth.nof_late;
}

struct inet_shard *inet_shard_of(struct inet *inet, unsigned reactor)
{
    eth.shard[reactor].reactor = reactor;
    return &eth.shard[reactor];
}

unsigned inet_shard_reactor(const struct inet_shard *sh)
{
    return sh->reactor;
}

unsigned inet_neigh_rows(struct inet_shard *sh, uint32_t *at, struct inet_neigh_row *out,
                         unsigned max)
{
    unsigned n = 0;

    for (; *at < eth.nneigh && n < max; ++*at)
        if (eth.neigh[*at].reactor == sh->reactor)
            out[n++] = eth.neigh[*at];
    return n;
}

void inet_drops_get(const struct inet *inet, uint64_t out[PKT_DROP_COUNT])
{
    memcpy(out, eth.drops, sizeof(eth.drops));
}

/* Each member another number: reactor × 1000 + its index. */
static inline void number_all(void *stats, size_t size, unsigned reactor)
{
    uint64_t *value = stats;

    for (size_t i = 0; i < size / sizeof(*value); i++)
        value[i] = reactor * 1000 + i;
}

void inet_stats_get(const struct inet *inet, unsigned reactor, struct inet_stats *out)
{
    number_all(out, sizeof(*out), reactor);
}

void tcp_stats_get(const struct tcp *tcp, unsigned reactor, struct tcp_stats *out)
{
    number_all(out, sizeof(*out), reactor);
}

unsigned tcp_info_rows(struct tcp *tcp, uint32_t *at, struct tcp_info *out, unsigned max)
{
    unsigned n = 0, self = reactor_index(reactor_self());

    for (; *at < eth.nconns && n < max; ++*at)
        if (eth.conn[*at].reactor == self)
            out[n++] = eth.conn[*at];
    return n;
}

void inet_tap_set(struct inet *inet, const struct inet_tap *tap)
{
    eth.tap = tap;
}

/* ---- devices ---- */

static int fake_port_open(struct port *port, const struct port_opts *opts, struct err *err)
{
    port->caps = PORT_TX_TSO | PORT_TX_CSUM | PORT_RX_CSUM | PORT_TX_CHAINS | PORT_COPIES_IN;
    port->tso_max = 65000;
    port->mtu = opts->mtu;
    port->rx_queues = 1;
    port->tx_queues = opts->reactors;
    port->mac = (struct rte_ether_addr){{2, 0, 0, 0, 0, (uint8_t)port->index}};
    port->rx_small = port->rx_large = NULL;
    snprintf(port->driver, sizeof(port->driver), "paper");
    return port_pools_copied(port, 0, err);
}

static int fake_port_start(struct port *port, struct err *err)
{
    return 0;
}

static void fake_port_stop(struct port *port)
{
}

static unsigned fake_port_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    return 0;
}

static unsigned fake_port_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    rte_pktmbuf_free_bulk(pkts, n);
    return n;
}

static bool fake_port_link(struct port *port, unsigned *speed_mbit)
{
    *speed_mbit = 25000;
    return port->index == 0;
}

static unsigned fake_port_xstats(struct port *port, struct port_xstat *out, unsigned max)
{
    out[0] = (struct port_xstat){"rx_good_packets", 17};
    out[1] = (struct port_xstat){"rx_missed_errors", 3};
    return 2;
}

static const struct port_ops fake_port_ops = {
    .name = "paper",
    .open = fake_port_open,
    .start = fake_port_start,
    .stop = fake_port_stop,
    .close = fake_port_stop,
    .rx = fake_port_rx,
    .tx = fake_port_tx,
    .link = fake_port_link,
    .xstats = fake_port_xstats,
};

/* Two ports; eth0 has two interfaces, one of them a VLAN. After the environment is there. */
static inline void eth_begin(void)
{
    static const char *const names[FAKE_PORTS] = {"eth0", "eth1"};
    struct err err = {0};

    memset(&eth, 0, sizeof(eth));
    for (unsigned i = 0; i < FAKE_PORTS; i++) {
        struct port_opts opts = {.name = names[i],
                                 .device = names[i],
                                 .mtu = i ? 9000 : 1500,
                                 .reactors = reactor_count(env),
                                 .socket = -1};

        if (port_open(&opts, &fake_port_ops, &eth.port[i], &err) != 0 ||
            port_start(eth.port[i], &err) != 0) {
            print_error("%s\n", err.message);
            abort();
        }
    }
    eth.ifs[0] = (struct inet_if){
        "eth0", eth.port[0], 1500, true, {{addr_of("10.0.0.1"), 24}, {addr_of("fd00::1"), 64}}, 2};
    eth.ifs[1] =
        (struct inet_if){"eth0.7", eth.port[0], 1400, true, {{addr_of("10.7.0.1"), 16}}, 1};
    eth.ifs[2] = (struct inet_if){"eth1", eth.port[1], 9000, false, {{addr_of("10.1.0.1"), 24}}, 1};
    eth.nifs = 3;
}

static inline void eth_end(void)
{
    for (unsigned i = 0; i < FAKE_PORTS; i++)
        port_close(eth.port[i]);
}

#endif
