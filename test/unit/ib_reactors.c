/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/rdma_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>

#include <cmocka.h>

#define FD_BASE 1000

struct reactor {
    unsigned index;
    bool asleep;
    unsigned idle; /* turns without work */
    struct reactor_task *mail, **mail_tail;
    struct reactor_timer *timers, **timers_tail; /* in the order armed */
    TAILQ_HEAD(, reactor_poller) pollers;
    struct reactor_fd *fds[IR_FDS];
};

struct reactor_env {
    struct reactor reactor[IR_REACTORS + 1];
};

/* Of lib/reactor/wait.h: there is no reactor. */
__thread void *reactor_waits_on;

static struct reactor_env env;
static struct reactor *self;
static uint64_t now_us;
static bool ready[IR_FDS];
static int fds;
static bool spinning;

void ir_init(void)
{
    memset(&env, 0, sizeof(env));
    memset(ready, 0, sizeof(ready));
    fds = 0;
    spinning = false;
    for (unsigned i = 0; i <= IR_REACTORS; i++) {
        env.reactor[i].index = i < IR_REACTORS ? i : REACTOR_CONTROL;
        env.reactor[i].mail_tail = &env.reactor[i].mail;
        TAILQ_INIT(&env.reactor[i].pollers);
        env.reactor[i].timers_tail = &env.reactor[i].timers;
    }
    self = reactor_control(&env);
    now_us = 1000 * IR_SEC;
}

struct reactor_env *ir_env(void)
{
    return &env;
}

/* ---- who is who ---- */

struct reactor *reactor_self(void)
{
    return self;
}

unsigned reactor_index(const struct reactor *r)
{
    return r->index;
}

unsigned reactor_count(const struct reactor_env *e)
{
    (void)e;
    return IR_REACTORS;
}

struct reactor *reactor_at(struct reactor_env *e, unsigned index)
{
    assert_true(index < IR_REACTORS);
    return &e->reactor[index];
}

struct reactor *reactor_control(struct reactor_env *e)
{
    return &e->reactor[IR_REACTORS];
}

struct reactor_env *reactor_env_of(const struct reactor *r)
{
    (void)r;
    return &env;
}

void ir_spin(bool spins)
{
    spinning = spins;
}

bool reactor_spins(const struct reactor *r)
{
    (void)r;
    return spinning;
}

struct reactor *ir_at(struct reactor *r)
{
    struct reactor *before = self;

    r->asleep = false; /* what is called on a reactor is work of a turn */
    self = r;
    return before;
}

struct reactor *ir_on(unsigned i)
{
    return ir_at(&env.reactor[i]);
}

void ir_restore(struct reactor *before)
{
    self = before;
}

/* ---- mail ---- */

void reactor_post(struct reactor *to, struct reactor_task *task)
{
    task->link.stqe_next = NULL;
    *to->mail_tail = task;
    to->mail_tail = &task->link.stqe_next;
}

static int run_mail(struct reactor *r)
{
    struct reactor_task *list = r->mail;
    int n = 0;

    r->mail = NULL;
    r->mail_tail = &r->mail;
    while (list) {
        struct reactor_task *t = list;

        list = t->link.stqe_next;
        t->fn(t);
        n++;
    }
    return n;
}

/* ---- time ---- */

uint64_t reactor_now_us(void)
{
    return now_us;
}

void reactor_timer_init(struct reactor_timer *t, reactor_timer_fn fn)
{
    *t = (struct reactor_timer){.fn = fn};
}

void reactor_timer_cancel(struct reactor_timer *t)
{
    struct reactor *r = self;

    if (!t->link.le_prev)
        return;
    assert_true(r->index < IR_REACTORS);
    *t->link.le_prev = t->link.le_next;
    if (t->link.le_next)
        t->link.le_next->link.le_prev = t->link.le_prev;
    else if (r->timers_tail == &t->link.le_next)
        r->timers_tail = t->link.le_prev;
    else
        fail_msg("a timer of another reactor was cancelled");
    t->link.le_prev = NULL;
}

void reactor_timer_arm(struct reactor_timer *t, uint64_t delay_us)
{
    assert_true(self && self->index < IR_REACTORS);
    reactor_timer_cancel(t);
    /* The wheel has ticks of 1 ms. */
    t->expires_us = (now_us + delay_us + 999) / 1000 * 1000;
    t->link.le_next = NULL;
    t->link.le_prev = self->timers_tail;
    *self->timers_tail = t;
    self->timers_tail = &t->link.le_next;
}

static struct reactor_timer *due(const struct reactor *r)
{
    struct reactor_timer *best = NULL;

    for (struct reactor_timer *t = r->timers; t; t = t->link.le_next) {
        if (t->expires_us <= now_us && (!best || t->expires_us < best->expires_us))
            best = t;
    }
    return best;
}

static int run_timers(struct reactor *r)
{
    struct reactor_timer *t = due(r);

    /* One at a time, as what is armed now fires in the next round. */
    if (!t)
        return 0;
    reactor_timer_cancel(t);
    t->fn(t);
    return 1;
}

static uint64_t next_timer(void)
{
    uint64_t next = UINT64_MAX;

    for (unsigned i = 0; i < IR_REACTORS; i++) {
        for (struct reactor_timer *t = env.reactor[i].timers; t; t = t->link.le_next)
            next = t->expires_us < next ? t->expires_us : next;
    }
    return next;
}

/* ---- pollers and descriptors ---- */

static bool has_poller(const struct reactor *r, const struct reactor_poller *p)
{
    const struct reactor_poller *at;

    TAILQ_FOREACH(at, &r->pollers, link) {
        if (at == p)
            return true;
    }
    return false;
}

void reactor_poller_add(struct reactor *r, struct reactor_poller *p)
{
    assert_ptr_equal(r, self);
    assert_false(has_poller(r, p));
    TAILQ_INSERT_TAIL(&r->pollers, p, link);
}

void reactor_poller_del(struct reactor *r, struct reactor_poller *p)
{
    assert_ptr_equal(r, self);
    if (has_poller(r, p))
        TAILQ_REMOVE(&r->pollers, p, link);
}

int ir_fd_new(void)
{
    assert_true(fds < IR_FDS);
    return FD_BASE + fds++;
}

void ir_fd_ready(int fd, bool is)
{
    ready[fd - FD_BASE] = is;
}

int reactor_fd_add(struct reactor_fd *f, int fd, uint32_t events, reactor_fd_fn fn)
{
    if (fd < FD_BASE) /* of something real, a link watcher: no event comes in these tests */
        return 0;
    assert_true(fd < FD_BASE + fds && self->index < IR_REACTORS);
    assert_null(self->fds[fd - FD_BASE]);
    *f = (struct reactor_fd){.fd = fd, .events = events, .fn = fn, .registered = true};
    self->fds[fd - FD_BASE] = f;
    return 0;
}

int reactor_fd_mod(struct reactor_fd *f, uint32_t events)
{
    f->events = events;
    return 0;
}

void reactor_fd_del(struct reactor_fd *f)
{
    if (!f->registered)
        return;
    assert_ptr_equal(self->fds[f->fd - FD_BASE], f);
    self->fds[f->fd - FD_BASE] = NULL;
    f->registered = false;
}

static bool readable(const struct reactor *r)
{
    for (int i = 0; i < fds; i++) {
        if (r->fds[i] && ready[i])
            return true;
    }
    return false;
}

static int run_fds(struct reactor *r)
{
    int n = 0;

    for (int i = 0; i < fds; i++) {
        if (!r->fds[i] || !ready[i] || !(r->fds[i]->events & EPOLLIN))
            continue;
        r->fds[i]->fn(r->fds[i], EPOLLIN);
        if (r->fds[i] && ready[i])
            fail_msg("a descriptor stays readable after its callback");
        n++;
    }
    return n;
}

static int run_pollers(struct reactor *r)
{
    struct reactor_poller *next;
    int work = 0;

    for (struct reactor_poller *p = TAILQ_FIRST(&r->pollers); p; p = next) {
        next = TAILQ_NEXT(p, link);
        fake_leave();
        work += p->fn(p->arg);
        fake_enter();
    }
    return work;
}

/* ---- turns ---- */

static bool may_sleep(const struct reactor *r)
{
    const struct reactor_poller *p;

    TAILQ_FOREACH(p, &r->pollers, link) {
        if (p->max_sleep_us != UINT64_MAX)
            return false;
    }
    return true;
}

int ir_turn(unsigned index)
{
    struct reactor *r = &env.reactor[index], *before = self;
    int work = 0;

    if (r->asleep && !r->mail && !due(r) && !readable(r))
        return 0;
    r->asleep = false;
    self = r;
    work += run_pollers(r);
    work += run_fds(r);
    work += run_mail(r);
    work += run_timers(r);
    r->idle = work > 0 ? 0 : r->idle + 1;
    if (r->idle >= 2 && !spinning && may_sleep(r)) {
        /* Once more between the decision and the sleep. */
        work += run_pollers(r);
        r->asleep = work == 0 && may_sleep(r);
    }
    self = before;
    return work;
}

void ir_run(void)
{
    unsigned rounds = 0, idle = 0;

    while (idle < 4) { /* so that reactors that may do so go to sleep */
        int work = 0;

        for (unsigned i = 0; i <= IR_REACTORS; i++)
            work += ir_turn(i);
        idle = work > 0 ? 0 : idle + 1;
        if (++rounds > 1000000)
            fail_msg("the reactors never come to rest");
    }
}

void ir_skip(uint64_t us)
{
    now_us += us;
}

void ir_advance(uint64_t us)
{
    uint64_t end = now_us + us, next;

    ir_run();
    while ((next = next_timer()) <= end) {
        now_us = next > now_us ? next : now_us;
        ir_run();
    }
    now_us = end;
    ir_run();
}

bool ir_asleep(unsigned index)
{
    return env.reactor[index].asleep;
}

bool ir_idle(void)
{
    for (unsigned i = 0; i <= IR_REACTORS; i++) {
        if (env.reactor[i].timers || !TAILQ_EMPTY(&env.reactor[i].pollers) || env.reactor[i].mail)
            return false;
    }
    return true;
}
