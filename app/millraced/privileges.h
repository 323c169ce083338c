/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The user and capabilities of the process. Both belong to threads, and a thread inherits them: so
 * they are given up before the first thread is made. Devices and ports are then opened by the
 * capabilities that remain. Files that the user needs are given to the user before.
 */
#ifndef MILLRACE_PRIVILEGES_H
#define MILLRACE_PRIVILEGES_H

#include "config/config.h"
#include "lib/base/err.h"

/* Changes to the configured user if the process is root, and gives up all capabilities that the
 * configuration does not need. From then on no program gives the process more (no_new_privs).
 * Returns 0 or -errno with a sentence. Once per process, while it has a single thread. */
int privileges_drop(const struct cfg *cfg, struct err *err);
/* Logs the user and the capabilities, and warns of a file that the user cannot read again. */
void privileges_log(const struct cfg *cfg, const char *file);

#endif
