/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a restart of the process short for its peers. While the router runs, it keeps its peers in
 * the file peers.json in $STATE_DIRECTORY (state_file.h has the content). The next process reads
 * the file.
 *
 * An address of a port that was used a moment ago is used at once and checked meanwhile. When the
 * NIs are up, connections of own TCP from before the restart are ended at the peers. The kernel
 * does the same for host sockets. Then each peer is connected to and sent a ping: a kernel node
 * that gave up the router believes in it again with the first message (docs/protocol/lnet-core.md
 * §3.8). No message waits for a connection, since it would keep a credit of the NI.
 *
 * Life: control_restart_open() before the ports are opened, control_restart_begin() when the NIs
 * are up, control_restart_stop(), control_restart_free(). When the peers were called, the file is
 * written at most once a second, only when it changed, and not while the router stops
 * (state_writer.h). Control thread.
 */
#ifndef MILLRACE_CONTROL_RESTART_H
#define MILLRACE_CONTROL_RESTART_H

#include <stdbool.h>

struct control_restart;
struct controller;
struct inet_addr;

/* Reads the file. Returns NULL without $STATE_DIRECTORY, or when there is no memory. NULL is
 * allowed below. */
struct control_restart *control_restart_open(struct controller *c);
/* Returns whether the address was used by a process that ran a moment ago. */
bool control_restart_had(const struct control_restart *r, const struct inet_addr *addr);
/* The NIs are up: begins to end old connections, and to ping peers. */
void control_restart_begin(struct control_restart *r);
/* The node begins to stop, or has stopped. Requests to reactors may still be under way. */
void control_restart_stop(struct control_restart *r);
/* The node has been freed, and with it all requests. */
void control_restart_free(struct control_restart *r);

#endif
