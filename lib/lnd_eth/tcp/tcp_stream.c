/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of stream.h. */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <errno.h>

#define PORT_FIRST 49152u /* RFC 6335 §6 */
#define PORT_TRIES 1024
#define RX_BUFFER  16384 /* LNET_GRANT_BUFFER_MAX; no port has larger ones */
#define ECN_MASK   3

/* ---- making ---- */

/* Sets the offers of a SYN; the answer decides. */
static void offer(struct tcp_conn *c)
{
    const struct tcp_opts *opts = &c->sh->tcp->opts;

    c->ts_on = !opts->no_timestamps;
    c->sack_on = !opts->no_sack;
    c->ws_on = true;
    c->rcv_wscale = (uint8_t)opts->wscale_max;
    c->ecn_on = opts->ecn;
    c->rx.granted = STREAM_FIRST_WINDOW;
}

/* Returns true when these addresses are free here; may end their TIME-WAIT. */
static bool is_free(struct tcp_shard *sh, const struct tcp_key *key)
{
    struct tcp_flow *f = tcp_flow_find(sh, key, tcp_key_hash(sh->tcp, key));

    if (f && f->kind == TCP_FLOW_TW)
        return tcp_tw_reuse(sh, container_of(f, struct tcp_tw, flow));
    return !f;
}

/* RFC 6056 §3.3.3: they follow each other from a secret start, which differs by destination. */
static bool choose_port(struct tcp_shard *sh, struct tcp_key *key)
{
    uint32_t offset;

    key->lport = 0;
    offset = tcp_key_hash(sh->tcp, key);
    for (unsigned i = 0; i < PORT_TRIES; i++) {
        key->lport = (uint16_t)(PORT_FIRST + (offset + sh->next_port++) % (65536 - PORT_FIRST));
        if (is_free(sh, key))
            return true;
    }
    return false;
}

static int dial(struct tcp_shard *sh, struct tcp_key *key, const struct inet_path *path, int tos,
                const struct stream_events *ev, void *user, struct stream **out)
{
    struct tcp_conn *c;

    if (key->lport == 0 ? !choose_port(sh, key) : !is_free(sh, key))
        return -EADDRINUSE;
    c = tcp_conn_new(sh, key, path);
    if (!c)
        return -ENOMEM;
    c->state = TCP_SYN_SENT;
    c->ev = ev;
    c->user = user;
    c->attached = true;
    c->tos = tos >= 0 ? (uint8_t)(tos & ~ECN_MASK) : 0;
    tcp_conn_enter(c, sh);
    offer(c);
    tcp_out_mss(c);
    tcp_flow_insert(sh, &c->flow);
    count_add(&sh->stats.conns_out, 1);
    *out = &c->base;
    if (!tcp_flow_dial(c))
        tcp_conn_end(c, STREAM_END_ERROR);
    return 0;
}

static int stream_connect(void *ctx, const union stream_addr *local, const char *ifname,
                          const union stream_addr *remote, int tos, const struct stream_events *ev,
                          void *user, struct stream **out)
{
    struct tcp *tcp = ctx;
    struct tcp_shard *sh = tcp_shard_self(tcp);
    struct inet_addr from, to;
    uint16_t lport, rport;
    struct inet_if *ifp = NULL;
    struct inet_path path;
    struct tcp_key key;
    int rc;

    if (sh->stopped)
        return -ENETDOWN;
    if (local->sa.sa_family != remote->sa.sa_family)
        return -EAFNOSUPPORT;
    tcp_addr_in(local, &from, &lport);
    tcp_addr_in(remote, &to, &rport);
    if (rport == 0)
        return -EINVAL;
    if (ifname && *ifname)
        ifp = inet_if_find(tcp->inet, ifname);
    rc = inet_path_get(sh->inet, ifp, &from, &to, &path);
    if (rc < 0)
        return rc;
    tcp_key_make(&key, &from, &to, lport, rport, path.ifp);
    return dial(sh, &key, &path, tos, ev, user, out);
}

static int stream_attach(struct stream *s, const struct stream_events *ev, void *user)
{
    struct tcp_conn *c = tcp_conn_of(s);

    c->ev = ev;
    c->user = user;
    c->attached = true;
    tcp_flow_arrive(c, tcp_shard_self(c->owner->tcp));
    tcp_work(c);
    return 0;
}

static void stream_detach(struct stream *s)
{
    struct tcp_conn *c = tcp_conn_of(s);

    c->attached = false;
    c->rx.greeted = true;
    tcp_flow_leave(c);
}

static void stream_established(struct stream *s, int tos)
{
    struct tcp_conn *c = tcp_conn_of(s);

    if (tos >= 0)
        c->tos = (uint8_t)(tos & ~ECN_MASK);
    tcp_keep_start(c);
}

static void stream_close(struct stream *s, bool abort)
{
    struct tcp_conn *c = tcp_conn_of(s);

    tcp_flow_arrive(c, tcp_shard_self(c->owner->tcp));
    tcp_conn_close(c, abort);
}

static void stream_pause(struct stream *s, bool pause)
{
    struct tcp_conn *c = tcp_conn_of(s);

    if (c->rx.paused == pause)
        return;
    c->rx.paused = pause;
    c->tell_readable |= !pause && c->rx.queued > 0;
    if (!pause || c->ended)
        tcp_work(c);
}

/* ---- writing ---- */

static ssize_t stream_send(struct stream *s, const struct mem_seg *segs, unsigned nsegs, bool more)
{
    struct tcp_conn *c = tcp_conn_of(s);
    ssize_t n;

    tcp_flow_arrive(c, tcp_shard_self(c->owner->tcp)); /* what is sent is kept by this reactor */
    if (c->ended)
        return -EPIPE;
    if (c->state != TCP_ESTABLISHED && c->state != TCP_CLOSE_WAIT)
        return -ENOTCONN;
    n = tcp_tx_append(c, segs, nsegs, more);
    if (n > 0)
        c->count.bytes_out += (uint64_t)n;
    tcp_work(c);
    return n;
}

static void stream_get_stats(struct stream *s, struct stream_stats *out)
{
    struct tcp_conn *c = tcp_conn_of(s);

    out->bytes_in = c->count.bytes_in;
    out->bytes_out = c->count.bytes_out;
    out->unacked = c->tx.unacked;
}

const struct stream_ops stream_tcp = {
    .name = "tcp",
    .caps = STREAM_CAP_TAKE | STREAM_CAP_BY_REFERENCE,
    .stream_bytes = sizeof(struct tcp_conn),
    .rx_buffer = RX_BUFFER,
    .listen = tcp_listen,
    .unlisten = tcp_unlisten,
    .connect = stream_connect,
    .scarce = tcp_listen_scarce,
    .attach = stream_attach,
    .detach = stream_detach,
    .established = stream_established,
    .peek = tcp_rx_peek,
    .skip = tcp_rx_skip,
    .take = tcp_rx_take,
    .give_back = tcp_rx_give_back,
    .rx_window = tcp_rx_grant,
    .rx_pause = stream_pause,
    .send = stream_send,
    .stats = stream_get_stats,
    .close = stream_close,
};
