/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of config/ only. */
#ifndef MILLRACE_CONFIG_INTERNAL_H
#define MILLRACE_CONFIG_INTERNAL_H

#include "config/config.h"
#include "config/yaml_tree.h"

#define CFG_MAX_INT 2147483647L

/* State of reading one file. */
struct cfg_reader {
    struct cfg *cfg;
    struct cfg_report *report;
    const char *name; /* of the file */
    char path[256];   /* where we are: "net[0].local NI(s)[1].tunables" */
    size_t path_len;
};

enum cfg_key_kind {
    CFG_INT,       /* decimal within min..max into an int */
    CFG_BOOL,      /* true, false, yes, no, on, off, 1, 0 into an int */
    CFG_WORD,      /* one of words, its index into an int */
    CFG_TEXT,      /* up to max - 1 characters into a char array */
    CFG_SECTION,   /* a mapping read by the table in sub, into the same object */
    CFG_CALL,      /* fn */
    CFG_READ_ONLY, /* what lnetctl shows and nobody sets; ignored */
    CFG_NOT_YET,   /* lnetctl's, understood there, not acted on here: a warning */
    CFG_REFUSED,   /* lnetctl's, leaving it out would mislead; `why` says what to do */
};

struct cfg_key {
    const char *name; /* a name that ends in '[' stands for all that begin so */
    enum cfg_key_kind kind;
    size_t offset; /* in the object */
    long min, max;
    const char *const *words;
    const struct cfg_key *sub;
    void (*fn)(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
    const char *why;
};

/* Reads a mapping by a table that ends with a row without name. obj is what offsets count from. */
void cfg_read_map(struct cfg_reader *r, const struct yaml_tree_node *map,
                  const struct cfg_key *keys, void *obj);
/* Calls fn for each item of a sequence; a mapping or scalar counts as a sequence of one, null as
 * none. The path shows the index meanwhile. */
void cfg_read_items(struct cfg_reader *r, const struct yaml_tree_node *value,
                    void (*fn)(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item),
                    void *obj);
/* Text of a scalar, NULL (reported) when value is none or is empty. */
const char *cfg_scalar(struct cfg_reader *r, const struct yaml_tree_node *value);
bool cfg_read_int(struct cfg_reader *r, const struct yaml_tree_node *value, long min, long max,
                  int *out);

/* "path: reason" of a line; of the file when line is 0. */
void cfg_error(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cfg_warning(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Table of the top level, config_keys.c. */
extern const struct cfg_key cfg_top_keys[];
/* What needs the whole file: routes against nets, repeated NIDs. config_check.c */
void cfg_check(struct cfg_reader *r);
/* Number of cores of a list, 0 when it is malformed. */
unsigned cfg_cores_count(const char *cores);
/* The candidate nearest to word, NULL when none is near; keys as for cfg_read_map(). */
const char *cfg_nearest(const struct cfg_key *keys, const char *word);

#endif
