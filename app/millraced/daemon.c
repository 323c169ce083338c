/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting and stopping in order. What is started last is stopped first. */
#include <assert.h>
#include <errno.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "app/millraced/daemon_internal.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/log/log.h"
#include "rpc/engine/rpc_server.h"
#include "rpc/methods/absent.h"
#include "rpc/methods/capture.h"
#include "rpc/methods/events.h"
#include "rpc/methods/methods.h"
#include "rpc/methods/timed.h"

#define READY_LOOK_US 50000 /* between looks whether the ports' addresses are checked */

struct daemon {
    const struct cfg *cfg;       /* as it was started; gone with the first change */
    const char *path;            /* of the file it came from */
    struct cfg_running *running; /* the document as it is now */
    struct reactor_env *env;
    struct lnet_node *node;
    struct lnd_sock *sock;
    struct lnd_verbs *verbs;
    struct daemon_ports *ports; /* NULL: there are none */
    struct rpc_ctx rpc_ctx;
    struct jrpc jrpc;
    struct rpc_server *rpc;
    struct drop_watch *drops;
    struct daemon_memory memory;
    struct reactor_fd signals;
    struct reactor_task abandoned;
    struct reactor_timer ready_timer; /* bring_up() was complete, addresses are still checked */
    uint64_t up_us;                   /* when bring_up() was complete */
    bool checked;                     /* the last look found no address that is still checked */
    unsigned calls;                   /* of clients, not ended */
    bool waiting;                     /* for the method start */
    bool reactors_run;
    bool abandoning; /* what a start that failed had begun is being stopped */
    bool stopping;
    bool stopped; /* the node has */
    bool forced;  /* a second signal came before that */
};

/* ---- systemd's readiness protocol ---- */

static void notify_manager(const char *state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;
    int fd;

    if (!len || len >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(addr.sun_path, path, len);
    if (path[0] == '@')
        addr.sun_path[0] = '\0'; /* abstract name: neither it nor its length has a final NUL */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}

/* ---- stopping ---- */

static void all_stopped(void *arg)
{
    struct daemon *d = arg;

    d->stopped = true;
    reactor_control_quit(d->env);
}

/* What was sent has been told to TCP by now; what is above ports ends before they do. */
static void node_stopped(void *arg)
{
    struct daemon *d = arg;

    if (d->ports)
        daemon_ports_stop(d->ports, all_stopped, d);
    else
        all_stopped(d);
}

static void begin_stop(void *arg, unsigned drain_s)
{
    struct daemon *d = arg;

    if (d->stopping)
        return;
    d->stopping = true;
    reactor_timer_cancel(&d->ready_timer);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "stopping", LOG_U("drain", drain_s));
    notify_manager("STOPPING=1");
    cfg_running_stopping(d->running);
    if (d->abandoning)
        return; /* abandoned() goes on */
    if (d->waiting) {
        node_stopped(d);
        return;
    }
    lnet_node_stop(d->node, drain_s, node_stopped, d);
}

static void say_reloaded(void *arg, bool ok, const char *text)
{
    log_event(ok ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, LOG_MODULE_CONFIG,
              ok ? "reloaded" : "not_reloaded", LOG_S("msg", text));
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
    if (info.ssi_signo == SIGHUP) {
        log_reopen();
        rpc_config_reload(&d->rpc_ctx, d->path, say_reloaded, NULL);
        return;
    }
    if (d->stopping) {
        d->forced = true;
        reactor_control_quit(d->env);
    }
    begin_stop(d, d->rpc_ctx.drain_s);
}

/* ---- starting; each returns 0 or -errno with a sentence in err ---- */

/* Before any thread is made, so that all of them have these blocked. */
static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigprocmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int watch_signals(struct daemon *d, const sigset_t *set, struct err *err)
{
    int fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK), rc;

    rc = fd < 0 ? -errno : reactor_fd_add(&d->signals, fd, EPOLLIN, signal_event);
    if (rc == 0)
        return 0;
    err_text(err, "signals: %s", strerror(-rc));
    if (fd >= 0)
        close(fd);
    return rc;
}

/* PCI devices of ports, with their arguments; "" when there are none. Allocated. */
static char *pci_devices(const struct cfg *cfg)
{
    struct port_opts opts;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return NULL;
    for (unsigned i = 0; i < cfg->port_count; i++)
        if (cfg_port_is_pci(&cfg->port[i]) && daemon_port_opts(cfg, i, &opts))
            fprintf(to, "%s ", opts.device);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

/* The directory of the RPC socket. Allocated; NULL: out of memory. */
static char *socket_dir(const struct cfg *cfg)
{
    const char *slash = strrchr(cfg->rpc_socket, '/');

    if (!slash)
        return strdup(".");
    return strndup(cfg->rpc_socket,
                   slash > cfg->rpc_socket ? (size_t)(slash - cfg->rpc_socket) : 1);
}

/* The environment, with telemetry where it is wanted. */
static int make_env(struct daemon *d, struct reactor_opts *opts, struct err *err)
{
    char *dir = NULL;
    int rc = 0;

    if (d->cfg->telemetry) {
        opts->telemetry_dir = dir = socket_dir(d->cfg);
        rc = dir ? daemon_telemetry_register() : -ENOMEM;
    }
    if (rc != 0)
        err_text(err, "telemetry: %s", strerror(-rc));
    else
        rc = reactor_env_create(opts, &d->env, err);
    if (rc == 0)
        reactor_capacity_watch(d->env);
    free(dir);
    return rc;
}

static int start_env(struct daemon *d, struct err *err)
{
    const struct cfg *cfg = d->cfg;
    struct reactor_opts opts = {
        .prog = "millraced",
        .cores = cfg->cores,
        .count = (unsigned)cfg->reactors,
        .idle = cfg->idle == CFG_IDLE_SPIN ? REACTOR_IDLE_SPIN : REACTOR_IDLE_ADAPTIVE,
        .hugepages = cfg->hugepages,
        .eal_args = cfg->eal_args[0] ? cfg->eal_args : NULL,
    };
    char *devices;
    int rc;

    rc = daemon_memory(cfg, daemon_ram(), &d->memory, err);
    if (rc != 0)
        return rc;
    opts.mem_mb = d->memory.eal;
    opts.devices = devices = pci_devices(cfg);
    rc = make_env(d, &opts, err);
    free(devices);
    if (rc != 0 && cfg->hugepages)
        err_add(err,
                "; are there %u MiB of free hugepages (sysctl vm.nr_hugepages)? If not, write "
                "hugepages: false",
                opts.mem_mb);
    else if (rc != 0 && cfg->eal_args[0])
        err_add(err, "; check eal_args: and the other keys of millrace:");
    return rc;
}

static int make_sock(struct daemon *d, struct err *err)
{
    const struct cfg *cfg = d->cfg;
    struct sock_opts opts;
    struct sock_hello_map *map = calloc(cfg->hello_count + 1, sizeof(*map));

    daemon_sock_opts(cfg, &opts);
    if (d->ports)
        opts.ports = daemon_ports_table(d->ports);
    for (unsigned i = 0; map && i < cfg->hello_count; i++)
        map[i] = (struct sock_hello_map){cfg->hello[i].address, cfg->hello[i].nid};
    opts.hello_map = map;
    opts.hello_map_count = map ? cfg->hello_count : 0;
    if (map)
        d->sock = lnd_sock_new(&opts);
    free(map);
    if (!d->sock) {
        err_text(err, "out of memory");
        return -ENOMEM;
    }
    if (d->ports)
        daemon_ports_driver(d->ports, d->sock);
    return 0;
}

static bool verbs_memory(void *arg, struct rdma_counters *out)
{
    return lnd_verbs_provider(arg, out);
}

/* It opens no device before it has an NI. */
static int make_verbs(struct daemon *d, struct err *err)
{
    static const struct rpc_verbs shown = {lnd_verbs_info, lnd_verbs_counters, lnd_verbs_conns,
                                           verbs_memory};
    struct verbs_opts opts;

    daemon_verbs_opts(d->cfg, &opts);
    d->verbs = lnd_verbs_new(&opts);
    if (!d->verbs) {
        err_text(err, "out of memory");
        return -ENOMEM;
    }
    d->rpc_ctx.verbs = &shown;
    d->rpc_ctx.verbs_arg = d->verbs;
    return 0;
}

static int make_node(struct daemon *d, struct err *err)
{
    struct lnet_node_opts opts;
    int rc;

    daemon_node_opts(d->cfg, &opts);
    opts.env = d->env;
    opts.memory = d->memory.for_buffers;
    opts.segments = d->memory.segments;
    rc = lnet_node_create(&opts, &d->node, err);
    d->rpc_ctx.node = d->node; /* methods that look at it wait for jrpc.started */
    if (rc == -ENOMEM)
        err_add(err, "; millraced --check shows what is needed");
    if (rc == 0)
        rc = daemon_ports_open(d->cfg, d->env, &d->memory, &d->rpc_ctx, &d->ports, err);
    if (rc == 0)
        rc = make_sock(d, err);
    if (rc == 0)
        rc = lnet_lnd_register(d->node, &lnd_sock_ops, d->sock);
    if (rc == 0)
        rc = make_verbs(d, err);
    if (rc == 0)
        rc = lnet_lnd_register(d->node, &lnd_verbs_ops, d->verbs);
    return rc;
}

/* An NI that cannot be, in words. */
static void ni_failed(const struct daemon *d, const struct cfg_ni *ni, const char *reason,
                      struct err *err)
{
    err_text(err, "NI on line %u of the configuration: %s", ni->line, reason);
    if (ni->conf.ifname[0] && !cfg_port_of(d->cfg, ni) && !if_nametoindex(ni->conf.ifname))
        err_add(err, "; there is no interface %s, `ip link` lists those there are",
                ni->conf.ifname);
}

static int add_nis(struct daemon *d, struct err *err)
{
    struct err reason = {0};
    unsigned i, absent = 0;
    int rc;

    for (i = 0; i < d->cfg->ni_count; i++) {
        const struct cfg_ni *ni = &d->cfg->ni[i];

        reason = (struct err){0};
        rc = lnet_ni_add(d->node, &ni->conf, NULL, &reason);
        if (rc == 0)
            continue;
        ni_failed(d, ni, reason.message, err);
        if (!rpc_absent_may(ni->conf.net, rc) || ++absent == d->cfg->ni_count)
            return rc; /* nothing would be left to run */
        rc = rpc_absent_add(&d->rpc_ctx, &ni->conf, err->message);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int add_routes(struct daemon *d, struct err *err)
{
    struct err reason = {0};
    unsigned i;
    int rc;

    for (i = 0; i < d->cfg->route_count; i++) {
        const struct cfg_route *route = &d->cfg->route[i];

        reason = (struct err){0};
        if (rpc_absent_net(&d->rpc_ctx, nid_net(&route->conf.gateway)))
            rc = rpc_absent_route(&d->rpc_ctx, &route->conf);
        else
            rc = lnet_route_add(d->node, &route->conf, &reason);
        if (rc != 0) {
            err_text(err, "route on line %u of the configuration: %s", route->line, reason.message);
            return rc;
        }
    }
    return 0;
}

static int start_node(struct daemon *d, struct err *err)
{
    int rc = reactor_env_start(d->env);

    if (rc != 0) {
        err_text(err, "reactors cannot be started: %s", strerror(-rc));
        return rc;
    }
    if (d->ports)
        rc = daemon_ports_start(d->ports, err);
    if (rc != 0)
        return rc;
    d->reactors_run = true;
    rc = lnet_node_start(d->node, err);
    if (rc == -EACCES)
        err_add(err,
                "; run it as root or give it that capability (setcap cap_net_bind_service+ep)");
    if (rc == -EADDRINUSE && !strstr(err->message, "o2ib"))
        err_add(err, "; `ss -ltnp sport = %d` shows who has the port", d->cfg->accept_port);
    if (rc == 0)
        d->drops = drop_watch_start(d->node);
    return rc;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void drain(struct daemon *d)
{
    bool all = reactor_env_drain(d->env);

    assert(all);
    (void)all;
}

/* The one order of every end: of one that was asked for, one that was forced, a start that failed.
 * Reactors stop; what they were asked is answered by mail; what the node does for others is ended,
 * and calls that wait are, while all that they look at is still there; only then is it freed. */
static void take_down(struct daemon *d)
{
    drop_watch_stop(d->drops);
    d->drops = NULL;
    daemon_telemetry_show(NULL, NULL, 0);
    reactor_env_stop(d->env);
    d->reactors_run = false;
    drain(d);
    rpc_events_unwatch(&d->rpc_ctx);
    if (d->node) {
        lnet_node_end(d->node);
        drain(d);
        rpc_timed_stop(&d->rpc_ctx);
    }
    if (d->ports) {
        daemon_ports_stop(d->ports, nothing, NULL);
        drain(d);
    }
    rpc_absent_clear(&d->rpc_ctx);
    rpc_packets_stop(&d->rpc_ctx);
    d->rpc_ctx.inet = NULL; /* nobody is asked any more */
    d->rpc_ctx.tcp = NULL;
    reactor_env_clear(d->env); /* timers are parts of the node */
    if (d->node)
        lnet_node_destroy(d->node);
    d->node = d->rpc_ctx.node = NULL;
    if (d->sock)
        lnd_sock_free(d->sock);
    d->sock = NULL;
    d->rpc_ctx.verbs = NULL;
    lnd_verbs_free(d->verbs);
    d->verbs = NULL;
    daemon_ports_close(d->ports); /* messages of the node may have had segments of theirs */
    d->ports = NULL;
}

static void log_warning(const char *text)
{
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "memory", LOG_S("msg", text));
}

static void log_ready(const struct daemon *d)
{
    const struct daemon_memory *m = &d->memory;
    char nid[LNET_NIDSTR_SIZE];

    daemon_memory_warn(d->cfg, m, log_warning);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "buffers",
              LOG_U("tiny", m->node.buffers[LNET_POOL_TINY]),
              LOG_U("small", m->node.buffers[LNET_POOL_SMALL]),
              LOG_U("large", m->node.buffers[LNET_POOL_LARGE]), LOG_U("eal_mib", m->eal));
    if (d->ports)
        daemon_ports_log(d->ports);
    for (unsigned i = 0; i < lnet_ni_count(d->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(d->node, i);

        if (!ni)
            continue;
        log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "ni", LOG_S("nid", nid_format(&ni->nid, nid)),
                  LOG_S("interface", ni->ifname[0] ? ni->ifname : NULL),
                  LOG_I("peer_credits", ni->tun.peer_credits), LOG_I("credits", ni->tun.credits));
    }
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "ready", LOG_S("version", MILLRACE_VERSION),
              LOG_I("pid", getpid()), LOG_U("nis", lnet_ni_count(d->node)),
              LOG_U("routes", lnet_route_rows(d->node, NULL, 0)),
              LOG_S("routing", d->cfg->routing ? "on" : "off"),
              LOG_U("reactors", reactor_count(d->env)), LOG_S("socket", d->cfg->rpc_socket),
              LOG_S("telemetry", reactor_telemetry_path(d->env)),
              LOG_U("waited_ms", (unsigned)((reactor_now_us() - d->up_us) / 1000)));
    notify_manager("READY=1");
}

/* Logs `ready` and notifies systemd, but not before the ports' addresses are checked for
 * duplicates: their NIs are down until then. The NIs learn the result by a message to a reactor, so
 * `ready` follows one look later. */
static void look_for_ready(struct reactor_timer *timer)
{
    struct daemon *d = (struct daemon *)((char *)timer - offsetof(struct daemon, ready_timer));

    if (daemon_ports_checking(d->ports) > 0) {
        d->checked = false;
    } else if (d->checked) {
        log_ready(d);
        return;
    } else {
        d->checked = true;
    }
    reactor_timer_arm(timer, READY_LOOK_US);
}

static void brought_up(struct daemon *d)
{
    unsigned checking = daemon_ports_checking(d->ports);

    d->up_us = reactor_now_us();
    d->checked = false;
    if (checking == 0) {
        log_ready(d);
        return;
    }
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "addresses_checking",
              LOG_U("addresses", checking), LOG_U("ms", INET_DAD_MS));
    reactor_timer_arm(&d->ready_timer, READY_LOOK_US);
}

/* What was planned for the process at its start must do for a document that came later. */
static int plan_memory(struct daemon *d, struct err *err)
{
    unsigned eal = d->memory.eal;
    int rc = daemon_memory(d->cfg, daemon_ram(), &d->memory, err);

    if (rc == 0 && d->memory.eal > eal) {
        err_text(err,
                 "router buffers: %u MiB are needed, the process was started with %u; write "
                 "millrace: memory: %u into its file and restart it",
                 d->memory.eal, eal, d->memory.eal);
        rc = -ENOMEM;
    }
    d->memory.eal = eal;
    return rc;
}

/* The node of the document as it is now. After an error there may be a part of it. */
static int bring_up(struct daemon *d, struct err *err)
{
    int rc;

    d->cfg = cfg_running_get(d->running);
    rc = plan_memory(d, err);
    if (rc == 0 && !d->cfg->ni_count) {
        err_text(err, "no NI is configured; add one under net:");
        rc = -EINVAL;
    }
    if (rc == 0)
        rc = make_node(d, err);
    if (rc == 0)
        rc = add_nis(d, err);
    if (rc == 0)
        rc = add_routes(d, err);
    if (rc == 0)
        rc = start_node(d, err);
    if (rc != 0)
        return rc;
    if (d->ports) {
        d->rpc_ctx.inet = daemon_ports_table(d->ports)->inet;
        d->rpc_ctx.tcp = daemon_ports_table(d->ports)->transport.ctx;
    }
    daemon_telemetry_show(d->node, d->ports ? daemon_ports_table(d->ports) : NULL,
                          reactor_count(d->env));
    d->rpc_ctx.drain_s = (unsigned)d->cfg->drain;
    rpc_events_watch(&d->rpc_ctx);
    rpc_running_start(&d->rpc_ctx);
    d->jrpc.started = true;
    d->waiting = false;
    return 0;
}

static void abandoned(struct reactor_task *task)
{
    struct daemon *d = container_of(task, struct daemon, abandoned);

    take_down(d);
    d->abandoning = false;
    if (d->stopping)
        node_stopped(d);
}

static void abandoned_ports(void *arg)
{
    struct daemon *d = arg;

    d->abandoned.fn = abandoned;
    reactor_post(reactor_control(d->env), &d->abandoned);
}

static void abandoned_stopped(void *arg)
{
    struct daemon *d = arg;

    if (d->ports)
        daemon_ports_stop(d->ports, abandoned_ports, d);
    else
        abandoned_ports(d);
}

/* Of a part of a node nothing is left but what the next start can begin with. Once reactors ran,
 * what they have of it is stopped in order. */
static void abandon(struct daemon *d)
{
    if (!d->reactors_run) {
        take_down(d);
        return;
    }
    d->abandoning = true;
    lnet_node_stop(d->node, 0, abandoned_stopped, d);
}

static int leave_waiting(void *arg, struct err *err)
{
    struct daemon *d = arg;
    struct err reason = {0};
    int rc;

    if (d->abandoning || d->stopping) {
        return err_set(err, -EBUSY, "%s",
                       d->stopping ? "the node is stopping"
                                   : "what the last start began is still being stopped");
    }
    rc = bring_up(d, &reason);
    if (rc == 0) {
        brought_up(d);
    } else {
        abandon(d);
        err_text(err, "%s", reason.message);
    }
    return rc;
}

/* Clients can connect at once; they are answered when the control loop runs, so a first answer says
 * that the node is up. */
static int start_rpc(struct daemon *d, struct err *err)
{
    struct rpc_server_opts opts = {.path = d->cfg->rpc_socket,
                                   .mode = (unsigned)d->cfg->rpc_mode,
                                   .group = d->cfg->rpc_group,
                                   .admin_group = d->cfg->rpc_admin_group,
                                   .read_group = d->cfg->rpc_read_group,
                                   .log = event_log_client};

    d->rpc_ctx = (struct rpc_ctx){.env = d->env,
                                  .drain_s = (unsigned)d->cfg->drain,
                                  .start_us = reactor_now_us(),
                                  .running = d->running,
                                  .start = d->waiting ? leave_waiting : NULL,
                                  .start_arg = d,
                                  .shutdown = begin_stop,
                                  .shutdown_arg = d};
    if (rpc_events_start(&d->rpc_ctx) != 0) {
        err_text(err, "out of memory");
        return -ENOMEM;
    }
    event_log_start(&d->rpc_ctx);
    d->jrpc = (struct jrpc){.methods = rpc_method_table,
                            .handlers = rpc_handlers,
                            .ctx = &d->rpc_ctx,
                            .calls = &d->calls,
                            .changed = event_log_change};
    return rpc_server_create(&opts, &d->jrpc, &d->rpc, err);
}

_Static_assert((int)CFG_LOG_MODULES == (int)LOG_MODULES &&
                   (int)CFG_LOG_DROPS == (int)LOG_MODULE_DROPS,
               "modules of the log are numbered alike");
_Static_assert((int)CFG_LOG_ERROR == (int)LOG_LEVEL_ERROR, "levels too");

static int start_log(const struct cfg *cfg, struct err *err)
{
    struct log_opts opts = {.to = cfg->log_to, .level = (enum log_level)cfg->log_level};
    int rc = log_open(&opts, err), i;

    for (i = 0; rc == 0 && i < LOG_MODULES; i++)
        if (cfg->log_levels[i] >= 0)
            log_level_set((enum log_module)i, (enum log_level)cfg->log_levels[i]);
    return rc;
}

static int start(struct daemon *d, const sigset_t *signals, struct err *err)
{
    int rc = start_env(d, err);

    reactor_timer_init(&d->ready_timer, look_for_ready);
    if (rc == 0)
        rc = watch_signals(d, signals, err);
    if (rc == 0)
        rc = start_rpc(d, err);
    if (rc == 0 && !d->waiting)
        rc = bring_up(d, err);
    return rc;
}

/* Undoes as much of start() as was done. */
static void finish(struct daemon *d)
{
    if (d->env)
        take_down(d);
    assert(d->calls == 0); /* each has its answer, or nobody who wants it */
    rpc_events_stop(&d->rpc_ctx);
    rpc_server_destroy(d->rpc);
    if (d->signals.fn) {
        reactor_fd_del(&d->signals);
        close(d->signals.fd);
    }
    reactor_env_destroy(d->env);
    cfg_running_free(d->running);
}

/* The process may be told to read the file again from wherever it is then. Allocated. */
static char *absolute(const char *path)
{
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0), *out = NULL;

    if (path[0] == '/')
        out = strdup(path);
    else if (here && asprintf(&out, "%s/%s", here, path) < 0)
        out = NULL;
    free(here);
    return out;
}

int daemon_run(struct cfg *cfg, const char *path, bool wait)
{
    char *file = absolute(path);
    struct daemon d = {.cfg = cfg, .path = file ? file : path, .waiting = wait};
    struct err err = {0};
    bool orderly = false;
    sigset_t signals;
    int rc;

    d.running = cfg_running_new(cfg, d.path);
    if (!d.running) {
        free(file);
        return 1;
    }
    block_signals(&signals);
    rc = start_log(cfg, &err);
    if (rc == 0)
        rc = start(&d, &signals, &err);
    if (rc == 0) {
        if (d.waiting) {
            log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "waiting",
                      LOG_S("socket", cfg->rpc_socket));
            notify_manager("READY=1"); /* ready for the method node_start */
        } else {
            brought_up(&d);
        }
        reactor_control_run(d.env);
        drop_watch_stop(d.drops);
        d.drops = NULL;
        orderly = d.stopped && !d.forced;
        log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "stopped",
                  LOG_S("orderly", orderly ? "yes" : "no"));
    } else {
        log_event(LOG_LEVEL_ERROR, LOG_MODULE_MILLRACED, "failed",
                  LOG_S("errno", strerrorname_np(-rc)), LOG_S("msg", err.message));
    }
    finish(&d);
    log_close();
    free(file);
    return rc == 0 && orderly ? 0 : 1;
}
