/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion. The scripts for the shells pass the words of the line to `millrace __complete`. It
 * makes the answer from the rows of commands, their parameters, and results of millraced: one
 * candidate per line, a tab, its help; ":file" stands for names of files.
 */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "lib/base/err.h"

#define LIVE_TIMEOUT_MS 300
#define LIVE_SECONDS    2 /* after which completion gives up */

static const char bash_script[] =
    "# Completion of millrace for bash; `millrace completion bash` prints it.\n"
    "_millrace()\n"
    "{\n"
    "    local line=${COMP_LINE:0:COMP_POINT} cur typed value rest\n"
    "    local -a words\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line != *[[:space:]] ]] || words+=(\"\")\n"
    "    cur=${words[${#words[@]} - 1]}\n"
    "    # readline replaces what is behind the last of these only: '@' and ':' are in NIDs\n"
    "    typed=${cur%\"${cur##*[\"$COMP_WORDBREAKS\"]}\"}\n"
    "    COMPREPLY=()\n"
    "    while IFS=$'\\t' read -r value rest; do\n"
    "        if [[ $value == :file ]]; then\n"
    "            compopt -o filenames\n"
    "            while read -r value; do\n"
    "                COMPREPLY+=(\"$value\")\n"
    "            done < <(compgen -f -- \"${cur##*=}\")\n"
    "        else\n"
    "            [[ $value != *= ]] || compopt -o nospace\n"
    "            COMPREPLY+=(\"${value#\"$typed\"}\")\n"
    "        fi\n"
    "    done < <(\"$1\" __complete \"${words[@]:1}\" 2>/dev/null)\n"
    "}\n"
    "complete -o nosort -F _millrace millrace\n";

static const char zsh_script[] =
    "#compdef millrace\n"
    "# Completion of millrace for zsh; `millrace completion zsh` prints it.\n"
    "_millrace()\n"
    "{\n"
    "    local line value\n"
    "    local -a found\n"
    "    for line in \"${(@f)$(\"${words[1]}\" __complete \"${(@Q)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
    "        value=${line%%$'\\t'*}\n"
    "        if [[ $value == :file ]]; then\n"
    "            _files\n"
    "        elif [[ -n $value ]]; then\n"
    "            found+=(\"${value//:/\\\\:}:${line#*$'\\t'}\")\n"
    "        fi\n"
    "    done\n"
    "    (( $#found )) && _describe -V millrace found\n"
    "}\n"
    "if [[ $funcstack[1] == _millrace ]]; then\n"
    "    _millrace \"$@\"\n"
    "else\n"
    "    compdef _millrace millrace\n"
    "fi\n";

int cmd_completion(struct cli *cli, json_t *args)
{
    const char *shell = json_string_value(json_object_get(args, "shell"));

    fputs(strcmp(shell, "zsh") == 0 ? zsh_script : bash_script, stdout);
    return CLI_OK;
}

/* ---- candidates ---- */

struct complete {
    struct cli *cli;
    const char *cur;    /* the word typed so far */
    const char *part;   /* the end of the word, which is completed */
    const char *before; /* printed in front of each candidate: cur up to part */
    int before_len;
    json_t *seen; /* each candidate once */
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
    printf("%.*s%s\t%.*s\n", c->before_len, c->before, text,
           end ? (int)(end - help) : (int)strlen(help), help);
}

/* Completes only the part of the word behind its first n bytes. */
static void complete_part(struct complete *c, size_t n)
{
    c->part = c->cur + n;
    c->before = c->cur;
    c->before_len = (int)n;
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
    return p->type == JRPC_TEXT || strcmp(p->name, "modprobe") == 0 ||
           (p->type == JRPC_STRING &&
            (!strcmp(p->name, "file") || !strcmp(p->name, "path") || !strcmp(p->name, "write")));
}

static void offer_values(struct complete *c, const char *words, const struct jrpc_param *p)
{
    const char *comma = strrchr(c->part, ',');

    if (p->type == JRPC_STRINGS && comma)
        complete_part(c, (size_t)(comma + 1 - c->cur));
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

static const char *word_at(const json_t *words, size_t i)
{
    const char *word = json_string_value(json_array_get(words, i));

    return word ? word : "";
}

/* Completes a method and its `name=value`s. */
static void complete_rpc(struct complete *c, const json_t *words, size_t first, size_t last)
{
    const struct jrpc_method *m = first < last ? cli_method(word_at(words, first)) : NULL;
    const char *eq = strchr(c->cur, '=');
    char text[80];

    if (first == last)
        for (const struct jrpc_method *row = rpc_method_table; row->name; row++)
            offer(c, row->name, row->help);
    for (const struct jrpc_param *p = m ? m->params : NULL; p && p->name; p++) {
        if (eq && strlen(p->name) == (size_t)(eq - c->cur) &&
            strncmp(p->name, c->cur, strlen(p->name)) == 0) {
            complete_part(c, (size_t)(eq + 1 - c->cur));
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

static void complete_command(struct complete *c, const struct cli_command *command,
                             const json_t *words, size_t first, size_t last)
{
    const struct jrpc_param *p = NULL, *wanting = NULL;
    json_t *given = json_object();
    size_t bare = 0;
    const char *value;

    for (size_t i = first; i < last; i++) {
        const char *word = word_at(words, i);

        if (wanting) {
            wanting = NULL;
        } else if (word[0] != '-') {
            bare++;
        } else if ((p = cli_option(command, word, &value))) {
            json_object_set_new(given, p->name, json_true());
            wanting = value || cli_is_flag(p) || cli_value_optional(p) ? NULL : p;
        }
    }
    if (!wanting && c->cur[0] == '-' && strchr(c->cur, '=')) {
        wanting = cli_option(command, c->cur, &value);
        if (wanting)
            complete_part(c, strcspn(c->cur, "=") + 1);
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
static void complete_words(struct complete *c, const json_t *words, size_t first, size_t last)
{
    const struct cli_command *row;

    for (row = cli_commands(); row->words; row++) {
        const char *at = row->words;
        char next[64];
        size_t i;

        for (i = first; i < last; i++) {
            const char *word = word_at(words, i);

            if (strlen(word) != strcspn(at, " ") || strncmp(at, word, strlen(word)) != 0)
                break;
            at += strlen(word);
            at += *at == ' ';
        }
        if (i < last || !*at || row->hidden)
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
    size_t last = json_array_size(words), first = 0;
    struct complete c = {.cli = cli, .before = "", .seen = json_object()};
    const struct cli_command *command;
    const char *argv[64];
    int used, argc = 0;

    last -= last > 0;
    c.cur = c.part = word_at(words, last);
    for (; first < last && word_at(words, first)[0] == '-'; first++) {
        if (strncmp(word_at(words, first), "--socket=", 9) == 0)
            cli->path = word_at(words, first) + 9;
        else if (!strcmp(word_at(words, first), "-s") || !strcmp(word_at(words, first), "--socket"))
            cli->path = word_at(words, ++first);
    }
    for (size_t i = first; i < last && argc < 64; i++)
        argv[argc++] = word_at(words, i);
    command = cli_find(argc, (char *const *)argv, &used);
    if (first > last)
        puts(":file");
    else if (first == last && c.cur[0] == '-')
        complete_millrace(&c);
    else if (!command)
        complete_words(&c, words, first, last);
    else if (command->run == cmd_rpc)
        complete_rpc(&c, words, first + (size_t)used, last);
    else
        complete_command(&c, command, words, first + (size_t)used, last);
    json_decref(c.seen);
    return CLI_OK;
}
