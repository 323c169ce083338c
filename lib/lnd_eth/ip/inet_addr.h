/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses of the IP layer, for those that know no more of it. They are 16 bytes; IPv4 as
 * ::ffff:a.b.c.d.
 */
#ifndef MILLRACE_INET_ADDR_H
#define MILLRACE_INET_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct inet_addr {
    uint8_t b[16];
};

static inline bool inet_is4(const struct inet_addr *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return memcmp(a->b, mapped, 12) == 0;
}

static inline bool inet_same(const struct inet_addr *a, const struct inet_addr *b)
{
    return memcmp(a->b, b->b, 16) == 0;
}

struct inet_prefix {
    struct inet_addr addr;
    uint8_t bits; /* of the family: 0..32 or 0..128 */
};

struct inet_route {
    struct inet_prefix to; /* bits 0: default */
    struct inet_addr via;
};

/* A watcher of an interface's link; inet_if_watch(). */
struct inet_watch {
    void (*changed)(struct inet_watch *w, bool up);
    struct inet_watch *next;
};

#endif
