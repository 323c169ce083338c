/* SPDX-License-Identifier: BSD-3-Clause */
/* tamper_set, tamper_get, tamper_clear: fault injection at the ports. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/base/err.h"
#include "rpc/methods/port.h"
#include "test/faults/tamper.h"

#define SEED         1
#define REORDER_US   1000
#define PPM(percent) ((uint32_t)lround((percent) * (TAMPER_ALL / 100.0)))
#define US(ms)       ((uint32_t)lround((ms)*1000.0))

static const char *way(bool out)
{
    return out ? "out" : "in";
}

/* Of the words in, out, both. */
static bool is_meant(const struct jrpc_arg *direction, bool out)
{
    return !direction->given || direction->integer == 2 || direction->integer == out;
}

/* The ports that a call is about. False: it has failed. */
static bool ports_of(struct jrpc_call *call, const struct jrpc_arg *name,
                     struct port *port[PORT_MAX], unsigned *n)
{
    if (!name->given) {
        *n = rpc_ports(jrpc_ctx(call), port);
        return true;
    }
    port[0] = rpc_port_find(call, name->string);
    *n = 1;
    return port[0] != NULL;
}

/* Args from the first filter on, in the order of the method's row. */
static void read_conf(const struct jrpc_arg *a, struct tamper_conf *c)
{
    c->tcp_port = (uint16_t)a[1].integer;
    c->ip = a[2].boolean;
    c->payload = a[3].boolean;
    c->longer = (uint16_t)a[4].integer;
    c->chance = PPM(a[5].number);
    c->loss = PPM(a[6].number);
    c->burst_enter = PPM(a[7].number);
    c->burst_leave = PPM(a[8].number);
    c->duplicate = PPM(a[9].number);
    c->corrupt = PPM(a[10].number);
    c->delay_us = US(a[11].number);
    c->jitter_us = US(a[12].number);
    c->reorder = PPM(a[13].number);
    c->reorder_us = a[14].given ? US(a[14].number) : c->reorder ? REORDER_US : 0;
    c->rate = (uint64_t)llround(a[15].number * 1e6);
    c->queue_bytes = (uint32_t)(a[16].integer * 1024);
    c->queue_packets = (uint32_t)a[17].integer;
    c->cut = a[18].boolean;
    c->seed = a[19].given ? (uint64_t)a[19].integer : SEED;
}

void rpc_tamper_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct tamper_conf conf = {.has_peer = args[3].given};
    struct port *port[PORT_MAX];
    struct err err = {0};
    struct inet_addr peer;
    unsigned n, id;
    json_t *set;
    int rc = 0;

    if (args[3].given && !rpc_inet_arg(call, &args[3], "peer", &peer))
        return;
    if (args[3].given)
        memcpy(conf.peer, peer.b, sizeof(conf.peer));
    if (!ports_of(call, &args[0], port, &n))
        return;
    read_conf(args + 3, &conf);
    set = json_array();
    for (unsigned i = 0; i < n; i++) {
        for (int out = 0; out < 2 && rc == 0; out++) {
            if (!is_meant(&args[1], out))
                continue;
            rc = port_tamper_set(port[i], out, &conf, args[2].boolean, &id, &err);
            if (rc == 0)
                json_array_append_new(set,
                                      json_pack("{s:s, s:s, s:I}", "port", port[i]->name,
                                                "direction", way(out), "rule", (json_int_t)id));
        }
    }
    if (rc == 0) {
        jrpc_result(call, json_pack("{s:o}", "set", set));
        return;
    }
    json_decref(set);
    jrpc_fail(call, -rc, NULL, "tamper_get shows the rules there are", "%s", err.message);
}

/* What a rule does not have is left out. */
static void put_share(json_t *row, const char *name, uint32_t ppm)
{
    if (ppm)
        json_object_set_new(row, name, json_real(ppm * 100.0 / TAMPER_ALL));
}

static void put_ms(json_t *row, const char *name, uint32_t us)
{
    if (us)
        json_object_set_new(row, name, json_real(us / 1000.0));
}

static void put_count(json_t *row, const char *name, uint64_t value)
{
    if (value)
        json_object_set_new(row, name, json_integer((json_int_t)value));
}

static void put_flag(json_t *row, const char *name, bool value)
{
    if (value)
        json_object_set_new(row, name, json_true());
}

static void put_conf(json_t *row, const struct tamper_conf *c)
{
    struct inet_addr peer;

    memcpy(peer.b, c->peer, sizeof(peer.b));
    if (c->has_peer)
        json_object_set_new(row, "peer", rpc_inet(&peer));
    put_count(row, "tcp_port", c->tcp_port);
    put_flag(row, "ip", c->ip);
    put_flag(row, "payload", c->payload);
    put_count(row, "longer", c->longer);
    put_share(row, "chance", c->chance);
    put_share(row, "loss", c->loss);
    put_share(row, "burst_begin", c->burst_enter);
    put_share(row, "burst_end", c->burst_leave);
    put_share(row, "duplicate", c->duplicate);
    put_share(row, "corrupt", c->corrupt);
    put_ms(row, "delay_ms", c->delay_us);
    put_ms(row, "jitter_ms", c->jitter_us);
    put_share(row, "reorder", c->reorder);
    put_ms(row, "reorder_ms", c->reorder_us);
    if (c->rate)
        json_object_set_new(row, "rate_mbit", json_real((double)c->rate / 1e6));
    put_count(row, "queue_kb", c->queue_bytes / 1024);
    put_count(row, "queue_packets", c->queue_packets);
    put_flag(row, "cut", c->cut);
    json_object_set_new(row, "seed", json_integer((json_int_t)c->seed));
}

static json_t *rule_row(const struct port *port, const struct tamper_row *r)
{
    static const struct rpc_number numbers[] = {
        RPC_NUMBER(tamper_counts, matched),
        RPC_NUMBER(tamper_counts, lost),
        RPC_NUMBER(tamper_counts, burst_lost),
        RPC_NUMBER(tamper_counts, queue_dropped),
        RPC_NUMBER(tamper_counts, delayed),
        RPC_NUMBER(tamper_counts, reordered),
        RPC_NUMBER(tamper_counts, duplicated),
        RPC_NUMBER(tamper_counts, corrupted),
        RPC_NUMBER(tamper_counts, skipped),
        {"segments_cut", offsetof(struct tamper_counts, cut), 8},
        {NULL},
    };
    json_t *row = json_pack("{s:s, s:s, s:I}", "port", port->name, "direction", way(r->out), "rule",
                            (json_int_t)r->id);
    /* Counted one after the other while they go on. */
    uint64_t gone = r->counts.lost + r->counts.queue_dropped;

    put_conf(row, &r->conf);
    rpc_add_numbers(row, &r->counts, numbers);
    json_object_set_new(
        row, "passed",
        json_integer(r->counts.matched > gone ? (json_int_t)(r->counts.matched - gone) : 0));
    return row;
}

void rpc_tamper_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static struct tamper_row rows[2 * TAMPER_RULES_MAX]; /* the control thread's */
    struct port *port[PORT_MAX];
    unsigned n = rpc_ports(jrpc_ctx(call), port), i, k, nrows;
    json_t *list = json_array(), *held = json_array();

    for (i = 0; i < n; i++) {
        nrows = port_tamper_rows(port[i], rows, RTE_DIM(rows));
        for (k = 0; k < nrows; k++)
            json_array_append_new(list, rule_row(port[i], &rows[k]));
        for (int out = 0; port[i]->faults && out < 2; out++) {
            struct tamper_queues q;

            port_tamper_queues(port[i], out, &q);
            json_array_append_new(held,
                                  json_pack("{s:s, s:s, s:I, s:I}", "port", port[i]->name,
                                            "direction", way(out), "frames", (json_int_t)q.held,
                                            "no_room", (json_int_t)q.no_room));
        }
    }
    jrpc_result(call, json_pack("{s:o, s:o}", "tamper", list, "held", held));
}

void rpc_tamper_clear(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct port *port[PORT_MAX];
    unsigned n, removed = 0;
    int rc;

    if (args[2].given && !args[0].given) {
        jrpc_refuse(call, "rule", "name the port that has the rule",
                    "numbers of rules are those of a port");
        return;
    }
    if (!ports_of(call, &args[0], port, &n))
        return;
    if (args[2].given) {
        rc = port_tamper_del(port[0], (unsigned)args[2].integer);
        if (rc == 0)
            jrpc_result(call, json_pack("{s:i}", "removed", 1));
        else
            jrpc_fail(call, -rc, "rule", "tamper_get shows the rules there are",
                      "the port has no rule %u", (unsigned)args[2].integer);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        for (int out = 0; out < 2; out++)
            if (is_meant(&args[1], out))
                removed += port_tamper_clear(port[i], out);
    jrpc_result(call, json_pack("{s:i}", "removed", (int)removed));
}
