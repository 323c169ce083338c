/* SPDX-License-Identifier: BSD-3-Clause */
/* One set of metrics: asks millraced by JSON-RPC. One thread. */
#ifndef MILLRACE_SCRAPE_H
#define MILLRACE_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/rpc_client.h"

enum scrape_client {
    SCRAPE_ALL,     /* for all methods but peer_top, which answers after some time */
    SCRAPE_BYTES,   /* peers with most traffic */
    SCRAPE_WAITING, /* peers with most waiting messages */
    SCRAPE_CLIENTS
};

struct scraper {
    const char *path;       /* of millraced's socket */
    unsigned peers, routes; /* that have metrics of their own, at most; peers 0: none */
    uint64_t scrapes;
    struct rpc_client *client[SCRAPE_CLIENTS]; /* of this scrape; NULL: not connected */
    double end;                                /* of this scrape, in s */
};

/* Returns a set of metrics, to be freed. Always gives one: with `millrace_up 0` where millraced
 * does not answer within the time. NULL: out of memory. */
struct metrics *scrape(struct scraper *s, double seconds);

#endif
