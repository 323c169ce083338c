/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the segments of transports that receive into buffers of their own. A window that is
 * offered to a peer is a reservation: the memory is charged before the peer may send.
 * docs/architecture.md "Segments of a transport".
 *
 * Memory is counted by truesize: a receive buffer counts as a whole, however little payload it has,
 * and for each message that holds a part of it. A shard has a budget. Its used bytes never exceed
 * its total, and are the sum of
 *  - the charge of each grant, for the next bytes ("ahead") that its connection may send. It covers
 *    LNET_GRANT_BASE bytes or more while the connection lives. A promise cannot be taken back, so
 *    the charge grows only while half of the budget is free;
 *  - the memory of each message. Admission reserves it for the whole message, by the ratio of
 * memory to payload that the connection has shown. Once all segments are there, their truesize
 * counts. A message that needs more than was reserved takes free memory, or is copied into a router
 * buffer.
 *
 * Reserves: one message of the largest size for end nodes, and one for gateways, so that a message
 * always completes and routers that forward to each other can always receive; URGENT bytes for
 * urgent messages; and a part for messages to quick next hops (quick.c). Other memory that comes
 * free goes to the header that has waited longest.
 */
#include "lib/lnet/credit/credit_internal.h"

#include <string.h>

#define RATIO_ONE   256u
#define RATIO_MIN   (RATIO_ONE * 5 / 4)
#define RATIO_MAX   (RATIO_ONE * 4)
#define RATIO_AHEAD (RATIO_ONE * 2) /* of bytes ahead, which belong to no message yet */
#define RATIO_DECAY 16              /* messages until a high ratio is mostly forgotten */
#define OBSERVE_MIN 16384u          /* a shorter message says nothing about the ratio */
#define AHEAD_MAX   (1u << 20)
#define AHEAD_PART                                                                                 \
    16 /* one connection gets this part of the free memory beyond half of the budget */
#define URGENT      65536u
#define GRANTS_KEPT 16u /* for calls of this node; of a few grants … */
#define GRANTS_PART 32u /* … this part */

/* ---- sums ---- */

static uint32_t weigh(uint32_t bytes, uint32_t ratio)
{
    return (uint32_t)((uint64_t)bytes * ratio / RATIO_ONE);
}

/* Returns the charge of a grant with so many bytes ahead. It includes one more buffer, whose front
 * part belongs to a message. */
static uint32_t charge_for(const struct lnet_grant *g, uint32_t ahead)
{
    return weigh(ahead > LNET_GRANT_BASE ? ahead : LNET_GRANT_BASE, RATIO_AHEAD) + g->buffer;
}

/* Returns the memory for so many bytes of a message that are still to come. It includes one more
 * buffer, whose last part belongs to the next message. */
static uint32_t memory_for(const struct lnet_grant *g, uint32_t bytes)
{
    return bytes > 0 ? weigh(bytes, g->ratio) + g->buffer : 0;
}

static uint64_t full_message(void)
{
    return weigh(MEM_LANDING_SLOT, RATIO_MAX) + LNET_GRANT_BUFFER_MAX;
}

static uint64_t least_charge(void)
{
    return weigh(LNET_GRANT_BASE, RATIO_AHEAD) + LNET_GRANT_BUFFER_MAX;
}

size_t lnet_budget_least(void)
{
    return 2 * full_message() + URGENT + least_charge();
}

unsigned lnet_segments_conns(size_t segments, unsigned reactors)
{
    size_t each = segments / reactors, others = lnet_budget_least() - least_charge();

    return each > others ? (unsigned)((each - others) / least_charge()) * reactors : 0;
}

static int64_t budget_free(const struct lnet_budget *b)
{
    return (int64_t)(b->total - b->used);
}

/* Returns the bytes that only messages for gateways, or only those for end nodes, may use. */
static int64_t set_aside(const struct lnet_budget *b, bool gateway)
{
    return b->held[gateway] < full_message() ? (int64_t)(full_message() - b->held[gateway]) : 0;
}

/* Returns the free bytes beyond all reserves. */
static int64_t budget_spare(const struct lnet_budget *b)
{
    return budget_free(b) - set_aside(b, false) - set_aside(b, true) - URGENT;
}

/* Returns what is left of the part of messages for quick next hops. */
static int64_t left_for_quick(const struct lnet_budget *b)
{
    return max((int64_t)(b->total / QUICK_PART) - (int64_t)b->quick, (int64_t)0);
}

/* Returns the bytes that a message to a gateway or an end node may use. Any message that is the
 * only one may have all that a message takes. */
static int64_t room_for(const struct lnet_budget *b, bool gateway, enum lnet_class class)
{
    int64_t room = budget_free(b) - set_aside(b, !gateway);

    if (class != LNET_CLASS_URGENT)
        room -= URGENT;
    if (class > LNET_CLASS_QUICK && b->held[gateway] > 0)
        room -= left_for_quick(b);
    return room;
}

static void budget_take(struct lnet_budget *b, uint64_t bytes)
{
    count_add(&b->used, bytes);
    if (b->total - b->used < b->low)
        relaxed_store(&b->low, b->total - b->used);
}

static void budget_give(struct lnet_shard *s, uint64_t bytes)
{
    struct lnet_budget *b = &s->credit->budget;

    relaxed_store(&b->used, b->used - bytes);
    if (bytes > 0 && lnet_budget_wanted(b))
        lnet_wake_soon(s);
}

/* ---- memory of a message ---- */

static void set_memory(struct lnet_msg *msg, uint32_t memory)
{
    struct lnet_shard *s = msg->home;
    struct lnet_budget *b = &s->credit->budget;
    uint64_t more = (uint64_t)memory - msg->memory; /* may be negative: arithmetic modulo 2^64 */
    uint32_t had = msg->memory;

    if (memory == had)
        return;
    msg->memory = memory;
    count_add(&b->held[msg->account->gateway], more);
    *(msg->stalled ? &b->stalled : &msg->account->memory) += more;
    if (msg->unconnected)
        b->unconnected += more;
    if (msg->quick)
        b->quick += more;
    if (memory > had)
        budget_take(b, more);
    else
        budget_give(s, had - memory);
}

void lnet_budget_settle(struct lnet_msg *msg)
{
    set_memory(msg, msg->truesize);
}

void lnet_budget_stall(struct lnet_msg *msg, bool stalled)
{
    uint64_t move = stalled ? msg->memory : -(uint64_t)msg->memory;

    msg->home->credit->budget.stalled += move;
    msg->account->memory -= move;
}

void lnet_budget_move(struct lnet_msg *msg, struct lnet_next_hop *to)
{
    struct lnet_budget *b = &msg->home->credit->budget;

    relaxed_store(&b->held[msg->account->gateway], b->held[msg->account->gateway] - msg->memory);
    count_add(&b->held[to->gateway], msg->memory);
    msg->account->memory -= msg->memory;
    to->memory += msg->memory;
}

bool lnet_budget_stalled(const struct lnet_shard *s)
{
    const struct lnet_budget *b = &s->credit->budget;
    int64_t spare = budget_spare(b) > 0 ? budget_spare(b) : 0;

    return b->stalled * 100 > (uint64_t)spare * relaxed_load(&s->node->egress_share);
}

/* ---- the rule ---- */

/* The part of a message's payload that its peer may send already. */
static uint32_t promised_of(const struct lnet_rx *rx)
{
    uint32_t len = rx->hdr.payload_len;

    return rx->grant->ahead < len ? rx->grant->ahead : len;
}

/* Returns the memory that admission takes beyond the charge that the grant has for the message. */
static int64_t need_of(const struct lnet_rx *rx)
{
    const struct lnet_grant *g = rx->grant;
    uint32_t ahead = g->ahead - promised_of(rx);

    return (int64_t)memory_for(g, rx->hdr.payload_len) -
           ((int64_t)g->charge - charge_for(g, ahead));
}

static void leave_line(const struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    struct lnet_rx **first = &s->credit->budget.first[rx->account->gateway];

    if (*first != rx)
        return;
    *first = NULL;
    if (s->credit->budget.waiting > 0)
        lnet_wake_soon(s); /* the memory that was kept for it is free */
}

/* Notes that a header waits for memory. in_line: it waits for nothing else, so it may be the header
 * for which free memory is kept. */
static void waits_for(struct lnet_rx *rx, enum lnet_drop what, bool in_line)
{
    struct lnet_budget *b = &rx->shard->credit->budget;
    struct lnet_rx **first = &b->first[rx->account->gateway];

    if (rx->lacks == LNET_DROP_NONE) {
        count_add(&b->waiting, 1);
        count_add(&b->waited, 1);
    }
    rx->lacks = what;
    if (!in_line)
        leave_line(rx);
    else if (!*first || rx->wait_until_us < (*first)->wait_until_us)
        *first = rx;
}

void lnet_budget_forget(struct lnet_rx *rx)
{
    struct lnet_budget *b = &rx->shard->credit->budget;

    if (rx->lacks == LNET_DROP_NONE)
        return;
    rx->lacks = LNET_DROP_NONE;
    relaxed_store(&b->waiting, b->waiting - 1);
    leave_line(rx);
}

bool lnet_budget_may(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    const struct lnet_next_hop *d = rx->account;
    const struct lnet_budget *b = &s->credit->budget;
    const struct lnet_rx *first = b->first[d->gateway];
    enum lnet_class class = rx->class;
    bool slow = class == LNET_CLASS_SLOW;
    uint64_t held = slow ? max(d->memory, b->stalled) : d->memory;
    int64_t room, need;

    need = need_of(rx);
    if (class == LNET_CLASS_QUICK && need > left_for_quick(b))
        class = LNET_CLASS_BULK;
    room = room_for(b, d->gateway, class);
    if (held > 0 &&
        (room <= 0 || held * 100 >= (uint64_t)room * relaxed_load(&s->node->egress_share))) {
        enum lnet_drop share = slow ? LNET_DROP_SLOW_SENDER : LNET_DROP_DEST_SHARE;

        waits_for(rx, need <= room ? share : LNET_DROP_BUFFER_WAIT, false);
        return false;
    }
    if (first && first != rx && class > LNET_CLASS_QUICK && need_of(first) > 0)
        room -= need_of(first);
    if (need > room) {
        waits_for(rx, LNET_DROP_BUFFER_WAIT, !slow);
        return false;
    }
    lnet_budget_forget(rx);
    return true;
}

/* Lowers the charge to that of the bytes now ahead, by `most` bytes at most. */
static void lower_charge(struct lnet_grant *g, uint32_t most)
{
    uint32_t less = min(g->charge - charge_for(g, g->ahead), most);

    g->charge -= less;
    budget_give(g->shard, less);
}

void lnet_budget_admit(struct lnet_rx *rx)
{
    struct lnet_grant *g = rx->grant;
    uint32_t memory;

    g->ahead -= promised_of(rx);
    g->body = rx->hdr.payload_len;
    memory = memory_for(g, g->body);
    lower_charge(g, memory); /* with the memory below: not less than lnet_grant_window() has said */
    set_memory(rx->msg, memory);
}

/* ---- payload that comes ---- */

void lnet_grant_consumed(struct lnet_grant *g, uint32_t bytes)
{
    uint32_t body = bytes < g->body ? bytes : g->body;
    uint32_t ahead = bytes - body;

    g->body -= body;
    g->ahead -= ahead < g->ahead ? ahead : g->ahead;
    g->fresh = g->fresh < AHEAD_MAX ? g->fresh + bytes : g->fresh;
}

/* Learns the ratio of a connection: a higher one at once, a lower one slowly. */
static void observe(struct lnet_grant *g, uint32_t bytes, uint32_t truesize)
{
    uint64_t seen;

    if (bytes < OBSERVE_MIN)
        return;
    seen = (uint64_t)truesize * RATIO_ONE / bytes;
    seen = seen > RATIO_MAX ? RATIO_MAX : seen < RATIO_MIN ? RATIO_MIN : seen;
    if (seen < g->ratio)
        seen = g->ratio - (g->ratio - seen + RATIO_DECAY - 1) / RATIO_DECAY;
    g->ratio = (uint16_t)seen;
}

bool lnet_rx_took(struct lnet_rx *rx, uint32_t bytes, uint32_t truesize)
{
    struct lnet_grant *g = rx->grant;
    struct lnet_msg *msg = rx->msg;
    uint32_t need;

    if (!g || !msg)
        return true;
    lnet_grant_consumed(g, bytes);
    msg->truesize += truesize;
    need = msg->truesize + memory_for(g, g->body);
    if (need > msg->memory) {
        if (need - msg->memory >
            room_for(&msg->home->credit->budget, msg->account->gateway, LNET_CLASS_BULK))
            return false;
        set_memory(msg, need);
    }
    if (g->body == 0)
        observe(g, msg->hdr.payload_len, msg->truesize);
    return true;
}

/* The one place where payload of a forwarded message is copied. The rest of the message, which
 * comes later, is counted here too. */
const struct mem_seg *lnet_rx_copy(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs)
{
    struct lnet_msg *msg = rx->msg;
    struct lnet_budget *b = &rx->shard->credit->budget;
    uint8_t *to;

    lnet_msg_buffer(msg);
    to = msg->buffer;
    for (unsigned i = 0; i < nsegs; to += segs[i++].len)
        memcpy(to, segs[i].addr, segs[i].len);
    count_add(&b->copies, 1);
    count_add(&b->copy_bytes, msg->hdr.payload_len);
    if (rx->grant) {
        observe(rx->grant, (uint32_t)(to - (uint8_t *)msg->buffer), msg->truesize);
        msg->truesize = 0;
        set_memory(msg, min(msg->memory, memory_for(rx->grant, rx->grant->body)));
    }
    return msg->segs;
}

/* ---- grants ---- */

/* Returns the bytes that a connection may send ahead: more than its base if it has sent much and
 * half of the budget is free. */
static uint32_t ahead_wanted(const struct lnet_grant *g)
{
    const struct lnet_budget *b = &g->shard->credit->budget;
    int64_t plenty = budget_spare(b) - (int64_t)(b->total / 2);
    uint32_t most = AHEAD_MAX;

    if (plenty <= 0 || lnet_budget_wanted(b))
        return 0;
    if (plenty / AHEAD_PART < weigh(AHEAD_MAX, RATIO_AHEAD))
        most = (uint32_t)(plenty / AHEAD_PART * RATIO_ONE / RATIO_AHEAD);
    return min(most, g->ahead + 2 * g->fresh);
}

/* Renews the promise to a connection. The caller skips connections whose message waits. */
static void promise(struct lnet_grant *g)
{
    uint32_t wanted = ahead_wanted(g);

    g->fresh = 0;
    if (g->ahead < LNET_GRANT_BASE)
        g->ahead = LNET_GRANT_BASE;
    lower_charge(g, UINT32_MAX);
    if (wanted <= g->ahead)
        return;
    g->ahead = wanted;
    budget_take(&g->shard->credit->budget, charge_for(g, wanted) - g->charge);
    g->charge = charge_for(g, wanted);
}

uint32_t lnet_grant_window(struct lnet_rx *rx, uint32_t *memory)
{
    struct lnet_grant *g = rx->grant;

    if (!lnet_rx_waits(rx))
        promise(g);
    *memory = g->charge + (rx->msg ? rx->msg->memory - rx->msg->truesize : 0);
    return g->body + g->ahead;
}

static bool open_now(struct lnet_grant *g)
{
    struct lnet_budget *b = &g->shard->credit->budget;

    if (budget_spare(b) < charge_for(g, 0))
        return false;
    g->open = true;
    g->ahead = LNET_GRANT_BASE;
    g->charge = charge_for(g, 0);
    budget_take(b, g->charge);
    return true;
}

void lnet_grant_open(struct lnet_grant *g, struct lnet_node *node, uint32_t buffer,
                     void (*opened)(struct lnet_grant *grant))
{
    struct lnet_budget *b;

    memset(g, 0, sizeof(*g));
    g->shard = lnet_shard_self(node);
    g->buffer = min(buffer, LNET_GRANT_BUFFER_MAX);
    g->ratio = RATIO_AHEAD;
    g->opened = opened;
    b = &g->shard->credit->budget;
    b->ngrants++;
    if (TAILQ_EMPTY(&b->grants) && open_now(g))
        return;
    TAILQ_INSERT_TAIL(&b->grants, g, queue);
    count_add(&b->grants_waiting, 1);
}

/* Messages may hold the memory just now: a base that there is room for may have to wait. */
bool lnet_grant_has_room(struct lnet_node *node, uint32_t buffer)
{
    const struct lnet_grant base = {.buffer = min(buffer, LNET_GRANT_BUFFER_MAX)};
    const struct lnet_budget *b = &lnet_shard_self(node)->credit->budget;
    uint64_t others = lnet_budget_least() - least_charge();
    uint64_t most = b->total > others ? (b->total - others) / charge_for(&base, 0) : 0;

    return b->ngrants < most - min((uint64_t)GRANTS_KEPT, most / GRANTS_PART);
}

static void stop_waiting(struct lnet_budget *b, struct lnet_grant *g)
{
    TAILQ_REMOVE(&b->grants, g, queue);
    relaxed_store(&b->grants_waiting, b->grants_waiting - 1);
}

void lnet_grant_close(struct lnet_grant *g)
{
    struct lnet_shard *s = g->shard;

    if (!s)
        return;
    if (!g->open)
        stop_waiting(&s->credit->budget, g);
    s->credit->budget.ngrants--;
    g->shard = NULL;
    g->open = false;
    budget_give(s, g->charge);
    g->charge = 0;
}

/* Serves the grant that has waited longest first. */
void lnet_budget_serve(struct lnet_shard *s)
{
    struct lnet_grant *g;

    while ((g = TAILQ_FIRST(&s->credit->budget.grants)) && open_now(g)) {
        stop_waiting(&s->credit->budget, g);
        g->opened(g);
    }
}

/* ---- init, observation ---- */

void lnet_budget_init(struct lnet_shard *s)
{
    struct lnet_budget *b = &s->credit->budget;

    b->total = b->low = s->node->plan.segments / s->node->nshards;
    TAILQ_INIT(&b->grants);
}

void lnet_segment_stats_get(const struct lnet_node *node, unsigned reactor,
                            struct lnet_segment_stats *out)
{
    const struct lnet_budget *b = &node->shard[reactor]->credit->budget;

    out->total = b->total;
    out->free = b->total - relaxed_load(&b->used);
    out->low = relaxed_load(&b->low);
    out->held = relaxed_load(&b->held[0]) + relaxed_load(&b->held[1]);
    out->waiting = relaxed_load(&b->waiting);
    out->waited = relaxed_load(&b->waited);
    out->grants_waiting = relaxed_load(&b->grants_waiting);
    out->payload_copies = relaxed_load(&b->copies);
    out->payload_copy_bytes = relaxed_load(&b->copy_bytes);
}
