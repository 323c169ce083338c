/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting and stopping in order. What is started last is stopped first. */
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
#include "app/millraced/log.h"
#include "rpc/rpc_methods.h"
#include "rpc/rpc_server.h"

#define ERR_SIZE 400

struct daemon {
    const struct cfg *cfg;
    struct reactor_env *env;
    struct lnet_node *node;
    struct lnd_sock *sock;
    struct rpc_ctx rpc_ctx;
    struct jrpc jrpc;
    struct rpc_server *rpc;
    struct drop_watch *drops;
    struct daemon_memory memory;
    struct reactor_fd signals;
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

static void node_stopped(void *arg)
{
    struct daemon *d = arg;

    d->stopped = true;
    reactor_control_quit(d->env);
}

static void begin_stop(void *arg, unsigned drain_s)
{
    struct daemon *d = arg;

    if (d->stopping)
        return;
    d->stopping = true;
    log_line(LOG_LEVEL_INFO, "millraced", "event=stopping drain=%u", drain_s);
    notify_manager("STOPPING=1");
    lnet_node_stop(d->node, drain_s, node_stopped, d);
}

static void signal_event(struct reactor_fd *f, uint32_t events)
{
    struct daemon *d = (struct daemon *)((char *)f - offsetof(struct daemon, signals));
    struct signalfd_siginfo info;

    if (read(f->fd, &info, sizeof(info)) != sizeof(info))
        return;
    log_line(LOG_LEVEL_INFO, "millraced", "event=signal signal=%s",
             info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
    if (d->stopping) {
        d->forced = true;
        reactor_control_quit(d->env);
    }
    begin_stop(d, (unsigned)d->cfg->drain);
}

/* ---- starting; each returns 0 or -errno with a sentence in err ---- */

/* Adds what the operator can do to a sentence of a library, which does not know our keys. */
__attribute__((format(printf, 2, 3))) static void hint(char *err, const char *fmt, ...)
{
    size_t used = strlen(err);
    va_list args;

    va_start(args, fmt);
    vsnprintf(err + used, ERR_SIZE - used, fmt, args);
    va_end(args);
}

/* Before any thread is made, so that all of them have these blocked. */
static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigprocmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int watch_signals(struct daemon *d, const sigset_t *set, char *err)
{
    int fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK), rc;

    rc = fd < 0 ? -errno : reactor_fd_add(&d->signals, fd, EPOLLIN, signal_event);
    if (rc == 0)
        return 0;
    snprintf(err, ERR_SIZE, "signals: %s", strerror(-rc));
    if (fd >= 0)
        close(fd);
    return rc;
}

static int start_env(struct daemon *d, char *err)
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
    int rc;

    rc = daemon_memory(cfg, daemon_ram(), &d->memory, err, ERR_SIZE);
    if (rc != 0)
        return rc;
    opts.mem_mb = d->memory.eal;
    rc = reactor_env_create(&opts, &d->env, err, ERR_SIZE);
    if (rc != 0 && cfg->hugepages)
        hint(err,
             "; are there %u MiB of free hugepages (sysctl vm.nr_hugepages)? If not, write "
             "hugepages: false",
             opts.mem_mb);
    else if (rc != 0 && cfg->eal_args[0])
        hint(err, "; check eal_args: and the other keys of millrace:");
    return rc;
}

static int make_sock(struct daemon *d, char *err)
{
    const struct cfg *cfg = d->cfg;
    struct sock_opts opts;
    struct sock_hello_map *map = calloc(cfg->hello_count + 1, sizeof(*map));
    unsigned i;

    daemon_sock_opts(cfg, &opts);
    for (i = 0; map && i < cfg->hello_count; i++)
        map[i] = (struct sock_hello_map){cfg->hello[i].address, cfg->hello[i].nid};
    opts.hello_map = map;
    opts.hello_map_count = map ? cfg->hello_count : 0;
    if (map)
        d->sock = lnd_sock_new(&opts);
    free(map);
    if (!d->sock) {
        snprintf(err, ERR_SIZE, "out of memory");
        return -ENOMEM;
    }
    return 0;
}

static int make_node(struct daemon *d, char *err)
{
    struct lnet_node_opts opts;
    int rc;

    daemon_node_opts(d->cfg, &opts);
    opts.env = d->env;
    opts.memory = d->memory.for_buffers;
    rc = lnet_node_create(&opts, &d->node, err, ERR_SIZE);
    if (rc == -ENOMEM)
        hint(err, "; millraced --check shows what is needed");
    if (rc == 0)
        rc = make_sock(d, err);
    if (rc == 0)
        rc = lnet_lnd_register(d->node, &lnd_sock_ops, d->sock);
    return rc;
}

static int add_nis(struct daemon *d, char *err)
{
    char reason[ERR_SIZE / 2];
    unsigned i;
    int rc;

    for (i = 0; i < d->cfg->ni_count; i++) {
        const struct cfg_ni *ni = &d->cfg->ni[i];

        reason[0] = '\0';
        rc = lnet_ni_add(d->node, &ni->conf, NULL, reason, sizeof(reason));
        if (rc != 0) {
            snprintf(err, ERR_SIZE, "NI on line %u of the configuration: %s", ni->line, reason);
            if (ni->conf.ifname[0] && !if_nametoindex(ni->conf.ifname))
                hint(err, "; there is no interface %s, `ip link` lists those there are",
                     ni->conf.ifname);
            return rc;
        }
    }
    return 0;
}

static int add_routes(struct daemon *d, char *err)
{
    char reason[ERR_SIZE / 2];
    unsigned i;
    int rc;

    for (i = 0; i < d->cfg->route_count; i++) {
        const struct cfg_route *route = &d->cfg->route[i];

        reason[0] = '\0';
        rc = lnet_route_add(d->node, &route->conf, reason, sizeof(reason));
        if (rc != 0) {
            snprintf(err, ERR_SIZE, "route on line %u of the configuration: %s", route->line,
                     reason);
            return rc;
        }
    }
    return 0;
}

/* Clients can connect at once; they are answered when the control loop runs, so a first answer says
 * that the node is up. */
static int start_rpc(struct daemon *d, char *err)
{
    struct rpc_server_opts opts = {.path = d->cfg->rpc_socket, .mode = (unsigned)d->cfg->rpc_mode};

    d->rpc_ctx = (struct rpc_ctx){.node = d->node,
                                  .env = d->env,
                                  .routing = d->cfg->routing,
                                  .drain_s = (unsigned)d->cfg->drain,
                                  .start_us = reactor_now_us(),
                                  .shutdown = begin_stop,
                                  .shutdown_arg = d};
    d->jrpc = (struct jrpc){.methods = rpc_method_table, .ctx = &d->rpc_ctx};
    return rpc_server_create(&opts, &d->jrpc, &d->rpc, err, ERR_SIZE);
}

static int start_node(struct daemon *d, char *err)
{
    int rc = reactor_env_start(d->env);

    if (rc != 0) {
        snprintf(err, ERR_SIZE, "reactors cannot be started: %s", strerror(-rc));
        return rc;
    }
    rc = lnet_node_start(d->node, err, ERR_SIZE);
    if (rc == -EACCES)
        hint(err, "; run it as root or give it that capability (setcap cap_net_bind_service+ep)");
    if (rc == -EADDRINUSE)
        hint(err, "; `ss -ltnp sport = %d` shows who has the port", d->cfg->accept_port);
    if (rc == 0)
        d->drops = drop_watch_start(d->node);
    return rc;
}

static int start(struct daemon *d, const sigset_t *signals, char *err)
{
    int rc = start_env(d, err);

    if (rc == 0)
        rc = watch_signals(d, signals, err);
    if (rc == 0)
        rc = make_node(d, err);
    if (rc == 0)
        rc = add_nis(d, err);
    if (rc == 0)
        rc = add_routes(d, err);
    if (rc == 0)
        rc = start_rpc(d, err);
    if (rc == 0)
        rc = start_node(d, err);
    return rc;
}

/* Undoes as much of start() as was done. */
static void finish(struct daemon *d)
{
    drop_watch_stop(d->drops);
    if (d->env)
        reactor_env_stop(d->env);
    rpc_server_destroy(d->rpc);
    if (d->node)
        lnet_node_destroy(d->node);
    if (d->sock)
        lnd_sock_free(d->sock);
    if (d->signals.fn) {
        reactor_fd_del(&d->signals);
        close(d->signals.fd);
    }
    reactor_env_destroy(d->env);
}

/* A sentence within quotes. */
static const char *quotable(char *text)
{
    char *p;

    for (p = text; *p; p++)
        if (*p == '"')
            *p = '\'';
    return text;
}

static void log_warning(const char *text)
{
    log_line(LOG_LEVEL_WARNING, "millraced", "event=memory msg=\"%s\"", text);
}

static void log_ready(const struct daemon *d)
{
    const struct daemon_memory *m = &d->memory;
    char nid[LNET_NIDSTR_SIZE];
    unsigned i;

    daemon_memory_warn(d->cfg, m, log_warning);
    log_line(LOG_LEVEL_INFO, "lnet", "event=buffers tiny=%u small=%u large=%u eal_mib=%u",
             m->node.buffers[LNET_POOL_TINY], m->node.buffers[LNET_POOL_SMALL],
             m->node.buffers[LNET_POOL_LARGE], m->eal);
    for (i = 0; i < lnet_ni_count(d->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(d->node, i);

        if (!ni)
            continue;
        log_line(LOG_LEVEL_INFO, "lnet", "event=ni nid=%s interface=%s peer_credits=%d credits=%d",
                 nid_format(&ni->nid, nid), ni->ifname[0] ? ni->ifname : "-", ni->tun.peer_credits,
                 ni->tun.credits);
    }
    log_line(LOG_LEVEL_INFO, "millraced",
             "event=ready version=%s pid=%d nis=%u routes=%u routing=%s reactors=%u socket=%s",
             MILLRACE_VERSION, (int)getpid(), lnet_ni_count(d->node),
             lnet_route_rows(d->node, NULL, 0), d->cfg->routing ? "on" : "off",
             reactor_count(d->env), d->cfg->rpc_socket);
}

int daemon_run(const struct cfg *cfg)
{
    struct daemon d = {.cfg = cfg};
    char err[ERR_SIZE] = "";
    sigset_t signals;
    int rc;

    block_signals(&signals);
    rc = start(&d, &signals, err);
    if (rc == 0) {
        log_ready(&d);
        notify_manager("READY=1");
        reactor_control_run(d.env);
        drop_watch_stop(d.drops);
        d.drops = NULL;
        log_line(LOG_LEVEL_INFO, "millraced", "event=stopped orderly=%s",
                 d.stopped && !d.forced ? "yes" : "no");
    } else {
        log_line(LOG_LEVEL_ERROR, "millraced", "event=failed errno=%s msg=\"%s\"",
                 strerrorname_np(-rc) ? strerrorname_np(-rc) : "?", quotable(err));
    }
    finish(&d);
    return rc == 0 && d.stopped ? 0 : 1;
}
