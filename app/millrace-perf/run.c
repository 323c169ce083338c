/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the engine and the command, waits for the end or a signal, and reports. */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

struct signals {
    struct reactor_fd fd; /* first: the callback gets its address */
    struct perf *perf;
    sigset_t set;
};

uint64_t perf_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- how it ends ---- */

void perf_stop(struct perf *p)
{
    if (perf_stopping(p))
        return;
    relaxed_store(&p->stopping, 1);
    report_end(p);
    p->engine->ops->stop(p->engine);
}

void perf_engine_serving(struct perf_engine *e, const char *who)
{
    fprintf(e->perf->progress, "serving on %s\n", who);
    fflush(e->perf->progress);
}

void perf_engine_failed(struct perf_engine *e, const char *why)
{
    fprintf(stderr, "%s: %s\n", e->perf->program->name, why);
    e->perf->start_failed = true;
    perf_stop(e->perf);
}

void perf_engine_ready(struct perf_engine *e, int error, const char *why, unsigned unanswered)
{
    if (e->perf->load)
        load_begin(e->perf->load, error, why, unanswered);
    else if (error != 0)
        perf_engine_failed(e, why);
}

void perf_engine_stopped(struct perf_engine *e)
{
    reactor_control_quit(e->perf->env);
}

void perf_load_ended(struct perf *p)
{
    p->work_done = true;
    if (!p->opts.serve || p->signalled) {
        perf_stop(p);
        return;
    }
    fprintf(p->progress, "own work done, serving on\n");
    fflush(p->progress);
}

/* The first signal ends the work in order, a second one kills. */
static void signalled(struct reactor_fd *fd, uint32_t events)
{
    struct signals *s = (struct signals *)(void *)fd;
    struct perf *p = s->perf;
    struct signalfd_siginfo info;

    if (read(fd->fd, &info, sizeof(info)) != sizeof(info))
        return;
    p->signalled = true;
    sigprocmask(SIG_UNBLOCK, &s->set, NULL);
    if (p->pinger)
        ping_interrupt(p->pinger);
    else if (p->load && !p->work_done)
        load_interrupt(p->load);
    else
        perf_stop(p);
}

/* Before any thread exists, so that all of them leave the signals to signalled(). */
static int signals_open(struct signals *s)
{
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &s->set, NULL);
    s->fd.fd = signalfd(-1, &s->set, SFD_NONBLOCK | SFD_CLOEXEC);
    return s->fd.fd < 0 ? -errno : 0;
}

/* ---- how it begins ---- */

static int prepare(struct perf *p, struct signals *s)
{
    int rc = signals_open(s);

    p->pattern = pattern_make();
    if (rc != 0 || !p->pattern) {
        fprintf(stderr, "%s: out of memory or descriptors\n", p->program->name);
        return -ENOMEM;
    }
    rc = report_open(p);
    if (rc == 0)
        rc = p->program->engine->open(p, &p->engine);
    if (rc == 0 && options_send(&p->opts)) {
        rc = load_new(p);
        if (rc != 0)
            fprintf(stderr, "%s: no memory for the messages: %s\n", p->program->name,
                    strerror(-rc));
    }
    return rc;
}

/* The engine has started, or is about to: what it tells comes from the control loop. */
static int begin(struct perf *p, struct signals *s)
{
    int rc = reactor_fd_add(&s->fd, s->fd.fd, EPOLLIN, signalled);

    if (rc == 0 && p->opts.command == PERF_PING)
        rc = ping_begin(p);
    if (rc == 0) {
        report_begin(p);
        return 0;
    }
    fprintf(stderr, "%s: cannot begin: %s\n", p->program->name, strerror(-rc));
    return rc;
}

static int run(struct perf *p, struct signals *s)
{
    int code = PERF_EXIT_START;

    if (prepare(p, s) != 0)
        goto out;
    p->start_ns = perf_now_ns();
    if (begin(p, s) != 0 || p->engine->ops->start(p->engine) != 0)
        goto out;
    reactor_control_run(p->env);
    p->engine->ops->halt(p->engine);
    if (!p->start_failed)
        code = report_final(p);

out:
    reactor_fd_del(&s->fd);
    if (p->engine) {
        report_end(p);
        p->engine->ops->halt(p->engine);
        p->engine->ops->close(p->engine);
    }
    load_free(p->load);
    free(p->pinger);
    report_free(p->report);
    free(p->pattern);
    return code;
}

int perf_run(const struct perf_program *program, int argc, char **argv)
{
    struct perf perf = {.program = program};
    struct signals signals = {.perf = &perf};
    int rc = options_parse(&perf, argc, argv);

    if (rc != 0)
        return rc > 0 ? PERF_EXIT_OK : PERF_EXIT_USAGE;
    perf.progress = perf.opts.json ? stderr : stdout;
    return run(&perf, &signals);
}
