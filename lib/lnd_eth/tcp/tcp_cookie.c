/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SYN cookies (RFC 4987 §3.6). Forged SYNs can push out a half-open connection before its caller's
 * ACK is there. While half-open connections are many, our ISN is therefore a cookie: a secret
 * function of the addresses, of the caller's number and of the time, with the options of its SYN.
 * An ACK of such a number stands for a connection that was pushed out, which is made again.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#define SLOT_BITS 24 /* of the clock in us: a cookie is good for 17 s at least, and for … */
#define SLOTS     2  /* … twice as long at most */
#define NO_WSCALE 15

/* As many combinations of options are told apart with and without timestamps; the other bits are
 * secret. The timestamp that comes back has a secret, too. */
#define OPTIONS    (1u << 8)
#define OPTIONS_NO 4u

/* A cookie holds the largest of these segment sizes that is not above the caller's. */
static const uint16_t sizes[] = {536, 1220, 1440, 8900};

static uint32_t secret(const struct tcp *tcp, const struct tcp_key *key, bool ts, uint32_t irs,
                       uint64_t slot)
{
    struct {
        struct inet_addr local, remote;
        uint16_t lport, rport;
        uint32_t irs;
        uint64_t slot_ts;
    } in = {key->local, key->remote, key->lport, key->rport, irs, slot << 1 | ts};

    return (uint32_t)sip_hash(&tcp->cookie_secret, &in, sizeof(in));
}

bool tcp_cookie_make(struct tcp_conn *c)
{
    unsigned size = RTE_DIM(sizes) - 1, mss = c->peer_mss ? c->peer_mss : TCP_DEFAULT_MSS;
    uint32_t options;

    if (mss < sizes[0] || (!c->ts_on && (c->ws_on || c->sack_on || c->ecn_on)))
        return false;
    while (sizes[size] > mss)
        size--;
    options = size;
    if (c->ts_on)
        options |= (c->ws_on ? c->snd_wscale : NO_WSCALE) << 2 | (uint32_t)c->sack_on << 6 |
                   (uint32_t)c->ecn_on << 7;
    c->iss =
        options ^ secret(c->sh->tcp, &c->flow.key, c->ts_on, c->irs, reactor_now_us() >> SLOT_BITS);
    c->sh->cookie_us = reactor_now_us();
    return true;
}

/* Whether the timestamp that comes back is one of the time in which a cookie is good. */
static bool ts_good(struct tcp *tcp, const struct tcp_key *key, uint32_t ts_ecr)
{
    return tcp_ts(tcp, tcp_ts_offset(tcp, key)) - ts_ecr <= ((uint64_t)SLOTS << SLOT_BITS) / 1000;
}

bool tcp_cookie_read(struct tcp_shard *sh, const struct tcp_key *key, const struct tcp_seg *seg,
                     struct tcp_seg *syn)
{
    uint32_t most = seg->has_ts ? OPTIONS : OPTIONS_NO, options = most;
    uint64_t now = reactor_now_us();

    if ((seg->flags & (TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_FIN | TCP_FLAG_ACK)) !=
            TCP_FLAG_ACK ||
        sh->cookie_us == 0 || now - sh->cookie_us >= (uint64_t)SLOTS << SLOT_BITS)
        return false;
    for (unsigned i = 0; i < SLOTS && options >= most; i++)
        options = (seg->ack - 1) ^
                  secret(sh->tcp, key, seg->has_ts, seg->seq - 1, (now >> SLOT_BITS) - i);
    if (options >= most || (seg->has_ts && !ts_good(sh->tcp, key, seg->ts_ecr)))
        return false;
    *syn = (struct tcp_seg){.seq = seg->seq - 1,
                            .flags = TCP_FLAG_SYN,
                            .has_mss = true,
                            .mss = sizes[options & 3],
                            .wscale = seg->has_ts ? options >> 2 & 15 : NO_WSCALE,
                            .sack_ok = options >> 6 & 1,
                            .has_ts = seg->has_ts,
                            .ts_val = seg->ts_val};
    syn->has_wscale = syn->wscale != NO_WSCALE;
    if (options >> 7)
        syn->flags |= TCP_FLAG_ECE | TCP_FLAG_CWR;
    return true;
}
