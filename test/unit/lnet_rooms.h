/* SPDX-License-Identifier: BSD-3-Clause */
/* The insides of all rooms of lib/lnet, for tests. The product's code includes only the public
 * headers of other rooms. */
#ifndef MILLRACE_LNET_ROOMS_H
#define MILLRACE_LNET_ROOMS_H

#include "lib/lnet/api/api_internal.h"
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/ping/ping_internal.h"
#include "lib/lnet/route/route_internal.h"
#include "lib/lnet/tx.h"

#include <errno.h>
#include <stdlib.h>

static inline int route_del(struct lnet_node *node, lnet_net_t net, const struct lnet_nid *gateway,
                            struct err *err)
{
    struct lnet_route_conf conf = {.net = net, .gateway = *gateway};

    return lnet_routes_change(node, &conf, 1, NULL, 0, NULL, err);
}

static inline unsigned rx_queue_length(const struct lnet_rx_queue *q)
{
    const struct lnet_rx *rx;
    unsigned n = 0;

    TAILQ_FOREACH(rx, q, queue)
        n++;
    return n;
}

/* All peer NIs, page by page; the last call has last = true. */
typedef void (*rows_fn)(void *arg, const struct lnet_peer_ni_row *rows, unsigned n, bool last);

struct all_rows {
    struct lnet_node *node;
    rows_fn fn;
    void *arg;
};

static inline void next_page(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                             const struct lnet_peer_ni_cursor *next)
{
    struct all_rows *all = arg;
    bool last = next->end;

    if (!last && lnet_peer_ni_page(all->node, next, 128, next_page, all))
        last = true; /* no memory: what was asked for ends here */
    all->fn(all->arg, rows, n, last);
    if (last)
        free(all);
}

static inline int peer_ni_rows(struct lnet_node *node, rows_fn fn, void *arg)
{
    const struct lnet_peer_ni_cursor begin = {0};
    struct all_rows *all = calloc(1, sizeof(*all));
    int rc = -ENOMEM;

    if (!all)
        return rc;
    *all = (struct all_rows){node, fn, arg};
    rc = lnet_peer_ni_page(node, &begin, 128, next_page, all);
    if (rc)
        free(all);
    return rc;
}

#endif
