/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/guard.h"

#include <string.h>

/* Bytes of the longest ping info that a kernel node sends: header, loopback, and as many large NIDs
 * and metadata buffers as lnet_interfaces_max of the master branch allows (§3.2, §3.3, §11). The
 * metadata has its full length with one NI of EFA. */
#define NIDS_MOST      4096u
#define PING_INFO_MOST (LNET_PING_HDR_SIZE + 16u + 24u * NIDS_MOST + 4u + 40u * NIDS_MOST)

static const enum lnet_drop drops[] = {
#define GUARD(symbol, key, what) [LNET_GUARD_##symbol] = LNET_DROP_GUARD_##symbol,
#include "lib/lnet/wire/guard.def"
#undef GUARD
};

static unsigned get_rules(const struct lnet_hdr *hdr)
{
    struct lnet_get get;

    lnet_body_get_get(hdr, &get);
    return (unsigned)(get.portal == LNET_RESERVED_PORTAL && get.src_offset != 0)
               << LNET_GUARD_PING_OFFSET |
           (unsigned)(get.sink_length > LNET_MAX_PAYLOAD) << LNET_GUARD_GET_SIZE;
}

static unsigned put_rules(const struct lnet_hdr *hdr)
{
    struct lnet_put put;

    lnet_body_get_put(hdr, &put);
    if (put.portal != LNET_RESERVED_PORTAL)
        return 0;
    return (unsigned)(put.offset != 0) << LNET_GUARD_PUSH_OFFSET |
           (unsigned)(hdr->payload_len > PING_INFO_MOST) << LNET_GUARD_PUSH_SIZE;
}

/* §2.3: the bytes of the union that each type has fields for; the header is cleared before. */
static bool has_unused(const struct lnet_hdr *hdr)
{
    static const uint8_t zero[LNET_BODY_SIZE];
    static const uint8_t used[] = {[LNET_MSG_ACK] = 28,
                                   [LNET_MSG_PUT] = LNET_BODY_SIZE,
                                   [LNET_MSG_GET] = 36,
                                   [LNET_MSG_REPLY] = 16};

    return memcmp(hdr->body + used[hdr->type], zero, LNET_BODY_SIZE - used[hdr->type]) != 0;
}

enum lnet_drop lnet_guard(const struct lnet_hdr *hdr, unsigned rules)
{
    unsigned broken = hdr->type == LNET_MSG_GET   ? get_rules(hdr)
                      : hdr->type == LNET_MSG_PUT ? put_rules(hdr)
                                                  : 0;

    broken |= (unsigned)has_unused(hdr) << LNET_GUARD_UNUSED_BYTES;
    broken &= rules;
    return broken == 0 ? LNET_DROP_NONE : drops[__builtin_ctz(broken)];
}
