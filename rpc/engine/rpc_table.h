/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of methods, rpc/methods/methods.def, as data: for the server, the command line and the
 * documentation. Any thread. */
#ifndef MILLRACE_RPC_TABLE_H
#define MILLRACE_RPC_TABLE_H

#include "rpc/engine/jsonrpc.h"

#define RPC_MAX_BUFFERS  (1 << 20) /* of one kind; what there is memory for is less */
#define RPC_MAX_DOCUMENT (1 << 20) /* bytes of a configuration in a request */
#define RPC_PAGE         500       /* rows of a page when the caller names no limit */
#define RPC_PAGE_MAX     2000

extern const struct jrpc_method rpc_method_table[];

#endif
