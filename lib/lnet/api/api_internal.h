/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of api/. Node home only, where nothing else is said. */
#ifndef MILLRACE_LNET_API_INTERNAL_H
#define MILLRACE_LNET_API_INTERNAL_H

#include "lib/base/share.h"
#include "lib/lnet/api/api.h"

#define LNET_MD_BUCKETS 4096u

/* PUSHes whose payload a reactor receives, oldest first. That reactor. */
struct lnet_push_shard {
    struct lnet_api *api;
    struct lnet_rx_queue begun; /* by their `age` */
    struct reactor_timer look;
};

struct lnet_api {
    struct lnet_node *node;
    uint64_t interface_cookie;
    struct sip_key cookie_key;
    uint64_t next_cookie;
    LIST_HEAD(lnet_md_bucket, lnet_md) md_hash[LNET_MD_BUCKETS];
    TAILQ_HEAD(, lnet_me) portal[LNET_PORTALS];
    struct share askers;   /* who made us use local messages; part: for PUSHes being received */
    uint32_t arriving_all; /* all such PUSHes */
    struct lnet_rx_queue arrived; /* PUSHes that have not been looked at yet */
    struct lnet_rx_queue lazy;    /* those for which no buffer was posted */
    uint32_t nlazy;               /* … and the one that push_serve() has in hand */
    struct share waiters;         /* whose these are; part: as of askers */
    struct reactor_timer lazy_timer;
    struct reactor_task serve; /* begins some of these, in the next iteration */
    bool serve_posted;         /* … or is running */
    bool buffer_wanted;        /* home writes, all read: there are some */
    struct lnet_push_shard pushes[REACTOR_MAX];
    TAILQ_HEAD(, lnet_md) tracked; /* response.c: MDs whose response is awaited, oldest first */
    struct reactor_timer response_timer;
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

/* Lets the LND receive the payload of a header: into rx->local, or nowhere. */
void lnet_local_answer(struct lnet_rx *rx, enum lnet_drop why);
/* Answers a PUT, unless no buffer is posted for a PUSH, which then may wait: false. */
bool lnet_local_put(struct lnet_node *node, struct lnet_rx *rx);

/* Ends an MD that is not unlinked yet; its last event has that status, if no other. */
void lnet_md_end(struct lnet_md *md, int status);

/* ---- response.c: §6.4 ---- */

/* Bits of the setting response_tracking. */
enum {
    LNET_TRACK_REPLY = 1, /* to GETs */
    LNET_TRACK_ACK = 2
};

void lnet_responses_init(struct lnet_api *api);
/* An MD waits for a response to what it sends to a portal. Those to the reserved portal have a
 * time limit of their own (ping/op.c). */
void lnet_response_expect(struct lnet_md *md, unsigned kind, uint32_t portal);
/* A response came; or the MD is no longer linked. */
void lnet_response_came(struct lnet_md *md);
void lnet_response_forget(struct lnet_md *md);

/* ---- push.c ---- */

int lnet_push_init(struct lnet_api *api);
void lnet_push_fini(struct lnet_api *api);
bool lnet_is_push(const struct lnet_hdr *hdr);
/* The account of a peer NI in `askers` or `waiters`; as share_of(). */
struct share_account *lnet_asker_of(struct lnet_node *node, struct share *s,
                                    const struct lnet_nid *nid);
/* Whether the buffers leave one for another PUSH of an asker. */
bool lnet_push_allowed(const struct lnet_api *api, const struct share_account *a);
/* Counts a PUSH that has a buffer, until it has ended. */
void lnet_push_begins(struct lnet_node *node, const struct lnet_msg *msg);
void lnet_push_ends(struct lnet_node *node, const struct lnet_msg *msg);
/* Queues a PUSH, of which so many begin in each iteration of the reactor. */
void lnet_push_arrived(struct lnet_node *node, struct lnet_rx *rx);
/* The payload of a PUSH is about to be received. Reactor of the connection. */
void lnet_push_receiving(struct lnet_rx *rx);

#endif
