/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bounded tree of a YAML document, each node with its line. The text is not trusted: its size,
 * depth and number of nodes are limited. Aliases, with which a small file can grow without end,
 * and repeated keys are refused. Pure functions.
 */
#ifndef MILLRACE_YAML_TREE_H
#define MILLRACE_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>

#define YAML_MAX_BYTES  (4u << 20)
#define YAML_MAX_DEPTH  16
#define YAML_MAX_NODES  200000
#define YAML_MAX_SCALAR 4096
#define YAML_MAX_KEYS   4096           /* of one mapping */
#define YAML_MAX_LOOKS  (4096u * 4096) /* comparisons of a key with those before it */

enum yaml_kind {
    YAML_SCALAR,
    YAML_MAP,
    YAML_SEQ
};

struct yaml_tree_node {
    enum yaml_kind kind;
    bool quoted;       /* scalar written in quotes or as a block */
    bool literal;      /* scalar of a tree that was built: a number or truth value */
    bool flow;         /* collection written in brackets or braces */
    unsigned line;     /* from 1; of the key where there is one */
    unsigned children; /* entries of a mapping, items of a sequence */
    char *key;         /* in a mapping, else NULL */
    char *text;        /* scalar; no NUL inside */
    size_t start, end; /* of a tree that was read: bytes of the text, the key not among them */
    size_t key_start;  /* in a mapping */
    struct yaml_tree_node *child, *next;
    struct yaml_tree_node *last; /* of a tree that was built: newest child */
};

struct yaml_tree_error {
    unsigned line; /* 0: of the whole file */
    char text[256];
};

/* Parses a text with one document. Returns its tree, to be freed with yaml_tree_free(); an empty
 * document gives an empty mapping. NULL with *err when the text is refused. */
struct yaml_tree_node *yaml_tree_parse(const char *text, size_t len, struct yaml_tree_error *err);
void yaml_tree_free(struct yaml_tree_node *root);

/* Returns the value of a key; NULL when map is no mapping or has no such key. */
const struct yaml_tree_node *yaml_tree_get(const struct yaml_tree_node *map, const char *key);
/* Returns the bytes of the control character that text begins with (of C0 and C1 in UTF-8, or DEL);
 * 0: none. A terminal would obey it. */
unsigned yaml_control(const char *text);
/* Whether a node is plain and empty, ~ or null. */
bool yaml_tree_is_null(const struct yaml_tree_node *node);

#endif
