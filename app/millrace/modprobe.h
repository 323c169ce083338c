/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Converts the options of the kernel's modules lnet, ksocklnd and ko2iblnd (files of modprobe.d,
 * docs/protocol/lnet-core.md §1.6 and §11, socklnd.md §5.1) into a configuration of millraced.
 *
 * The configuration is for the machine with the given addresses. The converter evaluates rules of
 * ip2nets and finds an interface that is not named. As the kernel does, it leaves out a route if
 * its gateway is this machine, or is on no net of this machine.
 *
 * An option that is unknown or has no effect here gives a warning. A value that cannot be
 * understood, or that would mean something else here than to the kernel, is an error.
 *
 * modprobe_read.c reads the lines, modprobe.c converts the options, modprobe_routes.c the
 * routes.
 */
#ifndef MILLRACE_MODPROBE_H
#define MILLRACE_MODPROBE_H

#include "config/config_internal.h"

#define MODPROBE_MAX_BYTES (1u << 20) /* of one file */
#define MODPROBE_MAX_VALUE 65536      /* bytes of one option's value */

struct modprobe_file {
    const char *name; /* in messages */
    const char *text; /* needs no NUL at its end */
    size_t len;
};

/* Converts files. The last value of an option counts. Returns 0 with *yaml, a text that cfg_parse()
 * accepts, to be freed with free(); -EINVAL with *yaml NULL when the report has errors. Fills the
 * report (file:line: module.option: reason; remedy) in any case; free it with cfg_report_free().
 * Pure function. */
int modprobe_convert(const struct modprobe_file *file, unsigned count,
                     const struct cfg_address *address, unsigned address_count, char **yaml,
                     struct cfg_report *report);

/* ---- shared by modprobe*.c ---- */

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
    bool any;        /* an option of one of the modules is given */
    bool is_gateway; /* a gateway of `routes` is this machine */
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
void mp_read_file(struct mp_import *m, const struct modprobe_file *file);
/* Puts `routes` into m->r.cfg, whose NIs are complete. */
void mp_read_routes(struct mp_import *m, unsigned line, const char *text);

#endif
