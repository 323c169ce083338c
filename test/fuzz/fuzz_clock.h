/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU clock of a thread stands still: the reactors read it for their statistics, by a system
 * call that takes a seventh of an input's time. Linked with --wrap=clock_gettime. */
#ifndef MILLRACE_TEST_FUZZ_CLOCK_H
#define MILLRACE_TEST_FUZZ_CLOCK_H

#include <time.h>

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_THREAD_CPUTIME_ID)
        return __real_clock_gettime(id, ts);
    *ts = (struct timespec){0};
    return 0;
}

#endif
