/* SPDX-License-Identifier: BSD-3-Clause */
/* Logs and reports the drop reasons whose count grew, with the newest example. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller.h"
#include "control/drop_watch.h"
#include "lib/base/minmax.h"
#include "lib/lnet/lnet.h"
#include "lib/log/log.h"

#define WATCH_US 1000000
#define TELL_US  60000000 /* between events of a reason: 1,024 events are kept of all */

struct drop_watch {
    struct reactor_timer timer; /* first: the callback gets it */
    struct lnet_node *node;
    uint64_t seen[LNET_DROP_COUNT];
    uint64_t told[LNET_DROP_COUNT];    /* the count at its last event */
    uint64_t tell_at[LNET_DROP_COUNT]; /* no event before, reactor_now_us() clock */
    enum lnet_drop first;              /* reason that the next look begins with; NONE: any */
    void (*tell)(void *arg, const struct control_event *event);
    void *arg;
};

static void tell_drop(struct drop_watch *w, enum lnet_drop reason, uint64_t total)
{
    const struct lnet_drop_info *info = lnet_drop_info(reason);
    struct lnet_drop_example example = {.seen = false};

    if (!w->tell || total <= w->told[reason] || reactor_now_us() < w->tell_at[reason])
        return;
    lnet_drop_example_get(w->node, reason, &example);
    w->tell(w->arg,
            &(struct control_event){.type = "drops",
                                    .cause = info->name,
                                    .text = info->text,
                                    .peer = example.seen && example.has_peer ? &example.peer : NULL,
                                    .count = total - w->told[reason]});
    w->told[reason] = total;
    w->tell_at[reason] = reactor_now_us() + TELL_US;
}

/* False: the log is limited now. */
static bool log_drop(struct drop_watch *w, enum lnet_drop reason, uint64_t more, uint64_t total)
{
    const struct lnet_drop_info *info = lnet_drop_info(reason);
    struct lnet_drop_example example = {.seen = false};
    char peer[LNET_NIDSTR_SIZE], src[LNET_NIDSTR_SIZE], dest[LNET_NIDSTR_SIZE];
    char code[24] = "";
    bool has_peer, has_hdr;

    lnet_drop_example_get(w->node, reason, &example);
    has_peer = example.seen && example.has_peer;
    has_hdr = example.seen && example.has_hdr;
    if (example.seen && example.why.code != 0)
        snprintf(code, sizeof(code), "%d", example.why.code);
    return log_event(info->kind == DROP_KIND_RETRY ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
                     LOG_MODULE_DROPS, "drop", LOG_S("drop", info->name), LOG_U("count", more),
                     LOG_U("total", total),
                     LOG_S("peer", has_peer ? nid_format(&example.peer, peer) : NULL),
                     LOG_S("src", has_hdr ? nid_format(&example.src, src) : NULL),
                     LOG_S("dest", has_hdr ? nid_format(&example.dest, dest) : NULL),
                     LOG_S("type", has_hdr ? lnet_msg_type_name(example.type) : NULL),
                     LOG_S("stage", example.why.stage), LOG_S("why", example.why.why),
                     LOG_S("code", code[0] ? code : NULL));
}

static enum lnet_drop next_of(enum lnet_drop d)
{
    d = lnet_drop_next(d);
    return d ? d : lnet_drop_next(LNET_DROP_NONE);
}

/* Returns whether the log took what is new of a reason. */
static bool look_at(struct drop_watch *w, enum lnet_drop d, uint64_t now)
{
    bool logged = now <= w->seen[d] || log_drop(w, d, now - w->seen[d], now);

    if (logged) /* counters may have been reset */
        w->seen[d] = now;
    w->told[d] = min(w->told[d], now);
    tell_drop(w, d, now);
    return logged;
}

/* A count that the log limit kept out becomes part of the next line. The next look begins with the
 * first of those, so that one host's drops hide no others. */
static void look(struct reactor_timer *timer)
{
    struct drop_watch *w = (struct drop_watch *)timer;
    enum lnet_drop first = w->first ? w->first : next_of(LNET_DROP_NONE), d = first;
    enum lnet_drop kept_out = LNET_DROP_NONE;
    uint64_t now[LNET_DROP_COUNT] = {0};

    lnet_drops_get(w->node, now);
    do {
        if (!look_at(w, d, now[d]) && !kept_out)
            kept_out = d;
        d = next_of(d);
    } while (d != first);
    w->first = kept_out;
    reactor_timer_arm(timer, WATCH_US);
}

struct drop_watch *drop_watch_start(struct lnet_node *node,
                                    void (*tell)(void *arg, const struct control_event *event),
                                    void *arg)
{
    struct drop_watch *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->node = node;
    w->tell = tell;
    w->arg = arg;
    reactor_timer_init(&w->timer, look);
    reactor_timer_arm(&w->timer, WATCH_US);
    return w;
}

/* Logs the totals of all reasons in as few lines as they need, so that the limit of the log cannot
 * hide one. */
static void log_totals(const struct drop_watch *w)
{
    uint64_t total[LNET_DROP_COUNT] = {0};
    char text[LOG_VALUE_MAX / 2];
    size_t len = 0;

    lnet_drops_get(w->node, total);
    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d)) {
        const char *name = lnet_drop_info(d)->name;

        if (total[d] == 0)
            continue;
        if (len + strlen(name) + 24 > sizeof(text)) {
            log_event(LOG_LEVEL_INFO, LOG_MODULE_DROPS, "drops_total", LOG_S("counts", text));
            len = 0;
        }
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %" PRIu64, len ? ", " : "",
                                name, total[d]);
    }
    if (len > 0)
        log_event(LOG_LEVEL_INFO, LOG_MODULE_DROPS, "drops_total", LOG_S("counts", text));
}

void drop_watch_stop(struct drop_watch *watch)
{
    if (!watch)
        return;
    reactor_timer_cancel(&watch->timer);
    look(&watch->timer); /* logs the drops of the last second */
    reactor_timer_cancel(&watch->timer);
    log_totals(watch);
    free(watch);
}
