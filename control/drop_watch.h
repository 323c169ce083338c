/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MILLRACE_CONTROL_DROP_WATCH_H
#define MILLRACE_CONTROL_DROP_WATCH_H

struct control_event;
struct lnet_node;

/* Logs drop reasons whose count has grown, one line each per second, and reports one event "drops"
 * of each in a minute. */
struct drop_watch;
/* tell(arg, event) gets the events; it may be NULL. Returns NULL without memory. Control thread. */
struct drop_watch *drop_watch_start(struct lnet_node *node,
                                    void (*tell)(void *arg, const struct control_event *event),
                                    void *arg);
/* Logs the drops of the last second, and the totals of all reasons since the start. */
void drop_watch_stop(struct drop_watch *watch);

#endif
