/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of lib/reactor share. EAL starts once per process: one environment per test
 * program. */
#ifndef MILLRACE_REACTOR_TEST_H
#define MILLRACE_REACTOR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/err.h"
#include "lib/reactor/reactor.h"

#define DEADLINE_US (60 * UINT64_C(1000000)) /* for what takes microseconds on an idle machine */

static struct reactor_env *env;

static inline void test_env_make(enum reactor_idle idle, const char *cores, unsigned count)
{
    struct reactor_opts opts = {
        .prog = "millrace-test",
        .cores = cores,
        .count = count,
        .idle = idle,
        .mem_mb = 32,
    };
    struct err err = {0};

    if (reactor_env_create(&opts, &env, &err) < 0)
        fail_msg("%s", err.message);
}

/* Evaluates cond over and over, stepping the control reactor, until it holds; fails the test at the
 * deadline. */
#define WAIT_FOR(cond)                                                                             \
    do {                                                                                           \
        uint64_t until_us = reactor_now_us() + DEADLINE_US;                                        \
                                                                                                   \
        while (!(cond)) {                                                                          \
            if (reactor_now_us() > until_us)                                                       \
                fail_msg("never happened: %s", #cond);                                             \
            reactor_step(reactor_control(env), 100);                                               \
        }                                                                                          \
    } while (0)

#define ATOMIC_GET(var)      __atomic_load_n(&(var), __ATOMIC_ACQUIRE)
#define ATOMIC_SET(var, val) __atomic_store_n(&(var), (val), __ATOMIC_RELEASE)

/* A small generator with a fixed seed: the same sequence every run. */
static inline uint64_t test_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
