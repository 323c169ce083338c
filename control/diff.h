/* SPDX-License-Identifier: BSD-3-Clause */
/* The changes that lead from one document to another. Any thread. */
#ifndef MILLRACE_CONFIG_DIFF_H
#define MILLRACE_CONFIG_DIFF_H

#include "config/settings.h"

#define CFG_NONE UINT_MAX

enum cfg_action {
    CFG_ADD,
    CFG_DEL,
    CFG_SET,
};
enum cfg_what {
    CFG_OF_SETTING,
    CFG_OF_NI,
    CFG_OF_ROUTE,
    CFG_OF_PEER,
    CFG_OF_UDSP,
    CFG_OF_HELLO,
    CFG_OF_NAME,
    CFG_OF_PORT,
    CFG_OF_ACCESS,
};
extern const char *const cfg_action_names[]; /* end with NULL */
extern const char *const cfg_what_names[];

struct cfg_change {
    enum cfg_action action;
    enum cfg_what what;
    char key[192]; /* "global.retry_count", "net[tcp1 eth1].tunables.credits", "route[tcp2 …]" */
    char *from, *to; /* NULL: nothing there before, or after */
    enum cfg_applies applies;
    bool kept;     /* nothing depends on it: kept and shown */
    unsigned a, b; /* index in the list of the one document and of the other, CFG_NONE = none; of a
                      setting: its number */
};

struct cfg_diff {
    struct cfg_change *change;
    unsigned count;
    bool failed; /* out of memory */
};

/* Lists the changes that make b of a. An NI that leaves a tunable to its default equals an NI that
 * names the value which the first really has. Freed with cfg_diff_free(), also after a failure. */
void cfg_diff_make(const struct cfg *a, const struct cfg *b, struct cfg_diff *out);
void cfg_diff_free(struct cfg_diff *diff);
/* Returns one line per change, to be freed; NULL: out of memory. */
char *cfg_diff_text(const struct cfg_diff *diff);

#endif
