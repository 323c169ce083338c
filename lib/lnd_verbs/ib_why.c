/* SPDX-License-Identifier: BSD-3-Clause */
/* In words: why a connection was not made, or was lost. docs/protocol/o2iblnd.md §1.8, §1.11. */
#include "lib/lnd_verbs/ib_conn.h"

#include <errno.h>

const char *ib_state_name(enum ib_conn_state state)
{
    static const char *const names[] = {
        [IB_CONN_FREE] = "free",           [IB_CONN_RESOLVING] = "resolving",
        [IB_CONN_OPENING] = "opening",     [IB_CONN_CONNECTING] = "connecting",
        [IB_CONN_ACCEPTING] = "accepting", [IB_CONN_UP] = "up",
        [IB_CONN_CLOSING] = "closing",     [IB_CONN_SHUT] = "shut",
    };

    return names[state];
}

struct words {
    int code;
    const char *text; /* the last row: NULL */
};

static const char *words_of(const struct words *row, int code, const char *other)
{
    while (row->text && row->code != code)
        row++;
    return row->text ? row->text : other;
}

static const char *error_words(int error)
{
    static const struct words rows[] = {
        {EHOSTUNREACH, "its address is not resolved"},
        {ENETUNREACH, "there is no route to it on the fabric"},
        {ENETDOWN, "unreachable: the connection manager had no answer of it"},
        {ETIMEDOUT, "no answer in time"},
        {ENOTCONN, "the connection manager could not connect"},
        {ECONNRESET, "ended before it was up"},
        {ENOMEM, "no memory for a queue pair"},
        {EINVAL, "the device makes no such queue pair"},
        {EIO, "the queue pair, its device or the port failed"},
        {0, NULL},
    };

    return words_of(rows, -error, "failed");
}

struct lnet_drop_why ib_why_error(const struct ib_conn *c, int error, int status)
{
    return (struct lnet_drop_why){
        .stage = ib_state_name(c->state),
        .why = error_words(error),
        .code = status != 0 ? status : error,
    };
}

struct lnet_drop_why ib_why_event(const struct ib_conn *c, const struct rdma_event *ev)
{
    bool ended = ev->kind == RDMA_EV_DISCONNECTED && ev->error == 0;

    return ib_why_error(c, ended ? -ECONNRESET : ev->error, ended ? 0 : ev->status);
}

/* ---- refused ---- */

static const char *cm_words(int status)
{
    static const char no_reject[] = "refused in words that are not o2iblnd's, or without any";
    static const struct words rows[] = {
        {IB_CM_NO_RESOURCES, "refused by its connection manager: no resources"},
        {IB_CM_TIMEOUT, "refused by its connection manager: it gave up waiting"},
        {IB_CM_INVALID_SERVICE, "nobody listens there: no LNet on it, or another service"},
        {IB_CM_STALE_CONN, "refused by its connection manager: it still has an old connection"},
        {IB_CM_CONSUMER, no_reject},
        {-ECONNREFUSED, no_reject},
        {0, NULL},
    };

    return words_of(rows, status, "refused by its connection manager");
}

struct lnet_drop_why ib_why_reject(const struct ib_conn *c, const struct rdma_event *ev)
{
    struct lnet_drop_why out = {ib_state_name(c->state), cm_words(ev->status), ev->status};
    struct ib_reject rej;

    if ((ev->status == IB_CM_CONSUMER || ev->status == -ECONNREFUSED) &&
        ib_reject_decode(ev->priv, ev->priv_len, &rej) == LNET_DROP_NONE) {
        out.why = ib_why_text(rej.why);
        out.code = rej.why;
    }
    return out;
}

/* ---- broken ---- */

static const char *status_words(enum ibv_wc_status status)
{
    static const char not_done[] = "its device could not do what was asked of it";
    static const struct words rows[] = {
        {IBV_WC_RETRY_EXC_ERR,
         "it acknowledges nothing any more, packets were sent retry_count times"},
        {IBV_WC_RNR_RETRY_EXC_ERR, "it had no receive buffer posted, rnr_retry_count times"},
        {IBV_WC_REM_ACCESS_ERR, "it does not let us write where it told us to"},
        {IBV_WC_REM_INV_REQ_ERR, not_done},
        {IBV_WC_REM_OP_ERR, not_done},
        {IBV_WC_LOC_LEN_ERR, "a message longer than a receive buffer"},
        {IBV_WC_LOC_PROT_ERR, "memory that this device may not use"},
        {IBV_WC_LOC_ACCESS_ERR, "it wrote where it may not"},
        {IBV_WC_WR_FLUSH_ERR, "flushed: the queue pair was in error already"},
        {0, NULL},
    };

    return words_of(rows, (int)status, "error of the device");
}

void ib_blame(struct ib_conn *c, const char *why, int code)
{
    if (c->state == IB_CONN_UP && !c->blame.why)
        c->blame = (struct lnet_drop_why){ib_state_name(c->state), why, code};
}

void ib_blame_status(struct ib_conn *c, enum ibv_wc_status status)
{
    ib_blame(c, status_words(status), (int)status);
}

void ib_blame_error(struct ib_conn *c, int error)
{
    ib_blame(c, error_words(error), error);
}

/* ---- told ---- */

void ib_peer_failed(struct ib_peer *p, enum lnet_drop drop, const struct lnet_hdr *hdr,
                    const struct lnet_drop_why *why)
{
    p->failure = (struct ib_failure){.when_us = reactor_now_us(), .drop = drop, .why = *why};
    lnet_drop_event_why(p->ini->base.ni->node, drop, p->ini->base.ni, &p->base.peer->nid, hdr, why);
}
