/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON values as YAML in the layouts of lnetctl. docs/protocol/lnet-core.md §10. */
#ifndef MILLRACE_YAML_OUT_H
#define MILLRACE_YAML_OUT_H

#include <stdio.h>

#include <jansson.h>

struct yaml_style {
    unsigned map;  /* columns that a mapping is indented below its key */
    unsigned dash; /* columns that the dash of an item is indented below the key of its list */
    unsigned item; /* columns from a dash to the keys of its item */
};

extern const struct yaml_style yaml_style_wide;    /* net, route, peer: 6 columns */
extern const struct yaml_style yaml_style_classic; /* routing, statistics, errors: 4 columns */
extern const struct yaml_style yaml_style_narrow;  /* ping: 2 columns */

/* Prints the members of object, each with what is below it. */
void yaml_print(FILE *to, const struct yaml_style *style, json_t *object);

#endif
