/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive rings of AF_PACKET sockets, and the filters that share the frames out among them. */
#include "lib/base/err.h"
#include "lib/lnd_eth/port/port_packet.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

/* In front of a frame in its slot: TPACKET2_HDRLEN, the vnet header, alignment. */
#define SLOT_HEAD   128u
#define SLOT_SHORT  2048u
#define SLOT_MIDDLE 16384u
#define SLOT_LONG   (SLOT_HEAD + 65536u) /* the largest IP packet, Ethernet header and tag */
#define SLOT_HANDED 256u                 /* its headers */
/* Buffer of a socket in which frames wait, one per slot; the kernel counts their truesize twice. */
#define HANDED_ROOM (12 << 20)

struct shape {
    uint32_t slot_size, block_size, blocks;
};

static const struct shape shapes[PACKET_KINDS] = {
    [PACKET_SHORT] = {SLOT_SHORT, 1 << 20, 4},   /* 2048 slots */
    [PACKET_MIDDLE] = {SLOT_MIDDLE, 1 << 20, 4}, /* 256 slots */
    [PACKET_LONG] = {SLOT_LONG, 1 << 20, 12},    /* 180 slots, 12 MiB of frames */
};
static const struct shape shape_handed = {SLOT_HANDED, 1 << 16, 1}; /* 256 slots */

/* Lengths of the frames that come by each ring: above the one's, up to the other's. */
static const struct {
    uint32_t above, most;
} lengths[PACKET_KINDS] = {
    [PACKET_SHORT] = {0, SLOT_SHORT - SLOT_HEAD},
    [PACKET_MIDDLE] = {SLOT_SHORT - SLOT_HEAD, SLOT_MIDDLE - SLOT_HEAD},
    [PACKET_LONG] = {SLOT_MIDDLE - SLOT_HEAD, UINT32_MAX},
};

/* ---- filters ---- */

struct program {
    struct sock_filter ins[48];
    unsigned n;
};

static void emit(struct program *p, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    p->ins[p->n++] = (struct sock_filter){code, jt, jf, k};
}

/* One instruction of its own each: what is not wanted returns at once. */
static void emit_refuse(struct program *p)
{
    emit(p, BPF_RET | BPF_K, 0, 0, 0);
}

/* X = X ^ the word at that place of the IP header. */
static void emit_mix(struct program *p, uint32_t off)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)SKF_NET_OFF + off);
    emit(p, BPF_ALU | BPF_XOR | BPF_X, 0, 0, 0);
    emit(p, BPF_MISC | BPF_TAX, 0, 0, 0);
}

/* Continues only for frames of that queue: by a hash of both addresses, without ports, so that
 * all frames of a peer use one queue. Frames that are not IP use the first queue. */
static void emit_queue(struct program *p, unsigned queue, unsigned queues)
{
    unsigned v6, v4, other, end;

    emit(p, BPF_LDX | BPF_IMM, 0, 0, 0);
    emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)(SKF_AD_OFF + SKF_AD_PROTOCOL));
    v6 = p->n;
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, ETH_P_IPV6);
    v4 = p->n;
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, ETH_P_IP);
    other = p->n;
    emit(p, BPF_JMP | BPF_JA, 0, 0, 0);
    p->ins[v6].jt = (uint8_t)(p->n - v6 - 1);
    for (uint32_t off = 8; off < 40; off += 4)
        emit_mix(p, off);
    end = p->n;
    emit(p, BPF_JMP | BPF_JA, 0, 0, 0);
    p->ins[v4].jt = (uint8_t)(p->n - v4 - 1);
    emit_mix(p, 12);
    emit_mix(p, 16);
    p->ins[other].k = p->n - other - 1;
    p->ins[end].k = p->n - end - 1;
    emit(p, BPF_MISC | BPF_TXA, 0, 0, 0);
    emit(p, BPF_ALU | BPF_MUL | BPF_K, 0, 0, 0x9e3779b1); /* spread over the upper bits */
    emit(p, BPF_ALU | BPF_RSH | BPF_K, 0, 0, 16);
    emit(p, BPF_ALU | BPF_MOD | BPF_K, 0, 0, queues);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, queue);
    emit_refuse(p);
}

static int filter_set(int fd, enum packet_kind kind, unsigned queue, unsigned queues)
{
    struct program p = {.n = 0};
    struct sock_fprog prog;

    emit(&p, BPF_LD | BPF_W | BPF_LEN, 0, 0, 0);
    emit(&p, BPF_JMP | BPF_JGT | BPF_K, 0, 1, lengths[kind].most);
    emit_refuse(&p);
    emit(&p, BPF_JMP | BPF_JGT | BPF_K, 1, 0, lengths[kind].above);
    emit_refuse(&p);
    if (queues > 1)
        emit_queue(&p, queue, queues);
    emit(&p, BPF_RET | BPF_K, 0, 0, UINT32_MAX);
    prog = (struct sock_fprog){(unsigned short)p.n, p.ins};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) < 0 ? -errno : 0;
}

/* ---- rings ---- */

static int option(int fd, int name, int value)
{
    return setsockopt(fd, SOL_PACKET, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

/* Whether the kernel is to keep whole frames in the socket, beside slots that have their headers.
 */
static bool hand_over(int fd)
{
    int room = HANDED_ROOM;

    return setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) == 0 &&
           option(fd, PACKET_COPY_THRESH, 1) == 0;
}

static int ring_open(struct packet_ring *ring, enum packet_kind kind, unsigned queue,
                     unsigned queues, struct err *err)
{
    const struct shape *shape = &shapes[kind];
    const char *what = "a socket";
    struct tpacket_req req;
    void *map;
    int rc;

    /* Of protocol 0: nothing comes before it is bound to one. */
    ring->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    rc = ring->fd < 0 ? -errno : 0;
    if (rc == 0) {
        what = "TPACKET_V2";
        rc = option(ring->fd, PACKET_VERSION, TPACKET_V2);
    }
    if (rc == 0) {
        what = "PACKET_VNET_HDR";
        rc = option(ring->fd, PACKET_VNET_HDR, 1);
    }
    if (rc == 0)
        option(ring->fd, PACKET_IGNORE_OUTGOING, 1); /* before Linux 4.20 we look ourselves */
    if (rc == 0) {
        what = "a filter";
        rc = filter_set(ring->fd, kind, queue, queues);
    }
    if (rc == 0) {
        what = "its ring";
        ring->handed = kind == PACKET_LONG && hand_over(ring->fd);
        if (ring->handed)
            shape = &shape_handed;
        req = (struct tpacket_req){
            .tp_block_size = shape->block_size,
            .tp_block_nr = shape->blocks,
            .tp_frame_size = shape->slot_size,
            .tp_frame_nr = shape->block_size / shape->slot_size * shape->blocks,
        };
        rc = setsockopt(ring->fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)) < 0 ? -errno : 0;
    }
    if (rc == 0) {
        ring->map_len = (size_t)req.tp_block_size * req.tp_block_nr;
        map = mmap(NULL, ring->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
        rc = map == MAP_FAILED ? -errno : 0;
        ring->map = rc == 0 ? map : NULL;
    }
    if (rc < 0) {
        return err_set(err, rc, "receiving with a packet socket: %s: %s", what, strerror(-rc));
    }
    ring->slot_size = req.tp_frame_size;
    ring->slots = req.tp_frame_nr;
    ring->block_size = req.tp_block_size;
    ring->slots_per_block = req.tp_block_size / req.tp_frame_size;
    return 0;
}

static void ring_close(struct packet_ring *ring)
{
    if (ring->map)
        munmap(ring->map, ring->map_len);
    if (ring->fd >= 0)
        close(ring->fd);
    *ring = (struct packet_ring){.fd = -1};
}

int packet_rx_open(struct packet_rx *rx, unsigned queue, unsigned queues, struct err *err)
{
    int rc = 0;

    rx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (rx->epoll_fd < 0) {
        rc = -errno;
        err_text(err, "epoll: %s", strerror(-rc));
    }
    for (int kind = 0; kind < PACKET_KINDS && rc == 0; kind++) {
        struct epoll_event ev = {.events = EPOLLIN};

        rc = ring_open(&rx->ring[kind], kind, queue, queues, err);
        if (rc == 0 && epoll_ctl(rx->epoll_fd, EPOLL_CTL_ADD, rx->ring[kind].fd, &ev) < 0) {
            rc = -errno;
            err_text(err, "epoll: %s", strerror(-rc));
        }
    }
    return rc;
}

void packet_rx_close(struct packet_rx *rx)
{
    for (int kind = 0; kind < PACKET_KINDS; kind++)
        ring_close(&rx->ring[kind]);
    if (rx->epoll_fd >= 0)
        close(rx->epoll_fd);
    rx->epoll_fd = -1;
}
