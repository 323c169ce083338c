/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files modprobe*.c only. */
#ifndef MILLRACE_MODPROBE_INTERNAL_H
#define MILLRACE_MODPROBE_INTERNAL_H

#include "config/config_internal.h"
#include "config/modprobe.h"

/* What an option of a module becomes. */
enum mp_kind {
    MP_NO_EFFECT, /* nothing; why says what to do instead, NULL = nothing can be done */
    MP_SETTING,   /* a setting of the document, by the path in `to` */
    MP_NI,        /* a tunable of the NIs of the module's nets, by the key in `to` */
    MP_OTHER,     /* read by code of its own: networks, routes, … */
};

enum mp_unit { /* how the kernel's number becomes ours */
    MP_SAME,
    MP_ZERO_IS_DEFAULT, /* 0: left out */
    MP_NOT_POSITIVE_IS_0,
    MP_POSITIVE_ONLY, /* others: left out with a warning, why says the reason */
    MP_MS_TO_S,
    MP_NOT, /* 0 is 1, all else 0 */
};

struct mp_option {
    const char *module, *name;
    enum mp_kind kind;
    enum mp_unit unit;
    const char *initial; /* the kernel's default: who writes it says nothing */
    const char *to;
    const char *why;
};

/* Ends with a row without name. */
extern const struct mp_option mp_options[];
#define MP_MAX_OPTIONS 160 /* rows there may be */

/* An option as it was given last. */
struct mp_given {
    char *value; /* NULL: not given */
    const char *file;
    unsigned line;
};

struct mp_import {
    struct cfg_reader r;
    struct cfg_text from; /* of r */
    struct mp_given given[MP_MAX_OPTIONS];
    bool any;         /* an option of one of our modules is given */
    bool is_gateway;  /* a gateway of `routes` is this machine */
    unsigned words;   /* that expressions in `routes` stood for */
    unsigned skipped; /* routes through nets this machine is not on */
};

/* Its index in mp_options, -1 when there is none. Dashes count as underscores. */
int mp_find(const char *module, const char *name);
/* What is given for an option that is in the table; value is NULL when it is not given, or empty.
 */
const struct mp_given *mp_get(const struct mp_import *m, const char *module, const char *name);
/* Messages are about this option from now on; line of it. */
unsigned mp_about(struct mp_import *m, const char *module, const char *name,
                  const struct mp_given *given);

/* Options of a file into m->given. modprobe_lines.c */
void mp_read_file(struct mp_import *m, const struct modprobe_file *file);
/* `routes` into m->r.cfg, whose NIs are complete. modprobe_routes.c */
void mp_read_routes(struct mp_import *m, unsigned line, const char *text);
/* NID of an NI, by its interface's first address; false when it has none. */
bool mp_ni_nid(const struct mp_import *m, const struct cfg_ni *ni, struct lnet_nid *out);

#endif
