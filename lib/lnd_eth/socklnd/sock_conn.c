/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of one connection: its events, its end, and the check for stalls four times per timeout.
 */
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <assert.h>

/* ---- events of the stream ---- */

static void on_connected(void *user)
{
    sock_dial_connected(user);
}

static void on_readable(void *user)
{
    struct sock_conn *c = user;

    prefetch_write(c, 5 * CPU_BLOCK);
    if (c->state == SOCK_CONN_UP)
        sock_rx_readable(c);
    else
        sock_dial_readable(c);
}

static void on_writable(void *user)
{
    struct sock_conn *c = user;

    c->tx_blocked = false;
    sock_tx_run(c);
}

static void on_acked(void *user)
{
    sock_tx_acked(user);
}

/* docs/protocol/socklnd.md §6.1: the peer's FIN between messages is a clean end of the whole set.
 */
static void ended(struct sock_conn *c, enum stream_end end)
{
    struct lnd_close why = {
        LND_CLOSE_LOST,
        .begun = LNET_HEALTH_LOCAL_ERROR,
    };

    if (!c->base.listed)
        return;
    if (end != STREAM_END_EOF) {
        why.event = SOCK_DROP(RESET);
        why.begun =
            end == STREAM_END_TIMEOUT ? LNET_HEALTH_REMOTE_TIMEOUT : LNET_HEALTH_LOCAL_ERROR;
    } else if (c->rx_begun) {
        why.event = SOCK_DROP(EOF_IN_MESSAGE);
    }
    sock_peer_close(c->sp, &why, c->rx_state > SOCK_RX_HDR ? &c->rx.hdr : NULL);
}

static void on_closed(void *user, enum stream_end end)
{
    struct sock_conn *c = user;

    if (c->state == SOCK_CONN_UP)
        ended(c, end);
    else
        sock_dial_closed(c, end);
}

const struct stream_events sock_conn_events = {
    .connected = on_connected,
    .readable = on_readable,
    .writable = on_writable,
    .acked = on_acked,
    .closed = on_closed,
};

/* ---- life ---- */

struct sock_conn *sock_conn_new(struct sock_peer *sp, enum sock_ctype type)
{
    struct lnd_shard *shard = sp->base.ns->shard;
    struct sock_conn *c = lnd_pool_get_zeroed(&shard->conns);
    uint64_t now = reactor_now_us();

    if (!c)
        return NULL;
    c->shard = container_of(shard, struct sock_shard, base);
    c->sp = sp;
    c->type = type;
    STAILQ_INIT(&c->txq);
    STAILQ_INIT(&c->unacked);
    c->rx_us = now;
    c->tx_us = now;
    sp->base.objects++;
    return c;
}

void sock_conn_hold(struct sock_conn *c)
{
    c->busy++;
}

void sock_conn_release(struct sock_conn *c)
{
    struct sock_peer *sp = c->sp;

    if (--c->busy > 0 || c->state != SOCK_CONN_DEAD || !sock_rx_let_go(c))
        return;
    lnd_peer_hold(&sp->base);
    c->state = SOCK_CONN_FREE;
    lnd_pool_put(&c->shard->base.conns, c);
    sp->base.objects--;
    lnd_peer_release(&sp->base);
}

static void close_stream(struct sock_conn *c, bool abort)
{
    struct stream_stats st;

    if (!c->stream)
        return;
    c->stream->ops->stats(c->stream, &st);
    c->sp->base.bytes_in += st.bytes_in;
    c->sp->base.bytes_out += st.bytes_out;
    c->stream->ops->close(c->stream, abort);
    c->stream = NULL;
}

void sock_conn_close(struct lnd_conn *conn, const struct lnd_close *why)
{
    struct sock_conn *c = sock_conn_of(conn);

    if (c->state == SOCK_CONN_DEAD)
        return;
    assert(!c->base.listed);
    sock_conn_hold(c);
    c->state = SOCK_CONN_DEAD;
    sock_unready(c);
    /* The stream may know of acknowledgements that it has not reported yet: another connection of
     * the set reported its end first. */
    if (!STAILQ_EMPTY(&c->unacked))
        sock_tx_acked(c);
    close_stream(c, why->abort);
    sock_tx_abandon(c, why);
    sock_rx_abandon(c, why);
    sock_conn_release(c);
}

void sock_conn_fail(struct sock_conn *c, enum lnet_drop reason, const struct lnet_hdr *hdr)
{
    struct lnd_close why = {
        .event = reason,
        LND_CLOSE_LOST,
        .begun = LNET_HEALTH_LOCAL_ERROR,
        .abort = reason == SOCK_DROP(TX_STALL) || reason == SOCK_DROP(RX_STALL),
    };

    if (c->base.listed) /* else the connection is being closed already */
        sock_peer_close(c->sp, &why, hdr);
}

/* ---- stalls, §3.5 ---- */

static bool rx_stalled(const struct sock_conn *c, uint64_t now)
{
    if (c->grant.shard && !lnet_grant_is_open(&c->grant) && !c->rx_begun)
        return now - c->rx_us >= lnd_timeout_us(c->sp->sni->base.ni);
    /* A message that waits for the core is not stalled by the peer. */
    return c->rx_begun && !c->parked && c->rx_state != SOCK_RX_PARSE &&
           now - c->rx_us >= lnd_timeout_us(c->sp->sni->base.ni);
}

bool sock_conn_check(struct sock_conn *c, uint64_t now)
{
    struct stream_stats st;
    uint64_t acked;

    c->stream->ops->stats(c->stream, &st);
    acked = st.bytes_out - st.unacked;
    if (acked != c->seen_acked) {
        /* The time of the acknowledgement is not known. It came after the last byte was sent. */
        uint64_t when = st.unacked > 0 ? now : c->sent_us;

        c->seen_acked = acked;
        c->tx_us = now;
        if (c->sp->alive_us < when)
            c->sp->alive_us = when;
    }
    if (sock_tx_idle(c) && st.unacked == 0)
        c->tx_us = now;
    if (now - c->tx_us >= lnd_timeout_us(c->sp->sni->base.ni)) {
        sock_conn_fail(c, SOCK_DROP(TX_STALL),
                       STAILQ_FIRST(&c->txq) ? &STAILQ_FIRST(&c->txq)->hdr : NULL);
        return false;
    }
    if (c->rx_begun && !c->parked && !c->quiet)
        c->stream->ops->rx_pause(
            c->stream, false); /* a transport that waits for more bytes reports what it has */
    if (rx_stalled(c, now)) {
        sock_conn_fail(c, SOCK_DROP(RX_STALL), c->rx_state > SOCK_RX_HDR ? &c->rx.hdr : NULL);
        return false;
    }
    return true;
}
