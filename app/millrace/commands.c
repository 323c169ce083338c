/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands. What is shown at which verbosity: docs/protocol/lnet-core.md §10.2 to §10.5. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "app/millrace/yaml_out.h"

/* A key and the verbosity from which on it is shown. */
struct shown {
    const char *key;
    long level;
};

static const struct shown ni_shown[] = {
    {"nid", 0},           {"status", 0},     {"interfaces", 0},
    {"statistics", 1},    {"sent_stats", 2}, {"received_stats", 2},
    {"dropped_stats", 2}, {"tunables", 1},   {"lnd tunables", 1},
    {"millrace", 1},      {NULL, 0},
};

static const struct shown route_shown[] = {
    {"net", 0}, {"gateway", 0}, {"hop", 1}, {"priority", 1}, {"state", 1}, {"type", 1}, {NULL, 0},
};

static const struct shown peer_ni_shown[] = {
    {"nid", 0},
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
    {"millrace", 1},
    {NULL, 0},
};

/* Removes what is not shown at a level. */
static void filter_object(json_t *object, const struct shown *shown, long level)
{
    json_t *value;
    const char *key;
    void *tmp;

    json_object_foreach_safe(object, tmp, key, value) {
        const struct shown *row;

        for (row = shown; row->key && strcmp(row->key, key) != 0; row++)
            ;
        if (!row->key || row->level > level)
            json_object_del(object, key);
    }
}

/* The same for each object of list. */
static void filter(json_t *list, const struct shown *shown, long level)
{
    json_t *object;
    size_t i;

    json_array_foreach(list, i, object)
        filter_object(object, shown, level);
}

/* The same for a list within each object of list. */
static void filter_inner(json_t *list, const char *inner, const struct shown *shown, long level)
{
    json_t *object;
    size_t i;

    json_array_foreach(list, i, object)
        filter(json_object_get(object, inner), shown, level);
}

/* Prints result, or as it came with --json; lists that are empty print nothing, as lnetctl does.
 * Takes result. */
static int show(struct cli *cli, const struct yaml_style *style, json_t *result)
{
    const char *key;
    json_t *value;
    bool something = false;

    json_object_foreach(result, key, value)
        something |= !json_is_array(value) || json_array_size(value);
    if (cli->json) {
        json_dumpf(result, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
        putchar('\n');
    } else if (something) {
        yaml_print(stdout, style, result);
    }
    json_decref(result);
    return CLI_OK;
}

static int too_many(int rest, const char *word)
{
    if (rest > 0)
        fprintf(stderr, "millrace: unexpected argument '%s'; try: millrace --help\n", word);
    return rest != 0;
}

/* Options of a command that takes nothing else. True: go on. */
static bool only_options(int argc, char **argv, struct cli_option *options)
{
    return !too_many(cli_options(argc, argv, options), argv[argc > 1 ? 1 : 0]);
}

static void add_text(json_t *params, const char *name, const struct cli_option *option)
{
    if (option->given)
        json_object_set_new(params, name, json_string(option->text));
}

static bool required(const struct cli_option *option)
{
    if (!option->given)
        fprintf(stderr, "millrace: --%s is missing; try: millrace --help\n", option->name);
    return option->given;
}

/* Calls a method that lists; options that are text filter by the parameter of the same name. */
static int get_list(struct cli *cli, int argc, char **argv, struct cli_option *o,
                    const char *method, json_t **result)
{
    json_t *params = json_object();
    int rc = CLI_USAGE;

    if (only_options(argc, argv, o)) {
        for (size_t i = 0; o[i].name; i++)
            if (o[i].kind == CLI_TEXT)
                add_text(params, o[i].name, &o[i]);
        rc = cli_call(cli, method, json_incref(params), CLI_TIMEOUT_MS, result);
    }
    json_decref(params);
    return rc;
}

/* Calls a method that changes something; its result is shown with --json only. */
static int change(struct cli *cli, const char *method, json_t *params)
{
    json_t *result = NULL;
    int rc = cli_call(cli, method, params, CLI_TIMEOUT_MS, &result);

    if (rc == CLI_OK && cli->json) {
        json_dumpf(result, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
        putchar('\n');
    }
    json_decref(result);
    return rc;
}

/* ---- net ---- */

int cmd_net_show(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "net", .letter = 'n', .kind = CLI_TEXT},
                             {.name = "verbose", .letter = 'v', .kind = CLI_VERBOSE},
                             {.name = NULL}};
    json_t *result;
    int rc = get_list(cli, argc, argv, o, "net_get", &result);

    if (rc != CLI_OK)
        return rc;
    filter_inner(json_object_get(result, "net"), "local NI(s)", ni_shown,
                 cli->json ? 9 : o[1].number);
    return show(cli, &yaml_style_wide, result);
}

int cmd_net_del(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "net", .letter = 'n', .kind = CLI_TEXT}, {.name = NULL}};
    json_t *params;

    if (!only_options(argc, argv, o) || !required(&o[0]))
        return CLI_USAGE;
    params = json_object();
    add_text(params, "net", &o[0]);
    return change(cli, "net_del", params);
}

/* ---- route ---- */

int cmd_route_show(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "net", .letter = 'n', .kind = CLI_TEXT},
                             {.name = "gateway", .letter = 'g', .kind = CLI_TEXT},
                             {.name = "verbose", .letter = 'v', .kind = CLI_VERBOSE},
                             {.name = NULL}};
    json_t *result;
    int rc = get_list(cli, argc, argv, o, "route_get", &result);

    if (rc != CLI_OK)
        return rc;
    filter(json_object_get(result, "route"), route_shown, cli->json ? 9 : o[2].number);
    return show(cli, &yaml_style_wide, result);
}

int cmd_route_add(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "net", .letter = 'n', .kind = CLI_TEXT},
                             {.name = "gateway", .letter = 'g', .kind = CLI_TEXT},
                             {.name = "hop", .letter = 'c', .kind = CLI_NUMBER},
                             {.name = "hop-count", .kind = CLI_NUMBER},
                             {.name = "priority", .letter = 'p', .kind = CLI_NUMBER},
                             {.name = NULL}};
    json_t *params;

    if (!only_options(argc, argv, o) || !required(&o[0]) || !required(&o[1]))
        return CLI_USAGE;
    params = json_object();
    add_text(params, "net", &o[0]);
    add_text(params, "gateway", &o[1]);
    if (o[2].given || o[3].given)
        json_object_set_new(params, "hop", json_integer(o[2].given ? o[2].number : o[3].number));
    if (o[4].given)
        json_object_set_new(params, "priority", json_integer(o[4].number));
    return change(cli, "route_add", params);
}

int cmd_route_del(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "net", .letter = 'n', .kind = CLI_TEXT},
                             {.name = "gateway", .letter = 'g', .kind = CLI_TEXT},
                             {.name = NULL}};
    json_t *params;

    if (!only_options(argc, argv, o) || !required(&o[0]) || !required(&o[1]))
        return CLI_USAGE;
    params = json_object();
    add_text(params, "net", &o[0]);
    add_text(params, "gateway", &o[1]);
    return change(cli, "route_del", params);
}

/* ---- peer ---- */

int cmd_peer_show(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "nid", .letter = 'n', .kind = CLI_TEXT},
                             {.name = "verbose", .letter = 'v', .kind = CLI_VERBOSE},
                             {.name = NULL}};
    json_t *result;
    int rc = get_list(cli, argc, argv, o, "peer_get", &result);

    if (rc != CLI_OK)
        return rc;
    filter_inner(json_object_get(result, "peer"), "peer ni", peer_ni_shown,
                 cli->json ? 9 : o[1].number);
    return show(cli, &yaml_style_wide, result);
}

int cmd_peer_list(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = NULL}};
    json_t *result, *list, *peer;
    size_t i;
    int rc;

    if (!only_options(argc, argv, o))
        return CLI_USAGE;
    rc = cli_call(cli, "peer_get", NULL, CLI_TIMEOUT_MS, &result);
    if (rc != CLI_OK)
        return rc;
    list = json_array();
    json_array_foreach(json_object_get(result, "peer"), i, peer)
        json_array_append_new(list,
                              json_pack("{s:O}", "nid", json_object_get(peer, "primary nid")));
    json_decref(result);
    return show(cli, &yaml_style_wide, json_pack("{s:o}", "peer list", list));
}

/* ---- counters ---- */

/* A method without parameters, its result shown as it is below a key (NULL: without). */
static int simple(struct cli *cli, int argc, char **argv, const char *method, const char *key)
{
    struct cli_option o[] = {{.name = NULL}};
    json_t *result;
    int rc;

    if (!only_options(argc, argv, o))
        return CLI_USAGE;
    rc = cli_call(cli, method, NULL, CLI_TIMEOUT_MS, &result);
    if (rc != CLI_OK)
        return rc;
    if (key && !cli->json)
        result = json_pack("{s:o}", key, result);
    return show(cli, &yaml_style_classic, result);
}

int cmd_stats_show(struct cli *cli, int argc, char **argv)
{
    return simple(cli, argc, argv, "stats_get", "statistics");
}

int cmd_reactors_show(struct cli *cli, int argc, char **argv)
{
    return simple(cli, argc, argv, "reactors_get", NULL);
}

int cmd_version(struct cli *cli, int argc, char **argv)
{
    return simple(cli, argc, argv, "version", NULL);
}

int cmd_drops(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "all", .letter = 'a', .kind = CLI_FLAG}, {.name = NULL}};
    json_t *result, *list;
    size_t i = 0;
    int rc;

    if (!only_options(argc, argv, o))
        return CLI_USAGE;
    rc = cli_call(cli, "drops_get", NULL, CLI_TIMEOUT_MS, &result);
    if (rc != CLI_OK)
        return rc;
    list = json_object_get(result, "drops");
    while (!o[0].given && i < json_array_size(list)) {
        if (json_integer_value(json_object_get(json_array_get(list, i), "count")))
            i++;
        else
            json_array_remove(list, i);
    }
    return show(cli, &yaml_style_classic, result);
}

int cmd_waits(struct cli *cli, int argc, char **argv)
{
    return simple(cli, argc, argv, "waits_get", NULL);
}

/* ---- router buffers, admission ---- */

/* The pools of reactors as a list that ends with `enable`. lnetctl's form: a reactor is called a
 * CPT, for that is what it is to credits, and only lnetctl's keys are shown. */
static json_t *routing_list(json_t *result, bool lnetctl)
{
    static const struct shown pool_shown[] = {
        {"npages", 0}, {"nbuffers", 0}, {"credits", 0}, {"mincredits", 0}, {NULL, 0}};
    json_t *list = json_array(), *reactor, *pool;
    char name[32];
    const char *key;
    size_t i;

    json_array_foreach(json_object_get(result, "reactors"), i, reactor) {
        snprintf(name, sizeof(name), "%s[%zu]", lnetctl ? "cpt" : "reactor", i);
        json_object_del(reactor, "reactor");
        if (lnetctl) {
            json_object_del(reactor, "cpt");
            json_object_foreach(reactor, key, pool)
                filter_object(pool, pool_shown, 0);
        }
        json_array_append_new(list, json_pack("{s:O}", name, reactor));
    }
    json_array_append_new(list, json_pack("{s:O}", "enable", json_object_get(result, "enable")));
    return list;
}

static int buffers_show(struct cli *cli, int argc, char **argv, bool lnetctl)
{
    struct cli_option o[] = {{.name = NULL}};
    json_t *result, *shown;
    int rc;

    if (!only_options(argc, argv, o))
        return CLI_USAGE;
    rc = cli_call(cli, "buffers_get", NULL, CLI_TIMEOUT_MS, &result);
    if (rc != CLI_OK || cli->json)
        return rc == CLI_OK ? show(cli, &yaml_style_classic, result) : rc;
    /* §10.4: nothing where routing is not enabled */
    if (lnetctl && !json_integer_value(json_object_get(result, "enable")))
        shown = json_object();
    else
        shown = json_pack("{s:o, s:O}", "routing", routing_list(result, lnetctl), "buffers",
                          json_object_get(result, "buffers"));
    json_decref(result);
    return show(cli, &yaml_style_classic, shown);
}

int cmd_buffers_show(struct cli *cli, int argc, char **argv)
{
    return buffers_show(cli, argc, argv, false);
}

int cmd_routing_show(struct cli *cli, int argc, char **argv)
{
    return buffers_show(cli, argc, argv, true);
}

int cmd_admission_show(struct cli *cli, int argc, char **argv)
{
    return simple(cli, argc, argv, "admission_get", "admission");
}

/* `set WORD NUMBER`: the method and parameter of each word. */
static const struct setting {
    const char *word, *method, *parameter;
} settings[] = {
    {"tiny_buffers", "buffers_set", "tiny"},
    {"small_buffers", "buffers_set", "small"},
    {"large_buffers", "buffers_set", "large"},
    {"egress_share", "admission_set", "egress_share"},
    {"buffer_wait", "admission_set", "buffer_wait"},
};

int cmd_set(struct cli *cli, int argc, char **argv)
{
    const struct setting *s = settings, *last = s + sizeof(settings) / sizeof(*s) - 1;
    struct cli_option o[] = {{.name = NULL}};
    int rest = cli_options(argc, argv, o);
    long number;

    while (s < last && strcmp(s->word, cli->verb) != 0)
        s++;
    cli->group = s->word; /* as lnetctl: "set:", then the word */
    cli->verb = "set";
    if (rest != 1 || !cli_number(argv[1], &number)) {
        if (rest >= 0)
            fprintf(stderr, "millrace: set %s: give one number; try: millrace --help\n", s->word);
        return CLI_USAGE;
    }
    return change(cli, s->method, json_pack("{s:I}", s->parameter, (json_int_t)number));
}

/* ---- ping ---- */

/* Pings one NID; its entry goes to list. */
static int ping_one(struct cli *cli, const char *nid, const struct cli_option *timeout,
                    const struct cli_option *source, json_t *list)
{
    json_t *params = json_pack("{s:s}", "nid", nid), *result = NULL;
    long seconds = timeout->given ? timeout->number : 1; /* §10.6 */
    int rc;

    json_object_set_new(params, "timeout_ms", json_integer(seconds * 1000));
    add_text(params, "source", source);
    rc = cli_call(cli, "ping", params, (unsigned)seconds * 1000 + CLI_TIMEOUT_MS, &result);
    if (rc == CLI_OK)
        json_array_extend(list, json_object_get(result, "ping"));
    json_decref(result);
    return rc;
}

/* Without --json what lnetctl prints. */
static void ping_trim(json_t *list)
{
    static const struct shown shown[] = {
        {"primary nid", 0}, {"Multi-Rail", 0}, {"peer_ni", 0}, {NULL, 0}};
    static const struct shown ni[] = {{"nid", 0}, {NULL, 0}};

    filter(list, shown, 0);
    filter_inner(list, "peer_ni", ni, 0);
}

int cmd_ping(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "timeout", .letter = 't', .kind = CLI_NUMBER},
                             {.name = "source", .letter = 's', .kind = CLI_TEXT},
                             {.name = NULL}};
    int rest = cli_options(argc, argv, o), i, rc = CLI_OK;
    json_t *list;

    if (rest == 0)
        fputs("millrace: ping: name one or more NIDs; try: millrace --help\n", stderr);
    if (o[0].given && (o[0].number < 1 || o[0].number > 600)) {
        fputs("millrace: --timeout: give 1 to 600 seconds\n", stderr);
        rest = -1;
    }
    if (rest < 1)
        return CLI_USAGE;
    list = json_array();
    for (i = 1; i <= rest; i++) {
        char *save = NULL, *nid;

        for (nid = strtok_r(argv[i], ",", &save); nid; nid = strtok_r(NULL, ",", &save)) {
            int one = ping_one(cli, nid, &o[0], &o[1], list);

            rc = rc == CLI_OK ? one : rc;
        }
    }
    if (!cli->json)
        ping_trim(list);
    show(cli, &yaml_style_narrow, json_pack("{s:o}", "ping", list));
    return rc;
}

/* ---- shutdown, export ---- */

int cmd_shutdown(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = "drain", .letter = 'd', .kind = CLI_NUMBER}, {.name = NULL}};
    json_t *params;

    if (!only_options(argc, argv, o))
        return CLI_USAGE;
    params = json_object();
    if (o[0].given)
        json_object_set_new(params, "drain", json_integer(o[0].number));
    return change(cli, "shutdown", params);
}

/* What can be configured of a net: as `lnetctl export --backup` (§10.7), but with the NID, for an
 * interface can have several addresses. */
static json_t *export_nets(json_t *nets)
{
    static const struct shown shown[] = {
        {"nid", 0}, {"interfaces", 0}, {"tunables", 0}, {"lnd tunables", 0}, {NULL, 0}};
    size_t i;

    filter_inner(nets, "local NI(s)", shown, 0);
    for (i = json_array_size(nets); i-- > 0;)
        if (strcmp(json_string_value(json_object_get(json_array_get(nets, i), "net type")), "lo") ==
            0)
            json_array_remove(nets, i);
    return nets;
}

static json_t *export_routes(json_t *routes)
{
    static const struct shown shown[] = {
        {"net", 0}, {"gateway", 0}, {"hop", 0}, {"priority", 0}, {NULL, 0}};

    filter(routes, shown, 0);
    return routes;
}

int cmd_export(struct cli *cli, int argc, char **argv)
{
    struct cli_option o[] = {{.name = NULL}};
    json_t *net = NULL, *route = NULL, *buffers = NULL, *wide, *classic;
    int rc;

    if (!only_options(argc, argv, o))
        return CLI_USAGE;
    rc = cli_call(cli, "net_get", NULL, CLI_TIMEOUT_MS, &net);
    if (rc == CLI_OK)
        rc = cli_call(cli, "route_get", NULL, CLI_TIMEOUT_MS, &route);
    if (rc == CLI_OK)
        rc = cli_call(cli, "buffers_get", NULL, CLI_TIMEOUT_MS, &buffers);
    if (rc == CLI_OK) {
        wide = json_pack("{s:O}", "net", export_nets(json_object_get(net, "net")));
        if (json_array_size(json_object_get(route, "route")))
            json_object_set(wide, "route", export_routes(json_object_get(route, "route")));
        classic =
            json_pack("{s:{s:O}, s:O}", "routing", "enable", json_object_get(buffers, "enable"),
                      "buffers", json_object_get(buffers, "buffers"));
        if (cli->json)
            json_object_update(wide, classic);
        show(cli, &yaml_style_wide, wide);
        if (!cli->json)
            yaml_print(stdout, &yaml_style_classic, classic);
        json_decref(classic);
    }
    json_decref(net);
    json_decref(route);
    json_decref(buffers);
    return rc;
}
