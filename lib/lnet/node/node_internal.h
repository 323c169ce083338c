/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of node/. This is the highest room: it creates, starts, stops and frees the
 * objects of the other rooms, and adds and removes NIs at run time. lnet.h declares its API.
 * Control thread.
 */
#ifndef MILLRACE_LNET_NODE_INTERNAL_H
#define MILLRACE_LNET_NODE_INTERNAL_H

#include "lib/lnet/shard/conf.h"

/* ---- live.c ---- */
/* Answers the caller of a change of NIs that is under way with -ESHUTDOWN. Reactors stopped. */
void lnet_change_abandon(struct lnet_node *node);

/* ---- node.c ---- */
/* Is called when a change of NIs has ended: a node that stops waits for it. */
void lnet_stop_change_ended(struct lnet_node *node);
/* Makes an NI that its LND knows, with an index, but in no table yet. Errors as lnet_ni_add(). */
int lnet_ni_make(struct lnet_node *node, const struct lnet_ni_conf *conf, struct lnet_ni **out,
                 struct err *err);
void lnet_ni_place(struct lnet_ni *ni);
void lnet_ni_free(struct lnet_ni *ni);

#endif
