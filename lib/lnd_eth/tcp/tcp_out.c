/* SPDX-License-Identifier: BSD-3-Clause */
/* Every segment that leaves is made here. */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <rte_random.h>

#define ECN_ECT0     2
#define MSS_LEAST    48   /* less is not believed: headers alone would go to and fro */
#define MSS_DEFAULT6 1220 /* RFC 9293 §3.7.1 */
#define TSO_HEADERS  (TCP_HDR_MAX + 40)
#define TSO_MSS      300 /* some devices and kernels do not cut into less */

uint32_t tcp_ts(const struct tcp *tcp, uint32_t offset)
{
    return (uint32_t)((tcp->ts_base_us + reactor_now_us()) / 1000) + offset;
}

uint32_t tcp_ts_now(const struct tcp_conn *c)
{
    return tcp_ts(c->sh->tcp, c->ts_offset);
}

static unsigned ip_header(const struct tcp_conn *c)
{
    return inet_is4(&c->path.remote) ? 20 : 40;
}

void tcp_out_mss(struct tcp_conn *c)
{
    uint32_t path = c->path.mtu - ip_header(c) - TCP_HDR_SIZE;
    uint32_t peer = c->peer_mss > 0             ? c->peer_mss
                    : inet_is4(&c->path.remote) ? TCP_DEFAULT_MSS
                                                : MSS_DEFAULT6;

    c->mss = path < peer ? path : peer;
    c->mss = c->mss > MSS_LEAST + tcp_out_options_least(c) ? c->mss - tcp_out_options_least(c)
                                                           : MSS_LEAST;
}

bool tcp_out_path(struct tcp_conn *c)
{
    struct inet_path path;

    if (inet_path_valid(c->sh->inet, &c->path))
        return true;
    if (inet_path_get(c->sh->inet, c->path.ifp, &c->path.local, &c->path.remote, &path) < 0)
        return false;
    c->path = path;
    return true;
}

uint32_t tcp_out_tso_max(const struct tcp_conn *c)
{
    const struct port *port = inet_if_port(c->path.ifp);

    if (!(port->caps & PORT_TX_TSO) || c->mss < TSO_MSS || port->tso_max <= TSO_HEADERS + c->mss)
        return 0;
    return port->tso_max - TSO_HEADERS;
}

static unsigned sack_blocks_most(const struct tcp_conn *c)
{
    if (!c->sack_on)
        return 0;
    return c->ts_on ? TCP_SACK_MAX - 1 : TCP_SACK_MAX;
}

unsigned tcp_out_options(const struct tcp_conn *c)
{
    unsigned n = 0, most = sack_blocks_most(c);

    if (most > 0) {
        n = c->rx.nrecent + c->rx.dsack;
        n = n < most ? n : most;
    }
    return tcp_out_options_least(c) + (n > 0 ? 4 + 8 * n : 0);
}

static void fill_syn(struct tcp_conn *c, struct tcp_seg *seg)
{
    seg->has_mss = true;
    seg->mss = (uint16_t)(inet_if_mtu(c->path.ifp) - ip_header(c) - TCP_HDR_SIZE);
    seg->sack_ok = c->sack_on;
    seg->has_wscale = c->ws_on;
    seg->wscale = c->rcv_wscale;
}

static void fill(struct tcp_conn *c, uint32_t seq, uint8_t flags, struct tcp_seg *seg)
{
    bool syn = flags & TCP_FLAG_SYN;

    *seg = (struct tcp_seg){
        .sport = c->lport, .dport = c->rport, .seq = seq, .flags = flags, .has_ts = c->ts_on};
    if (flags & TCP_FLAG_ACK)
        seg->ack = c->rx.nxt;
    if (c->ecn_echo && !syn)
        seg->flags |= TCP_FLAG_ECE;
    if (c->ts_on) {
        seg->ts_val = tcp_ts_now(c);
        seg->ts_ecr = flags & TCP_FLAG_ACK ? c->ts_recent : 0;
    }
    seg->win = flags & TCP_FLAG_RST ? 0 : tcp_rx_window(c, syn);
    if (syn)
        fill_syn(c, seg);
    else if ((flags & (TCP_FLAG_ACK | TCP_FLAG_RST)) == TCP_FLAG_ACK)
        seg->nsack = (uint8_t)tcp_rx_sacks(c, seg->sack, sack_blocks_most(c));
}

/* Where headers go: in front of payload in its own buffer when there is room kept for them (it is a
 * direct mbuf), or in a buffer before it. NULL: there is none. */
static struct rte_mbuf *header_buffer(struct tcp_conn *c, struct rte_mbuf *payload)
{
    if (!tcp_out_path(c))
        return NULL;
    return payload && RTE_MBUF_DIRECT(payload) ? payload : inet_alloc(c->sh->inet, &c->path);
}

static void put_header(struct rte_mbuf *m, const struct tcp_seg *seg, struct rte_mbuf *payload)
{
    uint8_t hdr[TCP_HDR_MAX];
    unsigned n = tcp_seg_encode(seg, hdr);

    if (m == payload) {
        memcpy(rte_pktmbuf_prepend(m, (uint16_t)n), hdr, n);
    } else {
        memcpy(rte_pktmbuf_mtod(m, void *), hdr, n);
        m->data_len = (uint16_t)n;
        m->pkt_len = n + (payload ? payload->pkt_len : 0);
        m->next = payload;
        m->nb_segs = 1 + (payload ? payload->nb_segs : 0);
    }
    m->l4_len = n;
}

bool tcp_out(struct tcp_conn *c, uint32_t seq, uint8_t flags, struct rte_mbuf *payload, bool tso)
{
    struct tcp_shard *sh = c->sh;
    uint32_t len = payload ? payload->pkt_len : 0, end;
    struct rte_mbuf *m = header_buffer(c, payload);
    struct tcp_seg seg;
    uint8_t tos = c->tos;

    if (!m) {
        rte_pktmbuf_free(payload);
        return false;
    }
    if (!(flags & (TCP_FLAG_SYN | TCP_FLAG_RST)))
        flags |= TCP_FLAG_ACK;
    fill(c, seq, flags, &seg);
    put_header(m, &seg, payload);
    /* Of each of the segments that the port makes: all have the same header. */
    m->tso_segsz = tso ? c->mss + tcp_out_options_least(c) - (m->l4_len - TCP_HDR_SIZE) : 0;
    /* RFC 3168 §6.1.5: neither what is sent again nor pure ACKs are marked as capable. */
    if (c->ecn_on && len > 0 && !seq_lt(seq, c->snd_max))
        tos |= ECN_ECT0;
    end = seq + len + !!(flags & TCP_FLAG_SYN) + !!(flags & TCP_FLAG_FIN);
    c->snd_max = seq_max(c->snd_max, end);
    if (flags & TCP_FLAG_ACK) {
        c->last_ack_sent = c->rx.nxt;
        c->ack_now = false;
        c->rx.update = false;
        reactor_timer_cancel(&c->ack_timer);
    }
    c->count.segs_out++;
    count_add(&sh->stats.segs_out, 1);
    count_add(&sh->stats.bytes_out, len);
    if (flags & TCP_FLAG_RST)
        count_add(&sh->stats.resets_out, 1);
    c->path.own = c->state != TCP_SYN_RCVD; /* a SYN may be forged */
    inet_send(sh->inet, &c->path, m, IPPROTO_TCP, tos);
    return true;
}

void tcp_out_ack(struct tcp_conn *c)
{
    (void)tcp_out(c, c->tx.nxt, TCP_FLAG_ACK, NULL, false);
}

/* ---- without a connection ---- */

void tcp_out_bare(struct tcp_shard *sh, const struct tcp_key *key, struct inet_if *ifp,
                  const struct tcp_seg *seg, uint8_t tos)
{
    struct inet_path path;
    struct rte_mbuf *m;

    if (inet_path_get(sh->inet, ifp, &key->local, &key->remote, &path) < 0)
        return;
    m = inet_alloc(sh->inet, &path);
    if (!m)
        return;
    m->l4_len = tcp_seg_encode(seg, rte_pktmbuf_mtod(m, uint8_t *));
    m->data_len = m->l4_len;
    m->pkt_len = m->l4_len;
    count_add(&sh->stats.segs_out, 1);
    if (seg->flags & TCP_FLAG_RST)
        count_add(&sh->stats.resets_out, 1);
    inet_send(sh->inet, &path, m, IPPROTO_TCP, tos);
}

void tcp_end_old(struct tcp *tcp, const struct tcp_pair *pair)
{
    struct inet_if *ifp = inet_if_of(tcp->inet, &pair->local);
    struct tcp_seg ack = {.sport = pair->lport,
                          .dport = pair->rport,
                          .seq = (uint32_t)rte_rand(),
                          .ack = (uint32_t)rte_rand(),
                          .flags = TCP_FLAG_ACK};
    struct tcp_key key;

    if (!ifp)
        return;
    tcp_key_make(&key, &pair->local, &pair->remote, pair->lport, pair->rport, ifp);
    tcp_out_bare(tcp_shard_self(tcp), &key, ifp, &ack, 0);
}

/* RFC 9293 §3.10.7.1. */
void tcp_out_reset(struct tcp_shard *sh, struct rte_mbuf *m, const struct tcp_seg *seg,
                   const struct tcp_key *key)
{
    struct tcp_seg rst = {.sport = seg->dport, .dport = seg->sport, .flags = TCP_FLAG_RST};

    if (seg->flags & TCP_FLAG_ACK) {
        rst.seq = seg->ack;
    } else {
        rst.flags |= TCP_FLAG_ACK;
        rst.ack =
            seg->seq + seg->len + !!(seg->flags & TCP_FLAG_SYN) + !!(seg->flags & TCP_FLAG_FIN);
    }
    if (!(seg->flags & TCP_FLAG_RST))
        tcp_out_bare(sh, key, pkt_of(m)->ifp, &rst, 0);
    tcp_drop(sh, m, PKT_DROP_TCP_NO_CONN);
}
