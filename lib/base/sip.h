/* SPDX-License-Identifier: BSD-3-Clause
 *
 * SipHash (Aumasson and Bernstein, 2012): a keyed hash. Without the key its values cannot be
 * predicted. Every table whose keys come from the wire uses it, so that no sender can choose keys
 * that meet in one bucket. Any thread. */
#ifndef MILLRACE_SIP_H
#define MILLRACE_SIP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sip_key {
    uint64_t k[2];
};

/* The key of tables; random, made when the process starts. */
extern struct sip_key sip_table_key;

/* A random key. Ends the process if the kernel gives none. */
void sip_key_make(struct sip_key *key);

static inline uint64_t sip_rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static inline void sip_rounds(uint64_t v[4], int n)
{
    for (; n > 0; n--) {
        v[0] += v[1];
        v[1] = sip_rotl(v[1], 13) ^ v[0];
        v[0] = sip_rotl(v[0], 32);
        v[2] += v[3];
        v[3] = sip_rotl(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = sip_rotl(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = sip_rotl(v[1], 17) ^ v[2];
        v[2] = sip_rotl(v[2], 32);
    }
}

/* SipHash-c-d of len bytes. */
static inline uint64_t sip_hash_cd(const struct sip_key *key, const void *data, size_t len, int c,
                                   int d)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t last = (uint64_t)len << 56, w;
    uint64_t v[4] = {
        key->k[0] ^ UINT64_C(0x736f6d6570736575), key->k[1] ^ UINT64_C(0x646f72616e646f6d),
        key->k[0] ^ UINT64_C(0x6c7967656e657261), key->k[1] ^ UINT64_C(0x7465646279746573)};

    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&w, p, 8);
        v[3] ^= w;
        sip_rounds(v, c);
        v[0] ^= w;
    }
    for (size_t i = 0; i < len; i++)
        last |= (uint64_t)p[i] << (8 * i);
    v[3] ^= last;
    sip_rounds(v, c);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_rounds(v, d);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* SipHash-2-4: for what goes out on the wire, as sequence numbers. */
static inline uint64_t sip_hash(const struct sip_key *key, const void *data, size_t len)
{
    return sip_hash_cd(key, data, len, 2, 4);
}

/* SipHash-1-3 with sip_table_key: for tables, whose values stay inside. */
static inline uint32_t sip_bucket(const void *data, size_t len)
{
    return (uint32_t)sip_hash_cd(&sip_table_key, data, len, 1, 3);
}

#endif
