/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the two halves of the fake provider share.
 */
#ifndef MILLRACE_RDMA_FAKE_INTERNAL_H
#define MILLRACE_RDMA_FAKE_INTERNAL_H

#include "test/unit/rdma_fake.h"

struct unlisten_task {
    struct reactor_task task;
    struct rdma *rdma;
};

struct rdma {
    unsigned index;
    bool open, listening;
    uint16_t service; /* listened at */
    struct rdma_port *port;
    struct rdma_listener listener;
    struct unlisten_task unlisten[IR_REACTORS];
};

/* ---- rdma_fake.c ---- */
struct fake_link *fk_of(struct rdma_link *link);
void fk_check_sge(const struct fake_link *fl, const struct ibv_sge *s);
uint8_t *fk_exported(uint32_t key, uint64_t addr, uint32_t len);

/* ---- rdma_fake_keys.c ---- */
extern struct ibv_mr fk_landing_mr;
void fk_keys_init(void);
void fk_keys_fini(void); /* none is left */
void fk_windows_new(struct fake_link *fl);
void fk_windows_free(struct fake_link *fl); /* its queue pair is gone, and their keys with it */
/* A window's bind was posted, took effect; its invalidate took effect. */
void fk_window_bind(const struct fake_link *fl, const struct ibv_send_wr *wr);
void fk_window_bound(const struct fake_link *fl, uint32_t rkey);
void fk_window_invalid(const struct fake_link *fl, uint32_t rkey);
bool fk_has_key(uint32_t rkey);
struct ibv_mr *fk_register_part(struct rdma_link *link, void *addr, size_t len);
void fk_release_part(struct rdma_link *link, struct ibv_mr *mr);

/* ---- rdma_fake_qp.c ---- */
void fk_cqs_init(void);
void fk_cqs_fini(void);
struct rdma_cq *fk_cq(struct rdma *rdma, unsigned reactor);
void fk_depth_from(struct fake_link *fl, const uint8_t *priv, size_t len);
bool fk_told(const void *addr, size_t len); /* by a PUT_ACK without its PUT_DONE */
void fk_error(struct fake_link *fl);
void fk_check_posted(const struct fake_link *fl);
void fk_drop_requests(struct fake_link *fl);
int fk_post_recv(struct rdma_link *link, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fk_post_send(struct rdma_link *link, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fk_poll(struct rdma_cq *cq, struct ibv_wc *wc, int n);
int fk_arm(struct rdma_cq *cq);
void fk_disarm(struct rdma_cq *cq);

#endif
