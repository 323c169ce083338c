/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload to be sent: as the gather list of a SEND, or as RDMA WRITEs that walk the payload and the
 * peer's fragments together (o2iblnd §4.2). Payload in memory that the device has no key for is
 * copied.
 */
#include "lib/lnd_verbs/ib_conn.h"

#include <assert.h>
#include <string.h>

/* ---- bounce memory ---- */

struct ib_bounce *ib_bounce_get(struct ib_conn *c)
{
    struct ib_bounce *b = c->free_bounces;

    if (!b)
        return NULL;
    c->free_bounces = b->next;
    asan_unpoison(b->mem, IB_MSG_SIZE);
    return b;
}

void ib_bounce_put(struct ib_conn *c, struct ib_bounce *b)
{
    asan_poison(b->mem, IB_MSG_SIZE);
    b->next = c->free_bounces;
    c->free_bounces = b;
}

void ib_copy_out(struct ib_conn *c, uint8_t *to, const struct mem_seg *segs, uint32_t nsegs,
                 uint32_t off, uint32_t bytes)
{
    count_add(&ib_counters(c)->copied_out, bytes);
    for (uint32_t i = 0; bytes > 0; i++, off = 0) {
        uint32_t len;

        assert(i < nsegs);
        len = segs[i].len - off;
        len = len < bytes ? len : bytes;
        memcpy(to, segs[i].addr + off, len);
        to += len;
        bytes -= len;
    }
}

/* Returns the local key of a segment. Asks for a key of memory that is not registered yet. */
static bool local_key(const struct ib_conn *c, uint16_t region, uint32_t *lkey)
{
    const struct rdma_key *key = ib_key(c, region);

    if (!key) {
        if (region < MEM_REGION_MAX)
            ib_rdma(c)->want_region(c->link.port, region);
        return false;
    }
    *lkey = key->lkey;
    return true;
}

/* ---- SEND ---- */

enum ib_gather ib_gather(struct ib_conn *c, const struct lnet_sgl *payload, bool inlined,
                         struct ibv_sge *sge, unsigned max, unsigned *n)
{
    *n = 0;
    for (uint32_t i = 0; i < payload->n; i++) {
        const struct mem_seg *seg = &payload->seg[i];
        uint32_t lkey = 0;

        if (seg->len == 0)
            continue;
        if (*n == max || (!inlined && !local_key(c, seg->region, &lkey)))
            return IB_GATHER_BOUNCE;
        sge[(*n)++] = (struct ibv_sge){(uintptr_t)seg->addr, seg->len, lkey};
    }
    return IB_GATHER_DONE;
}

/* ---- WRITE ---- */

static void next_frag(struct ib_writer *w)
{
    ib_rd_frag(&w->rd, w->frag++, &w->to);
}

bool ib_writer_init(struct ib_writer *w, const struct ib_rd *rd, const struct mem_seg *segs,
                    uint32_t nsegs, uint32_t bytes, struct ib_rx *rx)
{
    *w = (struct ib_writer){.rd = *rd, .segs = segs, .nsegs = nsegs, .left = bytes};
    assert(bytes <= rd->total);
    next_frag(w);
    if (rd->nfrags > 1)
        w->rx = rx;
    return w->rx != NULL;
}

/* Advances the payload and the fragment by n bytes. */
static void advance(struct ib_writer *w, uint32_t n)
{
    w->left -= n;
    w->to.addr += n;
    w->to.nob -= n;
    while (n > 0) {
        uint32_t rest = w->segs[w->seg].len - w->off;

        if (n < rest) {
            w->off += n;
            return;
        }
        n -= rest;
        w->seg++;
        w->off = 0;
    }
}

/* Adds entries up to the end of the fragment, of the payload or of the list, or up to memory
 * without a key. */
static int gather_write(struct ib_conn *c, struct ib_writer *w, struct ibv_sge *sge, unsigned max)
{
    unsigned n = 0;

    while (n < max && w->left > 0 && w->to.nob > 0) {
        const struct mem_seg *seg = &w->segs[w->seg];
        uint32_t len, lkey;

        assert(w->seg < w->nsegs);
        if (seg->len == w->off) {
            w->seg++;
            w->off = 0;
            continue;
        }
        if (!local_key(c, seg->region, &lkey))
            break;
        len = min(min(seg->len - w->off, w->to.nob), w->left);
        sge[n++] = (struct ibv_sge){(uintptr_t)(seg->addr + w->off), len, lkey};
        advance(w, len);
    }
    return (int)n;
}

bool ib_writer_next(struct ib_conn *c, struct ib_writer *w, struct ibv_send_wr *wr,
                    struct ibv_sge *sge, unsigned max, struct ib_bounce **bounce)
{
    struct ib_bounce *b = NULL;
    uint64_t at;
    uint32_t len;
    int n;

    if (w->to.nob == 0)
        next_frag(w);
    at = w->to.addr;
    n = gather_write(c, w, sge, max);
    if (n == 0) {
        b = ib_bounce_get(c);
        if (!b)
            return false;
        len = min(min(IB_MSG_SIZE, w->to.nob), w->left);
        ib_copy_out(c, b->mem, &w->segs[w->seg], w->nsegs - w->seg, w->off, len);
        sge[0] = (struct ibv_sge){(uintptr_t)b->mem, len, c->link.area_lkey};
        advance(w, len);
        n = 1;
    }
    *bounce = b;
    *wr = (struct ibv_send_wr){
        .opcode = IBV_WR_RDMA_WRITE,
        .sg_list = sge,
        .num_sge = n,
        .wr.rdma = {.remote_addr = at, .rkey = w->rd.key},
    };
    count_add(&ib_counters(c)->writes, 1);
    return true;
}
