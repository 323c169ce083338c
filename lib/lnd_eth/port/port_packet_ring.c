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

/* X = X ^ the word at that place of the IP header. */
#define MIX(off)                                                                                   \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + (off)),                             \
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0), BPF_STMT(BPF_MISC | BPF_TAX, 0)
#define REFUSE BPF_STMT(BPF_RET | BPF_K, 0)

/* Accepts frames of that length, and of that queue: by a hash of both addresses, without ports, so
 * that all frames of a peer use one queue. Frames that are not IP use the first queue. */
static int filter_set(int fd, enum packet_kind kind, unsigned queue, unsigned queues)
{
    struct sock_filter ins[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, lengths[kind].most, 0, 1),
        REFUSE,
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, lengths[kind].above, 1, 0),
        REFUSE,
        BPF_STMT(BPF_JMP | BPF_JA, queues > 1 ? 0 : 42), /* to the end */
        BPF_STMT(BPF_LDX | BPF_IMM, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PROTOCOL)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 26, 0),
        BPF_STMT(BPF_JMP | BPF_JA, 31),
        MIX(8),
        MIX(12),
        MIX(16),
        MIX(20),
        MIX(24),
        MIX(28),
        MIX(32),
        MIX(36), /* IPv6 */
        BPF_STMT(BPF_JMP | BPF_JA, 6),
        MIX(12),
        MIX(16), /* IPv4 */
        BPF_STMT(BPF_MISC | BPF_TXA, 0),
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 0x9e3779b1), /* spread over the upper bits */
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16),
        BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, queues),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, queue, 1, 0),
        REFUSE,
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    struct sock_fprog prog = {RTE_DIM(ins), ins};

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
    if (rc < 0)
        return err_set(err, rc, "receiving with a packet socket: %s: %s", what, strerror(-rc));
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
    if (rx->epoll_fd < 0)
        return err_set(err, -errno, "epoll: %s", strerror(errno));
    for (int kind = 0; kind < PACKET_KINDS && rc == 0; kind++) {
        struct epoll_event ev = {.events = EPOLLIN};

        rc = ring_open(&rx->ring[kind], kind, queue, queues, err);
        if (rc == 0 && epoll_ctl(rx->epoll_fd, EPOLL_CTL_ADD, rx->ring[kind].fd, &ev) < 0)
            rc = err_set(err, -errno, "epoll: %s", strerror(errno));
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
