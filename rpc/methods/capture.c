/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * capture_start, capture_get, capture_stop. One capture runs at a time; each client that knows
 * its id may use it. A client takes pages of packets; the capture ends when no page was requested
 * for LEASE_S seconds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/container.h"
#include "lib/base/minmax.h"
#include "lib/lnd_eth/capture.h"
#include "rpc/methods/capture.h"
#include "rpc/methods/port.h"

#define LEASE_S      10
#define PAGE_PACKETS 512
#define PAGE_BYTES   (512u << 10)
#define PACKETS      100000
#define BYTES        (INT64_C(64) << 20)
#define SECONDS      60
#define BUFFER_KB    1024

struct rpc_packets {
    struct rpc_ctx *ctx;
    struct capture *capture;
    char id[17];
    uint64_t packets, bytes; /* left */
    uint64_t captured;
    bool ended;
    struct reactor_timer end;   /* its time is up */
    struct reactor_timer lease; /* no request for LEASE_S */
};

static void forget(struct rpc_packets *p)
{
    reactor_timer_cancel(&p->end);
    reactor_timer_cancel(&p->lease);
    capture_free(p->capture);
    p->ctx->packets = NULL;
    free(p);
}

static void end(struct rpc_packets *p)
{
    p->ended = true;
    capture_stop(p->capture);
}

static void time_over(struct reactor_timer *timer)
{
    end(container_of(timer, struct rpc_packets, end));
}

static void lease_over(struct reactor_timer *timer)
{
    forget(container_of(timer, struct rpc_packets, lease));
}

void rpc_packets_stop(struct rpc_ctx *ctx)
{
    if (ctx->packets)
        forget(ctx->packets);
}

/* ---- capture_start ---- */

/* "any", or the name of a reason. */
static bool read_reason(const char *name, enum pkt_drop *out)
{
    *out = PKT_DROP_NONE;
    for (int i = PKT_DROP_NONE + 1; i < PKT_DROP_COUNT; i++)
        if (strcmp(pkt_drop_info((enum pkt_drop)i)->name, name) == 0)
            *out = (enum pkt_drop)i;
    return *out != PKT_DROP_NONE || strcmp(name, "any") == 0;
}

/* False: the call has been ended. */
static bool read_conf(struct jrpc_call *call, const struct jrpc_arg *args,
                      struct capture_conf *conf)
{
    uint32_t want = (args[8].given ? (uint32_t)args[8].integer : BUFFER_KB) << 10;

    *conf = (struct capture_conf){.has_peer = args[1].given,
                                  .drops = args[2].given     ? CAPTURE_DROPS
                                           : args[3].boolean ? CAPTURE_BOTH
                                                             : CAPTURE_PASSING,
                                  .snap = (uint32_t)args[4].integer,
                                  .ring_size = CAPTURE_RING_MIN};
    while (conf->ring_size < want)
        conf->ring_size *= 2;
    if (args[1].given && !rpc_inet_arg(call, &args[1], "peer", &conf->peer))
        return false;
    if (args[2].given && !read_reason(args[2].string, &conf->why)) {
        jrpc_fail(call, EINVAL, "reason", "pkt_drops_get lists the reasons; any = each of them",
                  "there is no reason %s", args[2].string);
        return false;
    }
    if (args[0].given)
        conf->port = rpc_port_find(call, args[0].string);
    return !args[0].given || conf->port;
}

static bool make_id(char id[17])
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return false;
    snprintf(id, 17, "%016llx", (unsigned long long)random);
    return true;
}

void rpc_capture_start(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct rpc_ctx *ctx = jrpc_ctx(call);
    struct capture_conf conf;
    struct rpc_packets *p;

    if (!ctx->control->inet) {
        jrpc_fail(call, ENODEV, NULL,
                  "configure `millrace: ports:`; packets of other NIs are the "
                  "host's to capture",
                  "there are no ports");
        return;
    }
    if (!read_conf(call, args, &conf))
        return;
    if (ctx->packets) {
        jrpc_fail(call, EBUSY, NULL, "wait for its end; it ends 10 s after its client",
                  "another capture is under way");
        return;
    }
    p = calloc(1, sizeof(*p));
    if (!p || !make_id(p->id) ||
        capture_start(ctx->control->inet, ctx->control->env, &conf, &p->capture) != 0) {
        free(p);
        jrpc_result(call, NULL);
        return;
    }
    p->ctx = ctx;
    p->packets = args[5].given ? (uint64_t)args[5].integer : PACKETS;
    p->bytes = (uint64_t)(args[6].given ? args[6].integer : BYTES);
    reactor_timer_init(&p->end, time_over);
    reactor_timer_init(&p->lease, lease_over);
    reactor_timer_arm(&p->end, (args[7].given ? (uint64_t)args[7].integer : SECONDS) * 1000000);
    reactor_timer_arm(&p->lease, LEASE_S * UINT64_C(1000000));
    ctx->packets = p;
    jrpc_result(call, json_pack("{s:s}", "id", p->id));
}

/* ---- capture_get, capture_stop ---- */

/* NULL: the call has failed. */
static struct rpc_packets *find(struct jrpc_call *call, const char *id)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    if (ctx->packets && strcmp(ctx->packets->id, id) == 0)
        return ctx->packets;
    jrpc_fail(call, ENOENT, "id", "capture_start begins one",
              "there is no such capture, or it has ended for want of a capture_get");
    return NULL;
}

static json_t *hex(const uint8_t *data, uint32_t len)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(2 * (size_t)len + 1);
    json_t *value;

    if (!text)
        return NULL;
    for (uint32_t i = 0; i < len; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    value = json_stringn_nocheck(text, 2 * (size_t)len);
    free(text);
    return value;
}

static json_t *packet_row(const struct rpc_ctx *ctx, const struct capture_record *r)
{
    bool dropped = r->why != PKT_DROP_NONE;
    struct port *port[PORT_MAX];
    unsigned n = rpc_ports(ctx, port), i;

    for (i = 0; i < n && port[i]->index != r->port; i++)
        ;
    return json_pack("{s:I, s:s*, s:s, s:s*, s:I, s:o}", "time_ns", (json_int_t)r->time_ns, "port",
                     i < n ? port[i]->name : NULL, "direction", r->out ? "out" : "in", "drop",
                     dropped ? pkt_drop_info((enum pkt_drop)r->why)->name : NULL, "length",
                     (json_int_t)r->len, "data", hex(r->data, r->caplen));
}

void rpc_capture_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct rpc_packets *p = find(call, args[0].string);
    json_t *list;
    struct capture_record r;
    uint32_t bytes = 0;
    bool more = false;

    if (!p)
        return;
    reactor_timer_arm(&p->lease, LEASE_S * UINT64_C(1000000));
    list = json_array();
    while (p->packets > 0 && p->bytes > 0 && (more = capture_next(p->capture, &r)) &&
           json_array_size(list) < PAGE_PACKETS && bytes < PAGE_BYTES) {
        json_array_append_new(list, packet_row(p->ctx, &r));
        bytes += r.caplen;
        p->packets--;
        p->bytes -= min(p->bytes, (uint64_t)r.caplen);
        p->captured++;
        capture_pop(p->capture);
    }
    if (p->packets == 0 || p->bytes == 0) {
        end(p);
        more = false;
    }
    jrpc_result(call,
                json_pack("{s:o, s:I, s:I, s:b}", "packets", list, "captured",
                          (json_int_t)p->captured, "missed", (json_int_t)capture_missed(p->capture),
                          "ended", p->ended && !more));
}

void rpc_capture_stop(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct rpc_packets *p = find(call, args[0].string);
    json_t *answer;

    if (!p)
        return;
    answer = json_pack("{s:I, s:I}", "captured", (json_int_t)p->captured, "missed",
                       (json_int_t)capture_missed(p->capture));
    forget(p);
    jrpc_result(call, answer);
}
