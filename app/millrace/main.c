/* SPDX-License-Identifier: BSD-3-Clause */
/* millrace: looks at and changes a running millraced. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "app/millrace/yaml_out.h"

#define DEFAULT_SOCKET "/run/millrace/millraced.sock"

static const struct cli_command commands[] = {
    {"net", "show", cmd_net_show, "[--net NET] [-v [N]]", "nets and their NIs; N = 1, 2: more"},
    {"net", "del", cmd_net_del, "--net NET", "remove a net and its NIs"},
    {"route", "show", cmd_route_show, "[--net NET] [--gateway NID] [-v]", "routes"},
    {"route", "add", cmd_route_add, "--net NET --gateway NID [--hop N] [--priority N]",
     "add a route"},
    {"route", "del", cmd_route_del, "--net NET --gateway NID", "remove a route"},
    {"peer", "show", cmd_peer_show, "[--nid NID] [-v [N]]", "peers and their counters"},
    {"peer", "list", cmd_peer_list, "", "NIDs of all peers"},
    {"stats", "show", cmd_stats_show, "", "counters of the whole node"},
    {"ping", NULL, cmd_ping, "NID[,NID...] [--timeout SECONDS] [--source NID]", "ping nodes"},
    {"drops", NULL, cmd_drops, "[--all]", "what was refused or dropped, and why"},
    {"waits", NULL, cmd_waits, "", "what messages wait for, how many, and for whom"},
    {"routing", "show", cmd_routing_show, "", "router buffers by reactor, in lnetctl's form"},
    {"buffers", "show", cmd_buffers_show, "", "the same with how many messages wait and waited"},
    {"admission", "show", cmd_admission_show, "", "by what rules messages get router buffers"},
    {"set", "tiny_buffers", cmd_set, "N",
     "router buffers for messages without payload; 0: default"},
    {"set", "small_buffers", cmd_set, "N", "the same for payload up to 4 KiB"},
    {"set", "large_buffers", cmd_set, "N", "the same for payload up to 1 MiB"},
    {"set", "egress_share", cmd_set, "PERCENT", "of the free buffers, what one next hop may hold"},
    {"set", "buffer_wait", cmd_set, "SECONDS", "how long a message may wait for a buffer"},
    {"reactors", "show", cmd_reactors_show, "", "polling threads"},
    {"export", NULL, cmd_export, "", "the configuration in lnetctl's form"},
    {"version", NULL, cmd_version, "", "version of the running millraced"},
    {"shutdown", NULL, cmd_shutdown, "[--drain SECONDS]", "stop millraced"},
    {NULL, NULL, NULL, NULL, NULL},
};

static void print_usage(FILE *to)
{
    const struct cli_command *c;

    fputs("usage: millrace [-s SOCKET] [--json] COMMAND [OPTION...]\n\n", to);
    for (c = commands; c->group; c++)
        fprintf(to, "  %s%s%s%s%s\n        %s\n", c->group, c->verb ? " " : "",
                c->verb ? c->verb : "", c->usage[0] ? " " : "", c->usage, c->help);
    fputs("\n  -s, --socket PATH  of millraced; default " DEFAULT_SOCKET "\n"
          "      --json         print results as JSON\n"
          "      --version      print the version of this command\n"
          "  -h, --help         print this\n\n"
          "Exit status: 0 done, 1 refused by millraced, 2 wrong arguments, 3 no answer.\n",
          to);
}

/* An error in lnetctl's form, docs/protocol/lnet-core.md §10.1. */
static void print_error(const struct cli *cli, json_int_t number, const char *descr,
                        const char *remedy)
{
    json_t *entry = json_pack("{s:I, s:s}", "errno", number, "descr", descr);
    json_t *all;

    if (remedy)
        json_object_set_new(entry, "remedy", json_string(remedy));
    all = json_pack("{s:[{s:o}]}", cli->verb, cli->group, entry);
    yaml_print(stderr, &yaml_style_classic, all);
    json_decref(all);
}

int cli_call(struct cli *cli, const char *method, json_t *params, unsigned timeout_ms,
             json_t **result)
{
    char err[320];
    json_t *data, *number;
    int rc = rpc_client_call(cli->client, method, params, timeout_ms, result, err, sizeof(err));
    const char *message;

    if (rc == 0)
        return CLI_OK;
    if (rc < 0) {
        print_error(cli, rc, err, NULL);
        return CLI_NO_ANSWER;
    }
    data = json_object_get(*result, "data");
    number = json_object_get(data, "errno");
    message = json_string_value(json_object_get(*result, "message"));
    print_error(cli, json_integer_value(number ? number : json_object_get(*result, "code")),
                message ? message : "refused", json_string_value(json_object_get(data, "remedy")));
    json_decref(*result);
    *result = NULL;
    return CLI_REFUSED;
}

static const struct cli_command *find_command(const char *group, const char *verb)
{
    const struct cli_command *c;

    for (c = commands; c->group; c++)
        if (strcmp(c->group, group) == 0 && (!c->verb || (verb && strcmp(c->verb, verb) == 0)))
            return c;
    return NULL;
}

static int run(struct cli *cli, const char *path, const struct cli_command *command, int argc,
               char **argv)
{
    char err[320];
    int rc;

    cli->group = command->group;
    cli->verb = command->verb ? command->verb : "manage"; /* as lnetctl for commands of one word */
    rc = rpc_client_open(path, &cli->client, err, sizeof(err));
    if (rc != 0) {
        print_error(cli, rc, err, NULL);
        return CLI_NO_ANSWER;
    }
    rc = command->run(cli, argc, argv);
    rpc_client_close(cli->client);
    if (fflush(stdout) != 0)
        rc = CLI_NO_ANSWER;
    return rc;
}

int main(int argc, char **argv)
{
    const char *path = DEFAULT_SOCKET;
    struct cli cli = {.json = false};
    const struct cli_command *command;
    int i;

    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            cli.json = true;
        } else if (strncmp(argv[i], "--socket=", 9) == 0) {
            path = argv[i] + 9;
        } else if ((!strcmp(argv[i], "-s") || !strcmp(argv[i], "--socket")) && i + 1 < argc) {
            path = argv[++i];
        } else if (strcmp(argv[i], "--version") == 0) {
            puts("millrace " MILLRACE_VERSION);
            return CLI_OK;
        } else if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            print_usage(stdout);
            return CLI_OK;
        } else {
            fprintf(stderr, "millrace: unknown option %s; try: millrace --help\n", argv[i]);
            return CLI_USAGE;
        }
    }
    if (i == argc) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    command = find_command(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (!command) {
        fprintf(stderr, "millrace: '%s%s%s' is not a command; try: millrace --help\n", argv[i],
                i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "");
        return CLI_USAGE;
    }
    i += command->verb ? 1 : 0;
    return run(&cli, path, command, argc - i, argv + i);
}
