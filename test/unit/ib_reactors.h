/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reactors for the tests of o2iblnd: functions of lib/reactor/reactor.h on one thread, with a clock
 * that the test moves. They sleep as real ones do: a reactor whose pollers all allow it and found
 * nothing twice is not polled again before mail, a timer or a readable descriptor wakes it. So an
 * event that nobody was told of is never seen, here as there.
 */
#ifndef MILLRACE_IB_REACTORS_H
#define MILLRACE_IB_REACTORS_H

#include "lib/reactor/reactor.h"

#define IR_REACTORS 2
#define IR_SEC      1000000ull
#define IR_FDS      64

void ir_init(void);
struct reactor_env *ir_env(void);
/* One turn of a reactor (IR_REACTORS: control). The amount of work found. */
int ir_turn(unsigned index);
void ir_run(void);                 /* until nobody has anything to do at this moment */
void ir_advance(uint64_t us);      /* the clock, from timer to timer */
void ir_skip(uint64_t us);         /* the clock alone */
struct reactor *ir_on(unsigned i); /* makes reactor i the running one; returns the one before */
struct reactor *ir_at(struct reactor *r);
void ir_restore(struct reactor *before);
bool ir_asleep(unsigned index);
void ir_spin(bool spins); /* none ever sleeps, from now to the next ir_init() */
bool ir_idle(void);       /* no timer, no poller, no mail is left anywhere */

/* Descriptors are numbers of the fakes': 1000..1000+IR_FDS-1. */
int ir_fd_new(void);
void ir_fd_ready(int fd, bool ready);

#endif
