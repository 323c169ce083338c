/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/socklnd_fake.h"
#include "lib/base/err.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/drops_test.h"
#include <cmocka.h>

REGISTER_DROPS(sock_drops);

#define MAX_PEERS 512
#define MAX_MSGS  4096

/* ---- reactors ---- */

struct reactor {
    unsigned index;
    struct reactor_task *mail, **mail_tail;
    struct reactor_timer *timers; /* unsorted */
    TAILQ_HEAD(, reactor_poller) pollers;
};

struct reactor_env {
    struct reactor reactor[FAKE_REACTORS + 1];
};

/* Of lib/reactor/wait.h: there is no reactor. */
__thread void *reactor_waits_on;

static struct reactor_env env;
static struct reactor *self;
static uint64_t now_us;

struct reactor *reactor_self(void)
{
    return self;
}

unsigned reactor_index(const struct reactor *r)
{
    return r->index;
}

unsigned reactor_count(const struct reactor_env *e)
{
    (void)e;
    return FAKE_REACTORS;
}

struct reactor *reactor_at(struct reactor_env *e, unsigned index)
{
    return &e->reactor[index];
}

struct reactor *reactor_control(struct reactor_env *e)
{
    return &e->reactor[FAKE_REACTORS];
}

void reactor_post(struct reactor *to, struct reactor_task *task)
{
    task->link.stqe_next = NULL;
    *to->mail_tail = task;
    to->mail_tail = &task->link.stqe_next;
}

uint64_t reactor_now_us(void)
{
    return now_us;
}

void reactor_timer_init(struct reactor_timer *t, reactor_timer_fn fn)
{
    *t = (struct reactor_timer){.fn = fn};
}

void reactor_timer_cancel(struct reactor_timer *t)
{
    if (!t->link.le_prev)
        return;
    *t->link.le_prev = t->link.le_next;
    if (t->link.le_next)
        t->link.le_next->link.le_prev = t->link.le_prev;
    t->link.le_prev = NULL;
}

void reactor_timer_arm(struct reactor_timer *t, uint64_t delay_us)
{
    assert_true(self && self->index < FAKE_REACTORS);
    reactor_timer_cancel(t);
    t->expires_us = now_us + delay_us;
    t->link.le_next = self->timers;
    if (t->link.le_next)
        t->link.le_next->link.le_prev = &t->link.le_next;
    t->link.le_prev = &self->timers;
    self->timers = t;
}

void reactor_poller_add(struct reactor *r, struct reactor_poller *p)
{
    assert_ptr_equal(r, self);
    TAILQ_INSERT_HEAD(&r->pollers, p, link);
}

void reactor_poller_del(struct reactor *r, struct reactor_poller *p)
{
    assert_ptr_equal(r, self);
    TAILQ_REMOVE(&r->pollers, p, link);
}

/* Only the link watcher has a descriptor; no event comes in these tests. */
int reactor_fd_add(struct reactor_fd *f, int fd, uint32_t events, reactor_fd_fn fn)
{
    (void)f;
    (void)fd;
    (void)events;
    (void)fn;
    return 0;
}

int reactor_fd_mod(struct reactor_fd *f, uint32_t events)
{
    (void)f;
    (void)events;
    return 0;
}

void reactor_fd_del(struct reactor_fd *f)
{
    (void)f;
}

struct reactor *fake_on(unsigned i)
{
    struct reactor *before = self;

    self = &env.reactor[i];
    return before;
}

void fake_restore(struct reactor *r)
{
    self = r;
}

static int run_mail(struct reactor *r)
{
    struct reactor_task *list = r->mail;
    int n = 0;

    r->mail = NULL;
    r->mail_tail = &r->mail;
    while (list) {
        struct reactor_task *t = list;

        list = t->link.stqe_next;
        t->fn(t);
        n++;
    }
    return n;
}

static struct reactor_timer *due(const struct reactor *r)
{
    struct reactor_timer *best = NULL;

    for (struct reactor_timer *t = r->timers; t; t = t->link.le_next) {
        if (t->expires_us <= now_us && (!best || t->expires_us < best->expires_us))
            best = t;
    }
    return best;
}

static int run_timers(struct reactor *r)
{
    struct reactor_timer *t;
    int n = 0;

    /* As the wheel does: what is armed now fires in the next round. */
    if ((t = due(r))) {
        reactor_timer_cancel(t);
        t->fn(t);
        n++;
    }
    return n;
}

static int streams_run(struct reactor *r);

static int step(struct reactor *r)
{
    struct reactor_poller *next;
    int work = 0;

    self = r;
    for (struct reactor_poller *p = TAILQ_FIRST(&r->pollers); p; p = next) {
        next = TAILQ_NEXT(p, link);
        work += p->fn(p->arg);
    }
    work += run_mail(r);
    work += run_timers(r);
    work += streams_run(r);
    return work;
}

int fake_iterate(void)
{
    struct reactor *before = self;
    int work = 0;

    for (unsigned i = 0; i <= FAKE_REACTORS; i++)
        work += step(&env.reactor[i]);
    self = before;
    return work;
}

void fake_run(void)
{
    int rounds = 0;

    while (fake_iterate() > 0)
        if (++rounds > 1000000)
            fail_msg("the reactors never come to rest");
}

static uint64_t next_timer(void)
{
    uint64_t next = UINT64_MAX;

    for (unsigned i = 0; i < FAKE_REACTORS; i++) {
        for (struct reactor_timer *t = env.reactor[i].timers; t; t = t->link.le_next)
            next = t->expires_us < next ? t->expires_us : next;
    }
    return next;
}

void fake_advance(uint64_t us)
{
    uint64_t end = now_us + us, next;

    fake_run();
    while ((next = next_timer()) <= end) {
        now_us = next;
        fake_run();
    }
    now_us = end;
    fake_run();
}

/* ---- transport ---- */

struct fake_listener {
    struct stream_listener base;
    union stream_addr addr;
    struct reactor *on;
    void (*accepted)(void *user, struct stream *s, const union stream_addr *peer);
    void *user;
    struct fake_listener *next;
};

static struct fake_stream *streams;
static struct fake_stream *newest_dialled;
static struct fake_listener *listeners;
static unsigned connects;
int fake_connect_error;
unsigned fake_ports_in_use;
unsigned fake_take_chunk = 1000;
unsigned fake_takes_out;

static struct fake_stream *fake(struct stream *s)
{
    return (struct fake_stream *)s;
}

static struct fake_stream *stream_new(void)
{
    struct fake_stream *s = calloc(1, sizeof(*s));

    s->base.ops = &fake_transport;
    s->window = SIZE_MAX;
    s->auto_ack = true;
    s->next = streams;
    streams = s;
    return s;
}

static int f_listen(void *ctx, const union stream_addr *addr, const char *ifname,
                    struct reactor *on,
                    void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
                    void *user, struct stream_listener **out)
{
    struct fake_listener *l = calloc(1, sizeof(*l));

    assert_string_equal(ifname, "eth0");
    *l = (struct fake_listener){
        {.ops = &fake_transport}, *addr, on, accepted, user, listeners,
    };
    listeners = l;
    *out = &l->base;
    return 0;
}

static void f_unlisten(struct stream_listener *listener)
{
    struct fake_listener **at = &listeners;

    while (&(*at)->base != listener)
        at = &(*at)->next;
    assert_ptr_equal(self, (*at)->on);
    *at = (*at)->next;
    free(listener);
}

static uint16_t port_of(const union stream_addr *a)
{
    return ntohs(a->sa.sa_family == AF_INET6 ? a->in6.sin6_port : a->in.sin_port);
}

static int f_connect(void *ctx, const union stream_addr *local, const char *ifname,
                     const union stream_addr *remote, int tos, const struct stream_events *ev,
                     void *user, struct stream **out)
{
    struct fake_stream *s;

    (void)ifname;
    (void)tos;
    if (fake_connect_error != 0)
        return fake_connect_error;
    for (s = streams; s; s = s->next) {
        if (s->dialled && !s->closed && port_of(&s->local) == port_of(local) &&
            memcmp(&s->remote, remote, sizeof(*remote)) == 0)
            return -EADDRNOTAVAIL;
    }
    if (port_of(local) > 1023 - fake_ports_in_use)
        return -EADDRINUSE;
    s = stream_new();
    s->dialled = true;
    s->connecting = true;
    s->local = *local;
    s->remote = *remote;
    s->reactor = self;
    s->ev = ev;
    s->user = user;
    *out = &s->base;
    newest_dialled = s;
    connects++;
    return 0;
}

static int f_attach(struct stream *stream, const struct stream_events *ev, void *user)
{
    struct fake_stream *s = fake(stream);

    assert_null(s->reactor);
    assert_false(s->closed);
    s->reactor = self;
    s->ev = ev;
    s->user = user;
    return 0;
}

static void f_detach(struct stream *stream)
{
    assert_ptr_equal(fake(stream)->reactor, self);
    fake(stream)->reactor = NULL;
}

static void f_established(struct stream *stream, int tos)
{
    (void)tos;
    assert_false(fake(stream)->established);
    fake(stream)->established = true;
}

static size_t f_peek(struct stream *stream, size_t want, const uint8_t **p)
{
    struct fake_stream *s = fake(stream);

    assert_true(want <= STREAM_PEEK_MAX);
    assert_false(s->closed);
    *p = s->in + s->in_head;
    s->starved = s->in_len < want;
    return s->in_len < want ? s->in_len : want;
}

static void f_skip(struct stream *stream, size_t n)
{
    struct fake_stream *s = fake(stream);

    assert_true(n <= s->in_len);
    s->in_head += n;
    s->in_len -= n;
}

static size_t f_read_into(struct stream *stream, const struct mem_seg *segs, unsigned nsegs)
{
    struct fake_stream *s = fake(stream);
    size_t done = 0;

    assert_false(s->base.ops->caps & STREAM_CAP_TAKE);
    for (unsigned i = 0; i < nsegs && s->in_len > 0; i++) {
        size_t n = segs[i].len < s->in_len ? segs[i].len : s->in_len;

        memcpy(segs[i].addr, s->in + s->in_head, n);
        f_skip(stream, n);
        done += n;
    }
    return done;
}

static size_t f_take(struct stream *stream, size_t max, struct mem_seg *segs, unsigned maxsegs,
                     unsigned *nsegs, size_t *truesize)
{
    struct fake_stream *s = fake(stream);
    size_t done = 0;

    assert_true(s->base.ops->caps & STREAM_CAP_TAKE);
    *nsegs = 0;
    while (*nsegs < maxsegs && done < max && s->in_len > 0) {
        size_t n = s->in_len < fake_take_chunk ? s->in_len : fake_take_chunk;
        uint8_t *copy;

        n = n < max - done ? n : max - done;
        copy = malloc(n);
        memcpy(copy, s->in + s->in_head, n);
        f_skip(stream, n);
        segs[(*nsegs)++] = (struct mem_seg){copy, (uint32_t)n, 3, 0};
        fake_takes_out++;
        done += n;
    }
    *truesize = *nsegs * FAKE_BUFFER;
    return done;
}

static void f_rx_window(struct stream *stream, size_t bytes, size_t memory)
{
    struct fake_stream *s = fake(stream);

    assert_true(s->base.ops->caps & STREAM_CAP_TAKE);
    assert_false(s->closed);
    assert_ptr_equal(s->reactor, self);
    assert_true(bytes >= s->in_len); /* what has come was promised */
    if (s->told)
        assert_true(bytes - s->in_len >= s->promised);
    s->told = true;
    s->promised = bytes - s->in_len;
    s->memory = memory;
}

static void f_give_back(struct mem_seg *segs, unsigned nsegs)
{
    for (unsigned i = 0; i < nsegs; i++) {
        free(segs[i].addr);
        fake_takes_out--;
    }
}

static void f_rx_pause(struct stream *stream, bool pause)
{
    struct fake_stream *s = fake(stream);

    assert_false(pause && s->paused); /* to restart what runs is allowed */
    if (s->paused && s->in_len > 0)
        s->ev_readable = true;
    s->paused = pause;
}

static void append(uint8_t **buf, size_t *len, size_t *cap, const void *bytes, size_t n)
{
    if (*len + n > *cap) {
        *cap = (*len + n) * 2;
        *buf = realloc(*buf, *cap);
    }
    if (n > 0)
        memcpy(*buf + *len, bytes, n);
    *len += n;
}

static ssize_t f_send(struct stream *stream, const struct mem_seg *segs, unsigned nsegs, bool more)
{
    struct fake_stream *s = fake(stream);
    size_t total = 0;

    (void)more;
    assert_false(s->closed || s->connecting);
    if (s->send_error != 0)
        return s->send_error;
    for (unsigned i = 0; i < nsegs && s->window > 0; i++) {
        size_t n = segs[i].len < s->window ? segs[i].len : s->window;

        assert_true(segs[i].len > 0);
        append(&s->out, &s->out_len, &s->out_cap, segs[i].addr, n);
        if (s->window != SIZE_MAX)
            s->window -= n;
        total += n;
    }
    s->bytes_out += total;
    if (s->auto_ack)
        s->acked = s->bytes_out;
    return (ssize_t)total;
}

static void f_stats(struct stream *stream, struct stream_stats *out)
{
    struct fake_stream *s = fake(stream);

    *out = (struct stream_stats){s->bytes_in, s->bytes_out, s->bytes_out - s->acked};
}

/* The object stays for the test to look at. */
static void f_close(struct stream *stream, bool abort)
{
    struct fake_stream *s = fake(stream);

    assert_false(s->closed);
    assert_true(s->reactor == NULL || s->reactor == self);
    s->closed = true;
    s->aborted = abort;
    s->unread = s->in_len > 0;
    s->reactor = NULL;
}

const char *fake_came_by;

static bool f_came_by(const struct stream *s, char ifname[IF_NAMESIZE])
{
    if (fake_came_by)
        snprintf(ifname, IF_NAMESIZE, "%s", fake_came_by);
    return fake_came_by != NULL;
}

struct stream_ops fake_transport = {
    .name = "fake",
    .listen = f_listen,
    .came_by = f_came_by,
    .unlisten = f_unlisten,
    .connect = f_connect,
    .attach = f_attach,
    .detach = f_detach,
    .established = f_established,
    .peek = f_peek,
    .skip = f_skip,
    .read_into = f_read_into,
    .take = f_take,
    .give_back = f_give_back,
    .rx_buffer = FAKE_BUFFER,
    .rx_window = f_rx_window,
    .rx_pause = f_rx_pause,
    .send = f_send,
    .stats = f_stats,
    .close = f_close,
};

static bool taken(bool *flag)
{
    bool was = *flag;

    *flag = false;
    return was;
}

static int stream_run(struct fake_stream *s)
{
    int work = 0;

    if (taken(&s->ev_connected)) {
        s->connecting = false;
        s->ev->connected(s->user);
        work++;
    }
    if (s->reactor == self && !s->paused && taken(&s->ev_readable)) {
        s->ev->readable(s->user);
        work++;
    }
    if (s->reactor == self && taken(&s->ev_writable)) {
        s->ev->writable(s->user);
        work++;
    }
    if (s->reactor == self && taken(&s->ev_acked)) {
        s->ev->acked(s->user);
        work++;
    }
    /* The end comes after all bytes; a paused stream hears of breakage only. */
    if (s->reactor == self && s->ended &&
        (s->end != STREAM_END_EOF || (!s->paused && (s->in_len == 0 || s->starved)))) {
        s->ended = false;
        s->ev->closed(s->user, s->end);
        work++;
    }
    return work;
}

static int streams_run(struct reactor *r)
{
    int work = 0;

    for (struct fake_stream *s = streams; s; s = s->next) {
        if (s->reactor == r)
            work += stream_run(s);
    }
    return work;
}

static void make_addr(const char *ip, uint16_t port, union stream_addr *out)
{
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, ip, &out->in.sin_addr) == 1) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = htons(port);
        return;
    }
    assert_int_equal(inet_pton(AF_INET6, ip, &out->in6.sin6_addr), 1);
    out->in6.sin6_family = AF_INET6;
    out->in6.sin6_port = htons(port);
}

static struct fake_listener *listener_for(const union stream_addr *from)
{
    struct fake_listener *l = listeners;

    while (l && l->addr.sa.sa_family != from->sa.sa_family)
        l = l->next;
    assert_non_null(l);
    return l;
}

bool fake_refuses(const char *from)
{
    union stream_addr addr = {0};
    struct fake_listener *l;

    make_addr(from, 1023, &addr);
    l = listener_for(&addr);
    return l->base.refuses(l->user, &addr);
}

struct fake_stream *fake_call(const char *from, uint16_t port)
{
    struct fake_stream *s = stream_new();
    struct fake_listener *l;
    struct reactor *before = self;

    make_addr(from, port, &s->remote);
    l = listener_for(&s->remote);
    self = l->on;
    l->accepted(l->user, &s->base, &s->remote);
    self = before;
    return s;
}

struct fake_stream *fake_dialled(void)
{
    struct fake_stream *s = newest_dialled;

    newest_dialled = NULL;
    return s;
}

unsigned fake_connects(void)
{
    return connects;
}

void fake_arrive(struct fake_stream *s, const void *bytes, size_t n)
{
    if (s->in_head > 0)
        memmove(s->in, s->in + s->in_head, s->in_len);
    s->in_head = 0;
    append(&s->in, &s->in_len, &s->in_cap, bytes, n);
    if (s->told) {
        assert_true(n <= s->promised);
        s->promised -= n;
    }
    s->bytes_in += n;
    s->ev_readable = true;
}

void fake_feed(struct fake_stream *s, const void *bytes, size_t n)
{
    fake_arrive(s, bytes, n);
    fake_run();
}

size_t fake_take_out(struct fake_stream *s, void *buf, size_t cap)
{
    size_t n = s->out_len - s->out_read;

    assert_true(n <= cap);
    memcpy(buf, s->out + s->out_read, n);
    s->out_read = s->out_len;
    return n;
}

void fake_expect(struct fake_stream *s, const void *bytes, size_t n)
{
    assert_int_equal(s->out_len - s->out_read, n);
    assert_memory_equal(s->out + s->out_read, bytes, n);
    s->out_read = s->out_len;
}

void fake_expect_nothing(struct fake_stream *s)
{
    assert_int_equal(s->out_len - s->out_read, 0);
}

void fake_end(struct fake_stream *s, enum stream_end end)
{
    s->ended = true;
    s->end = end;
    fake_run();
}

void fake_end_all(void)
{
    for (struct fake_stream *s = streams; s; s = s->next) {
        s->ended |= !s->closed;
        s->end = STREAM_END_RESET;
    }
    fake_run();
}

void fake_connected(struct fake_stream *s)
{
    s->ev_connected = true;
    fake_run();
}

void fake_writable(struct fake_stream *s, size_t more)
{
    s->window = more;
    s->ev_writable = true;
    fake_run();
}

void fake_ack(struct fake_stream *s, size_t n)
{
    s->acked += n;
    assert_true(s->acked <= s->bytes_out);
    s->ev_acked = s->base.ops->caps & STREAM_CAP_BY_REFERENCE;
    fake_run();
}

/* ---- interfaces of the host: eth0 has both addresses ---- */

static union stream_addr if_addr[2];
static struct ifaddrs if_list[2];

int getifaddrs(struct ifaddrs **out)
{
    static char name[] = "eth0";

    make_addr("10.0.0.5", 0, &if_addr[0]);
    make_addr("fd00::5", 0, &if_addr[1]);
    for (int i = 0; i < 2; i++) {
        memset(&if_list[i], 0, sizeof(if_list[i]));
        if_list[i].ifa_name = name;
        if_list[i].ifa_addr = &if_addr[i].sa;
    }
    if_list[0].ifa_next = &if_list[1];
    *out = if_list;
    return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
    (void)list;
}

/* ---- core ---- */

struct lnet_node {
    int unused;
};

struct fake_core core;
struct sock_opts fake_opts;
int fake_timeout;
int fake_late = -1;
int fake_conns_per_peer;
static struct lnet_node node;
static struct lnet_ni nis[2];
static struct lnd_sock *lnd;
static struct lnet_peer_ni peers[MAX_PEERS];
static uint8_t rx_memory[LNET_MAX_PAYLOAD];
#define RX_TOGETHER 64
static struct mem_seg rx_segs[RX_TOGETHER][3]; /* each message that is received has its own */
static unsigned rx_next;
static struct {
    void (*release)(void *owner, struct lnet_sgl *sgl);
    void *owner;
    struct lnet_sgl sgl;
} held[FAKE_LOG];
static unsigned nheld;
static struct lnet_msg *msgs[MAX_MSGS];
static unsigned nmsgs;

struct lnet_ni *fake_ni(void)
{
    return &nis[0];
}

struct lnet_ni *fake_ni6(void)
{
    return &nis[1];
}

struct lnd_sock *fake_lnd(void)
{
    return lnd;
}

struct lnet_node *fake_node(void)
{
    return &node;
}

struct reactor_env *lnet_node_env(const struct lnet_node *n)
{
    (void)n;
    return &env;
}

/* By the last address byte and the number of the net, so that tests know who lives where. */
struct reactor *lnet_nid_home(const struct lnet_node *n, const struct lnet_nid *nid)
{
    const uint8_t *addr = (const uint8_t *)nid->addr_be;

    (void)n;
    return &env.reactor[(addr[nid_is_nid4(nid) ? 3 : 15] + (nid_net(nid) & 0xffff)) %
                        FAKE_REACTORS];
}

unsigned lnet_lnd_timeout(const struct lnet_node *n)
{
    return 49;
}

bool lnet_nid_is_mine(const struct lnet_node *n, const struct lnet_nid *nid)
{
    (void)n;
    return nid_same(nid, &nis[0].nid) || nid_same(nid, &nis[1].nid);
}

struct lnet_peer_ni *lnet_peer_ni_get(struct lnet_node *n, const struct lnet_nid *nid)
{
    assert_ptr_equal(lnet_nid_home(n, nid), self);
    if (core.no_peers)
        return NULL;
    for (unsigned i = 0; i < core.peers; i++) {
        if (nid_same(&peers[i].nid, nid)) {
            lnet_peer_ni_hold(&peers[i]);
            return &peers[i];
        }
    }
    assert_true(core.peers < MAX_PEERS);
    peers[core.peers].nid = *nid;
    lnet_peer_ni_hold(&peers[core.peers]);
    return &peers[core.peers++];
}

void lnet_peer_ni_used(struct lnet_peer_ni *peer)
{
    (void)peer;
}

void lnet_peer_ni_unused(struct lnet_peer_ni *peer)
{
    (void)peer;
}

unsigned fake_peer_refs(void)
{
    unsigned refs = 0;

    for (unsigned i = 0; i < core.peers; i++)
        refs += peers[i].refs;
    return refs;
}

struct lnet_peer_ni *fake_peer(const char *nid)
{
    struct reactor *before = self;
    struct lnet_peer_ni *peer;
    struct lnet_nid n;

    assert_int_equal(nid_parse(nid, &n), 0);
    self = lnet_nid_home(&node, &n);
    peer = lnet_peer_ni_get(&node, &n);
    lnet_peer_ni_put(peer);
    self = before;
    return peer;
}

/* The core's memory in three uneven pieces. */
static void receive(struct lnet_rx *rx, uint32_t len)
{
    uint32_t a = len / 3, b = len / 5;
    struct mem_seg *segs = rx_segs[rx_next++ % RX_TOGETHER];

    segs[0] = (struct mem_seg){rx_memory, a, 7, 0};
    segs[1] = (struct mem_seg){rx_memory + a, b, 7, 0};
    segs[2] = (struct mem_seg){rx_memory + a + b, len - a - b, 7, 0};
    lnd_sock_ops.recv(rx, segs, 3, len);
}

enum lnet_drop lnet_parse(struct lnet_rx *rx)
{
    uint32_t len = rx->hdr.payload_len;

    assert_ptr_equal(lnet_nid_home(&node, &rx->from->nid), self);
    rx->from->message_s = (uint32_t)(reactor_now_us() / FAKE_SEC);
    switch (core.parse) {
    case FAKE_RECEIVE:
        receive(rx, len);
        break;
    case FAKE_OWN:
        lnd_sock_ops.recv(rx, NULL, 0, len);
        break;
    case FAKE_DISCARD:
        lnd_sock_ops.recv(rx, NULL, 0, 0);
        break;
    case FAKE_TRUNCATE:
        receive(rx, core.truncate);
        break;
    case FAKE_LATER:
        assert_null(core.waiting);
        core.waiting = rx;
        break;
    case FAKE_REFUSE:
        return core.refusal;
    }
    return LNET_DROP_NONE;
}

void fake_recv(uint32_t mlen)
{
    struct reactor *before = self;
    struct lnet_rx *rx = core.waiting;

    core.waiting = NULL;
    self = lnet_nid_home(&node, &rx->from->nid);
    receive(rx, mlen);
    self = before;
    fake_run();
}

static void keep_data(struct fake_received *r, struct lnet_rx *rx)
{
    uint32_t off = 0;

    if (r->len == 0 || r->result.reason != LNET_DROP_NONE)
        return;
    r->data = malloc(r->len);
    if (rx->taken.n == 0) {
        memcpy(r->data, rx_memory, r->len);
        return;
    }
    assert_int_equal(rx->taken.bytes, r->len);
    for (uint32_t i = 0; i < rx->taken.n; i++) {
        memcpy(r->data + off, rx->taken.seg[i].addr, rx->taken.seg[i].len);
        off += rx->taken.seg[i].len;
    }
    assert_int_equal(off, r->len);
}

void lnet_recv_done(struct lnet_rx *rx, struct lnet_result result)
{
    struct fake_received *r = &core.received[core.nreceived++];

    assert_true(core.nreceived < FAKE_LOG);
    r->hdr = rx->hdr;
    r->result = result;
    r->from = rx->from->nid;
    r->len = core.parse == FAKE_DISCARD    ? 0
             : core.parse == FAKE_TRUNCATE ? core.truncate
                                           : rx->hdr.payload_len;
    keep_data(r, rx);
    if (rx->taken.n > 0 && core.hold_taken) {
        held[nheld].release = rx->release;
        held[nheld].owner = rx->release_owner;
        held[nheld++].sgl = rx->taken;
    } else if (rx->taken.n > 0) {
        rx->release(rx->release_owner, &rx->taken);
    }
    memset(rx_memory, 0, sizeof(rx_memory) / 64);
}

void fake_release_taken(void)
{
    struct reactor *before = self;

    for (unsigned i = 0; i < nheld; i++) {
        self = &env.reactor[1];
        held[i].release(held[i].owner, &held[i].sgl);
    }
    nheld = 0;
    self = before;
    fake_run();
}

bool lnet_rx_cancel(struct lnet_rx *rx)
{
    core.cancels++;
    if (core.cancel) {
        assert_ptr_equal(core.waiting, rx);
        core.waiting = NULL;
    }
    return core.cancel;
}

size_t lnet_segment_memory(const struct lnet_node *n)
{
    (void)n;
    return 1 << 30;
}

bool lnet_grant_has_room(struct lnet_node *n, uint32_t buffer)
{
    assert_ptr_equal(n, &node);
    return core.grants < core.grants_most || core.grants_most == 0;
}

struct lnet_nid lnet_nid_prefix(const struct lnet_node *n, const struct lnet_nid *nid)
{
    assert_ptr_equal(n, &node);
    return nid_prefix(nid, nid_is_nid4(nid) ? 32 : 64);
}

enum lnet_drop lnet_may_call(const struct lnet_ni *ni, const struct lnet_nid *from)
{
    return core.may_call;
}

enum lnet_drop lnet_may_connect(const struct lnet_ni *ni, const struct lnet_nid *from)
{
    return core.may_connect;
}

bool lnet_is_of_other_net(const struct lnet_node *n, const char *ifname, lnet_net_t net)
{
    return core.other_if && strcmp(ifname, core.other_if) == 0;
}

void lnet_peer_ni_connected(struct lnet_peer_ni *peer, bool is)
{
    core.connected += is ? 1u : -1u;
}

void lnet_grant_open(struct lnet_grant *grant, struct lnet_node *n, uint32_t buffer,
                     void (*opened)(struct lnet_grant *grant))
{
    assert_ptr_equal(n, &node);
    assert_int_equal(buffer, FAKE_BUFFER);
    assert_null(grant->shard);
    *grant = (struct lnet_grant){.shard = (void *)self, .ahead = FAKE_AHEAD, .opened = opened};
    core.grants++;
    grant->open = !core.no_grants;
    if (core.no_grants)
        core.grant_waits = grant;
}

void fake_grant(void)
{
    struct reactor *before = self;

    self = (void *)core.grant_waits->shard;
    core.grant_waits->open = true;
    core.grant_waits->opened(core.grant_waits);
    self = before;
    fake_run();
}

void lnet_grant_close(struct lnet_grant *grant)
{
    if (!grant->shard)
        return;
    assert_ptr_equal(grant->shard, self);
    if (core.grant_waits == grant)
        core.grant_waits = NULL;
    grant->shard = NULL;
    grant->open = false;
    core.grants--;
}

void lnet_grant_consumed(struct lnet_grant *grant, uint32_t bytes)
{
    assert_true(grant->open);
    assert_true(bytes <= grant->ahead);
    grant->ahead -= bytes;
}

bool lnet_rx_took(struct lnet_rx *rx, uint32_t bytes, uint32_t truesize)
{
    assert_true(truesize % FAKE_BUFFER == 0 && truesize >= bytes);
    lnet_grant_consumed(rx->grant, bytes);
    return !core.no_memory;
}

/* As many as messages are under way at most, each at its own time. */
struct mem_seg *lnet_rx_segs(struct lnet_rx *rx)
{
    static struct mem_seg places[1024][LNET_MD_MAX_SEGS];
    static unsigned next;

    assert_non_null(rx);
    return core.no_places ? NULL : places[next++ % 1024];
}

void lnet_msg_fetch(const struct lnet_msg *msg)
{
}

const struct mem_seg *lnet_rx_copy(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs)
{
    struct mem_seg *copy = rx_segs[rx_next++ % RX_TOGETHER];
    uint8_t *to = rx_memory;

    for (unsigned i = 0; i < nsegs; to += segs[i++].len)
        memcpy(to, segs[i].addr, segs[i].len);
    copy[0] = (struct mem_seg){rx_memory, rx->hdr.payload_len, 7, 0};
    core.copied++;
    return copy;
}

uint32_t lnet_grant_window(struct lnet_rx *rx, uint32_t *memory)
{
    assert_true(rx->grant->open);
    rx->grant->ahead = FAKE_AHEAD;
    *memory = 2 * FAKE_AHEAD;
    return FAKE_AHEAD;
}

static struct fake_sent *sent_row(struct lnet_msg *msg)
{
    for (unsigned i = 0; i < core.nsent; i++) {
        if (core.sent[i].msg == msg)
            return &core.sent[i];
    }
    assert_true(core.nsent < FAKE_LOG);
    core.sent[core.nsent].msg = msg;
    return &core.sent[core.nsent++];
}

void lnet_send_accepted(struct lnet_msg *msg)
{
    struct fake_sent *row = sent_row(msg);

    assert_false(row->accepted);
    row->accepted = true;
}

void lnet_send_done(struct lnet_msg *msg, struct lnet_result result)
{
    struct fake_sent *row = sent_row(msg);

    assert_ptr_equal(lnet_nid_home(&node, &msg->tx_peer->nid), self);
    assert_int_equal(msg->state, 1); /* exactly once */
    msg->state = 2;
    assert_false(result.unsent && (row->accepted || msg->lnd_sent > 0 || !result.reason));
    row->accepted = true;
    row->result = result;
    row->nlost = core.nlost;
    core.ndone++;
    if (core.on_sent)
        core.on_sent(msg);
}

void lnet_peer_ni_lost(struct lnet_ni *ni, struct lnet_peer_ni *peer)
{
    core.nlost++;
}

void lnet_peer_ni_notify(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool up)
{
    (void)ni;
    assert_true(core.nnotified < FAKE_LOG);
    core.notified[core.nnotified].nid = peer->nid;
    core.notified[core.nnotified++].up = up;
}

void lnet_node_event_post(struct lnet_node *n, const struct lnet_node_event *row)
{
    (void)n;
    assert_true(core.nevents < FAKE_LOG);
    core.event[core.nevents++] = *row;
}

void lnet_ni_link(struct lnet_ni *ni, bool up)
{
    /* eth0 of the host that runs the test may or may not be there. */
    assert_ptr_equal(lnet_nid_home(&node, &ni->nid), self);
    ni->link_up = up;
}

void lnet_drop_event(struct lnet_node *n, enum lnet_drop reason, const struct lnet_ni *ni,
                     const struct lnet_nid *peer, const struct lnet_hdr *hdr)
{
    (void)n;
    (void)ni;
    (void)peer;
    (void)hdr;
    assert_int_not_equal(reason, LNET_DROP_NONE);
    core.drops[reason]++;
}

void lnet_drop_event_why(struct lnet_node *n, enum lnet_drop reason, const struct lnet_ni *ni,
                         const struct lnet_nid *peer, const struct lnet_hdr *hdr,
                         const struct lnet_drop_why *why)
{
    core.why = why->why;
    lnet_drop_event(n, reason, ni, peer, hdr);
}

/* ---- messages ---- */

uint8_t fake_pattern(uint32_t i)
{
    return (uint8_t)(i * 7 + (i >> 8) * 13 + 1);
}

struct lnet_msg *fake_msg(struct lnet_ni *ni, const char *peer, uint32_t len)
{
    struct lnet_msg *msg = calloc(1, sizeof(*msg));
    struct lnet_put put = {.ack = LNET_HANDLE_NONE, .match_bits = 42, .portal = 30};
    uint8_t *data = len > 0 ? malloc(len) : NULL;

    assert_true(nmsgs < MAX_MSGS);
    msgs[nmsgs++] = msg;
    for (uint32_t i = 0; i < len; i++)
        data[i] = fake_pattern(i);
    msg->hdr.src_nid = ni->nid;
    assert_int_equal(nid_parse(peer, &msg->hdr.dest_nid), 0);
    msg->hdr.dest_pid = msg->hdr.src_pid = LNET_PID_LUSTRE;
    msg->hdr.type = LNET_MSG_PUT;
    msg->hdr.payload_len = len;
    lnet_body_set_put(&msg->hdr, &put);
    if (len > 0) {
        msg->segs[0] = (struct mem_seg){data, len / 2, 7, 0};
        msg->segs[1] = (struct mem_seg){data + len / 2, len - len / 2, 7, 0};
        msg->payload = (struct lnet_sgl){msg->segs, 2, len};
    }
    msg->tx_ni = ni;
    msg->tx_peer = fake_peer(peer);
    msg->state = 1;
    return msg;
}

void fake_send(struct lnet_msg *msg)
{
    struct reactor *before = self;

    self = lnet_nid_home(&node, &msg->tx_peer->nid);
    lnd_sock_ops.send(msg);
    self = before;
}

/* ---- set-up ---- */

void fake_defaults(void)
{
    fake_opts = SOCK_OPTS_DEFAULT;
    fake_opts.transport = &fake_transport;
    fake_opts.max_conns = 600;
    fake_timeout = 50;
    fake_conns_per_peer = 1;
    fake_transport.caps = 0;
    fake_connect_error = 0;
    fake_ports_in_use = 0;
    fake_take_chunk = 1000;
    fake_came_by = NULL;
    fake_late = -1;
}

static void reactors_init(void)
{
    memset(&env, 0, sizeof(env));
    for (unsigned i = 0; i <= FAKE_REACTORS; i++) {
        env.reactor[i].index = i < FAKE_REACTORS ? i : REACTOR_CONTROL;
        env.reactor[i].mail_tail = &env.reactor[i].mail;
        TAILQ_INIT(&env.reactor[i].pollers);
    }
    self = reactor_control(&env);
    now_us = 1000 * FAKE_SEC;
}

static void ni_init(struct lnet_ni *ni, const char *nid, unsigned index)
{
    struct err err = {0};

    memset(ni, 0, sizeof(*ni));
    ni->node = &node;
    ni->lnd = &lnd_sock_ops;
    ni->lnd_ctx = lnd;
    ni->net = LNET_NET(LNET_LND_SOCK, 0);
    ni->index = index;
    ni->tun = (struct lnet_tunables){-1, -1, -1, -1};
    ni->lnd_tun = (struct lnd_tunables){fake_conns_per_peer, fake_timeout, -1};
    assert_int_equal(nid_parse(nid, &ni->nid), 0);
    if (lnd_sock_ops.ni_init(ni, &err) != 0)
        fail_msg("%s", err.message);
}

static struct reactor_task *late_mail;

/* As if it were in the mailbox that is looked at last. */
static void mail_lies(struct reactor *r)
{
    late_mail = r->mail;
    r->mail = NULL;
    r->mail_tail = &r->mail;
}

void fake_mail_comes(void)
{
    struct reactor_task *task;

    while ((task = late_mail)) {
        late_mail = task->link.stqe_next;
        reactor_post(&env.reactor[fake_late], task);
    }
    fake_run();
}

int fake_setup(void **state)
{
    struct err err = {0};

    (void)state;
    if (!fake_opts.transport)
        fake_defaults();
    memset(&core, 0, sizeof(core));
    memset(peers, 0, sizeof(peers));
    reactors_init();
    connects = 0;
    newest_dialled = NULL;
    lnd = lnd_sock_new(&fake_opts);
    assert_non_null(lnd);
    ni_init(&nis[0], "10.0.0.5@tcp", 0);
    ni_init(&nis[1], "fd00::5@tcp", 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lnd_sock_ops.ni_start(&nis[i], &err), 0);
        nis[i].state = LNET_NI_ACTIVE;
    }
    if (fake_late >= 0)
        mail_lies(&env.reactor[fake_late]);
    fake_run();
    return 0;
}

static unsigned stopped;

static void on_stopped(struct reactor_task *task)
{
    (void)task;
    assert_ptr_equal(self, reactor_control(&env));
    stopped++;
}

void fake_stop_later(void)
{
    static struct reactor_task done[2];

    self = reactor_control(&env);
    stopped = 0;
    for (int i = 0; i < 2; i++) {
        if (!nis[i].lnd_ni)
            continue;
        done[i].fn = on_stopped;
        lnd_sock_ops.ni_stop(&nis[i], &done[i]);
    }
    fake_run();
}

unsigned fake_stopped(void)
{
    return stopped;
}

void fake_stop(void)
{
    fake_stop_later();
    assert_int_equal(stopped, 2);
}

static void free_streams(void)
{
    while (streams) {
        struct fake_stream *s = streams;

        streams = s->next;
        assert_true(s->closed);
        free(s->in);
        free(s->out);
        free(s);
    }
}

static void free_msgs(void)
{
    for (unsigned i = 0; i < nmsgs; i++) {
        assert_int_not_equal(msgs[i]->state, 1); /* each was reported */
        free(msgs[i]->segs[0].addr);
        free(msgs[i]);
    }
    nmsgs = 0;
}

static void free_received(void)
{
    for (unsigned i = 0; i < core.nreceived; i++)
        free(core.received[i].data);
}

void fake_forget(void)
{
    free_streams();
    free_msgs();
    free_received();
    assert_int_equal(core.grants, 0);
    assert_int_equal(fake_takes_out, 0);
    assert_int_equal(fake_peer_refs(), 0);
    newest_dialled = NULL;
    memset(peers, 0, core.peers * sizeof(peers[0]));
    memset(core.received, 0, core.nreceived * sizeof(core.received[0]));
    memset(core.sent, 0, core.nsent * sizeof(core.sent[0]));
    core.nreceived = core.nsent = core.nnotified = core.ndone = core.nevents = core.peers = 0;
    memset(core.drops, 0, sizeof(core.drops));
}

int fake_teardown(void **state)
{
    (void)state;
    fake_release_taken();
    fake_stop();
    for (int i = 0; i < 2; i++)
        lnd_sock_ops.ni_fini(&nis[i]);
    lnd_driver_free(lnd);
    for (unsigned i = 0; i < core.peers; i++)
        assert_int_equal(peers[i].refs, 0);
    assert_int_equal(core.grants, 0);
    assert_null(listeners);
    for (unsigned i = 0; i < FAKE_REACTORS; i++) {
        assert_null(env.reactor[i].timers);
        assert_true(TAILQ_EMPTY(&env.reactor[i].pollers));
    }
    assert_int_equal(fake_takes_out, 0);
    free_streams();
    free_msgs();
    free_received();
    fake_defaults();
    return 0;
}

/* ---- what a peer says ---- */

static struct lnet_nid nid_of(const char *str)
{
    struct lnet_nid nid;

    assert_int_equal(nid_parse(str, &nid), 0);
    return nid;
}

size_t fake_hello_only(uint8_t *buf, const char *src, const char *dst, enum sock_ctype type,
                       uint64_t incarnation)
{
    struct sock_hello h = {
        .src_nid = nid_of(src),
        .dst_nid = nid_of(dst),
        .src_pid = LNET_PID_LUSTRE,
        .src_incarnation = incarnation,
        .ctype = type,
    };

    h.version = nid_is_nid4(&h.dst_nid) ? SOCK_HELLO_V3 : SOCK_HELLO_V4;
    return sock_hello_encode(&h, buf);
}

size_t fake_hello(uint8_t *buf, const char *src, const char *dst, enum sock_ctype type,
                  uint64_t incarnation)
{
    struct lnet_nid nid = nid_of(dst);
    size_t n = sock_req_encode(&nid, buf);

    return n + fake_hello_only(buf + n, src, dst, type, incarnation);
}

struct fake_stream *fake_up(const char *from, uint16_t port, enum sock_ctype type,
                            uint64_t incarnation)
{
    bool v6 = strchr(from, ':') != NULL;
    struct fake_stream *s = fake_call(from, port);
    uint8_t buf[256];
    char nid[64];
    size_t n;

    snprintf(nid, sizeof(nid), "%s@tcp", from);
    n = fake_hello(buf, nid, v6 ? "fd00::5@tcp" : "10.0.0.5@tcp", type, incarnation);
    fake_feed(s, buf, n);
    assert_false(s->closed);
    assert_true(s->established);
    assert_int_equal(fake_take_out(s, buf, sizeof(buf)), v6 ? SOCK_HELLO16_SIZE : SOCK_HELLO4_SIZE);
    return s;
}

size_t fake_frame(uint8_t *buf, const char *src, const char *dst, uint32_t len, uint64_t cookie,
                  uint32_t csum)
{
    struct sock_frame frame = {.type = SOCK_FRAME_LNET, .csum = csum, .cookie = {cookie, 0}};
    struct lnet_put put = {.ack = LNET_HANDLE_NONE, .match_bits = 7, .portal = 9};
    struct lnet_hdr hdr = {
        .src_nid = nid_of(src),
        .dest_nid = nid_of(dst),
        .src_pid = LNET_PID_LUSTRE,
        .dest_pid = LNET_PID_LUSTRE,
        .type = LNET_MSG_PUT,
        .payload_len = len,
    };
    size_t n = SOCK_FRAME_SIZE;

    lnet_body_set_put(&hdr, &put);
    sock_frame_encode(&frame, buf);
    if (strchr(dst, ':')) {
        lnet_hdr_encode16(&hdr, buf + n);
        n += LNET_HDR16_SIZE;
    } else {
        assert_int_equal(lnet_hdr_encode4(&hdr, buf + n), LNET_DROP_NONE);
        n += LNET_HDR4_SIZE;
    }
    for (uint32_t i = 0; i < len; i++)
        buf[n + i] = fake_pattern(i);
    return n + len;
}

size_t fake_noop(uint8_t *buf, uint64_t first, uint64_t second)
{
    struct sock_frame frame = {.type = SOCK_FRAME_NOOP, .cookie = {first, second}};

    sock_frame_encode(&frame, buf);
    return SOCK_FRAME_SIZE;
}

void fake_expect_noop(struct fake_stream *s, uint64_t cookie)
{
    uint8_t buf[SOCK_FRAME_SIZE];

    fake_expect(s, buf, fake_noop(buf, 0, cookie));
}
