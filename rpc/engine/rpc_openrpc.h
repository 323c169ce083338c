/* SPDX-License-Identifier: BSD-3-Clause */
/* Renders the method table as an OpenRPC document and as text. Any thread. */
#ifndef MILLRACE_RPC_OPENRPC_H
#define MILLRACE_RPC_OPENRPC_H

#include <stdio.h>

#include "rpc/engine/jsonrpc.h"

/* OpenRPC 1.2 (https://spec.open-rpc.org): methods with JSON Schemas of their parameters and
 * results. Beyond it each method has x-role (read, operator, admin), x-phase (runtime, startup,
 * always) and x-command (words of `millrace`), each schema may have x-unit. NULL: out of memory. */
json_t *rpc_openrpc(const struct jrpc_method *methods);

/* The same as a reference in Markdown: the part of docs/jsonrpc.md behind RPC_DOCS_MARK. */
void rpc_docs_write(FILE *out, const struct jrpc_method *methods);
#define RPC_DOCS_MARK "<!-- What follows is made from the table of methods: ./dev docs -->\n"

/* Whether the result is nothing but `true`. */
bool rpc_result_is_true(const struct jrpc_method *method);

#endif
