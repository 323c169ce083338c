/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A document as a tree and as text, in the order, form and layout of lnetctl's exports
 * (docs/protocol/lnet-core.md §10), so that what is written can be read by both. Any thread.
 */
#ifndef MILLRACE_CONFIG_WRITE_H
#define MILLRACE_CONFIG_WRITE_H

#include "config/config.h"
#include "config/yaml_tree.h"

enum cfg_form {
    CFG_FORM_RUNNING, /* all, defaults and what the NIs really have written out */
    CFG_FORM_BACKUP,  /* keys of `lnetctl export --backup`; of `millrace:` what is no default */
    CFG_FORM_FILE,    /* what an operator would write: only what is no default */
};

/* To be freed with yaml_tree_free(); NULL: out of memory. */
struct yaml_tree_node *cfg_tree(const struct cfg *cfg, enum cfg_form form);
/* A tree as text, to be freed; NULL: out of memory. */
char *cfg_print(const struct yaml_tree_node *tree);
/* The same as cfg_print(cfg_tree()). */
char *cfg_text(const struct cfg *cfg, enum cfg_form form);
/* Print a part of a file, each with its newline: "key: value" behind which lines are indented from
 * column on; an item behind its "- ", whose keys stand at column. */
void cfg_put_entry(FILE *to, const struct yaml_tree_node *entry, size_t column);
void cfg_put_item(FILE *to, const struct yaml_tree_node *item, size_t column);
/* Prints a value in braces and brackets, in one line. */
void cfg_put_flow(FILE *to, const struct yaml_tree_node *value);

#endif
