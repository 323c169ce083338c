/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs come and go while the node runs. Control thread, one change at a time.
 * docs/protocol/lnet-core.md §12.1 "net deleted".
 *
 * Removing: a snapshot without the NI is published, so that no path selects it. The NI is marked,
 * so that messages on their way to it fail on arrival. Then the node's home publishes
 * the change, each reactor fails the messages that wait for credits, and the LND finishes what
 * peers have begun and closes connections. The object stays, unused, while messages may point to
 * it: until the next NI is added, or the node is destroyed.
 *
 * Adding: each reactor forgets what it counted for that index before, the LND begins to listen, a
 * snapshot with the NI is published, the node's home tells others. If the LND cannot, it stops what
 * it began, as if the NI were removed.
 */
#include "lib/base/err.h"
#include "lib/lnet/node/node_internal.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/tx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A peer that does not end what it began does not keep an NI longer than that. */
#define QUIET_US 2000000ull

struct change_mail {
    struct reactor_task task;
    struct lnet_change *change;
    struct lnet_shard *shard;
    uint32_t bucket; /* of peers: those before have been looked at */
};

struct lnet_change {
    struct lnet_node *node;
    struct lnet_ni *ni; /* that is added or removed */
    lnet_done_fn done;
    void *arg;
    int rc;
    struct err err;
    bool abandoned;                       /* its caller has been answered */
    unsigned pending;                     /* reactors that have not answered yet */
    void (*next)(struct lnet_change *ch); /* when all have */
    struct change_mail mail[REACTOR_MAX];
    struct lnet_nis_stop del;
};

static void nis_stopped(struct lnet_nis_stop *del);

/* Makes a change of what errors call `name`. 0 and *out, in which nothing is yet, or -errno with a
 * sentence. */
static int change_new(struct lnet_node *node, const char *name, lnet_done_fn done, void *arg,
                      struct lnet_change **out, struct err *err)
{
    struct lnet_change *ch;

    if (!node->started || relaxed_load(&node->stopping) || node->change)
        return err_set(err, -EBUSY, "%s cannot be changed while %s", name,
                       node->change ? "another NI or net is being added or removed"
                                    : "the node starts or stops");
    ch = calloc(1, sizeof(*ch));
    if (!ch)
        return err_set(err, -ENOMEM, "no memory");
    ch->node = node;
    ch->done = done;
    ch->arg = arg;
    lnet_nis_stop_init(&ch->del, node, nis_stopped);
    for (unsigned i = 0; i < node->nshards; i++) {
        ch->mail[i].change = ch;
        ch->mail[i].shard = node->shard[i];
    }
    *out = ch;
    return 0;
}

static void change_answer(struct lnet_change *ch)
{
    ch->done(ch->arg, ch->rc, &ch->err);
}

static void change_end(struct lnet_change *ch)
{
    struct lnet_node *node = ch->node;

    if (ch->abandoned)
        return;
    node->change = NULL;
    change_answer(ch);
    free(ch);
    lnet_stop_change_ended(node);
}

bool lnet_change_is_busy(const struct lnet_node *node)
{
    return node->change && !node->change->abandoned;
}

/* Tasks of LNDs may still arrive for the change, so it stays until the node is freed. No timer runs
 * any more, so NIs that quiesce are stopped at once. */
void lnet_change_abandon(struct lnet_node *node)
{
    struct lnet_change *ch = node->change;

    if (!ch || ch->abandoned)
        return;
    ch->abandoned = true;
    ch->rc = -ESHUTDOWN;
    err_text(&ch->err, "the node has been stopped");
    if (ch->del.state == LNET_NIS_QUIESCING)
        lnet_nis_stop(&ch->del);
    change_answer(ch);
    lnet_stop_change_ended(node);
}

/* Runs fn on each reactor, and next() when all of them have answered. */
static void on_each_reactor(struct lnet_change *ch, reactor_task_fn fn,
                            void (*next)(struct lnet_change *ch))
{
    ch->pending = ch->node->nshards;
    ch->next = next;
    for (unsigned i = 0; i < ch->node->nshards; i++) {
        ch->mail[i].task.fn = fn;
        reactor_post(ch->node->shard[i]->reactor, &ch->mail[i].task);
    }
}

static void answered(struct reactor_task *task)
{
    struct lnet_change *ch = container_of(task, struct change_mail, task)->change;

    if (--ch->pending == 0)
        ch->next(ch);
}

static void answer(struct change_mail *m)
{
    m->task.fn = answered;
    reactor_post(reactor_control(m->change->node->env), &m->task);
}

/* ---- NIs that are gone ---- */

static bool is_unused(const struct lnet_node *node, const struct lnet_ni *ni)
{
    if (ni->state != LNET_NI_STOPPED ||
        ni->links_told != __atomic_load_n(&ni->links_heard, __ATOMIC_ACQUIRE))
        return false;
    for (unsigned i = 0; i < node->nshards; i++)
        if (__atomic_load_n(&node->shard[i]->ni_refs[ni->index], __ATOMIC_ACQUIRE) > 0)
            return false;
    return true;
}

/* No new reference can come, so what is unused stays so; but who gave the last one back may still
 * be in the loop that did. */
static void collect(struct lnet_node *node)
{
    struct lnet_ni *gone[LNET_MAX_NI];
    unsigned n = 0;

    for (unsigned i = 0; i < node->nnis; i++)
        if (node->ni[i] && is_unused(node, node->ni[i])) {
            gone[n++] = node->ni[i];
            __atomic_store_n(&node->ni[i], NULL, __ATOMIC_RELEASE);
        }
    if (n > 0)
        reactor_synchronize(node->env);
    for (unsigned i = 0; i < n; i++)
        lnet_ni_free(gone[i]);
}

/* ---- removing ---- */

static void nis_stopped(struct lnet_nis_stop *del)
{
    change_end(container_of(del, struct lnet_change, del));
}

static void flushed(struct lnet_change *ch)
{
    if (ch->abandoned)
        lnet_nis_stop(&ch->del);
    else
        lnet_nis_quiesce(&ch->del, QUIET_US);
}

static void flush_shard(struct reactor_task *task)
{
    struct change_mail *m = container_of(task, struct change_mail, task);

    if (m->bucket == 0 && lnet_is_home(m->change->node))
        lnet_ping_changed(m->change->node);
    if (lnet_tx_fail_removed(m->shard, &m->bucket))
        answer(m);
    else
        reactor_post(m->shard->reactor, &m->task);
}

/* Returns an NI of this node, or NULL with a sentence. */
static struct lnet_ni *own_ni(struct lnet_node *node, const struct lnet_nid *nid,
                              char name[LNET_NIDSTR_SIZE], struct err *err)
{
    struct lnet_ni *ni = lnet_ni_find(node, nid);

    nid_format(nid, name);
    if (!ni)
        err_text(err, "nid: %s is not a NID of this node", name);
    return ni;
}

int lnet_ni_del(struct lnet_node *node, const struct lnet_nid *nid, lnet_done_fn done, void *arg,
                struct err *err)
{
    char name[LNET_NIDSTR_SIZE];
    struct lnet_ni *ni = own_ni(node, nid, name, err);
    struct lnet_change *ch;
    struct lnet_conf *conf;
    int rc;

    if (!ni)
        return -ENOENT;
    rc = change_new(node, name, done, arg, &ch, err);
    if (rc)
        return rc;
    conf = lnet_conf_with(node, ni, false);
    if (!conf) {
        free(ch);
        return err_set(err, -ENOMEM, "no memory");
    }
    ch->ni = ni;
    lnet_nis_stop_add(&ch->del, ni);
    node->change = ch;
    relaxed_store(&ni->state, LNET_NI_REMOVED);
    lnet_conf_publish(node, conf);
    on_each_reactor(ch, flush_shard, flushed);
    return 0;
}

int lnet_ni_set(struct lnet_node *node, const struct lnet_nid *nid, const struct lnd_tunables *tun,
                struct err *err)
{
    char name[LNET_NIDSTR_SIZE];
    struct lnet_ni *ni = own_ni(node, nid, name, err);

    if (!ni)
        return -ENOENT;
    if (!ni->lnd->ni_set)
        return err_set(err, -EOPNOTSUPP, "nid: %s: nothing of this NI can change while it runs",
                       name);
    return ni->lnd->ni_set(ni, tun, err);
}

/* ---- adding ---- */

/* The messages of the LND from the start of the NI came before this one, so a connection made
 * after the change is accepted here. */
static void serve_shard(struct reactor_task *task)
{
    struct change_mail *m = container_of(task, struct change_mail, task);

    if (m->shard->reactor == lnet_node_home(m->change->node))
        lnet_ni_listed(m->change->ni);
    answer(m);
}

static void add_failed(struct lnet_change *ch, int rc)
{
    ch->rc = rc;
    lnet_nis_stop_add(&ch->del, ch->ni);
    lnet_nis_stop(&ch->del);
}

static void begin_to_serve(struct lnet_change *ch)
{
    struct lnet_node *node = ch->node;
    struct lnet_conf *conf = NULL;
    int rc;

    if (relaxed_load(&node->stopping))
        rc = err_set(&ch->err, -ESHUTDOWN, "the node stops");
    else if ((conf = lnet_conf_with(node, ch->ni, true)))
        rc = ch->ni->lnd->ni_start(ch->ni, &ch->err);
    else
        rc = err_set(&ch->err, -ENOMEM, "no memory");
    if (rc) {
        lnet_conf_free(conf);
        add_failed(ch, rc);
        return;
    }
    ch->ni->alive_us = reactor_now_us(); /* as of now */
    relaxed_store(&ch->ni->state, LNET_NI_ACTIVE);
    lnet_conf_publish(node, conf);
    on_each_reactor(ch, serve_shard, change_end);
}

static void clear_shard(struct reactor_task *task)
{
    struct change_mail *m = container_of(task, struct change_mail, task);

    lnet_shard_clear_ni(m->shard, m->change->ni->index);
    lnet_ni_credits_init(m->shard, m->change->ni);
    answer(m);
}

int lnet_ni_add_live(struct lnet_node *node, const struct lnet_ni_conf *conf, lnet_done_fn done,
                     void *arg, struct err *err)
{
    char name[LNET_NETSTR_SIZE];
    struct lnet_change *ch;
    int rc;

    net_format(conf->net, name);
    rc = change_new(node, name, done, arg, &ch, err);
    if (rc)
        return rc;
    collect(node);
    rc = lnet_ni_make(node, conf, &ch->ni, err);
    if (rc) {
        free(ch);
        return rc;
    }
    ch->ni->state = LNET_NI_STARTING;
    lnet_shard_clear_ni(node->shard[node->nshards], ch->ni->index);
    memset(&node->ni_base[ch->ni->index], 0, sizeof(node->ni_base[0]));
    lnet_ni_place(ch->ni);
    node->change = ch;
    on_each_reactor(ch, clear_shard, begin_to_serve);
    return 0;
}
