/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events: a ring of the newest, and notifications to subscribers. See events.h.
 *
 * A new event goes into the ring. A task of the control reactor then goes through the
 * subscribers, so the maker of an event never writes to a client. A
 * subscriber that does not read (session->backlog) keeps its place until more events wait than it
 * requested. Then it misses the oldest of these, and the next notification has their number.
 */
#include "rpc/methods/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/container.h"
#include "lib/lnet/event.h"
#include "rpc/methods/methods_internal.h"

#define MAX_NIDS      64
#define BACKLOG_MAX   65536u /* bytes a client has not taken: no more events for now */
#define BURST         16u    /* notifications to one subscriber per round */
#define ALL_SUBS      0
#define LOOK_AGAIN_US 50000 /* at clients that had not taken what they were sent */

/* Behind those of the node. */
enum own_type {
    OWN_CONFIG_APPLIED = LNET_NODE_EV_COUNT,
    OWN_CONFIG_CONFIRMED,
    OWN_CONFIG_ROLLED_BACK,
    OWN_LOG_LEVEL,
    OWN_DROPS,
    OWN_PORT_UP,
    OWN_PORT_DOWN,
    OWN_ADDRESS_READY,
    OWN_ADDRESS_CONFLICT,
    OWN_MTU_BLACK_HOLE,
    OWN_NI_ABSENT,
    TYPES
};

const char *const rpc_event_types[] = {
    [LNET_NODE_EV_PEER_UP] = "peer_up",
    [LNET_NODE_EV_PEER_DOWN] = "peer_down",
    [LNET_NODE_EV_PEER_RESTART] = "peer_restart",
    [LNET_NODE_EV_NI_UP] = "ni_up",
    [LNET_NODE_EV_NI_DOWN] = "ni_down",
    [LNET_NODE_EV_NI_ADDED] = "ni_added",
    [LNET_NODE_EV_NI_REMOVED] = "ni_removed",
    [LNET_NODE_EV_ROUTE_UP] = "route_up",
    [LNET_NODE_EV_ROUTE_DOWN] = "route_down",
    [LNET_NODE_EV_GATEWAY_UP] = "gateway_up",
    [LNET_NODE_EV_GATEWAY_DOWN] = "gateway_down",
    [LNET_NODE_EV_BUFFERS_EXHAUSTED] = "buffers_exhausted",
    [LNET_NODE_EV_BUFFERS_FREE] = "buffers_free",
    [LNET_NODE_EV_ROUTING] = "routing",
    [OWN_CONFIG_APPLIED] = "config_applied",
    [OWN_CONFIG_CONFIRMED] = "config_confirmed",
    [OWN_CONFIG_ROLLED_BACK] = "config_rolled_back",
    [OWN_LOG_LEVEL] = "log_level",
    [OWN_DROPS] = "drops",
    [OWN_PORT_UP] = "port_up",
    [OWN_PORT_DOWN] = "port_down",
    [OWN_ADDRESS_READY] = "address_ready",
    [OWN_ADDRESS_CONFLICT] = "address_conflict",
    [OWN_MTU_BLACK_HOLE] = "mtu_black_hole",
    [OWN_NI_ABSENT] = "ni_absent",
    [TYPES] = NULL,
};

_Static_assert(TYPES <= 32, "a filter by type has 32 bits");

struct event {
    json_t *members;
    unsigned type;
    struct lnet_nid nid, gateway; /* ANY: it has none */
    const char *address;          /* of the members, as rpc_inet_text() writes it; NULL: none */
};

struct sub {
    struct sub *next;
    struct rpc_events *events;
    struct jrpc_session *session;
    json_int_t id;
    uint64_t at;      /* seq of the next event to be looked at */
    uint32_t waiting; /* from there on, that it wants */
    uint32_t queue;
    uint64_t missed; /* not told yet */
    uint32_t types;  /* bit per type */
    unsigned nnids;  /* 0: all */
    struct lnet_nid nid[MAX_NIDS];
};

struct rpc_events {
    struct rpc_ctx *ctx;
    struct event kept[RPC_EVENTS_KEPT]; /* by seq */
    uint64_t seq;                       /* of the next; told with those missed before it added */
    uint64_t missed;                    /* ever, on the way to us */
    uint64_t missed_new;                /* of these, since the last event */
    json_int_t last_id;
    struct sub *subs;
    unsigned nsubs;
    bool watching;
    bool posted;
    struct reactor_task task;
    struct reactor_timer again;
    rpc_event_fn listener;
    void *listener_arg;
    struct control_listener control; /* events of the controller and of ports */
};

static uint64_t first_kept(const struct rpc_events *ev)
{
    return ev->seq > RPC_EVENTS_KEPT ? ev->seq - RPC_EVENTS_KEPT : 1;
}

static struct event *event_at(struct rpc_events *ev, uint64_t seq)
{
    return &ev->kept[seq % RPC_EVENTS_KEPT];
}

/* ---- subscribers ---- */

static bool names(const struct sub *sub, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < sub->nnids && !nid_is_any(nid); i++)
        if (nid_same(&sub->nid[i], nid))
            return true;
    return false;
}

/* A NID of that address. */
static bool names_address(const struct sub *sub, const char *address)
{
    char text[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < sub->nnids && address; i++) {
        nid_format(&sub->nid[i], text);
        if (strcspn(text, "@") == strlen(address) && strncmp(text, address, strlen(address)) == 0)
            return true;
    }
    return false;
}

static bool wants(const struct sub *sub, const struct event *e)
{
    if (!(sub->types & 1u << e->type))
        return false;
    return sub->nnids == 0 || names(sub, &e->nid) || names(sub, &e->gateway) ||
           names_address(sub, e->address);
}

/* Moves it on over an event that is not delivered. */
static void skip_one(struct sub *sub)
{
    if (wants(sub, event_at(sub->events, sub->at))) {
        sub->waiting--;
        sub->missed++;
    }
    sub->at++;
}

/* The newest event has been put in, over the oldest. */
static void sub_add(struct sub *sub, const struct event *e)
{
    if (wants(sub, e))
        sub->waiting++;
    while (sub->waiting > sub->queue)
        skip_one(sub);
}

/* Ends a session's subscription of that number, or all. Returns how many of its are left. */
static unsigned end_subs(struct rpc_events *ev, const struct jrpc_session *session, json_int_t id)
{
    struct sub **at = &ev->subs, *sub;
    unsigned left = 0;

    while ((sub = *at)) {
        if (sub->session != session || (id != ALL_SUBS && sub->id != id)) {
            left += sub->session == session;
            at = &sub->next;
            continue;
        }
        *at = sub->next;
        ev->nsubs--;
        free(sub);
    }
    return left;
}

static void session_closed(struct jrpc_session *session)
{
    struct rpc_ctx *ctx = session->jrpc->ctx;

    end_subs(ctx->events, session, ALL_SUBS);
}

/* ---- delivering ---- */

static void deliver(struct sub *sub, const struct event *e)
{
    json_t *params = json_copy(e->members);

    json_object_set_new(params, "subscription", json_integer(sub->id));
    if (sub->missed)
        json_object_set_new(params, "missed", json_integer((json_int_t)sub->missed));
    sub->missed = 0;
    jrpc_notify(sub->session, "event", params);
}

static bool is_behind(const struct sub *sub)
{
    return jrpc_backlog(sub->session) >= BACKLOG_MAX;
}

enum pumped {
    PUMPED_ALL,
    PUMPED_BEHIND, /* the client does not read */
    PUMPED_MORE    /* the other subscribers come first */
};

/* A part of what waits for it. */
static enum pumped pump_sub(struct sub *sub)
{
    struct rpc_events *ev = sub->events;
    unsigned burst = BURST;

    while (sub->at < ev->seq) {
        const struct event *e = event_at(ev, sub->at);

        if (!wants(sub, e)) {
            sub->at++;
            continue;
        }
        if (is_behind(sub))
            return PUMPED_BEHIND;
        if (burst-- == 0)
            return PUMPED_MORE;
        sub->at++;
        sub->waiting--;
        deliver(sub, e);
    }
    return PUMPED_ALL;
}

static void post(struct rpc_events *ev)
{
    if (ev->posted)
        return;
    ev->posted = true;
    reactor_post(reactor_control(ev->ctx->control->env), &ev->task);
}

static void pump(struct reactor_task *task)
{
    struct rpc_events *ev = container_of(task, struct rpc_events, task);
    bool behind = false, more = false;

    ev->posted = false;
    for (struct sub *sub = ev->subs; sub; sub = sub->next) {
        enum pumped pumped = pump_sub(sub);

        behind |= pumped == PUMPED_BEHIND;
        more |= pumped == PUMPED_MORE;
    }
    if (more)
        post(ev);
    if (behind)
        reactor_timer_arm(&ev->again, LOOK_AGAIN_US);
}

static void look_again(struct reactor_timer *t)
{
    struct rpc_events *ev = container_of(t, struct rpc_events, again);

    post(ev);
}

/* ---- events come ---- */

static double unix_time(uint64_t age_us)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9 - (double)age_us / 1e6;
}

/* members is taken. */
static void add(struct rpc_events *ev, unsigned type, const struct lnet_nid *nid,
                const struct lnet_nid *gateway, json_t *members)
{
    struct event *e = event_at(ev, ev->seq);
    uint64_t missed = ev->missed_new;

    if (!members)
        return;
    json_object_set_new(members, "seq", json_integer((json_int_t)(ev->seq + ev->missed)));
    for (struct sub *sub = ev->subs; sub; sub = sub->next) {
        if (ev->seq >= RPC_EVENTS_KEPT && sub->at <= ev->seq - RPC_EVENTS_KEPT)
            skip_one(sub); /* its place is needed */
        sub->missed += missed;
    }
    json_decref(e->members);
    *e = (struct event){members, type, *nid, *gateway,
                        json_string_value(json_object_get(members, "address"))};
    ev->missed_new = 0;
    ev->seq++;
    for (struct sub *sub = ev->subs; sub; sub = sub->next)
        sub_add(sub, e);
    if (ev->listener)
        ev->listener(ev->listener_arg, members, missed);
    post(ev);
}

void rpc_events_emit(struct rpc_ctx *ctx, const char *type, const char *cause, const char *text,
                     json_t *more)
{
    unsigned i;

    for (i = 0; i < TYPES && strcmp(rpc_event_types[i], type) != 0; i++)
        ;
    if (ctx->events && i < TYPES) {
        json_t *members = json_pack("{s:f, s:s, s:s, s:s}", "time", unix_time(0), "type", type,
                                    "text", text, "cause", cause);

        if (more)
            json_object_update(members, more);
        add(ctx->events, i, &LNET_NID_ANY, &LNET_NID_ANY, members);
    }
    json_decref(more);
}

/* ---- events of the node ---- */

static const char *const pool_names[LNET_POOLS] = {"tiny", "small", "large"};
static const char *const routing_names[] = {"off", "on", "stopping", "starting"};

static const char *cause_of(const struct lnet_node_event *row)
{
    if (row->cause)
        return row->cause;
    return row->drop ? lnet_drop_info(row->drop)->name : "unspecified";
}

static const char *state_of(const struct lnet_node_event *row)
{
    switch (row->kind) {
    case LNET_NODE_EV_PEER_UP:
    case LNET_NODE_EV_PEER_RESTART:
    case LNET_NODE_EV_NI_UP:
    case LNET_NODE_EV_ROUTE_UP:
    case LNET_NODE_EV_GATEWAY_UP:
        return "up";
    case LNET_NODE_EV_PEER_DOWN:
    case LNET_NODE_EV_NI_DOWN:
    case LNET_NODE_EV_ROUTE_DOWN:
    case LNET_NODE_EV_GATEWAY_DOWN:
        return "down";
    case LNET_NODE_EV_NI_ADDED:
        return "added";
    case LNET_NODE_EV_NI_REMOVED:
        return "removed";
    case LNET_NODE_EV_BUFFERS_EXHAUSTED:
        return "exhausted";
    case LNET_NODE_EV_BUFFERS_FREE:
        return "free";
    case LNET_NODE_EV_ROUTING:
        return routing_names[row->value & 3];
    default:
        return "unknown";
    }
}

static void event_text(const struct lnet_node_event *row, char *out, size_t len)
{
    char nid[LNET_NIDSTR_SIZE], net[LNET_NETSTR_SIZE];
    const char *state = state_of(row);

    nid_format(&row->nid, nid);
    net_format(row->net, net);
    switch (row->kind) {
    case LNET_NODE_EV_PEER_UP:
        snprintf(out, len, "peer %s is connected", nid);
        break;
    case LNET_NODE_EV_PEER_DOWN:
        snprintf(out, len, "peer %s is gone: its last connection ended", nid);
        break;
    case LNET_NODE_EV_PEER_RESTART:
        snprintf(out, len, "peer %s has restarted", nid);
        break;
    case LNET_NODE_EV_NI_UP:
    case LNET_NODE_EV_NI_DOWN:
        snprintf(out, len, "NI %s is %s", nid, state);
        break;
    case LNET_NODE_EV_NI_ADDED:
    case LNET_NODE_EV_NI_REMOVED:
        snprintf(out, len, "NI %s was %s", nid, state);
        break;
    case LNET_NODE_EV_ROUTE_UP:
    case LNET_NODE_EV_ROUTE_DOWN:
        snprintf(out, len, "the route to %s through %s is %s", net, nid, state);
        break;
    case LNET_NODE_EV_GATEWAY_UP:
    case LNET_NODE_EV_GATEWAY_DOWN:
        snprintf(out, len, "gateway %s is %s", nid, state);
        break;
    case LNET_NODE_EV_BUFFERS_EXHAUSTED:
        snprintf(out, len, "reactor %u has no free %s router buffer and messages wait",
                 row->reactor, pool_names[(unsigned)row->value % LNET_POOLS]);
        break;
    case LNET_NODE_EV_BUFFERS_FREE:
        snprintf(out, len, "nothing waits for a %s router buffer of reactor %u any more",
                 pool_names[(unsigned)row->value % LNET_POOLS], row->reactor);
        break;
    case LNET_NODE_EV_ROUTING:
        snprintf(out, len, "routing is %s", state);
        break;
    default:
        snprintf(out, len, "%s", lnet_node_event_text(row->kind));
    }
}

static void add_row(struct rpc_events *ev, const struct lnet_node_event *row, uint64_t now_us)
{
    bool route = row->kind == LNET_NODE_EV_ROUTE_UP || row->kind == LNET_NODE_EV_ROUTE_DOWN;
    bool buffers =
        row->kind == LNET_NODE_EV_BUFFERS_EXHAUSTED || row->kind == LNET_NODE_EV_BUFFERS_FREE;
    bool node = buffers || row->kind == LNET_NODE_EV_ROUTING;
    uint64_t age_us = now_us > row->when_us ? now_us - row->when_us : 0;
    char text[200];
    json_t *m;

    event_text(row, text, sizeof(text));
    m = json_pack("{s:f, s:s, s:s, s:s, s:s}", "time", unix_time(age_us), "type",
                  lnet_node_event_name(row->kind), "text", text, "state", state_of(row), "cause",
                  cause_of(row));
    if (route)
        json_object_set_new(m, "net", rpc_net(row->net));
    if (!node)
        json_object_set_new(m, route ? "gateway" : "nid", rpc_nid(&row->nid));
    if (buffers) {
        json_object_set_new(m, "pool", json_string(pool_names[(unsigned)row->value % LNET_POOLS]));
        json_object_set_new(m, "reactor", json_integer(row->reactor));
    }
    add(ev, row->kind, node || route ? &LNET_NID_ANY : &row->nid, route ? &row->nid : &LNET_NID_ANY,
        m);
}

static void node_events(void *arg, const struct lnet_node_event *rows, unsigned n, uint64_t missed)
{
    struct rpc_events *ev = arg;
    uint64_t now_us = reactor_now_us();

    ev->missed += missed;
    ev->missed_new += missed;
    for (unsigned i = 0; i < n; i++)
        if ((unsigned)rows[i].kind < LNET_NODE_EV_COUNT)
            add_row(ev, &rows[i], now_us);
}

/* ---- life ---- */

static void watch(struct rpc_ctx *ctx)
{
    ctx->events->watching = true;
    lnet_node_events_watch(ctx->control->node, node_events, ctx->events);
}

static void unwatch(struct rpc_ctx *ctx)
{
    if (!ctx->events->watching)
        return;
    lnet_node_events_watch(ctx->control->node, NULL, NULL);
    ctx->events->watching = false;
}

static void phase(void *arg, enum control_phase phase)
{
    if (phase == CONTROL_STARTED)
        watch(arg);
    else if (phase == CONTROL_HALTED)
        unwatch(arg);
}

static void controller_event(void *arg, const struct control_event *event)
{
    const struct lnet_ni_conf *ni = event->ni;
    json_t *more = NULL;

    if (ni)
        more = json_pack("{s:o}", "net", rpc_net(ni->net));
    if (ni && !nid_is_any(&ni->nid))
        json_object_set_new(more, "nid", rpc_nid(&ni->nid));
    if (ni && ni->ifname[0])
        json_object_set_new(more, "interface", json_string(ni->ifname));
    rpc_events_emit(arg, event->type, event->cause, event->text, more);
}

static void port_event(void *arg, const struct inet_event *event)
{
    rpc_events_of_port(arg, event);
}

int rpc_events_start(struct rpc_ctx *ctx)
{
    struct rpc_events *ev = calloc(1, sizeof(*ev));

    if (!ev)
        return -ENOMEM;
    ev->ctx = ctx;
    ev->seq = 1;
    ev->task.fn = pump;
    reactor_timer_init(&ev->again, look_again);
    ctx->events = ev;
    ev->control = (struct control_listener){
        .phase = phase, .event = controller_event, .port = port_event, .arg = ctx};
    controller_listen(ctx->control, &ev->control);
    return 0;
}

void rpc_events_stop(struct rpc_ctx *ctx)
{
    struct rpc_events *ev = ctx->events;
    struct sub *sub;

    if (!ev)
        return;
    unwatch(ctx);
    reactor_timer_cancel(&ev->again);
    while ((sub = ev->subs)) {
        ev->subs = sub->next;
        sub->session->closed = NULL;
        free(sub);
    }
    for (unsigned i = 0; i < RPC_EVENTS_KEPT; i++)
        json_decref(ev->kept[i].members);
    free(ev);
    ctx->events = NULL;
}

void rpc_events_listen(struct rpc_ctx *ctx, rpc_event_fn fn, void *arg)
{
    if (!ctx->events)
        return;
    ctx->events->listener = fn;
    ctx->events->listener_arg = arg;
}

/* ---- methods ---- */

static struct rpc_events *events_of(struct jrpc_call *call)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    if (!ctx->events)
        jrpc_fail(call, ENOTSUP, NULL, "this is an error of the program: please report it",
                  "events are not watched in this process");
    return ctx->events;
}

/* False: the call has been ended. */
static bool read_types(struct jrpc_call *call, const struct jrpc_arg *arg, uint32_t *out)
{
    unsigned k;

    *out = UINT32_MAX;
    if (!arg->given)
        return true;
    *out = 0;
    for (size_t i = 0; i < json_array_size(arg->value); i++) {
        const char *name = json_string_value(json_array_get(arg->value, i));

        for (k = 0; k < TYPES && strcmp(rpc_event_types[k], name) != 0; k++)
            ;
        if (k == TYPES) {
            jrpc_refuse(call, "types", "docs/jsonrpc.md lists the types of events",
                        "there is no event '%.40s'", name);
            return false;
        }
        *out |= 1u << k;
    }
    return true;
}

static bool read_nids(struct jrpc_call *call, const struct jrpc_arg *arg, struct sub *sub)
{
    for (size_t i = 0; arg->given && i < json_array_size(arg->value) && i < MAX_NIDS; i++) {
        const char *text = json_string_value(json_array_get(arg->value, i));

        if (nid_parse(text, &sub->nid[i]) != 0 || nid_is_any(&sub->nid[i])) {
            jrpc_refuse(call, "nids", "give address@net, as in 10.0.0.1@tcp",
                        "'%.64s' is not a NID", text);
            return false;
        }
        sub->nnids = (unsigned)i + 1;
    }
    return true;
}

static bool room_for(struct jrpc_call *call, const struct rpc_events *ev,
                     const struct jrpc_session *session)
{
    unsigned n = 0;

    for (const struct sub *sub = ev->subs; sub; sub = sub->next)
        n += sub->session == session;
    if (n < RPC_EVENTS_SUBS && ev->nsubs < RPC_EVENTS_SUBS_ALL)
        return true;
    jrpc_fail(call, EMFILE, NULL, "end one with events_unsubscribe, or close other clients",
              "no more subscriptions: at most %u of one client and %u of all", RPC_EVENTS_SUBS,
              RPC_EVENTS_SUBS_ALL);
    return false;
}

void rpc_events_subscribe(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct jrpc_session *session = jrpc_session_of(call);
    struct rpc_events *ev = events_of(call);
    struct sub *sub;

    if (!ev)
        return;
    if (!session) { /* closed meanwhile: no client to notify */
        jrpc_result(call, NULL);
        return;
    }
    if (!room_for(call, ev, session))
        return;
    sub = calloc(1, sizeof(*sub));
    if (!sub) {
        jrpc_result(call, NULL);
        return;
    }
    if (!read_types(call, &args[0], &sub->types) || !read_nids(call, &args[1], sub)) {
        free(sub);
        return;
    }
    sub->events = ev;
    sub->session = session;
    sub->id = ++ev->last_id;
    sub->at = ev->seq;
    sub->queue = args[2].given ? (uint32_t)args[2].integer : RPC_EVENTS_QUEUE;
    sub->next = ev->subs;
    ev->subs = sub;
    ev->nsubs++;
    session->closed = session_closed;
    jrpc_result(call, json_pack("{s:I}", "subscription", sub->id));
}

void rpc_events_unsubscribe(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct jrpc_session *session = jrpc_session_of(call);
    struct rpc_events *ev = events_of(call);
    unsigned had;

    if (!ev)
        return;
    had = ev->nsubs;
    if (session && end_subs(ev, session, args[0].integer) == 0)
        session->closed = NULL;
    if (ev->nsubs < had)
        jrpc_result(call, json_true());
    else
        jrpc_fail(call, ENOENT, "subscription", "events_subscribe returns the number",
                  "this client has no subscription %lld", (long long)args[0].integer);
}

void rpc_events_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct rpc_events *ev = events_of(call);
    uint64_t limit = args[0].given ? (uint64_t)args[0].integer : RPC_EVENTS_KEPT, seq;
    json_t *list;

    if (!ev)
        return;
    seq = first_kept(ev);
    if (ev->seq - seq > limit)
        seq = ev->seq - limit;
    list = json_array();
    for (; seq < ev->seq; seq++)
        json_array_append(list, event_at(ev, seq)->members);
    jrpc_result(call, json_pack("{s:o, s:I}", "events", list, "missed", (json_int_t)ev->missed));
}
