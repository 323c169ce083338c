/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LNet core the driver is tested with.
 */
#include "test/unit/ib_harness.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/lnd_verbs/ib_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void __attribute__((constructor)) register_type(void)
{
    if (!lnd_type_register(&lnd_verbs_type))
        abort();
}

#define MAX_PEERS 64

struct lnet_node {
    unsigned index;
    struct lnet_ni ni;
    struct lnd_verbs *lv;
    struct lnet_peer_ni peers[MAX_PEERS];
    unsigned npeers;
    bool started, stop_asked, stopped, quiet;
    struct reactor_task stop_done, quiesce_done;
};

struct ih_opts ih_opts;
struct ih_core core;

static struct lnet_node nodes[FAKE_NODES];

/* Tests run with each method: MILLRACE_REMOTE_KEYS is a word of the setting. */
static enum rdma_keys remote_keys(void)
{
    const char *word = getenv("MILLRACE_REMOTE_KEYS");
    int i = 0;

    while (word && ib_keys_words[i] && strcmp(word, ib_keys_words[i]) != 0)
        i++;
    return word && ib_keys_words[i] ? (enum rdma_keys)i : RDMA_KEYS_AUTO;
}

void ih_defaults(void)
{
    ih_opts = (struct ih_opts){.nodes = 1,
                               .timeout = 50,
                               .conns_per_peer = 1,
                               .peer_credits = 8,
                               .concurrent_sends = -1,
                               .tos = -1,
                               .verbs = {.rdma = &fake_rdma,
                                         .service = 987,
                                         .keepalive = 100,
                                         .retry_count = 5,
                                         .rnr_retry_count = 6,
                                         .min_reconnect = 1,
                                         .max_reconnect = 60,
                                         .use_privileged_port = true,
                                         .remote_keys = remote_keys(),
                                         .max_conns = 64}};
}

struct lnet_ni *ih_ni(unsigned node)
{
    return &nodes[node].ni;
}

#define PATTERN 65536u /* bytes, after which it begins again */

uint8_t ih_pattern(uint32_t i)
{
    return (uint8_t)(i * 7 + (i >> 8) * 13 + 1);
}

void ih_fill(uint8_t *p, uint32_t len)
{
    static uint8_t bytes[PATTERN];

    if (bytes[0] != ih_pattern(0))
        for (uint32_t i = 0; i < PATTERN; i++)
            bytes[i] = ih_pattern(i);
    for (uint32_t at = 0; at < len; at += PATTERN)
        memcpy(p + at, bytes, len - at < PATTERN ? len - at : PATTERN);
}

void ih_expect_pattern(const uint8_t *p, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(p[i], ih_pattern(i));
}

/* ---- memory of messages: slots of a region, or heap ---- */

#define SLOT  (64u << 10)
#define LARGE (1u << 20)
#define HALF  (8u << 20) /* of a region: slots below, large ones above */

static uint8_t slot_used[FAKE_REGIONS][HALF / SLOT + HALF / LARGE];

static uint8_t *memory_get(int region, uint32_t len)
{
    bool large = len > SLOT;
    unsigned first = large ? HALF / SLOT : 0;
    unsigned n = large ? HALF / LARGE : HALF / SLOT, i = 0;

    if (region < 0)
        return malloc(len > 0 ? len : 1);
    if (region == FAKE_LATE) /* one buffer is enough */
        return fake_memory(region);
    while (i < n && slot_used[region][first + i])
        i++;
    assert_true(i < n);
    slot_used[region][first + i] = 1;
    return fake_memory(region) + (large ? HALF + (size_t)i * LARGE : (size_t)i * SLOT);
}

/* What it is used for next must not be what is still there. */
static void memory_put(int region, uint8_t *p, uint32_t len)
{
    size_t at;

    if (!fake.fast)
        memset(p, 0xdd, len);
    if (region < 0) {
        free(p);
        return;
    }
    if (region == FAKE_LATE)
        return;
    at = (size_t)(p - fake_memory(region));
    slot_used[region][at < HALF ? at / SLOT : HALF / SLOT + (at - HALF) / LARGE] = 0;
}

static unsigned cut(struct mem_seg *segs, unsigned n, uint8_t *p, uint32_t len, int region)
{
    uint32_t each = len / n;

    for (unsigned i = 0; i < n; i++) {
        uint32_t size = i + 1 < n ? each : len - each * (n - 1);

        segs[i] = (struct mem_seg){p, size, region < 0 ? MEM_REGION_NONE : (uint16_t)region, 0};
        p += size;
    }
    return n;
}

/* ---- peers and nodes ---- */

struct reactor_env *lnet_node_env(const struct lnet_node *n)
{
    (void)n;
    return ir_env();
}

/* By the last byte of the address, so that tests know who lives where. */
struct reactor *lnet_nid_home(const struct lnet_node *n, const struct lnet_nid *nid)
{
    (void)n;
    return reactor_at(ir_env(), ((const uint8_t *)nid->addr_be)[3] % IR_REACTORS);
}

unsigned lnet_lnd_timeout(const struct lnet_node *n)
{
    return 49;
}

bool lnet_nid_is_mine(const struct lnet_node *n, const struct lnet_nid *nid)
{
    return nid_same(nid, &n->ni.nid);
}

struct lnet_peer_ni *lnet_peer_ni_get(struct lnet_node *n, const struct lnet_nid *nid)
{
    assert_ptr_equal(lnet_nid_home(n, nid), reactor_self());
    if (core.no_peers)
        return NULL;
    for (unsigned i = 0; i < n->npeers; i++) {
        if (nid_same(&n->peers[i].nid, nid)) {
            lnet_peer_ni_hold(&n->peers[i]);
            return &n->peers[i];
        }
    }
    assert_true(n->npeers < MAX_PEERS);
    n->peers[n->npeers].nid = *nid;
    lnet_peer_ni_hold(&n->peers[n->npeers]);
    return &n->peers[n->npeers++];
}

void lnet_peer_ni_used(struct lnet_peer_ni *p)
{
    (void)p;
}

void lnet_peer_ni_unused(struct lnet_peer_ni *p)
{
    (void)p;
}

unsigned ih_peer_refs(void)
{
    unsigned refs = 0;

    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        for (unsigned k = 0; k < nodes[i].npeers; k++)
            refs += nodes[i].peers[k].refs;
    return refs;
}

struct lnet_peer_ni *ih_peer(unsigned node, const char *address)
{
    struct lnet_nid nid = nid_from_u64(pe_nid(address));
    struct reactor *before = ir_at(lnet_nid_home(&nodes[node], &nid));
    struct lnet_peer_ni *p = lnet_peer_ni_get(&nodes[node], &nid);

    lnet_peer_ni_put(p);
    ir_restore(before);
    return p;
}

/* ---- receiving ---- */

/* The segments are what an RDMA GET asks for. */
static void serve_get(struct ih_rx *r)
{
    r->asked = true;
    r->rx->drop = core.get_drop;
    r->mlen = core.get_drop == LNET_DROP_NONE ? core.get_len : 0;
    r->region = core.get_heap ? -1 : FAKE_LOCAL;
    if (r->mlen > 0) {
        r->memory = memory_get(r->region, r->mlen);
        ih_fill(r->memory, r->mlen);
        r->nsegs = cut(r->segs, 2, r->memory, r->mlen, r->region);
    }
    fake_leave();
    lnd_verbs_ops.recv(r->rx, r->nsegs > 0 ? r->segs : NULL, r->nsegs, r->mlen);
    fake_enter();
}

static void call_recv(struct ih_rx *r, uint32_t mlen)
{
    static const unsigned pieces[] = {[IH_PIECES] = 3};

    r->asked = true;
    r->mlen = mlen;
    r->region = r->how == IH_HEAP ? -1 : r->how == IH_LOCAL ? FAKE_LOCAL : FAKE_LANDING;
    if (mlen > 0) {
        r->memory = memory_get(r->region, mlen);
        r->nsegs =
            cut(r->segs, r->how == IH_PIECES ? pieces[IH_PIECES] : 1, r->memory, mlen, r->region);
    }
    fake_leave();
    lnd_verbs_ops.recv(r->rx, r->nsegs > 0 ? r->segs : NULL, r->nsegs, mlen);
    fake_enter();
}

static enum lnet_drop parse(struct lnet_rx *rx)
{
    struct ih_rx *r;

    assert_ptr_equal(lnet_nid_home(rx->ni->node, &rx->from->nid), reactor_self());
    assert_true(rx->from->refs > 0);
    if (core.on_parse)
        core.parse = core.on_parse(rx);
    if (core.parse == IH_REFUSE)
        return core.refusal;
    r = calloc(1, sizeof(*r));
    r->rx = rx;
    r->hdr = rx->hdr;
    r->rdma_get = rx->rdma_get;
    r->node = rx->ni->node->index;
    r->from = rx->from->nid;
    r->how = core.parse;
    r->next = core.rxs;
    core.rxs = r;
    core.open++;
    rx->msg = (struct lnet_msg *)r; /* the core's own field */
    if (r->rdma_get && r->how != IH_LATER)
        serve_get(r);
    else if (r->how == IH_DISCARD)
        call_recv(r, 0);
    else if (r->how == IH_TRUNCATE)
        call_recv(r, core.truncate < rx->hdr.payload_len ? core.truncate : rx->hdr.payload_len);
    else if (r->how != IH_LATER)
        call_recv(r, rx->hdr.payload_len);
    return LNET_DROP_NONE;
}

enum lnet_drop lnet_parse(struct lnet_rx *rx)
{
    enum lnet_drop drop;

    fake_enter();
    drop = parse(rx);
    fake_leave();
    return drop;
}

void ih_recv(struct ih_rx *r, uint32_t mlen)
{
    struct reactor *before = ir_at(lnet_nid_home(&nodes[r->node], &r->from));

    assert_false(r->asked);
    if (r->rdma_get)
        serve_get(r);
    else
        call_recv(r, mlen);
    ir_restore(before);
}

static void recv_done(struct lnet_rx *rx, struct lnet_result result)
{
    struct ih_rx *r = (struct ih_rx *)rx->msg;

    assert_non_null(r);
    assert_ptr_equal(r->rx, rx);
    assert_true(r->asked);
    assert_ptr_equal(lnet_nid_home(rx->ni->node, &r->from), reactor_self());
    r->rx = NULL;
    rx->msg = NULL;
    r->result = result;
    if (r->memory) {
        if (!fake.fast && fake_told(r->memory, r->mlen))
            fail_msg("a receive ended while the peer may still write to it");
        if (!fake.fast && fake_in_flight(r->memory, r->mlen))
            fail_msg("a receive ended while the device may still read what it serves");
        if (result.reason == LNET_DROP_NONE && !fake.fast) {
            r->data = malloc(r->mlen);
            memcpy(r->data, r->memory, r->mlen);
        }
        memory_put(r->region, r->memory, r->mlen);
        r->memory = NULL;
    }
    core.open--;
    core.nreceived++;
    if (core.on_received)
        core.on_received(r);
}

void lnet_recv_done(struct lnet_rx *rx, struct lnet_result result)
{
    fake_enter();
    recv_done(rx, result);
    fake_leave();
}

bool lnet_rx_cancel(struct lnet_rx *rx)
{
    struct ih_rx *r = (struct ih_rx *)rx->msg;

    assert_non_null(r);
    assert_false(r->asked);
    if (core.no_cancel)
        return false;
    r->rx = NULL;
    rx->msg = NULL;
    r->result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    core.open--;
    return true;
}

struct ih_rx *ih_waiting(void)
{
    for (struct ih_rx *r = core.rxs; r; r = r->next) {
        if (r->rx && !r->asked)
            return r;
    }
    return NULL;
}

struct ih_rx *ih_last(void)
{
    return core.rxs;
}

/* ---- sending ---- */

static void set_body(struct lnet_hdr *h, uint32_t len)
{
    struct lnet_put put = {.ack = LNET_HANDLE_NONE, .match_bits = 42, .portal = 30};
    struct lnet_get get = {.ret = {1, 2}, .match_bits = 43, .portal = 30, .sink_length = len};
    struct lnet_reply reply = {.dst = {3, 4}};
    struct lnet_ack ack = {.dst = {5, 6}, .match_bits = 44};

    switch (h->type) {
    case LNET_MSG_PUT:
        lnet_body_set_put(h, &put);
        break;
    case LNET_MSG_GET:
        lnet_body_set_get(h, &get);
        break;
    case LNET_MSG_REPLY:
        lnet_body_set_reply(h, &reply);
        break;
    default:
        lnet_body_set_ack(h, &ack);
        break;
    }
}

struct ih_msg *ih_msg(unsigned node, const char *to, uint32_t type, uint32_t len, int region,
                      unsigned nsegs)
{
    struct ih_msg *m = calloc(1, sizeof(*m));
    bool data = type == LNET_MSG_PUT || type == LNET_MSG_REPLY;

    m->node = node;
    m->msg.hdr.src_nid = nodes[node].ni.nid;
    m->msg.hdr.dest_nid = nid_from_u64(pe_nid(to));
    m->msg.hdr.dest_pid = m->msg.hdr.src_pid = LNET_PID_LUSTRE;
    m->msg.hdr.type = type;
    set_body(&m->msg.hdr, len);
    if (data && len > 0) {
        m->msg.hdr.payload_len = len;
        m->memory = memory_get(region, len);
        m->region = region;
        if (!fake.fast)
            ih_fill(m->memory, len);
        m->msg.payload.seg = m->msg.segs;
        m->msg.payload.n = cut(m->msg.segs, nsegs, m->memory, len, region);
        m->msg.payload.bytes = len;
    }
    m->msg.tx_ni = &nodes[node].ni;
    m->msg.tx_peer = ih_peer(node, to);
    m->msg.next_hop = m->msg.hdr.dest_nid;
    m->next = core.msgs;
    core.msgs = m;
    return m;
}

void ih_give(struct ih_msg *m)
{
    struct reactor *before = ir_at(lnet_nid_home(&nodes[m->node], &m->msg.tx_peer->nid));

    fake_leave();
    lnd_verbs_ops.send(&m->msg);
    fake_enter();
    ir_restore(before);
}

struct ih_msg *ih_send(struct ih_msg *m)
{
    ih_give(m);
    fake_settle();
    return m;
}

struct ih_msg *ih_put(uint32_t len)
{
    return ih_send(ih_msg(0, PEER, LNET_MSG_PUT, len, FAKE_LOCAL, 1));
}

static struct ih_msg *of_msg(struct lnet_msg *msg)
{
    return container_of(msg, struct ih_msg, msg);
}

void lnet_send_accepted(struct lnet_msg *msg)
{
    struct ih_msg *m = of_msg(msg);

    assert_int_equal(m->done, 0);
    assert_int_equal(m->accepted++, 0);
}

static void send_done(struct lnet_msg *msg, struct lnet_result result)
{
    struct ih_msg *m = of_msg(msg);

    assert_ptr_equal(lnet_nid_home(&nodes[m->node], &msg->tx_peer->nid), reactor_self());
    assert_int_equal(m->done++, 0);
    assert_false(result.unsent && (m->accepted || !result.reason));
    m->result = result;
    if (result.reason == LNET_DROP_NONE) {
        core.sent++;
        assert_int_equal(result.health, LNET_HEALTH_OK);
    } else {
        core.failed++;
    }
    if (m->memory) {
        if (!fake.fast && fake_in_flight(m->memory, msg->payload.bytes))
            fail_msg("a message ended while the device may still read its payload");
        memory_put(m->region, m->memory, msg->payload.bytes);
        m->memory = NULL;
    }
    if (core.on_sent)
        core.on_sent(m);
}

void lnet_send_done(struct lnet_msg *msg, struct lnet_result result)
{
    fake_enter();
    send_done(msg, result);
    fake_leave();
}

void lnet_msg_fetch(const struct lnet_msg *msg)
{
    (void)msg;
}

void ih_expect(const struct ih_msg *m, enum lnet_drop reason, enum lnet_health health)
{
    assert_int_equal(m->done, 1);
    if (m->result.reason != reason)
        fail_msg("ended as %s, not %s", lnet_drop_info(m->result.reason)->name,
                 lnet_drop_info(reason)->name);
    assert_int_equal(m->result.health, health);
}

void ih_expect_health(const struct ih_msg *m, enum lnet_health health)
{
    assert_int_equal(m->done, 1);
    assert_int_not_equal(m->result.reason, LNET_DROP_NONE);
    assert_int_equal(m->result.health, health);
}

void ih_expect_ok(const struct ih_msg *m)
{
    ih_expect(m, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* ---- what happened ---- */

void lnet_peer_ni_lost(struct lnet_ni *ni, struct lnet_peer_ni *p)
{
    core.lost++;
}

void lnet_peer_ni_notify(struct lnet_ni *ni, struct lnet_peer_ni *p, bool up)
{
    (void)ni;
    (void)p;
    core.ups += up;
    core.downs += !up;
}

void lnet_peer_ni_connected(struct lnet_peer_ni *p, bool is)
{
}

struct lnet_nid lnet_nid_prefix(const struct lnet_node *n, const struct lnet_nid *nid)
{
    return nid_prefix(nid, core.prefix ? core.prefix : 32);
}

enum lnet_drop lnet_may_call(const struct lnet_ni *ni, const struct lnet_nid *from)
{
    return core.may_call;
}

enum lnet_drop lnet_may_connect(const struct lnet_ni *ni, const struct lnet_nid *from)
{
    return core.may_connect;
}

void lnet_ni_link(struct lnet_ni *ni, bool up)
{
    ni->link_up = up;
    core.link_up += up;
    core.link_down += !up;
}

void lnet_node_event_post(struct lnet_node *n, const struct lnet_node_event *row)
{
    (void)n;
    core.events[row->kind]++;
    core.last_event = *row;
}

void lnet_drop_event(struct lnet_node *n, enum lnet_drop reason, const struct lnet_ni *ni,
                     const struct lnet_nid *from, const struct lnet_hdr *hdr)
{
    (void)n;
    (void)ni;
    (void)from;
    (void)hdr;
    assert_true(reason > LNET_DROP_NONE && reason < LNET_DROP_COUNT);
    core.drops[reason]++;
}

void lnet_drop_event_why(struct lnet_node *n, enum lnet_drop reason, const struct lnet_ni *ni,
                         const struct lnet_nid *from, const struct lnet_hdr *hdr,
                         const struct lnet_drop_why *why)
{
    core.why = *why;
    lnet_drop_event(n, reason, ni, from, hdr);
}

struct verbs_counters ih_counters(void)
{
    struct verbs_counters c;

    lnd_verbs_counters(&nodes[0].ni, &c);
    return c;
}

/* ---- begin and end ---- */

static void ni_begin(struct lnet_node *n)
{
    struct err err = {0};

    if (lnd_verbs_ops.ni_init(&n->ni, &err) != 0)
        fail_msg("%s", err.message);
    if (ih_opts.no_start)
        return;
    if (lnd_verbs_ops.ni_start(&n->ni, &err) != 0)
        fail_msg("%s", err.message);
    n->started = true;
}

static void node_init(struct lnet_node *n, unsigned index)
{
    static const char *const addresses[] = {OWN, PEER};
    int credits_2 = ih_opts.peer_credits_2 > 0 ? ih_opts.peer_credits_2 : ih_opts.peer_credits;

    memset(n, 0, sizeof(*n));
    n->index = index;
    n->lv = lnd_verbs_new(&ih_opts.verbs);
    assert_non_null(n->lv);
    n->ni.node = n;
    n->ni.state = LNET_NI_ACTIVE;
    n->ni.lnd = &lnd_verbs_ops;
    n->ni.lnd_ctx = n->lv;
    n->ni.net = LNET_NET(LNET_LND_O2IB, 0);
    n->ni.index = 0;
    n->ni.tun = (struct lnet_tunables){-1, index == 0 ? ih_opts.peer_credits : credits_2, -1, -1};
    n->ni.lnd_tun = (struct lnd_tunables)LND_TUNABLES_DEFAULT;
    n->ni.lnd_tun.conns_per_peer = ih_opts.conns_per_peer;
    n->ni.lnd_tun.timeout = ih_opts.timeout;
    n->ni.lnd_tun.tos = ih_opts.tos;
    n->ni.lnd_tun.own[lnd_slot(&lnd_verbs_type, IB_TUN_CONCURRENT_SENDS)] =
        ih_opts.concurrent_sends;
    n->ni.nid = nid_from_u64(pe_nid(addresses[index]));
    ni_begin(n);
}

void ih_restart(unsigned node)
{
    struct reactor *before = ir_at(reactor_control(ir_env()));
    struct lnet_node *n = &nodes[node];

    assert_true(n->stopped);
    n->stop_asked = n->stopped = n->quiet = n->started = false;
    lnd_verbs_ops.ni_fini(&n->ni);
    ni_begin(n);
    ir_restore(before);
}

int ih_setup(void **state)
{
    (void)state;
    if (ih_opts.nodes == 0)
        ih_defaults();
    memset(&core, 0, sizeof(core));
    memset(slot_used, 0, sizeof(slot_used));
    ir_init();
    fake_init();
    for (unsigned i = 0; i < ih_opts.nodes; i++)
        node_init(&nodes[i], i);
    ih_persona_is(PEER);
    ir_run();
    return 0;
}

int ih_setup_plain(void **state)
{
    ih_defaults();
    return ih_setup(state);
}

static void on_stopped(struct reactor_task *task)
{
    struct lnet_node *n = container_of(task, struct lnet_node, stop_done);

    assert_ptr_equal(reactor_self(), reactor_control(ir_env()));
    assert_false(n->stopped);
    n->stopped = true;
}

static void on_quiet(struct reactor_task *task)
{
    struct lnet_node *n = container_of(task, struct lnet_node, quiesce_done);

    assert_ptr_equal(reactor_self(), reactor_control(ir_env()));
    assert_false(n->quiet);
    n->quiet = true;
}

void ih_quiesce_begin(unsigned node)
{
    struct reactor *before = ir_at(reactor_control(ir_env()));

    nodes[node].quiesce_done.fn = on_quiet;
    lnd_verbs_ops.ni_quiesce(&nodes[node].ni, &nodes[node].quiesce_done);
    ir_restore(before);
}

void ih_quiesce(unsigned node)
{
    ih_quiesce_begin(node);
    fake_settle();
}

void ih_stop_begin(unsigned node)
{
    struct reactor *before = ir_at(reactor_control(ir_env()));

    assert_false(nodes[node].stop_asked);
    nodes[node].stop_asked = true;
    nodes[node].stop_done.fn = on_stopped;
    lnd_verbs_ops.ni_stop(&nodes[node].ni, &nodes[node].stop_done);
    ir_restore(before);
}

void ih_stop_later(unsigned node)
{
    ih_stop_begin(node);
    fake_settle();
}

bool ih_stopped(unsigned node)
{
    return nodes[node].stopped;
}

bool ih_quiet(unsigned node)
{
    return nodes[node].quiet;
}

void ih_stop(unsigned node)
{
    if (nodes[node].started && !nodes[node].stop_asked)
        ih_stop_later(node);
    for (unsigned i = 0; i < 100 && nodes[node].started && !nodes[node].stopped; i++) {
        struct ih_rx *r;

        /* What the core would not cancel it must ask for in the end. */
        while ((r = ih_waiting()))
            ih_recv(r, 0);
        fake_settle();
        ir_advance(IR_SEC / 4);
    }
    assert_true(!nodes[node].started || nodes[node].stopped);
}

static void free_msgs(bool all)
{
    struct ih_msg **m = &core.msgs;
    struct ih_rx **r = &core.rxs;

    while (*m) {
        struct ih_msg *x = *m;

        if (all && x->done != 1)
            fail_msg("a message never ended");
        if (x->done == 0) {
            m = &x->next;
            continue;
        }
        *m = x->next;
        free(x);
    }
    while (*r) {
        struct ih_rx *x = *r;

        if (all && x->rx)
            fail_msg("a receive never ended");
        if (x->rx) {
            r = &x->next;
            continue;
        }
        *r = x->next;
        free(x->data);
        free(x);
    }
}

void ih_forget(void)
{
    free_msgs(false);
}

int ih_teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ih_opts.nodes; i++)
        ih_stop(i);
    for (unsigned i = 0; i < ih_opts.nodes; i++) {
        struct reactor *before = ir_at(reactor_control(ir_env()));

        lnd_verbs_ops.ni_fini(&nodes[i].ni);
        lnd_driver_free(nodes[i].lv);
        ir_restore(before);
    }
    ir_run();
    assert_int_equal(core.open, 0);
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        for (unsigned k = 0; k < nodes[i].npeers; k++)
            assert_int_equal(nodes[i].peers[k].refs, 0);
    assert_true(ir_idle());
    free_msgs(true);
    fake_fini();
    ih_defaults();
    return 0;
}
