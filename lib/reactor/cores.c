/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where reactors run: the grammar of reactor_opts.cores.
 *
 *     cores  = "auto" | list | group *(";" group)
 *     group  = cpt ":" list
 *     list   = range *("," range)
 *     range  = cpu ["-" cpu]
 */
#include "lib/base/err.h"
#include "lib/reactor/reactor_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPT_OWN UINT_MAX

struct parser {
    const char *text; /* whole, for messages */
    const char *at;
    const cpu_set_t *allowed;
    struct core_plan *plan;
    cpu_set_t seen;
    uint64_t cpts_seen;
    struct err *err;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct parser *p, const char *fmt, ...)
{
    va_list ap;

    err_set(p->err, -EINVAL, "cores \"%s\": ", p->text);
    err_where(p->err, "cores");
    va_start(ap, fmt);
    err_vadd(p->err, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

static bool accept(struct parser *p, char c)
{
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}

static int parse_number(struct parser *p, const char *what, unsigned limit, unsigned *out)
{
    unsigned n = 0;

    if (*p->at < '0' || *p->at > '9')
        return refuse(p, "%s number expected at \"%s\"", what, p->at);
    for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
        n = n * 10 + (unsigned)(*p->at - '0');
        if (n >= limit)
            return refuse(p, "%s number must be below %u", what, limit);
    }
    *out = n;
    return 0;
}

/* cpt CPT_OWN: the core is a CPT of its own, numbered as its reactor. */
static int add_core(struct parser *p, unsigned cpu, unsigned cpt)
{
    struct core_plan *plan = p->plan;

    if (CPU_ISSET(cpu, &p->seen))
        return refuse(p, "core %u is named twice", cpu);
    if (!CPU_ISSET(cpu, p->allowed))
        return refuse(p, "core %u is not among those this process may use", cpu);
    if (plan->count == REACTOR_MAX)
        return refuse(p, "more than %d cores", REACTOR_MAX);
    CPU_SET(cpu, &p->seen);
    plan->core[plan->count].cpu = cpu;
    plan->core[plan->count].cpt = cpt == CPT_OWN ? plan->count : cpt;
    plan->count++;
    return 0;
}

static int parse_range(struct parser *p, unsigned cpt)
{
    unsigned first = 0, last;
    int rc = parse_number(p, "core", CPU_SETSIZE, &first);

    if (rc < 0)
        return rc;
    last = first;
    if (accept(p, '-')) {
        rc = parse_number(p, "core", CPU_SETSIZE, &last);
        if (rc < 0)
            return rc;
        if (last < first)
            return refuse(p, "range %u-%u runs backwards", first, last);
    }
    for (unsigned cpu = first; rc == 0 && cpu <= last; cpu++)
        rc = add_core(p, cpu, cpt);
    return rc;
}

static int parse_list(struct parser *p, unsigned cpt)
{
    int rc;

    do {
        rc = parse_range(p, cpt);
    } while (rc == 0 && accept(p, ','));
    return rc;
}

static int parse_group(struct parser *p)
{
    unsigned cpt = 0;
    int rc = parse_number(p, "CPT", REACTOR_MAX, &cpt);

    if (rc < 0)
        return rc;
    if (!accept(p, ':'))
        return refuse(p, "\":\" expected after CPT %u", cpt);
    if (p->cpts_seen >> cpt & 1)
        return refuse(p, "CPT %u is named twice", cpt);
    p->cpts_seen |= UINT64_C(1) << cpt;
    return parse_list(p, cpt);
}

static int parse_pinned(struct parser *p)
{
    int rc;

    if (!strchr(p->text, ':') && !strchr(p->text, ';')) {
        rc = parse_list(p, CPT_OWN);
    } else {
        do {
            rc = parse_group(p);
        } while (rc == 0 && accept(p, ';'));
    }
    if (rc == 0 && *p->at != '\0')
        rc = refuse(p, "cannot read \"%s\"", p->at);
    return rc;
}

int cores_parse(const char *text, unsigned count, const cpu_set_t *allowed, struct core_plan *plan,
                struct err *err)
{
    struct parser p = {
        .text = text ? text : "auto",
        .allowed = allowed,
        .plan = plan,
        .err = err,
    };

    _Static_assert(REACTOR_MAX <= 64, "cpts_seen has one bit per CPT");
    p.at = p.text;
    CPU_ZERO(&p.seen);
    *plan = (struct core_plan){.pinned = strcmp(p.text, "auto") != 0};
    if (plan->pinned)
        return parse_pinned(&p);
    if (count > REACTOR_MAX)
        return refuse(&p, "%u reactors, but the most is %d", count, REACTOR_MAX);
    plan->count = count > 0 ? count : 1;
    for (unsigned i = 0; i < plan->count; i++)
        plan->core[i].cpt = i;
    return 0;
}

/* "(0-3,6)": the form EAL wants a set of cores in. */
static void print_set(FILE *f, const cpu_set_t *set)
{
    const char *separator = "(";

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int first = cpu;

        if (!CPU_ISSET(cpu, set))
            continue;
        while (cpu + 1 < CPU_SETSIZE && CPU_ISSET(cpu + 1, set))
            cpu++;
        fprintf(f, "%s%d", separator, first);
        if (cpu > first)
            fprintf(f, "-%d", cpu);
        separator = ",";
    }
    fputc(')', f);
}

/* The control thread stays off the reactors' cores when there are others. */
static void control_set(const struct core_plan *plan, const cpu_set_t *allowed, cpu_set_t *set)
{
    *set = *allowed;
    if (!plan->pinned)
        return;
    for (unsigned i = 0; i < plan->count; i++)
        CPU_CLR(plan->core[i].cpu, set);
    if (CPU_COUNT(set) == 0)
        *set = *allowed;
}

char *cores_lcores_arg(const struct core_plan *plan, const cpu_set_t *allowed)
{
    char *text = NULL;
    size_t len;
    cpu_set_t set;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    control_set(plan, allowed, &set);
    fputs("0@", f);
    print_set(f, &set);
    for (unsigned i = 0; i < plan->count; i++) {
        fprintf(f, ",%u@", i + 1);
        if (plan->pinned)
            fprintf(f, "%u", plan->core[i].cpu);
        else
            print_set(f, allowed);
    }
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
