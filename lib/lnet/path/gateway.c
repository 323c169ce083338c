/* SPDX-License-Identifier: BSD-3-Clause */
/* Gateways as the data path sees them: who may send through which. */
#include "lib/lnet/path/path.h"

/* Returns whether a gateway has a peer NI. */
static bool has_ni(const struct lnet_conf_gw *g, const struct lnet_gw_ni *ni)
{
    unsigned i;

    for (i = 0; i < g->nnis && g->ni[i].ni != ni; i++)
        ;
    return i < g->nnis;
}

struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    const struct lnet_conf_gw_ni *e = lnet_conf_gw_ni(conf, via);
    struct lnet_route *const *r;
    unsigned n;

    if (!e)
        return NULL;
    if (src_net == nid_net(via))
        return e->gw->nroutes > 0 ? e->gw->gw : NULL;
    n = lnet_conf_routes(conf, src_net, &r);
    for (unsigned i = 0; i < n; i++)
        if (has_ni(lnet_conf_gateway(conf, r[i]->gw), e->ni))
            return r[i]->gw;
    return NULL;
}

bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    struct lnet_route *const *r;
    unsigned n = lnet_conf_routes(conf, net, &r);

    for (unsigned i = 0; i < n; i++) {
        const struct lnet_conf_gw *g = lnet_conf_gateway(conf, r[i]->gw);

        for (unsigned k = 0; k < g->nnis; k++)
            if (nid_net(&g->ni[k].ni->nid) == over)
                return true;
    }
    return false;
}
