/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line: lnetctl's words over JSON-RPC. Shared by the files of app/millrace.
 *
 * A command is a row. Most rows are made from the table of methods (rpc/methods/methods.def): one
 * with
 * `.cli` words is a command with the options, help and completion that its parameters tell. Rows of
 * table.c are commands that are no single method. A row of views.c says how a command shows what
 * the method answers, where that is not simply all of it as YAML.
 */
#ifndef MILLRACE_CLI_H
#define MILLRACE_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "app/millrace/yaml_out.h"
#include "lib/base/err.h"
#include "rpc/engine/rpc_table.h"
#include "rpc/rpc_client.h"

#define CLI_DEFAULT_SOCKET "/run/millrace/millraced.sock"
#define CLI_TIMEOUT_MS     30000 /* for an answer that nobody asked to take longer */
#define CLI_MAX_FILE       RPC_MAX_DOCUMENT

enum cli_exit {
    CLI_OK = 0,
    CLI_REFUSED = 1, /* millraced said no */
    CLI_USAGE = 2,
    CLI_NO_ANSWER = 3, /* no connection to millraced, or it broke; or no place for the output */
};

struct cli_command;

struct cli {
    const char *path; /* of the socket */
    struct rpc_client *client;
    bool json; /* print results as they come */
    const struct cli_command *command;
    const char *group, *verb; /* for errors: "route", "add" */
    json_t *names;            /* NID to host, asked for once; NULL = not yet */
};

/* How a command shows the result of its method. */
struct cli_view {
    const char *words; /* of the command */
    const struct yaml_style *style;
    const struct jrpc_param *params; /* options of the view itself; NULL = none */
    const char *wrap;                /* the key the result is shown below; NULL = as it is */
    /* Leaves in result what is shown, or replaces it. Once per page. NULL = all of it. */
    json_t *(*edit)(struct cli *cli, json_t *result, const json_t *args);
    /* Prints a page as something other than YAML; first: it is the first one. False: as YAML. NULL
     * = YAML. */
    bool (*print)(struct cli *cli, const json_t *result, const json_t *args, bool first);
};

struct cli_command {
    const char *words; /* "net show" */
    const char *help;  /* one sentence */
    /* args: values by the name of their parameter, not the callee's. Returns enum cli_exit. */
    int (*run)(struct cli *cli, json_t *args);
    const struct jrpc_param *params;  /* its own options; ends with a row without name; or NULL */
    const struct jrpc_method *method; /* of which it has the parameters, too; or NULL */
    const struct cli_view *view;      /* and those of its view; or NULL */
    bool offline;                     /* needs no millraced */
    bool hidden;                      /* neither in the help nor completed */
    bool any_words;                   /* what follows is for args["words"], options or not */
};

/* ---- table.c: the commands ---- */

/* All commands, in the order of the help; ends with a row without words. Made once. */
const struct cli_command *cli_commands(void);
/* The command that the most of the first words name; *used is how many. NULL: none. */
const struct cli_command *cli_find(int argc, char *const *argv, int *used);
/* The command, or first word of commands, that is nearest to what was typed; NULL: none is near. */
const char *cli_near(int argc, char *const *argv);
/* The i-th parameter: of the method, of the row, of the view. NULL: no more. */
const struct jrpc_param *cli_param(const struct cli_command *command, size_t i);
/* Whether the method knows a parameter of this name. */
bool cli_sent(const struct cli_command *command, const char *name);
const struct jrpc_method *cli_method(const char *name);
/* The method of a command of `set`; its parameter is the one of the command. */
const struct jrpc_method *cli_setting(const struct cli_command *command);
const struct cli_view *cli_view(const char *words); /* views.c; NULL: none */

/* ---- options.c ---- */

/* Reads the words behind a command. CLI_OK with *args, else a message has been printed. Sets
 * cli->json for --json. */
int cli_parse(struct cli *cli, const struct cli_command *command, int argc, char *const *argv,
              json_t **args);
/* The parameter that a word names, `--net`, `--net=x`, `-n`; *value = what is joined to it, or
 * NULL. NULL: none, or two that begin so. */
const struct jrpc_param *cli_option(const struct cli_command *command, const char *word,
                                    const char **value);
/* Whether an option takes no value, or may go without. */
bool cli_is_flag(const struct jrpc_param *param);
bool cli_value_optional(const struct jrpc_param *param);
/* Name of the option; NULL: it is a word without one. buf has room for it. */
const char *cli_option_name(const struct jrpc_param *param, char *buf, size_t len);
/* A value by the type of its parameter (NULL: unknown), as a new reference; NULL: it is none, and
 * err says why. */
json_t *cli_value(const struct jrpc_param *param, const char *text, struct err *err);
/* The text of a file of at most CLI_MAX_FILE bytes, "-" = standard input; NULL after a message. */
json_t *cli_read_file(const char *path);

/* ---- run.c ---- */

/* Calls a method; params is taken. CLI_OK with *result, else the error has been printed. */
int cli_call(struct cli *cli, const char *method, json_t *params, unsigned timeout_ms,
             json_t **result);
/* How long to wait for an answer: CLI_TIMEOUT_MS, and what the parameters themselves ask for. */
unsigned cli_timeout(const char *method, const json_t *params);
/* The same for each page of a method that has pages; page() gets each result (not its own). */
int cli_pages(struct cli *cli, const char *method, json_t *params,
              void (*page)(void *arg, json_t *result), void *arg);
/* The whole list that a method with pages answers below key. */
int cli_list(struct cli *cli, const char *method, json_t *params, const char *key, json_t **list);
/* Runs the method of the command and shows the result by its view. */
int cli_run_method(struct cli *cli, json_t *args);
/* Calls a method that changes something: prints the result with --json only. params is taken. */
int cli_change(struct cli *cli, const char *method, json_t *params);
/* Prints a result, NIDs with their hosts; lists that are empty print nothing, as lnetctl does.
 * result is taken. */
int cli_show(struct cli *cli, const struct yaml_style *style, json_t *result);
/* An error in lnetctl's form, docs/protocol/lnet-core.md §10.1. number is negative. */
void cli_error(const struct cli *cli, json_int_t number, const char *descr, const char *remedy);
/* Returns a text of millraced's with the names of methods replaced by the commands for them, to be
 * freed: "net_get lists them" becomes "`millrace net show` lists them". */
char *cli_as_commands(const char *text);
/* The host of a NID, or NULL; asks millraced once. arg: struct cli. */
const char *cli_host(void *arg, const char *nid);
/* A message about wrong arguments, and where the help is. */
int cli_usage(const struct cli_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- views.c ---- */

#define CLI_SETTABLE (-1) /* the level of `export --backup`: what can be set, nothing else */

/* Leave of nets, routes, peers what `show` has at a level of verbosity. */
void cli_trim_nets(json_t *nets, json_int_t level);
void cli_trim_routes(json_t *routes, json_int_t level);
void cli_trim_peers(json_t *peers, json_int_t level);
/* Router buffers as `routing show` has them; NULL: routing is off, and it shows nothing. Takes
 * parts of what buffers_get answered. */
json_t *cli_routing(json_t *buffers);

/* ---- views_eth.c: of ports ---- */

json_t *cli_edit_ports(struct cli *cli, json_t *result, const json_t *args);
json_t *cli_edit_counts(struct cli *cli, json_t *result, const json_t *args);
bool cli_print_arp(struct cli *cli, const json_t *result, const json_t *args, bool first);
bool cli_print_tcp(struct cli *cli, const json_t *result, const json_t *args, bool first);

/* ---- help.c ---- */

void cli_help(FILE *to); /* all commands */
/* Prints the commands that begin with these words. False: there is none. */
bool cli_help_group(FILE *to, const char *words);
void cli_help_command(FILE *to, const struct cli_command *command);
/* What stands for a value: "NET", "SECONDS", "tcp|o2ib"; and `[--net NET] …` of a command. */
void cli_metavar(const struct jrpc_param *param, char *buf, size_t len);
void cli_synopsis(const struct cli_command *command, char *buf, size_t len);
/* `-n, --net NET` and what it means. */
void cli_help_option(const struct jrpc_param *p, char *left, size_t left_len, char *right,
                     size_t right_len);

/* ---- commands, each in the file of its subject; they return enum cli_exit ---- */

/* node.c */
int cmd_ping(struct cli *cli, json_t *args);
int cmd_peer_list(struct cli *cli, json_t *args);
int cmd_routing_show(struct cli *cli, json_t *args);
int cmd_set(struct cli *cli, json_t *args);
int cmd_lnet_configure(struct cli *cli, json_t *args);
int cmd_refused(struct cli *cli, json_t *args);
int cmd_rpc(struct cli *cli, json_t *args);
const char *cli_refusal(const char *words, const char **remedy); /* NULL: none */
/* port.c */
int cmd_export(struct cli *cli, json_t *args);
int cmd_import(struct cli *cli, json_t *args);
/* convert.c */
int cmd_convert(struct cli *cli, json_t *args);
/* config.c */
int cmd_config_show(struct cli *cli, json_t *args);
int cmd_config_diff(struct cli *cli, json_t *args);
int cmd_config_apply(struct cli *cli, json_t *args);
int cmd_config_save(struct cli *cli, json_t *args);
/* Applies the text of a file, of which name speaks in errors, by a mode of config_apply and the
 * options `confirm`, `dry-run` of args. */
int cli_apply(struct cli *cli, const json_t *args, json_t *text, const char *name,
              const char *mode);
/* capture.c */
int cmd_capture(struct cli *cli, json_t *args);
/* events.c */
int cmd_events(struct cli *cli, json_t *args);
/* top.c */
int cmd_top(struct cli *cli, json_t *args);
/* complete.c */
int cmd_completion(struct cli *cli, json_t *args);
int cmd_complete(struct cli *cli, json_t *args);
/* reference.c */
int cmd_reference(struct cli *cli, json_t *args);

#endif
