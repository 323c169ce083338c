/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace/yaml_out.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct yaml_style yaml_style_wide = {.map = 6, .dash = 0, .item = 6};
const struct yaml_style yaml_style_classic = {.map = 4, .dash = 4, .item = 2};
const struct yaml_style yaml_style_narrow = {.map = 2, .dash = 0, .item = 2};

static void print_map(const struct yaml_out *out, const json_t *map, unsigned column,
                      bool at_column);

/* Prints the escape of a control character of n bytes. */
static void put_escape(FILE *to, const char *text, unsigned n)
{
    fprintf(to, "\\x%02x", (unsigned char)text[n - 1]);
}

void yaml_put_plain(FILE *to, const char *text)
{
    unsigned n;

    for (; *text; text += n ? n : 1) {
        n = yaml_control(text);
        if (n)
            put_escape(to, text, n);
        else
            putc(*text, to);
    }
}

/* Whether a control character only ends a line, or moves on within it. */
static bool is_layout(const char *text)
{
    return *text == '\n' || *text == '\t' || (text[0] == '\r' && text[1] == '\n');
}

void yaml_put_lines(FILE *to, const char *text)
{
    unsigned n;

    for (; *text; text += n ? n : 1) {
        n = is_layout(text) ? 0 : yaml_control(text);
        if (n)
            put_escape(to, text, n);
        else
            putc(*text, to);
    }
}

void yaml_put_json(FILE *to, const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags | JSON_ENCODE_ANY), *at;
    unsigned n;

    for (at = text; at && *at; at += n ? n : 1) {
        n = *at == '\n' ? 0 : yaml_control(at); /* jansson has escaped those within strings */
        if (n)
            fprintf(to, "\\u%04X", (unsigned char)at[n - 1]);
        else
            putc(*at, to);
    }
    free(text);
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
    unsigned n;

    fputc('"', to);
    for (; *text; text += n ? n : 1) {
        n = yaml_control(text);
        if (n)
            put_escape(to, text, n);
        else if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else
            fputc(*text, to);
    }
    fputc('"', to);
}

static void print_real(FILE *to, double value)
{
    char text[40];

    snprintf(text, sizeof(text), "%.15g", value);
    fputs(text, to);
    if (!strpbrk(text, ".e")) /* otherwise YAML readers take the number for an integer */
        fputs(".0", to);
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
    if (!comment)
        return;
    fputs(" # ", out->to);
    yaml_put_plain(out->to, comment); /* a comment ends with its line */
}

/* column: of the lines of a text with several lines. */
static void print_scalar(const struct yaml_out *out, const json_t *value, unsigned column)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        print_string(out, json_string_value(value), column);
        break;
    case JSON_INTEGER:
        fprintf(out->to, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        print_real(out->to, json_real_value(value));
        break;
    case JSON_TRUE:
        fputs("true", out->to);
        break;
    case JSON_FALSE:
        fputs("false", out->to);
        break;
    case JSON_ARRAY: /* empty ones, and lists of lists: in flow style */
    case JSON_OBJECT:
        yaml_put_json(out->to, value, JSON_COMPACT);
        break;
    default:
        fputc('~', out->to);
    }
}

static bool is_filled(const json_t *value)
{
    return json_array_size(value) || json_object_size(value);
}

static void print_list(const struct yaml_out *out, const json_t *list, unsigned column)
{
    unsigned dash = column + out->style->dash;
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item) {
        fprintf(out->to, "%*s-%*s", (int)dash, "", (int)out->style->item - 1, "");
        if (json_is_object(item) && is_filled(item)) {
            print_map(out, item, dash + out->style->item, true);
        } else {
            print_scalar(out, item, dash + out->style->item);
            fputc('\n', out->to);
        }
    }
}

/* Whether a key is a number: lnetctl writes `0: eth0` without quotes. */
static bool is_number(const char *key)
{
    return *key && !key[strspn(key, "0123456789")];
}

static void print_key(const struct yaml_out *out, const char *key)
{
    if (needs_quotes(key) && !is_number(key))
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
        if (json_is_object(value) && is_filled(value)) {
            fputc('\n', out->to);
            print_map(out, value, column + out->style->map, false);
        } else if (json_is_array(value) && is_filled(value)) {
            fputc('\n', out->to);
            print_list(out, value, column);
        } else {
            fputc(' ', out->to);
            print_scalar(out, value, column + out->style->map);
            fputc('\n', out->to);
        }
    }
}

void yaml_print(const struct yaml_out *out, const json_t *object)
{
    print_map(out, object, 0, false);
}

void yaml_print_items(const struct yaml_out *out, const json_t *list)
{
    print_list(out, list, 0);
}
