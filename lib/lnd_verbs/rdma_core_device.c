/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices and what is one per device: the protection domain, the keys of memory regions, completion
 * queues. Ports, who listens on them, and what devices and ports say of themselves.
 *
 * A device stays open until the provider is closed: reactors may poll its queues until then.
 */
#include "lib/lnd_verbs/rdma_core_internal.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define WANT_AGAIN_US 10000000u /* a region that could not be registered is tried again after */

static void fd_nonblock(int fd)
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

    if (dir == NULL)
        return false;
    while (!any && (entry = readdir(dir)) != NULL)
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
    for (int i = 0; list != NULL && i < n && at < len; i++)
        at += (size_t)snprintf(out + at, len - at, "%s%s", i > 0 ? ", " : "",
                               ibv_get_device_name(list[i]));
    if (list != NULL)
        ibv_free_device_list(list);
    return n;
}

void rcore_say_no_device(const struct sockaddr_in *addr, int error, char *err, size_t errlen)
{
    char names[256], ip[INET_ADDRSTRLEN] = "";

    if (addr != NULL)
        inet_ntop(AF_INET, &addr->sin_addr, ip, sizeof(ip));
    if (!folder_has_any("/sys/class/infiniband"))
        snprintf(
            err, errlen,
            "this host has no RDMA device (/sys/class/infiniband is empty): load the driver of "
            "the adapter, or add one in software to an Ethernet interface: rdma link add rxe0 "
            "type rxe netdev eth0");
    else if (access("/dev/infiniband/rdma_cm", F_OK) < 0)
        snprintf(err, errlen,
                 "the RDMA connection manager cannot be reached, /dev/infiniband/rdma_cm is not "
                 "there: modprobe rdma_ucm");
    else if (device_names(names, sizeof(names)) == 0)
        snprintf(err, errlen,
                 "this host has RDMA devices, but libibverbs finds none that it can drive: install "
                 "ibverbs-providers, modprobe ib_uverbs");
    else if (addr == NULL)
        snprintf(err, errlen, "the RDMA connection manager cannot be used: %s", strerror(-error));
    else if (error == -EADDRNOTAVAIL)
        snprintf(err, errlen, "no interface of this host has the address %s", ip);
    else if (error == -ENODEV)
        snprintf(err, errlen,
                 "the interface of %s is not that of an RDMA device; there are these: %s", ip,
                 names);
    else
        snprintf(err, errlen, "%s cannot be bound to an RDMA device: %s", ip, strerror(-error));
}

static void say_not_registered(const struct rcore_device *dev, size_t bytes, int error, char *err,
                               size_t errlen)
{
    struct rlimit limit = {0};
    char locked[32] = "unlimited";

    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        snprintf(locked, sizeof(locked), "%llu KiB", (unsigned long long)limit.rlim_cur >> 10);
    snprintf(
        err, errlen,
        "%s cannot be given %zu KiB of memory: %s (the limit of locked memory, RLIMIT_MEMLOCK, "
        "is %s: LimitMEMLOCK=infinity in the systemd unit, or ulimit -l unlimited)",
        ibv_get_device_name(dev->ctx->device), bytes >> 10, strerror(-error), locked);
}

/* ---- keys ---- */

static int region_register(struct rcore_device *dev, uint16_t index, size_t *bytes)
{
    const struct mem_region *r = mem_region_get(index);
    struct rdma_key *key = &dev->keys[index];
    int access = IBV_ACCESS_LOCAL_WRITE;
    struct ibv_mr *mr;

    if (r == NULL || dev->mrs[index] != NULL)
        return 0;
    *bytes = r->len;
    if (r->part == MEM_LANDING)
        access |= IBV_ACCESS_REMOTE_WRITE;
    mr = ibv_reg_mr(dev->pd, r->base, r->len, access);
    if (mr == NULL)
        return errno > 0 ? -errno : -ENOMEM;
    dev->mrs[index] = mr;
    key->lkey = mr->lkey;
    key->rkey = r->part == MEM_LANDING ? mr->rkey : 0;
    __atomic_store_n(&key->valid, true, __ATOMIC_RELEASE);
    rcore_count(&dev->rdma->count.registered, (int64_t)r->len);
    return 0;
}

static void region_forget(struct rcore_device *dev, uint16_t index)
{
    struct ibv_mr *mr = dev->mrs[index];

    if (mr == NULL)
        return;
    __atomic_store_n(&dev->keys[index].valid, false, __ATOMIC_RELEASE);
    dev->mrs[index] = NULL;
    rcore_count(&dev->rdma->count.registered, -(int64_t)mr->length);
    (void)ibv_dereg_mr(mr);
}

static int regions_register(struct rcore_device *dev, char *err, size_t errlen)
{
    for (unsigned i = 0; i < mem_region_count(); i++) {
        size_t bytes = 0;
        int rc = region_register(dev, (uint16_t)i, &bytes);

        if (rc < 0) {
            say_not_registered(dev, bytes, rc, err, errlen);
            return rc;
        }
    }
    return 0;
}

int rcore_forget_region(struct rdma *rdma, void *arg)
{
    const uint16_t *index = arg;
    struct rcore_device *dev;

    LIST_FOREACH(dev, &rdma->devices, link)
        region_forget(dev, *index);
    return 0;
}

void rcore_want_region(struct rdma_note *note)
{
    struct rcore_want *want = rcore_container(note, struct rcore_want, note);
    struct rcore_device *dev = note->of;
    size_t bytes = 0;

    if (region_register(dev, (uint16_t)(want - dev->wants), &bytes) < 0)
        __atomic_store_n(&want->not_until, reactor_now_us() + WANT_AGAIN_US, __ATOMIC_RELAXED);
    __atomic_store_n(&want->asked, false, __ATOMIC_RELEASE);
}

/* ---- completion queues ---- */

static void cq_free(struct rcore_cq *c)
{
    if (c->cq != NULL)
        (void)ibv_destroy_cq(c->cq);
    if (c->channel != NULL)
        (void)ibv_destroy_comp_channel(c->channel);
    free(c);
}

static int cq_make(struct rcore_device *dev, uint32_t entries, struct rcore_cq **out)
{
    struct rcore_cq *c = calloc(1, sizeof(*c));
    uint32_t max = (uint32_t)dev->attr.max_cqe;
    int rc;

    if (c == NULL)
        return -ENOMEM;
    c->size = entries > RCORE_CQ_ENTRIES ? entries : RCORE_CQ_ENTRIES;
    c->size = c->size < max ? c->size : max;
    c->channel = ibv_create_comp_channel(dev->ctx);
    if (c->channel != NULL) {
        fd_nonblock(c->channel->fd);
        c->cq = ibv_create_cq(dev->ctx, (int)c->size, c, c->channel, 0);
    }
    if (c->cq == NULL) {
        rc = errno > 0 ? -errno : -ENOMEM;
        cq_free(c);
        return rc;
    }
    c->pub = (struct rdma_cq){.rdma = dev->rdma, .fd = c->channel->fd, .impl = c};
    *out = c;
    return 0;
}

int rcore_cq_get(struct rcore_device *dev, struct rcore_lane *lane, uint32_t entries,
                 struct rcore_cq **out)
{
    struct rcore_cq **list = &dev->cqs[lane - dev->rdma->lanes], *c;
    int rc;

    if (entries > (uint32_t)dev->attr.max_cqe)
        return -EINVAL;
    for (c = *list; c != NULL; c = c->next) {
        if (!c->dead && c->size - c->taken >= entries)
            break;
    }
    if (c == NULL) {
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
    struct rcore_link *l, *next;

    c->dead = true;
    for (l = LIST_FIRST(&dev->links); l != NULL; l = next) {
        next = LIST_NEXT(l, link);
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

/* What an event says, after which it is acknowledged: nothing here destroys a queue pair. */
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

static void device_events(struct rcore_watch *watch)
{
    struct rcore_device *dev = rcore_container(watch, struct rcore_device, watch);
    struct ibv_async_event ev;

    while (event_take(dev, &ev)) {
        device_event(dev, &ev);
        ibv_ack_async_event(&ev);
    }
    /* Of a device that was taken away it would be readable for ever. */
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        rcore_watch_del(dev->rdma, &dev->watch);
        rcore_device_dead(dev);
    }
}

/* ---- devices ---- */

void rcore_device_free(struct rcore_device *dev)
{
    while (!LIST_EMPTY(&dev->links))
        rcore_link_free(LIST_FIRST(&dev->links));
    while (!LIST_EMPTY(&dev->ports)) {
        struct rcore_bind arg = {.port = LIST_FIRST(&dev->ports)->pub};

        (void)rcore_unbind(dev->rdma, &arg);
    }
    for (unsigned i = 0; i < dev->rdma->nlanes; i++) {
        while (dev->cqs[i] != NULL) {
            struct rcore_cq *c = dev->cqs[i];

            dev->cqs[i] = c->next;
            cq_free(c);
        }
    }
    rcore_areas_free(dev);
    for (unsigned i = 0; i < MEM_REGION_MAX; i++)
        region_forget(dev, (uint16_t)i);
    rcore_watch_del(dev->rdma, &dev->watch);
    if (dev->pd != NULL)
        (void)ibv_dealloc_pd(dev->pd);
    if (dev->held != NULL)
        rdma_free_devices(dev->held);
    LIST_REMOVE(dev, link);
    free(dev);
}

/* The context is the connection manager's library's, one per device in the process. The list of
 * devices that is held keeps it open: else that of one which was taken away would be closed as soon
 * as no identifier is left on it. */
static int device_open(struct rdma *rdma, struct ibv_context *ctx, struct rcore_device **out,
                       char *err, size_t errlen)
{
    struct rcore_device *dev = calloc(1, sizeof(*dev));
    int rc = -ENOMEM;

    if (dev == NULL) {
        snprintf(err, errlen, "out of memory");
        return rc;
    }
    dev->rdma = rdma;
    dev->ctx = ctx;
    dev->inline_max = UINT32_MAX;
    dev->held = rdma_get_devices(NULL);
    LIST_INSERT_HEAD(&rdma->devices, dev, link);
    if (ibv_query_device(ctx, &dev->attr) == 0)
        dev->pd = ibv_alloc_pd(ctx);
    if (dev->pd == NULL) {
        rc = errno > 0 ? -errno : -ENOMEM;
        goto fail;
    }
    fd_nonblock(ctx->async_fd);
    rc = rcore_watch_add(rdma, &dev->watch, ctx->async_fd, device_events);
    if (rc < 0)
        goto fail;
    *out = dev;
    return 0;
fail:
    snprintf(err, errlen, "%s cannot be opened: %s", ibv_get_device_name(ctx->device),
             strerror(-rc));
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

static void id_drop(struct rdma_cm_id **id)
{
    if (*id != NULL)
        (void)rdma_destroy_id(*id);
    *id = NULL;
}

/* The kernel waits until all identifiers of a device that is removed are destroyed: those of ports
 * are at once, those of links when their owners have shut them. */
void rcore_device_dead(struct rcore_device *dev)
{
    struct rcore_link *l, *next;
    struct rcore_port *p;

    if (dev->dead)
        return;
    dev->dead = true;
    LIST_FOREACH(p, &dev->ports, link) {
        id_drop(&p->id);
        if (p->listener != NULL)
            id_drop(&p->listener->id);
        rcore_port_look(p, RCORE_PORT_REMOVED);
    }
    for (l = LIST_FIRST(&dev->links); l != NULL; l = next) {
        next = LIST_NEXT(l, link);
        rcore_link_lost(l, -EIO);
    }
}

/* ---- what a port is ---- */

static unsigned speed_of(const struct ibv_port_attr *attr)
{
    static const struct {
        uint8_t code;
        unsigned mbit;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}},
      widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    unsigned speed = 0, lanes = 0;

    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        if (speeds[i].code == attr->active_speed)
            speed = speeds[i].mbit;
    }
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        if (widths[i].code == attr->active_width)
            lanes = widths[i].mbit;
    }
    return speed * lanes;
}

/* Of several entries with one address the one for RoCEv2 is what the connection manager takes. */
static unsigned gid_index_of(struct ibv_context *ctx, uint8_t port, int entries,
                             const union ibv_gid *gid)
{
    unsigned found = 0;

    for (int i = 0; i < entries; i++) {
        struct ibv_gid_entry entry;

        if (ibv_query_gid_ex(ctx, port, (uint32_t)i, &entry, 0) != 0 ||
            memcmp(&entry.gid, gid, sizeof(*gid)) != 0)
            continue;
        found = (unsigned)i;
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2)
            break;
    }
    return found;
}

/* What changes is read by others as it does. */
static void gid_store(union ibv_gid *to, const union ibv_gid *from)
{
    __atomic_store_n(&to->global.subnet_prefix, from->global.subnet_prefix, __ATOMIC_RELAXED);
    __atomic_store_n(&to->global.interface_id, from->global.interface_id, __ATOMIC_RELAXED);
}

/* state, mtu, gid. False: the port cannot be asked. */
static bool info_refresh(struct rcore_port *p, struct ibv_port_attr *attr)
{
    struct rdma_info *info = &p->pub->info;
    union ibv_gid gid;

    if (p->dev->dead || ibv_query_port(p->dev->ctx, info->port, attr) != 0) {
        __atomic_store_n(&info->state, IBV_PORT_NOP, __ATOMIC_RELAXED);
        return false;
    }
    __atomic_store_n(&info->state, attr->state, __ATOMIC_RELAXED);
    __atomic_store_n(&info->mtu, 128u << attr->active_mtu, __ATOMIC_RELAXED);
    if (ibv_query_gid(p->dev->ctx, info->port, (int)info->gid_index, &gid) == 0)
        gid_store(&info->gid, &gid);
    return true;
}

static void info_fill(struct rcore_port *p)
{
    struct ibv_context *ctx = p->dev->ctx;
    const struct ibv_device_attr *a = &p->dev->attr;
    struct rdma_info *info = &p->pub->info;
    struct ibv_port_attr attr = {0};
    __be16 pkey = 0;

    *info = (struct rdma_info){
        .vendor = a->vendor_id,
        .part = a->vendor_part_id,
        .port = p->id->port_num,
        .gid = p->id->route.addr.addr.ibaddr.sgid,
        .max_qp_wr = (uint32_t)a->max_qp_wr,
        .max_sge = (uint32_t)a->max_sge,
        .max_cqe = (uint32_t)a->max_cqe,
        .max_qp = (uint32_t)a->max_qp,
        .max_mr = (uint32_t)a->max_mr,
        .max_mr_size = a->max_mr_size,
    };
    snprintf(info->device, sizeof(info->device), "%s", ibv_get_device_name(ctx->device));
    snprintf(info->firmware, sizeof(info->firmware), "%s", a->fw_ver);
    snprintf(info->transport, sizeof(info->transport), "%s",
             ctx->device->transport_type == IBV_TRANSPORT_IWARP ? "iWARP" : "InfiniBand");
    if (ibv_query_port(ctx, info->port, &attr) != 0)
        return;
    snprintf(info->link_layer, sizeof(info->link_layer), "%s",
             attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    info->lid = attr.lid;
    info->speed = speed_of(&attr);
    info->gid_index = gid_index_of(ctx, info->port, attr.gid_tbl_len, &info->gid);
    info->pkey = ntohs(p->id->route.addr.addr.ibaddr.pkey);
    if (info->pkey == 0 && ibv_query_pkey(ctx, info->port, 0, &pkey) == 0)
        info->pkey = ntohs(pkey);
    (void)info_refresh(p, &attr);
}

/* ---- events of ports ---- */

static void port_tell(struct rdma_note *note)
{
    struct rcore_port *p = note->of;
    uint32_t bits = __atomic_exchange_n(&p->bits, 0, __ATOMIC_ACQ_REL);
    bool up = __atomic_load_n(&p->up, __ATOMIC_ACQUIRE);
    struct rdma_port *pub = p->pub;

    if (__atomic_load_n(&p->unbound, __ATOMIC_ACQUIRE))
        return;
    if (bits & RCORE_PORT_STATE)
        pub->event(pub, up ? RDMA_PORT_UP : RDMA_PORT_DOWN);
    if (bits & RCORE_PORT_CHANGED)
        pub->event(pub, RDMA_PORT_CHANGED);
    if (bits & RCORE_PORT_REMOVED)
        pub->event(pub, RDMA_PORT_REMOVED);
}

/* Whether the address of the port still is one of its device. */
static bool address_stands(struct rcore_port *p)
{
    struct sockaddr_in addr = p->pub->addr;
    struct rdma_cm_id *id;
    bool stands;

    if (rdma_create_id(p->rdma->channel, &id, NULL, RDMA_PS_TCP) < 0)
        return true;
    addr.sin_port = 0;
    stands = rdma_bind_addr(id, (struct sockaddr *)&addr) == 0 && id->verbs == p->dev->ctx;
    (void)rdma_destroy_id(id);
    return stands;
}

void rcore_port_look(struct rcore_port *p, uint32_t bits)
{
    struct ibv_port_attr attr;
    bool up = info_refresh(p, &attr) && attr.state == IBV_PORT_ACTIVE && address_stands(p);

    if (up != p->up)
        bits |= RCORE_PORT_STATE;
    __atomic_store_n(&p->up, up, __ATOMIC_RELEASE);
    if (bits != 0 && __atomic_fetch_or(&p->bits, bits, __ATOMIC_ACQ_REL) == 0)
        rcore_tell(rcore_lane_of(p->rdma, p->pub->home), &p->note, port_tell, p);
}

/* ---- bind, listen ---- */

static int id_bind(struct rdma *rdma, struct rcore_owner *owner, const struct sockaddr_in *addr,
                   struct rdma_cm_id **out)
{
    struct sockaddr_in to = *addr;
    struct rdma_cm_id *id;
    int rc;

    if (rdma_create_id(rdma->channel, &id, owner, RDMA_PS_TCP) < 0)
        return -errno;
    rc = rdma_bind_addr(id, (struct sockaddr *)&to) < 0 ? -errno : 0;
    if (rc == 0 && id->verbs == NULL)
        rc = -ENODEV;
    if (rc < 0)
        (void)rdma_destroy_id(id);
    else
        *out = id;
    return rc;
}

int rcore_bind(struct rdma *rdma, void *arg)
{
    struct rcore_bind *b = arg;
    struct rdma_port *pub = b->port;
    struct rcore_port *p = calloc(1, sizeof(*p));
    int rc;

    if (p == NULL) {
        snprintf(b->err, b->errlen, "out of memory");
        return -ENOMEM;
    }
    p->owner.kind = RCORE_PORT;
    p->rdma = rdma;
    p->pub = pub;
    pub->addr = *b->addr;
    pub->addr.sin_port = 0;
    rc = id_bind(rdma, &p->owner, &pub->addr, &p->id);
    if (rc < 0) {
        rcore_say_no_device(&pub->addr, rc, b->err, b->errlen);
        goto fail;
    }
    p->dev = rcore_device_of(rdma, p->id->verbs);
    if (p->dev == NULL)
        rc = device_open(rdma, p->id->verbs, &p->dev, b->err, b->errlen);
    if (rc == 0)
        rc = regions_register(p->dev, b->err, b->errlen);
    if (rc < 0)
        goto fail_id;
    info_fill(p);
    p->up = pub->info.state == IBV_PORT_ACTIVE;
    pub->rdma = rdma;
    pub->keys = p->dev->keys;
    pub->impl = p;
    LIST_INSERT_HEAD(&p->dev->ports, p, link);
    return 0;
fail_id:
    id_drop(&p->id);
fail:
    free(p);
    return rc;
}

/* It goes with the provider: a note of it may be on its way. */
int rcore_unbind(struct rdma *rdma, void *arg)
{
    struct rcore_bind *b = arg;
    struct rcore_port *p = b->port->impl;

    (void)rcore_unlisten(rdma, arg);
    id_drop(&p->id);
    LIST_REMOVE(p, link);
    __atomic_store_n(&p->unbound, true, __ATOMIC_RELEASE);
    LIST_INSERT_HEAD(&rdma->ports, p, link);
    return 0;
}

int rcore_info(struct rdma *rdma, void *arg)
{
    struct rcore_bind *b = arg;
    struct ibv_port_attr attr;

    (void)rdma;
    (void)info_refresh(b->port->impl, &attr);
    *b->info = b->port->info;
    return 0;
}

static void say_not_listening(const struct rcore_bind *b, int error)
{
    char ip[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &b->port->addr.sin_addr, ip, sizeof(ip));
    if (error == -EACCES)
        snprintf(b->err, b->errlen,
                 "not allowed to listen at service %u of %s: it takes root or CAP_NET_BIND_SERVICE",
                 b->service, ip);
    else if (error == -EADDRINUSE)
        snprintf(b->err, b->errlen,
                 "another program, or the kernel's own o2iblnd, listens at service %u of %s",
                 b->service, ip);
    else
        snprintf(b->err, b->errlen, "cannot listen at service %u of %s: %s", b->service, ip,
                 strerror(-error));
}

int rcore_listen(struct rdma *rdma, void *arg)
{
    struct rcore_bind *b = arg;
    struct rcore_port *p = b->port->impl;
    struct sockaddr_in addr = b->port->addr;
    unsigned n = rdma->nlanes - 1;
    struct rcore_listener *l;
    int rc;

    rcore_listeners_sweep(rdma, false);
    if (p->listener != NULL || p->id == NULL) {
        snprintf(b->err, b->errlen, "%s",
                 p->id == NULL ? "the RDMA device is gone" : "it listens already");
        return p->id == NULL ? -ENODEV : -EALREADY;
    }
    l = calloc(1, sizeof(*l) + n * sizeof(l->notes[0]));
    if (l == NULL) {
        snprintf(b->err, b->errlen, "out of memory");
        return -ENOMEM;
    }
    l->owner.kind = RCORE_LISTENER;
    l->port = p;
    l->pub = b->port;
    l->to = *b->listener;
    addr.sin_port = htons(b->service);
    rc = id_bind(rdma, &l->owner, &addr, &l->id);
    if (rc == 0 && rdma_listen(l->id, 0) < 0) {
        rc = -errno;
        id_drop(&l->id);
    }
    if (rc < 0) {
        say_not_listening(b, rc);
        free(l);
        return rc;
    }
    p->listener = l;
    return 0;
}

static void unlistened(struct rdma_note *note)
{
    struct rcore_listener *l = note->of;

    if (l->to.unlistened != NULL)
        l->to.unlistened(l->to.arg);
    __atomic_fetch_sub(&l->untold, 1, __ATOMIC_RELEASE);
}

/* Behind all requests that are under way to the same reactors. */
int rcore_unlisten(struct rdma *rdma, void *arg)
{
    struct rcore_bind *b = arg;
    struct rcore_port *p = b->port->impl;
    struct rcore_listener *l = p->listener;

    if (l == NULL)
        return 0;
    p->listener = NULL;
    id_drop(&l->id);
    LIST_INSERT_HEAD(&rdma->listeners, l, link);
    l->untold = rdma->nlanes - 1;
    for (unsigned i = 0; i + 1 < rdma->nlanes; i++)
        rcore_tell(&rdma->lanes[i], &l->notes[i], unlistened, l);
    return 0;
}

void rcore_listeners_sweep(struct rdma *rdma, bool all)
{
    struct rcore_listener *l, *next;

    for (l = LIST_FIRST(&rdma->listeners); l != NULL; l = next) {
        next = LIST_NEXT(l, link);
        if (!all && __atomic_load_n(&l->untold, __ATOMIC_ACQUIRE) > 0)
            continue;
        LIST_REMOVE(l, link);
        free(l);
    }
}
