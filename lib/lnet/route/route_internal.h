/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of route/. */
#ifndef MILLRACE_LNET_ROUTE_INTERNAL_H
#define MILLRACE_LNET_ROUTE_INTERNAL_H

#include "lib/lnet/path/path.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/route/route.h"

#define LNET_GW_BUCKETS  1024u
#define LNET_GW_SINK_MAX 4096 /* bytes of a ping info that a check asks for */

struct lnet_routes {
    struct lnet_node *node;
    /* control */
    struct lnet_gw *gw_bucket[LNET_GW_BUCKETS]; /* hash by NID */
    uint64_t routing_since_us;
    struct reactor_timer routing_timer;
    /* node home */
    struct reactor_timer tick;     /* begins a round of checks */
    struct reactor_timer gw_timer; /* goes on with it */
    unsigned gw_next;              /* next gateway of the snapshot to be looked at */
    struct lnet_ping_info scratch;
    struct lnet_route_events { /* goes through all routes and posts events. event.c */
        struct reactor_task task;
        bool busy;
        bool again; /* from the first route */
        unsigned next;
        uint64_t generation;
    } events;
};

/* ---- route.c ---- */
/* Frees a gateway that no reactor knows any more. Node home. */
void lnet_gw_leave(struct lnet_gw *gw);

/* ---- routing.c (control) ---- */
void lnet_routing_init(struct lnet_node *node);

/* ---- event.c (node home) ---- */
/* Is lnet_gw.changed's function: see lnet_gw_changed() of path/. */
void lnet_gw_changed_home(struct reactor_task *task);
/* Posts an event if a gateway went down or came up. */
void lnet_gw_report(struct lnet_gw *gw, const char *cause);
/* Posts events of all routes that went down or came up, soon. */
void lnet_routes_report(struct lnet_node *node);

/* ---- check.c (node home but where marked) ---- */

/* A gateway's last own report, in a ping reply or a PUSH. */
struct lnet_gw_info {
    bool pushed;
    bool forwards;
    bool near_up; /* its NI on our net is up */
    unsigned nnets;
    struct {
        lnet_net_t net;
        bool up;
    } net[LNET_PING_MAX_NIDS];
};

/* A gateway as a peer that is checked: its pings, its info, and the evaluation of its routes. */
struct lnet_gw_check {
    struct lnet_gw *gw;
    bool leaving; /* the gateway leaves once nothing of the check is under way */
    /* check.c */
    struct lnet_ping_op op;
    uint32_t seen_wanted;
    unsigned failures; /* in a row */
    uint64_t next_us;
    uint32_t sink;
    uint8_t data[LNET_GW_SINK_MAX];
    /* evaluate.c */
    struct lnet_gw_info info;
    struct reactor_task evaluate;
    bool evaluating;
    unsigned next_route; /* of this snapshot */
    uint64_t generation;
};

int lnet_gw_check_new(struct lnet_node *node, struct lnet_gw *gw); /* control */
/* Asks for a check at the next tick. Control. */
void lnet_gw_check_soon(struct lnet_gw *gw);
/* Ends the checks of a gateway that leaves. Returns true if none is under way; else lnet_gw_leave()
 * is called when it has ended. */
bool lnet_gw_check_end(struct lnet_gw *gw);
/* Lets the gateway leave if it waits for that: its ping or the evaluation of its routes is done. */
void lnet_gw_check_idle(struct lnet_gw_check *c);
/* Moves checks that are further away than the interval: that was changed. */
void lnet_checks_retime(struct lnet_node *node);
/* Sets the routes of a gateway by the info that it pushed; is given to lnet_ping_on_push(). */
void lnet_gw_pushed(struct lnet_gw *gw, const struct lnet_ping_info *info);

/* ---- evaluate.c (node home) ---- */
/* Sets the status of a gateway's routes by its ping info: some now, the others bit by bit. */
void lnet_evaluate_routes(struct lnet_gw_check *c, const struct lnet_ping_info *info, bool pushed);
void lnet_evaluate_task(struct reactor_task *task); /* the function of lnet_gw_check.evaluate */

#endif
