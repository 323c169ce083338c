/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: how the peers of a whole o2iblnd NI connect, step by step: requests of several peers whose
 * private data is right, changed in one field or damaged, each of two byte orders; what the
 * connection manager reports of the connections accepted; answers and rejects to our own requests;
 * messages of peers on connections that are up; messages of ours; devices without memory; and time.
 * Devices, reactors and the core are those of the unit tests (test/unit/ib_harness.h), which check
 * how each is used. The NI lives on across inputs.
 *
 * A request whose private data is not an offer in the words of §1.3 of docs/protocol/o2iblnd.md is
 * never accepted, and an accepted one gets a CONNACK that asks for no more than was offered. After
 * each input no connection, message, receive or reference to a peer NI is left.
 */
#include "test/unit/ib_harness.h"

#include "test/fuzz/fuzz.h"
#include "test/fuzz/fuzz_input.h"

#include <errno.h>

#define CALLS_MAX 24 /* of an input */

enum step {
    CALL,      /* a right request */
    CALL_NEAR, /* one field changed */
    CALL_WILD, /* any bytes changed */
    CALL_RAW,  /* any bytes */
    UP,        /* what is accepted is established */
    FAIL,
    TAKEN_BACK,
    BREAK, /* the peer disconnects */
    SEND,  /* a message of ours */
    ANSWER,
    ANSWER_WILD,
    REJECT,
    SAY,      /* a message of the peer's */
    SHORTAGE, /* the next queue pairs cannot be made */
    TIME,
    STEPS
};

static const char *const address[] = {"10.0.0.2", "10.0.0.3", "10.0.0.4", "9.0.0.1"};
static unsigned calls;

static void at_peer(unsigned n)
{
    uint64_t mine = peer.my_stamp;

    ih_persona_is(address[n % 4]);
    peer.my_stamp = mine;
}

/* ---- requests ---- */

static struct pe_msg request(struct input *in, unsigned how)
{
    struct pe_msg m;

    peer.big = how & 4;
    m = ih_base(PE_CONNREQ, 0);
    m.dst_stamp = 0;
    m.src_stamp = STAMP + (how >> 3 & 1);
    m.depth = (uint16_t)(how & 16 ? 4 + take_bytes(in, 1) % 5 : 8);
    m.frags = (uint16_t)(how & 32 ? 1 + take_bytes(in, 2) % 257 : 257);
    m.size = PE_MSG;
    return m;
}

static void near(struct pe_msg *m, struct input *in)
{
    unsigned which = take_bytes(in, 1) % 10;
    uint32_t v = take_bytes(in, 2);

    switch (which) {
    case 0:
        m->type = (uint8_t)v;
        break;
    case 1:
        m->version = (uint16_t)v;
        break;
    case 2:
        m->magic = v;
        break;
    case 3:
        m->nob = v;
        break;
    case 4:
        m->src ^= 1ull << v % 64;
        break;
    case 5:
        m->dst ^= 1ull << v % 64;
        break;
    case 6:
        m->dst_stamp = v & 1 ? peer.my_stamp : v;
        break;
    case 7:
        m->depth = (uint16_t)v;
        break;
    case 8:
        m->frags = (uint16_t)v;
        break;
    default:
        m->size = v;
    }
}

/* Of an accepted request the private data is an offer, by the persona's own decoder. */
static void check_call(const struct fake_call *call, const uint8_t *priv, size_t len, bool big)
{
    struct pe_msg req = {0}, ack;
    struct pe_reject r;

    HOLDS(call->asked);
    if (call->rejected) {
        HOLDS(call->priv_len == 24);
        HOLDS(pe_reject_decode(call->priv, call->priv_len, &r) && r.why != 0);
        return;
    }
    if (!call->link || call->link->phase != FAKE_ACCEPTING)
        return;
    HOLDS(pe_decode(call->link->priv, call->link->priv_len, &ack) && ack.type == PE_CONNACK);
    HOLDS(ack.src == peer.my_nid && ack.size == PE_MSG);
    if (big)
        return;
    HOLDS(pe_decode(priv, len, &req) && req.type == PE_CONNREQ);
    HOLDS(ack.dst == req.src && ack.dst_stamp == req.src_stamp && req.dst == peer.my_nid);
    HOLDS(ack.depth <= req.depth && ack.frags <= req.frags);
}

static void call_bytes(uint8_t *priv, size_t len, unsigned how, bool big)
{
    struct fake_call *call;
    struct pe_msg ack;

    if (calls++ >= CALLS_MAX)
        return;
    call = fake_call(0, peer.address, how & 128 ? 40000 : 1023, priv, len);
    fake_settle();
    if (!call->asked)
        return; /* waits for an NI */
    check_call(call, priv, len < 56 ? 56 : len, big);
    if (call->link && call->link->phase == FAKE_ACCEPTING &&
        pe_decode(call->link->priv, call->link->priv_len, &ack)) {
        peer.my_stamp = ack.src_stamp;
        call->link->hostile = true;
    }
}

static void call_step(struct input *in, enum step what)
{
    uint8_t priv[PE_MSG] = {0};
    unsigned how = take_bytes(in, 1), n;
    struct pe_msg m;
    size_t len;

    at_peer(how);
    if (what == CALL_RAW) {
        len = take_bytes(in, 1) % 93;
        for (size_t i = 0; i < len; i++)
            priv[i] = (uint8_t)take_bytes(in, 1);
        call_bytes(priv, len, how, false);
        return;
    }
    m = request(in, how);
    if (what == CALL_NEAR)
        near(&m, in);
    len = pe_encode(&m, priv);
    if (len > 92)
        len = 92;
    n = what == CALL_WILD ? 1 + take_bytes(in, 1) % 3 : 0;
    for (; n > 0; n--)
        priv[take_bytes(in, 1) % 56] = (uint8_t)take_bytes(in, 1);
    call_bytes(priv, len, how, m.big || what == CALL_WILD);
}

/* ---- connections ---- */

/* The nth link in such a phase. */
static struct fake_link *link_in(enum fake_phase phase, unsigned n, bool active)
{
    struct fake_link *fl;
    unsigned have = 0;

    for (fl = fake.links; fl; fl = fl->next)
        have += fl->phase == phase && fl->active == active;
    if (have == 0)
        return NULL;
    n %= have;
    for (fl = fake.links; fl; fl = fl->next)
        if (fl->phase == phase && fl->active == active && n-- == 0)
            break;
    return fl;
}

static void event_step(enum step what, unsigned how)
{
    static const int errors[] = {0, -ETIMEDOUT, -ECONNREFUSED, -EINVAL};
    struct fake_link *fl = link_in(FAKE_ACCEPTING, how, false);

    if (what == BREAK) {
        fl = link_in(FAKE_UP, how >> 1, how & 1);
        if (fl)
            fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    } else if (fl) {
        fake_tell(fl,
                  what == UP     ? RDMA_EV_ESTABLISHED
                  : what == FAIL ? RDMA_EV_FAILED
                                 : RDMA_EV_REJECTED,
                  what == FAIL ? errors[how >> 6] : 0, what == TAKEN_BACK ? 28 : 0, NULL, 0);
    }
    fake_settle();
}

static void answer_step(struct input *in, bool wild)
{
    unsigned how = take_bytes(in, 1);
    struct fake_link *fl = link_in(FAKE_CONNECTING, how, true);
    uint8_t priv[196] = {0}, msg[PE_MSG];
    struct pe_msg m, req;
    unsigned n;

    if (!fl || !pe_decode(fl->priv, fl->priv_len, &req))
        return;
    peer.my_stamp = req.src_stamp;
    peer.big = how & 64;
    m = ih_base(PE_CONNACK, 0);
    m.src = req.dst;
    m.depth = req.depth;
    m.frags = req.frags;
    m.size = PE_MSG;
    if (how & 128)
        near(&m, in);
    memcpy(priv, msg, pe_encode(&m, msg) % 197);
    n = wild ? 1 + take_bytes(in, 1) % 3 : 0;
    for (; n > 0; n--)
        priv[take_bytes(in, 1) % 56] = (uint8_t)take_bytes(in, 1);
    fl->hostile = true;
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, priv, sizeof(priv));
    fake_settle();
}

static void reject_step(struct input *in)
{
    static const int status[] = {28, 10, 8, -ECONNREFUSED, -ETIMEDOUT, 28, 28, 28};
    unsigned how = take_bytes(in, 1);
    struct fake_link *fl = link_in(FAKE_CONNECTING, how, true);
    struct pe_reject r = {.why = (uint8_t)(take_bytes(in, 1) % 12),
                          .stamp = STAMP + take_bytes(in, 1) % 4,
                          .depth = (uint16_t)take_bytes(in, 1),
                          .frags = (uint16_t)take_bytes(in, 2)};
    uint8_t priv[148] = {0}, msg[24];

    if (!fl)
        return;
    memcpy(priv, msg, pe_reject_encode(&r, msg));
    if ((how & 8) != 0)
        priv[take_bytes(in, 1) % 24] = (uint8_t)take_bytes(in, 1);
    fake_tell(fl, RDMA_EV_REJECTED, 0, status[how >> 4 & 7], priv, sizeof(priv));
    fake_settle();
}

static void say_step(struct input *in)
{
    unsigned how = take_bytes(in, 1);
    struct fake_link *fl = link_in(FAKE_UP, how >> 2, how & 1);
    struct pe_msg m;

    if (!fl)
        return;
    fl->hostile = true;
    m = how & 2 ? ih_immediate(how * 4, 1) : ih_base(PE_NOOP, (uint8_t)(how >> 6));
    if ((how & 128) != 0)
        m.src_stamp++;
    if (fl->nrecvs > 0)
        ih_tell(fl, &m);
    fake_settle();
}

static void one_step(struct input *in)
{
    enum step what = (enum step)(take_bytes(in, 1) % STEPS);
    unsigned how;

    if (what <= CALL_RAW) {
        call_step(in, what);
    } else if (what <= BREAK) {
        event_step(what, take_bytes(in, 1));
    } else if (what == SEND) {
        how = take_bytes(in, 1);
        ih_send(ih_msg(0, address[how % 4], LNET_MSG_ACK, 0, -1, 1));
    } else if (what == ANSWER || what == ANSWER_WILD) {
        answer_step(in, what == ANSWER_WILD);
    } else if (what == REJECT) {
        reject_step(in);
    } else if (what == SAY) {
        say_step(in);
    } else if (what == SHORTAGE) {
        how = take_bytes(in, 1);
        fake.open_error = how & 1 ? -ENOMEM : -EINVAL;
        fake.open_errors = how >> 1 & 7;
    } else {
        how = take_bytes(in, 1);
        ir_advance(how & 1 ? how * IR_SEC / 2 : how * IR_SEC / 100);
        fake_settle();
    }
}

/* ---- the process ---- */

static void begin(void)
{
    static bool made;

    if (made)
        return;
    made = true;
    ih_defaults();
    ih_opts.verbs.require_privileged_port = true;
    HOLDS(ih_setup(NULL) == 0);
}

/* All that waits for an answer ends with its time; what is up is ended by its peer. */
static void end(void)
{
    struct fake_link *fl;

    fake.open_errors = 0;
    for (unsigned i = 0; i < 60 && (i == 0 || fake.links || ih_peer_refs() > 0); i++) {
        while ((fl = link_in(FAKE_UP, 0, false)) || (fl = link_in(FAKE_UP, 0, true))) {
            fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
            fake_settle();
        }
        ir_advance(20 * IR_SEC);
        fake_settle();
    }
    HOLDS(!fake.links && core.open == 0);
    HOLDS(ih_peer_refs() == 0);
    for (struct ih_msg *m = core.msgs; m; m = m->next)
        HOLDS(m->done == 1);
    ih_forget();
    fake_forget();
    calls = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    begin();
    while (in.left > 0)
        one_step(&in);
    end();
    return 0;
}
