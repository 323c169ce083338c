/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What bytes cost on host sockets by the way they are handed to the kernel: copied by send(), lent
 * to it with MSG_ZEROCOPY, or passed on by splice(). For bench.py zerocopy; knows nothing of LNet.
 *
 *   zerocopy receive ADDRESS PORT
 *   zerocopy send ADDRESS PORT SIZE SECONDS copy|lend
 *   zerocopy relay ADDRESS PORT TO_ADDRESS TO_PORT PART copy|splice
 *
 * send: messages of SIZE from buffers taken in turn; lent ones are written to again when the kernel
 * has said that it is done with them, and it says too whether it has copied them after all. relay:
 * PART bytes are in before any of them is sent: with PART the size of a message that is whole then,
 * as a router must have it. Each ends with its stream, and prints a line of JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES  (256u << 10)
#define POOL_BYTES  (16u << 20) /* of buffers that are sent in turn: more than caches hold */
#define SIZE_MAX_   (1u << 20)
#define CONNECT_MS  5000
#define CONTROL_MAX 128

struct run {
    const char *role;
    double begin, cpu;
    uint64_t bytes, calls;
    uint64_t done, copied; /* lent messages: given back; of these copied by the kernel */
};

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "zerocopy: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t number(const char *text, uint32_t max)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);

    if (end != text && *end == '\0' && v > 0 && v <= max)
        return (uint32_t)v;
    fprintf(stderr, "zerocopy: '%.60s' is not a number from 1 to %u\n", text, max);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static struct run run_begin(const char *role)
{
    return (struct run){.role = role, .begin = now(), .cpu = cpu()};
}

static void run_print(const struct run *r)
{
    printf("{\"role\": \"%s\", \"seconds\": %.6f, \"cpu\": %.6f, \"bytes\": %" PRIu64
           ", \"calls\": %" PRIu64 ", \"lent_done\": %" PRIu64 ", \"lent_copied\": %" PRIu64 "}\n",
           r->role, now() - r->begin, cpu() - r->cpu, r->bytes, r->calls, r->done, r->copied);
}

/* ---- connections ---- */

static struct sockaddr_in address(const char *text, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(number(port, UINT16_MAX))};

    if (inet_pton(AF_INET, text, &a.sin_addr) != 1) {
        fprintf(stderr, "zerocopy: '%.60s' is no IPv4 address\n", text);
        exit(1);
    }
    return a;
}

static void set_int(int sock, int level, int name, int value, const char *what)
{
    if (setsockopt(sock, level, name, &value, sizeof(value)) < 0)
        die(what);
}

static int called(const char *addr, const char *port)
{
    struct sockaddr_in a = address(addr, port);
    int listener = socket(AF_INET, SOCK_STREAM, 0), sock;

    if (listener < 0)
        die("socket");
    set_int(listener, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    if (bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(listener, 1) < 0)
        die("listen");
    fprintf(stderr, "ready\n");
    sock = accept(listener, NULL, NULL);
    if (sock < 0)
        die("accept");
    close(listener);
    return sock;
}

static int call(const char *addr, const char *port)
{
    struct sockaddr_in a = address(addr, port);
    int sock = socket(AF_INET, SOCK_STREAM, 0);

    if (sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0)
        die("connect");
    set_int(sock, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    return sock;
}

/* ---- receive ---- */

static void receive(int sock)
{
    struct run r = {0};
    uint8_t *buf = malloc(READ_BYTES);
    ssize_t n;

    if (!buf)
        die("memory");
    while ((n = recv(sock, buf, READ_BYTES, 0)) > 0) {
        if (r.bytes == 0)
            r = run_begin("receive");
        r.bytes += (uint64_t)n;
        r.calls++;
    }
    if (n < 0)
        die("recv");
    if (r.bytes == 0)
        r = run_begin("receive");
    run_print(&r);
    free(buf);
}

/* ---- send ---- */

struct pool {
    uint8_t *mem;
    uint32_t size, count;
    bool *lent;
    uint32_t sent; /* calls with MSG_ZEROCOPY, as the kernel numbers them */
    struct run *r;
};

/* Takes one message of the socket's error queue: a range of calls that the kernel is done with. */
static bool give_back(int sock, struct pool *p)
{
    char control[CONTROL_MAX];
    struct msghdr msg = {.msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    struct sock_extended_err e;

    if (recvmsg(sock, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        if (errno != EAGAIN)
            die("MSG_ERRQUEUE");
        return false;
    }
    p->r->calls++;
    c = CMSG_FIRSTHDR(&msg);
    if (!c || c->cmsg_len < CMSG_LEN(sizeof(e)))
        return true;
    memcpy(&e, CMSG_DATA(c), sizeof(e));
    if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY || e.ee_data - e.ee_info >= p->count)
        return true;
    for (uint32_t i = e.ee_info; i != e.ee_data + 1; i++) {
        p->lent[i % p->count] = false;
        p->r->done++;
        p->r->copied += (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0;
    }
    return true;
}

static void wait_back(int sock, struct pool *p)
{
    struct pollfd f = {.fd = sock};

    if (poll(&f, 1, CONNECT_MS) <= 0)
        die("a lent buffer does not come back");
    while (give_back(sock, p))
        ;
}

/* One call; false: the kernel lends no more until it has given back. */
static bool send_some(int sock, struct pool *p, const uint8_t *from, uint32_t *left, bool lend)
{
    ssize_t n = send(sock, from, *left, lend ? MSG_ZEROCOPY : 0);

    if (n < 0 && errno != ENOBUFS)
        die("send");
    if (n < 0)
        return false;
    p->r->calls++;
    p->r->bytes += (uint64_t)n;
    *left -= (uint32_t)n;
    return true;
}

/* A message that is lent is one call: what did not fit is copied. */
static void send_one(int sock, struct pool *p, uint32_t i, bool lend)
{
    uint32_t left = p->size;
    uint8_t *buf = p->mem + (size_t)i * p->size;

    if (lend) {
        while (p->lent[i])
            wait_back(sock, p);
        while (!send_some(sock, p, buf, &left, true))
            wait_back(sock, p);
        p->lent[i] = true;
        p->sent++;
    }
    while (left > 0)
        (void)send_some(sock, p, buf + p->size - left, &left, false);
}

static void send_all(int sock, uint32_t size, uint32_t seconds, bool lend)
{
    struct run r;
    struct pool p = {.size = size, .count = POOL_BYTES / size, .r = &r};
    double end;

    p.mem = aligned_alloc(4096, POOL_BYTES);
    p.lent = calloc(p.count, sizeof(p.lent[0]));
    if (!p.mem || !p.lent)
        die("memory");
    memset(p.mem, 0x5a, POOL_BYTES);
    if (lend)
        set_int(sock, SOL_SOCKET, SO_ZEROCOPY, 1, "SO_ZEROCOPY");
    r = run_begin("send");
    end = r.begin + seconds;
    for (uint32_t i = 0; now() < end; i = (i + 1) % p.count)
        send_one(sock, &p, i, lend);
    while (lend && r.done < p.sent)
        wait_back(sock, &p);
    shutdown(sock, SHUT_WR);
    run_print(&r);
    free(p.lent);
    free(p.mem);
}

/* ---- relay ---- */

/* Moves exactly n bytes unless the stream ends before: returns how many. */
static uint32_t copy_in(struct run *r, int from, uint8_t *buf, uint32_t n)
{
    ssize_t got = recv(from, buf, n, MSG_WAITALL);

    if (got < 0)
        die("recv");
    r->calls++;
    return (uint32_t)got;
}

static void copy_out(struct run *r, int to, const uint8_t *buf, uint32_t n)
{
    for (ssize_t sent; n > 0; n -= (uint32_t)sent, buf += sent) {
        sent = send(to, buf, n, 0);
        if (sent < 0)
            die("send");
        r->calls++;
    }
}

static uint32_t splice_all(struct run *r, int from, int to, uint32_t n)
{
    uint32_t done = 0;

    while (done < n) {
        ssize_t moved = splice(from, NULL, to, NULL, n - done, SPLICE_F_MOVE);

        if (moved < 0)
            die("splice");
        r->calls++;
        if (moved == 0)
            break;
        done += (uint32_t)moved;
    }
    return done;
}

/* A pipe counts places, of which one may hold less than a page: what has gone into it when it is
 * full must leave before more can come. */
static uint32_t splice_part(struct run *r, int from, int to, const int pipes[2], uint32_t n)
{
    uint32_t in = 0, out = 0;

    while (in < n) {
        /* Without a wait where something is in already: the pipe may be full. */
        ssize_t moved = splice(from, NULL, pipes[1], NULL, n - in,
                               SPLICE_F_MOVE | (in > out ? SPLICE_F_NONBLOCK : 0));

        if (moved < 0 && errno != EAGAIN)
            die("splice");
        r->calls++;
        if (moved == 0)
            break;
        if (moved > 0) {
            in += (uint32_t)moved;
        } else {
            struct pollfd f = {.fd = from, .events = POLLIN};
            bool full = poll(&f, 1, 0) > 0;

            r->calls++;
            if (full)
                out += splice_all(r, pipes[0], to, in - out);
            else
                (void)poll(&f, 1, CONNECT_MS);
        }
    }
    splice_all(r, pipes[0], to, in - out);
    return in;
}

static void relay(int from, int to, uint32_t part, bool splices)
{
    struct run r = {0};
    uint8_t *buf = malloc(SIZE_MAX_);
    int pipes[2];
    uint32_t n;

    if (!buf || pipe(pipes) < 0 || fcntl(pipes[1], F_SETPIPE_SZ, SIZE_MAX_) < 0)
        die("memory");
    set_int(from, SOL_SOCKET, SO_RCVLOWAT, (int)(part < READ_BYTES ? part : READ_BYTES),
            "SO_RCVLOWAT");
    do {
        if (r.bytes == 0)
            r = run_begin("relay");
        if (splices) {
            n = splice_part(&r, from, to, pipes, part);
        } else {
            n = copy_in(&r, from, buf, part);
            copy_out(&r, to, buf, n);
        }
        r.bytes += n;
    } while (n == part);
    shutdown(to, SHUT_WR);
    run_print(&r);
    free(buf);
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    if (argc == 4 && strcmp(role, "receive") == 0) {
        receive(called(argv[2], argv[3]));
    } else if (argc == 7 && strcmp(role, "send") == 0) {
        bool lend = strcmp(argv[6], "lend") == 0;

        if (!lend && strcmp(argv[6], "copy") != 0)
            goto usage;
        send_all(call(argv[2], argv[3]), number(argv[4], SIZE_MAX_), number(argv[5], 3600), lend);
    } else if (argc == 8 && strcmp(role, "relay") == 0) {
        bool splices = strcmp(argv[7], "splice") == 0;
        uint32_t part = number(argv[6], SIZE_MAX_);
        int from;

        if (!splices && strcmp(argv[7], "copy") != 0)
            goto usage;
        from = called(argv[2], argv[3]);
        relay(from, call(argv[4], argv[5]), part, splices);
    } else {
        goto usage;
    }
    return 0;

usage:
    fprintf(stderr, "usage: zerocopy receive ADDRESS PORT\n"
                    "       zerocopy send ADDRESS PORT SIZE SECONDS copy|lend\n"
                    "       zerocopy relay ADDRESS PORT TO_ADDRESS TO_PORT PART copy|splice\n");
    return 1;
}
