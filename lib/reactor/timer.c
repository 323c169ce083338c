/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hierarchical timer wheel with a tick of 1 ms.
 *
 * The trick: a timer's level is the highest group of 6 bits in which its tick differs from the
 * wheel's. All timers of a level then share every higher bit with the wheel, so slots never wrap.
 * Every timer of a lower level is due before every timer of a higher one. The next event is the
 * first busy slot of the first busy level. When the wheel reaches a slot above level 0, the slot's
 * timers differ from it in lower groups only and are put in again (the cascade).
 */
#include "lib/reactor/reactor_internal.h"

#include <assert.h>

static uint64_t tick_of(uint64_t us)
{
    return us / WHEEL_TICK_US + (us % WHEEL_TICK_US != 0);
}

void wheel_init(struct timer_wheel *w, uint64_t now_us)
{
    *w = (struct timer_wheel){.tick = now_us / WHEEL_TICK_US};
    w->earliest = w->tick + 1;
}

/* A timer is armed while its le_prev is set. */
static void list_unlink(struct reactor_timer *t)
{
    LIST_REMOVE(t, link);
    t->link.le_prev = NULL;
}

static void wheel_insert(struct timer_wheel *w, struct reactor_timer *t)
{
    uint64_t tick = tick_of(t->expires_us);
    uint64_t differing = (tick ^ w->tick) | (WHEEL_SLOTS - 1);
    unsigned level = (63 - (unsigned)__builtin_clzll(differing)) / WHEEL_BITS;
    unsigned slot = (tick >> (level * WHEEL_BITS)) & (WHEEL_SLOTS - 1);

    LIST_INSERT_HEAD(&w->slot[level][slot], t, link);
    w->busy[level] |= UINT64_C(1) << slot;
}

void wheel_clear(struct timer_wheel *w)
{
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++) {
            while (!LIST_EMPTY(&w->slot[level][slot]))
                list_unlink(LIST_FIRST(&w->slot[level][slot]));
        }
        w->busy[level] = 0;
    }
}

void wheel_arm(struct timer_wheel *w, struct reactor_timer *t, uint64_t expires_us)
{
    wheel_cancel(w, t);
    /* Kept in expires_us, so that a cascade finds the same tick again. */
    t->expires_us = max(expires_us, w->earliest * WHEEL_TICK_US);
    wheel_insert(w, t);
}

void wheel_cancel(struct timer_wheel *w, struct reactor_timer *t)
{
    uintptr_t first = (uintptr_t)&w->slot[0][0];
    uintptr_t head = (uintptr_t)t->link.le_prev;
    size_t index;

    if (!t->link.le_prev)
        return;
    list_unlink(t);
    /* Its predecessor was a timer, the list being fired, or a slot. A slot left empty loses its
     * bit, or the reactor would wake for nothing. */
    if (head < first || head >= first + sizeof(w->slot) || *(struct reactor_timer **)head != NULL)
        return;
    index = (head - first) / sizeof(w->slot[0][0]);
    w->busy[index / WHEEL_SLOTS] &= ~(UINT64_C(1) << (index % WHEEL_SLOTS));
}

/* The first busy slot and the tick at which it begins. False when the wheel is empty. */
static bool wheel_first(const struct timer_wheel *w, unsigned *level, unsigned *slot,
                        uint64_t *start)
{
    for (unsigned l = 0; l < WHEEL_LEVELS; l++) {
        unsigned shift = l * WHEEL_BITS;
        uint64_t above;

        if (w->busy[l] == 0)
            continue;
        *level = l;
        *slot = (unsigned)__builtin_ctzll(w->busy[l]);
        above = w->tick >> (shift + WHEEL_BITS) << (shift + WHEEL_BITS);
        *start = above | (uint64_t)*slot << shift;
        return true;
    }
    return false;
}

/* Empties a slot into *out, oldest first (slots are filled at the front). */
static void wheel_take(struct timer_wheel *w, unsigned level, unsigned slot, struct timer_list *out)
{
    struct reactor_timer *t;

    LIST_INIT(out);
    w->busy[level] &= ~(UINT64_C(1) << slot);
    while ((t = LIST_FIRST(&w->slot[level][slot]))) {
        LIST_REMOVE(t, link);
        LIST_INSERT_HEAD(out, t, link);
    }
}

unsigned wheel_advance(struct timer_wheel *w, uint64_t now_us)
{
    uint64_t target = now_us / WHEEL_TICK_US;
    unsigned level, slot, fired = 0;
    struct timer_list taken;
    struct reactor_timer *t;
    uint64_t start;

    if (target <= w->tick)
        return 0;
    w->earliest = target + 1;
    while (wheel_first(w, &level, &slot, &start) && start <= target) {
        w->tick = start;
        wheel_take(w, level, slot, &taken);
        if (w->owner)
            call_begin(w->owner);
        /* One at a time from the front: a callback may cancel any other timer of the list. */
        while ((t = LIST_FIRST(&taken))) {
            list_unlink(t);
            if (level > 0) {
                wheel_insert(w, t);
            } else {
                fired++;
                t->fn(t);
                if (w->owner)
                    call_end(w->owner);
            }
        }
    }
    w->tick = target;
    return fired;
}

uint64_t wheel_next_us(const struct timer_wheel *w)
{
    unsigned level, slot;
    uint64_t start;

    return wheel_first(w, &level, &slot, &start) ? start * WHEEL_TICK_US : UINT64_MAX;
}

/* ---- timers of the calling reactor ---- */

void reactor_timer_init(struct reactor_timer *t, reactor_timer_fn fn)
{
    *t = (struct reactor_timer){.fn = fn};
}

void reactor_timer_arm(struct reactor_timer *t, uint64_t delay_us)
{
    struct reactor *r = reactor_self();

    assert(r && t->fn);
    /* The clock, not the time cached by the loop: that one is older than "now", and the timer would
     * be early by as much. */
    wheel_arm(&r->wheel, t, clock_now_us() + min(delay_us, REACTOR_DELAY_MAX));
}

void reactor_timer_cancel(struct reactor_timer *t)
{
    if (!reactor_timer_armed(t))
        return;
    assert(reactor_self());
    wheel_cancel(&reactor_self()->wheel, t);
}
