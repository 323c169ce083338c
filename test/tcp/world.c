/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/tcp/world.h"
#include "lib/base/err.h"

#include "lib/reactor/reactor_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_fbarray.h>
#include <rte_memory.h>

const uint8_t world_mac[6] = {0x02, 0, 0, 0, 0, 0x01};
const uint8_t station_mac[6] = {0x02, 0, 0, 0, 0, 0x02};

static char complaint[640];

static const char *complain(const char *what, const char *err)
{
    snprintf(complaint, sizeof(complaint), "%s: %s", what, err);
    return complaint;
}

/* ---- frames ---- */

static struct world_frame *frame_new(const struct world *w, const uint8_t *data, size_t len)
{
    struct world_frame *f = malloc(sizeof(*f) + len);

    *f = (struct world_frame){.at_us = w->now_us, .len = len};
    memcpy(f->data, data, len);
    return f;
}

static void push(struct world_frame ***tail, struct world_frame *f)
{
    **tail = f;
    *tail = &f->next;
}

static void frames_free(struct world_frame **head, struct world_frame ***tail)
{
    struct world_frame *f;

    while ((f = *head)) {
        *head = f->next;
        free(f);
    }
    *tail = head;
}

void world_forget(struct world *w)
{
    frames_free(&w->in, &w->in_tail);
    frames_free(&w->out, &w->out_tail);
    frames_free(&w->icmp, &w->icmp_tail);
}

static bool is_icmp(const uint8_t *p, size_t len)
{
    if (len >= 34 && p[12] == 0x08 && p[13] == 0x00)
        return p[23] == 1;
    return len > 54 && p[12] == 0x86 && p[13] == 0xdd && p[20] == 58 &&
           p[54] < 133; /* no ND, no MLD reports */
}

void fake_port_sent(struct world *w, const uint8_t *frame, size_t len)
{
    uint8_t answer[256];
    struct frame_ends ends;
    struct frame_tcp t;
    size_t n;

    w->frames_out++;
    if (frame_tcp_read(frame, len, &ends, &t)) {
        push(&w->out_tail, frame_new(w, frame, len));
        return;
    }
    if (is_icmp(frame, len)) {
        push(&w->icmp_tail, frame_new(w, frame, len));
        return;
    }
    n = station_answer(w, frame, len, answer);
    if (n > 0) {
        w->arps++;
        world_queue(w, answer, n);
    }
}

struct world_frame *world_take(struct world *w)
{
    struct world_frame *f = w->out;

    if (f) {
        w->out = f->next;
        if (!w->out)
            w->out_tail = &w->out;
    }
    return f;
}

void world_queue(struct world *w, const uint8_t *frame, size_t len)
{
    push(&w->in_tail, frame_new(w, frame, len));
}

void world_feed(struct world *w, const uint8_t *frame, size_t len)
{
    world_queue(w, frame, len);
    world_settle(w);
}

/* ---- time ---- */

static bool control_idle(const struct world *w)
{
    return !mailbox_pending(w->control) && !mailbox_waiting(w->control) &&
           wheel_next_us(&w->control->wheel) > w->now_us;
}

/* To bind a reactor takes a system call, so the control reactor runs only when it has something to
 * do: mail or a timer, as no descriptor of it is used here. */
static int step(struct world *w)
{
    int work;

    work = reactor_step(w->reactor, 0);
    if (control_idle(w))
        return work;
    reactor_bind(w->control);
    work += reactor_step(w->control, 0);
    reactor_bind(w->reactor);
    return work;
}

void world_settle(struct world *w)
{
    for (unsigned i = 0; i < 4096 && (step(w) > 0 || w->in); i++)
        continue;
}

void world_jump(struct world *w, uint64_t to_us)
{
    w->now_us = to_us;
    reactor_test_clock(to_us);
    world_settle(w);
}

void world_advance(struct world *w, uint64_t until_us)
{
    world_settle(w);
    while (!w->out && w->now_us < until_us) {
        uint64_t next = min(wheel_next_us(&w->reactor->wheel), wheel_next_us(&w->control->wheel));
        uint64_t tick = w->now_us / MS * MS + MS;

        /* The wheel fires what is due at whole ticks. */
        next = max(next, tick);
        world_jump(w, min(next, until_us));
    }
}

/* ---- making ---- */

static void address4(struct inet_addr *a, const char *text)
{
    memset(a, 0, sizeof(*a));
    a->b[10] = a->b[11] = 0xff;
    inet_pton(AF_INET, text, a->b + 12);
}

const struct inet_addr *world_own(const struct world *w, bool ip6)
{
    return ip6 ? &w->own6 : &w->own4;
}

const struct inet_addr *world_peer(const struct world *w, bool ip6)
{
    return ip6 ? &w->peer6 : &w->peer4;
}

void world_ends_in(const struct world *w, bool ip6, struct frame_ends *out)
{
    memcpy(out->src_mac, station_mac, 6);
    memcpy(out->dst_mac, world_mac, 6);
    memcpy(out->src, world_peer(w, ip6)->b, 16);
    memcpy(out->dst, world_own(w, ip6)->b, 16);
}

static struct reactor_env *started;

const char *world_start(void)
{
    struct reactor_opts opts = {.prog = "millrace-test",
                                .cores = "auto",
                                .count = 1,
                                .mem_mb = 96,
                                .idle = REACTOR_IDLE_ADAPTIVE};
    struct err err = {0};

    reactor_test_clock(WORLD_START_US);
    if (reactor_env_create(&opts, &started, &err) < 0)
        return complain("reactors", err.message);
    return NULL;
}

void world_stop(void)
{
    reactor_env_destroy(started);
    started = NULL;
}

/* Maps a list of segments over itself: what is written from here on is seen by nobody else. */
static int own_list(const struct rte_memseg_list *list, void *arg)
{
    const char **wrong = arg;
    const struct rte_memseg *first = rte_fbarray_get(&list->memseg_arr, 0);
    int fd = rte_memseg_get_fd_thread_unsafe(first);
    size_t from;

    if (fd < 0 || rte_memseg_get_fd_offset_thread_unsafe(first, &from) < 0 ||
        mmap(list->base_va, list->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
             (off_t)from) != list->base_va)
        *wrong = complain("memory of its own", strerror(fd < 0 ? rte_errno : errno));
    return *wrong != NULL ? -1 : 0;
}

const char *world_own_memory(void)
{
    const char *wrong = NULL;

    rte_memseg_list_walk_thread_unsafe(own_list, &wrong);
    return wrong;
}

static const char *take_env(struct world *w)
{
    if (!started)
        return "world_start() was not called";
    w->now_us = WORLD_START_US;
    w->env = started;
    /* A new set of descriptors: a set that was there at fork() is the same in all cases. */
    reactor_env_clear(w->env);
    w->reactor = reactor_at(w->env, 0);
    w->control = reactor_control(w->env);
    return NULL;
}

static const char *make_port(struct world *w)
{
    struct port_opts opts = {.name = "p0",
                             .device = "fake",
                             .reactors = 1,
                             .rx_queues = 1,
                             .socket = -1,
                             .mtu = w->opts.mtu,
                             .buffer_bytes = 4 << 20};
    struct err err = {0};

    fake_port_world(w);
    if (port_open(&opts, &fake_port, &w->port, &err) < 0)
        return complain("port", err.message);
    if (port_start(w->port, &err) < 0)
        return complain("port", err.message);
    return NULL;
}

static const char *make_inet(struct world *w)
{
    struct inet_prefix addr[2] = {{.addr = w->own4, .bits = 24}, {.addr = w->own6, .bits = 64}};
    struct inet_route via[2] = {0};
    struct inet_opts opts = {.env = w->env};
    struct inet_if_opts ifo = {.name = "p0",
                               .port = w->port,
                               .addr = addr,
                               .addrs = 2,
                               .route = via,
                               .routes = w->opts.far ? 2 : 0};
    struct err err = {0};

    address4(&via[0].via, "10.9.8.3");
    address4(&via[0].to.addr, "0.0.0.0");
    inet_pton(AF_INET6, "fd00:9:8::3", via[1].via.b);
    if (inet_create(&opts, &w->inet, &err) < 0)
        return complain("inet", err.message);
    if (tcp_create(&w->opts.tcp, w->inet, &w->tcp, &err) < 0)
        return complain("tcp", err.message);
    if (inet_if_add(w->inet, &ifo, &err) < 0)
        return complain("interface", err.message);
    if (inet_start(w->inet, &err) < 0)
        return complain("inet", err.message);
    w->ifp = inet_if_find(w->inet, "p0");
    w->shard = inet_shard_of(w->inet, 0);
    return NULL;
}

/* The stack learns the peers' neighbours from an echo request of each, so that a case is not about
 * address resolution. */
static void introduce(struct world *w, bool ip6)
{
    uint8_t frame[128];
    struct frame_ends ends;
    uint8_t *icmp;
    uint16_t sum;

    world_ends_in(w, ip6, &ends);
    icmp = frame + frame_l4(&ends);
    memset(icmp, 0, 16);
    icmp[0] = ip6 ? 128 : 8;
    sum = ip6 ? frame_l4_sum(&ends, 58, icmp, 16) : frame_fold(frame_sum(icmp, 16, 0));
    icmp[2] = (uint8_t)(sum >> 8);
    icmp[3] = (uint8_t)sum;
    world_feed(w, frame, frame_ip(frame, &ends, ip6 ? 58 : 1, 16, 0, 64));
}

const char *world_open(struct world *w, const struct world_opts *opts)
{
    const char *wrong;

    *w = (struct world){.opts = *opts};
    w->out_tail = &w->out;
    w->in_tail = &w->in;
    w->icmp_tail = &w->icmp;
    address4(&w->own4, opts->own4 ? opts->own4 : "10.9.8.1");
    address4(&w->peer4, opts->peer4 ? opts->peer4 : opts->far ? "10.9.9.2" : "10.9.8.2");
    inet_pton(AF_INET6, "fd00:9:8::1", w->own6.b);
    inet_pton(AF_INET6, opts->far ? "fd00:9:9::2" : "fd00:9:8::2", w->peer6.b);
    if ((wrong = take_env(w)) || (wrong = make_port(w)) || (wrong = make_inet(w)))
        return wrong;
    reactor_bind(w->reactor);
    world_advance(w, w->now_us + 5 * SECOND); /* duplicate-address detection */
    if (!opts->no_neighbour) {
        introduce(w, false);
        introduce(w, true);
        world_advance(w, w->now_us + 100 * MS);
        if (!w->icmp || !w->icmp->next)
            return "the stack does not answer an echo request of both families";
    }
    world_forget(w);
    return w->trouble;
}

/* ---- end ---- */

struct waiting {
    struct reactor_task task;
    bool done;
};

static void on_done(struct reactor_task *task)
{
    ((struct waiting *)task)->done = true;
}

static bool wait_done(struct world *w, struct waiting *d)
{
    reactor_bind(w->reactor);
    /* 3 s: what is being closed has two of them to be acknowledged. */
    for (unsigned i = 0; i < 300 && !d->done; i++) {
        world_settle(w);
        world_jump(w, w->now_us + 10 * MS);
    }
    reactor_bind(w->control);
    return d->done;
}

static const char *left_in(struct rte_mempool *pool, const char *name)
{
    unsigned out = pool ? rte_mempool_in_use_count(pool) : 0;

    if (out == 0)
        return NULL;
    snprintf(complaint, sizeof(complaint), "%u mbufs of the %s pool were not given back", out,
             name);
    return complaint;
}

const char *world_close(struct world *w)
{
    struct waiting tcp_done = {.task.fn = on_done}, inet_done = {.task.fn = on_done};
    const char *wrong;

    reactor_bind(w->control);
    tcp_stop(w->tcp, &tcp_done.task);
    if (!wait_done(w, &tcp_done))
        return "tcp_stop() does not end";
    inet_stop(w->inet, &inet_done.task);
    if (!wait_done(w, &inet_done))
        return "inet_stop() does not end";
    tcp_destroy(w->tcp);
    inet_destroy(w->inet);
    port_stop(w->port);
    world_forget(w);
    wrong = left_in(w->port->rx_small, "receive");
    if (!wrong)
        wrong = left_in(w->port->tx_pool, "send");
    if (wrong)
        return wrong;
    port_close(w->port);
    world_stop();
    return w->trouble;
}
