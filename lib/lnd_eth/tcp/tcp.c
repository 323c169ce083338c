/* SPDX-License-Identifier: BSD-3-Clause */
/* Making, the end of a burst, and the end of all. */
#include "lib/base/err.h"
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CONNS      8192
#define SYN_MAX        1024
#define WSCALE         6 /* 4 MiB: more is never granted */
#define WSCALE_MOST    14
#define USER_TIMEOUT   50
#define COPY_BYTES     (4u << 20)
#define ACK_DELAY_US   40000
#define STOP_LINGER_US 2000000 /* what is being closed has so long, once all is to stop */
#define STOP_LOOK_US   5000
#define ACK_AGAIN_US   5000 /* there was no buffer for it */
#define FLUSH_MAX      4096 /* connections per call */
#define MUCH_FRAMES    256  /* of all connections that send much, per call … */
#define MUCH_BEHIND    64   /* … and while more has come than was received */

/* ---- addresses ---- */

void tcp_addr_in(const union stream_addr *addr, struct inet_addr *out, uint16_t *port)
{
    if (addr->sa.sa_family == AF_INET) {
        inet_addr4(out, &addr->in.sin_addr);
        *port = ntohs(addr->in.sin_port);
    } else {
        memcpy(out->b, &addr->in6.sin6_addr, 16);
        *port = ntohs(addr->in6.sin6_port);
    }
}

void tcp_addr_out(const struct inet_addr *addr, uint16_t port, union stream_addr *out)
{
    memset(out, 0, sizeof(*out));
    if (inet_is4(addr)) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = htons(port);
        memcpy(&out->in.sin_addr, addr->b + 12, 4);
    } else {
        out->in6.sin6_family = AF_INET6;
        out->in6.sin6_port = htons(port);
        memcpy(&out->in6.sin6_addr, addr->b, 16);
    }
}

/* ---- the end of a burst: telling the user ---- */

/* Returns true when all data before the end was read, or less is left than the user wants. A
 * broken connection is reported even while the user does not read. */
static bool end_is_due(const struct tcp_conn *c)
{
    bool eof = !c->ended || c->end == STREAM_END_EOF;

    if (c->told_closed || (!c->ended && !c->rx.fin_done))
        return false;
    if (c->rx.paused)
        return !eof;
    return c->rx.queued == 0 || c->rx.starved;
}

static bool take_flag(bool *flag)
{
    bool was = *flag;

    *flag = false;
    return was;
}

/* Any of these may close the connection or give it away: then it is not `current` any more. */
static void tell(struct tcp_shard *sh, struct tcp_conn *c)
{
    if (take_flag(&c->tell_connected) && !c->ended)
        c->ev->connected(c->user);
    if (sh->current == c && !c->rx.paused && take_flag(&c->tell_readable))
        c->ev->readable(c->user);
    if (sh->current == c && take_flag(&c->tell_acked) && !c->ended && c->ev->acked)
        c->ev->acked(c->user);
    if (sh->current == c && take_flag(&c->tell_writable) && !c->ended)
        c->ev->writable(c->user);
    if (sh->current == c && end_is_due(c)) {
        c->told_closed = true;
        c->ev->closed(c->user, c->ended ? c->end : STREAM_END_EOF);
    }
}

/* ---- the end of a burst: sending ---- */

/* The route, the neighbour or what is known of the path's MTU may have changed. */
static void look_at_path(struct tcp_conn *c)
{
    uint32_t mss = c->mss;

    if (likely(inet_path_valid(c->sh->inet, &c->path)) || !tcp_out_path(c))
        return;
    tcp_out_mss(c);
    if (c->mss < mss)
        tcp_tx_remss(c, false);
}

/* Every second segment (RFC 9293 §3.8.6.3), of which not each may be full: a sender that waits for
 * its window must not wait for our delay. */
static void acknowledge(struct tcp_conn *c)
{
    if (c->ack_now || (c->rx.update && tcp_rx_window_due(c)) ||
        c->rx.nxt - c->last_ack_sent > c->rx.mss) {
        tcp_out_ack(c);
        if (c->ack_now)
            reactor_timer_arm(&c->ack_timer, ACK_AGAIN_US);
    } else if (c->rx.nxt != c->last_ack_sent && !reactor_timer_armed(&c->ack_timer)) {
        reactor_timer_arm(&c->ack_timer, ACK_DELAY_US);
    }
    c->rx.update = false;
}

static void send_what_is_due(struct tcp_conn *c)
{
    if (c->state == TCP_CLOSED || c->state == TCP_SYN_SENT)
        return;
    if (c->state != TCP_SYN_RCVD) {
        look_at_path(c);
        (void)tcp_tx_run(c);
        tcp_conn_settle(c);
    }
    if (!c->ended)
        acknowledge(c);
}

static void run(struct tcp_shard *sh, struct tcp_conn *c)
{
    sh->current = c;
    if (c->listener && c->state != TCP_SYN_RCVD && !c->user_gone)
        tcp_listen_tell(c);
    else if (c->attached)
        tell(sh, c);
    if (sh->current != c)
        return;
    send_what_is_due(c);
    sh->current = NULL;
}

/* Lets the connections that waited for a port send until the port is busy again. */
static unsigned go_on(struct tcp_shard *sh)
{
    struct tcp_conn *c;
    unsigned n = 0;

    while (n < FLUSH_MAX && (c = tcp_tx_next_waiter(sh))) {
        sh->current = c;
        send_what_is_due(c);
        sh->current = NULL;
        n++;
    }
    return n;
}

/* Runs the connections of a list until each has run once, or they have sent `most` frames. */
static unsigned run_list(struct tcp_shard *sh, struct tcp_conns *list, unsigned most)
{
    const struct tcp_conn *last = TAILQ_LAST(list, tcp_conns);
    unsigned n = 0;

    sh->sent = 0;
    while (n < FLUSH_MAX && sh->sent < most && !TAILQ_EMPTY(list)) {
        struct tcp_conn *c = TAILQ_FIRST(list);
        bool enough = c == last;

        TAILQ_REMOVE(list, c, work_link);
        c->in_work = false;
        n++;
        if (c->ended && c->user_gone)
            tcp_conn_release(c); /* nothing refers to it any more */
        else
            run(sh, c);
        if (enough)
            break;
    }
    return n;
}

/* Connections that send much share the frames of an iteration. Every second frame is answered, so
 * with more of them the answers would come faster than they are received. */
unsigned tcp_flush(void *ctx, struct inet_shard *ish)
{
    struct tcp *tcp = ctx;
    struct tcp_shard *sh = tcp->shard[inet_shard_reactor(ish)];
    unsigned n = go_on(sh);

    n += run_list(sh, &sh->work, UINT_MAX);
    return n + run_list(sh, &sh->much, inet_rx_behind(ish) ? MUCH_BEHIND : MUCH_FRAMES);
}

/* ---- making ---- */

static void set_defaults(const struct tcp_opts *in, struct tcp_opts *out)
{
    static const struct tcp_opts none = {.wscale_max = UINT_MAX};

    *out = in ? *in : none;
    out->max_conns = out->max_conns ? out->max_conns : MAX_CONNS;
    out->syn_max = out->syn_max ? out->syn_max : SYN_MAX;
    if (out->wscale_max == UINT_MAX)
        out->wscale_max = WSCALE;
    out->wscale_max = out->wscale_max < WSCALE_MOST ? out->wscale_max : WSCALE_MOST;
    out->user_timeout = out->user_timeout ? out->user_timeout : USER_TIMEOUT;
    out->copy_bytes = out->copy_bytes ? out->copy_bytes : COPY_BYTES;
}

static uint32_t flows_of(const struct tcp_opts *opts)
{
    return rte_align32pow2(2 * opts->max_conns);
}

/* Each connection may have one at its home for as long as it lives. */
static unsigned stubs_of(const struct tcp_opts *opts, unsigned reactors)
{
    return reactors == 1 ? 0 : opts->max_conns;
}

static void shard_pools(struct tcp_shard *sh, unsigned stubs)
{
    unsigned n = sh->tcp->opts.max_conns;

    for (unsigned i = n; i > 0; i--) {
        sh->pool[i - 1].next = sh->free_conns;
        sh->free_conns = &sh->pool[i - 1];
        sh->tw_pool[i - 1].next = sh->free_tws;
        sh->free_tws = &sh->tw_pool[i - 1];
    }
    sh->nfree = n;
    for (unsigned i = stubs; i > 0; i--) {
        sh->stub_pool[i - 1].next = sh->free_stubs;
        sh->free_stubs = &sh->stub_pool[i - 1];
    }
}

/* Expires forwarding stubs and TIME-WAITs. */
static void on_shard_timer(struct reactor_timer *t)
{
    struct tcp_shard *sh = container_of(t, struct tcp_shard, timer);
    uint64_t now = reactor_now_us();
    struct tcp_tw *tw;

    tcp_flow_fade(sh, now);
    while ((tw = TAILQ_FIRST(&sh->tws)) && tw->until_us <= now)
        tcp_tw_free(sh, tw);
    tcp_shard_timer(sh);
}

void tcp_shard_timer(struct tcp_shard *sh)
{
    const struct tcp_stub *s = TAILQ_FIRST(&sh->fading);
    const struct tcp_tw *tw = TAILQ_FIRST(&sh->tws);
    uint64_t at = UINT64_MAX, now = reactor_now_us();

    if (s)
        at = s->until_us;
    if (tw && tw->until_us < at)
        at = tw->until_us;
    if (at == UINT64_MAX || (reactor_timer_armed(&sh->timer) && sh->timer.expires_us <= at))
        return;
    reactor_timer_arm(&sh->timer, at > now ? at - now : 0);
}

static void shard_free(struct tcp_shard *sh)
{
    unsigned stubs = stubs_of(&sh->tcp->opts, sh->tcp->nshards);

    for (unsigned i = 0; sh->pool && i < sh->tcp->opts.max_conns; i++) {
        struct tcp_conn *c = &sh->pool[i];

        if (!c->sh || c->released)
            continue;
        reactor_timer_cancel(&c->ack_timer);
        reactor_timer_cancel(&c->conn_timer);
        tcp_tx_free(c);
        tcp_rx_free(c);
    }
    for (unsigned i = 0; sh->stub_pool && i < stubs; i++)
        for (unsigned k = 0; k < sh->stub_pool[i].nheld; k++)
            rte_pktmbuf_free(sh->stub_pool[i].held[k]);
    reactor_timer_cancel(&sh->timer);
    reactor_timer_cancel(&sh->orphan_timer);
    tcp_tx_shard_destroy(sh);
    free(sh->flows);
    free(sh->pool_memory);
    free(sh->tw_pool);
    free(sh->stub_pool);
    free(sh);
}

static struct tcp_shard *shard_new(struct tcp *tcp, unsigned index)
{
    struct tcp_shard *sh = calloc(1, sizeof(*sh));
    unsigned stubs = stubs_of(&tcp->opts, tcp->nshards);

    if (!sh)
        return NULL;
    sh->tcp = tcp;
    sh->index = index;
    sh->reactor = reactor_at(tcp->env, index);
    sh->inet = inet_shard_of(tcp->inet, index);
    TAILQ_INIT(&sh->conns);
    TAILQ_INIT(&sh->half);
    tcp_orphans_init(sh);
    TAILQ_INIT(&sh->work);
    TAILQ_INIT(&sh->much);
    TAILQ_INIT(&sh->fading);
    TAILQ_INIT(&sh->tws);
    reactor_timer_init(&sh->timer, on_shard_timer);
    sh->next_port = (uint16_t)sip_hash(&tcp->secret, &index, sizeof(index));
    sh->flows_mask = flows_of(&tcp->opts) - 1;
    sh->flows = calloc(sh->flows_mask + 1, sizeof(struct tcp_flows));
    sh->pool_memory = calloc(tcp->opts.max_conns + 1, sizeof(*sh->pool));
    sh->pool = RTE_PTR_ALIGN_CEIL(sh->pool_memory, RTE_CACHE_LINE_SIZE);
    sh->tw_pool = calloc(tcp->opts.max_conns, sizeof(*sh->tw_pool));
    sh->stub_pool = calloc(stubs + 1, sizeof(*sh->stub_pool));
    if (!sh->flows || !sh->pool || !sh->tw_pool || !sh->stub_pool || tcp_tx_shard_create(sh) < 0) {
        shard_free(sh);
        return NULL;
    }
    shard_pools(sh, stubs);
    return sh;
}

/* The key of timestamps: that of the boot, random, and there again after a restart of the process.
 */
static void boot_secret(struct sip_key *out)
{
    struct sip_key key;
    char id[37] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f) {
        if (!fgets(id, sizeof(id), f))
            id[0] = '\0';
        fclose(f);
    }
    memcpy(&key, "millrace tcp ts", sizeof(key));
    out->k[0] = sip_hash(&key, id, strlen(id));
    out->k[1] = sip_hash(&key, &out->k[0], sizeof(out->k[0]));
}

static void set_secrets(struct tcp *tcp)
{
    struct timespec ts;

    boot_secret(&tcp->ts_secret);
    sip_key_make(&tcp->secret);
    sip_key_make(&tcp->cookie_secret);
    if (tcp->opts.secret)
        tcp->secret = tcp->cookie_secret = tcp->ts_secret = *tcp->opts.secret;
    tcp->opts.secret = &tcp->secret;
    clock_gettime(CLOCK_REALTIME, &ts);
    tcp->ts_base_us =
        (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000 - reactor_now_us();
}

int tcp_create(const struct tcp_opts *opts, struct inet *inet, struct tcp **out, struct err *err)
{
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    struct inet_upper upper = {
        .ctx = tcp, .input = tcp_input, .error = tcp_icmp_error, .flush = tcp_flush};
    int rc = -ENOMEM;

    if (!tcp)
        return -ENOMEM;
    set_defaults(opts, &tcp->opts);
    tcp->inet = inet;
    tcp->env = reactor_env_of(reactor_self());
    tcp->nshards = reactor_count(tcp->env);
    tcp->cc = tcp_cc_find(tcp->opts.cc);
    if (!tcp->cc) {
        err_text(err, "there is no congestion control \"%s\"", tcp->opts.cc);
        rc = -EINVAL;
        goto fail;
    }
    set_secrets(tcp);
    rc = tcp_tx_create(tcp, err);
    if (rc == 0)
        rc = tcp_rx_create(tcp, err);
    if (rc < 0)
        goto fail;
    for (unsigned i = 0; i < tcp->nshards; i++) {
        tcp->shard[i] = shard_new(tcp, i);
        if (!tcp->shard[i]) {
            err_text(err, "no memory for %u connections of reactor %u", tcp->opts.max_conns, i);
            rc = -ENOMEM;
            goto fail;
        }
    }
    inet_upper_set(inet, &upper);
    *out = tcp;
    return 0;

fail:
    tcp_destroy(tcp);
    return rc;
}

void tcp_destroy(struct tcp *tcp)
{
    struct tcp_listener *l;

    if (!tcp)
        return;
    for (unsigned i = 0; i < tcp->nshards; i++)
        if (tcp->shard[i])
            shard_free(tcp->shard[i]);
    while ((l = LIST_FIRST(&tcp->listeners))) {
        LIST_REMOVE(l, link);
        free(l);
    }
    mem_mbufs_destroy(tcp->copy_pool);
    mem_mbufs_destroy(tcp->small_pool);
    mem_mbufs_destroy(tcp->own_pool);
    free(tcp);
}

void tcp_memory(const struct tcp_opts *opts, unsigned reactors, struct tcp_memory *out)
{
    struct tcp_opts o;
    size_t shard;

    set_defaults(opts, &o);
    shard = sizeof(struct tcp_shard) + o.max_conns * sizeof(struct tcp_conn) +
            o.max_conns * sizeof(struct tcp_tw) +
            (stubs_of(&o, reactors) + 1) * sizeof(struct tcp_stub) +
            flows_of(&o) * sizeof(struct tcp_flows);
    out->heap = sizeof(struct tcp) + reactors * shard;
    out->eal = tcp_rx_memory(reactors);
    tcp_tx_memory(&o, reactors, &out->heap, &out->eal);
}

/* ---- the end of all ---- */

static void on_stopped(struct reactor_task *task)
{
    struct tcp_shard *sh = container_of(task, struct tcp_shard, stop);
    struct tcp *tcp = sh->tcp;

    if (--tcp->stopping == 0)
        reactor_post(reactor_control(tcp->env), tcp->stopped);
}

/* Closed by its user, and the peer has not acknowledged all of it yet. */
static bool is_ending(const struct tcp_conn *c)
{
    return c->user_gone && !c->ended && c->state != TCP_FIN_WAIT_2;
}

static void abort_all(struct tcp_conns *conns, bool ending_too)
{
    struct tcp_conn *next;

    for (struct tcp_conn *c = TAILQ_FIRST(conns); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (ending_too || !is_ending(c))
            tcp_conn_abort(c, STREAM_END_RESET);
    }
}

/* Who has closed its window on what is left is not waited for: the time for that was the drain. */
static bool any_ending(const struct tcp_shard *sh)
{
    const struct tcp_conn *c;

    TAILQ_FOREACH(c, &sh->conns, link) {
        if (is_ending(c) && c->tx.persists == 0)
            return true;
    }
    return false;
}

/* A FIN may be lost like any other segment, and it cannot be sent again after the process has
 * ended. */
static void on_stop_timer(struct reactor_timer *t)
{
    struct tcp_shard *sh = container_of(t, struct tcp_shard, stop_timer);

    if (any_ending(sh) && reactor_now_us() < sh->stop_until) {
        reactor_timer_arm(t, STOP_LOOK_US);
        return;
    }
    abort_all(&sh->conns, true);
    inet_flush(sh->inet);
    sh->stop.fn = on_stopped;
    reactor_post(reactor_control(sh->tcp->env), &sh->stop);
}

static void on_stop(struct reactor_task *task)
{
    struct tcp_shard *sh = container_of(task, struct tcp_shard, stop);

    sh->stopped = true;
    sh->stop_until = reactor_now_us() + STOP_LINGER_US;
    abort_all(&sh->half, true);
    abort_all(&sh->conns, false);
    reactor_timer_init(&sh->stop_timer, on_stop_timer);
    on_stop_timer(&sh->stop_timer);
}

void tcp_stop(struct tcp *tcp, struct reactor_task *done)
{
    tcp->stopped = done;
    tcp->stopping = tcp->nshards;
    for (unsigned i = 0; i < tcp->nshards; i++) {
        tcp->shard[i]->stop.fn = on_stop;
        reactor_post(tcp->shard[i]->reactor, &tcp->shard[i]->stop);
    }
}
