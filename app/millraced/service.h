/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports the process to the service manager (systemd): READY, RELOADING, STOPPING, a status
 * line, and the watchdog. The watchdog message is sent only if every reactor has answered a task
 * since the last one, so a reactor that hangs makes systemd restart the process. Without
 * $NOTIFY_SOCKET nothing is sent. Control thread.
 */
#ifndef MILLRACED_SERVICE_H
#define MILLRACED_SERVICE_H

#include <stdbool.h>

#include "control/controller.h"

struct service;

/* The controller exists and its loop does not run yet. Returns NULL: out of memory. */
struct service *service_start(struct controller *c);
/* The controller has been taken down. NULL is allowed. */
void service_stop(struct service *s);

/* The process has reached a phase. */
void service_phase(struct service *s, enum control_phase phase);
/* The process waits for the method start. */
void service_waiting(struct service *s);
/* A reload begins; service_reloaded() follows. */
void service_reloading(struct service *s);
void service_reloaded(struct service *s, bool ok);

#endif
