/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a document as a tree and as text, in the order, form and layout of lnetctl's exports
 * (docs/protocol/lnet-core.md §10). Both lnetctl and this program can read the text. Any thread.
 */
#ifndef MILLRACE_CONFIG_WRITE_H
#define MILLRACE_CONFIG_WRITE_H

#include "config/config.h"
#include "config/yaml_tree.h"

enum cfg_form {
    CFG_FORM_RUNNING, /* all keys, with defaults and the values of the running NIs */
    CFG_FORM_BACKUP,  /* keys of `lnetctl export --backup`; of `millrace:` those that are not at
                         their default */
    CFG_FORM_FILE,    /* only keys that are not at their default, as an operator writes them */
};

/* Returns a document as a tree, to be freed with yaml_tree_free(). NULL: out of memory. */
struct yaml_tree_node *cfg_tree(const struct cfg *cfg, enum cfg_form form);
/* Returns a tree as text, to be freed. NULL: out of memory. */
char *cfg_print(const struct yaml_tree_node *tree);
/* Returns a document as text, to be freed. NULL: out of memory. */
char *cfg_text(const struct cfg *cfg, enum cfg_form form);
/* Print a part of a file with its newline. cfg_put_entry() prints "key: value", further lines
 * indented from column on. cfg_put_item() prints an item behind its "- "; its keys stand at
 * column. */
void cfg_put_entry(FILE *to, const struct yaml_tree_node *entry, size_t column);
void cfg_put_item(FILE *to, const struct yaml_tree_node *item, size_t column);
/* Prints a value in braces and brackets, in one line. */
void cfg_put_flow(FILE *to, const struct yaml_tree_node *value);

#endif
