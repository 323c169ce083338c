/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for nets and NIs. Names and nesting: docs/protocol/lnet-core.md §10.2, §10.4. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "control/absent.h"
#include "rpc/methods/methods_internal.h"

static json_t *ni_own(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct lnet_credits tx = {0};
    uint32_t waiting = 0;

    lnet_ni_credits_get(ctx->control->node, ni->index, &tx, &waiting);
    return json_pack("{s:i, s:i, s:i, s:I, s:I}", "max_tx_credits", tx.max, "available_tx_credits",
                     tx.now, "min_tx_credits", tx.min, "tx_waiting", (json_int_t)waiting,
                     "tx_waited", (json_int_t)tx.waited);
}

/* "[0,1]": the CPTs whose reactors serve NIs. */
static json_t *cpts(const struct rpc_ctx *ctx)
{
    char text[256] = "[";
    unsigned n = reactor_count(ctx->control->env), j;
    size_t used = 1;

    for (unsigned i = 0; i < n && used < sizeof(text) - 16; i++) {
        unsigned cpt = reactor_cpt(reactor_at(ctx->control->env, i));

        for (j = 0; j < i && reactor_cpt(reactor_at(ctx->control->env, j)) != cpt; j++)
            ;
        if (j == i)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", used > 1 ? "," : "",
                                     cpt);
    }
    snprintf(text + used, sizeof(text) - used, "]");
    return json_string(text);
}

static json_t *ni_tunables(const struct lnet_tunables *tun)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "peer_timeout", tun->peer_timeout, "peer_credits",
                     tun->peer_credits, "peer_buffer_credits", tun->peer_buffer_credits, "credits",
                     tun->credits);
}

/* Adds a tunable that only some LNDs have. A kept value without effect is shown as in the document.
 */
static void add_own(json_t *map, const struct lnd_setting *s, int used, int document)
{
    int value = s->kept ? document : used;

    if (value == -1)
        return;
    if (s->kind == LND_BOOL_OR_INT)
        json_object_set_new(map, s->name, json_boolean(value));
    else
        json_object_set_new(map, s->name, json_integer(value));
}

/* In the order of lnetctl. document: of the NI there; NULL: it is not there. */
static json_t *lnd_tunables(lnet_net_t net, const struct lnd_tunables *tun,
                            const struct lnd_tunables *document)
{
    const struct lnd_type *type = lnd_type_of(net);
    json_t *map = json_object();

    for (unsigned i = 0; type && i < type->tunable_count; i++) {
        unsigned slot = lnd_slot(type, i);

        add_own(map, &type->tunables[i], tun->own[slot], document ? document->own[slot] : -1);
    }
    json_object_set_new(map, "conns_per_peer", json_integer(tun->conns_per_peer));
    json_object_set_new(map, "timeout", json_integer(tun->timeout));
    json_object_set_new(map, "tos", json_integer(tun->tos));
    return map;
}

/* Returns the tunables of an NI in the document; NULL: it is not there. */
static const struct lnd_tunables *in_document(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    const struct cfg *cfg = rpc_document(ctx);
    unsigned i;

    for (i = 0; cfg && i < cfg->ni_count; i++) {
        const struct cfg_ni *of = &cfg->ni[i];

        if (of->conf.net == ni->net && of->live.known && nid_same(&of->live.nid, &ni->nid))
            return &of->conf.lnd_tun;
    }
    return NULL;
}

/* An NI as net_get shows it. */
struct ni_view {
    const struct lnet_nid *nid; /* ANY: not known */
    const char *reason;         /* why it is down; NULL: as status and health tell */
    const char *ifname;         /* "": none */
    bool down, fatal;
    int health, dev_cpt;
    unsigned ping_count; /* of its recovery */
    uint64_t next_ping_us;
    struct lnet_ni_stats stats;
    const struct lnet_tunables *tun;
    json_t *lnd_tunables, *own; /* NULL: none */
};

static json_t *ni_health(const struct ni_view *v)
{
    const uint64_t *n = v->stats.health;

    return json_pack(
        "{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I}", "fatal_error", v->fatal ? 1 : 0,
        "health value", v->health, "interrupts", (json_int_t)n[LNET_HEALTH_LOCAL_INTERRUPT],
        "dropped", (json_int_t)n[LNET_HEALTH_LOCAL_DROPPED], "aborted",
        (json_int_t)n[LNET_HEALTH_LOCAL_ABORTED], "no route",
        (json_int_t)n[LNET_HEALTH_LOCAL_NO_ROUTE], "timeouts",
        (json_int_t)n[LNET_HEALTH_LOCAL_TIMEOUT], "error", (json_int_t)n[LNET_HEALTH_LOCAL_ERROR],
        "ping_count", (int)v->ping_count, "next_ping", (json_int_t)(v->next_ping_us / 1000000));
}

/* docs/protocol/lnet-core.md §10.2, in its order. */
static json_t *view_row(const struct rpc_ctx *ctx, const struct ni_view *v)
{
    json_t *row = json_pack("{s:o*, s:s, s:o*}", "nid", nid_is_any(v->nid) ? NULL : rpc_nid(v->nid),
                            "status", v->down ? "down" : "up", "reason", json_string(v->reason));

    if (v->ifname[0])
        json_object_set_new(row, "interfaces", json_pack("{s:s}", "0", v->ifname));
    rpc_add_sums(row, v->stats.sent, v->stats.received, v->stats.dropped);
    json_object_set_new(row, "udsp info", rpc_udsp(ctx, v->nid, true));
    rpc_add_types(row, v->stats.sent, v->stats.received, v->stats.dropped);
    json_object_update_new(row, json_pack("{s:o, s:o, s:o*, s:i, s:o, s:o*}", "health stats",
                                          ni_health(v), "tunables", ni_tunables(v->tun),
                                          "lnd tunables", v->lnd_tunables, "dev cpt", v->dev_cpt,
                                          "CPT", cpts(ctx), "millrace", v->own));
    return row;
}

static json_t *ni_row(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct ni_view v = {.nid = &ni->nid,
                        .ifname = ni->ifname,
                        .fatal = relaxed_load(&ni->fatal),
                        .health = relaxed_load(&ni->health),
                        .ping_count = relaxed_load(&ni->ping_count),
                        .next_ping_us = relaxed_load(&ni->next_ping_us),
                        .dev_cpt = -1,
                        .tun = &ni->tun,
                        .lnd_tunables = lnd_tunables(ni->net, &ni->lnd_tun, in_document(ctx, ni)),
                        .own = ni_own(ctx, ni)};

    v.down = v.fatal || relaxed_load(&ni->status) == LNET_NI_DOWN;
    lnet_ni_stats_get(ctx->control->node, ni->index, &v.stats);
    return view_row(ctx, &v);
}

/* Every node has 0@lo; nothing is sent through it. */
static json_t *lo_row(const struct rpc_ctx *ctx)
{
    static const struct lnet_tunables none;

    return view_row(ctx, &(struct ni_view){.nid = &LNET_NID_LO, .ifname = "", .tun = &none});
}

/* An NI of the document that the node runs without. */
static json_t *absent_row(const struct rpc_ctx *ctx, const struct lnet_ni_conf *conf,
                          const char *why)
{
    struct ni_view v = {.nid = &conf->nid,
                        .reason = why,
                        .ifname = conf->ifname,
                        .down = true,
                        .fatal = true,
                        .dev_cpt = -1,
                        .tun = &conf->tun,
                        .lnd_tunables = lnd_tunables(conf->net, &conf->lnd_tun, &conf->lnd_tun)};

    return view_row(ctx, &v);
}

/* The list of NIs of a net in nets, made if it is new. */
static json_t *net_row(json_t *nets, lnet_net_t net)
{
    json_t *name = rpc_net(net), *row = NULL, *list = NULL;

    for (size_t i = 0; i < json_array_size(nets) && !list; i++) {
        row = json_array_get(nets, i);
        if (json_equal(json_object_get(row, "net type"), name))
            list = json_object_get(row, "local NI(s)");
    }
    if (!list) {
        list = json_array();
        row = json_object();
        json_object_set(row, "net type", name);
        json_object_set_new(row, "local NI(s)", list);
        json_array_append_new(nets, row);
    }
    json_decref(name);
    return list;
}

void rpc_net_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    lnet_net_t only = args[0].given ? args[0].net : LNET_NET_ANY;
    json_t *nets = json_array();
    const struct lnet_ni_conf *absent;
    const char *why;

    if (only == LNET_NET_ANY || only == nid_net(&LNET_NID_LO))
        json_array_append_new(net_row(nets, nid_net(&LNET_NID_LO)), lo_row(ctx));
    for (unsigned i = 0; i < lnet_ni_count(ctx->control->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(ctx->control->node, i);

        if (!ni || !lnet_ni_is_active(ni))
            continue;
        if (only == LNET_NET_ANY || only == ni->net)
            json_array_append_new(net_row(nets, ni->net), ni_row(ctx, ni));
    }
    for (unsigned i = 0; (absent = control_absent_at(ctx->control, i, &why)); i++)
        if (only == LNET_NET_ANY || only == absent->net)
            json_array_append_new(net_row(nets, absent->net), absent_row(ctx, absent, why));
    if (json_array_size(nets) == 0) {
        json_decref(nets);
        jrpc_fail(call, ESRCH, "net", "net_get without parameters lists the nets there are",
                  "there is no local net %s", args[0].string);
        return;
    }
    jrpc_result(call, json_pack("{s:o}", "net", nets));
}

/* ---- changes ---- */

/* Takes the parameters of an NI, in the order of CONFIG_NI_PARAMS. */
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
    if (out)
        rpc_own_document(call, out);
    cfg_report_free(&report);
    free(text);
    return out;
}

/* One NI; false: the call has been ended. */
static bool put_ni(struct jrpc_call *call, struct cfg *cfg, const struct cfg_ni *ni)
{
    char nid[LNET_NIDSTR_SIZE];

    if (cfg_find_ni(cfg, ni)) {
        jrpc_fail(call, EEXIST, nid_is_any(&ni->conf.nid) ? "interface" : "nid",
                  "net_get lists the NIs there are; net_set changes one", "there is such an NI: %s",
                  nid_is_any(&ni->conf.nid) ? ni->conf.ifname : nid_format(&ni->conf.nid, nid));
        return false;
    }
    if (!cfg_append(cfg, CFG_NIS, ni)) {
        jrpc_fail(call, ENOSPC, NULL, "remove others", "a node has at most %d NIs", LNET_MAX_NI);
        return false;
    }
    return true;
}

/* A document with zero credits cannot be read again. True: the call has been ended. */
static bool no_credits(struct jrpc_call *call, const struct jrpc_arg *arg, const char *name)
{
    if (!arg->given || arg->integer != 0)
        return false;
    jrpc_refuse(call, name, "give 1 or more, or -1 for the default", "%s: 0 lets no message pass",
                name);
    return true;
}

void rpc_net_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_ni ni = cfg_new_ni(args[0].net, 0);
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
    if (args[8].given && !cfg_cpt_valid(args[8].string)) {
        jrpc_fail(call, EINVAL, "cpt", "give a list of CPTs in brackets, as in [0,1]",
                  "'%.40s' is not a list of CPTs", args[8].string);
        return;
    }
    if (no_credits(call, &args[5], "peer_credits") || no_credits(call, &args[7], "credits"))
        return;
    cfg = rpc_edit(call);
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
            return;
        }
        memcpy(ni.conf.ifname, name, (size_t)(end - name));
        ni.conf.ifname[end - name] = '\0';
        if (!put_ni(call, cfg, &ni))
            return;
    }
    rpc_commit(call, cfg, rpc_changed, call);
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
    struct cfg *cfg;
    bool any = false;

    if (args[0].net == nid_net(&LNET_NID_LO)) {
        jrpc_fail(call, EPERM, "net", "name a net of the configuration",
                  "net lo cannot be removed: every node has 0@lo");
        return;
    }
    cfg = rpc_edit(call);
    if (!cfg)
        return;
    for (unsigned i = cfg->ni_count; i-- > 0;)
        if (ni_meant(&cfg->ni[i], &args[0], &args[1], &args[2])) {
            cfg_take(cfg, CFG_NIS, &cfg->ni[i]);
            any = true;
        }
    for (unsigned i = cfg->route_count; any && !cfg_has_net(cfg, args[0].net) && i-- > 0;)
        if (nid_net(&cfg->route[i].conf.gateway) == args[0].net)
            cfg_take(cfg, CFG_ROUTES, &cfg->route[i]);
    if (any)
        rpc_commit(call, cfg, rpc_changed, call);
    else
        jrpc_fail(call, ENOENT,
                  args[2].given   ? "nid"
                  : args[1].given ? "interface"
                                  : "net",
                  "net_get lists the nets there are", "there is no such NI on net %s",
                  args[0].string);
}

/* The health of NIs, which is not of the document. */
struct health_call {
    struct jrpc_call *call; /* NULL: another part of the command answers */
    unsigned pending;
    int rc;
};

static void health_done(void *arg, int rc, const struct err *err)
{
    struct health_call *h = arg;

    h->rc = rc ? rc : h->rc;
    if (--h->pending > 0)
        return;
    if (h->call && h->rc == 0)
        jrpc_result(h->call, json_true());
    else if (h->call)
        jrpc_fail(h->call, -h->rc, "nid", "net_get lists the NIs there are", "an NI is gone");
    free(h);
}

/* Returns the number of NIs that are set. */
static unsigned set_health(struct jrpc_call *call, const struct jrpc_arg *args, bool answers)
{
    struct lnet_node *node = ((const struct rpc_ctx *)jrpc_ctx(call))->control->node;
    struct health_call *h = calloc(1, sizeof(*h));
    struct err err = {0};
    unsigned n = 0;

    if (!h)
        return 0;
    *h = (struct health_call){.call = answers ? call : NULL, .pending = 1};
    for (unsigned i = 0; i < lnet_ni_count(node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(node, i);

        if (!ni || (args[0].given && ni->net != args[0].net) ||
            (args[1].given && !nid_same(&ni->nid, &args[1].nid)))
            continue;
        h->pending++;
        if (lnet_ni_health_set(node, &ni->nid, (int)args[5].integer, health_done, h, &err) == 0)
            n++;
        else
            h->pending--;
    }
    if (n == 0)
        h->call = NULL;
    health_done(h, 0, NULL);
    return n;
}

static void no_such_ni(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_fail(call, ENOENT, args[1].given ? "nid" : "net", "net_get lists the NIs there are",
              "there is no such NI");
}

void rpc_net_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    bool all = args[2].given && args[2].boolean, any = false;
    bool tunables = args[3].given || args[4].given;
    struct cfg *cfg;

    if (!args[0].given && !args[1].given && !all) {
        jrpc_fail(call, EINVAL, "nid", "give net, nid or all", "it is not said which NI");
        return;
    }
    if (!tunables && !args[5].given) {
        jrpc_fail(call, EINVAL, "lnd_timeout", "give lnd_timeout, conns_per_peer or health",
                  "nothing is to be set");
        return;
    }
    if (args[5].given && set_health(call, args, !tunables) == 0) {
        no_such_ni(call, args);
        return;
    }
    if (!tunables)
        return;
    cfg = rpc_edit(call);
    for (unsigned i = 0; cfg && i < cfg->ni_count; i++) {
        if (!ni_meant(&cfg->ni[i], &args[0], NULL, &args[1]))
            continue;
        any = true;
        if (args[3].given)
            cfg->ni[i].conf.lnd_tun.timeout = (int)args[3].integer;
        if (args[4].given)
            cfg->ni[i].conf.lnd_tun.conns_per_peer = (int)args[4].integer;
    }
    if (any)
        rpc_commit(call, cfg, rpc_changed, call);
    else if (cfg)
        no_such_ni(call, args);
}
