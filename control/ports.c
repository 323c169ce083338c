/* SPDX-License-Identifier: BSD-3-Clause */
/* The ports of the process: opens devices, IP and TCP over them, and closes them in order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "control/restart.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/log/log.h"

struct control_ports {
    struct port *port[CFG_MAX_DEVICES];
    unsigned count;
    struct inet *inet;
    struct tcp *tcp;
    struct eth_ports table;
    const struct lnd_code *code; /* of the driver above; NULL: it is not made yet */
    void *driver;
    struct controller *c;
    bool runs; /* inet_start() was called */
    struct reactor_task task;
    void (*done)(void *arg);
    void *arg;
};

/* ---- what the driver knows of ports ---- */

static unsigned speed_of(const struct inet_if *ifp)
{
    struct port_info info;

    port_info_get(inet_if_port(ifp), &info);
    return info.speed;
}

static unsigned home_of(void *ctx, const struct inet_addr *local, const struct inet_addr *remote)
{
    const struct control_ports *p = ctx;

    return p->code->port_home(p->driver, local, remote);
}

static void happened(void *ctx, const struct inet_event *event)
{
    const struct control_ports *p = ctx;

    control_port_happened(p->c, event);
}

static void fill_table(struct control_ports *p)
{
    p->table = (struct eth_ports){
        .transport = {&stream_tcp, p->tcp},
        .inet = p->inet,
        .find = inet_if_find,
        .owner = inet_if_of,
        .name = inet_if_name,
        .addr = inet_if_addr,
        .speed = speed_of,
        .link = inet_if_link,
        .watch = inet_if_watch,
        .unwatch = inet_if_unwatch,
    };
}

const struct eth_ports *control_ports_table(const struct control_ports *p)
{
    return &p->table;
}

void control_ports_driver(struct control_ports *p, const struct lnd_code *code, void *ctx)
{
    p->driver = ctx;
    p->code = code;
}

/* ---- opening ---- */

static int open_devices(struct control_ports *p, const struct cfg *cfg, size_t buffers,
                        struct err *err)
{
    struct port_opts opts;
    int rc;

    for (unsigned i = 0; i < cfg->port_count; i++) {
        if (!control_port_opts(cfg, i, &opts))
            continue;
        opts.buffer_bytes = buffers;
        opts.may_lack = true;
        rc = port_open(&opts, NULL, &p->port[p->count], err);
        if (rc != 0)
            return rc;
        if (port_lacks(p->port[p->count++]))
            log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "port_waits",
                      LOG_S("port", opts.name), LOG_S("device", opts.device));
    }
    return 0;
}

static int make_ip(struct control_ports *p, const struct cfg *cfg, struct reactor_env *env,
                   struct err *err)
{
    struct inet_opts opts = {.env = env,
                             .home = home_of,
                             .home_ctx = p,
                             .neighbours = control_neighbours(cfg),
                             .prefix4 = (unsigned)cfg->share_prefix4,
                             .prefix6 = (unsigned)cfg->share_prefix6,
                             .event = happened,
                             .event_ctx = p};
    struct tcp_opts tcp;
    int rc = inet_create(&opts, &p->inet, err);

    if (rc != 0)
        return rc;
    control_tcp_opts(cfg, &tcp);
    return tcp_create(&tcp, p->inet, &p->tcp, err);
}

static struct port *port_of(const struct control_ports *p, const struct cfg_port *entry)
{
    unsigned i = 0;

    while (strcmp(p->port[i]->device, cfg_port_device(entry)) != 0)
        i++;
    return p->port[i];
}

/* Gateways are the routes to everything of their family. */
static unsigned routes_of(const struct cfg_port *entry, struct inet_route *out)
{
    static const struct inet_addr any4 = {{[10] = 0xff, [11] = 0xff}}, any6;
    unsigned n = entry->route_count;

    memcpy(out, entry->route, n * sizeof(*out));
    for (unsigned i = 0; i < entry->gateway_count; i++)
        out[n++] = (struct inet_route){
            .to = {.addr = inet_is4(&entry->gateway[i]) ? any4 : any6},
            .via = entry->gateway[i],
        };
    return n;
}

static int add_interface(struct control_ports *p, const struct cfg_port *entry, struct err *err)
{
    struct inet_route routes[CFG_PORT_ROUTES + 2];
    struct inet_if_opts opts = {
        .name = entry->name,
        .port = port_of(p, entry),
        .vlan = (uint16_t)entry->vlan,
        .mtu = (unsigned)entry->mtu,
        .addr = entry->address,
        .addrs = entry->address_count,
        .route = routes,
        .routes = routes_of(entry, routes),
        .dad_ms = entry->duplicate_check ? INET_DAD_MS : 0,
    };

    for (unsigned i = 0; i < opts.addrs; i++)
        if (control_restart_had(p->c->restart, &opts.addr[i].addr))
            opts.known |= UINT32_C(1) << i;
    return inet_if_add(p->inet, &opts, err);
}

static int open_all(struct control_ports *p, const struct cfg *cfg, struct reactor_env *env,
                    const struct control_memory *m, struct err *err)
{
    int rc = open_devices(p, cfg, m->port_buffers, err);

    if (rc == 0)
        rc = make_ip(p, cfg, env, err);
    for (unsigned i = 0; i < cfg->port_count && rc == 0; i++)
        rc = add_interface(p, &cfg->port[i], err);
    return rc;
}

int control_ports_open(const struct cfg *cfg, struct reactor_env *env,
                       const struct control_memory *m, struct controller *c,
                       struct control_ports **out, struct err *err)
{
    struct control_ports *p;
    int rc;

    *out = NULL;
    if (!cfg->port_count)
        return 0;
    p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    p->c = c;
    rc = open_all(p, cfg, env, m, err);
    if (rc != 0) {
        control_ports_close(p);
        return rc;
    }
    fill_table(p);
    *out = p;
    return 0;
}

int control_ports_lack(const struct control_ports *p, const struct cfg_port *entry, struct err *err)
{
    if (!port_lacks(port_of(p, entry)))
        return 0;
    err_set(err, -ENODEV, "port %s: there is no device %s, or it is down", entry->name,
            cfg_port_device(entry));
    err_remedy(err, "`ip link` lists interfaces, `dpdk-devbind.py -s` cards");
    return err->code;
}

int control_ports_start(struct control_ports *p, struct err *err)
{
    int rc = 0;

    for (unsigned i = 0; i < p->count && rc == 0; i++)
        rc = port_start(p->port[i], err);
    if (rc == 0)
        rc = inet_start(p->inet, err);
    p->runs = rc == 0;
    return rc;
}

unsigned control_ports_checking(const struct control_ports *p)
{
    return p ? inet_checking(p->inet) : 0;
}

void control_ports_log(const struct control_ports *p)
{
    char mac[RTE_ETHER_ADDR_FMT_SIZE];
    struct port_info info;

    for (unsigned i = 0; i < p->count; i++) {
        port_info_get(p->port[i], &info);
        rte_ether_format_addr(mac, sizeof(mac), &info.mac);
        log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "port", LOG_S("name", info.name),
                  LOG_S("device", info.device), LOG_S("backend", info.backend),
                  LOG_S("driver", info.driver), LOG_S("mac", mac), LOG_U("mtu", info.mtu),
                  LOG_S("link", info.link_up ? "up" : "down"), LOG_U("mbit", info.speed),
                  LOG_U("rx_queues", info.rx_queues));
    }
}

/* ---- ending ---- */

static struct control_ports *of_task(struct reactor_task *task)
{
    return container_of(task, struct control_ports, task);
}

static void inet_stopped(struct reactor_task *task)
{
    struct control_ports *p = of_task(task);

    p->runs = false;
    p->done(p->arg);
}

static void tcp_stopped(struct reactor_task *task)
{
    task->fn = inet_stopped;
    inet_stop(of_task(task)->inet, task);
}

void control_ports_stop(struct control_ports *p, void (*done)(void *arg), void *arg)
{
    if (!p->runs) {
        done(arg);
        return;
    }
    p->done = done;
    p->arg = arg;
    p->task.fn = tcp_stopped;
    tcp_stop(p->tcp, &p->task);
}

void control_ports_close(struct control_ports *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->count; i++)
        port_stop(p->port[i]);
    if (p->tcp)
        tcp_destroy(p->tcp);
    if (p->inet)
        inet_destroy(p->inet);
    while (p->count > 0)
        port_close(p->port[--p->count]);
    free(p);
}
