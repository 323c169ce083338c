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
#include <sys/queue.h>
#include <time.h>

#include "lib/base/container.h"
#include "lib/lnet/event.h"
#include "rpc/methods/methods_internal.h"

#define BACKLOG_MAX   65536u /* bytes a client has not taken: no more events for now */
#define BURST         16u    /* notifications to one subscriber per round */
#define ALL_SUBS      0
#define LOOK_AGAIN_US 50000 /* at clients that had not taken what they were sent */
#define TEXT_MAX      320

/* Every type of event: its name, its state unless the event itself has one, and its sentence unless
 * the event has one. In a sentence `{member}` stands for that member of the event. */
static const struct {
    const char *name, *state, *text;
    bool trouble; /* something stopped working: people look for these */
} types[] = {
    [LNET_NODE_EV_PEER_UP] = {"peer_up", "up", "peer {nid} is connected"},
    [LNET_NODE_EV_PEER_DOWN] = {"peer_down", "down",
                                "peer {nid} is gone: its last connection ended"},
    [LNET_NODE_EV_PEER_RESTART] = {"peer_restart", "up", "peer {nid} has restarted"},
    [LNET_NODE_EV_NI_UP] = {"ni_up", "up", "NI {nid} is up"},
    [LNET_NODE_EV_NI_DOWN] = {"ni_down", "down", "NI {nid} is down", true},
    [LNET_NODE_EV_NI_ADDED] = {"ni_added", "added", "NI {nid} was added"},
    [LNET_NODE_EV_NI_REMOVED] = {"ni_removed", "removed", "NI {nid} was removed"},
    [LNET_NODE_EV_ROUTE_UP] = {"route_up", "up", "the route to {net} through {gateway} is up"},
    [LNET_NODE_EV_ROUTE_DOWN] = {"route_down", "down",
                                 "the route to {net} through {gateway} is down", true},
    [LNET_NODE_EV_GATEWAY_UP] = {"gateway_up", "up", "gateway {nid} is up"},
    [LNET_NODE_EV_GATEWAY_DOWN] = {"gateway_down", "down", "gateway {nid} is down", true},
    [LNET_NODE_EV_BUFFERS_EXHAUSTED] =
        {"buffers_exhausted", "exhausted",
         "reactor {reactor} has no free {pool} router buffer and messages wait", true},
    [LNET_NODE_EV_BUFFERS_FREE] =
        {"buffers_free", "free",
         "nothing waits for a {pool} router buffer of reactor {reactor} any more"},
    [LNET_NODE_EV_ROUTING] = {"routing", NULL, "routing is {state}"},
    [LNET_NODE_EV_NI_HEALTH] = {"ni_health", NULL, "the health of NI {nid} is {health}"},
    [LNET_NODE_EV_PEER_HEALTH] = {"peer_health", NULL, "the health of peer NI {nid} is {health}"},
    [LNET_NODE_EV_COUNT] = {"config_applied"},
    {"config_confirmed"},
    {"config_rolled_back", .trouble = true},
    {"log_level"},
    {"drops"},
    {"port_up", "up", "the link of port {port} is up"},
    {"port_down", "down", "the link of port {port} is down", true},
    {"address_ready", "used", "address {address} of {interface} is ours and used"},
    {"address_conflict", "not_used",
     "address {address} of {interface} is that of {mac} and not used here until nobody answers for "
     "it any more",
     true},
    {"mtu_black_hole", "lowered",
     "large packets to {address} vanish without a word: no more than {mtu} bytes are sent from now "
     "on; let ICMP through on the path, or set a smaller mtu",
     true},
    {"ni_absent", .trouble = true},
    {"drain"},
};

#define TYPES (sizeof(types) / sizeof(types[0]))
_Static_assert(TYPES <= 32, "a filter by type has 32 bits");

struct event {
    json_t *members;
    unsigned type;
    const char *nid, *gateway, *address; /* of the members; NULL: it has none */
};

struct sub {
    LIST_ENTRY(sub) link;
    struct rpc_events *events;
    struct jrpc_session *session;
    json_int_t id;
    uint64_t at;      /* seq of the next event to be looked at */
    uint32_t waiting; /* from there on, that it wants */
    uint32_t queue;
    uint64_t missed; /* not reported yet */
    uint32_t types;  /* bit per type */
    json_t *nids;    /* array of strings; empty: all */
};

struct rpc_events {
    struct rpc_ctx *ctx;
    struct event kept[RPC_EVENTS_KEPT]; /* by seq */
    uint64_t seq;                       /* of the next; told with those missed before it added */
    uint64_t missed;                    /* ever, on the way to us */
    uint64_t missed_new;                /* of these, since the last event */
    json_int_t last_id;
    LIST_HEAD(, sub) subs;
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

static bool is_about(const struct event *e, const char *nid)
{
    size_t len = strcspn(nid, "@");

    return (e->nid && strcmp(e->nid, nid) == 0) || (e->gateway && strcmp(e->gateway, nid) == 0) ||
           (e->address && strlen(e->address) == len && strncmp(e->address, nid, len) == 0);
}

static bool wants(const struct sub *sub, const struct event *e)
{
    size_t n = json_array_size(sub->nids), i;

    if (!(sub->types & 1u << e->type))
        return false;
    for (i = 0; i < n && !is_about(e, json_string_value(json_array_get(sub->nids, i))); i++)
        ;
    return n == 0 || i < n;
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

static void sub_free(struct sub *sub)
{
    json_decref(sub->nids);
    free(sub);
}

/* Ends a session's subscription of that number, or all. Returns how many of its are left. */
static unsigned end_subs(struct rpc_events *ev, const struct jrpc_session *session, json_int_t id)
{
    struct sub *next;
    unsigned left = 0;

    for (struct sub *sub = LIST_FIRST(&ev->subs); sub; sub = next) {
        next = LIST_NEXT(sub, link);
        if (sub->session != session)
            continue;
        if (id != ALL_SUBS && sub->id != id) {
            left++;
            continue;
        }
        LIST_REMOVE(sub, link);
        ev->nsubs--;
        sub_free(sub);
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
    struct sub *sub;

    ev->posted = false;
    LIST_FOREACH(sub, &ev->subs, link) {
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
    post(container_of(t, struct rpc_events, again));
}

/* ---- events come ---- */

static double unix_time(uint64_t age_us)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9 - (double)age_us / 1e6;
}

/* Writes a sentence of the table, in which `{member}` stands for a member of the event. */
static void expand(const char *text, const json_t *members, char *out, size_t len)
{
    FILE *f = fmemopen(out, len, "w");

    out[0] = '\0';
    for (const char *end; f && text && *text; text = end) {
        char key[16] = "";
        const json_t *value = NULL;

        end = text + 1 + strcspn(text + 1, "{");
        if (sscanf(text, "{%15[a-z]}", key) == 1 && (value = json_object_get(members, key)))
            end = strchr(text, '}') + 1;
        if (json_is_string(value))
            fputs(json_string_value(value), f);
        else if (value)
            fprintf(f, "%lld", (long long)json_integer_value(value));
        else
            fwrite(text, 1, (size_t)(end - text), f);
    }
    if (f)
        fclose(f);
}

/* Adds an event. text NULL: the sentence of its type. more is taken. */
static void add(struct rpc_events *ev, unsigned type, uint64_t age_us, const char *cause,
                const char *text, json_t *more)
{
    struct event *e = event_at(ev, ev->seq);
    uint64_t missed = ev->missed_new;
    json_t *members =
        json_pack("{s:f, s:s, s:s, s:s*, s:s}", "time", unix_time(age_us), "type", types[type].name,
                  "text", "", "state", types[type].state, "cause", cause);
    char sentence[TEXT_MAX];
    struct sub *sub;

    if (more)
        json_object_update(members, more);
    json_decref(more);
    if (!text) {
        expand(types[type].text, members, sentence, sizeof(sentence));
        text = sentence;
    }
    json_object_set_new(members, "text", json_string(text));
    json_object_set_new(members, "seq", json_integer((json_int_t)(ev->seq + ev->missed)));
    LIST_FOREACH(sub, &ev->subs, link) {
        if (ev->seq >= RPC_EVENTS_KEPT && sub->at <= ev->seq - RPC_EVENTS_KEPT)
            skip_one(sub); /* its place is needed */
        sub->missed += missed;
    }
    json_decref(e->members);
    *e = (struct event){members, type, json_string_value(json_object_get(members, "nid")),
                        json_string_value(json_object_get(members, "gateway")),
                        json_string_value(json_object_get(members, "address"))};
    ev->missed_new = 0;
    ev->seq++;
    LIST_FOREACH(sub, &ev->subs, link)
        sub_add(sub, e);
    if (ev->listener)
        ev->listener(ev->listener_arg, members, missed);
    post(ev);
}

static unsigned find_type(const char *name)
{
    unsigned i;

    for (i = 0; i < TYPES && strcmp(types[i].name, name) != 0; i++)
        ;
    return i;
}

bool rpc_event_is_trouble(const char *name)
{
    unsigned i = find_type(name);

    return i < TYPES && types[i].trouble;
}

void rpc_events_emit(struct rpc_ctx *ctx, const char *type, const char *cause, const char *text,
                     json_t *more)
{
    unsigned i = find_type(type);

    if (ctx->events && i < TYPES)
        add(ctx->events, i, 0, cause, text, more);
    else
        json_decref(more);
}

/* ---- events of the node ---- */

/* NULL: no message is known. */
static json_t *message_of(const struct lnet_event_msg *msg)
{
    if (!msg->known)
        return NULL;
    return json_pack("{s:s, s:o, s:o}", "type", lnet_msg_type_name(msg->type), "src",
                     rpc_nid(&msg->src), "dest", rpc_nid(&msg->dest));
}

static json_t *members_of(const struct lnet_node_event *row)
{
    static const char *const routing[] = {"off", "on", "stopping", "starting"};

    switch (row->kind) {
    case LNET_NODE_EV_ROUTE_UP:
    case LNET_NODE_EV_ROUTE_DOWN:
        return json_pack("{s:o, s:o}", "net", rpc_net(row->net), "gateway", rpc_nid(&row->nid));
    case LNET_NODE_EV_BUFFERS_EXHAUSTED:
    case LNET_NODE_EV_BUFFERS_FREE:
        return json_pack("{s:s, s:i}", "pool", rpc_pool_names[(unsigned)row->value % LNET_POOLS],
                         "reactor", (int)row->reactor);
    case LNET_NODE_EV_NI_HEALTH:
    case LNET_NODE_EV_PEER_HEALTH:
        return json_pack("{s:o, s:s, s:i, s:s*, s:o*}", "nid", rpc_nid(&row->nid), "state",
                         row->value == LNET_MAX_HEALTH ? "healthy" : "unhealthy", "health",
                         row->value, "reason", row->drop ? lnet_drop_info(row->drop)->name : NULL,
                         "message", message_of(&row->msg));
    case LNET_NODE_EV_ROUTING:
        return json_pack("{s:s}", "state", routing[row->value & 3]);
    default:
        return json_pack("{s:o}", "nid", rpc_nid(&row->nid));
    }
}

/* Writes the sentence about a change of health with the message that caused it. */
static const char *health_text(const struct lnet_node_event *row, char out[TEXT_MAX])
{
    char nid[LNET_NIDSTR_SIZE], src[LNET_NIDSTR_SIZE], dest[LNET_NIDSTR_SIZE];

    if (!row->msg.known)
        return NULL;
    snprintf(out, TEXT_MAX, "the health of %s %s is %d: a %s from %s to %s %s",
             row->kind == LNET_NODE_EV_NI_HEALTH ? "NI" : "peer NI", nid_format(&row->nid, nid),
             row->value, lnet_msg_type_name(row->msg.type), nid_format(&row->msg.src, src),
             nid_format(&row->msg.dest, dest), row->drop ? "failed" : "got through");
    return out;
}

static void add_row(struct rpc_events *ev, const struct lnet_node_event *row, uint64_t now_us)
{
    char text[TEXT_MAX];
    const char *cause = row->cause  ? row->cause
                        : row->drop ? lnet_drop_info(row->drop)->name
                                    : "unspecified";

    add(ev, row->kind, now_us > row->when_us ? now_us - row->when_us : 0, cause,
        health_text(row, text), members_of(row));
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

static void watch(struct rpc_ctx *ctx, bool on)
{
    if (on != ctx->events->watching)
        lnet_node_events_watch(ctx->control->node, on ? node_events : NULL, ctx->events);
    ctx->events->watching = on;
}

static void phase(void *arg, enum control_phase phase)
{
    if (phase == CONTROL_STARTED || phase == CONTROL_HALTED)
        watch(arg, phase == CONTROL_STARTED);
}

static void controller_event(void *arg, const struct control_event *event)
{
    const struct lnet_ni_conf *ni = event->ni;
    json_t *more = NULL;

    if (ni)
        more = json_pack("{s:o, s:o*, s:o*}", "net", rpc_net(ni->net), "nid",
                         nid_is_any(&ni->nid) ? NULL : rpc_nid(&ni->nid), "interface",
                         ni->ifname[0] ? json_string(ni->ifname) : NULL);
    else if (event->count)
        more = json_pack("{s:I, s:o*}", "count", (json_int_t)event->count, "nid",
                         event->peer ? rpc_nid(event->peer) : NULL);
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
    watch(ctx, false);
    reactor_timer_cancel(&ev->again);
    while ((sub = LIST_FIRST(&ev->subs))) {
        LIST_REMOVE(sub, link);
        sub->session->closed = NULL;
        sub_free(sub);
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
    *out = UINT32_MAX;
    if (!arg->given)
        return true;
    *out = 0;
    for (size_t i = 0; i < json_array_size(arg->value); i++) {
        const char *name = json_string_value(json_array_get(arg->value, i));

        unsigned k = find_type(name);

        if (k == TYPES) {
            jrpc_refuse(call, "types", "docs/jsonrpc.md lists the types of events",
                        "there is no event '%.40s'", name);
            return false;
        }
        *out |= 1u << k;
    }
    return true;
}

/* NULL: the call has been ended. */
static json_t *read_nids(struct jrpc_call *call, const struct jrpc_arg *arg)
{
    json_t *nids = json_array();

    for (size_t i = 0; arg->given && i < json_array_size(arg->value); i++) {
        const char *text = json_string_value(json_array_get(arg->value, i));
        struct lnet_nid nid;

        if (nid_parse(text, &nid) != 0 || nid_is_any(&nid)) {
            jrpc_refuse(call, "nids", "give address@net, as in 10.0.0.1@tcp",
                        "'%.64s' is not a NID", text);
            json_decref(nids);
            return NULL;
        }
        json_array_append_new(nids, rpc_nid(&nid));
    }
    return nids;
}

static bool room_for(struct jrpc_call *call, const struct rpc_events *ev,
                     const struct jrpc_session *session)
{
    const struct sub *sub;
    unsigned n = 0, of_user = 0;

    LIST_FOREACH(sub, &ev->subs, link) {
        n += sub->session == session;
        of_user += sub->session->who.uid == session->who.uid;
    }
    if (n < RPC_EVENTS_SUBS && ev->nsubs + of_user < RPC_EVENTS_SUBS_ALL)
        return true;
    jrpc_fail(
        call, EMFILE, NULL, "end one with events_unsubscribe, or close other clients",
        "no more subscriptions: at most %u of one client, %u of all, and of one user no more than "
        "are free",
        RPC_EVENTS_SUBS, RPC_EVENTS_SUBS_ALL);
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
    if (!read_types(call, &args[0], &sub->types) || !(sub->nids = read_nids(call, &args[1]))) {
        free(sub);
        return;
    }
    sub->events = ev;
    sub->session = session;
    sub->id = ++ev->last_id;
    sub->at = ev->seq;
    sub->queue = args[2].given ? (uint32_t)args[2].integer : RPC_EVENTS_QUEUE;
    LIST_INSERT_HEAD(&ev->subs, sub, link);
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
