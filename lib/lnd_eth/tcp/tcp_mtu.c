/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths that are narrower than was thought: one that ICMP tells of, and one that swallows large
 * packets without a word (a black hole, RFC 2923 §2.1, RFC 8899): when a full-sized segment is lost
 * over and over, a size is used that nearly every path takes.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define BLACK_HOLE_RTOS 3    /* in a row, of full-sized segments */
#define MTU_BASE4       1064 /* IP bytes: 1024 for TCP's options and payload */
#define MTU_BASE6       1280 /* RFC 8200 §5: all paths take that */
#define HEADERS4        40
#define HEADERS6        60

/* Control thread. */
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

/* One event for those that come close together. */
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

static void lower(struct tcp_conn *c)
{
    bool is4 = inet_is4(&c->path.remote);
    uint32_t mtu = is4 ? MTU_BASE4 : MTU_BASE6;
    uint32_t mss = mtu - (is4 ? HEADERS4 : HEADERS6) - (c->ts_on ? TX_TS_BYTES : 0);

    if (c->mss <= mss)
        return;
    c->mss = mss;
    c->path.mtu = mtu;
    inet_path_mtu_set(c->sh->inet, &c->path.remote, mtu);
    tell(c, mtu);
    tcp_tx_remss(c, false);
}

/* s was lost by an RTO. */
void tcp_mtu_rto(struct tcp_conn *c, const struct tcp_tx_seg *s)
{
    if (s->len - s->fin < s->size || s->size < tcp_tx_mss(c)) {
        c->tx.mtu_rtos = 0;
        return;
    }
    if (++c->tx.mtu_rtos >= BLACK_HOLE_RTOS) {
        c->tx.mtu_rtos = 0;
        lower(c);
    }
}

/* Something was acknowledged: what is now the first may be as large as it is. */
void tcp_mtu_progress(struct tcp_conn *c)
{
    c->tx.mtu_rtos = 0;
}

/* What is in flight with segments that are too large now is lost, though not by congestion
 * (RFC 1191 §6.5). After an RTO it is known to be lost. Records are cut as they are sent. */
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
