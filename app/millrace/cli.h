/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line: lnetctl's words over JSON-RPC. Shared by the files of app/millrace.
 *
 * A command is a row. Most rows are made from the table of methods (rpc/methods/methods.def): a
 * method with `.cli` words is a command, and its parameters make the options, the help and the
 * completion. Rows of table.c are commands that are no single method. A row of views.c tells how
 * a command shows the result of its method; without one it prints the whole result as YAML.
 */
#ifndef MILLRACE_CLI_H
#define MILLRACE_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "app/millrace/yaml_out.h"
#include "lib/base/err.h"
#include "rpc/engine/rpc_table.h"
#include "rpc/rpc_client.h"

#define CLI_DEFAULT_SOCKET "/run/millrace/millraced.sock"
#define CLI_TIMEOUT_MS     30000 /* for an answer, unless the parameters make it longer */
#define CLI_MAX_FILE       RPC_MAX_DOCUMENT

enum cli_exit {
    CLI_OK = 0,
    CLI_REFUSED = 1, /* millraced said no */
    CLI_DIFFERS = 1, /* `config diff --exit-code` */
    CLI_USAGE = 2,
    CLI_NO_ANSWER =
        3, /* no connection to millraced, or it broke; or the output cannot be written */
};

struct cli_command;

struct cli {
    const char *path; /* of the socket */
    struct rpc_client *client;
    bool json; /* print results as they come */
    const struct cli_command *command;
    const char *group, *verb; /* for errors: "route", "add" */
    json_t *names;            /* NID to host, fetched once; NULL = not yet */
};

/* How a command shows the result of its method. */
struct cli_view {
    const char *words; /* of the command */
    const struct yaml_style *style;
    const struct jrpc_param *params; /* options of the view itself; NULL = none */
    const char *wrap;                /* the key that the result is shown below; NULL = none */
    /* Reduces the result to what is shown, or replaces it. Called for each page. NULL: all is
     * shown. */
    json_t *(*edit)(struct cli *cli, json_t *result, const json_t *args);
    /* Prints a page in another form than YAML; first: the page is the first one. False, or NULL: as
     * YAML. */
    bool (*print)(struct cli *cli, const json_t *result, const json_t *args, bool first);
};

struct cli_command {
    const char *words;  /* "net show" */
    const char *help;   /* one sentence; of a refused command why */
    const char *remedy; /* of a refused command, or NULL */
    /* args: values by the names of their parameters, owned by the caller. Returns enum cli_exit. */
    int (*run)(struct cli *cli, json_t *args);
    const struct jrpc_param *params;  /* its own options; ends with a row without name; or NULL */
    const struct jrpc_method *method; /* whose parameters it has, too; or NULL */
    const struct jrpc_method *setter; /* of `set X`: the method that sets its parameter */
    const struct cli_view *view;      /* and those of its view; or NULL */
    bool offline;                     /* needs no millraced */
    bool verdict;                     /* its exit status is enum report_level */
    bool hidden;                      /* neither in the help nor completed */
    bool any_words;                   /* all further words go into args["words"], also options */
};

/* Rows of parameters of a command or a view. */
#define CLI_PARAMS(...)                                                                            \
    (const struct jrpc_param[])                                                                    \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define CLI_FLAG(name_, letter_, help_)                                                            \
    {                                                                                              \
        .name = name_, .type = JRPC_BOOLEAN, .letter = letter_, .help = help_                      \
    }
#define CLI_NUMBER(name_, letter_, min_, max_, unit_, help_)                                       \
    {                                                                                              \
        .name = name_, .type = JRPC_INTEGER, .letter = letter_, .min = min_, .max = max_,          \
        .unit = unit_, .help = help_                                                               \
    }

/* ---- table.c: the commands ---- */

/* Returns all commands in the order of the help; the last row has no words. */
const struct cli_command *cli_commands(void);
/* Returns the words of a command behind those that the first words are equal to; *used is their
 * number. */
const char *cli_behind(const struct cli_command *command, int argc, char *const *argv, int *used);
/* Finds the command that most of the first words name; *used is their number. NULL: none. */
const struct cli_command *cli_find(int argc, char *const *argv, int *used);
/* Returns the command, or first word of commands, that is nearest to the typed words; NULL: none is
 * near. */
const char *cli_near(int argc, char *const *argv);
/* Returns the i-th parameter of a command: those of the method, then of the row, then of the view.
 * NULL: no more. */
const struct jrpc_param *cli_param(const struct cli_command *command, size_t i);
/* Returns the parameter of a name, of a command or of a method (may be NULL); NULL: there is none.
 */
const struct jrpc_param *cli_param_named(const struct cli_command *command, const char *name);
const struct jrpc_param *cli_method_param(const struct jrpc_method *method, const char *name);
const struct jrpc_method *cli_method(const char *name);
const struct cli_view *cli_view(const char *words); /* views.c; NULL: none */

/* ---- options.c ---- */

/* Reads the words behind a command into *args and sets cli->json for --json. Returns CLI_OK, or
 * another status after a message. */
int cli_parse(struct cli *cli, const struct cli_command *command, int argc, char *const *argv,
              json_t **args);
/* Finds the parameter that a word names: `--net`, `--net=x`, `-n`; *value is the text joined to it,
 * or NULL. NULL: there is none, or two begin so. */
const struct jrpc_param *cli_option(const struct cli_command *command, const char *word,
                                    const char **value);
/* Whether an option takes no value; whether its value may be left out. */
bool cli_is_flag(const struct jrpc_param *param);
bool cli_value_optional(const struct jrpc_param *param);
/* Writes the name of the option into buf and returns it; NULL: the parameter is a word without
 * option. */
const char *cli_option_name(const struct jrpc_param *param, char *buf, size_t len);
/* Converts text by the type of its parameter. Returns a new reference; NULL with err: the text is
 * no such value. */
json_t *cli_value(const struct jrpc_param *param, const char *text, struct err *err);
/* Returns the text of a file of at most CLI_MAX_FILE bytes, "-" is standard input; NULL after a
 * message. */
json_t *cli_read_file(const char *path);

/* ---- run.c ---- */

/* Makes a signal set cli_asked_to_end, and end a wait. */
extern volatile sig_atomic_t cli_asked_to_end;
void cli_catch(int number);
/* Calls a method; takes params. Waits for CLI_TIMEOUT_MS and the times among the parameters.
 * Returns CLI_OK with *result, or another status with NULL after the error has been printed. */
int cli_call(struct cli *cli, const char *method, json_t *params, json_t **result);
/* Calls a method, which may have pages, for its whole result: the lists of all pages joined. As
 * cli_call(). */
int cli_whole(struct cli *cli, const char *method, json_t *params, json_t **result);
/* Runs the method of the command and shows the result by its view. */
int cli_run_method(struct cli *cli, json_t *args);
/* Calls a method that changes something: prints the result with --json only. params is taken. */
int cli_change(struct cli *cli, const char *method, json_t *params);
/* Prints a result, NIDs with their hosts; lists that are empty print nothing, as lnetctl does.
 * result is taken. */
int cli_show(struct cli *cli, const struct yaml_style *style, json_t *result);
/* Prints an error in lnetctl's form, docs/protocol/lnet-core.md §10.1. number is negative. */
void cli_error(const struct cli *cli, json_int_t number, const char *descr, const char *remedy);
/* Returns a text of millraced's with the names of methods replaced by the commands for them, to be
 * freed: "net_get lists them" becomes "`millrace net show` lists them". */
char *cli_as_commands(const char *text);
/* Returns the host of a NID, or NULL. Fetches the names once. arg: struct cli. */
const char *cli_host(void *arg, const char *nid);
/* Prints a message about wrong arguments and how to get the help. Returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- members of JSON objects ---- */

/* Returns the text below a key; "" when there is none. */
static inline const char *cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Returns the number below a key; 0 when there is none. */
static inline json_int_t cli_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static inline bool cli_flag(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* ---- views.c ---- */

#define CLI_SETTABLE (-1) /* the level of `export --backup`: only keys that can be set */

/* Reduces a list of nets, routes or peers to the keys that `show` has at a level of verbosity. own:
 * also to those that lnetctl does not have. key: of the list in its result: "net", "route", "peer".
 */
void cli_trim(const char *key, json_t *list, json_int_t level, bool own);
/* Returns router buffers in the form of `routing show`; NULL: routing is off, and nothing is shown.
 * Uses parts of the result of buffers_get. */
json_t *cli_routing(json_t *buffers);

/* ---- help.c ---- */

void cli_help(FILE *to); /* all commands */
/* Prints the commands that begin with these words. False: there is none. */
bool cli_help_group(FILE *to, const char *words);
void cli_help_command(FILE *to, const struct cli_command *command);
/* cli_metavar() writes the placeholder of a value: "NET", "SECONDS", "tcp|o2ib". cli_synopsis()
 * writes `[--net NET] …` of a command. */
void cli_metavar(const struct jrpc_param *param, char *buf, size_t len);
void cli_synopsis(const struct cli_command *command, char *buf, size_t len);
/* Writes `-n, --net NET` and its help. */
void cli_help_option(const struct jrpc_param *p, char *left, size_t left_len, char *right,
                     size_t right_len);

/* ---- commands, each in the file of its subject; they return enum cli_exit ---- */

/* node.c */
int cmd_ping(struct cli *cli, json_t *args);
int cmd_discover(struct cli *cli, json_t *args);
int cmd_peer_list(struct cli *cli, json_t *args);
int cmd_routing_show(struct cli *cli, json_t *args);
int cmd_set(struct cli *cli, json_t *args);
int cmd_lnet_configure(struct cli *cli, json_t *args);
int cmd_refused(struct cli *cli, json_t *args);
int cmd_fault_add(struct cli *cli, json_t *args); /* fault.c */
int cmd_fault_del(struct cli *cli, json_t *args);
int cmd_fault_reset(struct cli *cli, json_t *args);
int cmd_fault_show(struct cli *cli, json_t *args);
int cmd_udsp_show(struct cli *cli, json_t *args);
int cmd_rpc(struct cli *cli, json_t *args);
/* port.c */
int cmd_export(struct cli *cli, json_t *args);
int cmd_import(struct cli *cli, json_t *args);
/* convert.c */
int cmd_convert(struct cli *cli, json_t *args);
/* config.c */
int cmd_config_show(struct cli *cli, json_t *args);
int cmd_config_file(struct cli *cli, json_t *args); /* config diff, config apply */
int cmd_config_save(struct cli *cli, json_t *args);
/* Applies the text of a file, called name in errors, by a mode of config_apply and the options
 * `confirm` and `dry-run` of args. */
int cli_apply(struct cli *cli, const json_t *args, json_t *text, const char *name,
              const char *mode);
/* drain.c */
int cmd_drain(struct cli *cli, json_t *args);
/* capture.c */
int cmd_capture(struct cli *cli, json_t *args);
/* events.c */
int cmd_events(struct cli *cli, json_t *args);
/* exporter.c */
int cmd_exporter(struct cli *cli, json_t *args);
/* top.c */
int cmd_top(struct cli *cli, json_t *args);
/* doctor.c */
int cmd_doctor(struct cli *cli, json_t *args);
/* param.c */
int cmd_param(struct cli *cli, json_t *args);
/* status.c */
int cmd_status(struct cli *cli, json_t *args);
/* complete.c */
int cmd_completion(struct cli *cli, json_t *args);
int cmd_complete(struct cli *cli, json_t *args);
/* reference.c */
int cmd_reference(struct cli *cli, json_t *args);

#endif
