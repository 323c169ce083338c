/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker: a reactor that may block. */
#include "lib/reactor/worker.h"
#include "lib/reactor/reactor_internal.h"

#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>

#define LAST_STEPS 1000 /* iterations after the stop, at most */

static void *worker_main(void *arg)
{
    struct reactor *w = arg;

    reactor_bind(w);
    while (__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE) == 0)
        reactor_step(w, UINT64_MAX);
    for (unsigned i = 0; i < LAST_STEPS && reactor_step(w, 0) > 0; i++)
        continue;
    reactor_bind(NULL);
    return NULL;
}

static int thread_start(struct reactor *w, const char *name)
{
    sigset_t all, before;
    int rc;

    w->stop = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_setname_np(w->thread, name);
    return -rc;
}

int reactor_worker_start(struct reactor_env *env, const char *name, struct reactor **out)
{
    unsigned slot = env->count + 1;
    int rc = 0;

    assert(reactor_self() == reactor_control(env));
    if (!env->slot[slot])
        rc = reactor_create(env, slot, &env->slot[slot]);
    for (unsigned i = 0; rc == 0 && i <= env->count; i++)
        rc = mailbox_add_sender(env->slot[i], slot);
    if (rc == 0)
        rc = thread_start(env->slot[slot], name);
    if (rc == 0)
        *out = env->slot[slot];
    return rc;
}

void reactor_worker_stop(struct reactor *w)
{
    reactor_stop(w);
    pthread_join(w->thread, NULL);
    mailbox_forget(w);
    reactor_clear(w);
}

struct call {
    struct reactor_task task;
    struct reactor_task *inner;
    sem_t done;
};

static void on_call(struct reactor_task *task)
{
    struct call *call = container_of(task, struct call, task);

    call->inner->fn(call->inner);
    sem_post(&call->done);
}

void reactor_worker_call(struct reactor *w, struct reactor_task *task)
{
    struct reactor *self = reactor_self();
    struct call call = {.task.fn = on_call, .inner = task};

    sem_init(&call.done, 0, 0);
    reactor_post(w, &call.task);
    mailbox_send_now(self, w); /* the end of this loop, if there is one, would be too late */
    while (sem_wait(&call.done) < 0)
        continue; /* a signal */
    sem_destroy(&call.done);
}
