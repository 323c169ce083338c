/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RDMA provider over rdma-core: its table of functions, its start and its end. See rdma.h for
 * what is promised, rdma_core_internal.h for how it is divided.
 */
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "lib/lnd_verbs/provider/rdma_core_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rte_branch_prediction.h>

#define EMPTY_BURST 16

void lnd_verbs_process_init(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
}

static void note_run(struct reactor_task *task)
{
    struct rdma_note *note = container_of(task, struct rdma_note, task);

    note->fn(note);
}

void rcore_post(struct reactor *to, struct rdma_note *note, void (*fn)(struct rdma_note *note),
                void *of)
{
    note->fn = fn;
    note->of = of;
    note->task.fn = note_run;
    reactor_post(to, &note->task);
}

uint64_t rcore_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* ---- the control thread hands the worker a function ---- */

struct call {
    struct reactor_task task;
    struct rdma *rdma;
    int (*fn)(struct rdma *rdma, void *arg);
    void *arg;
    int rc;
};

static void call_run(struct reactor_task *task)
{
    struct call *call = container_of(task, struct call, task);

    call->rc = call->fn(call->rdma, call->arg);
}

static int on_worker(struct rdma *rdma, int (*fn)(struct rdma *rdma, void *arg), void *arg)
{
    struct call call = {.task.fn = call_run, .rdma = rdma, .fn = fn, .arg = arg};

    reactor_worker_call(rdma->worker, &call.task);
    return call.rc;
}

/* ---- open and close ---- */

static int channel_open(struct rdma *rdma, struct err *err)
{
    int flags, rc;

    rdma->channel = rdma_create_event_channel();
    if (!rdma->channel) {
        rc = errno > 0 ? -errno : -ENODEV;
        rcore_say_no_device(NULL, rc, err);
        return rc;
    }
    flags = fcntl(rdma->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(rdma->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return 0;
}

/* Runs before the worker looks at its descriptors: a device whose last object was just freed. */
static int sweep(void *arg)
{
    rcore_devices_sweep(arg);
    return 0;
}

static int worker_begin(struct rdma *rdma, void *arg)
{
    int rc = reactor_fd_add(&rdma->cm, rdma->channel->fd, EPOLLIN, rcore_cm_events);

    if (rc == 0)
        rc = rcore_host_watch(rdma);
    reactor_timer_init(&rdma->try_kept, rcore_kept_again);
    reactor_timer_init(&rdma->look, rcore_look_again);
    reactor_timer_arm(&rdma->look, RCORE_LOOK_MS * 1000ull);
    rdma->sweep = (struct reactor_poller){.fn = sweep, .arg = rdma, .max_sleep_us = UINT64_MAX};
    reactor_poller_add(rdma->worker, &rdma->sweep);
    return rc;
}

static void provider_free(struct rdma *rdma)
{
    if (rdma->channel)
        rdma_destroy_event_channel(rdma->channel);
    if (rdma->host.fd >= 0)
        close(rdma->host.fd);
    free(rdma);
}

static void region_gone(struct mem_watch *watch, uint16_t index)
{
    (void)on_worker(container_of(watch, struct rdma, mem), rcore_forget_region, &index);
}

static int core_open(struct reactor_env *env, struct rdma **out, struct err *err)
{
    struct rdma *rdma = calloc(1, sizeof(*rdma));
    int rc;

    if (!rdma) {
        return err_set(err, -ENOMEM, "out of memory");
    }
    err_text(err, "%s", "");
    rdma->env = env;
    rdma->host.fd = -1;
    rc = channel_open(rdma, err);
    if (rc == 0)
        rc = reactor_worker_start(env, "rdma-worker", &rdma->worker);
    if (rc == 0) {
        rc = on_worker(rdma, worker_begin, NULL);
        if (rc < 0)
            reactor_worker_stop(rdma->worker);
    }
    if (rc < 0) {
        if (!err->message[0])
            err_text(err, "the RDMA worker cannot start: %s", strerror(-rc));
        provider_free(rdma);
        return rc;
    }
    rdma->mem.gone = region_gone;
    mem_watch_add(&rdma->mem);
    *out = rdma;
    return 0;
}

static void links_free(struct rdma *rdma)
{
    while (!LIST_EMPTY(&rdma->links))
        rcore_link_free(LIST_FIRST(&rdma->links));
    while (!LIST_EMPTY(&rdma->leaving))
        rcore_link_free(LIST_FIRST(&rdma->leaving));
    while (!LIST_EMPTY(&rdma->kept))
        rcore_link_free(LIST_FIRST(&rdma->kept));
    while (!LIST_EMPTY(&rdma->callers))
        rcore_caller_free(LIST_FIRST(&rdma->callers));
}

/* The worker has ended: this thread has all that was its. */
static void core_close(struct rdma *rdma)
{
    struct rcore_port *port;

    mem_watch_del(&rdma->mem);
    reactor_worker_stop(rdma->worker);
    links_free(rdma);
    while (!LIST_EMPTY(&rdma->devices))
        rcore_device_free(LIST_FIRST(&rdma->devices));
    rcore_listeners_sweep(rdma, true);
    while ((port = LIST_FIRST(&rdma->ports))) {
        LIST_REMOVE(port, link);
        free(port);
    }
    provider_free(rdma);
}

static uint64_t us_of(uint64_t cycles, uint64_t hz)
{
    return hz > 0 ? (uint64_t)((double)cycles * 1e6 / (double)hz) : 0;
}

static void core_counters(struct rdma *rdma, struct rdma_counters *out)
{
    struct reactor_stats stats;

    counters_copy_all(out, &rdma->count);
    reactor_stats_get(rdma->worker, &stats);
    out->worker_jobs = stats.mails_in;
    out->worker_busy_us = us_of(stats.busy_cycles, stats.hz);
    out->worker_longest_us = us_of(stats.longest_cycles, stats.hz);
}

/* ---- ports (control) ---- */

static int core_bind(struct rdma *rdma, struct rdma_port *port, const struct sockaddr_in *addr,
                     struct err *err)
{
    struct rcore_bind arg = {.port = port, .addr = addr, .err = err};

    return on_worker(rdma, rcore_bind, &arg);
}

static void core_unbind(struct rdma_port *port)
{
    struct rdma *rdma = port->rdma;
    struct rcore_bind arg = {.port = port};

    (void)on_worker(rdma, rcore_unbind, &arg);
    /* An event that is being told on its home ends before this does. */
    reactor_synchronize(rdma->env);
}

static void core_info(struct rdma_port *port, struct rdma_info *out)
{
    struct rcore_bind arg = {.port = port, .info = out};

    (void)on_worker(port->rdma, rcore_info, &arg);
}

static int core_listen(struct rdma_port *port, uint16_t service, const struct rdma_listener *l,
                       struct err *err)
{
    struct rcore_bind arg = {.port = port, .service = service, .listener = l, .err = err};

    return on_worker(port->rdma, rcore_listen, &arg);
}

static void core_unlisten(struct rdma_port *port)
{
    struct rcore_bind arg = {.port = port};

    (void)on_worker(port->rdma, rcore_unlisten, &arg);
}

/* ---- links (home) ---- */

static size_t words_copy(uint8_t to[RDMA_PRIV_MAX], const void *from, size_t len)
{
    len = len < RDMA_PRIV_MAX ? len : RDMA_PRIV_MAX;
    if (len > 0)
        memcpy(to, from, len);
    return len;
}

static void core_reject(struct rdma_request *req, const void *priv, size_t len)
{
    struct rcore_caller *c = req->impl;

    req->priv_len = words_copy(req->priv, priv, len); /* its own are not needed any more */
    rcore_post(c->rdma->worker, &c->note, rcore_caller_reject, c);
}

static void link_begin(struct rdma_link *link)
{
    link->cq = NULL;
    link->area = NULL;
    link->impl = NULL;
    link->qp = NULL;
    link->mail.left = link->mail.ended = false;
}

static void core_adopt(struct rdma_link *link, struct rdma_request *req)
{
    link_begin(link);
    link->mail.req = req;
    rcore_post(link->port->rdma->worker, &link->mail.begin, rcore_link_adopt, link);
}

static void core_dial(struct rdma_link *link, const struct rdma_dial *dial)
{
    link_begin(link);
    link->mail.dial = *dial;
    rcore_post(link->port->rdma->worker, &link->mail.begin, rcore_link_dial, link);
}

static void core_open_qp(struct rdma_link *link, const struct rdma_open *open)
{
    link->mail.open = *open;
    rcore_post(link->port->rdma->worker, &link->mail.make, rcore_link_open, link);
}

static void ask_with_words(struct rdma_link *link, const void *priv, size_t len,
                           void (*fn)(struct rdma_note *note))
{
    link->mail.priv_len = (uint32_t)words_copy(link->mail.priv, priv, len);
    rcore_post(link->port->rdma->worker, &link->mail.join, fn, link);
}

static void core_connect(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                         unsigned rnr_retry)
{
    link->mail.retry = retry;
    link->mail.rnr_retry = rnr_retry;
    ask_with_words(link, priv, len, rcore_link_connect);
}

static void core_accept(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                        unsigned rnr_retry)
{
    link->mail.retry = retry;
    link->mail.rnr_retry = rnr_retry;
    ask_with_words(link, priv, len, rcore_link_accept);
}

static void core_refuse(struct rdma_link *link, const void *priv, size_t len)
{
    ask_with_words(link, priv, len, rcore_link_refuse);
}

static void core_disconnect(struct rdma_link *link)
{
    if (link->mail.left || link->mail.ended)
        return;
    link->mail.left = true;
    rcore_post(link->port->rdma->worker, &link->mail.leave, rcore_link_disconnect, link);
}

static void core_shut(struct rdma_link *link)
{
    if (link->mail.ended)
        return;
    link->mail.ended = true;
    rcore_post(link->port->rdma->worker, &link->mail.end, rcore_link_shut, link);
}

/* ---- data path ---- */

static int core_post_recv(struct rdma_link *link, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return ibv_post_recv(link->qp, wr, bad);
}

static int core_post_send(struct rdma_link *link, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    return ibv_post_send(link->qp, wr, bad);
}

/* The queue was found empty, so nothing of what was closed before is in it: that goes back. */
static void cq_dry(struct rcore_cq *c)
{
    struct rcore_link *l;

    while ((l = c->leaving)) {
        c->leaving = l->next_leaving;
        rcore_post(l->rdma->worker, &l->gone, rcore_link_gone, l);
    }
}

void rcore_cq_empty(struct rcore_cq *c)
{
    struct ibv_wc wc[EMPTY_BURST];
    int n;

    do
        n = ibv_poll_cq(c->cq, EMPTY_BURST, wc);
    while (n > 0);
    cq_dry(c);
}

static int core_poll(struct rdma_cq *cq, struct ibv_wc *wc, int n)
{
    struct rcore_cq *c = cq->impl;
    int got = ibv_poll_cq(c->cq, n, wc);

    if (unlikely(c->leaving != NULL) && got == 0)
        cq_dry(c);
    return got;
}

static int core_arm(struct rdma_cq *cq)
{
    struct rcore_cq *c = cq->impl;

    return ibv_req_notify_cq(c->cq, 0);
}

static void core_disarm(struct rdma_cq *cq)
{
    struct rcore_cq *c = cq->impl;
    struct ibv_cq *of;
    unsigned n = 0;
    void *context;

    while (ibv_get_cq_event(c->channel, &of, &context) == 0)
        n++;
    if (n > 0)
        ibv_ack_cq_events(c->cq, n);
}

static void core_want_region(struct rdma_port *port, uint16_t region)
{
    struct rcore_port *p = port->impl;
    struct rcore_want *want;

    if (region >= MEM_REGION_MAX)
        return;
    want = &p->dev->wants[region];
    if (relaxed_load(&want->not_until) > reactor_now_us() ||
        __atomic_exchange_n(&want->asked, true, __ATOMIC_ACQUIRE))
        return;
    rcore_post(p->rdma->worker, &want->note, rcore_want_region, p->dev);
}

const struct rdma_ops rdma_core = {
    .name = "rdma-core",
    .open = core_open,
    .close = core_close,
    .counters = core_counters,
    .bind = core_bind,
    .unbind = core_unbind,
    .info = core_info,
    .listen = core_listen,
    .unlisten = core_unlisten,
    .reject = core_reject,
    .adopt = core_adopt,
    .dial = core_dial,
    .open_qp = core_open_qp,
    .connect = core_connect,
    .accept = core_accept,
    .refuse = core_refuse,
    .disconnect = core_disconnect,
    .shut = core_shut,
    .post_recv = core_post_recv,
    .post_send = core_post_send,
    .poll = core_poll,
    .arm = core_arm,
    .disarm = core_disarm,
    .want_region = core_want_region,
};
