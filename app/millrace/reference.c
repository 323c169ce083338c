/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes parts of the man pages from tables, in the language of scdoc(5). `millrace __reference
 * FILE` prints FILE with the commands in place of the line @COMMANDS@ and the settings of a
 * configuration in place of the line @SETTINGS@. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/settings.h"

/* Prints text with all markup escaped. */
static void print_plain(const char *text)
{
    for (; *text; text++) {
        if (strchr("\\*_", *text))
            putchar('\\');
        putchar(*text);
    }
}

static void print_command(const struct cli_command *command)
{
    const struct jrpc_param *p;
    char left[320], text[1024];

    cli_synopsis(command, text, sizeof(text));
    printf("*%s*%s", command->words, text[0] ? " " : "");
    print_plain(text);
    fputs("\n\t", stdout);
    print_plain(command->help);
    if (command->method && command->method->role != JRPC_READ)
        printf(" Needs the role %s.", jrpc_role_name(command->method->role));
    fputs("\n\n", stdout);
    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        cli_help_option(p, left, sizeof(left), text, sizeof(text));
        fputs(left[0] == '-' ? "\t\\" : "\t", stdout); /* no item of a list */
        print_plain(left);
        fputs("\n\t\t", stdout);
        print_plain(text);
        fputs("\n\n", stdout);
    }
}

static void print_setting(const struct cfg_setting *setting)
{
    char value[CFG_MAX_VALUE];

    putchar('*');
    print_plain(setting->path);
    printf("*%s\n\t", setting->kept ? " (kept)" : "");
    print_plain(setting->help);
    for (size_t i = 0; setting->words && setting->words[i]; i++) {
        fputs(i ? ", " : "; ", stdout);
        print_plain(setting->words[i]);
    }
    if (strcmp(setting->type, "integer") == 0)
        printf("; %ld to %ld%s%s", setting->min, setting->max, setting->unit ? " " : "",
               setting->unit ? setting->unit : "");
    cfg_setting_text(setting, NULL, value);
    fputs(value[0] ? "; default " : "", stdout);
    print_plain(value);
    printf("; changes apply: %s\n\n", cfg_applies_name(setting->applies));
}

int cmd_reference(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_array_get(json_object_get(args, "words"), 0));
    FILE *f = path ? fopen(path, "re") : NULL;
    struct cfg_setting setting;
    size_t room = 0;
    char *line = NULL;

    if (!f) {
        fprintf(stderr, "millrace: %s cannot be read: %s\n", path ? path : "", strerror(errno));
        return CLI_USAGE;
    }
    while (getline(&line, &room, f) >= 0) {
        if (strcmp(line, "@COMMANDS@\n") == 0) {
            for (const struct cli_command *c = cli_commands(); c->words; c++)
                if (!c->hidden)
                    print_command(c);
        } else if (strcmp(line, "@SETTINGS@\n") == 0) {
            for (unsigned i = 0; cfg_setting_at(i, &setting); i++)
                print_setting(&setting);
        } else {
            fputs(line, stdout);
        }
    }
    free(line);
    fclose(f);
    return CLI_OK;
}
