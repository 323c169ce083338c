/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of nothing but our IP layer, on one end of a veth pair, for test_inet_linux.py:
 * inet_host DEVICE DAD_MS GATEWAY ADDRESS/BITS... Commands on stdin, one answer line each: `link`
 * (0 or 1), `drops` (name=count …), `neigh` (address mac state; …). It ends with its stdin.
 */
#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet_wire.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct reactor_env *env;
static struct inet *inet;
static struct port *port;
static bool quit;

static void must(int rc, const char *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "inet_host: %s\n", err);
    exit(1);
}

static struct inet_addr addr_of(const char *text)
{
    struct inet_addr a = {.b = {[10] = 0xff, [11] = 0xff}};
    bool is6 = strchr(text, ':') != NULL;

    must(inet_pton(is6 ? AF_INET6 : AF_INET, text, is6 ? a.b : a.b + 12) == 1 ? 0 : -1, text);
    return a;
}

static void say_drops(void)
{
    uint64_t drops[PKT_DROP_COUNT];

    inet_drops_get(inet, drops);
    for (unsigned i = 0; i < PKT_DROP_COUNT; i++)
        if (drops[i] != 0)
            printf("%s=%lu ", pkt_drop_info((enum pkt_drop)i)->name, (unsigned long)drops[i]);
    printf("\n");
}

/* Runs on the reactor; the control reactor waits for it. */
struct ask {
    struct reactor_task task;
    struct inet_neigh_row rows[16];
    unsigned n;
    bool done;
};

static void asked(struct reactor_task *task)
{
    ((struct ask *)task)->done = true;
}

static void ask_rows(struct reactor_task *task)
{
    struct ask *ask = (struct ask *)task;
    uint32_t at = 0;

    ask->n = inet_neigh_rows(inet_shard_of(inet, 0), &at, ask->rows, 16);
    task->fn = asked;
    reactor_post(reactor_control(env), task);
}

static void say_neigh(void)
{
    static struct ask ask;
    char text[INET_TEXT_MAX], mac[RTE_ETHER_ADDR_FMT_SIZE];

    ask = (struct ask){.task.fn = ask_rows};
    reactor_post(reactor_at(env, 0), &ask.task);
    while (!ask.done)
        reactor_step(reactor_control(env), 1000);
    for (unsigned i = 0; i < ask.n; i++) {
        rte_ether_format_addr(mac, sizeof(mac), &ask.rows[i].mac);
        printf("%s %s %s; ", inet_text(&ask.rows[i].addr, text), mac, ask.rows[i].state);
    }
    printf("\n");
}

static void command(const char *line)
{
    if (strncmp(line, "link", 4) == 0)
        printf("%d\n", inet_if_link(inet_if_at(inet, 0)));
    else if (strncmp(line, "drops", 5) == 0)
        say_drops();
    else if (strncmp(line, "neigh", 5) == 0)
        say_neigh();
    fflush(stdout);
}

static bool line_came;

static void input_came(struct reactor_fd *f, uint32_t events)
{
    line_came = true;
}

static void add_interface(char **argv, int argc)
{
    struct inet_prefix net[8], none = {.bits = 0};
    struct inet_route route = {.via = addr_of(argv[3])};
    struct inet_if_opts opts = {.name = argv[1],
                                .port = port,
                                .addr = net,
                                .route = &route,
                                .routes = 1,
                                .dad_ms = (unsigned)atoi(argv[2])};
    struct err err = {0};

    none.addr = addr_of("0.0.0.0");
    route.to = none;
    for (int i = 4; i < argc && opts.addrs < 8; i++) {
        char *slash = strchr(argv[i], '/');

        *slash = '\0';
        net[opts.addrs].addr = addr_of(argv[i]);
        net[opts.addrs++].bits = (uint8_t)atoi(slash + 1);
    }
    must(inet_if_add(inet, &opts, &err), err.message);
}

static void has_stopped(struct reactor_task *task)
{
    quit = true;
}

int main(int argc, char **argv)
{
    struct reactor_opts reactors = {.prog = "inet_host",
                                    .cores = "auto",
                                    .count = 1,
                                    .idle = REACTOR_IDLE_ADAPTIVE,
                                    .mem_mb = 128};
    struct port_opts ports = {
        .name = "p0", .reactors = 1, .rx_queues = 1, .buffer_bytes = 4 << 20, .socket = -1};
    struct inet_opts opts = {0};
    struct reactor_task stopped = {.fn = has_stopped};
    struct reactor_fd input;
    struct err err = {0};
    char line[64];

    must(argc > 4 ? 0 : -1, "arguments");
    ports.device = argv[1];
    must(reactor_env_create(&reactors, &env, &err), err.message);
    must(port_open(&ports, NULL, &port, &err), err.message);
    opts.env = env;
    must(inet_create(&opts, &inet, &err), err.message);
    add_interface(argv, argc);
    must(port_start(port, &err), err.message);
    must(reactor_env_start(env), "reactors");
    must(inet_start(inet, &err), err.message);
    must(reactor_fd_add(&input, 0, EPOLLIN, input_came), "stdin");
    printf("ready\n");
    fflush(stdout);
    setvbuf(stdin, NULL, _IONBF, 0);
    for (bool open = true; open;) {
        reactor_step(reactor_control(env), 50000);
        if (line_came && (open = fgets(line, sizeof(line), stdin) != NULL))
            command(line);
        line_came = false;
    }
    reactor_fd_del(&input);
    inet_stop(inet, &stopped);
    while (!quit)
        reactor_step(reactor_control(env), 1000);
    reactor_env_stop(env);
    port_stop(port);
    inet_destroy(inet);
    port_close(port);
    reactor_env_destroy(env);
    return 0;
}
