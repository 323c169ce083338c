/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of LNDs about peer NIs (lnd.h). Messages are reported to rx.c and tx.c. */
#include "lib/lnet/path/path.h"
#include "lib/lnet/tx.h"

void lnet_peer_ni_notify(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool up)
{
    if (peer->gw) {
        relaxed_store(&peer->gw->lnd_down, !up);
        lnet_gw_changed(peer->gw, up ? "connected" : "connection_lost");
    }
    /* Messages that wait for credits to a peer NI that is down are of no use later, §4.5. */
    if (!up)
        lnet_tx_fail_peer(
            peer, (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED});
}
