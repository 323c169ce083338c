/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between reactors: one single-producer single-consumer ring per ordered pair, so that a
 * preempted sender does not delay the messages of others. When a ring is full the sender keeps the
 * task, and all later ones for that receiver, in a queue of its own and tries again every loop.
 *
 * Waking a sleeper: the receiver sets its flag, fences, and looks at its rings once more; the
 * sender fills the ring, fences, and looks at the flag. One of the two sees the other. Senders
 * fence and ring once per loop for all they have posted, not per mail.
 */
#include "lib/reactor/reactor_internal.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void bit_set(uint64_t *bits, unsigned i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static void bit_clear(uint64_t *bits, unsigned i)
{
    bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static bool bit_test(const uint64_t *bits, unsigned i)
{
    return (bits[i / 64] >> (i % 64)) & 1;
}

/* The lowest bit, which is cleared; -1 when there is none. */
static int bit_take(uint64_t bits[2])
{
    for (int w = 0; w < 2; w++) {
        if (bits[w] != 0) {
            int bit = __builtin_ctzll(bits[w]);

            bits[w] &= bits[w] - 1;
            return w * 64 + bit;
        }
    }
    return -1;
}

size_t reactor_ring_bytes(unsigned entries)
{
    return RTE_ALIGN_CEIL((size_t)rte_ring_get_memsize(entries), (size_t)RTE_CACHE_LINE_SIZE);
}

struct rte_ring *reactor_ring_make(const char *what, unsigned sender, unsigned entries)
{
    struct rte_ring *ring = aligned_alloc(RTE_CACHE_LINE_SIZE, reactor_ring_bytes(entries));
    char name[RTE_RING_NAMESIZE];

    snprintf(name, sizeof(name), "%s from %u", what, sender);
    if (ring && rte_ring_init(ring, name, entries, RING_F_SP_ENQ | RING_F_SC_DEQ) < 0) {
        free(ring);
        return NULL;
    }
    return ring;
}

int mailbox_add_sender(struct reactor *r, unsigned slot)
{
    struct rte_ring *ring =
        r->in[slot] ? r->in[slot] : reactor_ring_make("mail", slot, REACTOR_RING_SIZE);

    __atomic_store_n(&r->in[slot], ring, __ATOMIC_RELEASE);
    return ring ? 0 : -ENOMEM;
}

/* The ring from a sender, or NULL: that of the worker may come while r runs. */
static struct rte_ring *ring_from(const struct reactor *r, unsigned slot)
{
    return __atomic_load_n(&r->in[slot], __ATOMIC_ACQUIRE);
}

int mailbox_init(struct reactor *r)
{
    STAILQ_INIT(&r->own);
    for (unsigned i = 0; i < REACTOR_SLOTS; i++)
        STAILQ_INIT(&r->out[i]);
    for (unsigned i = 0; i <= r->env->count; i++) {
        if (i != r->slot && mailbox_add_sender(r, i) < 0)
            return -ENOMEM;
    }
    r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return r->wake_fd < 0 ? -errno : 0;
}

void mailbox_fini(struct reactor *r)
{
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    for (unsigned i = 0; i < REACTOR_SLOTS; i++)
        free(r->in[i]);
}

void reactor_ring_bell(struct reactor *r)
{
    int saved = errno;
    uint64_t one = 1;

    /* The only failure is a full counter, and then the bell is ringing. */
    if (write(r->wake_fd, &one, sizeof(one)) < 0)
        errno = saved;
}

void mailbox_ring_bells(struct reactor *r)
{
    int slot;

    if ((r->out_posted[0] | r->out_posted[1]) == 0)
        return;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    while ((slot = bit_take(r->out_posted)) >= 0) {
        struct reactor *to = r->env->slot[slot];

        if (relaxed_load(&to->sleeping) != 0)
            reactor_ring_bell(to);
    }
}

static bool ring_send(struct reactor *r, struct reactor *to, struct reactor_task *task)
{
    if (rte_ring_sp_enqueue(to->in[r->slot], task) < 0)
        return false;
    bit_set(r->out_posted, to->slot);
    return true;
}

void reactor_post(struct reactor *to, struct reactor_task *task)
{
    struct reactor *r = reactor_self();

    assert(r && r->env == to->env && task->fn);
    if (to == r) {
        STAILQ_INSERT_TAIL(&r->own, task, link);
        return;
    }
    if (bit_test(r->out_waiting, to->slot) || !ring_send(r, to, task)) {
        STAILQ_INSERT_TAIL(&r->out[to->slot], task, link);
        bit_set(r->out_waiting, to->slot);
        count_add(&r->stats.mails_queued, 1);
    }
    /* Outside a loop there is no later bell, and the worker's loop may block before its end. */
    if (!r->in_loop || r->index == REACTOR_WORKER)
        mailbox_ring_bells(r);
}

bool mailbox_waiting(const struct reactor *r)
{
    return (r->out_waiting[0] | r->out_waiting[1]) != 0;
}

void mailbox_flush(struct reactor *r)
{
    uint64_t todo[2] = {r->out_waiting[0], r->out_waiting[1]};
    int slot;

    while ((slot = bit_take(todo)) >= 0) {
        struct task_list *l = &r->out[slot];

        while (!STAILQ_EMPTY(l)) {
            struct reactor_task *task = STAILQ_FIRST(l);

            STAILQ_REMOVE_HEAD(l, link); /* sent, the task is the receiver's */
            if (ring_send(r, r->env->slot[slot], task))
                continue;
            STAILQ_INSERT_HEAD(l, task, link);
            break;
        }
        if (STAILQ_EMPTY(l))
            bit_clear(r->out_waiting, (unsigned)slot);
    }
}

/* As rte_ring_empty(), which reads the tails plainly while their writers store them. A stale answer
 * is right for its moment: who waits looks again after the wake-up, who takes uses acquire. */
static bool ring_is_empty(const struct rte_ring *ring)
{
    return relaxed_load(&ring->prod.tail) == relaxed_load(&ring->cons.tail);
}

bool mailbox_pending(const struct reactor *r)
{
    if (!STAILQ_EMPTY(&r->own))
        return true;
    for (unsigned i = 0; i <= r->env->count + 1; i++) {
        const struct rte_ring *ring = ring_from(r, i);

        if (ring && !ring_is_empty(ring))
            return true;
    }
    return false;
}

/* Only what was there at the beginning: a task may post itself again. */
static int run_own(struct reactor *r)
{
    struct task_list now = STAILQ_HEAD_INITIALIZER(now);
    int n = 0;

    STAILQ_CONCAT(&now, &r->own);
    call_begin(r);
    for (; !STAILQ_EMPTY(&now); n++) {
        struct reactor_task *task = STAILQ_FIRST(&now);

        STAILQ_REMOVE_HEAD(&now, link);
        task->fn(task);
        call_end(r);
    }
    return n;
}

int mailbox_run(struct reactor *r)
{
    void *tasks[REACTOR_MAIL_BURST];
    int n = 0;

    if (!STAILQ_EMPTY(&r->own))
        n = run_own(r);
    for (unsigned i = 0; i <= r->env->count + 1; i++) {
        struct rte_ring *ring = ring_from(r, i);
        unsigned got;

        if (!ring)
            continue;
        got = rte_ring_sc_dequeue_burst(ring, tasks, REACTOR_MAIL_BURST, NULL);
        if (got > 0)
            call_begin(r);
        for (unsigned k = 0; k < got; k++) {
            struct reactor_task *task = tasks[k]; /* NOLINT: DPDK copies them by twos */

            task->fn(task);
            call_end(r);
        }
        n += (int)got;
    }
    if (n > 0) {
        count_add(&r->stats.mails_in, (uint64_t)n);
        stats_stage(r, REACTOR_STAGE_MAIL);
    }
    return n;
}

void mailbox_send_now(struct reactor *r, struct reactor *to)
{
    for (;;) {
        mailbox_flush(r);
        mailbox_ring_bells(r);
        if (!bit_test(r->out_waiting, to->slot))
            return;
        sched_yield();
    }
}

static void forget(struct reactor *from, struct reactor *to)
{
    void *task;

    while (rte_ring_sc_dequeue(to->in[from->slot], &task) == 0)
        continue;
    STAILQ_INIT(&from->out[to->slot]);
    bit_clear(from->out_waiting, to->slot);
    bit_clear(from->out_posted, to->slot);
}

void mailbox_forget(struct reactor *w)
{
    for (unsigned i = 0; i <= w->env->count; i++) {
        forget(w->env->slot[i], w);
        forget(w, w->env->slot[i]);
    }
    STAILQ_INIT(&w->own);
}

struct settle {
    struct reactor_task task;
    bool read;
};

static void on_settle(struct reactor_task *task)
{
    struct settle *s = container_of(task, struct settle, task);

    __atomic_store_n(&s->read, true, __ATOMIC_RELEASE);
}

void reactor_mail_settle(struct reactor_env *env)
{
    struct settle s[REACTOR_MAX] = {0};
    struct reactor *self = reactor_self();

    for (unsigned i = 0; i < env->count; i++) {
        s[i].task.fn = on_settle;
        s[i].read = !env->slot[i]->running;
        if (!s[i].read)
            reactor_post(env->slot[i], &s[i].task);
    }
    for (unsigned i = 0; i < env->count; i++) {
        while (!__atomic_load_n(&s[i].read, __ATOMIC_ACQUIRE)) {
            mailbox_flush(self);
            mailbox_ring_bells(self);
            sched_yield(); /* a reactor that is not pinned may wait for this very core */
        }
    }
}
