/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/loopback.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/base/container.h"
#include "lib/base/err.h"

#define NIS 16
/* ---- the type ---- */

static const struct lnet_drop_info drops[] = {
    {"loop_no_ni", DROP_KIND_MESSAGE, "No NI of this process has the NID of the next hop.",
     "Add the NI, or look at the routes of the node that sends."},
    {"loop_stopped", DROP_KIND_MESSAGE, "The NI was stopped before the message arrived.",
     "Nothing: the sender learns from its health that the NI has gone."},
};
static const struct lnet_drop_table drop_table = {3, 2, drops};

static const struct lnd_setting tunables[] = {
    [LOOP_TUN_BATCH] = {"loop_batch", .min = -1, .max = 64, .help = "messages of an iteration"},
    [LOOP_TUN_COLOUR] = {"loop_colour", .min = -1, .max = 7, .kept = true},
};
static const struct lnd_setting options[] = {
    {"limit", .min = 1, .max = 1000, .def = 16, .help = "messages under way"},
};

const struct lnd_type loop_type = {
    .name = "efa",
    .net_type = LNET_LND_EFA,
    .drops = &drop_table,
    .tunables = tunables,
    .tunable_count = 2,
    .section = "loop",
    .options = options,
    .option_count = 1,
    .device_may_lack = true,
};

/* ---- NIs ---- */

/* An NI, or a free place. Places stay where they are, so that a message under way finds out that
 * its NI has gone. Control thread, but for the counters: home of the peer. */
static struct loop_ni {
    struct lnet_ni *ni; /* NULL: free */
    bool serves;        /* started and not quiesced */
    uint64_t sent, received;
    struct reactor_task stop;
    struct reactor_task *stop_done;
} nis[NIS];
static unsigned open_receives; /* headers that the core has not answered yet */

/* A message on its way. */
struct transfer {
    struct lnet_rx rx;
    struct reactor_task task;
    struct loop_ni *to;
    struct lnet_nid from;
    uint8_t *payload;
};

static int ni_init(struct lnet_ni *ni, struct err *err)
{
    struct lnd_tunables *t = &ni->lnd_tun;
    int *batch = &t->own[lnd_slot(&loop_type, LOOP_TUN_BATCH)];
    struct loop_ni *place = nis;

    while (place < nis + NIS && place->ni)
        place++;
    if (place == nis + NIS)
        return err_set(err, -ENOSPC, "at most %d loopback NIs", NIS);
    ni->tun = (struct lnet_tunables){180, 8, 0, 256};
    t->conns_per_peer = t->conns_per_peer == -1 ? 1 : t->conns_per_peer;
    t->timeout = t->timeout == -1 ? 50 : t->timeout;
    *batch = *batch == -1 ? 32 : *batch;
    *place = (struct loop_ni){.ni = ni};
    ni->lnd_ni = place;
    return 0;
}

static int ni_start(struct lnet_ni *ni, struct err *err)
{
    ((struct loop_ni *)ni->lnd_ni)->serves = true;
    return 0;
}

static void ni_quiesce(struct lnet_ni *ni, struct reactor_task *done)
{
    ((struct loop_ni *)ni->lnd_ni)->serves = false;
    reactor_post(reactor_control(lnet_node_env(ni->node)), done);
}

/* Waits for the core's answers: a header that waits for a buffer gets one or expires. */
static void stop(struct reactor_task *task)
{
    struct loop_ni *l = container_of(task, struct loop_ni, stop);

    reactor_post(reactor_control(lnet_node_env(l->ni->node)), open_receives ? task : l->stop_done);
}

static void ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    struct loop_ni *l = ni->lnd_ni;

    l->serves = false;
    l->stop.fn = stop;
    l->stop_done = done;
    stop(&l->stop);
}

static void ni_fini(struct lnet_ni *ni)
{
    *(struct loop_ni *)ni->lnd_ni = (struct loop_ni){.ni = NULL};
}

/* ---- messages ---- */

static void transfer_free(struct transfer *t)
{
    if (t->rx.from)
        lnet_peer_ni_put(t->rx.from);
    free(t->payload);
    free(t);
}

static void refuse(struct transfer *t, enum lnet_drop why)
{
    lnet_drop_event(t->to->ni->node, why, t->to->ni, &t->from, &t->rx.hdr);
    transfer_free(t);
}

/* On the home reactor of the sender, in the node that receives. */
static void arrive(struct reactor_task *task)
{
    struct transfer *t = container_of(task, struct transfer, task);

    if (!t->to->ni) {
        transfer_free(t);
        return;
    }
    if (!t->to->serves) {
        refuse(t, (enum lnet_drop)LOOP_DROP_STOPPED);
        return;
    }
    t->rx.ni = t->to->ni;
    t->rx.from = lnet_peer_ni_get(t->to->ni->node, &t->from);
    if (!t->rx.from) {
        refuse(t, LNET_DROP_NO_PEER_MEMORY);
        return;
    }
    t->to->received++;
    open_receives++;
    if (lnet_parse(&t->rx) != LNET_DROP_NONE) {
        open_receives--;
        transfer_free(t); /* a protocol error: there is no connection to close */
    }
}

static void recv_msg(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen)
{
    struct transfer *t = container_of(rx, struct transfer, rx);

    for (uint32_t at = 0; at < mlen; segs++) {
        uint32_t n = segs->len < mlen - at ? segs->len : mlen - at;

        memcpy(segs->addr, t->payload + at, n);
        at += n;
    }
    open_receives--;
    lnet_recv_done(rx, LNET_RESULT_OK);
    transfer_free(t);
}

static struct loop_ni *find(const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < NIS; i++)
        if (nis[i].ni && nid_same(&nis[i].ni->nid, nid))
            return &nis[i];
    return NULL;
}

static void copy_payload(const struct lnet_msg *msg, uint8_t *to)
{
    for (unsigned i = 0; i < msg->payload.n; i++) {
        memcpy(to, msg->payload.seg[i].addr, msg->payload.seg[i].len);
        to += msg->payload.seg[i].len;
    }
}

static void send_msg(struct lnet_msg *msg)
{
    struct loop_ni *from = msg->tx_ni->lnd_ni, *to = find(&msg->tx_peer->nid);
    struct transfer *t = to ? calloc(1, sizeof(*t)) : NULL;
    enum lnet_drop why = (enum lnet_drop)LOOP_DROP_NO_NI;

    if (!t) {
        lnet_send_done(msg, (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR});
        return;
    }
    t->rx.hdr = msg->hdr;
    t->to = to;
    t->from = from->ni->nid;
    t->payload = malloc(msg->payload.bytes + 1);
    copy_payload(msg, t->payload);
    from->sent++;
    t->task.fn = arrive;
    reactor_post(lnet_nid_home(to->ni->node, &t->from), &t->task);
    lnet_send_done(msg, LNET_RESULT_OK);
}

static void peer_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why)
{
}

static void peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    *out = (struct lnd_peer_info){.conns = {1}};
}

static void peer_free(struct lnet_peer_ni *peer)
{
}

/* ---- what it shows ---- */

static void show_counters(const struct lnet_ni *ni, struct lnd_sink *to)
{
    to->number(to, "sent", (int64_t)((const struct loop_ni *)ni->lnd_ni)->sent);
    to->number(to, "received", (int64_t)((const struct loop_ni *)ni->lnd_ni)->received);
}

static const struct lnd_show show = {.counters = show_counters};

static const struct lnd_ops loop_ops = {
    .name = "efa",
    .type = LNET_LND_EFA,
    .show = &show,
    .ni_init = ni_init,
    .ni_start = ni_start,
    .ni_quiesce = ni_quiesce,
    .ni_stop = ni_stop,
    .ni_fini = ni_fini,
    .send = send_msg,
    .recv = recv_msg,
    .peer_abort = peer_abort,
    .peer_info = peer_info,
    .peer_free = peer_free,
};

/* ---- code ---- */

static void *create(const struct lnd_conf *conf)
{
    int *limit = malloc(sizeof(*limit));

    if (limit)
        *limit = conf->option[0];
    return limit;
}

static void memory(const struct lnd_conf *conf, unsigned reactors, const struct lnet_tunables *tun,
                   const struct lnd_tunables *lnd_tun, struct lnd_memory *out)
{
    *out = (struct lnd_memory){.conns = (unsigned)conf->option[0], .pools = sizeof(int)};
}

const struct lnd_code loop_code = {
    .type = &loop_type,
    .ops = &loop_ops,
    .create = create,
    .destroy = free,
    .memory = memory,
};
