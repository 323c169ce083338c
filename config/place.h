/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file as its folder, which is open, and its name in that folder. Reading and replacing the file
 * start from the open folder and follow no link, so that nothing that happens to links between a
 * check and the use can lead to another file. Any thread.
 */
#ifndef MILLRACE_CONFIG_PLACE_H
#define MILLRACE_CONFIG_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct cfg_place {
    int dir; /* -1 = closed */
    char name[NAME_MAX + 1];
};

/* Opens the folder of an absolute path. Follows links of the last name, also to a file that does
 * not exist yet. `below`: the folders that the file and each link on the way must be below, ends
 * with NULL; NULL = no such limit. 0 or -errno: -EACCES where the file is not below one of the
 * folders, -ENOENT where its folder does not exist, -ELOOP after too many links. */
int cfg_place_open(struct cfg_place *place, const char *path, const char *const *below);
void cfg_place_close(struct cfg_place *place);

/* Returns 0 if the file is a regular one, else -EISDIR, -EINVAL or another -errno. */
int cfg_place_check(const struct cfg_place *place);
/* Reads the file, see cfg_read_file(). The file must be a regular one. */
int cfg_place_read(const struct cfg_place *place, char **text, size_t *len);
/* Replaces the file as a whole, or creates it; a reader sees the old file or the new one. Keeps the
 * mode and owner of the old file. 0 or -errno. */
int cfg_place_write(const struct cfg_place *place, const char *text);
/* The same for a file that is written again and again, in a folder in which only this process
 * writes. The temporary file is NAME.new, which is replaced: a process that was killed in a write
 * leaves no more than that one. */
int cfg_place_rewrite(const struct cfg_place *place, const char *text);

#endif
