/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: one byte that says which header form is used, then a stream of frames. */
#include "lib/lnd_eth/socklnd/socklnd_wire.h"
#include "test/drops_test.h"
#include "test/fuzz/fuzz.h"

REGISTER_DROPS(sock_drops);

static void check_zc_ack(const struct sock_frame *f, uint64_t acked)
{
    uint64_t a = f->cookie[0], b = f->cookie[1];
    bool keepalive = b == SOCK_COOKIE_PING;

    if (b == 0 || keepalive)
        HOLDS(acked == 0);
    else if (f->type != SOCK_FRAME_NOOP || a == 0 || a == b)
        HOLDS(acked == 1);
    else
        HOLDS(a < b ? acked - 1 == b - a : acked == 2);
}

static uint32_t crc_by_bits(const uint8_t *p, size_t len)
{
    uint32_t crc = SOCK_CRC_SEED;

    for (; len > 0; p++, len--) {
        crc ^= *p;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return crc;
}

static void check_crc(const uint8_t *p, size_t len)
{
    uint32_t crc = sock_crc32(SOCK_CRC_SEED, p, len / 3);

    HOLDS(sock_crc32(crc, p + len / 3, len - len / 3) == crc_by_bits(p, len));
}

/* Decodes one frame; 0 when the stream ends or is refused here, else its size. */
static size_t one_frame(const uint8_t *data, size_t size, bool nid16)
{
    size_t hdr_size = nid16 ? LNET_HDR16_SIZE : LNET_HDR4_SIZE, head = SOCK_FRAME_SIZE + hdr_size;
    uint8_t wire[SOCK_FRAME_SIZE];
    uint64_t acked;
    struct sock_frame f;
    struct lnet_hdr h;
    enum lnet_drop drop;

    if (size < SOCK_FRAME_SIZE || sock_frame_decode(data, &f) != LNET_DROP_NONE)
        return 0;
    sock_frame_encode(&f, wire);
    HOLDS(memcmp(wire, data, sizeof(wire)) == 0);
    drop = sock_frame_zc_ack(&f, &acked);
    if (drop != LNET_DROP_NONE) {
        HOLDS(drop == SOCK_DROP(ZC_ACK) && f.cookie[0] > 1 && f.cookie[1] == 1);
        return 0;
    }
    check_zc_ack(&f, acked);
    if (f.type == SOCK_FRAME_NOOP) {
        HOLDS(sock_frame_zc_req(&f) == 0);
        return SOCK_FRAME_SIZE;
    }
    HOLDS(sock_frame_zc_req(&f) == f.cookie[0]);
    if (size < head)
        return 0;
    drop = nid16 ? lnet_hdr_decode16(data + SOCK_FRAME_SIZE, &h)
                 : lnet_hdr_decode4(data + SOCK_FRAME_SIZE, &h);
    if (drop != LNET_DROP_NONE || size - head < h.payload_len)
        return 0;
    HOLDS(sock_msg_is_bulk(head + h.payload_len) == (head + h.payload_len >= 1024));
    check_crc(data + head, h.payload_len);
    return head + h.payload_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool nid16;
    size_t n;

    if (size < 1)
        return 0;
    nid16 = data[0] & 1;
    data++;
    size--;
    check_crc(data, size < 64 ? size : 64);
    while ((n = one_frame(data, size, nid16)) > 0) {
        HOLDS(n <= size);
        data += n;
        size -= n;
    }
    return 0;
}
