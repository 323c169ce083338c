/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that change one thing: each edits a copy of the running document and makes that the
 * running one, so that the state of the node always is a document. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

/* A copy to be edited. NULL: the call has been ended. */
static struct cfg *edit(struct jrpc_call *call)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct err err = {0};
    struct cfg *cfg;

    if (cfg_running_busy(ctx->control->running, &err) != 0) {
        jrpc_fail(call, EBUSY, NULL,
                  "config_status tells whether a change waits for config_confirm or "
                  "config_rollback",
                  "%s", err.message);
        return NULL;
    }
    cfg = cfg_copy(cfg_running_get(ctx->control->running));
    if (!cfg)
        jrpc_result(call, NULL);
    return cfg;
}

static void no_memory(struct jrpc_call *call, struct cfg *cfg)
{
    cfg_free(cfg);
    jrpc_result(call, NULL);
}

/* Makes the edited copy the running document; done gets arg. False: the call has been ended. */
static bool commit_with(struct jrpc_call *call, struct cfg *cfg, const char *method,
                        cfg_outcome_fn done, void *arg)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct cfg_report report;
    bool good = cfg_validate(method, cfg, &report) == 0;
    unsigned i = 0;

    if (good) {
        cfg_running_change(ctx->control->running, cfg, 0, method, done, arg);
    } else {
        while (i < report.count && !report.message[i].error)
            i++;
        jrpc_fail(call, EINVAL, NULL, "config_get shows the document that it does not fit", "%s",
                  i < report.count ? report.message[i].text : "it does not fit");
        cfg_free(cfg);
    }
    cfg_report_free(&report);
    return good;
}

static void commit(struct jrpc_call *call, struct cfg *cfg, const char *method, cfg_outcome_fn done)
{
    commit_with(call, cfg, method, done, call);
}

/* ---- nets ---- */

/* What of the parameters from first on belongs to an NI, in the order of CONFIG_NI_PARAMS. */
static void ni_params(struct cfg_ni *ni, const struct jrpc_arg *args)
{
    int *const fields[] = {&ni->conf.tun.peer_timeout,
                           &ni->conf.tun.peer_credits,
                           &ni->conf.tun.peer_buffer_credits,
                           &ni->conf.tun.credits,
                           NULL,
                           &ni->conf.lnd_tun.conns_per_peer,
                           &ni->conf.lnd_tun.tos,
                           &ni->conf.lnd_tun.timeout};

    for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i] && args[i].given)
            *fields[i] = (int)args[i].integer;
    if (args[4].given)
        snprintf(ni->cpt, sizeof(ni->cpt), "%s", args[4].string);
}

/* "10.0.*.*": NIs by the addresses of this machine, read as a document with such a rule. */
static struct cfg *with_pattern(struct jrpc_call *call, struct cfg *cfg,
                                const struct jrpc_arg *args)
{
    const char *pattern = args[3].string;
    char net[LNET_NETSTR_SIZE], *text = NULL;
    struct cfg_report report = {0};
    struct cfg_text from = {.name = "ip2net", .mode = CFG_MERGE, .base = cfg};
    struct cfg *out = NULL;
    unsigned before = cfg->ni_count;
    bool whole = strchr(pattern, ' ') && pattern[0] >= 'a' && pattern[0] <= 'z';

    net_format(args[0].net, net);
    if (strpbrk(pattern, "'\"\\\n") ||
        asprintf(&text, "ip2nets: '%s%s%s'\n", whole ? "" : net, whole ? "" : " ", pattern) < 0) {
        jrpc_refuse(call, "ip2net", "give patterns as in 10.0.*.* 10.1.[0-3].*",
                    "is no pattern of addresses");
        free(text);
        cfg_free(cfg);
        return NULL;
    }
    from.text = text;
    from.len = strlen(text);
    cfg_parse_onto(&from, &out, &report);
    if (out && out->ni_count == before) {
        jrpc_fail(call, EADDRNOTAVAIL, "ip2net", "`ip address` lists those of this host",
                  "no address of this host matches %s, or its NI is there already", pattern);
        cfg_free(out);
        out = NULL;
    } else if (!out) {
        jrpc_fail(call, EINVAL, "ip2net", "give patterns as in 10.0.*.* 10.1.[0-3].*", "%s",
                  report.count ? report.message[0].text : "out of memory");
    }
    for (unsigned i = before; out && i < out->ni_count; i++) {
        out->ni[i].by_rule = false;
        ni_params(&out->ni[i], &args[4]);
    }
    cfg_report_free(&report);
    cfg_free(cfg);
    free(text);
    return out;
}

/* One NI; false: the call has been ended, the copy freed. */
static bool put_ni(struct jrpc_call *call, struct cfg *cfg, const struct cfg_ni *ni)
{
    char nid[LNET_NIDSTR_SIZE];

    if (cfg_find_ni(cfg, ni)) {
        jrpc_fail(call, EEXIST, nid_is_any(&ni->conf.nid) ? "interface" : "nid",
                  "net_get lists the NIs there are; net_set changes one", "there is such an NI: %s",
                  nid_is_any(&ni->conf.nid) ? ni->conf.ifname : nid_format(&ni->conf.nid, nid));
        cfg_free(cfg);
        return false;
    }
    if (!cfg_add_ni(cfg, ni)) {
        jrpc_fail(call, ENOSPC, NULL, "remove others", "a node has at most %d NIs", LNET_MAX_NI);
        cfg_free(cfg);
        return false;
    }
    return true;
}

static void net_added(void *arg, const struct cfg_outcome *outcome)
{
    if (outcome->rc == -ENODEV)
        rpc_change_failed(arg, outcome, "interface", "`ip link` lists the interfaces there are");
    else if (outcome->rc == -EADDRNOTAVAIL)
        rpc_change_failed(arg, outcome, "nid", "`ip address` lists the addresses of this host");
    else
        rpc_changed(arg, outcome);
}

/* Of an o2ib net: the interface may be there, and not be one of an RDMA device. */
static void rdma_net_added(void *arg, const struct cfg_outcome *outcome)
{
    if (outcome->rc == -ENODEV)
        rpc_change_failed(arg, outcome, NULL,
                          "`rdma link` lists the RDMA devices there are, with their interfaces");
    else
        net_added(arg, outcome);
}

void rpc_net_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_ni ni = cfg_ni_new(args[0].net);
    const char *name = args[1].string, *end;
    struct cfg *cfg;

    if (!args[1].given && !args[2].given && !args[3].given) {
        jrpc_fail(call, EINVAL, "interface", "give interface, nid or ip2net",
                  "it is not said where the NI is to be");
        return;
    }
    if (args[2].given && nid_net(&args[2].nid) != args[0].net) {
        jrpc_fail(call, EINVAL, "nid", "give a NID of that net", "the NID is of another net");
        return;
    }
    cfg = edit(call);
    if (cfg && args[3].given)
        cfg = with_pattern(call, cfg, args);
    if (!cfg)
        return;
    ni_params(&ni, &args[4]);
    if (args[2].given)
        ni.conf.nid = args[2].nid;
    if (!args[1].given && args[2].given && !put_ni(call, cfg, &ni))
        return;
    for (; args[1].given && *name; name = *end ? end + 1 : end) {
        end = strchrnul(name, ',');
        if (end == name || (size_t)(end - name) >= sizeof(ni.conf.ifname) ||
            strcspn(name, "/ \t") < (size_t)(end - name)) {
            jrpc_fail(call, EINVAL, "interface", "`ip link` lists the interfaces there are",
                      "'%s' cannot be an interface name", name);
            cfg_free(cfg);
            return;
        }
        memcpy(ni.conf.ifname, name, (size_t)(end - name));
        ni.conf.ifname[end - name] = '\0';
        if (!put_ni(call, cfg, &ni))
            return;
    }
    commit(call, cfg, "net_add", args[0].net >> 16 == LNET_LND_O2IB ? rdma_net_added : net_added);
}

static bool net_is_left(const struct cfg *cfg, lnet_net_t net)
{
    for (unsigned i = 0; i < cfg->ni_count; i++)
        if (cfg->ni[i].conf.net == net)
            return true;
    return false;
}

static bool ni_meant(const struct cfg_ni *ni, const struct jrpc_arg *net,
                     const struct jrpc_arg *ifname, const struct jrpc_arg *nid)
{
    if (net->given && ni->conf.net != net->net)
        return false;
    if (ifname && ifname->given && strcmp(ni->conf.ifname, ifname->string) != 0)
        return false;
    return !nid->given || nid_same(&ni->conf.nid, &nid->nid) ||
           (ni->live.known && nid_same(&ni->live.nid, &nid->nid));
}

void rpc_net_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = edit(call);
    bool any = false;

    if (!cfg)
        return;
    for (unsigned i = cfg->ni_count; i-- > 0;) {
        if (ni_meant(&cfg->ni[i], &args[0], &args[1], &args[2])) {
            cfg_remove_ni(cfg, i);
            any = true;
        }
    }
    for (unsigned i = cfg->route_count; any && !net_is_left(cfg, args[0].net) && i-- > 0;)
        if (nid_net(&cfg->route[i].conf.gateway) == args[0].net)
            cfg_remove_route(cfg, i);
    if (any) {
        commit(call, cfg, "net_del", rpc_changed);
        return;
    }
    cfg_free(cfg);
    jrpc_fail(call, ENOENT,
              args[2].given   ? "nid"
              : args[1].given ? "interface"
                              : "net",
              "net_get lists the nets there are", "there is no such NI on net %s", args[0].string);
}

void rpc_net_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    bool all = args[2].given && args[2].boolean, any = false;
    struct cfg *cfg;

    if (!args[0].given && !args[1].given && !all) {
        jrpc_fail(call, EINVAL, "nid", "give net, nid or all", "it is not said which NI");
        return;
    }
    if (!args[3].given && !args[4].given) {
        jrpc_fail(call, EINVAL, "lnd_timeout", "give lnd_timeout or conns_per_peer",
                  "nothing is to be set");
        return;
    }
    cfg = edit(call);
    for (unsigned i = 0; cfg && i < cfg->ni_count; i++) {
        if (!ni_meant(&cfg->ni[i], &args[0], NULL, &args[1]))
            continue;
        any = true;
        if (args[3].given)
            cfg->ni[i].conf.lnd_tun.timeout = (int)args[3].integer;
        if (args[4].given)
            cfg->ni[i].conf.lnd_tun.conns_per_peer = (int)args[4].integer;
    }
    if (any) {
        commit(call, cfg, "net_set", rpc_changed);
    } else if (cfg) {
        cfg_free(cfg);
        jrpc_fail(call, ENOENT, args[1].given ? "nid" : "net", "net_get lists the NIs there are",
                  "there is no such NI");
    }
}

/* ---- routes ---- */

void rpc_route_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_route route = {.conf = {.net = args[0].net,
                                       .gateway = args[1].nid,
                                       .hops = LNET_HOPS_UNDEFINED,
                                       .priority = (unsigned)args[3].integer}};
    struct cfg *cfg;

    if (args[2].given && args[2].integer == 0) {
        jrpc_refuse(call, "hop", "give 1 to 255, or -1 for not stated", "hop is out of range");
        return;
    }
    if (args[2].given)
        route.conf.hops = (int)args[2].integer;
    cfg = edit(call);
    if (!cfg)
        return;
    if (nid_net(&route.conf.gateway) != route.conf.net &&
        (cfg_find_route(cfg, route.conf.net, &route.conf.gateway) ||
         net_is_left(cfg, route.conf.net))) {
        jrpc_fail(call, EEXIST, "net",
                  "route_get lists the routes there are; a local net needs none",
                  net_is_left(cfg, route.conf.net) ? "net %s is local"
                                                   : "there is a route to %s "
                                                     "through this gateway",
                  args[0].string);
        cfg_free(cfg);
    } else if (!net_is_left(cfg, nid_net(&route.conf.gateway))) {
        jrpc_fail(call, EHOSTUNREACH, "gateway", "name a gateway on a net that net_get lists",
                  "gateway %s is on no local net", args[1].string);
        cfg_free(cfg);
    } else if (!cfg_add_route(cfg, &route)) {
        no_memory(call, cfg);
    } else {
        commit(call, cfg, "route_add", rpc_changed);
    }
}

void rpc_route_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = edit(call);
    struct cfg_route *route = cfg ? cfg_find_route(cfg, args[0].net, &args[1].nid) : NULL;

    if (route) {
        cfg_remove_route(cfg, (unsigned)(route - cfg->route));
        commit(call, cfg, "route_del", rpc_changed);
    } else if (cfg) {
        cfg_free(cfg);
        jrpc_fail(call, ENOENT, "gateway", "route_get lists the routes there are",
                  "there is no route to %s through %s", args[0].string, args[1].string);
    }
}

/* ---- peers ---- */

/* Each of the NIDs listed; false: the call has been ended. */
static bool each_nid(struct jrpc_call *call, const struct jrpc_arg *list, struct cfg_peer *peer,
                     bool (*fn)(struct cfg_peer *peer, const struct lnet_nid *nid), int err,
                     const char *why)
{
    struct lnet_nid nid;
    const char *text;

    for (size_t i = 0; list->given && i < json_array_size(list->value); i++) {
        text = json_string_value(json_array_get(list->value, i));
        if (!text || nid_parse(text, &nid) != 0 || nid_is_lo(&nid)) {
            jrpc_refuse(call, "nid", "give address@net, as in 10.0.0.1@tcp", "'%.60s' is not a NID",
                        text ? text : "?");
            return false;
        }
        if (!fn(peer, &nid)) {
            jrpc_fail(call, err, "nid", "peer_get lists the peers there are", "%s: %s", text, why);
            return false;
        }
    }
    return true;
}

void rpc_peer_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_peer *peer;
    struct cfg *cfg;

    if (nid_is_lo(&args[0].nid)) {
        jrpc_fail(call, EINVAL, "prim_nid", "give the NID of another node",
                  "%s cannot be the NID of a peer", args[0].string);
        return;
    }
    cfg = edit(call);
    if (!cfg)
        return;
    peer = cfg_find_peer(cfg, &args[0].nid);
    if (!peer)
        peer = cfg_add_peer(cfg, &args[0].nid, true, 0);
    if (peer && args[2].given)
        peer->multi_rail = !args[2].boolean;
    if (!peer || !cfg_peer_add_nid(peer, &args[0].nid))
        no_memory(call, cfg);
    else if (each_nid(call, &args[1], peer, cfg_peer_add_nid, ENOSPC, "is one NID too many"))
        commit(call, cfg, "peer_add", rpc_changed);
    else
        cfg_free(cfg);
}

void rpc_peer_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = edit(call);
    struct cfg_peer *peer = cfg ? cfg_find_peer(cfg, &args[0].nid) : NULL;

    if (cfg && !peer) {
        jrpc_fail(call, ENOENT, "prim_nid", "config_get shows the peers that are configured",
                  "there is no configured peer %s", args[0].string);
        cfg_free(cfg);
    }
    if (!peer)
        return;
    if (!each_nid(call, &args[1], peer, cfg_peer_remove_nid, ENOENT, "the peer has no such NID")) {
        cfg_free(cfg);
        return;
    }
    if (!args[1].given || !peer->nid_count)
        cfg_remove_peer(cfg, (unsigned)(peer - cfg->peer));
    commit(call, cfg, "peer_del", rpc_changed);
}

/* ---- settings ---- */

void rpc_routing_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = edit(call);

    if (!cfg)
        return;
    cfg->routing = (int)args[0].integer;
    commit(call, cfg, "routing_set", rpc_changed);
}

struct buffers_call {
    struct jrpc_call *call;
    const char *blame; /* the only parameter that was given */
};

static void buffers_changed(void *arg, const struct cfg_outcome *outcome)
{
    struct buffers_call *b = arg;

    if (outcome->rc == 0)
        rpc_buffers_answer(b->call);
    else
        rpc_change_failed(b->call, outcome, b->blame,
                          outcome->rc == -ENOMEM
                              ? "give less, or raise `millrace: memory:` in the configuration and "
                                "restart; `millraced --check` shows what fits"
                              : NULL);
    free(b);
}

void rpc_buffers_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static const char *const names[] = {"tiny", "small", "large"};
    struct buffers_call *b;
    struct cfg *cfg;
    unsigned given = 0;

    for (unsigned i = 0; i < LNET_POOLS; i++)
        given += args[i].given;
    if (!given) {
        jrpc_refuse(call, NULL, "give one or more of tiny, small and large",
                    "nothing is to be set");
        return;
    }
    cfg = edit(call);
    if (!cfg)
        return;
    b = calloc(1, sizeof(*b));
    if (!b) {
        no_memory(call, cfg);
        return;
    }
    b->call = call;
    for (unsigned i = 0; i < LNET_POOLS && given == 1; i++)
        b->blame = args[i].given ? names[i] : b->blame;
    cfg->tiny = args[0].given ? (int)args[0].integer : cfg->tiny;
    cfg->small = args[1].given ? (int)args[1].integer : cfg->small;
    cfg->large = args[2].given ? (int)args[2].integer : cfg->large;
    if (!commit_with(call, cfg, "buffers_set", buffers_changed, b))
        free(b);
}

static void admission_changed(void *arg, const struct cfg_outcome *outcome)
{
    if (outcome->rc == 0)
        rpc_admission_answer(arg);
    else
        rpc_change_failed(arg, outcome, NULL, NULL);
}

void rpc_admission_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg;

    if (!args[0].given && !args[1].given) {
        jrpc_refuse(call, NULL, "give egress_share or buffer_wait, or both",
                    "nothing is to be set");
        return;
    }
    cfg = edit(call);
    if (!cfg)
        return;
    cfg->egress_share = args[0].given ? (int)args[0].integer : cfg->egress_share;
    cfg->buffer_wait = args[1].given ? (int)args[1].integer : cfg->buffer_wait;
    commit(call, cfg, "admission_set", admission_changed);
}

/* The parameters are named as the keys are, and checked by the same ranges. */
void rpc_global_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static const char *const names[] = {"numa_range",
                                        "max_interfaces",
                                        "discovery",
                                        "drop_asym_route",
                                        "retry_count",
                                        "transaction_timeout",
                                        "health_sensitivity",
                                        "recovery_interval",
                                        "router_sensitivity",
                                        "response_tracking",
                                        "recovery_limit",
                                        "max_recovery_ping_interval",
                                        "alive_router_check_interval",
                                        "router_ping_timeout"};
    struct err err = {0};
    char path[CFG_MAX_PATH], value[24];
    struct cfg *cfg = edit(call);
    struct cfg_setting setting;
    bool any = false;

    for (unsigned i = 0; cfg && i < sizeof(names) / sizeof(names[0]); i++) {
        if (!args[i].given)
            continue;
        any = true;
        snprintf(path, sizeof(path), "global.%s", names[i]);
        snprintf(value, sizeof(value), "%lld", (long long)args[i].integer);
        if (!cfg_setting_find(path, &setting) || cfg_setting_set(&setting, cfg, value, &err) != 0) {
            jrpc_refuse(call, names[i], "tunables_get lists the ranges", "%s", err.message);
            cfg_free(cfg);
            return;
        }
    }
    if (any) {
        commit(call, cfg, "global_set", rpc_changed);
    } else if (cfg) {
        cfg_free(cfg);
        jrpc_refuse(call, NULL, "give one or more of the keys of global", "nothing is to be set");
    }
}

/* ---- tunables ---- */

static const char *const scopes[] = {"global", "net", "lnd", "millrace"};

static json_t *setting_row(const struct cfg_setting *s, const char *scope, const char *fallback,
                           const char *value)
{
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s}", "scope", scope, "name", s->name,
                  "key", s->path, "type", s->type, "default", fallback, "value", value, "applies",
                  cfg_applies_name(s->applies), "acted_on", !s->kept, "help", s->help);
    json_t *words;

    if (s->unit)
        json_object_set_new(row, "unit", json_string(s->unit));
    if (strcmp(s->type, "integer") == 0)
        json_object_set_new(row, "min", json_integer(s->min));
    if (strcmp(s->type, "integer") == 0 || strcmp(s->type, "string") == 0)
        json_object_set_new(row, "max", json_integer(s->max));
    if (s->words) {
        words = json_array();
        for (unsigned i = 0; s->words[i]; i++)
            json_array_append_new(words, json_string(s->words[i]));
        json_object_set_new(row, "words", words);
    }
    return row;
}

static void ni_rows(json_t *list, const struct cfg_ni *ni, bool lnd)
{
    struct cfg_setting s;
    char text[24], nid[LNET_NIDSTR_SIZE];
    json_t *row;
    int value;

    for (unsigned i = 0; cfg_ni_setting_at(lnd, i, &s); i++) {
        value = cfg_ni_setting_get(&s, ni);
        snprintf(text, sizeof(text), "%d", value);
        row = setting_row(&s, lnd ? "lnd" : "net", "-1", text);
        if (ni->live.known || !nid_is_any(&ni->conf.nid))
            json_object_set_new(
                row, "ni",
                json_string(nid_format(ni->live.known ? &ni->live.nid : &ni->conf.nid, nid)));
        json_array_append_new(list, row);
    }
}

void rpc_tunables_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct cfg *cfg = cfg_running_get(ctx->control->running);
    const char *only = args[0].given ? args[0].string : NULL;
    char value[CFG_MAX_VALUE], fallback[CFG_MAX_VALUE];
    json_t *list = json_array();
    struct cfg_setting s;

    for (unsigned i = 0; cfg_setting_at(i, &s); i++)
        if (!only || strcmp(only, s.scope) == 0)
            json_array_append_new(list, setting_row(&s, s.scope, cfg_setting_default(&s, fallback),
                                                    cfg_setting_text(&s, cfg, value)));
    for (unsigned i = 0; i < cfg->ni_count; i++) {
        if (!only || strcmp(only, "net") == 0)
            ni_rows(list, &cfg->ni[i], false);
        if (!only || strcmp(only, "lnd") == 0)
            ni_rows(list, &cfg->ni[i], true);
    }
    jrpc_result(call, json_pack("{s:o}", "tunables", list));
}

/* Out of range is told apart from what is no value at all. */
static int value_error(const char *err)
{
    return strstr(err, "out of range") ? ERANGE : EINVAL;
}

static bool set_on_nis(struct jrpc_call *call, struct cfg *cfg, const struct cfg_setting *s,
                       const struct jrpc_arg *args)
{
    struct err err = {0};
    bool any = false;

    for (unsigned i = 0; i < cfg->ni_count; i++) {
        if (args[3].given && cfg->ni[i].conf.net != args[3].net)
            continue;
        any = true;
        if (cfg_ni_setting_set(s, &cfg->ni[i], args[2].string, &err) != 0) {
            jrpc_fail(call, value_error(err.message), "value", "tunables_get lists the ranges",
                      "%s", err.message);
            return false;
        }
    }
    if (!any)
        jrpc_fail(call, ENOENT, "net", "net_get lists the nets there are", "there is no such NI");
    return any;
}

void rpc_tunables_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const char *scope = scopes[args[0].integer];
    bool lnd = strcmp(scope, "lnd") == 0, of_ni = lnd || strcmp(scope, "net") == 0, found;
    struct err err = {0};
    struct cfg *cfg = edit(call);
    struct cfg_setting s;
    unsigned i;

    if (!cfg)
        return;
    for (i = 0, found = false; of_ni && !found && cfg_ni_setting_at(lnd, i, &s); i++)
        found = strcmp(s.name, args[1].string) == 0 || strcmp(s.path, args[1].string) == 0;
    if (!of_ni)
        found = cfg_setting_find(args[1].string, &s) && strcmp(s.scope, scope) == 0;
    if (!found) {
        jrpc_fail(call, ENOENT, "name", "tunables_get lists those there are",
                  "there is no tunable %s in the scope %s", args[1].string, scope);
    } else if (of_ni) {
        if (set_on_nis(call, cfg, &s, args)) {
            commit(call, cfg, "tunables_set", rpc_changed);
            return;
        }
    } else if (cfg_setting_set(&s, cfg, args[2].string, &err) != 0) {
        jrpc_fail(call, value_error(err.message), "value", "tunables_get lists the ranges", "%s",
                  err.message);
    } else {
        commit(call, cfg, "tunables_set", rpc_changed);
        return;
    }
    cfg_free(cfg);
}
