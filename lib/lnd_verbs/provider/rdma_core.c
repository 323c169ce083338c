/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RDMA provider over rdma-core: its table of functions, the worker thread and the ways between
 * it and reactors. See rdma.h for what is promised, rdma_core_internal.h for how it is divided.
 */
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "lib/lnd_verbs/provider/rdma_core_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_branch_prediction.h>

#define EPOLL_BURST 16
#define EMPTY_BURST 16

void lnd_verbs_process_init(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
}

/* ---- stacks of notes ---- */

/* True: it was empty, so whoever takes from it may be asleep. */
static bool push(struct rdma_note **stack, struct rdma_note *note)
{
    struct rdma_note *top = relaxed_load(stack);

    do {
        note->next = top;
    } while (
        !__atomic_compare_exchange_n(stack, &top, note, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
    return !top;
}

/* All there are, the first pushed first. */
static struct rdma_note *take(struct rdma_note **stack)
{
    struct rdma_note *note = __atomic_exchange_n(stack, NULL, __ATOMIC_ACQUIRE), *first = NULL;

    while (note) {
        struct rdma_note *next = note->next;

        note->next = first;
        first = note;
        note = next;
    }
    return first;
}

/* What a note is part of may be gone, or on its way again, once its function is called. */
static unsigned deliver(struct rdma_note *note)
{
    unsigned n = 0;

    for (; note; n++) {
        struct rdma_note *next = note->next;

        note->fn(note);
        note = next;
    }
    return n;
}

static void bell_ring(int bell)
{
    int saved = errno;
    uint64_t one = 1;

    /* The only failure is a full counter, and then the bell is ringing. */
    if (write(bell, &one, sizeof(one)) < 0)
        errno = saved;
}

static void bell_silence(int bell)
{
    uint64_t count;

    /* Fails only when it was read already. */
    if (read(bell, &count, sizeof(count)) < 0)
        return;
}

void rcore_ask(struct rdma *rdma, struct rdma_note *note, void (*fn)(struct rdma_note *note),
               void *of)
{
    note->fn = fn;
    note->of = of;
    if (push(&rdma->notes, note))
        bell_ring(rdma->bell.fd);
}

void rcore_tell(struct rcore_lane *lane, struct rdma_note *note, void (*fn)(struct rdma_note *note),
                void *of)
{
    note->fn = fn;
    note->of = of;
    if (push(&lane->notes, note))
        bell_ring(lane->bell);
}

/* ---- lanes ---- */

struct rcore_lane *rcore_lane_of(struct rdma *rdma, const struct reactor *r)
{
    unsigned index = reactor_index(r);

    return &rdma->lanes[index == REACTOR_CONTROL ? rdma->nlanes - 1 : index];
}

static void lane_read(struct reactor_fd *f, uint32_t events)
{
    struct rcore_lane *lane = container_of(f, struct rcore_lane, fd);

    (void)events;
    bell_silence(lane->bell);
    (void)deliver(take(&lane->notes));
}

/* Cannot fail but for lack of memory in the kernel, and there is nobody to tell. */
static void lane_begin(struct reactor_task *task)
{
    struct rcore_lane *lane = container_of(task, struct rcore_lane, begin);

    if (reactor_fd_add(&lane->fd, lane->bell, EPOLLIN, lane_read) < 0)
        abort();
}

static int lanes_open(struct rdma *rdma)
{
    for (unsigned i = 0; i < rdma->nlanes; i++) {
        struct rcore_lane *lane = &rdma->lanes[i];

        lane->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (lane->bell < 0)
            return -errno;
    }
    return 0;
}

static void lanes_begin(struct rdma *rdma)
{
    for (unsigned i = 0; i < rdma->nlanes; i++) {
        struct rcore_lane *lane = &rdma->lanes[i];

        lane->begin.fn = lane_begin;
        if (lane->reactor == reactor_self())
            lane_begin(&lane->begin);
        else
            reactor_post(lane->reactor, &lane->begin);
    }
}

static void lanes_close(struct rdma *rdma)
{
    for (unsigned i = 0; i < rdma->nlanes; i++) {
        struct rcore_lane *lane = &rdma->lanes[i];

        if (lane->reactor == reactor_self())
            reactor_fd_del(&lane->fd);
        if (lane->bell >= 0)
            close(lane->bell); /* and is in no epoll set any more */
    }
}

/* ---- the worker ---- */

uint64_t rcore_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

int rcore_watch_add(struct rdma *rdma, struct rcore_watch *watch, int fd,
                    void (*fn)(struct rcore_watch *watch))
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = watch};

    watch->fd = fd;
    watch->fn = fn;
    return epoll_ctl(rdma->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void rcore_watch_del(struct rdma *rdma, struct rcore_watch *watch)
{
    (void)epoll_ctl(rdma->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

static void jobs_run(struct rcore_watch *watch)
{
    struct rdma *rdma = container_of(watch, struct rdma, bell);

    bell_silence(watch->fd);
    count_add(&rdma->count.worker_jobs, deliver(take(&rdma->notes)));
}

static void account(struct rdma *rdma, uint64_t since_us)
{
    uint64_t took = rcore_now_us() - since_us;

    count_add(&rdma->count.worker_busy_us, took);
    if (took > rdma->count.worker_longest_us)
        relaxed_store(&rdma->count.worker_longest_us, took);
}

/* Returns how long the worker may sleep. */
static int wait_ms(const struct rdma *rdma)
{
    uint64_t now = rcore_now_us(), look_us = rdma->look_us;
    unsigned ms = look_us > now ? (unsigned)((look_us - now) / 1000 + 1) : 0;

    return (int)(LIST_EMPTY(&rdma->kept) ? ms : min(ms, RCORE_KEPT_AGAIN_MS));
}

static void *worker(void *arg)
{
    struct rdma *rdma = arg;
    struct epoll_event events[EPOLL_BURST];

    while (!rdma->stop) {
        int n = epoll_wait(rdma->epoll_fd, events, EPOLL_BURST, wait_ms(rdma));
        uint64_t since_us = rcore_now_us();

        for (int i = 0; i < n; i++) {
            struct rcore_watch *watch = events[i].data.ptr;

            watch->fn(watch);
        }
        if (!LIST_EMPTY(&rdma->kept) && since_us >= rdma->kept_again_us)
            rcore_kept_again(rdma);
        if (since_us >= rdma->look_us)
            rcore_look_again(rdma);
        rcore_devices_sweep(rdma);
        account(rdma, since_us);
    }
    return NULL;
}

static int worker_start(struct rdma *rdma)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&rdma->thread, NULL, worker, rdma);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_setname_np(rdma->thread, "rdma-worker");
    return -rc;
}

/* ---- the control thread hands the worker a function ---- */

struct call {
    struct rdma_note note;
    struct rdma *rdma;
    int (*fn)(struct rdma *rdma, void *arg);
    void *arg;
    int rc;
    sem_t done;
};

static void call_run(struct rdma_note *note)
{
    struct call *call = note->of;

    call->rc = call->fn(call->rdma, call->arg);
    sem_post(&call->done);
}

static int on_worker(struct rdma *rdma, int (*fn)(struct rdma *rdma, void *arg), void *arg)
{
    struct call call = {.rdma = rdma, .fn = fn, .arg = arg};

    sem_init(&call.done, 0, 0);
    rcore_ask(rdma, &call.note, call_run, &call);
    while (sem_wait(&call.done) < 0)
        continue; /* a signal */
    sem_destroy(&call.done);
    return call.rc;
}

static int worker_stop(struct rdma *rdma, void *arg)
{
    (void)arg;
    rdma->stop = true;
    return 0;
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
    return rcore_watch_add(rdma, &rdma->cm, rdma->channel->fd, rcore_cm_events);
}

static int base_open(struct rdma *rdma)
{
    int bell;

    rdma->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (rdma->epoll_fd < 0)
        return -errno;
    bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bell < 0)
        return -errno;
    rdma->bell.fd = bell;
    return rcore_watch_add(rdma, &rdma->bell, bell, jobs_run);
}

static struct rdma *provider_new(struct reactor_env *env)
{
    unsigned nlanes = reactor_count(env) + 1;
    struct rdma *rdma = calloc(1, sizeof(*rdma) + nlanes * sizeof(rdma->lanes[0]));

    if (!rdma)
        return NULL;
    rdma->env = env;
    rdma->epoll_fd = rdma->bell.fd = rdma->host.fd = -1;
    rdma->nlanes = nlanes;
    for (unsigned i = 0; i < nlanes; i++) {
        rdma->lanes[i].rdma = rdma;
        rdma->lanes[i].reactor = i + 1 < nlanes ? reactor_at(env, i) : reactor_control(env);
        rdma->lanes[i].bell = -1;
    }
    return rdma;
}

static void provider_free(struct rdma *rdma)
{
    lanes_close(rdma);
    if (rdma->channel)
        rdma_destroy_event_channel(rdma->channel);
    if (rdma->bell.fd >= 0)
        close(rdma->bell.fd);
    if (rdma->host.fd >= 0)
        close(rdma->host.fd);
    if (rdma->epoll_fd >= 0)
        close(rdma->epoll_fd);
    free(rdma);
}

static void region_gone(struct mem_watch *watch, uint16_t index)
{
    (void)on_worker(container_of(watch, struct rdma, mem), rcore_forget_region, &index);
}

static int core_open(struct reactor_env *env, struct rdma **out, struct err *err)
{
    struct rdma *rdma = provider_new(env);
    int rc;

    if (!rdma) {
        return err_set(err, -ENOMEM, "out of memory");
    }
    err_text(err, "%s", "");
    rc = base_open(rdma);
    if (rc == 0)
        rc = channel_open(rdma, err);
    if (rc == 0)
        rc = rcore_host_watch(rdma);
    if (rc == 0)
        rc = lanes_open(rdma);
    if (rc == 0)
        rc = worker_start(rdma);
    if (rc < 0) {
        if (!err->message[0])
            err_text(err, "the RDMA worker cannot start: %s", strerror(-rc));
        provider_free(rdma);
        return rc;
    }
    lanes_begin(rdma);
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
    (void)on_worker(rdma, worker_stop, NULL);
    pthread_join(rdma->thread, NULL);
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

static void core_counters(struct rdma *rdma, struct rdma_counters *out)
{
    counters_copy_all(out, &rdma->count);
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
    rcore_ask(c->rdma, &c->note, rcore_caller_reject, c);
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
    rcore_ask(link->port->rdma, &link->mail.begin, rcore_link_adopt, link);
}

static void core_dial(struct rdma_link *link, const struct rdma_dial *dial)
{
    link_begin(link);
    link->mail.dial = *dial;
    rcore_ask(link->port->rdma, &link->mail.begin, rcore_link_dial, link);
}

static void core_open_qp(struct rdma_link *link, const struct rdma_open *open)
{
    link->mail.open = *open;
    rcore_ask(link->port->rdma, &link->mail.make, rcore_link_open, link);
}

static void ask_with_words(struct rdma_link *link, const void *priv, size_t len,
                           void (*fn)(struct rdma_note *note))
{
    link->mail.priv_len = (uint32_t)words_copy(link->mail.priv, priv, len);
    rcore_ask(link->port->rdma, &link->mail.join, fn, link);
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
    rcore_ask(link->port->rdma, &link->mail.leave, rcore_link_disconnect, link);
}

static void core_shut(struct rdma_link *link)
{
    if (link->mail.ended)
        return;
    link->mail.ended = true;
    rcore_ask(link->port->rdma, &link->mail.end, rcore_link_shut, link);
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
        rcore_ask(l->rdma, &l->gone, rcore_link_gone, l);
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
    rcore_ask(p->rdma, &want->note, rcore_want_region, p->dev);
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
