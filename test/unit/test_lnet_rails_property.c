/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gateways with several NIDs under random events, against nodes that are the model. Nodes restart,
 * get, lose and take over NIDs, are multi-rail and take discoveries or not, and call NIDs down. One
 * lists NIDs of others. Pairs of NIs fail, links go down, routes come and go.
 *
 * After each event, for each net: a message goes to a NID that is proved to be its gateway's, by an
 * NI that works if there is one, and by no route that is worse than another that may be used. After
 * each ROUND events nothing fails for some time. Then each gateway must have exactly the NIDs of
 * its node, all in use, with an equal share of the messages. docs/protocol/lnet-core.md §3.6, §3.8,
 * §7.1, §7.3, §7.4.
 *
 * usage: test_lnet_rails_property REACTORS [STEPS [SEED]]
 */
#include "test/unit/lnet_rails.h"

#define NODES     6
#define GATEWAYS  4 /* the first nodes. Routes name the first NID of each, which stays */
#define LIAR      3 /* it lists NIDs of others */
#define NIDS      24
#define NODE_NIDS 6
#define NNETS     4 /* nets that routes lead to */
#define NNIS      4
#define ROUND     500
#define REST_S    600 /* until all must be right */
#define TURNS     12

enum node_kind {
    MULTI_RAIL,
    NO_DISCOVERY,
    NEITHER,
    KINDS
};
static const uint32_t node_features[KINDS] = {
    LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL | LNET_PING_DISCOVERY,
    LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL,
    LNET_PING_NI_STATUS,
};

static struct rail_node {
    enum node_kind kind;
    bool alive;
    unsigned nid[NODE_NIDS], count;
    int claimed;                 /* a NID that is listed besides; -1: none */
    uint32_t seqno, acked_seqno; /* of the PUSH that this node has had since it is there */
} nodes[NODES];
static struct lnet_nid nids[NIDS];
static bool nid_down[NIDS];          /* as its node says */
static bool pair_broken[NNIS][NIDS]; /* nothing comes over it */
static bool may_be[GATEWAYS][NIDS];  /* proved for the gateway, at some time */
static bool route_there[NNETS][GATEWAYS];
static struct lnet_ni *nis[NNIS];
static unsigned steps = 6000;
static uint64_t rng = 17;
static unsigned nmoved, nrestarted, nchecked, nsent, slowest_s;

static unsigned any(unsigned n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(rng >> 33) % n;
}

static int index_of(const struct lnet_nid *nid)
{
    for (int i = 0; i < NIDS; i++)
        if (nid_same(&nids[i], nid))
            return i;
    return -1;
}

static struct rail_node *owner(unsigned nid)
{
    for (unsigned i = 0; i < NODES; i++)
        for (unsigned k = 0; k < nodes[i].count; k++)
            if (nodes[i].nid[k] == nid)
                return &nodes[i];
    return NULL;
}

static void lose(struct rail_node *n, unsigned k)
{
    memmove(&n->nid[k], &n->nid[k + 1], (--n->count - k) * sizeof(n->nid[0]));
}

static bool is_fixed(unsigned nid)
{
    return nid < GATEWAYS;
}

/* ---- what nodes say ---- */

static uint32_t info_bytes(const struct rail_node *n, uint8_t data[512])
{
    struct lnet_ping_info info = {.features = node_features[n->kind], .pid = PID};

    info.seqno = n->seqno;
    for (unsigned k = 0; k < n->count; k++)
        info.ni[info.count++] = (struct lnet_ping_ni){
            .nid = nids[n->nid[k]], .status = nid_down[n->nid[k]] ? LNET_NI_DOWN : LNET_NI_UP};
    if (n->claimed >= 0)
        info.ni[info.count++] =
            (struct lnet_ping_ni){.nid = nids[n->claimed], .status = LNET_NI_UP};
    return (uint32_t)lnet_ping_encode(&info, data, 512);
}

/* The answer shows that the NID is a gateway's, if a NID that is the gateway's is listed with it.
 */
static void note_proof(unsigned nid, const struct rail_node *n)
{
    for (unsigned g = 0; g < GATEWAYS; g++) {
        for (unsigned k = 0; k < n->count; k++)
            may_be[g][nid] |= may_be[g][n->nid[k]];
        may_be[g][nid] |= n->claimed >= 0 && may_be[g][n->claimed];
    }
}

static bool arrives(const struct sent *s)
{
    int nid = index_of(&s->to);
    const struct rail_node *n = nid >= 0 ? owner((unsigned)nid) : NULL;

    return n && n->alive && !s->ni->fatal && !pair_broken[s->ni->index][nid];
}

static struct lnet_ni *ni_near(unsigned nid)
{
    unsigned first = any(NNIS);

    for (unsigned i = 0; i < NNIS; i++)
        if (nis[(first + i) % NNIS]->net == nid_net(&nids[nid]))
            return nis[(first + i) % NNIS];
    return NULL;
}

/* A PUSH of a node, by one of its NIDs. */
static void push(struct rail_node *n)
{
    unsigned nid = n->nid[any(n->count)];
    struct lnet_ni *ni = ni_near(nid);
    struct peer_msg *fx;
    uint8_t data[512];
    uint32_t len;

    if (!n->alive || n->kind != MULTI_RAIL || ni->fatal || pair_broken[ni->index][nid])
        return;
    len = info_bytes(n, data);
    fx = rx_new(ni, nids[nid], hdr_put(nids[nid], ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, true),
                1);
    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    n->acked_seqno = n->seqno;
}

/* All messages that were sent arrive or not, and are answered, until nothing more is sent. */
static void answer_all(void)
{
    uint8_t data[512];

    settle();
    for (unsigned i = 0; i < loop.nsent; i++) {
        const struct sent *s = &loop.sent[i];
        struct rail_node *n;
        struct lnet_put put;

        if (!arrives(s))
            continue;
        n = owner((unsigned)index_of(&s->to));
        if (s->hdr.type == LNET_MSG_GET) {
            note_proof((unsigned)index_of(&s->to), n);
            reply_to(s, data, info_bytes(n, data));
        } else if (s->hdr.type == LNET_MSG_PUT) {
            lnet_body_get_put(&s->hdr, &put);
            if (put.portal != 0)
                continue;
            ack_push_only(s);
            if (n->acked_seqno != n->seqno)
                push(n);
        }
    }
    sent_clear();
}

/* ---- events ---- */

/* A node gets a NID, which may be another's. */
static void get_nid(struct rail_node *n)
{
    unsigned nid = GATEWAYS + any(NIDS - GATEWAYS), k = 0;
    struct rail_node *was = owner(nid);

    if (n->count == NODE_NIDS || was == n || (was && was->count == 1))
        return;
    if (was) {
        while (was->nid[k] != nid)
            k++;
        lose(was, k);
        was->seqno++;
        nmoved++;
    }
    n->nid[n->count++] = nid;
    n->seqno++;
}

static void change_node(struct rail_node *n)
{
    unsigned what = any(20), k = any(n->count);

    if (what < 6)
        get_nid(n);
    else if (what < 10 && n->count > 1 && !is_fixed(n->nid[k]))
        lose(n, k);
    else if (what < 12)
        nid_down[n->nid[k]] ^= true;
    else if (what < 14 && n == &nodes[LIAR])
        n->claimed = any(6) ? (int)any(NIDS) : -1;
    else if (what < 17 && n->alive)
        n->alive = false;
    else if (!n->alive) { /* it comes back, perhaps as another kind of node */
        n->alive = true;
        n->kind = any(3) ? n->kind : any(KINDS);
        n->seqno = n->acked_seqno = 0;
        nrestarted++;
    }
    n->seqno++;
    if (n->claimed >= 0 && owner((unsigned)n->claimed) == n)
        n->claimed = -1;
    if (any(2))
        push(n);
}

static void break_pair(void)
{
    unsigned nid = any(NIDS);
    struct lnet_ni *ni = ni_near(nid);
    struct lnet_peer_ni *p = peer_find(&nids[nid]);

    pair_broken[ni->index][nid] ^= true;
    if (p && any(3)) /* the LND may notice */
        ON(home_of(&nids[nid]), lnet_peer_ni_notify(ni, p, !pair_broken[ni->index][nid]));
}

static unsigned nroutes_of(unsigned g)
{
    unsigned n = 0;

    for (unsigned net = 0; net < NNETS; net++)
        n += route_there[net][g];
    return n;
}

static void change_route(void)
{
    unsigned net = any(NNETS), g = any(GATEWAYS);
    struct err err = {0};
    char text[16];
    lnet_net_t n;

    snprintf(text, sizeof(text), "tcp%u", 5 + net);
    assert_int_equal(net_parse(text, &n), 0);
    if (route_there[net][g] && nroutes_of(g) == 1) /* a gateway without routes is not checked */
        return;
    if (route_there[net][g])
        assert_int_equal(route_del(node, n, &nids[g], &err), 0);
    else
        assert_int_equal(route_add(text, nids[g], 2 + (int)any(2), any(2)), 0);
    route_there[net][g] ^= true;
}

/* A message from behind a gateway comes from one of its NIDs. */
static void forwarded(void)
{
    const struct rail_node *n = &nodes[any(GATEWAYS)];
    unsigned nid = n->nid[any(n->count)];
    struct lnet_ni *ni = ni_near(nid);
    char text[32];

    snprintf(text, sizeof(text), "10.9.0.1@tcp%u", 5 + any(NNETS));
    if (n->alive && !ni->fatal && !pair_broken[ni->index][nid])
        arrive(ni, nids[nid], hdr_of(LNET_MSG_PUT, N(text), N("10.0.0.9@tcp"), 10));
}

static void random_event(void)
{
    unsigned what = any(100);

    if (what < 30)
        pass((1 + any(3)) * SEC);
    else if (what < 60)
        change_node(&nodes[any(NODES)]);
    else if (what < 70)
        break_pair();
    else if (what < 75)
        ON(0, lnet_ni_link(nis[any(NNIS)], any(3) > 0));
    else if (what < 85)
        change_route();
    else if (what < 92)
        forwarded();
    else
        push(&nodes[any(NODES)]);
    answer_all();
}

/* ---- checks ---- */

static bool works(const struct lnet_conf_gw_ni *e, const struct lnet_ni *ni)
{
    return !ni->fatal && !(e->ni->pairs_down & lnet_ni_bit(ni));
}

static bool is_up(const struct lnet_conf_gw_ni *e)
{
    bool one = false;

    for (unsigned i = 0; i < e->net->nni; i++)
        one |= works(e, e->net->ni[i]);
    return one && lnet_gw_ni_usable(e) && !e->ni->status_down;
}

/* Looks at the choice for a net, in the words of §7: which are better, and might have been taken.
 */
static void check_choice(unsigned net)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    const struct lnet_conf_gw_ni *to = NULL;
    const struct lnet_route *by = NULL;
    struct lnet_route *const *r;
    struct lnet_path path;
    unsigned nroutes, nlive = 0;
    bool good = false, work = false;
    char text[32];
    int nid;

    snprintf(text, sizeof(text), "10.9.0.1@tcp%u", 5 + net);
    path = sel(text);
    nroutes = lnet_conf_routes(conf, LNET_NET(LNET_LND_SOCK, 5 + net), &r);
    for (unsigned i = 0; i < nroutes; i++)
        nlive += r[i]->up && lnet_gw_alive(r[i]->gw);
    assert_int_equal(!nid_is_any(&path.next_hop), nlive > 0);
    nchecked++;
    if (nlive == 0)
        return;
    assert_int_equal(path.ni->net, nid_net(&path.next_hop));
    nid = index_of(&path.next_hop);
    for (unsigned i = 0; i < nroutes; i++) {
        const struct lnet_conf_gw *g = lnet_conf_gateway(conf, r[i]->gw);

        for (unsigned k = 0; k < g->nnis; k++)
            if (g->ni[k].ni == path.gw_ni && r[i]->up &&
                (!by || r[i]->priority < by->priority ||
                 (r[i]->priority == by->priority && r[i]->hops < by->hops))) {
                by = r[i];
                to = &g->ni[k];
            }
    }
    assert_non_null(by);
    assert_true(nid >= 0 && may_be[index_of(&by->gw->nid)][nid]);
    assert_true(lnet_gw_ni_usable(to));
    for (unsigned k = 0; k < to->gw->nnis; k++)
        good |= is_up(&to->gw->ni[k]);
    assert_true(!good || is_up(to)); /* §7.3 */
    for (unsigned i = 0; i < to->net->nni; i++)
        work |= works(to, to->net->ni[i]);
    assert_true(!work || works(to, path.ni)); /* §7.1 */
    for (unsigned i = 0; i < nroutes; i++) {  /* §7.4 */
        if (!r[i]->up || !lnet_gw_alive(r[i]->gw))
            continue;
        assert_true(by->priority <= r[i]->priority);
        assert_true(by->priority < r[i]->priority || by->hops <= r[i]->hops);
    }
    nsent++;
}

/* No peer NI is listed twice, lost, or left over. */
static void check_lists(void)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    unsigned n = 0;

    for (unsigned i = 0; i < LNET_GW_NI_SLOTS; i++)
        if (node->gw_ni[i])
            n++;
    assert_int_equal(n, node->ngw_nis);
    assert_true(n <= NIDS);
    for (unsigned i = 0; i < conf->ngws_known; i++)
        for (unsigned k = 0; k < conf->gw[i].nnis; k++) {
            const struct lnet_conf_gw_ni *e = &conf->gw[i].ni[k];
            const struct lnet_peer_ni *p = peer_find(&e->ni->nid);

            assert_true(k == 0 || !is_fixed((unsigned)index_of(&e->ni->nid)));
            assert_ptr_equal(lnet_gw_ni_find(node, &e->ni->nid), e->ni);
            assert_true(!p || p->gw_ni == e->ni);
        }
}

/* ---- rest ---- */

static bool is_right(unsigned g)
{
    const struct rail_node *n = &nodes[g];
    const struct lnet_gw *gw = lnet_gw_find(node, &nids[g]);
    const struct lnet_conf_gw *conf = gw ? lnet_conf_gateway(lnet_conf_get(node), gw) : NULL;
    unsigned want = n->kind == MULTI_RAIL ? n->count : 1;

    if (!conf || conf->nroutes == 0)
        return true;                          /* it is not checked */
    if (conf->nnis != want && n->claimed < 0) /* who lies has its other NIDs late */
        return false;
    for (unsigned k = 0; k < conf->nnis; k++) {
        const struct lnet_conf_gw_ni *e = &conf->ni[k];
        int nid = index_of(&e->ni->nid);

        if (owner((unsigned)nid) != n || !is_up(e) || e->ni->pairs_down & e->local)
            return false;
    }
    for (unsigned i = 0; i < conf->nroutes; i++)
        if (!conf->route[i]->up)
            return false;
    return true;
}

static bool all_right(void)
{
    for (unsigned g = 0; g < GATEWAYS; g++)
        if (!is_right(g))
            return false;
    return true;
}

static void say_wrong(void)
{
    char text[LNET_NIDSTR_SIZE];

    for (unsigned g = 0; g < GATEWAYS; g++) {
        const struct rail_node *n = &nodes[g];
        const struct lnet_gw *gw = lnet_gw_find(node, &nids[g]);
        const struct lnet_conf_gw *conf = gw ? lnet_conf_gateway(lnet_conf_get(node), gw) : NULL;

        if (is_right(g))
            continue;
        print_message("node %u, kind %u, claims %d:", g, (unsigned)n->kind, n->claimed);
        for (unsigned k = 0; k < n->count; k++)
            print_message(" %s", nid_format(&nids[n->nid[k]], text));
        print_message("\n  the gateway has");
        for (unsigned k = 0; conf && k < conf->nnis; k++) {
            const struct lnet_conf_gw_ni *e = &conf->ni[k];

            print_message(" %s (%s, pairs down %llx of %llx)", nid_format(&e->ni->nid, text),
                          is_up(e) ? "up" : "down", (unsigned long long)e->ni->pairs_down,
                          (unsigned long long)e->local);
        }
        for (unsigned i = 0; conf && i < conf->nroutes; i++)
            print_message(" route %s", conf->route[i]->up ? "up" : "down");
        print_message("\n");
    }
}

/* Each gateway gets a route of its own, over which its peer NIs take turns. */
static void check_turns(void)
{
    for (unsigned g = 0; g < GATEWAYS; g++) {
        const struct lnet_gw *gw;
        const struct lnet_conf_gw *conf;
        char net[16], dest[32], to[LNET_NIDSTR_SIZE];
        struct err err = {0};
        struct lnet_nid gone = nids[g];

        snprintf(net, sizeof(net), "tcp%u", 20 + g);
        snprintf(dest, sizeof(dest), "10.9.0.1@%s", net);
        assert_int_equal(route_add(net, nids[g], 2, 0), 0);
        answer_all();
        for (unsigned s = 0; s < REST_S && !is_right(g); s++) {
            pass(SEC);
            answer_all();
        }
        gw = lnet_gw_find(node, &nids[g]);
        conf = lnet_conf_gateway(lnet_conf_get(node), gw);
        if (!is_right(g))
            say_wrong();
        assert_true(is_right(g));
        for (unsigned k = 0; k < conf->nnis; k++) {
            nid_format(&conf->ni[k].ni->nid, to);
            assert_int_equal(count(TURNS * conf->nnis, dest, to, NULL), TURNS);
        }
        assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 20 + g), &gone, &err), 0);
        answer_all();
    }
}

static void rest(void)
{
    unsigned s;

    for (unsigned i = 0; i < NODES; i++)
        if (!nodes[i].alive) {
            nodes[i].alive = true;
            nodes[i].seqno = 1;
            nodes[i].acked_seqno = 0;
        }
    for (unsigned i = 0; i < NIDS; i++)
        if (nid_down[i] && owner(i)) {
            nid_down[i] = false;
            owner(i)->seqno++;
        }
    memset(nid_down, 0, sizeof(nid_down));
    memset(pair_broken, 0, sizeof(pair_broken));
    for (unsigned i = 0; i < NNIS; i++)
        ON(0, lnet_ni_link(nis[i], true));
    answer_all();
    for (s = 0; s < REST_S && !all_right(); s++) {
        pass(SEC);
        answer_all();
    }
    if (!all_right())
        say_wrong();
    assert_true(all_right());
    slowest_s = s > slowest_s ? s : slowest_s;
    check_turns();
}

static void test_rails_converge(void **state)
{
    static const char *const form[] = {"10.0.0.%u@tcp", "10.1.0.%u@tcp1", "10.2.0.%u@o2ib"};
    char text[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < NIDS; i++) {
        snprintf(text, sizeof(text), form[i % 3], 20 + i);
        nids[i] = N(text);
    }
    ping_timeout = 5;
    rails_up(false);
    ping_timeout = 50;
    nis[0] = tcp0;
    nis[1] = tcp1;
    nis[2] = tcp1b;
    nis[3] = ib0;
    for (unsigned i = 0; i < NNIS; i++)
        assert_int_equal(nis[i]->index, i);
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i] = (struct rail_node){.kind = i < GATEWAYS ? MULTI_RAIL : i % KINDS,
                                      .alive = true,
                                      .nid = {i},
                                      .count = 1,
                                      .claimed = -1,
                                      .seqno = 1};
        if (i < GATEWAYS)
            may_be[i][i] = true;
    }
    for (unsigned i = 1; i <= steps; i++) {
        random_event();
        for (unsigned net = 0; net < NNETS; net++)
            check_choice(net);
        check_lists();
        if (i % ROUND == 0)
            rest();
    }
    print_message("%u events: %u choices, %u with a route, %u NIDs moved, %u restarts; all right "
                  "after %u s at most\n",
                  steps, nchecked, nsent, nmoved, nrestarted, slowest_s);
    assert_true(nsent > 0 && nmoved > 0 && nrestarted > 0);
    node_down();
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {LNET_TEST(test_rails_converge)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    steps = argc > 2 ? (unsigned)atoi(argv[2]) : steps;
    rng = argc > 3 ? strtoull(argv[3], NULL, 0) * 2 + 1 : rng;
    return tests_main(argc < 2 ? argc : 2, argv, "test-lnet-rails-property", run_all);
}
