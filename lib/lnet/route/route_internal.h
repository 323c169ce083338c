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
    struct lnet_gw_ni *gw_ni_bucket[LNET_GW_BUCKETS];
    struct reactor_task nis_changed; /* lnet_gw_nis_changed() */
    bool nis_posted;                 /* set by the node's home, cleared by control */
    struct reactor_timer nis_timer;
    uint64_t nis_published_us;
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

/* ---- gw_ni.c ---- */
/* Returns the peer NI of a NID, for the gateway with NID gw, with a reference; NULL: no memory.
 * Control. */
struct lnet_gw_ni *lnet_gw_ni_get(struct lnet_node *node, const struct lnet_nid *nid,
                                  const struct lnet_nid *gw);
/* Takes a reference back: of one that no snapshot has listed; of one that none lists any more. The
 * last frees the peer NI. Control. */
void lnet_gw_ni_put(struct lnet_gw_ni *ni);
void lnet_gw_ni_leave(struct lnet_gw_ni *ni);
/* Lets the home of the NID know that it is a gateway's. Control. */
void lnet_gw_ni_bind(struct lnet_gw_ni *ni);
/* Looks which NIDs the gateway's peer has now. Node home. */
void lnet_gw_nis_look(struct lnet_gw *gw);
/* Returns whether the NID that answered a ping with this info is the gateway's. Node home. */
bool lnet_gw_proves(const struct lnet_gw *gw, const struct lnet_nid *nid,
                    const struct lnet_ping_info *info);
/* Returns whether the gateway's peer has NIDs on our nets that are not proved. Sets *nid to one of
 * them, another one each turn. Node home. */
bool lnet_gw_nid_unproved(const struct lnet_gw *gw, unsigned turn, struct lnet_nid *nid);
/* Control, before start; control, before reactors stop. */
void lnet_gw_nis_init(struct lnet_routes *routes);

/* ---- routing.c (control) ---- */
void lnet_routing_init(struct lnet_node *node);

/* ---- event.c (node home) ---- */
/* Is lnet_gw_ni.changed's function: see lnet_gw_ni_changed() of peer/. */
void lnet_gw_ni_changed_home(struct reactor_task *task);
/* Posts an event for each gateway with this peer NI that went down or came up. */
void lnet_gw_ni_report(struct lnet_gw_ni *ni, const char *cause);
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
enum lnet_check_kind {
    LNET_CHECK_GATEWAY, /* whether it is alive */
    LNET_CHECK_PAIR,    /* whether a pair of NIs works again */
    LNET_CHECK_NID,     /* whether a NID that the gateway lists is its own */
};

struct lnet_gw_ping {
    struct lnet_gw_check *check;
    struct lnet_ping_op op;
    enum lnet_check_kind kind;
    uint64_t pair; /* lnet_ni_bit() of the NI that it leaves by */
    bool progress; /* an answer shows that the pair works again */
    uint64_t begun_us;
    uint8_t data[LNET_GW_SINK_MAX];
};

struct lnet_gw_check {
    struct lnet_gw *gw;
    bool leaving; /* the gateway leaves once nothing of the check is under way */
    /* check.c */
    struct lnet_gw_ping alive; /* of the gateway: LNET_CHECK_GATEWAY */
    struct lnet_gw_ping other; /* of what does not work: it may take long to end */
    uint32_t seen_wanted;
    unsigned failures; /* in a row */
    uint64_t next_us;
    struct {
        unsigned tries;
        uint64_t next_us;
        unsigned turn;
    } prove; /* pings of NIDs that never answered */
    uint32_t sink;
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
/* Sets the routes of a gateway by the info that it pushed from a peer NI; is given to
 * lnet_ping_on_push(). */
void lnet_gw_pushed(struct lnet_gw_ni *ni, const struct lnet_ping_info *info);

/* ---- evaluate.c (node home) ---- */
/* Sets the status of a gateway's routes by its ping info: some now, the others bit by bit. */
void lnet_evaluate_routes(struct lnet_gw_check *c, const struct lnet_ping_info *info, bool pushed);
void lnet_evaluate_task(struct reactor_task *task); /* the function of lnet_gw_check.evaluate */

#endif
