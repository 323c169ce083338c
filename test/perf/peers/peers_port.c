/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports of simulated peers: devices, a range of addresses on each, TCP over them. And the pattern
 * in buffers that a device may read from, so that no payload is copied before it is sent.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/lnd_eth/port/port_ethdev.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/reactor/mem_mbuf.h"
#include "test/perf/peers/peers.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define VIRTUAL_MTU  9000 /* of devices that carry what fits; the least of both ends counts */
#define BUFFER_BYTES ((size_t)48 << 20) /* of a port */
#define COPY_BYTES   ((size_t)8 << 20)  /* headers on their way … */
#define COPY_EACH    8192u              /* … and more for each peer */
#define SPARE_MB     24                 /* EAL's own, and alignment */
#define MIB          ((size_t)1 << 20)
#define PATTERN_ROOM (RTE_PKTMBUF_HEADROOM + PEERS_CHUNK)
#define CONNS_MORE   256u

struct peers_ports {
    struct port *port[2];
    struct inet *inet;
    struct tcp *tcp;
    struct rte_mempool *pool;
    struct rte_mbuf *chunk[PEERS_CHUNKS];
    struct reactor_task task;
    struct peers *e;
    bool runs;
};

static void port_opts(const struct peers *e, unsigned side, struct port_opts *out)
{
    const struct peers_side *s = &e->side[side];

    *out = (struct port_opts){
        .name = s->ifname,
        .device = s->device,
        .mtu = strncmp(s->device, "net_", 4) == 0 ? VIRTUAL_MTU : 0,
        .reactors = 1,
        .rx_queues = 1,
        .buffer_bytes = BUFFER_BYTES,
        .socket = -1,
    };
}

static void tcp_opts_fill(const struct peers *e, struct tcp_opts *out)
{
    *out = (struct tcp_opts){
        .max_conns = 2 * PEER_CONNS * e->all + CONNS_MORE, /* half of them in TIME-WAIT */
        .wscale_max = UINT_MAX,
        .copy_bytes = COPY_BYTES + (size_t)COPY_EACH * e->all,
    };
}

/* ---- making ---- */

static unsigned memory_mb(const struct peers *e)
{
    struct port_opts port;
    struct tcp_opts tcp;
    struct tcp_memory own;
    size_t sum = mem_mbufs_memory(PEERS_CHUNKS, 0, PATTERN_ROOM);

    for (unsigned i = 0; i < e->sides; i++) {
        port_opts(e, i, &port);
        sum += port_memory(&port);
    }
    tcp_opts_fill(e, &tcp);
    tcp_memory(&tcp, 1, &own);
    return (unsigned)((sum + own.eal) / MIB) + SPARE_MB;
}

static int env_open(struct peers *e, struct err *err)
{
    const struct perf_opts *o = &e->base.perf->opts;
    char devices[256] = "";
    struct reactor_opts opts = {
        .prog = "millrace-peers",
        .cores = o->cores,
        .count = 1,
        .idle = o->idle,
        .mem_mb = o->mem_mb != 0 ? o->mem_mb : memory_mb(e),
        .hugepages = o->hugepages,
        .devices = devices,
    };
    size_t len = 0;
    int rc;

    for (unsigned i = 0; i < e->sides && len < sizeof(devices); i++) {
        const char *device = e->side[i].device;

        if (port_is_ethdev(device) && strncmp(device, "net_", 4) != 0)
            len += (size_t)snprintf(devices + len, sizeof(devices) - len, "%s ", device);
    }
    rc = reactor_env_create(&opts, &e->base.perf->env, err);
    if (rc == 0 && reactor_count(e->base.perf->env) != 1) {
        err_text(err, "--cores must name one core");
        rc = -EINVAL;
    }
    return rc;
}

static int pattern_open(struct peers *e, struct err *err)
{
    struct peers_ports *p = e->ports;
    int rc = mem_mbufs_create("perf_pattern", PEERS_CHUNKS, 0, PATTERN_ROOM, -1, &p->pool, err);

    if (rc != 0)
        return rc;
    e->chunk_region = mem_mbufs_region(p->pool);
    for (unsigned i = 0; i < PEERS_CHUNKS; i++) {
        p->chunk[i] = rte_pktmbuf_alloc(p->pool);
        if (!p->chunk[i]) {
            return err_set(err, -ENOMEM, "no memory for the pattern");
        }
        e->chunk[i] = (uint8_t *)p->chunk[i]->buf_addr + RTE_PKTMBUF_HEADROOM;
        memcpy(e->chunk[i], e->pattern + (size_t)i * PEERS_CHUNK, PEERS_CHUNK);
    }
    return 0;
}

static struct inet_addr addr_of(const struct lnet_nid *nid)
{
    struct inet_addr a = {{[10] = 0xff, [11] = 0xff}};

    memcpy(a.b + 12, nid->addr_be, 4);
    return a;
}

/* The longest prefix of a net with all of them, whose first and last address are none of them. */
static unsigned bits_of(uint32_t first, uint32_t last, uint32_t gateway)
{
    unsigned bits = 30;

    for (; bits > 1; bits--) {
        uint32_t mask = UINT32_MAX << (32 - bits), net = first & mask;

        if ((last & mask) == net && (gateway & mask) == net && first != net && gateway != net &&
            last != (net | ~mask) && gateway != (net | ~mask))
            break;
    }
    return bits;
}

static int side_open(struct peers *e, unsigned side, struct err *err)
{
    struct peers_side *s = &e->side[side];
    uint32_t first = ntohl(s->range.first.addr_be[0]), last = first + s->range.count - 1;
    struct inet_range range = {
        .first = {addr_of(&s->range.first),
                  (uint8_t)bits_of(first, last, ntohl(s->gateway.addr_be[0]))},
        .count = s->range.count,
    };
    struct port_opts opts;
    struct inet_if_opts ifo = {.name = s->ifname, .range = &range, .ranges = 1};
    int rc;

    port_opts(e, side, &opts);
    rc = port_open(&opts, NULL, &e->ports->port[side], err);
    if (rc != 0)
        return rc;
    ifo.port = e->ports->port[side];
    return inet_if_add(e->ports->inet, &ifo, err);
}

int peers_ports_open(struct peers *e, struct err *err)
{
    struct peers_ports *p = calloc(1, sizeof(*p));
    struct inet_opts inet;
    struct tcp_opts tcp;
    int rc;

    if (!p) {
        return err_set(err, -ENOMEM, "out of memory");
    }
    e->ports = p;
    p->e = e;
    rc = env_open(e, err);
    if (rc != 0)
        return rc;
    inet = (struct inet_opts){.env = e->base.perf->env};
    rc = inet_create(&inet, &p->inet, err);
    if (rc != 0)
        return rc;
    tcp_opts_fill(e, &tcp);
    rc = tcp_create(&tcp, p->inet, &p->tcp, err);
    for (unsigned i = 0; i < e->sides && rc == 0; i++)
        rc = side_open(e, i, err);
    if (rc == 0)
        rc = pattern_open(e, err);
    if (rc == 0)
        rc = reactor_env_start(e->base.perf->env);
    e->transport = (struct stream_transport){&stream_tcp, p->tcp};
    return rc;
}

int peers_ports_start(struct peers *e, struct err *err)
{
    int rc = 0;

    for (unsigned i = 0; i < e->sides && rc == 0; i++)
        rc = port_start(e->ports->port[i], err);
    if (rc == 0)
        rc = inet_start(e->ports->inet, err);
    e->ports->runs = rc == 0;
    return rc;
}

/* ---- ending ---- */

static void inet_stopped(struct reactor_task *task)
{
    struct peers_ports *p = container_of(task, struct peers_ports, task);

    p->runs = false;
    perf_engine_stopped(&p->e->base);
}

static void tcp_stopped(struct reactor_task *task)
{
    task->fn = inet_stopped;
    inet_stop(container_of(task, struct peers_ports, task)->inet, task);
}

void peers_ports_stop(struct peers *e)
{
    struct peers_ports *p = e->ports;

    if (!p->runs) {
        perf_engine_stopped(&e->base);
        return;
    }
    p->task.fn = tcp_stopped;
    tcp_stop(p->tcp, &p->task);
}

void peers_ports_close(struct peers *e)
{
    struct peers_ports *p = e->ports;

    if (!p)
        return;
    for (unsigned i = 0; i < e->sides; i++)
        if (p->port[i])
            port_stop(p->port[i]);
    if (p->tcp)
        tcp_destroy(p->tcp);
    if (p->inet)
        inet_destroy(p->inet);
    for (unsigned i = 0; i < e->sides; i++)
        if (p->port[i])
            port_close(p->port[i]);
    for (unsigned i = 0; i < PEERS_CHUNKS; i++)
        rte_pktmbuf_free(p->chunk[i]);
    mem_mbufs_destroy(p->pool);
    if (e->base.perf->env)
        reactor_env_destroy(e->base.perf->env);
    e->base.perf->env = NULL;
    free(p);
    e->ports = NULL;
}

void peers_ports_drops(const struct peers *e, perf_row_fn row, void *arg)
{
    uint64_t n[PKT_DROP_COUNT];

    if (!e->ports || !e->ports->inet)
        return;
    inet_drops_get(e->ports->inet, n);
    for (unsigned i = 0; i < PKT_DROP_COUNT; i++)
        if (n[i] != 0)
            row(arg, pkt_drop_info((enum pkt_drop)i)->name, pkt_drop_info((enum pkt_drop)i)->text,
                n[i]);
}
