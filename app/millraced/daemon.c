/* SPDX-License-Identifier: BSD-3-Clause */
/* The router as a process: the controller with JSON-RPC, signals, the log and the service manager.
 */
#include "app/millraced/daemon.h"
#include "app/millraced/call_filter.h"
#include "app/millraced/privileges.h"
#include "app/millraced/service.h"
#include "lib/base/container.h"
#include "lib/base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "control/controller.h"
#include "lib/log/log.h"
#include "rpc/service.h"

struct daemon {
    const char *path; /* of the configuration file, absolute */
    struct controller *c;
    struct rpc_service *rpc;
    struct service *service;
    struct control_listener listener;
    struct reactor_fd signals;
    enum cfg_seccomp filter;
    bool waits; /* for the method start, and then for its filter */
};

/* The node that the method start started has opened its devices. Without the filter it must not
 * run. */
static void filter_late(struct daemon *d)
{
    struct err err = {0};

    if (call_filter_start(d->filter, &err) == 0)
        return;
    log_event(LOG_LEVEL_ERROR, LOG_MODULE_MILLRACED, "no_filter", LOG_S("msg", err.message));
    controller_interrupt(d->c);
}

static void phase(void *arg, enum control_phase phase)
{
    struct daemon *d = arg;

    if (phase == CONTROL_STARTED && d->waits)
        filter_late(d);
    service_phase(d->service, phase);
}

/* ---- signals ---- */

static void say_reloaded(void *arg, bool ok, const char *text)
{
    struct daemon *d = arg;

    log_event(ok ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, LOG_MODULE_CONFIG,
              ok ? "reloaded" : "not_reloaded", LOG_S("msg", text));
    service_reloaded(d->service, ok);
}

static void signal_event(struct reactor_fd *f, uint32_t events)
{
    struct daemon *d = container_of(f, struct daemon, signals);
    struct signalfd_siginfo info;

    if (read(f->fd, &info, sizeof(info)) != sizeof(info))
        return;
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "signal",
              LOG_S("signal", info.ssi_signo == SIGHUP    ? "SIGHUP"
                              : info.ssi_signo == SIGTERM ? "SIGTERM"
                                                          : "SIGINT"));
    if (info.ssi_signo != SIGHUP) {
        controller_interrupt(d->c);
        return;
    }
    service_reloading(d->service);
    controller_reload(d->c, d->path, say_reloaded, d);
}

/* Blocks the signals before any thread is made, so that all threads have them blocked. Returns the
 * descriptor that receives them, or -errno. */
static int open_signals(void)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* ---- the log ---- */

static int start_log(const struct cfg *cfg, struct err *err)
{
    struct log_opts opts = {.to = cfg->log_to, .level = (enum log_level)cfg->log_level};
    int rc = log_open(&opts, err), i;

    for (i = 0; rc == 0 && i < LOG_MODULES; i++)
        if (cfg->log_levels[i] >= 0)
            log_level_set((enum log_module)i, (enum log_level)cfg->log_levels[i]);
    return rc;
}

/* ---- the process ---- */

static int start(struct daemon *d, struct cfg *cfg, bool wait, int signals, struct err *err)
{
    int rc;

    d->filter = (enum cfg_seccomp)cfg->seccomp;
    d->waits = wait;
    rc = controller_create(cfg, d->path, wait, &d->c, err);
    if (rc != 0)
        return rc;
    d->service = service_start(d->c);
    if (!d->service)
        return err_set(err, -ENOMEM, "out of memory");
    d->listener = (struct control_listener){.phase = phase, .arg = d};
    controller_listen(d->c, &d->listener);
    rc = signals < 0 ? signals : reactor_fd_add(&d->signals, signals, EPOLLIN, signal_event);
    if (rc != 0)
        err_text(err, "signals: %s", strerror(-rc));
    if (rc == 0)
        rc = rpc_service_start(d->c, &d->rpc, err);
    if (rc == 0 && !wait)
        rc = controller_start(d->c, err);
    if (rc == 0 && !wait)
        rc = call_filter_start(d->filter, err);
    if (rc == 0 && wait) {
        log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "waiting",
                  LOG_S("socket", cfg->rpc_socket));
        service_waiting(d->service);
    }
    return rc;
}

static void finish(struct daemon *d)
{
    if (!d->c)
        return;
    controller_take_down(d->c);
    rpc_service_stop(d->rpc);
    reactor_fd_del(&d->signals);
    service_stop(d->service);
    controller_free(d->c);
}

/* Returns an absolute path, since the process may read the file again from another directory.
 * Allocated, or NULL. */
static char *absolute(const char *path)
{
    char *here = path[0] == '/' ? strdup("") : getcwd(NULL, 0), *out = NULL;

    if (here && asprintf(&out, "%s%s%s", here, here[0] ? "/" : "", path) < 0)
        out = NULL;
    free(here);
    return out;
}

int daemon_run(struct cfg *cfg, const char *path, bool wait)
{
    char *file = absolute(path);
    struct daemon d = {.path = file ? file : path};
    struct err err = {0};
    bool orderly = false;
    int signals = open_signals(), rc = privileges_drop(cfg, &err);

    if (rc == 0)
        rc = start_log(cfg, &err);
    if (rc != 0) {
        cfg_free(cfg);
    } else {
        privileges_log(cfg, d.path);
        rc = start(&d, cfg, wait, signals, &err);
    }
    if (rc == 0) {
        orderly = controller_run(d.c);
        log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "stopped",
                  LOG_S("orderly", orderly ? "yes" : "no"));
    } else {
        log_event(LOG_LEVEL_ERROR, LOG_MODULE_MILLRACED, "failed",
                  LOG_S("errno", strerrorname_np(-rc)), LOG_S("msg", err.message),
                  LOG_S("remedy", err.remedy[0] ? err.remedy : NULL));
    }
    finish(&d);
    if (signals >= 0)
        close(signals);
    log_close();
    free(file);
    return rc == 0 && orderly ? 0 : 1;
}
