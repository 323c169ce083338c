/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/code.h"

void *lnd_create_default(const struct lnd_code *code)
{
    int option[LND_OPTIONS_MAX];
    struct lnd_conf conf = {
        .option = option,
        .accept_port = 988,
        .accept_timeout = 5,
        .keepalive = 30,
        .min_reconnect = 1,
        .max_reconnect = 60,
    };

    for (unsigned i = 0; i < code->type->option_count; i++)
        option[i] = code->type->options[i].def;
    return code->create(&conf);
}
