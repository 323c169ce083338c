/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths whose MTU is smaller than assumed. Either ICMP reports the smaller MTU, or the path drops
 * large packets silently (a black hole, RFC 2923 §2.1, RFC 8899).
 *
 * A lost large segment alone proves nothing: the link, the path or the peer may be down. So after
 * BLACK_HOLE_RTOS time-outs of a large segment TCP resends its first bytes in a segment of a size
 * that nearly every path forwards. The path is a black hole if that segment is acknowledged and the
 * next large one is lost again. Time-outs while the link is down do not count.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define BLACK_HOLE_RTOS 3    /* in a row, of a large segment */
#define MTU_BASE4       1064 /* IP bytes: 1024 for TCP's options and payload */
#define MTU_BASE6       1280 /* RFC 8200 §5: every path forwards that */
#define HEADERS4        40
#define HEADERS6        60
#define LARGE_WITHIN_US UINT64_C(10000000)

/* Sends the event. Control thread. */
static void told(struct reactor_task *task)
{
    struct tcp_copies *st = container_of(task, struct tcp_copies, mtu_task);
    struct inet_event event = {
        .kind = INET_EV_MTU_BLACK_HOLE,
        .cause = "large_segments_lost",
        .port = inet_if_port(st->mtu_ifp)->name,
        .ifname = inet_if_name(st->mtu_ifp),
        .addr = st->mtu_remote,
        .value = st->mtu_size,
    };

    __atomic_store_n(&st->mtu_posted, false, __ATOMIC_RELEASE);
    inet_event(st->sh->tcp->inet, &event);
}

/* Counts a black hole and posts the event; black holes found while one is posted send none. */
static void tell(struct tcp_conn *c, uint32_t mtu)
{
    struct tcp_copies *st = c->sh->copies;

    count_add(&c->sh->stats.mtu_black_holes, 1);
    if (__atomic_load_n(&st->mtu_posted, __ATOMIC_ACQUIRE))
        return;
    st->mtu_posted = true;
    st->mtu_ifp = c->path.ifp;
    st->mtu_remote = c->path.remote;
    st->mtu_size = mtu;
    st->mtu_task.fn = told;
    reactor_post(reactor_control(c->sh->tcp->env), &st->mtu_task);
}

static uint32_t base_mtu(const struct tcp_conn *c)
{
    return inet_is4(&c->path.remote) ? MTU_BASE4 : MTU_BASE6;
}

/* Returns the payload of a segment of the base MTU without SACK blocks. */
static uint32_t base_mss(const struct tcp_conn *c)
{
    return base_mtu(c) - (inet_is4(&c->path.remote) ? HEADERS4 : HEADERS6) -
           tcp_out_options_least(c);
}

static void lower(struct tcp_conn *c)
{
    c->mss = base_mss(c);
    c->path.mtu = base_mtu(c);
    inet_path_mtu_set(c->sh->inet, &c->path.remote, c->path.mtu);
    tell(c, c->path.mtu);
    tcp_tx_remss(c, false);
}

/* Handles a time-out of s, the oldest record. */
void tcp_mtu_rto(struct tcp_conn *c, const struct tcp_tx_seg *s)
{
    struct tcp_tx *tx = &c->tx;
    bool large = min(s->len - s->fin, s->size) > base_mss(c) && c->mss > base_mss(c);

    if (!large || !inet_if_link(c->path.ifp)) {
        tx->mtu_state = TCP_MTU_OK; /* the small segment was lost, too: no black hole */
        tx->mtu_rtos = 0;
    } else if (tx->mtu_state == TCP_MTU_SMALL_ACKED) {
        tx->mtu_state = TCP_MTU_OK;
        /* Soon after the small segment's ACK. Without timestamps the back-off stays, which makes
         * this time-out alone longer than 10 s on a slow path. */
        if (reactor_now_us() - tx->mtu_us <= max(LARGE_WITHIN_US, 2 * (uint64_t)tcp_rto_now(c)))
            lower(c);
    } else if (++tx->mtu_rtos >= BLACK_HOLE_RTOS) {
        tx->mtu_state = TCP_MTU_SMALL_SENT;
        tx->mtu_rtos = 0;
    }
}

/* Evaluates what an ACK covers: largest is the size of its largest segment. */
void tcp_mtu_ack(struct tcp_conn *c, const struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;

    if (sum->largest > base_mss(c)) {
        tx->mtu_state = TCP_MTU_OK;
    } else if (sum->acked > 0 && tx->mtu_state == TCP_MTU_SMALL_SENT) {
        tx->mtu_state = TCP_MTU_SMALL_ACKED;
        tx->mtu_us = sum->now_us;
    }
    if (sum->acked > 0)
        tx->mtu_rtos = 0;
}

/* Returns how many bytes of s one retransmission may have, at most most. */
uint32_t tcp_mtu_most(const struct tcp_conn *c, const struct tcp_tx_seg *s, uint32_t most)
{
    if (c->tx.mtu_state != TCP_MTU_SMALL_SENT || s != c->tx.first)
        return most;
    return min(most, base_mss(c) - (c->mss - tcp_tx_mss(c)));
}

/* Marks data in flight in segments that are now too large as lost, though not by congestion (RFC
 * 1191 §6.5). After an RTO it is lost for certain. Records are cut when they are sent again. */
void tcp_tx_remss(struct tcp_conn *c, bool by_icmp)
{
    struct tcp_tx_seg *next;
    uint32_t mss = tcp_tx_mss(c);

    if (!c->tx.open || !by_icmp)
        return;
    for (struct tcp_tx_seg *s = TAILQ_FIRST(&c->tx.sent); s; s = next) {
        next = TAILQ_NEXT(s, link);
        if (s->size > mss && s->len - s->fin > mss)
            tcp_segs_lose(c, s);
    }
    tcp_recover_moved(c);
    tcp_work(c);
}
