/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send queue of a connection: pieces that refer to the buffers of their bytes. Payload in a
 * pool of mbufs (mem_mbuf.h) or in landing memory (mem_hold.h) is sent by reference. Other
 * payload is copied once, in copy_in(), since its owner may reuse it while a device still reads a
 * frame. Landing memory is copied too on a port that keeps sent frames, as its owner would wait.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"
#include "lib/reactor/mem_hold.h"
#include "lib/reactor/mem_mbuf.h"

#include <errno.h>
#include <stdlib.h>

#define COPY_MIN   64u  /* buffers */
#define SMALL_ROOM 256u /* bytes: a header, or a few */
#define SMALL_COST 448u /* bytes that a small buffer takes */
#define SMALL_PART 4
#define WAKE_US    1000
#define WAKE_BATCH 64
#define LOOK_US    250000
#define ENOUGH     3           /* of TX_RESERVE: the caches of other reactors may have a quarter */
#define STUCK_US   2000000     /* when buffers are short, who does not take in this time … */
#define STUCK_LEN  (64u << 10) /* … so much, or all that is queued, gives way */

/* ---- of the process and of a reactor ---- */

static uint32_t copy_count(const struct tcp_opts *opts)
{
    return (uint32_t)max(min(opts->copy_bytes / TX_COPY_ROOM, (size_t)1 << 20), (size_t)COPY_MIN);
}

/* One for each connection, and what the caches of reactors keep from others; all in a quarter of
 * the memory for copies at most. */
static uint32_t small_count(const struct tcp_opts *opts, unsigned reactors)
{
    size_t most = max(opts->copy_bytes / SMALL_PART / SMALL_COST, (size_t)COPY_MIN);

    return (uint32_t)min((size_t)opts->max_conns * reactors / 3 * 4, most);
}

int tcp_tx_create(struct tcp *tcp, struct err *err)
{
    char name[24]; /* a process may have several TCPs: tests do */
    int rc;

    snprintf(name, sizeof(name), "tcp_copy_%x", (unsigned)((uintptr_t)tcp >> 4));
    rc = mem_mbufs_create(name, copy_count(&tcp->opts), 0, TX_COPY_ROOM, -1, &tcp->copy_pool, err);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof(name), "tcp_small_%x", (unsigned)((uintptr_t)tcp >> 4));
    return mem_mbufs_create(name, small_count(&tcp->opts, tcp->nshards), 0, SMALL_ROOM, -1,
                            &tcp->small_pool, err);
}

static void wake_waiters(struct reactor_timer *t);
static void end_stuck(struct reactor_timer *t);

int tcp_tx_shard_create(struct tcp_shard *sh)
{
    struct tcp_copies *st = calloc(1, sizeof(*st));
    int32_t least = (int32_t)min((size_t)TX_LEAST * sh->tcp->opts.max_conns, (size_t)TX_LEAST_MOST);

    if (!st)
        return -ENOMEM;
    st->sh = sh;
    st->data = calloc(TX_DATA_MAX, sizeof(*st->data));
    st->segs = calloc(TX_SEGS_MAX, sizeof(*st->segs));
    if (!st->data || !st->segs) {
        free(st->data);
        free(st->segs);
        free(st);
        return -ENOMEM;
    }
    for (uint32_t i = TX_DATA_MAX; i-- > 0; st->free_data = &st->data[i])
        st->data[i].next = st->free_data;
    for (uint32_t i = TX_SEGS_MAX; i-- > 0; st->free_segs = &st->segs[i])
        st->segs[i].next = st->free_segs;
    st->nfree_data = TX_DATA_MAX - least;
    st->nfree_segs = TX_SEGS_MAX - least;
    /* not 0, which is followed by zeros only */
    st->random = (uint32_t)sip_hash(&sh->tcp->secret, &sh->index, sizeof(sh->index)) | 1;
    TAILQ_INIT(&st->waiters);
    TAILQ_INIT(&st->holders);
    for (unsigned i = 0; i < PORT_MAX; i++)
        TAILQ_INIT(&sh->port_waiters[i]);
    reactor_timer_init(&st->wake, wake_waiters);
    reactor_timer_init(&st->look, end_stuck);
    sh->copies = st;
    return 0;
}

/* Pieces move between reactors with their connections: all connections of all reactors are gone. */
void tcp_tx_shard_destroy(struct tcp_shard *sh)
{
    if (!sh->copies)
        return;
    reactor_timer_cancel(&sh->copies->wake);
    reactor_timer_cancel(&sh->copies->look);
    free(sh->copies->data);
    free(sh->copies->segs);
    free(sh->copies);
    sh->copies = NULL;
}

void tcp_tx_memory(const struct tcp_opts *opts, unsigned reactors, size_t *heap, size_t *eal)
{
    *heap += reactors * (sizeof(struct tcp_copies) + TX_DATA_MAX * sizeof(struct tcp_tx_data) +
                         TX_SEGS_MAX * sizeof(struct tcp_tx_seg));
    *eal += mem_mbufs_memory(copy_count(opts), 0, TX_COPY_ROOM) +
            mem_mbufs_memory(small_count(opts, reactors), 0, SMALL_ROOM);
}

/* ---- who holds copy buffers ---- */

/* From now on. */
static void hold(struct tcp_conn *c)
{
    struct tcp_copies *st = c->sh->copies;

    c->tx.held_us = reactor_now_us();
    c->tx.held_end = c->tx.una + min(c->tx.end - c->tx.una, STUCK_LEN);
    c->tx.holds = true;
    TAILQ_INSERT_TAIL(&st->holders, c, tx.hold_link);
    if (!reactor_timer_armed(&st->look))
        reactor_timer_arm(&st->look, LOOK_US);
}

static void unhold(struct tcp_conn *c)
{
    if (c->tx.holds)
        TAILQ_REMOVE(&c->sh->copies->holders, c, tx.hold_link);
    c->tx.holds = false;
}

/* ---- who waits for room ---- */

static void wait_for_room(struct tcp_conn *c)
{
    struct tcp_copies *st = c->sh->copies;

    if (!c->tx.waiting) {
        c->tx.waiting = true;
        TAILQ_INSERT_TAIL(&st->waiters, c, tx.wait_link);
    }
    if (!reactor_timer_armed(&st->wake))
        reactor_timer_arm(&st->wake, WAKE_US);
}

static void wait_no_more(struct tcp_conn *c)
{
    if (!c->tx.waiting)
        return;
    c->tx.waiting = false;
    TAILQ_REMOVE(&c->sh->copies->waiters, c, tx.wait_link);
}

void tcp_queue_detach(struct tcp_conn *c)
{
    wait_no_more(c);
    unhold(c);
}

void tcp_queue_attach(struct tcp_conn *c)
{
    if (c->tx.copied > 0 && !c->tx.holds)
        hold(c);
    tcp_queue_wake(c);
}

/* Returns true when no piece and no frame refers to the small buffer. */
static bool small_free(const struct tcp_conn *c)
{
    return !c->tx.small || rte_mbuf_refcnt_read(c->tx.small) == 1;
}

/* Copy buffers return when a device is done with them, without a notification; so a timer checks
 * while connections wait. A connection that finds none again goes to the end of the list. */
static void wake_waiters(struct reactor_timer *t)
{
    struct tcp_copies *st = container_of(t, struct tcp_copies, wake);
    bool any = rte_mempool_avail_count(st->sh->tcp->copy_pool) > 0;
    struct tcp_conn *c;

    for (unsigned i = 0; st->free_data && i < WAKE_BATCH && (c = TAILQ_FIRST(&st->waiters)); i++) {
        wait_no_more(c);
        if (any || small_free(c))
            tcp_queue_wake(c);
        else
            wait_for_room(c);
    }
    if (!TAILQ_EMPTY(&st->waiters))
        reactor_timer_arm(t, WAKE_US);
}

uint32_t tcp_tx_unsent(const struct tcp_conn *c)
{
    return seq_lt(c->tx.nxt, c->tx.end) ? c->tx.end - c->tx.nxt : 0;
}

/* Returns the limit of unsent bytes: the next congestion window, and as much again. More would
 * only wait here, invisible to credits and path selection. */
static uint32_t unsent_most(const struct tcp_conn *c)
{
    return (uint32_t)min(max(2 * (uint64_t)c->tx.cwnd, TX_UNSENT_MIN), TX_UNSENT_MAX);
}

static uint32_t room(const struct tcp_conn *c)
{
    uint32_t unsent = tcp_tx_unsent(c), most = unsent_most(c);

    return unsent < most && c->tx.end - c->tx.una < TX_QUEUE_MAX ? most - unsent : 0;
}

static uint32_t piece_most(const struct tcp_conn *c)
{
    return tx_share(c->sh->copies->nfree_data, TX_DATA_MAX, TX_DATA_PART, TX_DATA_LEAST);
}

/* The pool is shared by all reactors; counting what it has costs a look at each one's cache. */
static uint32_t copies_free(struct tcp_copies *st)
{
    uint64_t now_us = reactor_now_us();

    if (st->copies_us == 0 || now_us - st->copies_us >= TX_COPIES_US) {
        st->copies_free = rte_mempool_avail_count(st->sh->tcp->copy_pool);
        st->copies_us = now_us;
    }
    return st->copies_free;
}

/* Bytes of copy buffers it may have in all, and still take. */
static uint32_t copy_most(const struct tcp_conn *c)
{
    return tx_share((int32_t)copies_free(c->sh->copies), copy_count(&c->sh->tcp->opts),
                    TX_COPY_PART, TX_COPY_LEAST) *
           TX_COPY_ROOM;
}

static uint32_t copy_share(const struct tcp_conn *c)
{
    uint32_t most = copy_most(c);

    return most > c->tx.copied ? most - c->tx.copied : 0;
}

/* Ends who is stuck, the oldest first, until there are enough buffers. */
static void end_stuck(struct reactor_timer *t)
{
    struct tcp_copies *st = container_of(t, struct tcp_copies, look);
    uint32_t enough = copy_count(&st->sh->tcp->opts) / TX_RESERVE * ENOUGH;
    uint64_t now_us = reactor_now_us();
    struct tcp_conn *c;

    for (unsigned i = 0; i < WAKE_BATCH && (c = TAILQ_FIRST(&st->holders)); i++) {
        if (now_us - c->tx.held_us < STUCK_US ||
            rte_mempool_avail_count(st->sh->tcp->copy_pool) >= enough)
            break;
        count_add(&st->sh->stats.stuck_reset, 1);
        tcp_conn_abort(c, STREAM_END_TIMEOUT);
    }
    if (!TAILQ_EMPTY(&st->holders))
        reactor_timer_arm(t, LOOK_US);
}

void tcp_queue_wake(struct tcp_conn *c)
{
    if (!c->tx.blocked || c->tx.waiting || c->tx.fin || room(c) < unsent_most(c) / 2)
        return;
    if (c->tx.copy_blocked && c->tx.copied > copy_most(c) / 2)
        return;
    if (c->tx.piece_blocked && c->tx.pieces > piece_most(c) / 2)
        return;
    c->tx.blocked = c->tx.copy_blocked = c->tx.piece_blocked = false;
    c->tell_writable = true;
    tcp_work(c);
}

/* ---- pieces ---- */

/* At the end of the queue; its buffer is the caller's to fill in. NULL: none is left for it. */
static struct tcp_tx_data *piece_add(struct tcp_conn *c, uint8_t *addr, uint32_t len)
{
    struct tcp_copies *st = c->sh->copies;
    struct tcp_tx_data *d = st->free_data;

    if (!d || c->tx.pieces >= piece_most(c))
        return NULL;
    st->free_data = d->next;
    st->nfree_data--;
    c->tx.pieces++;
    *d = (struct tcp_tx_data){.addr = addr, .seq = c->tx.end, .len = len};
    if (c->tx.tail)
        c->tx.tail->next = d;
    else
        c->tx.head = d;
    c->tx.tail = d;
    return d;
}

static struct tcp_tx_data *data_add(struct tcp_conn *c, struct rte_mbuf *m, uint8_t *addr,
                                    uint32_t len, bool copied)
{
    struct tcp_tx_data *d = piece_add(c, addr, len);

    if (!d)
        return NULL;
    rte_mbuf_refcnt_update(m, 1);
    d->m = m;
    d->copied = copied;
    c->tx.refers += !copied;
    return d;
}

static void data_free(struct tcp_conn *c, struct tcp_tx_data *d)
{
    struct tcp_copies *st = c->sh->copies;

    if (d->copied)
        c->tx.copied -= d->len;
    else
        c->tx.refers--;
    if (d->landing)
        rte_mbuf_ext_refcnt_update(d->info, -1);
    else
        rte_pktmbuf_free_seg(d->m);
    d->next = st->free_data;
    st->free_data = d;
    st->nfree_data++;
    c->tx.pieces--;
}

static void fill_end(struct tcp_conn *c)
{
    if (c->tx.fill)
        rte_pktmbuf_free_seg(c->tx.fill);
    c->tx.fill = NULL;
}

/* Takes a buffer of the pool. If there is none, the connection has a small one for itself. */
static bool fill_begin(struct tcp_conn *c)
{
    struct tcp *tcp = c->sh->tcp;
    struct tcp_tx *tx = &c->tx;

    tx->fill_used = 0;
    tx->fill = rte_pktmbuf_alloc(tcp->copy_pool);
    if (tx->fill) {
        c->sh->copies->copies_free -= c->sh->copies->copies_free > 0;
        if (!tx->holds)
            hold(c);
        return true;
    }
    if (!tx->small)
        tx->small = rte_pktmbuf_alloc(tcp->small_pool);
    if (!tx->small || !small_free(c))
        return false;
    rte_mbuf_refcnt_update(tx->small, 1);
    tx->fill = tx->small;
    count_add(&c->sh->stats.copies_short, 1);
    return true;
}

/* Bytes [end, end + len) have been added to the queue. */
static void grown(struct tcp_conn *c, uint32_t len)
{
    if (!c->tx.unsent)
        c->tx.unsent = c->tx.tail;
    c->tx.end += len;
    c->tx.unacked += len;
}

/* Only who gives it to us holds this buffer of a port's, and in front there is room for headers,
 * which lie at even addresses. */
static bool is_own(const struct rte_mbuf *m, const uint8_t *addr)
{
    return RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 && m->priv_size == PKT_PRIV &&
           addr - (const uint8_t *)m->buf_addr >= TX_HEADERS && (uintptr_t)addr % 2 == 0;
}

static uint16_t offset_in(const struct rte_mbuf *m, const uint8_t *addr)
{
    return (uint16_t)(addr - (const uint8_t *)m->buf_addr);
}

static void go_on(struct tcp_tx_data *d, const uint8_t *addr, uint32_t len)
{
    if (d->own && pkt_of(d->m)->sum_len > 0) {
        struct pkt *p = pkt_of(d->m);

        p->sum = csum_join(p->sum, csum_partial(addr, len, 0), d->len & 1);
        p->sum_len += len;
    }
    d->len += len;
}

static uint32_t refer(struct tcp_conn *c, struct rte_mbuf *m, uint8_t *addr, uint32_t len)
{
    struct tcp_tx_data *d = c->tx.tail;
    bool own = is_own(m, addr);

    if (d && !d->copied && !d->landing && d->m == m && d->addr + d->len == addr) {
        go_on(d, addr, len); /* the rest of what the last piece refers to */
    } else {
        d = data_add(c, m, addr, len, false);
        if (!d)
            return 0;
        d->own = own;
        if (own)
            pkt_sum_trim(m, offset_in(m, addr), len);
    }
    grown(c, len);
    return len;
}

/* Queues a reference to a buffer in landing memory. */
static uint32_t refer_landing(struct tcp_conn *c, struct rte_mbuf_ext_shared_info *info,
                              const struct mem_seg *seg, uint32_t len)
{
    struct tcp_tx_data *d = c->tx.tail;

    if (d && d->landing && d->info == info && d->addr + d->len == seg->addr) {
        d->len += len;
    } else {
        d = piece_add(c, seg->addr, len);
        if (!d)
            return 0;
        rte_mbuf_ext_refcnt_update(info, 1);
        d->info = info;
        d->landing = 1;
        c->tx.refers++;
        d->region = seg->region;
    }
    grown(c, len);
    return len;
}

/* A header that is not ours to keep, and payload behind it in a buffer with room in front: the
 * header goes there, and both are one piece. */
static uint32_t refer_with(struct tcp_conn *c, const uint8_t *head, uint32_t head_len,
                           struct rte_mbuf *m, uint8_t *addr, uint32_t len)
{
    uint8_t *to = addr - head_len;
    struct tcp_tx_data *d = data_add(c, m, to, head_len + len, false);
    struct pkt *p = pkt_of(m);

    if (!d)
        return 0;
    d->own = 1;
    pkt_sum_trim(m, offset_in(m, addr), len);
    memcpy(to, head, head_len);
    if (p->sum_len > 0) {
        p->sum = csum_join(csum_partial(to, head_len, 0), p->sum, head_len & 1);
        p->sum_at = offset_in(m, to);
        p->sum_len += head_len;
    }
    grown(c, head_len + len);
    return head_len + len;
}

/* The one place where payload is copied before it is sent. Small pieces share a buffer: what is
 * written is never changed, so frames under way may refer to the part that is full. */
static uint32_t copy_some(struct tcp_conn *c, const uint8_t *from, uint32_t len)
{
    struct tcp_tx *tx = &c->tx;
    uint8_t *to;

    if (!tx->fill && !fill_begin(c))
        return 0;
    len = min(len, tx->fill->buf_len - tx->fill_used);
    to = (uint8_t *)tx->fill->buf_addr + tx->fill_used;
    if (tx->tail && tx->tail->copied && tx->tail->m == tx->fill &&
        tx->tail->addr + tx->tail->len == to)
        tx->tail->len += len;
    else if (!data_add(c, tx->fill, to, len, true))
        return 0;
    memcpy(to, from, len);
    tx->fill_used += len;
    tx->copied += len;
    if (tx->fill_used == tx->fill->buf_len)
        fill_end(c);
    grown(c, len);
    count_add(&c->sh->stats.copies, 1);
    count_add(&c->sh->stats.copied_bytes, len);
    return len;
}

static uint32_t copy_in(struct tcp_conn *c, const uint8_t *from, uint32_t len)
{
    uint32_t done = 0, n = 1;

    len = min(len, copy_share(c));
    while (done < len && n > 0) {
        n = copy_some(c, from + done, len - done);
        done += n;
    }
    return done;
}

static struct rte_mbuf *buffer_of(const struct mem_seg *seg)
{
    return seg->region == MEM_REGION_NONE ? NULL : mem_mbuf_of(seg->region, seg->addr);
}

/* NULL: not in a landing buffer, or the port would keep it. */
static struct rte_mbuf_ext_shared_info *landing_of(const struct tcp_conn *c,
                                                   const struct mem_seg *seg)
{
    struct rte_mbuf_ext_shared_info *info =
        seg->region == MEM_REGION_NONE ? NULL : mem_hold_of(seg->region, seg->addr, seg->len);

    return info && seg->len <= TX_PIECE_MAX &&
                   (inet_if_port(c->path.ifp)->caps & PORT_TX_RETURNS) != 0
               ? info
               : NULL;
}

/* Takes up to `want` bytes of a segment; *copied: its place is in a copy buffer. */
static uint32_t take_seg(struct tcp_conn *c, const struct mem_seg *seg, uint32_t want, bool *copied)
{
    struct rte_mbuf_ext_shared_info *info;
    struct rte_mbuf *m = buffer_of(seg);

    if (want == 0)
        return 0;
    if (m)
        return refer(c, m, seg->addr, want);
    info = landing_of(c, seg);
    if (info)
        return refer_landing(c, info, seg, want);
    *copied = true;
    return copy_in(c, seg->addr, want);
}

/* The buffer of the second segment, if the first can go in front of it there. */
static struct rte_mbuf *joins(const struct mem_seg *seg, uint32_t left)
{
    struct rte_mbuf *m;

    if (seg[0].region != MEM_REGION_NONE || seg[0].len == 0 || seg[0].len > TX_HEAD_MOST ||
        left <= seg[0].len)
        return NULL;
    m = buffer_of(&seg[1]);
    return m && offset_in(m, seg[1].addr) >= seg[0].len && is_own(m, seg[1].addr - seg[0].len)
               ? m
               : NULL;
}

ssize_t tcp_tx_append(struct tcp_conn *c, const struct mem_seg *segs, unsigned nsegs, bool more)
{
    uint32_t start = c->tx.end, len, want, got, left = room(c);
    struct rte_mbuf *m;
    bool copied;

    if (!c->tx.open || c->tx.fin)
        return -EPIPE;
    if (c->tx.una == c->tx.end)
        c->tx.progress_us = reactor_now_us();
    c->tx.more = more;
    for (unsigned i = 0; i < nsegs; i++) {
        const struct mem_seg *seg = &segs[i];

        len = seg->len;
        m = i + 1 < nsegs ? joins(seg, left) : NULL;
        copied = false;
        if (m) { /* both are one piece, or none is taken */
            len += segs[++i].len;
            want = min(len, left);
            got = refer_with(c, seg->addr, seg->len, m, segs[i].addr, want - seg->len);
        } else {
            want = min(len, left);
            got = take_seg(c, seg, want, &copied);
        }
        left -= got;
        if (got < len) {
            c->tx.blocked = true;
            /* Its own part is used up: its own acknowledgements make room. */
            c->tx.copy_blocked = got < want && copied && copy_share(c) == 0;
            c->tx.piece_blocked = got < want && c->tx.pieces >= piece_most(c);
            if (got < want && !c->tx.copy_blocked && !c->tx.piece_blocked)
                wait_for_room(c);
            break;
        }
    }
    tcp_work(c);
    return (ssize_t)(uint32_t)(c->tx.end - start);
}

struct tcp_tx_data *tcp_queue_at(struct tcp_tx_data *d, uint32_t seq)
{
    while (d && seq_leq(d->seq + d->len, seq))
        d = d->next;
    return d;
}

/* Makes m refer to n bytes of a piece, from off on. False: too many frames refer to its buffer. */
static bool refer_to(struct rte_mbuf *m, const struct tcp_tx_data *d, uint32_t off, uint16_t n)
{
    uint8_t *addr = d->addr + off;

    if (!d->landing) {
        rte_pktmbuf_attach(m, d->m);
        /* Flags of the received frame do not apply to this one. */
        m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
        m->data_off = (uint16_t)(addr - (uint8_t *)m->buf_addr);
        return true;
    }
    if (rte_mbuf_ext_refcnt_read(d->info) >= MEM_HOLD_MOST)
        return false;
    rte_mbuf_ext_refcnt_update(d->info, 1);
    rte_pktmbuf_attach_extbuf(m, addr, mem_hold_iova((uint16_t)d->region, addr), n, d->info);
    return true;
}

struct rte_mbuf *tcp_queue_chain(struct tcp_conn *c, struct tcp_tx_data *d, uint32_t seq,
                                 uint32_t len)
{
    struct rte_mbuf *head = NULL, *tail = NULL, *m;
    uint32_t off, n;

    d = tcp_queue_at(d, seq);
    for (unsigned i = 0; i < TX_PIECES && len > 0 && d; i++, d = d->next) {
        off = seq - d->seq;
        n = min(len, d->len - off);
        m = inet_alloc(c->sh->inet, &c->path);
        if (!m || !refer_to(m, d, off, (uint16_t)n)) {
            rte_pktmbuf_free(m);
            rte_pktmbuf_free(head);
            return NULL;
        }
        m->data_len = (uint16_t)n;
        m->pkt_len = n;
        m->next = NULL;
        m->nb_segs = 1;
        if (!head) {
            head = m;
        } else {
            tail->next = m;
            head->pkt_len += n;
            head->nb_segs++;
        }
        tail = m;
        seq += n;
        len -= n;
    }
    return head;
}

/* ---- segments that are pieces ---- */

uint32_t tcp_queue_cut(const struct tcp_tx_data *d, uint32_t seq, uint32_t len, uint32_t mss)
{
    uint32_t rest = d->seq + d->len - seq;
    const struct tcp_tx_data *next = d->next;

    if (rest >= len)
        return len;
    if (d->own && seq == d->seq && rest >= mss / 2)
        return rest;
    /* A short one, and then others can be whole again: the next is worth its headers. */
    return next && next->own && next->len <= mss && next->len >= mss - mss / 4 ? rest : len;
}

/* Returns the bytes of the pieces that one frame may have, from seq on. A piece of landing memory
 * that the driver splits ends the frame: what follows its short last part would be one buffer more
 * than is counted here. */
static uint32_t tso_bytes(const struct port *port, const struct tcp_tx_data *d, uint32_t seq,
                          uint32_t len, uint32_t mss)
{
    const struct tcp_tx_data *first = d; /* of the run that ends with d */
    uint32_t from = seq, end = seq;
    unsigned n = 0;

    for (; d && end - seq < len &&
           n + min((uint32_t)d->len, len) / PORT_DESC_BYTES + 1 < port->tso_segs;
         d = d->next) {
        if (n >= port->tso_run) {
            first = first->next;
            from = first->seq;
        }
        if (++n >= port->tso_run && d->seq + d->len - from < mss)
            break;
        end = d->seq + d->len;
        if (d->len > PORT_DESC_BYTES)
            break;
    }
    return end - seq;
}

uint32_t tcp_queue_tso(const struct tcp_conn *c, struct tcp_tx_data *d, uint32_t seq, uint32_t len,
                       uint32_t mss)
{
    const struct port *port = inet_if_port(c->path.ifp);
    uint32_t most;

    if (port->tso_run == 0)
        return len;
    most = tso_bytes(port, tcp_queue_at(d, seq), seq, len, mss);
    return most >= len ? len : max(most / mss, 1u) * mss;
}

/* A message waits long enough to leave all caches. So the next piece is prefetched while this one
 * becomes a frame: its descriptor, the place of the headers, and the payload that the CPU does
 * not prefetch itself. */
static void prefetch_after(const struct tcp_tx_data *d)
{
    const struct tcp_tx_data *next = d->next;
    const uint8_t *p, *end;

    if (!next)
        return;
    rte_prefetch0(next->next);
    rte_prefetch0(next->m);
    if (!next->landing) {
        rte_prefetch0((const uint8_t *)next->m + RTE_CACHE_LINE_SIZE);
        rte_prefetch0((const uint8_t *)next->m + 2 * RTE_CACHE_LINE_SIZE);
    }
    p = next->addr - (next->own ? RTE_CACHE_LINE_SIZE : 0);
    end = next->addr + min((uint32_t)next->len, TX_PREFETCH);
    for (; p < end; p += RTE_CACHE_LINE_SIZE)
        rte_prefetch0(p);
}

struct rte_mbuf *tcp_queue_first(struct tcp_conn *c, struct tcp_tx_data *d, uint32_t seq,
                                 uint32_t len)
{
    struct rte_mbuf *m = d->m;

    prefetch_after(d);
    if (!d->own || d->seq != seq || d->len != len)
        return tcp_queue_chain(c, d, seq, len);
    /* Once: who sends these bytes again cannot know what the device still does with these headers.
     */
    d->own = 0;
    rte_mbuf_refcnt_update(m, 1);
    m->ol_flags = 0;
    m->tx_offload = 0;
    m->data_off = offset_in(m, d->addr);
    m->data_len = (uint16_t)len;
    m->pkt_len = len;
    m->next = NULL;
    m->nb_segs = 1;
    count_add(&c->sh->stats.in_place, 1);
    return m;
}

void tcp_queue_acked(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_data *d;
    uint64_t unacked = seq_lt(tx->una, tx->end) ? tx->end - tx->una : 0;

    while ((d = tx->head) && seq_leq(d->seq + d->len, tx->una)) {
        tx->head = d->next;
        if (tx->unsent == d)
            tx->unsent = d->next;
        data_free(c, d);
    }
    if (!tx->head) {
        tx->tail = NULL;
        fill_end(c);
    }
    if (tx->copied == 0 && !tx->fill) {
        unhold(c);
    } else if (tx->holds && seq_leq(tx->held_end, tx->una)) {
        unhold(c);
        hold(c);
    }
    if (unacked != tx->unacked) {
        tx->unacked = unacked;
        c->tell_acked = true;
        tcp_work(c);
    }
    if (tx->small && small_free(c))
        wait_no_more(c);
    tcp_queue_wake(c);
}

void tcp_queue_free(struct tcp_conn *c)
{
    struct tcp_tx_data *d;

    tcp_queue_detach(c);
    while ((d = c->tx.head)) {
        c->tx.head = d->next;
        data_free(c, d);
    }
    c->tx.tail = c->tx.unsent = NULL;
    fill_end(c);
    if (c->tx.small)
        rte_pktmbuf_free_seg(c->tx.small);
    c->tx.small = NULL;
}
