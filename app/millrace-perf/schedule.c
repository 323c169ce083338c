/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/schedule.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- seeds ---- */

/* Spreads neighbouring seeds over all states (the finaliser of MurmurHash3's 64-bit variant). */
uint64_t seed_state(uint64_t seed, enum seed_of of)
{
    uint64_t x = seed + ((uint64_t)of + 1) * 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    x ^= x >> 33;
    return x != 0 ? x : 1;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
    return payload_random(state) % n; /* n is far below 2^64: the lack of uniformity is nothing */
}

/* ---- numbers ---- */

int number_parse(const char **s, uint64_t max, uint64_t *out)
{
    char *end;
    unsigned long long v;
    unsigned shift = 0;

    if (**s < '0' || **s > '9')
        return -EINVAL;
    errno = 0;
    v = strtoull(*s, &end, 10);
    if (*end == 'k' || *end == 'K')
        shift = 10;
    else if (*end == 'm' || *end == 'M')
        shift = 20;
    else if (*end == 'g' || *end == 'G')
        shift = 30;
    if (errno != 0 || v > max >> shift)
        return -ERANGE;
    *out = (uint64_t)v << shift;
    *s = end + (shift != 0);
    return 0;
}

/* ---- sizes ---- */

/* "mix": nothing, one byte, small, odd and large, each as likely as the others. */
#define MIX "0,1,2-511,512-4096,4097-65535,65536-1048575,1M"
_Static_assert(LNET_MAX_PAYLOAD == 1u << 20, "the largest size of MIX");

static int class_parse(const char **s, struct size_class *out)
{
    uint64_t lo, hi, weight = 1;

    if (number_parse(s, LNET_MAX_PAYLOAD, &lo) != 0)
        return -EINVAL;
    hi = lo;
    if (**s == '-') {
        ++*s;
        if (number_parse(s, LNET_MAX_PAYLOAD, &hi) != 0)
            return -EINVAL;
    }
    if (**s == ':') {
        ++*s;
        if (number_parse(s, 1000000, &weight) != 0)
            return -EINVAL;
    }
    if (hi < lo)
        return -EINVAL;
    *out = (struct size_class){(uint32_t)lo, (uint32_t)hi, (uint32_t)weight};
    return 0;
}

int sizes_parse(const char *text, struct sizes *out)
{
    const char *s = strcmp(text, "mix") == 0 ? MIX : text;
    struct sizes sizes = {.text = text};

    do {
        struct size_class *c = &sizes.class[sizes.n];
        if (sizes.n == SIZE_CLASSES_MAX || class_parse(&s, c) != 0)
            return -EINVAL;
        sizes.weights += c->weight;
        sizes.n += c->weight > 0; /* else it is never drawn */
    } while (*s == ',' && s++);
    if (*s != '\0' || sizes.n == 0)
        return -EINVAL;
    *out = sizes;
    return 0;
}

uint32_t sizes_next(const struct sizes *s, uint64_t *random)
{
    const struct size_class *c = s->class;

    if (s->n > 1) {
        uint64_t at = random_below(random, s->weights);
        while (at >= c->weight)
            at -= c++->weight;
    }
    if (c->lo == c->hi)
        return c->lo;
    return c->lo + (uint32_t)random_below(random, (uint64_t)c->hi - c->lo + 1);
}

uint32_t sizes_max(const struct sizes *s)
{
    uint32_t max = 0;

    for (unsigned i = 0; i < s->n; i++)
        max = s->class[i].hi > max ? s->class[i].hi : max;
    return max;
}

/* ---- kinds ---- */

int kinds_parse(const char *text, struct kinds *out)
{
    static const char *const names[OP_KINDS] = {"put:", "get:"};
    struct kinds kinds = {.text = text};
    bool seen[OP_KINDS] = {false};
    const char *s = text;

    do {
        uint64_t weight;
        int op = 0;
        while (op < OP_KINDS && strncmp(s, names[op], 4) != 0)
            op++;
        if (op == OP_KINDS || seen[op])
            return -EINVAL;
        s += 4;
        if (number_parse(&s, 1000000, &weight) != 0)
            return -EINVAL;
        seen[op] = true;
        kinds.weight[op] = (uint32_t)weight;
    } while (*s == ',' && s++);
    if (*s != '\0' || kinds.weight[OP_PUT] + kinds.weight[OP_GET] == 0)
        return -EINVAL;
    *out = kinds;
    return 0;
}

enum perf_op kinds_next(const struct kinds *k, uint64_t index, uint64_t *random)
{
    if (k->in_turn)
        return index & 1 ? OP_GET : OP_PUT;
    if (k->weight[OP_GET] == 0)
        return OP_PUT;
    if (k->weight[OP_PUT] == 0)
        return OP_GET;
    return random_below(random, (uint64_t)k->weight[OP_PUT] + k->weight[OP_GET]) < k->weight[OP_PUT]
               ? OP_PUT
               : OP_GET;
}

/* ---- arrivals ---- */

void arrivals_init(struct arrivals *a, enum arrivals_kind kind, double rate, uint64_t seed)
{
    *a = (struct arrivals){.kind = kind, .rate = rate, .random = seed_state(seed, SEED_ARRIVALS)};
}

/* Uniform in (0, 1]. */
static double unit(uint64_t *random)
{
    return ((double)(payload_random(random) >> 11) + 1) / (double)(1ull << 53);
}

uint64_t arrivals_next(struct arrivals *a)
{
    if (a->kind == ARRIVALS_FIXED) /* from the number: no error adds up */
        a->at_ns = (double)a->n * (1e9 / a->rate);
    else
        a->at_ns += -log(unit(&a->random)) * (1e9 / a->rate);
    a->n++;
    return (uint64_t)a->at_ns;
}

/* ---- order ---- */

void order_init(struct order *o, bool random, uint32_t sources, uint32_t targets, uint64_t seed)
{
    *o = (struct order){random, sources, targets, 0, seed_state(seed, SEED_ORDER)};
}

/* In turn: neighbouring messages have different sources and different targets, and after sources *
 * targets of them each pair has had one. */
void order_next(struct order *o, uint32_t *from, uint32_t *to)
{
    if (o->random) {
        *from = (uint32_t)random_below(&o->state, o->sources);
        *to = (uint32_t)random_below(&o->state, o->targets);
        return;
    }
    *from = (uint32_t)(o->n % o->sources);
    *to = (uint32_t)((o->n % o->sources + o->n / o->sources) % o->targets);
    o->n++;
}

/* ---- NIDs in a row ---- */

int range_parse(const char *text, struct perf_range *out)
{
    char nid[LNET_NIDSTR_SIZE];
    const char *star = strchr(text, '*');
    size_t len = star ? (size_t)(star - text) : strlen(text);
    struct perf_range range = {.count = 1};
    unsigned last;

    if (len >= sizeof(nid))
        return -EINVAL;
    snprintf(nid, sizeof(nid), "%.*s", (int)len, text);
    if (nid_parse(nid, &range.first) != 0)
        return -EINVAL;
    if (star) {
        uint64_t count;
        star++;
        if (number_parse(&star, 1u << 24, &count) != 0 || *star != '\0' || count == 0)
            return -EINVAL;
        range.count = (uint32_t)count;
    }
    last = range.first.size / 4;
    if (last > 3 || be32toh(range.first.addr_be[last]) > UINT32_MAX - (range.count - 1))
        return -EINVAL;
    *out = range;
    return 0;
}

void range_at(const struct perf_range *r, uint32_t index, struct lnet_nid *out)
{
    unsigned last = r->first.size / 4;

    *out = r->first;
    out->addr_be[last] = htobe32(be32toh(r->first.addr_be[last]) + index);
}
