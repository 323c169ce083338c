/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two programs that move plain frames share: two ports, polled by the one thread. */
#ifndef MILLRACE_FRAME_PORTS_H
#define MILLRACE_FRAME_PORTS_H

#include "lib/lnd_eth/port/port.h"

struct frame_ports {
    const char *prog;
    struct reactor_env *env;
    struct port *port[2];
};

/* Says why and ends the program. */
__attribute__((noreturn)) void frame_die(const char *prog, const char *why);
/* A whole number from min to max, or the end of the program. */
unsigned frame_number(const char *prog, const char *text, unsigned min, unsigned max);
/* Opens and starts both; the calling thread is reactor 0 from then on, on that core (below 0: on
 * any). mtu 0: the device's own. Ends the program if something is wrong. */
void frame_ports_open(struct frame_ports *p, char *const device[2], unsigned mtu, int core,
                      bool hugepages);
/* Closes both: all mbufs are back. The environment is left to reactor_env_destroy(). */
void frame_ports_close(struct frame_ports *p);
/* Prints the counters of both ports' queues as a JSON array, without a line's end. */
void frame_ports_print(const struct frame_ports *p);

#endif
