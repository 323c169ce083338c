/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ip2nets: which NIs this machine has, by rules that its addresses match
 * (docs/protocol/lnet-core.md §10.7 and §1.6; docs/config.md). The reader of files finds
 * cfg_read_ip2nets() in config_internal.h; here is what others need of it.
 */
#ifndef MILLRACE_IP2NETS_H
#define MILLRACE_IP2NETS_H

#include "config/config.h"

struct cfg_reader;

/* IPv4 addresses of this machine's interfaces that are up, loopback left out, in the system's
 * order; at most max, the count of them. Does not block. */
unsigned ip2nets_addresses(struct cfg_address *out, unsigned max);

/* The text of the module option: rules separated by ';' or newlines, '#' begins a comment up to the
 * next one; nets, then patterns of addresses. A rule holds when any address matches any pattern;
 * its nets come to be on the interfaces they name, or on those of the addresses that match. For
 * each net only the first rule that holds counts. Puts the NIs into r->cfg; addresses are those of
 * r->from, or else of the system. All is checked, also rules that do not hold. line: of the text.
 */
void ip2nets_read_text(struct cfg_reader *r, unsigned line, const char *text);

#endif
