/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: the addresses of NIs and the device ports they are on, and who listens on them. */
#include "lib/base/err.h"
#include "lib/lnd_verbs/provider/rdma_core_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define SOON_US  50000ull   /* after a change of the host: several come together */
#define AGAIN_US 1000000ull /* by then the device knows of the change, too */

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

/* Other threads read the GID while it changes. */
static void gid_store(union ibv_gid *to, const union ibv_gid *from)
{
    relaxed_store(&to->global.subnet_prefix, from->global.subnet_prefix);
    relaxed_store(&to->global.interface_id, from->global.interface_id);
}

/* state, mtu, gid. False: the port cannot be asked. */
static bool info_refresh(struct rcore_port *p, struct ibv_port_attr *attr)
{
    struct rdma_info *info = &p->pub->info;
    union ibv_gid gid;

    if (p->dev->dead || ibv_query_port(p->dev->ctx, info->port, attr) != 0) {
        relaxed_store(&info->state, IBV_PORT_NOP);
        return false;
    }
    relaxed_store(&info->state, attr->state);
    relaxed_store(&info->mtu, 128u << attr->active_mtu);
    if (ibv_query_gid(p->dev->ctx, info->port, (int)info->gid_index, &gid) == 0)
        gid_store(&info->gid, &gid);
    return true;
}

/* Which port of its device, and what goes with that; id is bound to the address. False: the port
 * cannot be asked; nothing has changed, so the next look comes here again. */
static bool info_place(struct rcore_port *p, const struct rdma_cm_id *id)
{
    struct ibv_context *ctx = p->dev->ctx;
    struct rdma_info *info = &p->pub->info;
    struct ibv_port_attr attr = {0};
    __be16 pkey = 0;

    if (ibv_query_port(ctx, id->port_num, &attr) != 0)
        return false;
    info->port = id->port_num;
    p->gid = id->route.addr.addr.ibaddr.sgid;
    gid_store(&info->gid, &p->gid);
    info->pkey = ntohs(id->route.addr.addr.ibaddr.pkey);
    if (info->pkey == 0 && ibv_query_pkey(ctx, info->port, 0, &pkey) == 0)
        info->pkey = ntohs(pkey);
    snprintf(info->link_layer, sizeof(info->link_layer), "%s",
             attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    info->lid = attr.lid;
    info->speed = speed_of(&attr);
    info->gid_index = gid_index_of(ctx, info->port, attr.gid_tbl_len, &info->gid);
    return true;
}

static void info_fill(struct rcore_port *p)
{
    struct ibv_context *ctx = p->dev->ctx;
    const struct ibv_device_attr *a = &p->dev->attr;
    struct rdma_info *info = &p->pub->info;
    struct ibv_port_attr attr;

    *info = (struct rdma_info){
        .vendor = a->vendor_id,
        .part = a->vendor_part_id,
        .max_qp_wr = (uint32_t)a->max_qp_wr,
        .max_sge = (uint32_t)a->max_sge,
        .max_cqe = (uint32_t)a->max_cqe,
        .max_qp = (uint32_t)a->max_qp,
        .max_mr = (uint32_t)a->max_mr,
        .max_mr_size = a->max_mr_size,
        .remote_keys = p->dev->remote_keys,
    };
    snprintf(info->device, sizeof(info->device), "%s", ibv_get_device_name(ctx->device));
    snprintf(info->firmware, sizeof(info->firmware), "%s", a->fw_ver);
    snprintf(info->transport, sizeof(info->transport), "%s",
             ctx->device->transport_type == IBV_TRANSPORT_IWARP ? "iWARP" : "InfiniBand");
    (void)info_place(p, p->id);
    (void)info_refresh(p, &attr);
}

/* ---- events of ports ---- */

static void port_tell(struct reactor_task *task)
{
    struct rcore_port *p = container_of(task, struct rcore_port, task);
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

/* A bond may have moved it to another port of the device, or its GID may be another. */
static bool is_elsewhere(const struct rcore_port *p, const struct rdma_cm_id *id)
{
    const union ibv_gid *gid = &id->route.addr.addr.ibaddr.sgid;

    return id->port_num != p->pub->info.port || memcmp(gid, &p->gid, sizeof(*gid)) != 0;
}

/* An address that the query does not find, and a failed query, count as up. */
static bool interface_is_up(const struct sockaddr_in *addr)
{
    struct ifaddrs *list = NULL;
    bool up = false, seen = false;

    if (getifaddrs(&list) < 0)
        return true;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        const struct sockaddr_in *has = (const struct sockaddr_in *)(const void *)i->ifa_addr;

        if (!has || has->sin_family != AF_INET || has->sin_addr.s_addr != addr->sin_addr.s_addr)
            continue;
        seen = true;
        up = up || (i->ifa_flags & IFF_UP) != 0;
    }
    freeifaddrs(list);
    return up || !seen;
}

/* Returns whether the address of the port is still one of its device, on an interface that is up:
 * no event of InfiniBand reports either. Also finds out which port of the device has the address
 * now. */
static bool address_stands(struct rcore_port *p, uint32_t *bits)
{
    struct sockaddr_in addr = p->pub->addr;
    struct rdma_cm_id *id;
    bool stands;

    if (rdma_create_id(p->rdma->channel, &id, NULL, RDMA_PS_TCP) < 0)
        return true;
    addr.sin_port = 0;
    if (rdma_bind_addr(id, (struct sockaddr *)&addr) < 0) {
        stands = errno != EADDRNOTAVAIL && errno != ENODEV;
    } else {
        stands = id->verbs == p->dev->ctx && interface_is_up(&addr);
        if (id->verbs == p->dev->ctx && is_elsewhere(p, id) && info_place(p, id))
            *bits |= RCORE_PORT_CHANGED;
    }
    (void)rdma_destroy_id(id);
    return stands;
}

void rcore_port_look(struct rcore_port *p, uint32_t bits)
{
    bool stands = !p->dev->dead && address_stands(p, &bits);
    struct ibv_port_attr attr;
    bool up = info_refresh(p, &attr) && attr.state == IBV_PORT_ACTIVE && stands;

    if (up != p->up)
        bits |= RCORE_PORT_STATE;
    __atomic_store_n(&p->up, up, __ATOMIC_RELEASE);
    if (bits != 0 && __atomic_fetch_or(&p->bits, bits, __ATOMIC_ACQ_REL) == 0)
        rcore_post(p->pub->home, &p->task, port_tell);
}

/* ---- changes of the host: no event of a device reports these for InfiniBand ---- */

static void host_changed(struct reactor_fd *watch, uint32_t events)
{
    struct rdma *rdma = container_of(watch, struct rdma, host);
    char text[4096];

    /* Which change it was does not matter, nor does a lost one (ENOBUFS). */
    while (recv(watch->fd, text, sizeof(text), 0) > 0)
        continue;
    rdma->looks = 2;
    if (rdma->look.expires_us > reactor_now_us() + SOON_US)
        reactor_timer_arm(&rdma->look, SOON_US);
}

int rcore_host_watch(struct rdma *rdma)
{
    struct sockaddr_nl groups = {.nl_family = AF_NETLINK,
                                 .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);

    rdma->host.fd = fd;
    if (fd < 0 || bind(fd, (struct sockaddr *)&groups, sizeof(groups)) < 0)
        return -errno;
    return reactor_fd_add(&rdma->host, fd, EPOLLIN, host_changed);
}

void rcore_look_again(struct reactor_timer *look)
{
    struct rdma *rdma = container_of(look, struct rdma, look);
    struct rcore_device *dev;
    struct rcore_port *p;

    if (rdma->looks > 0)
        rdma->looks--;
    reactor_timer_arm(look, rdma->looks > 0 ? AGAIN_US : RCORE_LOOK_MS * 1000ull);
    LIST_FOREACH(dev, &rdma->devices, link) {
        LIST_FOREACH(p, &dev->ports, link) {
            if (!dev->dead)
                rcore_port_look(p, 0);
        }
    }
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
    if (rc == 0 && !id->verbs)
        rc = -ENODEV;
    if (rc < 0)
        (void)rdma_destroy_id(id);
    else
        *out = id;
    return rc;
}

int rcore_bind(struct rdma *rdma, const struct rcore_call *b)
{
    struct rdma_port *pub = b->port;
    struct rcore_port *p = calloc(1, sizeof(*p));
    int rc;

    if (!p)
        return err_set(b->err, -ENOMEM, "out of memory");
    p->owner.kind = RCORE_PORT;
    p->rdma = rdma;
    p->pub = pub;
    pub->addr = *b->addr;
    pub->addr.sin_port = 0;
    rc = id_bind(rdma, &p->owner, &pub->addr, &p->id);
    if (rc < 0) {
        rcore_say_no_device(&pub->addr, rc, b->err);
        goto fail;
    }
    rc = rcore_device_get(rdma, p->id->verbs, p->pub->remote_keys, &p->dev, b->err);
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
    rcore_id_drop(&p->id);
fail:
    free(p);
    return rc;
}

/* It goes with the provider: a task of it may be on its way. */
int rcore_unbind(struct rdma *rdma, const struct rcore_call *b)
{
    struct rcore_port *p = b->port->impl;

    (void)rcore_unlisten(rdma, b);
    rcore_id_drop(&p->id);
    LIST_REMOVE(p, link);
    __atomic_store_n(&p->unbound, true, __ATOMIC_RELEASE);
    LIST_INSERT_HEAD(&rdma->ports, p, link);
    return 0;
}

int rcore_info(struct rdma *rdma, const struct rcore_call *b)
{
    struct ibv_port_attr attr;

    (void)info_refresh(b->port->impl, &attr);
    *b->info = b->port->info;
    return 0;
}

static void say_not_listening(const struct rcore_call *b, int error)
{
    char ip[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &b->port->addr.sin_addr, ip, sizeof(ip));
    if (error == -EACCES)
        err_text(b->err,
                 "not allowed to listen at service %u of %s: it takes root or CAP_NET_BIND_SERVICE",
                 b->service, ip);
    else if (error == -EADDRINUSE)
        err_text(b->err,
                 "another program, or the kernel's own o2iblnd, listens at service %u of %s",
                 b->service, ip);
    else
        err_text(b->err, "cannot listen at service %u of %s: %s", b->service, ip, strerror(-error));
}

int rcore_listen(struct rdma *rdma, const struct rcore_call *b)
{
    struct rcore_port *p = b->port->impl;
    struct sockaddr_in addr = b->port->addr;
    unsigned n = reactor_count(rdma->env);
    struct rcore_listener *l;
    int rc;

    rcore_listeners_sweep(rdma, false);
    if (p->listener || !p->id) {
        err_text(b->err, "%s", !p->id ? "the RDMA device is gone" : "it listens already");
        return !p->id ? -ENODEV : -EALREADY;
    }
    l = calloc(1, sizeof(*l) + n * sizeof(l->reactors[0]));
    if (!l)
        return err_set(b->err, -ENOMEM, "out of memory");
    l->owner.kind = RCORE_LISTENER;
    l->port = p;
    l->pub = b->port;
    l->to = *b->listener;
    addr.sin_port = htons(b->service);
    rc = id_bind(rdma, &l->owner, &addr, &l->id);
    if (rc == 0 && rdma_listen(l->id, 0) < 0) {
        rc = -errno;
        rcore_id_drop(&l->id);
    }
    if (rc < 0) {
        say_not_listening(b, rc);
        free(l);
        return rc;
    }
    p->listener = l;
    return 0;
}

static void unlistened(struct reactor_task *task)
{
    struct rcore_listener *l = container_of(task, struct rcore_untold, task)->listener;

    if (l->to.unlistened)
        l->to.unlistened(l->to.arg);
    __atomic_fetch_sub(&l->untold, 1, __ATOMIC_RELEASE);
}

/* Behind all requests that are under way to the same reactors. */
int rcore_unlisten(struct rdma *rdma, const struct rcore_call *b)
{
    struct rcore_port *p = b->port->impl;
    struct rcore_listener *l = p->listener;
    unsigned n = reactor_count(rdma->env);

    if (!l)
        return 0;
    p->listener = NULL;
    rcore_id_drop(&l->id);
    LIST_INSERT_HEAD(&rdma->listeners, l, link);
    l->untold = n;
    for (unsigned i = 0; i < n; i++) {
        l->reactors[i].listener = l;
        rcore_post(reactor_at(rdma->env, i), &l->reactors[i].task, unlistened);
    }
    return 0;
}

void rcore_listeners_sweep(struct rdma *rdma, bool all)
{
    struct rcore_listener *next;

    for (struct rcore_listener *l = LIST_FIRST(&rdma->listeners); l; l = next) {
        next = LIST_NEXT(l, link);
        if (!all && __atomic_load_n(&l->untold, __ATOMIC_ACQUIRE) > 0)
            continue;
        LIST_REMOVE(l, link);
        free(l);
    }
}
