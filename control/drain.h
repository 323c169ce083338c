/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A drain: the router is to be stopped without the loss of a message. It tells all peers that it is
 * down (lnet_drain_set()), goes on forwarding, and looks once a second whether it is still used.
 *
 * Nodes that acknowledged the PUSH, or have pinged the router since, choose another gateway at
 * once. All others learn it by their own router check (docs/protocol/lnet-core.md §3.8), so the
 * router waits for one interval of it. Nothing in a message says why a node chose this router. So
 * the router counts as unused when it forwarded no message for a while, and no message is in it.
 *
 * States: off, draining, safe, late (the time limit has passed). Each look decides anew between the
 * last three. Control thread; the functions of the first part are pure.
 */
#ifndef MILLRACE_CONTROL_DRAIN_H
#define MILLRACE_CONTROL_DRAIN_H

#include "lib/base/err.h"
#include "lib/lnet/lnet.h"

struct controller;

#define DRAIN_TIMEOUT_S 90       /* default: longer than the interval of router checks, 60 s */
#define DRAIN_QUIET_US  5000000  /* without a forwarded message */
#define DRAIN_CHECK_US  10000000 /* that a node's router check may be late */

enum drain_state {
    DRAIN_OFF,
    DRAIN_DRAINING,
    DRAIN_SAFE,
    DRAIN_LATE,
    DRAIN_STATES
};
const char *drain_state_name(enum drain_state state); /* "off", "draining", "safe", "late" */

/* The result of one look. */
struct drain_look {
    uint64_t now_us;
    uint64_t forwarded; /* messages, since some time */
    unsigned in_flight; /* forwarded messages in the node, and headers that wait */
    unsigned nodes;     /* peers with a connection */
    unsigned told;      /* of these, know of the drain */
};

struct drain {
    enum drain_state state;
    uint64_t begun_us, until_us;
    uint64_t check_us; /* after this time also nodes that were not told know, from begun_us on */
    uint64_t used_us;  /* when the router was used last */
    unsigned recent;   /* messages forwarded between the last two looks */
    struct drain_look last;
};

/* Begins a drain. forwarded: the present count. check_us: the interval of router checks. */
void drain_begin(struct drain *d, uint64_t now_us, uint64_t forwarded, uint64_t timeout_us,
                 uint64_t check_us);
/* Takes what a look saw, and decides the state. Returns whether the state changed. */
bool drain_step(struct drain *d, const struct drain_look *seen);
/* Returns whether nodes may be connected that do not know of the drain. */
bool drain_is_unaware(const struct drain *d);

/* ---- the drain of a controller's node ---- */

struct control_drain {
    struct drain d;
    struct controller *c;
    struct reactor_timer timer;
    bool ready;              /* the timer is initialised */
    bool looking;            /* a walk through the peers is under way */
    struct drain_look seen;  /* what it has seen so far */
    struct lnet_nid primary; /* of the peer of its last row, */
    bool up, told;           /* which is connected, and knows of the drain */
};

/* Begins a drain, or gives the one that goes on another time limit from now on. -EBUSY: the node
 * stops; -ENOMEM. */
int control_drain_begin(struct controller *c, unsigned timeout_s, struct err *err);
/* Ends a drain: peers learn at once that the NIs are what they are. Errors as above. */
int control_drain_undo(struct controller *c, struct err *err);
/* The node begins to stop, or has stopped. A walk may still be under way. */
void control_drain_stop(struct controller *c);

#endif
