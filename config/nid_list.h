/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads ranges of NIDs, docs/protocol/lnet-core.md §1.5. Pure functions. */
#ifndef MILLRACE_NID_LIST_H
#define MILLRACE_NID_LIST_H

#include "lib/base/err.h"
#include "lib/lnet/lnet.h"

#define CFG_NID_RANGES 64 /* of one list */

/* Reads ranges with white space between them: "10.0.[0-3].*@tcp 10.1.0.0/16@tcp1 [1-9]@kfi *@o2ib".
 * An empty text gives a list of all NIDs. 0, with out->range to be freed; -EINVAL with a
 * sentence; -ENOMEM. */
int cfg_nid_list_parse(const char *text, struct nid_list *out, struct err *err);
/* Reads an expression of a selection policy: nets as in "tcp1", "tcp[1-3]" or "tcp*", or NIDs of
 * such nets, "10.0.[0-3].*@tcp1". A bare "tcp" is net number 0. -EINVAL with a sentence. */
int cfg_nid_expr_parse(const char *text, struct lnet_udsp_nids *out, struct err *err);

#endif
