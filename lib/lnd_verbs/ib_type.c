/* SPDX-License-Identifier: BSD-3-Clause */
/* o2iblnd as a program knows it: lib/lnd/type.h. docs/protocol/o2iblnd.md §7. */
#include "lib/lnd_verbs/ib_type.h"

#include <limits.h>

#include "lib/lnd_verbs/ib_drops.h"

static const struct lnet_drop_info drops[] = {
#define DROP(sym, name, kind, text, remedy) {name, kind, text, remedy},
#include "lib/lnd_verbs/ib_drops.def"
#undef DROP
};
const struct lnet_drop_table ib_drops = {IB_DROP_BLOCK, sizeof(drops) / sizeof(drops[0]), drops};

/* In the order that lnetctl has. */
static const struct lnd_setting tunables[] = {
    [IB_TUN_HIW] = {"peercredits_hiw", .min = -1, .max = 65535,
                    .help = "o2ib: credits owed to a peer from which on they are returned by "
                            "themselves; 0 = default"},
    [IB_TUN_CONCURRENT_SENDS] = {"concurrent_sends", .min = -1, .max = 65535,
                                 .help = "o2ib: messages under way on a connection; 0 = default"},
    [IB_TUN_MAP_ON_DEMAND] = {"map_on_demand", LND_BOOL_OR_INT, -1, 256, .kept = true},
    {"fmr_pool_size", .min = -1, .max = INT_MAX, .kept = true},
    {"fmr_flush_trigger", .min = -1, .max = INT_MAX, .kept = true},
    {"fmr_cache", .min = -1, .max = INT_MAX, .kept = true},
    {"ntx", .min = -1, .max = INT_MAX, .kept = true},
};

const char *const ib_keys_words[] = {"auto", "windows", "registrations", "shared", NULL};

static const struct lnd_setting options[IB_OPTIONS] = {
    [IB_OPT_SERVICE] = {"service", .min = 1, .max = 65535, .def = 987,
                        .help = "port of the connection manager, the same on all nodes"},
    [IB_OPT_KEEPALIVE] = {"keepalive", .max = 3600, .def = 100, .unit = "s",
                          .help = "silence before a sign of life is sent; 0 = never"},
    [IB_OPT_RETRY_COUNT] = {"retry_count", .max = 7, .def = 5,
                            .help = "times a packet is sent again"},
    [IB_OPT_RNR_RETRY_COUNT] = {"rnr_retry_count", .max = 7, .def = 6,
                                .help = "times it is sent again to a peer without a receive "
                                        "buffer; 7 = for ever"},
    [IB_OPT_REQUIRE_PRIVILEGED_PORT] = {"require_privileged_port", LND_BOOL, .max = 1,
                                        .help = "who connects must do so from a port below 1024"},
    [IB_OPT_USE_PRIVILEGED_PORT] = {"use_privileged_port", LND_BOOL, .max = 1, .def = 1,
                                    .help = "connect from a port below 1024 where there is one"},
    [IB_OPT_MAX_CONNECTIONS] = {"max_connections", .min = 16, .max = 1 << 16, .def = 1024,
                                .help = "connections of each thread"},
    [IB_OPT_REMOTE_KEYS] = {"remote_keys", LND_WORD, .words = ib_keys_words,
                            .help = "how a peer gets a key for the memory that it writes to: "
                                    "windows and registrations end with the transfer; auto = "
                                    "windows where the device has them, else shared"},
};

const struct lnd_type lnd_verbs_type = {
    .name = "o2ib",
    .net_type = LNET_LND_O2IB,
    .drops = &ib_drops,
    .tunables = tunables,
    .tunable_count = sizeof(tunables) / sizeof(tunables[0]),
    .section = "verbs",
    .options = options,
    .option_count = IB_OPTIONS,
    .registered_memory = true,
    .device_may_lack = true,
};
