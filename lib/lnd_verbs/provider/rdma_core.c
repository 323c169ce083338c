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

void rcore_post(struct reactor *to, struct reactor_task *task, reactor_task_fn fn)
{
    task->fn = fn;
    reactor_post(to, task);
}

uint64_t rcore_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* ---- the control thread hands the worker a function ---- */

static void call_run(struct reactor_task *task)
{
    struct rcore_call *call = container_of(task, struct rcore_call, task);

    call->rc = call->fn(call->rdma, call);
}

static int on_worker(struct rdma *rdma, int (*fn)(struct rdma *rdma, const struct rcore_call *call),
                     struct rcore_call call)
{
    call.task.fn = call_run;
    call.rdma = rdma;
    call.fn = fn;
    reactor_worker_call(rdma->worker, &call.task);
    return call.rc;
}

/* ---- open and close ---- */

static int channel_open(struct rdma *rdma, struct err *err)
{
    int rc;

    rdma->channel = rdma_create_event_channel();
    if (!rdma->channel) {
        rc = errno > 0 ? -errno : -ENODEV;
        rcore_say_no_device(NULL, rc, err);
        return rc;
    }
    rcore_fd_nonblock(rdma->channel->fd);
    return 0;
}

/* Runs before the worker looks at its descriptors: a device whose last object was just freed. */
static int sweep(void *arg)
{
    rcore_devices_sweep(arg);
    return 0;
}

static int worker_begin(struct rdma *rdma, const struct rcore_call *call)
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
    (void)on_worker(container_of(watch, struct rdma, mem), rcore_forget_region,
                    (struct rcore_call){.region = index});
}

static int core_open(struct reactor_env *env, struct rdma **out, struct err *err)
{
    struct rdma *rdma = calloc(1, sizeof(*rdma));
    int rc;

    if (!rdma)
        return err_set(err, -ENOMEM, "out of memory");
    err_text(err, "%s", "");
    rdma->env = env;
    rdma->host.fd = -1;
    rc = channel_open(rdma, err);
    if (rc == 0)
        rc = reactor_worker_start(env, "rdma-worker", &rdma->worker);
    if (rc == 0) {
        rc = on_worker(rdma, worker_begin, (struct rcore_call){0});
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

/* The worker has ended: this thread has all that was its. */
static void core_close(struct rdma *rdma)
{
    struct rcore_port *port;

    mem_watch_del(&rdma->mem);
    reactor_worker_stop(rdma->worker);
    while (!LIST_EMPTY(&rdma->links))
        rcore_link_free(LIST_FIRST(&rdma->links));
    while (!LIST_EMPTY(&rdma->callers))
        rcore_caller_free(LIST_FIRST(&rdma->callers));
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
    return on_worker(rdma, rcore_bind, (struct rcore_call){.port = port, .addr = addr, .err = err});
}

static void core_unbind(struct rdma_port *port)
{
    (void)on_worker(port->rdma, rcore_unbind, (struct rcore_call){.port = port});
    /* An event that is being told on its home ends before this does. */
    reactor_synchronize(port->rdma->env);
}

static void core_info(struct rdma_port *port, struct rdma_info *out)
{
    (void)on_worker(port->rdma, rcore_info, (struct rcore_call){.port = port, .info = out});
}

static int core_listen(struct rdma_port *port, uint16_t service, const struct rdma_listener *l,
                       struct err *err)
{
    return on_worker(
        port->rdma, rcore_listen,
        (struct rcore_call){.port = port, .service = service, .listener = l, .err = err});
}

static void core_unlisten(struct rdma_port *port)
{
    (void)on_worker(port->rdma, rcore_unlisten, (struct rcore_call){.port = port});
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
    rcore_post(c->rdma->worker, &c->task, rcore_caller_reject);
}

static void ask(struct rdma_link *link, struct reactor_task *task, reactor_task_fn fn)
{
    rcore_post(link->port->rdma->worker, task, fn);
}

static void link_begin(struct rdma_link *link)
{
    link->cq = NULL;
    link->area = NULL;
    link->impl = NULL;
    link->qp = NULL;
    link->windows = NULL;
    link->mail.left = link->mail.ended = false;
}

static void core_adopt(struct rdma_link *link, struct rdma_request *req)
{
    link_begin(link);
    link->mail.req = req;
    ask(link, &link->mail.begin, rcore_link_adopt);
}

static void core_dial(struct rdma_link *link, const struct rdma_dial *dial)
{
    link_begin(link);
    link->mail.dial = *dial;
    ask(link, &link->mail.begin, rcore_link_dial);
}

static void core_open_qp(struct rdma_link *link, const struct rdma_open *open)
{
    link->mail.open = *open;
    ask(link, &link->mail.make, rcore_link_open);
}

static void ask_with_words(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                           unsigned rnr_retry, reactor_task_fn fn)
{
    link->mail.priv_len = (uint32_t)words_copy(link->mail.priv, priv, len);
    link->mail.retry = retry;
    link->mail.rnr_retry = rnr_retry;
    ask(link, &link->mail.join, fn);
}

static void core_connect(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                         unsigned rnr_retry)
{
    ask_with_words(link, priv, len, retry, rnr_retry, rcore_link_connect);
}

static void core_accept(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                        unsigned rnr_retry)
{
    ask_with_words(link, priv, len, retry, rnr_retry, rcore_link_accept);
}

static void core_refuse(struct rdma_link *link, const void *priv, size_t len)
{
    ask_with_words(link, priv, len, 0, 0, rcore_link_refuse);
}

static void core_disconnect(struct rdma_link *link)
{
    if (link->mail.left || link->mail.ended)
        return;
    link->mail.left = true;
    ask(link, &link->mail.leave, rcore_link_disconnect);
}

static void core_shut(struct rdma_link *link)
{
    if (link->mail.ended)
        return;
    link->mail.ended = true;
    ask(link, &link->mail.end, rcore_link_shut);
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

/* A link that was closed goes back when nothing of it is in the queue any more. That is so when the
 * queue was empty, or since as many were polled as fit into it: others may keep it busy. */
static void cq_left(struct rcore_cq *c, bool empty)
{
    struct rcore_link *l;

    while ((l = STAILQ_FIRST(&c->leaving)) && (empty || c->polled - l->left_at >= c->size)) {
        STAILQ_REMOVE_HEAD(&c->leaving, leaving);
        rcore_post(l->rdma->worker, &l->gone, rcore_link_gone);
    }
}

void rcore_cq_empty(struct rcore_cq *c)
{
    struct ibv_wc wc[EMPTY_BURST];
    int n;

    do
        n = ibv_poll_cq(c->cq, EMPTY_BURST, wc);
    while (n > 0);
    cq_left(c, true);
}

static int core_poll(struct rdma_cq *cq, struct ibv_wc *wc, int n)
{
    struct rcore_cq *c = cq->impl;
    int got = ibv_poll_cq(c->cq, n, wc);

    if (unlikely(!STAILQ_EMPTY(&c->leaving)) && got >= 0) {
        c->polled += (unsigned)got;
        cq_left(c, got < n);
    }
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

static struct ibv_mr *core_register_part(struct rdma_link *link, void *addr, size_t len)
{
    return ibv_reg_mr(link->qp->pd, addr, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void core_release_part(struct rdma_link *link, struct ibv_mr *mr)
{
    (void)link;
    (void)ibv_dereg_mr(mr);
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
    want->dev = p->dev;
    rcore_post(p->rdma->worker, &want->task, rcore_want_region);
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
    .register_part = core_register_part,
    .release_part = core_release_part,
    .want_region = core_want_region,
};
