/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A router and its end nodes in one process, over net_ring: what forwarding costs where no device
 * copies and nobody computes a checksum (bench.py copies).
 *
 *   ring-lab [-c] CORE CONFIG ARGUMENT...
 *
 * This is millraced with CONFIG, whose ports are on net_ring_near and net_ring_far, and
 * millrace-peers with the ARGUMENTs, whose ports are net_ring_near_end and net_ring_far_end, on
 * CORE. Both are the programs' own code; each believes that it has EAL for itself. The router is
 * asked over its control socket, as always; millrace-peers says its results on standard output, and
 * with its end all ends.
 *
 * The ends' core does for the router what a network card does: it writes each frame into a buffer
 * of the router's own receive pool and says that checksums are right; frames of the router's are
 * read by it, and are believed. So the router's reactor touches headers only. -c: frames come in
 * buffers of somebody else, which the router's port copies: what one copy costs.
 */
#include "app/millraced/daemon.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/port/port.h"
#include "lib/lnds/lnds.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_ring.h>

#define PROG         "ring-lab"
#define RING_FRAMES  1024u
#define ENDS_MB      384 /* EAL memory of millrace-peers beside the router's */
#define ROUTER_LCORE 1u  /* its only reactor's, as lib/reactor has it: 0 is the control thread's */
#define ENDS_LCORE   2u
#define SIDES        2

int peers_main(int argc, char **argv); /* of millrace-peers */

/* In place of these, with their own as __real_…: see meson.build. */
int __wrap_rte_eal_init(int argc, char **argv);
int __real_rte_eal_init(int argc, char **argv);
int __wrap_rte_eal_remote_launch(lcore_function_t *fn, void *arg, unsigned lcore);
int __real_rte_eal_remote_launch(lcore_function_t *fn, void *arg, unsigned lcore);
int __wrap_rte_eal_wait_lcore(unsigned lcore);
int __real_rte_eal_wait_lcore(unsigned lcore);
int __wrap_port_open(const struct port_opts *opts, const struct port_ops *ops, struct port **out,
                     struct err *err);
int __real_port_open(const struct port_opts *opts, const struct port_ops *ops, struct port **out,
                     struct err *err);
void __wrap_reactor_control_run(struct reactor_env *env);
void __real_reactor_control_run(struct reactor_env *env);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __real_pthread_setname_np(pthread_t thread, const char *name);
struct peers;
void __wrap_peers_ports_close(struct peers *e);

struct side {
    const char *name, *router, *ends; /* of the rings; devices */
    struct port *port;                /* the router's */
};

static struct {
    struct side side[SIDES];
    const char *config, *core;
    bool copy;
    sem_t ready;
    lcore_function_t *ends_fn;
} lab = {.side = {{"near", "net_ring_near", "net_ring_near_end", NULL},
                  {"far", "net_ring_far", "net_ring_far_end", NULL}}};

/* Whether this thread is one of millrace-peers's. */
static __thread bool of_ends;

__attribute__((noreturn)) static void die(const char *why)
{
    fprintf(stderr, "%s: %s\n", PROG, why);
    _exit(1);
}

/* ---- EAL, once for both ---- */

static struct rte_ring *ring_new(const struct side *s, const char *way)
{
    char name[RTE_RING_NAMESIZE];
    struct rte_ring *r;

    snprintf(name, sizeof(name), "%s_%s", s->name, way);
    r = rte_ring_create(name, RING_FRAMES, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (!r)
        die("no memory for rings");
    return r;
}

static void devices_make(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        struct side *s = &lab.side[i];
        struct rte_ring *in = ring_new(s, "in"), *out = ring_new(s, "out");
        const char *own = s->router + strlen("net_ring_"), *end = s->ends + strlen("net_ring_");

        if (rte_eth_from_rings(own, &in, 1, &out, 1, 0) < 0 ||
            rte_eth_from_rings(end, &out, 1, &in, 1, 0) < 0)
            die("net_ring makes no device");
    }
}

/* Adds to the router's arguments what millrace-peers needs: its core, and memory. */
int __wrap_rte_eal_init(int argc, char **argv)
{
    char lcores[512], mem[32];
    int rc;

    if (of_ends)
        return 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--lcores=", 9) == 0) {
            snprintf(lcores, sizeof(lcores), "%s,%u@%s", argv[i], ENDS_LCORE, lab.core);
            argv[i] = lcores;
        } else if (strcmp(argv[i], "-m") == 0 && i + 1 < argc) {
            snprintf(mem, sizeof(mem), "%d", atoi(argv[i + 1]) + ENDS_MB);
            argv[i + 1] = mem;
        }
    }
    rc = __real_rte_eal_init(argc, argv);
    if (rc >= 0)
        devices_make();
    return rc;
}

static int ends_reactor(void *arg)
{
    of_ends = true;
    return lab.ends_fn(arg);
}

int __wrap_rte_eal_remote_launch(lcore_function_t *fn, void *arg, unsigned lcore)
{
    if (lcore != ROUTER_LCORE)
        die("the router and millrace-peers have one reactor each");
    if (!of_ends)
        return __real_rte_eal_remote_launch(fn, arg, lcore);
    lab.ends_fn = fn;
    return __real_rte_eal_remote_launch(ends_reactor, arg, ENDS_LCORE);
}

int __wrap_rte_eal_wait_lcore(unsigned lcore)
{
    return __real_rte_eal_wait_lcore(of_ends ? ENDS_LCORE : lcore);
}

/* Both call their reactor's thread the same. */
int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    char own[16];

    snprintf(own, sizeof(own), "%s%s", of_ends ? "ends-" : "", name);
    return __real_pthread_setname_np(thread, own);
}

/* ---- the card ---- */

static const uint64_t right = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;

/* The frame in a buffer of the router's, as a device leaves it there; NULL: there is none. */
static struct rte_mbuf *land(struct rte_mempool *pool, const struct rte_mbuf *from)
{
    struct rte_mbuf *to = rte_pktmbuf_alloc(pool);

    if (!to)
        return NULL;
    for (const struct rte_mbuf *s = from; s; s = s->next) {
        char *at = rte_pktmbuf_append(to, s->data_len);

        if (!at)
            die("a frame that does not fit into a buffer of the router's");
        memcpy(at, rte_pktmbuf_mtod(s, const void *), s->data_len);
    }
    return to;
}

/* Frames from the ends to the router: on the ends' core. Those for which there is no buffer stay
 * with the sender, as where a device is full. */
static uint16_t to_router(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n,
                          void *user)
{
    const struct side *s = user;

    for (uint16_t i = 0; i < n; i++) {
        struct rte_mbuf *m = pkts[i];

        if (!lab.copy && m->pool != s->port->rx_small) { /* else it waited here before */
            m = land(s->port->rx_small, m);
            if (!m)
                return i;
            rte_pktmbuf_free(pkts[i]);
            pkts[i] = m;
        }
        m->ol_flags = (m->ol_flags & (RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL)) | right;
    }
    return n;
}

/* Frames of the router's, whose sums nobody computed: on the ends' core. */
static uint16_t from_router(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n,
                            uint16_t max, void *user)
{
    for (uint16_t i = 0; i < n; i++)
        pkts[i]->ol_flags =
            (pkts[i]->ol_flags & (RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL)) | right;
    return n;
}

static void attach(struct port *port, const struct port_opts *opts)
{
    uint16_t id;

    for (unsigned i = 0; i < SIDES; i++) {
        struct side *s = &lab.side[i];

        if (strcmp(opts->device, s->router) == 0)
            s->port = port;
        if (strcmp(opts->device, s->ends) != 0)
            continue;
        if (!s->port)
            die("CONFIG has no port on net_ring_near, or none on net_ring_far");
        if (rte_eth_dev_get_port_by_name(s->ends, &id) < 0 ||
            !rte_eth_add_tx_callback(id, 0, to_router, s) ||
            !rte_eth_add_rx_callback(id, 0, from_router, s))
            die("DPDK was compiled without callbacks of devices");
    }
}

/* Rings have no addresses. */
static void address(struct port *port)
{
    static uint8_t last;

    port->mac = (struct rte_ether_addr){{0x02, 0, 0, 0, 0, ++last}};
}

/* Ports whose checksums a device would see to. */
int __wrap_port_open(const struct port_opts *opts, const struct port_ops *ops, struct port **out,
                     struct err *err)
{
    int rc = __real_port_open(opts, ops, out, err);

    if (rc == 0) {
        (*out)->soft &= ~(uint32_t)(PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM);
        (*out)->caps |= PORT_TX_CSUM | PORT_RX_CSUM;
        address(*out);
        attach(*out, opts);
    }
    return rc;
}

/* ---- both programs ---- */

void __wrap_reactor_control_run(struct reactor_env *env)
{
    if (!of_ends)
        sem_post(&lab.ready);
    __real_reactor_control_run(env);
}

/* The router looks at these rings as long as the process lives. */
void __wrap_peers_ports_close(struct peers *e)
{
}

static void *router(void *arg)
{
    struct cfg_report report;
    struct cfg *cfg = NULL;

    cfg_load(lab.config, &cfg, &report);
    cfg_report_print(&report, stderr);
    cfg_report_free(&report);
    if (!cfg)
        die("CONFIG is not one");
    daemon_run(cfg, lab.config, false);
    die("the router has ended");
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int code;

    lab.copy = argc > 1 && strcmp(argv[1], "-c") == 0;
    argc -= lab.copy;
    argv += lab.copy;
    if (argc < 4)
        die("usage: " PROG " [-c] CORE CONFIG ARGUMENT...");
    lab.core = argv[1];
    lab.config = argv[2];
    lnds_register();
    sem_init(&lab.ready, 0, 0);
    if (pthread_create(&thread, NULL, router, NULL) != 0)
        die("no thread for the router");
    while (sem_wait(&lab.ready) < 0)
        ;
    of_ends = true;
    argv[2] = argv[0];
    code = peers_main(argc - 2, argv + 2);
    fflush(stdout);
    _exit(code);
}
