/* SPDX-License-Identifier: BSD-3-Clause */
/* What the targets share that run the whole stack from the Ethernet frame up: a world (test/tcp),
 * made once, that must be empty again after each input. */
#ifndef MILLRACE_TEST_FUZZ_STACK_H
#define MILLRACE_TEST_FUZZ_STACK_H

#include "test/fuzz/fuzz.h"
#include "test/fuzz/fuzz_input.h"
#include "test/tcp/run.h"

/* The world of this process; a listener at port 988 that calls accepted(). */
struct world *stack_world(void (*accepted)(void *user, struct stream *s,
                                           const union stream_addr *peer));
/* All streams are closed: lets everything end that ends by itself, and checks that no buffer is
 * missing. */
void stack_end(struct world *w);

#endif
