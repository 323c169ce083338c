/* SPDX-License-Identifier: BSD-3-Clause */
/* A port of paper for the tests of fault injection, and frames with checksums of the tests' own.
 */
#ifndef MILLRACE_TAMPER_TEST_H
#define MILLRACE_TAMPER_TEST_H

#include "reactor_test.h"

#include <string.h>

#include <arpa/inet.h>

#include "lib/base/err.h"
#include "test/faults/tamper.h"

#define POOL_SIZE 8191
#define WIRE_MAX  8192

static struct rte_mempool *pool;
static struct port port;

/* What the device brings, and what it was given. */
static struct {
    struct rte_mbuf *in[WIRE_MAX], *out[WIRE_MAX];
    unsigned nin, nout;
    unsigned room; /* frames the device still takes */
} wire;

static inline unsigned plain_rx(struct port *p, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    n = n < wire.nin ? n : wire.nin;
    memcpy(pkts, wire.in, n * sizeof(pkts[0]));
    wire.nin -= n;
    memmove(wire.in, wire.in + n, wire.nin * sizeof(wire.in[0]));
    return n;
}

static inline unsigned plain_tx(struct port *p, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    n = n < wire.room ? n : wire.room;
    assert_true(wire.nout + n <= WIRE_MAX);
    memcpy(wire.out + wire.nout, pkts, n * sizeof(pkts[0]));
    wire.nout += n;
    wire.room -= n;
    return n;
}

static inline void port_begin(void)
{
    memset(&port, 0, sizeof(port));
    memset(&wire, 0, sizeof(wire));
    wire.room = UINT32_MAX;
    port.mtu = 1500;
    port.rx_queues = 2;
    port.tx_queues = 3;
    port.rx_small = port.rx_large = port.tx_pool = pool;
}

/* Frees what came out; whatever the stage was given it has passed on, freed, or frees now. */
static inline void port_finish(void)
{
    rte_pktmbuf_free_bulk(wire.out, wire.nout);
    rte_pktmbuf_free_bulk(wire.in, wire.nin);
    port_tamper_end(&port);
    assert_null(port.faults);
    assert_int_equal(rte_mempool_avail_count(pool), POOL_SIZE);
}

static inline void add_rule(bool out, struct tamper_conf conf)
{
    struct err err = {0};
    unsigned id;

    if (port_tamper_set(&port, out, &conf, true, &id, &err) != 0)
        fail_msg("%s", err.message);
}

static inline struct tamper_counts counts_of(unsigned row)
{
    struct tamper_row rows[2 * TAMPER_RULES_MAX];

    assert_true(port_tamper_rows(&port, rows, 2 * TAMPER_RULES_MAX) > row);
    return rows[row].counts;
}

/* ---- frames ---- */

#define ETH 14

struct frame {
    int family;
    uint8_t proto; /* TCP: 6 */
    unsigned payload;
    uint32_t seq;
    uint16_t sport, dport;
    uint8_t flags;
    uint8_t host; /* last byte of the source address; the destination's is 200 */
};

static inline uint32_t add_words(uint32_t sum, const uint8_t *p, unsigned n)
{
    unsigned i;

    for (i = 0; i < n; i++)
        sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* The bytes of a frame in one piece. */
static inline unsigned flat(const struct rte_mbuf *m, uint8_t *buf, unsigned size)
{
    unsigned n = 0;

    assert_true(m->pkt_len <= size);
    for (; m; m = m->next) {
        memcpy(buf + n, rte_pktmbuf_mtod(m, uint8_t *), m->data_len);
        n += m->data_len;
    }
    return n;
}

static inline unsigned ip_size(const uint8_t *p)
{
    return p[ETH] >> 4 == 4 ? 20 : 40;
}

/* One's complement sum of an L4 part of len bytes with its pseudo header (RFC 9293 §3.1, RFC 8200
 * §8.1); 0xffff: the checksum in it is right. */
static inline uint32_t l4_sum_of(const uint8_t *p, unsigned len)
{
    unsigned ip = ip_size(p);
    uint32_t sum = len + (ip == 20 ? p[ETH + 9] : p[ETH + 6]);

    sum = ip == 20 ? add_words(sum, p + ETH + 12, 8) : add_words(sum, p + ETH + 8, 32);
    return add_words(sum, p + ETH + ip, len);
}

static inline uint16_t word_at(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t long_at(const uint8_t *p)
{
    return (uint32_t)word_at(p) << 16 | word_at(p + 2);
}

static inline void put_word(uint8_t *p, unsigned value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

/* Whether the checksums of a frame in one piece are right and its length is what IP says. */
static inline bool sums_right(const uint8_t *p, unsigned n)
{
    unsigned ip = ip_size(p);
    unsigned total = ip == 20 ? word_at(p + ETH + 2) : 40u + word_at(p + ETH + 4);

    return total + ETH == n && (ip == 40 || add_words(0, p + ETH, 20) == 0xffff) &&
           l4_sum_of(p, total - ip) == 0xffff;
}

/* A frame of TCP as it is on the wire. */
static inline unsigned frame_bytes(const struct frame *f, uint8_t *p)
{
    unsigned ip = f->family == 6 ? 40 : 20, len = 32 + f->payload, i;
    uint8_t *tcp = p + ETH + ip;

    memset(p, 0, ETH + ip + 32);
    put_word(p + 12, f->family == 6 ? 0x86dd : 0x0800);
    if (f->family == 6) {
        p[ETH] = 0x60;
        put_word(p + ETH + 4, len);
        p[ETH + 6] = f->proto;
        p[ETH + 8] = p[ETH + 24] = 0xfd;
        p[ETH + 23] = f->host;
        p[ETH + 39] = 200;
    } else {
        p[ETH] = 0x45;
        put_word(p + ETH + 2, ip + len);
        put_word(p + ETH + 4, 0x1234);
        p[ETH + 8] = 64;
        p[ETH + 9] = f->proto;
        p[ETH + 12] = p[ETH + 16] = 10;
        p[ETH + 15] = f->host;
        p[ETH + 19] = 200;
        put_word(p + ETH + 10, ~add_words(0, p + ETH, 20));
    }
    put_word(tcp, f->sport);
    put_word(tcp + 2, f->dport);
    put_word(tcp + 4, f->seq >> 16);
    put_word(tcp + 6, f->seq);
    tcp[12] = 0x80;
    tcp[13] = f->flags;
    memset(tcp + 20, 1, 12); /* NOPs */
    for (i = 0; i < f->payload; i++)
        tcp[32 + i] = (uint8_t)(f->seq + i);
    put_word(tcp + 16, ~l4_sum_of(p, len));
    return ETH + ip + len;
}

static inline struct rte_mbuf *mbuf_of(const uint8_t *p, unsigned n, unsigned first)
{
    struct rte_mbuf *m = NULL, *last = NULL, *seg;
    unsigned at = 0;

    while (at < n) {
        unsigned part = at == 0 && first ? first : rte_pktmbuf_data_room_size(pool) / 2u;

        part = part < n - at ? part : n - at;
        seg = rte_pktmbuf_alloc(pool);
        assert_non_null(seg);
        memcpy(rte_pktmbuf_append(seg, (uint16_t)part), p + at, part);
        if (m) {
            last->next = seg;
            m->pkt_len += part;
            m->nb_segs++;
        } else {
            m = seg;
        }
        last = seg;
        at += part;
    }
    return m;
}

static inline struct rte_mbuf *frame_of(struct frame f)
{
    static uint8_t buf[70000];

    f.family = f.family ? f.family : 4;
    f.proto = f.proto ? f.proto : 6;
    f.sport = f.sport ? f.sport : 1023;
    f.dport = f.dport ? f.dport : 988;
    return mbuf_of(buf, frame_bytes(&f, buf), 0);
}

static inline uint32_t seq_of(const struct rte_mbuf *m)
{
    uint8_t buf[70000];

    flat(m, buf, sizeof(buf));
    return long_at(buf + ETH + ip_size(buf) + 4);
}

/* ---- bursts ---- */

static inline void bring(struct rte_mbuf *m)
{
    assert_true(wire.nin < WIRE_MAX);
    wire.in[wire.nin++] = m;
}

/* Receives until nothing is due any more, into wire.out. */
static inline unsigned receive(unsigned queue)
{
    struct rte_mbuf *pkts[PORT_BURST];
    unsigned got, all = 0;

    do {
        got = port.faults ? port_tamper_rx(port.faults, queue, pkts, PORT_BURST, plain_rx)
                          : plain_rx(&port, queue, pkts, PORT_BURST);
        memcpy(wire.out + wire.nout, pkts, got * sizeof(pkts[0]));
        wire.nout += got;
        all += got;
    } while (got > 0 || wire.nin > 0);
    return all;
}

static inline unsigned transmit(unsigned queue, struct rte_mbuf *m)
{
    return port_tamper_tx(port.faults, queue, &m, m ? 1 : 0, plain_tx);
}

#endif
