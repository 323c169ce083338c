/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbours of one reactor, of both families, by the states of RFC 4861 §7.3.2.
 *
 * An entry is made only when a packet is to be sent to its address, so packets from outside fill
 * the table only by making us answer many addresses of a net. Unresolved entries are at most half
 * of the table and are evicted first. Of that half, and of the questions, our own connections and
 * answers to callers leave a part for each other; of the packets that wait, answers do.
 *
 * Stations that asked for an address of ours are noted apart. An entry for one of them begins with
 * its MAC, so that a new caller is answered though questions to all are limited and many are under
 * way. An address for which two MACs asked is looked for as others are. An answer to a call goes to
 * the MAC that the call came from: it is noted as if no other had asked. It replaces that of an
 * entry while no station has answered. A host that asks in the name of another does not keep the
 * other out.
 *
 * The first answer to us decides where an entry is. From then on a station's own announcement
 * changes it, with one exception. Where the entry has another MAC, the old station is probed first;
 * the entry changes when it does not answer within a second. So a forged reply does not divert
 * packets of a live neighbour, and an address that moves is followed after that second.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include <rte_ip.h>
#include <rte_random.h>

#define ASK_US         INET_SEC /* RetransTimer, RFC 4861 §10 */
#define ASK_MAX        3        /* MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT */
#define DELAY_US       (5 * INET_SEC)
#define REACHABLE_US   (30 * INET_SEC)
#define UNUSED_US      (600 * INET_SEC) /* then an entry is given back */
#define LOOK_US        (60 * INET_SEC)  /* how often that is looked at */
#define DISPUTE_ASK_US (INET_SEC / 2)
#define DISPUTE_ASKS   2
#define HELD_MAX       1024 /* packets of a reactor that wait: they are a port's buffers … */
#define HELD_KEPT      256  /* … and of these, those of our own connections only */
#define ASKS_PER_SEC   512  /* of a reactor, for answers; and as many for our own connections */
#define ASKS_BURST     512
#define MAKES_PER_SEC  64 /* entries for what is not TCP's, such as answers to echo requests */
#define MAKES_BURST    64
#define VICTIMS        64 /* entries looked at to find one that makes room */
#define ASKERS         1024u
#define ASKER_US       (10 * INET_SEC) /* for so long a station that asked is noted */

static const char *const state_names[] = {
    [NEIGH_FREE] = "free",    [NEIGH_INCOMPLETE] = "incomplete", [NEIGH_REACHABLE] = "reachable",
    [NEIGH_STALE] = "stale",  [NEIGH_DELAY] = "delay",           [NEIGH_PROBE] = "probe",
    [NEIGH_FAILED] = "failed"};

static void timer_fired(struct reactor_timer *timer);

/* ---- the table ---- */

static unsigned table_room(unsigned neighbours)
{
    return min(max(neighbours, (unsigned)INET_NEIGH_MIN), (unsigned)INET_NEIGH_MAX);
}

int neigh_init(struct inet_shard *sh)
{
    unsigned room = table_room(sh->inet->opts.neighbours);
    uint32_t slots = rte_align32pow2(room);

    sh->neigh_max = room;
    sh->neigh_mask = slots - 1;
    sh->neigh = calloc(room, sizeof(sh->neigh[0]));
    sh->neigh_hash = malloc(slots * sizeof(sh->neigh_hash[0]));
    sh->askers = calloc(ASKERS, sizeof(sh->askers[0]));
    if (!sh->neigh || !sh->neigh_hash || !sh->askers)
        return -ENOMEM;
    TAILQ_INIT(&sh->unresolved_list[0]);
    TAILQ_INIT(&sh->unresolved_list[1]);
    memset(sh->neigh_hash, 0xff, slots * sizeof(sh->neigh_hash[0]));
    for (unsigned i = 0; i < room; i++) {
        sh->neigh[i].sh = sh;
        sh->neigh[i].next = (uint16_t)(i + 1 < room ? i + 1 : INET_NEIGH_NONE);
        reactor_timer_init(&sh->neigh[i].timer, timer_fired);
    }
    return 0;
}

static void held_drop(struct inet_shard *sh, struct neigh *n, enum pkt_drop why)
{
    for (unsigned i = 0; i < n->nheld; i++)
        out_drop(sh, sh->inet->ifs[n->ifindex], n->held[i], why);
    sh->held -= n->nheld;
    n->nheld = 0;
}

void neigh_stop(struct inet_shard *sh)
{
    for (unsigned i = 0; i < sh->neigh_max; i++) {
        reactor_timer_cancel(&sh->neigh[i].timer);
        held_drop(sh, &sh->neigh[i], PKT_DROP_PORT_DOWN);
    }
}

void neigh_fini(struct inet_shard *sh)
{
    free(sh->neigh);
    free(sh->neigh_hash);
    free(sh->askers);
}

size_t neigh_memory(unsigned neighbours)
{
    unsigned room = table_room(neighbours);

    return room * sizeof(struct neigh) + rte_align32pow2(room) * sizeof(uint16_t) +
           ASKERS * sizeof(struct neigh_asker);
}

static uint16_t *chain_of(struct inet_shard *sh, const struct inet_addr *addr, unsigned ifindex)
{
    return &sh->neigh_hash[inet_hash(addr, ifindex) & sh->neigh_mask];
}

uint16_t neigh_find(struct inet_shard *sh, const struct inet_if *ifp, const struct inet_addr *addr)
{
    uint16_t i = *chain_of(sh, addr, ifp->index);

    while (i != INET_NEIGH_NONE &&
           (!inet_same(&sh->neigh[i].addr, addr) || sh->neigh[i].ifindex != ifp->index))
        i = sh->neigh[i].next;
    return i;
}

static bool unresolved(const struct neigh *n)
{
    return n->state == NEIGH_INCOMPLETE || n->state == NEIGH_FAILED;
}

/* Those without an answer stand in two lists, in the order in which they began to be looked for. */
static void list_in(struct inet_shard *sh, struct neigh *n)
{
    TAILQ_INSERT_TAIL(&sh->unresolved_list[n->own], n, link);
    sh->unresolved[n->own]++;
    n->since_us = reactor_now_us();
}

static void list_out(struct inet_shard *sh, struct neigh *n)
{
    TAILQ_REMOVE(&sh->unresolved_list[n->own], n, link);
    sh->unresolved[n->own]--;
}

static void state_set(struct neigh *n, enum neigh_state state)
{
    struct inet_shard *sh = n->sh;
    bool was = unresolved(n);

    n->state = (uint8_t)state;
    n->probes = 0;
    if (was == unresolved(n))
        return;
    if (was)
        list_out(sh, n);
    else
        list_in(sh, n);
}

static void entry_free(struct inet_shard *sh, struct neigh *n)
{
    uint16_t index = (uint16_t)(n - sh->neigh), *at = chain_of(sh, &n->addr, n->ifindex);

    held_drop(sh, n, PKT_DROP_NEIGH_UNKNOWN);
    reactor_timer_cancel(&n->timer);
    while (*at != index)
        at = &sh->neigh[*at].next;
    *at = n->next;
    state_set(n, NEIGH_FREE);
    n->next = sh->neigh_free;
    sh->neigh_free = index;
    sh->neighs--;
}

/* Evicts the oldest unresolved entry of a list whose time is up; a resolved entry only when the
 * table is full. */
static bool room_of_unresolved(struct inet_shard *sh, bool own, uint64_t now)
{
    struct neigh *n = TAILQ_FIRST(&sh->unresolved_list[own]);

    if (!n || (n->state != NEIGH_FAILED && now - n->since_us < ASK_US))
        return false;
    entry_free(sh, n);
    return true;
}

/* Compares entries that could make room: an unproven one goes first, then one unused for longer. */
static bool goes_before(const struct neigh *a, const struct neigh *b)
{
    return a->proven != b->proven ? !a->proven : a->used_us < b->used_us;
}

static bool room_of_living(struct inet_shard *sh)
{
    struct neigh *victim = NULL;

    for (unsigned i = 0; i < VICTIMS; i++) {
        struct neigh *n = &sh->neigh[sh->neigh_hand];

        sh->neigh_hand = (uint16_t)((sh->neigh_hand + 1) % sh->neigh_max);
        if (n->state != NEIGH_FREE && !unresolved(n) && (!victim || goes_before(n, victim)))
            victim = n;
    }
    if (!victim)
        return false;
    entry_free(sh, victim);
    return true;
}

/* Both lists take half of the table, and each of them at least a quarter of that half. */
static bool list_full(const struct inet_shard *sh, bool own)
{
    unsigned part = sh->neigh_max / 8, n = sh->unresolved[own];

    return n >= 3 * part || (n >= part && n + sh->unresolved[!own] >= sh->neigh_max / 2);
}

static bool make_room(struct inet_shard *sh, bool known, bool own)
{
    uint64_t now = reactor_now_us();

    if (!known && list_full(sh, own))
        return room_of_unresolved(sh, own, now);
    return sh->neigh_free != INET_NEIGH_NONE || room_of_unresolved(sh, false, now) ||
           room_of_unresolved(sh, true, now) || room_of_living(sh);
}

/* ---- who asked for us ---- */

static struct neigh_asker *asker_place(struct inet_shard *sh, const struct inet_if *ifp,
                                       const struct inet_addr *addr)
{
    return &sh->askers[inet_hash(addr, ifp->index) % ASKERS];
}

static bool asker_is(const struct neigh_asker *a, const struct inet_if *ifp,
                     const struct inet_addr *addr)
{
    return a->at_us > 0 && reactor_now_us() - a->at_us < ASKER_US && a->ifindex == ifp->index &&
           inet_same(&a->addr, addr);
}

static void asker_note(struct inet_shard *sh, const struct inet_if *ifp,
                       const struct inet_addr *addr, const struct rte_ether_addr *mac, bool called)
{
    struct neigh_asker *a = asker_place(sh, ifp, addr);
    bool disputed =
        !called && asker_is(a, ifp, addr) && (a->disputed || !rte_is_same_ether_addr(&a->mac, mac));

    *a = (struct neigh_asker){*addr, reactor_now_us(), *mac, (uint8_t)ifp->index, disputed};
}

/* Returns the MAC of a station that asked a moment ago, or NULL. */
static const struct rte_ether_addr *asker_mac(struct inet_shard *sh, const struct inet_if *ifp,
                                              const struct inet_addr *addr)
{
    const struct neigh_asker *a = asker_place(sh, ifp, addr);

    return asker_is(a, ifp, addr) && !a->disputed ? &a->mac : NULL;
}

/* ---- entries ---- */

static struct neigh *entry_make(struct inet_shard *sh, const struct inet_if *ifp,
                                const struct inet_addr *addr, bool known, bool own)
{
    uint16_t *chain, index;
    struct neigh *n;

    if (!make_room(sh, known, own))
        return NULL;
    index = sh->neigh_free;
    n = &sh->neigh[index];
    sh->neigh_free = n->next;
    sh->neighs++;
    chain = chain_of(sh, addr, ifp->index);
    n->addr = *addr;
    n->ifindex = (uint8_t)ifp->index;
    n->mac = (struct rte_ether_addr){0};
    n->disputed = n->proven = false;
    n->own = own;
    n->nheld = 0;
    n->confirmed_us = n->asked_us = n->disputed_us = 0;
    n->used_us = reactor_now_us();
    n->next = *chain;
    *chain = index;
    return n;
}

/* The station at a new MAC has not answered yet. */
static void mac_set(struct neigh *n, const struct rte_ether_addr *mac)
{
    if (rte_is_same_ether_addr(&n->mac, mac))
        return;
    n->mac = *mac;
    n->confirmed_us = 0;
    n->proven = false;
}

/* ---- asking ---- */

void neigh_ask(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *from,
               const struct inet_addr *target, const struct rte_ether_addr *to)
{
    if (inet_is4(target))
        arp_send_request(sh, ifp, from, target, to);
    else
        nd_send_solicit(sh, ifp, from, target, to);
}

/* One question, if not too many were asked of late. Those to a station that we know are bounded by
 * their number. */
static void ask(struct inet_shard *sh, struct neigh *n, bool unicast)
{
    struct inet_if *ifp = sh->inet->ifs[n->ifindex];
    const struct inet_own *own = if_source(ifp, inet_is4(&n->addr));

    if (!unicast && !bucket_take(&sh->ask_bucket[n->own], ASKS_PER_SEC, ASKS_BURST))
        return;
    n->asked_us = reactor_now_us();
    n->probes++;
    if (own)
        neigh_ask(sh, ifp, &own->net.addr, &n->addr, unicast ? &n->mac : NULL);
}

static void begin(struct neigh *n, enum neigh_state state)
{
    bool dispute = state == NEIGH_PROBE && n->disputed;

    state_set(n, state);
    ask(n->sh, n, state == NEIGH_PROBE);
    reactor_timer_arm(&n->timer, dispute ? DISPUTE_ASK_US : ASK_US);
}

/* TCP is told that what it has waiting here will not get there (RFC 1122 §2.3.2.2, RFC 4861
 * §7.2.2): it need not wait for its own timer to know. */
static void tell_unreachable(struct inet_shard *sh, struct rte_mbuf *m)
{
    const struct inet_upper *tcp = &sh->inet->opts.tcp;
    const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
    struct inet_error error = {.what = INET_ICMP_UNREACHABLE};
    uint16_t len;

    if (tcp->error && icmp_quote_decode(p, m->data_len, p[0] >> 4, &error, &len))
        tcp->error(tcp->ctx, sh, &error);
}

static void failed(struct inet_shard *sh, struct neigh *n)
{
    struct rte_mbuf *held[INET_NEIGH_HELD];
    unsigned nheld = n->nheld;
    struct inet_if *ifp = sh->inet->ifs[n->ifindex];

    memcpy(held, n->held, sizeof(held));
    sh->held -= n->nheld;
    n->nheld = 0;
    state_set(n, NEIGH_FAILED);
    reactor_timer_arm(&n->timer, LOOK_US);
    for (unsigned i = 0; i < nheld; i++) {
        tell_unreachable(sh, held[i]);
        out_drop(sh, ifp, held[i], PKT_DROP_NEIGH_UNKNOWN);
    }
}

static void next_question(struct inet_shard *sh, struct neigh *n)
{
    bool unicast = n->state == NEIGH_PROBE;

    if (n->disputed && n->probes >= DISPUTE_ASKS) {
        /* The station at the MAC that we know did not answer: the claim of another is believed,
         * and it is asked in turn. */
        mac_set(n, &n->claimed);
        n->disputed = false;
        begin(n, NEIGH_PROBE);
    } else if (n->probes < ASK_MAX) {
        ask(sh, n, unicast);
        reactor_timer_arm(&n->timer, n->disputed ? DISPUTE_ASK_US : ASK_US);
    } else if (unicast) {
        /* Gone from there; perhaps it is elsewhere. */
        sh->generation++;
        begin(n, NEIGH_INCOMPLETE);
    } else {
        failed(sh, n);
    }
}

static void timer_fired(struct reactor_timer *timer)
{
    struct neigh *n = container_of(timer, struct neigh, timer);
    struct inet_shard *sh = n->sh;
    uint64_t now = reactor_now_us();

    switch (n->state) {
    case NEIGH_INCOMPLETE:
    case NEIGH_PROBE:
        next_question(sh, n);
        return;
    case NEIGH_DELAY:
        begin(n, NEIGH_PROBE);
        return;
    case NEIGH_REACHABLE:
        if (now - n->confirmed_us >= n->reachable_us)
            state_set(n, NEIGH_STALE);
        break;
    default:
        break;
    }
    if (now - n->used_us >= (n->state == NEIGH_FAILED ? LOOK_US : UNUSED_US))
        entry_free(sh, n);
    else
        reactor_timer_arm(timer, LOOK_US);
}

/* ---- sending ---- */

static void stale(struct neigh *n)
{
    n->disputed = false;
    state_set(n, NEIGH_STALE);
    reactor_timer_arm(&n->timer, LOOK_US);
}

static void send_to(struct inet_shard *sh, struct inet_if *ifp, const struct neigh *n,
                    struct rte_mbuf *m)
{
    bool is4 = (*rte_pktmbuf_mtod(m, const uint8_t *)) >> 4 == 4;

    out_ether(ifp, m, &n->mac, is4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6);
    out_queue(sh, ifp, m);
}

/* The oldest makes room, RFC 4861 §7.2.2. */
static void hold(struct inet_shard *sh, struct inet_if *ifp, struct neigh *n, struct rte_mbuf *m)
{
    if (n->nheld == INET_NEIGH_HELD) {
        out_drop(sh, ifp, n->held[0], PKT_DROP_NEIGH_HELD);
        n->nheld--;
        sh->held--;
        memmove(&n->held[0], &n->held[1], n->nheld * sizeof(n->held[0]));
    }
    if (sh->held >= HELD_MAX - (n->own ? 0 : HELD_KEPT)) {
        out_drop(sh, ifp, m, PKT_DROP_NEIGH_HELD);
        return;
    }
    n->held[n->nheld++] = m;
    sh->held++;
}

static void held_send(struct inet_shard *sh, struct neigh *n)
{
    struct inet_if *ifp = sh->inet->ifs[n->ifindex];

    for (unsigned i = 0; i < n->nheld; i++)
        send_to(sh, ifp, n, n->held[i]);
    sh->held -= n->nheld;
    n->nheld = 0;
}

/* A connection of ours wants a neighbour that was looked for to answer somebody. It is asked anew,
 * out of what is kept for us. So is one that a call alone says where it is. */
static void make_own(struct inet_shard *sh, struct neigh *n)
{
    bool waits = unresolved(n);

    if (waits && list_full(sh, true) && !room_of_unresolved(sh, true, reactor_now_us()))
        return;
    if (waits)
        list_out(sh, n);
    n->own = true;
    if (!waits && n->confirmed_us == 0)
        ask(sh, n, false);
    if (!waits)
        return;
    list_in(sh, n);
    begin(n, NEIGH_INCOMPLETE);
}

static struct neigh *entry_of(struct inet_shard *sh, struct inet_if *ifp,
                              const struct inet_addr *addr, uint16_t *hint, bool own)
{
    uint16_t i = !hint ? INET_NEIGH_NONE : *hint;
    const struct rte_ether_addr *mac;
    struct neigh *n;

    if (i < sh->neigh_max && sh->neigh[i].state != NEIGH_FREE &&
        inet_same(&sh->neigh[i].addr, addr) && sh->neigh[i].ifindex == ifp->index)
        return &sh->neigh[i];
    i = neigh_find(sh, ifp, addr);
    if (i != INET_NEIGH_NONE) {
        n = &sh->neigh[i];
    } else {
        if (!hint && !bucket_take(&sh->make_bucket, MAKES_PER_SEC, MAKES_BURST))
            return NULL;
        mac = asker_mac(sh, ifp, addr);
        n = entry_make(sh, ifp, addr, mac != NULL, own);
        if (!n)
            return NULL;
        if (mac) {
            n->mac = *mac;
            stale(n);
            ask(sh, n, true);
            ask(sh, n, false); /* the true one answers, if another asked in its name */
        } else {
            begin(n, NEIGH_INCOMPLETE);
        }
    }
    if (hint)
        *hint = (uint16_t)(n - sh->neigh);
    return n;
}

void neigh_output(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *next_hop,
                  uint16_t *hint, bool own, struct rte_mbuf *m)
{
    struct neigh *n;
    uint64_t now;

    if (unlikely(!sh->running)) {
        out_drop(sh, ifp, m, PKT_DROP_PORT_DOWN);
        return;
    }
    n = entry_of(sh, ifp, next_hop, hint, own);
    if (!n) {
        out_drop(sh, ifp, m, PKT_DROP_NEIGH_FULL);
        return;
    }
    if (unlikely(own && !n->own))
        make_own(sh, n);
    now = reactor_now_us();
    n->used_us = now;
    switch (n->state) {
    case NEIGH_FAILED:
        if (now - n->asked_us < ASK_US) {
            out_drop(sh, ifp, m, PKT_DROP_NEIGH_UNKNOWN);
            return;
        }
        begin(n, NEIGH_INCOMPLETE);
        hold(sh, ifp, n, m);
        return;
    case NEIGH_INCOMPLETE:
        hold(sh, ifp, n, m);
        return;
    case NEIGH_REACHABLE:
        if (now - n->confirmed_us < n->reachable_us)
            break;
        /* fall through */
    case NEIGH_STALE:
        state_set(n, NEIGH_DELAY);
        reactor_timer_arm(&n->timer, DELAY_US);
        break;
    default:
        break;
    }
    send_to(sh, ifp, n, m);
}

/* ---- hearing ---- */

static void confirmed(struct neigh *n)
{
    n->confirmed_us = reactor_now_us();
    n->reachable_us = (uint32_t)(REACHABLE_US / 2 + rte_rand_max(REACHABLE_US));
    n->disputed = false;
    if (n->state == NEIGH_REACHABLE)
        return;
    state_set(n, NEIGH_REACHABLE);
    reactor_timer_arm(&n->timer, LOOK_US);
}

static void dispute(struct neigh *n, const struct rte_ether_addr *claimed)
{
    n->disputed = true;
    n->disputed_us = reactor_now_us();
    n->claimed = *claimed;
    begin(n, NEIGH_PROBE);
}

/* Moves an entry from whose MAC no answer came yet: for good to a station that answers; to one that
 * calls, it is asked first. */
static bool unsure_moved(struct neigh *n, const struct rte_ether_addr *mac, unsigned flags)
{
    struct rte_ether_addr was = n->mac;

    if (n->confirmed_us != 0 || (flags & (NEIGH_SOLICITED | NEIGH_CALLED)) == 0)
        return false;
    mac_set(n, mac);
    if ((flags & NEIGH_SOLICITED) != 0)
        confirmed(n);
    else
        dispute(n, &was);
    return true;
}

/* Another MAC for a neighbour that has one. */
static void claimed(struct neigh *n, const struct rte_ether_addr *mac, unsigned flags)
{
    if (unsure_moved(n, mac, flags))
        return;
    if ((flags & NEIGH_OVERRIDE) == 0) {
        /* §7.2.5: the entry stays, but is not sure any more. */
        if (n->state == NEIGH_REACHABLE)
            stale(n);
        return;
    }
    if (n->disputed) {
        n->claimed = *mac;
        return;
    }
    if (n->disputed_us != 0 && reactor_now_us() - n->disputed_us < ASK_US)
        return;
    dispute(n, mac);
}

void neigh_heard(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *addr,
                 const struct rte_ether_addr *mac, unsigned flags)
{
    uint16_t i = neigh_find(sh, ifp, addr);
    struct neigh *n;

    if ((flags & NEIGH_ASKED) != 0)
        asker_note(sh, ifp, addr, mac, (flags & NEIGH_CALLED) != 0);
    if (i == INET_NEIGH_NONE)
        return;
    n = &sh->neigh[i];
    if (unresolved(n)) {
        mac_set(n, mac);
        if ((flags & NEIGH_SOLICITED) != 0)
            confirmed(n);
        else
            stale(n);
        held_send(sh, n);
    } else if (!rte_is_same_ether_addr(&n->mac, mac)) {
        claimed(n, mac, flags);
    } else if ((flags & NEIGH_SOLICITED) != 0) {
        confirmed(n);
    }
}

void neigh_tell(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *addr,
                const struct rte_ether_addr *mac, unsigned flags)
{
    struct note note = {.kind = NOTE_NEIGH,
                        .flags = (uint8_t)flags,
                        .ifindex = (uint8_t)ifp->index,
                        .mac = *mac,
                        .addr = *addr};

    neigh_heard(sh, ifp, addr, mac, flags);
    hand_note(sh, &note);
}

/* Beyond a gateway it is not known whose MAC that is. */
void inet_path_called(struct inet_shard *sh, const struct inet_path *path, const struct rte_mbuf *m)
{
    const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

    if (inet_same(&path->next_hop, &path->remote) &&
        !rte_is_same_ether_addr(&eth->src_addr, &path->ifp->ip->port->mac))
        neigh_heard(sh, path->ifp, &path->remote, &eth->src_addr,
                    NEIGH_OVERRIDE | NEIGH_ASKED | NEIGH_CALLED);
}

/* While two stations claim the address it is not known who of them answers. */
void inet_path_confirm(struct inet_shard *sh, const struct inet_path *path)
{
    uint16_t i = path->neigh;

    if (i >= sh->neigh_max || sh->neigh[i].ifindex != path->ifp->index ||
        !inet_same(&sh->neigh[i].addr, &path->next_hop) || sh->neigh[i].state == NEIGH_FREE ||
        unresolved(&sh->neigh[i]) || sh->neigh[i].disputed)
        return;
    sh->neigh[i].proven = true;
    confirmed(&sh->neigh[i]);
}

/* ---- looking ---- */

void neigh_row(const struct inet_shard *sh, uint16_t index, struct inet_neigh_row *out)
{
    const struct neigh *n = &sh->neigh[index];

    *out = (struct inet_neigh_row){
        .reactor = sh->index,
        .addr = n->addr,
        .mac = n->mac,
        .state = state_names[n->state],
        .age_us = n->confirmed_us == 0 ? UINT64_MAX : reactor_now_us() - n->confirmed_us,
    };
    memcpy(out->ifname, sh->inet->ifs[n->ifindex]->name, sizeof(out->ifname));
}

unsigned inet_neigh_rows(struct inet_shard *sh, uint32_t *at, struct inet_neigh_row *out,
                         unsigned max)
{
    unsigned rows = 0;

    for (; *at < sh->neigh_max && rows < max; ++*at)
        if (sh->neigh[*at].state != NEIGH_FREE)
            neigh_row(sh, (uint16_t)*at, &out[rows++]);
    return rows;
}
