/* SPDX-License-Identifier: BSD-3-Clause */
/* recovery_get: NIs and peer NIs that are pinged until they are healthy again. */
#include <errno.h>

#include "rpc/methods/methods_internal.h"

static void recovery_rows(void *arg, const struct lnet_nid *nids, unsigned n, unsigned total)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, rpc_nid(&nids[i]));
    jrpc_result(arg, json_pack("{s:o, s:I}", "nids", list, "total", (json_int_t)total));
}

void rpc_recovery_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    bool local = args[0].given && args[0].boolean, peer = args[1].given && args[1].boolean;

    if (local == peer)
        jrpc_fail(call, EINVAL, "local", "give local or peer", "%s of local and peer is given",
                  local ? "each" : "none");
    else if (lnet_recovery_get(ctx->control->node, local, recovery_rows, call) != 0)
        jrpc_result(call, NULL);
}
