/* SPDX-License-Identifier: BSD-3-Clause */
/* System calls of a reactor's iteration that find nothing where a test steps the reactors and no
 * descriptor is used: a fifth of an input's time. Linked with --wrap=epoll_pwait2 and
 * --wrap=getrusage. */
#ifndef MILLRACE_TEST_FUZZ_CALLS_H
#define MILLRACE_TEST_FUZZ_CALLS_H

#include "test/fuzz/fuzz.h"

#include <sys/epoll.h>
#include <sys/resource.h>

int __wrap_epoll_pwait2(int epoll, struct epoll_event *events, int most,
                        const struct timespec *limit, const sigset_t *signals);
int __real_getrusage(int who, struct rusage *usage);
int __wrap_getrusage(int who, struct rusage *usage);

int __wrap_epoll_pwait2(int epoll, struct epoll_event *events, int most,
                        const struct timespec *limit, const sigset_t *signals)
{
    (void)epoll, (void)events, (void)most, (void)signals;
    HOLDS(limit && limit->tv_sec == 0 && limit->tv_nsec == 0); /* a step waits for nothing */
    return 0;
}

int __wrap_getrusage(int who, struct rusage *usage)
{
    if (who != RUSAGE_THREAD) /* libFuzzer's look at the memory in use */
        return __real_getrusage(who, usage);
    memset(usage, 0, sizeof(*usage));
    return 0;
}

#endif
