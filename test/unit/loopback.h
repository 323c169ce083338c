/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A loopback LND for tests: messages go from NI to NI of one process through memory. It is a whole
 * LND as docs/architecture.md "Adding an LND" describes one: a type, code, drop reasons. Its nets
 * are `efa` nets, which no LND of the program drives; a test that needs others registers a copy of
 * its ops with another name and type. The test steps all reactors on one thread.
 *
 * With hooks a test takes the place of all peers: it receives the messages that are sent to them,
 * and sends messages of theirs with loop_arrive().
 */
#ifndef MILLRACE_LOOPBACK_H
#define MILLRACE_LOOPBACK_H

#include "lib/lnd/code.h"
#include "lib/lnd/show.h"

enum loop_drop {
    LOOP_DROP_NO_NI = 3 * LNET_DROP_BLOCK, /* no NI of this process has the NID */
    LOOP_DROP_STOPPED,                     /* the NI was quiesced before the message arrived */
};

enum loop_tunable {
    LOOP_TUN_BATCH,
    LOOP_TUN_COLOUR
};

/* A message that comes to an NI. Zero but for rx.hdr, rx.ni, from and payload. It may arrive again
 * when it was received, as the next message of a connection. */
struct loop_rx {
    struct lnet_rx rx;
    struct lnet_nid from;
    uint8_t *payload; /* of an rdma_get: room for what it asks for; NULL: the hook copies */
    /* What the core asked for: it wants the first mlen bytes of the payload in the segments. */
    const struct mem_seg *segs;
    unsigned nsegs;
    uint32_t mlen;
    struct reactor_task task; /* the LND's own */
    bool between_nis;         /* the LND made it, and frees it */
};

/* Each may be NULL. They run on the home reactor of the peer. They return true if the test ends the
 * message, now or later: by lnet_send_done(); by loop_finish(). */
struct loop_hooks {
    bool (*send)(struct lnet_msg *msg);
    bool (*recv)(struct loop_rx *m); /* of the test's own messages */
};

extern const struct lnd_type loop_type;
extern const struct lnd_code loop_code;
extern struct loop_hooks loop_hooks;

/* On the home reactor of m->from: its header has come. Returns why the core refused it. */
enum lnet_drop loop_arrive(struct loop_rx *m);
/* Its payload has come, or will not come. */
void loop_finish(struct loop_rx *m, struct lnet_result result);
/* Its connection closes before the core asked for the payload. Returns false if it will ask. */
bool loop_cancel(struct loop_rx *m);
/* Returns a copy of the payload of a message that is sent, for free(). */
uint8_t *loop_copy(const struct lnet_msg *msg);

#endif
