/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one mark of lib/reactor/mark.h costs, in cycles: while nobody looks, in a turn that is not
 * looked at, and in one that is. Of many short runs the shortest counts, since whatever else the
 * machine does only makes one longer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/err.h"
#include "lib/reactor/mark.h"

#define MARKS 64
#define RUNS  200000

static uint64_t shortest;

/* Stands for what is between marks, so that they are not merged. */
static inline void barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

static int poll(void *arg)
{
    uint64_t began = rte_rdtsc(), took;

    for (unsigned i = 0; i < MARKS / 2; i++) {
        enum reactor_work was = reactor_mark(REACTOR_WORK_PARSE);

        barrier();
        reactor_mark(was);
        barrier();
    }
    took = rte_rdtsc() - began;
    if (took < shortest)
        shortest = took;
    return 1;
}

static double run(struct reactor *r, unsigned every)
{
    reactor_work_set(r, every);
    reactor_step(r, 0);
    shortest = UINT64_MAX;
    for (unsigned i = 0; i < RUNS; i++)
        reactor_step(r, 0);
    return (double)shortest / MARKS;
}

int main(void)
{
    struct reactor_opts opts = {.prog = "mark_cost", .cores = "auto", .count = 1, .mem_mb = 32};
    struct reactor_poller poller = {.fn = poll};
    struct reactor_env *env;
    struct reactor *r;
    struct err err = {0};

    if (reactor_env_create(&opts, &env, &err) < 0) {
        fprintf(stderr, "mark_cost: %s\n", err.message);
        return EXIT_FAILURE;
    }
    r = reactor_at(env, 0);
    reactor_bind(r);
    reactor_poller_add(r, &poller);
    printf("cycles for each mark: off %.2f", run(r, 0));
    printf(", turns not looked at %.2f", run(r, REACTOR_EVERY_MAX));
    printf(", turns looked at %.2f\n", run(r, 1));
    reactor_bind(reactor_control(env));
    reactor_env_destroy(env);
    return EXIT_SUCCESS;
}
