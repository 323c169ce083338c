/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: from a configuration and a machine to numbers of buffers and what EAL is asked for. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/millraced/daemon_internal.h"

#define RAM_PART 4 /* of the machine's RAM: the part that defaults take at most */

size_t daemon_ram(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned mib_up(size_t bytes)
{
    return (unsigned)((bytes + DAEMON_MIB - 1) / DAEMON_MIB);
}

/* A node's plan with so much memory for buffers (0 = what they take), and all that goes with it. */
static int plan(const struct lnet_node_opts *opts, size_t for_buffers, struct daemon_memory *m,
                char *err, size_t errlen)
{
    struct lnet_node_opts o = *opts;
    int rc;

    o.memory = for_buffers;
    rc = lnet_memory_plan(&o, m->reactors, &m->node, err, errlen);
    if (rc != 0)
        return rc;
    m->for_buffers = for_buffers;
    m->eal = mib_up(m->node.landing + m->node.local + m->env.eal);
    return 0;
}

/* The least that a node with the counts given takes: of those left out, the fewest. */
static int plan_least(const struct lnet_node_opts *opts, struct daemon_memory *m, char *err,
                      size_t errlen)
{
    struct lnet_node_opts least = *opts;

    if (!least.small)
        least.small = LNET_POOL_MIN * m->reactors;
    if (!least.large)
        least.large = LNET_POOL_MIN * m->reactors;
    return plan(&least, 0, m, err, errlen);
}

/* `memory:` says how much. Where it is too little, *m is what it would have to be. */
static int plan_fixed(const struct cfg *cfg, const struct lnet_node_opts *opts,
                      struct daemon_memory *m, char *err, size_t errlen)
{
    size_t all = (size_t)cfg->memory * DAEMON_MIB;
    char reason[256] = "nothing is left for buffers", ignored[256], more[64] = "";
    unsigned least = 0;
    int rc = -ENOMEM;

    if (all > m->env.eal)
        rc = plan(opts, all - m->env.eal, m, reason, sizeof(reason));
    if (rc == 0) {
        m->eal = (unsigned)cfg->memory;
        return 0;
    }
    if (plan_least(opts, m, ignored, sizeof(ignored)) == 0)
        least = m->eal;
    if (plan(opts, 0, m, ignored, sizeof(ignored)) != 0)
        m->eal = 0;
    if (m->eal > least)
        snprintf(more, sizeof(more), " (%u for the defaults of those left out)", m->eal);
    snprintf(err, errlen,
             "memory: %d MiB, of which DPDK takes %u: %s; write %u or more%s, 0 to have it "
             "computed, or lower buffers:",
             cfg->memory, mib_up(m->env.eal), reason, least, more);
    return rc;
}

/* What the counts take. Counts left out are the defaults, as far as all of it is within a part of
 * the machine's RAM. */
static int plan_computed(const struct lnet_node_opts *opts, struct daemon_memory *m, char *err,
                         size_t errlen)
{
    size_t part = m->ram / RAM_PART / DAEMON_MIB * DAEMON_MIB, least;
    int rc = plan(opts, 0, m, err, errlen);

    if (rc != 0 || (opts->small && opts->large) || m->eal * DAEMON_MIB <= part)
        return rc;
    m->unlimited = m->eal;
    rc = plan_least(opts, m, err, errlen);
    if (rc != 0)
        return rc;
    least = m->node.landing + m->node.local;
    return plan(opts, part > least + m->env.eal ? part - m->env.eal : least, m, err, errlen);
}

int daemon_memory(const struct cfg *cfg, size_t ram, struct daemon_memory *m, char *err,
                  size_t errlen)
{
    struct lnet_node_opts opts;
    struct sock_opts sock;
    int rc;

    memset(m, 0, sizeof(*m));
    m->reactors = cfg_reactor_count(cfg);
    m->ram = ram;
    daemon_node_opts(cfg, &opts);
    daemon_sock_opts(cfg, &sock);
    reactor_memory(m->reactors, 0, cfg->hugepages, &m->env);
    lnd_sock_memory(&sock, m->reactors, &m->tcp);
    if (cfg->memory)
        rc = plan_fixed(cfg, &opts, m, err, errlen);
    else
        rc = plan_computed(&opts, m, err, errlen);
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

void daemon_memory_warn(const struct cfg *cfg, const struct daemon_memory *m,
                        void (*say)(const char *text))
{
    static const char *const names[LNET_POOLS] = {"tiny", "small", "large"};
    unsigned wanted = 2 * cfg_gateway_count(cfg), i;

    /* docs/architecture.md "Two routers in line do not deadlock" */
    for (i = 0; cfg->routing && i < LNET_POOLS; i++)
        if (m->node.buffers[i] / m->reactors < wanted)
            warn(say,
                 "buffers: %s: %u is fewer than %u for each of %u threads (2 for each gateway): "
                 "routers in line may stall up to buffer_wait; write %u or more",
                 names[i], m->node.buffers[i], wanted, m->reactors, wanted * m->reactors);
    if (m->eal > m->ram / DAEMON_MIB)
        warn(say, "memory: %u MiB are needed, but this machine has %zu MiB in all", m->eal,
             m->ram / DAEMON_MIB);
}
