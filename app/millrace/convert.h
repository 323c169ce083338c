/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Converts the configuration of a kernel node into one of millraced. There are two kinds of files.
 * Some are in lnetctl's form (/etc/lnet.conf, docs/protocol/lnet-core.md §10.7), others are of
 * modprobe.d, with options of the kernel's modules (§1.6 and §11, socklnd.md §5.1). Where both
 * give a value, lnetctl's counts, as the kernel's service reads it last.
 *
 * The configuration is for the machine with the given addresses. The converter evaluates rules of
 * ip2nets and finds an interface that is not named. As the kernel does, it leaves out a route if
 * its gateway is this machine, or is on no net of this machine.
 *
 * Each key and option gets a message: taken, changed or ignored. A key that cannot be taken does
 * not stop the conversion. The converter refuses the document only when this machine gets no NI,
 * or when a list of nets or routes cannot be understood. convert_lnetctl.c reads lnetctl's form,
 * modprobe*.c the options of modules.
 */
#ifndef MILLRACE_CONVERT_H
#define MILLRACE_CONVERT_H

#include "config/config_internal.h"

#define CONVERT_MAX_BYTES (1u << 20) /* of one file of modprobe.d */
#define CONVERT_MAX_VALUE 65536      /* bytes of one option's value */

struct convert_file {
    const char *name; /* in messages */
    const char *text; /* needs no NUL at its end */
    size_t len;
};

/* Converts files; the contents tell their kind. The last value of an option counts. Returns 0 with
 * *yaml, a text that cfg_parse() accepts, to be freed with free(); -EINVAL with *yaml NULL when the
 * report has errors. Fills the report in any case; free it with cfg_report_free(). Pure function.
 */
int convert_files(const struct convert_file *file, unsigned count,
                  const struct cfg_address *address, unsigned address_count, char **yaml,
                  struct cfg_report *report);

/* Returns the number of messages of one verdict; CFG_IGNORED has those of CFG_NO_LOSS, too. */
unsigned convert_count(const struct cfg_report *report, enum cfg_verdict verdict);

/* ---- convert_lnetctl.c ---- */

/* Whether a text is YAML, not lines of modprobe.d. */
bool convert_is_yaml(const char *text, size_t len);
/* Adds a file in lnetctl's form to the document r->cfg, and says of each of its keys what becomes
 * of it. Sets *any when the file has a key. */
void convert_lnetctl(struct cfg_reader *r, const struct convert_file *file, bool *any);

/* ---- convert_text.c ---- */

/* Writes the document as text with comments about what is changed or left out. to_path() gives the
 * path of a setting for the key of a message; NULL: the key is none. Reads the text back and
 * reports its errors. Returns 0 or -EINVAL. */
int convert_text(struct cfg_reader *r, const char *(*to_path)(const char *key), char **yaml);

#endif
