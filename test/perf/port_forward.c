/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ports and a wire between them: what comes in at one goes out at the other, as it is. What
 * ports cost alone (port_forward.py), and what plain forwarding of frames costs beside routing
 * (bench.py eth).
 *
 *   port-forward [-m MTU] [-c CORE] [-k TURNS] [-s] [-H] DEVICE DEVICE
 *
 * DEVICE is an interface of the kernel's or one of DPDK's (net_memif0,…), as in the configuration
 * of millraced. -k: keeps what came in until that many later turns have brought something, as who
 * takes in messages does, so that it has left the caches; -s: never sleeps; -H: memory from
 * hugepages. Prints "ready"; then for each line on
 * standard input, and at its end, the counters as one line of JSON. busy_cycles are those of turns
 * in which frames came, cycles all since "ready". A turn in which the kernel gave the core to
 * others counts as an average one.
 */
#include "test/perf/frame_ports.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#define PROG       "port-forward"
#define LOOK_TURNS 20000u /* between two looks at standard input */
#define IDLE_TURNS 50u    /* before it sleeps */
#define DOZE_MS    100
#define KEEP_MOST  512u  /* turns */
#define REST_TURNS 1000u /* with nothing new after which what is kept goes out */
#define LONG_US    100u  /* a turn that took longer may have been without a core */

static struct frame_ports ports = {.prog = PROG};

/* What came in put together, or with its sum left open, goes out in the same way. */
static void turn_round(struct rte_mbuf *m)
{
    uint64_t in = m->ol_flags;
    const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
    uint16_t type;

    m->ol_flags = 0;
    if ((in & RTE_MBUF_F_RX_L4_CKSUM_MASK) != RTE_MBUF_F_RX_L4_CKSUM_NONE ||
        m->data_len < RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_tcp_hdr))
        return;
    memcpy(&type, frame + 2 * RTE_ETHER_ADDR_LEN, sizeof(type));
    m->l2_len = RTE_ETHER_HDR_LEN;
    if (type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)) {
        m->l3_len = (frame[m->l2_len] & 0x0f) * 4;
        m->ol_flags = RTE_MBUF_F_TX_IPV4;
    } else {
        m->l3_len = sizeof(struct rte_ipv6_hdr);
        m->ol_flags = RTE_MBUF_F_TX_IPV6;
    }
    m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    if (in & RTE_MBUF_F_RX_LRO) {
        m->l4_len = (frame[m->l2_len + m->l3_len + 12] >> 4) * 4;
        m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
    }
}

struct burst {
    unsigned n;
    struct rte_mbuf *m[PORT_BURST];
};

/* The bursts of one way, in a ring: each goes out when its place is wanted again. */
static struct burst kept[2][KEEP_MOST];

static void pass_on(struct port *to, struct burst *b)
{
    unsigned sent = 0;

    for (unsigned i = 0; i < b->n; i++)
        turn_round(b->m[i]);
    while (sent < b->n)
        sent += port_tx(to, 0, b->m + sent, b->n - sent);
    b->n = 0;
}

/* One turn of both ways. Returns how many frames came in. */
static unsigned forward(unsigned keep, bool rest)
{
    static unsigned at;
    struct burst in[2];
    unsigned came = 0;

    for (unsigned i = 0; i < 2; i++)
        came += in[i].n = port_rx(ports.port[i], 0, in[i].m, PORT_BURST);
    if (came == 0 && !rest)
        return 0;
    for (unsigned i = 0; i < 2; i++) {
        pass_on(ports.port[1 - i], keep > 0 ? &kept[i][at] : &in[i]);
        if (keep > 0)
            kept[i][at] = in[i];
    }
    at = at + 1 < keep ? at + 1 : 0;
    return came;
}

static void counters(uint64_t cycles, uint64_t busy)
{
    printf("{\"hz\": %lu, \"cycles\": %lu, \"busy_cycles\": %lu, \"queues\": ", rte_get_tsc_hz(),
           cycles, busy);
    frame_ports_print(&ports);
    printf("}\n");
    fflush(stdout);
}

/* Whether there is anything on standard input; *more is false at its end. */
static bool asked(bool *more)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;

    if (poll(&p, 1, 0) == 0)
        return false;
    *more = read(STDIN_FILENO, &byte, 1) > 0;
    return !*more || byte == '\n';
}

/* With nothing to do: waits for either port, as a reactor would. False: a port has nothing to wait
 * for. */
static bool doze(void)
{
    struct pollfd p[2];

    for (unsigned i = 0; i < 2; i++) {
        p[i] = (struct pollfd){.fd = ports.port[i]->ops->rx_fd(ports.port[i], 0), .events = POLLIN};
        if (p[i].fd < 0)
            return false;
    }
    poll(p, 2, DOZE_MS);
    return true;
}

/* Whether the kernel has taken the core away since the last call. */
static bool preempted(void)
{
    static long before;
    struct rusage u;
    bool again;

    getrusage(RUSAGE_THREAD, &u);
    again = u.ru_nivcsw != before;
    before = u.ru_nivcsw;
    return again;
}

static void run(unsigned keep, bool spin)
{
    uint64_t start = rte_rdtsc(), busy = 0, turns = 0, begin, took;
    uint64_t much = rte_get_tsc_hz() / 1000000 * LONG_US;
    unsigned idle = 0, n;
    bool more = true, slept = false;

    for (unsigned turn = 0; more; turn++) {
        begin = rte_rdtsc();
        n = forward(keep, keep > 0 && idle > REST_TURNS);
        took = rte_rdtsc() - begin;
        if (took > much && preempted())
            took = turns > 0 ? busy / turns : 0;
        busy += n > 0 ? took : 0;
        turns += n > 0;
        idle = n > 0 ? 0 : idle + 1;
        slept = !spin && idle > IDLE_TURNS && doze();
        if ((turn % LOOK_TURNS == 0 || slept) && asked(&more))
            counters(rte_rdtsc() - start, busy);
    }
}

int main(int argc, char **argv)
{
    unsigned mtu = 0, keep = 0;
    int core = -1, c;
    bool spin = false, huge = false;

    while ((c = getopt(argc, argv, "m:c:k:sH")) != -1) {
        if (c == 'm')
            mtu = frame_number(PROG, optarg, PORT_MTU_MIN, PORT_MTU_MAX);
        else if (c == 'c')
            core = (int)frame_number(PROG, optarg, 0, 1023);
        else if (c == 'k')
            keep = frame_number(PROG, optarg, 0, KEEP_MOST);
        else if (c == 's')
            spin = true;
        else if (c == 'H')
            huge = true;
        else
            return 1; /* getopt has said why */
    }
    if (argc - optind != 2)
        frame_die(PROG,
                  "usage: port-forward [-m MTU] [-c CORE] [-k TURNS] [-s] [-H] DEVICE DEVICE");
    frame_ports_open(&ports, argv + optind, mtu, core, huge);
    printf("ready\n");
    fflush(stdout);
    run(keep, spin);
    frame_ports_close(&ports);
    reactor_env_destroy(ports.env);
    return 0;
}
