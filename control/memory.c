/* SPDX-License-Identifier: BSD-3-Clause */
/* Computes from a configuration and a machine the numbers of buffers and the memory that EAL is
 * asked for. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control/controller_internal.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"

#define RAM_PART 4 /* of the machine's RAM: the part that defaults take at most */
#define SEGMENT_FEW                                                                                \
    64u /* MiB of segments for each reactor unless there is less RAM: 1,700 connections */
#define SEGMENT_STEP 8 /* this part less is tried next when memory is too small */
#define SEGMENT_PART 4 /* of the memory for buffers: the part for segments of ports */
#define PORTS_PART   2 /* of all: the part that receive buffers of all ports take at most */
#define AHEAD_PART                                                                                 \
    8 /* of the segments, added for data that comes before a connection has a grant, or more */

size_t control_ram(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned mib_up(size_t bytes)
{
    return (unsigned)((bytes + CONTROL_MIB - 1) / CONTROL_MIB);
}

/* ---- ports ---- */

/* Each port can receive all that is promised to peers over all ports. The promise counts the size
 * of buffers, so no kind of frame makes it less. */
static size_t port_buffers(size_t segments, unsigned reactors)
{
    return segments + max(segments / AHEAD_PART, (size_t)reactors * TCP_OWN_MEMORY);
}

/* Returns the EAL memory of all ports and of TCP over them, with so much for segments. */
static size_t ports_take(const struct cfg *cfg, size_t segments)
{
    struct port_opts port;
    struct tcp_opts tcp;
    struct tcp_memory own;
    size_t sum = 0;

    if (!cfg->port_count)
        return 0;
    for (unsigned i = 0; i < cfg->port_count; i++) {
        if (!control_port_opts(cfg, i, &port))
            continue;
        port.buffer_bytes = port_buffers(segments, cfg_reactor_count(cfg));
        sum += port_memory(&port);
    }
    control_tcp_opts(cfg, &tcp);
    tcp_memory(&tcp, cfg_reactor_count(cfg), &own);
    return sum + own.eal;
}

static void ports_plan(const struct cfg *cfg, struct control_memory *m)
{
    struct port_opts port;
    struct tcp_opts tcp;
    struct tcp_memory own;

    if (!cfg->port_count)
        return;
    for (unsigned i = 0; i < cfg->port_count; i++)
        m->devices += control_port_opts(cfg, i, &port);
    control_tcp_opts(cfg, &tcp);
    tcp_memory(&tcp, m->reactors, &own);
    m->ports_heap = own.heap + inet_memory(m->reactors, control_neighbours(cfg));
}

/* Returns the memory for segments when the configuration names none, from the memory for buffers
 * and ports. */
static size_t segments_of(const struct control_memory *m, size_t all)
{
    size_t part = all / SEGMENT_PART, least = lnet_segments_least(m->reactors);
    size_t most = m->devices ? all / PORTS_PART / m->devices / (AHEAD_PART + 1) * AHEAD_PART : 0;

    part = part < most ? part : most;
    return part > least ? part : least;
}

/* ---- LNDs ---- */

/* Plans the memory of one LND: an LND for ports always, others when they have an NI. Connections
 * are as large as those of the NI whose connections are the largest. */
static void plan_lnd(const struct cfg *cfg, const struct lnd_code *code,
                     const struct control_memory *m, struct control_lnd *out)
{
    struct lnd_conf conf = control_lnd_conf(cfg, code->type);

    conf.has_ports = m->devices > 0;
    out->name = code->type->name;
    if (code->port_home)
        code->memory(&conf, m->reactors, NULL, NULL, &out->memory);
    for (unsigned i = 0; i < cfg->ni_count; i++) {
        const struct lnet_ni_conf *ni = &cfg->ni[i].conf;
        size_t most = out->memory.per_conn;

        if (ni->net >> 16 != code->type->net_type)
            continue;
        out->nis++;
        code->memory(&conf, m->reactors, &ni->tun, &ni->lnd_tun, &out->memory);
        if (out->memory.per_conn < most)
            out->memory.per_conn = most;
    }
}

/* ---- plans ---- */

struct plan {
    const struct cfg *cfg;
    struct lnet_node_opts opts; /* segments: of the configuration, 0 = computed */
};

/* Plans the node and all that belongs to it, with so much memory for buffers (0 = what the counts
 * take) and for segments. */
static int plan(const struct plan *p, size_t for_buffers, size_t segments, struct control_memory *m,
                struct err *err)
{
    struct lnet_node_opts o = p->opts;
    int rc;

    o.memory = for_buffers;
    o.segments = m->devices ? segments : 0;
    rc = lnet_memory_plan(&o, m->reactors, &m->node, err);
    if (rc != 0)
        return rc;
    m->for_buffers = for_buffers;
    m->segments = o.segments;
    m->port_buffers = m->devices ? port_buffers(segments, m->reactors) : 0;
    m->ports = ports_take(p->cfg, segments);
    m->eal = mib_up(m->node.landing + m->env.eal + m->ports);
    return 0;
}

static size_t segments_least(const struct plan *p, const struct control_memory *m)
{
    return p->opts.segments ? p->opts.segments : lnet_segments_least(m->reactors);
}

/* Plans the memory that the counts take, with a part of it for segments. */
static int plan_counts(const struct plan *p, struct control_memory *m, struct err *err)
{
    size_t least = segments_least(p, m), part;
    int rc = plan(p, 0, least, m, err);

    if (rc != 0 || !m->devices || p->opts.segments)
        return rc;
    part = m->node.landing / SEGMENT_PART;
    if (part < m->reactors * SEGMENT_FEW * CONTROL_MIB)
        part = m->reactors * SEGMENT_FEW * CONTROL_MIB;
    return part > least ? plan(p, 0, part, m, err) : 0;
}

/* Plans the least memory of a node with the given counts; a count that is not given becomes the
 * smallest. */
static int plan_least(const struct plan *p, struct control_memory *m, struct err *err)
{
    struct plan least = *p;

    if (!least.opts.small)
        least.opts.small = LNET_POOL_MIN * m->reactors;
    if (!least.opts.large)
        least.opts.large = LNET_POOL_MIN * m->reactors;
    return plan(&least, 0, segments_least(p, m), m, err);
}

/* Plans a node in so many bytes: DPDK's part, a part for ports, the rest for buffers. */
static int plan_within(const struct plan *p, size_t bytes, struct control_memory *m,
                       struct err *err)
{
    size_t fixed = m->env.eal + ports_take(p->cfg, 0), least = segments_least(p, m), segments, take;

    if (bytes <= fixed)
        return -ENOMEM;
    segments = p->opts.segments || !m->devices ? least : segments_of(m, bytes - fixed);
    /* Given counts come first, then segments, then room for more buffers. */
    for (; segments > least; segments -= segments / SEGMENT_STEP) {
        take = m->env.eal + ports_take(p->cfg, segments);
        if (bytes > take && plan(p, bytes - take, segments, m, err) == 0)
            return 0;
    }
    take = m->env.eal + ports_take(p->cfg, least);
    return bytes > take ? plan(p, bytes - take, least, m, err) : -ENOMEM;
}

/* Plans within `memory:`. When that is too little, *m is what `memory:` would have to be. */
static int plan_fixed(const struct plan *p, struct control_memory *m, struct err *err)
{
    const struct cfg *cfg = p->cfg;
    size_t all = (size_t)cfg->memory * CONTROL_MIB;
    struct err reason = {.message = "nothing is left for buffers"}, ignored;
    char more[64] = "", ports[64] = "";
    unsigned least = 0;
    int rc = plan_within(p, all, m, &reason);

    if (rc == 0) {
        m->eal = (unsigned)cfg->memory;
        return 0;
    }
    if (plan_least(p, m, &ignored) == 0)
        least = m->eal;
    if (plan_counts(p, m, &ignored) != 0)
        m->eal = 0;
    if (m->devices)
        snprintf(ports, sizeof(ports), " and ports %u or more",
                 mib_up(ports_take(cfg, segments_least(p, m))));
    if (m->eal > least)
        snprintf(more, sizeof(more), " (%u for the defaults of those left out)", m->eal);
    return err_set(err, rc,
                   "memory: %d MiB, of which DPDK takes %u%s: %s; write %u or more%s, 0 to have it "
                   "computed, or lower buffers:",
                   cfg->memory, mib_up(m->env.eal), ports, reason.message, least, more);
}

/* Plans the memory that the counts take. Counts that are not given are the defaults, as far as all
 * fits a part of the machine's RAM. */
static int plan_computed(const struct plan *p, struct control_memory *m, struct err *err)
{
    size_t part = m->ram / RAM_PART / CONTROL_MIB * CONTROL_MIB, least;
    int rc = plan_counts(p, m, err);

    if (rc != 0 || (p->opts.small && p->opts.large) || m->eal * CONTROL_MIB <= part)
        return rc;
    m->unlimited = m->eal;
    rc = plan_least(p, m, err);
    if (rc != 0)
        return rc;
    least = m->node.landing;
    if (part > least + m->env.eal + m->ports && plan_within(p, part, m, err) == 0)
        return 0;
    return plan(p, least, segments_least(p, m), m, err);
}

int control_memory(const struct cfg *cfg, size_t ram, struct control_memory *m, struct err *err)
{
    struct plan p = {.cfg = cfg};
    int rc;

    memset(m, 0, sizeof(*m));
    m->reactors = cfg_reactor_count(cfg);
    m->ram = ram;
    control_node_opts(cfg, &p.opts);
    p.opts.segments = (size_t)cfg->segments * CONTROL_MIB;
    reactor_memory(m->reactors, 0, cfg->hugepages, &m->env);
    ports_plan(cfg, m);
    for (; lnd_codes[m->lnds]; m->lnds++)
        plan_lnd(cfg, lnd_codes[m->lnds], m, &m->lnd[m->lnds]);
    if (cfg->memory)
        rc = plan_fixed(&p, m, err);
    else
        rc = plan_computed(&p, m, err);
    reactor_memory(m->reactors, m->eal, cfg->hugepages, &m->env);
    return rc;
}

/* ---- what is doubtful of it ---- */

__attribute__((format(printf, 2, 3))) static void warn(void (*say)(const char *text),
                                                       const char *fmt, ...)
{
    char text[320];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    say(text);
}

void control_memory_warn(const struct cfg *cfg, const struct control_memory *m,
                         void (*say)(const char *text))
{
    static const char *const names[LNET_POOLS] = {"tiny", "small", "large"};
    unsigned wanted = 2 * cfg_gateway_count(cfg);

    /* docs/architecture.md "Two routers in line do not deadlock" */
    for (unsigned i = 0; cfg->routing && i < LNET_POOLS; i++)
        if (m->node.buffers[i] / m->reactors < wanted)
            warn(say,
                 "buffers: %s: %u is fewer than %u for each of %u threads (2 for each gateway): "
                 "routers in line may stall up to buffer_wait; write %u or more",
                 names[i], m->node.buffers[i], wanted, m->reactors, wanted * m->reactors);
    if (m->eal > m->ram / CONTROL_MIB)
        warn(say, "memory: %u MiB are needed, but this machine has %zu MiB in all", m->eal,
             m->ram / CONTROL_MIB);
}
