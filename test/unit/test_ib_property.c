/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two nodes with the o2iblnd driver against each other, in random order: messages of all sizes from
 * all kinds of memory, receives that the core wants at once, later, in part or not at all;
 * everything that a device or the connection manager does takes as long as it likes. In the second
 * half connections break at any moment, and nodes quiesce, stop and come back. Depths of the two
 * nodes go with the seed. RDMA GETs are in test_ib_hostile.c: the driver asks for none.
 *
 * After each step the fakes' own checks hold (credits, buffers, memory of requests, cookies). In
 * the end each message has ended exactly once at its sender; none was received twice; without
 * faults each was received, whole and unchanged, or its failure was told by the receiver.
 *
 *     test_ib_property [seed [steps]]
 */
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OUTSTANDING 40 /* messages of each node */

static uint64_t seed = 1, rng;
static unsigned steps = 400000;
static bool faults;

static struct {
    unsigned received; /* ended well */
    bool refused;      /* its receiver could not take it, and said so */
    bool sent, failed;
} * ids;
static uint32_t nids, max_ids;
static unsigned outstanding[FAKE_NODES];
static unsigned nfaults, nrestarts, rnrs, delivered, failed_ids;
static enum {
    NODE_UP,
    NODE_QUIESCING,
    NODE_STOPPING,
} node_state[FAKE_NODES];

static uint32_t rnd(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

/* ---- messages ---- */

static uint8_t byte_of(uint32_t id, uint32_t i)
{
    return (uint8_t)(id * 37 + i * 7 + (i >> 8) * 13);
}

static uint32_t random_size(void)
{
    switch (rnd(8)) {
    case 0:
        return 0;
    case 1:
        return PE_SMALL - 2 + rnd(5);
    case 2:
    case 3:
        return PE_SMALL + 1 + rnd(20000);
    default:
        return 1 + rnd(rnd(2) ? 100 : PE_SMALL);
    }
}

static void new_message(void)
{
    static const int regions[] = {FAKE_LOCAL, FAKE_LOCAL, FAKE_LOCAL, FAKE_LANDING, -1};
    unsigned node = rnd(2);
    static const uint32_t types[] = {LNET_MSG_PUT,   LNET_MSG_PUT,   LNET_MSG_PUT, LNET_MSG_PUT,
                                     LNET_MSG_REPLY, LNET_MSG_REPLY, LNET_MSG_GET, LNET_MSG_ACK};
    uint32_t len = random_size(), type = types[rnd(8)];
    struct ih_msg *m;

    if (outstanding[node] >= OUTSTANDING || nids == max_ids || node_state[node] != NODE_UP)
        return;
    m = ih_msg(node, node == 0 ? PEER : OWN, type, len, regions[rnd(5)], 1 + rnd(4));
    m->id = nids++;
    memcpy(m->msg.hdr.body + 20, &m->id, 4);
    for (uint32_t i = 0; m->memory && i < len; i++)
        m->memory[i] = byte_of(m->id, i);
    outstanding[node]++;
    ih_give(m);
}

static void on_sent(struct ih_msg *m)
{
    assert_false(ids[m->id].sent || ids[m->id].failed);
    if (m->result.reason == LNET_DROP_NONE)
        ids[m->id].sent = true;
    else
        ids[m->id].failed = true;
    outstanding[m->node]--;
}

static enum ih_parse on_parse(const struct lnet_rx *rx)
{
    static const enum ih_parse how[] = {IH_RECEIVE, IH_RECEIVE,  IH_RECEIVE, IH_RECEIVE,
                                        IH_RECEIVE, IH_PIECES,   IH_DISCARD, IH_LATER,
                                        IH_LATER,   IH_TRUNCATE, IH_HEAP,    IH_LOCAL};

    core.truncate = rx->hdr.payload_len / 2;
    return how[rnd(sizeof(how) / sizeof(how[0]))];
}

static void on_received(struct ih_rx *r)
{
    uint32_t id;

    memcpy(&id, r->hdr.body + 20, 4);
    assert_true(id < nids);
    if (r->result.reason != LNET_DROP_NONE) {
        ids[id].refused |= r->result.reason == IB_DROP(NO_LANDING);
        return;
    }
    for (uint32_t i = 0; r->data && i < r->mlen; i++) {
        if (r->data[i] != byte_of(id, i))
            fail_msg("byte %u of message %u is wrong", i, id);
    }
    if (++ids[id].received > 1)
        fail_msg("message %u was received twice", id);
    delivered++;
}

static void answer_later(void)
{
    struct ih_rx *r = core.rxs, *waiting[64];
    unsigned n = 0;

    for (; r && n < 64; r = r->next) {
        if (r->rx && !r->asked)
            waiting[n++] = r;
    }
    if (n > 0) {
        r = waiting[rnd(n)];
        ih_recv(r, rnd(8) == 0 ? 0 : r->hdr.payload_len);
    }
}

/* ---- the connection manager between them ---- */

static bool alive(const struct fake_link *fl)
{
    return fl && fl->phase < FAKE_SHUT;
}

static void connecting(struct fake_link *fl)
{
    struct fake_call *call;

    if (!fake_listening(!fl->node)) {
        fake_tell(fl, RDMA_EV_REJECTED, 0, 8, NULL, 0);
        return;
    }
    call = fake_call(!fl->node, fl->node == 0 ? OWN : PEER, 1023, fl->priv, fl->priv_len);
    call->mate = fl;
}

static void accepting(struct fake_link *fl)
{
    uint8_t priv[196] = {0};

    if (!alive(fl->mate) || fl->mate->phase != FAKE_CONNECTING) {
        fake_tell(fl, RDMA_EV_FAILED, -ENOTCONN, 0, NULL, 0);
        fl->mate = NULL;
        return;
    }
    memcpy(priv, fl->priv, fl->priv_len);
    fl->mate->mate = fl;
    fake_tell(fl->mate, RDMA_EV_ESTABLISHED, 0, 0, priv, sizeof(priv));
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
}

static void rejecting(struct fake_link *mate, const uint8_t *priv, size_t len)
{
    if (alive(mate) && mate->phase == FAKE_CONNECTING)
        fake_tell(mate, RDMA_EV_REJECTED, 0, 28, priv, len);
}

static void disconnecting(struct fake_link *fl)
{
    if (fl->mate && fl->mate->mate == fl && alive(fl->mate))
        fake_tell(fl->mate, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
}

/* ---- steps ---- */

static struct fake_link *random_link(void)
{
    struct fake_link *fl = fake.links;

    if (fake.nlive == 0)
        return NULL;
    for (unsigned n = rnd(fake.nlive); n > 0; n--)
        fl = fl->next;
    return fl;
}

static void device_step(struct fake_link *fl)
{
    switch (rnd(5)) {
    case 0:
    case 1:
        for (unsigned n = 1 + rnd(4); n > 0; n--)
            fake_wire(fl);
        break;
    case 2:
        if (fl->phase == FAKE_UP)
            fake_complete(fl, 1 + rnd(3));
        break;
    case 3:
        fake_show(fl, 1 + rnd(4));
        break;
    case 4:
        if (fl->phase == FAKE_DOWN)
            fake_flush(fl, 1 + rnd(20));
        break;
    }
}

static void fault(struct fake_link *fl)
{
    static const enum ibv_wc_status bad[] = {IBV_WC_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR,
                                             IBV_WC_RNR_RETRY_EXC_ERR};

    if (!fl || fl->phase > FAKE_UP)
        return;
    nfaults++;
    switch (rnd(7)) {
    case 0:
        if (fl->phase == FAKE_UP) {
            fake_break(fl);
            fake_tell(fl, RDMA_EV_DISCONNECTED, -EIO, 0, NULL, 0);
        }
        break;
    case 1:
        if (fl->phase == FAKE_UP && fl->wrs)
            fake_fail_send(fl, bad[rnd(3)]);
        break;
    case 2:
        if (fl->phase == FAKE_UP && fl->nrecvs > 0)
            fake_fail_recv(fl, IBV_WC_LOC_PROT_ERR);
        break;
    case 3:
        if (fl->phase == FAKE_UP)
            fl->post_error = ENOMEM;
        break;
    case 4:
        if (fl->phase == FAKE_UP)
            fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
        break;
    case 5: /* both ends wait for something */
        ir_skip(rnd(20) * IR_SEC);
        break;
    case 6: /* the device makes no queue so deep, or none at all */
        fake.open_error = -ENOMEM;
        fake.open_errors = 1 + rnd(5);
        break;
    }
}

/* A node that is quiet, or has been given time enough to be, stops; one that has stopped comes
 * back. */
static void nodes_step(bool more)
{
    for (unsigned n = 0; n < FAKE_NODES; n++) {
        if (node_state[n] == NODE_UP && more && rnd(30000) == 0) {
            node_state[n] = NODE_QUIESCING;
            ih_quiesce_begin(n);
        } else if (node_state[n] == NODE_QUIESCING && (ih_quiet(n) || rnd(3000) == 0)) {
            node_state[n] = NODE_STOPPING;
            ih_stop_begin(n);
        } else if (node_state[n] == NODE_STOPPING && ih_stopped(n)) {
            node_state[n] = NODE_UP;
            ih_restart(n);
            nrestarts++;
        }
    }
}

static void step(bool more)
{
    struct fake_link *fl;

    switch (rnd(16)) {
    case 0:
    case 1:
    case 2:
        if (more)
            new_message();
        break;
    case 3:
        answer_later();
        break;
    case 4:
        ir_skip(rnd(64) == 0 ? rnd(20000) : rnd(60));
        break;
    case 5:
    case 6:
    case 7:
    case 8:
        ir_turn(rnd(IR_REACTORS + 1));
        break;
    case 9:
        fl = random_link();
        if (fl)
            fake_events_go(fl);
        break;
    default:
        fl = random_link();
        if (fl)
            device_step(fl);
        break;
    }
    if (more && faults && rnd(1500) == 0)
        fault(random_link());
    if (faults)
        nodes_step(more);
}

static void look(void)
{
    for (const struct fake_link *fl = fake.links; fl; fl = fl->next)
        led_check(fl);
    ih_forget();
}

static bool at_rest(void)
{
    return outstanding[0] + outstanding[1] == 0 && core.open == 0 && node_state[0] == NODE_UP &&
           node_state[1] == NODE_UP;
}

static void all_ended(void)
{
    for (uint32_t i = 0; i < nids; i++) {
        if (!ids[i].sent && !ids[i].failed)
            fail_msg("message %u never ended", i);
        failed_ids += ids[i].failed;
        if (faults)
            continue;
        if (ids[i].sent && ids[i].received != 1)
            fail_msg("message %u was sent well and received %u times", i, ids[i].received);
        if (ids[i].failed && !ids[i].refused)
            fail_msg("message %u failed without a reason", i);
    }
}

static void run(void **state)
{
    rng = seed * 0x9e3779b97f4a7c15ull + faults;
    nids = 0;
    node_state[0] = node_state[1] = NODE_UP;
    nfaults = nrestarts = rnrs = delivered = failed_ids = 0;
    memset(outstanding, 0, sizeof(outstanding));
    max_ids = steps;
    ids = calloc(max_ids, sizeof(*ids));
    fake.hold_events = fake.hold_all = true;
    fake.connecting = connecting;
    fake.accepting = accepting;
    fake.rejecting = rejecting;
    fake.disconnecting = disconnecting;
    core.on_sent = on_sent;
    core.on_received = on_received;
    core.on_parse = on_parse;
    for (unsigned i = 0; i < steps; i++) {
        step(true);
        if (i % 64 == 0)
            look();
    }
    for (unsigned i = 0; i < 400000 && !at_rest(); i++) {
        step(false);
        if (i % 64 == 0)
            look();
        if (i % 1000 == 999 && faults)
            ir_skip(IR_SEC / 4);
    }
    if (!at_rest())
        fail_msg("seed %llu: %u + %u messages and %u receives do not end", (unsigned long long)seed,
                 outstanding[0], outstanding[1], core.open);
    all_ended();
    printf(
        "seed %llu, depths %d and %d: %u messages, %u received, %u failed, %u faults, %u restarts, "
        "%u dials\n",
        (unsigned long long)seed, ih_opts.peer_credits, ih_opts.peer_credits_2, nids, delivered,
        failed_ids, nfaults, nrestarts, fake.dials);
    assert_true(faults || fake.dials <= 12);
    assert_true(!faults || steps < 400000 || nrestarts > 0);
    assert_true(nids > steps / (faults ? 100 : 30));
}

/* Everything goes its way at once again. */
static int teardown(void **state)
{
    fake.hold_events = fake.hold_all = false;
    for (struct fake_link *fl = fake.links; fl; fl = fl->next) {
        fl->hold_events = fl->hold_sends = fl->hold_recvs = fl->hold_flush = false;
        fake_show(fl, UINT32_MAX);
        if (fl->phase == FAKE_DOWN)
            fake_flush(fl, UINT32_MAX);
        fake_post_events(fl);
    }
    ih_teardown(state);
    free(ids);
    return 0;
}

static int setup(void **state)
{
    static const int depths[][2] = {{32, 9}, {8, 8}, {8, 128}};
    const int *depth = depths[seed % 3];

    ih_defaults();
    ih_opts.nodes = 2;
    ih_opts.peer_credits = depth[0];
    ih_opts.peer_credits_2 = depth[1];
    ih_opts.conns_per_peer = 2;
    faults = false;
    return ih_setup(state);
}

static int setup_faults(void **state)
{
    setup(state);
    faults = true;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(run, setup, teardown),
        cmocka_unit_test_setup_teardown(run, setup_faults, teardown),
    };

    if (argc > 1)
        seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        steps = (unsigned)strtoul(argv[2], NULL, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
