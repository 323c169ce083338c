/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter of system calls. The filter allows the system calls that the running program needs. */
#ifndef MILLRACE_CALL_FILTER_H
#define MILLRACE_CALL_FILTER_H

#include "config/config.h"
#include "lib/base/err.h"

/* Sets the filter for all threads of the process, and for those that they make. Needs
 * no_new_privs in each of them. Returns 0 or -errno with a sentence. */
int call_filter_start(enum cfg_seccomp mode, struct err *err);

#endif
