/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text of the state file: the peer NIs that use this router, the connections of own TCP and the
 * addresses of ports. A process that is started again reads what the one before it wrote.
 *
 * The text is JSON: {"version": 1, "peers": ["10.0.0.2@tcp"], "addresses": ["10.0.0.1"],
 * "connections": [["10.0.0.1", 988, "10.0.0.2", 1023]]}. It is not trusted: an entry that is not
 * valid is left out, and so is all above STATE_FILE_MAX. No state.
 */
#ifndef MILLRACE_STATE_FILE_H
#define MILLRACE_STATE_FILE_H

#include <stddef.h>

#include <jansson.h>

#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet_addr.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/lnet/wire/nid.h"

#define STATE_FILE_MAX 32768 /* entries of a kind */

struct state_file {
    struct lnet_nid *peer;
    struct inet_addr *address;
    struct tcp_pair *pair;
    unsigned peers, addresses, pairs;
    unsigned ignored; /* entries that were left out */
};

/* Returns 0; or -EINVAL with a sentence, -ENOMEM, and *out is empty. */
int state_file_parse(const char *text, size_t len, struct state_file *out, struct err *err);
void state_file_free(struct state_file *state);

/* ---- writing: each takes an array of the text, and does nothing when that is full ---- */

void state_file_add_peer(json_t *peers, const struct lnet_nid *nid);
void state_file_add_address(json_t *addresses, const struct inet_addr *addr);
void state_file_add_pair(json_t *pairs, const struct tcp_pair *pair);
/* Returns the content, which refers to the three. NULL: out of memory. */
json_t *state_file_root(json_t *peers, json_t *addresses, json_t *pairs);
/* Returns the text of the content, allocated. NULL: out of memory. */
char *state_file_text(const json_t *root);

#endif
