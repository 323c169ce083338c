/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: one JSON-RPC value, which runs against the real table of methods and a node of one reactor
 * over a driver that delivers nothing (test/unit/rpc_test.h). The mutator knows the table: it
 * builds calls from the names and parameter types of the methods, changes values, types and
 * batches, and leaves some inputs to libFuzzer. Node, document and session live on across inputs.
 *
 * Each response is either a result or an error with a message. After each input no call is open. A
 * document that was changed is saved, read again and compared with the running document; then the
 * first document is applied again.
 */
#include "test/unit/rpc_test.h"

#include "config/save.h"
#include "config/write.h"
#include "control/diff.h"
#include "test/fuzz/fuzz_calls.h"
#include "test/fuzz/fuzz_clock.h"

#include <dirent.h>
#include <unistd.h>

#include <rte_common.h>

#define BATCH_MAX  3    /* the node lives on: more calls follow with the next input */
#define EVENTS_MAX 8    /* of a call; seldom more */
#define ROUNDS     4000 /* of the reactors, until each call has ended */

static char folder[] = "/dev/shm/fuzz_rpc.XXXXXX";
static char file[sizeof(folder) + 16];
static char *first_text; /* the document of the start */
static uint64_t now_us = 1000000000;
static bool answered;

/* ---- memory of the target's own JSON ---- */

/* For one reply that is read, or one input that is made: ASan's own takes a fifth of the time. */
static _Alignas(16) uint8_t arena[64 << 20];
static size_t arena_used;

static void *arena_get(size_t n)
{
    uint8_t *p = arena + arena_used;

    arena_used += RTE_ALIGN_CEIL(n, 16);
    return arena_used <= sizeof(arena) ? p : NULL;
}

static void arena_keep(void *p)
{
    (void)p;
}

static void arena_begin(void)
{
    arena_used = 0;
    json_set_alloc_funcs(arena_get, arena_keep);
}

/* All of the arena is free again. */
static void arena_end(void)
{
    json_set_alloc_funcs(malloc, free);
}

/* ---- the mutator ---- */

static unsigned rnd(unsigned n)
{
    return (unsigned)rand() % n;
}

static const char *const strings[] = {
    "",
    "x",
    "tcp",
    "tcp1",
    "o2ib",
    "tcp7",
    "10.0.0.1@tcp",
    "10.0.0.2@tcp",
    "10.1.0.1@tcp1",
    "10.0.0.9@tcp",
    "10.1.0.9@tcp1",
    "fd00::1@tcp",
    "0@lo",
    "<?>",
    "all",
    "eth0",
    "lo",
    "p0",
    "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}]\n",
    "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp, interfaces: {0: eth0}}, {nid: "
    "10.0.0.3@tcp, interfaces: {0: eth0}}]}]\nroute: [{net: o2ib, gateway: 10.0.0.9@tcp}]\n"
    "buffers: {tiny: 16, small: 8, large: 2}\nmillrace: {reactors: 1, max_peers: 64}\n",
    "route: [{net: o2ib5, gateway: 10.1.0.9@tcp1, hop: 2, priority: 3}]\n",
    "peer: [{primary nid: 10.0.0.8@tcp, peer ni: [{nid: 10.0.0.8@tcp}, {nid: 10.1.0.8@tcp1}]}]\n",
    "millrace: {names: {10.0.0.2@tcp: oss}}\n",
    "global: {transaction_timeout: 20}\n"};
static const int64_t integers[] = {0,   1,   -1,   2,     8,     16,        64,        128,
                                   255, 256, 4096, 65535, 65536, INT32_MAX, INT64_MAX, INT64_MIN};

static json_t *some_string(void)
{
    return json_string(strings[rnd(RTE_DIM(strings))]);
}

static json_t *any_value(void)
{
    switch (rnd(7)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(rnd(2));
    case 2:
        return json_real(rnd(100) / 3.0);
    case 3:
        return json_pack("[s]", "x");
    case 4:
        return json_pack("{s:i}", "x", 1);
    case 5:
        return json_integer(integers[rnd(RTE_DIM(integers))]);
    default:
        return some_string();
    }
}

static json_t *word_of(const struct jrpc_param *p)
{
    unsigned n = 0;

    while (p->words && p->words[n])
        n++;
    return n == 0 ? some_string() : json_string(p->words[rnd(n)]);
}

static json_t *strings_of(void)
{
    json_t *list = json_array();

    for (unsigned n = rnd(4); n > 0; n--)
        json_array_append_new(list, some_string());
    return list;
}

/* A value of the parameter's type, near its limits more often than not. */
static json_t *value_of(const struct jrpc_param *p)
{
    if (rnd(16) == 0)
        return any_value();
    switch (p->type) {
    case JRPC_INTEGER:
    case JRPC_NUMBER:
        return json_integer(rnd(4) == 0   ? integers[rnd(RTE_DIM(integers))]
                            : rnd(3) == 0 ? p->max
                            : rnd(2) == 0 ? p->min
                                          : p->min + (int64_t)rnd(10));
    case JRPC_BOOLEAN:
        return json_boolean(rnd(2));
    case JRPC_WORD:
        return word_of(p);
    case JRPC_STRINGS:
        return strings_of();
    case JRPC_NET:
        return json_string(strings[2 + rnd(4)]);
    case JRPC_NID:
        return json_string(strings[6 + rnd(7)]);
    default:
        return strcmp(p->name, "path") == 0 && rnd(4) > 0 ? json_string(file) : some_string();
    }
}

/* Whether the method describes the interface: up to 200 KiB that no input changes. The kept corpus
 * has one such call; the mutator makes none, and copies none. */
static bool describes(const struct jrpc_method *m)
{
    return strcmp(m->name, "rpc.discover") == 0 || strcmp(m->name, "rpc_methods") == 0;
}

static const struct jrpc_method *some_method(void)
{
    static unsigned n;
    const struct jrpc_method *m;

    while (rpc_method_table[n].name)
        n++;
    do {
        m = &rpc_method_table[rnd(n)];
    } while (describes(m));
    return m;
}

static const struct jrpc_method *method_named(const json_t *name)
{
    const struct jrpc_method *m = rpc_method_table;

    while (m->name && (!json_is_string(name) || strcmp(m->name, json_string_value(name)) != 0))
        m++;
    return m->name ? m : NULL;
}

static json_t *make_params(const struct jrpc_method *m)
{
    bool by_position = rnd(4) == 0;
    json_t *params = by_position ? json_array() : json_object();

    for (const struct jrpc_param *p = m->params; p && p->name; p++) {
        if (by_position)
            json_array_append_new(params, value_of(p));
        else if (p->required ? rnd(16) > 0 : rnd(3) == 0)
            json_object_set_new(params, p->name, value_of(p));
    }
    return params;
}

static json_t *make_call(void)
{
    const struct jrpc_method *m = some_method();

    return json_pack("{s:s, s:i, s:s, s:o}", "jsonrpc", "2.0", "id", 1, "method", m->name, "params",
                     make_params(m));
}

/* One parameter is set, changed, removed, or takes any type. */
static void change_call(json_t *call)
{
    const struct jrpc_method *m = method_named(json_object_get(call, "method"));
    json_t *params = json_object_get(call, "params");
    const struct jrpc_param *p = m ? m->params : NULL;
    unsigned n = 0;

    while (p && p[n].name)
        n++;
    if (n == 0 || !json_is_object(params) || rnd(16) == 0) {
        if (m && rnd(4) > 0)
            json_object_set_new(call, "params", make_params(m));
        else
            json_object_set_new(call, rnd(2) ? "id" : "params", any_value());
        return;
    }
    p += rnd(n);
    if (rnd(4) == 0)
        json_object_del(params, p->name);
    else
        json_object_set_new(params, p->name, rnd(8) == 0 ? any_value() : value_of(p));
}

static bool is_one_of(const char *name, const char *a, const char *b)
{
    return strcmp(name, a) == 0 || strcmp(name, b) == 0;
}

/* Limits a call to few events: 1024 are kept, and their rows are 200 KB. */
static void limit_events(json_t *call)
{
    json_t *params = json_object_get(call, "params");
    const json_t *limit =
        json_is_object(params) ? json_object_get(params, "limit") : json_array_get(params, 0);

    if (limit && (!json_is_integer(limit) || json_integer_value(limit) <= EVENTS_MAX))
        return; /* few, or an error */
    if (json_is_object(params))
        json_object_set_new(params, "limit", json_integer(EVENTS_MAX));
    else
        json_object_set_new(call, "params", json_pack("[i]", EVENTS_MAX));
}

/* Tables of several hundred rows, which take as much time as up to fifty other calls. Three methods
 * have a first parameter that selects rows, and seldom go without it; of two, whose rows no input
 * changes, few calls remain. The kept corpus has each once in full. */
static bool is_too_long(const struct jrpc_method *m, json_t *call)
{
    json_t *params = json_object_get(call, "params");

    if (rnd(32) == 0)
        return false;
    if (strcmp(m->name, "events_get") == 0)
        limit_events(call);
    if (is_one_of(m->name, "counters_capture", "tunables_get")) {
        if (json_is_object(params) && !json_object_get(params, m->params[0].name))
            json_object_set_new(params, m->params[0].name, value_of(&m->params[0]));
        else if (!json_is_object(params) && json_array_size(params) == 0)
            json_object_set_new(call, "params", json_pack("[o]", value_of(&m->params[0])));
    }
    return is_one_of(m->name, "drops_get", "pkt_drops_get");
}

static void limit_answers(json_t *batch)
{
    for (size_t i = json_array_size(batch); i-- > 0;) {
        json_t *call = json_array_get(batch, i);
        const struct jrpc_method *m = method_named(json_object_get(call, "method"));

        if (m && (describes(m) || is_too_long(m, call)))
            json_array_remove(batch, i);
    }
}

static void change_batch(json_t *batch)
{
    size_t n = json_array_size(batch);
    unsigned how = rnd(6);

    if (n == 0 || (how == 0 && n < BATCH_MAX))
        json_array_append_new(batch, make_call());
    else if (how == 1 && n > 1)
        json_array_remove(batch, rnd((unsigned)n));
    else if (how == 2)
        json_array_set_new(batch, rnd((unsigned)n), make_call());
    else if (how == 3 && n < BATCH_MAX)
        json_array_insert_new(batch, 0, json_deep_copy(json_array_get(batch, rnd((unsigned)n))));
    else if (json_is_object(json_array_get(batch, how % n)))
        change_call(json_array_get(batch, how % n));
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed)
{
    json_t *batch;
    size_t len;

    srand(seed);
    if (rnd(10) == 0)
        return LLVMFuzzerMutate(data, size, max);
    arena_begin();
    batch = json_loadb((const char *)data, size, 0, NULL);
    if (json_is_object(batch))
        batch = json_pack("[o]", batch);
    if (!json_is_array(batch))
        batch = json_array();
    for (unsigned n = 1 + rnd(3); n > 0; n--)
        change_batch(batch);
    while (json_array_size(batch) > BATCH_MAX)
        json_array_remove(batch, 0);
    limit_answers(batch);
    len = json_dumpb(batch, (char *)data, max, JSON_COMPACT);
    arena_end();
    return len == 0 || len > max ? LLVMFuzzerMutate(data, size, max) : len;
}

/* ---- responses ---- */

static void check_one(const json_t *response)
{
    const json_t *error = json_object_get(response, "error");

    if (json_object_get(response, "method"))
        return;
    HOLDS(json_object_get(response, "id"));
    HOLDS(!json_object_get(response, "result") != !error);
    if (error)
        HOLDS(json_integer_value(json_object_get(error, "code")) != 0 &&
              json_string_length(json_object_get(error, "message")) > 0);
}

static void check_reply(void *arg, const char *text, size_t len)
{
    json_t *reply, *one;
    size_t i;

    (void)arg;
    arena_begin();
    reply = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    HOLDS(reply);
    json_array_foreach(reply, i, one)
        check_one(one);
    if (!json_is_array(reply))
        check_one(reply);
    answered |= !json_object_get(reply, "method");
    arena_end();
}

/* Until each call has ended: those that measure or wait take their time. */
static void run(void)
{
    for (unsigned i = 0; i < ROUNDS && (i < 2 || session.open_calls > 0); i++) {
        if (i % 4 == 3)
            reactor_test_clock(now_us += i < 40 ? 1000 : 1000000);
        step_all();
    }
    HOLDS(session.open_calls == 0);
}

static void say(const char *method, json_t *params)
{
    json_t *call = json_pack("{s:s, s:i, s:s, s:o}", "jsonrpc", "2.0", "id", 1, "method", method,
                             "params", params);
    char *text = json_dumps(call, JSON_COMPACT);

    HOLDS(text);
    answered = false;
    jrpc_input(&session, text, strlen(text));
    run();
    HOLDS(answered);
    free(text);
    json_decref(call);
}

/* ---- the document ---- */

static const struct cfg *running(void)
{
    return cfg_running_get(control.running);
}

static void must_be(const struct cfg *a, const struct cfg *b)
{
    struct cfg_diff diff;

    cfg_diff_make(a, b, &diff);
    HOLDS(!diff.failed && diff.count == 0);
    cfg_diff_free(&diff);
}

/* The text of the running document, and the file it is saved in, are read as the same document. */
static void check_saved(void)
{
    struct err err = {0};
    struct cfg_report report;
    enum cfg_saved how;
    struct cfg *again;
    char *text, *old = cfg_text(running(), CFG_FORM_FILE);

    HOLDS(old);
    if (cfg_parse("running", old, strlen(old), &again, &report) != 0) {
        fprintf(stderr, "%s\n%s\n", report.message[0].text, old);
        abort();
    }
    cfg_report_free(&report);
    must_be(running(), again);
    cfg_free(again);
    free(old);
    if (cfg_save_text("first", first_text, strlen(first_text), running(), &text, &how, &err) != 0)
        return;
    HOLDS(cfg_parse("saved", text, strlen(text), &again, &report) == 0);
    cfg_report_free(&report);
    must_be(running(), again);
    cfg_free(again);
    free(text);
}

static void empty_folder(void)
{
    char path[sizeof(folder) + 257];
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    closedir(dir);
}

static void end_folder(void)
{
    empty_folder();
    rmdir(folder);
}

/* ---- the process ---- */

static void begin(void)
{
    const struct cfg *document;
    struct cfg *copy;

    if (node)
        return;
    (void)teardown; /* the node lives until the process ends */
    HOLDS(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/file.yaml", folder);
    atexit(end_folder);
    reactor_test_clock(now_us);
    HOLDS(setup(NULL) == 0);
    jrpc_session_close(&session);
    document = running();
    first_text = cfg_text(document, CFG_FORM_FILE);
    copy = cfg_copy(document);
    HOLDS(first_text && copy);
    rpc_events_stop(&ctx);
    control.listeners = NULL; /* the only one was part of the events that were freed */
    cfg_running_free(control.running);
    control.running = cfg_running_new(copy, file);
    HOLDS(control.running && rpc_events_start(&ctx) == 0);
    control_apply_start(&control);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The node keeps some memory of most calls. libFuzzer would play each such input twice and search
 * the whole heap, which takes half of the time. Leaks are found when the process ends. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char no_search[] = "-detect_leaks=0";
    char **args = calloc((size_t)*argc + 2, sizeof(*args));

    HOLDS(args);
    args[0] = (*argv)[0];
    args[1] = no_search; /* before what was asked for, which is taken then */
    memcpy(args + 2, *argv + 1, ((size_t)*argc - 1) * sizeof(*args));
    *argv = args;
    *argc += 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned revision;

    begin();
    jrpc_session_init(&session, &engine, check_reply, NULL);
    session.role = JRPC_ADMIN;
    jrpc_input(&session, (const char *)data, size);
    run();
    if (cfg_running_revision(control.running) != revision) {
        check_saved();
        say("config_confirm", json_object());
        say("config_apply", json_pack("{s:s}", "text", first_text));
        revision = cfg_running_revision(control.running);
    }
    jrpc_session_close(&session);
    step_all();
    json_array_clear(notes);
    empty_folder();
    return 0;
}
