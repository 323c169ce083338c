/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/tcp_fake.h"
#include "lib/base/err.h"

#include "lib/reactor/mem_mbuf.h"
#include "lib/reactor/reactor_internal.h"

#include <errno.h>
#include <netinet/in.h>

struct net net;

static const struct inet_addr addr4[HOSTS] = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}},
};
static const struct inet_addr addr6[HOSTS] = {
    {{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
    {{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
};

/* ---- what TCP asks of IP ---- */

void inet_upper_set(struct inet *inet, const struct inet_upper *tcp)
{
    inet->up = *tcp;
}

struct inet_shard *inet_shard_of(struct inet *inet, unsigned reactor)
{
    return &inet->shard[reactor];
}

unsigned inet_shard_reactor(const struct inet_shard *sh)
{
    return sh->index;
}

unsigned inet_home(struct inet *inet, const struct inet_addr *local, const struct inet_addr *remote)
{
    return inet->home;
}

struct inet_if *inet_if_find(struct inet *inet, const char *name)
{
    return strcmp(inet->ifp.name, name) == 0 ? &inet->ifp : NULL;
}

struct inet_if *inet_if_of(struct inet *inet, const struct inet_addr *own)
{
    return inet_same(own, &inet->ifp.addr4) || inet_same(own, &inet->ifp.addr6) ? &inet->ifp : NULL;
}

const char *inet_if_name(const struct inet_if *ifp)
{
    return ifp->name;
}

struct port *inet_if_port(const struct inet_if *ifp)
{
    return (struct port *)&ifp->port;
}

unsigned inet_if_mtu(const struct inet_if *ifp)
{
    return ifp->mtu;
}

bool inet_if_link(const struct inet_if *ifp)
{
    return true;
}

int inet_path_get(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *local,
                  const struct inet_addr *remote, struct inet_path *out)
{
    struct inet *inet = sh->inet;

    if (!inet_if_of(inet, local))
        return -EADDRNOTAVAIL;
    *out = (struct inet_path){.ifp = &inet->ifp,
                              .local = *local,
                              .remote = *remote,
                              .next_hop = *remote,
                              .generation = inet->epoch,
                              .mtu = inet->path_mtu};
    return 0;
}

bool inet_path_valid(struct inet_shard *sh, const struct inet_path *path)
{
    return path->generation == sh->inet->epoch;
}

void inet_path_mtu_set(struct inet_shard *sh, const struct inet_addr *remote, unsigned mtu)
{
    sh->inet->path_mtu = mtu;
    sh->inet->epoch++;
}

void inet_event(const struct inet *inet, const struct inet_event *event)
{
}

void inet_path_called(struct inet_shard *sh, const struct inet_path *path, const struct rte_mbuf *m)
{
}

void inet_path_confirm(struct inet_shard *sh, const struct inet_path *path)
{
}

struct rte_mbuf *inet_alloc(struct inet_shard *sh, const struct inet_path *path)
{
    return rte_pktmbuf_alloc(net.tx);
}

bool inet_tx_busy(struct inet_shard *sh, const struct inet_path *path)
{
    return false;
}

bool inet_rx_behind(const struct inet_shard *sh)
{
    return false;
}

void inet_flush(struct inet_shard *sh)
{
}

void inet_count_drop(struct inet_shard *sh, enum pkt_drop why)
{
    sh->inet->drops[why]++;
}

void inet_drop(struct inet_shard *sh, struct rte_mbuf *m, enum pkt_drop why)
{
    inet_count_drop(sh, why);
    rte_pktmbuf_free(m);
}

void inet_hand_over(struct inet_shard *sh, struct rte_mbuf *m, unsigned reactor)
{
    struct inet_shard *to = &sh->inet->shard[reactor];

    sh->inet->handed_over++;
    if (++pkt_of(m)->hops > 3)
        inet_drop(sh, m, PKT_DROP_HANDOVER_LOOP);
    else if (to->nhanded == RTE_DIM(to->handed))
        inet_drop(sh, m, PKT_DROP_HANDOVER_FULL);
    else
        to->handed[to->nhanded++] = m;
}

/* ---- the wire ---- */

static void fly(struct wire *w)
{
    struct wire **at = &net.flying;

    if (net.filter && !net.filter(w)) {
        free(w);
        return;
    }
    while (*at && (*at)->due_us <= w->due_us)
        at = &(*at)->next;
    w->next = *at;
    *at = w;
}

static void launch(unsigned from, const struct inet_path *path, const uint8_t *hdr,
                   uint32_t hdr_len, const uint8_t *payload, uint32_t len, uint8_t tos)
{
    struct wire *w = calloc(1, sizeof(*w) + hdr_len + len);

    w->from = from;
    w->due_us = net.now + net.delay_us;
    w->ecn = tos & 3;
    w->len = hdr_len + len;
    memcpy(w->data, hdr, hdr_len);
    if (len > 0)
        memcpy(w->data + hdr_len, payload, len);
    assert_int_equal(tcp_seg_decode(w->data, w->len, w->len, &w->seg), PKT_DROP_NONE);
    tcp_key_make(&w->key, &path->remote, &path->local, w->seg.dport, w->seg.sport, NULL);
    fly(w);
}

static void put_seq(uint8_t *hdr, uint32_t seq)
{
    hdr[4] = (uint8_t)(seq >> 24);
    hdr[5] = (uint8_t)(seq >> 16);
    hdr[6] = (uint8_t)(seq >> 8);
    hdr[7] = (uint8_t)seq;
}

/* What is above the MTU is cut as a port does it. */
void inet_send(struct inet_shard *sh, struct inet_path *path, struct rte_mbuf *m, uint8_t proto,
               uint8_t tos)
{
    uint8_t *all = malloc(m->pkt_len), hdr[TCP_HDR_MAX];
    uint32_t hdr_len = m->l4_len, len = m->pkt_len - hdr_len, at = 0, segsz = m->tso_segsz;
    uint32_t ip = inet_is4(&path->local) ? 20 : 40;
    struct tcp_seg seg;

    for (const struct rte_mbuf *s = m; s; at += s->data_len, s = s->next)
        memcpy(all + at, rte_pktmbuf_mtod(s, void *), s->data_len);
    assert_int_equal(at, m->pkt_len);
    rte_pktmbuf_free(m);
    assert_int_equal(tcp_seg_decode(all, hdr_len + len, hdr_len + len, &seg), PKT_DROP_NONE);
    assert_int_equal(seg.hdr_len, hdr_len);
    memcpy(hdr, all, hdr_len);
    sh->inet->sent++;
    at = 0;
    do {
        uint32_t part = segsz > 0 && len - at > segsz ? segsz : len - at;
        bool last = at + part == len;

        put_seq(hdr, seg.seq + at);
        hdr[13] = last ? seg.flags : seg.flags & (uint8_t) ~(TCP_FLAG_FIN | TCP_FLAG_PSH);
        assert_true(ip + hdr_len + part <= path->mtu);
        launch(sh->inet->host, path, hdr, hdr_len, all + hdr_len + at, part, tos);
        at += part;
    } while (at < len);
    free(all);
}

/* As a port hands it over: Ethernet and IP in front. */
static struct rte_mbuf *received(struct inet *inet, const struct wire *w)
{
    bool v4 = inet_is4(&w->key.local);
    uint32_t ip = v4 ? 20 : 40, l4 = 14 + ip, at = 0;
    struct rte_mbuf *m = rte_pktmbuf_alloc(net.rx), *last = m;
    struct pkt *p;
    uint8_t *h;

    assert_non_null(m);
    h = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)l4);
    memset(h, 0, l4);
    if (v4) {
        memcpy(h + 14 + 12, w->key.remote.b + 12, 4);
        memcpy(h + 14 + 16, w->key.local.b + 12, 4);
    } else {
        memcpy(h + 14 + 8, w->key.remote.b, 16);
        memcpy(h + 14 + 24, w->key.local.b, 16);
    }
    while (at < w->len) { /* in several buffers where it does not fit into one */
        uint16_t n = (uint16_t)min(w->len - at, (uint32_t)rte_pktmbuf_tailroom(last));

        memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len), w->data + at, n);
        last->data_len += n;
        m->pkt_len += n;
        at += n;
        if (at < w->len) {
            last->next = rte_pktmbuf_alloc(net.rx);
            last = last->next;
            m->nb_segs++;
        }
    }
    p = pkt_of(m);
    *p = (struct pkt){.ifp = &inet->ifp,
                      .l3 = 14,
                      .l4 = (uint16_t)l4,
                      .family = v4 ? 4 : 6,
                      .proto = IPPROTO_TCP,
                      .ecn = w->ecn,
                      .l4_ok = true,
                      .l4_len = w->len};
    return m;
}

static int poll_shard(void *arg)
{
    struct inet_shard *sh = arg;
    struct inet *inet = sh->inet;
    unsigned n = 0, handed = sh->nhanded;
    struct rte_mbuf *in[RTE_DIM(sh->handed)];

    memcpy(in, sh->handed, handed * sizeof(in[0]));
    sh->nhanded = 0;
    inet->up.input(inet->up.ctx, sh, in, handed);
    n += handed;
    while (sh->arrived) {
        struct wire *w = sh->arrived;
        struct rte_mbuf *m = received(inet, w);

        sh->arrived = w->next;
        free(w);
        inet->up.input(inet->up.ctx, sh, &m, 1);
        n++;
    }
    sh->arrived_tail = &sh->arrived;
    return (int)(n + inet->up.flush(inet->up.ctx, sh));
}

static void arrive(struct wire *w)
{
    struct inet *inet = &net.host[1 - w->from];
    struct inet_shard *sh = &inet->shard[inet->home];

    w->next = NULL;
    *sh->arrived_tail = w;
    sh->arrived_tail = &w->next;
}

void net_bind(unsigned reactor)
{
    reactor_bind(reactor == REACTOR_CONTROL ? reactor_control(env) : reactor_at(env, reactor));
}

#define TURN_US 250u

static int step(void)
{
    int work = 0;

    for (unsigned i = 0; i < net.reactors; i++) {
        net_bind(i);
        work += reactor_step(reactor_at(env, i), 0);
    }
    net_bind(REACTOR_CONTROL);
    return work + reactor_step(reactor_control(env), 0);
}

/* When something may happen next, if all are idle until then. */
static uint64_t next_event(void)
{
    uint64_t us = wheel_next_us(&reactor_control(env)->wheel);

    if (net.flying)
        us = min(us, net.flying->due_us);
    for (unsigned i = 0; i < net.reactors; i++)
        us = min(us, wheel_next_us(&reactor_at(env, i)->wheel));
    return us;
}

void net_run(uint64_t us)
{
    uint64_t end = net.now + us, next = net.now + TURN_US;

    do {
        net.now = min(next, end);
        reactor_test_clock(net.now);
        while (net.flying && net.flying->due_us <= net.now) {
            struct wire *w = net.flying;

            net.flying = w->next;
            arrive(w);
        }
        next = net.now + TURN_US;
        if (step() == 0)
            next = max(next, next_event());
    } while (net.now < end);
}

void net_inject(unsigned to, const struct tcp_key *key, const struct tcp_seg *seg,
                const void *payload, uint32_t len)
{
    struct wire *w = calloc(1, sizeof(*w) + TCP_HDR_MAX + len);
    uint32_t hdr = (uint32_t)tcp_seg_encode(seg, w->data);

    w->from = 1 - to;
    w->key = *key;
    w->ecn = seg->ecn;
    w->len = hdr + len;
    if (len > 0)
        memcpy(w->data + hdr, payload, len);
    arrive(w);
}

unsigned net_mbufs_out(void)
{
    return rte_mempool_in_use_count(net.rx);
}

/* ---- life ---- */

void net_make(unsigned reactors)
{
    struct reactor_opts opts = {.prog = "millrace-test",
                                .cores = "auto",
                                .count = reactors,
                                .idle = REACTOR_IDLE_SPIN,
                                .mem_mb = 160};
    struct err err = {0};

    if (reactor_env_create(&opts, &env, &err) < 0 ||
        mem_mbufs_create("rx", MBUFS, PKT_PRIV, ROOM, -1, &net.rx, &err) < 0 ||
        mem_mbufs_create("tx", MBUFS, PKT_PRIV, 512, -1, &net.tx, &err) < 0)
        fail_msg("%s", err.message);
    net.reactors = reactors;
    net.now = reactor_now_us() + SECONDS; /* timer wheels began before */
}

struct reactor_env *net_env(void)
{
    return env;
}

static void host_open(unsigned i)
{
    struct inet *inet = &net.host[i];

    memset(inet, 0, sizeof(*inet));
    inet->host = i;
    snprintf(inet->ifp.name, sizeof(inet->ifp.name), "eth%u", i);
    inet->ifp.mtu = inet->path_mtu = 1500;
    inet->ifp.addr4 = addr4[i];
    inet->ifp.addr6 = addr6[i];
    inet->ifp.port.rx_small = inet->ifp.port.rx_large = net.rx;
    inet->ifp.port.tx_pool = net.tx;
    inet->ifp.port.mtu = 1500;
    for (unsigned k = 0; k < net.reactors; k++) {
        struct inet_shard *sh = &inet->shard[k];

        sh->inet = inet;
        sh->index = k;
        sh->arrived_tail = &sh->arrived;
        sh->poller.fn = poll_shard;
        sh->poller.arg = sh;
        reactor_poller_add(reactor_at(env, k), &sh->poller);
    }
}

void net_open(const struct tcp_opts *a, const struct tcp_opts *b)
{
    const struct tcp_opts *opts[HOSTS] = {a, b};
    struct err err = {0};

    net.delay_us = DELAY;
    net.filter = NULL;
    reactor_test_clock(net.now);
    net_bind(REACTOR_CONTROL);
    for (unsigned i = 0; i < HOSTS; i++) {
        host_open(i);
        if (tcp_create(opts[i], &net.host[i], &net.tcp[i], &err) < 0)
            fail_msg("%s", err.message);
    }
}

void net_close(void)
{
    net_run(1 * SECONDS);
    for (unsigned i = 0; i < HOSTS; i++) {
        for (unsigned k = 0; k < net.reactors; k++) {
            net_bind(k);
            reactor_poller_del(reactor_at(env, k), &net.host[i].shard[k].poller);
        }
    }
    net_bind(REACTOR_CONTROL);
    for (unsigned i = 0; i < HOSTS; i++)
        tcp_destroy(net.tcp[i]);
    while (net.flying) {
        struct wire *w = net.flying;

        net.flying = w->next;
        free(w);
    }
    assert_int_equal(net_mbufs_out(), 0);
    assert_int_equal(rte_mempool_in_use_count(net.tx), 0);
}

/* ---- users ---- */

static uint8_t pattern(uint8_t seed, uint64_t at)
{
    return (uint8_t)(at * 31 + (at >> 8) * 7 + seed);
}

static void push(struct app *a)
{
    uint8_t buf[4096];

    while (a->sent < a->to_send) {
        uint64_t n = min(a->to_send - a->sent, (uint64_t)sizeof(buf));
        struct mem_seg seg = {buf, (uint32_t)n, MEM_REGION_NONE, 0};
        ssize_t took;

        for (uint64_t i = 0; i < n; i++)
            buf[i] = pattern(a->seed_out, a->sent + i);
        took = a->s->ops->send(a->s, &seg, 1, false);
        assert_true(took >= 0);
        a->sent += (uint64_t)took;
        if ((uint64_t)took < n)
            return;
    }
}

static void check(struct app *a, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a->corrupt |= p[i] != pattern(a->seed_in, a->got + i);
    a->got += n;
}

void app_read(struct app *a)
{
    const struct stream_ops *ops = a->s->ops;
    struct mem_seg segs[16];
    const uint8_t *p;
    unsigned n;
    size_t truesize, got;

    got = ops->peek(a->s, 24, &p);
    check(a, p, got);
    (ops->skip)(a->s, got); /* cmocka has a macro of that name */
    while ((got = ops->take(a->s, 1u << 20, segs, RTE_DIM(segs), &n, &truesize)) > 0) {
        assert_true(truesize >= got);
        for (unsigned i = 0; i < n; i++)
            check(a, segs[i].addr, segs[i].len);
        ops->give_back(segs, n);
    }
    if (a->window > 0)
        ops->rx_window(a->s, a->window, a->memory);
}

static void on_connected(void *user)
{
    struct app *a = user;

    a->connected = true;
    if (a->window > 0)
        a->s->ops->rx_window(a->s, a->window, a->memory);
    push(a);
}

static void on_readable(void *user)
{
    struct app *a = user;

    a->readables++;
    assert_int_equal(reactor_index(reactor_self()), a->reactor);
    if (!a->hold)
        app_read(a);
}

static void on_writable(void *user)
{
    struct app *a = user;

    a->writables++;
    push(a);
}

static void on_acked(void *user)
{
    ((struct app *)user)->ackeds++;
}

static void on_closed(void *user, enum stream_end end)
{
    struct app *a = user;

    assert_false(a->closed);
    a->closed = true;
    a->end = end;
    if (a->close_at_eof)
        app_close(a, false);
}

const struct stream_events app_events = {on_connected, on_readable, on_writable, on_acked,
                                         on_closed};

static void stream_addr(union stream_addr *out, unsigned host, uint16_t port, bool v6)
{
    tcp_addr_out(v6 ? &addr6[host] : &addr4[host], port, out);
}

static void accepted(void *user, struct stream *s, const union stream_addr *peer)
{
    struct app *a = user;

    assert_null(a->s);
    a->s = s;
    a->connected = true;
    assert_int_equal(s->ops->attach(s, &app_events, a), 0);
    if (a->window > 0)
        s->ops->rx_window(s, a->window, a->memory);
    push(a);
}

struct stream_listener *app_listen(unsigned host, unsigned reactor, uint16_t port, bool v6,
                                   struct app *next)
{
    struct stream_listener *l;
    union stream_addr addr;

    next->host = host;
    next->reactor = reactor;
    stream_addr(&addr, host, port, v6);
    net_bind(REACTOR_CONTROL);
    assert_int_equal(
        stream_tcp.listen(net.tcp[host], &addr, NULL, reactor_at(env, reactor), accepted, next, &l),
        0);
    net_run(1 * MS);
    return l;
}

void app_unlisten(unsigned host, unsigned reactor, struct stream_listener *l)
{
    net_bind(reactor);
    stream_tcp.unlisten(l);
    net_run(1 * MS);
}

int app_connect(struct app *a, unsigned host, unsigned reactor, uint16_t lport, uint16_t rport,
                bool v6)
{
    union stream_addr local, remote;

    a->host = host;
    a->reactor = reactor;
    stream_addr(&local, host, lport, v6);
    stream_addr(&remote, 1 - host, rport, v6);
    net_bind(reactor);
    return stream_tcp.connect(net.tcp[host], &local, NULL, &remote, -1, &app_events, a, &a->s);
}

void app_send(struct app *a, uint64_t bytes)
{
    net_bind(a->reactor);
    a->to_send += bytes;
    push(a);
}

void app_close(struct app *a, bool abort)
{
    net_bind(a->reactor);
    a->s->ops->close(a->s, abort);
    a->s = NULL;
    a->gone = true;
}

struct tcp_conn *app_conn(struct app *a)
{
    return container_of(a->s, struct tcp_conn, base);
}
