/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links and callers: what their owners ask of the connection manager, and what that says of them.
 * All but what is marked "home" runs on the worker thread. docs/protocol/o2iblnd.md §1.1, §1.2,
 * §1.11.
 *
 * Every event of the connection manager is copied and acknowledged before anything is done about
 * it: to destroy an identifier waits for its events to be acknowledged.
 */
#include "lib/lnd_verbs/provider/rdma_core_internal.h"
#include "lib/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PRIVILEGED_PORT 1023 /* the highest */
/* Time after which a peer that found no receive posted tries again: the code of 41 ms. The case is
 * rare (§3.6), and six tries outlast a reactor that waits for its core. The default of the CM is
 * 655 ms.
 */
#define RNR_TIMER    24
#define CM_EVENTS    32   /* taken before other work has its turn */
#define CALLERS      1024 /* connection requests without an answer yet; further ones are refused */
#define INLINE_LEAST 64   /* bytes; less is not worth asking for */

/* ---- what the home is told ---- */

static void home_opened(struct rdma_link *link, const struct rcore_link *l)
{
    l->cq->live++;
    link->cq = &l->cq->pub;
    link->area = l->area;
    link->area_lkey = l->area_lkey;
    link->send_wrs = l->send_wrs;
    link->send_sges = l->send_sges;
    link->inline_bytes = l->inline_bytes;
    link->windows = l->windows;
    link->qp = l->id->qp;
}

static void home_reply(struct reactor_task *task)
{
    struct rdma_link *link = container_of(task, struct rdma_link, mail.reply);
    struct rdma_event ev = {.kind = link->mail.kind, .error = link->mail.error};
    const struct rcore_link *l;

    if (link->mail.ended)
        return; /* what it speaks of may be gone */
    l = link->impl;
    if (l) {
        ev.status = l->status;
        ev.priv = l->priv;
        ev.priv_len = l->priv_len;
        if (ev.kind == RDMA_EV_OPENED)
            home_opened(link, l);
    }
    link->event(link, &ev);
}

static void home_down(struct reactor_task *task)
{
    struct rdma_link *link = container_of(task, struct rdma_link, mail.down);
    struct rdma_event ev = {.kind = RDMA_EV_DISCONNECTED, .error = link->mail.down_error};

    if (!link->mail.ended)
        link->event(link, &ev);
}

/* The queue pair is destroyed, but its completions may still be in the queue, and the area that
 * they refer to stays until they are polled. A link without a queue pair has none. The last link of
 * a queue has it emptied here, since no poll may follow. */
static void home_closed(struct reactor_task *task)
{
    struct rdma_link *link = container_of(task, struct rdma_link, mail.closed);
    struct rdma_event ev = {.kind = RDMA_EV_CLOSED};
    struct rcore_link *l = link->impl;
    struct rcore_cq *c = l && link->cq ? l->cq : NULL;

    if (c) {
        l->left_at = c->polled;
        STAILQ_INSERT_TAIL(&c->leaving, l, leaving);
    } else if (l) {
        rcore_post(l->rdma->worker, &l->gone, rcore_link_gone);
    }
    link->event(link, &ev);
    if (c && --c->live == 0)
        rcore_cq_empty(c);
}

static void reply(struct rdma_link *link, enum rdma_event_kind kind, int error)
{
    struct rcore_link *l = link->impl;

    if (l)
        l->replies = false;
    link->mail.kind = kind;
    link->mail.error = error;
    rcore_post(link->home, &link->mail.reply, home_reply);
}

/* Reports that the last requested operation will not complete. */
static void fail(struct rcore_link *l, int error)
{
    l->state = RCORE_ENDED;
    if (l->replies)
        reply(l->pub, RDMA_EV_FAILED, error);
}

/* The same, with the status of the CM or the system. */
static void fail_as(struct rcore_link *l, int error, int status)
{
    l->status = status;
    fail(l, error);
}

static void down(struct rcore_link *l, int error)
{
    if (l->told)
        return;
    l->state = RCORE_ENDED;
    l->told = true;
    l->pub->mail.down_error = error;
    rcore_post(l->pub->home, &l->pub->mail.down, home_down);
}

void rcore_link_lost(struct rcore_link *l, int error)
{
    if (l->replies)
        fail(l, -ENOTCONN);
    else
        down(l, error);
}

/* ---- making and ending ---- */

static struct rcore_link *link_new(struct rdma_link *pub)
{
    struct rcore_link *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->owner.kind = RCORE_LINK;
    l->rdma = pub->port->rdma;
    l->pub = pub;
    LIST_INSERT_HEAD(&l->rdma->links, l, link);
    pub->impl = l;
    return l;
}

static void windows_free(struct rcore_link *l)
{
    for (uint32_t i = 0; i < l->nwindows; i++)
        (void)ibv_dealloc_mw(l->windows[i]);
    free(l->windows);
    l->windows = NULL;
    l->nwindows = 0;
}

static int windows_make(struct rcore_link *l, uint32_t n)
{
    if (n == 0)
        return 0;
    l->windows = calloc(n, sizeof(struct ibv_mw *));
    if (!l->windows)
        return -ENOMEM;
    while (l->nwindows < n) {
        struct ibv_mw *mw = ibv_alloc_mw(l->dev->pd, IBV_MW_TYPE_2);

        if (!mw)
            return -ENOMEM;
        l->windows[l->nwindows++] = mw;
    }
    return 0;
}

/* Its windows, its queue pair and its identifier. The windows go first, since a bound one may refer
 * to its queue pair. False: the device still has the queue pair. */
static bool link_drop(struct rcore_link *l)
{
    struct ibv_qp *qp = l->id ? l->id->qp : NULL;

    windows_free(l);
    if (!l->id)
        return true;
    if (qp) {
        if (ibv_destroy_qp(qp) != 0 && !l->dev->dead)
            return false;
        l->id->qp = NULL;
    }
    (void)rdma_destroy_id(l->id);
    l->id = NULL;
    return true;
}

static void link_give_back(struct rcore_link *l)
{
    if (l->slab)
        rcore_area_put(l->dev, l->slab, l->area);
    if (l->cq)
        l->cq->taken -= l->cq_entries;
    l->slab = NULL;
    l->cq = NULL;
}

void rcore_link_free(struct rcore_link *l)
{
    if (link_drop(l))
        link_give_back(l);
    LIST_REMOVE(l, link);
    free(l);
}

void rcore_link_gone(struct reactor_task *task)
{
    rcore_link_free(container_of(task, struct rcore_link, gone));
}

static void link_closed(struct rcore_link *l)
{
    l->state = RCORE_SHUT;
    rcore_post(l->pub->home, &l->pub->mail.closed, home_closed);
}

/* Keeps a link whose queue pair the device refuses to destroy. The device may go on writing to the
 * posted memory. The owner therefore gets RDMA_EV_CLOSED only when the queue pair is destroyed or
 * the device is gone. */
static void link_keep(struct rcore_link *l)
{
    struct rdma *rdma = l->rdma;

    l->state = RCORE_KEPT;
    if (rdma->count.kept == 0)
        reactor_timer_arm(&rdma->try_kept, RCORE_KEPT_AGAIN_MS * 1000);
    count_add(&rdma->count.kept, 1);
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "rdma_queue_pair_kept",
              LOG_S("device", ibv_get_device_name(l->dev->ctx->device)),
              LOG_U("qpn", l->id->qp->qp_num),
              LOG_S("msg", "the device refuses to destroy a queue pair; it is tried again"));
}

void rcore_kept_again(struct reactor_timer *try_kept)
{
    struct rdma *rdma = container_of(try_kept, struct rdma, try_kept);
    struct rcore_link *l;

    LIST_FOREACH(l, &rdma->links, link) {
        if (l->state != RCORE_KEPT || !link_drop(l))
            continue;
        count_add(&rdma->count.kept, (uint64_t)(-1));
        link_closed(l);
    }
    if (rdma->count.kept > 0)
        reactor_timer_arm(&rdma->try_kept, RCORE_KEPT_AGAIN_MS * 1000);
}

/* ---- dial ---- */

/* A source port below 1024 if we are allowed to and one is free: several may share one, as the
 * other ends differ. */
static int bind_source(struct rcore_link *l)
{
    const struct rdma_dial *dial = &l->pub->mail.dial;
    struct sockaddr_in from = l->pub->port->addr;
    int one = 1, rc;

    if (dial->privileged)
        (void)rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one));
    for (int port = dial->privileged ? PRIVILEGED_PORT : 0; port >= 0; port--) {
        from.sin_port = htons((uint16_t)port);
        rc = rdma_bind_addr(l->id, (struct sockaddr *)&from) < 0 ? -errno : 0;
        if (rc == -EACCES && port > 0)
            port = 1; /* then any */
        else if (rc != -EADDRINUSE && rc != -EADDRNOTAVAIL)
            break;
    }
    return rc;
}

void rcore_link_dial(struct reactor_task *task)
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.begin);
    struct rcore_link *l = link_new(pub);
    struct sockaddr_in to = pub->mail.dial.to;
    int rc;

    if (!l) {
        reply(pub, RDMA_EV_FAILED, -ENOMEM);
        return;
    }
    l->state = RCORE_ADDRESS;
    l->replies = true;
    if (rdma_create_id(l->rdma->channel, &l->id, &l->owner, RDMA_PS_TCP) < 0) {
        l->id = NULL;
        fail(l, -ENOTCONN);
        return;
    }
    rc = bind_source(l);
    if (rc == 0 &&
        rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&to, (int)pub->mail.dial.timeout_ms) < 0)
        rc = -errno;
    if (rc < 0)
        fail_as(l, -EHOSTUNREACH, rc);
}

static void address_resolved(struct rcore_link *l)
{
    const struct rdma_dial *dial = &l->pub->mail.dial;
    struct rcore_device *dev = rcore_device_of(l->rdma, l->id->verbs);
    uint8_t tos = (uint8_t)dial->tos;

    if (!dev || dev->dead) {
        fail(l, -EHOSTUNREACH);
        return;
    }
    l->dev = dev;
    if (dial->tos >= 0)
        (void)rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
    l->state = RCORE_ROUTE;
    if (rdma_resolve_route(l->id, (int)dial->timeout_ms) < 0)
        fail_as(l, -ENETUNREACH, -errno);
}

/* ---- callers ---- */

void rcore_caller_free(struct rcore_caller *c)
{
    if (c->id)
        (void)rdma_destroy_id(c->id);
    LIST_REMOVE(c, link);
    c->rdma->ncallers--;
    free(c);
}

void rcore_caller_reject(struct reactor_task *task)
{
    struct rcore_caller *c = container_of(task, struct rcore_caller, task);

    if (!c->gone)
        (void)rdma_reject(c->id, c->req.priv, (uint8_t)c->req.priv_len);
    rcore_caller_free(c);
}

static void home_request(struct reactor_task *task)
{
    struct rcore_caller *c = container_of(task, struct rcore_caller, task);

    c->listener->to.request(c->listener->to.arg, &c->req);
}

static void caller_new(struct rcore_listener *listener, struct rdma_cm_id *id, const uint8_t *priv,
                       size_t len)
{
    struct rcore_caller *c = calloc(1, sizeof(*c));
    struct reactor *to = NULL;

    if (c && listener->port->rdma->ncallers < CALLERS)
        to = listener->to.route(listener->to.arg, priv, len);
    if (!c || !to) {
        (void)rdma_reject(id, listener->to.busy, (uint8_t)listener->to.busy_len);
        (void)rdma_destroy_id(id);
        count_add(&listener->port->rdma->count.turned_away, 1);
        free(c);
        return;
    }
    c->owner.kind = RCORE_CALLER;
    c->rdma = listener->port->rdma;
    c->listener = listener;
    c->id = id;
    id->context = &c->owner;
    c->req = (struct rdma_request){.port = listener->pub, .priv_len = len, .impl = c};
    memcpy(&c->req.from, rdma_get_peer_addr(id), sizeof(c->req.from));
    /* iWARP has no path. */
    c->req.roce =
        id->route.num_paths > 0 && strcmp(listener->pub->info.link_layer, "Ethernet") == 0;
    if (c->req.roce)
        c->req.gid = id->route.path_rec[0].dgid;
    memcpy(c->req.priv, priv, len);
    LIST_INSERT_HEAD(&c->rdma->callers, c, link);
    c->rdma->ncallers++;
    rcore_post(to, &c->task, home_request);
}

void rcore_link_adopt(struct reactor_task *task)
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.begin);
    struct rcore_caller *c = pub->mail.req->impl;
    struct rcore_link *l = link_new(pub);
    struct rcore_device *dev = rcore_device_of(c->rdma, c->id->verbs);

    if (l) {
        l->called = true;
        l->state = c->gone || !dev || dev->dead ? RCORE_ENDED : RCORE_READY;
        l->id = c->id;
        l->id->context = &l->owner;
        c->id = NULL;
        l->dev = dev;
    }
    rcore_caller_free(c);
}

/* ---- the queue pair ---- */

/* Devices refuse what is too much together although each is within its limit: first less inline
 * data is asked for, then fewer segments. */
static int qp_make(struct rcore_link *l, const struct rdma_open *open)
{
    struct rcore_device *dev = l->dev;
    uint32_t sge_max = (uint32_t)dev->attr.max_sge;
    struct ibv_qp_cap cap = {
        .max_send_wr = open->send_wrs,
        .max_recv_wr = open->recv_wrs,
        .max_send_sge = open->send_sges < sge_max ? open->send_sges : sge_max,
        .max_recv_sge = 1,
        .max_inline_data =
            open->inline_bytes < dev->inline_max ? open->inline_bytes : dev->inline_max,
    };

    for (;;) {
        struct ibv_qp_init_attr init = {
            .qp_context = l,
            .send_cq = l->cq->cq,
            .recv_cq = l->cq->cq,
            .cap = cap,
            .qp_type = IBV_QPT_RC,
        };

        if (rdma_create_qp(l->id, dev->pd, &init) == 0) {
            if (cap.max_inline_data < open->inline_bytes)
                dev->inline_max = cap.max_inline_data;
            /* No more than was asked for: the completion queue has room for that. */
            l->send_wrs = open->send_wrs;
            l->send_sges =
                init.cap.max_send_sge < cap.max_send_sge ? init.cap.max_send_sge : cap.max_send_sge;
            l->inline_bytes = init.cap.max_inline_data;
            return 0;
        }
        if (errno != EINVAL)
            return errno > 0 ? -errno : -ENOMEM;
        if (cap.max_inline_data > 0)
            cap.max_inline_data = cap.max_inline_data > INLINE_LEAST ? cap.max_inline_data / 2 : 0;
        else if (cap.max_send_sge > 1)
            cap.max_send_sge /= 2;
        else
            return -EINVAL;
    }
}

static int link_open(struct rcore_link *l, const struct rdma_open *open)
{
    const struct ibv_device_attr *attr;
    int rc;

    if (!l)
        return -ENOTCONN; /* there was no memory for it; nor would less help */
    if (l->state != RCORE_READY || l->dev->dead)
        return -ENOTCONN;
    attr = &l->dev->attr;
    if (open->send_sges == 0 || open->send_wrs > (uint32_t)attr->max_qp_wr ||
        open->recv_wrs > (uint32_t)attr->max_qp_wr)
        return -EINVAL;
    l->cq_entries = open->send_wrs + open->recv_wrs;
    rc = rcore_cq_get(l->dev, l->pub->home, l->cq_entries, &l->cq);
    if (rc == 0)
        rc = rcore_area_get(l->dev, open->area, &l->slab, &l->area);
    if (rc == 0)
        rc = windows_make(l, open->windows);
    if (rc == 0)
        rc = qp_make(l, open);
    if (rc < 0) {
        windows_free(l);
        link_give_back(l);
        return rc;
    }
    l->area_lkey = l->slab->mr->lkey;
    l->state = RCORE_OPEN;
    return 0;
}

void rcore_link_open(struct reactor_task *task)
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.make);
    int rc = link_open(pub->impl, &pub->mail.open);

    reply(pub, rc < 0 ? RDMA_EV_OPEN_FAILED : RDMA_EV_OPENED, rc);
}

/* ---- connect, accept, refuse ---- */

/* No RDMA READs in either direction, §1.2. */
static void link_join(struct reactor_task *task,
                      int (*join)(struct rdma_cm_id *id, struct rdma_conn_param *param))
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.join);
    struct rdma_conn_param param = {
        .private_data = pub->mail.priv,
        .private_data_len = (uint8_t)pub->mail.priv_len,
        .flow_control = 1,
        .retry_count = (uint8_t)pub->mail.retry,
        .rnr_retry_count = (uint8_t)pub->mail.rnr_retry,
    };
    struct rcore_link *l = pub->impl;

    if (!l || l->left) {
        if (!l)
            reply(pub, RDMA_EV_FAILED, -ENOTCONN);
        return;
    }
    l->replies = true;
    if (l->state != RCORE_OPEN) {
        fail(l, -ENOTCONN);
        return;
    }
    l->state = RCORE_JOINING;
    if (join(l->id, &param) < 0)
        fail_as(l, errno == ENETUNREACH || errno == EHOSTUNREACH ? -ENETDOWN : -ENOTCONN, -errno);
}

void rcore_link_connect(struct reactor_task *task)
{
    link_join(task, rdma_connect);
}

void rcore_link_accept(struct reactor_task *task)
{
    link_join(task, rdma_accept);
}

void rcore_link_refuse(struct reactor_task *task)
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.join);
    struct rcore_link *l = pub->impl;

    if (!l || !l->called || (l->state != RCORE_READY && l->state != RCORE_OPEN))
        return;
    (void)rdma_reject(l->id, pub->mail.priv, (uint8_t)pub->mail.priv_len);
    l->state = RCORE_ENDED;
}

/* The connection manager has peers that found no receive wait for 655 ms. */
static void established(struct rcore_link *l)
{
    struct ibv_qp_attr attr = {.min_rnr_timer = RNR_TIMER};

    l->state = RCORE_UP;
    (void)ibv_modify_qp(l->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
    reply(l->pub, RDMA_EV_ESTABLISHED, 0);
}

/* ---- disconnect, shut ---- */

/* Everything that is posted completes once the queue pair is in error; in some of its states the
 * connection manager does not do that. */
static void link_leave(struct rcore_link *l)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    enum rcore_state state = l->state;

    if (l->left)
        return;
    l->left = true;
    l->state = RCORE_ENDED;
    l->replies = false;
    l->told = true; /* it was us */
    if (l->called && (state == RCORE_READY || state == RCORE_OPEN))
        (void)rdma_reject(l->id, NULL, 0);
    else if (l->id && l->id->qp)
        (void)rdma_disconnect(l->id);
    if (l->id && l->id->qp)
        (void)ibv_modify_qp(l->id->qp, &attr, IBV_QP_STATE);
}

void rcore_link_disconnect(struct reactor_task *task)
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.leave);

    if (pub->impl)
        link_leave(pub->impl);
}

void rcore_link_shut(struct reactor_task *task)
{
    struct rdma_link *pub = container_of(task, struct rdma_link, mail.end);
    struct rcore_link *l = pub->impl;

    if (!l) {
        rcore_post(pub->home, &pub->mail.closed, home_closed);
        return;
    }
    link_leave(l);
    if (link_drop(l))
        link_closed(l);
    else
        link_keep(l);
}

/* ---- what the connection manager says ---- */

struct cm_event {
    enum rdma_cm_event_type type;
    struct rdma_cm_id *id;
    struct rcore_owner *owner; /* of the listener for a call */
    int status;
    size_t len;
    uint8_t priv[RDMA_PRIV_MAX];
};

static void keep_words(struct rcore_link *l, const struct cm_event *ev)
{
    l->status = ev->status;
    l->priv_len = ev->len;
    memcpy(l->priv, ev->priv, ev->len);
}

/* An end that is shut before it has our "ready to use" sends a REJ, though we are up already. */
static void join_ended(struct rcore_link *l, const struct cm_event *ev)
{
    if (l->state == RCORE_UP)
        down(l, 0);
    if (l->state != RCORE_JOINING)
        return;
    if (ev->type == RDMA_CM_EVENT_REJECTED) {
        l->state = RCORE_ENDED;
        keep_words(l, ev);
        reply(l->pub, RDMA_EV_REJECTED, 0);
    } else {
        fail_as(l, ev->type == RDMA_CM_EVENT_UNREACHABLE ? -ENETDOWN : -ENOTCONN, ev->status);
    }
}

static void link_event(struct rcore_link *l, const struct cm_event *ev)
{
    switch (ev->type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (l->state == RCORE_ADDRESS)
            address_resolved(l);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (l->state == RCORE_ROUTE) {
            l->state = RCORE_READY;
            reply(l->pub, RDMA_EV_RESOLVED, 0);
        }
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        if (l->state == RCORE_ADDRESS || l->state == RCORE_ROUTE)
            fail_as(l, l->state == RCORE_ADDRESS ? -EHOSTUNREACH : -ENETUNREACH, ev->status);
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
        join_ended(l, ev);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (l->state == RCORE_JOINING) {
            keep_words(l, ev);
            established(l);
        }
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        if (l->state == RCORE_JOINING)
            fail(l, -ENOTCONN);
        else if (l->state == RCORE_UP)
            down(l, 0);
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (l->dev)
            rcore_device_dead(l->dev);
        else
            rcore_link_lost(l, -EIO);
        break;
    default: /* ADDR_CHANGE, TIMEWAIT_EXIT: §1.11 */
        break;
    }
}

static void caller_event(struct rcore_caller *c, const struct cm_event *ev)
{
    struct rcore_device *dev = rcore_device_of(c->rdma, c->id->verbs);

    if (ev->type != RDMA_CM_EVENT_ADDR_CHANGE)
        c->gone = true;
    if (ev->type == RDMA_CM_EVENT_DEVICE_REMOVAL && dev)
        rcore_device_dead(dev);
}

static void port_event(struct rcore_port *p, const struct cm_event *ev)
{
    if (ev->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
        rcore_device_dead(p->dev);
    else if (ev->type == RDMA_CM_EVENT_ADDR_CHANGE)
        rcore_port_look(p, RCORE_PORT_CHANGED);
}

static void cm_event(const struct cm_event *ev)
{
    struct rcore_owner *owner = ev->owner;

    if (ev->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        caller_new(container_of(owner, struct rcore_listener, owner), ev->id, ev->priv, ev->len);
        return;
    }
    if (!owner)
        return;
    switch (owner->kind) {
    case RCORE_PORT:
        port_event(container_of(owner, struct rcore_port, owner), ev);
        break;
    case RCORE_LISTENER:
        if (ev->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
            rcore_device_dead(container_of(owner, struct rcore_listener, owner)->port->dev);
        break;
    case RCORE_CALLER:
        caller_event(container_of(owner, struct rcore_caller, owner), ev);
        break;
    case RCORE_LINK:
        link_event(container_of(owner, struct rcore_link, owner), ev);
        break;
    }
}

/* Takes a bounded number of events, so that a flood of connection requests does not delay the
 * worker's other work. */
void rcore_cm_events(struct reactor_fd *cm, uint32_t events)
{
    struct rdma *rdma = container_of(cm, struct rdma, cm);
    struct rdma_cm_event *from;

    for (unsigned i = 0; i < CM_EVENTS && rdma_get_cm_event(rdma->channel, &from) == 0; i++) {
        const struct rdma_conn_param *conn = &from->param.conn;
        const struct rdma_cm_id *whose = from->listen_id ? from->listen_id : from->id;
        struct cm_event ev = {
            .type = from->event,
            .id = from->id,
            .owner = whose->context,
            .status = from->status,
        };

        if (conn->private_data) {
            ev.len =
                conn->private_data_len < sizeof(ev.priv) ? conn->private_data_len : sizeof(ev.priv);
            memcpy(ev.priv, conn->private_data, ev.len);
        }
        rdma_ack_cm_event(from);
        cm_event(&ev);
    }
}
