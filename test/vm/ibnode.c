/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the scripted o2iblnd node of test/vm/ibpersona.py needs of RDMA, flat enough for ctypes:
 * connection manager ids with their events, one queue pair and one completion queue per id, memory,
 * work requests. It knows nothing of o2iblnd and shares nothing with lib/. Python's own bindings
 * tell neither the status of an event nor from which port a call comes, and end private data at its
 * first zero byte.
 *
 * One thread. Nothing here waits: events and completions are read when their descriptor is
 * readable. Functions return 0 or -errno unless something else is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#define PRIV_MAX 256
#define SGES     4

struct ibn_id {
    struct rdma_cm_id *cm;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
};

struct ibn_event {
    struct ibn_id *id;     /* NULL: of one that was destroyed */
    struct ibn_id *listen; /* RDMA_CM_EVENT_CONNECT_REQUEST: the one called; id is new */
    int32_t type, status;
    uint32_t from; /* host order */
    uint32_t port;
    uint32_t priv_len;
    uint8_t priv[PRIV_MAX];
};

struct ibn_send {
    uint64_t wr_id, remote;
    uint32_t rkey;
    uint32_t write; /* 1: RDMA WRITE, 0: SEND */
    uint32_t signalled;
    uint32_t nsges;
    struct {
        uint64_t addr;
        uint32_t len, lkey;
    } sge[SGES];
};

struct ibn_wc {
    uint64_t wr_id;
    int32_t status, opcode;
    uint32_t len, pad;
};

struct rdma_event_channel *ibn_open(void);
void ibn_close(struct rdma_event_channel *channel);
int ibn_fd(const struct rdma_event_channel *channel);
struct ibn_id *ibn_new(struct rdma_event_channel *channel, uint32_t address, uint32_t port,
                       int *error);
int ibn_listen(struct ibn_id *id);
int ibn_resolve(struct ibn_id *id, uint32_t address, uint32_t port, int timeout_ms);
int ibn_resolve_route(struct ibn_id *id, int timeout_ms);
int ibn_event(struct rdma_event_channel *channel, struct ibn_event *out);
struct ibv_pd *ibn_pd(struct ibn_id *id);
struct ibv_mr *ibn_reg(struct ibv_pd *pd, void *addr, size_t len, uint32_t *lkey, uint32_t *rkey);
int ibn_dereg(struct ibv_mr *mr);
int ibn_dealloc(struct ibv_pd *pd);
int ibn_qp(struct ibn_id *id, struct ibv_pd *pd, uint32_t recvs, uint32_t sends, uint32_t sges);
int ibn_cq_fd(const struct ibn_id *id);
uint32_t ibn_qpn(const struct ibn_id *id);
int ibn_connect(struct ibn_id *id, const void *priv, uint32_t len, uint32_t qpn);
int ibn_accept(struct ibn_id *id, const void *priv, uint32_t len);
int ibn_reject(struct ibn_id *id, const void *priv, uint32_t len);
int ibn_disconnect(struct ibn_id *id);
int ibn_break(struct ibn_id *id);
void ibn_destroy(struct ibn_id *id);
int ibn_recv(struct ibn_id *id, uint64_t wr_id, uint64_t addr, uint32_t len, uint32_t lkey);
int ibn_send(struct ibn_id *id, const struct ibn_send *chain, uint32_t n);
int ibn_poll(struct ibn_id *id, struct ibn_wc *out, int n);
int ibn_rearm(struct ibn_id *id);

/* ---------------------------------------------------------------- ids and their events */

static int unblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

struct rdma_event_channel *ibn_open(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();

    if (channel && unblock(channel->fd)) {
        rdma_destroy_event_channel(channel);
        return NULL;
    }
    return channel;
}

void ibn_close(struct rdma_event_channel *channel)
{
    rdma_destroy_event_channel(channel);
}

int ibn_fd(const struct rdma_event_channel *channel)
{
    return channel->fd;
}

static struct sockaddr_in sockaddr_of(uint32_t address, uint32_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(address),
        .sin_port = htons((uint16_t)port),
    };
}

/* An id that is bound; NULL with *error = -errno. */
struct ibn_id *ibn_new(struct rdma_event_channel *channel, uint32_t address, uint32_t port,
                       int *error)
{
    struct sockaddr_in from = sockaddr_of(address, port);
    struct ibn_id *id = calloc(1, sizeof(*id));
    int on = 1;

    *error = -ENOMEM;
    if (!id)
        return NULL;
    if (rdma_create_id(channel, &id->cm, id, RDMA_PS_TCP))
        goto fail;
    if (rdma_set_option(id->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) ||
        rdma_bind_addr(id->cm, (struct sockaddr *)&from))
        goto fail_id;
    *error = 0;
    return id;

fail_id:
    *error = -errno;
    rdma_destroy_id(id->cm);
    free(id);
    return NULL;
fail:
    *error = -errno;
    free(id);
    return NULL;
}

int ibn_listen(struct ibn_id *id)
{
    return rdma_listen(id->cm, 64) ? -errno : 0;
}

int ibn_resolve(struct ibn_id *id, uint32_t address, uint32_t port, int timeout_ms)
{
    struct sockaddr_in to = sockaddr_of(address, port);

    return rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, timeout_ms) ? -errno : 0;
}

int ibn_resolve_route(struct ibn_id *id, int timeout_ms)
{
    return rdma_resolve_route(id->cm, timeout_ms) ? -errno : 0;
}

/* 1: *out is the next event, 0: there is none. */
int ibn_event(struct rdma_event_channel *channel, struct ibn_event *out)
{
    struct rdma_cm_event *ev;
    const struct sockaddr_in *from;
    int err = 0;

    if (rdma_get_cm_event(channel, &ev))
        return errno == EAGAIN ? 0 : -errno;
    memset(out, 0, sizeof(*out));
    out->type = (int32_t)ev->event;
    out->status = ev->status;
    out->priv_len = ev->param.conn.private_data_len;
    if (ev->param.conn.private_data && out->priv_len)
        memcpy(out->priv, ev->param.conn.private_data, out->priv_len);
    if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        out->listen = ev->listen_id->context;
        out->id = calloc(1, sizeof(*out->id));
        if (out->id) {
            out->id->cm = ev->id;
            ev->id->context = out->id;
            from = (const struct sockaddr_in *)rdma_get_peer_addr(ev->id);
            out->from = ntohl(from->sin_addr.s_addr);
            out->port = ntohs(from->sin_port);
        } else {
            err = -ENOMEM;
        }
    } else {
        out->id = ev->id->context;
    }
    rdma_ack_cm_event(ev);
    return err ? err : 1;
}

/* ---------------------------------------------------------------- memory and queue pairs */

/* A protection domain on the device that the id is on. */
struct ibv_pd *ibn_pd(struct ibn_id *id)
{
    return id->cm->verbs ? ibv_alloc_pd(id->cm->verbs) : NULL;
}

struct ibv_mr *ibn_reg(struct ibv_pd *pd, void *addr, size_t len, uint32_t *lkey, uint32_t *rkey)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, addr, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

    if (mr) {
        *lkey = mr->lkey;
        *rkey = mr->rkey;
    }
    return mr;
}

int ibn_dereg(struct ibv_mr *mr)
{
    return -ibv_dereg_mr(mr);
}

int ibn_dealloc(struct ibv_pd *pd)
{
    return -ibv_dealloc_pd(pd);
}

int ibn_qp(struct ibn_id *id, struct ibv_pd *pd, uint32_t recvs, uint32_t sends, uint32_t sges)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap =
            {
                .max_recv_wr = recvs,
                .max_send_wr = sends,
                .max_recv_sge = 1,
                .max_send_sge = sges,
            },
    };

    id->channel = ibv_create_comp_channel(id->cm->verbs);
    if (!id->channel || unblock(id->channel->fd))
        return -errno;
    id->cq = ibv_create_cq(id->cm->verbs, (int)(recvs + sends + 1), NULL, id->channel, 0);
    if (!id->cq || ibv_req_notify_cq(id->cq, 0))
        return -errno;
    attr.send_cq = id->cq;
    attr.recv_cq = id->cq;
    return rdma_create_qp(id->cm, pd, &attr) ? -errno : 0;
}

int ibn_cq_fd(const struct ibn_id *id)
{
    return id->channel->fd;
}

/* ---------------------------------------------------------------- connections, o2iblnd §1.2 */

static struct rdma_conn_param param_of(const void *priv, uint32_t len)
{
    return (struct rdma_conn_param){
        .private_data = priv,
        .private_data_len = (uint8_t)len,
        .flow_control = 1,
        .retry_count = 5,
        .rnr_retry_count = 6,
    };
}

uint32_t ibn_qpn(const struct ibn_id *id)
{
    return id->cm->qp->qp_num;
}

/* qpn: number of the queue pair to state in the request, where the id has none. */
int ibn_connect(struct ibn_id *id, const void *priv, uint32_t len, uint32_t qpn)
{
    struct rdma_conn_param param = param_of(priv, len);

    param.qp_num = qpn;
    return rdma_connect(id->cm, &param) ? -errno : 0;
}

int ibn_accept(struct ibn_id *id, const void *priv, uint32_t len)
{
    struct rdma_conn_param param = param_of(priv, len);

    return rdma_accept(id->cm, &param) ? -errno : 0;
}

int ibn_reject(struct ibn_id *id, const void *priv, uint32_t len)
{
    return rdma_reject(id->cm, priv, (uint8_t)len) ? -errno : 0;
}

int ibn_disconnect(struct ibn_id *id)
{
    return rdma_disconnect(id->cm) ? -errno : 0;
}

/* What a failing device does: the queue pair is in its error state, and the peer is not told. */
int ibn_break(struct ibn_id *id)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    return -ibv_modify_qp(id->cm->qp, &attr, IBV_QP_STATE);
}

/* All its events are acknowledged. */
void ibn_destroy(struct ibn_id *id)
{
    if (id->cm->qp)
        rdma_destroy_qp(id->cm);
    if (id->cq)
        ibv_destroy_cq(id->cq);
    if (id->channel)
        ibv_destroy_comp_channel(id->channel);
    rdma_destroy_id(id->cm);
    free(id);
}

/* ---------------------------------------------------------------- work requests */

int ibn_recv(struct ibn_id *id, uint64_t wr_id, uint64_t addr, uint32_t len, uint32_t lkey)
{
    struct ibv_sge sge = {.addr = addr, .length = len, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    return -ibv_post_recv(id->cm->qp, &wr, &bad);
}

/* Posts them in order; -errno of the first that was not posted. */
int ibn_send(struct ibn_id *id, const struct ibn_send *chain, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ibn_send *s = &chain[i];
        struct ibv_sge sge[SGES];
        struct ibv_send_wr wr = {
            .wr_id = s->wr_id,
            .sg_list = sge,
            .num_sge = (int)s->nsges,
            .opcode = s->write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
            .send_flags = s->signalled ? IBV_SEND_SIGNALED : 0,
            .wr.rdma = {.remote_addr = s->remote, .rkey = s->rkey},
        };
        struct ibv_send_wr *bad;
        int err;

        for (uint32_t k = 0; k < s->nsges; k++)
            sge[k] = (struct ibv_sge){s->sge[k].addr, s->sge[k].len, s->sge[k].lkey};
        err = ibv_post_send(id->cm->qp, &wr, &bad);
        if (err)
            return -err;
    }
    return 0;
}

/* The amount of completions taken. */
int ibn_poll(struct ibn_id *id, struct ibn_wc *out, int n)
{
    struct ibv_wc wc[64];
    int got = ibv_poll_cq(id->cq, n < 64 ? n : 64, wc);

    for (int i = 0; i < got; i++)
        out[i] = (struct ibn_wc){
            .wr_id = wc[i].wr_id,
            .status = (int32_t)wc[i].status,
            .opcode = (int32_t)wc[i].opcode,
            .len = wc[i].byte_len,
        };
    return got;
}

/* Its descriptor was readable: takes what made it so; the next completion makes it so again. */
int ibn_rearm(struct ibn_id *id)
{
    struct ibv_cq *cq;
    void *context;

    while (ibv_get_cq_event(id->channel, &cq, &context) == 0)
        ibv_ack_cq_events(cq, 1);
    return -ibv_req_notify_cq(id->cq, 0);
}
