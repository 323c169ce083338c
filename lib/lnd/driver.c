/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/driver.h"

#include <time.h>

void lnd_driver_init(struct lnd_driver *driver, const struct lnd_proto *proto)
{
    driver->proto = proto;
    for (unsigned i = 0; i < LNET_DROP_COUNT; i++) {
        driver->aborts[i] = (struct lnd_close){
            .cause = i,
            .tx = i,
            .rx = i == LNET_DROP_SHUTDOWN ? LNET_DROP_SHUTDOWN : LNET_DROP_RX_INCOMPLETE,
            .queued = LNET_HEALTH_LOCAL_ERROR,
            .begun = proto->abort_begun,
        };
    }
}

bool lnd_shard_init(struct lnd_shard *shard, struct lnd_driver *driver, unsigned index)
{
    const struct lnd_proto *proto = driver->proto;

    shard->driver = driver;
    shard->index = index;
    shard->reactor = reactor_at(lnet_node_env(driver->node), index);
    TAILQ_INIT(&shard->spare);
    return lnd_pool_init(&shard->conns, driver->max_conns, proto->conn_size, proto->conn_kept) &&
           lnd_pool_init(&shard->peers, driver->max_conns, proto->peer_size, sizeof(void *));
}

void lnd_shard_fini(struct lnd_shard *shard)
{
    lnd_pool_fini(&shard->conns);
    lnd_pool_fini(&shard->peers);
}

size_t lnd_shard_bytes(const struct lnd_proto *proto, unsigned max_conns)
{
    return lnd_pool_bytes(max_conns, proto->conn_size) +
           lnd_pool_bytes(max_conns, proto->peer_size);
}

uint64_t lnd_incarnation_new(struct lnd_driver *driver, unsigned unit_ns)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_REALTIME, &ts);
    now = ((uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec) / unit_ns;
    if (now <= driver->last_incarnation)
        now = driver->last_incarnation + 1;
    driver->last_incarnation = now;
    return now;
}
