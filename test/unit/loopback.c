/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/unit/loopback.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"

#define NIS 256 /* of the process */

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

/* An NI, or a free place. Control thread, but for the counters: home of the peer. */
static struct loop_ni {
    struct lnet_ni *ni; /* NULL: free */
    bool serves;        /* started and not quiesced */
    uint64_t sent, received;
    unsigned open; /* messages that came or are to come, not received yet; and 1 until it stops */
    struct reactor_task *stopped;
} nis[NIS];
struct loop_hooks loop_hooks;

static void set_default(int *value, int unset)
{
    *value = *value == -1 ? unset : *value;
}

static int ni_init(struct lnet_ni *ni, struct err *err)
{
    struct loop_ni *place = nis;

    while (place < nis + NIS && place->ni)
        place++;
    if (place == nis + NIS)
        return err_set(err, -ENOSPC, "at most %d loopback NIs", NIS);
    set_default(&ni->tun.peer_timeout, 180);
    set_default(&ni->tun.peer_credits, 8);
    set_default(&ni->tun.peer_buffer_credits, 0);
    set_default(&ni->tun.credits, 256);
    set_default(&ni->lnd_tun.conns_per_peer, 1);
    set_default(&ni->lnd_tun.timeout, 50);
    set_default(&ni->lnd_tun.own[lnd_slot(&loop_type, LOOP_TUN_BATCH)], 32);
    *place = (struct loop_ni){.ni = ni, .open = 1};
    ni->lnd_ni = place;
    return 0;
}

static int ni_start(struct lnet_ni *ni, struct err *err)
{
    ((struct loop_ni *)ni->lnd_ni)->serves = true;
    return 0;
}

/* Messages arrive whole, so there is none that has begun. */
static void ni_quiesce(struct lnet_ni *ni, struct reactor_task *done)
{
    ((struct loop_ni *)ni->lnd_ni)->serves = false;
    reactor_post(reactor_control(lnet_node_env(ni->node)), done);
}

static void close_one(struct loop_ni *l)
{
    if (--l->open == 0)
        reactor_post(reactor_control(lnet_node_env(l->ni->node)), l->stopped);
}

/* Waits for the core: a header that waits for a buffer gets one or expires. */
static void ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    struct loop_ni *l = ni->lnd_ni;

    l->serves = false;
    l->stopped = done;
    close_one(l);
}

static void ni_fini(struct lnet_ni *ni)
{
    *(struct loop_ni *)ni->lnd_ni = (struct loop_ni){.ni = NULL};
}

/* ---- receiving ---- */

/* The core has no more to do with it. */
static void leave(struct loop_rx *m)
{
    struct loop_ni *l = m->rx.ni->lnd_ni;

    if (m->rx.from)
        lnet_peer_ni_put(m->rx.from);
    if (m->between_nis) {
        free(m->payload);
        free(m);
    }
    close_one(l);
}

enum lnet_drop loop_arrive(struct loop_rx *m)
{
    struct loop_ni *l = m->rx.ni->lnd_ni;
    enum lnet_drop why = LNET_DROP_NO_PEER_MEMORY;

    assert(l->open > 0);
    l->open++;
    l->received++;
    m->rx.from = lnet_peer_ni_get(l->ni->node, &m->from);
    if (!m->rx.from)
        lnet_drop_event(l->ni->node, why, l->ni, &m->from, &m->rx.hdr);
    else
        why = lnet_parse(&m->rx);
    if (why) /* a protocol error: there is no connection to close */
        leave(m);
    return why;
}

void loop_finish(struct loop_rx *m, struct lnet_result result)
{
    uint32_t at = 0, n;

    for (unsigned i = 0; m->payload && m->segs && i < m->nsegs; at += n, i++) {
        n = min(m->segs[i].len, m->mlen - at);
        if (m->rx.rdma_get)
            memcpy(m->payload + at, m->segs[i].addr, n);
        else
            memcpy(m->segs[i].addr, m->payload + at, n);
    }
    assert(!m->payload || !m->segs || at == m->mlen);
    m->segs = NULL;
    lnet_recv_done(&m->rx, result);
    leave(m);
}

bool loop_cancel(struct loop_rx *m)
{
    bool forgotten = lnet_rx_cancel(&m->rx);

    if (forgotten)
        leave(m);
    return forgotten;
}

static void recv_msg(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen)
{
    struct loop_rx *m = container_of(rx, struct loop_rx, rx);

    m->segs = segs;
    m->nsegs = nsegs;
    m->mlen = mlen;
    if (m->between_nis || !loop_hooks.recv || !loop_hooks.recv(m))
        loop_finish(m, LNET_RESULT_OK);
}

/* ---- sending ---- */

/* On the home reactor of the sender, in the node that receives. */
static void arrive(struct reactor_task *task)
{
    struct loop_rx *m = container_of(task, struct loop_rx, task);
    struct loop_ni *l = m->rx.ni->lnd_ni;
    enum lnet_drop why = (enum lnet_drop)LOOP_DROP_STOPPED;

    if (l->serves) {
        (void)loop_arrive(m);
        close_one(l);
        return;
    }
    lnet_drop_event(l->ni->node, why, l->ni, &m->from, &m->rx.hdr);
    leave(m);
}

static struct loop_ni *find(const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < NIS; i++)
        if (nis[i].serves && nid_same(&nis[i].ni->nid, nid))
            return &nis[i];
    return NULL;
}

uint8_t *loop_copy(const struct lnet_msg *msg)
{
    uint8_t *copy = malloc(msg->payload.bytes + 1), *to = copy;

    for (unsigned i = 0; i < msg->payload.n; to += msg->payload.seg[i++].len)
        memcpy(to, msg->payload.seg[i].addr, msg->payload.seg[i].len);
    return copy;
}

static void send_msg(struct lnet_msg *msg)
{
    static const struct lnet_result no_ni = {(enum lnet_drop)LOOP_DROP_NO_NI,
                                             LNET_HEALTH_REMOTE_ERROR};
    struct loop_ni *from = msg->tx_ni->lnd_ni, *to = find(&msg->tx_peer->nid);
    struct loop_rx *m;

    if (loop_hooks.send && loop_hooks.send(msg))
        return;
    m = to ? calloc(1, sizeof(*m)) : NULL;
    if (!m) {
        lnet_send_done(msg, no_ni);
        return;
    }
    m->rx.hdr = msg->hdr;
    m->rx.ni = to->ni;
    m->from = from->ni->nid;
    m->payload = loop_copy(msg);
    m->between_nis = true;
    m->task.fn = arrive;
    to->open++;
    from->sent++;
    reactor_post(lnet_nid_home(to->ni->node, &m->from), &m->task);
    lnet_send_done(msg, LNET_RESULT_OK);
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
