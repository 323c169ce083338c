/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The area of a connection: the header that ib_conn.c, ib_tx.c, ib_write.c and ib_rx.c share.
 *
 * A receive buffer (ib_rx) and a message being received (ib_recv) are two objects. The buffer of a
 * PUT_REQ is posted again when PUT_ACK is queued, since PUT_DONE needs it (o2iblnd §3.6), while the
 * core goes on receiving the message. There are as many ib_recv as the peer has credits: each keeps
 * one credit spent until it ends.
 *
 * All belongs to the home reactor of the connection.
 */
#ifndef MILLRACE_IB_CONN_H
#define MILLRACE_IB_CONN_H

#include "lib/lnd_verbs/ib_internal.h"

#define IB_HEAD        128  /* bytes of a message of ours without payload; PUT_ACK: 4 fragments */
#define IB_HEADS       2    /* a PUT has its PUT_REQ and its PUT_DONE, which may overlap, §5.3 */
#define IB_BOUNCES     8    /* of a connection, IB_MSG_SIZE each */
#define IB_SGES        30   /* of a request, wanted: what most devices have */
#define IB_INLINE      128  /* bytes, wanted: all messages without payload */
#define IB_WRITE_BATCH 16   /* RDMA WRITEs of one transfer before one is signalled */
#define IB_WRITE_ROOM  64   /* send requests beyond those that messages take */
#define IB_POSTS       32   /* requests posted with one call */
#define IB_POST_SGES   512  /* of these */
#define IB_KEY_WRS     2    /* per receive: its window is bound and invalidated */
#define IB_ACK_FRAGS   256u /* of a PUT_ACK of ours: all peers take so many, §4.4 */

_Static_assert(IB_PUT_ACK_SIZE + LNET_MD_MAX_SEGS * IB_FRAG_SIZE <= IB_HEAD, "memory of an MD");
_Static_assert(IB_PUT_REQ_SIZE <= IB_HEAD && IB_IMMEDIATE_SIZE <= IB_HEAD, "no payload");

/* ---- what a completion is of ---- */

enum ib_wr_kind {
    IB_WR_RECV,       /* index: of the receive buffer */
    IB_WR_FIRST,      /* the message of a tx, a PUT's PUT_REQ; index: of the tx */
    IB_WR_LAST,       /* PUT_DONE */
    IB_WR_WRITE,      /* an RDMA WRITE that completes only when it fails */
    IB_WR_BATCH,      /* one that is signalled */
    IB_WR_BOUNCE,     /* one out of bounce memory, signalled; index: of that */
    IB_WR_BIND,       /* of a memory window, completes only when it fails; index: of the ib_recv */
    IB_WR_INVALIDATE, /* of that, signalled; index: of the ib_recv */
};

struct ib_wr {
    unsigned slot;       /* of the connection, in its shard */
    unsigned generation; /* of that, as far as it is kept */
    enum ib_wr_kind kind;
    unsigned wrs; /* requests that its completion gives back: it and unsignalled ones before it */
    unsigned index;
};

#define IB_WR_GENERATIONS 0xffffu

/* A connection of the shard's pool, in use or not. */
static inline struct ib_conn *ib_conn_at(const struct ib_shard *shard, unsigned slot)
{
    return (struct ib_conn *)shard->base.conns.objects + slot;
}

/* An identifier is a number, not a pointer: completions of a destroyed queue pair may still be
 * polled when its area has another use (rdma.h, shut()). */
static inline uint64_t ib_wr_id(const struct ib_conn *c, enum ib_wr_kind kind, unsigned wrs,
                                unsigned index)
{
    return (uint64_t)(c - ib_conn_at(c->shard, 0)) << 44 |
           (uint64_t)(c->generation & IB_WR_GENERATIONS) << 28 | (uint64_t)kind << 24 |
           (uint64_t)wrs << 16 | index;
}

static inline struct ib_wr ib_wr_of(uint64_t id)
{
    return (struct ib_wr){
        .slot = (unsigned)(id >> 44),
        .generation = (unsigned)(id >> 28) & IB_WR_GENERATIONS,
        .kind = (enum ib_wr_kind)(id >> 24 & 0xf),
        .wrs = (unsigned)(id >> 16) & 0xff,
        .index = (unsigned)id & 0xffff,
    };
}

/* ---- memory for payload that the device does not know ---- */

struct ib_bounce {
    struct ib_bounce *next; /* free */
    uint8_t *mem;           /* IB_MSG_SIZE */
    uint16_t index;
};

struct ib_bounce *ib_bounce_get(struct ib_conn *c); /* NULL: all are in use */
void ib_bounce_put(struct ib_conn *c, struct ib_bounce *b);

/* ---- receiving ---- */

struct ib_rx {
    TAILQ_ENTRY(ib_rx) link; /* early */
    uint8_t *buf;            /* IB_MSG_SIZE */
    uint32_t len;            /* received */
    uint16_t index;
    struct ibv_sge sge;
    struct ibv_recv_wr wr;
};

enum ib_recv_state {
    IB_RECV_FREE,
    IB_RECV_PARSED,    /* the core has the header and will call ops->recv() */
    IB_RECV_ACKED,     /* PUT_ACK is queued or sent: the peer writes until PUT_DONE. `rx` is none */
    IB_RECV_REVOKING,  /* PUT_DONE came in `buf`: ends when the peer's key is invalid */
    IB_RECV_ANSWERING, /* a PUT_NAK or GET_DONE will end it; GET: the device reads the payload */
};

struct ib_recv {
    struct lnet_rx rx;
    struct ib_conn *conn;
    struct ib_recv *next; /* free, or in conn->revokes */
    struct ib_rx *buf;    /* what it or its PUT_DONE came in; NULL: posted again */
    enum ib_recv_state state;
    uint16_t index;
    uint8_t type;
    bool told; /* ACKED: PUT_ACK has been posted */
    uint32_t mlen;
    uint32_t carried;
    const uint8_t *payload;    /* IMMEDIATE */
    uint64_t cookie;           /* the peer's */
    uint64_t own_cookie;       /* ACKED: what PUT_DONE brings */
    uint64_t deadline_us;      /* ACKED, REVOKING */
    struct ib_rd rd;           /* GET_REQ: where to */
    struct lnet_result result; /* REVOKING, ANSWERING: what the core is told */
    /* ---- ACKED, REVOKING: ib_key.c */
    uint32_t rkey;                /* the peer's */
    struct ibv_mw *window;        /* NULL: none */
    struct ibv_mw_bind_info bind; /* of the window */
    struct ibv_mr *part;          /* registered for this transfer; NULL: none */
    bool unbound;                 /* ACKED: the device could not bind the window */
};

/* ---- sending ---- */

/* Payload on its way to the fragments of a descriptor. */
struct ib_writer {
    struct ib_rd rd;
    uint32_t frag;     /* the next one */
    struct ib_frag to; /* what is left of the one before */
    const struct mem_seg *segs;
    uint32_t nsegs, seg, off; /* what is next */
    uint32_t left;            /* bytes */
    uint32_t quiet;           /* WRITEs since one was signalled */
    struct ib_rx *rx;         /* the descriptor is in it; NULL: not needed any more */
};

struct ib_tx {
    TAILQ_ENTRY(ib_tx) link; /* free_txs, answers or active_txs */
    uint8_t *head;           /* IB_HEADS of IB_HEAD bytes */
    uint16_t index;
    bool used;
    /* ---- poisoned from here on while it is free */
    uint8_t type;    /* of the message queued or posted last */
    uint8_t sending; /* SENDs the device has */
    bool queued;     /* in answers */
    bool waiting;    /* PUT_REQ: for the answer */
    bool writing;    /* WRITEs are or may be with the device and PUT_DONE is not */
    uint8_t returned;
    struct lnet_msg *msg;      /* IMMEDIATE, PUT_REQ, PUT_DONE: the core's */
    struct ib_recv *recv;      /* answers: to what, until it is posted; GET_DONE: sent */
    struct ib_bounce *bounce;  /* the message is in it, not in head */
    struct lnet_result result; /* of msg; reason NONE until it failed */
    struct lnet_result own;    /* what that was when the connection began to be closed */
    uint64_t cookie;           /* PUT_REQ: ours */
    uint64_t peer_cookie;      /* of answers and PUT_DONE */
    int32_t status;            /* of completions */
    uint32_t len;              /* bytes of the message encoded already, 0: not yet */
    uint64_t deadline_us;
    struct ib_writer w; /* PUT_DONE, GET_DONE */
};

static inline const struct rdma_key *ib_key(const struct ib_conn *c, uint16_t region)
{
    const struct rdma_key *key;

    if (region >= MEM_REGION_MAX)
        return NULL;
    key = &c->link.port->keys[region];
    return __atomic_load_n(&key->valid, __ATOMIC_ACQUIRE) ? key : NULL;
}

static inline struct verbs_counters *ib_counters(const struct ib_conn *c)
{
    return &ib_ns(c->ibp)->count;
}

/* ---- ib_conn.c ---- */

/* Lets the driver's poller continue the work of a connection: it sends, or ends it. So one call
 * gives the device all requests of one iteration of the reactor. The caller is doing work, so the
 * reactor does not sleep before. */
void ib_conn_soon(struct ib_conn *c);
extern const struct lnd_close ib_cause_broken; /* closed for something else than time, §6.3 */

/* ---- ib_tx.c ---- */

void ib_tx_layout(struct ib_conn *c, struct ib_tx *txs, unsigned n, uint8_t *heads);
/* Sends what may be sent, receives first. State UP. */
void ib_tx_run(struct ib_conn *c);
/* Returns the header of a message of this connection. */
struct ib_hdr ib_tx_hdr(const struct ib_conn *c, unsigned type, uint8_t credits);
/* An answer to recv, to be filled in and queued. Never fails: there are as many as receives, in
 * addition to those posted. */
struct ib_tx *ib_tx_answer(struct ib_conn *c, unsigned type, struct ib_recv *recv);
void ib_tx_queue_answer(struct ib_conn *c, struct ib_tx *tx);
/* PUT_ACK and PUT_NAK have come. NONE, or what is wrong with them. *keep: the descriptor in rx is
 * still needed, and the tx posts it again. */
enum lnet_drop ib_tx_put_acked(struct ib_conn *c, const struct ib_msg *m, struct ib_rx *rx,
                               bool *keep);
enum lnet_drop ib_tx_put_refused(struct ib_conn *c, const struct ib_msg *m);
/* A completion of a send. */
void ib_tx_done(struct ib_conn *c, const struct ib_wr *wr, bool good);
/* Whether something was queued, posted or waited for too long. hdr: of that. */
bool ib_tx_expired(const struct ib_conn *c, uint64_t now, const struct lnet_hdr **hdr);
/* It is being closed: what was never posted ends now, what was is marked with its result. */
void ib_tx_abort(struct ib_conn *c);
/* Nothing is with the device any more: all end. */
void ib_tx_finalize(struct ib_conn *c);

/* ---- ib_write.c ---- */

enum ib_gather {
    IB_GATHER_DONE,
    IB_GATHER_BOUNCE, /* has to be copied */
};
/* Adds the payload of a SEND to a gather list of max entries; *n are used. inlined: keys are not
 * needed. */
enum ib_gather ib_gather(struct ib_conn *c, const struct lnet_sgl *payload, bool inlined,
                         struct ibv_sge *sge, unsigned max, unsigned *n);
/* The one function that copies payload out; to the memory of a bounce. */
void ib_copy_out(struct ib_conn *c, uint8_t *to, const struct mem_seg *segs, uint32_t nsegs,
                 uint32_t off, uint32_t bytes);
/* Begins to write `bytes` of segs (the first of them) to rd, of which rd->total is at least that.
 * rx: where rd lies. Returns whether it is needed until the last WRITE is made. */
bool ib_writer_init(struct ib_writer *w, const struct ib_rd *rd, const struct mem_seg *segs,
                    uint32_t nsegs, uint32_t bytes, struct ib_rx *rx);
/* The next WRITE, with at most max entries (1 at least). *bounce: set when its payload was copied
 * there. False: there is no bounce memory now. */
bool ib_writer_next(struct ib_conn *c, struct ib_writer *w, struct ibv_send_wr *wr,
                    struct ibv_sge *sge, unsigned max, struct ib_bounce **bounce);

/* ---- ib_key.c ---- */

/* Returns a remote key for n fragments in memory of that key, all of one region; 0: the device gave
 * none. */
uint32_t ib_key_begin(struct ib_recv *r, const struct rdma_key *key, const struct ib_frag *frags,
                      uint32_t n);
/* Makes the request that is to be posted right before PUT_ACK. Returns the number of requests: 0 if
 * there is nothing to bind. */
unsigned ib_key_bind(struct ib_recv *r, struct ibv_send_wr *wr);
void ib_key_bound(struct ib_recv *r); /* that request and PUT_ACK were posted */
/* The peer has written, PUT_DONE is here. Returns whether the key is invalid now. If not, r is in
 * c->revokes, or c is being closed and ib_rx_finalize() completes r. */
bool ib_key_end(struct ib_recv *r);
/* Takes the oldest of c->revokes, of which there is one, and makes its request. */
void ib_key_invalidate(struct ib_conn *c, struct ibv_send_wr *wr);
/* Handles a completion of IB_WR_BIND or IB_WR_INVALIDATE. */
void ib_key_done(struct ib_conn *c, const struct ib_wr *wr, enum ibv_wc_status status);
/* Gives back what r has. Its queue pair is destroyed, or PUT_ACK was not sent. */
void ib_key_finalize(struct ib_recv *r);

/* ---- ib_rx.c ---- */

void ib_rx_layout(struct ib_conn *c, struct ib_rx *rxs, unsigned n, uint8_t *bufs,
                  struct ib_recv *recvs, unsigned nrecvs);
/* The buffer of a message is to be posted again, before anything is sent; tells the credits.
 * type IB_NOOP: without any. */
void ib_rx_repost(struct ib_conn *c, struct ib_rx *rx, unsigned type, bool acked);
int ib_rx_post(struct ib_conn *c); /* posts them. 0 or -errno */
/* A completion of a receive. */
void ib_rx_done(struct ib_conn *c, unsigned index, bool good, uint32_t len);
/* It is up, or will never be: takes what came before, or drops it by name. */
void ib_rx_early(struct ib_conn *c);
/* The answer to a message has been posted (PUT_NAK) or sent (GET_DONE). */
void ib_recv_end(struct ib_recv *r, struct lnet_result result);
bool ib_recv_expired(const struct ib_conn *c, uint64_t now, const struct lnet_hdr **hdr);
/* Asks for those back that wait in the core; c->parsed are left. */
void ib_rx_cancel(struct ib_conn *c);
void ib_rx_finalize(struct ib_conn *c);

#endif
