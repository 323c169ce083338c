/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes packets in the pcapng format (draft-ietf-opsawg-pcapng), little endian, times in ns. */
#ifndef MILLRACE_PCAPNG_H
#define MILLRACE_PCAPNG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PCAPNG_IFS       32
#define PCAPNG_MAX_DATA  (65535 + 64) /* bytes of a packet */
#define PCAPNG_MAX_BLOCK (PCAPNG_MAX_DATA + 640)

struct pcapng {
    FILE *to;
    uint8_t block[PCAPNG_MAX_BLOCK]; /* being written */
    uint32_t used;
    uint32_t snap;             /* 0 = no limit is said */
    char name[PCAPNG_IFS][16]; /* of the interfaces described so far */
    unsigned n;
};

/* Writes the section header. False: the output cannot be written (also below). */
bool pcapng_begin(struct pcapng *p, FILE *to, uint32_t snap);
/* Writes an Ethernet frame that came in or went out on an interface, which is described before its
 * first packet. len: of the whole frame. comment: NULL, or at most 255 bytes. caplen: at most
 * PCAPNG_MAX_DATA. */
bool pcapng_packet(struct pcapng *p, const char *ifname, uint64_t time_ns, bool out,
                   const uint8_t *data, uint32_t caplen, uint32_t len, const char *comment);

#endif
