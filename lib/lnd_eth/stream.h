/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream transports, the layer below the socklnd protocol. The first is `kernel` (host
 * sockets); own TCP on a port, UDT, RDS and TLS come behind the same table.
 *
 * Receiving has two modes, and a transport offers exactly one (STREAM_CAP_TAKE says which):
 *   read_into  bytes are read into memory of the caller's (kernel, TLS, rds);
 *   take       bytes already lie where the device put them and are handed over as segments that the
 *              caller owns until it gives them back (tcp, udt).
 * In both, headers are read with peek(): up to STREAM_PEEK_MAX contiguous bytes, then skip().
 *
 * A stream belongs to one reactor; all calls and callbacks are made there. A callback may close the
 * stream it is called for. No callback is made from inside a call of the user's.
 */
#ifndef MILLRACE_STREAM_H
#define MILLRACE_STREAM_H

#include "lib/reactor/mem.h"
#include "lib/reactor/reactor.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sys/types.h>

#define STREAM_PEEK_MAX     192  /* bytes */
#define STREAM_FIRST_WINDOW 4096 /* take mode: bytes a peer may send before rx_window() */

struct stream_ops;

/* First member of a transport's own stream and listener. */
struct stream {
    const struct stream_ops *ops;
};

union stream_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct stream_listener {
    const struct stream_ops *ops;
    /* The user's, set after listen(); relaxed. Returns whether accepted() would refuse a caller
     * now. Then the transport ignores its request, if it can, and makes no connection. */
    bool (*refuses)(void *user, const union stream_addr *peer);
};

enum stream_cap {
    STREAM_CAP_TAKE = 1,         /* receive mode is take, else read_into */
    STREAM_CAP_BY_REFERENCE = 2, /* what send() took is referred to until acknowledged */
};

/* How a stream ended, for stream_events.closed. */
enum stream_end {
    STREAM_END_EOF, /* the peer's FIN; all before it was read, but for what peek() found too little
                     */
    STREAM_END_RESET,
    STREAM_END_REFUSED, /* connect only */
    STREAM_END_UNREACHABLE,
    STREAM_END_TIMEOUT,
    STREAM_END_ERROR,
};
/* Returns how a stream ended by an errno of the host's sockets. */
enum stream_end stream_end_of_errno(int err);

struct stream_events {
    void (*connected)(void *user); /* an outgoing stream is up; NULL for accepted ones */
    void (*readable)(void *user);  /* more bytes (or the end) since the last peek or read */
    void (*writable)(void *user);  /* send() may take more after it took less */
    void (*acked)(void *user);     /* with STREAM_CAP_BY_REFERENCE: stats().unacked has shrunk */
    void (*closed)(void *user, enum stream_end end); /* broken; only close() is left */
};

struct stream_stats {
    uint64_t bytes_in, bytes_out; /* bytes_out: taken by send() */
    uint64_t unacked; /* of bytes_out, not acknowledged by the peer (nor, perhaps, sent) */
};

struct stream_ops {
    const char *name;
    uint32_t caps;
    size_t stream_bytes; /* heap one stream takes */
    uint32_t
        rx_buffer; /* take mode: memory one receive buffer takes, with all that belongs to it */

    /* Listens on addr, on behalf of reactor `on`; accepted() runs there and owns s, which is idle
     * until attach(). The address is taken when this returns 0; -errno else. Control thread. */
    int (*listen)(void *ctx, const union stream_addr *addr, const char *ifname, struct reactor *on,
                  void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
                  void *user, struct stream_listener **out);
    void (*unlisten)(struct stream_listener *l); /* on its reactor */
    /* Begins to connect from local (port 0 = let the transport choose). -EADDRINUSE and
     * -EADDRNOTAVAIL: try another port. tos -1 = default. */
    int (*connect)(void *ctx, const union stream_addr *local, const char *ifname,
                   const union stream_addr *remote, int tos, const struct stream_events *ev,
                   void *user, struct stream **out);

    /* Returns whether few places for accepted streams are left, so that another stream has to end
     * if there are to be places for later callers. At once in accepted(). NULL: no. */
    bool (*scarce)(const struct stream *s);

    /* Writes the name of the interface that the caller's request came in by; false: not known. A
     * listener that takes requests of one interface only needs none: NULL. */
    bool (*came_by)(const struct stream *s, char ifname[IF_NAMESIZE]);

    /* Takes an accepted or detached stream into the calling reactor and starts events. Bytes that
     * were read ahead are not announced again: call peek() after attach(). 0 or -errno. */
    int (*attach)(struct stream *s, const struct stream_events *ev, void *user);
    /* Removes it from this reactor: no events any more. Another may attach it as soon as no
     * callback of the stream is on the stack here. */
    void (*detach)(struct stream *s);
    /* The protocol's handshake is done: type of service (-1 = default), and TCP keepalive after
     * 30 s, every 5 s, 5 times (docs/protocol/socklnd.md §3.5). */
    void (*established)(struct stream *s, int tos);

    /* Contiguous bytes at the front of what has arrived: returns how many (up to want), sets *p.
     * Less than want: wait for readable. The bytes stay until skip(). */
    size_t (*peek)(struct stream *s, size_t want, const uint8_t **p);
    void (*skip)(struct stream *s, size_t n); /* n <= what peek returned */
    /* read_into mode: reads up to sum(segs) bytes, those peeked at first. 0: nothing yet. EOF and
     * errors come through closed(). May read ahead behind the last segment. */
    size_t (*read_into)(struct stream *s, const struct mem_seg *segs, unsigned nsegs);
    /* take mode: hands over up to max bytes as segments, at most maxsegs. Returns bytes and sets
     * *nsegs. Sets *truesize to the whole memory of the buffers, also of one whose rest stays in
     * the queue (which counts it too). The caller owns them until
     * give_back(), which may come after the stream's end. */
    size_t (*take)(struct stream *s, size_t max, struct mem_seg *segs, unsigned maxsegs,
                   unsigned *nsegs, size_t *truesize);
    void (*give_back)(struct mem_seg *segs, unsigned nsegs); /* on the reactor that took them */
    /* take mode: lets the peer send `bytes` beyond the skipped and taken ones (arrived bytes are
     * part of that). The window never shrinks. Waiting data, in or out of order, may occupy
     * `memory` bytes by truesize. Before it would exceed that, the transport copies sparse
     * buffers together; data without room even so counts as lost by the network. Data in order
     * always has room if full buffers are at least 4/5 payload and `memory` is at least 5/4 of
     * `bytes`. `memory` is less only after a message was given up. Before the first call:
     * STREAM_FIRST_WINDOW, in memory of the transport's own. */
    void (*rx_window)(struct stream *s, size_t bytes, size_t memory);
    /* Stops and restarts readable(); while stopped the window of a read_into transport closes.
     * After read_into() a transport may wait until more has come before it calls readable(); to
     * restart is to be told of all that is there. */
    void (*rx_pause)(struct stream *s, bool pause);

    /* Queues bytes for sending: takes all or part, returns how many (less: wait for writable) or
     * -errno. more: further data follows at once. Bytes taken may be reused at once, or, with
     * STREAM_CAP_BY_REFERENCE, when they are no longer counted in stats().unacked; segments of
     * MEM_REGION_NONE are copied in any case. To landing buffers frames may refer even then, and
     * after close(): they are free when mem_held() says so. Mbufs count for themselves. */
    ssize_t (*send)(struct stream *s, const struct mem_seg *segs, unsigned nsegs, bool more);
    void (*stats)(struct stream *s, struct stream_stats *out);
    /* Graceful (FIN after what was accepted; RST if something was not read) or abortive (RST). s is
     * gone; nothing sent is referred to any more, but for buffers that count their references: see
     * send(). */
    void (*close)(struct stream *s, bool abort);
};

/* A transport as an NI has it. */
struct stream_transport {
    const struct stream_ops *ops;
    void *ctx; /* listen() and connect() are given it; NULL for `kernel` */
};

extern const struct stream_ops stream_kernel;
/* Own TCP on a port; ctx is a struct tcp. tcp/tcp.h. */
extern const struct stream_ops stream_tcp;

#endif
