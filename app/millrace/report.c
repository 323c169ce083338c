/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "app/millrace/report.h"

static const char *const levels[] = {
    [REPORT_OK] = "ok", [REPORT_WARNING] = "warning", [REPORT_ERROR] = "error"};

/* Returns a string; bytes that are no UTF-8 become '?'. */
static json_t *string(const char *fmt, va_list ap)
{
    char *text = NULL;
    json_t *value;

    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    value = json_string(text);
    for (char *c = text; !value && *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    value = value ? value : json_string(text);
    free(text);
    return value;
}

void report_add(json_t *list, enum report_level level, const char *check, const char *object,
                const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o}", "check", check, "object", object,
                                          "level", levels[level], "text", string(fmt, ap)));
    va_end(ap);
}

void report_remedy(json_t *list, const char *fmt, ...)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    va_list ap;

    va_start(ap, fmt);
    json_object_set_new(last, "remedy", string(fmt, ap));
    va_end(ap);
}

static enum report_level level_of(const json_t *finding)
{
    enum report_level level = REPORT_ERROR;

    while (level > REPORT_OK && strcmp(cli_text(finding, "level"), levels[level]) != 0)
        level--;
    return level;
}

enum report_level report_worst(const json_t *list)
{
    enum report_level worst = REPORT_OK;
    json_t *finding;
    size_t i;

    json_array_foreach(list, i, finding)
        worst = level_of(finding) > worst ? level_of(finding) : worst;
    return worst;
}

static void print_finding(FILE *to, const json_t *finding)
{
    const char *object = cli_text(finding, "object"), *remedy = cli_text(finding, "remedy");

    fprintf(to, "%-8s ", cli_text(finding, "level"));
    yaml_printf(to, object[0] ? "%s %s: " : "%s%s: ", cli_text(finding, "check"), object);
    yaml_printf(to, "%s\n", cli_text(finding, "text"));
    if (remedy[0])
        yaml_printf(to, "         try: %s\n", remedy);
}

void report_print(FILE *to, const json_t *list, enum report_level from, unsigned most)
{
    for (int level = REPORT_ERROR; level >= (int)from; level--) {
        json_t *shown = json_object(), *finding, *count;
        const char *check;
        size_t i;

        json_array_foreach(list, i, finding) {
            json_int_t n = cli_integer(shown, cli_text(finding, "check")) + 1;

            if (level_of(finding) != (enum report_level)level)
                continue;
            json_object_set_new(shown, cli_text(finding, "check"), json_integer(n));
            if (n <= most)
                print_finding(to, finding);
        }
        json_object_foreach(shown, check, count) {
            if (json_integer_value(count) > most)
                fprintf(to, "%-8s %s: %" JSON_INTEGER_FORMAT " more; --json has all\n",
                        levels[level], check, json_integer_value(count) - most);
        }
        json_decref(shown);
    }
}
