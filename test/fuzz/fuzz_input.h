/* SPDX-License-Identifier: BSD-3-Clause */
/* An input that is a script of steps. */
#ifndef MILLRACE_TEST_FUZZ_INPUT_H
#define MILLRACE_TEST_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of an input, taken from the front; 0 behind the end. */
struct input {
    const uint8_t *p;
    size_t left;
};

static inline uint32_t take_bytes(struct input *in, unsigned n)
{
    uint32_t v = 0;

    while (n-- > 0) {
        v <<= 8;
        if (in->left > 0) {
            v |= *in->p++;
            in->left--;
        }
    }
    return v;
}

#endif
