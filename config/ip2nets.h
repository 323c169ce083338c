/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ip2nets: rules that give this machine its NIs by its addresses (docs/protocol/lnet-core.md
 * §10.7 and §1.6; docs/config.md). cfg_read_ip2nets() in config_internal.h reads them from a
 * file; this header has the functions for other users.
 */
#ifndef MILLRACE_IP2NETS_H
#define MILLRACE_IP2NETS_H

#include "config/config.h"

struct cfg_reader;

/* Lists the IPv4 addresses of this machine's interfaces that are up, without loopback, in the
 * system's order. Returns the number, at most max. Does not block. */
unsigned ip2nets_addresses(struct cfg_address *out, unsigned max);

/* Reads the text of the module option: rules separated by ';' or newlines, '#' begins a comment up
 * to the next separator; nets, then patterns of addresses. A rule matches when any address matches
 * any pattern. Its nets are put on the interfaces that they name, or on those of the matching
 * addresses. Only the first matching rule counts for each net. Puts the NIs into r->cfg, by the
 * addresses of r->from, or else of the system. Checks also rules that do not match. line: of the
 * text. */
void ip2nets_read_text(struct cfg_reader *r, unsigned line, const char *text);

#endif
