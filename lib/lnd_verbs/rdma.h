/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between o2iblnd and RDMA devices with their connection manager: a table of
 * functions. provider/rdma_core.c implements it over rdma-core; tests bring scripted ones. o2iblnd
 * itself calls no function of libibverbs or librdmacm. It uses their structures for work requests
 * and completions.
 *
 * Threads. The provider's worker does all that may take long: address resolution, making and
 * destroying queue pairs, registering memory, the connection manager. A link belongs to one
 * reactor, its home. Functions on a link are called there and return at once. link->event() reports
 * the outcome there, never from inside one of these calls. Functions marked "control" are called on
 * the control thread and may block.
 *
 * Memory that a posted work request names, or a descriptor that the peer has, belongs to the device
 * until its completion was polled or the link got RDMA_EV_CLOSED.
 */
#ifndef MILLRACE_RDMA_H
#define MILLRACE_RDMA_H

#include "lib/base/err.h"
#include "lib/reactor/mem.h"
#include "lib/reactor/reactor.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>

/* Entries of a completion queue, if the device can, and unless one queue pair needs more. */
#define RDMA_CQ_ENTRIES 16384u
#define RDMA_PRIV_MAX   196 /* private data of any event, o2iblnd §1.2 */

struct rdma;         /* a provider that was opened: its worker, its devices */
struct rdma_request; /* somebody calls */
struct rdma_link;

/* How a peer gets a remote key for the memory of one transfer. */
enum rdma_keys {
    RDMA_KEYS_AUTO,    /* windows where the device has them, else shared */
    RDMA_KEYS_WINDOWS, /* a memory window of type 2, bound for the transfer on the queue pair */
    RDMA_KEYS_REGISTRATIONS, /* the memory of the transfer is registered once more for its time */
    RDMA_KEYS_SHARED,        /* the key of the whole memory region, for all peers and transfers */
};

/* Keys of one memory region on one device. */
struct rdma_key {
    uint32_t lkey;
    uint32_t rkey;     /* RDMA_KEYS_SHARED and landing, else 0 */
    struct ibv_mr *mr; /* RDMA_KEYS_WINDOWS and landing: windows are bound to it; else NULL */
    bool landing;      /* MEM_LANDING: peers may get remote keys for parts of it */
    bool valid;
};

/* Properties of a device and its port. They do not change, except for `state`,
 * `gid`, `mtu` (read relaxed, or by info()), and what is the port's where the address moves to
 * another port of the device (by info() only). */
struct rdma_info {
    char device[64];     /* "mlx5_0" */
    char transport[16];  /* "InfiniBand", "iWARP" */
    char link_layer[16]; /* "InfiniBand", "Ethernet" */
    char firmware[64];
    uint32_t vendor, part;
    uint8_t port;
    enum ibv_port_state state;
    uint16_t lid;
    uint16_t pkey; /* the one in use */
    union ibv_gid gid;
    unsigned gid_index;
    unsigned mtu;   /* bytes, of the port now */
    unsigned speed; /* Mbit/s, 0 = unknown */
    uint32_t max_qp_wr, max_sge, max_cqe, max_qp, max_mr;
    uint64_t max_mr_size;
    enum rdma_keys remote_keys; /* in use, never RDMA_KEYS_AUTO */
};

/* Events of a port, on port->home. */
enum rdma_port_event {
    RDMA_PORT_UP,
    RDMA_PORT_DOWN,    /* link down, or its address is gone */
    RDMA_PORT_CHANGED, /* GID, LID or P_Key table; links are told on their own */
    RDMA_PORT_REMOVED, /* the device is gone or failed for good: no link works any more */
};

/* A local address and the device port it is on. Made by bind(); the first part is the caller's. The
 * first port of a device decides on remote_keys for all ports of that device. */
struct rdma_port {
    void (*event)(struct rdma_port *port, enum rdma_port_event event);
    struct reactor *home; /* where event() is called */
    void *user;
    enum rdma_keys remote_keys; /* wanted */
    /* ---- the provider's, read by all */
    struct rdma *rdma;
    struct sockaddr_in addr;
    struct rdma_info info;
    /* By region index. A row becomes valid (release) once the region is registered and stays so. */
    const struct rdma_key *keys;
    void *impl;
};

/* Completions of the links of one reactor on one device. */
struct rdma_cq {
    struct rdma *rdma;
    int fd; /* readable after arm() once a completion has come */
    void *impl;
};

/* ---- connections ---- */

struct rdma_dial {
    struct sockaddr_in to; /* address and service */
    bool privileged;       /* a source port below 1024 if there is one free, §1.1 */
    int tos;               /* -1: none, else the type of service of RoCE */
    unsigned timeout_ms;   /* of address and of route resolution, each */
};

/* A queue pair. Reliable connection, no shared receive queue, signalled as each request says. */
struct rdma_open {
    uint32_t recv_wrs;     /* receives posted at most, one SGE each */
    uint32_t send_wrs;     /* requests posted at most */
    uint32_t send_sges;    /* per request, wanted */
    uint32_t inline_bytes; /* wanted */
    uint32_t windows;      /* memory windows of type 2; 0 unless RDMA_KEYS_WINDOWS is in use */
    size_t area; /* bytes of memory for the owner's use, registered for local access, zeroed */
};

enum rdma_event_kind {
    RDMA_EV_RESOLVED,    /* dial(): now open() */
    RDMA_EV_OPENED,      /* open(): fields of the link are set; now receives may be posted */
    RDMA_EV_OPEN_FAILED, /* open(): error; it may be tried with less (-ENOMEM, -EINVAL) */
    RDMA_EV_ESTABLISHED, /* connect(), accept(). priv: what the other side accepted with (padded) */
    RDMA_EV_REJECTED,    /* connect(): status of the CM's event, priv. accept(): the caller took it
                            back */
    RDMA_EV_FAILED,      /* dial(), connect(), accept(): error. -EHOSTUNREACH: address;
                            -ENETUNREACH: route; -ENETDOWN: unreachable; -ENOTCONN: other. status */
    RDMA_EV_DISCONNECTED, /* the other side ended it: error 0; or the device failed or is gone:
                             -errno, then also of a link that waits for nothing yet */
    RDMA_EV_CLOSED,       /* close(): nothing of it is with a device any more; the last event */
};

struct rdma_event {
    enum rdma_event_kind kind;
    int error; /* -errno, or 0 */
    /* REJECTED: as the CM gives it (28, 10, 8 …, or -ECONNREFUSED on iWARP). FAILED: what the CM or
     * the system said about it, -errno, or 0 */
    int status;
    const void *priv; /* valid during the call */
    size_t priv_len;
};

/* The provider's part of a link: tasks between home and worker, embedded so that none is allocated.
 * A task, with the fields that belong to it, is owned by one side at a time. */
struct rdma_mail {
    struct reactor_task begin, make, join, leave, end; /* to the worker */
    struct reactor_task reply, down, closed;           /* to the home */
    enum rdma_event_kind kind;                         /* of reply */
    int error, down_error;
    struct rdma_request *req;
    struct rdma_dial dial;
    struct rdma_open open;
    unsigned retry, rnr_retry;
    uint32_t priv_len;
    uint8_t priv[RDMA_PRIV_MAX];
    bool left, ended; /* home's: disconnect(), shut() was called */
};

/* Embedded in the owner's connection. The owner fills the first part and zeroes the rest before
 * dial() or adopt(). */
struct rdma_link {
    void (*event)(struct rdma_link *link, const struct rdma_event *ev);
    struct rdma_port *port;
    struct reactor *home;
    /* ---- set with RDMA_EV_OPENED; the area is the owner's until event() returns from
     * RDMA_EV_CLOSED */
    struct rdma_cq *cq;
    uint8_t *area;
    uint32_t area_lkey;
    uint32_t send_wrs;     /* granted, at least what was asked for */
    uint32_t send_sges;    /* granted: what was asked for or less, at least 1 */
    uint32_t inline_bytes; /* granted: may be more or less, also 0 */
    /* As many as were asked for, unbound, as long as the area. The owner binds and invalidates them
     * by send requests and keeps the rkey of each up to date. */
    struct ibv_mw **windows;
    /* ---- the provider's */
    void *impl;
    struct ibv_qp *qp;
    struct rdma_mail mail;
};

/* A call as it came. Until reject() or adopt() it is the receiver's to answer, exactly once. */
struct rdma_request {
    struct rdma_port *port;  /* it came in by */
    struct sockaddr_in from; /* address and port, as the caller's connection manager wrote them */
    bool roce;               /* its GID is known and should be that of its address */
    union ibv_gid gid;       /* where the queue pair will send to */
    size_t priv_len;
    uint8_t priv[RDMA_PRIV_MAX]; /* padded */
    void *impl;
    /* ---- the receiver's; zero when it comes */
    struct rdma_request *next;
    uint64_t held_us;
    uint64_t caller; /* NID that waits for a connection of the pool; 0: it does not */
};

struct rdma_listener {
    /* Which reactor is to decide; on the worker thread, so it must look at nothing that changes. */
    struct reactor *(*route)(void *arg, const void *priv, size_t len);
    /* Somebody calls; on that reactor. */
    void (*request)(void *arg, struct rdma_request *req);
    /* After unlisten(), once on each reactor: no request() will come there any more. */
    void (*unlistened)(void *arg);
    void *arg;
    /* The private data of a refusal when too many connection requests wait for an answer. Valid as
     * long as this lives. */
    const void *busy;
    size_t busy_len;
};

/* ---- memory of the provider, as a user of it sees it */

struct rdma_counters {       /* relaxed; of the whole provider */
    uint64_t areas;          /* bytes of areas in use */
    uint64_t areas_reserved; /* bytes that areas were carved from */
    uint64_t registered;     /* bytes registered, over all devices */
    uint64_t kept;           /* links that were shut and whose device does not let go of them */
    uint64_t turned_away;    /* calls, because too many waited to be decided on */
    uint64_t worker_jobs, worker_busy_us, worker_longest_us;
};

struct rdma_ops {
    const char *name;

    /* control. Starts the worker. 0 or -errno with a sentence. */
    int (*open)(struct reactor_env *env, struct rdma **out, struct err *err);
    /* control; all ports were unbound, reactors were stopped (and drained, if they are to be). */
    void (*close)(struct rdma *rdma);
    void (*counters)(struct rdma *rdma, struct rdma_counters *out); /* any thread */

    /* control. Finds the device of port->addr, opens it if this is its first port, and registers
     * all memory regions. -ENODEV: the host has no RDMA device at all, or none with that address;
     * err says which and the remedy. */
    int (*bind)(struct rdma *rdma, struct rdma_port *port, const struct sockaddr_in *addr,
                struct err *err);
    /* control; no link of it is left and it does not listen. */
    void (*unbind)(struct rdma_port *port);
    /* control. Queries the port. */
    void (*info)(struct rdma_port *port, struct rdma_info *out);
    /* control. Takes calls for port->addr and this service. */
    int (*listen)(struct rdma_port *port, uint16_t service, const struct rdma_listener *l,
                  struct err *err);
    void (*unlisten)(struct rdma_port *port); /* control; answered by l->unlistened() */

    /* Any reactor that received it: the call is refused. */
    void (*reject)(struct rdma_request *req, const void *priv, size_t len);
    /* The call becomes this link; req is gone. Then open(). */
    void (*adopt)(struct rdma_link *link, struct rdma_request *req);
    void (*dial)(struct rdma_link *link, const struct rdma_dial *dial);
    void (*open_qp)(struct rdma_link *link, const struct rdma_open *open);
    void (*connect)(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                    unsigned rnr_retry);
    void (*accept)(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                   unsigned rnr_retry);
    /* A call that was adopted and not accepted is refused after all, with these words; shut()
     * follows. */
    void (*refuse)(struct rdma_link *link, const void *priv, size_t len);
    /* Ends the connection (a DREQ if it is up) and puts the queue pair into its error state: all
     * that is posted completes. Requests without an answer may stay without one, and no event
     * reports this end. Harmless in any state after dial() or adopt(), and twice. */
    void (*disconnect)(struct rdma_link *link);
    /* Destroys the link in any state (a connection request without an answer is refused without
     * private data): RDMA_EV_CLOSED follows, other events do not. It waits for the device to let go
     * of the queue pair or to be gone, however long that takes. Completions may still be polled
     * until poll() of cq has returned less than asked for once after that event, or as many as fit
     * into cq. The provider takes the area back then. After the last link of a cq there
     * need be no poll: what is left is thrown away when event() returns. */
    void (*shut)(struct rdma_link *link);

    /* ---- data path: home of the link, or the reactor of the cq; as ibv_post_recv() etc. */
    int (*post_recv)(struct rdma_link *link, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
    int (*post_send)(struct rdma_link *link, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    int (*poll)(struct rdma_cq *cq, struct ibv_wc *wc, int n);
    /* The next completion makes cq->fd readable; those there are already do not: poll once more. */
    int (*arm)(struct rdma_cq *cq);
    void (*disarm)(struct rdma_cq *cq); /* cq->fd was readable: takes what made it so */
    /* RDMA_KEYS_REGISTRATIONS: registers landing memory for remote writes, on the protection domain
     * of the link. The call blocks the reactor as long as the device takes. NULL: errno. */
    struct ibv_mr *(*register_part)(struct rdma_link *link, void *addr, size_t len);
    /* After this returned no peer can write by that key. Home of the link, up to RDMA_EV_CLOSED. */
    void (*release_part)(struct rdma_link *link, struct ibv_mr *mr);
    /* A region without a key on this port's device: registers it, in time. */
    void (*want_region)(struct rdma_port *port, uint16_t region);
};

extern const struct rdma_ops rdma_core; /* over rdma-core */

#endif
