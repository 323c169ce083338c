/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of fault injection at ports. Reactors see an immutable list, which is published anew
 * with each change; a rule itself stays, with what it has counted. */
#include "lib/base/err.h"
#include "test/faults/tamper_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_PACKETS 1000 /* default of a rate's */

/* ---- checking ---- */

static int refuse(struct err *err, const char *why)
{
    return err_set(err, -EINVAL, "%s", why);
}

static int check(const struct tamper_conf *c, struct err *err)
{
    const uint32_t chances[] = {c->chance,    c->loss,    c->burst_enter, c->burst_leave,
                                c->duplicate, c->corrupt, c->reorder};

    for (unsigned i = 0; i < RTE_DIM(chances); i++)
        if (chances[i] > TAMPER_ALL)
            return refuse(err, "a chance is above 100 %");
    if (c->delay_us > TAMPER_DELAY_MAX || c->jitter_us > TAMPER_DELAY_MAX ||
        c->reorder_us > TAMPER_DELAY_MAX)
        return refuse(err, "a delay is above 60 s");
    if ((c->burst_enter > 0) != (c->burst_leave > 0))
        return refuse(err, "bursts of loss need both chances, to enter and to leave");
    if ((c->reorder > 0) != (c->reorder_us > 0))
        return refuse(err, "reordering needs both a chance and a time");
    if (c->rate > 0 && (c->rate < 8000 || c->rate > UINT64_C(1000000000000)))
        return refuse(err, "a rate is 8 kbit/s to 1 Tbit/s");
    if (c->queue_packets > TAMPER_QUEUE_MAX)
        return refuse(err, "a queue has 4096 packets at most");
    if ((c->queue_packets > 0 || c->queue_bytes > 0) && c->rate == 0)
        return refuse(err, "a queue needs a rate");
    if (!(c->loss || c->burst_enter || c->duplicate || c->corrupt || c->delay_us || c->jitter_us ||
          c->reorder || c->rate || c->cut))
        return refuse(err, "the rule does nothing to the frames");
    return 0;
}

/* ---- making ---- */

static uint64_t rule_lost(const struct tamper_rule *rule)
{
    uint64_t lost = 0;

    for (unsigned i = 0; i < rule->queues; i++)
        lost += relaxed_load(&rule->state[i].counts.lost) +
                relaxed_load(&rule->state[i].counts.queue_dropped);
    return lost;
}

static void rule_free(struct tamper_rule *rule)
{
    if (rule && rule->state)
        for (unsigned i = 0; i < rule->queues; i++)
            free(rule->state[i].queue);
    if (rule)
        free(rule->state);
    free(rule);
}

/* Seeds of queues and directions shall not lie next to each other. */
static uint64_t spread(uint64_t seed, bool out, unsigned queue)
{
    uint64_t x = seed + UINT64_C(0x9e3779b97f4a7c15) * (2 * queue + out + 1u);

    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 32);
}

static struct tamper_rule *rule_new(const struct tamper_conf *conf, bool out, unsigned queues)
{
    struct tamper_rule *rule = calloc(1, sizeof(*rule));
    unsigned i;

    if (!rule)
        return NULL;
    rule->conf = *conf;
    if (conf->rate && conf->queue_packets == 0)
        rule->conf.queue_packets = QUEUE_PACKETS;
    rule->queues = queues;
    rule->state = aligned_alloc(RTE_CACHE_LINE_SIZE, queues * sizeof(rule->state[0]));
    if (!rule->state)
        goto fail;
    memset(rule->state, 0, queues * sizeof(rule->state[0]));
    for (i = 0; i < queues; i++) {
        struct tamper_state *st = &rule->state[i];

        st->random = spread(conf->seed, out, i);
        st->queue = conf->rate ? calloc(rule->conf.queue_packets, sizeof(st->queue[0])) : NULL;
        if (conf->rate && !st->queue)
            goto fail;
    }
    return rule;
fail:
    rule_free(rule);
    return NULL;
}

static void queues_free(struct port_tamper *t, int out)
{
    unsigned i;

    for (i = 0; t->queue[out] && i < t->queues[out]; i++) {
        struct tamper_queue *q = &t->queue[out][i];

        for (unsigned k = 0; k < q->n; k++)
            rte_pktmbuf_free(q->heap[k].m);
        rte_pktmbuf_free_bulk(q->ready, q->nready);
        free(q->heap);
    }
    free(t->queue[out]);
}

static bool queues_make(struct port_tamper *t, int out, unsigned n)
{
    t->rules[out] = calloc(1, sizeof(*t->rules[out]));
    t->queue[out] = aligned_alloc(RTE_CACHE_LINE_SIZE, n * sizeof(t->queue[out][0]));
    if (!t->rules[out] || !t->queue[out])
        return false;
    t->queues[out] = n;
    memset(t->queue[out], 0, n * sizeof(t->queue[out][0]));
    for (unsigned i = 0; i < n; i++) {
        t->queue[out][i].heap = calloc(TAMPER_HELD_MAX, sizeof(struct tamper_held));
        if (!t->queue[out][i].heap)
            return false;
    }
    return true;
}

static void tamper_free(struct port_tamper *t)
{
    for (int out = 0; out < 2; out++) {
        for (unsigned i = 0; t->rules[out] && i < t->rules[out]->n; i++)
            rule_free(t->rules[out]->rule[i]);
        free(t->rules[out]);
        queues_free(t, out);
    }
    free(t);
}

/* The port's stage, made when it is first wanted. */
static struct port_tamper *tamper_make(struct port *port)
{
    struct port_tamper *t = tamper_of(port);

    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->base = (struct port_faults){port_tamper_rx, port_tamper_tx, port_tamper_due,
                                   port_tamper_lost, port_tamper_end};
    t->port = port;
    if (!queues_make(t, 0, port->rx_queues) || !queues_make(t, 1, port->tx_queues)) {
        tamper_free(t);
        return NULL;
    }
    __atomic_store_n(&port->faults, &t->base, __ATOMIC_RELEASE);
    return t;
}

void port_tamper_end(struct port *port)
{
    struct port_tamper *t = tamper_of(port);

    port->faults = NULL;
    if (t)
        tamper_free(t);
}

/* ---- changing ---- */

/* Puts a list in place of the one there is. After this nobody looks at that any more; rules that it
 * had alone are freed with it. */
static void publish(struct port_tamper *t, bool out, struct tamper_rules *rules)
{
    struct tamper_rules *old = t->rules[out];
    struct reactor *self = reactor_self();
    unsigned k;

    rules->cuts = false;
    for (unsigned i = 0; i < rules->n; i++)
        rules->cuts |= rules->rule[i]->conf.cut || (out && rules->rule[i]->conf.corrupt);
    __atomic_store_n(&t->rules[out], rules, __ATOMIC_RELEASE);
    if (self)
        reactor_synchronize(reactor_env_of(self));
    for (unsigned i = 0; i < old->n; i++) {
        for (k = 0; k < rules->n && rules->rule[k] != old->rule[i]; k++)
            ;
        if (k == rules->n) {
            t->lost_before += rule_lost(old->rule[i]);
            rule_free(old->rule[i]);
        }
    }
    free(old);
}

int port_tamper_set(struct port *port, bool out, const struct tamper_conf *conf, bool add,
                    unsigned *id, struct err *err)
{
    struct port_tamper *t;
    struct tamper_rules *rules = NULL;
    struct tamper_rule *rule = NULL;
    int rc = check(conf, err);

    if (rc != 0)
        return rc;
    t = tamper_make(port);
    if (t && add && t->rules[out]->n == TAMPER_RULES_MAX) {
        return err_set(err, -ENOSPC, "the port has %d rules in this direction", TAMPER_RULES_MAX);
    }
    if (t) {
        rules = calloc(1, sizeof(*rules));
        rule = rule_new(conf, out, t->queues[out]);
    }
    if (!rules || !rule) {
        free(rules);
        rule_free(rule);
        return err_set(err, -ENOMEM, "out of memory");
    }
    if (add)
        *rules = *t->rules[out];
    *id = rule->id = ++t->last_id;
    rules->rule[rules->n++] = rule;
    publish(t, out, rules);
    return 0;
}

/* Without the rule at index i. */
static int remove_rule(struct port_tamper *t, bool out, unsigned i)
{
    struct tamper_rules *rules = malloc(sizeof(*rules));

    if (!rules)
        return -ENOMEM;
    *rules = *t->rules[out];
    rules->n--;
    memmove(&rules->rule[i], &rules->rule[i + 1], (rules->n - i) * sizeof(rules->rule[0]));
    publish(t, out, rules);
    return 0;
}

int port_tamper_del(struct port *port, unsigned id)
{
    struct port_tamper *t = tamper_of(port);

    for (int out = 0; t && out < 2; out++)
        for (unsigned i = 0; i < t->rules[out]->n; i++)
            if (t->rules[out]->rule[i]->id == id)
                return remove_rule(t, out, i);
    return -ENOENT;
}

unsigned port_tamper_clear(struct port *port, bool out)
{
    struct port_tamper *t = tamper_of(port);
    struct tamper_rules *none = t && t->rules[out]->n > 0 ? calloc(1, sizeof(*none)) : NULL;
    unsigned n = none ? t->rules[out]->n : 0;

    if (none)
        publish(t, out, none);
    return n;
}

/* ---- looking ---- */

static void add_counts(struct tamper_counts *sum, const struct tamper_counts *c)
{
    counters_add_all(sum, c);
}

unsigned port_tamper_rows(const struct port *port, struct tamper_row *rows, unsigned max)
{
    const struct port_tamper *t = tamper_of(port);
    unsigned n = 0, i;
    int out;

    for (out = 0; t && out < 2; out++) {
        for (i = 0; i < t->rules[out]->n && n < max; i++) {
            const struct tamper_rule *rule = t->rules[out]->rule[i];

            rows[n] = (struct tamper_row){.id = rule->id, .out = out, .conf = rule->conf};
            for (unsigned q = 0; q < rule->queues; q++)
                add_counts(&rows[n].counts, &rule->state[q].counts);
            n++;
        }
    }
    return n;
}

uint64_t port_tamper_lost(const struct port *port)
{
    const struct port_tamper *t = tamper_of(port);
    struct tamper_queues q;
    uint64_t lost = t ? t->lost_before : 0;

    for (int out = 0; t && out < 2; out++) {
        for (unsigned i = 0; i < t->rules[out]->n; i++)
            lost += rule_lost(t->rules[out]->rule[i]);
        port_tamper_queues(port, out, &q);
        lost += q.no_room;
    }
    return lost;
}

void port_tamper_queues(const struct port *port, bool out, struct tamper_queues *sum)
{
    const struct port_tamper *t = tamper_of(port);
    unsigned i;

    *sum = (struct tamper_queues){0};
    for (i = 0; t && i < t->queues[out]; i++) {
        const struct tamper_queues *c = &t->queue[out][i].counts;

        sum->held += relaxed_load(&c->held);
        sum->no_room += relaxed_load(&c->no_room);
    }
}
