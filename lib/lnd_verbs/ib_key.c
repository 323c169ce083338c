/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The remote key of one transfer: the rkey of its PUT_ACK, by which the peer writes the payload.
 * The device has one of three methods (enum rdma_keys).
 *
 * Windows. Each message being received has a memory window of type 2, which belongs to the queue
 * pair of the connection: a key of another connection does not work. A request binds the window to
 * the memory of the transfer right before PUT_ACK on the same send queue. PUT_DONE is answered by a
 * local invalidate. The core gets the memory back, and the peer its credit, when the invalidate has
 * completed. A connection that ends frees its windows with its queue pair.
 *
 * Registrations. The memory of the transfer is registered before PUT_ACK and released with
 * PUT_DONE. These calls block the reactor. Other peers could use the key, while it lasts, if they
 * guessed it.
 *
 * Shared. The key of the whole region is given to all peers and never changes.
 *
 * All functions run on the home of the connection.
 */
#include "lib/lnd_verbs/ib_conn.h"

#include <assert.h>

static enum rdma_keys method(const struct ib_conn *c)
{
    return c->link.port->info.remote_keys;
}

/* Returns the smallest range that has all fragments. */
static struct ib_frag span(const struct ib_frag *frags, uint32_t n)
{
    uint64_t from = frags[0].addr, to = from + frags[0].nob;

    for (uint32_t i = 1; i < n; i++) {
        from = min(from, frags[i].addr);
        to = max(to, frags[i].addr + frags[i].nob);
    }
    return (struct ib_frag){.addr = from, .nob = (uint32_t)(to - from)};
}

/* Binding a window again needs another rkey, of which the low byte is ours to choose. */
static uint32_t window_begin(struct ib_recv *r, const struct rdma_key *key, struct ib_frag all)
{
    r->window = r->conn->link.windows[r->index];
    r->bind = (struct ibv_mw_bind_info){.mr = key->mr,
                                        .addr = all.addr,
                                        .length = all.nob,
                                        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    return ibv_inc_rkey(r->window->rkey);
}

static uint32_t registration_begin(struct ib_recv *r, struct ib_frag all)
{
    struct ib_conn *c = r->conn;

    r->part = ib_rdma(c)->register_part(&c->link, (void *)(uintptr_t)all.addr, all.nob);
    return r->part ? r->part->rkey : 0;
}

uint32_t ib_key_begin(struct ib_recv *r, const struct rdma_key *key, const struct ib_frag *frags,
                      uint32_t n)
{
    switch (method(r->conn)) {
    case RDMA_KEYS_WINDOWS:
        r->rkey = window_begin(r, key, span(frags, n));
        break;
    case RDMA_KEYS_REGISTRATIONS:
        r->rkey = registration_begin(r, span(frags, n));
        break;
    default:
        r->rkey = key->rkey;
        break;
    }
    return r->rkey;
}

unsigned ib_key_bind(struct ib_recv *r, struct ibv_send_wr *wr)
{
    if (!r->window)
        return 0;
    *wr = (struct ibv_send_wr){
        .wr_id = ib_wr_id(r->conn, IB_WR_BIND, 0, r->index),
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = r->window, .rkey = r->rkey, .bind_info = r->bind},
    };
    return 1;
}

void ib_key_bound(struct ib_recv *r)
{
    if (r->window)
        r->window->rkey = r->rkey;
}

static void release(struct ib_recv *r)
{
    struct ib_conn *c = r->conn;

    if (r->part)
        ib_rdma(c)->release_part(&c->link, r->part);
    r->part = NULL;
    r->window = NULL;
}

bool ib_key_end(struct ib_recv *r)
{
    struct ib_conn *c = r->conn;

    if (!r->window) {
        release(r);
        return true;
    }
    if (c->state == IB_CONN_UP) {
        r->next = NULL;
        *c->revokes_tail = r;
        c->revokes_tail = &r->next;
        ib_conn_soon(c);
    }
    return false;
}

void ib_key_invalidate(struct ib_conn *c, struct ibv_send_wr *wr)
{
    struct ib_recv *r = c->revokes;

    c->revokes = r->next;
    if (!c->revokes)
        c->revokes_tail = &c->revokes;
    *wr = (struct ibv_send_wr){
        .wr_id = ib_wr_id(c, IB_WR_INVALIDATE, 1, r->index),
        .opcode = IBV_WR_LOCAL_INV,
        .send_flags = IBV_SEND_SIGNALED,
        .invalidate_rkey = r->rkey,
    };
}

void ib_key_done(struct ib_conn *c, const struct ib_wr *wr, enum ibv_wc_status status)
{
    struct ib_recv *r = &c->recvs[wr->index];
    bool good = status == IBV_WC_SUCCESS;

    assert(wr->index < c->nrecvs);
    c->sq_free += wr->wrs;
    if (wr->kind == IB_WR_INVALIDATE)
        c->outstanding--;
    if (good) {
        assert(r->state == IB_RECV_REVOKING);
        release(r);
        ib_recv_end(r, r->result);
        return;
    }
    if (status == IBV_WC_WR_FLUSH_ERR) { /* the queue pair has failed for another reason */
        ib_conn_fail(c, &ib_cause_broken, IB_DROP(LOST), NULL);
        return;
    }
    if (c->state == IB_CONN_UP && r->state == IB_RECV_ACKED)
        r->unbound = true;
    ib_conn_fail(c, &ib_cause_broken, IB_DROP(KEY), &r->rx.hdr);
}

void ib_key_finalize(struct ib_recv *r)
{
    release(r);
}
