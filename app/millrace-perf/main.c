/* SPDX-License-Identifier: BSD-3-Clause */
/* millrace-perf: start the node, start what was asked for, wait for its end or a signal, report. */
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

static void perf_stop(struct perf *p)
{
    if (perf_stopping(p))
        return;
    __atomic_store_n(&p->stopping, 1, __ATOMIC_RELAXED);
    report_end(p);
    node_stop(p);
}

void perf_server_ready(struct perf *p, int error)
{
    if (error != 0) {
        fprintf(stderr, "millrace-perf: cannot offer buffers: %s\n", strerror(-error));
        p->start_failed = true;
        perf_stop(p);
        return;
    }
    for (unsigned i = 0; i < lnet_ni_count(p->node); i++) {
        char nid[LNET_NIDSTR_SIZE];
        fprintf(p->progress, "serving on %s\n", nid_format(&lnet_ni_at(p->node, i)->nid, nid));
    }
    fflush(p->progress);
}

void perf_client_ended(struct perf *p)
{
    p->work_done = true;
    if (!p->opts.serve || p->signalled) {
        perf_stop(p);
        return;
    }
    fprintf(p->progress, "own work done, serving on\n");
    fflush(p->progress);
}

void perf_ping_ended(struct perf *p)
{
    perf_stop(p);
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
    if (p->pinger != NULL)
        ping_interrupt(p->pinger);
    else if (p->client != NULL && !p->work_done)
        client_interrupt(p->client);
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

/* All that must stand before the network is opened: who can ping us finds a server. */
static int prepare(struct perf *p, struct signals *s)
{
    int rc = signals_open(s);

    p->pattern = pattern_make();
    if (rc != 0 || p->pattern == NULL) {
        fprintf(stderr, "millrace-perf: out of memory or descriptors\n");
        return -ENOMEM;
    }
    rc = node_open(p);
    if (rc == 0 && (p->opts.command == PERF_SERVER || p->opts.serve)) {
        rc = server_begin(p);
        if (rc != 0)
            fprintf(stderr, "millrace-perf: no memory for %u buffers\n", p->opts.buffers);
    }
    return rc;
}

static void begin(struct perf *p, struct signals *s)
{
    int rc = reactor_fd_add(&s->fd, s->fd.fd, EPOLLIN, signalled);

    if (rc == 0 && p->opts.command == PERF_PING)
        rc = ping_begin(p);
    else if (rc == 0 && p->opts.command != PERF_SERVER)
        rc = client_begin(p);
    if (rc == 0) {
        report_begin(p);
        return;
    }
    fprintf(stderr, "millrace-perf: cannot begin: %s\n", strerror(-rc));
    p->start_failed = true;
    perf_stop(p);
}

static int run(struct perf *p, struct signals *s)
{
    int code = PERF_EXIT_START;

    if (prepare(p, s) != 0 || node_start(p) != 0)
        goto out;
    p->start_ns = perf_now_ns();
    begin(p, s);
    reactor_control_run(p->env);
    reactor_fd_del(&s->fd);
    node_halt(p);
    if (!p->start_failed)
        code = report_final(p);

out:
    node_close(p);
    client_free(p->client);
    server_free(p->server);
    ping_free(p->pinger);
    report_free(p->report);
    free(p->pattern);
    return code;
}

int main(int argc, char **argv)
{
    struct perf perf = {0};
    struct signals signals = {.perf = &perf};
    int rc = options_parse(&perf.opts, argc, argv);

    if (rc != 0)
        return rc > 0 ? PERF_EXIT_OK : PERF_EXIT_USAGE;
    perf.progress = perf.opts.json ? stderr : stdout;
    return run(&perf, &signals);
}
