/* SPDX-License-Identifier: BSD-3-Clause */
/* One run of the o2iblnd golden test over one recording: what was counted, the checks of single
 * messages, and the connections that they belong to. */
#ifndef MILLRACE_TEST_GOLDEN_IB_CHECK_H
#define MILLRACE_TEST_GOLDEN_IB_CHECK_H

#include "ib_roce.h"
#include "items.h"
#include "lib/lnd_verbs/ib_negotiate.h"

/* name, in the order of a line in the list */
#define IB_COUNTS(X)                                                                               \
    X(req)      /* CM requests, those sent again included */                                       \
    X(rep)      /* CM replies */                                                                   \
    X(rej)      /* CM rejects */                                                                   \
    X(conn_req) /* private data decoded: CONNREQ */                                                \
    X(conn_ack) /* ... CONNACK */                                                                  \
    X(reject)   /* ... reject of o2iblnd's */                                                      \
    X(judged)   /* answers that ours equals to the byte, or acts on as the node did */             \
    X(conns)    /* connections with messages in this recording */                                  \
    X(early)    /* of these, begun before all recordings there are of it */                        \
    X(again)    /* packets sent again */                                                           \
    X(noop)     /* messages by type */                                                             \
    X(immediate)                                                                                   \
    X(put_req)                                                                                     \
    X(put_nak)                                                                                     \
    X(put_ack)                                                                                     \
    X(put_done)                                                                                    \
    X(get_req)                                                                                     \
    X(get_done)                                                                                    \
    X(payload)     /* bytes in IMMEDIATEs */                                                       \
    X(write)       /* RDMA writes */                                                               \
    X(written)     /* their bytes */                                                               \
    X(returned)    /* credits returned in headers */                                               \
    X(steps)       /* messages that the credit arithmetic was checked with */                      \
    X(late)        /* of these, sent while credits were owed for long: they had to return them */  \
    X(starts)      /* beginnings that fit, of an early connection: what either side owed then */   \
    X(more_unseen) /* headers that could as well return one more */                                \
    X(less_unseen) /* ... one less */                                                              \
    X(other)       /* packets not understood */

struct ib_counts {
#define X(name) unsigned long long name;
    IB_COUNTS(X)
#undef X
};

struct ib_run {
    const char *name;
    struct ib_counts counts;
    unsigned failures;
    unsigned long long units, fields, bits; /* checked; mutations tried */
};

const char *ib_type_name(unsigned type); /* "PUT_REQ"; "?" when unknown */
/* Says what is wrong, up to a number of times, and counts it. */
void ib_complain(struct ib_run *run, const char *unit, const char *what);

/* One whole message of len bytes: decode, encode from the fields, change each field and each bit.
 * Returns false when it is refused. */
bool ib_check_message(struct ib_run *run, const uint8_t *buf, size_t len, struct ib_msg *out);
/* Private data of the CM message: the same. out is filled for REQ and REP. */
bool ib_check_private(struct ib_run *run, const struct roce_packet *packet,
                      struct ib_conn_msg *out);

/* ---- connections ---- */

struct ib_conns; /* of all recordings of a run of the program: some go on in the next one */

struct ib_conns *ib_conns_new(void);
void ib_conns_free(struct ib_conns *all);
/* A packet of the recording that run is about. */
void ib_conns_packet(struct ib_conns *all, struct ib_run *run, const struct roce_packet *packet);
/* At the end of a recording: the credit arithmetic of each connection that had messages in it. */
void ib_conns_credits(struct ib_conns *all, struct ib_run *run);

#endif
