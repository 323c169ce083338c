/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the owner of a packet. Each reactor has one table, keyed by the addresses of a flow: its
 * own connections, TIME-WAITs, and stubs that name the reactor of a connection.
 *
 * Packets come to the reactor at home for their addresses. A connection may be elsewhere:
 *  - while it is on a listener's reactor: unknown packets are passed to the listener of the local
 * address;
 *  - on its way from one reactor to another: the old one keeps its packets in a stub until the
 * new one reports the arrival. Then the stub passes them on, and for two seconds more those that
 * other reactors had already sent here;
 *  - at a reactor that is neither: it sends a stub to the home, which stays there as long as the
 *    connection does. A dialled connection waits for that before its SYN.
 *
 * With one reactor there are no stubs.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"
#include "lib/log/log.h"

#include <string.h>

#define FADE_US (2 * UINT64_C(1000000))

void tcp_key_make(struct tcp_key *key, const struct inet_addr *local,
                  const struct inet_addr *remote, uint16_t lport, uint16_t rport,
                  const struct inet_if *ifp)
{
    key->local = *local;
    key->remote = *remote;
    key->lport = lport;
    key->rport = rport;
    key->scope = inet_is_link_local(local) || inet_is_link_local(remote) ? ifp : NULL;
}

uint32_t tcp_key_hash(const struct tcp *tcp, const struct tcp_key *key)
{
    struct {
        uint16_t lport, rport;
        uint8_t local[4], remote[4];
    } in4;
    struct {
        struct inet_addr local, remote;
        const struct inet_if *scope;
        uint16_t lport, rport, zero[2];
    } in6;

    if (inet_is4(&key->local)) {
        in4.lport = key->lport;
        in4.rport = key->rport;
        memcpy(in4.local, key->local.b + 12, 4);
        memcpy(in4.remote, key->remote.b + 12, 4);
        return (uint32_t)sip_hash(&tcp->secret, &in4, sizeof(in4));
    }
    memset(&in6, 0, sizeof(in6));
    in6.local = key->local;
    in6.remote = key->remote;
    in6.scope = key->scope;
    in6.lport = key->lport;
    in6.rport = key->rport;
    return (uint32_t)sip_hash(&tcp->secret, &in6, sizeof(in6));
}

/* ---- table ---- */

static bool same_key(const struct tcp_key *a, const struct tcp_key *b)
{
    return a->lport == b->lport && a->rport == b->rport && inet_same(&a->remote, &b->remote) &&
           inet_same(&a->local, &b->local) && a->scope == b->scope;
}

struct tcp_flow *tcp_flow_find(struct tcp_shard *sh, const struct tcp_key *key, uint32_t hash)
{
    struct tcp_flow *f;

    SLIST_FOREACH(f, &sh->flows[hash & sh->flows_mask], link)
        if (f->hash == hash && same_key(&f->key, key))
            break;
    return f;
}

void tcp_flow_insert(struct tcp_shard *sh, struct tcp_flow *f)
{
    SLIST_INSERT_HEAD(&sh->flows[f->hash & sh->flows_mask], f, link);
    f->in = true;
}

void tcp_flow_remove(struct tcp_shard *sh, struct tcp_flow *f)
{
    if (f->in)
        SLIST_REMOVE(&sh->flows[f->hash & sh->flows_mask], f, tcp_flow, link);
    f->in = false;
}

/* ---- stubs ---- */

static struct tcp_shard *home_of(const struct tcp_shard *sh, const struct tcp_key *key)
{
    return sh->tcp->shard[inet_home(sh->tcp->inet, &key->local, &key->remote)];
}

static void on_stub_back(struct reactor_task *task)
{
    struct tcp_stub *s = container_of(task, struct tcp_stub, task);

    s->next = s->owner->free_stubs;
    s->owner->free_stubs = s;
}

/* In no table any more: back to its pool. */
static void stub_free(struct tcp_stub *s, struct tcp_shard *here)
{
    for (unsigned i = 0; i < s->nheld; i++)
        tcp_drop(here, s->held[i], PKT_DROP_TCP_NO_CONN);
    s->nheld = 0;
    s->task.fn = on_stub_back;
    if (s->owner == here)
        on_stub_back(&s->task);
    else
        reactor_post(s->owner->reactor, &s->task);
}

static void stub_remove(struct tcp_stub *s)
{
    struct tcp_shard *sh = s->at;

    if (s->until_us > 0)
        TAILQ_REMOVE(&sh->fading, s, link);
    s->until_us = 0;
    tcp_flow_remove(sh, &s->flow);
    stub_free(s, sh);
}

static struct tcp_stub *stub_new(struct tcp_shard *sh, const struct tcp_flow *flow)
{
    struct tcp_stub *s;

    if (!sh->free_stubs && TAILQ_FIRST(&sh->fading))
        stub_remove(TAILQ_FIRST(&sh->fading));
    s = sh->free_stubs;
    if (!s)
        return NULL;
    sh->free_stubs = s->next;
    memset(s, 0, sizeof(*s));
    s->owner = sh;
    s->flow.kind = TCP_FLOW_STUB;
    s->flow.key = flow->key;
    s->flow.hash = flow->hash;
    return s;
}

/* The stub of a flow here, or NULL. */
static struct tcp_stub *stub_find(struct tcp_shard *sh, const struct tcp_flow *flow)
{
    struct tcp_flow *f = tcp_flow_find(sh, &flow->key, flow->hash);

    return f && f->kind == TCP_FLOW_STUB ? container_of(f, struct tcp_stub, flow) : NULL;
}

static void log_short(struct reactor_task *task)
{
    struct tcp_shard *sh = container_of(task, struct tcp_shard, stubs_task);

    log_event(LOG_LEVEL_WARNING, LOG_MODULE_SOCKLND, "tcp_stubs_short", LOG_U("reactor", sh->index),
              LOG_U("moves", relaxed_load(&sh->stats.stubs_short)),
              LOG_S("remedy", "fewer connections: the peers of those that moved are told RST"));
    __atomic_store_n(&sh->stubs_posted, false, __ATOMIC_RELEASE);
}

/* A connection moves and nothing says so where its packets come: they are answered with RST. One
 * line for those that come close together. */
static void stubs_short(struct tcp_shard *sh)
{
    count_add(&sh->stats.stubs_short, 1);
    if (__atomic_load_n(&sh->stubs_posted, __ATOMIC_ACQUIRE))
        return;
    sh->stubs_posted = true;
    sh->stubs_task.fn = log_short;
    reactor_post(reactor_control(sh->tcp->env), &sh->stubs_task);
}

void tcp_pass_on(struct tcp_shard *sh, struct rte_mbuf *m, const struct tcp_shard *to)
{
    count_add(&sh->stats.passed_on, 1);
    inet_hand_over(sh->inet, m, to->index);
}

bool tcp_flow_stub(struct tcp_shard *sh, struct tcp_stub *s, const struct tcp_seg *seg,
                   struct rte_mbuf *m)
{
    if (s->until_us > 0 && (seg->flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN) {
        /* Had the connection been alive, its reactor would have got this. */
        stub_remove(s);
        return false;
    }
    if (s->to)
        tcp_pass_on(sh, m, s->to);
    else if (s->nheld < TCP_HELD_MAX)
        s->held[s->nheld++] = m;
    else
        tcp_drop(sh, m, PKT_DROP_HANDOVER_FULL);
    return true;
}

void tcp_flow_fade(struct tcp_shard *sh, uint64_t now_us)
{
    struct tcp_stub *s;

    while ((s = TAILQ_FIRST(&sh->fading)) && s->until_us <= now_us)
        stub_remove(s);
}

/* ---- leaving ---- */

void tcp_flow_leave(struct tcp_conn *c)
{
    struct tcp_shard *sh = c->sh;

    if (sh->current == c)
        sh->current = NULL;
    if (sh->tcp->nshards == 1 || c->left_sh)
        return;
    if (!c->ended && c->rx.nxt != c->last_ack_sent)
        tcp_out_ack(c); /* first: the move may take a while */
    reactor_timer_cancel(&c->ack_timer);
    reactor_timer_cancel(&c->conn_timer);
    tcp_tx_detach(c);
    tcp_conn_exit(c);
    c->left_sh = sh;
    if (!c->flow.in) /* it has ended */
        return;
    tcp_flow_remove(sh, &c->flow);
    c->left = stub_new(sh, &c->flow);
    if (!c->left) {
        stubs_short(sh);
        return;
    }
    c->left->at = sh;
    c->left->home = !c->home && home_of(sh, &c->flow.key) == sh;
    tcp_flow_insert(sh, &c->left->flow);
}

/* ---- arriving ---- */

/* At the reactor that it left: it is at s->to now. */
static void on_arrived(struct reactor_task *task)
{
    struct tcp_stub *s = container_of(task, struct tcp_stub, task);

    s->to = s->arrived;
    for (unsigned i = 0; i < s->nheld; i++)
        tcp_pass_on(s->at, s->held[i], s->to);
    s->nheld = 0;
    if (s->home)
        return;
    s->until_us = reactor_now_us() + FADE_US;
    TAILQ_INSERT_TAIL(&s->at->fading, s, link);
    tcp_shard_timer(s->at);
}

/* At the home of a flow: s is to stand for it. */
static void on_home(struct reactor_task *task)
{
    struct tcp_stub *s = container_of(task, struct tcp_stub, task);
    struct tcp_shard *sh = s->at;
    struct tcp_flow *f = tcp_flow_find(sh, &s->flow.key, s->flow.hash);
    struct tcp_stub *old = stub_find(sh, &s->flow);

    if (f && f->kind == TCP_FLOW_TW && s->dialled &&
        tcp_tw_reuse(sh, container_of(f, struct tcp_tw, flow)))
        f = NULL;
    if (old && (!s->dialled || !old->home)) {
        stub_remove(old);
        f = NULL;
    }
    s->refused = f != NULL;
    if (!f)
        tcp_flow_insert(sh, &s->flow);
    if (s->dialled)
        reactor_post(s->to->reactor, &s->answer);
    else if (f)
        stub_free(s, sh);
}

static void on_home_answer(struct reactor_task *task)
{
    struct tcp_stub *s = container_of(task, struct tcp_stub, answer);
    struct tcp_conn *c = s->dialled;
    bool refused = s->refused;

    /* The object is not used anew before it has been at the home, behind this answer. */
    if (refused) {
        stub_free(s, s->owner);
        c->home = NULL;
    }
    if (c->released || !c->home_waits)
        return;
    c->home_waits = false;
    if (refused)
        tcp_conn_end(c, STREAM_END_ERROR);
    else if (c->state == TCP_SYN_SENT)
        tcp_conn_syn(c);
}

static bool tell_home(struct tcp_conn *c, struct tcp_shard *sh, struct tcp_conn *dialled)
{
    struct tcp_stub *s = stub_new(sh, &c->flow);

    if (!s)
        return false;
    c->home = home_of(sh, &c->flow.key);
    s->at = c->home;
    s->to = sh;
    s->home = true;
    s->dialled = dialled;
    s->task.fn = on_home;
    s->answer.fn = on_home_answer;
    reactor_post(c->home->reactor, &s->task);
    return true;
}

bool tcp_flow_dial(struct tcp_conn *c)
{
    if (home_of(c->sh, &c->flow.key) == c->sh) {
        tcp_conn_syn(c);
        return true;
    }
    c->home_waits = true;
    return tell_home(c, c->sh, c);
}

static void back_again(struct tcp_shard *sh, struct tcp_stub *s)
{
    struct rte_mbuf *held[TCP_HELD_MAX];
    unsigned n = s->nheld;

    memcpy(held, s->held, n * sizeof(held[0]));
    s->nheld = 0;
    tcp_input(sh->tcp, sh->inet, held, n);
}

void tcp_flow_arrive(struct tcp_conn *c, struct tcp_shard *sh)
{
    struct tcp_stub *left = c->left, *old;
    struct tcp_shard *from = c->left_sh;

    if (!from)
        return;
    c->left = NULL;
    c->left_sh = NULL;
    tcp_conn_enter(c, sh);
    if (!left) {
        if (!c->ended) /* there was no stub for it */
            tcp_flow_insert(sh, &c->flow);
    } else if (from == sh) {
        tcp_flow_remove(sh, &left->flow);
        tcp_flow_insert(sh, &c->flow);
        back_again(sh, left);
        stub_free(left, sh);
    } else {
        bool at_home = left->home;

        old = stub_find(sh, &c->flow);
        if (old)
            stub_remove(old);
        if (c->home == sh)
            c->home = NULL;
        tcp_flow_insert(sh, &c->flow);
        /* Packets held where it was follow. The stub of a home stays. */
        left->arrived = sh;
        left->task.fn = on_arrived;
        if (at_home)
            c->home = left->at;
        reactor_post(left->at->reactor, &left->task);
        if (!at_home && home_of(sh, &c->flow.key) != sh && !tell_home(c, sh, NULL))
            stubs_short(sh);
    }
    if (!c->ended) {
        tcp_tx_attach(c);
        if (c->keepalive)
            tcp_keep_start(c);
        c->ack_now |= c->rx.nxt != c->last_ack_sent;
    }
    tcp_work(c);
}

/* ---- the end ---- */

static void on_back(struct reactor_task *task)
{
    struct tcp_conn *c = container_of(task, struct tcp_conn, task);

    c->next = c->owner->free_conns;
    c->owner->free_conns = c;
    c->owner->nfree++;
}

static void go_back(struct tcp_conn *c, struct tcp_shard *here)
{
    c->task.fn = on_back;
    if (c->owner == here)
        on_back(&c->task);
    else
        reactor_post(c->owner->reactor, &c->task);
}

/* At the home: the stub goes, and perhaps a TIME-WAIT comes in its place. */
static void on_gone(struct reactor_task *task)
{
    struct tcp_conn *c = container_of(task, struct tcp_conn, task);
    struct tcp_shard *home = c->home;
    struct tcp_stub *s = stub_find(home, &c->flow);

    if (s && s->home && s->to == c->sh) {
        stub_remove(s);
        if (c->time_wait)
            tcp_tw_add(home, c);
    }
    go_back(c, home);
}

void tcp_flow_gone(struct tcp_conn *c)
{
    struct tcp_shard *sh = c->sh;

    tcp_flow_remove(sh, &c->flow);
    if (!c->home || c->home == sh) {
        go_back(c, sh);
        return;
    }
    c->task.fn = on_gone;
    reactor_post(c->home->reactor, &c->task);
}
