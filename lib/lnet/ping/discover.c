/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/ping/discover.h"

#include <errno.h>

#include "lib/base/minmax.h"

static void clear(struct peer *p, uint32_t bits)
{
    p->state &= ~bits;
}

bool discover_needs_push(const struct peer *p, const struct discover_self *self)
{
    if (!(p->state & PEER_MULTI_RAIL) || p->state & PEER_PUSH_SENT)
        return false;
    if (p->state & PEER_FORCE_PUSH)
        return true;
    return !(p->state & PEER_NO_DISCOVERY) && self->discovery &&
           p->discovery.acked_seqno < self->seqno;
}

bool discover_is_uptodate(const struct peer *p, const struct discover_self *self)
{
    const uint32_t good = PEER_DISCOVERED | PEER_NIDS_UPTODATE;
    const uint32_t bad = PEER_DISCOVERING | PEER_FORCE_PING | PEER_FORCE_PUSH | PEER_REDISCOVER;

    return (p->state & (good | bad)) == good && !discover_needs_push(p, self);
}

/* ---- events ---- */

enum discover_kind discover_reply_kind(const struct lnet_ping_info *info)
{
    return info && !info->truncated ? DISCOVER_REPLY : DISCOVER_REPLY_BAD;
}

enum discover_kind discover_push_kind(const struct lnet_ping_info *info)
{
    if (!info)
        return DISCOVER_PUSHED_BAD;
    if (!(info->features & LNET_PING_MULTI_RAIL))
        return DISCOVER_LOOK;
    return info->truncated ? DISCOVER_PUSHED_BAD : DISCOVER_PUSHED;
}

static void start(struct peer *p, uint32_t set)
{
    if (!(p->state & PEER_DISCOVERING))
        clear(p, PEER_PING_FAILED | PEER_PUSH_FAILED); /* they came after the last one had ended */
    p->state |= PEER_DISCOVERING | set;
    if (set & PEER_RTR_DISCOVERY) {
        clear(p, PEER_NIDS_UPTODATE);
        p->state |= PEER_FORCE_PING | PEER_FORCE_PUSH;
    }
}

static void ping_failed(struct peer *p, int error)
{
    clear(p, PEER_PING_SENT);
    p->state |= PEER_PING_FAILED;
    p->discovery.error = error;
}

static void push_failed(struct peer *p, int error)
{
    clear(p, PEER_PUSH_SENT);
    p->state |= PEER_PUSH_FAILED;
    p->discovery.error = error;
}

/* The next ping asks for as many bytes as the info needs. */
static void grow_sink(struct peer *p, uint32_t size)
{
    p->discovery.sink = max(p->discovery.sink, min(size, (uint32_t)LNET_PING_MAX_SIZE));
}

/* A peer that never sends usable info is not asked for ever. */
static void reply_bad(struct peer *p, uint32_t size, const struct discover_self *self)
{
    grow_sink(p, size);
    ping_failed(p, ++p->discovery.tries < self->max_tries ? 0 : -EPROTO);
}

/* An answer that comes after the deadline belongs to nothing that is on its way. */
static bool is_late(const struct peer *p, const struct discover_event *e)
{
    switch (e->kind) {
    case DISCOVER_REPLY:
    case DISCOVER_REPLY_BAD:
    case DISCOVER_PING_ERROR:
        return !(p->state & PEER_PING_SENT);
    case DISCOVER_ACK:
    case DISCOVER_PUSH_ERROR:
        return !(p->state & PEER_PUSH_SENT);
    default:
        return false;
    }
}

static void apply(struct peer *p, const struct discover_event *e, const struct discover_self *self)
{
    struct peer_discovery *d = &p->discovery;

    if (is_late(p, e))
        return;
    switch (e->kind) {
    case DISCOVER_LOOK:
        break;
    case DISCOVER_START:
        start(p, e->set);
        break;
    case DISCOVER_REPLY:
        clear(p, PEER_PING_SENT);
        p->state |= PEER_DATA_PRESENT;
        d->tries = 0;
        d->push_to = e->to;
        d->push_from = e->from;
        break;
    case DISCOVER_REPLY_BAD:
        reply_bad(p, e->size, self);
        break;
    case DISCOVER_PING_ERROR:
        ping_failed(p, e->error);
        break;
    case DISCOVER_ACK:
        clear(p, PEER_PUSH_SENT);
        d->acked_seqno = d->sent_seqno;
        break;
    case DISCOVER_PUSH_ERROR:
        push_failed(p, e->error);
        break;
    case DISCOVER_PUSHED:
        start(p, PEER_DATA_PRESENT);
        break;
    case DISCOVER_PUSHED_BAD:
        grow_sink(p, e->size);
        start(p, PEER_FORCE_PING);
        break;
    }
}

static void expire(struct peer *p, uint64_t now_us)
{
    if (p->state & PEER_PING_SENT && now_us >= p->discovery.ping_deadline_us)
        ping_failed(p, -ETIMEDOUT);
    if (p->state & PEER_PUSH_SENT && now_us >= p->discovery.push_deadline_us)
        push_failed(p, -ETIMEDOUT);
}

/* ---- rows ---- */

static enum discover_action done(struct peer *p, int error)
{
    p->discovery.error = error;
    p->discovery.tries = 0;
    if (p->state & PEER_RTR_DISCOVERY)
        p->state |= PEER_RTR_DISCOVERED;
    clear(p, PEER_DISCOVERING | PEER_RTR_DISCOVERY);
    if (error < 0) {
        p->state |= PEER_REDISCOVER;
    } else {
        p->state |= PEER_DISCOVERED;
        clear(p, PEER_REDISCOVER | PEER_FORCE_PUSH); /* not due: the peer takes no PUSH */
    }
    return DISCOVER_DONE;
}

static enum discover_action ping(struct peer *p, const struct discover_self *self, uint64_t now_us)
{
    clear(p, PEER_FORCE_PING);
    p->state |= PEER_PING_SENT;
    p->discovery.sink = max(p->discovery.sink, (uint32_t)LNET_PING_MIN_SINK);
    p->discovery.ping_deadline_us = now_us + self->timeout_us;
    return DISCOVER_PING;
}

static enum discover_action push(struct peer *p, const struct discover_self *self, uint64_t now_us)
{
    clear(p, PEER_FORCE_PUSH);
    p->state |= PEER_PUSH_SENT;
    p->discovery.sent_seqno = self->seqno;
    p->discovery.push_deadline_us = now_us + self->timeout_us;
    return DISCOVER_PUSH;
}

/* Rows 3 and 4. Returns the error that ends the discovery, or 0. */
static int failure(struct peer *p)
{
    if (p->state & PEER_PING_FAILED)
        p->state |= PEER_FORCE_PING;
    else if (!(p->state & PEER_PUSH_FAILED))
        return 0;
    clear(p, PEER_PING_FAILED | PEER_PUSH_FAILED);
    return p->discovery.error;
}

enum discover_action discover_step(struct peer *p, const struct discover_event *event,
                                   const struct discover_self *self, uint64_t now_us)
{
    int error;

    apply(p, event, self);
    expire(p, now_us);
    if (p->state & PEER_MARK_DELETION) /* row 1 */
        return DISCOVER_DELETE;
    if (p->state & PEER_DATA_PRESENT) { /* row 2 */
        clear(p, PEER_DATA_PRESENT);
        p->state |= PEER_NIDS_UPTODATE;
        return DISCOVER_MERGE;
    }
    if (!(p->state & PEER_DISCOVERING)) /* a REPLY or ACK after the end */
        return DISCOVER_WAIT;
    error = failure(p); /* rows 3 and 4 */
    if (error < 0)
        return done(p, error);
    if (p->state & PEER_PING_SENT)
        return DISCOVER_WAIT;
    if (p->state & PEER_FORCE_PING || !(p->state & PEER_NIDS_UPTODATE)) /* row 5 */
        return ping(p, self, now_us);
    if (discover_needs_push(p, self)) /* row 6 */
        return push(p, self, now_us);
    if (p->state & PEER_PUSH_SENT)
        return DISCOVER_WAIT;
    return done(p, 0); /* row 7 */
}

void discover_push_nids(struct peer *p, struct lnet_nid *to, struct lnet_nid *from)
{
    struct peer_discovery *d = &p->discovery;

    *to = nid_is_any(&d->push_to) ? p->primary : d->push_to;
    *from = d->push_from;
    d->push_to = d->push_from = LNET_NID_ANY;
}

uint64_t discover_deadline_us(const struct peer *p)
{
    uint64_t deadline = UINT64_MAX;

    if (p->state & PEER_PING_SENT)
        deadline = p->discovery.ping_deadline_us;
    if (p->state & PEER_PUSH_SENT)
        deadline = min(deadline, p->discovery.push_deadline_us);
    return deadline;
}
