/* SPDX-License-Identifier: BSD-3-Clause */
/* Gateways as the data path sees them: who may send through which, and notices of their state. */
#include "lib/lnet/path/path.h"

struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    const struct lnet_conf_gw *g;
    struct lnet_route *const *r;
    unsigned n;

    if (src_net == nid_net(via)) {
        g = lnet_conf_gateway(conf, via);
        return g && g->nroutes > 0 ? g->gw : NULL;
    }
    n = lnet_conf_routes(conf, src_net, &r);
    for (unsigned i = 0; i < n; i++)
        if (nid_same(&r[i]->gw->nid, via))
            return r[i]->gw;
    return NULL;
}

bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over)
{
    struct lnet_route *const *r;
    unsigned i, n = lnet_conf_routes(lnet_conf_get(node), net, &r);

    for (i = 0; i < n; i++)
        if (nid_net(&r[i]->gw->nid) == over)
            return true;
    return false;
}

void lnet_gw_changed(struct lnet_gw *gw, const char *cause)
{
    relaxed_store(&gw->lnd_cause, cause);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (relaxed_load(&gw->change_mailed))
        return;
    relaxed_store(&gw->change_mailed, true);
    reactor_post(lnet_node_home(gw->node), &gw->changed);
}
