/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports the groups of an interface to routers and switches: MLDv2 (RFC 3810), and MLDv1 (RFC
 * 2710) while a querier uses it. The groups are the solicited-node groups of its addresses, from
 * all sources, while the interface exists; without a report a switch would keep neighbour
 * solicitations from us. (The all-nodes group is never reported, §6.)
 *
 * Each report has all groups, which is always correct. All of this runs on reactor 0.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#include <rte_random.h>

#define QUERY         130
#define REPORT_V1     131
#define REPORT_V2     143
#define ALERT_SIZE    8 /* the hop-by-hop header with its one option */
#define RECORD_SIZE   20
#define RECORDS       8                /* of one report: it fits any buffer for headers */
#define IS_EXCLUDE    2                /* kinds of records, §5.2.12: answers … */
#define TO_EXCLUDE    4                /* … and changes */
#define REPORTS       2                /* robustness, §9.1 */
#define REPORT_US     INET_SEC         /* §9.11 */
#define ANSWER_US_MIN (INET_SEC / 50)  /* however often somebody asks */
#define V1_US         (260 * INET_SEC) /* §9.12, by the defaults of what it is made of */

static const struct inet_addr none;
static const struct inet_addr all_mld_routers = {{0xff, 2, [15] = 0x16}};

/* ---- sending ---- */

static bool told_already(const struct inet_if *ifp, unsigned index, const struct inet_addr *group)
{
    struct inet_addr other;

    for (unsigned i = 0; i < index; i++) {
        if (inet_is4(&ifp->own[i].net.addr))
            continue;
        inet_solicited_node(&ifp->own[i].net.addr, &other);
        if (inet_same(&other, group))
            return true;
    }
    return false;
}

/* The group of the interface's address at *at or behind, each once; *at moves on. */
static bool next_group(const struct inet_if *ifp, unsigned *at, struct inet_addr *group)
{
    for (; *at < ifp->owns - ifp->ranges; ++*at) {
        if (inet_is4(&ifp->own[*at].net.addr))
            continue;
        inet_solicited_node(&ifp->own[*at].net.addr, group);
        if (told_already(ifp, *at, group))
            continue;
        ++*at;
        return true;
    }
    return false;
}

/* RFC 3590: while none of the link may be used the message comes from nowhere; routers do not take
 * it, but switches do. */
static const struct inet_addr *source(const struct inet_if *ifp)
{
    for (unsigned i = 0; i < ifp->owns; i++)
        if (inet_is_link_local(&ifp->own[i].net.addr) && own_usable(&ifp->own[i]))
            return &ifp->own[i].net.addr;
    return &none;
}

/* §5: hop limit 1, and Router Alert so that routers look at it though it is not for them. */
static void send_message(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                         uint8_t type, const struct inet_addr *to)
{
    static const uint8_t alert[ALERT_SIZE] = {IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0};
    const struct inet_addr *from = source(ifp);

    *rte_pktmbuf_mtod(m, uint8_t *) = type;
    icmp_csum_put(m, from, to);
    memcpy(rte_pktmbuf_prepend(m, ALERT_SIZE), alert, ALERT_SIZE);
    if (nd_send(sh, ifp, from, to, m, IPPROTO_HOPOPTS, 1, NULL))
        count_add(&sh->stats.icmp_sent, 1);
}

static void report_v1(struct inet_shard *sh, struct inet_if *ifp)
{
    struct inet_addr group;
    unsigned at = 0;

    while (next_group(ifp, &at, &group)) {
        struct rte_mbuf *m = out_alloc(sh, ifp, MLD_SIZE);

        if (!m)
            return;
        memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, 8), group.b, 16);
        send_message(sh, ifp, m, REPORT_V1, &group);
    }
}

static void report_v2(struct inet_shard *sh, struct inet_if *ifp, uint8_t kind)
{
    struct inet_addr group[RECORDS];
    unsigned at = 0, n;

    do {
        struct rte_mbuf *m;
        uint8_t *p;

        for (n = 0; n < RECORDS && next_group(ifp, &at, &group[n]); n++)
            ;
        if (n == 0)
            return;
        m = out_alloc(sh, ifp, 8 + n * RECORD_SIZE);
        if (!m)
            return;
        p = rte_pktmbuf_mtod(m, uint8_t *);
        p[7] = (uint8_t)n;
        for (unsigned i = 0; i < n; i++) {
            p[8 + i * RECORD_SIZE] = kind;
            memcpy(p + 8 + i * RECORD_SIZE + 4, group[i].b, 16);
        }
        send_message(sh, ifp, m, REPORT_V2, &all_mld_routers);
    } while (n == RECORDS);
}

static void report(struct inet_if *ifp, uint8_t kind)
{
    struct inet_shard *sh = ifp->inet->shard[0];

    if (reactor_now_us() < ifp->mld.v1_until_us)
        report_v1(sh, ifp);
    else
        report_v2(sh, ifp, kind);
}

/* ---- when ---- */

static void tell_fired(struct reactor_timer *timer)
{
    struct inet_if *ifp = container_of(timer, struct inet_if, mld.tell_timer);

    report(ifp, TO_EXCLUDE);
    if (--ifp->mld.reports > 0)
        reactor_timer_arm(timer, 1 + rte_rand_max(REPORT_US));
}

static void answer_fired(struct reactor_timer *timer)
{
    report(container_of(timer, struct inet_if, mld.answer_timer), IS_EXCLUDE);
}

void mld_start(struct inet_if *ifp)
{
    reactor_timer_init(&ifp->mld.tell_timer, tell_fired);
    reactor_timer_init(&ifp->mld.answer_timer, answer_fired);
    mld_tell(ifp);
}

void mld_tell(struct inet_if *ifp)
{
    struct inet_addr group;
    unsigned at = 0;

    if (!next_group(ifp, &at, &group))
        return;
    ifp->mld.reports = REPORTS;
    reactor_timer_cancel(&ifp->mld.tell_timer);
    tell_fired(&ifp->mld.tell_timer);
}

void mld_stop(struct inet_if *ifp)
{
    reactor_timer_cancel(&ifp->mld.tell_timer);
    reactor_timer_cancel(&ifp->mld.answer_timer);
}

/* ---- being asked ---- */

void mld_asked(struct inet_shard *sh, struct inet_if *ifp, bool v1, uint32_t within_ms)
{
    uint64_t now = reactor_now_us(), after;
    struct note note = {
        .kind = NOTE_MLD, .flags = v1, .ifindex = (uint8_t)ifp->index, .within_ms = within_ms};

    if (sh->index != 0) {
        hand_note_to(sh, 0, &note);
        return;
    }
    if (!sh->running)
        return;
    if (v1)
        ifp->mld.v1_until_us = now + V1_US;
    after = rte_rand_max((uint64_t)within_ms * 1000 + 1);
    after = max(after, ANSWER_US_MIN);
    /* §6.2: an answer that is due sooner is this one's too. */
    if (reactor_timer_armed(&ifp->mld.answer_timer) && ifp->mld.answer_us <= now + after)
        return;
    ifp->mld.answer_us = now + after;
    reactor_timer_arm(&ifp->mld.answer_timer, after);
}

bool mld_in_group(const struct inet_if *ifp, const struct inet_addr *wanted)
{
    struct inet_addr group;
    unsigned at = 0;

    while (next_group(ifp, &at, &group))
        if (inet_is_none(wanted) || inet_same(wanted, &group))
            return true;
    return false;
}

enum pkt_drop mld_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                        const struct inet_hdr *ip)
{
    const struct pkt *pkt = pkt_of(m);
    enum pkt_drop why = PKT_DROP_ICMP_BAD;
    struct mld_query query;

    /* Wholly there: none that we answer needs more than a first segment has. */
    if (pkt->l4 + pkt->l4_len <= m->data_len)
        why = mld_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, pkt->l4), pkt->l4_len, ip,
                         &query);
    if (why != PKT_DROP_NONE)
        return why;
    if (mld_in_group(ifp, &query.group))
        mld_asked(sh, ifp, query.v1, query.within_ms);
    rte_pktmbuf_free(m);
    return PKT_DROP_NONE;
}
