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
/* A part of it: "net", "route", …; NULL also when it would be empty. */
struct yaml_tree_node *cfg_tree_section(const struct cfg *cfg, enum cfg_form form,
                                        const char *name);
/* A tree as text, to be freed; NULL: out of memory. */
char *cfg_print(const struct yaml_tree_node *tree);
/* The same as cfg_print(cfg_tree()). */
char *cfg_text(const struct cfg *cfg, enum cfg_form form);
/* One scalar as in a file, with quotes where it needs them. Returns buf. */
char *cfg_print_scalar(const struct yaml_tree_node *scalar, char *buf, size_t size);

#endif
