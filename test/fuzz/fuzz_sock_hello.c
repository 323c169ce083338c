/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: one byte that says which version is spoken, then a HELLO. */
#include "lib/lnd_eth/socklnd/socklnd_wire.h"
#include "test/drops_test.h"
#include "test/fuzz/fuzz.h"

REGISTER_DROPS(sock_drops);

static size_t read_in_steps(const uint8_t *data, size_t size, uint32_t version,
                            struct sock_stage *stage)
{
    size_t got = 0, steps = 0;

    for (;;) {
        *stage = sock_hello_stage(data, got, version);
        if (stage->drop != LNET_DROP_NONE || stage->need == 0)
            return got;
        HOLDS(!stage->answer);
        got += stage->need;
        HOLDS(++steps <= 4 && got <= SOCK_HELLO_MAX);
        if (got > size)
            return size;
    }
}

static void check_refused(const uint8_t *data, const struct sock_stage *stage)
{
    switch ((unsigned)stage->drop) {
    case SOCK_DROP(HELLO_MAGIC):
        HOLDS(!stage->answer && sock_magic(data) != SOCK_FIRST_LNET);
        break;
    case SOCK_DROP(HELLO_VERSION):
        HOLDS(stage->answer);
        break;
    default:
        HOLDS(stage->drop == SOCK_DROP(HELLO_NIPS) && !stage->answer);
        break;
    }
}

static void check_good(const struct sock_hello *h, const uint8_t *data, size_t size)
{
    enum sock_ctype other = sock_ctype_invert(h->ctype);
    uint8_t wire[SOCK_HELLO_MAX];

    HOLDS(nid_wire_valid(&h->src_nid));
    HOLDS(nid_wire_valid(&h->dst_nid) || nid_is_any(&h->dst_nid));
    HOLDS(h->ctype >= SOCK_CTYPE_NONE && h->ctype <= SOCK_CTYPE_BULK_OUT);
    HOLDS(sock_ctype_invert(other) == h->ctype);
    for (uint32_t i = 0; h->version == SOCK_HELLO_V3 && i < h->nips; i++)
        HOLDS(h->ips[i] != 0);
    HOLDS(sock_hello_encode(h, wire) == size);
    HOLDS(memcmp(wire, data, size) == 0);
}

/* What cannot be said in a version is refused by the encoder, never cut short. */
static void check_other_version(struct sock_hello *h, uint32_t spoken)
{
    uint8_t wire[SOCK_HELLO_MAX];
    struct sock_hello back;
    size_t len;

    h->version = spoken == SOCK_HELLO_V3 ? SOCK_HELLO_V4 : SOCK_HELLO_V3;
    len = sock_hello_encode(h, wire);
    if (len == 0) {
        HOLDS(h->version == SOCK_HELLO_V3);
        HOLDS(h->src_nid.size != 0 || h->dst_nid.size != 0 || h->nips > SOCK_NIPS_MAX);
        return;
    }
    if (sock_hello_decode(wire, len, h->version, &back) == LNET_DROP_NONE)
        HOLDS(nid_same(&back.src_nid, &h->src_nid) && back.src_pid == h->src_pid);
    h->version = 2;
    HOLDS(sock_hello_encode(h, wire) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sock_stage stage;
    struct sock_hello hello;
    enum lnet_drop drop;
    uint32_t version;
    size_t len;

    if (size < 1)
        return 0;
    version = data[0] % 8;
    data++;
    size--;
    len = read_in_steps(data, size, version, &stage);
    drop = sock_hello_decode(data, len, version, &hello);
    if (stage.drop != LNET_DROP_NONE) {
        check_refused(data, &stage);
        HOLDS(drop == stage.drop);
    } else if (stage.need > 0) {
        HOLDS(drop == SOCK_DROP(REQ_EOF));
    } else {
        HOLDS(version == SOCK_HELLO_V3 || version == SOCK_HELLO_V4);
        HOLDS(sock_hello_decode(data, size, version, &hello) == drop);
        HOLDS(lnet_drop_info(drop)->kind == DROP_KIND_REFUSAL || drop == LNET_DROP_NONE);
        if (drop == LNET_DROP_NONE) {
            check_good(&hello, data, len);
            check_other_version(&hello, version);
        } else {
            HOLDS(drop != SOCK_DROP(HELLO_TYPE) ||
                  sock_ctype_invert(hello.ctype) == SOCK_CTYPE_NONE);
        }
    }
    return 0;
}
