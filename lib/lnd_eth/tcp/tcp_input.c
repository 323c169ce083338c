/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments that arrive: RFC 9293 §3.10.7 in its order, with RFC 7323 (timestamps), RFC 5961 (blind
 * attacks) and RFC 3168 (ECN). Nothing is answered here but what is answered at once by its nature
 * (RST, challenge ACK, SYN-ACK): the rest goes out at the end of the burst.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <netinet/in.h>

#define PAWS_IDLE_US (24 * UINT64_C(86400000000)) /* RFC 7323 §5.5 */
#define CONFIRM_US   UINT64_C(1000000)
#define CHALLENGES   10 /* of a connection, in … */
#define CHALLENGE_US UINT64_C(5000000)
#define SILENT_US    UINT64_C(500000) /* a SYN of a peer that was silent for so long is answered */
#define ECN_CE       3
#define ARRIVALS     16u /* segments that are looked at together */

/* ---- answers ---- */

/* Each connection has a limit of its own. A limit for all connections could be used up by a single
 * host. Then a node that was started anew would not be answered (RFC 5961 §4). */
bool tcp_challenge_allowed(struct tcp_shard *sh, struct tcp_budget *b)
{
    uint64_t now = reactor_now_us();

    if (b->since_us == 0 || now - b->since_us >= CHALLENGE_US)
        *b = (struct tcp_budget){now, CHALLENGES};
    if (b->left == 0) {
        count_add(&sh->stats.challenges_limited, 1);
        return false;
    }
    b->left--;
    return true;
}

/* Sends a challenge ACK, which `allowed` says it may. */
static enum pkt_drop challenge_if(struct tcp_conn *c, bool allowed, enum pkt_drop why)
{
    if (allowed) {
        c->count.challenges++;
        count_add(&c->sh->stats.challenges, 1);
        tcp_out_ack(c);
    }
    return why;
}

/* RFC 5961 §7. */
static enum pkt_drop challenge(struct tcp_conn *c, enum pkt_drop why)
{
    return challenge_if(c, tcp_challenge_allowed(c->sh, &c->challenges), why);
}

/* RFC 5961 §4. A peer that was started anew is silent but for its SYNs. It is answered even if
 * forged SYNs have used up the budget. That is one ACK for each SYN, as a closed port sends a RST,
 * and what answers an ACK is never a SYN. */
static enum pkt_drop challenge_syn(struct tcp_conn *c, const struct tcp_seg *seg)
{
    bool silent = reactor_now_us() - c->heard_us >= SILENT_US && !(seg->flags & TCP_FLAG_ACK);

    return challenge_if(c, silent || tcp_challenge_allowed(c->sh, &c->challenges),
                        PKT_DROP_TCP_SYN_BAD);
}

/* A keepalive probe is answered, but not any number of them: two ends that disagree on what was
 * sent take each other's ACKs for probes. Not out of the budget above, which forged segments can
 * use up: who lives must be able to say so. */
static bool answer_allowed(struct tcp_conn *c)
{
    return tcp_challenge_allowed(c->sh, &c->answers);
}

static void acknowledge(struct tcp_conn *c)
{
    c->ack_now = true;
    tcp_work(c);
}

/* ---- from the packet to the connection ---- */

struct arrival {
    struct rte_mbuf *m;
    struct tcp_conn *c; /* that it was for a moment ago, or NULL */
    struct tcp_seg seg;
    struct tcp_key key;
    uint32_t hash;
};

/* The payload's sum is kept: it may leave again as it came. */
static uint16_t sum_of(struct rte_mbuf *m, struct pkt *p, uint32_t hdr_len, uint32_t sum)
{
    uint16_t header = csum_chain(m, p->l4, hdr_len, sum);

    p->sum_at = (uint16_t)(m->data_off + p->l4 + hdr_len);
    p->sum_len = p->l4_len - hdr_len;
    p->sum = csum_partial((const uint8_t *)m->buf_addr + p->sum_at, p->sum_len, 0);
    return csum_join(header, p->sum, false);
}

/* RFC 9293 §3.1: over the pseudo header and the segment. */
static bool checksum_ok(struct rte_mbuf *m, struct pkt *p, uint32_t hdr_len)
{
    const uint8_t *ip = rte_pktmbuf_mtod_offset(m, const uint8_t *, p->l3);
    const rte_be32_t tail[] = {rte_cpu_to_be_32(p->l4_len), rte_cpu_to_be_32(IPPROTO_TCP)};
    uint32_t sum = p->family == 4 ? csum_partial(ip + 12, 8, 0) : csum_partial(ip + 8, 32, 0);

    sum = csum_partial(tail, sizeof(tail), sum);
    if (likely(m->nb_segs == 1))
        return sum_of(m, p, hdr_len, sum) == 0xffff;
    return csum_chain(m, p->l4, p->l4_len, sum) == 0xffff;
}

static void addresses(const struct rte_mbuf *m, const struct pkt *p, struct inet_addr *local,
                      struct inet_addr *remote)
{
    const uint8_t *ip = rte_pktmbuf_mtod_offset(m, const uint8_t *, p->l3);

    if (p->family == 4) {
        inet_addr4(remote, ip + 12);
        inet_addr4(local, ip + 16);
    } else {
        memcpy(remote->b, ip + 8, 16);
        memcpy(local->b, ip + 24, 16);
    }
}

static void conn_input(struct tcp_conn *c, struct tcp_seg *seg, struct rte_mbuf *m);

void tcp_no_connection(struct tcp_shard *sh, const struct tcp_key *key, const struct tcp_seg *seg,
                       struct rte_mbuf *m, const uint32_t *iss_after)
{
    struct tcp_listener *l = tcp_listener_find(sh, key, pkt_of(m)->ifp);
    struct tcp_seg syn, ack;
    struct tcp_conn *c;

    if (l && l->on != sh) {
        tcp_pass_on(sh, m, l->on);
    } else if (l && tcp_cookie_read(sh, key, seg, &syn)) {
        c = tcp_listen_again(sh, l, key, &syn, seg, m);
        ack = *seg;
        if (c)
            conn_input(c, &ack, m);
    } else if (!l || seg->flags & (TCP_FLAG_RST | TCP_FLAG_ACK)) {
        tcp_out_reset(sh, m, seg, key);
    } else if (!(seg->flags & TCP_FLAG_SYN) || seg->flags & TCP_FLAG_FIN) {
        tcp_drop(sh, m, PKT_DROP_TCP_NO_CONN);
    } else {
        tcp_listen_syn(sh, l, key, seg, m, iss_after);
    }
}

static void dispatch(struct tcp_shard *sh, struct arrival *a)
{
    struct tcp_flow *f = tcp_flow_find(sh, &a->key, a->hash);

    if (!f) {
        tcp_no_connection(sh, &a->key, &a->seg, a->m, NULL);
        return;
    }
    switch (f->kind) {
    case TCP_FLOW_CONN:
        conn_input(container_of(f, struct tcp_conn, flow), &a->seg, a->m);
        break;
    case TCP_FLOW_TW:
        tcp_tw_input(sh, container_of(f, struct tcp_tw, flow), &a->seg, &a->key, a->m);
        break;
    default:
        if (!tcp_flow_stub(sh, container_of(f, struct tcp_stub, flow), &a->seg, a->m))
            tcp_no_connection(sh, &a->key, &a->seg, a->m, NULL);
        break;
    }
}

/* ---- a burst ---- */

/*
 * With many connections most of what a segment needs is in no cache. It is fetched for several at
 * a time, in steps: each begins what the next one needs, and none waits.
 */

/* Of which connection it is: its place in the table is fetched. */
static bool arrive(struct tcp_shard *sh, struct rte_mbuf *m, struct arrival *a)
{
    struct pkt *p = pkt_of(m);
    struct inet_addr local, remote;

    if (m->data_len < p->l4 || m->pkt_len != p->l4 + p->l4_len ||
        tcp_seg_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, p->l4),
                       min((uint32_t)(m->data_len - p->l4), p->l4_len), p->l4_len,
                       &a->seg) != PKT_DROP_NONE) {
        tcp_drop(sh, m, PKT_DROP_TCP_BAD);
        return false;
    }
    a->m = m;
    a->seg.ecn = p->ecn;
    addresses(m, p, &local, &remote);
    tcp_key_make(&a->key, &local, &remote, a->seg.dport, a->seg.sport, p->ifp);
    a->hash = tcp_key_hash(sh->tcp, &a->key);
    rte_prefetch0(&sh->flows[a->hash & sh->flows_mask]);
    return true;
}

static bool intact(struct tcp_shard *sh, struct arrival *a)
{
    struct pkt *p = pkt_of(a->m);

    rte_prefetch0(SLIST_FIRST(&sh->flows[a->hash & sh->flows_mask]));
    if (!p->l4_ok && !checksum_ok(a->m, p, a->seg.hdr_len)) {
        tcp_drop(sh, a->m, PKT_DROP_TCP_CSUM);
        return false;
    }
    p->l4_ok = true;
    return true;
}

/* Only to be fetched: when its turn comes it may be gone. */
static void look_ahead(struct tcp_shard *sh, struct arrival *a)
{
    struct tcp_flow *f = tcp_flow_find(sh, &a->key, a->hash);

    a->c = f && f->kind == TCP_FLOW_CONN ? container_of(f, struct tcp_conn, flow) : NULL;
    if (a->c)
        prefetch_read(a->c, offsetof(struct tcp_conn, rx.recent));
}

static void input_some(struct tcp_shard *sh, struct rte_mbuf *const *m, unsigned n)
{
    struct arrival a[ARRIVALS];
    unsigned k = 0, left = 0;

    for (unsigned i = 0; i < n; i++)
        k += arrive(sh, m[i], &a[k]);
    for (unsigned i = 0; i < k; i++)
        if (intact(sh, &a[i]))
            a[left++] = a[i];
    for (unsigned i = 0; i < left; i++)
        look_ahead(sh, &a[i]);
    for (unsigned i = 0; i < left; i++) {
        if (i + 2 < left && a[i + 2].c) { /* what an acknowledgement frees */
            rte_prefetch0(a[i + 2].c->tx.head);
            rte_prefetch0(a[i + 2].c->tx.first);
        }
        dispatch(sh, &a[i]);
    }
}

void tcp_input(void *ctx, struct inet_shard *ish, struct rte_mbuf *const *m, unsigned n)
{
    struct tcp *tcp = ctx;
    struct tcp_shard *sh = tcp->shard[inet_shard_reactor(ish)];

    for (unsigned i = 0; i < n; i += ARRIVALS)
        input_some(sh, m + i, min(n - i, ARRIVALS));
}

/* ---- parts of the processing ---- */

/* Takes payload and FIN. */
static void take(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m)
{
    if (seg->len == 0 && !(seg->flags & TCP_FLAG_FIN)) {
        rte_pktmbuf_free(m);
        return;
    }
    /* The payload begins where data does; nothing else of the packet is wanted any more. */
    (void)rte_pktmbuf_adj(m, (uint16_t)(pkt_of(m)->l4 + seg->hdr_len));
    tcp_rx_segment(c, seg, m);
    tcp_work(c);
    if (c->rx.fin_done)
        tcp_conn_fin(c);
}

/* RFC 7323 §4.3. */
static void update_ts(struct tcp_conn *c, const struct tcp_seg *seg)
{
    if (!c->ts_on || !seg->has_ts || seq_lt(seg->ts_val, c->ts_recent) ||
        seq_lt(c->last_ack_sent, seg->seq))
        return;
    c->ts_recent = seg->ts_val;
    c->ts_recent_us = reactor_now_us();
}

/* RFC 3168 §6.1.3: CE is echoed until the peer says that it was heard. */
static void note_ecn(struct tcp_conn *c, const struct tcp_seg *seg)
{
    if (!c->ecn_on)
        return;
    if (seg->flags & TCP_FLAG_CWR)
        c->ecn_echo = false;
    if (seg->ecn == ECN_CE) {
        c->ack_now |= !c->ecn_echo;
        c->ecn_echo = true;
    }
}

/* The neighbour is there: what we sent was answered. */
static void confirm(struct tcp_conn *c)
{
    uint64_t now = reactor_now_us();

    c->heard_us = now;
    if (now - c->confirmed_us < CONFIRM_US)
        return;
    c->confirmed_us = now;
    inet_path_confirm(c->sh->inet, &c->path);
}

/* ---- the short way ---- */

/* In order, nothing but data or an acknowledgement, nothing out of order kept. */
static bool predicted(const struct tcp_conn *c, const struct tcp_seg *seg)
{
    if (c->state != TCP_ESTABLISHED || (seg->flags & ~TCP_FLAG_PSH) != TCP_FLAG_ACK ||
        seg->seq != c->rx.nxt || seg->nsack > 0 || seg->ecn == ECN_CE)
        return false;
    if (c->ts_on != seg->has_ts || (c->ts_on && seq_lt(seg->ts_val, c->ts_recent)))
        return false;
    if (seq_lt(seg->ack, c->tx.una) || seq_lt(c->tx.nxt, seg->ack))
        return false;
    return seg->len == 0 ||
           (c->rx.nranges == 0 && !c->rx.fin_seen && !seq_lt(c->rx.edge, seg->seq + seg->len));
}

static void short_way(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m)
{
    count_add(&c->sh->stats.predicted, 1);
    update_ts(c, seg);
    confirm(c);
    tcp_tx_ack(c, seg, seg->len > 0);
    if (unlikely(c->ended))
        rte_pktmbuf_free(m);
    else
        take(c, seg, m);
}

/* ---- §3.10.7.3: SYN-SENT ---- */

static bool acks_syn(const struct tcp_conn *c, const struct tcp_seg *seg)
{
    return seg->flags & TCP_FLAG_ACK && seg->ack == c->iss + 1;
}

/* Handles the ACK of an older connection of these addresses; docs/protocol/socklnd.md §7.2. */
static enum pkt_drop wrong_ack(struct tcp_conn *c, const struct tcp_seg *seg)
{
    struct tcp_seg rst = {
        .sport = c->lport, .dport = c->rport, .seq = seg->ack, .flags = TCP_FLAG_RST};

    if (!(seg->flags & TCP_FLAG_RST)) {
        tcp_out_bare(c->sh, &c->flow.key, c->path.ifp, &rst, c->tos);
        if (c->state == TCP_SYN_SENT)
            tcp_conn_syn_soon(c);
    }
    return PKT_DROP_TCP_ACK_BAD;
}

/* This and the functions below return PKT_DROP_NONE when m was taken, or the reason to drop it. */
static enum pkt_drop syn_sent(struct tcp_conn *c, struct tcp_seg *seg, struct rte_mbuf *m)
{
    /* First: ACK. Our SYN carries no data, so there is one right number. */
    if (seg->flags & TCP_FLAG_ACK && !acks_syn(c, seg))
        return wrong_ack(c, seg);
    /* Second: RST, believed if it acknowledges our SYN. */
    if (seg->flags & TCP_FLAG_RST) {
        if (!(seg->flags & TCP_FLAG_ACK))
            return PKT_DROP_TCP_RST_BAD;
        tcp_conn_end(c, STREAM_END_REFUSED);
        return PKT_DROP_TCP_NO_CONN;
    }
    /* Fourth: SYN. */
    if (!(seg->flags & TCP_FLAG_SYN))
        return PKT_DROP_TCP_NO_ACK;
    tcp_syn_options(c, seg);
    c->irs = seg->seq;
    tcp_rx_open(c, c->irs);
    confirm(c);
    if (seg->flags & TCP_FLAG_ACK) {
        tcp_conn_up(c, seg);
        acknowledge(c);
        seg->seq++;
        seg->flags &= (uint8_t)~TCP_FLAG_SYN;
        take(c, seg, m);
        return PKT_DROP_NONE;
    }
    /* Both called at once, §3.5 figure 7. */
    c->state = TCP_SYN_RCVD;
    c->tries = 0;
    tcp_out_mss(c);
    tcp_conn_syn_ack(c);
    rte_pktmbuf_free(m);
    return PKT_DROP_NONE;
}

/* ---- §3.10.7.4: the other states ---- */

/* First, the table of §3.10.7.4. A segment without length may lie at the edge: a peer that has used
 * the whole window, and lost a segment of it, sends its ACKs from there. */
static bool in_window(const struct tcp_conn *c, const struct tcp_seg *seg)
{
    uint32_t len = seg->len + !!(seg->flags & TCP_FLAG_SYN) + !!(seg->flags & TCP_FLAG_FIN);
    uint32_t nxt = c->rx.nxt, edge = seq_max(c->rx.edge, nxt);

    if (len == 0)
        return seq_leq(nxt, seg->seq) && seq_leq(seg->seq, edge);
    if (edge == nxt)
        return false;
    return (seq_leq(nxt, seg->seq) && seq_lt(seg->seq, edge)) ||
           (seq_leq(nxt, seg->seq + len - 1) && seq_lt(seg->seq + len - 1, edge));
}

/* RFC 7323 §5: older than what was seen, unless that is older than a timestamp lives. */
static bool paws_rejects(const struct tcp_conn *c, const struct tcp_seg *seg)
{
    if (!c->ts_on || !seg->has_ts || seg->flags & TCP_FLAG_RST)
        return false;
    return seq_lt(seg->ts_val, c->ts_recent) && reactor_now_us() - c->ts_recent_us < PAWS_IDLE_US;
}

/* With a closed window no payload is taken, but an ACK counts: RFC 9293 §3.10.7.4. */
static bool probes_closed_window(const struct tcp_conn *c, const struct tcp_seg *seg)
{
    return seq_leq(c->rx.edge, c->rx.nxt) && seg->seq == c->rx.nxt && seg->flags & TCP_FLAG_ACK &&
           !(seg->flags & (TCP_FLAG_SYN | TCP_FLAG_RST));
}

/* Acknowledges a segment outside the window, so that a peer that lost our ACK (or sends a
 * keepalive, RFC 9293 §3.8.4) goes on. Other such segments are answered within a limit: two peers
 * that disagree must not acknowledge each other for ever. */
static enum pkt_drop outside(struct tcp_conn *c, const struct tcp_seg *seg, enum pkt_drop why)
{
    bool keepalive = seg->seq == c->rx.nxt - 1 && seg->len <= 1 && !(seg->flags & TCP_FLAG_FIN);
    bool sends = seg->len > 0 || seg->flags & TCP_FLAG_FIN;

    if (!(seg->flags & TCP_FLAG_RST)) {
        /* Only what is left of the window has been here before: a D-SACK of anything else would
         * make the peer believe that it need not send it again. */
        if (seg->len > 0 && !keepalive && seq_lt(seg->seq, c->rx.nxt))
            tcp_rx_duplicate(c, seg->seq, seq_min(seg->seq + seg->len, c->rx.nxt));
        if (keepalive ? answer_allowed(c) : sends || tcp_challenge_allowed(c->sh, &c->challenges))
            acknowledge(c);
    }
    return why;
}

/* Second: RST. RFC 5961 §3.2. */
static enum pkt_drop on_rst(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m)
{
    if (seg->seq != c->rx.nxt)
        return challenge(c, PKT_DROP_TCP_RST_BAD);
    count_add(&c->sh->stats.resets_in, 1);
    tcp_conn_end(c, c->state == TCP_SYN_RCVD ? STREAM_END_REFUSED : STREAM_END_RESET);
    rte_pktmbuf_free(m);
    return PKT_DROP_NONE;
}

/* A SYN while ours is not acknowledged yet. True: done with it, and *why says what becomes of m. */
static bool syn_in_syn_rcvd(struct tcp_conn *c, struct tcp_seg *seg, struct rte_mbuf *m,
                            enum pkt_drop *why)
{
    struct tcp_shard *sh = c->sh;
    struct tcp_listener *l = c->listener;
    struct tcp_key key = c->flow.key;

    if (seg->flags & TCP_FLAG_RST || !(seg->flags & TCP_FLAG_SYN))
        return false;
    if (seg->seq == c->irs && acks_syn(c, seg)) { /* both have called: it completes both */
        seg->seq++;
        seg->flags &= (uint8_t)~TCP_FLAG_SYN;
        acknowledge(c);
        return false;
    }
    if (seg->seq == c->irs) { /* our answer was lost */
        if (c->tries > 0)
            c->tries--;
        tcp_conn_syn_ack(c);
        *why = PKT_DROP_TCP_DUPLICATE;
    } else if (!l || !in_window(c, seg)) {
        *why = challenge(c, PKT_DROP_TCP_SYN_BAD);
    } else { /* the caller has begun anew: back to LISTEN */
        tcp_conn_end(c, STREAM_END_RESET);
        tcp_no_connection(sh, &key, seg, m, NULL);
        *why = PKT_DROP_NONE;
    }
    return true;
}

/* Seventh and eighth: text and FIN. */
static enum pkt_drop text(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m)
{
    /* CLOSE-WAIT and on: what comes behind a FIN is ignored. */
    if (c->rx.fin_done && (seg->len > 0 || seg->flags & TCP_FLAG_FIN)) {
        acknowledge(c);
        return PKT_DROP_TCP_DUPLICATE;
    }
    if (c->user_gone && seg->len > 0 && seq_lt(c->rx.nxt, seg->seq + seg->len)) {
        /* RFC 9293 §3.10.4: the data will not be read, and the peer should know. */
        tcp_conn_abort(c, STREAM_END_RESET);
        return PKT_DROP_TCP_CLOSED;
    }
    take(c, seg, m);
    return PKT_DROP_NONE;
}

static enum pkt_drop others(struct tcp_conn *c, struct tcp_seg *seg, struct rte_mbuf *m)
{
    bool probe = probes_closed_window(c, seg);
    enum pkt_drop why;

    if (c->state == TCP_SYN_RCVD && syn_in_syn_rcvd(c, seg, m, &why))
        return why;
    /* RFC 7323 §3.2: once agreed, every segment has a timestamp. */
    if (c->ts_on && !seg->has_ts && !(seg->flags & (TCP_FLAG_RST | TCP_FLAG_SYN)))
        return PKT_DROP_TCP_PAWS;
    /* Fourth, for what has a SYN, wherever it lies: RFC 5961 §4.2. */
    if ((seg->flags & (TCP_FLAG_SYN | TCP_FLAG_RST)) == TCP_FLAG_SYN)
        return challenge_syn(c, seg);
    /* First. */
    if (paws_rejects(c, seg))
        return outside(c, seg, PKT_DROP_TCP_PAWS);
    if (!in_window(c, seg) && !probe) {
        bool old = seg->len > 0 && seq_leq(seg->seq + seg->len, c->rx.nxt);

        return outside(c, seg,
                       seg->flags & TCP_FLAG_RST ? PKT_DROP_TCP_RST_BAD
                       : old                     ? PKT_DROP_TCP_DUPLICATE
                                                 : PKT_DROP_TCP_OUTSIDE);
    }
    if (seg->flags & TCP_FLAG_RST)
        return on_rst(c, seg, m);
    /* Fifth. */
    if (!(seg->flags & TCP_FLAG_ACK))
        return PKT_DROP_TCP_NO_ACK;
    if (c->state == TCP_SYN_RCVD) {
        if (!acks_syn(c, seg))
            return wrong_ack(c, seg);
        update_ts(c, seg);
        confirm(c);
        tcp_conn_up(c, seg);
    } else if (seq_lt(seg->ack, c->tx.una - c->tx.wnd_max) || seq_lt(c->tx.nxt, seg->ack)) {
        return challenge(c, PKT_DROP_TCP_ACK_BAD); /* RFC 5961 §5.2 */
    }
    update_ts(c, seg);
    confirm(c);
    note_ecn(c, seg);
    tcp_tx_ack(c, seg, seg->len > 0 || seg->flags & TCP_FLAG_FIN);
    tcp_conn_settle(c);
    if (c->ended) {
        if (seg->len > 0)
            inet_count_drop(c->sh->inet, PKT_DROP_TCP_CLOSED);
        rte_pktmbuf_free(m);
        return PKT_DROP_NONE;
    }
    if (probe && seg->len > 0) { /* RFC 9293 §3.8.6.1 */
        acknowledge(c);
        return PKT_DROP_TCP_OUTSIDE;
    }
    return text(c, seg, m);
}

static void conn_input(struct tcp_conn *c, struct tcp_seg *seg, struct rte_mbuf *m)
{
    struct tcp_shard *sh = c->sh;
    enum pkt_drop why;

    c->count.segs_in++;
    count_add(&sh->stats.segs_in, 1);
    if (likely(predicted(c, seg))) {
        short_way(c, seg, m);
        return;
    }
    why = c->state == TCP_SYN_SENT ? syn_sent(c, seg, m) : others(c, seg, m);
    if (why != PKT_DROP_NONE)
        tcp_drop(sh, m, why);
}

/* ---- ICMP ---- */

static struct tcp_conn *conn_of_error(struct tcp_shard *sh, const struct inet_error *e)
{
    struct tcp_key key;
    struct tcp_flow *f;
    struct tcp_conn *c;

    tcp_key_make(&key, &e->local, &e->remote, e->lport, e->rport, NULL);
    f = tcp_flow_find(sh, &key, tcp_key_hash(sh->tcp, &key));
    if (!f || f->kind != TCP_FLOW_CONN)
        return NULL;
    c = container_of(f, struct tcp_conn, flow);
    /* RFC 5927 §4.1: it is about something that is on its way. */
    return seq_leq(c->tx.una, e->seq) && seq_lt(e->seq, c->snd_max) ? c : NULL;
}

static void path_shrinks(struct tcp_conn *c, unsigned mtu)
{
    unsigned least = inet_is4(&c->path.remote) ? PORT_MTU_MIN : 1280;
    uint32_t mss = c->mss;

    mtu = mtu < least ? least : mtu;
    if (mtu >= c->path.mtu)
        return;
    /* Only a router sends such an error, and there is none between us and a station of our own
     * link: a host that guesses a sequence number could forge it. A SYN fits into any MTU. */
    if (c->state < TCP_ESTABLISHED || inet_same(&c->path.next_hop, &c->path.remote))
        return;
    inet_path_mtu_set(c->sh->inet, &c->path.remote, mtu);
    (void)tcp_out_path(c);
    tcp_out_mss(c);
    if (c->mss < mss)
        tcp_tx_remss(c, true);
    tcp_work(c);
}

void tcp_icmp_error(void *ctx, struct inet_shard *ish, const struct inet_error *e)
{
    struct tcp *tcp = ctx;
    struct tcp_conn *c = conn_of_error(tcp->shard[inet_shard_reactor(ish)], e);

    if (!c)
        return;
    if (e->what == INET_ICMP_TOO_BIG)
        path_shrinks(c, e->mtu);
    else if (c->state != TCP_SYN_SENT) /* RFC 5927 §5.2: a connection that is up outlives it */
        return;
    else if (e->what == INET_ICMP_REFUSED)
        tcp_conn_end(c, STREAM_END_REFUSED);
    else if (e->what == INET_ICMP_UNREACHABLE)
        tcp_conn_end(c, STREAM_END_UNREACHABLE);
}
