/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which turns are looked at, and what was seen in them. Marks gather in `round` and are settled
 * where the loop's own stages are, so that both tell the same cycles: those of rounds that found
 * nothing to do are work of neither.
 */
#include "lib/reactor/mark.h"
#include "lib/reactor/reactor_internal.h"

__thread struct reactor_marks *reactor_marks_on;
__thread struct reactor_wait_hist *reactor_waits_on;

/* ---- which turns ---- */

/* Turns between two that are looked at: 0 to 2 (every - 1), each as likely, so that what happens in
 * every so many turns is seen as often as it is there. */
static uint32_t draw(struct reactor *r, unsigned every)
{
    r->marks_random ^= r->marks_random << 13;
    r->marks_random ^= r->marks_random >> 7;
    r->marks_random ^= r->marks_random << 17;
    return (uint32_t)((r->marks_random >> 32) % (2 * (uint64_t)every - 1));
}

void marks_init(struct reactor *r)
{
    r->marks_random = UINT64_C(0x9e3779b97f4a7c15) * (r->slot + 1);
}

void marks_unbind(void)
{
    reactor_marks_on = NULL;
    reactor_waits_on = NULL;
}

void marks_turn(struct reactor *r, unsigned every)
{
    if (every != r->marks_now) {
        r->marks_now = every;
        r->marks_gap = every > 0 ? draw(r, every) : 0;
    }
    reactor_waits_on = every > 0 ? r->work.wait : NULL;
    reactor_marks_on = NULL;
    if (every == 0)
        return;
    if (r->marks_gap > 0) {
        r->marks_gap--;
        return;
    }
    r->marks_gap = draw(r, every);
    r->marks.tsc = r->stage_tsc;
    r->marks.now = REACTOR_WORK_OTHER;
    reactor_marks_on = &r->marks;
}

/* ---- what was seen ---- */

/* The kernel took the core away, mostly once and in the middle of something: of what looks longest,
 * and of others only if that was not all. */
static void take_back(struct reactor_marks *m, uint64_t lost)
{
    while (lost > 0) {
        unsigned longest = 0;
        uint64_t part;

        for (unsigned i = 1; i < REACTOR_WORKS; i++)
            if (m->round[i] > m->round[longest])
                longest = i;
        part = min(lost, m->round[longest]);
        if (part == 0)
            return;
        m->round[longest] -= part;
        lost -= part;
    }
}

void marks_settle(struct reactor *r, uint64_t now, uint64_t lost)
{
    struct reactor_marks *m = &r->marks;

    m->round[m->now] += now - m->tsc;
    if (lost > 0)
        take_back(m, lost);
    for (unsigned i = 0; i < REACTOR_WORKS; i++) {
        if (m->round[i] > 0)
            count_add(&r->work.cycles[i], m->round[i] * r->marks_now);
        m->round[i] = 0;
    }
    m->tsc = now;
    m->now = REACTOR_WORK_OTHER;
}

void marks_drop(struct reactor *r, uint64_t now, bool busy)
{
    r->marks = (struct reactor_marks){.tsc = now};
    count_add(&r->work.turns, busy);
}

void reactor_wait_note(struct reactor_wait_hist *h, uint64_t us)
{
    unsigned i = us == 0 ? 0 : 64 - (unsigned)__builtin_clzll(us);

    count_add(&h->bucket[min(i, REACTOR_WAIT_BUCKETS - 1u)], 1);
    count_add(&h->total_us, us);
    if (us > h->longest_us)
        relaxed_store(&h->longest_us, us);
}

/* ---- any thread ---- */

const char *reactor_work_name(enum reactor_work work)
{
    static const char *const names[REACTOR_WORKS] = {
        [REACTOR_WORK_OTHER] = "other",     [REACTOR_WORK_DEVICE_RX] = "device_rx",
        [REACTOR_WORK_TCP_IN] = "tcp_in",   [REACTOR_WORK_PARSE] = "parse",
        [REACTOR_WORK_LNET] = "lnet",       [REACTOR_WORK_EGRESS] = "egress",
        [REACTOR_WORK_TCP_OUT] = "tcp_out", [REACTOR_WORK_DEVICE_TX] = "device_tx",
    };

    return (unsigned)work < REACTOR_WORKS ? names[work] : "unknown";
}

const char *reactor_wait_name(enum reactor_wait wait)
{
    static const char *const names[REACTOR_WAITS] = {
        [REACTOR_WAIT_ROUTER_CREDIT] = "peer_router_credit",
        [REACTOR_WAIT_BUFFER] = "router_buffer",
        [REACTOR_WAIT_PEER_CREDIT] = "peer_tx_credit",
        [REACTOR_WAIT_NI_CREDIT] = "ni_tx_credit",
    };

    return (unsigned)wait < REACTOR_WAITS ? names[wait] : "unknown";
}

void reactor_work_set(struct reactor *r, unsigned every)
{
    relaxed_store(&r->marks_every, min(every, (unsigned)REACTOR_EVERY_MAX));
}

void reactor_work_get(const struct reactor *r, struct reactor_work_stats *out)
{
    counters_copy_all(out, &r->work);
    out->every = relaxed_load(&r->marks_every);
}
