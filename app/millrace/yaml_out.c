/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace/yaml_out.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct yaml_style yaml_style_wide = {.map = 6, .dash = 0, .item = 6};
const struct yaml_style yaml_style_classic = {.map = 4, .dash = 4, .item = 2};
const struct yaml_style yaml_style_narrow = {.map = 2, .dash = 0, .item = 2};

static void print_map(const struct yaml_out *out, const json_t *map, unsigned column,
                      bool at_column);

/* Whether a control character only ends a line, or moves on within it. */
static bool is_layout(const char *text)
{
    return *text == '\n' || *text == '\t' || (text[0] == '\r' && text[1] == '\n');
}

/* Prints text with each control character as `escape` of its last byte. layout: except ends of
 * lines and tabs. quoted: with a backslash before quotes and backslashes. */
static void put_escaped(FILE *to, const char *text, const char *escape, bool layout, bool quoted)
{
    unsigned n;

    for (; *text; text += n ? n : 1) {
        n = layout && is_layout(text) ? 0 : yaml_control(text);
        if (n)
            fprintf(to, escape, (unsigned char)text[n - 1]);
        else
            fprintf(to, quoted && strchr("\"\\", *text) ? "\\%c" : "%c", *text);
    }
}

void yaml_put_plain(FILE *to, const char *text)
{
    put_escaped(to, text, "\\x%02x", false, false);
}

void yaml_printf(FILE *to, const char *fmt, ...)
{
    const char *end;
    va_list ap;

    va_start(ap, fmt);
    for (; (end = strstr(fmt, "%s")); fmt = end + 2) {
        fwrite(fmt, 1, (size_t)(end - fmt), to);
        yaml_put_plain(to, va_arg(ap, const char *));
    }
    va_end(ap);
    fputs(fmt, to);
}

void yaml_put_lines(FILE *to, const char *text)
{
    put_escaped(to, text, "\\x%02x", true, false);
}

void yaml_put_json(FILE *to, const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags | JSON_ENCODE_ANY);

    if (text) /* jansson has escaped those within strings, and writes LF alone */
        put_escaped(to, text, "\\u%04X", true, false);
    free(text);
}

void yaml_put_json_line(FILE *to, const json_t *value, size_t flags)
{
    yaml_put_json(to, value, flags);
    fputc('\n', to);
}

/* Whether a YAML reader would take plain text for something else, or refuse it. */
static bool needs_quotes(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "~"};
    size_t len = strlen(text);
    char *end;

    if (!len || strchr("-?:,[]{}#&*!|>'\"%@` ", text[0]) || text[len - 1] == ':' ||
        text[len - 1] == ' ' || strstr(text, ": ") || strstr(text, " #"))
        return true;
    for (size_t i = 0; i < len; i++)
        if (yaml_control(text + i))
            return true;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    strtod(text, &end);
    return *end == '\0';
}

static void print_quoted(FILE *to, const char *text)
{
    fputc('"', to);
    put_escaped(to, text, "\\x%02x", false, true);
    fputc('"', to);
}

/* Whether text has several lines of plain text, which are readable only as a block. */
static bool is_block(const char *text)
{
    if (!strchr(text, '\n') || isspace((unsigned char)text[0]))
        return false;
    for (; *text; text++)
        if (*text != '\n' && yaml_control(text))
            return false;
    return true;
}

/* Prints a block behind its key; its lines are indented to column. */
static void print_block(FILE *to, const char *text, unsigned column)
{
    size_t len = strlen(text);

    fputs(text[len - 1] == '\n' ? "|" : "|-", to);
    while (*text) {
        len = strcspn(text, "\n");
        fprintf(to, "\n%*s%.*s", len ? (int)column : 0, "", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

static void print_string(const struct yaml_out *out, const char *text, unsigned column)
{
    const char *comment = out->comment ? out->comment(out->arg, text) : NULL;

    if (is_block(text)) {
        print_block(out->to, text, column);
        return;
    }

    if (needs_quotes(text))
        print_quoted(out->to, text);
    else
        fputs(text, out->to);
    if (comment)
        yaml_printf(out->to, " # %s", comment); /* a comment ends with its line */
}

/* column: of the lines of a text with several lines. */
static void print_scalar(const struct yaml_out *out, const json_t *value, unsigned column)
{
    char number[40];

    switch (json_typeof(value)) {
    case JSON_STRING:
        print_string(out, json_string_value(value), column);
        break;
    case JSON_INTEGER:
        fprintf(out->to, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(number, sizeof(number), "%.15g", json_real_value(value));
        /* Without ".0" YAML readers take the number for an integer. */
        fprintf(out->to, "%s%s", number, strpbrk(number, ".e") ? "" : ".0");
        break;
    case JSON_NULL:
        fputc('~', out->to);
        break;
    default: /* true, false; empty lists and lists of lists in flow style */
        yaml_put_json(out->to, value, JSON_COMPACT);
    }
}

static void print_list(const struct yaml_out *out, const json_t *list, unsigned column)
{
    unsigned dash = column + out->style->dash;
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item) {
        fprintf(out->to, "%*s-%*s", (int)dash, "", (int)out->style->item - 1, "");
        if (json_object_size(item)) {
            print_map(out, item, dash + out->style->item, true);
        } else {
            print_scalar(out, item, dash + out->style->item);
            fputc('\n', out->to);
        }
    }
}

static void print_key(const struct yaml_out *out, const char *key)
{
    bool number = *key && !key[strspn(key, "0123456789")];

    if (needs_quotes(key) && !number) /* lnetctl writes `0: eth0` without quotes */
        print_quoted(out->to, key);
    else
        fputs(key, out->to);
    fputc(':', out->to);
}

/* at_column: the cursor already stands where the first key goes. */
static void print_map(const struct yaml_out *out, const json_t *map, unsigned column,
                      bool at_column)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)map, key, value) {
        fprintf(out->to, "%*s", at_column ? 0 : (int)column, "");
        print_key(out, key);
        at_column = false;
        if (json_object_size(value)) {
            fputc('\n', out->to);
            print_map(out, value, column + out->style->map, false);
        } else if (json_array_size(value)) {
            fputc('\n', out->to);
            print_list(out, value, column);
        } else {
            fputc(' ', out->to);
            print_scalar(out, value, column + out->style->map);
            fputc('\n', out->to);
        }
    }
}

void yaml_print(const struct yaml_out *out, const json_t *value)
{
    print_list(out, value, 0);
    print_map(out, value, 0, false);
}
