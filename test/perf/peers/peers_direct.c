/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One source and one target without a router between: each is the other's gateway, and the target
 * accepts the connections of the source instead of connecting. The difference to a run with a
 * router is the cost of the router. docs/protocol/socklnd.md §2.2, §2.4.
 */
#include "test/perf/peers/peers.h"

#include <errno.h>

/* The order in which peer.conn is made is the caller's; what is bulk in to it is bulk out to us. */
static const uint8_t place_of[PEER_CONNS] = {0, 2, 1};
static const enum sock_ctype type_of[PEER_CONNS] = {SOCK_CTYPE_CONTROL, SOCK_CTYPE_BULK_IN,
                                                    SOCK_CTYPE_BULK_OUT};

bool peers_are_direct(const struct peers *e)
{
    const struct peers_side *a = &e->side[0], *b = &e->side[1];

    return e->sides == 2 && a->range.count == 1 && b->range.count == 1 &&
           nid_same(&a->gateway, &b->range.first) && nid_same(&b->gateway, &a->range.first);
}

static void accepted(void *user, struct stream *s, const union stream_addr *from)
{
    struct peers *e = user;
    struct peer *p = &e->side[1].peer[0];
    struct peer_conn *c = NULL;
    unsigned i = 0;

    while (i < PEER_CONNS && p->conn[place_of[i]].stream)
        i++;
    if (i == PEER_CONNS || p->state != PEER_DIALS ||
        from->in.sin_addr.s_addr != p->e->side[1].gateway.addr_be[0]) {
        s->ops->close(s, true);
        return;
    }
    c = &p->conn[place_of[i]];
    memset(c, 0, sizeof(*c));
    TAILQ_INIT(&c->queue);
    c->peer = p;
    c->type = type_of[place_of[i]];
    c->window = STREAM_FIRST_WINDOW;
    c->called = true;
    c->stream = s;
    if (s->ops->attach(s, &peers_events, c) != 0) {
        peer_fail(p, SOCK_DROP(NO_MEMORY), false);
        return;
    }
    peers_events.readable(c);
}

int peers_direct_start(struct peers *e)
{
    union stream_addr addr = {.in = {.sin_family = AF_INET,
                                     .sin_port = htons(SOCK_ACCEPTOR_PORT),
                                     .sin_addr = {e->side[1].range.first.addr_be[0]}}};

    if (!e->direct)
        return 0;
    return e->transport.ops->listen(e->transport.ctx, &addr, e->side[1].ifname, e->base.home,
                                    accepted, e, &e->listener);
}

void peers_direct_stop(struct peers *e)
{
    if (e->listener)
        e->transport.ops->unlisten(e->listener);
    e->listener = NULL;
}
