/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion. The scripts for the shells pass the words of the line to `millrace __complete`. It
 * makes the answer from the rows of commands, their parameters, and results of millraced: one
 * candidate per line, a tab, its help; ":file" stands for names of files.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "lib/base/err.h"

#define LIVE_TIMEOUT_MS 300
#define LIVE_SECONDS    2 /* after which completion gives up */

/* The scripts of app/millrace/completion. */
static const char bash_script[] =
#include "completion_bash.inc"
    ;
static const char zsh_script[] =
#include "completion_zsh.inc"
    ;

int cmd_completion(struct cli *cli, json_t *args)
{
    const char *shell = json_string_value(json_object_get(args, "shell"));

    fputs(strcmp(shell, "zsh") == 0 ? zsh_script : bash_script, stdout);
    return CLI_OK;
}

/* ---- candidates ---- */

struct complete {
    struct cli *cli;
    const char *cur;  /* the word typed so far */
    const char *part; /* the end of the word, which is completed; the rest is printed before it */
    json_t *seen;     /* each candidate once */
};

/* Whether a shell takes the word as it is. Other people may choose names of interfaces. */
static bool is_word(const char *text)
{
    for (const char *p = text; *p; p++)
        if (yaml_control(p))
            return false;
    return !strpbrk(text, " $`\\\"'();&|<>*?!{}#~");
}

static void offer(struct complete *c, const char *text, const char *help)
{
    const char *end;

    if (!is_word(text))
        return;
    if (strncmp(text, c->part, strlen(c->part)) != 0 || json_object_get(c->seen, text))
        return;
    json_object_set_new(c->seen, text, json_true());
    help = help ? help : "";
    end = strstr(help, ". "); /* the first sentence */
    printf("%.*s%s\t%.*s\n", (int)(c->part - c->cur), c->cur, text,
           end ? (int)(end - help) : (int)strlen(help), help);
}

/* Offers each string below a key, at any depth. */
static void offer_all(struct complete *c, const json_t *value, const char *key, const char *help)
{
    const char *name;
    json_t *inner;
    size_t i;

    json_array_foreach(value, i, inner)
        offer_all(c, inner, key, help);
    json_object_foreach((json_t *)value, name, inner) {
        if (strcmp(name, key) == 0 && json_is_string(inner))
            offer(c, json_string_value(inner), help);
        else
            offer_all(c, inner, key, help);
    }
}

/* Values that millraced knows: the strings below a key of a method's result. */
static const struct live {
    const char *param; /* NULL: any of the type */
    enum jrpc_type type;
    const char *group; /* of commands; NULL: any */
    const char *method, *key;
    const char *help;
} lives[] = {
    {"gateway", JRPC_NID, NULL, "route_get", "gateway", "gateway"},
    {"source", JRPC_NID, NULL, "net_get", "nid", "NI of this node"},
    {"net", JRPC_NET, "route ", "route_get", "net", "remote net"},
    {NULL, JRPC_NET, NULL, "net_get", "net type", "local net"},
    {NULL, JRPC_NID, "net ", "net_get", "nid", "NI of this node"},
    {NULL, JRPC_NID, "verbs ", "net_get", "nid", "NI of this node"},
    {NULL, JRPC_NID, NULL, "peer_get", "primary nid", "peer"},
    {"nid", JRPC_STRINGS, NULL, "peer_get", "primary nid", "peer"},
    {"nids", JRPC_STRINGS, NULL, "peer_get", "primary nid", "peer"},
    {"name", JRPC_STRING, "port ", "port_get", "name", "port"},
    {"port", JRPC_STRING, "capture", "port_get", "name", "port"},
    {"reason", JRPC_STRING, "capture", "pkt_drops_get", "name", "reason"},
    {"port", JRPC_STRING, "tamper ", "port_get", "name", "port"},
    {"source", JRPC_STRING, "fault ", "peer_get", "primary nid", "peer"},
    {"dest", JRPC_STRING, "fault ", "peer_get", "primary nid", "peer"},
    {"local_nid", JRPC_STRING, "fault ", "net_get", "nid", "NI of this node"},
    {"name", JRPC_STRING, "tunables", "tunables_get", "name", "tunable"},
    {"module", JRPC_STRING, "log", "log_get", "module", "module"},
};

static void offer_live(struct complete *c, const char *words, const struct jrpc_param *p)
{
    const struct live *l, *end = lives + sizeof(lives) / sizeof(lives[0]);
    json_t *result = NULL;
    struct err err = {0};

    for (l = lives; l < end; l++)
        if (l->type == p->type && (!l->param || strcmp(l->param, p->name) == 0) &&
            (!l->group || strncmp(l->group, words, strlen(l->group)) == 0))
            break;
    if (l == end)
        return;
    alarm(LIVE_SECONDS);
    if (rpc_client_open(c->cli->path, &c->cli->client, &err) != 0)
        return;
    if (rpc_client_call(c->cli->client, l->method, NULL, LIVE_TIMEOUT_MS, &result, &err) == 0)
        offer_all(c, result, l->key, l->help);
    json_decref(result);
}

static void offer_interfaces(struct complete *c)
{
    DIR *dir = opendir("/sys/class/net");
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            offer(c, entry->d_name, "interface");
    if (dir)
        closedir(dir);
}

static bool is_file(const struct jrpc_param *p)
{
    return p->type == JRPC_TEXT || strcmp(p->name, "files") == 0 ||
           (p->type == JRPC_STRING &&
            (!strcmp(p->name, "file") || !strcmp(p->name, "path") || !strcmp(p->name, "write") ||
             !strcmp(p->name, "config") || !strcmp(p->name, "root")));
}

static void offer_values(struct complete *c, const char *words, const struct jrpc_param *p)
{
    const char *comma = strrchr(c->part, ',');

    if (p->type == JRPC_STRINGS && comma)
        c->part = comma + 1;
    for (size_t i = 0; p->words && p->words[i]; i++)
        offer(c, p->words[i], p->help);
    if (is_file(p))
        puts(":file");
    else if (strcmp(p->name, "interface") == 0)
        offer_interfaces(c);
    else
        offer_live(c, words, p);
}

static void offer_options(struct complete *c, const struct cli_command *command,
                          const json_t *given)
{
    const struct jrpc_param *p;
    char name[64], text[80];

    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        if (!cli_option_name(p, name, sizeof(name)) || json_object_get(given, p->name))
            continue;
        snprintf(text, sizeof(text), "--%s", name);
        offer(c, text, p->help);
    }
    offer(c, "--json", "print the result as JSON");
    offer(c, "--help", "what the command does and takes");
}

/* ---- a line ---- */

/* Completes a method and its `name=value`s. argv: the words before, also below. */
static void complete_rpc(struct complete *c, int argc, char *const *argv)
{
    const struct jrpc_method *m = argc ? cli_method(argv[0]) : NULL;
    const char *eq = strchr(c->cur, '=');
    char text[80];

    if (!argc)
        for (const struct jrpc_method *row = rpc_method_table; row->name; row++)
            offer(c, row->name, row->help);
    for (const struct jrpc_param *p = m ? m->params : NULL; p && p->name; p++) {
        if (eq && strlen(p->name) == (size_t)(eq - c->cur) &&
            strncmp(p->name, c->cur, strlen(p->name)) == 0) {
            c->part = eq + 1;
            offer_values(c, "", p);
            return;
        }
        snprintf(text, sizeof(text), "%s=", p->name);
        if (!eq)
            offer(c, text, p->help);
    }
}

static const struct jrpc_param *nth_word(const struct cli_command *command, size_t n)
{
    const struct jrpc_param *p, *last = NULL;

    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        if (!p->option || p->option[0])
            continue;
        if (n-- == 0)
            return p;
        last = p->type == JRPC_STRINGS ? p : NULL; /* takes all that come */
    }
    return last;
}

static void complete_command(struct complete *c, const struct cli_command *command, int argc,
                             char *const *argv)
{
    const struct jrpc_param *p = NULL, *wanting = NULL;
    const char *value, *eq = strchr(c->cur, '=');
    json_t *given = json_object();
    size_t bare = 0;

    for (int i = 0; i < argc; i++) {
        if (wanting) {
            wanting = NULL;
        } else if (argv[i][0] != '-') {
            bare++;
        } else if ((p = cli_option(command, argv[i], &value))) {
            json_object_set_new(given, p->name, json_true());
            wanting = value || cli_is_flag(p) || cli_value_optional(p) ? NULL : p;
        }
    }
    if (!wanting && c->cur[0] == '-' && eq) {
        wanting = cli_option(command, c->cur, &value);
        c->part = wanting ? eq + 1 : c->part;
    }
    if (!wanting && c->cur[0] != '-')
        wanting = nth_word(command, bare);
    if (wanting)
        offer_values(c, command->words, wanting);
    if (!wanting || (nth_word(command, bare) == wanting && !c->cur[0]))
        offer_options(c, command, given);
    json_decref(given);
}

/* Offers the next words of the commands that begin as the line does. */
static void complete_words(struct complete *c, int argc, char *const *argv)
{
    for (const struct cli_command *row = cli_commands(); row->words; row++) {
        char next[64];
        int used;
        const char *at = cli_behind(row, argc, argv, &used);

        if (used < argc || !*at || row->hidden)
            continue;
        snprintf(next, sizeof(next), "%.*s", (int)strcspn(at, " "), at);
        offer(c, next, strchr(at, ' ') ? "" : row->help);
    }
}

static void complete_millrace(struct complete *c)
{
    offer(c, "--socket", "of millraced");
    offer(c, "--json", "print results as JSON");
    offer(c, "--list-commands", "print the commands alone");
    offer(c, "--version", "print the version of this command");
    offer(c, "--help", "print the commands and their options");
}

int cmd_complete(struct cli *cli, json_t *args)
{
    const json_t *words = json_object_get(args, "words");
    int count = (int)json_array_size(words), argc = count - (count > 0), used;
    struct complete c = {.cli = cli, .seen = json_object()};
    const char **all = calloc((size_t)count + 1, sizeof(*all));
    char *const *argv = (char *const *)all;
    const struct cli_command *command;

    if (!all)
        abort();
    all[argc] = "";
    for (int i = 0; i < count; i++)
        all[i] = json_string_value(json_array_get(words, (size_t)i));
    c.cur = c.part = all[argc];
    for (; argc > 0 && argv[0][0] == '-'; argc--, argv++) {
        if (strncmp(argv[0], "--socket=", 9) == 0) {
            cli->path = argv[0] + 9;
        } else if (!strcmp(argv[0], "-s") || !strcmp(argv[0], "--socket")) {
            cli->path = *++argv;
            argc--;
        }
    }
    command = cli_find(argc, argv, &used);
    if (argc < 0)
        puts(":file");
    else if (argc == 0 && c.cur[0] == '-')
        complete_millrace(&c);
    else if (!command)
        complete_words(&c, argc, argv);
    else if (command->run == cmd_rpc)
        complete_rpc(&c, argc - used, argv + used);
    else
        complete_command(&c, command, argc - used, argv + used);
    free(all);
    json_decref(c.seen);
    return CLI_OK;
}
