/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings: the keys of a document that have one value, as opposed to lists. A setting has a
 * path ("global.retry_count"), a type, a range, a default, and a time from which a new value
 * applies. Any thread.
 */
#ifndef MILLRACE_SETTINGS_H
#define MILLRACE_SETTINGS_H

#include "config/config.h"
#include "lib/base/err.h"

enum cfg_applies { /* when a change applies */
    CFG_AT_ONCE,
    CFG_NEW_CONNECTIONS,
    CFG_NI_RESTART,
    CFG_RESTART,
};
/* "at once", "new connections", "restart of the NI", "restart" */
const char *cfg_applies_name(enum cfg_applies applies);

#define CFG_MAX_PATH  96
#define CFG_MAX_VALUE 512

struct cfg_key;
struct cfg_setting {
    const struct cfg_key *key; /* private */
    char path[CFG_MAX_PATH];
    const char *name;  /* the last part of the path */
    const char *scope; /* "global": lnetctl has it; "millrace" */
    const char *type;  /* "integer", "boolean", "word", "string" */
    const char *unit;  /* NULL = none */
    const char *help;
    const char *const *words; /* of a word */
    long min, max;            /* integer: range; string: max = longest length */
    enum cfg_applies applies;
    bool kept;                   /* kept and shown, not acted on */
    const char *no_effect_since; /* Lustre version since which kernel nodes do not act on it either;
                                    NULL: they do */
};

/* Finds a setting by number. False: there are no more. */
bool cfg_setting_at(unsigned index, struct cfg_setting *out);
/* Finds a setting by path or by name. */
bool cfg_setting_find(const char *name, struct cfg_setting *out);
/* Writes a value as in a file, of a document or, with cfg NULL, the default. Returns buf. */
char *cfg_setting_text(const struct cfg_setting *setting, const struct cfg *cfg,
                       char buf[CFG_MAX_VALUE]);
bool cfg_setting_same(const struct cfg_setting *setting, const struct cfg *a, const struct cfg *b);
/* Sets a setting from text. of: the document, or the struct cfg_ni of a tunable. Returns 0, or
 * -EINVAL with a sentence. */
int cfg_setting_set(const struct cfg_setting *setting, void *of, const char *text, struct err *err);

/* ---- tunables of an NI: `tunables` and, with lnd, `lnd tunables` ---- */
bool cfg_ni_setting_at(bool lnd, unsigned index, struct cfg_setting *out);
/* Returns the value; for a default the value of the running NI if it is known, else -1. */
int cfg_ni_setting_get(const struct cfg_setting *setting, const struct cfg_ni *ni);
/* Helps to suggest a word: returns candidate if it is nearer to a misspelt word than best (NULL:
 * none yet) and near enough, else best. */
const char *cfg_nearer(const char *word, const char *candidate, const char *best);

#endif
