/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/perf/frame_ports.h"
#include "lib/base/err.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MEMORY_MB    640
#define BUFFER_BYTES (128u << 20)
/* Where the ports are the two ends of one memif: the driver hears of the other's end on a thread of
 * its own, and must have done so before its memory goes. */
#define CLOSE_PAUSE_US 200000

void frame_die(const char *prog, const char *why)
{
    fprintf(stderr, "%s: %s\n", prog, why);
    exit(1);
}

unsigned frame_number(const char *prog, const char *text, unsigned min, unsigned max)
{
    char *end, why[128];
    unsigned long v = strtoul(text, &end, 10);

    if (end != text && *end == '\0' && v >= min && v <= max)
        return (unsigned)v;
    snprintf(why, sizeof(why), "'%.60s' is not a number from %u to %u", text, min, max);
    frame_die(prog, why);
}

void frame_ports_open(struct frame_ports *p, char *const device[2], unsigned mtu, int core,
                      bool hugepages)
{
    struct reactor_opts opts = {
        .prog = p->prog, .cores = "auto", .count = 1, .mem_mb = MEMORY_MB, .hugepages = hugepages};
    cpu_set_t set;
    struct err err = {0};

    if (reactor_env_create(&opts, &p->env, &err) < 0)
        frame_die(p->prog, err.message);
    for (int i = 0; i < 2; i++) {
        struct port_opts po = {.name = i == 0 ? "left" : "right",
                               .device = device[i],
                               .mtu = mtu,
                               .reactors = 1,
                               .rx_queues = 1,
                               .buffer_bytes = BUFFER_BYTES,
                               .socket = -1};

        if (port_open(&po, NULL, &p->port[i], &err) < 0 || port_start(p->port[i], &err) < 0)
            frame_die(p->prog, err.message);
    }
    if (core >= 0) {
        CPU_ZERO(&set);
        CPU_SET((unsigned)core, &set);
        if (sched_setaffinity(0, sizeof(set), &set) < 0)
            frame_die(p->prog, "there is no such core");
    }
    reactor_bind(reactor_at(p->env, 0));
}

void frame_ports_close(struct frame_ports *p)
{
    fflush(stdout);
    port_close(p->port[1]);
    usleep(CLOSE_PAUSE_US);
    port_close(p->port[0]);
    usleep(CLOSE_PAUSE_US);
    reactor_bind(reactor_control(p->env));
}

void frame_ports_print(const struct frame_ports *p)
{
    printf("[");
    for (unsigned i = 0; i < 4; i++) {
        struct port_queue_stats s;

        port_stats_get(p->port[i / 2], i % 2, 0, &s);
        printf("%s{\"port\": %u, \"direction\": \"%s\", \"packets\": %lu, \"bytes\": %lu, "
               "\"bursts\": %lu, \"full\": %lu, \"no_buffer\": %lu, \"bad\": %lu, "
               "\"checksums\": %lu}",
               i > 0 ? ", " : "", i / 2, i % 2 ? "tx" : "rx", s.packets, s.bytes, s.bursts, s.full,
               s.no_buffer, s.bad, s.csums);
    }
    printf("]");
}
