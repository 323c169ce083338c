/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of the kernel's modules lnet, ksocklnd and ko2iblnd (modprobe.d files,
 * docs/protocol/lnet-core.md §1.6 and §11, socklnd.md §5.1) as a configuration of ours: `networks`,
 * `ip2nets`, `routes`, `forwarding`, router buffers, tunables of NIs and of the node.
 *
 * The document is for the machine whose addresses are given: rules of ip2nets are decided, an
 * interface that is not named is found, routes whose gateway is this machine or is on no net of it
 * are left out, as the kernel does. What has no effect here gives a warning; what is not known, or
 * would turn into something else than the kernel makes of it, is an error.
 *
 * Depends on nothing of the node: the command line links it (config_dep).
 */
#ifndef MILLRACE_MODPROBE_H
#define MILLRACE_MODPROBE_H

#include "config/config.h"

#define MODPROBE_MAX_BYTES (1u << 20) /* of one file */
#define MODPROBE_MAX_FILES 256
#define MODPROBE_MAX_VALUE 65536 /* bytes of one option's value */

struct modprobe_file {
    const char *name; /* in messages */
    const char *text; /* needs no NUL at its end */
    size_t len;
};

/* Files count in the order they are given: of an option written twice the last one counts. 0 with
 * *yaml, a text that cfg_parse() accepts, to be freed with free(); -EINVAL when the report has
 * errors; then *yaml is NULL. The report (file:line: module.option: reason; remedy) is filled in
 * any case and to be freed with cfg_report_free(). Pure function. */
int modprobe_convert(const struct modprobe_file *file, unsigned count,
                     const struct cfg_address *address, unsigned address_count, char **yaml,
                     struct cfg_report *report);

/* The same for files by their paths and for this machine. Also -errno of reading, then in the
 * report. Blocks on the files only. */
int modprobe_import(const char *const *path, unsigned count, char **yaml,
                    struct cfg_report *report);

#endif
