/* SPDX-License-Identifier: BSD-3-Clause */
/* See capture.h. Each ring has one writer, its reactor, and one reader, the control thread. */
#include "lib/lnd_eth/capture.h"
#include "lib/base/atomic.h"
#include "lib/base/minmax.h"
#include "lib/lnd_eth/port/frame.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <time.h>

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_ether.h>

#define ALIGN    8u
#define WRAP     UINT32_MAX /* size of a record: the rest of the ring is unused */
#define VLAN_TAG 4u

struct ring {
    uint8_t *mem;
    uint32_t mask;
    uint64_t missed;
    uint64_t head __rte_cache_aligned; /* bytes ever written; the writer's */
    uint64_t tail __rte_cache_aligned; /* bytes ever read; the reader's */
} __rte_cache_aligned;

struct capture {
    struct inet *inet;
    struct reactor_env *env;
    struct inet_tap tap;
    struct capture_conf conf;
    bool running;
    unsigned nrings;
    struct ring *ring;   /* by reactor */
    struct ring *oldest; /* of capture_next() */
};

/* ---- what is kept ---- */

/* Returns the end of the last header: a capture must not show payload of TCP. For ICMP it
 * includes the quoted headers; for an unknown protocol only the Ethernet header. */
static uint32_t headers_end(const struct frame_view *v)
{
    if (v->type == RTE_ETHER_TYPE_ARP)
        return RTE_ETHER_HDR_LEN + 28;
    if (v->family == 0)
        return RTE_ETHER_HDR_LEN;
    if (v->tcp)
        return v->payload;
    if (v->proto == IPPROTO_ICMP)
        return v->l4_off + 8 + 20 + 20;
    if (v->proto == IPPROTO_ICMPV6)
        return v->l4_off + 8 + 40 + 20;
    return v->l4_off + 8;
}

static bool is_wanted(const struct capture_conf *c, const struct frame_view *v,
                      const struct port *port, bool out, enum pkt_drop why)
{
    if (c->port && port != c->port)
        return false;
    if (c->drops == CAPTURE_PASSING ? why != PKT_DROP_NONE
                                    : c->drops == CAPTURE_DROPS && why == PKT_DROP_NONE)
        return false;
    if (c->drops == CAPTURE_DROPS && c->why != PKT_DROP_NONE && why != c->why)
        return false;
    return !c->has_peer ||
           (v->family && memcmp(out ? v->dst : v->src, c->peer.b, sizeof(c->peer.b)) == 0);
}

/* ---- writing (the reactor) ---- */

/* Room for size bytes in one piece, and where the ring's head is behind it; NULL: there is none. */
static struct capture_record *room_for(struct ring *r, uint32_t size, uint64_t *head)
{
    uint64_t tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
    uint32_t at = (uint32_t)r->head & r->mask, to_end = r->mask + 1 - at;
    uint32_t skip = size > to_end ? to_end : 0;

    if (r->head + skip + size - tail > (uint64_t)r->mask + 1)
        return NULL;
    if (skip) {
        ((struct capture_record *)(void *)(r->mem + at))->size = WRAP;
        at = 0;
    }
    *head = r->head + skip + size;
    return (struct capture_record *)(void *)(r->mem + at);
}

static void copy_range(uint8_t *to, const struct rte_mbuf *m, uint32_t off, uint32_t len)
{
    const void *p = rte_pktmbuf_read(m, off, len, to);

    if (p && p != to)
        memcpy(to, p, len);
}

/* The first bytes of a frame, with the VLAN tag that is kept beside it. */
static void copy_frame(uint8_t *to, const struct rte_mbuf *m, bool tagged, uint32_t len)
{
    const uint32_t macs = 2 * RTE_ETHER_ADDR_LEN;
    uint8_t tag[VLAN_TAG] = {RTE_ETHER_TYPE_VLAN >> 8, RTE_ETHER_TYPE_VLAN & 0xff,
                             (uint8_t)(m->vlan_tci >> 8), (uint8_t)m->vlan_tci};

    if (!tagged || len <= macs) {
        copy_range(to, m, 0, len);
        return;
    }
    copy_range(to, m, 0, macs);
    memcpy(to + macs, tag, min(len - macs, VLAN_TAG));
    if (len > macs + VLAN_TAG)
        copy_range(to + macs + VLAN_TAG, m, macs, len - macs - VLAN_TAG);
}

static void see(void *ctx, struct inet_shard *sh, struct inet_if *ifp, struct port *port,
                const struct rte_mbuf *m, bool out, enum pkt_drop why)
{
    struct capture *c = ctx;
    struct ring *r = &c->ring[inet_shard_reactor(sh)];
    bool tagged = m->ol_flags & (out ? RTE_MBUF_F_TX_VLAN : RTE_MBUF_F_RX_VLAN_STRIPPED);
    uint32_t len = m->pkt_len, keep, size;
    struct frame_view v;
    struct capture_record *h;
    struct timespec ts;
    uint64_t head;

    frame_view(m, &v);
    if (!is_wanted(&c->conf, &v, port, out, why))
        return;
    keep = min(c->conf.snap ? c->conf.snap : headers_end(&v), len);
    if (tagged) {
        len += VLAN_TAG;
        keep = min(keep + VLAN_TAG, c->conf.snap ? c->conf.snap : UINT32_MAX);
    }
    size = RTE_ALIGN_CEIL((uint32_t)sizeof(*h) + keep, ALIGN);
    h = room_for(r, size, &head);
    if (unlikely(!h)) {
        count_add(&r->missed, 1);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &ts); /* by way of the vDSO, and only while somebody captures */
    *h =
        (struct capture_record){.size = size,
                                .len = len,
                                .caplen = keep,
                                .out = out,
                                .port = (uint8_t)(port ? port->index : PORT_MAX),
                                .why = (uint16_t)why,
                                .time_ns = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec};
    copy_frame((uint8_t *)(h + 1), m, tagged, keep);
    __atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
}

/* ---- reading (control thread) ---- */

/* The record at the tail; NULL: the ring is empty. */
static const struct capture_record *first(struct ring *r)
{
    uint64_t head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
    uint32_t at = (uint32_t)r->tail & r->mask;
    const struct capture_record *h = (const struct capture_record *)(const void *)(r->mem + at);

    if (r->tail == head)
        return NULL;
    if (h->size != WRAP)
        return h;
    __atomic_store_n(&r->tail, r->tail + (r->mask + 1 - at), __ATOMIC_RELEASE);
    return r->tail == head ? NULL : (const struct capture_record *)(const void *)r->mem;
}

bool capture_next(struct capture *c, struct capture_record *out)
{
    const struct capture_record *best = NULL;

    for (unsigned i = 0; i < c->nrings; i++) {
        const struct capture_record *h = first(&c->ring[i]);

        if (h && (!best || h->time_ns < best->time_ns)) {
            best = h;
            c->oldest = &c->ring[i];
        }
    }
    if (!best)
        return false;
    *out = *best;
    out->data = (const uint8_t *)(best + 1);
    return true;
}

void capture_pop(struct capture *c)
{
    const struct capture_record *h = first(c->oldest);

    if (h)
        __atomic_store_n(&c->oldest->tail, c->oldest->tail + h->size, __ATOMIC_RELEASE);
}

uint64_t capture_missed(const struct capture *c)
{
    uint64_t missed = 0;

    for (unsigned i = 0; i < c->nrings; i++)
        missed += relaxed_load(&c->ring[i].missed);
    return missed;
}

/* ---- beginning and ending ---- */

static void rings_free(struct capture *c)
{
    for (unsigned i = 0; c->ring && i < c->nrings; i++)
        free(c->ring[i].mem);
    free(c->ring);
}

static bool rings_make(struct capture *c)
{
    c->ring = aligned_alloc(RTE_CACHE_LINE_SIZE, c->nrings * sizeof(c->ring[0]));
    if (!c->ring)
        return false;
    memset(c->ring, 0, c->nrings * sizeof(c->ring[0]));
    for (unsigned i = 0; i < c->nrings; i++) {
        c->ring[i].mask = c->conf.ring_size - 1;
        c->ring[i].mem = aligned_alloc(RTE_CACHE_LINE_SIZE, c->conf.ring_size);
        if (!c->ring[i].mem)
            return false;
        memset(c->ring[i].mem, 0,
               c->conf.ring_size); /* its pages are there before a reactor writes */
    }
    return true;
}

int capture_start(struct inet *inet, struct reactor_env *env, const struct capture_conf *conf,
                  struct capture **out)
{
    struct capture *c;

    if (conf->snap > CAPTURE_SNAP_MAX || conf->ring_size < CAPTURE_RING_MIN ||
        conf->ring_size > CAPTURE_RING_MAX || (conf->ring_size & (conf->ring_size - 1)))
        return -EINVAL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->inet = inet;
    c->env = env;
    c->conf = *conf;
    c->tap = (struct inet_tap){.ctx = c, .frame = see};
    c->nrings = reactor_count(env);
    if (!rings_make(c)) {
        rings_free(c);
        free(c);
        return -ENOMEM;
    }
    c->running = true;
    inet_tap_set(inet, &c->tap);
    *out = c;
    return 0;
}

void capture_stop(struct capture *c)
{
    if (!c->running)
        return;
    c->running = false;
    inet_tap_set(c->inet, NULL);
    reactor_synchronize(c->env);
}

void capture_free(struct capture *c)
{
    if (!c)
        return;
    capture_stop(c);
    rings_free(c);
    free(c);
}
