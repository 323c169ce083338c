/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads options in the forms of lnetctl (getopt_long): `--net tcp`, `--net=tcp`, `-n tcp`, `-ntcp`,
 * shortened names, and `-v` with or without a number. '-' and '_' in a name are equal. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/expr.h"
#include "lib/base/err.h"

/* Second names of parameters, as lnetctl has them. */
static const struct {
    const char *words, *option, *param;
} aliases[] = {
    {"route add", "hop-count", "hop"},
    {"peer show", "prim_nid", "nid"},
};

const char *cli_option_name(const struct jrpc_param *param, char *buf, size_t len)
{
    if (param->option && !param->option[0])
        return NULL;
    snprintf(buf, len, "%s", param->option ? param->option : param->name);
    if (!param->option)
        for (char *c = buf; *c; c++)
            *c = *c == '_' ? '-' : *c;
    return buf;
}

bool cli_is_flag(const struct jrpc_param *param)
{
    return param->type == JRPC_BOOLEAN;
}

/* Only lnetctl's verbosity. */
bool cli_value_optional(const struct jrpc_param *param)
{
    return param->type == JRPC_INTEGER && strcmp(param->name, "verbose") == 0;
}

static bool same(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (a[i] != b[i] && !(strchr("-_", a[i]) && a[i] && strchr("-_", b[i]) && b[i]))
            return false;
    return true;
}

static const struct jrpc_param *long_option(const struct cli_command *command, const char *word,
                                            size_t len)
{
    const struct jrpc_param *p, *found = NULL;
    char name[64];

    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(aliases[i].words, command->words) == 0 && strlen(aliases[i].option) == len &&
            same(aliases[i].option, word, len))
            return cli_param_named(command, aliases[i].param);
    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        if (!cli_option_name(p, name, sizeof(name)) || strlen(name) < len || !same(name, word, len))
            continue;
        if (strlen(name) == len)
            return p;
        if (found)
            return NULL; /* two begin so */
        found = p;
    }
    return found;
}

const struct jrpc_param *cli_option(const struct cli_command *command, const char *word,
                                    const char **value)
{
    const struct jrpc_param *p;
    size_t len = strcspn(word, "=");

    *value = NULL;
    if (word[0] != '-' || !word[1])
        return NULL;
    if (word[1] == '-') {
        *value = word[len] ? word + len + 1 : NULL;
        return len > 2 ? long_option(command, word + 2, len - 2) : NULL;
    }
    for (size_t i = 0; (p = cli_param(command, i)); i++)
        if (p->letter && p->letter == word[1] && !(p->option && !p->option[0])) {
            *value = word[2] ? word + 2 : NULL;
            return p;
        }
    return NULL;
}

/* ---- values ---- */

static bool whole_number(const char *text, json_int_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0;
}

static json_t *number(const char *text)
{
    char *end;
    double n = strtod(text, &end);

    return end != text && !*end && isfinite(n) ? json_real(n) : NULL;
}

static json_t *boolean(const char *text)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0)
            return json_boolean(i % 2);
    return NULL;
}

static int append_word(void *list, const char *word)
{
    json_array_append_new(list, json_string(word));
    return 0;
}

/* Appends a word, or all NIDs of a range. The server refuses a malformed range. */
static void append_part(json_t *list, const char *text, size_t len)
{
    json_t *words = json_array();
    char part[256];

    snprintf(part, sizeof(part), "%.*s", (int)len, text);
    if (len < sizeof(part) && strchr(part, '[') && strchr(part, '@') &&
        cfg_expand(part, append_word, words) == 0)
        json_array_extend(list, words);
    else
        json_array_append_new(list, json_stringn(text, len));
    json_decref(words);
}

/* Splits text at commas; a comma within brackets belongs to a range of NIDs. */
static json_t *split(const char *text)
{
    json_t *list = json_array();
    const char *start = text;
    int depth = 0;

    for (;; text++) {
        depth += *text == '[';
        depth -= *text == ']';
        if (*text && (*text != ',' || depth > 0))
            continue;
        if (text > start)
            append_part(list, start, (size_t)(text - start));
        if (!*text)
            return list;
        start = text + 1;
    }
}

json_t *cli_read_file(const char *path)
{
    char *text = malloc(CLI_MAX_FILE + 1);
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    json_t *value = NULL;
    size_t len = 0;

    if (!f || !text) {
        fprintf(stderr, "millrace: %s cannot be read: %s\n", path, strerror(errno));
        goto out;
    }
    len = fread(text, 1, CLI_MAX_FILE + 1, f);
    if (ferror(f))
        fprintf(stderr, "millrace: %s cannot be read: %s\n", path, strerror(errno));
    else if (len > CLI_MAX_FILE)
        fprintf(stderr, "millrace: %s is larger than %d bytes\n", path, CLI_MAX_FILE);
    else if (!(value = json_stringn(text, len)))
        fprintf(stderr, "millrace: %s is not UTF-8 text\n", path);
out:
    if (f && f != stdin)
        fclose(f);
    free(text);
    return value;
}

static json_t *word_value(const struct jrpc_param *param, const char *text, struct err *err)
{
    char words[160];

    for (size_t i = 0; param->words && param->words[i]; i++)
        if (strcmp(param->words[i], text) == 0)
            return json_string(text);
    cli_metavar(param, words, sizeof(words));
    err_text(err, "'%s' is none of %s", text, words);
    return NULL;
}

json_t *cli_value(const struct jrpc_param *param, const char *text, struct err *err)
{
    static const char *const wrong[] = {[JRPC_INTEGER] = "'%s' is not a whole number",
                                        [JRPC_NUMBER] = "'%s' is not a number",
                                        [JRPC_BOOLEAN] = "'%s' is neither true nor false",
                                        [JRPC_TEXT] = "name a file that can be read"};
    size_t type = param->type;
    json_int_t n;
    json_t *value;

    switch (param->type) {
    case JRPC_INTEGER:
        value = whole_number(text, &n) ? json_integer(n) : NULL;
        break;
    case JRPC_NUMBER:
        value = number(text);
        break;
    case JRPC_BOOLEAN:
        value = boolean(text);
        break;
    case JRPC_WORD:
        return word_value(param, text, err);
    case JRPC_STRINGS:
        return split(text);
    case JRPC_TEXT:
        value = cli_read_file(text);
        break;
    default:
        value = json_string(text);
    }
    if (!value)
        err_text(err,
                 type < sizeof(wrong) / sizeof(wrong[0]) && wrong[type] ? wrong[type]
                                                                        : "the text is not UTF-8",
                 text);
    return value;
}

/* ---- the words of a command ---- */

static int put(const struct cli_command *command, const struct jrpc_param *p, const char *text,
               json_t *args)
{
    json_t *value, *old = json_object_get(args, p->name);
    struct err err = {0};
    char name[64];

    if (!text) {
        json_object_set_new(args, p->name, cli_is_flag(p) ? json_true() : json_integer(1));
        return CLI_OK;
    }
    value = cli_value(p, text, &err);
    if (!value && cli_option_name(p, name, sizeof(name)))
        return cli_usage(command, "--%s: %s", name, err.message);
    if (!value)
        return cli_usage(command, "%s", err.message);
    if (p->type == JRPC_STRINGS && old) { /* given again: append */
        json_array_extend(old, value);
        json_decref(value);
    } else {
        json_object_set_new(args, p->name, value);
    }
    return CLI_OK;
}

/* Returns the next parameter without option: the first one that is not given yet. */
static const struct jrpc_param *next_word(const struct cli_command *command, const json_t *args)
{
    const struct jrpc_param *p;

    for (size_t i = 0; (p = cli_param(command, i)); i++)
        if (p->option && !p->option[0] &&
            (p->type == JRPC_STRINGS || !json_object_get(args, p->name)))
            return p;
    return NULL;
}

static int check_required(const struct cli_command *command, const json_t *args)
{
    const struct jrpc_param *p;
    char name[64];

    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        if (!p->required || json_object_get(args, p->name))
            continue;
        if (cli_option_name(p, name, sizeof(name)))
            return cli_usage(command, "--%s is missing", name);
        cli_metavar(p, name, sizeof(name));
        return cli_usage(command, "name %s: %s", name, p->help);
    }
    return CLI_OK;
}

static bool is_number(const char *word)
{
    json_int_t n;

    return word && whole_number(word, &n);
}

/* Reads one word, and the next one where it is the value. *i is the index of the last word read. */
static int parse_word(struct cli *cli, const struct cli_command *command, int argc,
                      char *const *argv, int *i, bool options, json_t *args)
{
    const char *word = argv[*i], *value;
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    const struct jrpc_param *p;

    if (!options || word[0] != '-' || !word[1] || is_number(word)) {
        p = next_word(command, args);
        return p ? put(command, p, word, args)
                 : cli_usage(command, "unexpected argument '%s'", word);
    }
    p = cli_option(command, word, &value);
    if (!p && strcmp(word, "--json") == 0) {
        cli->json = true;
        return CLI_OK;
    }
    if (!p)
        return cli_usage(command, "unknown option %s", word);
    if (cli_is_flag(p) && value && word[1] != '-')
        return cli_usage(command, "unknown option %s", word);
    if (!value && !cli_is_flag(p) && !(cli_value_optional(p) && !is_number(next))) {
        if (!next)
            return cli_usage(command, "%s wants a value", word);
        value = next;
        (*i)++;
    }
    return put(command, p, value, args);
}

int cli_parse(struct cli *cli, const struct cli_command *command, int argc, char *const *argv,
              json_t **args)
{
    json_t *found = json_object(), *words = NULL;
    bool options = true;
    int rc = CLI_OK;

    if (command->any_words)
        json_object_set_new(found, "words", words = json_array());
    for (int i = 0; i < argc && rc == CLI_OK; i++) {
        if (words)
            json_array_append_new(words, json_string(argv[i]));
        else if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else
            rc = parse_word(cli, command, argc, argv, &i, options, found);
    }
    if (rc == CLI_OK && !words)
        rc = check_required(command, found);
    if (rc != CLI_OK) {
        json_decref(found);
        found = NULL;
    }
    *args = found;
    return rc;
}
