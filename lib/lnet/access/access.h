/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Access rules: who may connect, what is forwarded, and how much. The operator's rules are a
 * snapshot that never changes; control publishes another for each change. Without rules there is
 * none, and a message pays one look at a pointer.
 *
 * The first rule about connecting that matches decides, and so does the first about forwarding;
 * without one it is allowed. All limits that match hold. A limit is a token bucket for each peer
 * NI, each prefix, or for all together: bucket.h. A message waits until the buckets have what it
 * costs, and its connection is not read meanwhile.
 *
 * Rules about connecting hold for connections there are, too: with its next message such a peer
 * loses them.
 */
#ifndef MILLRACE_LNET_ACCESS_H
#define MILLRACE_LNET_ACCESS_H

#include "lib/lnet/shard/shard.h"

/* The snapshot; NULL: there are no rules. Any thread; valid on a reactor until the end of its loop
 * iteration. */
static inline const struct lnet_access *lnet_access(const struct lnet_node *node)
{
    return __atomic_load_n(&node->access, __ATOMIC_ACQUIRE);
}

/* ---- the home of rx->from ---- */

/* Whether the sender of a header may be connected. */
bool lnet_access_sender(const struct lnet_access *a, const struct lnet_rx *rx);
/* LNET_DROP_ACCESS_FORWARD, or NONE. Counts. */
enum lnet_drop lnet_access_header(const struct lnet_access *a, const struct lnet_hdr *hdr);
/* Takes what a message costs of the buckets of its sender. Returns in *wait_us how long it has to
 * wait for it; LNET_DROP_RATE_LIMIT when that is longer than most_us, and then takes nothing. */
enum lnet_drop lnet_access_take(const struct lnet_access *a, const struct lnet_rx *rx,
                                uint64_t most_us, uint64_t *wait_us);

/* ---- why (any thread, no effect) ---- */

/* Returns the name of the rule that decides, NULL: none matches; *allowed what it says. a may be
 * NULL. kind: LNET_ACCESS_CONNECT, with the caller's and the NI's NID, or LNET_ACCESS_FORWARD, with
 * those of the message. */
const char *lnet_access_why(const struct lnet_access *a, enum lnet_access_kind kind,
                            const struct lnet_nid *from, const struct lnet_nid *to, bool *allowed);

/* Fills in what the rules say of a neighbour: out->connect, denied, and limits. */
void lnet_access_why_peer(const struct lnet_access *a, const struct lnet_nid *nid,
                          const struct lnet_nid *ni, struct lnet_why_access *out);

/* Frees the rules. After all reactors were stopped. */
void lnet_access_fini(struct lnet_node *node);

#endif
