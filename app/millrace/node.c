/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands for the running node that call more than one method, or none. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "lib/base/err.h"

/* ---- ping, discover ---- */

/* Keeps the keys that lnetctl prints, §10.6. */
static void trim_ping(json_t *list)
{
    json_t *row, *ni;
    size_t i, j;

    json_array_foreach(list, i, row) {
        json_object_del(row, "features");
        json_object_del(row, "pid");
        json_object_del(row, "seqno");
        json_array_foreach(json_object_get(row, "peer_ni"), j, ni)
            json_object_del(ni, "status");
    }
}

/* Calls a method for each NID in turn and prints the list of all results. method: also the key. */
static int each_nid(struct cli *cli, const char *method, const json_t *args, json_int_t seconds)
{
    json_t *list, *nid, *result;
    int rc = CLI_OK, one;
    size_t i;

    if (seconds < 1 || seconds > 60)
        return cli_usage(cli->command, "--timeout: give 1 to 60 seconds");
    list = json_array();
    json_array_foreach(json_object_get(args, "nid"), i, nid) {
        one = cli_call(cli, method,
                       json_pack("{s:O, s:I, s:O*, s:O*}", "nid", nid, "timeout_ms", 1000 * seconds,
                                 "source", json_object_get(args, "source"), "force",
                                 json_object_get(args, "force")),
                       &result);
        rc = rc == CLI_OK ? one : rc;
        json_array_extend(list, json_object_get(result, method));
        json_decref(result);
    }
    if (!cli->json)
        trim_ping(list);
    cli_show(cli, &yaml_style_narrow, json_pack("{s:o}", method, list));
    return rc;
}

int cmd_ping(struct cli *cli, json_t *args)
{
    return each_nid(cli, "ping", args,
                    json_object_get(args, "timeout") ? cli_integer(args, "timeout") : 1);
}

int cmd_discover(struct cli *cli, json_t *args)
{
    return each_nid(cli, "discover", args,
                    json_object_get(args, "timeout") ? cli_integer(args, "timeout") : 10);
}

/* ---- peers, buffers ---- */

int cmd_peer_list(struct cli *cli, json_t *args)
{
    json_t *result, *list = json_array(), *peer;
    int rc = cli_whole(cli, "peer_get", json_pack("{s:b}", "brief", 1), &result);
    size_t i;

    json_array_foreach(json_object_get(result, "peer"), i, peer)
        json_array_append_new(list,
                              json_pack("{s:O}", "nid", json_object_get(peer, "primary nid")));
    if (rc == CLI_OK)
        cli_show(cli, &yaml_style_wide, json_pack("{s:O}", "peer list", list));
    json_decref(list);
    json_decref(result);
    return rc;
}

int cmd_routing_show(struct cli *cli, json_t *args)
{
    json_t *result = NULL, *shown;
    int rc = cli_call(cli, "buffers_get", NULL, &result);

    if (rc != CLI_OK || cli->json)
        return rc == CLI_OK ? cli_show(cli, &yaml_style_classic, result) : rc;
    shown = cli_routing(result);
    json_decref(result);
    return shown ? cli_show(cli, &yaml_style_classic, shown) : CLI_OK;
}

/* ---- set ---- */

int cmd_set(struct cli *cli, json_t *args)
{
    const char *name = cli->command->params[0].name;

    return cli_change(cli, cli->command->setter->name,
                      json_pack("{s:O}", name, json_object_get(args, name)));
}

/* ---- lnet configure, what is refused ---- */

int cmd_lnet_configure(struct cli *cli, json_t *args)
{
    json_t *status = NULL;
    int rc = cli_call(cli, "config_status", NULL, &status);
    bool waiting = cli_flag(status, "waiting");

    json_decref(status);
    return rc == CLI_OK && waiting ? cli_change(cli, "start", NULL) : rc;
}

int cmd_refused(struct cli *cli, json_t *args)
{
    cli_error(cli, -EOPNOTSUPP, cli->command->help, cli->command->remedy);
    return CLI_REFUSED;
}

int cmd_udsp_show(struct cli *cli, json_t *args)
{
    json_t *result = NULL;
    int rc = cli_call(cli, "udsp_get", json_incref(args), &result);

    return rc == CLI_OK ? cli_show(cli, &yaml_style_classic, result) : rc;
}

/* ---- rpc ---- */

/* Adds `name=value`, converted by its type in the table. An unknown parameter is JSON or else text.
 * False after a message. */
static bool add_assignment(struct cli *cli, const struct jrpc_method *method, const char *word,
                           json_t *params)
{
    const char *text = strchr(word, '=');
    const struct jrpc_param *p;
    struct err err = {0};
    char name[64];
    json_t *value;

    if (!text || text == word || (size_t)(text - word) >= sizeof(name)) {
        cli_usage(cli->command, "'%s' is not name=value", word);
        return false;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(text - word), word);
    text++;
    p = cli_method_param(method, name);
    if (p)
        value = p->type == JRPC_STRINGS && text[0] == '[' ? json_loads(text, 0, NULL)
                : p->type == JRPC_TEXT && text[0] != '@'  ? json_string(text)
                : p->type == JRPC_TEXT                    ? cli_read_file(text + 1)
                                                          : cli_value(p, text, &err);
    else if (!(value = json_loads(text, JSON_DECODE_ANY, NULL)))
        value = json_string(text);
    if (!value)
        cli_usage(cli->command, "%s: %s", name,
                  err.message[0] ? err.message : "is not what it takes");
    json_object_set_new(params, name, value);
    return value != NULL;
}

/* Reads the parameters behind the method: one JSON object or array, or name=value…. NULL after a
 * message. */
static json_t *rpc_params(struct cli *cli, const json_t *words)
{
    const struct jrpc_method *method = cli_method(json_string_value(json_array_get(words, 0)));
    const char *first = json_string_value(json_array_get(words, 1));
    json_t *params, *word;
    json_error_t error;
    size_t i;

    if (first && (first[0] == '{' || first[0] == '[')) {
        params = json_array_size(words) == 2 ? json_loads(first, 0, &error) : NULL;
        if (!params)
            cli_usage(cli->command, "the parameters are no JSON: %s",
                      json_array_size(words) == 2 ? error.text : "more than one word");
        return params;
    }
    params = json_object();
    json_array_foreach(words, i, word)
        if (i > 0 && !add_assignment(cli, method, json_string_value(word), params)) {
            json_decref(params);
            return NULL;
        }
    return params;
}

int cmd_rpc(struct cli *cli, json_t *args)
{
    json_t *words = json_object_get(args, "words"), *params, *result = NULL;
    const char *method = json_string_value(json_array_get(words, 0));
    int rc;

    if (!method)
        return cli_usage(cli->command, "name a method (`millrace rpc rpc_methods` lists them)");
    params = rpc_params(cli, words);
    if (!params)
        return CLI_USAGE;
    rc = cli_call(cli, method, params, &result);
    cli->json = true;
    return rc == CLI_OK ? cli_show(cli, NULL, result) : rc;
}
