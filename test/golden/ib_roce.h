/* SPDX-License-Identifier: BSD-3-Clause */
/* InfiniBand packets as RoCEv2 carries them in UDP datagrams: as much of their headers as the
 * golden test needs. Knows nothing of o2iblnd. */
#ifndef MILLRACE_TEST_GOLDEN_IB_ROCE_H
#define MILLRACE_TEST_GOLDEN_IB_ROCE_H

#include "capture.h"

#define ROCE_PORT 4791

enum roce_kind {
    ROCE_MAD,         /* of the connection manager */
    ROCE_SEND,        /* a whole message */
    ROCE_WRITE_FIRST, /* or only: says where and how much */
    ROCE_WRITE_REST,
    ROCE_ACK,
    ROCE_OTHER,
};

/* CM messages, by attribute id. */
enum cm_attr {
    CM_REQ = 0x10,
    CM_REJ = 0x12,
    CM_REP = 0x13,
    CM_RTU = 0x14,
    CM_DREQ = 0x15,
    CM_DREP = 0x16,
};

struct roce_packet {
    enum roce_kind kind;
    uint64_t time_us;
    uint8_t src[16], dst[16];
    uint32_t dest_qp;
    uint32_t psn;
    size_t len; /* of what the headers carry */
    const uint8_t *data;
    uint64_t addr; /* WRITE_FIRST: where to, with which key, and bytes of all packets */
    uint32_t key;
    uint32_t total;
    struct { /* MAD */
        unsigned attr;
        uint32_t local_id, remote_id;
        uint32_t qpn; /* REQ, REP */
        uint32_t psn; /* REQ, REP: with which what is sent to the sender begins */
        uint64_t service;
        unsigned reason;                   /* REJ */
        unsigned retries, rnr_retries;     /* REQ; REP has the latter */
        unsigned responder, initiator, fc; /* REQ, REP: resources, depth, flow control */
        const uint8_t *priv;
        size_t priv_len;
    } cm;
};

/* What is in a datagram; false when it is no RoCEv2, or not whole. */
bool roce_decode(const struct udp_datagram *datagram, struct roce_packet *out);

#endif
