/* SPDX-License-Identifier: BSD-3-Clause */
/* The router as a process: from a configuration to a running node and back. Control thread. */
#ifndef MILLRACE_DAEMON_H
#define MILLRACE_DAEMON_H

#include "config/config.h"

/* Prints what would run, touching neither devices nor ports. 0, or 1 when it could not run. */
int daemon_check(const struct cfg *cfg);
/* Runs until SIGTERM, SIGINT or the RPC method shutdown, then drains and stops. Takes cfg, which
 * came from the file path; SIGHUP makes that file the running document. wait: the node is started
 * by the RPC method start. 0, or 1 with the reason logged. Once per process. */
int daemon_run(struct cfg *cfg, const char *path, bool wait);

#endif
