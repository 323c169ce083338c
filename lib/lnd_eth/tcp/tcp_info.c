/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of connections and reactors. */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <stdio.h>

static const char *const state_names[] = {
    [TCP_CLOSED] = "closed",         [TCP_SYN_SENT] = "syn_sent",
    [TCP_SYN_RCVD] = "syn_received", [TCP_ESTABLISHED] = "established",
    [TCP_FIN_WAIT_1] = "fin_wait_1", [TCP_FIN_WAIT_2] = "fin_wait_2",
    [TCP_CLOSE_WAIT] = "close_wait", [TCP_CLOSING] = "closing",
    [TCP_LAST_ACK] = "last_ack",     [TCP_TIME_WAIT] = "time_wait",
};

static void fill(struct tcp_conn *c, struct tcp_info *out)
{
    uint64_t now = reactor_now_us();

    *out = (struct tcp_info){0};
    out->local = c->flow.key.local;
    out->remote = c->flow.key.remote;
    out->lport = c->lport;
    out->rport = c->rport;
    snprintf(out->ifname, sizeof(out->ifname), "%s", inet_if_name(c->path.ifp));
    out->reactor = c->sh->index;
    out->state = state_names[c->state];
    out->cc = c->sh->tcp->cc->name;
    out->cc_state = "open";
    out->mss = c->mss;
    out->rcv_wnd = seq_lt(c->rx.nxt, c->rx.edge) ? c->rx.edge - c->rx.nxt : 0;
    out->snd_wscale = c->snd_wscale;
    out->rcv_wscale = c->rcv_wscale;
    out->timestamps = c->ts_on;
    out->sack = c->sack_on;
    out->ecn = c->ecn_on;
    out->reass_bytes = c->rx.reass_bytes;
    out->queue_bytes = c->rx.queued;
    out->age_us = now - c->made_us;
    out->idle_us = now - c->heard_us;
    if (c->state >= TCP_ESTABLISHED)
        tcp_tx_info(c, out);
    out->counts = c->count; /* with what tcp_tx_info() has added */
}

/* Half-open ones after the others. */
unsigned tcp_info_rows(struct tcp *tcp, uint32_t *at, struct tcp_info *out, unsigned max)
{
    struct tcp_shard *sh = tcp_shard_self(tcp);
    struct tcp_conns *lists[] = {&sh->conns, &sh->half};
    uint32_t index = 0;
    unsigned n = 0;

    for (unsigned i = 0; i < RTE_DIM(lists); i++) {
        struct tcp_conn *c;

        TAILQ_FOREACH(c, lists[i], link) {
            if (n == max)
                return n;
            if (index++ < *at)
                continue;
            fill(c, &out[n++]);
            ++*at;
        }
    }
    return n;
}

unsigned tcp_pairs(struct tcp *tcp, uint32_t *at, struct tcp_pair *out, unsigned max)
{
    struct tcp_shard *sh = tcp_shard_self(tcp);
    struct tcp_conn *c;
    uint32_t index = 0;
    unsigned n = 0;

    TAILQ_FOREACH(c, &sh->conns, link) {
        if (n == max)
            return n;
        if (index++ < *at)
            continue;
        ++*at;
        if (c->state == TCP_ESTABLISHED)
            out[n++] = (struct tcp_pair){.local = c->flow.key.local,
                                         .remote = c->flow.key.remote,
                                         .lport = c->lport,
                                         .rport = c->rport};
    }
    return n;
}

void tcp_stats_get(const struct tcp *tcp, unsigned reactor, struct tcp_stats *out)
{
    counters_copy_all(out, &tcp->shard[reactor]->stats);
}
