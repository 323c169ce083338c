/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The structs and functions that the files of the provider over rdma-core share.
 *
 * The worker (lib/reactor/worker.h) owns all of this. Reactors and the worker exchange tasks; the
 * control thread hands over a function and waits until it has run.
 */
#ifndef MILLRACE_RDMA_CORE_INTERNAL_H
#define MILLRACE_RDMA_CORE_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/lnd_verbs/rdma.h"
#include "lib/reactor/worker.h"

#include <rdma/rdma_cma.h>
#include <sys/queue.h>

/* Between attempts to destroy queue pairs that a device does not let go of. */
#define RCORE_KEPT_AGAIN_MS 100u
/* Between queries of all ports, should an event have been lost. */
#define RCORE_LOOK_MS 60000u

struct rcore_call;
struct rcore_device;
struct rcore_link;

/* The kind of the object that a cm_id belongs to: the first member of its context. */
enum rcore_kind {
    RCORE_PORT,     /* keeps an address bound: is told when the device goes */
    RCORE_LISTENER, /* struct rcore_listener */
    RCORE_CALLER,   /* struct rcore_caller */
    RCORE_LINK,     /* struct rcore_link */
};

struct rcore_owner {
    enum rcore_kind kind;
};

/* ---- devices ---- */

struct rcore_want { /* a region that was used and has no key yet */
    struct reactor_task task;
    struct rcore_device *dev;
    bool asked;         /* any reactor sets, the worker clears */
    uint64_t not_until; /* us; it failed */
};

/* A completion queue of one reactor. */
struct rcore_cq {
    struct rdma_cq pub;
    struct ibv_cq *cq;
    struct ibv_comp_channel *channel;
    uint32_t size, taken; /* entries; those that queue pairs may fill */
    bool dead;
    /* ---- home's */
    /* Links that are closed, whose completions may still be in it, the first one first. */
    STAILQ_HEAD(, rcore_link) leaving;
    uint64_t polled; /* completions while there were any */
    uint32_t live;   /* links that are not closed */
    /* ---- */
    struct rcore_cq *next;
};

/* Memory for areas of one size. */
struct rcore_slab {
    LIST_ENTRY(rcore_slab) link;
    uint8_t *base;
    size_t len, each;
    struct ibv_mr *mr;
    uint32_t n, nfree;
    uint32_t free[];
};

struct rcore_device {
    struct reactor_fd watch;
    struct rdma *rdma;
    struct ibv_context *ctx;
    struct ibv_context **held; /* what keeps it */
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    bool dead;
    uint32_t inline_max;        /* no queue pair was given more */
    enum rdma_keys remote_keys; /* never AUTO once it is open */
    struct rdma_key keys[MEM_REGION_MAX];
    struct ibv_mr *mrs[MEM_REGION_MAX];
    struct rcore_want wants[MEM_REGION_MAX];
    struct rcore_cq *cqs[REACTOR_MAX + 1]; /* by index of the home */
    LIST_HEAD(, rcore_slab) slabs;
    LIST_HEAD(, rcore_port) ports;
    LIST_ENTRY(rcore_device) link;
};

/* Bits of what a port has to tell. */
#define RCORE_PORT_STATE   1u
#define RCORE_PORT_CHANGED 2u
#define RCORE_PORT_REMOVED 4u

struct rcore_port {
    struct rcore_owner owner; /* RCORE_PORT */
    struct rdma *rdma;
    struct rdma_port *pub;
    struct rcore_device *dev;
    struct rdma_cm_id *id; /* NULL: the device is gone */
    union ibv_gid gid;     /* where the connection manager has the address */
    struct rcore_listener *listener;
    uint32_t bits; /* to be told; the task is under way while not 0 */
    bool up;       /* as last told */
    bool unbound;
    struct reactor_task task;
    LIST_ENTRY(rcore_port) link;
};

/* Lives until every reactor has been told that it listens no more. */
struct rcore_listener {
    struct rcore_owner owner; /* RCORE_LISTENER */
    struct rcore_port *port;
    struct rdma_port *pub;
    struct rdma_cm_id *id;
    struct rdma_listener to;
    uint32_t untold; /* after unlisten(): reactors that do not know yet */
    LIST_ENTRY(rcore_listener) link;
    struct rcore_untold {
        struct reactor_task task;
        struct rcore_listener *listener;
    } reactors[];
};

/* ---- connections ---- */

struct rcore_caller {
    struct rcore_owner owner; /* RCORE_CALLER */
    struct rdma *rdma;
    struct rcore_listener *listener; /* as long as it has not arrived */
    struct rdma_cm_id *id;
    struct rdma_request req;
    struct reactor_task task; /* to the reactor, then back */
    bool gone;                /* it gave up, or the device is gone */
    LIST_ENTRY(rcore_caller) link;
};

enum rcore_state {
    RCORE_ADDRESS, /* being resolved */
    RCORE_ROUTE,   /* likewise */
    RCORE_READY,   /* resolved, or called: a queue pair may be made */
    RCORE_OPEN,    /* has one */
    RCORE_JOINING, /* connect() or accept() */
    RCORE_UP,
    RCORE_ENDED, /* disconnected, refused or failed */
    RCORE_KEPT,  /* shut, but the device does not let go of the queue pair */
    RCORE_SHUT,  /* its area and room in a queue are still in use */
};

struct rcore_link {
    struct rcore_owner owner; /* RCORE_LINK */
    enum rcore_state state;
    bool called;  /* not us */
    bool replies; /* a reply is owed */
    bool told;    /* RDMA_EV_DISCONNECTED was */
    bool left;    /* disconnected or shut by its owner */
    struct rdma *rdma;
    struct rdma_link *pub;
    struct rcore_device *dev; /* from RCORE_READY on */
    struct rdma_cm_id *id;
    /* ---- what open() made; read by the home when it is told */
    struct rcore_cq *cq;
    uint32_t cq_entries;
    struct rcore_slab *slab;
    uint8_t *area;
    uint32_t area_lkey;
    uint32_t send_wrs, send_sges, inline_bytes;
    struct ibv_mw **windows;
    uint32_t nwindows;
    /* ---- of a reply; read by the home */
    int status;
    size_t priv_len;
    uint8_t priv[RDMA_PRIV_MAX];
    /* ---- */
    struct reactor_task gone; /* from the home: nothing of it is in the completion queue any more */
    STAILQ_ENTRY(rcore_link) leaving;
    uint64_t left_at; /* cq->polled then */
    LIST_ENTRY(rcore_link) link;
};

struct rdma {
    struct reactor_env *env;
    struct reactor *worker;
    struct rdma_event_channel *channel;
    struct reactor_fd cm;          /* events of the channel */
    struct reactor_fd host;        /* netlink: interfaces and addresses change */
    struct reactor_poller sweep;   /* rcore_devices_sweep() */
    struct reactor_timer look;     /* all ports are queried next */
    struct reactor_timer try_kept; /* queue pairs of RCORE_KEPT are destroyed next */
    struct mem_watch mem;
    LIST_HEAD(, rcore_device) devices;
    LIST_HEAD(, rcore_caller) callers;
    unsigned ncallers;
    LIST_HEAD(, rcore_link) links;
    unsigned looks;                        /* queries still due after a change of the host */
    LIST_HEAD(, rcore_listener) listeners; /* that have ended */
    LIST_HEAD(, rcore_port) ports; /* that were unbound: a task of theirs may be under way */
    struct rdma_counters count;    /* relaxed; the worker's */
};

/* ---- rdma_core.c ---- */

/* Runs fn(task) on a reactor. Reactors and the worker. */
void rcore_post(struct reactor *to, struct reactor_task *task, reactor_task_fn fn);
/* Throws away what is in a queue all links of which are closed; home. */
void rcore_cq_empty(struct rcore_cq *c);
uint64_t rcore_now_us(void); /* monotonic; any thread */

/* ---- rdma_core_area.c; the worker ---- */

/* An area of at least that many bytes, zeroed. 0 or -errno. */
int rcore_area_get(struct rcore_device *dev, size_t bytes, struct rcore_slab **slab,
                   uint8_t **area);
void rcore_area_put(struct rcore_device *dev, struct rcore_slab *slab, uint8_t *area);
void rcore_areas_free(struct rcore_device *dev);

/* ---- rdma_core_device.c; the worker, if not said otherwise ---- */

/* A sentence on why there is no device, or none of an address. Any thread. */
void rcore_say_no_device(const struct sockaddr_in *addr, int error, struct err *err);
struct rcore_device *rcore_device_of(struct rdma *rdma, struct ibv_context *ctx);
/* The same, opened if need be, with all regions of memory registered. 0 or -errno with a sentence.
 */
int rcore_device_get(struct rdma *rdma, struct ibv_context *ctx, enum rdma_keys remote_keys,
                     struct rcore_device **out, struct err *err);
/* The device is gone or failed for good: all on it are told. */
void rcore_device_dead(struct rcore_device *dev);
void rcore_device_free(struct rcore_device *dev);
/* Closes removed devices that have no port and no link. Not from a handler of their events. */
void rcore_devices_sweep(struct rdma *rdma);
/* A region is gone: no device has a key for it any more. */
int rcore_forget_region(struct rdma *rdma, const struct rcore_call *call);
void rcore_want_region(struct reactor_task *task);
/* A completion queue of that reactor with room. 0 or -errno. */
int rcore_cq_get(struct rcore_device *dev, const struct reactor *home, uint32_t entries,
                 struct rcore_cq **out);
void rcore_id_drop(struct rdma_cm_id **id); /* may be NULL, is then */
void rcore_fd_nonblock(int fd);

/* ---- rdma_core_port.c; the worker ---- */

/* A call of the control thread, with the arguments that its function uses. */
struct rcore_call {
    struct reactor_task task;
    int (*fn)(struct rdma *rdma, const struct rcore_call *call);
    int rc;
    struct rdma *rdma;
    struct rdma_port *port;
    const struct sockaddr_in *addr;
    uint16_t service, region;
    const struct rdma_listener *listener;
    struct rdma_info *info;
    struct err *err;
};

int rcore_bind(struct rdma *rdma, const struct rcore_call *call);
int rcore_unbind(struct rdma *rdma, const struct rcore_call *call);
int rcore_info(struct rdma *rdma, const struct rcore_call *call);
int rcore_listen(struct rdma *rdma, const struct rcore_call *call);
int rcore_unlisten(struct rdma *rdma, const struct rcore_call *call);
void rcore_listeners_sweep(struct rdma *rdma, bool all);
/* Queries a port and reports a change to its home. */
void rcore_port_look(struct rcore_port *port, uint32_t bits);
/* Watches the host's interfaces and addresses: after a change rcore_look_again() runs. 0 or -errno.
 */
int rcore_host_watch(struct rdma *rdma);
/* Queries all ports: after a change of the host, again when the device has followed
 * it, and every RCORE_LOOK_MS. */
void rcore_look_again(struct reactor_timer *look);

/* ---- rdma_core_link.c ---- */

/* Requests of the home, run by the worker. The task is one of the link's, or of the caller's. */
void rcore_link_dial(struct reactor_task *task);
void rcore_link_adopt(struct reactor_task *task);
void rcore_link_open(struct reactor_task *task);
void rcore_link_connect(struct reactor_task *task);
void rcore_link_accept(struct reactor_task *task);
void rcore_link_refuse(struct reactor_task *task);
void rcore_link_disconnect(struct reactor_task *task);
void rcore_link_shut(struct reactor_task *task);
void rcore_link_gone(struct reactor_task *task);
void rcore_caller_reject(struct reactor_task *task);
/* The device under it failed, or is gone. */
void rcore_link_lost(struct rcore_link *l, int error);
void rcore_link_free(struct rcore_link *l);
/* Tries once more to destroy the queue pairs that devices did not let go of. */
void rcore_kept_again(struct reactor_timer *try_kept);
void rcore_caller_free(struct rcore_caller *c);
/* All events of the connection manager there are. */
void rcore_cm_events(struct reactor_fd *cm, uint32_t events);

#endif
