/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An o2iblnd node as the tests speak for it: a second encoder and decoder of all that is on the
 * wire, byte by byte from docs/protocol/o2iblnd.md §1.3, §1.4, §2, that shares no line with lib/.
 * What the driver and it both get wrong, the vectors of §8 and recorded traffic find.
 */
#ifndef MILLRACE_IB_PERSONA_H
#define MILLRACE_IB_PERSONA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PE_FRAGS 257
#define PE_MSG   4096
#define PE_SMALL 3976 /* payload of the longest IMMEDIATE */

enum pe_type {
    PE_CONNREQ = 0xc0,
    PE_CONNACK = 0xc1,
    PE_NOOP = 0xd0,
    PE_IMMEDIATE = 0xd1,
    PE_PUT_REQ = 0xd2,
    PE_PUT_NAK = 0xd3,
    PE_PUT_ACK = 0xd4,
    PE_PUT_DONE = 0xd5,
    PE_GET_REQ = 0xd6,
    PE_GET_DONE = 0xd7,
};

enum pe_lnet_type {
    PE_LNET_ACK,
    PE_LNET_PUT,
    PE_LNET_GET,
    PE_LNET_REPLY
};

struct pe_frag {
    uint64_t addr;
    uint32_t nob;
};

struct pe_lnet { /* the 72 bytes of §2.3 */
    uint64_t dest, src;
    uint32_t dest_pid, src_pid, type, len;
    uint8_t body[40];
};

struct pe_msg {
    bool big; /* sent by a node of the other byte order */
    uint32_t magic;
    uint16_t version;
    uint8_t type, credits;
    uint32_t nob; /* encode: 0 = as it is */
    uint32_t cksum;
    uint64_t src, src_stamp, dst, dst_stamp;
    uint16_t depth, frags; /* CONNREQ, CONNACK */
    uint32_t size;
    struct pe_lnet lnet;
    uint64_t cookie, dst_cookie;
    int32_t status;
    uint32_t key, nfrags;
    struct pe_frag frag[PE_FRAGS + 1];
    const uint8_t *payload; /* IMMEDIATE */
    uint32_t carried;
};

/* Anything can be said, also what is wrong. Returns the length. */
size_t pe_encode(const struct pe_msg *m, uint8_t buf[PE_MSG]);
/* False: not a message a node would take. Little-endian ones only: what we send. */
bool pe_decode(const uint8_t *buf, size_t len, struct pe_msg *m);
uint8_t pe_type_of(const uint8_t *buf);
uint32_t pe_cksum(const uint8_t *buf, size_t len); /* bytes as unsigned */

struct pe_reject {
    uint32_t magic;
    uint16_t version;
    uint8_t why;
    uint64_t stamp;
    uint16_t depth, frags;
    uint32_t size;
};
size_t pe_reject_encode(const struct pe_reject *r, uint8_t buf[24]);
bool pe_reject_decode(const uint8_t *buf, size_t len, struct pe_reject *r);

uint64_t pe_nid(const char *address); /* "10.0.0.1" on o2ib0 */

#endif
