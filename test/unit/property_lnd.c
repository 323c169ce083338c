/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers behind the loopback LND: they do nothing by themselves but what the mode says; the run
 * completes, fails and cancels as its events tell. The model learns of every call in either
 * direction, and payload is checked to be still its own message's.
 */
#include "lib/base/err.h"
#include "test/unit/property.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NREMOTE     6
#define INFO_MAX    256
#define PORTAL_BULK 8

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result shut = {LNET_DROP_SHUTDOWN, LNET_HEALTH_LOCAL_ERROR};
static const struct lnet_result rx_broke = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
static const char *const remote_nid[NREMOTE] = {"10.7.0.1@tcp7", "10.7.0.2@tcp7", "10.7.3.9@tcp7",
                                                "10.8.0.1@tcp8", "10.8.1.1@tcp8", "10.8.2.7@tcp8"};

unsigned mode;
unsigned takes; /* segments handed to the core and not yet back */
static uint32_t next_id;
static struct reactor_task *ni_stop_done[MAX_NIS];
static bool ni_closed[MAX_NIS]; /* ni_stop() was called */

/* ---- payload: the id at both ends ---- */

static void payload_write(const struct mem_seg *seg, uint32_t len, uint32_t id)
{
    uint32_t n = len < sizeof(id) ? len : (uint32_t)sizeof(id);

    memcpy(seg->addr, &id, n);
    if (len >= 2 * sizeof(id))
        memcpy(seg->addr + len - sizeof(id), &id, sizeof(id));
}

static void payload_check(const struct lnet_msg *msg, const char *when)
{
    uint32_t id = msg->hdr.src_pid, len = msg->payload.bytes;
    uint32_t n = len < sizeof(id) ? len : (uint32_t)sizeof(id);

    if (len != msg->hdr.payload_len)
        prop_fail("message %x has %u bytes %s, not %u", id, len, when, msg->hdr.payload_len);
    if (id < FIRST_ID || len == 0)
        return;
    if (memcmp(msg->payload.seg[0].addr, &id, n) != 0)
        prop_fail("message %x: its payload is another's %s", id, when);
    if (len >= 2 * sizeof(id) && msg->buffer &&
        memcmp(msg->payload.seg[0].addr + len - sizeof(id), &id, sizeof(id)) != 0)
        prop_fail("message %x: the end of its payload is another's %s", id, when);
}

/* ---- sending ---- */

static void pong(const struct lnet_msg *msg);

void send_end(struct tracked *t, struct lnet_result result)
{
    struct lnet_msg *msg = t->msg;
    bool good = result.reason == LNET_DROP_NONE;

    say("    %x %s", t->id, good ? "sent" : lnet_drop_info(result.reason)->name);
    payload_check(msg, "as it ends");
    if (good && t->id == NO_ID && msg->hdr.type == LNET_MSG_GET)
        pong(msg);
    model_send_done(t, good);
    lnet_send_done(msg, result);
}

void send_accepted(struct tracked *t)
{
    say("    %x accepted", t->id);
    model_accepted(t);
    lnet_send_accepted(t->msg);
}

static bool on_send(struct lnet_msg *msg)
{
    struct tracked *t = tracked_of(msg);

    if (msg->tx_peer->shard->reactor != reactor_self())
        prop_fail("message %x is sent on the wrong reactor", t->id);
    model_send(msg);
    say("    %x to the LND for peer %u", t->id, t->to->index);
    payload_check(msg, "as it is sent");
    if (ni_closed[t->ni])
        send_end(t, shut);
    else if (mode & MODE_DONE)
        send_end(t, ok);
    else if (mode & MODE_ACCEPT)
        send_accepted(t);
    return true;
}

/* ---- receiving ---- */

struct take { /* segments of the LND's own that the core has */
    struct mem_seg seg;
    uint8_t bytes[2 * sizeof(uint32_t)];
};

static void take_release(void *owner, struct lnet_sgl *sgl)
{
    model_taken_back();
    takes--;
    free(owner);
}

/* Only the first bytes are there: nobody but the LND looks at the payload. */
static void hand_over(struct conn *c)
{
    struct take *t = calloc(1, sizeof(*t));

    if (!t)
        prop_fail("no memory");
    t->seg = (struct mem_seg){.addr = t->bytes, .len = c->in.mlen, .region = MEM_REGION_NONE};
    memcpy(t->bytes, &c->id, sizeof(c->id));
    c->in.rx.taken = (struct lnet_sgl){.seg = &t->seg, .n = 1, .bytes = c->in.mlen};
    c->in.rx.release = take_release;
    c->in.rx.release_owner = t;
    takes++;
}

/* The connection closes and is another one from now on. */
static void conn_reset(struct conn *c)
{
    memset(&c->in.rx, 0, sizeof(c->in.rx));
    c->expired_us = 0;
    c->nbacklog = 0;
}

void recv_end(struct conn *c, struct lnet_result result)
{
    bool good = result.reason == LNET_DROP_NONE;
    uint32_t next[2];

    say("    %x %s", c->id, good ? "received" : lnet_drop_info(result.reason)->name);
    if (good && !c->abandoned && c->in.mlen > 0) {
        if (c->in.segs)
            payload_write(c->in.segs, c->in.mlen, c->id);
        else
            hand_over(c);
    }
    c->state = CONN_IDLE;
    model_recv_done(c, good);
    loop_finish(&c->in, result);
    if (c->state == CONN_IDLE && !good)
        conn_reset(c);
    if (c->nbacklog == 0 || c->gone)
        return;
    memcpy(next, c->backlog[0], sizeof(next));
    memmove(c->backlog[0], c->backlog[1], (--c->nbacklog) * sizeof(c->backlog[0]));
    conn_parse(c, next[0], next[1]);
}

static void gateway_reply(const struct conn *c);

static bool on_recv(struct loop_rx *in)
{
    struct conn *c = container_of(in, struct conn, in);
    const struct lnet_rx *rx = &in->rx;

    if (rx->from->shard->reactor != reactor_self())
        prop_fail("header %x is received on the wrong reactor", c->id);
    if (c->state != CONN_PARSED)
        prop_fail("recv of %x in state %d", c->id, c->state);
    c->abandoned = false;
    if (c->local) {
        c->state = CONN_RECEIVING;
        gateway_reply(c);
        in->mlen = 0;
        recv_end(c, ok);
        return true;
    }
    model_recv(c);
    c->state = CONN_RECEIVING;
    if (rx->msg && in->mlen != rx->hdr.payload_len)
        prop_fail("recv of %x asks for %u bytes, not %u", c->id, in->mlen, rx->hdr.payload_len);
    if (rx->msg && in->mlen > 0 && (in->segs != NULL) == ni[c->ni]->rx_take)
        prop_fail("recv of %x %s memory", c->id, in->segs ? "gives" : "has no");
    say("    %x is let in%s", c->id, rx->msg ? "" : " to be thrown away");
    if (ni_closed[c->ni])
        recv_end(c, shut);
    else if (mode & MODE_RECV)
        recv_end(c, ok);
    return true;
}

static enum lnet_abandon on_abandon(struct lnet_rx *rx, bool too_long)
{
    struct conn *c = container_of(rx, struct conn, in.rx);

    if (c->state != CONN_RECEIVING || c->abandoned)
        prop_fail("%x is abandoned in state %d", c->id, c->state);
    if (!run.plan->abandons[c->ni])
        return LNET_ABANDON_NOT;
    say("    %x is abandoned", c->id);
    c->abandoned = true;
    return LNET_ABANDON_DONE;
}

static int on_ni_init(struct lnet_ni *n, struct err *err)
{
    if (n->index >= run.plan->nnis)
        prop_fail("an NI has index %u, of %u NIs", n->index, run.plan->nnis);
    n->rx_take = run.plan->rx_take[n->index];
    return loop_code.ops->ni_init(n, err);
}

/* It is chosen, and called, from here on. */
static int on_ni_start(struct lnet_ni *n, struct err *err)
{
    if (ni_cannot_start)
        return err_set(err, -EADDRINUSE, "cannot start");
    say("    NI %u starts", n->index);
    ni[n->index] = n;
    ni_gone[n->index] = ni_closed[n->index] = false;
    for (unsigned i = 0; i < nconns; i++)
        if (conns[i].ni == n->index)
            conns[i].gone = false;
    return loop_code.ops->ni_start(n, err);
}

void close_conns(unsigned index)
{
    for (unsigned i = 0; i < nconns; i++)
        if (conns[i].ni == index) {
            conns[i].gone = true;
            conns[i].nbacklog = 0;
        }
}

static void on_ni_quiesce(struct lnet_ni *n, struct reactor_task *task)
{
    close_conns(n->index);
    loop_code.ops->ni_quiesce(n, task);
}

static void on_ni_stop(struct lnet_ni *n, struct reactor_task *task)
{
    say("    NI %u stops", n->index);
    close_conns(n->index);
    ni_stop_done[n->index] = task;
    ni_closed[n->index] = true;
}

bool conn_cancel(struct conn *c)
{
    bool forgotten;

    c->cancelling = true;
    ON(c->peer->reactor, forgotten = loop_cancel(&c->in));
    c->cancelling = false;
    if (!forgotten)
        return false;
    say("    %x cancelled", c->id);
    model_cancelled(c);
    c->state = CONN_IDLE;
    conn_reset(c);
    return true;
}

/* Ends everything of an NI; true when there is nothing left of it. */
static bool end_ni(unsigned index)
{
    bool left = false;
    unsigned i;

    for (i = 0; i < nat_lnd;)
        if (at_lnd[i]->ni == index) {
            ON(at_lnd[i]->to->reactor, send_end(at_lnd[i], shut));
            i = 0;
        } else {
            i++;
        }
    for (i = 0; i < nconns; i++) {
        struct conn *c = &conns[i];

        if (c->ni != index || c->state == CONN_IDLE)
            continue;
        if (c->state == CONN_RECEIVING)
            ON(c->peer->reactor, recv_end(c, shut));
        else
            left |= !conn_cancel(c);
    }
    return !left;
}

void stop_poll(void)
{
    for (unsigned i = 0; i < run.plan->nnis; i++)
        if (ni_stop_done[i] && end_ni(i)) {
            loop_code.ops->ni_stop(node->ni[i], ni_stop_done[i]);
            ni_stop_done[i] = NULL;
        }
}

void fail_peer(struct model_peer *p, enum lnet_drop why)
{
    const struct lnet_result result = {why, LNET_HEALTH_REMOTE_ERROR};
    unsigned i;

    for (i = 0; i < nat_lnd;)
        if (at_lnd[i]->to == p) {
            ON(p->reactor, send_end(at_lnd[i], result));
            i = 0;
        } else {
            i++;
        }
    for (i = 0; i < nconns; i++) {
        struct conn *c = &conns[i];

        if (c->peer != p)
            continue;
        c->nbacklog = 0;
        if (c->state == CONN_RECEIVING)
            ON(p->reactor, recv_end(c, rx_broke));
        else if (c->state == CONN_PARSED)
            (void)conn_cancel(c);
    }
}

/* The loopback LND as one of `tcp` nets and one of `o2ib` nets. */
struct lnd_ops lnd_tcp, lnd_ib;

static void __attribute__((constructor)) make_lnds(void)
{
    if (!lnd_type_register(&loop_type))
        abort();
    loop_hooks = (struct loop_hooks){.send = on_send, .recv = on_recv};
    lnd_tcp = *loop_code.ops;
    lnd_tcp.name = "tcp";
    lnd_tcp.type = LNET_LND_SOCK;
    lnd_tcp.recv_abandon = on_abandon;
    lnd_tcp.ni_init = on_ni_init;
    lnd_tcp.ni_start = on_ni_start;
    lnd_tcp.ni_quiesce = on_ni_quiesce;
    lnd_tcp.ni_stop = on_ni_stop;
    lnd_ib = lnd_tcp;
    lnd_ib.name = "o2ib";
    lnd_ib.type = LNET_LND_O2IB;
}

/* ---- gateways answer pings ---- */

struct answer {
    bool wanted;
    unsigned ni; /* where the ping came from */
    struct lnet_hdr hdr;
    struct conn *conn;
};

static struct answer answers[MAX_PEERS];

static uint32_t make_info(const struct model_peer *gw, uint8_t *buf, size_t cap)
{
    static struct lnet_ping_info info;

    info.features = LNET_PING_BASE | LNET_PING_NI_STATUS;
    info.pid = LNET_PID_LUSTRE;
    info.count = 1;
    info.ni[0].nid = gw->nid;
    info.ni[0].status = LNET_NI_UP;
    return (uint32_t)lnet_ping_encode(&info, buf, cap);
}

static void pong(const struct lnet_msg *msg)
{
    struct model_peer *gw = peer_of(&msg->tx_peer->nid);
    struct answer *a = &answers[gw->index];
    struct lnet_reply reply;
    struct lnet_get get;
    uint8_t info[INFO_MAX];

    if (!gw->gateway || (mode & MODE_MUTE))
        return;
    lnet_body_get_get(&msg->hdr, &get);
    reply.dst = get.ret;
    a->hdr = (struct lnet_hdr){.dest_nid = msg->hdr.src_nid,
                               .src_nid = gw->nid,
                               .dest_pid = LNET_PID_LUSTRE,
                               .src_pid = LNET_PID_LUSTRE,
                               .type = LNET_MSG_REPLY,
                               .payload_len = make_info(gw, info, sizeof(info))};
    lnet_body_set_reply(&a->hdr, &reply);
    a->ni = msg->tx_ni->index;
    a->wanted = true;
}

static void gateway_reply(const struct conn *c)
{
    const struct loop_rx *in = &c->in;
    uint8_t info[INFO_MAX];

    if (!in->segs || in->rx.hdr.type != LNET_MSG_REPLY)
        return;
    make_info(c->peer, info, sizeof(info));
    if (in->nsegs != 1 || in->mlen > in->segs[0].len || in->mlen > sizeof(info))
        prop_fail("the reply to a ping goes into %u bytes", in->segs[0].len);
    memcpy(in->segs[0].addr, info, in->mlen);
}

/* Gives the header of an idle connection to the core. */
static void parse(struct conn *c)
{
    enum lnet_drop why;

    c->state = CONN_PARSED;
    c->in.rx.ni = ni[c->ni];
    c->in.from = c->peer->nid;
    c->peer->core = lnet_peer_ni_get(node, &c->in.from); /* before loop_arrive(): for the model */
    if (!c->peer->core)
        prop_fail("no peer");
    lnet_peer_ni_put(c->peer->core);
    why = loop_arrive(&c->in);
    if (why)
        prop_fail("header %x is refused: %s", c->id, lnet_drop_info(why)->name);
}

/* The same with one for this node. */
static void conn_parse_local(struct conn *c, const struct lnet_hdr *hdr)
{
    c->local = true;
    c->id = NO_ID;
    c->in.rx.hdr = *hdr;
    parse(c);
}

/* On the last of a gateway's connections, which carries nothing else. */
void answer_pings(void)
{
    unsigned i;

    for (i = 0; i < npeers; i++) {
        struct answer *a = &answers[i];

        if (!a->wanted || a->conn->state != CONN_IDLE || ni_closed[a->ni] || a->conn->gone)
            continue;
        a->wanted = false;
        a->conn->ni = a->ni;
        ON(peers[i].reactor, conn_parse_local(a->conn, &a->hdr));
    }
}

/* ---- headers ---- */

static const uint32_t sizes[] = {0, 0, 1, 4095, 4096, 4097, 65536, LNET_MAX_PAYLOAD};

struct lnet_nid nid_of(const char *text)
{
    struct lnet_nid nid;

    if (nid_parse(text, &nid) != 0)
        prop_fail("bad NID %s", text);
    return nid;
}

/* A neighbour on another net, or a node behind gateways. */
static struct lnet_nid choose_dest(const struct conn *c, uint32_t b)
{
    unsigned n = b >> 8;

    if (run.plan->nroutes > 0 && b % 3 == 0)
        return nid_of(remote_nid[n % NREMOTE]);
    for (unsigned i = 0; i < npeers; i++) {
        const struct model_peer *p = &peers[(n + i) % npeers];

        if (nid_net(&p->nid) != nid_net(&c->peer->nid))
            return p->nid;
    }
    return nid_of(remote_nid[n % NREMOTE]);
}

static enum lnet_pool pool_of(uint32_t len)
{
    return len == 0 ? LNET_POOL_TINY : len <= 4096 ? LNET_POOL_SMALL : LNET_POOL_LARGE;
}

static void make_header(struct conn *c, uint32_t b, uint32_t what)
{
    bool reserved = what / 64 % 4 == 0; /* portal 0 */
    struct lnet_put put = {.portal = reserved ? 0 : PORTAL_BULK};
    struct lnet_get get = {.portal = reserved ? 0 : PORTAL_BULK};
    struct lnet_hdr h = {.dest_nid = choose_dest(c, b),
                         .src_nid = c->peer->nid,
                         .dest_pid = LNET_PID_LUSTRE,
                         .src_pid = c->id,
                         .payload_len = sizes[what % 8]};

    switch (what / 8 % 8) {
    case 0:
        h.type = LNET_MSG_ACK;
        h.payload_len = 0;
        c->urgent = true;
        break;
    case 1:
        h.type = LNET_MSG_GET;
        h.payload_len = 0;
        lnet_body_set_get(&h, &get);
        c->urgent = reserved;
        break;
    case 2:
    case 3:
        h.type = LNET_MSG_REPLY;
        c->urgent = h.payload_len == 0;
        break;
    default:
        h.type = LNET_MSG_PUT;
        lnet_body_set_put(&h, &put);
        c->urgent = reserved || h.payload_len == 0;
        break;
    }
    c->pool = pool_of(h.payload_len);
    c->in.rx.hdr = h;
}

static void make_ping(struct conn *c)
{
    struct lnet_hdr h = {.dest_nid = ni[c->ni]->nid,
                         .src_nid = c->peer->nid,
                         .dest_pid = LNET_PID_LUSTRE,
                         .src_pid = LNET_PID_LUSTRE,
                         .type = LNET_MSG_GET};
    struct lnet_get get = {
        .ret = {0x1111, 0x2221}, .match_bits = LNET_PING_MATCH_BITS, .sink_length = 4096};

    lnet_body_set_get(&h, &get);
    conn_parse_local(c, &h);
}

/* On its reactor. */
void conn_parse(struct conn *c, uint32_t b, uint32_t what)
{
    char dest[LNET_NIDSTR_SIZE];
    uint32_t id;

    if (what / 256 % 16 == 0) {
        make_ping(c);
        return;
    }
    c->local = false;
    id = c->id = next_id++;
    make_header(c, b, what);
    say("    %x arrives at connection %u of peer %u: %s %u%s for %s", c->id, c->index,
        c->peer->index, lnet_msg_type_name(c->in.rx.hdr.type), c->in.rx.hdr.payload_len,
        c->urgent ? " (urgent)" : "", nid_format(&c->in.rx.hdr.dest_nid, dest));
    model_parse(c);
    parse(c);
    model_parsed(c, id);
}

/* ---- connections ---- */

void lnd_reset(void)
{
    mode = 0;
    next_id = FIRST_ID;
    memset(ni_stop_done, 0, sizeof(ni_stop_done));
    memset(ni_closed, 0, sizeof(ni_closed));
    memset(answers, 0, sizeof(answers));
}

void conns_make(struct model_peer *p, unsigned n)
{
    for (unsigned i = 0; i < n + p->gateway && nconns < MAX_CONNS; i++) {
        struct conn *c = &conns[nconns];

        *c = (struct conn){.index = nconns++, .ni = p->ni, .peer = p};
        if (i % 2 && run.plan->nnis == MAX_NIS && p->ni == SECOND_NI_OF)
            c->ni = MAX_NIS - 1;
        if (p->gateway)
            answers[p->index].conn = c; /* the last */
    }
}

bool conn_is_for_answers(const struct conn *c)
{
    return answers[c->peer->index].conn == c;
}
