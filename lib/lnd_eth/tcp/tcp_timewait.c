/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TIME-WAIT, kept small: what is needed to acknowledge a late FIN, and to know whether a SYN is a
 * new one (RFC 6191: a later timestamp, or a number above). The table is bounded; the oldest goes.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <string.h>

static void stay(struct tcp_shard *sh, struct tcp_tw *tw)
{
    tw->until_us = reactor_now_us() + TCP_TIME_WAIT_US;
    TAILQ_INSERT_TAIL(&sh->tws, tw, link);
}

void tcp_tw_free(struct tcp_shard *sh, struct tcp_tw *tw)
{
    TAILQ_REMOVE(&sh->tws, tw, link);
    tcp_flow_remove(sh, &tw->flow);
    count_add(&sh->stats.time_wait, (uint64_t)-1);
    tw->next = sh->free_tws;
    sh->free_tws = tw;
}

void tcp_tw_add(struct tcp_shard *sh, const struct tcp_conn *c)
{
    struct tcp_tw *tw;

    if (!sh->free_tws)
        tcp_tw_free(sh, TAILQ_FIRST(&sh->tws));
    tw = sh->free_tws;
    sh->free_tws = tw->next;
    memset(tw, 0, sizeof(*tw));
    tw->flow.kind = TCP_FLOW_TW;
    tw->flow.key = c->flow.key;
    tw->flow.hash = c->flow.hash;
    tw->ifp = c->path.ifp;
    tw->snd_nxt = c->snd_max;
    tw->rcv_nxt = c->rx.nxt;
    tw->ts_on = c->ts_on;
    tw->ts_recent = c->ts_recent;
    tw->ts_offset = c->ts_offset;
    tw->win = (uint16_t)(STREAM_FIRST_WINDOW >> c->rcv_wscale);
    tw->tos = c->tos;
    tcp_flow_insert(sh, &tw->flow);
    stay(sh, tw);
    count_add(&sh->stats.time_wait, 1);
    tcp_shard_timer(sh);
}

bool tcp_tw_reuse(struct tcp_shard *sh, struct tcp_tw *tw)
{
    /* Our timestamps go on, so the peer can tell; without them nothing can be. */
    if (!tw->ts_on || sh->tcp->opts.no_timestamps)
        return false;
    tcp_tw_free(sh, tw);
    return true;
}

static void acknowledge(struct tcp_shard *sh, const struct tcp_tw *tw)
{
    struct tcp_seg seg = {.sport = tw->flow.key.lport,
                          .dport = tw->flow.key.rport,
                          .seq = tw->snd_nxt,
                          .ack = tw->rcv_nxt,
                          .flags = TCP_FLAG_ACK,
                          .win = tw->win,
                          .has_ts = tw->ts_on};

    if (tw->ts_on) {
        seg.ts_val = tcp_ts(sh->tcp, tw->ts_offset);
        seg.ts_ecr = tw->ts_recent;
    }
    tcp_out_bare(sh, &tw->flow.key, tw->ifp, &seg, tw->tos);
}

/* RFC 6191 §2, and RFC 9293 §3.10.7.4 where there are no timestamps. */
static bool syn_is_new(const struct tcp_tw *tw, const struct tcp_seg *seg)
{
    if (tw->ts_on && seg->has_ts && seg->ts_val != tw->ts_recent)
        return seq_lt(tw->ts_recent, seg->ts_val);
    return seq_lt(tw->rcv_nxt, seg->seq);
}

void tcp_tw_input(struct tcp_shard *sh, struct tcp_tw *tw, const struct tcp_seg *seg,
                  const struct tcp_key *key, struct rte_mbuf *m)
{
    bool late = seg->seq != tw->rcv_nxt || seg->len > 0 || seg->flags & TCP_FLAG_FIN;

    if (seg->flags & TCP_FLAG_RST) { /* RFC 5961 §3.2: at the exact place, or not at all */
        if (seg->seq == tw->rcv_nxt)
            tcp_tw_free(sh, tw);
        tcp_drop(sh, m, PKT_DROP_TCP_TIME_WAIT);
        return;
    }
    if ((seg->flags & (TCP_FLAG_SYN | TCP_FLAG_ACK | TCP_FLAG_FIN)) == TCP_FLAG_SYN &&
        syn_is_new(tw, seg)) {
        uint32_t after = tw->snd_nxt;

        tcp_tw_free(sh, tw); /* a new connection comes in its place */
        tcp_no_connection(sh, key, seg, m, &after);
        return;
    }
    if (seg->flags & (TCP_FLAG_ACK | TCP_FLAG_SYN) && late) {
        /* a FIN that was sent again: 2 MSL begin anew */
        bool again = (seg->flags & (TCP_FLAG_FIN | TCP_FLAG_SYN)) == TCP_FLAG_FIN;

        if (again) {
            TAILQ_REMOVE(&sh->tws, tw, link);
            stay(sh, tw);
        }
        if (again || tcp_challenge_allowed(sh, &tw->challenges))
            acknowledge(sh, tw);
    }
    tcp_drop(sh, m, PKT_DROP_TCP_TIME_WAIT);
}
