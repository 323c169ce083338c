/* SPDX-License-Identifier: BSD-3-Clause */
/* One run of the golden test over one recording: what was counted, and the checks of single units.
 */
#ifndef MILLRACE_TEST_GOLDEN_CHECK_H
#define MILLRACE_TEST_GOLDEN_CHECK_H

#include "items.h"
#include "streams.h"

/* name, in the order of a line in the list */
#define COUNTS(X)                                                                                  \
    X(conns)     /* connections */                                                                 \
    X(early)     /* of these, begun before the recording */                                        \
    X(req)       /* acceptor requests */                                                           \
    X(odd_req)   /* ... understood, in a form that we never write */                               \
    X(reply)     /* acceptor replies */                                                            \
    X(hello)     /* HELLOs */                                                                      \
    X(none)      /* of these, with type NONE */                                                    \
    X(noop)      /* NOOP frames */                                                                 \
    X(keepalive) /* of these, keepalives */                                                        \
    X(zc_req)    /* frames that ask for a ZC-ACK */                                                \
    X(zc_acked)  /* cookies acknowledged */                                                        \
    X(ack)       /* messages by type */                                                            \
    X(put)                                                                                         \
    X(get)                                                                                         \
    X(msg_reply)                                                                                   \
    X(ping)     /* ping infos, in PUSHes and REPLYs */                                             \
    X(ping_cut) /* ... shorter than they say, or from an offset */                                 \
    X(ping_bad) /* ... refused */                                                                  \
    X(payload)  /* bytes */                                                                        \
    X(cut)      /* bytes of units that the recording ends in */                                    \
    X(refused)  /* streams in which decoding stopped with a reason */                              \
    X(rest)     /* bytes from there on */                                                          \
    X(skipped)  /* bytes passed over to find a frame: early connections, behind holes */           \
    X(lost)     /* bytes that the recording misses */

struct counts {
#define X(name) unsigned long long name;
    COUNTS(X)
#undef X
};

struct run {
    const char *name;
    bool decode_only;       /* no encoding, no mutations */
    enum lnet_drop refusal; /* why decoding of the last stream stopped, if refused */
    struct counts counts;
    unsigned failures;
    unsigned long long fields, bits; /* mutations tried */
    struct item *items;              /* of all streams, for the second pass */
    size_t nitems, cap_items;
};

/* Says what is wrong, up to a number of times, and counts it. */
void complain(struct run *run, const char *what, const struct item *item);
/* Encode from the fields alone and compare with the recorded head; change each field and each bit.
 */
void check_head(struct run *run, struct item *item, const uint8_t *head);
/* The same for a request in a form that we never write: only what it means can be compared. */
void check_odd_req(struct run *run, struct item *item, const uint8_t *head);
/* Payloads that are ping infos, when all streams are decoded: they are known by the GETs. */
void take_pings(struct run *run);
/* One direction of a connection, from its first byte to its last (walk.c). */
void decode_stream(struct run *run, const struct connection *conn, bool to_server);

#endif
