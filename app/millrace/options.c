/* SPDX-License-Identifier: BSD-3-Clause */
/* Options as lnetctl has them: `--net tcp`, `--net=tcp`, `-n tcp`, and `-v` with or without number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"

bool cli_number(const char *text, long *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end == text || *end)
        return false;
    *out = n;
    return true;
}

/* The row that a word names, with *inline_value behind a '='. NULL: none. */
static struct cli_option *find_option(struct cli_option *options, const char *word,
                                      const char **inline_value)
{
    size_t len = strcspn(word, "=");

    *inline_value = word[len] ? word + len + 1 : NULL;
    for (; options->name; options++) {
        if (word[1] == '-' && strlen(options->name) == len - 2 &&
            strncmp(options->name, word + 2, len - 2) == 0)
            return options;
        if (options->letter && len == 2 && word[1] == options->letter)
            return options;
    }
    return NULL;
}

static bool takes_value(const struct cli_option *option, const char *next)
{
    long n;

    switch (option->kind) {
    case CLI_FLAG:
        return false;
    case CLI_VERBOSE:
        return next && cli_number(next, &n);
    default:
        return true;
    }
}

static bool set_option(struct cli_option *option, const char *value)
{
    option->given = true;
    option->text = value;
    option->number = 1;
    if (!value)
        return option->kind == CLI_FLAG || option->kind == CLI_VERBOSE;
    return option->kind == CLI_TEXT ||
           (option->kind != CLI_FLAG && cli_number(value, &option->number));
}

int cli_options(int argc, char **argv, struct cli_option *options)
{
    int i, rest = 0;

    for (i = 1; i < argc; i++) {
        struct cli_option *option;
        const char *value;

        if (argv[i][0] != '-' || !argv[i][1]) {
            argv[++rest] = argv[i];
            continue;
        }
        option = find_option(options, argv[i], &value);
        if (!option) {
            fprintf(stderr, "millrace: unknown option %s; try: millrace --help\n", argv[i]);
            return -1;
        }
        if (!value && takes_value(option, argv[i + 1]))
            value = argv[++i];
        if (!set_option(option, value)) {
            fprintf(stderr, "millrace: --%s: '%s' is not what it takes; try: millrace --help\n",
                    option->name, value ? value : "");
            return -1;
        }
    }
    return rest;
}
