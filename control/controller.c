/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts and stops the environment, ports, node, NIs and routes in order: what is started last is
 * stopped first. */
#include "control/controller_internal.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/version.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/absent.h"
#include "control/drop_watch.h"
#include "control/restart.h"
#include "lib/log/log.h"

#define READY_LOOK_US 50000 /* between looks whether the ports' addresses are checked */

/* A controller that has made its environment and node itself. */
struct process {
    struct controller c;
    const struct cfg *cfg;       /* the document at the start of the node; changes replace it */
    void *lnd[LND_TYPES_MAX];    /* in the order of lnd_codes */
    struct control_ports *ports; /* NULL: the document has no ports */
    struct drop_watch *drops;
    struct control_memory memory;
    struct reactor_task abandoned;
    struct reactor_timer ready_timer; /* bring_up() was complete, addresses are still checked */
    uint64_t up_us;                   /* when bring_up() was complete */
    bool checked;                     /* the last look found no address that is still checked */
    bool waiting;                     /* for the method start */
    bool reactors_run;
    bool abandoning; /* a start has failed; its parts are being stopped */
    bool stopping;
    bool stopped; /* the node has stopped in order */
    bool forced;  /* a second signal came before that */
};

static struct process *process_of(struct controller *c)
{
    return container_of(c, struct process, c);
}

/* ---- stopping ---- */

static void all_stopped(void *arg)
{
    struct process *d = arg;

    d->stopped = true;
    reactor_control_quit(d->c.env);
}

/* TCP has accepted all that the node sent. Ports end last. */
static void node_stopped(void *arg)
{
    struct process *d = arg;

    if (d->ports)
        control_ports_stop(d->ports, all_stopped, d);
    else
        all_stopped(d);
}

static void begin_stop(struct controller *c, unsigned drain_s)
{
    struct process *d = process_of(c);

    if (d->stopping)
        return;
    d->stopping = true;
    reactor_timer_cancel(&d->ready_timer);
    control_restart_stop(c->restart);
    control_drain_stop(c);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "stopping", LOG_U("drain", drain_s));
    control_enter(c, CONTROL_STOPPING);
    cfg_running_stopping(c->running);
    if (d->abandoning)
        return; /* abandoned() goes on */
    if (c->node)
        lnet_node_stop(c->node, drain_s, node_stopped, d);
    else
        node_stopped(d);
}

void controller_interrupt(struct controller *c)
{
    struct process *d = process_of(c);

    if (d->stopping) {
        d->forced = true;
        reactor_control_quit(c->env);
    }
    begin_stop(c, c->drain_s);
}

/* ---- starting; each returns 0 or -errno with a sentence in err ---- */

/* Returns the PCI devices of ports with their arguments, "" when there are none. Allocated. */
static char *pci_devices(const struct cfg *cfg)
{
    struct port_opts opts;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return NULL;
    for (unsigned i = 0; i < cfg->port_count; i++)
        if (cfg_port_is_pci(&cfg->port[i]) && control_port_opts(cfg, i, &opts))
            fprintf(to, "%s ", opts.device);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

/* Returns the directory of the RPC socket. Allocated; NULL: out of memory. */
static char *socket_dir(const struct cfg *cfg)
{
    const char *slash = strrchr(cfg->rpc_socket, '/');

    if (!slash)
        return strdup(".");
    return strndup(cfg->rpc_socket,
                   slash > cfg->rpc_socket ? (size_t)(slash - cfg->rpc_socket) : 1);
}

/* Makes the environment, with telemetry if it is configured. */
static int make_env(struct process *d, struct reactor_opts *opts, struct err *err)
{
    char *dir = NULL;
    int rc = 0;

    if (d->cfg->telemetry) {
        opts->telemetry_dir = dir = socket_dir(d->cfg);
        rc = dir ? 0 : -ENOMEM;
    }
    if (rc != 0)
        err_text(err, "out of memory");
    else
        rc = reactor_env_create(opts, &d->c.env, err);
    if (rc == 0)
        reactor_capacity_watch(d->c.env);
    free(dir);
    return rc;
}

static int start_env(struct process *d, struct err *err)
{
    const struct cfg *cfg = d->cfg;
    struct reactor_opts opts = {
        .prog = "millraced",
        .cores = cfg->cores,
        .count = (unsigned)cfg->reactors,
        .idle = (enum reactor_idle)cfg->idle,
        .hugepages = cfg->hugepages,
        .eal_args = cfg->eal_args[0] ? cfg->eal_args : NULL,
    };
    char *devices;
    int rc;

    rc = control_memory(cfg, control_ram(), &d->memory, err);
    if (rc != 0)
        return rc;
    opts.mem_mb = d->memory.eal;
    opts.devices = devices = pci_devices(cfg);
    rc = make_env(d, &opts, err);
    free(devices);
    if (rc == 0 || err->where[0])
        return rc; /* the error names its key */
    if (cfg->hugepages)
        err_remedy(err,
                   "are there %u MiB of free hugepages (sysctl vm.nr_hugepages)? If not, write "
                   "hugepages: false",
                   opts.mem_mb);
    else if (cfg->eal_args[0])
        err_remedy(err, "check eal_args: and the other keys of millrace:");
    return rc;
}

/* Makes the LND of number i. */
static int make_lnd(struct process *d, unsigned i, struct err *err)
{
    const struct lnd_code *code = lnd_codes[i];
    const struct cfg *cfg = d->cfg;
    struct lnd_conf conf = control_lnd_conf(cfg, code->type);
    struct lnd_source_map *map = calloc(cfg->hello_count + 1, sizeof(*map));

    for (unsigned k = 0; map && k < cfg->hello_count; k++)
        map[k] = (struct lnd_source_map){cfg->hello[k].address, cfg->hello[k].nid};
    conf.map = map;
    conf.map_count = cfg->hello_count;
    conf.ports = d->ports ? control_ports_table(d->ports) : NULL;
    if (map)
        d->lnd[i] = code->create(&conf);
    free(map);
    if (!d->lnd[i]) {
        err_text(err, "out of memory");
        return -ENOMEM;
    }
    if (d->ports && code->port_home)
        control_ports_driver(d->ports, code, d->lnd[i]);
    return lnet_lnd_register(d->c.node, code->ops, d->lnd[i]);
}

static int make_node(struct process *d, struct err *err)
{
    struct lnet_node_opts opts;
    int rc;

    control_node_opts(d->cfg, &opts);
    opts.env = d->c.env;
    opts.memory = d->memory.for_buffers;
    opts.segments = d->memory.segments;
    rc = lnet_node_create(&opts, &d->c.node, err);
    if (rc == -ENOMEM)
        err_remedy(err, "millraced --check shows what is needed");
    if (rc == 0)
        rc = control_set_access(d->c.node, d->cfg, err);
    if (rc == 0)
        rc = control_set_udsp(d->c.node, d->cfg, err);
    if (rc == 0)
        rc = control_set_health(d->c.node, d->cfg, err);
    if (rc == 0)
        rc = lnet_discovery_set(d->c.node, d->cfg->discovery, err);
    if (rc == 0)
        rc = control_ports_open(d->cfg, d->c.env, &d->memory, &d->c, &d->ports, err);
    for (unsigned i = 0; rc == 0 && lnd_codes[i]; i++)
        rc = make_lnd(d, i, err);
    return rc;
}

/* 0 with a sentence in why: it waits for the device of its port. */
static int add_ni(struct process *d, const struct cfg_ni *ni, struct err *why)
{
    const struct cfg_port *port = cfg_port_of(d->cfg, ni);
    struct lnet_ni *made;
    int rc = lnet_ni_add(d->c.node, &ni->conf, &made, why);

    if (rc != 0)
        return rc;
    control_log_lowered(&ni->conf, made);
    if (port)
        control_ports_lack(d->ports, port, why);
    return 0;
}

static int add_nis(struct process *d, struct err *err)
{
    unsigned wait = 0;

    for (unsigned i = 0; i < d->cfg->ni_count; i++) {
        const struct cfg_ni *ni = &d->cfg->ni[i];
        struct err why = {0};
        int rc = add_ni(d, ni, &why);

        if (rc == 0 && why.message[0] == '\0')
            continue;
        *err = why;
        err_text(err, "NI on line %u of the configuration: %s", ni->line, why.message);
        if ((rc != 0 && !control_absent_may(ni->conf.net, rc)) || ++wait == d->cfg->ni_count)
            return rc != 0 ? rc : -ENODEV; /* no NI would be left */
        if (rc != 0)
            rc = control_absent_add(&d->c, &ni->conf, err);
        if (rc != 0)
            return rc;
        *err = (struct err){0};
    }
    return 0;
}

static int add_routes(struct process *d, struct err *err)
{
    struct err reason = {0};
    unsigned i;
    int rc;

    for (i = 0; i < d->cfg->route_count; i++) {
        const struct cfg_route *route = &d->cfg->route[i];

        reason = (struct err){0};
        if (control_absent_net(&d->c, nid_net(&route->conf.gateway)))
            continue;
        rc = lnet_route_add(d->c.node, &route->conf, &reason);
        if (rc != 0) {
            *err = reason;
            err_text(err, "route on line %u of the configuration: %s", route->line, reason.message);
            return rc;
        }
    }
    return 0;
}

static void drops_grew(void *arg, const struct control_event *event)
{
    control_happened(arg, event);
}

static int start_node(struct process *d, struct err *err)
{
    int rc = reactor_env_start(d->c.env);

    if (rc != 0) {
        err_text(err, "reactors cannot be started: %s", strerror(-rc));
        return rc;
    }
    if (d->ports)
        rc = control_ports_start(d->ports, err);
    if (rc != 0)
        return rc;
    d->reactors_run = true;
    rc = lnet_node_start(d->c.node, err);
    if (rc == -EACCES)
        err_remedy(err,
                   "run it as root or give it that capability (setcap cap_net_bind_service+ep)");
    if (rc == 0)
        d->drops = drop_watch_start(d->c.node, drops_grew, &d->c);
    return rc;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void drain(struct process *d)
{
    bool all = reactor_env_drain(d->c.env);

    assert(all);
    (void)all;
}

/* Takes everything down in one order: after an orderly stop, a forced one, and a start that failed.
 * Reactors stop. Messages to the control thread are delivered, which answers each request to a
 * reactor. The node ends, and with it the calls that wait, while all that they use still exists.
 * Then the node is freed. */
static void take_down(struct process *d)
{
    drop_watch_stop(d->drops);
    d->drops = NULL;
    control_restart_stop(d->c.restart);
    control_drain_stop(&d->c);
    reactor_env_stop(d->c.env);
    d->reactors_run = false;
    drain(d);
    control_enter(&d->c, CONTROL_HALTED);
    if (d->c.node) {
        lnet_node_end(d->c.node);
        drain(d);
    }
    if (d->ports) {
        control_ports_stop(d->ports, nothing, NULL);
        drain(d);
    }
    control_enter(&d->c, CONTROL_ENDED);
    control_absent_clear(&d->c);
    d->c.inet = NULL;
    d->c.tcp = NULL;
    reactor_env_clear(d->c.env); /* timers are parts of the node */
    if (d->c.node)
        lnet_node_destroy(d->c.node);
    d->c.node = NULL;
    for (unsigned i = 0; lnd_codes[i]; i++) {
        lnd_codes[i]->destroy(d->lnd[i]);
        d->lnd[i] = NULL;
    }
    control_restart_free(d->c.restart); /* pings of the node refer to it */
    d->c.restart = NULL;
    control_ports_close(d->ports); /* messages of the node may have used segments of the ports */
    d->ports = NULL;
}

static void log_warning(const char *text)
{
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "memory", LOG_S("msg", text));
}

static void log_ready(struct process *d)
{
    const struct control_memory *m = &d->memory;
    char nid[LNET_NIDSTR_SIZE];

    d->cfg =
        cfg_running_get(d->c.running); /* a change may have replaced the document since the start */
    control_memory_warn(d->cfg, m, log_warning);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "buffers",
              LOG_U("tiny", m->node.buffers[LNET_POOL_TINY]),
              LOG_U("small", m->node.buffers[LNET_POOL_SMALL]),
              LOG_U("large", m->node.buffers[LNET_POOL_LARGE]), LOG_U("eal_mib", m->eal));
    if (d->ports)
        control_ports_log(d->ports);
    for (unsigned i = 0; i < lnet_ni_count(d->c.node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(d->c.node, i);

        if (!ni)
            continue;
        log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "ni", LOG_S("nid", nid_format(&ni->nid, nid)),
                  LOG_S("interface", ni->ifname[0] ? ni->ifname : NULL),
                  LOG_I("peer_credits", ni->tun.peer_credits), LOG_I("credits", ni->tun.credits));
    }
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "ready", LOG_S("version", MILLRACE_VERSION),
              LOG_I("pid", getpid()), LOG_U("nis", lnet_ni_count(d->c.node)),
              LOG_U("routes", lnet_route_rows(d->c.node, NULL, 0)),
              LOG_S("routing", d->cfg->routing ? "on" : "off"),
              LOG_U("reactors", reactor_count(d->c.env)), LOG_S("socket", d->cfg->rpc_socket),
              LOG_S("telemetry", reactor_telemetry_path(d->c.env)),
              LOG_U("waited_ms", (unsigned)((reactor_now_us() - d->up_us) / 1000)));
    control_enter(&d->c, CONTROL_READY);
    control_restart_begin(d->c.restart);
}

/* §3.8 check_routers_before_use: a node starts once it has checked all gateways. Changes replace
 * the document meanwhile. */
static bool may_use_routes(const struct process *d)
{
    return !cfg_running_get(d->c.running)->check_routers_before_use ||
           lnet_gateways_checked(d->c.node);
}

/* The node is ready when the ports' addresses have been checked for duplicates: their NIs are down
 * until then. The NIs learn the result by a message to a reactor, so `ready` follows one look
 * later. */
static void look_for_ready(struct reactor_timer *timer)
{
    struct process *d = container_of(timer, struct process, ready_timer);

    if (control_ports_checking(d->ports) > 0 || !may_use_routes(d)) {
        d->checked = false;
    } else if (d->checked) {
        log_ready(d);
        return;
    } else {
        d->checked = true;
    }
    reactor_timer_arm(timer, READY_LOOK_US);
}

static void brought_up(struct process *d)
{
    unsigned checking = control_ports_checking(d->ports);

    d->up_us = reactor_now_us();
    d->checked = false;
    if (checking == 0 && may_use_routes(d)) {
        log_ready(d);
        return;
    }
    if (checking > 0)
        log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "addresses_checking",
                  LOG_U("addresses", checking), LOG_U("ms", INET_DAD_MS));
    reactor_timer_arm(&d->ready_timer, READY_LOOK_US);
}

/* Plans the memory of a document again: it must fit what the process was started with. */
static int plan_memory(struct process *d, struct err *err)
{
    unsigned eal = d->memory.eal;
    int rc = control_memory(d->cfg, control_ram(), &d->memory, err);

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

/* Makes and starts the node of the running document. After an error parts of the node may exist. */
static int bring_up(struct process *d, struct err *err)
{
    int rc;

    d->cfg = cfg_running_get(d->c.running);
    rc = plan_memory(d, err);
    if (rc == 0 && !d->cfg->ni_count) {
        err_text(err, "no NI is configured; add one under net:");
        rc = -EINVAL;
    }
    if (rc == 0) {
        d->c.restart = control_restart_open(&d->c);
        rc = make_node(d, err);
    }
    if (rc == 0)
        rc = add_nis(d, err);
    if (rc == 0)
        rc = control_begin_peers(d->c.node, d->cfg, err);
    if (rc == 0)
        rc = add_routes(d, err);
    if (rc == 0)
        rc = start_node(d, err);
    if (rc != 0)
        return rc;
    if (d->ports) {
        d->c.inet = control_ports_table(d->ports)->inet;
        d->c.tcp = control_ports_table(d->ports)->transport.ctx;
    }
    d->c.drain_s = (unsigned)d->cfg->drain;
    control_apply_start(&d->c);
    control_absent_watch(&d->c);
    d->waiting = false;
    d->c.start = NULL;
    control_enter(&d->c, CONTROL_STARTED);
    brought_up(d);
    return 0;
}

static void abandoned(struct reactor_task *task)
{
    struct process *d = container_of(task, struct process, abandoned);

    take_down(d);
    d->abandoning = false;
    if (d->stopping)
        node_stopped(d);
}

static void abandoned_ports(void *arg)
{
    struct process *d = arg;

    d->abandoned.fn = abandoned;
    reactor_post(reactor_control(d->c.env), &d->abandoned);
}

static void abandoned_stopped(void *arg)
{
    struct process *d = arg;

    if (d->ports)
        control_ports_stop(d->ports, abandoned_ports, d);
    else
        abandoned_ports(d);
}

/* Takes down the parts of a node that could not be started, so that the next start begins anew.
 * Once reactors run, the parts are stopped in order first. */
static void abandon(struct process *d)
{
    if (!d->reactors_run) {
        take_down(d);
        return;
    }
    d->abandoning = true;
    lnet_node_stop(d->c.node, 0, abandoned_stopped, d);
}

/* The method start of a process that waits. */
static int leave_waiting(struct controller *c, struct err *err)
{
    struct process *d = process_of(c);
    int rc;

    if (d->abandoning || d->stopping)
        return err_set(err, -EBUSY, "%s",
                       d->stopping ? "the node is stopping"
                                   : "what the last start began is still being stopped");
    rc = bring_up(d, err);
    if (rc != 0)
        abandon(d);
    return rc;
}

/* ---- the controller's life ---- */

int controller_create(struct cfg *cfg, const char *path, bool wait, struct controller **out,
                      struct err *err)
{
    struct process *d = calloc(1, sizeof(*d));
    struct cfg_running *running = cfg_running_new(cfg, path);
    int rc;

    *out = NULL;
    if (d && running) {
        d->c = (struct controller){.running = running,
                                   .drain_s = (unsigned)cfg->drain,
                                   .start_us = reactor_now_us(),
                                   .start = wait ? leave_waiting : NULL,
                                   .shutdown = begin_stop};
        d->cfg = cfg;
        d->waiting = wait;
        reactor_timer_init(&d->ready_timer, look_for_ready);
        rc = start_env(d, err);
    } else {
        rc = err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0) {
        *out = &d->c;
        return 0;
    }
    cfg_running_free(running);
    free(d);
    return rc;
}

int controller_start(struct controller *c, struct err *err)
{
    return bring_up(process_of(c), err);
}

bool controller_run(struct controller *c)
{
    struct process *d = process_of(c);

    reactor_control_run(c->env);
    drop_watch_stop(d->drops);
    d->drops = NULL;
    return d->stopped && !d->forced;
}

void controller_take_down(struct controller *c)
{
    take_down(process_of(c));
}

void controller_free(struct controller *c)
{
    reactor_env_destroy(c->env);
    cfg_running_free(c->running);
    free(process_of(c));
}
