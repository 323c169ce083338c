/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for segments of transports that hand over their own: what peers may send is reserved
 * before they are told. docs/architecture.md "Segments of a transport".
 *
 * Memory is counted by truesize: the whole of each receive buffer, however little payload it has,
 * and whoever holds a part of a buffer counts all of it. A shard has a budget; used is never above
 * total, and is the sum of
 *  - the charge of each grant: for its connection's next bytes ("ahead"), whatever they are. At
 *    least for LNET_GRANT_BASE bytes, for as long as the connection lives. Nothing but the peer's
 *    use of it takes a promise back, so it is more only while half of the budget is free;
 *  - the memory of each message: reserved for the whole of it when its header is admitted, by the
 *    ratio of memory to payload that its connection has shown; what its segments really take, as
 *    soon as all are there.
 * A message that takes more than was reserved has what is free, or is copied into a router buffer.
 *
 * Set aside are: one message of the largest size for end nodes and one for gateways, while those
 * have less than that, so that somebody always finishes and routers that forward to each other
 * always have memory for what has arrived; and a little for what is urgent. Who waits longest for
 * memory has what comes free until it is enough.
 */
#include "lib/lnet/credit/credit_internal.h"

#include <string.h>

#define RATIO_ONE   256u
#define RATIO_MIN   (RATIO_ONE * 5 / 4)
#define RATIO_MAX   (RATIO_ONE * 4)
#define RATIO_AHEAD (RATIO_ONE * 2) /* of what is no message yet; the transport keeps it */
#define RATIO_DECAY 16              /* messages until a high ratio is mostly forgotten */
#define OBSERVE_MIN 16384u          /* bytes of a message that says something about the ratio */
#define AHEAD_MAX   (1u << 20)
#define AHEAD_PART  16 /* of what is free beyond half of the budget, what one connection gets */
#define URGENT      65536u

/* ---- sums ---- */

static uint32_t weigh(uint32_t bytes, uint32_t ratio)
{
    return (uint32_t)((uint64_t)bytes * ratio / RATIO_ONE);
}

/* Of a connection with so many bytes promised ahead. The buffer more is the one that a message has
 * taken the front of. */
static uint32_t charge_for(const struct lnet_grant *g, uint32_t ahead)
{
    return weigh(ahead > LNET_GRANT_BASE ? ahead : LNET_GRANT_BASE, RATIO_AHEAD) + g->buffer;
}

/* For so much of a message to come. The buffer more is the one that the next message has the rest
 * of. */
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

/* Not for others than messages of a kind. */
static int64_t set_aside(const struct lnet_budget *b, bool gateway)
{
    return b->held[gateway] < full_message() ? (int64_t)(full_message() - b->held[gateway]) : 0;
}

/* What nobody has a right to. */
static int64_t budget_spare(const struct lnet_budget *b)
{
    return budget_free(b) - set_aside(b, false) - set_aside(b, true) - URGENT;
}

/* What messages of a kind may have. */
static int64_t room_for(const struct lnet_budget *b, bool gateway, enum lnet_class class)
{
    int64_t room = budget_free(b) - set_aside(b, !gateway);

    return class == LNET_CLASS_BULK ? room - URGENT : room;
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
    uint64_t more = (uint64_t)memory - msg->memory; /* or less: arithmetic modulo 2^64 */
    uint32_t had = msg->memory;

    if (memory == had)
        return;
    msg->memory = memory;
    count_add(&b->held[msg->account->gateway], more);
    *(msg->stalled ? &b->stalled : &msg->account->memory) += more;
    if (memory > had)
        budget_take(b, more);
    else
        budget_give(s, had - memory);
}

void lnet_budget_received(struct lnet_msg *msg)
{
    set_memory(msg, msg->truesize);
}

void lnet_budget_release(struct lnet_msg *msg)
{
    msg->truesize = 0;
    set_memory(msg, 0);
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

/* Memory that admitting it takes, beyond what its connection has for this. */
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
        lnet_wake_soon(s); /* what was kept for it is free */
}

/* It waits, and if only memory keeps it from going on, it may be the first to have some. */
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
    int64_t room, need;

    if (!rx->grant || !rx->grant->shard || rx->hdr.payload_len == 0)
        return true;
    need = need_of(rx);
    room = room_for(b, d->gateway, rx->class);
    if (d->memory > 0 &&
        (room <= 0 || d->memory * 100 >= (uint64_t)room * relaxed_load(&s->node->egress_share))) {
        waits_for(rx, need <= room ? LNET_DROP_DEST_SHARE : LNET_DROP_BUFFER_WAIT, false);
        return false;
    }
    if (first && first != rx && rx->class == LNET_CLASS_BULK && need_of(first) > 0)
        room -= need_of(first);
    if (need > room) {
        waits_for(rx, LNET_DROP_BUFFER_WAIT, true);
        return false;
    }
    lnet_budget_forget(rx);
    return true;
}

/* To what is promised ahead now, by so much at most. */
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

    if (!g || !g->shard)
        return;
    g->ahead -= promised_of(rx);
    g->body = rx->hdr.payload_len;
    memory = memory_for(g, g->body);
    lower_charge(g, memory); /* together not less than the transport was told it may occupy */
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

/* A high ratio counts at once, a lower one little by little. */
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

struct mem_seg *lnet_rx_segs(struct lnet_rx *rx)
{
    return rx->msg && rx->msg->kind == LNET_KIND_FORWARD ? rx->msg->segs : NULL;
}

void lnet_msg_buffer(struct lnet_msg *msg)
{
    struct mem_pool *pool = &msg->home->credit->pool[msg->pool].mem;

    msg->buffer = mem_pool_get(pool);
    msg->segs[0] = (struct mem_seg){msg->buffer, msg->hdr.payload_len, pool->region, 0};
    msg->payload = (struct lnet_sgl){msg->segs, 1, msg->hdr.payload_len};
}

/* The one place where payload begins to be copied on its way; counted with all that is to come. */
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

/* Where there is plenty, a connection that has sent much may send more than its base. */
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

static bool is_waiting(const struct lnet_rx *rx)
{
    return rx->wait == LNET_RX_WAIT_CREDIT || rx->wait == LNET_RX_WAIT_BUFFER;
}

/* A connection whose message waits is promised nothing more. */
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

    if (!is_waiting(rx))
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

static void queue_add(struct lnet_budget *b, struct lnet_grant *g)
{
    g->next = NULL;
    g->pprev = b->grants.tail;
    *b->grants.tail = g;
    b->grants.tail = &g->next;
    count_add(&b->grants_waiting, 1);
}

static void queue_del(struct lnet_budget *b, struct lnet_grant *g)
{
    *g->pprev = g->next;
    if (g->next)
        g->next->pprev = g->pprev;
    else
        b->grants.tail = g->pprev;
    relaxed_store(&b->grants_waiting, b->grants_waiting - 1);
}

void lnet_grant_open(struct lnet_grant *g, struct lnet_node *node, uint32_t buffer,
                     void (*opened)(struct lnet_grant *grant))
{
    memset(g, 0, sizeof(*g));
    g->shard = lnet_shard_self(node);
    g->buffer = min(buffer, LNET_GRANT_BUFFER_MAX);
    g->ratio = RATIO_AHEAD;
    g->opened = opened;
    if (g->shard->credit->budget.grants.head || !open_now(g))
        queue_add(&g->shard->credit->budget, g);
}

void lnet_grant_close(struct lnet_grant *g)
{
    struct lnet_shard *s = g->shard;

    if (!s)
        return;
    if (!g->open)
        queue_del(&s->credit->budget, g);
    g->shard = NULL;
    g->open = false;
    budget_give(s, g->charge);
    g->charge = 0;
}

/* The longest waiting first. */
void lnet_budget_serve(struct lnet_shard *s)
{
    struct lnet_grant *g;

    while ((g = s->credit->budget.grants.head) && open_now(g)) {
        queue_del(&s->credit->budget, g);
        g->opened(g);
    }
}

/* ---- init, observation ---- */

void lnet_budget_init(struct lnet_shard *s)
{
    struct lnet_budget *b = &s->credit->budget;

    b->total = b->low = s->node->plan.segments / s->node->nshards;
    b->grants.tail = &b->grants.head;
}

size_t lnet_segment_memory(const struct lnet_node *node)
{
    return node->plan.segments;
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
