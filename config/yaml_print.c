/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints a tree in the two layouts that lnetctl's exports mix, docs/protocol/lnet-core.md §10. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/write.h"

struct layout {
    int map;  /* columns from a key to the keys of its mapping */
    int seq;  /* columns from a key to the '-' of the items of its sequence */
    int item; /* columns from a '-' to the keys of its item */
};
static const struct layout netlink = {6, 0, 6}, plain = {4, 4, 2}, patch = {4, 2, 2};

/* Whether a reader would take plain text for something else. */
static bool needs_quotes(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no",   "on",
                                        "off",  "y",     "n",   "null", "~"};
    size_t len = strlen(text);

    if (!len || strspn(text, "0123456789.+-eExXoO_") == len)
        return true;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7f ||
            strchr("\"'\\{}[],&*#?|`!", text[i]))
            return true;
    return strchr(" -:>%@=<", text[0]) || text[len - 1] == ' ' || text[len - 1] == ':' ||
           strstr(text, ": ");
}

/* Returns the bytes of a character that YAML does not accept as it is, or takes for the end of a
 * line; 0: it is another one. */
static unsigned special(const unsigned char *p, unsigned *character)
{
    unsigned control = yaml_control((const char *)p); /* NEL among them */

    if (control) {
        *character = p[control - 1];
        return control;
    }
    if ((p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9)) || /* ends of lines */
        (p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf) ||                   /* byte order mark */
        (p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe)) {
        *character = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
        return 3;
    }
    return 0;
}

static void put_quoted(FILE *to, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned character, n;

    putc('"', to);
    while (*p) {
        n = special(p, &character);
        if (n)
            fprintf(to, "\\u%04x", character);
        else if (*p == '"' || *p == '\\')
            fprintf(to, "\\%c", *p);
        else
            putc(*p, to);
        p += n ? n : 1;
    }
    putc('"', to);
}

static void put_scalar(FILE *to, const struct yaml_tree_node *node)
{
    if (!node->literal && (node->quoted || needs_quotes(node->text)))
        put_quoted(to, node->text);
    else
        fputs(node->text, to);
}

static void put_key(FILE *to, const struct yaml_tree_node *node)
{
    struct yaml_tree_node key = {.kind = YAML_SCALAR, .text = node->key};

    key.literal = strspn(node->key, "0123456789") == strlen(node->key);
    put_scalar(to, &key);
    putc(':', to);
}

void cfg_put_flow(FILE *to, const struct yaml_tree_node *node)
{
    if (node->kind == YAML_SCALAR) {
        put_scalar(to, node);
        return;
    }
    putc(node->kind == YAML_MAP ? '{' : '[', to);
    for (const struct yaml_tree_node *child = node->child; child; child = child->next) {
        if (node->kind == YAML_MAP) {
            put_key(to, child);
            putc(' ', to);
        }
        cfg_put_flow(to, child);
        fputs(child->next ? ", " : "", to);
    }
    putc(node->kind == YAML_MAP ? '}' : ']', to);
}

static void put_map(FILE *to, const struct yaml_tree_node *map, int column, bool first,
                    const struct layout *layout);

/* Prints an item behind its "- "; its keys stand at column. */
static void put_item(FILE *to, const struct yaml_tree_node *item, int column,
                     const struct layout *layout)
{
    if (item->kind == YAML_MAP && item->child) {
        put_map(to, item, column, true, layout);
    } else {
        cfg_put_flow(to, item);
        putc('\n', to);
    }
}

/* Prints a key at column and its value: a scalar in the same line, a collection in lines of its
 * own. */
static void put_entry(FILE *to, const struct yaml_tree_node *node, int column,
                      const struct layout *layout)
{
    put_key(to, node);
    if (!node->child) {
        putc(' ', to);
        cfg_put_flow(to, node);
    }
    putc('\n', to);
    if (node->kind == YAML_MAP && node->child)
        put_map(to, node, column + layout->map, false, layout);
    for (const struct yaml_tree_node *item = node->kind == YAML_SEQ ? node->child : NULL; item;
         item = item->next) {
        fprintf(to, "%*s-%*s", column + layout->seq, "", layout->item - 1, "");
        put_item(to, item, column + layout->seq + layout->item, layout);
    }
}

static void put_map(FILE *to, const struct yaml_tree_node *map, int column, bool first,
                    const struct layout *layout)
{
    for (const struct yaml_tree_node *node = map->child; node; node = node->next) {
        bool wide = strcmp(node->key, "net") == 0 || strcmp(node->key, "route") == 0 ||
                    strcmp(node->key, "peer") == 0;

        if (!first)
            fprintf(to, "%*s", column, "");
        first = false;
        put_entry(to, node, column, layout ? layout : wide ? &netlink : &plain);
    }
}

void cfg_put_entry(FILE *to, const struct yaml_tree_node *entry, size_t column)
{
    put_entry(to, entry, (int)column, &patch);
}

void cfg_put_item(FILE *to, const struct yaml_tree_node *item, size_t column)
{
    put_item(to, item, (int)column, &patch);
}

char *cfg_print(const struct yaml_tree_node *tree)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    bool failed;

    if (!to)
        return NULL;
    put_map(to, tree, 0, false, NULL);
    failed = ferror(to);
    if (fclose(to) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
