/* SPDX-License-Identifier: BSD-3-Clause */
/* The user of the stack's streams: what socklnd is in the router. */
#include "test/tcp/run.h"

#include "lib/reactor/mem_mbuf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct stream_events events;

/* ---- events ---- */

static void on_connected(void *user)
{
    ((struct chan *)user)->connected++;
}

static void on_readable(void *user)
{
    ((struct chan *)user)->readable++;
}

static void on_writable(void *user)
{
    ((struct chan *)user)->writable++;
}

static void on_acked(void *user)
{
    ((struct chan *)user)->acked++;
}

static void on_closed(void *user, enum stream_end end)
{
    struct chan *c = user;

    c->closed++;
    c->end = end;
    run_trace(c->run, "%10.6f %s user is told of the end %d",
              (double)(c->run->w.now_us - WORLD_START_US) / 1e6, c->name, end);
    if (c->close_in_closed && c->s) {
        c->s->ops->close(c->s, false);
        c->s = NULL;
    }
}

static const struct stream_events events = {
    .connected = on_connected,
    .readable = on_readable,
    .writable = on_writable,
    .acked = on_acked,
    .closed = on_closed,
};

static void on_accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    struct run *r = user;
    uint16_t port =
        rte_be_to_cpu_16(peer->sa.sa_family == AF_INET ? peer->in.sin_port : peer->in6.sin6_port);
    struct chan *c = NULL;

    for (unsigned i = 0; i < r->chans; i++)
        if (r->chan[i].peer_port == port && !r->chan[i].s && !r->chan[i].accepted)
            c = &r->chan[i];
    if (!c) {
        run_trace(r, "a connection from port %u was accepted that no line speaks of", port);
        s->ops->close(s, true);
        return;
    }
    c->accepted = s;
    c->accepted_peer = *peer;
}

/* ---- addresses ---- */

static void address(const struct run *r, const struct inet_addr *a, uint8_t host, uint16_t port,
                    union stream_addr *out)
{
    memset(out, 0, sizeof(*out));
    if (r->ip6) {
        out->in6.sin6_family = AF_INET6;
        memcpy(&out->in6.sin6_addr, a->b, 16);
        out->in6.sin6_addr.s6_addr[15] = host;
        out->in6.sin6_port = rte_cpu_to_be_16(port);
    } else {
        out->in.sin_family = AF_INET;
        memcpy(&out->in.sin_addr, a->b + 12, 4);
        ((uint8_t *)&out->in.sin_addr)[3] = host;
        out->in.sin_port = rte_cpu_to_be_16(port);
    }
}

/* ---- verbs ---- */

static bool do_listen(struct run *r)
{
    const struct inet_addr *own = world_own(&r->w, r->ip6);
    union stream_addr addr;
    int64_t port = 988;
    int rc;

    if (r->line->words > 1 && !run_number(r, 1, &port))
        return false;
    if (r->listeners == 4)
        return run_fail(r, "too many listeners");
    address(r, own, own->b[15], (uint16_t)port, &addr);
    reactor_bind(r->w.control);
    rc = stream_tcp.listen(r->w.tcp, &addr, "p0", r->w.reactor, on_accepted, r,
                           &r->listener[r->listeners]);
    reactor_bind(r->w.reactor);
    world_settle(&r->w);
    if (rc != 0)
        return run_fail(r, "listen() returned %d", rc);
    r->listeners++;
    return true;
}

static bool do_unlisten(struct run *r)
{
    if (r->listeners == 0)
        return run_fail(r, "nobody listens");
    stream_tcp.unlisten(r->listener[--r->listeners]);
    world_settle(&r->w);
    return true;
}

/* connect [tos N] [fails ERRNO] */
static bool do_connect(struct run *r)
{
    const struct inet_addr *own = world_own(&r->w, r->ip6), *peer = world_peer(&r->w, r->ip6);
    struct chan *c = r->c;
    union stream_addr local, remote;
    int64_t tos = -1, fails = 0;
    int rc;

    if (c->s)
        return run_fail(r, "this connection has a stream");
    for (unsigned i = 1; i + 1 < r->line->words; i += 2)
        if (!run_number(r, i + 1, strcmp(r->line->word[i], "tos") == 0 ? &tos : &fails))
            return false;
    if (!c->own_known && c->own_port == 988) {
        c->own_port = 1023;
        c->peer_port = 988;
    }
    address(r, own, own->b[15], c->own_port, &local);
    address(r, peer, c->host, c->peer_port, &remote);
    rc = stream_tcp.connect(r->w.tcp, &local, "p0", &remote, (int)tos, &events, c, &c->s);
    if (rc != -(int)fails)
        return run_fail(r, "connect() returned %d", rc);
    if (rc != 0)
        c->s = NULL;
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

static bool do_accept(struct run *r)
{
    const struct inet_addr *peer = world_peer(&r->w, r->ip6);
    struct chan *c = r->c;
    union stream_addr addr;
    int rc;

    if (!c->accepted)
        return run_fail(r, "no connection was accepted");
    address(r, peer, c->host, c->peer_port, &addr);
    if (memcmp(&addr, &c->accepted_peer, r->ip6 ? sizeof(addr.in6) : sizeof(addr.in)) != 0)
        return run_fail(r, "accepted() names another peer");
    c->s = c->accepted;
    c->accepted = NULL;
    rc = c->s->ops->attach(c->s, &events, c);
    if (rc != 0)
        return run_fail(r, "attach() returned %d", rc);
    world_settle(&r->w);
    return true;
}

/* Segments of bytes of the pattern from the offset on, within memory of a region. */
static struct mem_seg piece(const struct run *r, uint64_t offset, uint32_t len, bool copy)
{
    return (struct mem_seg){.addr = r->memory + offset % PATTERN_PERIOD,
                            .len = len,
                            .region = copy ? MEM_REGION_NONE : r->region};
}

/* The same in buffers of a device's pool, which stay the user's until the case ends. */
static bool piece_by_reference(struct run *r, uint64_t offset, uint32_t len, struct mem_seg *out)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(r->w.port->rx_small);
    uint8_t *at = m ? (uint8_t *)rte_pktmbuf_append(m, (uint16_t)len) : NULL;

    if (!at || r->held == HELD_MAX)
        return run_fail(r, "no buffer of that size");
    for (uint32_t i = 0; i < len; i++)
        at[i] = pattern_at(offset + i);
    r->hold[r->held++] = m;
    *out =
        (struct mem_seg){.addr = at, .len = len, .region = mem_mbufs_region(r->w.port->rx_small)};
    return true;
}

/* send N [copy] [ref] [more] [segs K] [takes A..B] */
static bool do_send(struct run *r)
{
    struct chan *c = r->c;
    int64_t n, least = -1, most = -1, segs = 1;
    bool copy = false, more = false, ref = false;
    struct mem_seg seg[16];
    ssize_t rc;

    if (!run_number(r, 1, &n) || n <= 0)
        return run_fail(r, "`send` wants a number of bytes");
    for (unsigned i = 2; i < r->line->words; i++) {
        const char *w = r->line->word[i];

        if (strcmp(w, "copy") == 0)
            copy = true;
        else if (strcmp(w, "more") == 0)
            more = true;
        else if (strcmp(w, "ref") == 0)
            ref = true;
        else if (strcmp(w, "segs") == 0 && !run_number(r, ++i, &segs))
            return false;
        else if (strcmp(w, "takes") == 0 &&
                 (++i >= r->line->words || !script_range(r->line, r->line->word[i], &least, &most)))
            return run_fail(r, "`takes` wants numbers");
    }
    if (n > (int64_t)PATTERN_PERIOD || segs < 1 || segs > 16 || !c->s)
        return run_fail(r, "cannot be sent in one call");
    for (int64_t i = 0; i < segs; i++) {
        int64_t from = n * i / segs, to = n * (i + 1) / segs;

        seg[i] = piece(r, c->sent + (uint64_t)from, (uint32_t)(to - from), copy);
        if (ref && !piece_by_reference(r, c->sent + (uint64_t)from, seg[i].len, &seg[i]))
            return false;
    }
    rc = c->s->ops->send(c->s, seg, (unsigned)segs, more);
    if (rc < (least >= 0 ? least : n) || rc > (most >= 0 ? most : n))
        return run_fail(r, "send() returned %zd", rc);
    c->sent += (uint64_t)rc;
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

static bool right_bytes(struct run *r, const uint8_t *p, size_t n, uint64_t offset)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != pattern_at(offset + i))
            return run_fail(r, "byte %" PRIu64 " of the stream is not what the peer sent",
                            offset + i);
    return true;
}

/* read N [keep]: takes exactly N; `read all`: what there is. */
static bool do_read(struct run *r)
{
    struct chan *c = r->c;
    bool all = r->line->words > 1 && strcmp(r->line->word[1], "all") == 0;
    bool keep = r->line->words > 2 && strcmp(r->line->word[2], "keep") == 0;
    int64_t n = INT32_MAX, got = 0;

    if (!all && !run_number(r, 1, &n))
        return false;
    while (got < n) {
        struct mem_seg segs[8];
        unsigned nsegs = 0;
        size_t truesize = 0;
        size_t rc = c->s->ops->take(c->s, (size_t)(n - got), segs, 8, &nsegs, &truesize), sum = 0;

        if (rc == 0)
            break;
        for (unsigned i = 0; i < nsegs; i++) {
            if (!right_bytes(r, segs[i].addr, segs[i].len, c->read + sum))
                return false;
            sum += segs[i].len;
        }
        if (sum != rc || truesize < rc)
            return run_fail(r, "take() returned %zu, its segments hold %zu, memory %zu", rc, sum,
                            truesize);
        if (keep && c->kept + nsegs <= KEEP_MAX) {
            memcpy(c->keep + c->kept, segs, nsegs * sizeof(*segs));
            c->kept += nsegs;
        } else {
            c->s->ops->give_back(segs, nsegs);
        }
        c->read += rc;
        got += (int64_t)rc;
    }
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    if (!all && got != n)
        return run_fail(r, "only %" PRId64 " bytes could be read", got);
    return true;
}

static bool do_give_back(struct run *r)
{
    stream_tcp.give_back(r->c->keep, r->c->kept);
    r->c->kept = 0;
    return true;
}

/* peek N [gets M] */
static bool do_peek(struct run *r)
{
    struct chan *c = r->c;
    const uint8_t *p = NULL;
    int64_t n, gets;
    size_t rc;

    if (!run_number(r, 1, &n))
        return false;
    gets = n;
    if (r->line->words > 3 && !run_number(r, 3, &gets))
        return false;
    rc = c->s->ops->peek(c->s, (size_t)n, &p);
    if ((int64_t)rc != gets)
        return run_fail(r, "peek() returned %zu", rc);
    return right_bytes(r, p, rc, c->read);
}

static bool do_skip(struct run *r)
{
    int64_t n;

    if (!run_number(r, 1, &n))
        return false;
    r->c->s->ops->skip(r->c->s, (size_t)n);
    r->c->read += (uint64_t)n;
    world_settle(&r->w);
    return true;
}

/* window BYTES [mem BYTES] */
static bool do_window(struct run *r)
{
    int64_t bytes, memory;

    if (!run_number(r, 1, &bytes))
        return false;
    memory = bytes * 4 + 65536;
    if (r->line->words > 3 && !run_number(r, 3, &memory))
        return false;
    r->c->s->ops->rx_window(r->c->s, (size_t)bytes, (size_t)memory);
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

static bool do_close(struct run *r, bool abort)
{
    struct chan *c = r->c;

    if (!c->s)
        return run_fail(r, "this connection has no stream");
    c->s->ops->close(c->s, abort);
    c->s = NULL;
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

static bool do_established(struct run *r)
{
    int64_t tos = -1;

    if (r->line->words > 2 && !run_number(r, 2, &tos))
        return false;
    r->c->s->ops->established(r->c->s, (int)tos);
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

static bool do_attach(struct run *r)
{
    int rc = r->c->s->ops->attach(r->c->s, &events, r->c);

    world_settle(&r->w);
    return rc == 0 || run_fail(r, "attach() returned %d", rc);
}

static bool stream_verb(struct run *r, const char *v, bool *known)
{
    struct chan *c = r->c;

    if (strcmp(v, "send") == 0)
        return do_send(r);
    if (strcmp(v, "read") == 0)
        return do_read(r);
    if (strcmp(v, "peek") == 0)
        return do_peek(r);
    if (strcmp(v, "skip") == 0)
        return do_skip(r);
    if (strcmp(v, "window") == 0)
        return do_window(r);
    if (strcmp(v, "established") == 0)
        return do_established(r);
    if (strcmp(v, "attach") == 0)
        return do_attach(r);
    if (strcmp(v, "detach") == 0 || strcmp(v, "pause") == 0 || strcmp(v, "unpause") == 0) {
        if (v[0] == 'd')
            c->s->ops->detach(c->s);
        else
            c->s->ops->rx_pause(c->s, v[0] == 'p');
        world_settle(&r->w);
        return true;
    }
    *known = false;
    return true;
}

/* A connection of these addresses that a process before this one had. */
static bool do_end_old(struct run *r)
{
    struct tcp_pair pair = {.local = *world_own(&r->w, r->ip6),
                            .remote = *world_peer(&r->w, r->ip6),
                            .lport = r->c->own_port,
                            .rport = r->c->peer_port};

    pair.remote.b[15] = r->c->host;
    tcp_end_old(r->w.tcp, &pair);
    world_settle(&r->w);
    r->event_us = r->w.now_us;
    return true;
}

bool user_verb(struct run *r, bool *known)
{
    const char *v = r->line->word[0];

    *known = true;
    if (strcmp(v, "listen") == 0)
        return do_listen(r);
    if (strcmp(v, "unlisten") == 0)
        return do_unlisten(r);
    if (strcmp(v, "connect") == 0)
        return do_connect(r);
    if (strcmp(v, "end_old") == 0)
        return do_end_old(r);
    if (strcmp(v, "accept") == 0)
        return do_accept(r);
    if (strcmp(v, "close") == 0)
        return do_close(r, false);
    if (strcmp(v, "abort") == 0)
        return do_close(r, true);
    if (strcmp(v, "give_back") == 0)
        return do_give_back(r);
    if (strcmp(v, "close_in_closed") == 0) {
        r->c->close_in_closed = true;
        return true;
    }
    if (!r->c->s) {
        static const char *const need[] = {"send",   "read",   "peek",  "skip",    "window",
                                           "attach", "detach", "pause", "unpause", "established"};

        for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++)
            if (strcmp(v, need[i]) == 0)
                return run_fail(r, "this connection has no stream");
        *known = false;
        return true;
    }
    return stream_verb(r, v, known);
}

void user_end(struct run *r)
{
    for (unsigned i = 0; i < r->chans; i++) {
        struct chan *c = &r->chan[i];

        if (c->kept > 0)
            stream_tcp.give_back(c->keep, c->kept);
        if (c->accepted)
            c->accepted->ops->close(c->accepted, true);
        if (c->s)
            c->s->ops->close(c->s, true);
        c->s = c->accepted = NULL;
        c->kept = 0;
    }
    while (r->held > 0)
        rte_pktmbuf_free(r->hold[--r->held]);
    while (r->listeners > 0)
        stream_tcp.unlisten(r->listener[--r->listeners]);
    world_settle(&r->w);
}
