/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The controller: the node that runs by a document. It makes the environment of reactors, opens
 * ports, makes the node with its NIs and routes, and takes all of that down in one order. It keeps
 * the running document (running.h) and applies each change of the document to the node.
 *
 * Life: controller_create(), then controller_start() at once or when an operator asks for it,
 * controller_run(), controller_take_down(), controller_free(). Listeners learn of each step and of
 * each event. Once per process; control thread.
 */
#ifndef MILLRACE_CONTROLLER_H
#define MILLRACE_CONTROLLER_H

#include "config/place.h"
#include "control/drain.h"
#include "control/running.h"
#include "lib/base/err.h"
#include "lib/lnet/lnet.h"

struct cfg_report;
struct control_restart;
struct controller;
struct inet;
struct inet_event;
struct tcp;

/* An event of the controller itself. */
struct control_event {
    const char *type;              /* as in docs/jsonrpc.md: "config_applied", "ni_absent", … */
    const char *cause;             /* one or several words */
    const char *text;              /* a sentence */
    const struct lnet_ni_conf *ni; /* the NI concerned; NULL: none */
    const struct lnet_nid *peer;   /* who is concerned; NULL: none, or not known */
    uint64_t count;                /* of "drops" */
};

enum control_phase {
    CONTROL_STARTED,  /* the node runs by its document */
    CONTROL_READY,    /* the addresses of ports have been checked for duplicates too */
    CONTROL_STOPPING, /* an orderly stop begins */
    CONTROL_HALTED,   /* reactors have stopped; the node is complete */
    CONTROL_ENDED,    /* the node has answered what waited; the controller frees the node next */
};

/* Callbacks; each may be NULL. */
struct control_listener {
    void (*phase)(void *arg, enum control_phase phase);
    void (*event)(void *arg, const struct control_event *event);
    void (*port)(void *arg, const struct inet_event *event);
    void *arg;
    struct control_listener *next; /* the controller's own */
};

struct controller {
    struct reactor_env *env;
    struct lnet_node *node;      /* NULL: not started */
    struct inet *inet;           /* IP on the ports; NULL: there are no ports */
    struct tcp *tcp;             /* own TCP on the ports */
    struct cfg_running *running; /* the document */
    unsigned drain_s;            /* of a stop that names no time */
    uint64_t start_us;           /* when the process began, reactor_now_us() clock */
    /* Starts the node of a process that waits for this (--wait-for-rpc). 0, or -errno with a
     * sentence. NULL: the process does not wait. */
    int (*start)(struct controller *c, struct err *err);
    /* Begins an orderly stop and returns at once. A second call does nothing. */
    void (*shutdown)(struct controller *c, unsigned drain_s);
    /* The controller's own. */
    struct control_listener *listeners;
    struct control_drain drain;      /* drain.h */
    struct control_absent *absent;   /* absent.h; NULL: no NI is absent */
    struct control_restart *restart; /* restart.h; NULL: there is no state directory */
    struct reactor_timer confirm;    /* of a change that waits for its confirmation */
    uint64_t confirm_us;             /* when the timer fires, reactor_now_us() clock */
};

/* Prints what would run and touches neither devices nor ports. 0, or 1 when it could not run. */
int controller_check(const struct cfg *cfg);

/* Takes cfg, which came from the file path, and makes the environment of reactors. wait: the node
 * is started by controller->start. 0, or -errno with a sentence. */
int controller_create(struct cfg *cfg, const char *path, bool wait, struct controller **out,
                      struct err *err);
/* The listener lives as long as the controller. */
void controller_listen(struct controller *c, struct control_listener *listener);
/* Starts the node of the document. 0, or -errno with a sentence; then controller_take_down(). */
int controller_start(struct controller *c, struct err *err);
/* Runs the control loop until the node has stopped. Returns true after an orderly stop. */
bool controller_run(struct controller *c);
/* A signal asks for an end: begins an orderly stop; the second time ends controller_run(). */
void controller_interrupt(struct controller *c);
/* Ends and frees the node, or the parts of one. Reactors stop, requests to reactors are answered,
 * the node ends, ports stop, and calls that wait are ended; then all is freed. */
void controller_take_down(struct controller *c);
/* After controller_take_down(). */
void controller_free(struct controller *c);

/* Accepts changes of the document for c->node from now on. controller_start() does so by itself. */
void control_apply_start(struct controller *c);

/* ---- reports to the listeners: listener.c ---- */

void control_enter(struct controller *c, enum control_phase phase);
void control_happened(struct controller *c, const struct control_event *event);
void control_port_happened(struct controller *c, const struct inet_event *event);

/* ---- documents from files: reload.c ---- */

/* Opens the place of a file that a client names: the daemon reads and writes it with its own
 * rights. The file, and each link that leads to it, must be below the folder of `source`, the file
 * of the start, or below $STATE_DIRECTORY (folders separated by ':'). 0 or -errno, -EACCES
 * elsewhere. */
int control_place_open(struct cfg_place *place, const char *source, const char *path);
/* Reads a regular file: a read never waits. 0 or -errno. */
int control_read_document(const char *path, char **text, size_t *len);
/* Returns the errors, or the warnings, of a report as lines of one text, to be freed; NULL: out of
 * memory. */
char *control_messages(const struct cfg_report *report, bool errors);
/* Makes a file the running document, as config_apply with mode replace does; reports the outcome
 * with an event and with say(). */
void controller_reload(struct controller *c, const char *path,
                       void (*say)(void *arg, bool ok, const char *text), void *arg);

#endif
