/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a document into a file that people edit, too.
 *
 * An unchanged part of the file stays as it is, byte for byte, with comments, order and layout.
 * A changed value is replaced in place, a value in brackets or braces as a whole. A removed item
 * is cut out with its lines. A new item comes after its siblings. The result is read again
 * before it is used. If it does not say what the document says, sections that differ are written
 * anew, and if that does not help, the whole file. Control thread or any other.
 */
#ifndef MILLRACE_CONFIG_SAVE_H
#define MILLRACE_CONFIG_SAVE_H

#include "config/config.h"
#include "config/place.h"
#include "lib/base/err.h"

enum cfg_saved {
    CFG_SAVED_SAME,     /* the text says so already */
    CFG_SAVED_PATCHED,  /* comments and layout kept */
    CFG_SAVED_SECTIONS, /* some sections were written anew */
    CFG_SAVED_WHOLE,    /* all of it */
    CFG_SAVED_NEW,      /* there was no file */
};
extern const char *const cfg_saved_names[]; /* "same", "patched", "sections", "whole", "new" */

/* Makes the text of a file that says what cfg says. old: its text before; NULL: there was no file.
 * *out is to be freed. Returns 0; -ENOMEM, or -EINVAL with a sentence when the document cannot be
 * written, or when old has errors and is left alone. */
int cfg_save_text(const char *name, const char *old, size_t len, const struct cfg *cfg, char **out,
                  enum cfg_saved *how, struct err *err);
/* Writes the text into a new file beside the old one, with its mode and owner, synchronizes it, and
 * renames it to the old one. Follows a symbolic link, also to a missing file. Returns -errno with a
 * sentence; then the file is as it was. */
int cfg_save_file(const char *path, const struct cfg *cfg, enum cfg_saved *how, struct err *err);

/* Does the same for a file whose folder is open; path stands for it in messages. */
int cfg_save_place(const struct cfg_place *place, const char *path, const struct cfg *cfg,
                   enum cfg_saved *how, struct err *err);

#endif
