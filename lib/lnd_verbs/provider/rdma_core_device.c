/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices with their protection domain, the keys of memory regions, completion queues and
 * asynchronous events.
 *
 * A device stays open until the provider is closed: reactors may poll its queues until then. A
 * removed device is closed when its last port is unbound, since its driver may wait for that.
 */
#include "lib/base/err.h"
#include "lib/lnd_verbs/provider/rdma_core_internal.h"
#include "lib/log/log.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define WANT_AGAIN_US 10000000u /* a region that could not be registered is tried again after */

void rcore_fd_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* ---- why something is not there ---- */

static bool folder_has_any(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    bool any = false;

    if (!dir)
        return false;
    while (!any && (entry = readdir(dir)))
        any = entry->d_name[0] != '.';
    closedir(dir);
    return any;
}

/* Names of the devices there are, as a list; "" if there is none. */
static int device_names(char *out, size_t len)
{
    struct ibv_device **list;
    int n = 0;
    size_t at = 0;

    out[0] = '\0';
    list = ibv_get_device_list(&n);
    for (int i = 0; list && i < n && at < len; i++)
        at += (size_t)snprintf(out + at, len - at, "%s%s", i > 0 ? ", " : "",
                               ibv_get_device_name(list[i]));
    if (list)
        ibv_free_device_list(list);
    return n;
}

void rcore_say_no_device(const struct sockaddr_in *addr, int error, struct err *err)
{
    char names[256], ip[INET_ADDRSTRLEN] = "";

    if (addr)
        inet_ntop(AF_INET, &addr->sin_addr, ip, sizeof(ip));
    if (!folder_has_any("/sys/class/infiniband"))
        err_text(
            err,
            "this host has no RDMA device (/sys/class/infiniband is empty): load the driver of "
            "the adapter, or add one in software to an Ethernet interface: rdma link add rxe0 "
            "type rxe netdev eth0");
    else if (access("/dev/infiniband/rdma_cm", F_OK) < 0)
        err_text(err,
                 "the RDMA connection manager cannot be reached, /dev/infiniband/rdma_cm is not "
                 "there: modprobe rdma_ucm");
    else if (device_names(names, sizeof(names)) == 0)
        err_text(err,
                 "this host has RDMA devices, but libibverbs finds none that it can drive: install "
                 "ibverbs-providers, modprobe ib_uverbs");
    else if (!addr)
        err_text(err, "the RDMA connection manager cannot be used: %s", strerror(-error));
    else if (error == -EADDRNOTAVAIL) {
        err_text(err, "no interface of this host has the address %s", ip);
        err_where(err, "nid");
        err_remedy(err, "`ip address` lists the addresses of this host");
        return;
    } else if (error == -ENODEV)
        err_text(err, "the interface of %s is not that of an RDMA device; there are these: %s", ip,
                 names);
    else
        err_text(err, "%s cannot be bound to an RDMA device: %s", ip, strerror(-error));
    err_remedy(err, "`rdma link` lists the RDMA devices there are, with their interfaces");
}

static void say_not_registered(const struct rcore_device *dev, size_t bytes, int error,
                               struct err *err)
{
    struct rlimit limit = {0};
    char locked[32] = "unlimited";

    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        snprintf(locked, sizeof(locked), "%llu KiB", (unsigned long long)limit.rlim_cur >> 10);
    err_text(
        err,
        "%s cannot be given %zu KiB of memory: %s (the limit of locked memory, RLIMIT_MEMLOCK, "
        "is %s: LimitMEMLOCK=infinity in the systemd unit, or ulimit -l unlimited)",
        ibv_get_device_name(dev->ctx->device), bytes >> 10, strerror(-error), locked);
}

/* ---- keys ---- */

/* Tries to make a memory window: a device may state the capability without its driver having it. */
static bool has_windows(const struct rcore_device *dev)
{
    const unsigned type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    struct ibv_mw *mw;

    if (!(dev->attr.device_cap_flags & type_2))
        return false;
    mw = ibv_alloc_mw(dev->pd, IBV_MW_TYPE_2);
    if (mw)
        (void)ibv_dealloc_mw(mw);
    return mw != NULL;
}

/* Returns 0 or -EOPNOTSUPP. */
static int choose_keys(struct rcore_device *dev, enum rdma_keys wanted)
{
    bool windows = wanted <= RDMA_KEYS_WINDOWS && has_windows(dev);

    if (wanted == RDMA_KEYS_WINDOWS && !windows)
        return -EOPNOTSUPP;
    if (wanted == RDMA_KEYS_AUTO)
        wanted = windows ? RDMA_KEYS_WINDOWS : RDMA_KEYS_SHARED;
    dev->remote_keys = wanted;
    return 0;
}

static int access_of(const struct rcore_device *dev, const struct mem_region *r)
{
    if (r->part != MEM_LANDING)
        return IBV_ACCESS_LOCAL_WRITE;
    switch (dev->remote_keys) {
    case RDMA_KEYS_WINDOWS:
        return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    case RDMA_KEYS_SHARED:
        return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    default:
        return IBV_ACCESS_LOCAL_WRITE;
    }
}

static int region_register(struct rcore_device *dev, uint16_t index, size_t *bytes)
{
    const struct mem_region *r = mem_region_get(index);
    struct rdma_key *key = &dev->keys[index];
    struct ibv_mr *mr;

    if (!r || dev->mrs[index])
        return 0;
    *bytes = r->len;
    mr = ibv_reg_mr(dev->pd, r->base, r->len, access_of(dev, r));
    if (!mr)
        return errno > 0 ? -errno : -ENOMEM;
    dev->mrs[index] = mr;
    key->lkey = mr->lkey;
    key->landing = r->part == MEM_LANDING;
    key->rkey = key->landing && dev->remote_keys == RDMA_KEYS_SHARED ? mr->rkey : 0;
    key->mr = key->landing && dev->remote_keys == RDMA_KEYS_WINDOWS ? mr : NULL;
    __atomic_store_n(&key->valid, true, __ATOMIC_RELEASE);
    count_add(&dev->rdma->count.registered, r->len);
    return 0;
}

static void region_forget(struct rcore_device *dev, uint16_t index)
{
    struct ibv_mr *mr = dev->mrs[index];

    if (!mr)
        return;
    __atomic_store_n(&dev->keys[index].valid, false, __ATOMIC_RELEASE);
    dev->mrs[index] = NULL;
    count_add(&dev->rdma->count.registered, -(uint64_t)mr->length);
    (void)ibv_dereg_mr(mr);
}

/* Registers all memory that a device has no key for. An NI listens afterwards: until then the host
 * rejects connection requests (REJ 8), which can last seconds, so the log says why. */
static int regions_register(struct rcore_device *dev, struct err *err)
{
    const char *name = ibv_get_device_name(dev->ctx->device);
    uint64_t since_us = rcore_now_us(), before = dev->rdma->count.registered;
    size_t missing = 0;

    for (unsigned i = 0; i < mem_region_count(); i++)
        missing +=
            mem_region_get((uint16_t)i) && !dev->mrs[i] ? mem_region_get((uint16_t)i)->len : 0;
    if (missing == 0)
        return 0;
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "rdma_registering", LOG_S("device", name),
              LOG_U("mib", missing >> 20), LOG_S("msg", "NIs on it listen when this is done"));
    for (unsigned i = 0; i < mem_region_count(); i++) {
        size_t bytes = 0;
        int rc = region_register(dev, (uint16_t)i, &bytes);

        if (rc < 0) {
            say_not_registered(dev, bytes, rc, err);
            return rc;
        }
    }
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "rdma_registered", LOG_S("device", name),
              LOG_U("mib", (dev->rdma->count.registered - before) >> 20),
              LOG_U("ms", (rcore_now_us() - since_us) / 1000));
    return 0;
}

int rcore_forget_region(struct rdma *rdma, const struct rcore_call *call)
{
    struct rcore_device *dev;

    LIST_FOREACH(dev, &rdma->devices, link)
        region_forget(dev, call->region);
    return 0;
}

void rcore_want_region(struct reactor_task *task)
{
    struct rcore_want *want = container_of(task, struct rcore_want, task);
    struct rcore_device *dev = want->dev;
    size_t bytes = 0;

    if (region_register(dev, (uint16_t)(want - dev->wants), &bytes) < 0)
        relaxed_store(&want->not_until, reactor_now_us() + WANT_AGAIN_US);
    __atomic_store_n(&want->asked, false, __ATOMIC_RELEASE);
}

/* ---- completion queues ---- */

static void cq_free(struct rcore_cq *c)
{
    if (c->cq)
        (void)ibv_destroy_cq(c->cq);
    if (c->channel)
        (void)ibv_destroy_comp_channel(c->channel);
    free(c);
}

static int cq_make(struct rcore_device *dev, uint32_t entries, struct rcore_cq **out)
{
    struct rcore_cq *c = calloc(1, sizeof(*c));
    uint32_t max = (uint32_t)dev->attr.max_cqe;
    int rc;

    if (!c)
        return -ENOMEM;
    STAILQ_INIT(&c->leaving);
    c->size = entries > RDMA_CQ_ENTRIES ? entries : RDMA_CQ_ENTRIES;
    c->size = c->size < max ? c->size : max;
    c->channel = ibv_create_comp_channel(dev->ctx);
    if (c->channel) {
        rcore_fd_nonblock(c->channel->fd);
        c->cq = ibv_create_cq(dev->ctx, (int)c->size, c, c->channel, 0);
    }
    if (!c->cq) {
        rc = errno > 0 ? -errno : -ENOMEM;
        cq_free(c);
        return rc;
    }
    c->pub = (struct rdma_cq){.rdma = dev->rdma, .fd = c->channel->fd, .impl = c};
    *out = c;
    return 0;
}

int rcore_cq_get(struct rcore_device *dev, const struct reactor *home, uint32_t entries,
                 struct rcore_cq **out)
{
    struct rcore_cq **list = &dev->cqs[reactor_index(home)], *c;
    int rc;

    if (entries > (uint32_t)dev->attr.max_cqe)
        return -EINVAL;
    for (c = *list; c; c = c->next) {
        if (!c->dead && c->size - c->taken >= entries)
            break;
    }
    if (!c) {
        rc = cq_make(dev, entries, &c);
        if (rc < 0)
            return rc;
        c->next = *list;
        *list = c;
    }
    c->taken += entries;
    *out = c;
    return 0;
}

/* ---- events of devices ---- */

static void cq_failed(struct rcore_device *dev, struct rcore_cq *c)
{
    struct rcore_link *l;

    c->dead = true;
    LIST_FOREACH(l, &dev->rdma->links, link) {
        if (l->cq == c)
            rcore_link_lost(l, -EIO);
    }
}

static void port_event(struct rcore_device *dev, int number, uint32_t bits)
{
    struct rcore_port *p;

    LIST_FOREACH(p, &dev->ports, link) {
        if (p->pub->info.port == number)
            rcore_port_look(p, bits);
    }
}

/* The queue pair of an event: its link, unless it is being destroyed. */
static struct rcore_link *link_of(const struct ibv_async_event *ev)
{
    return ev->element.qp->qp_context;
}

/* Handles an event, which is acknowledged afterwards: no handler destroys a queue pair. */
static void device_event(struct rcore_device *dev, const struct ibv_async_event *ev)
{
    switch (ev->event_type) {
    case IBV_EVENT_COMM_EST:
        /* Data came before the connection manager's last message; EISCONN: that has come too. */
        (void)rdma_notify(link_of(ev)->id, IBV_EVENT_COMM_EST);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        rcore_link_lost(link_of(ev), -EIO);
        break;
    case IBV_EVENT_CQ_ERR:
        cq_failed(dev, ev->element.cq->cq_context);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        rcore_device_dead(dev);
        break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
        port_event(dev, ev->element.port_num, 0);
        break;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
        port_event(dev, ev->element.port_num, RCORE_PORT_CHANGED);
        break;
    default:
        break;
    }
}

/* False: there is none. */
static bool event_take(struct rcore_device *dev, struct ibv_async_event *ev)
{
    errno = 0; /* stays so at an end of file */
    return ibv_get_async_event(dev->ctx, ev) == 0;
}

static void device_events(struct reactor_fd *watch, uint32_t events)
{
    struct rcore_device *dev = container_of(watch, struct rcore_device, watch);
    struct ibv_async_event ev;

    while (event_take(dev, &ev)) {
        device_event(dev, &ev);
        ibv_ack_async_event(&ev);
    }
    /* The descriptor of a removed device stays readable for ever. */
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        rcore_device_dead(dev);
}

/* ---- devices ---- */

void rcore_device_free(struct rcore_device *dev)
{
    while (!LIST_EMPTY(&dev->ports))
        (void)rcore_unbind(dev->rdma, &(struct rcore_call){.port = LIST_FIRST(&dev->ports)->pub});
    for (unsigned i = 0; i <= REACTOR_MAX; i++) {
        while (dev->cqs[i]) {
            struct rcore_cq *c = dev->cqs[i];

            dev->cqs[i] = c->next;
            cq_free(c);
        }
    }
    rcore_areas_free(dev);
    for (unsigned i = 0; i < MEM_REGION_MAX; i++)
        region_forget(dev, (uint16_t)i);
    if (!dev->dead)
        reactor_fd_del(&dev->watch);
    if (dev->pd)
        (void)ibv_dealloc_pd(dev->pd);
    if (dev->held)
        rdma_free_devices(dev->held);
    LIST_REMOVE(dev, link);
    free(dev);
}

static bool has_link_on(const struct rcore_device *dev)
{
    const struct rcore_link *l;

    LIST_FOREACH(l, &dev->rdma->links, link) {
        if (l->dev == dev)
            return true;
    }
    return false;
}

static bool is_in(struct ibv_context *const *list, const struct ibv_context *ctx)
{
    while (*list && *list != ctx)
        list++;
    return *list != NULL;
}

/* A new list is without devices that are gone, be it also this one, as we do not know yet. */
static void hold_anew(struct rcore_device *dev)
{
    struct ibv_context **before = dev->held, **now = rdma_get_devices(NULL);

    if (!now)
        return;
    if (is_in(now, dev->ctx))
        dev->held = now;
    else
        before = now;
    if (before)
        rdma_free_devices(before);
}

/* All others hold its context too, by their lists of devices. That of the last device of a host
 * stays open: the library does not look for what has changed where there is none. */
static void device_close(struct rcore_device *dev)
{
    struct rdma *rdma = dev->rdma;
    struct rcore_device *other;
    struct ibv_context **now;

    rcore_device_free(dev);
    LIST_FOREACH(other, &rdma->devices, link) {
        if (!other->dead)
            hold_anew(other);
    }
    now = rdma_get_devices(NULL); /* looks for what has changed, also where there is no other */
    if (now)
        rdma_free_devices(now);
}

void rcore_devices_sweep(struct rdma *rdma)
{
    struct rcore_device *next;

    for (struct rcore_device *dev = LIST_FIRST(&rdma->devices); dev; dev = next) {
        next = LIST_NEXT(dev, link);
        if (dev->dead && LIST_EMPTY(&dev->ports) && !has_link_on(dev))
            device_close(dev);
    }
}

/* The context is the connection manager's library's, one per device in the process. The list of
 * devices that is held keeps it open: else that of one which was taken away would be closed as soon
 * as no identifier is left on it. */
static int device_open(struct rdma *rdma, struct ibv_context *ctx, enum rdma_keys remote_keys,
                       struct rcore_device **out, struct err *err)
{
    struct rcore_device *dev = calloc(1, sizeof(*dev));
    int rc = -ENOMEM;

    if (!dev)
        return err_set(err, rc, "out of memory");
    dev->rdma = rdma;
    dev->ctx = ctx;
    dev->inline_max = UINT32_MAX;
    dev->held = rdma_get_devices(NULL);
    LIST_INSERT_HEAD(&rdma->devices, dev, link);
    if (ibv_query_device(ctx, &dev->attr) == 0)
        dev->pd = ibv_alloc_pd(ctx);
    if (!dev->pd) {
        rc = errno > 0 ? -errno : -ENOMEM;
        goto fail;
    }
    rc = choose_keys(dev, remote_keys);
    if (rc < 0)
        goto fail;
    rcore_fd_nonblock(ctx->async_fd);
    rc = reactor_fd_add(&dev->watch, ctx->async_fd, EPOLLIN, device_events);
    if (rc < 0)
        goto fail;
    *out = dev;
    return 0;
fail:
    if (rc == -EOPNOTSUPP)
        err_text(err,
                 "%s has no memory windows of type 2: `verbs: remote_keys` must be auto, "
                 "registrations or shared",
                 ibv_get_device_name(ctx->device));
    else
        err_text(err, "%s cannot be opened: %s", ibv_get_device_name(ctx->device), strerror(-rc));
    rcore_device_free(dev);
    return rc;
}

struct rcore_device *rcore_device_of(struct rdma *rdma, struct ibv_context *ctx)
{
    struct rcore_device *dev;

    LIST_FOREACH(dev, &rdma->devices, link) {
        if (dev->ctx == ctx && !dev->dead)
            return dev;
    }
    return NULL;
}

int rcore_device_get(struct rdma *rdma, struct ibv_context *ctx, enum rdma_keys remote_keys,
                     struct rcore_device **out, struct err *err)
{
    int rc = 0;

    *out = rcore_device_of(rdma, ctx);
    if (!*out)
        rc = device_open(rdma, ctx, remote_keys, out, err);
    return rc < 0 ? rc : regions_register(*out, err);
}

void rcore_id_drop(struct rdma_cm_id **id)
{
    if (*id)
        (void)rdma_destroy_id(*id);
    *id = NULL;
}

/* The kernel waits until all identifiers of a device that is removed are destroyed: those of ports
 * are at once, those of links when their owners have shut them. */
void rcore_device_dead(struct rcore_device *dev)
{
    struct rcore_link *l;
    struct rcore_port *p;

    if (dev->dead)
        return;
    dev->dead = true;
    reactor_fd_del(&dev->watch); /* if it comes back it is another one that watches */
    LIST_FOREACH(p, &dev->ports, link) {
        rcore_id_drop(&p->id);
        if (p->listener)
            rcore_id_drop(&p->listener->id);
        rcore_port_look(p, RCORE_PORT_REMOVED);
    }
    LIST_FOREACH(l, &dev->rdma->links, link) {
        if (l->dev == dev)
            rcore_link_lost(l, -EIO);
    }
}
