/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of ports share: frames made by hand, a port opened or the test failed. */
#ifndef MILLRACE_PORT_TEST_H
#define MILLRACE_PORT_TEST_H

#include "reactor_test.h"

#include <string.h>

#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd_eth/port/port.h"
#include "lib/reactor/mem_hold.h"
#include "lib/reactor/mem_mbuf.h"

static struct err err __rte_unused;

/* One's complement sum by the definition: big-endian words, an odd byte is the upper half. */
static inline uint16_t naive_sum(const uint8_t *p, size_t len, uint32_t sum)
{
    for (size_t i = 0; i < len; i++)
        sum += i % 2 == 0 ? (uint32_t)p[i] << 8 : p[i];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static inline void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline unsigned get16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

/* The sum of the pseudo header of a packet of ours, with this as its length. */
static inline uint16_t pseudo4(const uint8_t *ip, unsigned len)
{
    return naive_sum(ip + 12, 8, ip[9] + len);
}

static inline uint16_t pseudo6(const uint8_t *ip, unsigned len)
{
    return naive_sum(ip + 8, 32, ip[6] + len);
}

#define FRAME_MAX   66000
#define FRAME_HEAD4 (14 + 20 + 20)
#define FRAME_HEAD6 (14 + 40 + 20)

static inline uint8_t pattern(unsigned seed, size_t i)
{
    return (uint8_t)(seed * 131 + i * 7 + (i >> 8) * 13);
}

/* A TCP segment in a frame of that payload length, all sums right unless partial: then the TCP
 * header has the pseudo header's alone, with the length if so wanted. Returns the frame's length.
 */
enum frame_sum {
    SUM_WHOLE,
    SUM_PSEUDO,
    SUM_PSEUDO_NO_LENGTH,
};
static inline size_t frame_make(uint8_t *f, bool v6, size_t payload, unsigned seed,
                                enum frame_sum kind)
{
    uint8_t *ip = f + 14, *tcp = ip + (v6 ? 40 : 20);
    size_t l4 = 20 + payload, len = (size_t)(tcp - f) + l4;
    uint16_t pseudo;

    memset(f, 0, (size_t)(tcp - f) + 20);
    memset(f, 0x02, 6);
    memset(f + 6, 0x04, 6);
    put16(f + 12, v6 ? 0x86dd : 0x0800);
    if (v6) {
        ip[0] = 0x60;
        put16(ip + 4, (unsigned)l4);
        ip[6] = 6;
        ip[7] = 64;
        memcpy(ip + 8, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
        memcpy(ip + 24, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
    } else {
        ip[0] = 0x45;
        put16(ip + 2, (unsigned)(20 + l4));
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = 6;
        memcpy(ip + 12, "\x0a\0\0\1\x0a\0\0\2", 8);
        put16(ip + 10, (uint16_t)~naive_sum(ip, 20, 0));
    }
    put16(tcp, 988);
    put16(tcp + 2, 1023);
    put16(tcp + 4, seed);
    tcp[12] = 0x50;
    tcp[13] = 0x10;
    put16(tcp + 14, 8192);
    for (size_t i = 0; i < payload; i++)
        tcp[20 + i] = pattern(seed, i);
    pseudo = v6 ? pseudo6(ip, kind == SUM_PSEUDO_NO_LENGTH ? 0 : (unsigned)l4)
                : pseudo4(ip, kind == SUM_PSEUDO_NO_LENGTH ? 0 : (unsigned)l4);
    put16(tcp + 16, kind == SUM_WHOLE ? (uint16_t)~naive_sum(tcp, l4, pseudo) : pseudo);
    return len;
}

/* The frame as a chain: headers in the port's own buffer, the rest in pieces of that size (0: in
 * one), from another pool. */
static inline struct rte_mbuf *chain_make(struct port *port, struct rte_mempool *pool,
                                          const uint8_t *f, size_t head, size_t len, size_t piece)
{
    struct rte_mbuf *m = port_tx_alloc(port), *last = m;

    assert_non_null(m);
    memcpy(rte_pktmbuf_append(m, (uint16_t)head), f, head);
    piece = piece == 0 ? len : piece;
    for (size_t at = head; at < len;) {
        struct rte_mbuf *s = rte_pktmbuf_alloc(pool);
        size_t part = min(len - at, piece);

        assert_non_null(s);
        part = min(part, (size_t)rte_pktmbuf_tailroom(s));
        memcpy(rte_pktmbuf_append(s, (uint16_t)part), f + at, part);
        at += part;
        last->next = s;
        last = s;
        m->nb_segs++;
        m->pkt_len += (uint32_t)part;
    }
    m->l2_len = 14;
    m->l3_len = head == FRAME_HEAD6 ? 40 : 20;
    m->l4_len = 20;
    m->ol_flags |=
        head == FRAME_HEAD6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
    return m;
}

/* The same, but its payload is in a landing buffer, to which external mbufs of the port refer. */
static inline struct rte_mbuf *chain_landing(struct port *port, const struct mem_pool *pool,
                                             uint8_t *buffer, const uint8_t *f, size_t head,
                                             size_t len, size_t piece)
{
    struct rte_mbuf *m = chain_make(port, NULL, f, head, head, 0), *last = m;

    memcpy(buffer, f + head, len - head);
    for (size_t at = head; at < len;) {
        struct rte_mbuf *s = port_tx_alloc(port);
        uint16_t part = (uint16_t)min(len - at, piece);
        uint8_t *addr = buffer + (at - head);
        struct rte_mbuf_ext_shared_info *info = mem_hold_of(pool->region, addr, part);

        assert_non_null(s);
        assert_non_null(info);
        rte_mbuf_ext_refcnt_update(info, 1);
        rte_pktmbuf_attach_extbuf(s, addr, mem_hold_iova(pool->region, addr), part, info);
        s->data_len = part;
        at += part;
        last->next = s;
        last = s;
        m->nb_segs++;
        m->pkt_len += part;
    }
    return m;
}

/* The bytes of a chain in one place; also that the chain is sound. */
static inline size_t chain_read(const struct rte_mbuf *m, uint8_t *out)
{
    size_t len = 0;
    unsigned segs = 0;

    for (const struct rte_mbuf *s = m; s; s = s->next, segs++) {
        memcpy(out + len, rte_pktmbuf_mtod(s, const void *), s->data_len);
        len += s->data_len;
    }
    assert_int_equal(segs, m->nb_segs);
    assert_int_equal(len, m->pkt_len);
    return len;
}

/* The same of a received frame, which has its headers in one piece. */
static inline size_t frame_read(const struct rte_mbuf *m, uint8_t *out)
{
    assert_true(m->data_len >= min(m->pkt_len, (uint32_t)PKT_HEADERS));
    return chain_read(m, out);
}

static inline void pools_are_full(const struct port *port)
{
    assert_true(rte_mempool_full(port->rx_small));
    assert_true(rte_mempool_full(port->rx_large));
    assert_true(rte_mempool_full(port->tx_pool));
    if (port->tx_linear)
        assert_true(rte_mempool_full(port->tx_linear));
}

#endif
