/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The books. What a pool, an account, a credit must be is computed here from the messages that are
 * known to be under way, by the rules in words; nothing of the core's arithmetic is used. The
 * core's own numbers are read only to be compared.
 */
#include "test/unit/property_model.h"

#include <stdlib.h>

#define BEHIND_US SEC        /* what lies behind a wait that was in vain */
#define LATE_US   (SEC / 10) /* without payload */
#define HOLD_US   (SEC / 4)  /* not whole */
#define SLOW_US   (10 * SEC) /* for all of the payload */
#define HELD_US   (SEC / 5)  /* a message that was received so long ago may hold no credit */
#define LIKE_US   (10 * SEC) /* so long what goes to others than quick ones holds none either */

struct books books;
struct model_peer peers[MAX_PEERS];
unsigned npeers;
struct conn conns[MAX_CONNS];
unsigned nconns;
struct tracked *at_lnd[MAX_TRACKED];
unsigned nat_lnd;
bool route_there[MAX_ROUTES];
bool ni_gone[MAX_NIS], ni_cannot_start;
unsigned share, wait_s;
unsigned pool_totals[LNET_POOLS], pool_totals_old[LNET_POOLS];

/* ---- small things ---- */

struct model_peer *peer_of(const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < npeers; i++)
        if (nid_same(&peers[i].nid, nid))
            return &peers[i];
    prop_fail("a next hop that is no neighbour");
}

struct tracked *tracked_of(const struct lnet_msg *msg)
{
    const struct lnet_shard *s = msg->home;
    size_t i = (size_t)(msg - s->msgs);

    if (i >= s->total_msgs)
        prop_fail("a message that is none of its shard's descriptors");
    return &books.table[s->index][i];
}

static void credit_init(struct credit *c, int max)
{
    *c = (struct credit){.max = max, .now = max, .min = max};
}

unsigned acct_of(const struct lnet_nid *next_hop, bool gateway)
{
    return 2 * peer_of(next_hop)->index + gateway;
}

static bool acct_gateway(unsigned acct)
{
    return acct % 2;
}

static unsigned gateways_with_routes(void)
{
    bool seen[MAX_PEERS] = {false};
    unsigned n = 0;

    for (unsigned i = 0; i < run.plan->nroutes; i++)
        if (route_there[i] && !seen[run.plan->route[i].gw]) {
            seen[run.plan->route[i].gw] = true;
            n++;
        }
    return n;
}

/* ---- beginning ---- */

void model_reset(void)
{
    memset(&books, 0, sizeof(books));
    memset(route_there, 0, sizeof(route_there));
    memset(ni_gone, 0, sizeof(ni_gone));
    npeers = nconns = nat_lnd = event_number = 0;
}

void model_done(void)
{
    for (unsigned i = 0; i < nreactors; i++)
        free(books.table[i]);
}

/* All there can ever be of small and large buffers fits into what was given. */
static void check_budget(void)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < nreactors; i++)
        bytes +=
            node->shard[i]->credit->pool[LNET_POOL_SMALL].capacity * (size_t)LNET_SMALL_BUFFER +
            node->shard[i]->credit->pool[LNET_POOL_LARGE].capacity * (size_t)MEM_LANDING_SLOT;
    if (bytes > run.plan->memory)
        prop_fail("%zu bytes of buffers, and %zu were given", bytes, run.plan->memory);
}

/* lnet-core §5.1 */
static void ni_credit_init(unsigned r, unsigned k)
{
    const struct lnet_tunables *tun = &run.plan->tun[k];
    int all = tun->credits, part = all / (int)nreactors;

    if (part < 8 * tun->peer_credits)
        part = 8 * tun->peer_credits;
    credit_init(&books.tq[r][k].credit, nreactors == 1 || part > all ? all : part);
}

void __real_lnet_ni_credits_init(struct lnet_shard *s, const struct lnet_ni *n);
void __wrap_lnet_ni_credits_init(struct lnet_shard *s, const struct lnet_ni *n);

/* Another NI has the index from here on. */
void __wrap_lnet_ni_credits_init(struct lnet_shard *s, const struct lnet_ni *n)
{
    if (books.tq[s->index][n->index].queue.head)
        prop_fail("NI %u begins with messages that wait for it", n->index);
    __real_lnet_ni_credits_init(s, n);
    ni_credit_init(s->index, n->index);
}

void model_init(void)
{
    const struct plan *p = run.plan;
    unsigned i;

    check_budget();
    for (i = 0; i < nreactors; i++) {
        books.table[i] = calloc(node->shard[i]->total_msgs, sizeof(*books.table[i]));
        if (!books.table[i])
            prop_fail("no memory");
        tracked_queue_init(&books.ready[i]);
        for (const struct lnet_next_hop *d = node->shard[i]->credit->free_next_hops; d;
             d = d->hash_next)
            books.dests_at_start[i]++;
        for (unsigned k = 0; k < p->nnis; k++) {
            ni_credit_init(i, k);
            tracked_queue_init(&books.tq[i][k].queue);
        }
    }
    for (i = 0; i < npeers; i++) {
        const struct lnet_tunables *tun = &p->tun[peers[i].ni];

        credit_init(&peers[i].tx, tun->peer_credits);
        credit_init(&peers[i].rtr,
                    tun->peer_buffer_credits > 0 ? tun->peer_buffer_credits : tun->peer_credits);
        tracked_queue_init(&peers[i].txq);
    }
}

/* ---- the rule ---- */

/* What is free for an account, after what is set aside for others. */
static int free_for(unsigned r, enum lnet_pool k, unsigned acct, enum lnet_class class)
{
    const struct model_pool *p = &books.pool[r][k];
    unsigned total = node->shard[r]->credit->pool[k].total, aside = gateways_with_routes(), reserve;
    int left = (int)total - (int)p->used;

    for (unsigned i = 0; i < npeers; i++) /* gateways that hold one need none set aside */
        if (p->held[2 * i + 1] > 0 && aside > 0)
            aside--;
    aside = min(aside, total / 2);
    reserve = total / 16;
    if (k == LNET_POOL_LARGE)
        reserve = min(reserve, 1u);
    left -= (int)aside;
    if (class != LNET_CLASS_URGENT)
        left -= (int)reserve;
    return class > LNET_CLASS_QUICK ? left - (int)(total / 16) : left;
}

unsigned held_for(unsigned r, enum lnet_pool k, bool gateways)
{
    unsigned i, n = 0;

    for (i = 0; i < books.nactive; i++) {
        const struct tracked *t = books.active[i];

        n += t->home == r && t->pool == k && acct_gateway(t->acct) == gateways &&
             (gateways || !t->stalled);
    }
    return n;
}

/* Quick messages count what such messages of their next hop hold. */
static unsigned quick_held(unsigned r, enum lnet_pool k, unsigned acct)
{
    unsigned i, n = 0;

    for (i = 0; i < books.nactive; i++) {
        const struct tracked *t = books.active[i];

        n += t->home == r && t->pool == k && t->acct == acct && !t->stalled && t->msg->quick;
    }
    return n;
}

bool model_may(unsigned r, enum lnet_pool k, unsigned acct, enum lnet_class class)
{
    bool slow = class == LNET_CLASS_SLOW;
    const struct model_pool *p = &books.pool[r][k];
    unsigned total = node->shard[r]->credit->pool[k].total, held;
    int left;

    if (p->used >= total)
        return false;
    left = free_for(r, k, acct, class);
    if (acct_gateway(acct)) {
        if (held_for(r, k, true) + 1 >= total) {
            covered(COVER_GATEWAY_LAST);
            return false;
        }
        if (p->held[acct] == 0 && (!slow || p->stalled == 0)) {
            if (left <= 0)
                covered(COVER_GATEWAY_OWN);
            return true;
        }
    } else if (held_for(r, k, false) == 0 && (!slow || p->stalled == 0)) {
        if (left <= 0)
            covered(COVER_END_OWN);
        return true;
    }
    if (left <= 0)
        return false;
    if (class == LNET_CLASS_URGENT && free_for(r, k, acct, LNET_CLASS_BULK) <= 0)
        covered(COVER_URGENT);
    held = slow && p->stalled > p->held[acct] ? p->stalled : p->held[acct];
    if (class == LNET_CLASS_QUICK)
        held = quick_held(r, k, acct);
    return held == 0 || held * 100 < (unsigned)left * share;
}

/* ---- headers ---- */

enum stage stage_now(const struct conn *c)
{
    if (c->state != CONN_PARSED || c->local)
        return STAGE_NONE;
    if (c->in.rx.wait == LNET_RX_WAIT_CREDIT)
        return STAGE_CREDIT;
    return c->in.rx.wait == LNET_RX_WAIT_BUFFER ? STAGE_BUFFER : STAGE_NONE;
}

void model_parse(struct conn *c)
{
    c->stage = STAGE_NONE;
    c->seq = ++books.arrivals;
    c->parsed_us = clock_us;
    c->wait_us = (uint64_t)wait_s * SEC;
    c->dropped = false;
    c->msg = NULL;
    c->rtr_taken = false;
    c->cancelling = false;
    books.parsing = c;
    books.parsed++;
}

int waiting_for_credit(const struct model_peer *p)
{
    int n = 0;

    for (unsigned i = 0; i < nconns; i++)
        n += conns[i].peer == p && stage_now(&conns[i]) == STAGE_CREDIT;
    return n;
}

/* Headers that the core has taken out of their queues and will drop in this same call. */
static void sync_left(const struct model_peer *p)
{
    unsigned i;

    for (i = 0; i < nconns; i++) {
        struct conn *c = &conns[i];

        if (c->peer != p || c->state != CONN_PARSED || c->local || !c->rtr_taken ||
            c->stage == STAGE_NONE || stage_now(c) != STAGE_NONE)
            continue;
        c->rtr_taken = false;
        c->peer->rtr.now++;
    }
}

/* It has one, or its place in the queue of those who want one. */
static void take_router_credit(struct conn *c, bool waits)
{
    struct credit *rtr = &c->peer->rtr;

    if (c->rtr_taken)
        return;
    sync_left(c->peer);
    c->rtr_taken = true;
    rtr->now--;
    if (rtr->now < rtr->min)
        rtr->min = rtr->now;
    if (!waits)
        return;
    rtr->waited++;
    covered(COVER_CREDIT_WAIT);
}

static void check_path(const struct conn *c, const struct lnet_nid *next_hop, bool gateway)
{
    lnet_net_t net = nid_net(&c->in.rx.hdr.dest_nid);

    if (c->in.rx.path.ni->net != nid_net(next_hop) || ni_gone[c->in.rx.path.ni->index])
        prop_fail("header %x shall leave by an NI that is on another net or gone", c->id);
    for (unsigned i = 0; i < run.plan->nnis; i++)
        if (!ni_gone[i] && ni[i]->net == net) {
            if (gateway || !nid_same(next_hop, &c->in.rx.hdr.dest_nid))
                prop_fail("header %x is for a neighbour and goes elsewhere", c->id);
            return;
        }
    for (unsigned i = 0; i < run.plan->nroutes; i++) {
        lnet_net_t to;

        if (net_parse(run.plan->route[i].net, &to) != 0 || to != net || !route_there[i])
            continue;
        if (gateway && nid_same(next_hop, &peers[run.plan->route[i].gw].nid))
            return;
    }
    prop_fail("header %x goes where no route says", c->id);
}

void model_parsed(struct conn *c, uint32_t id)
{
    bool waits;

    books.parsing = NULL;
    if (c->state != CONN_PARSED || c->id != id)
        return; /* it does not wait; there may already be another behind it */
    if (stage_now(c) == STAGE_NONE)
        prop_fail("header %x neither waits nor is received", c->id);
    waits = stage_now(c) == STAGE_CREDIT;
    take_router_credit(c, waits);
    if (waits != (c->peer->rtr.now < 0 || waiting_for_credit(c->peer) > waits))
        prop_fail("header %x waits for the wrong thing: its sender has %d router credits", c->id,
                  c->peer->rtr.now);
    check_path(c, &c->in.rx.path.next_hop, c->in.rx.path.gw_ni != NULL);
}

void sync_stalled(void)
{
    unsigned i;

    for (i = 0; i < books.nactive; i++) {
        struct tracked *t = books.active[i];
        struct model_pool *p;
        bool still;

        if (t->state != T_RECEIVING || t->stalled == t->msg->stalled)
            continue;
        /* Its sender was slow when it was admitted, or is now. */
        still = clock_us - t->conn->progress_us >= LATE_US ||
                clock_us - t->conn->begun_us >= (t->msg->quick ? LATE_US : HOLD_US) ||
                t->conn->in.rx.from->slow_until_us > clock_us || (t->slow && !t->stalled);
        t->slow = false;
        if (t->stalled == still)
            prop_fail("receive %x is said to have%s stalled, its last bytes came %llu us ago",
                      t->id, t->stalled ? " not" : "",
                      (unsigned long long)(clock_us - t->conn->progress_us));
        t->stalled = still;
        p = &books.pool[t->home][t->pool];
        p->stalled += still ? 1 : -1;
        p->held[t->acct] += still ? -1 : 1;
        p->vain[t->acct] &= p->held[t->acct] > 0;
        covered(COVER_STALLED);
    }
}

/* Senders take turns; within one, who has waited longer comes first. */
static bool comes_before(const struct conn *d, const struct conn *c, uint64_t stamp)
{
    int32_t later = (int32_t)(d->in.rx.turn - c->in.rx.turn);

    return later < 0 || (later == 0 && d->stamp < stamp);
}

/* Nobody else whose turn it is may be passed. */
static void check_turn(const struct conn *c, unsigned acct)
{
    enum stage mine = c->stage;
    uint64_t stamp = mine == STAGE_BUFFER ? c->stamp : event_number;
    bool at_once = c == books.parsing; /* it has not even waited for a router credit */
    unsigned i;

    for (i = 0; i < nconns; i++) {
        const struct conn *d = &conns[i];

        if (d == c || d->peer->reactor != c->peer->reactor)
            continue;
        if (d->peer == c->peer && stage_now(d) == STAGE_CREDIT && d->seq < c->seq)
            prop_fail("header %x passed %x, which waits for the same router credits", c->id, d->id);
        if (d->stage == STAGE_BUFFER && stage_now(d) == STAGE_BUFFER && d->acct == acct &&
            acct_of(&d->in.rx.path.next_hop, d->in.rx.path.gw_ni != NULL) == acct &&
            d->pool == c->pool && d->in.rx.class == c->in.rx.class && d->class == d->in.rx.class &&
            (at_once || comes_before(d, c, stamp)))
            prop_fail(
                "header %x (stage %d since %llu) passed %x (since %llu), which waits for the same buffers",
                c->id, mine, (unsigned long long)c->stamp, d->id, (unsigned long long)d->stamp);
    }
}

static void admitted(struct conn *c)
{
    struct tracked *t = tracked_of(c->in.rx.msg);
    unsigned r = c->peer->reactor;

    take_router_credit(c, false);
    if (c->peer->rtr.now + waiting_for_credit(c->peer) < 0)
        prop_fail("header %x was let in without a router credit: %d now, %d wait", c->id,
                  c->peer->rtr.now, waiting_for_credit(c->peer));
    sync_stalled();
    if (t->state != T_FREE)
        prop_fail("header %x got a descriptor that is in use by %x", c->id, t->id);
    *t =
        (struct tracked){.state = T_RECEIVING,
                         .msg = c->in.rx.msg,
                         .id = c->id,
                         .home = r,
                         .from = c->peer,
                         .conn = c,
                         .pool = c->pool,
                         .urgent = c->urgent,
                         .slow = c->in.rx.class == LNET_CLASS_SLOW,
                         .acct = acct_of(&c->in.rx.msg->next_hop, c->in.rx.msg->next_gw_ni != NULL),
                         .len = c->in.rx.hdr.payload_len,
                         .router_credit = true,
                         .buffer = c->in.rx.msg->buffer};
    /* What is urgent is bulk for a next hop that is not quick. */
    if (!t->slow &&
        (t->urgent ? c->in.rx.class == LNET_CLASS_QUICK : c->in.rx.class == LNET_CLASS_URGENT))
        prop_fail("header %x has class %d", c->id, c->in.rx.class);
    if (!model_may(r, t->pool, t->acct, c->in.rx.class))
        prop_fail("header %x got a %s buffer that it may not have: %u of %u in use, its next hop "
                  "holds %u, %u for gateways, share %u %%",
                  c->id,
                  t->pool == LNET_POOL_TINY    ? "tiny"
                  : t->pool == LNET_POOL_SMALL ? "small"
                                               : "large",
                  books.pool[r][t->pool].used, node->shard[r]->credit->pool[t->pool].total,
                  books.pool[r][t->pool].held[t->acct], held_for(r, t->pool, true), share);
    check_turn(c, t->acct);
    for (unsigned i = 0; t->buffer && i < books.nactive; i++)
        if (books.active[i]->buffer == t->buffer)
            prop_fail("headers %x and %x have the same buffer", c->id, books.active[i]->id);
    if (books.nactive == MAX_TRACKED)
        prop_fail("too many messages");
    books.active[books.nactive++] = t;
    books.pool[r][t->pool].used++;
    books.pool[r][t->pool].held[t->acct]++;
    c->msg = t;
}

void model_recv(struct conn *c)
{
    if (c->in.rx.msg)
        admitted(c);
    else if (!c->dropped)
        prop_fail("header %x is thrown away and no drop was counted", c->id);
    c->stage = STAGE_NONE;
    c->begun_us = c->progress_us = clock_us;
}

void model_cancelled(struct conn *c)
{
    if (!c->dropped)
        prop_fail("cancelled header %x was not counted", c->id);
    covered(COVER_CANCELLED);
}

void model_recv_done(struct conn *c, bool ok)
{
    struct tracked *t = c->msg;

    sync_stalled();
    c->msg = NULL;
    if (!t)
        return;
    t->conn = NULL;
    t->state = T_INSIDE;
    if (t->stalled) {
        t->stalled = false;
        books.pool[t->home][t->pool].stalled--;
        books.pool[t->home][t->pool].held[t->acct]++;
    }
    if (ok)
        t->seq = ++books.received[t->home];
    t->received_us = clock_us;
}

/* ---- the end of a message ---- */

static void router_credit_back(struct tracked *t)
{
    if (t->router_credit)
        t->from->rtr.now++;
    t->router_credit = false;
}

void __real_lnet_return_router_credit(struct lnet_msg *msg);
void __wrap_lnet_return_router_credit(struct lnet_msg *msg);

/* Ahead of the buffer: the LND must have accepted it, and may be through with it elsewhere; or it
 * is received and its next hop gives none back for a while. */
void __wrap_lnet_return_router_credit(struct lnet_msg *msg)
{
    struct tracked *t = tracked_of(msg);
    bool received = t->state != T_RECEIVING && t->state != T_FREE;
    bool slow = received && t->from && clock_us - t->received_us >= HELD_US;
    bool like_others = received && t->from && !msg->quick && clock_us < t->from->slow_hops_us;

    if (slow && !t->accepted && t->router_credit) {
        t->from->slow_hops_us = clock_us + LIKE_US;
        covered(COVER_CREDIT_SLOW);
    }
    if ((!t->accepted && !slow && !like_others) || t->state == T_FREE)
        prop_fail("message %x gives its router credit back in state %d, accepted: %d", t->id,
                  t->state, t->accepted);
    if (t->router_credit)
        covered(COVER_CREDIT_EARLY);
    __real_lnet_return_router_credit(msg);
    router_credit_back(t);
}

static void buffer_back(struct tracked *t)
{
    unsigned i;

    books.pool[t->home][t->pool].used--;
    if (t->stalled)
        books.pool[t->home][t->pool].stalled--;
    else
        books.pool[t->home][t->pool].held[t->acct]--;
    if (t->sent_ok || books.pool[t->home][t->pool].held[t->acct] == 0)
        books.pool[t->home][t->pool].vain[t->acct] = false;
    router_credit_back(t);
    t->state = T_FREE;
    for (i = 0; books.active[i] != t; i++)
        ;
    books.active[i] = books.active[--books.nactive];
    if (!t->dropped) {
        books.done++;
        covered(COVER_FORWARDED);
    }
}

void __real_release_buffer(struct lnet_msg *msg);
void __wrap_release_buffer(struct lnet_msg *msg);

void __wrap_release_buffer(struct lnet_msg *msg)
{
    struct tracked *t = tracked_of(msg);

    if (t->state != T_INSIDE && t->state != T_ENDED)
        prop_fail("message %x gives its buffer back in state %d", t->id, t->state);
    if (!t->dropped && !t->sent_ok)
        prop_fail("message %x is gone: neither sent nor counted as dropped", t->id);
    books.releasing = t;
    __real_release_buffer(msg);
    books.releasing = NULL;
    buffer_back(t);
}

/* Called as memory goes back: at that moment the credits of §4.6 rows 1 and 2 are back, that of row
 * 4 is not. */
static void check_return_order(void)
{
    const struct tracked *t = books.releasing;

    if (!t)
        return;
    if (t->to && (node->shard[t->to->reactor]->tx->tq[t->ni].credits.now !=
                      books.tq[t->to->reactor][t->ni].credit.now ||
                  t->to->core->tx.now != t->to->tx.now))
        prop_fail("message %x gives its buffer back before its tx credits", t->id);
    if (t->from->core->rtr.now != t->from->rtr.now)
        prop_fail("message %x gave its router credit back before its buffer", t->id);
}

void __real_mem_pool_put(struct mem_pool *p, void *buf);
void __wrap_mem_pool_put(struct mem_pool *p, void *buf);

void __wrap_mem_pool_put(struct mem_pool *p, void *buf)
{
    check_return_order();
    __real_mem_pool_put(p, buf);
}

void model_taken_back(void)
{
    check_return_order();
}

/* ---- drops ---- */

static bool says_no_path(enum lnet_drop why)
{
    return why == LNET_DROP_NO_ROUTE || why == LNET_DROP_NO_LIVE_ROUTE || why == LNET_DROP_NO_LND ||
           why == LNET_DROP_NI_REMOVED;
}

static void header_expired(struct conn *c, enum lnet_drop why)
{
    struct model_pool *p = &books.pool[c->peer->reactor][c->in.rx.pool];
    unsigned acct = acct_of(&c->in.rx.path.next_hop, c->in.rx.path.gw_ni != NULL);

    bool vain = why == LNET_DROP_DEST_SHARE && p->vain[acct];

    if (c == books.parsing) {
        if (!vain && (c->expired_us == 0 || clock_us - c->expired_us >= BEHIND_US))
            prop_fail("header %x was dropped at once, without a wait before it", c->id);
        covered(COVER_BEHIND_EXPIRED);
    } else if (!vain || clock_us >= c->parsed_us + c->wait_us) {
        if (clock_us < c->parsed_us + c->wait_us)
            prop_fail("header %x was dropped after %llu us, too early", c->id,
                      (unsigned long long)(clock_us - c->parsed_us));
        c->expired_us = clock_us;
        p->vain[acct] |= why == LNET_DROP_DEST_SHARE;
    }
    if (c == books.parsing)
        take_router_credit(c, why == LNET_DROP_RTR_CREDIT);
    switch (why) {
    case LNET_DROP_RTR_CREDIT:
        if (c != books.parsing && c->stage != STAGE_CREDIT)
            prop_fail("header %x waited for no router credit", c->id);
        covered(COVER_CREDIT_EXPIRED);
        break;
    case LNET_DROP_DEST_SHARE:
        covered(COVER_SHARE_EXPIRED);
        break;
    default:
        covered(COVER_BUFFER_EXPIRED);
        break;
    }
}

static void header_dropped(struct conn *c, enum lnet_drop why)
{
    if (c->dropped)
        prop_fail("header %x was dropped twice", c->id);
    c->dropped = true;
    switch (why) {
    case LNET_DROP_RTR_CREDIT:
    case LNET_DROP_DEST_SHARE:
    case LNET_DROP_SLOW_SENDER:
    case LNET_DROP_BUFFER_WAIT:
        header_expired(c, why);
        break;
    case LNET_DROP_RX_INCOMPLETE:
        if (!c->cancelling)
            prop_fail("header %x: %s, but it was not cancelled", c->id, lnet_drop_info(why)->name);
        break;
    case LNET_DROP_SHUTDOWN:
        if (!stopping)
            prop_fail("header %x: shutting down, but nobody does", c->id);
        break;
    default:
        if (!says_no_path(why))
            prop_fail("header %x was dropped as %s", c->id, lnet_drop_info(why)->name);
        covered(COVER_NO_ROUTE);
        break;
    }
    if (c->rtr_taken) /* it had one, or was in the queue for one */
        c->peer->rtr.now++;
    c->rtr_taken = false;
}

static void message_dropped(struct tracked *t, enum lnet_drop why)
{
    if (t->dropped)
        prop_fail("message %x was dropped twice", t->id);
    if (t->sent_ok)
        prop_fail("message %x was sent and then dropped as %s", t->id, lnet_drop_info(why)->name);
    t->dropped = true;
    if (t->state == T_RECEIVING) {
        if (why != LNET_DROP_RX_STALLED || !t->stalled || !t->conn->abandoned)
            prop_fail("message %x was dropped as %s while it was received", t->id,
                      lnet_drop_info(why)->name);
        covered(COVER_ABANDONED);
        t->conn->msg = NULL;
        t->conn = NULL;
        t->state = T_INSIDE; /* gives its buffer back in the same call */
        return;
    }
    if (why == LNET_DROP_NI_REMOVED)
        covered(COVER_NI_REMOVED);
    if (why == LNET_DROP_SHUTDOWN)
        covered(COVER_SHUTDOWN);
}

void __real_lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *n,
                              struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                              const struct lnet_hdr *hdr);
void __wrap_lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *n,
                              struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                              const struct lnet_hdr *hdr);

void __wrap_lnet_drop_message(struct lnet_shard *s, enum lnet_drop reason, const struct lnet_ni *n,
                              struct lnet_peer_ni *peer, const struct lnet_nid *peer_nid,
                              const struct lnet_hdr *hdr)
{
    uint32_t id = hdr->src_pid;

    __real_lnet_drop_message(s, reason, n, peer, peer_nid, hdr);
    if (id < FIRST_ID)
        return; /* the node's own */
    say("    %x dropped: %s", id, lnet_drop_info(reason)->name);
    sync_stalled();
    for (unsigned i = 0; i < books.nactive; i++)
        if (books.active[i]->id == id) {
            books.dropped++;
            covered(COVER_DROPPED);
            message_dropped(books.active[i], reason);
            return;
        }
    for (unsigned i = 0; i < nconns; i++)
        if (conns[i].id == id && conns[i].state == CONN_PARSED) {
            if (conns[i].local)
                return;
            books.dropped++;
            covered(COVER_DROPPED);
            header_dropped(&conns[i], reason);
            return;
        }
    prop_fail("%x was dropped as %s, and there is no such message", id,
              lnet_drop_info(reason)->name);
}
