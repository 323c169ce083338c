/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: a ping info, in either byte order. */
#include "lib/lnet/wire/lnet_wire.h"
#include "test/fuzz/fuzz.h"

static struct lnet_ping_info info, back;
static uint8_t wire[LNET_PING_MAX_SIZE];

static void check_entries(void)
{
    HOLDS(info.features & LNET_PING_NI_STATUS);
    HOLDS(info.nnis >= 1 && info.nnis <= 4096);
    HOLDS(info.full_size >= LNET_PING_HDR_SIZE + 16 * info.nnis && info.full_size % 4 == 0);
    HOLDS(info.count <= LNET_PING_MAX_NIDS);
    for (uint32_t i = 0; i < info.count; i++) {
        HOLDS(nid_wire_valid(&info.ni[i].nid) && !nid_is_lo(&info.ni[i].nid));
        HOLDS(i == 0 || nid_is_nid4(&info.ni[i - 1].nid) || !nid_is_nid4(&info.ni[i].nid));
    }
}

static void check_primary(void)
{
    struct lnet_nid nid;

    if (lnet_ping_primary(&info, &nid))
        HOLDS(nid_wire_valid(&nid) &&
              (nid_is_nid4(&nid) || (info.features & LNET_PING_PRIMARY_LARGE)));
    else
        HOLDS(info.count == 0 || !nid_is_nid4(&info.ni[0].nid));
}

/* Encoded, what was understood decodes to the same again. */
static void check_again(void)
{
    size_t len = lnet_ping_encode(&info, wire, sizeof(wire));
    uint32_t added = LNET_PING_LARGE_ADDR | LNET_PING_PRIMARY_LARGE;

    HOLDS(len > 0);
    HOLDS(lnet_ping_encode(&info, wire, len - 1) == 0);
    HOLDS(lnet_ping_decode(wire, len, &back) == LNET_DROP_NONE);
    HOLDS(!back.truncated && !back.swapped && back.full_size == len);
    HOLDS((back.features & ~added) == (info.features & ~added));
    HOLDS((back.features & info.features) == info.features);
    HOLDS(back.pid == info.pid && back.seqno == info.seqno && back.count == info.count);
    HOLDS(memcmp(back.ni, info.ni, info.count * sizeof(info.ni[0])) == 0);
}

/* A part of it never says more than the whole. */
static void check_cut(const uint8_t *data, size_t size)
{
    uint32_t count = info.count;

    if (size <= LNET_PING_HDR_SIZE || size > 400)
        return;
    while (--size >= LNET_PING_HDR_SIZE) {
        HOLDS(lnet_ping_decode(data, size, &back) == LNET_DROP_NONE);
        HOLDS(back.count <= count);
        count = back.count;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum lnet_drop drop = lnet_ping_decode(data, size, &info);

    if (drop != LNET_DROP_NONE) {
        HOLDS(drop == LNET_DROP_PING_BAD_INFO);
        return 0;
    }
    HOLDS(info.truncated || info.full_size <= size);
    check_entries();
    check_primary();
    check_again();
    check_cut(data, size);
    info.count = LNET_PING_MAX_NIDS + 1;
    HOLDS(lnet_ping_encode(&info, wire, sizeof(wire)) == 0);
    return 0;
}
