/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/ib_persona.h"

#include <stdio.h>
#include <string.h>

#define MAGIC 0x0be91b91u

/* ---- integers ---- */

struct out {
    uint8_t *at;
    bool big;
};

static void put(struct out *o, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        o->at[i] = (uint8_t)(v >> 8 * (o->big ? bytes - 1 - i : i));
    o->at += bytes;
}

static uint64_t get(const uint8_t **at, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)(*at)[i] << 8 * i;
    *at += bytes;
    return v;
}

/* ---- messages ---- */

static void put_lnet(struct out *o, const struct pe_lnet *h)
{
    bool big = o->big;

    o->big = false; /* §2.3: always little-endian */
    put(o, h->dest, 8);
    put(o, h->src, 8);
    put(o, h->dest_pid, 4);
    put(o, h->src_pid, 4);
    put(o, h->type, 4);
    put(o, h->len, 4);
    memcpy(o->at, h->body, sizeof(h->body));
    o->at += sizeof(h->body);
    o->big = big;
}

static void put_cookie(struct out *o, uint64_t cookie)
{
    memcpy(o->at, &cookie, 8); /* opaque: never turned round */
    o->at += 8;
}

static void put_rd(struct out *o, const struct pe_msg *m)
{
    put(o, m->key, 4);
    put(o, m->nfrags, 4);
    for (uint32_t i = 0; i < m->nfrags && i <= PE_FRAGS; i++) {
        put(o, m->frag[i].nob, 4);
        put(o, m->frag[i].addr, 8);
    }
}

static void put_body(struct out *o, const struct pe_msg *m)
{
    switch (m->type) {
    case PE_CONNREQ:
    case PE_CONNACK:
        put(o, m->depth, 2);
        put(o, m->frags, 2);
        put(o, m->size, 4);
        break;
    case PE_IMMEDIATE:
        put_lnet(o, &m->lnet);
        if (m->carried > 0)
            memcpy(o->at, m->payload, m->carried);
        o->at += m->carried;
        break;
    case PE_PUT_REQ:
        put_lnet(o, &m->lnet);
        put_cookie(o, m->cookie);
        break;
    case PE_GET_REQ:
        put_lnet(o, &m->lnet);
        put_cookie(o, m->cookie);
        put_rd(o, m);
        break;
    case PE_PUT_ACK:
        put_cookie(o, m->cookie);
        put_cookie(o, m->dst_cookie);
        put_rd(o, m);
        break;
    case PE_PUT_NAK:
    case PE_PUT_DONE:
    case PE_GET_DONE:
        put_cookie(o, m->cookie);
        put(o, (uint32_t)m->status, 4);
        break;
    default:
        break;
    }
}

size_t pe_encode(const struct pe_msg *m, uint8_t buf[PE_MSG])
{
    struct out o = {buf, m->big};
    size_t len;

    put(&o, m->magic != 0 ? m->magic : MAGIC, 4);
    put(&o, m->version != 0 ? m->version : 0x12, 2);
    put(&o, m->type, 1);
    put(&o, m->credits, 1);
    put(&o, 0, 4);
    put(&o, m->cksum, 4);
    put(&o, m->src, 8);
    put(&o, m->src_stamp, 8);
    put(&o, m->dst, 8);
    put(&o, m->dst_stamp, 8);
    put_body(&o, m);
    len = (size_t)(o.at - buf);
    o.at = buf + 8;
    put(&o, m->nob != 0 ? m->nob : len, 4);
    return len;
}

static void get_lnet(const uint8_t **at, struct pe_lnet *h)
{
    h->dest = get(at, 8);
    h->src = get(at, 8);
    h->dest_pid = (uint32_t)get(at, 4);
    h->src_pid = (uint32_t)get(at, 4);
    h->type = (uint32_t)get(at, 4);
    h->len = (uint32_t)get(at, 4);
    memcpy(h->body, *at, sizeof(h->body));
    *at += sizeof(h->body);
}

static uint64_t get_cookie(const uint8_t **at)
{
    uint64_t cookie;

    memcpy(&cookie, *at, 8);
    *at += 8;
    return cookie;
}

static bool get_rd(const uint8_t **at, const uint8_t *end, struct pe_msg *m)
{
    m->key = (uint32_t)get(at, 4);
    m->nfrags = (uint32_t)get(at, 4);
    if (m->nfrags == 0 || m->nfrags > PE_FRAGS || (size_t)(end - *at) < 12ul * m->nfrags)
        return false;
    for (uint32_t i = 0; i < m->nfrags; i++) {
        m->frag[i].nob = (uint32_t)get(at, 4);
        m->frag[i].addr = get(at, 8);
        if (m->frag[i].nob == 0)
            return false;
    }
    return true;
}

static unsigned least(uint8_t type)
{
    switch (type) {
    case PE_CONNREQ:
    case PE_CONNACK:
        return 56;
    case PE_NOOP:
        return 48;
    case PE_IMMEDIATE:
        return 120;
    case PE_PUT_REQ:
        return 128;
    case PE_PUT_ACK:
        return 72;
    case PE_GET_REQ:
        return 136;
    case PE_PUT_NAK:
    case PE_PUT_DONE:
    case PE_GET_DONE:
        return 60;
    default:
        return UINT32_MAX;
    }
}

static bool get_body(const uint8_t *at, const uint8_t *end, struct pe_msg *m)
{
    switch (m->type) {
    case PE_CONNREQ:
    case PE_CONNACK:
        m->depth = (uint16_t)get(&at, 2);
        m->frags = (uint16_t)get(&at, 2);
        m->size = (uint32_t)get(&at, 4);
        return true;
    case PE_IMMEDIATE:
        get_lnet(&at, &m->lnet);
        m->payload = at;
        m->carried = (uint32_t)(end - at);
        return m->carried == m->lnet.len;
    case PE_PUT_REQ:
        get_lnet(&at, &m->lnet);
        m->cookie = get_cookie(&at);
        return true;
    case PE_GET_REQ:
        get_lnet(&at, &m->lnet);
        m->cookie = get_cookie(&at);
        return get_rd(&at, end, m);
    case PE_PUT_ACK:
        m->cookie = get_cookie(&at);
        m->dst_cookie = get_cookie(&at);
        return get_rd(&at, end, m);
    case PE_PUT_NAK:
    case PE_PUT_DONE:
    case PE_GET_DONE:
        m->cookie = get_cookie(&at);
        m->status = (int32_t)get(&at, 4);
        return true;
    default:
        return true;
    }
}

bool pe_decode(const uint8_t *buf, size_t len, struct pe_msg *m)
{
    const uint8_t *at = buf;

    if (len < 48)
        return false;
    m->big = false;
    m->magic = (uint32_t)get(&at, 4);
    m->version = (uint16_t)get(&at, 2);
    m->type = (uint8_t)get(&at, 1);
    m->credits = (uint8_t)get(&at, 1);
    m->nob = (uint32_t)get(&at, 4);
    m->cksum = (uint32_t)get(&at, 4);
    m->src = get(&at, 8);
    m->src_stamp = get(&at, 8);
    m->dst = get(&at, 8);
    m->dst_stamp = get(&at, 8);
    if (m->magic != MAGIC || m->version != 0x12 || m->nob > len || m->nob < least(m->type))
        return false;
    return get_body(at, buf + m->nob, m);
}

uint8_t pe_type_of(const uint8_t *buf)
{
    return buf[6];
}

uint32_t pe_cksum(const uint8_t *buf, size_t len)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < len; i++)
        sum = (sum << 1 | sum >> 31) + (i >= 12 && i < 16 ? 0 : buf[i]);
    return sum != 0 ? sum : 1;
}

/* ---- rejects ---- */

size_t pe_reject_encode(const struct pe_reject *r, uint8_t buf[24])
{
    struct out o = {buf, false};

    put(&o, r->magic != 0 ? r->magic : MAGIC, 4);
    put(&o, r->version != 0 ? r->version : 0x12, 2);
    put(&o, r->why, 1);
    put(&o, 0, 1);
    put(&o, r->stamp, 8);
    put(&o, r->depth, 2);
    put(&o, r->frags, 2);
    put(&o, r->size != 0 ? r->size : PE_MSG, 4);
    return 24;
}

bool pe_reject_decode(const uint8_t *buf, size_t len, struct pe_reject *r)
{
    const uint8_t *at = buf;

    if (len < 24)
        return false;
    r->magic = (uint32_t)get(&at, 4);
    r->version = (uint16_t)get(&at, 2);
    r->why = (uint8_t)get(&at, 1);
    get(&at, 1);
    r->stamp = get(&at, 8);
    r->depth = (uint16_t)get(&at, 2);
    r->frags = (uint16_t)get(&at, 2);
    r->size = (uint32_t)get(&at, 4);
    return r->magic == MAGIC;
}

uint64_t pe_nid(const char *address)
{
    unsigned a = 0, b = 0, c = 0, d = 0;

    sscanf(address, "%u.%u.%u.%u", &a, &b, &c, &d);
    return 5ull << 48 | (uint64_t)(a << 24 | b << 16 | c << 8 | d);
}
