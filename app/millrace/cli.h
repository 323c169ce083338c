/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line: lnetctl's words over JSON-RPC. Shared by the files of app/millrace. */
#ifndef MILLRACE_CLI_H
#define MILLRACE_CLI_H

#include <stdbool.h>

#include <jansson.h>

#include "rpc/rpc_client.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_REFUSED = 1, /* millraced said no */
    CLI_USAGE = 2,
    CLI_NO_ANSWER = 3, /* no connection to millraced, or it broke */
};

struct cli {
    struct rpc_client *client;
    bool json;         /* print results as they come */
    const char *group; /* words of the command, for errors: "route" … */
    const char *verb;  /* … "add"; equal for one-word commands */
};

enum cli_option_kind {
    CLI_TEXT,
    CLI_NUMBER,
    CLI_VERBOSE /* number optional, then 1 */,
    CLI_FLAG
};

struct cli_option {
    const char *name;
    char letter; /* 0 = none */
    enum cli_option_kind kind;
    bool given;
    const char *text;
    long number;
};

/* Reads options by a table that ends with a row without name, and leaves what is no option in argv
 * from 1 on. Returns how many of these there are; -1 after a message. */
int cli_options(int argc, char **argv, struct cli_option *options);

/* A whole decimal number. */
bool cli_number(const char *text, long *out);

/* Calls a method; params is taken. CLI_OK with *result, else the error has been printed. */
int cli_call(struct cli *cli, const char *method, json_t *params, unsigned timeout_ms,
             json_t **result);

#define CLI_TIMEOUT_MS 30000

/* ---- commands: argv[0] is the last word of the command; they return enum cli_exit ---- */

struct cli_command {
    const char *group;
    const char *verb; /* NULL: a command of one word */
    int (*run)(struct cli *cli, int argc, char **argv);
    const char *usage;
    const char *help;
};

int cmd_net_show(struct cli *cli, int argc, char **argv);
int cmd_net_del(struct cli *cli, int argc, char **argv);
int cmd_route_show(struct cli *cli, int argc, char **argv);
int cmd_route_add(struct cli *cli, int argc, char **argv);
int cmd_route_del(struct cli *cli, int argc, char **argv);
int cmd_peer_show(struct cli *cli, int argc, char **argv);
int cmd_peer_list(struct cli *cli, int argc, char **argv);
int cmd_stats_show(struct cli *cli, int argc, char **argv);
int cmd_ping(struct cli *cli, int argc, char **argv);
int cmd_drops(struct cli *cli, int argc, char **argv);
int cmd_buffers_show(struct cli *cli, int argc, char **argv);
int cmd_routing_show(struct cli *cli, int argc, char **argv);
int cmd_admission_show(struct cli *cli, int argc, char **argv);
int cmd_set(struct cli *cli, int argc, char **argv);
int cmd_waits(struct cli *cli, int argc, char **argv);
int cmd_reactors_show(struct cli *cli, int argc, char **argv);
int cmd_version(struct cli *cli, int argc, char **argv);
int cmd_shutdown(struct cli *cli, int argc, char **argv);
int cmd_export(struct cli *cli, int argc, char **argv);

#endif
