/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of node/. This is the highest room: it creates, starts, stops and frees the
 * objects of the other rooms, and adds and removes NIs at run time. lnet.h declares its API.
 * Control thread.
 */
#ifndef MILLRACE_LNET_NODE_INTERNAL_H
#define MILLRACE_LNET_NODE_INTERNAL_H

#include "lib/lnet/shard/conf.h"

/* ---- stop.c ---- */

enum lnet_nis_stop_state {
    LNET_NIS_IDLE,      /* NIs may be added */
    LNET_NIS_QUIESCING, /* LNDs finish receives that were begun, and begin no other */
    LNET_NIS_STOPPING,  /* LNDs close connections */
    LNET_NIS_STOPPED,   /* all have; done() has been called */
};

struct lnet_ni_stop {
    struct reactor_task quiet, stopped;
    struct lnet_nis_stop *all;
    struct lnet_ni *ni;
};

/* Stops some NIs together: lnet_nis_quiesce(), which goes on by itself, or lnet_nis_stop() at once.
 */
struct lnet_nis_stop {
    struct lnet_node *node;
    enum lnet_nis_stop_state state;
    bool drain;          /* quiesce until the node has no message either */
    unsigned quiet_wait; /* NIs that are not quiet yet */
    unsigned stop_wait;  /* NIs that have not stopped yet */
    uint64_t until_us;
    struct reactor_timer timer;
    void (*done)(struct lnet_nis_stop *s);
    unsigned n;
    struct lnet_ni_stop ni[LNET_MAX_NI];
};

/* s is zeroed. */
void lnet_nis_stop_init(struct lnet_nis_stop *s, struct lnet_node *node,
                        void (*done)(struct lnet_nis_stop *s));
void lnet_nis_stop_add(struct lnet_nis_stop *s, struct lnet_ni *ni);
/* Quiesces the NIs, for at most max_us, and then stops them. */
void lnet_nis_quiesce(struct lnet_nis_stop *s, uint64_t max_us);
/* Stops the NIs now. done() may run before it returns. */
void lnet_nis_stop(struct lnet_nis_stop *s);

int lnet_stop_init(struct lnet_node *node);
void lnet_stop_fini(struct lnet_node *node);
/* Is called when a change of NIs has ended: a node that stops waits for it. */
void lnet_stop_change_ended(struct lnet_node *node);

/* ---- live.c ---- */
/* Returns whether an NI is being added or removed, and the caller of that is still to be answered.
 */
bool lnet_change_is_busy(const struct lnet_node *node);
/* Answers the caller of a change of NIs that is under way with -ESHUTDOWN. Reactors stopped. */
void lnet_change_abandon(struct lnet_node *node);

/* ---- node.c ---- */
/* Makes an NI that its LND knows, with an index, but in no table yet. Errors as lnet_ni_add(). */
int lnet_ni_make(struct lnet_node *node, const struct lnet_ni_conf *conf, struct lnet_ni **out,
                 struct err *err);
void lnet_ni_place(struct lnet_ni *ni);
void lnet_ni_free(struct lnet_ni *ni);
/* Builds the present snapshot with ni, which it does not list, or without ni. NULL: no memory. */
struct lnet_conf *lnet_conf_with(const struct lnet_node *node, struct lnet_ni *ni, bool add);

#endif
