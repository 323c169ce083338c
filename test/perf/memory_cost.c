/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What 1 MiB of payload costs between two drivers, in cycles of this machine and without any
 * device: docs/performance.md.
 *
 * tcp: payload in a router buffer goes through the queue of own TCP into frames, copied first or by
 * reference, with the checksum in software or without. sge: payload in segments, as frames of an
 * MTU of 1500 leave them, becomes work requests of an RDMA device, or is copied into one piece.
 *
 * The buffers of a run follow each other, so that the caches hold none of the next one; the figure
 * is the median of all runs.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/tcp/tcp_queue.c"
#include "lib/reactor/reactor.h"

#include <infiniband/verbs.h>
#include <stdio.h>

#include <rte_cycles.h>

#define MSS     1448u
#define TSO     (44u * MSS)
#define BUFFERS 48u /* of 1 MiB, one after the other */
#define RUNS    (BUFFERS * 12u)
#define HEADER  96u
#define SHELLS  8192u

static struct rte_mempool *shells, *frames;
static struct tcp tcp;
static struct tcp_shard shard;
static struct tcp_conn conn;
static struct port port;
static struct mem_pool large;
static uint64_t cycles[RUNS];
static volatile uint16_t summed; /* so that sums are made */

/* ---- what the queue asks of others ---- */

void tcp_work(struct tcp_conn *c)
{
    (void)c;
}

void tcp_conn_abort(struct tcp_conn *c, enum stream_end end)
{
    (void)c;
    (void)end;
}

struct rte_mbuf *inet_alloc(struct inet_shard *sh, const struct inet_path *path)
{
    (void)sh;
    (void)path;
    return rte_pktmbuf_alloc(shells);
}

struct port *inet_if_port(const struct inet_if *ifp)
{
    (void)ifp;
    return &port;
}

/* ---- measuring ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double median(void)
{
    qsort(cycles, RUNS, sizeof(cycles[0]), by_value);
    return (double)cycles[RUNS / 2];
}

static void die(const char *what)
{
    fprintf(stderr, "memory-cost: %s\n", what);
    exit(1);
}

/* ---- through the queue of TCP ---- */

/* Frames of all that is queued; how many. They are gone at once, as with a port that copies. */
static unsigned frames_make(uint32_t size, bool sum)
{
    struct tcp_tx *tx = &conn.tx;
    unsigned n = 0;

    while (tx->nxt != tx->end) {
        uint32_t len = (uint32_t)min(size, tx->end - tx->nxt);
        struct rte_mbuf *m = tcp_queue_first(&conn, tx->unsent, tx->nxt, len);

        if (!m)
            die("no buffer for a frame");
        len = m->pkt_len;
        if (sum)
            summed ^= csum_chain(m, 0, len, 0);
        rte_pktmbuf_free(m);
        tx->nxt += len;
        tx->unsent = tcp_queue_at(tx->unsent, tx->nxt);
        n++;
    }
    return n;
}

static double tcp_run(bool by_ref, uint32_t size, bool sum, unsigned *nframes)
{
    static uint8_t head[HEADER];

    port.caps = by_ref ? PORT_TX_RETURNS : 0;
    for (unsigned i = 0; i < RUNS; i++) {
        struct mem_seg segs[2] = {{head, HEADER, MEM_REGION_NONE, 0},
                                  {large.base + (size_t)(i % BUFFERS) * MEM_LANDING_SLOT,
                                   MEM_LANDING_SLOT, large.region, 0}};
        uint64_t t = rte_rdtsc_precise();

        if (tcp_tx_append(&conn, segs, 2, false) != HEADER + MEM_LANDING_SLOT)
            die("the queue does not take 1 MiB");
        *nframes = frames_make(size, sum);
        conn.tx.una = conn.tx.end;
        tcp_queue_acked(&conn);
        cycles[i] = rte_rdtsc_precise() - t;
    }
    return median();
}

static void tcp_case(const char *name, uint32_t size, bool sum)
{
    unsigned n = 0;
    double copied = tcp_run(false, size, sum, &n), referred = tcp_run(true, size, sum, &n);

    printf("tcp %-34s %5u frames: copied %8.0f cycles, by reference %8.0f, ratio %.1f\n", name, n,
           copied, referred, copied / referred);
}

/* ---- as work requests ---- */

#define SEGS ((MEM_LANDING_SLOT + MSS - 1) / MSS)
#define SGES 32u

struct key { /* of a region, as a device has it */
    uint32_t lkey, rkey;
    bool valid;
};

static struct mem_seg segs[SEGS];
static struct rte_mbuf *mbufs[BUFFERS][SEGS];
static struct ibv_send_wr wrs[SEGS];
static struct ibv_sge sges[SEGS];

/* Requests of up to `most` pieces each; how many, 0: a region has no key. */
static unsigned requests(const struct key *keys, unsigned most, uint64_t remote)
{
    unsigned n = 0;

    for (unsigned i = 0; i < SEGS; n++) {
        struct ibv_send_wr *wr = &wrs[n];
        unsigned k = 0;

        *wr = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sges[i]};
        wr->wr.rdma.remote_addr = remote;
        wr->wr.rdma.rkey = 1;
        for (; k < most && i < SEGS; k++, i++) {
            const struct key *key = &keys[segs[i].region];

            if (segs[i].region == MEM_REGION_NONE || !key->valid)
                return 0;
            sges[i] = (struct ibv_sge){(uintptr_t)segs[i].addr, segs[i].len, key->lkey};
            remote += segs[i].len;
        }
        wr->num_sge = (int)k;
        wr->next = wr + 1;
    }
    wrs[n - 1].next = NULL;
    return n;
}

static void segs_of(unsigned buffer)
{
    for (unsigned i = 0; i < SEGS; i++)
        segs[i] = (struct mem_seg){rte_pktmbuf_mtod(mbufs[buffer][i], uint8_t *),
                                   (uint32_t)min(MSS, MEM_LANDING_SLOT - i * MSS),
                                   mem_mbufs_region(frames), 0};
}

static double sge_run(unsigned most, unsigned *n)
{
    static struct key keys[MEM_REGION_MAX];

    for (unsigned i = 0; i < MEM_REGION_MAX; i++)
        keys[i] = (struct key){i + 1, 0, true};
    for (unsigned i = 0; i < RUNS; i++) {
        uint64_t t;

        segs_of(i % BUFFERS);
        t = rte_rdtsc_precise();
        *n = requests(keys, most, 0);
        cycles[i] = rte_rdtsc_precise() - t;
        if (*n == 0)
            die("no key");
    }
    return median();
}

static double copy_run(void)
{
    for (unsigned i = 0; i < RUNS; i++) {
        uint8_t *to = large.base + (size_t)(i % BUFFERS) * MEM_LANDING_SLOT;
        uint64_t t;

        segs_of(i % BUFFERS);
        t = rte_rdtsc_precise();
        for (unsigned k = 0; k < SEGS; to += segs[k++].len)
            memcpy(to, segs[k].addr, segs[k].len);
        cycles[i] = rte_rdtsc_precise() - t;
    }
    return median();
}

static void sge_case(unsigned most)
{
    unsigned n = 0;
    double listed = sge_run(most, &n), copied = copy_run();

    printf("sge 1 MiB in %u segments, %u a request: %u requests %8.0f cycles, one copy %8.0f, "
           "ratio %.1f\n",
           (unsigned)SEGS, most, n, listed, copied, copied / listed);
}

/* ---- */

static void make(struct reactor_env **env)
{
    struct reactor_opts opts = {.prog = "memory-cost", .cores = "auto", .count = 1, .mem_mb = 320};
    struct mem_arena_opts want = {.socket = -1,
                                  .landing_bytes = (size_t)BUFFERS * MEM_LANDING_SLOT};
    struct mem_arena *arena;
    struct err err = {0};

    tcp.opts.copy_bytes = 64u << 20;
    if (reactor_env_create(&opts, env, &err) < 0 || mem_arena_create(&want, &arena, &err) < 0 ||
        mem_pool_init(&large, arena, MEM_LANDING, MEM_LANDING_SLOT, BUFFERS, "large", &err) < 0 ||
        mem_mbufs_create("shells", SHELLS, 0, 384, -1, &shells, &err) < 0 ||
        mem_mbufs_create("frames", BUFFERS * SEGS, PKT_PRIV, RTE_PKTMBUF_HEADROOM + 2048, -1,
                         &frames, &err) < 0 ||
        tcp_tx_create(&tcp, &err) < 0)
        die(err.message);
    reactor_bind(reactor_at(*env, 0));
    shard.tcp = &tcp;
    shard.reactor = reactor_self();
    conn.sh = &shard;
    conn.tx.open = true;
    conn.tx.cwnd = TX_UNSENT_MAX;
    if (tcp_tx_shard_create(&shard) < 0)
        die("out of memory");
    for (unsigned i = 0; i < BUFFERS; i++) {
        memset(large.base + (size_t)i * MEM_LANDING_SLOT, (int)i, MEM_LANDING_SLOT);
        if (rte_pktmbuf_alloc_bulk(frames, mbufs[i], SEGS) != 0)
            die("no frames");
        for (unsigned k = 0; k < SEGS; k++)
            memset(rte_pktmbuf_mtod(mbufs[i][k], void *), (int)k, MSS);
    }
}

int main(void)
{
    struct reactor_env *env;

    make(&env);
    printf("cycles of 1 MiB, %.2f GHz, checksums %s\n", (double)rte_get_tsc_hz() / 1e9,
           csum_variant());
    tcp_case("1448 bytes, sum in software", MSS, true);
    tcp_case("1448 bytes, sum by the device", MSS, false);
    tcp_case("63712 bytes, cut by the device", TSO, false);
    sge_case(30);
    sge_case(32);
    return 0;
}
