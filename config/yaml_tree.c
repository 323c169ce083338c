/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds a tree from libyaml's events. See yaml_tree.h. */
#include "config/yaml_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

struct level {
    struct yaml_tree_node *node;
    struct yaml_tree_node **tail; /* where its next child goes */
    char *key;                    /* read, its value still to come */
    unsigned key_line;
    size_t key_start;
};

struct builder {
    yaml_parser_t parser;
    struct level stack[YAML_MAX_DEPTH];
    unsigned depth;
    unsigned nodes;
    unsigned looks; /* comparisons of keys */
    bool done;      /* the document has ended */
    const char *text;
    size_t len, chars, bytes; /* a place in it, counted both ways */
    struct yaml_tree_node *root;
    struct yaml_tree_error *err;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct builder *b, unsigned line,
                                                        const char *why, ...)
{
    va_list args;

    b->err->line = line;
    va_start(args, why);
    vsnprintf(b->err->text, sizeof(b->err->text), why, args);
    va_end(args);
    return -1;
}

/* Converts a position of libyaml, in characters, to bytes. Positions come in almost rising
 * order. */
static size_t offset_of(struct builder *b, const yaml_mark_t *mark)
{
    if (mark->index < b->chars)
        b->chars = b->bytes = 0;
    while (b->chars < mark->index && b->bytes < b->len) {
        do {
            b->bytes++;
        } while (b->bytes < b->len && ((unsigned char)b->text[b->bytes] & 0xc0) == 0x80);
        b->chars++;
    }
    return b->bytes;
}

static unsigned event_line(const yaml_event_t *event)
{
    return (unsigned)event->start_mark.line + 1;
}

static struct yaml_tree_node *node_new(enum yaml_kind kind, unsigned line)
{
    struct yaml_tree_node *node = calloc(1, sizeof(*node));

    if (node) {
        node->kind = kind;
        node->line = line;
    }
    return node;
}

/* Takes a scalar in the place of a key. */
static int take_key(struct builder *b, const yaml_event_t *event)
{
    struct level *top = &b->stack[b->depth - 1];
    const char *text = (const char *)event->data.scalar.value;
    unsigned line = event_line(event);

    if (event->data.scalar.length > 64 || strlen(text) != event->data.scalar.length)
        return refuse(b, line, "a key is longer than any known one");
    b->looks += top->node->children;
    if (top->node->children >= YAML_MAX_KEYS || b->looks > YAML_MAX_LOOKS)
        return refuse(b, line, "a mapping has too many keys");
    if (yaml_tree_get(top->node, text))
        return refuse(b, line, "key '%s' appears twice in one mapping; remove one", text);
    top->key = strdup(text);
    top->key_line = line;
    top->key_start = offset_of(b, &event->start_mark);
    return top->key ? 0 : refuse(b, line, "out of memory");
}

/* Links node into the innermost open collection, or makes it the root. */
static void link_node(struct builder *b, struct yaml_tree_node *node)
{
    struct level *top;

    if (!b->depth) {
        b->root = node;
        return;
    }
    top = &b->stack[b->depth - 1];
    if (top->node->kind == YAML_MAP) {
        node->key = top->key;
        node->line = top->key_line;
        node->key_start = top->key_start;
        top->key = NULL;
    }
    *top->tail = node;
    top->tail = &node->next;
    top->node->children++;
}

static bool key_due(const struct builder *b)
{
    return b->depth && b->stack[b->depth - 1].node->kind == YAML_MAP && !b->stack[b->depth - 1].key;
}

static int take_scalar(struct builder *b, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    unsigned line = event_line(event);
    struct yaml_tree_node *node;

    if (key_due(b))
        return take_key(b, event);
    if (event->data.scalar.length > YAML_MAX_SCALAR)
        return refuse(b, line, "a value is too long");
    if (strlen(text) != event->data.scalar.length)
        return refuse(b, line, "a value has a NUL character in it");
    node = node_new(YAML_SCALAR, line);
    if (node)
        node->text = strdup(text);
    if (!node || !node->text) {
        yaml_tree_free(node);
        return refuse(b, line, "out of memory");
    }
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->start = offset_of(b, &event->start_mark);
    node->end = offset_of(b, &event->end_mark);
    link_node(b, node);
    return 0;
}

static int open_collection(struct builder *b, enum yaml_kind kind, bool flow,
                           const yaml_event_t *event)
{
    unsigned line = event_line(event);
    struct yaml_tree_node *node;
    struct level *level;

    if (key_due(b))
        return refuse(b, line, "a key must be a plain word");
    if (b->depth == YAML_MAX_DEPTH)
        return refuse(b, line, "nested too deeply");
    node = node_new(kind, line);
    if (!node)
        return refuse(b, line, "out of memory");
    node->flow = flow;
    node->start = node->end = offset_of(b, &event->start_mark);
    link_node(b, node);
    level = &b->stack[b->depth++];
    memset(level, 0, sizeof(*level));
    level->node = node;
    level->tail = &node->child;
    return 0;
}

/* libyaml reports the end of a block where the next token begins, behind blank lines and comments.
 * The block ends with its last value. */
static void close_collection(struct builder *b, const yaml_event_t *event)
{
    struct level *top = &b->stack[--b->depth];

    if (top->node->flow) {
        top->node->end = offset_of(b, &event->end_mark);
        return;
    }
    for (const struct yaml_tree_node *child = top->node->child; child; child = child->next)
        top->node->end = child->end;
}

static int take_event(struct builder *b, const yaml_event_t *event)
{
    unsigned line = event_line(event);

    if (++b->nodes > YAML_MAX_NODES)
        return refuse(b, line, "too many values in one file");
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return refuse(b, line, "aliases (*name) are not accepted; write the value out");
    case YAML_SCALAR_EVENT:
        return take_scalar(b, event);
    case YAML_MAPPING_START_EVENT:
        return open_collection(b, YAML_MAP,
                               event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_collection(b, YAML_SEQ,
                               event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE, event);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        close_collection(b, event);
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        if (b->root)
            return refuse(b, line, "a second document begins; one file has one");
        return 0;
    case YAML_STREAM_END_EVENT:
        b->done = true;
        return 0;
    default: /* stream start, document end: nothing to do */
        return 0;
    }
}

static int build(struct builder *b)
{
    const yaml_parser_t *parser = &b->parser;
    yaml_event_t event;
    int rc = 0;

    while (!b->done && rc == 0) {
        if (!yaml_parser_parse(&b->parser, &event))
            return refuse(b, (unsigned)parser->problem_mark.line + 1, "not YAML: %s%s%s",
                          parser->problem ? parser->problem : "cannot be read",
                          parser->context ? " " : "", parser->context ? parser->context : "");
        rc = take_event(b, &event);
        yaml_event_delete(&event);
    }
    return rc;
}

struct yaml_tree_node *yaml_tree_parse(const char *text, size_t len, struct yaml_tree_error *err)
{
    struct builder b = {.err = err, .text = text, .len = len};
    int rc;

    if (len > YAML_MAX_BYTES) {
        refuse(&b, 0, "the file is larger than 4 MiB");
        return NULL;
    }
    if (!yaml_parser_initialize(&b.parser)) {
        refuse(&b, 0, "out of memory");
        return NULL;
    }
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, len);
    rc = build(&b);
    yaml_parser_delete(&b.parser);
    while (b.depth)
        free(b.stack[--b.depth].key);
    if (rc == 0 && !b.root)
        b.root = node_new(YAML_MAP, 1);
    if (rc != 0) {
        yaml_tree_free(b.root);
        return NULL;
    }
    return b.root;
}

/* Recursion is bounded by YAML_MAX_DEPTH. */
void yaml_tree_free(struct yaml_tree_node *root)
{
    while (root) {
        struct yaml_tree_node *next = root->next;

        yaml_tree_free(root->child);
        free(root->key);
        free(root->text);
        free(root);
        root = next;
    }
}

const struct yaml_tree_node *yaml_tree_get(const struct yaml_tree_node *map, const char *key)
{
    if (!map || map->kind != YAML_MAP)
        return NULL;
    for (const struct yaml_tree_node *node = map->child; node; node = node->next)
        if (strcmp(node->key, key) == 0)
            return node;
    return NULL;
}

unsigned yaml_control(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
        return 2;
    return p[0] && (p[0] < 0x20 || p[0] == 0x7f);
}

bool yaml_tree_is_null(const struct yaml_tree_node *node)
{
    return node->kind == YAML_SCALAR && !node->quoted &&
           (!node->text[0] || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}
