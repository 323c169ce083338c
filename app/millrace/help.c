/* SPDX-License-Identifier: BSD-3-Clause */
/* Help, made from the rows of commands and their parameters. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"

/* Appends to text of a given size; cuts the rest. */
__attribute__((format(printf, 3, 4))) static void append(char *buf, size_t len, const char *fmt,
                                                         ...)
{
    size_t used = strlen(buf);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf + used, len - used, fmt, ap);
    va_end(ap);
}

void cli_metavar(const struct jrpc_param *param, char *buf, size_t len)
{
    static const char *const units[][2] = {
        {"s", "SECONDS"}, {"ms", "MILLISECONDS"}, {"%", "PERCENT"}, {NULL, NULL}};
    static const char *const types[] = {[JRPC_INTEGER] = "N",
                                        [JRPC_NUMBER] = "N",
                                        [JRPC_NID] = "NID",
                                        [JRPC_NET] = "NET",
                                        [JRPC_TEXT] = "FILE"};

    buf[0] = '\0';
    for (size_t i = 0; param->words && param->words[i]; i++)
        append(buf, len, "%s%s", i ? "|" : "", param->words[i]);
    for (size_t i = 0; !buf[0] && param->unit && units[i][0]; i++)
        if (strcmp(param->unit, units[i][0]) == 0)
            snprintf(buf, len, "%s", units[i][1]);
    if (buf[0])
        return;
    if (param->type < sizeof(types) / sizeof(types[0]) && types[param->type])
        snprintf(buf, len, "%s", types[param->type]);
    else
        for (const char *c = param->name; *c; c++)
            append(buf, len, "%c", toupper((unsigned char)*c));
    if (param->type == JRPC_STRINGS)
        append(buf, len, "[,%s...]", param->name[0] == 'n' ? "NID" : "");
}

/* `--net NET`, or `NET` where there is no option. */
static void usage_of(const struct jrpc_param *p, char *buf, size_t len)
{
    char name[64], value[160];

    cli_metavar(p, value, sizeof(value));
    if (!cli_option_name(p, name, sizeof(name)))
        snprintf(buf, len, "%s", value);
    else if (cli_is_flag(p))
        snprintf(buf, len, "--%s", name);
    else if (cli_value_optional(p))
        snprintf(buf, len, "--%s [%s]", name, value);
    else
        snprintf(buf, len, "--%s %s", name, value);
}

void cli_synopsis(const struct cli_command *command, char *buf, size_t len)
{
    const struct jrpc_param *p;
    char one[256];

    buf[0] = '\0';
    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        usage_of(p, one, sizeof(one));
        append(buf, len, p->required ? "%s%s" : "%s[%s]", buf[0] ? " " : "", one);
    }
    if (strcmp(command->words, "rpc") == 0)
        append(buf, len, "METHOD [NAME=VALUE... | JSON]");
}

void cli_help_option(const struct jrpc_param *p, char *left, size_t left_len, char *right,
                     size_t right_len)
{
    char usage[256], name[64];

    usage_of(p, usage, sizeof(usage));
    if (p->letter && cli_option_name(p, name, sizeof(name)))
        snprintf(left, left_len, "-%c, %s", p->letter, usage);
    else
        snprintf(left, left_len, "%s", usage);
    snprintf(right, right_len, "%s", p->help ? p->help : "");
    if ((p->type == JRPC_INTEGER || p->type == JRPC_NUMBER) && p->max > p->min)
        append(right, right_len, " (%" PRId64 " to %" PRId64 "%s%s)", p->min, p->max,
               p->unit ? " " : "", p->unit ? p->unit : "");
}

/* Prints text in lines of up to 78 columns from a column on; the cursor stands at `at`. */
static void print_wrapped(FILE *to, const char *text, int column, int at)
{
    bool behind = at >= column; /* a word */

    fprintf(to, "%*s", at < column ? column - at : 0, "");
    at = at < column ? column : at;
    for (; *text; behind = true) {
        size_t word = strcspn(text, " ");

        if (behind && at + 1 + (int)word > 78) {
            fprintf(to, "\n%*s", column, "");
            at = column;
        } else if (behind) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", (int)word, text);
        at += (int)word;
        text += word + (text[word] == ' ');
    }
    fputc('\n', to);
}

void cli_help_command(FILE *to, const struct cli_command *command)
{
    const struct jrpc_param *p;
    char text[1024], left[320];

    cli_synopsis(command, text, sizeof(text));
    fprintf(to, "usage: millrace %s%s%s\n\n", command->words, text[0] ? " " : "", text);
    print_wrapped(to, command->help, 2, 0);
    if (cli_param(command, 0))
        fputc('\n', to);
    for (size_t i = 0; (p = cli_param(command, i)); i++) {
        cli_help_option(p, left, sizeof(left), text, sizeof(text));
        fprintf(to, "  %s%s", left, strlen(left) > 26 ? "\n" : "");
        print_wrapped(to, text, 30, strlen(left) > 26 ? 0 : (int)strlen(left) + 2);
    }
}

bool cli_help_group(FILE *to, const char *words)
{
    size_t len = strlen(words);
    bool any = false;
    char text[1024];

    for (const struct cli_command *c = cli_commands(); c->words; c++) {
        if (c->hidden || (len && (strncmp(c->words, words, len) != 0 || c->words[len] != ' ')))
            continue;
        if (!any && len)
            fprintf(to, "usage: millrace %s COMMAND [OPTION...]\n\n", words);
        any = true;
        cli_synopsis(c, text, sizeof(text));
        fprintf(to, "  %s", c->words);
        print_wrapped(to, text, 6, (int)strlen(c->words) + 2);
    }
    return any;
}

void cli_help(FILE *to)
{
    fputs("usage: millrace [-s SOCKET] [--json] COMMAND [OPTION...]\n\n", to);
    cli_help_group(to, "");
    fputs("\n  -s, --socket PATH    of millraced; default " CLI_DEFAULT_SOCKET "\n"
          "      --json           print results as JSON\n"
          "      --list-commands  print the commands alone\n"
          "      --version        print the version of this command\n"
          "  -h, --help           print this; behind a command: what it does and takes\n\n"
          "Exit status: 0 done, 1 refused by millraced, 2 wrong arguments, 3 no answer, or the\n"
          "output could not be written.\n",
          to);
}
