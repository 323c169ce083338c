/* SPDX-License-Identifier: BSD-3-Clause */
/* socklnd as a program knows it: lib/lnd/type.h. */
#include "lib/lnd_eth/socklnd/sock_type.h"

#include "lib/lnd_eth/socklnd/sock_drops.h"

const struct lnd_type lnd_sock_type = {
    .name = "tcp",
    .net_type = LNET_LND_SOCK,
    .drops = &sock_drops,
    .on_ports = true,
};
