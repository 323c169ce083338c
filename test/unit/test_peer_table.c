/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/lnet/peer/table.h: which NIDs a peer has, by docs/protocol/lnet-core.md §3.6. Each row of
 * "Reply handling" and of "Merge" has a test that names it (test/lint/rows.py). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/lnet/peer/table.h"

#define MR                                                                                         \
    (LNET_PING_NI_STATUS | LNET_PING_RTE_DISABLED | LNET_PING_MULTI_RAIL | LNET_PING_DISCOVERY)
#define NO_MR (MR & ~LNET_PING_MULTI_RAIL)
#define NO_DD (MR & ~LNET_PING_DISCOVERY)

static struct peer_table table;
static unsigned events[PEER_GONE + 1];
static struct peer_event last[PEER_GONE + 1];

static struct lnet_nid nid(const char *text)
{
    struct lnet_nid out;

    assert_int_equal(nid_parse(text, &out), 0);
    return out;
}

static bool is_own(void *arg, const struct lnet_nid *n)
{
    struct lnet_nid own = nid("10.0.0.254@tcp");

    (void)arg;
    return nid_same(n, &own);
}

static void notify(void *arg, const struct peer_event *event)
{
    (void)arg;
    events[event->kind]++;
    last[event->kind] = *event;
}

static void begin(unsigned max_peers, unsigned max_nids, uint8_t prefix4)
{
    struct peer_table_opts opts = {.max_peers = max_peers,
                                   .max_nids = max_nids,
                                   .max_pinned = 2,
                                   .prefix4 = prefix4,
                                   .prefix6 = 64,
                                   .is_own = is_own,
                                   .notify = notify};

    memset(events, 0, sizeof(events));
    assert_int_equal(peer_table_init(&table, &opts), 0);
}

static int setup(void **state)
{
    (void)state;
    begin(8, 32, 32);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PEER_AGES; i++)
        while (!TAILQ_EMPTY(&table.by_age[i]))
            peer_table_del(&table, TAILQ_FIRST(&table.by_age[i]));
    assert_int_equal(table.npeers, 0);
    assert_int_equal(table.nnis, 0);
    assert_int_equal(table.nnis_unanswered, 0);
    assert_int_equal(table.npinned_peers, 0);
    assert_int_equal(table.npinned_nis, 0);
    peer_table_fini(&table);
    return 0;
}

/* The info of NIDs in one string, separated by spaces; '-' before a NID: it is down. */
static struct lnet_ping_info *info(uint32_t features, uint32_t seqno, const char *nids)
{
    static struct lnet_ping_info out;
    char text[512], *save = NULL;

    out = (struct lnet_ping_info){.features = features, .seqno = seqno};
    snprintf(text, sizeof(text), "%s", nids);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        out.ni[out.count].nid = nid(w + (*w == '-'));
        out.ni[out.count++].status = *w == '-' ? LNET_NI_DOWN : LNET_NI_UP;
    }
    return &out;
}

static struct peer *get(const char *text)
{
    struct lnet_nid n = nid(text);

    return peer_table_get(&table, &n);
}

static struct peer *find(const char *text)
{
    struct lnet_nid n = nid(text);

    return peer_table_find(&table, &n);
}

static struct peer_ni *ni_of(const char *text)
{
    struct lnet_nid n = nid(text);

    return peer_table_find_ni(&table, &n);
}

/* A peer answers. */
static struct peer *learn(struct peer *p, uint32_t features, const char *nids)
{
    peer_table_answers(&table, p, true);
    peer_table_hear(&table, p, info(features, 2, nids), true);
    return peer_table_merge(&table, p, info(features, 2, nids), true);
}

/* A peer pushes. */
static struct peer *pushed(struct peer *p, const char *nids)
{
    peer_table_hear(&table, p, info(MR, 2, nids), true);
    return peer_table_merge(&table, p, info(MR, 2, nids), true);
}

static int add(const char *primary, const char *n, uint32_t state)
{
    struct lnet_nid a = nid(primary), b = nid(n);

    return peer_table_add(&table, &a, &b, state);
}

/* The NIDs of a peer, the primary NID first, nets apart by '|'. */
static const char *shown(const struct peer *p)
{
    static char out[1024];
    char text[LNET_NIDSTR_SIZE];
    const struct peer_net *n;
    const struct peer_ni *ni;
    unsigned count = 0;

    assert_non_null(p);
    snprintf(out, sizeof(out), "%s:", nid_format(&p->primary, text));
    TAILQ_FOREACH(n, &p->nets, link) {
        assert_ptr_equal(n->peer, p);
        assert_false(TAILQ_EMPTY(&n->nis));
        strcat(out, n == TAILQ_FIRST(&p->nets) ? "" : " |");
        TAILQ_FOREACH(ni, &n->nis, link) {
            assert_ptr_equal(ni->net, n);
            assert_int_equal(nid_net(&ni->nid), n->net);
            strcat(strcat(out, " "), nid_format(&ni->nid, text));
            count++;
        }
    }
    assert_int_equal(count, p->nnis);
    return out;
}

/* ---- reply handling ---- */

static void discovery_off_there(void **state)
{
    struct peer *p = get("10.0.0.1@tcp");

    (void)state;
    /* §3.6 reply 1, merge 6 */
    p = learn(p, NO_DD, "10.0.0.9@tcp 10.0.0.1@tcp");
    assert_int_equal(p->state & (PEER_NO_DISCOVERY | PEER_MULTI_RAIL | PEER_MARK_DELETION),
                     PEER_NO_DISCOVERY);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp");
    assert_int_equal(ni_of("10.0.0.1@tcp")->status, LNET_NI_UP);
    /* Back on. */
    p = learn(p, MR, "10.0.0.9@tcp 10.0.0.1@tcp");
    assert_int_equal(p->state & (PEER_NO_DISCOVERY | PEER_MULTI_RAIL), PEER_MULTI_RAIL);
    assert_string_equal(shown(p), "10.0.0.9@tcp: 10.0.0.1@tcp 10.0.0.9@tcp");
}

static void discovery_off_here(void **state)
{
    struct peer *p = get("10.0.0.1@tcp");

    (void)state;
    /* §3.6 reply 1, reply 3 */
    peer_table_hear(&table, p, info(MR, 2, "10.0.0.1@tcp 10.0.0.2@tcp"), false);
    p = peer_table_merge(&table, p, info(MR, 2, "10.0.0.1@tcp 10.0.0.2@tcp"), false);
    assert_int_equal(p->state & (PEER_NO_DISCOVERY | PEER_MULTI_RAIL | PEER_MARK_DELETION),
                     PEER_NO_DISCOVERY);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp");
}

static void discovered_peer_turns_discovery_off(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp");

    (void)state;
    /* §3.6 reply 2 */
    peer_table_hear(&table, p, info(NO_DD, 2, "10.0.0.1@tcp"), true);
    assert_true(p->state & PEER_MARK_DELETION);
    /* The peer is created again, answers the same, and is not deleted again. */
    peer_table_del(&table, p);
    p = learn(get("10.0.0.1@tcp"), NO_DD, "10.0.0.1@tcp 10.0.0.2@tcp");
    p->state |= PEER_DISCOVERED;
    p = learn(p, NO_DD, "10.0.0.1@tcp 10.0.0.2@tcp");
    assert_false(p->state & PEER_MARK_DELETION);
}

static void configured_peer_turns_discovery_off(void **state)
{
    struct peer *p;

    (void)state;
    /* §3.6 reply 2 */
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.2@tcp", PEER_MULTI_RAIL), 0);
    p = learn(find("10.0.0.1@tcp"), NO_DD, "10.0.0.1@tcp");
    assert_int_equal(p->state & (PEER_MARK_DELETION | PEER_NO_DISCOVERY | PEER_MULTI_RAIL),
                     PEER_NO_DISCOVERY | PEER_MULTI_RAIL);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
}

static void multi_rail(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp");

    (void)state;
    /* §3.6 reply 3 */
    assert_true(p->state & PEER_MULTI_RAIL);
    /* §3.6 reply 4 */
    p = learn(p, NO_MR, "10.0.0.1@tcp");
    assert_false(p->state & PEER_MULTI_RAIL);
    assert_int_equal(events[PEER_NO_MULTI_RAIL], 1);
    /* §3.6 reply 3 */
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.1@tcp", 0), 0);
    p = learn(p, MR, "10.0.0.1@tcp");
    assert_false(p->state & PEER_MULTI_RAIL);
}

static void seqno(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp");

    (void)state;
    /* §3.6 reply 5 */
    peer_table_hear(&table, p, info(MR, 1, "10.0.0.1@tcp"), true);
    p = peer_table_merge(&table, p, info(MR, 1, "10.0.0.1@tcp"), true);
    assert_int_equal(p->seqno, 1);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp");
    /* §3.6 push 6 */
    peer_table_hear(&table, p, info(MR, 1, "10.0.0.1@tcp 10.0.0.3@tcp"), true);
    p = peer_table_merge(&table, p, info(MR, 1, "10.0.0.1@tcp 10.0.0.3@tcp"), true);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.3@tcp");
}

/* ---- merge ---- */

static void no_primary(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp");

    (void)state;
    /* §3.2 "thrown away" */
    assert_ptr_equal(learn(p, MR, ""), p);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
}

static void primary_of_other(void **state)
{
    struct peer *a = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp");
    struct peer *b = get("10.0.0.2@tcp");

    (void)state;
    /* Anybody can say so: the owner answers, and is asked. Both list the other's NID. */
    assert_ptr_equal(learn(b, MR, "10.0.0.1@tcp 10.0.0.2@tcp"), b);
    assert_ptr_equal(last[PEER_NI_CLAIMED].other, a);
    assert_ptr_equal(learn(a, MR, "10.0.0.1@tcp 10.0.0.2@tcp"), a);
    assert_string_equal(shown(a), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
    assert_int_equal(events[PEER_GONE], 1);
    assert_ptr_equal(last[PEER_GONE].peer, b);
    assert_ptr_equal(last[PEER_GONE].other, a);
    assert_int_equal(table.npeers, 1);
    /* §3.6 merge 1. A peer that never answered itself learns all that the info says. */
    peer_table_del(&table, a);
    a = get("10.0.0.1@tcp");
    assert_ptr_equal(learn(get("10.0.0.2@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp"), a);
    assert_true(a->state & PEER_NIDS_UPTODATE);
    assert_true(a->state & PEER_MULTI_RAIL);
    assert_int_equal(a->seqno, 2);
    assert_int_equal(table.npeers, 1);
    /* A NID that the node answers on but does not list stays a peer of its own. */
    b = get("10.0.0.3@tcp");
    peer_table_answers(&table, a, false);
    assert_ptr_equal(learn(b, MR, "10.0.0.1@tcp 10.0.0.2@tcp"), a);
    assert_string_equal(shown(b), "10.0.0.3@tcp: 10.0.0.3@tcp");
}

static void primary_changed(void **state)
{
    struct peer *p = get("10.0.0.1@tcp");

    (void)state;
    /* §3.6 merge 2 */
    p = learn(p, MR, "10.1.0.1@tcp1 10.0.0.1@tcp 10.0.0.2@tcp");
    assert_string_equal(shown(p), "10.1.0.1@tcp1: 10.0.0.1@tcp 10.0.0.2@tcp | 10.1.0.1@tcp1");
    assert_int_equal(events[PEER_PRIMARY], 1);
    /* §3.6 merge 7 */
    p = learn(p, MR, "10.0.0.2@tcp");
    assert_string_equal(shown(p), "10.0.0.2@tcp: 10.0.0.2@tcp");
    /* §3.2 PRIMARY_LARGE */
    p = learn(p, MR | LNET_PING_LARGE_ADDR | LNET_PING_PRIMARY_LARGE, "10.0.0.2@tcp fd00::1@tcp");
    assert_string_equal(shown(p), "fd00::1@tcp: 10.0.0.2@tcp fd00::1@tcp");
}

static void primary_locked(void **state)
{
    struct peer *p = get("10.0.0.1@tcp"), *other = get("10.0.0.2@tcp");

    (void)state;
    /* §3.6 merge 2, merge 8 */
    p->state |= PEER_LOCK_PRIMARY;
    assert_ptr_equal(learn(p, MR, "10.0.0.2@tcp 10.0.0.3@tcp"), p);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.3@tcp");
    assert_int_equal(ni_of("10.0.0.1@tcp")->status, LNET_NI_DOWN);
    assert_ptr_equal(last[PEER_GONE].peer, other);
    /* §12.1 "same NID claimed by two peers", locked */
    peer_table_answers(&table, p, false);
    other = learn(get("10.0.0.8@tcp"), MR, "10.0.0.8@tcp 10.0.0.1@tcp 10.0.0.3@tcp");
    assert_string_equal(shown(other), "10.0.0.8@tcp: 10.0.0.8@tcp 10.0.0.3@tcp");
    assert_int_equal(events[PEER_NI_CLAIMED], 1);
    assert_ptr_equal(last[PEER_NI_CLAIMED].other, p);
}

static void configured(void **state)
{
    struct peer *p, *other;

    (void)state;
    /* §3.6 merge 2 */
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.2@tcp", PEER_MULTI_RAIL), 0);
    p = find("10.0.0.2@tcp");
    p = learn(p, MR & ~LNET_PING_RTE_DISABLED, "10.0.0.9@tcp -10.0.0.2@tcp");
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
    assert_int_equal(ni_of("10.0.0.2@tcp")->status, LNET_NI_DOWN);
    assert_true(p->state & PEER_ROUTER_ENABLED);
    /* §12.1 "same NID claimed by two peers", configured */
    other = learn(get("10.0.0.8@tcp"), MR, "10.0.0.8@tcp 10.0.0.2@tcp");
    assert_string_equal(shown(other), "10.0.0.8@tcp: 10.0.0.8@tcp");
    assert_ptr_equal(last[PEER_NI_CLAIMED].other, p);
    /* The data of a NID that lists the configured primary NID goes to the configured peer if that
     * does not answer. */
    assert_ptr_equal(learn(other, MR, "10.0.0.1@tcp 10.0.0.8@tcp"), other);
    peer_table_answers(&table, p, false);
    assert_ptr_equal(learn(other, MR, "10.0.0.1@tcp 10.0.0.8@tcp"), p);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
}

static void router_enabled(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR & ~LNET_PING_RTE_DISABLED, "10.0.0.1@tcp");

    (void)state;
    /* §3.6 merge 3 */
    assert_true(p->state & PEER_ROUTER_ENABLED);
    p = learn(p, MR, "10.0.0.1@tcp");
    assert_false(p->state & PEER_ROUTER_ENABLED);
}

static void statuses(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp -10.0.0.2@tcp");

    (void)state;
    /* §3.6 merge 5 */
    assert_int_equal(events[PEER_NI_STATUS], 2);
    assert_int_equal(last[PEER_NI_STATUS].old_status, 0);
    /* §3.6 merge 4 */
    p = learn(p, MR, "-10.0.0.1@tcp -10.0.0.2@tcp");
    assert_int_equal(events[PEER_NI_STATUS], 3);
    assert_int_equal(last[PEER_NI_STATUS].old_status, LNET_NI_UP);
    assert_ptr_equal(last[PEER_NI_STATUS].ni, ni_of("10.0.0.1@tcp"));
    assert_int_equal(last[PEER_NI_STATUS].ni->status, LNET_NI_DOWN);
    /* A word that is neither is no status. */
    info(MR, 2, "10.0.0.1@tcp")->ni[0].status = 7;
    peer_table_merge(&table, p, info(MR, 2, "10.0.0.1@tcp"), true);
    assert_int_equal(ni_of("10.0.0.1@tcp")->status, LNET_NI_UP);
}

static void nids_added_and_deleted(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR,
                           "10.0.0.1@tcp 10.9.0.1@o2ib7 fd00::1@tcp 10.0.0.254@tcp 10.0.0.1@tcp");

    (void)state;
    /* §3.6 merge 6 */
    /* Nets that we do not have are kept; a NID of ours is not. */
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp fd00::1@tcp | 10.9.0.1@o2ib7");
    assert_int_equal(events[PEER_NI_CLAIMED], 1);
    assert_int_equal(ni_of("10.0.0.1@tcp")->origin, PEER_BY_TRAFFIC);
    assert_int_equal(ni_of("fd00::1@tcp")->origin, PEER_BY_DISCOVERY);
    /* §3.6 merge 7 */
    p = learn(p, MR, "10.0.0.1@tcp 10.0.0.2@tcp");
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
    assert_null(find("10.9.0.1@o2ib7"));
    assert_int_equal(events[PEER_NI_REMOVED], 2);
}

static void nid_moves(void **state)
{
    struct peer *a = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp"), *b;

    (void)state;
    /* §12.1 "same NID claimed by two peers", later data wins, if the owner does not answer */
    peer_table_answers(&table, a, false);
    b = learn(get("10.0.0.3@tcp"), MR, "10.0.0.3@tcp 10.0.0.2@tcp");
    assert_string_equal(shown(a), "10.0.0.1@tcp: 10.0.0.1@tcp");
    assert_string_equal(shown(b), "10.0.0.3@tcp: 10.0.0.3@tcp 10.0.0.2@tcp");
    assert_ptr_equal(last[PEER_NI_MOVED].other, a);
    /* A primary NID that moves: the other peer takes another one. */
    peer_table_answers(&table, b, false);
    a = learn(a, MR, "10.0.0.1@tcp 10.0.0.3@tcp");
    assert_string_equal(shown(a), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.3@tcp");
    assert_string_equal(shown(b), "10.0.0.2@tcp: 10.0.0.2@tcp");
}

/* ---- configuration ---- */

static void configure(void **state)
{
    struct lnet_nid a = nid("10.0.0.1@tcp"), b = nid("10.0.0.2@tcp"), c = nid("10.0.0.3@tcp");
    struct peer *p;

    (void)state;
    learn(get("10.0.0.3@tcp"), MR, "10.0.0.3@tcp 10.0.0.2@tcp");
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.2@tcp", 0), -EPERM);
    assert_int_equal(add("0@lo", "10.0.0.2@tcp", PEER_MULTI_RAIL), -EINVAL);
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.254@tcp", PEER_MULTI_RAIL), -EINVAL);
    assert_null(find("10.0.0.1@tcp"));
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.2@tcp", PEER_MULTI_RAIL | PEER_LOCK_PRIMARY), 0);
    p = find("10.0.0.1@tcp");
    assert_int_equal(p->state, PEER_CONFIGURED | PEER_MULTI_RAIL | PEER_LOCK_PRIMARY);
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
    assert_int_equal(ni_of("10.0.0.2@tcp")->origin, PEER_BY_CONFIG);
    assert_string_equal(shown(find("10.0.0.3@tcp")), "10.0.0.3@tcp: 10.0.0.3@tcp");
    assert_int_equal(add("10.0.0.2@tcp", "10.0.0.2@tcp", PEER_MULTI_RAIL), -EEXIST);
    assert_int_equal(add("10.0.0.3@tcp", "10.0.0.2@tcp", PEER_MULTI_RAIL), -EEXIST);
    assert_int_equal(peer_table_del_nid(&table, &a, &c), -ENOENT);
    assert_int_equal(peer_table_del_nid(&table, &a, &a), -EBUSY);
    assert_int_equal(peer_table_del_nid(&table, &a, &b), 0);
    assert_int_equal(peer_table_del_nid(&table, &a, &a), 0);
    assert_null(find("10.0.0.1@tcp"));
    /* The primary NID was another peer's second one. */
    learn(get("10.0.0.3@tcp"), MR, "10.0.0.3@tcp 10.0.0.2@tcp");
    assert_int_equal(add("10.0.0.2@tcp", "10.0.0.2@tcp", 0), 0);
    assert_string_equal(shown(find("10.0.0.2@tcp")), "10.0.0.2@tcp: 10.0.0.2@tcp");
}

static void who_is_no_peer(void **state)
{
    (void)state;
    assert_null(get("0@lo"));
    assert_null(get("10.0.0.254@tcp"));
    assert_null(peer_table_get(&table, &LNET_NID_ANY));
    assert_int_equal(table.nrefused, 0);
}

/* ---- room ---- */

static void full_table(void **state)
{
    char text[32];
    struct peer *p;

    (void)state;
    for (unsigned i = 0; i < 9; i++) {
        struct lnet_nid n;

        snprintf(text, sizeof(text), "10.0.%u.1@tcp", i);
        n = nid(text);
        p = i == 1 ? peer_table_pin(&table, &n) : get(text); /* that one has a place of its own */
        if (i == 0)
            learn(p, MR, text); /* it answers */
        if (i == 2)
            p->state |= PEER_DISCOVERING;
    }
    assert_non_null(get("10.0.3.1@tcp")); /* is used again */
    assert_non_null(get("10.0.9.1@tcp"));
    assert_null(find("10.0.4.1@tcp"));
    for (unsigned i = 10; i < 15; i++) {
        snprintf(text, sizeof(text), "10.0.%u.1@tcp", i);
        assert_non_null(get(text));
    }
    assert_null(find("10.0.3.1@tcp"));
    assert_non_null(find("10.0.0.1@tcp"));
    assert_non_null(find("10.0.1.1@tcp"));
    assert_non_null(find("10.0.2.1@tcp"));
    for (unsigned i = 0; i < 2; i++)
        TAILQ_FOREACH(p, &table.by_age[i], by_age)
            p->state |= PEER_PUSH_SENT;
    assert_null(get("10.0.99.1@tcp"));
    assert_int_equal(table.nrefused, 1);
    assert_int_equal(table.npeers, 9);
}

/* A pinned NID finds room in a full table, and pays for nothing. */
static void pins(void **state)
{
    struct lnet_nid a = nid("10.9.0.1@tcp"), b = nid("10.9.0.2@tcp"), c = nid("10.9.0.3@tcp");
    char text[32];
    struct peer *p;

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        snprintf(text, sizeof(text), "10.0.%u.1@tcp", i);
        get(text)->state |= PEER_PUSH_SENT; /* none makes room */
    }
    assert_null(get("10.0.8.1@tcp"));
    p = peer_table_pin(&table, &a);
    assert_ptr_equal(peer_table_pin(&table, &a), p);
    assert_null(p->account);
    assert_non_null(peer_table_pin(&table, &b));
    assert_null(peer_table_pin(&table, &c)); /* max_pinned */
    assert_int_equal(table.npeers, 10);
    assert_null(get("10.0.8.1@tcp"));
    /* It ends with as many, and a peer that sent no ping info goes. */
    peer_table_unpin(&table, &a);
    assert_ptr_equal(find("10.9.0.1@tcp"), p);
    peer_table_unpin(&table, &a);
    peer_table_unpin(&table, &a);
    assert_null(find("10.9.0.1@tcp"));
    /* One that sent its own goes only if there is no room. */
    learn(find("10.9.0.2@tcp"), MR, "10.9.0.2@tcp");
    peer_table_unpin(&table, &b);
    assert_null(find("10.9.0.2@tcp"));
    find("10.0.1.1@tcp")->state = 0;
    p = learn(peer_table_pin(&table, &b), MR, "10.9.0.2@tcp");
    peer_table_unpin(&table, &b);
    assert_ptr_equal(find("10.9.0.2@tcp"), p);
    assert_int_equal(p->account->held, 1);
    assert_int_equal(p->age, PEER_ANSWERED);
    assert_int_equal(table.npeers, 8);
    assert_null(find("10.0.1.1@tcp"));    /* made room */
    assert_non_null(get("10.0.8.1@tcp")); /* the one that was pinned makes room now */
    assert_null(find("10.9.0.2@tcp"));
}

/* A gateway has a place for the NID of its routes. For the others that it lists it pays as others
 * do, also for those that it takes from another peer, and cannot fill the table with them. */
static void pinned_lists_many(void **state)
{
    struct lnet_nid a = nid("10.9.0.1@tcp");
    struct peer *p = peer_table_pin(&table, &a);
    char text[32];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "10.0.%u.1@tcp", i);
        peer_table_answers(&table, learn(get(text), MR, text), i < 3);
    }
    p = learn(p, MR, "10.9.0.1@tcp 10.0.3.1@tcp");
    assert_int_equal(p->account->held, 2);
    for (unsigned i = 0; i < 3; i++) {
        static struct lnet_ping_info in = {.features = MR, .seqno = 2, .count = 40};

        for (unsigned k = 0; k < in.count; k++) {
            snprintf(text, sizeof(text), "10.9.0.%u@tcp", k + 1);
            in.ni[k] = (struct lnet_ping_ni){.nid = nid(text), .status = LNET_NI_UP};
        }
        peer_table_merge(&table, p, &in, true);
        assert_in_range(p->nnis, 10, 17); /* of 32 */
        assert_int_equal(p->account->held, p->nnis);
    }
    for (unsigned i = 0; i < 3; i++) {
        snprintf(text, sizeof(text), "10.0.%u.1@tcp", i);
        assert_non_null(find(text));
    }
    peer_table_unpin(&table, &a);
    assert_int_equal(p->account->held, p->nnis);
}

/* A pin goes with its NID when that moves, and discovery does not remove the NID. */
static void pins_follow(void **state)
{
    struct lnet_nid a = nid("10.0.0.1@tcp"), b = nid("10.0.0.2@tcp");
    struct peer *p = peer_table_pin(&table, &a), *q = peer_table_pin(&table, &b);

    (void)state;
    p = learn(p, MR, "10.0.0.1@tcp 10.0.0.2@tcp");
    assert_ptr_equal(find("10.0.0.2@tcp"), q); /* a pinned one is not taken by another pinned one */
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp");
    peer_table_unpin(&table, &b);
    p = learn(p, MR, "10.0.0.1@tcp 10.0.0.2@tcp");
    peer_table_replied(&table, &b, info(MR, 1, "10.0.0.1@tcp 10.0.0.2@tcp"));
    assert_ptr_equal(peer_table_pin(&table, &b), p);
    assert_int_equal(p->pins, 2);
    assert_int_equal(table.npinned_peers, 1);
    p = learn(p, MR, "10.0.0.3@tcp");
    assert_string_equal(shown(p), "10.0.0.3@tcp: 10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.3@tcp");
    assert_int_equal(ni_of("10.0.0.1@tcp")->status, LNET_NI_DOWN);
    peer_table_unpin(&table, &a);
    p = learn(p, MR, "10.0.0.3@tcp");
    assert_string_equal(shown(p), "10.0.0.3@tcp: 10.0.0.2@tcp 10.0.0.3@tcp");
    peer_table_unpin(&table, &b);
    assert_int_equal(p->age, PEER_ANSWERED);
    assert_int_equal(table.npinned_peers, 0);
}

/* A peer that is made anew keeps one NID; each pinned one stays. §3.6 row 1 */
static void made_anew(void **state)
{
    struct lnet_nid a = nid("10.0.0.1@tcp"), b = nid("10.0.0.2@tcp"), c = nid("10.0.0.3@tcp");
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.3@tcp");

    (void)state;
    peer_table_recreate(&table, p, &c);
    assert_string_equal(shown(p), "10.0.0.3@tcp: 10.0.0.3@tcp");
    assert_int_equal(p->state, 0);
    assert_int_equal(table.npeers, 1);
    p = learn(p, MR, "10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.3@tcp");
    ni_of("10.0.0.1@tcp")->answered = ni_of("10.0.0.2@tcp")->answered = true;
    peer_table_pin(&table, &a);
    peer_table_pin(&table, &b);
    peer_table_recreate(&table, p, &c);
    assert_null(find("10.0.0.3@tcp"));
    assert_int_equal(table.npinned_peers, 2);
    assert_int_equal(find("10.0.0.1@tcp")->pins, 1);
    assert_int_equal(find("10.0.0.2@tcp")->pins, 1);
    assert_ptr_not_equal(find("10.0.0.2@tcp"), find("10.0.0.1@tcp"));
    peer_table_unpin(&table, &a);
    peer_table_unpin(&table, &b);
}

/* The operator takes a gateway's NID out of a peer, and configures a peer anew that was to go. */
static void pinned_of_configured(void **state)
{
    struct lnet_nid a = nid("10.0.0.1@tcp"), b = nid("10.0.0.2@tcp");

    (void)state;
    assert_int_equal(peer_table_add(&table, &a, &a, PEER_MULTI_RAIL), 0);
    assert_int_equal(peer_table_add(&table, &a, &b, PEER_MULTI_RAIL), 0);
    peer_table_pin(&table, &b);
    assert_int_equal(peer_table_del_nid(&table, &a, &b), 0);
    assert_string_equal(shown(find("10.0.0.1@tcp")), "10.0.0.1@tcp: 10.0.0.1@tcp");
    assert_string_equal(shown(find("10.0.0.2@tcp")), "10.0.0.2@tcp: 10.0.0.2@tcp");
    assert_int_equal(find("10.0.0.1@tcp")->pins, 0);
    assert_int_equal(find("10.0.0.2@tcp")->pins, 1);
    peer_table_unpin(&table, &b);
    assert_null(find("10.0.0.2@tcp"));
    find("10.0.0.1@tcp")->state |= PEER_MARK_DELETION;
    assert_int_equal(peer_table_add(&table, &a, &a, PEER_MULTI_RAIL), 0);
    assert_int_equal(find("10.0.0.1@tcp")->state & PEER_MARK_DELETION, 0);
    peer_table_del(&table, find("10.0.0.1@tcp"));
}

/* Neither a PUSH nor a REPLY takes a NID from a peer that answers. A PUSH is no answer. */
static void lists_take_nothing(void **state)
{
    struct peer *p = learn(get("10.0.0.1@tcp"), MR, "10.0.0.1@tcp 10.0.0.2@tcp"), *liar;

    (void)state;
    liar = pushed(get("10.0.0.9@tcp"), "10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.9@tcp");
    assert_ptr_equal(liar, find("10.0.0.9@tcp"));
    assert_string_equal(shown(liar), "10.0.0.9@tcp: 10.0.0.9@tcp");
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.2@tcp");
    assert_int_equal(events[PEER_NI_CLAIMED], 2);
    assert_ptr_equal(last[PEER_NI_CLAIMED].other, p);
    assert_int_equal(liar->age, PEER_UNANSWERED);
    assert_ptr_equal(learn(liar, MR, "10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.9@tcp"), liar);
    assert_string_equal(shown(liar), "10.0.0.9@tcp: 10.0.0.9@tcp");
    /* Of a peer that does not answer any more, and of one that never did. */
    peer_table_answers(&table, p, false);
    liar = pushed(liar, "10.0.0.9@tcp 10.0.0.2@tcp");
    assert_string_equal(shown(liar), "10.0.0.9@tcp: 10.0.0.9@tcp 10.0.0.2@tcp");
    assert_string_equal(shown(p), "10.0.0.1@tcp: 10.0.0.1@tcp");
}

/* Nor does a peer that lists a NID before its owner comes, and then all that the owner lists. */
static void claims_take_nothing(void **state)
{
    struct peer *liar = get("10.0.0.9@tcp"), *p;

    (void)state;
    get("10.0.0.2@tcp"); /* by a message of ours */
    liar->push.nid = nid("10.0.0.9@tcp");
    liar = pushed(liar, "10.0.0.9@tcp 10.0.0.2@tcp");
    peer_table_answers(&table, liar, true);
    p = get("10.0.0.1@tcp");
    p->push.nid = nid("10.0.0.1@tcp");
    p = pushed(p, "10.0.0.1@tcp 10.0.0.2@tcp");
    peer_table_answers(&table, p, true);
    liar = pushed(liar, "10.0.0.9@tcp 10.0.0.2@tcp 10.0.0.1@tcp");
    assert_string_equal(shown(find("10.0.0.1@tcp")), "10.0.0.1@tcp: 10.0.0.1@tcp");
    liar = pushed(liar, "10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.9@tcp");
    assert_string_equal(shown(find("10.0.0.1@tcp")), "10.0.0.1@tcp: 10.0.0.1@tcp");
    assert_ptr_equal(find("10.0.0.9@tcp"), liar);
}

/* Nor does a REPLY take one from a gateway, or make its list the gateway's, even if another gateway
 * sent it. */
static void gateways_keep_nids(void **state)
{
    struct lnet_nid a = nid("10.0.0.1@tcp"), b = nid("10.0.0.2@tcp"), c = nid("10.0.0.3@tcp");
    struct peer *gw = peer_table_pin(&table, &a), *liar;

    (void)state;
    liar = learn(get("10.0.0.9@tcp"), MR, "10.0.0.1@tcp 10.0.0.8@tcp 10.0.0.9@tcp");
    assert_ptr_equal(liar, find("10.0.0.9@tcp"));
    assert_string_equal(shown(gw), "10.0.0.1@tcp: 10.0.0.1@tcp");
    liar = learn(liar, MR, "10.0.0.9@tcp 10.0.0.1@tcp");
    assert_string_equal(shown(gw), "10.0.0.1@tcp: 10.0.0.1@tcp");
    assert_int_equal(events[PEER_NI_CLAIMED], 2);
    liar = learn(peer_table_pin(&table, &b), MR, "10.0.0.2@tcp 10.0.0.3@tcp");
    gw = learn(gw, MR, "10.0.0.2@tcp 10.0.0.1@tcp 10.0.0.3@tcp");
    assert_string_equal(shown(gw), "10.0.0.1@tcp: 10.0.0.1@tcp");
    assert_string_equal(shown(liar), "10.0.0.2@tcp: 10.0.0.2@tcp 10.0.0.3@tcp");
    peer_table_replied(&table, &c, info(MR, 1, "10.0.0.3@tcp 10.0.0.1@tcp")); /* not that one's */
    liar = learn(liar, MR, "10.0.0.2@tcp 10.0.0.3@tcp"); /* which does not get it again */
    assert_string_equal(shown(liar), "10.0.0.2@tcp: 10.0.0.2@tcp");
    gw = learn(gw, MR, "10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.3@tcp");
    assert_string_equal(shown(gw), "10.0.0.1@tcp: 10.0.0.1@tcp 10.0.0.3@tcp");
    peer_table_unpin(&table, &a);
    peer_table_unpin(&table, &b);
}

/* The peer that makes room may be the only other one of the new one's prefix. */
static void room_of_the_same_prefix(void **state)
{
    static const char *const known[] = {"10.0.2.1@tcp", "10.0.3.1@tcp", "10.0.4.1@tcp"};
    struct peer *p, *q;

    (void)state;
    peer_table_fini(&table);
    begin(32, 6, 24);
    get("10.0.1.1@tcp");
    get("10.0.7.1@tcp");
    get("10.0.8.1@tcp");
    for (unsigned i = 0; i < 3; i++)
        learn(get(known[i]), MR, known[i]);
    p = learn(get("10.0.1.2@tcp"), MR, "10.0.1.2@tcp");
    assert_null(find("10.0.1.1@tcp"));
    q = get("10.0.1.3@tcp");
    assert_ptr_equal(p->account->prefix, q->account->prefix);
    assert_int_equal(q->account->prefix->held, 2);
}

static void no_room_for_a_nid(void **state)
{
    char nids[512] = "10.0.0.1@tcp", one[32];
    struct peer *p = get("10.0.0.1@tcp");

    (void)state;
    for (unsigned i = 2; i < 30; i++) {
        snprintf(one, sizeof(one), " 10.0.0.%u@tcp", i);
        strcat(nids, one);
    }
    p = learn(p, MR, nids);
    /* 32 slots: the peer gets one more while it has no more than are free. */
    assert_int_equal(p->nnis, 17);
    assert_int_equal(table.nrefused, 12);
    assert_int_equal(add("10.0.0.1@tcp", "10.0.0.99@tcp", PEER_MULTI_RAIL), 0);
    assert_int_equal(p->nnis, 18);
    /* None of the NIDs of the peer that are listed now find room: one stays. */
    p->state &= ~(uint32_t)PEER_CONFIGURED;
    p = learn(p, MR, "10.7.0.1@tcp");
    assert_int_equal(p->nnis, 1);
}

static void share_of_a_prefix(void **state)
{
    char text[32];
    unsigned n = 0;

    (void)state;
    peer_table_fini(&table);
    begin(32, 32, 24);
    for (unsigned i = 1; i <= 40; i++) {
        snprintf(text, sizeof(text), "10.0.0.%u@tcp", i);
        if (get(text)) {
            learn(find(text), MR, text);
            n++;
        }
    }
    assert_int_equal(n, 17);
    for (unsigned i = 1; i <= 15; i++) {
        snprintf(text, sizeof(text), "10.0.%u.1@tcp", i);
        assert_non_null(get(text));
    }
    assert_int_equal(table.npeers, 32);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(discovery_off_there),
        TEST(discovery_off_here),
        TEST(discovered_peer_turns_discovery_off),
        TEST(configured_peer_turns_discovery_off),
        TEST(multi_rail),
        TEST(seqno),
        TEST(no_primary),
        TEST(primary_of_other),
        TEST(primary_changed),
        TEST(primary_locked),
        TEST(configured),
        TEST(router_enabled),
        TEST(statuses),
        TEST(nids_added_and_deleted),
        TEST(nid_moves),
        TEST(configure),
        TEST(who_is_no_peer),
        TEST(full_table),
        TEST(pins),
        TEST(pinned_lists_many),
        TEST(pinned_of_configured),
        TEST(pins_follow),
        TEST(made_anew),
        TEST(lists_take_nothing),
        TEST(claims_take_nothing),
        TEST(gateways_keep_nids),
        TEST(room_of_the_same_prefix),
        TEST(no_room_for_a_nid),
        TEST(share_of_a_prefix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
