/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running document, and its changes: the state of a node always is what its document says.
 *
 * A change is another document. plan.h plans the steps in an order that never opens a hole: more
 * buffers, new NIs, routes added and changed in one publication, settings, then routes removed, NIs
 * removed, fewer buffers. When a step fails, the steps before are undone in reverse and the old
 * document stays. A key that needs a restart of the process refuses the whole change. A key that
 * needs a restart of an NI removes and adds that NI.
 *
 * One change at a time. A change with a time to confirm is undone when the time has passed. If the
 * undo fails, it is tried again until it succeeds or the change is confirmed. Control thread;
 * nothing here blocks.
 */
#ifndef MILLRACE_CONFIG_RUNNING_H
#define MILLRACE_CONFIG_RUNNING_H

#include "control/diff.h"
#include "lib/base/err.h"

#define CFG_ERR_SIZE 512

enum cfg_part { /* settings that take effect together */
    CFG_PART_ROUTING,
    CFG_PART_TIMING,    /* checks of routers, max_interfaces, source_check, rules for routes */
    CFG_PART_HEALTH,    /* sensitivity, recovery, resends, timeouts */
    CFG_PART_ADMISSION, /* egress_share, buffer_wait, guard */
    CFG_PART_ACCESS,    /* the access rules */
    CFG_PART_UDSP,      /* the selection policies */
    CFG_PART_DISCOVERY,
    CFG_PART_LOG,
    CFG_PART_REST, /* drain, names */
    CFG_PARTS
};

/* err: with rc != 0 the error, valid during the call. */
typedef void (*cfg_done_fn)(void *arg, int rc, const struct err *err);

/* The operations that change the node; tests run plans against a model of a node. Each returns 0,
 * or -errno with a sentence; then nothing has changed. An asynchronous one that returns 0 calls
 * done once. */
struct cfg_ops {
    /* Totals; 0 = default, -1 = as it is. */
    int (*buffers)(void *arg, const int totals[LNET_POOLS], struct err *err);
    int (*ni_add)(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                  struct err *err);
    int (*ni_del)(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                  struct err *err);
    /* The tunables that change without a restart of the NI. */
    int (*ni_set)(void *arg, const struct cfg_ni *ni, struct err *err);
    int (*routes)(void *arg, const struct lnet_route_conf *del, unsigned ndel,
                  const struct lnet_route_conf *add, unsigned nadd, struct err *err);
    /* undo: takes them back. Asynchronous. */
    int (*peers)(void *arg, const struct lnet_peer_op *ops, unsigned n, bool undo, cfg_done_fn done,
                 void *done_arg, struct err *err);
    int (*set)(void *arg, enum cfg_part part, const struct cfg *to, struct err *err);
    /* Fills in ni->live; known = false if there is no such NI. */
    void (*live)(void *arg, struct cfg_ni *ni);
    /* cfg_running_expired() is to be called in so many seconds; 0 = not any more. */
    void (*timer)(void *arg, unsigned seconds);
    /* Seconds left of it, for cfg_running_pending(). */
    unsigned (*timer_left)(void *arg);
    /* A document holds. type: "config_applied", "config_confirmed", "config_rolled_back". */
    void (*changed)(void *arg, const char *type, const char *cause, const char *text);
};

struct cfg_running;

/* Takes cfg. source: the file it came from, NULL = none; then it counts as unsaved. NULL: out of
 * memory. Until cfg_running_started() nothing runs: changes only change the document. */
struct cfg_running *cfg_running_new(struct cfg *cfg, const char *source);
void cfg_running_free(struct cfg_running *running);
/* The node runs by the document; from now on changes go through ops. */
void cfg_running_started(struct cfg_running *running, const struct cfg_ops *ops, void *arg);
/* The node has another NI of the document now: its NIs are looked at again. */
void cfg_running_look(struct cfg_running *running);
/* The node is about to stop: changes are refused. */
void cfg_running_stopping(struct cfg_running *running);

/* Valid until the next change. */
const struct cfg *cfg_running_get(const struct cfg_running *running);
/* Returns the document that the change under way leads to, else the running one. */
const struct cfg *cfg_running_target(const struct cfg_running *running);
unsigned cfg_running_revision(const struct cfg_running *running);
const char *cfg_running_source(const struct cfg_running *running); /* "" = none */
bool cfg_running_waiting(const struct cfg_running *running);       /* not started */
bool cfg_running_unsaved(struct cfg_running *running);
/* True while a change waits for its confirmation; seconds that are left. */
bool cfg_running_pending(const struct cfg_running *running, unsigned *left);
/* Whether a change is refused now: 0, or -EBUSY with a sentence that names the remedy. */
int cfg_running_busy(const struct cfg_running *running, struct err *err);

struct cfg_outcome {
    int rc;                /* 0 or -errno: then the old document stands */
    const struct err *err; /* with rc != 0: sentence, remedy, parameter; valid during the call */
    const char *key; /* what it is about, as in struct cfg_change; NULL = nothing in particular */
    bool broken;     /* a step could not be undone: the node is not what the document says */
};
typedef void (*cfg_outcome_fn)(void *arg, const struct cfg_outcome *outcome);

/* Changes the running document to cfg. Takes cfg, also when it refuses the change. done runs once,
 * now or later. confirm_s: seconds to confirm, 0 = none. cause: for the event, e.g. a method's
 * name. */
void cfg_running_change(struct cfg_running *running, struct cfg *cfg, unsigned confirm_s,
                        const char *cause, cfg_outcome_fn done, void *arg);
/* 0 or -ENOENT: nothing waits for a confirmation. */
int cfg_running_confirm(struct cfg_running *running);
/* Takes back what waits for its confirmation. -ENOENT; then done is not called. When that fails the
 * change goes on to wait, and it is tried again by itself after some seconds. */
int cfg_running_rollback(struct cfg_running *running, const char *cause, cfg_outcome_fn done,
                         void *arg);
void cfg_running_expired(struct cfg_running *running);
/* Whether a change to cfg could be applied at all: 0, or -EOPNOTSUPP with a sentence that names the
 * keys which need a restart. */
int cfg_running_check(const struct cfg_running *running, const struct cfg_diff *diff,
                      struct err *err);
/* The document has been written to a file (save.h). */
void cfg_running_saved(struct cfg_running *running, const char *path);

#endif
