/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link with faults: passes frames between two interfaces, through fault injection at a port.
 *
 *   link LEFT RIGHT [NAME=VALUE…]
 *
 * with the values of struct tamper_conf (loss, duplicate, corrupt, reorder in ppm, delay_us,
 * jitter_us, reorder_us, rate, queue_bytes, seed), for both directions. Prints "ready"; ends with
 * SIGTERM, or when stdin ends.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/port/port.h"
#include "test/faults/tamper.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rte_ip.h>
#include <rte_tcp.h>

static struct side {
    struct port *port, *other;
    struct reactor_poller poller;
    struct reactor_fd fd;
} side[2];

static void drain(struct reactor_fd *f, uint32_t events)
{
    /* The poller reads; this only ends the sleep. */
}

/* What came with unfinished checksums, or as several segments in one, leaves as that. */
static void prepare(struct rte_mbuf *m)
{
    const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, sizeof(*eth));
    uint64_t sum = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    bool large = m->ol_flags & RTE_MBUF_F_RX_LRO;
    struct rte_tcp_hdr *tcp;

    m->ol_flags = 0;
    if (eth->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
        m->data_len < sizeof(*eth) + sizeof(*ip) + sizeof(*tcp) ||
        ip->next_proto_id != IPPROTO_TCP || (sum != RTE_MBUF_F_RX_L4_CKSUM_NONE && !large))
        return;
    m->l2_len = sizeof(*eth);
    m->l3_len = rte_ipv4_hdr_len(ip);
    if (m->data_len < m->l2_len + m->l3_len + sizeof(*tcp))
        return;
    tcp = rte_pktmbuf_mtod_offset(m, struct rte_tcp_hdr *, m->l2_len + m->l3_len);
    m->l4_len = (tcp->data_off >> 4) * 4;
    m->ol_flags =
        RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_TCP_CKSUM | (large ? RTE_MBUF_F_TX_TCP_SEG : 0);
    tcp->cksum = rte_ipv4_phdr_cksum(ip, m->ol_flags);
}

static int forward(void *arg)
{
    struct side *s = arg;
    struct rte_mbuf *pkts[PORT_BURST];
    unsigned n = port_rx(s->port, 0, pkts, PORT_BURST), sent;
    uint64_t wait = port_tamper_wait(s->port, 0, 0), more = port_tamper_wait(s->other, -1, 0);

    for (unsigned i = 0; i < n; i++)
        prepare(pkts[i]);
    sent = n > 0 || more == 0 ? port_tx(s->other, 0, pkts, n) : 0;
    for (unsigned i = sent; i < n; i++)
        rte_pktmbuf_free(pkts[i]);
    s->poller.max_sleep_us = wait < more ? wait : more;
    return (int)n;
}

static struct port *open_port(const char *name)
{
    struct port_opts opts = {.name = name,
                             .device = name,
                             .reactors = 1,
                             .rx_queues = 1,
                             .buffer_bytes = 32u << 20,
                             .socket = -1};
    struct port *port;
    struct err err = {0};

    if (port_open(&opts, NULL, &port, &err) < 0 || port_start(port, &err) < 0) {
        fprintf(stderr, "%s: %s\n", name, err.message);
        exit(2);
    }
    return port;
}

static void tamper(struct port *port, char **words)
{
    struct tamper_conf conf = {0};
    const struct {
        const char *name;
        uint32_t *value;
    } names[] = {{"loss", &conf.loss},
                 {"duplicate", &conf.duplicate},
                 {"corrupt", &conf.corrupt},
                 {"reorder", &conf.reorder},
                 {"delay_us", &conf.delay_us},
                 {"jitter_us", &conf.jitter_us},
                 {"reorder_us", &conf.reorder_us},
                 {"queue_bytes", &conf.queue_bytes}};
    struct err err = {0};
    unsigned id;

    if (!*words)
        return;
    for (; *words; words++) {
        char *eq = strchr(*words, '=');
        size_t len = eq ? (size_t)(eq - *words) : 0;

        for (unsigned i = 0; len > 0 && i < sizeof(names) / sizeof(names[0]); i++) {
            if (strlen(names[i].name) == len && strncmp(*words, names[i].name, len) == 0)
                *names[i].value = (uint32_t)strtoul(eq + 1, NULL, 10);
        }
        if (len == 4 && strncmp(*words, "rate", 4) == 0)
            conf.rate = strtoull(eq + 1, NULL, 10);
        if (len == 4 && strncmp(*words, "seed", 4) == 0)
            conf.seed = strtoull(eq + 1, NULL, 10);
    }
    conf.cut = true;
    if (port_tamper_set(port, true, &conf, false, &id, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(2);
    }
}

/* On the reactor: frames end its sleep. */
static void begin(struct reactor_task *task)
{
    for (int i = 0; i < 2; i++) {
        int fd = side[i].port->ops->rx_fd(side[i].port, 0);

        if (fd < 0 || reactor_fd_add(&side[i].fd, fd, EPOLLIN, drain) < 0)
            _exit(2);
    }
}

int main(int argc, char **argv)
{
    struct reactor_opts opts = {
        .prog = "link", .cores = "auto", .count = 1, .idle = REACTOR_IDLE_ADAPTIVE, .mem_mb = 256};
    struct reactor_task start = {.fn = begin};
    struct reactor_env *env;
    struct err err = {0};
    char c;

    if (argc < 3) {
        fprintf(stderr, "usage: link LEFT RIGHT [NAME=VALUE…]\n");
        return 2;
    }
    if (reactor_env_create(&opts, &env, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    for (int i = 0; i < 2; i++)
        side[i] = (struct side){.port = open_port(argv[1 + i])};
    for (int i = 0; i < 2; i++) {
        side[i].other = side[!i].port;
        tamper(side[i].port, argv + 3);
        side[i].poller = (struct reactor_poller){.fn = forward, .arg = &side[i]};
        reactor_poller_add(reactor_at(env, 0), &side[i].poller);
    }
    if (reactor_env_start(env) < 0)
        return 2;
    reactor_post(reactor_at(env, 0), &start);
    puts("ready");
    fflush(stdout);
    while (read(0, &c, 1) > 0)
        ;
    _exit(0);
}
