/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends plain frames through what lies between two ports, both ways, and counts what arrives.
 *
 *   frame-blast [-m MTU] [-c CORE] [-w WINDOW] [-t SECONDS] [-p] [-H] -f MIX [-r MIX] DEVICE DEVICE
 *
 * MIX is SIZE:COUNT,… : frames of so many bytes (Ethernet header included), evenly mixed in these
 * proportions; -f from the first port to the second, -r from the second to the first, as many of
 * each as the sums of the counts are to one another. At most
 * WINDOW frames of a way are on theirs, so nothing need be lost. -p: one frame there, then one
 * back, and the time that takes. -H: memory from hugepages.
 *
 * Prints "flowing" when frames have come through both ways, and after SECONDS more one line of
 * JSON: what was sent, what came, what was missing in the order of numbers, what was altered. Exit
 * code 1: nothing came, for a while or at all.
 */
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/reactor/mem_mbuf.h"
#include "test/perf/frame_ports.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>

#define PROG        "frame-blast"
#define KINDS_MAX   8
#define BURST       32u
#define MBUFS       4096u
#define WINDOW_MOST 65536u
#define FRAME_MIN   60u
#define FRAME_MAX   (PORT_MTU_MAX + RTE_ETHER_HDR_LEN)
#define MAGIC       0x6d72616eu
#define ETHERTYPE   0x88b5 /* for experiments, IEEE 802 */
#define PATIENCE_MS 10000u
#define PROBE_US    1000u
#define TIMES_MAX   1000000u
#define LAST_MS     3000u /* after the end, for what is still on its way */

struct header {
    struct rte_ether_hdr eth;
    uint16_t way;
    uint32_t magic;
    uint32_t size;
    uint64_t number;
};
_Static_assert(sizeof(struct header) == 32, "no holes");

struct way {
    struct port *from, *to;
    uint16_t index;
    unsigned kinds;
    uint32_t size[KINDS_MAX];
    double part[KINDS_MAX], due[KINDS_MAX]; /* of all frames; how far behind that it is */
    uint64_t count;                         /* sum of the mix */
    uint64_t sent, sent_bytes, came, came_bytes, missing, altered, strange;
    uint64_t next; /* number of the next frame to come */
};

static struct frame_ports ports = {.prog = PROG};
static struct rte_mempool *pool;
static uint32_t *times; /* -p: of each there and back, in ns */
static uint32_t ntimes;

/* ---- the mix ---- */

static void mix_parse(struct way *w, char *text)
{
    char *save = NULL;
    unsigned long size, count;
    int end;

    for (char *s = strtok_r(text, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
        if (sscanf(s, "%lu:%lu%n", &size, &count, &end) != 2 || s[end] != '\0' ||
            size < FRAME_MIN || size > FRAME_MAX || count > 1000000000 || w->kinds == KINDS_MAX)
            frame_die(PROG, "a mix is SIZE:COUNT,… of at most 8 sizes from 60 to 9014");
        w->size[w->kinds] = (uint32_t)size;
        w->part[w->kinds++] = (double)count;
        w->count += count;
    }
    for (unsigned i = 0; i < w->kinds && w->count > 0; i++)
        w->part[i] /= (double)w->count;
}

/* The size of the next frame: of the kind that is furthest behind its part. */
static uint32_t mix_next(struct way *w)
{
    unsigned most = 0;

    for (unsigned i = 0; i < w->kinds; i++) {
        w->due[i] += w->part[i];
        if (w->due[i] > w->due[most])
            most = i;
    }
    w->due[most] -= 1;
    return w->size[most];
}

/* ---- frames ---- */

static void frame_fill(const struct way *w, struct rte_mbuf *m, uint32_t size, uint64_t number)
{
    struct header *h = rte_pktmbuf_mtod(m, struct header *);

    memset(&h->eth.dst_addr, 0xff, sizeof(h->eth.dst_addr));
    h->eth.src_addr = w->from->mac;
    h->eth.ether_type = rte_cpu_to_be_16(ETHERTYPE);
    h->way = w->index;
    h->magic = MAGIC;
    h->size = size;
    h->number = number;
    m->data_len = (uint16_t)size;
    m->pkt_len = size;
}

/* Sends up to n frames, as many as there is room for. */
static void way_send(struct way *w, uint64_t n)
{
    struct rte_mbuf *m[BURST];
    unsigned want = (unsigned)min(n, (uint64_t)BURST), took;
    uint32_t size[BURST];

    if (want == 0 || rte_pktmbuf_alloc_bulk(pool, m, want) != 0)
        return;
    for (unsigned i = 0; i < want; i++) {
        size[i] = mix_next(w);
        frame_fill(w, m[i], size[i], w->sent + i);
    }
    took = port_tx(w->from, 0, m, want);
    for (unsigned i = 0; i < took; i++)
        w->sent_bytes += size[i];
    w->sent += took;
    rte_pktmbuf_free_bulk(m + took, want - took);
}

static void frame_count(struct way *w, const struct rte_mbuf *m)
{
    const struct header *h = rte_pktmbuf_mtod(m, const struct header *);

    if (m->data_len < sizeof(*h) || h->magic != MAGIC || h->way != w->index) {
        w->strange++;
        return;
    }
    if (h->size != m->pkt_len || h->number < w->next || h->number >= w->sent) {
        w->altered++;
        return;
    }
    w->missing += h->number - w->next;
    w->next = h->number + 1;
    w->came++;
    w->came_bytes += m->pkt_len;
}

static void way_receive(struct way *w)
{
    struct rte_mbuf *m[PORT_BURST];
    unsigned n = port_rx(w->to, 0, m, PORT_BURST);

    for (unsigned i = 0; i < n; i++)
        frame_count(w, m[i]);
    rte_pktmbuf_free_bulk(m, n);
}

/* ---- the run ---- */

static uint64_t in_cycles(uint64_t us)
{
    return rte_get_tsc_hz() / 1000000 * us;
}

/* One frame at a time, until one has come each way. */
static void wait_through(struct way way[2], unsigned ways)
{
    uint64_t end = rte_rdtsc() + in_cycles(PATIENCE_MS * 1000ull), probe = 0;

    while (way[0].came == 0 || (ways == 2 && way[1].came == 0)) {
        if (rte_rdtsc() > end)
            frame_die(PROG, "nothing comes through");
        for (unsigned i = 0; i < ways && rte_rdtsc() >= probe; i++)
            way_send(&way[i], 1);
        if (rte_rdtsc() >= probe)
            probe = rte_rdtsc() + in_cycles(PROBE_US);
        for (unsigned i = 0; i < ways; i++)
            way_receive(&way[i]);
    }
}

static uint64_t room(const struct way *w, unsigned window)
{
    uint64_t out = w->sent - w->next;

    return out < window ? window - out : 0;
}

/* The way with more frames goes as fast as it can, the other keeps step with what arrives of it. */
static void run(struct way way[2], unsigned ways, unsigned window, double seconds)
{
    struct way *lead = &way[way[1].count > way[0].count], *other = &way[lead == way];
    uint64_t now = rte_rdtsc(), end = now + (uint64_t)(seconds * (double)rte_get_tsc_hz());
    uint64_t lead_came = lead->came, other_sent = other->sent, seen = 0, due;
    double ratio = (double)other->count / (double)lead->count;

    for (uint64_t last = now; now < end; now = rte_rdtsc()) {
        way_send(lead, room(lead, window));
        if (ways == 2) {
            due = other_sent + (uint64_t)((double)(lead->came - lead_came) * ratio);
            due = due > other->sent ? due - other->sent : 0;
            way_send(other, min(due, room(other, window)));
            way_receive(other);
        }
        way_receive(lead);
        if (lead->came != seen) {
            seen = lead->came;
            last = now;
        } else if (now - last > in_cycles(PATIENCE_MS * 1000ull)) {
            frame_die(PROG, "nothing comes through any more: frames were lost");
        }
    }
    /* What is still on its way. */
    end = rte_rdtsc() + in_cycles(LAST_MS * 1000);
    while (rte_rdtsc() < end && (way[0].next < way[0].sent || way[1].next < way[1].sent)) {
        for (unsigned i = 0; i < ways; i++)
            way_receive(&way[i]);
    }
}

/* One frame of a way, from its sending to its coming. */
static void one_through(struct way *w)
{
    uint64_t end = rte_rdtsc() + in_cycles(PATIENCE_MS * 1000ull), came = w->came;

    while (w->sent == w->next)
        way_send(w, 1);
    while (w->came == came) {
        way_receive(w);
        if (rte_rdtsc() > end)
            frame_die(PROG, "a frame was lost");
    }
}

static void run_pings(struct way way[2], double seconds)
{
    uint64_t hz = rte_get_tsc_hz(), begin = rte_rdtsc();
    uint64_t end = begin + (uint64_t)(seconds * (double)hz);

    for (; begin < end && ntimes < TIMES_MAX; begin = rte_rdtsc()) {
        one_through(&way[0]);
        one_through(&way[1]);
        times[ntimes++] = (uint32_t)((rte_rdtsc() - begin) * 1000 / (hz / 1000000));
    }
}

static int compare_times(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void times_print(void)
{
    qsort(times, ntimes, sizeof(*times), compare_times);
    printf(", \"round_trip_us\": {\"count\": %u, \"p50\": %.3f, \"p99\": %.3f}", ntimes,
           times[ntimes / 2] / 1e3, times[(uint64_t)ntimes * 99 / 100] / 1e3);
}

static void way_print(const struct way *w)
{
    printf("{\"sent\": %" PRIu64 ", \"sent_bytes\": %" PRIu64 ", \"came\": %" PRIu64
           ", \"came_bytes\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"altered\": %" PRIu64
           ", \"strange\": %" PRIu64 "}",
           w->sent, w->sent_bytes, w->came, w->came_bytes, w->missing + (w->sent - w->next),
           w->altered, w->strange);
}

int main(int argc, char **argv)
{
    struct way way[2] = {{.index = 0}, {.index = 1}};
    unsigned mtu = 0, window = 256, seconds = 2, ways;
    int core = -1, c;
    bool pings = false, huge = false;
    struct err err = {0};

    while ((c = getopt(argc, argv, "m:c:w:t:pHf:r:")) != -1) {
        if (c == 'm')
            mtu = frame_number(PROG, optarg, PORT_MTU_MIN, PORT_MTU_MAX);
        else if (c == 'c')
            core = (int)frame_number(PROG, optarg, 0, 1023);
        else if (c == 'w')
            window = frame_number(PROG, optarg, 1, WINDOW_MOST);
        else if (c == 't')
            seconds = frame_number(PROG, optarg, 1, 3600);
        else if (c == 'p')
            pings = true;
        else if (c == 'H')
            huge = true;
        else if (c == 'f' || c == 'r')
            mix_parse(&way[c == 'r'], optarg);
        else
            return 1; /* getopt has said why */
    }
    if (argc - optind != 2 || way[0].count == 0 || (pings && way[1].count == 0))
        frame_die(PROG, "usage: frame-blast [-m MTU] [-c CORE] [-w WINDOW] [-t SECONDS] [-p] [-H] "
                        "-f MIX [-r MIX] DEVICE DEVICE");
    times = pings ? calloc(TIMES_MAX, sizeof(*times)) : NULL;
    if (pings && !times)
        frame_die(PROG, "no memory");
    frame_ports_open(&ports, argv + optind, mtu, core, huge);
    if (mem_mbufs_create("blast", MBUFS, PKT_PRIV, RTE_PKTMBUF_HEADROOM + FRAME_MAX, -1, &pool,
                         &err) < 0)
        frame_die(PROG, err.message);
    ways = way[1].count > 0 ? 2 : 1;
    for (unsigned i = 0; i < 2; i++) {
        way[i].from = ports.port[i];
        way[i].to = ports.port[1 - i];
    }
    wait_through(way, ways);
    printf("flowing\n");
    fflush(stdout);
    if (pings)
        run_pings(way, seconds);
    else
        run(way, ways, window, seconds);
    printf("{\"ways\": [");
    way_print(&way[0]);
    if (ways == 2) {
        printf(", ");
        way_print(&way[1]);
    }
    printf("], \"queues\": ");
    frame_ports_print(&ports);
    if (ntimes > 0)
        times_print();
    printf("}\n");
    free(times);
    frame_ports_close(&ports);
    mem_mbufs_destroy(pool);
    reactor_env_destroy(ports.env);
    return 0;
}
