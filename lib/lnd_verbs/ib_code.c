/* SPDX-License-Identifier: BSD-3-Clause */
/* o2iblnd over rdma-core as a program uses it: lib/lnd/code.h. */
#include "lib/lnd_verbs/ib_type.h"
#include "lib/lnd_verbs/lnd_verbs.h"

struct verbs_opts lnd_verbs_opts(const struct lnd_conf *conf)
{
    const int *option = conf->option;
    struct verbs_opts opts = VERBS_OPTS_DEFAULT;

    opts.service = (uint16_t)option[IB_OPT_SERVICE];
    opts.keepalive = (unsigned)option[IB_OPT_KEEPALIVE];
    opts.retry_count = (unsigned)option[IB_OPT_RETRY_COUNT];
    opts.rnr_retry_count = (unsigned)option[IB_OPT_RNR_RETRY_COUNT];
    opts.min_reconnect = conf->min_reconnect;
    opts.max_reconnect = conf->max_reconnect;
    opts.require_privileged_port = option[IB_OPT_REQUIRE_PRIVILEGED_PORT];
    opts.use_privileged_port = option[IB_OPT_USE_PRIVILEGED_PORT];
    opts.remote_keys = (enum rdma_keys)option[IB_OPT_REMOTE_KEYS];
    opts.max_conns = (unsigned)option[IB_OPT_MAX_CONNECTIONS];
    return opts;
}

static void *create(const struct lnd_conf *conf)
{
    struct verbs_opts opts = lnd_verbs_opts(conf);

    return lnd_verbs_new(&opts);
}

static void memory(const struct lnd_conf *conf, unsigned reactors, const struct lnet_tunables *tun,
                   const struct lnd_tunables *lnd_tun, struct lnd_memory *out)
{
    struct verbs_opts opts = lnd_verbs_opts(conf);

    if (!tun) {
        static const struct lnet_tunables any = {-1, -1, -1, -1};

        tun = &any;
    }
    lnd_verbs_memory(
        &opts, reactors, lnd_verbs_depth(tun),
        lnd_tun ? lnd_tun->own[lnd_slot(&lnd_verbs_type, IB_TUN_CONCURRENT_SENDS)] : -1, out);
}

const struct lnd_code lnd_verbs_code = {
    .type = &lnd_verbs_type,
    .ops = &lnd_verbs_ops,
    .process_init = lnd_verbs_process_init,
    .create = create,
    .destroy = lnd_driver_free,
    .memory = memory,
};
