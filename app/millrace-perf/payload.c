/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/payload.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#define PATTERN_SEED      0x4d696c6c72616365ull /* "Millrace" */
#define RUN_REPORT_MAGIC  0x3152504d2d4c4e65ull
#define RUN_REPORT_FIELDS 8
#define SUM_LANES         4
#define SUM_STRIPE        (SUM_LANES * sizeof(uint64_t))
#define SUM_PRIME         0x9e3779b97f4a7c15ull

_Static_assert(sizeof(((struct payload_summing *)0)->rest) == SUM_STRIPE, "one stripe");
_Static_assert(sizeof(((struct payload_summing *)0)->lane) == SUM_STRIPE, "one word a lane");

_Static_assert(RUN_REPORT_SIZE == (RUN_REPORT_FIELDS + 1) * sizeof(uint64_t), "magic and fields");
_Static_assert(sizeof(struct run_report) == RUN_REPORT_FIELDS * sizeof(uint64_t), "only fields");

uint64_t payload_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1dull;
}

uint8_t *pattern_make(void)
{
    uint8_t *pattern = aligned_alloc(64, PATTERN_SIZE);
    uint64_t state = PATTERN_SEED;

    if (!pattern)
        return NULL;
    for (size_t i = 0; i < PATTERN_SIZE; i += sizeof(uint64_t)) {
        uint64_t word = htole64(payload_random(&state));
        memcpy(pattern + i, &word, sizeof(word));
    }
    return pattern;
}

uint32_t pattern_source_offset(unsigned source)
{
    /* An odd multiple of 8, so that windows do not lie alike in their pages. */
    return (source % PATTERN_SOURCES) * (128u * 1024 + 8);
}

static uint64_t load_word(const uint8_t *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof(word));
    return le64toh(word);
}

/* A bijection of the lane for each word, and of the word for each lane: that is what makes a change
 * in one word certain to be seen. */
static uint64_t mix(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * SUM_PRIME;
    return lane ^ (lane >> 29);
}

void payload_sum_begin(struct payload_summing *s)
{
    *s = (struct payload_summing){.lane = {1, 2, 3, 4}};
}

static const uint8_t *stripes(uint64_t lanes[SUM_LANES], const uint8_t *p, size_t n)
{
    uint64_t lane[SUM_LANES];

    memcpy(lane, lanes, sizeof(lane));
    for (; n > 0; n--, p += SUM_STRIPE)
        for (unsigned i = 0; i < SUM_LANES; i++)
            lane[i] = mix(lane[i], load_word(p + sizeof(uint64_t) * i));
    memcpy(lanes, lane, sizeof(lane));
    return p;
}

void payload_sum_add(struct payload_summing *s, const void *data, size_t len)
{
    size_t have = s->len % SUM_STRIPE, part = SUM_STRIPE - have;
    const uint8_t *p = data;

    if (len == 0)
        return; /* data may be NULL, which memcpy() must not be given */
    s->len += len;
    if (have > 0) {
        part = part < len ? part : len;
        memcpy(s->rest + have, p, part);
        p += part;
        len -= part;
        if (have + part < SUM_STRIPE)
            return;
        (void)stripes(s->lane, s->rest, 1);
    }
    p = stripes(s->lane, p, len / SUM_STRIPE);
    memcpy(s->rest, p, len % SUM_STRIPE);
}

uint64_t payload_sum_end(struct payload_summing *s)
{
    size_t have = s->len % SUM_STRIPE;
    uint64_t sum = s->len;

    if (have > 0) {
        memset(s->rest + have, 0, SUM_STRIPE - have);
        (void)stripes(s->lane, s->rest, 1);
    }
    for (unsigned i = 0; i < SUM_LANES; i++)
        sum = mix(sum, s->lane[i]);
    return sum;
}

uint64_t payload_sum(const void *data, size_t len)
{
    struct payload_summing s;

    payload_sum_begin(&s);
    payload_sum_add(&s, data, len);
    return payload_sum_end(&s);
}

uint64_t match_pack(const struct match *m)
{
    return (uint64_t)m->kind << 56 | (uint64_t)(m->source & 0xf) << 52 |
           (uint64_t)(m->run & MATCH_RUN_MASK) << 32 | m->seq;
}

struct match match_unpack(uint64_t bits)
{
    return (struct match){
        .kind = (enum match_kind)(bits >> 56),
        .source = bits >> 52 & 0xf,
        .run = bits >> 32 & MATCH_RUN_MASK,
        .seq = (uint32_t)bits,
    };
}

uint64_t match_ignore(enum match_kind kind)
{
    if (kind == MATCH_PUT)
        return 0x00ffffffffffffffull;
    return kind == MATCH_GET ? 0x000fffffffffffffull : 0;
}

void run_report_encode(const struct run_report *r, uint8_t out[RUN_REPORT_SIZE])
{
    uint64_t word[RUN_REPORT_FIELDS + 1] = {RUN_REPORT_MAGIC};

    memcpy(word + 1, r, sizeof(*r));
    for (unsigned i = 0; i <= RUN_REPORT_FIELDS; i++)
        word[i] = htole64(word[i]);
    memcpy(out, word, RUN_REPORT_SIZE);
}

int run_report_decode(const void *data, size_t len, struct run_report *out)
{
    uint64_t word[RUN_REPORT_FIELDS + 1];

    if (len != RUN_REPORT_SIZE)
        return -EINVAL;
    for (unsigned i = 0; i <= RUN_REPORT_FIELDS; i++)
        word[i] = load_word((const uint8_t *)data + i * sizeof(word[0]));
    if (word[0] != RUN_REPORT_MAGIC)
        return -EINVAL;
    memcpy(out, word + 1, sizeof(*out));
    return 0;
}
