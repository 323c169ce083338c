/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs come and go while the node runs. Control thread, one change at a time.
 * docs/protocol/lnet-core.md §12.1 "net deleted".
 *
 * Removing: a snapshot without the NIs is published, so that no path selects them. The NIs are
 * marked, so that messages on their way to them fail on arrival. Then the node's home publishes
 * the change, each reactor fails the messages that wait for credits, and the LND finishes what
 * peers have begun and closes connections. The objects stay, unused, while messages may point to
 * them: until the next NI is added, or the node is destroyed.
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
    lnet_done_fn done;
    void (*net_done)(void *arg); /* of lnet_net_del(), instead */
    void *arg;
    int rc;
    struct err err;
    bool abandoned; /* its caller has been answered */
    unsigned pending;
    struct lnet_ni *add;
    struct change_mail mail[REACTOR_MAX];
    struct lnet_nis_stop del;
};

static void nis_stopped(struct lnet_nis_stop *del);

static struct lnet_change *change_new(struct lnet_node *node, void *arg, struct err *err)
{
    struct lnet_change *ch = calloc(1, sizeof(*ch));

    if (!ch) {
        err_text(err, "no memory");
        return NULL;
    }
    ch->node = node;
    ch->arg = arg;
    lnet_nis_stop_init(&ch->del, node, nis_stopped);
    for (unsigned i = 0; i < node->nshards; i++) {
        ch->mail[i].change = ch;
        ch->mail[i].shard = node->shard[i];
    }
    return ch;
}

static void change_answer(struct lnet_change *ch)
{
    if (ch->net_done)
        ch->net_done(ch->arg);
    else
        ch->done(ch->arg, ch->rc, ch->rc ? ch->err.message : "");
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

/* Runs fn on each reactor; ch->pending counts the reactors that have not answered yet. */
static void on_each_reactor(struct lnet_change *ch, reactor_task_fn fn)
{
    ch->pending = ch->node->nshards;
    for (unsigned i = 0; i < ch->node->nshards; i++) {
        ch->mail[i].task.fn = fn;
        reactor_post(ch->node->shard[i]->reactor, &ch->mail[i].task);
    }
}

static void answer(struct change_mail *m, reactor_task_fn fn)
{
    m->task.fn = fn;
    reactor_post(reactor_control(m->change->node->env), &m->task);
}

static int may_change(const struct lnet_node *node, const char *what, struct err *err)
{
    if (node->started && !relaxed_load(&node->stopping) && !node->change)
        return 0;
    return err_set(err, -EBUSY, "%s cannot be changed while %s", what,
                   node->change ? "another NI or net is being added or removed"
                                : "the node starts or stops");
}

/* A change of what errors name. 0 and *out, in which nothing is yet, or -errno with a sentence. */
static int change_begin(struct lnet_node *node, const char *name, void *arg,
                        struct lnet_change **out, struct err *err)
{
    int rc = may_change(node, name, err);

    if (rc)
        return rc;
    *out = change_new(node, arg, err);
    return *out ? 0 : -ENOMEM;
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

static void quiesce_nis(struct lnet_change *ch)
{
    if (ch->abandoned)
        lnet_nis_stop(&ch->del);
    else
        lnet_nis_quiesce(&ch->del, QUIET_US);
}

static void shard_flushed(struct reactor_task *task)
{
    struct lnet_change *ch = container_of(task, struct change_mail, task)->change;

    if (--ch->pending == 0)
        quiesce_nis(ch);
}

static void flush_shard(struct reactor_task *task)
{
    struct change_mail *m = container_of(task, struct change_mail, task);

    if (m->bucket == 0 && lnet_is_home(m->change->node))
        lnet_ping_changed(m->change->node);
    if (lnet_tx_fail_removed(m->shard, &m->bucket))
        answer(m, shard_flushed);
    else
        reactor_post(m->shard->reactor, &m->task);
}

/* All NIs of the snapshot but those in ch->del. */
static struct lnet_conf *conf_without(const struct lnet_change *ch)
{
    const struct lnet_conf *old = ch->node->conf;
    struct lnet_ni *left[LNET_MAX_NI];
    unsigned k, n = 0;

    for (unsigned i = 0; i < old->nnis; i++) {
        for (k = 0; k < ch->del.n && ch->del.ni[k].ni != old->ni[i]; k++)
            ;
        if (k == ch->del.n)
            left[n++] = old->ni[i];
    }
    return lnet_conf_build(ch->node, old->route, old->nroutes, left, n);
}

static int remove_nis(struct lnet_change *ch, struct err *err)
{
    struct lnet_conf *conf = conf_without(ch);

    if (!conf) {
        err_text(err, "no memory");
        free(ch);
        return -ENOMEM;
    }
    ch->node->change = ch;
    for (unsigned i = 0; i < ch->del.n; i++)
        relaxed_store(&ch->del.ni[i].ni->state, LNET_NI_REMOVED);
    lnet_conf_publish(ch->node, conf);
    on_each_reactor(ch, flush_shard);
    return 0;
}

/* An NI of this node, or NULL with a sentence. */
static struct lnet_ni *own_ni(struct lnet_node *node, const struct lnet_nid *nid,
                              char name[LNET_NIDSTR_SIZE], struct err *err)
{
    struct lnet_ni *ni = lnet_ni_find(node, nid);

    nid_format(nid, name);
    if (!ni)
        err_text(err, "nid: %s is not a NID of this node", name);
    return ni;
}

int lnet_net_del(struct lnet_node *node, lnet_net_t net, void (*done)(void *arg), void *arg,
                 struct err *err)
{
    const struct lnet_conf_net *n = lnet_net_find(node, net);
    char name[LNET_NETSTR_SIZE];
    struct lnet_change *ch;
    int rc;

    net_format(net, name);
    if (!n) {
        return err_set(err, -ENOENT, "net: there is no local net %s", name);
    }
    rc = change_begin(node, name, arg, &ch, err);
    if (rc)
        return rc;
    ch->net_done = done;
    for (unsigned i = 0; i < n->nni; i++)
        lnet_nis_stop_add(&ch->del, n->ni[i]);
    return remove_nis(ch, err);
}

int lnet_ni_del(struct lnet_node *node, const struct lnet_nid *nid, lnet_done_fn done, void *arg,
                struct err *err)
{
    char name[LNET_NIDSTR_SIZE];
    struct lnet_ni *ni = own_ni(node, nid, name, err);
    struct lnet_change *ch;
    int rc;

    if (!ni)
        return -ENOENT;
    rc = change_begin(node, name, arg, &ch, err);
    if (rc)
        return rc;
    ch->done = done;
    lnet_nis_stop_add(&ch->del, ni);
    return remove_nis(ch, err);
}

int lnet_ni_set(struct lnet_node *node, const struct lnet_nid *nid, const struct lnd_tunables *tun,
                struct err *err)
{
    char name[LNET_NIDSTR_SIZE];
    struct lnet_ni *ni = own_ni(node, nid, name, err);

    if (!ni)
        return -ENOENT;
    if (!ni->lnd->ni_set) {
        return err_set(err, -EOPNOTSUPP, "nid: %s: nothing of this NI can change while it runs",
                       name);
    }
    return ni->lnd->ni_set(ni, tun, err);
}

/* ---- adding ---- */

static void shard_serves(struct reactor_task *task)
{
    struct lnet_change *ch = container_of(task, struct change_mail, task)->change;

    if (--ch->pending == 0)
        change_end(ch);
}

/* The messages of the LND from the start of the NI came before this one, so a connection made
 * after the change is accepted here. */
static void serve_shard(struct reactor_task *task)
{
    struct change_mail *m = container_of(task, struct change_mail, task);

    if (m->shard->reactor == lnet_node_home(m->change->node))
        lnet_ni_listed(m->change->add);
    answer(m, shard_serves);
}

static struct lnet_conf *conf_with(const struct lnet_change *ch)
{
    const struct lnet_conf *old = ch->node->conf;
    struct lnet_ni *all[LNET_MAX_NI];

    if (old->nnis > 0)
        memcpy(all, old->ni, old->nnis * sizeof(struct lnet_ni *));
    all[old->nnis] = ch->add;
    return lnet_conf_build(ch->node, old->route, old->nroutes, all, old->nnis + 1);
}

static void add_failed(struct lnet_change *ch, int rc)
{
    ch->rc = rc;
    lnet_nis_stop_add(&ch->del, ch->add);
    lnet_nis_stop(&ch->del);
}

static void begin_to_serve(struct lnet_change *ch)
{
    struct lnet_node *node = ch->node;
    struct lnet_conf *conf = NULL;
    int rc = -ESHUTDOWN;

    err_text(&ch->err, "the node stops");
    if (!relaxed_load(&node->stopping)) {
        conf = conf_with(ch);
        err_text(&ch->err, "no memory");
        rc = conf ? ch->add->lnd->ni_start(ch->add, &ch->err) : -ENOMEM;
    }
    if (rc) {
        lnet_conf_free(conf);
        add_failed(ch, rc);
        return;
    }
    ch->add->alive_us = reactor_now_us(); /* as of now */
    relaxed_store(&ch->add->state, LNET_NI_ACTIVE);
    lnet_conf_publish(node, conf);
    on_each_reactor(ch, serve_shard);
}

static void shard_cleared(struct reactor_task *task)
{
    struct lnet_change *ch = container_of(task, struct change_mail, task)->change;

    if (--ch->pending == 0)
        begin_to_serve(ch);
}

static void clear_shard(struct reactor_task *task)
{
    struct change_mail *m = container_of(task, struct change_mail, task);

    lnet_shard_clear_ni(m->shard, m->change->add->index);
    lnet_ni_credits_init(m->shard, m->change->add);
    answer(m, shard_cleared);
}

int lnet_ni_add_live(struct lnet_node *node, const struct lnet_ni_conf *conf, lnet_done_fn done,
                     void *arg, struct err *err)
{
    char name[LNET_NETSTR_SIZE];
    struct lnet_change *ch;
    int rc;

    net_format(conf->net, name);
    rc = change_begin(node, name, arg, &ch, err);
    if (rc)
        return rc;
    collect(node);
    rc = lnet_ni_make(node, conf, &ch->add, err);
    if (rc) {
        free(ch);
        return rc;
    }
    ch->done = done;
    ch->add->state = LNET_NI_STARTING;
    lnet_shard_clear_ni(node->shard[node->nshards], ch->add->index);
    memset(&node->ni_base[ch->add->index], 0, sizeof(node->ni_base[0]));
    lnet_ni_place(ch->add);
    node->change = ch;
    on_each_reactor(ch, clear_shard);
    return 0;
}
