/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the IP layer share: reactors stepped by hand on the test's thread with a clock
 * of the test's own, a port of paper whose both ends the test holds, frames made byte by byte, and
 * an upper layer that writes down what it is told. Each test has an IP layer of its own and is
 * checked for buffers that did not come back.
 */
#ifndef MILLRACE_INET_TEST_H
#define MILLRACE_INET_TEST_H

#include "reactor_test.h"

#include <arpa/inet.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet_internal.h"

#define POOL_SIZE 8191
#define WIRE_MAX  8192
#define TOLD_MAX  64
#define MS        1000ull

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1};
static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 2};
static const uint8_t third_mac[6] = {2, 0, 0, 0, 0, 3};
static const uint8_t all_mac[6] = {255, 255, 255, 255, 255, 255};

static struct reactor_env *test_env;
static unsigned test_reactors;
static struct rte_mempool *pool;
static uint64_t now_us = 1000 * INET_SEC;

/* ---- the port of paper ---- */

static struct paper {
    struct port port;
    struct rte_mbuf *in[4][WIRE_MAX]; /* by receive queue */
    unsigned nin[4];
    struct rte_mbuf *out[WIRE_MAX];
    unsigned nout;
    unsigned room; /* frames it still takes */
    bool link;
    bool no_mbufs;
} paper, paper2;

static struct paper *paper_of(struct port *port)
{
    return port == &paper2.port ? &paper2 : &paper;
}

unsigned port_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct paper *p = paper_of(port);

    n = min(n, p->nin[queue]);
    memcpy(pkts, p->in[queue], n * sizeof(pkts[0]));
    p->nin[queue] -= n;
    memmove(p->in[queue], p->in[queue] + n, p->nin[queue] * sizeof(p->in[queue][0]));
    return n;
}

unsigned port_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct paper *p = paper_of(port);

    assert_true(queue < test_reactors);
    n = min(n, p->room);
    assert_true(p->nout + n <= WIRE_MAX);
    if (n > 0)
        memcpy(p->out + p->nout, pkts, n * sizeof(pkts[0]));
    p->nout += n;
    p->room -= n;
    return n;
}

struct rte_mbuf *port_tx_alloc(struct port *port)
{
    return paper_of(port)->no_mbufs ? NULL : rte_pktmbuf_alloc(pool);
}

static struct inet_addr host_addr; /* of the host's kernel */

bool port_host_has(const uint8_t addr[16], char ifname[16])
{
    strcpy(ifname, "eth7");
    return memcmp(addr, host_addr.b, 16) == 0;
}

static bool paper_link(struct port *port, unsigned *speed)
{
    *speed = 10000;
    return paper_of(port)->link;
}

static const char *link_why; /* says the port of paper */

static const char *paper_link_why(struct port *port)
{
    return link_why;
}

static const struct port_ops paper_ops = {
    .name = "paper", .link = paper_link, .link_why = paper_link_why};

static inline void paper_begin(struct paper *p, unsigned queues)
{
    memset(p, 0, sizeof(*p));
    p->port.ops = &paper_ops;
    p->port.mtu = 1500;
    p->port.tso_max = 65535;
    p->port.rx_queues = queues;
    p->port.tx_queues = test_reactors;
    memcpy(p->port.mac.addr_bytes, our_mac, 6);
    strcpy(p->port.name, "paper");
    p->room = UINT32_MAX;
    p->link = true;
}

static inline void paper_clear(struct paper *p)
{
    rte_pktmbuf_free_bulk(p->out, p->nout);
    p->nout = 0;
}

/* ---- frames ---- */

struct frame {
    uint8_t b[10000];
    unsigned len;
};

static inline void put(struct frame *f, const void *p, unsigned n)
{
    assert_true(f->len + n <= sizeof(f->b));
    memcpy(f->b + f->len, p, n);
    f->len += n;
}

static inline void put8(struct frame *f, unsigned v)
{
    uint8_t b = (uint8_t)v;

    put(f, &b, 1);
}

static inline void put16(struct frame *f, unsigned v)
{
    put8(f, v >> 8);
    put8(f, v);
}

static inline void put32(struct frame *f, uint32_t v)
{
    put16(f, v >> 16);
    put16(f, v & 0xffff);
}

static inline void set16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline unsigned get16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static inline struct inet_addr addr(const char *text)
{
    struct inet_addr a = {{0}};

    if (strchr(text, ':')) {
        assert_int_equal(inet_pton(AF_INET6, text, a.b), 1);
    } else {
        a.b[10] = a.b[11] = 0xff;
        assert_int_equal(inet_pton(AF_INET, text, a.b + 12), 1);
    }
    return a;
}

static inline struct inet_prefix prefix(const char *text, unsigned bits)
{
    return (struct inet_prefix){.addr = addr(text), .bits = (uint8_t)bits};
}

/* RFC 1071, by words, of no library's. */
static inline uint32_t add_words(uint32_t sum, const uint8_t *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

static inline void put_eth(struct frame *f, const uint8_t *to, const uint8_t *from, unsigned type)
{
    f->len = 0;
    put(f, to, 6);
    put(f, from, 6);
    put16(f, type);
}

static inline void put_ip4(struct frame *f, const char *src, const char *dst, unsigned proto)
{
    struct inet_addr s = addr(src), d = addr(dst);

    put8(f, 0x45);
    put8(f, 0);
    put16(f, 0);
    put16(f, 1);
    put16(f, 0x4000);
    put8(f, 64);
    put8(f, proto);
    put16(f, 0);
    put(f, s.b + 12, 4);
    put(f, d.b + 12, 4);
}

static inline void put_ip6(struct frame *f, const char *src, const char *dst, unsigned proto,
                           unsigned hops)
{
    struct inet_addr s = addr(src), d = addr(dst);

    put32(f, 0x60000000);
    put16(f, 0);
    put8(f, proto);
    put8(f, hops);
    put(f, s.b, 16);
    put(f, d.b, 16);
}

/* Length and checksum of the IPv4 header at 14. */
static inline void end_ip4(struct frame *f)
{
    unsigned hdr = (f->b[14] & 15u) * 4;

    set16(f->b + 16, f->len - 14);
    set16(f->b + 24, 0);
    set16(f->b + 24, ~add_words(0, f->b + 14, hdr) & 0xffff);
}

static inline void end_ip6(struct frame *f)
{
    set16(f->b + 18, f->len - 54);
}

static inline uint32_t pseudo6(const struct frame *f, unsigned l4)
{
    uint32_t sum = add_words(0, f->b + 22, 32);

    return add_words(sum + (f->len - l4) + 58, NULL, 0);
}

/* The checksum of the ICMP message at l4. */
static inline void end_icmp(struct frame *f, unsigned l4)
{
    uint32_t sum = f->b[14] >> 4 == 6 ? pseudo6(f, l4) : 0;

    set16(f->b + l4 + 2, 0);
    set16(f->b + l4 + 2, ~add_words(sum, f->b + l4, f->len - l4) & 0xffff);
}

static inline bool icmp_right(const struct frame *f, unsigned l4)
{
    uint32_t sum = f->b[14] >> 4 == 6 ? pseudo6(f, l4) : 0;

    return add_words(sum, f->b + l4, f->len - l4) == 0xffff;
}

static inline void put_fill(struct frame *f, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        put8(f, i * 7);
}

static inline void put_tcp(struct frame *f, unsigned sport, unsigned dport, uint32_t seq)
{
    put16(f, sport);
    put16(f, dport);
    put32(f, seq);
    put32(f, 0);
    put16(f, 0x5002);
    put16(f, 1000);
    put32(f, 0);
}

static inline void make_tcp4(struct frame *f, const char *src, const char *dst, unsigned payload)
{
    put_eth(f, our_mac, peer_mac, 0x0800);
    put_ip4(f, src, dst, 6);
    put_tcp(f, 1023, 988, 77);
    put_fill(f, payload);
    end_ip4(f);
}

static inline void make_ping4(struct frame *f, const char *src, const char *dst, unsigned payload)
{
    put_eth(f, our_mac, peer_mac, 0x0800);
    put_ip4(f, src, dst, 1);
    put32(f, 0x08000000);
    put32(f, 0x12340001);
    put_fill(f, payload);
    end_ip4(f);
    end_icmp(f, 34);
}

static inline void make_arp(struct frame *f, const uint8_t *to, unsigned op, const uint8_t *smac,
                            const char *sip, const uint8_t *tmac, const char *tip)
{
    static const uint8_t begin[6] = {0, 1, 8, 0, 6, 4}, none[6];
    struct inet_addr s = addr(sip), t = addr(tip);

    put_eth(f, to, smac, 0x0806);
    put(f, begin, 6);
    put16(f, op);
    put(f, smac, 6);
    put(f, s.b + 12, 4);
    put(f, !tmac ? none : tmac, 6);
    put(f, t.b + 12, 4);
}

/* A frame arrives, in segments of the form of pkt.h. */
static inline struct rte_mbuf *arrive_on(struct paper *p, unsigned queue, const struct frame *f)
{
    struct rte_mbuf *head = NULL, *m;
    unsigned done = 0, part;

    do {
        m = rte_pktmbuf_alloc(pool);
        assert_non_null(m);
        part = min(f->len - done, rte_pktmbuf_tailroom(m));
        memcpy(rte_pktmbuf_append(m, (uint16_t)part), f->b + done, part);
        done += part;
        if (!head)
            head = m;
        else
            assert_int_equal(rte_pktmbuf_chain(head, m), 0);
    } while (done < f->len);
    memset(pkt_of(head), 0xa5, sizeof(struct pkt));
    assert_true(p->nin[queue] < WIRE_MAX);
    p->in[queue][p->nin[queue]++] = head;
    return head;
}

/* The next frame that went out; false: none. */
static inline bool leave_from(struct paper *p, struct frame *f, struct rte_mbuf **keep)
{
    struct rte_mbuf *m;

    f->len = 0;
    if (p->nout == 0)
        return false;
    m = p->out[0];
    p->nout--;
    memmove(p->out, p->out + 1, p->nout * sizeof(p->out[0]));
    for (const struct rte_mbuf *s = m; s; s = s->next)
        put(f, rte_pktmbuf_mtod(s, uint8_t *), s->data_len);
    assert_int_equal(f->len, m->pkt_len);
    if (keep)
        *keep = m;
    else
        rte_pktmbuf_free(m);
    return true;
}

static inline bool leave(struct frame *f)
{
    return leave_from(&paper, f, NULL);
}

/* ---- above ---- */

struct told {
    struct rte_mbuf *m; /* input; ours */
    unsigned reactor;
    enum inet_icmp_error what;
    struct inet_addr local, remote;
    unsigned lport, rport, mtu;
    uint32_t seq;
};

static struct {
    struct told input[TOLD_MAX], error[TOLD_MAX];
    unsigned inputs, errors;
    int pass_on; /* reactor that input is handed to, -1: none */
} above;

static void upper_one(struct inet_shard *sh, struct rte_mbuf *m)
{
    if (above.pass_on >= 0) {
        inet_hand_over(sh, m, (unsigned)above.pass_on);
        return;
    }
    if (above.inputs == TOLD_MAX) {
        rte_pktmbuf_free(m);
        return;
    }
    above.input[above.inputs++] = (struct told){.m = m, .reactor = inet_shard_reactor(sh)};
}

static void upper_input(void *ctx, struct inet_shard *sh, struct rte_mbuf *const *m, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        upper_one(sh, m[i]);
}

static void upper_error(void *ctx, struct inet_shard *sh, const struct inet_error *error)
{
    if (above.errors < TOLD_MAX)
        above.error[above.errors++] = (struct told){.reactor = inet_shard_reactor(sh),
                                                    .what = error->what,
                                                    .local = error->local,
                                                    .remote = error->remote,
                                                    .lport = error->lport,
                                                    .rport = error->rport,
                                                    .seq = error->seq,
                                                    .mtu = error->mtu};
}

static inline void inputs_free(void)
{
    for (unsigned i = 0; i < above.inputs; i++)
        rte_pktmbuf_free(above.input[i].m);
    above.inputs = 0;
}

/* ---- an IP layer ---- */

static struct inet *inet;

/* How often reactors were told to look up their paths again. */
static inline unsigned paths_renewed(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < inet->nshards; i++)
        n += inet->shard[i]->generation - 1;
    return n;
}

static inline int step_all(void)
{
    int work = 0;

    for (unsigned i = 0; i <= test_reactors; i++) {
        struct reactor *r = i < test_reactors ? reactor_at(test_env, i) : reactor_control(test_env);

        reactor_bind(r);
        work += reactor_step(r, 0);
    }
    return work; /* the control reactor stays bound */
}

static inline void settle(void)
{
    unsigned idle = 0;

    for (unsigned n = 0; idle < 2; n++) {
        assert_true(n < 20000);
        idle = step_all() == 0 ? idle + 1 : 0;
    }
}

static inline void pass_ms(unsigned ms)
{
    for (; ms > 0; ms -= min(ms, 10u)) {
        now_us += min(ms, 10u) * MS;
        reactor_test_clock(now_us);
        settle();
    }
}

/* What was told to people, the newest at its end. */
static struct inet_event happened[TOLD_MAX];
static unsigned nhappened;

static void event_happened(void *ctx, const struct inet_event *event)
{
    assert_ptr_equal(reactor_self(), reactor_control(test_env));
    assert_true(nhappened < TOLD_MAX && event->cause && event->port);
    happened[nhappened++] = *event;
}

/* The next thing that was told is this; it is forgotten. */
static inline struct inet_event next_event(enum inet_event_kind kind, const char *cause)
{
    struct inet_event event;

    if (nhappened == 0)
        fail_msg("nothing was told of %s", cause);
    event = happened[0];
    assert_int_equal(event.kind, kind);
    assert_string_equal(event.cause, cause);
    assert_string_equal(event.port, "paper");
    memmove(happened, happened + 1, --nhappened * sizeof(happened[0]));
    return event;
}

static unsigned test_neighbours; /* inet_opts, of the next begin_inet() */
static unsigned test_home;       /* where all TCP packets belong */

static unsigned home_of(void *ctx, const struct inet_addr *local, const struct inet_addr *remote)
{
    return test_home;
}

static inline void begin_inet(void)
{
    struct inet_opts opts = {
        .env = test_env,
        .home = home_of,
        .tcp = {.input = upper_input, .error = upper_error},
        .neighbours = test_neighbours,
        .event = event_happened,
    };
    struct err err = {0};

    memset(&above, 0, sizeof(above));
    memset(&host_addr, 0, sizeof(host_addr));
    nhappened = 0;
    above.pass_on = -1;
    test_home = 0;
    paper_begin(&paper, 1);
    paper_begin(&paper2, 1);
    reactor_test_clock(now_us);
    reactor_bind(reactor_control(test_env));
    assert_int_equal(inet_create(&opts, &inet, &err), 0);
}

static inline int try_if(const struct inet_if_opts *opts, struct err *err)
{
    *err = (struct err){0};
    return inet_if_add(inet, opts, err);
}

static inline struct inet_if *add_if(const struct inet_if_opts *opts)
{
    struct err err = {0};

    if (try_if(opts, &err) != 0)
        fail_msg("%s", err.message);
    return inet_if_find(inet, opts->name);
}

static inline void start_inet(void)
{
    struct err err = {0};

    assert_int_equal(inet_start(inet, &err), 0);
    settle();
}

/* One interface, 10.0.0.1/24 and fd00::1/64, gateways 10.0.0.254 and fe80::fe. */
static inline struct inet_if *known_inet(unsigned dad_ms, uint32_t known)
{
    struct inet_prefix nets[] = {prefix("10.0.0.1", 24), prefix("fd00::1", 64)};
    struct inet_route routes[] = {{prefix("0.0.0.0", 0), addr("10.0.0.254")},
                                  {prefix("::", 0), addr("fe80::fe")}};
    struct inet_if_opts opts = {.name = "eth0",
                                .port = &paper.port,
                                .addr = nets,
                                .addrs = 2,
                                .route = routes,
                                .routes = 2,
                                .dad_ms = dad_ms,
                                .known = known};
    struct inet_if *ifp;

    begin_inet();
    ifp = add_if(&opts);
    start_inet();
    return ifp;
}

static inline struct inet_if *usual_inet(unsigned dad_ms)
{
    return known_inet(dad_ms, 0);
}

/* The same, past its announcements. */
static inline struct inet_if *quiet_inet(void)
{
    struct inet_if *ifp = usual_inet(0);

    pass_ms(2100);
    paper_clear(&paper);
    return ifp;
}

static bool stopped;

static void has_stopped(struct reactor_task *task)
{
    stopped = true;
}

static inline void end_inet(void)
{
    struct reactor_task done = {.fn = has_stopped};

    stopped = false;
    inet_stop(inet, &done);
    settle();
    assert_true(stopped);
    inet_destroy(inet);
    inputs_free();
    paper_clear(&paper);
    paper_clear(&paper2);
    assert_int_equal(rte_mempool_avail_count(pool), POOL_SIZE);
}

static inline uint64_t drops(enum pkt_drop why)
{
    uint64_t out[PKT_DROP_COUNT];

    inet_drops_get(inet, out);
    return out[why];
}

static inline uint64_t all_drops(void)
{
    uint64_t out[PKT_DROP_COUNT], sum = 0;

    inet_drops_get(inet, out);
    for (unsigned i = 0; i < PKT_DROP_COUNT; i++)
        sum += out[i];
    return sum;
}

/* One frame comes in and is dropped for exactly this. */
static inline void dropped(const struct frame *f, enum pkt_drop why)
{
    uint64_t before = drops(why), all = all_drops();

    arrive_on(&paper, 0, f);
    settle();
    if (drops(why) != before + 1 || all_drops() != all + 1)
        fail_msg("not dropped as %s alone", pkt_drop_info(why)->name);
}

static inline void not_dropped(const struct frame *f)
{
    uint64_t all = all_drops();

    arrive_on(&paper, 0, f);
    settle();
    assert_int_equal(all_drops(), all);
}

/* Does something as a reactor. */
#define ON(i, ...)                                                                                 \
    do {                                                                                           \
        reactor_bind(reactor_at(test_env, (i)));                                                   \
        __VA_ARGS__;                                                                               \
        reactor_bind(reactor_control(test_env));                                                   \
    } while (0)

/* A segment of ours goes out from reactor i. */
static inline void send_tcp(unsigned i, const char *local, const char *remote, unsigned payload)
{
    struct inet_addr l = addr(local), r = addr(remote);
    struct inet_path path;
    struct frame f = {.len = 0};
    struct rte_mbuf *m;

    put_tcp(&f, 988, 1023, 4711);
    put_fill(&f, payload);
    ON(i, {
        struct inet_shard *sh = inet_shard_of(inet, i);

        assert_int_equal(inet_path_get(sh, NULL, &l, &r, &path), 0);
        m = inet_alloc(sh, &path);
        assert_non_null(m);
        memcpy(rte_pktmbuf_append(m, (uint16_t)f.len), f.b, f.len);
        m->l4_len = 20;
        inet_send(sh, &path, m, 6, 0);
    });
    settle();
}

static inline int inet_test_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    struct reactor_opts opts = {.prog = "inet_test", .cores = "auto", .mem_mb = 128};
    struct err err = {0};

    reactor_test_clock(now_us); /* the wheels of the reactors begin there */
    opts.count = test_reactors = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    if (reactor_env_create(&opts, &test_env, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    pool = rte_pktmbuf_pool_create("paper", POOL_SIZE, 0, PKT_PRIV, RTE_PKTMBUF_HEADROOM + 2048,
                                   SOCKET_ID_ANY);
    if (!pool)
        return 1;
    return _cmocka_run_group_tests("inet", tests, n, NULL, NULL);
}

#endif
