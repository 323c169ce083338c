/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: text for the parsers of NIDs and nets; its first 20 bytes are also taken as a NID. */
#include "lib/lnet/wire/nid.h"
#include "test/fuzz/fuzz.h"

static void check_hashes(const struct lnet_nid *nid)
{
    HOLDS(nid_cpt_hash(nid, 0) == 0 && nid_cpt_hash(nid, 1) == 0);
    for (unsigned n = 2; n < 300; n += 7)
        HOLDS(nid_cpt_hash(nid, n) < n);
    HOLDS(nid_hash(nid) == nid_hash(nid));
}

/* What may be on the wire can be printed, and read back as the same. */
static void check_valid(const struct lnet_nid *nid)
{
    char buf[LNET_NIDSTR_SIZE], net_buf[LNET_NETSTR_SIZE];
    struct lnet_nid back;
    lnet_net_t net;

    HOLDS(nid_wire_valid(nid) && !nid_is_any(nid));
    nid_format(nid, buf);
    HOLDS(nid_parse(buf, &back) == 0);
    if (nid->size % 4 == 0) /* addresses of other lengths are printed in whole words */
        HOLDS(nid_same(nid, &back));
    HOLDS(net_parse(net_format(nid_net(nid), net_buf), &net) == 0 && net == nid_net(nid));
    if (nid_is_nid4(nid)) {
        HOLDS(nid4_wire_valid(nid_to_u64(nid)));
        back = nid_from_u64(nid_to_u64(nid));
        HOLDS(nid_same(nid, &back));
    }
    back = nid_make(nid_net(nid), nid->addr_be, nid->size + 4u);
    HOLDS(nid_same(nid, &back));
    HOLDS(lnd_type_name(nid->type)[0] != '\0');
    HOLDS(!nid_is_lo(nid) || !lnd_type_has_ip(nid->type));
}

static void check_text(const char *text)
{
    struct lnet_nid nid;
    char buf[LNET_NETSTR_SIZE];
    lnet_net_t net, back;

    if (nid_parse(text, &nid) == 0) {
        check_valid(&nid);
        check_hashes(&nid);
    }
    if (net_parse(text, &net) == 0) {
        HOLDS(net >> 16 < LNET_LND_ANY);
        HOLDS(net_parse(net_format(net, buf), &back) == 0 && back == net);
    }
}

static void check_raw(const uint8_t *data)
{
    char buf[LNET_NIDSTR_SIZE];
    struct lnet_nid nid;
    uint64_t nid4;

    memcpy(&nid, data, sizeof(nid));
    HOLDS(strlen(nid_format(&nid, buf)) < sizeof(buf)); /* whatever it is */
    check_hashes(&nid);
    memcpy(&nid4, data + 12, sizeof(nid4));
    if (nid_wire_valid(&nid))
        check_valid(&nid);
    nid = nid_from_u64(nid4);
    if (nid4_wire_valid(nid4))
        HOLDS(nid_to_u64(&nid) == nid4);
    HOLDS(nid4 != LNET_NID4_ANY || nid_same(&nid, &LNET_NID_ANY));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    check_text(text);
    if (size >= sizeof(struct lnet_nid))
        check_raw(data);
    free(text);
    return 0;
}
