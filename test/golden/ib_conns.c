/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the o2iblnd golden test: whose each message is, what a transfer is made of, and
 * the credits of both sides, counted by lib/lnd_verbs/ib_credits.c from the recorded messages
 * alone. */
#include "ib_check.h"

#include <stdio.h>
#include <stdlib.h>

#define PSN_MASK      0xffffffu
#define TRANSFERS_MAX 32
/* Two idle nodes have posted a receive buffer again long before this. */
#define LATE_US 200000

struct transfer {
    uint8_t type; /* IB_PUT_REQ, IB_GET_REQ; 0 = free */
    bool acked;   /* or a GET_REQ */
    unsigned sink;
    uint64_t cookie, dst_cookie;
    uint32_t wanted; /* bytes the LNet header names */
    uint32_t key;
    struct ib_frag frag;
    uint32_t written;
};

struct step { /* a message */
    uint8_t from, type, returned;
    uint64_t time_us;
};

struct side {
    uint8_t addr[16];
    bool qpn_known, psn_known;
    uint32_t qpn;
    uint32_t psn; /* of the next packet it sends */
    uint64_t nid, stamp;
    uint8_t last[IB_MSG_SIZE]; /* message */
    size_t last_len;
};

struct conn {
    struct side side[2]; /* 0: who dialled, when that was recorded */
    bool up, early, ends_known;
    uint32_t cm_id;
    unsigned depth;
    struct ib_conn_msg req;
    const struct ib_run *run; /* in which it was last seen */
    struct transfer transfers[TRANSFERS_MAX];
    struct step *steps;
    size_t nsteps, cap_steps, checked; /* counted before */
};

struct ib_conns {
    struct conn **list;
    size_t count, cap;
    struct ib_ask ask; /* of who was rejected last: nid 0 = nobody */
};

static const char conn_unit[] = "connection";

struct ib_conns *ib_conns_new(void)
{
    struct ib_conns *all = calloc(1, sizeof(*all));

    if (!all)
        abort();
    return all;
}

void ib_conns_free(struct ib_conns *all)
{
    for (size_t i = 0; i < all->count; i++) {
        free(all->list[i]->steps);
        free(all->list[i]);
    }
    free(all->list);
    free(all);
}

static struct conn *conn_add(struct ib_conns *all)
{
    struct conn *c = calloc(1, sizeof(*c));

    if (all->count == all->cap) {
        all->cap = all->cap * 2 + 16;
        all->list = realloc(all->list, all->cap * sizeof(all->list[0]));
    }
    if (!c || !all->list)
        abort();
    c->depth = 8; /* what all of these nodes offer, when its beginning is not recorded */
    return all->list[all->count++] = c;
}

/* ---- set-up ---- */

static bool same_addr(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, 16) == 0;
}

/* by: who sent the REQ. */
static struct conn *conn_by_id(struct ib_conns *all, uint32_t id, const uint8_t *by)
{
    for (size_t i = all->count; i-- > 0;) {
        if (all->list[i]->cm_id == id && same_addr(all->list[i]->side[0].addr, by))
            return all->list[i];
    }
    return NULL;
}

static void set_side(struct side *s, const struct roce_packet *p, const struct ib_hdr *hdr)
{
    memcpy(s->addr, p->src, sizeof(s->addr));
    s->qpn_known = true;
    s->qpn = p->cm.qpn;
    s->nid = hdr->src_nid;
    s->stamp = hdr->src_stamp;
}

static void set_psn(struct side *s, uint32_t psn)
{
    s->psn_known = true;
    s->psn = psn;
}

/* What an NI says of itself in an answer, its incarnation being the one it gives there. */
static struct ib_caller called_by(const struct ib_terms *ni)
{
    return (struct ib_caller){.ni = ni, .depth_max = IB_DEPTH_MAX};
}

static struct ib_ask ask_of(const struct ib_conn_msg *req)
{
    return (struct ib_ask){
        .mine = {req->hdr.src_nid, req->hdr.src_stamp, req->queue_depth, req->max_frags},
        .peer_nid = req->hdr.dst_nid,
        .peer_stamp = req->hdr.dst_stamp,
    };
}

/* We would have answered this request with the same bytes, and taken the answer. */
static void judge_accepted(struct ib_run *run, const struct conn *c, const struct roce_packet *p,
                           const struct ib_conn_msg *ack)
{
    struct ib_terms ni = {ack->hdr.src_nid, ack->hdr.src_stamp, ack->queue_depth, ack->max_frags};
    struct ib_caller caller = called_by(&ni);
    struct ib_ask ask = ask_of(&c->req);
    uint8_t bytes[IB_CONN_SIZE];
    struct ib_verdict v;

    if (ib_request_judge(&caller, &c->req, &v) != LNET_DROP_NONE) {
        ib_complain(run, "CONNREQ", lnet_drop_info(v.drop)->name);
        return;
    }
    ib_conn_encode(&v.ack, bytes);
    if (memcmp(bytes, p->cm.priv, sizeof(bytes)) != 0)
        ib_complain(run, "CONNACK", "ours would be another");
    if (ib_ack_judge(&ask, LNET_DROP_NONE, ack) != LNET_DROP_NONE)
        ib_complain(run, "CONNACK", "we would not take it");
    run->counts.judged++;
}

/* All rejects in these recordings are for a restart: the rejecter knows another incarnation. We
 * take such a request at once, since anybody may send one; for another reason our reject has these
 * bytes.
 */
static void judge_rejected(struct ib_run *run, const struct conn *c, const struct roce_packet *p)
{
    struct ib_caller caller;
    struct ib_terms ni = {0};
    struct ib_reject rej, ours;
    uint8_t bytes[IB_REJECT_SIZE];
    struct ib_verdict v;

    if (ib_reject_decode(p->cm.priv, p->cm.priv_len, &rej) != LNET_DROP_NONE || !rej.params)
        return; /* complained of before */
    ni = (struct ib_terms){c->req.hdr.dst_nid, rej.stamp, rej.queue_depth, rej.max_frags};
    caller = called_by(&ni);
    if (ib_request_judge(&caller, &c->req, &v) != LNET_DROP_NONE)
        ib_complain(run, "CONNREQ of a restarted node", lnet_drop_info(v.drop)->name);
    ib_refuse(IB_DROP(CONN_STALE), &ni, &ours);
    ib_reject_encode(&ours, bytes);
    if (memcmp(bytes, p->cm.priv, sizeof(bytes)) != 0)
        ib_complain(run, "reject", "ours would be another");
    run->counts.judged++;
}

#define CM_REASON_TIMEOUT 4

static void take_rej(struct ib_conns *all, struct ib_run *run, const struct roce_packet *p)
{
    struct conn *c = conn_by_id(all, p->cm.remote_id, p->dst);

    if (!c || p->cm.reason == CM_REASON_TIMEOUT)
        return; /* who gives up tells so, without an answer being due */
    if (p->cm.reason == IB_CM_CONSUMER)
        judge_rejected(run, c, p);
    all->ask = ask_of(&c->req);
    if (ib_rejected(&all->ask, (int)p->cm.reason, p->cm.priv, p->cm.priv_len) != IB_NEXT_NOW)
        ib_complain(run, "reject", "the node called again, and we would not");
}

/* A node that was rejected asks again: we would ask for the same. */
static void check_next_try(struct ib_conns *all, struct ib_run *run, const struct ib_conn_msg *req)
{
    uint8_t ours[IB_CONN_SIZE], theirs[IB_CONN_SIZE];
    struct ib_conn_msg next;

    if (all->ask.mine.nid != req->hdr.src_nid)
        return;
    ib_ask_request(&all->ask, &next);
    all->ask.mine.nid = 0;
    ib_conn_encode(&next, ours);
    ib_conn_encode(req, theirs); /* as recorded, which was checked before */
    if (memcmp(ours, theirs, sizeof(ours)) != 0)
        ib_complain(run, "CONNREQ", "after the reject we would ask otherwise");
    run->counts.judged++;
}

static void take_req(struct ib_conns *all, struct ib_run *run, const struct roce_packet *p,
                     const struct ib_conn_msg *msg)
{
    struct conn *c;

    if (conn_by_id(all, p->cm.local_id, p->src)) {
        run->counts.again++;
        return;
    }
    check_next_try(all, run, msg);
    c = conn_add(all);
    c->req = *msg;
    c->cm_id = p->cm.local_id;
    c->depth = msg->queue_depth;
    set_side(&c->side[0], p, &msg->hdr);
    memcpy(c->side[1].addr, p->dst, sizeof(p->dst));
    c->side[1].nid = msg->hdr.dst_nid;
    set_psn(&c->side[1], p->cm.psn);
}

static void take_rep(struct ib_conns *all, struct ib_run *run, const struct roce_packet *p,
                     const struct ib_conn_msg *msg)
{
    struct conn *c = conn_by_id(all, p->cm.remote_id, p->dst);

    if (!c) {
        ib_complain(run, "CONNACK", "answers nothing");
        return;
    }
    if (c->up) {
        run->counts.again++;
        return;
    }
    if (msg->hdr.dst_nid != c->side[0].nid || msg->hdr.dst_stamp != c->side[0].stamp ||
        msg->hdr.src_nid != c->side[1].nid || msg->queue_depth > c->depth)
        ib_complain(run, "CONNACK", "does not fit its CONNREQ");
    judge_accepted(run, c, p, msg);
    set_side(&c->side[1], p, &msg->hdr);
    set_psn(&c->side[0], p->cm.psn);
    c->depth = msg->queue_depth;
    c->up = c->ends_known = true;
}

/* ---- whose a packet is ---- */

/* Sets *from to the side that sent it. */
static struct conn *find_conn(struct ib_conns *all, const struct roce_packet *p, unsigned *from)
{
    size_t i;

    for (i = all->count; i-- > 0;) {
        struct conn *c = all->list[i];

        for (*from = 0; c->up && *from < 2; ++*from) {
            const struct side *to = &c->side[!*from];

            /* Of one that began before the recordings the other number is not known: a pair of
             * nodes has one such at a time. */
            if (same_addr(c->side[*from].addr, p->src) && same_addr(to->addr, p->dst) &&
                (to->qpn_known ? to->qpn == p->dest_qp : c->early))
                return c;
        }
    }
    return NULL;
}

static struct conn *add_early(struct ib_conns *all, const struct roce_packet *p)
{
    struct conn *c = conn_add(all);

    memcpy(c->side[0].addr, p->src, sizeof(p->src));
    memcpy(c->side[1].addr, p->dst, sizeof(p->dst));
    c->up = c->early = true;
    return c;
}

/* The connection of an earlier recording, of which messages in between are in none. */
static struct conn *add_resumed(struct ib_conns *all, const struct conn *old)
{
    struct conn *c = conn_add(all);

    c->up = c->early = true;
    c->ends_known = old->ends_known;
    c->depth = old->depth;
    for (unsigned i = 0; i < 2; i++) {
        c->side[i] = old->side[i];
        c->side[i].psn_known = false;
    }
    return c;
}

static struct conn *owner(struct ib_conns *all, struct ib_run *run, const struct roce_packet *p,
                          unsigned *from)
{
    struct conn *c = find_conn(all, p, from);

    if (!c) {
        *from = 0;
        c = add_early(all, p);
    } else if (c->run != run && c->side[*from].psn_known && c->side[*from].psn != p->psn) {
        c = add_resumed(all, c);
    }
    if (c->run != run) {
        c->run = run;
        run->counts.conns++;
        run->counts.early += c->early;
    }
    c->side[!*from].qpn_known = true;
    c->side[!*from].qpn = p->dest_qp;
    return c;
}

/* Whether the packet is the next one. */
static bool is_next(struct ib_run *run, struct side *s, const struct roce_packet *p)
{
    if (s->psn_known && p->psn != s->psn) {
        if (((s->psn - p->psn) & PSN_MASK) > PSN_MASK / 2)
            ib_complain(run, conn_unit, "packets are missing");
        else
            run->counts.again++;
        return false;
    }
    set_psn(s, (p->psn + 1) & PSN_MASK);
    return true;
}

/* ---- transfers: what is asked, answered and written fits together, §5 ---- */

static struct transfer *transfer_find(struct conn *c, unsigned type, unsigned sink, bool acked,
                                      uint64_t cookie)
{
    for (struct transfer *t = c->transfers; t < c->transfers + TRANSFERS_MAX; t++) {
        if (t->type == type && t->sink == sink && t->acked == acked &&
            (acked && type == IB_PUT_REQ ? t->dst_cookie : t->cookie) == cookie)
            return t;
    }
    return NULL;
}

static struct transfer *transfer_add(struct conn *c)
{
    for (struct transfer *t = c->transfers; t < c->transfers + TRANSFERS_MAX; t++) {
        if (t->type == 0)
            return t;
    }
    return NULL;
}

/* Returns what is wrong, or NULL. */
static const char *take_rd(struct transfer *t, const struct ib_msg *m)
{
    t->key = m->rd.key;
    t->acked = true;
    ib_rd_frag(&m->rd, 0, &t->frag);
    if (m->rd.nfrags != 1)
        return "has several fragments, which this test does not follow";
    return m->rd.total == t->wanted ? NULL : "describes another length than is wanted";
}

static const char *take_request(struct conn *c, unsigned from, const struct ib_msg *m)
{
    struct transfer *t = transfer_add(c);
    struct lnet_get get;

    if (!t)
        return "too many transfers at once";
    *t = (struct transfer){.type = m->hdr.type, .cookie = m->cookie};
    if (t->type == IB_PUT_REQ) {
        t->sink = !from;
        t->wanted = m->lnet.payload_len;
        return NULL;
    }
    lnet_body_get_get(&m->lnet, &get);
    t->sink = from;
    t->wanted = get.sink_length;
    return take_rd(t, m);
}

static const char *take_done(struct transfer *t, const struct ib_msg *m)
{
    if (!t)
        return "ends nothing that was begun";
    t->type = 0;
    if (m->status < 0)
        return NULL;
    return (uint32_t)m->status == t->written && t->written == t->wanted
               ? NULL
               : "other bytes were written than it says";
}

static const char *take_transfer(struct conn *c, unsigned from, const struct ib_msg *m)
{
    struct transfer *t;

    switch (m->hdr.type) {
    case IB_PUT_REQ:
    case IB_GET_REQ:
        return take_request(c, from, m);
    case IB_PUT_ACK:
        t = transfer_find(c, IB_PUT_REQ, from, false, m->cookie);
        if (!t)
            return "answers nothing";
        t->dst_cookie = m->dst_cookie;
        return take_rd(t, m);
    case IB_PUT_NAK:
        t = transfer_find(c, IB_PUT_REQ, from, false, m->cookie);
        if (!t)
            return "answers nothing";
        t->type = 0;
        return NULL;
    case IB_PUT_DONE:
        return take_done(transfer_find(c, IB_PUT_REQ, !from, true, m->cookie), m);
    case IB_GET_DONE:
        return take_done(transfer_find(c, IB_GET_REQ, !from, true, m->cookie), m);
    default:
        return NULL;
    }
}

static void take_write(struct conn *c, unsigned from, struct ib_run *run,
                       const struct roce_packet *p)
{
    run->counts.write++;
    run->counts.written += p->total;
    for (struct transfer *t = c->transfers; t < c->transfers + TRANSFERS_MAX; t++) {
        if (t->type != 0 && t->acked && t->sink != from && t->key == p->key &&
            p->addr - t->frag.addr <= t->frag.nob &&
            p->total <= t->frag.nob - (p->addr - t->frag.addr)) {
            t->written += p->total;
            return;
        }
    }
    ib_complain(run, "write", "is not where a descriptor says");
}

/* ---- messages ---- */

static void check_ends(struct conn *c, unsigned from, struct ib_run *run, const struct ib_hdr *h)
{
    struct side *s = &c->side[from], *to = &c->side[!from];
    struct ib_ends ends;
    enum lnet_drop drop;

    if (!c->ends_known) { /* its first message says who they are */
        c->ends_known = true;
        s->nid = h->src_nid;
        s->stamp = h->src_stamp;
        to->nid = h->dst_nid;
        to->stamp = h->dst_stamp;
    }
    ends = (struct ib_ends){to->nid, to->stamp, s->nid, s->stamp};
    drop = ib_msg_ends(h, &ends);
    if (drop != LNET_DROP_NONE)
        ib_complain(run, ib_type_name(h->type), lnet_drop_info(drop)->name);
}

static void add_step(struct conn *c, unsigned from, const struct ib_hdr *h, uint64_t now)
{
    if (c->nsteps == c->cap_steps) {
        c->cap_steps = c->cap_steps * 2 + 64;
        c->steps = realloc(c->steps, c->cap_steps * sizeof(c->steps[0]));
        if (!c->steps)
            abort();
    }
    c->steps[c->nsteps++] = (struct step){(uint8_t)from, h->type, h->credits, now};
}

static void take_send(struct conn *c, unsigned from, struct ib_run *run,
                      const struct roce_packet *p)
{
    struct side *s = &c->side[from];
    const char *wrong;
    struct ib_msg m;

    if (!is_next(run, s, p)) {
        if (p->len != s->last_len || memcmp(p->data, s->last, p->len) != 0)
            ib_complain(run, conn_unit, "something else was sent again");
        return;
    }
    if (!ib_check_message(run, p->data, p->len, &m))
        return;
    memcpy(s->last, p->data, p->len);
    s->last_len = p->len;
    check_ends(c, from, run, &m.hdr);
    wrong = take_transfer(c, from, &m);
    if (wrong)
        ib_complain(run, ib_type_name(m.hdr.type), wrong);
    run->counts.returned += m.hdr.credits;
    add_step(c, from, &m.hdr, p->time_us);
}

void ib_conns_packet(struct ib_conns *all, struct ib_run *run, const struct roce_packet *p)
{
    struct ib_conn_msg msg;
    struct conn *c;
    unsigned from;

    switch (p->kind) {
    case ROCE_MAD:
        if (!ib_check_private(run, p, &msg))
            return;
        if (p->cm.attr == CM_REQ)
            take_req(all, run, p, &msg);
        else if (p->cm.attr == CM_REP)
            take_rep(all, run, p, &msg);
        else if (p->cm.attr == CM_REJ)
            take_rej(all, run, p);
        return;
    case ROCE_SEND:
        c = owner(all, run, p, &from);
        take_send(c, from, run, p);
        return;
    case ROCE_WRITE_FIRST:
    case ROCE_WRITE_REST:
        c = owner(all, run, p, &from);
        if (is_next(run, &c->side[from], p) && p->kind == ROCE_WRITE_FIRST)
            take_write(c, from, run, p);
        return;
    case ROCE_ACK:
        return;
    default:
        run->counts.other++;
        ib_complain(run, "packet", "of a kind that is not understood");
    }
}

/* ---- credits ---- */

/* A receive buffer whose message is worked on: when it will be posted again is not on the wire. */
struct held {
    uint8_t type;
    uint64_t time_us;
};

struct account {
    struct ib_credits c;
    struct held held[2 * IB_DEPTH_MAX + 2]; /* oldest first */
    unsigned nheld;
    unsigned puts, gets; /* requests not answered yet */
};

struct replay {
    struct account side[2];
    const char *wrong;       /* or NULL */
    unsigned long long late; /* in this recording */
};

static void hold(struct account *a, unsigned type, uint64_t now)
{
    a->held[a->nheld++] = (struct held){(uint8_t)type, now};
}

static void repost_oldest(struct account *a)
{
    ib_credits_repost(&a->c, a->held[0].type, false);
    a->nheld--;
    memmove(a->held, a->held + 1, a->nheld * sizeof(a->held[0]));
}

/* As much is posted again as the header says that there was. Returns what is wrong, or NULL. */
static const char *owe(struct account *a, const struct step *s, unsigned long long *late)
{
    uint64_t due = s->time_us - LATE_US;

    *late += a->nheld > 0 && a->held[0].time_us < due;
    while (a->c.owed < s->returned && a->nheld > 0)
        repost_oldest(a);
    if (a->c.owed < s->returned)
        return "returns credits that it does not owe";
    if (a->nheld > 0 && a->held[0].time_us < due)
        return "keeps credits that it has owed for long";
    return NULL;
}

static const char *sender_step(struct account *a, const struct step *s, unsigned long long *late)
{
    const char *wrong;

    /* The buffer of a PUT_REQ is posted before its PUT_ACK goes; of a GET_REQ after GET_DONE. */
    if (s->type == IB_PUT_ACK) {
        if (a->puts == 0)
            return "PUT_ACK without PUT_REQ";
        a->puts--;
        ib_credits_repost(&a->c, IB_PUT_REQ, true);
    }
    wrong = owe(a, s, late);
    if (wrong)
        return wrong;
    if (ib_class_of(s->type) == IB_CLASS_REQUEST && !ib_credits_reserve(&a->c))
        return "sends a request without reserve";
    if (ib_credits_may_post(&a->c, s->type) != IB_MAY_POST)
        return "sends without credit";
    if (ib_credits_post(&a->c, s->type) != s->returned)
        return "returns other credits than it owes";
    ib_credits_sent(&a->c, s->type);
    if (s->type == IB_GET_DONE && a->gets > 0) {
        a->gets--;
        hold(a, IB_GET_REQ, s->time_us);
    }
    if (s->type == IB_PUT_NAK && a->puts > 0) {
        a->puts--;
        hold(a, IB_PUT_REQ, s->time_us);
    }
    return NULL;
}

static const char *receiver_step(struct account *a, const struct step *s)
{
    enum lnet_drop drop = ib_credits_receive(&a->c, s->type, s->returned);
    struct ib_credits all;

    if (drop != LNET_DROP_NONE)
        return lnet_drop_info(drop)->name;
    switch (s->type) {
    case IB_PUT_REQ:
        a->puts++;
        break;
    case IB_GET_REQ:
        a->gets++;
        break;
    case IB_IMMEDIATE:
    case IB_PUT_DONE:
        hold(a, s->type, s->time_us);
        break;
    default:
        ib_credits_repost(&a->c, s->type, false);
        break;
    }
    all = a->c; /* were everything posted again now, would a NOOP have to go? There is none */
    all.owed = (uint16_t)(all.owed + a->nheld);
    if (ib_credits_need_noop(&all, false, false))
        return "would have to send a NOOP";
    return NULL;
}

/* All messages of a connection, where side i owes owed[i] credits at the beginning. */
static void replay(const struct conn *c, const unsigned owed[2], struct replay *r)
{
    unsigned hiw = ib_credits_hiw(c->depth, c->depth, 0), i, k;
    unsigned long long before = 0;
    size_t n;

    memset(r, 0, sizeof(*r));
    for (i = 0; i < 2; i++) {
        ib_credits_init(&r->side[i].c, c->depth, hiw, c->depth);
        r->side[i].c.credits = (uint16_t)(c->depth - owed[!i]);
        r->side[i].c.spent = (uint16_t)owed[i];
        for (k = 0; k < owed[i]; k++)
            hold(&r->side[i], IB_IMMEDIATE, 0);
    }
    for (n = 0; n < c->nsteps && !r->wrong; n++) {
        const struct step *s = &c->steps[n];

        r->wrong = sender_step(&r->side[s->from], s, n < c->checked ? &before : &r->late);
        if (!r->wrong)
            r->wrong = receiver_step(&r->side[!s->from], s);
        for (i = 0; i < 2 && !r->wrong; i++) {
            /* Nothing is on its way here, so every credit is at home or spent. */
            if (r->side[i].c.credits + r->side[!i].c.spent != c->depth)
                r->wrong = "credits are lost";
        }
    }
}

/* One whose beginning is not recorded may have owed something then. Returns how many beginnings
 * fit; *first is the first of them, else the last that was tried. */
static unsigned fitting(const struct conn *c, struct replay *first)
{
    unsigned most = c->early ? c->depth / 2 : 0, fits = 0, owed[2];
    struct replay r;

    for (owed[0] = 0; owed[0] <= most; owed[0]++) {
        for (owed[1] = 0; owed[1] <= most; owed[1]++) {
            replay(c, owed, &r);
            if (fits == 0)
                *first = r;
            fits += r.wrong == NULL;
        }
    }
    return fits;
}

/* Changes what each header returns by one: the check itself must notice. It cannot of one less when
 * the buffer may just not have been posted again yet, nor always when the beginning is unknown. */
static void mutate_credits(struct conn *c, struct ib_run *run)
{
    struct replay r;
    size_t n;

    for (n = c->checked; n < c->nsteps; n++) {
        struct step *s = &c->steps[n];

        s->returned++;
        if (fitting(c, &r) > 0) {
            run->counts.more_unseen++;
            if (!c->early)
                ib_complain(run, conn_unit, "a credit too many is not noticed");
        }
        s->returned--;
        if (s->returned == 0)
            continue;
        s->returned--;
        run->counts.less_unseen += fitting(c, &r) > 0;
        s->returned++;
    }
}

static void check_credits(struct conn *c, struct ib_run *run)
{
    struct replay first;
    unsigned fits = fitting(c, &first);

    if (fits == 0)
        ib_complain(run, conn_unit, c->early ? "credits fit no beginning" : first.wrong);
    mutate_credits(c, run);
    run->counts.steps += c->nsteps - c->checked;
    run->counts.late += first.late;
    run->counts.starts += c->early ? fits : 0;
    c->checked = c->nsteps;
}

void ib_conns_credits(struct ib_conns *all, struct ib_run *run)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i]->run == run)
            check_credits(all->list[i], run);
    }
}
