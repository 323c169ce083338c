/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/lnet_wire.h"

#include <endian.h>

#include "lib/base/container.h"

/*
 * docs/protocol/lnet-core.md §3.2. Everything is in the sender's byte order except struct lnet_nid.
 * The decoder ignores bytes behind the declared size (the metadata of §3.3).
 */

struct wire_ping_hdr {
    uint32_t magic;
    uint32_t features;
    uint32_t pid;
    uint32_t nnis;
} __attribute__((packed));

struct wire_ping_ni {
    uint64_t nid;
    uint32_t status;
    uint32_t msg_size; /* entry 0 only */
} __attribute__((packed));

ASSERT_AT(wire_ping_hdr, magic, 0);
ASSERT_AT(wire_ping_hdr, features, 4);
ASSERT_AT(wire_ping_hdr, pid, 8);
ASSERT_AT(wire_ping_hdr, nnis, 12);
_Static_assert(sizeof(struct wire_ping_hdr) == LNET_PING_HDR_SIZE, "ping info header size");
ASSERT_AT(wire_ping_ni, nid, 0);
ASSERT_AT(wire_ping_ni, status, 8);
ASSERT_AT(wire_ping_ni, msg_size, 12);

#define NI_SIZE ((uint32_t)sizeof(struct wire_ping_ni))
_Static_assert(sizeof(struct wire_ping_ni) == 16, "ping info entry size");

/* A large entry: status, then as much of the NID as its size says, padded to 4 bytes. */
#define LARGE_NID_OFFSET 4u
#define NID_ADDR_OFFSET  4u /* of the address in struct lnet_nid: size, type, number before it */
_Static_assert(offsetof(struct lnet_nid, addr_be) == NID_ADDR_OFFSET, "lnet_nid.addr_be");

/* The highest lnet_interfaces_max of any kernel (§13): more entries than that is no ping info. */
#define NNIS_MAX 4096u

static uint32_t get32(const struct lnet_ping_info *info, uint32_t raw)
{
    return info->swapped ? be32toh(raw) : le32toh(raw);
}

static uint64_t get64(const struct lnet_ping_info *info, uint64_t raw)
{
    return info->swapped ? be64toh(raw) : le64toh(raw);
}

static uint32_t nid_bytes(uint8_t nid_size)
{
    return nid_size + 8u;
}

static uint32_t large_entry_size(uint8_t nid_size)
{
    return (LARGE_NID_OFFSET + nid_bytes(nid_size) + 3) & ~3u;
}

/* Entries that are no usable NID are passed over, not refused: their length is known all the same,
 * and one NID of an unknown kind must not cost the others. */
static void add_ni(struct lnet_ping_info *out, const struct lnet_nid *nid, uint32_t status)
{
    if (!nid_wire_valid(nid) || nid_is_lo(nid))
        return;
    if (out->count == LNET_PING_MAX_NIDS) {
        out->truncated = true;
        return;
    }
    out->ni[out->count].nid = *nid;
    out->ni[out->count].status = status;
    out->count++;
}

static enum lnet_drop decode_hdr(const uint8_t *buf, size_t len, struct lnet_ping_info *out)
{
    struct wire_ping_hdr w;

    if (len < sizeof(w))
        return LNET_DROP_PING_BAD_INFO;
    memcpy(&w, buf, sizeof(w));
    if (be32toh(w.magic) == LNET_PING_MAGIC)
        out->swapped = true;
    else if (le32toh(w.magic) != LNET_PING_MAGIC)
        return LNET_DROP_PING_BAD_INFO;
    out->features = get32(out, w.features);
    out->pid = get32(out, w.pid);
    out->nnis = get32(out, w.nnis);
    if (!(out->features & LNET_PING_NI_STATUS))
        return LNET_DROP_PING_BAD_INFO;
    if (out->nnis < 1 || out->nnis > NNIS_MAX)
        return LNET_DROP_PING_BAD_INFO;
    out->full_size = LNET_PING_HDR_SIZE + out->nnis * NI_SIZE;
    return LNET_DROP_NONE;
}

/* Entry 0: loopback, which carries the sequence number and the whole size. */
static enum lnet_drop decode_first(const uint8_t *buf, struct lnet_ping_info *out)
{
    struct wire_ping_ni w;
    uint32_t size;

    memcpy(&w, buf + LNET_PING_HDR_SIZE, sizeof(w));
    if (get64(out, w.nid) != LNET_NID4_LO)
        return LNET_DROP_PING_BAD_INFO;
    out->seqno = get32(out, w.status);
    out->msg_size = get32(out, w.msg_size);
    if (!(out->features & LNET_PING_LARGE_ADDR))
        return LNET_DROP_NONE;
    size = out->msg_size & ~3u;
    if (size < out->full_size)
        return LNET_DROP_PING_BAD_INFO;
    out->full_size = size;
    return LNET_DROP_NONE;
}

static size_t decode_nid4s(const uint8_t *buf, size_t end, struct lnet_ping_info *out)
{
    size_t pos = LNET_PING_HDR_SIZE + NI_SIZE;

    for (uint32_t i = 1; i < out->nnis && end - pos >= NI_SIZE; i++, pos += NI_SIZE) {
        struct wire_ping_ni w;
        struct lnet_nid nid;

        memcpy(&w, buf + pos, sizeof(w));
        if (!nid4_wire_valid(get64(out, w.nid)))
            continue;
        nid = nid_from_u64(get64(out, w.nid));
        add_ni(out, &nid, get32(out, w.status));
    }
    return pos;
}

static void decode_larges(const uint8_t *buf, size_t pos, size_t end, struct lnet_ping_info *out)
{
    while (end - pos > LARGE_NID_OFFSET) {
        uint8_t nid_size = buf[pos + LARGE_NID_OFFSET];
        struct lnet_nid nid = {0};
        uint32_t status;

        if (end - pos < large_entry_size(nid_size))
            break;
        memcpy(&status, buf + pos, sizeof(status));
        if (nid_size > 0 && nid_bytes(nid_size) <= sizeof(nid)) {
            memcpy(&nid, buf + pos + LARGE_NID_OFFSET, nid_bytes(nid_size));
            add_ni(out, &nid, get32(out, status));
        }
        pos += large_entry_size(nid_size);
    }
}

enum lnet_drop lnet_ping_decode(const void *buf, size_t len, struct lnet_ping_info *out)
{
    enum lnet_drop drop;
    size_t end, pos;

    memset(out, 0, offsetof(struct lnet_ping_info, ni));
    drop = decode_hdr(buf, len, out);
    if (drop != LNET_DROP_NONE)
        return drop;
    if (len < LNET_PING_HDR_SIZE + NI_SIZE) { /* cut before entry 0: nothing more to check */
        out->truncated = true;
        return LNET_DROP_NONE;
    }
    drop = decode_first(buf, out);
    if (drop != LNET_DROP_NONE)
        return drop;
    out->truncated = len < out->full_size;
    end = out->truncated ? len : out->full_size;
    pos = decode_nid4s(buf, end, out);
    if (pos == LNET_PING_HDR_SIZE + (size_t)out->nnis * NI_SIZE)
        decode_larges(buf, pos, end, out);
    return LNET_DROP_NONE;
}

/* Size on the wire, and the feature bits that follow from what is listed. */
static size_t measure(const struct lnet_ping_info *info, uint32_t *nnis, uint32_t *features)
{
    size_t size = LNET_PING_HDR_SIZE + NI_SIZE;
    uint32_t i;

    *nnis = 1;
    *features = info->features;
    for (i = 0; i < info->count; i++) {
        const struct lnet_nid *nid = &info->ni[i].nid;

        if (nid_is_nid4(nid)) {
            ++*nnis;
            size += NI_SIZE;
        } else {
            *features |= LNET_PING_LARGE_ADDR | (i == 0 ? LNET_PING_PRIMARY_LARGE : 0);
            size += large_entry_size(nid->size);
        }
    }
    return size;
}

static uint8_t *put_nid4(uint8_t *pos, uint64_t nid, uint32_t status, uint32_t msg_size)
{
    struct wire_ping_ni w = {
        .nid = htole64(nid),
        .status = htole32(status),
        .msg_size = htole32(msg_size),
    };

    memcpy(pos, &w, sizeof(w));
    return pos + sizeof(w);
}

static uint8_t *put_large(uint8_t *pos, const struct lnet_ping_ni *ni)
{
    uint32_t status = htole32(ni->status);

    memset(pos, 0, large_entry_size(ni->nid.size));
    memcpy(pos, &status, sizeof(status));
    memcpy(pos + LARGE_NID_OFFSET, &ni->nid, nid_bytes(ni->nid.size));
    return pos + large_entry_size(ni->nid.size);
}

static bool all_encodable(const struct lnet_ping_info *info)
{
    if (info->count > LNET_PING_MAX_NIDS)
        return false;
    for (uint32_t i = 0; i < info->count; i++) {
        if (!nid_wire_valid(&info->ni[i].nid))
            return false;
    }
    return true;
}

size_t lnet_ping_encode(const struct lnet_ping_info *info, void *buf, size_t cap)
{
    struct wire_ping_hdr w;
    uint32_t nnis, features;
    uint8_t *pos = buf;
    size_t size;

    if (!all_encodable(info))
        return 0;
    size = measure(info, &nnis, &features);
    if (size > cap)
        return 0;
    w.magic = htole32(LNET_PING_MAGIC);
    w.features = htole32(features);
    w.pid = htole32(info->pid);
    w.nnis = htole32(nnis);
    memcpy(pos, &w, sizeof(w));
    pos = put_nid4(pos + sizeof(w), LNET_NID4_LO, info->seqno,
                   features & LNET_PING_LARGE_ADDR ? (uint32_t)size : 0);
    for (uint32_t i = 0; i < info->count; i++) {
        if (nid_is_nid4(&info->ni[i].nid))
            pos = put_nid4(pos, nid_to_u64(&info->ni[i].nid), info->ni[i].status, 0);
    }
    for (uint32_t i = 0; i < info->count; i++) {
        if (!nid_is_nid4(&info->ni[i].nid))
            pos = put_large(pos, &info->ni[i]);
    }
    return size;
}

static const struct lnet_nid *first_of(const struct lnet_ping_info *info, bool nid4)
{
    for (uint32_t i = 0; i < info->count; i++) {
        if (nid_is_nid4(&info->ni[i].nid) == nid4)
            return &info->ni[i].nid;
    }
    return NULL;
}

bool lnet_ping_primary(const struct lnet_ping_info *info, struct lnet_nid *out)
{
    const struct lnet_nid *nid = NULL;

    if (info->features & LNET_PING_PRIMARY_LARGE)
        nid = first_of(info, false);
    if (!nid)
        nid = first_of(info, true);
    if (!nid)
        return false;
    *out = *nid;
    return true;
}
