/* SPDX-License-Identifier: BSD-3-Clause */
/* pcapng: blocks of type, length, body, options, length. See pcapng.h. */
#include "app/millrace/pcapng.h"
#include "lib/base/version.h"

#include <endian.h>
#include <string.h>

#define BLOCK_SECTION   UINT32_C(0x0a0d0d0a)
#define BLOCK_INTERFACE 1
#define BLOCK_PACKET    6
#define BYTE_ORDER_MARK UINT32_C(0x1a2b3c4d)

#define OPT_END        0
#define OPT_COMMENT    1
#define OPT_USERAPPL   4 /* of a section */
#define OPT_IF_NAME    2
#define OPT_IF_TSRESOL 9
#define OPT_EPB_FLAGS  2

#define LINKTYPE_ETHERNET 1
#define NANOSECONDS       9 /* 10^-9 */
#define FLAG_INBOUND      1
#define FLAG_OUTBOUND     2

static void put16(struct pcapng *p, uint16_t value)
{
    value = htole16(value);
    memcpy(p->block + p->used, &value, sizeof(value));
    p->used += sizeof(value);
}

static void put32(struct pcapng *p, uint32_t value)
{
    value = htole32(value);
    memcpy(p->block + p->used, &value, sizeof(value));
    p->used += sizeof(value);
}

/* Puts bytes, padded to whole words. */
static void put_bytes(struct pcapng *p, const void *value, uint32_t len)
{
    memcpy(p->block + p->used, value, len);
    p->used += len;
    while (p->used % 4)
        p->block[p->used++] = 0;
}

static void put_option(struct pcapng *p, uint16_t code, const void *value, uint16_t len)
{
    put16(p, code);
    put16(p, len);
    put_bytes(p, value, len);
}

static void put_text(struct pcapng *p, uint16_t code, const char *text)
{
    put_option(p, code, text, (uint16_t)strnlen(text, 255));
}

static void begin_block(struct pcapng *p, uint32_t type)
{
    p->used = 0;
    put32(p, type);
    put32(p, 0); /* its length, set at its end */
}

/* Ends the options and writes the block. */
static bool end_block(struct pcapng *p)
{
    uint32_t len = htole32(p->used + 8);

    put_option(p, OPT_END, "", 0);
    put_bytes(p, &len, sizeof(len));
    memcpy(p->block + 4, &len, sizeof(len));
    return fwrite(p->block, p->used, 1, p->to) == 1;
}

bool pcapng_begin(struct pcapng *p, FILE *to, uint32_t snap)
{
    p->to = to;
    p->snap = snap;
    p->n = 0;
    begin_block(p, BLOCK_SECTION);
    put32(p, BYTE_ORDER_MARK);
    put16(p, 1);
    put16(p, 0);
    put32(p, UINT32_MAX); /* length of the section: not known */
    put32(p, UINT32_MAX);
    put_text(p, OPT_USERAPPL, "millrace " MILLRACE_VERSION);
    return end_block(p);
}

/* Returns the number of an interface, and describes a new one; -1: the output cannot be written. */
static int interface_of(struct pcapng *p, const char *ifname)
{
    static const uint8_t resolution = NANOSECONDS;

    for (unsigned i = 0; i < p->n; i++)
        if (strcmp(p->name[i], ifname) == 0)
            return (int)i;
    if (p->n == PCAPNG_IFS)
        return -1;
    snprintf(p->name[p->n], sizeof(p->name[0]), "%s", ifname);
    begin_block(p, BLOCK_INTERFACE);
    put16(p, LINKTYPE_ETHERNET);
    put16(p, 0);
    put32(p, p->snap);
    put_text(p, OPT_IF_NAME, p->name[p->n]);
    put_option(p, OPT_IF_TSRESOL, &resolution, 1);
    return end_block(p) ? (int)p->n++ : -1;
}

bool pcapng_packet(struct pcapng *p, const char *ifname, uint64_t time_ns, bool out,
                   const uint8_t *data, uint32_t caplen, uint32_t len, const char *comment)
{
    uint32_t flags = htole32(out ? FLAG_OUTBOUND : FLAG_INBOUND);
    int index = interface_of(p, ifname);

    if (index < 0)
        return false;
    begin_block(p, BLOCK_PACKET);
    put32(p, (uint32_t)index);
    put32(p, (uint32_t)(time_ns >> 32));
    put32(p, (uint32_t)time_ns);
    put32(p, caplen);
    put32(p, len);
    put_bytes(p, data, caplen);
    if (comment)
        put_text(p, OPT_COMMENT, comment);
    put_option(p, OPT_EPB_FLAGS, &flags, sizeof(flags));
    return end_block(p);
}
