/* SPDX-License-Identifier: BSD-3-Clause */
/* A node with a peer on each of two nets, whose messages fail as a test wants. */
#ifndef MILLRACE_LNET_HEALTH_TEST_H
#define MILLRACE_LNET_HEALTH_TEST_H

#include "test/unit/lnet_push_test.h"

#include "lib/lnet/health/health.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

static inline struct lnet_result failure(enum lnet_health health)
{
    return (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, health};
}

static struct lnet_nid from_nid, to_nid; /* on tcp0 and on tcp1 */

static inline void health_up(bool routing)
{
    struct lnet_node_opts o = opts_default();

    o.routing = routing;
    health_counts = true;
    node_up(o);
    from_nid = peer_on(0, 0, "tcp", 0);
    to_nid = peer_on(nreactors - 1, 1, "tcp1", 0);
}

static inline unsigned health_of(struct lnet_nid nid)
{
    const struct lnet_peer_ni *p = peer_find(&nid);

    assert_non_null(p);
    return p->health;
}

/* A forwarded message whose send ends so. */
static inline void forward(struct lnet_result result)
{
    loop.send_result = result;
    arrive(tcp0, from_nid, hdr_of(LNET_MSG_PUT, from_nid, to_nid, 100));
    settle();
    loop.send_result = ok;
}

static inline void set_peer(struct lnet_nid nid, int health)
{
    struct lnet_peer_ni *p;

    ON(home_of(&nid), p = lnet_peer_ni_get(node, &nid));
    ON(home_of(&nid), lnet_health_peer_set(p, (unsigned)health, LNET_CAUSE_COMMAND));
    ON(home_of(&nid), lnet_peer_ni_put(p));
    settle();
}

#endif
