/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole numbers of more than 64 bits, which are JSON but which the parser refuses. Pure function.
 */
#ifndef MILLRACE_JSON_WIDE_H
#define MILLRACE_JSON_WIDE_H

#include <stddef.h>

/* A copy of a JSON text in which such numbers are written as reals, so that they can be read, with
 * what precision there is. To be freed; NULL: out of memory. */
char *json_wide_as_reals(const char *text, size_t len, size_t *out_len);

#endif
