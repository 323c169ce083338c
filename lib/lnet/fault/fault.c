/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of fault injection: what they match, when they apply, and their changes. */
#include "lib/lnet/fault/fault_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEC_US 1000000ull

/* ---- random choices ---- */

enum choice {
    CHOICE_POSITION,
    CHOICE_TIME,
    CHOICE_COIN,
    CHOICE_STATUS
};

/* Returns the n-th number for a kind of choice. Reactors need no common generator. */
static uint64_t draw(const struct lnet_fault *f, enum choice what, uint64_t n)
{
    const uint64_t of[3] = {relaxed_load(&f->seed), what, n};

    return sip_hash_cd(&sip_table_key, of, sizeof(of), 1, 3);
}

/* ---- matching ---- */

static bool nids_have(const struct lnet_fault_nids *nids, const struct lnet_nid *nid)
{
    return nids->any || nid_range_has(&nids->range, nid);
}

static bool portals_have(uint64_t portals, const struct lnet_hdr *hdr)
{
    struct lnet_put put;
    struct lnet_get get;
    uint32_t portal;

    if (portals == 0)
        return true;
    if (hdr->type == LNET_MSG_PUT) {
        lnet_body_get_put(hdr, &put);
        portal = put.portal;
    } else {
        lnet_body_get_get(hdr, &get);
        portal = get.portal;
    }
    return portal < LNET_PORTALS && portals >> portal & 1;
}

static bool matches(const struct lnet_fault *f, const struct lnet_hdr *hdr)
{
    return f->conf.types >> hdr->type & 1 && nids_have(&f->conf.src, &hdr->src_nid) &&
           nids_have(&f->conf.dst, &hdr->dest_nid) && portals_have(f->conf.portals, hdr);
}

/* ---- which of the messages that match ---- */

/* One window of `interval` seconds after another has one message, the first from a random second
 * on. A message that comes long after that second ends the window in which it comes. */
static bool interval_decides(struct lnet_fault *f)
{
    uint64_t each = f->conf.interval * SEC_US, begin = relaxed_load(&f->begin_us);
    uint64_t now = reactor_now_us(), k = relaxed_load(&f->window), next;

    if (now < begin + k * each + draw(f, CHOICE_TIME, k) % f->conf.interval * SEC_US)
        return false;
    next = max(k + 1, (now - begin) / each + 1);
    return __atomic_compare_exchange_n(&f->window, &k, next, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

static uint64_t fetch_add(uint64_t *counter)
{
    return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Counts a message that matches. Returns whether the rule applies to it. */
static bool decides(struct lnet_fault *f, const struct lnet_hdr *hdr)
{
    const struct lnet_fault_rule *conf = &f->conf;
    uint64_t n = fetch_add(&f->count);
    bool it_does;

    if (conf->drop_all)
        it_does = true;
    else if (conf->rate > 0)
        it_does = n % conf->rate == draw(f, CHOICE_POSITION, n / conf->rate) % conf->rate;
    else if (conf->random)
        it_does = draw(f, CHOICE_COIN, n) & 1;
    else
        it_does = interval_decides(f);
    if (!it_does)
        return false;
    fetch_add(&f->affected);
    fetch_add(&f->by_type[hdr->type]);
    return true;
}

static bool at_send(const struct lnet_fault *f)
{
    return f->conf.health != 0 && !f->conf.drop_all;
}

bool lnet_fault_drops(const struct lnet_faults *f, const struct lnet_rx *rx)
{
    for (unsigned i = 0; i < f->n; i++) {
        struct lnet_fault *rule = f->rule[i];

        if (rule->conf.kind == LNET_FAULT_DROP && !at_send(rule) && matches(rule, &rx->hdr) &&
            nids_have(&rule->conf.local, &rx->ni->nid) && decides(rule, &rx->hdr))
            return true;
    }
    return false;
}

bool lnet_fault_delays(struct lnet_fault *rule, const struct lnet_hdr *hdr)
{
    return rule->conf.kind == LNET_FAULT_DELAY && matches(rule, hdr) && decides(rule, hdr);
}

/* §9.1: a number of 0 to 10, where 0 is 1; if its bit is not set, the nearest that is. */
static enum lnet_health choose_status(const struct lnet_fault *f)
{
    int n = (int)(draw(f, CHOICE_STATUS, relaxed_load(&f->affected)) % LNET_HEALTH_COUNT);

    if (n == 0)
        n = 1;
    for (int away = 0; away < LNET_HEALTH_COUNT; away++) {
        if (n - away > 0 && f->conf.health >> (n - away) & 1)
            return (enum lnet_health)(n - away);
        if (n + away < LNET_HEALTH_COUNT && f->conf.health >> (n + away) & 1)
            return (enum lnet_health)(n + away);
    }
    return LNET_HEALTH_LOCAL_ERROR; /* not reached: a rule has one of these bits */
}

enum lnet_health lnet_fault_status(const struct lnet_faults *f, const struct lnet_msg *msg)
{
    for (unsigned i = 0; i < f->n; i++) {
        struct lnet_fault *rule = f->rule[i];

        if (rule->conf.kind == LNET_FAULT_DROP && at_send(rule) && matches(rule, &msg->hdr) &&
            decides(rule, &msg->hdr))
            return choose_status(rule);
    }
    return LNET_HEALTH_OK;
}

/* ---- changes (control) ---- */

static void begin(struct lnet_fault *f)
{
    struct sip_key key;

    sip_key_make(&key);
    relaxed_store(&f->seed, key.k[0]);
    relaxed_store(&f->begin_us, reactor_now_us());
    relaxed_store(&f->window, 0);
    relaxed_store(&f->count, 0);
    relaxed_store(&f->affected, 0);
    for (unsigned i = 0; i < LNET_MSG_TYPES; i++)
        relaxed_store(&f->by_type[i], 0);
}

static int refuse(struct err *err, const char *parameter, const char *text)
{
    err_set(err, -EINVAL, "%s", text);
    err_where(err, "%s", parameter);
    return -EINVAL;
}

/* Checks a rule and completes its types. */
static int check(struct lnet_fault_rule *rule, struct err *err)
{
    const unsigned requests = 1u << LNET_MSG_PUT | 1u << LNET_MSG_GET;

    if (rule->types == 0)
        rule->types = LNET_FAULT_TYPES;
    if (rule->portals)
        rule->types &= requests;
    if (rule->types == 0 || rule->types & ~LNET_FAULT_TYPES)
        return refuse(err, "portal", "only PUT and GET have a portal");
    if (rule->rate && rule->interval)
        return refuse(err, "interval", "rate and interval exclude each other");
    if (!rule->rate && !rule->interval && !rule->drop_all)
        return refuse(err, "rate", "a rule needs a rate or an interval");
    if (rule->random && !rule->interval)
        return refuse(err, "random", "random goes with an interval");
    if (rule->health & ~LNET_FAULT_HEALTH)
        return refuse(err, "health_error", "there is no such status");
    if (rule->kind == LNET_FAULT_DELAY && !rule->latency)
        return refuse(err, "latency", "a delay rule needs a latency");
    if (rule->kind == LNET_FAULT_DELAY && (rule->random || rule->drop_all || rule->health))
        return refuse(err, "type", "random, drop_all and health_error are of drop rules");
    if (rule->kind == LNET_FAULT_DROP && rule->latency)
        return refuse(err, "latency", "a drop rule has no latency");
    return 0;
}

static struct lnet_faults *snapshot_new(unsigned n)
{
    struct lnet_faults *f = calloc(1, sizeof(*f) + n * sizeof(f->rule[0]));

    if (f)
        f->n = n;
    return f;
}

static void publish(struct lnet_node *node, struct lnet_faults *f)
{
    struct lnet_faults *old = node->faults;

    __atomic_store_n(&node->faults, f, __ATOMIC_RELEASE);
    if (old)
        reactor_synchronize(node->env);
    free(old);
}

int lnet_fault_add(struct lnet_node *node, const struct lnet_fault_rule *conf, struct err *err)
{
    const struct lnet_faults *old = node->faults;
    unsigned n = old ? old->n : 0;
    struct lnet_fault *rule;
    struct lnet_faults *f;
    int rc;

    if (relaxed_load(&node->stopping))
        return err_set(err, -ESHUTDOWN, "the node stops");
    if (n == LNET_FAULT_RULES)
        return err_set(err, -ENOSPC, "there are %d rules already", LNET_FAULT_RULES);
    rule = calloc(1, sizeof(*rule) + node->nshards * sizeof(rule->held[0]));
    f = snapshot_new(n + 1);
    if (!rule || !f) {
        rc = err_set(err, -ENOMEM, "no memory for a rule");
        goto fail;
    }
    rule->conf = *conf;
    rc = check(&rule->conf, err);
    if (rc)
        goto fail;
    lnet_fault_held_init(rule, node);
    begin(rule);
    f->rule[0] = rule;
    if (n > 0)
        memcpy(&f->rule[1], old->rule, n * sizeof(f->rule[0]));
    publish(node, f);
    return 0;
fail:
    free(rule);
    free(f);
    return rc;
}

static bool same_nids(const struct lnet_fault_nids *wanted, const struct lnet_fault_nids *nids)
{
    return wanted->any || (!nids->any && strcmp(wanted->text, nids->text) == 0);
}

void lnet_fault_gone(struct lnet_fault *rule, struct lnet_node *node)
{
    struct lnet_fault **at = &node->faults_deleted;

    while (*at != rule)
        at = &(*at)->next;
    *at = rule->next;
    free(rule);
}

static void delete (struct lnet_fault *rule, struct lnet_node *node)
{
    rule->next = node->faults_deleted;
    node->faults_deleted = rule;
    lnet_fault_release(rule, node);
}

int lnet_fault_del(struct lnet_node *node, enum lnet_fault_kind kind,
                   const struct lnet_fault_nids *src, const struct lnet_fault_nids *dst,
                   struct err *err)
{
    const struct lnet_faults *old = node->faults;
    struct lnet_fault *gone[LNET_FAULT_RULES];
    struct lnet_faults *f = snapshot_new(old ? old->n : 0);
    unsigned n = 0;

    if (!f)
        return err_set(err, -ENOMEM, "no memory");
    f->n = 0;
    for (unsigned i = 0; old && i < old->n; i++) {
        struct lnet_fault *rule = old->rule[i];

        if (rule->conf.kind == kind && same_nids(src, &rule->conf.src) &&
            same_nids(dst, &rule->conf.dst))
            gone[n++] = rule;
        else
            f->rule[f->n++] = rule;
    }
    if (n == 0) {
        free(f);
        return err_set(err, -ENOENT, "there is no such rule");
    }
    if (f->n == 0) {
        free(f);
        f = NULL;
    }
    publish(node, f);
    for (unsigned i = 0; i < n; i++)
        delete (gone[i], node);
    return (int)n;
}

void lnet_fault_reset(struct lnet_node *node, enum lnet_fault_kind kind)
{
    for (unsigned i = 0; node->faults && i < node->faults->n; i++)
        if (node->faults->rule[i]->conf.kind == kind)
            begin(node->faults->rule[i]);
}

unsigned lnet_fault_rows(const struct lnet_node *node, struct lnet_fault_row *rows, unsigned max)
{
    const struct lnet_faults *f = node->faults;

    for (unsigned i = 0; f && i < f->n && i < max; i++) {
        const struct lnet_fault *rule = f->rule[i];

        rows[i] = (struct lnet_fault_row){.rule = rule->conf,
                                          .count = relaxed_load(&rule->count),
                                          .affected = relaxed_load(&rule->affected)};
        counters_copy(rows[i].by_type, rule->by_type, LNET_MSG_TYPES);
        for (unsigned k = 0; k < node->nshards; k++)
            rows[i].held += relaxed_load(&rule->held[k].n);
    }
    return f ? f->n : 0;
}

void lnet_faults_end(struct lnet_node *node)
{
    struct lnet_faults *f = node->faults;

    if (!f)
        return;
    /* A reactor may still look at the list; it stays until lnet_faults_fini(). */
    __atomic_store_n(&node->faults, NULL, __ATOMIC_RELEASE);
    node->faults_last = f;
    for (unsigned i = 0; i < f->n; i++)
        delete (f->rule[i], node);
}

void lnet_faults_fini(struct lnet_node *node)
{
    struct lnet_fault *rule;

    while ((rule = node->faults_deleted)) {
        node->faults_deleted = rule->next;
        free(rule);
    }
    for (unsigned i = 0; node->faults && i < node->faults->n; i++)
        free(node->faults->rule[i]);
    free(node->faults);
    free(node->faults_last);
}
