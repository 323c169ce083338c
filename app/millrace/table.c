/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of commands: rows of this file, and a row for each method with `.cli` words. */
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/settings.h"
#include "rpc/methods/capture_params.def"

#define FILE_PARAM(required_, help_)                                                               \
    {                                                                                              \
        .name = "file", .type = JRPC_STRING, .option = "", .required = required_, .help = help_    \
    }
#define CONFIRM_PARAM                                                                              \
    CLI_NUMBER("confirm", 0, 1, 86400, "s",                                                        \
               "go back to the old configuration unless `config confirm` comes within this time")

#define REFUSED(words_, why_, remedy_)                                                             \
    {                                                                                              \
        .words = words_, .help = why_, .remedy = remedy_, .run = cmd_refused, .offline = true,     \
        .hidden = true, .any_words = true                                                          \
    }

#define FAULT_NIDS(name_, letter_, required_, help_)                                               \
    {                                                                                              \
        .name = name_, .type = JRPC_STRING, .letter = letter_, .required = required_,              \
        .help = help_                                                                              \
    }
#define FAULT_WORDS(name_, letter_, help_)                                                         \
    {                                                                                              \
        .name = name_, .type = JRPC_STRINGS, .letter = letter_, .help = help_                      \
    }
#define FAULT_INTERVAL "one message in so many seconds"
#define FAULT_HEALTH                                                                               \
    FAULT_WORDS("health_error", 'e',                                                               \
                "drop the message when it is sent, with this status: local_interrupt, "            \
                "local_dropped, local_aborted, local_no_route, local_error, local_timeout, "       \
                "remote_error, remote_dropped, remote_timeout, network_timeout, random; may be "   \
                "given several times")
#define FAULT_ADD(words_, help_, ...)                                                              \
    {                                                                                              \
        .words = words_, .help = help_, .run = cmd_fault_add,                                      \
        .params = CLI_PARAMS(                                                                      \
            FAULT_NIDS("source", 's', true,                                                        \
                       "source: a NID, a range of NIDs, *@NET, or * for all"),                     \
            FAULT_NIDS("dest", 'd', true, "destination, likewise"),                                \
            CLI_NUMBER("rate", 'r', 1, INT32_MAX, NULL, "one message in so many that match"),      \
            FAULT_WORDS("portal", 'p',                                                             \
                        "only PUTs and GETs of this portal, 0 to 63; may be given several times"), \
            FAULT_WORDS("message", 'm',                                                            \
                        "only messages of this type, PUT, ACK, GET or REPLY; may be given "        \
                        "several times"),                                                          \
            FAULT_NIDS("local_nid", 'o', false,                                                    \
                       "only messages that came in by this NI; no effect on delay rules and with " \
                       "health errors"),                                                           \
            __VA_ARGS__)                                                                           \
    }
#define FAULT_SHOW(words_, help_)                                                                  \
    {                                                                                              \
        .words = words_, .help = help_, .run = cmd_fault_show,                                     \
        .params = CLI_PARAMS(CLI_FLAG("millrace", 0,                                               \
                                      "also keys that lnetctl does not have, below the key "       \
                                      "`millrace`"))                                               \
    }
/* The commands that the two kinds of rules have in common. */
#define FAULT_REST(kind_, does_)                                                                   \
    {.words = "fault " kind_ " del",                                                               \
     .help = "Deletes rules that " does_ " messages. What they delay goes on at once.",            \
     .run = cmd_fault_del,                                                                         \
     .params = CLI_PARAMS(                                                                         \
         FAULT_NIDS("source", 's', false, "as it was given to add; * matches all rules"),          \
         FAULT_NIDS("dest", 'd', false, "likewise"), CLI_FLAG("all", 'a', "all of them"))},        \
        {.words = "fault " kind_ " reset",                                                         \
         .help = "Sets the counters of rules that " does_                                          \
                 " messages to 0 and begins their rates and intervals anew.",                      \
         .run = cmd_fault_reset},                                                                  \
        FAULT_SHOW("fault " kind_ " show", "Shows the rules that " does_ " messages."),            \
        FAULT_SHOW("fault " kind_ " list", "As `fault " kind_ " show`.")

/* Commands that are no single method. A row replaces the row of a method with the same words. */
static const struct cli_command own[] = {
    {.words = "lnet configure",
     .help = "Starts the node of a millraced that waits for it (--wait-for-rpc). Otherwise does "
             "nothing: the node is configured.",
     .run = cmd_lnet_configure,
     .params = CLI_PARAMS(
         CLI_FLAG("all", 'a', "accepted without effect: the configuration file lists the nets"),
         CLI_FLAG("large", 'l', "accepted without effect: NIDs are those of the configuration"))},
    {.words = "peer list", .help = "Lists the primary NIDs of all peers.", .run = cmd_peer_list},
    {.words = "routing show",
     .help = "Shows router buffers of each reactor as lnetctl does, each as a `cpt`; nothing where "
             "routing is disabled.",
     .run = cmd_routing_show},
    {.words = "ping",
     .help = "Pings nodes and prints their NIDs.",
     .run = cmd_ping,
     .params =
         CLI_PARAMS({.name = "nid",
                     .type = JRPC_STRINGS,
                     .option = "",
                     .required = true,
                     .help = "the NIDs to ping, one after the other"},
                    CLI_NUMBER("timeout", 't', 1, 600, "s", "how long to wait for each; default 1"),
                    {.name = "source",
                     .type = JRPC_NID,
                     .letter = 's',
                     .help = "NID of this node to ping from; default: that of the path"})},
    {.words = "discover",
     .help = "Discovers peers and prints their NIDs.",
     .run = cmd_discover,
     .params = CLI_PARAMS(
         {.name = "nid",
          .type = JRPC_STRINGS,
          .option = "",
          .required = true,
          .help = "the peers to discover, one after the other"},
         CLI_FLAG("force", 'f', "also those that were discovered before"),
         CLI_NUMBER("timeout", 't', 1, 600, "s", "how long to wait for each; default 10"))},
    {.words = "import",
     .help = "Adds a file in lnetctl's form, or standard input, to the running configuration, or "
             "removes or shows its items. Applies all of the file or nothing.",
     .run = cmd_import,
     .params = CLI_PARAMS(FILE_PARAM(false, "lnetctl's YAML; left out or `-`: standard input"),
                          CLI_FLAG("add", 'a', "add its items; default"),
                          CLI_FLAG("del", 'd', "remove its items"),
                          CLI_FLAG("show", 's', "show those of its items that are running"),
                          CLI_FLAG("exec", 'e', "refused: use `ping`"),
                          CLI_FLAG("old-api", 'o', "accepted without effect"), CONFIRM_PARAM,
                          CLI_FLAG("dry-run", 0, "print the changes and do not apply them"))},
    {.words = "convert",
     .help = "Prints the configuration of a kernel node as one of millraced, and reports on "
             "standard error what is changed and what is ignored. Needs no millraced; run it on "
             "the machine that the configuration is for.",
     .run = cmd_convert,
     .offline = true,
     .params = CLI_PARAMS(
         {.name = "files",
          .type = JRPC_STRINGS,
          .option = "",
          .help = "in lnetctl's form, or with lines `options lnet networks=...`; a folder stands "
                  "for its files *.conf, `-` for standard input; default: /etc/lnet.conf and "
                  "/etc/modprobe.d"},
         CLI_FLAG("verbose", 'v', "report what is taken, too"),
         CLI_FLAG("strict", 0, "refuse files of which something is changed or ignored"))},
    {.words = "export",
     .help = "Prints nets, routes, peers, routing and buffers in lnetctl's form.",
     .run = cmd_export,
     .params = CLI_PARAMS(
         FILE_PARAM(false, "write to this file instead"),
         CLI_FLAG("backup", 'b', "only what can be imported again, without counters and state"))},
    {.words = "config show",
     .help = "Prints the whole configuration that is running, as YAML.",
     .run = cmd_config_show,
     .params =
         CLI_PARAMS(CLI_FLAG("backup", 'b', "without keys at their defaults, as lnetctl's backup"),
                    CLI_FLAG("file", 0, "print the file that it was read from, unchanged"))},
    {.words = "config diff",
     .help = "Prints the changes that `config apply` of a file would make.",
     .run = cmd_config_file,
     .params = CLI_PARAMS(FILE_PARAM(true, "a configuration; `-`: standard input"),
                          CLI_FLAG("exit-code", 0,
                                   "end with 1 if there are changes, and with 2 if the file is "
                                   "refused"),
                          CLI_FLAG("merge", 0, "as `config apply --merge` would"),
                          CLI_FLAG("delete", 0, "as `config apply --delete` would"))},
    {.words = "config apply",
     .help = "Makes a file the running configuration and prints the changes. Applies nothing of a "
             "file with an error.",
     .run = cmd_config_file,
     .params = CLI_PARAMS(
         FILE_PARAM(true, "a configuration; `-`: standard input"), CONFIRM_PARAM,
         CLI_FLAG("dry-run", 0, "print the changes and do not apply them"),
         CLI_FLAG("merge", 0, "add the file to the running configuration"),
         CLI_FLAG("delete", 0, "remove the items of the file from the running configuration"))},
    {.words = "config save",
     .help = "Writes the running configuration to the file it was read from, or to another; "
             "comments and order of a hand-written file stay.",
     .run = cmd_config_save,
     .params = CLI_PARAMS(FILE_PARAM(false, "write to this file instead"))},
    {.words = "capture",
     .help =
         "Writes packets that pass the ports, or are dropped there, as pcapng: to a file, or to "
         "standard output, as in `millrace capture | tshark -r -`. Only headers, unless --snap "
         "sets more.",
     .run = cmd_capture,
     .params = CLI_PARAMS({.name = "write",
                           .type = JRPC_STRING,
                           .letter = 'w',
                           .help = "the file; default, and `-`: standard output"},
                          CAPTURE_PARAMS)},
    {.words = "events",
     .help = "Prints events as they happen, until it is interrupted.",
     .run = cmd_events,
     .params = CLI_PARAMS(
         {.name = "type",
          .type = JRPC_STRINGS,
          .max = 32,
          .letter = 't',
          .help = "only events of this type; may be given several times"},
         {.name = "nid",
          .type = JRPC_STRINGS,
          .max = 64,
          .letter = 'n',
          .help = "only events about this NID; may be given several times"},
         CLI_NUMBER("count", 'c', 1, INT32_MAX, NULL, "end after this many"),
         CLI_FLAG("recent", 'r', "print the past events that millraced still knows, and end"),
         CLI_FLAG("follow", 'f', "when millraced ends, wait for its restart"))},
    {.words = "top",
     .help =
         "Shows reactors, NIs, peers, buffers and drops of a running millraced, or the health of "
         "its NIs and peers, live.",
     .run = cmd_top,
     .offline = true, /* it connects by itself */
     .params = CLI_PARAMS(CLI_NUMBER("interval", 'i', 1, 60, "s", "between two samples; default 2"),
                          {.name = "sort",
                           .type = JRPC_WORD,
                           .words = (const char *const[]){"bytes", "queued", "waiting", NULL},
                           .help = "how the shown peers are chosen; default bytes"},
                          {.name = "page",
                           .type = JRPC_WORD,
                           .words = (const char *const[]){"traffic", "health", NULL},
                           .help = "what is shown first; default traffic"},
                          CLI_NUMBER("batch", 'b', 1, INT32_MAX, NULL,
                                     "print this many frames as text, for scripts, and end"))},
    {.words = "status",
     .help =
         "Shows on one screen whether millraced does its work, and what is wrong. Exit status: 0 "
         "fine, 1 degraded, 2 down, 3 not known.",
     .run = cmd_status,
     .offline = true, /* it connects by itself */
     .verdict = true,
     .params = CLI_PARAMS(CLI_NUMBER("timeout", 't', 1, 600, "s",
                                     "how long to wait for an answer of millraced; default 5"))},
    {.words = "drain",
     .help = "Drains the router: peers are told that its NIs are down, and it goes on forwarding "
             "until none of them uses it. Exit status with --wait: 0 safe to stop, 1 still in use "
             "after the time limit.",
     .run = cmd_drain,
     .params = CLI_PARAMS(
         CLI_NUMBER("timeout", 't', 1, 86400, "s",
                    "time limit; default 90, longer than the 60 s between router checks of peers"),
         CLI_FLAG("undo", 'u', "take the drain back: peers use the router again"),
         CLI_FLAG("wait", 'w',
                  "show the progress once a second until it is safe or the time is "
                  "over"))},
    {.words = "doctor",
     .help = "Examines this host for what the configuration needs and for what would make the "
             "router slow; says which command helps. Changes nothing, needs no running millraced. "
             "Exit status: 0 nothing found, 1 warnings, 2 errors, 3 not known.",
     .run = cmd_doctor,
     .offline = true,
     .verdict = true,
     .params = CLI_PARAMS(
         {.name = "config",
          .type = JRPC_STRING,
          .letter = 'c',
          .help = "configuration file; default /etc/millrace/millrace.yaml"},
         CLI_FLAG("all", 'a', "also print what is well"),
         {.name = "root",
          .type = JRPC_STRING,
          .help = "folder to find /sys, /proc, /dev and /usr in, for tests; default /"})},
    {.words = "param",
     .help = "Prints a table in the columns of `lctl get_param` on a kernel node, or the NIDs as "
             "`lctl list_nids` does. A figure that millraced does not have is `-`.",
     .run = cmd_param,
     .params = CLI_PARAMS({.name = "name",
                           .type = JRPC_WORD,
                           .option = "",
                           .required = true,
                           .words = (const char *const[]){"list_nids", "nis", "peers", "routers",
                                                          "routes", "buffers", "stats", NULL},
                           .help = "which table"})},
    {.words = "udsp show",
     .help = "Shows the selection policies; nothing where there are none.",
     .run = cmd_udsp_show,
     .params = CLI_PARAMS(CLI_NUMBER("idx", 'i', -1, INT32_MAX, NULL, "only the policy with it"))},
    FAULT_ADD(
        "fault drop add",
        "Adds a rule by which messages are dropped on purpose, in front of the other rules.",
        CLI_NUMBER("interval", 'i', 1, 86400, "s", FAULT_INTERVAL), FAULT_HEALTH,
        CLI_FLAG("random", 'n', "with --interval: drop each message with probability 1/2 instead"),
        CLI_FLAG("drop_all", 'x',
                 "drop each message that matches when it arrives, whatever --rate and "
                 "--health-error say")),
    FAULT_ADD(
        "fault delay add",
        "Adds a rule by which messages are delayed on purpose, at arrival and again when they "
        "are sent, in front of the other rules.",
        CLI_NUMBER("interval", 0, 1, 86400, "s", FAULT_INTERVAL),
        {.name = "latency",
         .type = JRPC_INTEGER,
         .letter = 'l',
         .required = true,
         .min = 1,
         .max = 86400,
         .unit = "s",
         .help = "delay"}),
    FAULT_REST("drop", "drop"),
    FAULT_REST("delay", "delay"),
    {.words = "exporter",
     .help = "Serves metrics of a running millraced to Prometheus, until it is ended by a signal; "
             "docs/monitoring.md.",
     .run = cmd_exporter,
     .offline = true, /* it connects by itself */
     .params = CLI_PARAMS(
         {.name = "listen",
          .type = JRPC_STRING,
          .letter = 'l',
          .help = "address and port, as in 127.0.0.1:9988 (the default) or [::]:9988"},
         CLI_NUMBER("peers", 'p', 0, 100, NULL,
                    "most peers with metrics of their own: those with most traffic, and those for "
                    "which messages wait; default 20"),
         CLI_NUMBER("routes", 'r', 0, 100000, NULL,
                    "most routes and most gateways with metrics of their own, 0 = all; default "
                    "256"),
         CLI_NUMBER("timeout", 't', 1, 60, "s", "time that a scrape may take; default 5"),
         {.name = "cert", .type = JRPC_TEXT, .help = "PEM file of a certificate: serve HTTPS"},
         {.name = "key", .type = JRPC_TEXT, .help = "PEM file of its private key"})},
    {.words = "rpc",
     .help = "Calls any method of docs/jsonrpc.md and prints the result as JSON.",
     .run = cmd_rpc,
     .any_words = true},
    {.words = "completion",
     .help = "Prints the completion for a shell.",
     .run = cmd_completion,
     .offline = true,
     .params = CLI_PARAMS({.name = "shell",
                           .type = JRPC_WORD,
                           .option = "",
                           .required = true,
                           .words = (const char *const[]){"bash", "zsh", NULL},
                           .help = "which shell"})},
    {.words = "__complete",
     .run = cmd_complete,
     .offline = true,
     .hidden = true,
     .any_words = true},
    {.words = "__reference",
     .run = cmd_reference,
     .offline = true,
     .hidden = true,
     .any_words = true},
    /* Commands of lnetctl that are refused. */
    REFUSED("lnet unconfigure",
            "millraced is the node: without a configuration there is nothing to run",
            "`millrace net del` removes nets, `millrace shutdown` ends millraced"),
    REFUSED("net reset", "millraced has nothing to reset of a net alone",
            "`millrace net del` and `millrace net add` make it anew"),
    REFUSED("debug", "millraced has no kernel log",
            "see `millrace peer show -v --millrace`, `millrace drops` and `millrace why NID`"),
    REFUSED("cpt-of-nid", "the threads of millraced are not the CPTs of a kernel",
            "`millrace peer show --nid NID -v --millrace` names the reactor of a peer"),
    REFUSED(
        "service-id", "millraced calculates no service ids",
        "of o2ib it is 0x01060000 and the port: 0x010603db for 987 (`millrace: verbs: service`)"),
    REFUSED("setup-mrrouting", "millraced needs no routing tables of Linux",
            "it binds its sockets to the address of their NI"),
    REFUSED("setup-sysctl", "millraced needs no settings of Linux", NULL),
};

/* Methods whose parameters are words of `set`. */
static const struct {
    const char *method, *suffix;
} settings[] = {
    {"buffers_set", "_buffers"},
    {"routing_set", NULL}, /* its word is "routing" */
    {"global_set", ""},
    {"admission_set", ""},
};

#define MAX_COMMANDS 256

static struct cli_command table[MAX_COMMANDS];
static size_t rows;

static void add(const struct cli_command *row)
{
    if (rows == MAX_COMMANDS)
        abort();
    table[rows++] = *row;
}

static bool has(const char *words)
{
    for (size_t i = 0; i < rows; i++)
        if (strcmp(table[i].words, words) == 0)
            return true;
    return false;
}

/* Adds `set X` for each parameter of a method. */
static void add_set(const struct jrpc_method *method, const char *suffix)
{
    const struct jrpc_param *p;

    for (p = method ? method->params : NULL; p && p->name; p++) {
        struct cli_command row = {.help = p->help, .run = cmd_set, .setter = method};
        struct jrpc_param *value;
        char words[64];

        snprintf(words, sizeof(words), "set %s%s", suffix ? p->name : "routing",
                 suffix ? suffix : "");
        if (has(words))
            continue;
        value = calloc(2, sizeof(*value)); /* never freed, as the words: the process ends soon */
        row.words = strdup(words);
        if (!value || !row.words)
            abort();
        value[0] = *p;
        value[0].option = "";
        value[0].letter = 0;
        value[0].required = true;
        row.params = value;
        add(&row);
    }
}

/* The first words of commands in the order of the help; others follow. */
static const char *const groups[] = {
    "status",   "lnet",   "net",    "route",    "peer",     "udsp",   "routing", "buffers",
    "global",   "set",    "stats",  "ping",     "discover", "why",    "drops",   "waits",
    "counters", "top",    "events", "reactors", "port",     "tcp",    "arp",     "capture",
    "fault",    "tamper", "param",  "import",   "convert",  "export", "config",  "drain",
};

static size_t rank(const char *words)
{
    size_t len = strcspn(words, " "), i;

    for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (strlen(groups[i]) == len && strncmp(groups[i], words, len) == 0)
            break;
    return i;
}

static int compare(const void *a, const void *b)
{
    const struct cli_command *x = a, *y = b;
    size_t rx = rank(x->words), ry = rank(y->words);

    return rx != ry ? (rx < ry ? -1 : 1) : strcmp(x->words, y->words);
}

const struct cli_command *cli_commands(void)
{
    if (rows)
        return table;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        add(&own[i]);
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (m->cli && !has(m->cli))
            add(&(struct cli_command){
                .words = m->cli, .help = m->help, .run = cli_run_method, .method = m});
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        add_set(cli_method(settings[i].method), settings[i].suffix);
    qsort(table, rows, sizeof(table[0]), compare);
    for (size_t i = 0; i < rows; i++)
        table[i].view = cli_view(table[i].words);
    add(&(struct cli_command){.words = NULL});
    return table;
}

const char *cli_behind(const struct cli_command *command, int argc, char *const *argv, int *used)
{
    const char *at = command->words;

    for (*used = 0; *used < argc && *at; (*used)++) {
        size_t len = strcspn(at, " ");

        if (strlen(argv[*used]) != len || strncmp(at, argv[*used], len) != 0)
            break;
        at += len + (at[len] == ' ');
    }
    return at;
}

const struct cli_command *cli_find(int argc, char *const *argv, int *used)
{
    const struct cli_command *best = NULL;
    int n;

    *used = 0;
    for (const struct cli_command *c = cli_commands(); c->words; c++)
        if (!*cli_behind(c, argc, argv, &n) && n > *used) {
            best = c;
            *used = n;
        }
    return best;
}

/* Whether a command of this build begins with the word. */
static bool is_first_word(const char *word)
{
    int used = 0;

    for (const struct cli_command *c = cli_commands(); c->words && !used; c++)
        cli_behind(c, 1, (char *const *)&word, &used);
    return used;
}

const char *cli_near(int argc, char *const *argv)
{
    const char *best = NULL;
    char typed[128];

    /* Compares two words with commands, then the first word with first words, too. */
    for (int words = argc > 1 && argv[1][0] != '-' ? 2 : 1; !best && words > 0; words--) {
        snprintf(typed, sizeof(typed), "%s%s%s", argv[0], words > 1 ? " " : "",
                 words > 1 ? argv[1] : "");
        for (const struct cli_command *c = cli_commands(); c->words; c++)
            best = c->hidden ? best : cfg_nearer(typed, c->words, best);
        for (size_t i = 0; words == 1 && i < sizeof(groups) / sizeof(groups[0]); i++)
            best = is_first_word(groups[i]) ? cfg_nearer(typed, groups[i], best) : best;
    }
    return best;
}

const struct jrpc_param *cli_param(const struct cli_command *c, size_t i)
{
    const struct jrpc_param *const lists[] = {c->method ? c->method->params : NULL, c->params,
                                              c->view ? c->view->params : NULL};

    for (size_t j = 0; j < sizeof(lists) / sizeof(lists[0]); j++)
        for (const struct jrpc_param *p = lists[j]; p && p->name; p++)
            if (i-- == 0)
                return p;
    return NULL;
}

const struct jrpc_param *cli_param_named(const struct cli_command *c, const char *name)
{
    const struct jrpc_param *p;

    for (size_t i = 0; (p = cli_param(c, i)); i++)
        if (strcmp(p->name, name) == 0)
            break;
    return p;
}

const struct jrpc_param *cli_method_param(const struct jrpc_method *method, const char *name)
{
    return cli_param_named(&(struct cli_command){.method = method}, name);
}

const struct jrpc_method *cli_method(const char *name)
{
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}
