/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the tests of the wire formats: bytes written as in the specification, and a
 * reproducible source of random values. */
#ifndef MILLRACE_TEST_WIRE_BYTES_H
#define MILLRACE_TEST_WIRE_BYTES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hexadecimal digits to bytes, blanks passed over. Stops the test program on anything else. */
static inline size_t unhex(const char *hex, uint8_t *out, size_t cap)
{
    size_t n = 0;
    char pair[3] = "";

    while (*hex != '\0') {
        char *end;

        if (*hex == ' ' || *hex == '\n') {
            hex++;
            continue;
        }
        memcpy(pair, hex, 2);
        if (n == cap || pair[1] == '\0')
            abort();
        out[n++] = (uint8_t)strtoul(pair, &end, 16);
        if (end != pair + 2)
            abort();
        hex += 2;
    }
    return n;
}

static inline uint64_t rnd64(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline void rnd_fill(uint64_t *state, void *buf, size_t len)
{
    uint8_t *p = buf;

    while (len-- > 0)
        *p++ = (uint8_t)rnd64(state);
}

#endif
