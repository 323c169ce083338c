/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: how the core and the transport behave, then what happens to a whole socklnd NI, step by
 * step: connections of several peers, HELLOs and frames, right or damaged, in one piece or two,
 * messages of ours with the connections that they need, windows, ends and time. The unit tests'
 * fake is the reactors, the core and the transport, and checks how each is used. Afterwards the NI
 * stops, every message was reported once, and no stream, segment, grant, timer or reference to a
 * peer NI is left.
 */
#include "test/unit/socklnd_fake.h"

#include "lib/base/minmax.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/fuzz_input.h"

#ifndef FUZZ_CAPS
#define FUZZ_CAPS 0 /* payload is read into the core's memory */
#endif
#define SLOTS 8

enum step {
    CALL,   /* a peer connects */
    HELLO,  /* its request and HELLO */
    ANSWER, /* its HELLO to a connection of ours */
    FRAME,  /* a PUT */
    NOOP,
    RAW, /* any bytes */
    END,
    TIME,
    TIME_LONG,
    SEND,    /* a message of ours */
    DIALLED, /* what we connected is connected */
    WINDOW,  /* the stream takes so many bytes more */
    REFUSE,  /* the core refuses the next header */
    STEPS
};

static const char *const address[] = {"10.0.0.3",    "10.0.0.9", "10.0.0.12",
                                      "192.168.7.1", "fd00::3",  "fd00::9"};
static const char *const dest[] = {"10.0.0.5@tcp", "fd00::5@tcp", "10.9.9.9@tcp7", "fd00::77@tcp7"};
static struct slot {
    struct fake_stream *s;
    const char *ip;
} slot[SLOTS];
static enum fake_parse usual;

static void nid_text(const char *ip, char out[64])
{
    snprintf(out, 64, "%s@tcp", ip);
}

/* The NI of ours that has the family of an address; or another destination, where 7 is asked for.
 */
static const char *dest_of(const char *ip, unsigned which)
{
    return dest[(which == 7 ? 2 : 0) + (strchr(ip, ':') != NULL)];
}

static struct slot *slot_of(struct input *in)
{
    return &slot[take_bytes(in, 1) % SLOTS];
}

static bool is_open(const struct slot *at)
{
    return at->s && !at->s->closed;
}

/* All that a transport may deliver: not more than was promised to it. */
static void feed(struct slot *at, const uint8_t *bytes, size_t n)
{
    if (!is_open(at) || at->s->connecting || at->s->ended)
        return;
    if (at->s->told)
        n = min(n, at->s->promised);
    fake_feed(at->s, bytes, n);
    core.parse = usual;
}

/* Whole; or damaged in one byte; or in two pieces. */
static void feed_some(struct slot *at, uint8_t *bytes, size_t n, struct input *in)
{
    unsigned how = take_bytes(in, 1);
    size_t cut = n;

    if (n == 0)
        return;
    if ((how & 1) != 0)
        bytes[take_bytes(in, 1) % n] ^= (uint8_t)take_bytes(in, 1);
    if ((how & 2) != 0)
        cut = take_bytes(in, 1) % n;
    feed(at, bytes, cut);
    if ((how & 4) == 0)
        feed(at, bytes + cut, n - cut);
}

static void call_step(struct slot *at, struct input *in)
{
    unsigned who = take_bytes(in, 1);

    if (is_open(at))
        return;
    at->ip = address[who % 6];
    at->s = fake_call(at->ip, (uint16_t)(who & 128 ? 40000 + who : 1023 - who / 6 % 16));
    fake_run();
}

static void hello_step(struct slot *at, struct input *in, bool answer)
{
    unsigned what = take_bytes(in, 1);
    enum sock_ctype type = (enum sock_ctype)(what % 4);
    uint8_t bytes[2 * SOCK_HELLO16_SIZE];
    char nid[64];
    size_t n;

    if (!is_open(at))
        return;
    nid_text(at->ip, nid);
    if (answer)
        n = fake_hello_only(bytes, nid, dest_of(at->ip, what >> 2 & 7), type, 77 + (what >> 5));
    else
        n = fake_hello(bytes, nid, dest_of(at->ip, what >> 2 & 7), type, 77 + (what >> 5));
    feed_some(at, bytes, n, in);
}

static void frame_step(struct slot *at, struct input *in)
{
    static uint8_t bytes[8192];
    unsigned len = take_bytes(in, 2) % 6000, what = take_bytes(in, 1);
    char nid[64];

    if (!is_open(at))
        return;
    nid_text(at->ip, nid);
    feed_some(at, bytes,
              fake_frame(bytes, nid, dest_of(at->ip, what % 8), len, what & 8 ? what : 0,
                         what & 16 ? what : 0),
              in);
}

static void noop_step(struct slot *at, struct input *in)
{
    uint8_t bytes[SOCK_FRAME_SIZE];
    uint64_t first = take_bytes(in, 1), second = take_bytes(in, 1);

    feed_some(at, bytes, fake_noop(bytes, first, second), in);
}

static void raw_step(struct slot *at, struct input *in)
{
    size_t n = min(take_bytes(in, 1), (uint32_t)in->left);

    feed(at, in->p, n);
    in->p += n;
    in->left -= n;
}

static void send_step(struct input *in)
{
    const char *ip = address[take_bytes(in, 1) % 6];
    char nid[64];

    nid_text(ip, nid);
    fake_send(fake_msg(strchr(ip, ':') ? fake_ni6() : fake_ni(), nid, take_bytes(in, 2) % 9000));
    fake_run();
}

static const char *ip_of(const struct fake_stream *s)
{
    static const uint8_t last4[] = {3, 9, 12};
    const uint8_t *b = (const uint8_t *)&s->remote.in.sin_addr;

    if (s->remote.sa.sa_family == AF_INET6)
        return address[s->remote.in6.sin6_addr.s6_addr[15] == 3 ? 4 : 5];
    for (unsigned i = 0; i < 3; i++)
        if (b[0] == 10 && b[3] == last4[i])
            return address[i];
    return address[3];
}

static void dialled_step(struct slot *at)
{
    struct fake_stream *s;

    if (is_open(at) || !(s = fake_dialled()) || s->closed)
        return;
    *at = (struct slot){s, ip_of(s)};
    fake_connected(s);
}

static void end_step(struct slot *at, unsigned how)
{
    static const enum stream_end ends[] = {STREAM_END_EOF, STREAM_END_RESET, STREAM_END_TIMEOUT};

    if (is_open(at) && !at->s->ended)
        fake_end(at->s, ends[at->s->connecting ? 1 : how % 3]);
}

static void one_step(struct input *in)
{
    enum step what = (enum step)(take_bytes(in, 1) % STEPS);
    struct slot *at;

    switch (what) {
    case TIME:
        fake_advance(take_bytes(in, 1) * 10000);
        return;
    case TIME_LONG:
        fake_advance(take_bytes(in, 1) % 64 * FAKE_SEC);
        return;
    case SEND:
        send_step(in);
        return;
    case REFUSE:
        if (usual != FAKE_DISCARD)
            core.parse = FAKE_REFUSE;
        return;
    default:
        break;
    }
    at = slot_of(in);
    if (what == CALL)
        call_step(at, in);
    else if (what == HELLO || what == ANSWER)
        hello_step(at, in, what == ANSWER);
    else if (what == FRAME)
        frame_step(at, in);
    else if (what == NOOP)
        noop_step(at, in);
    else if (what == RAW)
        raw_step(at, in);
    else if (what == END)
        end_step(at, take_bytes(in, 1));
    else if (what == DIALLED)
        dialled_step(at);
    else if (what == WINDOW && is_open(at) && !at->s->connecting)
        fake_writable(at->s, take_bytes(in, 2));
}

/* The NIs of this process. */
static void begin(void)
{
    static bool made;

    if (made)
        return;
    made = true;
    fake_defaults();
    fake_transport.caps = FUZZ_CAPS;
    fake_conns_per_peer = 2;
    HOLDS(fake_setup(NULL) == 0);
    core.refusal = LNET_DROP_DEST_SAME_NET;
}

/* Peers end what is open and what we still open for messages that wait; then all has run out. */
static void end(void)
{
    core.parse = usual;
    fake_end_all();
    fake_advance(300 * FAKE_SEC);
    fake_forget();
    memset(slot, 0, sizeof(slot));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum fake_parse parse[] = {FAKE_RECEIVE, FAKE_DISCARD, FAKE_OWN};
    struct input in = {data, size};

    begin();
    core.parse = usual = parse[take_bytes(&in, 1) % (FUZZ_CAPS == STREAM_CAP_TAKE ? 3 : 2)];
    while (in.left > 0)
        one_step(&in);
    end();
    return 0;
}
