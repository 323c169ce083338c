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
#include <sys/queue.h>

/* Read numbers of a packet, in network byte order and at any address. */
static inline uint16_t inet_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t inet_get32(const uint8_t *p)
{
    return (uint32_t)inet_get16(p) << 16 | inet_get16(p + 2);
}

struct inet_addr {
    uint8_t b[16];
};

static inline bool inet_is4(const struct inet_addr *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return memcmp(a->b, mapped, 12) == 0;
}

static inline void inet_addr4(struct inet_addr *a, const void *v4)
{
    *a = (struct inet_addr){{[10] = 0xff, [11] = 0xff}};
    memcpy(a->b + 12, v4, 4);
}

static inline bool inet_is_link_local(const struct inet_addr *a)
{
    return a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80;
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
    LIST_ENTRY(inet_watch) link;
};

#endif
