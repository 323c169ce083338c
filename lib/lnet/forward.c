/* SPDX-License-Identifier: BSD-3-Clause */
/* Forwarding: from the end of a message's receive to its send. */
#include "lib/lnet/forward.h"
#include "lib/lnet/credit/credit.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/tx.h"

/* Chooses the path again if the one that was chosen when the header came is no longer good. */
static enum lnet_drop choose_again(struct lnet_msg *msg)
{
    struct lnet_path path = {msg->tx_ni, msg->next_hop, msg->next_gw, msg->generation};
    enum lnet_drop why;

    if (lnet_path_good(msg->home, &path) && !relaxed_load(&path.ni->fatal))
        return LNET_DROP_NONE;
    why = lnet_select(msg->home, &msg->hdr.dest_nid, &LNET_NID_ANY, NULL, &path);
    if (!why)
        lnet_admit_rerouted(msg, &path);
    return why;
}

void lnet_forward(struct lnet_rx *rx, struct lnet_result result)
{
    struct lnet_msg *msg = rx->msg;
    enum lnet_drop why;

    lnet_admit_received(rx);
    rx->msg = NULL;
    if (rx->taken.n > 0) {
        msg->payload = rx->taken;
        msg->release = rx->release;
        msg->release_owner = rx->release_owner;
    }
    if (result.reason) {
        lnet_drop_message(rx->shard, result.reason, rx->ni, rx->from, NULL, &msg->hdr);
        lnet_forward_free(msg);
        return;
    }
    lnet_rx_count(rx);
    msg->state = LNET_MSG_ROUTING;
    why = choose_again(msg);
    if (why) {
        msg->result = (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR};
        lnet_drop_message(msg->home, why, msg->rx_ni, msg->rx_peer, NULL, &msg->hdr);
        lnet_transmit_failed(msg);
        return;
    }
    lnet_transmit(msg);
}
