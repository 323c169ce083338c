/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers and their discovery together, against nodes that change at random. A node is multi-rail or
 * not, discovers or not, restarts, lists other NIDs, takes a NID from another node and pushes at
 * any time. Messages are lost. The nodes themselves are the model. After each round of changes,
 * every NID must belong to a peer that has exactly the NIDs of its node.
 *
 * usage: test_peer_property [STEPS [SEED]]
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/lnet/ping/discover.h"

#define NODES     12
#define NIDS      40 /* that nodes may have */
#define NODE_NIDS 4
#define PEERS     64
#define ROUND     1000 /* steps between two times of rest */
#define TIMEOUT   50

enum node_kind {
    MULTI_RAIL,
    NO_DISCOVERY,
    NO_MULTI_RAIL,
    NEITHER,
    KINDS
};
static const uint32_t node_features[KINDS] = {
    LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL | LNET_PING_DISCOVERY,
    LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL,
    LNET_PING_NI_STATUS | LNET_PING_DISCOVERY,
    LNET_PING_NI_STATUS,
};

struct node {
    enum node_kind kind;
    bool routes;
    unsigned nids[NODE_NIDS], count; /* indices of all_nids; the first is the primary NID */
    uint32_t seqno;
};

struct flight { /* a GET or PUT of ours */
    bool push;
    unsigned peer, nid;
};

static uint64_t rng;
static unsigned steps = 100000;
static struct lnet_nid all_nids[NIDS];
static struct node node[NODES];
static struct peer_table table;
static struct discover_self self;
static uint64_t now;
static struct flight flights[2 * PEERS];
static unsigned nflights;
static bool parked[PEERS];   /* a message waits for the peer's discovery */
static bool inherits[PEERS]; /* takes over the messages of a peer that is gone */
static bool checks[PEERS];  /* is to be pinged: another claimed a NID of it, or it made the claim */
static bool checked[PEERS]; /* was so a short time ago, and is not again */
static bool failed[NIDS];   /* the last message to the NID did */
static unsigned ngone, nmoved, nfailed, ndone;
static struct lnet_ping_info info, heard[PEERS];

static unsigned any(unsigned n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (unsigned)((rng >> 20) % n);
}

static unsigned index_of(const struct peer *p)
{
    return (unsigned)(p - table.peers);
}

/* ---- nodes ---- */

static struct node *owner(unsigned nid)
{
    for (unsigned i = 0; i < NODES; i++)
        for (unsigned k = 0; k < node[i].count; k++)
            if (node[i].nids[k] == nid)
                return &node[i];
    return NULL;
}

static void drop_nid(unsigned nid)
{
    struct node *n = owner(nid);
    unsigned k = 0;

    if (!n)
        return;
    while (n->nids[k] != nid)
        k++;
    memmove(&n->nids[k], &n->nids[k + 1], (n->count - k - 1) * sizeof(n->nids[0]));
    n->count--;
    n->seqno++;
}

static void give_nid(struct node *n, unsigned nid)
{
    unsigned at = any(n->count + 1);

    /* A peer without multi-rail is asked at its primary NID only, and could not be found again. */
    if (n->count == (n->kind == NO_MULTI_RAIL ? 1 : NODE_NIDS) || owner(nid) == n)
        return;
    drop_nid(nid);
    memmove(&n->nids[at + 1], &n->nids[at], (n->count - at) * sizeof(n->nids[0]));
    n->nids[at] = nid;
    n->count++;
    n->seqno++;
}

/* The ping info of a node, over the wire. */
static bool tell(const struct node *n, struct lnet_ping_info *out)
{
    static uint8_t wire[LNET_PING_MAX_SIZE];
    size_t len;

    info = (struct lnet_ping_info){.features = node_features[n->kind], .seqno = n->seqno};
    info.features |= n->routes ? 0 : LNET_PING_RTE_DISABLED;
    for (; info.count < n->count; info.count++) {
        info.ni[info.count].nid = all_nids[n->nids[info.count]];
        info.ni[info.count].status = any(4) ? LNET_NI_UP : LNET_NI_DOWN;
    }
    len = lnet_ping_encode(&info, wire, sizeof(wire));
    assert_true(len > 0);
    return lnet_ping_decode(wire, len, out) == LNET_DROP_NONE;
}

static void change_node(struct node *n)
{
    switch (any(6)) {
    case 0: /* restarts, perhaps as another kind */
        n->seqno = 1;
        n->kind = any(2) ? MULTI_RAIL : any(KINDS);
        while (n->kind == NO_MULTI_RAIL && n->count > 1)
            drop_nid(n->nids[any(n->count)]);
        break;
    case 1:
        n->routes = !n->routes;
        break;
    case 2:
        if (n->count > 1)
            drop_nid(n->nids[any(n->count)]);
        break;
    default:
        give_nid(n, any(NIDS));
    }
}

/* ---- this node ---- */

static bool is_own(void *arg, const struct lnet_nid *nid)
{
    (void)arg;
    (void)nid;
    return false;
}

static void check(unsigned peer)
{
    checks[peer] |= !checked[peer];
    checked[peer] = true;
}

static void notify(void *arg, const struct peer_event *e)
{
    unsigned p = index_of(e->peer);

    (void)arg;
    nmoved += e->kind == PEER_NI_MOVED;
    if (e->kind == PEER_NI_CLAIMED && e->other && e->other->answered) {
        check(p);
        check(index_of(e->other));
    }
    /* Discovery takes no NID of a peer that answers for one of which that lists none. */
    if (e->kind == PEER_NI_MOVED && e->other->answered && !(e->peer->state & PEER_CONFIGURED))
        assert_ptr_equal(peer_table_find(&table, &e->other->claimed), e->peer);
    if (e->kind != PEER_GONE)
        return;
    ngone++;
    for (unsigned i = 0; i < nflights;) {
        if (flights[i].peer == p)
            flights[i] = flights[--nflights];
        else
            i++;
    }
    if (e->other && (parked[p] || inherits[p]))
        inherits[index_of(e->other)] = true;
    parked[p] = inherits[p] = checks[p] = checked[p] = false;
}

/* A multi-rail peer is reached at any of its NIDs, those that failed last time after the others. */
static unsigned choose_nid(const struct peer *p, const struct lnet_nid *to)
{
    const struct peer_net *n;
    const struct peer_ni *ni;
    unsigned best = 0, candidates = 0;

    for (unsigned i = 0; i < NIDS; i++)
        if (nid_same(&all_nids[i], to))
            best = i;
    if (p->state & PEER_MULTI_RAIL)
        TAILQ_FOREACH(n, &p->nets, link)
            TAILQ_FOREACH(ni, &n->nis, link)
                for (unsigned i = 0; i < NIDS; i++)
                    if (nid_same(&all_nids[i], &ni->nid) &&
                        (failed[i] < failed[best] ||
                         (failed[i] == failed[best] && any(++candidates) == 0)))
                        best = i;
    return best;
}

static void send_to(struct peer *p, bool push)
{
    struct lnet_nid to = p->primary, from;

    if (push)
        discover_push_nids(p, &to, &from);
    assert_true(nflights < 2 * PEERS);
    flights[nflights++] =
        (struct flight){.push = push, .peer = index_of(p), .nid = choose_nid(p, &to)};
}

static void feed(struct peer *p, struct discover_event event);

static void act(struct peer *p, enum discover_action action)
{
    const struct discover_event look = {.kind = DISCOVER_LOOK}, start = {.kind = DISCOVER_START};
    struct lnet_nid nid = p->primary;
    struct peer *to;
    unsigned i = index_of(p);
    bool again;

    switch (action) {
    case DISCOVER_WAIT:
        break;
    case DISCOVER_PING:
    case DISCOVER_PUSH:
        send_to(p, action == DISCOVER_PUSH);
        break;
    case DISCOVER_DONE:
        ndone++;
        nfailed += p->discovery.error < 0;
        if (p->discovery.error < 0)
            peer_table_answers(&table, p, false);
        parked[i] = false;
        break;
    case DISCOVER_DELETE:
        again = parked[i];
        peer_table_del(&table, p);
        if (again && (p = peer_table_get(&table, &nid))) {
            parked[index_of(p)] = true;
            feed(p, start);
        }
        break;
    case DISCOVER_MERGE:
        to = peer_table_merge(&table, p, &heard[i], self.discovery);
        if (to != p && p->nnis > 0)
            feed(p, look);
        feed(to, to == p ? look : start);
        break;
    }
}

static void feed(struct peer *p, struct discover_event event)
{
    act(p, discover_step(p, &event, &self, now));
}

/* The messages of peers that are gone wait for those that have their NIDs now. */
static void inherit(void)
{
    for (unsigned i = 0; i < PEERS; i++) {
        if (checks[i]) {
            checks[i] = false;
            feed(&table.peers[i],
                 (struct discover_event){.kind = DISCOVER_START, .set = PEER_FORCE_PING});
        }
        if (!inherits[i])
            continue;
        inherits[i] = false;
        parked[i] = true;
        feed(&table.peers[i], (struct discover_event){.kind = DISCOVER_START});
    }
}

static void message_to(unsigned nid, uint32_t set)
{
    struct peer *p = peer_table_get(&table, &all_nids[nid]);

    if (!p || (!set && discover_is_uptodate(p, &self)))
        return;
    parked[index_of(p)] = true;
    feed(p, (struct discover_event){.kind = DISCOVER_START, .set = set});
}

/* One of our messages arrives, or is lost. */
static void arrive(unsigned i, bool lossy)
{
    struct flight f = flights[i];
    struct peer *p = &table.peers[f.peer];
    const struct node *n = owner(f.nid);
    struct discover_event event = {.kind = DISCOVER_PUSH_ERROR, .error = -EHOSTUNREACH};

    if (lossy && any(10) == 0)
        return; /* the deadline comes */
    flights[i] = flights[--nflights];
    failed[f.nid] = !n;
    if (f.push && n && n->kind != NEITHER)
        event.kind = DISCOVER_ACK;
    else if (!f.push && (!n || (lossy && any(20) == 0)))
        event.kind = n ? DISCOVER_REPLY_BAD : DISCOVER_PING_ERROR;
    else if (!f.push) {
        assert_true(tell(n, &heard[f.peer]));
        peer_table_hear(&table, p, &heard[f.peer], self.discovery);
        event = (struct discover_event){
            .kind = DISCOVER_REPLY, .to = all_nids[f.nid], .from = LNET_NID_ANY};
    }
    if (event.kind == DISCOVER_ACK || event.kind == DISCOVER_REPLY)
        peer_table_answers(&table, p, true);
    feed(p, event);
}

static void node_pushes(const struct node *n)
{
    struct peer *p;
    enum discover_kind kind;

    if (n->count == 0)
        return;
    p = peer_table_find(&table, &all_nids[n->nids[any(n->count)]]);
    if (!p) /* from an unknown NID: ignored */
        return;
    assert_true(tell(n, &heard[index_of(p)]));
    kind = discover_push_kind(&heard[index_of(p)]);
    if (kind == DISCOVER_PUSHED)
        peer_table_hear(&table, p, &heard[index_of(p)], self.discovery);
    feed(p, (struct discover_event){.kind = kind});
}

static void each_peer(void (*fn)(struct peer *p))
{
    for (unsigned i = 0; i < PEERS; i++)
        if (table.peers[i].nnis > 0)
            fn(&table.peers[i]);
}

static void expire(struct peer *p)
{
    if (now < discover_deadline_us(p))
        return;
    for (unsigned i = 0; i < nflights;) {
        const uint32_t sent = flights[i].push ? PEER_PUSH_SENT : PEER_PING_SENT;

        if (flights[i].peer == index_of(p) && p->state & sent &&
            now >=
                (flights[i].push ? p->discovery.push_deadline_us : p->discovery.ping_deadline_us))
            flights[i] = flights[--nflights];
        else
            i++;
    }
    feed(p, (struct discover_event){.kind = DISCOVER_LOOK});
}

static void push_if_due(struct peer *p)
{
    if (discover_needs_push(p, &self))
        feed(p, (struct discover_event){.kind = DISCOVER_START});
}

static void configure(void)
{
    const uint32_t state = (any(2) ? PEER_MULTI_RAIL : 0) | (any(2) ? PEER_LOCK_PRIMARY : 0);
    const struct lnet_nid *primary = &all_nids[any(NIDS)];
    struct peer *p = peer_table_find(&table, primary);

    if (p && p->state & PEER_CONFIGURED && any(2))
        peer_table_del(&table, p);
    else
        peer_table_add(&table, primary, &all_nids[any(NIDS)], state);
}

static void random_step(void)
{
    unsigned what = any(100);

    memset(checked, 0, sizeof(checked));
    now += any(3);
    each_peer(expire);
    if (what < 40 && nflights > 0)
        arrive(any(nflights), true);
    else if (what < 60)
        message_to(any(NIDS), 0);
    else if (what < 65)
        message_to(any(NIDS), PEER_RTR_DISCOVERY);
    else if (what < 85)
        node_pushes(&node[any(NODES)]);
    else if (what < 97)
        change_node(&node[any(NODES)]);
    else if (what < 98)
        configure();
    else if (what < 99)
        self.discovery = any(4) > 0;
    else {
        self.seqno++;
        each_peer(push_if_due);
    }
    inherit();
}

/* ---- checks ---- */

static void check_peer(struct peer *p)
{
    const struct peer_net *n;
    const struct peer_ni *ni;
    unsigned i = index_of(p), on_their_way = 0, nnis = 0;

    assert_ptr_equal(peer_table_find(&table, &p->primary), p);
    TAILQ_FOREACH(n, &p->nets, link)
        TAILQ_FOREACH(ni, &n->nis, link) {
            assert_ptr_equal(peer_table_find_ni(&table, &ni->nid), ni);
            assert_ptr_equal(ni->net->peer, p);
            nnis++;
        }
    assert_int_equal(nnis, p->nnis);
    /* No message waits for a discovery that does not go on, and each discovery has a deadline. */
    assert_true(!parked[i] || p->state & PEER_DISCOVERING);
    assert_true(!(p->state & PEER_DISCOVERING) || discover_deadline_us(p) < now + TIMEOUT + 1);
    for (unsigned k = 0; k < nflights; k++)
        on_their_way += flights[k].peer == i;
    assert_int_equal(on_their_way, !!(p->state & PEER_PING_SENT) + !!(p->state & PEER_PUSH_SENT));
}

static unsigned total_peers, total_nids;

static void count_peer(struct peer *p)
{
    total_peers++;
    total_nids += p->nnis;
}

static void check_all(void)
{
    each_peer(check_peer);
    total_peers = total_nids = 0;
    each_peer(count_peer);
    assert_int_equal(total_peers, table.npeers);
    assert_int_equal(total_nids, table.nnis);
    assert_int_equal(table.nrefused, 0);
}

static bool has_exactly(const struct peer *p, const struct node *n)
{
    const bool rails = n->kind == MULTI_RAIL || n->kind == NO_MULTI_RAIL;

    if (!p || !!(p->state & PEER_MULTI_RAIL) != (n->kind == MULTI_RAIL) ||
        !!(p->state & PEER_ROUTER_ENABLED) != n->routes || p->seqno != n->seqno ||
        !!(p->state & PEER_NO_DISCOVERY) == rails)
        return false;
    if (!rails) /* each NID is a peer */
        return p->nnis == 1;
    for (unsigned k = 0; k < n->count; k++)
        if (peer_table_find(&table, &all_nids[n->nids[k]]) != p)
            return false;
    return p->nnis == n->count && nid_same(&p->primary, &all_nids[n->nids[0]]) &&
           (n->kind != MULTI_RAIL || p->discovery.acked_seqno == self.seqno);
}

static bool converged(void)
{
    for (unsigned i = 0; i < NODES; i++)
        for (unsigned k = 0; k < node[i].count; k++)
            if (!has_exactly(peer_table_find(&table, &all_nids[node[i].nids[k]]), &node[i]))
                return false;
    return true;
}

static void unconfigure(struct peer *p)
{
    if (p->state & PEER_CONFIGURED)
        peer_table_del(&table, p);
}

/* All flights arrive, with nothing lost. */
static void settle(void)
{
    do {
        inherit();
        while (nflights > 0)
            arrive(any(nflights), false);
        for (unsigned i = 0; i < PEERS; i++)
            assert_true(!parked[i] || inherits[i]);
    } while (memchr(inherits, true, sizeof(inherits)) || memchr(checks, true, sizeof(checks)));
}

#define ROUNDS_TO_CONVERGE 12

static unsigned most_rounds;

static void rest(void)
{
    unsigned rounds = 0;

    each_peer(unconfigure);
    inherit();
    self.discovery = true;
    settle();
    do {
        for (unsigned nid = 0; nid < NIDS; nid++) {
            memset(checked, 0, sizeof(checked));
            if (owner(nid))
                message_to(nid, PEER_FORCE_PING);
            settle();
        }
        check_all();
    } while (!converged() && ++rounds < ROUNDS_TO_CONVERGE);
    assert_true(rounds < ROUNDS_TO_CONVERGE);
    if (rounds > most_rounds)
        most_rounds = rounds;
}

static void delete (struct peer *p)
{
    peer_table_del(&table, p);
}

static void peers_converge(void **state)
{
    const struct peer_table_opts opts = {.max_peers = PEERS,
                                         .max_nids = 4 * PEERS,
                                         .prefix4 = 32,
                                         .prefix6 = 64,
                                         .is_own = is_own,
                                         .notify = notify};
    char text[LNET_NIDSTR_SIZE];

    (void)state;
    assert_int_equal(peer_table_init(&table, &opts), 0);
    self = (struct discover_self){
        .discovery = true, .seqno = 1, .timeout_us = TIMEOUT, .max_tries = 3};
    for (unsigned i = 0; i < NIDS; i++) {
        static const char *const form[] = {"10.0.0.%u@tcp", "10.0.1.%u@tcp1", "10.0.2.%u@o2ib",
                                           "fd00::%u@tcp"};

        snprintf(text, sizeof(text), form[i % 4], i + 1);
        assert_int_equal(nid_parse(text, &all_nids[i]), 0);
    }
    for (unsigned i = 0; i < NODES; i++) {
        node[i] = (struct node){.kind = i % KINDS, .seqno = 2};
        give_nid(&node[i], i);
    }
    for (unsigned i = 1; i <= steps; i++) {
        random_step();
        each_peer(check_peer);
        if (i % ROUND == 0)
            rest();
    }
    printf("%u steps: %u discoveries, %u failed, %u NIDs moved, %u peers freed; converged in %u "
           "rounds at most\n",
           steps, ndone, nfailed, nmoved, ngone, most_rounds + 1);
    assert_true(ndone > 0 && nfailed > 0 && nmoved > 0 && ngone > 0);
    each_peer(delete);
    check_all();
    assert_int_equal(table.npeers, 0);
    assert_int_equal(nflights, 0);
    peer_table_fini(&table);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peers_converge)};

    steps = argc > 1 ? (unsigned)atoi(argv[1]) : steps;
    rng = argc > 2 ? strtoull(argv[2], NULL, 0) * 2 + 1 : 17;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
