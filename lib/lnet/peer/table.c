/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/peer/table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "lib/base/minmax.h"

/* Every pinned NID may be the only one of its peer. */
static unsigned all_nids(const struct peer_table_opts *o)
{
    return o->max_nids + o->max_pinned;
}

static uint32_t buckets_for(unsigned n)
{
    uint32_t buckets = 64;

    while (buckets < n)
        buckets *= 2;
    return buckets;
}

/* Every NID may be a peer of its own, and a peer that is being made has none yet. */
static unsigned all_peers(const struct peer_table_opts *o)
{
    return all_nids(o) + 1;
}

size_t peer_table_bytes(const struct peer_table_opts *o)
{
    return all_peers(o) * sizeof(struct peer) +
           all_nids(o) * (sizeof(struct peer_net) + sizeof(struct peer_ni)) +
           buckets_for(all_nids(o)) * sizeof(struct peer_ni *) + share_bytes(all_nids(o));
}

int peer_table_init(struct peer_table *t, const struct peer_table_opts *opts)
{
    unsigned nids = all_nids(opts);
    uint32_t buckets = buckets_for(nids);

    *t = (struct peer_table){.opts = *opts};
    for (unsigned i = 0; i < PEER_AGES; i++)
        TAILQ_INIT(&t->by_age[i]);
    t->hash_mask = buckets - 1;
    t->hash = calloc(buckets, sizeof(*t->hash));
    t->peers = calloc(all_peers(opts), sizeof(*t->peers));
    t->nets = calloc(nids, sizeof(*t->nets));
    t->nis = calloc(nids, sizeof(*t->nis));
    if (!share_init(&t->share, nids) || !t->hash || !t->peers || !t->nets || !t->nis)
        return -ENOMEM;
    for (unsigned i = nids; i > 0; i--) {
        t->nets[i - 1].next_free = t->free_nets;
        t->free_nets = &t->nets[i - 1];
        t->nis[i - 1].next = t->free_nis;
        t->free_nis = &t->nis[i - 1];
    }
    return 0;
}

void peer_table_fini(struct peer_table *t)
{
    share_fini(&t->share);
    free(t->hash);
    free(t->peers);
    free(t->nets);
    free(t->nis);
    *t = (struct peer_table){0};
}

static void notify(struct peer_table *t, struct peer_event event)
{
    t->opts.notify(t->opts.arg, &event);
}

static struct peer_ni **bucket(const struct peer_table *t, const struct lnet_nid *nid)
{
    return &t->hash[nid_hash(nid) & t->hash_mask];
}

struct peer_ni *peer_table_find_ni(const struct peer_table *t, const struct lnet_nid *nid)
{
    struct peer_ni *ni = *bucket(t, nid);

    while (ni && !nid_same(&ni->nid, nid))
        ni = ni->next;
    return ni;
}

struct peer *peer_table_find(const struct peer_table *t, const struct lnet_nid *nid)
{
    const struct peer_ni *ni = peer_table_find_ni(t, nid);

    return ni ? ni->net->peer : NULL;
}

static bool may_be_peers(const struct peer_table *t, const struct lnet_nid *nid)
{
    return nid_wire_valid(nid) && !nid_is_lo(nid) && !t->opts.is_own(t->opts.arg, nid);
}

/* ---- ages ---- */

static void leave_age(struct peer_table *t, struct peer *p)
{
    TAILQ_REMOVE(&t->by_age[p->age], p, by_age);
    if (p->age == PEER_UNANSWERED)
        t->nnis_unanswered -= p->nnis;
}

/* The peer becomes the most recently used one of its age. */
static void join_age(struct peer_table *t, struct peer *p)
{
    if (p->pins > 0 || p->state & PEER_CONFIGURED)
        p->age = PEER_KEPT;
    else
        p->age = p->answered ? PEER_ANSWERED : PEER_UNANSWERED;
    TAILQ_INSERT_TAIL(&t->by_age[p->age], p, by_age);
    if (p->age == PEER_UNANSWERED)
        t->nnis_unanswered += p->nnis;
}

static void touch(struct peer_table *t, struct peer *p)
{
    leave_age(t, p);
    join_age(t, p);
}

void peer_table_answers(struct peer_table *t, struct peer *p, bool answers)
{
    if (p->answered == answers)
        return;
    p->answered = answers;
    touch(t, p);
}

/* ---- a peer's NIDs ---- */

/* The pins of a NID come to its peer, or (-1) leave it. */
static void add_pins(struct peer_table *t, struct peer *p, unsigned pins, int sign)
{
    bool was = p->pins > 0;

    if (pins == 0)
        return;
    p->pins += (unsigned)sign * pins;
    t->npinned_peers += (unsigned)((p->pins > 0) - was);
    touch(t, p);
}

/* Returns the peer's net of this number, made if it has none. There are as many nets as NIDs. */
static struct peer_net *net_of(struct peer_table *t, struct peer *p, lnet_net_t net)
{
    struct peer_net *n;

    TAILQ_FOREACH(n, &p->nets, link)
        if (n->net == net)
            return n;
    n = t->free_nets;
    assert(n);
    t->free_nets = n->next_free;
    *n = (struct peer_net){.net = net, .peer = p};
    TAILQ_INIT(&n->nis);
    TAILQ_INSERT_TAIL(&p->nets, n, link);
    return n;
}

static void attach(struct peer_table *t, struct peer *p, struct peer_ni *ni)
{
    ni->net = net_of(t, p, nid_net(&ni->nid));
    TAILQ_INSERT_TAIL(&ni->net->nis, ni, link);
    p->nnis++;
    t->nnis_unanswered += p->age == PEER_UNANSWERED;
    if (p->account)
        share_take(p->account);
    add_pins(t, p, ni->pins, 1);
}

static void detach(struct peer_table *t, struct peer_ni *ni)
{
    struct peer_net *n = ni->net;
    struct peer *p = n->peer;

    TAILQ_REMOVE(&n->nis, ni, link);
    if (TAILQ_EMPTY(&n->nis)) {
        TAILQ_REMOVE(&p->nets, n, link);
        n->next_free = t->free_nets;
        t->free_nets = n;
    }
    p->nnis--;
    t->nnis_unanswered -= p->age == PEER_UNANSWERED;
    if (p->account)
        share_give(&t->share, p->account);
    add_pins(t, p, ni->pins, -1);
}

static void set_primary(struct peer_table *t, struct peer *p, const struct lnet_nid *nid)
{
    if (nid_same(&p->primary, nid))
        return;
    p->primary = *nid;
    notify(t, (struct peer_event){.kind = PEER_PRIMARY, .peer = p});
}

static void free_peer(struct peer_table *t, struct peer *p)
{
    leave_age(t, p);
    p->next_free = t->free_peers;
    t->free_peers = p;
    t->npeers--;
}

/* A peer has lost a NID to `heir`, or (NULL) for good: it takes another primary NID, or is freed.
 */
static void lost_nid(struct peer_table *t, struct peer *p, const struct lnet_nid *nid,
                     struct peer *heir)
{
    if (p->nnis == 0) {
        notify(t, (struct peer_event){.kind = PEER_GONE, .peer = p, .other = heir});
        free_peer(t, p);
    } else if (nid_same(&p->primary, nid)) {
        set_primary(t, p, &TAILQ_FIRST(&TAILQ_FIRST(&p->nets)->nis)->nid);
    }
}

static void remove_ni(struct peer_table *t, struct peer_ni *ni)
{
    struct peer *p = ni->net->peer;
    struct peer_ni **link = bucket(t, &ni->nid);

    notify(t, (struct peer_event){.kind = PEER_NI_REMOVED, .peer = p, .ni = ni});
    detach(t, ni);
    while (*link != ni)
        link = &(*link)->next;
    *link = ni->next;
    ni->next = t->free_nis;
    t->free_nis = ni;
    t->nnis--;
    t->npinned_nis -= ni->pins > 0;
    lost_nid(t, p, &ni->nid, NULL);
}

static void move_ni(struct peer_table *t, struct peer_ni *ni, struct peer *to)
{
    struct peer *from = ni->net->peer;

    detach(t, ni);
    attach(t, to, ni);
    ni->answered = false;
    notify(t, (struct peer_event){.kind = PEER_NI_MOVED, .peer = to, .other = from, .ni = ni});
    lost_nid(t, from, &ni->nid, to);
}

void peer_table_del(struct peer_table *t, struct peer *p)
{
    for (unsigned n = p->nnis; n > 0; n--)
        remove_ni(t, TAILQ_FIRST(&TAILQ_FIRST(&p->nets)->nis));
}

/* ---- room ---- */

#define EVICT_LOOKS 128 /* peers in use that one call passes over */

static bool in_use(const struct peer *p)
{
    return p->state & (PEER_DISCOVERING | PEER_PING_SENT | PEER_PUSH_SENT);
}

/* Removes the peer that has been unused for longest, but not `keep`. */
static bool evict(struct peer_table *t, const struct peer *keep)
{
    unsigned looks = EVICT_LOOKS;

    for (unsigned age = PEER_UNANSWERED; age <= PEER_ANSWERED; age++) {
        struct peer_list *list = &t->by_age[age];
        struct peer *p, *next, *last = TAILQ_LAST(list, peer_list);

        for (p = TAILQ_FIRST(list); p; p = p == last ? NULL : next) {
            next = TAILQ_NEXT(p, by_age);
            if (p != keep && !in_use(p)) {
                peer_table_del(t, p);
                return true;
            }
            if (looks-- == 0)
                return false;
            TAILQ_REMOVE(list, p, by_age); /* the next call looks at others */
            TAILQ_INSERT_TAIL(list, p, by_age);
        }
    }
    return false;
}

/* NIDs that are not pinned. */
static unsigned nnis_counted(const struct peer_table *t)
{
    return t->nnis - t->npinned_nis;
}

/* Peers that never answered make room for others. */
static unsigned nfree(const struct peer_table *t)
{
    return t->opts.max_nids - min(nnis_counted(t), t->opts.max_nids) + t->nnis_unanswered;
}

/* Both keep the places of NIDs to be pinned. */
static bool has_peer(const struct peer_table *t)
{
    return t->npeers - t->npinned_peers < t->opts.max_peers;
}

static bool has_ni(const struct peer_table *t)
{
    return nnis_counted(t) < t->opts.max_nids;
}

static struct peer_ni *make_ni(struct peer_table *t, struct peer *p, const struct lnet_nid *nid,
                               enum peer_origin origin)
{
    struct peer_ni *ni = t->free_nis, **head = bucket(t, nid);

    t->free_nis = ni->next;
    *ni = (struct peer_ni){.nid = *nid, .health = LNET_MAX_HEALTH, .origin = origin, .next = *head};
    *head = ni;
    t->nnis++;
    attach(t, p, ni);
    notify(t, (struct peer_event){.kind = PEER_NI_ADDED, .peer = p, .ni = ni});
    return ni;
}

static struct share_account *account_of(struct peer_table *t, const struct lnet_nid *nid)
{
    struct lnet_nid prefix = nid_prefix(nid, nid_is_nid4(nid) ? t->opts.prefix4 : t->opts.prefix6);

    return share_of(&t->share, nid, nid_same(nid, &prefix) ? NULL : &prefix);
}

/* From now on a peer that was created for a pin pays for its NIDs as others do. */
static bool charge(struct peer_table *t, struct peer *p)
{
    if (p->account || p->state & PEER_CONFIGURED)
        return true;
    p->account = account_of(t, &p->primary);
    for (unsigned i = 0; p->account && i < p->nnis; i++)
        share_take(p->account);
    return p->account;
}

/* Creates a peer NI. Returns NULL if there is no room, or the peer's share is used up. */
static struct peer_ni *add_ni(struct peer_table *t, struct peer *p, const struct lnet_nid *nid,
                              enum peer_origin origin)
{
    bool may = origin == PEER_BY_CONFIG ||
               (charge(t, p) && (!p->account || share_may(p->account, nfree(t))));

    if (may && !has_ni(t)) { /* the one that goes may be the last other of p's account */
        if (p->account)
            share_take(p->account);
        may = evict(t, p);
        if (p->account)
            share_untake(p->account);
    }
    if (!may) {
        t->nrefused++;
        return NULL;
    }
    return make_ni(t, p, nid, origin);
}

/* Makes a peer without a NID, which the caller gives it next. */
static struct peer *make_peer(struct peer_table *t, const struct lnet_nid *nid,
                              struct share_account *account)
{
    struct peer *p = t->free_peers;

    if (p)
        t->free_peers = p->next_free;
    else
        p = &t->peers[t->highest++];
    *p = (struct peer){.primary = *nid, .account = account};
    p->discovery.push_to = p->discovery.push_from = LNET_NID_ANY;
    p->claimed = p->push.nid = p->push.local = p->push.via = LNET_NID_ANY;
    TAILQ_INIT(&p->nets);
    join_age(t, p);
    t->npeers++;
    return p;
}

/* The same, if there is room. Peers that the operator configures have no account. */
static struct peer *add_peer(struct peer_table *t, const struct lnet_nid *nid,
                             enum peer_origin origin)
{
    struct share_account *account = NULL;

    if (!has_peer(t) && !evict(t, NULL))
        return NULL;
    if (origin != PEER_BY_CONFIG && !(account = account_of(t, nid)))
        return NULL;
    return make_peer(t, nid, account);
}

/* Takes back a peer that got no NID. */
static void unmake_peer(struct peer_table *t, struct peer *p)
{
    if (p->account)
        share_drop(&t->share, p->account);
    free_peer(t, p);
}

struct peer *peer_table_get(struct peer_table *t, const struct lnet_nid *nid)
{
    struct peer *p = peer_table_find(t, nid);

    if (p) {
        touch(t, p);
        return p;
    }
    if (!may_be_peers(t, nid))
        return NULL;
    p = add_peer(t, nid, PEER_BY_TRAFFIC);
    if (!p) {
        t->nrefused++;
        return NULL;
    }
    if (!add_ni(t, p, nid, PEER_BY_TRAFFIC)) {
        unmake_peer(t, p);
        return NULL;
    }
    return p;
}

struct peer *peer_table_split(struct peer_table *t, const struct lnet_nid *nid)
{
    const struct lnet_nid own = *nid;

    remove_ni(t, peer_table_find_ni(t, &own));
    return peer_table_get(t, &own);
}

/* Whether a peer may have made up that it has a NID, which pushes now. The peer failed, or the node
 * itself lists the NID without the peer's primary NID. */
static bool is_made_up(const struct peer_ni *ni, const struct lnet_ping_info *own)
{
    const struct peer *p = ni->net->peer;

    if (p->nnis == 1 || ni->pins > 0 || p->state & PEER_CONFIGURED ||
        nid_same(&p->push.nid, &ni->nid))
        return false;
    if (!p->answered && p->push.failures > 0)
        return true;
    if (!own || own->truncated || ni->answered)
        return false;
    for (uint32_t i = 0; i < own->count; i++)
        if (nid_same(&own->ni[i].nid, &p->primary))
            return false;
    return true;
}

struct peer *peer_table_get_pusher(struct peer_table *t, const struct lnet_nid *nid,
                                   const struct lnet_ping_info *own)
{
    const struct peer_ni *ni = peer_table_find_ni(t, nid);

    return ni && is_made_up(ni, own) ? peer_table_split(t, nid) : peer_table_get(t, nid);
}

/* ---- pins ---- */

struct peer *peer_table_pin(struct peer_table *t, const struct lnet_nid *nid)
{
    struct peer_ni *ni = peer_table_find_ni(t, nid);

    if ((!ni || ni->pins == 0) && t->npinned_nis >= t->opts.max_pinned)
        return NULL;
    if (ni && !peer_ni_proved(ni) && ni->net->peer->nnis > 1 &&
        !(ni->net->peer->state & PEER_CONFIGURED)) {
        remove_ni(t, ni); /* the peer that lists it may have made it up */
        ni = NULL;
    }
    if (!ni) {
        if (!may_be_peers(t, nid))
            return NULL;
        ni = make_ni(t, make_peer(t, nid, NULL), nid, PEER_BY_CONFIG);
    }
    t->npinned_nis += ni->pins == 0;
    ni->pins++;
    add_pins(t, ni->net->peer, 1, 1);
    return ni->net->peer;
}

static struct peer_ni *one_to_keep(const struct peer *p, const struct lnet_nid *nid)
{
    struct peer_ni *ni, *keep = NULL;
    const struct peer_net *n;

    TAILQ_FOREACH(n, &p->nets, link)
        TAILQ_FOREACH(ni, &n->nis, link)
            if (!keep || (ni->pins > 0) > (keep->pins > 0) ||
                ((ni->pins > 0) == (keep->pins > 0) && nid_same(&ni->nid, nid)))
                keep = ni;
    return keep;
}

void peer_table_recreate(struct peer_table *t, struct peer *p, const struct lnet_nid *nid)
{
    struct peer_ni *keep = one_to_keep(p, nid);
    struct peer_net *n, *next_net;
    struct peer_ni *ni, *next;

    for (n = TAILQ_FIRST(&p->nets); n; n = next_net) {
        next_net = TAILQ_NEXT(n, link);
        for (ni = TAILQ_FIRST(&n->nis); ni; ni = next) {
            next = TAILQ_NEXT(ni, link);
            if (ni == keep)
                continue;
            if (ni->pins > 0)
                move_ni(t, ni, make_peer(t, &ni->nid, NULL));
            else
                remove_ni(t, ni);
        }
    }
    set_primary(t, p, &keep->nid);
    p->state = p->features = p->seqno = 0;
    p->discovery = (struct peer_discovery){.push_to = LNET_NID_ANY, .push_from = LNET_NID_ANY};
    touch(t, p);
}

void peer_table_unpin(struct peer_table *t, const struct lnet_nid *nid)
{
    struct peer_ni *ni = peer_table_find_ni(t, nid);
    struct peer *p = ni ? ni->net->peer : NULL;
    bool fits;

    if (!ni || ni->pins == 0)
        return;
    ni->pins--;
    t->npinned_nis -= ni->pins == 0;
    add_pins(t, p, 1, -1);
    if (ni->pins > 0)
        return;
    fits = (nnis_counted(t) <= t->opts.max_nids &&
            t->npeers - t->npinned_peers <= t->opts.max_peers) ||
           evict(t, p);
    if (p->pins > 0 && !fits)
        remove_ni(t, ni);
    else if (p->pins == 0 && !(p->state & PEER_CONFIGURED) &&
             (!p->features || !fits || !charge(t, p)))
        peer_table_del(t, p);
}

/* ---- configuration ---- */

/* Gives a configured peer a NID that no other configured peer has. */
static int configure_ni(struct peer_table *t, struct peer *p, const struct lnet_nid *nid)
{
    struct peer_ni *ni = peer_table_find_ni(t, nid);

    if (!ni)
        ni = add_ni(t, p, nid, PEER_BY_CONFIG);
    else if (ni->net->peer != p)
        move_ni(t, ni, p);
    if (!ni)
        return -ENOSPC;
    ni->origin = PEER_BY_CONFIG;
    return 0;
}

static bool configured_elsewhere(const struct peer_table *t, const struct peer *p,
                                 const struct lnet_nid *nid)
{
    const struct peer *owner = peer_table_find(t, nid);

    return owner && owner != p && owner->state & PEER_CONFIGURED;
}

int peer_table_add(struct peer_table *t, const struct lnet_nid *primary, const struct lnet_nid *nid,
                   uint32_t state)
{
    struct peer *p = peer_table_find(t, primary);
    int rc;

    if (!may_be_peers(t, primary) || !may_be_peers(t, nid))
        return -EINVAL;
    if (p && !nid_same(&p->primary, primary)) {
        if (p->state & PEER_CONFIGURED)
            return -EEXIST;
        p = NULL; /* the NID leaves that peer */
    }
    if (configured_elsewhere(t, p, nid))
        return -EEXIST;
    if (!(state & PEER_MULTI_RAIL) && (!nid_same(primary, nid) || (p && p->nnis > 1)))
        return -EPERM;
    if (!p) {
        p = add_peer(t, primary, PEER_BY_CONFIG);
        if (!p)
            return -ENOSPC;
        p->state = PEER_CONFIGURED;
        touch(t, p); /* not to be freed for its first NID */
        rc = configure_ni(t, p, primary);
        if (rc < 0) {
            unmake_peer(t, p);
            return rc;
        }
    }
    p->state &= ~(uint32_t)(PEER_MULTI_RAIL | PEER_LOCK_PRIMARY | PEER_MARK_DELETION);
    p->state |= PEER_CONFIGURED | state;
    touch(t, p);
    peer_table_find_ni(t, primary)->origin = PEER_BY_CONFIG;
    return configure_ni(t, p, nid);
}

int peer_table_del_nid(struct peer_table *t, const struct lnet_nid *primary,
                       const struct lnet_nid *nid)
{
    struct peer_ni *ni = peer_table_find_ni(t, nid);

    if (!ni || !nid_same(&ni->net->peer->primary, primary))
        return -ENOENT;
    if (nid_same(primary, nid) && ni->net->peer->nnis > 1)
        return -EBUSY;
    if (ni->pins > 0)
        move_ni(t, ni, make_peer(t, nid, NULL));
    else
        remove_ni(t, ni);
    return 0;
}

/* ---- what a peer sent ---- */

void peer_table_hear(struct peer_table *t, struct peer *p, const struct lnet_ping_info *info,
                     bool discovery)
{
    bool both = discovery && info->features & LNET_PING_DISCOVERY;
    bool known = !(p->state & PEER_NO_DISCOVERY) && p->state & (PEER_DISCOVERED | PEER_MULTI_RAIL);
    bool configured = p->state & PEER_CONFIGURED;

    p->features = info->features;
    p->seqno = info->seqno;
    p->state &= ~(uint32_t)PEER_NO_DISCOVERY;
    if (!both) {
        p->state |= PEER_NO_DISCOVERY;
        if (known && !configured)
            p->state |= PEER_MARK_DELETION;
    }
    if (configured)
        return;
    if (info->features & LNET_PING_MULTI_RAIL) {
        if (both)
            p->state |= PEER_MULTI_RAIL;
    } else if (p->state & PEER_MULTI_RAIL) {
        p->state &= ~(uint32_t)PEER_MULTI_RAIL;
        notify(t, (struct peer_event){.kind = PEER_NO_MULTI_RAIL, .peer = p});
    }
}

/* A peer that the operator configured, or that does not discover, has the NIDs that it has. */
static bool nids_follow(const struct peer *p, bool discovery)
{
    return discovery && !(p->state & (PEER_CONFIGURED | PEER_NO_DISCOVERY));
}

/* Whether p cannot have a NID of its owner because it lists it. Any node can list what it likes: a
 * peer that answers is asked first whether it still has its NIDs. If its answer lists a NID of p
 * the two are one node, as p listed one that the owner does not merely list. Gateways keep theirs,
 * and get what another node merely lists. */
static bool is_guarded(struct peer_table *t, const struct peer_ni *ni, const struct peer *p)
{
    const struct peer *owner = ni->net->peer;

    if (owner->pins > 0)
        return true;
    if (p->pins > 0 && peer_ni_merely_listed(ni))
        return false;
    return owner->answered && peer_table_find(t, &owner->claimed) != p;
}

/* Returns the peer that the data belongs to: the owner of the primary NID in it. */
static struct peer *owner_of_data(struct peer_table *t, struct peer *p,
                                  const struct lnet_ping_info *info, const struct lnet_nid *primary)
{
    const struct peer_ni *ni = peer_table_find_ni(t, primary);
    struct peer *owner = ni ? ni->net->peer : NULL;

    if (!owner || owner == p || p->pins > 0 || p->state & PEER_LOCK_PRIMARY || is_guarded(t, ni, p))
        return p;
    p->claimed = *primary; /* it gives itself up */
    peer_table_hear(t, owner, info, true);
    owner->state |= PEER_NIDS_UPTODATE;
    return owner;
}

static void set_status(struct peer_table *t, struct peer_ni *ni, uint32_t status)
{
    uint32_t old = ni->status;

    if (status == old || (status != LNET_NI_UP && status != LNET_NI_DOWN))
        return;
    ni->status = status;
    notify(t, (struct peer_event){
                  .kind = PEER_NI_STATUS, .peer = ni->net->peer, .ni = ni, .old_status = old});
}

/* Returns the peer NI if p has the NID or can take it from another peer. */
static struct peer_ni *take_ni(struct peer_table *t, struct peer *p, struct peer_ni *ni)
{
    struct peer *owner = ni->net->peer;

    if (owner == p)
        return ni;
    if (owner->state & PEER_CONFIGURED || is_guarded(t, ni, p) ||
        (owner->state & PEER_LOCK_PRIMARY && nid_same(&owner->primary, &ni->nid))) {
        if (!peer_ni_merely_listed(ni))
            p->claimed = ni->nid;
        notify(t,
               (struct peer_event){.kind = PEER_NI_CLAIMED, .peer = p, .other = owner, .ni = ni});
        return NULL;
    }
    if (!charge(t, p))
        return NULL;
    move_ni(t, ni, p);
    ni->origin = PEER_BY_DISCOVERY;
    return ni;
}

static void learn_nid(struct peer_table *t, struct peer *p, const struct lnet_ping_ni *listed)
{
    struct peer_ni *ni = peer_table_find_ni(t, &listed->nid);

    if (ni)
        ni = take_ni(t, p, ni);
    else if (may_be_peers(t, &listed->nid))
        ni = add_ni(t, p, &listed->nid, PEER_BY_DISCOVERY);
    else
        notify(t, (struct peer_event){.kind = PEER_NI_CLAIMED, .peer = p});
    if (!ni)
        return;
    ni->round = t->round;
    set_status(t, ni, listed->status);
}

/* Removes the NIDs that the data did not list. At least one NID stays, so that the peer can be
 * asked again. */
static void forget_unlisted(struct peer_table *t, struct peer *p)
{
    struct peer_net *n, *next_net;
    struct peer_ni *ni, *next;

    for (n = TAILQ_FIRST(&p->nets); n; n = next_net) {
        next_net = TAILQ_NEXT(n, link);
        for (ni = TAILQ_FIRST(&n->nis); ni; ni = next) {
            next = TAILQ_NEXT(ni, link);
            if (ni->round == t->round || p->nnis == 1)
                continue;
            if (ni->pins > 0 || (p->state & PEER_LOCK_PRIMARY && nid_same(&ni->nid, &p->primary)))
                set_status(t, ni, LNET_NI_DOWN);
            else
                remove_ni(t, ni);
        }
    }
}

/* Returns whether the data says what the peer's last said, in its order: compares, looks up
 * nothing. It may be false for data of which the NIDs of several nets alternate. */
static bool is_same_list(const struct peer *p, const struct lnet_ping_info *info)
{
    const struct peer_net *n;
    const struct peer_ni *ni;
    uint32_t i = 0;

    if (info->truncated || info->count != p->nnis)
        return false;
    TAILQ_FOREACH(n, &p->nets, link)
        TAILQ_FOREACH(ni, &n->nis, link) {
            if (!nid_same(&ni->nid, &info->ni[i].nid) || ni->status != info->ni[i].status)
                return false;
            i++;
        }
    return true;
}

static void learn_nids(struct peer_table *t, struct peer *p, const struct lnet_ping_info *info,
                       const struct lnet_nid *primary)
{
    if (nid_same(&p->primary, primary) && is_same_list(p, info))
        return;
    t->round++;
    for (uint32_t i = 0; i < info->count; i++)
        learn_nid(t, p, &info->ni[i]);
    if (!(p->state & PEER_LOCK_PRIMARY) && peer_table_find(t, primary) == p)
        set_primary(t, p, primary);
    if (!info->truncated)
        forget_unlisted(t, p);
}

static void learn_status(struct peer_table *t, struct peer *p, const struct lnet_ping_info *info)
{
    for (uint32_t i = 0; i < info->count; i++) {
        struct peer_ni *ni = peer_table_find_ni(t, &info->ni[i].nid);

        if (ni && ni->net->peer == p)
            set_status(t, ni, info->ni[i].status);
    }
}

struct peer *peer_table_merge(struct peer_table *t, struct peer *p,
                              const struct lnet_ping_info *info, bool discovery)
{
    struct lnet_nid primary;

    if (!lnet_ping_primary(info, &primary))
        return p;
    if (nids_follow(p, discovery))
        p = owner_of_data(t, p, info, &primary);
    p->state &= ~(uint32_t)PEER_ROUTER_ENABLED;
    if (!(info->features & LNET_PING_RTE_DISABLED))
        p->state |= PEER_ROUTER_ENABLED;
    if (nids_follow(p, discovery))
        learn_nids(t, p, info, &primary);
    else
        learn_status(t, p, info);
    return p;
}
