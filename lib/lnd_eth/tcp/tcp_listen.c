/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners and half-open connections. Each reactor has a table of all listeners: a caller's SYN
 * comes in where its addresses are at home and is passed to the listener's reactor, and there the
 * handshake is made. Tables are changed by mail from the control thread alone, so that additions
 * and removals come in order.
 */
#include "lib/lnd_eth/ip/inet_wire.h"
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <errno.h>
#include <stdlib.h>

#define ISS_ABOVE  (1u << 16) /* beyond the last number of the connection before */
#define KEPT_FREE  256u       /* objects: below that each caller costs one that can be spared */
#define SCARCE     128u /* … and each accepted one: less, so that the former give way first */
#define KEPT_DIALS 16u  /* of these, for our own calls */

/* ---- numbers ---- */

/* RFC 6528: a clock of 4 us, and a secret function of the addresses. */
uint32_t tcp_isn(struct tcp *tcp, const struct tcp_key *key)
{
    struct {
        struct inet_addr local, remote;
        uint16_t lport, rport;
    } in = {key->local, key->remote, key->lport, key->rport};

    return (uint32_t)(reactor_now_us() / 4) + (uint32_t)sip_hash(&tcp->secret, &in, sizeof(in));
}

/* The same for the same addresses, also after a restart: a peer's TIME-WAIT, or its old connection,
 * then sees a later timestamp (RFC 6191, docs/protocol/socklnd.md §7.2). */
uint32_t tcp_ts_offset(struct tcp *tcp, const struct tcp_key *key)
{
    struct {
        struct inet_addr local, remote;
        uint16_t lport, rport;
    } in = {key->remote, key->local, key->rport, key->lport};

    return (uint32_t)sip_hash(&tcp->ts_secret, &in, sizeof(in));
}

void tcp_syn_options(struct tcp_conn *c, const struct tcp_seg *seg)
{
    const struct tcp_opts *opts = &c->sh->tcp->opts;
    bool called = c->state != TCP_SYN_SENT;
    uint8_t ecn = seg->flags & (TCP_FLAG_ECE | TCP_FLAG_CWR);

    c->peer_mss = seg->has_mss ? seg->mss : 0;
    c->ts_on = seg->has_ts && !opts->no_timestamps;
    c->sack_on = seg->sack_ok && !opts->no_sack;
    c->ws_on = seg->has_wscale;
    c->snd_wscale = c->ws_on ? seg->wscale : 0;
    c->rcv_wscale = c->ws_on ? (uint8_t)opts->wscale_max : 0;
    if (called || !(seg->flags & TCP_FLAG_ACK)) /* RFC 3168 §6.1.1 */
        c->ecn_on = ecn == (TCP_FLAG_ECE | TCP_FLAG_CWR);
    else
        c->ecn_on = c->ecn_on && c->tries == 1 && ecn == TCP_FLAG_ECE;
    if (c->ts_on) {
        c->ts_recent = seg->ts_val;
        c->ts_recent_us = reactor_now_us();
    }
}

/* ---- listening (control) ---- */

static bool same_place(const struct tcp_listener *a, const struct tcp_listener *b)
{
    if (a->port != b->port || a->v4 != b->v4)
        return false;
    if (a->ifp && b->ifp && a->ifp != b->ifp)
        return false;
    return a->any || b->any || inet_same(&a->addr, &b->addr);
}

static void on_add(struct reactor_task *task)
{
    struct tcp_listen_at *at = container_of(task, struct tcp_listen_at, add);
    struct tcp_shard *sh = tcp_shard_self(at->l->tcp);

    LIST_INSERT_HEAD(&sh->listeners, at, link);
}

static void on_forgotten(struct reactor_task *task)
{
    struct tcp_listen_at *at = container_of(task, struct tcp_listen_at, del);
    struct tcp_listener *l = at->l;

    if (--l->known == 0)
        free(l);
}

static void on_del(struct reactor_task *task)
{
    struct tcp_listen_at *at = container_of(task, struct tcp_listen_at, del);

    LIST_REMOVE(at, link);
    task->fn = on_forgotten;
    reactor_post(reactor_control(at->l->tcp->env), task);
}

static void on_unlisten(struct reactor_task *task)
{
    struct tcp_listener *l = container_of(task, struct tcp_listener, task);

    LIST_REMOVE(l, link);
    for (unsigned i = 0; i < l->tcp->nshards; i++) {
        l->at[i].del.fn = on_del;
        reactor_post(l->tcp->shard[i]->reactor, &l->at[i].del);
    }
}

/* Sets the local address and its interface; any: all addresses. */
static int set_place(struct tcp_listener *l, const union stream_addr *addr, const char *ifname)
{
    struct inet *inet = l->tcp->inet;

    tcp_addr_in(addr, &l->addr, &l->port);
    l->v4 = addr->sa.sa_family == AF_INET;
    l->any = inet_is_none(&l->addr);
    if (ifname && *ifname) {
        l->ifp = inet_if_find(inet, ifname);
        if (!l->ifp)
            return -ENODEV;
    }
    if (!l->any && !l->ifp && !inet_if_of(inet, &l->addr))
        return -EADDRNOTAVAIL;
    return l->port > 0 ? 0 : -EINVAL;
}

int tcp_listen(void *ctx, const union stream_addr *addr, const char *ifname, struct reactor *on,
               void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
               void *user, struct stream_listener **out)
{
    struct tcp *tcp = ctx;
    struct tcp_listener *l = calloc(1, sizeof(*l) + tcp->nshards * sizeof(l->at[0])), *o;
    int rc;

    if (!l)
        return -ENOMEM;
    l->base.ops = &stream_tcp;
    l->tcp = tcp;
    l->on = tcp->shard[reactor_index(on)];
    l->accepted = accepted;
    l->user = user;
    rc = set_place(l, addr, ifname);
    LIST_FOREACH(o, &tcp->listeners, link)
        if (rc == 0 && same_place(l, o))
            rc = -EADDRINUSE;
    if (rc < 0) {
        free(l);
        return rc;
    }
    LIST_INSERT_HEAD(&tcp->listeners, l, link);
    l->known = tcp->nshards;
    for (unsigned i = 0; i < tcp->nshards; i++) {
        l->at[i].l = l;
        l->at[i].add.fn = on_add;
        reactor_post(tcp->shard[i]->reactor, &l->at[i].add);
    }
    *out = &l->base;
    return 0;
}

/* ---- the listener's reactor ---- */

/* A half-open connection has no user: it is freed at once. */
static void drop_half(struct tcp_conn *c)
{
    tcp_conn_end(c, STREAM_END_TIMEOUT);
    tcp_conn_release(c);
}

void tcp_unlisten(struct stream_listener *listener)
{
    struct tcp_listener *l = container_of(listener, struct tcp_listener, base);
    struct tcp_shard *sh = l->on;
    struct tcp_conn *c, *next;

    l->dead = true;
    for (c = TAILQ_FIRST(&sh->half); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->listener == l)
            drop_half(c);
    }
    TAILQ_FOREACH(c, &sh->conns, link) {
        if (c->listener != l)
            continue;
        c->listener = NULL;
        tcp_conn_close(c, true);
    }
    l->task.fn = on_unlisten;
    reactor_post(reactor_control(l->tcp->env), &l->task);
}

struct tcp_listener *tcp_listener_find(struct tcp_shard *sh, const struct tcp_key *key,
                                       const struct inet_if *ifp)
{
    struct tcp_listener *any = NULL;
    const struct tcp_listen_at *at;

    LIST_FOREACH(at, &sh->listeners, link) {
        struct tcp_listener *l = at->l;

        if (l->port != key->lport || (l->ifp && l->ifp != ifp))
            continue;
        if (!l->any && inet_same(&l->addr, &key->local))
            return l;
        if (l->any && l->v4 == inet_is4(&key->local))
            any = l;
    }
    return any;
}

static bool places_few(const struct tcp_shard *sh)
{
    return sh->nfree < min(KEPT_FREE, sh->tcp->opts.max_conns / 8);
}

/* Makes room for a caller when the pool is nearly empty. An orphan is reset, which is free at the
 * end of this burst. If that is not enough the oldest half-open connection is dropped: a caller
 * that answers is done long before it is the oldest. The last objects are for calls of our own. */
static struct tcp_conn *half_open_new(struct tcp_shard *sh, const struct tcp_key *key,
                                      const struct inet_path *path)
{
    unsigned max = sh->tcp->opts.max_conns;
    bool full = sh->half_open >= sh->tcp->opts.syn_max;

    if (places_few(sh))
        tcp_orphan_reset(sh);
    if (full || (sh->nfree <= min(KEPT_DIALS, max / 16) && sh->half_open > 0)) {
        inet_count_drop(sh->inet, full ? PKT_DROP_TCP_SYN_FULL : PKT_DROP_TCP_ACCEPT_FULL);
        drop_half(TAILQ_FIRST(&sh->half));
    }
    return sh->nfree > min(KEPT_DIALS, max / 16) ? tcp_conn_new(sh, key, path) : NULL;
}

/* A half-open connection for a SYN, with an ISS and nothing sent. NULL: m was dropped. */
static struct tcp_conn *half_open(struct tcp_shard *sh, struct tcp_listener *l,
                                  const struct tcp_key *key, const struct tcp_seg *syn,
                                  struct rte_mbuf *m)
{
    struct inet_path path;
    struct tcp_conn *c;

    if (l->dead || sh->stopped ||
        inet_path_get(sh->inet, pkt_of(m)->ifp, &key->local, &key->remote, &path) < 0) {
        tcp_drop(sh, m, PKT_DROP_TCP_NO_CONN);
        return NULL;
    }
    c = half_open_new(sh, key, &path);
    if (!c) {
        tcp_drop(sh, m, PKT_DROP_TCP_ACCEPT_FULL);
        return NULL;
    }
    inet_path_called(sh->inet, &path, m);
    c->listener = l;
    c->state = TCP_SYN_RCVD;
    c->user_gone = true;
    tcp_conn_enter(c, sh);
    tcp_flow_insert(sh, &c->flow);
    tcp_syn_options(c, syn);
    c->irs = syn->seq;
    tcp_rx_open(c, c->irs);
    tcp_out_mss(c);
    return c;
}

/* Returns whether the user has no place for this caller. A SYN without an answer comes again after
 * a second. After a RST it would come at once. */
static bool is_refused(const struct tcp_listener *l, const struct tcp_key *key)
{
    bool (*refuses)(void *, const union stream_addr *) = relaxed_load(&l->base.refuses);
    union stream_addr peer;

    if (!refuses || l->dead)
        return false;
    tcp_addr_out(&key->remote, key->rport, &peer);
    return refuses(l->user, &peer);
}

void tcp_listen_syn(struct tcp_shard *sh, struct tcp_listener *l, const struct tcp_key *key,
                    const struct tcp_seg *seg, struct rte_mbuf *m, const uint32_t *iss_after)
{
    struct tcp_conn *c;

    if (is_refused(l, key)) {
        tcp_drop(sh, m, PKT_DROP_TCP_CALLER_LIMIT);
        return;
    }
    c = half_open(sh, l, key, seg, m);
    if (!c)
        return;
    if (iss_after && seq_leq(c->iss, *iss_after))
        c->iss = *iss_after + ISS_ABOVE;
    else if (!iss_after && (places_few(sh) || sh->half_open > sh->tcp->opts.syn_max / 2))
        (void)tcp_cookie_make(c);
    tcp_conn_syn_ack(c);
    rte_pktmbuf_free(m); /* payload in a SYN is not taken; it comes again */
}

struct tcp_conn *tcp_listen_again(struct tcp_shard *sh, struct tcp_listener *l,
                                  const struct tcp_key *key, const struct tcp_seg *syn,
                                  const struct tcp_seg *seg, struct rte_mbuf *m)
{
    struct tcp_conn *c = half_open(sh, l, key, syn, m);

    if (!c)
        return NULL;
    c->iss = c->tx.una = seg->ack - 1;
    c->tx.nxt = c->snd_max = seg->ack;
    c->tries = 2;                 /* the round-trip time is not known */
    (void)tcp_rx_window(c, true); /* as the SYN-ACK told it */
    return c;
}

bool tcp_listen_scarce(const struct stream *s)
{
    const struct tcp_shard *sh = container_of(s, const struct tcp_conn, base)->owner;

    return sh->nfree < min(SCARCE, sh->tcp->opts.max_conns / 16);
}

void tcp_listen_tell(struct tcp_conn *c)
{
    struct tcp_listener *l = c->listener;
    union stream_addr peer;

    c->listener = NULL;
    tcp_addr_out(&c->flow.key.remote, c->rport, &peer);
    tcp_flow_leave(c);
    l->accepted(l->user, &c->base, &peer);
}
