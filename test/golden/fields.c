/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The decoded fields of recordings, for a comparison with another decoder.
 *
 *   golden-fields OUT FILE...     recordings as golden and golden-ib take them
 *
 * Writes to OUT a line of JSON for each direction of a TCP connection to port 988, and one for all
 * RoCEv2 packets of a file:
 *   {"file", "src", "dst", "units": [[[NAME, VALUE], ...], ...], "refused": NAME}
 * The names are those of the Wireshark dissector (config/wireshark), the values are of this
 * library's decoders. A payload is given as hexadecimal digits unless it is a ping info.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "ib_roce.h"
#include "lib/lnd_verbs/ib_wire.h"
#include "test/drops_test.h"

REGISTER_DROPS(ib_drops);

/* ---- JSON ---- */

struct out {
    FILE *to;
    bool more_units, more_fields;
};

static void unit_begin(struct out *o)
{
    fputs(o->more_units ? ",[" : "[", o->to);
    o->more_units = true;
    o->more_fields = false;
}

static void unit_end(struct out *o)
{
    fputc(']', o->to);
}

static void field_begin(struct out *o, const char *name)
{
    fprintf(o->to, "%s[\"%s\",", o->more_fields ? "," : "", name);
    o->more_fields = true;
}

static void put_int(struct out *o, const char *name, int64_t value)
{
    field_begin(o, name);
    fprintf(o->to, "%" PRId64 "]", value);
}

static void put_num(struct out *o, const char *name, uint64_t value)
{
    field_begin(o, name);
    fprintf(o->to, "%" PRIu64 "]", value);
}

static void put_text(struct out *o, const char *name, const char *value)
{
    field_begin(o, name);
    fprintf(o->to, "\"%s\"]", value);
}

static void put_nid(struct out *o, const char *name, const struct lnet_nid *nid)
{
    char text[LNET_NIDSTR_SIZE];

    put_text(o, name, nid_format(nid, text));
}

static void put_nid4(struct out *o, const char *name, uint64_t nid4)
{
    const struct lnet_nid nid = nid_from_u64(nid4);

    put_nid(o, name, &nid);
}

static void put_bytes(struct out *o, const char *name, const uint8_t *p, size_t len)
{
    field_begin(o, name);
    fputc('"', o->to);
    while (len-- > 0)
        fprintf(o->to, "%02x", *p++);
    fputs("\"]", o->to);
}

/* ---- a message ---- */

static void put_handle(struct out *o, const struct lnet_handle *handle)
{
    put_num(o, "lnetmsg.handle_interface", handle->interface_cookie);
    put_num(o, "lnetmsg.handle_object", handle->object_cookie);
}

static void put_body(struct out *o, const struct item *item)
{
    switch (item->body_type) {
    case LNET_MSG_ACK:
        put_handle(o, &item->ack.dst);
        put_num(o, "lnetmsg.match_bits", item->ack.match_bits);
        put_num(o, "lnetmsg.mlength", item->ack.mlength);
        break;
    case LNET_MSG_PUT:
        put_handle(o, &item->put.ack);
        put_num(o, "lnetmsg.match_bits", item->put.match_bits);
        put_num(o, "lnetmsg.hdr_data", item->put.hdr_data);
        put_num(o, "lnetmsg.portal", item->put.portal);
        put_num(o, "lnetmsg.offset", item->put.offset);
        break;
    case LNET_MSG_GET:
        put_handle(o, &item->get.ret);
        put_num(o, "lnetmsg.match_bits", item->get.match_bits);
        put_num(o, "lnetmsg.portal", item->get.portal);
        put_num(o, "lnetmsg.src_offset", item->get.src_offset);
        put_num(o, "lnetmsg.sink_length", item->get.sink_length);
        break;
    default:
        put_handle(o, &item->reply.dst);
        break;
    }
}

/* A cut info has less. */
static void put_ping(struct out *o, const struct lnet_ping_info *info, size_t len)
{
    if (info->swapped)
        put_num(o, "lnetping.big_endian", 1);
    put_num(o, "lnetping.features", info->features);
    put_num(o, "lnetping.pid", info->pid);
    put_num(o, "lnetping.nnis", info->nnis);
    if (len < LNET_PING_HDR_SIZE + 16)
        return;
    put_num(o, "lnetping.seqno", info->seqno);
    put_num(o, "lnetping.size", info->msg_size);
    for (uint32_t i = 0; i < info->count; i++) {
        put_nid(o, "lnetping.nid", &info->ni[i].nid);
        put_num(o, "lnetping.status", info->ni[i].status);
    }
}

/* payload: of a PUSH, or of a REPLY to whatever GET. Returns whether it is a ping info. */
static bool put_if_ping(struct out *o, const struct item *item, const uint8_t *payload, size_t len)
{
    static struct lnet_ping_info info;
    bool push = item_is_push(item);
    enum lnet_drop drop;

    if (!push && item->body_type != LNET_MSG_REPLY)
        return false;
    drop = lnet_ping_decode(payload, len, &info);
    if (drop == LNET_DROP_NONE)
        put_ping(o, &info, len);
    else if (push)
        put_text(o, "refused", lnet_drop_info(drop)->name);
    return drop == LNET_DROP_NONE;
}

static void put_hdr(struct out *o, const struct item *item)
{
    put_nid(o, "lnetmsg.dest_nid", &item->hdr.dest_nid);
    put_nid(o, "lnetmsg.src_nid", &item->hdr.src_nid);
    put_num(o, "lnetmsg.dest_pid", item->hdr.dest_pid);
    put_num(o, "lnetmsg.src_pid", item->hdr.src_pid);
    put_num(o, "lnetmsg.type", item->hdr.type);
    put_num(o, "lnetmsg.payload_length", item->hdr.payload_len);
    put_body(o, item);
}

/* ---- socklnd ---- */

static void put_hello(struct out *o, const struct sock_hello *h)
{
    put_num(o, "socklnd.hello.version", h->version);
    put_nid(o, "socklnd.hello.src_nid", &h->src_nid);
    put_nid(o, "socklnd.hello.dst_nid", &h->dst_nid);
    put_num(o, "socklnd.hello.src_pid", h->src_pid);
    put_num(o, "socklnd.hello.dst_pid", h->dst_pid);
    put_num(o, "socklnd.hello.src_incarnation", h->src_incarnation);
    put_num(o, "socklnd.hello.dst_incarnation", h->dst_incarnation);
    put_int(o, "socklnd.hello.ctype", h->ctype);
    put_num(o, "socklnd.hello.nips", h->nips);
    for (uint32_t i = 0; h->version != SOCK_HELLO_V4 && i < h->nips; i++) {
        struct in_addr addr = {htonl(h->ips[i])};

        put_text(o, "socklnd.hello.ip", inet_ntoa(addr));
    }
}

static void put_frame(struct out *o, const struct sock_frame *f)
{
    put_num(o, "socklnd.frame.type", f->type);
    put_num(o, "socklnd.frame.csum", f->csum);
    put_num(o, "socklnd.frame.cookie0", f->cookie[0]);
    put_num(o, "socklnd.frame.cookie1", f->cookie[1]);
}

static void put_item(struct out *o, const struct item *item)
{
    unit_begin(o);
    switch (item->kind) {
    case ITEM_REQ:
        put_num(o, "socklnd.req.version", item->req.version);
        put_nid(o, "socklnd.req.nid", &item->req.target);
        if (item->req.flip)
            put_num(o, "socklnd.big_endian", 1);
        break;
    case ITEM_REPLY:
        put_num(o, "socklnd.refusal.version", SOCK_REQ_V1);
        break;
    case ITEM_HELLO:
        put_hello(o, &item->hello);
        break;
    default:
        put_frame(o, &item->frame);
        if (item->kind == ITEM_NOOP)
            break;
        put_hdr(o, item);
        if (item->ping)
            put_ping(o, item->ping, item->hdr.payload_len);
        else if (item->hdr.payload_len > 0 &&
                 !put_if_ping(o, item, item->payload, item->hdr.payload_len))
            put_bytes(o, "lnetmsg.payload", item->payload, item->hdr.payload_len);
    }
    unit_end(o);
}

/* What decode_stream() found in one direction. */
struct part {
    const struct connection *conn;
    bool to_server;
    size_t from, to;
    enum lnet_drop refusal;
};

static void endpoint_text(const struct connection *conn, const struct endpoint *end, char buf[64])
{
    char addr[INET6_ADDRSTRLEN];

    inet_ntop(conn->ipv6 ? AF_INET6 : AF_INET, end->addr, addr, sizeof(addr));
    snprintf(buf, 64, "%s %u", addr, end->port);
}

static void put_part(FILE *to, const char *path, const struct run *run, const struct part *p)
{
    struct out o = {.to = to};
    char client[64], server[64];

    endpoint_text(p->conn, &p->conn->client, client);
    endpoint_text(p->conn, &p->conn->server, server);
    fprintf(to, "{\"file\":\"%s\",\"src\":\"%s\",\"dst\":\"%s\",\"units\":[", path,
            p->to_server ? client : server, p->to_server ? server : client);
    for (size_t i = p->from; i < p->to; i++)
        put_item(&o, &run->items[i]);
    fputs("]", to);
    if (p->refusal != LNET_DROP_NONE)
        fprintf(to, ",\"refused\":\"%s\"", lnet_drop_info(p->refusal)->name);
    fputs("}\n", to);
}

static struct part part_decode(struct run *run, const struct connection *conn, bool to_server)
{
    struct part part = {conn, to_server, run->nitems, 0, LNET_DROP_NONE};

    run->refusal = LNET_DROP_NONE;
    decode_stream(run, conn, to_server);
    part.to = run->nitems;
    part.refusal = run->refusal;
    return part;
}

static const char *put_tcp(FILE *to, const char *path)
{
    struct connections all = {.port = SOCK_ACCEPTOR_PORT};
    const char *why = capture_read(path, connections_add, &all);
    struct run run = {.name = path, .decode_only = true};
    struct part *parts;
    size_t n = 0;

    if (why)
        return why;
    connections_assemble(&all);
    parts = calloc(2 * all.count + 1, sizeof(*parts));
    if (!parts)
        abort();
    for (size_t i = 0; i < all.count; i++) {
        parts[n++] = part_decode(&run, &all.list[i], true);
        parts[n++] = part_decode(&run, &all.list[i], false);
    }
    take_pings(&run);
    for (size_t i = 0; i < n; i++)
        put_part(to, path, &run, &parts[i]);
    for (size_t i = 0; i < run.nitems; i++)
        item_free(&run.items[i]);
    free(run.items);
    free(parts);
    connections_free(&all);
    return NULL;
}

/* ---- o2iblnd ---- */

static void put_ib_hdr(struct out *o, const struct ib_hdr *h)
{
    if (h->flip)
        put_num(o, "o2iblnd.big_endian", 1);
    put_num(o, "o2iblnd.version", h->version);
    put_num(o, "o2iblnd.type", h->type);
    put_num(o, "o2iblnd.credits", h->credits);
    put_num(o, "o2iblnd.nob", h->nob);
    put_num(o, "o2iblnd.cksum", h->cksum);
    put_nid4(o, "o2iblnd.src_nid", h->src_nid);
    put_num(o, "o2iblnd.src_stamp", h->src_stamp);
    put_nid4(o, "o2iblnd.dst_nid", h->dst_nid);
    put_num(o, "o2iblnd.dst_stamp", h->dst_stamp);
}

static void put_ib_params(struct out *o, unsigned depth, unsigned frags, unsigned size)
{
    put_num(o, "o2iblnd.queue_depth", depth);
    put_num(o, "o2iblnd.max_frags", frags);
    put_num(o, "o2iblnd.max_msg_size", size);
}

static void put_ib_lnet(struct out *o, const struct ib_msg *m)
{
    struct item item = {.kind = ITEM_LNET, .hdr = m->lnet};

    item_take_body(&item);
    put_hdr(o, &item);
    if (m->hdr.type != IB_IMMEDIATE || m->carried == 0)
        return;
    if (!put_if_ping(o, &item, m->payload, m->carried))
        put_bytes(o, "lnetmsg.payload", m->payload, m->carried);
}

static void put_ib_rd(struct out *o, const struct ib_rd *rd)
{
    struct ib_frag frag;

    put_num(o, "o2iblnd.key", rd->key);
    put_num(o, "o2iblnd.nfrags", rd->nfrags);
    for (uint32_t i = 0; i < rd->nfrags; i++) {
        ib_rd_frag(rd, i, &frag);
        put_num(o, "o2iblnd.frag_nob", frag.nob);
        put_num(o, "o2iblnd.frag_addr", frag.addr);
    }
}

static void put_ib_msg(struct out *o, const struct ib_msg *m)
{
    unsigned type = m->hdr.type;

    put_ib_hdr(o, &m->hdr);
    if (type == IB_IMMEDIATE || type == IB_PUT_REQ || type == IB_GET_REQ)
        put_ib_lnet(o, m);
    if (type != IB_IMMEDIATE && type != IB_NOOP)
        put_num(o, "o2iblnd.cookie", m->cookie);
    if (type == IB_PUT_ACK)
        put_num(o, "o2iblnd.dst_cookie", m->dst_cookie);
    if (type == IB_PUT_ACK || type == IB_GET_REQ)
        put_ib_rd(o, &m->rd);
    if (type == IB_PUT_NAK || type == IB_PUT_DONE || type == IB_GET_DONE)
        put_int(o, "o2iblnd.status", m->status);
}

#define CMA_SIZE     36 /* docs/protocol/o2iblnd.md §1.2 */
#define REJ_CONSUMER 28

static enum lnet_drop put_private(struct out *o, const struct roce_packet *p)
{
    size_t skip = p->cm.attr == CM_REQ ? CMA_SIZE : 0;
    struct ib_reject reject;
    struct ib_conn_msg conn;
    enum lnet_drop drop;

    if (p->cm.attr == CM_REJ) {
        drop = ib_reject_decode(p->cm.priv, p->cm.priv_len, &reject);
        if (drop != LNET_DROP_NONE)
            return drop;
        unit_begin(o);
        if (reject.flip)
            put_num(o, "o2iblnd.big_endian", 1);
        put_num(o, "o2iblnd.version", reject.version);
        put_num(o, "o2iblnd.why", reject.why);
        put_num(o, "o2iblnd.stamp", reject.stamp);
        put_ib_params(o, reject.queue_depth, reject.max_frags, reject.max_msg_size);
        unit_end(o);
        return drop;
    }
    drop = ib_conn_decode(p->cm.priv + skip, p->cm.priv_len - skip, &conn);
    if (drop != LNET_DROP_NONE)
        return drop;
    unit_begin(o);
    put_ib_hdr(o, &conn.hdr);
    put_ib_params(o, conn.queue_depth, conn.max_frags, conn.max_msg_size);
    unit_end(o);
    return drop;
}

static void put_refused(struct out *o, enum lnet_drop drop)
{
    unit_begin(o);
    put_text(o, "refused", lnet_drop_info(drop)->name);
    unit_end(o);
}

static void put_datagram(void *arg, const struct udp_datagram *datagram)
{
    struct out *o = arg;
    struct roce_packet p;
    struct ib_msg msg;
    enum lnet_drop drop = LNET_DROP_NONE;

    if (!roce_decode(datagram, &p))
        return;
    if (p.kind == ROCE_SEND) {
        drop = ib_msg_decode(p.data, p.len, &msg);
        if (drop == LNET_DROP_NONE) {
            unit_begin(o);
            put_ib_msg(o, &msg);
            unit_end(o);
        }
    } else if (p.kind == ROCE_MAD && (p.cm.attr == CM_REQ || p.cm.attr == CM_REP ||
                                      (p.cm.attr == CM_REJ && p.cm.reason == REJ_CONSUMER))) {
        drop = put_private(o, &p);
    }
    if (drop != LNET_DROP_NONE)
        put_refused(o, drop);
}

static const char *put_roce(FILE *to, const char *path)
{
    struct out o = {.to = to};
    const char *why;

    fprintf(to, "{\"file\":\"%s\",\"src\":\"\",\"dst\":\"\",\"units\":[", path);
    why = capture_read_udp(path, put_datagram, &o);
    fputs("]}\n", to);
    return why;
}

int main(int argc, char **argv)
{
    const char *why = NULL;
    FILE *to;

    if (argc < 3) {
        fputs("usage: golden-fields OUT FILE...\n", stderr);
        return 2;
    }
    to = fopen(argv[1], "w");
    if (!to) {
        perror(argv[1]);
        return 2;
    }
    for (int i = 2; i < argc && !why; i++) {
        why = put_tcp(to, argv[i]);
        if (!why)
            why = put_roce(to, argv[i]);
        if (why)
            fprintf(stderr, "%s: %s\n", argv[i], why);
    }
    return fclose(to) != 0 || why ? 1 : 0;
}
