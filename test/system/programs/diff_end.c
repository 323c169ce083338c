/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of random conversations, over our TCP on a port or over the host's: the same program, so
 * that what differs is TCP alone. Each line of the script on stdin is a connection:
 *
 *   connect|listen PORT OP…
 *
 * with the operations, one after the other:
 *
 *   w N   write N further bytes (their values follow from PORT and their place)
 *   r N   read until N bytes were read in all
 *   s MS  neither read nor write for so long
 *   e     read until the peer ends the connection
 *   f     close in peace: the end      a   abort: the end
 *
 * A line with a dot ends the script. Prints "ready" when it listens, waits for a further line,
 * begins, and prints one line per connection when all have ended: PORT, bytes read, their CRC, how
 * it ended.
 */
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet.h"
#include "lib/lnd_eth/port/port.h"
#include "lib/lnd_eth/socklnd/socklnd_wire.h"
#include "lib/lnd_eth/stream.h"
#include "lib/lnd_eth/tcp/tcp.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNS_MAX 256
#define OPS_MAX   64
#define CHUNK     65536u
#define WINDOW    (1u << 20)
#define SEGS      64

struct op {
    char what;
    uint32_t n;
};

struct conn {
    bool listens;
    uint16_t port;
    struct op op[OPS_MAX];
    unsigned nops, at;
    struct stream *stream;
    struct stream_listener *listener;
    uint64_t sent, received, goal; /* goal: of the write under way */
    uint32_t crc;
    bool writing, stalling, up, over;
    const char *end;
    struct reactor_timer timer;
};

static struct conn conns[CONNS_MAX];
static unsigned nconns, nover;
static struct reactor_env *env;
static struct stream_transport transport = {&stream_kernel, NULL};
static union stream_addr local, remote;
static const char *ifname = "eth0";

static void go_on(struct conn *c);

static uint8_t value(const struct conn *c, uint64_t place)
{
    return (uint8_t)(place * 31 + (place >> 11) + c->port);
}

/* Prints how each connection ended, once, on the reactor that the connections belong to. */
static void print_ends(struct reactor_task *task)
{
    static bool printed;

    for (unsigned i = 0; i < nconns && !printed; i++)
        printf("%u %lu %08x %s\n", conns[i].port, conns[i].received, conns[i].crc, conns[i].end);
    fflush(stdout);
    printed = true;
    reactor_control_quit(env);
}

static void over(struct conn *c, const char *how)
{
    if (c->over)
        return;
    c->over = true;
    c->end = how;
    reactor_timer_cancel(&c->timer);
    if (++nover == nconns)
        print_ends(NULL);
}

/* ---- the end ---- */

static void finish(struct conn *c, bool abort, const char *how)
{
    c->stream->ops->close(c->stream, abort);
    c->stream = NULL;
    over(c, how);
}

static void on_closed(void *user, enum stream_end end)
{
    static const char *const words[] = {"eof",         "reset",   "refused",
                                        "unreachable", "timeout", "error"};

    finish(user, false, words[end]);
}

/* ---- reading ---- */

static size_t read_taken(struct conn *c, size_t max)
{
    struct mem_seg segs[SEGS];
    unsigned n = 0;
    size_t truesize, got = c->stream->ops->take(c->stream, max, segs, SEGS, &n, &truesize);

    for (unsigned i = 0; i < n; i++)
        c->crc = sock_crc32(c->crc, segs[i].addr, segs[i].len);
    c->stream->ops->give_back(segs, n);
    return got;
}

static size_t read_some(struct conn *c, uint64_t max)
{
    static uint8_t buf[CHUNK];
    struct mem_seg seg = {buf, CHUNK, MEM_REGION_NONE, 0};
    size_t got;

    if (c->stream->ops->caps & STREAM_CAP_TAKE)
        return read_taken(c, max < CHUNK ? max : CHUNK);
    seg.len = max < CHUNK ? (uint32_t)max : CHUNK;
    got = c->stream->ops->read_into(c->stream, &seg, 1);
    c->crc = sock_crc32(c->crc, buf, got);
    return got;
}

/* True: as many as were wanted are there. */
static bool read_up_to(struct conn *c, uint64_t total)
{
    size_t got = 1;

    while (c->received < total && got > 0 && !c->over) {
        got = read_some(c, total - c->received);
        c->received += got;
    }
    if (c->stream->ops->caps & STREAM_CAP_TAKE)
        c->stream->ops->rx_window(c->stream, WINDOW, 4 * (size_t)WINDOW);
    return c->received >= total;
}

/* ---- writing ---- */

static bool write_on(struct conn *c)
{
    static uint8_t buf[CHUNK];

    while (c->sent < c->goal) {
        uint32_t n = (uint32_t)(c->goal - c->sent < CHUNK ? c->goal - c->sent : CHUNK);
        struct mem_seg seg = {buf, n, MEM_REGION_NONE, 0};
        ssize_t took;

        for (uint32_t i = 0; i < n; i++)
            buf[i] = value(c, c->sent + i);
        took = c->stream->ops->send(c->stream, &seg, 1, false);
        /* An error that send() returns is not reported by closed() as well. */
        if (took < 0)
            on_closed(c, stream_end_of_errno((int)-took));
        if (took <= 0)
            return false;
        c->sent += (uint64_t)took;
    }
    c->writing = false;
    return true;
}

/* ---- the script ---- */

static void stalled(struct reactor_timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);

    c->stalling = false;
    c->at++;
    c->stream->ops->rx_pause(c->stream, false);
    go_on(c);
}

/* One operation; false: it is not done yet. */
static bool step(struct conn *c)
{
    struct op *op = &c->op[c->at];

    switch (op->what) {
    case 'w':
        if (!c->writing) {
            c->writing = true;
            c->goal = c->sent + op->n;
        }
        return write_on(c);
    case 'r':
        return read_up_to(c, op->n);
    case 's':
        if (!c->stalling) {
            c->stalling = true;
            c->stream->ops->rx_pause(c->stream, true);
            reactor_timer_arm(&c->timer, (uint64_t)op->n * 1000);
        }
        return false;
    case 'e':
        read_up_to(c, UINT64_MAX);
        return false; /* closed() comes */
    case 'f':
        finish(c, false, "closed");
        return false;
    default:
        finish(c, true, "aborted");
        return false;
    }
}

static void go_on(struct conn *c)
{
    while (!c->over && !c->stalling && c->stream && c->at < c->nops && step(c))
        c->at++;
}

/* ---- events ---- */

static void on_connected(void *user)
{
    struct conn *c = user;

    c->up = true;
    go_on(c);
}

static void on_event(void *user)
{
    struct conn *c = user;

    if (c->up)
        go_on(c);
}

static const struct stream_events events = {.connected = on_connected,
                                            .readable = on_event,
                                            .writable = on_event,
                                            .acked = on_event,
                                            .closed = on_closed};

static void on_accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    struct conn *c = user;

    if (c->stream || c->over) {
        s->ops->close(s, true);
        return;
    }
    c->stream = s;
    if (s->ops->attach(s, &events, c) < 0) {
        fprintf(stderr, "attach failed\n");
        exit(2);
    }
    on_connected(c);
}

/* ---- making ---- */

static bool parse_line(char *line)
{
    struct conn *c = &conns[nconns];
    char *save, *word = strtok_r(line, " \n", &save);

    if (!word)
        return true;
    c->listens = strcmp(word, "listen") == 0;
    word = strtok_r(NULL, " \n", &save);
    if (!word)
        return false;
    c->port = (uint16_t)atoi(word);
    c->crc = SOCK_CRC_SEED;
    c->end = "unfinished";
    reactor_timer_init(&c->timer, stalled);
    while ((word = strtok_r(NULL, " \n", &save)) && c->nops < OPS_MAX) {
        struct op *op = &c->op[c->nops++];

        op->what = word[0];
        if (strchr("wrs", op->what)) {
            word = strtok_r(NULL, " \n", &save);
            if (!word)
                return false;
            op->n = (uint32_t)strtoul(word, NULL, 10);
        }
    }
    nconns++;
    return nconns < CONNS_MAX;
}

/* Comes after the listeners, which start on the same reactor. */
static void say_ready(struct reactor_task *task)
{
    puts("ready");
    fflush(stdout);
}

static void begin(struct reactor_task *task)
{
    for (unsigned i = 0; i < nconns; i++) {
        struct conn *c = &conns[i];
        union stream_addr here = local, there = remote;
        int rc;

        if (c->listens)
            continue;
        there.in.sin_port = htons(c->port);
        here.in.sin_port = htons((uint16_t)(c->port + 10000));
        rc = transport.ops->connect(transport.ctx, &here, ifname, &there, -1, &events, c,
                                    &c->stream);
        if (rc < 0) {
            fprintf(stderr, "connect %u: %s\n", c->port, strerror(-rc));
            exit(2);
        }
    }
}

static void make_port(struct port **port, struct inet **inet, struct tcp **tcp, unsigned bits)
{
    struct err err = {0};
    struct port_opts popts = {.name = ifname,
                              .device = ifname,
                              .reactors = 1,
                              .rx_queues = 1,
                              .buffer_bytes = 32u << 20,
                              .socket = -1};
    struct inet_opts iopts = {.env = env};
    struct tcp_opts topts = {.wscale_max = UINT_MAX};
    struct inet_prefix prefix = {.bits = (uint8_t)bits};
    struct inet_if_opts fopts = {.name = ifname, .addr = &prefix, .addrs = 1};

    prefix.addr.b[10] = prefix.addr.b[11] = 0xff;
    memcpy(prefix.addr.b + 12, &local.in.sin_addr, 4);
    if (port_open(&popts, NULL, port, &err) < 0 || inet_create(&iopts, inet, &err) < 0 ||
        tcp_create(&topts, *inet, tcp, &err) < 0 ||
        (fopts.port = *port, inet_if_add(*inet, &fopts, &err) < 0) || port_start(*port, &err) < 0 ||
        inet_start(*inet, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(2);
    }
    transport = (struct stream_transport){&stream_tcp, *tcp};
}

static void gave_up(struct reactor_timer *t)
{
    static struct reactor_task ends = {.fn = print_ends};

    reactor_post(reactor_at(env, 0), &ends);
}

int main(int argc, char **argv)
{
    struct reactor_opts ropts = {
        .prog = "diff_end", .cores = "auto", .count = 1, .idle = REACTOR_IDLE_ADAPTIVE};
    struct reactor_timer limit;
    struct reactor_task start = {.fn = begin}, listening = {.fn = say_ready};
    struct port *port = NULL;
    struct inet *inet = NULL;
    struct tcp *tcp = NULL;
    struct err err = {0};
    char *line = NULL;
    size_t cap = 0;
    bool own = false;
    unsigned bits = 24, seconds = 60;
    int opt;

    while ((opt = getopt(argc, argv, "pi:l:r:t:")) != -1) {
        switch (opt) {
        case 'p':
            own = true;
            break;
        case 'i':
            ifname = optarg;
            break;
        case 'l':
            local.in.sin_family = AF_INET;
            inet_pton(AF_INET, optarg, &local.in.sin_addr);
            break;
        case 'r':
            remote.in.sin_family = AF_INET;
            inet_pton(AF_INET, optarg, &remote.in.sin_addr);
            break;
        case 't':
            seconds = (unsigned)atoi(optarg);
            break;
        default:
            return 2;
        }
    }
    while (getline(&line, &cap, stdin) > 0 && line[0] != '.') {
        if (!parse_line(line)) {
            fprintf(stderr, "bad line\n");
            return 2;
        }
    }
    ropts.mem_mb = own ? 256 : 64;
    if (reactor_env_create(&ropts, &env, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    if (own)
        make_port(&port, &inet, &tcp, bits);
    reactor_timer_init(&limit, gave_up);
    if (reactor_env_start(env) < 0)
        return 2;
    for (unsigned i = 0; i < nconns; i++) {
        union stream_addr at = local;

        at.in.sin_port = htons(conns[i].port);
        if (conns[i].listens &&
            transport.ops->listen(transport.ctx, &at, ifname, reactor_at(env, 0), on_accepted,
                                  &conns[i], &conns[i].listener) < 0) {
            fprintf(stderr, "listen failed\n");
            return 2;
        }
    }
    reactor_post(reactor_at(env, 0), &listening);
    if (getline(&line, &cap, stdin) <= 0)
        return 2;
    free(line);
    reactor_post(reactor_at(env, 0), &start);
    reactor_timer_arm(&limit, (uint64_t)seconds * 1000000);
    reactor_control_run(env);
    /* What was closed in peace still has to be sent, and perhaps again. */
    reactor_timer_cancel(&limit);
    reactor_timer_arm(&limit, 3000000);
    reactor_control_run(env);
    _exit(0);
}
