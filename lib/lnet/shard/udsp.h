/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * User defined selection policies (UDSP): the operator's rules about nets, NIs, peer nets, peer NIs
 * and gateways. docs/protocol/lnet-core.md §8.
 *
 * The rules are a list that never changes; control makes another for each change. The priority or
 * preference of an object depends on the list and the object alone: the matching rule with the
 * lowest index holds. So a rule holds for objects that come later, and the next rule holds when one
 * is deleted.
 *
 * Each snapshot (conf.h) is built with the list and has what the rules say of our nets and NIs, of
 * gateways and of their peer NIs. The node's home keeps it for the peer nets and peer NIs of the
 * table of peers. No other peer NI is chosen among several.
 *
 * All functions are pure. u may be NULL: there are no rules.
 */
#ifndef MILLRACE_LNET_UDSP_H
#define MILLRACE_LNET_UDSP_H

#include "lib/lnet/shard/conf.h"

struct lnet_udsps {
    unsigned n;
    struct lnet_udsp rule[];
};

/* Returns whether an expression matches a net, or a NID. §1.5, §8.1. */
bool lnet_udsp_has_net(const struct lnet_udsp_nids *e, lnet_net_t net);
bool lnet_udsp_has_nid(const struct lnet_udsp_nids *e, const struct lnet_nid *nid);

/* Return the priority of a net and of a NID, of ours or of peers; LNET_UDSP_NONE: no rule sets it.
 */
uint32_t lnet_udsp_net(const struct lnet_udsps *u, lnet_net_t net, bool ours);
uint32_t lnet_udsp_nid(const struct lnet_udsps *u, const struct lnet_nid *nid, bool ours);
/* Returns the rule whose `src` names the preferred NIs of ours for a peer NI. NULL: there is none,
 * or it names no NI of the snapshot. */
const struct lnet_udsp *lnet_udsp_pair(const struct lnet_udsps *u, const struct lnet_conf *conf,
                                       const struct lnet_nid *nid);

/* Fills in what the rules say of the objects of a snapshot. Control. 0 or -ENOMEM. */
int lnet_udsp_apply(struct lnet_conf *conf);
/* Frees the rules. After all reactors were stopped. */
void lnet_udsps_fini(struct lnet_node *node);

#endif
