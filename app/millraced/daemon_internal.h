/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the daemon. */
#ifndef MILLRACE_DAEMON_INTERNAL_H
#define MILLRACE_DAEMON_INTERNAL_H

#include "app/millraced/daemon.h"
#include "lib/lnd_eth/lnd_eth.h"

/* EAL memory a configuration needs, in MiB. */
struct daemon_memory {
    unsigned landing, local; /* arena of the node */
    unsigned overhead;       /* DPDK's and the reactors' own */
    unsigned total;
};

void daemon_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts);
void daemon_memory(const struct cfg *cfg, struct daemon_memory *out);
/* What --memory should be but is not; false with a sentence. */
bool daemon_memory_enough(const struct cfg *cfg, char *err, size_t errlen);
/* The driver of a net in this program; NULL when there is none. */
const struct lnd_ops *daemon_driver(lnet_net_t net);

/* Logs drop reasons whose count has grown, one line each per second. */
struct drop_watch;
struct drop_watch *drop_watch_start(struct lnet_node *node); /* NULL: out of memory */
void drop_watch_stop(struct drop_watch *watch);

#endif
