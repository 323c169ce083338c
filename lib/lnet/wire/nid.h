/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Network identifiers. docs/protocol/lnet-core.md §1.
 *
 * struct lnet_nid is the 20-byte wire form (§1.2). It is always in network order, in memory too.
 * Unused address words are zero, so memcmp compares NIDs. The older 64-bit
 * form (nid4, §1.1) exists only on the wire. All functions are pure and may be called anywhere.
 */
#ifndef MILLRACE_NID_H
#define MILLRACE_NID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/sip.h"

enum lnet_lnd_type { /* §1.3 */
    LNET_LND_SOCK = 2,
    LNET_LND_O2IB = 5,
    LNET_LND_LO = 9,
    LNET_LND_GNI = 13,
    LNET_LND_GNIIP = 14,
    LNET_LND_PTL4 = 15,
    LNET_LND_KFI = 16,
    LNET_LND_TOFU = 17,
    LNET_LND_EFA = 18,
    LNET_LND_BXI3 = 19,
    LNET_LND_ANY = 0xff,
};

struct lnet_nid {
    uint8_t size; /* address bytes - 4 */
    uint8_t type; /* enum lnet_lnd_type; 0xff = any, all else ignored */
    uint16_t num_be;
    uint32_t addr_be[4];
};

_Static_assert(sizeof(struct lnet_nid) == 20, "struct lnet_nid is a wire structure");

typedef uint32_t lnet_net_t; /* type << 16 | number */

#define LNET_NET(type, num) ((lnet_net_t)(type) << 16 | (lnet_net_t)(num))
#define LNET_NET_ANY        UINT32_MAX
#define LNET_NID4_ANY       UINT64_MAX
#define LNET_NID4_LO        0x0009000000000000ull
#define LNET_NID_SIZE_MAX   12 /* of lnet_nid.size: an address of 16 bytes */
#define LNET_NIDSTR_SIZE    64
#define LNET_NETSTR_SIZE    24

extern const struct lnet_nid LNET_NID_ANY;
extern const struct lnet_nid LNET_NID_LO; /* 0@lo */

static inline bool nid_same(const struct lnet_nid *a, const struct lnet_nid *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static inline bool nid_is_any(const struct lnet_nid *n)
{
    return n->type == LNET_LND_ANY;
}

/* A 4-byte address: fits the 64-bit form. */
static inline bool nid_is_nid4(const struct lnet_nid *n)
{
    return n->size == 0;
}

static inline lnet_net_t nid_net(const struct lnet_nid *n)
{
    return nid_is_any(n) ? LNET_NET_ANY : LNET_NET(n->type, __builtin_bswap16(n->num_be));
}

static inline bool nid_is_lo(const struct lnet_nid *n)
{
    return n->type == LNET_LND_LO;
}

/* All ones become ANY. */
static inline struct lnet_nid nid_from_u64(uint64_t nid4)
{
    struct lnet_nid nid = {0};

    if (nid4 == LNET_NID4_ANY)
        return LNET_NID_ANY;
    nid.type = (uint8_t)(nid4 >> 48);
    nid.num_be = __builtin_bswap16((uint16_t)(nid4 >> 32));
    nid.addr_be[0] = __builtin_bswap32((uint32_t)nid4);
    return nid;
}

/* The caller made sure that nid is nid_is_nid4() or ANY. */
static inline uint64_t nid_to_u64(const struct lnet_nid *nid)
{
    if (nid_is_any(nid))
        return LNET_NID4_ANY;
    return (uint64_t)nid_net(nid) << 32 | __builtin_bswap32(nid->addr_be[0]);
}

/* The NID with the first bits of its address only: what all NIDs of a prefix have in common. */
struct lnet_nid nid_prefix(const struct lnet_nid *nid, unsigned bits);
struct lnet_nid nid_make(lnet_net_t net, const void *addr, unsigned addr_len /* 4 or 16 */);

/* A nid4 as received: top byte zero (it marks NIDs to come, §1.1), type not ANY; the counterpart of
 * nid_wire_valid() for the 64-bit form. A value that passes survives nid_from_u64() and
 * nid_to_u64(). */
static inline bool nid4_wire_valid(uint64_t nid4)
{
    return nid4 >> 56 == 0 && (uint8_t)(nid4 >> 48) != LNET_LND_ANY;
}

/* A 20-byte NID as received: size 0..12, unused address words zero, type not ANY. The only check
 * that lets a NID from the wire in. */
static inline bool nid_wire_valid(const struct lnet_nid *nid)
{
    const uint8_t *addr = (const uint8_t *)nid->addr_be;

    if (nid_is_any(nid) || nid->size > LNET_NID_SIZE_MAX)
        return false;
    for (unsigned i = nid->size + 4u; i < sizeof(nid->addr_be); i++)
        if (addr[i] != 0)
            return false;
    return true;
}

/* "10.0.0.1@tcp1", "fd00::1@tcp", "12@kfi", "0x1f@gni", "0@lo"; without '@' the net is tcp. §1.4.
 * Types without a name as they are printed: "a000001@<17:0>", "fd000010:0:0:5@<17:3>". No host
 * names. As in the kernel's parser no address is singled out: 127.0.0.1, ::1 and fe80::/10 pass.
 * "*" is not accepted. Returns 0 or -EINVAL; *out untouched on error. */
int nid_parse(const char *str, struct lnet_nid *out);
/* Always terminates; unknown types as §1.3 says. Returns buf. */
char *nid_format(const struct lnet_nid *nid, char buf[LNET_NIDSTR_SIZE]);
/* "tcp", "o2ib3", "<17:3>": name then optional number 0..65535. Returns 0 or -EINVAL. */
int net_parse(const char *str, lnet_net_t *out);
char *net_format(lnet_net_t net, char buf[LNET_NETSTR_SIZE]);
/* "tcp" for 2 …; "?<n>?" style never NULL. */
const char *lnd_type_name(uint8_t type);
bool lnd_type_has_ip(uint8_t type); /* address is an IP address */

/* CPT of a NID among n: §5.2, but for kfi and large NIDs a hash that spreads them better. */
unsigned nid_cpt_hash(const struct lnet_nid *nid, unsigned n);
/* A keyed hash for tables. */
static inline uint32_t nid_hash(const struct lnet_nid *nid)
{
    return sip_bucket(nid, sizeof(*nid));
}

#endif
