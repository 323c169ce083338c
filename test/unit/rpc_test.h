/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of methods share: a real node with a network driver that delivers nothing, and one
 * session. The node's reactor and the control reactor are stepped by the test.
 */
#ifndef MILLRACE_RPC_TEST_H
#define MILLRACE_RPC_TEST_H

#include "lib/base/err.h"
#include "test/unit/reactor_test.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "rpc/methods/events.h"
#include "rpc/methods/methods.h"
#include "rpc/methods/timed.h"
#include "test/unit/lnet_rooms.h"

static struct lnet_node *node;
static struct controller control;
static struct rpc_ctx ctx = {.control = &control};
static struct jrpc engine = {
    .methods = rpc_method_table, .handlers = rpc_handlers, .started = true, .ctx = &ctx};
static struct jrpc_session session;
static json_t *answer; /* the last response */
static json_t *notes;  /* the notifications so far */
static unsigned drain; /* what shutdown was called with */
static bool stopped;
static unsigned nreactors = 1;

/* ---- a driver ---- */

static int fake_init(struct lnet_ni *ni, struct err *err)
{
    ni->tun = (struct lnet_tunables){180, 8, 0, 256};
    ni->lnd_tun = (struct lnd_tunables){4, 50, -1};
    return 0;
}

static const char *start_fails_at; /* NIs cannot be started: the error's position; NULL: they can */

static int fake_start(struct lnet_ni *ni, struct err *err)
{
    if (!start_fails_at)
        return 0;
    err_set(err, -EADDRINUSE, "fake: cannot start");
    err_remedy(err, "free the address");
    err_where(err, "%s", start_fails_at);
    return -EADDRINUSE;
}

static void fake_stop(struct lnet_ni *ni, struct reactor_task *done)
{
    reactor_post(reactor_control(env), done);
}

static void fake_fini(struct lnet_ni *ni)
{
}

static int fake_set(struct lnet_ni *ni, const struct lnd_tunables *tun, struct err *err)
{
    if (tun->conns_per_peer != -1)
        ni->lnd_tun.conns_per_peer = tun->conns_per_peer;
    if (tun->timeout != -1)
        ni->lnd_tun.timeout = tun->timeout;
    return 0;
}

static void fake_send(struct lnet_msg *msg)
{
    lnet_send_done(msg, (struct lnet_result){LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR});
}

static void fake_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why)
{
}

static void fake_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    *out = (struct lnd_peer_info){.conns = {0, 1, 2, 3}, .bytes_in = 1u << 31, .bytes_out = 7};
}

static void fake_free(struct lnet_peer_ni *peer)
{
}

static const struct lnd_ops fake = {.name = "tcp",
                                    .type = LNET_LND_SOCK,
                                    .ni_init = fake_init,
                                    .ni_start = fake_start,
                                    .ni_quiesce = fake_stop,
                                    .ni_stop = fake_stop,
                                    .ni_fini = fake_fini,
                                    .ni_set = fake_set,
                                    .send = fake_send,
                                    .peer_abort = fake_abort,
                                    .peer_info = fake_info,
                                    .peer_free = fake_free};

/* ---- around the tests ---- */

static inline void step_all(void)
{
    for (unsigned i = 0; i < nreactors; i++) {
        reactor_bind(reactor_at(env, i));
        reactor_step(reactor_at(env, i), 0);
    }
    reactor_bind(reactor_control(env));
    reactor_step(reactor_control(env), 0);
}

#define RUN_UNTIL(cond)                                                                            \
    do {                                                                                           \
        uint64_t until_us = reactor_now_us() + DEADLINE_US;                                        \
                                                                                                   \
        while (!(cond)) {                                                                          \
            if (reactor_now_us() > until_us)                                                       \
                fail_msg("never happened: %s", #cond);                                             \
            step_all();                                                                            \
        }                                                                                          \
    } while (0)

static void take(void *arg, const char *text, size_t len)
{
    json_t *value = json_loadb(text, len, 0, NULL);

    assert_non_null(value);
    if (json_object_get(value, "method")) {
        json_array_append_new(notes, value);
        return;
    }
    json_decref(answer);
    answer = value;
}

static void note_shutdown(struct controller *c, unsigned drain_s)
{
    assert_ptr_equal(c, &control);
    drain = drain_s;
}

static void note_stopped(void *arg)
{
    stopped = true;
}

static inline void add_ni(const char *text, const char *ifname)
{
    struct lnet_ni_conf conf = {.tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};
    struct err err = {0};

    assert_int_equal(nid_parse(text, &conf.nid), 0);
    conf.net = nid_net(&conf.nid);
    snprintf(conf.ifname, sizeof(conf.ifname), "%s", ifname);
    if (lnet_ni_add(node, &conf, NULL, &err) != 0)
        fail_msg("%s", err.message);
}

/* What setup() makes by hand. */
static struct cfg_running *make_document(void)
{
    static const char text[] =
        "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp, interfaces: {0: eth0}}, "
        "{nid: 10.0.0.2@tcp, interfaces: {0: eth0}}]}, "
        "{net type: tcp1, local NI(s): [{nid: 10.1.0.1@tcp1}]}]\n"
        "buffers: {tiny: 16, small: 8, large: 2}\n"
        "millrace: {reactors: 1, max_peers: 64}\n";
    struct cfg_report report;
    struct cfg *cfg;

    if (cfg_parse("document", text, strlen(text), &cfg, &report) != 0)
        fail_msg("%s", report.message[0].text);
    cfg_report_free(&report);
    return cfg_running_new(cfg, "/tmp/document.yaml");
}

static int setup(void **state)
{
    struct lnet_node_opts opts = {.routing = true,
                                  .tiny = 16 * nreactors,
                                  .small = 8 * nreactors,
                                  .large = 2 * nreactors,
                                  .memory = ((3u << 20) + (1 << 20) / 4) *
                                            nreactors, /* room for another large one */
                                  .max_peers = 64,
                                  .local_msgs = 16};
    struct err err = {0};

    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", nreactors);
    opts.env = env;
    if (lnet_node_create(&opts, &node, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(lnet_lnd_register(node, &fake, NULL), 0);
    add_ni("10.0.0.1@tcp", "eth0");
    add_ni("10.1.0.1@tcp1", "");
    add_ni("10.0.0.2@tcp", "eth0");
    assert_int_equal(lnet_node_start(node, &err), 0);
    ctx = (struct rpc_ctx){.control = &control};
    control = (struct controller){.node = node,
                                  .env = env,
                                  .running = make_document(),
                                  .drain_s = 9,
                                  .start_us = reactor_now_us(),
                                  .shutdown = note_shutdown};
    assert_int_equal(rpc_events_start(&ctx), 0);
    control_apply_start(&control);
    control_enter(&control, CONTROL_STARTED);
    notes = json_array();
    jrpc_session_init(&session, &engine, take, NULL);
    session.role = JRPC_ADMIN;
    step_all();
    return 0;
}

static int teardown(void **state)
{
    jrpc_session_close(&session);
    control_drain_stop(&control);
    json_decref(answer);
    json_decref(notes);
    lnet_node_stop(node, 0, note_stopped, NULL);
    RUN_UNTIL(stopped);
    rpc_timed_stop(&ctx);
    rpc_events_stop(&ctx);
    cfg_running_free(control.running);
    lnet_node_destroy(node);
    reactor_env_destroy(env);
    return 0;
}

/* Calls a method with params (JSON, "" = none) and waits for the response. */
static inline void call(const char *method, const char *params)
{
    char text[1024];

    json_decref(answer);
    answer = NULL;
    snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"%s%s}", method,
             params[0] ? ",\"params\":" : "", params);
    jrpc_input(&session, text, strlen(text));
    RUN_UNTIL(answer);
}

static inline json_t *result(const char *method, const char *params)
{
    call(method, params);
    if (!json_object_get(answer, "result"))
        fail_msg("%s %s: %s", method, params, json_dumps(answer, 0));
    return json_object_get(answer, "result");
}

static inline void is_true(const char *method, const char *params)
{
    json_t *value = result(method, params); /* the macros of jansson evaluate theirs twice */

    assert_true(json_is_true(value));
}

/* The call fails with code; a parameter (NULL: any) is named and the remedy said. */
static inline void fails(const char *method, const char *params, int code, const char *parameter)
{
    json_t *error, *data;

    call(method, params);
    error = json_object_get(answer, "error");
    data = json_object_get(error, "data");
    if (json_integer_value(json_object_get(error, "code")) != code)
        fail_msg("%s %s: %s", method, params, json_dumps(answer, 0));
    assert_true(json_string_length(json_object_get(error, "message")) > 0);
    if (parameter)
        assert_string_equal(json_string_value(json_object_get(data, "parameter")), parameter);
}

/* The value at a path of keys and indices, which must be there. */
static inline json_t *at(json_t *value, const char *path)
{
    char copy[256], *save, *word;

    snprintf(copy, sizeof(copy), "%s", path);
    for (word = strtok_r(copy, "/", &save); word && value; word = strtok_r(NULL, "/", &save))
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(word))
                                     : json_object_get(value, word);
    if (!value)
        fail_msg("there is no %s", path);
    return value;
}

/* Its keys are these, in this order. */
static inline void is_in_order(json_t *object, const char *keys)
{
    char all[512] = "";
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value) {
        strcat(all, all[0] ? "," : "");
        strcat(all, key);
    }
    assert_string_equal(all, keys);
}

#define IS(value, path, text) assert_string_equal(json_string_value(at(value, path)), text)
#define TEXT(value, path)     json_string_value(at(value, path))
#define NUMBER(value, path)   json_integer_value(at(value, path))

#define LARGE_MOST      3 /* of what node.memory has room for */
#define LARGE_MOST_TEXT "3"

static inline struct lnet_router_pool *router_pool(unsigned reactor, enum lnet_pool pool)
{
    return &node->shard[reactor]->credit->pool[pool];
}

static inline struct lnet_peer_ni *make_peer(const char *text)
{
    struct lnet_peer_ni *peer;
    struct lnet_nid nid;

    assert_int_equal(nid_parse(text, &nid), 0);
    reactor_bind(reactor_at(env, 0));
    peer = lnet_peer_ni_get(node, &nid);
    assert_non_null(peer);
    reactor_bind(reactor_control(env));
    return peer;
}

static inline void drop_peer(struct lnet_peer_ni *peer)
{
    reactor_bind(reactor_at(env, 0));
    lnet_peer_ni_put(peer);
    reactor_bind(reactor_control(env));
}

#endif
