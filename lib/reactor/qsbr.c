/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quiescent states. A reactor reports one per iteration and is offline while it sleeps or does not
 * run. So a pointer to a snapshot is valid until the end of the iteration that read it. The control
 * thread publishes and frees; it is not a reader.
 */
#include "lib/reactor/reactor_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include <rte_pause.h>

#define SPINS_BEFORE_YIELD 100

int qsbr_init(struct reactor_env *env)
{
    size_t size =
        RTE_ALIGN_CEIL(rte_rcu_qsbr_get_memsize(REACTOR_MAX), (size_t)RTE_CACHE_LINE_SIZE);

    env->qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, size);
    if (!env->qsbr)
        return -ENOMEM;
    return rte_rcu_qsbr_init(env->qsbr, REACTOR_MAX) == 0 ? 0 : -EINVAL;
}

void qsbr_attach(struct reactor *r)
{
    if (r->index >= REACTOR_CONTROL) /* control and the worker */
        return;
    rte_rcu_qsbr_thread_register(r->env->qsbr, r->index);
    rte_rcu_qsbr_thread_online(r->env->qsbr, r->index);
    r->online = true;
}

void qsbr_detach(struct reactor *r)
{
    if (!r->online)
        return;
    r->online = false;
    rte_rcu_qsbr_thread_offline(r->env->qsbr, r->index);
    rte_rcu_qsbr_thread_unregister(r->env->qsbr, r->index);
}

void reactor_synchronize(struct reactor_env *env)
{
    struct reactor *self = reactor_self();
    uint64_t token;
    unsigned spins = 0;

    /* A test may have bound a reactor to this thread: it holds nothing here. */
    if (self)
        qsbr_offline(self);
    token = rte_rcu_qsbr_start(env->qsbr);
    while (rte_rcu_qsbr_check(env->qsbr, token, false) == 0) {
        /* Unpinned reactors may be waiting for this very core. */
        if (++spins > SPINS_BEFORE_YIELD)
            sched_yield();
        else
            rte_pause();
    }
    if (self)
        qsbr_online(self);
}
