/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/access/access.h"

#include "lib/lnet/access/bucket.h"
#include "lib/lnet/lnd.h"
#include "lib/lnet/shard/conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KINDS  (LNET_ACCESS_LIMIT + 1)
#define SEC_NS 1000000000ull

/* Counts the refusals of a rule. Rules of one kind and name share it, also with those of an earlier
 * snapshot. */
struct tally {
    unsigned refs; /* control */
    enum lnet_access_kind kind;
    char name[LNET_ACCESS_NAME];
    uint64_t refused, waited; /* any thread, atomic: only what is not let through pays for it */
};

struct rule {
    struct lnet_access_rule conf; /* with lists of its own */
    struct tally *tally;
};

struct lnet_access {
    uint64_t generation;
    struct rule *rule; /* in the operator's order, each kind for itself */
    unsigned first[KINDS + 1];
    struct lnet_buckets *buckets;
};

/* ---- which rule ---- */

static bool matches(const struct rule *r, const struct lnet_nid *from, const struct lnet_nid *to)
{
    return nid_list_has(&r->conf.from, from) && nid_list_has(&r->conf.to, to);
}

static const struct rule *decides(const struct lnet_access *a, enum lnet_access_kind kind,
                                  const struct lnet_nid *from, const struct lnet_nid *to)
{
    for (unsigned i = a->first[kind]; i < a->first[kind + 1]; i++)
        if (matches(&a->rule[i], from, to))
            return &a->rule[i];
    return NULL;
}

static void count(uint64_t *counter)
{
    (void)__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static bool may(const struct rule *r)
{
    if (!r || r->conf.allow)
        return true;
    count(&r->tally->refused);
    return false;
}

const char *lnet_access_why(const struct lnet_access *a, enum lnet_access_kind kind,
                            const struct lnet_nid *from, const struct lnet_nid *to, bool *allowed)
{
    const struct rule *r = a ? decides(a, kind, from, to) : NULL;

    *allowed = !r || r->conf.allow;
    return r ? r->conf.name : NULL;
}

void lnet_access_why_peer(const struct lnet_access *a, const struct lnet_nid *nid,
                          const struct lnet_nid *ni, struct lnet_why_access *out)
{
    bool allowed;
    const char *rule = lnet_access_why(a, LNET_ACCESS_CONNECT, nid, ni, &allowed);

    out->denied = !allowed;
    out->nlimits = 0;
    if (rule)
        memcpy(out->connect, rule, sizeof(out->connect));
    for (unsigned i = a ? a->first[LNET_ACCESS_LIMIT] : 0, end = a ? a->first[KINDS] : 0; i < end;
         i++)
        if (matches(&a->rule[i], nid, ni))
            memcpy(out->limit[out->nlimits++], a->rule[i].conf.name, LNET_ACCESS_NAME);
}

/* ---- messages ---- */

/* The verdict of the rules about a peer NI is kept there until the configuration changes. */
static void look_up(const struct lnet_access *a, struct lnet_peer_ni *peer,
                    const struct lnet_ni *ni)
{
    const struct rule *r = decides(a, LNET_ACCESS_CONNECT, &peer->nid, &ni->nid);
    unsigned first = a->first[LNET_ACCESS_LIMIT];

    peer->access_denied = r && !r->conf.allow;
    peer->access_limits = 0;
    for (unsigned i = first; i < a->first[LNET_ACCESS_LIMIT + 1]; i++)
        if (matches(&a->rule[i], &peer->nid, &ni->nid))
            peer->access_limits |= 1ull << (i - first);
}

bool lnet_access_sender(const struct lnet_access *a, const struct lnet_rx *rx)
{
    struct lnet_peer_ni *peer = rx->from;
    /* Both only grow. */
    uint32_t seen = (uint32_t)(a->generation + lnet_conf_get(rx->ni->node)->generation);

    if (peer->access_seen != seen || peer->access_ni != rx->ni->index) {
        look_up(a, peer, rx->ni);
        peer->access_seen = seen;
        peer->access_ni = (uint16_t)rx->ni->index;
    }
    return !peer->access_denied || may(decides(a, LNET_ACCESS_CONNECT, &peer->nid, &rx->ni->nid));
}

enum lnet_drop lnet_access_header(const struct lnet_access *a, const struct lnet_hdr *hdr)
{
    if (a->first[LNET_ACCESS_FORWARD] == a->first[LNET_ACCESS_FORWARD + 1] ||
        may(decides(a, LNET_ACCESS_FORWARD, &hdr->src_nid, &hdr->dest_nid)))
        return LNET_DROP_NONE;
    return LNET_DROP_ACCESS_FORWARD;
}

/* ---- limits ---- */

static struct lnet_bucket *bucket_of(const struct lnet_access *a, const struct lnet_node *node,
                                     const struct rule *r, const struct lnet_nid *nid)
{
    struct {
        struct lnet_nid nid;
        uint32_t rule;
    } key = {.rule = (uint32_t)(r - a->rule)};

    if (r->conf.per == LNET_ACCESS_PER_NID)
        key.nid = *nid;
    else if (r->conf.per == LNET_ACCESS_PER_PREFIX)
        key.nid = lnet_nid_prefix(node, nid);
    return lnet_bucket_get(a->buckets, sip_hash_cd(&sip_table_key, &key, sizeof(key), 1, 3) | 1);
}

static uint64_t lacks(const struct rule *r, const struct lnet_bucket *b, enum lnet_bucket_of kind)
{
    return r->conf.rate[kind] == 0 ? 0
                                   : lnet_bucket_lacks(b, kind, r->conf.burst_ms * (SEC_NS / 1000),
                                                       reactor_now_us() * 1000);
}

static void take(const struct rule *r, struct lnet_bucket *b, enum lnet_bucket_of kind, uint64_t n)
{
    if (r->conf.rate[kind] > 0)
        lnet_bucket_take(b, kind, n * SEC_NS / r->conf.rate[kind], reactor_now_us() * 1000);
}

enum lnet_drop lnet_access_take(const struct lnet_access *a, const struct lnet_rx *rx,
                                uint64_t most_us, uint64_t *wait_us)
{
    const struct rule *limit = &a->rule[a->first[LNET_ACCESS_LIMIT]], *slowest = NULL;
    struct lnet_bucket *bucket[LNET_ACCESS_LIMITS];
    uint64_t left, wait = 0, one;
    unsigned i;

    for (left = rx->from->access_limits; left; left &= left - 1) {
        i = (unsigned)__builtin_ctzll(left);
        bucket[i] = bucket_of(a, rx->ni->node, &limit[i], &rx->from->nid);
        one = max(lacks(&limit[i], bucket[i], LNET_BUCKET_MESSAGES),
                  lacks(&limit[i], bucket[i], LNET_BUCKET_BYTES));
        if (one > wait) {
            wait = one;
            slowest = &limit[i];
        }
    }
    *wait_us = (wait + 999) / 1000;
    if (*wait_us > most_us) {
        count(&slowest->tally->refused);
        return LNET_DROP_RATE_LIMIT;
    }
    if (slowest)
        count(&slowest->tally->waited);
    for (left = rx->from->access_limits; left; left &= left - 1) {
        i = (unsigned)__builtin_ctzll(left);
        take(&limit[i], bucket[i], LNET_BUCKET_MESSAGES, 1);
        take(&limit[i], bucket[i], LNET_BUCKET_BYTES, rx->hdr.payload_len);
    }
    return LNET_DROP_NONE;
}

/* ---- callers ---- */

enum lnet_drop lnet_may_call(const struct lnet_ni *ni, const struct lnet_nid *from)
{
    const struct lnet_access *a = lnet_access(ni->node);

    for (unsigned i = a ? a->first[LNET_ACCESS_LIMIT] : 0, end = a ? a->first[KINDS] : 0; i < end;
         i++) {
        const struct rule *r = &a->rule[i];
        struct lnet_bucket *b;

        if (r->conf.rate[LNET_BUCKET_CONNECTS] == 0 || !matches(r, from, &ni->nid))
            continue;
        b = bucket_of(a, ni->node, r, from);
        if (lacks(r, b, LNET_BUCKET_CONNECTS) > 0) {
            count(&r->tally->refused);
            return LNET_DROP_CONNECT_RATE;
        }
        take(r, b, LNET_BUCKET_CONNECTS, 1);
    }
    return LNET_DROP_NONE;
}

enum lnet_drop lnet_may_connect(const struct lnet_ni *ni, const struct lnet_nid *from)
{
    const struct lnet_access *a = lnet_access(ni->node);

    return !a || may(decides(a, LNET_ACCESS_CONNECT, from, &ni->nid)) ? LNET_DROP_NONE
                                                                      : LNET_DROP_ACCESS_CONNECT;
}

/* ---- change (control) ---- */

static void tally_put(struct tally *t)
{
    if (t && --t->refs == 0)
        free(t);
}

static void access_free(struct lnet_access *a)
{
    if (!a)
        return;
    for (unsigned i = 0; i < a->first[KINDS]; i++) {
        free(a->rule[i].conf.from.range);
        free(a->rule[i].conf.to.range);
        tally_put(a->rule[i].tally);
    }
    if (a->buckets)
        lnet_buckets_fini(a->buckets);
    free(a->buckets);
    free(a->rule);
    free(a);
}

static struct tally *find_tally(const struct lnet_access *a, const struct lnet_access_rule *conf)
{
    for (unsigned i = 0; a && i < a->first[KINDS]; i++)
        if (a->rule[i].tally && a->rule[i].tally->kind == conf->kind &&
            strcmp(a->rule[i].tally->name, conf->name) == 0)
            return a->rule[i].tally;
    return NULL;
}

static struct tally *tally_get(const struct lnet_access *old, const struct lnet_access *a,
                               const struct lnet_access_rule *conf)
{
    struct tally *t = find_tally(old, conf);

    if (!t)
        t = find_tally(a, conf);
    if (!t) {
        t = calloc(1, sizeof(*t));
        if (!t)
            return NULL;
        t->kind = conf->kind;
        memcpy(t->name, conf->name, sizeof(t->name));
    }
    t->refs++;
    return t;
}

static bool copy_list(struct nid_list *to, const struct nid_list *from)
{
    *to = (struct nid_list){.n = from->n};
    if (from->n == 0)
        return true;
    to->range = calloc(from->n, sizeof(*to->range));
    if (to->range)
        memcpy(to->range, from->range, from->n * sizeof(*to->range));
    return to->range != NULL;
}

static bool copy_rules(struct lnet_access *a, const struct lnet_access *old,
                       const struct lnet_access_rule *rules, unsigned n)
{
    for (unsigned kind = 0; kind < KINDS; kind++) {
        a->first[kind + 1] = a->first[kind];
        for (unsigned i = 0; i < n; i++) {
            struct rule *r = &a->rule[a->first[kind + 1]];

            if (rules[i].kind != kind)
                continue;
            r->conf = rules[i];
            r->conf.from.range = r->conf.to.range = NULL;
            for (unsigned k = kind + 1; k <= KINDS; k++)
                a->first[k]++;
            r->tally = tally_get(old, a, &rules[i]);
            if (!r->tally || !copy_list(&r->conf.from, &rules[i].from) ||
                !copy_list(&r->conf.to, &rules[i].to))
                return false;
        }
    }
    return true;
}

static struct lnet_access *build(struct lnet_node *node, const struct lnet_access_rule *rules,
                                 unsigned n)
{
    struct lnet_access *a = calloc(1, sizeof(*a));
    unsigned limits = 0;

    for (unsigned i = 0; i < n; i++)
        limits += rules[i].kind == LNET_ACCESS_LIMIT;
    if (!a)
        return NULL;
    a->generation = ++node->access_generation;
    a->rule = calloc(n, sizeof(*a->rule));
    a->buckets = calloc(1, sizeof(*a->buckets));
    if (!a->rule || !a->buckets || !copy_rules(a, node->access, rules, n) ||
        lnet_buckets_init(a->buckets, limits > 0 ? lnet_max_peers(&node->opts) : 0)) {
        access_free(a);
        return NULL;
    }
    return a;
}

static void publish(struct lnet_node *node, struct lnet_access *a)
{
    struct lnet_access *old = node->access;

    __atomic_store_n(&node->access, a, __ATOMIC_RELEASE);
    if (old)
        reactor_synchronize(node->env);
    access_free(old);
}

int lnet_access_set(struct lnet_node *node, const struct lnet_access_rule *rules, unsigned n,
                    struct err *err)
{
    struct lnet_access *a = NULL;

    if (n > 0) {
        a = build(node, rules, n);
        if (!a)
            return err_set(err, -ENOMEM, "no memory for %u access rules", n);
    }
    publish(node, a);
    return 0;
}

void lnet_access_fini(struct lnet_node *node)
{
    access_free(node->access);
}

unsigned lnet_access_rows(const struct lnet_node *node, struct lnet_access_row *rows, unsigned max)
{
    const struct lnet_access *a = node->access;
    unsigned n = a ? a->first[KINDS] : 0;

    for (unsigned i = 0; i < n && i < max; i++) {
        const struct rule *r = &a->rule[i];

        rows[i] = (struct lnet_access_row){.kind = r->conf.kind,
                                           .refused = relaxed_load(&r->tally->refused),
                                           .waited = relaxed_load(&r->tally->waited)};
        memcpy(rows[i].name, r->conf.name, sizeof(rows[i].name));
    }
    return n;
}
