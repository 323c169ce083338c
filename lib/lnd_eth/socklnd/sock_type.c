/* SPDX-License-Identifier: BSD-3-Clause */
/* socklnd as a program knows it: lib/lnd/type.h. */
#include "lib/lnd_eth/socklnd/sock_type.h"

#include "lib/lnd_eth/socklnd/sock_drops.h"

static const struct lnet_drop_info drops[] = {
#define DROP(sym, name, kind, text, remedy) {name, kind, text, remedy},
#include "lib/lnd_eth/socklnd/sock_drops.def"
#undef DROP
};
const struct lnet_drop_table sock_drops = {SOCK_DROP_BLOCK, sizeof(drops) / sizeof(drops[0]),
                                           drops};

const struct lnd_type lnd_sock_type = {
    .name = "tcp",
    .net_type = LNET_LND_SOCK,
    .drops = &sock_drops,
    .on_ports = true,
    .device_may_lack = true, /* an interface of the host */
};
