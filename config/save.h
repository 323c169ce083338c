/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a document into a file that people write, too. What did not change stays as it is, byte
 * for byte, with comments, order and layout. A value that changed is replaced where it stands, a
 * value in brackets or braces as a whole; what was removed is cut out with its lines; what is new
 * comes after its siblings. The result is read again before it is used: if it does not say what the
 * document says, sections that differ are written anew, and if that does not help the whole file.
 * Control thread or any other.
 */
#ifndef MILLRACE_CONFIG_SAVE_H
#define MILLRACE_CONFIG_SAVE_H

#include "config/config.h"
#include "lib/base/err.h"

enum cfg_saved {
    CFG_SAVED_SAME,     /* the text says so already */
    CFG_SAVED_PATCHED,  /* comments and layout kept */
    CFG_SAVED_SECTIONS, /* some sections were written anew */
    CFG_SAVED_WHOLE,    /* all of it */
    CFG_SAVED_NEW,      /* there was no file */
};
extern const char *const cfg_saved_names[]; /* "same", "patched", "sections", "whole", "new" */

/* The text of a file that had the text `old` (NULL = there was none) and shall say what cfg says;
 * *out is to be freed. 0 or -ENOMEM, -EINVAL with a sentence: a document that cannot be written, or
 * an old text that has errors and is left alone. */
int cfg_save_text(const char *name, const char *old, size_t len, const struct cfg *cfg, char **out,
                  enum cfg_saved *how, struct err *err);
/* Writes it: a new file beside the old one, with its mode and owner, synchronized, then renamed to
 * it; a symbolic link is followed, also to a file that is not there yet. -errno with a sentence;
 * then the file is as it was. */
int cfg_save_file(const char *path, const struct cfg *cfg, enum cfg_saved *how, struct err *err);

#endif
