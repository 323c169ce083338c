/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resends under random events: sends end with any result, NIs and routes come and go, settings and
 * selection policies change, fault rules fail messages and hold them, requests are cancelled, the
 * node stops.
 *
 * Of each forwarded message no more is sent once a byte of it may have left, and each one is either
 * delivered or counted as a drop, once. docs/protocol/lnet-core.md §4.10, §6.2.
 *
 * usage: test_lnet_resend_property REACTORS [STEPS [SEED]]
 */
#include "config/nid_list.h"
#include "test/unit/lnet_rails.h"

#define PORTAL   5
#define MESSAGES 65536
#define REQUESTS 8

static unsigned steps = 4000;
static uint64_t rng = 17;
static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

static unsigned any(unsigned n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(rng >> 33) % n;
}

/* ---- messages that are forwarded ---- */

static bool left[MESSAGES]; /* a byte of it may have */
static unsigned nforwarded, own_failed, nsent_again, nleft;
static void (*local_sent)(struct lnet_msg *msg);

static void on_local_sent(struct lnet_msg *msg)
{
    own_failed += msg->result.reason != LNET_DROP_NONE;
    local_sent(msg);
}

static void forward(const char *to)
{
    struct lnet_nid from = peer_on(any(3), 0, "tcp", any(3));

    if (nforwarded == MESSAGES)
        return;
    arrive(tcp0, from, hdr_put(from, N(to), PORTAL, nforwarded++, 0, any(2) * 100, false));
}

static bool is_forwarded(const struct lnet_hdr *hdr, struct lnet_put *put)
{
    if (hdr->type != LNET_MSG_PUT || nid_net(&hdr->src_nid) != tcp0->net ||
        nid_same(&hdr->src_nid, &tcp0->nid))
        return false;
    lnet_body_get_put(hdr, put);
    return put->portal == PORTAL;
}

static void look_at_sent(void)
{
    struct lnet_put put;

    for (unsigned i = 0; i < loop.nsent; i++)
        if (is_forwarded(&loop.sent[i].hdr, &put) && left[put.match_bits])
            fail_msg("message %u is sent once more", (unsigned)put.match_bits);
    sent_clear();
}

static struct lnet_result any_result(void)
{
    static const enum lnet_drop why[] = {LNET_DROP_NEXT_HOP_LOST, LNET_DROP_NEXT_HOP_DOWN,
                                         LNET_DROP_NEXT_HOP_TIMEOUT, LNET_DROP_FAULT_SEND};

    if (any(3) == 0)
        return ok;
    return (struct lnet_result){why[any(4)], (enum lnet_health)any(LNET_HEALTH_COUNT),
                                .unsent = any(4) > 0};
}

static void end_one(void)
{
    struct lnet_result result = any_result();
    struct lnet_msg *msg;
    struct lnet_put put;

    if (loop.nheld == 0)
        return;
    look_at_sent();
    msg = loop.held[any(loop.nheld)];
    if (is_forwarded(&msg->hdr, &put)) {
        if (any(8) == 0 && !msg->accepted)
            ON(msg->tx_peer->shard->index, lnet_send_accepted(msg));
        left[put.match_bits] = !result.unsent || msg->accepted;
        nleft += left[put.match_bits];
    }
    send_end(msg, result);
}

/* ---- requests of this node ---- */

static struct request {
    struct lnet_md md;
    struct mem_seg seg;
    struct lnet_eq eq;
    uint8_t data[100];
    bool used;
} req[REQUESTS];

static void on_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct request *r = md->user;

    if (ev->unlinked)
        r->used = false;
    else if (ev->type == LNET_EVENT_SEND && ev->status)
        lnet_md_unlink(md);
}

static void request(struct request *r)
{
    static const char *const to[] = {D, E, A, "10.1.0.60@tcp1", TO};
    struct lnet_nid dest = N(to[any(5)]);
    int rc;

    if (r->used) {
        ON(0, lnet_md_unlink(&r->md));
        return;
    }
    *r = (struct request){.used = true};
    r->seg = (struct mem_seg){.addr = r->data, .len = sizeof(r->data), .region = MEM_REGION_NONE};
    r->eq.fn = on_event;
    r->md = (struct lnet_md){.segs = &r->seg,
                             .nsegs = 1,
                             .length = sizeof(r->data),
                             .threshold = 2,
                             .eq = &r->eq,
                             .user = r};
    ON(0, assert_int_equal(lnet_md_bind(node, &r->md), 0));
    ON(0, rc = any(2) ? lnet_get(&r->md, NULL, &dest, PID, PORTAL, 1, 0)
                      : lnet_put(&r->md, any(2), NULL, &dest, PID, PORTAL, 1, 0, 0));
    if (rc)
        ON(0, lnet_md_unlink(&r->md));
}

/* ---- the configuration ---- */

static void on_changed(void *arg, int rc, const struct err *why)
{
    --*(int *)arg;
}

static int changes;

static void change_ni(void)
{
    struct lnet_ni_conf conf = {
        .nid = N("10.1.0.2@tcp1"), .tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};
    struct err err = {0};
    int rc;

    if (changes > 0)
        return;
    conf.net = nid_net(&conf.nid);
    if (lnet_ni_find(node, &conf.nid))
        rc = lnet_ni_del(node, &conf.nid, on_changed, &changes, &err);
    else
        rc = lnet_ni_add_live(node, &conf, on_changed, &changes, &err);
    changes += rc == 0;
}

static void change_route(void)
{
    struct lnet_route_conf conf = {.gateway = N(D), .hops = 1};
    struct err err = {0};

    assert_int_equal(net_parse("tcp5", &conf.net), 0);
    if (lnet_routes_change(node, NULL, 0, &conf, 1, NULL, &err))
        (void)lnet_routes_change(node, &conf, 1, NULL, 0, NULL, &err);
}

static void change_rules(void)
{
    struct lnet_health_rules r = LNET_HEALTH_RULES;
    struct err err = {0};

    r.sensitivity = any(3) ? 100 : 0;
    r.retry_count = any(4);
    r.response_tracking = any(4);
    assert_int_equal(lnet_health_set(node, &r, &err), 0);
}

static void change_policies(void)
{
    static const char *const rules[][3] = {
        {"10.1.0.1@tcp1", D, ""}, {"", "tcp1", ""}, {"", "*@tcp5", A}, {"10.1.0.2@tcp1", "", ""}};
    struct lnet_udsp list[2] = {{.priority = any(3)}, {.priority = any(3)}};
    struct err err = {0};
    unsigned n = any(3);

    for (unsigned i = 0; i < n; i++) {
        const char *const *rule = rules[any(4)];

        if (rule[0][0])
            assert_int_equal(cfg_nid_expr_parse(rule[0], &list[i].src, &err), 0);
        if (rule[1][0])
            assert_int_equal(cfg_nid_expr_parse(rule[1], &list[i].dst, &err), 0);
        if (rule[2][0])
            assert_int_equal(cfg_nid_expr_parse(rule[2], &list[i].rte, &err), 0);
    }
    assert_int_equal(lnet_udsp_set(node, list, n, &err), 0);
}

static void change_faults(void)
{
    struct lnet_fault_nids all = {.any = true, .text = "*"};
    struct lnet_fault_rule r = {.src = all, .dst = all, .local = all, .rate = 2 + any(4)};
    struct err err = {0};

    r.kind = any(2) ? LNET_FAULT_DELAY : LNET_FAULT_DROP;
    if (any(2))
        (void)lnet_fault_del(node, r.kind, &all, &all, &err);
    else if (r.kind == LNET_FAULT_DELAY)
        r.latency = 1;
    else
        r.health = 1u << (1 + any(LNET_HEALTH_COUNT - 1));
    if (r.latency || r.health)
        (void)lnet_fault_add(node, &r, &err);
}

static void change_pair(void)
{
    static const char *const nids[] = {A, B, C, D};
    struct lnet_nid nid = N(nids[any(4)]);
    struct lnet_ni *ni = nid_net(&nid) == ib0->net ? ib0 : tcp1;
    struct lnet_peer_ni *p = peer_find(&nid);

    if (p)
        ON(home_of(&nid), lnet_peer_ni_notify(ni, p, any(2)));
}

/* ---- the test ---- */

static void event(void)
{
    static const char *const to[] = {TO, TO, "10.1.0.50@tcp1", "10.2.0.60@o2ib", A};

    switch (any(32)) {
    case 0:
        change_ni();
        break;
    case 1:
        change_route();
        break;
    case 2:
        change_rules();
        break;
    case 3:
        change_policies();
        break;
    case 4:
        change_pair();
        break;
    case 9:
        change_faults();
        break;
    case 5:
    case 6:
    case 7:
        request(&req[any(REQUESTS)]);
        break;
    case 8:
        clock_us += any(4) ? SEC / 10 : 10 * SEC;
        break;
    default:
        if (any(5) < 2)
            forward(to[any(5)]);
        else
            end_one();
    }
    for (unsigned n = any(6); n > 0; n--)
        step_all();
}

static void run(unsigned n)
{
    health_counts = true;
    memset(left, 0, sizeof(left));
    memset(req, 0, sizeof(req));
    nforwarded = own_failed = 0;
    changes = 0;
    rails_up(true);
    peer_add(D, D);
    peer_add(D, E);
    local_sent = node->local_sent;
    node->local_sent = on_local_sent;
    loop.hold_send = true;
    for (unsigned i = 0; i < n; i++) {
        event();
        if (loop.nsent > MAX_SENT / 2)
            look_at_sent();
    }
}

/* The node stops in the middle of it all, and nothing is left. */
static void test_stop(void **state)
{
    for (unsigned i = 0; i < steps / 200; i++) {
        run(50 + any(300));
        node_end(any(2));
    }
}

static void test_random(void **state)
{
    unsigned routed;

    run(steps);
    for (unsigned i = 0; i < 600 && (i < 300 || loop.nheld > 0); i++) {
        while (loop.nheld > 0)
            end_one();
        pass(SEC / 2);
    }
    loop.hold_send = false;
    nsent_again = (unsigned)stat_of(LNET_STAT_RESEND_COUNT);
    routed = (unsigned)stat_of(LNET_STAT_ROUTE_COUNT);
    print_message(
        "%u forwarded, %u routed, %u of own failed, %u resends, %u successful, %u dropped\n",
        nforwarded, routed, own_failed, nsent_again,
        (unsigned)stat_of(LNET_STAT_SUCCESSFUL_RESENDS), (unsigned)drops_sum());
    assert_int_equal(nforwarded + own_failed, routed + drops_sum());
    assert_true(nsent_again > steps / 100);
    for (unsigned i = 0; i < REQUESTS; i++)
        if (req[i].used)
            request(&req[i]);
    settle();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_random),
    LNET_TEST(test_stop),
};

static int run_all(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    steps = argc > 2 ? (unsigned)atoi(argv[2]) : steps;
    rng = argc > 3 ? strtoull(argv[3], NULL, 0) * 2 + 1 : rng;
    return tests_main(argc < 2 ? argc : 2, argv, "test-lnet-resend-property", run_all);
}
