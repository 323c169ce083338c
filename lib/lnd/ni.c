/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/ni.h"

#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd/peer_ni.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* ---- on each reactor ---- */

static void post_to_control(struct lnd_ni_shard *ns, struct reactor_task *task)
{
    reactor_post(reactor_control(lnet_node_env(ns->shard->driver->node)), task);
}

void lnd_ns_progress(struct lnd_ni_shard *ns)
{
    const struct lnd_proto *proto = lnd_proto_of(ns->lni);

    if (ns->state == LND_NI_QUIESCING && proto->ns_quiet(ns)) {
        ns->state = LND_NI_QUIET;
        post_to_control(ns, &ns->quiet);
    }
    if (ns->state == LND_NI_STOPPING && TAILQ_EMPTY(&ns->peers) && proto->ns_closed(ns)) {
        ns->state = LND_NI_STOPPED;
        reactor_post(ns->shard->reactor, &ns->stopped);
    }
}

static void on_start(struct reactor_task *task)
{
    struct lnd_ni_shard *ns = container_of(task, struct lnd_ni_shard, start);

    ns->state = LND_NI_SERVING;
    if (ns->shard->users++ == 0)
        reactor_poller_add(ns->shard->reactor, &ns->shard->poller);
    lnd_proto_of(ns->lni)->ns_start(ns);
}

static void on_quiesce(struct reactor_task *task)
{
    struct lnd_ni_shard *ns = container_of(task, struct lnd_ni_shard, quiesce);

    lnd_proto_of(ns->lni)->ns_shut(ns);
    ns->state = LND_NI_QUIESCING;
    lnd_proto_of(ns->lni)->ns_quiesce(ns);
    lnd_ns_progress(ns);
}

static struct lnd_peer_ni *next_to_shut(struct lnd_ni_shard *ns)
{
    struct lnd_peer_ni *lp;

    TAILQ_FOREACH(lp, &ns->peers, link) {
        if (!lp->shut)
            return lp;
    }
    return NULL;
}

static void on_stop(struct reactor_task *task)
{
    struct lnd_ni_shard *ns = container_of(task, struct lnd_ni_shard, stop);
    enum lnd_ni_state was = ns->state;
    struct lnd_peer_ni *lp;

    if (!lnd_ns_is_shut(ns))
        lnd_proto_of(ns->lni)->ns_shut(ns);
    ns->state = LND_NI_STOPPING;
    if (was == LND_NI_QUIESCING) /* messages begun end here */
        post_to_control(ns, &ns->quiet);
    lnd_proto_of(ns->lni)->ns_stop(ns);
    /* Closing one reports its messages to the core, which may free others too. */
    while ((lp = next_to_shut(ns))) {
        lp->shut = true;
        lnd_peer_abort(lp, LNET_DROP_SHUTDOWN);
    }
    lnd_ns_progress(ns);
}

/* ---- answers ---- */

static void on_quiet(struct reactor_task *task)
{
    struct lnd_ni *lni = container_of(task, struct lnd_ni_shard, quiet)->lni;

    if (--lni->quiet_wait == 0)
        reactor_post(reactor_self(), lni->quiesce_done);
}

static void try_stopped(struct lnd_ni *lni)
{
    if (lni->stop_wait > 0 || lni->pins > 0)
        return;
    lni->state = LND_NI_STOPPED;
    if (lnd_proto_of(lni)->ni_stopped)
        lnd_proto_of(lni)->ni_stopped(lni);
    reactor_post(reactor_self(), lni->stop_done);
}

static void on_stopped(struct reactor_task *task)
{
    struct lnd_ni *lni = container_of(task, struct lnd_ni_shard, stopped)->lni;

    lni->stop_wait--;
    try_stopped(lni);
}

/* Runs as a task of its own: the function that ended the last connection may still use the shard.
 */
static void on_stopped_here(struct reactor_task *task)
{
    struct lnd_ni_shard *ns = container_of(task, struct lnd_ni_shard, stopped);

    if (--ns->shard->users == 0)
        reactor_poller_del(ns->shard->reactor, &ns->shard->poller);
    task->fn = on_stopped;
    post_to_control(ns, task);
}

void lnd_ni_pin(struct lnd_ni *lni)
{
    lni->pins++;
}

void lnd_ni_unpin(struct lnd_ni *lni)
{
    lni->pins--;
    if (lni->state == LND_NI_STOPPING)
        try_stopped(lni);
}

/* ---- listeners ---- */

void lnd_listener_get(struct lnd_ni *lni, struct lnd_listener *listener)
{
    listener->refs++;
    lni->listener = listener;
}

bool lnd_listener_put(struct lnd_ni *lni)
{
    struct lnd_listener *l = lni->listener;

    lni->listener = NULL;
    return l && --l->refs == 0;
}

const char *lnd_listen_hint(int rc)
{
    return rc == -EADDRINUSE ? " (is LNet loaded, or another millraced running here?)"
           : rc == -EACCES   ? " (needs CAP_NET_BIND_SERVICE)"
                             : "";
}

static int serve(struct lnd_ni *lni, struct err *err)
{
    int rc = 0;

    if (lni->listener->users == 0)
        rc = lnd_proto_of(lni)->listen(lni, err);
    if (rc == 0) {
        lni->listener->users++;
        lni->serving = true;
    }
    return rc;
}

/* Before the tasks that make reactors take no more connections. Returns whether the listener is to
 * be ended after them. */
static bool unserve(struct lnd_ni *lni)
{
    if (!lni->serving)
        return false;
    lni->serving = false;
    lni->last = --lni->listener->users == 0;
    return lni->last;
}

/* ---- struct lnd_ops; on the control thread ---- */

static void shards_init(struct lnd_ni *lni)
{
    for (unsigned i = 0; i < lni->driver->nshards; i++) {
        struct lnd_ni_shard *ns = lnd_ns_at(lni, i);

        *ns = (struct lnd_ni_shard){
            .shard = lnd_shard_at(lni->driver, i),
            .lni = lni,
            .start.fn = on_start,
            .quiesce.fn = on_quiesce,
            .stop.fn = on_stop,
            .quiet.fn = on_quiet,
            .stopped.fn = on_stopped_here,
        };
        TAILQ_INIT(&ns->peers);
    }
}

/* Returns the wall clock time, never the same twice in one node. */
static uint64_t incarnation_new(struct lnd_driver *driver)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_REALTIME, &ts);
    now = ((uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec) / driver->proto->stamp_ns;
    driver->last_incarnation = max(now, driver->last_incarnation + 1);
    return driver->last_incarnation;
}

int lnd_ni_init(struct lnet_ni *ni, struct err *err)
{
    struct lnd_driver *driver = ni->lnd_ctx;
    const struct lnd_proto *proto = driver->proto;
    struct lnd_ni *lni;
    int rc = lnd_shards_init(driver, ni->node, err);

    if (rc < 0)
        return rc;
    lni = calloc(1, proto->ni_size + driver->nshards * proto->ni_shard_size);
    if (!lni || driver->nnis == LNET_MAX_NI) {
        free(lni);
        return err_set(err, -ENOMEM, "no room for another NI");
    }
    lni->ni = ni;
    lni->driver = driver;
    lni->incarnation = incarnation_new(driver);
    shards_init(lni);
    rc = proto->ni_resolve(lni, err);
    if (rc == 0)
        rc = lnd_check_tunables(proto, &ni->tun, err);
    if (rc == 0)
        rc = lnd_check_lnd_tunables(lni, &ni->lnd_tun, err);
    if (rc == 0)
        rc = proto->ni_init(lni, err);
    if (rc < 0) {
        proto->ni_fini(lni);
        free(lni);
        return rc;
    }
    ni->lnd_ni = lni;
    driver->nis[driver->nnis++] = lni;
    return 0;
}

void lnd_ni_fini(struct lnet_ni *ni)
{
    struct lnd_ni *lni = ni->lnd_ni;
    struct lnd_driver *driver = lni->driver;
    unsigned i = 0;

    while (driver->nis[i] != lni)
        i++;
    driver->nis[i] = driver->nis[--driver->nnis];
    ni->lnd_ni = NULL;
    lnd_proto_of(lni)->ni_fini(lni);
    free(lni);
}

/* Posts the task at `offset` of each part. */
static void tell_shards(struct lnd_ni *lni, size_t offset)
{
    for (unsigned i = 0; i < lni->driver->nshards; i++) {
        struct lnd_ni_shard *ns = lnd_ns_at(lni, i);

        reactor_post(ns->shard->reactor, (void *)((char *)ns + offset));
    }
}

int lnd_ni_start(struct lnet_ni *ni, struct err *err)
{
    struct lnd_ni *lni = ni->lnd_ni;

    /* Before the first connection can come: tasks run in the order in which they are posted. */
    lni->state = LND_NI_SERVING;
    tell_shards(lni, offsetof(struct lnd_ni_shard, start));
    return serve(lni, err);
}

int lnd_ni_set(struct lnet_ni *ni, const struct lnd_tunables *set, struct err *err)
{
    struct lnd_ni *lni = ni->lnd_ni;
    struct lnd_tunables tun = lnd_tunables_with(ni->lnd_tun, set);
    int rc = lnd_check_lnd_tunables(lni, &tun, err);

    if (rc == 0)
        lnd_tunables_store(&ni->lnd_tun, &tun);
    return rc;
}

static bool is_running(const struct lnd_ni *lni)
{
    return lni->state != LND_NI_NEW && lni->state != LND_NI_STOPPED;
}

void lnd_ni_quiesce(struct lnet_ni *ni, struct reactor_task *done)
{
    struct lnd_ni *lni = ni->lnd_ni;
    bool unlisten;

    if (!is_running(lni)) {
        reactor_post(reactor_self(), done);
        return;
    }
    unlisten = unserve(lni);
    lni->state = LND_NI_QUIESCING;
    lni->quiesce_done = done;
    lni->quiet_wait = lni->driver->nshards;
    tell_shards(lni, offsetof(struct lnd_ni_shard, quiesce));
    if (unlisten && lnd_proto_of(lni)->unlisten)
        lnd_proto_of(lni)->unlisten(lni);
}

void lnd_ni_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    struct lnd_ni *lni = ni->lnd_ni;
    bool unlisten;

    lni->stop_done = done;
    if (!is_running(lni)) {
        try_stopped(lni);
        return;
    }
    unlisten = unserve(lni);
    lni->state = LND_NI_STOPPING;
    lni->stop_wait = lni->driver->nshards;
    tell_shards(lni, offsetof(struct lnd_ni_shard, stop));
    if (unlisten && lnd_proto_of(lni)->unlisten)
        lnd_proto_of(lni)->unlisten(lni);
}
