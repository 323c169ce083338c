/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/verbs_sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* These are macros that pick one of several functions. */
#undef ibv_reg_mr
#undef ibv_query_port

#define DEVICES 4
#define WRS     4096
#define PORTS   2

struct sim_device {
    struct ibv_device device;
    struct ibv_context ctx;
    bool gone;
};

struct sim_id {
    struct rdma_cm_id id;
    struct ibv_sa_path_rec path; /* of a caller */
    bool listens;
    LIST_ENTRY(sim_id) link;
};

struct sim_event {
    struct rdma_cm_event event;
    uint8_t words[8];
    STAILQ_ENTRY(sim_event) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_device devices[DEVICES], *device;
static unsigned ndevices;
static LIST_HEAD(, sim_id) ids;
static STAILQ_HEAD(, sim_event) events;
static struct rdma_event_channel *channel;
static struct sim_count count;
static int keep_error;
int sim_completions;
static bool for_ever;
static uint32_t next_qpn;
static unsigned address_port;
static bool interface_up, port_active[PORTS + 1];
static unsigned port_fails; /* 0: none */
static int netlink;         /* the end that the host writes to; 0: none */
static struct {
    bool set;
    enum rdma_cm_event_type instead_of, type;
    int status;
} trouble;

/* ---- data path: nothing is ever sent, nothing comes by itself ---- */

static int some_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    n = n < sim_completions ? n : sim_completions;
    memset(wc, 0, (size_t)n * sizeof(*wc));
    return n;
}

static int no_notify(struct ibv_cq *cq, int solicited)
{
    (void)cq;
    (void)solicited;
    return 0;
}

static int take_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp;
    (void)wr;
    (void)bad;
    return 0;
}

static int take_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    (void)wr;
    (void)bad;
    return 0;
}

/* ---- the test's side ---- */

static void device_new(void)
{
    device = &devices[ndevices++];
    memset(device, 0, sizeof(*device));
    device->device.node_type = IBV_NODE_CA;
    device->device.transport_type = IBV_TRANSPORT_IB;
    device->ctx.device = &device->device;
    device->ctx.async_fd = eventfd(0, EFD_NONBLOCK);
    device->ctx.ops.poll_cq = some_poll;
    device->ctx.ops.req_notify_cq = no_notify;
    device->ctx.ops.post_recv = take_recv;
    device->ctx.ops.post_send = take_send;
}

void sim_init(void)
{
    memset(&count, 0, sizeof(count));
    ndevices = 0;
    keep_error = 0;
    for_ever = false;
    trouble.set = false;
    address_port = 1;
    port_fails = 0;
    interface_up = port_active[1] = port_active[2] = true;
    LIST_INIT(&ids);
    STAILQ_INIT(&events);
    device_new();
}

struct sim_count sim_count(void)
{
    struct sim_count now;

    pthread_mutex_lock(&lock);
    now = count;
    pthread_mutex_unlock(&lock);
    return now;
}

void sim_keep_qps(int error)
{
    pthread_mutex_lock(&lock);
    keep_error = error;
    pthread_mutex_unlock(&lock);
}

static bool device_is_gone(const struct ibv_context *ctx)
{
    bool gone;

    pthread_mutex_lock(&lock);
    gone =
        ((const struct sim_device *)((const char *)ctx - offsetof(struct sim_device, ctx)))->gone;
    pthread_mutex_unlock(&lock);
    return gone;
}

/* ---- identifiers and events; under the lock ---- */

static struct sim_id *id_new(void *context)
{
    struct sim_id *id = calloc(1, sizeof(*id));

    if (!id)
        abort();
    id->id.channel = channel;
    id->id.context = context;
    id->id.port_num = 1;
    LIST_INSERT_HEAD(&ids, id, link);
    count.ids++;
    return id;
}

static void id_on_device(struct sim_id *id)
{
    id->id.verbs = &device->ctx;
    id->id.port_num = (uint8_t)address_port;
    id->id.route.addr.addr.ibaddr.sgid.raw[15] = (uint8_t)address_port;
}

static void ring(void)
{
    uint64_t one = 1;

    if (write(channel->fd, &one, sizeof(one)) != sizeof(one))
        abort();
}

static struct sim_event *event_new(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
    struct sim_event *ev = calloc(1, sizeof(*ev));

    if (!ev)
        abort();
    ev->event.id = id;
    ev->event.event = type;
    STAILQ_INSERT_TAIL(&events, ev, link);
    count.events++;
    ring();
    return ev;
}

static void call_locked(void)
{
    struct sim_id *listener, *caller;
    struct sim_event *ev;

    LIST_FOREACH(listener, &ids, link) {
        if (listener->listens)
            break;
    }
    if (!listener)
        return;
    caller = id_new(NULL);
    id_on_device(caller);
    caller->path.dgid.raw[15] = SIM_CALLER;
    caller->id.route.path_rec = &caller->path;
    caller->id.route.num_paths = 1;
    ev = event_new(&caller->id, RDMA_CM_EVENT_CONNECT_REQUEST);
    ev->event.listen_id = &listener->id;
    ev->words[0] = 1;
    ev->event.param.conn.private_data = ev->words;
    ev->event.param.conn.private_data_len = sizeof(ev->words);
}

void sim_call(unsigned times)
{
    pthread_mutex_lock(&lock);
    while (times-- > 0)
        call_locked();
    pthread_mutex_unlock(&lock);
}

void sim_call_for_ever(bool on)
{
    pthread_mutex_lock(&lock);
    for_ever = on;
    if (on)
        call_locked();
    pthread_mutex_unlock(&lock);
}

void sim_say(enum rdma_cm_event_type instead_of, enum rdma_cm_event_type type, int status)
{
    pthread_mutex_lock(&lock);
    trouble.set = true;
    trouble.instead_of = instead_of;
    trouble.type = type;
    trouble.status = status;
    pthread_mutex_unlock(&lock);
}

static void host_notify(void)
{
    if (netlink > 0 && send(netlink, "", 1, MSG_NOSIGNAL) < 0)
        return; /* one is under way */
}

void sim_address(unsigned port)
{
    pthread_mutex_lock(&lock);
    address_port = port;
    host_notify();
    pthread_mutex_unlock(&lock);
}

void sim_interface(bool up)
{
    pthread_mutex_lock(&lock);
    interface_up = up;
    host_notify();
    pthread_mutex_unlock(&lock);
}

void sim_port(unsigned port, bool active)
{
    pthread_mutex_lock(&lock);
    port_active[port] = active;
    host_notify();
    pthread_mutex_unlock(&lock);
}

void sim_port_fails(unsigned port)
{
    pthread_mutex_lock(&lock);
    port_fails = port;
    pthread_mutex_unlock(&lock);
}

/* ---- the host's interfaces: one, of the device; changes are reported by netlink ---- */

int socket(int domain, int type, int protocol)
{
    int pair[2];

    if (domain != AF_NETLINK)
        return (int)syscall(SYS_socket, domain, type, protocol);
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    if (netlink > 0)
        close(netlink);
    netlink = pair[1];
    return pair[0];
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    return addr->sa_family == AF_NETLINK ? 0 : (int)syscall(SYS_bind, fd, addr, len);
}

int getifaddrs(struct ifaddrs **list)
{
    static struct sockaddr_in addr = {.sin_family = AF_INET};
    struct ifaddrs *one = calloc(1, sizeof(*one));

    if (!one)
        abort();
    inet_pton(AF_INET, SIM_ADDRESS, &addr.sin_addr);
    one->ifa_addr = (struct sockaddr *)&addr;
    pthread_mutex_lock(&lock);
    one->ifa_flags = interface_up ? IFF_UP : 0;
    pthread_mutex_unlock(&lock);
    *list = one;
    return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
    free(list);
}

void sim_remove_device(void)
{
    struct sim_id *id;

    pthread_mutex_lock(&lock);
    device->gone = true;
    LIST_FOREACH(id, &ids, link) {
        if (id->id.verbs == &device->ctx)
            (void)event_new(&id->id, RDMA_CM_EVENT_DEVICE_REMOVAL);
    }
    pthread_mutex_unlock(&lock);
}

void sim_add_device(bool same_context)
{
    pthread_mutex_lock(&lock);
    if (same_context)
        device->gone = false;
    else
        device_new();
    pthread_mutex_unlock(&lock);
}

/* ---- librdmacm ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
    channel = calloc(1, sizeof(*channel));
    if (!channel)
        abort();
    channel->fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
    return channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
    close(c->fd);
    free(c);
}

int rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **out)
{
    struct sim_event *ev;
    uint64_t one;

    if (read(c->fd, &one, sizeof(one)) < 0)
        return -1;
    pthread_mutex_lock(&lock);
    ev = STAILQ_FIRST(&events);
    if (ev) {
        STAILQ_REMOVE_HEAD(&events, link);
        count.events--;
        if (for_ever && ev->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
            call_locked();
    }
    pthread_mutex_unlock(&lock);
    if (!ev) { /* of one that was destroyed meanwhile */
        errno = EAGAIN;
        return -1;
    }
    *out = &ev->event;
    return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    free(event); /* the first member */
    return 0;
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **out, void *context,
                   enum rdma_port_space ps)
{
    (void)c;
    (void)ps;
    pthread_mutex_lock(&lock);
    *out = &id_new(context)->id;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void id_free(struct sim_id *id)
{
    LIST_REMOVE(id, link);
    count.ids--;
    free(id);
}

/* Events of it that nobody took go with it, and so do those who called it. */
int rdma_destroy_id(struct rdma_cm_id *id)
{
    struct sim_event *next;

    if (id->qp)
        abort(); /* nobody would ever destroy that */
    pthread_mutex_lock(&lock);
    for (struct sim_event *ev = STAILQ_FIRST(&events); ev; ev = next) {
        next = STAILQ_NEXT(ev, link);
        if (ev->event.id != id && ev->event.listen_id != id)
            continue;
        STAILQ_REMOVE(&events, ev, sim_event, link);
        count.events--;
        if (ev->event.listen_id == id)
            id_free((struct sim_id *)ev->event.id);
        free(ev);
    }
    id_free((struct sim_id *)id);
    pthread_mutex_unlock(&lock);
    return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
    bool there;

    pthread_mutex_lock(&lock);
    there = address_port != 0;
    memcpy(&id->route.addr.src_sin, addr, sizeof(id->route.addr.src_sin));
    if (there && !device->gone)
        id_on_device((struct sim_id *)id);
    pthread_mutex_unlock(&lock);
    errno = EADDRNOTAVAIL;
    return there ? 0 : -1;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    (void)backlog;
    pthread_mutex_lock(&lock);
    ((struct sim_id *)id)->listens = true;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int answered(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
    struct sim_event *ev;

    pthread_mutex_lock(&lock);
    if (trouble.set && trouble.instead_of == type) {
        ev = event_new(id, trouble.type);
        ev->event.status = trouble.status;
    } else {
        (void)event_new(id, type);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                      int timeout_ms)
{
    (void)from;
    (void)to;
    (void)timeout_ms;
    return answered(id, RDMA_CM_EVENT_ADDR_RESOLVED);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    (void)timeout_ms;
    return answered(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    (void)param;
    return answered(id, RDMA_CM_EVENT_ESTABLISHED);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    (void)param;
    return answered(id, RDMA_CM_EVENT_ESTABLISHED);
}

int rdma_reject(struct rdma_cm_id *id, const void *words, uint8_t len)
{
    (void)id;
    pthread_mutex_lock(&lock);
    count.rejects++;
    count.last_len = len < sizeof(count.last) ? len : sizeof(count.last);
    if (len > 0)
        memcpy(count.last, words, count.last_len);
    pthread_mutex_unlock(&lock);
    return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
    (void)id;
    return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
    (void)id;
    (void)level;
    (void)name;
    (void)value;
    (void)len;
    return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
    (void)id;
    (void)event;
    return 0;
}

struct ibv_context **rdma_get_devices(int *n)
{
    struct ibv_context **list = calloc(2, sizeof(*list));

    if (!list)
        abort();
    pthread_mutex_lock(&lock);
    list[0] = &device->ctx;
    count.lists++;
    count.taken++;
    pthread_mutex_unlock(&lock);
    if (n)
        *n = 1;
    return list;
}

/* ---- what is made and destroyed ---- */

static void *made(unsigned *counter, size_t size)
{
    void *thing = calloc(1, size);

    if (!thing)
        abort();
    pthread_mutex_lock(&lock);
    (*counter)++;
    pthread_mutex_unlock(&lock);
    return thing;
}

static void unmade(unsigned *counter, void *thing)
{
    pthread_mutex_lock(&lock);
    if ((*counter)-- == 0)
        abort();
    pthread_mutex_unlock(&lock);
    free(thing);
}

void rdma_free_devices(struct ibv_context **list)
{
    unmade(&count.lists, list);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp *qp = made(&count.qps, sizeof(*qp));

    qp->context = id->verbs;
    qp->qp_context = init->qp_context;
    qp->pd = pd;
    qp->qp_num = __atomic_add_fetch(&next_qpn, 1, __ATOMIC_RELAXED);
    id->qp = qp;
    return 0;
}

/* With a device that is gone goes what it had, and whoever destroys that is told an error. */
int ibv_destroy_qp(struct ibv_qp *qp)
{
    bool gone = device_is_gone(qp->context);
    int error;

    pthread_mutex_lock(&lock);
    count.destroys++;
    error = gone ? EIO : keep_error;
    pthread_mutex_unlock(&lock);
    if (error == 0 || gone)
        unmade(&count.qps, qp);
    return error;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_STATE)
        qp->state = attr->qp_state;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    struct ibv_pd *pd = made(&count.pds, sizeof(*pd));

    pd->context = ctx;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    unmade(&count.pds, pd);
    return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    struct ibv_mr *mr = made(&count.mrs, sizeof(*mr));

    (void)access;
    mr->pd = pd;
    mr->addr = addr;
    mr->length = len;
    mr->lkey = mr->rkey = 7;
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                unsigned int access)
{
    (void)iova;
    return ibv_reg_mr(pd, addr, len, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    unmade(&count.mrs, mr);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
    struct ibv_comp_channel *ch = made(&count.channels, sizeof(*ch));

    ch->context = ctx;
    ch->fd = eventfd(0, EFD_NONBLOCK);
    return ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
    close(ch->fd);
    unmade(&count.channels, ch);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int entries, void *context,
                             struct ibv_comp_channel *ch, int vector)
{
    struct ibv_cq *cq = made(&count.cqs, sizeof(*cq));

    (void)vector;
    cq->context = ctx;
    cq->cq_context = context;
    cq->channel = ch;
    cq->cqe = entries;
    return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    unmade(&count.cqs, cq);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
    (void)ch;
    (void)cq;
    (void)context;
    errno = EAGAIN;
    return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    (void)cq;
    (void)n;
}

/* ---- what devices say ---- */

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
    (void)ctx;
    (void)event;
    errno = EAGAIN;
    return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

struct ibv_device **ibv_get_device_list(int *n)
{
    struct ibv_device **list = calloc(2, sizeof(*list));

    if (!list)
        abort();
    list[0] = &devices[0].device;
    *n = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
    (void)d;
    return "sim0";
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    (void)ctx;
    *attr = (struct ibv_device_attr){.max_qp = 1000,
                                     .max_qp_wr = WRS,
                                     .max_sge = 30,
                                     .max_cqe = 65536,
                                     .max_mr = 1000,
                                     .max_mr_size = UINT64_MAX,
                                     .phys_port_cnt = 1};
    return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    struct ibv_port_attr *a = (struct ibv_port_attr *)attr; /* the first part of it */
    bool fails;

    if (device_is_gone(ctx))
        return EIO;
    pthread_mutex_lock(&lock);
    count.queries++;
    fails = port_fails == port;
    if (fails)
        port_fails = 0;
    a->state = port_active[port] ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    a->link_layer = IBV_LINK_LAYER_ETHERNET;
    pthread_mutex_unlock(&lock);
    if (fails)
        return EIO;
    a->lid = port;
    a->active_mtu = IBV_MTU_1024;
    a->gid_tbl_len = 1;
    a->active_speed = 1;
    a->active_width = 1;
    return 0;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
    (void)ctx;
    (void)index;
    memset(gid, 0, sizeof(*gid));
    gid->raw[15] = port;
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    (void)flags;
    (void)size;
    memset(entry, 0, sizeof(*entry));
    entry->port_num = port;
    return ibv_query_gid(ctx, (uint8_t)port, (int)index, &entry->gid);
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)
{
    (void)ctx;
    (void)port;
    (void)index;
    *pkey = 0xffff;
    return 0;
}
