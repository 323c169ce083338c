/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accepts connections: request and HELLO on the listener's reactor, then the decision about the
 * peer on its home reactor. docs/protocol/socklnd.md §1.3, §2.3 to §2.5.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_US 2000 /* a reactor has read all its descriptors after this time */

/* ---- HELLO ---- */

size_t sock_hello_write(const struct sock_ni *sni, uint32_t version, const struct lnet_nid *dst,
                        enum sock_ctype type, const struct sock_hello *in,
                        uint8_t buf[SOCK_HELLO_MAX])
{
    struct sock_hello out = {
        .version = version,
        .src_nid = sni->base.ni->nid,
        .dst_nid = *dst,
        .src_pid = LNET_PID_LUSTRE,
        .dst_pid = in ? in->dst_pid : 0,
        .src_incarnation = sni->base.incarnation,
        .dst_incarnation = in ? in->dst_incarnation : 0,
        .ctype = type,
    };

    return sock_hello_encode(&out, buf);
}

static void write_all(struct stream *s, uint8_t *buf, size_t len)
{
    struct mem_seg seg = {buf, (uint32_t)len, MEM_REGION_NONE, 0};

    /* A new stream accepts these few bytes. If it does not, the close tells the initiator. */
    (void)s->ops->send(s, &seg, 1, false);
}

uint32_t sock_hello_version(const struct sock_ni *sni)
{
    return nid_is_nid4(&sni->base.ni->nid) ? SOCK_HELLO_V3 : SOCK_HELLO_V4;
}

/* Returns the version that a received HELLO must have: v4 if the initiator chose it, over IPv4
 * too; else the NI's own. */
static uint32_t version_of(const struct sock_hs *hs, const uint8_t *p, size_t n)
{
    return sock_hello_is_v4(p, n) ? SOCK_HELLO_V4 : sock_hello_version(hs->sni);
}

/* ---- ends ---- */

static void caller_give(struct sock_shard *shard, struct share_account *a)
{
    shard->ncallers -= a->held == 1;
    share_give(&shard->callers, a);
}

static void hs_free(struct sock_hs *hs)
{
    reactor_timer_cancel(&hs->timer);
    TAILQ_REMOVE(&hs->shard->pending, hs, link);
    caller_give(hs->shard, hs->account);
    if (hs->stream)
        hs->stream->ops->close(hs->stream, false);
    lnd_pool_put(&hs->shard->hss, hs);
}

static struct sock_ni *any_ni(const struct sock_listener *l)
{
    return TAILQ_FIRST(&l->nis);
}

/* NIs of several nets have the address: the HELLO names the one that is called. */
static bool has_several_nis(const struct sock_listener *l)
{
    return TAILQ_FIRST(&l->nis) != TAILQ_LAST(&l->nis, sock_nis);
}

static void caller_nid(const struct sock_hs *hs, const struct sock_ni *sni, struct lnet_nid *nid)
{
    sock_addr_to_nid(sni->base.ni->net, &hs->addr, nid);
}

/* Refuses on the listener's reactor. */
static void refuse(struct sock_hs *hs, enum lnet_drop reason)
{
    struct sock_ni *sni = hs->sni ? hs->sni : any_ni(hs->listener);
    struct lnet_nid nid;

    caller_nid(hs, sni, &nid);
    lnd_drop(&sni->base, reason, &nid, NULL);
    hs_free(hs);
}

static void refuse_answered(struct sock_hs *hs, enum lnet_drop reason)
{
    uint8_t buf[SOCK_HELLO_MAX];
    struct lnet_nid nid;

    if (hs->hello) {
        caller_nid(hs, hs->sni, &nid);
        write_all(hs->stream, buf,
                  sock_hello_write(hs->sni, sock_hello_version(hs->sni), &nid, SOCK_CTYPE_NONE,
                                   NULL, buf));
    } else {
        sock_reply_encode(buf);
        write_all(hs->stream, buf, SOCK_REPLY_SIZE);
    }
    refuse(hs, reason);
}

/* ---- decisions on the home reactor, §2.5 ---- */

static void hs_back(struct reactor_task *task)
{
    struct sock_hs *hs = container_of(task, struct sock_hs, task);
    struct sock_ni_shard *ns = &hs->sni->shard[hs->shard->base.index];

    hs_free(hs);
    ns->hs_away--;
    lnd_ns_progress(&ns->base);
}

/* Returns how many connections of a type a peer may open. A node that is set for more than we are
 * may have some more, so that settings need not agree, but not all there are. */
static unsigned conns_allowed(const struct sock_peer *sp, enum sock_ctype type)
{
    unsigned ours = (unsigned)lnd_setting(&sp->sni->base.ni->lnd_tun.conns_per_peer);

    if (type == SOCK_CTYPE_CONTROL)
        return 1;
    return min(max(4 * ours, (unsigned)SOCK_BULK_SLACK), (unsigned)SOCK_BULK_MAX);
}

static enum lnet_drop decide(struct sock_peer *sp, const struct sock_hello *in,
                             enum sock_ctype type)
{
    const struct lnet_nid *mine = &sp->sni->base.ni->nid;

    if (sock_dial_races(sp) && memcmp(&in->src_nid, mine, sizeof(*mine)) < 0)
        return SOCK_DROP(HELLO_RACE);
    if (sp->base.nconns > 0 &&
        (in->src_incarnation != sp->base.incarnation || in->version != sp->version))
        return SOCK_DROP(HELLO_STALE);
    if (sp->count[type] >= conns_allowed(sp, type))
        return SOCK_DROP(HELLO_DUPLICATE);
    return LNET_DROP_NONE;
}

/* Refuses so that the initiator tries again. */
static void answer_none(struct sock_hs *hs, struct sock_peer *sp, enum lnet_drop reason)
{
    uint8_t buf[SOCK_HELLO_MAX];

    lnd_drop(&hs->sni->base, reason, &hs->in.src_nid, NULL);
    if (reason == SOCK_DROP(HELLO_STALE))
        sock_peer_restarted(sp, hs->in.src_incarnation);
    /* A peer that closed its ends while the link was down connects again. Our ends are in its way
     * until its RST comes. */
    if (reason == SOCK_DROP(HELLO_DUPLICATE))
        sock_peer_probe(sp);
    write_all(
        hs->stream, buf,
        sock_hello_write(hs->sni, hs->in.version, &hs->in.src_nid, SOCK_CTYPE_NONE, &hs->in, buf));
}

static bool lacks_grant(const struct sock_hs *hs)
{
    const struct stream_ops *ops = hs->stream->ops;

    return (ops->caps & STREAM_CAP_TAKE) &&
           !lnet_grant_has_room(hs->sni->sock->base.node, ops->rx_buffer);
}

/* Returns false if another connection finds no place, or no memory for what may come over it. */
static bool make_room(const struct sock_hs *hs, struct sock_peer *sp)
{
    struct lnd_shard *shard = sp->base.ns->shard;

    if (hs->scarce || lnd_conns_short(shard) || lacks_grant(hs))
        (void)lnd_evict(shard, &sp->base);
    return lnd_conns_for_callers(shard) && !lacks_grant(hs);
}

static void admit(struct sock_hs *hs, struct sock_peer *sp, enum sock_ctype type)
{
    struct sock_conn *c = make_room(hs, sp) ? sock_conn_new(sp, type) : NULL;

    if (!c || hs->stream->ops->attach(hs->stream, &sock_conn_events, c) < 0) {
        static const struct lnd_close why = {.tx = LNET_DROP_NEXT_HOP_LOST};

        lnd_drop(&hs->sni->base, SOCK_DROP(NO_MEMORY), &hs->in.src_nid, NULL);
        if (c)
            sock_conn_close(&c->base, &why);
        return;
    }
    if (sp->base.nconns == 0 && hs->in.version != sp->version) {
        sock_peer_version(sp, hs->in.version);
        sock_dial_other_version(sp);
    }
    c->stream = hs->stream;
    hs->stream = NULL;
    c->raw_len =
        (uint16_t)sock_hello_write(hs->sni, sp->version, &hs->in.src_nid, type, &hs->in, c->raw);
    sock_dial_yield(sp);
    sock_peer_conn_up(sp, c, hs->in.src_incarnation);
}

/* Returns false when it is too early to decide. */
static bool decide_at_home(struct sock_hs *hs)
{
    struct lnd_ni_shard *ns = &hs->sni->shard[reactor_index(reactor_self())].base;
    struct lnd_peer_ni *lp = lnd_peer_of_caller(ns, &hs->in.src_nid);
    struct sock_peer *sp;
    enum sock_ctype type = sock_ctype_invert(hs->in.ctype);
    enum lnet_drop drop;
    bool decided = true;

    if (!lp) {
        lnd_drop(&hs->sni->base, SOCK_DROP(NO_MEMORY), &hs->in.src_nid, NULL);
        return true;
    }
    sp = sock_peer_of(lp);
    lnd_peer_hold(lp);
    drop = decide(sp, &hs->in, type);
    if (!hs->waited && (drop == SOCK_DROP(HELLO_STALE) || drop == SOCK_DROP(HELLO_DUPLICATE)))
        decided = false;
    else if (drop == LNET_DROP_NONE)
        admit(hs, sp, type);
    else
        answer_none(hs, sp, drop);
    lnd_peer_release(lp);
    return decided;
}

static void settle_at_home(struct reactor_timer *t)
{
    struct sock_hs *hs = container_of(t, struct sock_hs, home_timer);
    struct sock_ni_shard *ns = &hs->sni->shard[reactor_index(reactor_self())];

    if (ns->base.state == LND_NI_NEW) {
        /* The control thread told every reactor to start before it listened; that task comes after
         * this one. */
        reactor_timer_arm(&hs->home_timer, SETTLE_US);
        return;
    }
    if (!lnd_ns_is_shut(&ns->base) && !decide_at_home(hs)) {
        /* The old connections may have ended, and their events may come after this task. */
        hs->waited = true;
        reactor_timer_arm(&hs->home_timer, SETTLE_US);
        return;
    }
    if (hs->stream)
        hs->stream->ops->close(hs->stream, false);
    hs->stream = NULL;
    hs->task.fn = hs_back;
    reactor_post(hs->shard->base.reactor, &hs->task);
}

static void hs_at_home(struct reactor_task *task)
{
    struct sock_hs *hs = container_of(task, struct sock_hs, task);

    reactor_timer_init(&hs->home_timer, settle_at_home);
    settle_at_home(&hs->home_timer);
}

/* ---- request and HELLO on the listener's reactor ---- */

static bool source_allowed(const struct sock_hs *hs)
{
    const struct lnd_sock *sock = hs->listener->sock;
    struct lnet_nid address;

    caller_nid(hs, hs->sni, &address);
    if (nid_same(&address, &hs->in.src_nid))
        return true;
    for (unsigned i = 0; i < sock->opts.hello_map_count; i++) {
        if (nid_same(&sock->map[i].address, &address) &&
            nid_same(&sock->map[i].nid, &hs->in.src_nid))
            return true;
    }
    return false;
}

/* The host's sockets hear callers on any interface; a net is told from another by it. */
static bool interface_allowed(const struct sock_hs *hs)
{
    const struct lnet_ni *ni = hs->sni->base.ni;
    const struct stream_ops *ops = hs->stream->ops;
    char ifname[IF_NAMESIZE];

    return !ops->came_by || !ops->came_by(hs->stream, ifname) ||
           !lnet_is_of_other_net(ni->node, ifname, ni->net);
}

static enum lnet_drop check_hello(const struct sock_hs *hs)
{
    enum lnet_drop drop = LNET_DROP_NONE;

    if (lnet_nid_is_mine(hs->sni->base.ni->node, &hs->in.src_nid))
        return SOCK_DROP(HELLO_NID);
    if (hs->in.ctype == SOCK_CTYPE_NONE)
        return SOCK_DROP(HELLO_TYPE);
    if (!source_allowed(hs))
        return SOCK_DROP(HELLO_SOURCE);
    if (!interface_allowed(hs))
        return SOCK_DROP(INTERFACE);
    if (has_several_nis(hs->listener))
        drop = lnet_may_call(hs->sni->base.ni, &hs->in.src_nid);
    return drop ? drop : lnet_may_connect(hs->sni->base.ni, &hs->in.src_nid);
}

/* Runs as a task of its own: the transport's function that reported the stream as readable must
 * return before another reactor may own the stream. */
static void hs_leave(struct reactor_task *task)
{
    struct sock_hs *hs = container_of(task, struct sock_hs, task);

    hs->task.fn = hs_at_home;
    reactor_post(lnet_nid_home(hs->sni->base.ni->node, &hs->in.src_nid), &hs->task);
}

static void hello_complete(struct sock_hs *hs, const uint8_t *p, size_t n)
{
    enum lnet_drop drop = sock_hello_decode(p, n, version_of(hs, p, n), &hs->in);

    hs->stream->ops->skip(hs->stream, n);
    if (drop == LNET_DROP_NONE)
        drop = check_hello(hs);
    if (drop != LNET_DROP_NONE) {
        refuse(hs, drop);
        return;
    }
    reactor_timer_cancel(&hs->timer);
    hs->stream->ops->detach(hs->stream);
    hs->away = true;
    hs->sni->shard[hs->shard->base.index].hs_away++;
    hs->task.fn = hs_leave;
    reactor_post(reactor_self(), &hs->task);
}

static struct sock_ni *find_target(const struct sock_listener *l, const struct lnet_nid *nid)
{
    struct sock_ni *sni;

    TAILQ_FOREACH(sni, &l->nis, of_listener) {
        if (nid_same(&sni->base.ni->nid, nid))
            break;
    }
    return sni;
}

/* Returns false if it refused the request. */
static bool request_complete(struct sock_hs *hs, const uint8_t *p, size_t n)
{
    struct sock_req req;
    enum lnet_drop drop = sock_req_decode(p, n, &req);

    hs->stream->ops->skip(hs->stream, n);
    if (drop == LNET_DROP_NONE) {
        hs->sni = find_target(hs->listener, &req.target);
        if (!hs->sni)
            drop = SOCK_DROP(REQ_NID);
    }
    if (drop != LNET_DROP_NONE) {
        refuse(hs, drop);
        return false;
    }
    hs->hello = true;
    hs->want = 4;
    return true;
}

/* Reads magic, version and the rest one after the other. Together they have the time that a kernel
 * gives each of them (§1.2): who speaks LNet sends all at once. */
static void hs_readable(void *user)
{
    struct sock_hs *hs = user;
    struct sock_stage stage;
    const uint8_t *p;
    size_t n;

    for (;;) {
        n = hs->stream->ops->peek(hs->stream, hs->want, &p);
        if (n < hs->want)
            return;
        stage = hs->hello ? sock_hello_stage(p, n, version_of(hs, p, n)) : sock_req_stage(p, n);
        if (stage.drop != LNET_DROP_NONE) {
            hs->stream->ops->skip(hs->stream, n);
            if (stage.answer)
                refuse_answered(hs, stage.drop);
            else
                refuse(hs, stage.drop);
            return;
        }
        if (stage.need == 0 && hs->hello) {
            hello_complete(hs, p, n);
            return;
        }
        if (stage.need == 0 && !request_complete(hs, p, n))
            return;
        hs->want += stage.need;
    }
}

static void hs_writable(void *user)
{
    (void)user; /* no write waits */
}

static void hs_closed(void *user, enum stream_end end)
{
    refuse(user, SOCK_DROP(REQ_EOF));
}

static void hs_timer(struct reactor_timer *t)
{
    refuse(container_of(t, struct sock_hs, timer), SOCK_DROP(REQ_TIMEOUT));
}

static const struct stream_events hs_events = {
    .readable = hs_readable,
    .writable = hs_writable,
    .closed = hs_closed,
};

/* ---- accepting ---- */

/* Returns the account of a caller's address, with that of its prefix, whose key is no NID. There
 * are as many as handshakes, and one more. */
static struct share_account *find_caller(const struct sock_listener *l,
                                         const union stream_addr *addr, struct lnet_nid *nid)
{
    const struct sock_ni *sni = any_ni(l);
    struct lnet_nid prefix;

    sock_addr_to_nid(sni->base.ni->net, addr, nid);
    prefix = lnet_nid_prefix(sni->base.ni->node, nid);
    prefix.type = LNET_LND_ANY;
    return share_of(&l->shard->callers, nid, &prefix);
}

static bool goes_before(const struct sock_hs *a, const struct sock_hs *b)
{
    uint32_t held_a = a->account->held, held_b = b->account->held;
    bool crowd_a = a->account->prefix->held > SOCK_HS_CROWD;
    bool crowd_b = b->account->prefix->held > SOCK_HS_CROWD;

    if (crowd_a != crowd_b)
        return crowd_a;
    return held_a != held_b ? held_a > held_b : a->of_address > b->of_address;
}

/* One of the callers that have many makes room, the oldest of them: who speaks LNet has few
 * handshakes pending, and not for long. */
static void refuse_one(struct sock_shard *shard)
{
    struct sock_hs *worst = NULL, *hs;

    TAILQ_FOREACH(hs, &shard->pending, link)
        if (!hs->away && (!worst || goes_before(hs, worst)))
            worst = hs;
    if (worst)
        refuse(worst, SOCK_DROP(REQ_LIMIT));
}

/* Refuses a caller before its connection is made: an address that has all it may have, or while
 * there is no free place as many as addresses have on average. Else each of its calls would cost
 * another handshake of the same crowd, and be refused for the next, as fast as it can call. */
static bool refuses(void *user, const union stream_addr *addr)
{
    const struct sock_listener *l = user;
    struct sock_shard *shard = l->shard;
    unsigned most = SOCK_HS_PER_SOURCE;
    struct lnet_nid nid;
    struct share_account *a = find_caller(l, addr, &nid);
    bool over;

    if (!shard->hss.free)
        most = min(most, max((unsigned)SOCK_HS_FEW, SOCK_HS_MAX / max(shard->ncallers, 1u)));
    over = a->held >= most;
    share_drop(&shard->callers, a);
    if (over)
        lnd_drop(&any_ni(l)->base, SOCK_DROP(REQ_LIMIT), &nid, NULL);
    return over;
}

static enum lnet_drop check_caller(const struct sock_listener *l, const union stream_addr *addr,
                                   const struct share_account *a, const struct lnet_nid *nid)
{
    enum lnet_drop drop;

    if (l->sock->opts.accept == LND_ACCEPT_SECURE && sock_addr_port(addr) > SOCK_PORT_MAX)
        return SOCK_DROP(PORT);
    if (a->held > SOCK_HS_PER_SOURCE)
        return SOCK_DROP(REQ_LIMIT);
    drop = has_several_nis(l) ? LNET_DROP_NONE : lnet_may_call(any_ni(l)->base.ni, nid);
    if (drop != LNET_DROP_NONE)
        return drop;
    if (!l->shard->hss.free)
        refuse_one(l->shard);
    if (!l->shard->hss.free)
        return SOCK_DROP(REQ_LIMIT);
    return LNET_DROP_NONE;
}

static void accepted(void *user, struct stream *s, const union stream_addr *addr)
{
    struct sock_listener *l = user;
    struct lnet_nid nid;
    struct share_account *a = find_caller(l, addr, &nid);
    enum lnet_drop drop;
    struct sock_hs *hs;

    share_take(a); /* the handshake that makes room may be the address's last */
    l->shard->ncallers += a->held == 1;
    drop = check_caller(l, addr, a, &nid);
    if (drop != LNET_DROP_NONE) {
        caller_give(l->shard, a);
        lnd_drop(&any_ni(l)->base, drop, &nid, NULL);
        s->ops->close(s, false);
        return;
    }
    hs = lnd_pool_get_zeroed(&l->shard->hss);
    hs->shard = l->shard;
    hs->listener = l;
    hs->stream = s;
    hs->addr = *addr;
    hs->account = a;
    hs->of_address = (uint16_t)(a->held - 1);
    hs->want = 4;
    hs->scarce = s->ops->scarce && s->ops->scarce(s);
    reactor_timer_init(&hs->timer, hs_timer);
    TAILQ_INSERT_TAIL(&l->shard->pending, hs, link);
    if (s->ops->attach(s, &hs_events, hs) < 0) {
        refuse(hs, SOCK_DROP(NO_MEMORY));
        return;
    }
    reactor_timer_arm(&hs->timer, l->sock->opts.accept_timeout * LND_SEC);
}

/* ---- listening ---- */

/* Returns the listener of another NI with the same address, on another net. */
static struct sock_listener *shared_listener(const struct sock_ni *sni)
{
    const struct lnd_sock *sock = sni->sock;

    for (unsigned i = 0; i < sock->base.nnis; i++) {
        const struct sock_ni *other = sock_ni_of(sock->base.nis[i]);

        if (sock_addr_same(&other->addr, &sni->addr))
            return other->listener;
    }
    return NULL;
}

int sock_listener_get(struct sock_ni *sni)
{
    struct sock_listener *l = shared_listener(sni);

    if (!l) {
        l = calloc(1, sizeof(*l));
        if (!l)
            return -ENOMEM;
        l->sock = sni->sock;
        l->shard = sock_shard_of(lnd_shard_at(sni->base.driver, sni->link_shard));
        TAILQ_INIT(&l->nis);
        sock_nid_to_addr(sni, &sni->base.ni->nid, sni->sock->opts.accept_port, &l->addr);
    }
    lnd_listener_get(&sni->base, &l->base);
    sni->listener = l;
    return 0;
}

int sock_listen(struct lnd_ni *lni, struct err *err)
{
    struct sock_ni *sni = sock_ni_of(lni);
    const struct lnd_sock *sock = sni->sock;
    struct sock_listener *l = sni->listener;
    char nid[LNET_NIDSTR_SIZE];
    int rc;

    if (sock->opts.accept == LND_ACCEPT_NONE)
        return 0;
    rc = sni->transport.ops->listen(sni->transport.ctx, &l->addr, lni->ni->ifname,
                                    l->shard->base.reactor, accepted, l, &l->stream);
    if (rc == 0)
        relaxed_store(&l->stream->refuses, refuses);
    else
        err_set(err, rc, "cannot listen on %s port %u: %s%s", nid_format(&lni->ni->nid, nid),
                sock->opts.accept_port, strerror(-rc), lnd_listen_hint(rc));
    if (rc == -EADDRINUSE)
        err_remedy(err, "`ss -ltnp sport = %u` shows who has the port", sock->opts.accept_port);
    return rc;
}

/* Closes the handshakes for this NI; with the last NI also those whose request has not named an NI.
 */
static void drop_pending(struct sock_listener *l, const struct sock_ni *sni)
{
    struct sock_hs *next;

    for (struct sock_hs *hs = TAILQ_FIRST(&l->shard->pending); hs; hs = next) {
        next = TAILQ_NEXT(hs, link);
        if (hs->listener == l && !hs->away && (hs->sni == sni || sni->base.last))
            hs_free(hs);
    }
}

void sock_unlisten(struct sock_ni *sni)
{
    struct sock_listener *l = sni->listener;

    TAILQ_REMOVE(&l->nis, sni, of_listener);
    if (sni->base.last && l->stream) {
        l->stream->ops->unlisten(l->stream);
        l->stream = NULL;
    }
    drop_pending(l, sni);
}
