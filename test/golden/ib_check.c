/* SPDX-License-Identifier: BSD-3-Clause */
#include "ib_check.h"
#include "lib/lnet/wire/guard.h"

#include "test/drops_test.h"
#include <stdio.h>

REGISTER_DROPS(ib_drops);

#define MAX_COMPLAINTS 20

void ib_complain(struct ib_run *run, const char *unit, const char *what)
{
    if (run->failures++ < MAX_COMPLAINTS)
        printf("    %s: %s\n", unit, what);
}

/* ---- units as fields ---- */

/* A message, a CONNREQ or CONNACK, or a reject. Nothing in it but payload is recorded bytes. */
struct unit {
    enum {
        UNIT_MSG,
        UNIT_CONN,
        UNIT_REJECT,
    } kind;
    struct ib_msg msg;
    struct item lnet; /* the LNet header of msg, its union as fields */
    struct ib_frag frags[IB_FRAGS_MAX];
    struct ib_conn_msg conn;
    struct ib_reject reject;
};

#define HEAD_MAX IB_MSG_SIZE

static bool has_lnet(const struct unit *u)
{
    unsigned type = u->msg.hdr.type;

    return u->kind == UNIT_MSG &&
           (type == IB_IMMEDIATE || type == IB_PUT_REQ || type == IB_GET_REQ);
}

static enum lnet_drop decode(int kind, const uint8_t *buf, size_t len, struct unit *out)
{
    enum lnet_drop drop;

    memset(out, 0, sizeof(*out));
    out->kind = kind;
    if (kind == UNIT_CONN)
        return ib_conn_decode(buf, len, &out->conn);
    if (kind == UNIT_REJECT)
        return ib_reject_decode(buf, len, &out->reject);
    drop = ib_msg_decode(buf, len, &out->msg);
    if (drop != LNET_DROP_NONE)
        return drop;
    for (uint32_t i = 0; i < out->msg.rd.nfrags; i++)
        ib_rd_frag(&out->msg.rd, i, &out->frags[i]);
    out->msg.rd.wire = NULL;
    out->msg.payload = NULL;
    if (has_lnet(out)) {
        out->lnet.kind = ITEM_LNET;
        out->lnet.hdr = out->msg.lnet;
        item_take_body(&out->lnet);
        memset(&out->msg.lnet, 0xa5, sizeof(out->msg.lnet));
    }
    return drop;
}

static size_t encode(const struct unit *u, uint8_t buf[HEAD_MAX])
{
    struct ib_msg msg = u->msg;

    memset(buf, 0xa5, HEAD_MAX);
    if (u->kind == UNIT_CONN) {
        ib_conn_encode(&u->conn, buf);
        return IB_CONN_SIZE;
    }
    if (u->kind == UNIT_REJECT) {
        ib_reject_encode(&u->reject, buf);
        return IB_REJECT_SIZE;
    }
    if (has_lnet(u))
        msg.lnet = item_hdr(&u->lnet);
    msg.hdr.nob = msg.rd.total = 0xa5a5a5a5; /* worked out */
    return ib_msg_encode(&msg, u->frags, buf, HEAD_MAX);
}

#define PUT(x)     (list[n++] = (struct field){&(x), sizeof(x)})
#define FIELDS_MAX (96 + 2 * IB_FRAGS_MAX)

static size_t hdr_fields(struct ib_hdr *h, struct field *list, bool derived)
{
    size_t n = 0;

    if (derived) {
        PUT(h->nob);
        PUT(h->flip);
    }
    PUT(h->version);
    PUT(h->credits);
    PUT(h->cksum);
    PUT(h->src_nid);
    PUT(h->src_stamp);
    PUT(h->dst_nid);
    PUT(h->dst_stamp);
    if (derived) /* changed, it is another message: the encoder looks for other fields */
        PUT(h->type);
    return n;
}

static size_t msg_fields(struct unit *u, struct field *list, bool derived)
{
    struct ib_msg *m = &u->msg;
    size_t n = hdr_fields(&m->hdr, list, derived);
    unsigned type = m->hdr.type;

    if (has_lnet(u))
        n += item_hdr_fields(&u->lnet, list + n);
    if (type == IB_IMMEDIATE)
        PUT(m->carried);
    else if (type != IB_NOOP)
        PUT(m->cookie);
    if (type == IB_PUT_ACK)
        PUT(m->dst_cookie);
    if (type == IB_PUT_NAK || type == IB_PUT_DONE || type == IB_GET_DONE)
        PUT(m->status);
    if (type != IB_PUT_ACK && type != IB_GET_REQ)
        return n;
    PUT(m->rd.key);
    if (derived) {
        PUT(m->rd.nfrags);
        PUT(m->rd.total);
    }
    for (uint32_t i = 0; i < m->rd.nfrags && i < IB_FRAGS_MAX; i++) {
        PUT(u->frags[i].addr);
        PUT(u->frags[i].nob);
    }
    return n;
}

static size_t unit_fields(struct unit *u, struct field list[FIELDS_MAX], bool derived)
{
    size_t n = 0;

    switch (u->kind) {
    case UNIT_MSG:
        return msg_fields(u, list, derived);
    case UNIT_CONN:
        n = hdr_fields(&u->conn.hdr, list, derived);
        PUT(u->conn.queue_depth);
        PUT(u->conn.max_frags);
        PUT(u->conn.max_msg_size);
        return n;
    default:
        if (derived) {
            PUT(u->reject.flip);
            PUT(u->reject.generic);
            PUT(u->reject.params);
        }
        PUT(u->reject.version);
        PUT(u->reject.why);
        PUT(u->reject.stamp);
        PUT(u->reject.queue_depth);
        PUT(u->reject.max_frags);
        PUT(u->reject.max_msg_size);
        return n;
    }
}

const char *ib_type_name(unsigned type)
{
    switch (type) {
    case IB_CONNREQ:
        return "CONNREQ";
    case IB_CONNACK:
        return "CONNACK";
    case IB_NOOP:
        return "NOOP";
    case IB_IMMEDIATE:
        return "IMMEDIATE";
    case IB_PUT_REQ:
        return "PUT_REQ";
    case IB_PUT_NAK:
        return "PUT_NAK";
    case IB_PUT_ACK:
        return "PUT_ACK";
    case IB_PUT_DONE:
        return "PUT_DONE";
    case IB_GET_REQ:
        return "GET_REQ";
    case IB_GET_DONE:
        return "GET_DONE";
    default:
        return "?";
    }
}

static const char *unit_name(const struct unit *u)
{
    return u->kind == UNIT_REJECT
               ? "reject"
               : ib_type_name(u->kind == UNIT_CONN ? u->conn.hdr.type : u->msg.hdr.type);
}

/* Bytes that nobody reads: what is left of the LNet header's union, and the padding of a reject. */
static bool ignored(const struct unit *u, size_t offset)
{
    if (u->kind == UNIT_REJECT)
        return offset == 7; /* §1.4 */
    return has_lnet(u) && offset < IB_IMMEDIATE_SIZE &&
           offset >= IB_IMMEDIATE_SIZE - LNET_BODY_SIZE + item_body_used(&u->lnet);
}

/* ---- mutations ---- */

static bool same(struct unit *a, struct unit *b)
{
    static struct field la[FIELDS_MAX], lb[FIELDS_MAX];
    size_t n = unit_fields(a, la, true), i;

    if (unit_fields(b, lb, true) != n)
        return false;
    for (i = 0; i < n; i++) {
        if (la[i].size != lb[i].size || memcmp(la[i].at, lb[i].at, la[i].size) != 0)
            return false;
    }
    return true;
}

static void mutate_fields(struct ib_run *run, struct unit *u, const uint8_t *head, size_t size)
{
    static const uint8_t flips[] = {0x01, 0x80};
    static struct field list[FIELDS_MAX];
    static uint8_t out[HEAD_MAX];
    size_t n = unit_fields(u, list, false), i, k, f;

    for (i = 0; i < n; i++) {
        for (k = 0; k < list[i].size; k++) {
            for (f = 0; f < sizeof(flips); f++) {
                uint8_t *at = (uint8_t *)list[i].at + k;

                *at ^= flips[f];
                if (encode(u, out) == size && memcmp(out, head, size) == 0)
                    ib_complain(run, unit_name(u), "a changed field is not in the encoded bytes");
                *at ^= flips[f];
                run->fields++;
            }
        }
    }
}

/* len: bytes there are, of which size are the head. */
static void mutate_bits(struct ib_run *run, struct unit *u, const uint8_t *buf, size_t len,
                        size_t size)
{
    static uint8_t copy[HEAD_MAX];
    static struct unit other;

    memcpy(copy, buf, len);
    for (size_t i = 0; i < size; i++) {
        for (unsigned bit = 0; !ignored(u, i) && bit < 8; bit++) {
            copy[i] ^= (uint8_t)(1u << bit);
            if (decode(u->kind, copy, len, &other) == LNET_DROP_NONE && same(u, &other))
                ib_complain(run, unit_name(u), "a changed bit is neither refused nor seen");
            copy[i] ^= (uint8_t)(1u << bit);
            run->bits++;
        }
    }
}

/* Returns the bytes that are not payload, 0 when something is wrong. */
static size_t check_unit(struct ib_run *run, struct unit *u, const uint8_t *buf, size_t len)
{
    static uint8_t out[HEAD_MAX];
    size_t size = encode(u, out);

    run->units++;
    if (size == 0 || size > len || memcmp(out, buf, size) != 0) {
        ib_complain(run, unit_name(u), "encodes to other bytes than were recorded");
        return 0;
    }
    mutate_fields(run, u, buf, size);
    mutate_bits(run, u, buf, len, size);
    return size;
}

/* ---- messages ---- */

static void count_type(struct ib_counts *counts, unsigned type)
{
    unsigned long long *const by_type[] = {
        &counts->noop,    &counts->immediate, &counts->put_req, &counts->put_nak,
        &counts->put_ack, &counts->put_done,  &counts->get_req, &counts->get_done,
    };

    ++*by_type[type - IB_NOOP];
}

bool ib_check_message(struct ib_run *run, const uint8_t *buf, size_t len, struct ib_msg *out)
{
    static struct unit u;
    enum lnet_drop drop = len <= HEAD_MAX ? decode(UNIT_MSG, buf, len, &u) : IB_DROP(LENGTH);
    size_t size;

    if (drop != LNET_DROP_NONE) {
        ib_complain(run, "message", lnet_drop_info(drop)->name);
        return false;
    }
    if (u.msg.hdr.nob != len)
        ib_complain(run, unit_name(&u), "another length than it says");
    size = check_unit(run, &u, buf, len);
    if (size > 0 && size + u.msg.carried != len)
        ib_complain(run, unit_name(&u), "bytes are left over");
    if (has_lnet(&u)) {
        const struct lnet_hdr hdr = item_hdr(&u.lnet);

        drop = lnet_guard(&hdr, LNET_GUARD_ALL);
        if (drop != LNET_DROP_NONE)
            ib_complain(run, unit_name(&u), lnet_drop_info(drop)->name);
    }
    count_type(&run->counts, u.msg.hdr.type);
    run->counts.payload += u.msg.carried;
    return ib_msg_decode(buf, len, out) == LNET_DROP_NONE;
}

/* ---- private data ---- */

#define CMA_SIZE 36 /* §1.2: what the RDMA CM puts in front of a request's */

/* Its addresses are those of the NIDs. */
static bool cma_good(const uint8_t *cma, const struct ib_hdr *hdr)
{
    static const uint8_t zero[12];
    uint32_t src = __builtin_bswap32((uint32_t)hdr->src_nid);
    uint32_t dst = __builtin_bswap32((uint32_t)hdr->dst_nid);

    return cma[0] == 0 && cma[1] == 0x40 && memcmp(cma + 4, zero, 12) == 0 &&
           memcmp(cma + 16, &src, 4) == 0 && memcmp(cma + 20, zero, 12) == 0 &&
           memcmp(cma + 32, &dst, 4) == 0;
}

static bool cm_params_good(const struct roce_packet *p)
{
    return p->cm.responder == 0 && p->cm.initiator == 0 && p->cm.fc == 1 &&
           p->cm.rnr_retries == 6 &&
           (p->cm.attr == CM_REP || (p->cm.retries == 5 && p->cm.service == 0x010603db));
}

static void check_padding(struct ib_run *run, const uint8_t *p, size_t len)
{
    while (len-- > 0) {
        if (*p++ != 0) {
            ib_complain(run, "private data", "is not padded with zeroes");
            return;
        }
    }
}

static bool check_conn(struct ib_run *run, const struct roce_packet *p, struct ib_conn_msg *out)
{
    size_t skip = p->cm.attr == CM_REQ ? CMA_SIZE : 0;
    const uint8_t *buf = p->cm.priv + skip;
    size_t len = p->cm.priv_len - skip;
    static struct unit u;
    enum lnet_drop drop = decode(UNIT_CONN, buf, len, &u);

    if (drop != LNET_DROP_NONE) {
        ib_complain(run, "private data", lnet_drop_info(drop)->name);
        return false;
    }
    if (u.conn.hdr.type != (p->cm.attr == CM_REQ ? IB_CONNREQ : IB_CONNACK))
        ib_complain(run, unit_name(&u), "is in the wrong place");
    if (p->cm.attr == CM_REQ && !cma_good(p->cm.priv, &u.conn.hdr))
        ib_complain(run, unit_name(&u), "the CM's header has other addresses");
    if (!cm_params_good(p))
        ib_complain(run, unit_name(&u), "the CM's parameters are others than specified");
    check_unit(run, &u, buf, len);
    check_padding(run, buf + IB_CONN_SIZE, len - IB_CONN_SIZE);
    *out = u.conn;
    return true;
}

static bool check_reject(struct ib_run *run, const struct roce_packet *p)
{
    static struct unit u;
    enum lnet_drop drop = decode(UNIT_REJECT, p->cm.priv, p->cm.priv_len, &u);

    if (drop != LNET_DROP_NONE || !u.reject.params) {
        ib_complain(run, "reject", lnet_drop_info(drop)->name);
        return false;
    }
    check_unit(run, &u, p->cm.priv, p->cm.priv_len);
    check_padding(run, p->cm.priv + IB_REJECT_SIZE, p->cm.priv_len - IB_REJECT_SIZE);
    return true;
}

#define REJ_CONSUMER 28

bool ib_check_private(struct ib_run *run, const struct roce_packet *p, struct ib_conn_msg *out)
{
    bool good;

    switch (p->cm.attr) {
    case CM_REQ:
        good = check_conn(run, p, out);
        run->counts.req++;
        run->counts.conn_req += good;
        return good;
    case CM_REP:
        good = check_conn(run, p, out);
        run->counts.rep++;
        run->counts.conn_ack += good;
        return good;
    case CM_REJ:
        run->counts.rej++;
        run->counts.reject += p->cm.reason == REJ_CONSUMER && check_reject(run, p);
        return true;
    default:
        return true;
    }
}
