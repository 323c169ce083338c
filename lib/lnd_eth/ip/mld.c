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

/* size bytes of a message, in front of which there is room for the headers. */
static struct rte_mbuf *message(struct inet_shard *sh, struct inet_if *ifp, uint8_t type,
                                uint16_t size)
{
    struct rte_mbuf *m = port_tx_alloc(ifp->ip->port);
    uint8_t *p = !m ? NULL : (uint8_t *)rte_pktmbuf_append(m, size);

    if (!p) {
        rte_pktmbuf_free(m);
        inet_count_drop(sh, PKT_DROP_NO_MBUF);
        return NULL;
    }
    memset(p, 0, size);
    p[0] = type;
    return m;
}

/* §5: hop limit 1, and Router Alert so that routers look at it though it is not for them. */
static void send_message(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                         const struct inet_addr *to)
{
    static const uint8_t alert[ALERT_SIZE] = {IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0};
    const struct inet_addr *from = source(ifp);
    struct rte_ether_addr mac;

    icmp_csum_put(m, icmp6_pseudo(from, to, m->pkt_len));
    memcpy(rte_pktmbuf_prepend(m, ALERT_SIZE), alert, ALERT_SIZE);
    if (!out_ip(sh, ifp, from, to, ifp->mtu, m, IPPROTO_HOPOPTS, 0, 1))
        return;
    nd_group_mac(to, &mac);
    out_ether(ifp, m, &mac, RTE_ETHER_TYPE_IPV6);
    out_queue(sh, ifp, m);
    count_add(&sh->stats.icmp_sent, 1);
}

static void report_v1(struct inet_shard *sh, struct inet_if *ifp)
{
    struct inet_addr group;
    unsigned at = 0;

    while (next_group(ifp, &at, &group)) {
        struct rte_mbuf *m = message(sh, ifp, REPORT_V1, MLD_SIZE);

        if (!m)
            return;
        memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, 8), group.b, 16);
        send_message(sh, ifp, m, &group);
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
        m = message(sh, ifp, REPORT_V2, (uint16_t)(8 + n * RECORD_SIZE));
        if (!m)
            return;
        p = rte_pktmbuf_mtod(m, uint8_t *);
        p[7] = (uint8_t)n;
        for (unsigned i = 0; i < n; i++) {
            p[8 + i * RECORD_SIZE] = kind;
            memcpy(p + 8 + i * RECORD_SIZE + 4, group[i].b, 16);
        }
        send_message(sh, ifp, m, &all_mld_routers);
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
        .kind = NOTE_MLD, .flags = v1, .ifindex = (uint8_t)ifp->index, .seq = within_ms};

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

static bool in_group(const struct inet_if *ifp, const struct inet_addr *wanted)
{
    struct inet_addr group;
    unsigned at = 0;

    while (next_group(ifp, &at, &group))
        if (inet_is_none(wanted) || inet_same(wanted, &group))
            return true;
    return false;
}

void mld_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
               const struct inet_hdr *ip)
{
    const struct pkt *pkt = pkt_of(m);
    enum pkt_drop why = PKT_DROP_ICMP_BAD;
    struct mld_query query;

    /* Wholly there: none that we answer needs more than a first segment has. */
    if (pkt->l4 + pkt->l4_len <= m->data_len)
        why = mld_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, pkt->l4), pkt->l4_len, ip,
                         &query);
    if (why != PKT_DROP_NONE) {
        inet_drop(sh, m, why);
        return;
    }
    if (in_group(ifp, &query.group))
        mld_asked(sh, ifp, query.v1, query.within_ms);
    rte_pktmbuf_free(m);
}
