// SPDX-License-Identifier: BSD-3-Clause
// What the files of rdma_pair share: rdma_pair.c (ports, the program), rdma_pair_connect.c
// (connections come and go), rdma_pair_data.c (data, queues, memory), rdma_pair_ends.c (what their
// tests are made of).
#ifndef MILLRACE_RDMA_PAIR_H
#define MILLRACE_RDMA_PAIR_H

#include "lib/lnd_verbs/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE   4987
#define WORDS     56 // of a call
#define RECV_SIZE 4096
#define SLOT      MEM_LANDING_SLOT
#define WAIT_S    20
#define REACTORS  2
#define CALLERS   256

struct test {
    const char *name;
    void (*run)(void);
};

extern const struct test connect_tests[], data_tests[]; // the last has no name

extern struct reactor_env *env;
extern struct rdma *rdma;
extern struct rdma_port port[2]; // 0: calls, on reactor 0; 1: is called, on reactor 1
extern struct sockaddr_in address[2];
extern const char *test_name;
extern const struct rdma_ops *const ops;
extern struct mem_pool landing;
extern uint8_t *slot[2]; // 0: source, 1: sink

__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *fmt, ...);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            fail("line %d: %s", __LINE__, #what);                                                  \
    } while (0)

#define EQUAL(a, b)                                                                                \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_)                                                                              \
            fail("line %d: %s is %lld, not %lld", __LINE__, #a, a_, b_);                           \
    } while (0)

#define UNTIL(what)                                                                                \
    do {                                                                                           \
        double end_ = now() + WAIT_S;                                                              \
        while (!(what)) {                                                                          \
            if (now() > end_)                                                                      \
                fail("line %d: not within %d s: %s", __LINE__, WAIT_S, #what);                     \
            turn();                                                                                \
        }                                                                                          \
    } while (0)

struct end {
    struct rdma_link link;
    unsigned home;
    unsigned count[RDMA_EV_CLOSED + 1];
    int error, status; // of the last event that has one
    size_t priv_len;
    uint8_t priv[RDMA_PRIV_MAX];
    unsigned recvs, sends, flushed; // completions
    int bad;                        // status of the last that failed otherwise
    bool shut_when_told;            // shut from inside the next event
};

#define COUNT(e, what) ((e)->count[RDMA_EV_##what])

extern bool dial_privileged;
extern int dial_tos;
extern struct rdma_request *callers[CALLERS];
extern unsigned ncallers;
extern unsigned requests_on[REACTORS], unlistened_on[REACTORS];
extern const struct rdma_listener listener;

double now(void);
void as(unsigned reactor);
void as_control(void);
void turn(void);
void for_a_while(double seconds);
struct end *end_new(unsigned home);
struct rdma_open usual(void);
void dial_to(struct end *e, struct sockaddr_in to, uint16_t service);
void open_end(struct end *e, const struct rdma_open *open);
void post_recvs(struct end *e, unsigned n);
int drain(struct end *e);
void shut_end(struct end *e);
void send_bytes(struct end *e, const void *data, uint32_t len, uint32_t lkey, unsigned flags);
struct rdma_request *next_caller(void);
void words_fill(uint8_t *words, size_t len, unsigned seed);
void listen_on(uint16_t service);
void unlisten(void);
struct end *dialled(const struct rdma_open *open);
void connect_end(struct end *e, unsigned seed);
struct end *adopted(const struct rdma_open *open);
void accept_end(struct end *e, unsigned seed, size_t len);
void pair_up(struct end *pair[2], const struct rdma_open *open);
void leave(struct end *e);
void pair_end(struct end *pair[2]);
struct rdma_counters counters(void);

#endif
