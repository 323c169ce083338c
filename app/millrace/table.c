/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of commands: rows of this file, and a row for each method with `.cli` words. */
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/settings.h"
#include "rpc/methods/capture_params.h"

#define PARAMS(...)                                                                                \
    (const struct jrpc_param[])                                                                    \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define FILE_PARAM(required_, help_)                                                               \
    {                                                                                              \
        .name = "file", .type = JRPC_STRING, .option = "", .required = required_, .help = help_    \
    }
#define CONFIRM_PARAM                                                                              \
    {                                                                                              \
        .name = "confirm", .type = JRPC_INTEGER, .min = 1, .max = 86400, .unit = "s",              \
        .help = "go back to the old configuration unless `config confirm` comes within this time"  \
    }

/* Commands that are no single method. A row replaces the row of a method with the same words. */
static const struct cli_command own[] = {
    {.words = "lnet configure",
     .help = "Starts the node of a millraced that waits for it (--wait-for-rpc). Otherwise does "
             "nothing: the node is configured.",
     .run = cmd_lnet_configure,
     .params = PARAMS({.name = "all",
                       .type = JRPC_BOOLEAN,
                       .letter = 'a',
                       .help = "accepted without effect: the configuration file lists the nets"},
                      {.name = "large",
                       .type = JRPC_BOOLEAN,
                       .letter = 'l',
                       .help = "accepted without effect: NIDs are those of the configuration"})},
    {.words = "peer list", .help = "Lists the primary NIDs of all peers.", .run = cmd_peer_list},
    {.words = "routing show",
     .help = "Shows router buffers of each reactor as lnetctl does, each as a `cpt`; nothing where "
             "routing is disabled.",
     .run = cmd_routing_show},
    {.words = "ping",
     .help = "Pings nodes and prints their NIDs.",
     .run = cmd_ping,
     .params = PARAMS({.name = "nid",
                       .type = JRPC_STRINGS,
                       .option = "",
                       .required = true,
                       .help = "the NIDs to ping, one after the other"},
                      {.name = "timeout",
                       .type = JRPC_INTEGER,
                       .letter = 't',
                       .min = 1,
                       .max = 600,
                       .unit = "s",
                       .help = "how long to wait for each; default 1"},
                      {.name = "source",
                       .type = JRPC_NID,
                       .letter = 's',
                       .help = "NID of this node to ping from; default: that of the path"})},
    {.words = "import",
     .help = "Adds a file in lnetctl's form, or standard input, to the running configuration, or "
             "removes or shows its items. Applies all of the file or nothing.",
     .run = cmd_import,
     .params = PARAMS(
         FILE_PARAM(false, "lnetctl's YAML; left out or `-`: standard input"),
         {.name = "add", .type = JRPC_BOOLEAN, .letter = 'a', .help = "add its items; default"},
         {.name = "del", .type = JRPC_BOOLEAN, .letter = 'd', .help = "remove its items"},
         {.name = "show",
          .type = JRPC_BOOLEAN,
          .letter = 's',
          .help = "show those of its items that are running"},
         {.name = "exec", .type = JRPC_BOOLEAN, .letter = 'e', .help = "refused: use `ping`"},
         {.name = "old-api",
          .type = JRPC_BOOLEAN,
          .letter = 'o',
          .help = "accepted without effect"},
         CONFIRM_PARAM,
         {.name = "dry-run",
          .type = JRPC_BOOLEAN,
          .help = "print the changes and do not apply them"})},
    {.words = "convert",
     .help = "Prints the options of a kernel node's modules as a configuration of millraced. Needs "
             "no millraced; run it on the machine that the configuration is for.",
     .run = cmd_convert,
     .offline = true,
     .params = PARAMS(
         {.name = "modprobe",
          .type = JRPC_STRINGS,
          .required = true,
          .help = "files with lines `options lnet networks=...`; a folder stands for its files "
                  "*.conf, `-` for standard input; of an option given twice the last one counts"})},
    {.words = "export",
     .help = "Prints nets, routes, peers, routing and buffers in lnetctl's form.",
     .run = cmd_export,
     .params = PARAMS(FILE_PARAM(false, "write to this file instead"),
                      {.name = "backup",
                       .type = JRPC_BOOLEAN,
                       .letter = 'b',
                       .help = "only what can be imported again, without counters and state"})},
    {.words = "config show",
     .help = "Prints the whole configuration that is running, as YAML.",
     .run = cmd_config_show,
     .params = PARAMS({.name = "backup",
                       .type = JRPC_BOOLEAN,
                       .letter = 'b',
                       .help = "without keys at their defaults, as lnetctl's backup"},
                      {.name = "file",
                       .type = JRPC_BOOLEAN,
                       .help = "print the file that it was read from, unchanged"})},
    {.words = "config diff",
     .help = "Prints the changes that `config apply` of a file would make.",
     .run = cmd_config_diff,
     .params = PARAMS(
         FILE_PARAM(true, "a configuration; `-`: standard input"),
         {.name = "merge", .type = JRPC_BOOLEAN, .help = "as `config apply --merge` would"},
         {.name = "delete", .type = JRPC_BOOLEAN, .help = "as `config apply --delete` would"})},
    {.words = "config apply",
     .help = "Makes a file the running configuration. Applies nothing of a file with an error.",
     .run = cmd_config_apply,
     .params = PARAMS(FILE_PARAM(true, "a configuration; `-`: standard input"), CONFIRM_PARAM,
                      {.name = "dry-run",
                       .type = JRPC_BOOLEAN,
                       .help = "print the changes and do not apply them"},
                      {.name = "merge",
                       .type = JRPC_BOOLEAN,
                       .help = "add the file to the running configuration"},
                      {.name = "delete",
                       .type = JRPC_BOOLEAN,
                       .help = "remove the items of the file from the running configuration"})},
    {.words = "config save",
     .help = "Writes the running configuration to the file it was read from, or to another; "
             "comments and order of a hand-written file stay.",
     .run = cmd_config_save,
     .params = PARAMS(FILE_PARAM(false, "write to this file instead"))},
    {.words = "capture",
     .help =
         "Writes packets that pass the ports, or are dropped there, as pcapng: to a file, or to "
         "standard output, as in `millrace capture | tshark -r -`. Only headers, unless --snap "
         "sets more.",
     .run = cmd_capture,
     .params = PARAMS({.name = "write",
                       .type = JRPC_STRING,
                       .letter = 'w',
                       .help = "the file; default, and `-`: standard output"},
                      CAPTURE_PARAMS)},
    {.words = "events",
     .help = "Prints events as they happen, until it is interrupted.",
     .run = cmd_events,
     .params = PARAMS({.name = "type",
                       .type = JRPC_STRINGS,
                       .max = 32,
                       .letter = 't',
                       .help = "only events of this type; may be given several times"},
                      {.name = "nid",
                       .type = JRPC_STRINGS,
                       .max = 64,
                       .letter = 'n',
                       .help = "only events about this NID; may be given several times"},
                      {.name = "count",
                       .type = JRPC_INTEGER,
                       .min = 1,
                       .max = INT32_MAX,
                       .letter = 'c',
                       .help = "end after this many"},
                      {.name = "recent",
                       .type = JRPC_BOOLEAN,
                       .letter = 'r',
                       .help = "print the past events that millraced still knows, and end"},
                      {.name = "follow",
                       .type = JRPC_BOOLEAN,
                       .letter = 'f',
                       .help = "when millraced ends, wait for its restart"})},
    {.words = "top",
     .help = "Shows reactors, NIs, peers, buffers and drops of a running millraced, live.",
     .run = cmd_top,
     .offline = true, /* it connects by itself */
     .params = PARAMS({.name = "interval",
                       .type = JRPC_INTEGER,
                       .min = 1,
                       .max = 60,
                       .unit = "s",
                       .letter = 'i',
                       .help = "between two samples; default 2"},
                      {.name = "sort",
                       .type = JRPC_WORD,
                       .words = WORDS("bytes", "queued", "waiting"),
                       .help = "how the shown peers are chosen; default bytes"},
                      {.name = "batch",
                       .type = JRPC_INTEGER,
                       .min = 1,
                       .max = INT32_MAX,
                       .letter = 'b',
                       .help = "print this many frames as text, for scripts, and end"})},
    {.words = "rpc",
     .help = "Calls any method of docs/jsonrpc.md and prints the result as JSON.",
     .run = cmd_rpc,
     .any_words = true},
    {.words = "completion",
     .help = "Prints the completion for a shell.",
     .run = cmd_completion,
     .offline = true,
     .params = PARAMS({.name = "shell",
                       .type = JRPC_WORD,
                       .option = "",
                       .required = true,
                       .words = WORDS("bash", "zsh"),
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
};

/* Commands of lnetctl that are refused. */
static const struct {
    const char *words, *why, *remedy;
} refused[] = {
    {"lnet unconfigure", "millraced is the node: without a configuration there is nothing to run",
     "`millrace net del` removes nets, `millrace shutdown` ends millraced"},
    {"net reset", "millraced has nothing to reset of a net alone", "use net del and net add"},
    {"discover", "millraced does not discover peers yet: each NID is a peer of its own",
     "`millrace ping` prints the NIDs of a node"},
    {"peer set", "millraced keeps no health of peers yet", NULL},
    {"udsp", "millraced does not act on selection policies yet",
     "`udsp` in a configuration is kept and shown by `millrace config show`"},
    {"fault", "millraced injects faults at its ports only",
     "`millrace tamper set` does; on an interface of the host use tc-netem(8)"},
    {"debug", "millraced has no recovery queues and no kernel log",
     "see `millrace peer show -v --millrace`, `millrace drops` and `millrace why NID`"},
    {"cpt-of-nid", "the threads of millraced are not the CPTs of a kernel",
     "`millrace peer show --nid NID -v --millrace` names the reactor of a peer"},
    {"service-id", "millraced calculates no service ids",
     "of o2ib it is 0x01060000 and the port: 0x010603db for 987 (`millrace: verbs: service`)"},
    {"setup-mrrouting", "millraced needs no routing tables of Linux",
     "it binds its sockets to the address of their NI"},
    {"setup-sysctl", "millraced needs no settings of Linux", NULL},
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

struct table {
    struct cli_command *row;
    size_t rows, room;
};

static struct cli_command *add(struct table *t, const struct cli_command *row)
{
    if (t->rows == t->room) {
        struct cli_command *grown = realloc(
            t->row, (t->room += 64) * sizeof(*t->row)); /* never freed: the process ends soon */

        if (!grown)
            abort();
        t->row = grown;
    }
    t->row[t->rows] = *row;
    return &t->row[t->rows++];
}

static const struct cli_command *lookup(const struct table *t, const char *words)
{
    for (size_t i = 0; t->row && i < t->rows; i++)
        if (strcmp(t->row[i].words, words) == 0)
            return &t->row[i];
    return NULL;
}

static char *copy(const char *prefix, const char *name, const char *suffix)
{
    char *text;

    if (asprintf(&text, "%s%s%s", prefix, name, suffix) < 0)
        abort();
    return text;
}

/* Adds `set X` for each parameter of a method. */
static void add_set(struct table *t, const struct jrpc_method *method, const char *suffix)
{
    const struct jrpc_param *p;

    for (p = method ? method->params : NULL; p && p->name; p++) {
        struct cli_command row = {.help = p->help, .run = cmd_set, .setter = method};
        struct jrpc_param *value;

        row.words = copy("set ", suffix ? p->name : "routing", suffix ? suffix : "");
        value = lookup(t, row.words) ? NULL : calloc(2, sizeof(*value));
        if (!value) {
            free((char *)row.words);
            continue;
        }
        value[0] = *p;
        value[0].option = "";
        value[0].letter = 0;
        value[0].required = true;
        row.params = value;
        add(t, &row);
    }
}

/* The first words of commands in the order of the help; others follow. */
static const char *const groups[] = {
    "lnet", "net", "route",   "peer",   "routing",  "buffers", "global", "set",      "stats",
    "ping", "why", "drops",   "waits",  "counters", "top",     "events", "reactors", "port",
    "tcp",  "arp", "capture", "tamper", "import",   "convert", "export", "config",
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
    static struct table t;

    if (t.row)
        return t.row;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        add(&t, &own[i]);
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (m->cli && !lookup(&t, m->cli))
            add(&t, &(struct cli_command){
                        .words = m->cli, .help = m->help, .run = cli_run_method, .method = m});
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        add_set(&t, cli_method(settings[i].method), settings[i].suffix);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (!lookup(&t, refused[i].words))
            add(&t, &(struct cli_command){.words = refused[i].words,
                                          .help = refused[i].why,
                                          .remedy = refused[i].remedy,
                                          .run = cmd_refused,
                                          .offline = true,
                                          .hidden = true,
                                          .any_words = true});
    qsort(t.row, t.rows, sizeof(t.row[0]), compare);
    for (size_t i = 0; i < t.rows; i++)
        if (!t.row[i].view)
            t.row[i].view = cli_view(t.row[i].words);
    add(&t, &(struct cli_command){.words = NULL});
    return t.row;
}

const struct cli_command *cli_find(int argc, char *const *argv, int *used)
{
    const struct cli_command *c, *best = NULL;

    *used = 0;
    for (c = cli_commands(); c->words; c++) {
        const char *at = c->words;
        int n = 0;

        while (n < argc && *at && strncmp(at, argv[n], strcspn(at, " ")) == 0 &&
               strlen(argv[n]) == strcspn(at, " ")) {
            at += strcspn(at, " ");
            at += *at == ' ';
            n++;
        }
        if (!*at && n > *used) {
            best = c;
            *used = n;
        }
    }
    return best;
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
            best = cfg_nearer(typed, groups[i], best);
    }
    return best;
}

static const struct jrpc_param *nth(const struct jrpc_param *list, size_t *i)
{
    for (; list && list->name; list++)
        if ((*i)-- == 0)
            return list;
    return NULL;
}

const struct jrpc_param *cli_param(const struct cli_command *c, size_t i)
{
    const struct jrpc_param *p = c->method ? nth(c->method->params, &i) : NULL;

    if (!p)
        p = nth(c->params, &i);
    if (!p && c->view)
        p = nth(c->view->params, &i);
    return p;
}

bool cli_sent(const struct cli_command *c, const char *name)
{
    for (const struct jrpc_param *p = c->method ? c->method->params : NULL; p && p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

const struct jrpc_method *cli_method(const char *name)
{
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}
