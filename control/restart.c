/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/restart.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "control/controller_internal.h"
#include "control/state_file.h"
#include "control/state_writer.h"
#include "lib/base/container.h"
#include "lib/base/minmax.h"
#include "lib/log/log.h"

#define STATE_NAME "peers.json"

#define MOMENT_S  60 /* addresses of a file that is older are checked before they are used */
#define RECENT_US 300000000ull /* a peer without connections is kept for this time */

/* The pace after a restart. The peers and connections of the file are spread over SPREAD_STEPS
 * steps, within these bounds. */
#define SPREAD_STEPS 100
#define STEP_US      10000
#define PEERS_LEAST  16 /* peers that are called in a step */
#define PEERS_MOST   128
#define VISITS_MOST  256  /* called peers that are looked at in a step */
#define PAIRS_MOST   64   /* connections that are ended in a step of */
#define PAIR_STEP_US 1000 /* this time */

#define SETTLE_US  50000   /* peers handle the RSTs before they are called */
#define CALLS_MOST 4096    /* peers that are being connected to, */
#define CALLS_PART 4       /* or this part of the connections that there may be */
#define VISIT_US   50000   /* until a called peer is looked at; twice as long each time */
#define CALL_US    400000  /* until an attempt is ended when others want its place, */
#define PATIENT_US 5000000 /* and when none do */
#define CALLS      2       /* of a peer */
#define PING_MS    2000
#define PINGS      3       /* to a peer */
#define AGAIN_US   1100000 /* the back-off after a first failure is 1 s */

/* The pace of looks at what there is. */
#define LOOK_US    1000000
#define LOOK_SHARE 50      /* a look takes at most this part of the time … */
#define LOOK_MOST  5000000 /* … unless it was delayed by others */
#define LOOK_PEERS 256
#define LOOK_PAIRS 128

/* A peer is called, looked at until it is connected, and pinged. */
struct old_peer {
    struct control_restart *r;
    struct lnet_nid nid;
    unsigned calls, pings;
    bool running; /* a request of it is under way, */
    bool late;    /* the last one of its call */
    bool done;
    uint64_t due_us;
    uint64_t called_us; /* 0: not called */
};

struct control_restart {
    struct controller *c;
    struct state_writer writer;
    struct state_file old;
    bool fresh; /* the file was written a moment ago */
    bool stopped;

    /* After a restart. */
    struct reactor_timer timer;
    struct old_peer *peer; /* old.peers of them */
    unsigned left;         /* peers that are not done */
    unsigned answered, next_pair, next_call, next_visit;
    unsigned step_peers, calls, calls_most;
    uint64_t begun_us, settled_us;
    struct reactor_task end_task;
    struct tcp_pair end[PAIRS_MOST]; /* connections that a reactor ends now */
    unsigned ends;                   /* 0: the reactor has answered */

    /* Looks. */
    struct reactor_timer look;
    struct reactor_task pair_task;
    struct tcp_pair row[LOOK_PAIRS];
    unsigned rows, reactor;
    uint32_t at;
    json_t *peers, *pairs; /* of the look under way */
    json_t *last_pairs;    /* of the look at which the connections changed last */
    uint64_t conns;        /* what was counted then */
    uint64_t look_us;
};

/* ---- the file ---- */

static void log_text(enum log_level level, const char *event, const struct control_restart *r,
                     const char *text)
{
    log_event(level, LOG_MODULE_MILLRACED, event, LOG_S("file", r->writer.place.name),
              LOG_S("msg", text));
}

static bool is_fresh(const struct cfg_place *place)
{
    struct timespec now;
    struct stat st;

    if (fstatat(place->dir, place->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    clock_gettime(CLOCK_REALTIME, &now);
    return st.st_mtime <= now.tv_sec && now.tv_sec - st.st_mtime <= MOMENT_S;
}

static void read_file(struct control_restart *r)
{
    struct err err = {0};
    char *text = NULL;
    size_t len = 0;
    int rc = cfg_place_read(&r->writer.place, &text, &len);

    if (rc == -ENOENT)
        return;
    if (rc != 0)
        err_text(&err, "%s", strerror(-rc));
    else
        rc = state_file_parse(text, len, &r->old, &err);
    free(text);
    if (rc != 0) {
        log_text(LOG_LEVEL_WARNING, "state_not_read", r, err.message);
        return;
    }
    r->fresh = is_fresh(&r->writer.place);
    if (r->old.ignored > 0)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "state_ignored",
                  LOG_S("file", r->writer.place.name), LOG_U("entries", r->old.ignored));
}

/* ---- looks ---- */

static json_t *addresses(const struct controller *c)
{
    json_t *list = json_array();
    struct inet_prefix net;

    for (unsigned i = 0; c->inet && i < inet_if_count(c->inet); i++) {
        const struct inet_if *ifp = inet_if_at(c->inet, i);

        for (unsigned k = 0; inet_if_link(ifp) && inet_if_addr(ifp, k, &net); k++)
            state_file_add_address(list, &net.addr);
    }
    return list;
}

static void drop(json_t **list)
{
    json_decref(*list);
    *list = NULL;
}

static void look_later(struct control_restart *r)
{
    uint64_t took = reactor_now_us() - r->look_us;

    if (!r->stopped)
        reactor_timer_arm(&r->look,
                          min(max((uint64_t)LOOK_US, took * LOOK_SHARE), (uint64_t)LOOK_MOST));
}

static void look_done(struct control_restart *r)
{
    json_t *own = addresses(r->c);

    if (!r->stopped)
        state_writer_begin(&r->writer, state_file_root(r->peers, own, r->last_pairs));
    drop(&own);
    look_later(r);
}

static void pairs_read(struct reactor_task *task);

/* On a reactor. */
static void read_pairs(struct reactor_task *task)
{
    struct control_restart *r = container_of(task, struct control_restart, pair_task);

    r->rows = tcp_pairs(r->c->tcp, &r->at, r->row, LOOK_PAIRS);
    task->fn = pairs_read;
    reactor_post(reactor_control(r->c->env), task);
}

static void read_next(struct control_restart *r)
{
    r->pair_task.fn = read_pairs;
    reactor_post(reactor_at(r->c->env, r->reactor), &r->pair_task);
}

static void pairs_read(struct reactor_task *task)
{
    struct control_restart *r = container_of(task, struct control_restart, pair_task);

    for (unsigned i = 0; i < r->rows; i++)
        state_file_add_pair(r->pairs, &r->row[i]);
    if (r->rows < LOOK_PAIRS) {
        r->reactor++;
        r->at = 0;
    }
    if (!r->stopped && r->reactor < reactor_count(r->c->env)) {
        read_next(r);
        return;
    }
    drop(&r->last_pairs);
    r->last_pairs = r->pairs;
    r->pairs = NULL;
    look_done(r);
}

/* Returns a number that differs when a connection came or went. */
static uint64_t count_conns(const struct controller *c)
{
    struct tcp_stats stats;
    uint64_t sum = 1;

    for (unsigned i = 0; i < reactor_count(c->env); i++) {
        tcp_stats_get(c->tcp, i, &stats);
        sum += 2 * (stats.conns_in + stats.conns_out) - stats.conns_now;
    }
    return sum;
}

static void look_at_pairs(struct control_restart *r)
{
    uint64_t conns = r->c->tcp ? count_conns(r->c) : 0;

    if (conns == r->conns) {
        look_done(r);
        return;
    }
    r->conns = conns;
    r->pairs = json_array();
    r->reactor = 0;
    r->at = 0;
    read_next(r);
}

static void peers_read(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                       const struct lnet_peer_ni_cursor *next)
{
    struct control_restart *r = arg;
    uint64_t now = reactor_now_us();

    for (unsigned i = 0; i < n; i++)
        if (rows[i].up || (rows[i].last_alive_us > 0 && now < rows[i].last_alive_us + RECENT_US))
            state_file_add_peer(r->peers, &rows[i].nid);
    if (r->stopped)
        return;
    if (next->end)
        look_at_pairs(r);
    else if (lnet_peer_ni_page(r->c->node, next, LOOK_PEERS, peers_read, r) != 0)
        look_later(r);
}

static void look(struct reactor_timer *timer)
{
    struct control_restart *r = container_of(timer, struct control_restart, look);
    struct lnet_peer_ni_cursor first = {0};

    r->look_us = reactor_now_us();
    if (state_writer_busy(&r->writer)) {
        look_later(r);
        return;
    }
    drop(&r->peers);
    r->peers = json_array();
    if (lnet_peer_ni_page(r->c->node, &first, LOOK_PEERS, peers_read, r) != 0)
        look_later(r);
}

/* ---- after a restart: old connections ---- */

static void ended(struct reactor_task *task)
{
    struct control_restart *r = container_of(task, struct control_restart, end_task);

    r->ends = 0;
}

/* On a reactor. */
static void end_some(struct reactor_task *task)
{
    struct control_restart *r = container_of(task, struct control_restart, end_task);

    for (unsigned i = 0; i < r->ends; i++)
        tcp_end_old(r->c->tcp, &r->end[i]);
    task->fn = ended;
    reactor_post(reactor_control(r->c->env), task);
}

static void step_pairs(struct control_restart *r)
{
    if (r->ends > 0)
        return;
    while (r->next_pair < r->old.pairs && r->ends < PAIRS_MOST)
        r->end[r->ends++] = r->old.pair[r->next_pair++];
    r->end_task.fn = end_some;
    reactor_post(reactor_at(r->c->env, 0), &r->end_task);
    if (r->next_pair == r->old.pairs)
        r->settled_us = reactor_now_us() + SETTLE_US;
}

/* ---- after a restart: peers ---- */

/* A NID of the file may be of a net that is configured no more. */
static bool is_neighbour(const struct controller *c, const struct lnet_nid *nid)
{
    bool near = false;

    for (unsigned i = 0; i < lnet_ni_count(c->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(c->node, i);

        near |= ni && lnet_ni_is_active(ni) && ni->net == nid_net(nid);
    }
    return near && !lnet_nid_is_mine(c->node, nid);
}

static void done_with(struct old_peer *p)
{
    p->done = true;
    p->r->left--;
}

/* The peer is connected, or not called any more. It is called again if it may be. */
static void called(struct old_peer *p, bool again)
{
    p->r->calls--;
    p->called_us = 0;
    p->due_us = reactor_now_us() + AGAIN_US;
    if (!again)
        done_with(p);
}

static void visited(void *arg, int status, const struct lnet_ping_info *info)
{
    struct old_peer *p = arg;
    uint64_t now = reactor_now_us();

    (void)info;
    p->running = false;
    p->r->answered += status == 0;
    if (status == -ENOTCONN && !p->late)
        p->due_us = now + max(now - p->called_us, (uint64_t)VISIT_US);
    else if (status == -ENOTCONN)
        called(p, p->calls < CALLS);
    else /* a ping without an answer was sent nevertheless */
        called(p, status != 0 && status != -ETIMEDOUT && ++p->pings < PINGS);
}

/* Calls a peer, or looks whether a called one is connected. */
static void visit(struct old_peer *p)
{
    p->running = true;
    if (lnet_ping_connected(p->r->c->node, &p->nid, PING_MS, p->late, visited, p) != 0)
        visited(p, -ENOMEM, NULL);
}

static void call(struct old_peer *p, uint64_t now)
{
    if (!is_neighbour(p->r->c, &p->nid)) {
        done_with(p);
        return;
    }
    p->called_us = now;
    p->late = false;
    p->calls++;
    p->r->calls++;
    visit(p);
}

/* Peers that do not answer give way where there are more than can be called at once. */
static bool is_late(const struct old_peer *p, uint64_t now)
{
    bool wanted = p->r->left > p->r->calls_most;

    return now - p->called_us >= (wanted ? CALL_US : PATIENT_US);
}

static void visit_some(struct control_restart *r, uint64_t now)
{
    unsigned visits = 0;

    for (unsigned i = 0; i < r->old.peers && visits < VISITS_MOST; i++) {
        struct old_peer *p = &r->peer[r->next_visit++ % r->old.peers];

        if (p->called_us == 0 || p->running || now < p->due_us)
            continue;
        p->late = is_late(p, now);
        visit(p);
        visits++;
    }
}

static void call_some(struct control_restart *r, uint64_t now)
{
    unsigned calls = 0;

    for (unsigned i = 0; i < r->old.peers && calls < r->step_peers && r->calls < r->calls_most;
         i++) {
        struct old_peer *p = &r->peer[r->next_call++ % r->old.peers];

        if (p->called_us > 0 || p->done || now < p->due_us)
            continue;
        call(p, now);
        calls++;
    }
}

static void step_peers(struct control_restart *r)
{
    uint64_t now = reactor_now_us();

    visit_some(r, now);
    call_some(r, now);
}

static void finished(struct control_restart *r)
{
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "peers_called", LOG_U("peers", r->old.peers),
              LOG_U("answered", r->answered), LOG_U("connections", r->old.pairs),
              LOG_U("ms", (unsigned)((reactor_now_us() - r->begun_us) / 1000)));
    reactor_timer_arm(&r->look, 0);
}

static void step(struct reactor_timer *timer)
{
    struct control_restart *r = container_of(timer, struct control_restart, timer);

    if (r->next_pair < r->old.pairs)
        step_pairs(r);
    else if (reactor_now_us() >= r->settled_us)
        step_peers(r);
    if (r->left == 0 && r->next_pair == r->old.pairs)
        finished(r);
    else
        reactor_timer_arm(timer, r->next_pair < r->old.pairs ? PAIR_STEP_US : STEP_US);
}

/* ---- life ---- */

/* Returns the first folder of $STATE_DIRECTORY with the name of the file; false: there is none. */
static bool get_path(char path[PATH_MAX])
{
    const char *state = getenv("STATE_DIRECTORY");
    size_t len = state ? strcspn(state, ":") : 0;

    return len > 0 && state[0] == '/' &&
           snprintf(path, PATH_MAX, "%.*s/" STATE_NAME, (int)len, state) < PATH_MAX;
}

static struct control_restart *make(struct controller *c, const char *path)
{
    struct control_restart *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return NULL;
    r->c = c;
    rc = cfg_place_open(&r->writer.place, path, NULL);
    if (rc != 0) {
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "state_not_read", LOG_S("file", path),
                  LOG_S("msg", strerror(-rc)));
        free(r);
        return NULL;
    }
    reactor_timer_init(&r->timer, step);
    reactor_timer_init(&r->look, look);
    r->last_pairs = json_array();
    return r;
}

struct control_restart *control_restart_open(struct controller *c)
{
    char path[PATH_MAX];
    struct control_restart *r = get_path(path) ? make(c, path) : NULL;

    if (!r)
        return NULL;
    read_file(r);
    r->peer = calloc(r->old.peers + 1, sizeof(*r->peer));
    if (!r->peer)
        r->old.peers = 0;
    for (unsigned i = 0; i < r->old.peers; i++)
        r->peer[i] = (struct old_peer){.r = r, .nid = r->old.peer[i]};
    r->left = r->old.peers;
    return r;
}

bool control_restart_had(const struct control_restart *r, const struct inet_addr *addr)
{
    for (unsigned i = 0; r && r->fresh && i < r->old.addresses; i++)
        if (inet_same(&r->old.address[i], addr))
            return true;
    return false;
}

void control_restart_begin(struct control_restart *r)
{
    unsigned conns;

    if (!r || r->stopped)
        return;
    conns = (unsigned)cfg_running_get(r->c->running)->max_connections * reactor_count(r->c->env);
    r->calls_most = min(conns / CALLS_PART, (unsigned)CALLS_MOST);
    r->step_peers =
        min(max(r->old.peers / SPREAD_STEPS, (unsigned)PEERS_LEAST), (unsigned)PEERS_MOST);
    if (!r->c->tcp)
        r->old.pairs = 0;
    r->begun_us = r->settled_us = reactor_now_us();
    reactor_timer_arm(&r->timer, 0);
}

void control_restart_stop(struct control_restart *r)
{
    if (!r)
        return;
    r->stopped = true;
    reactor_timer_cancel(&r->timer);
    reactor_timer_cancel(&r->look);
}

void control_restart_free(struct control_restart *r)
{
    if (!r)
        return;
    state_writer_end(&r->writer);
    drop(&r->peers);
    drop(&r->pairs);
    drop(&r->last_pairs);
    state_file_free(&r->old);
    free(r->peer);
    free(r);
}
