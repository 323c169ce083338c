/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Duplicate address detection: RFC 5227 for IPv4, RFC 4862 §5.4 for IPv6, in one way for both.
 * Three probes go out in dad_ms; then the address is ours and is announced twice. (The intervals
 * of RFC 5227 would take up to nine seconds; §2.1.1 is followed but for the time.)
 *
 * A station that later uses our address receives an announcement, once in ten seconds. The address
 * stays ours (RFC 5227 §2.4 (c)). Otherwise two frames of any host would take it from us.
 * When the link comes back the address is probed again and used meanwhile, so connections go on.
 * An address that was ours a moment ago, before a restart of the process, is used while it is
 * probed too (on trial), but given up if another station answers.
 *
 * All of this runs on reactor 0. Other reactors send it messages; it notifies the control reactor.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <rte_random.h>

#define PROBES        3
#define ANNOUNCEMENTS 2
#define ANNOUNCE_US   (2 * INET_SEC)  /* RFC 5227 ANNOUNCE_INTERVAL */
#define DEFEND_US     (10 * INET_SEC) /* DEFEND_INTERVAL */
#define AGAIN_US      (10 * INET_SEC) /* until an address that was given up is asked for */
#define PROBE_US_MIN  (INET_SEC / 10) /* between questions where none were wanted */
#define RANGE_BURST   32              /* addresses of a range that are announced at once … */
#define RANGE_US      1000            /* … and then the next */

static void state_set(struct inet_own *own, enum own_state state)
{
    __atomic_store_n(&own->state, (uint8_t)state, __ATOMIC_RELEASE);
}

static struct inet_shard *shard_of(struct inet_own *own)
{
    return own->ifp->inet->shard[0];
}

/* ---- telling the control reactor ---- */

static void told(struct reactor_task *task)
{
    struct inet_own *own = container_of(task, struct inet_own, tell);
    struct inet_if *ifp = own->ifp;
    struct inet_event event = {
        .kind =
            rte_is_zero_ether_addr(&own->other) ? INET_EV_ADDRESS_READY : INET_EV_ADDRESS_CONFLICT,
        .cause = own->cause,
        .port = ifp->ip->port->name,
        .ifname = ifp->name,
        .addr = own->net.addr,
        .mac = own->other,
        .used = own_usable(own),
    };

    __atomic_store_n(&own->telling, false, __ATOMIC_RELEASE);
    inet_event(ifp->inet, &event);
    if_judge(ifp);
}

/* Notifies the control reactor; mac NULL: the address is ours. A notification is skipped while
 * the last one is under way, since the state is read with the links. */
static void tell(struct inet_own *own, const struct rte_ether_addr *mac, const char *cause)
{
    if (__atomic_exchange_n(&own->telling, true, __ATOMIC_ACQ_REL))
        return;
    own->other = !mac ? (struct rte_ether_addr){0} : *mac;
    own->cause = cause;
    own->tell.fn = told;
    reactor_post(reactor_control(own->ifp->inet->env), &own->tell);
}

/* ---- asking and announcing ---- */

static void announce(struct inet_own *own)
{
    if (inet_is4(&own->net.addr))
        arp_send_request(shard_of(own), own->ifp, &own->net.addr, &own->net.addr, NULL);
    else
        nd_announce(shard_of(own), own->ifp, &own->net.addr);
}

static uint64_t probe_us(const struct inet_own *own)
{
    return max(own->ifp->dad_ms * UINT64_C(1000) / PROBES, PROBE_US_MIN);
}

static void timer_fired(struct reactor_timer *timer)
{
    struct inet_own *own = container_of(timer, struct inet_own, timer);

    if (own->probes > 0) {
        own->probes--;
        neigh_ask(shard_of(own), own->ifp, NULL, &own->net.addr, NULL);
        reactor_timer_arm(timer, probe_us(own));
        return;
    }
    own->trial = false;
    if (!own_usable(own)) {
        const char *cause = own->state == OWN_CONFLICT ? "conflict_over" : "nobody_answered";

        state_set(own, OWN_VALID);
        tell(own, NULL, cause);
        if (inet_is_link_local(&own->net.addr))
            mld_tell(own->ifp);
    }
    if (own->announcements > 0) {
        own->announcements--;
        announce(own);
        if (own->announcements > 0)
            reactor_timer_arm(timer, ANNOUNCE_US);
    }
}

/* Begins the probes of an address. An address in conflict stays so until all probes stay
 * unanswered. */
static void begin(struct inet_own *own, unsigned probes, uint64_t after_us)
{
    own->probes = (uint8_t)probes;
    own->announcements = ANNOUNCEMENTS;
    reactor_timer_arm(&own->timer, after_us);
}

/* A range is announced once: who knew its addresses at another station asks that one, and finds us
 * (neigh.c) instead of waiting until it does not answer any more. */
static void range_fired(struct reactor_timer *timer)
{
    struct inet_own *own = container_of(timer, struct inet_own, timer);
    uint32_t first = inet_v4_value(&own->net.addr);
    struct inet_addr a = own->net.addr;

    for (unsigned n = 0; n < RANGE_BURST && own->announced < own->count; n++, own->announced++) {
        inet_v4_set(&a, first + own->announced);
        arp_send_request(shard_of(own), own->ifp, &a, &a, NULL);
    }
    if (own->announced < own->count)
        reactor_timer_arm(timer, RANGE_US);
}

static void ranges_begin(struct inet_if *ifp)
{
    for (unsigned i = ifp->owns - ifp->ranges; i < ifp->owns; i++) {
        ifp->own[i].announced = 0;
        reactor_timer_arm(&ifp->own[i].timer, 0);
    }
}

static void if_start(struct inet_if *ifp)
{
    mld_start(ifp); /* first, so that answers to our questions come through (RFC 4862 §5.4.2) */
    for (unsigned i = ifp->owns - ifp->ranges; i < ifp->owns; i++)
        reactor_timer_init(&ifp->own[i].timer, range_fired);
    ranges_begin(ifp);
    for (unsigned i = 0; i < ifp->owns - ifp->ranges; i++) {
        struct inet_own *own = &ifp->own[i];

        reactor_timer_init(&own->timer, timer_fired);
        if (own->trial)
            tell(own, NULL, "used_before");
        if (ifp->dad_ms == 0)
            begin(own, 0, 0);
        else /* a little apart where many begin at once */
            begin(own, PROBES, rte_rand_max(INET_SEC / 20));
    }
}

void dad_start(struct inet_shard *sh)
{
    for (unsigned i = 0; i < sh->inet->nifs; i++)
        if_start(sh->inet->ifs[i]);
}

void dad_stop(struct inet_shard *sh)
{
    for (unsigned i = 0; i < sh->inet->nifs; i++) {
        mld_stop(sh->inet->ifs[i]);
        for (unsigned k = 0; k < sh->inet->ifs[i]->owns; k++)
            reactor_timer_cancel(&sh->inet->ifs[i]->own[k].timer);
    }
}

void dad_link_back(struct reactor_task *task)
{
    struct inet_if *ifp = container_of(task, struct inet_if, back);

    __atomic_store_n(&ifp->back_posted, false, __ATOMIC_RELEASE);
    if (!ifp->inet->shard[0]->running)
        return;
    mld_tell(ifp);
    ranges_begin(ifp);
    for (unsigned i = 0; i < ifp->owns - ifp->ranges; i++)
        begin(&ifp->own[i], ifp->dad_ms == 0 ? 0 : PROBES, 0);
}

/* ---- conflicts ---- */

static void give_up(struct inet_own *own, const struct rte_ether_addr *mac)
{
    begin(own, PROBES, AGAIN_US);
    own->trial = false;
    if (own->state == OWN_CONFLICT)
        return;
    state_set(own, OWN_CONFLICT);
    tell(own, mac, "answered_check");
}

static void defend(struct inet_own *own, const struct rte_ether_addr *mac)
{
    uint64_t now = reactor_now_us();

    if (own->defended_us != 0 && now - own->defended_us < DEFEND_US)
        return;
    own->defended_us = now;
    announce(own);
    tell(own, mac, "used_by_another");
}

void dad_conflict(struct inet_shard *sh, struct inet_own *own, const struct rte_ether_addr *mac,
                  bool probed)
{
    struct note note = {.kind = NOTE_CONFLICT,
                        .flags = probed,
                        .ifindex = (uint8_t)own->ifp->index,
                        .mac = *mac,
                        .addr = own->net.addr};

    if (own->count > 0) /* of a range: simulated, not defended */
        return;
    if (sh->index != 0) {
        hand_note_to(sh, 0, &note);
        return;
    }
    /* A request for an address that we use has been answered. */
    if (!own_usable(own) || (own->trial && !probed))
        give_up(own, mac);
    else if (!probed)
        defend(own, mac);
}
