/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/ni.h"

#include "lib/base/err.h"
#include "lib/base/minmax.h"

#include <errno.h>

#define CREDITS_DEFAULT      256
#define PEER_CREDITS_DEFAULT 8
#define CREDITS_MAX          65535
#define PEER_TIMEOUT_DEFAULT 180 /* s */
#define TIMEOUT_DEFAULT      50  /* s */
#define TIMEOUT_MAX          3600
#define CONNS_PER_PEER_MAX   127
#define TOS_MAX              255

static int check(struct err *err, const char *name, int value, int min, int max)
{
    if (value >= min && value <= max)
        return 0;
    return err_set(err, -EINVAL, "%s is %d; it must be %d to %d (or left out)", name, value, min,
                   max);
}

static void set_default(int *value, int unset)
{
    if (*value == -1)
        *value = unset;
}

void lnd_credits_default(struct lnet_tunables *tun)
{
    set_default(&tun->credits, CREDITS_DEFAULT);
    set_default(&tun->peer_credits, PEER_CREDITS_DEFAULT);
}

int lnd_check_tunables(const struct lnd_proto *proto, struct lnet_tunables *t, struct err *err)
{
    int rc;

    lnd_credits_default(t);
    set_default(&t->peer_timeout, PEER_TIMEOUT_DEFAULT);
    set_default(&t->peer_buffer_credits, 0);
    rc = check(err, "credits", t->credits, proto->credits_min, CREDITS_MAX);
    if (rc == 0)
        rc = check(err, "peer_credits", t->peer_credits, 1, CREDITS_MAX);
    if (rc == 0)
        rc = check(err, "peer_buffer_credits", t->peer_buffer_credits, 0, INT32_MAX);
    if (rc < 0)
        return rc;
    t->peer_credits =
        proto->peer_credits ? (int)proto->peer_credits(t) : min(t->peer_credits, t->credits);
    return 0;
}

int lnd_check_lnd_tunables(struct lnd_ni *lni, struct lnd_tunables *t, struct err *err)
{
    const struct lnd_proto *proto = lni->driver->proto;
    int rc;

    if (t->timeout == -1)
        t->timeout = TIMEOUT_DEFAULT;
    if (t->conns_per_peer == -1 || t->conns_per_peer == 0)
        t->conns_per_peer = proto->conns_default ? proto->conns_default(lni) : 1;
    rc = check(err, "timeout", t->timeout, 0, TIMEOUT_MAX);
    if (rc == 0)
        rc = check(err, "conns_per_peer", t->conns_per_peer, 0, CONNS_PER_PEER_MAX);
    if (rc == 0)
        rc = check(err, "tos", t->tos, -1, TOS_MAX);
    return rc;
}
