/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of api/. Node home only. */
#ifndef MILLRACE_LNET_API_INTERNAL_H
#define MILLRACE_LNET_API_INTERNAL_H

#include "lib/base/share.h"
#include "lib/lnet/api/api.h"

#define LNET_MD_BUCKETS 4096u

struct lnet_api {
    struct lnet_node *node;
    uint64_t interface_cookie;
    uint64_t next_cookie;
    LIST_HEAD(lnet_md_bucket, lnet_md) md_hash[LNET_MD_BUCKETS];
    TAILQ_HEAD(, lnet_me) portal[LNET_PORTALS];
    struct share askers;       /* who made us use local messages; part: for PUSHes being received */
    uint32_t arriving_all;     /* all such PUSHes */
    struct lnet_rx_queue lazy; /* PUTs on portal 0 while no push buffer is posted */
    struct reactor_timer lazy_timer;
    bool lazy_busy; /* in lnet_lazy_retry() */
};

enum md_state {
    MD_FREE,
    MD_ACTIVE,
    MD_UNLINKED
};

/* Returns the linked MD of a handle, or NULL. */
struct lnet_md *lnet_md_find(struct lnet_node *node, const struct lnet_handle *h);
/* Takes one operation from the threshold. */
void lnet_md_use(struct lnet_md *md);
/* Ends an operation: gives its event to the MD's owner, with what this does to the MD. */
void lnet_md_event(struct lnet_md *md, struct lnet_event *ev);
/* Makes the MD's bytes [offset, offset + len) the payload of msg. */
void lnet_md_slice(const struct lnet_md *md, uint32_t offset, uint32_t len, struct lnet_msg *msg);

#endif
