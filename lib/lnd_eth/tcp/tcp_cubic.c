/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUBIC, RFC 9438, without HyStart. Windows are in segments here, times in seconds, as in the RFC's
 * formulas. The reactor's thread may use floating point: nothing here is in the kernel.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#include <math.h>

#define CUBIC_C     0.4
#define CUBIC_BETA  0.7
#define CUBIC_ALPHA (3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA)) /* §4.3 */

struct cubic {
    double w_max, k;
    double w_est;        /* what Reno would have, §4.3 */
    double cwnd_prior;   /* at the last reduction */
    double part;         /* bytes of growth not given yet */
    double w_max_before; /* for undo */
    uint64_t epoch_us;   /* this stage of avoidance began, less the time it was not cwnd that
                            limited; 0: not yet */
    uint64_t last_us;
};

_Static_assert(sizeof(struct cubic) <= sizeof(((struct tcp_tx *)0)->cc), "room for cubic");

static struct cubic *own(struct tcp_conn *c)
{
    return (struct cubic *)c->tx.cc;
}

static void init(struct tcp_conn *c)
{
    *own(c) = (struct cubic){0};
}

/* §4.2 */
static void begin(struct cubic *cu, double cwnd, uint64_t now_us)
{
    cu->epoch_us = now_us;
    cu->w_est = cwnd;
    cu->part = 0;
    if (cwnd < cu->w_max) {
        cu->k = cbrt((cu->w_max - cwnd) / CUBIC_C);
    } else {
        cu->k = 0;
        cu->w_max = cwnd;
    }
}

static double w_cubic(const struct cubic *cu, double t)
{
    double x = t - cu->k;

    return CUBIC_C * x * x * x + cu->w_max;
}

static void avoid(struct tcp_conn *c, uint32_t n, uint64_t now_us)
{
    struct cubic *cu = own(c);
    double mss = c->mss, cwnd = c->tx.cwnd / mss, t, alpha, target;
    uint32_t whole;

    if (cu->epoch_us == 0)
        begin(cu, cwnd, now_us);
    t = (double)(now_us - cu->epoch_us) / 1e6;
    alpha = cu->w_est < cu->cwnd_prior ? CUBIC_ALPHA : 1.0;
    cu->w_est += alpha * (n / mss) / cwnd;
    /* Figure 2 of §4.2: where the window should be a round trip from now. */
    target = fmin(fmax(w_cubic(cu, t + c->tx.srtt / 1e6), cwnd), 1.5 * cwnd);
    if (w_cubic(cu, t) < cu->w_est)
        cu->part += fmax(cu->w_est - cwnd, 0) * mss - cu->part;
    else
        cu->part += (target - cwnd) / cwnd * n;
    whole = (uint32_t)fmin(cu->part, c->tx.cwnd);
    cu->part -= whole;
    tcp_cc_grow(c, whole);
}

static void acked(struct tcp_conn *c, uint32_t n, uint64_t now_us, bool limited)
{
    struct cubic *cu = own(c);

    /* §5.8: time in which the window was not used does not count. */
    if (!limited && cu->epoch_us != 0)
        cu->epoch_us += now_us - cu->last_us;
    cu->last_us = now_us;
    if (!limited)
        return;
    n = tcp_cc_slow_start(c, n);
    if (n > 0)
        avoid(c, n, now_us);
}

/* §4.6, with fast convergence (§4.7). */
static uint32_t ssthresh(struct tcp_conn *c)
{
    struct cubic *cu = own(c);
    double cwnd = (double)c->tx.cwnd / c->mss;

    cu->w_max_before = cu->w_max;
    cu->cwnd_prior = cwnd;
    cu->w_max = cwnd < cu->w_max ? cwnd * (1.0 + CUBIC_BETA) / 2.0 : cwnd;
    cu->epoch_us = 0;
    return max((uint32_t)(tcp_cc_flight(c) * CUBIC_BETA), 2 * c->mss);
}

/* §4.8: the next stage of avoidance begins where slow start ends. */
static void rto(struct tcp_conn *c)
{
    own(c)->epoch_us = 0;
    own(c)->w_max = 0;
}

static void undo(struct tcp_conn *c)
{
    own(c)->epoch_us = 0;
    own(c)->w_max = own(c)->w_max_before;
}

static void idle(struct tcp_conn *c, uint64_t idle_us)
{
    own(c)->epoch_us = 0;
}

const struct tcp_cc tcp_cc_cubic = {
    .name = "cubic",
    .init = init,
    .acked = acked,
    .ssthresh = ssthresh,
    .rto = rto,
    .undo = undo,
    .idle = idle,
};
