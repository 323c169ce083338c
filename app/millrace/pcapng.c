/* SPDX-License-Identifier: BSD-3-Clause */
/* pcapng: blocks of type, length, body, options, length. See pcapng.h. */
#include "app/millrace/pcapng.h"

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

/* Fixed fields and options of a block. */
struct body {
    uint8_t byte[640];
    uint32_t n;
};

static void put16(struct body *b, uint16_t value)
{
    value = htole16(value);
    memcpy(b->byte + b->n, &value, sizeof(value));
    b->n += sizeof(value);
}

static void put32(struct body *b, uint32_t value)
{
    value = htole32(value);
    memcpy(b->byte + b->n, &value, sizeof(value));
    b->n += sizeof(value);
}

static uint32_t padded(uint32_t len)
{
    return (len + 3) & ~UINT32_C(3);
}

static void put_option(struct body *b, uint16_t code, const void *value, uint16_t len)
{
    put16(b, code);
    put16(b, len);
    memset(b->byte + b->n, 0, padded(len));
    if (len)
        memcpy(b->byte + b->n, value, len);
    b->n += padded(len);
}

static void put_text(struct body *b, uint16_t code, const char *text)
{
    put_option(b, code, text, (uint16_t)strnlen(text, 255));
}

static bool write32(FILE *to, uint32_t value)
{
    value = htole32(value);
    return fwrite(&value, sizeof(value), 1, to) == 1;
}

/* Writes a block: fixed fields, data, options. */
static bool write_block(FILE *to, uint32_t type, const struct body *fixed, const uint8_t *data,
                        uint32_t len, const struct body *options)
{
    static const uint8_t zero[4];
    uint32_t total = 12 + fixed->n + padded(len) + options->n;

    return write32(to, type) && write32(to, total) && fwrite(fixed->byte, fixed->n, 1, to) == 1 &&
           (len == 0 || fwrite(data, len, 1, to) == 1) &&
           (padded(len) == len || fwrite(zero, padded(len) - len, 1, to) == 1) &&
           (options->n == 0 || fwrite(options->byte, options->n, 1, to) == 1) && write32(to, total);
}

bool pcapng_begin(struct pcapng *p, FILE *to, uint32_t snap)
{
    struct body fixed = {.n = 0}, options = {.n = 0};

    *p = (struct pcapng){.to = to, .snap = snap};
    put32(&fixed, BYTE_ORDER_MARK);
    put16(&fixed, 1);
    put16(&fixed, 0);
    put32(&fixed, UINT32_MAX); /* length of the section: not known */
    put32(&fixed, UINT32_MAX);
    put_text(&options, OPT_USERAPPL, "millrace " MILLRACE_VERSION);
    put_option(&options, OPT_END, NULL, 0);
    return write_block(to, BLOCK_SECTION, &fixed, NULL, 0, &options);
}

/* Returns the number of an interface, and describes a new one; -1: the output cannot be written. */
static int interface_of(struct pcapng *p, const char *ifname)
{
    static const uint8_t resolution = NANOSECONDS;
    struct body fixed = {.n = 0}, options = {.n = 0};

    for (unsigned i = 0; i < p->n; i++)
        if (strcmp(p->name[i], ifname) == 0)
            return (int)i;
    if (p->n == PCAPNG_IFS)
        return -1;
    snprintf(p->name[p->n], sizeof(p->name[0]), "%s", ifname);
    put16(&fixed, LINKTYPE_ETHERNET);
    put16(&fixed, 0);
    put32(&fixed, p->snap);
    put_text(&options, OPT_IF_NAME, p->name[p->n]);
    put_option(&options, OPT_IF_TSRESOL, &resolution, 1);
    put_option(&options, OPT_END, NULL, 0);
    return write_block(p->to, BLOCK_INTERFACE, &fixed, NULL, 0, &options) ? (int)p->n++ : -1;
}

bool pcapng_packet(struct pcapng *p, const char *ifname, uint64_t time_ns, bool out,
                   const uint8_t *data, uint32_t caplen, uint32_t len, const char *comment)
{
    uint32_t flags = htole32(out ? FLAG_OUTBOUND : FLAG_INBOUND);
    struct body fixed = {.n = 0}, options = {.n = 0};
    int index = interface_of(p, ifname);

    if (index < 0)
        return false;
    put32(&fixed, (uint32_t)index);
    put32(&fixed, (uint32_t)(time_ns >> 32));
    put32(&fixed, (uint32_t)time_ns);
    put32(&fixed, caplen);
    put32(&fixed, len);
    if (comment)
        put_text(&options, OPT_COMMENT, comment);
    put_option(&options, OPT_EPB_FLAGS, &flags, sizeof(flags));
    put_option(&options, OPT_END, NULL, 0);
    return write_block(p->to, BLOCK_PACKET, &fixed, data, caplen, &options);
}
