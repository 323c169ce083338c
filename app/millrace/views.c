/* SPDX-License-Identifier: BSD-3-Clause */
/* How commands show results: lnetctl's keys at its verbosities, in its layouts.
 * docs/protocol/lnet-core.md §10.2 to §10.5. A command without a row here shows the whole
 * result. */
#include <inttypes.h>
#include <string.h>

#include "app/millrace/cli.h"

#define OWN 5 /* the level of the keys that lnetctl does not have, --millrace */

/* ---- what is shown at which level ---- */

/* A key, the verbosity from which it is shown, and whether a backup has it. */
struct shown {
    const char *key;
    json_int_t level;
    bool settable;
};

static const struct shown ni_shown[] = {
    {"nid", 0, true},     {"status", 0},       {"reason", 0},         {"interfaces", 0, true},
    {"statistics", 1},    {"udsp info", 4},    {"sent_stats", 2},     {"received_stats", 2},
    {"dropped_stats", 2}, {"health stats", 2}, {"tunables", 1, true}, {"lnd tunables", 1, true},
    {"dev cpt", 1},       {"CPT", 1, true},    {"millrace", OWN},     {NULL},
};

/* Keys of `lnd tunables` that are no settings to lnetctl. */
static const char *const lnd_not_settable[] = {"timeout", NULL};

static const struct shown route_shown[] = {
    {"net", 0, true},      {"gateway", 0, true},        {"hop", 1, true},
    {"priority", 1, true}, {"health_sensitivity", OWN}, {"state", 1},
    {"type", 1},           {"millrace", OWN},           {NULL},
};

static const struct shown peer_shown[] = {
    {"primary nid", 0, true}, {"Multi-Rail", 0, true}, {"peer state", 3},
    {"peer ni", 0, true},     {"millrace", OWN},       {NULL},
};

static const struct shown peer_ni_shown[] = {
    {"nid", 0, true},
    {"udsp info", 4},
    {"state", 0},
    {"max_ni_tx_credits", 1},
    {"available_tx_credits", 1},
    {"min_tx_credits", 1},
    {"tx_q_num_of_buf", 1},
    {"available_rtr_credits", 1},
    {"min_rtr_credits", 1},
    {"refcount", 1},
    {"statistics", 1},
    {"sent_stats", 2},
    {"received_stats", 2},
    {"dropped_stats", 2},
    {"health stats", 2},
    {"millrace", OWN},
    {NULL},
};

static bool is_shown(const struct shown *row, json_int_t level, bool own)
{
    if (level == CLI_SETTABLE)
        return row->settable;
    return row->level == OWN ? own : row->level <= level;
}

/* Removes the keys that are not shown at a level. */
static void filter_object(json_t *object, const struct shown *shown, json_int_t level, bool own)
{
    json_t *value;
    const char *key;
    void *tmp;

    json_object_foreach_safe(object, tmp, key, value) {
        const struct shown *row;

        for (row = shown; row->key && strcmp(row->key, key) != 0; row++)
            ;
        if (!row->key || !is_shown(row, level, own))
            json_object_del(object, key);
    }
}

static void filter(json_t *list, const struct shown *shown, json_int_t level, bool own)
{
    json_t *object;
    size_t i;

    json_array_foreach(list, i, object)
        filter_object(object, shown, level, own);
}

/* ---- nets, routes, peers ---- */

static bool is_lo(const json_t *net)
{
    const char *type = json_string_value(json_object_get(net, "net type"));

    return type && strcmp(type, "lo") == 0;
}

static void trim_ni(json_t *ni)
{
    json_t *lnd = json_object_get(ni, "lnd tunables");

    for (size_t i = 0; lnd_not_settable[i]; i++)
        json_object_del(lnd, lnd_not_settable[i]);
}

static void trim_nets(json_t *nets, json_int_t level, bool own)
{
    for (size_t i = json_array_size(nets); i-- > 0;) {
        json_t *net = json_array_get(nets, i), *nis = json_object_get(net, "local NI(s)"), *ni;
        size_t j;

        filter(nis, ni_shown, level, own);
        if (level != CLI_SETTABLE)
            continue;
        json_array_foreach(nis, j, ni)
            trim_ni(ni);
        if (is_lo(net))
            json_array_remove(nets, i);
    }
}

/* Credits as the kernel's netlink has them: 32 bits without a sign, §10.3. */
static void credits_as_u32(json_t *ni)
{
    static const char *const keys[] = {"available_tx_credits", "min_tx_credits",
                                       "available_rtr_credits", "min_rtr_credits"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_t *value = json_object_get(ni, keys[i]);

        if (json_is_integer(value))
            json_object_set_new(ni, keys[i], json_integer((uint32_t)json_integer_value(value)));
    }
}

static void trim_peers(json_t *peers, json_int_t level, bool own)
{
    json_t *peer, *ni;
    size_t i, j;

    filter(peers, peer_shown, level, own);
    json_array_foreach(peers, i, peer) {
        json_t *nis = json_object_get(peer, "peer ni");

        filter(nis, peer_ni_shown, level, own);
        json_array_foreach(nis, j, ni)
            credits_as_u32(ni);
    }
}

void cli_trim_nets(json_t *nets, json_int_t level)
{
    trim_nets(nets, level, false);
}

void cli_trim_routes(json_t *routes, json_int_t level)
{
    filter(routes, route_shown, level, false);
}

void cli_trim_peers(json_t *peers, json_int_t level)
{
    trim_peers(peers, level, false);
}

static json_int_t level_of(const json_t *args)
{
    return json_integer_value(json_object_get(args, "verbose"));
}

static bool own_of(const json_t *args)
{
    return json_is_true(json_object_get(args, "millrace"));
}

static json_t *edit_nets(struct cli *cli, json_t *result, const json_t *args)
{
    trim_nets(json_object_get(result, "net"), level_of(args), own_of(args));
    return result;
}

static json_t *edit_routes(struct cli *cli, json_t *result, const json_t *args)
{
    filter(json_object_get(result, "route"), route_shown, level_of(args), own_of(args));
    return result;
}

static json_t *edit_peers(struct cli *cli, json_t *result, const json_t *args)
{
    trim_peers(json_object_get(result, "peer"), level_of(args), own_of(args));
    return result;
}

/* ---- counters ---- */

static json_t *edit_capture(struct cli *cli, json_t *result, const json_t *args)
{
    json_t *list = json_object_get(result, "counters");

    for (size_t i = json_array_size(list); i-- > 0;) {
        const json_t *row = json_array_get(list, i);

        if (json_equal(json_object_get(row, "before"), json_object_get(row, "after")) &&
            !json_is_true(json_object_get(args, "all")))
            json_array_remove(list, i);
    }
    return result;
}

/* ---- router buffers ---- */

/* The entry of a name in a list of objects with one member each, or NULL. */
static json_t *entry_of(const json_t *list, const char *name)
{
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
        if (json_object_get(item, name))
            return json_object_get(item, name);
    return NULL;
}

/* Adds the pools of one more reactor to those of its CPT. */
static void add_pools(json_t *cpt, json_t *reactor)
{
    static const char *const summed[] = {"nbuffers", "credits", "mincredits"};
    const char *name;
    json_t *pool;

    json_object_foreach(reactor, name, pool)
        for (size_t i = 0; i < sizeof(summed) / sizeof(summed[0]); i++) {
            json_t *sum = json_object_get(json_object_get(cpt, name), summed[i]);

            json_integer_set(sum, json_integer_value(sum) +
                                      json_integer_value(json_object_get(pool, summed[i])));
        }
}

/* The pools of reactors as a list that ends with `enable`. lnetctl's form: the sums of each CPT,
 * and only lnetctl's keys. */
static json_t *routing_list(json_t *result, bool lnetctl)
{
    static const struct shown pool_shown[] = {
        {"npages", 0}, {"nbuffers", 0}, {"credits", 0}, {"mincredits", 0}, {NULL}};
    json_t *list = json_array(), *reactor, *pool, *same;
    char name[32];
    const char *key;
    size_t i;

    json_array_foreach(json_object_get(result, "reactors"), i, reactor) {
        snprintf(name, sizeof(name), "reactor[%zu]", i);
        json_object_del(reactor, "reactor");
        if (lnetctl) {
            snprintf(name, sizeof(name), "cpt[%" JSON_INTEGER_FORMAT "]",
                     json_integer_value(json_object_get(reactor, "cpt")));
            json_object_del(reactor, "cpt");
            json_object_del(reactor, "segments");
            json_object_foreach(reactor, key, pool)
                filter_object(pool, pool_shown, 0, false);
            same = entry_of(list, name);
            if (same) {
                add_pools(same, reactor);
                continue;
            }
        }
        json_array_append_new(list, json_pack("{s:O}", name, reactor));
    }
    json_array_append_new(list, json_pack("{s:O}", "enable", json_object_get(result, "enable")));
    return list;
}

json_t *cli_routing(json_t *buffers)
{
    if (!json_integer_value(json_object_get(buffers, "enable")))
        return NULL; /* §10.4 */
    return json_pack("{s:o, s:O}", "routing", routing_list(buffers, true), "buffers",
                     json_object_get(buffers, "buffers"));
}

static json_t *edit_buffers(struct cli *cli, json_t *result, const json_t *args)
{
    json_t *shown = json_pack("{s:o, s:O}", "routing", routing_list(result, false), "buffers",
                              json_object_get(result, "buffers"));

    json_decref(result);
    return shown;
}

/* ---- why ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Columns of the label of a line. */
#define LABEL 10

static void print_host(struct cli *cli, const char *nid)
{
    const char *host = cli_host(cli, nid);

    if (!host)
        return;
    fputs(" (", stdout);
    yaml_put_plain(stdout, host);
    putchar(')');
}

static void print_nid(struct cli *cli, const char *label, const json_t *value)
{
    const char *nid = json_string_value(value);

    if (!nid)
        return;
    printf("%-*s", LABEL, label);
    yaml_put_plain(stdout, nid);
    print_host(cli, nid);
    putchar('\n');
}

/* Prints `word: text` and ends the line. */
static void print_said(const char *word, const json_t *object)
{
    yaml_put_plain(stdout, word);
    fputs(": ", stdout);
    yaml_put_plain(stdout, text_of(object, "text"));
    putchar('\n');
}

/* Prints members as `key value, key value`, except the verdict, which has its own line, and one
 * other. */
static void print_some(struct cli *cli, const json_t *object, const char *without)
{
    const char *key, *between = "";
    json_t *value;

    json_object_foreach((json_t *)object, key, value) {
        const char *text = json_string_value(value);

        if (!strcmp(key, "verdict") || !strcmp(key, "text") || !strcmp(key, without))
            continue;
        fputs(between, stdout);
        yaml_put_plain(stdout, key);
        putchar(' ');
        if (text) {
            yaml_put_plain(stdout, text);
            print_host(cli, text);
        } else {
            yaml_put_json(stdout, value, JSON_COMPACT);
        }
        between = ", ";
    }
    putchar('\n');
}

static void print_members(struct cli *cli, const json_t *object)
{
    print_some(cli, object, "");
}

/* Prints each candidate and why it was not chosen. */
static void print_candidates(struct cli *cli, const char *title, const json_t *list)
{
    json_t *row;
    size_t i;

    if (json_array_size(list))
        printf("%s\n", title);
    json_array_foreach(list, i, row) {
        fputs("  ", stdout);
        print_members(cli, row);
        fputs("    ", stdout);
        print_said(text_of(row, "verdict"), row);
    }
}

/* Prints the path below LNet and the drops there. */
static void print_port_path(struct cli *cli, json_t *path)
{
    const json_t *drops = json_object_get(path, "drops");
    json_t *row;
    size_t i;

    if (!json_object_size(path))
        return;
    printf("%-*s", LABEL, "by port");
    print_said(text_of(path, "port"), path);
    printf("%-*s", LABEL, "");
    print_some(cli, path, "drops");
    json_array_foreach(drops, i, row) {
        fputs("  dropped ", stdout);
        print_some(cli, row, "name");
        fputs("    ", stdout);
        print_said(text_of(row, "name"), row);
    }
}

static bool print_why(struct cli *cli, const json_t *result, const json_t *args, bool first)
{
    const json_t *why = json_object_get(result, "why"), *peer;

    print_nid(cli, "to", json_object_get(why, "nid"));
    printf("%-*s", LABEL, "verdict");
    yaml_put_plain(stdout, text_of(why, "verdict"));
    if (json_object_get(why, "drop")) {
        fputs(" (", stdout);
        yaml_put_plain(stdout, text_of(why, "drop"));
        putchar(')');
    }
    print_said("", why);
    if (json_object_get(why, "remedy")) {
        printf("%-*s", LABEL, "remedy");
        yaml_put_plain(stdout, text_of(why, "remedy"));
        putchar('\n');
    }
    print_nid(cli, "gateway", json_object_get(why, "gateway"));
    print_nid(cli, "next hop", json_object_get(why, "next_hop"));
    print_nid(cli, "from NI", json_object_get(why, "ni"));
    peer = json_object_get(why, "peer_ni");
    if (json_is_string(peer))
        print_nid(cli, "peer NI", peer);
    if (json_object_size(peer)) {
        printf("%-*s", LABEL, "peer NI");
        print_members(cli, peer);
    }
    print_port_path(cli, json_object_get(why, "port_path"));
    print_candidates(cli, "routes", json_object_get(why, "routes"));
    print_candidates(cli, "NIs", json_object_get(why, "nis"));
    return true;
}

/* ---- the table ---- */

#define VERBOSE(help_)                                                                             \
    {                                                                                              \
        .name = "verbose", .letter = 'v', .type = JRPC_INTEGER, .max = 4, .help = help_            \
    }
#define MILLRACE                                                                                   \
    {                                                                                              \
        .name = "millrace", .type = JRPC_BOOLEAN,                                                  \
        .help = "also keys that lnetctl does not have, below the key `millrace`"                   \
    }

static const struct jrpc_param net_params[] = {
    VERBOSE("1: counters, tunables; 2: counters by type, health; 4: selection policy"),
    MILLRACE,
    {.name = NULL},
};

static const struct jrpc_param route_params[] = {
    VERBOSE("hops, priority, state"),
    MILLRACE,
    {.name = NULL},
};

static const struct jrpc_param peer_params[] = {
    VERBOSE("1: counters, credits; 2: counters by type, health; 3: state; 4: selection policy"),
    MILLRACE,
    {.name = NULL},
};

static const struct jrpc_param port_params[] = {
    VERBOSE("also offloads, buffers and the counters of the queues"),
    {.name = NULL},
};

static const struct jrpc_param tcp_params[] = {
    VERBOSE("all that is known of each, as YAML"),
    {.name = NULL},
};

static const struct jrpc_param drops_params[] = {
    {.name = "all", .type = JRPC_BOOLEAN, .letter = 'a', .help = "also reasons with a count of 0"},
    {.name = NULL},
};

static const struct jrpc_param capture_params[] = {
    {.name = "all",
     .type = JRPC_BOOLEAN,
     .letter = 'a',
     .help = "also counters that did not change"},
    {.name = NULL},
};

/* Options of lnetctl without meaning here, so that its command lines work. */
static const struct jrpc_param net_add_params[] = {
    {.name = "skip_mr_route_setup",
     .type = JRPC_BOOLEAN,
     .letter = 'k',
     .help = "accepted without effect: millraced sets up no routes of Linux"},
    {.name = NULL},
};

static const struct jrpc_param peer_add_params[] = {
    {.name = "lock_prim",
     .type = JRPC_BOOLEAN,
     .letter = 'l',
     .help = "accepted without effect: a primary NID never changes"},
    {.name = NULL},
};

static const struct jrpc_param peer_del_params[] = {
    {.name = "force",
     .type = JRPC_BOOLEAN,
     .letter = 'f',
     .help = "accepted without effect: no primary NID is locked"},
    {.name = NULL},
};

static const struct cli_view views[] = {
    {"net add", .params = net_add_params},
    {"peer add", .params = peer_add_params},
    {"peer del", .params = peer_del_params},
    {"net show", &yaml_style_wide, .params = net_params, .edit = edit_nets},
    {"route show", &yaml_style_wide, .params = route_params, .edit = edit_routes},
    {"peer show", &yaml_style_wide, .params = peer_params, .edit = edit_peers},
    {"stats show", .wrap = "statistics"},
    {"global show", .wrap = "global"},
    {"admission show", .wrap = "admission"},
    {"buffers show", .edit = edit_buffers},
    {"drops", .params = drops_params, .edit = cli_edit_counts},
    {"counters", .params = capture_params, .edit = edit_capture},
    {"port show", .params = port_params, .edit = cli_edit_ports},
    {"port drops", .params = drops_params, .edit = cli_edit_counts},
    {"arp show", .print = cli_print_arp},
    {"tcp show", .params = tcp_params, .print = cli_print_tcp},
    {"why", .print = print_why},
};

const struct cli_view *cli_view(const char *words)
{
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (strcmp(views[i].words, words) == 0)
            return &views[i];
    return NULL;
}
