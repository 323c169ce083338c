/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MILLRACE_CONTROL_DROP_WATCH_H
#define MILLRACE_CONTROL_DROP_WATCH_H

struct lnet_node;

/* Logs drop reasons whose count has grown, one line each per second. */
struct drop_watch;
struct drop_watch *drop_watch_start(struct lnet_node *node); /* NULL: out of memory */
/* Logs the drops of the last second, and the totals of all reasons since the start. */
void drop_watch_stop(struct drop_watch *watch);

#endif
