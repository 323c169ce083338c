/* SPDX-License-Identifier: BSD-3-Clause */
/* One's complement sums (RFC 1071), in code chosen for the CPU at run time. */
#include "lib/lnd_eth/port/port_internal.h"

#include <immintrin.h>

#include <rte_branch_prediction.h>

/* Below this the short way is as fast. */
#define WIDE_MIN 128u

/* Modulo 2^16 - 1 words of 16, 32 or 64 bits add up to the same: so wide ones are summed, in the
 * CPU's own byte order, and folded at the end. Zero and 2^16 - 1 are the same number then; a sum
 * is zero only if all bytes are. */

static inline uint16_t fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* With the carry added in again. */
static inline uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? sum + 1 : sum;
}

static inline uint64_t load(const uint8_t *p, size_t len)
{
    uint64_t w = 0; /* what is missing of a word is zeros behind it */

    memcpy(&w, p, len);
    return w;
}

static uint64_t sum_scalar(const uint8_t *p, size_t len)
{
    uint64_t a = 0, b = 0;

    for (; len >= 16; p += 16, len -= 16) {
        a = add(a, load(p, 8));
        b = add(b, load(p + 8, 8));
    }
    a = add(a, b);
    if (len >= 8) {
        a = add(a, load(p, 8));
        p += 8;
        len -= 8;
    }
    return len > 0 ? add(a, load(p, len)) : a;
}

/* Lanes of 64 bits take words of 32: up to 2^32 of them, so 2^36 bytes and more. The upper halves
 * of the registers are cleared at the end: while they are in use, code that uses only the lower
 * halves (drivers that copy) is slow, and compilers do not clear them in such a function. */

__attribute__((target("avx2"))) static uint64_t sum_avx2(const uint8_t *p, size_t len)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    uint64_t lane[4];

    for (; len >= 64; p += 64, len -= 64) {
        __m256i v = _mm256_loadu_si256((const void *)p);
        __m256i w = _mm256_loadu_si256((const void *)(p + 32));

        a = _mm256_add_epi64(a, _mm256_and_si256(v, low));
        b = _mm256_add_epi64(b, _mm256_srli_epi64(v, 32));
        c = _mm256_add_epi64(c, _mm256_and_si256(w, low));
        d = _mm256_add_epi64(d, _mm256_srli_epi64(w, 32));
    }
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
    _mm256_storeu_si256((void *)lane, a);
    _mm256_zeroupper();
    return add(add(add(lane[0], lane[1]), add(lane[2], lane[3])), sum_scalar(p, len));
}

__attribute__((target("avx512f"))) static uint64_t sum_avx512(const uint8_t *p, size_t len)
{
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    uint64_t lane[8], sum;

    for (; len >= 128; p += 128, len -= 128) {
        __m512i v = _mm512_loadu_si512((const void *)p);
        __m512i w = _mm512_loadu_si512((const void *)(p + 64));

        a = _mm512_add_epi64(a, _mm512_and_si512(v, low));
        b = _mm512_add_epi64(b, _mm512_srli_epi64(v, 32));
        c = _mm512_add_epi64(c, _mm512_and_si512(w, low));
        d = _mm512_add_epi64(d, _mm512_srli_epi64(w, 32));
    }
    a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
    _mm512_storeu_si512((void *)lane, a);
    _mm256_zeroupper();
    sum = sum_scalar(p, len);
    for (int i = 0; i < 8; i++)
        sum = add(sum, lane[i]);
    return sum;
}

/* ---- choosing ---- */

static const struct csum_variant variants[] = {
    {"avx512", sum_avx512},
    {"avx2", sum_avx2},
    {"scalar", sum_scalar},
};
static const struct csum_variant *chosen = &variants[RTE_DIM(variants) - 1];

static bool usable(const struct csum_variant *v)
{
    __builtin_cpu_init();
    if (v->sum == sum_avx512)
        return __builtin_cpu_supports("avx512f");
    if (v->sum == sum_avx2)
        return __builtin_cpu_supports("avx2");
    return true;
}

const struct csum_variant *csum_variant_at(unsigned index)
{
    for (unsigned i = 0; i < RTE_DIM(variants); i++)
        if (usable(&variants[i]) && index-- == 0)
            return &variants[i];
    return NULL;
}

/* Before main(), so that no sum has to ask. */
__attribute__((constructor)) static void choose(void)
{
    chosen = csum_variant_at(0);
}

const char *csum_variant(void)
{
    return chosen->name;
}

/* ---- sums ---- */

uint16_t csum_partial(const void *data, size_t len, uint32_t sum)
{
    return fold(add(len < WIDE_MIN ? sum_scalar(data, len) : chosen->sum(data, len), sum));
}

/* Behind an odd number of bytes each byte counts for the other half of its word. */
uint16_t csum_join(uint16_t first, uint16_t second, bool odd)
{
    return fold((uint64_t)first + (odd ? rte_bswap16(second) : second));
}

/* The sum of the second part when the first is taken away. */
static uint16_t csum_without(uint16_t both, uint16_t first, bool odd)
{
    uint16_t sum = fold((uint64_t)both + (uint16_t)~first);

    return odd ? rte_bswap16(sum) : sum;
}

void pkt_sum_trim(struct rte_mbuf *m, uint16_t off, uint32_t len)
{
    struct pkt *p = pkt_of(m);
    uint32_t front, rear;

    if (p->sum_len == 0 || (off == p->sum_at && len == p->sum_len))
        return;
    front = (uint32_t)off - p->sum_at;
    rear = p->sum_len - len - front;
    if (off < p->sum_at || (uint32_t)off + len > p->sum_at + p->sum_len || front + rear > len / 2) {
        p->sum_len = 0; /* of others, or as well summed anew */
        return;
    }
    p->sum =
        csum_without(p->sum, csum_partial((uint8_t *)m->buf_addr + p->sum_at, front, 0), front & 1);
    /* The first part remains, independent of the rest. */
    p->sum = csum_without(
        p->sum, csum_join(0, csum_partial((uint8_t *)m->buf_addr + off + len, rear, 0), len & 1),
        false);
    p->sum_at = off;
    p->sum_len = len;
}

uint16_t csum_chain(const struct rte_mbuf *m, uint32_t off, uint32_t len, uint32_t sum)
{
    uint64_t all = sum;
    bool odd = false;

    for (; m && len > 0; m = m->next) {
        uint32_t part;
        uint16_t s;

        if (off >= m->data_len) {
            off -= m->data_len;
            continue;
        }
        part = min(m->data_len - off, len);
        s = csum_partial(rte_pktmbuf_mtod_offset(m, const void *, off), part, 0);
        all += odd ? rte_bswap16(s) : s;
        odd ^= part & 1;
        len -= part;
        off = 0;
    }
    return fold(all);
}
