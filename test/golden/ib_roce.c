/* SPDX-License-Identifier: BSD-3-Clause */
#include "ib_roce.h"

#include <string.h>

#define BTH_SIZE  12
#define DETH_SIZE 8
#define RETH_SIZE 16
#define ICRC_SIZE 4
#define MAD_SIZE  256
#define MAD_CM    0x07

/* opcodes: reliable connection 0x00.., unreliable datagram 0x60.. */
#define RC_SEND_ONLY    0x04
#define RC_WRITE_FIRST  0x06
#define RC_WRITE_MIDDLE 0x07
#define RC_WRITE_LAST   0x08
#define RC_WRITE_ONLY   0x0a
#define RC_ACK          0x11
#define UD_SEND_ONLY    0x64

static uint32_t be(const uint8_t *p, unsigned n)
{
    uint32_t v = 0;

    while (n-- > 0)
        v = v << 8 | *p++;
    return v;
}

/* docs/protocol/o2iblnd.md §1.2 has the places of the private data; the other fields stand where
 * the InfiniBand architecture has them. */
static bool decode_mad(struct roce_packet *out)
{
    const uint8_t *mad = out->data + DETH_SIZE;

    if (out->len < DETH_SIZE + MAD_SIZE || mad[1] != MAD_CM)
        return false;
    out->cm.attr = be(mad + 16, 2);
    out->cm.local_id = be(mad + 24, 4);
    out->cm.remote_id = be(mad + 28, 4);
    switch (out->cm.attr) {
    case CM_REQ:
        out->cm.remote_id = 0;
        out->cm.service = (uint64_t)be(mad + 32, 4) << 32 | be(mad + 36, 4);
        out->cm.qpn = be(mad + 56, 3);
        out->cm.responder = mad[59];
        out->cm.initiator = mad[63];
        out->cm.fc = mad[67] & 1;
        out->cm.psn = be(mad + 68, 3);
        out->cm.retries = mad[71] & 7;
        out->cm.rnr_retries = mad[74] & 7;
        out->cm.priv = mad + 164;
        break;
    case CM_REP:
        out->cm.qpn = be(mad + 36, 3);
        out->cm.psn = be(mad + 44, 3);
        out->cm.responder = mad[48];
        out->cm.initiator = mad[49];
        out->cm.fc = mad[50] & 1;
        out->cm.rnr_retries = mad[51] >> 5;
        out->cm.priv = mad + 60;
        break;
    case CM_REJ:
        out->cm.reason = be(mad + 34, 2);
        out->cm.priv = mad + 108;
        break;
    default:
        return true;
    }
    out->cm.priv_len = MAD_SIZE - (size_t)(out->cm.priv - mad);
    return true;
}

static bool decode_write(struct roce_packet *out)
{
    if (out->len < RETH_SIZE)
        return false;
    out->addr = (uint64_t)be(out->data, 4) << 32 | be(out->data + 4, 4);
    out->key = be(out->data + 8, 4);
    out->total = be(out->data + 12, 4);
    out->data += RETH_SIZE;
    out->len -= RETH_SIZE;
    return true;
}

bool roce_decode(const struct udp_datagram *d, struct roce_packet *out)
{
    size_t pad;

    if (d->dst.port != ROCE_PORT || d->captured != d->len || d->len < BTH_SIZE + ICRC_SIZE)
        return false;
    pad = d->data[1] >> 4 & 3;
    if (d->len < BTH_SIZE + ICRC_SIZE + pad)
        return false;
    memset(out, 0, sizeof(*out));
    memcpy(out->src, d->src.addr, sizeof(out->src));
    memcpy(out->dst, d->dst.addr, sizeof(out->dst));
    out->time_us = d->time_us;
    out->dest_qp = be(d->data + 5, 3);
    out->psn = be(d->data + 9, 3);
    out->data = d->data + BTH_SIZE;
    out->len = d->len - BTH_SIZE - ICRC_SIZE - pad;
    switch (d->data[0]) {
    case UD_SEND_ONLY:
        out->kind = ROCE_MAD;
        return decode_mad(out);
    case RC_SEND_ONLY:
        out->kind = ROCE_SEND;
        return true;
    case RC_WRITE_FIRST:
    case RC_WRITE_ONLY:
        out->kind = ROCE_WRITE_FIRST;
        return decode_write(out);
    case RC_WRITE_MIDDLE:
    case RC_WRITE_LAST:
        out->kind = ROCE_WRITE_REST;
        return true;
    case RC_ACK:
        out->kind = ROCE_ACK;
        return true;
    default:
        out->kind = ROCE_OTHER;
        return true;
    }
}
