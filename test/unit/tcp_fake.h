/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two hosts of our TCP over a fake IP layer, on the test's own clock and thread: what one sends the
 * other gets after a delay, unless the test has it lost, changed or held. Reactors are stepped by
 * hand.
 */
#ifndef MILLRACE_TCP_FAKE_H
#define MILLRACE_TCP_FAKE_H

#include "test/unit/reactor_test.h"

#include "lib/lnd_eth/tcp/tcp_internal.h"

#define HOSTS   2
#define SHARDS  2
#define ROOM    2176u
#define MBUFS   8192
#define DELAY   UINT64_C(500) /* µs, one way */
#define MS      UINT64_C(1000)
#define SECONDS UINT64_C(1000000)

/* A segment on its way. */
struct wire {
    struct wire *next;
    unsigned from; /* host */
    uint64_t due_us;
    uint8_t ecn;
    struct tcp_key key; /* as the receiver sees it */
    struct tcp_seg seg;
    uint32_t len; /* header and payload */
    uint8_t data[];
};

struct inet_if {
    char name[16];
    unsigned mtu;
    struct port port;
    struct inet_addr addr4, addr6;
};

struct inet_shard {
    struct inet *inet;
    unsigned index;
    struct reactor_poller poller;
    struct wire *arrived, **arrived_tail;
    struct rte_mbuf *handed[1024];
    unsigned nhanded;
};

struct inet {
    unsigned host;
    struct inet_upper up;
    struct inet_if ifp;
    struct inet_shard shard[SHARDS];
    unsigned home;  /* reactor of all packets of this host */
    uint32_t epoch; /* of paths */
    unsigned path_mtu;
    uint64_t drops[PKT_DROP_COUNT];
    uint64_t sent, handed_over;
};

struct net {
    struct inet host[HOSTS];
    struct tcp *tcp[HOSTS];
    unsigned reactors;
    uint64_t now;
    struct wire *flying;
    uint64_t delay_us;
    bool (*filter)(struct wire *w); /* true: it goes on */
    struct rte_mempool *rx, *tx;
};

extern struct net net;

void net_make(unsigned reactors); /* once */
struct reactor_env *net_env(void);
/* New hosts; opts of both. */
void net_open(const struct tcp_opts *a, const struct tcp_opts *b);
void net_close(void); /* nothing may be left: asserted */
void net_run(uint64_t us);
/* A segment as if host `to` got it from the other. */
void net_inject(unsigned to, const struct tcp_key *key, const struct tcp_seg *seg,
                const void *payload, uint32_t len);
/* Calls on a reactor of a host. */
void net_bind(unsigned reactor);
unsigned net_mbufs_out(void); /* of the receive pool */

/* Someone with a stream. */
struct app {
    unsigned host, reactor;
    struct stream *s;
    bool connected, closed, gone;
    enum stream_end end;
    unsigned readables, writables, ackeds;
    uint64_t got, sent, to_send;
    uint32_t window, memory; /* rx_window() after each read; 0: never */
    bool hold;               /* does not read */
    uint32_t peek_want;
    bool close_at_eof;
    uint8_t seed_in, seed_out;
    bool corrupt;
};

extern const struct stream_events app_events;
struct stream_listener *app_listen(unsigned host, unsigned reactor, uint16_t port, bool v6,
                                   struct app *next);
void app_unlisten(unsigned host, unsigned reactor, struct stream_listener *l);
int app_connect(struct app *a, unsigned host, unsigned reactor, uint16_t lport, uint16_t rport,
                bool v6);
void app_send(struct app *a, uint64_t bytes);
void app_read(struct app *a);
void app_close(struct app *a, bool abort);
struct tcp_conn *app_conn(struct app *a);

#define NET_UNTIL(cond, us)                                                                        \
    do {                                                                                           \
        uint64_t net_until = net.now + (us);                                                       \
                                                                                                   \
        while (!(cond)) {                                                                          \
            if (net.now > net_until)                                                               \
                fail_msg("never happened: %s", #cond);                                             \
            net_run(250);                                                                          \
        }                                                                                          \
    } while (0)

#endif
