/* SPDX-License-Identifier: BSD-3-Clause */
/* The router as a process. Control thread. */
#ifndef MILLRACE_DAEMON_H
#define MILLRACE_DAEMON_H

#include "config/config.h"

/* Runs until SIGTERM, SIGINT or the RPC method shutdown, then drains and stops. Takes cfg, which
 * came from the file path; SIGHUP makes that file the running document. wait: the RPC method start
 * starts the node. Returns 0, or 1 with the reason logged. Once per process. */
int daemon_run(struct cfg *cfg, const char *path, bool wait);

#endif
