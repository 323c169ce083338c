/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/driver.h"

#include "lib/base/err.h"
#include "lib/lnd/code.h"

#include <errno.h>
#include <stdlib.h>

void lnd_driver_init(struct lnd_driver *driver, const struct lnd_proto *proto, unsigned max_conns,
                     unsigned min_reconnect, unsigned max_reconnect)
{
    driver->proto = proto;
    driver->max_conns = max_conns ? max_conns : proto->max_conns;
    driver->min_reconnect = min_reconnect;
    driver->max_reconnect = max_reconnect;
}

static bool shard_init(struct lnd_shard *shard, struct lnd_driver *driver, unsigned index)
{
    const struct lnd_proto *proto = driver->proto;

    shard->driver = driver;
    shard->index = index;
    shard->reactor = reactor_at(lnet_node_env(driver->node), index);
    shard->poller =
        (struct reactor_poller){.fn = proto->poll, .arg = shard, .max_sleep_us = UINT64_MAX};
    TAILQ_INIT(&shard->spare);
    TAILQ_INIT(&shard->connected);
    TAILQ_INIT(&shard->calls[0].waiting);
    TAILQ_INIT(&shard->calls[1].waiting);
    return lnd_pool_init(&shard->conns, driver->max_conns, proto->conn_size, proto->conn_kept) &&
           lnd_pool_init(&shard->peers, driver->max_conns, proto->peer_size, sizeof(void *)) &&
           share_init(&shard->calls[0].share, lnd_calls_most(driver->max_conns)) &&
           share_init(&shard->calls[1].share, lnd_calls_most(driver->max_conns)) &&
           proto->shard_init(shard);
}

static void shards_fini(struct lnd_driver *driver)
{
    for (unsigned i = 0; driver->shards && i < driver->nshards; i++) {
        struct lnd_shard *shard = lnd_shard_at(driver, i);

        driver->proto->shard_fini(shard);
        lnd_pool_fini(&shard->conns);
        lnd_pool_fini(&shard->peers);
        share_fini(&shard->calls[0].share);
        share_fini(&shard->calls[1].share);
    }
    free(driver->shards);
    driver->shards = NULL;
}

int lnd_shards_init(struct lnd_driver *driver, struct lnet_node *node, struct err *err)
{
    if (driver->shards)
        return 0;
    driver->node = node;
    driver->nshards = reactor_count(lnet_node_env(node));
    driver->shards = calloc(driver->nshards, driver->proto->shard_size);
    for (unsigned i = 0; driver->shards && i < driver->nshards; i++) {
        if (!shard_init(lnd_shard_at(driver, i), driver, i))
            shards_fini(driver);
    }
    if (driver->shards)
        return 0;
    return err_set(err, -ENOMEM, "no memory for %u %s connections per reactor; lower max_conns",
                   driver->max_conns, driver->proto->name);
}

size_t lnd_shard_bytes(const struct lnd_proto *proto, unsigned max_conns)
{
    return proto->shard_size + lnd_pool_bytes(max_conns, proto->conn_size) +
           lnd_pool_bytes(max_conns, proto->peer_size) + 2 * share_bytes(lnd_calls_most(max_conns));
}

void lnd_driver_free(void *ctx)
{
    struct lnd_driver *driver = ctx;

    if (!driver)
        return;
    driver->proto->driver_fini(driver);
    shards_fini(driver);
    free(driver);
}
