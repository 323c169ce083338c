/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace/yaml_out.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct yaml_style yaml_style_wide = {.map = 6, .dash = 0, .item = 6};
const struct yaml_style yaml_style_classic = {.map = 4, .dash = 4, .item = 2};
const struct yaml_style yaml_style_narrow = {.map = 2, .dash = 0, .item = 2};

static void print_map(FILE *to, const struct yaml_style *style, json_t *map, unsigned column,
                      bool at_column);

/* A plain scalar that a YAML reader would take for something else, or not at all. */
static bool needs_quotes(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "~"};
    size_t len = strlen(text), i;
    char *end;

    if (!len || strchr("-?:,[]{}#&*!|>'\"%@` ", text[0]) || text[len - 1] == ':' ||
        text[len - 1] == ' ' || strstr(text, ": ") || strstr(text, " #"))
        return true;
    for (i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return true;
    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    strtod(text, &end);
    return *end == '\0';
}

static void print_quoted(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            fprintf(to, "\\x%02x", (unsigned char)*text);
        else
            fputc(*text, to);
    }
    fputc('"', to);
}

static void print_scalar(FILE *to, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        if (needs_quotes(json_string_value(value)))
            print_quoted(to, json_string_value(value));
        else
            fputs(json_string_value(value), to);
        break;
    case JSON_INTEGER:
        fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        fprintf(to, "%g", json_real_value(value));
        break;
    case JSON_TRUE:
        fputs("true", to);
        break;
    case JSON_FALSE:
        fputs("false", to);
        break;
    default: /* null; collections do not come here */
        fputc('~', to);
    }
}

static void print_list(FILE *to, const struct yaml_style *style, json_t *list, unsigned column)
{
    unsigned dash = column + style->dash;
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item) {
        fprintf(to, "%*s-%*s", (int)dash, "", (int)style->item - 1, "");
        if (json_is_object(item)) {
            print_map(to, style, item, dash + style->item, true);
        } else {
            print_scalar(to, item);
            fputc('\n', to);
        }
    }
}

/* at_column: the cursor already stands where the first key goes. */
static void print_map(FILE *to, const struct yaml_style *style, json_t *map, unsigned column,
                      bool at_column)
{
    const char *key;
    json_t *value;

    json_object_foreach(map, key, value) {
        fprintf(to, "%*s%s:", at_column ? 0 : (int)column, "", key);
        at_column = false;
        if (json_is_object(value)) {
            fputc('\n', to);
            print_map(to, style, value, column + style->map, false);
        } else if (json_is_array(value)) {
            fputc('\n', to);
            print_list(to, style, value, column);
        } else {
            fputc(' ', to);
            print_scalar(to, value);
            fputc('\n', to);
        }
    }
}

void yaml_print(FILE *to, const struct yaml_style *style, json_t *object)
{
    print_map(to, style, object, 0, false);
}
