/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The worker of an environment: a reactor on a thread of its own, whose callbacks may block, lock
 * and allocate. It does what a data-path reactor must not: open devices, register memory, wait for
 * the kernel. Reactors and the worker exchange tasks by reactor_post(), as reactors do among
 * themselves. The worker has timers, descriptors and pollers, too; it sleeps when it is idle, and
 * it counts neither in reactor_count() nor for reactor_synchronize().
 */
#ifndef MILLRACE_WORKER_H
#define MILLRACE_WORKER_H

#include "lib/reactor/reactor.h"

/* Starts the worker; an environment has one at most. The name is that of its thread. Control
 * thread. Returns 0 or -errno. */
int reactor_worker_start(struct reactor_env *env, const char *name, struct reactor **out);
/* Stops the worker after it has run what was posted to it, and forgets its timers, descriptors and
 * pollers, and tasks of its own that no reactor has run. Reactors must have been stopped, unless
 * nothing was posted to or by the worker. Control thread; blocks. */
void reactor_worker_stop(struct reactor *worker);
/* Runs the task on the worker and waits until it has run. Any other reactor's thread; blocks. */
void reactor_worker_call(struct reactor *worker, struct reactor_task *task);

#endif
