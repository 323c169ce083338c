/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of the kernel's modules lnet, ksocklnd and ko2iblnd (files of modprobe.d,
 * docs/protocol/lnet-core.md §1.6 and §11, socklnd.md §5.1) for the converter, see convert.h.
 *
 * The converter ignores an option that is unknown or has no effect here, or whose value cannot be
 * understood, and takes the nearest value for a number out of range. A list of nets or routes that
 * cannot be understood is an error.
 *
 * modprobe_read.c reads the lines, modprobe.c converts the options, modprobe_routes.c the
 * routes.
 */
#ifndef MILLRACE_MODPROBE_H
#define MILLRACE_MODPROBE_H

#include "app/millrace/convert.h"

enum mp_unit { /* how a number of the kernel is converted */
    MP_SAME,
    MP_ZERO_IS_DEFAULT, /* 0: left out */
    MP_NOT_POSITIVE_IS_0,
    MP_POSITIVE_ONLY, /* 0 and below: left out with a warning */
    MP_MS_TO_S,
    MP_NOT, /* 0 is 1, all else 0 */
};

struct mp_option {
    const char *module, *name;
    /* The path of a setting; or "NI." and a tunable of the NIs of the module's nets; or NULL:
     * modprobe.c has code for the option. */
    const char *to;
    enum mp_unit unit;
};

/* Ends with a row without name. */
extern const struct mp_option mp_options[];
#define MP_MAX_OPTIONS 96 /* rows there may be */

/* The options of each module that have no effect here, with the kernel's defaults: "auto_down=1 …".
 * Ends with a row without module. */
extern const char *const mp_no_effect[][2];

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
    bool any;         /* a key, or an option of one of the modules, is given */
    bool has_options; /* an option is given */
    bool is_gateway;  /* a gateway of `routes` is this machine */
};

/* Returns the given value of an option of the table; value is NULL when none, or an empty one, is
 * given. */
const struct mp_given *mp_get(const struct mp_import *m, const char *module, const char *name);
/* Makes messages speak of this option, or with name NULL of the module. Returns the line. */
unsigned mp_about(struct mp_import *m, const char *module, const char *name,
                  const struct mp_given *given);
/* Makes messages speak of the file alone. */
void mp_about_file(struct mp_import *m);
/* Puts the options of a file into m->given. */
void mp_read_file(struct mp_import *m, const struct convert_file *file);
/* Returns the path of the setting that an option "module.name" becomes; NULL: it becomes none. */
const char *mp_setting_of(const char *key);
/* Puts `routes` into m->r.cfg, whose NIs are complete. */
void mp_read_routes(struct mp_import *m, unsigned line, const char *text);

#endif
